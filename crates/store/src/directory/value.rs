//! Reads the bytes of values from open files, and writes them to new ones.

use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};

use crate::{ByteRange, Stat, Value, ValuePiece, WasRead};
use zarrfs_base::buffer::unset;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::ToU64;

/// An open value.
#[derive(Debug)]
pub(super) struct OpenValue {
    pub file: File,
    pub metadata: Metadata,
    /// Its stat at the time it was opened; every later change has another version.
    pub stat: Stat,
}

/// Reads a range of a value. If a later change could go unnoticed, the version records what was
/// read.
pub(super) fn read_range(value: &OpenValue, range: ByteRange) -> Result<Value> {
    let (offset, len) = range.within(value.stat.len);
    let capacity = usize::try_from(len)
        .map_err(|_| Error::too_large(format!("{len} bytes do not fit into memory")))?;
    let mut bytes = unset(capacity)?;
    let (mut rest, mut at) = (bytes.as_mut_slice(), offset);
    while !rest.is_empty() {
        match value.file.read_at(rest, at) {
            Ok(0) => break, // It has become shorter.
            Ok(read) => {
                rest = rest.get_mut(read..).unwrap_or_default();
                at = at.saturating_add(read.to_u64());
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let read = capacity.saturating_sub(rest.len());
    bytes.truncate(read);
    let mut stat = value.stat;
    if !stat.version.is_settled {
        let is_whole = offset == 0 && len == stat.len;
        stat.version.read =
            if is_whole { WasRead::Whole(digest_of(&bytes)) } else { WasRead::Part };
    }
    Ok(Value { bytes: bytes.into(), stat })
}

/// Returns a digest for comparing bytes within one process.
pub(super) fn digest_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Writes the pieces of a value to `file`, copying the kept ones from `old`.
pub(super) fn write_all(file: &File, pieces: &[ValuePiece], old: Option<&File>) -> Result<()> {
    let mut new: Vec<IoSlice<'_>> = Vec::new();
    for piece in pieces {
        match piece {
            ValuePiece::New(bytes) => new.push(IoSlice::new(bytes)),
            ValuePiece::Kept { offset, len } => {
                write_slices(file, &mut std::mem::take(&mut new))?;
                copy_range(old, *offset, *len, file)?;
            }
        }
    }
    write_slices(file, &mut new)
}

fn write_slices(mut file: &File, slices: &mut [IoSlice<'_>]) -> Result<()> {
    let mut rest = slices;
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(Error::new(Kind::Os(libc::EIO), "the disk accepts no more bytes")),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Copies a range of `old` to the current position of `file`, in the kernel (`copy_file_range`).
fn copy_range(old: Option<&File>, offset: u64, len: u64, mut file: &File) -> Result<()> {
    let stale = || Error::new(Kind::Stale, "the old value became shorter");
    let mut old = old.ok_or_else(stale)?;
    old.seek(SeekFrom::Start(offset))?;
    let copied = std::io::copy(&mut old.take(len), &mut file)?;
    if copied == len { Ok(()) } else { Err(stale()) }
}

/// Gives a new file the mode and owner of the one that it replaces, as far as permissions allow.
pub(super) fn keep_owner(file: &File, old: &Metadata) -> Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        match fchown(file, Some(old.uid()), Some(old.gid())) {
            Err(error) if error.raw_os_error() != Some(libc::EPERM) => return Err(error.into()),
            _ => {}
        }
    }
    if new.mode() & 0o777 != old.mode() & 0o777 {
        file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o777))?;
    }
    Ok(())
}
