//! What happened lately, kept in memory within bounds. Pure.
//!
//! Serves watches (from a revision) and reads of the past (by undoing what came after). What has
//! fallen out counts as compacted, as in etcd.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::registry::{KeyValue, RegistryError, Revision, WatchEvent};

/// One change with what was there before.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) event: WatchEvent,
    pub(super) previous: Option<KeyValue>,
}

impl Change {
    pub(super) fn key(&self) -> &str {
        match &self.event {
            WatchEvent::Put(entry) => &entry.key,
            WatchEvent::Delete { key, .. } => key,
        }
    }

    fn bytes(&self) -> usize {
        let value = |entry: &KeyValue| entry.key.len() + entry.value.len();
        let event = match &self.event {
            WatchEvent::Put(entry) => value(entry),
            WatchEvent::Delete { key, .. } => key.len(),
        };
        size_of::<Self>() + event + self.previous.as_ref().map_or(0, value)
    }
}

/// The changes of the revisions `compacted + 1 ..= newest`, one group each.
#[derive(Debug)]
pub(super) struct History {
    groups: VecDeque<(Revision, Arc<[Change]>)>,
    bytes: usize,
    bytes_max: usize,
    compacted: Revision,
    newest: Revision,
}

impl History {
    /// Empty: everything up to `newest` is compacted.
    pub(super) fn new(newest: Revision, bytes_max: usize) -> Self {
        Self {
            groups: VecDeque::new(),
            bytes: 0,
            bytes_max,
            compacted: newest,
            newest,
        }
    }

    pub(super) fn newest(&self) -> Revision {
        self.newest
    }

    /// Adds the changes of one revision. The oldest groups make room; the newest one always stays.
    pub(super) fn push(&mut self, revision: Revision, changes: Vec<Change>) {
        self.bytes += changes.iter().map(Change::bytes).sum::<usize>();
        self.groups.push_back((revision, changes.into()));
        self.newest = revision;
        while self.bytes > self.bytes_max && self.groups.len() > 1 {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((revision, changes)) = self.groups.pop_front() {
            self.bytes -= changes.iter().map(Change::bytes).sum::<usize>();
            self.compacted = revision;
        }
    }

    /// Forgets the changes up to and including `revision`.
    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), RegistryError> {
        self.readable(revision)?;
        if revision == self.compacted {
            return Err(self.gone());
        }
        while self.groups.front().is_some_and(|(r, _)| *r <= revision) {
            self.drop_oldest();
        }
        self.compacted = revision;
        Ok(())
    }

    /// The first group at or after `from` with changes under `prefix`, and where to go on; `None`
    /// if there is none yet.
    pub(super) fn next(
        &self,
        prefix: &str,
        from: Revision,
    ) -> Result<Option<(Vec<WatchEvent>, Revision)>, RegistryError> {
        if from <= self.compacted {
            return Err(self.gone());
        }
        let start = self
            .groups
            .partition_point(|(revision, _)| *revision < from);
        for (revision, changes) in self.groups.range(start..) {
            let events: Vec<_> = changes
                .iter()
                .filter(|change| change.key().starts_with(prefix))
                .map(|change| change.event.clone())
                .collect();
            if !events.is_empty() {
                return Ok(Some((events, revision + 1)));
            }
        }
        Ok(None)
    }

    /// What must be put back to see the keys under `prefix` as they were at `revision`.
    pub(super) fn undo(
        &self,
        prefix: &str,
        revision: Revision,
    ) -> Result<BTreeMap<String, Option<KeyValue>>, RegistryError> {
        self.readable(revision)?;
        let mut undo = BTreeMap::new();
        let start = self.groups.partition_point(|(r, _)| *r <= revision);
        for (_, changes) in self.groups.range(start..) {
            for change in changes.iter() {
                let key = change.key();
                if key.starts_with(prefix) && !undo.contains_key(key) {
                    undo.insert(key.to_owned(), change.previous.clone());
                }
            }
        }
        Ok(undo)
    }

    fn readable(&self, revision: Revision) -> Result<(), RegistryError> {
        if revision > self.newest {
            return Err(RegistryError::Storage(format!(
                "revision {revision} has not happened yet"
            )));
        }
        if revision < self.compacted {
            return Err(self.gone());
        }
        Ok(())
    }

    fn gone(&self) -> RegistryError {
        RegistryError::Compacted {
            oldest: self.compacted,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn put(key: &str, revision: Revision, previous: Option<Revision>) -> Change {
        let entry = |mod_revision: Revision| KeyValue {
            key: key.to_owned(),
            value: Bytes::from(mod_revision.to_string()),
            create_revision: 1,
            mod_revision,
            lease: 0,
        };
        Change {
            event: WatchEvent::Put(entry(revision)),
            previous: previous.map(entry),
        }
    }

    #[test]
    fn a_watch_goes_through_the_groups_that_concern_it() {
        let mut history = History::new(10, 1 << 20);
        assert!(matches!(history.next("/", 11), Ok(None)));
        history.push(11, vec![put("/a/1", 11, None), put("/b/1", 11, None)]);
        history.push(12, vec![put("/b/2", 12, None)]);
        history.push(13, vec![put("/a/1", 13, Some(11))]);
        let (events, next) = history.next("/a/", 11).unwrap().unwrap();
        assert_eq!((events.len(), next), (1, 12));
        let (events, next) = history.next("/a/", next).unwrap().unwrap();
        assert_eq!((events.len(), next), (1, 14));
        assert!(history.next("/a/", next).unwrap().is_none());
        assert!(matches!(
            history.next("/a/", 10),
            Err(RegistryError::Compacted { oldest: 10 })
        ));
    }

    #[test]
    fn the_past_is_what_the_oldest_later_change_found() {
        let mut history = History::new(10, 1 << 20);
        history.push(11, vec![put("/a", 11, Some(4))]);
        history.push(12, vec![put("/a", 12, Some(11)), put("/new", 12, None)]);
        let undo = history.undo("/", 10).unwrap();
        assert_eq!(undo["/a"].as_ref().unwrap().mod_revision, 4);
        assert_eq!(undo["/new"], None);
        let undo = history.undo("/", 11).unwrap();
        assert_eq!(undo["/a"].as_ref().unwrap().mod_revision, 11);
        assert!(history.undo("/", 12).unwrap().is_empty());
        assert!(matches!(
            history.undo("/", 13),
            Err(RegistryError::Storage(_))
        ));
        assert!(matches!(
            history.undo("/", 9),
            Err(RegistryError::Compacted { oldest: 10 })
        ));
    }

    #[test]
    fn the_oldest_make_room_and_the_newest_stays() {
        let mut history = History::new(0, 400);
        for revision in 1..=5 {
            history.push(revision, vec![put("/k", revision, None)]);
        }
        assert!(history.compacted >= 2 && history.compacted < 5);
        assert!(history.bytes <= 400);
        history.push(6, (0..100).map(|_| put("/k", 6, None)).collect());
        assert_eq!(history.groups.len(), 1);
        assert!(history.next("/", 6).unwrap().is_some());
    }

    #[test]
    fn compaction_forgets_up_to_its_revision() {
        let mut history = History::new(0, 1 << 20);
        for revision in 1..=5 {
            history.push(revision, vec![put("/k", revision, Some(revision - 1))]);
        }
        history.compact(3).unwrap();
        assert!(matches!(
            history.compact(3),
            Err(RegistryError::Compacted { oldest: 3 })
        ));
        assert!(matches!(history.compact(6), Err(RegistryError::Storage(_))));
        assert_eq!(
            history.undo("/", 3).unwrap()["/k"]
                .as_ref()
                .unwrap()
                .mod_revision,
            3
        );
        assert!(history.undo("/", 2).is_err());
        assert!(history.next("/", 3).is_err());
        assert!(history.next("/", 4).unwrap().is_some());
    }
}
