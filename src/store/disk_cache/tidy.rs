//! Keeps the disk cache below its size: the files that were used least recently go first.
//!
//! There is no list of files to load or to keep: when enough was written, one process reads all
//! directories of the cache. The time of a file is that of its last use.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::TEMPORARY;

/// How old a temporary file is that a killed process has left.
const LEFT: Duration = Duration::from_secs(3600);

/// A use that lies so far in the future was noted by a clock that was wrong.
const FUTURE: Duration = Duration::from_secs(3600);

/// The bytes of a unit of `Metadata::blocks`.
const BLOCK: u64 = 512;

/// Removes the least recently used files below `root` until those left have as many bytes as `most`
/// says of those that there are. Returns the bytes that are left.
pub(super) fn tidy(root: &Path, most: impl Fn(u64) -> u64) -> io::Result<u64> {
    // The bytes used in each second, since a list of all files could be long.
    let mut used: BTreeMap<u64, u64> = BTreeMap::new();
    for_each(root, |entry, found| {
        let bytes = used.entry(second(found)).or_default();
        *bytes = bytes.saturating_add(len_of(found));
        if is_in_future(found) {
            note_use(&entry.path());
        } else if is_left(entry, found) {
            remove(&entry.path());
        }
    })?;
    let mut left = used.values().fold(0, |sum: u64, len| sum.saturating_add(*len));
    let (most, mut until) = (most(left), None);
    let mut excess = left.saturating_sub(most);
    for (second, len) in used {
        if excess == 0 {
            break;
        }
        until = Some(second);
        excess = excess.saturating_sub(len);
    }
    let Some(until) = until else { return Ok(left) };
    // Those of the last second go only while there is too much.
    for newest in [false, true] {
        for_each(root, |entry, found| {
            let is_candidate = match second(found) {
                used if newest => used == until,
                used => used < until,
            };
            // A temporary one is being written.
            let is_candidate = is_candidate && !is_temporary(entry);
            if left > most && is_candidate && remove(&entry.path()) {
                left = left.saturating_sub(len_of(found));
            }
        })?;
    }
    Ok(left)
}

/// Notes that a file is used now.
fn note_use(path: &Path) {
    let noted = fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    if let Err(error) = noted {
        log::debug!("{}: {error}", path.display());
    }
}

fn remove(path: &Path) -> bool {
    match fs::remove_file(path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => {
            log::debug!("{}: {error}", path.display());
            false
        }
    }
}

/// Calls `each` for every file of the cache. What another process removes meanwhile is left out.
fn for_each(root: &Path, mut each: impl FnMut(&DirEntry, &Metadata)) -> io::Result<()> {
    for directory in fs::read_dir(root)? {
        let directory = directory?;
        if !directory.file_type()?.is_dir() {
            continue;
        }
        for entry in fs::read_dir(directory.path())?.flatten() {
            if let Ok(found) = entry.metadata()
                && found.is_file()
            {
                each(&entry, &found);
            }
        }
    }
    Ok(())
}

/// Returns the second of the last use, since 1970.
fn second(found: &Metadata) -> u64 {
    u64::try_from(found.mtime()).unwrap_or(0)
}

/// Returns the bytes that a file takes on the disk.
fn len_of(found: &Metadata) -> u64 {
    found.blocks().saturating_mul(BLOCK).max(found.len())
}

fn is_in_future(found: &Metadata) -> bool {
    let now = SystemTime::now().checked_add(FUTURE);
    matches!((found.modified(), now), (Ok(used), Some(now)) if used > now)
}

fn is_temporary(entry: &DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with(TEMPORARY)
}

/// Whether a killed process has left a temporary file.
fn is_left(entry: &DirEntry, found: &Metadata) -> bool {
    let age = found.modified().ok().and_then(|used| used.elapsed().ok());
    is_temporary(entry) && age.is_some_and(|age| age > LEFT)
}
