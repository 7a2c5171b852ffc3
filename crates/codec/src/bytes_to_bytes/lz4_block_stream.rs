//! `lz4_block_stream` {blockSize}: the `lz4` of N5, which is the format of Java's
//! `LZ4BlockOutputStream`.
//!
//! ```text
//! +------------+-------+---------------------+---------------------+--------------+------+
//! | "LZ4Block" | token | stored length, u32  | decoded length, u32 | checksum u32 | data |  of each block
//! +------------+-------+---------------------+---------------------+--------------+------+
//! ```
//!
//! All numbers are little endian. The upper half of the token has the method (1 for stored bytes, 2
//! for an LZ4 block), the lower half the size of blocks. The checksum is the lower 28 bits of
//! xxHash32. A block of no bytes ends the stream. No registry has this name: only N5 uses the
//! format, under its own name.
//!
//! Specification: `LZ4BlockOutputStream` of lz4-java. Length: at most 21 bytes more for each block.

use lz4_flex::block::{compress, decompress_into};
use twox_hash::XxHash32;

use super::stream::{too_long, unset};
use crate::configuration::count;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

const MAGIC: &[u8; 8] = b"LZ4Block";
const HEADER_LEN: usize = 21;
const RAW: u8 = 0x10;
const LZ4: u8 = 0x20;
/// The seed of the hash in Java.
const SEED: u32 = 0x9747_b28c;
/// The bits of the hash that Java stores.
const MASK: u32 = 0x0fff_ffff;

/// The codec.
#[derive(Debug)]
pub struct Lz4BlockStream {
    /// The decoded length of a block in bytes.
    block_len: usize,
    /// The size of blocks in the form of the token.
    level: u8,
}

impl Lz4BlockStream {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        let size = count("lz4", configuration, "blockSize", 1 << 16, 64..=1 << 25)?;
        let bits = 32 - (size - 1).leading_zeros();
        Ok(Self {
            block_len: usize::try_from(size).unwrap_or(1 << 16),
            level: u8::try_from(bits.saturating_sub(10)).unwrap_or_default(),
        })
    }
}

/// Returns the checksum of decoded bytes.
fn checksum(decoded: &[u8]) -> u32 {
    XxHash32::oneshot(SEED, decoded) & MASK
}

fn corrupt(what: &str) -> Error {
    Error::corrupt(format!("lz4: {what}"))
}

/// Reads a number of a header.
fn number(header: &[u8], at: usize) -> Option<u32> {
    let bytes = header.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*bytes))
}

impl BytesToBytes for Lz4BlockStream {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let mut encoded = Vec::new();
        let mut push = |method: u8, data: &[u8], block: &[u8]| -> Result<()> {
            let len = |bytes: &[u8]| {
                u32::try_from(bytes.len()).map_err(|_| Error::too_large("lz4: a block"))
            };
            encoded.extend_from_slice(MAGIC);
            encoded.push(method | self.level);
            encoded.extend_from_slice(&len(data)?.to_le_bytes());
            encoded.extend_from_slice(&len(block)?.to_le_bytes());
            let sum = if block.is_empty() { 0 } else { checksum(block) };
            encoded.extend_from_slice(&sum.to_le_bytes());
            encoded.extend_from_slice(data);
            Ok(())
        };
        for block in decoded.chunks(self.block_len.max(1)) {
            let data = compress(block);
            if data.len() < block.len() {
                push(LZ4, &data, block)?;
            } else {
                push(RAW, block, block)?;
            }
        }
        push(RAW, &[], &[])?;
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        if encoded.is_empty() {
            return Err(corrupt("no block, not even the one that ends the stream"));
        }
        let mut decoded = Vec::new();
        let mut rest = encoded;
        while !rest.is_empty() {
            let (header, after) =
                rest.split_at_checked(HEADER_LEN).ok_or_else(|| corrupt("a block is truncated"))?;
            if !header.starts_with(MAGIC) {
                return Err(corrupt("a block does not begin with LZ4Block"));
            }
            let token = header.get(MAGIC.len()).copied().unwrap_or_default();
            let len = |at| usize::try_from(number(header, at).unwrap_or(u32::MAX));
            let (Ok(stored), Ok(len)) = (len(9), len(13)) else {
                return Err(corrupt("a block does not fit into memory"));
            };
            let (data, after) =
                after.split_at_checked(stored).ok_or_else(|| corrupt("a block is truncated"))?;
            rest = after;
            if len > limit.saturating_sub(decoded.len()) {
                return Err(too_long("lz4", limit));
            }
            if len == 0 {
                continue;
            }
            let block = match token & 0xf0 {
                RAW if stored == len => data.to_vec(),
                // Each byte of a block decodes to at most 255 bytes, and a token to a few more.
                LZ4 if len <= stored.saturating_mul(255).saturating_add(32) => {
                    let mut block = unset("lz4", len)?;
                    let found = decompress_into(data, &mut block)
                        .map_err(|error| corrupt(&error.to_string()))?;
                    if found != len {
                        return Err(corrupt("a block does not have the declared length"));
                    }
                    block
                }
                RAW | LZ4 => return Err(corrupt("a block is too short for the declared length")),
                _ => return Err(corrupt("unknown compression method of a block")),
            };
            if number(header, 17).is_none_or(|sum| sum & MASK != checksum(&block)) {
                return Err(corrupt("the checksum of a block does not match"));
            }
            decoded.extend_from_slice(&block);
        }
        Ok(decoded)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Forty bytes that do not compress, and 64 that do, as lz4-java 1.8.0 encodes them.
    const STORED: &str = "4c5a34426c6f636b162800000028000000418fd10273d51abbd89cb8196f0efb6892f94d68fccc2c35f0b84609e5f12c55dd85aba8d5d9bef76808f3b54c5a34426c6f636b16000000000000000000000000";
    const BLOCKS: &str = "4c5a34426c6f636b202900000040000000c40de0091200010012010100120201001203010012040100120501001206010012070100800808080808080809";

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    fn codec() -> Lz4BlockStream {
        Lz4BlockStream::new(&Object::new()).unwrap()
    }

    #[test]
    fn streams_of_java_are_read() {
        let stored = bytes(STORED);
        assert_eq!(codec().decode(&stored, 40).unwrap(), stored[21..61]);
        assert_eq!(codec().encode(&stored[21..61]).unwrap(), stored);
        let expected: Vec<u8> = (0..64_u8).map(|i| (i / 7) % 11).collect();
        let mut block = bytes(BLOCKS);
        assert_eq!(codec().decode(&block, 64).unwrap(), expected);
        assert!(codec().decode(&block, 63).is_err());
        block[18] ^= 1;
        assert!(codec().decode(&block, 64).unwrap_err().to_string().contains("checksum"));
    }

    proptest! {
        #[test]
        fn encoded_streams_are_decoded(bytes in prop::collection::vec(0..4_u8, 0..3000)) {
            let codec = Lz4BlockStream { block_len: 256, level: 0 };
            let encoded = codec.encode(&bytes).unwrap();
            prop_assert_eq!(codec.decode(&encoded, bytes.len()).unwrap(), bytes);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut block = MAGIC.to_vec();
            block.extend(bytes);
            let _ = codec().decode(&block, 1000);
        }
    }
}
