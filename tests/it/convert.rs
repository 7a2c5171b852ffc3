//! `zarrfs convert`: what comes out, what is refused, and what an interruption leaves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zarrfs::array::{Array, Coords};
use zarrfs::hierarchy::{Content, Hierarchy, Options};
use zarrfs::metadata::NodePath;
use zarrfs::store::Store;
use zarrfs::store::directory::{DirectoryStore, Durability};

use crate::support::{said, zarrfs};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name).join("store")
}

fn convert(source: &Path, dest: &Path, more: &[&str]) -> String {
    let done = zarrfs().arg("convert").args([source, dest]).args(more).output().unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{} {more:?}: {error}", source.display());
    String::from_utf8(done.stdout).unwrap()
}

fn open(store: &Path) -> Hierarchy {
    let store = DirectoryStore::open(store, Durability::Buffered).unwrap();
    Hierarchy::open(Store::new(Arc::new(store)).read_only(), None, Options::default()).unwrap()
}

/// What a person sees of a node.
#[derive(Debug, PartialEq)]
enum Seen {
    Group(String),
    /// Attributes, names, and the elements of the array, the fill value where nothing is stored.
    Array(String, Vec<Option<String>>, Vec<Vec<u8>>),
}

fn seen(store: &Path) -> BTreeMap<String, Seen> {
    let hierarchy = open(store);
    let mut all = BTreeMap::new();
    let mut left = vec![NodePath::root()];
    while let Some(path) = left.pop() {
        let node = hierarchy.existing(&path).unwrap();
        match node.content() {
            Content::Group(group) => {
                let attributes = serde_json::to_string(&group.attributes).unwrap();
                all.insert(path.to_string(), Seen::Group(attributes));
                left.extend(
                    hierarchy.children(&path).unwrap().map(|child| child.unwrap().path().clone()),
                );
            }
            Content::Array(array) => {
                let mut attributes = array.model().attributes.clone();
                attributes.sort_keys();
                let attributes = serde_json::to_string(&attributes).unwrap();
                let names = array.model().dimension_names.clone();
                all.insert(path.to_string(), Seen::Array(attributes, names, elements(array)));
            }
            Content::NotUnderstood(_, error) => panic!("{path}: {error}"),
        }
    }
    all
}

/// The elements of an array in C order; of those with lengths of their own the chunks.
fn elements(array: &Arc<Array>) -> Vec<Vec<u8>> {
    let shape = &array.model().shape;
    let mut places = vec![vec![]];
    for len in shape {
        places = places
            .into_iter()
            .flat_map(|place| (0..*len).map(move |index| [&place[..], &[index]].concat()))
            .collect();
    }
    let mut chunks = BTreeMap::new();
    let mut chunk = |coords: Coords| {
        let read = || {
            let read = array.read_chunk(&coords).unwrap().map(|(decoded, _)| decoded);
            read.unwrap_or_else(|| array.fill_chunk(&coords).unwrap()).to_vec()
        };
        chunks.entry(coords.indices().to_vec()).or_insert_with(read).clone()
    };
    let item_len = array.model().dtype.item_len();
    let of = |place: Vec<u64>| {
        let lens = array.chunk_shape();
        let coords: Vec<u64> = place.iter().zip(lens).map(|(index, len)| index / len).collect();
        let within = place.iter().zip(lens).fold(0, |sum, (index, len)| sum * len + index % len);
        let chunk = chunk(Coords::new(coords));
        if array.model().dtype.is_variable() {
            return chunk;
        }
        chunk[usize::try_from(within).unwrap() * item_len..][..item_len].to_vec()
    };
    places.into_iter().map(of).collect()
}

#[test]
fn there_and_back_again_nothing_has_changed() {
    let place = tempfile::tempdir().unwrap();
    for (case, formats) in [
        ("z316__shard_end", &["v2", "n5", "d2020-10", "d2020-09", "d2019-06", "d2019-05"][..]),
        ("z316__groups_consolidated", &["v2", "n5", "d2020-10", "d2019-05"]),
        ("z342__dtypes_extension", &["v3", "v2"]),
        ("z218v2__f_order", &["v3", "n5", "d2020-10"]),
        ("z218v2__filters", &["v3"]),
        ("z218v2__consolidated", &["v3", "d2020-10"]),
        ("z218v3__shard_2x2_missing", &["v3", "v2", "d2019-05"]),
        ("z218v3__groups", &["v3", "v2"]),
        ("z218n5__compressors", &["v3", "v2", "d2020-10"]),
        ("xtensorzarr__basic", &["v3"]),
    ] {
        let source = fixture(case);
        let dialect = open(&source).dialect().name();
        for format in formats {
            let (there, back) = (place.path().join("there"), place.path().join("back"));
            convert(&source, &there, &["--format", format, "--verify"]);
            assert_eq!(open(&there).dialect().name(), *format, "{case}");
            convert(&there, &back, &["--format", dialect, "--verify"]);
            let (old, new) = (seen(&source), seen(&back));
            assert_eq!(old.keys().collect::<Vec<_>>(), new.keys().collect::<Vec<_>>());
            for (path, seen) in &old {
                assert_eq!(&new[path], seen, "{case} by way of {format}: {path}");
            }
            for dir in [there, back] {
                assert!(!dir.join(".zarrfs").exists(), "{case} {format}: the mark has stayed");
                fs::remove_dir_all(dir).unwrap();
            }
        }
    }
}

#[test]
fn chunks_and_shards_of_any_shape_hold_the_same_elements() {
    let place = tempfile::tempdir().unwrap();
    let source = fixture("z316__shard_missing");
    let old = seen(&source);
    for (chunks, shards, codecs) in [
        ("2,5", "none", "gzip"),
        ("7,10", "none", "none"),
        ("1,1", "4,4", "zstd,crc32c"),
        ("5,3", "10,6", "blosc"),
        ("3,4", "1M", "zstd"),
        ("100,100", "none", "zstd"),
    ] {
        let dest = place.path().join("dest");
        let wishes = ["--chunks", chunks, "--shards", shards, "--codecs", codecs, "--verify"];
        convert(&source, &dest, &wishes);
        assert_eq!(seen(&dest), old, "{wishes:?}");
        fs::remove_dir_all(dest).unwrap();
    }
}

#[test]
fn what_the_target_cannot_hold_is_said_before_anything_is_stored() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (fixture("z342__dtypes_extension"), place.path().join("dest"));
    let [from, to] = [&source, &dest].map(|path| path.to_str().unwrap());
    let (code, sentences) = said(&["convert", from, to, "--format", "d2020-10"]);
    assert_eq!(code, 1, "{sentences}");
    assert!(sentences.contains("/vlen_bytes: codec"), "{sentences}");
    assert!(sentences.contains("--skip-unsupported"), "{sentences}");
    assert!(!dest.exists(), "something was stored");
    convert(&source, &dest, &["--format", "d2020-10", "--skip-unsupported"]);
    assert!(!seen(&dest).contains_key("/vlen_bytes"));
    let (code, sentence) = said(&["convert", from, to, "--format", "d2020-10"]);
    assert_eq!(code, 1);
    assert!(sentence.contains("not empty"), "{sentence}");
    let inside = source.join("inside");
    let (code, sentence) = said(&["convert", from, inside.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(sentence.contains("into itself") && !inside.exists(), "{sentence}");
}

#[test]
fn a_part_is_copied_with_the_groups_above_it() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (fixture("z316__groups_consolidated"), place.path().join("dest"));
    convert(&source, &dest, &["--only", "g1/g2/x"]);
    let found: Vec<String> = seen(&dest).into_keys().collect();
    assert_eq!(found, ["/", "/g1", "/g1/g2", "/g1/g2/x"]);
    let node = place.path().join("node");
    convert(&source.join("g1"), &node, &["--format", "v2"]);
    assert!(node.join("g2/x/.zarray").exists());
}

#[test]
fn an_empty_option_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (fixture("z316__groups_consolidated"), place.path().join("dest"));
    let [from, to] = [&source, &dest].map(|path| path.to_str().unwrap());
    for option in ["--only", "--chunks", "--shards", "--codecs"] {
        let (code, sentence) = said(&["convert", from, to, option, ""]);
        assert_eq!(code, 2, "{option}: {sentence}");
        assert!(sentence.contains(option), "{sentence}");
        assert!(!dest.exists(), "{option}: something was stored");
    }
}

#[test]
fn encoded_chunks_are_copied_as_they_are() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (fixture("z218v2__compressors"), place.path().join("dest"));
    let said = convert(&source, &dest, &[]);
    let copied = said.lines().filter(|line| line.ends_with("chunks copied as they are"));
    assert!(copied.count() > 5 && !said.contains("encoded anew"), "{said}");
    for name in ["zlib", "zstd", "blosc_default"] {
        let old = fs::read(source.join(name).join("0.0")).unwrap();
        assert_eq!(fs::read(dest.join(name).join("c/0/0")).unwrap(), old, "{name}");
    }
    let back = place.path().join("back");
    let said = convert(&dest, &back, &["--format", "v2"]);
    assert!(!said.contains("encoded anew"), "{said}");
}

#[test]
fn a_conversion_that_was_interrupted_goes_on_with_the_same_arguments_alone() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (fixture("z316__groups_consolidated"), place.path().join("dest"));
    let to = dest.to_str().unwrap();
    convert(&source, &dest, &[]);
    let whole = seen(&dest);
    fs::remove_dir_all(&dest).unwrap();
    // As a conversion leaves it that is killed before its documents: a chunk of its own and the mark.
    let arguments = [source.to_str().unwrap(), to];
    fs::create_dir_all(dest.join("top/c/0")).unwrap();
    fs::create_dir_all(dest.join(".zarrfs")).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let mark = serde_json::json!({
        "arguments": {
            "source": source.canonicalize().unwrap(), "from": null, "format": "v3", "codecs": null,
            "chunks": null, "shards": null, "only": [], "skip_unsupported": false,
        },
        "session": boot.trim(),
    });
    fs::write(dest.join(".zarrfs/convert"), mark.to_string()).unwrap();
    fs::copy(source.join("top/c/0/0"), dest.join("top/c/0/0")).unwrap();
    let (code, sentence) = said(&[&["convert"], &arguments[..], &["--format", "v2"]].concat());
    assert_eq!(code, 1);
    assert!(sentence.contains("other arguments"), "{sentence}");
    let said = convert(&source, &dest, &["--verify"]);
    assert!(said.contains("17 values stored, 1 were there already, all read back"), "{said}");
    assert_eq!(seen(&dest), whole);
    assert!(!dest.join(".zarrfs").exists());
}

#[test]
fn attributes_go_over_in_the_words_that_are_stored() {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/z218v2__attrs_bare_nan/store");
    let dir = tempfile::tempdir().unwrap();
    let there = dir.path().join("v3");
    let back = dir.path().join("v2");
    for (from, to, format) in [(&fixture, &there, "v3"), (&there, &back, "v2")] {
        let output =
            zarrfs().arg("convert").args([from, to]).args(["--format", format]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let mut bare = 0;
    for entry in walk(&back) {
        let text = String::from_utf8_lossy(&fs::read(entry).unwrap()).into_owned();
        assert!(!text.contains("\"NaN\"") || text.contains("fill_value"), "{text}");
        bare += usize::from(text.contains("NaN") && !text.contains("fill_value"));
    }
    assert!(bare > 0, "no attribute is NaN");
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
    }
    files
}
