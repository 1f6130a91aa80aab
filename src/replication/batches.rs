//! The log as its own broker reads it: the coordinators load their state from it.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;

use super::partition::Partition;
use super::read::ReadRequest;
use super::waiters::FetchBound;
use crate::log::{LogError, LogSlice};
use crate::types::{ErrorCode, NO_EPOCH, NO_OFFSET, Offset};

impl Partition {
    /// Reads whole batches from the one that holds `offset`, up to the end of the log, acknowledged or
    /// not; at least one if there is one. Comes after every append that was asked for before.
    pub fn read_batches(
        self: &Arc<Self>,
        offset: Offset,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<Bytes, ErrorCode>> {
        let request = ReadRequest {
            offset,
            bytes_max,
            bound: FetchBound::LogEnd,
            at_least_one: true,
            current_leader_epoch: NO_EPOCH,
            last_fetched_epoch: NO_EPOCH,
            replica: None,
            replica_log_start: NO_OFFSET,
        };
        self.on_log(move |open| {
            let read = open.read(request)?;
            let bytes = copied(read.slice);
            bytes.map_err(|error| open.partition.storage_error("read the log", &error))
        })
    }
}

fn copied(slice: LogSlice) -> Result<Bytes, LogError> {
    match slice {
        LogSlice::Memory(mut chunks) if chunks.len() == 1 => Ok(chunks.remove(0)),
        LogSlice::Memory(chunks) => {
            let mut all = BytesMut::new();
            for chunk in chunks {
                all.extend_from_slice(&chunk);
            }
            Ok(all.freeze())
        }
        LogSlice::File(range) => {
            let length = usize::try_from(range.bytes).unwrap_or(usize::MAX);
            let mut bytes = vec![0; length];
            range.file.read_exact_at(&mut bytes, range.position)?;
            Ok(bytes.into())
        }
    }
}
