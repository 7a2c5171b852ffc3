//! Codecs, and the pipeline that binds them to one chunk shape.
//!
//! There are three kinds, as in the specification: array to array, array to bytes, bytes to bytes.
//! A codec here works on bytes of a known length, never on metadata files: [`registry`] builds it
//! from its [`CodecSpec`].
//!
//! The files form a line, which `tests/it/circles.rs` checks:
//!
//! ```text
//! elements vlen spec kinds foreign · row · the codecs, one file each · table · registry · pipeline
//! ```
//!
//! The configuration of some codecs lists other codecs. Such a codec does not import [`table`]: its
//! row passes in the function that finds them.
//!
//! `sharding_indexed` is not built here: it decides where encoded chunks lie, so an array builds
//! it.
//!
//! A filter may change shape and data type, so binding a pipeline passes `ChunkType` from codec to
//! codec. An encoder knows how much of the chunk lies inside the array, since N5 crops chunks at
//! the border. A pipeline knows whether it loses precision; if so, the cache drops written bytes
//! and readers see the stored ones. In the model, `endian` of `bytes` may be a list with one value
//! for each field of a structure, because Zarr 2 has such data types.

#![deny(missing_docs)]
#![cfg_attr(
    test,
    allow(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::let_underscore_must_use,
        clippy::needless_pass_by_value,
        clippy::unnecessary_wraps,
        clippy::too_many_lines,
        reason = "tests compute with small numbers, and may throw results away"
    )
)]

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

pub mod array_to_array;
pub mod array_to_bytes;
pub mod bytes_to_bytes;
mod clock;
mod configuration;
pub mod dtype;
mod elements;
pub mod foreign;
pub mod json;
mod kinds;
pub mod number;
mod pipeline;
pub mod registry;
mod row;
pub mod shard;
mod spec;
pub mod table;
mod texts;
pub mod vlen;

pub use bytes_to_bytes::lookup3;
pub use elements::ChunkType;
pub use kinds::{ArrayToArray, ArrayToBytes, BytesToBytes, DecodedRange};
pub use pipeline::Pipeline;
pub use spec::CodecSpec;
pub use texts::{TextOffsets as VlenPlaces, chunk as vlen_chunk, items as vlen_items};
