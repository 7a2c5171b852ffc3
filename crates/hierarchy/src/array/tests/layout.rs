//! The places of inner chunks in a shard, for each order and way of writing.

use std::sync::Arc;

use serde_json::json;

use super::forms::{StoredAs, bytes, checked, key, prefix, sharding};
use crate::array::{Array, ArrayOptions, ChunkChange, Coords, ShardLayout, ShardOrder, ShardWrite};
use zarrfs_store::memory::MemoryStore;
use zarrfs_store::{ByteRange, Condition, Store};

/// Opens an array with shards of two by two inner chunks; the tests store strings in them.
fn open(store: &Store, location: &str, layout: ShardLayout) -> Array {
    let codecs = json!([sharding(&[1, 1], json!([bytes("little")]), checked(), location)]);
    let form = StoredAs::new("layout", &[2, 2], &[2, 2], codecs);
    let options = ArrayOptions { layout, ..ArrayOptions::new(1 << 20) };
    Array::open(form.model, store, prefix(), options).expect("opened")
}

fn set(array: &Array, chunks: &[([u64; 2], &str)]) {
    let change = |(coords, text): &([u64; 2], &str)| {
        ChunkChange::set(Coords::new(*coords), bytes::Bytes::copy_from_slice(text.as_bytes()))
    };
    array.chunks().update(chunks.iter().map(change).collect()).expect("updated");
}

fn text(array: &Array, coords: [u64; 2]) -> String {
    let range = (Coords::new(coords), ByteRange::first(100));
    let value = array.chunks().get_partial_values(&[range]).expect("read").pop().flatten();
    String::from_utf8(value.expect("there").bytes.to_vec()).expect("text")
}

/// The stored shard without its index of 4 x 16 + 4 bytes.
fn stored(store: &Store, location: &str) -> String {
    let shard = store.get(&key("c/0/0"), 1 << 20).expect("read").expect("there").bytes;
    let data = if location == "end" { &shard[..shard.len() - 68] } else { &shard[68..] };
    String::from_utf8(data.to_vec()).expect("text")
}

fn memory() -> Store {
    Store::new(Arc::new(MemoryStore::new()))
}

#[test]
fn inner_chunks_have_the_requested_order() {
    for (order, whole, changed) in [
        (ShardOrder::C, "abcd", "aBBcd"),
        (ShardOrder::F, "acbd", "acBBd"),
        (ShardOrder::Morton, "abcd", "aBBcd"),
        (ShardOrder::Arrival, "dbac", "dacBB"),
    ] {
        let store = memory();
        let array = open(&store, "end", ShardLayout { order, write: ShardWrite::Rewrite });
        set(&array, &[([1, 1], "d"), ([0, 1], "b"), ([0, 0], "a"), ([1, 0], "c")]);
        assert_eq!(stored(&store, "end"), whole, "{order:?}");
        set(&array, &[([0, 1], "BB")]);
        assert_eq!(stored(&store, "end"), changed, "{order:?}");
        assert_eq!(text(&array, [0, 1]), "BB");
    }
}

#[test]
fn chunks_are_appended_until_half_of_the_shard_is_unused() {
    for location in ["end", "start"] {
        let store = memory();
        let layout = ShardLayout { order: ShardOrder::C, write: ShardWrite::Append };
        let array = open(&store, location, layout);
        set(&array, &[([0, 0], "aa"), ([0, 1], "bb"), ([1, 0], "cc"), ([1, 1], "dd")]);
        for (coords, text, want) in [
            ([0, 1], "B1", "aabbccddB1"),
            ([0, 0], "A1", "aabbccddB1A1"),
            ([0, 1], "B2", "aabbccddB1A1B2"),
            // Unused bytes at the end are dropped at once.
            ([0, 1], "B3", "aabbccddB1A1B3"),
            ([0, 0], "A2", "aabbccddB1A1B3A2"),
            ([0, 1], "B4", "A2B4ccdd"),
        ] {
            set(&array, &[(coords, text)]);
            assert_eq!(stored(&store, location), want, "index at the {location}");
        }
        array.chunks().erase_values(&[Coords::new([0, 0])]).expect("erased");
        assert_eq!(stored(&store, location), "A2B4ccdd", "index at the {location}");
        assert_eq!(text(&array, [1, 0]), "cc");
        let stat = array.stat(&Coords::new([1, 1])).expect("stat").expect("there");
        // A writer that read an older shard does not append to this one.
        let mut change = ChunkChange::set(Coords::new([0, 0]), bytes::Bytes::from_static(b"x"));
        set(&array, &[([1, 1], "E")]);
        change.coords = Coords::new([1, 1]);
        change.condition = Condition::Unchanged(stat.version);
        array.chunks().update(vec![change]).expect_err("it was changed");
    }
}
