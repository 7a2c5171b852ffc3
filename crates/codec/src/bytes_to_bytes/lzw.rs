//! `imagecodecs_lzw`, `lzw`: LZW as in TIFF, which imagecodecs writes. There is no configuration.
//!
//! Codes have 9 to 12 bits, most significant bit first, and grow one code earlier than they need
//! to. 256 clears the table, and 257 is the end, which some writers of TIFF omit. Length: at most
//! half as much again.
//!
//! <https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf>, section 13,
//! <https://github.com/zarr-developers/zarr-extensions/pull/44>

use weezl::encode::Encoder;
use weezl::{BitOrder, LzwStatus, decode::Decoder};

use super::stream::{room_to_decode, too_long};
use crate::clock::Clock;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

/// The length of the bytes that are decoded at a time.
const PART_LEN: usize = 64 << 10;

/// The codec.
#[derive(Debug)]
pub struct Lzw;

impl Lzw {
    /// Returns the codec, which has no configuration.
    pub fn new(_configuration: &Object) -> Result<Self> {
        Ok(Self)
    }
}

impl BytesToBytes for Lzw {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        Encoder::with_tiff_size_switch(BitOrder::Msb, 8)
            .encode(decoded)
            .map_err(|error| Error::invalid(format!("lzw: {error}")))
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let clock = Clock::start();
        let mut decoder = Decoder::with_tiff_size_switch(BitOrder::Msb, 8);
        let mut decoded = room_to_decode("lzw", encoded.len(), limit)?;
        let mut part = vec![0; PART_LEN.min(limit.saturating_add(1))];
        let mut rest = encoded;
        loop {
            let step = decoder.decode_bytes(rest, &mut part);
            rest = rest.get(step.consumed_in..).unwrap_or_default();
            let written = part.get(..step.consumed_out).unwrap_or_default();
            if written.len() > limit.saturating_sub(decoded.len()) {
                return Err(too_long("lzw", limit));
            }
            decoded.extend_from_slice(written);
            match step.status.map_err(|error| Error::corrupt(format!("lzw: {error}")))? {
                LzwStatus::Done => return Ok(decoded),
                LzwStatus::NoProgress if decoded.len() == limit => return Ok(decoded),
                LzwStatus::NoProgress => {
                    let len = encoded.len();
                    return Err(Error::corrupt(format!("lzw: truncated after {len} bytes")));
                }
                LzwStatus::Ok => clock.check()?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `imagecodecs.lzw_encode(bytes(range(6)) * 3)` of imagecodecs 2026.10.10.
    const ENCODED: &[u8] = &[128, 0, 0, 32, 32, 24, 16, 11, 2, 130, 65, 161, 16, 80, 44, 4];

    #[test]
    fn data_of_imagecodecs_are_read_and_written() {
        let decoded = [0, 1, 2, 3, 4, 5].repeat(3);
        assert_eq!(Lzw.decode(ENCODED, 18).unwrap(), decoded);
        assert_eq!(Lzw.encode(&decoded).unwrap(), ENCODED);
        assert!(Lzw.decode(&Lzw.encode(&[]).unwrap(), 0).unwrap().is_empty());
    }

    #[test]
    fn the_end_may_be_missing_if_all_bytes_are_there() {
        let cut = &ENCODED[..ENCODED.len() - 1];
        assert_eq!(Lzw.decode(cut, 18).unwrap().len(), 18);
        assert!(Lzw.decode(cut, 19).is_err());
        assert!(Lzw.decode(&ENCODED[..4], 18).is_err());
    }
}
