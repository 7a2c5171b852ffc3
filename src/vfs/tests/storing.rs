//! When and how bytes reach the store, and what is reported when they do not.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::bed::VfsBed;
use crate::error::Kind;
use crate::vfs::{Access, NewLen, Ownership, Pages, ROOT, UnstoredChange};
use crate::width::ToU64;

#[test]
fn a_rewritten_ordinary_file_is_stored_after_the_kernel_forgot_it() {
    let bed = VfsBed::new();
    bed.put("plain/notes", b"old".to_vec());
    let number = bed.find("plain/notes").expect("there");
    let open = bed.vfs.open(number, Access::Truncate).expect("opened").handle;
    bed.vfs.write(open, 0, b"new").expect("written");
    bed.close(open).expect("closed");
    bed.vfs.forget(number, 1);
    assert_eq!(bed.read("plain/notes").expect("read"), b"new");
    bed.vfs.tick();
    assert_eq!(bed.stored("plain/notes").as_deref(), Some(&b"new"[..]));
}

#[test]
fn a_failed_sync_is_repeated_by_the_next_one() {
    let bed = VfsBed::new();
    for sync in [
        |bed: &VfsBed| bed.vfs.sync(),
        |bed: &VfsBed| {
            let open = bed.open("plain/c/1", Access::Read)?;
            let synced = bed.vfs.fsync(open);
            bed.vfs.release(open);
            synced
        },
    ] {
        bed.write("plain/c/1", b"abcd").expect("stored");
        bed.store.fail_sync.store(1, Ordering::Relaxed);
        sync(&bed).expect_err("the disk is broken");
        bed.store.synced.lock().clear();
        bed.vfs.sync().expect("synced");
        let synced: Vec<String> = bed.store.synced.lock().iter().map(ToString::to_string).collect();
        assert_eq!(synced, ["plain/c/1"], "a failed sync was taken for one that is done");
        bed.store.synced.lock().clear();
        bed.vfs.sync().expect("synced");
        assert!(bed.store.synced.lock().is_empty(), "synced twice");
    }
}

#[test]
fn syncing_a_directory_ignores_files_that_others_are_writing() {
    let bed = VfsBed::new();
    let open = bed.create("plain/c/0").expect("created");
    bed.vfs.write(open, 0, b"ab").expect("written");
    bed.vfs.sync().expect("nothing is complete");
    bed.vfs.write(open, 2, b"cd").expect("written");
    bed.close(open).expect("stored");
    assert_eq!(bed.stored("plain/c/0").as_deref(), Some(&b"abcd"[..]));
}

#[test]
fn a_time_that_is_set_does_not_make_old_bytes_those_of_a_newer_value() {
    let bed = VfsBed::new();
    bed.write("plain/c/0", b"abcd").expect("stored");
    assert_eq!(bed.read("plain/c/0").expect("read"), b"abcd");
    let number = bed.find("plain/c/0").expect("there");
    // Another program replaces it, and then a program of this mount touches it.
    bed.put("plain/c/0", b"ABCD".to_vec());
    bed.vfs.attr_writer().set_modified(number, SystemTime::UNIX_EPOCH).expect("set");
    let opened = bed.vfs.open(number, Access::Read).expect("opened");
    assert_eq!(opened.pages, Pages::Drop, "the kernel keeps pages of the value before");
    assert_eq!(bed.vfs.read(opened.handle, 0, 10).expect("read").as_ref(), b"ABCD");
    bed.vfs.release(opened.handle);
    bed.vfs
        .attr_writer()
        .set_modified(number, SystemTime::UNIX_EPOCH + Duration::from_secs(1))
        .expect("set");
    let again = bed.vfs.open(number, Access::Read).expect("opened");
    assert_eq!(again.pages, Pages::Keep, "nothing but the time has changed");
}

#[test]
fn the_time_of_a_generated_file_cannot_be_set() {
    let bed = VfsBed::new();
    let number = bed.find(".zarrfs/errors").expect("there");
    let refused = bed.vfs.attr_writer().set_modified(number, SystemTime::now()).expect_err("set");
    assert_eq!(refused.kind(), Kind::NotPermitted);
}

#[test]
fn a_scratch_file_that_cannot_be_cut_keeps_its_bytes() {
    let bed = VfsBed::new();
    bed.write("plain/notes", b"unstored").expect("kept");
    bed.store.fail_set.store(1, Ordering::Relaxed);
    bed.vfs
        .attr_writer()
        .truncate(bed.find("plain/notes").expect("there"), 4)
        .expect_err("the store is full");
    assert!(bed.read("plain/notes").expect("still there").starts_with(b"unst"));
    assert_eq!(bed.vfs.contents.files.memory.unstored_len(), 4);
}

#[test]
fn files_that_wait_go_to_the_store_when_there_is_no_room_for_more() {
    let bed = VfsBed::limited(100);
    for n in 0..20 {
        bed.write(&format!("plain/{n}"), &[n; 30]).expect("written");
    }
    assert!(bed.vfs.contents.files.memory.unstored_len() <= 100);
    for n in 0..20 {
        assert_eq!(bed.read(&format!("plain/{n}")).expect("read"), [n; 30]);
    }
    let refused = bed.write("plain/long", &[0; 101]).expect_err("more than may wait");
    assert_eq!(refused.kind(), Kind::NoMemory);
}

#[test]
fn an_open_after_a_refused_close_reads_the_stored_bytes() {
    let bed = VfsBed::new();
    bed.write("plain/c/0", b"abcd").expect("stored");
    for (path, refused) in [("plain/c/0", &b"xy"[..]), ("plain/zarr.json", b"{")] {
        let before = bed.read(path).expect("read");
        let writer = bed.open(path, Access::Truncate).expect("opened");
        bed.vfs.write(writer, 0, refused).expect("written");
        bed.vfs.flush(writer).expect_err("incomplete");
        // The kernel has not told yet that this was the last close.
        assert_eq!(bed.read(path).expect("read"), before, "{path}");
        bed.vfs.release(writer);
        assert_eq!(bed.read(path).expect("read"), before, "{path}");
    }
}

#[test]
fn a_directory_that_the_store_rejects_stays_pending_with_the_error() {
    let bed = VfsBed::new();
    let made = bed.vfs.mkdir(ROOT, "new", Ownership::of_process(0o755)).expect("made").number;
    bed.vfs.mkdir(made, "below", Ownership::of_process(0o755)).expect("made");
    bed.vfs.mkdir(ROOT, ".hidden", Ownership::of_process(0o755)).expect("made");
    let paths = |wanted_errno: Option<i32>| -> Vec<String> {
        let of = |unstored: crate::vfs::Unstored| {
            assert!(matches!(unstored.change, UnstoredChange::Directory), "{unstored:?}");
            assert_eq!(unstored.failure.map(|error| error.errno()), wanted_errno);
            unstored.path
        };
        bed.vfs.unstored().into_iter().map(of).collect()
    };
    assert_eq!(paths(None), ["new", "new/below"], "before the first attempt");
    bed.store.broken.store(1, Ordering::Relaxed);
    bed.vfs.sync().expect_err("the store is full");
    assert_eq!(paths(Some(libc::ENOSPC)), ["new", "new/below"]);
    bed.vfs.tick();
    assert_eq!(paths(Some(libc::ENOSPC)), ["new", "new/below"]);
    let lines = bed.read(".zarrfs/unstored-bytes").expect("read");
    let wanted = concat!(
        r#"{"path":"new","reason":"no space left on device","directory":true,"len":0}"#,
        "\n",
        r#"{"path":"new/below","reason":"no space left on device","directory":true,"len":0}"#,
        "\n"
    );
    assert_eq!(String::from_utf8_lossy(&lines), wanted);
    bed.store.broken.store(0, Ordering::Relaxed);
    bed.vfs.sync().expect("stored");
    assert!(bed.vfs.unstored().is_empty() && bed.stored("new/below/zarr.json").is_some());
}

#[test]
fn attributes_that_wait_for_their_directory_are_pending_with_it() {
    let bed = VfsBed::new();
    bed.write("new/.zattrs", br#"{"units":"K"}"#).expect("kept");
    bed.store.broken.store(1, Ordering::Relaxed);
    bed.vfs.sync().expect_err("the store is full");
    let paths = || -> Vec<String> {
        bed.vfs.unstored().into_iter().map(|unstored| unstored.path).collect()
    };
    assert_eq!(paths(), ["new", "new/.zattrs"]);
    bed.store.broken.store(0, Ordering::Relaxed);
    bed.vfs.sync().expect("stored");
    assert!(paths().is_empty(), "{:?}", paths());
}

#[test]
fn a_closed_file_in_the_place_of_a_view_has_no_part_in_what_comes_after() {
    for (name, written) in [("plain.raw", ""), ("plain.raw", "12"), ("plain.npy", "no header")] {
        let bed = VfsBed::new();
        bed.write("plain/c/0", b"abcd").expect("stored");
        let before = bed.read(name).expect("read");
        let number = bed.find(name).expect("there");
        let closed = bed.vfs.open(number, Access::Truncate).expect("opened").handle;
        bed.vfs.write(closed, 0, written.as_bytes()).expect("written");
        assert_eq!(bed.vfs.flush(closed).is_ok(), written.is_empty(), "{name}: not whole");
        // The kernel tells of the last close later. What the view has now is no hole.
        let len = before.len().to_u64();
        assert_eq!(bed.vfs.getattr(number).expect("there").len, len, "{name}");
        for len in [0, len] {
            bed.vfs.attr_writer().truncate(number, len).expect("kept");
        }
        // Another program begins a file before that.
        let other = bed.vfs.open(number, Access::Truncate).expect("opened").handle;
        bed.vfs.release(closed);
        bed.close(other).expect("nothing was written");
        let mut want = before;
        if name == "plain.raw" {
            want[..written.len()].copy_from_slice(written.as_bytes());
        }
        assert_eq!(bed.read(name).expect("read"), want, "{name}");
    }
}

#[test]
fn a_view_that_its_own_writer_lengthens_has_zeros_there() {
    let bed = VfsBed::new();
    bed.write("plain/c/0", b"abcd").expect("stored");
    let number = bed.find("plain.raw").expect("there");
    let handle = bed.vfs.open(number, Access::Truncate).expect("opened").handle;
    bed.vfs.write(handle, 0, b"12").expect("written");
    let len = bed.vfs.getattr(number).expect("there").len;
    bed.vfs.attr_writer().truncate(number, NewLen { len, handle: Some(handle) }).expect("filled");
    bed.close(handle).expect("whole");
    assert_eq!(bed.read("plain/c/0").expect("read"), b"12\0\0");
}
