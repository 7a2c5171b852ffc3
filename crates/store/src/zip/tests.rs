use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use libdeflater::{CompressionLvl, Compressor, crc32};
use proptest::prelude::*;

use super::*;
use crate::counting::CountingStore;
use crate::within::Within;
use crate::{Condition, ValuePiece};
use zarrfs_base::error::{Error, Kind};

const KEY: &str = "a.zip";

/// An entry, whose fields may contradict each other.
#[derive(Debug, Clone)]
struct MadeEntry {
    name: Vec<u8>,
    local_name: Vec<u8>,
    flags: u16,
    method: u16,
    local_extra: Vec<u8>,
    data: Vec<u8>,
    crc: u32,
    len: u32,
    stored_len: u32,
    creator: u16,
    /// Where its header is, if not where its turn is.
    offset: Option<u32>,
}

fn stored(name: &str, data: &[u8]) -> MadeEntry {
    MadeEntry {
        name: name.into(),
        local_name: name.into(),
        flags: 0,
        method: 0,
        local_extra: Vec::new(),
        data: data.into(),
        crc: crc32(data),
        len: data.len() as u32,
        stored_len: data.len() as u32,
        creator: 3 << 8,
        offset: None,
    }
}

fn deflated(name: &str, data: &[u8]) -> MadeEntry {
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut encoded = vec![0; compressor.deflate_compress_bound(data.len())];
    let len = compressor.deflate_compress(data, &mut encoded).expect("compressed");
    encoded.truncate(len);
    MadeEntry { method: 8, stored_len: len as u32, data: encoded, ..stored(name, data) }
}

fn zstd(name: &str, data: &[u8]) -> MadeEntry {
    let encoded = zstd::bulk::compress(data, 3).expect("compressed");
    MadeEntry { method: 93, stored_len: encoded.len() as u32, data: encoded, ..stored(name, data) }
}

/// Returns the archive of these entries, with bytes before it and a comment.
fn zip_with(before: &[u8], made: &[MadeEntry], comment: &[u8]) -> Vec<u8> {
    let (mut bytes, mut directory) = (before.to_vec(), Vec::new());
    for entry in made {
        let at = (bytes.len() - before.len()) as u32;
        let mut common = Vec::new();
        for field in [entry.flags, entry.method, 0, 0x21] {
            common.extend(field.to_le_bytes());
        }
        for field in [entry.crc, entry.stored_len, entry.len] {
            common.extend(field.to_le_bytes());
        }
        bytes.extend(b"PK\x03\x04\x14\0");
        bytes.extend(&common);
        bytes.extend((entry.local_name.len() as u16).to_le_bytes());
        bytes.extend((entry.local_extra.len() as u16).to_le_bytes());
        bytes.extend(&entry.local_name);
        bytes.extend(&entry.local_extra);
        bytes.extend(&entry.data);
        directory.extend(b"PK\x01\x02");
        directory.extend(entry.creator.to_le_bytes());
        directory.extend(20_u16.to_le_bytes());
        directory.extend(common);
        directory.extend((entry.name.len() as u16).to_le_bytes());
        directory.extend([0; 12]);
        directory.extend(entry.offset.unwrap_or(at).to_le_bytes());
        directory.extend(&entry.name);
    }
    let start = (bytes.len() - before.len()) as u32;
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend((made.len() as u16).to_le_bytes());
    bytes.extend((made.len() as u16).to_le_bytes());
    bytes.extend((directory.len() as u32).to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend((comment.len() as u16).to_le_bytes());
    bytes.extend(comment);
    bytes
}

fn zip(made: &[MadeEntry]) -> Vec<u8> {
    zip_with(b"", made, b"")
}

fn key(text: &str) -> Key {
    Key::parse(text).expect("a valid key")
}

fn put(store: &Store, bytes: Vec<u8>) {
    let pieces = [ValuePiece::New(Bytes::from(bytes))];
    store.write().expect("writable").set(&key(KEY), &pieces, Condition::Always).expect("set");
}

/// Looks at the archive each time.
const SMALL: ArchiveLimits =
    ArchiveLimits { ttl: Duration::ZERO, value: 1 << 20, directory: 1 << 20, entries: 100_000 };

fn open_in(bytes: Vec<u8>, limits: ArchiveLimits) -> Result<(Store, Store, Arc<CountingStore>)> {
    let (below, counting) = CountingStore::new();
    put(&below, bytes);
    counting.take();
    let zip = ZipStore::open(below.clone(), key(KEY), limits)?;
    Ok((Store::reading(Arc::new(zip)), below, counting))
}

fn open(bytes: Vec<u8>) -> Result<Store> {
    Ok(open_in(bytes, SMALL)?.0)
}

fn refusal(bytes: Vec<u8>) -> Error {
    open(bytes).expect_err("a refusal")
}

fn get(store: &Store, name: &str) -> Option<Vec<u8>> {
    store.get(&key(name), 1 << 30).expect("read").map(|value| value.bytes.to_vec())
}

fn failure(store: &Store, name: &str) -> Error {
    store.get(&key(name), 1 << 30).expect_err("a failure")
}

/// Bytes that repeat nowhere.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn span(name: &str, offset: u64, len: u64) -> (Key, ByteRange) {
    (key(name), ByteRange::Span { offset, len })
}

#[test]
fn entries_of_every_method_are_values() {
    let text = b"abcabcabcabcabcabcabcabc".repeat(50);
    let made = [
        stored("zarr.json", b"{}"),
        deflated("a/c/0", &text),
        zstd("a/c/1", &text),
        stored("a/c/2", &text),
        stored("empty", b""),
        stored("b/", b""),
    ];
    let store = open(zip(&made)).expect("opened");
    assert_eq!(get(&store, "zarr.json").as_deref(), Some(&b"{}"[..]));
    assert_eq!(get(&store, "empty").as_deref(), Some(&b""[..]));
    for name in ["a", "b", "a/c/3", "a/c/0/x"] {
        assert_eq!(get(&store, name), None, "{name}");
    }
    for name in ["a/c/0", "a/c/1", "a/c/2"] {
        assert_eq!(get(&store, name).as_deref(), Some(&text[..]), "{name}");
        let ranges = [span(name, 3, 5), (key(name), ByteRange::Suffix(4)), span(name, 1196, 100)];
        let parts = store.read().get_partial_values(&ranges).expect("read");
        let parts: Vec<_> = parts.into_iter().flatten().map(|part| part.bytes).collect();
        assert_eq!(parts, [&b"abcab"[..], b"cabc"[..].as_ref(), b"cabc"], "{name}");
    }
    let list = store.list().expect("listable");
    let root: Vec<_> =
        list.list_dir(&Prefix::root()).expect("listed").map(Result::unwrap).collect();
    let prefix = |name: &str| StoreEntry::Prefix(name.to_owned());
    let named = |name: &str| StoreEntry::Key(name.to_owned());
    assert_eq!(root, [prefix("a"), prefix("b"), named("empty"), named("zarr.json")]);
    let in_b = list.list_dir(&Prefix::parse("b").expect("valid")).expect("listed");
    assert_eq!(in_b.count(), 0);
    assert!(store.write().is_err());
}

#[test]
fn opening_takes_two_reads_at_most_and_a_value_one() {
    let made: Vec<_> = (0..3).map(|at| stored(&format!("c/{at}"), &noise(300_000))).collect();
    let (store, _, counting) = open_in(zip(&made), ArchiveLimits::DEFAULT).expect("opened");
    assert_eq!(counting.take().gets, 1);
    assert_eq!(get(&store, "c/1"), Some(noise(300_000)));
    let calls = counting.take();
    assert_eq!((calls.gets, calls.ranges, calls.stats), (1, 1, 0));
    // A range far from the header, and the header. Later, it is the range alone.
    for ranges in [2, 1] {
        let far = store.read().get_partial_values(&[span("c/2", 200_000, 9)]).expect("read");
        let far = far.into_iter().next().flatten().expect("there");
        assert_eq!(far.bytes, noise(300_000)[200_000..200_009]);
        let calls = counting.take();
        assert_eq!((calls.gets, calls.ranges), (1, ranges));
        assert!(calls.read_len < 500, "{} bytes", calls.read_len);
    }
    let all = [span("c/0", 0, 300_000), span("c/1", 5, 10), span("c/2", 250_000, 10)];
    assert!(store.read().get_partial_values(&all).is_ok());
    assert_eq!(counting.take().gets, 1);

    let made: Vec<_> = (0..5000).map(|at| stored(&format!("array/c/{at}"), b"x")).collect();
    let (store, _, counting) = open_in(zip(&made), ArchiveLimits::DEFAULT).expect("opened");
    assert_eq!(counting.take().gets, 2);
    assert_eq!(get(&store, "array/c/4999").as_deref(), Some(&b"x"[..]));
    assert_eq!(counting.take().gets, 1);
}

#[test]
fn a_local_header_may_be_longer_than_the_directory_lets_expect() {
    let made = [
        MadeEntry { local_extra: vec![7; 5000], ..stored("a", b"0123456789") },
        stored("b", b"more"),
    ];
    let (store, _, counting) = open_in(zip(&made), ArchiveLimits::DEFAULT).expect("opened");
    counting.take();
    assert_eq!(get(&store, "a").as_deref(), Some(&b"0123456789"[..]));
    assert_eq!(counting.take().gets, 2);
    assert_eq!(get(&store, "a").as_deref(), Some(&b"0123456789"[..]));
    assert_eq!(counting.take().gets, 1);
}

#[test]
fn a_deflated_entry_is_decoded_once_for_reads_of_its_parts() {
    let data = noise(100_000);
    let (store, _, counting) =
        open_in(zip(&[deflated("s", &data)]), ArchiveLimits::DEFAULT).expect("opened");
    counting.take();
    for at in [5_u64, 50_000, 99_000] {
        let part = store.read().get_partial_values(&[span("s", at, 100)]).expect("read");
        let at = at as usize;
        assert_eq!(part[0].as_ref().expect("there").bytes, data[at..at + 100]);
    }
    assert_eq!(counting.take().gets, 1);
}

#[test]
fn values_of_two_archives_never_mix() {
    let made = |what: &[u8]| zip(&[stored("zarr.json", what), deflated("a/0", &what.repeat(9))]);
    let (store, below, counting) = open_in(made(b"old"), SMALL).expect("opened");
    let version = |name: &str| store.stat(&key(name)).expect("stat").expect("there").version;
    let before = version("a/0");
    assert!(version("zarr.json").is_same(before));
    // The third read is that of the value: the first ones look at the version.
    let other = below.clone();
    counting.interrupt_get(2, move || {
        // With the same length, so only the version tells.
        put(&other, zip(&[stored("zarr.json", b"new"), deflated("a/0", &b"new".repeat(9))]));
    });
    let values = store.read().get_partial_values(&[span("zarr.json", 0, 9), span("a/0", 0, 99)]);
    let values: Vec<_> = values.expect("read").into_iter().flatten().collect();
    assert_eq!(values[0].bytes, &b"new"[..]);
    assert_eq!(values[1].bytes, b"new".repeat(9));
    assert!(!version("a/0").is_same(before));
    assert!(values[0].stat.version.is_same(version("a/0")));

    // One that is no archive, and then none.
    put(&below, b"PK\x03\x04 and so on".to_vec());
    assert_eq!(failure(&store, "zarr.json").kind(), Kind::Os(libc::EIO), "of the whole store");
    below.write().expect("writable").erase_values(&[key(KEY)]).expect("erased");
    assert_eq!(failure(&store, "zarr.json").kind(), Kind::Stale);
    assert_eq!(failure(&store, "missing").kind(), Kind::Stale, "a chunk would be the fill value");
    put(&below, made(b"back"));
    assert_eq!(get(&store, "zarr.json").as_deref(), Some(&b"back"[..]));
}

#[test]
fn bytes_before_the_archive_and_any_comment_are_skipped() {
    let made = [stored("a", b"one"), deflated("b", b"two")];
    for comment in [vec![], noise(65_535), b"PK\x05\x06".repeat(5), b"PK\x05\x06 x".to_vec()] {
        for before in [&b""[..], b"#!/bin/sh\n"] {
            let store = open(zip_with(before, &made, &comment)).expect("opened");
            assert_eq!(get(&store, "a").as_deref(), Some(&b"one"[..]));
            assert_eq!(get(&store, "b").as_deref(), Some(&b"two"[..]));
        }
    }
}

#[test]
fn of_entries_with_one_name_the_last_counts() {
    let store =
        open(zip(&[stored("a", b"1"), stored("b", b"2"), stored("a", b"3")])).expect("opened");
    assert_eq!(get(&store, "a").as_deref(), Some(&b"3"[..]));
    let list = store.list().expect("listable");
    assert_eq!(list.list().expect("listed").count(), 2);
}

#[test]
fn a_name_is_listed_once_if_it_is_a_file_and_a_directory() {
    let names = ["a", "a-b", "a/x", "b", "b.c", "c", "c!/y", "c/", "zarr.json"];
    let made: Vec<MadeEntry> = names.iter().map(|name| stored(name, b"1")).collect();
    let store = open(zip(&made)).expect("opened");
    let list = store.list().expect("listable");
    let entries = list.list_dir(&Prefix::root()).expect("listed");
    let found: Vec<String> =
        entries.map(|entry| entry.expect("an entry").name().to_owned()).collect();
    assert_eq!(found, ["a-b", "a", "b", "b.c", "c!", "c", "zarr.json"]);
    let keys: Vec<Key> = list.list().expect("listed").collect::<Result<_>>().expect("keys");
    assert_eq!(keys, ["a-b", "a/x", "b", "b.c", "c!/y", "zarr.json"].map(key));
}

#[test]
fn an_entry_whose_name_became_that_of_another_is_an_omission() {
    let misnamed =
        |local: &str, name: &str| MadeEntry { local_name: local.into(), ..stored(name, b"data") };
    let many = (0..50).map(|at| stored(&format!("a/{at}"), b"x"));
    let made: Vec<_> = many
        .chain([misnamed("x/c/1", "x/c/3"), stored("x/c/2", b"2"), stored("x/c/3", b"3")])
        .chain([stored("zarr.json", b"old"), stored("zarr.json", b"new")])
        .collect();
    let (store, _, counting) = open_in(zip(&made), ArchiveLimits::DEFAULT).expect("opened");
    let calls = counting.take();
    assert_eq!((calls.gets, calls.ranges), (2, 3), "only entries of one name are looked at");
    let all = store.omissions().around([]).omissions;
    let shown: Vec<_> = all.iter().map(ToString::to_string).collect();
    let sentence = "x/c/1: this entry of the archive is damaged: it has the name \"x/c/3\" in the \
                    directory and \"x/c/1\" in its local header";
    assert_eq!(shown, [sentence]);
    assert_eq!(get(&store, "x/c/3").as_deref(), Some(&b"3"[..]));
}

#[test]
fn an_entry_that_nobody_read_and_whose_name_changed_is_an_omission() {
    let local = |local: &[u8], made: MadeEntry| MadeEntry { local_name: local.to_vec(), ..made };
    let made = [
        stored("zarr.json", b"{}"),
        local(b"x/c/1", stored("x/a/1", b"1")),
        // One wrong bit makes the name one of code page 437.
        MadeEntry { name: b"x/\xe3/2".to_vec(), ..stored("x/c/2", b"2") },
        local(b"x\\d", MadeEntry { name: b"x\\d".to_vec(), creator: 0, ..stored("x/d", b"d") }),
        stored("notes/x", b"x"),
        stored("x/", b""),
        local(b"x/c/", stored("y/c/", b"")),
    ];
    let (store, _, counting) = open_in(zip(&made), ArchiveLimits::DEFAULT).expect("opened");
    assert!(get(&store, "zarr.json").is_some());
    counting.take();
    store.read().note_misnamed(&|name| !name.starts_with("notes")).expect("looked");
    let calls = counting.take();
    assert_eq!(calls.gets, 1, "all at once");
    let all = store.omissions().around([]).omissions;
    let places: Vec<_> = all.iter().map(|omission| omission.place.as_str()).collect();
    assert_eq!(places, ["x/c/1", "x/c/2", "y/c/"], "{all:?}");
}

#[test]
fn a_name_is_compared_without_the_bytes_of_the_entry() {
    let made = [
        stored("zarr.json", b"{}"),
        MadeEntry { local_name: b"x/c/1".to_vec(), ..deflated("x/a/1", &noise(100_000)) },
        MadeEntry { local_name: b"x/c/2".to_vec(), ..stored("x/a/2", b"") },
    ];
    let (store, _, counting) = open_in(zip(&made), ArchiveLimits::DEFAULT).expect("opened");
    let check = |name: &str| store.read().check_name(&key(name));
    counting.take();
    assert_eq!(check("zarr.json").and(check("missing")), Ok(()));
    for name in ["x/a/1", "x/a/2"] {
        let error = check(name).expect_err("another name");
        let sentence = format!("{name}: its local header has another name than the directory");
        assert_eq!(error.to_string(), sentence);
    }
    assert!(counting.take().read_len < 1000);
}

#[test]
fn an_archive_of_a_directory_may_be_opened_within_it() {
    let (below, _) = CountingStore::new();
    put(&below, zip(&[stored("x.zarr/", b""), stored("x.zarr/zarr.json", b"{}")]));
    let zip = ZipStore::open(below, key(KEY), SMALL).expect("opened");
    assert_eq!(zip.only_directory().expect("read").as_deref(), Some("x.zarr"));
    let zip = Store::reading(Arc::new(zip));
    let prefix = Prefix::parse("x.zarr").expect("valid");
    let store = Store::reading(Arc::new(Within::new(zip, prefix)));
    assert_eq!(get(&store, "zarr.json").as_deref(), Some(&b"{}"[..]));
    let keys: Vec<_> = store.list().expect("listable").list().expect("listed").collect();
    assert_eq!(keys, [Ok(key("zarr.json"))]);
}

#[test]
fn hostile_archives_are_refused_with_a_sentence() {
    let good = zip(&[stored("a", b"one"), stored("b", b"two")]);
    let at = |offset| MadeEntry { offset: Some(offset), ..stored("b", b"two") };
    let split = |mut bytes: Vec<u8>| {
        let end = bytes.len() - 22;
        bytes[end + 4] = 1;
        bytes
    };
    let refused = [
        (b"no archive".to_vec(), "no end record"),
        (Vec::new(), "no end record"),
        (good[..good.len() - 1].to_vec(), "directory of the zip archive"),
        (good[..60].to_vec(), "no end record"),
        (zip(&[stored("a", b"one"), at(0)]), "overlap"),
        (zip(&[stored("a", b"one"), at(32)]), "overlap"),
        (zip(&[at(500)]), "past the start of the directory"),
        (
            zip(&[MadeEntry { stored_len: 1 << 30, ..deflated("b", b"2") }]),
            "past the start of the dir",
        ),
        (zip(&[MadeEntry { len: 9, ..stored("b", b"two") }]), "stored in 3 bytes, and has 9"),
        (zip(&[MadeEntry { flags: 1 << 13, ..stored("b", b"two") }]), "directory is encrypted"),
        (split(good.clone()), "split"),
    ];
    for (bytes, sentence) in refused {
        let error = refusal(bytes).to_string();
        assert!(error.contains(sentence), "{error:?} has no {sentence:?}");
    }
    let few = ArchiveLimits { entries: 1, ..SMALL };
    let short = ArchiveLimits { directory: 70_000, ..SMALL };
    let long: Vec<_> = (0..2000).map(|at| stored(&format!("a/{at}"), b"")).collect();
    for (bytes, limits) in [(good, few), (zip(&long), short)] {
        assert_eq!(open_in(bytes, limits).expect_err("a refusal").errno(), libc::EFBIG);
    }
}

#[test]
fn a_hostile_entry_costs_only_itself() {
    let other = "a".repeat(1 << 20);
    let made = [
        stored("good", b"good"),
        MadeEntry { flags: 1, ..stored("encrypted", b"x") },
        MadeEntry { method: 12, ..stored("bzip2", b"x") },
        MadeEntry { crc: 7, ..stored("damaged", b"x") },
        MadeEntry { crc: 7, ..deflated("damaged too", b"x") },
        MadeEntry { local_name: b"x".to_vec(), ..stored("y", b"x") },
        MadeEntry { len: 1 << 20, ..deflated("more", &other.as_bytes()[1..]) },
        MadeEntry { len: 100, ..deflated("less", other.as_bytes()) },
        MadeEntry { len: 1 << 20, ..deflated("ratio", b"x") },
        MadeEntry { len: 1 << 30, ..deflated("long", other.as_bytes()) },
        MadeEntry { len: 50, ..zstd("zstd", other.as_bytes()) },
        stored("../above", b"x"),
        stored("/root", b"x"),
    ];
    let store = open(zip(&made)).expect("opened");
    assert_eq!(get(&store, "good").as_deref(), Some(&b"good"[..]));
    let list = store.list().expect("listable").list().expect("listed");
    assert_eq!(list.count(), made.len() - 2);
    let failures = [
        ("encrypted", Kind::Unsupported, "does not decrypt"),
        ("bzip2", Kind::Unsupported, "method 12 (bzip2)"),
        ("damaged", Kind::Corrupt, "CRC-32"),
        ("damaged too", Kind::Corrupt, "CRC-32"),
        ("y", Kind::Corrupt, "another name"),
        ("more", Kind::Corrupt, "1048575 bytes; the directory of the archive has 1048576"),
        ("less", Kind::Corrupt, "more decoded"),
        ("ratio", Kind::Corrupt, "hold fewer"),
        ("long", Kind::TooLarge, "the limit for such entries is 1048576"),
        ("zstd", Kind::Corrupt, "zstd"),
    ];
    for (name, kind, sentence) in failures {
        let error = failure(&store, name);
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.to_string().contains(sentence), "{error}");
        assert_eq!(error.subject(), Some(name));
    }
}

#[test]
fn what_is_written_is_read() {
    let names = ["zarr.json", "größe/c/0", "größe/c/10"];
    for zip64 in [Zip64::Always, Zip64::WhenNeeded] {
        let mut writer = ZipWriter::new(Vec::new(), zip64);
        for name in names {
            writer.start(name, name.len() as u64, crc32(name.as_bytes())).expect("started");
            writer.write(name.as_bytes()).expect("written");
        }
        let bytes = writer.finish(b"{}").expect("finished");
        let store = open(bytes).expect("opened");
        for name in names {
            assert_eq!(get(&store, name).as_deref(), Some(name.as_bytes()));
        }
        let mut writer = ZipWriter::new(Vec::new(), zip64);
        writer.start("a", 5, 0).expect("started");
        assert!(writer.finish(b"").is_err(), "an entry without its bytes");
    }
}

/// Reads everything; no error of one value matters.
fn read_all(store: &Store) {
    let Some(list) = store.list() else { return };
    for key in list.list().expect("a list of names").filter_map(Result::ok) {
        let stat = store.stat(&key).expect("stat").expect("listed");
        if let Ok(Some(value)) = store.get(&key, 1 << 20) {
            assert_eq!(value.bytes.len() as u64, stat.len);
        }
        for range in [ByteRange::Suffix(5), ByteRange::Span { offset: 3, len: 4 }] {
            let _may_fail = store.read().get_partial_values(&[(key.clone(), range)]);
        }
    }
}

proptest! {
    #[test]
    fn a_damaged_archive_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        zip64 in any::<bool>(),
    ) {
        let mut bytes = if zip64 {
            let mut writer = ZipWriter::new(Vec::new(), Zip64::Always);
            for name in ["a", "b/c", "b/d"] {
                writer.start(name, 2, crc32(b"xy")).expect("started");
                writer.write(b"xy").expect("written");
            }
            writer.finish(b"comment").expect("finished")
        } else {
            let text = b"text ".repeat(30);
            zip(&[stored("a", b"one"), deflated("b/c", &text), zstd("b/d", &text), stored("e/", b"")])
        };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(store) = open(bytes) {
            read_all(&store);
        }
    }

    #[test]
    fn an_archive_lists_and_reads_as_a_store_of_the_same_values(
        values in prop::collection::btree_map(
            prop::collection::vec("[ab/.0]{1,3}", 1..4).prop_map(|parts| parts.join("/")),
            prop::collection::vec(any::<u8>(), 0..40),
            0..12,
        ),
        offset in 0_u64..50,
        len in 0_u64..50,
    ) {
        let mut values: BTreeMap<Key, Vec<u8>> = values
            .into_iter()
            .filter_map(|(name, bytes)| Some((Key::parse(&name).ok()?, bytes)))
            .collect();
        // An archive does not list a file with the name of a directory.
        let above: BTreeSet<String> = values
            .keys()
            .flat_map(|key| key.as_str().match_indices('/').map(|(at, _)| &key.as_str()[..at]))
            .map(str::to_owned)
            .collect();
        values.retain(|key, _| !above.contains(key.as_str()));
        let memory = Store::new(Arc::new(crate::memory::MemoryStore::new()));
        let mut made = Vec::new();
        for (at, (key, bytes)) in values.iter().enumerate() {
            let pieces = [Bytes::from(bytes.clone()).into()];
            memory.write()?.set(key, &pieces, Condition::Always)?;
            made.push(match at % 3 {
                0 => stored(key.as_str(), bytes),
                1 => deflated(key.as_str(), bytes),
                _ => zstd(key.as_str(), bytes),
            });
        }
        made.reverse();
        let store = open(zip(&made))?;
        let mut prefixes = vec![Prefix::root()];
        for key in values.keys() {
            prefixes.extend([key.parent(), Prefix::parse(key.as_str())?]);
        }
        for prefix in prefixes {
            let entries = |store: &Store| -> Result<Vec<StoreEntry>> {
                let mut all: Vec<StoreEntry> =
                    store.list().expect("listable").list_dir(&prefix)?.collect::<Result<_>>()?;
                all.sort();
                Ok(all)
            };
            prop_assert_eq!(entries(&store)?, entries(&memory)?);
            let keys = |store: &Store| -> Result<Vec<Key>> {
                let mut all: Vec<Key> =
                    store.list().expect("listable").list_prefix(&prefix)?.collect::<Result<_>>()?;
                all.sort();
                Ok(all)
            };
            prop_assert_eq!(keys(&store)?, keys(&memory)?);
        }
        for key in values.keys() {
            for range in [ByteRange::Span { offset, len }, ByteRange::Suffix(len)] {
                let bytes = |store: &Store| -> Result<Option<Bytes>> {
                    let read = store.read().get_partial_values(&[(key.clone(), range)])?;
                    Ok(read.into_iter().flatten().next().map(|value| value.bytes))
                };
                prop_assert_eq!(bytes(&store)?, bytes(&memory)?);
            }
        }
    }
}
