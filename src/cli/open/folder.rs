//! Finds the hierarchies in a plain directory, and the files that are read as hierarchies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use crate::cli::open;
use crate::error::Result;
use crate::files::{self, FileFormat};
use crate::metadata::{Dialect, NodePath, declared};
use crate::resources;
use crate::store::directory::Durability;
use crate::store::grafted::Grafted;
use crate::store::refs::{SourceStores, Spelling};
use crate::store::{Key, Prefix, Store};

/// The most directories to look into.
const MAX_DIRECTORIES: usize = 10_000;

/// The most levels of directories above a hierarchy.
const MAX_DEPTH: usize = 3;

/// The metadata file of N5. That of a group says nothing of N5 unless it is the root.
const N5_ATTRIBUTES: &str = "attributes.json";

/// The hierarchies and files in a plain directory.
#[derive(Debug, Default)]
pub struct FolderContents {
    /// Hierarchies, and files that are shown as such.
    pub parts: Vec<(NodePath, Dialect)>,
    /// The keys of these files, by the paths of their nodes.
    files: BTreeMap<String, String>,
}

impl FolderContents {
    /// Finds the hierarchies in `root`, which is none itself, and files of other formats. Nothing,
    /// if a single dialect can show all of them.
    pub fn find(root: &Path) -> Self {
        let mut found = Found::default();
        if !found.look(root) {
            return Self::default();
        }
        let Found { mut parts, with_attributes, files, .. } = found;
        for group in with_attributes {
            join_n5(&group, &mut parts);
        }
        let is_draft = |dialect: &Dialect| matches!(dialect, Dialect::Draft(_));
        let are_alike =
            parts.windows(2).all(|pair| matches!(pair, [(_, one), (_, other)] if one == other));
        if are_alike && files.is_empty() && !parts.iter().any(|(_, dialect)| is_draft(dialect)) {
            return Self::default();
        }
        let mut folder = Self { parts, files: BTreeMap::new() };
        folder.name(files);
        folder
    }

    /// Gives each file a node: of its name without the ending (`run.nc` is `run`), or of its whole
    /// name if something else has that (`run_nc`, since `run.nc` is the file).
    fn name(&mut self, files: Vec<NodePath>) {
        let short = |path: &NodePath| {
            let name = path.name()?;
            let stem = FileFormat::stem(name).filter(|stem| !stem.is_empty())?;
            path.parent()?.child(stem).ok()
        };
        let mut seen: BTreeSet<NodePath> = BTreeSet::new();
        let mut twice: BTreeSet<NodePath> =
            self.parts.iter().map(|(path, _)| path.clone()).collect();
        for node in files.iter().filter_map(short) {
            if !seen.insert(node.clone()) {
                twice.insert(node);
            }
        }
        for file in files {
            let node = short(&file).filter(|node| !twice.contains(node));
            let whole = || {
                let name = file.name().unwrap_or_default().replace('.', "_");
                file.parent().and_then(|group| group.child(&name).ok())
            };
            let Some(node) = node.or_else(whole).filter(|node| !twice.contains(node)) else {
                continue;
            };
            self.files.insert(node.as_str().to_owned(), file.as_str().to_owned());
            self.parts.push((node, Dialect::V3));
        }
    }

    /// Returns the store of the directory `root` with the files as hierarchies in it.
    pub fn store(&mut self, store: Store, root: &Path) -> Store {
        if self.files.is_empty() {
            return store;
        }
        let (own, root) = (store.clone(), root.to_owned());
        let open = move |key: &str| open_file(&own, &root, key, "");
        let files = std::mem::take(&mut self.files);
        Store::reading(Arc::new(Grafted::new(store.read_only(), files, Box::new(open))))
    }

    /// Returns the store of a node that is a file of the directory `root`, or in one; `None` if
    /// the node is in no file.
    pub fn store_of(&self, store: &Store, root: &Path, node: &NodePath) -> Result<Option<Store>> {
        let above = node.ancestors();
        for path in above.iter().chain([node]) {
            if let Some(key) = self.files.get(path.as_str()) {
                let below = node.relative_to(path).unwrap_or_default();
                return open_file(store, root, key, below).map(Some);
            }
        }
        Ok(None)
    }
}

/// Opens the file at `key` of the directory `root` as a hierarchy, or the node `below` in it.
fn open_file(own: &Store, root: &Path, key: &str, below: &str) -> Result<Store> {
    let mut places = SourceStores::new(own.clone(), Spelling::Plain);
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    places.allow_own([root.display().to_string().as_str()]);
    // Several are open at a time.
    let most = resources::memory_limit() / 16;
    files::open(own, &Key::parse(key)?, Prefix::parse(below)?, places, most)
}

/// The hierarchies and files that were found so far.
#[derive(Debug, Default)]
struct Found {
    parts: Vec<(NodePath, Dialect)>,
    /// Directories with attributes as N5 has them.
    with_attributes: Vec<NodePath>,
    /// Files of other formats, by their paths.
    files: Vec<NodePath>,
}

impl Found {
    /// Looks into a directory and those below it. Returns `false` if there are too many.
    fn look(&mut self, root: &Path) -> bool {
        let mut waiting = VecDeque::from([(root.to_owned(), NodePath::root(), 0)]);
        let mut seen = 0_usize;
        while let Some((directory, path, depth)) = waiting.pop_front() {
            // A directory that cannot be read is not shown.
            let Ok(entries) = std::fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let Some(child) = name.to_str().and_then(|name| path.child(name).ok()) else {
                    continue;
                };
                let kind = entry.file_type();
                if !kind.as_ref().is_ok_and(std::fs::FileType::is_dir) {
                    // A link may lead to such a file, and opening a FIFO would block.
                    let is_named = name.to_str().is_some_and(FileFormat::is_of_arrays);
                    if is_named && std::fs::metadata(entry.path()).is_ok_and(|it| it.is_file()) {
                        self.files.push(child);
                    }
                    continue;
                }
                seen = seen.saturating_add(1);
                if seen > MAX_DIRECTORIES {
                    return false;
                }
                let directory = entry.path();
                match open::store(&directory, Durability::Buffered).map(|store| declared(&store)) {
                    Ok(Ok(Some(dialect))) => self.parts.push((child, dialect)),
                    Ok(Ok(None)) if depth < MAX_DEPTH => {
                        if directory.join(N5_ATTRIBUTES).is_file() {
                            self.with_attributes.push(child.clone());
                        }
                        waiting.push_back((directory, child, depth.saturating_add(1)));
                    }
                    _ => {}
                }
            }
        }
        true
    }
}

/// Puts a group with attributes in the place of the hierarchies below it, if all are of N5.
fn join_n5(group: &NodePath, parts: &mut Vec<(NodePath, Dialect)>) {
    let is_below = |path: &NodePath| path.relative_to(group).is_some_and(|below| !below.is_empty());
    let mut below = parts.iter().filter(|(path, _)| is_below(path)).peekable();
    if below.peek().is_none() || below.any(|(_, dialect)| *dialect != Dialect::N5) {
        return;
    }
    parts.retain(|(path, _)| !is_below(path));
    parts.push((group.clone(), Dialect::N5));
}
