//! A registry whose traffic is counted.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Compare, KeyValue, LeaseId, Op, Page, Registry, RegistryError, RegistryFuture, Revision, Scan,
    TxnOutcome, Watch, WatchEvent,
};
use crate::telemetry::RegistryTraffic;
use crate::time::Clock;

/// Counts what goes to the registry behind it and what comes back, and changes nothing.
#[derive(Debug)]
pub struct Counted {
    inner: Arc<dyn Registry>,
    traffic: Arc<RegistryTraffic>,
    clock: Arc<dyn Clock>,
}

impl Counted {
    pub fn new(
        inner: Arc<dyn Registry>,
        traffic: Arc<RegistryTraffic>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            inner,
            traffic,
            clock,
        }
    }

    /// A call that sends `bytes`.
    fn count<'a, T: 'a>(
        &'a self,
        bytes: usize,
        call: RegistryFuture<'a, T>,
        received: fn(&T) -> usize,
    ) -> RegistryFuture<'a, T> {
        self.traffic.requests.inc();
        self.traffic.bytes_out.add(bytes as u64);
        Box::pin(async move {
            let outcome = call.await;
            match &outcome {
                Ok(answer) => {
                    self.traffic.answers.inc();
                    self.traffic.bytes_in.add(received(answer) as u64);
                }
                Err(RegistryError::Unavailable(_)) => {}
                Err(_) => self.traffic.answers.inc(),
            }
            outcome
        })
    }
}

fn nothing<T>(_: &T) -> usize {
    0
}

fn entry_bytes(entry: &KeyValue) -> usize {
    entry.key.len() + entry.value.len()
}

fn page_bytes(page: &Page) -> usize {
    page.entries.iter().map(entry_bytes).sum()
}

fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Put { key, value, .. } => key.len() + value.len(),
        Op::Delete { key } => key.len(),
        Op::DeletePrefix { prefix } => prefix.len(),
    }
}

impl Registry for Counted {
    fn get(&self, key: &str) -> RegistryFuture<'_, Option<KeyValue>> {
        let received = |found: &Option<KeyValue>| found.as_ref().map_or(0, entry_bytes);
        self.count(key.len(), self.inner.get(key), received)
    }

    fn range(
        &self,
        prefix: &str,
        from: &str,
        limit: usize,
        revision: Revision,
    ) -> RegistryFuture<'_, Page> {
        let call = self.inner.range(prefix, from, limit, revision);
        self.count(prefix.len() + from.len(), call, page_bytes)
    }

    fn scan(&self, scan: Scan<'_>) -> RegistryFuture<'_, Page> {
        let bytes = scan.prefix.len() + scan.from.len();
        self.count(bytes, self.inner.scan(scan), page_bytes)
    }

    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> RegistryFuture<'_, TxnOutcome> {
        let bytes: usize = compares.iter().map(|compare| compare.key().len()).sum();
        let bytes = bytes + ops.iter().map(op_bytes).sum::<usize>();
        let written = ops.len() as u64;
        let sent = self.clock.now();
        let call = self.count(bytes, self.inner.txn(compares, ops), nothing);
        Box::pin(async move {
            let outcome = call.await;
            if matches!(&outcome, Ok(outcome) if outcome.succeeded) {
                self.traffic.keys_written.add(written);
                let took = self.clock.now().saturating_duration_since(sent);
                self.traffic.commit_time.record(took);
            }
            outcome
        })
    }

    fn txn_ops_max(&self) -> usize {
        self.inner.txn_ops_max()
    }

    fn lease_grant(&self, ttl: Duration) -> RegistryFuture<'_, LeaseId> {
        self.count(0, self.inner.lease_grant(ttl), nothing)
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> RegistryFuture<'_, ()> {
        self.count(0, self.inner.lease_keep_alive(lease), nothing)
    }

    fn lease_revoke(&self, lease: LeaseId) -> RegistryFuture<'_, ()> {
        self.count(0, self.inner.lease_revoke(lease), nothing)
    }

    fn watch(&self, prefix: &str, from: Revision) -> RegistryFuture<'_, Box<dyn Watch>> {
        let call = self.count(prefix.len(), self.inner.watch(prefix, from), nothing);
        Box::pin(async move {
            let inner = call.await?;
            let traffic = Arc::clone(&self.traffic);
            Ok(Box::new(CountedWatch { inner, traffic }) as Box<dyn Watch>)
        })
    }

    fn compact(&self, revision: Revision) -> RegistryFuture<'_, ()> {
        self.count(0, self.inner.compact(revision), nothing)
    }

    fn close(&self) -> RegistryFuture<'_, ()> {
        self.inner.close()
    }
}

struct CountedWatch {
    inner: Box<dyn Watch>,
    traffic: Arc<RegistryTraffic>,
}

impl Watch for CountedWatch {
    fn next(&mut self) -> RegistryFuture<'_, Vec<WatchEvent>> {
        Box::pin(async move {
            let events = self.inner.next().await?;
            let bytes = |event: &WatchEvent| match event {
                WatchEvent::Put(entry) => entry_bytes(entry),
                WatchEvent::Delete { key, .. } => key.len(),
            };
            let bytes: usize = events.iter().map(bytes).sum();
            self.traffic.answers.inc();
            self.traffic.bytes_in.add(bytes as u64);
            self.traffic.keys_heard.add(events.len() as u64);
            Ok(events)
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::registry::Embedded;
    use crate::time::SystemClock;

    #[tokio::test]
    async fn what_goes_and_comes_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let path = directory.path().join("registry.redb");
        let embedded = Embedded::open(path, Arc::clone(&clock)).await.unwrap();
        let traffic = Arc::new(RegistryTraffic::default());
        let registry = Counted::new(Arc::new(embedded), Arc::clone(&traffic), clock);
        let mut watch = registry.watch("/a", 1).await.unwrap();
        let absent = Compare::ModRevision {
            key: "/a/1".to_string(),
            revision: 0,
        };
        let put = Op::Put {
            key: "/a/1".to_string(),
            value: Bytes::from_static(b"value"),
            lease: 0,
        };
        let write = || registry.txn(vec![absent.clone()], vec![put.clone()]);
        assert!(write().await.unwrap().succeeded);
        assert!(!write().await.unwrap().succeeded);
        assert_eq!(watch.next().await.unwrap().len(), 1);
        assert!(registry.get("/a/1").await.unwrap().is_some());
        let counts = [
            &traffic.requests,
            &traffic.answers,
            &traffic.bytes_out,
            &traffic.bytes_in,
            &traffic.keys_written,
            &traffic.keys_heard,
        ];
        // A watch, two writes of 4 + 4 + 5 bytes, a read of 4: nine bytes came twice.
        assert_eq!(counts.map(|count| count.get()), [4, 5, 32, 18, 1, 1]);
        assert_eq!(traffic.commit_time.count(), 1);
    }
}
