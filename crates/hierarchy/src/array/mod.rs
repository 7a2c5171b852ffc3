//! An array: coordinates to decoded chunks.
//!
//! Opening it resolves codecs, lengths, keys and fill bytes once; reading a chunk looks nothing up.
//! An array can be opened even if its codecs are not supported: it has a shape, chunks that can be
//! listed, and the reason why they cannot be decoded.

pub mod assembled;
mod bound;
mod by_shape;
mod chunk_ref;
mod chunk_store;
mod chunk_times;
mod coords;
mod current;
mod form;
mod id;
mod key_encoding;
mod layers;
mod layout;
mod level;
mod open;
mod reading;
pub mod region;
mod shard_cache;
mod shard_form;
mod sharded;
mod unlisted;
mod values;

pub use bound::ChunkLen;
pub use chunk_ref::{ChunkId, ChunkRef};
pub(crate) use chunk_store::retried;
pub use chunk_store::{ChunkChange, ChunkStore, CoordsList, Direct, Indices};
pub use coords::{Coords, Grid};
pub use current::Current;
pub use form::Encoded;
pub use id::ArrayId;
pub use key_encoding::{decode as decode_key, encode as encode_key, index as parse_index};
pub use layout::{ShardLayout, ShardOrder, ShardWrite};
pub use open::{Array, ArrayOptions, FillChunks};
pub use shard_cache::ShardCaches;
pub use sharded::Sharded;

#[cfg(test)]
mod tests;
