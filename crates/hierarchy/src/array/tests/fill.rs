//! Chunks with only the fill value: skipped if equal bit for bit, otherwise stored.

use std::sync::Arc;

use serde_json::json;

use super::forms::{StoredAs, bytes, checked, prefix, sharding};
use crate::array::{Array, ArrayOptions, Coords, FillChunks};
use crate::testing::text;
use zarrfs_base::error::Kind;
use zarrfs_codec::dtype::{DType, FillValue};
use zarrfs_store::Store;
use zarrfs_store::memory::MemoryStore;

/// Two chunks of four elements, in one shard.
fn array(dtype: DType, fill: FillValue) -> Array {
    let codec = sharding(&[4], json!([bytes("big")]), checked(), "end");
    let mut model = StoredAs::new("fill", &[8], &[8], json!([codec])).model;
    (model.dtype, model.fill) = (dtype, fill);
    let store = Store::new(Arc::new(MemoryStore::new()));
    Array::open(model, &store, prefix(), ArrayOptions::new(1 << 20)).expect("opened")
}

fn of(dtype: DType, fill: &serde_json::Value) -> Array {
    let fill = FillValue::parse(fill, &dtype).expect("a fill value");
    array(dtype, fill)
}

/// Whether a chunk of four elements with these bits is stored when fill chunks are skipped.
fn is_stored(array: &Array, element: &[u8]) -> bool {
    let chunk = |element: &[u8]| Some(element.repeat(4).into());
    let coords = Coords::new([1]);
    let other = (0..element.len()).map(|i| i as u8 + 1).collect::<Vec<u8>>();
    let before = vec![(coords.clone(), chunk(&other))];
    array.write_chunks(before, FillChunks::Skip).expect("written");
    let written = array.write_chunks(vec![(coords.clone(), chunk(element))], FillChunks::Skip);
    let stat = array.stat(&coords).expect("stat");
    assert_eq!(text(&written.expect("written")), text(&[stat]));
    if let Some((bytes, _)) = array.read_chunk(&coords).expect("read") {
        assert_eq!(*bytes, element.repeat(4));
    }
    stat.is_some()
}

#[test]
fn a_chunk_is_skipped_only_where_every_bit_is_that_of_the_fill_value() {
    let zero = of(DType::Float(8), &json!(0.0));
    assert!(!is_stored(&zero, &0.0_f64.to_le_bytes()));
    assert!(is_stored(&zero, &(-0.0_f64).to_le_bytes()), "-0.0 is not 0.0");
    let minus = of(DType::Float(4), &json!("-0.0"));
    assert!(!is_stored(&minus, &(-0.0_f32).to_le_bytes()));
    assert!(is_stored(&minus, &0.0_f32.to_le_bytes()));
    let nan = of(DType::Float(4), &json!("NaN"));
    assert!(!is_stored(&nan, &0x7fc0_0000_u32.to_le_bytes()));
    assert!(is_stored(&nan, &0x7fc0_0001_u32.to_le_bytes()), "another payload");
    assert!(is_stored(&nan, &0xffc0_0000_u32.to_le_bytes()), "another sign");
    let payload = of(DType::Float(4), &json!("0x7fc00001"));
    assert!(!is_stored(&payload, &0x7fc0_0001_u32.to_le_bytes()));
    assert!(is_stored(&payload, &0x7fc0_0000_u32.to_le_bytes()));
    let complex = of(DType::Complex(8), &json!([0.0, "NaN"]));
    let parts =
        |real: f32, imaginary: u32| [real.to_bits(), imaginary].map(u32::to_le_bytes).concat();
    assert!(!is_stored(&complex, &parts(0.0, 0x7fc0_0000)));
    assert!(is_stored(&complex, &parts(-0.0, 0x7fc0_0000)));
}

#[test]
fn one_element_that_differs_is_enough_to_store_a_chunk() {
    let array = of(DType::Int(2), &json!(-2));
    for place in 0..8 {
        let mut bytes = (-2_i16).to_le_bytes().repeat(4);
        bytes[place] ^= 0x10;
        let chunk = vec![(Coords::new([0]), Some(bytes.clone().into()))];
        array.write_chunks(chunk, FillChunks::Skip).expect("written");
        let (found, _) = array.read_chunk(&Coords::new([0])).expect("read").expect("stored");
        assert_eq!(*found, bytes);
    }
}

#[test]
fn an_undefined_fill_value_is_no_reason_to_skip_zeros() {
    let array = array(DType::Int(2), FillValue::UNDEFINED);
    assert!(is_stored(&array, &[0, 0]));
    assert_eq!(*array.fill_chunk(&Coords::new([0])).expect("a chunk"), [0; 8]);
}

#[test]
fn fill_chunks_are_stored_if_requested() {
    let array = of(DType::Int(2), &json!(7));
    let fill = array.fill_chunk(&Coords::new([0])).expect("a chunk");
    assert_eq!(*fill, [7, 0, 7, 0, 7, 0, 7, 0]);
    let write = |how| {
        let written = array.write_chunks(vec![(Coords::new([0]), Some(fill.clone()))], how);
        written.expect("written")[0].is_some()
    };
    assert!(write(FillChunks::Store));
    assert!(!write(FillChunks::Skip));
}

#[test]
fn a_chunk_of_the_wrong_length_is_refused_and_never_taken_for_fill() {
    let array = of(DType::Int(2), &json!(0));
    let coords = Coords::new([0]);
    let chunk = |bytes: Vec<u8>| vec![(coords.clone(), Some(bytes.into()))];
    array.write_chunks(chunk(vec![1; 8]), FillChunks::Skip).expect("written");
    for len in [0, 1, 6, 7, 9, 16] {
        for how in [FillChunks::Skip, FillChunks::Store] {
            let error = array.write_chunks(chunk(vec![0; len]), how).expect_err("a wrong length");
            assert_eq!(error.kind(), Kind::Invalid, "{len} bytes: {error}");
            let (bytes, _) = array.read_chunk(&coords).expect("read").expect("still there");
            assert_eq!(*bytes, [1; 8], "{len} bytes");
        }
    }
}
