//! `numcodecs.bz2` {level 1..=9, default 1}: one or more consecutive bzip2 streams.
//!
//! Specification: numcodecs, and the program bzip2. Length: at most 1 % and 600 bytes more than
//! decoded, at least a 40,000th of it. Bytes after the streams are an error. Decoding takes up to
//! 3.7 MB of extra memory.

use bzip2::{Action, Compress, Compression, Decompress, Status};

use super::stream::{Decompressor, Input, StreamStep, decode_one, room, room_to_decode};
use crate::clock::Clock;
use crate::configuration::count;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The most bytes to pass to the compressor at a time: it counts its input in 32 bits.
const MAX_STEP_LEN: usize = 1 << 30;

/// The codec `numcodecs.bz2`.
#[derive(Debug)]
pub struct Bz2 {
    level: Compression,
}

impl Bz2 {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        Ok(Self { level: Compression::new(count("bz2", configuration, "level", 1, 1..=9)?) })
    }
}

impl BytesToBytes for Bz2 {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let mut compress = Compress::new(self.level, 0);
        let mut output = room("bz2", decoded.len() / 2 + 128)?;
        loop {
            let used = compress.total_in().to_usize();
            let rest = decoded.get(used..).unwrap_or_default();
            let (rest, action) = match rest.get(..MAX_STEP_LEN) {
                Some(step) => (step, Action::Run),
                None => (rest, Action::Finish),
            };
            let status = compress
                .compress_vec(rest, &mut output, action)
                .map_err(|error| Error::invalid(format!("bz2: {error}")))?;
            if status == Status::StreamEnd {
                return Ok(output);
            }
            output.reserve(decoded.len() / 4 + 128);
        }
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let mut output = room_to_decode("bz2", encoded.len(), limit)?;
        let mut rest = encoded;
        let clock = Clock::start();
        loop {
            let mut stream = Stream(Decompress::new(false));
            let used = decode_one("bz2", &mut stream, rest, &mut output, limit, clock)?;
            rest = rest.get(used..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(output);
            }
        }
    }
}

/// `bzip2` as a [`Decompressor`].
struct Stream(Decompress);

impl Decompressor for Stream {
    fn step(&mut self, input: &[u8], _: Input, output: &mut Vec<u8>) -> Result<StreamStep> {
        let before = self.0.total_in();
        let status = self
            .0
            .decompress_vec(input, output)
            .map_err(|error| Error::corrupt(format!("bz2: {error}")))?;
        let consumed = self.0.total_in().saturating_sub(before);
        Ok(StreamStep { consumed: consumed.to_usize(), ended: status == Status::StreamEnd })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_in_a_row_are_joined_and_other_bytes_after_them_an_error() {
        let codec = Bz2::new(&Object::new()).unwrap();
        let mut encoded = codec.encode(b"abc").unwrap();
        encoded.extend(codec.encode(b"").unwrap());
        encoded.extend(codec.encode(b"def").unwrap());
        assert_eq!(codec.decode(&encoded, 6).unwrap(), b"abcdef");
        assert!(codec.decode(&encoded, 5).is_err());
        encoded.push(b'B');
        assert!(codec.decode(&encoded, 6).is_err());
    }
}
