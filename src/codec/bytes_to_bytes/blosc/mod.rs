//! `blosc` {cname, clevel, shuffle, typesize, blocksize}, also `numcodecs.blosc`: one Blosc 1 frame.
//!
//! Specification: <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/blosc/> and
//! `README_CHUNK_FORMAT.rst` of C-Blosc 1, whose code decides where that is silent. Length: at most
//! 16 bytes more; at most 2^31 - 17 decoded bytes. All numbers are little endian.
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
//! A block holds `blocksize` decoded bytes, the last one the rest. It is shuffled by itself and then
//! compressed as one split or, see [`split_count`], as `typesize` of them. A split that is as
//! long as what it holds is stored.
//!
//! To decode, the header is enough; the configuration is for encoding. `typesize` (default 1) comes
//! from the data type where a dialect does not have it here. [`decode`] reads what C-Blosc 1.x writes;
//! frames of C-Blosc2 have other versions, also without its longer header, and C-Blosc 1 does not read
//! them either. Besides the decoded bytes decoding takes one block for each thread that takes part, two with bit shuffle.

mod bitshuffle;
mod blosclz;
mod decode;
mod encode;
mod scratch;
mod shuffle;

pub(super) use shuffle::{shuffle, unshuffle};

use std::ops::Range;

use serde_json::Value;

use self::encode::Encoder;
use crate::codec::configuration::count;
use crate::codec::{BytesToBytes, Part};
use crate::error::{Error, Result};
use crate::json::Object;

/// The length of the header.
const HEADER_LEN: usize = 16;

/// The only version of the frame, and of each codec in it, that there is.
const VERSION: u8 = 2;
const CODEC_VERSION: u8 = 1;

/// Frames below this many bytes are stored, and splits are never shorter.
const MIN_BUFFER_LEN: usize = 128;

/// Blocks of longer items are not split.
const MAX_SPLITS: usize = 16;

/// Bytes for which another thread is worth asking for help.
const SHARE_LEN: usize = 128 << 10;

/// The codec in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compressor {
    BloscLz,
    Lz4,
    Snappy,
    Zlib,
    Zstd,
}

impl Compressor {
    fn from_flags(flags: u8) -> Option<Self> {
        match flags >> 5 {
            0 => Some(Self::BloscLz),
            1 => Some(Self::Lz4),
            2 => Some(Self::Snappy),
            3 => Some(Self::Zlib),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    fn flags(self) -> u8 {
        let number = match self {
            Self::BloscLz => 0,
            Self::Lz4 => 1,
            Self::Snappy => 2,
            Self::Zlib => 3,
            Self::Zstd => 4,
        };
        number << 5
    }

    fn name(self) -> &'static str {
        match self {
            Self::BloscLz => "blosclz",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// What is done to a block before it is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    None,
    Bytes,
    Bits,
}

impl Filter {
    const BYTES_FLAG: u8 = 0x01;
    const BITS_FLAG: u8 = 0x04;

    /// The filter of a frame of such items: shuffling single bytes is doing nothing.
    fn from_flags(flags: u8, item_len: usize) -> Self {
        if flags & Self::BYTES_FLAG != 0 && item_len > 1 {
            Self::Bytes
        } else if flags & Self::BITS_FLAG != 0 {
            Self::Bits
        } else {
            Self::None
        }
    }

    /// The room that it needs besides that of a block of that length.
    fn room(self, block_len: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Bytes => block_len,
            Self::Bits => block_len.saturating_mul(2),
        }
    }

    fn flags(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Bytes => Self::BYTES_FLAG,
            Self::Bits => Self::BITS_FLAG,
        }
    }
}

/// Flags that are no codec and no filter.
const STORED_FLAG: u8 = 0x02;
const RESERVED_FLAG: u8 = 0x08;
const UNSPLIT_FLAG: u8 = 0x10;

/// The header of a frame, of which the reader has checked each member by itself.
#[derive(Debug, Clone, Copy)]
struct Header {
    flags: u8,
    /// Bytes of an item, at least 1.
    item_len: u8,
    decoded_len: u32,
    /// At least 1 unless nothing is decoded.
    block_len: u32,
    encoded_len: u32,
}

impl Header {
    fn to_bytes(self) -> [[u8; 4]; HEADER_LEN / 4] {
        [
            [VERSION, CODEC_VERSION, self.flags, self.item_len],
            self.decoded_len.to_le_bytes(),
            self.block_len.to_le_bytes(),
            self.encoded_len.to_le_bytes(),
        ]
    }
}

/// Into how many splits a whole block goes where the flag does not forbid it; the last block of a
/// frame, if it is shorter, has one.
fn split_count(item_len: usize, block_len: usize) -> usize {
    if item_len <= MAX_SPLITS && block_len / item_len >= MIN_BUFFER_LEN { item_len } else { 1 }
}

/// How many blocks one thread takes at a time, where several share a frame.
fn share(block_len: usize) -> usize {
    SHARE_LEN.div_ceil(block_len.max(1))
}

/// The codec `blosc`.
#[derive(Debug)]
pub struct Blosc {
    encoder: Encoder,
}

impl Blosc {
    /// A codec with that configuration. Shuffle is one of 0, 1, 2 and -1 (bits for single bytes, else
    /// bytes), or a word of v3.
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
        // C-Blosc takes longer items for single bytes.
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

    fn has_ranges(&self) -> bool {
        true
    }

    fn decode_range(
        &self,
        encoded: &[u8],
        decoded_len: usize,
        range: Range<usize>,
    ) -> Result<Option<Part>> {
        decode::decode_range(encoded, decoded_len, range)
    }
}

/// The string `member`.
fn text<'a>(configuration: &'a Object, member: &str) -> Result<Option<&'a str>> {
    match configuration.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(value) => Err(Error::invalid(format!("blosc: {member} {value} is not a string"))),
    }
}

#[cfg(test)]
mod tests;
