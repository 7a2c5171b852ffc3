//! The parts that need no kernel: codecs, shard indexes, the cache, and the tree.
//!
//! `cargo bench --bench parts [NAME]`; the mount as a whole, against other programs: `scripts/bench.sh`.
#![expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark that fails panics, and each says what it is"
)]

use std::sync::Arc;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use serde_json::{Value, json};
use zarrfs::array::{Array, Coords, Current, FillChunks};
use zarrfs::buffer::Buffer;
use zarrfs::cache::ChunkCache;
use zarrfs::hierarchy::{self, Content, Hierarchy};
use zarrfs::metadata::NodePath;
use zarrfs::shard::ShardIndex;
use zarrfs::store::memory::MemoryStore;
use zarrfs::store::{Condition, Key, Store};
use zarrfs::vfs::{self, Access, ROOT, Vfs};

/// Elements along each dimension of a chunk: 1 MiB of float32.
const SIDE: u64 = 512;

/// Chunks that each array has.
const CHUNKS: u64 = 16;

const CODECS: &[&str] = &[
    "bytes",
    "big-endian",
    "transpose",
    "crc32c",
    "gzip",
    "zstd",
    "blosc-lz4",
    "blosc-zstd",
    "shuffle+zlib",
];

fn main() {
    divan::main();
}

fn codecs(name: &str) -> Value {
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let blosc = |cname: &str| {
        json!({"name": "blosc", "configuration": {"cname": cname, "clevel": 5, "shuffle": "shuffle",
               "typesize": 4, "blocksize": 0}})
    };
    match name {
        "bytes" => json!([little]),
        "big-endian" => json!([{"name": "bytes", "configuration": {"endian": "big"}}]),
        "transpose" => json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, little]),
        "crc32c" => json!([little, {"name": "crc32c"}]),
        "gzip" => json!([little, {"name": "gzip", "configuration": {"level": 5}}]),
        "zstd" => {
            json!([little, {"name": "zstd", "configuration": {"level": 3, "checksum": false}}])
        }
        "blosc-lz4" => json!([little, blosc("lz4")]),
        "blosc-zstd" => json!([little, blosc("zstd")]),
        "shuffle+zlib" => json!([
            little,
            {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}},
            {"name": "numcodecs.zlib", "configuration": {"level": 5}}
        ]),
        "sharded" => json!([{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [SIDE, SIDE], "codecs": [little],
            "index_codecs": [little, {"name": "crc32c"}], "index_location": "end"}}]),
        other => panic!("{other}"),
    }
}

/// A smooth field, as measured ones are: neighbours differ in their last bits.
fn field() -> Buffer {
    let values = (0..SIDE * SIDE).flat_map(|at| {
        let (y, x) = ((at / SIDE) as f32 / 80.0, (at % SIDE) as f32 / 120.0);
        let noise = (at.wrapping_mul(2_654_435_761) >> 20) as f32 * 1e-6;
        let value = 280.0 + 20.0 * y.sin() * x.cos() + noise;
        (value.to_bits() & 0xffff_fc00).to_le_bytes()
    });
    values.collect::<Vec<u8>>().into()
}

/// A hierarchy in memory with the array `x`, whose chunks are all stored.
fn hierarchy(name: &str) -> (Hierarchy, Arc<Array>) {
    let store = Store::new(Arc::new(MemoryStore::new()));
    let shard = if name == "sharded" { CHUNKS } else { 1 };
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [SIDE * CHUNKS, SIDE], "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [SIDE * shard, SIDE]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": codecs(name), "attributes": {}
    });
    let group = json!({"zarr_format": 3, "node_type": "group"});
    for (key, document) in [("zarr.json", group), ("x/zarr.json", document)] {
        let pieces =
            [document.to_string().into_bytes().into()].map(|bytes: bytes::Bytes| bytes.into());
        store.write().unwrap().set(&Key::parse(key).unwrap(), &pieces, Condition::Always).unwrap();
    }
    let hierarchy = Hierarchy::open(store, None, hierarchy::HierarchyOptions::default()).unwrap();
    let node = hierarchy.existing(&NodePath::parse("x").unwrap()).unwrap();
    let Content::Array(array) = node.content() else { panic!("an array") };
    let array = Arc::clone(array);
    let chunks = (0..CHUNKS).map(|number| (at(number), Some(field()))).collect();
    Current::made_here(&array).write_chunks(chunks, FillChunks::Store).unwrap();
    (hierarchy, array)
}

fn at(number: u64) -> Coords {
    Coords::new([number, 0])
}

fn chunk_len() -> BytesCount {
    BytesCount::new(SIDE * SIDE * 4)
}

#[divan::bench(args = CODECS)]
fn decode(bencher: Bencher<'_, '_>, name: &str) {
    let (_hierarchy, array) = hierarchy(name);
    bencher.counter(chunk_len()).bench(|| array.read_chunk(&at(3)).unwrap());
}

#[divan::bench(args = CODECS)]
fn encode(bencher: Bencher<'_, '_>, name: &str) {
    let (_hierarchy, array) = hierarchy(name);
    let field = field();
    bencher.counter(chunk_len()).bench(|| {
        Current::made_here(&array)
            .write_chunks(vec![(at(3), Some(field.clone()))], FillChunks::Store)
            .unwrap()
    });
}

#[divan::bench(args = [16, 1024, 65_536])]
fn shard_index(bencher: Bencher<'_, '_>, slots: usize) {
    let bytes = ShardIndex::empty(slots).to_bytes();
    bencher.counter(ItemsCount::new(slots)).bench(|| ShardIndex::parse(black_box(&bytes)).unwrap());
}

#[divan::bench(threads = [1, 2, 4, 16])]
fn cache_hit(bencher: Bencher<'_, '_>) {
    let (_hierarchy, array) = hierarchy("bytes");
    let cache = ChunkCache::new(256 << 20);
    for number in 0..CHUNKS {
        cache.get(&array, &at(number)).unwrap();
    }
    bencher.counter(ItemsCount::new(CHUNKS)).bench(|| {
        for number in 0..CHUNKS {
            black_box(cache.get(&array, &at(number)).unwrap());
        }
    });
}

fn tree(name: &str) -> Vfs {
    Vfs::new(hierarchy(name).0, vfs::VfsOptions::default())
}

fn find(vfs: &Vfs, path: &str) -> u64 {
    path.split('/').fold(ROOT, |parent, name| vfs.lookup(parent, name).unwrap().number)
}

#[divan::bench]
fn lookup(bencher: Bencher<'_, '_>) {
    let vfs = tree("bytes");
    let parent = find(&vfs, "x/c/3");
    bencher.bench(|| vfs.lookup(black_box(parent), "0").unwrap());
}

#[divan::bench]
fn open_and_close_a_chunk(bencher: Bencher<'_, '_>) {
    let vfs = tree("zstd");
    let chunk = find(&vfs, "x/c/3/0");
    bencher.bench(|| vfs.release(vfs.open(chunk, Access::Read).unwrap().handle));
}

/// What is decoded already, in requests as large as the kernel makes them.
#[divan::bench(args = ["x/c/3/0", "x.raw"])]
fn read_128_kib(bencher: Bencher<'_, '_>, path: &str) {
    let vfs = tree("zstd");
    let handle = vfs.open(find(&vfs, path), Access::Read).unwrap().handle;
    vfs.read(handle, 0, 1 << 17).unwrap();
    bencher.counter(BytesCount::new(1_u64 << 17)).bench(|| vfs.read(handle, 0, 1 << 17).unwrap());
}

#[divan::bench(args = ["bytes", "zstd", "sharded"])]
fn write_a_chunk(bencher: Bencher<'_, '_>, name: &str) {
    let vfs = tree(name);
    let (chunk, field) = (find(&vfs, "x/c/3/0"), field());
    bencher.counter(chunk_len()).bench(|| {
        let handle = vfs.open(chunk, Access::Truncate).unwrap().handle;
        vfs.write(handle, 0, &field).unwrap();
        vfs.flush(handle).unwrap();
        vfs.release(handle);
    });
}
