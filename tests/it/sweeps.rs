//! What is decoded before somebody asks, and how often.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;

use serde_json::json;

use crate::support::{Mount, stat};

const CHUNKS: u64 = 64;
const CHUNK_LEN: u64 = 1 << 20;

/// An array of bytes in 64 chunks of a MiB, all of which are stored.
fn mount(options: &[&str]) -> Mount {
    let mount = Mount::new(&["--create", "--codecs", "gzip"]);
    fs::create_dir(mount.at("x")).unwrap();
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [CHUNKS * CHUNK_LEN], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK_LEN]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes"}], "attributes": {}
    });
    fs::write(mount.at("x/zarr.json"), document.to_string()).unwrap();
    fs::create_dir(mount.at("x/c")).unwrap();
    let mut chunk = vec![0; 1 << 20];
    for number in 0..64_u8 {
        chunk.fill(number);
        fs::write(mount.at("x/c").join(number.to_string()), &chunk).unwrap();
    }
    mount.remount(options);
    mount
}

fn decoded(mount: &Mount) -> (u64, u64) {
    let count = |name: &str| stat(mount, &format!("zarrfs_chunks_{name}_total"));
    (count("decoded"), count("prefetched"))
}

#[test]
fn a_sweep_decodes_each_chunk_once_ahead_of_the_reader_and_keeps_few() {
    let mount = mount(&[]);
    let mut bytes = Vec::new();
    File::open(mount.at("x.raw")).unwrap().read_to_end(&mut bytes).unwrap();
    assert!(bytes.chunks(1 << 20).zip(0..).all(|(chunk, n)| chunk.iter().all(|byte| *byte == n)));
    let (all, ahead) = decoded(&mount);
    assert!(all == CHUNKS && ahead > CHUNKS / 2, "{all} decoded, {ahead} ahead");
    assert!(stat(&mount, "zarrfs_cache_bytes") < 32 << 20);
}

#[test]
fn chunk_files_in_the_order_of_their_names_are_decoded_once_ahead_of_the_reader() {
    for by_text in [false, true] {
        let mount = mount(&[]);
        let mut names: Vec<u8> = (0..64).collect();
        if by_text {
            names.sort_by_key(ToString::to_string);
        }
        for name in names {
            let chunk = fs::read(mount.at("x/c").join(name.to_string())).unwrap();
            assert!(chunk.len() == 1 << 20 && chunk.iter().all(|byte| *byte == name));
        }
        let (all, ahead) = decoded(&mount);
        assert!(all == CHUNKS && ahead > CHUNKS / 2, "{all} decoded, {ahead} ahead");
    }
}

/// Shows: direct-io.
#[test]
fn random_reads_decode_nothing_in_advance() {
    let mount = mount(&["-o", "direct_io"]);
    let file = File::open(mount.at("x.raw")).unwrap();
    let mut byte = [0];
    for number in [50_u8, 3, 40, 7, 60, 20] {
        file.read_exact_at(&mut byte, u64::from(number) * CHUNK_LEN + 5).unwrap();
        assert_eq!(byte, [number]);
    }
    for number in [9_u8, 33, 2] {
        fs::read(mount.at("x/c").join(number.to_string())).unwrap();
    }
    assert_eq!(decoded(&mount), (9, 0));
    // What is written to one is there for the other at once.
    let chunk = OpenOptions::new().write(true).open(mount.at("x/c/50")).unwrap();
    chunk.write_all_at(&[99], 5).unwrap();
    drop(chunk);
    file.read_exact_at(&mut byte, 50 * CHUNK_LEN + 5).unwrap();
    assert_eq!(byte, [99]);
}

#[test]
fn a_cache_that_is_too_small_gets_no_prefetched_chunks() {
    let mount = mount(&["--cache-size", "4M"]);
    let bytes = fs::read(mount.at("x.raw")).unwrap();
    assert_eq!(bytes.len(), 64 << 20);
    let (all, ahead) = decoded(&mount);
    assert_eq!((all, ahead), (CHUNKS, 0));
}

#[test]
fn a_sweep_over_chunks_of_a_byte_takes_no_more_memory_and_time_than_reading_them() {
    let mount = Mount::new(&["--create"]);
    fs::create_dir(mount.at("x")).unwrap();
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [1_u64 << 30], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 7, "codecs": [{"name": "bytes"}], "attributes": {}
    });
    fs::write(mount.at("x/zarr.json"), document.to_string()).unwrap();
    let mut bytes = vec![0; 64 << 10];
    let mut file = File::open(mount.at("x.raw")).unwrap();
    file.read_exact(&mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7));
    drop(file);
    let process = stat(&mount, "zarrfs_process_id");
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(most < 200 << 10, "{most} KiB");
}
