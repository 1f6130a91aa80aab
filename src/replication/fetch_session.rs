//! Incremental fetch sessions (KIP-227). Pure.
//!
//! A session remembers which partitions a client fetches and what it was last told of each, so that
//! a request names only what changed and a response only what is new. The cache bounds how many there
//! are; a client without a session is served all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::protocol::TopicKey;
use crate::protocol::fetch::{FetchPartition, FetchTopic, ForgottenTopic};
use crate::types::{ErrorCode, LeaderEpoch, NO_OFFSET, Offset, PartitionId, TopicName};

/// A session that was not used for this long gives way to any new one; one that is younger than this
/// gives way to none of the same kind (Kafka's `FetchSessionCache`).
const EVICTION_AGE: Duration = Duration::from_secs(120);

/// What a request says of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRequest {
    /// Serve this one request; close the session if one is named.
    Sessionless { close: Option<i32> },
    /// Serve all that is named and keep it as a new session; close the one that is named.
    New { close: Option<i32> },
    /// Serve the session, changed as the request says.
    Incremental { id: i32, epoch: i32 },
}

impl SessionRequest {
    /// Reads session id and epoch as they stand in the request.
    pub fn of(id: i32, epoch: i32) -> Self {
        let close = (id != 0).then_some(id);
        match epoch {
            -1 => Self::Sessionless { close },
            0 => Self::New { close },
            epoch => Self::Incremental { id, epoch },
        }
    }
}

/// One partition in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPartition {
    pub topic: TopicKey,
    /// Of a topic that is asked for by id, once it was known: it tells a topic that is gone from one
    /// that never was.
    pub name: Option<TopicName>,
    pub partition: PartitionId,
    pub fetch_offset: Offset,
    pub current_leader_epoch: LeaderEpoch,
    pub last_fetched_epoch: LeaderEpoch,
    pub max_bytes: i32,
    /// Where the log of a follower starts.
    pub replica_log_start: Offset,
    /// What the client was told last; −1: nothing that it may rely on.
    high_watermark: Offset,
    log_start_offset: Offset,
}

impl SessionPartition {
    pub fn new(topic: TopicKey, asked: &FetchPartition) -> Self {
        Self {
            topic,
            name: None,
            partition: asked.partition,
            fetch_offset: asked.fetch_offset,
            current_leader_epoch: asked.current_leader_epoch,
            last_fetched_epoch: asked.last_fetched_epoch,
            max_bytes: asked.max_bytes,
            replica_log_start: asked.log_start_offset,
            high_watermark: NO_OFFSET,
            log_start_offset: NO_OFFSET,
        }
    }

    /// Takes in what the client is told; returns whether that is news.
    fn tell(&mut self, told: Told) -> bool {
        let news = told.error
            || told.diverged
            || told.bytes > 0
            || self.high_watermark != told.high_watermark
            || self.log_start_offset != told.log_start_offset;
        // After an error everything is told again.
        self.high_watermark = if told.error {
            NO_OFFSET
        } else {
            told.high_watermark
        };
        self.log_start_offset = told.log_start_offset;
        news
    }
}

/// What a response says of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    pub error: bool,
    /// Where the log of the asker differs.
    pub diverged: bool,
    pub bytes: usize,
    pub high_watermark: Offset,
    pub log_start_offset: Offset,
}

/// Where a partition stands in the order of its session.
type Place = u64;

/// The partitions of a request or a session in the order in which they are read; each only once.
#[derive(Debug, Clone, Default)]
pub struct SessionPartitions {
    by_place: BTreeMap<Place, SessionPartition>,
    places: BTreeMap<(TopicKey, PartitionId), Place>,
    next_place: Place,
}

impl SessionPartitions {
    /// The partitions that a request names, in its order; the last mention of each counts.
    pub fn of(topics: &[FetchTopic]) -> Self {
        let mut partitions = Self::default();
        partitions.update(topics, &[]);
        partitions
    }

    pub fn len(&self) -> usize {
        self.by_place.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// In reading order.
    pub fn iter(&self) -> impl Iterator<Item = (Place, &SessionPartition)> {
        self.by_place
            .iter()
            .map(|(place, partition)| (*place, partition))
    }

    /// Notes the name of a topic that is asked for by id.
    pub fn set_name(&mut self, place: Place, name: TopicName) {
        if let Some(partition) = self.by_place.get_mut(&place) {
            partition.name = Some(name);
        }
    }

    fn update(&mut self, topics: &[FetchTopic], forgotten: &[ForgottenTopic]) {
        for topic in topics {
            for asked in &topic.partitions {
                self.put(&topic.topic, asked);
            }
        }
        for topic in forgotten {
            for partition in &topic.partitions {
                let key = (topic.topic.clone(), *partition);
                if let Some(place) = self.places.remove(&key) {
                    self.by_place.remove(&place);
                }
            }
        }
    }

    fn put(&mut self, topic: &TopicKey, asked: &FetchPartition) {
        let key = (topic.clone(), asked.partition);
        let place = *self.places.entry(key).or_insert_with(|| {
            self.next_place += 1;
            self.next_place
        });
        self.by_place
            .entry(place)
            .and_modify(|known| {
                known.fetch_offset = asked.fetch_offset;
                known.current_leader_epoch = asked.current_leader_epoch;
                known.last_fetched_epoch = asked.last_fetched_epoch;
                known.max_bytes = asked.max_bytes;
                known.replica_log_start = asked.log_start_offset;
            })
            .or_insert_with(|| SessionPartition::new(topic.clone(), asked));
    }

    /// Takes in what the client is told of the partition at `place`; returns whether the response has
    /// to say it. Whoever got records goes to the end, so that all get their turn.
    fn tell(&mut self, place: Place, told: Told) -> bool {
        let Some(partition) = self.by_place.get_mut(&place) else {
            return false;
        };
        let news = partition.tell(told);
        if told.bytes > 0
            && let Some(partition) = self.by_place.remove(&place)
        {
            self.next_place += 1;
            let key = (partition.topic.clone(), partition.partition);
            self.places.insert(key, self.next_place);
            self.by_place.insert(self.next_place, partition);
        }
        news
    }
}

/// One session. The epoch that the next request must carry counts up with each.
#[derive(Debug)]
pub struct FetchSession {
    id: i32,
    epoch: i32,
    uses_topic_ids: bool,
    pub partitions: SessionPartitions,
}

impl FetchSession {
    /// A session over what a full request fetched; the client was told `told` of each, in order.
    pub fn new(
        id: i32,
        uses_topic_ids: bool,
        mut partitions: SessionPartitions,
        told: impl IntoIterator<Item = (Place, Told)>,
    ) -> Self {
        for (place, told) in told {
            if let Some(partition) = partitions.by_place.get_mut(&place) {
                partition.tell(told);
            }
        }
        Self {
            id,
            epoch: 1,
            uses_topic_ids,
            partitions,
        }
    }

    pub fn id(&self) -> i32 {
        self.id
    }

    /// An incremental request begins: INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
    pub fn begin(
        &mut self,
        epoch: i32,
        uses_topic_ids: bool,
        topics: &[FetchTopic],
        forgotten: &[ForgottenTopic],
    ) -> Result<(), ErrorCode> {
        if epoch != self.epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if uses_topic_ids != self.uses_topic_ids {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        self.partitions.update(topics, forgotten);
        self.epoch = next_epoch(self.epoch);
        Ok(())
    }

    /// The request that began with `epoch` is answered: for each partition whether the response has
    /// to name it. INVALID_FETCH_SESSION_EPOCH if another request came in between.
    pub fn finish(
        &mut self,
        epoch: i32,
        told: impl IntoIterator<Item = (Place, Told)>,
    ) -> Result<Vec<bool>, ErrorCode> {
        if self.epoch != next_epoch(epoch) {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        let news = told
            .into_iter()
            .map(|(place, told)| self.partitions.tell(place, told));
        Ok(news.collect())
    }
}

fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// How much a session is worth keeping: followers before consumers, large before small.
type Worth = (bool, usize, i32);

/// The sessions of a broker, `slots` at most. `S` is whatever holds one.
#[derive(Debug)]
pub struct FetchSessionCache<S> {
    slots: usize,
    partition_count: usize,
    sessions: BTreeMap<i32, Slot<S>>,
    by_last_use: BTreeSet<(Instant, i32)>,
    /// Old enough to give way to a follower's, and to anyone's.
    evictable_by_follower: BTreeSet<Worth>,
    evictable_by_all: BTreeSet<Worth>,
}

#[derive(Debug)]
struct Slot<S> {
    session: S,
    of_follower: bool,
    size: usize,
    created: Instant,
    last_used: Instant,
}

impl<S> FetchSessionCache<S> {
    pub fn new(slots: usize) -> Self {
        Self {
            slots,
            partition_count: 0,
            sessions: BTreeMap::new(),
            by_last_use: BTreeSet::new(),
            evictable_by_follower: BTreeSet::new(),
            evictable_by_all: BTreeSet::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Partitions of all sessions.
    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    pub fn get(&self, id: i32) -> Option<&S> {
        self.sessions.get(&id).map(|slot| &slot.session)
    }

    pub fn remove(&mut self, id: i32) -> Option<S> {
        let slot = self.sessions.remove(&id)?;
        self.partition_count -= slot.size;
        self.by_last_use.remove(&(slot.last_used, id));
        let worth = (slot.of_follower, slot.size, id);
        self.evictable_by_follower.remove(&worth);
        self.evictable_by_all.remove(&worth);
        Some(slot.session)
    }

    /// Makes room for a session of `size` partitions, if there is none, at the cost of one that is
    /// worth less; returns whether there is room.
    pub fn make_room(&mut self, of_follower: bool, size: usize, now: Instant) -> bool {
        if self.sessions.len() < self.slots {
            return true;
        }
        let Some(&(last_used, idle_longest)) = self.by_last_use.first() else {
            return false;
        };
        if now.saturating_duration_since(last_used) > EVICTION_AGE {
            self.remove(idle_longest);
            return true;
        }
        let candidates = if of_follower {
            &self.evictable_by_follower
        } else {
            &self.evictable_by_all
        };
        match candidates.first().copied() {
            Some(cheapest) if (of_follower, size, 0) >= cheapest => {
                self.remove(cheapest.2);
                true
            }
            _ => false,
        }
    }

    /// Adds a session; [`Self::make_room`] said that there is room.
    pub fn insert(&mut self, id: i32, of_follower: bool, size: usize, now: Instant, session: S) {
        self.remove(id);
        let slot = Slot {
            session,
            of_follower,
            size,
            created: now,
            last_used: now,
        };
        self.sessions.insert(id, slot);
        self.partition_count += size;
        self.by_last_use.insert((now, id));
        self.touch(id, size, now);
    }

    /// The session was used, and has `size` partitions by now.
    pub fn touch(&mut self, id: i32, size: usize, now: Instant) {
        let Some(slot) = self.sessions.get_mut(&id) else {
            return;
        };
        self.by_last_use.remove(&(slot.last_used, id));
        self.by_last_use.insert((now, id));
        let before = (slot.of_follower, slot.size, id);
        self.evictable_by_follower.remove(&before);
        self.evictable_by_all.remove(&before);
        slot.last_used = now;
        self.partition_count = self.partition_count - slot.size + size;
        slot.size = size;
        let worth = (slot.of_follower, size, id);
        let old = now.saturating_duration_since(slot.created) > EVICTION_AGE;
        if !slot.of_follower || old {
            self.evictable_by_follower.insert(worth);
        }
        if old {
            self.evictable_by_all.insert(worth);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::{Clock, ManualClock};

    fn asked(partition: PartitionId, fetch_offset: Offset) -> FetchPartition {
        FetchPartition {
            partition,
            current_leader_epoch: -1,
            fetch_offset,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            max_bytes: 1000,
            replica_directory_id: crate::types::TopicId::ZERO,
            high_watermark: i64::MAX,
        }
    }

    fn topic(name: &str, partitions: &[(PartitionId, Offset)]) -> FetchTopic {
        FetchTopic {
            topic: TopicKey::Name(name.into()),
            partitions: partitions
                .iter()
                .map(|(partition, offset)| asked(*partition, *offset))
                .collect(),
        }
    }

    fn told(bytes: usize, high_watermark: Offset) -> Told {
        Told {
            error: false,
            diverged: false,
            bytes,
            high_watermark,
            log_start_offset: 0,
        }
    }

    const FAILED: Told = Told {
        error: true,
        diverged: false,
        bytes: 0,
        high_watermark: -1,
        log_start_offset: -1,
    };

    fn order(session: &FetchSession) -> Vec<PartitionId> {
        let partitions = session.partitions.iter();
        partitions
            .map(|(_, partition)| partition.partition)
            .collect()
    }

    fn answer(session: &mut FetchSession, epoch: i32, outcomes: &[Told]) -> Vec<bool> {
        let places: Vec<Place> = session.partitions.iter().map(|(place, _)| place).collect();
        let told = places.into_iter().zip(outcomes.iter().copied());
        session.finish(epoch, told).unwrap()
    }

    fn session(partitions: &[(PartitionId, Offset)], outcomes: &[Told]) -> FetchSession {
        let partitions = SessionPartitions::of(&[topic("t", partitions)]);
        let places: Vec<Place> = partitions.iter().map(|(place, _)| place).collect();
        let told = places.into_iter().zip(outcomes.iter().copied());
        FetchSession::new(7, false, partitions, told)
    }

    #[test]
    fn requests_say_what_they_want() {
        let of = SessionRequest::of;
        assert_eq!(of(0, -1), SessionRequest::Sessionless { close: None });
        assert_eq!(of(5, -1), SessionRequest::Sessionless { close: Some(5) });
        assert_eq!(of(0, 0), SessionRequest::New { close: None });
        assert_eq!(of(5, 0), SessionRequest::New { close: Some(5) });
        assert_eq!(of(5, 3), SessionRequest::Incremental { id: 5, epoch: 3 });
    }

    #[test]
    fn only_news_is_told() {
        let mut session = session(
            &[(0, 0), (1, 0), (2, 0)],
            &[told(0, 10), told(0, 10), FAILED],
        );
        session.begin(1, false, &[], &[]).unwrap();
        let news = answer(&mut session, 1, &[told(0, 10), told(0, 11), told(0, 10)]);
        assert_eq!(news, [false, true, true]);
        session.begin(2, false, &[], &[]).unwrap();
        let news = answer(&mut session, 2, &[told(0, 10), FAILED, told(0, 10)]);
        assert_eq!(news, [false, true, false]);
        // After an error the partition is told even if nothing changed since before it.
        session.begin(3, false, &[], &[]).unwrap();
        let news = answer(&mut session, 3, &[told(0, 10), told(0, 11), told(0, 10)]);
        assert_eq!(news, [false, true, false]);
    }

    #[test]
    fn partitions_with_records_go_to_the_end() {
        let mut session = session(&[(0, 0), (1, 0), (2, 0)], &[told(0, 10); 3]);
        session.begin(1, false, &[], &[]).unwrap();
        answer(&mut session, 1, &[told(100, 10), told(0, 10), told(0, 10)]);
        assert_eq!(order(&session), [1, 2, 0]);
        session
            .begin(2, false, &[topic("t", &[(0, 5)])], &[])
            .unwrap();
        answer(
            &mut session,
            2,
            &[told(100, 10), told(100, 10), told(0, 10)],
        );
        assert_eq!(order(&session), [0, 1, 2]);
        assert_eq!(session.partitions.iter().next().unwrap().1.fetch_offset, 5);
    }

    #[test]
    fn a_request_adds_changes_and_forgets() {
        let mut session = session(&[(0, 0), (1, 0)], &[told(0, 0); 2]);
        let forgotten = ForgottenTopic {
            topic: TopicKey::Name("t".into()),
            partitions: vec![0, 9],
        };
        session
            .begin(1, false, &[topic("t", &[(1, 4), (2, 8)])], &[forgotten])
            .unwrap();
        let left: Vec<_> = session
            .partitions
            .iter()
            .map(|(_, partition)| (partition.partition, partition.fetch_offset))
            .collect();
        assert_eq!(left, [(1, 4), (2, 8)]);
        assert_eq!(session.partitions.len(), 2);
    }

    #[test]
    fn a_wrong_epoch_or_way_to_name_topics_is_refused() {
        let mut session = session(&[(0, 0)], &[told(0, 0)]);
        let begin = |session: &mut FetchSession, epoch, ids| session.begin(epoch, ids, &[], &[]);
        assert_eq!(
            begin(&mut session, 2, false),
            Err(ErrorCode::InvalidFetchSessionEpoch)
        );
        assert_eq!(
            begin(&mut session, 1, true),
            Err(ErrorCode::FetchSessionTopicIdError)
        );
        assert_eq!(begin(&mut session, 1, false), Ok(()));
        // A second request of the session came before the first was answered.
        assert_eq!(begin(&mut session, 2, false), Ok(()));
        assert_eq!(
            session.finish(1, []),
            Err(ErrorCode::InvalidFetchSessionEpoch)
        );
        assert_eq!(next_epoch(i32::MAX), 1);
    }

    #[test]
    fn a_partition_that_is_named_twice_is_fetched_once() {
        let partitions =
            SessionPartitions::of(&[topic("t", &[(0, 1), (0, 2)]), topic("u", &[(0, 3)])]);
        let offsets: Vec<_> = partitions.iter().map(|(_, p)| p.fetch_offset).collect();
        assert_eq!(offsets, [2, 3]);
    }

    /// What there is to tell of a partition, and what happens to it.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        Commits(PartitionId),
        Serves(PartitionId, usize),
        Fails(PartitionId),
        Recovers(PartitionId),
        Forget(PartitionId),
        Ask(PartitionId),
    }

    fn event() -> impl Strategy<Value = Event> {
        let partition = 0..5i32;
        prop_oneof![
            partition.clone().prop_map(Event::Commits),
            (partition.clone(), 1..100usize).prop_map(|(p, bytes)| Event::Serves(p, bytes)),
            partition.clone().prop_map(Event::Fails),
            partition.clone().prop_map(Event::Recovers),
            partition.clone().prop_map(Event::Forget),
            partition.prop_map(Event::Ask),
        ]
    }

    proptest! {
        /// However partitions change, a client that keeps what it is told knows the truth of every
        /// partition in its session after each answer.
        #[test]
        fn a_client_that_listens_knows_everything(
            requests in proptest::collection::vec(proptest::collection::vec(event(), 0..6), 1..20)
        ) {
            let mut truth = [told(0, 0); 5];
            let mut session = session(&[(0, 0), (1, 0), (2, 0)], &[told(0, 0); 3]);
            let mut known: BTreeMap<PartitionId, Told> =
                (0..3).map(|partition| (partition, told(0, 0))).collect();
            for (epoch, events) in (1..).zip(requests) {
                let (mut asks, mut forgets, mut bytes) = (Vec::new(), Vec::new(), [0; 5]);
                for event in events {
                    match event {
                        Event::Commits(p) => truth[p as usize].high_watermark += 1,
                        Event::Serves(p, some) => bytes[p as usize] = some,
                        Event::Fails(p) => truth[p as usize].error = true,
                        Event::Recovers(p) => truth[p as usize].error = false,
                        Event::Forget(p) => forgets.push(p),
                        Event::Ask(p) => asks.push((p, 0)),
                    }
                }
                let forgotten = ForgottenTopic {
                    topic: TopicKey::Name("t".into()),
                    partitions: forgets.clone(),
                };
                session.begin(epoch, false, &[topic("t", &asks)], &[forgotten]).unwrap();
                known.retain(|partition, _| !forgets.contains(partition));
                let answers: Vec<(Place, PartitionId, Told)> = session
                    .partitions
                    .iter()
                    .map(|(place, partition)| {
                        let index = partition.partition as usize;
                        let told = match truth[index].error {
                            true => FAILED,
                            false => Told { bytes: bytes[index], ..truth[index] },
                        };
                        (place, partition.partition, told)
                    })
                    .collect();
                let tell = answers.iter().map(|(place, _, told)| (*place, *told));
                let news = session.finish(epoch, tell).unwrap();
                for ((_, partition, told), news) in answers.iter().zip(news) {
                    prop_assert!(news || (told.bytes == 0 && !told.error));
                    if news {
                        known.insert(*partition, Told { bytes: 0, ..*told });
                    }
                    prop_assert_eq!(known.get(partition), Some(&Told { bytes: 0, ..*told }));
                }
                prop_assert_eq!(known.len(), session.partitions.len());
            }
        }
    }

    #[test]
    fn sessions_are_evicted_as_kafka_does() {
        let start = ManualClock::new(0).now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut cache = FetchSessionCache::new(2);
        let add = |cache: &mut FetchSessionCache<&'static str>, id, size, now, name| {
            let room = cache.make_room(false, size, now);
            if room {
                cache.insert(id, false, size, now, name);
            }
            room
        };
        assert!(add(&mut cache, 1, 10, at(0), "a"));
        assert!(add(&mut cache, 2, 20, at(0), "b"));
        // Neither is old: no consumer gets in, a follower takes the smaller one's place.
        assert!(!add(&mut cache, 3, 99, at(60), "c"));
        // Both are old and in use: the smaller one gives way to one at least as large.
        cache.touch(1, 10, at(121));
        cache.touch(2, 20, at(121));
        assert!(!add(&mut cache, 3, 5, at(122), "c"));
        assert!(add(&mut cache, 3, 11, at(122), "c"));
        assert_eq!((cache.get(1), cache.get(2)), (None, Some(&"b")));
        // One that was not used for two minutes gives way to anybody.
        assert!(add(&mut cache, 4, 1, at(242), "d"));
        assert_eq!((cache.get(2), cache.get(3)), (None, Some(&"c")));
        assert!(cache.make_room(true, 1, at(243)));
        assert_eq!(cache.len(), 1);
        assert_eq!(cache.remove(9), None);
    }
}
