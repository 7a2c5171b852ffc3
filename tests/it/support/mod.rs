//! Mounts that end with the test, however it ends.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The program under test: the one that was built with the tests, or `ZARRFS_BIN`.
pub fn zarrfs() -> Command {
    let built = || env!("CARGO_BIN_EXE_zarrfs").into();
    Command::new(std::env::var_os("ZARRFS_BIN").unwrap_or_else(built))
}

/// Runs the program and returns its exit code and what it said on standard error.
pub fn said(args: &[&str]) -> (i32, String) {
    let output = match args.split_first() {
        Some((&"umount", words)) => umount(words),
        _ => zarrfs().args(args).output().expect("runs"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    // Another test has a mount namespace, which has copies of all mounts.
    let is_of_other = |line: &&str| line.contains("has the mount in a mount namespace of its own");
    let said: Vec<&str> = said.lines().filter(|line| !is_of_other(line)).collect();
    (output.status.code().expect("no signal"), said.join("\n"))
}

/// Copies the program. No child of this process can have the copy open for writing, in which case
/// nobody could execute it.
pub fn copy_program(to: &Path) {
    let mut cp = Command::new("cp");
    assert!(cp.arg(env!("CARGO_BIN_EXE_zarrfs")).arg(to).status().expect("runs").success());
}

/// Waits until no other test has copies of mounts in a mount namespace of its own. None will have
/// any until the file is closed.
pub fn only_namespace() -> File {
    let program = File::open(env!("CARGO_BIN_EXE_zarrfs")).expect("built");
    // SAFETY: the call does not touch memory.
    let locked = unsafe { libc::flock(program.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(locked, 0, "{}", io::Error::last_os_error());
    program
}

/// Runs `zarrfs umount`, and again if a child of this process, which has copies of all descriptors
/// until it executes its program, has a file of the mount open.
pub fn umount<W: AsRef<OsStr>>(words: &[W]) -> Output {
    let started = Instant::now();
    loop {
        let output = zarrfs().arg("umount").args(words).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        if !is_used_by_a_child(&said) || started.elapsed() > Duration::from_secs(60) {
            return output;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Unmounts at the end of a test. A refused file counts as pending for as long as a child has a
/// copy of its descriptor.
fn ended(mountpoint: &Path) -> Output {
    let started = Instant::now();
    loop {
        let output = umount(&[mountpoint]);
        if output.status.success() || started.elapsed() > Duration::from_secs(2) {
            return output;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process that `umount` names, or does not find any more, is a copy of this one.
fn is_used_by_a_child(said: &str) -> bool {
    let Some((_, named)) = said.split_once("in use by ") else { return false };
    if named.contains("cannot see") {
        return true;
    }
    let own = fs::read_link("/proc/self/exe").expect("a program");
    let numbers = named.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok());
    numbers.filter(|number| *number != std::process::id()).any(|number: u32| {
        let program = fs::read_link(format!("/proc/{number}/exe"));
        // One that is just executing the program under test has not closed its copies yet.
        program.map_or(true, |it| it == own || it == Path::new(env!("CARGO_BIN_EXE_zarrfs")))
    })
}

/// Returns how many sequences of steps a model tries: as many as `PROPTEST_CASES` says, else
/// `many` in long tests.
pub fn sequences(few: u32, many: u32) -> u32 {
    let default = if std::env::var_os("ZARRFS_LONG").is_some() { many } else { few };
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

/// Closes a file, and returns what close(2) says.
pub fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor is this function's own, and is not used again.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The errno of what must fail.
pub fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.expect_err("it worked").raw_os_error().expect("an errno")
}

/// The document of an array of 4 x 4 `uint16` in chunks of 2 x 2, as a library writes it.
pub fn array() -> serde_json::Value {
    serde_json::json!({
        "zarr_format": 3, "node_type": "array", "shape": [4, 4], "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {}
    })
}

/// The document of a group, as a library writes it.
pub fn group() -> serde_json::Value {
    serde_json::json!({"zarr_format": 3, "node_type": "group", "attributes": {}})
}

/// Returns the JSON in a file.
pub fn json_of(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The names in a directory, without what is in a store while a mount writes to it.
pub fn names(path: &Path) -> BTreeSet<String> {
    let mut names = all_names(path);
    if names.contains(".zarrfs") && path.join(".zarrfs/.").is_dir() {
        let kept = all_names(&path.join(".zarrfs"));
        if !kept.is_empty() && kept.iter().all(|name| name.starts_with("writing-")) {
            names.remove(".zarrfs");
        }
    }
    names
}

fn all_names(path: &Path) -> BTreeSet<String> {
    let entry = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    fs::read_dir(path).expect("listed").map(entry).collect()
}

/// A counter of `.zarrfs/stats`.
pub fn stat(mount: &Mount, name: &str) -> u64 {
    let stats = fs::read_to_string(mount.at(".zarrfs/stats")).unwrap();
    let line = stats.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Waits until `done`, which must come soon: the kernel releases a file after its close has
/// returned.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}: not within 60 seconds");
        std::thread::yield_now();
    }
}

/// With `ZARRFS_CHILDREN`, starts children all the time from now on. Each keeps a copy of every
/// descriptor for a moment, as any child does until it executes its program, so the last close of a
/// file is often that of a child.
fn start_children() {
    static STARTED: Once = Once::new();
    if std::env::var_os("ZARRFS_CHILDREN").is_none() {
        return;
    }
    STARTED.call_once(|| {
        std::thread::spawn(|| {
            loop {
                // SAFETY: the child only makes system calls.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: as above.
                    unsafe {
                        libc::usleep(20_000);
                        libc::_exit(0);
                    }
                }
                assert!(child > 0, "{}", io::Error::last_os_error());
                // SAFETY: a null pointer asks for no status.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            }
        });
    });
}

/// A store that a fixture has, copied, and a mountpoint beside it.
pub struct Mount {
    dir: TempDir,
    /// Warnings that the test expects, by a part of their text.
    expected: Vec<&'static str>,
}

impl Mount {
    /// Mounts a copy of a fixture.
    pub fn fixture(name: &str, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        copy(&fixture.join("store"), &dir.path().join("store"));
        Self::mounted(dir, options)
    }

    /// Mounts a store that is not there yet: `options` say how it is made.
    pub fn new(options: &[&str]) -> Self {
        Self::mounted(tempfile::tempdir().expect("a temporary directory"), options)
    }

    /// Whether the store is a draft.
    pub fn is_draft(&self) -> bool {
        self.store().join("meta").exists()
    }

    /// Mounts a store that `make` writes.
    pub fn of(make: impl FnOnce(&Path), options: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(dir.path().join("store")).expect("made");
        make(&dir.path().join("store"));
        Self::mounted(dir, options)
    }

    fn mounted(dir: TempDir, options: &[&str]) -> Self {
        assert!(
            Path::new("/dev/fuse").exists(),
            "/dev/fuse is missing: nothing can be mounted here"
        );
        fs::create_dir(dir.path().join("mnt")).expect("made");
        let mount = Self { dir, expected: Vec::new() };
        start_children();
        mount.start(options);
        mount
    }

    fn start(&self, options: &[&str]) {
        let output = zarrfs()
            .arg("mount")
            .args([self.store(), self.path()])
            .arg("--log-file")
            .arg(self.log())
            .args(options)
            .output()
            .expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Unmounts and mounts again.
    pub fn remount(&self, options: &[&str]) {
        self.unmount();
        self.start(options);
    }

    /// Mounts again what was unmounted.
    pub fn mount_again(&self, options: &[&str]) {
        self.start(options);
    }

    /// The same by a process that may have so many files open, and a quarter of them unless it asks
    /// for more.
    pub fn mount_again_with_descriptors(&self, most: u32) {
        let limits = format!("ulimit -Sn {}; ulimit -Hn {most}; exec \"$@\"", most / 4);
        let command = zarrfs();
        let output = Command::new("sh")
            .args(["-c", limits.as_str(), "sh"])
            .arg(command.get_program())
            .arg("mount")
            .args([self.store(), self.path()])
            .arg("--log-file")
            .arg(self.log())
            .output()
            .expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Unmounts; everything is stored then.
    pub fn unmount(&self) {
        let started = Instant::now();
        loop {
            let output = zarrfs().arg("umount").arg(self.path()).output().expect("runs");
            let said = String::from_utf8_lossy(&output.stderr);
            // Between fork and exec the programs that other tests start have the files of this one
            // open.
            let is_in_use = said.contains("in use") && started.elapsed() < Duration::from_secs(60);
            if !is_in_use {
                return assert!(output.status.success(), "{said}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A warning whose text has `part` is no failure.
    pub fn expect(&mut self, part: &'static str) {
        self.expected.push(part);
    }

    /// The mountpoint.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// A path in the mount.
    pub fn at(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    /// The store behind it.
    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// What `.zarrfs/errors` says.
    pub fn errors(&self) -> String {
        fs::read_to_string(self.at(".zarrfs/errors")).expect("readable")
    }

    /// Every file of the store and its bytes, without what is there while a mount writes to it.
    pub fn stored(&self) -> Vec<(String, Vec<u8>)> {
        let store = self.store();
        // A file that is there while a mount writes may be gone before it is read.
        let mut files = loop {
            let mut files = Vec::new();
            match collect(&store, "", &mut files) {
                Ok(()) => break files,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}"),
            }
        };
        files.retain(|(name, _)| !name.starts_with(".zarrfs/writing-"));
        files.sort();
        files
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let path = self.path();
        let is_mounted = fs::read_to_string("/proc/self/mounts").is_ok_and(|mounts| {
            mounts.lines().any(|line| line.contains(path.to_str().expect("UTF-8")))
        });
        if is_mounted {
            let done = ended(&path);
            if !done.status.success() {
                // Whatever is wrong, nothing stays mounted.
                let lazily = Command::new("umount").arg("-l").arg(&path).status();
                eprintln!("{}: {lazily:?}", String::from_utf8_lossy(&done.stderr));
                assert!(std::thread::panicking(), "the mount could not be ended");
            }
        }
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.log()).unwrap_or_default());
            return;
        }
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let unexpected: Vec<&str> = log
            .lines()
            .filter(|line| !self.expected.iter().any(|part| line.contains(part)))
            .collect();
        assert!(unexpected.is_empty(), "the daemon logged:\n{}", unexpected.join("\n"));
    }
}

/// Another mount of a store, for as long as it lives.
pub struct Second(PathBuf);

impl Second {
    /// Mounts `store` at `path`.
    pub fn mount(store: &Path, path: &Path) -> Self {
        let output = zarrfs().arg("mount").args([store, path]).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(path.to_owned())
    }

    /// Returns the process that serves it.
    pub fn process(&self) -> u32 {
        let stats = fs::read_to_string(self.0.join(".zarrfs/stats")).expect("served");
        let line = stats.lines().find_map(|line| line.strip_prefix("zarrfs_process_id "));
        line.expect("named").parse().expect("a number")
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        if !ended(&self.0).status.success() {
            let lazily = Command::new("umount").arg("-l").arg(&self.0).status();
            assert!(std::thread::panicking(), "the mount could not be ended: {lazily:?}");
        }
    }
}

/// A small file system in memory, for as long as it lives. Only root can have one.
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts one of `size` at `path`.
    pub fn mount(path: &Path, size: &str) -> Self {
        let options = format!("size={size}");
        let args = ["-t", "tmpfs", "-o", &options, "tmpfs"];
        assert!(Command::new("mount").args(args).arg(path).status().expect("runs").success());
        Self(path.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let ended = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(std::thread::panicking() || ended.is_ok_and(|ended| ended.success()));
    }
}

fn collect(dir: &Path, above: &str, files: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = format!("{above}{}", entry.file_name().to_str().expect("UTF-8"));
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), files)?;
        } else {
            files.push((name, fs::read(entry.path())?));
        }
    }
    Ok(())
}

/// Copies a directory with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("copied");
        }
    }
}

/// Sets an extended attribute, or says why not.
pub fn set_xattr(path: &Path, name: &str, value: &str) -> Result<(), i32> {
    let (path, name) =
        (CString::new(path.as_os_str().as_bytes()).unwrap(), CString::new(name).unwrap());
    // SAFETY: all pointers are to memory of this function, of the lengths given.
    let done = unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap()) }
}
