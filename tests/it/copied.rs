//! Programs that copy an array over an earlier state of it, one call at a time.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Mount, errno, json_of, umount, until};

/// The metadata file of an array in chunks of two elements, which the mount encodes as it likes.
fn array(dtype: &str, shape: &[u64], separator: &str) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": vec![2; shape.len()]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": separator}},
        "fill_value": 0, "attributes": {},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    })
}

/// Writes a file as `cp` does, and returns what close(2) says.
fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().unwrap())?;
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    // SAFETY: the descriptor is ours, and nobody uses it after this.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn put_array(mount: &Mount, document: &Value) -> std::io::Result<()> {
    put(&mount.at("a/zarr.json"), document.to_string().as_bytes())
}

/// Shows: create-outside.
#[test]
fn a_chunk_that_waits_is_stored_when_another_program_gives_the_array_room() {
    let mut mount = Mount::new(&["--create", "--metadata-ttl=0s", "--writeback-delay=2s"]);
    mount.expect("no such chunk");
    mount.expect("not JSON");
    put_array(&mount, &array("int32", &[2], "/")).unwrap();
    put(&mount.at("a/c/1"), &[1; 8]).unwrap();
    let document = mount.store().join("a/zarr.json");
    let mut grown = json_of(&document);
    grown["shape"] = json!([4]);
    // For a moment it is only half there.
    fs::write(&document, "{").unwrap();
    assert!(fs::read_dir(mount.at("a/c")).is_err());
    fs::write(&document, grown.to_string()).unwrap();
    let stored = mount.store().join("a/c/1");
    until("the chunk that has waited is stored", || stored.exists());
    assert_eq!(fs::read(mount.at("a/c/1")).unwrap(), [1; 8]);
    assert_eq!(fs::read_to_string(mount.at(".zarrfs/unstored")).unwrap(), "");
}

/// Shows: write-past-end.
#[test]
fn the_first_part_of_a_file_that_is_too_long_is_not_stored() {
    let mut mount = Mount::new(&["--create"]);
    for part in ["past the end", "nothing was stored"] {
        mount.expect(part);
    }
    put_array(&mount, &array("int32", &[4], "/")).unwrap();
    let chunk = mount.at("a/c/0");
    put(&chunk, &[1; 8]).unwrap();
    let file = File::create(&chunk).unwrap();
    file.write_all_at(&[2; 8], 0).unwrap();
    assert_eq!(errno(file.write_all_at(&[2; 4], 8)), libc::EFBIG);
    assert_eq!(errno(file.sync_all()), libc::EINVAL);
    drop(file);
    mount.remount(&[]);
    assert_eq!(fs::read(&chunk).unwrap(), [1; 8], "a part of what is no chunk was stored");
    // A program that begins again has a complete chunk.
    let file = File::create(&chunk).unwrap();
    assert_eq!(errno(file.write_all_at(&[3; 9], 0)), libc::EFBIG);
    file.set_len(0).unwrap();
    file.write_all_at(&[4; 8], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    // So has one that changes a part of a chunk, and then tries to make it longer.
    let file = File::options().write(true).open(&chunk).unwrap();
    file.write_all_at(&[5], 0).unwrap();
    assert_eq!(errno(file.write_all_at(&[5], 8)), libc::EFBIG);
    file.sync_all().unwrap();
    drop(file);
    mount.remount(&[]);
    assert_eq!(fs::read(&chunk).unwrap(), [5, 4, 4, 4, 4, 4, 4, 4]);
}

/// Shows: document-refused.
#[test]
fn a_program_whose_metadata_file_was_refused_stores_no_chunks_of_its_array() {
    let mut mount = Mount::new(&["--create"]);
    mount.expect("data_type cannot become");
    mount.expect("was refused");
    put_array(&mount, &array("int32", &[4], "/")).unwrap();
    put(&mount.at("a/c/0"), &[1; 8]).unwrap();
    let refused = put_array(&mount, &array("float32", &[4], "/"));
    assert_eq!(errno(refused), libc::EINVAL);
    for chunk in ["a/c/0", "a/c/1"] {
        assert_eq!(errno(put(&mount.at(chunk), &[2; 8])), libc::EINVAL, "{chunk}");
    }
    assert_eq!(fs::read(mount.at("a/c/0")).unwrap(), [1; 8]);
    // Its own metadata file is no reason, and neither is an attribute that is no JSON.
    put_array(&mount, &array("int32", &[4], "/")).unwrap();
    mount.expect("a/zarr.json");
    assert_eq!(errno(put(&mount.at("a/zarr.json"), b"{")), libc::EINVAL);
    put(&mount.at("a/c/1"), &[3; 8]).unwrap();
}

/// Programs such as `git` and `unzip` do not look at the error of `close`.
///
/// Shows: close-refused.
#[test]
fn unmounting_names_the_files_whose_bytes_were_discarded() {
    let mut mount = Mount::new(&["--create"]);
    for part in ["data_type cannot become", "3 bytes written", "of 16 bytes were written"] {
        mount.expect(part);
    }
    put_array(&mount, &array("int32", &[4], "/")).unwrap();
    let listed = || fs::read_to_string(mount.at(".zarrfs/refused")).unwrap();
    let lines = |count: usize| until("it is listed", || listed().lines().count() == count);
    // Those that were not stored later, by the same or another program, and not removed.
    for (name, bytes) in [("a/c/0", vec![1; 3]), ("a/c/1", vec![1; 3]), ("a.raw", vec![1; 4])] {
        put(&mount.at(name), &bytes).unwrap_err();
    }
    lines(3);
    put(&mount.at("a/c/0"), &[1; 8]).unwrap();
    put(&mount.at("a.raw"), &[1; 16]).unwrap();
    put_array(&mount, &array("float32", &[4], "/")).unwrap_err();
    lines(2);
    put_array(&mount, &array("int32", &[4], "/")).unwrap();
    lines(1);
    put(&mount.at("a/c/1"), &[1; 8]).unwrap();
    fs::remove_file(mount.at("a/c/1")).unwrap();
    lines(0);
    put_array(&mount, &array("float32", &[4], "/")).unwrap_err();
    lines(1);
    let said = umount(&[mount.path()]);
    assert!(said.status.success(), "{said:?}");
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("1 change was not stored") && said.contains("a/zarr.json ("), "{said}");
    mount.mount_again(&[]);
    assert_eq!(listed(), "");
}

/// Shows: create-outside.
#[test]
fn files_become_chunks_of_the_array_that_replaces_one_without_chunks() {
    for mode in ["sync", "delay", "all"] {
        let mount = Mount::new(&["--create", "--codecs", "gzip", "--writeback", mode]);
        put_array(&mount, &array("int16", &[4, 4], "/")).unwrap();
        // No names of chunks of the array that is there: one is a file beside it, one waits.
        put(&mount.at("a/c.1"), &[1; 8]).unwrap();
        put_array(&mount, &array("int32", &[6], ".")).unwrap();
        put(&mount.at("a/c.2"), &[2; 8]).unwrap();
        mount.remount(&[]);
        assert_eq!(fs::read(mount.at("a/c/1")).unwrap(), [1; 8], "{mode}");
        assert_eq!(fs::read(mount.at("a/c/2")).unwrap(), [2; 8], "{mode}");
        assert_ne!(fs::read(mount.store().join("a/c.1")).unwrap(), [1; 8], "not compressed");
    }
}

/// Shows: create-outside.
#[test]
fn chunks_outside_of_the_grid_wait_for_the_metadata_file_that_has_them() {
    for mode in ["sync", "delay", "all"] {
        let mut mount = Mount::new(&["--create", "--shards", "none", "--writeback", mode]);
        put_array(&mount, &array("int32", &[2, 2], "/")).unwrap();
        put(&mount.at("a/c/0/0"), &[1; 16]).unwrap();
        put(&mount.at("a/c/0/1"), &[2; 16]).unwrap();
        put(&mount.at("a/c/1/1"), &[3; 16]).unwrap();
        assert_eq!(fs::read(mount.at("a/c/1/1")).unwrap(), [3; 16], "{mode}");
        put_array(&mount, &array("int32", &[2, 4], "/")).unwrap();
        let stored = mount.store().join("a/c/0/1");
        until("the chunk that has waited is stored", || stored.exists());
        assert!(!mount.store().join("a/c/1/1").exists(), "{mode}: it waits still");
        put_array(&mount, &array("int32", &[4, 4], "/")).unwrap();
        mount.remount(&[]);
        for (chunk, byte) in [("a/c/0/0", 1), ("a/c/0/1", 2), ("a/c/1/1", 3)] {
            assert_eq!(fs::read(mount.at(chunk)).unwrap(), [byte; 16], "{mode}: {chunk}");
        }
        // One that waits can be renamed and removed as any file.
        put(&mount.at("a/c/5/.x"), &[4; 16]).unwrap();
        fs::rename(mount.at("a/c/5/.x"), mount.at("a/c/5/5")).unwrap();
        fs::rename(mount.at("a/c/5/5"), mount.at("a/c/1/0")).unwrap();
        put(&mount.at("a/c/7/7"), &[5; 16]).unwrap();
        fs::remove_file(mount.at("a/c/7/7")).unwrap();
        // Only a chunk that is as long as the array says is stored.
        for part in ["c/0/2", "not everything is stored"] {
            mount.expect(part);
        }
        put(&mount.at("a/c/0/2"), &[6; 9]).unwrap();
        let grown = put_array(&mount, &array("int32", &[4, 6], "/"));
        assert_eq!(errno(grown), libc::EINVAL, "{mode}");
        // That a reader comes and goes changes nothing.
        assert_eq!(fs::read(mount.at("a/c/0/2")).unwrap().len(), 9, "{mode}");
        let umount = umount(&[mount.path()]);
        assert!(!umount.status.success(), "{mode}: it is lost in silence");
        fs::remove_file(mount.at("a/c/0/2")).unwrap();
        mount.remount(&[]);
        assert_eq!(fs::read(mount.at("a/c/1/0")).unwrap(), [4; 16], "{mode}");
        assert_eq!(errno(fs::read(mount.at("a/c/0/2"))), libc::ENOENT, "{mode}");
    }
}
