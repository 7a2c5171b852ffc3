//! References that kerchunk and fsspec have written (`tests/fixtures/kerchunk/generate.py`), and
//! the chunks that fsspec reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::counting::CountingStore;
use crate::directory::{DirectoryStore, Durability};
use crate::memory::MemoryStore;
use crate::refs::Spelling;
use crate::{ByteRange, Condition};
use zarrfs_base::error::Kind;

/// The memory for metadata.
const MOST: u64 = 1 << 20;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/kerchunk")
}

/// The directories of the fixtures.
fn cases() -> Vec<PathBuf> {
    let entries = fs::read_dir(fixtures()).expect("fixtures").map(|entry| entry.unwrap().path());
    let cases: Vec<PathBuf> = entries.filter(|path| path.join("refs.parq").is_dir()).collect();
    assert!(cases.len() >= 8, "{cases:?}");
    cases
}

fn open_at(own: &Store) -> Result<Store> {
    let places = SourceStores::new(own.clone(), Spelling::Plain);
    let place = Prefix::parse("refs.parq").unwrap();
    crate::kerchunk::open(own, &place, Prefix::root(), places, MOST).map(|(store, _)| store)
}

/// The bytes of the chunks that fsspec reads, by their keys; `None` for missing ones.
fn truth(case: &std::path::Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let text = fs::read(case.join("chunks.json")).expect("chunks.json");
    let chunks: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let bytes = |hex: &str| {
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digits).collect()
    };
    let chunk =
        |(key, value): (&String, &serde_json::Value)| (key.clone(), value.as_str().map(bytes));
    chunks.as_object().expect("an object").iter().map(chunk).collect()
}

#[test]
fn every_chunk_is_what_fsspec_reads() {
    for case in cases() {
        let own = DirectoryStore::open(&case, Durability::Buffered).expect("opened");
        let store = open_at(&Store::new(Arc::new(own)).read_only()).expect("opened");
        let truth = truth(&case);
        let keys: Vec<Key> = truth.keys().map(|key| Key::parse(key).unwrap()).collect();
        let ranges: Vec<(Key, ByteRange)> =
            keys.iter().map(|key| (key.clone(), ByteRange::first(1000))).collect();
        let stats = store.read().stat(&keys).expect("stats");
        let values = store.read().get_partial_values(&ranges).expect("read");
        for (((key, want), value), stat) in truth.iter().zip(values).zip(stats) {
            let found = value.as_ref().map(|value| value.bytes.to_vec());
            assert_eq!(&found, want, "{}: {key}", case.display());
            assert_eq!(stat, value.map(|value| value.stat), "{}: {key}", case.display());
        }
        // Each key is listed once, and metadata beside chunks.
        let mut listed = BTreeSet::new();
        for key in store.list().unwrap().list().expect("listed") {
            let key = key.expect("listed").to_string();
            assert!(listed.insert(key.clone()), "{key} twice");
        }
        let (metadata, chunks): (BTreeSet<String>, BTreeSet<String>) =
            listed.into_iter().partition(|key| key.contains(".z"));
        let want = truth.iter().filter(|(_, value)| value.is_some()).map(|(key, _)| key.clone());
        assert_eq!(chunks, want.collect(), "{}", case.display());
        assert_eq!(metadata.len(), 12, "{metadata:?}");
        for (prefix, start) in
            [("a", "1."), ("many", "1"), ("many", "12."), ("sparse", "2"), ("", "1")]
        {
            let prefix = Prefix::parse(prefix).unwrap();
            let found = store.list().unwrap().list_starting(&prefix, start).expect("listed");
            let found: BTreeSet<String> = found.map(|key| key.unwrap().to_string()).collect();
            let start = format!("{prefix}{start}");
            let want = chunks.iter().filter(|key| key.starts_with(&start));
            assert_eq!(found, want.cloned().collect(), "{start}");
        }
    }
}

#[test]
fn the_bytes_of_attributes_are_kept_even_if_they_are_no_json_for_others() {
    let own =
        DirectoryStore::open(&fixtures().join("fastparquet_3"), Durability::Buffered).unwrap();
    let store = open_at(&Store::new(Arc::new(own))).expect("opened");
    let found = store.get(&Key::parse(".zattrs").unwrap(), 1000).unwrap().expect("there");
    assert!(String::from_utf8_lossy(&found.bytes).contains("NaN"), "{found:?}");
}

/// A store in memory with references of an array of many chunks. Only the files of one fixture are
/// there.
fn large(record_size: u64, shape: u64, files: &[u64]) -> (Store, Arc<CountingStore>) {
    let (own, counting) = CountingStore::new();
    let metadata = format!(
        r#"{{"metadata": {{".zgroup": {{"zarr_format": 2}}, "x/.zarray": {{"zarr_format": 2,
        "shape": [{shape}], "chunks": [1]}}}}, "record_size": {record_size}}}"#
    );
    set(&own, "refs.parq/.zmetadata", metadata.into_bytes());
    let file = fs::read(fixtures().join("fastparquet_1000/refs.parq/many/refs.0.parq")).unwrap();
    for number in files {
        set(&own, &format!("refs.parq/x/refs.{number}.parq"), file.clone());
    }
    counting.take();
    (own, counting)
}

fn set(own: &Store, key: &str, bytes: Vec<u8>) {
    let (key, pieces) = (Key::parse(key).unwrap(), [Bytes::from(bytes).into()]);
    own.write().unwrap().set(&key, &pieces, Condition::Always).expect("set");
}

#[test]
fn only_the_files_that_are_needed_are_read() {
    let (own, counting) = large(1000, 10_000_000_000, &[0, 77, 9_000_000]);
    let store = open_at(&own).expect("opened");
    assert_eq!(counting.take().gets, 1, "only the metadata");
    let keys: Vec<Key> = ["x/77024", "x/77003", "x/9000000024", "x/5"]
        .iter()
        .map(|it| Key::parse(it).unwrap())
        .collect();
    assert!(store.read().stat(&keys).unwrap().iter().all(Option::is_some));
    assert_eq!(counting.take().gets, 1, "three files with one call");
    assert!(store.read().stat(&keys).unwrap().iter().all(Option::is_some));
    let found = store.list().unwrap().list_prefix(&Prefix::parse("x").unwrap()).expect("listed");
    let found: Vec<String> = found.map(|key| key.unwrap().name().to_owned()).collect();
    assert_eq!(found.len(), 76);
    assert_eq!(counting.take().gets, 0, "the files are in memory");
    let missing: Vec<Key> =
        (0..3).map(|it| Key::parse(&format!("x/{it}500500")).unwrap()).collect();
    assert!(store.read().stat(&missing).unwrap().iter().all(Option::is_none));
}

#[test]
fn more_rows_than_the_record_size_are_an_error() {
    let (own, _) = large(24, 100, &[0]);
    let store = open_at(&own).expect("opened");
    let error = store.stat(&Key::parse("x/3").unwrap()).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "refs.parq/x/refs.0.parq: 1000 rows, more than the record size 24"
    );
}

#[test]
fn metadata_without_a_record_size_is_no_references() {
    for text in [
        r#"{"metadata": {}, "zarr_consolidated_format": 1}"#,
        r#"{"metadata": {}, "record_size": 0}"#,
        r#"{"metadata": {"x/.zarray": 5}, "record_size": 1}"#,
        r#"{"metadata": {"../x/.zarray": {}}, "record_size": 1}"#,
    ] {
        let own = Store::new(Arc::new(MemoryStore::new()));
        set(&own, "refs.parq/.zmetadata", text.as_bytes().to_vec());
        assert!(open_at(&own).is_err(), "{text}");
    }
    let own = Store::new(Arc::new(MemoryStore::new()));
    assert_eq!(open_at(&own).expect_err("absent").kind(), Kind::NotFound);
}

#[test]
fn metadata_that_takes_too_much_memory_is_refused() {
    let own = Store::new(Arc::new(MemoryStore::new()));
    let long = "y".repeat(2 << 20);
    let text = format!(r#"{{"metadata": {{".zattrs": {{"a": "{long}"}}}}, "record_size": 9}}"#);
    set(&own, "refs.parq/.zmetadata", text.into_bytes());
    assert_eq!(open_at(&own).expect_err("refused").kind(), Kind::TooLarge);
}

#[test]
fn a_few_bytes_that_decode_to_many_are_refused() {
    for name in ["hostile/repeated.parq", "hostile/zeros.parq"] {
        let file = fs::read(fixtures().join(name)).expect(name);
        assert!(file.len() < 200_000, "{name}: {} bytes", file.len());
        let error = Record::parse(file.into(), 1000, SystemTime::UNIX_EPOCH).expect_err(name);
        assert_eq!(error.kind(), Kind::TooLarge, "{name}: {error}");
    }
}

/// All files of rows of the fixtures.
fn files(is_wanted: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for case in cases().into_iter().filter(|case| is_wanted(&case.display().to_string())) {
        for name in
            ["a/refs.0.parq", "many/refs.0.parq", "inline/refs.0.parq", "scalar/refs.0.parq"]
        {
            files.push(fs::read(case.join("refs.parq").join(name)).expect(name));
        }
    }
    files
}

/// Reads all that a file has, if it is valid.
fn read_all(file: Vec<u8>) -> Result<u64> {
    let record = Record::parse(file.into(), 1000, SystemTime::UNIX_EPOCH)?;
    for row in 0..record.count() {
        assert_eq!(record.reference(row).is_none(), record.is_missing(row));
    }
    Ok(record.count())
}

#[test]
fn a_file_that_is_cut_off_is_an_error_and_never_a_panic() {
    for file in files(|_| true) {
        read_all(file.clone()).expect("valid");
        for len in 0..file.len() {
            assert!(read_all(file[..len].to_vec()).is_err(), "{len} bytes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_damaged_file_is_an_error_and_never_a_panic(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        (in_footer, in_pages) in any::<(bool, bool)>(),
    ) {
        // Changes in a compressed page hardly ever reach its values.
        let files = files(|case| !in_pages || case.ends_with("uncompressed"));
        let mut file = which.get(&files).clone();
        let len = file.len();
        for (at, byte) in changes {
            let at = if in_footer { len - 1 - at.index(len.min(600)) } else { at.index(len) };
            file[at] = byte;
        }
        drop(read_all(file));
    }
}
