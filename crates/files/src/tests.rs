//! Small files that other programs made, as they are and damaged.

use std::sync::Arc;

use serde_json::Value;

use zarrfs_base::error::Result;
use zarrfs_store::memory::MemoryStore;
use zarrfs_store::refs::{SourceStores, Spelling};
use zarrfs_store::{ByteRange, Condition, Key, Prefix, Store, ValuePiece};

/// A file by its name, with its bytes.
type Sample = (&'static str, &'static [u8]);

const SAMPLES: [Sample; 12] = [
    ("records.nc", include_bytes!("../fixtures/records.nc")),
    ("cdf5.nc", include_bytes!("../fixtures/cdf5.nc")),
    ("image.nii", include_bytes!("../fixtures/image.nii")),
    ("image2.nii.gz", include_bytes!("../fixtures/image2.nii.gz")),
    ("raw.nrrd", include_bytes!("../fixtures/raw.nrrd")),
    ("gzip.nrrd", include_bytes!("../fixtures/gzip.nrrd")),
    ("raw.mha", include_bytes!("../fixtures/raw.mha")),
    ("zlib.mha", include_bytes!("../fixtures/zlib.mha")),
    ("volume.mrc", include_bytes!("../fixtures/volume.mrc")),
    ("two.fits", include_bytes!("../fixtures/two.fits")),
    ("stored.npz", include_bytes!("../fixtures/stored.npz")),
    ("deflated.npz", include_bytes!("../fixtures/deflated.npz")),
];

/// The most references that a damaged copy of a sample has.
const MOST_MEMORY: u64 = 16 << 20;

fn store_with(files: &[(&str, &[u8])]) -> Store {
    let store = Store::new(Arc::new(MemoryStore::new()));
    for (name, bytes) in files {
        let pieces = [ValuePiece::New(bytes.to_vec().into())];
        let key = Key::parse(name).unwrap();
        store.write().unwrap().set(&key, &pieces, Condition::Always).unwrap();
    }
    store
}

fn open(files: &[(&str, &[u8])]) -> Result<Store> {
    let own = store_with(files);
    let places = SourceStores::new(own.clone(), Spelling::Plain);
    let key = Key::parse(files[0].0).unwrap();
    crate::open(&own, &key, Prefix::root(), places, MOST_MEMORY)
}

fn read(store: &Store, key: &str) -> Result<Option<Vec<u8>>> {
    let range = (Key::parse(key).unwrap(), ByteRange::Suffix(u64::MAX));
    let found = store.read().get_partial_values(&[range])?.pop().flatten();
    Ok(found.map(|value| value.bytes.to_vec()))
}

fn document(store: &Store, path: &str) -> Value {
    let key = if path.is_empty() { "zarr.json".to_owned() } else { format!("{path}/zarr.json") };
    serde_json::from_slice(&read(store, &key).unwrap().unwrap()).unwrap()
}

fn sample(name: &str) -> &'static [u8] {
    SAMPLES.iter().find(|(own, _)| *own == name).unwrap().1
}

/// Opens a file and reads what it has; errors are all right.
fn try_all(name: &str, bytes: &[u8]) {
    let Ok(store) = open(&[(name, bytes)]) else { return };
    let keys = store.list().unwrap().list().unwrap().take(1000);
    for key in keys.map(|key| key.unwrap()) {
        drop(read(&store, key.as_str()));
    }
}

#[test]
fn every_sample_has_its_arrays() {
    for (name, bytes) in SAMPLES {
        let store = open(&[(name, bytes)]).expect(name);
        for key in store.list().unwrap().list().unwrap() {
            let key = key.unwrap();
            assert!(read(&store, key.as_str()).expect(name).is_some(), "{name}: {key}");
        }
    }
}

#[test]
fn records_of_several_variables_lie_between_each_other() {
    let store = open(&[("records.nc", sample("records.nc"))]).unwrap();
    let array = document(&store, "a");
    assert_eq!(array["shape"], serde_json::json!([2, 3]));
    assert_eq!(array["dimension_names"], serde_json::json!(["t", "x"]));
    assert_eq!(array["fill_value"], -1);
    assert_eq!(read(&store, "a/c/1/0").unwrap().unwrap(), [0, 3, 0, 4, 0, 5]);
    assert_eq!(read(&store, "b/c/1").unwrap().unwrap(), 1.5_f64.to_be_bytes());
    assert_eq!(document(&store, "")["attributes"]["title"], "tiny");
}

#[test]
fn the_elements_of_a_pair_are_in_the_other_file() {
    let mut header = sample("image.nii")[..348].to_vec();
    header[344..347].copy_from_slice(b"ni1");
    header[108..112].fill(0);
    let elements: Vec<u8> = (0..48).collect();
    let files: [(&str, &[u8]); 2] = [("a.hdr", &header), ("a.img", &elements)];
    let store = open(&files).unwrap();
    assert_eq!(read(&store, "a/c/0/0/0").unwrap().unwrap(), elements);
    let store = open(&files[..1]).unwrap();
    let codecs = document(&store, "a")["codecs"].to_string();
    assert!(codecs.contains("in the file a.img, which does not exist"), "{codecs}");
    // A chunk that is missing would read as the fill value.
    assert!(read(&store, "a/c/0/0/0").unwrap().is_some());
}

#[test]
fn a_file_outside_of_the_directory_is_not_read() {
    for name in ["../x.raw", "/etc/passwd", "a/../../x.raw", ""] {
        let header = format!(
            "NRRD0004\ntype: uint8\ndimension: 1\nsizes: 4\nencoding: raw\ndata file: {name}\n\n"
        );
        let store = open(&[("a.nhdr", header.as_bytes())]).unwrap();
        let codecs = document(&store, "a")["codecs"].to_string();
        assert!(codecs.contains("does not lie beside this one"), "{codecs}");
    }
}

#[test]
fn a_truncated_file_is_an_error_or_less() {
    for (name, bytes) in SAMPLES {
        for len in 0..bytes.len() {
            // Blocks of FITS are long and mostly blank.
            if name != "two.fits" || len % 40 == 0 {
                try_all(name, &bytes[..len]);
            }
        }
    }
}

#[test]
fn a_damaged_file_is_an_error_or_something_else() {
    for (name, bytes) in SAMPLES {
        let step = if name == "two.fits" { 7 } else { 1 };
        for at in (0..bytes.len()).step_by(step) {
            for mask in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= mask;
                try_all(name, &damaged);
            }
        }
    }
}

#[test]
fn lengths_near_the_highest_number_are_errors() {
    for (name, bytes) in SAMPLES {
        for at in 0..bytes.len().min(600) {
            for (width, value) in [(4, u64::from(u32::MAX)), (4, 0x7fff_ffff), (8, u64::MAX >> 1)] {
                for is_big in [false, true] {
                    let mut damaged = bytes.to_vec();
                    let mut number = value.to_le_bytes()[..width].to_vec();
                    if is_big {
                        number.reverse();
                    }
                    if let Some(target) = damaged.get_mut(at..at + width) {
                        target.copy_from_slice(&number);
                        try_all(name, &damaged);
                    }
                }
            }
        }
    }
}
