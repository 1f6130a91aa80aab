//! A leader's batches in a follower's log.

use std::sync::Arc;

use bytes::Bytes;

use super::support::{
    TOPIC_ID, append, batch, idempotent, now, open, partition, read_all, small_segments,
};
use crate::log::Log;
use crate::record::{ReplicaBatches, ReplicaRules};
use crate::types::{LeaderEpoch, NO_EPOCH, Offset};

/// All of a log from `offset` on, as a follower gets it.
fn fetched(leader: &Log, offset: Offset) -> Bytes {
    let mut bytes = Vec::new();
    for (header, payload) in read_all(leader, offset) {
        bytes.extend(header.encode());
        bytes.extend(payload);
    }
    bytes.into()
}

fn replicate(leader: &Log, follower: &Log, epoch: LeaderEpoch) {
    let rules = ReplicaRules {
        next_offset: follower.log_end_offset(),
        last_epoch: follower.latest_epoch().unwrap_or(NO_EPOCH),
        leader_epoch: epoch,
        gaps: false,
    };
    let bytes = fetched(leader, follower.log_end_offset());
    let batches = ReplicaBatches::check(bytes, rules).unwrap();
    follower.append_as_follower(&batches, now()).unwrap();
}

#[test]
fn a_follower_has_what_its_leader_has() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let managers = [0, 1].map(|number| open(directories[number].path()));
    let [leader, follower] = [0, 1].map(|number: usize| {
        let manager = &managers[number];
        manager
            .log(&partition(), TOPIC_ID, small_segments())
            .unwrap()
    });
    for round in 0..4 {
        for sequence in 0..10 {
            let idempotent = idempotent(7, 0, round * 10 + sequence, now(), &[&[1; 90]]);
            leader.append(idempotent, round, now()).unwrap();
            leader
                .append(batch(now(), &[&[2; 90], &[3; 90]]), round, now())
                .unwrap();
        }
        replicate(&leader, &follower, round);
        assert_eq!(follower.log_end_offset(), leader.log_end_offset());
    }
    assert!(leader.segment_count() > 5);
    assert_eq!(follower.segment_bases(), leader.segment_bases());
    assert_eq!(fetched(&follower, 0), fetched(&leader, 0));
    assert_eq!(follower.producers(), leader.producers());
    for epoch in 0..4 {
        let of = |log: &Log| log.end_offset_for_epoch(epoch);
        assert_eq!(of(&follower), of(&leader));
    }
    for manager in &managers {
        manager.close();
    }
    for entry in std::fs::read_dir(directories[0].path().join("topic-0")).unwrap() {
        let name = entry.unwrap().file_name();
        let content = |number: usize| {
            let directory: &tempfile::TempDir = &directories[number];
            std::fs::read(directory.path().join("topic-0").join(&name)).unwrap()
        };
        assert_eq!(content(0), content(1), "{name:?}");
    }
}

#[test]
fn what_was_cached_as_leader_is_not_continued_behind_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let (manager, others) = (open(directory.path()), open(other.path()));
    let log = manager.log(&partition(), TOPIC_ID, Arc::default()).unwrap();
    let leader = others.log(&partition(), TOPIC_ID, Arc::default()).unwrap();
    log.reader_is_at_the_end();
    append(&log, batch(now(), &[b"a"])).unwrap();
    replicate(&log, &leader, 0);
    leader.append(batch(now(), &[b"b"]), 1, now()).unwrap();
    replicate(&leader, &log, 1);
    log.append(batch(now(), &[b"c"]), 2, now()).unwrap();
    let bases: Vec<Offset> = read_all(&log, 0)
        .iter()
        .map(|(h, _)| h.base_offset)
        .collect();
    assert_eq!(bases, [0, 1, 2]);
    assert_eq!(log.flushed_offset(), 0);
    log.flush_soon();
    super::support::wait_until("the flush", || log.flushed_offset() == 3);
}
