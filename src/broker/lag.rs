//! How far groups are behind, in records and in seconds.
//!
//! Where this broker has a replica of the partition both are read from its log: a record's age is that of
//! its batch. Where it has none the high watermark is asked of the leader, and an age counts from when
//! this broker first saw that the record was there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::coordinator::GroupSnapshot;
use crate::handlers::Context;
use crate::metadata::{Endpoint, Image};
use crate::net::{FrameBuffers, Peer, PeerConfig, PeerHeaders, PeerRequest};
use crate::protocol::list_offsets;
use crate::telemetry::GroupOffsetSample;
use crate::types::{BrokerId, Offset, PartitionId, TimestampMs, TopicName};

/// A page does not wait longer for batches or for other brokers; what is late is on the next one.
const PATIENCE: Duration = Duration::from_millis(20);
/// Batches that one page looks for.
const LOOKUPS_MAX: usize = 1_000;
/// Moments at which a remote high watermark is remembered.
const HISTORY_MAX: usize = 64;
const ANSWER_BYTES_MAX: usize = 4 << 20;
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

type Key = (TopicName, PartitionId);
/// By topic, partition and offset.
type Times = BTreeMap<(TopicName, PartitionId, Offset), TimestampMs>;

/// Finds lags out. Keeps what it has learned from page to page.
#[derive(Debug)]
pub(super) struct Lags {
    context: Arc<Context>,
    /// When the records at committed offsets were written, of groups that do not move.
    times: Arc<Mutex<Times>>,
    remote: Arc<Remote>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Lags {
    pub(super) fn new(context: Arc<Context>, tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self {
            context,
            times: Arc::default(),
            remote: Arc::default(),
            tasks,
            stop,
        }
    }

    /// The offsets of all groups with their lags.
    pub(super) async fn of(&self, groups: &[GroupSnapshot]) -> Vec<Vec<GroupOffsetSample>> {
        self.ask_leaders(groups).await;
        let now_ms = self.context.clock.wall_ms();
        let mut samples: Vec<Vec<GroupOffsetSample>> = groups
            .iter()
            .map(|group| {
                let offsets = group.offsets.iter();
                offsets.map(|offset| self.sample(offset, now_ms)).collect()
            })
            .collect();
        self.look_up(&samples).await;
        let times = self.times.lock();
        for sample in samples.iter_mut().flatten() {
            let key = (
                TopicName::clone(&sample.topic),
                sample.partition,
                sample.offset,
            );
            if let (None, Some(time)) = (sample.lag_seconds, times.get(&key)) {
                sample.lag_seconds = Some(seconds(now_ms, *time));
            }
        }
        samples
    }

    fn sample(&self, offset: &(TopicName, i32, i64), now_ms: TimestampMs) -> GroupOffsetSample {
        let (topic, partition, offset) = offset;
        let local = self.high_watermark(topic, *partition);
        let (end, since) = match local {
            Some(end) => (Some(end), None),
            None => self.remote.look(topic, *partition, *offset),
        };
        let lag = end.map(|end| (end - offset).max(0));
        GroupOffsetSample {
            topic: TopicName::clone(topic),
            partition: *partition,
            offset: *offset,
            lag,
            lag_seconds: match lag {
                Some(0) => Some(0.0),
                _ => since.map(|since| seconds(now_ms, since)),
            },
        }
    }

    /// As it is known here, if there is a replica here.
    fn high_watermark(&self, topic: &TopicName, partition: PartitionId) -> Option<Offset> {
        let here = self.context.replicas.partition(topic, partition).ok()?;
        Some(here.log_sample()?.high_watermark)
    }

    /// Finds the times of offsets that have a lag here and whose time is not known yet; forgets those that
    /// nobody needs any more.
    async fn look_up(&self, samples: &[Vec<GroupOffsetSample>]) {
        let mut wanted = BTreeSet::new();
        for sample in samples.iter().flatten() {
            if sample.lag.is_some_and(|lag| lag > 0) && sample.lag_seconds.is_none() {
                let topic = TopicName::clone(&sample.topic);
                wanted.insert((topic, sample.partition, sample.offset));
            }
        }
        let unknown: Vec<_> = {
            let mut times = self.times.lock();
            times.retain(|key, _| wanted.contains(key));
            let unknown = wanted.into_iter().filter(|key| !times.contains_key(key));
            unknown.take(LOOKUPS_MAX).collect()
        };
        let looking = unknown.into_iter().filter_map(|key| {
            let partition = self.context.replicas.partition(&key.0, key.1).ok()?;
            let time = partition.about_time_of(key.2);
            let times = Arc::clone(&self.times);
            Some(async move {
                if let Ok(Some(time)) = time.await {
                    times.lock().insert(key, time);
                }
            })
        });
        // A disk may stall.
        let _ = tokio::time::timeout(PATIENCE, join_all(looking)).await;
    }

    /// Asks leaders for the high watermarks of what has no replica here.
    async fn ask_leaders(&self, groups: &[GroupSnapshot]) {
        let image = self.context.metadata.current();
        let mut asked: BTreeMap<BrokerId, BTreeMap<TopicName, Vec<PartitionId>>> = BTreeMap::new();
        let mut wanted = BTreeMap::new();
        for (topic, partition, offset) in groups.iter().flat_map(|group| &group.offsets) {
            if self.high_watermark(topic, *partition).is_some() {
                continue;
            }
            let lowest = wanted
                .entry((TopicName::clone(topic), *partition))
                .or_insert(*offset);
            *lowest = (*lowest).min(*offset);
        }
        self.remote.keep(&wanted);
        for (topic, partition) in wanted.into_keys() {
            let state = image.partition(&topic, partition);
            let leader = state.and_then(|state| state.leader);
            if let Some(leader) = leader.filter(|leader| *leader != self.context.config.node_id) {
                asked
                    .entry(leader)
                    .or_default()
                    .entry(topic)
                    .or_default()
                    .push(partition);
            }
        }
        let asking = asked.into_iter().filter_map(|(leader, topics)| {
            let endpoint = self.endpoint(&image, leader)?;
            let remote = Arc::clone(&self.remote);
            let now_ms = self.context.clock.wall_ms();
            let client_id = format!("broker-{}-lag", self.context.config.node_id.0);
            let work = async move { remote.ask(endpoint, client_id, topics, now_ms).await };
            let stop = self.stop.clone();
            // It goes on when the page is served.
            Some(self.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = work => {}
                }
            }))
        });
        let asking: Vec<_> = asking.collect();
        if !asking.is_empty() {
            let _ = tokio::time::timeout(PATIENCE, join_all(asking)).await;
        }
    }

    fn endpoint(&self, image: &Image, id: BrokerId) -> Option<Endpoint> {
        let listener = &self.context.config.inter_broker_listener;
        image.brokers.get(&id)?.endpoint(listener).cloned()
    }
}

fn seconds(now_ms: TimestampMs, since_ms: TimestampMs) -> f64 {
    // Whole milliseconds: no digits that say nothing.
    (now_ms - since_ms).max(0) as f64 / 1_000.0
}

/// High watermarks of partitions that have no replica here, as their leaders told them.
#[derive(Debug, Default)]
struct Remote {
    known: Mutex<BTreeMap<Key, History>>,
}

/// When a high watermark was seen, oldest first.
#[derive(Debug, Default)]
struct History {
    seen: VecDeque<(TimestampMs, Offset)>,
    /// Moments that are nearer to each other than this are one.
    step_ms: TimestampMs,
}

impl History {
    fn note(&mut self, now_ms: TimestampMs, high_watermark: Offset) {
        let seen = &mut self.seen;
        if seen.back().is_some_and(|&(_, last)| last == high_watermark) {
            return;
        }
        let before = seen.len().checked_sub(2).map(|index| seen[index].0);
        if before.is_some_and(|before| now_ms - before < self.step_ms) {
            seen.pop_back();
        }
        seen.push_back((now_ms, high_watermark));
        if seen.len() > HISTORY_MAX {
            let span = now_ms - seen[0].0;
            self.step_ms = span / (HISTORY_MAX as i64 / 2);
            let mut index = 0;
            seen.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }

    /// What nobody waits for any more: all that is below `offset`, but for the newest.
    fn forget_below(&mut self, offset: Offset) {
        while self.seen.len() > 1 && self.seen[0].1 <= offset {
            self.seen.pop_front();
        }
    }

    fn end(&self) -> Option<Offset> {
        self.seen.back().map(|&(_, end)| end)
    }

    /// When the record at `offset` was first seen to be there.
    fn since(&self, offset: Offset) -> Option<TimestampMs> {
        let mut seen = self.seen.iter();
        seen.find(|&&(_, end)| end > offset).map(|&(at, _)| at)
    }
}

impl Remote {
    fn look(
        &self,
        topic: &TopicName,
        partition: PartitionId,
        offset: Offset,
    ) -> (Option<Offset>, Option<TimestampMs>) {
        let known = self.known.lock();
        let history = known.get(&(TopicName::clone(topic), partition));
        let history = history.filter(|history| history.end().is_some());
        history.map_or((None, None), |history| {
            (history.end(), history.since(offset))
        })
    }

    /// Forgets what is not wanted any more.
    fn keep(&self, wanted: &BTreeMap<Key, Offset>) {
        let mut known = self.known.lock();
        known.retain(|key, history| {
            if let Some(lowest) = wanted.get(key) {
                history.forget_below(*lowest);
            }
            wanted.contains_key(key)
        });
    }

    /// Asks one leader.
    async fn ask(
        &self,
        endpoint: Endpoint,
        client_id: String,
        topics: BTreeMap<TopicName, Vec<PartitionId>>,
        now_ms: TimestampMs,
    ) {
        let config = PeerConfig {
            client_id,
            connect_timeout: PEER_TIMEOUT,
            receive_buffer_bytes: -1,
            response_bytes_max: ANSWER_BYTES_MAX,
        };
        let buffers = FrameBuffers::default();
        let peer = Peer::connect(&endpoint.host, endpoint.port, config, buffers).await;
        let Ok(mut peer) = peer else { return };
        let asked: Vec<(&str, Vec<PartitionId>)> = topics
            .iter()
            .map(|(topic, partitions)| (&**topic, partitions.clone()))
            .collect();
        let request = PeerRequest {
            headers: PeerHeaders::Flexible,
            api_key: list_offsets::API_KEY,
            api_version: list_offsets::VERSION,
            body: list_offsets::encode_latest(&asked),
            timeout: PEER_TIMEOUT,
        };
        let Ok(body) = peer.call(request).await else {
            return;
        };
        let Ok(found) = list_offsets::decode_latest(&body) else {
            return;
        };
        let mut known = self.known.lock();
        for (topic, partition, offset) in found {
            let key = (TopicName::from(topic), partition);
            known.entry(key).or_default().note(now_ms, offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_records_age_counts_from_when_it_was_first_seen() {
        let mut history = History::default();
        history.note(1_000, 10);
        history.note(2_000, 10);
        history.note(3_000, 15);
        history.note(4_000, 20);
        assert_eq!(history.end(), Some(20));
        assert_eq!(history.since(9), Some(1_000));
        assert_eq!(history.since(10), Some(3_000));
        assert_eq!(history.since(19), Some(4_000));
        assert_eq!(history.since(20), None);
        history.forget_below(15);
        assert_eq!(history.since(9), Some(4_000));
        history.forget_below(99);
        assert_eq!(history.end(), Some(20));
    }

    #[test]
    fn a_long_history_grows_coarse_and_keeps_its_ends() {
        let mut history = History::default();
        for step in 0..1_000 {
            history.note(step, step);
        }
        assert!(history.seen.len() <= HISTORY_MAX);
        assert_eq!(history.end(), Some(999));
        assert_eq!(history.since(-1), Some(0));
        assert!(
            history
                .since(500)
                .is_some_and(|at| (501..=600).contains(&at))
        );
    }

    #[test]
    fn seconds_are_never_negative() {
        assert_eq!(seconds(1_500, 1_000), 0.5);
        assert_eq!(seconds(1_000, 1_500), 0.0);
    }
}
