//! Other programs replace, grow and remove nodes while a mount still shows what was there before.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Mount, errno, json_of, set_xattr, umount};

/// The metadata file of an array of sixteen elements in chunks of four, which are stored as they
/// are.
fn array(dtype: &str, fill: u64, shard: u64) -> Value {
    let bytes = if dtype == "uint8" {
        json!({"name": "bytes"})
    } else {
        json!({"name": "bytes", "configuration": {"endian": "little"}})
    };
    let shards = json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": [4], "codecs": [bytes],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }});
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [16], "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4 * shard]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": fill,
        "codecs": [if shard > 1 { shards } else { bytes }], "attributes": {"units": "K"},
    })
}

/// Makes the array in the store, as another program does.
fn put(mount: &Mount, document: &Value) {
    let at = mount.store().join("x");
    drop(fs::remove_dir_all(&at));
    fs::create_dir_all(&at).unwrap();
    fs::write(at.join("zarr.json"), document.to_string()).unwrap();
}

/// A mount that shows the array `x` for an hour as it is now.
fn mount(shard: u64, options: &[&str]) -> Mount {
    let mount = Mount::new(&["--create"]);
    mount.unmount();
    put(&mount, &array("uint8", 0, shard));
    mount.mount_again(&[&["--metadata-ttl=1h", "--writeback-delay=1h"], options].concat());
    store(&mount, "x/c/0", b"aaaa").unwrap();
    mount
}

/// Writes a file and has it stored.
fn store(mount: &Mount, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = mount.at(name);
    fs::create_dir_all(path.parent().unwrap())?;
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes a metadata file that is there, and has it stored.
fn write_again(document: &Path, text: &Value) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(document)?;
    file.write_all(text.to_string().as_bytes())?;
    file.sync_all()
}

fn ends_stale(mount: &Mount) {
    mount.remount(&["--metadata-ttl=1h"]);
}

/// Shows: store-decides, chunk-identity.
#[test]
fn no_chunk_is_stored_into_an_array_that_replaced_its_own() {
    let others = [
        array("uint16", 0, 1),
        array("uint8", 7, 1),
        json!({"zarr_format": 3, "node_type": "group"}),
    ];
    for shard in [1, 2] {
        for writeback in ["sync", "delay", "all"] {
            for other in &others {
                let mut mount = mount(shard, &[&format!("--writeback={writeback}")]);
                for part in ["replaced", "not an array", "changes"] {
                    mount.expect(part);
                }
                put(&mount, other);
                fs::create_dir_all(mount.store().join("x/c")).unwrap();
                fs::write(mount.store().join("x/c/1"), [1; 8]).unwrap();
                let before = mount.stored();
                let name = format!("shards of {shard}, {writeback}, {other}");
                let stored = store(&mount, "x/c/1", b"bbbb");
                assert_eq!(stored.unwrap_err().raw_os_error(), Some(libc::ESTALE), "{name}");
                assert_eq!(mount.stored(), before, "{name}");
                let saved = tempfile::tempdir().unwrap();
                let words = ["--rescue".into(), saved.path().join("saved"), mount.path()];
                let unmounted = umount(&words);
                assert_eq!(mount.stored(), before, "{name}: {unmounted:?}");
                // 3: what could not be stored was saved.
                assert!(matches!(unmounted.status.code(), Some(0 | 3)), "{name}: {unmounted:?}");
                mount.mount_again(&[]);
            }
        }
    }
}

/// Shows: store-decides.
#[test]
fn a_mount_that_shows_what_was_there_changes_nothing_that_took_its_name() {
    let mut mount = mount(1, &[]);
    for part in ["replaced", "just made", "changes"] {
        mount.expect(part);
    }
    let replace = || {
        put(&mount, &array("uint16", 3, 1));
        fs::create_dir_all(mount.store().join("x/c")).unwrap();
        fs::write(mount.store().join("x/c/0"), [1; 8]).unwrap();
        mount.stored()
    };
    // Each of these first looks at what is there now.
    for removal in ["x/c/0", "x/zarr.json"] {
        mount.remount(&["--metadata-ttl=1h"]);
        put(&mount, &array("uint8", 0, 1));
        store(&mount, "x/c/0", b"aaaa").unwrap();
        let before = replace();
        assert_eq!(errno(fs::remove_file(mount.at(removal))), libc::EBUSY, "{removal}");
        assert_eq!(mount.stored(), before, "{removal}");
    }
    mount.remount(&["--metadata-ttl=1h"]);
    put(&mount, &array("uint8", 0, 1));
    fs::read(mount.at("x/zarr.json")).unwrap();
    let before = replace();
    assert_eq!(set_xattr(&mount.at("x"), "user.attrs.units", "\"C\""), Err(libc::EBUSY));
    assert_eq!(mount.stored(), before);
    // A name that another program has just taken is taken.
    fs::create_dir(mount.store().join("y")).unwrap();
    fs::write(mount.store().join("y/zarr.json"), array("uint16", 3, 1).to_string()).unwrap();
    let before = mount.stored();
    assert_eq!(errno(fs::create_dir(mount.at("y"))), libc::EEXIST);
    assert!(fs::rename(mount.at("x"), mount.at("y")).is_err());
    assert_eq!(mount.stored(), before);
}

/// Shows: store-decides.
#[test]
fn a_chunk_that_is_renamed_into_place_is_not_stored_into_another_array() {
    for shard in [1, 2] {
        let mut mount = mount(shard, &["--writeback=sync"]);
        mount.expect("replaced");
        // Two elements of two bytes are as long as four of one.
        let mut other = array("uint16", 3, shard);
        other["chunk_grid"]["configuration"]["chunk_shape"] = json!([2 * shard]);
        if shard > 1 {
            other["codecs"][0]["configuration"]["chunk_shape"] = json!([2]);
        }
        fs::write(mount.at("x/c/1.partial"), b"bbbb").unwrap();
        put(&mount, &other);
        let before = mount.stored();
        let renamed = fs::rename(mount.at("x/c/1.partial"), mount.at("x/c/1"));
        assert_eq!(errno(renamed), libc::EBUSY);
        assert_eq!(mount.stored(), before);
        drop(fs::remove_file(mount.at("x/c/1.partial")));
    }
}

/// A program that reads the metadata file, and writes it back with other units when it is told.
struct Editor(Child);

impl Editor {
    fn new(document: &Path) -> Self {
        let script = r#"IFS= read -r -d '' text < "$1"
            echo read
            read -r
            printf '%s' "${text/\"K\"/\"C\"}" > "$1""#;
        let mut child = Command::new("bash")
            .args(["-c", script, "bash"])
            .arg(document)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        Self(child)
    }

    fn write(mut self) {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

/// Shows: document-merge, resize.
#[test]
fn a_program_that_sets_an_attribute_does_not_undo_an_append_of_which_it_does_not_know() {
    let mount = mount(1, &[]);
    let document = mount.at("x/zarr.json");
    let editor = Editor::new(&document);
    let mut grown = json_of(&document);
    grown["shape"] = json!([32]);
    fs::write(&document, grown.to_string()).unwrap();
    store(&mount, "x/c/7", b"zzzz").unwrap();
    // Another program has seen the new shape.
    assert_eq!(json_of(&document)["shape"], json!([32]));
    editor.write();
    let now = json_of(&document);
    assert_eq!((&now["shape"], &now["attributes"]["units"]), (&json!([32]), &json!("C")));
    assert_eq!(fs::read(mount.at("x/c/7")).unwrap(), b"zzzz");
    ends_stale(&mount);
    assert_eq!(json_of(&mount.store().join("x/zarr.json"))["shape"], json!([32]));
}

/// Shows: document-merge, resize.
#[test]
fn a_program_that_writes_back_an_older_copy_destroys_nothing() {
    let mount = mount(1, &[]);
    let document = mount.at("x/zarr.json");
    let old = fs::read(&document).unwrap();
    let mut grown = json_of(&document);
    grown["shape"] = json!([32]);
    fs::write(&document, grown.to_string()).unwrap();
    store(&mount, "x/c/7", b"zzzz").unwrap();
    fs::write(&document, &old).unwrap();
    assert_eq!(json_of(&document)["shape"], json!([16]), "it is one writer");
    fs::write(&document, grown.to_string()).unwrap();
    assert_eq!(fs::read(mount.at("x/c/7")).unwrap(), b"zzzz");
}

/// Shows: document-merge.
#[test]
fn metadata_of_an_array_that_was_replaced_are_not_written_over_the_new_one() {
    let mut mount = mount(1, &[]);
    mount.expect("replaced");
    let document = mount.at("x/zarr.json");
    let mut text = json_of(&document);
    put(&mount, &array("uint16", 3, 1));
    let before = mount.stored();
    text["attributes"]["units"] = json!("C");
    assert_eq!(errno(write_again(&document, &text)), libc::ESTALE);
    assert_eq!(mount.stored(), before);
}

/// Shows: chunk-identity.
#[test]
fn a_chunk_outside_of_a_shape_that_another_program_made_smaller_is_reported() {
    for shard in [1, 2] {
        let mut mount = mount(shard, &[]);
        for part in ["no such chunk", "not everything is stored", "outside", "smaller"] {
            mount.expect(part);
        }
        fs::create_dir_all(mount.at("x/c")).unwrap();
        let mut file = File::create(mount.at("x/c/3")).unwrap();
        file.write_all(b"dddd").unwrap();
        let mut document = json_of(&mount.store().join("x/zarr.json"));
        document["shape"] = json!([8]);
        fs::write(mount.store().join("x/zarr.json"), document.to_string()).unwrap();
        let before = mount.stored();
        assert!(file.sync_all().is_err(), "it was not stored");
        drop(file);
        assert_eq!(mount.stored(), before);
        let saved = tempfile::tempdir().unwrap();
        let rescue = umount(&["--rescue".into(), saved.path().join("saved"), mount.path()]);
        assert_eq!(mount.stored(), before, "{rescue:?}");
        mount.mount_again(&[]);
    }
}

/// Shows: store-decides.
#[test]
fn a_program_that_knows_another_array_stores_no_chunk_however_often_it_tries() {
    for (mode, ttl) in [("sync", "0s"), ("delay", "0s"), ("all", "0s"), ("sync", "1h")] {
        let ttl = format!("--metadata-ttl={ttl}");
        let mut mount = Mount::new(&["--create", "--writeback", mode, &ttl]);
        mount.expect("another program");
        mount.unmount();
        put(&mount, &array("uint8", 0, 1));
        mount.mount_again(&["--writeback", mode, &ttl]);
        json_of(&mount.at("x/zarr.json"));
        let mut other = array("uint16", 0, 1);
        other["chunk_grid"]["configuration"]["chunk_shape"] = json!([2]);
        put(&mount, &other);
        fs::create_dir(mount.store().join("x/c")).unwrap();
        fs::write(mount.store().join("x/c/0"), b"oooo").unwrap();
        for _ in 0..3 {
            assert!(store(&mount, "x/c/0", b"bbbb").is_err(), "{mode}");
            assert!(store(&mount, "x/c/1", b"bbbb").is_err(), "{mode}");
        }
        assert_eq!(fs::read(mount.store().join("x/c/0")).unwrap(), b"oooo", "{mode}");
        assert!(!mount.store().join("x/c/1").exists(), "{mode}");
        // Once it has read the metadata, it knows.
        assert_eq!(json_of(&mount.at("x/zarr.json"))["data_type"], "uint16");
        store(&mount, "x/c/1", b"cccc").unwrap();
        assert_eq!(fs::read(mount.store().join("x/c/1")).unwrap(), b"cccc", "{mode}");
    }
}

/// Shows: store-decides.
#[test]
fn nothing_is_made_in_a_group_of_which_another_program_has_made_an_array() {
    let mut mount = mount(1, &[]);
    mount.expect("made an array");
    mount.expect("cannot contain nodes");
    for name in ["g", "h"] {
        fs::create_dir(mount.at(name)).unwrap();
        let group = json!({"zarr_format": 3, "node_type": "group"}).to_string();
        fs::write(mount.at(name).join("zarr.json"), group).unwrap();
    }
    let read = fs::read(mount.at("g/zarr.json")).unwrap();
    assert!(!read.is_empty());
    fs::write(mount.store().join("g/zarr.json"), array("uint8", 0, 1).to_string()).unwrap();
    let before = mount.stored();
    assert_eq!(errno(fs::create_dir(mount.at("g/below"))), libc::EBUSY);
    assert!(fs::rename(mount.at("h"), mount.at("g/h")).is_err());
    assert_eq!(mount.stored(), before);
}

/// Shows: document-merge.
#[test]
fn metadata_of_an_array_with_other_chunks_are_not_merged_into_the_new_one() {
    let mut mount = mount(1, &[]);
    mount.expect("replaced");
    let document = mount.at("x/zarr.json");
    let mut text = json_of(&document);
    let mut other = array("uint8", 0, 1);
    other["chunk_grid"]["configuration"]["chunk_shape"] = json!([8]);
    put(&mount, &other);
    let before = mount.stored();
    text["attributes"]["units"] = json!("C");
    text["shape"] = json!([8]);
    assert_eq!(errno(write_again(&document, &text)), libc::ESTALE);
    assert_eq!(mount.stored(), before);
}

/// Shows: store-decides, resize.
#[test]
fn elements_that_another_program_has_appended_to_a_chunk_outlive_a_write_to_the_others() {
    for shard in [1, 2] {
        let mount = Mount::new(&["--create"]);
        mount.unmount();
        let mut document = array("uint8", 0, shard);
        document["shape"] = json!([14]);
        put(&mount, &document);
        mount.mount_again(&["--metadata-ttl=1h"]);
        let view = mount.at("x.npy");
        let len = fs::metadata(&view).unwrap().len();
        let file = OpenOptions::new().read(true).write(true).open(&view).unwrap();
        // The other program works on another mount, which can write shards.
        let link = |store: &Path| {
            fs::remove_dir(store).unwrap();
            symlink(mount.store(), store).unwrap();
        };
        let other = Mount::of(link, &[]);
        let mut grown = json_of(&other.at("x/zarr.json"));
        grown["shape"] = json!([16]);
        fs::write(other.at("x/zarr.json"), grown.to_string()).unwrap();
        store(&other, "x/c/3", &[1, 1, 7, 7]).unwrap();
        other.unmount();
        file.write_all_at(&[9, 9], len - 2).unwrap();
        file.sync_all().unwrap();
        drop(file);
        mount.remount(&[]);
        assert_eq!(fs::read(mount.at("x/c/3")).unwrap(), [9, 9, 7, 7], "shards of {shard}");
    }
}
