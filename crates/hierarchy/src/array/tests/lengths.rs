//! Chunks with different lengths.

use std::sync::Arc;

use serde_json::json;

use super::forms::{StoredAs, bytes, checked, prefix, sharding};
use crate::array::{Array, ArrayOptions, ChunkLen, Coords, FillChunks};
use crate::metadata::model;
use zarrfs_base::error::Kind;
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

#[test]
fn shards_on_a_rectilinear_grid_are_not_read() {
    let codec = sharding(&[2], json!([bytes("little")]), checked(), "end");
    let mut form = StoredAs::new("shards", &[6], &[4], json!([codec]));
    form.model.rectilinear = Some(vec![vec![(4, 1), (2, 1)]]);
    let array = open(&form.model, 1 << 20);
    assert_eq!(array.not_understood().expect("not read").kind(), Kind::Unsupported);
    assert_eq!(array.grid().counts(), [2]);
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
