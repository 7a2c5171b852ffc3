//! What a format is told of a node.

use std::sync::Arc;

use super::{Elements, GetChunk, Items, Layout};
use crate::array::{Array, Coords, region};
use crate::buffer::reserve;
use crate::codec::vlen_items;
use crate::dtype::DType;
use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Content, Hierarchy, Node};
use crate::metadata::model::Object;
use crate::metadata::{NodeKind, NodePath};

/// The most bytes of the values of one array that a header is made of.
const MAX_VALUES_LEN: u64 = 16 << 20;

/// The most texts of one array that a header is made of.
const MAX_TEXTS: u64 = 1 << 20;

/// A node, and what a format may ask about it.
#[derive(Clone)]
pub struct Source<'s> {
    node: Arc<Node>,
    hierarchy: &'s Hierarchy,
    get: &'s GetChunk<'s>,
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("path", self.node.path()).finish_non_exhaustive()
    }
}

impl<'s> Source<'s> {
    /// The node at `path`, whose chunks `get` gets.
    pub fn new(hierarchy: &'s Hierarchy, path: &NodePath, get: &'s GetChunk<'s>) -> Result<Self> {
        let node = hierarchy.existing(path)?;
        if node.is_bare() {
            return Err(Error::not_found());
        }
        if let Content::NotUnderstood(_, error) = node.content() {
            return Err(Error::unsupported(format!("its metadata are not understood: {error}")));
        }
        Ok(Self { node, hierarchy, get })
    }

    /// Where in the hierarchy it is.
    pub fn path(&self) -> &NodePath {
        self.node.path()
    }

    /// Its name; `root` of the root.
    pub fn name(&self) -> &str {
        self.path().name().unwrap_or("root")
    }

    /// The name of the file of its elements alone, which lies beside those of other formats.
    pub fn raw_name(&self) -> String {
        format!("{}.raw", self.path().name().unwrap_or("__root__"))
    }

    /// Whether it is an array or a group.
    pub fn kind(&self) -> NodeKind {
        self.node.kind()
    }

    /// The array that it is.
    pub fn array(&self) -> Result<&Arc<Array>> {
        self.node.array().ok_or_else(|| Error::unsupported("not an array"))
    }

    /// Its attributes.
    pub fn attributes(&self) -> &Object {
        static NONE: std::sync::OnceLock<Object> = std::sync::OnceLock::new();
        match self.node.content() {
            Content::Array(array) => &array.model().attributes,
            Content::Group(group) => &group.attributes,
            Content::NotUnderstood(..) => NONE.get_or_init(Object::new),
        }
    }

    /// The nodes directly below a group that are understood, by name, and how many are not.
    pub fn children(&self) -> Result<(Vec<Self>, usize)> {
        let all = self.hierarchy.children(self.path())?;
        let count = all.len();
        let understood = |node: &Arc<Node>| {
            !node.is_bare() && !matches!(node.content(), Content::NotUnderstood(..))
        };
        let mut children: Vec<Self> = all
            .into_iter()
            .filter(understood)
            .map(|node| Self { node, hierarchy: self.hierarchy, get: self.get })
            .collect();
        children.sort_by(|one, other| one.path().cmp(other.path()));
        let others = count.saturating_sub(children.len());
        Ok((children, others))
    }

    /// The node at `path` in the same hierarchy.
    pub fn other(&self, path: &NodePath) -> Result<Self> {
        Self::new(self.hierarchy, path, self.get)
    }

    /// The groups that it is in, the innermost first.
    pub fn above(&self) -> impl Iterator<Item = Self> {
        let paths = self.path().ancestors().into_iter().rev();
        // One that is not understood says nothing about what is in it.
        paths.filter_map(|path| self.other(&path).ok())
    }

    /// The elements of the array that it is, as a part of a file.
    pub fn elements(&self, layout: Layout, items: Items) -> Result<Elements> {
        Elements::new(self.path(), self.array()?, layout, items)
    }

    /// All elements of the array that it is, little endian and in C order, where they are few enough to be part of a header.
    pub fn values(&self) -> Result<Vec<u8>> {
        let elements = self.elements(Layout::Linear, Items::default())?;
        let len = elements.len();
        if len > MAX_VALUES_LEN {
            return Err(Error::unsupported(format!(
                "{} has {len} bytes of values, and a header is made of up to {MAX_VALUES_LEN}",
                self.path()
            )));
        }
        let len = usize::try_from(len).map_err(|_| Error::new(Kind::NoMemory, "no memory"))?;
        let mut bytes = reserve(len)?;
        bytes.resize(len, 0);
        elements.read(0, &mut bytes, self.get)?;
        Ok(bytes)
    }

    /// All elements of an array of texts, in C order and in UTF-8, where they are few; bytes where it is one of bytes.
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
            Error::unsupported(format!("it has more than {MAX_TEXTS} texts, too many for a header"))
        })?;
        let mut texts = vec![model.fill.item(&model.dtype).into_owned(); count];
        let counts = array.grid().counts();
        let mut at = vec![0; counts.len()];
        let mut len = 0_u64;
        loop {
            if count > 0 {
                len = len.saturating_add(self.put_texts(&Coords::new(at.clone()), &mut texts)?);
            }
            if len > MAX_VALUES_LEN {
                let detail = format!("its texts have more than {MAX_VALUES_LEN} bytes");
                return Err(Error::unsupported(detail));
            }
            if count == 0 || !region::step(&mut at, counts) {
                return Ok(texts);
            }
        }
    }

    /// Puts the elements of a chunk where they are in the array.
    fn put_texts(&self, coords: &Coords, texts: &mut [Vec<u8>]) -> Result<u64> {
        let array = self.array()?;
        let elements = Elements::of_chunks(self.path(), array);
        let Some(chunk) = (self.get)(&elements, coords, &(0..usize::MAX))? else { return Ok(0) };
        let spans = array.grid().spans(coords)?;
        let shape: Vec<u64> = spans.iter().map(|(_, len)| *len).collect();
        let count = shape.iter().try_fold(1, |all: u64, len| all.checked_mul(*len));
        let count = count.and_then(|count| usize::try_from(count).ok());
        let items =
            vlen_items(&chunk.bytes, count.ok_or_else(|| Error::too_large("a chunk of texts"))?)?;
        let mut at = vec![0; shape.len()];
        for item in items {
            let mut index = Some(0_u64);
            for (((start, _), within), len) in spans.iter().zip(&at).zip(&array.model().shape) {
                let place = start.saturating_add(*within);
                index = index
                    .filter(|_| place < *len)
                    .map(|index| index.saturating_mul(*len).saturating_add(place));
            }
            let target = index.and_then(|index| texts.get_mut(usize::try_from(index).ok()?));
            if let Some(target) = target {
                *target = item.to_vec();
            }
            region::step(&mut at, &shape);
        }
        Ok(u64::try_from(chunk.bytes.len()).unwrap_or(u64::MAX))
    }
}

/// Code points of four bytes as UTF-8, without the NUL behind them; what is none is replaced.
fn utf8(item: &[u8]) -> Vec<u8> {
    let points = item.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    let text: String =
        points.map(|point| char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.trim_end_matches('\0').as_bytes().to_vec()
}
