//! `numcodecs.zlib` {level -1..=9, default 1}: one zlib stream.
//!
//! Specification: RFC 1950. Length: at most 0.1 % and 17 bytes more than decoded, at least a
//! thousandth of it. Bytes after the stream are an error. Preset dictionaries are not supported.

use std::cell::Cell;

use flate2::{Decompress, FlushDecompress, Status};

use super::deflate::{DeflateContainer, decode_whole, encode_whole};
use super::stream::{Decompressor, Input, StreamStep, decode_one, room_to_decode};
use crate::clock::Clock;
use crate::configuration::integer;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

std::thread_local! {
    /// The decompressor of a thread: creating one takes as long as decoding a small chunk.
    static DECOMPRESS: Cell<Option<Decompress>> = const { Cell::new(None) };
}

/// The codec `numcodecs.zlib`.
#[derive(Debug)]
pub struct Zlib {
    level: i32,
}

impl Zlib {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        let level = integer("zlib", configuration, "level", 1, -1..=9)?;
        Ok(Self { level: i32::try_from(level).ok().filter(|level| *level >= 0).unwrap_or(6) })
    }
}

impl BytesToBytes for Zlib {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        encode_whole(DeflateContainer::Zlib, self.level, decoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        if let Some(decoded) = decode_whole(DeflateContainer::Zlib, encoded, limit) {
            return Ok(decoded);
        }
        let mut output = room_to_decode("zlib", encoded.len(), limit)?;
        let used = with_decompress(|decompress| {
            decode_one(
                "zlib",
                &mut Inflate { codec: "zlib", decompress },
                encoded,
                &mut output,
                limit,
                Clock::start(),
            )
        })?;
        if used != encoded.len() {
            let surplus = encoded.len().saturating_sub(used);
            return Err(Error::corrupt(format!("zlib: {surplus} bytes follow the stream")));
        }
        Ok(output)
    }
}

/// Runs `work` with this thread's decompressor, reset for a zlib stream.
pub(super) fn with_decompress<T>(work: impl FnOnce(&mut Decompress) -> T) -> T {
    let mut decompress = DECOMPRESS.take().unwrap_or_else(|| Decompress::new(true));
    decompress.reset(true);
    let result = work(&mut decompress);
    DECOMPRESS.set(Some(decompress));
    result
}

/// `flate2` as a [`Decompressor`], for gzip too.
pub(super) struct Inflate<'a> {
    pub codec: &'static str,
    pub decompress: &'a mut Decompress,
}

impl Decompressor for Inflate<'_> {
    fn step(&mut self, input: &[u8], _: Input, output: &mut Vec<u8>) -> Result<StreamStep> {
        let before = self.decompress.total_in();
        let status = self
            .decompress
            .decompress_vec(input, output, FlushDecompress::None)
            .map_err(|error| Error::corrupt(format!("{}: {error}", self.codec)))?;
        let consumed = self.decompress.total_in().saturating_sub(before);
        Ok(StreamStep { consumed: consumed.to_usize(), ended: status == Status::StreamEnd })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_after_the_stream_are_an_error() {
        let codec = Zlib::new(&Object::new()).unwrap();
        let mut encoded = codec.encode(b"abc").unwrap();
        encoded.push(0);
        let error = codec.decode(&encoded, 3).unwrap_err();
        assert_eq!(error.detail(), "zlib: 1 bytes follow the stream");
    }

    #[test]
    fn a_preset_dictionary_is_an_error() {
        // CMF 0x78, FLG with FDICT, a dictionary id.
        let encoded = [0x78, 0xbb, 1, 2, 3, 4, 3, 0, 0, 0, 0, 1];
        assert!(Zlib::new(&Object::new()).unwrap().decode(&encoded, 9).is_err());
    }

    #[test]
    fn a_failed_stream_leaves_nothing_behind_for_the_next() {
        let codec = Zlib::new(&Object::new()).unwrap();
        let encoded = codec.encode(&[7; 5000]).unwrap();
        assert!(codec.decode(&encoded[..encoded.len() - 2], 5000).is_err());
        assert!(codec.decode(&encoded, 4999).is_err());
        assert_eq!(codec.decode(&encoded, 5000).unwrap(), [7; 5000]);
    }
}
