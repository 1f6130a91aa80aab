//! Histories: made from a seed, run, and cut down to what fails.

use super::disk::Fault;
use super::made::random_fault;
use super::random::Random;
use super::world::TOPICS;

/// One thing that is done to the logs. Whoever adds one adds it to [`Action::random`] and to
/// `World::act`, and tells the model what it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Append(usize),
    /// Batches come from a leader.
    Replicate(usize),
    /// A producer sends what is there.
    Repeat(usize),
    NewEpoch(usize),
    Flush(usize),
    /// A group commit of all that is due.
    RunFlusher,
    /// Time passes.
    Advance,
    /// Whatever is due by the clock.
    Housekeep,
    MoveRecoveryPoints,
    DeleteRecords(usize),
    /// The end of a log is cut off, or all of it goes.
    Truncate(usize),
    /// The topic is deleted and made anew.
    Recreate(usize),
    /// The topic gets other configs.
    Configure(usize),
    NoteHighWatermarks,
    /// A clean stop and a start.
    Restart,
    /// The process dies, the page cache lives on.
    Kill,
    PowerCut,
}

/// An action with what happens meanwhile; operations are counted from its first on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub action: Action,
    /// Everything that is drawn while it runs.
    pub seed: u64,
    /// Another thread's action in the middle of this one.
    pub inside: Option<(u64, Action)>,
    /// The power goes at this operation.
    pub power_off: Option<u64>,
    /// This operation fails.
    pub fault: Option<(u64, Fault)>,
    /// From now on so many bytes fit on the disk.
    pub space: Option<Option<usize>>,
}

/// What may go wrong in a history beside the power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    Fair,
    /// Failing writes and syncs, full disks.
    Foul,
}

impl Action {
    fn random(random: &mut Random) -> Self {
        let topic = [0, 0, 0, 1, 1, 2][random.below(6)].min(TOPICS - 1);
        match random.below(100) {
            0..32 => Self::Append(topic),
            32..40 => Self::Replicate(topic),
            40..44 => Self::Repeat(topic),
            44..48 => Self::NewEpoch(topic),
            48..54 => Self::Flush(topic),
            54..70 => Self::RunFlusher,
            70..75 => Self::Advance,
            75..79 => Self::Housekeep,
            79..83 => Self::MoveRecoveryPoints,
            83..86 => Self::DeleteRecords(topic),
            86..88 => Self::Truncate(topic),
            88..91 => Self::Recreate(topic),
            91..93 => Self::Configure(topic),
            93..94 => Self::NoteHighWatermarks,
            94..97 => Self::Restart,
            97..98 => Self::Kill,
            _ => Self::PowerCut,
        }
    }
}

/// A history from its seed.
pub(super) fn history(seed: u64, weather: Weather) -> Vec<Step> {
    let mut random = Random::of(seed, 0);
    let length = 4 + random.below(40);
    let step = |_| {
        let action = Action::random(&mut random);
        let topic = random.below(TOPICS);
        let inside = match random.below(6) {
            0 => Some((random.next() % 4, Action::Flush(topic))),
            1 => Some((random.next() % 4, Action::Append(topic))),
            _ => None,
        };
        let mut step = Step {
            action,
            seed: random.next(),
            inside,
            power_off: random.one_in(20).then(|| random.next() % 8),
            fault: None,
            space: None,
        };
        if weather == Weather::Foul {
            if random.one_in(8) {
                step.fault = Some((random.next() % 6, random_fault(&mut random)));
            }
            step.space = match random.below(16) {
                0 => Some(Some(random.below(400))),
                1..5 => Some(None),
                _ => None,
            };
        }
        step
    };
    (0..length).map(step).collect()
}
