//! Room on a directory's disk. Users' records stop while so many bytes are still free, so that what the
//! broker itself must write (groups, checkpoints, the registry) goes on where they cannot.
//!
//! The disk is not asked for each append: an answer is good for a part of the room that it found. Once
//! it is full, one append at a time tries again after a pause, and the first that succeeds opens it for
//! all.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The disk is asked again after so many bytes at the latest.
const CREDIT_BYTES_MAX: u64 = 16 << 20;
/// The reserve is at most this part of the file system: a small one is not all reserve.
const RESERVE_DIVISOR: u64 = 20;
/// Once full, room for this part of the reserve must come back: no opening for every byte.
const REOPEN_DIVISOR: u64 = 4;
const RETRY: Duration = Duration::from_millis(100);

/// Whether users' records may still be written.
#[derive(Debug)]
pub(super) struct Room {
    reserved_bytes: u64,
    /// Bytes that may be appended before the disk is asked.
    credit: AtomicI64,
    full: AtomicBool,
    /// When a full disk is tried again. Held by the one who asks the disk.
    retry: Mutex<Option<Instant>>,
}

/// There is no room.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full {
    /// It was not known before.
    pub news: bool,
}

impl Room {
    pub(super) fn new(reserved_bytes: u64) -> Self {
        Self {
            reserved_bytes,
            credit: AtomicI64::new(0),
            full: AtomicBool::new(false),
            retry: Mutex::new(None),
        }
    }

    /// Takes room for an append; true if it is the one that tries whether a full disk has room again.
    /// `space` tells total and usable bytes; a disk that does not say is believed to have room.
    pub(super) fn take(
        &self,
        bytes: u64,
        now: impl FnOnce() -> Instant,
        space: impl FnOnce() -> io::Result<(u64, u64)>,
    ) -> Result<bool, Full> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.credit.fetch_sub(bytes, Ordering::Relaxed) >= bytes {
            return Ok(false);
        }
        let mut retry = self.retry.lock();
        let was_full = self.is_full();
        let now = now();
        if was_full && retry.is_some_and(|retry| now < retry) {
            return Err(Full { news: false });
        }
        *retry = Some(now + RETRY);
        let (spare, reserve) = match space() {
            Ok((total, usable)) => {
                let reserve = self.reserved_bytes.min(total / RESERVE_DIVISOR);
                (usable.saturating_sub(reserve), reserve)
            }
            Err(_) => (CREDIT_BYTES_MAX, 0),
        };
        let needed = match was_full {
            true => bytes.unsigned_abs().max(reserve / REOPEN_DIVISOR),
            false => bytes.unsigned_abs(),
        };
        if spare < needed {
            self.full.store(true, Ordering::Relaxed);
            self.credit.store(0, Ordering::Relaxed);
            return Err(Full { news: !was_full });
        }
        if !was_full {
            let credit = (spare / 4).min(CREDIT_BYTES_MAX);
            let credit = i64::try_from(credit).unwrap_or(0);
            self.credit.store(credit, Ordering::Relaxed);
        }
        Ok(was_full)
    }

    /// Takes room for what is not needed yet, if the disk need not be asked for it.
    pub(super) fn take_spare(&self, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let left = |credit: i64| (credit >= bytes).then(|| credit - bytes);
        let order = Ordering::Relaxed;
        self.credit.fetch_update(order, order, left).is_ok()
    }

    /// The disk itself said that it is full. True: that is news.
    pub(super) fn found_full(&self, now: Instant) -> bool {
        let mut retry = self.retry.lock();
        *retry = Some(now + RETRY);
        self.credit.store(0, Ordering::Relaxed);
        !self.full.swap(true, Ordering::Relaxed)
    }

    /// The append that tried whether a full disk has room again was written.
    pub(super) fn reopen(&self) {
        self.full.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Clock, ManualClock};

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_spare_counts_and_is_never_asked_for() {
        let room = Room::new(64 * MIB);
        let now = ManualClock::new(0).now();
        assert!(!room.take_spare(MIB), "nobody has looked yet");
        let space = || Ok((100 * GIB, 64 * MIB + 40 * MIB));
        assert_eq!(room.take(MIB, || now, space), Ok(false));
        assert!(room.take_spare(6 * MIB));
        assert!(
            !room.take_spare(5 * MIB),
            "a quarter of 40 MiB was credited"
        );
        assert!(room.take_spare(4 * MIB));
        room.found_full(now);
        assert!(!room.take_spare(1));
    }

    #[test]
    fn the_disk_is_asked_now_and_then_and_the_reserve_is_kept() {
        let room = Room::new(64 * MIB);
        let now = ManualClock::new(0).now();
        let asked = std::cell::Cell::new(0);
        let mut usable = GIB;
        let mut taken = 0;
        while room
            .take(
                MIB,
                || now,
                || {
                    asked.set(asked.get() + 1);
                    Ok((100 * GIB, usable))
                },
            )
            .is_ok()
        {
            usable -= MIB;
            taken += 1;
        }
        assert_eq!(taken, 1024 - 64);
        assert!(asked.get() < 120, "{}", asked.get());
        assert!(room.is_full());
    }

    #[test]
    fn a_small_disk_keeps_a_small_reserve_and_none_is_none() {
        let now = ManualClock::new(0).now();
        let take = |reserved, usable| {
            Room::new(reserved)
                .take(100, || now, || Ok((20 * MIB, usable)))
                .is_ok()
        };
        assert!(take(64 * MIB, MIB + 100));
        assert!(!take(64 * MIB, MIB + 99));
        assert!(take(0, 100));
        assert!(!take(0, 99));
    }

    #[test]
    fn a_full_disk_is_tried_after_a_pause_and_opens_with_the_first_write() {
        let clock = ManualClock::new(0);
        let room = Room::new(64 * MIB);
        let take =
            |spare: u64| room.take(100, || clock.now(), || Ok((100 * GIB, 64 * MIB + spare)));
        assert_eq!(take(0), Err(Full { news: true }));
        // Room came back at once; the next look is after a pause.
        assert_eq!(take(GIB), Err(Full { news: false }));
        clock.advance(RETRY);
        assert_eq!(take(16 * MIB - 1), Err(Full { news: false }));
        clock.advance(RETRY);
        assert_eq!(take(16 * MIB), Ok(true));
        // One tries, the others wait for how that ends: badly, then well.
        assert_eq!(take(GIB), Err(Full { news: false }));
        assert!(!room.found_full(clock.now()));
        clock.advance(RETRY);
        assert_eq!(take(GIB), Ok(true));
        room.reopen();
        assert_eq!(take(GIB), Ok(false));
        assert!(room.found_full(clock.now()), "that is news again");
    }
}
