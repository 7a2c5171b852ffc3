//! The writer of Blosc frames. It chooses blocks and splits as C-Blosc 1.21 does in its default,
//! forward-compatible mode, so that every reader reads the frames. Stored frames name `BloscLZ`,
//! which every reader has, and no shuffle.

use std::fmt::Display;

use ::zstd::bulk;
use ::zstd::zstd_safe::compress_bound;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use super::super::deflate::{DeflateContainer, encode_into};
use super::super::stream::room;
use super::super::zstd;
use super::bitshuffle::bitshuffle;
use super::blosclz;
use super::frame::{
    Compressor, Filter, FrameHeader, HEADER_LEN, MAX_SPLITS, MIN_BUFFER_LEN, STORED_FLAG,
    UNSPLIT_FLAG, share, split_count,
};
use super::scratch::Scratch;
use super::shuffle::shuffle;
use zarrfs_base::buffer::keep;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::parallel;
use zarrfs_base::width::ToU64;

/// The longest input whose frame length fits 31 bits.
const MAX_DECODED_LEN: u32 = i32::MAX.unsigned_abs() - 16;

/// The longest block that C-Blosc takes.
const MAX_BLOCK_LEN: usize = 0x2aaa_aa00;

/// The initial block length if none is configured: that of a first-level cache.
const CACHE_LEN: usize = 32 << 10;

/// The configuration for encoding.
#[derive(Debug)]
pub(super) struct Encoder {
    pub compressor: Compressor,
    /// The level, 0 to 9; 0 stores the bytes uncompressed.
    pub level: u32,
    pub filter: Filter,
    pub item_len: u8,
    /// The length of a block in bytes, 0 for automatic.
    pub block_len: u32,
}

impl Encoder {
    /// Encodes one frame.
    pub fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let decoded_len =
            u32::try_from(decoded.len()).ok().filter(|len| *len <= MAX_DECODED_LEN).ok_or_else(
                || Error::too_large(format!("blosc: {} bytes to encode", decoded.len())),
            )?;
        if self.level > 0
            && decoded.len() >= MIN_BUFFER_LEN
            && let Some(frame) = self.compress(decoded, decoded_len)?
        {
            return Ok(frame);
        }
        self.store(decoded, decoded_len)
    }

    fn store(&self, decoded: &[u8], decoded_len: u32) -> Result<Vec<u8>> {
        let len = decoded.len().saturating_add(HEADER_LEN);
        let mut frame = room("blosc", len)?;
        let header = FrameHeader {
            flags: STORED_FLAG | UNSPLIT_FLAG,
            item_len: self.item_len,
            decoded_len,
            block_len: decoded_len.max(1),
            encoded_len: number(len)?,
        };
        frame.extend_from_slice(header.to_bytes().as_flattened());
        frame.extend_from_slice(decoded);
        Ok(frame)
    }

    /// Returns the compressed frame, `None` unless it is shorter than a stored one.
    fn compress(&self, decoded: &[u8], decoded_len: u32) -> Result<Option<Vec<u8>>> {
        let item_len = usize::from(self.item_len);
        let block_len = self.block_len(decoded.len());
        // Zstandard and the flag have the same age, so a reader knows both or neither.
        let whole_split_count =
            if self.compressor == Compressor::Zstd { 1 } else { split_count(item_len, block_len) };
        let shares = decoded.chunks(share(block_len).saturating_mul(block_len)).collect();
        let workers = workers(decoded.len(), block_len);
        let worker = || Worker::new(self, (block_len, workers), whole_split_count);
        let shares = parallel::map(shares, worker, Worker::encode)?;

        let block_count = decoded.len().div_ceil(block_len);
        let head_len = HEADER_LEN.saturating_add(block_count.saturating_mul(4));
        let blocks_len = shares.iter().map(|share| share.blocks.len()).sum();
        let encoded_len = head_len.saturating_add(blocks_len);
        if encoded_len >= decoded.len().saturating_add(HEADER_LEN) {
            return Ok(None);
        }
        let unsplit = if whole_split_count == 1 { UNSPLIT_FLAG } else { 0 };
        let header = FrameHeader {
            flags: self.compressor.flags() | self.filter.flags() | unsplit,
            item_len: self.item_len,
            decoded_len,
            block_len: number(block_len)?,
            encoded_len: number(encoded_len)?,
        };
        let mut frame = room("blosc", encoded_len)?;
        frame.extend_from_slice(header.to_bytes().as_flattened());
        let mut at = head_len;
        for len in shares.iter().flat_map(|share| &share.block_lens) {
            frame.extend_from_slice(&number(at)?.to_le_bytes());
            at = at.saturating_add(*len);
        }
        for share in shares {
            frame.extend_from_slice(&share.blocks);
            keep(share.blocks);
        }
        Ok(Some(frame))
    }

    /// Returns the most bytes that encoding takes besides the frame and the decoded bytes.
    pub fn memory(&self, decoded_len: usize) -> u64 {
        if self.level == 0 || decoded_len < MIN_BUFFER_LEN {
            return 0;
        }
        let block_len = self.block_len(decoded_len);
        let workers = workers(decoded_len, block_len);
        let tables = match self.compressor {
            Compressor::Zstd => zstd::tables::memory(zstd_level(self.level), block_len, workers),
            Compressor::BloscLz | Compressor::Lz4 | Compressor::Snappy | Compressor::Zlib => 0,
        };
        // Beside the filter there is a compressed split, which may be a little longer.
        let scratch = self.filter.room(block_len).saturating_add(block_len);
        let of_one = tables.saturating_add(scratch.to_u64());
        of_one.saturating_mul(workers.to_u64())
    }

    /// Returns the length of a block for a frame of `decoded_len` bytes, at least
    /// [`MIN_BUFFER_LEN`], as C-Blosc's `compute_blocksize` does.
    fn block_len(&self, decoded_len: usize) -> usize {
        let item_len = usize::from(self.item_len);
        if decoded_len < item_len {
            return 1;
        }
        let splits = self.compressor != Compressor::Zstd;
        let dense = matches!(self.compressor, Compressor::Zlib | Compressor::Zstd);
        let wanted = usize::try_from(self.block_len).unwrap_or(MAX_BLOCK_LEN);
        let mut len = if wanted > 0 {
            wanted.clamp(MIN_BUFFER_LEN, MAX_BLOCK_LEN)
        } else if decoded_len >= CACHE_LEN {
            let cache_len = if dense { CACHE_LEN * 2 } else { CACHE_LEN };
            match self.level {
                0 => cache_len / 4,
                1 => cache_len / 2,
                2 => cache_len,
                3 => cache_len * 2,
                4 | 5 => cache_len * 4,
                9 if dense => cache_len * 16,
                _ => cache_len * 8,
            }
        } else {
            decoded_len
        };
        if splits && item_len <= MAX_SPLITS && len / item_len >= MIN_BUFFER_LEN {
            len = (len.min(1 << 18) * item_len).clamp(1 << 16, 1 << 20);
        }
        len = len.min(decoded_len);
        if len > item_len { len / item_len * item_len } else { len }
    }
}

/// Consecutive blocks that one thread has encoded.
struct Share {
    /// The encoded blocks one after another, with the lengths of their splits.
    blocks: Vec<u8>,
    block_lens: Vec<usize>,
}

/// The state of a thread that encodes blocks.
struct Worker {
    filter: Filter,
    item_len: usize,
    block_len: usize,
    /// The number of splits of a whole block.
    split_count: usize,
    backend: Backend,
    /// Space for the filter and for a compressed split.
    scratch: Scratch,
}

impl Worker {
    /// Returns the state of one of several `workers`.
    fn new(
        encoder: &Encoder,
        (block_len, workers): (usize, usize),
        split_count: usize,
    ) -> Result<Self> {
        let backend = Backend::new(encoder, block_len, workers)?;
        let filter = encoder.filter;
        let room = filter.room(block_len).saturating_add(backend.max_len(block_len));
        let (scratch, item_len) = (Scratch::new(room)?, usize::from(encoder.item_len));
        Ok(Self { filter, item_len, block_len, split_count, backend, scratch })
    }

    fn encode(&mut self, decoded: &[u8]) -> Result<Share> {
        // No split becomes longer, but each has its length in front.
        let splits = decoded.len().div_ceil(self.block_len).saturating_mul(self.split_count);
        let mut blocks = room("blosc", decoded.len().saturating_add(splits.saturating_mul(4)))?;
        let mut block_lens = Vec::new();
        let (scratch, compressed) = self.scratch.split(self.filter.room(self.block_len));
        let (shuffled, transposed) = scratch.split_at_mut(self.block_len.min(scratch.len()));
        for block in decoded.chunks(self.block_len) {
            let start = blocks.len();
            let shuffled = match self.filter {
                Filter::None => block,
                Filter::Bytes => {
                    let shuffled = shuffled.get_mut(..block.len()).unwrap_or_default();
                    shuffle(self.item_len, block, shuffled);
                    shuffled
                }
                Filter::Bits => {
                    let shuffled = shuffled.get_mut(..block.len()).unwrap_or_default();
                    let transposed = transposed.get_mut(..block.len()).unwrap_or_default();
                    bitshuffle(self.item_len, block, shuffled, transposed);
                    shuffled
                }
            };
            let split_count = if block.len() == self.block_len { self.split_count } else { 1 };
            for split in shuffled.chunks_exact(block.len() / split_count) {
                let len = self.backend.compress(split, compressed)?;
                // A decoder would treat a compressed split of exactly that length as stored.
                let split = match len.filter(|len| *len < split.len()) {
                    Some(len) => compressed.get(..len).unwrap_or_default(),
                    None => split,
                };
                blocks.extend_from_slice(&number(split.len())?.to_le_bytes());
                blocks.extend_from_slice(split);
            }
            block_lens.push(blocks.len().saturating_sub(start));
        }
        Ok(Share { blocks, block_lens })
    }
}

/// Returns how many threads encode blocks at a time.
fn workers(decoded_len: usize, block_len: usize) -> usize {
    let share_len = share(block_len).saturating_mul(block_len).max(1);
    decoded_len.div_ceil(share_len).min(parallel::processors()).max(1)
}

/// Returns the level of Zstandard. As in C-Blosc, 9 means the highest level.
fn zstd_level(level: u32) -> i32 {
    i32::try_from(level).ok().filter(|level| *level < 9).map_or(22, |level| level * 2 - 1)
}

fn number(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| Error::too_large(format!("blosc: {len} bytes")))
}

/// A compressor with its state, which is reused for each split.
enum Backend {
    BloscLz(blosclz::MatchTable),
    Lz4(CompressTable),
    Snappy(Box<snap::raw::Encoder>),
    Zlib(i32),
    Zstd(bulk::Compressor<'static>),
}

impl Backend {
    /// Returns the compressor for blocks of this length, one of several that work at a time. The
    /// level is 1 to 9; levels do not apply to Snappy and LZ4.
    fn new(encoder: &Encoder, block_len: usize, workers: usize) -> Result<Self> {
        let level = encoder.level;
        Ok(match encoder.compressor {
            Compressor::BloscLz => Self::BloscLz(blosclz::MatchTable::new(level)),
            Compressor::Lz4 => Self::Lz4(CompressTable::large()),
            Compressor::Snappy => Self::Snappy(Box::new(snap::raw::Encoder::new())),
            Compressor::Zlib => Self::Zlib(i32::try_from(level).unwrap_or(9)),
            Compressor::Zstd => {
                let compressor = zstd::compressor(zstd_level(level), block_len, workers);
                Self::Zstd(compressor.map_err(|e| broken("zstd", &e))?)
            }
        })
    }

    /// Returns the space in bytes that `compress` needs for a split of this length.
    fn max_len(&self, split_len: usize) -> usize {
        match self {
            Self::BloscLz(_) | Self::Zlib(_) => split_len,
            Self::Lz4(_) => get_maximum_output_size(split_len),
            Self::Snappy(_) => snap::raw::max_compress_len(split_len),
            Self::Zstd(_) => compress_bound(split_len),
        }
    }

    /// Compresses `split` to the start of `target` and returns the length; `None` unless it becomes
    /// shorter.
    fn compress(&mut self, split: &[u8], target: &mut [u8]) -> Result<Option<usize>> {
        match self {
            Self::BloscLz(table) => {
                let shorter = split.len().saturating_sub(1).min(target.len());
                let target = target.get_mut(..shorter).unwrap_or_default();
                Ok(blosclz::compress(split, target, table))
            }
            Self::Lz4(table) => compress_into_with_table(split, target, table)
                .map(Some)
                .map_err(|error| broken("lz4", &error)),
            Self::Snappy(encoder) => {
                encoder.compress(split, target).map(Some).map_err(|error| broken("snappy", &error))
            }
            Self::Zlib(level) => encode_into(DeflateContainer::Zlib, *level, split, target),
            Self::Zstd(compressor) => compressor
                .compress_to_buffer(split, target)
                .map(Some)
                .map_err(|e| broken("zstd", &e)),
        }
    }
}

/// Returns the error for a compressor that fails unexpectedly.
fn broken(compressor: &str, error: &dyn Display) -> Error {
    Error::invalid(format!("blosc: {compressor}: {error}"))
}
