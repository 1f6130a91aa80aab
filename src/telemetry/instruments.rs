//! Counters, gauges and histograms that cost an atomic addition.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Only ever grows.
#[derive(Debug, Default)]
pub struct Counter(pub(super) AtomicU64);

impl Counter {
    pub fn inc(&self) {
        self.add(1);
    }

    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    pub fn add(&self, change: i64) {
        self.0.fetch_add(change, Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// Buckets per doubling of the value.
const STEPS: u32 = 4;
/// Values from 0 to 2^36 microseconds (19 hours).
const BUCKETS: usize = (36 * STEPS + 1) as usize;
/// Old values lose half of their weight in quantiles after this time, at the next scrape.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// Durations: exact count and sum since the start, quantiles (within 10 %) of about the last minutes.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64; BUCKETS]>,
    count: Counter,
    sum_us: Counter,
    decayed: Mutex<Option<Instant>>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: Box::new([const { AtomicU64::new(0) }; BUCKETS]),
            count: Counter::default(),
            sum_us: Counter::default(),
            decayed: Mutex::default(),
        }
    }
}

/// What a scrape sees of a histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub count: u64,
    pub sum: Duration,
    /// Of [`QUANTILES`], in milliseconds.
    pub quantiles_ms: [f64; QUANTILES.len()],
}

/// The quantiles that Kafka's metrics have.
pub const QUANTILES: [f64; 6] = [0.5, 0.75, 0.95, 0.98, 0.99, 0.999];

impl Histogram {
    pub fn record(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get(bucket_of(us)) {
            bucket.fetch_add(1, Relaxed);
        }
        self.count.inc();
        self.sum_us.add(us);
    }

    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Reads everything; `now` lets old values fade.
    pub fn summary(&self, now: Instant) -> Summary {
        self.decay(now);
        let weights: Vec<u64> = self
            .buckets
            .iter()
            .map(|bucket| bucket.load(Relaxed))
            .collect();
        let total: u64 = weights.iter().sum();
        let mut quantiles_ms = [0.0; QUANTILES.len()];
        for (value, quantile) in quantiles_ms.iter_mut().zip(QUANTILES) {
            *value = quantile_us(&weights, total, quantile) / 1_000.0;
        }
        Summary {
            count: self.count.get(),
            sum: Duration::from_micros(self.sum_us.get()),
            quantiles_ms,
        }
    }

    fn decay(&self, now: Instant) {
        let mut decayed = self.decayed.lock();
        let last = *decayed.get_or_insert(now);
        let half_lives = now.saturating_duration_since(last).as_secs() / HALF_LIFE.as_secs();
        if half_lives == 0 {
            return;
        }
        *decayed = Some(now);
        let shift = u32::try_from(half_lives.min(63)).unwrap_or(63);
        for bucket in self.buckets.iter() {
            let weight = bucket.load(Relaxed);
            // Keeps what is recorded meanwhile.
            bucket.fetch_sub(weight - (weight >> shift), Relaxed);
        }
    }
}

fn bucket_of(us: u64) -> usize {
    if us == 0 {
        return 0;
    }
    let doublings = us.ilog2();
    // The two bits behind the highest one.
    let step = match doublings {
        0 => 0,
        1 => (us & 1) << 1,
        _ => (us >> (doublings - 2)) & 3,
    };
    let index = 1 + (doublings * STEPS) as usize + step as usize;
    index.min(BUCKETS - 1)
}

/// The middle of a bucket.
fn value_of(bucket: usize) -> f64 {
    if bucket == 0 {
        return 0.0;
    }
    let doublings = ((bucket - 1) / STEPS as usize) as i32;
    let step = ((bucket - 1) % STEPS as usize) as f64;
    let width = 0.25 * 2f64.powi(doublings);
    2f64.powi(doublings) + width * step + width / 2.0
}

fn quantile_us(weights: &[u64], total: u64, quantile: f64) -> f64 {
    let rank = (total as f64 * quantile).ceil().max(1.0);
    let mut seen = 0u64;
    for (bucket, weight) in weights.iter().enumerate() {
        seen += weight;
        if *weight > 0 && seen as f64 >= rank {
            return value_of(bucket);
        }
    }
    0.0
}

/// The rate of a counter between scrapes, at least ten seconds apart.
#[derive(Debug, Default)]
pub(super) struct Rate(Mutex<Option<(Instant, u64, f64)>>);

impl Rate {
    pub(super) fn per_second(&self, now: Instant, count: u64) -> f64 {
        let mut last = self.0.lock();
        let (since, before, rate) = last.unwrap_or((now, count, 0.0));
        let elapsed = now.saturating_duration_since(since);
        if last.is_some() && elapsed < Duration::from_secs(10) {
            return rate;
        }
        let rate = match elapsed.as_secs_f64() {
            0.0 => 0.0,
            seconds => count.saturating_sub(before) as f64 / seconds,
        };
        *last = Some((now, count, rate));
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Clock, ManualClock};

    #[test]
    fn quantiles_are_within_an_eighth_and_counts_exact() {
        let clock = ManualClock::new(0);
        let histogram = Histogram::default();
        for us in 1..=1_000u64 {
            histogram.record(Duration::from_micros(us * 10));
        }
        let summary = histogram.summary(clock.now());
        assert_eq!(summary.count, 1_000);
        assert_eq!(summary.sum, Duration::from_micros(5_005_000));
        for (got, quantile) in summary.quantiles_ms.iter().zip(QUANTILES) {
            let exact = quantile * 10.0;
            assert!((got - exact).abs() / exact < 0.125, "{quantile}: {got}");
        }
    }

    #[test]
    fn old_values_fade_from_quantiles_and_stay_in_the_count() {
        let clock = ManualClock::new(0);
        let histogram = Histogram::default();
        for _ in 0..1_000 {
            histogram.record(Duration::from_secs(1));
        }
        histogram.summary(clock.now());
        clock.advance(Duration::from_secs(60 * 20));
        histogram.summary(clock.now());
        histogram.record(Duration::from_millis(1));
        let summary = histogram.summary(clock.now());
        assert_eq!(summary.count, 1_001);
        assert!(summary.quantiles_ms[5] < 1.2, "{summary:?}");
    }

    #[test]
    fn every_value_falls_into_a_bucket_near_it() {
        for us in [0, 1, 2, 3, 4, 5, 7, 8, 1_000, 123_456, 1 << 35] {
            let near = value_of(bucket_of(us));
            assert!(
                (near - us as f64).abs() <= us as f64 * 0.25 + 0.5,
                "{us}: {near}"
            );
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_rate_is_taken_between_scrapes() {
        let clock = ManualClock::new(0);
        let rate = Rate::default();
        assert_eq!(rate.per_second(clock.now(), 50), 0.0);
        clock.advance(Duration::from_secs(5));
        assert_eq!(rate.per_second(clock.now(), 60), 0.0);
        clock.advance(Duration::from_secs(5));
        assert_eq!(rate.per_second(clock.now(), 150), 10.0);
        assert_eq!(rate.per_second(clock.now(), 999), 10.0);
    }
}
