use bytes::Bytes;

use super::*;

const EPOCH: LeaderEpoch = 5;

fn at(start: Instant, ms: u64) -> Instant {
    start + Duration::from_millis(ms)
}

#[allow(clippy::disallowed_methods)] // an Instant cannot be made out of nothing
fn start() -> Instant {
    Instant::now()
}

fn machine() -> Machine {
    Machine::new(FetchRules {
        node_id: BrokerId(2),
        partition_bytes_max: 1_000,
        response_bytes_max: 10_000,
        bytes_min: 1,
        wait_max_ms: 500,
        backoff_max: Duration::from_millis(1_000),
    })
}

fn key(partition: PartitionId) -> Key {
    Key {
        topic: TopicId([7; 16]),
        partition,
    }
}

fn position(log_start: Offset, log_end: Offset, last_epoch: LeaderEpoch) -> Position {
    Position {
        log_start,
        log_end,
        fetch_offset: log_end,
        last_epoch,
    }
}

fn answer(partition: PartitionId) -> FetchedPartition {
    FetchedPartition {
        topic: TopicKey::Id(TopicId([7; 16])),
        partition,
        error: 0,
        high_watermark: 40,
        log_start_offset: 3,
        diverging_epoch: None,
        current_leader: None,
        records: Bytes::new(),
    }
}

fn failed(partition: PartitionId, error: ErrorCode) -> FetchedPartition {
    FetchedPartition {
        error: error.code(),
        ..answer(partition)
    }
}

fn answers(partitions: Vec<FetchedPartition>) -> FetchAnswer {
    FetchAnswer {
        error: 0,
        session_id: 9,
        partitions,
    }
}

/// Steps, one line each.
fn steps(machine: &mut Machine) -> Vec<String> {
    let line = |step: Step| match step.what {
        What::Append(fetched) => format!("{} append {}", step.key.partition, fetched.records.len()),
        what => format!("{} {what:?}", step.key.partition),
    };
    machine.take_steps().into_iter().map(line).collect()
}

/// What the next request says of each partition: (index, epoch, offset, last epoch).
fn asked(machine: &mut Machine) -> Vec<(PartitionId, LeaderEpoch, Offset, LeaderEpoch)> {
    let Some(request) = machine.request(77) else {
        return Vec::new();
    };
    assert_eq!((request.replica_id, request.replica_epoch), (2, 77));
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|asked| {
            (
                asked.partition,
                asked.current_leader_epoch,
                asked.fetch_offset,
                asked.last_fetched_epoch,
            )
        })
        .collect()
}

/// Follows partition 0, located at 10..30 in epoch 4.
fn following() -> Machine {
    let mut machine = machine();
    machine.follow(key(0), EPOCH);
    assert_eq!(steps(&mut machine), ["0 Locate"]);
    assert_eq!(asked(&mut machine), []);
    machine.done(start(), key(0), EPOCH, Some(position(10, 30, 4)));
    machine
}

#[test]
fn records_are_taken_over_before_more_are_asked_for() {
    let now = start();
    let mut machine = following();
    assert_eq!(asked(&mut machine), [(0, EPOCH, 30, 4)]);
    let fetched = FetchedPartition {
        records: Bytes::from_static(b"batches"),
        ..answer(0)
    };
    assert_eq!(machine.answered(now, answers(vec![fetched])), None);
    assert_eq!(steps(&mut machine), ["0 append 7"]);
    assert_eq!(asked(&mut machine), []);
    machine.done(now, key(0), EPOCH, Some(position(10, 35, EPOCH)));
    assert_eq!(asked(&mut machine), [(0, EPOCH, 35, EPOCH)]);
}

#[test]
fn without_records_nobody_waits_and_nothing_is_said_again() {
    let now = start();
    let mut machine = following();
    asked(&mut machine);
    machine.answered(now, answers(vec![answer(0)]));
    assert_eq!(
        steps(&mut machine),
        ["0 Note { high_watermark: 40, log_start: 3 }"]
    );
    let request = machine.request(77).unwrap();
    assert_eq!((request.session_id, request.session_epoch), (9, 1));
    assert!(request.topics.is_empty());
    // But for where the log starts, which the leader waits for.
    machine.noted(key(0), EPOCH, 12);
    machine.noted(key(0), EPOCH - 1, 20);
    let request = machine.request(77).unwrap();
    assert_eq!(request.topics[0].partitions[0].log_start_offset, 12);
}

#[test]
fn logs_that_part_are_cut_and_asked_about_again() {
    let now = start();
    let mut machine = following();
    asked(&mut machine);
    let parted = FetchedPartition {
        diverging_epoch: Some((3, 22)),
        ..answer(0)
    };
    machine.answered(now, answers(vec![parted]));
    assert_eq!(steps(&mut machine), ["0 Cut(3, 22)"]);
    machine.done(now, key(0), EPOCH, Some(position(10, 20, 2)));
    assert_eq!(asked(&mut machine), [(0, EPOCH, 20, 2)]);
}

#[test]
fn a_cut_goes_by_epochs() {
    // Both know the epoch: the earlier end.
    assert_eq!(truncation_offset((3, 22), Some((3, 25)), 30), 22);
    assert_eq!(truncation_offset((3, 22), Some((3, 21)), 30), 21);
    // The follower has only an earlier one: its end, and the next fetch tells more.
    assert_eq!(truncation_offset((3, 22), Some((2, 18)), 30), 18);
    assert_eq!(truncation_offset((3, 22), Some((2, 28)), 30), 28);
    // It knows none.
    assert_eq!(truncation_offset((3, 22), None, 30), 22);
    assert_eq!(truncation_offset((3, 40), None, 30), 30);
}

#[test]
fn a_leader_that_begins_later_is_followed_from_there() {
    let now = start();
    let mut machine = following();
    asked(&mut machine);
    machine.answered(now, answers(vec![failed(0, ErrorCode::OffsetOutOfRange)]));
    assert_eq!(steps(&mut machine), ["0 AskRange"]);
    machine.range(now, key(0), EPOCH, Some((100, 200)));
    assert_eq!(steps(&mut machine), ["0 BeginAnew(100)"]);
    assert_eq!(asked(&mut machine), []);
    machine.done(now, key(0), EPOCH, Some(position(100, 100, NO_EPOCH)));
    assert_eq!(asked(&mut machine), [(0, EPOCH, 100, NO_EPOCH)]);
}

#[test]
fn ranges() {
    let begin_anew = |at| Some(What::BeginAnew(at));
    assert_eq!(out_of_range(position(10, 30, 4), 31, 50), begin_anew(31));
    // Nothing is lost where nothing is.
    assert_eq!(out_of_range(position(30, 30, 4), 0, 20), begin_anew(0));
    assert_eq!(out_of_range(position(30, 30, 4), 0, 30), None);
    assert_eq!(out_of_range(position(10, 30, 4), 30, 50), None);
    // An unclean election.
    let cut = Some(What::CutToLeaderEnd(20));
    assert_eq!(out_of_range(position(10, 30, 4), 5, 20), cut);
}

#[test]
fn a_leader_that_does_not_know_yet_is_asked_again_soon_and_then_less_often() {
    let now = start();
    let mut machine = following();
    let mut time = 0;
    for pause in [50, 100, 200, 400, 800, 1_000, 1_000] {
        asked(&mut machine);
        let error = failed(0, ErrorCode::UnknownLeaderEpoch);
        machine.answered(at(now, time), answers(vec![error]));
        assert_eq!(steps(&mut machine), [""; 0]);
        assert_eq!(asked(&mut machine), []);
        let next = machine.tick(at(now, time + pause - 1));
        assert_eq!(next, Some(at(now, time + pause)));
        time += pause;
        assert_eq!(machine.tick(at(now, time)), None);
    }
    // The session still has it, as it was.
    assert!(machine.request(77).unwrap().topics.is_empty());
}

#[test]
fn a_step_that_failed_is_begun_again_by_looking_where_the_log_stands() {
    let now = start();
    let mut machine = following();
    asked(&mut machine);
    let fetched = FetchedPartition {
        records: Bytes::from_static(b"bad"),
        ..answer(0)
    };
    machine.answered(now, answers(vec![fetched]));
    steps(&mut machine);
    machine.done(now, key(0), EPOCH, None);
    assert_eq!(machine.tick(now), Some(at(now, 50)));
    assert_eq!(steps(&mut machine), [""; 0]);
    machine.tick(at(now, 50));
    assert_eq!(steps(&mut machine), ["0 Locate"]);
    assert!(machine.request(77).is_none());
    machine.done(at(now, 51), key(0), EPOCH, Some(position(10, 31, 4)));
    assert_eq!(asked(&mut machine), [(0, EPOCH, 31, 4)]);
}

#[test]
fn a_new_term_begins_with_a_look_at_the_log_and_old_answers_are_dropped() {
    let now = start();
    let mut machine = following();
    asked(&mut machine);
    machine.follow(key(0), EPOCH);
    assert_eq!(steps(&mut machine), [""; 0]);
    machine.follow(key(0), EPOCH + 1);
    let fetched = FetchedPartition {
        records: Bytes::from_static(b"old"),
        ..answer(0)
    };
    machine.answered(now, answers(vec![fetched.clone()]));
    assert_eq!(steps(&mut machine), ["0 Locate"]);
    machine.done(now, key(0), EPOCH, Some(position(10, 99, 4)));
    assert_eq!(asked(&mut machine), []);
    machine.done(now, key(0), EPOCH + 1, Some(position(10, 30, 4)));
    machine.answered(now, answers(vec![fetched]));
    assert_eq!(steps(&mut machine), [""; 0], "asked for in the old term");
    assert_eq!(asked(&mut machine), [(0, EPOCH + 1, 30, 4)]);
    machine.leave(key(0));
    assert_eq!(asked(&mut machine), []);
}

#[test]
fn a_busy_partition_does_not_hold_up_the_others() {
    let now = start();
    let mut machine = following();
    machine.follow(key(1), EPOCH);
    steps(&mut machine);
    machine.done(now, key(1), EPOCH, Some(position(0, 5, 1)));
    assert_eq!(asked(&mut machine), [(0, EPOCH, 30, 4), (1, EPOCH, 5, 1)]);
    let fetched = FetchedPartition {
        records: Bytes::from_static(b"slow"),
        ..answer(0)
    };
    machine.answered(now, answers(vec![fetched]));
    let request = machine.request(77).unwrap();
    assert!(request.topics.is_empty());
    assert_eq!(request.forgotten_topics[0].partitions, [0]);
}

#[test]
fn a_connection_that_broke_is_made_anew_after_a_pause_and_says_everything() {
    let now = start();
    let mut machine = following();
    asked(&mut machine);
    machine.answered(now, answers(Vec::new()));
    machine.failed(now);
    assert_eq!(asked(&mut machine), []);
    assert_eq!(machine.tick(at(now, 49)), Some(at(now, 50)));
    assert_eq!(machine.tick(at(now, 50)), None);
    assert_eq!(asked(&mut machine), [(0, EPOCH, 30, 4)]);
    machine.failed(at(now, 50));
    assert_eq!(machine.tick(at(now, 51)), Some(at(now, 150)));
}

#[test]
fn a_session_that_is_gone_is_made_anew_at_once() {
    let now = start();
    let mut machine = following();
    asked(&mut machine);
    machine.answered(now, answers(Vec::new()));
    assert_eq!(asked(&mut machine), []);
    let gone = FetchAnswer {
        error: ErrorCode::FetchSessionIdNotFound.code(),
        ..answers(Vec::new())
    };
    assert_eq!(machine.answered(now, gone), None);
    let request = machine.request(77).unwrap();
    assert_eq!((request.session_id, request.session_epoch), (0, 0));
    assert_eq!(request.topics[0].partitions.len(), 1);
    let refused = FetchAnswer {
        error: ErrorCode::ClusterAuthorizationFailed.code(),
        ..answers(Vec::new())
    };
    assert_eq!(machine.answered(now, refused), Some(31));
    assert_eq!(asked(&mut machine), []);
}

#[test]
fn a_request_leaves_out_who_was_not_ready_for_it() {
    let start = start();
    let mut machine = machine();
    machine.follow(key(0), EPOCH);
    machine.follow(key(1), EPOCH);
    machine.take_steps();
    machine.done(start, key(0), EPOCH, Some(position(0, 10, 1)));
    assert!(machine.leaves_out(), "nothing was asked for yet");
    machine.request(77).unwrap();
    assert!(!machine.leaves_out(), "the other one is busy");
    machine.done(start, key(1), EPOCH, Some(position(0, 20, 1)));
    assert!(machine.leaves_out());
    machine.interrupted();
    machine.request(77).unwrap();
    assert!(!machine.leaves_out());
    // It was refused, and is ready again while the next request is under way.
    let refused = answers(vec![failed(1, ErrorCode::UnknownLeaderEpoch)]);
    machine.answered(start, refused);
    machine.request(77).unwrap();
    assert!(!machine.leaves_out());
    machine.tick(at(start, 60));
    assert!(machine.leaves_out());
    // A new term of one that was asked for in the last.
    machine.interrupted();
    machine.request(77).unwrap();
    machine.follow(key(0), EPOCH + 1);
    assert!(!machine.leaves_out());
    machine.done(start, key(0), EPOCH + 1, Some(position(0, 10, 1)));
    assert!(machine.leaves_out());
}
