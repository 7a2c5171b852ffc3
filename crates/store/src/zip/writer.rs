//! Writes an archive in one pass: entries without compression, with their lengths and checksums in
//! their local headers, so that every program can read it.
//!
//! ```text
//! ("PK" 3 4 | fields | name | extra field | data)*          entries
//! ("PK" 1 2 | fields | name | extra field)*                 central directory
//! "PK" 6 6 | fields, "PK" 6 7 | fields                      the end in Zip64
//! "PK" 5 6 | fields | comment                               the end
//! ```
//!
//! All entries have the same time, so the same values make the same archive.

use std::io::Write;

use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::ToU64;

/// 1 January 1980, in the form of DOS; the time is midnight.
const DATE: u16 = 0x0021;

/// The version of the format with Zip64, and the one without.
const VERSION_64: u16 = 45;
const VERSION: u16 = 10;

/// The flag of names in UTF-8.
const UTF8: u16 = 1 << 11;

/// Made by Unix: the upper half of the attributes is a mode.
const UNIX: u16 = 3 << 8;
const MODE: u32 = 0o100_644 << 16;

/// Where Zip64 is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zip64 {
    /// Everywhere.
    Always,
    /// For what is too long or too much without it.
    WhenNeeded,
}

/// An archive that is being written.
#[derive(Debug)]
pub struct ZipWriter<W> {
    out: W,
    zip64: Zip64,
    offset: u64,
    directory: Vec<u8>,
    count: u64,
    /// The bytes that the current entry still needs.
    left: u64,
}

impl<W: Write> ZipWriter<W> {
    /// Returns an empty archive.
    pub fn new(out: W, zip64: Zip64) -> Self {
        Self { out, zip64, offset: 0, directory: Vec::new(), count: 0, left: 0 }
    }

    /// Begins an entry of `len` bytes, which follow.
    pub fn start(&mut self, name: &str, len: u64, crc: u32) -> Result<()> {
        self.check_complete()?;
        let name_len = u16::try_from(name.len()).map_err(|_| {
            Error::too_large(format!("a name of {} bytes in a zip archive", name.len()))
        })?;
        let is_long = self.zip64 == Zip64::Always || len >= u64::from(u32::MAX);
        let is_long_at = short(self.offset).is_none();
        let len32 = if is_long { u32::MAX } else { short(len).unwrap_or(u32::MAX) };
        let flags = if name.is_ascii() { 0 } else { UTF8 };
        let version = if is_long || is_long_at { VERSION_64 } else { VERSION };
        // Flags, method, time, date, checksum, both lengths, the length of the name.
        let mut common = Vec::new();
        common.extend(flags.to_le_bytes());
        common.extend([0; 4]);
        common.extend(DATE.to_le_bytes());
        common.extend(crc.to_le_bytes());
        common.extend(len32.to_le_bytes());
        common.extend(len32.to_le_bytes());
        common.extend(name_len.to_le_bytes());
        let lens = if is_long { vec![len, len] } else { Vec::new() };

        let mut header = b"PK\x03\x04".to_vec();
        header.extend(version.to_le_bytes());
        header.extend(&common);
        let extra = extra_field(&lens);
        header.extend(len16(&extra).to_le_bytes());
        header.extend(name.as_bytes());
        header.extend(extra);

        let longs = lens.into_iter().chain(is_long_at.then_some(self.offset)).collect::<Vec<_>>();
        let extra = extra_field(&longs);
        self.directory.extend(b"PK\x01\x02");
        self.directory.extend((UNIX | version).to_le_bytes());
        self.directory.extend(version.to_le_bytes());
        self.directory.extend(common);
        self.directory.extend(len16(&extra).to_le_bytes());
        // The comment, the disk and the internal attributes.
        self.directory.extend([0; 6]);
        self.directory.extend(MODE.to_le_bytes());
        self.directory.extend(short(self.offset).unwrap_or(u32::MAX).to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.directory.extend(extra);

        self.put(&header)?;
        self.count = self.count.saturating_add(1);
        self.left = len;
        Ok(())
    }

    /// Writes bytes of the current entry.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let len = bytes.len().to_u64();
        self.left = self.left.checked_sub(len).ok_or_else(changed)?;
        self.put(bytes)
    }

    /// Writes the directory and the end, with a comment. Returns what was written to.
    pub fn finish(mut self, comment: &[u8]) -> Result<W> {
        self.check_complete()?;
        let comment_len = u16::try_from(comment.len())
            .map_err(|_| Error::too_large("a comment of more than 65,535 bytes"))?;
        let directory = std::mem::take(&mut self.directory);
        let (start, count) = (self.offset, self.count);
        let len = directory.len().to_u64();
        self.put(&directory)?;
        let fits = count < u64::from(u16::MAX) && short(start).and(short(len)).is_some();
        let mut end = Vec::new();
        if self.zip64 == Zip64::Always || !fits {
            end.extend(b"PK\x06\x06");
            end.extend(44_u64.to_le_bytes());
            end.extend((UNIX | VERSION_64).to_le_bytes());
            end.extend(VERSION_64.to_le_bytes());
            end.extend([0; 8]);
            for number in [count, count, len, start] {
                end.extend(number.to_le_bytes());
            }
            end.extend(b"PK\x06\x07");
            end.extend(0_u32.to_le_bytes());
            end.extend(self.offset.to_le_bytes());
            end.extend(1_u32.to_le_bytes());
        }
        let count = u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes();
        end.extend(b"PK\x05\x06\0\0\0\0");
        end.extend(count);
        end.extend(count);
        end.extend(short(len).unwrap_or(u32::MAX).to_le_bytes());
        end.extend(short(start).unwrap_or(u32::MAX).to_le_bytes());
        end.extend(comment_len.to_le_bytes());
        end.extend(comment);
        self.put(&end)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn check_complete(&self) -> Result<()> {
        if self.left == 0 { Ok(()) } else { Err(changed()) }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        let len = bytes.len().to_u64();
        self.offset = self.offset.saturating_add(len);
        Ok(())
    }
}

/// Returns a number if it fits without Zip64.
fn short(number: u64) -> Option<u32> {
    u32::try_from(number).ok().filter(|short| *short != u32::MAX)
}

/// Returns the extra field of Zip64 with these numbers, nothing if there are none.
fn extra_field(numbers: &[u64]) -> Vec<u8> {
    if numbers.is_empty() {
        return Vec::new();
    }
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut field = 1_u16.to_le_bytes().to_vec();
    field.extend(len16(&bytes).to_le_bytes());
    field.extend(bytes);
    field
}

fn len16(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).unwrap_or(u16::MAX)
}

fn changed() -> Error {
    Error::new(Kind::Internal, "a value changed while it was written to a zip archive")
}
