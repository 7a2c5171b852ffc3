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
