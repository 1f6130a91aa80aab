//! Where blocking disk work runs: a bounded pool per log directory.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, ThreadId};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::callers::Callers;

/// A piece of blocking work.
pub type Job = Box<dyn FnOnce() + Send + 'static>;

/// Runs jobs that may block. Jobs of one `lane` (a partition) run one after the other, in order.
pub trait Executor: Debug + Send + Sync {
    /// For what must be done: there are few of these. Does not wait.
    fn submit(&self, lane: u64, job: Job);
    /// For what a client asks for: a job that finds too many before it (a disk that stalls) is dropped
    /// without being run. Does not wait.
    fn offer(&self, lane: u64, job: Job);
    /// The same for what takes a millisecond at most while the disk answers at once. It may run on the caller's
    /// thread, which waits for it then (see [`Callers`]).
    fn offer_short(&self, lane: u64, job: Job);
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

    fn offer_short(&self, _lane: u64, job: Job) {
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
    /// Without, nothing runs on its caller.
    callers: OnceLock<Arc<Callers>>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    threads_max: usize,
    queued_max: usize,
    queue: Mutex<Queue>,
    /// Workers wait here for work.
    work: Condvar,
    /// Who stops waits here for the caller that runs a job.
    left: Condvar,
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
    /// A caller that runs a job.
    caller: Option<ThreadId>,
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
                left: Condvar::new(),
            }),
            threads: Mutex::new(Vec::new()),
            callers: OnceLock::new(),
        }
    }

    /// Short jobs may run on their callers' threads from now on.
    pub(super) fn use_callers(&self, callers: Arc<Callers>) {
        let _ = self.callers.set(callers); // the first one stays
    }

    /// Runs what was submitted, then ends the threads. What is submitted later runs on its caller.
    pub fn stop(&self) {
        self.shared.queue.lock().stopped = true;
        self.shared.work.notify_all();
        let this = std::thread::current().id();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.thread().id() != this {
                let _ = thread.join();
            }
        }
        let mut queue = self.shared.queue.lock();
        while queue.caller.is_some_and(|caller| caller != this) {
            self.shared.left.wait(&mut queue);
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

    fn offer_short(&self, lane: u64, job: Job) {
        let Some(turn) = self.callers.get().and_then(|callers| callers.enter()) else {
            return self.offer(lane, job);
        };
        let mut queue = self.shared.queue.lock();
        // Only one has a turn, but a lane has its order, and one that was told to stop is awaited.
        if queue.stopped || queue.caller.is_some() || queue.lanes.contains_key(&lane) {
            drop(queue);
            drop(turn);
            return self.offer(lane, job);
        }
        queue.queued += 1;
        queue.lanes.insert(lane, VecDeque::new());
        queue.caller = Some(std::thread::current().id());
        drop(queue);
        self.shared.run(job);
        drop(turn);
        self.leave(lane);
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
        self.make_ready(queue, lane, job);
    }

    /// The caller's job is done: the pool goes on with what came behind it.
    fn leave(&self, lane: u64) {
        let mut queue = self.shared.queue.lock();
        if let Some(next) = queue.next_in(lane) {
            if !queue.stopped {
                queue.caller = None;
                return self.make_ready(queue, lane, next);
            }
            // Whoever stops waits for this one; threads may be none any more.
            queue.ready.push_back((lane, next));
            drop(queue);
            self.shared.drain();
            queue = self.shared.queue.lock();
        }
        queue.caller = None;
        if queue.stopped {
            self.shared.left.notify_all();
        }
    }

    fn make_ready(&self, mut queue: MutexGuard<'_, Queue>, lane: u64, job: Job) {
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
            self.run(job);
            queue = self.queue.lock();
            if let Some(next) = queue.next_in(lane) {
                // To the end of the queue: a busy lane does not starve the others.
                queue.ready.push_back((lane, next));
            }
        }
    }

    fn run(&self, job: Job) {
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!(pool = %self.name, "a log job panicked");
        }
    }
}

impl Queue {
    /// A job of the lane is done; the one behind it.
    fn next_in(&mut self, lane: u64) -> Option<Job> {
        self.queued -= 1;
        let next = self.lanes.get_mut(&lane).and_then(VecDeque::pop_front);
        if next.is_none() {
            self.lanes.remove(&lane);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::time::ManualClock;

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

    fn with_callers(threads: usize) -> ThreadPool {
        let pool = ThreadPool::new("test", threads, 100_000);
        // The clock stands: no job takes long.
        let callers = Callers::new(Arc::new(ManualClock::new(0)), || {});
        pool.use_callers(Arc::new(callers.unwrap()));
        pool
    }

    #[test]
    fn a_short_job_runs_on_its_caller_unless_its_lane_is_busy() {
        let pool = with_callers(1);
        let this = std::thread::current().id();
        let (tell, told) = mpsc::channel();
        let telling = |number| -> Job {
            let tell = tell.clone();
            Box::new(move || {
                tell.send((number, std::thread::current().id() == this))
                    .unwrap()
            })
        };
        pool.offer_short(1, telling(0));
        assert_eq!(told.try_recv(), Ok((0, true)));

        let (release, blocked) = mpsc::channel::<()>();
        pool.submit(1, Box::new(move || blocked.recv().unwrap()));
        pool.offer_short(1, telling(1));
        pool.offer_short(2, telling(2));
        assert_eq!(told.try_recv(), Ok((2, true)));
        assert!(told.try_recv().is_err());
        release.send(()).unwrap();
        assert_eq!(told.recv(), Ok((1, false)));
    }

    #[test]
    fn what_comes_behind_a_callers_job_waits_for_it_and_others_go_to_the_pool() {
        let pool = Arc::new(with_callers(2));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noting = |number: usize| -> Job {
            let seen = Arc::clone(&seen);
            Box::new(move || seen.lock().push(number))
        };
        let (release, blocked) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let caller = std::thread::spawn({
            let (pool, first) = (Arc::clone(&pool), noting(0));
            move || {
                let job = move || {
                    begin.send(()).unwrap();
                    blocked.recv().unwrap();
                    first();
                };
                pool.offer_short(1, Box::new(job));
            }
        });
        begun.recv().unwrap();
        pool.offer_short(1, noting(1));
        pool.submit(1, noting(2));
        let (done, finished) = mpsc::channel();
        pool.offer_short(2, Box::new(move || done.send(()).unwrap()));
        finished.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(seen.lock().is_empty());
        release.send(()).unwrap();
        caller.join().unwrap();
        pool.stop();
        assert_eq!(*seen.lock(), [0, 1, 2]);
    }

    #[test]
    fn who_stops_the_pool_waits_for_a_caller_and_for_what_came_behind_it() {
        let pool = Arc::new(with_callers(1));
        let count = Arc::new(AtomicUsize::new(0));
        let (begin, begun) = mpsc::channel();
        let caller = std::thread::spawn({
            let (pool, count) = (Arc::clone(&pool), Arc::clone(&count));
            move || {
                let job = move || {
                    begin.send(()).unwrap();
                    std::thread::sleep(Duration::from_millis(200));
                    count.fetch_add(1, Ordering::SeqCst);
                };
                pool.offer_short(1, Box::new(job));
            }
        });
        begun.recv().unwrap();
        let behind = Arc::clone(&count);
        let job = move || {
            behind.fetch_add(1, Ordering::SeqCst);
        };
        pool.submit(1, Box::new(job));
        pool.stop();
        assert_eq!(count.load(Ordering::SeqCst), 2);
        caller.join().unwrap();
    }

    #[test]
    fn a_callers_panicking_job_frees_its_lane_and_its_turn() {
        let pool = with_callers(1);
        pool.offer_short(1, Box::new(|| panic!("an expected panic")));
        let (tell, told) = mpsc::channel();
        let this = std::thread::current().id();
        let job = move || tell.send(std::thread::current().id() == this).unwrap();
        pool.offer_short(1, Box::new(job));
        assert_eq!(told.try_recv(), Ok(true));
    }
}
