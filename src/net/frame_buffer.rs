//! Memory for large frames, used again and again.
//!
//! A frame of records lives as long as the tail cache and the answers that show parts of it. Then its
//! buffer is filled with the next one: no page is faulted in anew, and the heap keeps no holes.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Smaller frames are as well off with the allocator.
pub(super) const LARGE_BYTES: usize = 32 << 10;
/// Free buffers are kept up to so many bytes.
const FREE_BYTES_MAX: usize = 2 << 20;
/// A buffer is larger than its frame by no more than this part: what keeps frames counts their bytes.
const SPARE_PART: usize = 8;

/// Free buffers, shared by all connections.
#[derive(Debug, Clone, Default)]
pub struct FrameBuffers(Arc<Mutex<Free>>);

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl FrameBuffers {
    /// An empty buffer with room for `bytes`.
    pub(super) fn take(&self, bytes: usize) -> FrameBuffer {
        let reused = self.0.lock().best_fit(bytes);
        FrameBuffer {
            bytes: reused.unwrap_or_else(|| Vec::with_capacity(rounded(bytes))),
            home: Arc::downgrade(&self.0),
        }
    }
}

/// A size that others round to as well.
fn rounded(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / 2 / SPARE_PART).max(1);
    bytes.div_ceil(step) * step
}

impl Free {
    /// The smallest one that is large enough, and not too large.
    fn best_fit(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fitting = self.buffers.iter().enumerate();
        let fitting = fitting.filter(|(_, buffer)| {
            let capacity = buffer.capacity();
            capacity >= bytes && capacity - bytes <= bytes / SPARE_PART
        });
        let (best, _) = fitting.min_by_key(|(_, buffer)| buffer.capacity())?;
        let buffer = self.buffers.swap_remove(best);
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.bytes + buffer.capacity() <= FREE_BYTES_MAX {
            buffer.clear();
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }
}

/// A buffer that goes back when nobody uses it any more.
#[derive(Debug)]
pub(super) struct FrameBuffer {
    pub(super) bytes: Vec<u8>,
    home: Weak<Mutex<Free>>,
}

impl FrameBuffer {
    /// What is in it, to be shared and sliced without a copy.
    pub(super) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for FrameBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for FrameBuffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            let bytes = std::mem::take(&mut self.bytes);
            home.lock().give_back(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(buffers: &FrameBuffers) -> Vec<usize> {
        let free = buffers.0.lock();
        let mut capacities: Vec<_> = free.buffers.iter().map(Vec::capacity).collect();
        assert_eq!(capacities.iter().sum::<usize>(), free.bytes);
        capacities.sort_unstable();
        capacities
    }

    #[test]
    fn a_buffer_is_used_again_once_its_last_slice_is_gone() {
        let buffers = FrameBuffers::default();
        let mut buffer = buffers.take(100_000);
        buffer.bytes.extend_from_slice(b"a frame");
        let frame = buffer.freeze();
        let slice = frame.slice(2..);
        drop(frame);
        assert!(free(&buffers).is_empty(), "a slice of it is in use");
        assert_eq!(slice, "frame");
        let at = slice.as_ptr().wrapping_sub(2);
        drop(slice);
        assert_eq!(free(&buffers), [106_496]);
        let again = buffers.take(106_000);
        assert_eq!((again.bytes.as_ptr(), again.bytes.len()), (at, 0));
        assert!(free(&buffers).is_empty());
    }

    #[test]
    fn the_best_fit_is_taken_and_none_that_is_much_too_large() {
        let buffers = FrameBuffers::default();
        let all = [800_000, 850_000, 64_000].map(|bytes| buffers.take(bytes));
        drop(all);
        assert_eq!(free(&buffers), [65_536, 851_968, 851_968]);
        assert_eq!(buffers.take(840_000).bytes.capacity(), 851_968);
        assert_eq!(buffers.take(64_001).bytes.capacity(), 65_536);
        assert_eq!(buffers.take(70_000).bytes.capacity(), 73_728);
        let much_smaller = buffers.take(400_000);
        assert_eq!(much_smaller.bytes.capacity(), 425_984);
    }

    #[test]
    fn no_more_is_spared_than_a_part_and_no_more_is_kept_than_so_many_bytes() {
        for bytes in [LARGE_BYTES, 33_000, 65_536, 65_537, 100_000_000] {
            let capacity = rounded(bytes);
            assert!(
                capacity >= bytes && capacity - bytes <= bytes / SPARE_PART,
                "{bytes}"
            );
        }
        let buffers = FrameBuffers::default();
        let large: Vec<_> = (0..5).map(|_| buffers.take(1 << 20)).collect();
        drop(large);
        assert_eq!(free(&buffers), [1 << 20; 2]);
        drop(buffers.take(FREE_BYTES_MAX + 1));
        assert_eq!(free(&buffers), [1 << 20; 2]);
    }
}
