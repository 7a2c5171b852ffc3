//! References into stores in memory.

use std::sync::Arc;

use super::places::Spelling;
use super::table::{Added, Builder};
use super::*;
use crate::Condition;
use crate::counting::CountingStore;

fn key(text: &str) -> Key {
    Key::parse(text).expect("a valid key")
}

/// A store with the values of `sources`, and one of references into it.
fn references(add: impl FnOnce(&mut Builder)) -> (Store, Store, Arc<CountingStore>) {
    let (source, counting) = CountingStore::new();
    for (name, bytes) in [("a.nc", &b"0123456789"[..]), ("b.nc", b"abcdef")] {
        let pieces = [Bytes::from_static(bytes).into()];
        source.write().unwrap().set(&key(name), &pieces, Condition::Always).expect("set");
    }
    counting.take();
    let mut builder = Builder::new(1 << 20);
    add(&mut builder);
    let (own, _) = CountingStore::new();
    let mut places = SourceStores::new(own, Spelling::Plain);
    places.allow(["s3://bucket"], source.clone());
    let table = builder.build(SystemTime::UNIX_EPOCH).expect("built");
    (RefStore::open(table, places, Prefix::root()), source, counting)
}

fn part(name: &'static str, offset: u64, len: u64) -> Added<'static> {
    Added::Part { location: name, offset, len }
}

#[test]
fn many_keys_are_read_with_one_call_of_the_store_below() {
    let (store, _, counting) = references(|builder| {
        builder.add("v/0", part("s3://bucket/a.nc", 2, 3)).unwrap();
        builder.add("v/1", part("s3://bucket/b.nc", 0, 4)).unwrap();
        builder.add("v/2", Added::Inline(Bytes::from_static(b"inline"))).unwrap();
        builder.add("v/3", Added::Whole { location: "s3://bucket/a.nc" }).unwrap();
    });
    let ranges = [
        (key("v/3"), ByteRange::Suffix(2)),
        (key("v/0"), ByteRange::first(100)),
        (key("v/none"), ByteRange::first(100)),
        (key("v/2"), ByteRange::Span { offset: 2, len: 2 }),
        (key("v/1"), ByteRange::Suffix(3)),
        (key("v/0"), ByteRange::Span { offset: 2, len: 9 }),
    ];
    let values = store.read().get_partial_values(&ranges).expect("read");
    let found: Vec<Option<&[u8]>> =
        values.iter().map(|value| value.as_ref().map(|value| &value.bytes[..])).collect();
    let want: [Option<&[u8]>; 6] =
        [Some(b"89"), Some(b"234"), None, Some(b"li"), Some(b"bcd"), Some(b"4")];
    assert_eq!(found, want);
    let lens: Vec<u64> = values.iter().flatten().map(|value| value.stat.len).collect();
    assert_eq!(lens, [10, 3, 6, 4, 3]);
    let calls = counting.take();
    assert_eq!((calls.gets, calls.ranges, calls.stats), (1, 4, 0));
}

#[test]
fn the_length_and_version_of_a_part_take_no_call() {
    let (store, _, counting) = references(|builder| {
        builder.add("v/0", part("s3://bucket/a.nc", 2, 3)).unwrap();
        builder.add("v/1", part("s3://bucket/a.nc", 5, 3)).unwrap();
    });
    let stats = store.read().stat(&[key("v/0"), key("v/1"), key("w")]).expect("stats");
    let [Some(first), Some(second), None] = stats.as_slice() else { panic!("{stats:?}") };
    assert_eq!((first.len, second.len), (3, 3));
    assert!(!first.version.is_same(second.version));
    let value = store.get(&key("v/0"), 10).expect("read").expect("there");
    assert!(value.stat.version.holds(first.version));
    assert_eq!(counting.take().stats, 0);
}

#[test]
fn a_part_that_is_not_there_is_an_error_and_never_a_missing_chunk() {
    let (store, _, _) = references(|builder| {
        builder.add("long", part("s3://bucket/a.nc", 8, 3)).unwrap();
        builder.add("far", part("s3://bucket/a.nc", u64::MAX, 3)).unwrap();
        builder.add("gone", part("s3://bucket/c.nc", 0, 3)).unwrap();
        builder.add("whole", Added::Whole { location: "s3://bucket/c.nc" }).unwrap();
        builder.add("denied", part("/etc/passwd", 0, 3)).unwrap();
    });
    let said = |name: &str| {
        let error = store.get(&key(name), 100).expect_err("an error");
        (error.errno(), error.to_string())
    };
    let (errno, long) = said("long");
    assert_eq!(errno, libc::EIO);
    assert_eq!(
        long,
        "long: s3://bucket/a.nc has 10 bytes; the reference is to 3 bytes from byte 8"
    );
    assert_eq!(said("far").0, libc::EIO);
    assert_eq!(
        said("gone").1,
        "gone: the reference leads to s3://bucket/c.nc, which does not exist"
    );
    assert_eq!(said("whole").0, libc::EIO);
    assert_eq!(said("denied").0, libc::EACCES);
    // Its length is known, so that listings work.
    assert_eq!(store.stat(&key("denied")).expect("a stat").map(|stat| stat.len), Some(3));
}

#[test]
fn all_keys_are_listed() {
    let (store, _, _) = references(|builder| {
        for name in [".zgroup", "a/.zarray", "a/0.0", "a/0.1", "b/c/.zarray", "b/c/0"] {
            builder.add(name, Added::Inline(Bytes::new())).unwrap();
        }
    });
    let list = store.list().expect("listable");
    let mut keys: Vec<String> =
        list.list().expect("listed").map(|key| key.expect("a key").to_string()).collect();
    keys.sort();
    assert_eq!(keys, [".zgroup", "a/.zarray", "a/0.0", "a/0.1", "b/c/.zarray", "b/c/0"]);
    let below = Prefix::parse("b").expect("valid");
    assert_eq!(list.list_prefix(&below).expect("listed").count(), 2);
}

#[test]
fn a_node_is_a_store_of_its_own() {
    let mut builder = Builder::new(1 << 20);
    for name in [".zgroup", "a/b/.zarray", "a/b/0.0", "a/bc"] {
        builder.add(name, Added::Inline(Bytes::from_static(b"x"))).unwrap();
    }
    let (own, _) = CountingStore::new();
    let table = builder.build(SystemTime::UNIX_EPOCH).expect("built");
    let base = Prefix::parse("a/b").expect("valid");
    let store = RefStore::open(table, SourceStores::new(own, Spelling::Plain), base);
    assert_eq!(store.stat(&key("0.0")).expect("a stat").map(|stat| stat.len), Some(1));
    assert!(store.get(&key(".zgroup"), 10).expect("read").is_none());
    let mut keys: Vec<String> =
        store.list().unwrap().list().unwrap().map(|key| key.unwrap().to_string()).collect();
    keys.sort();
    assert_eq!(keys, [".zarray", "0.0"]);
}
