//! Names that another mount has given to a file since this one looked: nothing that a program has
//! never seen here is replaced or removed.

use super::replaced::{KINDS, Pair, StoreKind};
use crate::error::Result;
use crate::store::{Ownership, Replace};
use crate::vfs::{Access, ROOT, Writeback};

/// A mount that has listed its root, so that it knows for an hour that no other names are there.
fn pair(kind: StoreKind) -> Pair {
    let pair = Pair::new(kind, false, Writeback::Delay);
    for name in ["README", "notes", "LOCK", "x.tmp"] {
        assert_eq!(errno(pair.mine.lookup(ROOT, name).map(drop)), libc::ENOENT);
    }
    pair
}

fn create(pair: &Pair, name: &str, is_exclusive: bool) -> Result<u64> {
    let owner = Ownership::of_process(0o644);
    let (_, opened) = pair.mine.create(ROOT, name, owner, Access::Truncate, is_exclusive)?;
    Ok(opened.handle)
}

/// Writes a file, has it stored, and closes it.
fn finish(pair: &Pair, handle: u64) -> Result<()> {
    pair.mine.write(handle, 0, b"mine").expect("written");
    let stored = pair.mine.fsync(handle);
    let closed = pair.mine.flush(handle);
    pair.mine.release(handle);
    stored.and(closed)
}

fn errno(done: Result<()>) -> i32 {
    done.err().map_or(0, |error| error.errno())
}

#[track_caller]
fn check(pair: &Pair, key: &str, want: &str) {
    let found = pair.place.values().remove(key);
    assert_eq!(found.as_deref().map(String::from_utf8_lossy).as_deref(), Some(want), "{key}");
}

#[test]
fn a_name_that_another_mount_has_just_given_is_taken() {
    for kind in KINDS {
        let pair = pair(kind);
        pair.place.put("README", "theirs");
        assert_eq!(errno(create(&pair, "README", true).map(drop)), libc::EEXIST, "{kind:?}");
        check(&pair, "README", "theirs");

        // Without `O_EXCL`, the program opens the file that is there.
        pair.place.put("notes", "theirs");
        let owner = Ownership::of_process(0o644);
        let (attr, opened) =
            pair.mine.create(ROOT, "notes", owner, Access::Write, false).expect("opened");
        assert_eq!(attr.len, 6, "{kind:?}");
        finish(&pair, opened.handle).expect("stored");
        check(&pair, "notes", "miners");

        // A link and a rename that must not replace anything.
        let handle = create(&pair, "mine", true).expect("made");
        finish(&pair, handle).expect("stored");
        let number = pair.find("mine").expect("there");
        pair.place.put("LOCK", "theirs");
        assert_eq!(errno(pair.mine.link(number, ROOT, "LOCK").map(drop)), libc::EEXIST, "{kind:?}");
        let renamed = pair.mine.rename(ROOT, "mine", ROOT, "LOCK", Replace::No);
        assert_eq!(errno(renamed), libc::EEXIST, "{kind:?}");
        check(&pair, "LOCK", "theirs");
        check(&pair, "mine", "mine");
    }
}

#[test]
fn a_directory_does_not_get_the_name_of_a_file_that_another_mount_has_just_made() {
    for kind in KINDS {
        let pair = pair(kind);
        pair.place.put("README", "theirs");
        let made = pair.mine.mkdir(ROOT, "README", Ownership::of_process(0o755));
        assert_eq!(errno(made.map(drop)), libc::EEXIST, "{kind:?}");
        pair.place.put("LOCK/zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
        assert_eq!(errno(create(&pair, "LOCK", true).map(drop)), libc::EEXIST, "{kind:?}");
        assert_eq!(errno(create(&pair, "LOCK", false).map(drop)), libc::EISDIR, "{kind:?}");
    }
}

#[test]
fn a_file_that_another_mount_makes_before_this_one_is_stored_stays() {
    for kind in [StoreKind::Memory, StoreKind::Server] {
        let pair = pair(kind);
        let handle = create(&pair, "README", true).expect("made");
        pair.place.put("README", "theirs");
        assert_eq!(errno(finish(&pair, handle)), libc::EEXIST, "{kind:?}");
        check(&pair, "README", "theirs");
        // It waits, with the reason, and can get another name.
        let waiting = pair.mine.unstored();
        assert_eq!(waiting.len(), 1, "{kind:?}");
        assert!(waiting[0].failure.as_ref().unwrap().detail().contains("stays"), "{waiting:?}");
        pair.mine.rename(ROOT, "README", ROOT, "other", Replace::No).expect("renamed");
        pair.mine.sync().expect("stored");
        check(&pair, "other", "mine");
        check(&pair, "README", "theirs");
    }
}

#[test]
fn removing_a_file_that_was_never_stored_does_not_remove_that_of_another_mount() {
    for kind in KINDS {
        let pair = pair(kind);
        // In a directory, only a scratch file is not in the store at once.
        let handle = create(&pair, "x.tmp", true).expect("made");
        pair.place.put("x.tmp", "theirs");
        assert_eq!(errno(finish(&pair, handle)), libc::EEXIST, "{kind:?}");
        pair.mine.unlink(ROOT, "x.tmp").expect("removed");
        check(&pair, "x.tmp", "theirs");
        assert!(pair.mine.unstored().is_empty(), "{kind:?}");
    }
}

#[test]
fn a_file_that_takes_the_place_of_an_unstored_one_replaces_nothing_else() {
    for kind in KINDS {
        let pair = pair(kind);
        for name in ["x.tmp", "y.tmp"] {
            let handle = create(&pair, name, true).expect("made");
            pair.mine.write(handle, 0, b"mine").expect("written");
            pair.mine.flush(handle).expect("closed");
            pair.mine.release(handle);
        }
        pair.mine.rename(ROOT, "y.tmp", ROOT, "x.tmp", Replace::Yes).expect("renamed");
        if kind == StoreKind::Directory {
            check(&pair, "x.tmp", "mine");
            continue; // A rename of files is one of the file system below.
        }
        pair.place.put("x.tmp", "theirs");
        assert_eq!(errno(pair.mine.sync()), libc::EEXIST, "{kind:?}");
        check(&pair, "x.tmp", "theirs");
    }
}
