//! Carries the leaders' proposals to the registry, and brings back what became of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

use super::isr::{Outcome, Proposal};
use super::partition::Partition;
use super::replicas::Replicas;
use crate::metadata::{partition_of, value_of};
use crate::registry::value::{PartitionValue, decode, encode};
use crate::registry::{Compare, Key, Op, Registry, TxnOutcome};
use crate::types::BrokerId;
use crate::types::rules::{Rule, holds};

/// How often partitions are looked at whose replicas are not all in sync.
const UNSETTLED_INTERVAL: Duration = Duration::from_millis(500);
/// Transactions under way at a time.
const CONCURRENCY: usize = 4;
/// What a transaction may take before its outcome counts as unknown.
const TXN_TIMEOUT: Duration = Duration::from_secs(5);

/// Publishes changes of in-sync replicas.
#[derive(Debug)]
pub struct IsrPublisher {
    replicas: Arc<Replicas>,
    registry: Arc<dyn Registry>,
    /// The last transaction was not answered.
    unreachable: AtomicBool,
}

/// A proposal and whose it is.
type Sent = (Arc<Partition>, Proposal);

/// Proposals that go in one transaction.
#[derive(Debug, Default)]
struct Batch {
    proposals: Vec<Sent>,
    compares: Vec<Compare>,
}

impl IsrPublisher {
    pub fn new(replicas: Arc<Replicas>, registry: Arc<dyn Registry>) -> Self {
        Self {
            replicas,
            registry,
            unreachable: AtomicBool::new(false),
        }
    }

    /// Publishes until `stop`. Looks which followers stayed behind as often as Kafka does, twice in
    /// `replica.lag.time.max.ms`.
    pub async fn run(self, stop: CancellationToken) {
        let shared = Arc::clone(self.replicas.shared());
        let lag_max = shared.config.lag_time_max;
        let mut all = tokio::time::interval((lag_max / 2).max(Duration::from_millis(1)));
        all.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut look_at = None;
        loop {
            let again = async {
                match look_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased; // a simulation repeats itself
                () = stop.cancelled() => return,
                _ = all.tick() => {
                    for partition in self.replicas.partitions() {
                        partition.tick_isr();
                    }
                }
                () = again => {
                    look_at = None;
                    self.look_again();
                }
                () = shared.outbox.added.notified() => {}
            }
            if look_at.is_none() && !shared.outbox.is_quiet() {
                look_at = Some((shared.clock.now() + UNSETTLED_INTERVAL.min(lag_max / 2)).into());
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.publish() => {}
            }
        }
    }

    /// Looks at the partitions that are not settled.
    pub(super) fn look_again(&self) {
        for unsettled in self.replicas.shared().outbox.take_unsettled() {
            let (topic, index) = (&unsettled.topic, unsettled.partition);
            if let Ok(partition) = self.replicas.partition(topic, index) {
                partition.tick_isr();
            }
        }
    }

    /// Carries out what has been proposed by now.
    pub async fn publish(&self) {
        let batches = batches(
            self.replicas.shared().outbox.take(),
            self.registry.txn_ops_max(),
        );
        stream::iter(batches)
            .for_each_concurrent(CONCURRENCY, |batch| self.carry_out(batch))
            .await;
    }

    async fn carry_out(&self, batch: Batch) {
        let outcome = self.txn(&batch).await;
        match outcome {
            Some(TxnOutcome {
                succeeded: true,
                revision,
            }) => {
                for (partition, proposal) in &batch.proposals {
                    self.applied(partition, proposal, revision);
                }
            }
            // R4: it may have been applied, and may be yet.
            None => {
                for (partition, proposal) in &batch.proposals {
                    partition.isr_outcome(proposal, Outcome::Unknown);
                }
            }
            Some(_) if batch.proposals.len() == 1 => {
                for (partition, proposal) in &batch.proposals {
                    self.refused(partition, proposal).await;
                }
            }
            // One of them spoils it for all.
            Some(_) => {
                for sent in batch.proposals {
                    for single in batches(vec![sent], usize::MAX) {
                        Box::pin(self.carry_out(single)).await;
                    }
                }
            }
        }
    }

    async fn txn(&self, batch: &Batch) -> Option<TxnOutcome> {
        let puts = batch.proposals.iter().map(|(partition, proposal)| Op::Put {
            key: key(partition),
            value: encode(&value_of(&proposal.to)),
            lease: 0,
        });
        let txn = self.registry.txn(batch.compares.clone(), puts.collect());
        let outcome = match tokio::time::timeout(TXN_TIMEOUT, txn).await {
            Ok(Ok(outcome)) => Some(outcome),
            Ok(Err(error)) => {
                self.unknown(&error.to_string());
                None
            }
            Err(_) => {
                self.unknown("no answer in time");
                None
            }
        };
        if outcome.is_some() && self.unreachable.swap(false, Ordering::Relaxed) {
            tracing::info!("changes of in-sync replicas reach the registry again");
        }
        outcome
    }

    /// Said once, however often it is tried.
    fn unknown(&self, reason: &str) {
        if !self.unreachable.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                reason,
                "the outcome of changes of in-sync replicas is unknown: both sets count until it is known"
            );
        }
    }

    fn applied(&self, partition: &Arc<Partition>, proposal: &Proposal, revision: i64) {
        let metrics = &self.replicas.shared().metrics;
        if !proposal.added.is_empty() {
            metrics.isr_expands.inc();
        }
        if !proposal.removed.is_empty() {
            metrics.isr_shrinks.inc();
        }
        if let Some((successor, _)) = proposal.successor {
            tracing::warn!(
                partition = %partition.topic_partition(), successor = successor.0,
                "gave up a partition whose log directory is offline"
            );
        }
        tracing::info!(
            partition = %partition.topic_partition(),
            isr = ?ids(&proposal.to.isr), elr = ?ids(&proposal.to.elr), revision,
            "in-sync replicas changed"
        );
        partition.isr_outcome(proposal, Outcome::Applied(revision));
    }

    /// A comparison failed. Read after that, the partition tells which: at the revision that was compared
    /// with, a registration is gone, and for good; otherwise it is itself the news.
    async fn refused(&self, partition: &Arc<Partition>, proposal: &Proposal) {
        self.replicas.shared().metrics.failed_isr_updates.inc();
        let key = key(partition);
        let found = tokio::time::timeout(TXN_TIMEOUT, self.registry.get(&key)).await;
        let outcome = match found {
            Ok(Ok(Some(entry))) if entry.mod_revision > proposal.revision => {
                match decode::<PartitionValue>(&entry.value) {
                    Ok(value) => {
                        let replicas = &proposal.to.replicas;
                        let found = partition_of(replicas, &value, entry.mod_revision);
                        partition.isr_learned(proposal, &Arc::new(found));
                    }
                    Err(error) => {
                        tracing::error!(
                            key,
                            error,
                            "the registry holds what this broker cannot use"
                        );
                    }
                }
                // Of no effect where that was learned.
                Outcome::Unknown
            }
            Ok(Ok(_)) => Outcome::Refused,
            Ok(Err(_)) | Err(_) => Outcome::Unknown,
        };
        tracing::info!(
            partition = %partition.topic_partition(), isr = ?ids(&proposal.to.isr), ?outcome,
            "a change of in-sync replicas was refused"
        );
        partition.isr_outcome(proposal, outcome);
    }
}

fn ids(ids: &[BrokerId]) -> Vec<i32> {
    ids.iter().map(|id| id.0).collect()
}

fn key(partition: &Partition) -> String {
    let index = partition.topic_partition().partition;
    Key::Partition(partition.topic_id(), index).to_string()
}

/// As few transactions as their limit allows.
fn batches(proposals: Vec<Sent>, ops_max: usize) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for sent in proposals {
        let compares = compares(&sent);
        let fits = |batch: &&mut Batch| {
            let more = compares.iter().filter(|it| !batch.compares.contains(it));
            batch.compares.len() + more.count() <= ops_max && batch.proposals.len() < ops_max
        };
        let batch = match batches.last_mut().filter(fits) {
            Some(batch) => batch,
            None => {
                batches.push(Batch::default());
                let last = batches.len() - 1;
                &mut batches[last]
            }
        };
        for compare in compares {
            if !batch.compares.contains(&compare) {
                batch.compares.push(compare);
            }
        }
        batch.proposals.push(sent);
    }
    batches
}

fn compares((partition, proposal): &Sent) -> Vec<Compare> {
    let registered = |id: BrokerId, epoch: i64| Compare::CreateRevision {
        key: Key::Broker(id).to_string(),
        revision: epoch,
    };
    let mut compares = Vec::new();
    if holds(Rule::R1) {
        compares.push(Compare::ModRevision {
            key: key(partition),
            revision: proposal.revision,
        });
    }
    if holds(Rule::R2) {
        compares.push(registered(proposal.leader, proposal.registration));
    }
    if holds(Rule::R3) {
        let added = proposal.added.iter().chain(&proposal.successor);
        compares.extend(added.map(|(id, epoch)| registered(*id, *epoch)));
    }
    compares
}
