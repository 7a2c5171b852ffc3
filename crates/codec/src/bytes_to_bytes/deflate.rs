//! Whole streams of gzip and zlib in one call of libdeflate, which is twice as fast as decoding in
//! steps.
//!
//! Decoding takes one stream of the expected length. Anything else (several members, padding,
//! another length, damage) is left to [`stream`](super::stream), which reports it.

use std::cell::RefCell;

use libdeflater::{CompressionError, CompressionLvl, Compressor, Decompressor, adler32, crc32};

use super::stream::unset;
use zarrfs_base::error::{Error, Result};

/// The most bytes that deflate can decode from one byte.
const MAX_RATIO: usize = 1032;

std::thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    /// The compressor of a thread, with its level.
    static COMPRESSOR: RefCell<Option<(i32, Compressor)>> = const { RefCell::new(None) };
}

/// The container around the deflated bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeflateContainer {
    /// RFC 1952.
    Gzip,
    /// RFC 1950.
    Zlib,
    /// None.
    Raw,
}

/// Returns the decoded bytes if `encoded` is one stream of exactly `len` decoded bytes.
pub(super) fn decode_whole(form: DeflateContainer, encoded: &[u8], len: usize) -> Option<Vec<u8>> {
    if len > encoded.len().saturating_mul(MAX_RATIO) {
        return None;
    }
    let isize = u32::try_from(len & 0xFFFF_FFFF).ok()?.to_le_bytes();
    let (header_len, trailer_len) = match form {
        DeflateContainer::Gzip if encoded.ends_with(&isize) => (gzip_header_len(encoded)?, 8),
        DeflateContainer::Zlib if is_zlib(encoded) => (2, 4),
        DeflateContainer::Gzip | DeflateContainer::Zlib | DeflateContainer::Raw => return None,
    };
    let trailer_at = encoded.len().checked_sub(trailer_len)?;
    let (stream, trailer) = (encoded.get(header_len..trailer_at)?, encoded.get(trailer_at..)?);
    let mut decoded = unset("deflate", len).ok()?;
    let decompress = |decompressor: &RefCell<Decompressor>| {
        decompressor.borrow_mut().deflate_decompress(stream, &mut decoded)
    };
    let found = DECOMPRESSOR.with(decompress).ok()?;
    // The trailer is at the end. Any bytes between the stream and the trailer change nothing.
    let is_whole = match form {
        DeflateContainer::Gzip => trailer.starts_with(&crc32(&decoded).to_le_bytes()),
        DeflateContainer::Zlib => trailer == adler32(&decoded).to_be_bytes(),
        DeflateContainer::Raw => trailer.is_empty(),
    };
    (found == len && is_whole).then_some(decoded)
}

/// Returns the length of the header of a gzip member, `None` if the header has optional fields.
fn gzip_header_len(encoded: &[u8]) -> Option<usize> {
    // Two magic bytes, deflate, no flags, a time of four bytes, and two more bytes.
    encoded.starts_with(&[0x1f, 0x8b, 8, 0]).then_some(10)
}

/// Whether the bytes begin with a header of zlib: deflate with a valid window, no dictionary, and a
/// correct check.
fn is_zlib(encoded: &[u8]) -> bool {
    matches!(encoded, [method, flags, ..] if method & 0x0F == 8
        && method >> 4 <= 7
        && flags & 0x20 == 0
        && u16::from_be_bytes([*method, *flags]).is_multiple_of(31))
}

/// Encodes all of `decoded` into one stream. Level 0 stores.
pub(super) fn encode_whole(form: DeflateContainer, level: i32, decoded: &[u8]) -> Result<Vec<u8>> {
    let bound = with_compressor(level, |compressor| match form {
        DeflateContainer::Gzip => compressor.gzip_compress_bound(decoded.len()),
        DeflateContainer::Zlib => compressor.zlib_compress_bound(decoded.len()),
        DeflateContainer::Raw => compressor.deflate_compress_bound(decoded.len()),
    })?;
    let mut encoded = unset("deflate", bound)?;
    let len = encode_into(form, level, decoded, &mut encoded)?;
    encoded.truncate(len.ok_or_else(|| broken(&"the result is too long"))?);
    Ok(encoded)
}

/// Encodes to the start of `target`, and returns the length; `None` if it does not fit.
pub(super) fn encode_into(
    form: DeflateContainer,
    level: i32,
    decoded: &[u8],
    target: &mut [u8],
) -> Result<Option<usize>> {
    let len = with_compressor(level, |compressor| match form {
        DeflateContainer::Gzip => compressor.gzip_compress(decoded, target),
        DeflateContainer::Zlib => compressor.zlib_compress(decoded, target),
        DeflateContainer::Raw => compressor.deflate_compress(decoded, target),
    })?;
    match len {
        Ok(len) => Ok(Some(len)),
        Err(CompressionError::InsufficientSpace) => Ok(None),
    }
}

/// Runs `work` with this thread's compressor, which it creates if the level differs.
fn with_compressor<T>(level: i32, work: impl FnOnce(&mut Compressor) -> T) -> Result<T> {
    let for_level = CompressionLvl::new(level).map_err(|error| broken(&error))?;
    COMPRESSOR.with(|kept| {
        let mut kept = kept.borrow_mut();
        let (_, compressor) = match kept.take() {
            Some(same) if same.0 == level => kept.insert(same),
            _ => kept.insert((level, Compressor::new(for_level))),
        };
        Ok(work(compressor))
    })
}

fn broken(error: &dyn std::fmt::Debug) -> Error {
    Error::invalid(format!("deflate: {error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stream_of_the_length_is_decoded_and_nothing_else_is() {
        for form in [DeflateContainer::Gzip, DeflateContainer::Zlib] {
            for level in [0, 1, 6, 9] {
                let encoded = encode_whole(form, level, b"abcabcabc").expect("encoded");
                assert_eq!(decode_whole(form, &encoded, 9).as_deref(), Some(&b"abcabcabc"[..]));
                for len in [0, 8, 10, 1 << 40] {
                    assert_eq!(decode_whole(form, &encoded, len), None);
                }
                assert_eq!(decode_whole(form, &[&encoded[..], &[0]].concat(), 9), None);
                assert_eq!(decode_whole(form, &encoded[..encoded.len() - 1], 9), None);
                for at in 0..encoded.len() {
                    let mut damaged = encoded.clone();
                    damaged[at] ^= 0x10;
                    // A change of unused bits has no effect.
                    if let Some(decoded) = decode_whole(form, &damaged, 9) {
                        assert_eq!(decoded, b"abcabcabc", "byte {at}");
                    }
                }
            }
        }
    }
}
