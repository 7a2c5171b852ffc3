//! Many writers of one shard: no writer loses changes of another.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::forms::{self, StoredAs, places};
use crate::array::{Array, ChunkChange, Coords, FillChunks};
use zarrfs_store::directory::{DirectoryStore, Durability};
use zarrfs_store::memory::MemoryStore;
use zarrfs_store::{ByteRange, Store};

const THREADS: usize = 4;
const ROUNDS: usize = 25;

fn memory() -> Store {
    Store::new(Arc::new(MemoryStore::new()))
}

fn directory(path: &Path) -> Store {
    Store::new(Arc::new(DirectoryStore::open(path, Durability::Buffered).expect("opens")))
}

/// What `thread` stores in a chunk in its last round, `None` if it erases the chunk.
fn last(thread: usize, round: usize, coords: &Coords) -> Option<Bytes> {
    let len = (thread * 7 + round * 3) % 11;
    (round % 3 != 2 || thread.is_multiple_of(2))
        .then(|| format!("{coords} {thread} {round} {}", "x".repeat(len)).into())
}

/// Each thread opens the array itself, changes its own chunks repeatedly, and checks that other
/// threads have not changed them. Every shard has chunks of all threads.
fn contend(form: &StoredAs, stores: &[Store]) {
    let all = places(form.open(&stores[0]).grid().counts());
    let mine = |thread: usize| all.iter().skip(thread).step_by(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let array = form.open(&stores[thread % stores.len()]);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let change = |coords: &Coords| match last(thread, round, coords) {
                        Some(bytes) => ChunkChange::set(coords.clone(), bytes),
                        None => ChunkChange::erase(coords.clone()),
                    };
                    let changes: Vec<ChunkChange> = mine(thread).map(change).collect();
                    if round % 2 == 0 {
                        array.chunks().update(changes).expect("updated");
                    } else {
                        for change in changes {
                            array.chunks().update(vec![change]).expect("updated");
                        }
                    }
                    check(form, &array, thread, round, mine(thread));
                }
            });
        }
    });
    for thread in 0..THREADS {
        check(form, &form.open(&stores[0]), thread, ROUNDS - 1, mine(thread));
    }
}

fn check<'a>(
    form: &StoredAs,
    array: &Array,
    thread: usize,
    round: usize,
    mine: impl Iterator<Item = &'a Coords>,
) {
    let ranges: Vec<_> = mine.map(|coords| (coords.clone(), ByteRange::first(1 << 20))).collect();
    let values = array.chunks().get_partial_values(&ranges).expect("read");
    for ((coords, _), value) in ranges.iter().zip(values) {
        let found = value.map(|value| value.bytes);
        let want = last(thread, round, coords);
        assert_eq!(found, want, "{}: {coords}, thread {thread}, round {round}", form.name);
    }
}

/// The forms that differ in how a shard is changed.
fn contended() -> impl Iterator<Item = StoredAs> {
    let names = [
        "index at the start",
        "gzip around",
        "nested",
        "draft",
        "draft, stacked",
        "transpose in front",
    ];
    forms::sharded().into_iter().filter(move |form| names.contains(&form.name.as_str()))
}

#[test]
fn writers_of_different_inner_chunks_lose_nothing_in_memory() {
    for form in contended() {
        contend(&form, &[memory()]);
    }
}

#[test]
fn writers_of_different_inner_chunks_lose_nothing_in_a_directory() {
    for form in contended() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // Two stores, as in two mounts.
        contend(&form, &[directory(dir.path()), directory(dir.path())]);
        let mut left = Vec::new();
        let store = directory(dir.path());
        let array = form.open(&store);
        array.chunks().erase_values(&places(array.grid().counts())).expect("erased");
        drop((array, store));
        left.extend(std::fs::read_dir(dir.path()).expect("listed"));
        assert!(left.is_empty(), "{}: left behind: {left:?}", form.name);
    }
}

#[test]
fn writers_of_parts_of_one_chunk_lose_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for store in [memory(), directory(dir.path())] {
        for form in contended() {
            let array = form.open(&store);
            let coords = places(array.grid().counts()).swap_remove(1);
            let blank = ChunkChange::set(coords.clone(), Bytes::from(vec![b'.'; THREADS * ROUNDS]));
            array.chunks().update(vec![blank]).expect("updated");
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (array, coords) = (form.open(&store), coords.clone());
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            let start = (round * THREADS + thread) as u64;
                            let part =
                                [(coords.clone(), start, Bytes::from(vec![b'0' + thread as u8]))];
                            array.chunks().set_partial_values(&part).expect("set");
                        }
                    });
                }
            });
            let whole = [(coords, ByteRange::first(1 << 20))];
            let value = array.chunks().get_partial_values(&whole).expect("read").remove(0);
            assert_eq!(value.expect("there").bytes, "0123".repeat(ROUNDS), "{}", form.name);
            array.chunks().erase_prefix(&[]).expect("erased");
        }
    }
}

#[test]
fn a_reader_sees_each_chunk_as_one_writer_stored_it_while_its_shard_is_replaced() {
    let codec = forms::sharding(&[64], json!([forms::bytes("little")]), forms::checked(), "end");
    let form = StoredAs::new("shards", &[256], &[256], json!([codec, {"name": "crc32c"}]));
    let dir = tempfile::tempdir().expect("a temporary directory");
    for store in [memory(), directory(dir.path())] {
        let chunk = |round: usize| Some(vec![round as u8; 128].into());
        let array = form.open(&store);
        let all = || places(&[4]).into_iter();
        let write = |round| all().map(|coords| (coords, chunk(round))).collect();
        array.write_chunks(write(1), FillChunks::Store).expect("written");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 1..100 {
                    for coords in all() {
                        let one = vec![(coords, chunk(round))];
                        array.write_chunks(one, FillChunks::Store).expect("written");
                    }
                }
            });
            let reader = form.open(&store);
            let mut seen = [0; 4];
            while !writer.is_finished() {
                for (coords, seen) in all().zip(&mut seen) {
                    let (bytes, _) = reader.read_chunk(&coords).expect("read").expect("there");
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn: {bytes:?}");
                    assert!(bytes[0] >= *seen, "{coords} went back from {seen} to {}", bytes[0]);
                    *seen = bytes[0];
                }
            }
        });
    }
}
