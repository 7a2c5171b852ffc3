//! Chunks with different lengths.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::forms::{StoredAs, bytes, checked, prefix, sharding};
use crate::array::{Array, ArrayOptions, ChunkLen, Coords, FillChunks};
use crate::metadata::model;
use zarrfs_base::error::{Error, Kind};
use zarrfs_codec::dtype::{DType, FillValue};
use zarrfs_codec::vlen;
use zarrfs_store::Store;
use zarrfs_store::memory::MemoryStore;

fn open(model: &model::ArrayMetadata, limit: u64) -> Array {
    let store = Store::new(Arc::new(MemoryStore::new()));
    Array::open(model.clone(), &store, prefix(), ArrayOptions::new(limit)).expect("opened")
}

fn at(index: u64) -> Coords {
    Coords::new([index])
}

#[test]
fn on_a_rectilinear_grid_only_the_chunks_over_the_limit_are_too_large() {
    let mut form = StoredAs::new("lengths", &[113], &[100], json!([bytes("big")]));
    form.model.rectilinear = Some(vec![vec![(3, 4), (100, 1), (1, 1)]]);
    let array = open(&form.model, 100);
    assert_eq!(array.not_understood(), None);
    for (index, len) in [(0, 6), (3, 6), (5, 2)] {
        assert_eq!(array.chunk_len(&at(index)), Ok(ChunkLen::Exactly(len)));
        let chunk = vec![7; usize::try_from(len).expect("short")];
        array
            .write_chunks(vec![(at(index), Some(chunk.clone().into()))], FillChunks::Store)
            .expect("stored");
        assert_eq!(*array.read_chunk(&at(index)).expect("read").expect("stored").0, chunk);
    }
    assert_eq!(array.check_readable(&at(4)).expect_err("200 bytes").kind(), Kind::TooLarge);
    assert_eq!(array.fill_chunk(&at(4)).expect_err("200 bytes").kind(), Kind::TooLarge);
    let error = array.write_chunks(vec![(at(1), Some(vec![7; 2].into()))], FillChunks::Store);
    assert_eq!(error.expect_err("too short").kind(), Kind::Invalid);
    assert_eq!(array.chunk_len(&at(6)).expect_err("outside").kind(), Kind::Invalid);
}

#[test]
fn evicted_chunk_shapes_are_bound_again() {
    let mut form = StoredAs::new("shapes", &[20_100], &[200], json!([{"name": "gzip"}]));
    form.model.rectilinear = Some(vec![(1..=200).map(|len| (len, 1)).collect()]);
    let array = open(&form.model, 1 << 20);
    for round in 0..2_u8 {
        for (index, len) in (0..200).zip(1_usize..) {
            let chunk = vec![(at(index), Some(vec![round; 2 * len].into()))];
            array.write_chunks(chunk, FillChunks::Store).expect("stored");
        }
        for (index, len) in (0..200).zip(1_usize..) {
            let (chunk, _) = array.read_chunk(&at(index)).expect("read").expect("stored");
            assert_eq!(*chunk, vec![round; 2 * len]);
        }
    }
}

fn on_shards(codec: Json, lens: &[u64], runs: Vec<model::Runs>) -> Array {
    let mut form = StoredAs::new("shards", lens, &vec![4; lens.len()], json!([codec]));
    let longest = runs.iter().map(|runs| runs.iter().map(|(len, _)| *len).max());
    form.model.chunk_shape = longest.map(|len| len.expect("a run")).collect();
    form.model.rectilinear = Some(runs);
    open(&form.model, 1 << 20)
}

#[test]
fn shards_on_a_rectilinear_grid_have_as_many_slots_as_they_have_chunks() {
    let codec = sharding(&[2, 3], json!([bytes("little")]), checked(), "end");
    let runs = vec![vec![(4, 1), (2, 1), (6, 2)], vec![(3, 1), (9, 1)]];
    let array = on_shards(codec, &[11, 12], runs);
    assert_eq!(array.not_understood(), None);
    assert_eq!(array.grid().counts(), [6, 4]);
    assert!(array.grid().is_regular() && array.is_sharded());
    assert_eq!(array.shard_shape_json(), Some(json!([[4, 2, [6, 2]], [3, 9]])));
    assert_eq!(array.chunk_shape_json(), json!([2, 3]));
    for (chunk, beside) in [([0, 0], 2), ([1, 0], 2), ([1, 1], 6), ([2, 0], 1), ([5, 3], 9)] {
        assert_eq!(array.chunks_beside(&Coords::new(chunk)), beside, "{chunk:?}");
    }
    let chunks = array.chunks();
    for (shard, slots, last) in [([0, 0], 2, [1, 0]), ([0, 1], 6, [1, 3]), ([2, 1], 9, [5, 3])] {
        let shard = Coords::new(shard);
        assert_eq!(chunks.slots_in_shard(&shard), slots, "{shard}");
        assert_eq!(chunks.in_slot(&shard, slots - 1), Coords::new(last), "{shard}");
        assert_eq!(chunks.key(&Coords::new(last)), array.levels()[0].key(&shard), "{shard}");
    }
    // The last shard reaches beyond the array.
    assert_eq!(array.chunks_in(&Coords::new([3, 1])).expect("inside"), (vec![6, 1], vec![3, 3]));
}

#[test]
fn shards_with_parts_of_chunks_are_not_read() {
    let codec = sharding(&[2], json!([bytes("little")]), checked(), "end");
    for (lens, divides) in [(vec![(4, 1), (2, 1)], true), (vec![(4, 1), (3, 1)], false)] {
        let array = on_shards(codec.clone(), &[6], vec![lens]);
        let error = array.not_understood();
        assert_eq!(error.map(Error::kind), (!divides).then_some(Kind::Corrupt), "{error:?}");
    }
    let array = on_shards(codec, &[6], vec![vec![(4, 1), (2, 1), (3, 1)]]);
    let error = array.not_understood().expect("a shard outside of the array is too long");
    assert!(error.to_string().contains("do not divide the shards along dimension 0"), "{error}");
}

#[test]
fn only_the_shards_with_too_many_chunks_are_too_large() {
    let codec = sharding(&[1], json!([bytes("little")]), checked(), "end");
    let most = zarrfs_base::limits::SHARD_CHUNKS.get();
    let array = on_shards(codec, &[most + 6], vec![vec![(2, 1), (most + 1, 1), (3, 1)]]);
    assert_eq!(array.not_understood(), None);
    for (index, is_read) in [(0, true), (2, false), (most + 3, true)] {
        let chunk = vec![(at(index), Some(vec![7; 2].into()))];
        let written = array.write_chunks(chunk, FillChunks::Store).map(drop);
        let read = array.read_chunk(&at(index)).map(|read| *read.expect("stored").0 == [7; 2]);
        assert_eq!(
            written.map_err(|e| e.kind()),
            if is_read { Ok(()) } else { Err(Kind::TooLarge) }
        );
        assert_eq!(
            read.map_err(|e| e.kind()),
            if is_read { Ok(true) } else { Err(Kind::TooLarge) }
        );
    }
    assert_eq!(Arc::clone(array.chunks()).list().expect("listed").count(), 2);
}

#[test]
fn a_chunk_of_text_is_skipped_only_where_every_element_is_the_fill_value() {
    let codec = sharding(&[2], json!([{"name": "vlen-utf8"}, {"name": "gzip"}]), checked(), "end");
    let mut form = StoredAs::new("text", &[4], &[4], json!([codec]));
    form.model.dtype = DType::String;
    form.model.fill = FillValue::parse(&json!("no"), &DType::String).expect("a fill value");
    let array = open(&form.model, 100);
    assert_eq!(array.chunk_len(&at(1)), Ok(ChunkLen::UpTo(100)));
    let fill = array.fill_chunk(&at(0)).expect("a chunk");
    assert_eq!(*fill, *b"\x02\0\0\0\x02\0\0\0no\x02\0\0\0no");
    assert_eq!(vlen::elements(&fill).count(), 2);
    let write = |chunk: Vec<u8>| {
        let written = array.write_chunks(vec![(at(0), Some(chunk.into()))], FillChunks::Skip);
        written.map(|stored| stored[0].is_some())
    };
    assert_eq!(write(fill.to_vec()), Ok(false));
    assert_eq!(
        write(fill.iter().map(|byte| if *byte == b'n' { b's' } else { *byte }).collect()),
        Ok(true)
    );
    assert_eq!(write(fill.to_vec()), Ok(false));
    assert!(array.read_chunk(&at(0)).expect("read").is_none());
    let short = write(fill[..fill.len() - 6].to_vec());
    assert_eq!(short.expect_err("one element").kind(), Kind::Invalid);
}
