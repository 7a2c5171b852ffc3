//! `imagecodecs_bitshuffle` {itemsize?, blocksize?}: the bits of the elements of a block, first all
//! first bits, then all second ones, and so on.
//!
//! `blocksize` counts elements and is a multiple of 8; 0 stands for about 8192 bytes. The last
//! block is shorter, and up to 7 elements at the end stay as they are. In Zarr 3 the type of the
//! chunk decides what an element is: imagecodecs 2026.10 encodes so, but decodes single bytes.
//! Length: the same.
//!
//! <https://github.com/kiyo-masui/bitshuffle>

use super::blosc::{bitshuffle, bitunshuffle};
use super::stream::{too_long, unset};
use crate::configuration::count;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

const NAME: &str = "imagecodecs_bitshuffle";

/// The codec.
#[derive(Debug)]
pub struct BitPlanes {
    item_len: usize,
    /// The elements of a block, a multiple of 8.
    block: usize,
}

/// Moves the bits of one block, with room for as many bytes.
type MoveBits = fn(usize, &[u8], &mut [u8], &mut [u8]);

impl BitPlanes {
    /// Returns the codec with a configuration of Zarr 2, which has the length of an element.
    pub fn new(configuration: &Object) -> Result<Self> {
        let item_len = count(NAME, configuration, "itemsize", 1, 1..=1 << 20)?;
        Self::for_items(configuration, item_len.to_usize())
    }

    /// Returns the codec for elements of this length.
    pub fn for_items(configuration: &Object, item_len: usize) -> Result<Self> {
        let block = count(NAME, configuration, "blocksize", 0, 0..=1 << 30)?.to_usize();
        if !block.is_multiple_of(8) {
            let what = format!("{NAME}: blocksize {block} is not a multiple of 8");
            return Err(Error::invalid(what));
        }
        let item_len = item_len.max(1);
        let usual = (8192 / item_len / 8 * 8).max(128);
        Ok(Self { item_len, block: if block == 0 { usual } else { block } })
    }

    fn moved(&self, bytes: &[u8], move_bits: MoveBits) -> Result<Vec<u8>> {
        if !bytes.len().is_multiple_of(self.item_len) {
            let (len, item_len) = (bytes.len(), self.item_len);
            return Err(Error::corrupt(format!(
                "{NAME}: {len} bytes are no multiple of {item_len}"
            )));
        }
        let mut target = unset(NAME, bytes.len())?;
        let block_len = self.block.saturating_mul(self.item_len).min(bytes.len()).max(1);
        let mut scratch = unset(NAME, block_len)?;
        for (source, target) in bytes.chunks(block_len).zip(target.chunks_mut(block_len)) {
            let body_len = source.len() / self.item_len / 8 * 8 * self.item_len;
            let source = source.split_at_checked(body_len);
            let target = target.split_at_mut_checked(body_len);
            if let (Some((body, rest)), Some((body_target, rest_target))) = (source, target) {
                let scratch = scratch.get_mut(..body_len).unwrap_or_default();
                move_bits(self.item_len, body, body_target, scratch);
                rest_target.copy_from_slice(rest);
            }
        }
        Ok(target)
    }
}

impl BytesToBytes for BitPlanes {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        self.moved(decoded, bitshuffle)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        if encoded.len() > limit {
            return Err(too_long(NAME, limit));
        }
        self.moved(encoded, bitunshuffle)
    }

    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        Some(decoded_len)
    }
}
