//! Entries that have one name in the directory and another one in their local header.
//!
//! One wrong bit can turn the name of a chunk into that of another chunk, or into one that nobody
//! looks for. The local header still has the right name. Each read of an entry compares the two, so
//! this looks at entries that nobody reads: those whose name a later entry has, too, and, where a
//! copy or a comparison must be whole, those that it did not read.

use super::archive::Archive;
use super::entry::{FIXED_LEN, local_name};
use super::reading::MOST_EXTRA;
use super::table::{EntryRow, EntryTable, Shadowed, text};
use crate::{Key, Omissions};
use zarrfs_base::error::{Error, Result, Word};
use zarrfs_base::width::ToU64;

/// How many local headers are read at a time.
const BATCH: usize = 256;

/// The most entries that nobody reads to look at in an archive on a server.
const MOST_REMOTE: usize = 4096;

/// Notes those of the entries that later ones shadow whose local headers have another name. Reads
/// the local header of each.
pub(super) fn note_shadowed(
    archive: &Archive,
    table: &EntryTable,
    shadowed: &[Shadowed],
    omissions: &Omissions,
) -> Result<()> {
    let span = |entry: &Shadowed| {
        let name_len = table.shadowed_name(entry).len().to_u64();
        (entry.header_offset, FIXED_LEN.saturating_add(name_len).saturating_add(MOST_EXTRA))
    };
    let spans: Vec<_> = shadowed.iter().map(span).collect();
    for (entry, value) in shadowed.iter().zip(archive.get_all(&spans)?) {
        let value = value.ok_or_else(Archive::gone)?;
        if !table.stat.version.is_same(value.stat.version) {
            return Err(Archive::replaced());
        }
        let name = table.shadowed_name(entry);
        match local_name(&value.bytes) {
            Some(local) if local == name => {}
            local => note(omissions, name, local),
        }
    }
    Ok(())
}

/// Notes those of the entries with a `wanted` name, and of empty directories, whose local headers
/// were not read yet, and have another name. `None` if the archive is not the one of this table.
pub(super) fn note_unread(
    archive: &Archive,
    table: &EntryTable,
    wanted: &dyn Fn(&str) -> bool,
    omissions: &Omissions,
) -> Result<Option<()>> {
    let is_unread = |(row, next): &(&EntryRow, Option<&EntryRow>)| {
        let name = table.name(row);
        // A directory with something in it has a right name.
        let is_empty = || !next.is_some_and(|next| table.name(next).starts_with(name));
        row.header_len().is_none()
            && if name.ends_with(b"/") { is_empty() } else { wanted(text(name)) }
    };
    let most = if archive.below.read().is_remote() { MOST_REMOTE } else { usize::MAX };
    let following = table.rows().iter().skip(1).map(Some).chain([None]);
    let unread = table.rows().iter().zip(following).filter(is_unread).take(most);
    let mut unread: Vec<&EntryRow> = unread.map(|(row, _)| row).collect();
    unread.sort_unstable_by_key(|row| row.header_offset);
    for rows in unread.chunks(BATCH) {
        let Some(headers) = table.headers(archive, rows)? else { return Ok(None) };
        for (row, header) in rows.iter().zip(headers) {
            if let Err(error) = table.check_local(row, &header) {
                note_damaged(omissions, table.name(row), local_name(&header), &error);
            }
        }
    }
    Ok(Some(()))
}

/// Notes an entry whose local header is damaged, as `error` says.
fn note_damaged(omissions: &Omissions, name: &[u8], local: Option<&[u8]>, error: &Error) {
    if local.is_some_and(|local| local != name) {
        return note(omissions, name, local);
    }
    let why = format!("this entry of the archive is damaged: {}", error.detail());
    omissions.note(&String::from_utf8_lossy(name), Word::Damaged, &why);
}

/// Notes an entry that has the name `local` in its local header, or none.
fn note(omissions: &Omissions, name: &[u8], local: Option<&[u8]>) {
    let shown = String::from_utf8_lossy(name);
    let Some(local) = local else {
        let why = "an entry of the archive with this name is damaged: its local header is missing";
        return omissions.note(&shown, Word::Damaged, why);
    };
    let local: String = String::from_utf8_lossy(local).chars().take(200).collect();
    let place = if Key::parse(&local).is_ok() { &local } else { &*shown };
    let why = format!(
        "this entry of the archive is damaged: it has the name {shown:?} in the directory and \
         {local:?} in its local header"
    );
    omissions.note(place, Word::Damaged, &why);
}
