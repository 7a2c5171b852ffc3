//! Reads every node, and reports metadata that are damaged or contradict other metadata.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use super::chunks::code_of;
use super::conventions;
use super::finding::{Code, Finding, Repair};
use super::options::CheckWatch;
use super::target::CheckedArray;
use crate::array::Array;
use crate::convert::difference_of_copy;
use crate::error::{Error, Result};
use crate::hierarchy::{Bounds, Content, Hierarchy, Node, NodeCopy};
use crate::json;
use crate::limits;
use crate::metadata::{Departure, NodeKind, NodePath};
use crate::store::{Key, Prefix};

/// The nodes of a hierarchy.
pub struct Nodes<'h> {
    hierarchy: &'h Hierarchy,
    watch: &'h dyn CheckWatch,
    /// The nodes below which everything is checked.
    pub tops: Vec<NodePath>,
    /// The arrays by the prefix of their chunks, in order.
    pub targets: BTreeMap<Prefix, Arc<CheckedArray>>,
    /// All nodes, by the prefix of their ordinary files.
    pub by_prefix: HashMap<Prefix, NodePath>,
    /// The prefixes of nodes that zarrfs does not understand: any file may belong to them.
    pub unclear: HashSet<Prefix>,
    /// The keys of metadata files.
    pub documents: HashSet<Key>,
    pub groups: u64,
    pub arrays: u64,
}

impl<'h> Nodes<'h> {
    /// Reads the nodes in `only` and those below them; all nodes if it is empty.
    pub fn read(
        hierarchy: &'h Hierarchy,
        only: &[NodePath],
        watch: &'h dyn CheckWatch,
    ) -> Result<Self> {
        let mut tops = only.to_vec();
        if tops.is_empty() {
            tops.push(NodePath::root());
        }
        tops.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        // A node below another chosen node is checked with it.
        let all = tops.clone();
        tops.dedup();
        tops.retain(|path| !path.ancestors().iter().any(|above| all.contains(above)));
        let mut nodes = Self {
            hierarchy,
            watch,
            tops: tops.clone(),
            targets: BTreeMap::new(),
            by_prefix: HashMap::new(),
            unclear: HashSet::new(),
            documents: HashSet::new(),
            groups: 0,
            arrays: 0,
        };
        if tops.iter().any(NodePath::is_root) {
            nodes.check_entry_point()?;
        }
        for top in &tops {
            nodes.add(&*hierarchy.existing(top)?)?;
            let mut walk = hierarchy.walk_below(top, Bounds::stream());
            while let Some(node) = walk.next() {
                if watch.is_stopped() {
                    return Ok(nodes);
                }
                match node {
                    Ok(node) => nodes.add(&node)?,
                    Err(error) => nodes.report_unreadable(walk.at(), &error)?,
                }
            }
        }
        nodes.check_copies()?;
        Ok(nodes)
    }

    /// Returns the arrays below the array at a prefix, in order.
    pub fn targets_below(&self, prefix: &Prefix) -> impl Iterator<Item = &Arc<CheckedArray>> {
        let after = (Bound::Excluded(prefix.clone()), Bound::Unbounded);
        let above = prefix.clone();
        let is_below = move |(below, _): &(&Prefix, _)| below.as_str().starts_with(above.as_str());
        self.targets.range(after).take_while(is_below).map(|(_, target)| target)
    }

    /// Returns the innermost array around a key, below the array at `outer`.
    pub fn innermost_below(&self, outer: &Prefix, key: &Key) -> Option<&Arc<CheckedArray>> {
        let mut above = key.parent();
        while above != *outer {
            if let Some(found) = self.targets.get(&above) {
                return Some(found);
            }
            above = above.as_key()?.parent();
        }
        None
    }

    /// Checks the entry point of a draft.
    fn check_entry_point(&self) -> Result<()> {
        let Some((key, _)) = self.hierarchy.dialect().new_entry_point().ok().flatten() else {
            return Ok(());
        };
        let Some(value) = self.hierarchy.store().get(&key, limits::METADATA.get())? else {
            return Ok(());
        };
        if let Err(error) = json::parse_object(&value.bytes) {
            self.find(Finding::new(Code::NotJson, key, error.detail()));
        }
        Ok(())
    }

    fn find(&self, finding: Finding) {
        self.watch.find(finding);
    }

    fn add(&mut self, node: &Node) -> Result<()> {
        let (hierarchy, path) = (self.hierarchy, node.path());
        let prefix = hierarchy.ordinary_prefix(path)?;
        self.by_prefix.insert(prefix.clone(), path.clone());
        if let Some(document) = node.stored() {
            self.documents.extend(document.keys());
        }
        // A metadata file that cannot be read is one, too.
        let dialect = hierarchy.dialect_of(path);
        self.documents.extend(dialect.document_keys(path)?.into_iter().map(|(_, key)| key));
        self.documents.extend(dialect.attributes_key(path)?);
        match node.kind() {
            NodeKind::Group => self.groups = self.groups.saturating_add(1),
            NodeKind::Array => self.arrays = self.arrays.saturating_add(1),
        }
        let key = || match node.stored() {
            Some(document) => document.key.to_string(),
            None => path.as_str().to_owned(),
        };
        match node.content() {
            Content::NotUnderstood(_, error) => {
                self.report_metadata(&key(), error);
                match self.without_attributes(path, error)? {
                    Some(array) => {
                        let target = Arc::new(CheckedArray::new(path.clone(), array, None));
                        self.targets.insert(prefix, target);
                    }
                    None => drop(self.unclear.insert(prefix)),
                }
            }
            Content::Array(array) => {
                if let Some(error) = array.not_understood() {
                    self.report_metadata(&key(), error);
                }
                let lacks_codecs = self.report_departure(node);
                let target = CheckedArray::new(path.clone(), Arc::clone(array), lacks_codecs);
                self.targets.insert(prefix, Arc::new(target));
            }
            Content::Group(_) => drop(self.report_departure(node)),
        }
        let foreign = node.document().map(|document| json::foreign::first_of(&document.text));
        if let (Some(Some(byte)), Some(key)) = (foreign, dialect.attributes_key(path)?) {
            let reason = format!(
                "not UTF-8: it has the byte 0x{byte:02x}; zarrfs shows such bytes as Latin-1, and other \
                 programs refuse the file"
            );
            self.find(Finding::new(Code::NotJson, key, reason));
        }
        for reason in conventions::broken(hierarchy, node) {
            self.find(Finding::new(Code::Convention, key(), reason));
        }
        Ok(())
    }

    /// Returns an array whose attributes file is damaged: its chunks can be checked without that
    /// file.
    fn without_attributes(&self, path: &NodePath, error: &Error) -> Result<Option<Arc<Array>>> {
        let attributes = self.hierarchy.dialect_of(path).attributes_key(path)?;
        let is_at_fault = attributes.is_some_and(|key| error.subject() == Some(key.as_str()));
        // If the metadata file is damaged, too, its chunks cannot be checked.
        Ok(if is_at_fault { self.hierarchy.without_attributes(path).ok().flatten() } else { None })
    }

    /// Reports a metadata file that departs from its specification. Returns its key if it names no
    /// codecs.
    fn report_departure(&self, node: &Node) -> Option<Key> {
        let document = node.document()?;
        let dialect = self.hierarchy.dialect_of(node.path());
        match dialect.departure(&json::parse_object(&document.text).ok()?)? {
            Departure::Draft(members) => {
                let reason = format!(
                    "{} missing or empty: GDAL before 3.13 writes this, other programs refuse it",
                    members.join(" and ")
                );
                self.find(Finding::new(Code::Provisional, &document.key, reason));
                members.contains(&"codecs").then(|| document.key.clone())
            }
            Departure::Wrong(reason) => {
                self.find(Finding::new(Code::Metadata, &document.key, reason));
                None
            }
        }
    }

    /// Reports a node that cannot be read at all.
    fn report_unreadable(&mut self, path: &NodePath, error: &Error) -> Result<()> {
        self.unclear.insert(self.hierarchy.ordinary_prefix(path)?);
        let key = error.subject().unwrap_or(path.as_str()).to_owned();
        let code = match code_of(error, Code::Unreadable) {
            // A limit of the walk, or a server that does not list a directory: there may be nodes
            // that nobody looks at.
            Code::TooLarge | Code::Unknown => Code::Unseen,
            code => code,
        };
        self.find(Finding::new(code, key, error.detail()));
        Ok(())
    }

    /// Reports a metadata file that zarrfs does not understand.
    fn report_metadata(&self, key: &str, error: &Error) {
        // The subject may be the attributes file, or a member.
        let subject = error.subject().and_then(|subject| Key::parse(subject).ok());
        let subject = subject.filter(|subject| self.documents.contains(subject));
        let key = subject.map_or_else(|| key.to_owned(), |key| key.to_string());
        let reason = match error.subject() {
            Some(subject) if subject != key => error.to_string(),
            _ => error.detail().to_owned(),
        };
        let code = match code_of(error, Code::Metadata) {
            Code::Metadata if !self.is_json(&key) => Code::NotJson,
            code => code,
        };
        self.find(Finding::new(code, key, reason));
    }

    fn is_json(&self, key: &str) -> bool {
        let Ok(key) = Key::parse(key) else { return true };
        // If it cannot be read, the error of the node says so.
        let value = self.hierarchy.store().get(&key, limits::METADATA.get()).unwrap_or_default();
        value.is_none_or(|value| json::parse_object(&value.bytes).is_ok())
    }

    /// Whether zarrfs understands the metadata of a node, or the node is gone with all its files.
    /// Otherwise the copy may be the only metadata left.
    fn is_sound(&self, path: &NodePath, found: Option<&Node>) -> Result<bool> {
        if let Some(found) = found.filter(|found| found.document().is_some()) {
            return Ok(match found.content() {
                Content::Array(array) => array.not_understood().is_none(),
                Content::Group(_) => true,
                Content::NotUnderstood(..) => false,
            });
        }
        let prefix = self.hierarchy.ordinary_prefix(path)?;
        let Some(list) = self.hierarchy.store().list() else { return Ok(false) };
        // If a directory cannot be read, there may be files in it, and so if it hides some.
        Ok(list.proves_absence()
            && list.list_prefix(&prefix).is_ok_and(|mut keys| keys.next().is_none()))
    }

    /// Returns the faults of the copies in a group, and whether all metadata files are there, so
    /// that new copies lose nothing.
    fn stale_copies(
        &self,
        path: &NodePath,
        copies: Vec<NodeCopy>,
        paths: &[NodePath],
    ) -> Result<(Vec<String>, bool)> {
        let mut copied = HashSet::new();
        let mut stale = Vec::new();
        let mut are_sound = true;
        for NodeCopy { path: node, text, content } in copies {
            copied.insert(node.clone());
            // The walk over all nodes has reported one that cannot be read.
            let Ok(found) = self.hierarchy.node(&node) else {
                are_sound = false;
                continue;
            };
            let shown = node.relative_to(path).unwrap_or_default().to_owned();
            let document = found.as_ref().and_then(|found| found.document());
            if document.is_some_and(|document| is_same_json(&document.text, &text)) {
                continue;
            }
            // zarr-python adds empty copies of groups that have no metadata file.
            let is_implicit = document.is_none()
                && found.as_ref().is_some_and(|found| found.kind() == NodeKind::Group);
            let why = match content {
                Ok(Content::Group(group)) if is_implicit && group.attributes.is_empty() => None,
                Ok(content) => difference_of_copy(&content, found.as_deref())
                    .map(|why| format!("{shown}: the metadata file differs: {why}")),
                Err(error) => Some(format!("{shown}: {error}")),
            };
            if let Some(why) = why {
                are_sound &= self.is_sound(&node, found.as_deref())?;
                stale.push(why);
            }
        }
        let mut left_out: Vec<&NodePath> = paths
            .iter()
            .filter(|node| *node != path && node.relative_to(path).is_some())
            .filter(|node| !copied.contains(*node))
            .collect();
        left_out.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        for node in left_out {
            let Ok(found) = self.hierarchy.node(node) else {
                are_sound = false;
                continue;
            };
            if found.as_ref().is_some_and(|found| found.document().is_some()) {
                are_sound &= self.is_sound(node, found.as_deref())?;
                let shown = node.relative_to(path).unwrap_or_default();
                stale
                    .push(format!("{shown}: has no copy, so readers of the copies do not find it"));
            }
        }
        Ok((stale, are_sound))
    }

    /// Compares consolidated metadata with the metadata files of their nodes.
    fn check_copies(&mut self) -> Result<()> {
        let paths: Vec<NodePath> = self.by_prefix.values().cloned().collect();
        for path in &paths {
            let copies = match self.hierarchy.copies().in_group(path) {
                Ok(Some(copies)) => copies,
                Ok(None) => continue,
                Err(error) => {
                    let key = error.subject().unwrap_or(path.as_str()).to_owned();
                    let code = match code_of(&error, Code::Metadata) {
                        Code::Metadata if !self.is_json(&key) => Code::NotJson,
                        code => code,
                    };
                    self.documents.extend(Key::parse(&key));
                    self.find(Finding::new(code, key, error.detail()));
                    continue;
                }
            };
            self.documents.insert(copies.key.clone());
            let (stale, are_sound) = self.stale_copies(path, copies.nodes, &paths)?;
            for reason in stale {
                let finding = Finding::new(Code::StaleCopy, &copies.key, reason);
                self.find(if are_sound {
                    finding.repaired_by(Repair::Consolidate(path.clone()))
                } else {
                    finding
                });
            }
        }
        Ok(())
    }
}

/// Whether a metadata file and its copy are equal as JSON.
fn is_same_json(stored: &[u8], copy: &str) -> bool {
    let parsed = |text: &[u8]| {
        let mut members = json::parse_object(text).ok()?;
        members.shift_remove("consolidated_metadata");
        Some(serde_json::Value::Object(members))
    };
    match (parsed(stored), parsed(copy.as_bytes())) {
        (Some(stored), Some(copy)) => json::same(&stored, &copy),
        _ => false,
    }
}
