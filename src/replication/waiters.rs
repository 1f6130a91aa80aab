//! Who waits for a partition to get further. Pure.
//!
//! A waiter names the bound that it waits for and the offset that the bound has to reach; it is
//! looked at when *that* bound advances, and not at any other time.

use crate::types::Offset;

/// Up to where a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FetchBound {
    LogEnd,
    HighWatermark,
    LastStable,
    /// The log start of all replicas: who deletes records waits for it, and nobody reads up to it.
    LowWatermark,
    /// What is on this broker's disk: a follower waits for it before it asks for more.
    Flushed,
}

/// Names one waiter; unique in its partition.
pub(crate) type Ticket = u64;

/// Everything parked on one partition. Empty, it holds no memory.
#[derive(Debug)]
pub(crate) struct Waiters<T> {
    /// Ascending. Most wait at the end, and most partitions have one or none: a tree's node would hold
    /// eleven.
    parked: Vec<(Key, T)>,
}

type Key = (FetchBound, Offset, Ticket);

impl<T> Waiters<T> {
    pub(crate) fn new() -> Self {
        Self { parked: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.parked.len()
    }

    /// Parks until `bound` has reached `offset`.
    pub(crate) fn park(&mut self, bound: FetchBound, offset: Offset, ticket: Ticket, waiter: T) {
        let key = (bound, offset, ticket);
        if self.parked.is_empty() {
            self.parked.reserve_exact(1);
        }
        let at = self.parked.partition_point(|(parked, _)| *parked < key);
        self.parked.insert(at, (key, waiter));
    }

    /// Forgets a waiter that was parked with exactly these.
    pub(crate) fn cancel(
        &mut self,
        bound: FetchBound,
        offset: Offset,
        ticket: Ticket,
    ) -> Option<T> {
        let key = (bound, offset, ticket);
        let found = self
            .parked
            .binary_search_by_key(&key, |(parked, _)| *parked);
        Some(self.remove(found.ok()?))
    }

    /// Forgets a waiter whose offset the caller does not know; walks all of them.
    pub(crate) fn cancel_ticket(&mut self, ticket: Ticket) -> Option<T> {
        let mut keys = self.parked.iter().map(|(key, _)| key);
        let at = keys.position(|(_, _, parked)| *parked == ticket)?;
        Some(self.remove(at))
    }

    fn remove(&mut self, at: usize) -> T {
        let (_, waiter) = self.parked.remove(at);
        self.tidy();
        waiter
    }

    /// `bound` has reached `to`: takes every waiter that waited for no more than that and that
    /// `is_satisfied` says is. One that wants more stays, and is asked again at the next advance.
    pub(crate) fn advance(
        &mut self,
        bound: FetchBound,
        to: Offset,
        woken: &mut Vec<T>,
        mut is_satisfied: impl FnMut(&mut T) -> bool,
    ) {
        let first = self.parked.partition_point(|((of, ..), _)| *of < bound);
        let last = (bound, to, Ticket::MAX);
        let end = self.parked.partition_point(|(parked, _)| *parked <= last);
        if first >= end {
            return;
        }
        let satisfied = self
            .parked
            .extract_if(first..end, |(_, waiter)| is_satisfied(waiter));
        woken.extend(satisfied.map(|(_, waiter)| waiter));
        self.tidy();
    }

    /// Takes all: the partition went away, moved, or broke.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let parked = std::mem::take(&mut self.parked);
        parked.into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// Takes those that `matches` says, wherever the bounds are.
    pub(crate) fn take(&mut self, mut matches: impl FnMut(&T) -> bool) -> Vec<T> {
        let taken = self.parked.extract_if(.., |(_, waiter)| matches(waiter));
        let taken = taken.map(|(_, waiter)| waiter).collect();
        self.tidy();
        taken
    }

    fn tidy(&mut self) {
        if self.parked.is_empty() {
            self.parked = Vec::new();
        }
    }
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advance(
        waiters: &mut Waiters<&'static str>,
        bound: FetchBound,
        to: Offset,
    ) -> Vec<&'static str> {
        let mut woken = Vec::new();
        waiters.advance(bound, to, &mut woken, |_| true);
        woken
    }

    #[test]
    fn only_the_bound_that_advanced_wakes_and_only_as_far_as_it_went() {
        let mut waiters = Waiters::new();
        waiters.park(FetchBound::HighWatermark, 5, 1, "produce to 5");
        waiters.park(FetchBound::HighWatermark, 9, 2, "produce to 9");
        waiters.park(FetchBound::LogEnd, 5, 3, "follower");
        waiters.park(FetchBound::LastStable, 5, 4, "read_committed");
        assert!(advance(&mut waiters, FetchBound::HighWatermark, 4).is_empty());
        assert_eq!(
            advance(&mut waiters, FetchBound::HighWatermark, 8),
            ["produce to 5"]
        );
        assert_eq!(advance(&mut waiters, FetchBound::LogEnd, 100), ["follower"]);
        assert_eq!(waiters.drain(), ["produce to 9", "read_committed"]);
        assert!(waiters.drain().is_empty());
    }

    #[test]
    fn a_waiter_that_wants_more_is_asked_at_every_advance() {
        let mut waiters = Waiters::new();
        waiters.park(FetchBound::HighWatermark, 1, 7, 0u32);
        let mut woken = Vec::new();
        for to in 1..=3 {
            waiters.advance(FetchBound::HighWatermark, to, &mut woken, |asked| {
                *asked += 1;
                *asked == 3
            });
        }
        assert_eq!(woken, [3]);
        assert!(waiters.drain().is_empty());
    }

    #[test]
    fn a_cancelled_waiter_is_not_woken() {
        let mut waiters = Waiters::new();
        waiters.park(FetchBound::HighWatermark, 5, 1, "a");
        waiters.park(FetchBound::HighWatermark, 5, 2, "b");
        waiters.park(FetchBound::HighWatermark, 5, 3, "c");
        assert_eq!(waiters.cancel(FetchBound::HighWatermark, 5, 2), Some("b"));
        assert_eq!(waiters.cancel(FetchBound::HighWatermark, 5, 2), None);
        assert_eq!(waiters.cancel_ticket(3), Some("c"));
        assert_eq!(waiters.cancel_ticket(3), None);
        assert_eq!(advance(&mut waiters, FetchBound::HighWatermark, 5), ["a"]);
    }
}
