//! Waits for a program that does not go on: a daemon that was stopped while it stores, and writers
//! that wait for it.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::status::Stopped;
use crate::support::{Mount, Second, close, errno, until};

/// The array `a` of one chunk of `len` bytes, which are all 1.
fn mount(len: usize) -> Mount {
    let mount = Mount::new(&["--create", "--codecs", "none", "--metadata-ttl", "0s"]);
    let text = format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [{len}], "data_type": "uint8",
        "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [{len}]}}}},
        "chunk_key_encoding": {{"name": "default", "configuration": {{"separator": "/"}}}},
        "fill_value": 0, "codecs": [{{"name": "bytes"}}], "attributes": {{}}}}"#
    );
    fs::create_dir_all(mount.at("a/c")).unwrap();
    fs::write(mount.at("a/zarr.json"), text).unwrap();
    fs::write(mount.at("a/c/0"), vec![1; len]).unwrap();
    mount.remount(&["--metadata-ttl", "0s", "--writeback", "sync"]);
    mount
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Changes two bytes through the mount while `holder` is stopped and has the lock of the chunk.
fn change_beside(mount: &Mount, holder: u32) {
    let file = open(&mount.at("a/c/0"));
    file.write_all_at(&[9; 2], 3).unwrap();
    let began = Instant::now();
    assert_eq!(errno(close(file)), libc::EAGAIN);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let named = format!("process {holder} is writing it and is stopped");
    assert!(mount.errors().contains(&named), "{}", mount.errors());
    assert_eq!(part_of(&mount.at("a/c/0")), [1, 9, 9, 1], "the change is lost");
}

fn part_of(path: &Path) -> [u8; 4] {
    let mut part = [0; 4];
    File::open(path).unwrap().read_exact_at(&mut part, 2).unwrap();
    part
}

fn sync(mount: &Mount) {
    File::open(mount.path()).unwrap().sync_all().unwrap();
    assert_eq!(part_of(&mount.store().join("a/c/0")), [1, 9, 9, 1]);
}

/// A program that locks the lock file of a key as another mount does. Without the word `named`, no
/// session file says which process it is.
const HOLDER: &str = "import fcntl, os, struct, sys
root, key, how = sys.argv[1:]
def locked(path):
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.fcntl(file, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0))
    return file
if how == 'named':
    os.makedirs(root + '/.zarrfs', exist_ok=True)
    session = locked(f'{root}/.zarrfs/writing-{os.getpid()}-1')
    os.write(session, open('/proc/sys/kernel/random/boot_id', 'rb').read().strip() + b'\\n')
    os.write(session, key.encode() + b'\\0')
lock = locked(f'{root}/{key}.__lock')
print('held', flush=True)
sys.stdin.read()";

/// A process that runs [`HOLDER`].
struct Holder(Child);

impl Holder {
    fn start(mount: &Mount, how: &str) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", HOLDER]).arg(mount.store()).args(["a/c/0", how]);
        let started = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut holder = Self(started.unwrap());
        holder.0.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Shows: lock-holder.
#[test]
fn a_stopped_writer_is_named_and_the_close_ends_without_it() {
    let mut mount = mount(4096);
    mount.expect("is stopped");
    let holder = Holder::start(&mount, "named");
    let stopped = Stopped::new(u64::from(holder.0.id()));
    change_beside(&mount, holder.0.id());
    drop(holder);
    drop(stopped);
    sync(&mount);
}

/// Shows: lock-holder.
#[test]
fn a_daemon_that_was_stopped_while_it_stores_is_named() {
    // Long enough that the lock file can be seen before it gets the name of the value.
    let mut mount = mount(32 << 20);
    mount.expect("is stopped");
    let place = tempfile::tempdir().unwrap();
    let second = Second::mount(&mount.store(), place.path());
    let process = second.process();
    let lock = mount.store().join("a/c/0.__lock");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let file = open(&place.path().join("a/c/0"));
                file.write_all_at(&[7], 16 << 20).unwrap();
                close(file).unwrap();
            }
        });
        let stopped = loop {
            until("the daemon takes the lock", || lock.exists() || writing.is_finished());
            assert!(!writing.is_finished());
            let stopped = Stopped::new(u64::from(process));
            // The daemon may have been faster.
            if lock.exists() {
                break stopped;
            }
        };
        is_done.store(true, Ordering::Relaxed);
        change_beside(&mount, process);
        drop(stopped);
    });
    sync(&mount);
    let bytes = fs::read(mount.at("a/c/0")).unwrap();
    assert_eq!(bytes[16 << 20], 7, "the change of the daemon that was stopped is lost");
}

/// Shows: lock-holder.
#[test]
fn a_writer_that_waits_for_the_writer_of_another_process_can_be_killed() {
    for how in ["named", "unnamed"] {
        let mount = mount(4096);
        let holder = Holder::start(&mount, how);
        let script = "import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(file, b'7', 9)
print('held', flush=True)
os.close(file)";
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(mount.at("a/c/0")).stdout(Stdio::piped());
        let mut writer = python.spawn().unwrap();
        writer.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        // It would wait for 30 s, since the holder was not stopped.
        thread::sleep(Duration::from_secs(2));
        assert!(writer.try_wait().unwrap().is_none(), "{how}: it does not wait");
        writer.kill().unwrap();
        let began = Instant::now();
        writer.wait().unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "{how}: {:?}", began.elapsed());
        assert_eq!(fs::read(mount.store().join("a/c/0")).unwrap()[9], 1, "{how}");
        drop(holder);
    }
}
