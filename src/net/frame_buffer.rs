//! Memory for large frames, used again and again.
//!
//! A frame of records lives until they are appended. Then its buffer is filled with the next one: no page
//! is faulted in anew, and the heap keeps no holes.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Smaller frames are as well off with the allocator.
pub(super) const LARGE_BYTES: usize = 32 << 10;
/// Free buffers are kept up to so many bytes.
const FREE_BYTES_MAX: usize = 4 << 20;

/// Free buffers, shared by all connections.
#[derive(Debug, Clone, Default)]
pub struct FrameBuffers(Arc<Mutex<Free>>);

#[derive(Debug)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    bytes_max: usize,
}

impl Default for Free {
    fn default() -> Self {
        Self {
            buffers: Vec::new(),
            bytes: 0,
            bytes_max: FREE_BYTES_MAX,
        }
    }
}

impl FrameBuffers {
    /// Keeps free buffers up to so many bytes.
    pub fn keeping(bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Free {
            bytes_max,
            ..Free::default()
        })))
    }

    /// Gives back the memory of free buffers.
    pub fn clear(&self) {
        let freed = {
            let mut free = self.0.lock();
            free.bytes = 0;
            std::mem::take(&mut free.buffers)
        };
        drop(freed); // not under the lock
    }

    /// An empty buffer with room for `bytes`, or for more if there is one. All have powers of two, so that
    /// they fit one another's frames; pages of one that were never written to cost nothing.
    pub(super) fn take(&self, bytes: usize) -> FrameBuffer {
        let capacity = bytes.next_power_of_two();
        let reused = self.0.lock().take(capacity);
        FrameBuffer {
            bytes: reused.unwrap_or_else(|| Vec::with_capacity(capacity)),
            home: Arc::downgrade(&self.0),
        }
    }
}

impl Free {
    fn take(&mut self, capacity: usize) -> Option<Vec<u8>> {
        // Of the smallest that suffice the newest: some of it is in the processor's cache.
        let newest_first = self.buffers.iter().enumerate().rev();
        let (best, _) = newest_first
            .filter(|(_, buffer)| buffer.capacity() >= capacity)
            .min_by_key(|(_, buffer)| buffer.capacity())?;
        let buffer = self.buffers.remove(best);
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// The oldest ones make room: frames of their size came longest ago.
    fn give_back(&mut self, mut buffer: Vec<u8>) -> Vec<Vec<u8>> {
        if buffer.capacity() > self.bytes_max {
            return vec![buffer];
        }
        let mut dropped = Vec::new();
        buffer.clear();
        self.bytes += buffer.capacity();
        self.buffers.push(buffer);
        while self.bytes > self.bytes_max {
            let oldest = self.buffers.remove(0);
            self.bytes -= oldest.capacity();
            dropped.push(oldest);
        }
        dropped
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
            let dropped = home.lock().give_back(bytes);
            drop(dropped); // freeing may take long: not under the lock
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
        assert_eq!(free(&buffers), [131_072]);
        let again = buffers.take(70_000);
        assert_eq!((again.bytes.as_ptr(), again.bytes.len()), (at, 0));
    }

    #[test]
    fn the_smallest_that_suffices_is_taken_and_the_newest_of_them() {
        let buffers = FrameBuffers::default();
        let of = |bytes| buffers.take(bytes);
        let taken = [of(100_000), of(200_000), of(200_000), of(400_000)];
        let at = taken.each_ref().map(|buffer| buffer.bytes.as_ptr());
        drop(taken);
        let again = [of(150_000), of(150_000), of(150_000)];
        let again = again.each_ref().map(|buffer| buffer.bytes.as_ptr());
        assert_eq!(again, [at[2], at[1], at[3]]);
    }

    #[test]
    fn no_more_than_so_many_bytes_are_kept_and_the_newest_of_them() {
        let buffers = FrameBuffers::default();
        drop(buffers.take(100_000));
        let large: Vec<_> = (0..5).map(|_| buffers.take(1 << 20)).collect();
        drop(large);
        assert_eq!(free(&buffers), [1 << 20; FREE_BYTES_MAX >> 20]);
        drop(buffers.take(FREE_BYTES_MAX + 1));
        assert_eq!(free(&buffers), [1 << 20; FREE_BYTES_MAX >> 20]);
        buffers.clear();
        assert!(free(&buffers).is_empty());
        let large = FrameBuffers::keeping(8 << 20);
        drop(large.take(FREE_BYTES_MAX + 1));
        assert_eq!(free(&large), [FREE_BYTES_MAX * 2]);
    }
}
