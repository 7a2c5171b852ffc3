//! `imagecodecs_lz4f` {blocksizeid?, contentchecksum?, blockchecksum?, level?}: frames of LZ4, as
//! the program lz4 writes them.
//!
//! ```text
//! frame   04 22 4d 18, descriptor, blocks, u32 0, checksum of all decoded bytes u32 if flagged
//! descriptor
//!         flags, block size, decoded length u64 if flagged, checksum of the descriptor u8
//! block   stored length u32 (its top bit is set if it is not compressed), data, checksum u32
//! ```
//!
//! All numbers are little endian, and all checksums xxHash32. Matches may reach back into the 64
//! KiB before a block, unless the frame has independent blocks. Consecutive frames are joined.
//! Frames with a dictionary are refused. Specification: `lz4_Frame_format.md` of LZ4. Length: at
//! most 23 bytes more than decoded and 8 for each block, at least a 255th of it.

use lz4_flex::block::{compress, decompress_into_with_dict};
use twox_hash::XxHash32;

use super::stream::{grow, too_long, unset};
use crate::clock::Clock;
use crate::configuration::{flag, integer};
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Fault, Result};
use zarrfs_base::width::{ToU64, ToUsize};

const NAME: &str = "imagecodecs_lz4f";
const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// The bits of the first byte of a descriptor.
const VERSION: u8 = 0x40;
const VERSION_MASK: u8 = 0xc0;
const INDEPENDENT: u8 = 0x20;
const BLOCK_CHECKSUMS: u8 = 0x10;
const LENGTH: u8 = 0x08;
const CHECKSUM: u8 = 0x04;
const DICTIONARY: u8 = 0x01;

/// The bit of a block that is not compressed.
const STORED: u32 = 1 << 31;

/// How far back matches reach.
const WINDOW_LEN: usize = 64 << 10;

/// The codec.
#[derive(Debug)]
pub struct Lz4Frame {
    /// The size of blocks as the descriptor has it, 4 to 7.
    block_size: u8,
    flags: u8,
}

/// Returns the most decoded bytes of a block.
fn block_len(size: u8) -> usize {
    1 << (8 + 2 * usize::from(size.clamp(4, 7)))
}

fn corrupt(what: &str) -> Error {
    Error::corrupt(format!("{NAME}: {what}"))
}

/// The rest of the encoded bytes.
struct FrameRest<'a>(&'a [u8]);

impl<'a> FrameRest<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let parts = self.0.split_at_checked(len);
        let (taken, rest) = parts.ok_or_else(|| corrupt("the frame is truncated"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    fn number(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().unwrap_or_default()))
    }

    fn check(&mut self, bytes: &[u8]) -> Result<()> {
        let (stored, actual) = (self.number()?, XxHash32::oneshot(0, bytes));
        if stored == actual {
            return Ok(());
        }
        let what = format!("{NAME}: checksum {stored:#010x} stored, {actual:#010x} computed");
        Err(Error::fault(Fault::Checksum, what))
    }
}

impl Lz4Frame {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        let size = integer(NAME, configuration, "blocksizeid", 4, 0..=7)?;
        let block_checksums = flag(NAME, configuration, "blockchecksum")?;
        let checksum = flag(NAME, configuration, "contentchecksum")?;
        let flags = VERSION
            | INDEPENDENT
            | LENGTH
            | if block_checksums { BLOCK_CHECKSUMS } else { 0 }
            | if checksum { CHECKSUM } else { 0 };
        Ok(Self { block_size: u8::try_from(size).unwrap_or(4).max(4), flags })
    }

    /// Decodes one frame to the end of `decoded`.
    fn frame(
        rest: &mut FrameRest<'_>,
        decoded: &mut Vec<u8>,
        limit: usize,
        clock: Clock,
    ) -> Result<()> {
        if rest.take(MAGIC.len())? != MAGIC {
            return Err(corrupt("a frame does not begin with 04 22 4d 18"));
        }
        let descriptor = rest.0;
        let (flags, size) = (rest.byte()?, rest.byte()?);
        if flags & VERSION_MASK != VERSION || flags & DICTIONARY != 0 || size & 0x8f != 0 {
            return Err(Error::unsupported(format!(
                "{NAME}: a frame with flags {flags:#04x} and block size {size:#04x}"
            )));
        }
        let most = block_len(size >> 4);
        let declared = match flags & LENGTH {
            0 => None,
            _ => Some(u64::from_le_bytes(rest.take(8)?.try_into().unwrap_or_default())),
        };
        let descriptor = descriptor.get(..descriptor.len().saturating_sub(rest.0.len()));
        let [_, sum, ..] = XxHash32::oneshot(0, descriptor.unwrap_or_default()).to_le_bytes();
        if rest.byte()? != sum {
            return Err(Error::fault(Fault::Checksum, format!("{NAME}: damaged header")));
        }
        let start = decoded.len();
        loop {
            let stored = rest.number()?;
            if stored == 0 {
                break;
            }
            let data = rest.take((stored & !STORED).to_usize())?;
            if flags & BLOCK_CHECKSUMS != 0 {
                rest.check(data)?;
            }
            let from = if flags & INDEPENDENT == 0 { start } else { decoded.len() };
            Self::block(stored & STORED != 0, data, most, (from, limit), decoded)?;
            clock.check()?;
        }
        let content = decoded.get(start..).unwrap_or_default();
        if declared.is_some_and(|len| len != content.len().to_u64()) {
            return Err(corrupt("the frame does not have the declared length"));
        }
        if flags & CHECKSUM != 0 { rest.check(content) } else { Ok(()) }
    }

    /// Decodes a block of at most `most` bytes to the end of `decoded`, which may have bytes that
    /// matches lead to from `from` on, and may reach `limit` bytes.
    fn block(
        is_stored: bool,
        data: &[u8],
        most: usize,
        (from, limit): (usize, usize),
        decoded: &mut Vec<u8>,
    ) -> Result<()> {
        let room = limit.saturating_sub(decoded.len());
        if is_stored {
            if data.len() > room.min(most) {
                return Err(too_long(NAME, limit));
            }
            grow(NAME, decoded, data.len())?;
            decoded.extend_from_slice(data);
            return Ok(());
        }
        // Each byte of a block decodes to at most 255 bytes, and a token to a few more.
        let most = data.len().saturating_mul(255).saturating_add(32).min(most);
        let mut block = unset(NAME, most.min(room))?;
        let window = decoded.len().saturating_sub(WINDOW_LEN).max(from);
        let window = decoded.get(window..).unwrap_or_default();
        let len = decompress_into_with_dict(data, &mut block, window)
            .map_err(|error| corrupt(&error.to_string()))?;
        block.truncate(len);
        grow(NAME, decoded, len)?;
        decoded.append(&mut block);
        Ok(())
    }
}

impl BytesToBytes for Lz4Frame {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let mut encoded = MAGIC.to_vec();
        // imagecodecs allocates the decoded length that is stored here.
        let mut descriptor = vec![self.flags, self.block_size << 4];
        descriptor.extend(decoded.len().to_u64().to_le_bytes());
        let [_, sum, ..] = XxHash32::oneshot(0, &descriptor).to_le_bytes();
        encoded.append(&mut descriptor);
        encoded.push(sum);
        for block in decoded.chunks(block_len(self.block_size)) {
            let data = compress(block);
            let (data, flag) =
                if data.len() < block.len() { (data.as_slice(), 0) } else { (block, STORED) };
            let len = u32::try_from(data.len()).map_err(|_| Error::too_large(NAME))?;
            encoded.extend((len | flag).to_le_bytes());
            encoded.extend_from_slice(data);
            if self.flags & BLOCK_CHECKSUMS != 0 {
                encoded.extend(XxHash32::oneshot(0, data).to_le_bytes());
            }
        }
        encoded.extend([0; 4]);
        if self.flags & CHECKSUM != 0 {
            encoded.extend(XxHash32::oneshot(0, decoded).to_le_bytes());
        }
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let mut decoded = Vec::new();
        let mut rest = FrameRest(encoded);
        let clock = Clock::start();
        loop {
            Self::frame(&mut rest, &mut decoded, limit, clock)?;
            if rest.0.is_empty() {
                return Ok(decoded);
            }
        }
    }
}
