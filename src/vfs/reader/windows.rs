//! Sequential reads of views whose row of chunks does not fit into the cache.
//!
//! A long part of such a view is made at once, so each chunk is decoded once for that part (a few
//! times at its borders) and not for each request. The part is twice as long as what the handle has
//! read so far, up to an eighth of the cache, and ends with a row of elements. An array of 1000 by
//! 180 by 180 numbers in chunks of 1000 by 10 by 10 is read at 50 MB/s this way with a cache of
//! half its size, and was read at 1.6 MB/s without.
//!
//! `tree_lock` is not held while the part is made. The part counts if the generations of hierarchy
//! and chunks are unchanged when `tree_lock` is held afterwards. Readers use it for ten seconds, or
//! for as long as it took to make, like pages that the kernel has read ahead. They do not use it
//! after the kernel was told to drop its pages of the view.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use super::ahead::{DISORDER, Goal};
use crate::array::{Array, ChunkLen, Coords};
use crate::buffer::Buffer;
use crate::cache::Elsewhere;
use crate::error::{At, Error, Kind, Result};
use crate::pool::Urgency;
use crate::vfs::view_pages::Generations;
use crate::vfs::views::OpenView;
use crate::vfs::{Crew, Vfs};
use crate::view::{GetChunk, Slab, View};

/// One part of so many of the cache is for one of these, and half of it for all.
const PART: u64 = 8;

/// Shorter ones save little.
const SHORTEST: u64 = 4 << 20;

/// As much as the kernel asks for at once.
const REQUEST: u64 = 1 << 20;

/// How long one is read from, as what the kernel has read ahead is, unless it took longer to make: others may change what is stored
/// meanwhile.
const AGE: Duration = Duration::from_secs(10);

/// Chunks that others are asked to decode while one is.
const AHEAD: usize = 4;

/// Chunks that are known beforehand.
const MOST_KNOWN: usize = 1 << 16;

/// Of a chunk less than one part of so many is read without the rest, where it can be.
const RANGE: u64 = 4;

/// Views of more parts are read as they are asked for: to look whether nothing has changed takes a look at each.
const MOST_PARTS: usize = 64;

/// A long part of a view.
#[derive(Debug, Default)]
pub(in crate::vfs) enum Window {
    #[default]
    None,
    Made(Made),
    /// Since then: some of it cannot be read, and who asks for that is told why.
    Failed(Instant),
}

/// Bytes of a view, and the last ones before them, since requests come in any order.
#[derive(Debug)]
pub(in crate::vfs) struct Made {
    before: Bytes,
    start: u64,
    bytes: Bytes,
    current: Current,
    _share: Share,
}

/// As long as this holds what was made is what is stored, or was so not long ago.
#[derive(Debug, Clone, Copy)]
struct Current {
    until: Instant,
    generations: Generations,
    /// How often the kernel was told to drop the pages of the view.
    forgotten: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(in crate::vfs) struct Windows {
    /// Bytes that they have.
    len: Arc<AtomicU64>,
    /// How many were made.
    pub made: AtomicU64,
}

/// What one has of that; given back when it is dropped.
#[derive(Debug)]
struct Share(Arc<AtomicU64>, u64);

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Windows {
    /// Bytes that all of them have.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn share(&self, len: u64, limit: u64) -> Option<Share> {
        let more = |held: u64| held.checked_add(len).filter(|sum| *sum <= limit);
        let taken = self.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Share(Arc::clone(&self.len), len))
    }
}

impl Current {
    fn is_young(&self) -> bool {
        Instant::now() < self.until
    }
}

impl Made {
    fn end(&self) -> u64 {
        self.start.saturating_add(len_of(&self.bytes))
    }

    /// A range of the view, if all of it is here.
    fn range(&self, offset: u64, end: u64) -> Option<Bytes> {
        let within = |bytes: &Bytes, start: u64, from: u64, until: u64| {
            let from = usize::try_from(from.checked_sub(start)?).ok()?;
            let until = usize::try_from(until.checked_sub(start)?).ok()?;
            (from <= until && until <= bytes.len()).then(|| bytes.slice(from..until))
        };
        if offset >= self.start {
            return within(&self.bytes, self.start, offset, end);
        }
        let first = self.start.checked_sub(len_of(&self.before))?;
        let before = within(&self.before, first, offset, end.min(self.start))?;
        if end <= self.start {
            return Some(before);
        }
        let mut joined = BytesMut::from(&*before);
        joined.extend_from_slice(&within(&self.bytes, self.start, self.start, end)?);
        Some(joined.freeze())
    }

    /// The last bytes of it, in memory of their own.
    fn last(&self) -> Bytes {
        let len = usize::try_from(DISORDER).unwrap_or(usize::MAX).min(self.bytes.len());
        Bytes::copy_from_slice(
            self.bytes.get(self.bytes.len().saturating_sub(len)..).unwrap_or(&[]),
        )
    }
}

impl Vfs {
    /// The most bytes that one may have.
    fn window_len(&self) -> u64 {
        self.options.cache_len / PART
    }

    /// How many bytes of a view are made at once, where the cache does not hold a row of its chunks.
    pub(in crate::vfs) fn made_at_once(&self, view: &View) -> u64 {
        if self.may_have_windows(view) { self.window_len() } else { REQUEST }
    }

    fn may_have_windows(&self, view: &View) -> bool {
        self.window_len() >= SHORTEST
            && !self.hierarchy.options().metadata_ttl.is_zero()
            && view.elements().nth(MOST_PARTS).is_none()
    }

    /// The bytes that the next one may have: a sweep that has not come far may end soon.
    fn next_window_len(&self, open: &OpenView) -> u64 {
        self.window_len().min(open.sweep.len().saturating_mul(2))
    }

    /// Whether a sweep through a view is made in long parts from `offset` on.
    pub(in crate::vfs) fn is_for_window(&self, open: &OpenView, offset: u64) -> bool {
        let is_beyond = || match open.view.slab_at(offset) {
            Some(Slab::Row(len)) => len > self.options.cache_len,
            Some(Slab::Chunk(_)) => false,
            None => offset < open.view.len(),
        };
        self.next_window_len(open) >= SHORTEST
            && open.writing.is_none()
            && is_beyond()
            && self.may_have_windows(&open.view)
    }

    /// Up to `len` bytes from `offset` of a view, in a part of it that is made if need be; none where it cannot be.
    pub(in crate::vfs) fn read_window(
        &self,
        open: &OpenView,
        offset: u64,
        len: usize,
    ) -> Option<Bytes> {
        let end = offset.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        let end = end.min(open.view.len());
        // Held while it is made: others want something of it, too.
        let mut window = open.window.lock();
        let known = match mem::take(&mut *window) {
            Window::Made(made) if self.holds(&made.current, open) => Some(made),
            Window::Failed(at) if at.elapsed() < AGE => {
                *window = Window::Failed(at);
                return None;
            }
            Window::Made(_) | Window::Failed(_) | Window::None => None,
        };
        if let Some(made) = known {
            if let Some(bytes) = made.range(offset, end) {
                open.seen.note_answer();
                *window = Window::Made(made);
                return Some(bytes);
            }
            let follows = made.end() <= end && offset <= made.end().saturating_add(DISORDER);
            if follows && offset >= made.start {
                let (start, before) = (made.end(), (made.last(), made.current));
                drop(made);
                *window = self.make_window(open, start, Some(before));
            }
        }
        if matches!(*window, Window::None) {
            *window = self.make_window(open, offset, None);
        }
        match &*window {
            Window::Made(made) => made.range(offset, end),
            Window::None | Window::Failed(_) => None,
        }
    }

    /// Lets go of those that are too old to be read from: who has the view open may not go on.
    pub(in crate::vfs) fn let_windows_go(&self) {
        for open in self.all_open_views() {
            let Some(mut window) = open.window.try_lock() else { continue };
            if matches!(&*window, Window::Made(made) if !made.current.is_young()) {
                *window = Window::None;
            }
        }
        self.cache.set_elsewhere(Elsewhere::Windows, self.windows.len());
    }

    fn generations_of(&self, open: &OpenView) -> Generations {
        (self.hierarchy.generation(), self.generation_of(&open.view, &[]))
    }

    fn holds(&self, current: &Current, open: &OpenView) -> bool {
        current.is_young()
            && current.forgotten == open.seen.forgotten()
            && current.generations == self.generations_of(open)
    }

    fn make_window(&self, open: &OpenView, start: u64, before: Option<(Bytes, Current)>) -> Window {
        let began = Instant::now();
        let (generations, forgotten) = (self.generations_of(open), open.seen.forgotten());
        let until = start.saturating_add(self.next_window_len(open)).min(open.view.len());
        let until = open.view.rows_until(start, until);
        let before = before.filter(|(_, current)| self.holds(current, open));
        let (before, oldest) = before.map(|(bytes, current)| (bytes, current.until)).unzip();
        let before = before.unwrap_or_default();
        let held = until.saturating_sub(start).saturating_add(len_of(&before));
        let Some(share) = self.windows.share(held, self.options.cache_len / 2) else {
            return Window::None;
        };
        self.cache.set_elsewhere(Elsewhere::Windows, self.windows.len());
        let turn = open.sweep.turn();
        let made = self.window_bytes(open, (start, until), turn);
        // Whoever moves or removes a node is not in the midst of it.
        let _shared = self.tree_lock.read();
        let now = Instant::now();
        let fresh = now.checked_add(AGE.max(now.duration_since(began))).unwrap_or(now);
        let current = Current { until: fresh, generations, forgotten };
        match made {
            Ok(bytes) if self.holds(&current, open) => {
                self.windows.made.fetch_add(1, Ordering::Relaxed);
                let before =
                    if oldest.is_some_and(|oldest| oldest < now) { Bytes::new() } else { before };
                let bytes = Buffer::from(bytes).into();
                Window::Made(Made { before, start, bytes, current, _share: share })
            }
            Err(error) if open.sweep.turn() == turn => {
                log::debug!("{}: {error}", open.path);
                Window::Failed(now)
            }
            Ok(_) | Err(_) => Window::None,
        }
    }

    /// The bytes between two offsets, unless the sweep ends meanwhile.
    fn window_bytes(
        &self,
        open: &OpenView,
        (start, until): (u64, u64),
        turn: u64,
    ) -> Result<Vec<u8>> {
        let since = self.fresh_since(Some(open.opened));
        let mut coming = Vec::new();
        let looked = open.view.for_each_chunk((start, until), &mut |elements, coords, touch| {
            let array = self.array_of(elements, open.moves)?;
            let is_whole = !is_short(&array, coords, touch.bytes.len());
            coming.push(is_whole.then(|| (array, coords.clone())));
            if coming.len() < MOST_KNOWN { Ok(()) } else { Err(Error::too_large("enough chunks")) }
        });
        // What is wrong turns up when it is read.
        looked.unwrap_or_else(|error| log::debug!("ahead: {error}"));
        let mut coming = coming.into_iter();
        let goal = Goal { since, is_passing: false };
        let decode = |chunk| {
            if let Some(Crew { pool, .. }) = self.crew.get() {
                let until = (open.sweep.progress(), until.saturating_add(DISORDER));
                self.decode((pool, Urgency::Next), until, chunk, goal);
            }
        };
        // The first one is for this thread.
        coming.by_ref().take(AHEAD).flatten().skip(1).for_each(decode);
        let coming = Mutex::new(coming);
        let get: &GetChunk<'_> = &|elements, coords, range| {
            if open.sweep.turn() != turn {
                return Err(Error::new(Kind::Stale, "the sweep has ended"));
            }
            let next = coming.lock().next().flatten();
            if let Some(chunk) = next {
                decode(chunk);
            }
            let array = self.array_of(elements, open.moves)?;
            if is_short(&array, coords, range.len())
                && !self.cache.is_here(&array, coords)
                && let Some((excerpt, stat)) = self.excerpt(open, &array, coords, range)
            {
                open.seen.note(&elements.path, coords, Some(stat.version));
                return Ok(Some(excerpt));
            }
            let chunk = self.cache.get_fresh(&array, coords, since).at(&elements.path)?;
            open.seen.note(&elements.path, coords, chunk.as_ref().map(|chunk| chunk.stat.version));
            self.cache.remove(&array, coords);
            Ok(chunk.map(|chunk| chunk.bytes.into()))
        };
        let len = usize::try_from(until.saturating_sub(start))
            .map_err(|_| Error::too_large("a part of a view"))?;
        open.view.read(start, len, get)
    }
}

/// Whether so many bytes of a chunk are better read without the rest.
fn is_short(array: &Array, coords: &Coords, wanted: usize) -> bool {
    let Ok(Some(len)) = array.chunk_len(coords).map(ChunkLen::exactly) else { return false };
    u64::try_from(wanted).is_ok_and(|wanted| wanted <= len / RANGE) && array.is_by_element()
}

fn len_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
