//! Where the high watermark stands. Pure.
//!
//! `high_watermark = min over the (maximal) ISR of what each member promises to keep`: a member of a
//! topic with `flush.messages=1` keeps what it has synced, of any other topic what it has appended.
//! It never goes back, and it stands still below `min.insync.replicas` (KIP-966, design R8).

use crate::types::Offset;

/// What one replica holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicaPosition {
    pub(crate) log_end: Offset,
    /// All below is on that replica's disk.
    pub(crate) flushed: Offset,
}

/// What the topic asks of the watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatermarkRule {
    /// `flush.messages=1`: only what is on disk counts.
    pub(crate) flushed_only: bool,
    /// `min.insync.replicas`, at most the number of replicas.
    pub(crate) min_isr: usize,
}

impl WatermarkRule {
    pub(crate) fn new(flush_messages: i64, min_insync_replicas: i32, replicas: usize) -> Self {
        Self {
            flushed_only: flush_messages <= 1,
            min_isr: usize::try_from(min_insync_replicas)
                .unwrap_or(0)
                .min(replicas),
        }
    }

    /// Up to where a replica promises to keep what it has.
    pub(crate) fn kept(self, position: ReplicaPosition) -> Offset {
        match self.flushed_only {
            true => position.flushed.min(position.log_end),
            false => position.log_end,
        }
    }
}

/// Returns where the high watermark goes from `current`, given every member of the maximal ISR, the
/// leader included.
pub(crate) fn high_watermark(
    current: Offset,
    isr: &[ReplicaPosition],
    rule: WatermarkRule,
) -> Offset {
    if isr.len() < rule.min_isr {
        return current;
    }
    isr.iter()
        .map(|position| rule.kept(*position))
        .min()
        .map_or(current, |lowest| lowest.max(current))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(log_end: Offset, flushed: Offset) -> ReplicaPosition {
        ReplicaPosition { log_end, flushed }
    }

    #[test]
    fn a_flushed_topic_shows_only_what_is_on_disk() {
        let rule = WatermarkRule::new(1, 1, 1);
        assert_eq!(high_watermark(0, &[at(10, 0)], rule), 0);
        assert_eq!(high_watermark(0, &[at(10, 7)], rule), 7);
        assert_eq!(high_watermark(7, &[at(10, 10)], rule), 10);
    }

    #[test]
    fn a_page_cache_topic_shows_what_is_appended() {
        let rule = WatermarkRule::new(i64::MAX, 1, 1);
        assert_eq!(high_watermark(0, &[at(10, 0)], rule), 10);
    }

    #[test]
    fn the_slowest_member_bounds_it_and_it_never_goes_back() {
        let rule = WatermarkRule::new(1, 2, 3);
        assert_eq!(high_watermark(3, &[at(10, 9), at(8, 5)], rule), 5);
        assert_eq!(high_watermark(6, &[at(10, 9), at(8, 5)], rule), 6);
    }

    #[test]
    fn it_stands_still_below_min_isr() {
        let rule = WatermarkRule::new(1, 2, 3);
        assert_eq!(high_watermark(3, &[at(10, 10)], rule), 3);
        // With fewer replicas than min.insync.replicas asks for, all of them are enough.
        assert_eq!(
            high_watermark(3, &[at(10, 10)], WatermarkRule::new(1, 2, 1)),
            10
        );
    }
}
