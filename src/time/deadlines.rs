//! A queue of deadlines. Pure: the caller brings the time.

use std::collections::BTreeMap;
use std::time::Instant;

/// Keys with the time at which each is due; one deadline a key.
#[derive(Debug, Clone)]
pub struct Deadlines<K> {
    by_key: BTreeMap<K, Instant>,
    by_time: BTreeMap<(Instant, K), ()>,
}

impl<K: Ord + Clone> Deadlines<K> {
    pub fn new() -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_time: BTreeMap::new(),
        }
    }

    /// Sets the deadline of `key`, replacing an earlier one.
    pub fn set(&mut self, key: K, due: Instant) {
        self.cancel(&key);
        self.by_time.insert((due, key.clone()), ());
        self.by_key.insert(key, due);
    }

    /// Forgets `key`; returns whether it had a deadline.
    pub fn cancel(&mut self, key: &K) -> bool {
        let Some(due) = self.by_key.remove(key) else {
            return false;
        };
        self.by_time.remove(&(due, key.clone()));
        true
    }

    /// Takes one key whose deadline is at or before `now`, the earliest first.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        let (due, key) = self.by_time.keys().next()?.clone();
        if due > now {
            return None;
        }
        self.cancel(&key);
        Some(key)
    }

    /// When the next key is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.by_time.keys().next().map(|(due, _)| *due)
    }

    /// Every key, due or not.
    pub fn into_keys(self) -> impl Iterator<Item = K> {
        self.by_key.into_keys()
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

impl<K: Ord + Clone> Default for Deadlines<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::{Clock, ManualClock};

    #[test]
    fn keys_come_out_when_they_are_due_and_not_before() {
        let start = ManualClock::new(0).now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut deadlines = Deadlines::new();
        deadlines.set("late", at(9));
        deadlines.set("early", at(3));
        deadlines.set("moved", at(1));
        deadlines.set("moved", at(5));
        assert_eq!(deadlines.next_due(), Some(at(3)));
        assert_eq!(deadlines.pop_due(at(2)), None);
        assert_eq!(deadlines.pop_due(at(5)), Some("early"));
        assert_eq!(deadlines.pop_due(at(5)), Some("moved"));
        assert_eq!(deadlines.pop_due(at(5)), None);
        assert!(deadlines.cancel(&"late"));
        assert!(!deadlines.cancel(&"late"));
        assert!(deadlines.is_empty());
    }
}
