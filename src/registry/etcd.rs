//! The registry of a cluster: etcd, version 3.4 or later.
//!
//! etcd-client waits without end by default. Here every call has a deadline, and a connection that
//! no longer answers is found by HTTP/2 pings, so that a watch on it ends with an error.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{
    Client, Compare as EtcdCompare, CompareOp, ConnectOptions, DeleteOptions, Error, EventType,
    GetOptions, KvClient, LeaseClient, PutOptions, Txn, TxnOp, WatchClient, WatchOptions,
    WatchStream,
};

use super::{
    Compare, KeyValue, LeaseId, Op, Page, Registry, RegistryError, RegistryFuture, Revision,
    TxnOutcome, Watch, WatchEvent,
};

/// etcd's own default for `--max-txn-ops`.
const TXN_OPS_MAX: usize = 128;
/// Above gRPC's default of 4 MiB: the deletion of a topic with very many partitions is one message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
const PING_INTERVAL: Duration = Duration::from_secs(3);
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Where etcd is and how long to wait for it.
#[derive(Debug, Clone)]
pub struct EtcdConfig {
    /// `host:port` or `http://host:port`.
    pub endpoints: Vec<String>,
    /// Stands before every key; no slash at its end.
    pub prefix: String,
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
}

impl EtcdConfig {
    pub fn new(endpoints: Vec<String>, prefix: impl Into<String>) -> Self {
        Self {
            endpoints,
            prefix: prefix.into(),
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(5),
        }
    }
}

/// The handle of etcd.
pub struct Etcd {
    kv: KvClient,
    lease: LeaseClient,
    watch: WatchClient,
    prefix: String,
    request_timeout: Duration,
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
        let options = ConnectOptions::new()
            .with_connect_timeout(config.connect_timeout)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(true)
            .with_tcp_keepalive(PING_INTERVAL)
            .with_require_leader(true);
        let connecting = Client::connect(&config.endpoints, Some(options));
        let client = within(config.request_timeout, connecting).await?;
        let etcd = Self {
            kv: client
                .kv_client()
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
            lease: client.lease_client(),
            watch: client
                .watch_client()
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
            prefix: config.prefix.trim_end_matches('/').to_owned(),
            request_timeout: config.request_timeout,
        };
        etcd.get("/").await?;
        Ok(etcd)
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Waits for an answer, but not for ever.
    async fn ask<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, RegistryError> {
        within(self.request_timeout, call).await
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

async fn within<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, RegistryError> {
    match tokio::time::timeout(timeout, call).await {
        Ok(answer) => answer.map_err(translate),
        Err(_) => Err(RegistryError::Unavailable(format!(
            "no answer within {timeout:?}"
        ))),
    }
}

/// Sorts etcd's errors by what the caller can do.
fn translate(error: Error) -> RegistryError {
    if let Error::GRpcStatus(status) = &error {
        let message = status.message();
        if message.contains("has been compacted") {
            return RegistryError::Compacted { oldest: 0 };
        }
        if message.contains("lease not found") {
            return RegistryError::LeaseNotFound;
        }
        // etcd prefixes what it refuses for good with "etcdserver: "; its own timeouts, a missing
        // leader and the transport's faults can pass.
        let passing = [
            "timed out",
            "no leader",
            "leader changed",
            "stopped",
            "too many requests",
        ];
        if message.contains("etcdserver: ") && !passing.iter().any(|part| message.contains(part)) {
            return RegistryError::Storage(message.to_owned());
        }
    }
    match error {
        // Its own text repeats itself and the addresses at length.
        Error::GRpcStatus(status) => {
            RegistryError::Unavailable(format!("{}: {}", status.code(), status.message()))
        }
        Error::LeaseKeepAliveError(message) if message.contains("not found") => {
            RegistryError::LeaseNotFound
        }
        Error::InvalidArgs(_) | Error::InvalidUri(_) => RegistryError::Storage(error.to_string()),
        error => RegistryError::Unavailable(error.to_string()),
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
        let mut kv = self.kv.clone();
        Box::pin(async move {
            let found = self.ask(kv.get(key, None)).await?;
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
        let start = self.full(prefix.max(from));
        let end = end_of(&self.full(prefix));
        let options = GetOptions::new()
            .with_range(end)
            .with_limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .with_revision(revision);
        let mut kv = self.kv.clone();
        Box::pin(async move {
            let found = self.ask(kv.get(start, Some(options))).await?;
            let newest = found.header().map_or(0, |header| header.revision());
            let entries: Vec<_> = found
                .kvs()
                .iter()
                .filter_map(|kv| entry(&self.prefix, kv))
                .collect();
            let last = found.kvs().last().filter(|_| found.more());
            let next_key = last.map(|kv| {
                let key = String::from_utf8_lossy(kv.key());
                let key = key.strip_prefix(&self.prefix).unwrap_or(&key);
                format!("{key}\0")
            });
            Ok(Page {
                entries,
                revision: if revision == 0 { newest } else { revision },
                next_key,
            })
        })
    }

    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> RegistryFuture<'_, TxnOutcome> {
        let compares: Vec<_> = compares.iter().map(|c| self.compare(c)).collect();
        let ops: Vec<_> = ops.into_iter().map(|op| self.op(op)).collect();
        let mut kv = self.kv.clone();
        Box::pin(async move {
            let txn = Txn::new().when(compares).and_then(ops);
            let done = self.ask(kv.txn(txn)).await?;
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
        let mut lease = self.lease.clone();
        Box::pin(async move { Ok(self.ask(lease.grant(seconds.max(1), None)).await?.id()) })
    }

    fn lease_keep_alive(&self, id: LeaseId) -> RegistryFuture<'_, ()> {
        let mut lease = self.lease.clone();
        Box::pin(async move {
            self.ask(lease.keep_alive(id)).await?; // sends one and waits for its answer
            Ok(())
        })
    }

    fn lease_revoke(&self, id: LeaseId) -> RegistryFuture<'_, ()> {
        let mut lease = self.lease.clone();
        Box::pin(async move {
            self.ask(lease.revoke(id)).await?;
            Ok(())
        })
    }

    fn watch(&self, prefix: &str, from: Revision) -> RegistryFuture<'_, Box<dyn Watch>> {
        let start = self.full(prefix);
        let options = WatchOptions::new().with_prefix().with_start_revision(from);
        let mut watch = self.watch.clone();
        Box::pin(async move {
            let stream = self.ask(watch.watch(start, Some(options))).await?;
            let watch = EtcdWatch {
                stream,
                prefix: self.prefix.clone(),
                groups: VecDeque::new(),
            };
            Ok(Box::new(watch) as Box<dyn Watch>)
        })
    }

    fn compact(&self, revision: Revision) -> RegistryFuture<'_, ()> {
        let mut kv = self.kv.clone();
        Box::pin(async move {
            self.ask(kv.compact(revision, None)).await?;
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
