//! Names of lock files, session files and temporary places.

use std::ffi::{CString, OsStr};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;

use crate::{Key, PRIVATE, Prefix};
use zarrfs_base::error::{Error, Kind, Result};

/// The suffix of lock files, which hold a value until it is renamed onto its key.
pub const LOCK_SUFFIX: &str = ".__lock";

/// The prefix of session files.
pub(super) const WRITING: &str = "writing-";

/// The prefix of temporary places.
pub(super) const ASIDE: &str = "aside-";

/// The longest name in bytes that common file systems allow.
const NAME_MAX: usize = 255;

/// Returns the name of the lock file for a key called `name`.
pub(super) fn lock_name(name: &str) -> String {
    if name.len() + LOCK_SUFFIX.len() <= NAME_MAX {
        return format!("{name}{LOCK_SUFFIX}");
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!(".zarrfs-{:016x}{LOCK_SUFFIX}", hasher.finish())
}

/// Whether a name is that of the lock file of a chunk or a metadata file, or of a key with a long
/// name. Others may belong to the user: `poetry.__lock`.
pub fn is_lock_of_key(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(LOCK_SUFFIX) else { return false };
    let is_hash = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    may_be_of_key(stem) || stem.strip_prefix(".zarrfs-").is_some_and(is_hash)
}

/// Whether a name is like that of a chunk or of a metadata file in some dialect.
pub fn may_be_of_key(name: &str) -> bool {
    const METADATA: [&str; 6] =
        ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata", "attributes.json"];
    let rest = name.strip_prefix("c.").or_else(|| name.strip_prefix('c')).unwrap_or(name);
    METADATA.contains(&name)
        || [".array", ".group", ".array.json", ".group.json"].iter().any(|end| name.ends_with(end))
        || rest.split('.').all(is_number)
        || name == "c"
}

/// Converts a path for system calls.
pub(super) fn c_name(name: &str) -> Result<CString> {
    if name.split('/').any(|component| component.len() > NAME_MAX) {
        return Err(Error::new(Kind::Os(libc::ENAMETOOLONG), "the name is longer than 255 bytes"));
    }
    CString::new(OsStr::new(name).as_bytes())
        .map_err(|_| Error::invalid("the name contains a NUL byte"))
}

/// Returns the session that an entry of the private directory belongs to.
pub(super) fn session_of(name: &str) -> Option<&str> {
    let is_id = |id: &str| id.split('-').count() == 2 && id.split('-').all(is_number);
    if let Some(id) = name.strip_prefix(WRITING) {
        return Some(id).filter(|id| is_id(id));
    }
    let (id, number) = name.strip_prefix(ASIDE)?.rsplit_once('-')?;
    Some(id).filter(|id| is_id(id) && is_number(number))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 24 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the name is that of a lock file, ours or TensorStore's, or of a session file. Only the
/// writer that owns it may list, read or remove it.
pub(super) fn is_lock(key: &Key) -> bool {
    key.name().ends_with(LOCK_SUFFIX) || is_session(&key.parent(), key.name())
}

/// Whether `name` in `dir` is a session file.
pub(super) fn is_session(dir: &Prefix, name: &str) -> bool {
    let is_private = dir.as_str().strip_suffix('/') == Some(PRIVATE);
    is_private && name.starts_with(WRITING) && session_of(name).is_some()
}
