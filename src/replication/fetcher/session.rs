//! The follower's half of a fetch session (KIP-227, Kafka's `FetchSessionHandler`): only what has changed
//! is asked for again. Pure.

use std::collections::BTreeMap;

use super::machine::Key;
use crate::protocol::TopicKey;
use crate::protocol::fetch::{FetchPartition, FetchTopic, ForgottenTopic};

const NO_SESSION: i32 = 0;
/// Asks for a new session.
const FIRST_EPOCH: i32 = 0;

/// What the leader knows of this fetcher.
#[derive(Debug, Default)]
pub(crate) struct Session {
    id: i32,
    /// Of the next request.
    epoch: i32,
    /// As it was asked for last.
    asked: BTreeMap<Key, FetchPartition>,
}

/// What one request says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionRequest {
    pub(crate) id: i32,
    pub(crate) epoch: i32,
    pub(crate) topics: Vec<FetchTopic>,
    pub(crate) forgotten: Vec<ForgottenTopic>,
}

impl Session {
    /// The next request, for these partitions.
    pub(crate) fn request(&mut self, wanted: BTreeMap<Key, FetchPartition>) -> SessionRequest {
        let is_new = self.epoch == FIRST_EPOCH;
        let mut topics: Vec<FetchTopic> = Vec::new();
        for (key, asked) in &wanted {
            if !is_new && self.asked.get(key) == Some(asked) {
                continue;
            }
            let topic = TopicKey::Id(key.topic);
            match topics.last_mut() {
                Some(last) if last.topic == topic => last.partitions.push(*asked),
                _ => topics.push(FetchTopic {
                    topic,
                    partitions: vec![*asked],
                }),
            }
        }
        let mut forgotten: Vec<ForgottenTopic> = Vec::new();
        let gone = self.asked.keys().filter(|key| !wanted.contains_key(key));
        for key in gone.filter(|_| !is_new) {
            let topic = TopicKey::Id(key.topic);
            match forgotten.last_mut() {
                Some(last) if last.topic == topic => last.partitions.push(key.partition),
                _ => forgotten.push(ForgottenTopic {
                    topic,
                    partitions: vec![key.partition],
                }),
            }
        }
        self.asked = wanted;
        SessionRequest {
            id: self.id,
            epoch: self.epoch,
            topics,
            forgotten,
        }
    }

    /// How a partition was asked for.
    pub(crate) fn asked(&self, key: &Key) -> Option<&FetchPartition> {
        self.asked.get(key)
    }

    /// An answer without an error came.
    pub(crate) fn answered(&mut self, session_id: i32) {
        if session_id == NO_SESSION {
            self.reset(); // the leader has no room: everything is asked for each time
            return;
        }
        self.id = session_id;
        // 0 would ask for a new one.
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
    }

    /// Begins anew with the next request. The old session goes by itself, being unused.
    pub(crate) fn reset(&mut self) {
        self.id = NO_SESSION;
        self.epoch = FIRST_EPOCH;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Offset, TopicId};

    fn key(topic: u8, partition: i32) -> Key {
        Key {
            topic: TopicId([topic; 16]),
            partition,
        }
    }

    fn wanted(all: &[(Key, Offset)]) -> BTreeMap<Key, FetchPartition> {
        let asked = |(key, fetch_offset): &(Key, Offset)| {
            let asked = FetchPartition {
                partition: key.partition,
                current_leader_epoch: 1,
                fetch_offset: *fetch_offset,
                last_fetched_epoch: 1,
                log_start_offset: 0,
                max_bytes: 100,
                replica_directory_id: TopicId::ZERO,
                high_watermark: i64::MAX,
            };
            (*key, asked)
        };
        all.iter().map(asked).collect()
    }

    fn offsets(request: &SessionRequest) -> Vec<(i32, Offset)> {
        let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
        partitions
            .map(|asked| (asked.partition, asked.fetch_offset))
            .collect()
    }

    #[test]
    fn only_what_has_changed_is_asked_for_again() {
        let mut session = Session::default();
        let first = session.request(wanted(&[(key(1, 0), 5), (key(1, 1), 6), (key(2, 2), 7)]));
        assert_eq!((first.id, first.epoch), (0, 0));
        assert_eq!(offsets(&first), [(0, 5), (1, 6), (2, 7)]);
        assert_eq!(first.topics.len(), 2);
        session.answered(33);
        let second = session.request(wanted(&[(key(1, 0), 5), (key(1, 1), 8), (key(3, 4), 0)]));
        assert_eq!((second.id, second.epoch), (33, 1));
        assert_eq!(offsets(&second), [(1, 8), (4, 0)]);
        assert_eq!(second.forgotten.len(), 1);
        assert_eq!(second.forgotten[0].partitions, [2]);
        session.answered(33);
        let third = session.request(wanted(&[(key(1, 0), 5), (key(1, 1), 8), (key(3, 4), 0)]));
        assert!(third.topics.is_empty() && third.forgotten.is_empty());
        assert_eq!(third.epoch, 2);
    }

    #[test]
    fn without_a_session_everything_is_asked_for() {
        let mut session = Session::default();
        for _ in 0..2 {
            let request = session.request(wanted(&[(key(1, 0), 5)]));
            assert_eq!((request.id, request.epoch), (0, 0));
            assert_eq!(offsets(&request), [(0, 5)]);
            session.answered(0);
        }
        session.answered(7);
        session.request(wanted(&[(key(1, 0), 5)]));
        session.reset();
        let anew = session.request(wanted(&[(key(1, 1), 5)]));
        assert_eq!((anew.id, anew.epoch), (0, 0));
        assert_eq!(offsets(&anew), [(1, 5)]);
        assert!(anew.forgotten.is_empty());
    }

    #[test]
    fn the_epoch_goes_on_with_one() {
        let mut session = Session {
            id: 3,
            epoch: i32::MAX,
            asked: BTreeMap::new(),
        };
        session.answered(3);
        assert_eq!(session.request(BTreeMap::new()).epoch, 1);
    }
}
