//! Shards: many inner chunks in one value, with an index of their positions.
//!
//! The 2022 storage transformer and the released `sharding_indexed` codec have the same bytes once
//! the index is decoded. The module `array` knows the codecs and the position of the index. Nothing
//! here does I/O.
//!
//! Laying out a shard needs only lengths and places, since the store copies the bytes of unchanged
//! inner chunks.

mod assemble;
mod index;
mod usage;

pub use assemble::{InnerChunk, assemble};
pub use index::{ByteSpan, ENTRY_LEN, ShardIndex};
pub use usage::Usage;
