//! Where each leader epoch begins in a log (Kafka's `LeaderEpochFileCache`). Pure.

use crate::types::{LeaderEpoch, Offset};

/// Epochs with the offset of their first record, both ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeaderEpochs {
    entries: Vec<(LeaderEpoch, Offset)>,
}

impl LeaderEpochs {
    /// Notes that `epoch` begins at `start`. Returns whether anything changed. Entries that contradict
    /// the new one go: what is written last is what counts.
    pub(crate) fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        if epoch < 0 || start < 0 {
            return false;
        }
        if let Some(&(last, last_start)) = self.entries.last()
            && last == epoch
            && start >= last_start
        {
            return false;
        }
        while self
            .entries
            .last()
            .is_some_and(|&(last, last_start)| last >= epoch || last_start >= start)
        {
            self.entries.pop();
        }
        self.entries.push((epoch, start));
        true
    }

    pub(crate) fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|&(epoch, _)| epoch)
    }

    /// Epoch of the record at `offset`, or of the last before it.
    pub(crate) fn epoch_for(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|&(_, start)| start <= offset);
        self.entries
            .get(after.checked_sub(1)?)
            .map(|&(epoch, _)| epoch)
    }

    /// The largest epoch `<= epoch` and where it ends. An epoch before all known ones ends where the
    /// first known begins; one after all known ones is not known.
    pub(crate) fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end_offset: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if epoch < 0 {
            return None;
        }
        if self.latest() == Some(epoch) {
            return Some((epoch, log_end_offset));
        }
        let higher = self.entries.partition_point(|&(known, _)| known <= epoch);
        let &(_, end) = self.entries.get(higher)?;
        match higher
            .checked_sub(1)
            .and_then(|lower| self.entries.get(lower))
        {
            Some(&(floor, _)) => Some((floor, end)),
            None => Some((epoch, end)),
        }
    }

    /// Drops what begins at or past `end`. Returns whether anything changed.
    pub(crate) fn truncate_from_end(&mut self, end: Offset) -> bool {
        let before = self.entries.len();
        self.entries.retain(|&(_, start)| start < end);
        self.entries.len() != before
    }

    /// Drops epochs that end at or before `start`; the one that holds `start` begins there now.
    pub(crate) fn truncate_from_start(&mut self, start: Offset) -> bool {
        let after = self.entries.partition_point(|&(_, begin)| begin <= start);
        let Some(holder) = after.checked_sub(1) else {
            return false;
        };
        let changed = holder > 0 || self.entries[holder].1 != start;
        self.entries.drain(..holder);
        self.entries[0].1 = start;
        changed
    }

    pub(crate) fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.entries
    }

    /// The content of `leader-epoch-checkpoint`.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for (epoch, start) in &self.entries {
            text.push_str(&format!("{epoch} {start}\n"));
        }
        text
    }

    /// Reads the file; `None` if it is not one, or torn: the last number may lack its last digits.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        if !text.ends_with('\n') {
            return None;
        }
        let mut lines = text.lines();
        if lines.next()?.trim() != "0" {
            return None;
        }
        let count: usize = lines.next()?.trim().parse().ok()?;
        let mut epochs = Self::default();
        for line in lines.by_ref().take(count) {
            let (epoch, start) = line.trim().split_once(' ')?;
            epochs.assign(epoch.parse().ok()?, start.parse().ok()?);
        }
        (epochs.entries.len() == count).then_some(epochs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(LeaderEpoch, Offset)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::default();
        for &(epoch, start) in entries {
            assert!(epochs.assign(epoch, start));
        }
        epochs
    }

    #[test]
    fn an_epoch_is_assigned_once_and_contradictions_give_way() {
        let mut cache = epochs(&[(0, 0), (2, 10), (3, 20)]);
        assert!(!cache.assign(3, 25));
        assert!(!cache.assign(-1, 30));
        assert!(cache.assign(4, 20));
        assert_eq!(cache.entries(), [(0, 0), (2, 10), (4, 20)]);
        assert!(cache.assign(1, 30));
        assert_eq!(cache.entries(), [(0, 0), (1, 30)]);
    }

    #[test]
    fn end_offsets_are_kafkas() {
        let cache = epochs(&[(2, 10), (4, 20), (7, 35)]);
        let end = |epoch| cache.end_offset_for(epoch, 50);
        assert_eq!(end(-1), None);
        assert_eq!(end(1), Some((1, 10)));
        assert_eq!(end(2), Some((2, 20)));
        assert_eq!(end(3), Some((2, 20)));
        assert_eq!(end(6), Some((4, 35)));
        assert_eq!(end(7), Some((7, 50)));
        assert_eq!(end(8), None);
        assert_eq!(LeaderEpochs::default().end_offset_for(0, 5), None);
    }

    #[test]
    fn the_epoch_of_an_offset_is_that_of_the_last_start_before_it() {
        let cache = epochs(&[(2, 10), (4, 20)]);
        assert_eq!(cache.epoch_for(9), None);
        assert_eq!(cache.epoch_for(10), Some(2));
        assert_eq!(cache.epoch_for(19), Some(2));
        assert_eq!(cache.epoch_for(1_000), Some(4));
        assert_eq!(cache.latest(), Some(4));
    }

    #[test]
    fn truncation_at_either_end() {
        let mut cache = epochs(&[(2, 10), (4, 20), (7, 35)]);
        assert!(cache.truncate_from_end(35));
        assert!(!cache.truncate_from_end(35));
        assert_eq!(cache.entries(), [(2, 10), (4, 20)]);
        assert!(cache.truncate_from_start(25));
        assert_eq!(cache.entries(), [(4, 25)]);
        assert!(!cache.truncate_from_start(25));
        assert!(!cache.truncate_from_start(5));
    }

    #[test]
    fn the_file_is_kafkas_and_garbage_is_refused() {
        let cache = epochs(&[(0, 0), (3, 12)]);
        assert_eq!(cache.to_text(), "0\n2\n0 0\n3 12\n");
        assert_eq!(LeaderEpochs::from_text("0\n2\n0 0\n3 12\n"), Some(cache));
        for text in [
            "",
            "1\n0\n",
            "0\n2\n0 0\n",
            "0\n2\n0 0\n3 12",
            "0\n1\nx 0\n",
            "0\n2\n3 12\n0 0\n",
            "\0\0\0",
        ] {
            assert_eq!(LeaderEpochs::from_text(text), None, "{text:?}");
        }
    }
}
