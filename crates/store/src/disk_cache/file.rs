//! A file of the disk cache: bytes of one version of a value, as far as they were read.
//!
//! ```text
//! header   magic: 8 bytes   checksum of what follows in the header: u32   length of that: u32
//!          version: 4 x u64   length of the value: u64   part: u64   name: the rest
//! record   checksum of what follows, up to the bytes: u32
//!          start in the value: u64   length: u64   checksum of each 64 KiB of the bytes: u32
//!          bytes
//! record   ...
//! ```
//!
//! Numbers are little endian, checksums are CRC32C. Any number of processes append records, each
//! with one write. A file that ends within a record has lost the end of a write, so nothing from
//! there on counts. If anything does not match its checksum, the whole file is removed.

use std::fs::{File, Metadata};
use std::io::{self, IoSlice, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::time::SystemTime;

use bytes::Bytes;
use crc32c::crc32c;

use crate::{Stat, Version};
use zarrfs_base::sys;
use zarrfs_base::width::{ToU64, ToUsize};

const MAGIC: [u8; 8] = *b"zarrfs\x00\x01";

/// The bytes of the header before those that its checksum covers.
const BEFORE: usize = 16;

/// The bytes of the numbers in a header.
const NUMBERS: usize = 48;

/// The longest header, in bytes.
const LONGEST_HEADER: usize = 64 << 10;

/// The bytes of a record before its checksums.
const RECORD_HEAD: usize = 20;

/// The bytes under one checksum.
const PIECE: u64 = 64 << 10;

/// The most bytes of one record.
const MOST_IN_RECORD: u64 = 16 << 20;

/// The most records of a file.
const MOST_RECORDS: usize = 1 << 16;

/// The longest head of a record, in bytes: with the checksums of `MOST_IN_RECORD`.
const LONGEST_HEAD: usize = RECORD_HEAD + 4 * 256;

/// The value whose bytes a file has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner<'n> {
    /// The name of the value among those of all stores.
    pub name: &'n str,
    /// Which part of a long value.
    pub part: u64,
    /// The length of the value.
    pub len: u64,
    /// The version of the value.
    pub version: Version,
}

impl<'n> Owner<'n> {
    pub(super) fn new(name: &'n str, part: u64, stat: Stat) -> Self {
        Self { name, part, len: stat.len, version: stat.version }
    }

    /// Returns the header of its file; `None` if the name is too long.
    pub(super) fn header(&self) -> Option<Vec<u8>> {
        let mut rest = Vec::with_capacity(NUMBERS.saturating_add(self.name.len()));
        for number in self.version.state().into_iter().chain([self.len, self.part]) {
            rest.extend_from_slice(&number.to_le_bytes());
        }
        rest.extend_from_slice(self.name.as_bytes());
        let len = u32::try_from(rest.len()).ok().filter(|_| rest.len() <= LONGEST_HEADER)?;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&crc32c(&rest).to_le_bytes());
        header.extend_from_slice(&len.to_le_bytes());
        header.extend_from_slice(&rest);
        Some(header)
    }
}

/// Where the bytes from `start` of the value lie in a file.
#[derive(Debug, Clone)]
struct FileRecord {
    start: u64,
    len: u64,
    at: u64,
    checksums: Box<[u32]>,
}

impl FileRecord {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// Identifies a file, also after its inode was used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

impl FileId {
    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino(), created: found.created().ok() }
    }
}

/// The records of a file.
#[derive(Debug, Clone)]
pub(super) struct RecordIndex {
    file: FileId,
    /// Its header, which never changes.
    header: Vec<u8>,
    /// The end of the last record.
    end: u64,
    /// The records, by their start.
    records: Vec<FileRecord>,
}

/// Where the bytes of a range are.
struct Split<'i> {
    /// The records that have some, each with the range to take from it.
    had: Vec<(&'i FileRecord, u64, u64)>,
    /// The ranges that no record has.
    gaps: Vec<(u64, u64)>,
}

/// The result of reading a file.
#[derive(Debug)]
pub(super) enum FileRead<T> {
    /// The bytes that were asked for.
    This(T),
    /// The file has something else: another version, other bytes of the value, another value.
    Other,
    /// The file is damaged.
    Damaged,
}

impl RecordIndex {
    /// Reads the records of a file. `known` are those that were read before.
    pub(super) fn read(
        file: &File,
        owner: &Owner<'_>,
        known: Option<&Self>,
    ) -> io::Result<FileRead<Self>> {
        let found = file.metadata()?;
        // Another user could have written it while the directory was open to all.
        if !found.is_file() || !sys::is_own(&found) {
            return Ok(FileRead::Other);
        }
        let Some(header) = owner.header() else { return Ok(FileRead::Other) };
        let known = known.filter(|known| {
            known.file == FileId::of(&found) && known.header == header && known.end <= found.len()
        });
        let mut index = if let Some(known) = known {
            known.clone()
        } else {
            let Some(stored) = read_at(file, 0, header.len())? else {
                return Ok(FileRead::Damaged);
            };
            if stored != header {
                return Ok(if is_header(file)? { FileRead::Other } else { FileRead::Damaged });
            }
            let end = header.len().to_u64();
            Self { file: FileId::of(&found), header, end, records: Vec::new() }
        };
        while index.end < found.len() && index.records.len() < MOST_RECORDS {
            match record_at(file, index.end, found.len(), owner.len)? {
                FileRead::This(record) => {
                    index.end = record.at.saturating_add(record.len);
                    let place = index.records.partition_point(|it| it.start <= record.start);
                    index.records.insert(place, record);
                }
                // Another process may be writing it.
                FileRead::Other => break,
                FileRead::Damaged => return Ok(FileRead::Damaged),
            }
        }
        Ok(FileRead::This(index))
    }

    /// Returns the memory that it takes, in bytes.
    pub(super) fn memory(&self) -> u64 {
        let checksums = self.records.iter().map(|record| record.checksums.len().saturating_mul(4));
        let records = self.records.len().saturating_mul(size_of::<FileRecord>());
        let all = checksums.fold(records, usize::saturating_add).saturating_add(self.header.len());
        all.to_u64()
    }

    /// Whether records can be added behind those that were read: `len` is the length of the file.
    pub(super) fn is_whole(&self, len: u64) -> bool {
        self.end == len && self.records.len() < MOST_RECORDS
    }

    /// Returns where the bytes from `start` to `end` are.
    fn split(&self, start: u64, end: u64) -> Split<'_> {
        let (mut had, mut gaps, mut at) = (Vec::new(), Vec::new(), start);
        for record in &self.records {
            if record.end() <= at || at >= end {
                continue;
            }
            if record.start >= end {
                break;
            }
            if record.start > at {
                gaps.push((at, record.start));
            }
            let (from, until) = (record.start.max(at), record.end().min(end));
            had.push((record, from, until));
            at = until;
        }
        if at < end {
            gaps.push((at, end));
        }
        Split { had, gaps }
    }

    /// Returns the ranges between `start` and `end` that the file does not have.
    pub(super) fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.split(start, end).gaps
    }

    /// Reads the bytes from `start` to `end`, if the file has all of them.
    pub(super) fn bytes(&self, file: &File, start: u64, end: u64) -> io::Result<FileRead<Bytes>> {
        let Split { had, gaps } = self.split(start, end);
        if !gaps.is_empty() {
            return Ok(FileRead::Other);
        }
        let mut pieces = Vec::with_capacity(had.len());
        for (record, from, until) in had {
            match bytes_of(file, record, from, until)? {
                Some(bytes) => pieces.push(bytes),
                None => return Ok(FileRead::Damaged),
            }
        }
        Ok(FileRead::This(match <[Bytes; 1]>::try_from(pieces) {
            Ok([only]) => only,
            Err(pieces) => pieces.concat().into(),
        }))
    }
}

/// Appends bytes from `start` on of the value, each record with one write: an error if the file
/// system took only a part of it. A new file gets its header, too, and may have that alone.
pub(super) fn append(
    file: &mut File,
    mut header: &[u8],
    mut start: u64,
    bytes: &[u8],
) -> io::Result<()> {
    if bytes.is_empty() {
        return file.write_all(header);
    }
    let most = MOST_IN_RECORD.to_usize();
    for bytes in bytes.chunks(most) {
        append_record(file, std::mem::take(&mut header), start, bytes)?;
        start = start.saturating_add(bytes.len().to_u64());
    }
    Ok(())
}

fn append_record(file: &mut File, header: &[u8], start: u64, bytes: &[u8]) -> io::Result<()> {
    let piece = PIECE.to_usize();
    let len = bytes.len().to_u64();
    let mut head = Vec::with_capacity(LONGEST_HEAD);
    head.extend_from_slice(&start.to_le_bytes());
    head.extend_from_slice(&len.to_le_bytes());
    for piece in bytes.chunks(piece) {
        head.extend_from_slice(&crc32c(piece).to_le_bytes());
    }
    let checksum = crc32c(&head).to_le_bytes();
    let parts = [header, &checksum, &head, bytes];
    let all: usize = parts.iter().map(|part| part.len()).sum();
    match file.write_vectored(&parts.map(IoSlice::new))? {
        written if written == all => Ok(()),
        // A disk takes a part of a write only if it is full.
        _ => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
    }
}

/// Reads `len` bytes at an offset; `None` if the file ends before.
fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.resize(len, 0);
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a file begins with a whole header.
fn is_header(file: &File) -> io::Result<bool> {
    let Some(before) = read_at(file, 0, BEFORE)? else { return Ok(false) };
    let (Some(magic), Some(checksum), Some(len)) =
        (before.first_chunk::<8>(), u32_at(&before, 8), u32_at(&before, 12))
    else {
        return Ok(false);
    };
    let len = len.to_usize();
    if *magic != MAGIC || !(NUMBERS..=LONGEST_HEADER).contains(&len) {
        return Ok(false);
    }
    let rest = read_at(file, 16, len)?;
    Ok(rest.is_some_and(|rest| crc32c(&rest) == checksum))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Reads the head of the record at `at`. [`FileRead::Other`] if the file ends within the record.
fn record_at(
    file: &File,
    at: u64,
    file_len: u64,
    value_len: u64,
) -> io::Result<FileRead<FileRecord>> {
    let room = file_len.saturating_sub(at).to_usize();
    let Some(head) = read_at(file, at, room.min(LONGEST_HEAD))? else { return Ok(FileRead::Other) };
    let (Some(checksum), Some(start), Some(len)) =
        (u32_at(&head, 0), u64_at(&head, 4), u64_at(&head, 12))
    else {
        return Ok(FileRead::Other);
    };
    let is_within = start.checked_add(len).is_some_and(|end| end <= value_len);
    if len == 0 || len > MOST_IN_RECORD || !is_within {
        return Ok(FileRead::Damaged);
    }
    let pieces = len.div_ceil(PIECE).to_usize();
    let head_len = RECORD_HEAD.saturating_add(pieces.saturating_mul(4));
    let Some(rest) = head.get(4..head_len) else { return Ok(FileRead::Other) };
    if crc32c(rest) != checksum {
        return Ok(FileRead::Damaged);
    }
    let checksums = rest.get(16..).unwrap_or_default().chunks_exact(4);
    let checksums = checksums.filter_map(|bytes| u32_at(bytes, 0)).collect();
    let bytes_at = at.saturating_add(head_len.to_u64());
    if bytes_at.saturating_add(len) > file_len {
        return Ok(FileRead::Other);
    }
    Ok(FileRead::This(FileRecord { start, len, at: bytes_at, checksums }))
}

/// Reads the bytes from `from` to `until` of the value in a record; `None` if they do not match
/// their checksums.
fn bytes_of(file: &File, record: &FileRecord, from: u64, until: u64) -> io::Result<Option<Bytes>> {
    let (from, until) = (from.saturating_sub(record.start), until.saturating_sub(record.start));
    let first = from / PIECE;
    let (start, end) = (first * PIECE, until.next_multiple_of(PIECE).min(record.len));
    let in_memory = |len: u64| len.to_usize();
    let len = in_memory(end.saturating_sub(start));
    let Some(bytes) = read_at(file, record.at.saturating_add(start), len)? else {
        return Ok(None);
    };
    let checksums = record.checksums.get(in_memory(first)..).unwrap_or_default();
    let mut pieces = bytes.chunks(in_memory(PIECE)).zip(checksums);
    if !pieces.all(|(piece, checksum)| crc32c(piece) == *checksum) {
        return Ok(None);
    }
    let (from, until) = (in_memory(from.saturating_sub(start)), in_memory(until - start));
    Ok((until <= bytes.len()).then(|| Bytes::from(bytes).slice(from..until)))
}
