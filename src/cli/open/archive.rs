//! Zip archives as sources: which paths and URLs name one, and the stores in them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::remote;
use crate::cli::failure::{Failure, failed};
use crate::error::Kind;
use crate::hierarchy::{Hierarchy, HierarchyOptions};
use crate::metadata::{NodePath, declared};
use crate::resources;
use crate::store::directory::{DirectoryStore, Durability};
use crate::store::within::Within;
use crate::store::zip::{ArchiveLimits, ZipStore};
use crate::store::{Key, Prefix, Store};

/// The endings of the names of archives.
const ENDINGS: [&str; 2] = ["zip", "ozx"];

/// The endings of directories that are, or become, hierarchies.
pub const ROOT_ENDINGS: [&str; 3] = ["zarr", "n5", "zr3"];

/// What an archive begins with, unless it is empty or other bytes stand before it.
const SIGNATURE: [u8; 4] = *b"PK\x03\x04";

/// Why no program can write to a store in an archive, as the end of a sentence about it.
pub const WHY_READ_ONLY: &str = "mounted read-only, because it is a zip archive";

/// Whether a path or URL ends as those of archives do.
pub fn is_named(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// Whether a path is that of an archive: a regular file with such a name, or with the signature.
pub fn is_archive(path: &Path) -> bool {
    // Opening a FIFO would block.
    if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return false;
    }
    let mut first = [0; SIGNATURE.len()];
    let begins = |mut file: File| file.read_exact(&mut first).is_ok() && first == SIGNATURE;
    is_named(path) || File::open(path).is_ok_and(begins)
}

/// Returns the archive that a path names or leads into, without links, and the node in it:
/// `climate.zip`, `climate.zip/t2m` or `climate.zip#t2m`.
pub fn find(path: &Path) -> Result<Option<(PathBuf, NodePath)>, Failure> {
    // A slash at the end would ask for a directory.
    let path = path.components().as_path();
    let mut found = path.ancestors().find(|above| above.exists());
    let mut node = found.and_then(|found| path.strip_prefix(found).ok()?.to_str());
    if !found.is_some_and(is_archive)
        && let Some((root, named)) = path.to_str().and_then(|path| path.rsplit_once('#'))
    {
        (found, node) = (Some(Path::new(root)), Some(named));
    }
    let Some((archive, node)) = found.filter(|found| is_archive(found)).zip(node) else {
        return Ok(None);
    };
    let node = NodePath::parse(node).map_err(|error| failed(error.to_string()))?;
    Ok(Some((archive.canonicalize()?, node)))
}

/// Opens the store in an archive on a local file system, whose path has no links.
pub fn store(path: &Path, ttl: Duration) -> Result<Store, Failure> {
    open(path, |below, key| store_in(below, key, ttl))
}

/// Like [`store`], with all that is in the archive.
pub fn whole(path: &Path, ttl: Duration) -> Result<Store, Failure> {
    open(path, |below, key| Ok(Store::reading(Arc::new(archive_in(below, key, ttl)?))))
}

fn open(
    path: &Path,
    store: impl FnOnce(Store, Key) -> Result<Store, Failure>,
) -> Result<Store, Failure> {
    let shown = path.display();
    let name = path.file_name().and_then(|name| name.to_str());
    let key = name.and_then(|name| Key::parse(name).ok());
    let Some((parent, key)) = path.parent().zip(key) else {
        return Err(failed(format!("{shown}: the name of the archive is not valid UTF-8")));
    };
    let below = Store::new(Arc::new(DirectoryStore::open(parent, Durability::Buffered)?));
    store(below.read_only(), key)
        .map_err(|failure| failed(format!("{shown}: {}", failure.message())))
}

/// Opens the archive that is the value of `key` in another store.
fn archive_in(below: Store, key: Key, ttl: Duration) -> Result<ZipStore, Failure> {
    let limits = ArchiveLimits {
        ttl,
        value: resources::within_memory(ArchiveLimits::DEFAULT.value, 4),
        directory: resources::within_memory(ArchiveLimits::DEFAULT.directory, 8),
        ..ArchiveLimits::DEFAULT
    };
    ZipStore::open(below, key, limits).map_err(|error| match error.kind() {
        // For this user it was never there.
        Kind::Stale => failed("nothing is stored there"),
        _ => error.into(),
    })
}

/// Opens the store in the archive that is the value of `key` in another store.
pub fn store_in(below: Store, key: Key, ttl: Duration) -> Result<Store, Failure> {
    let stem = Path::new(key.name()).file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
    let archive = archive_in(below, key, ttl)?;
    let directory = archive.only_directory()?;
    let store = Store::reading(Arc::new(archive));
    if let Some(name) = directory {
        let within = within(store.clone(), &name)?;
        if is_root(&within, &name, stem.as_deref())? {
            return Ok(within);
        }
    }
    Ok(store)
}

/// Returns the store of a directory in an archive.
pub fn within(store: Store, path: &str) -> Result<Store, Failure> {
    Ok(Store::reading(Arc::new(Within::new(store, Prefix::parse(path)?))))
}

/// Whether the only directory of an archive is the hierarchy, and not a node of one whose root has
/// no metadata file: by its name, or because it is a group.
fn is_root(store: &Store, name: &str, stem: Option<&str>) -> Result<bool, Failure> {
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str());
    if Some(name) == stem || ending.is_some_and(|ending| ROOT_ENDINGS.contains(&ending)) {
        return Ok(true);
    }
    let Some(dialect) = declared(store)? else { return Ok(false) };
    let hierarchy = Hierarchy::open(store.clone(), Some(dialect), HierarchyOptions::default())?;
    Ok(hierarchy.node(&NodePath::root())?.is_none_or(|root| root.array().is_none()))
}

/// Returns the URL above an archive, and its key there, if a URL is that of an archive.
pub fn split_url(url: &str) -> Option<(String, Key)> {
    let (above, name) = remote::split_file(url)?;
    let key = Key::parse(&name).ok().filter(|_| is_named(Path::new(&name)))?;
    Some((above, key))
}

/// Fails for a path or URL of an archive, or in one, because zarrfs changes none.
pub fn check_writable(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let is_archive = match remote::url(path) {
        Some(url) => url.split('#').next().is_some_and(|url| split_url(url).is_some()),
        None => find(path)?.is_some() || path.ancestors().any(|it| is_named(it) && !it.exists()),
    };
    if is_archive {
        return Err(failed(format!(
            "{shown}: zarrfs does not change zip archives: write into a directory, and pack it with \
             `zarrfs convert DIRECTORY NEW.zip`"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_archives_are_split_at_the_archive() {
        let split = |url| split_url(url).map(|(above, key)| format!("{above} {key}"));
        for (url, want) in [
            ("s3://b/dir/x.ozx", "s3://b/dir x.ozx"),
            ("s3://b/x.zip", "s3://b x.zip"),
            ("s3://b/a%20b?.zip", "s3://b a%20b?.zip"),
            #[cfg(feature = "remote")]
            (
                "https://u:p@h:1/d%20e/a%20b.zip?token=x/y.z",
                "https://u:p@h:1/d%20e?token=x/y.z a b.zip",
            ),
        ] {
            assert_eq!(split(url).as_deref(), Some(want), "{url}");
        }
        for url in [
            "s3://x.zip",
            "s3://b/x.zarr",
            "s3://b/x.zip/t2m",
            "s3://b/zip",
            "s3://b/x.zip?t=1",
            "https://h/x.zarr?file=x.zip",
            "https://h/%2e%2e%2fx.zip",
        ] {
            assert_eq!(split(url), None, "{url}");
        }
    }
}
