//! One entry: its local header, and how its bytes are decoded.
//!
//! ```text
//! 0  "PK" 3 4 | version: 2 | flags: 2 | method: 2 | time, date: 4 | CRC-32: 4 | lengths: 8
//! 26 length of the name: 2 | length of the extra field: 2 | name | extra field | data
//! ```

use std::cell::RefCell;
use std::fmt;

use bytes::Bytes;
use libdeflater::{DecompressionError, Decompressor, crc32};

use super::names::{Spelling, is_name_of};
use super::table::Lens;
use zarrfs_base::error::{Error, Fault, Kind, Result};
use zarrfs_base::width::ToUsize;

/// The length of a local header without its name and its extra field, in bytes.
pub(super) const FIXED_LEN: u64 = 30;

/// The most bytes that deflate can decode from one byte.
const MAX_RATIO: u64 = 1032;

std::thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

/// How an entry is compressed, by its number in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Method(pub(super) u16);

impl Method {
    /// Not at all.
    pub(super) const STORED: Self = Self(0);
    /// RFC 1951.
    pub(super) const DEFLATE: Self = Self(8);
    /// RFC 8878.
    pub(super) const ZSTD: Self = Self(93);

    /// Fails unless entries with it can be read.
    pub(super) fn check(self) -> Result<()> {
        if [Self::STORED, Self::DEFLATE, Self::ZSTD].contains(&self) {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "compressed with {self}, which zarrfs does not decode: only entries that are stored, or \
             compressed with deflate or zstd"
        )))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = rawzip::CompressionMethod::new(self.0);
        match method.name() {
            Some(name) => write!(f, "method {} ({})", self.0, name.to_lowercase()),
            None => write!(f, "method {}", self.0),
        }
    }
}

/// Returns the length of the local header that `bytes` begin with. Fails if it is not that of an
/// entry with this method, encrypted or not, and a name that stands for `key`.
pub(super) fn header_len(
    bytes: &[u8],
    method: Method,
    is_encrypted: bool,
    key: &[u8],
    spelling: Spelling,
) -> Result<u32> {
    let other = |what: &str| Error::corrupt(format!("its local header {what}"));
    let Some((fixed, rest)) = bytes.split_first_chunk::<30>() else {
        return Err(other("ends past the archive"));
    };
    let [b'P', b'K', 3, 4, _, _, f0, _, m0, m1, .., n0, n1, e0, e1] = *fixed else {
        return Err(other("is missing"));
    };
    if u16::from_le_bytes([m0, m1]) != method.0 {
        return Err(other("has another compression method than the directory"));
    }
    if (f0 & 1 != 0) != is_encrypted {
        return Err(other("says otherwise than the directory whether it is encrypted"));
    }
    let (name_len, extra_len) = (u16::from_le_bytes([n0, n1]), u16::from_le_bytes([e0, e1]));
    let is_same = rest.get(..usize::from(name_len)).is_some_and(|local| match spelling {
        Spelling::Same => local == key,
        Spelling::Other => is_name_of(local, key),
        Spelling::InExtra => true,
    });
    if !is_same {
        return Err(other("has another name than the directory"));
    }
    Ok(u32::from(name_len).saturating_add(u32::from(extra_len)).saturating_add(30))
}

/// Returns the name in the local header that `bytes` begin with, or its start if they end too
/// early; `None` if they do not begin with a header.
pub(super) fn local_name(bytes: &[u8]) -> Option<&[u8]> {
    let (fixed, rest) = bytes.split_first_chunk::<30>()?;
    let [b'P', b'K', 3, 4, .., n0, n1, _, _] = *fixed else { return None };
    let len = usize::from(u16::from_le_bytes([n0, n1]));
    rest.get(..len.min(rest.len()))
}

/// Returns the bytes of an entry from those in the archive.
pub(super) fn decode(method: Method, encoded: &Bytes, lens: Lens, crc: u32) -> Result<Bytes> {
    let wrong = |found: &dyn fmt::Display| {
        let detail = format!("{found}; the directory of the archive has {} bytes", lens.decoded);
        Error::fault(Fault::Length, detail)
    };
    let decoded = match method {
        Method::STORED => encoded.clone(),
        Method::DEFLATE => {
            if lens.decoded > lens.stored.saturating_mul(MAX_RATIO) {
                return Err(wrong(&format!("{} deflated bytes hold fewer", lens.stored)));
            }
            let mut decoded = room(lens.decoded)?;
            decoded.resize(decoded.capacity().min(whole(lens.decoded)), 0);
            let inflate = |it: &RefCell<Decompressor>| {
                it.borrow_mut().deflate_decompress(encoded, &mut decoded)
            };
            match DECOMPRESSOR.with(inflate) {
                Ok(len) => decoded.truncate(len),
                Err(DecompressionError::InsufficientSpace) => return Err(wrong(&"more decoded")),
                Err(DecompressionError::BadData) => {
                    return Err(Error::corrupt("its deflated bytes are damaged"));
                }
            }
            Bytes::from(decoded)
        }
        Method::ZSTD => {
            let mut decoded = room(lens.decoded)?;
            zstd::bulk::Decompressor::new()
                .and_then(|mut it| it.decompress_to_buffer(encoded, &mut decoded))
                .map_err(|error| Error::corrupt(format!("zstd: {error}")))?;
            Bytes::from(decoded)
        }
        other => return Err(other.check().err().unwrap_or_else(|| Error::unsupported("unknown"))),
    };
    if decoded.len() != whole(lens.decoded) {
        return Err(wrong(&format!("{} bytes", decoded.len())));
    }
    check_crc(crc32(&decoded), crc)?;
    Ok(decoded)
}

/// Fails unless the bytes of an entry have the checksum `wanted`.
pub(super) fn check_crc(found: u32, wanted: u32) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    let detail = format!("CRC-32 {found:08x}, the directory of the archive has {wanted:08x}");
    Err(Error::fault(Fault::Checksum, detail))
}

/// Returns an empty buffer for this many bytes.
fn room(len: u64) -> Result<Vec<u8>> {
    let no_memory = || Error::new(Kind::NoMemory, format!("no memory for {len} bytes"));
    let mut buffer = Vec::new();
    let len = usize::try_from(len).map_err(|_| no_memory())?;
    buffer.try_reserve_exact(len).map_err(|_| no_memory())?;
    Ok(buffer)
}

fn whole(len: u64) -> usize {
    len.to_usize()
}
