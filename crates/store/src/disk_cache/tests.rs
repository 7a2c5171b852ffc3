use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::Version;
use zarrfs_base::error::Kind;

const MB: u64 = 1 << 20;

fn cache(most: u64) -> (tempfile::TempDir, DiskCache) {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = DiskCache::open(directory.path(), most).expect("a cache");
    (directory, cache)
}

fn stat(len: u64, version: u64) -> Stat {
    let version = Version::settled([version, 0, len, 1]);
    Stat { len, modified: SystemTime::UNIX_EPOCH, version }
}

fn bytes(len: usize, seed: u8) -> Bytes {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect::<Vec<u8>>().into()
}

/// The files of a cache.
fn files(cache: &DiskCache) -> Vec<PathBuf> {
    let directories = fs::read_dir(cache.dir.path_of(".")).expect("a directory").flatten();
    let directories = directories.filter(|it| it.path().is_dir());
    let files = directories.flat_map(|it| fs::read_dir(it.path()).expect("a directory").flatten());
    files.map(|file| file.path().canonicalize().expect("there")).collect()
}

proptest! {
    #[test]
    fn every_range_that_was_put_is_found_and_no_other(
        ranges in prop::collection::vec((0_u64..400_000, 1_usize..200_000), 1..8),
        asked in prop::collection::vec((0_u64..500_000, 1_u64..200_000), 1..8),
    ) {
        let (_directory, cache) = cache(64 * MB);
        let (value, stat) = (bytes(600_000, 0), stat(600_000, 1));
        let mut had = vec![false; 600_000];
        for (start, len) in ranges {
            let start = start as usize;
            cache.put("v", stat, start as u64, &value.slice(start..start + len));
            had[start..start + len].fill(true);
        }
        // Another process reads what this one has written.
        let other = DiskCache::open(cache.dir.shown().parent().expect("above"), MB).expect("a cache");
        for (start, len) in asked {
            let end = (start + len).min(600_000);
            let is_had = had[start as usize..end as usize].iter().all(|&had| had);
            let want = is_had.then(|| value.slice(start as usize..end as usize));
            prop_assert_eq!(cache.get("v", stat, start, end), want.clone());
            prop_assert_eq!(other.get("v", stat, start, end), want);
        }
    }

    #[test]
    fn a_damaged_file_is_never_believed(
        lens in prop::collection::vec(1_usize..150_000, 1..4),
        damage in prop::collection::vec((0_u64..1000, any::<u8>()), 1..4),
        cut in prop::option::of(0_u64..1000),
    ) {
        let (_directory, cache) = cache(64 * MB);
        let (value, stat) = (bytes(600_000, 0), stat(600_000, 1));
        let mut start = 0;
        for len in &lens {
            cache.put("v", stat, start as u64, &value.slice(start..start + len));
            start += len;
        }
        let [path] = <[PathBuf; 1]>::try_from(files(&cache)).expect("one file");
        let file = OpenOptions::new().write(true).read(true).open(&path).expect("opened");
        let len = file.metadata().expect("there").len();
        for (place, byte) in damage {
            file.write_all_at(&[byte], place * len / 1000).expect("written");
        }
        if let Some(place) = cut {
            file.set_len(place * len / 1000).expect("cut");
        }
        let other = DiskCache::open(cache.dir.shown().parent().expect("above"), MB).expect("a cache");
        for cache in [&other, &cache] {
            let mut start = 0;
            for len in &lens {
                let end = start + len;
                if let Some(found) = cache.get("v", stat, start as u64, end as u64) {
                    prop_assert_eq!(found, value.slice(start..end));
                }
                start = end;
            }
            // A value that is put again can be read again.
            cache.put("v", stat, 0, &value.slice(..1000));
            cache.get("v", stat, 0, 1000);
            cache.put("v", stat, 0, &value.slice(..1000));
            prop_assert_eq!(cache.get("v", stat, 0, 1000), Some(value.slice(..1000)));
        }
    }
}

#[test]
fn only_bytes_of_the_requested_version_are_found() {
    let (_directory, cache) = cache(64 * MB);
    cache.put("v", stat(10, 1), 0, &bytes(10, 1));
    assert_eq!(cache.get("v", stat(10, 2), 0, 10), None);
    assert_eq!(cache.get("w", stat(10, 1), 0, 10), None);
    cache.put("v", stat(10, 2), 0, &bytes(10, 2));
    assert_eq!(cache.get("v", stat(10, 1), 0, 10), None, "of a version that was replaced");
    assert_eq!(cache.get("v", stat(10, 2), 0, 10), Some(bytes(10, 2)));
    let mut unsettled = stat(10, 2);
    unsettled.version.is_settled = false;
    assert_eq!(cache.get("v", unsettled, 0, 10), None);
    assert_eq!(files(&cache).len(), 1);
}

#[test]
fn a_range_of_a_long_value_lies_in_several_files() {
    let (_directory, cache) = cache(1 << 30);
    let stat = stat(3 * PART_LEN, 1);
    let (start, value) = (PART_LEN - 1000, bytes(5000, 7));
    cache.put("long", stat, start, &value);
    assert!(cache.may_have("long"));
    assert_eq!(cache.get("long", stat, start, start + 5000), Some(value.clone()));
    assert_eq!(cache.get("long", stat, PART_LEN, start + 9), None);
    // The end of another one, whose beginning was not read.
    cache.put("end", stat, 3 * PART_LEN - 5000, &value);
    assert!(cache.may_have("end"));
    assert_eq!(cache.get("end", stat, 3 * PART_LEN - 5000, 3 * PART_LEN), Some(value));
}

#[test]
fn what_was_used_least_recently_goes_first_and_the_size_is_kept() {
    let (_directory, cache) = cache(16 * MB);
    let put = |number: u64| {
        cache.put(&format!("v{number}"), stat(MB, 1), 0, &bytes(1 << 20, number as u8));
    };
    for number in 0..8 {
        put(number);
    }
    let day = Duration::from_secs(24 * 3600);
    for path in files(&cache) {
        let file = File::open(path).expect("opened");
        file.set_modified(SystemTime::now() - day).expect("set");
    }
    assert!(cache.get("v3", stat(MB, 1), 0, MB).is_some(), "which is used now");
    for number in 8..20 {
        put(number);
    }
    let used: u64 = files(&cache).iter().map(|it| fs::metadata(it).expect("there").len()).sum();
    assert!(used <= 16 * MB, "{used} bytes");
    let has = |number: u64| cache.get(&format!("v{number}"), stat(MB, 1), 0, MB).is_some();
    assert!(has(3) && has(19));
    let old = (0..8).filter(|number| *number != 3 && has(*number)).count();
    assert!(old < 4, "{old} of the old ones are left");
}

#[test]
fn files_of_a_clock_that_was_wrong_do_not_stay_for_ever() {
    let (_directory, cache) = cache(16 * MB);
    cache.put("v", stat(MB, 1), 0, &bytes(1 << 20, 1));
    let [path] = <[PathBuf; 1]>::try_from(files(&cache)).expect("one file");
    let year = Duration::from_secs(365 * 24 * 3600);
    let set = |time| File::open(&path).expect("opened").set_modified(time).expect("set");
    set(SystemTime::now() + year);
    assert!(cache.get("v", stat(MB, 1), 0, MB).is_some());
    let used = fs::metadata(&path).expect("there").modified().expect("a time");
    assert!(
        used < SystemTime::now() + Duration::from_secs(60),
        "a use is noted by the clock of now"
    );
    set(SystemTime::now() + year);
    tidy::tidy(&cache.dir, |used| used).expect("tidied");
    let used = fs::metadata(&path).expect("there").modified().expect("a time");
    assert!(used < SystemTime::now() + Duration::from_secs(60));
}

#[test]
fn what_a_killed_process_has_left_is_removed() {
    let (_directory, cache) = cache(16 * MB);
    cache.put("v", stat(MB, 1), 0, &bytes(1 << 20, 1));
    let [path] = <[PathBuf; 1]>::try_from(files(&cache)).expect("one file");
    let left = path.with_file_name(format!("{TEMPORARY}{}", unique::text()));
    fs::write(&left, b"half").expect("written");
    tidy::tidy(&cache.dir, |used| used).expect("tidied");
    assert!(left.exists(), "it may be in use");
    let day = Duration::from_secs(24 * 3600);
    File::open(&left).expect("opened").set_modified(SystemTime::now() - day).expect("set");
    tidy::tidy(&cache.dir, |used| used).expect("tidied");
    assert!(!left.exists() && path.exists());
}

#[test]
fn a_smaller_size_holds_from_the_first_bytes_on() {
    let (directory, large) = cache(64 * MB);
    for number in 0..16 {
        large.put(&format!("v{number}"), stat(MB, 1), 0, &bytes(1 << 20, 1));
    }
    let small = DiskCache::open(directory.path(), 8 * MB).expect("a cache");
    small.put("w", stat(1000, 1), 0, &bytes(1000, 1));
    let used: u64 = files(&small).iter().map(|it| fs::metadata(it).expect("there").len()).sum();
    assert!(used <= 8 * MB, "{used} bytes");
}

#[test]
fn several_processes_write_one_value() {
    let (directory, _cache) = cache(64 * MB);
    let (value, stat) = (bytes(4_000_000, 3), stat(4_000_000, 1));
    thread::scope(|scope| {
        for number in 0..4_usize {
            let (path, value) = (directory.path(), &value);
            scope.spawn(move || {
                let cache = DiskCache::open(path, 64 * MB).expect("a cache");
                for at in (number..40).step_by(2) {
                    let start = at * 100_000;
                    cache.put("v", stat, start as u64, &value.slice(start..start + 100_000));
                    let found = cache.get("v", stat, start as u64, start as u64 + 100_000);
                    if let Some(found) = found {
                        assert_eq!(found, value.slice(start..start + 100_000));
                    }
                }
            });
        }
    });
    let cache = DiskCache::open(directory.path(), 64 * MB).expect("a cache");
    for start in (0..4_000_000).step_by(100_000) {
        let found = cache.get("v", stat, start as u64, start as u64 + 100_000);
        assert!(found.is_none_or(|found| found == value.slice(start..start + 100_000)));
    }
}

#[test]
fn a_directory_of_others_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(DiskCache::open(directory.path(), MB).expect("a cache"));
    let root = directory.path().join(DIRECTORY);
    assert_eq!(fs::metadata(&root).expect("there").mode() & 0o777, 0o700);
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).expect("set");
    let refused = DiskCache::open(directory.path(), MB).expect_err("refused");
    assert_eq!(refused.kind(), Kind::NotPermitted);
}

#[test]
fn ranges_that_threads_put_at_once_are_all_kept() {
    let (_directory, cache) = cache(256 * MB);
    // Another process writes to the same directory.
    let other =
        DiskCache::open(cache.dir.shown().parent().expect("above"), 256 * MB).expect("a cache");
    let value = bytes(16 << 16, 0);
    for round in 0..20 {
        let (name, stat) = (format!("v{round}"), stat(16 << 16, 1));
        thread::scope(|scope| {
            for part in 0..16_usize {
                let cache = if part % 2 == 0 { &cache } else { &other };
                let (bytes, name) = (value.slice(part << 16..(part + 1) << 16), &name);
                scope.spawn(move || cache.put(name, stat, (part << 16) as u64, &bytes));
            }
        });
        assert_eq!(cache.get(&name, stat, 0, 16 << 16), Some(value.clone()), "{name}");
    }
}

#[test]
fn files_of_the_user_stay_wherever_they_lie() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::create_dir_all(at("v1/run1")).expect("made");
    fs::create_dir_all(at("zarrfs-cache")).expect("made");
    let cache = DiskCache::open(directory.path(), MB).expect("a cache");
    fs::create_dir_all(at("zarrfs-cache/ab")).expect("made");
    fs::create_dir_all(at("zarrfs-cache/run1")).expect("made");
    let names = ["v1/run1/new-measurements.csv", "v1/run1/results.nc", "CACHEDIR.TAG-not", "new-1"];
    let in_cache = ["ab/new-notes", "ab/results.nc", "ab/0123", "run1/new-1", "new-x", "run1/data"];
    let names = names.map(str::to_owned).into_iter();
    let mine: Vec<PathBuf> = names
        .chain(in_cache.map(|name| format!("zarrfs-cache/{name}")))
        .map(|it| at(&it))
        .collect();
    let year = SystemTime::now() - Duration::from_secs(365 * 24 * 3600);
    for path in &mine {
        fs::write(path, bytes(1 << 18, 1)).expect("written");
        File::open(path).expect("opened").set_modified(year).expect("set");
    }
    for number in 0..32 {
        cache.put(&format!("v{number}"), stat(MB / 16, 1), 0, &bytes(1 << 16, 1));
    }
    tidy::tidy(&cache.dir, |_| 0).expect("tidied");
    let left: Vec<_> = mine.iter().filter(|path| path.exists()).collect();
    assert_eq!(left.len(), mine.len(), "{left:?}");
}

#[test]
fn a_directory_that_zarrfs_did_not_make_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("zarrfs-cache")).expect("made");
    fs::write(at("zarrfs-cache/thesis.tex"), "mine").expect("written");
    let refused = DiskCache::open(directory.path(), MB).expect_err("refused");
    assert!(refused.to_string().contains("thesis.tex"), "{refused}");
    fs::remove_file(at("zarrfs-cache/thesis.tex")).expect("removed");
    fs::remove_dir(at("zarrfs-cache")).expect("removed");
    fs::create_dir(at("home")).expect("made");
    std::os::unix::fs::symlink("home", at("zarrfs-cache")).expect("linked");
    DiskCache::open(directory.path(), MB).expect_err("a link is refused");
    assert_eq!(fs::read_dir(at("home")).expect("there").count(), 0);
}

#[test]
fn a_cache_is_tagged_and_only_a_new_directory_around_it_is() {
    let new = tempfile::tempdir().expect("a directory");
    drop(DiskCache::open(new.path(), MB).expect("a cache"));
    let used = tempfile::tempdir().expect("a directory");
    fs::write(used.path().join("data.nc"), "mine").expect("written");
    drop(DiskCache::open(used.path(), MB).expect("a cache"));
    drop(DiskCache::open(used.path(), MB).expect("the same cache"));
    let signature = "Signature: 8a477f597d28d172789f06886806bc55";
    let is_tagged = |place: PathBuf| {
        fs::read_to_string(place.join(TAG)).is_ok_and(|text| text.starts_with(signature))
    };
    assert!(is_tagged(new.path().join(DIRECTORY)) && is_tagged(used.path().join(DIRECTORY)));
    assert!(is_tagged(new.path().to_owned()));
    assert!(!is_tagged(used.path().to_owned()), "a backup needs data.nc");
}

#[test]
fn a_directory_that_takes_the_place_of_the_cache_is_not_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let good = DiskCache::open(&at("mine"), MB).expect("a cache");
    let evil = DiskCache::open(&at("theirs"), MB).expect("a cache");
    good.put("v", stat(10, 1), 0, &bytes(10, 1));
    evil.put("v", stat(10, 1), 0, &bytes(10, 2));
    fs::rename(at("mine/zarrfs-cache"), at("mine/old")).expect("moved");
    fs::rename(at("theirs/zarrfs-cache"), at("mine/zarrfs-cache")).expect("moved");
    assert_eq!(good.get("v", stat(10, 1), 0, 10), Some(bytes(10, 1)));
}

#[test]
fn a_file_of_another_user_is_not_read() {
    let (_directory, cache) = cache(MB);
    cache.put("v", stat(10, 1), 0, &bytes(10, 1));
    let [path] = <[PathBuf; 1]>::try_from(files(&cache)).expect("one file");
    if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
        assert_eq!(cache.get("v", stat(10, 1), 0, 10), None);
    }
}
