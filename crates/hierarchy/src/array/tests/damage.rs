//! Damaged or crafted shards: reading returns an error and never the fill value, and a change
//! neither spreads damage nor drops anything.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::forms::{self, StoredAs, bytes, checked, key, places, prefix, sharding, transformer};
use crate::array::{Array, ArrayOptions, ChunkChange, Coords, FillChunks};
use crate::counting::CountingStore;
use zarrfs_base::error::Kind;
use zarrfs_codec::BytesToBytes;
use zarrfs_codec::bytes_to_bytes::Gzip;
use zarrfs_codec::json::Object;
use zarrfs_codec::shard::ENTRY_LEN;
use zarrfs_store::memory::MemoryStore;
use zarrfs_store::{ByteRange, Condition, Key, Store};

fn memory() -> Store {
    Store::new(Arc::new(MemoryStore::new()))
}

fn at(index: u64) -> Coords {
    Coords::new([index])
}

/// Eight chunks of one `int16`, four to a shard.
fn form(index_codecs: serde_json::Value, location: &str) -> StoredAs {
    let codec = sharding(&[1], json!([bytes("little")]), index_codecs, location);
    StoredAs::new("shards", &[8], &[4], json!([codec]))
}

fn write(array: &Array, chunks: impl IntoIterator<Item = (u64, u8)>) {
    let chunk = |(index, byte): (u64, u8)| (at(index), Some(vec![byte, byte].into()));
    array
        .write_chunks(chunks.into_iter().map(chunk).collect(), FillChunks::Store)
        .expect("written");
}

fn read(array: &Array, index: u64) -> Option<Vec<u8>> {
    let chunk = array.read_chunk(&at(index)).expect("read");
    chunk.map(|(bytes, _)| bytes.to_vec())
}

fn put(store: &Store, key: &Key, bytes: Vec<u8>) {
    let pieces = [Bytes::from(bytes).into()];
    store.write().expect("writable").set(key, &pieces, Condition::Always).expect("set");
}

fn get(store: &Store, key: &Key) -> Vec<u8> {
    store.get(key, 1 << 30).expect("read").expect("there").bytes.to_vec()
}

/// Checks that the shard of chunks 0 to 3 can neither be read nor changed in part, and that no
/// attempt changes it; that chunks 4 to 7 stay as they were; and that the shard can be replaced as
/// a whole.
fn check_beyond_repair(form: &StoredAs, store: &Store, what: &str) {
    let (array, stored) = (form.open(store), get(store, &key("c/0")));
    for index in 0..4 {
        let error = array.read_chunk(&at(index)).expect_err(what);
        assert_eq!(error.kind(), Kind::Corrupt, "{what}: {error}");
        assert!(error.to_string().starts_with("data/root/a/c/0: "), "{what}: {error}");
    }
    array.stat(&at(0)).expect_err(what);
    let chunks = array.chunks();
    let some = || ChunkChange::set(at(2), Bytes::from_static(b"ok"));
    for (attempt, error) in [
        chunks.update(vec![some()]).err(),
        chunks
            .update(vec![some(), ChunkChange::erase(at(1)), ChunkChange::set(at(5), Bytes::new())])
            .err(),
        chunks.erase_values(&[at(0), at(1), at(2)]).err(),
        chunks.set_partial_values(&[(at(3), 0, Bytes::from_static(b"!"))]).err(),
    ]
    .into_iter()
    .enumerate()
    {
        let error = error.unwrap_or_else(|| panic!("{what}: change {attempt} was made"));
        assert_eq!(error.kind(), Kind::Corrupt, "{what}: {error}");
        assert_eq!(get(store, &key("c/0")), stored, "{what}: change {attempt}");
    }
    assert_eq!(read(&array, 5), Some(vec![5, 5]), "{what}: another shard");
    let listed = Arc::clone(chunks).list().expect("listed");
    let (there, errors): (Vec<_>, Vec<_>) = listed.partition(Result::is_ok);
    assert_eq!((there.len(), errors.len()), (4, 1), "{what}: listed");
    write(&array, (0..4).map(|index| (index, 7)));
    assert_eq!((read(&array, 0), read(&array, 3)), (Some(vec![7, 7]), Some(vec![7, 7])), "{what}");
    put(store, &key("c/0"), stored);
    chunks.erase_values(&[at(0), at(1), at(2), at(3)]).expect("erased as a whole");
    assert_eq!(read(&array, 0), None, "{what}");
}

#[test]
fn a_shard_whose_index_fails_its_checksum_can_only_be_replaced_as_a_whole() {
    for location in ["start", "end"] {
        let form = form(checked(), location);
        let index_len = 4 * ENTRY_LEN + 4;
        for flipped in [0, 15, 40, index_len - 1] {
            let store = memory();
            write(&form.open(&store), (0..8).map(|index| (index, index as u8)));
            let mut shard = get(&store, &key("c/0"));
            let index_at = if location == "start" { 0 } else { shard.len() - index_len };
            shard[index_at + flipped] ^= 1;
            put(&store, &key("c/0"), shard);
            check_beyond_repair(&form, &store, &format!("{location}, byte {flipped}"));
        }
    }
}

#[test]
fn a_shard_that_is_too_short_for_its_index_can_only_be_replaced_as_a_whole() {
    for (index_codecs, index_len) in [(checked(), 68), (json!([bytes("big")]), 64)] {
        for location in ["start", "end"] {
            let form = form(index_codecs.clone(), location);
            for len in [0, 1, index_len - 1] {
                let store = memory();
                write(&form.open(&store), (0..8).map(|index| (index, index as u8)));
                put(&store, &key("c/0"), vec![0xff; len]);
                check_beyond_repair(&form, &store, &format!("{location}, {len} bytes"));
            }
        }
    }
}

/// A shard of the draft, which has no checksum, so that single entries can be wrong.
fn crafted(entries: [(u64, u64); 4], payload: &[u8]) -> (StoredAs, Store, Key) {
    let transformers = json!({"storage_transformers": [transformer(&[4])]});
    let form = StoredAs::draft("draft", &[8], &[1], transformers);
    let store = memory();
    let entries =
        entries.iter().flat_map(|(offset, len)| [offset.to_le_bytes(), len.to_le_bytes()]);
    let shard: Vec<u8> = payload.iter().copied().chain(entries.flatten()).collect();
    put(&store, &key("c0"), shard);
    (form, store, key("c0"))
}

#[test]
fn an_entry_that_cannot_be_is_an_error_and_is_neither_kept_nor_dropped() {
    let missing = (u64::MAX, u64::MAX);
    for wrong in [
        (u64::MAX, 2),
        (0, u64::MAX),
        (u64::MAX, 0),
        (u64::MAX - 1, 2),
        (1 << 63, 1 << 63),
        (6, 3),
        (7, 2),
        (72, 1),
        (4, 60),
    ] {
        let (form, store, key) = crafted([(0, 2), wrong, missing, (2, 2)], b"aabbccdd");
        let array = form.open(&store);
        let stored = get(&store, &key);
        assert_eq!((read(&array, 0), read(&array, 2)), (Some(b"aa".to_vec()), None), "{wrong:?}");
        let error = array.read_chunk(&at(1)).expect_err("damaged");
        assert_eq!(error.kind(), Kind::Corrupt, "{wrong:?}: {error}");
        assert!(array.stat(&at(1)).expect("stat").is_some(), "{wrong:?}: it is there all the same");
        // A change of another chunk must neither lose nor copy the damaged one.
        for change in
            [ChunkChange::set(at(0), Bytes::from_static(b"xx")), ChunkChange::erase(at(3))]
        {
            let error = array.chunks().update(vec![change]).expect_err("it would be lost");
            assert_eq!(error.kind(), Kind::Corrupt, "{wrong:?}: {error}");
            assert!(error.to_string().starts_with("data/root/a/c0: "), "{error}");
        }
        let part = [(at(1), 0, Bytes::from_static(b"x"))];
        let error =
            array.chunks().set_partial_values(&part).expect_err("it cannot be kept in part");
        assert_eq!(error.kind(), Kind::Corrupt, "{wrong:?}: {error}");
        assert_eq!(get(&store, &key), stored, "{wrong:?}: changed");
        // Replacing or erasing the damaged chunk repairs the shard.
        write(&array, [(1, 9)]);
        let found = [0, 1, 2, 3].map(|index| read(&array, index));
        let want = [Some(b"aa".to_vec()), Some(vec![9, 9]), None, Some(b"bb".to_vec())];
        assert_eq!(found, want, "{wrong:?}: replaced");
        put(&store, &key, stored);
        array.chunks().erase_values(&[at(1)]).expect("erased");
        let found = [0, 1, 2, 3].map(|index| read(&array, index));
        let want = [Some(b"aa".to_vec()), None, None, Some(b"bb".to_vec())];
        assert_eq!(found, want, "{wrong:?}: erased");
    }
}

#[test]
fn dead_space_and_shared_bytes_in_a_shard_are_read_and_a_change_sorts_them_out() {
    let (form, store, key) = crafted([(6, 2), (0, 2), (0, 2), (1, 2)], b"abc---xy");
    let array = form.open(&store);
    let found = || [0, 1, 2, 3].map(|index| read(&array, index).expect("there"));
    assert_eq!(found(), [b"xy", b"ab", b"ab", b"bc"]);
    array
        .chunks()
        .update(vec![ChunkChange::set(at(1), Bytes::from_static(b"12"))])
        .expect("updated");
    assert_eq!(found(), [b"xy", b"12", b"ab", b"bc"]);
    assert_eq!(get(&store, &key).len(), 8 + 4 * ENTRY_LEN);
}

#[test]
fn entries_that_share_bytes_cannot_make_a_change_copy_them_over_and_over() {
    let (slots, payload) = (200_u64, vec![7_u8; 2_000_000]);
    let shape = [slots];
    let transformers = json!({"storage_transformers": [transformer(&shape)]});
    let form = StoredAs::draft("draft", &shape, &[1], transformers);
    let (store, counting) = CountingStore::new();
    let len = payload.len() as u64;
    let entries = (0..slots).flat_map(|slot| [slot.to_le_bytes(), (len - slot).to_le_bytes()]);
    put(&store, &key("c0"), payload.iter().copied().chain(entries.flatten()).collect());
    counting.take();
    let array = form.open(&store);
    let change = ChunkChange::set(at(0), Bytes::from_static(b"xx"));
    let error = array.chunks().update(vec![change]).expect_err("400 MB");
    assert_eq!((error.kind(), counting.take().sets), (Kind::Corrupt, 0), "{error}");
}

#[test]
fn a_bomb_around_a_shard_is_stopped_at_the_limit() {
    let codec = sharding(&[1], json!([bytes("little")]), checked(), "end");
    let form = StoredAs::new("gzip", &[8], &[4], json!([codec, {"name": "gzip"}]));
    let store = memory();
    write(&form.open(&store), [(5, 5)]);
    let gzip = Gzip::new(&Object::new()).expect("a codec");
    put(&store, &key("c/0"), gzip.encode(&vec![0; 64 << 20]).expect("encoded"));
    let array = form.open(&store);
    let error = array.read_chunk(&at(0)).expect_err("64 MiB for a shard of 8 bytes");
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("decodes to more than"), "{error}");
    // A shard above the limit is not read at all.
    put(&store, &key("c/0"), vec![0; 64 << 20]);
    let error = array.read_chunk(&at(0)).expect_err("64 MiB for a shard of 8 bytes");
    assert!(error.to_string().contains("67108864 bytes stored"), "{error}");
    assert_eq!(read(&array, 5), Some(vec![5, 5]));
}

#[test]
fn shards_that_codecs_around_them_wrote_can_be_read() {
    // Each inner chunk has two bytes, but gzip, checksums and indexes multiply them.
    let innermost = sharding(
        &[1],
        json!([bytes("little"), {"name": "gzip"}, {"name": "crc32c"}]),
        checked(),
        "end",
    );
    let inner = sharding(&[2], json!([innermost, {"name": "crc32c"}]), checked(), "end");
    let form = StoredAs::new("gzip", &[40_000], &[40_000], json!([inner, {"name": "gzip"}]));
    let array = form.open(&memory());
    write(&array, (0..40_000).map(|index| (index, (index % 251) as u8)));
    assert_eq!(read(&array, 39_999), Some(vec![(39_999 % 251) as u8; 2]));
}

#[test]
fn a_shard_that_could_not_be_held_is_refused_when_the_array_is_opened() {
    let raw = || json!([bytes("little")]);
    let shard = forms::MAX_CHUNK_LEN; // Twice as many bytes.
    let codec = || sharding(&[1 << 16], raw(), checked(), "end");
    let inside = StoredAs::new("gzip", &[shard], &[shard], json!([codec(), {"name": "gzip"}]));
    let slots = StoredAs::new(
        "slots",
        &[1 << 23],
        &[1 << 23],
        json!([sharding(&[1], raw(), checked(), "end")]),
    );
    for form in [inside, slots] {
        let array = Array::open(
            form.model.clone(),
            &memory(),
            prefix(),
            ArrayOptions::new(forms::MAX_CHUNK_LEN),
        );
        let array = array.expect("opened");
        let error = array.not_understood().expect("too large");
        assert_eq!(error.kind(), Kind::TooLarge, "{}: {error}", form.name);
        assert_eq!(array.read_chunk(&at(0)).expect_err("too large").errno(), libc::EFBIG);
        assert_eq!(array.fill_chunk(&at(0)).expect_err("too large").errno(), libc::EFBIG);
    }
    StoredAs::new("no codecs around", &[shard], &[shard], json!([codec()])).open(&memory());
}

#[test]
fn no_bytes_of_a_shard_make_a_read_or_a_change_panic() {
    use proptest::prelude::*;
    let forms = forms::sharded();
    proptest!(|(
        which in 0..forms.len(),
        shard in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 0..400),
    )| {
        let (form, store) = (&forms[which], memory());
        let array = form.open(&store);
        let all = places(array.grid().counts());
        let key = array.key(&all[0]).expect("a key");
        put(&store, &key, shard.clone());
        for coords in &all[..3] {
            let whole = [(coords.clone(), ByteRange::first(1 << 20))];
            drop(array.chunks().get_partial_values(&whole));
            drop(array.stat(coords));
        }
        for listed in Arc::clone(array.chunks()).list().expect("listed") {
            drop(listed);
        }
        let change = ChunkChange::set(all[0].clone(), Bytes::from_static(b"new"));
        if array.chunks().update(vec![change]).is_err() { prop_assert_eq!(get(&store, &key), shard, "{}", form.name) } else {
            let whole = [(all[0].clone(), ByteRange::first(1 << 20))];
            let value = array.chunks().get_partial_values(&whole).expect("read").remove(0);
            prop_assert_eq!(&*value.expect("there").bytes, b"new", "{}", form.name);
        }
    });
}
