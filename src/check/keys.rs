//! Lists every key and determines what it belongs to: a node, a chunk, or nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::chunks::code_of;
use super::finding::{Code, Finding, Repair};
use super::names::leftover_of;
use super::nodes::Nodes;
use super::options::CheckWatch;
use super::queue::{CheckUnit, Queue};
use super::seen::{StoredBits, coords_of};
use super::spelling::spelled_otherwise;
use super::target::CheckedArray;
use super::unlisted::{asked, keys_of};
use crate::array::decode_key;
use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Hierarchy, is_like_chunk};
use crate::limits;
use crate::metadata::NodePath;
use crate::store::directory::is_lock_of_key;
use crate::store::{Key, ListableStore, PRIVATE, Prefix, StoreEntry};

/// The deepest nesting of directories to list.
const MAX_DEPTH: usize = 256;

/// The most names of a directory to compare without regard to case.
const MOST_NAMES: usize = 1 << 20;

/// The most chunks of an array whose missing chunks are reported one by one.
const MOST_POSSIBLE: u64 = 1 << 30;

/// Lists and classifies the keys of a hierarchy.
pub struct KeyCheck<'k> {
    hierarchy: &'k Hierarchy,
    nodes: &'k Nodes<'k>,
    expects_all: bool,
    /// Whether the keys of chunks are listed.
    lists_chunks: bool,
    watch: &'k dyn CheckWatch,
    /// The files that may be chunks of nodes that are not understood.
    pub unclear: AtomicU64,
}

/// Whether files below a directory may belong to a node that is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    Known,
    Unclear,
}

impl<'k> KeyCheck<'k> {
    pub fn new(
        hierarchy: &'k Hierarchy,
        nodes: &'k Nodes<'k>,
        expects_all: bool,
        lists_chunks: bool,
        watch: &'k dyn CheckWatch,
    ) -> Self {
        let unclear = AtomicU64::new(0);
        Self { hierarchy, nodes, expects_all, lists_chunks, watch, unclear }
    }

    /// Lists the keys of the node at `path` and of the nodes below it.
    pub fn list(&self, path: &NodePath, queue: &Queue) {
        let Some(list) = self.hierarchy.store().list() else { return self.ask(path, queue) };
        let prefixes = match self.prefixes(path) {
            Ok(prefixes) => prefixes,
            Err(error) => return self.report(&error, path.as_str()),
        };
        for prefix in &prefixes {
            if let Err(error) = self.report_writer_files(list, prefix) {
                self.report(&error, path.as_str());
            }
            self.walk(list, prefix, Around::Known, 0, queue);
        }
    }

    /// Asks for each chunk of the arrays at `path` and below it, because the store lists no names.
    fn ask(&self, path: &NodePath, queue: &Queue) {
        let asks = if self.lists_chunks { "each chunk is asked for, and " } else { "" };
        let reason = format!("the store does not list names, so {asks}other files are not checked");
        let shown = if path.is_root() { "/" } else { path.as_str() };
        self.find(Finding::new(Code::Unknown, shown, reason));
        if !self.lists_chunks {
            return;
        }
        let is_below = |target: &&Arc<CheckedArray>| target.path.relative_to(path).is_some();
        for target in self.nodes.targets.values().filter(is_below) {
            let shown = if target.path.is_root() { "/" } else { target.path.as_str() };
            match asked(target.array.prefix(), target, self.hierarchy.store()) {
                Ok(keys) => {
                    if let Err(error) = self.add_keys(keys, target, queue) {
                        self.report(&error, shown);
                    }
                }
                Err(too_many) => {
                    target.note_unlisted();
                    self.find(Finding::new(Code::Unknown, shown, too_many.detail()));
                }
            }
        }
    }

    /// Returns the prefixes that hold all keys of a node and of the nodes below it.
    fn prefixes(&self, path: &NodePath) -> Result<Vec<Prefix>> {
        if path.is_root() && self.hierarchy.dialect().base().is_root() {
            return Ok(vec![Prefix::root()]);
        }
        let dialect = self.hierarchy.dialect_of(path);
        let mut prefixes = vec![dialect.children_prefix(path)?, dialect.chunk_prefix(path)?];
        prefixes.dedup();
        Ok(prefixes)
    }

    fn find(&self, finding: Finding) {
        self.watch.find(finding);
    }

    fn report(&self, error: &Error, at: &str) {
        let key = error.subject().unwrap_or(at).to_owned();
        self.find(Finding::new(code_of(error, Code::Unreadable), key, error.detail()));
    }

    /// Reports a key whose value this check does not read, if the store has another name for the
    /// value. Returns whether that is so.
    fn is_misnamed(&self, key: &Key) -> bool {
        let checked = self.hierarchy.store().read().check_name(key);
        checked.inspect_err(|error| self.report(error, key.as_str())).is_err()
    }

    /// Reports a directory that cannot be listed.
    fn report_list(&self, error: &Error, at: &str) {
        let key = error.subject().unwrap_or(at).to_owned();
        let code = match code_of(error, Code::Unreadable) {
            // Anything may be there.
            Code::Unknown => Code::Unseen,
            code => code,
        };
        self.find(Finding::new(code, key, error.detail()));
    }

    fn report_writer_files(&self, list: &dyn ListableStore, prefix: &Prefix) -> Result<()> {
        for file in list.writer_files(prefix)? {
            // Other names are those of files of the user.
            let name = file.path.rsplit('/').next().unwrap_or(&file.path);
            if file.is_held || !file.is_session && !is_lock_of_key(name) {
                continue;
            }
            let (reason, repair) = if file.is_session {
                ("a zarrfs process that was killed while writing", Repair::Recover)
            } else {
                (
                    "a writer that was killed (zarrfs or TensorStore)",
                    Repair::RemoveLock(file.path.clone()),
                )
            };
            let finding = Finding::new(Code::Leftover, file.path, format!("left by {reason}"));
            self.find(finding.repaired_by(repair));
        }
        Ok(())
    }

    /// Lists the directory at `prefix` and everything below it.
    fn walk(
        &self,
        list: &dyn ListableStore,
        prefix: &Prefix,
        around: Around,
        depth: usize,
        queue: &Queue,
    ) {
        if self.watch.is_stopped() {
            return;
        }
        let shown = prefix.as_str().trim_end_matches('/');
        if let Some(target) = self.nodes.targets.get(prefix) {
            let targets = std::iter::once(target).chain(self.nodes.targets_below(prefix));
            for target in targets.filter(|_| self.lists_chunks) {
                if let Err(error) = self.list_array(list, target, queue) {
                    self.report(&error, target.array.prefix().as_str().trim_end_matches('/'));
                }
            }
            return;
        }
        let around = match (self.nodes.unclear.contains(prefix), around) {
            (true, _) => Around::Unclear,
            (false, _) if self.nodes.by_prefix.contains_key(prefix) => Around::Known,
            (false, around) => around,
        };
        if depth >= MAX_DEPTH {
            let reason = format!("directories nested more than {MAX_DEPTH} deep");
            return self.find(Finding::new(Code::Unseen, shown, reason));
        }
        for name in self.names_below(list, prefix, around) {
            match prefix.join(&name) {
                Ok(below) => self.walk(list, &below, around, depth.saturating_add(1), queue),
                Err(error) => self.report(&error, shown),
            }
        }
    }

    /// Says to what each file in a directory belongs. Returns the names of the directories in it to
    /// go on with, in order.
    fn names_below(
        &self,
        list: &dyn ListableStore,
        prefix: &Prefix,
        around: Around,
    ) -> Vec<String> {
        let shown = prefix.as_str().trim_end_matches('/');
        let mut below = Vec::new();
        let entries = match list.list_dir(prefix) {
            Ok(entries) => entries,
            Err(error) => {
                self.report_list(&error, shown);
                return below;
            }
        };
        let mut by_case: HashMap<String, String> = HashMap::new();
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.report_list(&error, shown);
                    break;
                }
            };
            self.compare_case(prefix, entry.name(), &mut by_case);
            match entry {
                StoreEntry::Prefix(name) if prefix.is_root() && name == PRIVATE => {
                    self.list_private(list);
                }
                StoreEntry::Prefix(name) => below.push(name),
                StoreEntry::Key(name) => match prefix.key(&name) {
                    Ok(key) => self.classify(&key, prefix, around),
                    Err(error) => self.report(&error, shown),
                },
            }
            if self.watch.is_stopped() {
                return Vec::new();
            }
        }
        drop(by_case);
        below.sort_unstable();
        below
    }

    fn compare_case(&self, prefix: &Prefix, name: &str, known: &mut HashMap<String, String>) {
        if known.len() >= MOST_NAMES || name.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return;
        }
        let folded = name.to_lowercase();
        match known.get(&folded) {
            Some(other) => {
                let (one, two) = if name < other.as_str() {
                    (name, other.as_str())
                } else {
                    (other.as_str(), name)
                };
                let reason = format!("differs from {two} only in case");
                self.find(Finding::new(Code::Case, format!("{prefix}{one}"), reason));
            }
            None => drop(known.insert(folded, name.to_owned())),
        }
    }

    /// Reports the files that unfinished changes of several keys left behind.
    fn list_private(&self, list: &dyn ListableStore) {
        let listed = || -> Result<()> {
            for entry in list.list_dir(&Prefix::parse(PRIVATE)?)? {
                let entry = entry?;
                let key = format!("{PRIVATE}/{}", entry.name());
                let is_conversion = entry.name() == "convert";
                let finding = if is_conversion {
                    let reason = "a conversion into this hierarchy was interrupted: run the same \
                                  command again";
                    Finding::new(Code::Unfinished, key, reason)
                } else {
                    let reason = "a change to several files was interrupted, or another mount is \
                                  still making it";
                    Finding::new(Code::Unfinished, key, reason).repaired_by(Repair::Recover)
                };
                self.find(finding);
            }
            Ok(())
        };
        if let Err(error) = listed() {
            self.report(&error, PRIVATE);
        }
    }

    /// Classifies a key outside all arrays, and reports it if it belongs to no node.
    fn classify(&self, key: &Key, prefix: &Prefix, around: Around) {
        let dialect = self.dialect_at(prefix);
        if self.nodes.documents.contains(key) || self.is_entry_point(key) {
            return;
        }
        let list = self.hierarchy.store().list();
        if list.is_some_and(|list| list.is_shown_otherwise(key)) {
            return;
        }
        if self.is_misnamed(key) || self.report_leftover(key) {
            return;
        }
        if dialect.may_be_of_other(key) && self.report_other(key, prefix) {
            return;
        }
        if around == Around::Unclear {
            if is_like_chunk(key.name()) {
                self.unclear.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        if is_like_chunk(key.name()) {
            let reason = "has the name of a chunk, but belongs to no array";
            self.find(Finding::new(Code::NoArray, key, reason));
        } else {
            let reason = match self.hierarchy.store().stat(key) {
                Ok(Some(_)) => "belongs neither to a node nor to a chunk",
                Ok(None) => "a dangling link",
                Err(error) if error.kind() == Kind::Os(libc::ELOOP) => "a circular symbolic link",
                // Another program may follow the link, and find the directory of a node.
                Err(error) => return self.report(&error, key.as_str()),
            };
            self.find(Finding::new(Code::Foreign, key, reason));
        }
    }

    fn dialect_at(&self, prefix: &Prefix) -> &crate::metadata::Dialect {
        match self.nodes.by_prefix.get(prefix) {
            Some(path) => self.hierarchy.dialect_of(path),
            None => self.hierarchy.dialect(),
        }
    }

    /// Whether a key is the entry point of a draft.
    fn is_entry_point(&self, key: &Key) -> bool {
        let above = key.parent();
        if above.is_root() {
            return self.hierarchy.dialect().is_entry_point(key.name());
        }
        // In a folder of hierarchies, each has an entry point of its own.
        self.hierarchy.is_in_folder(&NodePath::root())
            && NodePath::parse(above.as_str().trim_end_matches('/'))
                .is_ok_and(|path| self.hierarchy.dialect_of(&path).is_entry_point(key.name()))
    }

    /// Reports a temporary file. Returns whether the key is one.
    fn report_leftover(&self, key: &Key) -> bool {
        let Some(program) = leftover_of(key.name()) else { return false };
        let reason = format!("has the name of a temporary file of {program}");
        let finding = Finding::new(Code::Leftover, key, reason);
        self.find(finding.repaired_by(Repair::Remove(key.clone())));
        true
    }

    /// Reports a metadata file of another dialect. Returns whether the key is one.
    fn report_other(&self, key: &Key, prefix: &Prefix) -> bool {
        let value = match self.hierarchy.store().get(key, limits::METADATA.get()) {
            Ok(Some(value)) => value,
            Ok(None) => return true,
            Err(error) => {
                self.report(&error, key.as_str());
                return true;
            }
        };
        let own = self.dialect_at(prefix);
        let Some(other) = own.other_file(key, &value.bytes) else { return false };
        let target = self.nodes.targets.get(prefix);
        let finding = match (&other.array, target) {
            (Some(Ok(other_array)), Some(target)) => {
                let (one, two) = (target.array.model(), other_array);
                let differs = if one.shape != two.shape {
                    Some(format!("shape {:?}, not {:?}", two.shape, one.shape))
                } else if one.dtype != two.dtype {
                    Some(format!("data type {}, not {}", two.dtype.name(), one.dtype.name()))
                } else if one.chunk_shape != two.chunk_shape
                    && target.array.chunk_shape() != two.chunk_shape
                {
                    Some(format!("chunks {:?}, not {:?}", two.chunk_shape, one.chunk_shape))
                } else {
                    None
                };
                differs.map(|why| {
                    let reason =
                        format!("contradicts the {} metadata beside it: {why}", own.name());
                    Finding::new(Code::Contradiction, key, reason)
                })
            }
            (Some(Ok(_)), None) if self.nodes.by_prefix.contains_key(prefix) => {
                let reason = format!("describes an array, but the {} metadata do not", own.name());
                Some(Finding::new(Code::Contradiction, key, reason))
            }
            (Some(Err(error)), _) => {
                let reason = format!("invalid {} metadata: {error}", other.dialect);
                Some(Finding::new(Code::OtherMetadata, key, reason))
            }
            _ => None,
        };
        self.find(finding.unwrap_or_else(|| {
            let reason = format!("{} metadata beside the {} metadata", other.dialect, own.name());
            Finding::new(Code::OtherMetadata, key, reason)
        }));
        true
    }

    /// Lists the keys of an array, and queues its stored values.
    fn list_array(
        &self,
        list: &dyn ListableStore,
        target: &Arc<CheckedArray>,
        queue: &Queue,
    ) -> Result<()> {
        let keys = list.list_known(target.array.prefix(), "");
        let keys = keys.inspect_err(|_| target.note_unlisted())?;
        let store = self.hierarchy.store();
        self.add_keys(
            keys.flat_map(|found| keys_of(found, target, store, self.watch)),
            target,
            queue,
        )
    }

    /// Queues the stored values of an array, which has these `keys`.
    fn add_keys(
        &self,
        keys: impl Iterator<Item = Result<Key>>,
        target: &Arc<CheckedArray>,
        queue: &Queue,
    ) -> Result<()> {
        let array = &target.array;
        let Some(direct) = array.levels().first() else { return Ok(()) };
        let (grid, rank) = (direct.grid(), direct.grid().rank());
        let (prefix, encoding) = (array.prefix(), array.model().key_encoding);
        let possible = grid.counts().iter().fold(1_u64, |all, n| all.saturating_mul(*n));
        let counts_missing = self.expects_all && possible <= MOST_POSSIBLE;
        let mut seen = counts_missing.then(|| StoredBits::new(possible)).transpose()?;
        let mut scalar: Option<Key> = None;
        let mut lister = queue.lister();
        for key in keys {
            if self.watch.is_stopped() {
                return Ok(());
            }
            let key = match key {
                Ok(key) => key,
                Err(error) => {
                    target.note_unlisted();
                    self.report(&error, prefix.as_str().trim_end_matches('/'));
                    continue;
                }
            };
            let text = key.as_str().get(prefix.as_str().len()..).unwrap_or_default();
            let Some(coords) = decode_key(encoding, text, rank) else {
                self.classify_in_array(&key, text, target);
                continue;
            };
            if !grid.contains(&coords) {
                if self.is_misnamed(&key) {
                    continue;
                }
                let reason = format!("the array has the shape {:?}", array.model().shape);
                self.find(Finding::new(Code::OutsideGrid, &key, reason));
                continue;
            }
            if rank == 0
                && let Some(other) = scalar.replace(key.clone())
            {
                if self.is_misnamed(&key) {
                    continue;
                }
                let reason = format!("names the same chunk as {other}");
                self.find(Finding::new(Code::OtherSpelling, &key, reason));
                continue;
            }
            if let Some(seen) = &mut seen {
                seen.add(&coords, grid.counts());
            }
            target.value_count.fetch_add(1, Ordering::Relaxed);
            lister.add(CheckUnit { target: Arc::clone(target), level: 0, coords });
            self.watch.expect(1);
        }
        drop(lister);
        let is_listed = !target.is_unlisted.load(Ordering::Relaxed);
        if self.expects_all && array.not_understood().is_none() && is_listed {
            self.report_missing(target, seen.as_ref(), possible);
        }
        Ok(())
    }

    /// Classifies a key in an array that is not the key of a chunk.
    fn classify_in_array(&self, key: &Key, text: &str, target: &CheckedArray) {
        let (prefix, rank) = (target.array.prefix(), target.array.levels().first());
        let rank = rank.map_or(0, |direct| direct.grid().rank());
        let is_private = prefix.is_root() && text.starts_with(&format!("{PRIVATE}/"));
        if self.nodes.documents.contains(key) || self.is_entry_point(key) {
            return self.report_inner_node(key, target);
        }
        // A key in an array below this one is classified with the keys of that array.
        if self.nodes.innermost_below(prefix, key).is_some() || self.is_misnamed(key) {
            return;
        }
        if is_private {
            let name = text.split('/').nth(1).unwrap_or_default();
            let reason = "a change to several files was interrupted, or another mount is still \
                          making it";
            let finding = Finding::new(Code::Unfinished, format!("{PRIVATE}/{name}"), reason);
            return self.find(finding.repaired_by(Repair::Recover));
        }
        if self.report_leftover(key) {
            return;
        }
        let own = target.array.model().key_encoding;
        if let Some(coords) = spelled_otherwise(own, text, rank) {
            let found = target.array.levels().first().map(|direct| direct.key(&coords));
            let reason = match found {
                Some(Ok(right)) => format!("readers look for this chunk at {right}"),
                _ => "a chunk outside the array, in another spelling".to_owned(),
            };
            return self.find(Finding::new(Code::OtherSpelling, key, reason));
        }
        if key.parent() == *prefix && self.dialect_at(prefix).may_be_of_other(key) {
            if self.report_other(key, prefix) {
                return;
            }
        } else if self.dialect_at(prefix).is_document(key) && key.parent() != *prefix {
            return self.report_node_in(key, target);
        }
        self.find(Finding::new(Code::Foreign, key, "belongs neither to a node nor to a chunk"));
    }

    /// Reports the metadata file of a node that lies below the array `target`, and below no other
    /// array in it.
    fn report_inner_node(&self, key: &Key, target: &CheckedArray) {
        let (prefix, above) = (target.array.prefix(), key.parent());
        let directory = above.as_key();
        let is_of_other =
            directory.is_some_and(|it| self.nodes.innermost_below(prefix, &it).is_some());
        if above != *prefix && !is_of_other && self.dialect_at(prefix).is_document(key) {
            self.report_node_in(key, target);
        }
    }

    fn report_node_in(&self, key: &Key, target: &CheckedArray) {
        let reason = format!("a node below the array {}", target.path);
        self.find(Finding::new(Code::NodeInArray, key, reason));
    }

    fn report_missing(&self, target: &CheckedArray, seen: Option<&StoredBits>, possible: u64) {
        let Some(direct) = target.array.levels().first() else { return };
        let Some(seen) = seen else {
            let stored = target.value_count.load(Ordering::Relaxed);
            let missing = possible.saturating_sub(stored);
            let reason = format!("{missing} of {possible} chunks are not stored: too many to list");
            let prefix = target.array.prefix().as_str().trim_end_matches('/').to_owned();
            let prefix = if prefix.is_empty() { "/".to_owned() } else { prefix };
            return self.find(Finding::new(Code::Missing, prefix, reason));
        };
        for number in seen.missing() {
            if self.watch.is_stopped() {
                return;
            }
            let coords = coords_of(number, direct.grid().counts());
            if let Ok(key) = direct.key(&coords) {
                self.find(Finding::new(Code::Missing, key, "not stored"));
            }
        }
    }
}
