//! Chunks that the kernel reads by itself.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::{Mount, stat};

const CHUNKS: u8 = 40;
const CHUNK_LEN: usize = 1 << 18;

/// Two arrays of bytes in chunks of 256 KiB, each filled with its number: `x`, and `small` with
/// three chunks.
fn mount(codec: &str, options: &[&str]) -> Mount {
    let mount = Mount::new(&["--create", "--shards", "none", "--codecs", codec]);
    for (name, chunks) in [("x", CHUNKS), ("small", 3)] {
        let document = json!({
            "zarr_format": 3, "node_type": "array",
            "shape": [usize::from(chunks) * CHUNK_LEN], "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK_LEN]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0, "codecs": [{"name": "bytes"}], "attributes": {}
        });
        fs::create_dir_all(mount.at(name).join("c")).unwrap();
        fs::write(mount.at(name).join("zarr.json"), document.to_string()).unwrap();
    }
    for number in 0..CHUNKS {
        fs::write(chunk(&mount, number), full_of(number)).unwrap();
    }
    mount.remount(options);
    mount
}

fn chunk(mount: &Mount, number: u8) -> PathBuf {
    mount.at("x/c").join(number.to_string())
}

fn full_of(number: u8) -> Vec<u8> {
    vec![number; CHUNK_LEN]
}

fn passed(mount: &Mount) -> u64 {
    stat(mount, "zarrfs_passthrough_opens_total")
}

fn read(mut file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn rw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// A chunk as a program has it mapped that has closed it.
struct Mapped(*mut libc::c_void);

impl Mapped {
    fn new(file: &File) -> Self {
        // SAFETY: the kernel chooses the place; the descriptor is open.
        let address = unsafe {
            let (null, fd) = (std::ptr::null_mut(), file.as_raw_fd());
            libc::mmap(null, CHUNK_LEN, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
        };
        assert_ne!(address, libc::MAP_FAILED);
        Self(address)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: it is mapped for so many bytes.
        unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), CHUNK_LEN) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped so.
        unsafe { libc::munmap(self.0, CHUNK_LEN) };
    }
}

#[test]
fn the_kernel_reads_stored_files_and_memory_files_directly() {
    for codec in ["none", "gzip"] {
        let mount = mount(codec, &[]);
        for number in 0..CHUNKS {
            assert!(fs::read(chunk(&mount, number)).unwrap() == full_of(number), "{codec}");
        }
        assert_eq!(passed(&mount), u64::from(CHUNKS), "{codec}");
        let is_memory = stat(&mount, "zarrfs_passthrough_memory_bytes") > 0;
        assert_eq!(is_memory, codec == "gzip");
    }
}

#[test]
fn without_passthrough_every_read_uses_the_page_cache() {
    let mount = mount("gzip", &["-o", "nopassthrough"]);
    assert!(fs::read(chunk(&mount, 7)).unwrap() == full_of(7));
    assert_eq!(passed(&mount), 0);
}

/// Shows: passthrough.
#[test]
fn a_reader_keeps_the_chunk_that_it_opened_and_later_readers_see_changes() {
    type Change = fn(&Path);
    let in_place: Change = |path| rw(path).write_all_at(&full_of(200), 0).unwrap();
    let anew: Change = |path| fs::write(path, full_of(200)).unwrap();
    let by_rename: Change = |path| {
        let scratch = path.with_file_name("scratch");
        fs::write(&scratch, full_of(200)).unwrap();
        fs::rename(scratch, path).unwrap();
    };
    let again: Change = |path| {
        fs::remove_file(path).unwrap();
        fs::write(path, full_of(200)).unwrap();
    };
    let other_chunk: Change = |path| {
        fs::write(path.with_file_name("9"), full_of(200)).unwrap();
        fs::rename(path.with_file_name("9"), path).unwrap();
    };
    let view: Change = |path| {
        let raw = path.ancestors().nth(3).unwrap().join("x.raw");
        rw(&raw).write_all_at(&full_of(200), 7 << 18).unwrap();
    };
    for codec in ["none", "gzip"] {
        for (how, change) in
            [in_place, anew, by_rename, again, other_chunk, view].iter().enumerate()
        {
            let mount = mount(codec, &[]);
            let path = chunk(&mount, 7);
            let open = File::open(&path).unwrap();
            let map = Mapped::new(&open);
            let closed = Mapped::new(&File::open(&path).unwrap());
            assert_eq!(passed(&mount), 2);
            change(&path);
            assert!(fs::read(&path).unwrap() == full_of(200), "{codec} {how}");
            assert!(read(&open) == full_of(7), "{codec} {how}");
            assert!(map.bytes() == full_of(7) && closed.bytes() == full_of(7), "{codec} {how}");
            assert_eq!(open.metadata().unwrap().len(), CHUNK_LEN as u64);
            drop((open, map, closed));
            // And so it goes on.
            let reader = File::open(&path).unwrap();
            rw(&path).write_all_at(&full_of(201), 0).unwrap();
            assert!(fs::read(&path).unwrap() == full_of(201), "{codec} {how}");
            assert!(read(&reader)[0] >= 200);
        }
    }
}

#[test]
fn mapped_chunks_do_not_change_while_thousands_of_others_are_read() {
    // Memory files of 2 MiB, eight chunks.
    let mount = mount("gzip", &["--cache-size", "4M"]);
    let maps: Vec<_> =
        (0..4).map(|number| Mapped::new(&File::open(chunk(&mount, number)).unwrap())).collect();
    for _ in 0..5 {
        for number in (4..CHUNKS).rev() {
            assert!(fs::read(chunk(&mount, number)).unwrap() == full_of(number));
        }
    }
    for (map, number) in maps.iter().zip(0..) {
        assert!(map.bytes() == full_of(number), "{number}");
    }
    assert!(stat(&mount, "zarrfs_passthrough_memory_bytes") <= 2 << 20);
}

#[test]
fn more_chunks_can_be_open_than_there_are_memory_files() {
    let mount = mount("gzip", &["--cache-size", "4M"]);
    let open: Vec<_> = (0..CHUNKS).map(|n| File::open(chunk(&mount, n)).unwrap()).collect();
    for (file, number) in open.iter().zip(0..) {
        assert!(read(file) == full_of(number), "{number}");
    }
    assert_eq!(passed(&mount), 8);
}

#[test]
fn a_chunk_that_is_being_read_can_be_opened_in_every_other_way() {
    for codec in ["none", "gzip"] {
        let mount = mount(codec, &[]);
        let path = chunk(&mount, 3);
        let readers = [File::open(&path).unwrap(), File::open(&path).unwrap()];
        let ino = readers[0].metadata().unwrap().ino();
        let mut both = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .unwrap();
        assert!(read(&both) == full_of(3));
        assert_ne!(both.metadata().unwrap().ino(), ino, "the kernel would read the old bytes");
        both.seek(SeekFrom::Start(0)).unwrap();
        both.write_all(b"new").unwrap();
        // One who is writing it, and one who comes now.
        assert!(fs::read(&path).unwrap().starts_with(b"new"), "another opener of the same file");
        drop(both);
        fs::metadata(&path).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        assert!(fs::read(&path).unwrap().starts_with(b"new\x03"));
        assert!(readers.iter().all(|reader| read(reader) == full_of(3)));
    }
}

#[test]
fn bytes_in_a_pipe_do_not_change_after_their_file_is_closed() {
    let mount = mount("gzip", &["--cache-size", "4M"]);
    let mut pipe = [0; 2];
    // SAFETY: there is room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let file = File::open(chunk(&mount, 3)).unwrap();
    // SAFETY: the descriptors are open, and no offsets are given.
    let spliced = unsafe {
        let null = std::ptr::null_mut();
        libc::fcntl(pipe[1], libc::F_SETPIPE_SZ, 1 << 20);
        libc::splice(file.as_raw_fd(), null, pipe[1], null, CHUNK_LEN, 0)
    };
    assert!(spliced > 0, "{}", std::io::Error::last_os_error());
    drop(file);
    for number in (4..CHUNKS).cycle().take(200) {
        fs::read(chunk(&mount, number)).unwrap();
    }
    // SAFETY: both are open and of nobody else.
    let (mut out, end) = unsafe { (File::from_raw_fd(pipe[0]), File::from_raw_fd(pipe[1])) };
    drop(end);
    let mut bytes = Vec::new();
    out.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), usize::try_from(spliced).unwrap());
    assert!(bytes.iter().all(|byte| *byte == 3));
}

#[test]
fn a_chunk_renamed_during_a_read_is_found_under_its_new_name() {
    for codec in ["none", "gzip"] {
        for closes_first in [false, true] {
            let mount = mount(codec, &["--metadata-ttl", "60"]);
            let (from, to) = (chunk(&mount, 7), chunk(&mount, 9));
            let open = File::open(&from).unwrap();
            fs::rename(&from, &to).unwrap();
            let open = (!closes_first).then_some(open);
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::write(&from, full_of(200)).unwrap();
            assert!(fs::read(&to).unwrap() == full_of(7), "{codec}");
            rw(&to).write_all_at(b"new", 0).unwrap();
            File::options()
                .write(true)
                .open(&to)
                .unwrap()
                .set_modified(std::time::SystemTime::now())
                .unwrap();
            assert!(fs::read(&from).unwrap() == full_of(200), "{codec}");
            assert!(fs::read(&to).unwrap().starts_with(b"new\x07"), "{codec}");
            drop(open);
        }
    }
}

#[test]
fn of_two_writes_at_the_same_time_the_last_one_is_read() {
    let mount = mount("gzip", &[]);
    let path = chunk(&mount, 1);
    let put = |number| {
        let mut file = File::create(&path).unwrap();
        file.write_all(&full_of(number)).unwrap();
        drop(file);
        rw(&path).set_modified(std::time::UNIX_EPOCH).unwrap();
    };
    for number in (0..60).step_by(3) {
        put(number);
        assert!(fs::read(&path).unwrap() == full_of(number));
        put(number + 1);
        put(number + 2);
        assert!(fs::read(&path).unwrap() == full_of(number + 2), "{number}");
    }
}

#[test]
fn an_open_descriptor_keeps_its_removed_chunk() {
    for codec in ["none", "gzip"] {
        let mount = mount(codec, &[]);
        let path = chunk(&mount, 3);
        let open = File::open(&path).unwrap();
        rw(&path).write_all_at(b"new", 0).unwrap();
        fs::remove_file(&path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1200));
        let known = open.metadata().unwrap();
        assert_eq!((known.len(), known.nlink()), (CHUNK_LEN as u64, 0));
        let again = File::open(format!("/proc/self/fd/{}", open.as_raw_fd())).unwrap();
        assert!(read(&again) == full_of(3) && read(&open) == full_of(3), "{codec}");
    }
}

#[test]
fn concurrent_readers_and_writers_of_a_chunk_get_no_errors() {
    for codec in ["none", "gzip"] {
        let mount = mount(codec, &["--metadata-ttl", "0"]);
        let path = chunk(&mount, 5);
        let stored: Vec<PathBuf> = (0..2).map(|n| mount.store().join(format!("x/c/{n}"))).collect();
        let target = mount.store().join("x/c/5");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..150 {
                        let bytes = fs::read(&path).unwrap();
                        assert_eq!(bytes.len(), CHUNK_LEN, "{codec}");
                    }
                });
            }
            // Through this mount, and as another program would.
            scope.spawn(|| {
                for number in 0..40 {
                    let scratch = mount.at("x/c/scratch");
                    fs::write(&scratch, full_of(number)).unwrap();
                    fs::rename(&scratch, &path).unwrap();
                }
            });
            scope.spawn(|| {
                for number in 0..100 {
                    let scratch = mount.store().join("scratch");
                    fs::copy(&stored[number % 2], &scratch).unwrap();
                    fs::rename(scratch, &target).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            });
        });
        assert!(passed(&mount) > 0, "{codec}: there was nothing to meet");
    }
}

#[test]
fn a_small_view_is_read_by_the_kernel_as_it_was_when_it_was_opened() {
    for codec in ["none", "gzip"] {
        let mount = mount(codec, &[]);
        let whole = |numbers: [u8; 3]| numbers.map(full_of).concat();
        let path = mount.at("small.raw");
        fs::write(&path, whole([1, 2, 3])).unwrap();
        mount.remount(&[]);
        let open = File::open(&path).unwrap();
        assert!(read(&open) == whole([1, 2, 3]));
        assert!(fs::read(&path).unwrap() == whole([1, 2, 3]));
        assert_eq!(passed(&mount), 2, "{codec}");
        let map = Mapped::new(&open);
        // A chunk is written here, then all through the view, then a part of it.
        fs::write(mount.at("small/c/1"), full_of(7)).unwrap();
        assert!(fs::read(&path).unwrap() == whole([1, 7, 3]), "{codec}");
        assert!(read(&open) == whole([1, 2, 3]) && map.bytes() == full_of(1), "{codec}");
        fs::write(&path, whole([4, 5, 6])).unwrap();
        assert!(fs::read(&path).unwrap() == whole([4, 5, 6]), "{codec}");
        rw(&path).write_all_at(&full_of(9), CHUNK_LEN as u64).unwrap();
        assert!(fs::read(&path).unwrap() == whole([4, 9, 6]), "{codec}");
        assert!(read(&open) == whole([1, 2, 3]), "{codec}");
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 * CHUNK_LEN as u64);
    }
}

#[test]
fn a_small_view_shows_changes_when_it_is_opened_after_the_ttl() {
    let mount = mount("gzip", &[]);
    let other = fs::read(mount.store().join("x/c/9")).unwrap();
    fs::write(mount.at("small.raw"), [full_of(1), full_of(2), full_of(3)].concat()).unwrap();
    mount.remount(&["--metadata-ttl", "0"]);
    let path = mount.at("small.raw");
    let open = File::open(&path).unwrap();
    fs::write(mount.store().join("small/c/1"), other).unwrap();
    assert!(fs::read(&path).unwrap() == [full_of(1), full_of(9), full_of(3)].concat());
    assert!(read(&open) == [full_of(1), full_of(2), full_of(3)].concat());
    assert!(passed(&mount) >= 1);
}

#[test]
fn a_small_view_that_is_opened_continually_shows_changes() {
    let mount = mount("gzip", &[]);
    fs::write(mount.at("small.raw"), [full_of(1), full_of(2), full_of(3)].concat()).unwrap();
    mount.remount(&["--metadata-ttl", "400ms"]);
    let path = mount.at("small.raw");
    assert!(fs::read(&path).unwrap() == [full_of(1), full_of(2), full_of(3)].concat());
    fs::copy(mount.store().join("x/c/9"), mount.store().join("small/c/1")).unwrap();
    let changed = [full_of(1), full_of(9), full_of(3)].concat();
    let is_seen = (0..30).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        fs::read(&path).unwrap() == changed
    });
    assert!(is_seen);
}

#[test]
fn concurrent_opens_of_a_small_view_all_use_passthrough() {
    let mount = mount("gzip", &[]);
    let whole = [full_of(1), full_of(2), full_of(3)].concat();
    fs::write(mount.at("small.raw"), &whole).unwrap();
    mount.remount(&[]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    assert!(fs::read(mount.at("small.raw")).unwrap() == whole);
                }
            });
        }
    });
    assert_eq!(passed(&mount), 100);
}

/// Shows: descriptors.
#[test]
fn more_readers_than_there_are_descriptors_read_every_chunk() {
    const READERS: usize = 600;
    let mount = Mount::new(&["--create", "--shards", "none", "--codecs", "none"]);
    let document = json!({
        "zarr_format": 3, "node_type": "array",
        "shape": [READERS * CHUNK_LEN], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK_LEN]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes"}], "attributes": {}
    });
    fs::create_dir_all(mount.store().join("x/c")).unwrap();
    fs::write(mount.store().join("x/zarr.json"), document.to_string()).unwrap();
    for number in 0..READERS {
        let bytes = vec![number.to_le_bytes()[0]; CHUNK_LEN];
        fs::write(mount.store().join("x/c").join(number.to_string()), bytes).unwrap();
    }
    // No more than these can be had, and the limit is raised to them.
    mount.unmount();
    mount.mount_again_with_descriptors(400);
    assert_eq!(stat(&mount, "zarrfs_descriptor_limit"), 400);
    let open = |number: usize| File::open(mount.at("x/c").join(number.to_string())).unwrap();
    let readers: Vec<File> = (0..READERS).map(open).collect();
    for (number, reader) in readers.iter().enumerate() {
        assert!(read(reader).iter().all(|byte| *byte == number.to_le_bytes()[0]), "{number}");
    }
    assert!(stat(&mount, "zarrfs_passthrough_files") <= 150);
    assert!(stat(&mount, "zarrfs_descriptors") < 350, "{}", stat(&mount, "zarrfs_descriptors"));
    // All else goes on: names are looked up, listed, and chunks stored.
    fs::write(mount.at("x/c/3"), full_of(9)).unwrap();
    assert_eq!(fs::read(mount.at("x/c/3")).unwrap(), full_of(9));
    assert_eq!(fs::read_dir(mount.at("x/c")).unwrap().count(), READERS);
    drop(readers);
}

/// Shows: descriptors.
#[test]
fn more_open_directories_than_there_are_descriptors_are_listed_whole() {
    const DIRECTORIES: usize = 300;
    let mount = Mount::new(&["--create"]);
    for number in 0..1200 {
        fs::write(mount.store().join(format!("file{number}")), b"").unwrap();
    }
    mount.unmount();
    mount.mount_again_with_descriptors(200);
    let mut open: Vec<_> = (0..DIRECTORIES).map(|_| fs::read_dir(mount.path()).unwrap()).collect();
    for directory in &mut open {
        assert!(directory.next().is_some());
    }
    assert!(stat(&mount, "zarrfs_open_directories") >= 300);
    assert!(stat(&mount, "zarrfs_directories_being_read") <= 60);
    for (number, directory) in open.into_iter().enumerate() {
        // With zarr.json, and without the name that was read above.
        assert_eq!(directory.map(Result::unwrap).count(), 1200, "{number}");
    }
}
