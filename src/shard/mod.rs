//! Shards: many inner chunks in one value, with an index that says where each lies.
//!
//! The 2022 storage transformer and the released `sharding_indexed` codec have the
//! same bytes once the index codecs are undone; what differs between them (index
//! codecs, index position) is data, held by the layer above. Nothing here does I/O.

mod assemble;
mod index;

pub use assemble::{Part, assemble};
pub use index::{ENTRY_LEN, Index, Span};
