//! An Icechunk repository as a read-only store of Zarr 3 ([`open`]), in versions 1 and 2 of its
//! specification.
//!
//! ```text
//! repo                    branches, tags and the list of snapshots (version 1: refs/*/ref.json)
//! snapshots/ID            the nodes of one state, each with its zarr.json
//! manifests/ID            the places of chunks
//! chunks/ID               the bytes of chunks
//! ```
//!
//! `names` finds the snapshot of a branch, `snapshot` has its nodes, and `manifest` the places of
//! their chunks: inline, in a file of the repository, or in a part of any other file (virtual
//! chunks). `tree` answers for the keys of a hierarchy with these places, and
//! `refs::RefStore` reads them.
//!
//! All files but `repo` never change. A mount stays at the snapshot that its branch had when it was
//! opened, as sessions of Icechunk do: so its nodes and chunks belong together, and nothing is read
//! twice. The directories of other snapshots (`states`) show later ones.

mod file;
mod flatbuffer;
mod manifest;
mod names;
mod snapshot;
mod states;
mod tree;

use std::sync::Arc;
use std::time::Duration;

use super::refs::{RefStore, Reference, References};
use super::refs::{SourceStores, Spelling};
use super::{Entries, Key, Prefix, Store};
use file::{IcechunkFile, Id, max_len, unpack};
use snapshot::Snapshot;
use states::States;
use tree::{SnapshotTree, manifests, missing_file};
use zarrfs_base::error::{Result, WithSubject};

pub use names::MAIN;

/// Returns the store of a state of the repository in `own`: that of a branch, `tag:NAME`,
/// `branch:NAME`, or the ID of a snapshot. Its keys are those below `base`. `allow` adds the places
/// that virtual chunks may be in. The names of branches and tags are cached for `ttl`.
pub fn open(
    own: &Store,
    wanted: &str,
    base: Prefix,
    ttl: Duration,
    allow: impl FnOnce(&mut SourceStores),
) -> Result<Store> {
    let id = names::resolve(own, wanted)?;
    let manifests = Arc::new(manifests(own.clone()));
    let tree = Arc::new(SnapshotTree::new(read_snapshot(own, id)?, Arc::clone(&manifests)));
    let mut places = SourceStores::new(own.clone(), Spelling::Encoded);
    allow(&mut places);
    let states = States::new(own.clone(), manifests, ttl);
    Ok(RefStore::open(Repository { tree, states }, places, base))
}

fn read_snapshot(own: &Store, id: Id) -> Result<Snapshot> {
    let key = Key::parse(&format!("snapshots/{id}"))?;
    let value = own.get(&key, max_len())?.ok_or_else(|| missing_file(&key))?;
    Snapshot::parse(unpack(&value.bytes, IcechunkFile::Snapshot).at(&key)?, id).at(&key)
}

/// A state of a repository, and all states below the private prefix of zarrfs.
#[derive(Debug)]
struct Repository {
    tree: Arc<SnapshotTree>,
    states: States,
}

impl References for Repository {
    fn find(&self, keys: &[Key]) -> Result<Vec<Option<Reference>>> {
        if !keys.iter().any(|key| States::below(key.as_str()).is_some()) {
            let keys: Vec<&str> = keys.iter().map(Key::as_str).collect();
            return self.tree.find(&keys);
        }
        let find = |key: &Key| match States::below(key.as_str()) {
            Some(below) => self.states.find(below),
            None => Ok(self.tree.find(&[key.as_str()])?.pop().flatten()),
        };
        keys.iter().map(|key| find(key).at(key)).collect()
    }

    fn known(&self, keys: &[Key]) -> Vec<Option<Reference>> {
        let known = |key: &Key| match States::below(key.as_str()) {
            Some(_) => None,
            None => self.tree.known(key.as_str()),
        };
        keys.iter().map(known).collect()
    }

    fn list_dir(self: Arc<Self>, prefix: &Prefix) -> Result<Entries> {
        let path = prefix.as_str().strip_suffix('/').unwrap_or_default();
        let entries = match States::below(path) {
            Some(below) => self.states.list(below)?,
            None => self.tree.list(path)?,
        };
        Ok(Box::new(entries.into_iter().map(Ok)))
    }

    fn has_states(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
