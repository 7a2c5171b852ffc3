//! `imagecodecs_lz4h5` {blocksize?, level?}: LZ4 as the filter of HDF5 stores it.
//!
//! ```text
//! +---------------------+-------------------+--------------------+------+
//! | decoded length, u64 | block length, u32 | stored length, u32 | data |  the last two for each block
//! +---------------------+-------------------+--------------------+------+
//! ```
//!
//! All numbers are big endian. A block that LZ4 does not make shorter is stored as it is.
//!
//! <https://github.com/HDFGroup/hdf5_plugins/blob/master/LZ4/LZ4_HDF5_format.md>. Length: at most 4
//! bytes more for each block, and 12.

use lz4_flex::block::{compress, decompress_into};

use super::stream::{grow, room, too_long, unset};
use crate::configuration::count;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

const NAME: &str = "imagecodecs_lz4h5";

/// The length of blocks if the configuration does not say it.
const USUAL: u32 = 1 << 30;

/// The codec.
#[derive(Debug)]
pub struct Lz4Hdf5 {
    block_len: u32,
}

impl Lz4Hdf5 {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        let block_len = count(NAME, configuration, "blocksize", USUAL, 0..=0x7e00_0000)?;
        Ok(Self { block_len: if block_len == 0 { USUAL } else { block_len } })
    }
}

fn truncated() -> Error {
    Error::corrupt(format!("{NAME}: a block is truncated"))
}

impl BytesToBytes for Lz4Hdf5 {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let whole = u32::try_from(decoded.len()).unwrap_or(u32::MAX);
        let block_len = self.block_len.min(whole).max(1);
        let mut encoded = room(NAME, decoded.len() / 2)?;
        encoded.extend(decoded.len().to_u64().to_be_bytes());
        encoded.extend(block_len.to_be_bytes());
        for block in decoded.chunks(block_len.to_usize()) {
            let data = compress(block);
            let data = if data.len() < block.len() { &data } else { block };
            let len = u32::try_from(data.len()).map_err(|_| Error::too_large(NAME))?;
            encoded.extend(len.to_be_bytes());
            encoded.extend_from_slice(data);
        }
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let (declared, rest) = encoded.split_first_chunk().ok_or_else(truncated)?;
        let (block_len, mut rest) = rest.split_first_chunk().ok_or_else(truncated)?;
        let block_len = u32::from_be_bytes(*block_len).to_usize();
        let declared = usize::try_from(u64::from_be_bytes(*declared)).ok();
        let declared = declared.filter(|len| *len <= limit).ok_or_else(|| too_long(NAME, limit))?;
        let mut decoded = Vec::new();
        while decoded.len() < declared {
            let (stored, after) = rest.split_first_chunk().ok_or_else(truncated)?;
            let stored = u32::from_be_bytes(*stored).to_usize();
            let (data, after) = after.split_at_checked(stored).ok_or_else(truncated)?;
            rest = after;
            let len = block_len.min(declared.saturating_sub(decoded.len()));
            // Each byte of a block decodes to at most 255 bytes, and a token to a few more.
            if len == 0 || len > stored.saturating_mul(255).saturating_add(32) {
                let what = format!("{NAME}: a block of {stored} bytes cannot hold {len}");
                return Err(Error::corrupt(what));
            }
            if stored == len {
                grow(NAME, &mut decoded, len)?;
                decoded.extend_from_slice(data);
                continue;
            }
            let mut block = unset(NAME, len)?;
            let found = decompress_into(data, &mut block)
                .map_err(|error| Error::corrupt(format!("{NAME}: {error}")))?;
            if found != len {
                let what = format!("{NAME}: {found} bytes in a block of {len}");
                return Err(Error::corrupt(what));
            }
            grow(NAME, &mut decoded, len)?;
            decoded.append(&mut block);
        }
        if !rest.is_empty() {
            let what = format!("{NAME}: {} bytes follow the last block", rest.len());
            return Err(Error::corrupt(what));
        }
        Ok(decoded)
    }
}
