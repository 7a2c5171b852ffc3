//! Groups and arrays made, moved and removed through the mount.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Mount, Second, array, errno, group, json_of, names, set_xattr, until};

/// The dialects that nodes can be made in.
const FORMATS: [&str; 2] = ["v3", "d2020-10"];

fn new(format: &str, options: &[&str]) -> Mount {
    Mount::new(&[&["--create", "--format", format], options].concat())
}

fn with(mut document: Value, member: &str, value: Value) -> Value {
    document[member] = value;
    document
}

fn write(path: &Path, document: &Value) -> std::io::Result<()> {
    put(OpenOptions::new().write(true).create(true).truncate(true).open(path)?, document)
}

/// Writes and closes a file, and says what became of it.
fn put(mut file: File, document: &Value) -> std::io::Result<()> {
    file.write_all(document.to_string().as_bytes())?;
    file.sync_all()
}

fn shown(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The keys in the store, without the entry point of a draft.
fn keys(mount: &Mount) -> BTreeSet<String> {
    let keys = mount.stored().into_iter().map(|(key, _)| key);
    keys.filter(|key| !mount.is_draft() || key != "zarr.json").collect()
}

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

fn run(program: &str, args: &[&str], paths: &[&Path]) {
    let output = Command::new(program).args(args).args(paths).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Shows: mkdir-group.
#[test]
fn a_new_directory_becomes_a_group_after_the_delay() {
    for format in FORMATS {
        let mount = new(format, &["--writeback-delay", "200ms"]);
        fs::create_dir_all(mount.at("a/b")).unwrap();
        assert!(!mount.at("a/zarr.json").exists() && names(&mount.at("a/b")).is_empty());
        until("the delay", || {
            mount.at("a/zarr.json").exists() && mount.at("a/b/zarr.json").exists()
        });
        assert_eq!(shown(&mount.at("a/b/zarr.json")), group());
        let mount = new(format, &["--writeback-delay", "1h"]);
        for name in ["synced", "left", "gone"] {
            fs::create_dir(mount.at(name)).unwrap();
        }
        File::open(mount.at("synced")).unwrap().sync_all().unwrap();
        assert!(mount.at("synced/zarr.json").exists() && !mount.at("left/zarr.json").exists());
        fs::remove_dir(mount.at("gone")).unwrap();
        File::open(mount.path()).unwrap().sync_all().unwrap();
        assert!(mount.at("left/zarr.json").exists(), "fsync of the root stores everything");
        fs::create_dir_all(mount.at("last/one")).unwrap();
        fs::create_dir_all(mount.at("last/.git/refs")).unwrap();
        fs::write(mount.at("last/.git/refs/head"), "text").unwrap();
        mount.remount(&[]);
        assert_eq!(names(&mount.at("last/.git/refs")), set(&["head"]), "a program's own");
        let all =
            ["last", "last/one", "left", "synced"].map(|name| mount.at(name).join("zarr.json"));
        assert!(all.iter().all(|path| path.exists()) && !mount.at("gone").exists());
    }
}

/// Shows: zarr2-nodes.
#[test]
fn zarr_2_metadata_make_nodes_that_look_as_they_were_written_until_the_next_mount() {
    for format in ["v3", "v2", "n5", "d2020-10"] {
        let mount = new(format, &["--writeback-delay", "100ms", "--codecs", "none"]);
        let zarray = json!({
            "zarr_format": 2, "shape": [4, 4], "chunks": [2, 2], "dtype": "<i2", "fill_value": 0,
            "order": "C", "filters": null, "compressor": null, "dimension_separator": ".",
        });
        fs::create_dir_all(mount.at("old/arr")).unwrap();
        fs::create_dir(mount.at("old/made")).unwrap();
        fs::write(mount.at("old/.zattrs"), r#"{"a": 1}"#).unwrap();
        fs::write(mount.at("old/.zgroup"), r#"{"zarr_format": 2}"#).unwrap();
        fs::write(mount.at("old/arr/1.1"), [7; 8]).unwrap();
        fs::write(mount.at("old/arr/.zarray"), zarray.to_string()).unwrap();
        fs::write(mount.at("old/arr/0.0"), [9; 8]).unwrap();
        assert_eq!(names(&mount.at("old/arr")), set(&[".zarray", "0.0", "1.1"]), "{format}");
        assert_eq!(json_of(&mount.at("old/arr/.zarray")), zarray, "{format}");
        assert_eq!(names(&mount.at("old")), set(&[".zattrs", ".zgroup", "arr", "made"]));
        until("the delay", || mount.at("old/made/.zgroup").exists());
        assert_eq!(fs::read(mount.at("old/arr.raw")).unwrap()[..2], [9, 9]);
        fs::rename(mount.at("old"), mount.at("moved")).unwrap();
        assert_eq!(names(&mount.at("moved/arr")), set(&[".zarray", "0.0", "1.1"]), "{format}");
        mount.remount(&[]);
        assert_eq!(names(&mount.at("moved/arr")), set(&["c", "zarr.json"]), "{format}");
        assert_eq!(fs::read(mount.at("moved/arr/c/1/1")).unwrap(), [7; 8], "{format}");
        assert_eq!(json_of(&mount.at("moved/zarr.json"))["attributes"], json!({"a": 1}));
    }
}

/// Shows: mkdir-group, rm-node.
#[test]
fn a_directory_that_became_a_group_by_itself_is_removed_as_an_empty_one() {
    for format in FORMATS {
        let mount = new(format, &["--writeback-delay", "1h"]);
        let made = |name: &str| {
            fs::create_dir(mount.at(name)).unwrap();
            File::open(mount.at(name)).unwrap().sync_all().unwrap();
            assert!(mount.at(name).join("zarr.json").exists());
        };
        for name in ["lock", "full", "full/lock", "of_a_program", "with_attributes", "replaced"] {
            made(name);
        }
        let document = with(group(), "attributes", json!({"x": 1}));
        write(&mount.at("of_a_program/zarr.json"), &document).unwrap();
        set_xattr(&mount.at("with_attributes"), "user.attrs.x", "1").unwrap();
        let is_refused = |name| {
            let refused = fs::remove_dir(mount.at(name)).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::ENOTEMPTY), "{name}");
            assert!(mount.at(name).join("zarr.json").exists());
        };
        for name in ["full", "of_a_program", "with_attributes"] {
            is_refused(name);
        }
        fs::remove_dir(mount.at("full/lock")).unwrap();
        for name in ["lock", "full"] {
            fs::remove_dir(mount.at(name)).unwrap();
        }
        fs::create_dir(mount.at("new")).unwrap();
        fs::write(mount.at("new/file"), "text").unwrap();
        fs::rename(mount.at("new"), mount.at("replaced")).unwrap();
        assert_eq!(fs::read_to_string(mount.at("replaced/file")).unwrap(), "text");
        mount.remount(&[]);
        assert!(!mount.at("lock").exists() && !mount.at("full").exists());
        // Nobody knows any more why this is a group.
        is_refused("of_a_program");
    }
}

/// Shows: mkdir-group, zarr2-nodes.
#[test]
fn ordinary_files_with_names_of_zarr_2_stay_ordinary() {
    let mut mount = Mount::of(
        |store| {
            fs::write(store.join("zarr.json"), group().to_string()).unwrap();
            fs::create_dir_all(store.join("old/arr")).unwrap();
            fs::write(store.join("old/.zgroup"), r#"{"zarr_format": 2}"#).unwrap();
            fs::write(store.join("old/arr/0.0"), "chunk").unwrap();
        },
        &["--writeback-delay", "100ms"],
    );
    mount.expect("another version of Zarr");
    fs::create_dir_all(mount.at("old/arr/0")).unwrap();
    fs::create_dir(mount.at("new")).unwrap();
    fs::write(mount.at("old/arr/.zarray"), "{}").unwrap();
    until("the delay", || mount.at("new/zarr.json").exists());
    mount.remount(&[]);
    let stored = ["new/zarr.json", "old/.zgroup", "old/arr/.zarray", "old/arr/0.0", "zarr.json"];
    assert_eq!(keys(&mount), set(&stored));
}

/// Shows: mkdir-group.
#[test]
fn a_directory_of_ordinary_files_is_not_a_group_without_a_metadata_file() {
    let mount = Mount::of(
        |store| {
            fs::write(store.join("zarr.json"), group().to_string()).unwrap();
            fs::create_dir(store.join("docs")).unwrap();
            fs::write(store.join("docs/read.me"), "text").unwrap();
        },
        &["--writeback-delay", "100ms"],
    );
    assert_eq!(names(&mount.at("docs")), set(&["read.me"]));
    fs::create_dir(mount.at("docs/sub")).unwrap();
    fs::create_dir(mount.at("other")).unwrap();
    until("the delay", || mount.at("other/zarr.json").exists());
    assert!(!mount.at("docs/sub/zarr.json").exists());
    write(&mount.at("docs/zarr.json"), &group()).unwrap();
    assert_eq!(fs::read_to_string(mount.at("docs/read.me")).unwrap(), "text");
    assert_eq!(
        keys(&mount),
        set(&["docs/read.me", "docs/zarr.json", "other/zarr.json", "zarr.json"])
    );
}

/// Shows: mkdir-ancestors.
#[test]
fn groups_above_a_new_node_are_stored_and_can_still_get_a_metadata_file() {
    for format in FORMATS {
        let mount = new(format, &["--writeback-delay", "1h"]);
        fs::create_dir_all(mount.at("a/b")).unwrap();
        write(&mount.at("a/b/zarr.json"), &array()).unwrap();
        let expected = if mount.is_draft() {
            set(&["meta/root.group.json", "meta/root/a.group.json", "meta/root/a/b.array.json"])
        } else {
            set(&["zarr.json", "a/zarr.json", "a/b/zarr.json"])
        };
        assert_eq!(keys(&mount), expected);
        assert!(!mount.at("a/zarr.json").exists(), "its maker may still write it");
        let file = File::create_new(mount.at("a/zarr.json")).unwrap();
        put(file, &with(group(), "attributes", json!({"title": "late"}))).unwrap();
        assert_eq!(shown(&mount.at("a/zarr.json"))["attributes"]["title"], "late");
        mount.remount(&[]);
        assert_eq!(shown(&mount.at("a/zarr.json"))["attributes"]["title"], "late");
        assert_eq!(keys(&mount), expected);
    }
}

/// Shows: mkdir-name.
#[test]
fn names_that_the_dialect_does_not_allow_are_refused() {
    for (format, bad, good) in
        [("d2020-10", "ä b", "__x"), ("v2", "a\\b", "__x"), ("d2019-06", "ä b", "__x")]
    {
        let mut mount = new(format, &[]);
        for part in ["mkdir", "nnn", bad] {
            mount.expect(part);
        }
        fs::create_dir(mount.at(bad)).unwrap();
        let document = format!("{bad}/zarr.json");
        let written = write(&mount.at(&document), &group());
        assert_eq!(written.map_err(|error| error.raw_os_error()), Err(Some(libc::EINVAL)), "{bad}");
        assert!(mount.errors().contains(bad), "{}", mount.errors());
        fs::create_dir(mount.at(good)).unwrap();
        let long = "n".repeat(match format {
            "d2020-10" => 245,
            "d2019-06" => 250,
            _ => 256,
        });
        assert_eq!(errno(fs::create_dir(mount.at(&long))), libc::ENAMETOOLONG);
        fs::create_dir(mount.at(&long[..244])).unwrap();
    }
}

#[test]
fn a_copy_with_extended_attributes_is_a_copy() {
    for options in [&["--create"][..], &["--create", "--as", "zarr2"]] {
        let mut mount = Mount::new(options);
        mount.expect("is writing the metadata file");
        fs::create_dir(mount.at("g")).unwrap();
        let document = with(group(), "attributes", json!({"title": "t"}));
        let name = if options.len() > 1 { "g/.zgroup" } else { "g/zarr.json" };
        if options.len() > 1 {
            fs::write(mount.at(name), r#"{"zarr_format": 2}"#).unwrap();
            fs::write(mount.at("g/.zattrs"), r#"{"title": "t"}"#).unwrap();
        } else {
            write(&mount.at(name), &document).unwrap();
        }
        let copied =
            Command::new("cp").arg("-a").args([mount.at("g"), mount.at("h")]).output().unwrap();
        assert!(copied.status.success(), "{copied:?}");
        let stored = shown(&mount.store().join("h/zarr.json"));
        assert_eq!(stored["attributes"], json!({"title": "t"}));
    }
}

/// Shows: document-new.
#[test]
fn a_metadata_file_creates_a_node_in_the_dialect() {
    let attributes = json!({"units": "K", "n": {"deep": [1, null]}});
    let ignorable = json!({"must_understand": false, "x": 1});
    let document = with(with(array(), "attributes", attributes.clone()), "extra", ignorable);
    let document = with(document, "dimension_names", json!(["y", "x"]));
    for format in FORMATS {
        let mount = new(format, &[]);
        fs::create_dir(mount.at("arr")).unwrap();
        write(&mount.at("arr/zarr.json"), &document).unwrap();
        fs::create_dir_all(mount.at("arr/c/1")).unwrap();
        fs::write(mount.at("arr/c/1/0"), [1, 0, 2, 0, 3, 0, 4, 0]).unwrap();
        let found = shown(&mount.at("arr/zarr.json"));
        assert_eq!(found["attributes"], attributes);
        assert_eq!(found["dimension_names"], json!(["y", "x"]));
        assert_eq!(found["codecs"], array()["codecs"]);
        mount.remount(&[]);
        assert_eq!(shown(&mount.at("arr/zarr.json"))["attributes"], attributes);
        assert_eq!(fs::read(mount.at("arr/c/1/0")).unwrap(), [1, 0, 2, 0, 3, 0, 4, 0]);
        let stored = if mount.is_draft() { "meta/root/arr.array.json" } else { "arr/zarr.json" };
        let stored: Value =
            serde_json::from_slice(&fs::read(mount.store().join(stored)).unwrap()).unwrap();
        if mount.is_draft() {
            assert_eq!(stored["data_type"], "<u2");
            assert_eq!(stored["attributes"]["_ARRAY_DIMENSIONS"], json!(["y", "x"]));
        } else {
            assert_eq!(stored["extra"]["x"], 1);
            assert_eq!(stored["codecs"][1]["name"], "zstd");
        }
    }
}

/// Shows: document-exclusive. Also without a cache, in which the node of the other is there at once.
#[test]
fn a_new_metadata_file_never_replaces_one_that_another_program_has_stored() {
    for ttl in ["0s", "1s", "1h"] {
        let mut mount = new("v3", &["--metadata-ttl", ttl]);
        mount.expect("another program has just made a node here");
        mount.expect("the key already has a value");
        for (name, is_open_before) in [("before", true), ("after", false)] {
            fs::create_dir(mount.at(name)).unwrap();
            let stored = mount.store().join(name).join("zarr.json");
            let theirs = with(group(), "attributes", json!({"by": "other"}));
            let here = mount.at(name).join("zarr.json");
            let open = is_open_before.then(|| File::create_new(&here).unwrap());
            fs::write(&stored, theirs.to_string()).unwrap();
            let mine = with(group(), "attributes", json!({"by": "mine"}));
            let made = match open {
                Some(file) => put(file, &mine),
                None => File::create_new(&here).and_then(|file| put(file, &mine)),
            };
            assert_eq!(errno(made), libc::EEXIST, "{ttl} {name}");
            assert_eq!(shown(&stored), theirs, "{ttl} {name}");
        }
    }
}

/// Shows: store-decides. Of a program that makes a node and a mount that moves a group onto its
/// directory, one gets an error, or both nodes are there.
#[test]
fn a_node_that_is_made_while_another_mount_moves_onto_its_directory_is_not_lost() {
    for (consolidated, ttl) in [(true, "1s"), (false, "0s")] {
        let mut mount = new("v3", &["--metadata-ttl", ttl]);
        for expected in ["another program", "already has a value", "no such file", "not empty"] {
            mount.expect(expected);
        }
        if consolidated {
            let copies = json!({"kind": "inline", "must_understand": false, "metadata": {}});
            let root = with(group(), "consolidated_metadata", copies);
            fs::write(mount.at("zarr.json"), root.to_string()).unwrap();
        }
        let other = tempfile::tempdir().unwrap();
        let second = Second::mount(&mount.store(), other.path());
        let text = |by: &str| with(group(), "attributes", json!({"by": by}));
        for round in 0..60_u64 {
            let (name, moved) = (format!("d{round}"), other.path().join(format!("s{round}")));
            fs::create_dir(&moved).unwrap();
            fs::write(moved.join("zarr.json"), text("moved").to_string()).unwrap();
            let (made, renamed) = std::thread::scope(|scope| {
                let maker = scope.spawn(|| {
                    fs::create_dir(mount.at(&name))?;
                    put(File::create_new(mount.at(&name).join("zarr.json"))?, &text("made"))
                });
                std::thread::sleep(Duration::from_micros(round * 100));
                let renamed = fs::rename(&moved, other.path().join(&name));
                (maker.join().unwrap(), renamed)
            });
            let stored = shown(&mount.store().join(&name).join("zarr.json"));
            match (made, renamed) {
                (Ok(()), Err(_)) => assert_eq!(stored, text("made"), "{ttl} {round}"),
                (Err(_), Ok(())) => assert_eq!(stored, text("moved"), "{ttl} {round}"),
                (Err(_), Err(_)) => {}
                both => panic!("{ttl} {round}: {both:?} and {stored}"),
            }
        }
        drop(second);
    }
}

/// Shows: xattr-attrs.
#[test]
fn attributes_of_a_directory_that_another_program_takes_away_are_named() {
    for ttl in ["0s", "1h"] {
        let mut mount = new("v3", &["--metadata-ttl", ttl, "--writeback-delay", "1h"]);
        mount.expect("the attributes that it had are not stored");
        for name in ["array", "moved"] {
            fs::create_dir(mount.at(name)).unwrap();
            set_xattr(&mount.at(name), "user.attrs.x", "1").unwrap();
        }
        fs::write(mount.store().join("array/zarr.json"), array().to_string()).unwrap();
        fs::rename(mount.store().join("moved"), mount.store().join("elsewhere")).unwrap();
        if ttl == "0s" {
            assert_eq!(errno(fs::metadata(mount.at("moved"))), libc::ENOENT);
        }
        assert_eq!(errno(File::open(mount.path()).unwrap().sync_all()), libc::ESTALE);
        let refused = fs::read_to_string(mount.at(".zarrfs/refused")).unwrap();
        for named in ["\"path\":\"array\"", "\"path\":\"moved\"", "removed or moved", "an array"] {
            assert!(refused.contains(named), "{ttl}, {named}: {refused}");
        }
    }
}

/// Shows: xattr-attrs.
#[test]
fn a_directory_keeps_its_attributes_when_a_program_makes_it_a_group() {
    for (form, name, text) in [
        ("zarr", "zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{"b":2}}"#),
        ("zarr2", ".zgroup", r#"{"zarr_format":2}"#),
    ] {
        let mount = new("v3", &["--as", form]);
        fs::create_dir(mount.at("g")).unwrap();
        for (name, value) in [("user.attrs.a", "1"), ("user.attrs.b", "0")] {
            set_xattr(&mount.at("g"), name, value).unwrap();
        }
        fs::write(mount.at("g").join(name), text).unwrap();
        mount.unmount();
        let stored = &json_of(&mount.store().join("g/zarr.json"))["attributes"];
        let b = if form == "zarr" { 2 } else { 0 };
        assert_eq!(*stored, json!({"a": 1, "b": b}), "{form}");
    }
}

/// Shows: store-decides.
#[test]
fn attributes_that_another_program_has_stored_first_keep_a_directory() {
    let mut mount = new("v2", &[]);
    mount.expect("another program has just made something here");
    for name in ["x", "y", "z"] {
        fs::create_dir(mount.store().join(name)).unwrap();
    }
    fs::write(mount.store().join("x/.zattrs"), r#"{"a": 1}"#).unwrap();
    fs::write(mount.store().join("z/poetry.__lock"), "").unwrap();
    assert_eq!(errno(fs::remove_dir(mount.at("x"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::rename(mount.at("y"), mount.at("x"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::remove_dir(mount.at("z"))), libc::ENOTEMPTY);
    mount.unmount();
    assert_eq!(fs::read_to_string(mount.store().join("x/.zattrs")).unwrap(), r#"{"a": 1}"#);
    let left = names(&mount.store().join("z"));
    assert_eq!(left, BTreeSet::from(["poetry.__lock".to_owned()]), "it has become a group");
}

/// Shows: document-exclusive, link.
#[test]
fn one_of_two_exclusive_writers_makes_the_node() {
    let mut mount = new("v3", &["--writeback-delay", "1h"]);
    mount.expect("zarr.json");
    let other = tempfile::tempdir().unwrap();
    let second = Second::mount(&mount.store(), other.path());
    fs::create_dir(mount.at("g")).unwrap();
    assert_eq!(errno(fs::create_dir(other.path().join("g"))), libc::EEXIST);
    let (here, there) = (mount.at("g/zarr.json"), other.path().join("g/zarr.json"));
    let (mine, theirs) = (File::create_new(&here).unwrap(), File::create_new(&there).unwrap());
    assert_eq!(errno(File::create_new(&here)), libc::EEXIST);
    put(theirs, &with(group(), "attributes", json!({"by": "there"}))).unwrap();
    assert_eq!(errno(put(mine, &with(group(), "attributes", json!({"by": "here"})))), libc::EEXIST);
    drop(second);
    mount.remount(&[]);
    assert_eq!(shown(&here)["attributes"]["by"], "there");
    // As zarr-python does it: a whole file under another name, linked.
    fs::create_dir(mount.at("h")).unwrap();
    let scratch = mount.at("h/zarr.json.7.partial");
    fs::write(&scratch, group().to_string()).unwrap();
    fs::hard_link(&scratch, mount.at("h/zarr.json")).unwrap();
    assert_eq!(errno(fs::hard_link(&scratch, mount.at("h/zarr.json"))), libc::EEXIST);
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_ne!(number(&scratch), number(&mount.at("h/zarr.json")));
    fs::hard_link(&scratch, mount.at("h/copy")).unwrap();
    fs::remove_file(&scratch).unwrap();
    assert_eq!(fs::read_to_string(mount.at("h/copy")).unwrap(), group().to_string());
}

/// Shows: ordinary-exclusive, scratch.
#[test]
fn a_new_file_does_not_replace_that_of_another_mount() {
    let mut mount = new("v3", &["--writeback-delay", "1h", "--metadata-ttl", "1h"]);
    mount.expect("another program has just made a file of this name");
    let other = tempfile::tempdir().unwrap();
    let second = Second::mount(&mount.store(), other.path());
    let there = |name: &str| other.path().join(name);
    let (mine, theirs) = (json!("mine"), json!("theirs"));
    // In a directory, a file is in the store at once.
    assert!(!mount.at("README").exists());
    put(File::create_new(there("README")).unwrap(), &theirs).unwrap();
    assert_eq!(errno(File::create_new(mount.at("README"))), libc::EEXIST);
    assert_eq!(errno(fs::create_dir(mount.at("README"))), libc::EEXIST);
    assert_eq!(errno(fs::hard_link(mount.at("README"), mount.at("README"))), libc::EEXIST);
    // A scratch file is not.
    for way in ["removed", "renamed"] {
        let name = &format!("{way}.tmp");
        let here = mount.at(name);
        let first = File::create_new(&here).unwrap();
        put(File::create_new(there(name)).unwrap(), &theirs).unwrap();
        assert_eq!(errno(put(first, &mine)), libc::EEXIST, "{way}");
        assert_eq!(shown(&mount.store().join(name)), theirs, "{way}");
        if way == "removed" {
            fs::remove_file(&here).unwrap();
        } else {
            assert_eq!(errno(fs::rename(&here, mount.at("moved"))), libc::EEXIST, "{way}");
            fs::remove_file(&here).unwrap();
        }
        assert_eq!(shown(&here), theirs, "{way}");
        fs::remove_file(&here).unwrap();
    }
    drop(second);
    mount.remount(&[]);
    assert_eq!(shown(&mount.at("README")), theirs);
}

/// Shows: document-codecs.
#[test]
fn metadata_that_describe_no_array_are_refused() {
    let unknown =
        json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "homeopathy"}]);
    let fanout = json!({"name": "fanout", "configuration": {"max": 9}});
    for format in FORMATS {
        let mut mount = new(format, &[]);
        mount.expect("arr/zarr.json");
        fs::create_dir(mount.at("arr")).unwrap();
        let before = mount.stored();
        for (document, word) in [
            (with(array(), "codecs", unknown.clone()), "homeopathy"),
            (with(array(), "chunk_key_encoding", fanout.clone()), "fanout"),
            (with(array(), "data_type", json!("colour")), "colour"),
            (json!({"zarr_format": 2}), "zarr_format"),
        ] {
            assert_eq!(
                errno(write(&mount.at("arr/zarr.json"), &document)),
                libc::EINVAL,
                "{document}"
            );
            let errors = mount.errors();
            let last = errors.lines().last().unwrap();
            assert!(last.contains(word), "{word} is not in {last}");
            until("it is gone", || !mount.at("arr/zarr.json").exists());
        }
        assert_eq!(mount.stored(), before);
    }
}

/// Shows: document-policy.
#[test]
fn the_mount_decides_how_new_arrays_are_stored() {
    for (format, options, keys_wanted) in [
        (
            "v3",
            &["--codecs", "none"][..],
            &["arr/c/0/0", "arr/c/0/1", "arr/c/1/0", "arr/c/1/1"][..],
        ),
        ("v3", &["--codecs", "blosc,crc32c", "--shards", "16"], &["arr/c/0/0", "arr/c/1/0"]),
        ("v3", &["--shards", "[4,4]"], &["arr/c/0/0"]),
        (
            "v3",
            &["--shards", "16M", "--codecs", r#"[{"name":"gzip","configuration":{"level":9}}]"#],
            &["arr/c/0/0"],
        ),
        ("d2020-10", &["--shards", "16M", "--codecs", "gzip"], &["data/root/arr/c0/0"]),
    ] {
        let mount = new(format, options);
        fs::create_dir(mount.at("arr")).unwrap();
        write(&mount.at("arr/zarr.json"), &array()).unwrap();
        let mut shown_as = shown(&mount.at("arr/zarr.json"));
        shown_as.as_object_mut().unwrap().remove("storage_transformers");
        assert_eq!(shown_as, array(), "{options:?}");
        for (row, column) in [(0_u8, 0_u8), (0, 1), (1, 0), (1, 1)] {
            fs::create_dir_all(mount.at(&format!("arr/c/{row}"))).unwrap();
            fs::write(mount.at(&format!("arr/c/{row}/{column}")), [row * 2 + column; 8]).unwrap();
        }
        mount.remount(&[]);
        for (row, column) in [(0_u8, 0_u8), (0, 1), (1, 0), (1, 1)] {
            let path = mount.at(&format!("arr/c/{row}/{column}"));
            assert_eq!(fs::read(path).unwrap(), [row * 2 + column; 8]);
        }
        let chunks = keys(&mount).into_iter().filter(|key| !key.contains(".json"));
        assert_eq!(chunks.collect::<BTreeSet<_>>(), set(keys_wanted), "{options:?}");
    }
}

/// Shows: chunks-first.
#[test]
fn chunks_that_come_before_their_document_go_through_the_pipeline() {
    for format in FORMATS {
        for shards in ["none", "16M"] {
            let mut mount = new(format, &["--shards", shards, "--writeback-delay", "1h"]);
            mount.expect("arr");
            for (row, column) in [(0_u8, 0_u8), (0, 1), (1, 0), (1, 1)] {
                fs::create_dir_all(mount.at(&format!("arr/c/{row}"))).unwrap();
                let path = mount.at(&format!("arr/c/{row}/{column}"));
                fs::write(&path, [row * 2 + column; 8]).unwrap();
                if column == 1 {
                    // Some are in the store already, under the names that they came with.
                    File::open(&path).unwrap().sync_all().unwrap();
                    OpenOptions::new().write(true).open(&path).unwrap().sync_all().unwrap();
                }
            }
            fs::write(mount.at("arr/c/read.me"), "text").unwrap();
            fs::write(mount.at("arr/c/1/2"), "no such chunk").unwrap();
            assert_eq!(errno(write(&mount.at("arr/zarr.json"), &array())), libc::EINVAL);
            assert!(mount.errors().contains("arr/c/1/2"), "{}", mount.errors());
            assert_eq!(fs::read(mount.at("arr/c/1/1")).unwrap(), [3; 8]);
            fs::rename(mount.at("arr/c/1/2"), mount.at("arr/c/1/other")).unwrap();
            fs::write(mount.at("arr/c/0/0"), [0; 7]).unwrap();
            assert_eq!(errno(write(&mount.at("arr/zarr.json"), &array())), libc::EINVAL);
            fs::write(mount.at("arr/c/0/0"), [9; 8]).unwrap();
            write(&mount.at("arr/zarr.json"), &array()).unwrap();
            let check = |mount: &Mount| {
                for (path, byte) in [("0/0", 9), ("0/1", 1), ("1/0", 2), ("1/1", 3)] {
                    assert_eq!(
                        fs::read(mount.at("arr/c").join(path)).unwrap(),
                        [byte; 8],
                        "{path}"
                    );
                }
                assert_eq!(fs::read_to_string(mount.at("arr/c/read.me")).unwrap(), "text");
                assert_eq!(names(&mount.at("arr/c/1")), set(&["0", "1", "other"]));
            };
            check(&mount);
            mount.remount(&[]);
            check(&mount);
            let chunks = keys(&mount).into_iter().filter(|key| !key.contains(".json")).count();
            assert_eq!(chunks, 2 + if shards == "none" { 4 } else { 1 }, "{:?}", keys(&mount));
        }
    }
}

/// Shows: group-to-array.
#[test]
fn an_empty_group_can_become_an_array() {
    for format in FORMATS {
        let mut mount = new(format, &["--writeback-delay", "0s"]);
        for part in ["zarr.json", "full/below"] {
            mount.expect(part);
        }
        for name in ["a/c/0", "said", "full/below"] {
            fs::create_dir_all(mount.at(name)).unwrap();
            until("stored", || mount.at(name).join("zarr.json").exists());
        }
        write(&mount.at("full/below/zarr.json"), &with(group(), "attributes", json!({"k": 1})))
            .unwrap();
        until("stored", || mount.at("full/zarr.json").exists() && mount.at("a/zarr.json").exists());
        fs::write(mount.at("a/c/0/1"), [7; 8]).unwrap();
        write(&mount.at("a/zarr.json"), &array()).unwrap();
        assert_eq!(fs::read(mount.at("a/c/0/1")).unwrap(), [7; 8]);
        assert_eq!(
            (names(&mount.at("a/c")), names(&mount.at("a/c/0"))),
            (set(&["0"]), set(&["1"]))
        );
        assert_eq!(shown(&mount.at("a/zarr.json"))["shape"], json!([4, 4]));
        let said = with(group(), "attributes", json!({"k": 1}));
        write(&mount.at("said/zarr.json"), &said).unwrap();
        assert_eq!(errno(write(&mount.at("said/zarr.json"), &array())), libc::EINVAL);
        assert_eq!(errno(write(&mount.at("full/zarr.json"), &array())), libc::EINVAL);
        assert_eq!(errno(write(&mount.at("a/zarr.json"), &group())), libc::EINVAL);
        mount.remount(&[]);
        assert_eq!(shown(&mount.at("a/zarr.json"))["node_type"], "array");
        assert_eq!(shown(&mount.at("full/below/zarr.json"))["attributes"]["k"], 1);
    }
}

/// Shows: stored-document.
#[test]
fn a_stored_metadata_file_can_create_any_array() {
    let mut mount = new("v3", &[]);
    mount.expect(".zarrfs/stored");
    let stored = mount.at(".zarrfs/stored/arr/zarr.json");
    fs::create_dir(mount.at(".zarrfs/stored/arr")).unwrap();
    let codecs = json!([{"name": "transpose", "configuration": {"order": [1, 0]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
        {"name": "gzip", "configuration": {"level": 1}}]);
    let document = with(array(), "codecs", codecs);
    write(&stored, &document).unwrap();
    assert_eq!(fs::read_to_string(&stored).unwrap(), document.to_string());
    assert_eq!(shown(&mount.at("arr/zarr.json"))["codecs"], array()["codecs"]);
    fs::create_dir_all(mount.at("arr/c/0")).unwrap();
    fs::write(mount.at("arr/c/0/0"), [1, 0, 2, 0, 3, 0, 4, 0]).unwrap();
    let changed =
        with(with(document.clone(), "shape", json!([2, 2])), "attributes", json!({"k": 1}));
    write(&stored, &changed).unwrap();
    assert_eq!(shown(&mount.at("arr/zarr.json"))["attributes"]["k"], 1);
    assert_eq!(
        errno(write(&stored, &with(changed.clone(), "data_type", json!("int16")))),
        libc::EINVAL
    );
    assert_eq!(errno(write(&stored, &with(changed, "data_type", json!("colour")))), libc::EINVAL);
    assert_eq!(errno(File::create(mount.at(".zarrfs/stored/arr/other"))), libc::EPERM);
    assert_eq!(errno(fs::remove_file(&stored)), libc::EPERM);
    mount.remount(&[]);
    assert_eq!(fs::read(mount.at("arr/c/0/0")).unwrap(), [1, 0, 2, 0, 3, 0, 4, 0]);
    assert_eq!(shown(&mount.at("arr/zarr.json"))["shape"], json!([2, 2]));
}

/// Shows: consolidated-request, document-consolidated.
#[test]
fn consolidated_metadata_are_generated_and_stay_current() {
    let mount = new("v3", &["--codecs", "gzip", "--writeback-delay", "1h"]);
    for (path, document) in [("g", group()), ("g/a", array()), ("g/h", group()), ("g/h/b", array())]
    {
        fs::create_dir_all(mount.at(path)).unwrap();
        write(&mount.at(path).join("zarr.json"), &document).unwrap();
    }
    let wish = json!({"kind": "inline", "must_understand": false, "metadata": {"made": {"up": 1}}});
    write(&mount.at("g/zarr.json"), &with(group(), "consolidated_metadata", wish)).unwrap();
    let copies = |path: &Path| {
        let metadata = shown(path)["consolidated_metadata"]["metadata"].clone();
        metadata.as_object().cloned().unwrap_or_default()
    };
    let stored = || {
        let all = copies(&mount.store().join("g/zarr.json"));
        for (relative, copy) in &all {
            let mut own = shown(&mount.store().join("g").join(relative).join("zarr.json"));
            own.as_object_mut().unwrap().remove("consolidated_metadata");
            assert_eq!(copy, &own, "{relative}");
        }
        all.keys().cloned().collect::<BTreeSet<_>>()
    };
    let in_mount = || copies(&mount.at("g/zarr.json")).keys().cloned().collect::<BTreeSet<_>>();
    let all = set(&["a", "h", "h/b"]);
    assert_eq!((stored(), in_mount()), (all.clone(), all));
    assert_eq!(copies(&mount.store().join("g/zarr.json"))["a"]["codecs"][1]["name"], "gzip");
    assert_eq!(copies(&mount.at("g/zarr.json"))["a"]["codecs"], array()["codecs"]);
    write(&mount.at("g/a/zarr.json"), &with(array(), "attributes", json!({"k": 1}))).unwrap();
    assert_eq!(copies(&mount.store().join("g/zarr.json"))["a"]["attributes"]["k"], 1);
    fs::create_dir(mount.at("g/new")).unwrap();
    write(&mount.at("g/new/zarr.json"), &array()).unwrap();
    assert_eq!(stored(), set(&["a", "h", "h/b", "new"]));
    fs::rename(mount.at("g/h"), mount.at("g/i")).unwrap();
    assert_eq!(stored(), set(&["a", "i", "i/b", "new"]));
    fs::rename(mount.at("g/i"), mount.at("i")).unwrap();
    fs::remove_dir_all(mount.at("g/new")).unwrap();
    assert_eq!((stored(), in_mount()), (set(&["a"]), set(&["a"])));
    let consolidated = shown(&mount.at("g/zarr.json"));
    fs::remove_file(mount.at("g/zarr.json")).unwrap();
    fs::create_dir(mount.at("g/later")).unwrap();
    write(&mount.at("g/later/zarr.json"), &array()).unwrap();
    write(&mount.at("g/zarr.json"), &consolidated).unwrap();
    assert_eq!(
        stored(),
        set(&["a", "later"]),
        "a document that comes back is of what is there now"
    );
    fs::remove_dir_all(mount.at("g/later")).unwrap();
    write(&mount.at("g/zarr.json"), &group()).unwrap();
    assert_eq!(stored(), set(&[]));
    assert!(shown(&mount.store().join("g/zarr.json")).get("consolidated_metadata").is_none());
}

/// Shows: unlink-document.
#[test]
fn a_removed_metadata_file_can_be_restored() {
    for format in FORMATS {
        let mut mount = new(format, &["--codecs", "gzip"]);
        mount.expect("arr/zarr.json");
        fs::create_dir_all(mount.at("arr")).unwrap();
        write(&mount.at("arr/zarr.json"), &array()).unwrap();
        fs::create_dir_all(mount.at("arr/c/0")).unwrap();
        fs::write(mount.at("arr/c/0/0"), [7; 8]).unwrap();
        let before = keys(&mount);
        fs::remove_file(mount.at("arr/zarr.json")).unwrap();
        assert_eq!(names(&mount.at("arr")), set(&["c"]));
        assert_eq!(fs::read(mount.at("arr/c/0/0")).unwrap(), [7; 8]);
        assert_eq!(keys(&mount).len(), before.len() - 1);
        let other = with(array(), "data_type", json!("int8"));
        assert_eq!(errno(write(&mount.at("arr/zarr.json"), &other)), libc::EINVAL);
        write(&mount.at("arr/zarr.json"), &with(array(), "attributes", json!({"k": 1}))).unwrap();
        assert_eq!(keys(&mount), before);
        assert_eq!(shown(&mount.at("arr/zarr.json"))["attributes"]["k"], 1);
        assert_eq!(fs::read(mount.at("arr/c/0/0")).unwrap(), [7; 8]);
        for path in ["arr/zarr.json", "arr/c/0/0"] {
            fs::remove_file(mount.at(path)).unwrap();
        }
        write(&mount.at("arr/zarr.json"), &other).unwrap();
        assert_eq!(shown(&mount.at("arr/zarr.json"))["data_type"], "int8");
    }
}

/// Shows: rm-node.
#[test]
fn removing_a_node_leaves_no_key() {
    for format in FORMATS {
        for document_first in [true, false] {
            let mount = new(format, &["--shards", "16M"]);
            let root = keys(&mount);
            fs::create_dir_all(mount.at("g/arr/c/1")).unwrap();
            write(&mount.at("g/arr/zarr.json"), &array()).unwrap();
            fs::write(mount.at("g/arr/c/1/1"), [7; 8]).unwrap();
            fs::write(mount.at("g/read.me"), "text").unwrap();
            let outside = if mount.is_draft() { "data/root/g/arr/c9/9" } else { "g/arr/c/9/9" };
            fs::create_dir_all(mount.store().join(outside).parent().unwrap()).unwrap();
            fs::write(mount.store().join(outside), "never shown").unwrap();
            assert_eq!(errno(fs::remove_dir(mount.at("g/arr"))), libc::ENOTEMPTY);
            if document_first {
                fs::remove_file(mount.at("g/arr/zarr.json")).unwrap();
                assert_eq!(errno(fs::remove_dir(mount.at("g/arr"))), libc::ENOTEMPTY);
            }
            run("rm", &["-r"], &[&mount.at("g/arr")]);
            run("find", &[], &[&mount.at("g"), Path::new("-delete")]);
            assert!(!mount.at("g").exists());
            assert_eq!(keys(&mount), root);
            fs::remove_file(mount.at("zarr.json")).unwrap();
            assert!(names(&mount.path()).is_empty());
            mount.remount(&[]);
            assert_eq!(shown(&mount.at("zarr.json")), group());
        }
    }
}

/// Shows: rename-node, mkdir.
#[test]
fn a_node_moves_with_all_that_is_below_it() {
    for format in FORMATS {
        let mut mount = new(format, &["--writeback-delay", "1h"]);
        mount.expect("rename");
        fs::create_dir_all(mount.at("g/arr/c/1")).unwrap();
        write(&mount.at("g/zarr.json"), &with(group(), "attributes", json!({"k": 1}))).unwrap();
        write(&mount.at("g/arr/zarr.json"), &array()).unwrap();
        fs::write(mount.at("g/arr/c/1/1"), [7; 8]).unwrap();
        fs::write(mount.at("g/unstored"), "text").unwrap();
        let mut open = OpenOptions::new().write(true).open(mount.at("g/arr/c/1/1")).unwrap();
        open.write_all(&[8; 4]).unwrap();
        let number = fs::metadata(mount.at("g/arr")).unwrap().ino();
        fs::create_dir(mount.at("to")).unwrap();
        fs::rename(mount.at("g"), mount.at("to/h")).unwrap();
        open.write_all(&[9; 4]).unwrap();
        open.sync_all().unwrap();
        drop(open);
        let check = |mount: &Mount| {
            assert!(!mount.at("g").exists());
            assert_eq!(shown(&mount.at("to/h/zarr.json"))["attributes"]["k"], 1);
            assert_eq!(fs::read(mount.at("to/h/arr/c/1/1")).unwrap(), [8, 8, 8, 8, 9, 9, 9, 9]);
            assert_eq!(fs::read_to_string(mount.at("to/h/unstored")).unwrap(), "text");
        };
        check(&mount);
        assert_eq!(fs::metadata(mount.at("to/h/arr")).unwrap().ino(), number);
        assert_eq!(errno(fs::rename(mount.at("to"), mount.at("to/h/x"))), libc::EINVAL);
        fs::create_dir(mount.at("empty")).unwrap();
        assert_eq!(errno(fs::rename(mount.at("empty"), mount.at("to/h"))), libc::ENOTEMPTY);
        assert_eq!(errno(fs::rename(mount.at("empty"), mount.at("to/h/arr/x"))), libc::EPERM);
        assert_eq!(errno(fs::rename(mount.at("to/h/arr/c"), mount.at("c"))), libc::EXDEV);
        fs::rename(mount.at("to/h/arr"), mount.at("empty")).unwrap();
        assert_eq!(fs::read(mount.at("empty/c/1/1")).unwrap()[..4], [8; 4]);
        fs::rename(mount.at("empty"), mount.at("to/h/arr")).unwrap();
        mount.remount(&[]);
        check(&mount);
        let expected = if mount.is_draft() {
            set(&[
                "data/root/to/h/arr/c1/1",
                "data/root/to/h/unstored",
                "meta/root.group.json",
                "meta/root/to.group.json",
                "meta/root/to/h.group.json",
                "meta/root/to/h/arr.array.json",
            ])
        } else {
            set(&[
                "to/h/arr/c/1/1",
                "to/h/arr/zarr.json",
                "to/h/unstored",
                "to/h/zarr.json",
                "to/zarr.json",
                "zarr.json",
            ])
        };
        assert_eq!(keys(&mount), expected);
    }
}

/// Shows: mode-w.
#[test]
fn groups_can_be_removed_and_created_again_but_not_the_mountpoint() {
    let mount = new("v3", &[]);
    fs::create_dir_all(mount.at("g/arr")).unwrap();
    write(&mount.at("g/arr/zarr.json"), &array()).unwrap();
    fs::remove_dir_all(mount.at("g")).unwrap();
    fs::create_dir(mount.at("g")).unwrap();
    put(File::create_new(mount.at("g/zarr.json")).unwrap(), &group()).unwrap();
    assert_eq!(errno(fs::remove_dir_all(mount.path())), libc::EBUSY);
    assert!(names(&mount.path()).is_empty());
    put(File::create_new(mount.at("zarr.json")).unwrap(), &group()).unwrap();
    assert_eq!(shown(&mount.at("zarr.json")), group());
}

/// An array of eight bytes in chunks of four.
fn small() -> Value {
    let document = with(array(), "shape", json!([8]));
    let document = with(document, "data_type", json!("uint8"));
    let grid = json!({"name": "regular", "configuration": {"chunk_shape": [4]}});
    with(with(document, "chunk_grid", grid), "codecs", json!([{"name": "bytes"}]))
}

/// Writes a file, and has it in the store when it returns.
fn put_synced(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

/// Shows: chunks-first, document-exclusive.
#[test]
fn a_late_metadata_file_does_not_replace_that_of_another_mount() {
    let mut mount = new("v3", &["--writeback-delay", "1h"]);
    for part in ["x/zarr.json", "x/c/0", "write back"] {
        mount.expect(part);
    }
    let other = tempfile::tempdir().unwrap();
    fs::create_dir_all(mount.at("x/c")).unwrap();
    fs::write(mount.at("x/c/0"), "AAAA").unwrap();
    let mine = File::create_new(mount.at("x/zarr.json")).unwrap();
    let second = Second::mount(&mount.store(), other.path());
    fs::remove_file(other.path().join("x/c/0")).unwrap();
    write(&other.path().join("x/zarr.json"), &small()).unwrap();
    put_synced(&other.path().join("x/c/0"), b"BBBB");
    let before = mount.stored();
    put(mine, &small()).unwrap_err();
    assert_eq!(mount.stored(), before);
    drop(second);
}

/// Shows: chunks-first.
#[test]
fn the_root_can_become_an_array_with_its_chunks() {
    for format in FORMATS {
        let mount = new(format, &["--writeback-delay", "1h"]);
        fs::remove_file(mount.at("zarr.json")).unwrap();
        fs::create_dir(mount.at("c")).unwrap();
        put_synced(&mount.at("c/0"), b"abcd");
        fs::write(mount.at("c/1"), "efgh").unwrap();
        write(&mount.at("zarr.json"), &small()).unwrap();
        mount.remount(&[]);
        assert_eq!(fs::read(mount.at("c/0")).unwrap(), b"abcd");
        assert_eq!(fs::read(mount.at("c/1")).unwrap(), b"efgh");
        assert!(!names(&mount.store()).contains(".zarrfs"));
    }
}

/// Shows: chunks-first.
#[test]
fn a_file_that_is_open_when_its_array_is_created_is_stored_as_a_chunk() {
    let mount = new("v3", &["--writeback-delay", "1h"]);
    fs::create_dir_all(mount.at("x/c")).unwrap();
    put_synced(&mount.at("x/c/0"), b"abcd");
    put_synced(&mount.at("x/c/1"), b"abcd");
    let open = OpenOptions::new().read(true).write(true).open(mount.at("x/c/0")).unwrap();
    let mut written = OpenOptions::new().write(true).open(mount.at("x/c/1")).unwrap();
    written.write_all(b"AB").unwrap();
    write(&mount.at("x/zarr.json"), &small()).unwrap();
    assert_eq!(names(&mount.at("x/c")), set(&["0", "1"]));
    drop(open);
    written.sync_all().unwrap();
    drop(written);
    mount.remount(&[]);
    assert_eq!(fs::read(mount.at("x/c/0")).unwrap(), b"abcd");
    assert_eq!(fs::read(mount.at("x/c/1")).unwrap(), b"ABcd");
}

/// Shows: chunks-first, mkdir-group.
#[test]
fn chunks_written_for_longer_than_the_delay_still_become_an_array() {
    let mount = new("v3", &["--writeback-delay", "100ms"]);
    fs::create_dir_all(mount.at("arr/c/0")).unwrap();
    until("the delay", || mount.at("arr/c/0/zarr.json").exists());
    fs::write(mount.at("arr/c/0/1"), [7; 8]).unwrap();
    fs::create_dir_all(mount.at("arr/c/1")).unwrap();
    fs::write(mount.at("arr/c/1/1"), [8; 8]).unwrap();
    write(&mount.at("arr/zarr.json"), &array()).unwrap();
    assert_eq!(fs::read(mount.at("arr/c/0/1")).unwrap(), [7; 8]);
    assert_eq!(names(&mount.at("arr/c/0")), set(&["1"]));
    run("rm", &["-r"], &[&mount.at("arr")]);
    assert_eq!(keys(&mount), set(&["zarr.json"]));
}

/// Shows: unlink-document, xattr-attrs.
#[test]
fn an_attribute_cannot_be_set_without_a_metadata_file() {
    let mut mount = new("v3", &[]);
    mount.expect("setxattr");
    fs::create_dir_all(mount.at("x/c")).unwrap();
    write(&mount.at("x/zarr.json"), &small()).unwrap();
    fs::write(mount.at("x/c/0"), "abcd").unwrap();
    fs::rename(mount.at("x/zarr.json"), mount.at("x/zarr.json~")).unwrap();
    assert_eq!(set_xattr(&mount.at("x"), "user.attrs.one", "1"), Err(libc::ENOENT));
    fs::rename(mount.at("x/zarr.json~"), mount.at("x/zarr.json")).unwrap();
    assert_eq!(fs::read(mount.at("x/c/0")).unwrap(), b"abcd");
}

/// Shows: rm-node, scratch-rename.
#[test]
fn removing_an_array_leaves_no_trace_of_nodes_below_it() {
    let mount = new("v3", &["--writeback-delay", "1h"]);
    fs::create_dir_all(mount.at("x/sub/y")).unwrap();
    write(&mount.at("x/sub/y/zarr.json"), &small()).unwrap();
    run("rm", &["-r"], &[&mount.at("x/sub/y")]);
    fs::write(mount.at("x/sub/tmp"), small().to_string()).unwrap();
    fs::rename(mount.at("x/sub/tmp"), mount.at("x/zarr.json")).unwrap();
    assert!(names(&mount.at("x/sub")).is_empty());
    run("rm", &["-r"], &[&mount.at("x")]);
    assert_eq!(keys(&mount), set(&["zarr.json"]));
}

/// Shows: rename-node.
#[test]
fn a_move_that_fails_leaves_the_node_where_it_was() {
    let mut mount = new("d2020-10", &[]);
    mount.expect("rename");
    fs::create_dir_all(mount.at("g/x/c")).unwrap();
    write(&mount.at("g/x/zarr.json"), &small()).unwrap();
    fs::write(mount.at("g/x/c/0"), "abcd").unwrap();
    fs::create_dir(mount.at("e")).unwrap();
    File::open(mount.path()).unwrap().sync_all().unwrap();
    fs::create_dir_all(mount.store().join("meta/root/e/y.array.json")).unwrap();
    fs::rename(mount.at("g/x"), mount.at("e/y")).unwrap_err();
    assert_eq!(fs::read(mount.at("g/x/c/0")).unwrap(), b"abcd");
    assert!(mount.at("g/x/zarr.json").exists() && !names(&mount.store()).contains(".zarrfs"));
}

#[test]
fn a_directory_with_a_reserved_name_does_not_become_a_node() {
    for format in ["v3", "v2", "d2020-10"] {
        let mut mount = new(format, &["--writeback-delay", "0s"]);
        mount.expect("reserved for zarrfs");
        fs::create_dir_all(mount.at("g/.zarrfs/below")).unwrap();
        fs::write(mount.at("g/.zarrfs/notes"), "kept").unwrap();
        for dir in ["g/.zarrfs/below", "g/.zarrfs", "g", "."] {
            File::open(mount.at(dir)).unwrap().sync_all().unwrap();
        }
        let group = r#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#;
        // The error comes at close, which this does not look at.
        fs::write(mount.at("g/.zarrfs/zarr.json"), group).unwrap();
        fs::create_dir(mount.at("h")).unwrap();
        fs::write(mount.at("h/zarr.json"), group).unwrap();
        assert_eq!(errno(fs::rename(mount.at("h"), mount.at("g/.zarrfs/h"))), libc::EPERM);
        assert_eq!(fs::read_to_string(mount.at("g/.zarrfs/notes")).unwrap(), "kept");
        let stored = mount.stored();
        let nodes = stored.iter().filter(|(name, _)| name.contains(".zarrfs"));
        let nodes: Vec<_> = nodes.map(|(name, _)| name).collect();
        assert!(nodes.iter().all(|name| name.ends_with("notes")), "{format}: {nodes:?}");
    }
}

#[test]
fn in_an_array_that_is_not_understood_only_stored_names_and_chunks_are_errors() {
    let unknown = with(array(), "chunk_grid", json!({"name": "hexagonal"}));
    let make = |store: &Path| {
        fs::create_dir_all(store.join("x/c/0")).unwrap();
        fs::write(store.join("zarr.json"), group().to_string()).unwrap();
        fs::write(store.join("x/zarr.json"), unknown.to_string()).unwrap();
        fs::write(store.join("x/c/0/0"), "encoded").unwrap();
        fs::write(store.join("x/part-0"), "encoded").unwrap();
    };
    let mut mount = Mount::of(make, &[]);
    mount.expect("hexagonal");
    for name in [".zattrs", ".zarray", ".zgroup", "notes.txt", "chunks", "c.zarr"] {
        assert_eq!(errno(fs::metadata(mount.at("x").join(name))), libc::ENOENT, "{name}");
    }
    for name in ["c", "c/0/0", "c.0.0", "0.0", "0", "part-0"] {
        assert_ne!(errno(fs::read(mount.at("x").join(name))), libc::ENOENT, "{name}");
    }
}

#[test]
fn a_metadata_file_that_needs_no_change_is_shown_byte_for_byte() {
    let plain = with(array(), "attributes", json!({"units": "m"}));
    let make = |store: &Path| {
        fs::create_dir(store.join("x")).unwrap();
        fs::write(store.join("zarr.json"), group().to_string()).unwrap();
        fs::write(store.join("x/zarr.json"), plain.to_string()).unwrap();
    };
    let mount = Mount::of(make, &[]);
    for name in ["zarr.json", "x/zarr.json"] {
        let stored = fs::read(mount.store().join(name)).unwrap();
        assert_eq!(fs::read(mount.at(name)).unwrap(), stored, "{name}");
    }
}
