//! A node as an ordinary file, in a format that programs without Zarr read.
//!
//! A [`View`] is a sequence of parts: bytes that the format wants (a header, padding), and the
//! elements of arrays, one after another in C order or chunk after chunk. Its length is known
//! without reading chunks, and any range of it is made from the chunks that the range touches. Each
//! format is a file in `formats`, which says how the parts follow one another for a [`Source`], or
//! why the format cannot hold it.
//!
//! Reading and writing are one walk over boxes of elements (`Elements::for_each_box`). A chunk
//! file, a linear file and a chunk-exact file differ only in how a range becomes boxes. A reason
//! why there is no view is `Error::unsupported`: `ENOENT` in the mount and a sentence in
//! `.zarrfs/views`.
//!
//! A view never changes. A program that has it open keeps it, and after a change of metadata the
//! next program that opens the name gets another one. Written bytes go through
//! `ChunkCache::change`, so a chunk waits, is stored, fails and is rescued like any written chunk.
//! `GetChunk` gets the range that a read needs, and returns that range or more (`Excerpt`).

mod cf;
mod elements;
mod formats;
mod image;
mod layout;
mod left_out;
mod parts;
mod source;

pub use elements::{ChangeChunk, EachChunk, Elements, Excerpt, GetChunk, Reach, Touch, Walk};
pub use formats::{FORMATS, Format, Nodes};
pub use layout::{Items, Layout};
pub use left_out::LeftOut;
pub use parts::{Part, Slab, View, max_prefix_len};
pub use source::{Children, ROOT_NAME, Source};

#[cfg(test)]
mod tests;
