//! The registry as it is: etcd's keys, revisions and leases, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::registry::value::{PartitionValue, decode};
use crate::registry::{
    Compare, Key, KeyValue, LeaseId, Op, Page, RegistryError, Revision, TxnOutcome, WatchEvent,
};
use crate::types::{BrokerId, PartitionId, TopicId};

type Keys = BTreeMap<String, KeyValue>;

#[derive(Debug)]
struct Lease {
    ttl: u64,
    expires: u64,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) revision: Revision,
    keys: Arc<Keys>,
    past: BTreeMap<Revision, Arc<Keys>>,
    groups: BTreeMap<Revision, Vec<WatchEvent>>,
    leases: BTreeMap<LeaseId, Lease>,
    last_lease: LeaseId,
    pub(super) compacted: Revision,
}

/// As [`crate::registry::Scan`].
#[derive(Debug, Clone)]
pub(super) struct Range {
    pub(super) prefix: String,
    pub(super) from: String,
    pub(super) limit: usize,
    pub(super) revision: Revision,
    pub(super) changed_since: Revision,
    pub(super) keys_only: bool,
}

impl Store {
    pub(super) fn get(&self, key: &str) -> Option<&KeyValue> {
        self.keys.get(key)
    }

    /// Of one of its lives; 0: none is registered.
    pub(super) fn broker_epoch(&self, id: BrokerId) -> i64 {
        let entry = self.get(&Key::Broker(id).to_string());
        entry.map_or(0, |entry| entry.create_revision)
    }

    pub(super) fn partition(&self, topic: TopicId, index: PartitionId) -> PartitionValue {
        let entry = self.get(&Key::Partition(topic, index).to_string());
        decode(&entry.expect("a partition").value).expect("as it was written")
    }

    pub(super) fn range(&self, range: &Range) -> Result<Page, RegistryError> {
        let revision = match range.revision {
            0 => self.revision,
            past => past,
        };
        if revision < self.compacted {
            let oldest = self.compacted;
            return Err(RegistryError::Compacted { oldest });
        }
        let keys = self.past.get(&revision).unwrap_or(&self.keys);
        let mut page = Page {
            entries: Vec::new(),
            revision,
            next_key: None,
        };
        let from = range.from.as_str().max(&range.prefix).to_owned();
        for (key, entry) in keys.range(from..) {
            if !key.starts_with(&range.prefix) {
                break;
            }
            if page.entries.len() == range.limit {
                page.next_key = Some(key.clone());
                break;
            }
            if entry.mod_revision < range.changed_since {
                continue;
            }
            let mut entry = entry.clone();
            if range.keys_only {
                entry.value = bytes::Bytes::new();
            }
            page.entries.push(entry);
        }
        Ok(page)
    }

    pub(super) fn txn(
        &mut self,
        compares: &[Compare],
        ops: Vec<Op>,
    ) -> Result<TxnOutcome, RegistryError> {
        let holds = |compare: &Compare| compare.holds(self.keys.get(compare.key()));
        let succeeded = compares.iter().all(holds);
        if succeeded {
            for op in &ops {
                if let Op::Put { lease, .. } = op
                    && *lease != 0
                    && !self.leases.contains_key(lease)
                {
                    return Err(RegistryError::LeaseNotFound);
                }
            }
            self.write(ops);
        }
        Ok(TxnOutcome {
            succeeded,
            revision: self.revision,
        })
    }

    fn write(&mut self, ops: Vec<Op>) {
        let revision = self.revision + 1;
        let keys = Arc::make_mut(&mut self.keys);
        let mut events = Vec::new();
        for op in ops {
            match op {
                Op::Put { key, value, lease } => {
                    let created = keys.get(&key).map(|entry| entry.create_revision);
                    let entry = KeyValue {
                        key: key.clone(),
                        value,
                        create_revision: created.unwrap_or(revision),
                        mod_revision: revision,
                        lease,
                    };
                    keys.insert(key, entry.clone());
                    events.push(WatchEvent::Put(entry));
                }
                Op::Delete { key } => {
                    if keys.remove(&key).is_some() {
                        events.push(WatchEvent::Delete { key, revision });
                    }
                }
                Op::DeletePrefix { prefix } => panic!("{prefix} is deleted"),
            }
        }
        if !events.is_empty() {
            self.revision = revision;
            self.past.insert(revision, Arc::clone(&self.keys));
            self.groups.insert(revision, events);
        }
    }

    /// The groups of changes from a revision on.
    pub(super) fn changes(
        &self,
        from: Revision,
    ) -> impl Iterator<Item = (Revision, &Vec<WatchEvent>)> {
        self.groups
            .range(from..)
            .map(|(revision, group)| (*revision, group))
    }

    pub(super) fn grant(&mut self, ttl: Duration, now: u64) -> LeaseId {
        self.last_lease += 1;
        let ttl = u64::try_from(ttl.as_millis()).unwrap();
        let expires = now + ttl;
        self.leases.insert(self.last_lease, Lease { ttl, expires });
        self.last_lease
    }

    pub(super) fn keep_alive(&mut self, id: LeaseId, now: u64) -> Result<(), RegistryError> {
        let lease = self.leases.get_mut(&id);
        let lease = lease.ok_or(RegistryError::LeaseNotFound)?;
        lease.expires = now + lease.ttl;
        Ok(())
    }

    pub(super) fn revoke(&mut self, id: LeaseId) -> Result<(), RegistryError> {
        self.leases
            .remove(&id)
            .ok_or(RegistryError::LeaseNotFound)?;
        let held = self.keys.values().filter(|entry| entry.lease == id);
        let gone = held.map(|entry| Op::Delete {
            key: entry.key.clone(),
        });
        let gone = gone.collect();
        self.write(gone);
        Ok(())
    }

    /// Ends the leases that have run out; how many.
    pub(super) fn expire(&mut self, now: u64) -> usize {
        let over = self.leases.iter().filter(|(_, lease)| lease.expires <= now);
        let over: Vec<LeaseId> = over.map(|(id, _)| *id).collect();
        for id in &over {
            let _ = self.revoke(*id);
        }
        over.len()
    }

    /// As etcd does when it has a new leader.
    pub(super) fn lengthen_leases(&mut self, now: u64) {
        for lease in self.leases.values_mut() {
            lease.expires = lease.expires.max(now + lease.ttl);
        }
    }
}
