//! What brokers send and who carries it: calls of the registry, frames between brokers, answers to clients.
//! Whoever sends puts it into the [`Post`]; the world decides when it arrives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Notify, oneshot};

use super::store::Range;
use crate::registry::{
    Compare, KeyValue, LeaseId, Op, Page, Registry, RegistryError, RegistryFuture, Revision, Scan,
    TxnOutcome, Watch, WatchEvent,
};
use crate::replication::Simulated;
use crate::types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

/// A registry that does not answer for so long counts as not answering.
const ASK_TIMEOUT: Duration = Duration::from_millis(900);

/// Which part of a broker asks the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Session,
    Watcher,
    Controller,
    Publisher,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Who {
    pub(super) node: usize,
    pub(super) life: u32,
    pub(super) part: Part,
}

#[derive(Debug)]
pub(super) enum Ask {
    Get(String),
    Range(Range),
    Txn(Vec<Compare>, Vec<Op>),
    Grant(Duration),
    KeepAlive(LeaseId),
    Revoke(LeaseId),
    Watch(Revision, Arc<Stream>),
}

#[derive(Debug)]
pub(super) enum Answer {
    Entry(Option<KeyValue>),
    Page(Page),
    Txn(TxnOutcome),
    Lease(LeaseId),
    Done,
}

pub(super) type Reply = oneshot::Sender<Result<Answer, RegistryError>>;

/// Which record: of a coordinator its count.
pub(super) type Record = (LeaderEpoch, u64);

#[derive(Debug)]
pub(super) enum Mail {
    Ask(Who, Ask, Reply),
    /// A request from one broker to another.
    Frame {
        from: usize,
        to: usize,
        frame: Bytes,
        answer: oneshot::Sender<Bytes>,
    },
    /// Its answer, on its way back.
    Answer {
        from: usize,
        to: usize,
        frame: Bytes,
        answer: oneshot::Sender<Bytes>,
    },
    /// To a producer, or a coordinator.
    Produced {
        number: u64,
        node: usize,
        outcome: Result<Offset, ErrorCode>,
    },
    /// To a consumer: the end of the partition, and records.
    Consumed {
        number: u64,
        latest: Result<Offset, ErrorCode>,
        records: Vec<Record>,
    },
}

#[derive(Debug, Default)]
pub(super) struct Post(Mutex<Vec<Mail>>);

impl Post {
    pub(super) fn send(&self, mail: Mail) {
        self.0.lock().push(mail);
    }

    pub(super) fn collect(&self) -> Vec<Mail> {
        std::mem::take(&mut *self.0.lock())
    }
}

// --- tasks ---

/// A task can go on, and so can one of all.
#[derive(Debug)]
struct Flag {
    task: AtomicBool,
    any: Arc<AtomicBool>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.task.store(true, Ordering::Relaxed);
        self.any.store(true, Ordering::Relaxed);
    }
}

struct Task {
    future: BoxFuture<'static, ()>,
    flag: Arc<Flag>,
}

/// Tasks that run when they are told to, one after the other.
#[derive(Default)]
pub(super) struct Tasks {
    running: Vec<Task>,
    any: Arc<AtomicBool>,
    pub(super) spawner: Arc<Spawner>,
}

/// Takes what is to run.
#[derive(Default)]
pub(super) struct Spawner(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Spawner {
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().push(Box::pin(future));
    }
}

impl std::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spawner")
    }
}

impl Tasks {
    /// Runs whoever can go on; false if nobody can.
    pub(super) fn run(&mut self) -> bool {
        let mut any = false;
        loop {
            let new = std::mem::take(&mut *self.spawner.0.lock());
            if new.is_empty() && !self.any.swap(false, Ordering::Relaxed) {
                return any;
            }
            any = true;
            self.running.extend(new.into_iter().map(|future| Task {
                future,
                flag: Arc::new(Flag {
                    task: AtomicBool::new(true),
                    any: Arc::clone(&self.any),
                }),
            }));
            self.running.retain_mut(|task| {
                if !task.flag.task.swap(false, Ordering::Relaxed) {
                    return true;
                }
                let waker = Waker::from(Arc::clone(&task.flag));
                let polled = task.future.as_mut().poll(&mut Context::from_waker(&waker));
                polled == Poll::Pending
            });
        }
    }
}

// --- the registry, as a broker has it ---

/// One part's way to the registry.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) who: Who,
    pub(super) post: Arc<Post>,
}

/// The changes that have arrived of a watch.
#[derive(Debug, Default)]
pub(super) struct Stream {
    arrived: Mutex<VecDeque<Option<Vec<WatchEvent>>>>,
    news: Notify,
}

impl Stream {
    /// `None`: the connection broke.
    pub(super) fn put(&self, events: Option<Vec<WatchEvent>>) {
        self.arrived.lock().push_back(events);
        self.news.notify_one();
    }
}

struct Reader(Arc<Stream>);

impl Watch for Reader {
    fn next(&mut self) -> RegistryFuture<'_, Vec<WatchEvent>> {
        Box::pin(async {
            loop {
                let next = self.0.arrived.lock().pop_front();
                match next {
                    Some(Some(events)) => return Ok(events),
                    Some(None) => return Err(silent()),
                    None => self.0.news.notified().await,
                }
            }
        })
    }
}

fn silent() -> RegistryError {
    RegistryError::Unavailable("no answer".to_owned())
}

impl Handle {
    fn ask(&self, ask: Ask) -> impl Future<Output = Result<Answer, RegistryError>> + use<> {
        let (who, post) = (self.who, Arc::clone(&self.post));
        async move {
            let (reply, answer) = oneshot::channel();
            post.send(Mail::Ask(who, ask, reply));
            let answered = async {
                match answer.await {
                    Ok(answer) => answer,
                    Err(_) => std::future::pending().await, // lost on its way
                }
            };
            let answered = tokio::time::timeout(ASK_TIMEOUT, answered);
            answered.await.unwrap_or_else(|_| Err(silent()))
        }
    }
}

impl Registry for Handle {
    fn get(&self, key: &str) -> RegistryFuture<'_, Option<KeyValue>> {
        let asked = self.ask(Ask::Get(key.to_owned()));
        Box::pin(async {
            match asked.await? {
                Answer::Entry(entry) => Ok(entry),
                other => panic!("{other:?}"),
            }
        })
    }

    fn range(
        &self,
        prefix: &str,
        from: &str,
        limit: usize,
        revision: Revision,
    ) -> RegistryFuture<'_, Page> {
        self.scan(Scan {
            prefix,
            from,
            limit,
            revision,
            changed_since: 0,
            keys_only: false,
        })
    }

    fn scan(&self, scan: Scan<'_>) -> RegistryFuture<'_, Page> {
        let asked = self.ask(Ask::Range(Range {
            prefix: scan.prefix.to_owned(),
            from: scan.from.to_owned(),
            limit: scan.limit,
            revision: scan.revision,
            changed_since: scan.changed_since,
            keys_only: scan.keys_only,
        }));
        Box::pin(async {
            match asked.await? {
                Answer::Page(page) => Ok(page),
                other => panic!("{other:?}"),
            }
        })
    }

    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> RegistryFuture<'_, TxnOutcome> {
        let asked = self.ask(Ask::Txn(compares, ops));
        Box::pin(async {
            match asked.await? {
                Answer::Txn(outcome) => Ok(outcome),
                other => panic!("{other:?}"),
            }
        })
    }

    fn txn_ops_max(&self) -> usize {
        128
    }

    fn lease_grant(&self, ttl: Duration) -> RegistryFuture<'_, LeaseId> {
        let asked = self.ask(Ask::Grant(ttl));
        Box::pin(async {
            match asked.await? {
                Answer::Lease(id) => Ok(id),
                other => panic!("{other:?}"),
            }
        })
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> RegistryFuture<'_, ()> {
        let asked = self.ask(Ask::KeepAlive(lease));
        Box::pin(async { asked.await.map(|_| ()) })
    }

    fn lease_revoke(&self, lease: LeaseId) -> RegistryFuture<'_, ()> {
        let asked = self.ask(Ask::Revoke(lease));
        Box::pin(async { asked.await.map(|_| ()) })
    }

    fn watch(&self, _prefix: &str, from: Revision) -> RegistryFuture<'_, Box<dyn Watch>> {
        let stream = Arc::new(Stream::default());
        let asked = self.ask(Ask::Watch(from, Arc::clone(&stream)));
        Box::pin(async {
            asked.await?;
            Ok(Box::new(Reader(stream)) as Box<dyn Watch>)
        })
    }

    fn compact(&self, _revision: Revision) -> RegistryFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn close(&self) -> RegistryFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

// --- between brokers ---

/// A broker's way to the others: each connection is carried by a task of the world's.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) from: usize,
    pub(super) post: Arc<Post>,
    pub(super) carriers: Arc<Spawner>,
    pub(super) tasks: Arc<Spawner>,
}

impl Simulated for Connections {
    fn connect(&self, leader: BrokerId) -> DuplexStream {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (from, to) = (self.from, usize::try_from(leader.0).unwrap());
        self.carriers
            .spawn(carry(far, from, to, Arc::clone(&self.post)));
        near
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.tasks.spawn(task);
    }
}

/// Carries requests and answers until one of both ends is gone.
async fn carry(mut socket: DuplexStream, from: usize, to: usize, post: Arc<Post>) {
    loop {
        let mut prefix = [0; 4];
        if socket.read_exact(&mut prefix).await.is_err() {
            return;
        }
        let mut frame = BytesMut::zeroed(usize::try_from(u32::from_be_bytes(prefix)).unwrap());
        if socket.read_exact(&mut frame).await.is_err() {
            return;
        }
        let (answer, answered) = oneshot::channel();
        post.send(Mail::Frame {
            from,
            to,
            frame: frame.freeze(),
            answer,
        });
        let Ok(frame) = answered.await else {
            return; // reset
        };
        if socket.write_all(&frame).await.is_err() {
            return;
        }
    }
}
