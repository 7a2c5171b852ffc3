//! Changes of attributes (`chmod`, `chown`, `truncate` and `utimensat` are one request) and of the
//! space of a file, and where in a file that space is.

use std::time::SystemTime;

use super::terms::Owner;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::vfs::{Access, Attr, Caller, Extent, FileChanges, NewLen, NewTime, Vfs};

/// Changes the length and then the other attributes of a file for a user. `owner` is that of the
/// files that have none of their own.
pub(super) fn change(
    vfs: &Vfs,
    user: Caller,
    owner: Owner,
    number: u64,
    len: Option<NewLen>,
    changes: &FileChanges,
) -> Result<Attr> {
    let attrs = vfs.attr_writer();
    attrs.store_before(number, changes)?;
    if let Some(mode) = changes.mode {
        vfs.store_before_mode(number, mode)?;
    }
    if owner.own(&vfs.getattr(number)?).is_some() {
        if let Some(len) = len {
            attrs.clear_privileges_for(user, number);
            attrs.truncate(number, len)?;
        }
        if !changes.is_empty() {
            attrs.change(number, changes)?;
        }
        return vfs.getattr(number);
    }
    let FileChanges { mode, uid, gid, modified, .. } = *changes;
    if attrs.may_lose_changes(number)? {
        return vfs.getattr(number);
    }
    // A program may create a file with restricted permissions, but stored files have a fixed mode.
    // So only permission bits are ignored, and other bits are refused.
    let is_plain = |mode: u16| mode & 0o7000 == 0;
    let mode = match mode {
        Some(mode) if is_plain(mode) && attrs.set_mode(number, mode)? => None,
        mode => mode,
    };
    if mode.is_some() || uid.is_some() || gid.is_some() {
        let checked = owner.check(&vfs.getattr(number)?, mode, uid, gid);
        checked.map_err(|error| match vfs.path_of(number) {
            Some(path) => error.at(path),
            None => error,
        })?;
    }
    if let Some(len) = len {
        attrs.truncate(number, len)?;
    }
    match modified {
        Some(NewTime::At(time)) => attrs.set_modified(number, time)?,
        Some(NewTime::Now) if len.is_none() => attrs.set_modified(number, SystemTime::now())?,
        _ => {}
    }
    vfs.getattr(number)
}

/// Clears the set-user-ID and set-group-ID bits of a file that a user truncates when opening it.
pub(super) fn before_open(vfs: &Vfs, user: Caller, number: u64, access: Access) {
    if access == Access::Truncate {
        vfs.attr_writer().clear_privileges_for(user, number);
    }
}

/// Reserves space in a file, or frees it (fallocate(2), with its flags). A chunk or metadata file
/// has a length of its own, and no holes.
pub(super) fn allocate(
    vfs: &Vfs,
    user: Caller,
    number: u64,
    (offset, len): (u64, u64),
    flags: i32,
) -> Result<()> {
    let attrs = vfs.attr_writer();
    attrs.clear_privileges_for(user, number);
    if attrs.allocate(number, offset, len, flags)? {
        return Ok(());
    }
    let end = offset.saturating_add(len);
    match flags {
        0 if vfs.getattr(number)?.len < end => attrs.truncate(number, end),
        0 | libc::FALLOC_FL_KEEP_SIZE => attrs.check_len(number, end),
        _ => Err(Error::unsupported("fallocate can only reserve space, not punch holes")),
    }
}

/// Finds the next data or hole in a file (lseek(2)). A file without holes is data up to its end.
pub(super) fn seek(vfs: &Vfs, number: u64, offset: i64, whence: i32) -> Result<i64> {
    let none = || Error::new(Kind::Os(libc::ENXIO), "the file ends before that offset");
    let offset = u64::try_from(offset).map_err(|_| none())?;
    let part = match whence {
        libc::SEEK_DATA => Extent::Data,
        libc::SEEK_HOLE => Extent::Hole,
        _ => return Err(Error::invalid("lseek can only find data and holes")),
    };
    let found = match vfs.attr_writer().find(number, part, offset)? {
        Some(found) => found,
        None => match (vfs.getattr(number)?.len, part) {
            (len, _) if offset >= len => return Err(none()),
            (_, Extent::Data) => offset,
            (len, Extent::Hole) => len,
        },
    };
    i64::try_from(found).map_err(|_| none())
}
