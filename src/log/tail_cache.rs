//! The newest batches of all partitions, in memory, under one budget.

use std::collections::{HashMap, VecDeque};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use crate::types::Offset;

/// Bookkeeping of one cached batch, roughly.
const ENTRY_BYTES: usize = 160;
/// Small batches are copied, one behind the other, into blocks of this size. They leave in the order in
/// which they came, and so do the blocks, to be filled again: pieces of all sizes, come and gone, would
/// leave holes in the heap.
const BLOCK_BYTES: usize = 512 << 10;
/// So many of the oldest blocks are asked whether they are free: a slow reader may hold one. All are
/// where there are more than the batches of the cache fill.
const BLOCKS_ASKED: usize = 4;
/// A payload from here on stays in the frame that it came in. Below, the frame's buffer is filled anew at
/// once, while it is in the processor's cache: that saves more than the copy costs.
const COPY_BELOW: usize = 128 << 10;

/// One batch as it is on disk.
#[derive(Debug, Clone)]
pub(crate) struct CachedBatch {
    pub base_offset: Offset,
    pub last_offset: Offset,
    /// Header and payload, or both in one piece (then `payload` is empty).
    pub head: Bytes,
    pub payload: Bytes,
}

impl CachedBatch {
    fn bytes(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    /// What it takes of the budget. A payload that was not copied keeps its frame's buffer, which may
    /// be up to twice as large.
    fn cost(&self) -> usize {
        let payload = match self.payload.len() {
            0 => 0,
            bytes => bytes.next_power_of_two(),
        };
        self.head.len() + payload + ENTRY_BYTES
    }
}

/// What a read from the cache found.
#[derive(Debug)]
pub(crate) struct CachedRun {
    pub pieces: Vec<Bytes>,
    pub bytes: usize,
    pub next_offset: Offset,
}

/// First in, first out over all partitions: the tail of each that is still here has no gap.
#[derive(Debug)]
pub(crate) struct TailCache {
    bytes_max: usize,
    blocks: Mutex<Blocks>,
    state: Mutex<State>,
}

/// Where small batches are copied to.
#[derive(Debug, Default)]
struct Blocks {
    /// The one that is being filled: what is left of it.
    filling: Option<BytesMut>,
    /// Full ones, the oldest first.
    full: VecDeque<BytesMut>,
    /// The next one to be filled.
    spare: Option<BytesMut>,
}

impl Blocks {
    fn copy(&mut self, parts: &[&[u8]]) -> Bytes {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let too_full = |block: &mut BytesMut| block.capacity() < bytes;
        if let Some(full) = self.filling.take_if(too_full) {
            self.full.push_back(full);
        }
        if self.filling.is_none() {
            self.filling = self.spare.take();
        }
        let new = || BytesMut::with_capacity(BLOCK_BYTES);
        let block = self.filling.get_or_insert_with(new);
        for part in parts {
            block.extend_from_slice(part);
        }
        block.split().freeze()
    }

    /// Batches have left: of the blocks that nobody holds a part of one is kept, the rest are returned.
    fn tidy(&mut self, bytes_max: usize) -> Vec<BytesMut> {
        let mut freed = Vec::new();
        let too_many = self.full.len() > bytes_max / BLOCK_BYTES + BLOCKS_ASKED;
        let asked = if too_many { usize::MAX } else { BLOCKS_ASKED };
        let mut number = 0;
        while number < self.full.len().min(asked) {
            if !self.full[number].try_reclaim(BLOCK_BYTES) {
                number += 1;
            } else if let Some(block) = self.full.remove(number) {
                match &self.spare {
                    Some(_) => freed.push(block),
                    None => self.spare = Some(block),
                }
            }
        }
        freed
    }
}

#[derive(Debug, Default)]
struct State {
    logs: HashMap<u64, Tail>,
    /// Which log's oldest batch goes next, with the batch's number in that log.
    order: VecDeque<(u64, u64)>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Tail {
    /// Number of the first batch.
    first: u64,
    batches: VecDeque<(CachedBatch, u64)>,
    /// Bytes ever put in: the difference of two batches' counts is the bytes between them.
    bytes_total: u64,
}

impl TailCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            blocks: Mutex::default(),
            state: Mutex::new(State::default()),
        }
    }

    /// Adds a batch as it was written: `payload` is a part of the frame that it came in, and is copied
    /// if it is small: it would pin all of the frame, and copying costs less than the write did.
    pub(crate) fn add(
        &self,
        log: u64,
        (base_offset, last_offset): (Offset, Offset),
        head: &[u8],
        payload: Bytes,
    ) {
        let (head, payload) = if payload.len() < COPY_BELOW {
            (self.blocks.lock().copy(&[head, &payload]), Bytes::new())
        } else {
            (Bytes::copy_from_slice(head), payload)
        };
        let batch = CachedBatch {
            base_offset,
            last_offset,
            head,
            payload,
        };
        self.push(log, batch);
    }

    /// Adds the batch behind the last one of its log.
    fn push(&self, log: u64, batch: CachedBatch) {
        let cost = batch.cost();
        let mut dropped = Vec::new();
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            if cost > self.bytes_max {
                // It does not fit: what is there would end before it.
                dropped.extend(state.forget(log));
            } else {
                state.bytes += cost;
                while state.bytes > self.bytes_max
                    && let Some(old) = state.pop()
                {
                    dropped.extend(old);
                }
                let tail = state.logs.entry(log).or_default();
                state
                    .order
                    .push_back((log, tail.first + tail.batches.len() as u64));
                tail.bytes_total += batch.bytes() as u64;
                let total = tail.bytes_total;
                tail.batches.push_back((batch, total));
            }
        }
        // Freeing may take long: not under the locks.
        if !dropped.is_empty() {
            drop(dropped);
            let freed = self.blocks.lock().tidy(self.bytes_max);
            drop(freed);
        }
    }

    /// Whole batches from the one that holds `offset`; `None` if that one is not here.
    pub(crate) fn read(
        &self,
        log: u64,
        offset: Offset,
        bytes_max: usize,
        bound: Offset,
        at_least_one: bool,
    ) -> Option<CachedRun> {
        let state = self.state.lock();
        let tail = state.logs.get(&log)?;
        let first = tail.position(offset)?;
        let mut run = CachedRun {
            pieces: Vec::new(),
            bytes: 0,
            next_offset: offset,
        };
        for (batch, _) in tail.batches.iter().skip(first) {
            let fits = run.bytes + batch.bytes() <= bytes_max || (at_least_one && run.bytes == 0);
            if batch.last_offset >= bound || !fits {
                break;
            }
            run.pieces.push(batch.head.clone());
            if !batch.payload.is_empty() {
                run.pieces.push(batch.payload.clone());
            }
            run.bytes += batch.bytes();
            run.next_offset = batch.last_offset + 1;
        }
        Some(run)
    }

    /// Bytes of the batches in `[from, to)`, if both ends are here.
    pub(crate) fn bytes_between(&self, log: u64, from: Offset, to: Offset) -> Option<u64> {
        let state = self.state.lock();
        let tail = state.logs.get(&log)?;
        let (first, total) = tail.batches.get(tail.position(from)?)?;
        let before = total - first.bytes() as u64;
        let end = tail
            .batches
            .partition_point(|(batch, _)| batch.last_offset < to);
        let (last, until) = tail.batches.get(end.checked_sub(1)?)?;
        (last.last_offset + 1 >= to).then_some(until.saturating_sub(before))
    }

    /// Drops all batches of a log.
    pub(crate) fn forget(&self, log: u64) {
        let dropped = self.state.lock().forget(log);
        drop(dropped);
    }
}

impl State {
    /// Takes the oldest batch out, unless its log was forgotten meanwhile.
    fn pop(&mut self) -> Option<Option<CachedBatch>> {
        let (log, number) = self.order.pop_front()?;
        let Some(tail) = self.logs.get_mut(&log) else {
            return Some(None);
        };
        if tail.first != number {
            return Some(None);
        }
        let popped = tail.batches.pop_front();
        tail.first += 1;
        if tail.batches.is_empty() {
            self.logs.remove(&log);
        }
        Some(popped.map(|(batch, _)| {
            self.bytes -= batch.cost();
            batch
        }))
    }

    fn forget(&mut self, log: u64) -> Vec<CachedBatch> {
        let Some(tail) = self.logs.remove(&log) else {
            return Vec::new();
        };
        self.order.retain(|&(other, _)| other != log);
        let batches = tail.batches.into_iter().map(|(batch, _)| batch);
        let batches: Vec<CachedBatch> = batches.collect();
        let bytes: usize = batches.iter().map(CachedBatch::cost).sum();
        self.bytes -= bytes;
        batches
    }
}

impl Tail {
    /// Index of the batch that holds `offset`.
    fn position(&self, offset: Offset) -> Option<usize> {
        let (first, _) = self.batches.front()?;
        if offset < first.base_offset {
            return None;
        }
        let position = self
            .batches
            .partition_point(|(batch, _)| batch.last_offset < offset);
        (position < self.batches.len()).then_some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base_offset: Offset, count: i64, bytes: usize) -> CachedBatch {
        CachedBatch {
            base_offset,
            last_offset: base_offset + count - 1,
            head: Bytes::from_static(&[1; 61]),
            payload: Bytes::from(vec![2; bytes - 61]),
        }
    }

    #[test]
    fn a_read_returns_whole_batches_within_its_limits() {
        let cache = TailCache::new(1 << 20);
        for number in 0..4 {
            cache.push(1, batch(number * 10, 10, 100));
        }
        let read = |offset, bytes_max, bound, at_least_one| {
            let run = cache.read(1, offset, bytes_max, bound, at_least_one)?;
            Some((run.bytes, run.next_offset))
        };
        assert_eq!(read(15, 250, 40, false), Some((200, 30)));
        assert_eq!(read(15, 50, 40, true), Some((100, 20)));
        assert_eq!(read(15, 50, 40, false), Some((0, 15)));
        assert_eq!(read(0, 1_000, 29, true), Some((200, 20)));
        assert_eq!(read(40, 1_000, 99, true), None);
        assert!(cache.read(2, 0, 1, 1, true).is_none());
        assert_eq!(cache.bytes_between(1, 0, 40), Some(400));
        assert_eq!(cache.bytes_between(1, 15, 30), Some(200));
        assert_eq!(cache.bytes_between(1, 15, 50), None);
    }

    #[test]
    fn small_batches_share_a_block_and_large_payloads_stay_where_they_are() {
        let cache = TailCache::new(1 << 20);
        let large = Bytes::from(vec![7; COPY_BELOW]);
        cache.add(1, (0, 0), b"head", Bytes::from_static(b"a"));
        cache.add(1, (1, 1), b"head", Bytes::from_static(b"b"));
        cache.add(1, (2, 2), b"head", large.clone());
        let pieces = cache.read(1, 0, 1 << 20, 9, true).unwrap().pieces;
        assert_eq!(pieces[..3], [&b"heada"[..], b"headb", b"head"]);
        assert_eq!(pieces[3].as_ptr(), large.as_ptr());
        assert_eq!(pieces[1].as_ptr(), pieces[0].as_ptr().wrapping_add(5));
        // A full block is followed by the next one.
        for number in 3..20 {
            let payload = Bytes::from(vec![u8::try_from(number).unwrap(); COPY_BELOW - 1]);
            cache.add(1, (number, number), b"head", payload);
        }
        let read = cache.read(1, 19, 1, 20, true).unwrap();
        assert_eq!(read.pieces[0][4..], vec![19; COPY_BELOW - 1]);
    }

    #[test]
    fn blocks_are_filled_again_once_their_batches_are_gone() {
        let cache = TailCache::new(2 * BLOCK_BYTES);
        let mut held = None;
        for number in 0..1_000 {
            cache.add(1, (number, number), b"head", Bytes::from(vec![1; 10_000]));
            if number == 40 {
                held = cache.read(1, 40, 1, 41, true);
            }
        }
        assert!(cache.blocks.lock().full.len() <= 3);
        assert_eq!(
            held.unwrap().pieces[0][..5],
            *b"head\x01",
            "what is held is not filled again"
        );
        // Slow readers of the oldest blocks keep those, and no others.
        let mut held = Vec::new();
        for number in 1_000..3_000 {
            cache.add(1, (number, number), b"head", Bytes::from(vec![1; 10_000]));
            if number < 1_200 && number % 26 == 0 {
                held.extend(cache.read(1, number, 1, number + 1, true));
            }
        }
        let blocks = cache.blocks.lock().full.len();
        assert!(held.len() > BLOCKS_ASKED && blocks < 20, "{blocks}");
        drop(held);
        // Nor are any kept where only large ones come.
        for number in 0..20 {
            cache.add(
                2,
                (number, number),
                b"head",
                Bytes::from(vec![1; COPY_BELOW]),
            );
        }
        assert!(cache.blocks.lock().full.is_empty());
    }

    #[test]
    fn the_oldest_batches_of_all_logs_go_first() {
        let cost = 61 + 64 + ENTRY_BYTES;
        let cache = TailCache::new(3 * cost);
        cache.push(1, batch(0, 1, 100));
        cache.push(2, batch(0, 1, 100));
        cache.push(1, batch(1, 1, 100));
        cache.push(2, batch(1, 1, 100));
        assert!(cache.read(1, 0, 1, 9, true).is_none());
        assert!(cache.read(1, 1, 1, 9, true).is_some());
        assert!(cache.read(2, 0, 1, 9, true).is_some());
        cache.push(1, batch(2, 1, 100));
        assert!(cache.read(2, 0, 1, 9, true).is_none());
        assert_eq!(cache.state.lock().bytes, 3 * cost);
    }

    #[test]
    fn what_does_not_fit_leaves_no_gap_behind() {
        let cache = TailCache::new(1_000);
        cache.push(1, batch(0, 1, 100));
        cache.push(1, batch(1, 1, 5_000));
        assert!(cache.read(1, 0, 1, 9, true).is_none());
        cache.push(1, batch(2, 1, 100));
        assert!(cache.read(1, 1, 1, 9, true).is_none());
        assert!(cache.read(1, 2, 1, 9, true).is_some());
        cache.forget(1);
        let state = cache.state.lock();
        assert_eq!(
            (state.bytes, state.order.len(), state.logs.len()),
            (0, 0, 0)
        );
    }
}
