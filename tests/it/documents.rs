//! Documents rewritten through the mount.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::Mount;

fn shown(mount: &Mount, path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(mount.at(path)).unwrap()).unwrap()
}

fn write(mount: &Mount, path: &str, document: &Value) -> std::io::Result<()> {
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
fn a_rewritten_document_changes_what_it_says_and_nothing_else() {
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
fn a_document_that_would_change_the_meaning_of_chunks_changes_nothing() {
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
fn a_smaller_shape_erases_the_chunks_outside_and_a_larger_one_adds_none() {
    for (fixture, path, _) in PLACES {
        let mount = Mount::fixture(fixture, &[]);
        let dir = mount.at(path).parent().unwrap().to_owned();
        let kept = fs::read(dir.join("c/1/0")).unwrap();
        let mut document = shown(&mount, path);
        document["shape"] = json!([5, 3]);
        write(&mount, path, &document).unwrap();
        assert_eq!(shown(&mount, path)["shape"], json!([5, 3]));
        assert!(
            dir.join("c/1/0").exists() && !dir.join("c/1/1").exists() && !dir.join("c/2").exists()
        );
        document["shape"] = json!([20, 20]);
        write(&mount, path, &document).unwrap();
        assert_eq!(fs::read(dir.join("c/1/0")).unwrap(), kept);
        assert!(!dir.join("c/1/1").exists(), "an erased chunk is back");
        fs::create_dir_all(dir.join("c/6")).unwrap();
        fs::write(dir.join("c/6/4"), [1; 48]).unwrap();
        mount.remount(&[]);
        assert_eq!(fs::read(dir.join("c/6/4")).unwrap(), [1; 48]);
        assert_eq!(fs::read(dir.join("c/1/0")).unwrap(), kept);
    }
}

/// Shows: document-consolidated.
#[test]
fn consolidated_metadata_stay_true_when_a_node_is_edited() {
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
