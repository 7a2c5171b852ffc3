//! A snapshot: the nodes of a state of the repository.
//!
//! ```text
//! Snapshot      id | parent | nodes | time | message | metadata | ..
//! NodeSnapshot  id [8] | path | zarr.json | kind u8 | an ArrayNodeData or nothing
//! ArrayNodeData shape | names | manifests | ..
//! ManifestRef   id [12] | for each dimension: first u32, end u32
//! ```

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::file::{IcechunkFile, Id};
use super::flatbuffer::FlatTable;
use crate::Key;
use crate::refs::children;
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::limits;
use zarrfs_base::width::ToU64;

/// The fields of the tables, by their numbers in the schema.
mod field {
    pub const ID: usize = 0;
    pub const PARENT: usize = 1;
    pub const NODES: usize = 2;
    pub const TIME: usize = 3;
    pub const NODE_ID: usize = 0;
    pub const PATH: usize = 1;
    pub const DOCUMENT: usize = 2;
    pub const KIND: usize = 3;
    pub const ARRAY: usize = 4;
    pub const SHAPE: usize = 0;
    pub const MANIFESTS: usize = 2;
    pub const SHAPE_2: usize = 3;
    pub const MANIFEST_ID: usize = 0;
    pub const EXTENTS: usize = 1;
}

/// The most nodes of a snapshot, which take 160 MiB.
const MAX_NODES: usize = 1 << 22;

/// The most manifests of an array.
const MAX_MANIFESTS: usize = 1 << 20;

/// The number of the kind of a node that is an array.
const ARRAY: u8 = 1;

/// The ID of a node, which it keeps when it moves.
pub(super) type NodeId = [u8; 8];

/// A snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    buffer: Bytes,
    /// The nodes, by their paths.
    nodes: Vec<SnapshotNode>,
    /// When it was made.
    pub time: SystemTime,
    /// The one before it, if the file says so.
    pub parent: Option<Id>,
}

/// A node. Its path is a part of the buffer.
#[derive(Debug)]
struct SnapshotNode {
    path: Bytes,
    position: usize,
}

/// A manifest of an array, with the chunks in it.
#[derive(Debug, Clone)]
pub(super) struct ManifestOfArray {
    /// The manifest.
    pub id: Id,
    /// For each dimension the first chunk and the end. Empty if it may have any chunk.
    extents: Box<[(u32, u32)]>,
}

impl ManifestOfArray {
    /// Whether a chunk with these first indices may be in the manifest.
    pub fn may_have(&self, first: &[u32]) -> bool {
        let inside = |(extent, index): (&(u32, u32), &u32)| (extent.0..extent.1).contains(index);
        self.extents.iter().zip(first).all(inside)
    }
}

impl Snapshot {
    /// Parses the flatbuffer of the snapshot `id`.
    pub fn parse(buffer: Bytes, id: Id) -> Result<Self> {
        let (nodes, time, parent) = {
            let root = FlatTable::root(&buffer)?;
            let tables = root.tables(field::NODES)?;
            if tables.count() > MAX_NODES {
                return Err(Error::too_large(format!("a snapshot of more than {MAX_NODES} nodes")));
            }
            let mut nodes = Vec::with_capacity(tables.count());
            // Many nodes may have one path, which would take long to read again and again.
            let mut left = buffer.len();
            for index in 0..tables.count() {
                let table = tables.table(index)?;
                let path = table.text(field::PATH)?.unwrap_or_default();
                left = left.checked_sub(path.len()).ok_or_else(|| invalid(path))?;
                let below = path.strip_prefix('/').ok_or_else(|| invalid(path))?;
                if !below.is_empty() {
                    Key::parse(below).map_err(|_| invalid(path))?;
                }
                let path = buffer.slice_ref(below.as_bytes());
                nodes.push(SnapshotNode { path, position: table.position() });
            }
            id.expect(root.bytes(field::ID)?.map(Id), IcechunkFile::Snapshot)?;
            let time = Duration::from_micros(root.u64(field::TIME)?);
            let time = SystemTime::UNIX_EPOCH.checked_add(time);
            (nodes, time.unwrap_or(SystemTime::UNIX_EPOCH), root.bytes(field::PARENT)?.map(Id))
        };
        let mut snapshot = Self { buffer, nodes, time, parent };
        // Early versions of Icechunk sorted them by components.
        snapshot.nodes.sort_by(|a, b| a.path.cmp(&b.path));
        let paths = snapshot.nodes.iter().zip(snapshot.nodes.iter().skip(1));
        if let Some((twice, _)) = paths.clone().find(|(a, b)| a.path == b.path) {
            let path = String::from_utf8_lossy(&twice.path).into_owned();
            return Err(Error::corrupt("the snapshot has two nodes of this path").at(path));
        }
        Ok(snapshot)
    }

    /// Returns its length in memory.
    pub fn len(&self) -> u64 {
        let nodes = self.nodes.len().saturating_mul(size_of::<SnapshotNode>());
        self.buffer.len().saturating_add(nodes).to_u64()
    }

    fn path(&self, index: usize) -> &str {
        let path = self.nodes.get(index).map(|node| std::str::from_utf8(&node.path));
        path.and_then(Result::ok).unwrap_or_default()
    }

    /// Whether it has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the node at a path without a slash at its start.
    fn node(&self, path: &str) -> Result<Option<FlatTable<'_>>> {
        let at = self.nodes.binary_search_by(|node| (*node.path).cmp(path.as_bytes()));
        let node = at.ok().and_then(|at| self.nodes.get(at));
        node.map(|node| FlatTable::at(&self.buffer, node.position)).transpose()
    }

    /// Returns the `zarr.json` of the node at a path.
    pub fn document(&self, path: &str) -> Result<Option<Bytes>> {
        let Some(node) = self.node(path)? else { return Ok(None) };
        let text = node.octets(field::DOCUMENT)?.unwrap_or_default();
        Ok(Some(self.buffer.slice_ref(text)))
    }

    /// Returns the array at a path.
    pub fn array(&self, path: &str) -> Result<Option<ArrayOfSnapshot>> {
        let Some(node) = self.node(path)? else { return Ok(None) };
        if node.u8(field::KIND)? != ARRAY {
            return Ok(None);
        }
        let no_id = || Error::corrupt("the node has no ID").at(path);
        let id = node.bytes(field::NODE_ID)?.ok_or_else(no_id)?;
        let Some(array) = node.table(field::ARRAY)? else { return Ok(None) };
        let tables = array.tables(field::MANIFESTS)?;
        if tables.count() > MAX_MANIFESTS {
            return Err(Error::too_large(format!("more than {MAX_MANIFESTS} manifests")).at(path));
        }
        let mut manifests = Vec::new();
        // Many may have the same extents in the file, and each takes memory.
        let mut left = self.buffer.len();
        for index in 0..tables.count() {
            let table = tables.table(index)?;
            let no_id = || Error::corrupt("a manifest has no ID").at(path);
            let manifest = table.bytes(field::MANIFEST_ID)?.map(Id).ok_or_else(no_id)?;
            let mut extents = Vec::new();
            if let Some(vector) = table.vector(field::EXTENTS, 8)? {
                check_rank(vector.count()).at(path)?;
                let repeated = || Error::corrupt("the extents of its manifests are repeated");
                left = left.checked_sub(vector.count()).ok_or_else(repeated).at(path)?;
                for dimension in 0..vector.count() {
                    let [first, end] = halves(vector.bytes(dimension)?);
                    extents.push((first, end));
                }
            }
            manifests.push(ManifestOfArray { id: manifest, extents: extents.into() });
        }
        let shape = array.vector(field::SHAPE, 16)?.map_or(0, |shape| shape.count());
        let rank = shape.max(array.tables(field::SHAPE_2)?.count());
        check_rank(rank).at(path)?;
        Ok(Some(ArrayOfSnapshot { id, rank, manifests }))
    }

    /// Returns the names of the nodes directly below a prefix, which is empty or ends with a slash.
    pub fn children(&self, prefix: &str) -> impl Iterator<Item = &str> {
        children(self.nodes.len(), |index| self.path(index), prefix).into_iter()
    }
}

/// Returns two numbers that follow each other.
fn halves(bytes: [u8; 8]) -> [u32; 2] {
    let number = u64::from_le_bytes(bytes);
    let part = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default();
    [part(number), part(number >> 32)]
}

fn check_rank(rank: usize) -> Result<()> {
    if limits::DIMENSIONS.is_exceeded_by(rank) {
        return Err(Error::too_large(format!("{rank} dimensions, {}", limits::DIMENSIONS)));
    }
    Ok(())
}

fn invalid(path: &str) -> Error {
    let start: String = path.chars().take(200).collect();
    Error::corrupt("the snapshot has a node with an invalid path").at(format!("{start:?}"))
}

/// An array of a snapshot.
#[derive(Debug)]
pub(super) struct ArrayOfSnapshot {
    /// The ID by which its chunks are found in manifests.
    pub id: NodeId,
    /// The number of its dimensions.
    pub rank: usize,
    /// The manifests with its chunks.
    pub manifests: Vec<ManifestOfArray>,
}

impl ArrayOfSnapshot {
    /// Returns its length in memory.
    pub fn len(&self) -> u64 {
        let of_one =
            |it: &ManifestOfArray| size_of_val(it).saturating_add(size_of_val(&*it.extents));
        let len = self.manifests.iter().map(of_one).fold(0, usize::saturating_add);
        len.to_u64()
    }
}
