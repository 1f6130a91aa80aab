//! Batches as a leader hands them to its followers: whole, with their offsets and epochs, one behind the
//! other in one piece of memory. What is wrong with them is found before anything is written.

use std::ops::Range;

use bytes::Bytes;

use super::batch::ATTRIBUTES_POSITION;
use super::{BATCH_HEADER_BYTES, BatchHeader, crc};
use crate::types::{LeaderEpoch, Offset};

/// Where the follower's log stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaRules {
    /// The offset that was asked for: where the log ends.
    pub next_offset: Offset,
    /// Epoch of the log's last record; −1 if it has none.
    pub last_epoch: LeaderEpoch,
    /// The leader's: no batch can be of a later one.
    pub leader_epoch: LeaderEpoch,
    /// Offsets may be missing: compaction took them.
    pub gaps: bool,
}

/// One batch and where it stands in the piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaBatch {
    pub header: BatchHeader,
    pub range: Range<usize>,
}

/// Whole batches that follow one another and what a log ends with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaBatches {
    pub bytes: Bytes,
    /// Never empty.
    pub batches: Vec<ReplicaBatch>,
}

/// Why records of a leader are not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaBatchError {
    #[error("not a batch at byte {at}: {reason}")]
    Malformed { at: usize, reason: String },
    #[error("the CRC of the batch at offset {0} is wrong")]
    Crc(Offset),
    /// The first batch begins before the offset that was asked for.
    #[error("offset {first}..={last} where {expected} was asked for")]
    Before {
        expected: Offset,
        first: Offset,
        last: Offset,
    },
    #[error("offset {found} follows {}", expected - 1)]
    Gap { expected: Offset, found: Offset },
    #[error("leader epoch {found} behind {last} of a leader of epoch {leader}")]
    Epoch {
        found: LeaderEpoch,
        last: LeaderEpoch,
        leader: LeaderEpoch,
    },
}

impl ReplicaBatches {
    /// Looks at all batches in `bytes`. One that is cut off at the end is left out.
    pub fn check(bytes: Bytes, rules: ReplicaRules) -> Result<Self, ReplicaBatchError> {
        let mut batches = Vec::new();
        let mut next = rules;
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let malformed = |reason: String| ReplicaBatchError::Malformed { at, reason };
            let cut_off = rest.len() < BATCH_HEADER_BYTES;
            if cut_off && !batches.is_empty() {
                break;
            }
            let header = BatchHeader::parse(rest).map_err(|error| malformed(error.to_string()))?;
            let Some(batch) = rest.get(..header.total_bytes()) else {
                if batches.is_empty() {
                    return Err(malformed("it is cut off".to_owned()));
                }
                break;
            };
            if crc::of(&batch[ATTRIBUTES_POSITION..]) != header.crc {
                return Err(ReplicaBatchError::Crc(header.base_offset));
            }
            next.follow(&header)?;
            let end = at + batch.len();
            batches.push(ReplicaBatch {
                header,
                range: at..end,
            });
            at = end;
        }
        if batches.is_empty() {
            return Err(ReplicaBatchError::Malformed {
                at: 0,
                reason: "there is nothing".to_owned(),
            });
        }
        Ok(Self { bytes, batches })
    }

    pub fn bytes_total(&self) -> usize {
        self.batches.last().map_or(0, |last| last.range.end)
    }

    pub fn records(&self) -> u64 {
        let counts = self.batches.iter().map(|batch| batch.header.record_count);
        counts.map(|count| u64::try_from(count).unwrap_or(0)).sum()
    }
}

impl ReplicaRules {
    /// What no CRC covers must fit what comes before.
    fn follow(&mut self, header: &BatchHeader) -> Result<(), ReplicaBatchError> {
        let first = header.base_offset;
        let last = Some(header.last_offset_delta)
            .filter(|delta| *delta >= 0 && first >= 0)
            .and_then(|delta| first.checked_add(i64::from(delta)))
            .filter(|last| *last < Offset::MAX);
        let Some(last) = last else {
            return Err(ReplicaBatchError::Malformed {
                at: 0,
                reason: format!("offset {first} and {} more", header.last_offset_delta),
            });
        };
        let expected = self.next_offset;
        if first < expected {
            return Err(ReplicaBatchError::Before {
                expected,
                first,
                last,
            });
        }
        if first > expected && !self.gaps {
            return Err(ReplicaBatchError::Gap {
                expected,
                found: first,
            });
        }
        let epoch = header.partition_leader_epoch;
        if epoch < self.last_epoch || epoch > self.leader_epoch {
            return Err(ReplicaBatchError::Epoch {
                found: epoch,
                last: self.last_epoch,
                leader: self.leader_epoch,
            });
        }
        self.next_offset = last + 1;
        self.last_epoch = epoch;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BatchBuilder;

    /// A batch of two records.
    fn batch(base_offset: Offset, epoch: LeaderEpoch) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        builder.push(1, None, Some(b"a"));
        builder.push(2, None, Some(b"b"));
        let built = builder.build();
        let header = BatchHeader {
            base_offset,
            partition_leader_epoch: epoch,
            ..BatchHeader::parse(&built).unwrap()
        };
        [&header.encode()[..], &built[BATCH_HEADER_BYTES..]].concat()
    }

    fn rules() -> ReplicaRules {
        ReplicaRules {
            next_offset: 10,
            last_epoch: 3,
            leader_epoch: 5,
            gaps: false,
        }
    }

    fn check(batches: &[Vec<u8>], rules: ReplicaRules) -> Result<Vec<Offset>, ReplicaBatchError> {
        let checked = ReplicaBatches::check(Bytes::from(batches.concat()), rules)?;
        let batches = checked.batches.iter();
        Ok(batches.map(|batch| batch.header.base_offset).collect())
    }

    #[test]
    fn batches_that_follow_one_another_are_taken() {
        let all = [batch(10, 3), batch(12, 3), batch(14, 5)];
        assert_eq!(check(&all, rules()), Ok(vec![10, 12, 14]));
        let cut = &all.concat()[..all[0].len() * 2 + 20];
        let checked = ReplicaBatches::check(Bytes::copy_from_slice(cut), rules()).unwrap();
        assert_eq!(checked.batches.len(), 2);
        assert_eq!(checked.bytes_total(), all[0].len() * 2);
        assert_eq!(checked.records(), 4);
    }

    #[test]
    fn what_no_checksum_covers_must_fit() {
        let gap = ReplicaBatchError::Gap {
            expected: 12,
            found: 13,
        };
        assert_eq!(check(&[batch(10, 3), batch(13, 3)], rules()), Err(gap));
        let gaps = ReplicaRules {
            gaps: true,
            ..rules()
        };
        assert_eq!(check(&[batch(10, 3), batch(13, 3)], gaps), Ok(vec![10, 13]));
        assert_eq!(
            check(&[batch(9, 3)], rules()),
            Err(ReplicaBatchError::Before {
                expected: 10,
                first: 9,
                last: 10
            })
        );
        for (first, second) in [(2, 3), (6, 6), (4, 3)] {
            let refused = check(&[batch(10, first), batch(12, second)], rules());
            assert!(matches!(refused, Err(ReplicaBatchError::Epoch { .. })));
        }
        let overflow = check(&[batch(Offset::MAX - 1, 3)], gaps);
        assert!(matches!(overflow, Err(ReplicaBatchError::Malformed { .. })));
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let good = [batch(10, 3), batch(12, 4), batch(14, 5)].concat();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let checked = ReplicaBatches::check(Bytes::from(bad), rules());
            // A length that grew past the end looks cut off; an epoch may be another one that lies
            // between its neighbours.
            let in_epoch = (12..16).contains(&(bit / 8 % (good.len() / 3)));
            let cut_off = checked
                .as_ref()
                .is_ok_and(|checked| checked.batches.len() < 3);
            assert!(checked.is_err() || cut_off || in_epoch, "bit {bit}");
        }
    }
}
