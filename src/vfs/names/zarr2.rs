//! The tree with Zarr 2 names: `.zarray`, `.zgroup`, `.zattrs` and `.zmetadata` in place of
//! `zarr.json`, and chunks named `0.0`.
//!
//! A name of Zarr 2 leads to the same place as the name of Zarr 3 with the same meaning, so that
//! reading, writing, removing and moving know one tree. Attributes and consolidated metadata, which
//! Zarr 3 has in `zarr.json`, are places of their own; writing to them edits `zarr.json`.
//!
//! `Places::find` translates a name of Zarr 2 to the directory and name in the tree of Zarr 3,
//! and listings translate names back. The two extra places are `Place::Attributes` and
//! `Place::Copies`. `metadata::zarr2::to_v3` converts what a program writes to a metadata file
//! of Zarr 3. The difference to the one that the mount shows is then an edit like any other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::overlay::Overlay;
use super::removed_chunks::RemovedChunks;
use super::tree::Tree;
use crate::array::{Array, Coords, parse_index};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Bounds, Content, Node, Sources, Text, TextCache, TextPurpose, check_len};
use crate::json;
use crate::metadata::shown::CopyTexts;
use crate::metadata::zarr2::{ArrayExtras, Documents};
use crate::metadata::{DIMENSIONS, Dialect, NodeKind, NodePath, zarr2};
use crate::vfs::authors::Processes;
use crate::vfs::core::Core;
use crate::vfs::inodes::chunk_names::ChunkName;
use crate::vfs::inodes::place::{
    CHUNKS, DOCUMENT, DirEntries, Place, ZARRAY, ZATTRS, ZGROUP, ZMETADATA,
};
use crate::vfs::options::Presentation;

/// The member of a metadata file with the compressor.
const COMPRESSOR: &str = "compressor";

/// The tree as Zarr 2 names it, and what programs wrote that a store of another dialect lacks.
pub(in crate::vfs) struct Zarr2 {
    core: Arc<Core>,
    overlay: Arc<Overlay>,
    /// Files that a program removed, but that would be shown again: attributes of a removed node,
    /// and consolidated metadata. A leaf lock.
    pub removed_files: Mutex<HashSet<Place>>,
    /// Attributes that were written before the metadata file of their node. A leaf lock.
    pub early_attributes: Mutex<HashMap<NodePath, String>>,
    /// How programs spelled the metadata of arrays that read back otherwise. A leaf lock.
    spelled: Mutex<HashMap<NodePath, Spelled>>,
    /// Groups whose consolidated metadata were written before their metadata file. A leaf lock.
    pub wants_copies: Mutex<HashSet<NodePath>>,
    removed_chunks: Arc<RemovedChunks>,
    /// The consolidated metadata that are shown.
    copies: TextCache,
}

/// Members of a metadata file that most dialects cannot express as they were written.
#[derive(Debug, Default)]
struct Spelled {
    /// Whether there is no fill value.
    lacks_fill: bool,
    /// Whether it has no dimensions, and its attributes do not say so.
    lacks_names: bool,
    /// The programs that made it, if it was made in this mount.
    makers: Option<Processes>,
    /// The compressor as it was written, and as it reads back: blosc may choose a shuffle.
    compressor: Option<(Value, Value)>,
}

impl Zarr2 {
    /// Returns the presentation of the hierarchy that `tree` shows.
    pub fn new(tree: &Tree) -> Self {
        let (core, overlay) = (Arc::clone(&tree.core), Arc::clone(&tree.overlay));
        let removed_chunks = Arc::clone(&tree.removed_chunks);
        Self {
            core,
            overlay,
            removed_files: Mutex::default(),
            early_attributes: Mutex::default(),
            spelled: Mutex::default(),
            wants_copies: Mutex::default(),
            removed_chunks,
            copies: TextCache::default(),
        }
    }

    /// Forgets what was written beside a node that is gone.
    pub fn forget(&self, path: &NodePath) {
        self.removed_files.lock().retain(|place| place.node() != Some(path));
        self.early_attributes.lock().remove(path);
        drop(self.spelled.lock().remove(path));
    }

    /// Returns where `name` in the directory of a node leads, unless it is a chunk.
    pub fn translate(node: &Node, name: &str) -> ChunkName {
        let path = node.path();
        let document = || ChunkName::As(Place::Node(path.clone()), DOCUMENT.to_owned());
        match name {
            ZARRAY | ZGROUP if node.is_bare() => document(),
            ZARRAY | ZGROUP if zarr2::kind_of(name) == Some(node.kind()) => document(),
            DOCUMENT | ZARRAY | ZGROUP => ChunkName::Nothing,
            ZATTRS => ChunkName::Beside(Place::Attributes(path.clone())),
            ZMETADATA => ChunkName::Beside(Place::Copies(path.clone())),
            _ => ChunkName::Same,
        }
    }

    /// Returns the place of a chunk that is not stored, or of its directory, if the metadata shown
    /// give no fill value: it can be opened by name, but is not listed.
    pub fn unlisted_chunk(&self, directory: &Place, name: &str) -> Result<Option<Place>> {
        let (path, indices) = match directory {
            Place::Node(path) if name == CHUNKS => (path, Vec::new()),
            Place::ChunkDir(path, prefix) => match parse_index(name) {
                Some(index) => (path, [&prefix[..], &[index]].concat()),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let Some(node) = self.core.hierarchy.node(path)? else { return Ok(None) };
        let Some(array) = self.core.hierarchy.forms.shown_array_of(&node) else { return Ok(None) };
        let grid = array.grid();
        // `rm -r` has listed the chunks, and may have removed the metadata file first.
        let is_found = match self.missing(path, &array) {
            Some(fill) => !node.is_bare() || is_another(&fill, &array),
            None => false,
        };
        if !is_found {
            return Ok(None);
        }
        Ok(if indices.len() == grid.rank() {
            let coords = Coords::new(indices);
            let is_there = grid.contains(&coords) && !self.removed_chunks.is_hidden(path, &coords);
            is_there.then(|| Place::Chunk(path.clone(), coords))
        } else {
            grid.contains_prefix(&indices).then(|| Place::ChunkDir(path.clone(), indices))
        })
    }

    /// Whether chunks that are not stored are also listed: without them, a copy would have another
    /// value in their place.
    pub fn lists_fill(&self, path: &NodePath, array: &Array) -> bool {
        self.other_fill(path, array).is_some()
    }

    /// Returns the elements that programs take a missing chunk for, if the array has others. A fill
    /// value of null is zero to them.
    pub fn other_fill(&self, path: &NodePath, array: &Array) -> Option<Vec<u8>> {
        // Without a metadata file, the chunks that are left are files like others.
        let is_there = || {
            let node = self.core.hierarchy.node(path);
            node.is_ok_and(|node| node.is_some_and(|node| !node.is_bare()))
        };
        self.missing(path, array).filter(|fill| is_another(fill, array) && is_there())
    }

    /// Whether chunks that are not stored can be opened.
    pub fn shows_fill(&self, path: &NodePath, array: &Array) -> bool {
        self.missing(path, array).is_some()
    }

    /// Returns the elements that programs take a missing chunk for, if such chunks can be opened.
    fn missing(&self, path: &NodePath, array: &Array) -> Option<Vec<u8>> {
        if self.core.form_of(path) == Presentation::Zarr3 {
            return None;
        }
        let node = self.core.hierarchy.node(path).ok()??;
        let context = self.extras_of(&node);
        let is_bare = node.is_bare() && node.removed().is_none();
        if is_bare || context.is_null && self.is_being_made(path) {
            return None;
        }
        if array.not_understood().is_some() || !array.can_fill() {
            return None;
        }
        let chunks = self.core.hierarchy.shown().chunks_of(&node, array);
        zarr2::array(array.model(), &chunks, context).ok()?.missing
    }

    /// Whether the program that made an array whose fill value is null, or is shown as null, still
    /// runs. It may be creating the chunks, as `cp -r` and `unzip` do: a name that it has not yet
    /// created must not exist.
    fn is_being_made(&self, path: &NodePath) -> bool {
        let makers = self.spelled.lock().get(path).and_then(|it| it.makers.clone());
        makers.is_some_and(|makers| makers.may_live())
    }

    /// Returns `place` if its attributes or consolidated metadata exist.
    pub fn beside(&self, place: Place) -> Result<Option<Place>> {
        let name = place.name().unwrap_or_default();
        if self.overlay.get(&place.parent(), &name).is_some() {
            return Ok(Some(place));
        }
        let Some(path) = place.node() else { return Ok(None) };
        let Some(node) = self.core.hierarchy.node(path)? else { return Ok(None) };
        let is_there = match &place {
            Place::Attributes(path)
                if node.is_bare() && self.early_attributes.lock().contains_key(path) =>
            {
                true
            }
            _ if node.removed().is_some() && self.removed_files.lock().contains(&place) => false,
            Place::Attributes(_) if node.is_bare() && node.removed().is_none() => false,
            Place::Attributes(_) => self.has_attributes(&node)?,
            // Every group has them by name, so that libraries need not read each metadata file.
            Place::Copies(_) => {
                let is_node = !node.is_bare() || node.removed().is_some();
                let is_removed = self.removed_files.lock().contains(&place);
                is_node
                    && matches!(node.content(), Content::Group(_))
                    && (!is_removed || self.core.hierarchy.copies().shows_consolidated(&node)?)
            }
            _ => false,
        };
        Ok(is_there.then_some(place))
    }

    /// Translates the names of a node's directory to Zarr 2, except those of chunks.
    pub fn names_of_zarr2(&self, path: &NodePath, names: DirEntries) -> Result<DirEntries> {
        let node = self.core.hierarchy.existing(path)?;
        let document = if node.kind() == NodeKind::Array { ZARRAY } else { ZGROUP };
        let is_bare = node.is_bare();
        let renamed = names.filter_map(move |found| match found {
            Ok((_, place @ Place::Document(_))) => Some(Ok((document.to_owned(), place))),
            // They are added one by one.
            Ok((_, Place::Attributes(_) | Place::Copies(_))) => None,
            // A Zarr 2 copy of the metadata beside `zarr.json`.
            Ok((name, Place::Ordinary(..))) if !is_bare && is_name_of_zarr2(&name) => None,
            other => Some(other),
        });
        let mut beside = Vec::new();
        for place in [Place::Attributes(path.clone()), Place::Copies(path.clone())] {
            let is_listed = match &place {
                Place::Copies(_) => {
                    path.is_root() || self.core.hierarchy.copies().shows_consolidated(&node)?
                }
                _ => true,
            };
            if let Some(found) = self.beside(place)?.filter(|_| is_listed) {
                beside.push(Ok((found.name().unwrap_or_default(), found)));
            }
        }
        Ok(Box::new(renamed.chain(beside)))
    }

    /// Returns the place of a new file `name` in a node's directory; `None` if Zarr 2 has no rule
    /// for it.
    pub fn place_for_new_of_zarr2(&self, path: &NodePath, name: &str) -> Result<Option<Place>> {
        let refused = |why: &str| Err(Error::new(Kind::NotPermitted, why.to_owned()));
        let node = self.core.hierarchy.existing(path)?;
        Ok(match name {
            DOCUMENT => {
                return refused("this mount shows Zarr 2 (--as zarr2): write .zarray or .zgroup");
            }
            ZGROUP if node.array().is_some() && !node.is_bare() => {
                return refused("the node is an array");
            }
            ZARRAY | ZGROUP => Some(Place::Document(path.clone())),
            ZATTRS => Some(Place::Attributes(path.clone())),
            ZMETADATA => Some(Place::Copies(path.clone())),
            _ => None,
        })
    }

    /// Returns the text shown at a metadata file, or an older one if only its length is wanted.
    pub fn shown_at(&self, place: &Place, wanted: TextPurpose) -> Result<Arc<str>> {
        let path = place.node().ok_or_else(Error::not_found)?;
        let node = self.core.hierarchy.existing(path)?;
        let early = || self.early_attributes.lock().get(path).cloned();
        match place {
            Place::Attributes(_) => match early().filter(|_| node.is_bare()) {
                Some(early) => Ok(early.into()),
                None if node.is_bare() && node.removed().is_none() => Err(Error::not_found()),
                None => Ok(self.attributes_of(&node)?.into()),
            },
            Place::Copies(_) => self.copies_of(path, wanted),
            _ if self.core.form_of(path) == Presentation::Zarr3 => {
                self.core.hierarchy.shown().text_of(&node, wanted)
            }
            _ => match node.content() {
                Content::NotUnderstood(..) => match self.without_attributes(&node) {
                    Some(document) => Ok(document.into()),
                    None => self.core.hierarchy.shown().text_of(&node, wanted),
                },
                Content::Group(_) | Content::Array(_) => {
                    Ok(self.documents_of(&node)?.document.into())
                }
            },
        }
    }

    /// Returns the metadata files of a node in Zarr 2.
    pub fn documents_of(&self, node: &Node) -> Result<Documents> {
        let mut documents = self.documents_as_stored(node)?;
        let spelled = self.spelled.lock().get(node.path()).and_then(|it| it.compressor.clone());
        if let Some((written, shown)) = spelled
            && compressor_of(&documents.document) == Some(shown)
        {
            let mut text = json::Text::parse(documents.document.as_bytes())?;
            text.set(&[COMPRESSOR], &written)?;
            documents.document = text.into_string();
        }
        Ok(documents)
    }

    /// Returns the metadata file beside the attributes of a node; empty if there is none.
    pub fn document_beside(&self, path: &NodePath) -> String {
        let node = self.core.hierarchy.node(path).ok().flatten();
        let documents = node.and_then(|node| self.documents_of(&node).ok());
        documents.map(|documents| documents.document).unwrap_or_default()
    }

    fn documents_as_stored(&self, node: &Node) -> Result<Documents> {
        let mut documents = match node.content() {
            Content::Group(group) => zarr2::group(group),
            Content::Array(array) => {
                let chunks = self.core.hierarchy.shown().chunks_of(node, array);
                zarr2::array(array.model(), &chunks, self.extras_of(node))?
            }
            Content::NotUnderstood(_, error) => return Err(error.clone()),
        };
        let stored = node.stored().or(node.removed());
        if let Some(stored) =
            stored.filter(|_| *self.core.hierarchy.dialect_of(node.path()) == Dialect::V2)
            && let Some(attributes) = zarr2::stored_attributes(&stored.text)
        {
            documents.attributes = attributes;
        }
        Ok(documents)
    }

    /// Returns what Zarr 2 needs besides the model of an array.
    fn extras_of(&self, node: &Node) -> ArrayExtras {
        let says_none = |text: &[u8]| {
            text.windows(DIMENSIONS.len()).any(|window| window == DIMENSIONS.as_bytes())
        };
        let lists_names = |text: &[u8]| {
            let document = json::parse_object(text).unwrap_or_default();
            document.get("dimension_names").is_some_and(Value::is_array)
        };
        // Only an array without dimensions can have a list without names.
        let is_scalar = node.array().is_some_and(|array| array.model().shape.is_empty());
        let stored = node.stored().or(node.removed());
        let (lacks_fill, lacks_names) = match self.spelled.lock().get(node.path()) {
            Some(spelled) => (spelled.lacks_fill, spelled.lacks_names),
            None => (false, false),
        };
        ArrayExtras {
            is_null: lacks_fill,
            names_none: match self.core.hierarchy.dialect_of(node.path()) {
                Dialect::V2 => stored.is_none_or(|document| says_none(&document.text)),
                Dialect::V3 => is_scalar && stored.is_none_or(|it| lists_names(&it.text)),
                // They cannot say it, and xarray needs it, unless a program has just written the
                // array without it.
                _ => !lacks_names,
            },
        }
    }

    /// Returns the attributes of a node. A node that is not understood, or whose metadata file Zarr
    /// 2 cannot express, has them, too.
    pub fn attributes_of(&self, node: &Node) -> Result<String> {
        self.documents_of(node).map(|documents| documents.attributes).or_else(|error| {
            let stored = node.stored().or(node.removed());
            let own = || match node.content() {
                Content::Array(array) => {
                    Some(zarr2::attributes(array.model(), self.extras_of(node)))
                }
                Content::Group(_) | Content::NotUnderstood(..) => None,
            };
            own().or_else(|| zarr2::stored_attributes(&stored?.text)).ok_or(error)
        })
    }

    /// Returns the stored `.zarray` or `.zgroup` of a node that is not understood, if the store has
    /// one.
    fn without_attributes(&self, node: &Node) -> Option<String> {
        let stored = node.stored().or(node.removed())?;
        let is_v2 = *self.core.hierarchy.dialect_of(node.path()) == Dialect::V2;
        let strict = zarr2::stored_document(&stored.text);
        strict.filter(|_| is_v2)
    }

    fn has_attributes(&self, node: &Node) -> Result<bool> {
        match self.attributes_of(node) {
            Ok(shown) => Ok(shown.trim() != "{}"),
            Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Corrupt) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the consolidated metadata of a group, from a
    /// [`TextCache`](crate::hierarchy::TextCache).
    fn copies_of(&self, path: &NodePath, wanted: TextPurpose) -> Result<Arc<str>> {
        let node = self.core.hierarchy.existing(path)?;
        let version = node.stored().or(node.removed()).map(|stored| stored.stat.version.state());
        let of = Sources { generation: self.core.hierarchy.generation(), version };
        let ttl = self.core.hierarchy.options().metadata_ttl;
        let make = || {
            let text = zarr2::consolidated(&self.collect_copies(&node)?).into();
            Ok(Text { text, left_out: None })
        };
        Ok(self.copies.get(path, of, ttl, wanted, make)?.text)
    }

    /// Returns the last known length of a metadata file that includes others.
    pub fn last_len_shown(&self, place: &Place) -> u64 {
        let len = place.node().and_then(|path| match place {
            Place::Copies(_) => self.copies.last_len(path),
            _ => self.core.hierarchy.shown().last_len(path),
        });
        len.and_then(|len| u64::try_from(len).ok()).unwrap_or_default()
    }

    fn collect_copies(&self, group: &Arc<Node>) -> Result<CopyTexts> {
        let mut copies = zarr2::no_copies();
        let below = self.core.hierarchy.walk_below(group.path(), Bounds::COPIES);
        for node in std::iter::once(Ok(Arc::clone(group))).chain(below) {
            let node = node?;
            let documents = self.documents_of(&node).ok();
            let document = documents
                .map(|documents| documents.document)
                .or_else(|| self.without_attributes(&node));
            let Some((document, attributes)) = document.zip(self.attributes_of(&node).ok()) else {
                continue;
            };
            let above = match node.path().relative_to(group.path()).unwrap_or_default() {
                "" => String::new(),
                relative => format!("{relative}/"),
            };
            let name = if node.kind() == NodeKind::Array { ZARRAY } else { ZGROUP };
            for (name, text) in [(name, document), (ZATTRS, attributes)] {
                if let Ok(value) = json::parse(text.as_bytes())
                    && (name != ZATTRS || value.as_object().is_some_and(|all| !all.is_empty()))
                {
                    copies.push(&format!("{above}{name}"), &json::pretty(&value));
                }
            }
            check_len(copies.len(), group.path())?;
        }
        Ok(copies)
    }

    /// Remembers what the metadata file of an array has in a form that is not stored. `attributes`
    /// are those that it has now, and `makers` are the programs that make it by this file; `None`
    /// if it was there before.
    pub fn note_written(
        &self,
        path: &NodePath,
        written: &str,
        attributes: Option<&str>,
        makers: Option<&Processes>,
    ) {
        let document = json::parse_object(written.as_bytes()).unwrap_or_default();
        let is_scalar = document.get("shape").and_then(Value::as_array).is_some_and(Vec::is_empty);
        let lacks_names = is_scalar && !attributes.is_some_and(names_dimensions);
        let is_null = document.get("fill_value").is_none_or(Value::is_null);
        let lacks_fill = is_null && document.contains_key("shape");
        let compressor = document.get(COMPRESSOR).and_then(|written| {
            let node = self.core.hierarchy.node(path).ok().flatten()?;
            let shown = compressor_of(&self.documents_as_stored(&node).ok()?.document)?;
            (shown != *written).then(|| (written.clone(), shown))
        });
        let mut spelled = self.spelled.lock();
        if lacks_fill || lacks_names || compressor.is_some() {
            let known = || spelled.get(path).and_then(|known| known.makers.clone());
            let makers = makers.cloned().or_else(known);
            let written = Spelled { lacks_fill, lacks_names, makers, compressor };
            spelled.insert(path.clone(), written);
        } else {
            spelled.remove(path);
        }
        drop(spelled);
        self.copies.forget();
    }

    /// Remembers that the attributes of an array now say which dimensions it has.
    pub fn note_attributes(&self, path: &NodePath, written: &str) {
        if let Some(spelled) = self.spelled.lock().get_mut(path) {
            spelled.lacks_names &= !names_dimensions(written);
        }
    }
}

/// Whether attributes say which dimensions the array has.
fn names_dimensions(attributes: &str) -> bool {
    attributes.contains(DIMENSIONS)
}

/// Returns the compressor that a metadata file names.
fn compressor_of(document: &str) -> Option<Value> {
    let mut document = json::parse_object(document.as_bytes()).ok()?;
    document.shift_remove(COMPRESSOR).filter(|compressor| !compressor.is_null())
}

/// Whether this name belongs to a metadata file of Zarr 2.
pub fn is_name_of_zarr2(name: &str) -> bool {
    [ZARRAY, ZGROUP, ZATTRS, ZMETADATA].contains(&name)
}

/// Whether an array has another fill value.
fn is_another(fill: &[u8], array: &Array) -> bool {
    let model = array.model();
    *fill != *model.fill.item(&model.dtype)
}
