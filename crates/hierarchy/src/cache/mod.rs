//! A cache of decoded chunks, limited in bytes, in which concurrent readers share one decode.
//!
//! A reader that needs a chunk while it is being decoded waits for it. Writes go through the cache
//! too: it returns chunks that were just stored without decoding them, and pending chunks as they
//! were written ([`ChunkCache::defer`]). Lock order: `keys`, then a slot, then the tables.

mod base;
mod changes;
mod chunk;
mod chunk_cache;
mod counters;
mod forms;
mod listing;
mod pending;
mod reading;
mod slots;
mod write_back;
mod writing;

pub use base::{ChunkBase, NewChunk};
pub use chunk::{DecodedChunk, PutChunk, Residency};
pub use chunk_cache::ChunkCache;
pub use counters::Counters;
pub use pending::Due;
pub use write_back::WrittenBack;

#[cfg(test)]
mod tests;
