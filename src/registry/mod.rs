//! The strongly consistent store behind the cluster, with etcd's semantics: one revision counter,
//! compare-and-swap transactions, leases, watches from a revision.

mod counted;
mod embedded;
mod etcd;
pub mod key;
mod lease;
mod seen;
pub mod value;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

pub use counted::Counted;
pub use embedded::Embedded;
pub use etcd::{Etcd, EtcdConfig, EtcdTls};
pub use key::Key;
pub use lease::BrokerLease;
pub use seen::{Seen, SeenChange};

/// Counts the store's writes.
pub type Revision = i64;
/// A boxed future, since the trait is used as an object.
pub type RegistryFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, RegistryError>> + Send + 'a>>;
pub type LeaseId = i64;

/// Sorted by what the caller can do.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Not answered in time or not reachable: the outcome of a write is unknown.
    #[error("the registry does not answer: {0}")]
    Unavailable(String),
    /// The revision asked for is gone: read again, no earlier than at `oldest` (0: not known).
    #[error("compacted up to revision {oldest}")]
    Compacted { oldest: Revision },
    #[error("no such lease")]
    LeaseNotFound,
    /// It is not the registry that this process knows, and nothing of it must be believed.
    #[error("this is not the registry that it was: {0}")]
    Foreign(String),
    #[error("{0}")]
    Storage(String),
}

/// A key with its value and history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    pub key: String,
    pub value: Bytes,
    pub create_revision: Revision,
    pub mod_revision: Revision,
    pub lease: LeaseId,
}

/// What a transaction demands before it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// 0: the key does not exist.
    ModRevision { key: String, revision: Revision },
    /// 0: the key does not exist.
    CreateRevision { key: String, revision: Revision },
}

impl Compare {
    pub fn key(&self) -> &str {
        match self {
            Self::ModRevision { key, .. } | Self::CreateRevision { key, .. } => key,
        }
    }

    /// Whether what is found under its key is what it demands.
    pub fn holds(&self, found: Option<&KeyValue>) -> bool {
        match self {
            Self::ModRevision { revision, .. } => {
                found.map_or(0, |entry| entry.mod_revision) == *revision
            }
            Self::CreateRevision { revision, .. } => {
                found.map_or(0, |entry| entry.create_revision) == *revision
            }
        }
    }
}

/// What a transaction writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Put {
        key: String,
        value: Bytes,
        lease: LeaseId,
    },
    Delete {
        key: String,
    },
    DeletePrefix {
        prefix: String,
    },
}

/// Whether the compares held; `revision` is the store's after the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxnOutcome {
    pub succeeded: bool,
    pub revision: Revision,
}

/// What is asked of a range.
#[derive(Debug, Clone, Copy)]
pub struct Scan<'a> {
    pub prefix: &'a str,
    /// Inclusive; "" = the first.
    pub from: &'a str,
    /// At least 1.
    pub limit: usize,
    /// 0 = newest.
    pub revision: Revision,
    /// Only keys with a mod revision of at least that.
    pub changed_since: Revision,
    /// Without their values.
    pub keys_only: bool,
}

/// A page of a range, all at `revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<KeyValue>,
    pub revision: Revision,
    /// Ask again from here (same revision) for the rest.
    pub next_key: Option<String>,
}

/// One change seen by a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    Put(KeyValue),
    Delete { key: String, revision: Revision },
}

/// Changes in revision order, grouped as they were committed.
pub trait Watch: Send {
    /// The next group of changes; all of one revision arrive together.
    fn next(&mut self) -> RegistryFuture<'_, Vec<WatchEvent>>;
}

/// The store.
pub trait Registry: Debug + Send + Sync {
    fn get(&self, key: &str) -> RegistryFuture<'_, Option<KeyValue>>;
    /// Up to `limit` (at least 1) keys with `prefix`, from `from` (inclusive; "" = the first), at
    /// `revision` (0 = newest).
    fn range(
        &self,
        prefix: &str,
        from: &str,
        limit: usize,
        revision: Revision,
    ) -> RegistryFuture<'_, Page>;
    /// The same, for who wants less of it.
    fn scan(&self, scan: Scan<'_>) -> RegistryFuture<'_, Page>;
    /// Applies `ops` as one revision if all of `compares` hold. No key may be written twice in it.
    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> RegistryFuture<'_, TxnOutcome>;
    /// How many compares, and how many ops, a transaction may have.
    fn txn_ops_max(&self) -> usize;
    fn lease_grant(&self, ttl: Duration) -> RegistryFuture<'_, LeaseId>;
    fn lease_keep_alive(&self, lease: LeaseId) -> RegistryFuture<'_, ()>;
    fn lease_revoke(&self, lease: LeaseId) -> RegistryFuture<'_, ()>;
    /// All changes under `prefix` with a revision of at least `from`.
    fn watch(&self, prefix: &str, from: Revision) -> RegistryFuture<'_, Box<dyn Watch>>;
    /// Forgets the changes up to `revision`; what was there at `revision` can still be read.
    fn compact(&self, revision: Revision) -> RegistryFuture<'_, ()>;
    /// Ends the use of the store: what was written is safe without it, but the next start is quicker
    /// after it. Every later call fails.
    fn close(&self) -> RegistryFuture<'_, ()>;
}
