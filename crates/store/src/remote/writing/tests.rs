use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use super::*;
use crate::memory_server::{MadeRequest, MemoryServer};
use crate::remote::RemoteLimits;
use crate::{ListableStore, Store};

const LEASE: Duration = Duration::from_millis(300);
const LIMITS: RemoteLimits = RemoteLimits { lease: LEASE, ..RemoteLimits::DEFAULT };

fn key(text: &str) -> Key {
    Key::parse(text).expect("valid")
}

fn set(store: &Store, name: &str, text: &str, condition: Condition) -> Result<Stat> {
    let pieces = [Bytes::copy_from_slice(text.as_bytes()).into()];
    store.write()?.set(&key(name), &pieces, condition)
}

fn get(store: &Store, name: &str) -> Option<String> {
    let value = store.get(&key(name), 1 << 20).expect("get");
    value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned())
}

/// Returns a server, and the stores of two machines on it.
fn two_stores() -> (Arc<MemoryServer>, Store, Store) {
    let (_, server) = MemoryServer::new(LIMITS.ttl);
    let (one, other) = (server.store(LIMITS), server.store(LIMITS));
    (server, one, other)
}

#[test]
fn a_value_without_a_condition_is_one_request() {
    let (server, store, _) = two_stores();
    set(&store, "c/0", "x", Condition::Always).expect("set");
    assert_eq!(get(&store, "c/0").as_deref(), Some("x"));
    assert_eq!(server.take().first(), Some(&MadeRequest::Put("c/0".into())));
    let names: Vec<_> =
        store.list().expect("lists").list_dir(&Prefix::root()).expect("listed").collect();
    assert_eq!(names, [Ok(StoreEntry::Prefix("c".into()))]);
}

#[test]
fn what_another_machine_stored_is_found_by_the_condition() {
    let (_, one, other) = two_stores();
    let first = set(&one, "k", "1", Condition::Absent).expect("there was none");
    assert_eq!(get(&other, "k").as_deref(), Some("1"));
    set(&other, "k", "2", Condition::Unchanged(first.version)).expect("it is unchanged");
    let known = one.stat(&key("k")).expect("stat").expect("there");
    assert!(known.version.is_same(first.version), "names hold for a while");
    let stale = set(&one, "k", "3", Condition::Unchanged(first.version));
    assert_eq!(stale.map_err(|error| error.kind()), Err(Kind::Stale));
    assert_eq!(get(&one, "k").as_deref(), Some("2"), "after a conflict it is read again");
}

#[test]
fn parts_of_a_value_that_several_machines_replace_are_all_kept() {
    let (server, store, _) = two_stores();
    set(&store, "k", &"-".repeat(40), Condition::Always).expect("set");
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for machine in 0..4 {
            let (server, barrier) = (&server, &barrier);
            scope.spawn(move || {
                let store = server.store(LIMITS);
                barrier.wait();
                for at in (machine..40).step_by(4) {
                    let part = (key("k"), at, Bytes::from_static(b"x"));
                    store.write().expect("writable").set_partial_values(&[part]).expect("set");
                }
            });
        }
    });
    assert_eq!(get(&server.store(LIMITS), "k"), Some("x".repeat(40)));
}

#[test]
fn a_server_that_ignores_conditions_is_found_out() {
    let (_, server) = MemoryServer::new(LIMITS.ttl);
    server.ignores_conditions.store(true, Ordering::Relaxed);
    let store = server.store(LIMITS);
    set(&store, "k", "1", Condition::Always).expect("there is no condition");
    let refused = set(&store, "k", "2", Condition::Absent).expect_err("it would be ignored");
    assert_eq!(refused.kind(), Kind::Unsupported);
    assert!(refused.to_string().contains("--single-writer"), "{refused}");
    assert!(store.write().and_then(WritableStore::aside).is_err());
    assert_eq!(server.store.list().expect("listed").count(), 1, "the trial left something");

    let store = server.store(RemoteLimits { is_single_writer: true, ..LIMITS });
    let exists = set(&store, "k", "2", Condition::Absent).expect_err("it is there");
    assert_eq!(exists.kind(), Kind::Exists);
    let stat = set(&store, "l", "3", Condition::Absent).expect("it is not there");
    set(&store, "l", "4", Condition::Unchanged(stat.version)).expect("it is unchanged");
    let stale = set(&store, "l", "5", Condition::Unchanged(stat.version));
    assert_eq!(stale.map_err(|error| error.kind()), Err(Kind::Stale));
}

#[test]
fn conditions_are_tried_once() {
    let (server, store, _) = two_stores();
    for name in ["a", "b"] {
        set(&store, name, "1", Condition::Absent).expect("set");
    }
    let probes =
        |made: &MadeRequest| matches!(made, MadeRequest::Put(key) if key.contains("probe"));
    assert_eq!(server.take().iter().filter(|made| probes(made)).count(), 4);
}

#[test]
fn a_long_value_is_not_written_anew_for_a_part_of_it() {
    let (_, server) = MemoryServer::new(LIMITS.ttl);
    let store = server.store(RemoteLimits { rewrite: 10, ..LIMITS });
    let stat = set(&store, "k", "0123456789ab", Condition::Always).expect("new values may be long");
    let pieces = [ValuePiece::Kept { offset: 0, len: 12 }];
    let refused = store
        .write()
        .and_then(|write| write.set(&key("k"), &pieces, Condition::Unchanged(stat.version)));
    assert_eq!(refused.map_err(|error| error.kind()), Err(Kind::TooLarge));
}

#[test]
fn a_place_is_left_alone_while_its_owner_lives() {
    let (_, one, other) = two_stores();
    let aside = one.write().and_then(WritableStore::aside).expect("a place");
    for _ in 0..3 {
        assert!(other.write().and_then(WritableStore::abandoned).expect("looked").is_empty());
    }
    set(&one, "k", "1", Condition::Always).expect("it is still the owner");
    drop(aside);
    assert_eq!(other.write().and_then(WritableStore::abandoned).expect("looked").len(), 1);
}

#[test]
fn of_many_who_find_a_place_one_takes_it_over() {
    let (server, store, _) = two_stores();
    drop(store.write().and_then(WritableStore::aside).expect("a place"));
    let taken: Vec<usize> = thread::scope(|scope| {
        let find = || {
            let finder = server.store(LIMITS);
            let found = finder.write().and_then(WritableStore::abandoned).expect("looked");
            // It is given up only after all have looked.
            thread::sleep(LEASE * 3);
            found.len()
        };
        let finders: Vec<_> = (0..4).map(|_| scope.spawn(find)).collect();
        finders.into_iter().map(|finder| finder.join().expect("found")).collect()
    });
    assert_eq!(taken.iter().sum::<usize>(), 1, "{taken:?}");
}

#[test]
fn an_owner_that_was_silent_stops_when_its_place_was_taken_over() {
    let (server, one, other) = two_stores();
    let aside = one.write().and_then(WritableStore::aside).expect("a place");
    // Its beats are late, as if the machine had been asleep.
    let beat = aside.prefix().key("beat").expect("a key");
    let stat = server.store.stat(std::slice::from_ref(&beat)).expect("stat").pop().flatten();
    let version = stat.expect("there").version;
    let taken = [Bytes::from_static(b"1 another").into()];
    server.store.set(&beat, &taken, Condition::Unchanged(version)).expect("taken over");
    thread::sleep(LEASE);
    let lost = set(&one, "k", "1", Condition::Always).expect_err("another one works there");
    assert_eq!(lost.errno(), libc::EIO);
    set(&other, "k", "2", Condition::Always).expect("others are not concerned");
    drop(aside);
    set(&one, "k", "3", Condition::Always).expect("the change has ended");
}

#[test]
fn nothing_is_requested_while_no_change_of_several_values_is_under_way() {
    let (server, store, _) = two_stores();
    let aside = store.write().and_then(WritableStore::aside).expect("a place");
    store.write().and_then(|write| write.erase_prefix(aside.prefix())).expect("erased");
    drop(aside);
    server.take();
    thread::sleep(LEASE * 2);
    assert_eq!(server.take(), []);
    assert_eq!(server.store.list().expect("listed").count(), 0);
}

#[test]
fn what_another_machine_stored_is_found_before_a_directory_is_removed() {
    let (_, one, other) = two_stores();
    set(&one, "zarr.json", "{}", Condition::Always).expect("set");
    let list = one.list().expect("lists");
    assert_eq!(list.list_dir(&Prefix::root()).expect("listed").count(), 1);
    set(&other, "a/b/zarr.json", "{}", Condition::Always).expect("set");
    let directory = Prefix::parse("a").expect("valid");
    assert_eq!(list.list_prefix(&directory).expect("listed").count(), 0, "as was listed");
    list.forget_below(&directory);
    assert_eq!(list.list_prefix(&directory).expect("listed").count(), 1);
}

#[test]
fn a_value_that_is_believed_absent_is_erased() {
    let (server, one, other) = two_stores();
    let list = one.list().expect("lists");
    assert_eq!(list.list_dir(&Prefix::root()).expect("listed").count(), 0);
    set(&other, "c/0", "x", Condition::Always).expect("set");
    one.write().and_then(|write| write.erase_values(&[key("c/0")])).expect("erased");
    assert_eq!(server.store.list().expect("listed").count(), 0);
}

#[test]
fn several_values_are_stored_at_the_same_time_and_the_last_of_a_key_counts() {
    let (server, store, _) = two_stores();
    let value = |name: &str, text: &'static str| {
        (key(name), vec![Bytes::from_static(text.as_bytes()).into()], Condition::Always)
    };
    *server.delay.lock() = Duration::from_millis(50);
    server.take();
    let many: Vec<_> = (0..20).map(|at| value(&format!("c/{at}"), "x")).collect();
    let stored = store.write().expect("writable").set_all(many);
    assert!(stored.iter().all(Result::is_ok) && stored.len() == 20, "{stored:?}");
    assert!(server.most_under_way() >= 10, "{}", server.most_under_way());
    let same = vec![value("k", "1"), value("l", "2"), value("k", "3")];
    assert!(store.write().expect("writable").set_all(same).iter().all(Result::is_ok));
    assert_eq!(get(&store, "k").as_deref(), Some("3"));
}
