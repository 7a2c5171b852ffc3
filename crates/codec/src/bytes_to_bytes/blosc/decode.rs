//! The reader of Blosc frames. It checks every number in a frame before use, and allocates memory
//! for blocks only if the frame is long enough to have them.

use std::ops::Range;

use flate2::{FlushDecompress, Status};

use super::super::stream::{too_long, unset};
use super::super::zlib::with_decompress;
use super::super::zstd;
use super::bitshuffle::bitunshuffle;
use super::blosclz;
use super::frame::{
    CODEC_VERSION, Compressor, Filter, FrameHeader, HEADER_LEN, RESERVED_FLAG, STORED_FLAG,
    UNSPLIT_FLAG, VERSION, share, split_count,
};
use super::scratch::Scratch;
use super::shuffle::unshuffle;
use crate::kinds::DecodedRange;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::parallel;
use zarrfs_base::width::ToUsize;

/// The length in bytes of the number before each split, and of a block's offset.
const NUMBER_LEN: usize = 4;

/// Decodes one frame to at most `limit` bytes.
pub(super) fn decode(encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
    match Frame::open(encoded, limit)? {
        Frame::Stored(decoded) => Ok(decoded.to_vec()),
        Frame::Blocks(blocks) => blocks.decode(0..blocks.offsets.len()),
    }
}

/// Decodes a range of a frame of `decoded_len` decoded bytes; `None` if the range needs most of its
/// blocks.
pub(super) fn decode_range(
    encoded: &[u8],
    decoded_len: usize,
    range: Range<usize>,
) -> Result<Option<DecodedRange>> {
    let wrong = |len: usize| Error::corrupt(format!("blosc: {len} bytes, not {decoded_len}"));
    let blocks = match Frame::open(encoded, decoded_len)? {
        Frame::Stored(decoded) if decoded.len() != decoded_len => return Err(wrong(decoded.len())),
        Frame::Stored(decoded) => {
            let bytes = decoded.get(range.clone());
            return Ok(
                bytes.map(|bytes| DecodedRange { bytes: bytes.to_vec(), decoded: range.len() })
            );
        }
        Frame::Blocks(blocks) if blocks.decoded_len != decoded_len => {
            return Err(wrong(blocks.decoded_len));
        }
        Frame::Blocks(blocks) => blocks,
    };
    let wanted = range.start / blocks.block_len..range.end.div_ceil(blocks.block_len);
    if wanted.len() > blocks.offsets.len() / 2 {
        return Ok(None);
    }
    let skipped = wanted.start.saturating_mul(blocks.block_len);
    let mut bytes = blocks.decode(wanted)?;
    let decoded = bytes.len();
    bytes.truncate(range.end.saturating_sub(skipped));
    bytes.drain(..range.start.saturating_sub(skipped).min(bytes.len()));
    Ok(Some(DecodedRange { bytes, decoded }))
}

/// The flags that stand for the longer header of Blosc2.
const BLOSC2_FLAGS: u8 = 0b101;

/// Reads the header and checks everything that does not depend on the rest of the frame.
fn parse(encoded: &[u8]) -> Result<FrameHeader> {
    let (words, _) = encoded.as_chunks();
    let [[version, codec_version, flags, item_len], decoded_len, block_len, encoded_len, ..] =
        *words
    else {
        let len = encoded.len();
        return Err(Error::corrupt(format!("blosc: {len} bytes are too few for a header")));
    };
    let header = FrameHeader {
        flags,
        item_len,
        decoded_len: u32::from_le_bytes(decoded_len),
        block_len: u32::from_le_bytes(block_len),
        encoded_len: u32::from_le_bytes(encoded_len),
    };
    if version != VERSION {
        // A frame of Blosc2 has both filters in its flags, which no other frame has.
        if (3..=6).contains(&version) && flags & BLOSC2_FLAGS == BLOSC2_FLAGS {
            return Err(Error::unsupported(format!(
                "blosc: frame of version {version} (Blosc2), not 2"
            )));
        }
        return Err(Error::corrupt(format!("blosc: frame of version {version}, not 2")));
    }
    if flags & RESERVED_FLAG != 0 {
        return Err(Error::corrupt(format!("blosc: unknown flag in {flags:#04x}")));
    }
    if length(header.encoded_len)? != encoded.len() {
        return Err(Error::corrupt(format!(
            "blosc: {} bytes, but the header says {}",
            encoded.len(),
            header.encoded_len
        )));
    }
    if header.decoded_len == 0 {
        return Ok(header);
    }
    if item_len == 0 {
        return Err(Error::corrupt("blosc: typesize is 0"));
    }
    if header.block_len == 0 || header.block_len > header.decoded_len {
        return Err(Error::corrupt(format!(
            "blosc: blocks of {} bytes in {}",
            header.block_len, header.decoded_len
        )));
    }
    if flags & STORED_FLAG == 0 && codec_version != CODEC_VERSION {
        return Err(Error::corrupt(format!("blosc: codec of version {codec_version}, not 1")));
    }
    Ok(header)
}

fn length(len: u32) -> Result<usize> {
    usize::try_from(len).map_err(|_| Error::too_large(format!("blosc: {len} bytes")))
}

/// The contents of a frame after its header.
enum Frame<'a> {
    /// The decoded bytes.
    Stored(&'a [u8]),
    Blocks(FrameBlocks<'a>),
}

impl<'a> Frame<'a> {
    /// Opens a frame of at most `limit` decoded bytes.
    fn open(encoded: &'a [u8], limit: usize) -> Result<Self> {
        let header = parse(encoded)?;
        let decoded_len = length(header.decoded_len)?;
        if decoded_len > limit {
            return Err(too_long("blosc", limit));
        }
        if decoded_len == 0 {
            return Ok(Self::Stored(&[]));
        }
        if header.flags & STORED_FLAG == 0 {
            return FrameBlocks::new(encoded, &header, decoded_len).map(Self::Blocks);
        }
        let stored = encoded.get(HEADER_LEN..).unwrap_or_default();
        if stored.len() != decoded_len {
            let len = stored.len();
            return Err(Error::corrupt(format!("blosc: {len} of {decoded_len} bytes are stored")));
        }
        Ok(Self::Stored(stored))
    }
}

/// The blocks of a frame.
struct FrameBlocks<'a> {
    encoded: &'a [u8],
    /// The offsets of the blocks, as they are stored.
    offsets: &'a [[u8; NUMBER_LEN]],
    compressor: Compressor,
    filter: Filter,
    item_len: usize,
    block_len: usize,
    decoded_len: usize,
    /// The number of splits of a whole block.
    split_count: usize,
}

impl<'a> FrameBlocks<'a> {
    fn new(encoded: &'a [u8], header: &FrameHeader, decoded_len: usize) -> Result<Self> {
        let compressor = Compressor::from_flags(header.flags).ok_or_else(|| {
            Error::corrupt(format!("blosc: codec {} is not known", header.flags >> 5))
        })?;
        let (item_len, block_len) = (usize::from(header.item_len), length(header.block_len)?);
        let unsplit = header.flags & UNSPLIT_FLAG != 0;
        let split_count = if unsplit { 1 } else { split_count(item_len, block_len) };
        if !block_len.is_multiple_of(split_count) {
            return Err(Error::corrupt(format!(
                "blosc: blocks of {block_len} bytes in {split_count} splits"
            )));
        }
        let block_count = decoded_len.div_ceil(block_len);
        let offsets = encoded
            .get(HEADER_LEN..)
            .and_then(|rest| rest.as_chunks().0.get(..block_count))
            .ok_or_else(|| {
                let len = encoded.len();
                Error::corrupt(format!("blosc: {len} bytes are too few for {block_count} blocks"))
            })?;
        let filter = Filter::from_flags(header.flags, item_len);
        Ok(Self {
            encoded,
            offsets,
            compressor,
            filter,
            item_len,
            block_len,
            decoded_len,
            split_count,
        })
    }

    /// Allocates scratch space for a shuffled block, and as much again for bit shuffle.
    fn scratch(&self) -> Result<Scratch> {
        Scratch::new(self.filter.room(self.block_len))
    }

    /// Decodes consecutive blocks.
    fn decode(&self, wanted: Range<usize>) -> Result<Vec<u8>> {
        let len_until = |block: usize| block.saturating_mul(self.block_len).min(self.decoded_len);
        let len = len_until(wanted.end).saturating_sub(len_until(wanted.start));
        let mut decoded = unset("blosc", len)?;
        let offsets = self.offsets.get(wanted.clone()).unwrap_or_default();
        let share = share(self.block_len);
        let offsets = wanted.step_by(share).zip(offsets.chunks(share));
        let shares = offsets.zip(decoded.chunks_mut(share.saturating_mul(self.block_len)));
        let decode = |scratch: &mut Scratch, ((first, offsets), blocks): ((usize, &[_]), _)| {
            self.decode_blocks((first, offsets), blocks, scratch)
        };
        parallel::map(shares.collect(), || self.scratch(), decode)?;
        Ok(decoded)
    }

    /// Decodes the blocks at these offsets; the first block has the given index.
    fn decode_blocks(
        &self,
        (first, offsets): (usize, &[[u8; NUMBER_LEN]]),
        blocks: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        for ((index, offset), block) in
            (first..).zip(offsets).zip(blocks.chunks_mut(self.block_len))
        {
            let offset = length(u32::from_le_bytes(*offset))?;
            self.decode_block(offset, block, scratch)
                .map_err(|error| Error::corrupt(format!("blosc: block {index}: {error}")))?;
        }
        Ok(())
    }

    fn decode_block(
        &self,
        offset: usize,
        block: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        let rest = self.encoded.get(offset..).ok_or("lies past the end")?;
        let split_count = if block.len() == self.block_len { self.split_count } else { 1 };
        if self.filter == Filter::None {
            return decompress_splits(self.compressor, rest, split_count, block);
        }
        let (shuffled, scratch) = scratch.split(self.block_len);
        let shuffled = shuffled.get_mut(..block.len()).unwrap_or_default();
        decompress_splits(self.compressor, rest, split_count, shuffled)?;
        if self.filter == Filter::Bytes {
            unshuffle(self.item_len, shuffled, block);
        } else {
            let scratch = scratch.get_mut(..block.len()).unwrap_or_default();
            bitunshuffle(self.item_len, shuffled, block, scratch);
        }
        Ok(())
    }
}

/// Fills `block` from the `split_count` splits at the start of `rest`.
fn decompress_splits(
    compressor: Compressor,
    mut rest: &[u8],
    split_count: usize,
    block: &mut [u8],
) -> Result<(), String> {
    for target in block.chunks_exact_mut((block.len() / split_count).max(1)) {
        let (len, after) = rest.split_first_chunk().ok_or("ends within a length")?;
        let len = u32::from_le_bytes(*len).to_usize();
        let (split, after) = after
            .split_at_checked(len)
            .ok_or_else(|| format!("split of {len} bytes with {} left", after.len()))?;
        rest = after;
        if split.len() == target.len() {
            target.copy_from_slice(split);
            continue;
        }
        let actual = decompress(compressor, split, target)
            .ok_or_else(|| format!("{len} bytes that are not {}", compressor.name()))?;
        if actual != target.len() {
            return Err(format!("{actual} bytes decoded, split has {}", target.len()));
        }
    }
    Ok(())
}

/// Decompresses a split into `target` and returns its length; `None` if it does not fit or is
/// corrupt.
fn decompress(compressor: Compressor, split: &[u8], target: &mut [u8]) -> Option<usize> {
    match compressor {
        Compressor::BloscLz => blosclz::decompress(split, target),
        Compressor::Lz4 => lz4_flex::block::decompress_into(split, target).ok(),
        Compressor::Snappy => snap::raw::Decoder::new().decompress(split, target).ok(),
        Compressor::Zlib => with_decompress(|decompress| {
            let status = decompress.decompress(split, target, FlushDecompress::Finish).ok()?;
            let len = decompress.total_out().to_usize();
            (status == Status::StreamEnd).then_some(len)
        }),
        Compressor::Zstd => zstd::decompress(split, target).ok(),
    }
}
