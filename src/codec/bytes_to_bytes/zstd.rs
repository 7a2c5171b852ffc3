//! `zstd` {level -131072..=22, default 0, which is zstd's own 3; checksum, default false}, also
//! `numcodecs.zstd`: one or more Zstandard frames in a row.
//!
//! Specification: RFC 8878. Length: at most 0.4 % and 18 bytes more. The content size may be
//! absent, and skippable frames are skipped. Decoding writes directly to the output, which serves
//! as the window, so no frame takes memory beyond it, whatever window it declares.

use std::cell::Cell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{
    CParameter, compress_bound, find_frame_compressed_size, get_frame_content_size,
};

use super::stream::{room, too_long};
use crate::codec::configuration::{flag, integer};
use crate::codec::kinds::BytesToBytes;
use crate::error::{Error, Result};
use crate::json::Object;

/// The highest level whose context, a few MiB, a thread caches; above, it can be hundreds of MiB.
const MAX_KEPT_LEVEL: i32 = 6;

thread_local! {
    /// The decompressor of a thread: creating one takes longer than decoding a small chunk.
    static DECOMPRESSOR: Cell<Option<Decompressor<'static>>> = const { Cell::new(None) };
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
        with_compressor(self.level, |compressor| {
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
        with_decompressor(|decompressor| decompressor.decompress_to_buffer(encoded, &mut decoded))
            .map_err(|error| {
                Error::corrupt(format!("zstd: {error} (at most {limit} bytes expected)"))
            })?;
        if decoded.len() > limit {
            return Err(too_long("zstd", limit));
        }
        Ok(decoded)
    }
}

/// Returns the decoded length if there is a single frame that declares it.
fn declared_len(encoded: &[u8]) -> Option<usize> {
    let len = get_frame_content_size(encoded).ok()??;
    let frame_len = find_frame_compressed_size(encoded).ok()?;
    (frame_len == encoded.len()).then(|| usize::try_from(len).unwrap_or(usize::MAX))
}

/// Runs `work` with this thread's decompressor.
pub(super) fn with_decompressor<T>(
    work: impl FnOnce(&mut Decompressor<'static>) -> io::Result<T>,
) -> io::Result<T> {
    let mut decompressor = match DECOMPRESSOR.take() {
        Some(decompressor) => decompressor,
        None => Decompressor::new()?,
    };
    let result = work(&mut decompressor);
    DECOMPRESSOR.set(Some(decompressor));
    result
}

/// Runs `work` with a compressor of this level.
fn with_compressor<T>(
    level: i32,
    work: impl FnOnce(&mut Compressor<'static>) -> io::Result<T>,
) -> io::Result<T> {
    if level > MAX_KEPT_LEVEL {
        return work(&mut Compressor::new(level)?);
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
}
