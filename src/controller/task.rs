//! Runs the controller's machine: on each change of the image and when it asks to be woken. Every broker
//! runs it; who sits in the seat acts.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::election::Origin;
use super::machine::{Change, Machine, MachineConfig, Step, resume};
use super::seat::seat_ops;
use super::session::{SessionHandle, own_key};
use super::writer::{Written, write_changes};
use crate::metadata::{Image, MetadataCache};
use crate::registry::{Compare, Key, Registry, RegistryError};
use crate::telemetry::Metrics;
use crate::time::Clock;
use crate::types::rules::{Rule, holds};

/// Pause after the registry failed, and how long it may grow.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// How long the image may take to show what was written.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// The controller's side of a broker.
#[derive(Debug)]
pub struct Controller {
    registry: Arc<dyn Registry>,
    cache: Arc<MetadataCache>,
    session: SessionHandle,
    clock: Arc<dyn Clock>,
    config: MachineConfig,
    metrics: Arc<Metrics>,
}

impl Controller {
    pub fn new(
        registry: Arc<dyn Registry>,
        cache: Arc<MetadataCache>,
        session: SessionHandle,
        clock: Arc<dyn Clock>,
        config: MachineConfig,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            registry,
            cache,
            session,
            clock,
            config,
            metrics,
        }
    }

    /// Until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            biased; // a simulation repeats itself
            () = stop.cancelled() => {}
            () = self.work() => {}
        }
    }

    async fn work(&self) {
        let mut machine = Machine::new(self.config.clone(), self.clock.now());
        let mut retry = RETRY_MIN;
        loop {
            let image = self.cache.current();
            let step = self.step(&mut machine, &image);
            let acted = match self.act(&image, &step).await {
                Ok(acted) => {
                    retry = RETRY_MIN;
                    acted
                }
                Err(error) => {
                    tracing::warn!(%error, "the controller cannot write; it tries again");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(RETRY_MAX);
                    continue;
                }
            };
            match acted {
                Some(written) => self.see(&image, written).await,
                None => self.rest(&image, &step).await,
            }
        }
    }

    fn step(&self, machine: &mut Machine, image: &Image) -> Step {
        let lease = self.session.lease();
        let mut step = machine.step(image, lease.answering_since(), self.clock.now());
        if !step.spared.is_empty() {
            // Etcd may begin to answer without anything else happening.
            let soon = self.clock.now() + RETRY_MAX;
            step.wake_at = Some(step.wake_at.map_or(soon, |at| at.min(soon)));
        }
        step
    }

    /// Does what there is to do; `None`: nothing.
    async fn act(&self, image: &Image, step: &Step) -> Result<Option<Written>, RegistryError> {
        let lease = self.session.lease();
        let id = self.config.broker;
        let epoch = lease.broker_epoch();
        let is_registered = image.brokers.get(&id).is_some_and(|me| me.epoch == epoch);
        if !lease.is_held() || !is_registered {
            return Ok(None); // R12
        }
        if image.controller.is_none() && image.is_active(id) {
            return self.take_seat().await.map(Some);
        }
        let resumed = match holds(Rule::R5) {
            true => resume(image, id, epoch),
            false => Vec::new(),
        };
        if !resumed.is_empty() {
            tracing::info!(
                partitions = resumed.len(),
                "taking up what this broker leads, in new epochs"
            );
            let registered = match holds(Rule::R2) {
                true => vec![own_key(id, epoch)],
                false => Vec::new(),
            };
            let written = write_changes(self.registry.as_ref(), &registered, &resumed).await?;
            return Ok(Some(written));
        }
        if step.changes.is_empty() {
            return Ok(None);
        }
        announce(&step.changes);
        let seated = match holds(Rule::R11) {
            true => vec![Compare::CreateRevision {
                key: Key::Controller.into(),
                revision: image.controller_registration,
            }],
            false => Vec::new(),
        };
        let begun = self.clock.now();
        let written = write_changes(self.registry.as_ref(), &seated, &step.changes).await?;
        let took = self.clock.now().saturating_duration_since(begun);
        if written.refused == 0 {
            self.count(&step.changes, took);
        }
        tracing::info!(
            partitions = step.changes.len(),
            refused = written.refused,
            took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "partitions changed by the controller"
        );
        Ok(Some(written))
    }

    /// Counts the elections among changes that were made.
    fn count(&self, changes: &[Change], took: Duration) {
        for (_, _, origin) in changes.iter().filter_map(|change| change.elected) {
            self.metrics.leader_elections.record(took);
            if matches!(origin, Origin::Unclean) {
                self.metrics.unclean_leader_elections.inc();
            }
        }
    }

    async fn take_seat(&self) -> Result<Written, RegistryError> {
        let id = self.config.broker;
        let epoch = self.registry.get(&Key::ControllerEpoch.to_string()).await?;
        let (mut compares, ops) = seat_ops(id, self.session.lease_id(), epoch.as_ref());
        compares.push(own_key(id, self.session.lease().broker_epoch()));
        let outcome = self.registry.txn(compares, ops).await?;
        if outcome.succeeded {
            tracing::info!("this broker is the controller");
        }
        Ok(Written {
            revision: outcome.revision,
            refused: usize::from(!outcome.succeeded),
        })
    }

    /// Waits until the image shows what was written, or somebody else's change that was in the way.
    async fn see(&self, image: &Image, written: Written) {
        let shown = self.cache.wait_for(written.revision.max(image.revision));
        let shown = tokio::time::timeout(SEEN_WITHIN, shown).await;
        if shown.is_err() || written.refused > 0 {
            tokio::time::sleep(RETRY_MIN).await;
        }
    }

    async fn rest(&self, image: &Image, step: &Step) {
        let wake = async {
            match step.wake_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let lease = self.session.lease();
        // A lease that is not held yet, or not any more, tells nobody when it is.
        let held = async {
            if lease.is_held() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(RETRY_MIN).await;
        };
        tokio::select! {
            biased;
            () = self.cache.changed_since(image.revision) => {}
            () = wake => {}
            () = held => {}
        }
    }
}

/// Says what an operator should know.
fn announce(changes: &[Change]) {
    for change in changes {
        let Change {
            name, partition, ..
        } = change;
        let value = &change.value;
        match change.elected {
            Some((leader, _, Origin::Unclean)) => tracing::warn!(
                topic = %name, partition, %leader, leader_epoch = value.leader_epoch,
                "UNCLEAN leader election: committed records may be lost \
                 (unclean.leader.election.enable)"
            ),
            Some((leader, _, Origin::LastKnown)) => tracing::warn!(
                topic = %name, partition, %leader, leader_epoch = value.leader_epoch,
                "no replica is known to be whole: the last leader leads again, and what it had not on \
                 disk is lost"
            ),
            Some((leader, _, origin)) => tracing::debug!(
                topic = %name, partition, %leader, ?origin, leader_epoch = value.leader_epoch,
                isr = ?value.isr, "a new leader"
            ),
            None if value.leader < 0 => tracing::warn!(
                topic = %name, partition, elr = ?value.elr, "the partition has no leader"
            ),
            None => tracing::debug!(
                topic = %name, partition, isr = ?value.isr, elr = ?value.elr, "the in-sync replicas changed"
            ),
        }
    }
}
