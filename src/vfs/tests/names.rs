//! What names stand for while files are open: unlink, rename, create.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::bed::{VfsBed, new_array};
use crate::error::Kind;
use crate::hierarchy::{Hierarchy, HierarchyOptions};
use crate::metadata::{Dialect, NodePath};
use crate::store::directory::{DirectoryStore, Durability};
use crate::store::{FileId, Store};
use crate::vfs::inodes::place::Place;
use crate::vfs::{Access, Ownership, ROOT, Vfs, VfsOptions};

#[test]
fn a_refused_rename_does_not_affect_open_files() {
    let bed = VfsBed::new();
    bed.write("plain/c/0", b"abcd").expect("stored");
    bed.write("plain/scratch", b"too long").expect("kept");
    let open = bed.open("plain/c/0", Access::Write).expect("opened");
    let refused = bed.rename("plain/scratch", "plain/c/0").expect_err("it has a wrong size");
    assert_eq!(refused.kind(), Kind::Invalid);
    bed.vfs.write(open, 0, b"AB").expect("written");
    bed.close(open).expect("stored");
    assert_eq!(bed.stored("plain/c/0").as_deref(), Some(&b"ABcd"[..]), "the write was dropped");
    assert_eq!(bed.read("plain/scratch").expect("still there"), b"too long");
}

#[test]
fn a_failed_unlink_does_not_affect_open_files() {
    let bed = VfsBed::new();
    bed.write("plain/c/0", b"abcd").expect("stored");
    let open = bed.open("plain/c/0", Access::Write).expect("opened");
    bed.store.fail_erase.store(1, Ordering::Relaxed);
    bed.unlink("plain/c/0").expect_err("the store is broken");
    bed.vfs.write(open, 0, b"AB").expect("written");
    bed.close(open).expect("stored");
    assert_eq!(bed.stored("plain/c/0").as_deref(), Some(&b"ABcd"[..]), "the write was dropped");
}

#[test]
fn a_rename_that_the_store_refuses_keeps_the_unstored_bytes_of_both_files() {
    let bed = VfsBed::new();
    bed.put("plain/stored", b"from the store".to_vec());
    bed.write("plain/new", b"unstored").expect("kept");
    bed.store.fail_set.store(1, Ordering::Relaxed);
    bed.rename("plain/stored", "plain/new").expect_err("the store is full");
    assert_eq!(bed.read("plain/new").expect("still there"), b"unstored");
    assert_eq!(bed.read("plain/stored").expect("still there"), b"from the store");
}

#[test]
fn an_open_during_a_rename_reads_one_of_the_two_files() {
    let bed = VfsBed::new();
    bed.write("plain/c/0", b"abcd").expect("stored");
    bed.write("plain/scratch", b"ABCD").expect("kept");
    let number = bed.find("plain/c/0").expect("there");
    let (vfs, (sender, opened)) = (Arc::clone(&bed.vfs), std::sync::mpsc::channel());
    *bed.store.before_set.lock() = Some(Box::new(move || {
        // Another thread: it may wait until the rename is done.
        std::thread::spawn(move || {
            let found = vfs.open(number, Access::Read);
            sender.send(found.and_then(|opened| vfs.read(opened.handle, 0, 100))).expect("sent");
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
    }));
    bed.rename("plain/scratch", "plain/c/0").expect("stored");
    let bytes = opened.recv().expect("answered").expect("opened");
    assert!([&b"abcd"[..], b"ABCD"].contains(&bytes.as_ref()), "{bytes:?}");
    let late =
        bed.vfs.open(number, Access::Read).expect("the kernel has not looked the name up again");
    assert_eq!(bed.vfs.read(late.handle, 0, 100).expect("read").as_ref(), b"ABCD");
}

#[test]
fn a_replaced_metadata_file_can_be_read_through_open_descriptors() {
    let bed = VfsBed::new();
    let open = bed.open("plain/zarr.json", Access::Read).expect("opened");
    let old = bed.read("plain/zarr.json").expect("read");
    let new = String::from_utf8(old.clone()).expect("text").replace("\"K\"", "\"degC\"");
    bed.write("plain/scratch", new.as_bytes()).expect("kept");
    bed.rename("plain/scratch", "plain/zarr.json").expect("merged");
    assert_eq!(bed.vfs.read(open, 0, 1 << 20).expect("read"), old);
    assert!(String::from_utf8_lossy(&bed.read("plain/zarr.json").expect("read")).contains("degC"));
}

#[test]
fn bytes_of_removed_files_count_until_they_are_closed() {
    let bed = VfsBed::new();
    let open = bed.create("plain/scratch").expect("created");
    bed.vfs.write(open, 0, &[1; 1000]).expect("written");
    bed.unlink("plain/scratch").expect("removed");
    bed.vfs.write(open, 1000, &[2; 1000]).expect("written");
    assert_eq!(bed.vfs.contents.files.memory.unstored_len(), 2000);
    assert_eq!(bed.vfs.read(open, 999, 2).expect("read").as_ref(), [1, 2]);
    bed.close(open).expect("closed");
    assert_eq!(bed.vfs.contents.files.memory.unstored_len(), 0);
}

#[test]
fn a_file_with_the_name_of_a_chunk_does_not_become_the_document_of_its_array() {
    let bed = VfsBed::new();
    bed.write("new/c/0", new_array().as_bytes()).expect("written");
    let refused = bed.rename("new/c/0", "new/zarr.json").expect_err("refused");
    assert_eq!(refused.kind(), Kind::Invalid);
    bed.rename("new/c/0", "new/document").expect("renamed");
    bed.rename("new/document", "new/zarr.json").expect("an array");
    assert_eq!(bed.names("new"), ["c", "zarr.json"]);
}

#[test]
fn an_open_chunk_survives_two_replacements() {
    let bed = VfsBed::passing();
    bed.write("plain/c/0", b"abcd").expect("stored");
    let number = bed.find("plain/c/0").expect("there");
    bed.write("plain/scratch", b"ABCD").expect("kept");
    bed.rename("plain/scratch", "plain/c/0").expect("stored");
    // The kernel has not looked the name up again, and cannot read the new file by the old number.
    let opened = bed.vfs.open(number, Access::Read).expect("opened");
    assert!(opened.backing.is_none());
    let (new, by_kernel) = bed.open_found("plain/c/0", Access::Read).expect("opened");
    assert_ne!(new, number);
    assert!(by_kernel.backing.is_some());
    bed.write("plain/c/0", b"1234").expect("stored");
    assert_eq!(bed.read("plain/c/0").expect("read"), b"1234");
    for handle in [opened.handle, by_kernel.handle] {
        assert_eq!(bed.vfs.read(handle, 0, 100).expect("read").as_ref(), b"ABCD");
    }
}

#[test]
fn a_directory_does_not_get_the_name_of_a_lock_file() {
    let bed = VfsBed::new();
    for name in ["zarr.json.__lock", "x.__lock"] {
        let refused = bed.vfs.mkdir(ROOT, name, Ownership::of_process(0o755)).expect_err("made");
        assert_eq!(refused.kind(), Kind::Invalid, "{name}");
    }
    bed.write("g/zarr.json", br#"{"zarr_format":3,"node_type":"group"}"#).expect("a group");
    bed.rename("g", "g.__lock").expect_err("renamed");
    bed.vfs.mkdir(ROOT, "plain-files", Ownership::of_process(0o755)).expect("made");
    bed.write("plain-files/f", b"f").expect("an ordinary file");
    for name in ["plain-files.__lock", "zarr.json", ".zarrfs"] {
        bed.rename("plain-files", name).expect_err("renamed");
    }
    assert!(bed.names("").contains(&"g".to_owned()));
}

#[test]
fn a_file_that_is_not_linked_for_want_of_room_leaves_no_inode() {
    let bed = VfsBed::limited(64);
    bed.put("plain/notes", vec![1; 100]);
    let (notes, plain) =
        (bed.find("plain/notes").expect("there"), bed.find("plain").expect("there"));
    let known = bed.vfs.names.inodes.len();
    bed.vfs.link(notes, plain, "more").expect_err("there is room");
    assert_eq!(bed.vfs.names.inodes.len(), known);
}

/// Of names in the same array, of another array, and of a file that is no chunk.
#[test]
fn links_and_renames_take_the_bytes_that_another_mount_stored_last() {
    for to in ["plain/c/1", "sharded/c/0", "plain/notes"] {
        for is_link in [true, false] {
            let bed = VfsBed::new();
            bed.write("plain/c/0", b"abcd").expect("stored");
            assert_eq!(bed.read("plain/c/0").expect("read"), b"abcd");
            let number = bed.find("plain/c/0").expect("there");
            bed.other().write("plain/c/0", b"efgh").expect("stored");
            if is_link {
                let (parent, last) = bed.place(to);
                bed.vfs.link(number, parent, last).expect("linked");
            } else {
                bed.rename("plain/c/0", to).expect("renamed");
            }
            assert_eq!(bed.read(to).expect("read"), b"efgh", "{to}, link: {is_link}");
        }
    }
}

/// The kernel may know a name a little longer than it is one, and opens by the number alone.
#[test]
fn a_number_is_not_opened_while_a_name_of_its_file_leads_to_another() {
    for (taken, other) in [("first", "second"), ("second", "first")] {
        for is_replaced in [true, false] {
            let dir = tempfile::tempdir().expect("a directory");
            let at = |name: &str| dir.path().join(name);
            std::fs::write(at("zarr.json"), r#"{"zarr_format":3,"node_type":"group"}"#)
                .and_then(|()| std::fs::write(at("first"), "one"))
                .and_then(|()| std::fs::hard_link(at("first"), at("second")))
                .expect("written");
            let store = DirectoryStore::open(dir.path(), Durability::Buffered).expect("opens");
            let store = Store::of_files(Arc::new(store));
            let hierarchy = Hierarchy::open(store, Some(Dialect::V3), HierarchyOptions::default());
            let vfs = Vfs::new(hierarchy.expect("opens"), VfsOptions::default());
            let number = vfs.lookup(ROOT, taken).expect("there").number;
            assert_eq!(vfs.lookup(ROOT, other).expect("there").number, number);
            std::fs::remove_file(at(taken)).expect("removed");
            if is_replaced {
                std::fs::write(at(taken), "of another program").expect("written");
            }
            assert_eq!(vfs.lookup(ROOT, other).expect("there").number, number);
            let by_known_name: [&dyn Fn() -> crate::error::Result<()>; 3] = [
                &|| vfs.open(number, Access::Truncate).map(drop),
                &|| vfs.link(number, ROOT, "third").map(drop),
                &|| vfs.check_all_names(number),
            ];
            for (i, act) in by_known_name.into_iter().enumerate() {
                vfs.names.inodes.at_linked(&place_of(taken), id_of(&vfs, other));
                let refused = act().expect_err("the kernel must look the name up");
                assert_eq!(refused.kind(), Kind::NotFound, "{taken}, {is_replaced}, {i}");
            }
            let opened = vfs.open(number, Access::Truncate).expect("its other name is left");
            vfs.release(opened.handle);
            let texts = [taken, other].map(|name| std::fs::read_to_string(at(name)).ok());
            let of_taken = is_replaced.then(|| "of another program".to_owned());
            assert_eq!(texts, [of_taken, Some(String::new())]);
        }
    }
}

fn place_of(name: &str) -> Place {
    Place::Ordinary(NodePath::root(), name.to_owned())
}

fn id_of(vfs: &Vfs, name: &str) -> FileId {
    vfs.names.ordinary.id(&place_of(name)).expect("looked at").expect("there")
}
