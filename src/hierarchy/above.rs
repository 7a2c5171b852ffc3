//! The hierarchy that another one is a part of: a node that is opened by itself.
//!
//! A group above that node may have consolidated metadata with copies of the documents below it. Keeping these true
//! is left to the hierarchy of all groups, which knows them by their whole paths.

use std::sync::Arc;
use std::time::Duration;

use super::nodes::{Above, Hierarchy, Options};
use crate::error::{At, Error, Result};
use crate::metadata::{Dialect, NodeKind, NodePath, declared};
use crate::store::{Entry, Store};

impl Hierarchy {
    /// The hierarchy as a part of the one in `store`, where its root is the node `base`: the consolidated metadata
    /// of the groups above it are kept true, too.
    pub fn below(mut self, store: Store, base: NodePath) -> Result<Self> {
        // What this hierarchy stores is to be seen there at once.
        let options = Options { metadata_ttl: Duration::ZERO, ..self.options.clone() };
        let hierarchy = Self::open(store, Some(self.dialect().clone()), options)?;
        self.above = Some(Above { hierarchy: Arc::new(hierarchy), base });
        Ok(self)
    }

    /// Has `change` done in the hierarchy of all groups.
    pub(super) fn leave_to(
        &self,
        above: &Above,
        path: &NodePath,
        change: impl FnOnce(&Self, &NodePath) -> Result<()>,
    ) -> Result<()> {
        let changed = change(&above.hierarchy, &above.path_of(path)?);
        for group in path.ancestors() {
            self.invalidate(&group);
        }
        // Its keys are those of another store than that of this hierarchy.
        changed.map_err(|error| {
            let detail = format!(
                "consolidated metadata of the groups above cannot be read: \
                 {error}"
            );
            Error::new(error.kind(), detail).at(path)
        })
    }

    /// Nothing stays in the store that is there for writing alone, if nothing was written for `quiet`.
    pub fn rest(&self, quiet: Duration) {
        if let Some(above) = &self.above {
            above.hierarchy.rest(quiet);
        }
        let Ok(write) = self.store().write() else { return };
        if let Err(error) = write.rest(quiet) {
            log::debug!("{error}"); // Whatever is stored is stored; it comes to rest later.
        }
    }
}

/// What lies at the root of a store, to a node of a hierarchy that lies somewhere below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// A group of the same dialect: the node is one of its nodes.
    Node,
    /// No document: it may be an implicit group of a hierarchy further up.
    Perhaps,
    /// Something else.
    Nothing,
}

/// What the root of `store` is to a node in `dialect` that lies below it at `relative`.
pub fn holds_node(store: &Store, dialect: &Dialect, relative: &NodePath) -> Holds {
    let is_name = |name: &str| dialect.child(&Entry::Prefix(name.to_owned())).is_some();
    if !dialect.copies_directories_below() || !relative.components().all(is_name) {
        return Holds::Nothing;
    }
    match declared(store) {
        Ok(None) => Holds::Perhaps,
        Ok(Some(found)) if found == *dialect => {
            let root = Hierarchy::open(store.clone(), Some(found), Options::default());
            let root = root.and_then(|hierarchy| hierarchy.existing(&NodePath::root()));
            match root {
                Ok(root) if root.kind() == NodeKind::Group => Holds::Node,
                Ok(_) | Err(_) => Holds::Nothing,
            }
        }
        Ok(Some(_)) | Err(_) => Holds::Nothing,
    }
}
