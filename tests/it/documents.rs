//! Documents rewritten through the mount.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::support::{Mount, Second, copy, set_xattr, zarrfs};

fn shown(mount: &Mount, path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(mount.at(path)).unwrap()).unwrap()
}

fn write(mount: &Mount, path: &str, document: &Value) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(mount.at(path))?;
    file.write_all(document.to_string().as_bytes())?;
    file.sync_all()
}

/// Array, its document in the mount, and where the store has it.
const PLACES: [(&str, &str, &str); 2] = [
    ("z316__shard_end", "zarr.json", "zarr.json"),
    ("z218v3__shard_2x2_gzip", "arr/zarr.json", "meta/root/arr.array.json"),
];

/// Shows: document-merge, document-may-change, document-conventions.
#[test]
fn a_rewritten_metadata_file_applies_its_changes_and_no_others() {
    for (fixture, path, stored) in PLACES {
        let mount = Mount::fixture(fixture, &[]);
        let mut document = shown(&mount, path);
        document["attributes"]["units"] = json!("K");
        document["dimension_names"] = json!(["y", "x"]);
        write(&mount, path, &document).unwrap();
        assert_eq!(shown(&mount, path)["attributes"]["units"], "K");
        assert_eq!(shown(&mount, path)["dimension_names"], json!(["y", "x"]));
        let text = fs::read_to_string(mount.store().join(stored)).unwrap();
        let now: Value = serde_json::from_str(&text).unwrap();
        if fixture.starts_with("z218") {
            assert_eq!(now["attributes"]["_ARRAY_DIMENSIONS"], json!(["y", "x"]));
            assert_eq!(shown(&mount, path)["attributes"], json!({"units": "K"}));
            assert_eq!(now["storage_transformers"][0]["type"], "indexed", "{text}");
        } else {
            assert_eq!(now["dimension_names"], json!(["y", "x"]));
            assert_eq!(now["codecs"][0]["name"], "sharding_indexed", "{text}");
        }
        // An editor has read the document; another program sets an attribute; the editor saves.
        let mut edited = shown(&mount, path);
        edited["attributes"].as_object_mut().unwrap().remove("units");
        let node = mount.at(path).parent().unwrap().to_owned();
        let set =
            Command::new("setfattr").args(["-n", "user.attrs.one", "-v", "1"]).arg(node).status();
        assert!(set.unwrap().success());
        let scratch = mount.at(path).with_file_name(".editor");
        fs::write(&scratch, edited.to_string()).unwrap();
        fs::rename(&scratch, mount.at(path)).unwrap();
        assert_eq!(shown(&mount, path)["attributes"], json!({"one": 1}));
    }
}

/// Shows: document-refused.
#[test]
fn a_metadata_file_that_would_change_the_meaning_of_chunks_is_refused() {
    for (fixture, path, _) in PLACES {
        let mut mount = Mount::fixture(fixture, &[]);
        mount.expect("zarr.json");
        let before = mount.stored();
        let good = shown(&mount, path);
        for (member, value) in [
            ("data_type", json!("float32")),
            ("fill_value", json!(7)),
            ("codecs", json!([{"name": "bytes", "configuration": {"endian": "big"}}])),
            (
                "codecs",
                json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "gzip", "configuration": {"level": 1}}]),
            ),
            ("chunk_grid", json!({"name": "regular", "configuration": {"chunk_shape": [1, 1]}})),
            ("chunk_key_encoding", json!({"name": "v2"})),
            ("node_type", json!("group")),
            ("shape", json!([7])),
        ] {
            let mut bad = good.clone();
            bad[member] = value;
            let error = write(&mount, path, &bad).expect_err(member);
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{member}");
            let errors = mount.errors();
            let last = errors.lines().last().unwrap();
            assert!(last.contains(member) || last.contains("group"), "{member}: {last}");
        }
        for text in ["", "{", "[]", "{\"zarr_format\": 3"] {
            let mut file =
                OpenOptions::new().write(true).truncate(true).open(mount.at(path)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EINVAL), "{text:?}");
        }
        assert_eq!(mount.stored(), before);
        mount.remount(&[]);
        assert_eq!(shown(&mount, path), good);
    }
}

/// Shows: resize.
#[test]
fn a_smaller_shape_hides_the_chunks_outside_until_they_are_removed() {
    for (fixture, path, _) in PLACES {
        let mount = Mount::fixture(fixture, &[]);
        let dir = mount.at(path).parent().unwrap().to_owned();
        let kept = fs::read(dir.join("c/1/0")).unwrap();
        let mut document = shown(&mount, path);
        document["shape"] = json!([5, 3]);
        write(&mount, path, &document).unwrap();
        assert_eq!(shown(&mount, path)["shape"], json!([5, 3]));
        let names = |below: &str| {
            let names = fs::read_dir(dir.join(below)).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!((names("c"), names("c/1")), (vec!["0".into(), "1".into()], vec!["0".into()]));
        // A library that stores the shape first removes the chunks by their names.
        fs::remove_file(dir.join("c/1/1")).unwrap();
        assert_eq!(fs::remove_file(dir.join("c/9/9")).unwrap_err().kind(), io::ErrorKind::NotFound);
        document["shape"] = json!([20, 20]);
        write(&mount, path, &document).unwrap();
        assert_eq!(fs::read(dir.join("c/1/0")).unwrap(), kept);
        assert!(!dir.join("c/1/1").exists(), "an erased chunk is back");
        assert!(dir.join("c/2/0").exists(), "nobody has removed it");
        fs::create_dir_all(dir.join("c/6")).unwrap();
        fs::write(dir.join("c/6/4"), [1; 48]).unwrap();
        mount.remount(&[]);
        assert_eq!(fs::read(dir.join("c/6/4")).unwrap(), [1; 48]);
        assert_eq!(fs::read(dir.join("c/1/0")).unwrap(), kept);
    }
}

/// Shows: document-consolidated.
#[test]
fn consolidated_metadata_stay_current_when_a_node_is_edited() {
    let mount = Mount::fixture("z316__groups_consolidated", &[]);
    let stored = || -> Value {
        serde_json::from_str(&fs::read_to_string(mount.store().join("zarr.json")).unwrap()).unwrap()
    };
    let before = stored();
    let mut document = shown(&mount, "g1/g2/x/zarr.json");
    document["attributes"]["units"] = json!("K");
    document["shape"] = json!([7, 12]);
    write(&mount, "g1/g2/x/zarr.json", &document).unwrap();
    let mut want = before;
    let copy = &mut want["consolidated_metadata"]["metadata"]["g1/g2/x"];
    copy["attributes"]["units"] = json!("K");
    copy["shape"] = json!([7, 12]);
    assert_eq!(stored(), want);
    let shown = &shown(&mount, "zarr.json")["consolidated_metadata"]["metadata"]["g1/g2/x"];
    assert_eq!((&shown["shape"], &shown["codecs"][0]["name"]), (&json!([7, 12]), &json!("bytes")));
}

/// Every document of a store but the root's, and every copy that its root has of one, by name.
fn documents_and_copies(store: &Path) -> (Map<String, Value>, Map<String, Value>) {
    let parse = |path: &Path| -> Value {
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let is_v2 = store.join(".zmetadata").exists();
    let without_copies = |mut document: Value| {
        document.as_object_mut().unwrap().remove("consolidated_metadata");
        document
    };
    let (mut documents, mut dirs) = (Map::new(), vec![store.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(store).unwrap().to_str().unwrap().to_owned();
            match path.file_name().unwrap().to_str().unwrap() {
                _ if path.is_dir() => dirs.push(path),
                ".zarray" | ".zgroup" | ".zattrs" => drop(documents.insert(name, parse(&path))),
                "zarr.json" if name != "zarr.json" => {
                    let node = name.strip_suffix("/zarr.json").unwrap().to_owned();
                    documents.insert(node, without_copies(parse(&path)));
                }
                _ => {}
            }
        }
    }
    let copies = if is_v2 {
        parse(&store.join(".zmetadata"))["metadata"].clone()
    } else {
        parse(&store.join("zarr.json"))["consolidated_metadata"]["metadata"].clone()
    };
    let mut copies = copies.as_object().unwrap().clone();
    // A node without attributes has no file of them.
    copies.retain(|name, copy| !name.ends_with(".zattrs") || *copy != json!({}));
    (documents, copies.into_iter().map(|(name, copy)| (name, without_copies(copy))).collect())
}

/// Shows: document-consolidated.
#[test]
fn consolidated_metadata_above_a_mounted_node_stay_current() {
    for (fixture, array) in [("z316__groups_consolidated", "g2/x"), ("z218v2__consolidated", "x")] {
        for is_spelled in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (store, mnt) = (dir.path().join("store"), dir.path().join("mnt"));
            let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
            copy(&fixtures.join(fixture).join("store"), &store);
            fs::create_dir(&mnt).unwrap();
            let check = |what: &str| {
                let (documents, copies) = documents_and_copies(&store);
                assert_eq!(copies, documents, "{fixture}: {what}");
            };
            check("as it was");
            let spelled = PathBuf::from(format!("{}#g1", store.display()));
            let node = if is_spelled { spelled } else { store.join("g1") };
            let mount = Second::mount(&node, &mnt);
            set_xattr(&mnt.join(array), "user.attrs.units", "\"K\"").unwrap();
            check("an attribute");
            let at = mnt.join(array).join("zarr.json");
            let mut document: Value =
                serde_json::from_str(&fs::read_to_string(&at).unwrap()).unwrap();
            document["shape"] = json!([3, 4]);
            fs::write(&at, document.to_string()).unwrap();
            check("a shape");
            fs::create_dir_all(mnt.join("new/y")).unwrap();
            document["attributes"] = json!({"new": true});
            fs::write(mnt.join("new/y/zarr.json"), document.to_string()).unwrap();
            check("a new array");
            fs::rename(mnt.join("new"), mnt.join("moved")).unwrap();
            check("a node that has moved");
            fs::remove_dir_all(mnt.join("moved")).unwrap();
            check("a node that was removed");
            set_xattr(&mnt, "user.attrs.top", "1").unwrap();
            check("an attribute of the node itself");
            drop(mount);
            let made = store.join("g1/made/z");
            let create = |path: &Path| {
                zarrfs().arg("create").arg(path).args(["--shape", "4", "--dtype", "u1"]).output()
            };
            assert!(create(&made).unwrap().status.success());
            check("zarrfs create");
            let to = store.join("g1/converted");
            let format = if fixture.starts_with("z218") { "v2" } else { "v3" };
            let mut convert = zarrfs();
            convert.arg("convert").args([&made, &to]).args(["--format", format]);
            let converted = convert.output().unwrap();
            assert!(converted.status.success(), "{converted:?}");
            check("zarrfs convert");
            assert!(!store.join(".zarrfs").exists(), "left in the store");
        }
    }
}

/// Shows: document-consolidated.
#[test]
fn a_group_whose_document_is_removed_and_written_again_has_all_its_nodes_in_the_copies() {
    for (fixture, name) in
        [("z316__groups_consolidated", "zarr.json"), ("z218v2__consolidated", ".zgroup")]
    {
        let is_v2 = name == ".zgroup";
        let mount = Mount::fixture(fixture, if is_v2 { &["--as", "zarr2"] } else { &[] });
        let text = fs::read(mount.at("g1").join(name)).unwrap();
        fs::remove_file(mount.at("g1").join(name)).unwrap();
        fs::write(mount.at("g1").join(name), text).unwrap();
        let (documents, copies) = documents_and_copies(&mount.store());
        assert_eq!(copies, documents, "{fixture}");
    }
}
