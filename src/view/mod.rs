//! A node as an ordinary file, in a format that programs without Zarr read.
//!
//! A [`View`] is a sequence of parts: bytes of the format (a header, padding), and the elements of
//! arrays, either in C order or chunk by chunk. Its length is known without reading chunks. Reading
//! a range decodes only the chunks that overlap it. Each format is a file in `formats`, which lists
//! the parts for a [`ViewSource`], or explains why the format cannot hold it.
//!
//! Reads and writes use the same walk over boxes of elements (`ElementRange::for_each_box`). The
//! layouts differ only in how a range of the file becomes boxes. If there is no view, the reason is
//! an `Error::unsupported`: the mount returns `ENOENT` and explains it in `.zarrfs/views`.
//!
//! A view never changes: if the metadata change, programs that have it open keep it, and the next
//! open of the name makes a new one. Written bytes go through `ChunkCache::change`, so their chunks
//! are cached, stored and rescued like any others. `GetChunk` requests the range of a chunk that a
//! read needs, and returns that range or more (`Excerpt`).

pub(crate) mod cf;
mod elements;
mod formats;
mod glance;
mod image;
mod layout;
mod left_out;
mod lines;
pub mod map;
mod parts;
pub mod region;
mod source;
pub mod table;
mod texts;
mod turned;

pub use elements::{
    ChangeChunk, EachChunk, ElementRange, Excerpt, GetChunk, KeepGoing, Reach, Touch,
};
pub use formats::{FORMATS, Format, Nodes};
pub use glance::Glance;
pub use image::{Axis, AxisKind, Image, attributes_of_box, has_level, levels};
pub use layout::{Layout, NumberForm};
pub use left_out::LeftOutOfView;
pub use parts::{Part, Slab, View, max_prefix_len};
pub use source::{Children, ROOT_NAME, ViewSource};

#[cfg(test)]
mod tests;
