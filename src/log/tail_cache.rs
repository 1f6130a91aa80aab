//! The newest batches of all partitions, under one budget: where they lie, and the small ones themselves.

use std::collections::{HashMap, VecDeque};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use crate::types::Offset;

/// Bookkeeping of one cached batch, roughly.
const ENTRY_BYTES: usize = 160;
/// Of a batch that is not copied this part counts: as much as is known here may well be in the page cache.
const PLACE_DIVISOR: usize = 16;
/// Batches are copied, one behind the other, into blocks of this size. They leave in the order in which
/// they came, and so do the blocks, to be filled again. The frames that they came in are filled again at
/// once, while they are in the processor's cache: that saves what the copy costs, whereas frames that
/// stay, of all sizes, would have new ones mapped and faulted in all the time.
const BLOCK_BYTES: usize = 512 << 10;
/// So many of the oldest blocks are asked whether they are free: a slow reader may hold one. All are
/// where there are more than the batches of the cache fill.
const BLOCKS_ASKED: usize = 4;

/// Where a batch begins on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Base offset of its segment.
    pub segment: Offset,
    pub position: u64,
}

/// A batch that was written behind the last one of its log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WrittenBatch<'a> {
    pub base_offset: Offset,
    pub last_offset: Offset,
    pub place: Place,
    pub head: &'a [u8],
    pub payload: &'a [u8],
}

/// One batch as it is on disk.
#[derive(Debug, Clone)]
struct CachedBatch {
    base_offset: Offset,
    last_offset: Offset,
    place: Place,
    bytes: usize,
    copy: Option<Copied>,
}

#[derive(Debug, Clone)]
struct Copied {
    first: Bytes,
    /// What lies in the next blocks.
    rest: Vec<Bytes>,
}

impl CachedBatch {
    /// What it takes of the budget.
    fn cost(&self) -> usize {
        cost(self.bytes, self.copy.is_some())
    }
}

fn cost(bytes: usize, with_copy: bool) -> usize {
    let divisor = if with_copy { 1 } else { PLACE_DIVISOR };
    ENTRY_BYTES + bytes / divisor
}

/// What a read from the cache found: batches of one segment, one behind the other.
#[derive(Debug)]
pub(crate) struct CachedRun {
    pub place: Place,
    pub bytes: usize,
    pub next_offset: Offset,
    /// `None` where a batch was not copied.
    pub pieces: Option<Vec<Bytes>>,
}

/// First in, first out over all partitions: the tail of each that is still here has no gap.
#[derive(Debug)]
pub(crate) struct TailCache {
    bytes_max: usize,
    blocks: Mutex<Blocks>,
    state: Mutex<State>,
}

/// Where batches are copied to.
#[derive(Debug, Default)]
struct Blocks {
    /// The one that is being filled: what is left of it.
    filling: Option<BytesMut>,
    /// Full ones, the oldest first.
    full: VecDeque<BytesMut>,
    /// The next ones to be filled.
    spare: Vec<BytesMut>,
}

impl Blocks {
    /// Room for the next `bytes` of a batch, or for as many of them as the block takes.
    fn room(&mut self, bytes: usize) -> BytesMut {
        let is_full = |block: &mut BytesMut| block.capacity() == 0;
        if let Some(full) = self.filling.take_if(is_full) {
            self.full.push_back(full);
        }
        let spare = &mut self.spare;
        let next = || {
            spare
                .pop()
                .unwrap_or_else(|| BytesMut::with_capacity(BLOCK_BYTES))
        };
        let block = self.filling.get_or_insert_with(next);
        let behind = block.split_off(bytes.min(block.capacity()));
        std::mem::replace(block, behind)
    }

    /// Batches have left. Of the blocks that nobody holds a part of as many are kept as the cache fills
    /// (and one that batches are leaving, and one for those that are on their way), the rest are returned.
    fn tidy(&mut self, bytes_max: usize) -> Vec<BytesMut> {
        let mut freed = Vec::new();
        let filled = bytes_max / BLOCK_BYTES;
        let too_many = self.full.len() > filled + BLOCKS_ASKED;
        let asked = if too_many { usize::MAX } else { BLOCKS_ASKED };
        let mut number = 0;
        while number < self.full.len().min(asked) {
            if !self.full[number].try_reclaim(BLOCK_BYTES) {
                number += 1;
            } else if let Some(block) = self.full.remove(number) {
                if self.full.len() + self.spare.len() < filled + 2 {
                    self.spare.push(block);
                } else {
                    freed.push(block);
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

    /// Adds a batch, or only where it lies.
    pub(crate) fn add(&self, log: u64, written: &WrittenBatch<'_>, with_copy: bool) {
        let bytes = written.head.len() + written.payload.len();
        if !self.make_room(log, cost(bytes, with_copy)) {
            return;
        }
        let batch = CachedBatch {
            base_offset: written.base_offset,
            last_offset: written.last_offset,
            place: written.place,
            bytes,
            copy: with_copy.then(|| self.copy_of(written)),
        };
        self.push(log, batch);
    }

    fn copy_of(&self, written: &WrittenBatch<'_>) -> Copied {
        let mut parts = [written.head, written.payload];
        let first = self.copy(&mut parts);
        let mut rest = Vec::new();
        while parts.iter().any(|part| !part.is_empty()) {
            rest.push(self.copy(&mut parts));
        }
        Copied { first, rest }
    }

    /// Copies as much as one block takes, and takes it off the parts.
    fn copy(&self, parts: &mut [&[u8]; 2]) -> Bytes {
        // Copied after the lock: others copy at the same time.
        let mut room = self.blocks.lock().room(parts[0].len() + parts[1].len());
        for part in parts {
            let (now, later) = part.split_at(part.len().min(room.capacity() - room.len()));
            room.extend_from_slice(now);
            *part = later;
        }
        room.freeze()
    }

    /// Takes out old batches until a new one fits. False if none of its size does: then what is there of
    /// its log goes, since it would end before it.
    fn make_room(&self, log: u64, cost: usize) -> bool {
        let fits = cost <= self.bytes_max;
        let mut dropped = Vec::new();
        {
            let mut state = self.state.lock();
            if fits {
                state.bytes += cost;
                while state.bytes > self.bytes_max
                    && let Some(old) = state.pop()
                {
                    dropped.extend(old);
                }
            } else {
                dropped.extend(state.forget(log));
            }
        }
        // Freeing may take long: not under the locks.
        if !dropped.is_empty() {
            drop(dropped);
            let freed = self.blocks.lock().tidy(self.bytes_max);
            drop(freed);
        }
        fits
    }

    /// The batch has been paid for.
    fn push(&self, log: u64, batch: CachedBatch) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let tail = state.logs.entry(log).or_default();
        let number = tail.first + tail.batches.len() as u64;
        state.order.push_back((log, number));
        tail.bytes_total += batch.bytes as u64;
        let total = tail.bytes_total;
        tail.batches.push_back((batch, total));
    }

    /// Whole batches from the one that holds `offset`, to the end of its segment; `None` if that one is not
    /// here.
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
        let mut batches = tail.batches.range(tail.position(offset)?..).peekable();
        let mut run = CachedRun {
            place: batches.peek()?.0.place,
            bytes: 0,
            next_offset: offset,
            pieces: Some(Vec::new()),
        };
        for (batch, _) in batches {
            let fits = run.bytes + batch.bytes <= bytes_max || (at_least_one && run.bytes == 0);
            let elsewhere = batch.place.segment != run.place.segment;
            if batch.last_offset >= bound || !fits || elsewhere {
                break;
            }
            match (&mut run.pieces, &batch.copy) {
                (Some(pieces), Some(copy)) => {
                    pieces.push(copy.first.clone());
                    pieces.extend(copy.rest.iter().cloned());
                }
                (pieces, _) => *pieces = None,
            }
            run.bytes += batch.bytes;
            run.next_offset = batch.last_offset + 1;
        }
        Some(run)
    }

    /// Bytes of the batches in `[from, to)`, if both ends are here.
    pub(crate) fn bytes_between(&self, log: u64, from: Offset, to: Offset) -> Option<u64> {
        let state = self.state.lock();
        let tail = state.logs.get(&log)?;
        let (first, total) = tail.batches.get(tail.position(from)?)?;
        let before = total - first.bytes as u64;
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

    /// Adds a batch of so many records and bytes.
    fn add(cache: &TailCache, log: u64, base_offset: Offset, count: i64, bytes: usize) {
        let offsets = (base_offset, base_offset + count - 1);
        put(cache, log, offsets, &[1; 61], &vec![2; bytes - 61]);
    }

    fn put(cache: &TailCache, log: u64, offsets: (Offset, Offset), head: &[u8], payload: &[u8]) {
        let (base_offset, last_offset) = offsets;
        let place = Place {
            segment: 0,
            position: 0,
        };
        let written = WrittenBatch {
            base_offset,
            last_offset,
            place,
            head,
            payload,
        };
        cache.add(log, &written, true);
    }

    fn pieces(run: &CachedRun) -> &[Bytes] {
        run.pieces.as_deref().unwrap()
    }

    #[test]
    fn a_read_returns_whole_batches_within_its_limits() {
        let cache = TailCache::new(1 << 20);
        for number in 0..4 {
            add(&cache, 1, number * 10, 10, 100);
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
    fn of_a_batch_that_is_not_copied_the_place_is_known() {
        let cache = TailCache::new(125_600);
        let payload = [0; 1_000_000];
        let mut written = WrittenBatch {
            base_offset: 0,
            last_offset: 9,
            place: Place {
                segment: 0,
                position: 0,
            },
            head: b"head",
            payload: &payload,
        };
        cache.add(1, &written, false);
        (written.base_offset, written.last_offset) = (10, 19);
        written.place.position = 1_000_004;
        cache.add(1, &written, false);
        (written.base_offset, written.last_offset) = (20, 20);
        written.place = Place {
            segment: 20,
            position: 0,
        };
        written.payload = b"a";
        cache.add(1, &written, true);
        let run = cache.read(1, 15, 1 << 30, 99, true).unwrap();
        assert_eq!((run.place.segment, run.place.position), (0, 1_000_004));
        assert_eq!(
            (run.bytes, run.next_offset, run.pieces),
            (1_000_004, 20, None)
        );
        let run = cache.read(1, 20, 1 << 30, 99, true).unwrap();
        assert_eq!(
            (run.place.segment, pieces(&run)),
            (20, &[Bytes::from("heada")][..])
        );
        assert_eq!(cache.bytes_between(1, 0, 21), Some(2_000_013));
        cache.add(2, &written, true);
        cache.add(2, &written, true);
        assert!(cache.read(1, 0, 1, 99, true).is_none(), "there is no room");
    }

    #[test]
    fn batches_share_blocks_and_lie_in_as_many_as_they_need() {
        let cache = TailCache::new(4 * BLOCK_BYTES);
        let payload: Vec<u8> = (0..2 * BLOCK_BYTES).map(|at| (at / 7) as u8).collect();
        put(&cache, 1, (0, 0), b"head", b"a");
        put(&cache, 1, (1, 1), b"head", b"b");
        put(&cache, 1, (2, 2), b"head", &payload);
        put(&cache, 1, (3, 3), b"head", b"c");
        let run = cache.read(1, 0, 1 << 30, 9, true).unwrap();
        assert_eq!(pieces(&run)[..2], [&b"heada"[..], b"headb"]);
        assert_eq!(
            pieces(&run)[1].as_ptr(),
            pieces(&run)[0].as_ptr().wrapping_add(5)
        );
        let lengths: Vec<usize> = pieces(&run)[2..].iter().map(Bytes::len).collect();
        assert_eq!(lengths, [BLOCK_BYTES - 10, BLOCK_BYTES, 14, 5]);
        let all = pieces(&run)[2..].concat();
        assert_eq!(all, [b"head", &payload[..], b"headc"].concat());
        assert_eq!(run.bytes, all.len() + 10);
        let large = cache.read(1, 2, 1, 9, true).unwrap();
        assert_eq!((large.bytes, large.next_offset), (payload.len() + 4, 3));
    }

    #[test]
    fn a_block_ends_inside_of_a_head() {
        let cache = TailCache::new(4 * BLOCK_BYTES);
        put(&cache, 1, (0, 0), b"", &vec![0; BLOCK_BYTES - 2]);
        put(&cache, 1, (1, 1), b"head", b"a");
        let read = cache.read(1, 1, 1, 2, true).unwrap();
        assert_eq!(pieces(&read), [&b"he"[..], b"ada"]);
    }

    #[test]
    fn blocks_are_filled_again_once_their_batches_are_gone() {
        let cache = TailCache::new(2 * BLOCK_BYTES);
        let mut held = None;
        for number in 0..1_000 {
            put(&cache, 1, (number, number), b"head", &[1; 10_000]);
            if number == 40 {
                held = cache.read(1, 40, 1, 41, true);
            }
        }
        assert!(cache.blocks.lock().full.len() <= 3);
        assert_eq!(
            pieces(&held.unwrap())[0][..5],
            *b"head\x01",
            "what is held is not filled again"
        );
        // Slow readers of the oldest blocks keep those, and no others.
        let mut held = Vec::new();
        for number in 1_000..3_000 {
            put(&cache, 1, (number, number), b"head", &[1; 10_000]);
            if number < 1_200 && number % 26 == 0 {
                held.extend(cache.read(1, number, 1, number + 1, true));
            }
        }
        let blocks = cache.blocks.lock().full.len();
        assert!(held.len() > BLOCKS_ASKED && blocks < 20, "{blocks}");
        drop(held);
    }

    #[test]
    fn batches_of_all_sizes_fill_the_same_blocks() {
        let cache = TailCache::new(8 * BLOCK_BYTES);
        let blocks = || {
            let blocks = cache.blocks.lock();
            blocks.full.len() + blocks.spare.len() + blocks.filling.iter().len()
        };
        let payload = vec![1; 2 * BLOCK_BYTES];
        let mut most = 0;
        for number in 0..1_000_i64 {
            let bytes = usize::try_from(number).unwrap() * 7_919 % payload.len();
            put(&cache, 1, (number, number), b"head", &payload[..bytes]);
            assert!(
                blocks() >= most,
                "one was given back, to be asked for again"
            );
            most = blocks();
        }
        assert!(most <= 8 + 3, "{most}");
    }

    #[test]
    fn the_oldest_batches_of_all_logs_go_first() {
        let cost = 100 + ENTRY_BYTES;
        let cache = TailCache::new(3 * cost);
        add(&cache, 1, 0, 1, 100);
        add(&cache, 2, 0, 1, 100);
        add(&cache, 1, 1, 1, 100);
        add(&cache, 2, 1, 1, 100);
        assert!(cache.read(1, 0, 1, 9, true).is_none());
        assert!(cache.read(1, 1, 1, 9, true).is_some());
        assert!(cache.read(2, 0, 1, 9, true).is_some());
        add(&cache, 1, 2, 1, 100);
        assert!(cache.read(2, 0, 1, 9, true).is_none());
        assert_eq!(cache.state.lock().bytes, 3 * cost);
    }

    #[test]
    fn what_does_not_fit_leaves_no_gap_behind() {
        let cache = TailCache::new(1_000);
        add(&cache, 1, 0, 1, 100);
        add(&cache, 1, 1, 1, 5_000);
        assert!(cache.read(1, 0, 1, 9, true).is_none());
        add(&cache, 1, 2, 1, 100);
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
