//! What a partition is to this broker: one that it leads, alone or with others, or one that it does not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::isr::Isr;
use super::parking::Waiter;
use super::partition::{Partition, State};
use super::waiters::FetchBound;
use crate::config::TopicConfig;
use crate::metadata;
use crate::types::rules::{Rule, holds};
use crate::types::{BrokerId, ErrorCode, LeaderEpoch, NO_OFFSET, Offset};

/// Whether the partition can be used at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Online,
    /// Its topic is gone, or it is no longer here.
    Removed,
    /// Its log directory is gone.
    Offline,
}

/// Whether this broker leads the partition.
#[derive(Debug, Default)]
pub(super) enum Leading {
    #[default]
    No,
    /// Nobody else has a replica: nothing needs fencing.
    Alone,
    With(Box<Isr>),
}

impl Leading {
    pub(super) fn is_so(&self) -> bool {
        !matches!(self, Self::No)
    }
}

/// R5: a broker leads what it was given under the registration that it has now. What it led before it
/// registered (a start, a lost lease) it leads once the registry says so in a new leader epoch; without a
/// registration (0) it leads nothing that others have too.
pub(crate) fn leads(role: &metadata::Partition, me: BrokerId, registration: i64) -> bool {
    let is_current =
        registration != 0 && role.leader_registration == registration || !holds(Rule::R5);
    role.leader == Some(me) && (role.replicas == [me] || is_current)
}

impl Partition {
    /// Takes over what the registry says of the partition.
    pub(super) fn set_role(
        self: &Arc<Self>,
        role: Arc<metadata::Partition>,
        config: Arc<TopicConfig>,
    ) {
        let registration = self.shared.broker_epoch();
        let now = self.shared.clock.now();
        let (reconfigured, lost, begun) = {
            let mut state = self.state.lock();
            let reconfigured = *state.config != *config;
            state.config = Arc::clone(&config);
            let led = state.leading.is_so();
            let begun = state.lead(&role, self.shared.node_id(), registration, now);
            let resigned = led && !state.leading.is_so();
            let lost = state.take_over(role, resigned);
            (reconfigured, lost, begun)
        };
        for waiter in lost {
            waiter.fail(ErrorCode::NotLeaderOrFollower);
        }
        if let Some(log) = self.log.get() {
            if reconfigured {
                log.set_config(config);
            }
            // The in-sync replicas, or what is asked of them, may be fewer.
            self.advance();
        }
        if begun {
            self.begin_term();
        }
        self.settle_isr();
    }

    /// This broker has another registration than before.
    pub(super) fn reconsider_role(self: &Arc<Self>) {
        let (role, config) = {
            let state = self.state.lock();
            (Arc::clone(&state.role), Arc::clone(&state.config))
        };
        self.set_role(role, config);
    }

    /// Notes where the log ends at the beginning of a term, behind whatever the lane still has to append.
    pub(super) fn begin_term(self: &Arc<Self>) {
        self.surely_on_lane(|partition| {
            // A failure is logged where it happens, and met again by whoever asks for the partition.
            if let Ok(log) = partition.open_here() {
                partition.term_begins_at(log.log_end_offset());
            }
        });
    }

    /// Only on the partition's lane, where no append can come between.
    pub(super) fn term_begins_at(&self, log_end: Offset) {
        if let Leading::With(isr) = &mut self.state.lock().leading {
            isr.begin(log_end);
        }
    }

    /// The topic is gone: whoever waits hears of it, and the log of this partition is not opened again.
    pub(super) fn remove(&self) {
        self.fail(Health::Removed, ErrorCode::UnknownTopicOrPartition);
    }

    /// The log directory is gone.
    pub(super) fn take_offline(&self) {
        self.fail(Health::Offline, ErrorCode::KafkaStorageError);
        self.shared.failures.fetch_add(1, Ordering::AcqRel);
        self.settle_isr(); // somebody else is to lead
    }

    fn fail(&self, health: Health, error: ErrorCode) {
        let waiters = {
            let mut state = self.state.lock();
            if state.health != Health::Removed {
                state.health = health;
            }
            state.waiters.drain()
        };
        for waiter in waiters {
            waiter.fail(error);
        }
    }
}

impl State {
    /// Becomes what `role` says. True if a term with others begins.
    pub(super) fn lead(
        &mut self,
        role: &Arc<metadata::Partition>,
        me: BrokerId,
        registration: i64,
        now: Instant,
    ) -> bool {
        let leads = leads(role, me, registration);
        let is_alone = role.replicas == [me];
        let before = std::mem::take(&mut self.leading);
        self.leading = match before {
            _ if !leads => Leading::No,
            _ if is_alone => Leading::Alone,
            Leading::With(mut isr) if isr.committed().leader_epoch == role.leader_epoch => {
                isr.learn(now, role);
                Leading::With(isr)
            }
            _ => {
                self.leading = Leading::With(Box::new(Isr::new(me, Arc::clone(role), now)));
                return true;
            }
        };
        false
    }

    /// Returns those whose wait is over.
    fn take_over(&mut self, role: Arc<metadata::Partition>, resigned: bool) -> Vec<Waiter> {
        let before = std::mem::replace(&mut self.role, role);
        if resigned || self.role.leader != before.leader {
            self.waiters.drain()
        } else if self.role.leader_epoch != before.leader_epoch {
            // Fetches check their epoch again; whoever produced waits on under the same leader.
            let is_fetch = |waiter: &Waiter| matches!(waiter, Waiter::Fetch { .. });
            self.waiters.take(is_fetch)
        } else {
            Vec::new()
        }
    }

    pub(super) fn check_health(&self) -> Result<(), ErrorCode> {
        match self.health {
            Health::Online => Ok(()),
            Health::Removed => Err(ErrorCode::UnknownTopicOrPartition),
            Health::Offline => Err(ErrorCode::KafkaStorageError),
        }
    }

    /// FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
    pub(super) fn check_leader(&self, current: LeaderEpoch) -> Result<(), ErrorCode> {
        self.check_health()?;
        if current >= 0 && current < self.role.leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if current > self.role.leader_epoch {
            return Err(ErrorCode::UnknownLeaderEpoch);
        }
        if !self.leading.is_so() {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        Ok(())
    }

    pub(super) fn bound(&self, bound: FetchBound) -> Offset {
        match bound {
            FetchBound::LogEnd => self.log_end,
            FetchBound::HighWatermark | FetchBound::LastStable => self.high_watermark,
            FetchBound::LowWatermark | FetchBound::Flushed => NO_OFFSET,
        }
    }
}
