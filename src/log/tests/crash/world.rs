//! A broker's logs on a [`CrashDisk`] beside their [`Model`]: does what a step says, and compares.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::disk::{CrashDisk, Kind, Lie, Watcher};
use super::image::Image;
use super::lives::{Death, Start};
use super::made::{PRODUCERS, new_batch, random_config};
use super::model::{Model, Topic};
use super::random::Random;
use super::steps::{Action, Step};
use crate::config::TopicConfig;
use crate::log::{AppendError, FlushListener, Log, LogError, LogManager};
use crate::record::{BATCH_HEADER_BYTES, ReplicaBatches, ReplicaRules, ValidBatch};
use crate::time::{Clock, ManualClock};
use crate::types::{Offset, ProducerId, TopicId, TopicPartition};

pub(super) const TOPICS: usize = 3;
const START_MS: i64 = 1_000_000;

/// What is the same for a whole history.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub seed: u64,
    /// The power is tried at every n-th operation on the disk.
    pub cut_one_in: usize,
    pub lie: Option<Lie>,
    /// Prints what is done.
    pub verbose: bool,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) clock: Arc<ManualClock>,
    pub(super) model: Arc<Mutex<Model>>,
    pub(super) running: Mutex<Option<Running>>,
    pub(super) configs: Mutex<Vec<Arc<TopicConfig>>>,
    now: Mutex<Now>,
}

/// What a power cut ends.
#[derive(Debug)]
pub(super) struct Running {
    pub disk: CrashDisk,
    pub manager: Arc<LogManager>,
    pub logs: Vec<Option<Arc<Log>>>,
}

/// The step that runs.
#[derive(Debug, Default)]
struct Now {
    seed: u64,
    /// Operations of the step, on the disk.
    operations: u64,
    action: Option<Action>,
    inside: Option<(u64, Action)>,
    topic_ids: u64,
    flushing: Option<usize>,
}

/// An operation failed as it was told to: the power went, or a fault happened.
#[derive(Debug)]
pub(super) struct Failed;

#[derive(Debug)]
pub(super) struct Heard(pub(super) Arc<Mutex<Model>>);

impl FlushListener for Heard {
    fn flushed(&self, partition: &TopicPartition, offset: Offset) {
        let mut model = self.0.lock();
        if model.deaf {
            return;
        }
        assert!(!model.failed, "{partition}: flushed to {offset} offline");
        let topic = model.topics.iter_mut().find(|t| t.partition == *partition);
        let topic = topic.expect("a topic of the model");
        let end = topic.end() + i64::from(!topic.in_flight.is_empty()) * 1_000;
        assert!(offset <= end, "{partition}: flushed past its end");
        topic.flush_reported(offset);
    }

    /// What consumers see: of a topic that does not wait for the disk all that is appended.
    fn high_watermark(&self, partition: &TopicPartition) -> Option<Offset> {
        let model = self.0.lock();
        let topic = model.topics.iter().find(|t| t.partition == *partition)?;
        Some(match topic.waits_for_disk {
            true => topic.reported,
            false => topic.end(),
        })
    }

    fn log_start_moved(&self, partition: &TopicPartition, log_start: Offset) {
        let mut model = self.0.lock();
        if model.foul {
            return;
        }
        let topics = &mut model.topics;
        if let Some(topic) = topics.iter_mut().find(|t| t.partition == *partition) {
            topic.log_start = topic.log_start.max(log_start);
        }
    }

    fn directory_failed(&self, _partitions: &[TopicPartition]) {
        self.0.lock().failed = true;
    }
}

pub(super) fn partition(topic: usize) -> TopicPartition {
    TopicPartition::new(format!("t{topic}"), 0)
}

/// As different from one another as real ones: a few bits would be taken for damage.
pub(super) fn topic_id(number: u64) -> TopicId {
    let mut random = Random::of(0, number);
    let (high, low) = (random.next().to_be_bytes(), random.next().to_be_bytes());
    let mut id = [0; 16];
    id[..8].copy_from_slice(&high);
    id[8..].copy_from_slice(&low);
    TopicId(id)
}

impl World {
    pub(super) fn new(setup: Setup) -> Arc<Self> {
        let mut random = Random::of(setup.seed, 1);
        let topics = (0..TOPICS).map(|n| Topic::new(partition(n), topic_id(n as u64)));
        let world = Arc::new(Self {
            setup,
            clock: Arc::new(ManualClock::new(START_MS)),
            model: Arc::new(Mutex::new(Model {
                topics: topics.collect(),
                ..Model::default()
            })),
            running: Mutex::new(None),
            configs: Mutex::new(vec![Arc::default(); TOPICS]),
            now: Mutex::new(Now {
                topic_ids: TOPICS as u64,
                ..Now::default()
            }),
        });
        for topic in 0..TOPICS {
            world.set_config(topic, random_config(&mut random));
        }
        world.start(
            Image::default(),
            random.next(),
            Start {
                all: false,
                cuts: true,
            },
        );
        world
    }

    /// Ends the history: a last power cut, and nothing may be missing.
    pub(super) fn end(self: &Arc<Self>) {
        self.recover(Random::of(self.setup.seed, 2).next(), Death::PowerCut);
        self.stop();
    }

    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if self.setup.verbose {
            println!("{}", what());
        }
    }

    pub(super) fn run(self: &Arc<Self>, step: &Step) {
        let mut random = Random::new(step.seed);
        self.say(|| format!("{step:?}"));
        {
            let mut now = self.now.lock();
            now.seed = step.seed;
            now.operations = 0;
            now.action = Some(step.action);
            now.inside = step.inside;
        }
        let disk = self.disk();
        disk.power_off_after(step.power_off);
        if let Some((after, fault)) = step.fault {
            disk.fail_after(after, fault);
        }
        if let Some(space) = step.space {
            disk.set_space(space);
        }
        self.model.lock().foul = step.fault.is_some() || disk.is_foul();
        let result = self.act(step.action, &mut random);
        disk.clear_faults();
        disk.power_off_after(None);
        self.now.lock().action = None;
        if disk.is_off() {
            // What ended in the middle of the step was the machine, or only the process.
            // After a failed sync the page cache is not what is on the disk: nobody can know that later.
            let death = match random.one_in(3) && !self.model.lock().failed {
                true => Death::KillInside,
                false => Death::PowerCut,
            };
            self.recover(random.next(), death);
        } else if self.model.lock().failed {
            self.check_offline();
            self.recover(random.next(), Death::PowerCut);
        } else if result.is_err() {
            self.say(|| "  refused".to_owned());
        }
        if random.one_in(4) {
            self.check_all(&mut random);
        }
    }

    fn act(self: &Arc<Self>, action: Action, random: &mut Random) -> Result<(), Failed> {
        match action {
            Action::Append(topic) => self.append(topic, random),
            Action::Replicate(topic) => self.replicate(topic, random),
            Action::Repeat(topic) => self.repeat(topic, random),
            Action::NewEpoch(topic) => {
                self.model.lock().topics[topic].epoch += 1 + random.below(2) as i32;
                Ok(())
            }
            Action::Flush(topic) => self.flush(topic),
            Action::RunFlusher => self.run_flusher(random),
            Action::Advance => {
                self.clock
                    .advance(Duration::from_millis(random.next() % 400));
                Ok(())
            }
            Action::Housekeep => self.housekeep(),
            Action::MoveRecoveryPoints => {
                self.manager().move_recovery_points(0);
                self.outcome()
            }
            Action::DeleteRecords(topic) => self.delete_records(topic, random),
            Action::Truncate(topic) => match random.one_in(4) {
                true => self.begin_anew(topic, random),
                false => self.truncate(topic, random),
            },
            Action::Recreate(topic) => self.recreate(topic, random),
            Action::Configure(topic) => self.configure(topic, random),
            Action::NoteHighWatermarks => self.note_high_watermarks(),
            Action::Restart => self.restart(random),
            Action::Kill => {
                self.recover(random.next(), Death::Kill);
                Ok(())
            }
            Action::PowerCut => {
                self.recover(random.next(), Death::PowerCut);
                Ok(())
            }
        }
    }

    pub(super) fn disk(&self) -> CrashDisk {
        self.running.lock().as_ref().unwrap().disk.clone()
    }

    pub(super) fn manager(&self) -> Arc<LogManager> {
        Arc::clone(&self.running.lock().as_ref().unwrap().manager)
    }

    /// Err if the power is off or the directory offline.
    pub(super) fn outcome(&self) -> Result<(), Failed> {
        match self.disk().is_off() || self.model.lock().failed {
            true => Err(Failed),
            false => Ok(()),
        }
    }

    /// What an operation's error means: only what was injected may fail.
    fn failure(&self, error: &LogError) -> Failed {
        let told = match error {
            LogError::Io(error) => {
                matches!(error.raw_os_error(), Some(libc::EIO | libc::ENOSPC))
            }
            LogError::Full(_) => true,
            _ => false,
        };
        let injected = told || self.disk().is_off() || self.model.lock().failed;
        assert!(injected, "{error}");
        Failed
    }

    /// The open log of a topic, compared with the model when it is opened.
    pub(super) fn log(&self, topic: usize) -> Result<Arc<Log>, Failed> {
        let open = self.running.lock().as_ref().unwrap().logs[topic].clone();
        if let Some(log) = open {
            return Ok(log);
        }
        let (partition, id) = {
            let model = self.model.lock();
            let topic = &model.topics[topic];
            (topic.partition.clone(), topic.id)
        };
        let config = Arc::clone(&self.configs.lock()[topic]);
        let log = self.manager().log(&partition, id, config);
        let log = log.map_err(|error| self.failure(&error))?;
        let mut random = Random::of(self.now.lock().seed, 3);
        // Not under the lock: reading may write an index, and the power may go then.
        let mut found = self.model.lock().topics[topic].clone();
        let disk = self.disk();
        if self.model.lock().failed {
            return Err(Failed); // a write at its opening took the directory offline
        }
        disk.pause(true);
        found.reconcile(&log);
        found.check(&log, &mut random);
        disk.pause(false);
        self.model.lock().topics[topic] = found;
        self.running.lock().as_mut().unwrap().logs[topic] = Some(Arc::clone(&log));
        Ok(log)
    }

    fn append(&self, topic: usize, random: &mut Random) -> Result<(), Failed> {
        let log = self.log(topic)?;
        let now_ms = self.clock.wall_ms();
        let (batch, valid) = new_batch(&self.model.lock().topics[topic], now_ms, random);
        let epoch = batch.header.partition_leader_epoch;
        self.model.lock().topics[topic].in_flight = vec![batch];
        let appended = log.append(valid, epoch, now_ms);
        match appended {
            Ok(appended) => {
                let mut model = self.model.lock();
                let topic = &mut model.topics[topic];
                let batch = topic.in_flight.pop().unwrap();
                assert_eq!(appended.base_offset, topic.end());
                assert!(!appended.duplicate);
                topic.batches.push(batch);
                Ok(())
            }
            Err(AppendError::Refused(error)) => panic!("{error}"),
            Err(AppendError::Log(error)) => {
                let failed = self.failure(&error);
                if self.outcome().is_ok() {
                    // Refused for good: no later start may find it.
                    self.model.lock().topics[topic].in_flight.clear();
                }
                Err(failed)
            }
        }
    }

    /// A leader's batches, some with one write.
    fn replicate(&self, topic: usize, random: &mut Random) -> Result<(), Failed> {
        let log = self.log(topic)?;
        let now_ms = self.clock.wall_ms();
        let (batches, leader_epoch) = {
            let mut sender = self.model.lock().topics[topic].clone();
            let first = sender.batches.len();
            for _ in 0..1 + random.below(5) {
                let (batch, _) = new_batch(&sender, now_ms, random);
                sender.batches.push(batch);
                if random.one_in(4) {
                    sender.epoch += 1;
                }
            }
            (sender.batches.split_off(first), sender.epoch)
        };
        let bytes: Vec<u8> = batches.iter().flat_map(|b| b.stored.clone()).collect();
        let rules = ReplicaRules {
            next_offset: log.log_end_offset(),
            last_epoch: log.latest_epoch().unwrap_or(-1),
            leader_epoch,
            gaps: false,
        };
        let checked = ReplicaBatches::check(bytes.into(), rules).unwrap();
        {
            let mut model = self.model.lock();
            model.topics[topic].in_flight = batches;
            model.topics[topic].epoch = leader_epoch;
        }
        let appended = log.append_as_follower(&checked, now_ms);
        let failed = match appended {
            Ok(end) => {
                assert_eq!(
                    end,
                    checked.batches.last().unwrap().header.last_offset() + 1
                );
                None
            }
            Err(AppendError::Refused(error)) => panic!("{error}"),
            Err(AppendError::Log(error)) => Some(self.failure(&error)),
        };
        if failed.is_none() || self.outcome().is_ok() {
            // What was written before an error stays, and nothing else.
            let mut model = self.model.lock();
            let topic = &mut model.topics[topic];
            let mut there = std::mem::take(&mut topic.in_flight);
            there.retain(|batch| batch.header.last_offset() < log.log_end_offset());
            topic.batches.append(&mut there);
            assert_eq!(topic.end(), log.log_end_offset());
        }
        failed.map_or(Ok(()), Err)
    }

    /// A batch that is there must be recognised, and not be written again.
    fn repeat(&self, topic: usize, random: &mut Random) -> Result<(), Failed> {
        let log = self.log(topic)?;
        let (header, stored, epoch) = {
            let model = self.model.lock();
            let topic = &model.topics[topic];
            let id = random.below(PRODUCERS) as ProducerId;
            let last = topic.batches.iter().rev().find(|batch| {
                batch.header.producer_id == id && batch.header.base_offset >= topic.log_start
            });
            let Some(batch) = last else {
                return Ok(());
            };
            (batch.header, batch.stored.clone(), topic.epoch)
        };
        let again = ValidBatch {
            header,
            payload: stored.slice(BATCH_HEADER_BYTES..),
            max_timestamp_delta: 0,
        };
        match log.append(again, epoch, self.clock.wall_ms()) {
            Ok(appended) => {
                assert!(appended.duplicate);
                assert_eq!(appended.base_offset, header.base_offset);
                Ok(())
            }
            Err(AppendError::Log(error)) => Err(self.failure(&error)),
            Err(AppendError::Refused(error)) => panic!("{error}"),
        }
    }

    fn flush(&self, topic: usize) -> Result<(), Failed> {
        let log = self.log(topic)?;
        let outer = self.now.lock().flushing.replace(topic);
        let result = log.flush();
        self.now.lock().flushing = outer;
        let flushed = result.map_err(|error| self.failure(&error))?;
        let mut model = self.model.lock();
        let topic = &mut model.topics[topic];
        topic.flush_reported(flushed);
        Ok(())
    }

    /// What the flusher's thread does: a group, in any order.
    fn run_flusher(&self, random: &mut Random) -> Result<(), Failed> {
        let mut group = self.manager().due_flushes();
        while !group.is_empty() {
            let log = group.swap_remove(random.below(group.len()));
            let topic = self.topic_of(&log);
            self.model.lock().deaf = topic.is_none();
            let outer = std::mem::replace(&mut self.now.lock().flushing, topic);
            let _ = log.flush();
            self.now.lock().flushing = outer;
            self.model.lock().deaf = false;
        }
        self.outcome()
    }

    /// The topic whose open log this is; none for a deleted one.
    fn topic_of(&self, log: &Arc<Log>) -> Option<usize> {
        let running = self.running.lock();
        let logs = &running.as_ref().unwrap().logs;
        logs.iter()
            .position(|open| open.as_ref().is_some_and(|open| Arc::ptr_eq(open, log)))
    }

    fn delete_records(&self, topic: usize, random: &mut Random) -> Result<(), Failed> {
        let log = self.log(topic)?;
        let to = {
            let mut model = self.model.lock();
            let topic = &mut model.topics[topic];
            let span = usize::try_from(topic.end() - topic.log_start).unwrap();
            let to = topic.log_start + random.below(span + 1) as i64;
            topic.log_start_max = topic.log_start_max.max(to);
            to
        };
        let outer = self.now.lock().flushing.replace(topic);
        let moved = log.advance_log_start_offset(to);
        let disk = self.disk();
        self.now.lock().flushing = outer;
        let mut model = self.model.lock();
        let topic = &mut model.topics[topic];
        if moved.is_ok() || !disk.is_off() {
            // Who asks for the start in between may have seen it.
            topic.log_start = log.log_start_offset();
        }
        topic.log_start_max = topic.log_start_max.max(topic.log_start);
        match moved {
            Ok(start) => {
                assert_eq!(start, to);
                Ok(())
            }
            Err(error) => {
                drop(model);
                Err(self.failure(&error))
            }
        }
    }

    /// A follower finds that its leader has other records.
    fn truncate(self: &Arc<Self>, topic: usize, random: &mut Random) -> Result<(), Failed> {
        let log = self.log(topic)?;
        let (to, end, before) = {
            let mut model = self.model.lock();
            let topic = &mut model.topics[topic];
            let span = usize::try_from(topic.end() - topic.log_start).unwrap();
            let to = topic.log_start + random.below(span + 1) as i64;
            let end = topic.end_if_cut_at(to);
            // From now on what lies behind may be there or not.
            topic.promised_only(end);
            if end < topic.log_start {
                topic.begins_anew = Some(to);
                topic.promised_only(0);
            }
            (to, end, topic.end())
        };
        let outer = self.now.lock().flushing.replace(topic);
        let truncated = log.truncate_to(to);
        self.now.lock().flushing = outer;
        if let Err(error) = truncated {
            return self.failed_cut(&error, random);
        }
        let mut model = self.model.lock();
        let topic = &mut model.topics[topic];
        match topic.begins_anew.take() {
            Some(start) => topic.begin_anew(start),
            None => topic
                .batches
                .retain(|batch| batch.header.last_offset() < end),
        }
        assert_eq!(log.log_end_offset(), topic.end());
        if to < before {
            topic.flush_reported(topic.end());
        }
        Ok(())
    }

    /// A follower finds that its leader begins later than it ends, or with other records altogether.
    fn begin_anew(self: &Arc<Self>, topic: usize, random: &mut Random) -> Result<(), Failed> {
        let log = self.log(topic)?;
        let start = {
            let mut model = self.model.lock();
            let topic = &mut model.topics[topic];
            let start = random.below(usize::try_from(topic.end()).unwrap() + 20) as i64;
            topic.begins_anew = Some(start);
            topic.promised_only(0);
            start
        };
        let outer = self.now.lock().flushing.replace(topic);
        let truncated = log.truncate_fully_and_start_at(start);
        self.now.lock().flushing = outer;
        if let Err(error) = truncated {
            return self.failed_cut(&error, random);
        }
        let mut model = self.model.lock();
        let topic = &mut model.topics[topic];
        topic.begins_anew = None;
        topic.begin_anew(start);
        Ok(())
    }

    /// How far it got the next start finds out.
    fn failed_cut(self: &Arc<Self>, error: &LogError, random: &mut Random) -> Result<(), Failed> {
        let failed = self.failure(error);
        if self.outcome().is_ok() {
            self.recover(random.next(), Death::PowerCut);
        }
        Err(failed)
    }

    /// Retention may move the log start of any open log, and nobody asked for it.
    fn housekeep(&self) -> Result<(), Failed> {
        // More than the start only after a deletion that failed half way.
        let mut before = Vec::new();
        for topic in &mut self.model.lock().topics {
            before.push(topic.log_start_max);
            topic.log_start_max = topic.end();
        }
        self.manager().run_due_tasks();
        let running = self.running.lock();
        let logs = &running.as_ref().unwrap().logs;
        let mut model = self.model.lock();
        for (topic, log) in model.topics.iter_mut().zip(logs) {
            if let Some(log) = log {
                topic.log_start = log.log_start_offset();
            }
        }
        drop((running, model));
        self.outcome()?;
        if !self.disk().is_foul() {
            for (topic, before) in self.model.lock().topics.iter_mut().zip(before) {
                topic.log_start_max = topic.log_start.max(before);
            }
        }
        Ok(())
    }

    /// The topic is deleted, and another one of that name made, as the registry says: it is so before
    /// the log hears of it.
    fn recreate(&self, topic: usize, random: &mut Random) -> Result<(), Failed> {
        let partition = partition(topic);
        let id = {
            let mut now = self.now.lock();
            now.topic_ids += 1;
            topic_id(now.topic_ids)
        };
        let new = Topic::new(partition.clone(), id);
        let old = std::mem::replace(&mut self.model.lock().topics[topic], new);
        self.set_config(topic, random_config(random));
        self.running.lock().as_mut().unwrap().logs[topic] = None;
        if !random.one_in(3) {
            let deleted = self.manager().delete(&partition, old.id, 100);
            deleted.map_err(|error| self.failure(&error))?;
        }
        self.log(topic)?;
        Ok(())
    }

    fn configure(&self, topic: usize, random: &mut Random) -> Result<(), Failed> {
        let config = random_config(random);
        self.set_config(topic, Arc::clone(&config));
        self.log(topic)?.set_config(config);
        self.outcome()
    }

    fn set_config(&self, topic: usize, config: Arc<TopicConfig>) {
        self.model.lock().topics[topic].waits_for_disk = config.flush_messages == 1;
        self.configs.lock()[topic] = config;
    }

    fn note_high_watermarks(&self) -> Result<(), Failed> {
        let offsets: Vec<_> = {
            let model = self.model.lock();
            let topics = model.topics.iter();
            topics.map(|t| (t.partition.clone(), t.reported)).collect()
        };
        self.manager().checkpoint_high_watermarks(&offsets);
        self.outcome()
    }

    fn check_all(&self, random: &mut Random) {
        for topic in 0..TOPICS {
            let open = self.running.lock().as_ref().unwrap().logs[topic].clone();
            if let Some(log) = open {
                let topic = self.model.lock().topics[topic].clone();
                topic.check(&log, random);
            }
        }
    }
}

impl Watcher for World {
    fn before(&self, kind: Kind, path: &Path) {
        let (seed, operation, action, inside) = {
            let mut now = self.now.lock();
            let operation = now.operations;
            now.operations += 1;
            let due = now.inside.is_some_and(|(at, _)| operation >= at);
            let inside = match due {
                true => now.inside.take(),
                false => None,
            };
            (now.seed, operation, now.action, inside)
        };
        let Some(action) = action else {
            return; // recovery and comparing
        };
        self.say(|| format!("    {operation} {kind:?} {}", path.display()));
        let mut random = Random::of(seed, operation + 100);
        if random.one_in(self.setup.cut_one_in) {
            self.try_power_cut(random.next());
        }
        if let Some((_, inside)) = inside
            && self.may_run_inside(action, inside)
        {
            self.say(|| format!("    meanwhile {inside:?}"));
            let _ = match inside {
                Action::Append(topic) => self.append(topic, &mut random),
                Action::Flush(topic) => self.flush(topic),
                _ => Ok(()),
            };
        }
    }
}

impl World {
    /// What two threads can do at once: one that would wait for the other is not run.
    fn may_run_inside(&self, action: Action, inside: Action) -> bool {
        // The first record writes checkpoints, which are written by one at a time.
        let open = |topic: usize| {
            let running = self.running.lock();
            let log = running.as_ref().unwrap().logs[topic].as_ref();
            log.is_some_and(|log| log.segment_count() > 0)
        };
        let flushing = self.now.lock().flushing;
        match (action, inside) {
            (Action::Append(a) | Action::Replicate(a), Action::Append(b)) => a != b && open(b),
            (Action::Append(_) | Action::Replicate(_), Action::Flush(b)) => {
                open(b) && flushing.is_none()
            }
            (Action::Flush(_) | Action::RunFlusher, Action::Append(b)) => open(b),
            (Action::Flush(_) | Action::RunFlusher, Action::Flush(b)) => {
                open(b) && flushing.is_some() && flushing != Some(b)
            }
            (Action::MoveRecoveryPoints, Action::Flush(b)) => open(b),
            (
                Action::DeleteRecords(a) | Action::Truncate(a),
                Action::Append(b) | Action::Flush(b),
            ) => a != b && open(b),
            _ => false,
        }
    }
}
