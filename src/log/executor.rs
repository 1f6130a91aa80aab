//! Where blocking disk work runs: a bounded pool per log directory.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// A piece of blocking work.
pub type Job = Box<dyn FnOnce() + Send + 'static>;

/// Runs jobs that may block. Jobs of one `lane` (a partition) run one after the other, in order.
/// Neither method waits.
pub trait Executor: Debug + Send + Sync {
    /// For what must be done: there are few of these.
    fn submit(&self, lane: u64, job: Job);
    /// For what a client asks for: a job that finds too many before it (a disk that stalls) is dropped
    /// without being run.
    fn offer(&self, lane: u64, job: Job);
}

/// Runs each job at once, on the caller's thread: simulations and unit tests.
#[derive(Debug, Default, Clone, Copy)]
pub struct InlineExecutor;

impl Executor for InlineExecutor {
    fn submit(&self, _lane: u64, job: Job) {
        job();
    }

    fn offer(&self, _lane: u64, job: Job) {
        job();
    }
}

/// At most a fixed number of threads, started when there is work for them. Idle threads are parked.
///
/// The queue is bounded: past the bound `offer` drops what it is given. What callers may have in flight
/// is bounded well below (`queued.max.request.bytes`), so that this is a last resort.
#[derive(Debug)]
pub struct ThreadPool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    threads_max: usize,
    queued_max: usize,
    queue: Mutex<Queue>,
    /// Workers wait here for work.
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Lanes with a job that runs or is in `ready`, and the jobs that wait behind it.
    lanes: HashMap<u64, VecDeque<Job>>,
    ready: VecDeque<(u64, Job)>,
    queued: usize,
    idle: usize,
    /// One of the idle was told of work and has not looked yet. The next one is told by it, if more is
    /// there than it takes: on a busy machine several jobs then cost one wake-up.
    told: bool,
    threads: usize,
    stopped: bool,
}

impl Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("queued", &self.queued)
            .field("idle", &self.idle)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl ThreadPool {
    /// Threads are called `name-0`, `name-1` …
    pub fn new(name: impl Into<String>, threads_max: usize, queued_max: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                name: name.into(),
                threads_max: threads_max.max(1),
                queued_max: queued_max.max(1),
                queue: Mutex::new(Queue::default()),
                work: Condvar::new(),
            }),
            threads: Mutex::new(Vec::new()),
        }
    }

    /// Runs what was submitted, then ends the threads. What is submitted later runs on its caller.
    pub fn stop(&self) {
        self.shared.queue.lock().stopped = true;
        self.shared.work.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }

    fn start_thread(&self, number: usize) {
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new()
            .name(format!("{}-{number}", shared.name))
            .spawn(move || shared.work());
        match started {
            Ok(thread) => self.threads.lock().push(thread),
            Err(error) => {
                let alone = {
                    let mut queue = self.shared.queue.lock();
                    queue.threads -= 1;
                    queue.threads == 0
                };
                tracing::error!(%error, "start a log thread");
                if alone {
                    self.shared.drain(); // no thread at all: the caller does the work
                }
            }
        }
    }
}

impl Executor for ThreadPool {
    fn submit(&self, lane: u64, job: Job) {
        self.add(self.shared.queue.lock(), lane, job);
    }

    fn offer(&self, lane: u64, job: Job) {
        let queue = self.shared.queue.lock();
        if queue.queued < self.shared.queued_max {
            self.add(queue, lane, job);
        } else {
            drop(queue);
            drop(job); // whoever waits for it hears of it: not under the lock
        }
    }
}

impl ThreadPool {
    fn add(&self, mut queue: MutexGuard<'_, Queue>, lane: u64, job: Job) {
        if queue.stopped {
            drop(queue);
            job();
            return;
        }
        queue.queued += 1;
        if let Some(waiting) = queue.lanes.get_mut(&lane) {
            waiting.push_back(job);
            return; // whoever runs the lane's job before goes on with this one
        }
        queue.lanes.insert(lane, VecDeque::new());
        queue.ready.push_back((lane, job));
        if queue.idle < queue.ready.len() && queue.threads < self.shared.threads_max {
            queue.threads += 1;
            let number = queue.threads;
            drop(queue);
            self.start_thread(number);
        } else {
            self.shared.tell_one(queue);
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Wakes an idle worker, unless one is on its way.
    fn tell_one(&self, mut queue: MutexGuard<'_, Queue>) {
        if queue.idle > 0 && !queue.told {
            queue.told = true;
            drop(queue);
            self.work.notify_one();
        }
    }

    fn work(&self) {
        loop {
            self.drain();
            let mut queue = self.queue.lock();
            if !queue.ready.is_empty() {
                continue;
            }
            if queue.stopped {
                queue.threads -= 1;
                return;
            }
            queue.idle += 1;
            self.work.wait(&mut queue);
            queue.idle -= 1;
            queue.told = false;
            if queue.ready.len() > 1 {
                self.tell_one(queue);
            }
        }
    }

    /// Runs jobs until none is ready.
    fn drain(&self) {
        let mut queue = self.queue.lock();
        while let Some((lane, job)) = queue.ready.pop_front() {
            drop(queue);
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!(thread = %self.name, "a log job panicked");
            }
            queue = self.queue.lock();
            queue.queued -= 1;
            match queue.lanes.get_mut(&lane).and_then(VecDeque::pop_front) {
                // To the end of the queue: a busy lane does not starve the others.
                Some(next) => queue.ready.push_back((lane, next)),
                None => {
                    queue.lanes.remove(&lane);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lane_keeps_its_order_and_all_jobs_run() {
        let pool = ThreadPool::new("test", 3, 100_000);
        let seen: Arc<Vec<Mutex<Vec<usize>>>> =
            Arc::new((0..7).map(|_| Mutex::new(Vec::new())).collect());
        for number in 0..7_000 {
            let seen = Arc::clone(&seen);
            let lane = number % 7;
            pool.submit(
                lane as u64,
                Box::new(move || seen[lane].lock().push(number)),
            );
        }
        pool.stop();
        for (lane, numbers) in seen.iter().enumerate() {
            let expected: Vec<usize> = (0..1_000).map(|n| n * 7 + lane).collect();
            assert_eq!(*numbers.lock(), expected);
        }
        assert!(pool.shared.queue.lock().lanes.is_empty());
    }

    #[test]
    fn a_stalled_lane_does_not_hold_up_another() {
        let pool = ThreadPool::new("test", 2, 10);
        let (release, blocked) = mpsc::channel::<()>();
        pool.submit(1, Box::new(move || blocked.recv().unwrap()));
        let (done, finished) = mpsc::channel();
        pool.submit(2, Box::new(move || done.send(()).unwrap()));
        finished.recv_timeout(Duration::from_secs(10)).unwrap();
        release.send(()).unwrap();
    }

    #[test]
    fn a_panicking_job_takes_nothing_with_it() {
        let pool = ThreadPool::new("test", 1, 10);
        let count = Arc::new(AtomicUsize::new(0));
        for number in 0..4 {
            let count = Arc::clone(&count);
            pool.submit(
                1,
                Box::new(move || {
                    assert!(number % 2 == 1, "an expected panic");
                    count.fetch_add(1, Ordering::SeqCst);
                }),
            );
        }
        pool.stop();
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_full_queue_drops_what_is_offered_and_a_stopped_pool_runs_on_its_caller() {
        let pool = ThreadPool::new("test", 1, 10);
        let count = Arc::new(AtomicUsize::new(0));
        let counting = || -> Job {
            let count = Arc::clone(&count);
            Box::new(move || {
                count.fetch_add(1, Ordering::SeqCst);
            })
        };
        let (release, blocked) = mpsc::channel::<()>();
        pool.submit(1, Box::new(move || blocked.recv().unwrap()));
        for lane in 0..100 {
            pool.offer(lane, counting());
        }
        for lane in 0..100 {
            pool.submit(lane, counting());
        }
        release.send(()).unwrap();
        pool.stop();
        assert_eq!(count.load(Ordering::SeqCst), 9 + 100);
        pool.offer(1, counting());
        assert_eq!(count.load(Ordering::SeqCst), 9 + 101);
    }
}
