//! Runs a decompressor in steps, up to a limit.
//!
//! The decoders of gzip, zlib, bz2 and lzma take some input and fill some output at each call. They
//! share this loop, with its three errors.

use crate::clock::Clock;
use zarrfs_base::buffer::{self, reserve};
use zarrfs_base::error::{Error, Kind, Result};

/// The result of one call of a decompressor.
pub(super) struct StreamStep {
    /// The number of input bytes that it consumed.
    pub consumed: usize,
    /// Whether the stream ended, with a correct checksum if it has one.
    pub ended: bool,
}

/// A part of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    NotLast,
    Last,
}

/// A decompressor in the middle of one stream.
pub(super) trait Decompressor {
    /// Decodes from `input` into the spare capacity of `output` until either is used up. After the
    /// last part of the input no more follows.
    fn step(&mut self, input: &[u8], part: Input, output: &mut Vec<u8>) -> Result<StreamStep>;
}

/// The first guess of the ratio of decoded to encoded length. The output grows if a stream decodes
/// to more.
const RATIO: usize = 8;

/// The least capacity to allocate at first.
const FIRST_LEN: usize = 64 << 10;

/// How much input a decompressor gets at a time. Between the parts, the time is checked.
const PART_LEN: usize = 64 << 10;

/// Allocates the first output for decoding `encoded_len` bytes to at most `limit`. The limit may be
/// far too large, and decompressors write to all of the capacity.
pub(super) fn room_to_decode(codec: &str, encoded_len: usize, limit: usize) -> Result<Vec<u8>> {
    room(codec, encoded_len.saturating_mul(RATIO).saturating_add(FIRST_LEN).min(limit))
}

/// Decodes one stream from the start of `input` to the end of `output` (see [`room_to_decode`]),
/// which may reach `limit` bytes. Returns the length of the stream in bytes of input.
pub(super) fn decode_one(
    codec: &str,
    decompressor: &mut impl Decompressor,
    input: &[u8],
    output: &mut Vec<u8>,
    limit: usize,
    clock: Clock,
) -> Result<usize> {
    // A full output does not show whether more would come; a byte that is written here does.
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
        let (input_part, part) = match rest.get(..PART_LEN) {
            Some(first) if first.len() < rest.len() => (first, Input::NotLast),
            _ => (rest, Input::Last),
        };
        let step = decompressor.step(input_part, part, target)?;
        if output.len() > limit || !surplus.is_empty() {
            return Err(too_long(codec, limit));
        }
        used = used.saturating_add(step.consumed);
        if step.ended {
            return Ok(used);
        }
        clock.check()?;
        if step.consumed == 0 && output.len() == len_before {
            return Err(Error::corrupt(format!(
                "{codec}: stream truncated after {} bytes",
                input.len()
            )));
        }
    }
}

/// Returns an empty vector with capacity for `len` bytes; an error if there is no memory. The
/// capacity takes no memory until it is written.
pub(super) fn room(codec: &str, len: usize) -> Result<Vec<u8>> {
    reserve(len).map_err(|_| no_room(codec, 0, len))
}

/// Makes room for `more` bytes at the end of `output`; an error if there is no memory.
pub(super) fn grow(codec: &str, output: &mut Vec<u8>, more: usize) -> Result<()> {
    output.try_reserve(more).map_err(|_| no_room(codec, output.len(), more))
}

fn no_room(codec: &str, len: usize, more: usize) -> Error {
    let len = len.saturating_add(more);
    Error::new(Kind::NoMemory, format!("{codec}: cannot allocate {len} bytes"))
}

/// Returns `len` bytes for a caller that writes all of them (see [`buffer::unset`]); an error if
/// there is no memory.
pub(super) fn unset(codec: &str, len: usize) -> Result<Vec<u8>> {
    buffer::unset(len).map_err(|_| no_room(codec, 0, len))
}

/// Returns the error for a stream that exceeds its limit.
pub(super) fn too_long(codec: &str, limit: usize) -> Error {
    Error::corrupt(format!("{codec}: decodes to more than {limit} bytes"))
}
