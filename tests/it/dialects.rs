//! What a mount keeps of a dialect, and what it shows of every one.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Mount, errno, json_of, names, said, set_xattr};

fn set(names: &[&str]) -> std::collections::BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn array(more: &Value) -> String {
    let mut document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [5, 4], "data_type": "int16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
    });
    for (name, value) in more.as_object().unwrap() {
        document[name] = value.clone();
    }
    document.to_string()
}

fn zarray(more: &Value) -> String {
    let mut document = json!({
        "zarr_format": 2, "shape": [5, 4], "chunks": [3, 2], "dtype": "<i2", "compressor": null,
        "filters": null, "fill_value": 0, "order": "C", "dimension_separator": ".",
    });
    for (name, value) in more.as_object().unwrap() {
        document[name] = value.clone();
    }
    document.to_string()
}

/// Shows: zarr2-attributes.
#[test]
fn an_edit_of_attributes_changes_the_file_of_attributes_alone() {
    let mount = Mount::new(&["--create", "--format", "v2"]);
    fs::create_dir(mount.at("a")).unwrap();
    let named = json!({"dimension_names": ["y", "x"], "attributes": {"units": "K"}});
    fs::write(mount.at("a/zarr.json"), array(&named)).unwrap();
    let before = fs::read(mount.store().join("a/.zarray")).unwrap();
    let attributes = json_of(&mount.store().join("a/.zattrs"));
    assert_eq!(attributes, json!({"units": "K", "_ARRAY_DIMENSIONS": ["y", "x"]}));
    let mut document = json_of(&mount.at("a/zarr.json"));
    document["attributes"]["n"] = json!([1]);
    fs::write(mount.at("a/zarr.json"), document.to_string()).unwrap();
    assert_eq!(fs::read(mount.store().join("a/.zarray")).unwrap(), before);
    assert_eq!(json_of(&mount.store().join("a/.zattrs"))["n"], json!([1]));
    fs::remove_file(mount.at("a/zarr.json")).unwrap();
    assert!(names(&mount.store().join("a")).is_empty());
}

/// Shows: conventions.
#[test]
fn masked_values_and_ome_zarr_follow_the_shown_version() {
    let mut mount = Mount::of(
        |store| {
            fs::write(store.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
            let ome = r#"{"multiscales": [{"version": "0.4", "datasets": [{"path": "0"}]}]}"#;
            fs::write(store.join(".zattrs"), ome).unwrap();
            fs::create_dir(store.join("x")).unwrap();
            fs::write(store.join("x/.zarray"), zarray(&json!({"fill_value": -7}))).unwrap();
            fs::write(store.join("x/.zattrs"), r#"{"_ARRAY_DIMENSIONS": ["y", "x"]}"#).unwrap();
            fs::write(store.join("x/0.0"), [1; 12]).unwrap();
        },
        &[],
    );
    mount.expect("_FillValue");
    let root = json_of(&mount.at("zarr.json"));
    assert_eq!(root["attributes"]["ome"]["version"], "0.5");
    let shown = json_of(&mount.at("x/zarr.json"));
    assert_eq!(shown["attributes"], json!({"_FillValue": -7}));
    assert_eq!(shown["dimension_names"], json!(["y", "x"]));
    let mut changed = shown.clone();
    changed["attributes"]["_FillValue"] = json!(3);
    let mut file = fs::File::create(mount.at("x/zarr.json")).unwrap();
    file.write_all(changed.to_string().as_bytes()).unwrap();
    assert_eq!(errno(file.sync_all()), libc::EINVAL);
    drop(file);
    let mut ome = root.clone();
    ome["attributes"]["ome"]["multiscales"][0]["name"] = json!("cells");
    fs::write(mount.at("zarr.json"), ome.to_string()).unwrap();
    let stored = json_of(&mount.store().join(".zattrs"));
    assert_eq!(stored["multiscales"][0]["name"], "cells");
    assert_eq!(stored["multiscales"][0]["version"], "0.4");
    assert!(stored.get("ome").is_none());
}

/// Shows: folder.
#[test]
fn a_folder_shows_each_hierarchy_in_its_own_dialect() {
    let mut mount = Mount::of(
        |store| {
            let v3 = r#"{"zarr_format": 3, "node_type": "group", "attributes": {"is": 3}}"#;
            fs::create_dir_all(store.join("old/x")).unwrap();
            fs::create_dir_all(store.join("a/b/new")).unwrap();
            fs::write(store.join("old/.zgroup"), r#"{"zarr_format": 2}"#).unwrap();
            fs::write(store.join("old/x/.zarray"), zarray(&json!({}))).unwrap();
            fs::write(store.join("old/x/0.0"), [9; 12]).unwrap();
            fs::write(store.join("a/b/new/zarr.json"), v3).unwrap();
            fs::write(store.join("a/notes.txt"), "text").unwrap();
        },
        &[],
    );
    assert_eq!(names(&mount.path()), set(&["a", "old", "zarr.json"]));
    assert_eq!(names(&mount.at("a")), set(&["b", "notes.txt", "zarr.json"]));
    assert_eq!(fs::read(mount.at("old/x/c/0/0")).unwrap(), [9; 12]);
    assert_eq!(json_of(&mount.at("a/b/new/zarr.json"))["attributes"]["is"], 3);
    mount.expect("mounted read-only");
    for path in ["new", "old/new", "a/b/new/new"] {
        assert_eq!(errno(fs::create_dir(mount.at(path))), libc::EROFS);
    }
}

/// Shows: as-zarr2.
#[test]
fn every_dialect_can_be_shown_as_zarr_2() {
    for format in ["v3", "v2", "n5", "d2020-10"] {
        let mount = Mount::new(&["--create", "--format", format, "--as", "zarr2"]);
        fs::create_dir(mount.at("a")).unwrap();
        // The chunks may come first.
        fs::write(mount.at("a/1.1"), [7; 12]).unwrap();
        fs::write(mount.at("a/.zattrs"), r#"{"units": "K"}"#).unwrap();
        fs::write(mount.at("a/.zarray"), zarray(&json!({}))).unwrap();
        fs::write(mount.at("a/0.0"), [9; 12]).unwrap();
        let listed = set(&[".zarray", ".zattrs", "0.0", "1.1"]);
        assert_eq!(names(&mount.at("a")), listed, "{format}");
        mount.remount(&["--as", "zarr2"]);
        assert_eq!(names(&mount.path()), set(&[".zgroup", ".zmetadata", "a"]), "{format}");
        assert_eq!(names(&mount.at("a")), listed, "{format}");
        let copies = json_of(&mount.at(".zmetadata"));
        assert_eq!(copies["metadata"]["a/.zattrs"], json!({"units": "K"}), "{format}");
        let shown = json_of(&mount.at("a/.zarray"));
        assert_eq!(shown["compressor"], Value::Null);
        assert_eq!((&shown["shape"], &shown["chunks"]), (&json!([5, 4]), &json!([3, 2])));
        assert_eq!(fs::read(mount.at("a/0.0")).unwrap(), [9; 12], "{format}");
        assert_eq!(errno(fs::read(mount.at("a/0.1"))), libc::ENOENT, "{format}");
        fs::remove_dir_all(mount.at("a")).unwrap();
        assert_eq!(names(&mount.path()), set(&[".zgroup", ".zmetadata"]), "{format}");
    }
}

/// Shows: as-zarr2-fill.
#[test]
fn a_missing_chunk_without_a_fill_value_opens_by_name() {
    let mount = Mount::new(&["--create", "--as", "zarr2"]);
    fs::create_dir(mount.at("a")).unwrap();
    fs::write(mount.at("a/.zarray"), zarray(&json!({"fill_value": null}))).unwrap();
    fs::write(mount.at("a/.zattrs"), r#"{"_ARRAY_DIMENSIONS": ["y", "x"]}"#).unwrap();
    mount.remount(&["--as", "zarr2"]);
    assert_eq!(json_of(&mount.at("a/.zarray"))["fill_value"], Value::Null);
    assert_eq!(fs::read(mount.at("a/1.0")).unwrap(), [0; 12]);
    assert_eq!(names(&mount.at("a")), set(&[".zarray", ".zattrs"]));
    assert_eq!(errno(fs::read(mount.at("a/2.0"))), libc::ENOENT);
}

/// Shows: as-zarr2-removed.
#[test]
fn a_removed_chunk_is_zero_if_only_the_shown_fill_value_is_null() {
    for options in [&["--as", "zarr2"][..], &["--as", "zarr2", "--writeback=all"]] {
        let mount = Mount::of(
            |store| {
                let document = array(&json!({"fill_value": 0x0707, "dimension_names": ["y", "x"]}));
                fs::create_dir_all(store.join("a")).unwrap();
                fs::write(store.join("zarr.json"), r#"{"zarr_format":3,"node_type":"group"}"#)
                    .unwrap();
                fs::write(store.join("a/zarr.json"), document).unwrap();
            },
            options,
        );
        assert_eq!(json_of(&mount.at("a/.zarray"))["fill_value"], Value::Null);
        fs::write(mount.at("a/0.0"), [9; 12]).unwrap();
        fs::write(mount.at("a/0.1"), [9; 12]).unwrap();
        fs::remove_file(mount.at("a/0.0")).unwrap();
        // The program that removed it may create it again.
        assert_eq!(errno(fs::read(mount.at("a/0.0"))), libc::ENOENT, "{options:?}");
        assert!(!names(&mount.at("a")).contains("0.0"), "{options:?}");
        let shown = |mount: &Mount, name: &str| fs::read(mount.at(name)).unwrap();
        assert_eq!(shown(&mount, "a/1.0"), [7; 12], "a chunk that was never stored");
        mount.remount(options);
        assert_eq!(shown(&mount, "a/0.0"), [0; 12], "{options:?}");
        // In any order, all files of an array can be removed, and then its directory.
        for first in [".zarray", "0.1"] {
            let copy = mount.at(&format!("copy{first}"));
            let copied = Command::new("cp").arg("-r").arg(mount.at("a")).arg(&copy).status();
            assert!(copied.unwrap().success());
            rustix::fs::syncfs(fs::File::open(mount.path()).unwrap()).unwrap();
            fs::remove_file(copy.join(first)).unwrap();
            fs::remove_dir_all(&copy).unwrap();
            assert!(!copy.exists(), "{options:?} {first}");
        }
        fs::remove_file(mount.at("a/0.1")).unwrap();
        fs::remove_dir_all(mount.at("a")).unwrap();
        assert_eq!(names(&mount.path()), set(&[".zgroup", ".zmetadata"]), "{options:?}");
        mount.remount(&[]);
        assert_eq!(names(&mount.path()), set(&["zarr.json"]), "{options:?}");
    }
}

fn store_of_masked(store: &std::path::Path) {
    let attributes = json!({"_FillValue": -1});
    let document = array(&json!({"dimension_names": ["y", "x"], "attributes": attributes}));
    fs::create_dir_all(store.join("a")).unwrap();
    fs::write(store.join("zarr.json"), r#"{"zarr_format":3,"node_type":"group"}"#).unwrap();
    fs::write(store.join("a/zarr.json"), document).unwrap();
}

/// Shows: as-zarr2-removed, as-zarr2-fill.
#[test]
fn a_removed_chunk_has_the_masked_value_that_is_shown() {
    let mount = Mount::of(store_of_masked, &["--as", "zarr2"]);
    assert_eq!(json_of(&mount.at("a/.zarray"))["fill_value"], json!(-1));
    fs::write(mount.at("a/0.0"), [9; 12]).unwrap();
    fs::remove_file(mount.at("a/0.0")).unwrap();
    assert!(names(&mount.at("a")).contains("0.1"), "a copy without it would have -1 in place of 0");
    mount.remount(&["--as", "zarr2"]);
    assert_eq!(fs::read(mount.at("a/0.0")).unwrap(), [255; 12]);
    assert_eq!(fs::read(mount.at("a/0.1")).unwrap(), [0; 12]);
    let removed = Command::new("rm").arg("-r").arg(mount.at("a")).output().unwrap();
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(names(&mount.path()), set(&[".zgroup", ".zmetadata"]));
}

/// Shows: as-zarr2-removed, as-zarr2-fill.
#[test]
fn a_missing_chunk_that_is_shown_can_be_written_and_replaced() {
    let null = |store: &std::path::Path| {
        fs::create_dir_all(store.join("a")).unwrap();
        fs::write(store.join(".zgroup"), r#"{"zarr_format":2}"#).unwrap();
        fs::write(store.join("a/.zarray"), zarray(&json!({"fill_value": null}))).unwrap();
    };
    for make in [store_of_masked as fn(&std::path::Path), null] {
        for options in [&["--as", "zarr2"][..], &["--as", "zarr2", "--writeback=all"]] {
            let mount = Mount::of(make, options);
            let chunk = mount.at("a/0.0");
            assert_eq!(fs::metadata(&chunk).unwrap().mtime(), 0);
            let mut file = fs::File::options().read(true).write(true).open(&chunk).unwrap();
            file.write_all(&[7]).unwrap();
            drop(file);
            let expected = [[7].as_slice(), &[0; 11]].concat();
            assert_eq!(fs::read(&chunk).unwrap(), expected, "{options:?}");
            fs::remove_file(&chunk).unwrap();
            fs::File::create_new(&chunk).unwrap().write_all(&[8; 12]).unwrap();
            assert_eq!(fs::read(&chunk).unwrap(), [8; 12], "{options:?}");
            // One that was never stored can be replaced, too.
            fs::remove_file(mount.at("a/0.1")).unwrap();
            fs::File::create_new(mount.at("a/0.1")).unwrap().write_all(&[6; 12]).unwrap();
            mount.remount(options);
            assert_eq!(fs::read(&chunk).unwrap(), [8; 12], "{options:?}");
            assert_eq!(fs::read(mount.at("a/0.1")).unwrap(), [6; 12], "{options:?}");
        }
    }
}

/// Shows: read-lossy.
#[test]
fn a_chunk_of_a_lossy_codec_reads_as_it_is_stored() {
    let lossy = json!([{"id": "fixedscaleoffset", "offset": 0, "scale": 1, "dtype": "<f4", "astype": "<i2"}]);
    let mount = Mount::of(
        |store| {
            let document =
                zarray(&json!({"dtype": "<f4", "filters": lossy, "shape": [2], "chunks": [2]}));
            fs::write(store.join(".zarray"), document).unwrap();
        },
        &[],
    );
    fs::create_dir(mount.at("c")).unwrap();
    fs::write(mount.at("c/0"), [1.25_f32.to_le_bytes(), 7_f32.to_le_bytes()].concat()).unwrap();
    let stored = [1_f32.to_le_bytes(), 7_f32.to_le_bytes()].concat();
    assert_eq!(fs::read(mount.at("c/0")).unwrap(), stored);
}

/// Shows: n5-edge.
#[test]
fn a_block_at_the_edge_is_cropped_to_the_array() {
    let mount = Mount::new(&["--create", "--format", "n5", "--codecs", "none"]);
    fs::create_dir(mount.at("a")).unwrap();
    fs::write(mount.at("a/zarr.json"), array(&json!({}))).unwrap();
    fs::create_dir_all(mount.at("a/c/1")).unwrap();
    fs::write(mount.at("a/c/1/1"), [7; 12]).unwrap();
    // Two rows of two, high bytes first; the first dimension of N5 is the last of Zarr.
    let stored = fs::read(mount.store().join("a/1/1")).unwrap();
    assert_eq!(stored[..12], [0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2]);
    assert_eq!(stored[12..], [7; 8]);
    let mut shown = vec![7; 8];
    shown.extend([0; 4]);
    assert_eq!(fs::read(mount.at("a/c/1/1")).unwrap(), shown);
}

/// Shows: as-zarr2-copies.
#[test]
fn consolidated_metadata_shown_as_zarr2_follow_every_change_of_the_mount_at_once() {
    let mount = Mount::new(&["--create"]);
    for node in ["g", "h"] {
        fs::create_dir(mount.at(node)).unwrap();
        fs::write(mount.at(node).join("zarr.json"), r#"{"zarr_format":3,"node_type":"group"}"#)
            .unwrap();
    }
    fs::create_dir(mount.at("g/a")).unwrap();
    fs::write(mount.at("g/a/zarr.json"), array(&json!({}))).unwrap();
    mount.remount(&["--as", "zarr2", "--immutable"]);
    let names = |group: &str| -> std::collections::BTreeSet<String> {
        let copies = json_of(&mount.at(group).join(".zmetadata"));
        copies["metadata"].as_object().unwrap().keys().cloned().collect()
    };
    let all = || (names("."), names("g"), names("h"));
    let (none, root) = (set(&[".zgroup"]), [".zgroup", "g/.zgroup", "h/.zgroup"]);
    let root = |more: &[&str]| set(&[&root[..], more].concat());
    assert_eq!(all(), (root(&["g/a/.zarray"]), set(&[".zgroup", "a/.zarray"]), none.clone()));
    set_xattr(&mount.at("g/a"), "user.attrs.units", "\"K\"").unwrap();
    let own = set(&[".zgroup", "a/.zarray", "a/.zattrs"]);
    assert_eq!(all(), (root(&["g/a/.zarray", "g/a/.zattrs"]), own, none.clone()));
    fs::rename(mount.at("g/a"), mount.at("h/b")).unwrap();
    let own = set(&[".zgroup", "b/.zarray", "b/.zattrs"]);
    assert_eq!(all(), (root(&["h/b/.zarray", "h/b/.zattrs"]), none.clone(), own));
    fs::write(mount.at("h/b/.zattrs"), "{}").unwrap();
    let own = set(&[".zgroup", "b/.zarray"]);
    assert_eq!(all(), (root(&["h/b/.zarray"]), none.clone(), own));
    fs::write(mount.at("h/b/.zarray"), zarray(&json!({"shape": [2, 2]}))).unwrap();
    assert_eq!(json_of(&mount.at(".zmetadata"))["metadata"]["h/b/.zarray"]["shape"], json!([2, 2]));
    fs::remove_dir_all(mount.at("h/b")).unwrap();
    assert_eq!(all(), (root(&[]), none.clone(), none));
}

#[test]
fn arrays_without_dimensions_can_be_copied_as_zarr_2_whatever_their_attributes_say() {
    for format in ["v2", "v3", "d2020-10"] {
        let source = tempfile::tempdir().unwrap();
        for (name, attributes) in [("bare", "{}"), ("named", "{\"_ARRAY_DIMENSIONS\": []}")] {
            let at = source.path().join(name);
            fs::create_dir(&at).unwrap();
            let document = r#"{"zarr_format": 2, "shape": [], "chunks": [], "dtype": "<i4",
                "compressor": null, "fill_value": 3, "order": "C", "filters": null}"#;
            fs::write(at.join(".zarray"), document).unwrap();
            fs::write(at.join(".zattrs"), attributes).unwrap();
            fs::write(at.join("0"), [1, 0, 0, 0]).unwrap();
        }
        let mount = Mount::new(&["--create", "--as", "zarr2", "--format", format]);
        for _ in 0..2 {
            let copied =
                Command::new("cp").arg("-rT").arg(source.path()).arg(mount.at("t")).output();
            let copied = copied.unwrap();
            assert!(copied.status.success(), "{format}: {copied:?}");
        }
        for name in ["bare", "named"] {
            assert_eq!(
                fs::read(mount.at(&format!("t/{name}/0"))).unwrap(),
                [1, 0, 0, 0],
                "{format}"
            );
        }
        mount.unmount();
        let [one, two] =
            [source.path(), &mount.store().join("t")].map(|it| it.display().to_string());
        let (code, text) = said(&["diff", &one, &two]);
        assert_eq!(code, 0, "{format}: {text}");
    }
}

#[test]
fn a_missing_chunk_reads_as_shown_after_a_program_has_rewritten_the_metadata_file() {
    for writeback in ["sync", "delay"] {
        let make = |store: &std::path::Path| {
            let more = json!({"fill_value": 7, "dimension_names": ["y", "x"]});
            fs::write(store.join("zarr.json"), array(&more)).unwrap();
        };
        let mount = Mount::of(make, &["--as", "zarr2", "--writeback", writeback]);
        let before = fs::read(mount.at("1.1")).unwrap();
        assert_eq!(before, [7_i16; 6].map(i16::to_le_bytes).concat());
        // As libraries do that append: with the fill value that was shown, which is null.
        let mut document = json_of(&mount.at(".zarray"));
        assert_eq!(document["fill_value"], Value::Null);
        document["shape"] = json!([6, 4]);
        fs::write(mount.at(".zarray"), document.to_string()).unwrap();
        for name in ["0.0", "1.0", "1.1"] {
            assert_eq!(fs::read(mount.at(name)).unwrap(), before, "{writeback} {name}");
        }
    }
}

#[test]
fn attributes_of_an_array_that_have_the_names_of_those_of_images_stay_as_they_are() {
    for (name, value) in
        [("labels", json!(["cat", "dog"])), ("image-label", json!({"version": "0.4"}))]
    {
        let dir = tempfile::tempdir().unwrap();
        let stores = ["s", "t", "u"].map(|it| dir.path().join(it));
        fs::create_dir(&stores[0]).unwrap();
        let document = json!({"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "|u1",
            "compressor": null, "fill_value": 0, "order": "C", "filters": null});
        let mut attributes = json!({});
        attributes[name] = value;
        fs::write(stores[0].join(".zarray"), document.to_string()).unwrap();
        fs::write(stores[0].join(".zattrs"), attributes.to_string()).unwrap();
        let paths = stores.each_ref().map(|it| it.to_str().unwrap());
        assert_eq!(said(&["convert", paths[0], paths[1]]).0, 0);
        assert_eq!(json_of(&stores[1].join("zarr.json"))["attributes"], attributes);
        assert_eq!(said(&["convert", paths[1], paths[2], "--format", "v2"]).0, 0);
        assert_eq!(json_of(&stores[2].join(".zattrs")), attributes);
    }
}

/// Shows: zarr2-nodes. A group of Zarr 3 with nothing in its metadata file becomes one of Zarr 2 in
/// the mount if a program writes that: after a pause, at the root, by a rename, and with its
/// attributes alone.
#[test]
fn a_program_may_write_zarr_2_into_an_empty_group_of_zarr_3() {
    let group = r#"{"zarr_format":2}"#;
    for (at, way) in [("g", "create"), (".", "create"), ("g", "rename"), ("g", "attributes")] {
        let mount = Mount::new(&["--create"]);
        if at == "g" {
            fs::create_dir(mount.at("g")).unwrap();
            fs::write(mount.at("g/zarr.json"), r#"{"zarr_format":3,"node_type":"group"}"#).unwrap();
        }
        let node = mount.at(at);
        let put = |name: &str, text: &str| match way {
            "rename" => {
                fs::write(node.join("new.tmp"), text).unwrap();
                fs::rename(node.join("new.tmp"), node.join(name)).unwrap();
            }
            _ => fs::File::create_new(node.join(name)).unwrap().write_all(text.as_bytes()).unwrap(),
        };
        put(".zattrs", r#"{"title":"hello"}"#);
        if way != "attributes" {
            put(".zgroup", group);
            assert!(names(&node).is_superset(&set(&[".zattrs", ".zgroup"])), "{at} {way}");
            assert!(!node.join("zarr.json").exists(), "{at} {way}");
        }
        fs::create_dir(node.join("a")).unwrap();
        fs::write(node.join("a/.zarray"), zarray(&json!({}))).unwrap();
        fs::write(node.join("a/0.0"), [7; 12]).unwrap();
        mount.unmount();
        let stored = mount.store().join(at);
        assert_eq!(json_of(&stored.join("zarr.json"))["attributes"], json!({"title": "hello"}));
        assert_eq!(names(&stored), set(&["a", "zarr.json"]), "{at} {way}");
        assert_eq!(names(&stored.join("a")), set(&["c", "zarr.json"]), "{at} {way}");
    }
}

/// Shows: zarr2-nodes. As an ordinary file it would change nothing, and its program would not know.
#[test]
fn metadata_of_zarr_2_are_refused_in_a_node_of_zarr_3_that_has_content() {
    let mut mount = Mount::new(&["--create"]);
    let group = r#"{"zarr_format":3,"node_type":"group","attributes":{"day":1}}"#;
    for (node, document) in [("g", group), ("g/a", &array(&json!({})))] {
        fs::create_dir(mount.at(node)).unwrap();
        fs::write(mount.at(node).join("zarr.json"), document).unwrap();
    }
    mount.remount(&[]);
    mount.expect("this mount shows the node as Zarr 3");
    let before = mount.stored();
    for node in ["g", "g/a"] {
        for name in [".zgroup", ".zarray", ".zattrs", ".zmetadata"] {
            let file = mount.at(node).join(name);
            assert_eq!(errno(fs::File::create_new(&file)), libc::EPERM, "{node} {name}");
            let scratch = mount.at(node).join("new.tmp");
            fs::write(&scratch, "{}").unwrap();
            assert_eq!(errno(fs::rename(&scratch, &file)), libc::EPERM, "{node} {name}");
            assert_eq!(errno(fs::hard_link(&scratch, &file)), libc::EPERM, "{node} {name}");
            fs::remove_file(&scratch).unwrap();
        }
    }
    assert!(mount.errors().contains("this mount shows the node as Zarr 3"));
    mount.unmount();
    assert_eq!(mount.stored(), before);
}
