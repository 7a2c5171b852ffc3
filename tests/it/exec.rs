//! `zarrfs exec`, and devices that another process has mounted. `tests/peers/test_exec.py` and
//! `test_device.py` show both for users without rights.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::{copy, until, zarrfs};

/// A store in a directory of its own.
fn store() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/z316__transpose/store");
    copy(&fixture, &dir.path().join("store"));
    fs::create_dir(dir.path().join("tmp")).unwrap();
    dir
}

fn exec(dir: &TempDir, options: &[&str], command: &[&str]) -> Output {
    exec_command(dir, options, command).output().unwrap()
}

fn exec_command(dir: &TempDir, options: &[&str], command: &[&str]) -> Command {
    let mut exec = zarrfs();
    exec.arg("exec")
        .arg(dir.path().join("store"))
        .args(options)
        .arg("--")
        .args(command)
        .env("TMPDIR", dir.path().join("tmp"))
        .env_remove("XDG_RUNTIME_DIR");
    exec
}

/// Shows: exec.
#[test]
fn a_command_has_a_mount_of_its_own_and_what_it_writes_is_stored() {
    let dir = store();
    let script = "mkdir {}/new && echo text >$ZARRFS/notes.txt && grep -c \" $ZARRFS fuse.zarrfs\" \
                  /proc/self/mounts; exit 7";
    let done = exec(&dir, &[], &["sh", "-c", script]);
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    assert_eq!((done.stdout.as_slice(), done.stderr.as_slice()), (&b"1\n"[..], &b""[..]));
    assert!(dir.path().join("store/new/zarr.json").is_file());
    assert_eq!(fs::read(dir.path().join("store/notes.txt")).unwrap(), b"text\n");
    assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0, "a directory is left");
}

/// Shows: exec.
#[test]
fn a_command_that_joins_sees_the_mount_of_the_first() {
    let dir = store();
    let options = ["--join", "-o", "writeback=all"];
    let mut first = exec_command(&dir, &options, &["sh", "-c", "echo {}; read end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shown = String::new();
    let out = first.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut shown).unwrap();
    let second = exec(&dir, &options, &["sh", "-c", "echo {}; mkdir {}/new"]);
    assert!(second.status.success(), "{second:?}");
    assert_eq!(String::from_utf8(second.stdout).unwrap(), shown);
    assert!(dir.path().join("store/new/zarr.json").is_file(), "not stored when the second ended");
    drop(first.stdin.take());
    assert_eq!(first.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0, "something is left");
}

#[test]
fn directories_that_killed_processes_left_are_removed_and_used_ones_are_not() {
    let dir = store();
    let left = dir.path().join("tmp/zarrfs-exec.1");
    let used = dir.path().join("tmp/zarrfs-exec.2");
    for path in [&left, &used] {
        fs::create_dir(path).unwrap();
        let touched = Command::new("touch").args(["-d", "2 hours ago"]).arg(path).status().unwrap();
        assert!(touched.success());
    }
    let lock = fs::File::open(&used).unwrap();
    lock.lock_shared().unwrap();
    assert!(exec(&dir, &[], &["true"]).status.success());
    assert!(!left.exists() && used.exists());
}

/// Shows: device.
#[test]
fn a_device_that_another_process_has_mounted_is_served() {
    let dir = store();
    let mnt = dir.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
    let number = device.as_raw_fd();
    let data = format!("fd={number},rootmode=40000,user_id=0,group_id=0,default_permissions");
    let (path, data) = (CString::new(mnt.as_os_str().as_bytes()), CString::new(data));
    let (path, data) = (path.unwrap(), data.unwrap());
    // SAFETY: all strings outlive the calls; clearing the flag lets the child inherit the device.
    unsafe {
        let kind = c"fuse".as_ptr();
        assert_eq!(libc::mount(kind, path.as_ptr(), kind, 0, data.as_ptr().cast()), 0);
        assert_eq!(libc::fcntl(number, libc::F_SETFD, 0), 0);
    }
    let done = zarrfs()
        .arg("mount")
        .args([dir.path().join("store").as_os_str(), format!("/dev/fd/{number}").as_ref()])
        .output()
        .unwrap();
    drop(device);
    let works = fs::create_dir(mnt.join("new")).and_then(|()| fs::read(mnt.join("zarr.json")));
    // SAFETY: the string outlives the call.
    assert_eq!(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }, 0);
    assert!(done.status.success() && works.is_ok(), "{done:?}");
    until("stored after the end", || dir.path().join("store/new/zarr.json").is_file());
}
