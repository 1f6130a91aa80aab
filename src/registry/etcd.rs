//! The registry of a cluster: etcd, version 3.4 or later.
//!
//! etcd-client waits without end by default, and its balancer sends requests to members that are gone.
//! Here every call has a deadline, a connection goes to one member and to another one when it fails, and
//! one that no longer answers is found by HTTP/2 pings, so that a watch on it ends with an error.
//!
//! Reads are linearizable: an answer with an older revision than was seen before it was asked for comes
//! from another etcd, or from a member that was restored from a snapshot, and is refused.

mod connection;

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{
    Compare as EtcdCompare, CompareOp, DeleteOptions, Error, EventType, GetOptions, GetResponse,
    PutOptions, ResponseHeader, Txn, TxnOp, WatchOptions, WatchStream,
};

use self::connection::{Clients, Connection, translate};
use super::{
    Compare, KeyValue, LeaseId, Op, Page, Registry, RegistryError, RegistryFuture, Revision, Scan,
    TxnOutcome, Watch, WatchEvent,
};

/// etcd's own default for `--max-txn-ops`.
const TXN_OPS_MAX: usize = 128;

/// Where etcd is, who we are to it, and how long to wait for it.
#[derive(Clone)]
pub struct EtcdConfig {
    /// `host:port`, `http://host:port` or `https://host:port`.
    pub endpoints: Vec<String>,
    /// Stands before every key; no slash at its end.
    pub prefix: String,
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
    pub tls: EtcdTls,
    /// Name and password.
    pub user: Option<(String, String)>,
}

/// PEM.
#[derive(Clone, Default)]
pub struct EtcdTls {
    /// `None`: those that the machine trusts.
    pub ca: Option<Vec<u8>>,
    /// Certificate and key of this client.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl EtcdConfig {
    pub fn new(endpoints: Vec<String>, prefix: impl Into<String>) -> Self {
        Self {
            endpoints,
            prefix: prefix.into(),
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(5),
            tls: EtcdTls::default(),
            user: None,
        }
    }
}

impl Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls").finish_non_exhaustive() // no key
    }
}

impl Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive() // no password and no key
    }
}

/// The handle of etcd.
pub struct Etcd {
    connection: Connection,
    prefix: String,
    request_timeout: Duration,
    /// The newest revision that an answer had.
    seen: AtomicI64,
}

impl Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Etcd {
    /// Connects, and asks once: an etcd that does not answer is an error here.
    pub async fn connect(config: &EtcdConfig) -> Result<Self, RegistryError> {
        let etcd = Self {
            connection: Connection::new(config.clone()),
            prefix: config.prefix.trim_end_matches('/').to_owned(),
            request_timeout: config.request_timeout,
            seen: AtomicI64::new(0),
        };
        etcd.get("/").await?;
        Ok(etcd)
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Waits for an answer, but not for ever.
    async fn ask<T, F>(&self, call: impl FnOnce(Clients) -> F) -> Result<T, RegistryError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.connection.ask(self.request_timeout, call).await
    }

    /// A linearizable read, which may be asked of each member in turn.
    async fn read(
        &self,
        key: String,
        options: Option<GetOptions>,
    ) -> Result<GetResponse, RegistryError> {
        let members = u32::try_from(self.connection.endpoints())
            .unwrap_or(1)
            .max(1);
        // One more than there are members: the first failure may only end an old connection.
        let patience = self.request_timeout / (members + 1);
        let mut left = members + 1;
        loop {
            let newest = self.seen.load(Ordering::Acquire);
            let (key, options) = (key.clone(), options.clone());
            let answer = self.connection.ask(patience, |clients| {
                let mut kv = clients.kv;
                async move { kv.get(key, options).await }
            });
            left -= 1;
            match answer.await {
                Ok(answer) => {
                    self.check(newest, answer.header())?;
                    return Ok(answer);
                }
                Err(RegistryError::Unavailable(_)) if left > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Refuses an answer from the past: `newest` was seen before it was asked for.
    fn check(
        &self,
        newest: Revision,
        header: Option<&ResponseHeader>,
    ) -> Result<(), RegistryError> {
        let found = header.map_or(0, ResponseHeader::revision);
        if found < newest {
            return Err(RegistryError::Foreign(format!(
                "it is at revision {found}, and this broker has seen {newest}: etcd was restored from a \
                 snapshot, or is another one"
            )));
        }
        self.seen.fetch_max(found, Ordering::AcqRel);
        Ok(())
    }

    fn page(&self, found: &GetResponse, revision: Revision) -> Page {
        let newest = found.header().map_or(0, |header| header.revision());
        let entries = found.kvs().iter();
        let entries = entries.filter_map(|kv| entry(&self.prefix, kv)).collect();
        let last = found.kvs().last().filter(|_| found.more());
        let next_key = last.map(|kv| {
            let key = String::from_utf8_lossy(kv.key());
            let key = key.strip_prefix(&self.prefix).unwrap_or(&key);
            format!("{key}\0")
        });
        Page {
            entries,
            revision: if revision == 0 { newest } else { revision },
            next_key,
        }
    }

    fn op(&self, op: Op) -> TxnOp {
        match op {
            Op::Put { key, value, lease } => {
                let options = (lease != 0).then(|| PutOptions::new().with_lease(lease));
                TxnOp::put(self.full(&key), value, options)
            }
            Op::Delete { key } => TxnOp::delete(self.full(&key), None),
            Op::DeletePrefix { prefix } => {
                let options = DeleteOptions::new().with_prefix();
                TxnOp::delete(self.full(&prefix), Some(options))
            }
        }
    }

    fn compare(&self, compare: &Compare) -> EtcdCompare {
        match compare {
            Compare::ModRevision { key, revision } => {
                EtcdCompare::mod_revision(self.full(key), CompareOp::Equal, *revision)
            }
            Compare::CreateRevision { key, revision } => {
                EtcdCompare::create_revision(self.full(key), CompareOp::Equal, *revision)
            }
        }
    }
}

/// `None` for a key that is not ours to read: not UTF-8, or not under the prefix.
fn entry(prefix: &str, found: &etcd_client::KeyValue) -> Option<KeyValue> {
    let key = std::str::from_utf8(found.key()).ok()?;
    Some(KeyValue {
        key: key.strip_prefix(prefix)?.to_owned(),
        value: Bytes::copy_from_slice(found.value()),
        create_revision: found.create_revision(),
        mod_revision: found.mod_revision(),
        lease: found.lease(),
    })
}

/// The first key after all keys that begin with `prefix`.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0] // etcd: no end
}

impl Registry for Etcd {
    fn get(&self, key: &str) -> RegistryFuture<'_, Option<KeyValue>> {
        let key = self.full(key);
        Box::pin(async move {
            let found = self.read(key, None).await?;
            Ok(found.kvs().first().and_then(|kv| entry(&self.prefix, kv)))
        })
    }

    fn range(
        &self,
        prefix: &str,
        from: &str,
        limit: usize,
        revision: Revision,
    ) -> RegistryFuture<'_, Page> {
        self.scan(Scan {
            prefix,
            from,
            limit,
            revision,
            changed_since: 0,
            keys_only: false,
        })
    }

    fn scan(&self, scan: Scan<'_>) -> RegistryFuture<'_, Page> {
        let start = self.full(scan.prefix.max(scan.from));
        let end = end_of(&self.full(scan.prefix));
        let revision = scan.revision;
        let mut options = GetOptions::new()
            .with_range(end)
            .with_limit(i64::try_from(scan.limit).unwrap_or(i64::MAX))
            .with_revision(revision);
        if scan.changed_since > 0 {
            options = options.with_min_mod_revision(scan.changed_since);
        }
        if scan.keys_only {
            options = options.with_keys_only();
        }
        Box::pin(async move {
            let found = self.read(start, Some(options)).await?;
            Ok(self.page(&found, revision))
        })
    }

    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> RegistryFuture<'_, TxnOutcome> {
        let compares: Vec<_> = compares.iter().map(|c| self.compare(c)).collect();
        let ops: Vec<_> = ops.into_iter().map(|op| self.op(op)).collect();
        Box::pin(async move {
            let newest = self.seen.load(Ordering::Acquire);
            let txn = Txn::new().when(compares).and_then(ops);
            let done = self
                .ask(|clients| {
                    let mut kv = clients.kv;
                    async move { kv.txn(txn).await }
                })
                .await?;
            self.check(newest, done.header())?;
            Ok(TxnOutcome {
                succeeded: done.succeeded(),
                revision: done.header().map_or(0, |header| header.revision()),
            })
        })
    }

    fn txn_ops_max(&self) -> usize {
        TXN_OPS_MAX
    }

    fn lease_grant(&self, ttl: Duration) -> RegistryFuture<'_, LeaseId> {
        let seconds = i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        Box::pin(async move {
            let granted = self.ask(|clients| {
                let mut lease = clients.lease;
                async move { lease.grant(seconds.max(1), None).await }
            });
            Ok(granted.await?.id())
        })
    }

    fn lease_keep_alive(&self, id: LeaseId) -> RegistryFuture<'_, ()> {
        Box::pin(async move {
            let kept = self.ask(|clients| {
                let mut lease = clients.lease;
                async move { lease.keep_alive(id).await } // sends one and waits for its answer
            });
            kept.await?;
            Ok(())
        })
    }

    fn lease_revoke(&self, id: LeaseId) -> RegistryFuture<'_, ()> {
        Box::pin(async move {
            let revoked = self.ask(|clients| {
                let mut lease = clients.lease;
                async move { lease.revoke(id).await }
            });
            revoked.await?;
            Ok(())
        })
    }

    fn watch(&self, prefix: &str, from: Revision) -> RegistryFuture<'_, Box<dyn Watch>> {
        let start = self.full(prefix);
        let options = WatchOptions::new().with_prefix().with_start_revision(from);
        Box::pin(async move {
            let watching = self.ask(|clients| {
                let mut watch = clients.watch;
                async move { watch.watch(start, Some(options)).await }
            });
            let watch = EtcdWatch {
                stream: watching.await?,
                prefix: self.prefix.clone(),
                groups: VecDeque::new(),
            };
            Ok(Box::new(watch) as Box<dyn Watch>)
        })
    }

    fn compact(&self, revision: Revision) -> RegistryFuture<'_, ()> {
        Box::pin(async move {
            let compacted = self.ask(|clients| {
                let mut kv = clients.kv;
                async move { kv.compact(revision, None).await }
            });
            compacted.await?;
            Ok(())
        })
    }

    fn close(&self) -> RegistryFuture<'_, ()> {
        Box::pin(async { Ok(()) }) // the connections end with the last handle
    }
}

struct EtcdWatch {
    stream: WatchStream,
    prefix: String,
    /// Received and not handed out, one group a revision.
    groups: VecDeque<Vec<WatchEvent>>,
}

impl EtcdWatch {
    /// Splits a response by revision. etcd never splits a revision over two (we do not ask for
    /// fragments).
    fn take(&mut self, events: &[etcd_client::Event]) {
        let mut revision = 0;
        for event in events {
            let Some(found) = event.kv() else { continue };
            let Some(entry) = entry(&self.prefix, found) else {
                continue;
            };
            if entry.mod_revision != revision {
                revision = entry.mod_revision;
                self.groups.push_back(Vec::new());
            }
            let event = match event.event_type() {
                EventType::Put => WatchEvent::Put(entry),
                EventType::Delete => WatchEvent::Delete {
                    key: entry.key,
                    revision,
                },
            };
            if let Some(group) = self.groups.back_mut() {
                group.push(event);
            }
        }
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self) -> RegistryFuture<'_, Vec<WatchEvent>> {
        Box::pin(async {
            loop {
                if let Some(group) = self.groups.pop_front() {
                    return Ok(group);
                }
                let Some(response) = self.stream.message().await.map_err(translate)? else {
                    return Err(RegistryError::Unavailable("the watch has ended".to_owned()));
                };
                if response.compact_revision() > 0 {
                    return Err(RegistryError::Compacted {
                        oldest: response.compact_revision(),
                    });
                }
                if response.canceled() {
                    let reason = response.cancel_reason().to_owned();
                    return Err(RegistryError::Unavailable(reason));
                }
                self.take(response.events());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_behind_the_prefix_and_nowhere_else() {
        assert_eq!(end_of("/a/"), b"/a0");
        assert_eq!(end_of(""), [0]);
    }
}
