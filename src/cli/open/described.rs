//! Hierarchies of Zarr 2 whose nodes nothing but `.zmetadata` describes.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Result, WithSubject};
use crate::hierarchy::Hierarchy;
use crate::json;
use crate::limits;
use crate::metadata::Dialect;
use crate::store::described::Described;
use crate::store::directory::{DirectoryStore, Durability};
use crate::store::{Key, Store};

/// The consolidated metadata of Zarr 2.
const ZMETADATA: &str = ".zmetadata";

/// Whether a store has nothing but consolidated metadata of Zarr 2 for its nodes.
fn has_only_copies(store: &Store) -> Result<bool> {
    let names = ["zarr.json", ".zgroup", ".zarray", ".zattrs", ZMETADATA];
    let keys = names.map(Key::parse).into_iter().collect::<Result<Vec<_>>>()?;
    let stats = store.read().stat(&keys)?;
    Ok(stats
        .split_last()
        .is_some_and(|(copies, others)| copies.is_some() && others.iter().all(Option::is_none)))
}

/// Returns the store in which the copies in `.zmetadata` stand for the metadata files, if these are
/// missing.
pub fn store(hierarchy: &Hierarchy) -> Result<Option<Store>> {
    let store = hierarchy.store();
    // It has asked for the same names before, so this takes no request, and reports no error.
    if *hierarchy.dialect() != Dialect::V2 || !has_only_copies(store).unwrap_or_default() {
        return Ok(None);
    }
    let value = store.get(&Key::parse(ZMETADATA)?, limits::METADATA.get())?;
    let Some(value) = value else { return Ok(None) };
    let copies = json::parse_object(&value.bytes).at(ZMETADATA)?;
    let Some(serde_json::Value::Object(copies)) = copies.get("metadata") else { return Ok(None) };
    let copy = |(name, copy): (&String, &serde_json::Value)| {
        Some((Key::parse(name).ok()?, bytes::Bytes::from(copy.to_string())))
    };
    let copies = copies.iter().filter_map(copy).collect();
    Ok(Some(Store::reading(Arc::new(Described::new(store.clone(), copies, value.stat)))))
}

/// Returns why the nodes in a directory cannot be changed, as the end of a sentence about it.
pub fn why_read_only(directory: &Path) -> Option<&'static str> {
    let store = DirectoryStore::open(directory, Durability::Buffered).ok()?;
    has_only_copies(&Store::new(Arc::new(store))).unwrap_or_default().then_some(
        "mounted read-only, because its nodes are described in .zmetadata alone, and their own \
         metadata files (.zgroup, .zarray) are missing",
    )
}
