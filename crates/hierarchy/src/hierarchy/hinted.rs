//! The members of a group in a store that cannot list: those in consolidated metadata, and those
//! that attributes name.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::copied::ConsolidatedCopies;
use super::nodes::Hierarchy;
use crate::metadata::{Hints, NodePath, hints};
use zarrfs_base::error::{Result, Word};
use zarrfs_codec::json;
use zarrfs_store::Key;

/// The member of a metadata file in which netCDF names the nodes of a group.
const NCZARR: &[u8] = b"\"_NCZARR_GROUP\"";

/// Why a group in a store that cannot list is not whole.
const NOT_LISTED: &str = "the server does not list names, so groups without consolidated metadata \
                          show only the nodes that their attributes name; others can be opened by \
                          name";

/// The most images of a file.
const MOST_SERIES: usize = 100_000;

/// How many images are requested at first: most files have few.
const FIRST_SERIES: usize = 4;

/// How many nodes are requested at a time.
const AT_ONCE: usize = 64;

/// The members of groups as far as they are known without a listing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hinted<'h> {
    hierarchy: &'h Hierarchy,
}

impl Hierarchy {
    /// Returns the members of groups as far as they are known without a listing.
    pub(super) fn hinted(&self) -> Hinted<'_> {
        Hinted { hierarchy: self }
    }
}

impl Hinted<'_> {
    /// Returns the sorted names of the nodes directly below a group.
    pub fn names(self, path: &NodePath) -> Result<Vec<String>> {
        let groups = groups_down_to(path);
        let mut names = self.copied_names(&groups, path)?;
        let is_covered = !names.is_empty() || self.is_covered(&groups)?;
        if !is_covered {
            self.hierarchy.store().omissions().note(path.as_str(), Word::Unsupported, NOT_LISTED);
        }
        let (hinted, has_series) = self.named(groups, path)?;
        let hinted: Vec<String> = hinted.into_iter().filter(|name| !names.contains(name)).collect();
        for some in hinted.chunks(AT_ONCE) {
            names.extend(self.existing_of(path, some)?);
        }
        if has_series {
            names.extend(self.series_of(path, &names)?);
        }
        Ok(names.into_iter().collect())
    }

    /// Returns the nodes directly below a group that the store did not list, although it lists
    /// names: those in consolidated metadata and those that attributes name, as far as they are
    /// there. `listed` are the names that it did list.
    pub fn hidden_names(self, path: &NodePath, listed: &[String]) -> Result<Vec<String>> {
        let groups = groups_down_to(path);
        let mut names = self.copied_names(&groups, path)?;
        names.extend(self.named(groups, path)?.0);
        let listed: HashSet<&str> = listed.iter().map(String::as_str).collect();
        let unlisted: Vec<String> =
            names.into_iter().filter(|name| !listed.contains(name.as_str())).collect();
        for name in &unlisted {
            let Ok(child) = path.child(name) else { continue };
            let ranges = self.hierarchy.document_ranges(&child)?;
            let keys: Vec<Key> = ranges.into_iter().map(|(key, _)| key).collect();
            if let Some(list) = self.hierarchy.store().list() {
                list.doubt(&keys);
            }
        }
        let mut hidden = Vec::new();
        for some in unlisted.chunks(AT_ONCE) {
            hidden.extend(self.existing_of(path, some)?);
        }
        Ok(hidden)
    }

    /// Returns the names directly below `path` that attributes of these groups name, and whether
    /// the group has numbered images.
    fn named(self, groups: Vec<NodePath>, path: &NodePath) -> Result<(BTreeSet<String>, bool)> {
        let mut hinted = BTreeSet::new();
        let mut has_series = false;
        for group in groups {
            let Some(hints) = self.hints_of(&group)? else { continue };
            has_series |= hints.has_series && group == *path;
            for hint in hints.paths {
                hinted.extend(name_below(&group, &hint, path));
            }
        }
        Ok((hinted, has_series))
    }

    /// Whether a node lies below `path`.
    pub fn is_group(self, path: &NodePath) -> Result<bool> {
        let above = path.ancestors();
        if !self.copied_names(&above, path)?.is_empty() {
            return Ok(true);
        }
        for group in above {
            let Some(hints) = self.hints_of(&group)? else { continue };
            for hint in hints.paths {
                if name_below(&group, &hint, path).is_some()
                    && let Ok(node) = group.join(&hint)
                    && self.has_document(&node)?
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether consolidated metadata of a group above have a node at `path`, or below it.
    pub fn is_copied(self, path: &NodePath) -> Result<bool> {
        let (Some(parent), Some(name)) = (path.parent(), path.name()) else { return Ok(false) };
        Ok(self.copied_names(&path.ancestors(), &parent)?.contains(name))
    }

    /// Whether consolidated metadata have a copy of the metadata file of `path`.
    pub fn has_copy(self, path: &NodePath) -> Result<bool> {
        for group in groups_down_to(path) {
            if let Some(relative) = path.relative_to(&group)
                && self.copies_in(&group)?.has(relative)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn copies_in(self, group: &NodePath) -> Result<Arc<ConsolidatedCopies>> {
        let hierarchy = self.hierarchy;
        let node = |group: &NodePath| hierarchy.node(group);
        let ttl = hierarchy.options.metadata_ttl;
        hierarchy.copied.current(&hierarchy.documents, group, ttl, &node)
    }

    /// Whether a node has a metadata file. Reading the node would ask for the groups above it.
    fn has_document(self, path: &NodePath) -> Result<bool> {
        let documents = self.hierarchy.dialect_of(path).document_keys(path)?;
        let keys: Vec<Key> = documents.into_iter().map(|(_, key)| key).collect();
        Ok(self.hierarchy.store().read().stat(&keys)?.iter().any(Option::is_some))
    }

    fn hints_of(self, group: &NodePath) -> Result<Option<Hints>> {
        let Some(node) = self.hierarchy.node(group)? else { return Ok(None) };
        let mut found = node.attributes().map(hints);
        // Versions of netCDF before 4.9.3 name the nodes beside the attributes.
        let text = node.document().map(|document| &document.text);
        if let Some(text) = text.filter(|text| has_word(text, NCZARR))
            && let Ok(file) = json::parse_object(text)
        {
            found.get_or_insert_default().paths.extend(hints(&file).paths);
        }
        Ok(found)
    }

    /// Returns the names below `path` in the consolidated metadata of these groups.
    fn copied_names(self, groups: &[NodePath], path: &NodePath) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for group in groups {
            if let Some(below) = path.relative_to(group) {
                names.extend(self.copies_in(group)?.names_below(below));
            }
        }
        Ok(names)
    }

    /// Whether one of these groups has consolidated metadata.
    fn is_covered(self, groups: &[NodePath]) -> Result<bool> {
        for group in groups {
            if !self.copied_names(std::slice::from_ref(group), group)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns those of `names` that are nodes. They are requested together.
    fn existing_of(self, path: &NodePath, names: &[String]) -> Result<Vec<String>> {
        let paths: Vec<Option<NodePath>> = names.iter().map(|name| path.child(name).ok()).collect();
        let mut ranges = Vec::new();
        for path in paths.iter().flatten().filter(|path| !self.hierarchy.is_read(path)) {
            ranges.extend(self.hierarchy.document_ranges(path)?);
        }
        let _expected = self.hierarchy.store().read().expect(&ranges);
        let mut existing = Vec::new();
        for (name, path) in names.iter().zip(&paths) {
            if let Some(path) = path
                && self.hierarchy.child_node(path)?.is_some()
            {
                existing.push(name.clone());
            }
        }
        Ok(existing)
    }

    /// Returns the nodes 0, 1, 2 and so on until one is missing.
    fn series_of(self, path: &NodePath, known: &BTreeSet<String>) -> Result<Vec<String>> {
        let (mut series, mut first, mut count) = (Vec::new(), 0_usize, FIRST_SERIES);
        while first < MOST_SERIES {
            let numbers = first..first.saturating_add(count);
            let names: Vec<String> = numbers.map(|number| number.to_string()).collect();
            first = first.saturating_add(count);
            count = count.saturating_mul(2).min(AT_ONCE);
            let unknown: Vec<String> =
                names.iter().filter(|name| !known.contains(*name)).cloned().collect();
            let existing = self.existing_of(path, &unknown)?;
            let is_last = existing.len() < unknown.len();
            series.extend(existing);
            if is_last {
                break;
            }
        }
        Ok(series)
    }
}

/// Whether a text contains a word.
fn has_word(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

fn groups_down_to(path: &NodePath) -> Vec<NodePath> {
    let mut groups = path.ancestors();
    groups.push(path.clone());
    groups
}

/// Returns the name directly below `path` through which the path `hint` from `group` leads.
fn name_below(group: &NodePath, hint: &str, path: &NodePath) -> Option<String> {
    let full = group.join(hint).ok()?;
    let rest = full.relative_to(path).filter(|rest| !rest.is_empty())?;
    rest.split('/').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::hierarchy::HierarchyOptions;
    use crate::metadata::Dialect;
    use zarrfs_store::memory::MemoryStore;
    use zarrfs_store::{Condition, Store};

    fn hierarchy(values: &[(&str, &str)]) -> Hierarchy {
        let store = Store::new(Arc::new(MemoryStore::new()));
        for (key, text) in values {
            let key = Key::parse(key).expect("a key");
            let pieces = [bytes::Bytes::copy_from_slice(text.as_bytes()).into()];
            store.write().expect("writable").set(&key, &pieces, Condition::Always).expect("set");
        }
        Hierarchy::open(store.unlistable(), Some(Dialect::V2), HierarchyOptions::default())
            .expect("opened")
    }

    const GROUP: &str = r#"{"zarr_format": 2}"#;

    fn names(hierarchy: &Hierarchy, path: &str) -> Vec<String> {
        let path = NodePath::parse(path).expect("a path");
        hierarchy.child_names(&path).expect("names")
    }

    #[test]
    fn attributes_name_the_members_that_are_there() {
        let plate = r#"{"plate": {"wells": [{"path": "A/1"}, {"path": "A/2"}, {"path": "B/1"}]}}"#;
        let hierarchy = hierarchy(&[
            (".zgroup", GROUP),
            (".zattrs", plate),
            ("A/1/.zgroup", GROUP),
            ("A/1/.zattrs", r#"{"well": {"images": [{"path": "0"}]}}"#),
            ("A/1/0/.zgroup", GROUP),
            ("A/3/.zgroup", GROUP),
        ]);
        // A has no metadata file, and B/1 is not there.
        assert_eq!(names(&hierarchy, ""), ["A"]);
        assert_eq!(names(&hierarchy, "A"), ["1"]);
        assert_eq!(names(&hierarchy, "A/1"), ["0"]);
        let absent = NodePath::parse("B").expect("a path");
        assert!(hierarchy.node(&absent).expect("read").is_none());
    }

    #[test]
    fn the_images_of_a_file_are_found_by_their_numbers() {
        let mut values = vec![(".zgroup", GROUP), (".zattrs", r#"{"bioformats2raw.layout": 3}"#)];
        let keys: Vec<String> = (0..11).map(|number| format!("{number}/.zgroup")).collect();
        values.extend(keys.iter().map(|key| (key.as_str(), GROUP)));
        assert_eq!(names(&hierarchy(&values), "").len(), 11);
    }

    #[test]
    fn consolidated_metadata_name_the_members_without_reading_them() {
        let copies = r#"{"zarr_consolidated_format": 1, "metadata":
            {".zgroup": {"zarr_format": 2}, "a/.zgroup": {"zarr_format": 2},
             "a/b/c/.zgroup": {"zarr_format": 2}}}"#;
        let hierarchy = hierarchy(&[(".zgroup", GROUP), (".zmetadata", copies)]);
        assert_eq!(names(&hierarchy, ""), ["a"]);
        assert_eq!(names(&hierarchy, "a"), ["b"]);
        assert_eq!(names(&hierarchy, "a/b"), ["c"]);
        assert!(names(&hierarchy, "a/b/c").is_empty());
    }
}
