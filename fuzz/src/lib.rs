//! What the fuzzers do with any bytes. Each function must come to an end, in little memory, without
//! a panic; most also check what they get.
//!
//! `tests/it/fuzzed.rs` runs them on the corpora and on changed copies, in each test run.

mod operations;

pub use operations::operations;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use zarrfs::check;
use zarrfs::cli;
use zarrfs::files;
use zarrfs::hierarchy::{self, Content, Hierarchy};
use zarrfs::metadata::NodePath;
use zarrfs::store::memory::MemoryStore;
use zarrfs::store::{
    Condition, Key, Prefix, Store, StoreEntry, http, icechunk, kerchunk, refs, zip,
};
use zarrfs::vfs::{Access, Ownership, ROOT, Vfs, VfsOptions};
use zarrfs::view::FORMATS;

/// A function for any bytes.
pub type Target = fn(&[u8]);

/// All targets by their names.
pub const TARGETS: [(&str, Target); 18] = [
    ("zarr_json", zarr_json),
    ("zarr2", zarr2),
    ("draft", draft),
    ("n5", n5),
    ("consolidated", consolidated),
    ("edit", edit),
    ("shard", shard),
    ("codecs", codecs),
    ("shaped_codecs", shaped_codecs),
    ("grib", grib),
    ("views", views),
    ("operations", operations),
    ("zip_archive", zip_archive),
    ("kerchunk_references", kerchunk_references),
    ("file_formats", file_formats),
    ("icechunk_repository", icechunk_repository),
    ("web_list", web_list),
    ("mount_options", mount_options),
];

/// The most bytes of a decoded chunk.
const MAX_CHUNK_LEN: u64 = 4 << 20;

/// How many names of a directory, and levels, are looked at.
const MOST_NAMES: usize = 16;
const MOST_LEVELS: usize = 5;

/// How many bytes of a file are read at each end.
const READ_LEN: usize = 64 << 10;

const GROUP: &[u8] = br#"{"zarr_format":3,"node_type":"group"}"#;

fn key(text: &str) -> Key {
    Key::parse(text).expect("a key")
}

fn put(store: &Store, at: &str, bytes: &[u8]) {
    let piece = Bytes::copy_from_slice(bytes).into();
    store.write().expect("writable").set(&key(at), &[piece], Condition::Always).expect("set");
}

fn store(values: &[(&str, &[u8])]) -> Store {
    let store = Store::new(Arc::new(MemoryStore::new()));
    for (at, bytes) in values {
        put(&store, at, bytes);
    }
    store
}

fn options() -> hierarchy::HierarchyOptions {
    hierarchy::HierarchyOptions {
        max_chunk_len: MAX_CHUNK_LEN,
        metadata_ttl: Duration::ZERO,
        ..hierarchy::HierarchyOptions::default()
    }
}

fn tree(store: Store) -> Option<Vfs> {
    let hierarchy = Hierarchy::open(store, None, options()).ok()?;
    let options = VfsOptions { cache_len: 8 << 20, dirty_limit: 8 << 20, ..VfsOptions::default() };
    Some(Vfs::new(hierarchy, options))
}

/// What is read of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// All that a mount shows, and each node in each format.
    Views,
    /// All that a mount shows, and all that `zarrfs check` looks at.
    Checked,
}

impl Reading {
    /// Views take most of the time, so one of four inputs reads them.
    fn of(data: &[u8]) -> Self {
        if data.len().is_multiple_of(4) { Self::Views } else { Self::Checked }
    }
}

/// Reads a store, up to some limits.
fn read_all(store: &Store, reading: Reading) {
    if let Some(vfs) = tree(store.clone()) {
        read_below(&vfs, ROOT, MOST_LEVELS, reading);
    }
    if reading == Reading::Checked
        && let Ok(hierarchy) = Hierarchy::open(store.clone(), None, options())
    {
        let all = check::CheckOptions {
            only: vec![NodePath::root()],
            chunks: check::WhichChunks::Count(MOST_NAMES as u64),
            expects_all: false,
            jobs: 1,
        };
        drop(check::run(&hierarchy, &all, &Silent));
    }
}

/// Takes no notice of findings.
struct Silent;

impl check::CheckWatch for Silent {
    fn find(&self, _: check::Finding) {}
    fn expect(&self, _: u64) {}
    fn advance(&self) {}
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Reads the names in a directory, and what they lead to.
fn read_below(vfs: &Vfs, directory: u64, levels: usize, reading: Reading) {
    let Ok(opened) = vfs.listings().opendir(directory) else { return };
    let mut names = BTreeSet::new();
    for at in 0..MOST_NAMES {
        match vfs.listings().readdir(&opened, at) {
            Ok(Some(listed)) => names.insert(listed.name.clone()),
            Ok(None) | Err(_) => break,
        };
    }
    for name in names {
        let Ok(attr) = vfs.lookup(directory, &name) else { continue };
        for attribute in vfs.xattrs().list(attr.number).unwrap_or_default() {
            drop(vfs.xattrs().get(attr.number, &attribute));
        }
        if !attr.is_dir() {
            read_file(vfs, attr.number, attr.len);
        } else if levels > 0 {
            if reading == Reading::Views {
                read_views(vfs, directory, &name);
            }
            read_below(vfs, attr.number, levels - 1, reading);
        }
        vfs.forget(attr.number, 1);
    }
    if levels == MOST_LEVELS && reading == Reading::Views {
        read_views(vfs, directory, "__root__");
    }
}

/// Reads a node in each format.
fn read_views(vfs: &Vfs, directory: u64, node: &str) {
    for format in FORMATS {
        let name = format!("{node}.{}", format.extension);
        if let Ok(attr) = vfs.lookup(directory, &name) {
            read_file(vfs, attr.number, attr.len);
            vfs.forget(attr.number, 1);
        }
    }
}

/// Reads both ends of a file.
fn read_file(vfs: &Vfs, number: u64, len: u64) {
    let Ok(opened) = vfs.open(number, Access::Read) else { return };
    drop(vfs.read(opened.handle, 0, READ_LEN));
    let end = len.saturating_sub(READ_LEN as u64);
    if end > 0
        && let Ok(bytes) = vfs.read(opened.handle, end, READ_LEN)
    {
        assert!(bytes.len() <= READ_LEN, "more bytes than were asked for");
    }
    vfs.release(opened.handle);
}

/// Splits the input at the first zero byte.
fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    (&data[..at], data.get(at + 1..).unwrap_or_default())
}

/// The metadata file of a Zarr 3 array, and a chunk.
pub fn zarr_json(data: &[u8]) {
    let (document, chunk) = halves(data);
    let keys = ["x/c", "x/c/0", "x/c/0/0", "x/c/0/0/0", "x/0.0", "x/0"];
    let mut values = vec![("zarr.json", GROUP), ("x/zarr.json", document)];
    values.extend(keys.map(|key| (key, chunk)));
    read_all(&store(&values), Reading::of(data));
}

/// The metadata file and the attributes of a Zarr 2 array, and a chunk.
pub fn zarr2(data: &[u8]) {
    let (array, rest) = halves(data);
    let (attributes, chunk) = halves(rest);
    let group: &[u8] = br#"{"zarr_format":2}"#;
    let mut values = vec![(".zgroup", group), ("x/.zarray", array), ("x/.zattrs", attributes)];
    values.extend(["x/0", "x/0.0", "x/0/0", "x/0.0.0"].map(|key| (key, chunk)));
    read_all(&store(&values), Reading::of(data));
}

/// The entry point and an array of the drafts of Zarr 3.
pub fn draft(data: &[u8]) {
    let (entry, rest) = halves(data);
    let (array, chunk) = halves(rest);
    for name in ["x.array", "x.array.json"] {
        let at = format!("meta/root/{name}");
        let values = [
            ("zarr.json", entry),
            (at.as_str(), array),
            ("data/root/x/c0/0", chunk),
            ("data/root/x/0", chunk),
        ];
        read_all(&store(&values), Reading::of(data));
    }
}

/// The attributes of an N5 data set, and a block.
pub fn n5(data: &[u8]) {
    let (attributes, block) = halves(data);
    let root: &[u8] = br#"{"n5":"2.5.1"}"#;
    let values = [
        ("attributes.json", root),
        ("x/attributes.json", attributes),
        ("x/0/0", block),
        ("x/0", block),
    ];
    read_all(&store(&values), Reading::of(data));
}

/// The metadata file of a group with consolidated metadata, in both versions.
pub fn consolidated(data: &[u8]) {
    let group: &[u8] = br#"{"zarr_format":2}"#;
    for values in [vec![("zarr.json", data)], vec![(".zgroup", group), (".zmetadata", data)]] {
        let store = store(&values).read_only();
        let copies = hierarchy::HierarchyOptions { reads_copies: true, ..options() };
        if let Ok(hierarchy) = Hierarchy::open(store.clone(), None, copies) {
            let vfs = Vfs::new(hierarchy, VfsOptions::default());
            read_below(&vfs, ROOT, MOST_LEVELS, Reading::Checked);
        }
        read_all(&store, Reading::Checked);
    }
}

const ARRAY: &str = r#"{"zarr_format":3,"node_type":"array","shape":[8],"data_type":"uint16",
    "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4]}},
    "chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},
    "fill_value":0,"codecs":CODECS,"attributes":{"units":"K"},"dimension_names":["t"],"extra":{"must_understand":false}}"#;

const BYTES: &str = r#"{"name":"bytes","configuration":{"endian":"little"}}"#;

fn array(codecs: &str) -> String {
    ARRAY.replace("CODECS", codecs)
}

fn sharded(codecs: &str) -> String {
    array(&format!(
        r#"[{{"name":"sharding_indexed","configuration":{{"chunk_shape":[2],"codecs":[{BYTES}{codecs}],
        "index_codecs":[{BYTES},{{"name":"crc32c"}}],"index_location":"end"}}}}]"#
    ))
}

/// A metadata file that a program writes over the stored one.
pub fn edit(data: &[u8]) {
    let document = array(&format!("[{BYTES}]"));
    let store = store(&[("zarr.json", GROUP), ("x/zarr.json", document.as_bytes())]);
    let Some(vfs) = tree(store.clone()) else { return };
    let Ok(x) = vfs.lookup(ROOT, "x") else { return };
    let Ok((_, opened)) =
        vfs.create(x.number, "zarr.json", Ownership::of_process(0o644), Access::Truncate, false)
    else {
        return;
    };
    drop(vfs.write(opened.handle, 0, data));
    let is_stored = vfs.flush(opened.handle).is_ok();
    vfs.release(opened.handle);
    if is_stored {
        // What was accepted is an array, or a group, that another mount reads.
        let hierarchy = Hierarchy::open(store.clone(), None, options()).expect("it opens");
        let node = hierarchy.existing(&NodePath::parse("x").expect("a path")).expect("it is there");
        assert!(
            !matches!(node.content(), Content::NotUnderstood(..)),
            "a metadata file was stored that cannot be read: {:?}",
            String::from_utf8_lossy(data)
        );
    }
    read_all(&store, Reading::Checked);
}

/// A shard with any bytes, read, and changed in part.
pub fn shard(data: &[u8]) {
    let document = sharded(r#",{"name":"zstd","configuration":{"level":1,"checksum":false}}"#);
    let values = [("zarr.json", GROUP), ("x/zarr.json", document.as_bytes()), ("x/c/0", data)];
    let store = store(&values);
    read_all(&store, Reading::Checked);
    let Some(vfs) = tree(store) else { return };
    let Ok(x) = vfs.lookup(ROOT, "x") else { return };
    let Ok(c) = vfs.lookup(x.number, "c") else { return };
    if let Ok((_, opened)) =
        vfs.create(c.number, "1", Ownership::of_process(0o644), Access::Truncate, false)
    {
        drop(vfs.write(opened.handle, 0, &[1, 2, 3, 4]));
        drop(vfs.flush(opened.handle));
        vfs.release(opened.handle);
    }
    drop(vfs.sync());
}

/// The codecs that `codecs` chooses from.
const CODECS: [&str; 22] = [
    r#"{"name":"gzip","configuration":{"level":1}}"#,
    r#"{"name":"zstd","configuration":{"level":1,"checksum":true}}"#,
    r#"{"name":"crc32c"}"#,
    r#"{"name":"blosc","configuration":{"cname":"lz4","clevel":1,"shuffle":"shuffle","typesize":2,"blocksize":0}}"#,
    r#"{"name":"blosc","configuration":{"cname":"blosclz","clevel":1,"shuffle":"bitshuffle","typesize":2,"blocksize":0}}"#,
    r#"{"name":"blosc","configuration":{"cname":"zstd","clevel":1,"shuffle":"noshuffle","blocksize":0}}"#,
    r#"{"name":"numcodecs.zlib","configuration":{"level":1}}"#,
    r#"{"name":"numcodecs.bz2","configuration":{"level":1}}"#,
    r#"{"name":"numcodecs.lz4","configuration":{"acceleration":1}}"#,
    r#"{"name":"numcodecs.lzma","configuration":{"format":1,"check":-1,"preset":null,"filters":null}}"#,
    r#"{"name":"numcodecs.shuffle","configuration":{"elementsize":2}}"#,
    r#"{"name":"numcodecs.delta","configuration":{"dtype":"<u2","astype":"<u2"}}"#,
    r#"{"name":"numcodecs.fixedscaleoffset","configuration":{"offset":0,"scale":10,"dtype":"<u2","astype":"<u2"}}"#,
    r#"{"name":"numcodecs.packbits","configuration":{}}"#,
    r#"{"name":"numcodecs.fletcher32","configuration":{}}"#,
    r#"{"name":"numcodecs.crc32","configuration":{}}"#,
    r#"{"name":"numcodecs.adler32","configuration":{}}"#,
    r#"{"name":"numcodecs.jenkins_lookup3","configuration":{"initval":0,"prefix":null}}"#,
    r#"{"name":"numcodecs.base64","configuration":{}}"#,
    r#"{"name":"numcodecs.pcodec","configuration":{"level":1}}"#,
    r#"{"name":"packbits","configuration":{}}"#,
    r#"{"name":"transpose","configuration":{"order":[0]}}"#,
];

/// A chunk with any bytes, through the codecs that the first two bytes choose.
pub fn codecs(data: &[u8]) {
    let [first, second, chunk @ ..] = data else { return };
    let of = |byte: &u8| CODECS[usize::from(*byte) % CODECS.len()];
    let chains = [
        format!("[{BYTES},{}]", of(first)),
        format!("[{BYTES},{},{}]", of(first), of(second)),
        format!("[{},{BYTES}]", of(first)),
        format!("[{}]", of(first)),
    ];
    for chain in chains {
        let document = array(&chain);
        let store =
            store(&[("zarr.json", GROUP), ("x/zarr.json", document.as_bytes()), ("x/c/0", chunk)]);
        let hierarchy = Hierarchy::open(store.read_only(), None, options()).expect("a hierarchy");
        let Ok(node) = hierarchy.existing(&NodePath::parse("x").expect("a path")) else { continue };
        let Content::Array(array) = node.content() else { continue };
        let coords = zarrfs::array::Coords::new([0]);
        if let Ok(Some((read, _))) = array.read_chunk(&coords) {
            assert_eq!(read.len(), 8, "a chunk has 4 elements of 2 bytes");
        }
    }
}

/// Codecs that know the shape of a chunk, and the types of elements that they have.
const SHAPED_CODECS: [(&str, &str); 22] = [
    (r#"{"name":"imagecodecs_jpeg"}"#, "uint8"),
    (r#"{"name":"imagecodecs_png"}"#, "uint8"),
    (r#"{"name":"imagecodecs_png"}"#, "uint16"),
    (r#"{"name":"imagecodecs_webp"}"#, "uint8"),
    (r#"{"name":"imagecodecs_qoi"}"#, "uint8"),
    (r#"{"name":"imagecodecs_jpegxl"}"#, "uint8"),
    (r#"{"name":"imagecodecs_jpegxl"}"#, "uint16"),
    (r#"{"name":"imagecodecs_jpegxl"}"#, "float32"),
    (r#"{"name":"imagecodecs_jpeg2k"}"#, "uint8"),
    (r#"{"name":"imagecodecs_jpeg2k"}"#, "uint16"),
    (r#"{"name":"zfp","configuration":{"mode":"reversible"}}"#, "float32"),
    (r#"{"name":"zfp","configuration":{"mode":"fixed_rate","rate":16}}"#, "int32"),
    (r#"{"name":"imagecodecs_lzf"}"#, "uint8"),
    (r#"{"name":"imagecodecs_lzw"}"#, "uint8"),
    (r#"{"name":"imagecodecs_lz4f"}"#, "uint8"),
    (r#"{"name":"imagecodecs_lz4h5"}"#, "uint8"),
    (r#"{"name":"imagecodecs_snappy"}"#, "uint8"),
    (r#"{"name":"imagecodecs_brotli"}"#, "uint8"),
    (r#"{"name":"imagecodecs_packbits"}"#, "uint8"),
    (r#"{"name":"imagecodecs_bitshuffle"}"#, "uint16"),
    (r#"{"name":"imagecodecs_floatpred","configuration":{"axis":-1}}"#, "float32"),
    (r#"{"name":"imagecodecs_byteshuffle","configuration":{"axis":-1}}"#, "uint16"),
];

/// A chunk with any bytes, of a shape and through a codec that the first four bytes choose.
pub fn shaped_codecs(data: &[u8]) {
    let [codec, rows, columns, samples, chunk @ ..] = data else { return };
    let (codec, data_type) = SHAPED_CODECS[usize::from(*codec) % SHAPED_CODECS.len()];
    let mut shape = vec![u64::from(*rows % 64) + 1, u64::from(*columns % 64) + 1];
    shape.extend((*samples % 5 > 0).then_some(u64::from(*samples % 5)));
    for chain in [format!("[{codec}]"), format!("[{BYTES},{codec}]")] {
        let document = array(&chain)
            .replace("\"shape\":[8]", &format!("\"shape\":{shape:?}"))
            .replace("\"chunk_shape\":[4]", &format!("\"chunk_shape\":{shape:?}"))
            .replace("\"dimension_names\":[\"t\"],", "")
            .replace("uint16", data_type);
        let key = if shape.len() == 3 { "x/c/0/0/0" } else { "x/c/0/0" };
        let values = [("zarr.json", GROUP), ("x/zarr.json", document.as_bytes()), (key, chunk)];
        let hierarchy =
            Hierarchy::open(store(&values).read_only(), None, options()).expect("a hierarchy");
        let Ok(node) = hierarchy.existing(&NodePath::parse("x").expect("a path")) else { continue };
        let Content::Array(array) = node.content() else { continue };
        let coords = zarrfs::array::Coords::new(vec![0; shape.len()]);
        if let Ok(Some((read, _))) = array.read_chunk(&coords) {
            let count = shape.iter().product::<u64>()
                * u64::try_from(array.model().dtype.item_len()).expect("a length");
            assert_eq!(u64::try_from(read.len()).ok(), Some(count), "a chunk has its elements");
        }
    }
}

/// A chunk with a GRIB message of as many points as the first byte says.
pub fn grib(data: &[u8]) {
    let [points, chunk @ ..] = data else { return };
    let of =
        |var: &str| format!(r#"[{{"name":"numcodecs.grib","configuration":{{"var":"{var}"}}}}]"#);
    for var in ["t", "latitude"] {
        let document = array(&of(var))
            .replace("\"shape\":[8]", &format!("\"shape\":[{points}]"))
            .replace("\"chunk_shape\":[4]", &format!("\"chunk_shape\":[{}]", (*points).max(1)))
            .replace("uint16", "float64");
        let values = [("zarr.json", GROUP), ("x/zarr.json", document.as_bytes()), ("x/c/0", chunk)];
        let hierarchy =
            Hierarchy::open(store(&values).read_only(), None, options()).expect("a hierarchy");
        let Ok(node) = hierarchy.existing(&NodePath::parse("x").expect("a path")) else { continue };
        let Content::Array(array) = node.content() else { continue };
        if let Ok(Some((read, _))) = array.read_chunk(&zarrfs::array::Coords::new([0])) {
            assert_eq!(read.len(), usize::from(*points).max(1) * 8, "a point has 8 bytes");
        }
    }
}

/// Attributes, names of dimensions and fill values, which go into the headers of views.
pub fn views(data: &[u8]) {
    let (attributes, rest) = halves(data);
    let (names, fill) = halves(rest);
    let Ok(attributes) = serde_json::from_slice::<serde_json::Value>(attributes) else { return };
    let names = serde_json::from_slice(names).unwrap_or(serde_json::json!(["y", "x"]));
    let fill = serde_json::from_slice(fill).unwrap_or(serde_json::json!(0));
    for data_type in ["float32", "int16", "uint8", "int64"] {
        let document = serde_json::json!({
            "zarr_format": 3, "node_type": "array", "shape": [6, 5], "data_type": data_type,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 5]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": fill,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": attributes, "dimension_names": names,
        });
        let group =
            serde_json::json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
        let (document, group) = (document.to_string(), group.to_string());
        let values = [("zarr.json", group.as_bytes()), ("x/zarr.json", document.as_bytes())];
        read_all(&store(&values), Reading::Views);
    }
}

/// An archive with any bytes.
pub fn zip_archive(data: &[u8]) {
    let limits = zip::ArchiveLimits {
        value: MAX_CHUNK_LEN,
        directory: 1 << 20,
        ..zip::ArchiveLimits::DEFAULT
    };
    let below = store(&[("x.zip", data)]);
    if let Ok(archive) = zip::ZipStore::open(below, key("x.zip"), limits) {
        let store = Store::reading(Arc::new(archive));
        list_all(&store, &Prefix::root(), MOST_LEVELS);
        read_all(&store, Reading::Checked);
    }
}

/// References with any bytes. What they lead to is in the same store.
pub fn kerchunk_references(data: &[u8]) {
    let below = store(&[("x.json", data), ("data/a.nc", &[7; 4096])]);
    let places = refs::SourceStores::new(below.clone(), refs::Spelling::Plain);
    let place = Prefix::parse("x.json").expect("a path");
    if let Ok((store, _)) = kerchunk::open(&below, &place, Prefix::root(), places, 64 << 20) {
        list_all(&store, &Prefix::root(), MOST_LEVELS);
        read_all(&store, Reading::Checked);
    }
}

/// A file of another format than Zarr: its first bytes say which.
pub fn file_formats(data: &[u8]) {
    // A table has no signature.
    let name = if files::FileFormat::of_first_bytes(data).is_some() { "x" } else { "x.csv" };
    let below = store(&[(name, data)]);
    let places = refs::SourceStores::new(below.clone(), refs::Spelling::Plain);
    let key = Key::parse(name).expect("a key");
    if let Ok(store) = files::open(&below, &key, Prefix::root(), places, 64 << 20) {
        list_all(&store, &Prefix::root(), MOST_LEVELS);
        read_all(&store, Reading::Checked);
    }
}

/// The files of a repository, by their keys.
type Files = Vec<(String, Vec<u8>)>;

static REPOSITORY: OnceLock<Files> = OnceLock::new();

/// Reads the repository of Icechunk among the fixtures.
fn repository() -> Files {
    // Of the package of the fuzzers, or of zarrfs itself.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fixtures = [package.join("tests/fixtures"), package.join("../tests/fixtures")];
    let fixtures = fixtures.iter().find(|path| path.is_dir()).expect("the fixtures");
    let root = fixtures.join("icechunk/library2_spec2/repo");
    let mut files = Files::new();
    add_files(&root, &root, &mut files);
    files.sort();
    files
}

fn add_files(root: &Path, directory: &Path, files: &mut Files) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            add_files(root, &path, files);
        } else {
            let name = path.strip_prefix(root).expect("below it").to_str().expect("UTF-8");
            files.push((name.to_owned(), fs::read(&path).expect("a file")));
        }
    }
}

/// A repository, one of whose files has any bytes.
pub fn icechunk_repository(data: &[u8]) {
    let [which, bytes @ ..] = data else { return };
    let all = REPOSITORY.get_or_init(repository);
    let below = store(&[]);
    for (at, (name, stored)) in all.iter().enumerate() {
        let is_this = at == usize::from(*which) % all.len();
        put(&below, name, if is_this { bytes } else { stored });
    }
    if let Ok(store) =
        icechunk::open(&below, icechunk::MAIN, Prefix::root(), Duration::from_secs(1), |_| {})
    {
        list_all(&store, &Prefix::root(), MOST_LEVELS);
        // It has thousands of chunks: reading all takes a hundred times as long as the rest.
        if data.len().is_multiple_of(64) {
            read_all(&store, Reading::Checked);
        }
    }
}

/// A page that a web server may send for a directory.
pub fn web_list(data: &[u8]) {
    for page in ["http://host/x.zarr/", "http://host/a%20b/x.zarr/?token=1"] {
        for entry in http::index::names(page, data).unwrap_or_default() {
            let (StoreEntry::Key(name) | StoreEntry::Prefix(name)) = &entry;
            let is_below = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
            assert!(is_below, "{entry:?} is not directly below the page");
        }
    }
}

/// The value of `-o`.
pub fn mount_options(data: &[u8]) {
    // Limits would stay for the next inputs.
    if let Ok(options) = std::str::from_utf8(data)
        && !options.contains("limit")
        && cli::accepts_options(options)
    {
        assert!(cli::accepts_options(&format!("ro,{options}")), "{options:?} was accepted alone");
    }
}

/// Lists a store, and reads all its values.
fn list_all(store: &Store, prefix: &Prefix, levels: usize) {
    let Some(list) = store.list() else { return };
    let Ok(entries) = list.list_dir(prefix) else { return };
    for entry in entries.take(MOST_NAMES).flatten() {
        match entry {
            StoreEntry::Key(name) => {
                if let Ok(key) = prefix.key(&name) {
                    drop(store.get(&key, MAX_CHUNK_LEN));
                }
            }
            StoreEntry::Prefix(name) => {
                if let Ok(below) = prefix.join(&name)
                    && levels > 0
                {
                    list_all(store, &below, levels - 1);
                }
            }
        }
    }
}
