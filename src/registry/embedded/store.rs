//! The transactions of the embedded registry, one after the other on its thread.
//!
//! One redb table: the registry's keys (they begin with `/`), the store's revision under
//! `revision`, and an empty entry `~<key>` for each key that hangs on a lease.
//! A value is three little-endian `i64` (create revision, mod revision, lease) and then the bytes.
//!
//! Leases live in memory: no lease outlives the process that keeps it alive. What hung on one when
//! the last process ended is hidden from the start on and deleted with the first transaction, so
//! that a start needs no transaction of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition};
use tokio::sync::watch;

use super::file::DatabaseFile;
use super::history::{Change, History};
use crate::registry::{
    Compare, KeyValue, LeaseId, Op, Page, RegistryError, Revision, TxnOutcome, WatchEvent,
};
use crate::time::{Clock, Deadlines};

const TABLE: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("registry");
const REVISION: &str = "revision";
const LEASED: &str = "~";
const HEADER_BYTES: usize = 24;
const CACHE_BYTES: usize = 1 << 20;
const HISTORY_BYTES: usize = 512 << 10;

/// What the thread shares with the watches.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) history: Mutex<History>,
    pub(super) newest: watch::Sender<Revision>,
}

#[derive(Debug)]
struct Lease {
    ttl: Duration,
    keys: BTreeSet<String>,
}

#[derive(Debug)]
pub(super) struct Store {
    /// `None` after an error of the disk, until it could be opened again.
    database: Option<Database>,
    file: DatabaseFile,
    clock: Arc<dyn Clock>,
    revision: Revision,
    shared: Arc<Shared>,
    leases: BTreeMap<LeaseId, Lease>,
    lease_deadlines: Deadlines<LeaseId>,
    last_lease: LeaseId,
    /// Keys on leases of earlier processes: on disk, and gone for every reader.
    stale: BTreeSet<String>,
}

impl Store {
    pub(super) fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, RegistryError> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(storage)?;
        }
        let file = DatabaseFile::open(path)
            .map_err(|error| RegistryError::Storage(format!("open {}: {error}", path.display())))?;
        let (database, found) = open_database(&file)
            .map_err(|error| RegistryError::Storage(format!("open {}: {error}", path.display())))?;
        Ok(Self {
            database: Some(database),
            file,
            clock,
            revision: found.revision,
            shared: Arc::new(Shared {
                history: Mutex::new(History::new(found.revision, HISTORY_BYTES)),
                newest: watch::Sender::new(found.revision),
            }),
            leases: BTreeMap::new(),
            lease_deadlines: Deadlines::new(),
            last_lease: 0,
            stale: found.leased.into_keys().collect(),
        })
    }

    /// Opens the database again after an error. The transaction that failed may have been stored or
    /// not; if it was, watches hear that the past is gone, and read again.
    pub(super) fn ensure_open(&mut self) -> Result<(), RegistryError> {
        if self.database.is_some() {
            return Ok(());
        }
        self.file.restart_if_unnamed().map_err(storage)?;
        self.file.set_vital(true);
        let opened = open_database(&self.file);
        self.file.set_vital(false);
        let (database, found) = opened?;
        tracing::info!("the registry's database is open again");
        self.database = Some(database);
        for lease in self.leases.values_mut() {
            lease.keys.clear();
        }
        let before = std::mem::take(&mut self.stale);
        for (key, lease) in found.leased {
            // Ids of earlier processes are used again: what was stale still is.
            match self.leases.get_mut(&lease) {
                Some(lease) if !before.contains(&key) => lease.keys.insert(key),
                _ => self.stale.insert(key),
            };
        }
        if found.revision != self.revision {
            self.revision = found.revision;
            *self.shared.history.lock() = History::new(found.revision, HISTORY_BYTES);
            self.shared.newest.send_replace(found.revision);
        }
        Ok(())
    }

    fn database(&self) -> Result<&Database, RegistryError> {
        self.database.as_ref().ok_or_else(|| {
            RegistryError::Storage("the registry's database is closed after an error".to_owned())
        })
    }

    #[cfg(test)]
    pub(super) fn file(&self) -> &DatabaseFile {
        &self.file
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// See [`DatabaseFile::syncs`].
    pub(super) fn syncs(&self) -> u64 {
        self.file.syncs()
    }

    pub(super) fn get(&self, key: &str) -> Result<Option<KeyValue>, RegistryError> {
        if !key.starts_with('/') || self.stale.contains(key) || self.file.is_new() {
            return Ok(None);
        }
        let read = self.database()?.begin_read().map_err(storage)?;
        read_key(&read.open_table(TABLE).map_err(storage)?, key)
    }

    pub(super) fn range(
        &self,
        prefix: &str,
        from: &str,
        limit: usize,
        revision: Revision,
    ) -> Result<Page, RegistryError> {
        let at = if revision == 0 {
            self.revision
        } else {
            revision
        };
        let mut undo = self.shared.history.lock().undo(prefix, at)?;
        undo.retain(|key, _| key.as_str() >= from);
        let mut page = Page {
            entries: Vec::new(),
            revision: at,
            next_key: None,
        };
        let mut past = undo.into_iter().peekable();
        // Merges what is there with what was there; true: the page is full.
        let add = |page: &mut Page, entry: KeyValue| {
            if page.entries.len() == limit {
                page.next_key = Some(entry.key);
                return true;
            }
            page.entries.push(entry);
            false
        };
        if !self.file.is_new() {
            let read = self.database()?.begin_read().map_err(storage)?;
            let table = read.open_table(TABLE).map_err(storage)?;
            let start = from.max(prefix).max("/");
            for entry in table.range(start..LEASED).map_err(storage)? {
                let (key, value) = entry.map_err(storage)?;
                let key = key.value();
                if !key.starts_with(prefix) || !key.starts_with('/') {
                    break;
                }
                while let Some((_, before)) = past.next_if(|(past, _)| past.as_str() < key) {
                    if let Some(before) = before
                        && add(&mut page, before)
                    {
                        return Ok(page);
                    }
                }
                let now = match past.next_if(|(past, _)| past == key) {
                    Some((_, before)) => before,
                    None if self.stale.contains(key) => None,
                    None => Some(decode(key, value.value())?),
                };
                if let Some(now) = now
                    && add(&mut page, now)
                {
                    return Ok(page);
                }
            }
        }
        for before in past.filter_map(|(_, before)| before) {
            if add(&mut page, before) {
                break;
            }
        }
        Ok(page)
    }

    pub(super) fn txn(
        &mut self,
        compares: &[Compare],
        ops: Vec<Op>,
    ) -> Result<TxnOutcome, RegistryError> {
        check_distinct(&ops)?;
        for op in &ops {
            if let Op::Put { lease, .. } = op
                && *lease != 0
                && !self.leases.contains_key(lease)
            {
                return Err(RegistryError::LeaseNotFound);
            }
        }
        for compare in compares {
            if !compare.holds(self.get(compare.key())?.as_ref()) {
                return Ok(self.outcome(false));
            }
        }
        self.write(ops)?;
        Ok(self.outcome(true))
    }

    fn outcome(&self, succeeded: bool) -> TxnOutcome {
        TxnOutcome {
            succeeded,
            revision: self.revision,
        }
    }

    /// Applies `ops` as one revision with one sync. Nothing happens where nothing changes. After an
    /// error the database is closed: redb refuses to go on with it.
    fn write(&mut self, ops: Vec<Op>) -> Result<(), RegistryError> {
        let written = self.try_write(ops);
        if let Err(RegistryError::Storage(error)) = &written {
            tracing::error!(
                error,
                "the registry's database failed; it will be opened again"
            );
            self.database = None;
        }
        written
    }

    fn try_write(&mut self, ops: Vec<Op>) -> Result<(), RegistryError> {
        let revision = self.revision + 1;
        let mut changes = Vec::new();
        let transaction = self.database()?.begin_write().map_err(storage)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(storage)?;
            for key in &self.stale {
                table.remove(key.as_str()).map_err(storage)?;
                table.remove(leased(key).as_str()).map_err(storage)?;
            }
            for op in ops {
                apply(&mut table, op, revision, &mut changes)?;
            }
            if changes.is_empty() && self.stale.is_empty() {
                drop(table);
                return transaction.abort().map_err(storage);
            }
            table
                .insert(REVISION, revision.to_le_bytes().as_slice())
                .map_err(storage)?;
        }
        self.file.begin_syncing();
        transaction.commit().map_err(storage)?;
        self.file.name().map_err(storage)?;
        self.file.set_vital(false);
        self.committed(revision, changes);
        Ok(())
    }

    /// Brings the memory up to what was committed.
    fn committed(&mut self, revision: Revision, changes: Vec<Change>) {
        for change in &changes {
            let key = change.key();
            let before = change.previous.as_ref().map_or(0, |entry| entry.lease);
            let after = match &change.event {
                WatchEvent::Put(entry) => entry.lease,
                WatchEvent::Delete { .. } => 0,
            };
            if before != after {
                if let Some(lease) = self.leases.get_mut(&before) {
                    lease.keys.remove(key);
                }
                if let Some(lease) = self.leases.get_mut(&after) {
                    lease.keys.insert(key.to_owned());
                }
            }
        }
        let mut changes = changes;
        for key in std::mem::take(&mut self.stale) {
            if !changes.iter().any(|change| change.key() == key) {
                changes.push(Change {
                    event: WatchEvent::Delete { key, revision },
                    previous: None,
                });
            }
        }
        self.revision = revision;
        self.shared.history.lock().push(revision, changes);
        self.shared.newest.send_replace(revision);
    }

    pub(super) fn lease_grant(&mut self, ttl: Duration) -> LeaseId {
        self.last_lease += 1;
        let lease = Lease {
            ttl,
            keys: BTreeSet::new(),
        };
        self.leases.insert(self.last_lease, lease);
        self.lease_deadlines
            .set(self.last_lease, self.clock.now() + ttl);
        self.last_lease
    }

    pub(super) fn lease_keep_alive(&mut self, id: LeaseId) -> Result<(), RegistryError> {
        let lease = self.leases.get(&id).ok_or(RegistryError::LeaseNotFound)?;
        self.lease_deadlines.set(id, self.clock.now() + lease.ttl);
        Ok(())
    }

    /// Ends a lease: deletes what hangs on it, as one revision.
    pub(super) fn lease_revoke(&mut self, id: LeaseId) -> Result<(), RegistryError> {
        let lease = self.leases.get(&id).ok_or(RegistryError::LeaseNotFound)?;
        let ops = lease.keys.iter().cloned().map(|key| Op::Delete { key });
        self.write(ops.collect())?;
        self.leases.remove(&id);
        self.lease_deadlines.cancel(&id);
        Ok(())
    }

    /// Revokes the leases that have run out.
    pub(super) fn expire_leases(&mut self) {
        while let Some(id) = self.lease_deadlines.pop_due(self.clock.now()) {
            if let Err(error) = self.lease_revoke(id) {
                tracing::error!(lease = id, %error, "cannot revoke a lease that has run out");
                return;
            }
        }
    }

    /// When the next lease runs out.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.lease_deadlines.next_due()
    }

    pub(super) fn compact(&self, revision: Revision) -> Result<(), RegistryError> {
        self.shared.history.lock().compact(revision)
    }
}

/// What a database holds besides the keys' values.
struct Found {
    revision: Revision,
    leased: BTreeMap<String, LeaseId>,
}

fn open_database(file: &DatabaseFile) -> Result<(Database, Found), RegistryError> {
    let database = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(file.clone())
        .map_err(storage)?;
    let mut found = Found {
        revision: 0,
        leased: BTreeMap::new(),
    };
    if !file.is_new() {
        let read = database.begin_read().map_err(storage)?;
        let table = read.open_table(TABLE).map_err(storage)?;
        if let Some(stored) = table.get(REVISION).map_err(storage)? {
            found.revision = i64_at(stored.value(), 0)?;
        }
        for entry in table.range(LEASED..).map_err(storage)? {
            let (key, _) = entry.map_err(storage)?;
            let key = &key.value()[LEASED.len()..];
            let lease = read_key(&table, key)?.map_or(0, |entry| entry.lease);
            found.leased.insert(key.to_owned(), lease);
        }
    }
    Ok((database, found))
}

fn apply(
    table: &mut Table<'_, &'static str, &'static [u8]>,
    op: Op,
    revision: Revision,
    changes: &mut Vec<Change>,
) -> Result<(), RegistryError> {
    match op {
        Op::Put { key, value, lease } => {
            if !key.starts_with('/') {
                return Err(RegistryError::Storage(format!("{key:?} is no key")));
            }
            let previous = read_key(table, &key)?;
            let entry = KeyValue {
                create_revision: previous
                    .as_ref()
                    .map_or(revision, |old| old.create_revision),
                mod_revision: revision,
                key,
                value,
                lease,
            };
            table
                .insert(entry.key.as_str(), encode(&entry).as_slice())
                .map_err(storage)?;
            let had_lease = previous.as_ref().is_some_and(|old| old.lease != 0);
            if lease != 0 && !had_lease {
                table
                    .insert(leased(&entry.key).as_str(), [].as_slice())
                    .map_err(storage)?;
            } else if lease == 0 && had_lease {
                table.remove(leased(&entry.key).as_str()).map_err(storage)?;
            }
            changes.push(Change {
                event: WatchEvent::Put(entry),
                previous,
            });
        }
        Op::Delete { key } => delete(table, key, revision, changes)?,
        Op::DeletePrefix { prefix } => {
            let mut keys = Vec::new();
            for entry in table
                .range::<&str>((
                    Bound::Included(prefix.as_str().max("/")),
                    Bound::Excluded(LEASED),
                ))
                .map_err(storage)?
            {
                let (key, _) = entry.map_err(storage)?;
                if !key.value().starts_with(&prefix) {
                    break;
                }
                keys.push(key.value().to_owned());
            }
            for key in keys {
                delete(table, key, revision, changes)?;
            }
        }
    }
    Ok(())
}

fn delete(
    table: &mut Table<'_, &'static str, &'static [u8]>,
    key: String,
    revision: Revision,
    changes: &mut Vec<Change>,
) -> Result<(), RegistryError> {
    if !key.starts_with('/') {
        return Ok(());
    }
    let Some(previous) = read_key(table, &key)? else {
        return Ok(());
    };
    table.remove(key.as_str()).map_err(storage)?;
    if previous.lease != 0 {
        table.remove(leased(&key).as_str()).map_err(storage)?;
    }
    changes.push(Change {
        event: WatchEvent::Delete { key, revision },
        previous: Some(previous),
    });
    Ok(())
}

/// etcd refuses a transaction that writes a key twice; so do we.
fn check_distinct(ops: &[Op]) -> Result<(), RegistryError> {
    let mut puts = BTreeSet::new();
    for op in ops {
        if let Op::Put { key, .. } = op
            && !puts.insert(key.as_str())
        {
            return Err(RegistryError::Storage(format!("{key} is written twice")));
        }
    }
    for op in ops {
        let doubled = match op {
            Op::Put { .. } => None,
            Op::Delete { key } => puts.get(key.as_str()),
            Op::DeletePrefix { prefix } => puts
                .range(prefix.as_str()..)
                .next()
                .filter(|key| key.starts_with(prefix.as_str())),
        };
        if let Some(key) = doubled {
            return Err(RegistryError::Storage(format!(
                "{key} is written and deleted"
            )));
        }
    }
    Ok(())
}

fn leased(key: &str) -> String {
    format!("{LEASED}{key}")
}

fn read_key(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &str,
) -> Result<Option<KeyValue>, RegistryError> {
    match table.get(key).map_err(storage)? {
        Some(stored) => Ok(Some(decode(key, stored.value())?)),
        None => Ok(None),
    }
}

fn encode(entry: &KeyValue) -> Vec<u8> {
    let mut stored = Vec::with_capacity(HEADER_BYTES + entry.value.len());
    stored.extend_from_slice(&entry.create_revision.to_le_bytes());
    stored.extend_from_slice(&entry.mod_revision.to_le_bytes());
    stored.extend_from_slice(&entry.lease.to_le_bytes());
    stored.extend_from_slice(&entry.value);
    stored
}

fn decode(key: &str, stored: &[u8]) -> Result<KeyValue, RegistryError> {
    Ok(KeyValue {
        create_revision: i64_at(stored, 0)?,
        mod_revision: i64_at(stored, 8)?,
        lease: i64_at(stored, 16)?,
        value: Bytes::copy_from_slice(&stored[HEADER_BYTES..]),
        key: key.to_owned(),
    })
}

fn i64_at(stored: &[u8], at: usize) -> Result<i64, RegistryError> {
    match stored
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok())
    {
        Some(bytes) => Ok(i64::from_le_bytes(bytes)),
        None => Err(RegistryError::Storage(
            "a stored value is cut off".to_owned(),
        )),
    }
}

fn storage(error: impl Display) -> RegistryError {
    RegistryError::Storage(error.to_string())
}
