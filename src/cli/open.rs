//! From a path that someone typed to a hierarchy, and a node in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Failure, failed};
use crate::error::{Error, Kind};
use crate::hierarchy::{Hierarchy, Options};
use crate::metadata::{Dialect, NodePath, draft_root_marker};
use crate::store::Store;
use crate::store::directory::{DirectoryStore, Durability};

/// The store in a directory, which must exist.
pub fn store(path: &Path, durability: Durability) -> Result<Store, Failure> {
    let shown = path.display();
    if path.to_str().is_some_and(|path| path.contains("://")) {
        return Err(failed(format!("{shown}: only directories can be opened so far, no URLs")));
    }
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => {
            return Err(failed(format!(
                "{shown}: not a directory (no other source can be opened so far)"
            )));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(failed(format!("{shown}: no such directory")));
        }
        Err(error) => return Err(failed(format!("{shown}: {error}"))),
    }
    Ok(Store::new(Arc::new(DirectoryStore::open(path, durability)?)))
}

/// The hierarchy in `store`, which lies at `path`.
pub fn hierarchy(
    store: Store,
    path: &Path,
    from: Option<Dialect>,
    options: Options,
) -> Result<Hierarchy, Failure> {
    Hierarchy::open(store, from, options).map_err(|error| {
        if let Some(root) = draft_root_above(path) {
            return failed(format!(
                "{}: lies inside the hierarchy {}, which can only be opened at its root: give that path",
                path.display(),
                root.display()
            ));
        }
        explain(path, &error)
    })
}

/// Why there is no hierarchy at `path`.
fn explain(path: &Path, error: &Error) -> Failure {
    let shown = path.display();
    match (error.kind(), error.subject()) {
        (Kind::NotFound, _) => {
            failed(format!("{shown}: an empty directory; --create starts a hierarchy in it"))
        }
        (_, Some(subject)) => failed(format!("{shown}/{subject}: {}", error.detail())),
        (_, None) => failed(format!("{shown}: {}", error.detail())),
    }
}

/// The root of the draft hierarchy that `path` lies in the `meta` or `data` of, if so.
fn draft_root_above(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    for above in path.ancestors().skip(1) {
        if let Ok(text) = std::fs::read(above.join("zarr.json")) {
            return draft_root_marker(&text).map(|_| above.to_owned());
        }
    }
    None
}

/// The hierarchy that `path` leads into, and the node in it: of `climate.zarr/t2m` the node `t2m`. A directory
/// that is a hierarchy by itself is opened as one, unless it is a node of a draft, which has one root only.
pub fn node(path: &Path, from: Option<&Dialect>) -> Result<(Hierarchy, NodePath), Failure> {
    let mut root = path.to_owned();
    let mut names: Vec<String> = Vec::new();
    loop {
        if root.is_dir() {
            let opened = hierarchy(
                store(&root, Durability::Buffered)?.read_only(),
                &root,
                from.cloned(),
                Options::default(),
            );
            match opened {
                Ok(hierarchy) => {
                    let node =
                        names.iter().rev().try_fold(NodePath::root(), |at, name| at.child(name))?;
                    if hierarchy.node(&node)?.is_some_and(|node| !node.is_bare()) {
                        return Ok((hierarchy, node));
                    }
                    return Err(failed(format!(
                        "{}: no node {node} in the hierarchy {}",
                        path.display(),
                        root.display()
                    )));
                }
                // Perhaps the path leads through a directory of a hierarchy above it.
                Err(failure) if names.is_empty() && !lies_in_hierarchy(&root) => {
                    return Err(failure);
                }
                Err(_) => {}
            }
        }
        let Some(name) = root.file_name().and_then(|name| name.to_str()).map(str::to_owned) else {
            return Err(failed(format!(
                "{}: no such directory, nor a node in a hierarchy",
                path.display()
            )));
        };
        names.push(name);
        root = match root.parent() {
            Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
            Some(parent) => parent.to_owned(),
            None => return Err(failed(format!("{}: no such directory", path.display()))),
        };
    }
}

fn lies_in_hierarchy(path: &Path) -> bool {
    path.canonicalize()
        .is_ok_and(|path| path.ancestors().skip(1).any(|above| above.join("zarr.json").is_file()))
}
