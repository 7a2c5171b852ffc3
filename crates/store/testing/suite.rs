//! Tests that every store must pass.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::{ByteRange, Condition, Key, Prefix, Store, StoreEntry, ValuePiece};
use zarrfs_base::error::Kind;

/// Runs the suite; `new` returns an empty store each time.
pub(crate) fn run(new: impl Fn() -> Store) {
    a_value_is_what_was_set(&new());
    ranges_are_clipped_to_the_value(&new());
    a_condition_that_does_not_hold_changes_nothing(&new());
    a_part_is_replaced_in_place_and_never_past_the_end(&new());
    erasing_leaves_no_trace_in_listings(&new());
    listings_are_exact(&new());
    each_set_makes_a_new_version(&new());
    kept_pieces_come_from_the_value_that_is_replaced(&new());
    parts_replace_bytes_of_a_value_in_order(&new());
    a_prefix_is_moved_with_all_below_it(&new());
    a_value_is_moved_onto_another(&new());
    what_is_aside_is_nobody_elses_until_it_is_abandoned(&new());
}

fn key(text: &str) -> Key {
    Key::parse(text).expect("a valid key")
}

fn set(store: &Store, text: &str, bytes: &'static [u8]) {
    let pieces = [Bytes::from_static(bytes).into()];
    store.write().expect("writable").set(&key(text), &pieces, Condition::Always).expect("set");
}

fn get(store: &Store, text: &str) -> Option<Vec<u8>> {
    store.get(&key(text), 1 << 20).expect("get").map(|value| value.bytes.to_vec())
}

fn entries(store: &Store, prefix: &str) -> BTreeSet<StoreEntry> {
    let prefix = Prefix::parse(prefix).expect("a valid prefix");
    let list = store.list().expect("listable").list_dir(&prefix).expect("listed");
    list.map(|entry| entry.expect("an entry")).collect()
}

fn keys(store: &Store, prefix: &str) -> Vec<String> {
    let prefix = Prefix::parse(prefix).expect("a valid prefix");
    let list = store.list().expect("listable").list_prefix(&prefix).expect("listed");
    let mut keys: Vec<String> = list.map(|key| key.expect("a key").to_string()).collect();
    keys.sort();
    keys
}

fn a_value_is_what_was_set(store: &Store) {
    assert_eq!(get(store, "a/b"), None);
    let pieces = [b"one", &b""[..], b"two"].map(|bytes| ValuePiece::New(Bytes::from_static(bytes)));
    let stat = store
        .write()
        .and_then(|write| write.set(&key("a/b"), &pieces, Condition::Always))
        .expect("set");
    assert_eq!(get(store, "a/b").as_deref(), Some(&b"onetwo"[..]));
    assert_eq!(store.stat(&key("a/b")).expect("stat"), Some(stat));
    assert_eq!(get(store, "a"), None, "a prefix is not a value");
    assert_eq!(get(store, "a/b/c"), None, "nothing lies below a value");
    set(store, "a/b", b"");
    assert_eq!(get(store, "a/b").as_deref(), Some(&b""[..]), "an empty value is a value");
    let long = vec![7_u8; 3 << 20];
    let pieces: Vec<ValuePiece> =
        long.chunks(1000).map(|bytes| Bytes::copy_from_slice(bytes).into()).collect();
    let write = store.write().expect("writable");
    write.set(&key("long"), &pieces, Condition::Always).expect("set");
    let value = store.get(&key("long"), 3 << 20).expect("get").expect("there");
    assert!(value.bytes == long, "a value of many pieces came back changed");
    assert!(store.get(&key("long"), (3 << 20) - 1).is_err(), "a limit that did not hold");
}

fn ranges_are_clipped_to_the_value(store: &Store) {
    set(store, "k", b"0123456789");
    let span = |offset, len| (key("k"), ByteRange::Span { offset, len });
    let ranges = [
        span(2, 3),
        span(8, 100),
        span(50, 1),
        (key("k"), ByteRange::Suffix(4)),
        (key("k"), ByteRange::Suffix(400)),
        (key("none"), ByteRange::Suffix(4)),
        span(0, u64::MAX),
    ];
    let values = store.read().get_partial_values(&ranges).expect("read");
    let got: Vec<Option<&[u8]>> =
        values.iter().map(|value| value.as_ref().map(|value| &value.bytes[..])).collect();
    let all = &b"0123456789"[..];
    let want =
        [Some(&b"234"[..]), Some(b"89"), Some(b""), Some(b"6789"), Some(all), None, Some(all)];
    assert_eq!(got, want);
    assert!(values.iter().flatten().all(|value| value.stat.len == 10));
}

fn a_condition_that_does_not_hold_changes_nothing(store: &Store) {
    let write = store.write().expect("writable");
    let value = |text: &'static str| [ValuePiece::New(Bytes::from_static(text.as_bytes()))];
    let first = write.set(&key("k"), &value("1"), Condition::Absent).expect("there was none");
    let exists = write.set(&key("k"), &value("2"), Condition::Absent).expect_err("there is one");
    assert_eq!(exists.kind(), Kind::Exists);
    let known = Condition::Unchanged(first.version);
    write.set(&key("k"), &value("3"), known).expect("it is unchanged");
    let stale = write.set(&key("k"), &value("4"), known).expect_err("it has changed");
    assert_eq!(stale.kind(), Kind::Stale);
    assert_eq!(get(store, "k").as_deref(), Some(&b"3"[..]));
    let gone = write.set(&key("other"), &value("5"), known).expect_err("there is none");
    assert_eq!(gone.kind(), Kind::Stale);
    assert_eq!(keys(store, ""), ["k"], "a refused set left something behind");
    let refused = write.erase_unchanged(&key("k"), first.version).expect_err("it has changed");
    let version = store.stat(&key("k")).expect("stat").expect("there").version;
    if write.promises().erases_unchanged {
        assert_eq!(refused.kind(), Kind::Stale);
        write.erase_unchanged(&key("k"), version).expect("erased");
        assert_eq!(keys(store, ""), Vec::<String>::new());
    } else {
        assert_eq!(refused.kind(), Kind::Unsupported);
        assert_eq!(get(store, "k").as_deref(), Some(&b"3"[..]));
    }
}

fn a_part_is_replaced_in_place_and_never_past_the_end(store: &Store) {
    set(store, "k", b"0123456789");
    let write = store.write().expect("writable");
    let part = |start, bytes: &'static [u8]| [(key("k"), start, Bytes::from_static(bytes))];
    write.set_partial_values(&part(3, b"abc")).expect("within");
    assert_eq!(get(store, "k").as_deref(), Some(&b"012abc6789"[..]));
    assert!(write.set_partial_values(&part(8, b"xyz")).is_err());
    assert!(write.set_partial_values(&part(u64::MAX, b"xyz")).is_err());
    assert_eq!(get(store, "k").as_deref(), Some(&b"012abc6789"[..]));
}

fn erasing_leaves_no_trace_in_listings(store: &Store) {
    let write = store.write().expect("writable");
    for text in ["a/c/0/0", "a/c/0/1", "a/c/1/0", "a/doc", "b"] {
        set(store, text, b"x");
    }
    write.erase_values(&[key("a/c/1/0"), key("nothing"), key("a/c")]).expect("erased");
    assert_eq!(entries(store, "a/c"), BTreeSet::from([StoreEntry::Prefix("0".into())]));
    let prefix = Prefix::parse("a/c").expect("valid");
    write.erase_prefix(&prefix).expect("erased");
    write.erase_prefix(&prefix).expect("erasing nothing is no error");
    assert_eq!(keys(store, ""), ["a/doc", "b"]);
    assert_eq!(entries(store, "a"), BTreeSet::from([StoreEntry::Key("doc".into())]));
    write.erase_prefix(&Prefix::root()).expect("erased");
    assert_eq!(keys(store, ""), Vec::<String>::new());
}

fn listings_are_exact(store: &Store) {
    for text in ["zarr.json", "a/zarr.json", "a/c/0", "a/c/1", "ab/c"] {
        set(store, text, b"x");
    }
    let names = |prefix: &str| -> Vec<String> {
        entries(store, prefix).iter().map(|entry| entry.name().to_owned()).collect()
    };
    assert_eq!(names(""), ["zarr.json", "a", "ab"]);
    assert_eq!(names("a/c"), ["0", "1"]);
    assert_eq!(names("nowhere"), Vec::<String>::new());
    assert_eq!(names("a/zarr.json"), Vec::<String>::new());
    assert_eq!(keys(store, "a"), ["a/c/0", "a/c/1", "a/zarr.json"], "ab/c does not begin with a/");
}

fn each_set_makes_a_new_version(store: &Store) {
    let write = store.write().expect("writable");
    let mut versions = BTreeSet::new();
    for _ in 0..100 {
        let stat = write.set(&key("k"), &[Bytes::from_static(b"x").into()], Condition::Always);
        versions.insert(stat.expect("set").version.state);
    }
    assert_eq!(versions.len(), 100, "two states of a value look the same");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    write.set_modified(&key("k"), time).expect("set");
    let modified = store.stat(&key("k")).expect("stat").expect("there").modified;
    assert_eq!(modified == time, write.promises().times);
    write.sync(&[key("k"), key("none")]).expect("synced");
    assert!(write.set_modified(&key("none"), time).is_err());
}

fn kept_pieces_come_from_the_value_that_is_replaced(store: &Store) {
    let write = store.write().expect("writable");
    let new = |text: &'static str| ValuePiece::New(Bytes::from_static(text.as_bytes()));
    let stat = write.set(&key("k"), &[new("0123456789")], Condition::Always).expect("set");
    let kept = |offset, len| ValuePiece::Kept { offset, len };
    let pieces = [new("a"), kept(7, 3), new("b"), kept(0, 2), kept(2, 0)];
    let stat = write.set(&key("k"), &pieces, Condition::Unchanged(stat.version)).expect("set");
    assert_eq!(get(store, "k").as_deref(), Some(&b"a789b01"[..]));
    let past = [kept(5, 3)];
    assert!(write.set(&key("k"), &past, Condition::Unchanged(stat.version)).is_err());
    assert_eq!(get(store, "k").as_deref(), Some(&b"a789b01"[..]));
    assert_eq!(keys(store, ""), ["k"], "a refused set left something behind");
}

fn parts_replace_bytes_of_a_value_in_order(store: &Store) {
    set(store, "k", b"0123456789");
    let write = store.write().expect("writable");
    let part = |start, bytes: &'static [u8]| (key("k"), start, Bytes::from_static(bytes));
    let parts = [part(2, b"abcd"), part(4, b"XY"), part(0, b"-"), part(10, b"")];
    write.set_partial_values(&parts).expect("within");
    assert_eq!(get(store, "k").as_deref(), Some(&b"-1abXY6789"[..]));
    let error = write.set_partial_values(&[(key("none"), 0, Bytes::new())]);
    assert_eq!(error.expect_err("there is none").kind(), Kind::NotFound);
}

fn a_prefix_is_moved_with_all_below_it(store: &Store) {
    let prefix = |text| Prefix::parse(text).expect("a valid prefix");
    let write = store.write().expect("writable");
    for (text, bytes) in [("a/b/c", &b"1"[..]), ("a/b/d/e", b"2"), ("ab", b"3"), ("x/d/e", b"old")]
    {
        set(store, text, bytes);
    }
    write.move_prefix(&prefix("a/b"), &prefix("y/z")).expect("moved");
    assert_eq!(keys(store, ""), ["ab", "x/d/e", "y/z/c", "y/z/d/e"]);
    let taken = write.move_to_free(&prefix("y/z"), &prefix("x")).expect_err("not free");
    assert_eq!(taken.kind(), Kind::NotEmpty);
    let taken = write.erase_empty(&prefix("x")).expect_err("not empty");
    assert_eq!(taken.kind(), Kind::NotEmpty);
    write.erase_empty(&prefix("none")).expect("nothing to remove");
    assert_eq!(keys(store, ""), ["ab", "x/d/e", "y/z/c", "y/z/d/e"]);
    write.move_to_free(&prefix("y/z"), &prefix("w")).expect("moved to a free name");
    assert_eq!(keys(store, ""), ["ab", "w/c", "w/d/e", "x/d/e"]);
    write.move_to_free(&prefix("w"), &prefix("y/z")).expect("moved back");
    let none = write.move_to_free(&prefix("none"), &prefix("free")).expect_err("nothing to move");
    assert_eq!(none.kind(), Kind::NotFound);
    write.move_prefix(&prefix("y/z"), &prefix("x")).expect("moved onto what is there");
    assert_eq!(keys(store, ""), ["ab", "x/c", "x/d/e"]);
    assert_eq!(get(store, "x/d/e").as_deref(), Some(&b"2"[..]));
    write.move_prefix(&prefix("x"), &Prefix::root()).expect("moved to the root");
    assert_eq!(keys(store, ""), ["ab", "c", "d/e"]);
    write.move_prefix(&prefix("d"), &prefix("x/d")).expect("moved back");
    set(store, "x/c", b"1");
    write.erase_values(&[key("c")]).expect("erased");
    write.move_prefix(&prefix("none"), &prefix("x")).expect("nothing to move");
    assert_eq!(keys(store, ""), ["ab", "x/c", "x/d/e"]);
}

fn a_value_is_moved_onto_another(store: &Store) {
    set(store, "a/b/c", b"1");
    set(store, "d/e", b"2");
    let write = store.write().expect("writable");
    write.move_value(&key("a/b/c"), &key("d/e")).expect("moved");
    assert_eq!(keys(store, ""), ["d/e"]);
    assert_eq!(get(store, "d/e").as_deref(), Some(&b"1"[..]));
    write.move_value(&key("d/e"), &key("x/y/z")).expect("moved");
    write.move_value(&key("none/at/all"), &key("new/z")).expect("nothing to move");
    assert_eq!(keys(store, ""), ["x/y/z"]);
    assert_eq!(entries(store, ""), BTreeSet::from([StoreEntry::Prefix("x".into())]));
}

fn what_is_aside_is_nobody_elses_until_it_is_abandoned(store: &Store) {
    let write = store.write().expect("writable");
    let (one, other) = (write.aside().expect("a place"), write.aside().expect("a place"));
    assert_ne!(one.prefix(), other.prefix());
    for aside in [&one, &other] {
        write.declare(aside, Bytes::from_static(b"a change")).expect("stored");
    }
    write.release_idle(Duration::ZERO).expect("it has not come to rest");
    assert!(write.abandoned().expect("looked").is_empty(), "it is somebody's");
    drop(one);
    write.erase_prefix(other.prefix()).expect("erased");
    drop(other);
    write.release_idle(Duration::ZERO).expect("at rest");
    let abandoned = write.abandoned().expect("looked");
    assert_eq!(abandoned.len(), 1, "{abandoned:?}");
    assert!(write.abandoned().expect("looked").is_empty(), "two take care of it");
    let declared = store.get(&abandoned[0].declaration().expect("a key"), 100).expect("read");
    assert_eq!(declared.expect("there").bytes, "a change");
    write.erase_prefix(abandoned[0].prefix()).expect("erased");
    drop(abandoned);
    assert_eq!(keys(store, ""), Vec::<String>::new());
}
