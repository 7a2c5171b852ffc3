//! Reads chunks for what is neither a file nor a directory: pictures, and data sets of OPeNDAP.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::Reader;
use super::decode::{DecodeTo, Decoder};
use super::expect::Expectations;
use super::jobs::read_range;
use super::pattern::ReadSequence;
use super::plan::hash_of;
use crate::array::{ChunkLen, ChunkRef, Coords};
use crate::error::{Result, WithSubject};
use crate::pool::Urgency;
use crate::view::{ElementRange, Excerpt};
use crate::width::ToU64;

/// A chunk is read in parts until these have `1/PARTIAL` of its bytes. Then it is decoded.
const PARTIAL: u64 = 4;

/// A chunk with more than `1/LARGE` of the memory for chunks is always read in parts, if it can be.
const LARGE: u64 = 4;

/// Up to `1/AHEAD` of the memory for chunks is decoded in advance.
const AHEAD: u64 = 4;

/// The chunks that a reader remembers.
const MOST_REMEMBERED: usize = 1 << 16;

/// Reads chunks through the cache of the tree. Each is as it was when the reader was made, or
/// later.
pub struct ChunkReader {
    decoder: Decoder,
    made: Instant,
    /// `Hierarchy::moves` at that time.
    moves: u64,
    /// A leaf lock.
    state: Mutex<ChunkHistory>,
    expectations: Arc<Expectations>,
    /// Ends with the reader, so that nothing is decoded for it afterwards.
    run: ReadSequence,
}

#[derive(Default)]
struct ChunkHistory {
    /// The bytes that were read of a chunk in parts, by its hash.
    parts: HashMap<u64, u64>,
    /// The hashes of the chunks that were decoded in advance.
    expected: HashSet<u64>,
}

impl fmt::Debug for ChunkReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkReader").field("made", &self.made).finish_non_exhaustive()
    }
}

impl Reader {
    /// Returns a reader of chunks.
    pub fn chunks(&self) -> ChunkReader {
        ChunkReader {
            decoder: self.decoder.clone(),
            moves: self.core.hierarchy.moves(),
            made: Instant::now(),
            state: Mutex::default(),
            expectations: Arc::default(),
            run: ReadSequence::new(0, 0),
        }
    }
}

impl ChunkReader {
    /// Returns the range of a decoded chunk, or more of it; `None` if the chunk is not stored.
    pub fn get(
        &self,
        elements: &ElementRange,
        coords: &Coords,
        range: &Range<usize>,
    ) -> Result<Option<Excerpt>> {
        let core = &self.decoder.core;
        let chunk = ChunkRef::new(&core.array_of(elements, self.moves)?, coords);
        if !core.cache.is_here(&chunk.array, coords)
            && self.is_for_range(&chunk, range)
            && let Some((bytes, ..)) = read_range(&chunk, range)
        {
            return Ok(Some(Excerpt { bytes, start: range.start }));
        }
        let since = core.fresh_since(Some(self.made));
        let found = core.cache.get_fresh(&chunk.array, coords, since).at(&elements.path)?;
        Ok(found.map(|found| found.bytes.into()))
    }

    /// Returns the memory for chunks, in bytes.
    pub fn cache_len(&self) -> u64 {
        self.decoder.core.options.cache_len
    }

    /// Whether only a range of a chunk is read. Notes that it is.
    fn is_for_range(&self, chunk: &ChunkRef, range: &Range<usize>) -> bool {
        let len = chunk.array.chunk_len(&chunk.coords).map_or(0, ChunkLen::longest);
        let wanted = range.len().to_u64();
        if wanted > len / PARTIAL || !chunk.array.has_ranges(&chunk.coords) {
            return false;
        }
        if len > self.decoder.core.options.cache_len / LARGE {
            return true;
        }
        let mut state = self.state.lock();
        if state.parts.len() > MOST_REMEMBERED {
            state.parts.clear();
        }
        let read = state.parts.entry(hash_of(chunk)).or_default();
        *read = read.saturating_add(wanted);
        *read <= len / PARTIAL
    }

    /// Has chunks decoded in advance that will be read soon, in this order, as far as there is room
    /// for them.
    pub fn expect(&self, chunks: impl IntoIterator<Item = (ElementRange, Coords)>) {
        let core = &self.decoder.core;
        let Some(pool) = core.pool.get() else { return };
        // An error is reported when the chunk is read.
        let chunks = chunks.into_iter().filter_map(|(elements, coords)| {
            Some(ChunkRef::new(&core.array_of(&elements, self.moves).ok()?, &coords))
        });
        let chunks = self.new_ones(chunks.collect());
        let mut left = core.options.cache_len / AHEAD;
        let absent = chunks.into_iter().filter(|it| !core.cache.is_here(&it.array, &it.coords));
        let expected = absent.map_while(|chunk| {
            left = left.checked_sub(chunk.array.longest_chunk_len().longest())?;
            Some(chunk)
        });
        let expected: Vec<ChunkRef> = expected.collect();
        if core.is_remote() {
            self.expectations.announce(pool, &core.cache, expected.clone());
        }
        let to = DecodeTo::Cache(core.fresh_since(Some(self.made)));
        let (decoder, ticket) = (self.decoder.clone(), self.run.ticket(u64::MAX));
        self.expectations.after(move || {
            for chunk in expected {
                decoder.decode(Urgency::Prefetch, ticket.clone(), chunk, to);
            }
        });
    }

    fn new_ones(&self, mut chunks: Vec<ChunkRef>) -> Vec<ChunkRef> {
        let mut state = self.state.lock();
        if state.expected.len() > MOST_REMEMBERED {
            state.expected.clear();
        }
        chunks.retain(|chunk| state.expected.insert(hash_of(chunk)));
        chunks
    }
}
