//! Detects whether a path lies in a zarrfs mount, and finds the source of that mount.

use std::path::{Path, PathBuf};

use super::stats::Stats;
use crate::cli::failure::Failure;
use crate::cli::umount;

/// A zarrfs mount.
#[derive(Debug)]
pub struct Mounted {
    /// The mountpoint.
    pub root: PathBuf,
    /// The mounted hierarchy as typed: a directory, or `HIERARCHY#NODE`.
    pub source: PathBuf,
    /// Whether the mount shows Zarr 3.
    pub is_zarr3: bool,
}

/// Returns the zarrfs mount in which a path lies. The path need not exist, but must be absolute and
/// without links.
pub fn find(path: &Path) -> Result<Option<Mounted>, Failure> {
    let mounts = umount::mounts()?;
    // If two mounts have the same place, the later one is visible.
    let above = mounts.into_iter().filter(|mount| path.starts_with(&mount.path));
    let Some(mount) = above.max_by_key(|mount| mount.path.components().count()) else {
        return Ok(None);
    };
    if !mount.is_fuse() {
        return Ok(None);
    }
    let Some(stats) = Stats::of(&mount.path) else { return Ok(None) };
    // With `-o fsname`, the mount table has another name.
    let source = stats.label("source").map_or(mount.source, PathBuf::from);
    let is_zarr3 = mount.path.join("zarr.json").is_file();
    Ok(Some(Mounted { root: mount.path, source, is_zarr3 }))
}

impl Mounted {
    /// Returns the path in the mounted hierarchy for a path in the mount, if nodes are directories.
    pub fn backing(&self, path: &Path) -> PathBuf {
        let (source, node) = match self.source.to_str().and_then(|text| text.rsplit_once('#')) {
            Some((root, node)) => (Path::new(root), node),
            None => (self.source.as_path(), ""),
        };
        source.join(node).join(path.strip_prefix(&self.root).unwrap_or(path))
    }
}
