//! The memory of a mount: one account that each user of much memory draws from before it allocates.
//!
//! A [`Lease`] is what one user has drawn. There are two limits. `--dirty-limit` is for changes
//! that are not stored. All else shares `--cache-size`: cached chunks may have what the others
//! leave, and are evicted when another user draws. If a user cannot draw, it does without: a long
//! part of a view is not assembled, a chunk is not decoded in advance, an older memory file is
//! dropped. Only what a program waits for is drawn without regard to the limit ([`Lease::grow`]): a
//! chunk that is being decoded and the header of a view.
//!
//! Memory that was freed and is kept for the next chunks (`buffer.rs`) is not drawn: it may have
//! what nobody has drawn.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Decoded chunks that are cached.
    Chunks,
    /// Decoded chunks while they are being decoded.
    Decoding,
    /// Long parts of views that were assembled at once.
    LongParts,
    /// Headers of views that are cached or open.
    ViewHeaders,
    /// Chunks and views in memory files that the kernel reads directly.
    MemoryFiles,
    /// Changes that are not stored.
    Unstored,
}

/// The account.
pub struct Budget {
    cache_len: u64,
    dirty_limit: u64,
    drawn: Drawn,
    /// The sum of all that shares `--cache-size` with the cached chunks.
    beside_chunks: AtomicU64,
    /// Evicts chunks that exceed [`Budget::room_for_chunks`], and frees unused memory.
    evict: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Bytes by purpose.
#[derive(Debug, Default)]
struct Drawn {
    chunks: AtomicU64,
    decoding: AtomicU64,
    long_parts: AtomicU64,
    view_headers: AtomicU64,
    memory_files: AtomicU64,
    unstored: AtomicU64,
}

/// Memory that one user has drawn; dropping it gives all of it back.
pub struct Lease {
    budget: Arc<Budget>,
    purpose: Purpose,
    len: AtomicU64,
}

impl Budget {
    /// Returns the account of a mount with these limits in bytes.
    pub fn new(cache_len: u64, dirty_limit: u64) -> Arc<Self> {
        Arc::new(Self {
            cache_len,
            dirty_limit,
            drawn: Drawn::default(),
            beside_chunks: AtomicU64::new(0),
            evict: OnceLock::new(),
        })
    }

    /// Returns the most bytes that may be drawn for a purpose.
    pub fn limit(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Chunks => self.cache_len,
            Purpose::Decoding | Purpose::LongParts | Purpose::MemoryFiles => self.cache_len / 2,
            Purpose::ViewHeaders => self.cache_len / 4,
            Purpose::Unstored => self.dirty_limit,
        }
    }

    /// Returns the bytes that are drawn for a purpose.
    pub fn drawn(&self, purpose: Purpose) -> u64 {
        self.count(purpose).load(Ordering::Relaxed)
    }

    /// Returns the most bytes that cached chunks may have now.
    pub fn room_for_chunks(&self) -> u64 {
        self.cache_len.saturating_sub(self.beside_chunks.load(Ordering::Relaxed))
    }

    /// Whether `len` more bytes can be drawn for a purpose.
    pub fn has_room(&self, purpose: Purpose, len: u64) -> bool {
        let drawn = self.drawn(purpose).saturating_add(len);
        let is_beside = Self::is_beside_chunks(purpose);
        drawn <= self.limit(purpose) && (!is_beside || len <= self.room_for_chunks())
    }

    /// Sets the function that is called when another user has drawn, to evict chunks that exceed
    /// [`Self::room_for_chunks`]. The thread may hold any lock that comes before the table of the
    /// cached chunks.
    pub fn evict_with(&self, evict: impl Fn() + Send + Sync + 'static) {
        if self.evict.set(Box::new(evict)).is_err() {
            log::debug!("the chunks of this budget are evicted already");
        }
    }

    /// Returns a lease without memory.
    pub fn lease(self: &Arc<Self>, purpose: Purpose) -> Lease {
        Lease { budget: Arc::clone(self), purpose, len: AtomicU64::new(0) }
    }

    /// Draws `len` bytes, or nothing if that would exceed a limit.
    pub fn try_draw(self: &Arc<Self>, purpose: Purpose, len: u64) -> Option<Lease> {
        let lease = self.lease(purpose);
        lease.try_grow(len).then_some(lease)
    }

    /// Draws `len` bytes without regard to the limit.
    pub fn draw(self: &Arc<Self>, purpose: Purpose, len: u64) -> Lease {
        let lease = self.lease(purpose);
        lease.grow(len);
        lease
    }

    fn count(&self, purpose: Purpose) -> &AtomicU64 {
        match purpose {
            Purpose::Chunks => &self.drawn.chunks,
            Purpose::Decoding => &self.drawn.decoding,
            Purpose::LongParts => &self.drawn.long_parts,
            Purpose::ViewHeaders => &self.drawn.view_headers,
            Purpose::MemoryFiles => &self.drawn.memory_files,
            Purpose::Unstored => &self.drawn.unstored,
        }
    }

    fn is_beside_chunks(purpose: Purpose) -> bool {
        match purpose {
            Purpose::Decoding
            | Purpose::LongParts
            | Purpose::ViewHeaders
            | Purpose::MemoryFiles => true,
            Purpose::Chunks | Purpose::Unstored => false,
        }
    }

    fn add(&self, purpose: Purpose, more: u64) {
        self.count(purpose).fetch_add(more, Ordering::Relaxed);
        if Self::is_beside_chunks(purpose) {
            self.beside_chunks.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Adds `more` bytes if both limits allow it.
    fn try_add(&self, purpose: Purpose, more: u64) -> bool {
        let (count, limit) = (self.count(purpose), self.limit(purpose));
        if !try_add(count, more, limit) {
            return false;
        }
        let has_room =
            !Self::is_beside_chunks(purpose) || try_add(&self.beside_chunks, more, self.cache_len);
        if !has_room {
            count.fetch_sub(more, Ordering::Relaxed);
        }
        has_room
    }

    fn take_back(&self, purpose: Purpose, less: u64) {
        self.count(purpose).fetch_sub(less, Ordering::Relaxed);
        if Self::is_beside_chunks(purpose) {
            self.beside_chunks.fetch_sub(less, Ordering::Relaxed);
        }
    }

    /// Has chunks and unused memory give way to the other users.
    fn make_room(&self, purpose: Purpose) {
        if Self::is_beside_chunks(purpose)
            && let Some(evict) = self.evict.get()
        {
            evict();
        }
    }
}

impl Lease {
    /// Returns the bytes that it has.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Draws `more` bytes, or nothing if that would exceed a limit.
    pub fn try_grow(&self, more: u64) -> bool {
        let has_grown = self.budget.try_add(self.purpose, more);
        if has_grown {
            self.len.fetch_add(more, Ordering::Relaxed);
            self.budget.make_room(self.purpose);
        }
        has_grown
    }

    /// Draws `more` bytes without regard to the limit.
    pub fn grow(&self, more: u64) {
        self.budget.add(self.purpose, more);
        self.len.fetch_add(more, Ordering::Relaxed);
        self.budget.make_room(self.purpose);
    }

    /// Gives `less` bytes back, or all if it has fewer.
    pub fn shrink(&self, less: u64) {
        let rest = |len: u64| Some(len.saturating_sub(less));
        if let Ok(len) = self.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest) {
            self.budget.take_back(self.purpose, len.min(less));
        }
    }

    /// Sets the bytes of a user that keeps the limit by itself. Calls of one lease must not
    /// overlap.
    pub fn set_len(&self, len: u64) {
        let before = self.len();
        if len >= before {
            let more = len.saturating_sub(before);
            self.budget.add(self.purpose, more);
            self.len.fetch_add(more, Ordering::Relaxed);
        } else {
            self.shrink(before.saturating_sub(len));
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.take_back(self.purpose, self.len());
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("cache_len", &self.cache_len)
            .field("dirty_limit", &self.dirty_limit)
            .field("drawn", &self.drawn)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({:?}, {} bytes)", self.purpose, self.len())
    }
}

/// Adds `more` to a sum unless the result exceeds `limit`. Adding nothing is always possible.
fn try_add(sum: &AtomicU64, more: u64, limit: u64) -> bool {
    let fits = |now: u64| now.checked_add(more).filter(|after| more == 0 || *after <= limit);
    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn no_more_is_drawn_than_the_limits_allow_and_all_is_given_back() {
        let budget = Budget::new(1000, 100);
        let draw = |purpose, len| budget.try_draw(purpose, len);
        let (files, part) = (draw(Purpose::MemoryFiles, 500), draw(Purpose::LongParts, 400));
        assert!(files.is_some() && part.is_some());
        assert!(draw(Purpose::MemoryFiles, 1).is_none(), "half of the cache is drawn");
        assert!(draw(Purpose::LongParts, 101).is_none(), "half of the cache is left to the others");
        assert!(!budget.has_room(Purpose::Decoding, 101));
        assert!(budget.has_room(Purpose::Decoding, 100));
        let waited_for = budget.draw(Purpose::Decoding, 5000);
        assert_eq!(budget.room_for_chunks(), 0);
        let unstored = draw(Purpose::Unstored, 100).expect("its own limit");
        assert!(!unstored.try_grow(1) && unstored.try_grow(0));
        unstored.shrink(1000);
        assert!(unstored.is_empty() && unstored.try_grow(50));
        drop((files, part, waited_for, unstored));
        assert_eq!(budget.room_for_chunks(), 1000);
        for purpose in [Purpose::Decoding, Purpose::LongParts, Purpose::Unstored] {
            assert_eq!(budget.drawn(purpose), 0, "{purpose:?}");
        }
    }

    #[test]
    fn chunks_give_way_before_the_memory_of_others_is_allocated() {
        let budget = Budget::new(1000, 100);
        let chunks = Arc::new(budget.lease(Purpose::Chunks));
        chunks.set_len(900);
        let (cached, rest) = (Arc::clone(&chunks), Arc::clone(&budget));
        budget.evict_with(move || cached.set_len(rest.room_for_chunks()));
        let header = budget.draw(Purpose::ViewHeaders, 100);
        assert_eq!(chunks.len(), 900, "there was room");
        let part = budget.try_draw(Purpose::LongParts, 300);
        assert_eq!((part.is_some(), chunks.len()), (true, 600));
        drop((header, part));
        assert_eq!(budget.drawn(Purpose::Chunks), 600);
    }

    #[test]
    fn threads_that_draw_together_stay_within_the_limit() {
        let budget = Budget::new(1 << 20, 1000);
        let lease = budget.lease(Purpose::Unstored);
        thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..10_000 {
                        if lease.try_grow(300) {
                            assert!(budget.drawn(Purpose::Unstored) <= 1000);
                            lease.shrink(300);
                        }
                    }
                });
            }
        });
        assert_eq!((lease.len(), budget.drawn(Purpose::Unstored)), (0, 0));
    }
}
