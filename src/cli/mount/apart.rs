//! Keeps a mount out of the directories that its daemon reads.

use std::path::Path;

use super::outputs::is_at_or_above;
use crate::cli::failure::{Failure, failed};
use crate::cli::open::{self, StoreLocation};
use crate::hierarchy::Hierarchy;

/// Fails for a mountpoint inside the source: the daemon would wait for itself without limit.
pub fn check(source: &open::Source, mountpoint: &Path) -> Result<(), Failure> {
    let source = match &source.root {
        StoreLocation::Directory(path) | StoreLocation::Archive(path) => path.as_path(),
        StoreLocation::References(references) => match references.directory() {
            Some(directory) => directory,
            None => return Ok(()),
        },
        StoreLocation::Url(_) => return Ok(()),
    };
    if is_at_or_above(source, mountpoint) || is_at_or_above(mountpoint, source) {
        return Err(failed(format!(
            "{} and {}: a mount cannot be over, above or inside its own source; mount it elsewhere",
            source.display(),
            mountpoint.display()
        )));
    }
    Ok(())
}

/// Fails for a mountpoint inside the outermost group above the source: to keep its consolidated
/// metadata current, the daemon reads the nodes in it, and would wait for itself without limit.
pub fn check_groups_above(
    hierarchy: &Hierarchy,
    source: &open::Source,
    mountpoint: &Path,
) -> Result<(), Failure> {
    let Some((root, base)) = source.root.directory().zip(hierarchy.base_above()) else {
        return Ok(());
    };
    let Some(above) = root.ancestors().nth(base.components().count()) else { return Ok(()) };
    if is_at_or_above(above, mountpoint) {
        return Err(failed(format!(
            "{}: inside the group {}, which contains the source {}: mount it elsewhere, or \
             read-only (-o ro)",
            mountpoint.display(),
            above.display(),
            root.display()
        )));
    }
    Ok(())
}
