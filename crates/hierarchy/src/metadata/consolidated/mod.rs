//! Consolidated metadata: a group's metadata file contains copies of all metadata files below it.
//!
//! zarr-python writes them; a library that finds them does not read the metadata files themselves.
//! The specification does not define them, so they have `must_understand: false`:
//!
//! ```text
//! {"zarr_format": 3, "node_type": "group", "attributes": {},
//!  "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {
//!      "a": {"zarr_format": 3, "node_type": "group", ..},
//!      "a/b": {"zarr_format": 3, "node_type": "array", ..}}}}
//! ```
//!
//! A copy is the stored string, including bare words and long numbers, but without nested copies. A
//! group without a metadata file is copied as an empty group, because zarr-python fails if a group
//! is missing.
//!
//! zarr-python 3 loses members of a group whose copies are not all together among those of their
//! depth (`ConsolidatedMetadata._flat_to_nested`), so copies that were added are sorted where that
//! is needed.
//!
//! In the drafts, metadata files contain no copies: a group's own file only records the request, in
//! a member that no reader uses. Instead, zarr-python 2 stores copies of all metadata files of a
//! hierarchy in one value, `meta/root/consolidated/.zmetadata`; if it exists, zarrfs keeps it up to
//! date.
//!
//! For the drafts, the metadata file of a group keeps the wish for consolidated metadata as a
//! member without copies. The mount makes the copies when it shows them.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Value, json};

use super::dialect::Dialect;
use super::era::Era;
use super::joined::{join, split};
use super::model::NodeKind;
use super::path::NodePath;
use super::{skim, v2};
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::json::{self, MemberEdit, NewValue, Text};
use zarrfs_store::Key;

/// The path of the copies within a metadata file.
const METADATA: [&str; 2] = ["consolidated_metadata", "metadata"];

/// A copy of a metadata file in a value under a separate key.
#[derive(Debug, Clone)]
pub struct Copied {
    /// The path of the node.
    pub path: NodePath,
    /// The key of its metadata file.
    pub key: Key,
    /// The stored metadata file.
    pub document: String,
}

impl Dialect {
    /// Replaces the copies of the node at `relative` and all nodes below it in `group`, the stored
    /// metadata file of a group, with `documents`, each with its path from the group. Returns
    /// `None` if the group has no inline consolidated metadata.
    pub fn replace_consolidated(
        &self,
        group: &str,
        relative: &str,
        documents: &[(String, String)],
    ) -> Result<Option<String>> {
        let Some(mut text) = self.inline(group)? else { return Ok(None) };
        text.remove_members(&METADATA, |name| {
            let rest = name.strip_prefix(relative);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })?;
        if !documents.is_empty() {
            set_copies(&mut text, documents)?;
        }
        checked(text).map(Some)
    }

    /// Sets the copy of the node at `relative` in `group`, the stored metadata file of a group, to
    /// `document`. If that is `None`, removes the copies of the node and of all nodes below it.
    /// Returns `None` if the group has no inline consolidated metadata.
    pub fn set_consolidated(
        &self,
        group: &str,
        relative: &str,
        document: Option<&str>,
    ) -> Result<Option<String>> {
        let Some(document) = document else {
            return self.replace_consolidated(group, relative, &[]);
        };
        let Some(mut text) = self.inline(group)? else { return Ok(None) };
        set_copies(&mut text, &[(relative.to_owned(), document.to_owned())])?;
        checked(text).map(Some)
    }

    /// Parses the stored metadata file of a group if it has copies.
    fn inline(&self, group: &str) -> Result<Option<Text>> {
        if *self != Self::V3 {
            return Ok(None);
        }
        let parsed = json::parse_object(&skim::without_copies(group.as_bytes()))?;
        let consolidated = parsed.get("consolidated_metadata");
        let is_inline =
            consolidated.is_some_and(|found| found.get("kind") == Some(&json!("inline")));
        if !is_inline {
            return Ok(None);
        }
        Text::parse(group.as_bytes()).map(Some)
    }

    /// Returns the stored metadata file `group` with new consolidated metadata, made from the
    /// stored `documents` below it with their relative paths. In a dialect without them, returns it
    /// unchanged.
    pub fn consolidate(&self, group: &str, documents: &[(String, String)]) -> Result<String> {
        match self {
            Self::V3 => {}
            Self::Draft(_) => {
                let mut text = Text::parse(group.as_bytes())?;
                text.set(&["consolidated_metadata"], &no_copies())?;
                return checked(text);
            }
            // Zarr 2 has copies in a separate value; the others have none.
            _ => return Ok(group.to_owned()),
        }
        let mut sorted = BTreeMap::new();
        for (relative, document) in documents {
            for parent in parents(relative) {
                sorted.entry(NodePath::parse(parent)?).or_insert_with(|| empty_group().to_string());
            }
            sorted.insert(NodePath::parse(relative)?, copy_of(document)?.into_string());
        }
        let mut copies = String::from("{");
        for (at, (path, document)) in sorted.iter().enumerate() {
            copies.push_str(if at == 0 { "" } else { "," });
            copies.push_str(&json!(path.as_str()).to_string());
            copies.push(':');
            copies.push_str(document);
        }
        copies.push('}');
        let mut text = Text::parse(group.as_bytes())?;
        text.remove(&["consolidated_metadata"])?;
        text.set(&["consolidated_metadata"], &no_copies())?;
        text.set_text(&METADATA, &Text::parse(copies.as_bytes())?)?;
        checked(text)
    }

    /// Returns the separate key with copies of a group and all nodes below it: `.zmetadata` in Zarr
    /// 2, and in the drafts for the root. `None` if no library of the dialect uses one.
    pub fn shared_copies(&self, group: &NodePath) -> Result<Option<Key>> {
        match self {
            Self::Draft(draft) if draft.era == Era::D2020_10 && group.is_root() => {
                Key::parse("meta/root/consolidated/.zmetadata").map(Some)
            }
            _ => self.own_copies(group),
        }
    }

    /// Returns the key of the copies that are the consolidated metadata of a group.
    pub fn own_copies(&self, group: &NodePath) -> Result<Option<Key>> {
        let has_some = *self == Self::V2;
        has_some.then(|| self.chunk_prefix(group)?.key(v2::ZMETADATA)).transpose()
    }

    /// Returns the metadata files in consolidated metadata, with their paths from the group. Those
    /// of groups have no copies of their own. `text` is the metadata file of the group, or the
    /// value with its [`Self::own_copies`].
    pub fn copied_nodes(&self, text: &[u8]) -> Result<Vec<(String, NodeKind, String)>> {
        match self {
            Self::V3 if skim::has_copies(text) => {
                let text = Text::parse(text)?;
                let copied = text.texts(&METADATA)?.into_iter();
                let copied = copied.map(|(path, copy)| {
                    Ok(match kind_of(copy) {
                        Some(NodeKind::Array) => Some((path, NodeKind::Array, copy.to_owned())),
                        Some(NodeKind::Group) => {
                            let mut copy = Text::parse(copy.as_bytes())?;
                            copy.remove(&METADATA[..1])?;
                            Some((path, NodeKind::Group, copy.into_string()))
                        }
                        None => None,
                    })
                });
                copied.filter_map(Result::transpose).collect()
            }
            Self::V2 => {
                let text = Text::parse(text)?;
                let copies: HashMap<String, &str> =
                    text.texts(&["metadata"])?.into_iter().collect();
                let node = |(name, copy): (&String, &&str)| {
                    let (path, file) = name.rsplit_once('/').unwrap_or(("", name));
                    let kind = match file {
                        v2::ZARRAY => NodeKind::Array,
                        v2::ZGROUP => NodeKind::Group,
                        _ => return None,
                    };
                    let attributes = format!("{path}/{}", v2::ZATTRS);
                    let attributes = copies.get(attributes.trim_start_matches('/')).copied();
                    Some(join(copy, attributes).map(|text| (path.to_owned(), kind, text)))
                };
                copies.iter().filter_map(node).collect()
            }
            Self::Draft(draft) => {
                let text = Text::parse(text)?;
                let tree = draft.tree(draft.era.trees().0);
                let node = |(key, copy): (String, &str)| {
                    let stem = key.strip_prefix(&tree)?.strip_suffix(draft.suffix.as_str())?;
                    let kinds = [(".array", NodeKind::Array), (".group", NodeKind::Group)];
                    let find = |(ending, kind)| Some((stem.strip_suffix(ending)?, kind));
                    let (path, kind) = kinds.into_iter().find_map(find)?;
                    Some((path.to_owned(), kind, copy.to_owned()))
                };
                Ok(text.texts(&["metadata"])?.into_iter().filter_map(node).collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Whether a group may have copies of the metadata files in directories below it.
    pub fn copies_directories_below(&self) -> bool {
        // The copies of a draft cover the whole hierarchy, so their names are full paths.
        matches!(self, Self::V3 | Self::V2)
    }

    /// Returns a value under a separate key that has no copies yet, as zarr-python 2 writes it.
    pub fn no_shared_copies(&self) -> String {
        format!("{:#}\n", json!({"metadata": {}, "zarr_consolidated_format": 1}))
    }

    /// Sets the copy at `key`, the metadata file of the node at `path`, in the value with the
    /// copies of a group. If `document` is `None`, removes the node and all nodes below it.
    pub fn set_shared_copy(
        &self,
        copies: &str,
        group: &NodePath,
        path: &NodePath,
        key: &Key,
        document: Option<&str>,
    ) -> Result<String> {
        let Some(document) = document else {
            return self.replace_shared_copies(copies, group, path, &[]);
        };
        let mut text = Text::parse(copies.as_bytes())?;
        let copied = Copied { path: path.clone(), key: key.clone(), document: document.to_owned() };
        self.put_shared_copies(&mut text, group, &[copied])?;
        checked(text)
    }

    /// Replaces the copies of the node at `path` and of all nodes below it with `documents`.
    pub fn replace_shared_copies(
        &self,
        copies: &str,
        group: &NodePath,
        path: &NodePath,
        documents: &[Copied],
    ) -> Result<String> {
        let mut text = Text::parse(copies.as_bytes())?;
        let root = self.shared_root(group)?;
        let own = self.names_of_copies(&root, path)?;
        let below = self.children_prefix(path)?;
        let below = below.as_str().strip_prefix(&root).unwrap_or_default().to_owned();
        text.remove_members(&["metadata"], |found| {
            own.iter().any(|name| name == found) || (!below.is_empty() && found.starts_with(&below))
        })?;
        self.put_shared_copies(&mut text, group, documents)?;
        checked(text)
    }

    /// Sets copies in such a value, and adds empty copies for missing groups between.
    fn put_shared_copies(
        &self,
        text: &mut Text,
        group: &NodePath,
        documents: &[Copied],
    ) -> Result<()> {
        let root = self.shared_root(group)?;
        let name =
            |key: &Key| -> String { key.as_str().strip_prefix(&root).unwrap_or_default().into() };
        let mut known = text.names(&["metadata"])?;
        let (mut new, mut others) = (Vec::new(), HashSet::new());
        for Copied { path, key, document } in documents {
            let (document, attributes) = match self.attributes_key(path)? {
                Some(key) => {
                    let (document, attributes) = split(document)?;
                    (document, attributes.map(|text| (name(&key), text)))
                }
                None => (document.clone(), None),
            };
            for above in self.groups_between(group, path) {
                let (key, text) = self.new_group(&above)?;
                if known.insert(name(&key)) {
                    new.push((name(&key), copy_of(&text)?));
                }
            }
            // The node may have been of another kind before.
            let own = self.names_of_copies(&root, path)?;
            others.extend(own.into_iter().filter(|own| *own != name(key)));
            for (name, document) in [(name(key), document)].into_iter().chain(attributes) {
                others.remove(&name);
                let copy = copy_of(&document)?;
                // A copy that is there keeps its place.
                known.insert(name.clone());
                new.push((name, copy));
            }
        }
        text.remove_members(&["metadata"], |found| others.contains(found))?;
        if text.member(&["metadata"])?.is_none_or(|copies| copies == "null") {
            text.set(&["metadata"], &json!({}))?;
        }
        text.edit(&["metadata"], &changes_of(&new))?;
        if *self != Self::V2 {
            return Ok(());
        }
        keep_groups_together(text, &["metadata"], |name| {
            name.rsplit_once('/').map_or("", |(path, _)| path)
        })
    }

    /// Returns the names that copies of the node at `path` may have.
    fn names_of_copies(&self, root: &str, path: &NodePath) -> Result<Vec<String>> {
        let mut own = self.document_keys(path)?.into_iter().map(|(_, key)| key).collect::<Vec<_>>();
        own.extend(self.attributes_key(path)?);
        Ok(own
            .iter()
            .map(|key| key.as_str().strip_prefix(root).unwrap_or_default().into())
            .collect())
    }

    /// Returns the groups between `group` and `path`, in a dialect in which each has a metadata
    /// file.
    fn groups_between(&self, group: &NodePath, path: &NodePath) -> Vec<NodePath> {
        let mut between = path.ancestors();
        between.retain(|above| above != group && above.relative_to(group).is_some());
        if !self.wants_group_documents() {
            between.clear();
        }
        between
    }

    /// Returns the prefix of keys that the names of copies omit.
    fn shared_root(&self, group: &NodePath) -> Result<String> {
        if *self != Self::V2 {
            return Ok(String::new());
        }
        Ok(self.chunk_prefix(group)?.as_str().to_owned())
    }
}

/// Sets the copies of `documents`, each with its path from the group, and adds empty copies for
/// missing groups between.
fn set_copies(text: &mut Text, documents: &[(String, String)]) -> Result<()> {
    if !text.member(&METADATA)?.is_some_and(|copies| copies.starts_with('{')) {
        text.set(&METADATA, &json!({}))?;
    }
    let mut known = text.names(&METADATA)?;
    let mut new = Vec::new();
    for (relative, document) in documents {
        for parent in parents(relative) {
            if known.insert(parent.to_owned()) {
                let group = Text::parse(empty_group().to_string().as_bytes())?;
                new.push((parent.to_owned(), group));
            }
        }
        let copy = copy_of(document)?;
        // A copy that is there keeps its place.
        known.insert(relative.clone());
        new.push((relative.clone(), copy));
    }
    text.edit(&METADATA, &changes_of(&new))?;
    keep_groups_together(text, &METADATA, |name| name)
}

/// Sorts the copies at `at` if those of a group's members are not all together. `path_of` returns
/// the path of the node from the name of a copy.
fn keep_groups_together(text: &mut Text, at: &[&str], path_of: fn(&str) -> &str) -> Result<()> {
    let copies = text.texts(at)?;
    if are_groups_together(copies.iter().map(|(name, _)| path_of(name))) {
        return Ok(());
    }
    drop(copies);
    text.sort_members(at, |name| name.split('/').map(str::to_owned).collect::<Vec<_>>())
}

/// Whether the members of each group follow one another among the paths of their depth.
fn are_groups_together<'p>(paths: impl Iterator<Item = &'p str>) -> bool {
    let (mut seen, mut groups) = (HashSet::new(), HashSet::new());
    let mut last: HashMap<usize, &str> = HashMap::new();
    for path in paths {
        let Some((group, _)) = path.rsplit_once('/').filter(|_| seen.insert(path)) else {
            continue;
        };
        let before = last.insert(group.matches('/').count(), group);
        if before != Some(group) && !groups.insert(group) {
            return false;
        }
    }
    true
}

fn changes_of(copies: &[(String, Text)]) -> Vec<MemberEdit<'_>> {
    copies.iter().map(|(name, copy)| (name.as_str(), Some(NewValue::Text(copy)))).collect()
}

/// Returns the kind of the node that has this metadata file of v3.
fn kind_of(text: &str) -> Option<NodeKind> {
    match Text::parse(text.as_bytes()).ok()?.member(&["node_type"]).ok()?? {
        "\"array\"" => Some(NodeKind::Array),
        "\"group\"" => Some(NodeKind::Group),
        _ => None,
    }
}

/// Returns consolidated metadata without copies.
fn no_copies() -> Value {
    json!({"kind": "inline", "must_understand": false, "metadata": {}})
}

/// Returns the paths of the groups between the group and the node at `relative`.
fn parents(relative: &str) -> impl Iterator<Item = &str> {
    relative.match_indices('/').filter_map(|(at, _)| relative.get(..at))
}

/// Returns the metadata file of an empty group.
fn empty_group() -> Value {
    json!({"zarr_format": 3, "node_type": "group", "attributes": {}})
}

/// Returns the copy of a metadata file.
fn copy_of(document: &str) -> Result<Text> {
    let mut copy = Text::parse(document.trim_start_matches('\u{feff}').as_bytes())?;
    copy.remove(&["consolidated_metadata"])?;
    Ok(copy)
}

/// Returns the string, unless copies made it too long or too deep to read.
fn checked(text: Text) -> Result<String> {
    let text = text.into_string();
    json::check(text.as_bytes()).map_err(|error| {
        Error::too_large(format!(
            "consolidated metadata would be too large for any reader ({}; the limit for a \
             metadata file with them is {} bytes)",
            error.detail(),
            json::max_text_len()
        ))
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests;
