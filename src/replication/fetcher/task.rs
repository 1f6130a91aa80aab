//! Runs the fetchers: a task and a connection each, started and stopped as leaders come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::assignment::{Assignments, FetcherId};
use super::machine::{FetchRules, Key, Machine, Position, Step, What};
use crate::config::BrokerConfig;
use crate::metadata::{Endpoint, Image, ImageListener};
use crate::net::{FrameBuffers, Peer, PeerConfig, PeerHeaders, PeerRequest};
use crate::protocol::fetch::{FetchAnswer, FetchRequest, FetchedPartition};
use crate::protocol::list_offsets::{self, Asked};
use crate::replication::follower::Fetched;
use crate::replication::{Partition, Replicas};
use crate::telemetry::Metrics;
use crate::time::Clock;
use crate::types::{BrokerId, LeaderEpoch, ListenerName, Offset};

const FETCH_KEY: i16 = 1;
const FETCH_VERSION: i16 = 17;
/// A broker that does not take a connection for so long is tried again.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(3);
/// How long appends and flushes of one answer hold up the next request; after that only the partitions
/// that are still busy stay out.
const PATIENCE: Duration = Duration::from_millis(100);
/// A batch may be larger than what is asked for, by as much as a request may be.
const ANSWER_SLACK_BYTES: usize = 128 << 20;
/// What an answer has beside its records, where those are many.
const ANSWER_FRAME_BYTES: usize = 64 << 10;
/// After so many answers without records a fetcher needs no large buffer for a while.
const QUIET_ANSWERS: u32 = 20;
/// A long poll that leaves out partitions is given up for them after so long (they come in crowds), and no
/// more often than that.
const INTERRUPT_AFTER: Duration = Duration::from_millis(20);
const INTERRUPT_EVERY: Duration = Duration::from_millis(100);

/// What fetchers take from the broker's configuration.
#[derive(Debug, Clone)]
pub struct FetcherSettings {
    rules: FetchRules,
    /// `num.replica.fetchers`, which can change (see `fetchers_of`).
    config: Arc<BrokerConfig>,
    listener: ListenerName,
    timeout: Duration,
    receive_buffer_bytes: i32,
}

impl From<&BrokerConfig> for FetcherSettings {
    fn from(config: &BrokerConfig) -> Self {
        let ms = |ms: i32| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        Self {
            rules: FetchRules {
                node_id: config.node_id,
                partition_bytes_max: config.replica_fetch_max_bytes,
                response_bytes_max: config.replica_fetch_response_max_bytes,
                bytes_min: config.replica_fetch_min_bytes,
                wait_max_ms: config.replica_fetch_wait_max_ms,
                backoff_max: ms(config.replica_fetch_backoff_ms),
            },
            config: Arc::new(config.clone()),
            listener: config.inter_broker_listener.clone(),
            timeout: ms(config.replica_socket_timeout_ms),
            // Kafka's default would keep the system from growing the buffer with the traffic.
            receive_buffer_bytes: config
                .values
                .explicit("replica.socket.receive.buffer.bytes")
                .map_or(-1, |_| config.replica_socket_receive_buffer_bytes),
        }
    }
}

impl FetcherSettings {
    /// `None`: as many as before.
    fn fetchers_of(&self, old: &Image, new: &Image) -> Option<u64> {
        let own = |image: &Image| image.broker_configs.get(&self.rules.node_id).cloned();
        let is_first = old.revision == 0;
        if !is_first && old.broker_defaults == new.broker_defaults && own(old) == own(new) {
            return None;
        }
        let own = own(new).unwrap_or_default();
        let config = self.config.with_dynamic(&new.broker_defaults, &own);
        u64::try_from(config.num_replica_fetchers).ok()
    }
}

/// All fetchers of this broker; follows the metadata image, behind the [`Replicas`].
#[derive(Debug)]
pub struct ReplicaFetchers {
    shared: Arc<FetcherShared>,
    replicas: Arc<Replicas>,
    state: Mutex<State>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug)]
struct FetcherShared {
    settings: FetcherSettings,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    /// R3: the registration that this broker fetches with; −1 before it is known.
    broker_epoch: AtomicI64,
    /// Counts partitions of this broker whose log directory failed.
    failures: Arc<AtomicU64>,
    #[cfg(test)]
    simulated: Option<Arc<dyn Simulated>>,
}

/// What a simulation puts in the place of sockets and tasks.
#[cfg(test)]
pub(crate) trait Simulated: std::fmt::Debug + Send + Sync {
    fn connect(&self, leader: BrokerId) -> tokio::io::DuplexStream;
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// A connection to a leader.
enum Line {
    Tcp(Peer),
    #[cfg(test)]
    Simulated(Peer<tokio::io::DuplexStream>),
}

impl Line {
    async fn call(&mut self, request: PeerRequest) -> io::Result<Bytes> {
        match self {
            Self::Tcp(peer) => peer.call(request).await,
            #[cfg(test)]
            Self::Simulated(peer) => peer.call(request).await,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Of each leader.
    fetchers: u64,
    assignments: Assignments,
    running: BTreeMap<FetcherId, Running>,
}

#[derive(Debug)]
struct Running {
    inbox: Arc<Inbox>,
    keys: BTreeSet<Key>,
    stop: CancellationToken,
}

/// What a fetcher is told.
#[derive(Debug, Default)]
struct Inbox {
    orders: Mutex<Vec<Order>>,
    news: Notify,
}

#[derive(Debug)]
enum Order {
    Follow(Key, LeaderEpoch, Arc<Partition>),
    Leave(Key),
}

impl Inbox {
    fn put(&self, order: Order) {
        self.orders.lock().push(order);
        self.news.notify_one();
    }
}

impl ReplicaFetchers {
    /// Fetches nothing until it hears of an image: add it to the metadata cache as a listener.
    pub fn new(
        settings: FetcherSettings,
        replicas: Arc<Replicas>,
        clock: Arc<dyn Clock>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self {
            shared: Arc::new(FetcherShared {
                settings,
                metrics: Arc::clone(&replicas.shared().metrics),
                clock,
                broker_epoch: AtomicI64::new(-1),
                failures: Arc::clone(&replicas.shared().failures),
                #[cfg(test)]
                simulated: None,
            }),
            replicas,
            state: Mutex::default(),
            tasks,
            stop,
        }
    }

    #[cfg(test)]
    pub(crate) fn simulated(
        settings: FetcherSettings,
        replicas: Arc<Replicas>,
        clock: Arc<dyn Clock>,
        simulated: Arc<dyn Simulated>,
        stop: CancellationToken,
    ) -> Self {
        let mut fetchers = Self::new(settings, replicas, clock, TaskTracker::new(), stop);
        let shared = Arc::get_mut(&mut fetchers.shared).expect("nobody else has it yet");
        shared.simulated = Some(simulated);
        fetchers
    }

    fn follow(
        &self,
        state: &mut State,
        image: &Image,
        key: Key,
        (id, epoch): (FetcherId, LeaderEpoch),
    ) {
        // It is a replica, but this broker may not know yet, or not any more.
        let Ok(partition) = self.replicas.partition_by_id(key.topic, key.partition) else {
            return;
        };
        let running = state.running.entry(id).or_insert_with(|| {
            let broker = image.brokers.get(&id.leader);
            let listener = &self.shared.settings.listener;
            let endpoint = broker.and_then(|broker| broker.endpoint(listener)).cloned();
            self.start(id.leader, endpoint)
        });
        running.keys.insert(key);
        running.inbox.put(Order::Follow(key, epoch, partition));
    }

    fn start(&self, leader: BrokerId, endpoint: Option<Endpoint>) -> Running {
        let inbox = Arc::new(Inbox::default());
        let stop = self.stop.child_token();
        match endpoint {
            Some(endpoint) => {
                let fetcher = Fetcher::new(leader, endpoint, &self.shared, &inbox);
                let stopped = stop.clone();
                let task = async move {
                    let mut fetcher = fetcher;
                    tokio::select! {
                        biased; // a simulation repeats itself
                        () = stopped.cancelled() => {}
                        () = fetcher.run() => {}
                    }
                };
                #[cfg(test)]
                if let Some(simulated) = &self.shared.simulated {
                    simulated.spawn(Box::pin(task));
                    return Running {
                        inbox,
                        keys: BTreeSet::new(),
                        stop,
                    };
                }
                self.tasks.spawn(task);
            }
            None => tracing::error!(
                leader = leader.0, listener = %self.shared.settings.listener,
                "a leader cannot be followed: it has no such listener"
            ),
        }
        Running {
            inbox,
            keys: BTreeSet::new(),
            stop,
        }
    }
}

impl ImageListener for ReplicaFetchers {
    fn image_changed(&self, old: &Image, new: &Arc<Image>) {
        let settings = &self.shared.settings;
        let me = settings.rules.node_id;
        if let Some(broker) = new.brokers.get(&me) {
            let epoch = &self.shared.broker_epoch;
            epoch.store(broker.epoch, Ordering::Release);
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(fetchers) = settings.fetchers_of(old, new) {
            state.fetchers = fetchers.max(1);
        }
        let changes = state
            .assignments
            .update((old, new), me, state.fetchers.max(1));
        for change in changes {
            if let Some(running) = change.left.and_then(|left| state.running.get_mut(&left)) {
                running.keys.remove(&change.key);
                running.inbox.put(Order::Leave(change.key));
            }
            if let Some(follows) = change.follows {
                self.follow(state, new, change.key, follows);
            }
        }
        state.running.retain(|_, running| {
            if running.keys.is_empty() {
                running.stop.cancel();
            }
            !running.keys.is_empty()
        });
    }
}

/// What has come of a step.
enum Done {
    Position(Option<Position>),
    Range(Option<(Offset, Offset)>),
    /// The log starts there now.
    Noted(Option<Offset>),
}

type Stepping = BoxFuture<'static, (Key, LeaderEpoch, Done)>;
type Answering = BoxFuture<'static, io::Result<(Line, Bytes)>>;

/// One fetcher of one leader.
struct Fetcher {
    leader: BrokerId,
    endpoint: Endpoint,
    shared: Arc<FetcherShared>,
    inbox: Arc<Inbox>,
    machine: Machine,
    partitions: BTreeMap<Key, Arc<Partition>>,
    stepping: FuturesUnordered<Stepping>,
    /// Until then steps are waited for.
    patience: Option<Instant>,
    peer: Option<Line>,
    /// For its answers: one at a time, and again and again.
    buffers: FrameBuffers,
    /// Answers without records in a row.
    empty_answers: u32,
    answering: Option<Answering>,
    /// When that was asked for.
    asked_at: Option<Instant>,
    interrupted: Option<Instant>,
    /// So many failures were seen to.
    failures: u64,
    /// The last failure was told of.
    complained: bool,
}

impl Fetcher {
    fn new(
        leader: BrokerId,
        endpoint: Endpoint,
        shared: &Arc<FetcherShared>,
        inbox: &Arc<Inbox>,
    ) -> Self {
        let largest = usize::try_from(shared.settings.rules.response_bytes_max).unwrap_or(0);
        // Around the records is the rest of an answer.
        let kept = (largest + ANSWER_FRAME_BYTES).next_power_of_two();
        Self {
            leader,
            endpoint,
            machine: Machine::new(shared.settings.rules),
            shared: Arc::clone(shared),
            inbox: Arc::clone(inbox),
            partitions: BTreeMap::new(),
            stepping: FuturesUnordered::new(),
            patience: None,
            peer: None,
            buffers: FrameBuffers::keeping(kept),
            empty_answers: 0,
            answering: None,
            asked_at: None,
            interrupted: None,
            failures: 0,
            complained: false,
        }
    }

    async fn run(&mut self) {
        loop {
            let now = self.shared.clock.now();
            self.obey(Instant::from_std(now));
            let next = self.machine.tick(now);
            for step in self.machine.take_steps() {
                self.begin(step);
            }
            let interruption = self.interrupt(Instant::from_std(now));
            self.ask(Instant::from_std(now));
            let next = [next.map(Instant::from_std), self.patience, interruption];
            let next = next.into_iter().flatten().min();
            self.wait(next).await;
        }
    }

    /// Takes up what it was told.
    fn obey(&mut self, now: Instant) {
        let orders = std::mem::take(&mut *self.inbox.orders.lock());
        for order in orders {
            match order {
                Order::Follow(key, leader_epoch, partition) => {
                    // Whoever leads anew has a crowd of partitions: the first of them do not go alone.
                    self.patience.get_or_insert(now + PATIENCE);
                    self.partitions.insert(key, partition);
                    self.machine.follow(key, leader_epoch);
                }
                Order::Leave(key) => {
                    self.partitions.remove(&key);
                    self.machine.leave(key);
                }
            }
        }
    }

    /// What lies in a directory that failed is not asked for any more: what is said of it would count, and it
    /// would be in sync again.
    fn drop_failed(&mut self) {
        let failures = self.shared.failures.load(Ordering::Acquire);
        if failures == self.failures {
            return;
        }
        self.failures = failures;
        let machine = &mut self.machine;
        self.partitions.retain(|key, partition| {
            let failed = partition.is_offline();
            if failed {
                machine.leave(*key);
            }
            !failed
        });
    }

    fn begin(&mut self, step: Step) {
        let Step {
            key,
            leader_epoch,
            what,
        } = step;
        let Some(partition) = self.partitions.get(&key) else {
            return;
        };
        let located = match what {
            What::Locate => partition.locate(leader_epoch),
            What::Append(fetched) => {
                let fetched = Fetched {
                    records: fetched.records,
                    high_watermark: fetched.high_watermark,
                    log_start: fetched.log_start_offset,
                };
                partition.append_fetched(leader_epoch, fetched)
            }
            What::Note {
                high_watermark,
                log_start,
            } => {
                if let Some(noted) = partition.note_leader(leader_epoch, high_watermark, log_start)
                {
                    let noted = noted.map(move |at| (key, leader_epoch, Done::Noted(at.ok())));
                    self.stepping.push(Box::pin(noted));
                }
                return;
            }
            What::Cut(epoch, end) => partition.cut_for_leader(leader_epoch, (epoch, end)),
            What::CutToLeaderEnd(end) => partition.cut_at(leader_epoch, end),
            What::BeginAnew(start) => partition.begin_anew(leader_epoch, start),
            What::AskRange => {
                let range = self.ask_range(leader_epoch, Arc::clone(partition));
                let done = range.map(move |range| (key, leader_epoch, Done::Range(range)));
                self.stepping.push(Box::pin(done));
                return;
            }
        };
        let done = located.map(move |at| (key, leader_epoch, Done::Position(at.ok())));
        self.stepping.push(Box::pin(done));
    }

    /// Sends the next request, if there is one.
    fn ask(&mut self, now: Instant) {
        if self.stepping.is_empty() || self.patience.is_some_and(|until| until <= now) {
            self.patience = None;
        }
        if self.answering.is_some() || self.patience.is_some() {
            return;
        }
        self.drop_failed();
        let broker_epoch = self.shared.broker_epoch.load(Ordering::Acquire);
        let Some(request) = self.machine.request(broker_epoch) else {
            return;
        };
        tracing::trace!(
            leader = self.leader.0, session = request.session_id, epoch = request.session_epoch,
            topics = ?request.topics, "fetch"
        );
        self.shared.metrics.replica_fetches.inc();
        self.answering = Some(self.send(&request));
        self.asked_at = Some(now);
    }

    fn send(&mut self, request: &FetchRequest) -> Answering {
        let request = self.peer_request(FETCH_KEY, FETCH_VERSION, request.encode(FETCH_VERSION));
        let peer = self.peer.take();
        let connecting = self.connect();
        Box::pin(async move {
            let mut peer = match peer {
                Some(peer) => peer,
                None => connecting.await?,
            };
            let answer = peer.call(request).await?;
            Ok((peer, answer))
        })
    }

    fn peer_request(&self, api_key: i16, api_version: i16, body: bytes::BytesMut) -> PeerRequest {
        PeerRequest {
            api_key,
            api_version,
            headers: PeerHeaders::Flexible,
            body,
            timeout: self.shared.settings.timeout,
        }
    }

    fn connect(&self) -> impl Future<Output = io::Result<Line>> + Send + 'static {
        let settings = &self.shared.settings;
        let response_bytes_max =
            usize::try_from(settings.rules.response_bytes_max).unwrap_or(0) + ANSWER_SLACK_BYTES;
        let config = PeerConfig {
            client_id: format!("broker-{}-fetcher", settings.rules.node_id.0),
            connect_timeout: settings.timeout.min(CONNECT_TIMEOUT_MAX),
            receive_buffer_bytes: settings.receive_buffer_bytes,
            response_bytes_max,
        };
        let (host, port) = (self.endpoint.host.clone(), self.endpoint.port);
        let buffers = self.buffers.clone();
        #[cfg(test)]
        let simulated = self.shared.simulated.as_ref().map(|simulated| {
            let socket = simulated.connect(self.leader);
            Line::Simulated(Peer::over(socket, config.clone(), buffers.clone()))
        });
        async move {
            #[cfg(test)]
            if let Some(line) = simulated {
                return Ok(line);
            }
            Ok(Line::Tcp(
                Peer::connect(&host, port, config, buffers).await?,
            ))
        }
    }

    /// Where the leader's log begins and ends; over a connection of its own, since this is rare.
    fn ask_range(
        &self,
        leader_epoch: LeaderEpoch,
        partition: Arc<Partition>,
    ) -> impl Future<Output = Option<(Offset, Offset)>> + Send + 'static {
        let connecting = self.connect();
        let node_id = self.shared.settings.rules.node_id.0;
        let request = move |asked| {
            let tp = partition.topic_partition();
            let named = (&*tp.topic, tp.partition);
            list_offsets::encode(node_id, named, leader_epoch, asked)
        };
        let [start, end] = [Asked::Earliest, Asked::Latest].map(|asked| {
            let body = request(asked);
            self.peer_request(list_offsets::API_KEY, list_offsets::VERSION, body)
        });
        async move {
            let mut peer = connecting.await.ok()?;
            let start = peer.call(start).await.ok()?;
            let end = peer.call(end).await.ok()?;
            let offset = |body: &Bytes| list_offsets::decode(body).ok()?.ok();
            Some((offset(&start)?, offset(&end)?))
        }
    }

    /// Until something happens.
    async fn wait(&mut self, next: Option<Instant>) {
        let inbox = Arc::clone(&self.inbox);
        tokio::select! {
            biased;
            Some((key, leader_epoch, done)) = self.stepping.next(), if !self.stepping.is_empty() => {
                let now = self.shared.clock.now();
                match done {
                    Done::Position(at) => self.machine.done(now, key, leader_epoch, at),
                    Done::Range(range) => self.machine.range(now, key, leader_epoch, range),
                    Done::Noted(Some(at)) => self.machine.noted(key, leader_epoch, at),
                    Done::Noted(None) => {} // the next answer says it again
                }
            }
            answer = async { answering(&mut self.answering).await } => self.answered(answer),
            () = inbox.news.notified() => {}
            () = sleep_until(next) => {}
        }
    }

    fn answered(&mut self, answer: io::Result<(Line, Bytes)>) {
        self.answering = None;
        let now = self.shared.clock.now();
        let decoded = answer.and_then(|(peer, body)| {
            let answer = FetchAnswer::decode(&body, FETCH_VERSION);
            let answer = answer.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
            Ok((peer, answer?))
        });
        let complaint = match decoded {
            Ok((peer, answer)) => {
                self.peer = Some(peer);
                for fetched in &answer.partitions {
                    tracing::trace!(
                        leader = self.leader.0, partition = fetched.partition, error = fetched.error,
                        bytes = fetched.records.len(), high_watermark = fetched.high_watermark,
                        diverging = ?fetched.diverging_epoch, "fetched"
                    );
                }
                self.patience = Some(Instant::from_std(now) + PATIENCE);
                let records = |fetched: &FetchedPartition| !fetched.records.is_empty();
                self.empty_answers = match answer.partitions.iter().any(records) {
                    true => 0,
                    false => self.empty_answers.saturating_add(1),
                };
                if self.empty_answers == QUIET_ANSWERS {
                    self.buffers.clear();
                }
                let refused = self.machine.answered(now, answer);
                refused.map(|code| format!("error code {code}"))
            }
            Err(error) => {
                self.machine.failed(now);
                Some(error.to_string())
            }
        };
        match complaint {
            Some(error) if !self.complained => {
                tracing::warn!(
                    leader = self.leader.0,
                    host = self.endpoint.host,
                    port = self.endpoint.port,
                    error,
                    "cannot fetch from a leader; trying on"
                );
                self.complained = true;
            }
            Some(_) => {}
            None => self.complained = false,
        }
    }

    /// Whoever is ready does not wait until the leader has something to say of the others: nobody is told what
    /// was committed meanwhile. Returns when that is to be seen to.
    fn interrupt(&mut self, now: Instant) -> Option<Instant> {
        let asked_at = self.asked_at?;
        if self.answering.is_none() || !self.stepping.is_empty() || !self.machine.leaves_out() {
            return None;
        }
        let again = self.interrupted.map(|at| at + INTERRUPT_EVERY);
        let due = again
            .into_iter()
            .fold(asked_at + INTERRUPT_AFTER, Instant::max);
        if now < due {
            return Some(due);
        }
        self.answering = None;
        self.interrupted = Some(now);
        self.machine.interrupted();
        None
    }
}

async fn answering(answering: &mut Option<Answering>) -> io::Result<(Line, Bytes)> {
    match answering {
        Some(answering) => answering.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
