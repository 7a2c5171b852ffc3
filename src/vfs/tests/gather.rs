//! Inner chunks that wait for the others of their shard: two in each here.

use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::bed::VfsBed;
use crate::error::Kind;
use crate::vfs::{Access, Pages};

#[test]
fn a_shard_is_stored_once_for_all_that_waits_for_it() {
    let bed = VfsBed::patient();
    bed.sets();
    bed.write("sharded/c/0", b"aaaa").expect("closed");
    bed.vfs.store_full();
    bed.vfs.tick();
    assert_eq!((bed.sets(), bed.stored("sharded/c/0")), (0, None), "stored before its time");
    bed.write("sharded/c/1", b"bbbb").expect("closed");
    bed.vfs.store_full();
    assert_eq!(bed.sets(), 1, "a full shard is stored, and once");
    bed.vfs.sync().expect("nothing is left");
    assert_eq!((bed.sets(), bed.vfs.unstored().len()), (0, 0));
}

#[test]
fn pending_chunks_are_visible_everywhere_in_the_mount() {
    let mut bed = VfsBed::patient();
    bed.write("sharded/c/1", b"1111").expect("closed");
    bed.write("sharded/c/2", b"2222").expect("closed");
    bed.vfs.sync().expect("stored");
    for (name, new) in [("sharded/c/0", b"0000"), ("sharded/c/2", b"zzzz")] {
        bed.write(name, new).expect("closed");
    }
    bed.unlink("sharded/c/1").expect("removed");
    bed.sets();
    assert_eq!(bed.names("sharded/c"), ["0", "2"]);
    assert_eq!(bed.read("sharded/c/0").expect("read"), b"0000");
    assert_eq!(bed.read("sharded/c/2").expect("read"), b"zzzz");
    assert_eq!(bed.read("sharded/c/1").expect_err("removed").kind(), Kind::NotFound);
    let number = bed.find("sharded/c/0").expect("there");
    assert_eq!(bed.vfs.getattr(number).expect("told").len, 4);
    let open = bed.open("sharded/c/2", Access::Write).expect("opened");
    bed.vfs.write(open, 1, b"--").expect("updated");
    bed.close(open).expect("closed");
    assert_eq!(bed.read("sharded/c/2").expect("read"), b"z--z");
    assert_eq!(bed.sets(), 0, "stored though nobody asked");
    bed.vfs.sync().expect("stored");
    bed.remount();
    assert_eq!(bed.names("sharded/c"), ["0", "2"]);
    assert_eq!(bed.read("sharded/c/2").expect("read"), b"z--z");
}

#[test]
fn fsync_of_one_chunk_stores_its_shard_and_no_other() {
    let bed = VfsBed::patient();
    bed.write("sharded/c/0", b"aaaa").expect("closed");
    bed.write("sharded/c/2", b"cccc").expect("closed");
    bed.sets();
    let open = bed.open("sharded/c/0", Access::Read).expect("opened");
    bed.vfs.fsync(open).expect("stored");
    assert_eq!(bed.sets(), 1);
    assert!(bed.stored("sharded/c/0").is_some() && bed.stored("sharded/c/1").is_none());
    assert!(bed.store.synced.lock().iter().any(|key| key.as_str() == "sharded/c/0"));
}

#[test]
fn a_failure_comes_out_of_the_next_close_and_fsync_in_that_shard_and_of_unmount() {
    let bed = VfsBed::patient();
    bed.write("sharded/c/0", b"aaaa").expect("closed");
    bed.store.fail_set.store(1, Ordering::Relaxed);
    bed.vfs.sync().expect_err("the store is full");
    let unstored = bed.vfs.unstored();
    assert_eq!(unstored.len(), 1);
    assert_eq!(unstored[0].path, "sharded/c/0");
    let crate::vfs::UnstoredChange::Bytes(bytes) = &unstored[0].change else {
        panic!("{unstored:?}")
    };
    let bytes = bytes.to_buffer(99).expect("read");
    assert_eq!(&*bytes, b"aaaa");
    assert_eq!(unstored[0].failure.as_ref().map(crate::error::Error::errno), Some(libc::ENOSPC));
    let closed = bed.write("sharded/c/1", b"bbbb").expect_err("the shard could not be stored");
    assert_eq!(closed.errno(), libc::ENOSPC);
    bed.write("sharded/c/2", b"cccc").expect("another shard");
    bed.store.fail_set.store(1, Ordering::Relaxed);
    let open = bed.open("sharded/c/0", Access::Read).expect("opened");
    assert_eq!(bed.vfs.fsync(open).expect_err("still full").errno(), libc::ENOSPC);
    bed.vfs.fsync(open).expect("there is room again");
    bed.vfs.release(open);
    bed.vfs.sync().expect("stored");
    assert_eq!(bed.read("sharded/c/1").expect("read"), b"bbbb");
    assert!(bed.vfs.unstored().is_empty());
    assert_eq!(bed.vfs.errors().matches("no space left").count(), 1, "{}", bed.vfs.errors());
}

#[test]
fn with_writeback_all_a_failure_is_reported_in_its_array() {
    let bed = VfsBed::behind();
    bed.write("plain/c/0", b"aaaa").expect("closed");
    assert_eq!((bed.sets(), bed.stored("plain/c/0")), (0, None), "its writer waited");
    assert_eq!(bed.read("plain/c/0").expect("read"), b"aaaa");
    bed.store.fail_set.store(1, Ordering::Relaxed);
    bed.vfs.store_full();
    assert_eq!(bed.write("plain/c/1", b"bbbb").expect_err("full").errno(), libc::ENOSPC);
    bed.write("sharded/c/0", b"cccc").expect("another array");
    bed.vfs.sync().expect("there is room again");
    bed.write("plain/c/1", b"dddd").expect("closed");
    bed.vfs.store_full();
    assert_eq!(bed.stored("plain/c/1").as_deref(), Some(&b"dddd"[..]));
    assert!(bed.vfs.unstored().is_empty());
}

#[test]
fn pages_are_kept_when_pending_chunks_are_stored_unchanged() {
    let bed = VfsBed::patient();
    bed.write("sharded/c/0", b"aaaa").expect("closed");
    let number = bed.find("sharded/c/0").expect("there");
    let before = bed.vfs.open(number, Access::Read).expect("opened");
    bed.vfs.release(before.handle);
    bed.vfs.sync().expect("stored");
    assert_eq!(bed.vfs.open(number, Access::Read).expect("opened").pages, Pages::Keep);
    // Another program replaces the shard.
    bed.put("sharded/c/0", bed.stored("sharded/c/0").expect("stored"));
    assert_eq!(bed.vfs.open(number, Access::Read).expect("opened").pages, Pages::Drop);
}

#[test]
fn chunks_that_other_programs_store_in_the_shard_are_kept() {
    let (bed, other) = (VfsBed::patient(), VfsBed::patient());
    other.write("sharded/c/1", b"bbbb").expect("closed");
    other.vfs.sync().expect("stored");
    bed.write("sharded/c/0", b"aaaa").expect("closed");
    bed.put("sharded/c/0", other.stored("sharded/c/0").expect("stored"));
    assert_eq!(bed.names("sharded/c"), ["0", "1"]);
    bed.vfs.sync().expect("stored");
    assert_eq!(bed.read("sharded/c/0").expect("read"), b"aaaa");
    assert_eq!(bed.read("sharded/c/1").expect("read"), b"bbbb");
}

#[test]
fn pending_chunks_move_with_their_node_and_are_dropped_with_it() {
    let mut bed = VfsBed::patient();
    bed.write("sharded/c/0", b"aaaa").expect("closed");
    bed.rename("sharded", "moved").expect("moved");
    assert_eq!(bed.read("moved/c/0").expect("read"), b"aaaa");
    bed.write("moved/c/1", b"bbbb").expect("closed");
    for name in ["moved/c/0", "moved/c/1", "moved/zarr.json"] {
        bed.unlink(name).expect("removed");
    }
    let at = bed.find("moved").expect("there");
    bed.vfs.rmdir(at, "c").expect("it holds nothing");
    bed.vfs.rmdir(crate::vfs::ROOT, "moved").expect("it holds nothing");
    assert!(bed.vfs.unstored().is_empty());
    bed.vfs.sync().expect("nothing is left");
    bed.remount();
    assert_eq!(bed.keys(), ["plain/zarr.json", "zarr.json"]);
}

#[test]
fn chunks_that_wait_outside_of_a_smaller_shape_are_stored_before_it() {
    let mut bed = VfsBed::patient();
    for chunk in 0..4 {
        bed.write(&format!("sharded/c/{chunk}"), b"aaaa").expect("closed");
    }
    let document = String::from_utf8(bed.read("sharded/zarr.json").expect("read")).expect("text");
    bed.write("sharded/zarr.json", document.replacen('8', "2", 1).as_bytes()).expect("resized");
    assert_eq!(bed.names("sharded/c"), ["0"]);
    bed.vfs.sync().expect("stored");
    bed.remount();
    let document = String::from_utf8(bed.read("sharded/zarr.json").expect("read")).expect("text");
    bed.write("sharded/zarr.json", document.replacen('2', "8", 1).as_bytes()).expect("resized");
    assert_eq!(bed.names("sharded/c"), ["0", "1", "2", "3"], "as in a directory");
}

#[test]
fn pending_chunks_stay_within_the_limit_and_a_refusal_gives_the_reason() {
    let limit = 3 * 600;
    let bed = VfsBed::limited(limit);
    for (chunk, byte) in (0..4).chain(0..4).zip(b'a'..) {
        let name = format!("sharded/c/{chunk}");
        bed.write(&name, &[byte; 4]).expect("room is made");
        assert!(bed.vfs.core.cache.pending_len() <= limit + 600, "one more is let in");
        assert_eq!(bed.read(&name).expect("read"), [byte; 4]);
    }
    bed.vfs.sync().expect("stored");
    bed.store.broken.store(1, Ordering::Relaxed);
    for chunk in 0..4 {
        bed.write(&format!("sharded/c/{chunk}"), b"0000").expect("waits");
    }
    let refused = bed.write("sharded/c/0", b"1111").expect_err("there is no room");
    assert_eq!(refused.errno(), libc::ENOSPC);
    bed.store.broken.store(0, Ordering::Relaxed);
    bed.write("sharded/c/0", b"2222").expect("room is made");
    assert_eq!(bed.read("sharded/c/0").expect("read"), b"2222");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn listings_are_those_of_a_store_where_nothing_waits(
        steps in prop::collection::vec((0_usize..4, any::<bool>(), any::<bool>()), 1..20),
    ) {
        let bed = VfsBed::patient();
        let mut there = std::collections::BTreeSet::new();
        for (chunk, is_set, is_synced) in steps {
            let name = format!("sharded/c/{chunk}");
            if is_set {
                bed.write(&name, b"abcd").expect("closed");
                there.insert(chunk.to_string());
            } else {
                prop_assert_eq!(bed.unlink(&name).is_ok(), there.remove(&chunk.to_string()));
            }
            if is_synced {
                bed.vfs.sync().expect("stored");
            }
            if bed.find("sharded/c").is_ok() {
                let names: std::collections::BTreeSet<String> = bed.names("sharded/c").into_iter().collect();
                prop_assert_eq!(&names, &there);
                prop_assert_eq!(bed.names("sharded/c").len(), there.len(), "a name came twice");
            } else {
                prop_assert!(there.is_empty());
            }
        }
    }
}

#[test]
fn a_chunk_that_is_removed_while_its_shard_is_stored_stays_removed() {
    let mut bed = VfsBed::patient();
    bed.write("sharded/c/0", b"aaaa").expect("closed");
    let vfs = std::sync::Arc::clone(&bed.vfs);
    let directory = bed.place("sharded/c/0").0;
    *bed.store.before_set.lock() = Some(Box::new(move || {
        vfs.unlink(directory, "0").expect("removed");
    }));
    bed.vfs.sync().expect("stored");
    assert_eq!(bed.read("sharded/c/0").expect_err("removed").kind(), Kind::NotFound);
    bed.vfs.sync().expect("stored");
    bed.remount();
    assert_eq!(bed.read("sharded/c/0").expect_err("removed").kind(), Kind::NotFound);
}

#[test]
fn a_node_is_removed_after_its_chunks_in_progress_are_stored() {
    let mut bed = VfsBed::patient();
    bed.write("sharded/c/0", b"aaaa").expect("closed");
    let (vfs, array) = (std::sync::Arc::clone(&bed.vfs), bed.find("sharded").expect("there"));
    let directory = bed.place("sharded/c/0").0;
    let (begun, begin) = std::sync::mpsc::channel();
    let remove = std::thread::spawn(move || {
        begin.recv().expect("begun");
        vfs.unlink(directory, "0").expect("removed");
        vfs.unlink(array, "zarr.json").expect("removed");
        vfs.rmdir(array, "c").expect("removed");
        vfs.rmdir(crate::vfs::ROOT, "sharded").expect("removed");
    });
    *bed.store.before_set.lock() = Some(Box::new(move || {
        begun.send(()).expect("heard");
        // Long enough for a reader that does not wait.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }));
    bed.vfs.sync().expect("stored");
    remove.join().expect("removed");
    bed.vfs.sync().expect("nothing is left");
    bed.remount();
    assert_eq!(bed.keys(), ["plain/zarr.json", "zarr.json"]);
}

#[test]
fn an_open_chunk_can_be_read_while_its_node_moves() {
    let mut bed = VfsBed::new();
    bed.write("sharded/c/0", b"0000").expect("closed");
    bed.vfs.sync().expect("stored");
    bed.remount();
    let number = bed.find("sharded/c/0").expect("there");
    let opened = bed.vfs.open(number, Access::Read).expect("opened");
    let vfs = std::sync::Arc::clone(&bed.vfs);
    let moving = std::thread::spawn(move || move_to_and_fro(&vfs));
    while !moving.is_finished() {
        assert_eq!(bed.vfs.read(opened.handle, 0, 10).expect("read"), &b"0000"[..]);
        assert_eq!(bed.vfs.getattr(number).expect("looked at").len, 4);
        let again = bed.vfs.open(number, Access::Read).expect("opened once more");
        bed.vfs.release(again.handle);
    }
    moving.join().expect("moved");
    bed.vfs.release(opened.handle);
}

/// Moves the array `sharded` to `moved` and back, and at last there.
fn move_to_and_fro(vfs: &crate::vfs::Vfs) {
    for round in 0..101 {
        let names = [("sharded", "moved"), ("moved", "sharded")];
        let (from, to) = names[round % 2];
        let root = crate::vfs::ROOT;
        vfs.rename(root, from, root, to, crate::vfs::Replace::Yes).expect("moved");
    }
}

#[test]
fn a_chunk_written_while_its_node_moves_is_stored_at_the_new_place() {
    let mut bed = VfsBed::patient();
    bed.write("sharded/c/0", b"0000").expect("closed");
    let number = bed.find("sharded/c/0").expect("there");
    let vfs = std::sync::Arc::clone(&bed.vfs);
    let moving = std::thread::spawn(move || move_to_and_fro(&vfs));
    let mut last = 0;
    while !moving.is_finished() || last < 100 {
        last += 1;
        let opened = bed.vfs.open(number, Access::Truncate).expect("it goes along");
        bed.vfs.write(opened.handle, 0, format!("{last:04}").as_bytes()).expect("written");
        bed.close(opened.handle).expect("closed");
        if last == 9999 {
            break;
        }
    }
    moving.join().expect("moved");
    let text = format!("{last:04}");
    assert_eq!(bed.read("moved/c/0").expect("read"), text.as_bytes());
    bed.vfs.sync().expect("stored");
    bed.remount();
    assert_eq!(bed.read("moved/c/0").expect("read"), text.as_bytes());
    let keys = bed.keys();
    assert!(keys.iter().all(|key| !key.starts_with("sharded")), "{keys:?}");
}
