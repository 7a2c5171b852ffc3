//! The files of an Icechunk repository, and the IDs that name them.
//!
//! ```text
//! 12 bytes ICE🧊CHUNK | 24 bytes the program that wrote it | u8 the version of the specification
//! u8 the kind of file | u8 compression: 0 none, 1 zstd | a flatbuffer
//! ```

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;

use zarrfs_base::error::{self, Error, Result};
use zarrfs_base::resources;

const MAGIC: &[u8] = "ICE🧊CHUNK".as_bytes();

/// The length of the header in bytes.
const HEADER_LEN: usize = 39;

/// The most bytes of a file, decompressed or not: 3 million chunks of a manifest take this many.
const MAX_LEN: u64 = 512 << 20;

/// The alphabet of Crockford's base 32.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// The kind of data in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IcechunkFile {
    /// The nodes of a state of the repository.
    Snapshot = 1,
    /// The places of chunks.
    Manifest = 2,
    /// The branches, tags and snapshots.
    Repository = 6,
}

impl IcechunkFile {
    fn number(self) -> u8 {
        match self {
            Self::Snapshot => 1,
            Self::Manifest => 2,
            Self::Repository => 6,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "a snapshot",
            Self::Manifest => "a manifest",
            Self::Repository => "the list of branches and tags",
        }
    }

    fn noun(self) -> &'static str {
        self.name().trim_start_matches("a ")
    }
}

/// Returns the most bytes of a file, decompressed or not. A few bytes can be decompressed as so
/// many, so little memory allows fewer.
pub(super) fn max_len() -> u64 {
    resources::within_memory(MAX_LEN, 8)
}

/// Returns the flatbuffer in a file.
pub(super) fn unpack(file: &Bytes, kind: IcechunkFile) -> Result<Bytes> {
    let unlike =
        |detail: &str| Error::corrupt(format!("not {} of Icechunk: {detail}", kind.name()));
    let Some((header, _)) = file.split_at_checked(HEADER_LEN) else {
        return Err(unlike(&format!("{} bytes, the header needs {HEADER_LEN}", file.len())));
    };
    if !header.starts_with(MAGIC) {
        return Err(unlike("it does not begin with ICE🧊CHUNK"));
    }
    let [version, found, compression] = *header.last_chunk().unwrap_or(&[0; 3]);
    if !matches!(version, 1 | 2) {
        return Err(Error::unsupported(format!(
            "version {version} of the Icechunk specification; zarrfs reads versions 1 and 2"
        )));
    }
    if found != kind.number() {
        return Err(unlike(&format!("its type is {found}, not {}", kind.number())));
    }
    let body = file.slice(HEADER_LEN..);
    match compression {
        0 => Ok(body),
        1 => decompress(&body, max_len()),
        other => Err(Error::unsupported(format!("compression {other}; expected 0 or 1 (zstd)"))),
    }
}

fn decompress(body: &[u8], limit: u64) -> Result<Bytes> {
    let damaged = |error: io::Error| match error.kind() {
        io::ErrorKind::OutOfMemory => {
            Error::new(error::Kind::NoMemory, "no memory to decompress the file")
        }
        _ => Error::corrupt(format!("zstd: {error}")),
    };
    let decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(damaged)?;
    let mut decoded = Vec::new();
    decoder.take(limit.saturating_add(1)).read_to_end(&mut decoded).map_err(damaged)?;
    if u64::try_from(decoded.len()).is_ok_and(|len| len > limit) {
        return Err(Error::too_large(format!("more than {limit} bytes when decompressed")));
    }
    decoded.shrink_to_fit();
    Ok(decoded.into())
}

/// The ID of a snapshot, a manifest or a file of chunks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(pub [u8; 12]);

impl Id {
    /// Parses an ID as it is in the name of a file.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 12];
        let mut all = bytes.iter_mut();
        let (mut bits, mut count) = (0_u32, 0_u32);
        for char in text.bytes() {
            let char = char.to_ascii_uppercase();
            let digit = ALPHABET.iter().position(|it| *it == char)?;
            bits = (bits << 5) | u32::try_from(digit).ok()?;
            count += 5;
            if count >= 8 {
                count -= 8;
                *all.next()? = u8::try_from((bits >> count) & 0xff).ok()?;
                bits &= (1 << count) - 1;
            }
        }
        (text.len() == 20 && bits == 0).then_some(Self(bytes))
    }

    /// Fails unless the file of this name contains its own ID. Another file of the repository under
    /// this name would be read as another state, or as an array without chunks.
    pub fn expect(self, found: Option<Self>, kind: IcechunkFile) -> Result<()> {
        match found {
            Some(found) if found == self => Ok(()),
            Some(found) => {
                let detail = format!("contains {} {found}, not the one of this name", kind.noun());
                Err(Error::corrupt(detail))
            }
            None => Err(Error::corrupt(format!("contains {} without an ID", kind.name()))),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = (0_usize..20).map(|digit| {
            let bits = (0..5).map(|bit| digit * 5 + bit).fold(0_usize, |bits, at| {
                let byte = self.0.get(at / 8).copied().unwrap_or_default();
                (bits << 1) | usize::from((byte >> (7 - at % 8)) & 1)
            });
            ALPHABET.get(bits).copied().map_or('0', char::from)
        });
        f.write_str(&digits.collect::<String>())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_in_base_32() {
        let bytes = [0x0b, 0x1c, 0xc8, 0xd6, 0x78, 0x75, 0x80, 0xf0, 0xe3, 0x3a, 0x65, 0x34];
        assert_eq!(Id(bytes).to_string(), "1CECHNKREP0F1RSTCMT0");
        assert_eq!(Id::parse("1CECHNKREP0F1RSTCMT0"), Some(Id(bytes)));
        for wrong in
            ["", "main", "1CECHNKREP0F1RSTCMTU", "1CECHNKREP0F1RSTCMT1", "../../../etc/passwdx"]
        {
            assert_eq!(Id::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_file_is_decompressed_up_to_the_limit() {
        let file = zstd::bulk::compress(&vec![0; 1 << 20], 3).expect("compressed");
        assert_eq!(decompress(&file, 1 << 20).expect("as long as it may be").len(), 1 << 20);
        let error = decompress(&file, (1 << 20) - 1).expect_err("one byte too long");
        assert_eq!(error.kind(), error::Kind::TooLarge);
    }
}
