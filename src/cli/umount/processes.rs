//! Finds in `/proc` the daemon of a mount, and the programs that use a mount.
//!
//! `zarrfs umount` and the daemon use it, because a mount that does not answer, or that the caller
//! may not look into, cannot name its daemon. Nothing here sends a request to a mount.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use crate::cli::args::{self, Args, Command};
use crate::cli::umount;

/// The name of a program in the foreground that serves a mount.
const NAME: &str = "zarrfs";

/// Returns the process that serves the mount at `mountpoint`, according to its command line. `None`
/// if there is none that this user can see.
pub fn daemon_of(mountpoint: &Path) -> Option<u32> {
    let own = std::process::id();
    let serving = |process: &u32| *process != own && serves(*process, mountpoint);
    // A mount that was detached from the same path may still have an older daemon.
    all().into_iter().filter(serving).max()
}

/// Returns the programs that have files open or their working directory below `mountpoint`, each
/// as `ID (NAME)`, as far as this user can see them.
pub fn users_of(mountpoint: &Path) -> Vec<String> {
    let own = std::process::id();
    let users = all().into_iter().filter(|process| *process != own && uses(*process, mountpoint));
    users.map(described).collect()
}

fn described(process: u32) -> String {
    match fs::read_to_string(of(process, "comm")) {
        Ok(name) => format!("{process} ({})", name.trim_end()),
        Err(_) => process.to_string(),
    }
}

/// Another place where the file system of a mount is mounted.
#[derive(Debug)]
pub enum Copy {
    /// Another mountpoint.
    At(PathBuf),
    /// The mount namespace of another process, which is named as `ID (NAME)`.
    Of(String),
}

impl Copy {
    /// Says that it is there, and that the process `daemon` serves it.
    pub fn sentence(&self, daemon: u32) -> String {
        let daemon = format!("so the daemon (process {daemon}) goes on");
        match self {
            Self::At(path) => {
                format!("it is also mounted on {}, {daemon} until that ends", path.display())
            }
            Self::Of(process) => format!(
                "process {process} has the mount in a mount namespace of its own, {daemon} until \
                 that process ends"
            ),
        }
    }
}

/// A file system, as the tables of mounts name it. The kernel gives the device number of one that
/// has ended to the next one, so the number alone is not enough.
#[derive(Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The device number, as `MAJOR:MINOR`.
    pub device: String,
    kind: String,
    source: String,
}

impl FileSystem {
    /// Returns the one that is mounted at `mountpoint`, without sending it a request.
    pub fn at(mountpoint: &Path) -> Option<Self> {
        // The last one hides the others.
        mounts_of("self").into_iter().rfind(|(_, path)| path == mountpoint).map(|(of, _)| of)
    }

    /// Returns a place where it is mounted, in the mount namespace of this process or in that of
    /// another one, as far as this user can see it. A mount namespace (of a container, a service,
    /// `unshare`) begins with a copy of every mount.
    pub fn copy(&self) -> Option<Copy> {
        let find = |process: &str| mounts_of(process).into_iter().find(|(of, _)| of == self);
        if let Some((_, path)) = find("self") {
            return Some(Copy::At(path));
        }
        all().into_iter().find_map(|process| {
            find(&process.to_string())?;
            Some(Copy::Of(described(process)))
        })
    }
}

/// Returns the mounts that a process sees: each file system and its mountpoint.
fn mounts_of(process: &str) -> Vec<(FileSystem, PathBuf)> {
    // See proc_pid_mountinfo(5).
    let table = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    let line = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(2);
        let mut file_system = file_system.split(' ').map(str::to_owned);
        let device = mount.next()?.to_owned();
        let (kind, source) = (file_system.next()?, file_system.next()?);
        Some((FileSystem { device, kind, source }, umount::unescape(mount.nth(1)?)))
    };
    table.lines().filter_map(line).collect()
}

/// Returns the state of a process in the words of the kernel, such as "stopped" or "disk sleep".
pub fn state_of(process: u32) -> Option<String> {
    let status = fs::read_to_string(of(process, "status")).ok()?;
    let state = status.lines().find_map(|line| line.strip_prefix("State:"))?;
    Some(state.split_once('(')?.1.split_once(')')?.0.to_owned())
}

fn of(process: u32, file: &str) -> PathBuf {
    format!("/proc/{process}/{file}").into()
}

/// Returns all processes.
fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn serves(process: u32, mountpoint: &Path) -> bool {
    let Ok(line) = fs::read(of(process, "cmdline")) else { return false };
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    let typed: Vec<OsString> =
        line.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
    let is_named = typed.first().is_some_and(|program| {
        Path::new(program).file_name().is_some_and(|name| name == OsStr::new(NAME))
    });
    let is_daemon = typed.iter().any(|word| word.as_bytes().starts_with(b"--daemon="));
    if !is_named && !is_daemon {
        return false;
    }
    let typed = args::normalize(typed, &Args::command());
    let Ok(Args { command: Command::Mount(mount), .. }) = Args::try_parse_from(typed) else {
        return false;
    };
    match &mount.daemon {
        Some(path) => path == mountpoint,
        // A foreground mount stays in the working directory where the path starts.
        None if is_named && mount.foreground => fs::read_link(of(process, "cwd"))
            .and_then(|above| umount::located(&above.join(&mount.mountpoint)))
            .is_ok_and(|path| path == mountpoint),
        None => false,
    }
}

fn uses(process: u32, mountpoint: &Path) -> bool {
    let files = fs::read_dir(of(process, "fd")).into_iter().flatten().flatten();
    let links = ["cwd", "root", "exe"].map(|name| of(process, name));
    let mut links = links.into_iter().chain(files.map(|file| file.path()));
    // The kernel writes the path of the link without asking the mount.
    links.any(|link| fs::read_link(link).is_ok_and(|path| path.starts_with(mountpoint)))
}
