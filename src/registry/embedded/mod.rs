//! The registry of a single node: the same semantics as etcd's, over redb in the data directory.
//!
//! One thread owns the database (commits block); calls reach it through a bounded queue. Watches
//! read the recent history, which is in memory, and never touch the thread.

mod file;
mod history;
mod store;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use self::store::{Shared, Store};
use super::{
    Compare, KeyValue, LeaseId, Op, Page, Registry, RegistryError, RegistryFuture, Revision, Scan,
    TxnOutcome, Watch, WatchEvent,
};
use crate::time::Clock;

/// Calls that may be on their way to the thread at once; more wait.
const QUEUE_CALLS: usize = 128;

/// A call on its way to the thread.
enum Job {
    Call(Box<dyn FnOnce(&mut Store) + Send>),
    Close(oneshot::Sender<()>),
}

/// The handle of the embedded registry. The database is closed when it is dropped.
#[derive(Debug)]
pub struct Embedded {
    jobs: Option<SyncSender<Job>>,
    permits: Arc<Semaphore>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Opens the database at `path` or begins a new one; its directory is made where it is missing.
    pub async fn open(path: PathBuf, clock: Arc<dyn Clock>) -> Result<Self, RegistryError> {
        let (jobs, queue) = sync_channel::<Job>(QUEUE_CALLS + 1); // and the last one, which closes
        let (opened, opening) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("registry".to_owned())
            .spawn(move || match Store::open(&path, Arc::clone(&clock)) {
                Ok(store) => {
                    if opened.send(Ok(store.shared())).is_ok() {
                        run(store, &queue, clock.as_ref());
                    }
                }
                Err(error) => {
                    let _ = opened.send(Err(error)); // nobody waits for it any more
                }
            })
            .map_err(|error| RegistryError::Storage(format!("start the thread: {error}")))?;
        let shared = opening.await.map_err(|_| gone())??;
        Ok(Self {
            jobs: Some(jobs),
            permits: Arc::new(Semaphore::new(QUEUE_CALLS)),
            shared,
            thread: Some(thread),
        })
    }

    /// How often the disk was asked to sync since the start.
    pub async fn syncs(&self) -> Result<u64, RegistryError> {
        self.call(|store| Ok(store.syncs())).await
    }

    async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Store) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T, RegistryError> {
        let (reply, answer) = oneshot::channel();
        self.send(|permit| {
            Job::Call(Box::new(move |store| {
                drop(permit); // it has left the queue
                let _ = reply.send(job(store)); // the caller may have gone
            }))
        })
        .await?;
        answer.await.map_err(|_| gone())?
    }

    async fn send(
        &self,
        job: impl FnOnce(OwnedSemaphorePermit) -> Job,
    ) -> Result<(), RegistryError> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| gone())?;
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        // There is room: who sends holds one of as many permits as the queue has places.
        jobs.try_send(job(permit)).map_err(|_| gone())
    }
}

fn gone() -> RegistryError {
    RegistryError::Unavailable("its thread has ended".to_owned())
}

fn run(mut store: Store, queue: &Receiver<Job>, clock: &dyn Clock) {
    loop {
        store.expire_leases();
        let wait = store
            .next_expiry()
            .map(|due| due.saturating_duration_since(clock.now()));
        let job = match wait {
            // A lease that could not be revoked (the disk) is tried again, not in a hot loop.
            Some(wait) => match queue.recv_timeout(wait.max(Duration::from_millis(1))) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            },
            None => match queue.recv() {
                Ok(job) => job,
                Err(_) => return,
            },
        };
        match job {
            Job::Call(call) => {
                if let Err(error) = store.ensure_open() {
                    tracing::error!(%error, "cannot open the registry's database again");
                }
                store.expire_leases();
                call(&mut store);
            }
            Job::Close(closed) => {
                drop(store);
                let _ = closed.send(()); // the caller may have gone
                return;
            }
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It ends after the calls that are queued; a panic there was reported by its hook.
            let _ = thread.join();
        }
    }
}

impl Registry for Embedded {
    fn get(&self, key: &str) -> RegistryFuture<'_, Option<KeyValue>> {
        let key = key.to_owned();
        Box::pin(self.call(move |store| store.get(&key)))
    }

    fn range(
        &self,
        prefix: &str,
        from: &str,
        limit: usize,
        revision: Revision,
    ) -> RegistryFuture<'_, Page> {
        let (prefix, from) = (prefix.to_owned(), from.to_owned());
        Box::pin(self.call(move |store| store.range(&prefix, &from, limit, revision)))
    }

    fn scan(&self, scan: Scan<'_>) -> RegistryFuture<'_, Page> {
        let page = self.range(scan.prefix, scan.from, scan.limit, scan.revision);
        let Scan {
            changed_since,
            keys_only,
            ..
        } = scan;
        Box::pin(async move {
            let mut page = page.await?;
            page.entries
                .retain(|entry| entry.mod_revision >= changed_since);
            if keys_only {
                for entry in &mut page.entries {
                    entry.value = bytes::Bytes::new();
                }
            }
            Ok(page)
        })
    }

    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> RegistryFuture<'_, TxnOutcome> {
        Box::pin(self.call(move |store| store.txn(&compares, ops)))
    }

    fn txn_ops_max(&self) -> usize {
        usize::MAX
    }

    fn lease_grant(&self, ttl: Duration) -> RegistryFuture<'_, LeaseId> {
        Box::pin(self.call(move |store| Ok(store.lease_grant(ttl))))
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> RegistryFuture<'_, ()> {
        Box::pin(self.call(move |store| store.lease_keep_alive(lease)))
    }

    fn lease_revoke(&self, lease: LeaseId) -> RegistryFuture<'_, ()> {
        Box::pin(self.call(move |store| store.lease_revoke(lease)))
    }

    fn watch(&self, prefix: &str, from: Revision) -> RegistryFuture<'_, Box<dyn Watch>> {
        let watch = EmbeddedWatch {
            shared: Arc::clone(&self.shared),
            newest: self.shared.newest.subscribe(),
            prefix: prefix.to_owned(),
            next: from,
        };
        Box::pin(async { Ok(Box::new(watch) as Box<dyn Watch>) })
    }

    fn compact(&self, revision: Revision) -> RegistryFuture<'_, ()> {
        Box::pin(self.call(move |store| store.compact(revision)))
    }

    fn close(&self) -> RegistryFuture<'_, ()> {
        Box::pin(async {
            let (reply, closed) = oneshot::channel();
            self.send(|_| Job::Close(reply)).await?;
            closed.await.map_err(|_| gone())
        })
    }
}

#[derive(Debug)]
struct EmbeddedWatch {
    shared: Arc<Shared>,
    newest: watch::Receiver<Revision>,
    prefix: String,
    next: Revision,
}

impl Watch for EmbeddedWatch {
    fn next(&mut self) -> RegistryFuture<'_, Vec<WatchEvent>> {
        Box::pin(async {
            loop {
                self.newest.borrow_and_update();
                let (found, newest) = {
                    let history = self.shared.history.lock();
                    (history.next(&self.prefix, self.next)?, history.newest())
                };
                if let Some((events, next)) = found {
                    self.next = next;
                    return Ok(events);
                }
                // What did not concern this watch must not hold it back from compaction.
                self.next = self.next.max(newest + 1);
                if self.newest.changed().await.is_err() {
                    return Err(gone());
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use std::sync::atomic::Ordering;

    use bytes::Bytes;

    use super::*;
    use crate::time::ManualClock;

    async fn open(path: &Path) -> (Embedded, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(0));
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let embedded = Embedded::open(path.to_owned(), shared).await.unwrap();
        (embedded, clock)
    }

    fn put(key: &str, lease: LeaseId) -> Op {
        Op::Put {
            key: key.to_owned(),
            value: Bytes::from_static(b"{}"),
            lease,
        }
    }

    /// More than fits into a file as it was made.
    fn large(key: &str) -> Vec<Op> {
        let value = Bytes::from(vec![7; 8 << 20]);
        vec![Op::Put {
            key: key.to_owned(),
            value,
            lease: 0,
        }]
    }

    fn absent(key: &str) -> Compare {
        Compare::CreateRevision {
            key: key.to_owned(),
            revision: 0,
        }
    }

    #[tokio::test]
    async fn a_start_on_an_empty_disk_costs_two_syncs_and_a_transaction_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/registry.redb");
        let (registry, _) = open(&path).await;
        assert_eq!(registry.get("/a").await.unwrap(), None);
        assert!(
            registry
                .range("/", "", 9, 0)
                .await
                .unwrap()
                .entries
                .is_empty()
        );
        assert_eq!(registry.syncs().await.unwrap(), 0);
        assert!(!path.exists());
        registry.txn(vec![], vec![put("/a", 0)]).await.unwrap();
        assert_eq!(registry.syncs().await.unwrap(), 2);
        assert!(path.exists());
        let many = (0..50).map(|n| put(&format!("/many/{n}"), 0)).collect();
        registry.txn(vec![], many).await.unwrap();
        assert_eq!(registry.syncs().await.unwrap(), 3);
        let failed = registry.txn(vec![absent("/a")], vec![put("/b", 0)]).await;
        assert!(!failed.unwrap().succeeded);
        assert_eq!(registry.syncs().await.unwrap(), 3);
    }

    #[tokio::test]
    async fn what_was_committed_outlives_the_process_and_its_leases_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("registry.redb");
        let crashed = directory.path().join("crashed.redb");
        let (registry, _) = open(&path).await;
        let lease = registry.lease_grant(Duration::from_secs(9)).await.unwrap();
        registry
            .txn(
                vec![],
                vec![put("/kept", 0), put("/l/1", lease), put("/l/2", lease)],
            )
            .await
            .unwrap();
        std::fs::copy(&path, &crashed).unwrap(); // as a kill would leave it
        drop(registry);
        for path in [path, crashed] {
            let (registry, _) = open(&path).await;
            let page = registry.range("/", "", 9, 0).await.unwrap();
            let keys: Vec<_> = page
                .entries
                .iter()
                .map(|entry| entry.key.as_str())
                .collect();
            assert_eq!((keys, page.revision), (vec!["/kept"], 1));
            assert_eq!(registry.get("/l/1").await.unwrap(), None);
            // The first transaction makes it so on disk as well, and watchers hear of it.
            let mut watch = registry.watch("/l/", 2).await.unwrap();
            let lease = registry.lease_grant(Duration::from_secs(9)).await.unwrap();
            let outcome = registry
                .txn(vec![absent("/l/1")], vec![put("/l/1", lease)])
                .await
                .unwrap();
            assert!(outcome.succeeded);
            let entry = registry.get("/l/1").await.unwrap().unwrap();
            assert_eq!((entry.create_revision, entry.lease), (2, lease));
            let events = watch.next().await.unwrap();
            assert_eq!(events.len(), 2);
            assert_eq!(
                events[1],
                WatchEvent::Delete {
                    key: "/l/2".to_owned(),
                    revision: 2
                }
            );
        }
    }

    #[tokio::test]
    async fn a_lease_runs_out_by_the_clock_it_was_given() {
        let directory = tempfile::tempdir().unwrap();
        let (registry, clock) = open(&directory.path().join("registry.redb")).await;
        let lease = registry.lease_grant(Duration::from_secs(9)).await.unwrap();
        registry.txn(vec![], vec![put("/l", lease)]).await.unwrap();
        clock.advance(Duration::from_secs(8));
        registry.lease_keep_alive(lease).await.unwrap();
        clock.advance(Duration::from_secs(8));
        assert!(registry.get("/l").await.unwrap().is_some());
        clock.advance(Duration::from_secs(1));
        assert_eq!(registry.get("/l").await.unwrap(), None);
        assert!(matches!(
            registry.lease_keep_alive(lease).await,
            Err(RegistryError::LeaseNotFound)
        ));
    }

    #[tokio::test]
    async fn a_start_that_ended_early_is_no_obstacle_and_a_second_process_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("registry.redb");
        std::fs::write(directory.path().join("registry.redb.new"), b"half").unwrap();
        let (registry, _) = open(&path).await;
        registry.txn(vec![], vec![put("/a", 0)]).await.unwrap();
        let clock = Arc::new(ManualClock::new(0));
        let second = Embedded::open(path, clock).await;
        assert!(matches!(second, Err(RegistryError::Storage(_))));
    }

    #[tokio::test]
    async fn a_full_disk_passes() {
        for first in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("registry.redb");
            let (registry, _) = open(&path).await;
            let lease = registry.lease_grant(Duration::from_secs(9)).await.unwrap();
            if !first {
                let ops = vec![put("/before", 0), put("/l", lease)];
                registry.txn(vec![], ops).await.unwrap();
            }
            let full = |full| {
                registry.call(move |store| {
                    store.file().set_full(full);
                    Ok(())
                })
            };
            full(true).await.unwrap();
            for _ in 0..2 {
                let failed = registry.txn(vec![], large("/a")).await;
                assert!(matches!(failed, Err(RegistryError::Storage(_))));
                if !first {
                    // What needs no more room goes on, reads among it.
                    registry.txn(vec![], vec![put("/c", 0)]).await.unwrap();
                    assert!(registry.get("/c").await.unwrap().is_some());
                }
            }
            assert!(registry.get("/a").await.unwrap().is_none());
            full(false).await.unwrap();
            registry.txn(vec![], large("/a")).await.unwrap();
            registry.txn(vec![], vec![put("/b", 0)]).await.unwrap();
            assert!(registry.get("/b").await.unwrap().is_some());
            if !first {
                assert!(registry.get("/before").await.unwrap().is_some());
                registry.lease_revoke(lease).await.unwrap();
                assert_eq!(registry.get("/l").await.unwrap(), None);
            }
            registry.close().await.unwrap();
            let (again, _) = open(&path).await;
            assert!(again.get("/b").await.unwrap().is_some());
        }
    }

    /// redb gives back room when it is closed and asks for it at the next start.
    #[tokio::test]
    async fn a_start_on_a_full_disk_takes_room_from_the_reserve() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("registry.redb");
        let reserve = directory.path().join("registry.reserve");
        let (registry, _) = open(&path).await;
        registry.txn(vec![], vec![put("/a", 0)]).await.unwrap();
        let bytes = || std::fs::metadata(&reserve).unwrap().len();
        assert_eq!(bytes(), 1 << 20);
        let full = |full| {
            registry.call(move |store| {
                store.file().set_full(full);
                Ok(())
            })
        };
        full(true).await.unwrap();
        let value = Bytes::from(vec![7; 200 << 10]);
        let op = Op::Put {
            key: "/b".to_owned(),
            value,
            lease: 0,
        };
        registry.txn(vec![], vec![op]).await.unwrap();
        assert!((300 << 10..900 << 10).contains(&bytes()), "{}", bytes());
        full(false).await.unwrap();
        registry.txn(vec![], vec![put("/c", 0)]).await.unwrap();
        assert_eq!(bytes(), 1 << 20);
    }

    #[tokio::test]
    async fn a_failed_sync_does_not_pass() {
        for first in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("registry.redb");
            let (registry, _) = open(&path).await;
            if !first {
                registry.txn(vec![], vec![put("/before", 0)]).await.unwrap();
            }
            let fail = |fail| {
                registry.call(move |store| {
                    store.file().faults().sync.store(fail, Ordering::Relaxed);
                    Ok(())
                })
            };
            fail(true).await.unwrap();
            assert!(registry.txn(vec![], vec![put("/a", 0)]).await.is_err());
            fail(false).await.unwrap();
            for _ in 0..2 {
                let failed = registry.txn(vec![], vec![put("/b", 0)]).await;
                assert!(matches!(failed, Err(RegistryError::Storage(_))));
            }
            drop(registry);
            let (again, _) = open(&path).await;
            assert!(again.get("/b").await.unwrap().is_none());
            assert_eq!(again.get("/before").await.unwrap().is_some(), !first);
            again.txn(vec![], vec![put("/b", 0)]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn after_closing_the_file_is_free_and_calls_fail() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("registry.redb");
        let (registry, _) = open(&path).await;
        registry.txn(vec![], vec![put("/a", 0)]).await.unwrap();
        registry.close().await.unwrap();
        assert!(matches!(
            registry.get("/a").await,
            Err(RegistryError::Unavailable(_))
        ));
        assert!(registry.close().await.is_err());
        let (again, _) = open(&path).await;
        assert!(again.get("/a").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_damaged_file_is_an_error_and_no_panic() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("registry.redb");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let clock = Arc::new(ManualClock::new(0));
        let opened = Embedded::open(path, clock).await;
        assert!(matches!(opened, Err(RegistryError::Storage(_))));
    }
}
