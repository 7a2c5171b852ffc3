//! `imagecodecs_packbits` {axis?}: the run lengths of Macintosh and TIFF.
//!
//! ```text
//! literals   n, less than 128   n + 1 bytes
//! run        257 - n            a byte, n times
//! nothing    128
//! ```
//!
//! A single 0 at the end is padding. `axis` matters only to the encoder of imagecodecs, which then
//! ends runs at the end of rows. Not to be confused with the `packbits` of numcodecs or of the
//! registry. Length: at most 0.8 % and 1 byte more than decoded, at least a 64th of it.
//!
//! TIFF 6.0, section 9.

use super::stream::{grow, room, room_to_decode, too_long};
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

const NAME: &str = "imagecodecs_packbits";

/// The longest run, and the most literals.
const MAX_LEN: usize = 128;

/// The shortest run that interrupts literals.
const MIN_RUN: usize = 3;

/// The codec.
#[derive(Debug)]
pub struct RunLengths;

fn push_literals(literals: &[u8], encoded: &mut Vec<u8>) {
    for part in literals.chunks(MAX_LEN) {
        encoded.push(u8::try_from(part.len().saturating_sub(1)).unwrap_or_default());
        encoded.extend_from_slice(part);
    }
}

impl BytesToBytes for RunLengths {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let mut encoded = room(NAME, decoded.len() / 2)?;
        let (mut at, mut start) = (0, 0);
        while let Some((byte, rest)) = decoded.get(at..).and_then(<[u8]>::split_first) {
            let more = rest.iter().take(MAX_LEN - 1).take_while(|other| *other == byte).count();
            let run = more + 1;
            if run >= MIN_RUN {
                push_literals(decoded.get(start..at).unwrap_or_default(), &mut encoded);
                encoded.extend([u8::try_from(257 - run).unwrap_or(u8::MAX), *byte]);
                start = at + run;
            }
            at += run;
        }
        push_literals(decoded.get(start..).unwrap_or_default(), &mut encoded);
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let truncated = || Error::corrupt(format!("{NAME}: the last run is truncated"));
        let mut decoded = room_to_decode(NAME, encoded.len(), limit)?;
        let mut rest = encoded;
        while let Some((code, after)) = rest.split_first() {
            let code = usize::from(*code);
            let (bytes, count, after) = match code {
                0 if after.is_empty() => break,
                0..MAX_LEN => {
                    let parts = after.split_at_checked(code + 1);
                    let (literals, after) = parts.ok_or_else(truncated)?;
                    (literals, 1, after)
                }
                MAX_LEN => (after.get(..0).unwrap_or_default(), 0, after),
                _ => {
                    let (byte, after) = after.split_at_checked(1).ok_or_else(truncated)?;
                    (byte, 257 - code, after)
                }
            };
            rest = after;
            if bytes.len().saturating_mul(count) > limit.saturating_sub(decoded.len()) {
                return Err(too_long(NAME, limit));
            }
            grow(NAME, &mut decoded, bytes.len().saturating_mul(count))?;
            decoded.extend(bytes.iter().cycle().take(bytes.len() * count));
        }
        Ok(decoded)
    }
}
