//! Counts the calls to the store below, for which the sharding draft promises limits.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::forms::{StoredAs, bytes, checked, key, places, sharding, transformer};
use crate::array::{Array, ChunkChange, Coords};
use crate::counting::{Calls, CountingStore};
use crate::testing::text;
use zarrfs_store::{ByteRange, Condition, Store};

/// The length of the encoded index of these shards: four entries, no checksum.
const INDEX_LEN: u64 = 64;

/// Both kinds of sharding: 16 chunks, four to a shard.
fn both() -> [StoredAs; 2] {
    let codec = sharding(&[1, 1], json!([bytes("little")]), json!([bytes("little")]), "end");
    let transformers = json!({"storage_transformers": [transformer(&[2, 2])]});
    [
        StoredAs::new("codec", &[4, 4], &[2, 2], json!([codec])),
        StoredAs::draft("transformer", &[4, 4], &[1, 1], transformers),
    ]
}

fn value(coords: &Coords) -> Bytes {
    format!("the encoded bytes of {coords}").into()
}

fn set(array: &Array, coords: &[Coords]) {
    let changes = coords.iter().map(|coords| ChunkChange::set(coords.clone(), value(coords)));
    array.chunks().update(changes.collect()).expect("updated");
}

/// Returns a store with all chunks, after resetting its counts.
fn filled(form: &StoredAs) -> (Store, Arc<CountingStore>, Vec<Coords>) {
    let (store, counting) = CountingStore::new();
    let array = form.open(&store);
    let all = places(array.grid().counts());
    set(&array, &all);
    counting.take();
    (store, counting, all)
}

fn read(array: &Array, coords: &[Coords]) -> Vec<Option<Bytes>> {
    let whole = |coords: &Coords| (coords.clone(), ByteRange::first(1 << 20));
    let ranges: Vec<_> = coords.iter().map(whole).collect();
    let values = array.chunks().get_partial_values(&ranges).expect("read");
    values.into_iter().map(|value| value.map(|value| value.bytes)).collect()
}

fn at(i: u64, j: u64) -> Coords {
    Coords::new([i, j])
}

#[test]
fn a_batch_over_many_shards_takes_two_reads_and_one_once_the_indexes_are_known() {
    for form in both() {
        let (store, counting, all) = filled(&form);
        let array = form.open(&store);
        let want: Vec<Option<Bytes>> = all.iter().map(|coords| Some(value(coords))).collect();
        assert_eq!(read(&array, &all), want, "{}", form.name);
        let read_len = want.iter().flatten().map(|bytes| bytes.len() as u64).sum::<u64>();
        let cold = Calls {
            gets: 2,
            ranges: 4 + 16,
            read_len: 4 * INDEX_LEN + read_len,
            ..Calls::default()
        };
        assert_eq!(counting.take(), cold, "{}", form.name);
        assert_eq!(read(&array, &all), want, "{}", form.name);
        assert_eq!(counting.take(), Calls { gets: 1, ranges: 16, read_len, ..Calls::default() });
    }
}

#[test]
fn chunks_that_are_not_there_take_one_read_of_their_index_and_a_stat_once_it_is_known() {
    for form in both() {
        let (store, counting, _) = filled(&form);
        let array = form.open(&store);
        let missing = [at(0, 0), at(0, 1), at(2, 2)];
        array.chunks().erase_values(&missing).expect("erased");
        counting.take();
        let array = form.open(&store);
        assert_eq!(read(&array, &missing), [None, None, None]);
        let cold = Calls { gets: 1, ranges: 2, read_len: 2 * INDEX_LEN, ..Calls::default() };
        assert_eq!(counting.take(), cold, "{}", form.name);
        assert_eq!(read(&array, &missing), [None, None, None]);
        assert_eq!(counting.take(), Calls { stats: 1, ..Calls::default() }, "{}", form.name);
    }
}

#[test]
fn setting_all_chunks_of_shards_reads_nothing_and_sets_each_shard_once() {
    for form in both() {
        let (store, counting, all) = filled(&form);
        let array = form.open(&store);
        set(&array, &all);
        let calls = counting.take();
        let want = Calls { sets: 4, new_len: calls.new_len, ..Calls::default() };
        assert_eq!(calls, want, "{}", form.name);
        // A shard at the edge has slots outside of the array, which cannot be set.
        let edge = StoredAs { model: form.model.clone(), ..form.clone() };
        let edge = StoredAs {
            model: crate::metadata::model::ArrayMetadata { shape: vec![3, 3], ..edge.model },
            ..edge
        };
        let array = edge.open(&store);
        set(&array, &places(array.grid().counts()));
        assert_eq!(
            (counting.take().gets, read(&array, &[at(2, 2)])),
            (0, vec![Some(value(&at(2, 2)))])
        );
    }
}

#[test]
fn erasing_all_chunks_of_shards_is_one_erase_and_reads_nothing() {
    for form in both() {
        let (store, counting, all) = filled(&form);
        let array = form.open(&store);
        array.chunks().erase_values(&all).expect("erased");
        assert_eq!(counting.take(), Calls { erases: 1, ..Calls::default() }, "{}", form.name);
        set(&array, &all);
        counting.take();
        array.chunks().erase_values(&[at(2, 2), at(2, 3), at(3, 2), at(3, 3)]).expect("erased");
        assert_eq!(counting.take(), Calls { erases: 1, ..Calls::default() }, "{}", form.name);
        array.chunks().erase_prefix(&[]).expect("erased");
        let calls = counting.take();
        // In the draft, shards lie beside other keys, so they are listed and erased by name.
        assert_eq!((calls.gets, calls.erases + calls.erased_prefixes), (0, 1), "{}", form.name);
    }
}

#[test]
fn changing_one_inner_chunk_reads_the_index_once_and_sets_the_shard_and_the_rest_stays_in_the_store()
 {
    for form in both() {
        let (store, counting, _) = filled(&form);
        let array = form.open(&store);
        let new = Bytes::from_static(b"of another length");
        let change = ChunkChange::set(at(0, 1), new.clone());
        array.chunks().update(vec![change]).expect("updated");
        let kept_len = [at(0, 0), at(1, 0), at(1, 1)].iter().map(|c| value(c).len() as u64).sum();
        let want = Calls {
            gets: 1,
            ranges: 1,
            read_len: INDEX_LEN,
            sets: 1,
            new_len: new.len() as u64 + INDEX_LEN,
            kept_len,
            ..Calls::default()
        };
        assert_eq!(counting.take(), want, "{}", form.name);
        array.chunks().erase_values(&[at(0, 1)]).expect("erased");
        // Whether the chunk is there is read from the store.
        let is_read = Calls { gets: 1, ranges: 1, read_len: INDEX_LEN, ..Calls::default() };
        let want = Calls { sets: 1, new_len: INDEX_LEN, kept_len, ..is_read.clone() };
        assert_eq!(counting.take(), want, "{}: erased", form.name);
        array.chunks().erase_values(&[at(0, 1)]).expect("nothing to erase");
        assert_eq!(counting.take(), is_read, "{}: erased again", form.name);
        set(&array, &[at(0, 1)]);
        let calls = counting.take();
        assert_eq!((calls.gets, calls.stats, calls.sets), (0, 1, 1), "{}: again", form.name);
    }
}

#[test]
fn erasing_the_last_inner_chunk_erases_the_shard() {
    for form in both() {
        let (store, counting) = CountingStore::new();
        let array = form.open(&store);
        set(&array, &[at(0, 0)]);
        counting.take();
        array.chunks().erase_values(&[at(0, 0)]).expect("erased");
        let calls = counting.take();
        assert_eq!((calls.gets, calls.erases_unchanged, calls.sets), (1, 1, 0), "{}", form.name);
        let stat = store.stat(&array.key(&at(0, 0)).expect("a key"));
        assert!(stat.expect("stat").is_none(), "{}", form.name);
    }
}

#[test]
fn parts_of_many_chunks_set_each_shard_once_and_read_no_chunk() {
    for form in both() {
        let (store, counting, all) = filled(&form);
        let array = form.open(&store);
        let part = |coords: &Coords| (coords.clone(), 4, Bytes::from_static(b"ENCODED"));
        let parts: Vec<_> = all.iter().map(part).collect();
        array.chunks().set_partial_values(&parts).expect("set");
        let calls = counting.take();
        // Reads the indexes once, and no bytes of chunks.
        assert_eq!((calls.gets, calls.read_len), (2, 4 * INDEX_LEN), "{}", form.name);
        assert_eq!((calls.sets, calls.new_len), (4, 16 * 7 + 4 * INDEX_LEN), "{}", form.name);
    }
}

#[test]
fn the_index_that_a_change_makes_is_known_to_the_next_read() {
    for form in both() {
        let (store, counting, _) = filled(&form);
        let array = form.open(&store);
        set(&array, &[at(0, 0)]);
        counting.take();
        assert_eq!(read(&array, &[at(0, 1)]), [Some(value(&at(0, 1)))]);
        assert_eq!(counting.take().gets, 1, "{}", form.name);
    }
}

#[test]
fn a_shard_that_another_writer_replaced_is_noticed() {
    for form in both() {
        let (store, _, all) = filled(&form);
        let (array, other) = (form.open(&store), form.open(&store));
        read(&array, &all);
        // Moved: the requested chunk is at its place only in the old index.
        let longer = ChunkChange::set(at(0, 0), Bytes::from(vec![b'x'; 1000]));
        other.chunks().update(vec![longer]).expect("updated");
        assert_eq!(read(&array, &[at(1, 1)]), [Some(value(&at(1, 1)))], "{}", form.name);
        // Removed in the new index.
        other.chunks().erase_values(&[at(0, 1)]).expect("erased");
        assert_eq!(read(&array, &[at(0, 1)]), [None], "{}", form.name);
        // Stored, but missing in the old index.
        set(&other, &[at(0, 1)]);
        assert_eq!(read(&array, &[at(0, 1)]), [Some(value(&at(0, 1)))], "{}", form.name);
        set(&other, &[at(1, 0)]);
        let stats = [&array, &other].map(|array| array.stat(&at(0, 1)).expect("stat"));
        let [one, two] = stats.map(|stat| stat.map(|stat| (stat.len, stat.version)));
        assert_eq!(text(&one), text(&two), "{}: the version is that of the shard now", form.name);
        // All chunks are removed.
        other.chunks().erase_prefix(&[]).expect("erased");
        assert_eq!(read(&array, &[at(3, 3)]), [None], "{}", form.name);
        assert!(array.stat(&at(2, 2)).expect("stat").is_none(), "{}", form.name);
        assert_eq!(Arc::clone(array.chunks()).list().expect("listed").count(), 0);
    }
}

#[test]
fn a_shard_that_is_replaced_between_its_index_and_its_chunk_is_read_again() {
    for form in both() {
        let (store, counting, _) = filled(&form);
        let (array, other) = (form.open(&store), form.open(&store));
        let longer = ChunkChange::set(at(0, 0), Bytes::from(vec![b'x'; 1000]));
        counting.interrupt_get(2, move || drop(other.chunks().update(vec![longer])));
        assert_eq!(
            read(&array, &[at(1, 1), at(2, 2)]),
            [at(1, 1), at(2, 2)].map(|c| Some(value(&c)))
        );
        // The other shard is not read again.
        let calls = counting.take();
        assert_eq!(calls.sets, 1, "nobody came in between");
        assert_eq!((calls.gets, calls.ranges), (2 + 1 + 2, 4 + 1 + 2), "{}", form.name);
    }
}

#[test]
fn concurrent_changes_of_one_shard_are_both_kept() {
    for form in both() {
        let (store, counting, _) = filled(&form);
        let (array, other) = (form.open(&store), form.open(&store));
        let theirs = ChunkChange::set(at(0, 0), Bytes::from_static(b"theirs"));
        // Changes the shard after its index was read, and before the set.
        let late = Arc::clone(&other);
        counting.interrupt_get(2, move || drop(late.chunks().update(vec![theirs])));
        let ours = [at(0, 1), at(2, 2)].map(|c| ChunkChange::set(c, Bytes::from_static(b"ours")));
        array
            .chunks()
            .set_partial_values(&[(at(1, 1), 0, Bytes::from_static(b"PART"))])
            .expect("set");
        array.chunks().update(ours.to_vec()).expect("updated");
        let found = read(&other, &[at(0, 0), at(0, 1), at(2, 2), at(3, 3)]);
        let want: [&[u8]; 4] = [b"theirs", b"ours", b"ours", &value(&at(3, 3))];
        assert_eq!(found, want.map(|bytes| Some(Bytes::copy_from_slice(bytes))), "{}", form.name);
        assert_eq!(&read(&other, &[at(1, 1)])[0].as_ref().expect("there")[..4], b"PART");
    }
}

#[test]
fn nested_shards_take_a_read_for_each_level_and_one_for_the_chunks() {
    let inner = sharding(&[1, 1], json!([bytes("little")]), checked(), "start");
    let outer = sharding(&[2, 2], json!([inner]), checked(), "end");
    let form = StoredAs::new("nested", &[8, 8], &[4, 4], json!([outer]));
    let (store, counting, all) = filled(&form);
    let array = form.open(&store);
    read(&array, &all);
    let calls = counting.take();
    assert_eq!((calls.gets, calls.ranges), (3, 4 + 16 + 64));
    read(&array, &all);
    assert_eq!(counting.take().gets, 1);
    array
        .chunks()
        .update(vec![ChunkChange::set(at(3, 3), Bytes::from_static(b"new"))])
        .expect("updated");
    let calls = counting.take();
    assert_eq!(
        (calls.sets, calls.new_len),
        (1, 3 + 2 * (INDEX_LEN + 4)),
        "three chunks of a level stay"
    );
    assert_eq!(calls.read_len, 0, "the indexes are known");
    set(&array, &all);
    assert_eq!(
        (counting.take().gets, read(&array, &[at(7, 7)])),
        (0, vec![Some(value(&at(7, 7)))])
    );
}

#[test]
fn listing_asks_for_each_shard_once() {
    for form in both() {
        let (store, counting, _) = filled(&form);
        let array = form.open(&store);
        let list = |prefix: &[u64]| {
            let list = Arc::clone(array.chunks()).list_dir(prefix).expect("listed");
            list.inspect(|index| assert!(index.is_ok())).count()
        };
        assert_eq!(list(&[1]), 4);
        let calls = counting.take();
        assert_eq!((calls.lists, calls.gets, calls.stats), (1, 2, 2), "{}", form.name);
        list(&[1]);
        let calls = counting.take();
        assert_eq!((calls.lists, calls.gets, calls.stats), (1, 0, 4), "{}", form.name);
        // The first shard with a chunk shows that there is one.
        let mut any = Arc::clone(array.chunks()).list_prefix(&[3]).expect("listed");
        assert!(any.next().is_some());
        assert_eq!(counting.take().gets, 1, "{}", form.name);
        let mut one = Arc::clone(array.chunks()).list_prefix(&[3, 3]).expect("listed");
        assert_eq!(one.next(), Some(Ok(at(3, 3))));
        let calls = counting.take();
        assert_eq!((calls.lists, calls.gets), (0, 1), "{}", form.name);
    }
}

#[test]
fn codecs_around_a_shard_read_it_once_for_many_chunks_and_not_at_all_to_replace_it() {
    let inner = sharding(&[1, 1], json!([bytes("little")]), checked(), "end");
    let form = StoredAs::new("gzip", &[4, 4], &[2, 2], json!([inner, {"name": "gzip"}]));
    let (store, counting, all) = filled(&form);
    let array = form.open(&store);
    for coords in [at(0, 0), at(0, 1), at(1, 0), at(1, 1)] {
        assert_eq!(read(&array, std::slice::from_ref(&coords)), [Some(value(&coords))]);
    }
    assert_eq!(counting.take().gets, 1);
    set(&array, &all);
    let calls = counting.take();
    assert_eq!((calls.gets, calls.stats, calls.sets), (0, 0, 4));
    // A shard that cannot be read can still be replaced as a whole.
    let write = store.write().expect("writable");
    let damage = [Bytes::from_static(b"no gzip at all").into()];
    write.set(&key("c/0/0"), &damage, Condition::Always).expect("set");
    let one = ChunkChange::set(at(0, 0), Bytes::from_static(b"new"));
    array.chunks().update(vec![one]).expect_err("what would be kept cannot be read");
    set(&array, &[at(0, 0), at(0, 1), at(1, 0), at(1, 1)]);
    assert_eq!(read(&array, &[at(1, 1)]), [Some(value(&at(1, 1)))]);
}
