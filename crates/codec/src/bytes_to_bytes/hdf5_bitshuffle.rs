//! `hdf5_bitshuffle` {itemsize, blocksize?, compressor?}: the filter 32008 of HDF5, which shuffles
//! the bits of each block of elements, and may compress the block. The detectors of Dectris write
//! it.
//!
//! ```text
//! compressor none   the blocks
//! lz4 and zstd      decoded length u64 | block length u32 | blocks: stored length u32 | data
//! ```
//!
//! All numbers are big endian. `blocksize` counts elements and is a multiple of 8; 0 stands for
//! about 8192 bytes. The last block is shorter, and up to 7 elements at the end stay as they are,
//! without a length. zarrfs only decodes it. Length: unknown.
//!
//! <https://github.com/kiyo-masui/bitshuffle>

use lz4_flex::block::decompress_into;
use serde_json::{Value, json};
use zstd::bulk::Decompressor;

use super::bit_planes::BitPlanes;
use super::blosc::bitunshuffle;
use super::stream::{grow, too_long, unset};
use crate::configuration::count;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

const NAME: &str = "hdf5_bitshuffle";

/// How a block is compressed.
#[derive(Debug, Clone, Copy)]
enum BlockCompressor {
    Lz4,
    Zstd,
}

/// The codec.
#[derive(Debug)]
pub struct Hdf5Bitshuffle {
    item_len: usize,
    /// The blocks of chunks that are not compressed.
    planes: BitPlanes,
    compressor: Option<BlockCompressor>,
}

impl Hdf5Bitshuffle {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        let item_len = count(NAME, configuration, "itemsize", 1, 1..=1 << 20)?.to_usize();
        let compressor = match configuration.get("compressor").and_then(Value::as_str) {
            None | Some("none") => None,
            Some("lz4") => Some(BlockCompressor::Lz4),
            Some("zstd") => Some(BlockCompressor::Zstd),
            Some(other) => {
                return Err(Error::unsupported(format!("{NAME}: compressor {other:?}")));
            }
        };
        let block = configuration.get("blocksize").cloned().unwrap_or(json!(0));
        let of_planes = Object::from_iter([("blocksize".to_owned(), block)]);
        let planes = BitPlanes::for_items(&of_planes, item_len)?;
        Ok(Self { item_len, planes, compressor })
    }

    /// Decodes a chunk of compressed blocks.
    fn decode_blocks(
        &self,
        encoded: &[u8],
        limit: usize,
        compressor: BlockCompressor,
    ) -> Result<Vec<u8>> {
        let (declared, rest) = encoded.split_first_chunk().ok_or_else(truncated)?;
        let (block_len, mut rest) = rest.split_first_chunk().ok_or_else(truncated)?;
        let block_len = u32::from_be_bytes(*block_len).to_usize();
        let declared = usize::try_from(u64::from_be_bytes(*declared)).ok();
        let declared = declared.filter(|len| *len <= limit).ok_or_else(|| too_long(NAME, limit))?;
        // Eight elements have a row of bits in each byte.
        let group_len = self.item_len.saturating_mul(8);
        if block_len == 0 || !block_len.is_multiple_of(group_len) {
            let what =
                format!("{NAME}: a block of {block_len} bytes is no multiple of {group_len}");
            return Err(Error::corrupt(what));
        }
        let mut decoded = Vec::new();
        let in_blocks = declared / group_len * group_len;
        let mut decompressor = BlockDecompressor::new(compressor)?;
        while decoded.len() < in_blocks {
            let len = block_len.min(in_blocks.saturating_sub(decoded.len()));
            let (stored, after) = rest.split_first_chunk().ok_or_else(truncated)?;
            let stored = u32::from_be_bytes(*stored).to_usize();
            let (data, after) = after.split_at_checked(stored).ok_or_else(truncated)?;
            rest = after;
            let rows = decompressor.decode(data, len)?;
            let (mut block, mut scratch) = (unset(NAME, len)?, unset(NAME, len)?);
            bitunshuffle(self.item_len, &rows, &mut block, &mut scratch);
            grow(NAME, &mut decoded, len)?;
            decoded.append(&mut block);
        }
        let left = declared.saturating_sub(decoded.len());
        if rest.len() != left {
            let what = format!("{NAME}: {} bytes follow the last block, not {left}", rest.len());
            return Err(Error::corrupt(what));
        }
        grow(NAME, &mut decoded, left)?;
        decoded.extend_from_slice(rest);
        Ok(decoded)
    }
}

fn truncated() -> Error {
    Error::corrupt(format!("{NAME}: a block is truncated"))
}

/// Decodes the blocks of a chunk.
enum BlockDecompressor {
    Lz4,
    Zstd(Decompressor<'static>),
}

impl BlockDecompressor {
    fn new(compressor: BlockCompressor) -> Result<Self> {
        Ok(match compressor {
            BlockCompressor::Lz4 => Self::Lz4,
            BlockCompressor::Zstd => {
                Self::Zstd(Decompressor::new().map_err(|error| Error::os(&error))?)
            }
        })
    }

    /// Returns the `len` bytes of a block.
    fn decode(&mut self, data: &[u8], len: usize) -> Result<Vec<u8>> {
        // LZ4 makes bytes shorter by 255 at most, and zstd has 4 bytes for 2^17.
        let factor = match self {
            Self::Lz4 => 255,
            Self::Zstd(_) => 1 << 16,
        };
        if len > data.len().saturating_mul(factor).saturating_add(64) {
            let what = format!("{NAME}: a block of {} bytes cannot hold {len}", data.len());
            return Err(Error::corrupt(what));
        }
        let mut block = unset(NAME, len)?;
        let found = match self {
            Self::Lz4 => decompress_into(data, &mut block).map_err(|error| error.to_string()),
            Self::Zstd(decompressor) => decompressor
                .decompress_to_buffer(data, block.as_mut_slice())
                .map_err(|error| error.to_string()),
        };
        let found = found.map_err(|error| Error::corrupt(format!("{NAME}: {error}")))?;
        if found != len {
            return Err(Error::corrupt(format!("{NAME}: {found} bytes in a block of {len}")));
        }
        Ok(block)
    }
}

impl BytesToBytes for Hdf5Bitshuffle {
    fn encode(&self, _decoded: &[u8]) -> Result<Vec<u8>> {
        Err(Error::unsupported(format!("{NAME}: zarrfs only decodes it")))
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        match self.compressor {
            None => self.planes.decode(encoded, limit),
            Some(compressor) => self.decode_blocks(encoded, limit, compressor),
        }
    }
}

#[cfg(test)]
mod tests {
    use lz4_flex::block::compress;

    use super::super::blosc::bitshuffle;
    use super::*;

    /// Twenty elements of two bytes: blocks of 16, and four elements that stay as they are.
    fn encoded() -> (Vec<u8>, Vec<u8>) {
        let decoded: Vec<u8> = (0..40).collect();
        let (mut rows, mut scratch) = (vec![0; 32], vec![0; 32]);
        bitshuffle(2, &decoded[..32], &mut rows, &mut scratch);
        let block = compress(&rows);
        let mut encoded = 40_u64.to_be_bytes().to_vec();
        encoded.extend(32_u32.to_be_bytes());
        encoded.extend(u32::try_from(block.len()).unwrap().to_be_bytes());
        encoded.extend(block);
        encoded.extend(&decoded[32..]);
        (encoded, decoded)
    }

    #[test]
    fn elements_after_the_last_block_stay_as_they_are() {
        let configuration = json!({"itemsize": 2, "compressor": "lz4"});
        let codec = Hdf5Bitshuffle::new(configuration.as_object().unwrap()).unwrap();
        let (encoded, decoded) = encoded();
        assert_eq!(codec.decode(&encoded, 40).unwrap(), decoded);
        assert!(codec.decode(&encoded, 39).is_err());
        for len in 0..encoded.len() {
            assert!(codec.decode(&encoded[..len], 40).is_err(), "{len}");
        }
        let mut endless = encoded;
        endless[..8].copy_from_slice(&u64::MAX.to_be_bytes());
        assert!(codec.decode(&endless, usize::MAX).is_err());
    }
}
