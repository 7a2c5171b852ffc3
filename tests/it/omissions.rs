//! A result that is not whole says so: what was not seen is listed, and the exit code is not 0.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::zarrfs;

const GROUP: &str = r#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#;
const ARRAY: &str = r#"{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0, "codecs": [{"name": "bytes"}], "attributes": {}}"#;

fn group(at: &Path) {
    fs::create_dir_all(at).unwrap();
    fs::write(at.join("zarr.json"), GROUP).unwrap();
}

fn array(at: &Path) {
    fs::create_dir_all(at.join("c")).unwrap();
    fs::write(at.join("zarr.json"), ARRAY).unwrap();
    fs::write(at.join("c/0"), [1, 2]).unwrap();
    fs::write(at.join("c/1"), [3, 4]).unwrap();
}

struct Case {
    place: tempfile::TempDir,
}

impl Case {
    /// A group with the array `a`.
    fn new() -> Self {
        let case = Self { place: tempfile::tempdir().unwrap() };
        group(&case.source());
        array(&case.source().join("a"));
        case
    }

    fn source(&self) -> PathBuf {
        self.place.path().join("s.zarr")
    }

    fn copy(&self) -> PathBuf {
        self.place.path().join("t.zarr")
    }

    /// Runs a command, whose words may be `S` and `T` for the source and the copy. Returns its exit
    /// code and all that it printed.
    fn run(&self, words: &[&str]) -> (i32, String) {
        let (source, copy) = (self.source(), self.copy());
        let path = |word: &&str| match *word {
            "S" => source.clone().into_os_string(),
            "T" => copy.clone().into_os_string(),
            other => other.into(),
        };
        let done = zarrfs().args(words.iter().map(path)).output().unwrap();
        let printed = [done.stdout, done.stderr].concat();
        (done.status.code().unwrap(), String::from_utf8_lossy(&printed).into_owned())
    }
}

#[test]
fn nodes_with_reserved_names_are_shown_converted_and_compared() {
    let case = Case::new();
    array(&case.source().join("__categories/__x"));
    let (code, tree) = case.run(&["tree", "S"]);
    assert!(code == 0 && tree.contains("__categories") && tree.contains("__x"), "{tree}");
    assert_eq!(case.run(&["convert", "S", "T", "--verify"]).0, 0);
    assert_eq!(fs::read(case.copy().join("__categories/__x/c/1")).unwrap(), [3, 4]);
    assert_eq!(case.run(&["diff", "S", "T"]).0, 0);
    fs::write(case.copy().join("__categories/__x/c/1"), [3, 5]).unwrap();
    assert_eq!(case.run(&["diff", "S", "T"]).0, 1);
}

#[test]
fn directories_that_no_key_can_name_make_every_result_incomplete() {
    for name in [&b"n\xff"[..], b"x.__lock", b"g/.zarrfs"] {
        let case = Case::new();
        group(&case.source().join("g"));
        let name = Path::new(std::ffi::OsStr::from_bytes(name));
        array(&case.source().join(name));
        let shown = name.to_string_lossy().into_owned();
        for (words, expected) in [
            (&["tree", "S"][..], 1),
            (&["convert", "S", "T", "--verify"], 1),
            (&["diff", "S", "T"], 2),
            (&["diff", "T", "S"], 2),
        ] {
            let (code, printed) = case.run(words);
            assert!(
                code == expected && printed.contains(&shown),
                "{shown} {words:?} {code}: {printed}"
            );
        }
        let (code, printed) = case.run(&["check", "S"]);
        assert!(code == 0 && printed.contains(&format!("unknown {shown}: ")), "{printed}");
        // What is there was copied.
        assert_eq!(fs::read(case.copy().join("a/c/1")).unwrap(), [3, 4]);
    }
    // A file is neither a node nor a chunk.
    let case = Case::new();
    fs::write(case.source().join(std::ffi::OsStr::from_bytes(b"n\xff")), "x").unwrap();
    assert_eq!(case.run(&["convert", "S", "T"]).0, 0);
}

#[test]
fn chunks_behind_a_link_to_a_directory_are_copied_compared_and_checked() {
    let case = Case::new();
    let at = case.source().join("a");
    let nested = ARRAY.replace("[4]", "[2, 4]").replace("[2]", "[1, 4]");
    fs::write(at.join("zarr.json"), nested).unwrap();
    fs::remove_dir_all(at.join("c")).unwrap();
    fs::create_dir_all(at.join("c/1")).unwrap();
    fs::create_dir(at.join("row")).unwrap();
    fs::write(at.join("row/0"), [1, 2, 3, 4]).unwrap();
    fs::write(at.join("c/1/0"), [5, 6, 7, 8]).unwrap();
    symlink("../row", at.join("c/0")).unwrap();
    assert_eq!(case.run(&["convert", "S", "T"]).0, 0);
    assert_eq!(fs::read(case.copy().join("a/c/0/0")).unwrap(), [1, 2, 3, 4]);
    fs::write(case.copy().join("a/c/0/0"), [1, 2, 3, 5]).unwrap();
    assert_eq!(case.run(&["diff", "S", "T"]).0, 1);
    let (_, checked) = case.run(&["check", "S"]);
    assert!(checked.contains("2 chunks stored, 0 missing"), "{checked}");
}

#[test]
fn a_chunk_that_is_a_link_to_nothing_is_listed_as_missing() {
    let case = Case::new();
    fs::remove_file(case.source().join("a/c/1")).unwrap();
    symlink("../../.git/annex/x", case.source().join("a/c/1")).unwrap();
    for (words, expected) in [(["convert", "S", "T"], 1), (["diff", "S", "T"], 2)] {
        let (code, printed) = case.run(&words);
        assert!(code == expected && printed.contains("a/c/1: a link that leads"), "{printed}");
    }
}

#[test]
fn names_that_the_target_cannot_hold_are_found_before_the_first_chunk_is_copied() {
    for format in ["d2020-10", "d2020-09", "d2019-06", "d2019-05"] {
        let case = Case::new();
        for suffix in [".group", ".group.json"] {
            group(&case.source().join("x"));
            array(&case.source().join(format!("x{suffix}/in")));
            group(&case.source().join(format!("x{suffix}")));
        }
        let (code, printed) = case.run(&["convert", "S", "T", "--format", format]);
        assert!(code == 1 && printed.contains("as a file and as a directory"), "{printed}");
        assert!(!printed.contains("to continue") && !case.copy().exists(), "{printed}");
        let words = ["convert", "S", "T", "--format", format, "--skip-unsupported"];
        let (code, printed) = case.run(&words);
        assert!(code == 0 && printed.contains("as a file and as a directory"), "{printed}");
        assert_eq!(case.run(&["check", "T"]).0, 0);
    }
    let case = Case::new();
    array(&case.source().join("n".repeat(250)));
    let (code, printed) = case.run(&["convert", "S", "T", "--format", "d2020-10"]);
    assert!(code == 1 && printed.contains("a name of 261 bytes"), "{printed}");
    assert!(!case.copy().exists());
}

#[test]
fn an_encoded_chunk_of_another_length_is_never_copied() {
    for wrong in [&[][..], &[1], &[1, 2, 3]] {
        let case = Case::new();
        fs::write(case.source().join("a/c/0"), wrong).unwrap();
        let (code, printed) = case.run(&["convert", "S", "T"]);
        assert!(code == 1 && printed.contains("a/c/0"), "{printed}");
        let (code, printed) = case.run(&["convert", "S", "T", "--keep-going"]);
        assert!(code == 1 && printed.contains("1 damaged value"), "{printed}");
        assert!(!case.copy().join("a/c/0").exists());
        assert_eq!(fs::read(case.copy().join("a/c/1")).unwrap(), [3, 4]);
    }
}

#[test]
fn entries_that_an_archive_has_and_no_key_can_name_are_listed() {
    let case = Case::new();
    array(&case.source().join("zzz"));
    let zip = case.place.path().join("s.zip");
    let zip = zip.to_str().unwrap();
    assert_eq!(case.run(&["convert", "S", zip]).0, 0);
    let mut bytes = fs::read(zip).unwrap();
    for at in 0..bytes.len() - 4 {
        if &bytes[at..at + 4] == b"zzz/" {
            bytes[at..at + 4].copy_from_slice(b"../z");
        }
    }
    fs::write(zip, bytes).unwrap();
    let said = "this entry of the archive is left out";
    for (words, expected) in [
        (&["tree", zip][..], 1),
        (&["info", zip], 1),
        (&["convert", zip, "T"], 1),
        (&["diff", zip, "T"], 2),
    ] {
        let (code, printed) = case.run(words);
        assert!(code == expected && printed.contains(said), "{words:?} {code}: {printed}");
    }
    assert_eq!(fs::read(case.copy().join("a/c/1")).unwrap(), [3, 4]);
}

#[test]
fn a_directory_that_cannot_be_listed_is_no_empty_one() {
    // Root may list every directory.
    if fs::metadata("/proc/self")
        .is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0)
    {
        return;
    }
    let case = Case::new();
    array(&case.source().join("g/b"));
    group(&case.source().join("g"));
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(case.source().join("g"), mode(0o311)).unwrap();
    let codes: Vec<i32> =
        [&["tree", "S"][..], &["convert", "S", "T", "--skip-unsupported"], &["diff", "S", "T"]]
            .into_iter()
            .map(|words| case.run(words).0)
            .collect();
    fs::set_permissions(case.source().join("g"), mode(0o755)).unwrap();
    assert_eq!(codes, [1, 1, 2]);
}
