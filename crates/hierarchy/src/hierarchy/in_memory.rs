//! A hierarchy that has only metadata, in memory.

use std::sync::Arc;

use super::nodes::{Hierarchy, HierarchyOptions};
use crate::metadata::{Dialect, NodePath};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_store::memory::MemoryStore;
use zarrfs_store::{Condition, Store};

impl Hierarchy {
    /// Returns a hierarchy with these metadata files of Zarr 3, and without chunks.
    pub fn in_memory(documents: Vec<(NodePath, String)>) -> Result<Self> {
        let store = Store::new(Arc::new(MemoryStore::default()));
        for (path, text) in documents {
            let keys = Dialect::V3.document_keys(&path)?;
            let (_, key) =
                keys.first().ok_or_else(|| Error::new(Kind::Internal, "a node has no key"))?;
            let pieces = [bytes::Bytes::from(text).into()];
            store.write()?.set(key, &pieces, Condition::Always)?;
        }
        Self::open(store, Some(Dialect::V3), HierarchyOptions::default())
    }
}
