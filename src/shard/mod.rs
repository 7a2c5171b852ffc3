//! Shards: many inner chunks in one value, with an index of their positions.
//!
//! The 2022 storage transformer and the released `sharding_indexed` codec have the same bytes after
//! decoding the index. Their differences (index codecs, index position) are data of the layer
//! above. Nothing here does I/O.

mod assemble;
mod index;

pub use assemble::{Part, assemble};
pub use index::{ENTRY_LEN, Index, Span};
