use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::array::FillChunks;
use crate::error::Word;
use crate::hierarchy::HierarchyOptions;
use crate::metadata::{Dialect, Policy, Shards};
use crate::store::Store;
use crate::store::directory::{DirectoryStore, Durability};

const OPTIONS: CopyOptions = CopyOptions {
    threads: 1,
    verify: Verify::None,
    state: TargetState::Fresh,
    fill_chunks: FillChunks::Store,
    target: CopyTarget::Directory,
    cache_len: 1 << 20,
};

struct Silent;

impl CopyWatch for Silent {
    fn begin(&self, _: &NodePath, _: u64) {}

    fn advance(&self) {}

    fn go_on_without(&self, _: &Error) -> bool {
        false
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

fn open(dir: &Path, dialect: Option<Dialect>) -> Hierarchy {
    let store = DirectoryStore::open(dir, Durability::Buffered).expect("a directory");
    Hierarchy::open(Store::new(Arc::new(store)), dialect, HierarchyOptions::default())
        .expect("a hierarchy")
}

/// Replaces a file by one with the same length and time.
fn replace(file: &Path, bytes: &[u8]) {
    let new = file.with_extension("new");
    let modified = fs::metadata(file).and_then(|found| found.modified()).expect("a time");
    fs::write(&new, bytes).expect("written");
    fs::File::options().write(true).open(&new).expect("open").set_modified(modified).expect("set");
    fs::rename(&new, file).expect("renamed");
}

/// Makes an array of two chunks.
fn array_of_two(dir: &Path) {
    fs::create_dir_all(dir.join("c")).expect("made");
    let document = r#"{"zarr_format": 3, "node_type": "array", "shape": [8], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes"}], "attributes": {}}"#;
    fs::write(dir.join("zarr.json"), document).expect("written");
    for index in 0..2 {
        fs::write(dir.join(format!("c/{index}")), [1; 4]).expect("written");
    }
}

/// Makes an array of two chunks, and a directory for a copy of it.
fn places() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let place = tempfile::tempdir().expect("a directory");
    let (source, dest) = (place.path().join("source"), place.path().join("dest"));
    array_of_two(&source);
    fs::create_dir(&dest).expect("made");
    (place, source, dest)
}

/// Copies an array of two chunks. Before each survey but the first, replaces the chunk `c/1` by
/// four elements of the next value in `values`. Returns that chunk of the copy, and whether the
/// conversion reports that the array keeps changing.
fn copied(values: &[u8]) -> (Vec<u8>, bool) {
    let (_place, source_dir, dest_dir) = places();
    let (source, dest) = (open(&source_dir, None), open(&dest_dir, Some(Dialect::V3)));
    let root = NodePath::root();
    let plan =
        plan((&source, &root), (&dest, &root), &Requested::default(), &|| false).expect("a plan");
    let survey = || Survey::of(&plan, &Silent);
    let surveys = AtomicUsize::new(0);
    let survey_again = || {
        let count = surveys.fetch_add(1, Ordering::SeqCst);
        if let Some(value) = values.get(count) {
            replace(&source_dir.join("c/1"), &[*value; 4]);
        }
        survey()
    };
    let first = survey().expect("a survey");
    let copied = run(&dest, &plan, &first, &OPTIONS, &Silent, &survey_again).expect("copied");
    let stored = fs::read(dest_dir.join("c/1")).expect("a chunk");
    (stored, !copied.changing.is_empty())
}

#[test]
fn a_source_that_changes_to_the_end_is_named_though_its_times_are_kept() {
    assert_eq!(copied(&[2, 3]), (vec![3; 4], true));
}

#[test]
fn a_continued_copy_knows_what_was_passed_over_before() {
    let place = tempfile::tempdir().expect("a directory");
    let store = DirectoryStore::open(place.path(), Durability::Buffered).expect("a directory");
    let store = Store::new(Arc::new(store));
    let claim = |source: &str| Claim {
        arguments: serde_json::json!({}),
        session: "s".to_owned(),
        plan: "p".to_owned(),
        source: source.to_owned(),
    };
    let set = |source| Mark::set(&store, CopyTarget::Directory, &claim(source)).expect("marked");
    let passed = |error: &str| Passed { error: error.to_owned(), word: Word::Refused };
    let (mark, state) = set("one");
    assert!(state == TargetState::Fresh && mark.passed().is_empty());
    for error in ["a/c/0: cut", "a/c/1: cut", "a/c/0: cut"] {
        mark.pass_over(error, Word::Refused).expect("stored");
    }
    drop(mark);
    for _ in 0..2 {
        let (mark, state) = set("one");
        assert_eq!(
            (state, mark.passed()),
            (TargetState::Resumed, ["a/c/0: cut", "a/c/1: cut"].map(passed).to_vec())
        );
    }
    // Every value is compared again if the source has changed: it may be mended.
    let (mark, state) = set("two");
    assert!(state == TargetState::Doubtful && mark.passed().is_empty());
    mark.remove().expect("removed");
}

#[test]
fn a_source_with_only_new_inode_numbers_is_not_reported_as_changing() {
    assert_eq!(copied(&[1, 1]), (vec![1; 4], false));
    assert_eq!(copied(&[2, 2]), (vec![2; 4], false));
}

/// Stores a chunk of another program just before the copy stores the first one.
struct Preceded(PathBuf);

impl CopyWatch for Preceded {
    fn begin(&self, _: &NodePath, _: u64) {}

    fn advance(&self) {}

    fn go_on_without(&self, _: &Error) -> bool {
        false
    }

    fn before_storing(&self) -> Result<()> {
        fs::create_dir_all(self.0.parent().expect("a chunk")).expect("made");
        fs::write(&self.0, "theirs").expect("written");
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

#[test]
fn a_copy_replaces_no_chunk_that_another_program_stores_meanwhile() {
    let codecs = |text| Some(Policy::parse_codecs(text).expect("codecs"));
    let shards = Some(Shards::Shape(vec![8]));
    for requested in [
        Requested::default(),
        Requested { codecs: codecs("gzip"), ..Requested::default() },
        Requested { shards, ..Requested::default() },
    ] {
        let (_place, source_dir, dest_dir) = places();
        let (source, dest) = (open(&source_dir, None), open(&dest_dir, Some(Dialect::V3)));
        let root = NodePath::root();
        let plan = plan((&source, &root), (&dest, &root), &requested, &|| false).expect("a plan");
        let survey = || Survey::of(&plan, &Silent);
        let theirs = dest_dir.join("c/0");
        let watch = Preceded(theirs.clone());
        let first = survey().expect("a survey");
        let refused = run(&dest, &plan, &first, &OPTIONS, &watch, &survey).expect_err("refused");
        assert!(refused.to_string().contains("c/0: another program has stored it"), "{refused}");
        assert_eq!(fs::read(theirs).expect("there"), b"theirs");
    }
}
