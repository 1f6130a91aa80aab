//! Where blocking disk work runs: a bounded pool per log directory.

use std::fmt::Debug;

/// A piece of blocking work.
pub type Job = Box<dyn FnOnce() + Send + 'static>;

/// Runs jobs that may block. Jobs of one `lane` (a partition) run one after the other, in order.
pub trait Executor: Debug + Send + Sync {
    fn submit(&self, lane: u64, job: Job);
}

/// Runs each job at once, on the caller's thread: simulations and unit tests.
#[derive(Debug, Default, Clone, Copy)]
pub struct InlineExecutor;

impl Executor for InlineExecutor {
    fn submit(&self, _lane: u64, job: Job) {
        job();
    }
}

/// A fixed number of threads.
#[derive(Debug)]
pub struct ThreadPool {}
