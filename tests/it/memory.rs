//! The memory of a mount stays below the bound of `docs/limits.md`.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use crate::support::{Mount, stat};

const MIB: u64 = 1 << 20;

/// The two limits of the mount, and the number of its threads.
const CACHE: u64 = 32 * MIB;
const DIRTY: u64 = 16 * MIB;
const THREADS: u64 = 4;

/// What the bound adds for the program itself.
const PROGRAM: u64 = 32 * MIB;

/// Three arrays of 48 MiB: in chunks of 3 MiB, in chunks whose rows are longer than the cache, and
/// in shards of 12 MiB with inner chunks of 3 MiB.
const ARRAYS: [&str; 3] = ["rows", "columns", "shards"];
const ARRAY: u64 = 48 * MIB;
const CHUNK: u64 = 3 * MIB;

fn document(name: &str) -> Value {
    let chunk = if name == "columns" { [1536, 2048] } else { [96, 32_768] };
    let inner = json!([{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]);
    let codecs = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": chunk, "codecs": inner, "index_codecs": [{"name": "bytes"}]}}]);
    let is_sharded = name == "shards";
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [1536, 32_768], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {
            "chunk_shape": if is_sharded { [384, 32_768] } else { chunk }}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": if is_sharded { codecs } else { inner }, "attributes": {}
    })
}

/// Images whose headers would fill the cache several times, each nearly as long as a chunk.
const IMAGES: u64 = 64;
const PAGES: u64 = 14_000;

fn image() -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [PAGES, 4, 4], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [PAGES, 4, 4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes"}], "attributes": {}
    })
}

/// The bytes of a chunk, which codecs hardly shorten.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..CHUNK / 8).flat_map(|_| next()).collect()
}

/// The name of each chunk file of an array.
fn chunks(name: &str) -> impl Iterator<Item = String> {
    let is_row = name != "columns";
    (0..ARRAY / CHUNK).map(move |n| if is_row { format!("{n}/0") } else { format!("0/{n}") })
}

/// The most memory that the daemon had since `forget_peak`.
fn peak(process: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn write_all(mount: &Mount, name: &str, seed: u64) {
    for (chunk, number) in chunks(name).zip(seed..) {
        let path = mount.at(name).join("c").join(chunk);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, noise(number)).unwrap();
    }
}

fn read_view(mount: &Mount, name: &str) {
    let (mut view, mut part) = (File::open(mount.at(name)).unwrap(), vec![0; 1 << 20]);
    let mut len = 0;
    while let count @ 1.. = view.read(&mut part).unwrap() {
        len += count as u64;
    }
    assert!(len >= ARRAY, "{name}: {len}");
}

fn read_chunks(mount: &Mount, name: &str, seed: u64) {
    for (chunk, number) in chunks(name).zip(seed..) {
        let bytes = fs::read(mount.at(name).join("c").join(chunk)).unwrap();
        assert!(bytes == noise(number), "chunk {number} of {name}");
    }
}

fn look_at_images(mount: &Mount) {
    for number in 0..IMAGES {
        let len = fs::metadata(mount.at(&format!("image{number}.tif"))).unwrap().len();
        assert!((CHUNK / 2..CHUNK).contains(&(len - PAGES * 16)), "a header of {len} bytes");
    }
}

fn jump(mount: &Mount, name: &str) {
    let view = File::open(mount.at(name)).unwrap();
    for number in 0..200_u64 {
        let at = number * 7919 * 4096 % (ARRAY - 8192);
        view.read_exact_at(&mut [0; 8192], at).unwrap();
    }
}

#[test]
fn reading_and_writing_much_at_once_takes_no_more_memory_than_the_limits_say() {
    let (cache, dirty) = (format!("--cache-size={CACHE}"), format!("--dirty-limit={DIRTY}"));
    let threads = format!("--threads={THREADS}");
    // The kernel would count memory files to nobody.
    let options = [cache.as_str(), &dirty, &threads, "-onopassthrough"];
    let make = |store: &Path| {
        let root = json!({"zarr_format": 3, "node_type": "group", "attributes": {}});
        fs::write(store.join("zarr.json"), root.to_string()).unwrap();
        for name in ARRAYS.into_iter().chain(["new"]) {
            fs::create_dir(store.join(name)).unwrap();
            let like = if name == "new" { "shards" } else { name };
            fs::write(store.join(name).join("zarr.json"), document(like).to_string()).unwrap();
        }
        for number in 0..IMAGES {
            let node = store.join(format!("image{number}"));
            fs::create_dir(&node).unwrap();
            fs::write(node.join("zarr.json"), image().to_string()).unwrap();
        }
    };
    let mut mount = Mount::of(make, &options);
    mount.expect("sequentially decodes each chunk about");
    eprintln!("at mount {}", peak(stat(&mount, "zarrfs_process_id")) / MIB);
    let at = &mount;
    thread::scope(|threads| {
        for (name, seed) in ARRAYS.into_iter().zip([1000, 2000, 3000]) {
            threads.spawn(move || write_all(at, name, seed));
        }
    });
    let written = peak(stat(&mount, "zarrfs_process_id"));
    mount.remount(&options);
    thread::scope(|threads| {
        for name in ["rows.npy", "columns.raw", "shards.nc", "columns.npy"] {
            threads.spawn(move || read_view(at, name));
        }
        for (name, seed) in ARRAYS.into_iter().zip([1000, 2000, 3000]) {
            threads.spawn(move || read_chunks(at, name, seed));
        }
        threads.spawn(move || jump(at, "rows.raw"));
        threads.spawn(move || look_at_images(at));
        threads.spawn(move || write_all(at, "new", 4000));
    });
    let process = stat(&mount, "zarrfs_process_id");
    let processors = thread::available_parallelism().unwrap().get() as u64;
    let bound = CACHE + 2 * DIRTY + 3 * CHUNK * (THREADS + processors) + PROGRAM;
    let both = (written.max(peak(process)) / MIB, bound / MIB);
    eprintln!("wrote {} read {} bound {}", written / MIB, peak(process) / MIB, bound / MIB);
    assert!(both.0 < both.1, "{} MiB, the bound is {} MiB", both.0, both.1);
    let drawn = ["cache", "decoding", "long_part", "view_header", "passthrough_memory"];
    let drawn = drawn.map(|part| stat(&mount, &format!("zarrfs_{part}_bytes ")));
    assert!(drawn.iter().sum::<u64>() <= CACHE, "{drawn:?}");
    assert_eq!(stat(&mount, "zarrfs_decoding_bytes "), 0);
}
