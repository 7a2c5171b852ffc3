//! Reads the end of an archive and its central directory.
//!
//! The last 64 KiB hold the end record, whatever its comment, and of a small archive the whole
//! directory too. One more read brings the rest of a longer directory. `rawzip` parses both; it
//! reads through a [`Window`], which grows towards the start of the archive.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rawzip::extra_fields::ExtraFieldId;
use rawzip::{
    CreatorSystem, ErrorKind, MAX_CENTRAL_DIRECTORY_RECORD_SIZE, ReaderAt, ZipArchive,
    ZipFileHeaderRecord, ZipLocator,
};

use super::archive::{Archive, ArchiveLimits};
use super::entry::Method;
use super::misnamed;
use super::names::{EntryName, Raw};
use super::table::{Builder, CentralRecord, EntryTable, Lens};
use crate::{ByteRange, Omissions, Stat};
use zarrfs_base::error::{Error, Kind, Result, Word};
use zarrfs_base::width::{ToU64, ToUsize};

/// The bytes at the end that hold the end record with the longest comment.
const TAIL_LEN: u64 = END_LEN + 65_535;

/// The length of the end record without its comment.
const END_LEN: u64 = 22;

/// How often a signature of an end record that leads to none may be skipped: a comment can contain
/// one.
const MOST_FALSE_ENDS: usize = 16;

/// The extra field with a name in UTF-8, of Info-ZIP.
const UNICODE_NAME: ExtraFieldId = ExtraFieldId::new(0x7075);

/// How long an archive may stay in a state that could change unnoticed: longer than the clock of
/// any file system needs for a tick.
const MOST_UNSETTLED: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// Reads the directory of an archive. Notes the entries that are left out.
pub(super) fn read(
    archive: &Archive,
    limits: &ArchiveLimits,
    omissions: &Omissions,
) -> Result<EntryTable> {
    let (stat, tail) = settled_tail(archive)?;
    let tail_start = stat.len.saturating_sub(tail.len().to_u64());
    let window = Window {
        archive,
        stat,
        most: limits.directory.saturating_add(TAIL_LEN),
        state: RefCell::new(WindowState {
            parts: VecDeque::from([(tail_start, tail)]),
            failure: None,
        }),
    };
    let mut buffer = vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
    let found = locate(&window, &mut buffer).map_err(|error| {
        // The parts of a split archive have offsets that lead nowhere in one of them.
        let is_split = error.eocd_offset().and_then(|at| check_single(&window, at).err());
        is_split.unwrap_or_else(|| window.explain(error))
    })?;
    check_single(&window, found.eocd_offset())?;
    let (start, end) = (found.directory_offset(), found.eocd_offset());
    if end.saturating_sub(start) > limits.directory {
        return Err(window.too_long(end.saturating_sub(start)));
    }
    let mut read =
        |separators, left_out| add_all(&found, &mut buffer, &window, limits, separators, left_out);
    let (mut builder, mut names, mut count) = read(Separators::default(), None)?;
    if names.backslashes > 0 && !names.has_slash {
        (builder, names, count) = read(Separators { are_backslashes: true, ..names }, None)?;
    }
    if count > 0 {
        let again = Separators { are_backslashes: names.are_backslashes, ..Separators::default() };
        (builder, names, _) = read(again, Some(omissions))?;
    }
    names.report(archive);
    let (table, shadowed) = builder.finish(stat, start)?;
    if !shadowed.is_empty() {
        misnamed::note_shadowed(archive, &table, &shadowed, omissions)?;
    }
    for name in table.not_listed() {
        let why = "this entry of the archive is not listed: a directory has the same name";
        omissions.note(name, Word::Unsupported, why);
    }
    Ok(table)
}

/// Adds all entries. Returns them, what separates their names, and how many are left out.
fn add_all<'w, 'a>(
    found: &ZipArchive<&'w Window<'a>>,
    buffer: &mut [u8],
    window: &'w Window<'a>,
    limits: &ArchiveLimits,
    mut separators: Separators,
    omissions: Option<&Omissions>,
) -> Result<(Builder, Separators, usize)> {
    let (mut builder, mut left_out) = (Builder::default(), NoKeys { count: 0, omissions });
    let mut entries = found.entries(buffer);
    while let Some(entry) = entries.next_entry().map_err(|error| window.explain(error))? {
        if builder.count() >= limits.entries {
            return Err(Error::too_large(format!(
                "a zip archive with more than {} entries; zarrfs opens no larger ones",
                limits.entries
            )));
        }
        add(&mut builder, &mut left_out, &mut separators, &entry)?;
    }
    Ok((builder, separators, left_out.count))
}

/// Returns the end of the archive, once no later change of the archive can keep its version.
fn settled_tail(archive: &Archive) -> Result<(Stat, Bytes)> {
    let begun = Instant::now();
    loop {
        let value = archive.get(ByteRange::Suffix(TAIL_LEN))?;
        if value.stat.version.holds(value.stat.version) {
            return Ok((value.stat, value.bytes));
        }
        if begun.elapsed() > MOST_UNSETTLED {
            return Err(Error::new(Kind::Busy, "another program keeps writing to the archive"));
        }
        thread::sleep(PAUSE);
    }
}

/// Finds the end record.
fn locate<'w, 'a>(
    window: &'w Window<'a>,
    buffer: &mut [u8],
) -> Result<ZipArchive<&'w Window<'a>>, rawzip::Error> {
    let mut end = window.stat.len;
    let mut first = None;
    for _ in 0..MOST_FALSE_ENDS {
        let space = TAIL_LEN.saturating_sub(window.stat.len.saturating_sub(end));
        let locator = ZipLocator::new().max_search_space(space);
        match locator.locate_in_reader(window, buffer, end) {
            Ok(found) => return Ok(found),
            Err((_, error)) => match error.eocd_offset() {
                Some(offset) if offset < end => {
                    first.get_or_insert(error);
                    // A record that begins before this one.
                    end = offset.saturating_add(3);
                }
                _ => return Err(first.unwrap_or(error)),
            },
        }
    }
    Err(first.unwrap_or_else(|| ErrorKind::MissingEndOfCentralDirectory.into()))
}

/// Fails for a part of an archive that was split, by the numbers in its end record.
fn check_single(window: &Window<'_>, end_offset: u64) -> Result<()> {
    let mut record = [0; 8];
    let read = window.read_exact_at(&mut record, end_offset);
    read.map_err(|_| window.failure().unwrap_or_else(|| Error::corrupt("no end record")))?;
    let [_, _, _, _, this @ .., d0, d1] = record;
    for disk in [u16::from_le_bytes(this), u16::from_le_bytes([d0, d1])] {
        if disk != 0 && disk != u16::MAX {
            return Err(Error::unsupported(
                "a part of a zip archive that was split; join its parts with `zip -s 0`",
            ));
        }
    }
    Ok(())
}

fn add(
    builder: &mut Builder,
    left_out: &mut NoKeys<'_>,
    separators: &mut Separators,
    entry: &ZipFileHeaderRecord<'_>,
) -> Result<()> {
    if entry.flags().is_masked() {
        return Err(Error::unsupported("a zip archive whose directory is encrypted"));
    }
    let bytes = entry.file_path().as_bytes();
    let made_by = entry.version_made_by().creator_system();
    let extra = entry.extra_fields().find(|(id, _)| *id == UNICODE_NAME).map(|(_, field)| field);
    let is_dos = [CreatorSystem::FAT, CreatorSystem::NTFS, CreatorSystem::VFAT].contains(&made_by);
    if !separators.are_backslashes {
        separators.note(bytes, is_dos);
    }
    let raw = Raw {
        bytes,
        is_utf8: entry.flags().is_utf8(),
        extra,
        is_dos,
        has_backslashes: separators.are_backslashes,
    };
    let name = match raw.named() {
        EntryName::Key(name) => name,
        EntryName::Ignored => return Ok(()),
        EntryName::Invalid => {
            left_out.note(bytes);
            return Ok(());
        }
    };
    let method = Method(entry.compression_method().as_u16());
    let record = CentralRecord {
        header_offset: entry.local_header_offset(),
        lens: Lens {
            stored: entry.compressed_size_hint(),
            decoded: entry.uncompressed_size_hint(),
        },
        crc: entry.crc32(),
        method,
        is_encrypted: entry.flags().is_encrypted(),
        spelling: raw.spelling(&name),
    };
    if method == Method::STORED && !record.is_encrypted && record.lens.stored != record.lens.decoded
    {
        return Err(Error::corrupt(format!(
            "its entry {name:?} is stored in {} bytes, and has {}",
            record.lens.stored, record.lens.decoded
        )));
    }
    builder.add(&name, &record)
}

/// What separates directories in the names of an archive, as far as it was read.
#[derive(Debug, Default)]
struct Separators {
    /// Whether backslashes do, although the archive does not say that a program of DOS made it.
    are_backslashes: bool,
    /// Whether a name has a slash.
    has_slash: bool,
    /// The number of names with backslashes that do not separate directories.
    backslashes: usize,
}

impl Separators {
    fn note(&mut self, name: &[u8], is_dos: bool) {
        self.has_slash |= name.contains(&b'/');
        let is_part = !is_dos && name.contains(&b'\\');
        self.backslashes = self.backslashes.saturating_add(usize::from(is_part));
    }

    fn report(&self, archive: &Archive) {
        let (key, count) = (&archive.key, self.backslashes);
        if self.are_backslashes {
            log::warn!(
                "{key}: backslashes separate the directories in {count} names, since no name has a \
                 slash; `unzip` does the same"
            );
        } else if count > 0 {
            log::warn!(
                "{key}: {count} names have backslashes, which are parts of the names, since other \
                 names have slashes"
            );
        }
    }
}

/// The entries whose names are no keys.
struct NoKeys<'o> {
    count: usize,
    /// Where they are noted, if they are.
    omissions: Option<&'o Omissions>,
}

impl NoKeys<'_> {
    fn note(&mut self, name: &[u8]) {
        self.count = self.count.saturating_add(1);
        if let Some(omissions) = self.omissions {
            let name: String = String::from_utf8_lossy(name).chars().take(200).collect();
            let why = "this entry of the archive is left out: no key has such a name";
            omissions.note(&name, Word::Unsupported, why);
        }
    }
}

/// The end of an archive as far as it was read, all of one version.
struct Window<'a> {
    archive: &'a Archive,
    stat: Stat,
    /// The most bytes to read.
    most: u64,
    state: RefCell<WindowState>,
}

struct WindowState {
    /// Parts that follow each other, with their offsets. The last one ends with the archive.
    parts: VecDeque<(u64, Bytes)>,
    failure: Option<Error>,
}

impl Window<'_> {
    fn start(&self) -> u64 {
        self.state.borrow().parts.front().map_or(self.stat.len, |(start, _)| *start)
    }

    /// Reads all that lies between `offset` and the window.
    fn grow(&self, offset: u64) -> Result<()> {
        let start = self.start();
        if self.stat.len.saturating_sub(offset) > self.most {
            return Err(self.too_long(self.stat.len.saturating_sub(offset)));
        }
        let len = start.saturating_sub(offset);
        let value = self.archive.get(ByteRange::Span { offset, len })?;
        let is_whole = u64::try_from(value.bytes.len()).is_ok_and(|read| read == len);
        if !is_whole || !self.stat.version.is_same(value.stat.version) {
            return Err(Archive::replaced());
        }
        self.state.borrow_mut().parts.push_front((offset, value.bytes));
        Ok(())
    }

    fn too_long(&self, len: u64) -> Error {
        Error::too_large(format!(
            "a zip archive with a directory of {len} bytes; zarrfs opens directories of up to {} \
             bytes",
            self.most.saturating_sub(TAIL_LEN)
        ))
    }

    /// Returns why a read failed, once.
    fn failure(&self) -> Option<Error> {
        self.state.borrow_mut().failure.take()
    }

    /// Returns the error for one of the parser.
    fn explain(&self, error: rawzip::Error) -> Error {
        if let Some(failure) = self.failure() {
            return failure;
        }
        match error.into_kind() {
            ErrorKind::MissingEndOfCentralDirectory => Error::corrupt(
                "no zip archive, or the start of one: it has no end record; copy it again",
            ),
            ErrorKind::IO(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Error::corrupt("the directory of the zip archive ends too early")
            }
            kind => Error::corrupt(format!("the directory of the zip archive: {}", {
                rawzip::Error::from(kind).to_string().to_lowercase()
            })),
        }
    }
}

impl ReaderAt for &Window<'_> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if buf.is_empty() || offset >= self.stat.len {
            return Ok(0);
        }
        if offset < self.start()
            && let Err(error) = self.grow(offset)
        {
            self.state.borrow_mut().failure = Some(error);
            return Err(io::Error::other("the archive cannot be read"));
        }
        let state = self.state.borrow();
        let after = state.parts.partition_point(|(start, _)| *start <= offset);
        let part = after.checked_sub(1).and_then(|at| state.parts.get(at));
        let bytes =
            part.and_then(|(start, bytes)| bytes.get(offset.checked_sub(*start)?.to_usize()..));
        let bytes = bytes.unwrap_or_default();
        let len = bytes.len().min(buf.len());
        if let (Some(target), Some(source)) = (buf.get_mut(..len), bytes.get(..len)) {
            target.copy_from_slice(source);
        }
        Ok(len)
    }
}
