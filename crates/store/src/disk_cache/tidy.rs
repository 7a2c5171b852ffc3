//! Keeps the disk cache below its size: the files that were used least recently go first.
//!
//! There is no list of files to load or to keep: when enough was written, one process reads all
//! directories of the cache. The time of a file is that of its last use. What has another name than
//! the files of the cache, or belongs to another user, is neither counted nor removed.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use super::{DIGITS, DIRECTORY_DIGITS, TEMPORARY};
use zarrfs_base::error::Result;
use zarrfs_base::sys::{self, OwnDirectory};

/// How old a temporary file is that a killed process has left.
const LEFT: Duration = Duration::from_secs(3600);

/// A use that lies so far in the future was noted by a clock that was wrong.
const FUTURE: Duration = Duration::from_secs(3600);

/// The bytes of a unit of `Metadata::blocks`.
const BLOCK: u64 = 512;

/// A file of the cache.
struct CacheFile<'d> {
    above: &'d OwnDirectory,
    name: &'d str,
    found: Metadata,
}

/// Removes the least recently used files of the cache in `dir` until those left have as many bytes
/// as `most` says of those that there are. Returns the bytes that are left.
pub(super) fn tidy(dir: &OwnDirectory, most: impl Fn(u64) -> u64) -> Result<u64> {
    // The bytes used in each second, since a list of all files could be long.
    let mut used: BTreeMap<u64, u64> = BTreeMap::new();
    for_each(dir, |file| {
        let bytes = used.entry(second(&file.found)).or_default();
        *bytes = bytes.saturating_add(len_of(&file.found));
        if is_in_future(&file.found) {
            file.note_use();
        } else if file.is_left() {
            file.remove();
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
        for_each(dir, |file| {
            let is_candidate = match second(&file.found) {
                used if newest => used == until,
                used => used < until,
            };
            // A temporary one is being written.
            let is_candidate = is_candidate && !is_temporary(file.name);
            if left > most && is_candidate && file.remove() {
                left = left.saturating_sub(len_of(&file.found));
            }
        })?;
    }
    Ok(left)
}

impl CacheFile<'_> {
    /// Notes that it is used now.
    fn note_use(&self) {
        let file = self.above.open_to_read(self.name);
        if let Err(error) = file.and_then(|file| file.set_modified(SystemTime::now())) {
            log::debug!("{}: {error}", self.name);
        }
    }

    fn remove(&self) -> bool {
        match self.above.remove(self.name) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                log::debug!("{}: {error}", self.name);
                false
            }
        }
    }

    /// Whether a killed process has left a temporary file.
    fn is_left(&self) -> bool {
        let age = self.found.modified().ok().and_then(|used| used.elapsed().ok());
        is_temporary(self.name) && age.is_some_and(|age| age > LEFT)
    }
}

/// Calls `each` for every file of the cache. What another process removes meanwhile is left out.
fn for_each(dir: &OwnDirectory, mut each: impl FnMut(&CacheFile<'_>)) -> Result<()> {
    for name in dir.names()? {
        let name = name?;
        let Some(name) = name.to_str().filter(|name| is_hex(name, DIRECTORY_DIGITS)) else {
            continue;
        };
        let Ok(above) = dir.directory(name) else { continue };
        for name in above.names()?.flatten() {
            let Some(name) = name.to_str().filter(|name| is_ours(name)) else { continue };
            let Ok(found) = above.metadata(name) else { continue };
            if found.is_file() && sys::is_own(&found) {
                each(&CacheFile { above: &above, name, found });
            }
        }
    }
    Ok(())
}

/// Whether the cache gives a file such a name.
fn is_ours(name: &str) -> bool {
    let digits = DIGITS.saturating_sub(DIRECTORY_DIGITS);
    is_hex(name, digits) || name.strip_prefix(TEMPORARY).is_some_and(|id| is_hex(id, DIGITS))
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
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

fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY)
}
