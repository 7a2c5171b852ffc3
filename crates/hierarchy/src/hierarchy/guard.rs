//! The guard that every change passes: what the change is based on is compared with what the store
//! has now.
//!
//! A cached node may be as old as `--metadata-ttl`, and on a server so may what is known of its
//! key. That is right for readers. But a change that follows from an old node would be made to
//! whatever another program has put in its place: chunks of an array that was replaced would be
//! stored into the new one, and a directory that looked empty would be removed with what is in it
//! by now. So whatever is stored, erased, created, moved or resized begins here:
//!
//! - [`Hierarchy::array_since`] makes the only arrays that take chunks ([`Current`]).
//! - [`Hierarchy::node_since`] returns nodes for the changes of [`Changes`](super::Changes), whose
//!   functions look at no other.
//!
//! Both ask the store for the version of the metadata file, and read that again only if it is
//! another one. `since` is when the change began. An answer from then on counts, so a flush of
//! many chunks of an array on a server asks once; in a directory, where it is one `stat`, each
//! stored value has its own `since`.
//!
//! A put on the condition of a version that was read needs no guard, since the store compares by
//! itself; but what it depends on beside that (that there are no chunks, which groups above have
//! copies) does.

use std::sync::Arc;
use std::time::Instant;

use super::node::{Content, Document, Node, NodeState};
use super::node_cache::ReadAt;
use super::nodes::Hierarchy;
use crate::array::{Array, Coords, Current};
use crate::metadata::{NodeKind, NodePath};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_store::{Key, Version};

/// Returns the error for a directory at `path` that another program has turned into an array.
pub(super) fn array_made(path: &NodePath) -> Error {
    Error::new(Kind::Busy, "another program has just made an array here: look again").at(path)
}

impl Hierarchy {
    /// Returns the node at `path`, or the directory that may become one, as the store had it at
    /// `since` or later; `None` if there is nothing.
    pub fn node_since(&self, path: &NodePath, since: Instant) -> Result<Option<Arc<Node>>> {
        let kept = self.cached(path);
        if let Some(read) = kept.as_ref().filter(|read| read.is_checked_since(since)) {
            return Ok(Some(Arc::clone(&read.node)));
        }
        let now = ReadAt { at: Instant::now(), is_checked: true };
        let generation = self.generation();
        if let Some(read) = &kept
            && let NodeState::Stored(document) = &read.node.state
            && self.is_stored_since(document, since)?
        {
            self.keep(path, Some(&read.node), generation, now);
            return Ok(Some(Arc::clone(&read.node)));
        }
        if self.store().read().is_remote() {
            // After this, the store remembers nothing older of these keys.
            self.store().read().stat_since(&self.keys_of(path)?, since)?;
        }
        let node = self.reader().read(path, kept.as_ref().map(|read| &read.node))?;
        self.keep(path, node.as_ref(), generation, now);
        Ok(node)
    }

    /// Like [`Self::node_since`]; its absence is an error.
    pub fn existing_since(&self, path: &NodePath, since: Instant) -> Result<Arc<Node>> {
        self.node_since(path, since)?.ok_or_else(|| Error::not_found().at(path))
    }

    /// Returns the array at `path` as the store had it at `since` or later, for chunks that were
    /// written for `written`. Fails with `ESTALE` if that is another array: only its shape, its
    /// attributes and the names of its dimensions may have changed.
    pub fn array_since(&self, path: &NodePath, written: &Array, since: Instant) -> Result<Current> {
        self.finish_values(path)?;
        let Some(node) = self.node_since(path, since)? else {
            let detail = "another program removed the array, or gave it another name";
            return Err(Error::new(Kind::Os(libc::ESTALE), detail).at(path));
        };
        let array = match node.content() {
            Content::Array(array) => self.forms.array_in(array, written.encoded_levels()),
            Content::NotUnderstood(_, error) => return Err(error.clone()),
            Content::Group(_) => {
                let detail = "not an array any more: another program removed or replaced it";
                return Err(Error::new(Kind::Stale, detail).at(path));
            }
        };
        if array.has_chunks_of(written) {
            return Ok(Current::compared(array));
        }
        let detail = "another program replaced the array after these chunks were written";
        Err(Error::new(Kind::Stale, detail).at(path))
    }

    /// Like [`Self::array_since`], to erase a chunk that may lie outside of the array's shape.
    pub fn array_reaching(
        &self,
        path: &NodePath,
        seen: &Array,
        coords: &Coords,
        since: Instant,
    ) -> Result<Current> {
        let array = self.array_since(path, seen, since)?;
        Ok(array.reaching(coords.indices()).map_or(array, Current::compared))
    }

    /// Like [`Self::array_since`], with the shape that the array gets once its new chunks are
    /// stored. Fails with `ESTALE` if its shape is no longer that of `seen`.
    pub fn array_that_gets(
        &self,
        path: &NodePath,
        seen: &Array,
        shape: &[u64],
        since: Instant,
    ) -> Result<Current> {
        let array = self.array_since(path, seen, since)?;
        if array.model().shape != seen.model().shape {
            let detail = "another program changed its shape meanwhile";
            return Err(Error::new(Kind::Stale, detail).at(path));
        }
        if array.model().shape == shape {
            return Ok(array);
        }
        array.with_shape(shape.to_vec()).map(Current::compared)
    }

    /// Fails if another program has made an array of the directory at `path` or of one above it,
    /// which were none when they were read: a file with the name of a chunk would be one.
    pub fn check_is_no_array(&self, path: &NodePath, relative: &str) -> Result<()> {
        let since = Instant::now();
        for at in path.ancestors().iter().chain([path]) {
            let seen = self.node(at)?;
            if let Some(array) = seen.as_ref().and_then(|seen| seen.array()) {
                let below = path.relative_to(at).unwrap_or_default();
                let is_chunk = array.owns(format!("{below}/{relative}").trim_start_matches('/'));
                return if is_chunk { Err(array_made(at)) } else { Ok(()) };
            }
            let is_unchanged = match seen.as_ref().and_then(|seen| seen.stored()) {
                Some(document) => self.is_stored_since(document, since)?,
                None => self.has_no_document_since(at, since)?,
            };
            let now = if is_unchanged { None } else { self.node_since(at, since)? };
            if now.is_some_and(|now| now.kind() == NodeKind::Array && !now.is_bare()) {
                return Err(array_made(at));
            }
        }
        Ok(())
    }

    fn has_no_document_since(&self, path: &NodePath, since: Instant) -> Result<bool> {
        let keys = self.dialect_of(path).document_keys(path)?;
        let keys: Vec<Key> = keys.into_iter().map(|(_, key)| key).collect();
        Ok(self.store().read().stat_since(&keys, since)?.iter().all(Option::is_none))
    }

    /// Whether the metadata file of a node still has this version.
    fn is_stored_since(&self, document: &Document, since: Instant) -> Result<bool> {
        let now = self.store().stat_since(&document.key, since)?.map(|stat| stat.version);
        Ok(Version::holds_of(Some(document.stat.version), now))
    }

    /// Returns the keys of the metadata files that a node may have.
    fn keys_of(&self, path: &NodePath) -> Result<Vec<Key>> {
        let dialect = self.dialect_of(path);
        let documents = dialect.document_keys(path)?.into_iter().map(|(_, key)| key);
        Ok(documents.chain(dialect.attributes_key(path)?).collect())
    }
}
