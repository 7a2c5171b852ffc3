//! Other programs that change the store while it is mounted, whatever they do to the times.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::support::Mount;

const CHUNK_LEN: usize = 1024;
const CHUNKS: usize = 4;

/// How long after a change every program must see it, with the options of [`mount`].
const TTL: Duration = Duration::from_millis(120);

/// The array `x` of bytes in four chunks, stored with `codecs` and `shards`; each chunk is full of
/// `first` plus its number.
fn mount(codecs: &str, shards: &str, first: u8) -> Mount {
    let mount = Mount::new(&["--create", "--codecs", codecs, "--shards", shards]);
    let document = json!({
        "zarr_format": 3, "node_type": "array",
        "shape": [CHUNKS * CHUNK_LEN], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK_LEN]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes"}], "attributes": {}
    });
    fs::create_dir_all(mount.at("x/c")).unwrap();
    fs::write(mount.at("x/zarr.json"), document.to_string()).unwrap();
    for (number, value) in (first..).take(CHUNKS).enumerate() {
        fs::write(mount.at(&format!("x/c/{number}")), vec![value; CHUNK_LEN]).unwrap();
    }
    mount.remount(&["--metadata-ttl", "50ms", "--writeback", "sync"]);
    mount
}

/// The files below a directory of the store, with their bytes.
fn values(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(values(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

fn set_time(path: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Shows: outside-times.
#[test]
fn values_restored_with_old_times_are_seen_and_not_overwritten() {
    for (codecs, shards) in
        [("none", "none"), ("gzip", "none"), ("none", "[2048]"), ("gzip", "[4096]")]
    {
        let (old, new) = (mount(codecs, shards, 10), mount(codecs, shards, 20));
        let chunks = old.store().join("x/c");
        let restored = values(&new.store().join("x/c"));
        for path in values(&chunks).keys() {
            set_time(path);
        }
        let chunk = |number: usize| old.at(&format!("x/c/{number}"));
        let first_of = |number: usize| fs::read(chunk(number)).unwrap()[0];
        let view = || fs::read(old.at("x.raw")).unwrap();
        assert_eq!([0, 1, 2, 3].map(first_of), [10, 11, 12, 13], "{codecs} {shards}");
        assert_eq!((view()[0], view()[CHUNK_LEN]), (10, 11));

        for (path, bytes) in restored {
            let path = old.store().join(path.strip_prefix(new.store()).unwrap());
            fs::remove_file(&path).unwrap();
            fs::write(&path, bytes).unwrap();
            set_time(&path);
        }
        std::thread::sleep(TTL);
        assert_eq!((view()[0], view()[CHUNK_LEN]), (20, 21), "{codecs} {shards}: an old view");
        assert_eq!([0, 1, 2, 3].map(first_of), [20, 21, 22, 23], "{codecs} {shards}: old chunks");
        let patch = |path: PathBuf, at: u64| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&[99], at).unwrap();
        };
        patch(chunk(0), 5);
        patch(old.at("x.raw"), 2 * 1024 + 5);
        old.remount(&[]);
        for number in [0, 2] {
            let mut wanted = vec![20 + u8::try_from(number).unwrap(); CHUNK_LEN];
            wanted[5] = 99;
            assert!(
                fs::read(chunk(number)).unwrap() == wanted,
                "{codecs} {shards}: bytes were lost"
            );
        }
    }
}
