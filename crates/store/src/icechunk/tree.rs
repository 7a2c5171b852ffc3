//! The keys of a snapshot: a `zarr.json` for each node, and the chunks of its arrays
//! (`t2m/c/0/3`).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::file::{self, Id, max_len, unpack};
use super::manifest::Manifest;
use super::snapshot::{ArrayOfSnapshot, Snapshot};
use crate::refs::Reference;
use crate::refs::loaded::{FileKind, LoadedFiles};
use crate::{Key, Store, StoreEntry, Value};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::resources;

/// The name of a node's metadata file.
pub(super) const DOCUMENT: &str = "zarr.json";

/// The first component of a chunk's key, below the array.
const CHUNKS: &str = "c";

/// Returns the most bytes of the manifests in memory.
fn manifests_len() -> u64 {
    resources::within_memory(256 << 20, 8)
}

/// The most bytes of the lists of manifests of arrays in memory, or one.
const ARRAYS_LEN: u64 = 64 << 20;

/// The manifests of a repository.
#[derive(Debug)]
pub(super) struct ManifestFiles;

impl FileKind for ManifestFiles {
    type Id = Id;
    type Parsed = Manifest;

    fn key(&self, id: &Id) -> Result<Key> {
        Key::parse(&format!("manifests/{id}"))
    }

    fn max_len(&self) -> u64 {
        max_len()
    }

    fn parse(&self, id: &Id, key: &Key, value: Option<Value>) -> Result<Manifest> {
        let value = value.ok_or_else(|| missing_file(key))?;
        Manifest::parse(unpack(&value.bytes, file::IcechunkFile::Manifest)?, *id)
    }

    fn len(&self, manifest: &Manifest) -> u64 {
        manifest.len()
    }
}

/// The manifests of a repository that were read.
pub(super) type Manifests = LoadedFiles<ManifestFiles>;

/// Returns the manifests of the repository in `own`.
pub(super) fn manifests(own: Store) -> Manifests {
    LoadedFiles::new(own, ManifestFiles, manifests_len())
}

/// Returns the error that a file of the repository is missing.
pub(super) fn missing_file(key: &Key) -> Error {
    let detail = "this file of the Icechunk repository is missing; it may have been removed as \
                  garbage because no branch or tag needs it";
    Error::corrupt(detail).at(key)
}

/// The value that a key names.
#[derive(Debug, PartialEq, Eq)]
enum KeyedValue<'k> {
    /// The metadata file of a node.
    Document(&'k str),
    /// A chunk of an array, or the first indices of some.
    Chunk(&'k str, Vec<u32>),
    /// Nothing.
    Other,
}

fn parse(key: &str) -> KeyedValue<'_> {
    if key == DOCUMENT {
        return KeyedValue::Document("");
    }
    if let Some(path) = key.strip_suffix(DOCUMENT).and_then(|it| it.strip_suffix('/')) {
        return KeyedValue::Document(path);
    }
    let (mut rest, mut indices) = (key, Vec::new());
    loop {
        let (above, name) = rest.rsplit_once('/').unwrap_or(("", rest));
        if name == CHUNKS {
            indices.reverse();
            return KeyedValue::Chunk(above, indices);
        }
        match name.parse::<u32>() {
            // There is one spelling of each index.
            Ok(index) if !above.is_empty() && index.to_string() == name => indices.push(index),
            _ => return KeyedValue::Other,
        }
        rest = above;
    }
}

/// A snapshot, with the manifests of its repository.
#[derive(Debug)]
pub(super) struct SnapshotTree {
    snapshot: Snapshot,
    manifests: Arc<Manifests>,
    /// Arrays by their paths, with their lists of manifests. A leaf lock.
    arrays: Mutex<Bounded<String, Arc<ArrayOfSnapshot>>>,
}

/// A chunk that is asked for.
struct WantedChunk {
    array: Arc<ArrayOfSnapshot>,
    indices: Vec<u32>,
}

impl WantedChunk {
    /// Returns the manifests that may have the chunk.
    fn manifests(&self) -> impl Iterator<Item = Id> {
        let of_chunk = self.array.manifests.iter().filter(|it| it.may_have(&self.indices));
        of_chunk.map(|manifest| manifest.id)
    }
}

impl SnapshotTree {
    /// Returns the tree of a snapshot.
    pub fn new(snapshot: Snapshot, manifests: Arc<Manifests>) -> Self {
        let arrays =
            Mutex::new(Bounded::new(MapLimits::bytes(resources::within_memory(ARRAYS_LEN, 16))));
        Self { snapshot, manifests, arrays }
    }

    /// Returns the snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn document(&self, path: &str) -> Result<Option<Reference>> {
        let Some(text) = self.snapshot.document(path)? else { return Ok(None) };
        Ok(Some(Reference::inline(text, self.snapshot.time)))
    }

    /// Returns the array at a path.
    fn array(&self, path: &str) -> Result<Option<Arc<ArrayOfSnapshot>>> {
        let path = path.to_owned();
        if let Some(array) = self.arrays.lock().get(&path) {
            return Ok(Some(Arc::clone(array)));
        }
        let Some(array) = self.snapshot.array(&path)?.map(Arc::new) else { return Ok(None) };
        let evicted = self.arrays.lock().put(path, Arc::clone(&array), array.len());
        drop(evicted);
        Ok(Some(array))
    }

    /// Returns the reference of a chunk in a manifest.
    fn chunk(&self, wanted: &WantedChunk, manifest: &Manifest) -> Result<Option<Reference>> {
        match manifest.chunks(wanted.array.id)? {
            Some(chunks) => chunks.find(&wanted.indices, self.snapshot.time),
            None => Ok(None),
        }
    }

    /// Returns the chunks that some of `keys` mean, with the indices of these.
    fn wanted(&self, keys: &[&str]) -> Result<BTreeMap<usize, WantedChunk>> {
        let mut wanted = BTreeMap::new();
        for (at, key) in keys.iter().enumerate() {
            let KeyedValue::Chunk(path, indices) = parse(key) else { continue };
            let array = self.array(path)?;
            if let Some(array) = array.filter(|array| array.rank == indices.len()) {
                wanted.insert(at, WantedChunk { array, indices });
            }
        }
        Ok(wanted)
    }

    /// Returns the reference of each key.
    pub fn find(&self, keys: &[&str]) -> Result<Vec<Option<Reference>>> {
        let wanted = self.wanted(keys)?;
        let mut of_manifest: BTreeMap<Id, Vec<usize>> = BTreeMap::new();
        for (at, wanted) in &wanted {
            wanted.manifests().for_each(|id| of_manifest.entry(id).or_default().push(*at));
        }
        let mut chunks: BTreeMap<usize, Reference> = BTreeMap::new();
        self.manifests.each(of_manifest.keys().copied(), |id, manifest| {
            for at in of_manifest.get(id).into_iter().flatten() {
                if let Some(wanted) = wanted.get(at).filter(|_| !chunks.contains_key(at)) {
                    chunks.extend(self.chunk(wanted, manifest)?.map(|found| (*at, found)));
                }
            }
            Ok(())
        })?;
        let find = |(at, key): (usize, &&str)| match parse(key) {
            KeyedValue::Document(path) => self.document(path).at(key),
            KeyedValue::Chunk(..) => Ok(chunks.remove(&at)),
            KeyedValue::Other => Ok(None),
        };
        keys.iter().enumerate().map(find).collect()
    }

    /// Returns the references of the keys that are in memory.
    pub fn known(&self, key: &str) -> Option<Reference> {
        // An error is reported when the value is read.
        match parse(key) {
            KeyedValue::Document(path) => self.document(path).ok()?,
            KeyedValue::Chunk(..) => {
                let chunk = self.wanted(&[key]).ok()?.remove(&0)?;
                let mut known = chunk.manifests().filter_map(|id| self.manifests.known(&id));
                known.find_map(|manifest| self.chunk(&chunk, &manifest).ok()?)
            }
            KeyedValue::Other => None,
        }
    }

    /// Lists the entries directly below a path; none if there is nothing.
    pub fn list(&self, path: &str) -> Result<Vec<StoreEntry>> {
        if let KeyedValue::Chunk(above, first) = parse(path)
            && let Some(array) = self.array(above)?
        {
            return self.chunks_below(&array, &first);
        }
        let mut entries = Vec::new();
        if self.snapshot.document(path)?.is_some() {
            entries.push(StoreEntry::Key(DOCUMENT.to_owned()));
        }
        if let Some(array) = self.array(path)? {
            if array.rank > 0 {
                let any = !array.manifests.is_empty();
                entries.extend(any.then(|| StoreEntry::Prefix(CHUNKS.to_owned())));
            } else {
                let chunk = if path.is_empty() { CHUNKS } else { &format!("{path}/{CHUNKS}") };
                let found = self.find(&[chunk])?.pop().flatten();
                entries.extend(found.map(|_| StoreEntry::Key(CHUNKS.to_owned())));
            }
            return Ok(entries);
        }
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let children = self.snapshot.children(&prefix);
        entries.extend(children.map(|name| StoreEntry::Prefix(name.to_owned())));
        Ok(entries)
    }

    /// Lists the next indices of chunks that begin with `first`.
    fn chunks_below(&self, array: &ArrayOfSnapshot, first: &[u32]) -> Result<Vec<StoreEntry>> {
        if first.len() >= array.rank {
            return Ok(Vec::new());
        }
        let of_prefix = array.manifests.iter().filter(|manifest| manifest.may_have(first));
        let mut found = BTreeMap::new();
        self.manifests.each(of_prefix.map(|manifest| manifest.id), |_, manifest| {
            if let Some(chunks) = manifest.chunks(array.id)? {
                found.extend(chunks.next_indices(first)?);
            }
            Ok(())
        })?;
        let is_last = first.len().saturating_add(1) == array.rank;
        // A chunk with more or fewer indices than the array has dimensions is none.
        let found = found.into_iter().filter(|(_, ends_here)| *ends_here == is_last);
        let entry = |(index, _): (u32, bool)| {
            if is_last {
                StoreEntry::Key(index.to_string())
            } else {
                StoreEntry::Prefix(index.to_string())
            }
        };
        Ok(found.map(entry).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Condition;
    use crate::counting::CountingStore;

    #[test]
    fn manifests_are_read_a_few_at_a_time() {
        let mut file = "ICE🧊CHUNK".as_bytes().to_vec();
        file.resize(36, b' ');
        // Version, kind and compression; the position of the root, its vtable with one field, and
        // how far before the root that is. The field, the ID of the manifest, follows.
        file.extend([2, 2, 0, 12, 0, 0, 0, 6, 0, 16, 0, 4, 0, 0, 0, 8, 0, 0, 0]);
        let (own, counting) = CountingStore::new();
        let ids: Vec<Id> = (0..40).map(|number| Id([number; 12])).collect();
        for id in &ids {
            let key = Key::parse(&format!("manifests/{id}")).expect("valid");
            let pieces = [bytes::Bytes::from([&file[..], &id.0].concat()).into()];
            own.write().expect("writable").set(&key, &pieces, Condition::Always).expect("set");
        }
        let manifests = manifests(own);
        counting.take();
        for gets in [2, 0] {
            let mut visited = Vec::new();
            let visit = |id: &Id, _: &Manifest| {
                visited.push(*id);
                Ok(())
            };
            manifests.each(ids.iter().copied().rev(), visit).expect("read");
            assert_eq!((visited, counting.take().gets), (ids.clone(), gets));
        }
    }

    #[test]
    fn a_key_means_a_metadata_file_or_a_chunk() {
        assert_eq!(parse("zarr.json"), KeyedValue::Document(""));
        assert_eq!(parse("a/b/zarr.json"), KeyedValue::Document("a/b"));
        assert_eq!(parse("c"), KeyedValue::Chunk("", vec![]));
        assert_eq!(parse("a/c/0/12"), KeyedValue::Chunk("a", vec![0, 12]));
        assert_eq!(parse("a/c/c/7"), KeyedValue::Chunk("a/c", vec![7]));
        for other in [
            "a",
            "a/0",
            "a/c/01",
            "a/c/+1",
            "a/c/-1",
            "a/c/4294967296",
            "a/zarr.jsonx",
            "xzarr.json",
        ] {
            assert_eq!(parse(other), KeyedValue::Other, "{other}");
        }
    }
}
