//! `zarrfs convert`: what comes out, what is refused, and what an interruption leaves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use zarrfs::array::{Array, Coords};
use zarrfs::hierarchy::{Content, Hierarchy, HierarchyOptions};
use zarrfs::metadata::NodePath;
use zarrfs::store::Store;
use zarrfs::store::directory::{DirectoryStore, Durability};

use crate::support::{Mount, copy, json_of, said, until, zarrfs};

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
    Hierarchy::open(Store::new(Arc::new(store)).read_only(), None, HierarchyOptions::default())
        .unwrap()
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
fn a_copy_of_a_copy_equals_the_source() {
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
fn nodes_that_the_target_cannot_hold_are_reported_before_anything_is_stored() {
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
    assert!(sentence.contains("neither empty"), "{sentence}");
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
fn a_part_that_is_not_a_node_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (fixture("z316__groups_consolidated"), place.path().join("dest"));
    let to = dest.to_str().unwrap();
    for (node, only, part) in [
        ("g1/g2/x", "c", "the source is an array"),
        ("g1/g2/x", "c/0", "the source is an array"),
        ("", "g1/g2/x/c", "no such node"),
        ("", "g1/g2/x/c/0", "no such node"),
        ("", "g1/none", "no such node"),
    ] {
        let from = source.join(node);
        let (code, sentence) = said(&["convert", from.to_str().unwrap(), to, "--only", only]);
        assert_eq!(code, 1, "{node} {only}: {sentence}");
        assert!(sentence.contains(part) && sentence.contains(only), "{sentence}");
        assert!(!dest.exists(), "{node} {only}: something was stored");
    }
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
fn attributes_are_copied_as_they_are_spelled() {
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

#[test]
fn names_in_any_encoding_reach_every_dialect_and_stay_different() {
    // Half of a surrogate pair, which Python writes, and Latin-1, as programs before Unicode wrote.
    let group: &[u8] = b"{\"a\\udc00\": 1, \"a\\udc01\": \"\\ud800\", \"n\xe4me\": \"\xb5m\"}";
    let array = json!({"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4",
        "compressor": null, "fill_value": 0, "order": "C", "filters": null});
    for format in ["v2", "v3", "n5", "d2020-10", "d2019-05"] {
        let dir = tempfile::tempdir().unwrap();
        let [source, copy] = ["s", "t"].map(|name| dir.path().join(name));
        fs::create_dir_all(source.join("x")).unwrap();
        fs::write(source.join(".zgroup"), "{\"zarr_format\": 2}").unwrap();
        fs::write(source.join(".zattrs"), group).unwrap();
        fs::write(source.join("x/.zarray"), array.to_string()).unwrap();
        fs::write(source.join("x/.zattrs"), b"{\"units\": \"\xb0C\"}").unwrap();
        convert(&source, &copy, &["--format", format]);
        let texts: Vec<String> = walk(&copy)
            .into_iter()
            .map(|file| String::from_utf8(fs::read(file).unwrap()).expect("UTF-8"))
            .collect();
        for part in ["\"a\\udc00\"", "\"a\\udc01\"", "\"\\ud800\"", "\"näme\"", "\"µm\"", "\"°C\""]
        {
            assert!(texts.iter().any(|text| text.contains(part)), "{format} {part}: {texts:?}");
        }
        let paths = [&source, &copy].map(|path| path.to_str().unwrap());
        let (code, text) = said(&["diff", paths[0], paths[1]]);
        assert_eq!(code, 0, "{format}: {text}");
    }
}

#[test]
fn a_copy_in_zarr_2_keeps_fill_values_and_attributes_that_no_other_dialect_can_say() {
    let json2 = json!([{"id": "json2", "encoding": "utf-8", "allow_nan": true, "strict": true,
        "check_circular": true, "ensure_ascii": true, "indent": null, "separators": [",", ":"],
        "skipkeys": false, "sort_keys": true}]);
    let (none, strings) = (json!(null), json!([{"id": "vlen-utf8"}]));
    let cases = [
        ("null", json!([4]), json!("<i4"), none.clone(), &none, json!({})),
        ("objects", json!([4]), json!("|O"), none.clone(), &json2, json!({})),
        ("scalar", json!([]), json!("<i4"), json!(3), &none, json!({})),
        (
            "named",
            json!([4]),
            json!("<i4"),
            json!(7),
            &none,
            json!({"_FillValue": -1, "_ARRAY_DIMENSIONS": ["x"]}),
        ),
        (
            "zero",
            json!([4]),
            json!("<i4"),
            json!(0),
            &none,
            json!({"_FillValue": -1, "_ARRAY_DIMENSIONS": ["x"]}),
        ),
        ("plain", json!([4]), json!(">f4"), json!("NaN"), &none, json!({"_FillValue": -1})),
        // zarr-python 3 reads it as "0".
        ("strings", json!([4]), json!("|O"), json!(0), &strings, json!({})),
    ];
    let dir = tempfile::tempdir().unwrap();
    let [source, copy, other] = ["s", "t", "u"].map(|name| dir.path().join(name));
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join(".zgroup"), "{\"zarr_format\": 2}").unwrap();
    for (name, shape, dtype, fill, filters, attributes) in &cases {
        let at = source.join(name);
        fs::create_dir_all(&at).unwrap();
        let document = json!({"zarr_format": 2, "shape": shape, "chunks": shape, "dtype": dtype,
            "compressor": null, "fill_value": fill, "order": "C", "filters": filters});
        fs::write(at.join(".zarray"), document.to_string()).unwrap();
        fs::write(at.join(".zattrs"), attributes.to_string()).unwrap();
    }
    convert(&source, &copy, &["--format", "v2"]);
    for (name, _, _, fill, _, attributes) in &cases {
        assert_eq!(&json_of(&copy.join(name).join(".zarray"))["fill_value"], fill, "{name}");
        let found = copy.join(name).join(".zattrs");
        let found = if found.exists() { json_of(&found) } else { json!({}) };
        assert_eq!(&found, attributes, "{name}");
    }
    // What another dialect cannot say is announced.
    let paths = [&source, &other].map(|path| path.to_str().unwrap());
    let (code, text) = said(&["convert", paths[0], paths[1]]);
    assert_eq!(code, 0, "{text}");
    for name in ["named", "zero"] {
        assert!(
            text.contains(&format!("/{name}: the copy does not have its attribute _FillValue, -1")),
            "{text}"
        );
    }
    assert_eq!(text.matches("_FillValue").count(), 2, "{text}");
}

#[test]
fn a_fill_value_gets_the_spelling_of_the_target() {
    for spelled in [json!("0x616263"), json!([97, 98, 99]), json!("YWJj")] {
        let dir = tempfile::tempdir().unwrap();
        let [source, copy] = ["s", "t"].map(|name| dir.path().join(name));
        fs::create_dir(&source).unwrap();
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [4],
            "data_type": "r24", "fill_value": spelled, "codecs": [{"name": "bytes"}],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default"}, "attributes": {}});
        fs::write(source.join("zarr.json"), document.to_string()).unwrap();
        convert(&source, &copy, &["--format", "v2"]);
        assert_eq!(json_of(&copy.join(".zarray"))["fill_value"], "YWJj", "{spelled}");
    }
}

#[test]
fn a_fill_value_of_bytes_is_the_same_in_both_versions() {
    // zarr-python 3.1.6 writes these for b"\0f", b"abcd", b"", b"ab" and b"\xff\xfe" in either
    // version.
    for fill in ["AGY=", "YWJjZA==", "", "YWI=", "//4="] {
        let dir = tempfile::tempdir().unwrap();
        let [v3, v2, back] = ["v3", "v2", "back"].map(|name| dir.path().join(name));
        fs::create_dir(&v3).unwrap();
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [4],
            "data_type": "variable_length_bytes", "fill_value": fill,
            "codecs": [{"name": "vlen-bytes"}], "attributes": {},
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default"}});
        fs::write(v3.join("zarr.json"), document.to_string()).unwrap();
        convert(&v3, &v2, &["--format", "v2"]);
        assert_eq!(json_of(&v2.join(".zarray"))["fill_value"], fill);
        convert(&v2, &back, &["--format", "v3"]);
        assert_eq!(json_of(&back.join("zarr.json"))["fill_value"], fill);
    }
}

/// An array `x` of so many chunks of one element each along two dimensions, all stored; its
/// directory.
fn many(place: &Path, along: usize) -> PathBuf {
    let source = place.join("source.zarr");
    let shape = format!("{along},{along}");
    let path = source.join("x");
    let words = ["create", path.to_str().unwrap(), "--shape", &shape, "--chunks", "1,1"];
    assert_eq!(said(&[&words[..], &["--dtype", "int32", "--codecs", "none"]].concat()).0, 0);
    for row in 0..along {
        fs::create_dir_all(source.join(format!("x/c/{row}"))).unwrap();
        for column in 0..along {
            let element = i32::try_from(row * along + column + 1).unwrap();
            fs::write(source.join(format!("x/c/{row}/{column}")), element.to_le_bytes()).unwrap();
        }
    }
    source
}

/// How many chunks of an array of two dimensions are stored.
fn stored_chunks(at: &Path) -> usize {
    let entries = |at: &Path| fs::read_dir(at).into_iter().flatten().flatten();
    let is_chunk =
        |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.parse::<u64>().is_ok());
    let rows = entries(at).flat_map(|row| entries(&row.path()));
    rows.filter(|chunk| is_chunk(&chunk.file_name())).count()
}

/// A conversion that was stopped as soon as it had stored a chunk; it is killed at the end.
struct Stopped(std::process::Child);

impl Stopped {
    fn start(source: &Path, dest: &Path, more: &[&str]) -> Self {
        let mut command = zarrfs();
        command.arg("convert").args([source, dest]).args(more);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        let this = Self(command.spawn().unwrap());
        let mark = dest.join(".zarrfs/convert");
        let holder = format!("aside-{}-", this.0.id());
        let is_marked = || fs::read_to_string(&mark).is_ok_and(|mark| mark.contains(&holder));
        // More than the threads that may each be in the midst of one.
        until("the first chunks", || is_marked() && stored_chunks(&dest.join("x/c")) > 20);
        this.signal("-STOP");
        assert!(is_marked(), "it was faster than the signal");
        this
    }

    fn signal(&self, signal: &str) {
        let id = self.0.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Lets it go on; its exit code, and what it says.
    fn end(mut self) -> (Option<i32>, String) {
        use std::io::Read;
        self.signal("-CONT");
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.0.wait().unwrap().code(), said)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn an_interrupted_conversion_continues_only_with_the_same_arguments() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (many(place.path(), 24), place.path().join("dest"));
    drop(Stopped::start(&source, &dest, &[]));
    let arguments = [source.to_str().unwrap(), dest.to_str().unwrap()];
    let (code, sentence) = said(&[&["convert"], &arguments[..], &["--format", "v2"]].concat());
    assert_eq!(code, 1);
    assert!(sentence.contains("other arguments"), "{sentence}");
    let said = convert(&source, &dest, &["--verify"]);
    assert!(
        !said.contains("576 chunks and shards stored") && said.contains("were there already"),
        "{said}"
    );
    assert!(said.contains("all read back"), "{said}");
    assert_eq!(seen(&dest), seen(&source));
    assert!(!dest.join(".zarrfs").exists());
}

#[test]
fn only_one_of_two_conversions_into_a_target_runs() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (many(place.path(), 24), place.path().join("dest"));
    let words = ["convert", source.to_str().unwrap(), dest.to_str().unwrap()];
    let first = Stopped::start(&source, &dest, &[]);
    let (code, sentence) = said(&words);
    assert_eq!(code, 1, "{sentence}");
    assert!(sentence.contains("another conversion is writing here"), "{sentence}");
    // What has been killed is no longer at work.
    drop(first);
    let second = Stopped::start(&source, &dest, &[]);
    assert_eq!(said(&words).0, 1);
    assert_eq!(second.end().0, Some(0));
    assert_eq!(seen(&dest), seen(&source));
    assert!(!dest.join(".zarrfs").exists());
    let (code, sentence) = said(&words);
    assert_eq!(code, 1);
    assert!(sentence.contains("neither empty"), "{sentence}");
    // Of many that begin at the same time one runs.
    let dest = place.path().join("race");
    let run = || {
        let output = zarrfs().arg("convert").args([&source, &dest]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let ends: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let good = ends.iter().filter(|(code, _)| *code == Some(0)).count();
    assert_eq!(good, 1, "{ends:?}");
    assert_eq!(seen(&dest), seen(&source));
}

#[test]
fn changed_chunks_are_copied_again_after_an_interruption() {
    for more in [&[][..], &["--codecs", "zstd"], &["--chunks", "2,3"], &["--shards", "[4,4]"]] {
        let place = tempfile::tempdir().unwrap();
        let (source, dest) = (many(place.path(), 24), place.path().join("dest"));
        drop(Stopped::start(&source, &dest, more));
        // Those that were copied come first.
        for (row, column) in [(0, 0), (0, 1), (5, 5), (23, 23)] {
            let new = source.join("x/new");
            fs::write(&new, (-1_i32).to_le_bytes()).unwrap();
            fs::rename(&new, source.join(format!("x/c/{row}/{column}"))).unwrap();
        }
        for column in 2..8 {
            fs::remove_file(source.join(format!("x/c/0/{column}"))).unwrap();
            fs::remove_file(source.join(format!("x/c/1/{column}"))).unwrap();
        }
        fs::remove_dir_all(source.join("x/c/2")).unwrap();
        convert(&source, &dest, more);
        assert_eq!(seen(&dest), seen(&source), "{more:?}");
        let chunks = |store: &Path| open(store).existing(&NodePath::parse("x").unwrap()).unwrap();
        let count = |store: &Path| {
            Arc::clone(chunks(store).array().unwrap().chunks()).list().unwrap().count()
        };
        if more.is_empty() {
            assert_eq!(count(&dest), count(&source), "chunks that have gone are there still");
        }
    }
}

#[test]
fn a_replaced_array_is_copied_after_an_interruption() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (many(place.path(), 24), place.path().join("dest"));
    drop(Stopped::start(&source, &dest, &[]));
    fs::remove_dir_all(source.join("x")).unwrap();
    let path = source.join("y");
    let words = ["create", path.to_str().unwrap(), "--shape", "4", "--dtype", "int8"];
    assert_eq!(said(&words).0, 0);
    convert(&source, &dest, &[]);
    assert_eq!(seen(&dest), seen(&source));
    assert!(!dest.join("x").exists(), "the old array is there still");
}

#[test]
fn a_change_of_the_source_during_a_conversion_is_copied_or_refused() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (many(place.path(), 24), place.path().join("dest"));
    let replace = |name: &str, bytes: &[u8]| {
        let new = place.path().join("new");
        fs::write(&new, bytes).unwrap();
        fs::rename(&new, source.join(name)).unwrap();
    };
    let document = fs::read(source.join("x/zarr.json")).unwrap();
    let other = String::from_utf8(document).unwrap().replace("24,", "23,");
    let group = fs::read(source.join("zarr.json")).unwrap();
    let group =
        String::from_utf8(group).unwrap().replace("\"attributes\": {", "\"attributes\": {\"a\": 1");
    for (name, bytes) in [
        ("x/c/0/0", &(-1_i32).to_le_bytes()[..]),
        ("x/c/23/23", &(-1_i32).to_le_bytes()),
        ("zarr.json", group.as_bytes()),
        ("x/zarr.json", other.as_bytes()),
    ] {
        let running = Stopped::start(&source, &dest, &[]);
        replace(name, bytes);
        let (code, sentence) = running.end();
        if name.ends_with("zarr.json") {
            assert_eq!(code, Some(1), "{name}: {sentence}");
            assert!(
                sentence.contains("the metadata of the source changed at /"),
                "{name}: {sentence}"
            );
            assert!(!dest.join("zarr.json").exists(), "{name}: it looks whole");
            convert(&source, &dest, &[]);
        } else {
            assert_eq!(code, Some(0), "{name}: {sentence}");
        }
        assert_eq!(seen(&dest), seen(&source), "{name}");
        fs::remove_dir_all(&dest).unwrap();
    }
}

#[test]
fn a_source_with_new_inode_numbers_is_compared_with_the_copy() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (many(place.path(), 24), place.path().join("dest"));
    // What replaces a chunk has its length and its time.
    let replace = |name: &str, bytes: &[u8]| {
        let (old, new) = (source.join(name), place.path().join("new"));
        fs::write(&new, bytes).unwrap();
        let times = fs::metadata(&old).unwrap().modified().unwrap();
        fs::File::options().write(true).open(&new).unwrap().set_modified(times).unwrap();
        fs::rename(&new, &old).unwrap();
    };
    for name in ["x/c/0/0", "x/c/23/23"] {
        let running = Stopped::start(&source, &dest, &["--codecs", "zstd"]);
        let bytes = fs::read(source.join(name)).unwrap();
        replace(name, &bytes);
        let (code, sentence) = running.end();
        assert_eq!(code, Some(0), "{name}: {sentence}");
        assert_eq!(seen(&dest), seen(&source), "{name}");
        fs::remove_dir_all(&dest).unwrap();
    }
    let running = Stopped::start(&source, &dest, &["--codecs", "zstd", "--threads", "1"]);
    replace("x/c/0/0", &(-7_i32).to_le_bytes());
    replace("x/c/0/1", &(-7_i32).to_le_bytes());
    let (code, sentence) = running.end();
    assert_eq!(code, Some(0), "{sentence}");
    assert_eq!(seen(&dest), seen(&source));
}

#[test]
fn an_unchanged_source_in_a_mount_counts_as_unchanged() {
    let place = tempfile::tempdir().unwrap();
    let source = many(place.path(), 20);
    let mount = Mount::of(|store| copy(&source, store), &["--metadata-ttl", "0s"]);
    let dest = place.path().join("dest");
    let said = convert(&mount.path(), &dest, &["--codecs", "gzip", "--verify"]);
    assert!(said.contains("400 chunks and shards stored"), "{said}");
    assert_eq!(seen(&dest), seen(&source));
}

/// An array of one dimension whose name is said, with chunk 0 stored and no other.
fn sparse(place: &Path, chunks: u64, more: &[&str]) -> PathBuf {
    let source = place.join("sparse.zarr");
    let path = source.join("x");
    let shape = (chunks * 2).to_string();
    let words = ["create", path.to_str().unwrap(), "--shape", &shape, "--chunks", "2"];
    let names = ["--dtype", "float32", "--codecs", "none", "--dimensions", "t"];
    assert_eq!(said(&[&words[..], &names, more].concat()).0, 0);
    fs::create_dir_all(source.join("x/c")).unwrap();
    let elements: Vec<u8> = [1_f32, 2.].into_iter().flat_map(f32::to_le_bytes).collect();
    fs::write(source.join("x/c/0"), elements).unwrap();
    source
}

#[test]
fn a_sparse_array_is_not_filled_with_too_many_chunks() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (sparse(place.path(), 10_000_000_000, &[]), place.path().join("dest"));
    let [from, to] = [&source, &dest].map(|path| path.to_str().unwrap());
    let (code, sentence) = said(&["convert", from, to, "--format", "v2"]);
    assert_eq!(code, 1, "{sentence}");
    for part in [
        "/x: v2 cannot store its fill value",
        "all 10000000000 chunks",
        "--skip-missing-chunks",
        "--chunks",
    ] {
        assert!(sentence.contains(part), "{sentence}");
    }
    assert!(!dest.exists(), "something was stored");
    // Without the need to fill it stays what it is, in chunks of any shape.
    for more in [
        &["--format", "v2", "--skip-missing-chunks"][..],
        &["--format", "v3"],
        &["--format", "v3", "--chunks", "5"],
        &["--format", "v3", "--shards", "[64]"],
        &["--format", "d2020-10", "--chunks", "1"],
    ] {
        convert(&source, &dest, &[more, &["--verify"]].concat());
        let node = open(&dest).existing(&NodePath::parse("x").unwrap()).unwrap();
        let array = node.array().unwrap();
        let count = Arc::clone(array.chunks()).list().unwrap().count();
        assert!((1..=2).contains(&count), "{more:?}: {count} chunks");
        let chunk = array.read_chunk(&Coords::new(vec![0])).unwrap().unwrap().0;
        assert_eq!(&chunk[..4], 1_f32.to_le_bytes(), "{more:?}");
        fs::remove_dir_all(&dest).unwrap();
    }
}

#[test]
fn the_chunks_that_a_target_without_a_fill_value_needs_are_announced_and_stored() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (sparse(place.path(), 300, &[]), place.path().join("dest"));
    let output = zarrfs()
        .arg("convert")
        .args([&source, &dest])
        .args(["--format", "v2", "--verify"])
        .output()
        .unwrap();
    let sentence = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{sentence}");
    assert!(sentence.contains("/x: v2 cannot store its fill value, so all 300"), "{sentence}");
    assert_eq!(walk(&dest.join("x")).len(), 302, "chunks and two documents");
    assert_eq!(seen(&dest).keys().collect::<Vec<_>>(), ["/", "/x"]);
    // One that is whole is not worth a word, and stays encoded as it is.
    let dense = sparse(&place.path().join("dense"), 1, &[]);
    let said = convert(&dense, &place.path().join("whole"), &["--format", "v2"]);
    assert!(said.contains("chunks copied as they are"), "{said}");
}

#[test]
fn elements_of_missing_chunks_keep_their_values() {
    let place = tempfile::tempdir().unwrap();
    // xarray masks -999, and what is not stored is no number. Zarr 2 has one value for both.
    let masked = r#"{"_FillValue": "AAAAAAA4j8A="}"#;
    let source = sparse(place.path(), 5, &["--fill", "NaN", "--attrs", masked]);
    for more in [&[][..], &["--chunks", "3"]] {
        let dest = place.path().join("dest");
        convert(&source, &dest, &[more, &["--format", "v2"]].concat());
        let of = |store: &Path| {
            let node = open(store).existing(&NodePath::parse("x").unwrap()).unwrap();
            elements(node.array().unwrap())
        };
        assert_eq!(of(&dest), of(&source), "{more:?}");
        fs::remove_dir_all(&dest).unwrap();
    }
}

#[test]
fn a_target_in_a_mount_works_like_one_in_a_directory() {
    for format in ["v3", "v2", "d2020-10", "n5"] {
        for (case, more) in [
            ("z316__shard_end", &[][..]),
            ("z316__shard_end", &["--codecs", "none"]),
            ("z316__shard_end", &["--codecs", "gzip", "--shards", "none", "--verify"]),
            ("z316__groups_consolidated", &["--verify"]),
            ("z218v2__compressors", &["--codecs", "zstd"]),
            ("z218v2__f_order", &["--chunks", "2,2"]),
        ] {
            if format == "n5" && (case == "z218v2__compressors" || more.contains(&"gzip")) {
                continue; // It has no codec for them all, and takes no encoded chunks.
            }
            for shards in ["none", "16M"] {
                if shards != "none" && (["v2", "n5"].contains(&format) || !more.is_empty()) {
                    continue;
                }
                let options = ["--create", "--format", format, "--shards", shards];
                let mount = Mount::new(&options);
                let (source, out) = (fixture(case), mount.at("out"));
                convert(&source, &out, more);
                let old = seen(&source);
                assert_eq!(seen(&out), old, "{case} in {format}");
                assert!(!out.join(".zarrfs").exists(), "{case} {format}: the mark has stayed");
                mount.unmount();
                let stored = seen(&mount.store());
                for (path, seen) in &old {
                    let path = format!("/out{}", path.trim_end_matches('/'));
                    let found = stored.get(&path);
                    assert_eq!(found, Some(seen), "{case} {more:?} stored in {format}: {path}");
                }
                assert_eq!(stored.len(), old.len() + 1, "{case} in {format}: {:?}", stored.keys());
            }
        }
    }
}

#[test]
fn nodes_that_a_mount_rejects_are_refused_before_anything_is_stored() {
    let source = fixture("z316__shard_end");
    let from = source.to_str().unwrap();
    let mount = Mount::new(&["--create"]);
    let to = mount.at("out");
    for (more, part) in [
        (&["--format", "v2"][..], "remove --format"),
        (&["--shards", "64M"], "mount with --shards"),
    ] {
        let (code, sentence) = said(&[&["convert", from, to.to_str().unwrap()], more].concat());
        assert_eq!(code, 1, "{sentence}");
        assert!(sentence.contains(part), "{sentence}");
        assert!(!to.exists(), "{more:?}: something was made");
    }
    // A mount of the source is the source.
    let inside = mount.at("g/out");
    let own = mount.store();
    let (code, sentence) = said(&["convert", own.to_str().unwrap(), inside.to_str().unwrap()]);
    assert_eq!(code, 1, "{sentence}");
    assert!(sentence.contains("into itself"), "{sentence}");
    let views = Mount::fixture("z316__shard_end", &["--as", "npy"]);
    let to = views.at("out");
    let (code, sentence) = said(&["convert", from, to.to_str().unwrap()]);
    assert_eq!(code, 1, "{sentence}");
    assert!(sentence.contains("does not show Zarr 3"), "{sentence}");
}

#[test]
fn an_interrupted_conversion_into_a_mount_can_be_continued() {
    let place = tempfile::tempdir().unwrap();
    let source = many(place.path(), 20);
    let mount = Mount::new(&["--create"]);
    let out = mount.at("out");
    drop(Stopped::start(&source, &out, &[]));
    let second = Stopped::start(&source, &out, &[]);
    let words = ["convert", source.to_str().unwrap(), out.to_str().unwrap()];
    let (code, sentence) = said(&words);
    assert_eq!(code, 1, "{sentence}");
    assert!(sentence.contains("another conversion is writing here"), "{sentence}");
    let (code, sentence) = second.end();
    assert_eq!(code, Some(0), "{sentence}");
    assert_eq!(seen(&out), seen(&source));
    assert!(!out.join(".zarrfs").exists());
}

#[test]
fn a_node_of_another_program_is_not_mistaken_for_the_copy() {
    let place = tempfile::tempdir().unwrap();
    let (source, dest) = (many(place.path(), 24), place.path().join("dest"));
    let running = Stopped::start(&source, &dest, &[]);
    let group = r#"{"zarr_format": 3, "node_type": "group", "attributes": {"mine": 1}}"#;
    fs::write(dest.join("x/zarr.json"), group).unwrap();
    let (code, sentence) = running.end();
    assert_eq!(code, Some(1), "{sentence}");
    assert!(sentence.contains("/x: a different node is stored there: a group"), "{sentence}");
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
    }
    files
}
