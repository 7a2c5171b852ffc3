use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::array::Coords;
use crate::array::region::Cover;
use crate::buffer::Buffer;
use crate::error::{Kind, Result};
use crate::hierarchy::{Hierarchy, HierarchyOptions};
use crate::metadata::NodePath;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::store::{Condition, Key};

/// An array of `data_type`, with chunks in memory.
fn hierarchy(document: &Value) -> Hierarchy {
    let store = Store::new(Arc::new(MemoryStore::new()));
    let text = Bytes::from(document.to_string());
    let key = Key::parse("zarr.json").expect("a key");
    store.write().expect("writable").set(&key, &[text.into()], Condition::Always).expect("set");
    Hierarchy::open(store, None, HierarchyOptions::default()).expect("opens")
}

fn array(shape: &[u64], chunks: &[u64], data_type: &str, fill: &Value) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": fill,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {},
    })
}

/// A file of 16-bit numbers: each element is its own number in the array, or the fill value.
#[derive(Debug, Clone)]
struct Case {
    shape: Vec<u64>,
    chunks: Vec<u64>,
    missing: u64,
    layout: Layout,
    items: NumberForm,
    /// The axes in the order of the file.
    order: Vec<usize>,
}

fn case() -> impl Strategy<Value = Case> {
    let axis = (0_u64..7, 1_u64..5);
    let layout = prop::sample::select(&[Layout::Linear, Layout::Chunks][..]);
    let axes = prop::collection::vec(axis, 0..4).prop_flat_map(|axes| {
        let order: Vec<usize> = (0..axes.len()).collect();
        (Just(axes), Just(order).prop_shuffle())
    });
    (axes, any::<u64>(), layout, any::<[bool; 2]>()).prop_map(
        |((axes, order), missing, layout, [big_endian, flip_sign])| {
            let (shape, chunks) = axes.into_iter().unzip();
            let items = NumberForm { big_endian, flip_sign };
            Case { shape, chunks, missing, layout, items, order }
        },
    )
}

const FILL: u16 = 0x1234;

struct ViewBed {
    chunks: RefCell<HashMap<Vec<u64>, Vec<u8>>>,
    view: View,
    file: Vec<u8>,
}

/// The expected state of a case, computed element by element.
fn bed(case: &Case) -> ViewBed {
    let hierarchy = hierarchy(&array(&case.shape, &case.chunks, "uint16", &json!(FILL)));
    let none: &GetChunk<'_> = &|_, _, _| Ok(None);
    let source = ViewSource::new(&hierarchy, &NodePath::root(), none).expect("understood");
    let elements = source.elements(case.layout, case.items).expect("a file");
    let elements = match case.layout {
        Layout::Linear => elements.turned(&case.order).expect("an order of all axes"),
        Layout::Chunks => elements,
    };
    let grid = source.array().expect("an array").grid().clone();
    let rank = case.shape.len();
    let all = |lens: &[u64]| -> Vec<Vec<u64>> {
        let mut all = vec![vec![]];
        for len in lens {
            let with = |at: &Vec<u64>| {
                let at = at.clone();
                (0..*len).map(move |i| [&at[..], &[i]].concat()).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        all
    };
    let number = |at: &[u64]| -> u16 { at.iter().fold(7, |sum, i| sum * 11 + *i as u16) };
    let mut chunks = HashMap::new();
    for (index, coords) in all(grid.counts()).into_iter().enumerate() {
        if case.missing >> (index % 64) & 1 == 1 {
            continue;
        }
        let mut bytes = Vec::new();
        for within in all(&case.chunks) {
            let at: Vec<u64> = (0..rank).map(|i| coords[i] * case.chunks[i] + within[i]).collect();
            bytes.extend(number(&at).to_le_bytes());
        }
        chunks.insert(coords, bytes);
    }
    let mut file = vec![1, 2, 3];
    let mut put = |coords: &[u64], at: &[u64]| {
        let value = if chunks.contains_key(coords) { number(at) } else { FILL };
        let value = if case.items.flip_sign { value ^ 0x8000 } else { value };
        let turned = case.items.big_endian;
        file.extend(if turned { value.to_be_bytes() } else { value.to_le_bytes() });
    };
    match case.layout {
        Layout::Linear => {
            let shape: Vec<u64> = case.order.iter().map(|axis| case.shape[*axis]).collect();
            for turned in all(&shape) {
                let mut at = vec![0; rank];
                case.order.iter().zip(turned).for_each(|(axis, index)| at[*axis] = index);
                let coords: Vec<u64> = (0..rank).map(|i| at[i] / case.chunks[i]).collect();
                put(&coords, &at);
            }
        }
        Layout::Chunks => {
            for coords in all(grid.counts()) {
                for within in all(&case.chunks) {
                    let at: Vec<u64> =
                        (0..rank).map(|i| coords[i] * case.chunks[i] + within[i]).collect();
                    put(&coords, &at);
                }
            }
        }
    }
    file.extend([0; 5]);
    file.extend([4, 5]);
    let parts = [vec![1, 2, 3].into(), elements.into(), Part::Zeros(5), vec![4, 5].into()];
    let view = View::new(parts).expect("a file");
    ViewBed { chunks: RefCell::new(chunks), view, file }
}

impl ViewBed {
    /// Returns every second chunk as a whole, and only the requested range of the others.
    fn get(&self, coords: &Coords, range: &Range<usize>) -> Option<Excerpt> {
        let chunk = self.chunks.borrow().get(coords.indices()).cloned()?;
        if coords.indices().iter().sum::<u64>() % 2 == 0 {
            return Some(Buffer::from(chunk).into());
        }
        let bytes = chunk[range.clone()].to_vec().into();
        Some(Excerpt { bytes, start: range.start })
    }

    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        self.view.read(offset, len, &|_, coords, range| Ok(self.get(coords, range))).expect("read")
    }

    fn write(&self, offset: u64, data: &[u8], case: &Case) -> Result<()> {
        let chunk_len = case.chunks.iter().product::<u64>();
        let fill = FILL.to_le_bytes().repeat(chunk_len as usize);
        self.view.write(offset, data, &|_, _, _| Ok(None), &mut |_, coords, cover, change| {
            let mut chunks = self.chunks.borrow_mut();
            if cover == Cover::Whole {
                chunks.remove(coords.indices());
            }
            change(chunks.entry(coords.indices().to_vec()).or_insert_with(|| fill.clone()))
        })
    }
}

proptest! {
    #[test]
    fn any_range_of_a_view_is_that_of_the_whole_file(
        case in case(),
        ranges in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..300), 1..8),
    ) {
        let bed = bed(&case);
        prop_assert_eq!(bed.view.len(), bed.file.len() as u64);
        prop_assert_eq!(&bed.read(0, usize::MAX), &bed.file);
        for (start, len) in ranges {
            let start = start.index(bed.file.len() + 1);
            let end = (start + len).min(bed.file.len());
            prop_assert_eq!(&bed.read(start as u64, len), &bed.file[start..end]);
        }
    }

    #[test]
    fn a_write_to_a_view_changes_only_its_bytes(
        case in case(),
        writes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..60, any::<u8>()), 1..8),
    ) {
        let bed = bed(&case);
        let mut file = bed.file.clone();
        let elements = 3..file.len() - 7;
        for (start, len, byte) in writes {
            let start = start.index(file.len() + 1);
            let data: Vec<u8> = (0..len).map(|i| byte.wrapping_add(i as u8)).collect();
            let before = file.clone();
            let end = start + len;
            let fits = end <= file.len()
                && (start..end).all(|at| elements.contains(&at) || file[at] == data[at - start]);
            let written = bed.write(start as u64, &data, &case);
            prop_assert_eq!(written.is_ok(), fits, "{:?}", written);
            if fits {
                file[start..end].copy_from_slice(&data);
            } else {
                let kind = if end > file.len() { Kind::TooLarge } else { Kind::NotPermitted };
                prop_assert_eq!(written.expect_err("refused").kind(), kind);
            }
            // Elements of a chunk outside of the array can be written in the layout by chunks; a
            // linear file does not have them.
            let now = bed.read(0, usize::MAX);
            prop_assert_eq!(&now, &file, "was {:?}", before);
        }
    }
}

#[test]
fn bookkeeping_is_kept_and_touches_no_chunk() {
    let case = Case {
        shape: vec![4],
        chunks: vec![2],
        missing: 0,
        layout: Layout::Linear,
        items: NumberForm::default(),
        order: vec![0],
    };
    let bed = bed(&case);
    let bed = ViewBed { view: bed.view.with_bookkeeping(1..2), ..bed };
    let before = bed.chunks.borrow().clone();
    bed.write(0, &[1, 9, 3], &case).expect("only the byte that may change does");
    assert_eq!(bed.read(0, 3), [1, 9, 3]);
    bed.write(1, &[8], &case).expect("again");
    assert_eq!(bed.read(0, 3), [1, 8, 3]);
    bed.write(0, &[2, 9], &case).expect_err("another changes, too");
    assert_eq!(bed.read(0, 3), [1, 8, 3]);
    assert_eq!(*bed.chunks.borrow(), before);
}

#[test]
fn a_part_of_the_elements_is_read_and_written_where_it_lies() {
    let hierarchy = hierarchy(&array(&[4, 3], &[2, 2], "uint16", &json!(0)));
    let chunks: RefCell<HashMap<Vec<u64>, Vec<u8>>> = RefCell::default();
    let get: &GetChunk<'_> = &|_, coords, _| {
        Ok(chunks.borrow().get(coords.indices()).cloned().map(|it| Buffer::from(it).into()))
    };
    let source = ViewSource::new(&hierarchy, &NodePath::root(), get).expect("understood");
    let all = source.elements(Layout::Linear, NumberForm::default()).expect("a file");
    all.range(20, 5).expect_err("past the end");
    let (rows, first) = (all.range(12, 12).expect("in it"), all.range(0, 12).expect("in it"));
    let view = View::new([rows.range(6, 6).expect("in it").into(), first.into()]).expect("a file");
    let data: Vec<u8> = (1..=18).collect();
    view.write(0, &data, &|_, _, _| Ok(None), &mut |_, coords, _, change| {
        let mut chunks = chunks.borrow_mut();
        change(chunks.entry(coords.indices().to_vec()).or_insert_with(|| vec![0; 8]))
    })
    .expect("written");
    assert_eq!(view.read(0, 100, get).expect("read"), data);
    let all = View::new([all.into()]).expect("a file");
    let expected = [&data[6..], &[0; 6], &data[..6]].concat();
    assert_eq!(all.read(0, 100, get).expect("read"), expected);
}

#[test]
fn a_slab_is_a_row_of_chunks() {
    let slab = |shape: &[u64], chunks: &[u64], layout| {
        let hierarchy = hierarchy(&array(shape, chunks, "uint16", &json!(0)));
        let none: &GetChunk<'_> = &|_, _, _| Ok(None);
        let source = ViewSource::new(&hierarchy, &NodePath::root(), none).expect("understood");
        source.elements(layout, NumberForm::default()).expect("a file").slab_len()
    };
    assert_eq!(slab(&[100, 72, 144], &[10, 9, 12], Layout::Linear), Some(8 * 12 * 2160));
    assert_eq!(slab(&[100, 72, 144], &[10, 9, 12], Layout::Chunks), Some(2160));
    assert_eq!(slab(&[100, 72, 144], &[1, 9, 12], Layout::Linear), Some(12 * 216));
    assert_eq!(slab(&[100, 72], &[1, 72], Layout::Linear), Some(144));
    assert_eq!(slab(&[], &[], Layout::Linear), Some(2));
}
