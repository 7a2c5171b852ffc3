//! The properties of a node that a format may use.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::elements::{ElementRange, GetChunk};
use super::layout::{Layout, NumberForm};
use super::texts::put_chunk;
use crate::array::{Array, Coords, region};
use crate::buffer::reserve;
use crate::dtype::DType;
use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Content, Hierarchy, Node, Visited};
use crate::json::Object;
use crate::metadata::{NodeKind, NodePath};
use crate::resources;
use crate::width::ToU64;

/// The most bytes of values that a header can have of one array.
const MAX_VALUES_LEN: u64 = 16 << 20;

/// The most memory for the nodes of one file.
const MAX_NODES_LEN: u64 = 512 << 20;

/// The most chunks of one array that are read for a header.
const MAX_CHUNKS: u64 = 1 << 16;

/// The most strings that a header can have of one array.
const MAX_TEXTS: u64 = 1 << 20;

/// The name of the root group in the names of its files, without the extension.
pub const ROOT_NAME: &str = "__root__";

/// A node, with its properties for a format.
#[derive(Clone)]
pub struct ViewSource<'s> {
    node: Arc<Node>,
    hierarchy: &'s Hierarchy,
    get: &'s GetChunk<'s>,
    /// The nodes that were read for one file.
    taken: Rc<NodesTaken>,
}

/// The nodes of a file, and their size in memory.
#[derive(Debug, Default)]
struct NodesTaken {
    count: Cell<usize>,
    /// The most nodes to read; `None` for no limit.
    most: Option<usize>,
    len: Cell<u64>,
    visited: RefCell<Visited>,
}

impl NodesTaken {
    /// Counts a node. Fails if the file has too many.
    fn take(&self, node: &Node) -> Result<()> {
        self.count.set(self.count.get().saturating_add(1));
        if self.most.is_some_and(|most| self.count.get() > most) {
            return Err(Error::new(Kind::Busy, "it has many nodes, and they were not read"));
        }
        let len = node.memory_len().to_u64();
        self.len.set(self.len.get().saturating_add(len));
        let limit = MAX_NODES_LEN.min(resources::memory_limit() / 8);
        if self.len.get() > limit {
            return Err(Error::unsupported(format!(
                "the metadata of the nodes in it take more than {limit} bytes of memory"
            )));
        }
        self.visited.borrow_mut().visit(node).map_err(|error| error.of_kind(Kind::Unsupported))
    }
}

/// The nodes directly below a group.
#[derive(Debug, Default)]
pub struct Children<'s> {
    /// The nodes that can be read, by name.
    pub nodes: Vec<ViewSource<'s>>,
    /// The names of the other nodes, with the reasons.
    pub left_out: Vec<(String, Error)>,
}

/// Whether a node that fails with this error fails until its metadata file changes; then its group
/// is shown without it. After any other error the next attempt may succeed, and a file without the
/// node would be wrong.
fn is_lasting(error: &Error) -> bool {
    match error.kind() {
        Kind::Corrupt
        | Kind::Unsupported
        | Kind::TooLarge
        | Kind::Invalid
        | Kind::NotPermitted
        | Kind::IsDirectory
        | Kind::NotDirectory => true,
        Kind::Os(errno) => {
            matches!(errno, libc::EACCES | libc::EPERM | libc::ELOOP | libc::ENAMETOOLONG)
        }
        _ => false,
    }
}

impl std::fmt::Debug for ViewSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("path", self.node.path()).finish_non_exhaustive()
    }
}

impl<'s> ViewSource<'s> {
    /// Returns the node at `path`. `get` reads its chunks.
    pub fn new(hierarchy: &'s Hierarchy, path: &NodePath, get: &'s GetChunk<'s>) -> Result<Self> {
        let node = hierarchy.existing(path)?;
        if node.is_bare() {
            return Err(Error::not_found());
        }
        if let Content::NotUnderstood(_, error) = node.content() {
            return Err(Error::unsupported(format!("its metadata are not understood: {error}")));
        }
        Ok(Self { node, hierarchy, get, taken: Rc::default() })
    }

    /// Limits the nodes that may be read below this one. [`Kind::Busy`] if there are more.
    #[must_use]
    pub fn of_at_most(self, most: usize) -> Self {
        Self { taken: Rc::new(NodesTaken { most: Some(most), ..NodesTaken::default() }), ..self }
    }

    /// Returns the approximate memory of the nodes that were read for the file, in bytes.
    pub fn memory_len(&self) -> u64 {
        let own = self.node.memory_len().to_u64();
        own.saturating_add(self.taken.len.get())
    }

    /// Returns the path in the hierarchy.
    pub fn path(&self) -> &NodePath {
        self.node.path()
    }

    /// Returns the name; `root` for the root.
    pub fn name(&self) -> &str {
        self.path().name().unwrap_or("root")
    }

    /// Returns the name of the file with only the elements, which is beside those of other formats.
    pub fn raw_name(&self) -> String {
        format!("{}.raw", self.path().name().unwrap_or(ROOT_NAME))
    }

    /// Returns whether the node is an array or a group.
    pub fn kind(&self) -> NodeKind {
        self.node.kind()
    }

    /// Returns the array. Fails for a group.
    pub fn array(&self) -> Result<&Arc<Array>> {
        self.node.array().ok_or_else(|| Error::unsupported("not an array"))
    }

    /// Returns the attributes.
    pub fn attributes(&self) -> &Object {
        static NONE: std::sync::OnceLock<Object> = std::sync::OnceLock::new();
        match self.node.content() {
            Content::Array(array) => &array.model().attributes,
            Content::Group(group) => &group.attributes,
            Content::NotUnderstood(..) => NONE.get_or_init(Object::new),
        }
    }

    /// Returns the nodes directly below a group.
    pub fn children(&self) -> Result<Children<'s>> {
        let mut found = Children::default();
        for name in self.hierarchy.child_names(self.path())? {
            let node = self.path().child(&name).and_then(|path| self.hierarchy.child_node(&path));
            let node = match node {
                // One that may not be searched can be any node.
                Ok(Some(node)) if !node.is_bare() || node.is_closed() => node,
                Ok(_) => continue,
                Err(error) if is_lasting(&error) => {
                    found.left_out.push((name, error));
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.taken.take(&node)?;
            if let Content::NotUnderstood(_, error) = node.content() {
                found.left_out.push((name, error.clone()));
                continue;
            }
            let (hierarchy, get, taken) = (self.hierarchy, self.get, Rc::clone(&self.taken));
            found.nodes.push(Self { node, hierarchy, get, taken });
        }
        for (name, omission) in self.hierarchy.store().omissions().below(self.path().as_str()) {
            if !name.contains('/') {
                let name = if name.is_empty() { "other nodes".to_owned() } else { name };
                found.left_out.push((name, Error::unsupported(omission.why)));
            }
        }
        Ok(found)
    }

    /// Returns the node at `path` in the same hierarchy.
    pub fn other(&self, path: &NodePath) -> Result<Self> {
        let other = Self::new(self.hierarchy, path, self.get)?;
        Ok(Self { taken: Rc::clone(&self.taken), ..other })
    }

    /// Returns the array with the coordinates of a dimension: that of its name in the group of the
    /// array, or in one above.
    pub fn coordinates(&self, name: &str, len: u64) -> Result<Option<Self>> {
        let groups = std::iter::successors(self.path().parent(), NodePath::parent);
        for group in groups {
            let Ok(path) = group.child(name) else { return Ok(None) };
            let other = match self.other(&path) {
                Err(error) if error.kind() == Kind::NotFound => continue,
                other => other?,
            };
            let is_coordinate = other.kind() == NodeKind::Array
                && other.array().is_ok_and(|array| array.model().shape.as_slice() == [len]);
            if is_coordinate {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    /// Returns the name of the coordinate system to show, if images have it.
    pub fn coordinate_system(&self) -> Option<&'s str> {
        self.hierarchy.options().coordinate_system.as_deref()
    }

    /// Returns the readable groups above the node, the innermost first.
    pub fn above(&self) -> impl Iterator<Item = Self> {
        let paths = self.path().ancestors().into_iter().rev();
        // A group that cannot be read says nothing about its members.
        paths.filter_map(|path| self.other(&path).ok())
    }

    /// Returns what reads chunks.
    pub fn get_chunk(&self) -> &'s GetChunk<'s> {
        self.get
    }

    /// Returns the elements of the array as a part of a file.
    pub fn elements(&self, layout: Layout, items: NumberForm) -> Result<ElementRange> {
        ElementRange::new(self.path(), self.array()?, layout, items)
    }

    /// Returns all elements of the array, little endian and in C order. Fails if they are too many
    /// for a header.
    pub fn values(&self) -> Result<Vec<u8>> {
        let elements = self.elements(Layout::Linear, NumberForm::default())?;
        let len = elements.len();
        if len > MAX_VALUES_LEN {
            return Err(Error::unsupported(format!(
                "{} has {len} bytes of values, the limit for a header is {MAX_VALUES_LEN}",
                self.path()
            )));
        }
        check_chunk_count(self.array()?.grid().counts())?;
        let len = usize::try_from(len).map_err(|_| Error::new(Kind::NoMemory, "no memory"))?;
        let mut bytes = reserve(len)?;
        bytes.resize(len, 0);
        elements.read(0, &mut bytes, self.get)?;
        Ok(bytes)
    }

    /// Returns all elements of an array of strings, in C order and in UTF-8, or the bytes of an
    /// array of bytes. Fails if they are too many for a header.
    pub fn texts(&self) -> Result<Vec<Vec<u8>>> {
        let array = self.array()?;
        let model = array.model();
        if let DType::Utf32(_) = model.dtype {
            let values = self.values()?;
            let items = values.chunks_exact(model.dtype.item_len().max(4));
            return Ok(items.map(utf8).collect());
        }
        if let Some(error) = array.not_understood() {
            return Err(Error::unsupported(format!("the array cannot be decoded: {error}")));
        }
        let count = model.shape.iter().try_fold(1, |all: u64, len| all.checked_mul(*len));
        let count = count.filter(|count| *count <= MAX_TEXTS).and_then(|n| usize::try_from(n).ok());
        let count = count.ok_or_else(|| {
            Error::unsupported(format!(
                "it has more than {MAX_TEXTS} strings, too many for a \
                 header"
            ))
        })?;
        let counts = array.grid().counts();
        check_chunk_count(counts)?;
        let mut texts = Vec::new();
        texts.try_reserve_exact(count).map_err(|_| Error::new(Kind::NoMemory, "no memory"))?;
        texts.resize(count, None);
        let elements = ElementRange::of_chunks(self.path(), array);
        let mut at = vec![0; counts.len()];
        let mut len = 0_u64;
        loop {
            if count > 0 {
                let coords = Coords::new(at.clone());
                len = len.saturating_add(put_chunk(&elements, &coords, 0, &mut texts, self.get)?);
            }
            check_texts_len(Some(len))?;
            if count == 0 || !region::step(&mut at, counts) {
                break;
            }
        }
        // Check before allocating: the fill value may be long although few chunks are stored.
        let fill = model.fill.item(&model.dtype);
        let missing = texts.iter().filter(|text| text.is_none()).count();
        let of_fill = missing.checked_mul(fill.len()).and_then(|len| u64::try_from(len).ok());
        check_texts_len(of_fill.and_then(|of_fill| of_fill.checked_add(len)))?;
        Ok(texts.into_iter().map(|text| text.unwrap_or_else(|| fill.to_vec())).collect())
    }
}

/// Fails if strings are too long for a header. `None` is a length that overflows.
fn check_texts_len(len: Option<u64>) -> Result<()> {
    if len.is_some_and(|len| len <= MAX_VALUES_LEN) {
        return Ok(());
    }
    Err(Error::unsupported(format!("its strings have more than {MAX_VALUES_LEN} bytes")))
}

/// Fails if there are too many chunks to read for a header.
pub(in crate::view) fn check_chunk_count(counts: &[u64]) -> Result<()> {
    let count = counts.iter().try_fold(1, |all: u64, count| all.checked_mul(*count));
    if count.is_some_and(|count| count <= MAX_CHUNKS) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "it has more than {MAX_CHUNKS} chunks, too many to read for a header"
    )))
}

/// Converts code points of four bytes to UTF-8 without the padding. Replaces invalid ones.
pub(in crate::view) fn utf8(item: &[u8]) -> Vec<u8> {
    let points = item.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    let text: String =
        points.map(|point| char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.trim_end_matches('\0').as_bytes().to_vec()
}
