//! Files that are compressed as a whole: `scan.nii.gz`, `x.fits.bz2`, `x.nc.zst`. Such a file is
//! unpacked once, into a temporary file without a name, and that is scanned.

use std::io::{self, BufReader, Read};

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use serde_json::json;

use crate::described::{Described, DescribedArray, codec};
use crate::pieces::{self, Stored};
use crate::source::SourceFile;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::{ToU64, ToUsize};
use zarrfs_store::Key;
use zarrfs_store::unnamed::{CopiedValue, UnnamedFile};

/// The most bytes of an unpacked file.
pub const MAX_LEN: u64 = 64 << 30;

/// How many bytes are written at a time, and how many are read.
const STEP: usize = 1 << 20;
const READ_LEN: usize = 8 << 20;

/// The longest array that is one chunk.
const MAX_CHUNK_LEN: u64 = 256 << 20;

/// How many bytes are unpacked between two lines of the log.
const LOG_STEP: u64 = 1 << 30;

/// The largest window of zstd, as a power of two: of level 21.
const MAX_WINDOW: u32 = 26;

/// A compressor of whole files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressor {
    /// One or more members of gzip.
    Gzip,
    /// One or more streams of bzip2.
    Bzip2,
    /// One or more frames of Zstandard.
    Zstd,
    /// A stream of zlib, of elements.
    Zlib,
}

/// The endings of names of such files.
const ENDINGS: [(&str, Compressor); 3] =
    [(".gz", Compressor::Gzip), (".bz2", Compressor::Bzip2), (".zst", Compressor::Zstd)];

impl Compressor {
    /// Returns the compressor of a file by its first bytes.
    pub fn of(first: &[u8]) -> Option<Self> {
        match first {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Self::Bzip2),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Returns the first bytes of what is packed, as far as the first bytes of the file tell them.
    pub fn unpacked(self, first: &[u8]) -> Vec<u8> {
        let mut found = vec![0; 512];
        let mut len = 0;
        if let Ok(mut decoder) = self.decoder(first) {
            while let Some(rest) = found.get_mut(len..).filter(|rest| !rest.is_empty()) {
                match decoder.read(rest) {
                    Ok(more) if more > 0 => len = len.saturating_add(more),
                    // The rest of the file is missing.
                    _ => break,
                }
            }
        }
        found.truncate(len);
        found
    }

    fn decoder<'r>(self, packed: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
        Ok(match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Self::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(packed)),
            Self::Zlib => Box::new(ZlibDecoder::new(packed)),
            Self::Zstd => {
                let mut decoder = zstd::Decoder::new(packed)?;
                decoder.window_log_max(MAX_WINDOW)?;
                Box::new(decoder)
            }
        })
    }
}

/// Returns a name without the ending of a compressor.
pub fn unpacked_name(name: &str) -> Option<&str> {
    let lower = name.to_ascii_lowercase();
    let (ending, _) = ENDINGS.iter().find(|(ending, _)| lower.ends_with(ending))?;
    name.get(..name.len().checked_sub(ending.len())?).filter(|rest| !rest.is_empty())
}

/// Unpacks a file from the byte `offset` on to at most `most` bytes, and makes the chunks lead to
/// the copy.
pub fn unpack(
    packing: Compressor,
    file: &SourceFile,
    offset: u64,
    most: u64,
    described: &mut Described,
) -> Result<SourceFile> {
    let packed = BufReader::with_capacity(READ_LEN, Sequential { file, at: offset });
    let broken = |error: io::Error| damaged(file, &error);
    let mut decoder = packing.decoder(packed).map_err(broken)?;
    let mut copy = UnnamedFile::make()?;
    let mut buffer = vec![0; STEP];
    let mut logged = 0;
    loop {
        let len = decoder.read(&mut buffer).map_err(broken)?;
        if len == 0 {
            break;
        }
        if copy.len().saturating_add(len.to_u64()) > most {
            return Err(Error::too_large(format!("it unpacks to more than {most} bytes")));
        }
        copy.append(buffer.get(..len).unwrap_or_default())?;
        if copy.len().saturating_sub(logged) >= LOG_STEP {
            logged = copy.len();
            log::info!("{}: {} MiB are unpacked", file.name(), logged >> 20);
        }
    }
    let name = unpacked_name(file.name()).unwrap_or(file.name());
    let key = Key::parse(name)?;
    let origin = CopiedValue {
        store: file.store().clone(),
        key: file.key().clone(),
        version: file.stat().version,
    };
    let store = copy.into_store(key.clone(), file.stat().modified, origin);
    let location = format!("{}/{name}", described.add_place(store.clone()));
    let unpacked = SourceFile::located(&store, &key, location)?.at_home_of(file);
    described.lead_to(&unpacked)?;
    Ok(unpacked)
}

/// Describes an array whose elements are compressed as a whole, from `place.offset` to the end of a
/// file: as one chunk, or if that is long, in pieces of an unpacked copy.
pub fn describe(
    described: &mut Described,
    path: &str,
    mut array: DescribedArray,
    place: Stored<'_>,
    packing: Compressor,
    values: &SourceFile,
) -> Result<()> {
    let Stored { shape, item_len, offset, .. } = place;
    let len = shape.iter().try_fold(item_len, |all, len| all.checked_mul(*len));
    if len.is_none_or(|len| len > MAX_CHUNK_LEN) {
        let most = len.filter(|len| *len <= MAX_LEN).ok_or_else(|| {
            Error::unsupported(format!("elements that unpack to more than {MAX_LEN} bytes"))
        })?;
        let copy = unpack(packing, values, offset, most, described)?;
        let place = Stored { offset: 0, ..place };
        pieces::check_end(place, &copy)?;
        return pieces::describe(described, path, array, place);
    }
    array.codecs.push(match packing {
        Compressor::Gzip => codec("gzip", json!({"level": 1})),
        Compressor::Bzip2 => codec("numcodecs.bz2", json!({"level": 9})),
        Compressor::Zstd => codec("zstd", json!({"level": 3, "checksum": false})),
        Compressor::Zlib => codec("numcodecs.zlib", json!({"level": 1})),
    });
    array.chunk_shape = shape.iter().map(|len| (*len).max(1)).collect();
    described.array(path, &array)?;
    if len == Some(0) {
        return Ok(());
    }
    let stored_len = values.len().saturating_sub(offset);
    described.chunk(path, &vec![0; shape.len()], offset, stored_len)
}

fn damaged(file: &SourceFile, error: &io::Error) -> Error {
    // An error of the store has its own kind.
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(own) => own.clone(),
        None if error.kind() == io::ErrorKind::OutOfMemory => {
            Error::new(Kind::TooLarge, format!("{} cannot be unpacked: {error}", file.name()))
        }
        None => Error::corrupt(format!("it cannot be unpacked: {error}")),
    }
}

/// Reads a file from its beginning to its end.
#[derive(Debug)]
struct Sequential<'f> {
    file: &'f SourceFile,
    at: u64,
}

impl Read for Sequential<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.file.len().saturating_sub(self.at).to_usize();
        let len = buffer.len().min(left);
        let found = self.file.read(self.at, len).map_err(io::Error::other)?;
        if let Some(target) = buffer.get_mut(..found.len()) {
            target.copy_from_slice(&found);
        }
        self.at = self.at.saturating_add(found.len().to_u64());
        Ok(found.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_first_bytes_tell_a_compressor() {
        assert_eq!(unpacked_name("a.nii.GZ"), Some("a.nii"));
        assert_eq!(unpacked_name(".gz"), None);
        assert_eq!(unpacked_name("a.nii"), None);
        let mut packed = Vec::new();
        let mut encoder =
            flate2::read::GzEncoder::new(&b"abcdef"[..], flate2::Compression::default());
        encoder.read_to_end(&mut packed).unwrap();
        assert_eq!(Compressor::of(&packed), Some(Compressor::Gzip));
        assert_eq!(Compressor::Gzip.unpacked(&packed), b"abcdef");
        packed.truncate(12);
        assert!(Compressor::Gzip.unpacked(&packed).len() < 6);
    }
}
