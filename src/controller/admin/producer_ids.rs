//! Producer ids: each broker takes a block and gives the ids of it out. What is left of a block at
//! the end of a process is lost, which 2⁶³ ids can bear.

use std::ops::Range;

use bytes::Bytes;

use super::{ATTEMPTS, Admin, contended, unavailable};
use crate::registry::{Compare, Key, KeyValue, Op, RegistryError};
use crate::types::{ApiError, ErrorCode, ProducerId};

/// Kafka's `ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`.
const BLOCK: ProducerId = 1_000;

impl Admin {
    /// A producer id that was never given out, by this broker or another.
    pub async fn allocate_producer_id(&self) -> Result<ProducerId, ApiError> {
        let mut ids = self.producer_ids.lock().await;
        if ids.is_empty() {
            *ids = self.next_block().await?;
        }
        ids.next()
            .ok_or_else(|| ErrorCode::UnknownServerError.into())
    }

    async fn next_block(&self) -> Result<Range<ProducerId>, ApiError> {
        let key = Key::ProducerIdsNext.to_string();
        for _ in 0..ATTEMPTS {
            let found = self.registry.get(&key).await.map_err(unavailable)?;
            let (ids, compare, op) = block_after(found.as_ref()).map_err(unavailable)?;
            let outcome = self.registry.txn(vec![compare], vec![op]).await;
            if outcome.map_err(unavailable)?.succeeded {
                return Ok(ids);
            }
        }
        Err(contended())
    }
}

/// The next block, and what takes it.
pub(in crate::controller) fn block_after(
    found: Option<&KeyValue>,
) -> Result<(Range<ProducerId>, Compare, Op), RegistryError> {
    let key = Key::ProducerIdsNext.to_string();
    let next: ProducerId = match found {
        None => 0,
        // Taking 0 for what cannot be read would give ids out twice.
        Some(entry) => std::str::from_utf8(&entry.value)
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|next| (0..=ProducerId::MAX - BLOCK).contains(next))
            .ok_or_else(|| RegistryError::Storage(format!("{key} is no producer id")))?,
    };
    let compare = Compare::ModRevision {
        key: key.clone(),
        revision: found.map_or(0, |entry| entry.mod_revision),
    };
    let op = Op::Put {
        key,
        value: Bytes::from((next + BLOCK).to_string()),
        lease: 0,
    };
    Ok((next..next + BLOCK, compare, op))
}
