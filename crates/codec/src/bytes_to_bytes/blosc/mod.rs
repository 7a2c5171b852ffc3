//! `blosc` {cname, clevel, shuffle, typesize, blocksize}, also `numcodecs.blosc`: one Blosc 1
//! frame.
//!
//! Specification: <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/blosc/> and
//! `README_CHUNK_FORMAT.rst` of C-Blosc 1; where that is silent, the code of C-Blosc 1 decides.
//! Length: at most 16 bytes more; at most 2^31 - 17 decoded bytes. All numbers are little endian.
//!
//! ```text
//!  0         1         2       3          4              8           12           16
//! +---------+---------+-------+----------+--------------+-----------+------------+
//! | version | version | flags | typesize | decoded      | blocksize | encoded    |
//! | 2       | of the  |       |          | length       |           | length,    |
//! |         | codec 1 |       |          |              |           | all of it  |
//! +---------+---------+-------+----------+--------------+-----------+------------+
//! flags: 0x01 byte shuffle, 0x02 stored, 0x04 bit shuffle, 0x10 blocks are not split,
//!        0xe0 codec: 0 BloscLZ, 1 LZ4, 2 Snappy, 3 zlib, 4 Zstandard
//!
//! stored: the decoded bytes follow. Otherwise:
//! +---------------------+      +---------------+---------+-------+---------------+---------+--
//! | offset of block 0.. | .... | length, u32   | split 0 | ..... | length, u32   | split n | ..
//! +---------------------+      +---------------+---------+-------+---------------+---------+--
//! ```
//!
//! A block holds `blocksize` decoded bytes; the last block may be shorter. Each block is shuffled
//! separately, and then compressed as one split or as `typesize` splits; see
//! [`split_count`](frame::split_count). A split as long as its decoded bytes is stored
//! uncompressed.
//!
//! Decoding uses only the header; the configuration is for encoding. If a dialect does not store
//! `typesize` (default 1) here, it comes from the data type. [`decode`] reads what C-Blosc 1.x
//! writes. Like C-Blosc 1, it rejects frames of C-Blosc2, which have other version numbers. Besides
//! the decoded bytes, decoding takes the memory of one block for each thread, or of two with bit
//! shuffle.

mod bitshuffle;
mod blosclz;
mod decode;
mod encode;
mod frame;
mod scratch;
mod shuffle;

pub(super) use bitshuffle::{bitshuffle, bitunshuffle};
pub(super) use shuffle::{shuffle, unshuffle};

use std::ops::Range;

use serde_json::Value;

use self::encode::Encoder;
use self::frame::{Compressor, Filter};
use crate::configuration::count;
use crate::json::Object;
use crate::kinds::{BytesToBytes, DecodedRange};
use zarrfs_base::error::{Error, Result};

/// The codec `blosc`.
#[derive(Debug)]
pub struct Blosc {
    encoder: Encoder,
}

impl Blosc {
    /// Returns the codec with this configuration. `shuffle` is a word of v3, or 0, 1, 2 or -1: -1
    /// means bit shuffle for single bytes, and byte shuffle otherwise.
    pub fn new(configuration: &Object) -> Result<Self> {
        let compressor = match text(configuration, "cname")?.unwrap_or("lz4") {
            "blosclz" => Compressor::BloscLz,
            "lz4" | "lz4hc" => Compressor::Lz4,
            "snappy" => Compressor::Snappy,
            "zlib" => Compressor::Zlib,
            "zstd" => Compressor::Zstd,
            other => return Err(Error::invalid(format!("blosc: cname {other:?} is not known"))),
        };
        let level = count("blosc", configuration, "clevel", 5, 0..=9)?;
        let block_len = count("blosc", configuration, "blocksize", 0, 0..=i32::MAX.unsigned_abs())?;
        let item_len = count("blosc", configuration, "typesize", 1, 1..=u32::MAX)?;
        // C-Blosc treats longer items as single bytes.
        let item_len = u8::try_from(item_len).unwrap_or(1);
        let filter = match configuration.get("shuffle") {
            None | Some(Value::Null) => Filter::Bytes,
            Some(shuffle) => match (shuffle.as_i64(), shuffle.as_str()) {
                (Some(0), _) | (_, Some("noshuffle")) => Filter::None,
                (Some(1), _) | (_, Some("shuffle")) => Filter::Bytes,
                (Some(2), _) | (_, Some("bitshuffle")) => Filter::Bits,
                (Some(-1), _) if item_len == 1 => Filter::Bits,
                (Some(-1), _) => Filter::Bytes,
                _ => return Err(Error::invalid(format!("blosc: shuffle {shuffle} is not known"))),
            },
        };
        Ok(Self { encoder: Encoder { compressor, level, filter, item_len, block_len } })
    }
}

impl BytesToBytes for Blosc {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        self.encoder.encode(decoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        decode::decode(encoded, limit)
    }

    fn encoder_memory(&self, decoded_len: usize) -> u64 {
        self.encoder.memory(decoded_len)
    }

    fn has_ranges(&self) -> bool {
        true
    }

    fn decode_range(
        &self,
        encoded: &[u8],
        decoded_len: usize,
        range: Range<usize>,
    ) -> Result<Option<DecodedRange>> {
        decode::decode_range(encoded, decoded_len, range)
    }
}

/// Returns the string `member`.
fn text<'a>(configuration: &'a Object, member: &str) -> Result<Option<&'a str>> {
    match configuration.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(value) => Err(Error::invalid(format!("blosc: {member} {value} is not a string"))),
    }
}

#[cfg(test)]
mod tests;
