//! A dialect: the keys of metadata files and chunks, the meaning of metadata files, and new groups.
//! `create` makes new arrays.
//!
//! `v3`, `v2`, `n5`, `draft` and `d2023` each parse one syntax; an `Era` knows where the files of a
//! draft lie.

use serde_json::json;

use super::era::{Draft, Era};
use super::model::{Lowered, NodeKind};
use super::path::NodePath;
use super::v3::Departure;
use super::{d2023, draft, n5, v2, v3};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_codec::json::Object;
use zarrfs_store::{Key, PRIVATE, Prefix, StoreEntry};

/// A child that an entry of a listing indicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Its name.
    pub name: String,
    /// Whether the entry is a metadata file. A prefix is a node only if a metadata file lies below
    /// it.
    pub certain: bool,
}

/// A stored form of Zarr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialect {
    /// Core 3.0 and 3.1, and the provisional 3.0 of 2023 and 2024.
    V3,
    /// The draft of February 2023: the keys of v3, but metadata files with URIs.
    D2023_02,
    /// A draft whose metadata files and chunks lie in separate trees.
    Draft(Draft),
    /// Zarr 2.
    V2,
    /// N5, with the dimensions reversed as in zarr-python.
    N5,
}

impl Dialect {
    /// Returns a draft.
    pub fn draft(era: Era, suffix: &str) -> Self {
        let (base, folder) = (NodePath::root(), NodePath::root());
        Self::Draft(Draft { era, suffix: suffix.to_owned(), base, folder })
    }

    /// Returns the dialect of a hierarchy that lies in the directory `folder` of the store.
    #[must_use]
    pub fn in_folder(&self, folder: &NodePath) -> Self {
        let Self::Draft(draft) = self else { return self.clone() };
        Self::Draft(Draft { folder: folder.clone(), ..draft.clone() })
    }

    /// Returns the dialect with `base` as the root, `None` if the directory of every node is a
    /// hierarchy by itself.
    pub fn below(&self, base: &NodePath) -> Option<Self> {
        let Self::Draft(draft) = self else { return None };
        let base = draft.base.join(base.as_str()).ok()?;
        Some(Self::Draft(Draft { base, ..draft.clone() }))
    }

    /// Returns the path of the root node in the whole hierarchy.
    pub fn base(&self) -> NodePath {
        let Self::Draft(draft) = self else { return NodePath::root() };
        draft.base.clone()
    }

    /// Returns the dialect with the node at `base` of the whole hierarchy as the root.
    #[must_use]
    pub fn with_base(&self, base: NodePath) -> Self {
        let Self::Draft(draft) = self else { return self.clone() };
        Self::Draft(Draft { base, ..draft.clone() })
    }

    /// Returns the node for a relative path of a directory in a hierarchy, `None` if it belongs to
    /// no node.
    pub fn node_of_directory(&self, relative: &str) -> Option<NodePath> {
        let Self::Draft(draft) = self else { return NodePath::parse(relative).ok() };
        let (documents, chunks) = draft.era.trees();
        let below = [documents, chunks].iter().find_map(|tree| relative.strip_prefix(tree))?;
        NodePath::parse(below).ok().filter(|path| !path.is_root())
    }

    /// Whether a stored metadata file has OME-Zarr metadata of a version that belongs to another
    /// version of Zarr.
    pub fn has_other_ome(&self, text: &str) -> bool {
        let document = zarrfs_codec::json::parse_object(text.as_bytes()).unwrap_or_default();
        let attributes = document.get("attributes").and_then(serde_json::Value::as_object);
        let is_v2 = matches!(self, Self::V2);
        let may = is_v2 || matches!(self, Self::V3);
        may && attributes.is_some_and(|found| super::ome::is_other_ome(found, is_v2))
    }

    /// Returns the name for `--from`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::V3 => "v3",
            Self::D2023_02 => "d2023-02",
            Self::Draft(draft) => draft.era.name(),
            Self::V2 => "v2",
            Self::N5 => "n5",
        }
    }

    /// Returns the dialect with this name in its usual form, `None` if there is none.
    pub fn parse_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|dialect| dialect.name() == name)
    }

    /// Returns all dialects in their usual forms.
    pub fn all() -> Vec<Self> {
        let drafts = Era::ALL.map(|era| Self::draft(era, era.suffix()));
        [Self::V3, Self::V2, Self::N5, Self::D2023_02].into_iter().chain(drafts).collect()
    }

    /// Fails if new nodes in this dialect are not supported, since no program would read them.
    pub fn check_makes_nodes(&self) -> Result<()> {
        match self {
            Self::V3
            | Self::V2
            | Self::N5
            | Self::Draft(Draft {
                era: Era::D2019_05 | Era::D2019_06 | Era::D2020_09 | Era::D2020_10,
                ..
            }) => Ok(()),
            Self::D2023_02 | Self::Draft(_) => Err(Error::new(
                Kind::NotPermitted,
                format!(
                    "no program reads the draft {}, so zarrfs creates no nodes in it: use \
                     another dialect (`zarrfs convert` makes a copy)",
                    self.name()
                ),
            )),
        }
    }

    /// Returns the names that a metadata file may have in the directory of its node. A draft has
    /// none.
    fn document_names(&self) -> &'static [(Option<NodeKind>, &'static str)] {
        match self {
            Self::V3 | Self::D2023_02 => &[(None, v3::DOCUMENT)],
            Self::V2 => &[(Some(NodeKind::Array), v2::ZARRAY), (Some(NodeKind::Group), v2::ZGROUP)],
            Self::N5 => &[(None, n5::DOCUMENT)],
            Self::Draft(_) => &[],
        }
    }

    /// Returns the possible keys of the metadata file of `path`. The first one that exists counts:
    /// an array hides a group of the same name. A key comes with the kind of node, unless the
    /// metadata file states it.
    pub fn document_keys(&self, path: &NodePath) -> Result<Vec<(Option<NodeKind>, Key)>> {
        let Self::Draft(draft) = self else {
            let prefix = prefix_of("", path)?;
            let names = self.document_names().iter();
            return names.map(|(kind, name)| Ok((*kind, prefix.key(name)?))).collect();
        };
        let path = &draft.whole(path)?;
        let stems: Vec<String> = if path.is_root() {
            draft.era.root_stems().iter().map(|stem| draft.tree(stem)).collect()
        } else {
            vec![format!("{}{}.", draft.tree(draft.era.trees().0), path.as_str())]
        };
        let mut keys = Vec::with_capacity(2 * stems.len());
        for stem in stems {
            for (kind, ending) in [(NodeKind::Array, "array"), (NodeKind::Group, "group")] {
                let key = Key::parse(&format!("{stem}{ending}{}", draft.suffix))?;
                keys.push((Some(kind), key));
            }
        }
        Ok(keys)
    }

    /// Returns the key of attributes that are not in a node's metadata file.
    pub fn attributes_key(&self, path: &NodePath) -> Result<Option<Key>> {
        let has_one = *self == Self::V2;
        has_one.then(|| prefix_of("", path)?.key(v2::ZATTRS)).transpose()
    }

    /// Lowers a metadata file whose key is for nodes of this `kind`. Attributes from a separate
    /// file are already joined into it (`join`).
    pub fn lower(&self, kind: Option<NodeKind>, text: &[u8]) -> Lowered {
        match self {
            Self::V3 => v3::lower(text),
            Self::D2023_02 => d2023::lower(text),
            Self::Draft(draft) => draft::lower(draft.era, kind.unwrap_or(NodeKind::Array), text),
            Self::V2 => v2::lower(kind.unwrap_or(NodeKind::Array), text),
            Self::N5 => n5::lower(text),
        }
    }

    /// Returns the prefix of an array's chunks, and of ordinary files beside a node.
    pub fn chunk_prefix(&self, path: &NodePath) -> Result<Prefix> {
        let Self::Draft(draft) = self else { return prefix_of("", path) };
        prefix_of(&draft.tree(draft.era.trees().1), &draft.whole(path)?)
    }

    /// Whether the chunks of an array and the files beside it are in the directory of its metadata
    /// file.
    pub fn has_one_tree(&self) -> bool {
        !matches!(self, Self::Draft(_))
    }

    /// Returns the prefix to list for the children of a group; see [`Dialect::child`].
    pub fn children_prefix(&self, path: &NodePath) -> Result<Prefix> {
        let Self::Draft(draft) = self else { return prefix_of("", path) };
        prefix_of(&draft.tree(draft.era.trees().0), &draft.whole(path)?)
    }

    /// Returns the child for an entry of that listing, `None` if it is not one.
    ///
    /// Names that begin with two underscores are reserved in Zarr 3 ("node names", v3 core), but
    /// zarr-python makes and reads such nodes.
    ///
    /// A child may occur twice: as a metadata file, and as a prefix of keys below it.
    pub fn child(&self, entry: &StoreEntry) -> Option<Child> {
        let (name, certain) = match (self, entry) {
            (Self::Draft(draft), StoreEntry::Key(name)) => {
                let stem = name.strip_suffix(draft.suffix.as_str())?;
                (stem.strip_suffix(".array").or_else(|| stem.strip_suffix(".group"))?, true)
            }
            (_, StoreEntry::Key(_)) => return None,
            (_, StoreEntry::Prefix(name)) if name == PRIVATE => return None,
            (_, StoreEntry::Prefix(name)) => (name.as_str(), false),
        };
        zarrfs_store::is_component(name).then(|| Child { name: name.to_owned(), certain })
    }

    /// Whether `key`, below the prefix of a group's children, names a metadata file.
    pub fn is_document(&self, key: &Key) -> bool {
        if self.has_one_tree() {
            return self.document_names().iter().any(|(_, name)| *name == key.name());
        }
        self.child(&StoreEntry::Key(key.name().to_owned())).is_some_and(|child| child.certain)
    }

    /// Returns where a metadata file, with its attributes, departs from its specification although
    /// it can be read.
    pub fn departure(&self, document: &Object) -> Option<Departure> {
        match self {
            Self::V3 => v3::departure(document),
            Self::V2 => v2::departure(document).map(Departure::Wrong),
            Self::N5 | Self::D2023_02 | Self::Draft(_) => None,
        }
    }

    /// Whether groups above a node can exist without a metadata file. The drafts allow that; in v3
    /// and v2 `TensorStore` writes none for groups; in N5 any directory is a group.
    pub fn has_implicit_groups(&self) -> bool {
        true
    }

    /// Whether every group above a new node gets a metadata file ("group metadata", v3 core;
    /// "hierarchies", v2). The drafts do not need them.
    pub fn wants_group_documents(&self) -> bool {
        self.has_one_tree()
    }

    /// Whether an empty root without a metadata file is a group.
    pub fn has_implicit_root(&self) -> bool {
        !self.has_one_tree()
    }

    /// Whether the key `relative` below the prefix of a node's chunks is reserved for a metadata
    /// file, so that no ordinary file can have it.
    pub fn is_reserved(&self, relative: &str) -> bool {
        let name = relative.rsplit_once('/').map_or(relative, |(_, name)| name);
        let is_beside = *self == Self::V2 && [v2::ZATTRS, v2::ZMETADATA].contains(&name);
        is_beside || self.document_names().iter().any(|(_, document)| *document == name)
    }

    /// Whether `name` at the root of a store is a file of the hierarchy that belongs to no node.
    pub fn is_entry_point(&self, name: &str) -> bool {
        !self.has_one_tree() && name == v3::DOCUMENT
    }

    /// Whether names in a group must differ in more than the case of their letters.
    pub fn folds_case(&self) -> bool {
        matches!(self, Self::Draft(draft) if draft.era.folds_case())
    }

    /// Fails if the dialect forbids the name of a new node. Any stored name can be read.
    pub fn check_name(&self, name: &str) -> Result<()> {
        let wrong = |rule: &str| Err(Error::invalid(format!("{name:?}: {rule}")));
        if !zarrfs_store::is_component(name) || name.bytes().all(|byte| byte == b'.') {
            return wrong("not a valid name of a node");
        }
        if name == v3::DOCUMENT {
            return wrong("this is the name of a metadata file in every mount");
        }
        if self.is_reserved(name) {
            return wrong("this is the name of a metadata file");
        }
        // Readers of Zarr 2 treat a backslash as a slash ("logical storage paths").
        if *self == Self::V2 && name.contains('\\') {
            return wrong("Zarr 2 treats a backslash as a slash");
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !self.has_one_tree() && !name.bytes().all(is_plain) {
            return wrong("the drafts of 2019 to 2022 allow a-z, A-Z, 0-9, -, _ and . in names");
        }
        Ok(())
    }

    /// Returns the metadata files of an empty hierarchy.
    pub fn new_root(&self) -> Result<Vec<(Key, String)>> {
        let group = self.new_group(&NodePath::root())?;
        Ok(self.new_entry_point()?.into_iter().chain([group]).collect())
    }

    /// Returns the files at the root of a hierarchy besides metadata files of nodes.
    pub fn new_entry_point(&self) -> Result<Option<(Key, String)>> {
        self.check_makes_nodes()?;
        let Self::Draft(draft) = self else { return Ok(None) };
        draft::entry_point(draft)
            .map(|text| Key::parse(v3::DOCUMENT).map(|key| (key, text)))
            .transpose()
    }

    /// Returns the metadata file of a group without attributes, and its key.
    pub fn new_group(&self, path: &NodePath) -> Result<(Key, String)> {
        let keys = self.document_keys(path)?;
        let key = keys.into_iter().find(|(kind, _)| *kind != Some(NodeKind::Array));
        let (_, key) = key.ok_or_else(|| Error::new(Kind::Internal, "a group has no key"))?;
        let text = match self {
            Self::V3 => {
                let document = json!({"zarr_format": 3, "node_type": "group", "attributes": {}});
                format!("{document:#}\n")
            }
            Self::D2023_02 => d2023::group_document(),
            Self::Draft(draft) => draft::group_document(draft.era),
            Self::V2 => v2::group_document(),
            Self::N5 => n5::group_document(path),
        };
        Ok((key, text))
    }
}

/// Returns `head` followed by the names of `path`.
fn prefix_of(head: &str, path: &NodePath) -> Result<Prefix> {
    Prefix::parse(&format!("{head}{}", path.as_str()))
}
