//! `imagecodecs_lzf` {header?}: `LibLZF`, with the decoded length in front unless `header` is
//! false.
//!
//! ```text
//! header    decoded length u32 le
//! literals  000nnnnn   n + 1 bytes
//! match     nnnooooo   o low bits    n + 2 bytes, n < 7, from o + 1 back; o has 13 bits
//! long      111ooooo   n   o low bits   n + 9 bytes
//! ```
//!
//! <http://oldhome.schmorp.de/marc/liblzf.html>. Length: at most 3.2 % and 5 bytes more than
//! decoded, at least an 88th of it.

use serde_json::Value;

use super::stream::{grow, room, room_to_decode, too_long};
use crate::configuration::flag;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

const NAME: &str = "imagecodecs_lzf";

/// The longest run of literals, and the farthest and the longest match.
const MAX_RUN: usize = 32;
const MAX_OFFSET: usize = 1 << 13;
const MAX_MATCH: usize = 264;

/// The length of a match that a code of two bytes can have.
const MAX_SHORT: usize = 8;

/// The number of places that the encoder remembers.
const TABLE_LEN: usize = 1 << 13;

/// The codec.
#[derive(Debug)]
pub struct Lzf {
    has_header: bool,
}

impl Lzf {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        let has_none = configuration.get("header") == Some(&Value::Bool(false));
        if !has_none {
            flag(NAME, configuration, "header")?;
        }
        Ok(Self { has_header: !has_none })
    }
}

fn truncated() -> Error {
    Error::corrupt(format!("{NAME}: the data are truncated"))
}

/// Appends `len` bytes of those that begin `offset` bytes before the end, which may overlap them.
fn copy_back(decoded: &mut Vec<u8>, offset: usize, len: usize, limit: usize) -> Result<()> {
    let start = decoded.len().checked_sub(offset);
    let start = start
        .ok_or_else(|| Error::corrupt(format!("{NAME}: a match begins before the first byte")))?;
    if len > limit.saturating_sub(decoded.len()) {
        return Err(too_long(NAME, limit));
    }
    grow(NAME, decoded, len)?;
    for at in start..start.saturating_add(len) {
        decoded.extend(decoded.get(at).copied());
    }
    Ok(())
}

/// Appends literals.
fn push_literals(literals: &[u8], encoded: &mut Vec<u8>) {
    for run in literals.chunks(MAX_RUN) {
        encoded.push(u8::try_from(run.len().saturating_sub(1)).unwrap_or_default());
        encoded.extend_from_slice(run);
    }
}

/// Appends a match of `len` bytes that begin `offset` bytes before.
fn push_match(offset: usize, len: usize, encoded: &mut Vec<u8>) {
    let byte = |number: usize| u8::try_from(number & 0xff).unwrap_or_default();
    let far = offset.saturating_sub(1);
    if len <= MAX_SHORT {
        encoded.push(byte(len.saturating_sub(2) << 5 | far >> 8));
    } else {
        encoded.extend([byte(7 << 5 | far >> 8), byte(len.saturating_sub(9))]);
    }
    encoded.push(byte(far));
}

/// Returns the place in the table for three bytes.
fn slot(bytes: &[u8]) -> Option<usize> {
    let [a, b, c, ..] = bytes else { return None };
    let word = u32::from_le_bytes([*a, *b, *c, 0]);
    Some((word.wrapping_mul(0x9e37_79b1) >> 19).to_usize() % TABLE_LEN)
}

impl BytesToBytes for Lzf {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let mut encoded = room(NAME, decoded.len() / 2 + 16)?;
        if self.has_header {
            let len = u32::try_from(decoded.len()).ok().filter(|len| *len <= 0x7fff_ffff);
            let len = len.ok_or_else(|| {
                Error::too_large(format!("{NAME}: {} bytes to encode", decoded.len()))
            })?;
            encoded.extend(len.to_le_bytes());
        }
        let mut table = vec![usize::MAX; TABLE_LEN];
        let (mut at, mut start) = (0, 0);
        while let Some(slot) = decoded.get(at..).and_then(slot) {
            let before = table.get_mut(slot).map(|place| std::mem::replace(place, at));
            let offset = before.and_then(|before| at.checked_sub(before));
            let offset = offset.filter(|offset| (1..=MAX_OFFSET).contains(offset)).unwrap_or(0);
            let here = decoded.get(at..).unwrap_or_default();
            let there = decoded.get(at.saturating_sub(offset)..).unwrap_or_default();
            let same = here.iter().zip(there).take(MAX_MATCH).take_while(|(a, b)| a == b).count();
            if offset == 0 || same < 3 {
                at += 1;
                continue;
            }
            push_literals(decoded.get(start..at).unwrap_or_default(), &mut encoded);
            push_match(offset, same, &mut encoded);
            at += same;
            start = at;
        }
        push_literals(decoded.get(start..).unwrap_or_default(), &mut encoded);
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let (declared, mut rest) = if self.has_header {
            let (header, rest) = encoded.split_first_chunk().ok_or_else(truncated)?;
            (Some(u32::from_le_bytes(*header).to_usize()), rest)
        } else {
            (None, encoded)
        };
        if declared.is_some_and(|len| len > limit) {
            return Err(too_long(NAME, limit));
        }
        let limit = declared.unwrap_or(limit);
        let mut decoded = room_to_decode(NAME, encoded.len(), limit)?;
        while let Some((code, after)) = rest.split_first() {
            let (code, len) = (code.to_owned(), usize::from(code >> 5));
            if len == 0 {
                let run = usize::from(code) + 1;
                let (literals, after) = after.split_at_checked(run).ok_or_else(truncated)?;
                rest = after;
                if run > limit.saturating_sub(decoded.len()) {
                    return Err(too_long(NAME, limit));
                }
                grow(NAME, &mut decoded, run)?;
                decoded.extend_from_slice(literals);
                continue;
            }
            let (more, after) =
                if len == 7 { after.split_first().ok_or_else(truncated)? } else { (&0, after) };
            let (low, after) = after.split_first().ok_or_else(truncated)?;
            rest = after;
            let offset = usize::from(code & 0x1f) << 8 | usize::from(*low);
            copy_back(&mut decoded, offset + 1, len + 2 + usize::from(*more), limit)?;
        }
        if declared.is_some_and(|len| len != decoded.len()) {
            let (found, declared) = (decoded.len(), limit);
            let what = format!("{NAME}: {found} bytes decoded, {declared} declared");
            return Err(Error::corrupt(what));
        }
        Ok(decoded)
    }
}
