//! `imagecodecs_snappy` {level?}: one block of Snappy, which begins with the decoded length.
//!
//! <https://github.com/google/snappy/blob/main/format_description.txt>. Length: at most 16.7 % and
//! 32 bytes more than decoded, at least a 22nd of it.

use snap::raw::{Decoder, Encoder, decompress_len};

use super::stream::{too_long, unset};
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

const NAME: &str = "imagecodecs_snappy";

/// The most bytes that one encoded byte decodes to: a copy of 64 bytes takes three.
const MAX_RATIO: usize = 22;

/// The codec.
#[derive(Debug)]
pub struct Snappy;

fn corrupt(error: &snap::Error) -> Error {
    Error::corrupt(format!("{NAME}: {error}"))
}

impl BytesToBytes for Snappy {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let encoded = Encoder::new().compress_vec(decoded);
        encoded.map_err(|error| Error::invalid(format!("{NAME}: {error}")))
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let len = decompress_len(encoded).map_err(|error| corrupt(&error))?;
        if len > limit {
            return Err(too_long(NAME, limit));
        }
        if len > encoded.len().saturating_mul(MAX_RATIO) {
            let stored = encoded.len();
            let what = format!("{NAME}: {stored} bytes cannot hold the {len} that are declared");
            return Err(Error::corrupt(what));
        }
        let mut decoded = unset(NAME, len)?;
        let found =
            Decoder::new().decompress(encoded, &mut decoded).map_err(|error| corrupt(&error))?;
        if found != len {
            return Err(Error::corrupt(format!("{NAME}: {found} bytes decoded, {len} declared")));
        }
        Ok(decoded)
    }
}
