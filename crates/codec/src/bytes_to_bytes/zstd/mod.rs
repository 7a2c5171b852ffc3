//! `zstd` {level -131072..=22, default 0, which is zstd's own 3; checksum, default false}, also
//! `numcodecs.zstd`: one or more Zstandard frames in a row.
//!
//! Specification: RFC 8878. Length: at most 0.4 % and 18 bytes more. The content size may be
//! absent, and skippable frames are skipped. Decoding a chunk writes directly to the output, which
//! serves as the window, so no frame takes memory beyond it, whatever window it declares. Decoding
//! a range streams up to its end, and refuses windows of more than 8 MiB; such a chunk is decoded
//! as a whole.

use std::cell::Cell;
use std::io;
use std::ops::Range;

use zstd::bulk::Compressor;
use zstd::zstd_safe::{
    CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, WriteBuf, compress_bound,
    find_frame_compressed_size, get_error_name, get_frame_content_size,
};

use super::stream::{room, too_long};
use crate::configuration::{flag, integer};
use crate::json::Object;
use crate::kinds::{BytesToBytes, DecodedRange};
use tables::{MAX_SHORT_LEVEL, Tables};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

pub(super) mod tables;

/// The binary logarithm of the longest window with which a range is decoded: the decoder keeps as
/// much memory for each thread.
const MAX_WINDOW_LOG: u32 = 23;

/// The longest memory for ranges that a thread keeps.
const MAX_KEPT_RANGE: usize = 4 << 20;

/// The code of zstd's error for no memory.
const NO_MEMORY: usize = 0_usize.wrapping_sub(64);

std::thread_local! {
    /// Memory for the start of a chunk, from which a range is copied.
    static START: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// The decompression context of a thread: creating one takes longer than decoding a small
    /// chunk.
    static DECOMPRESSOR: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
    /// The compressor of a thread, for the levels that need little memory.
    static COMPRESSOR: Cell<Option<Compressor<'static>>> = const { Cell::new(None) };
}

/// The codec `zstd`.
#[derive(Debug)]
pub struct Zstd {
    level: i32,
    checksum: bool,
}

impl Zstd {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        let level = integer("zstd", configuration, "level", 0, -131_072..=22)?;
        let level = i32::try_from(level)
            .map_err(|_| Error::invalid(format!("zstd: level {level} does not fit in 32 bits")))?;
        Ok(Self { level, checksum: flag("zstd", configuration, "checksum")? })
    }
}

impl BytesToBytes for Zstd {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let mut encoded = room("zstd", compress_bound(decoded.len()))?;
        with_compressor((self.level, decoded.len()), |compressor| {
            compressor.set_parameter(CParameter::ChecksumFlag(self.checksum))?;
            compressor.compress_to_buffer(decoded, &mut encoded)
        })
        .map_err(|error| Error::invalid(format!("zstd: {error}")))?;
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        // Zstandard accepts empty input as no frames, but a chunk has at least one.
        if encoded.is_empty() {
            return Err(Error::corrupt("zstd: 0 bytes, expected a frame"));
        }
        let mut decoded = room("zstd", declared_len(encoded).map_or(limit, |len| len.min(limit)))?;
        decompress(encoded, &mut decoded).map_err(|code| {
            let error = get_error_name(code);
            Error::corrupt(format!("zstd: {error} (at most {limit} bytes expected)"))
        })?;
        if decoded.len() > limit {
            return Err(too_long("zstd", limit));
        }
        Ok(decoded)
    }

    fn encoder_memory(&self, decoded_len: usize) -> u64 {
        tables::memory(self.level, decoded_len, 1)
    }

    /// A checksum covers the whole frame, so a chunk that has one is decoded as a whole.
    fn has_ranges(&self) -> bool {
        !self.checksum
    }

    fn decodes_from_start(&self) -> bool {
        true
    }

    fn decode_range(
        &self,
        encoded: &[u8],
        decoded_len: usize,
        range: Range<usize>,
    ) -> Result<Option<DecodedRange>> {
        let len = range.end.min(decoded_len);
        let mut start = START.take();
        if start.len() < len {
            start = vec![0; len];
        }
        let decoded = start.get_mut(..len).map_or(Ok(()), |start| decode_start(encoded, start));
        let part = decoded.map(|()| {
            start.get(range).map(|bytes| DecodedRange { bytes: bytes.to_vec(), decoded: len })
        });
        if start.len() <= MAX_KEPT_RANGE {
            START.set(start);
        }
        part.map_err(|error| Error::corrupt(format!("zstd: {error}")))
    }
}

/// Decodes the first bytes of frames, as many as `start` has. Fails if there are fewer, or if a
/// frame needs a window of more than [`MAX_WINDOW_LOG`].
fn decode_start(encoded: &[u8], start: &mut [u8]) -> std::result::Result<(), &'static str> {
    with_context(|context| {
        context.reset(ResetDirective::SessionOnly)?;
        context.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))?;
        let len = start.len();
        let (mut output, mut input) = (OutBuffer::around(start), InBuffer::around(encoded));
        while output.pos() < len {
            let before = (output.pos(), input.pos());
            context.decompress_stream(&mut output, &mut input)?;
            if before == (output.pos(), input.pos()) {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .map_err(get_error_name)
    .and_then(|is_whole| if is_whole { Ok(()) } else { Err("the frames end before the range") })
}

/// Returns the decoded length if there is a single frame that declares it.
fn declared_len(encoded: &[u8]) -> Option<usize> {
    let len = get_frame_content_size(encoded).ok()??;
    let frame_len = find_frame_compressed_size(encoded).ok()?;
    (frame_len == encoded.len()).then(|| len.to_usize())
}

/// Decodes frames, and returns the number of bytes or the code of zstd's error.
pub(super) fn decompress<C: WriteBuf + ?Sized>(
    encoded: &[u8],
    decoded: &mut C,
) -> std::result::Result<usize, usize> {
    with_context(|context| context.decompress(decoded, encoded))
}

/// Runs `work` with this thread's decompression context.
fn with_context<T>(
    work: impl FnOnce(&mut DCtx<'static>) -> std::result::Result<T, usize>,
) -> std::result::Result<T, usize> {
    let mut context = match DECOMPRESSOR.take() {
        Some(context) => context,
        None => DCtx::try_create().ok_or(NO_MEMORY)?,
    };
    let result = work(&mut context);
    DECOMPRESSOR.set(Some(context));
    result
}

/// Runs `work` with a compressor of this level for inputs of `len` bytes.
fn with_compressor<T>(
    (level, len): (i32, usize),
    work: impl FnOnce(&mut Compressor<'static>) -> io::Result<T>,
) -> io::Result<T> {
    // Only short tables are kept with the thread.
    if level > MAX_SHORT_LEVEL {
        return work(&mut compressor(level, len, 1)?);
    }
    let mut compressor = match COMPRESSOR.take() {
        Some(mut compressor) => {
            compressor.set_compression_level(level)?;
            compressor
        }
        None => Compressor::new(level)?,
    };
    let result = work(&mut compressor)?;
    // Only after success: a compressor that failed would reject a new level.
    COMPRESSOR.set(Some(compressor));
    Ok(result)
}

/// Returns a compressor for inputs of `len` bytes, one of several that work at a time.
pub(super) fn compressor(
    level: i32,
    len: usize,
    compressors: usize,
) -> io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(level)?;
    for parameter in Tables::new(level, len, compressors).into_iter().flat_map(Tables::parameters) {
        compressor.set_parameter(parameter)?;
    }
    Ok(compressor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn codec(level: i64, checksum: bool) -> Zstd {
        let configuration = json!({"level": level, "checksum": checksum});
        Zstd::new(configuration.as_object().unwrap()).unwrap()
    }

    #[test]
    fn frames_in_a_row_are_joined_and_skippable_ones_skipped() {
        let mut encoded = codec(3, false).encode(b"abc").unwrap();
        encoded.extend([0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 1]);
        encoded.extend(codec(-5, true).encode(b"def").unwrap());
        assert_eq!(codec(0, false).decode(&encoded, 6).unwrap(), b"abcdef");
        assert!(codec(0, false).decode(&encoded, 5).is_err());
        encoded.push(0);
        assert!(codec(0, false).decode(&encoded, 6).is_err());
    }

    #[test]
    fn a_checksum_is_written_when_asked_for_and_checked() {
        for level in [1, 19] {
            let plain = codec(level, false).encode(&[9; 100]).unwrap();
            let mut encoded = codec(level, true).encode(&[9; 100]).unwrap();
            assert_eq!(encoded.len(), plain.len() + 4);
            assert_eq!(codec(level, false).encode(&[9; 100]).unwrap(), plain);
            *encoded.last_mut().unwrap() ^= 1;
            assert!(codec(level, true).decode(&encoded, 100).is_err());
        }
    }

    #[test]
    fn a_frame_without_a_content_size_decodes() {
        // Magic, a descriptor of 0, a window of 1 KiB, one last raw block of 3 bytes.
        let encoded = [0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0x19, 0, 0, b'a', b'b', b'c'];
        assert_eq!(codec(0, false).decode(&encoded, 3).unwrap(), b"abc");
        assert_eq!(codec(0, false).decode(&encoded, 5).unwrap(), b"abc");
        assert!(codec(0, false).decode(&encoded, 2).is_err());
    }

    #[test]
    fn a_declared_size_of_2_to_the_62_allocates_nothing() {
        let mut encoded = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
        encoded.extend((1_u64 << 62).to_le_bytes());
        encoded.extend([0x19, 0, 0, b'a', b'b', b'c']);
        assert!(codec(0, false).decode(&encoded, 3).is_err());
    }

    #[test]
    fn a_range_equals_that_of_the_whole_chunk() {
        let mut seed = 1_u32;
        let mut random = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8).to_usize()
        };
        let len = (1 << 20) + 12_345;
        // Noise, runs, and what a compressor finds matches in.
        let decoded: Vec<u8> = (0..len)
            .map(|at| match at >> 16 & 3 {
                0 => random().to_le_bytes()[0],
                1 => 7,
                _ => (at / 3 % 251_usize).to_le_bytes()[0] ^ (random().to_le_bytes()[0] & 1),
            })
            .collect();
        for (level, split) in [(1, len), (3, 300_000), (19, len), (-5, 1)] {
            let codec = codec(level, false);
            let frames =
                [&decoded[..split], &decoded[split..]].map(|part| codec.encode(part).unwrap());
            let encoded = frames.concat();
            for _ in 0..50 {
                let start = random() % len;
                let range = start..(start + random() % 200_000).min(len);
                let part = codec.decode_range(&encoded, len, range.clone()).unwrap().unwrap();
                assert!(part.bytes == decoded[range.clone()], "{range:?} at level {level}");
                assert_eq!(part.decoded, range.end);
            }
            // Truncated input gives an error; damaged input may give other bytes, but no panic.
            for cut in [0, 1, 5, 100, encoded.len() / 2] {
                drop(codec.decode_range(&encoded[..cut], len, len - 10..len).unwrap_err());
            }
            let mut damaged = encoded.clone();
            for _ in 0..50 {
                let at = random() % damaged.len();
                damaged[at] ^= 0x55;
                drop(codec.decode_range(&damaged, len, 5..100_000));
            }
        }
        assert!(!codec(3, true).has_ranges(), "the checksum is compared");
    }
}
