use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::hierarchy::{Hierarchy, HierarchyOptions};
use crate::metadata::NodePath;
use zarrfs_store::Store;
use zarrfs_store::directory::{DirectoryStore, Durability};

/// An array of 5 x 7 floats in chunks of 2 x 3, with the fill value 0.5. The element at (i, j) is
/// 10 i + j, and -1e30 outside of the array.
fn array(dir: &Path, is_stored: impl Fn(u64, u64) -> bool) -> Arc<Array> {
    let document = r#"{"zarr_format": 3, "node_type": "array", "shape": [5, 7],
        "data_type": "float32", "fill_value": 0.5, "attributes": {},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}"#;
    std::fs::write(dir.join("zarr.json"), document).expect("written");
    for (row, column) in (0..3).flat_map(|row| (0..3).map(move |column| (row, column))) {
        let element = |at: u64| {
            let (i, j) = (row * 2 + at / 3, column * 3 + at % 3);
            if i < 5 && j < 7 {
                f32::from(u16::try_from(10 * i + j).expect("small"))
            } else {
                -1e30
            }
        };
        if is_stored(row, column) {
            let bytes: Vec<u8> = (0..6).flat_map(|at| element(at).to_le_bytes()).collect();
            std::fs::create_dir_all(dir.join(format!("c/{row}"))).expect("made");
            std::fs::write(dir.join(format!("c/{row}/{column}")), bytes).expect("written");
        }
    }
    let store = DirectoryStore::open(dir, Durability::Buffered).expect("a directory");
    let hierarchy = Hierarchy::open(Store::new(Arc::new(store)), None, HierarchyOptions::default());
    let node = hierarchy.expect("a hierarchy").existing(&NodePath::root()).expect("a node");
    Arc::clone(node.array().expect("an array"))
}

fn mean(summary: &Statistics) -> f64 {
    match summary.average {
        Some(Average::Real(moments)) => moments.mean,
        ref other => panic!("{other:?} is not the average of real numbers"),
    }
}

#[test]
fn only_elements_inside_of_the_array_count_and_missing_chunks_are_fill_values() {
    let place = tempfile::tempdir().expect("a directory");
    let array = array(place.path(), |row, column| (row, column) != (1, 2) && row + column > 0);
    let visited = AtomicU64::new(0);
    let seen = |_: &Coords, is_fill: Option<bool>| {
        assert_eq!(is_fill, Some(false));
        visited.fetch_add(1, Ordering::Relaxed);
    };
    let found = of(&array, Chosen::All, 2, &Packing::none(), &seen).expect("statistics");
    assert_eq!((found.elements, found.missing, found.fill), (35, 8, 8));
    assert_eq!((found.chunks_read, visited.into_inner()), (7, 7));
    assert_eq!(found.range, Some(Range::Floats(0.5, 46.0)));
    let sum: u64 = (0..35).map(|at| 10 * (at / 7) + at % 7).sum();
    let missing = 1 + 2 + 10 + 11 + 12 + 26 + 36;
    let expected = (f64::from(u32::try_from(sum - missing).expect("small")) + 8.0 * 0.5) / 35.0;
    assert!((mean(&found) - expected).abs() < 1e-12, "{}, not {expected}", mean(&found));
}

#[test]
fn the_number_of_threads_changes_nothing_and_a_sample_of_all_chunks_is_the_whole() {
    let place = tempfile::tempdir().expect("a directory");
    let array = array(place.path(), |row, _| row != 1);
    let all = |chosen, threads| {
        of(&array, chosen, threads, &Packing::none(), &|_, _| ()).expect("statistics")
    };
    let one = all(Chosen::All, 1);
    assert_eq!(all(Chosen::All, 5), one);
    assert_eq!(all(Chosen::Sample(9), 3), one);
    let some = all(Chosen::Sample(4), 1);
    assert_eq!(all(Chosen::Sample(4), 3), some);
    assert!(some.elements < 24 && some.elements >= 4, "{}", some.elements);
}

#[test]
fn a_chunk_that_cannot_be_decoded_is_named() {
    let place = tempfile::tempdir().expect("a directory");
    let array = array(place.path(), |_, _| true);
    std::fs::write(place.path().join("c/2/1"), b"short").expect("written");
    let error = of(&array, Chosen::All, 2, &Packing::none(), &|_, _| ()).expect_err("damaged");
    assert_eq!(error.subject(), Some("c/2/1"));
}
