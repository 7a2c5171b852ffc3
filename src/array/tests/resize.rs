//! A new shape erases the chunks that lie wholly outside of it, and no others.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::forms::{self, Form, bytes, checked, key, places, prefix, sharding};
use crate::array::{Array, Change, Coords, ShardLayout};
use crate::error::Kind;
use crate::store::counting::CountingStore;
use crate::store::memory::MemoryStore;
use crate::store::{Condition, Store};

fn memory() -> Store {
    Store::new(Arc::new(MemoryStore::new()))
}

fn fill(array: &Array) {
    let set = |coords: Coords| {
        let bytes = Bytes::from(coords.to_string());
        Change::set(coords, bytes)
    };
    let all = places(array.grid().counts()).into_iter().map(set).collect();
    array.chunks().update(all).expect("updated");
}

fn list(array: &Array) -> Vec<Coords> {
    let list = Arc::clone(array.chunks()).list().expect("listed");
    let mut list: Vec<Coords> = list.map(|coords| coords.expect("coords")).collect();
    list.sort();
    list
}

#[test]
fn shrinking_erases_the_chunks_that_lie_wholly_outside() {
    for form in forms::all() {
        let rank = form.model.shape.len();
        for numerator in 0..=4 {
            for axis in 0..rank.max(1) {
                let array = form.open(&memory());
                fill(&array);
                let mut shape = form.model.shape.clone();
                if let Some(len) = shape.get_mut(axis) {
                    *len = *len * numerator / 4;
                }
                array.erase_outside(&shape).expect("erased");
                let reaches = |coords: &Coords| {
                    let starts = coords.indices().iter().zip(array.chunk_shape());
                    starts.zip(&shape).all(|((index, chunk), len)| index * chunk < *len)
                };
                let mut want = places(array.grid().counts());
                want.retain(reaches);
                assert_eq!(list(&array), want, "{}: {shape:?}", form.name);
            }
        }
    }
}

#[test]
fn growing_touches_nothing() {
    let form = &forms::sharded()[0];
    let (store, counting) = CountingStore::new();
    let array = form.open(&store);
    fill(&array);
    counting.take();
    array.erase_outside(&[100, 100]).expect("nothing to erase");
    array.erase_outside(&[9, 13]).expect("nothing to erase: the same chunks");
    assert_eq!(counting.take(), crate::store::counting::Calls::default());
}

#[test]
fn a_shard_that_is_cut_is_changed_once_and_one_outside_is_erased() {
    let codec = sharding(&[1], json!([bytes("little")]), checked(), "end");
    let form = Form::new("shards", &[16], &[4], json!([codec]));
    let (store, counting) = CountingStore::new();
    let array = form.open(&store);
    fill(&array);
    counting.take();
    array.erase_outside(&[6]).expect("erased");
    let calls = counting.take();
    assert_eq!((calls.sets, calls.erases, calls.erases_unchanged), (1, 2, 0));
}

#[test]
fn a_shape_of_other_dimensions_erases_nothing() {
    let form = &forms::sharded()[0];
    let array = form.open(&memory());
    fill(&array);
    for shape in [&[][..], &[1], &[1, 1, 1]] {
        let error = array.erase_outside(shape).expect_err("of other dimensions");
        assert_eq!(error.kind(), Kind::Invalid, "{shape:?}");
    }
    assert_eq!(list(&array).len(), 35);
}

#[test]
fn a_damaged_shard_keeps_no_other_from_being_erased() {
    let codec = sharding(&[1], json!([bytes("little")]), checked(), "end");
    let form = Form::new("shards", &[16], &[4], json!([codec]));
    let store = memory();
    let array = form.open(&store);
    fill(&array);
    let write = store.write().expect("writable");
    let damage = [Bytes::from(vec![1; 100]).into()];
    write.set(&key("c/1"), &damage, Condition::Always).expect("set");
    let error = array.erase_outside(&[2]).expect_err("one is damaged");
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().starts_with("data/root/a/c/1: "), "{error}");
    let left: Vec<_> = [0, 1, 2, 3]
        .iter()
        .map(|shard| store.stat(&key(&format!("c/{shard}"))).expect("stat").is_some())
        .collect();
    assert_eq!(left, [true, true, false, false]);
}

#[test]
fn an_array_that_cannot_be_decoded_can_be_shrunk() {
    let form = Form::new("unknown", &[8], &[2], json!([{"name": "homeopathy"}]));
    let store = memory();
    let array =
        Array::open(form.model, &store, prefix(), 1 << 20, ShardLayout::default()).expect("opened");
    assert!(array.not_understood().is_some());
    fill(&array);
    array.erase_outside(&[3]).expect("erased");
    assert_eq!(list(&array), [Coords::new([0]), Coords::new([1])]);
}
