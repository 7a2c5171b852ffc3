//! Runs a decompressor that works in steps against a limit.
//!
//! gzip, zlib, bz2 and lzma all take some input and fill some output at each call; the loop
//! around them, and the three ways in which it can end badly, are here once.

use crate::buffer::{self, reserve};
use crate::error::{Error, Kind, Result};

/// What one call of a decompressor did.
pub(super) struct Step {
    /// Bytes of input that it took.
    pub consumed: usize,
    /// Whether its stream is over and its checksum, if it has one, was right.
    pub ended: bool,
}

/// A decompressor at work on one stream.
pub(super) trait Decompressor {
    /// Decodes from `input` into the spare capacity of `output`, as far as either goes.
    fn step(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<Step>;
}

/// How much longer than a stream it is first taken to be when it is decoded. What is longer makes
/// more room.
const RATIO: usize = 8;

/// Room worth having at once.
const FIRST_LEN: usize = 64 << 10;

/// Where `encoded_len` bytes are to be decoded, by steps, to at most `limit`: that may be far more
/// than they will be, and decompressors fill all of the room that they are given.
pub(super) fn room_to_decode(codec: &str, encoded_len: usize, limit: usize) -> Result<Vec<u8>> {
    room(codec, encoded_len.saturating_mul(RATIO).saturating_add(FIRST_LEN).min(limit))
}

/// Decodes one stream from the start of `input` to the end of `output` (see [`room_to_decode`]),
/// which may get `limit` bytes in all. Returns how many bytes of input the stream has.
pub(super) fn decode_one(
    codec: &str,
    decompressor: &mut impl Decompressor,
    input: &[u8],
    output: &mut Vec<u8>,
    limit: usize,
) -> Result<usize> {
    // A full output does not say whether more would come; the byte that lands here does.
    let mut surplus = Vec::with_capacity(1);
    let mut used: usize = 0;
    loop {
        let rest = input.get(used..).unwrap_or_default();
        let len_before = output.len();
        if len_before < limit && len_before == output.capacity() {
            let more = limit.saturating_sub(len_before).min(len_before.max(FIRST_LEN));
            output.try_reserve_exact(more).map_err(|_| no_room(codec, len_before, more))?;
        }
        let target = if len_before < limit { &mut *output } else { &mut surplus };
        let step = decompressor.step(rest, target)?;
        if output.len() > limit || !surplus.is_empty() {
            return Err(too_long(codec, limit));
        }
        used = used.saturating_add(step.consumed);
        if step.ended {
            return Ok(used);
        }
        if step.consumed == 0 && output.len() == len_before {
            return Err(Error::corrupt(format!(
                "{codec}: stream truncated after {} bytes",
                input.len()
            )));
        }
    }
}

/// An empty vector with room for `len` bytes, or out of memory as an error. The room costs nothing
/// until it is written.
pub(super) fn room(codec: &str, len: usize) -> Result<Vec<u8>> {
    reserve(len).map_err(|_| no_room(codec, 0, len))
}

fn no_room(codec: &str, len: usize, more: usize) -> Error {
    let len = len.saturating_add(more);
    Error::new(Kind::NoMemory, format!("{codec}: cannot allocate {len} bytes"))
}

/// Returns `len` bytes for a caller that writes all of them (see [`buffer::unset`]); out of memory
/// is an error.
pub(super) fn unset(codec: &str, len: usize) -> Result<Vec<u8>> {
    buffer::unset(len).map_err(|_| no_room(codec, 0, len))
}

/// The error of a stream that is longer than it may be.
pub(super) fn too_long(codec: &str, limit: usize) -> Error {
    Error::corrupt(format!("{codec}: decodes to more than {limit} bytes"))
}
