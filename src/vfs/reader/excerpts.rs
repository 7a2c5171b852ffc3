//! Partial reads of chunks, for random reads in a view.
//!
//! A read that does not continue a sequential one needs a small part of a chunk. If the chunk is
//! not compressed (by itself or in a shard, in either byte order), only the range from the first
//! needed byte to the last is read. If blosc has compressed it, only the blocks of that range are
//! decoded, unless these are most of the chunk (`BytesToBytes::decode_range`). After one handle has
//! read or decoded a quarter of a chunk this way, the whole chunk is read and cached.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lru::LruCache;
use parking_lot::Mutex;

use super::ahead::{Id, id};
use crate::array::{Array, ChunkLen, Coords};
use crate::store::Stat;
use crate::vfs::Vfs;
use crate::vfs::views::OpenView;
use crate::view::Excerpt;

/// Of a chunk one part of so many is read piece by piece; who wants more has all of it read, and kept.
const PART: u64 = 4;

/// A range counts as one part of so many at the least: to read it takes a while, however short it is.
const LEAST: u64 = 64;

/// Shorter chunks are as fast read as a whole.
const SHORTEST: u64 = 64 << 10;

/// Chunks of which it is known how much was read.
const MOST_KNOWN: usize = 4096;

/// How much of chunks was read, or decoded, piece by piece, in bytes. A leaf.
#[derive(Debug)]
pub(in crate::vfs) struct Excerpts(Mutex<LruCache<Id, u64>>);

impl Default for Excerpts {
    fn default() -> Self {
        Self(Mutex::new(LruCache::unbounded()))
    }
}

impl Excerpts {
    /// Notes that so much more of a chunk was read; returns how much that is in all.
    fn add(&self, array: &Arc<Array>, coords: &Coords, more: u64) -> u64 {
        let mut known = self.0.lock();
        if known.len() >= MOST_KNOWN {
            known.pop_lru();
        }
        let read = known.get_or_insert_mut(id(array, coords), || 0);
        *read = read.saturating_add(more);
        *read
    }
}

impl Vfs {
    /// Whether of a chunk that is not here a range is better read without the rest. Notes that it is.
    pub(in crate::vfs) fn is_for_excerpt(
        open: &OpenView,
        array: &Arc<Array>,
        coords: &Coords,
        range: &Range<usize>,
    ) -> bool {
        let Ok(Some(len)) = array.chunk_len(coords).map(ChunkLen::exactly) else { return false };
        let wanted = u64::try_from(range.len()).unwrap_or(u64::MAX);
        if len < SHORTEST || wanted > len / PART || !array.has_ranges(coords) {
            return false;
        }
        open.excerpts.add(array, coords, wanted.max(len / LEAST)) <= len / PART
    }

    /// A range of a chunk, with what is stored of that; none where it must be read as a whole, if only to say what is wrong
    /// with it.
    pub(in crate::vfs) fn excerpt(
        &self,
        open: &OpenView,
        array: &Arc<Array>,
        coords: &Coords,
        range: &Range<usize>,
    ) -> Option<(Excerpt, Stat)> {
        let read = array.read_range(coords, range).unwrap_or_else(|error| {
            log::debug!("partial read: {error}");
            None
        });
        // Where it takes most of the chunk it is not tried again.
        let more = read.as_ref().map_or(u64::MAX, |(bytes, _, decoded_len)| {
            u64::try_from(decoded_len.saturating_sub(bytes.len())).unwrap_or(u64::MAX)
        });
        if more > 0 {
            open.excerpts.add(array, coords, more);
        }
        let (bytes, stat, _) = read?;
        self.excerpts.fetch_add(1, Ordering::Relaxed);
        Some((Excerpt { bytes, start: range.start }, stat))
    }
}
