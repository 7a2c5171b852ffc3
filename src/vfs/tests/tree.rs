//! The tree matches a simple model after nodes are created, moved and removed, in every dialect.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::Value;

use super::bed::{CHUNK_LEN, VfsBed};
use crate::error::{Kind, Result};
use crate::metadata::Dialect;
use crate::vfs::{Access, Ownership, Replace};

/// Directories that nodes are made in.
const DIRS: [&str; 6] = ["a", "b", "a/a", "a/b", "b/a", "a/b/a"];

/// Files in them: chunks, where they are arrays of four.
const FILES: [&str; 7] = ["c/0", "c/1", "c/3", "c/4", "c/note", "note", "other"];

#[derive(Debug, Clone)]
enum TreeStep {
    Mkdir(String),
    WriteGroup(String, Option<u8>),
    WriteArray(String),
    Put(String, Vec<u8>),
    RemoveDocument(String),
    Unlink(String),
    Rmdir(String),
    RemoveAll(String, bool),
    Move(String, String),
    Link(String, String),
    Sync,
    Tick,
    Remount,
}

fn step() -> impl Strategy<Value = TreeStep> {
    let dir = || prop::sample::select(&DIRS[..]).prop_map(str::to_owned);
    let any_dir = || {
        (dir(), prop::bool::weighted(0.3)).prop_map(
            |(dir, is_c)| {
                if is_c { format!("{dir}/c") } else { dir }
            },
        )
    };
    let file = || {
        (dir(), prop::sample::select(&FILES[..])).prop_map(|(dir, file)| format!("{dir}/{file}"))
    };
    let bytes = (any::<u8>(), prop::bool::weighted(0.9))
        .prop_map(|(byte, whole)| vec![byte; if whole { CHUNK_LEN } else { 3 }]);
    prop_oneof![
        8 => any_dir().prop_map(TreeStep::Mkdir),
        4 => (dir(), prop::option::of(any::<u8>())).prop_map(|(dir, title)| TreeStep::WriteGroup(dir, title)),
        6 => dir().prop_map(TreeStep::WriteArray),
        10 => (file(), bytes).prop_map(|(file, bytes)| TreeStep::Put(file, bytes)),
        2 => dir().prop_map(TreeStep::RemoveDocument),
        2 => file().prop_map(TreeStep::Unlink),
        2 => any_dir().prop_map(TreeStep::Rmdir),
        2 => (any_dir(), any::<bool>()).prop_map(|(dir, first)| TreeStep::RemoveAll(dir, first)),
        4 => (any_dir(), any_dir()).prop_map(|(from, to)| TreeStep::Move(from, to)),
        2 => (file(), file()).prop_map(|(from, to)| TreeStep::Link(from, to)),
        1 => Just(TreeStep::Sync),
        1 => Just(TreeStep::Tick),
        1 => Just(TreeStep::Remount),
    ]
}

/// The state of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dir {
    /// Made, and a group in time.
    Made,
    /// Kept for what lies in it; nothing becomes of it by itself.
    Kept,
    Group(Option<u8>),
    Array,
    /// An array whose document was removed.
    RemovedArray,
    /// In an array.
    Plain,
}

#[derive(Debug, Default, Clone)]
struct Model {
    dirs: BTreeMap<String, Dir>,
    /// The directories that became groups by themselves in this mount.
    became_groups: BTreeSet<String>,
    files: BTreeMap<String, Vec<u8>>,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

fn moved(path: &str, from: &str, to: &str) -> Option<String> {
    (path == from || is_below(path, from)).then(|| path.replacen(from, to, 1))
}

/// The array that a path is in, of whatever standing.
fn array_above<'m>(model: &'m Model, path: &str) -> Option<&'m str> {
    let is_array = |dir: &Dir| matches!(dir, Dir::Array | Dir::RemovedArray);
    let mut arrays = model.dirs.iter().filter(|(_, dir)| is_array(dir));
    arrays.find(|(array, _)| is_below(path, array)).map(|(array, _)| array.as_str())
}

/// Whether a directory is no node, and has files in or below it and no nodes.
fn holds_only_ordinary(model: &Model, path: &str) -> bool {
    let is_in = |found: &str| found == path || is_below(found, path);
    let is_bare = |dir: &Dir| matches!(dir, Dir::Made | Dir::Kept | Dir::RemovedArray);
    model.dirs.iter().filter(|(found, _)| is_in(found)).all(|(_, dir)| is_bare(dir))
        && model.files.keys().any(|file| is_below(file, path))
}

/// Whether a directory has a file that [`may_be_a_key`] says of, if it becomes an array.
fn holds_keys(model: &Model, path: &str) -> bool {
    let is_number =
        |file: &String| file.rsplit('/').next().is_some_and(|n| n.parse::<usize>().is_ok());
    model.files.keys().any(|file| parent(file) == path && is_number(file))
}

/// Whether a file right in an array has a name that is a chunk's key in some dialects, and only
/// a name in others. No step makes one.
fn may_be_a_key(model: &Model, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    array_above(model, path) == Some(parent(path)) && name.parse::<usize>().is_ok()
}

/// Whether a file would be a chunk that waits for a larger array. `tests/it/copied_model.rs` tries
/// these.
fn waits(model: &Model, path: &str) -> bool {
    let index = array_above(model, path).and_then(|array| chunk_index(path, array));
    index.is_some_and(|index| index > 3)
}

/// The index of a chunk in an array; more than three is none.
fn chunk_index(path: &str, array: &str) -> Option<usize> {
    path.strip_prefix(array)?.strip_prefix("/c/")?.parse().ok()
}

impl Model {
    fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || self.dirs.contains_key(path)
    }

    fn exists(&self, path: &str) -> bool {
        self.is_dir(path) || self.files.contains_key(path)
    }

    fn holds_nothing(&self, path: &str) -> bool {
        let shows = match self.dirs.get(path) {
            Some(Dir::Group(_)) => !self.became_groups.contains(path),
            dir => dir == Some(&Dir::Array),
        };
        !shows
            && !self.dirs.keys().any(|dir| is_below(dir, path))
            && !self.files.keys().any(|file| is_below(file, path))
    }

    /// The groups above a node that is stored are groups, once their makers have had time.
    fn made_above(&mut self, path: &str) {
        let mut above = parent(path).to_owned();
        while !above.is_empty() {
            if let Some(dir @ Dir::Kept) = self.dirs.get_mut(&above) {
                *dir = Dir::Made;
            }
            above = parent(&above).to_owned();
        }
    }

    fn mkdir(&mut self, path: &str) -> Result<(), Kind> {
        if self.exists(path) {
            return Err(Kind::Exists);
        }
        let in_array = array_above(self, path).is_some();
        self.dirs.insert(path.to_owned(), if in_array { Dir::Plain } else { Dir::Made });
        Ok(())
    }

    fn write_group(&mut self, path: &str, title: Option<u8>) -> Result<(), Kind> {
        match self.dirs[path] {
            Dir::Plain => return Err(Kind::NotPermitted),
            Dir::Array => return Err(Kind::Invalid),
            Dir::RemovedArray if self.dirs.keys().any(|dir| is_below(dir, path)) => {
                return Err(Kind::Invalid);
            }
            Dir::Made | Dir::Kept | Dir::RemovedArray => self.made_above(path),
            Dir::Group(_) => {}
        }
        self.dirs.insert(path.to_owned(), Dir::Group(title));
        self.became_groups.remove(path);
        Ok(())
    }

    fn write_array(&mut self, path: &str) -> Result<(), Kind> {
        match self.dirs[path] {
            Dir::Plain => return Err(Kind::NotPermitted),
            Dir::Group(Some(_)) => return Err(Kind::Invalid),
            Dir::Array => return Ok(()),
            Dir::RemovedArray => {}
            Dir::Made | Dir::Kept | Dir::Group(None) => {
                let is_node = |dir: &Dir| !matches!(dir, Dir::Made | Dir::Kept | Dir::Group(None));
                if self.dirs.iter().any(|(dir, kind)| is_below(dir, path) && is_node(kind)) {
                    return Err(Kind::Invalid);
                }
                for (file, bytes) in &self.files {
                    if let Some(index) = chunk_index(file, path)
                        && (index > 3 || bytes.len() != CHUNK_LEN)
                    {
                        return Err(Kind::Invalid);
                    }
                }
                for (dir, kind) in &mut self.dirs {
                    if is_below(dir, path) {
                        *kind = Dir::Plain;
                    }
                }
            }
        }
        self.made_above(path);
        self.dirs.insert(path.to_owned(), Dir::Array);
        self.became_groups.remove(path);
        Ok(())
    }

    /// Puts a whole file where there may be one.
    fn put(&mut self, path: &str, bytes: &[u8]) -> Result<(), Kind> {
        let index = array_above(self, path).and_then(|array| chunk_index(path, array));
        if index.is_some() && bytes.len() != CHUNK_LEN {
            return Err(Kind::Invalid);
        }
        self.files.insert(path.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn remove_document(&mut self, path: &str) -> Result<(), Kind> {
        let removed = match self.dirs[path] {
            Dir::Group(_) => Dir::Kept,
            Dir::Array => Dir::RemovedArray,
            _ => return Err(Kind::NotFound),
        };
        self.dirs.insert(path.to_owned(), removed);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Kind> {
        if from == to {
            return Ok(());
        }
        if self.dirs[from] == Dir::Plain {
            return Err(Kind::CrossDevice);
        }
        if is_below(to, from) {
            return Err(Kind::Invalid);
        }
        if array_above(self, to).is_some() {
            // Programs can copy ordinary files into an array.
            let is_plain = holds_only_ordinary(self, from);
            return Err(if is_plain { Kind::CrossDevice } else { Kind::NotPermitted });
        }
        if self.is_dir(to) && !self.holds_nothing(to) {
            return Err(Kind::NotEmpty);
        }
        let is_stored = |dir: &Dir| matches!(dir, Dir::Group(_) | Dir::Array);
        let stored =
            self.dirs.iter().any(|(dir, kind)| moved(dir, from, to).is_some() && is_stored(kind));
        self.dirs.remove(to);
        self.became_groups.remove(to);
        let groups = std::mem::take(&mut self.became_groups);
        self.became_groups =
            groups.into_iter().map(|dir| moved(&dir, from, to).unwrap_or(dir)).collect();
        let dirs = std::mem::take(&mut self.dirs);
        self.dirs = dirs
            .into_iter()
            .map(|(dir, kind)| (moved(&dir, from, to).unwrap_or(dir), kind))
            .collect();
        let files = std::mem::take(&mut self.files);
        self.files = files
            .into_iter()
            .map(|(file, bytes)| (moved(&file, from, to).unwrap_or(file), bytes))
            .collect();
        if stored {
            self.made_above(to);
        }
        Ok(())
    }

    /// Directories that were made are groups from now on.
    fn settle(&mut self) {
        let made = self.dirs.iter().filter(|(_, kind)| **kind == Dir::Made);
        for path in made.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            self.dirs.insert(path.clone(), Dir::Group(None));
            self.became_groups.insert(path.clone());
            self.made_above(&path);
        }
    }

    /// What no store keeps is gone, and what lies above nodes is a group.
    fn forget(&mut self) {
        let names: Vec<String> = self.dirs.keys().cloned().collect();
        for name in names.iter().rev() {
            let holds_node = self.dirs.iter().any(|(dir, kind)| {
                is_below(dir, name) && matches!(kind, Dir::Group(_) | Dir::Array)
            });
            let holds_file = self.files.keys().any(|file| is_below(file, name));
            match self.dirs[name] {
                // The store has a document for it already.
                Dir::Made => drop(self.dirs.insert(name.clone(), Dir::Group(None))),
                Dir::Kept if holds_node => drop(self.dirs.insert(name.clone(), Dir::Group(None))),
                Dir::Kept | Dir::Plain if !holds_file => drop(self.dirs.remove(name)),
                _ => {}
            }
        }
    }
}

fn document(kind: Dir) -> String {
    match kind {
        Dir::Array => super::bed::new_array(),
        Dir::Group(Some(title)) => {
            format!(r#"{{"zarr_format":3,"node_type":"group","attributes":{{"title":{title}}}}}"#)
        }
        _ => r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#.to_owned(),
    }
}

/// Writes a whole file, and says what its close said.
fn write(bed: &VfsBed, path: &str, bytes: &[u8]) -> Result<()> {
    let (parent, name) = (bed.find(parent(path))?, path.rsplit('/').next().unwrap_or(path));
    let (_, opened) =
        bed.vfs.create(parent, name, Ownership::of_process(0o644), Access::Truncate, false)?;
    let written = bed.vfs.write(opened.handle, 0, bytes);
    written.and(bed.close(opened.handle))
}

fn rmdir(bed: &VfsBed, path: &str) -> Result<()> {
    bed.vfs.rmdir(bed.find(parent(path))?, path.rsplit('/').next().unwrap_or(path))
}

/// As `rm -r` does it: everything that is listed, in the order of the listing or the other way
/// round.
pub(super) fn remove_all(bed: &VfsBed, path: &str, reversed: bool) -> Result<()> {
    let mut names = bed.names(path);
    if reversed {
        names.reverse();
    }
    for name in names {
        let below = format!("{path}/{name}");
        let number = bed.find(&below)?;
        if bed.vfs.getattr(number)?.is_dir() {
            remove_all(bed, &below, reversed)?;
        } else {
            bed.vfs.unlink(bed.find(path)?, &name)?;
        }
    }
    rmdir(bed, path)
}

fn apply(bed: &mut VfsBed, model: &mut Model, step: &TreeStep) -> Result<(), TestCaseError> {
    let has_parent = |model: &Model, path: &str| model.is_dir(parent(path));
    let (done, expected) = match step {
        TreeStep::Mkdir(path) if has_parent(model, path) => {
            let number = bed.find(parent(path)).expect("there");
            let made = bed.vfs.mkdir(
                number,
                path.rsplit('/').next().unwrap_or(path),
                Ownership::of_process(0o755),
            );
            (made.map(drop), model.mkdir(path))
        }
        TreeStep::WriteGroup(path, title) if model.dirs.contains_key(path) => {
            let text = document(Dir::Group(*title));
            let done = write(bed, &format!("{path}/zarr.json"), text.as_bytes());
            (done, model.write_group(path, *title))
        }
        TreeStep::WriteArray(path) if holds_keys(model, path) => return Ok(()),
        TreeStep::WriteArray(path) if model.dirs.contains_key(path) => {
            let done = write(bed, &format!("{path}/zarr.json"), document(Dir::Array).as_bytes());
            (done, model.write_array(path))
        }
        TreeStep::Put(path, _) | TreeStep::Link(_, path)
            if may_be_a_key(model, path) || waits(model, path) =>
        {
            return Ok(());
        }
        TreeStep::Put(path, bytes) if has_parent(model, path) => {
            (write(bed, path, bytes), model.put(path, bytes))
        }
        TreeStep::RemoveDocument(path) if model.dirs.contains_key(path) => {
            let done = bed.vfs.unlink(bed.find(path).expect("there"), "zarr.json");
            (done, model.remove_document(path))
        }
        TreeStep::Unlink(path) if model.files.contains_key(path) => {
            model.files.remove(path);
            let number = bed.find(parent(path)).expect("there");
            (bed.vfs.unlink(number, path.rsplit('/').next().unwrap_or(path)), Ok(()))
        }
        TreeStep::Rmdir(path) if model.dirs.contains_key(path) => {
            let is_empty = model.holds_nothing(path);
            if is_empty {
                model.dirs.remove(path);
                model.became_groups.remove(path);
            }
            (rmdir(bed, path), if is_empty { Ok(()) } else { Err(Kind::NotEmpty) })
        }
        TreeStep::RemoveAll(path, reversed) if model.dirs.contains_key(path) => {
            model.dirs.retain(|dir, _| dir != path && !is_below(dir, path));
            model.files.retain(|file, _| !is_below(file, path));
            model.became_groups.retain(|dir| dir != path && !is_below(dir, path));
            (remove_all(bed, path, *reversed), Ok(()))
        }
        TreeStep::Move(from, to) if model.dirs.contains_key(from) && has_parent(model, to) => {
            let ((old, new), name) = (
                (bed.find(parent(from)).expect("there"), bed.find(parent(to)).expect("there")),
                |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned(),
            );
            (bed.vfs.rename(old, &name(from), new, &name(to), Replace::Yes), model.rename(from, to))
        }
        TreeStep::Link(from, to) if model.files.contains_key(from) && has_parent(model, to) => {
            let bytes = model.files[from].clone();
            let number = bed.find(from).expect("there");
            let parent = bed.find(parent(to)).expect("there");
            let done = bed.vfs.link(number, parent, to.rsplit('/').next().unwrap_or(to));
            let expected = if model.exists(to) { Err(Kind::Exists) } else { model.put(to, &bytes) };
            (done.map(drop), expected)
        }
        TreeStep::Sync => {
            model.settle();
            (bed.vfs.sync(), Ok(()))
        }
        TreeStep::Tick => {
            model.settle();
            bed.vfs.tick();
            (Ok(()), Ok(()))
        }
        TreeStep::Remount => {
            // Without its document nobody can say what the chunks are that are left.
            for (path, _) in model.dirs.clone().iter().filter(|(_, dir)| **dir == Dir::RemovedArray)
            {
                apply(bed, model, &TreeStep::RemoveAll(path.clone(), false))?;
            }
            model.settle();
            model.forget();
            model.became_groups.clear();
            let synced = bed.vfs.sync();
            bed.remount();
            (synced, Ok(()))
        }
        _ => return Ok(()),
    };
    prop_assert_eq!(done.map_err(|error| error.kind()), expected, "{:?}", step);
    Ok(())
}

fn compare(bed: &VfsBed, model: &Model) -> Result<(), TestCaseError> {
    let mut expected: Vec<String> = model.dirs.keys().chain(model.files.keys()).cloned().collect();
    for (path, dir) in &model.dirs {
        if matches!(dir, Dir::Group(_) | Dir::Array) {
            expected.push(format!("{path}/zarr.json"));
        }
    }
    expected.push("zarr.json".to_owned());
    expected.sort();
    let mut found = Vec::new();
    collect(bed, "", &mut found);
    found.sort();
    prop_assert_eq!(found, expected);
    for (path, bytes) in &model.files {
        prop_assert_eq!(&bed.read(path).expect("read"), bytes, "{}", path);
    }
    for (path, dir) in &model.dirs {
        let shown = || -> Value {
            let text = bed.read(&format!("{path}/zarr.json")).expect("read");
            serde_json::from_slice(&text).expect("JSON")
        };
        match dir {
            Dir::Array => prop_assert_eq!(&shown()["node_type"], "array"),
            Dir::Group(None) => prop_assert_eq!(&shown()["attributes"], &serde_json::json!({})),
            Dir::Group(Some(title)) => prop_assert_eq!(&shown()["attributes"]["title"], title),
            _ => {}
        }
    }
    Ok(())
}

/// Adds the paths of all files and directories below `path`.
pub(super) fn collect(bed: &VfsBed, path: &str, found: &mut Vec<String>) {
    for name in bed.names(path) {
        let below = if path.is_empty() { name } else { format!("{path}/{name}") };
        let number = bed.find(&below).expect("listed and not there");
        if bed.vfs.getattr(number).expect("there").is_dir() {
            collect(bed, &below, found);
        }
        found.push(below);
    }
}

fn check(dialect: &Dialect, shards: bool, steps: &[TreeStep]) -> Result<(), TestCaseError> {
    let (mut bed, mut model) = (VfsBed::empty(dialect, shards), Model::default());
    let first = bed.keys();
    for step in steps.iter().chain([&TreeStep::Remount]) {
        apply(&mut bed, &mut model, step)?;
        compare(&bed, &model)?;
    }
    for name in ["a", "b"] {
        apply(&mut bed, &mut model, &TreeStep::RemoveAll(name.to_owned(), true))?;
    }
    prop_assert_eq!(bed.keys(), first, "keys are left behind");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn nodes_are_where_programs_put_them_live_and_after_a_remount(
        steps in prop::collection::vec(step(), 1..40),
        name in prop::sample::select(&["v3", "d2020-10", "v2", "n5", "d2019-06", "d2019-05"][..]),
        shards in any::<bool>(),
    ) {
        let dialect = Dialect::parse_name(name).expect("a dialect");
        check(&dialect, shards && matches!(name, "v3" | "d2020-10"), &steps)?;
    }
}
