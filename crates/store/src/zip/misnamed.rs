//! Entries whose name a later entry has, too, so that no reader gets them.
//!
//! Usually these are older values of the same key. But one wrong bit can turn the name of a chunk
//! into that of another chunk. The local header still has the right name.

use super::archive::Archive;
use super::entry::{FIXED_LEN, local_name};
use super::reading::MOST_EXTRA;
use super::table::{Shadowed, Table};
use crate::{Key, Omissions};
use zarrfs_base::error::{Result, Word};

/// Notes the entries whose local headers have another name. Reads the local header of each.
pub(super) fn note_misnamed(
    archive: &Archive,
    table: &Table,
    shadowed: &[Shadowed],
    omissions: &Omissions,
) -> Result<()> {
    let span = |entry: &Shadowed| {
        let name_len = u64::try_from(table.shadowed_name(entry).len()).unwrap_or(u64::MAX);
        (entry.header_offset, FIXED_LEN.saturating_add(name_len).saturating_add(MOST_EXTRA))
    };
    let spans: Vec<_> = shadowed.iter().map(span).collect();
    for (entry, value) in shadowed.iter().zip(archive.get_all(&spans)?) {
        let value = value.ok_or_else(Archive::gone)?;
        if !table.stat.version.is_same(value.stat.version) {
            return Err(Archive::replaced());
        }
        let name = table.shadowed_name(entry);
        let shown = String::from_utf8_lossy(name);
        match local_name(&value.bytes) {
            Some(local) if local == name => {}
            Some(local) => {
                let local: String = String::from_utf8_lossy(local).chars().take(200).collect();
                let place = if Key::parse(&local).is_ok() { &local } else { &*shown };
                let why = format!(
                    "this entry of the archive is damaged: it has the name {shown:?} in the \
                     directory and {local:?} in its local header"
                );
                omissions.note(place, Word::Damaged, &why);
            }
            None => {
                let why = "an entry of the archive with this name is damaged: its local header is \
                           missing";
                omissions.note(&shown, Word::Damaged, why);
            }
        }
    }
    Ok(())
}
