//! Several arrays of NumPy in a zip archive. A member that is compressed is decoded by the store of
//! the archive, so the chunks lead to members of that.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use crate::described::{Described, DescribedArray, is_node_name, no_attributes};
use crate::npy;
use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::{limits, resources};
use zarrfs_store::zip::{ArchiveLimits, ZipStore};
use zarrfs_store::{Key, Store};

/// The signature of an entry.
const ENTRY: &[u8] = b"PK\x03\x04";

/// Whether a file begins like an archive whose first entry is an array.
pub fn is_first(first: &[u8]) -> bool {
    let Some(entry) = first.strip_prefix(ENTRY) else { return false };
    let len = entry.get(22..24).and_then(|len| len.try_into().ok()).map_or(0, u16::from_le_bytes);
    let name = entry.get(26..).and_then(|rest| rest.get(..usize::from(len)));
    name.is_some_and(|name| name.ends_with(b".npy"))
}

/// Describes all arrays of a file.
pub fn scan(file: &SourceFile, described: &mut Described) -> Result<()> {
    let most = ArchiveLimits::DEFAULT;
    let limits = ArchiveLimits {
        value: resources::within_memory(most.value, 4),
        directory: resources::within_memory(16 << 20, 8),
        ..most
    };
    let archive = ZipStore::open(file.store().clone(), file.key().clone(), limits)?;
    let store = Store::reading(Arc::new(archive));
    let place = described.add_place(store.clone());
    let list = store.list().ok_or_else(|| Error::unsupported("an archive without a directory"))?;
    let mut keys = Vec::new();
    for key in list.list()? {
        keys.push(key?);
        if limits::NODES.is_exceeded_by(keys.len()) {
            return Err(Error::too_large(format!("members of the archive, {}", limits::NODES)));
        }
    }
    keys.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    let mut groups = BTreeSet::from([String::new()]);
    for key in keys {
        let Some(path) = key.as_str().strip_suffix(".npy") else {
            described.omit(key.as_str(), "no array of NumPy");
            continue;
        };
        if !path.split('/').all(is_node_name) {
            described.omit(key.as_str(), "no node can have this name");
            continue;
        }
        groups
            .extend(path.match_indices('/').filter_map(|(at, _)| Some(path.get(..at)?.to_owned())));
        describe(&store, &key, &place, path, described)?;
    }
    for group in groups {
        described.group(&group, no_attributes())?;
    }
    Ok(())
}

fn describe(
    store: &Store,
    key: &Key,
    place: &str,
    path: &str,
    described: &mut Described,
) -> Result<()> {
    let result = SourceFile::located(store, key, format!("{place}/{key}")).and_then(|member| {
        described.lead_to(&member)?;
        npy::describe(&member, path, described)
    });
    let array = DescribedArray {
        data_type: json!("uint8"),
        fill_value: json!(0),
        ..DescribedArray::default()
    };
    described.or_unread(path, array, result)
}
