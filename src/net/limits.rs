//! How many connections, and how many bytes of requests, the broker holds at once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// `max.connections` and `max.connections.per.ip`, shared by all listeners. Both may change.
#[derive(Debug)]
pub struct ConnectionLimits {
    total_max: AtomicI64,
    per_ip_max: AtomicI64,
    open: Mutex<BTreeMap<IpAddr, i64>>,
}

impl ConnectionLimits {
    pub fn new(total_max: i64, per_ip_max: i64) -> Self {
        Self {
            total_max: AtomicI64::new(total_max),
            per_ip_max: AtomicI64::new(per_ip_max),
            open: Mutex::default(),
        }
    }

    /// Takes effect for connections to come.
    pub fn set(&self, total_max: i64, per_ip_max: i64) {
        self.total_max.store(total_max, Ordering::Relaxed);
        self.per_ip_max.store(per_ip_max, Ordering::Relaxed);
    }

    /// Counts a connection in until the result is dropped; the error says which limit is reached.
    pub fn admit(self: &Arc<Self>, ip: IpAddr) -> Result<Admitted, &'static str> {
        let mut open = self.open.lock();
        if open.values().sum::<i64>() >= self.total_max.load(Ordering::Relaxed) {
            return Err("max.connections");
        }
        let from_ip = open.get(&ip).copied().unwrap_or(0);
        if from_ip >= self.per_ip_max.load(Ordering::Relaxed) {
            return Err("max.connections.per.ip");
        }
        open.insert(ip, from_ip + 1);
        Ok(Admitted {
            limits: Arc::clone(self),
            ip,
        })
    }
}

/// One counted connection.
#[derive(Debug)]
pub struct Admitted {
    limits: Arc<ConnectionLimits>,
    ip: IpAddr,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.limits.open.lock();
        if let Some(count) = open.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.ip);
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
    fn connections_are_counted_by_address_and_in_all() {
        let limits = Arc::new(ConnectionLimits::new(2, 1));
        let [a, b, c] = [1, 2, 3].map(|last| IpAddr::from([127, 0, 0, last]));
        let first = limits.admit(a).unwrap();
        assert_eq!(limits.admit(a).unwrap_err(), "max.connections.per.ip");
        let _second = limits.admit(b).unwrap();
        assert_eq!(limits.admit(c).unwrap_err(), "max.connections");
        drop(first);
        let _third = limits.admit(c).unwrap();
        limits.set(10, 10);
        limits.admit(a).unwrap();
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
