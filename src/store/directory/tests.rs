use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::store::{Store, suite};

fn store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = DirectoryStore::open(dir.path(), Durability::Buffered).expect("opens");
    (dir, Store::new(Arc::new(store)))
}

fn key(text: &str) -> Key {
    Key::parse(text).expect("a valid key")
}

#[test]
fn keeps_the_promises_of_a_store() {
    let dirs = std::cell::RefCell::new(Vec::new());
    suite::run(|| {
        let (dir, store) = store();
        dirs.borrow_mut().push(dir);
        store
    });
}

#[test]
fn no_link_leads_out_of_the_store() {
    let outside = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(outside.path().join("secret"), b"secret").expect("written");
    let (dir, store) = store();
    symlink(outside.path().join("secret"), dir.path().join("file")).expect("linked");
    symlink(outside.path(), dir.path().join("dir")).expect("linked");
    symlink("/proc/self/root/etc", dir.path().join("magic")).expect("linked");
    for text in ["file", "dir/secret", "magic/passwd"] {
        let error = store.get(&key(text), 100).expect_err("led out");
        assert_eq!(error.errno(), libc::EIO, "{error}");
    }
    let write = store.write().expect("writable");
    write.set(&key("dir/new"), &[], Condition::Always).expect_err("led out");
    write.erase_prefix(&Prefix::parse("dir").expect("valid")).expect_err("led out");
    write.erase_prefix(&Prefix::root()).expect("erased");
    assert!(outside.path().join("secret").exists(), "erased outside of the store");
    assert_eq!(std::fs::read_dir(outside.path()).expect("read").count(), 1);
}

#[test]
fn a_lock_file_is_nobodys_but_its_holders() {
    let (dir, store) = store();
    let lock = dir.path().join("c.__lock");
    std::fs::write(&lock, b"half a value").expect("written");
    assert_eq!(store.stat(&key("c.__lock")).expect("asked"), None);
    assert!(store.get(&key("c.__lock"), 100).expect("asked").is_none());
    let write = store.write().expect("writable");
    write.erase_values(&[key("c.__lock")]).expect("nothing to erase");
    let error = write.set(&key("c.__lock"), &[], Condition::Always).expect_err("set");
    assert_eq!(error.kind(), Kind::NotPermitted);
    assert_eq!(std::fs::read(&lock).expect("there"), b"half a value");
}

#[test]
fn a_link_within_the_store_is_followed() {
    let (dir, store) = store();
    std::fs::create_dir(dir.path().join("real")).expect("made");
    std::fs::write(dir.path().join("real/k"), b"x").expect("written");
    symlink("real", dir.path().join("link")).expect("linked");
    symlink("..", dir.path().join("real/up")).expect("linked");
    assert_eq!(store.get(&key("link/k"), 100).expect("read").expect("there").bytes, "x");
    let keys: Vec<_> = store
        .list()
        .expect("listable")
        .list()
        .expect("listed")
        .map(|key| key.expect("a key"))
        .collect();
    assert_eq!(keys, [key("real/k")], "a link to a directory was walked");
}

#[test]
fn what_is_not_a_regular_file_is_an_error_at_once() {
    let (dir, store) = store();
    let made = Command::new("mkfifo").arg(dir.path().join("fifo")).status().expect("ran");
    assert!(made.success());
    let error = store.get(&key("fifo"), 100).expect_err("it is a FIFO");
    assert_eq!(error.errno(), libc::EIO);
    assert!(error.to_string().starts_with("fifo: not a regular file"), "{error}");
}

#[test]
fn the_file_of_a_killed_writer_is_taken_over_and_never_listed() {
    let (dir, store) = store();
    std::fs::write(dir.path().join("k.__lock"), b"half of a very long val").expect("written");
    let keys = || store.list().expect("listable").list().expect("listed").count();
    assert_eq!(keys(), 0);
    let write = store.write().expect("writable");
    write.set(&key("k"), &[Bytes::from_static(b"new").into()], Condition::Always).expect("set");
    assert_eq!(store.get(&key("k"), 100).expect("read").expect("there").bytes, "new");
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 1);
}

#[test]
fn writers_of_one_key_take_turns() {
    let (_dir, store) = store();
    let zero = [Bytes::from_static(b"0").into()];
    store.write().expect("writable").set(&key("n"), &zero, Condition::Always).expect("set");
    let count_up = || {
        let mut done = 0;
        while done < 50 {
            let value = store.get(&key("n"), 100).expect("read").expect("there");
            let n: u32 = std::str::from_utf8(&value.bytes).expect("text").parse().expect("number");
            let condition = Condition::Unchanged(value.stat.version);
            let new = [Bytes::from((n + 1).to_string()).into()];
            match store.write().expect("writable").set(&key("n"), &new, condition) {
                Ok(_) => done += 1,
                Err(error) => assert_eq!(error.kind(), Kind::Stale),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(count_up);
        }
    });
    assert_eq!(store.get(&key("n"), 100).expect("read").expect("there").bytes, "200");
}

#[test]
fn a_replaced_value_keeps_its_mode() {
    let (dir, store) = store();
    let path = dir.path().join("k");
    std::fs::write(&path, b"x").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("set");
    store.write().expect("writable").set(&key("k"), &[], Condition::Always).expect("set");
    assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o640);
}

#[test]
fn a_name_of_255_bytes_can_be_set() {
    let (_dir, store) = store();
    let name = "n".repeat(255);
    store.write().expect("writable").set(&key(&name), &[], Condition::Always).expect("set");
    assert!(store.stat(&key(&name)).expect("stat").is_some());
    let error =
        store.write().expect("writable").set(&key(&"n".repeat(256)), &[], Condition::Always);
    assert_eq!(error.expect_err("too long").errno(), libc::ENAMETOOLONG);
}

#[test]
fn a_value_behind_a_link_can_be_replaced_on_a_condition() {
    let (dir, store) = store();
    std::fs::create_dir(dir.path().join("real")).expect("made");
    std::fs::write(dir.path().join("real/k"), b"0123").expect("written");
    std::fs::create_dir(dir.path().join("c")).expect("made");
    symlink("../real/k", dir.path().join("c/k")).expect("linked");
    let known = store.stat(&key("c/k")).expect("stat").expect("there");
    let pieces = [Piece::Kept { offset: 2, len: 2 }, Bytes::from_static(b"new").into()];
    let condition = Condition::Unchanged(known.version);
    store.write().expect("writable").set(&key("c/k"), &pieces, condition).expect("unchanged");
    assert_eq!(store.get(&key("c/k"), 100).expect("read").expect("there").bytes, "23new");
    assert_eq!(store.get(&key("real/k"), 100).expect("read").expect("there").bytes, "0123");
}

#[test]
fn a_lock_file_that_is_another_name_of_a_value_does_that_value_no_harm() {
    let (dir, store) = store();
    std::fs::write(dir.path().join("zarr.json"), b"precious").expect("written");
    std::fs::hard_link(dir.path().join("zarr.json"), dir.path().join("k.__lock")).expect("linked");
    let new = [Bytes::from_static(b"new").into()];
    store.write().expect("writable").set(&key("k"), &new, Condition::Always).expect("set");
    assert_eq!(store.get(&key("zarr.json"), 100).expect("read").expect("there").bytes, "precious");
    assert_eq!(store.get(&key("k"), 100).expect("read").expect("there").bytes, "new");
}

#[test]
fn directories_that_come_and_go_fail_no_writer() {
    let (_dir, store) = store();
    let write_and_erase = |mine: &'static str| {
        let write = store.write().expect("writable");
        for round in 0..200 {
            let pieces = [Bytes::from_static(b"x").into()];
            let set = write.set(&key(mine), &pieces, Condition::Always);
            set.unwrap_or_else(|error| panic!("round {round}: {error}"));
            write.erase_values(&[key(mine)]).expect("erased");
        }
    };
    std::thread::scope(|scope| {
        for mine in ["a/b/c/1", "a/b/c/2", "a/b/d", "a/e"] {
            scope.spawn(move || write_and_erase(mine));
        }
    });
    assert_eq!(store.list().expect("listable").list().expect("listed").count(), 0);
}

#[test]
fn what_is_erased_is_not_brought_back_by_a_writer_that_knew_it() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    // Long enough that a writer spends its time between looking and renaming.
    const STEP: u64 = 64 << 10;
    let (_dir, store) = store();
    let step = Bytes::from(vec![7; 64 << 10]);
    let (begun, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let append = || {
        while !done.load(Ordering::SeqCst) {
            let known = store.stat(&key("k")).expect("stat");
            let kept = known.map(|stat| Piece::Kept { offset: 0, len: stat.len });
            let pieces: Vec<Piece> = kept.into_iter().chain([step.clone().into()]).collect();
            let condition =
                known.map_or(Condition::Absent, |stat| Condition::Unchanged(stat.version));
            begun.fetch_add(1, Ordering::SeqCst);
            match store.write().expect("writable").set(&key("k"), &pieces, condition) {
                Err(error) => assert!(matches!(error.kind(), Kind::Stale | Kind::Exists)),
                Ok(stat) => assert_eq!(stat.len, known.map_or(0, |stat| stat.len) + STEP),
            }
        }
    };
    let erase = || {
        for round in 0..100 {
            while store.stat(&key("k")).expect("stat").is_none_or(|stat| stat.len < 10 * STEP) {}
            // At another moment of what the writer does each time.
            (0..round * 500).for_each(|_| std::hint::spin_loop());
            let before = begun.load(Ordering::SeqCst);
            store.write().expect("writable").erase_values(&[key("k")]).expect("erased");
            // The write that was under way is over.
            while begun.load(Ordering::SeqCst) < before + 2 {}
            let len = store.stat(&key("k")).expect("stat").map_or(0, |stat| stat.len) / STEP;
            let since = begun.load(Ordering::SeqCst) - before + 1;
            assert!(len <= since, "{len} steps after {since} writes: erased bytes came back");
        }
        done.store(true, Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        scope.spawn(append);
        let erased = scope.spawn(erase).join();
        done.store(true, Ordering::SeqCst);
        erased.expect("the claim holds");
    });
}
