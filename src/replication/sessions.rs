//! The fetch sessions of this broker: the cache, and a lock around each session.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::fetch_session::{FetchSession, FetchSessionCache, SessionPartitions, Told};
use crate::protocol::fetch::{FetchTopic, ForgottenTopic};
use crate::telemetry::Metrics;
use crate::types::ErrorCode;

/// A session that requests of several connections may reach for.
pub type SharedSession = Arc<Mutex<FetchSession>>;

/// The fetch sessions of this broker.
#[derive(Debug)]
pub struct FetchSessions {
    cache: Mutex<FetchSessionCache<SharedSession>>,
    metrics: Arc<Metrics>,
}

impl FetchSessions {
    /// `slots` is `max.incremental.fetch.session.cache.slots`.
    pub fn new(slots: usize, metrics: Arc<Metrics>) -> Self {
        Self {
            cache: Mutex::new(FetchSessionCache::new(slots)),
            metrics,
        }
    }

    pub fn close(&self, id: i32) {
        let mut cache = self.cache.lock();
        if cache.remove(id).is_some() {
            self.show(&cache);
        }
    }

    fn show(&self, cache: &FetchSessionCache<SharedSession>) {
        let gauge = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let metrics = &self.metrics;
        metrics.incremental_fetch_sessions.set(gauge(cache.len()));
        let partitions = gauge(cache.partition_count());
        metrics.incremental_fetch_partitions.set(partitions);
    }

    /// Begins an incremental request and returns its session. A session that lost its last partition
    /// is closed: `None`, and the request is served without one. FETCH_SESSION_ID_NOT_FOUND,
    /// INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
    pub fn begin(
        &self,
        (id, epoch): (i32, i32),
        uses_topic_ids: bool,
        topics: &[FetchTopic],
        forgotten: &[ForgottenTopic],
        now: Instant,
    ) -> Result<Option<SharedSession>, ErrorCode> {
        let session = self
            .cache
            .lock()
            .get(id)
            .cloned()
            .ok_or(ErrorCode::FetchSessionIdNotFound)?;
        let size = {
            let mut session = session.lock();
            session.begin(epoch, uses_topic_ids, topics, forgotten)?;
            session.partitions.len()
        };
        let mut cache = self.cache.lock();
        if size == 0 {
            cache.remove(id);
            self.show(&cache);
            return Ok(None);
        }
        cache.touch(id, size, now);
        self.show(&cache);
        Ok(Some(session))
    }

    /// Keeps what a full request fetched as a session; returns its id, or 0 if there is no room.
    pub fn create(
        &self,
        (uses_topic_ids, of_follower): (bool, bool),
        partitions: SessionPartitions,
        told: impl IntoIterator<Item = (u64, Told)>,
        now: Instant,
    ) -> i32 {
        let mut cache = self.cache.lock();
        let size = partitions.len();
        let before = cache.len();
        if !cache.make_room(of_follower, size, now) {
            return 0;
        }
        if cache.len() < before {
            self.metrics.incremental_fetch_session_evictions.inc();
        }
        let id = loop {
            let id = random_id();
            if cache.get(id).is_none() {
                break id;
            }
        };
        let session = FetchSession::new(id, uses_topic_ids, partitions, told);
        cache.insert(id, of_follower, size, now, Arc::new(Mutex::new(session)));
        self.show(&cache);
        id
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.cache.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Positive, and not to be guessed by a client that looks for the sessions of others.
fn random_id() -> i32 {
    let random = uuid::Uuid::new_v4().as_u128();
    // The low bits of a random UUID are all random.
    i32::try_from(random & 0x7fff_ffff).unwrap_or(1).max(1)
}
