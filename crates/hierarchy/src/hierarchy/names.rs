//! The names that new nodes may have.

use super::members::Member;
use super::nodes::Hierarchy;
use crate::metadata::NodePath;
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_store::PRIVATE;
use zarrfs_store::directory::LOCK_SUFFIX;

/// Refuses zarrfs's own names, and names of lock files, which listings leave out.
pub(super) fn check_is_not_private(path: &NodePath) -> Result<()> {
    let wrong = |name: &&str| *name == PRIVATE || name.ends_with(LOCK_SUFFIX);
    match path.components().find(wrong) {
        None => Ok(()),
        Some(name) => {
            let detail = format!("{name:?}: this name is reserved for zarrfs; choose another");
            Err(Error::new(Kind::NotPermitted, detail).at(path))
        }
    }
}

impl Hierarchy {
    /// Refuses a name that the dialect does not allow, by itself or next to the existing ones.
    pub fn check_new_name(&self, path: &NodePath) -> Result<()> {
        let name = path.name().unwrap_or_default();
        self.check_name(name)?;
        let Some(parent) = path.parent().filter(|_| self.dialect().folds_case()) else {
            return Ok(());
        };
        for member in self.members(&parent)? {
            let (Member::Directory(other) | Member::File(other)) = member?;
            if other != name && other.eq_ignore_ascii_case(name) {
                return Err(Error::invalid(format!(
                    "{name:?} differs from {other:?} only in case, which the drafts of 2019 do \
                     not allow"
                ))
                .at(path));
            }
        }
        Ok(())
    }

    /// Refuses a name that no node can have in this hierarchy, by its dialect or its store.
    pub fn check_can_hold(&self, path: &NodePath) -> Result<()> {
        check_is_not_private(path)?;
        self.check_name(path.name().unwrap_or_default())
    }

    /// Refuses a new node in a directory whose name the dialect does not allow, or below one: other
    /// programs may have made it.
    pub(super) fn check_directories(&self, path: &NodePath) -> Result<()> {
        for path in path.ancestors().iter().chain([path]) {
            let is_node = self.node(path)?.is_some_and(|node| !node.is_bare());
            if let Some(name) = path.name().filter(|_| !is_node) {
                self.check_name(name).at(path)?;
            }
        }
        Ok(())
    }

    /// Refuses a name that the dialect or the store does not allow for a new node.
    pub(super) fn check_name(&self, name: &str) -> Result<()> {
        if name.ends_with(LOCK_SUFFIX) {
            let detail =
                format!("{name:?}: names that end in {LOCK_SUFFIX} are reserved for lock files");
            return Err(Error::invalid(detail));
        }
        self.dialect().check_name(name)
    }
}
