//! The modification times of chunks in shards, by which programs find out what is up to date.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use crate::support::Mount;

const V3: &str = "z316__shard_end";

/// The chunks of the first shard.
const CHUNKS: [&str; 4] = ["c/0/0", "c/0/1", "c/1/0", "c/1/1"];

const MODES: [&str; 3] = ["--writeback=sync", "--writeback=delay", "--writeback=all"];

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn times(mount: &Mount) -> Vec<SystemTime> {
    CHUNKS.iter().map(|chunk| fs::metadata(mount.at(chunk)).unwrap().modified().unwrap()).collect()
}

fn set(mount: &Mount, chunk: &str, modified: SystemTime) {
    File::options().write(true).open(mount.at(chunk)).unwrap().set_modified(modified).unwrap();
}

fn change(mount: &Mount, chunk: &str) {
    let mut bytes = fs::read(mount.at(chunk)).unwrap();
    for byte in &mut bytes {
        *byte = !*byte;
    }
    fs::write(mount.at(chunk), bytes).unwrap();
}

fn store(mount: &Mount) {
    rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
}

/// Shows: chunk-time.
#[test]
fn a_change_of_one_chunk_leaves_the_times_of_the_others_in_its_shard() {
    for mode in MODES {
        let mount = Mount::fixture(V3, &[mode]);
        let before = times(&mount);
        change(&mount, CHUNKS[1]);
        store(&mount);
        let after = times(&mount);
        assert!(after[1] > before[1], "{mode}");
        for other in [0, 2, 3] {
            assert_eq!(after[other], before[other], "{mode} {other}");
        }
        change(&mount, CHUNKS[2]);
        store(&mount);
        let last = times(&mount);
        assert_eq!((last[0], last[1], last[3]), (after[0], after[1], after[3]), "{mode}");
        assert!(last[2] > after[2], "{mode}");
    }
}

/// Shows: chunk-time.
#[test]
fn the_time_that_a_program_sets_for_a_chunk_is_not_that_of_the_others_in_its_shard() {
    for mode in MODES {
        let mount = Mount::fixture(V3, &[mode]);
        let before = times(&mount);
        change(&mount, CHUNKS[1]);
        set(&mount, CHUNKS[1], time(1));
        store(&mount);
        set(&mount, CHUNKS[2], time(2));
        store(&mount);
        assert_eq!(times(&mount), [before[0], time(1), time(2), before[3]], "{mode}");
        // Of the shard, nothing is known but that it was changed.
        mount.remount(&[mode]);
        let now = times(&mount);
        assert!(now.iter().all(|now| *now == now_of(&mount) && *now > before[0]), "{mode}");
    }
}

/// Shows: chunk-time.
#[test]
fn a_shard_gets_the_latest_time_if_programs_set_the_times_of_all_its_chunks() {
    for mode in MODES {
        let mount = Mount::fixture(V3, &[mode]);
        for (chunk, seconds) in CHUNKS.iter().zip([3, 9, 5, 7]) {
            change(&mount, chunk);
            set(&mount, chunk, time(seconds));
        }
        store(&mount);
        assert_eq!(times(&mount), [3, 9, 5, 7].map(time), "{mode}");
        mount.remount(&[mode]);
        assert_eq!(times(&mount), [time(9); 4], "{mode}");
    }
}

/// Returns the time of the first shard.
fn now_of(mount: &Mount) -> SystemTime {
    fs::metadata(mount.store().join("c/0/0")).unwrap().modified().unwrap()
}
