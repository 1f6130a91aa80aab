//! Which segments a log lets go of, by the rules of Kafka's `UnifiedLog.deleteOldSegments`. Pure.
//!
//! Segments go from the oldest on, whole, never one that reaches past the high watermark. That may be
//! all of them: then the log goes on with an empty one at its end, which itself never goes.

use crate::config::TopicConfig;
use crate::types::{Offset, TimestampMs};

/// A log at the moment of the decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogState<'a> {
    /// Base offset and bytes, ascending; the last one is written to.
    pub segments: &'a [(Offset, u64)],
    pub log_start: Offset,
    pub log_end: Offset,
    pub high_watermark: Offset,
}

/// How many of the oldest segments go, and why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expired {
    /// Wholly below the log start (DeleteRecords).
    pub by_log_start: usize,
    /// `retention.bytes`.
    pub by_size: usize,
    /// `retention.ms`.
    pub by_time: usize,
    /// The oldest segment that stays has records from the future: it stays until they are old.
    pub future_timestamp: bool,
}

impl Expired {
    pub(super) fn count(&self) -> usize {
        self.by_log_start + self.by_size + self.by_time
    }
}

/// Decides. `largest_timestamp` is asked for a segment by its number, and only where it matters: it may
/// have to read a file.
pub(super) fn expired<E>(
    config: &TopicConfig,
    log: LogState<'_>,
    now_ms: TimestampMs,
    mut largest_timestamp: impl FnMut(usize) -> Result<TimestampMs, E>,
) -> Result<Expired, E> {
    let mut expired = Expired::default();
    let below_log_start = |number: usize| {
        let end = log.segments.get(number + 1).map(|next| next.0);
        end.is_some_and(|end| end <= log.log_start)
    };
    while log.may_go(expired.count()) && below_log_start(expired.count()) {
        expired.by_log_start += 1;
    }
    if !config.cleanup_policy.delete {
        return Ok(expired);
    }
    if let Some(retained) = limit(config.retention_bytes) {
        let left = log.segments.get(expired.count()..).unwrap_or(&[]);
        let total: u64 = left.iter().map(|segment| segment.1).sum();
        let mut excess = total.checked_sub(retained);
        while log.may_go(expired.count()) {
            let bytes = log.segments[expired.count()].1;
            excess = excess.and_then(|excess| excess.checked_sub(bytes));
            if excess.is_none() {
                break;
            }
            expired.by_size += 1;
        }
    }
    if config.retention_ms >= 0 {
        while log.may_go(expired.count()) {
            let largest = largest_timestamp(expired.count())?;
            expired.future_timestamp = largest > now_ms;
            if now_ms.saturating_sub(largest) <= config.retention_ms {
                break;
            }
            expired.by_time += 1;
        }
    }
    Ok(expired)
}

impl LogState<'_> {
    /// Whether the segment of this number may go at all.
    fn may_go(&self, number: usize) -> bool {
        let Some(&(_, bytes)) = self.segments.get(number) else {
            return false;
        };
        let next = self.segments.get(number + 1);
        if next.is_none() && bytes == 0 {
            return false;
        }
        self.high_watermark >= next.map_or(self.log_end, |next| next.0)
    }
}

/// −1 has no limit.
fn limit(bytes: i64) -> Option<u64> {
    u64::try_from(bytes).ok()
}

/// The age at which a segment is closed: in a compacted log no later than compaction must see it.
pub(super) fn segment_age_max(config: &TopicConfig) -> i64 {
    match config.cleanup_policy.compact {
        true => config.segment_ms.min(config.max_compaction_lag_ms),
        false => config.segment_ms,
    }
}

/// What of that age is taken off, so that segments that began together do not end together. The same
/// for a segment whenever it is asked for; `log` tells logs apart.
pub(super) fn roll_jitter(log: u64, base_offset: Offset, config: &TopicConfig) -> i64 {
    let most = config.segment_jitter_ms.min(config.segment_ms);
    if most <= 0 {
        return 0;
    }
    let mixed = (log ^ base_offset.cast_unsigned())
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    i64::try_from((mixed >> 16) % most.unsigned_abs()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::config::CleanupPolicy;

    const SEGMENTS: [(Offset, u64); 4] = [(0, 100), (10, 200), (20, 300), (30, 50)];

    fn log(log_start: Offset, high_watermark: Offset) -> LogState<'static> {
        LogState {
            segments: &SEGMENTS,
            log_start,
            log_end: 40,
            high_watermark,
        }
    }

    fn config(retention_ms: i64, retention_bytes: i64) -> TopicConfig {
        TopicConfig {
            retention_ms,
            retention_bytes,
            ..TopicConfig::default()
        }
    }

    /// Decides at time 1000 with these timestamps; returns counts by log start, size and time.
    fn decide(
        config: &TopicConfig,
        log: LogState<'_>,
        timestamps: [TimestampMs; 4],
    ) -> (usize, usize, usize) {
        let largest = |number: usize| Ok::<_, Infallible>(timestamps[number]);
        let Ok(expired) = expired(config, log, 1_000, largest);
        (expired.by_log_start, expired.by_size, expired.by_time)
    }

    #[test]
    fn time_takes_the_oldest_and_stops_at_the_first_that_is_young_enough() {
        let forever = config(-1, -1);
        let traces = [
            // (retention.ms, largest timestamps) -> segments by time
            (100, [0, 0, 0, 950], 3),
            (100, [0, 0, 0, 0], 4),
            (100, [0, 900, 0, 0], 1),
            (100, [900, 0, 0, 0], 0),
            // Older than retention.ms, not as old as it.
            (100, [899, 900, 0, 0], 1),
            (0, [999, 999, 999, 1000], 3),
            // The future stays, and all behind it.
            (100, [0, 5000, 0, 0], 1),
            (i64::MAX, [i64::MIN, 0, 0, 0], 0),
        ];
        for (retention_ms, timestamps, count) in traces {
            let found = decide(&config(retention_ms, -1), log(0, 40), timestamps);
            assert_eq!(found, (0, 0, count), "{retention_ms} {timestamps:?}");
            assert_eq!(decide(&forever, log(0, 40), timestamps), (0, 0, 0));
        }
    }

    #[test]
    fn a_future_timestamp_is_told_of() {
        let largest = |number: usize| Ok::<_, Infallible>([0, 5000, 0, 0][number]);
        let Ok(found) = expired(&config(100, -1), log(0, 40), 1_000, largest);
        assert!(found.future_timestamp);
        assert_eq!(found.count(), 1);
    }

    #[test]
    fn size_leaves_at_least_what_is_to_be_kept() {
        // 650 bytes in all; what is left after each: 550, 350, 50, 0.
        for (retention_bytes, count) in [
            (-1, 0),
            (651, 0),
            (650, 0),
            (551, 0),
            (550, 1),
            (351, 1),
            (350, 2),
            (51, 2),
            (50, 3),
            (1, 3),
            (0, 4),
        ] {
            let found = decide(&config(-1, retention_bytes), log(0, 40), [0; 4]);
            assert_eq!(found, (0, count, 0), "{retention_bytes}");
        }
    }

    #[test]
    fn size_and_time_go_together() {
        // Size takes one, time what is old behind it.
        let found = decide(&config(100, 550), log(0, 40), [950, 0, 950, 0]);
        assert_eq!(found, (0, 1, 1));
        // Size stops at a segment that is too large to go; time goes on.
        let found = decide(&config(100, 500), log(0, 40), [0, 0, 950, 0]);
        assert_eq!(found, (0, 1, 1));
    }

    #[test]
    fn nothing_past_the_high_watermark_goes() {
        for (high_watermark, count) in [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3), (39, 3), (40, 4)]
        {
            let log = log(0, high_watermark);
            assert_eq!(decide(&config(0, -1), log, [0; 4]), (0, 0, count));
            assert_eq!(decide(&config(-1, 0), log, [0; 4]), (0, count, 0));
        }
    }

    #[test]
    fn what_is_below_the_log_start_goes_whatever_the_policy() {
        let mut config = config(-1, -1);
        for policy in [(true, false), (false, true), (true, true), (false, false)] {
            (config.cleanup_policy.delete, config.cleanup_policy.compact) = policy;
            for (log_start, count) in [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3), (40, 3)] {
                let found = decide(&config, log(log_start, 40), [0; 4]);
                assert_eq!(found, (count, 0, 0), "{log_start}");
            }
        }
        // What is gone that way does not count to the size.
        let config = TopicConfig {
            retention_bytes: 350,
            ..config
        };
        let delete = TopicConfig {
            cleanup_policy: CleanupPolicy {
                delete: true,
                compact: true,
            },
            ..config
        };
        assert_eq!(decide(&delete, log(10, 40), [0; 4]), (1, 1, 0));
    }

    #[test]
    fn a_compacted_topic_keeps_everything_unless_it_deletes_too() {
        let mut config = config(0, 0);
        config.cleanup_policy = CleanupPolicy {
            delete: false,
            compact: true,
        };
        assert_eq!(decide(&config, log(0, 40), [0; 4]), (0, 0, 0));
        config.cleanup_policy.delete = true;
        assert_eq!(decide(&config, log(0, 40), [0; 4]), (0, 4, 0));
    }

    #[test]
    fn an_empty_active_segment_stays() {
        let log = LogState {
            segments: &[(0, 100), (10, 0)],
            log_start: 0,
            log_end: 10,
            high_watermark: 10,
        };
        let config = config(0, 0);
        let Ok(found) = expired(&config, log, 1_000, |_| Ok::<_, Infallible>(0));
        assert_eq!(found.count(), 1);
        let empty = LogState {
            segments: &[],
            ..log
        };
        let Ok(found) = expired(&config, empty, 1_000, |_| Ok::<_, Infallible>(0));
        assert_eq!(found, Expired::default());
    }

    #[test]
    fn a_timestamp_is_asked_for_only_where_it_matters() {
        let mut asked = Vec::new();
        let largest = |number| {
            asked.push(number);
            Ok::<_, Infallible>([0, 950, 0, 0][number])
        };
        let Ok(_) = expired(&config(100, 550), log(0, 40), 1_000, largest);
        assert_eq!(asked, [1]);
    }

    #[test]
    fn a_compacted_log_closes_its_segments_in_time_for_compaction() {
        let mut config = TopicConfig {
            segment_ms: 500,
            max_compaction_lag_ms: 100,
            ..TopicConfig::default()
        };
        assert_eq!(segment_age_max(&config), 500);
        config.cleanup_policy.compact = true;
        assert_eq!(segment_age_max(&config), 100);
    }

    #[test]
    fn jitter_is_within_its_bounds_and_differs_by_log_and_segment() {
        let config = |segment_jitter_ms, segment_ms| TopicConfig {
            segment_ms,
            segment_jitter_ms,
            ..TopicConfig::default()
        };
        assert_eq!(roll_jitter(1, 5, &config(0, 1_000)), 0);
        let logs: Vec<i64> = (0..100)
            .map(|log| roll_jitter(log, 0, &config(1_000, 5_000)))
            .collect();
        assert!(logs.iter().all(|jitter| (0..1_000).contains(jitter)));
        let distinct: std::collections::BTreeSet<_> = logs.iter().collect();
        assert!(distinct.len() > 80, "{logs:?}");
        let segments: std::collections::BTreeSet<_> = (0..100)
            .map(|base| roll_jitter(7, base * 1_000, &config(1_000, 5_000)))
            .collect();
        assert!(segments.len() > 80);
        // As in Kafka no more than the age itself.
        assert!((0..100).all(|log| roll_jitter(log, 0, &config(1_000, 10)) < 10));
    }
}
