//! Files that another program has changed since this mount showed them: a program that changes or
//! removes them by what it saw loses nothing of the other one.

use std::sync::atomic::Ordering;

use super::replaced::{KINDS, Pair, StoreKind};
use crate::error::Result;
use crate::store::{Ownership, Replace};
use crate::vfs::{Access, HandleUse, ROOT, Writeback};

fn pair(kind: StoreKind) -> Pair {
    let pair = Pair::new(kind, false, Writeback::Delay);
    for (key, text) in [("log", "old\n"), ("a/c/0", "ol"), ("a/c/1", "ol")] {
        pair.place.put(key, text);
    }
    // It remembers them for an hour.
    for path in ["log", "a/c/0", "a/c/1"] {
        read(&pair, path).expect("read");
    }
    pair
}

fn errno<T>(done: Result<T>) -> i32 {
    done.err().map_or(0, |error| error.errno())
}

/// Reads a file as this process.
fn read(pair: &Pair, path: &str) -> Result<Vec<u8>> {
    let handle = pair.mine.open(pair.find(path)?, Access::Read)?.handle;
    pair.mine.note_opener(HandleUse::by(handle, std::process::id()));
    let bytes = pair.mine.read(handle, 0, 1 << 20);
    pair.mine.release(handle);
    Ok(bytes?.to_vec())
}

/// Opens a file, changes it as this process, and has it stored.
fn change(
    pair: &Pair,
    path: &str,
    access: Access,
    write: impl Fn(HandleUse) -> Result<()>,
) -> Result<()> {
    let handle = pair.mine.open(pair.find(path)?, access)?.handle;
    let by = HandleUse::by(handle, std::process::id());
    pair.mine.note_opener(by);
    let stored = write(by).and_then(|()| pair.mine.fsync(handle));
    let closed = pair.mine.flush(by);
    pair.mine.release(handle);
    stored.and(closed)
}

fn replace(pair: &Pair, path: &str, text: &str) -> Result<()> {
    change(pair, path, Access::Truncate, |by| pair.mine.write(by, 0, text.as_bytes()))
}

#[track_caller]
fn check(pair: &Pair, key: &str, want: &str) {
    let found = pair.place.values().remove(key);
    assert_eq!(found.as_deref().map(String::from_utf8_lossy).as_deref(), Some(want), "{key}");
}

fn with(pair: &Pair, change: impl Fn(&mut serde_json::Value)) -> String {
    let text = pair.place.values().remove("a/zarr.json").expect("there");
    let mut document = serde_json::from_slice(&text).expect("JSON");
    change(&mut document);
    document.to_string()
}

/// Shows: store-decides-outdated.
#[test]
fn a_program_appends_behind_what_another_one_has_appended() {
    for kind in KINDS {
        let pair = pair(kind);
        pair.place.put("log", "old\ntheirs\n");
        // The kernel takes the old length for the end.
        let append = |by| pair.mine.append(by, 4, b"mine\n");
        change(&pair, "log", Access::Write, append).expect("appended");
        check(&pair, "log", "old\ntheirs\nmine\n");
        pair.place.put("log", "a much longer text");
        let handle = pair.mine.open(pair.find("log").expect("there"), Access::Write).expect("open");
        let number = pair.find("log").expect("there");
        assert_eq!(pair.mine.getattr(number).expect("there").len, 18, "{kind:?}");
        pair.mine.release(handle.handle);
    }
}

#[test]
fn a_changed_file_that_waits_does_not_replace_what_another_mount_has_stored_meanwhile() {
    let pair = pair(StoreKind::Server);
    let handle = pair.mine.open(pair.find("log").expect("there"), Access::Write).expect("open");
    pair.mine.write(handle.handle, 0, b"OLD").expect("written");
    pair.mine.flush(handle.handle).expect("closed");
    pair.mine.release(handle.handle);
    pair.place.put("log", "theirs");
    assert_eq!(errno(pair.mine.sync()), libc::EBUSY);
    check(&pair, "log", "theirs");
    pair.mine.rename(ROOT, "log", ROOT, "other", Replace::No).expect("it gets another name");
    pair.mine.sync().expect("stored");
    check(&pair, "other", "OLD\n");
    // A program that writes all of it again means to replace it, unless it has read it before.
    pair.place.put("log", "theirs again");
    assert_eq!(errno(replace(&pair, "log", "mine")), libc::EBUSY);
    replace(&pair, "log", "mine").expect("stored");
    check(&pair, "log", "mine");
}

#[test]
fn a_chunk_that_gets_another_name_is_that_of_the_store() {
    for kind in KINDS {
        let pair = pair(kind);
        pair.place.put("a/c/0", "ne");
        let chunks = pair.find("a/c").expect("there");
        pair.mine.rename(chunks, "0", ROOT, "x", Replace::Yes).expect("renamed");
        pair.mine.sync().expect("stored");
        check(&pair, "x", "ne");
    }
}

#[test]
fn a_program_that_appends_to_an_array_does_not_overwrite_what_another_one_has_appended() {
    for kind in KINDS {
        let pair = pair(kind);
        read(&pair, "a/zarr.json").expect("read");
        let longer = with(&pair, |document| document["shape"] = serde_json::json!([20]));
        pair.place.put("a/zarr.json", &longer);
        // It appends as many elements.
        assert_eq!(errno(replace(&pair, "a/zarr.json", &longer)), libc::ESTALE, "{kind:?}");
        check(&pair, "a/zarr.json", &longer);
        let read = String::from_utf8(read(&pair, "a/zarr.json").expect("read")).expect("text");
        let longest = read.replace("20", "40");
        assert_ne!(read, longest);
        replace(&pair, "a/zarr.json", &longest).expect("it has read the metadata again");
    }
}

/// Shows: store-decides-removal.
#[test]
fn a_program_removes_no_array_that_another_one_has_changed_since_it_was_read() {
    let pair = pair(StoreKind::Server);
    read(&pair, "a/zarr.json").expect("read");
    let changed = with(&pair, |document| document["attributes"]["theirs"] = 1.into());
    pair.place.put("a/zarr.json", &changed);
    let by = Some(std::process::id());
    let (array, chunks) = (pair.find("a").expect("there"), pair.find("a/c").expect("there"));
    assert_eq!(errno(pair.mine.unlink_by(by, array, "zarr.json")), libc::EBUSY);
    // It goes on, as `mv` does.
    assert_eq!(errno(pair.mine.unlink_by(by, chunks, "0")), libc::EBUSY);
    assert_eq!(errno(pair.mine.unlink_by(by, array, "zarr.json")), libc::EBUSY);
    check(&pair, "a/c/0", "ol");
    // Another program knows what it does, and so does this one when it has looked.
    pair.mine.unlink_by(Some(1), chunks, "0").expect("removed");
    read(&pair, "a/zarr.json").expect("read");
    pair.mine.unlink_by(by, chunks, "1").expect("removed");
    pair.mine.unlink_by(by, array, "zarr.json").expect("removed");
}

#[test]
fn a_whole_chunk_does_not_undo_what_another_mount_had_stored_before_its_program_read_it() {
    for writeback in [Writeback::Sync, Writeback::All] {
        let pair = Pair::new(StoreKind::Server, false, writeback);
        pair.place.put("a/c/0", "ol");
        read(&pair, "a/c/0").expect("read");
        pair.place.put("a/c/0", "ne");
        assert_eq!(read(&pair, "a/c/0").expect("read"), b"ol", "the mount shows an old one");
        assert_eq!(errno(replace(&pair, "a/c/0", "mi")), libc::ESTALE, "{writeback:?}");
        check(&pair, "a/c/0", "ne");
        read(&pair, "a/c/0").expect("read");
        replace(&pair, "a/c/0", "mi").expect("it has read the chunk again");
        check(&pair, "a/c/0", "mi");
        // A program that has not read the chunk replaces whatever is there.
        pair.place.put("a/c/0", "ne");
        replace(&pair, "a/c/0", "my").expect("stored");
        check(&pair, "a/c/0", "my");
    }
}

#[test]
fn a_whole_chunk_keeps_what_another_program_stores_after_it_was_compared() {
    let pair = Pair::new(StoreKind::Server, false, Writeback::All);
    pair.place.put("a/c/0", "ol");
    read(&pair, "a/c/0").expect("read");
    let number = pair.find("a/c/0").expect("there");
    let handle = pair.mine.open(number, Access::Truncate).expect("open").handle;
    let by = HandleUse::by(handle, std::process::id());
    pair.mine.note_opener(by);
    pair.mine.write(by, 0, b"ml").expect("written");
    pair.mine.flush(by).expect("compared with what is there, and to be stored later");
    pair.mine.release(handle);
    pair.place.put("a/c/0", "ot");
    pair.mine.sync().expect("stored");
    check(&pair, "a/c/0", "mt");
}

#[test]
fn a_whole_chunk_that_could_not_be_compared_keeps_what_another_program_stores_before_it() {
    let pair = Pair::new(StoreKind::Server, false, Writeback::Sync);
    pair.place.put("a/c/0", "ol");
    read(&pair, "a/c/0").expect("read");
    let server = pair.place.server.as_ref().expect("a server");
    server.is_away.store(true, Ordering::Relaxed);
    assert_eq!(errno(replace(&pair, "a/c/0", "ml")), libc::EIO);
    server.is_away.store(false, Ordering::Relaxed);
    pair.place.put("a/c/0", "ot");
    pair.mine.sync().expect("stored");
    check(&pair, "a/c/0", "mt");
}

#[test]
fn a_stored_metadata_file_is_not_replaced_by_what_an_older_one_became() {
    for kind in KINDS {
        let pair = pair(kind);
        let path = ".zarrfs/stored/a/zarr.json";
        read(&pair, path).expect("read");
        let mine = with(&pair, |document| document["attributes"]["mine"] = 1.into());
        let theirs = with(&pair, |document| document["attributes"]["theirs"] = 1.into());
        pair.place.put("a/zarr.json", &theirs);
        assert_eq!(errno(replace(&pair, path, &mine)), libc::ESTALE, "{kind:?}");
        check(&pair, "a/zarr.json", &theirs);
        read(&pair, path).expect("read");
        replace(&pair, path, &mine).expect("it has read the new one");
    }
}

/// Makes a file with these bytes as this process.
fn create(pair: &Pair, name: &str, text: &str) {
    let owner = Ownership::of_process(0o644);
    let made = pair.mine.create(ROOT, name, owner, Access::Truncate, true);
    let handle = made.expect("made").1.handle;
    let by = HandleUse::by(handle, std::process::id());
    pair.mine.note_opener(by);
    pair.mine.write(by, 0, text.as_bytes()).expect("written");
    pair.mine.flush(by).expect("closed");
    pair.mine.release(handle);
}

/// Shows: store-decides-outdated.
#[test]
fn an_edited_file_does_not_undo_what_another_mount_had_stored_before_its_program_read_it() {
    let pair = pair(StoreKind::Server);
    let by = Some(std::process::id());
    pair.place.put("log", "theirs");
    // An editor that writes into the file.
    assert_eq!(errno(replace(&pair, "log", "OLD\n")), libc::EBUSY);
    check(&pair, "log", "theirs");
    pair.mine.unlink_by(by, ROOT, "log").expect("what it has written is given up");
}

#[test]
fn a_file_that_takes_the_name_of_an_edited_one_does_not_undo_what_another_mount_has_stored() {
    let pair = pair(StoreKind::Server);
    create(&pair, "log.new", "OLD\n");
    pair.place.put("log", "theirs");
    let renamed = || pair.mine.rename(ROOT, "log.new", ROOT, "log", Replace::Yes);
    assert_eq!(errno(renamed()), libc::EBUSY);
    pair.mine.sync().expect("stored");
    check(&pair, "log", "theirs");
    // A program that has not read it means to replace it.
    renamed().expect("renamed");
    pair.mine.sync().expect("stored");
    check(&pair, "log", "OLD\n");
}

/// Shows: store-decides-removal.
#[test]
fn a_program_removes_no_file_or_chunk_that_another_one_has_stored_since_it_was_read() {
    let pair = pair(StoreKind::Server);
    let by = Some(std::process::id());
    let chunks = pair.find("a/c").expect("there");
    for (parent, name, key) in [(ROOT, "log", "log"), (chunks, "0", "a/c/0")] {
        pair.place.put(key, "ne");
        assert_eq!(errno(pair.mine.unlink_by(by, parent, name)), libc::EBUSY, "{key}");
        check(&pair, key, "ne");
    }
    pair.mine.unlink_by(by, ROOT, "log").expect("it was told");
    assert!(!pair.place.values().contains_key("log"));
}

#[test]
fn a_view_that_is_written_again_keeps_elements_that_another_mount_has_stored() {
    let pair = pair(StoreKind::Server);
    let seen = read(&pair, "a.raw").expect("read");
    pair.place.put("a/c/0", "ot");
    let mut changed = seen.clone();
    changed[0] = b'm';
    change(&pair, "a.raw", Access::Truncate, |by| pair.mine.write(by, 0, &changed))
        .expect("stored");
    check(&pair, "a/c/0", "mt");
    // So does a chunk of a program that has read it in a view.
    let pair = self::pair(StoreKind::Server);
    read(&pair, "a.raw").expect("read");
    pair.place.put("a/c/1", "ne");
    assert_eq!(errno(replace(&pair, "a/c/1", "mi")), libc::ESTALE);
    check(&pair, "a/c/1", "ne");
}
