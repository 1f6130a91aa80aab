//! Which bytes of a segment's headers were found to agree with one another. Pure.

/// Ranges kept: readers go through a segment in order, so that theirs grow together.
const RANGES_MAX: usize = 16;

/// Some ranges of a file, ascending, none touching the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// All from `start` on.
    pub(crate) fn from(start: u64) -> Self {
        Self(vec![(start, u64::MAX)])
    }

    pub(crate) fn cover(&self, start: u64, end: u64) -> bool {
        let after = self.0.partition_point(|&(begin, _)| begin <= start);
        let range = after.checked_sub(1).and_then(|at| self.0.get(at));
        range.is_some_and(|&(_, range_end)| end <= range_end)
    }

    pub(crate) fn add(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        self.0.retain(|&(begin, range_end)| {
            let touches = begin <= end && start <= range_end;
            if touches {
                start = start.min(begin);
                end = end.max(range_end);
            }
            !touches
        });
        let at = self.0.partition_point(|&(begin, _)| begin < start);
        self.0.insert(at, (start, end));
        if self.0.len() > RANGES_MAX {
            let shortest = self.0.iter().enumerate();
            if let Some((at, _)) = shortest.min_by_key(|(_, (start, end))| end - start) {
                self.0.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut ranges = Ranges::default();
        assert!(!ranges.cover(0, 1));
        ranges.add(10, 20);
        ranges.add(30, 40);
        assert!(ranges.cover(10, 20) && ranges.cover(12, 15));
        assert!(!ranges.cover(9, 20) && !ranges.cover(15, 35) && !ranges.cover(20, 21));
        ranges.add(20, 30);
        assert_eq!(ranges, Ranges(vec![(10, 40)]));
        ranges.add(5, 5);
        ranges.add(0, 100);
        assert_eq!(ranges, Ranges(vec![(0, 100)]));
        assert!(Ranges::from(7).cover(7, 1 << 60));
    }

    #[test]
    fn the_shortest_range_is_forgotten() {
        let mut ranges = Ranges::default();
        for number in 0..20_u64 {
            ranges.add(number * 100, number * 100 + 10 + number);
        }
        assert_eq!(ranges.0.len(), RANGES_MAX);
        assert!(!ranges.cover(0, 10));
        assert!(ranges.cover(1_900, 1_929));
    }
}
