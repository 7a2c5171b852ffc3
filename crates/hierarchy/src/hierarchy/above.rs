//! The larger hierarchy around a node that was opened by itself.
//!
//! A group above that node may have consolidated metadata, with copies of the documents below it.
//! The hierarchy of the whole store keeps those copies current, because the copies name nodes by
//! their full paths.

use std::sync::Arc;
use std::time::Duration;

use super::nodes::{Above, Hierarchy, HierarchyOptions};
use crate::metadata::{Dialect, NodeKind, NodePath, declared};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_store::{Store, StoreEntry};

impl Hierarchy {
    /// Makes this hierarchy a part of the one in `store`, with its root at the node `base`, so that
    /// the consolidated metadata of the groups above `base` stay current.
    pub fn below(mut self, store: Store, base: NodePath) -> Result<Self> {
        // Changes made through this hierarchy must be visible there at once.
        let options = HierarchyOptions {
            metadata_ttl: Duration::ZERO,
            reads_copies: false,
            ..self.options.clone()
        };
        let hierarchy = Self::open(store, Some(self.dialect().clone()), options)?;
        self.above = Some(Above { hierarchy: Arc::new(hierarchy), base });
        Ok(self)
    }

    /// Returns the path of the root in the larger hierarchy, if there is one.
    pub fn base_above(&self) -> Option<&NodePath> {
        self.above.as_ref().map(|above| &above.base)
    }

    /// Runs `change` on the larger hierarchy, with the full path of the node.
    pub(super) fn change_above(
        &self,
        above: &Above,
        path: &NodePath,
        change: impl FnOnce(&Self, &NodePath) -> Result<()>,
    ) -> Result<()> {
        let changed = change(&above.hierarchy, &above.path_of(path)?);
        for group in path.ancestors() {
            self.invalidate(&group);
        }
        // The keys in its errors belong to another store than this hierarchy's.
        changed.map_err(|error| {
            let detail = format!(
                "consolidated metadata of the groups above cannot be read: \
                 {error}"
            );
            Error::new(error.kind(), detail).at(path)
        })
    }

    /// Releases resources of the store that are only needed for writing, if nothing was written for
    /// `quiet`.
    pub fn release_idle(&self, quiet: Duration) {
        if let Some(above) = &self.above {
            above.hierarchy.release_idle(quiet);
        }
        let Ok(write) = self.store().write() else { return };
        if let Err(error) = write.release_idle(quiet) {
            log::debug!("{error}"); // It is released later.
        }
    }
}

/// Whether a node belongs to the hierarchy at the root of a store above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// It does: the root is a group of the same dialect.
    Member,
    /// The root has no document; it may be an implicit group of a larger hierarchy.
    Perhaps,
    /// It does not.
    None,
}

/// Checks whether the node in `dialect` at `relative` belongs to the hierarchy at the root of
/// `store`.
pub fn membership(store: &Store, dialect: &Dialect, relative: &NodePath) -> Membership {
    let is_name = |name: &str| dialect.child(&StoreEntry::Prefix(name.to_owned())).is_some();
    if !dialect.copies_directories_below() || !relative.components().all(is_name) {
        return Membership::None;
    }
    match declared(store) {
        Ok(None) => Membership::Perhaps,
        Ok(Some(found)) if found == *dialect => {
            let root = Hierarchy::open(store.clone(), Some(found), HierarchyOptions::default());
            let root = root.and_then(|hierarchy| hierarchy.existing(&NodePath::root()));
            match root {
                Ok(root) if root.kind() == NodeKind::Group => Membership::Member,
                Ok(_) | Err(_) => Membership::None,
            }
        }
        Ok(Some(_)) | Err(_) => Membership::None,
    }
}
