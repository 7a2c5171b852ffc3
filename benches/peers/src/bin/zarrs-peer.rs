//! `zarrs-peer read|chunk|write ARRAY [RAW]`: prints the seconds that it took, for `chunk` of each of 50 random chunks.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use zarrs::array::{Array, ArrayBytes, ArrayShardedExt, ArraySubset};
use zarrs::filesystem::FilesystemStore;
use zarrs::storage::{ReadableWritableListableStorage, ReadableWritableListableStorageTraits};

type Opened = Array<dyn ReadableWritableListableStorageTraits>;

fn open(path: &str) -> Result<Opened, Box<dyn Error>> {
    let store: ReadableWritableListableStorage = Arc::new(FilesystemStore::new(path)?);
    Ok(Array::open(store, "/")?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (what, path) = (arguments[1].as_str(), arguments[2].as_str());
    match what {
        "read" => {
            let start = Instant::now();
            let array = open(path)?;
            let all: ArrayBytes = array.retrieve_array_subset(&array.subset_all())?;
            println!("{}", start.elapsed().as_secs_f64());
            drop(all);
        }
        "chunk" => {
            let array = open(path)?;
            let zeros = vec![0; array.shape().len()];
            let inner: Vec<u64> = match array.effective_subchunk_shape() {
                Some(shape) => shape.iter().map(|len| len.get()).collect(),
                None => array.chunk_shape(&zeros)?.iter().map(|len| len.get()).collect(),
            };
            let mut random = 0x9E37_79B9_7F4A_7C15_u64;
            for _ in 0..50 {
                let start: Vec<u64> = array.shape().iter().zip(&inner).map(|(len, chunk)| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    random % (len / chunk) * chunk
                }).collect();
                let subset = ArraySubset::new_with_start_shape(start, inner.clone())?;
                let begin = Instant::now();
                let chunk: ArrayBytes = array.retrieve_array_subset(&subset)?;
                println!("{}", begin.elapsed().as_secs_f64());
                drop(chunk);
            }
        }
        "write" => {
            let raw = std::fs::read(&arguments[3])?;
            let start = Instant::now();
            let array = open(path)?;
            array.store_array_subset(&array.subset_all(), ArrayBytes::from(raw))?;
            println!("{}", start.elapsed().as_secs_f64());
        }
        other => return Err(format!("{other} is none of read, chunk, write").into()),
    }
    Ok(())
}
