//! One task for each partition of `__consumer_offsets` that is used: it owns the shard, loads it, appends
//! what the shard decides, and lets go of replies once everything applied before them is committed: all but
//! those to heartbeats and to metrics.
//!
//! Several appends may be on their way. If one fails the shard is dropped and loaded again; those who wait
//! hear NOT_COORDINATOR (or what the failure means) and ask again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, info, warn};

use super::group::{GroupConfig, Now, Outcome, Reply, Request, Shard, Token};
use super::loader::Loader;
use super::record::GroupRecord;
use crate::record::{BATCH_HEADER_BYTES, BatchBuilder};
use crate::replication::{Acks, AppendOptions, Partition};
use crate::time::Clock;
use crate::types::{ErrorCode, LeaderEpoch, Offset};

/// Requests that wait for a shard's task; more wait at their connections.
pub(super) const QUEUE_MAX: usize = 256;
/// Requests that go into one round, and with it into one batch if they can.
const ROUND_MAX: usize = 128;
/// Batches on their way to the log at a time.
const IN_FLIGHT_MAX: usize = 32;
/// Read at a time while loading.
const LOAD_BYTES: usize = 1 << 20;
/// A load that takes longer turns requests away with COORDINATOR_LOAD_IN_PROGRESS; a shorter one is worth
/// the wait, since clients come back only after a pause.
const LOAD_PATIENCE: Duration = Duration::from_millis(100);

/// A request with the one who waits for its reply.
#[derive(Debug)]
pub(super) struct Command {
    /// Boxed: a channel keeps room for a block of commands, for each shard.
    pub(super) request: Box<Request>,
    pub(super) reply: oneshot::Sender<Result<Reply, ErrorCode>>,
}

/// What the tasks of all shards need.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) config: GroupConfig,
    /// `offsets.commit.timeout.ms`
    pub(super) commit_timeout: Duration,
    pub(super) clock: Arc<dyn Clock>,
}

impl Environment {
    fn now(&self) -> Now {
        Now {
            instant: self.clock.now(),
            wall_ms: self.clock.wall_ms(),
        }
    }
}

/// How an append ended.
enum Landing {
    Committed,
    /// Nothing is known yet; the wait goes on.
    Late(Offset),
    Failed(ErrorCode),
}

/// Why a shard stopped being run.
enum End {
    /// Nobody can ask any more: resigned, deleted, or shut down.
    Released,
    /// What was applied is not in the log.
    Failed(ErrorCode),
}

/// Owns the shard of one partition until its last asker is gone.
pub(super) async fn run(
    environment: Arc<Environment>,
    partition: Arc<Partition>,
    mut commands: mpsc::Receiver<Command>,
) {
    let name = partition.topic_partition().clone();
    loop {
        let load = load(&environment, &partition);
        let (leader_epoch, shard) = match while_loading(&environment, load, &mut commands).await {
            Some(Ok(loaded)) => loaded,
            Some(Err(error)) => {
                warn!(partition = %name, %error, "load the group coordinator's partition");
                refuse_all(&mut commands, answered(error));
                return;
            }
            None => return,
        };
        let mut task = Task {
            environment: &environment,
            partition: &partition,
            leader_epoch,
            shard,
            callers: HashMap::new(),
            tokens: 0,
            batch: BatchBuilder::new(),
            batch_max: batch_bytes_max_of(&partition),
            replies: Vec::new(),
            in_flight: FuturesOrdered::new(),
            waiting: VecDeque::new(),
            stalls: false,
        };
        match task.serve(&mut commands).await {
            End::Released => {
                task.settle().await;
                debug!(partition = %name, "unloaded the group coordinator's partition");
                return;
            }
            End::Failed(error) => {
                warn!(partition = %name, %error, "append group records; the partition is loaded again");
                task.fail(answered(error));
                if commands.is_closed() {
                    // Resigned meanwhile: whoever leads now loads it.
                    refuse_all(&mut commands, ErrorCode::NotCoordinator);
                    return;
                }
            }
        }
    }
}

/// What a client hears of a failed append or load (`CoordinatorOperationExceptionHelper`).
fn answered(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => ErrorCode::UnknownServerError,
        _ => ErrorCode::NotCoordinator,
    }
}

/// The topic's limit for a batch, less its header.
fn batch_bytes_max_of(partition: &Partition) -> usize {
    let max = partition.config().max_message_bytes;
    usize::try_from(max)
        .unwrap_or(0)
        .saturating_sub(BATCH_HEADER_BYTES)
}

type Loaded = Result<(LeaderEpoch, Shard), ErrorCode>;

async fn load(environment: &Environment, partition: &Arc<Partition>) -> Loaded {
    let started = environment.clock.now();
    let config = GroupConfig {
        batch_bytes_max: batch_bytes_max_of(partition),
        ..environment.config.clone()
    };
    let leader_epoch = partition.leader_epoch();
    partition.check_leader(leader_epoch)?;
    partition.open().await?;
    let (start, _) = partition.log_offsets().ok_or(ErrorCode::NotCoordinator)?;
    let mut loader = Loader::new(Shard::new(Arc::new(config)), start);
    // To the end, wherever that is by then: appends of a shard that failed may still be on their way, and
    // reads come after them.
    while loader.apply(
        partition
            .read_batches(loader.next_offset(), LOAD_BYTES)
            .await?,
    ) {}
    // What is answered from now on must not be taken back.
    let deadline = environment.clock.now() + environment.commit_timeout;
    partition.committed(loader.next_offset(), deadline).await?;
    partition.check_leader(leader_epoch)?;
    if loader.malformed > 0 {
        warn!(
            partition = %partition.topic_partition(),
            count = loader.malformed,
            "passed over records that are none of a group"
        );
    }
    if loader.records > 0 {
        info!(
            partition = %partition.topic_partition(),
            records = loader.records,
            elapsed_ms = (environment.clock.now() - started).as_millis(),
            "loaded the group coordinator's partition"
        );
    }
    Ok((leader_epoch, loader.finish()))
}

/// Runs a load beside the requests that come. `None`: nobody can ask any more.
async fn while_loading(
    environment: &Environment,
    load: impl Future<Output = Loaded>,
    commands: &mut mpsc::Receiver<Command>,
) -> Option<Loaded> {
    let mut load = std::pin::pin!(load);
    let patience_ends = environment.clock.now() + LOAD_PATIENCE;
    tokio::select! {
        biased;
        loaded = &mut load => return Some(loaded),
        () = tokio::time::sleep_until(patience_ends.into()) => {}
    }
    loop {
        tokio::select! {
            biased;
            loaded = &mut load => return Some(loaded),
            command = commands.recv() => refuse(command?, ErrorCode::CoordinatorLoadInProgress),
        }
    }
}

fn refuse(command: Command, error: ErrorCode) {
    let answer = match *command.request {
        // A member that shows life while its group is loading has done enough.
        Request::Heartbeat(_) if error == ErrorCode::CoordinatorLoadInProgress => {
            Ok(Reply::Heartbeat(ErrorCode::None))
        }
        _ => Err(error),
    };
    // Whoever is gone does not listen.
    let _ = command.reply.send(answer);
}

fn refuse_all(commands: &mut mpsc::Receiver<Command>, error: ErrorCode) {
    commands.close();
    while let Ok(command) = commands.try_recv() {
        refuse(command, error);
    }
}

/// A loaded shard with everything under way.
struct Task<'a> {
    environment: &'a Environment,
    partition: &'a Arc<Partition>,
    /// R15: the shard is that of this leader epoch.
    leader_epoch: LeaderEpoch,
    shard: Shard,
    callers: HashMap<Token, oneshot::Sender<Result<Reply, ErrorCode>>>,
    tokens: u64,
    /// What this round has decided to append, applied already.
    batch: BatchBuilder,
    batch_max: usize,
    /// Replies of this round that wait for `batch`, or for what is on its way.
    replies: Vec<(Token, Reply)>,
    in_flight: FuturesOrdered<BoxFuture<'static, Landing>>,
    /// For each append in flight, who waits for it.
    waiting: VecDeque<Vec<(Token, Reply)>>,
    /// The batch that is the next to land is late.
    stalls: bool,
}

impl Task<'_> {
    async fn serve(&mut self, commands: &mut mpsc::Receiver<Command>) -> End {
        let now = self.environment.now();
        let outcome = self.shard.loaded(now);
        self.take_in(now, outcome);
        loop {
            let mut next_due = None;
            if self.has_room() {
                self.do_what_is_due();
                next_due = self.shard.next_due();
            }
            self.append();
            tokio::select! {
                biased;
                Some(landing) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    if let Err(error) = self.landed(landing) {
                        return End::Failed(error);
                    }
                }
                command = commands.recv(), if self.has_room() || self.stalls => {
                    let Some(command) = command else {
                        return End::Released;
                    };
                    self.ask(command);
                    for _ in 1..ROUND_MAX {
                        let Ok(command) = commands.try_recv() else { break };
                        self.ask(command);
                    }
                }
                () = until(next_due) => {}
            }
        }
    }

    fn do_what_is_due(&mut self) {
        let now = self.environment.now();
        while let Some(outcome) = self.shard.on_due(now) {
            self.take_in(now, outcome);
        }
    }

    /// More batches may be sent on their way.
    fn has_room(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT_MAX
    }

    fn ask(&mut self, command: Command) {
        let is_told_at_once = matches!(*command.request, Request::Heartbeat(_) | Request::Snapshot);
        if !self.has_room() && !is_told_at_once {
            // The disk stalls: members stay members, for all else they come again.
            refuse(command, ErrorCode::CoordinatorNotAvailable);
            return;
        }
        self.tokens += 1;
        let token = Token(self.tokens);
        self.callers.insert(token, command.reply);
        let now = self.environment.now();
        let outcome = self.shard.decide(now, token, *command.request);
        self.take_in(now, outcome);
    }

    fn take_in(&mut self, now: Now, outcome: Outcome) {
        for note in &outcome.notes {
            info!(group = %note.group, "{}", note.text);
        }
        for record in &outcome.records {
            self.shard.apply(record);
            self.push(now, record);
        }
        self.replies.extend(outcome.replies);
    }

    fn push(&mut self, now: Now, record: &GroupRecord) {
        if !self.batch.is_empty() && self.batch.bytes() + record.bytes_max() > self.batch_max {
            self.append();
        }
        let (key, value) = (record.encode_key(), record.encode_value());
        self.batch.push(now.wall_ms, Some(&key), value.as_deref());
    }

    /// Sends the round's batch on its way, or lets go of replies that have nothing to wait for.
    fn append(&mut self) {
        let replies = std::mem::take(&mut self.replies);
        // A member hears in time that it is seen, however long the disk or a follower takes: what else the
        // answer says (rejoin, no such member) does no harm if it is taken back. Nor do metrics, and they
        // are wanted most when something is stuck.
        let (told_at_once, replies) = replies
            .into_iter()
            .partition(|(_, reply)| matches!(reply, Reply::Heartbeat(_) | Reply::Snapshot(_)));
        self.answer(told_at_once);
        if self.batch.is_empty() {
            match self.waiting.back_mut() {
                Some(last) => last.extend(replies),
                None => self.answer(replies),
            }
            return;
        }
        let batch = std::mem::take(&mut self.batch).build();
        let options = AppendOptions {
            acks: Acks::All,
            produce_version: i16::MAX,
            internal: true,
            leader_epoch: self.leader_epoch,
        };
        // Enqueued here and now: the order of appends is the order of decisions.
        let appended = self.partition.append(batch, options);
        let partition = Arc::clone(self.partition);
        let deadline = self.deadline();
        self.in_flight.push_back(Box::pin(async move {
            match appended.await {
                Ok(appended) => committed(partition, appended.last_offset + 1, deadline).await,
                Err(failure) => Landing::Failed(failure.error),
            }
        }));
        self.waiting.push_back(replies);
    }

    fn deadline(&self) -> Instant {
        self.environment.clock.now() + self.environment.commit_timeout
    }

    fn landed(&mut self, landing: Landing) -> Result<(), ErrorCode> {
        let replies = self.waiting.pop_front().unwrap_or_default();
        match landing {
            Landing::Committed => {
                self.stalls = false;
                self.answer(replies);
            }
            Landing::Late(end) => {
                self.stalls = true;
                // Whoever waits behind it waits for the same disk.
                let behind = self.waiting.iter_mut().flat_map(std::mem::take);
                let all: Vec<_> = replies.into_iter().chain(behind).collect();
                for (token, _) in all {
                    self.answer_one(token, Err(ErrorCode::RequestTimedOut));
                }
                // Reads must not overtake it, however late it is.
                let again = committed(Arc::clone(self.partition), end, self.deadline());
                self.in_flight.push_front(Box::pin(again));
                self.waiting.push_front(Vec::new());
            }
            Landing::Failed(error) => {
                self.waiting.push_front(replies);
                return Err(error);
            }
        }
        Ok(())
    }

    fn answer(&mut self, replies: Vec<(Token, Reply)>) {
        for (token, reply) in replies {
            self.answer_one(token, Ok(reply));
        }
    }

    fn answer_one(&mut self, token: Token, reply: Result<Reply, ErrorCode>) {
        if let Some(caller) = self.callers.remove(&token) {
            // Whoever is gone does not listen.
            let _ = caller.send(reply);
        }
    }

    /// Everybody who waits, for whatever, hears of the failure.
    fn fail(&mut self, error: ErrorCode) {
        for (_, caller) in self.callers.drain() {
            let _ = caller.send(Err(error));
        }
    }

    /// What is on its way may still land; then everybody else is let go.
    async fn settle(&mut self) {
        self.append();
        while let Some(landing) = self.in_flight.next().await {
            match landing {
                Landing::Committed => {
                    let replies = self.waiting.pop_front().unwrap_or_default();
                    self.answer(replies);
                }
                Landing::Late(_) | Landing::Failed(_) => break,
            }
        }
        self.fail(ErrorCode::NotCoordinator);
    }
}

async fn committed(partition: Arc<Partition>, end: Offset, deadline: Instant) -> Landing {
    match partition.committed(end, deadline).await {
        Ok(()) => Landing::Committed,
        Err(ErrorCode::RequestTimedOut) => Landing::Late(end),
        Err(error) => Landing::Failed(error),
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
