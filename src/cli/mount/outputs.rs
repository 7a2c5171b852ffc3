//! Keeps the files that a daemon writes out of its own mount.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::failure::{Failure, failed};

/// The most links of a path, as the kernel has it.
const MOST_LINKS: usize = 40;

/// Fails if the daemon would write one of its own files into its own mount, and wait for itself.
/// `outputs` are options with their paths.
pub fn check(outputs: &[(&str, Option<&Path>)], mountpoint: &Path) -> Result<(), Failure> {
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

/// Whether `path` is `above` or lies in it, also under another name of a bind mount: then the mount
/// would appear in its own source, and zarrfs would wait for itself.
pub fn is_at_or_above(above: &Path, path: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let wanted = id(above);
    path.ancestors().any(|dir| dir == above || wanted.is_some() && id(dir) == wanted)
}
