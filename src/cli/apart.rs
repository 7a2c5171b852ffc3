//! Keeps a mount out of the directories that its daemon reads.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::failure::{Failure, failed};
use super::open::{self, Location};
use crate::hierarchy::Hierarchy;

/// The most links of a path, as the kernel has it.
const MOST_LINKS: usize = 40;

/// Fails for a mountpoint inside the source: the daemon would wait for itself without limit.
pub fn check(source: &open::Source, mountpoint: &Path) -> Result<(), Failure> {
    let source = match &source.root {
        Location::Directory(path) | Location::Archive(path) => path.as_path(),
        Location::References(references) => match references.directory() {
            Some(directory) => directory,
            None => return Ok(()),
        },
        Location::Url(_) => return Ok(()),
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

/// Fails if the daemon would write one of its own files into its own mount, and wait for itself.
/// `outputs` are options with their paths.
pub fn check_outputs(outputs: &[(&str, Option<&Path>)], mountpoint: &Path) -> Result<(), Failure> {
    for (option, path) in outputs {
        let Some(path) = path else { continue };
        let place = real(path)?;
        if is_at_or_above(mountpoint, &place) {
            return Err(failed(format!(
                "{option} {}: below the mountpoint {}, where the mount would hide it; choose a \
                 place outside",
                path.display(),
                mountpoint.display()
            )));
        }
    }
    Ok(())
}

/// Returns the place without links at which a file with this path is, or would be made.
pub fn real(path: &Path) -> std::io::Result<PathBuf> {
    let mut path = std::path::absolute(path)?;
    for _ in 0..MOST_LINKS {
        match path.read_link() {
            // A link that leads nowhere yet is followed when the file is made.
            Ok(target) => path = path.parent().unwrap_or(&path).join(target),
            Err(_) => break,
        }
    }
    let mut missing = Vec::new();
    let mut above = path.as_path();
    loop {
        if let Ok(found) = above.canonicalize() {
            return Ok(missing.iter().rev().fold(found, |place, name| place.join(name)));
        }
        let Some((parent, name)) = above.parent().zip(above.file_name()) else {
            return Ok(path);
        };
        missing.push(name.to_owned());
        above = parent;
    }
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

/// Whether `path` is `above` or lies in it, also under another name of a bind mount: then the mount
/// would appear in its own source, and zarrfs would wait for itself.
fn is_at_or_above(above: &Path, path: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let wanted = id(above);
    path.ancestors().any(|dir| dir == above || wanted.is_some() && id(dir) == wanted)
}
