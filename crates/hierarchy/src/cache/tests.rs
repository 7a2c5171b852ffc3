use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::array::region::Cover;
use crate::array::{Array, ArrayOptions, ChunkRef, Coords, Current, FillChunks};
use crate::counting::CountingStore;
use crate::metadata::NodePath;
use crate::metadata::model::{self, KeyEncoding, Separator};
use crate::testing::text;
use zarrfs_base::buffer::Buffer;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, FillValue};
use zarrfs_store::directory::{DirectoryStore, Durability};
use zarrfs_store::{Condition, Key, Prefix, Store};

/// Returns an array with chunks of `chunk_len` bytes, in `store`.
fn array(store: &Store, chunk_len: u64, codecs: &serde_json::Value) -> Arc<Array> {
    let codecs = codecs.as_array().expect("a list").iter();
    let model = model::ArrayMetadata {
        shape: vec![chunk_len * 1000],
        dtype: DType::Uint(1),
        fill: FillValue::parse(&json!(0), &DType::Uint(1)).expect("a fill value"),
        chunk_shape: vec![chunk_len],
        rectilinear: None,
        key_encoding: KeyEncoding::Default(Separator::Slash),
        codecs: codecs.map(|codec| CodecSpec::from_json(codec).expect("a codec")).collect(),
        dimension_names: Vec::new(),
        attributes: zarrfs_codec::json::Object::new(),
    };
    Arc::new(Array::open(model, store, Prefix::root(), ArrayOptions::new(1 << 20)).expect("opened"))
}

fn at(index: u64) -> Coords {
    Coords::new([index])
}

fn chunk(byte: u8, len: usize) -> Option<Buffer> {
    Some(vec![byte; len].into())
}

fn bytes(chunk: Option<DecodedChunk>) -> Option<Vec<u8>> {
    chunk.map(|chunk| chunk.bytes.to_vec())
}

#[test]
fn many_readers_of_one_chunk_cost_one_read_and_one_decode() {
    const READERS: usize = 16;
    let (store, counting) = CountingStore::new();
    let array = array(&store, 100, &json!([{"name": "gzip"}]));
    Current::made_here(&array)
        .write_chunks(vec![(at(3), chunk(7, 100))], FillChunks::Store)
        .expect("written");
    counting.take();
    let cache = ChunkCache::new(1 << 20);
    let arrived = Arc::new(AtomicUsize::new(0));
    let all = Arc::clone(&arrived);
    // The read lasts until all threads have asked.
    counting.interrupt_get(1, move || {
        while all.load(Ordering::SeqCst) < READERS {
            std::thread::yield_now();
        }
    });
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                arrived.fetch_add(1, Ordering::SeqCst);
                let found = cache.get(&array, &at(3)).expect("read");
                assert_eq!(bytes(found), Some(vec![7; 100]));
            });
        }
    });
    assert_eq!(counting.take().gets, 1);
    let counters = [&cache.counters().decoded, &cache.counters().hits];
    assert_eq!(counters.map(|counter| counter.load(Ordering::SeqCst)), [1, READERS as u64 - 1]);
}

#[test]
fn cached_chunks_are_limited_in_bytes() {
    let (store, _) = CountingStore::new();
    let array = array(&store, 100, &json!([]));
    let cache = ChunkCache::new(10_000);
    for index in 0..100 {
        cache
            .write(&Current::made_here(&array), &at(index), chunk(1, 100), FillChunks::Store)
            .expect("written");
        assert!(cache.len() <= 10_000, "{} bytes", cache.len());
    }
    for index in 0..100 {
        cache.get(&array, &at(index)).expect("read").expect("there");
        assert!(cache.len() <= 10_000, "{} bytes", cache.len());
    }
    assert!(cache.len() > 5000, "{} bytes: most of it is of use", cache.len());
}

#[test]
fn a_sequential_writer_keeps_its_last_chunks_and_leaves_room_for_readers() {
    let (store, _) = CountingStore::new();
    let array = array(&store, 100, &json!([]));
    let cache = ChunkCache::new(160_000);
    for index in 0..100 {
        cache
            .write(&Current::made_here(&array), &at(index), chunk(1, 100), FillChunks::Store)
            .expect("written");
        assert!(cache.len() <= 10_000, "{} bytes", cache.len());
        assert!(cache.peek(&array, &at(index)).is_some(), "what was written last is read first");
    }
    assert!(cache.len() > 5000, "{} bytes", cache.len());
}

#[test]
fn chunks_of_a_byte_each_do_not_fill_the_memory_with_their_slots() {
    let (store, _) = CountingStore::new();
    let array = array(&store, 1, &json!([]));
    let cache = ChunkCache::new(100_000);
    for index in 0..1000 {
        cache
            .write(&Current::made_here(&array), &at(index), chunk(1, 1), FillChunks::Store)
            .expect("written");
    }
    let slots = cache.slots.slot_count();
    assert!(slots < 250, "{slots} slots");
}

#[test]
fn a_chunk_that_is_longer_than_the_cache_is_read_all_the_same() {
    let (store, _) = CountingStore::new();
    let array = array(&store, 1000, &json!([]));
    let cache = ChunkCache::new(999);
    cache
        .write(&Current::made_here(&array), &at(0), chunk(1, 1000), FillChunks::Store)
        .expect("written");
    assert_eq!(bytes(cache.get(&array, &at(0)).expect("read")), Some(vec![1; 1000]));
    assert!(cache.is_empty(), "{} bytes", cache.len());
}

#[test]
fn a_chunk_that_was_written_is_found_decoded() {
    let (store, counting) = CountingStore::new();
    let array = array(&store, 100, &json!([{"name": "zstd"}]));
    let cache = ChunkCache::new(1 << 20);
    let stat = cache
        .write(&Current::made_here(&array), &at(1), chunk(5, 100), FillChunks::Store)
        .expect("written")
        .stat;
    assert_eq!((counting.take().gets, cache.counters().stored.load(Ordering::SeqCst)), (0, 1));
    let found = cache.get(&array, &at(1)).expect("read").expect("there");
    assert_eq!((found.bytes.to_vec(), text(&Some(found.stat))), (vec![5; 100], text(&stat)));
    assert_eq!(text(&array.stat(&at(1)).expect("stat")), text(&stat));
    assert_eq!((counting.take().gets, cache.counters().decoded.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn a_chunk_that_was_erased_or_is_fill_is_not_found() {
    let (store, _) = CountingStore::new();
    let array = array(&store, 100, &json!([]));
    let cache = ChunkCache::new(1 << 20);
    for (gone, fill) in [(None, FillChunks::Store), (chunk(0, 100), FillChunks::Skip)] {
        cache
            .write(&Current::made_here(&array), &at(1), chunk(5, 100), FillChunks::Store)
            .expect("written");
        let erased = cache.write(&Current::made_here(&array), &at(1), gone, fill);
        assert!(erased.expect("erased").stat.is_none());
        assert!(cache.peek(&array, &at(1)).is_none());
        assert!(cache.get(&array, &at(1)).expect("read").is_none());
        assert!(cache.is_empty(), "a chunk that is not there takes no room");
    }
}

#[test]
fn a_failed_write_leaves_the_cached_chunk() {
    let (store, _) = CountingStore::new();
    let array = array(&store, 100, &json!([]));
    let cache = ChunkCache::new(1 << 20);
    cache
        .write(&Current::made_here(&array), &at(1), chunk(5, 100), FillChunks::Store)
        .expect("written");
    cache
        .write(&Current::made_here(&array), &at(1), chunk(6, 99), FillChunks::Store)
        .expect_err("too short");
    assert_eq!(bytes(cache.get(&array, &at(1)).expect("read")), Some(vec![5; 100]));
}

#[test]
fn only_the_given_version_stays_cached() {
    let (store, _) = CountingStore::new();
    let (array, other) = (array(&store, 4, &json!([])), array(&store, 4, &json!([])));
    let cache = ChunkCache::new(1 << 20);
    cache
        .write(&Current::made_here(&array), &at(1), chunk(5, 4), FillChunks::Store)
        .expect("written");
    let now = || array.stat(&at(1)).expect("stat").map(|stat| stat.version);
    cache.keep_only(&array, &at(1), now());
    assert!(cache.peek(&array, &at(1)).is_some(), "it is the one");
    Current::made_here(&other)
        .write_chunks(vec![(at(1), chunk(6, 4))], FillChunks::Store)
        .expect("written");
    assert_eq!(bytes(cache.get(&array, &at(1)).expect("read")), Some(vec![5; 4]), "not asked yet");
    cache.keep_only(&array, &at(1), now());
    assert!(cache.peek(&array, &at(1)).is_none() && cache.is_empty(), "outdated");
    assert_eq!(bytes(cache.get(&array, &at(1)).expect("read")), Some(vec![6; 4]));
    cache.keep_only(&array, &at(1), None);
    assert!(cache.peek(&array, &at(1)).is_none(), "gone");
    // Another array of the same name does not share the chunks.
    cache.get(&array, &at(1)).expect("read");
    assert!(cache.peek(&other, &at(1)).is_none());
}

#[test]
fn an_opener_does_not_wait_for_a_reader_and_the_next_reader_sees_what_it_saw() {
    let (store, counting) = CountingStore::new();
    let array = array(&store, 4, &json!([]));
    Current::made_here(&array)
        .write_chunks(vec![(at(1), chunk(5, 4))], FillChunks::Store)
        .expect("written");
    let cache = Arc::new(ChunkCache::new(1 << 20));
    let opener = (Arc::clone(&cache), Arc::clone(&array));
    counting.interrupt_get(1, move || opener.0.keep_only(&opener.1, &at(1), None));
    cache.get(&array, &at(1)).expect("read");
    assert!(cache.peek(&array, &at(1)).is_none(), "of another version than the opener saw");
    counting.take();
    for gets in [1, 0] {
        assert_eq!(bytes(cache.get(&array, &at(1)).expect("read")), Some(vec![5; 4]));
        assert_eq!(counting.take().gets, gets);
    }
}

#[test]
fn a_value_stored_right_after_a_write_is_not_mistaken_for_it() {
    let (store, counting) = CountingStore::new();
    let array = array(&store, 4, &json!([]));
    let cache = ChunkCache::new(1 << 20);
    let theirs = [Bytes::from_static(b"them").into()];
    let key = Key::parse("c/1").expect("a key");
    let write = store.clone();
    counting.after_set(move || {
        write.write().expect("writable").set(&key, &theirs, Condition::Always).expect("set");
    });
    cache
        .write(
            &Current::made_here(&array),
            &at(1),
            Some(b"ours".to_vec().into()),
            FillChunks::Store,
        )
        .expect("written");
    let now = array.stat(&at(1)).expect("stat").expect("there").version;
    cache.keep_only(&array, &at(1), Some(now));
    assert_eq!(bytes(cache.get(&array, &at(1)).expect("read")), Some(b"them".to_vec()));
}

#[test]
fn readers_and_writers_of_inner_chunks_never_see_an_older_one_again() {
    let (store, _) = CountingStore::new();
    let codec = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [10], "codecs": [{"name": "gzip"}], "index_codecs": [{"name": "crc32c"}],
    }}]);
    let array = array(&store, 40, &codec);
    let cache = ChunkCache::new(2000);
    for index in 0..4 {
        cache
            .write(&Current::made_here(&array), &at(index), chunk(1, 10), FillChunks::Store)
            .expect("written");
    }
    std::thread::scope(|scope| {
        for index in 0..4 {
            let (cache, array) = (&cache, &array);
            scope.spawn(move || {
                for byte in 2..60 {
                    cache
                        .write(
                            &Current::made_here(array),
                            &at(index),
                            chunk(byte, 10),
                            FillChunks::Store,
                        )
                        .expect("written");
                    let found = cache.get(array, &at(index)).expect("read").expect("there");
                    assert_eq!(*found.bytes, [byte; 10], "its only writer has just stored it");
                }
            });
            scope.spawn(move || {
                let mut seen = 0;
                while seen < 59 {
                    let found = cache.get(array, &at(index)).expect("read").expect("there");
                    assert!(found.bytes[0] >= seen, "back from {seen} to {}", found.bytes[0]);
                    seen = found.bytes[0];
                }
            });
        }
    });
    assert!(cache.len() <= 2000);
}

#[test]
fn concurrent_changes_of_parts_of_one_chunk_are_all_kept() {
    const WRITERS: usize = 4;
    let (store, _) = CountingStore::new();
    let array = array(&store, WRITERS as u64, &json!([]));
    let cache = ChunkCache::new(1 << 20);
    let root = NodePath::root();
    for round in 0..200 {
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (cache, array, root) = (&cache, &array, &root);
                scope.spawn(move || {
                    cache
                        .change(root, array, &at(0), (&Cover::Part(1), None), &mut |bytes| {
                            bytes[writer] = round;
                            Ok(())
                        })
                        .expect("changed");
                });
            }
        });
        let found = cache.get(&array, &at(0)).expect("read");
        assert_eq!(bytes(found), Some(vec![round; WRITERS]));
        // Each round begins without pending chunks.
        cache.defer(&root, &ChunkRef::new(&array, &at(0)), None, None).expect("deferred");
    }
}

/// Writes `byte` to a range of a chunk, as a program does that goes on to write the whole chunk.
fn put(cache: &ChunkCache, array: &Arc<Array>, range: std::ops::Range<usize>, byte: u8) {
    let cover = Cover::Range(range.len() as u64, range.clone());
    let mut change = |bytes: &mut [u8]| {
        bytes[range.clone()].fill(byte);
        Ok(())
    };
    cache.change(&NodePath::root(), array, &at(0), (&cover, None), &mut change).expect("changed");
}

#[test]
fn a_chunk_that_is_written_from_end_to_end_is_not_read() {
    let (store, counting) = CountingStore::new();
    let array = array(&store, 8, &json!([]));
    Current::made_here(&array)
        .write_chunks(vec![(at(0), chunk(1, 8))], FillChunks::Store)
        .expect("written");
    let key = array.key(&at(0)).expect("a key");
    let cache = ChunkCache::new(1 << 20);
    let store_all = || {
        cache.store(&key, &Current::made_here(&array), FillChunks::Store, || {}).expect("stored").1
    };
    counting.take();
    for range in [0..3, 3..7, 7..8] {
        assert_eq!(cache.take_full(), None, "something is missing");
        put(&cache, &array, range, 2);
    }
    assert_eq!(cache.take_full(), Some(key.clone()));
    store_all().expect("read");
    assert_eq!(counting.take().gets, 0);
    // Bytes that were not written have their stored values, whichever is read first.
    put(&cache, &array, 2..4, 3);
    assert!(cache.peek(&array, &at(0)).is_none(), "it takes a read");
    assert_eq!(
        bytes(cache.get(&array, &at(0)).expect("read")),
        Some([2, 2, 3, 3, 2, 2, 2, 2].into())
    );
    put(&cache, &array, 6..7, 4);
    store_all().expect("read");
    put(&cache, &array, 0..1, 5);
    // The ranges are not adjacent, so the bytes between them must be read.
    put(&cache, &array, 5..8, 5);
    store_all().expect("read");
    put(&cache, &array, 3..5, 6);
    store_all().expect("read");
    let stored = array.read_chunk(&at(0)).expect("read").expect("there").0;
    assert_eq!(stored.to_vec(), [5, 2, 3, 6, 6, 5, 5, 5]);
}

#[test]
fn a_part_of_a_chunk_that_cannot_be_decoded_waits_for_the_rest() {
    let (store, _) = CountingStore::new();
    let array = array(&store, 8, &json!([]));
    let key = array.key(&at(0)).expect("a key");
    let damaged = [Bytes::from_static(b"short").into()];
    store.write().expect("writable").set(&key, &damaged, Condition::Always).expect("set");
    let cache = ChunkCache::new(1 << 20);
    let store_all =
        || cache.store(&key, &Current::made_here(&array), FillChunks::Store, || {}).expect("tried");
    put(&cache, &array, 0..3, 2);
    cache.get(&array, &at(0)).expect_err("its other bytes cannot be read");
    let (stored, unread) = store_all();
    assert!(stored.is_empty() && unread.is_err(), "nor can it be stored");
    assert_eq!(cache.complete_all(&array, &key).len(), 1, "what was written of it is gone");
    // A complete write needs no stored bytes.
    put(&cache, &array, 3..8, 2);
    let (stored, unread) = store_all();
    assert!(stored.len() == 1 && unread.is_ok());
    assert_eq!(bytes(cache.get(&array, &at(0)).expect("read")), Some(vec![2; 8]));
}

#[test]
fn readers_of_a_chunk_that_is_being_written_find_old_bytes_or_new_ones() {
    let (store, _) = CountingStore::new();
    let array = array(&store, 64, &json!([]));
    let key = array.key(&at(0)).expect("a key");
    Current::made_here(&array)
        .write_chunks(vec![(at(0), chunk(0, 64))], FillChunks::Store)
        .expect("written");
    let cache = ChunkCache::new(1 << 20);
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for storing in [false, true] {
            let (cache, array, key, done) = (&cache, &array, &key, &done);
            scope.spawn(move || {
                while done.load(Ordering::SeqCst) == 0 {
                    let found = cache.get(array, &at(0)).expect("read").expect("there").bytes;
                    // Each round writes from the first byte on.
                    assert!(found.is_sorted_by(|one, other| one >= other), "{:?}", &found[..]);
                    assert!(found[0] - found[63] <= 1, "{:?}", &found[..]);
                    if storing {
                        let stored =
                            cache.store(key, &Current::made_here(array), FillChunks::Store, || {});
                        stored.expect("stored").1.expect("read");
                    }
                }
            });
        }
        for round in 1..=200 {
            for start in (0..64).step_by(8) {
                put(&cache, &array, start..start + 8, round);
            }
        }
        done.store(1, Ordering::SeqCst);
    });
    cache
        .store(&key, &Current::made_here(&array), FillChunks::Store, || {})
        .expect("stored")
        .1
        .expect("read");
    assert_eq!(array.read_chunk(&at(0)).expect("read").expect("there").0.to_vec(), [200; 64]);
}

#[test]
fn a_chunk_that_waits_is_changed_in_place_and_copied_only_where_others_have_its_bytes() {
    let (store, _) = CountingStore::new();
    let array = array(&store, 100, &json!([{"name": "bytes"}]));
    let cache = ChunkCache::new(1 << 20);
    cache
        .defer(&NodePath::root(), &ChunkRef::new(&array, &at(3)), chunk(7, 100), None)
        .expect("deferred");
    let mut change = |bytes: &mut [u8]| {
        bytes[0] = bytes[0].wrapping_add(1);
        Ok(())
    };
    let cover = Cover::Part(1);
    assert!(cache.try_change(&array, &at(3), &cover, &mut change).expect("changed"));
    // `try_change` must not copy, and the copy must not block the table.
    let shared = cache.get(&array, &at(3)).expect("read").expect("there");
    assert!(!cache.try_change(&array, &at(3), &cover, &mut change).expect("asked"));
    cache.change(&NodePath::root(), &array, &at(3), (&cover, None), &mut change).expect("changed");
    assert_eq!(shared.bytes[0], 8, "who has read it saw the change");
    assert!(cache.try_change(&array, &at(3), &cover, &mut change).expect("changed"));
    assert_eq!(bytes(cache.get(&array, &at(3)).expect("read")).expect("there")[0], 10);
}

/// Returns the chunk that a program stores if it opens the chunk file and writes `byte` at `index`.
fn changed(cache: &ChunkCache, array: &Arc<Array>, index: usize, byte: u8) -> NewChunk {
    let chunk = cache.get(array, &at(0)).expect("read").expect("there");
    let mut bytes = chunk.bytes.to_vec();
    bytes[index] = byte;
    NewChunk { bytes: Some(bytes.into()), base: Some(chunk.base()) }
}

/// Returns a chunk of eight ones in `store`.
fn ones(store: &Store) -> (Arc<Array>, Key) {
    let array = array(store, 8, &json!([]));
    Current::made_here(&array)
        .write_chunks(vec![(at(0), chunk(1, 8))], FillChunks::Store)
        .expect("written");
    let key = array.key(&at(0)).expect("a key");
    (array, key)
}

fn stored(array: &Array) -> Vec<u8> {
    array.read_chunk(&at(0)).expect("read").expect("there").0.to_vec()
}

#[test]
fn an_element_that_is_changed_back_while_its_chunk_is_stored_stays_changed_back() {
    let (store, _) = CountingStore::new();
    let (array, key) = ones(&store);
    let cache = ChunkCache::new(1 << 20);
    let defer = |new| {
        cache.defer(&NodePath::root(), &ChunkRef::new(&array, &at(0)), new, None).expect("deferred")
    };
    defer(changed(&cache, &array, 0, 9));
    let back = || {
        defer(changed(&cache, &array, 0, 1));
    };
    cache
        .store(&key, &Current::made_here(&array), FillChunks::Store, back)
        .expect("stored")
        .1
        .expect("read");
    assert_eq!(stored(&array), [9, 1, 1, 1, 1, 1, 1, 1]);
    cache
        .store(&key, &Current::made_here(&array), FillChunks::Store, || {})
        .expect("stored")
        .1
        .expect("read");
    assert_eq!(stored(&array), [1; 8]);
}

#[test]
fn changes_made_while_a_chunk_is_stored_stay_pending() {
    let (store, counting) = CountingStore::new();
    let (array, key) = ones(&store);
    let cache = Arc::new(ChunkCache::new(1 << 20));
    put(&cache, &array, 0..2, 2);
    let new = changed(&cache, &array, 4, 4);
    let (others, of) = (Arc::clone(&cache), Arc::clone(&array));
    counting.after_set(move || put(&others, &of, 2..3, 3));
    cache.write(&Current::made_here(&array), &at(0), new, FillChunks::Store).expect("written");
    assert_eq!(
        bytes(cache.get(&array, &at(0)).expect("read")),
        Some([2, 2, 3, 1, 4, 1, 1, 1].into())
    );
    cache
        .store(&key, &Current::made_here(&array), FillChunks::Store, || {})
        .expect("stored")
        .1
        .expect("read");
    assert_eq!(stored(&array), [2, 2, 3, 1, 4, 1, 1, 1]);
    assert_eq!(cache.pending_len(), 0);
}

#[test]
fn a_change_of_a_chunk_that_another_program_has_damaged_meanwhile_is_stored() {
    let (store, _) = CountingStore::new();
    let (array, key) = ones(&store);
    let cache = ChunkCache::new(1 << 20);
    let damage = || {
        let damaged = [Bytes::from_static(b"short").into()];
        store.write().expect("writable").set(&key, &damaged, Condition::Always).expect("set");
    };
    let new = changed(&cache, &array, 0, 2);
    damage();
    cache.write(&Current::made_here(&array), &at(0), new, FillChunks::Store).expect("written");
    assert_eq!(stored(&array), [2, 1, 1, 1, 1, 1, 1, 1]);
    let new = changed(&cache, &array, 1, 2);
    cache.defer(&NodePath::root(), &ChunkRef::new(&array, &at(0)), new, None).expect("deferred");
    damage();
    cache
        .store(&key, &Current::made_here(&array), FillChunks::Store, || {})
        .expect("stored")
        .1
        .expect("read");
    assert_eq!(stored(&array), [2, 2, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn a_change_of_a_chunk_that_another_program_has_replaced_by_a_link_is_stored() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = DirectoryStore::open(place.path(), Durability::Buffered).expect("open");
    let store = Store::new(Arc::new(directory));
    let (array, key) = ones(&store);
    let cache = ChunkCache::new(1 << 20);
    let file = place.path().join(key.as_str());
    let replace = || {
        std::fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink("/etc/hostname", &file).expect("linked");
    };
    let new = changed(&cache, &array, 0, 2);
    replace();
    cache.write(&Current::made_here(&array), &at(0), new, FillChunks::Store).expect("written");
    assert_eq!(stored(&array), [2, 1, 1, 1, 1, 1, 1, 1]);
    let new = changed(&cache, &array, 1, 2);
    cache.defer(&NodePath::root(), &ChunkRef::new(&array, &at(0)), new, None).expect("deferred");
    replace();
    cache
        .store(&key, &Current::made_here(&array), FillChunks::Store, || {})
        .expect("stored")
        .1
        .expect("read");
    assert_eq!(stored(&array), [2, 2, 1, 1, 1, 1, 1, 1]);
}
