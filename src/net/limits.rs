//! How many connections, and how many bytes of requests, the broker holds at once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::types::ListenerName;

/// Kafka's connection limits, shared by all listeners; they may change.
#[derive(Debug, Clone)]
pub struct ConnectionLimitValues {
    /// `max.connections`
    pub total: i64,
    /// `max.connections.per.ip`
    pub per_ip: i64,
    /// `max.connections.per.ip.overrides`
    pub per_ip_overrides: BTreeMap<IpAddr, i64>,
    /// `listener.name.<name>.max.connections`
    pub per_listener: BTreeMap<ListenerName, i64>,
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
}

impl ConnectionLimits {
    pub fn new(values: ConnectionLimitValues) -> Self {
        let state = LimitState {
            values,
            open: 0,
            by_ip: BTreeMap::new(),
            by_listener: BTreeMap::new(),
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Takes effect for connections to come.
    pub fn set(&self, values: ConnectionLimitValues) {
        self.state.lock().values = values;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_address_by_listener_and_in_all() {
        let [a, b, c] = [1, 2, 3].map(|last| IpAddr::from([127, 0, 0, last]));
        let (inside, outside): (ListenerName, ListenerName) = ("INSIDE".into(), "OUTSIDE".into());
        let values = ConnectionLimitValues {
            total: 4,
            per_ip: 1,
            per_ip_overrides: [(b, 2)].into(),
            per_listener: [(Arc::clone(&outside), 1)].into(),
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
        limits.set(ConnectionLimitValues { total: 3, ..values });
        assert_eq!(limits.admit(a, &inside).unwrap_err(), "max.connections");
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
