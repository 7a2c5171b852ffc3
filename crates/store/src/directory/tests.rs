use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{Mode, mkdirat};
use tempfile::TempDir;

use super::names::lock_name;
use super::*;
use crate::{Store, StoreEntry, suite};

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
fn a_sync_ignores_other_files_in_the_place_of_a_value() {
    let (dir, store) = store();
    let keys = [key("a"), key("b"), key("c/d")];
    let writable = store.write().expect("writable");
    for key in &keys {
        let pieces = [Bytes::from_static(b"new").into()];
        writable.set(key, &pieces, Condition::Always).expect("set");
    }
    for name in ["a", "b", "c/d"] {
        std::fs::remove_file(dir.path().join(name)).expect("removed");
    }
    std::fs::remove_dir(dir.path().join("c")).expect("removed");
    symlink("/etc/hostname", dir.path().join("a")).expect("linked");
    let made = Command::new("mkfifo").arg(dir.path().join("b")).status().expect("ran");
    assert!(made.success());
    symlink("/etc", dir.path().join("c")).expect("linked");
    writable.sync(&keys).expect("nothing of ours is there");
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
fn a_lock_file_is_not_a_value() {
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
fn a_tree_of_any_depth_can_be_erased() {
    let (dir, store) = store();
    let mut above = OwnedFd::from(File::open(dir.path()).expect("opens"));
    for depth in 0..2000 {
        let name = if depth % 70 == 0 { c".zarrfs-deep-1" } else { c"d" };
        mkdirat(&above, name, Mode::from(0o777)).expect("made");
        mkdirat(&above, c"e", Mode::from(0o777)).expect("made");
        above = sys::open_beneath(&above, name, OFlags::RDONLY, Links::Refuse).expect("opens");
    }
    drop(above);
    let keys: Result<Vec<_>> = store.list().expect("listable").list().expect("lists").collect();
    assert!(keys.expect_err("too deep").detail().contains("nested more than 256 deep"));
    store.write().expect("writable").erase_prefix(&Prefix::root()).expect("erased");
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0);
}

#[test]
fn a_directory_that_moves_below_a_link_is_in_no_circle() {
    let (dir, store) = store();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("a/x/y")).expect("made");
    std::fs::write(at("a/x/y/k"), b"x").expect("written");
    symlink("a", at("l")).expect("linked");
    let is_there = |text: &str| store.get(&key(text), 100).expect("no circle").is_some();
    assert!(is_there("l/x/y/k"));
    std::fs::rename(at("a/x"), at("a/old")).expect("moved");
    std::fs::create_dir(at("a/x")).expect("made");
    std::fs::rename(at("a/old"), at("a/x/x")).expect("moved");
    assert!(is_there("l/x/x/y/k") && !is_there("l/x/y/k"));
    // A circle that appears after the first check.
    symlink("../..", at("a/x/x/up")).expect("linked");
    assert!(store.get(&key("l/x/x/up/x/x/y/k"), 100).is_err());
}

#[test]
fn a_link_that_leads_in_a_circle_is_an_error_and_no_directory() {
    let (dir, store) = store();
    for name in ["a/b", "c"] {
        std::fs::create_dir_all(dir.path().join(name)).expect("made");
        std::fs::write(dir.path().join(name).join("k"), b"x").expect("written");
    }
    let links = [
        (".", "root"),
        ("..", "a/up"),
        ("../..", "a/b/top"),
        ("../a", "a/same"),
        ("../c", "a/other"),
        ("../a", "c/back"),
        ("a/b", "jump"),
        ("../..", "a/b/above"),
        ("..", "a/b/parent"),
        ("self", "self"),
    ];
    for (target, link) in links {
        symlink(target, dir.path().join(link)).expect("linked");
    }
    let errno = |text: &str| store.get(&key(text), 100).expect_err("in a circle").errno();
    for text in
        ["root/a/b/k", "a/up/c/k", "a/b/top/a/b/k", "a/same/b/k", "a/other/back/b/k", "self"]
    {
        assert_eq!(errno(text), libc::ELOOP, "{text}");
    }
    // The path `jump` reaches `a` once, and then `b` for the second time.
    for (text, is_there) in [("a/other/k", true), ("c/back/b/k", true), ("jump/parent/b/k", false)]
    {
        assert_eq!(
            store.get(&key(text), 100).is_ok_and(|found| found.is_some()),
            is_there,
            "{text}"
        );
    }
    let listed = |prefix: &str| {
        let list = store.list().expect("listable");
        let found = list.list_dir(&Prefix::parse(prefix).expect("valid")).expect("listed");
        let found = found.map(|entry| entry.expect("an entry"));
        let dirs = found.filter(|entry| matches!(entry, StoreEntry::Prefix(_)));
        let mut names: Vec<_> = dirs.map(|entry| entry.name().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(listed(""), ["a", "c", "jump"]);
    assert_eq!(listed("a"), ["b", "other"]);
    assert_eq!(listed("jump"), ["parent"]);
    assert_eq!(listed("jump/parent"), ["other"], "`b` is where `jump` has been");
}

#[test]
fn opening_anything_but_a_regular_file_fails_at_once() {
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
    write.release_idle(Duration::ZERO).expect("at rest");
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
    let pieces = [ValuePiece::Kept { offset: 2, len: 2 }, Bytes::from_static(b"new").into()];
    let condition = Condition::Unchanged(known.version);
    store.write().expect("writable").set(&key("c/k"), &pieces, condition).expect("unchanged");
    assert_eq!(store.get(&key("c/k"), 100).expect("read").expect("there").bytes, "23new");
    assert_eq!(store.get(&key("real/k"), 100).expect("read").expect("there").bytes, "0123");
}

#[test]
fn a_link_upwards_is_followed_while_other_files_are_renamed() {
    let (dir, store) = store();
    std::fs::create_dir(dir.path().join("c")).expect("made");
    std::fs::write(dir.path().join("k"), b"0123").expect("written");
    symlink("../k", dir.path().join("c/k")).expect("linked");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let [one, other] = ["1", "2"].map(|name| elsewhere.path().join(name));
    std::fs::write(&one, b"").expect("written");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::rename(&one, &other).expect("renamed");
                std::fs::rename(&other, &one).expect("renamed");
            }
        });
        let failed = (0..20_000).find_map(|_| store.stat(&key("c/k")).err());
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(failed.is_none(), "{failed:?}");
    });
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
fn writes_to_a_removed_store_fail_with_a_reason() {
    let (dir, store) = store();
    dir.close().expect("removed");
    let write = store.write().expect("writable");
    for text in ["zarr.json", "a/b"] {
        write.set(&key(text), &[], Condition::Always).expect_err("set");
        write.erase_values(&[key(text)]).unwrap_or_else(|error| log::debug!("{error}"));
    }
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
fn a_concurrent_writer_does_not_restore_an_erased_value() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    // Long values, so that writers are often between the check and the rename.
    const STEP: u64 = 64 << 10;
    let (_dir, store) = store();
    let step = Bytes::from(vec![7; 64 << 10]);
    let (begun, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let append = || {
        while !done.load(Ordering::SeqCst) {
            let known = store.stat(&key("k")).expect("stat");
            let kept = known.map(|stat| ValuePiece::Kept { offset: 0, len: stat.len });
            let pieces: Vec<ValuePiece> = kept.into_iter().chain([step.clone().into()]).collect();
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
            // Hits the writer at another moment in each round.
            (0..round * 500).for_each(|_| std::hint::spin_loop());
            let before = begun.load(Ordering::SeqCst);
            store.write().expect("writable").erase_values(&[key("k")]).expect("erased");
            // Wait until the current write has ended.
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

/// The names in a directory.
fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

/// Writes the session file of a dead writer with these bytes after its first line.
fn dead_session(dir: &Path, boot: &str, keys: &[u8]) {
    std::fs::create_dir_all(dir.join(".zarrfs")).expect("made");
    let bytes = [boot.as_bytes(), keys].concat();
    std::fs::write(dir.join(".zarrfs/writing-1-1"), bytes).expect("written");
}

fn set(store: &Store, text: &str) {
    let new = [Bytes::from_static(b"new").into()];
    store.write().expect("writable").set(&key(text), &new, Condition::Always).expect("set");
}

#[test]
fn a_session_is_in_the_store_while_values_are_written_and_no_longer() {
    let (dir, store) = store();
    let write = store.write().expect("writable");
    assert!(store.get(&key("k"), 100).expect("read").is_none());
    write.release_idle(Duration::ZERO).expect("at rest");
    assert!(names(dir.path()).is_empty(), "who reads leaves a trace");
    set(&store, "k");
    write.release_idle(Duration::from_secs(60)).expect("asked");
    assert_eq!(names(dir.path()), [".zarrfs", "k"]);
    let keys: Vec<_> = store.list().expect("listable").list().expect("listed").collect();
    assert_eq!(keys, [Ok(key("k"))], "a session is no value");
    let root = store.list().expect("listable").list_dir(&Prefix::root()).expect("listed");
    assert_eq!(root.collect::<Vec<_>>(), [Ok(StoreEntry::Key("k".to_owned()))]);
    let session = key(&format!(".zarrfs/{}", names(&dir.path().join(".zarrfs"))[0]));
    assert_eq!(store.stat(&session).expect("asked"), None);
    write.erase_values(std::slice::from_ref(&session)).expect("nothing to erase");
    assert!(dir.path().join(session.as_str()).exists(), "erased");
    write.release_idle(Duration::ZERO).expect("at rest");
    assert_eq!(names(dir.path()), ["k"]);
    set(&store, "k");
    drop(store);
    assert_eq!(names(dir.path()), ["k"], "it outlives its writer");
}

#[test]
fn files_of_killed_writers_are_removed_and_those_of_live_ones_stay() {
    let (dir, store) = store();
    for text in ["a/dead", "a/live", "other"] {
        set(&store, text);
        std::fs::write(dir.path().join(format!("{text}.__lock")), b"half").expect("written");
    }
    let live = File::options().write(true).open(dir.path().join("a/live.__lock")).expect("there");
    assert!(sys::try_lock(&live).expect("asked"), "locked by nobody");
    let long = "n".repeat(250);
    let hashed = lock_name(&long);
    std::fs::write(dir.path().join(&hashed), b"half").expect("written");
    std::fs::create_dir(dir.path().join("new")).expect("made");
    std::fs::write(dir.path().join("new/k.__lock"), b"half").expect("written");
    let keys = format!("a/dead\0a/live\0{long}\0new/k\0gone/k\0");
    dead_session(dir.path(), &session::boot(), keys.as_bytes());
    let write = store.write().expect("writable");
    assert!(write.abandoned().expect("recovered").is_empty());
    assert_eq!(names(&dir.path().join("a")), ["dead", "live", "live.__lock"]);
    assert!(!dir.path().join(&hashed).exists() && !dir.path().join("new").exists());
    assert!(dir.path().join("other.__lock").exists(), "nobody has named it");
    write.release_idle(Duration::ZERO).expect("at rest");
    assert!(!dir.path().join(".zarrfs").exists(), "{:?}", names(&dir.path().join(".zarrfs")));
}

#[test]
fn the_session_of_a_live_writer_is_left_alone() {
    let (dir, one) = store();
    let other = DirectoryStore::open(dir.path(), Durability::Buffered).expect("opens");
    let write = one.write().expect("writable");
    let aside = write.aside().expect("a place");
    write.declare(&aside, Bytes::from_static(b"a change")).expect("stored");
    assert!(other.abandoned().expect("looked").is_empty(), "it is somebody's");
    assert!(one.stat(&aside.declaration().expect("a key")).expect("asked").is_some());
    let prefix = aside.prefix().clone();
    drop(aside);
    drop(one);
    let found = other.abandoned().expect("looked");
    assert_eq!(found.iter().map(Aside::prefix).collect::<Vec<_>>(), [&prefix]);
    let third = DirectoryStore::open(dir.path(), Durability::Buffered).expect("opens");
    assert!(third.abandoned().expect("looked").is_empty(), "two take care of it");
    drop(found);
    let again = third.abandoned().expect("looked");
    assert_eq!(again.len(), 1, "what was not finished is forgotten");
    third.erase_prefix(&prefix).expect("erased");
    drop(again);
    drop((other, third));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn after_another_boot_every_lock_file_is_looked_at() {
    for boot in ["another\n", ""] {
        let (dir, store) = store();
        std::fs::create_dir_all(dir.path().join("a/b")).expect("made");
        for name in ["7.__lock", "zarr.json.__lock", ".zarrfs-0123456789abcdef.__lock"] {
            std::fs::write(dir.path().join("a/b").join(name), b"half").expect("written");
        }
        // Of the user.
        std::fs::write(dir.path().join("a/b/poetry.__lock"), b"mine").expect("written");
        std::fs::write(dir.path().join("k"), b"whole").expect("written");
        dead_session(dir.path(), boot, b"");
        store.write().and_then(WritableStore::abandoned).expect("recovered");
        assert_eq!(names(&dir.path().join("a/b")), ["poetry.__lock"], "{boot:?}");
        drop(store);
        assert_eq!(names(dir.path()), ["a", "k"], "{boot:?}");
    }
}

#[test]
fn in_a_shared_directory_no_change_of_another_user_is_finished() {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    let (dir, store) = store();
    dead_session(dir.path(), &session::boot(), b"0");
    std::fs::write(dir.path().join("0.__lock"), b"half").expect("written");
    let session = std::fs::read_dir(dir.path().join(".zarrfs")).expect("there").next();
    let session = session.expect("a session").expect("read").path();
    let name = session.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let place = session.with_file_name(name.replace("writing", "aside") + "-1");
    std::fs::create_dir(&place).expect("made");
    std::fs::write(place.join("change"), b"{}").expect("written");
    if chown(&session, Some(65534), None).and_then(|()| chown(&place, Some(65534), None)).is_err() {
        return; // Only root can give a file away.
    }
    let abandoned = || store.write().and_then(WritableStore::abandoned).expect("looked");
    let set = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(dir.path(), mode).expect("set");
    };
    set(0o1777);
    assert!(abandoned().is_empty() && dir.path().join("0.__lock").exists());
    set(0o777);
    assert_eq!(abandoned().len(), 1, "all users may remove all files here");
    assert!(!dir.path().join("0.__lock").exists());
}

#[test]
fn a_session_with_too_many_keys_makes_recovery_check_the_whole_store() {
    let (dir, store) = store();
    set(&store, "a");
    std::fs::write(dir.path().join("c0.1.__lock"), b"half").expect("written");
    let keys: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    dead_session(dir.path(), &session::boot(), keys.join("\0").as_bytes());
    assert!(store.write().and_then(WritableStore::abandoned).expect("recovered").is_empty());
    drop(store);
    assert_eq!(names(dir.path()), ["a"]);
}

#[test]
fn files_of_many_dead_writers_are_removed_at_once() {
    let (dir, store) = store();
    for id in 0..600 {
        set(&store, &format!("a/{id}"));
    }
    drop(store);
    let store = Store::new(Arc::new(
        DirectoryStore::open(dir.path(), Durability::Buffered).expect("opens"),
    ));
    std::fs::create_dir(dir.path().join(".zarrfs")).expect("made");
    for id in 0..600 {
        let boot = if id % 2 == 0 { session::boot() } else { "another\n".to_owned() };
        let text = format!("{boot}a/{id}\0");
        std::fs::write(dir.path().join(format!(".zarrfs/writing-7-{id}")), text).expect("written");
        std::fs::write(dir.path().join(format!("a/{id}.__lock")), b"half").expect("written");
    }
    assert!(store.write().and_then(WritableStore::abandoned).expect("recovered").is_empty());
    drop(store);
    assert_eq!(names(dir.path()), ["a"]);
    assert_eq!(names(&dir.path().join("a")).len(), 600);
}

#[test]
fn the_private_directory_has_the_permissions_of_the_root() {
    let (dir, store) = store();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o2770)).expect("shared");
    set(&store, "k");
    let mode = dir.path().join(".zarrfs").metadata().expect("there").mode();
    assert_eq!(mode & 0o7777, 0o2770);
}

#[test]
fn a_damaged_session_does_no_harm() {
    let outside = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(outside.path().join("k.__lock"), b"precious").expect("written");
    let (dir, store) = store();
    set(&store, "zarr.json");
    std::fs::hard_link(dir.path().join("zarr.json"), dir.path().join("x.__lock")).expect("linked");
    symlink(outside.path(), dir.path().join("out")).expect("linked");
    symlink(outside.path().join("k.__lock"), dir.path().join("y.__lock")).expect("linked");
    std::fs::create_dir(dir.path().join("z.__lock")).expect("made");
    let up = format!("../{}/k", outside.path().file_name().expect("a name").display());
    let keys = format!("{up}\0/etc/passwd\0out/k\0x\0y\0z\0zarr.json/k\0\0\u{1}\0half of a na");
    dead_session(dir.path(), &session::boot(), &[keys.as_bytes(), b"\xff\xfe\0"].concat());
    let private = dir.path().join(".zarrfs");
    for foreign in ["writing-..", "writing-1", "aside-x-1", "convert", "notes"] {
        std::fs::write(private.join(foreign), b"foreign").expect("written");
    }
    symlink(outside.path(), private.join("writing-2-2")).expect("linked");
    assert!(store.write().and_then(WritableStore::abandoned).expect("recovered").is_empty());
    drop(store);
    assert_eq!(std::fs::read(outside.path().join("k.__lock")).expect("there"), b"precious");
    assert_eq!(std::fs::read(dir.path().join("zarr.json")).expect("there"), b"new");
    let left = ["aside-x-1", "convert", "notes", "writing-..", "writing-1", "writing-2-2"];
    assert_eq!(names(&private), left);
}

#[test]
fn writes_succeed_if_the_private_directory_is_a_link() {
    let (dir, store) = store();
    let outside = tempfile::tempdir().expect("a temporary directory");
    symlink(outside.path(), dir.path().join(".zarrfs")).expect("linked");
    set(&store, "k");
    store.write().and_then(WritableStore::abandoned).expect_err("led out");
    assert!(names(outside.path()).is_empty());
}

#[test]
fn a_session_names_every_key_that_is_being_written_and_stays_short() {
    let (dir, store) = store();
    let long = "n".repeat(200);
    let mut longest = 0;
    for number in 0..1000 {
        set(&store, &format!("{long}/{number}"));
        let name = names(&dir.path().join(".zarrfs")).pop().expect("a session");
        let bytes = std::fs::read(dir.path().join(".zarrfs").join(name)).expect("read");
        let last = format!("/{number}\0");
        assert!(bytes.ends_with(last.as_bytes()), "{number} is not named");
        longest = longest.max(bytes.len());
    }
    assert!(longest < 80_000, "{longest} bytes");
}

/// Replaces a file as `tar x` does: removes it and creates it again with a given time.
fn restore(path: &Path, bytes: &[u8], time: SystemTime) {
    std::fs::remove_file(path).expect("removed");
    std::fs::write(path, bytes).expect("written");
    File::options().write(true).open(path).expect("opened").set_modified(time).expect("set");
}

#[test]
fn a_value_that_is_restored_with_its_times_has_another_version() {
    let (dir, store) = store();
    let (path, long_ago) = (dir.path().join("k"), SystemTime::UNIX_EPOCH + Duration::from_secs(9));
    std::fs::write(&path, b"0").expect("written");
    for round in 0..300_u32 {
        restore(&path, &round.to_le_bytes(), long_ago);
        let before = store.get(&key("k"), 100).expect("read").expect("there");
        restore(&path, &(round + 1).to_le_bytes(), long_ago);
        let now = store.stat(&key("k")).expect("asked").expect("there");
        assert_eq!((before.stat.len, before.stat.modified), (now.len, now.modified));
        assert!(!before.stat.version.holds(now.version), "round {round}: taken to be unchanged");
        let new = [Bytes::from_static(b"ours").into()];
        let condition = Condition::Unchanged(before.stat.version);
        let set = store.write().expect("writable").set(&key("k"), &new, condition);
        assert_eq!(set.expect_err("written over newer bytes").kind(), Kind::Stale);
    }
}

#[test]
fn a_value_that_is_changed_in_place_with_its_times_has_another_version() {
    let (dir, store) = store();
    let (path, long_ago) = (dir.path().join("k"), SystemTime::UNIX_EPOCH);
    std::fs::write(&path, [0; 4]).expect("written");
    for round in 0..300_u32 {
        let before = store.get(&key("k"), 100).expect("read").expect("there");
        let file = File::options().write(true).open(&path).expect("opened");
        file.write_at(&round.to_le_bytes(), 0).expect("written");
        file.set_modified(long_ago).expect("set");
        let now = store.stat(&key("k")).expect("asked").expect("there");
        assert!(!before.stat.version.holds(now.version), "round {round}: taken to be unchanged");
    }
}

#[test]
fn where_the_clock_is_coarse_a_value_is_trusted_once_it_could_not_have_changed_unnoticed() {
    let (dir, _) = store();
    let mut store = DirectoryStore::open(dir.path(), Durability::Buffered).expect("opens");
    store.clock = Arc::new(Clock::with_window(store.clock.device(), Duration::from_millis(200)));
    let store = Store::new(Arc::new(store));
    std::fs::write(dir.path().join("k"), b"theirs").expect("written");
    let read = || store.get(&key("k"), 100).expect("read").expect("there").stat.version;
    let (at_once, looked) = (read(), Instant::now());
    let mut now = read();
    assert!(!at_once.holds(now), "trusted though it may have changed since");
    while !now.is_settled {
        now = read();
    }
    assert!(looked.elapsed() < Duration::from_secs(5), "never trusted");
    assert!(now.holds(read()) && !at_once.holds(now));

    // Values of this process are trusted at once, because no other program uses their time.
    let write = store.write().expect("writable");
    let new = || [Bytes::from_static(b"ours").into()];
    let mut version = now;
    for _ in 0..20 {
        version = write.set(&key("k"), &new(), Condition::Unchanged(version)).expect("set").version;
        assert!(version.holds(read()), "not found as it was stored");
    }
    assert!(looked.elapsed() < Duration::from_secs(5), "waited each time");

    // New values of other programs are compared or read again before a change.
    std::fs::write(dir.path().join("k"), b"theirs").expect("written");
    write.set(&key("k"), &new(), Condition::Unchanged(read())).expect("set");
    std::fs::write(dir.path().join("k"), b"theirs").expect("written");
    let mut whole = read();
    whole.read = WasRead::Whole(0); // As if other bytes had been read within the tick.
    let refused = write.set(&key("k"), &new(), Condition::Unchanged(whole)).expect_err("set");
    assert_eq!(refused.kind(), Kind::Stale);
    let part = || {
        let range = [(key("k"), ByteRange::first(2))];
        let mut values = store.read().get_partial_values(&range).expect("read");
        values.remove(0).expect("there").stat.version
    };
    std::fs::write(dir.path().join("k"), b"theirs").expect("written");
    let refused = write.set(&key("k"), &new(), Condition::Unchanged(part())).expect_err("set");
    assert_eq!(refused.kind(), Kind::Stale);
    write.set(&key("k"), &new(), Condition::Unchanged(part())).expect("set");
}

#[test]
fn a_write_in_a_directory_that_another_program_has_moved_does_not_make_it_again() {
    let (dir, store) = store();
    let home = Prefix::parse("d/a/").expect("a prefix");
    std::fs::create_dir_all(dir.path().join("d/a")).expect("made");
    let within = store.in_directory(&home);
    let set = |name: &str| {
        within.write().expect("writable").set(&key(name), &pieces(), Condition::Always)
    };
    set("d/a/c/0/1").expect("below it, directories are made");
    std::fs::rename(dir.path().join("d/a"), dir.path().join("moved")).expect("moved");
    assert_eq!(set("d/a/c/0/2").expect_err("it is gone").errno(), libc::ESTALE);
    let turn = within.write().expect("writable").take_turn(&key("d/a/c/0/1"));
    assert_eq!(turn.expect_err("it is gone").errno(), libc::ESTALE);
    let write = store.write().expect("writable");
    let version = write.set(&key("g/a"), &pieces(), Condition::Always).expect("set").version;
    std::fs::rename(dir.path().join("g"), dir.path().join("d/g")).expect("moved");
    let unchanged = write.set(&key("g/a"), &pieces(), Condition::Unchanged(version));
    assert_eq!(unchanged.expect_err("it is gone").kind(), Kind::Stale);
    assert_eq!(std::fs::read_dir(dir.path().join("d")).expect("there").count(), 1);
    assert!(!dir.path().join("g").exists());
    store.write().expect("writable").set(&key("d/a/b"), &pieces(), Condition::Always).expect("set");
}

fn pieces() -> [ValuePiece; 1] {
    [Bytes::from_static(b"bytes").into()]
}
