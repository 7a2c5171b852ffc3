//! A result that is not whole says so: what was not seen is listed, and the exit code is not 0.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::{Mount, errno, names, said, zarrfs};

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
        assert!(code == 1 && printed.contains(&format!("unchecked unseen {shown}: ")), "{printed}");
        assert!(printed.contains("1 not checked: 1 not seen"), "{printed}");
        assert_eq!(printed.matches(&format!("{shown}: ")).count(), 1, "{printed}");
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
    for (words, expected) in [
        (&["convert", "S", "T"][..], 1),
        (&["convert", "S", "T", "--keep-going"], 1),
        (&["diff", "S", "T"], 2),
    ] {
        let (code, printed) = case.run(words);
        assert!(code == expected && printed.contains("a/c/1: a link that leads"), "{printed}");
    }
}

#[test]
fn a_chunk_that_is_a_link_to_nothing_is_never_read_as_the_fill_value() {
    let make = |store: &Path| {
        array(store);
        fs::remove_file(store.join("c/1")).unwrap();
        symlink("../.git/annex/x", store.join("c/1")).unwrap();
    };
    let mut mount = Mount::of(make, &[]);
    mount.expect("leads to nothing");
    let (code, printed) = said(&["cat", mount.store().to_str().unwrap(), "--as", "raw"]);
    assert!(code == 1 && printed.contains("c/1: a link that leads to nothing"), "{printed}");
    assert_eq!(errno(fs::read(mount.at("__root__.raw"))), libc::EIO);
    assert!(mount.errors().contains("leads to nothing"), "{}", mount.errors());
    assert_eq!(errno(fs::read(mount.at("c/1"))), libc::EIO);
    // A copy of the directory fails for the chunk, and does not leave it out.
    assert!(names(&mount.at("c")).contains("1"));
    fs::remove_file(mount.store().join("c/1")).unwrap();
    fs::write(mount.store().join("c/1"), [5, 6]).unwrap();
    assert_eq!(fs::read(mount.at("__root__.raw")).unwrap(), [1, 2, 5, 6]);
}

#[test]
fn a_directory_with_chunks_of_a_shard_that_cannot_be_read_is_not_listed_as_whole() {
    let make = |store: &Path| {
        let sharded = ARRAY.replace("\"chunk_shape\": [2]", "\"chunk_shape\": [4]").replace(
            r#"[{"name": "bytes"}]"#,
            r#"[{"name": "sharding_indexed", "configuration": {"chunk_shape": [2],
                "codecs": [{"name": "bytes"}],
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
                    {"name": "crc32c"}]}}]"#,
        );
        fs::create_dir_all(store.join("c")).unwrap();
        fs::write(store.join("zarr.json"), sharded).unwrap();
    };
    let hide: [fn(&Path); 3] = [
        |shard| fs::write(shard, [0; 100]).unwrap(),
        |shard| symlink("nowhere", shard).unwrap(),
        |shard| symlink("/etc/hostname", shard).unwrap(),
    ];
    for hide in hide {
        let mut mount = Mount::of(make, &[]);
        mount.expect("c/0");
        hide(&mount.store().join("c/0"));
        let listed: Vec<_> = fs::read_dir(mount.at("c")).unwrap().collect();
        assert!(listed.iter().any(Result::is_err), "{listed:?}");
        assert_eq!(errno(fs::read(mount.at("c/1"))), libc::EIO);
    }
}

#[test]
fn a_node_whose_metadata_file_is_gone_or_a_directory_is_listed() {
    let copies = |names: &[&str]| {
        let array: serde_json::Value = serde_json::from_str(ARRAY).unwrap();
        let all: serde_json::Map<_, _> =
            names.iter().map(|name| ((*name).to_owned(), array.clone())).collect();
        let mut group: serde_json::Value = serde_json::from_str(GROUP).unwrap();
        group["consolidated_metadata"] =
            serde_json::json!({"kind": "inline", "must_understand": false, "metadata": all});
        group.to_string()
    };
    for why in ["b: its metadata file is gone", "b: zarr.json is a directory"] {
        let case = Case::new();
        let at = case.source().join("b");
        array(&at);
        fs::write(case.source().join("zarr.json"), copies(&["a", "b"])).unwrap();
        assert_eq!(case.run(&["tree", "S"]).0, 0);
        fs::remove_file(at.join("zarr.json")).unwrap();
        if why.ends_with("directory") {
            fs::create_dir(at.join("zarr.json")).unwrap();
        }
        check_said_of(&case, "S", 3, why);
    }
    // A copy of what has been removed with all that it had hides nothing.
    let case = Case::new();
    fs::write(case.source().join("zarr.json"), copies(&["a", "b"])).unwrap();
    assert_eq!(case.run(&["tree", "S"]).0, 0);
    assert_eq!(case.run(&["convert", "S", "T"]).0, 0);
}

#[test]
fn a_group_of_zarr_2_that_lost_its_metadata_file_is_listed_if_something_says_so() {
    for (lost, has_copies) in [("", true), ("h/", true), ("", false), ("h/", false)] {
        let case = Case::new();
        let source = case.source();
        fs::remove_dir_all(&source).unwrap();
        fs::create_dir_all(source.join("h/a")).unwrap();
        let zarray = r#"{"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|u1",
            "fill_value": 0, "order": "C", "compressor": null, "filters": null}"#;
        let [zgroup, zattrs] = [r#"{"zarr_format": 2}"#, r#"{"title": "t"}"#];
        let mut copies = Vec::new();
        for (key, text) in [
            (".zgroup", zgroup),
            (".zattrs", zattrs),
            ("h/.zgroup", zgroup),
            ("h/.zattrs", zattrs),
            ("h/a/.zarray", zarray),
        ] {
            fs::write(source.join(key), text).unwrap();
            copies.push(format!("\"{key}\": {text}"));
        }
        let copies = copies.join(", ");
        let copies = format!(r#"{{"zarr_consolidated_format": 1, "metadata": {{{copies}}}}}"#);
        if has_copies {
            fs::write(source.join(".zmetadata"), copies).unwrap();
        }
        assert_eq!(case.run(&["tree", "S"]).0, 0);
        fs::remove_file(source.join(format!("{lost}.zgroup"))).unwrap();
        let (code, printed) = case.run(&["convert", "S", "T"]);
        assert!(code == 1 && printed.contains("its metadata file is gone"), "{lost}: {printed}");
        assert_eq!(case.run(&["diff", "S", "T"]).0, 2);
    }
}

#[test]
fn a_directory_of_chunks_that_is_a_link_to_nothing_is_listed_as_missing() {
    let case = Case::new();
    fs::remove_dir_all(case.source().join("a/c")).unwrap();
    symlink("nowhere", case.source().join("a/c")).unwrap();
    let [tree, convert, diff] =
        [&["tree", "--sizes", "S"][..], &["convert", "S", "T"], &["diff", "S", "T"]]
            .map(|words| case.run(words));
    assert_eq!([tree.0, convert.0, diff.0], [1, 1, 2], "{tree:?} {convert:?} {diff:?}");
    assert!(convert.1.contains("a/c: a link that leads to nothing"), "{convert:?}");
}

#[test]
fn a_file_of_an_archive_that_has_the_name_of_a_directory_is_listed() {
    let case = Case::new();
    let zip = archive_with_renamed(&case, b"zzz/c/0", b"a/c/1/0");
    check_said_of(&case, &zip, 1, "a/c/1: this entry of the archive is not listed");
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
    let zip = archive_with_renamed(&case, b"zzz/", b"../z");
    check_said_of(&case, &zip, 1, "this entry of the archive is left out");
    assert_eq!(fs::read(case.copy().join("a/c/1")).unwrap(), [3, 4]);
}

/// Returns an archive of the source whose directory has another name for an entry than its local
/// header.
fn archive_with_misnamed(case: &Case, local: &[u8], in_directory: &[u8]) -> String {
    let zip = case.place.path().join("s.zip").to_str().unwrap().to_owned();
    assert_eq!(case.run(&["convert", "S", &zip]).0, 0);
    let mut bytes = fs::read(&zip).unwrap();
    let last = bytes.windows(local.len()).rposition(|part| part == local).unwrap();
    bytes[last..last + local.len()].copy_from_slice(in_directory);
    fs::write(&zip, bytes).unwrap();
    zip
}

#[test]
fn an_entry_that_an_archive_has_under_the_name_of_another_is_listed() {
    let case = Case::new();
    let zip = archive_with_misnamed(&case, b"a/c/0", b"a/c/1");
    check_said_of(&case, &zip, 1, "a/c/0: this entry of the archive is damaged");
    assert_eq!(fs::read(case.copy().join("a/c/1")).unwrap(), [3, 4]);
}

#[test]
fn check_finds_entries_of_an_archive_under_names_that_no_reader_looks_for() {
    for name in ["a/q/1", "a/c/9", "q/c/1", "a.c/1"] {
        let case = Case::new();
        let zip = archive_with_misnamed(&case, b"a/c/1", name.as_bytes());
        let (code, printed) = case.run(&["check", &zip]);
        let said = format!("{name}: its local header has another name than the directory");
        assert!(code == 3 && printed.contains(&said), "{code}: {printed}");
    }
}

/// Returns an archive of the source with the array `zzz`, in which names have another start.
fn archive_with_renamed(case: &Case, before: &[u8], after: &[u8]) -> String {
    array(&case.source().join("zzz"));
    let zip = case.place.path().join("s.zip").to_str().unwrap().to_owned();
    assert_eq!(case.run(&["convert", "S", &zip]).0, 0);
    let mut bytes = fs::read(&zip).unwrap();
    for at in 0..bytes.len() - before.len() {
        if bytes[at..].starts_with(before) {
            bytes[at..at + before.len()].copy_from_slice(after);
        }
    }
    fs::write(&zip, bytes).unwrap();
    zip
}

/// Checks that every command says what it has not seen in an archive.
/// `check` ends with `checked`.
fn check_said_of(case: &Case, zip: &str, checked: i32, said: &str) {
    for (words, expected) in [
        (&["tree", zip][..], 1),
        (&["info", zip], 1),
        (&["convert", zip, "T"], 1),
        (&["diff", zip, "T"], 2),
        (&["check", zip], checked),
    ] {
        let (code, printed) = case.run(words);
        assert!(code == expected && printed.contains(said), "{words:?} {code}: {printed}");
    }
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

/// The exit codes of `tree`, `convert` and `diff`, and what they print. The copy exists before.
fn codes(case: &Case) -> (Vec<i32>, String) {
    let copy = ["convert", "S", "T", "--skip-unsupported"];
    let done = [&["tree", "S"][..], &copy, &["diff", "S", "T"]].map(|words| case.run(words));
    let printed = done.iter().map(|(_, printed)| printed.as_str()).collect();
    (done.iter().map(|(code, _)| *code).collect(), printed)
}

#[test]
fn links_that_may_be_nodes_are_listed_if_they_lead_nowhere_or_out() {
    for (name, target) in [("b", "nowhere"), ("b", "../x"), ("b", "b"), ("b/zarr.json", "gone")] {
        let case = Case::new();
        array(&case.place.path().join("x"));
        if name != "b" {
            array(&case.source().join("b"));
            fs::remove_file(case.source().join(name)).unwrap();
        }
        symlink(target, case.source().join(name)).unwrap();
        let (codes, printed) = codes(&case);
        assert_eq!(codes, [1, 1, 2], "{name} {target}: {printed}");
        // Each of the three says it once; of a metadata file, `convert` says so as of any other
        // that cannot be read.
        let warnings = if name == "b" { 3 } else { 2 };
        assert_eq!(printed.matches(&format!("warn: {name}: ")).count(), warnings, "{printed}");
        assert!(name == "b" || printed.contains("/b: cannot be read: "), "{printed}");
        let (code, checked) = case.run(&["check", "S"]);
        assert!(code == 1 && checked.contains(&format!(" {name}: ")), "{checked}");
        assert_eq!(checked.matches(&format!(" {name}: ")).count(), 1, "{checked}");
    }
    // A link to a file outside is no node.
    let case = Case::new();
    fs::write(case.place.path().join("notes"), "x").unwrap();
    symlink("../notes", case.source().join("README")).unwrap();
    assert_eq!(codes(&case).0, [0, 0, 0]);
}

#[test]
fn nodes_behind_links_in_a_directory_without_metadata_are_shown() {
    let case = Case::new();
    fs::create_dir(case.source().join("imp")).unwrap();
    symlink("../a", case.source().join("imp/b")).unwrap();
    let (code, tree) = case.run(&["tree", "S"]);
    assert!(code == 0 && tree.contains("imp/") && tree.contains("b  "), "{tree}");
    assert_eq!(case.run(&["convert", "S", "T"]).0, 0);
    assert_eq!(fs::read(case.copy().join("imp/b/c/1")).unwrap(), [3, 4]);
}

#[test]
fn nodes_of_another_version_of_zarr_are_listed() {
    let case = Case::new();
    let zarray = r#"{"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|u1", "fill_value": 0,
        "order": "C", "compressor": null, "filters": null}"#;
    fs::create_dir_all(case.source().join("old/v2")).unwrap();
    fs::write(case.source().join("old/v2/.zarray"), zarray).unwrap();
    let (codes, printed) = codes(&case);
    assert_eq!(codes, [1, 1, 2], "{printed}");
    assert!(printed.contains("warn: old/v2: its metadata file is one of another"), "{printed}");
    assert_eq!(case.run(&["check", "S"]).0, 1);
    // What is not a node is nothing that is missing.
    fs::remove_file(case.source().join("old/v2/.zarray")).unwrap();
    fs::write(case.source().join("old/v2/notes.txt"), "x").unwrap();
    assert_eq!(case.run(&["tree", "S"]).0, 0);
}

#[test]
fn skipping_unsupported_nodes_does_not_make_damaged_ones_unsupported() {
    let case = Case::new();
    array(&case.source().join("b"));
    fs::write(case.source().join("b/zarr.json"), &ARRAY[..100]).unwrap();
    let words = ["convert", "S", "T", "--skip-unsupported"];
    let (code, printed) = case.run(&words);
    assert!(code == 1 && printed.contains("1 node of the source whose metadata"), "{printed}");
    assert_eq!(fs::read(case.copy().join("a/c/1")).unwrap(), [3, 4]);
    let case = Case::new();
    array(&case.source().join("b"));
    let unknown = ARRAY.replace("uint8", "hexadecimal");
    fs::write(case.source().join("b/zarr.json"), unknown).unwrap();
    assert_eq!(case.run(&words).0, 0);
}

#[test]
fn the_last_line_of_a_refused_conversion_says_which_nodes_are_unsupported_damaged_or_unread() {
    let case = Case::new();
    fs::write(case.place.path().join("outside"), ARRAY).unwrap();
    group(&case.source().join("b"));
    fs::remove_file(case.source().join("b/zarr.json")).unwrap();
    symlink("../../outside", case.source().join("b/zarr.json")).unwrap();
    let words = ["convert", "S", "T", "--format", "v2"];
    let last = || {
        let (code, printed) = case.run(&words);
        assert_eq!(code, 1, "{printed}");
        printed.lines().last().unwrap_or_default().to_owned()
    };
    let said = last();
    assert!(said.contains(": 1 node cannot be read (listed above): leave out"), "{said}");
    assert!(said.ends_with("once they can be read"), "{said}");
    array(&case.source().join("c"));
    fs::write(case.source().join("c/zarr.json"), &ARRAY[..100]).unwrap();
    let said = last();
    let counts =
        "1 node cannot be used, because of damaged metadata, 1 node cannot be read (listed";
    assert!(said.contains(counts), "{said}");
    array(&case.source().join("d"));
    let unknown = ARRAY.replace("uint8", "hexadecimal");
    fs::write(case.source().join("d/zarr.json"), unknown).unwrap();
    let said = last();
    assert!(said.contains(": 1 node cannot be converted to v2, 1 node cannot be used"), "{said}");
    assert!(said.ends_with("or choose another --format"), "{said}");
    fs::remove_file(case.source().join("d/zarr.json")).unwrap();
    fs::remove_dir_all(case.source().join("b")).unwrap();
    let said = last();
    assert!(said.ends_with("or mend their metadata"), "{said}");
}

#[test]
fn a_copy_goes_on_without_values_that_are_refused_and_names_them_so() {
    for options in [&[][..], &["--format", "v2"], &["--chunks", "4"]] {
        let case = Case::new();
        fs::write(case.place.path().join("outside"), [1, 2]).unwrap();
        fs::remove_file(case.source().join("a/c/0")).unwrap();
        symlink("../../../outside", case.source().join("a/c/0")).unwrap();
        let words = [&["convert", "S", "T"][..], options].concat();
        let (code, printed) = case.run(&words);
        assert!(code == 1 && printed.contains("stopped at a refused chunk"), "{printed}");
        assert!(!printed.contains("to continue"), "{printed}");
        let (code, printed) = case.run(&[&words[..], &["--keep-going"]].concat());
        assert!(code == 1 && printed.contains("1 refused value of the source"), "{printed}");
        assert!(printed.contains("a/c/0: a symbolic link that leads out"), "{printed}");
        // The copy is complete: it is not continued.
        assert!(!case.copy().join(".zarrfs/convert").exists());
    }
}

#[test]
fn no_command_waits_for_a_pipe_at_the_place_of_a_metadata_file() {
    let case = Case::new();
    fs::remove_file(case.source().join("zarr.json")).unwrap();
    let pipe = case.source().join("zarr.json");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for words in [&["check", "S"][..], &["tree", "S"], &["info", pipe.to_str().unwrap()]] {
        let (code, printed) = case.run(words);
        assert!(code == 1 || code == 3, "{words:?} {code}: {printed}");
    }
}
