//! Names of files that programs leave behind when they are killed.

use crate::hierarchy::is_like_chunk;
use crate::metadata::DOCUMENT_NAMES;

/// The length of a UUID in hexadecimal digits.
const UUID_LEN: usize = 32;

/// The length of the random suffix that rsync adds.
const RSYNC_LEN: usize = 6;

/// Returns the program that gives such a name to its temporary files for metadata or chunks. The
/// user may have given it to a file, too: `.zarr.json.backup` is like one of rsync.
///
/// ```text
/// zarr.1f..32 digits..9c.partial     zarr-python
/// .zarr.json.x7Gh2k                  rsync
/// ```
pub fn leftover_of(name: &str) -> Option<&'static str> {
    if let Some(stem) = name.strip_suffix(".partial") {
        let (stem, uuid) = stem.rsplit_once('.')?;
        let is_uuid = uuid.len() == UUID_LEN && uuid.bytes().all(|byte| byte.is_ascii_hexdigit());
        // zarr-python 3 replaces the suffix of the name.
        let is_cut = DOCUMENT_NAMES
            .iter()
            .any(|name| name.rsplit_once('.').is_some_and(|(cut, _)| cut == stem));
        return (is_uuid && (is_cut || is_ours(stem))).then_some("zarr-python");
    }
    let (stem, random) = name.strip_prefix('.')?.rsplit_once('.')?;
    let is_random = random.len() == RSYNC_LEN && random.bytes().all(|b| b.is_ascii_alphanumeric());
    (is_random && is_ours(stem)).then_some("rsync")
}

/// Whether a name is that of a metadata file or of a chunk.
fn is_ours(name: &str) -> bool {
    DOCUMENT_NAMES.contains(&name) || name == "c" || is_like_chunk(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_files_are_known_by_their_names() {
        let uuid = "0123456789abcdef0123456789abcdef";
        for name in [format!("zarr.{uuid}.partial"), format!("0.{uuid}.partial")] {
            assert_eq!(leftover_of(&name), Some("zarr-python"), "{name}");
        }
        for name in [".zarr.json.x7Gh2k", ".0.0.abcdef", "..zarray.Xb12cd"] {
            assert_eq!(leftover_of(name), Some("rsync"), "{name}");
        }
        for name in ["zarr.json", "0.0", ".zattrs", ".zarray", "notes.txt", ".config.backup", ".x"]
        {
            assert_eq!(leftover_of(name), None, "{name}");
        }
    }
}
