//! How many connections, and how many bytes of requests, the broker holds at once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::frame_buffer::FrameBuffers;
use crate::types::ListenerName;

/// Kafka's connection limits, shared by all listeners; they may change.
#[derive(Debug, Clone)]
pub struct ConnectionLimitValues {
    /// `max.connections`
    pub total: i64,
    /// What `ulimit -n` leaves for sockets.
    pub descriptors: i64,
    /// `max.connections.per.ip`
    pub per_ip: i64,
    /// `max.connections.per.ip.overrides`
    pub per_ip_overrides: BTreeMap<IpAddr, i64>,
    /// `listener.name.<name>.max.connections`
    pub per_listener: BTreeMap<ListenerName, i64>,
    /// `max.connection.creation.rate`, per second
    pub creation_rate: i64,
    /// `listener.name.<name>.max.connection.creation.rate`
    pub creation_rate_per_listener: BTreeMap<ListenerName, i64>,
}

/// Counts connections against the limits.
#[derive(Debug)]
pub struct ConnectionLimits {
    state: Mutex<LimitState>,
}

#[derive(Debug)]
struct LimitState {
    values: ConnectionLimitValues,
    open: i64,
    by_ip: BTreeMap<IpAddr, i64>,
    by_listener: BTreeMap<ListenerName, i64>,
    created: Pace,
    created_by_listener: BTreeMap<ListenerName, Pace>,
}

impl ConnectionLimits {
    pub fn new(values: ConnectionLimitValues) -> Self {
        let state = LimitState {
            values,
            open: 0,
            by_ip: BTreeMap::new(),
            by_listener: BTreeMap::new(),
            created: Pace::default(),
            created_by_listener: BTreeMap::new(),
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Takes effect for connections to come.
    pub fn set(&self, values: ConnectionLimitValues) {
        self.state.lock().values = values;
    }

    /// Takes the next connection of a listener up, or says how long it has to wait for its turn.
    /// Connections that come too fast are slowed down, not refused (KIP-612).
    pub fn take_up(&self, listener: &ListenerName, now: Instant) -> Result<(), Duration> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let rate = state.values.creation_rate;
        let rates = &state.values.creation_rate_per_listener;
        let own_rate = rates.get(listener).copied().unwrap_or(i64::MAX);
        if rate >= UNLIMITED_RATE && own_rate >= UNLIMITED_RATE {
            return Ok(());
        }
        let own = state.created_by_listener.entry(Arc::clone(listener));
        let own = own.or_default();
        let wait = state.created.wait(rate, now).max(own.wait(own_rate, now));
        if wait > Duration::ZERO {
            return Err(wait);
        }
        state.created.take(rate, now);
        own.take(own_rate, now);
        Ok(())
    }

    /// Counts a connection in until the result is dropped; the error names the limit that is reached.
    pub fn admit(
        self: &Arc<Self>,
        ip: IpAddr,
        listener: &ListenerName,
    ) -> Result<Admitted, &'static str> {
        let mut state = self.state.lock();
        let from_ip = state.by_ip.get(&ip).copied().unwrap_or(0);
        let on_listener = state.by_listener.get(listener).copied().unwrap_or(0);
        let values = &state.values;
        let ip_max = values
            .per_ip_overrides
            .get(&ip)
            .copied()
            .unwrap_or(values.per_ip);
        let listener_max = values
            .per_listener
            .get(listener)
            .copied()
            .unwrap_or(i64::MAX);
        if state.open >= values.total {
            return Err("max.connections");
        }
        if state.open >= values.descriptors {
            return Err("open files (ulimit -n)");
        }
        if on_listener >= listener_max {
            return Err("max.connections of the listener");
        }
        if from_ip >= ip_max {
            return Err("max.connections.per.ip");
        }
        state.open += 1;
        state.by_ip.insert(ip, from_ip + 1);
        state
            .by_listener
            .insert(Arc::clone(listener), on_listener + 1);
        Ok(Admitted {
            limits: Arc::clone(self),
            ip,
            listener: Arc::clone(listener),
        })
    }
}

/// A rate that nobody reaches, as the default is.
const UNLIMITED_RATE: i64 = 1_000_000;
/// How long something without a turn waits before it looks again: limits change.
const NO_TURN: Duration = Duration::from_secs(1);

/// Lets so many pass per second, and the turns of one second at once after a rest.
#[derive(Debug, Default)]
struct Pace {
    /// When the turns that were taken would have been used up at the rate.
    spent_until: Option<Instant>,
}

impl Pace {
    fn wait(&self, rate: i64, now: Instant) -> Duration {
        let Ok(rate @ 1..) = u32::try_from(rate) else {
            return if rate > 0 { Duration::ZERO } else { NO_TURN };
        };
        let spent = self.spent_until.unwrap_or(now).max(now);
        let after = spent.saturating_duration_since(now) + Duration::from_secs(1) / rate;
        after.saturating_sub(Duration::from_secs(1))
    }

    fn take(&mut self, rate: i64, now: Instant) {
        if let Ok(rate @ 1..) = u32::try_from(rate) {
            let spent = self.spent_until.unwrap_or(now).max(now);
            self.spent_until = Some(spent + Duration::from_secs(1) / rate);
        }
    }
}

/// One counted connection.
#[derive(Debug)]
pub struct Admitted {
    limits: Arc<ConnectionLimits>,
    ip: IpAddr,
    listener: ListenerName,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut state = self.limits.state.lock();
        state.open -= 1;
        if let Some(count) = state.by_listener.get_mut(&self.listener) {
            *count -= 1;
        }
        if let Some(count) = state.by_ip.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                state.by_ip.remove(&self.ip);
            }
        }
    }
}

/// Bytes of requests that may be in memory at once (`queued.max.request.bytes`). A connection takes
/// from it as its bytes arrive, not as it claims them, and gives back with the answer.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    units: Arc<Semaphore>,
    units_max: u32,
}

/// The budget counts in KiB, so that it fits the semaphore.
const UNIT_BYTES: usize = 1024;

impl MemoryBudget {
    pub fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self {
            units: Arc::new(Semaphore::new(units)),
            units_max: units as u32,
        }
    }

    /// Waits until `bytes` more may be held. A request larger than the whole budget gets all of it.
    pub async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        Arc::clone(&self.units)
            .acquire_many_owned(units.min(self.units_max))
            .await
            .ok()
    }
}

/// Requests of all connections that are handled at once (`queued.max.requests`). One that waits for
/// the flush, for records or for its group is in nobody's way, as in Kafka.
#[derive(Debug, Clone)]
pub struct RequestSlots(Arc<Semaphore>);

impl RequestSlots {
    pub fn new(requests: usize) -> Self {
        Self(Arc::new(Semaphore::new(
            requests.clamp(1, Semaphore::MAX_PERMITS),
        )))
    }

    /// A place, if one is free.
    pub(super) fn try_take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }

    /// Waits for a place.
    pub(super) async fn take(self) -> Option<OwnedSemaphorePermit> {
        self.0.acquire_owned().await.ok()
    }
}

/// What all connections share.
#[derive(Debug, Clone)]
pub struct Budgets {
    pub memory: MemoryBudget,
    pub requests: RequestSlots,
    pub frames: FrameBuffers,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Clock, ManualClock};

    #[test]
    fn connections_are_counted_by_address_by_listener_and_in_all() {
        let [a, b, c] = [1, 2, 3].map(|last| IpAddr::from([127, 0, 0, last]));
        let (inside, outside): (ListenerName, ListenerName) = ("INSIDE".into(), "OUTSIDE".into());
        let values = ConnectionLimitValues {
            total: 4,
            descriptors: 100,
            per_ip: 1,
            per_ip_overrides: [(b, 2)].into(),
            per_listener: [(Arc::clone(&outside), 1)].into(),
            creation_rate: i64::MAX,
            creation_rate_per_listener: BTreeMap::new(),
        };
        let limits = Arc::new(ConnectionLimits::new(values.clone()));
        let first = limits.admit(a, &inside).unwrap();
        assert_eq!(
            limits.admit(a, &inside).unwrap_err(),
            "max.connections.per.ip"
        );
        let _second = limits.admit(b, &outside).unwrap();
        let refused = limits.admit(b, &outside).unwrap_err();
        assert_eq!(refused, "max.connections of the listener");
        let _third = limits.admit(b, &inside).unwrap();
        let _fourth = limits.admit(c, &inside).unwrap();
        assert_eq!(limits.admit(a, &inside).unwrap_err(), "max.connections");
        drop(first);
        limits.admit(a, &inside).unwrap();
        let few = ConnectionLimitValues {
            descriptors: 3,
            ..values.clone()
        };
        limits.set(few);
        let refused = limits.admit(a, &inside).unwrap_err();
        assert_eq!(refused, "open files (ulimit -n)");
        limits.set(ConnectionLimitValues { total: 3, ..values });
        assert_eq!(limits.admit(a, &inside).unwrap_err(), "max.connections");
    }

    #[test]
    fn connections_that_come_too_fast_wait_for_their_turn() {
        let (inside, outside): (ListenerName, ListenerName) = ("INSIDE".into(), "OUTSIDE".into());
        let values = |creation_rate, outside_rate| ConnectionLimitValues {
            total: i64::MAX,
            descriptors: i64::MAX,
            per_ip: i64::MAX,
            per_ip_overrides: BTreeMap::new(),
            per_listener: BTreeMap::new(),
            creation_rate,
            creation_rate_per_listener: [(Arc::clone(&outside), outside_rate)].into(),
        };
        let clock = ManualClock::new(0);
        let limits = ConnectionLimits::new(values(4, 2));
        let take = |listener| limits.take_up(listener, clock.now());
        let ms = Duration::from_millis;
        // The turns of one second, then one each quarter of a second.
        assert_eq!([take(&inside), take(&outside), take(&outside)], [Ok(()); 3]);
        assert_eq!(take(&outside), Err(ms(500)), "two a second on this one");
        assert_eq!(take(&inside), Ok(()));
        assert_eq!(take(&inside), Err(ms(250)));
        clock.advance(ms(250));
        assert_eq!(take(&inside), Ok(()));
        assert_eq!(take(&inside), Err(ms(250)));
        // No more is saved up than for one second.
        clock.advance(ms(60_000));
        assert_eq!([(); 4].map(|()| take(&inside)), [Ok(()); 4]);
        assert_eq!(take(&inside), Err(ms(250)));
        limits.set(values(0, 2));
        clock.advance(ms(60_000));
        assert_eq!(take(&inside), Err(ms(1_000)));
        limits.set(values(i64::from(i32::MAX), i64::MAX));
        assert_eq!([(); 100].map(|()| take(&outside)), [Ok(()); 100]);
    }

    #[tokio::test]
    async fn a_request_larger_than_the_budget_waits_for_all_of_it() {
        let budget = MemoryBudget::new(10 * UNIT_BYTES);
        let small = budget.take(1).await.unwrap();
        let large = budget.take(1 << 30);
        tokio::pin!(large);
        assert!(futures_util::poll!(&mut large).is_pending());
        drop(small);
        assert!(large.await.is_some());
    }
}
