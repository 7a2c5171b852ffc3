//! Files that the kernel writes by itself, as files of the store.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{Mount, Tmpfs, close, errno, names, stat, until};

const CHUNKS: usize = 8;

/// An array of 32 KiB in each chunk, whose maker compresses. Its chunk files are in `a/c`.
fn document() -> String {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [CHUNKS << 15], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1 << 15]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}],
        "attributes": {}
    })
    .to_string()
}

fn mount(options: &[&str]) -> Mount {
    let mount = Mount::new(&[&["--create"], options].concat());
    fs::create_dir_all(mount.at("a")).unwrap();
    fs::write(mount.at("a/zarr.json"), document()).unwrap();
    fs::create_dir(mount.at("a/c")).unwrap();
    mount
}

fn trusting() -> Mount {
    mount(&["--trust-encoded"])
}

/// An encoded chunk that is full of a byte.
fn chunk(byte: u8) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&vec![byte; 1 << 15]).unwrap();
    encoder.finish().unwrap()
}

fn stored(mount: &Mount, number: usize) -> PathBuf {
    mount.store().join(format!("a/c/{number}"))
}

fn new(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

/// Tells zarrfs of a close, while the file stays open.
fn close_a_duplicate(file: &File) -> std::io::Result<()> {
    close(file.try_clone().unwrap())
}

fn read(mut file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn passed(mount: &Mount) -> u64 {
    stat(mount, "zarrfs_passthrough_opens_total")
}

fn is_clean(mount: &Mount) {
    mount.unmount();
    let left: Vec<_> = mount.stored().into_iter().map(|(name, _)| name).collect();
    assert!(
        !left.iter().any(|name| name.contains("__lock") || name.contains(".zarrfs")),
        "{left:?}"
    );
}

/// Shows: kernel-writes.
#[test]
fn trusted_chunks_and_files_that_are_renamed_onto_chunks_are_written_by_the_kernel() {
    for (options, direct, renamed) in [
        (&["--trust-encoded"][..], 1, 1),
        (&[], 0, 1),
        (&["--trust-encoded", "--durability=fsync"], 1, 1),
        (&["--trust-encoded", "-o", "nopassthrough"], 0, 0),
        (&["--trust-encoded", "--writeback=all"], 0, 0),
    ] {
        let mount = mount(options);
        for (name, expected) in [("a/c/0", direct), ("a/c/.partial", renamed)] {
            let before = passed(&mount);
            let mut file = new(&mount.at(name));
            file.write_all(&chunk(1)[..9]).unwrap();
            file.write_all(&chunk(1)[9..]).unwrap();
            assert_eq!(file.metadata().unwrap().len(), chunk(1).len() as u64);
            assert_eq!(read(&file), chunk(1), "{options:?}: {name}");
            assert_eq!(fs::read(mount.at(name)).unwrap(), chunk(1), "another reader of {name}");
            assert!(!stored(&mount, 0).exists() || name != "a/c/0", "not closed yet");
            close(file).unwrap();
            assert!((passed(&mount) - before > 0) == (expected > 0), "{options:?}: {name}");
        }
        fs::rename(mount.at("a/c/.partial"), mount.at("a/c/1")).unwrap();
        let whole = [vec![1; 1 << 16], vec![0; (CHUNKS - 2) << 15]].concat();
        assert!(fs::read(mount.at("a.raw")).unwrap() == whole, "{options:?}");
        is_clean(&mount);
        for number in [0, 1] {
            assert_eq!(fs::read(stored(&mount, number)).unwrap(), chunk(1), "{options:?}");
        }
    }
}

#[test]
fn an_empty_or_too_long_chunk_is_refused_and_the_stored_one_stays() {
    let mut mount = mount(&["--trust-encoded", "--max-chunk-size", "1M"]);
    mount.expect("a/c/0");
    mount.expect("a/c/1");
    fs::write(mount.at("a/c/0"), chunk(1)).unwrap();
    let file = new(&mount.at("a/c/0"));
    close_a_duplicate(&file).unwrap_err();
    assert_eq!(errno(close(file)), libc::EINVAL);
    until("the chunk is back", || fs::read(mount.at("a/c/0")).is_ok_and(|now| now == chunk(1)));
    let mut file = new(&mount.at("a/c/0"));
    // The mount takes the bytes itself if the kernel has not released the last reader yet.
    // Then the write fails, and if it was the first one, the chunk is as short as an empty one.
    let written = file.write_all(&vec![7; 1 << 24]);
    let closed = errno(close(file));
    match written {
        Ok(()) => assert_eq!(closed, libc::EFBIG),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
            assert!([libc::EFBIG, libc::EINVAL].contains(&closed), "errno {closed}");
        }
    }
    until("the chunk is back", || fs::read(mount.at("a/c/0")).is_ok_and(|now| now == chunk(1)));
    assert_eq!(fs::read(stored(&mount, 0)).unwrap(), chunk(1));
    drop(new(&mount.at("a/c/1")));
    until("an empty new file is gone", || !mount.at("a/c/1").exists());
    is_clean(&mount);
}

/// Shows: kernel-writes.
#[test]
fn what_a_program_writes_after_a_close_is_stored_too() {
    let mount = trusting();
    let mut file = new(&mount.at("a/c/0"));
    file.write_all(&chunk(1)).unwrap();
    close_a_duplicate(&file).unwrap();
    assert_eq!(fs::read(stored(&mount, 0)).unwrap(), chunk(1));
    assert_eq!(fs::read(mount.at("a/c/0")).unwrap(), chunk(1));
    file.set_len(0).unwrap();
    file.write_all_at(&chunk(2), 0).unwrap();
    assert_eq!(read(&file), chunk(2));
    close(file).unwrap();
    assert_eq!(fs::read(stored(&mount, 0)).unwrap(), chunk(2));
    assert!(fs::read(mount.at("a.raw")).unwrap()[..1 << 15] == vec![2; 1 << 15]);
    assert_eq!(fs::read(mount.at("a/c/0")).unwrap(), chunk(2));
    is_clean(&mount);
}

#[test]
fn a_child_that_inherits_the_file_does_not_store_it_half_written() {
    let mount = trusting();
    let mut file = new(&mount.at("a/c/0"));
    file.write_all(&chunk(1)[..9]).unwrap();
    let child = Command::new("true").stdout(Stdio::from(file.try_clone().unwrap())).status();
    assert!(child.unwrap().success());
    file.write_all(&chunk(1)[9..]).unwrap();
    close(file).unwrap();
    assert_eq!(fs::read(stored(&mount, 0)).unwrap(), chunk(1));
    // The shell opens it, and its children write.
    let script = "{ head -c 9; cat; } > \"$0\"";
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(mount.at("a/c/1")).stdin(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    shell.stdin.take().unwrap().write_all(&chunk(2)).unwrap();
    assert!(shell.wait().unwrap().success());
    assert_eq!(fs::read(mount.at("a/c/1")).unwrap(), chunk(2));
    is_clean(&mount);
}

#[test]
fn a_chunk_that_is_opened_again_while_it_is_written_is_one_file_and_later_another() {
    let mount = trusting();
    let path = mount.at("a/c/0");
    let mut one = new(&path);
    one.write_all(&chunk(1)).unwrap();
    let other = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    other.write_all_at(b"xyz", 0).unwrap();
    assert_eq!(read(&one)[..3], *b"xyz");
    let again = new(&path);
    assert_eq!(read(&one), b"", "it was truncated");
    again.write_all_at(&chunk(2), 0).unwrap();
    assert_eq!(read(&other), chunk(2));
    close(one).unwrap();
    assert_eq!(fs::read(stored(&mount, 0)).unwrap(), chunk(2));
    // Now it is stored, so who truncates it does not touch what is stored.
    let new = new(&path);
    assert_eq!(fs::read(stored(&mount, 0)).unwrap(), chunk(2));
    new.write_all_at(&chunk(3), 0).unwrap();
    assert_eq!(read(&other), chunk(2));
    close(new).unwrap();
    assert_eq!(fs::read(&path).unwrap(), chunk(3));
    drop((other, again));
    assert_eq!(fs::read(stored(&mount, 0)).unwrap(), chunk(3));
    assert_eq!(fs::read(&path).unwrap(), chunk(3));
    is_clean(&mount);
}

#[test]
fn a_file_that_is_open_when_it_is_renamed_or_removed_keeps_its_bytes() {
    for options in [&["--trust-encoded"][..], &[]] {
        let mut mount = mount(options);
        mount.expect("a/c/1");
        fs::write(mount.at("a/c/1"), chunk(7)).unwrap();
        let mut file = new(&mount.at("a/c/.partial"));
        file.write_all(&chunk(1)).unwrap();
        fs::rename(mount.at("a/c/.partial"), mount.at("a/c/0")).unwrap();
        assert_eq!(fs::read(mount.at("a/c/0")).unwrap(), chunk(1), "{options:?}");
        file.write_all_at(&chunk(2), 0).unwrap();
        close(file).unwrap();
        assert_eq!(fs::read(mount.at("a/c/0")).unwrap(), chunk(2), "{options:?}");
        assert_eq!(fs::read(stored(&mount, 0)).unwrap(), chunk(2), "{options:?}");
        // Not checked yet, so the checked bytes stay.
        if options.is_empty() {
            let mut file = new(&mount.at("a/c/.partial"));
            file.write_all(b"no gzip").unwrap();
            let renamed = fs::rename(mount.at("a/c/.partial"), mount.at("a/c/1"));
            assert_eq!(errno(renamed), libc::EINVAL);
            close(file).unwrap();
            let renamed = fs::rename(mount.at("a/c/.partial"), mount.at("a/c/1"));
            assert_eq!(errno(renamed), libc::EINVAL);
            assert_eq!(fs::read(mount.at("a/c/1")).unwrap(), chunk(7));
            fs::remove_file(mount.at("a/c/.partial")).unwrap();
        }
        let mut file = new(&mount.at("a/c/2"));
        file.write_all(&chunk(3)).unwrap();
        fs::remove_file(mount.at("a/c/2")).unwrap();
        file.write_all(b"more").unwrap();
        assert_eq!(read(&file), [&chunk(3)[..], b"more"].concat(), "{options:?}");
        fs::write(mount.at("a/c/2"), chunk(4)).unwrap();
        close(file).unwrap();
        assert_eq!(fs::read(stored(&mount, 2)).unwrap(), chunk(4), "{options:?}");
        is_clean(&mount);
    }
}

/// Shows: chunks-first.
#[test]
fn encoded_chunks_that_come_before_their_metadata_file_stay_where_they_are() {
    for options in [&["--trust-encoded"][..], &[]] {
        let mount = Mount::new(&[&["--create"], options].concat());
        fs::create_dir_all(mount.at("a/c")).unwrap();
        for number in 0..CHUNKS {
            fs::write(mount.at("a/c").join(number.to_string()), chunk(7)).unwrap();
        }
        // Stored already, as an ordinary file.
        let synced = File::open(mount.at("a/c/3")).unwrap();
        synced.sync_all().unwrap();
        drop(synced);
        assert_eq!(fs::read(stored(&mount, 3)).unwrap(), chunk(7), "{options:?}");
        let mut open = new(&mount.at("a/c/5"));
        open.write_all(&chunk(8)[..9]).unwrap();
        fs::write(mount.at("a/zarr.json"), document()).unwrap();
        open.write_all(&chunk(8)[9..]).unwrap();
        close(open).unwrap();
        for number in 0..CHUNKS {
            let want = chunk(if number == 5 { 8 } else { 7 });
            assert_eq!(fs::read(stored(&mount, number)).unwrap(), want, "{options:?}: {number}");
        }
        let raw = fs::read(mount.at("a.raw")).unwrap();
        assert!(raw.iter().enumerate().all(|(at, byte)| *byte == 7 + u8::from(at >> 15 == 5)));
        assert_eq!(names(&mount.at("a/c")).len(), CHUNKS);
        is_clean(&mount);
    }
    let mut mount = Mount::new(&["--create"]);
    mount.expect("a/c/1");
    fs::create_dir_all(mount.at("a/c")).unwrap();
    fs::write(mount.at("a/c/0"), chunk(7)).unwrap();
    fs::write(mount.at("a/c/1"), b"no gzip").unwrap();
    let mut file = File::create(mount.at("a/zarr.json")).unwrap();
    file.write_all(document().as_bytes()).unwrap();
    assert_eq!(errno(close(file)), libc::EINVAL);
    assert_eq!(fs::read(mount.at("a/c/1")).unwrap(), b"no gzip");
    assert!(!mount.store().join("a/zarr.json").exists());
}

#[test]
fn a_mapping_of_a_new_chunk_is_stored() {
    let mount = trusting();
    let bytes = chunk(9);
    let file = new(&mount.at("a/c/0"));
    drop(Mapped::new(&file, &bytes));
    close(file).unwrap();
    assert_eq!(fs::read(stored(&mount, 0)).unwrap(), bytes);
    is_clean(&mount);
}

fn raw(mount: &Mount, number: usize) -> u8 {
    fs::read(mount.at("a.raw")).unwrap()[number << 15]
}

#[test]
fn a_file_that_is_only_kept_open_does_not_undo_what_others_store() {
    let mount = mount(&[]);
    let mut file = new(&mount.at("a/c/.partial"));
    file.write_all(&chunk(1)).unwrap();
    fs::rename(mount.at("a/c/.partial"), mount.at("a/c/0")).unwrap();
    let view = OpenOptions::new().write(true).open(mount.at("a.raw")).unwrap();
    view.write_all_at(&vec![7; 1 << 15], 0).unwrap();
    close(view).unwrap();
    close(file).unwrap();
    until("the file is released", || fs::read(mount.at("a/c/0")).unwrap() != chunk(1));
    assert_eq!(raw(&mount, 0), 7);
    // A synced ordinary file that another program replaces in the store.
    let mut file = new(&mount.at("notes"));
    file.write_all(b"old").unwrap();
    file.sync_all().unwrap();
    fs::write(mount.store().join("notes.new"), b"NEWER").unwrap();
    fs::rename(mount.store().join("notes.new"), mount.store().join("notes")).unwrap();
    close(file).unwrap();
    mount.unmount();
    assert_eq!(fs::read(mount.store().join("notes")).unwrap(), b"NEWER");
}

#[test]
fn a_chunk_that_does_not_fit_on_the_disk_leaves_the_stored_one() {
    let mut disk = None;
    let make = |store: &Path| {
        disk = Some(Tmpfs::mount(store, "3M"));
        fs::write(store.join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
    };
    let mut mount = Mount::of(make, &["--trust-encoded"]);
    mount.expect("a/c/0");
    fs::create_dir_all(mount.at("a")).unwrap();
    fs::write(mount.at("a/zarr.json"), document()).unwrap();
    fs::create_dir(mount.at("a/c")).unwrap();
    fs::write(mount.at("a/c/0"), chunk(1)).unwrap();
    let mut file = new(&mount.at("a/c/0"));
    fs::write(mount.store().join("filler"), vec![0; (3 << 20) - (100 << 10)]).unwrap();
    assert_eq!(errno(file.write_all(&vec![7; 200 << 10])), libc::ENOSPC);
    assert_eq!(errno(close(file)), libc::ENOSPC);
    until("the chunk is back", || fs::read(mount.at("a/c/0")).is_ok_and(|now| now == chunk(1)));
    assert_eq!(fs::read(stored(&mount, 0)).unwrap(), chunk(1));
    mount.unmount();
    drop(disk);
}

#[test]
fn a_child_may_write_what_its_parent_has_opened_and_closed() {
    let mount = trusting();
    let script = "exec 3>\"$0\"; { sleep 0.2; cat; } <&4 >&3 & exec 3>&-; wait";
    let source = mount.store().with_file_name("chunk");
    fs::write(&source, chunk(6)).unwrap();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("exec 4<{}; {script}", source.display())).arg(mount.at("a/c/6"));
    assert!(shell.status().unwrap().success());
    until("it is stored", || fs::read(stored(&mount, 6)).is_ok_and(|now| now == chunk(6)));
    assert_eq!(raw(&mount, 6), 6);
    is_clean(&mount);
}

#[test]
fn late_writes_to_a_chunk_that_was_moved_or_replaced_are_stored() {
    let mount = trusting();
    let mut file = new(&mount.at("a/c/0"));
    file.write_all(&chunk(1)).unwrap();
    close_a_duplicate(&file).unwrap();
    fs::rename(mount.at("a/c/0"), mount.at("a/c/1")).unwrap();
    file.write_all_at(&chunk(2), 0).unwrap();
    close(file).unwrap();
    assert_eq!(raw(&mount, 1), 2);
    let mut file = new(&mount.at("a/c/3"));
    file.write_all(&chunk(1)).unwrap();
    close_a_duplicate(&file).unwrap();
    assert_eq!(raw(&mount, 3), 1);
    let view = OpenOptions::new().write(true).open(mount.at("a.raw")).unwrap();
    view.write_all_at(&vec![7; 1 << 15], 3 << 15).unwrap();
    close(view).unwrap();
    assert_eq!(raw(&mount, 3), 7);
    file.write_all_at(&chunk(2), 0).unwrap();
    close(file).unwrap();
    assert_eq!(raw(&mount, 3), 2);
    assert!(!stored(&mount, 0).exists());
    is_clean(&mount);
}

#[test]
fn programs_that_truncate_a_chunk_at_once_write_to_one_file() {
    let mount = trusting();
    let path = mount.at("a/c/0");
    for _ in 0..200 {
        let barrier = std::sync::Barrier::new(2);
        let open = || {
            barrier.wait();
            new(&path)
        };
        let (mut one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(open);
            let other = open();
            (one.join().unwrap(), other)
        });
        one.write_all(&chunk(1)).unwrap();
        assert_eq!(read(&other), chunk(1));
        close(one).unwrap();
        close(other).unwrap();
        assert_eq!(fs::read(&path).unwrap(), chunk(1));
    }
    is_clean(&mount);
}

/// A new file as a program has it mapped to write.
struct Mapped(*mut libc::c_void, usize);

impl Mapped {
    fn new(file: &File, bytes: &[u8]) -> Self {
        file.set_len(bytes.len() as u64).unwrap();
        // SAFETY: the kernel chooses the place; the descriptor is open.
        let address = unsafe {
            let (null, fd) = (std::ptr::null_mut(), std::os::fd::AsRawFd::as_raw_fd(file));
            let flags = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(null, bytes.len(), flags, libc::MAP_SHARED, fd, 0)
        };
        assert_ne!(address, libc::MAP_FAILED);
        let mut mapped = Self(address, bytes.len());
        mapped.bytes().copy_from_slice(bytes);
        mapped
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: it is mapped for so many bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast::<u8>(), self.1) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped so.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

#[test]
fn a_mapping_cannot_change_a_chunk_that_was_checked() {
    let mount = mount(&[]);
    let file = new(&mount.at("a/c/.partial"));
    let mut mapped = Mapped::new(&file, &chunk(1));
    close(file).unwrap();
    fs::rename(mount.at("a/c/.partial"), mount.at("a/c/1")).unwrap();
    mapped.bytes()[..5].copy_from_slice(b"XXXXX");
    drop(mapped);
    assert_eq!(fs::read(stored(&mount, 1)).unwrap(), chunk(1));
    assert_eq!(raw(&mount, 1), 1);
    is_clean(&mount);
}

#[test]
fn an_ordinary_file_of_any_length_is_stored_with_the_time_that_a_program_set() {
    let mount = Mount::new(&["--create", "--max-chunk-size", "1M"]);
    let long = vec![5; 3 << 20];
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for name in ["long", "synced", "open"] {
        let bytes = if name == "long" { &long[..] } else { b"short" };
        let mut file = new(&mount.at(name));
        file.write_all(bytes).unwrap();
        file.set_modified(time).unwrap();
        if name == "synced" {
            file.sync_all().unwrap();
        }
        if name == "open" {
            fs::rename(mount.at("open"), mount.at("renamed")).unwrap();
        }
    }
    mount.unmount();
    for name in ["long", "synced", "renamed"] {
        let stored = fs::metadata(mount.store().join(name)).unwrap();
        assert_eq!(stored.modified().unwrap(), time, "{name}");
    }
    assert!(fs::read(mount.store().join("long")).unwrap() == long);
}

#[test]
fn a_program_that_writes_with_o_direct_may_write_any_length() {
    use std::os::unix::fs::OpenOptionsExt;
    let mount = trusting();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    let mut file = options.open(mount.at("a/c/0")).unwrap();
    file.write_all(&chunk(1)[..9]).unwrap();
    file.write_all(&chunk(1)[9..]).unwrap();
    close(file).unwrap();
    assert_eq!(fs::read(mount.at("a/c/0")).unwrap(), chunk(1));
    is_clean(&mount);
}
