//! `zarrfs umount`: returns after everything is stored and the daemon has ended.

pub mod auto_unmount;
pub mod dead;
pub mod processes;
pub mod refused;
pub mod rescue;

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::cli::args::Umount;
use crate::cli::failure::{Failure, failed};
use crate::cli::mount::outputs;
use crate::cli::output::print;
use crate::cli::status::stats::Stats;
use crate::sys;
use dead::{alive, is_dead};
use processes::FileSystem;

/// The longest time that the daemon may take to end after the mount has ended.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time after which `zarrfs umount` reports that it is still waiting.
const NOTICE: Duration = Duration::from_secs(5);

/// How long a mount may be in use before that is an error.
const BUSY_FOR_A_MOMENT: Duration = Duration::from_millis(500);

/// How often to look whether the server works.
pub const LOOK_FOR_SIGNS: Duration = Duration::from_millis(250);

/// The time after which to look for the mount in other places, and again after that.
pub const LOOK: Duration = Duration::from_secs(1);

/// How long a server may show no sign that it works while a mount ends.
pub const SILENCE: Duration = Duration::from_secs(5);

/// The type of a mount, unless another one was given with `-o subtype`.
pub const KIND: &str = "fuse.zarrfs";

/// The type of a mount that waits until a program uses its directory.
const AUTOFS: &str = "autofs";

/// The treatment of a mount that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// Report it.
    Refuse,
    /// Detach it from the tree. It ends when its last file is closed.
    Detach,
}

/// Unmounts.
pub fn run(args: &Umount) -> Result<(), Failure> {
    let shown = args.mountpoint.display();
    let _unmounting = report_if_slow(&args.mountpoint);
    match alive(&args.mountpoint) {
        Ok(_) => {}
        // A killed daemon has left this mount.
        Err(error) if is_dead(&error) => {
            return now(&args.mountpoint, Busy::Detach);
        }
        // The directory of the store was removed.
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return unmount_unseen(args, &error);
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(failed(format!("{shown}: no such directory, so nothing is mounted there")));
        }
        Err(error) => return Err(failed(format!("{shown}: {error}"))),
    }
    let mountpoint = located(&args.mountpoint)?;
    let daemon = if is_fuse(&mountpoint)? { daemon_of(&mountpoint) } else { None };
    let daemon = daemon.ok_or_else(|| failed(format!("{shown}: no hierarchy is mounted there")))?;
    outputs::check(&[("--rescue", args.rescue.as_deref())], &mountpoint)?;
    let daemon = Daemon::new(daemon, &mountpoint);
    if args.rescue.is_some() && !processes::users_of(&mountpoint).is_empty() {
        // Its programs would lose a server that is given up, and go on without it.
        return Err(in_use(&mountpoint));
    }
    let refused =
        || std::fs::read_to_string(mountpoint.join(".zarrfs/refused")).unwrap_or_default();
    // A mount whose server is silent may not answer after the sync.
    let before = args.rescue.is_some().then(refused);
    let synced = sync(&mountpoint, &daemon, args.rescue.is_some());
    let refused = before.unwrap_or_else(refused);
    let ended = end(args, (&mountpoint, &daemon), synced);
    if let (Ok(()) | Err(Failure::Rescued(_)), Some(sentence)) =
        (&ended, refused::sentence(&refused))
    {
        print::error(&format!("zarrfs: {shown}: {sentence}"));
    }
    ended
}

/// Unmounts after a sync with this result.
fn end(
    args: &Umount,
    (mountpoint, daemon): (&Path, &Daemon),
    synced: std::io::Result<()>,
) -> Result<(), Failure> {
    let shown = args.mountpoint.display();
    let Err(error) = synced else {
        now(mountpoint, Busy::Refuse)?;
        return daemon.wait().map(drop);
    };
    let Some(dir) = &args.rescue else {
        let list = std::fs::read_to_string(mountpoint.join(".zarrfs/unstored"));
        let unstored = list.and_then(|text| rescue::UnstoredLine::parse(&text));
        let unstored = unstored.map_err(|failure| unreadable_list(args, &error, &failure))?;
        if unstored.is_empty() {
            return end_without_sync(mountpoint, daemon, &error);
        }
        let paths: Vec<String> = unstored.into_iter().map(|file| file.path).collect();
        let (named, remedy) = (rescue::named(&paths), remedy(&error));
        return Err(failed(format!(
            "{shown}: not everything is stored, so it stays mounted: {error}: {named}; \
             {remedy}save these changes elsewhere with --rescue DIR"
        )));
    };
    save_and_unmount(args, dir, (mountpoint, daemon), &error)
}

/// Saves in `dir` what could not be stored because of `error`, and unmounts.
fn save_and_unmount(
    args: &Umount,
    dir: &Path,
    (mountpoint, daemon): (&Path, &Daemon),
    error: &std::io::Error,
) -> Result<(), Failure> {
    let shown = args.mountpoint.display();
    // The daemon has them in memory; their paths in the mount cannot be read if the store is gone.
    let all = std::fs::read(mountpoint.join(".zarrfs/unstored-bytes"))
        .map_err(|failure| unreadable_list(args, error, &failure))?;
    let mut rescue = rescue::Rescue::default();
    let unstored = rescue::UnstoredLine::parse_with_bytes(&all);
    let unstored = unstored.map_err(|failure| unreadable_list(args, error, &failure))?;
    if unstored.is_empty() {
        return end_without_sync(mountpoint, daemon, error);
    }
    for (file, bytes) in unstored {
        rescue.add(dir, &file, || Ok(bytes.to_vec()));
    }
    let summary = rescue.summary(dir);
    if !rescue.is_whole() {
        return Err(failed(format!(
            "{shown}: not everything is stored, so it stays mounted: {error}; {summary}; umount(8) \
             unmounts it and discards them"
        )));
    }
    // All is saved: the daemon need not try to store it while it ends.
    daemon.give_up();
    now(mountpoint, Busy::Refuse)?;
    daemon.wait()?;
    Err(Failure::Rescued(format!("{shown}: not everything is stored: {error}; {summary}")))
}

/// Stores all that the mount has. If that can be rescued otherwise, the daemon gives a server up
/// that answers nothing for [`SILENCE`].
fn sync(mountpoint: &Path, daemon: &Daemon, has_rescue: bool) -> std::io::Result<()> {
    let root = File::open(mountpoint)?;
    if !has_rescue {
        return root.sync_all();
    }
    let (tell, told) = mpsc::channel();
    let thread = || std::thread::Builder::new().name("sync".to_owned());
    thread().spawn(move || {
        let synced = root.sync_all();
        drop(root);
        // If the channel is closed, the result is of no use any more.
        drop(tell.send(synced));
    })?;
    let (report, reported) = mpsc::channel();
    let (done, is_done) = mpsc::channel::<()>();
    let asked = mountpoint.to_owned();
    // A mount that waits for its server may not answer this, either.
    let looking = thread().spawn(move || {
        let silence = || Stats::of(&asked)?.number("server_silence_milliseconds");
        while report.send(silence()).is_ok()
            && is_done.recv_timeout(LOOK_FOR_SIGNS) == Err(RecvTimeoutError::Timeout)
        {}
    })?;
    let synced = watched(&told, &reported, daemon);
    // A file that it has open would keep the mount in use.
    drop(done);
    looking
        .join()
        .map_err(|_| std::io::Error::other("the thread that watches the server ended"))?;
    synced
}

/// Waits for the result of a sync. If the silence of the server that is reported reaches
/// [`SILENCE`], or nothing is reported for so long, has the daemon give the server up.
fn watched(
    told: &Receiver<std::io::Result<()>>,
    reported: &Receiver<Option<u64>>,
    daemon: &Daemon,
) -> std::io::Result<()> {
    let mut since = Instant::now();
    loop {
        match told.recv_timeout(LOOK_FOR_SIGNS) {
            Ok(synced) => return synced,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(std::io::Error::other("the sync has ended without a result"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let is_working = |silence: u64| u128::from(silence) < SILENCE.as_millis();
        let last = reported.try_iter().flatten().last();
        if last.is_some_and(is_working) {
            since = Instant::now();
        } else if last.is_some() || since.elapsed() >= SILENCE {
            daemon.give_up();
            since = Instant::now();
        }
    }
}

/// Unmounts although the sync failed and nothing is pending, if the directory of the store was
/// removed, or if another sync works: a refused file that a program had open counts as pending
/// until it is closed. Any other failure of the sync is reported. One of a disk or server is not
/// tried again: the kernel reports it only once, and a server may be silent.
fn end_without_sync(
    mountpoint: &Path,
    daemon: &Daemon,
    error: &std::io::Error,
) -> Result<(), Failure> {
    let number = error.raw_os_error().unwrap_or_default();
    let is_refusal = [libc::EEXIST, libc::EINVAL, libc::EFBIG, libc::EBUSY].contains(&number);
    if number == libc::ESTALE || is_refusal && sync(mountpoint, daemon, false).is_ok() {
        now(mountpoint, Busy::Refuse)?;
        return daemon.wait().map(drop);
    }
    Err(failed(format!(
        "{}: everything is stored, but the disk of the store could not be synced, so it stays \
         mounted: {error}; try again, or unmount with umount(8)",
        mountpoint.display()
    )))
}

/// Starts a thread that prints a sentence if unmounting takes long. The thread ends when the result
/// is dropped.
fn report_if_slow(mountpoint: &Path) -> Option<Sender<()>> {
    let (unmounting, ended) = mpsc::channel();
    let mountpoint = mountpoint.to_owned();
    let wait = move || {
        if ended.recv_timeout(NOTICE) == Err(RecvTimeoutError::Timeout) {
            print::error(&format!("zarrfs: {}", notice_of_wait(&mountpoint)));
        }
    };
    let started = std::thread::Builder::new().name("notice".to_owned()).spawn(wait);
    started.map(|_thread| unmounting).ok()
}

/// Describes the process that `zarrfs umount` waits for, without a request to the mount.
fn notice_of_wait(mountpoint: &Path) -> String {
    let shown = mountpoint.display();
    let process = located(mountpoint).ok().and_then(|path| processes::daemon_of(&path));
    let Some(process) = process else {
        return format!("{shown}: waiting for the daemon, which stores pending changes or hangs");
    };
    let waiting = format!("{shown}: waiting for process {process}, which");
    match processes::state_of(process).as_deref() {
        Some("stopped") => format!("{waiting} is stopped; kill -CONT {process} resumes it"),
        Some(state) => {
            format!("{waiting} stores pending changes or hangs; its state is {state}")
        }
        None => format!("{waiting} stores pending changes or hangs"),
    }
}

/// Unmounts a mount that refuses this user every request. Its daemon stores pending changes after
/// the mount has ended. `error` is that of the refused request.
fn unmount_unseen(args: &Umount, error: &std::io::Error) -> Result<(), Failure> {
    let shown = args.mountpoint.display();
    let refused = || failed(format!("{shown}: {error}"));
    let mountpoint = located(&args.mountpoint).map_err(|_| refused())?;
    let mount = mount_at(&mountpoint)?.filter(|mount| mount.kind == KIND).ok_or_else(refused)?;
    let user = geteuid();
    if !user.is_root() && mount.user != Some(user.as_raw()) {
        return Err(of_another_user(&mountpoint, &mount));
    }
    if args.rescue.is_some() {
        let owner = mount.user.map_or_else(|| "the user of the mount".to_owned(), user_name);
        return Err(failed(format!(
            "{shown}: {error}, so --rescue cannot read the pending changes; run zarrfs umount as \
             {owner}"
        )));
    }
    let daemon = processes::daemon_of(&mountpoint).map(|daemon| Daemon::new(daemon, &mountpoint));
    now(&mountpoint, Busy::Refuse)?;
    let Some(daemon) = daemon else {
        print::error(&format!(
            "zarrfs: {shown}: unmounted, but its process was not found, and may still be storing \
             pending changes"
        ));
        return Ok(());
    };
    if !daemon.wait()? {
        return Ok(());
    }
    print::error(&format!(
        "zarrfs: {shown}: unmounted, and process {} has ended; changes that it could not store are \
         named in its log",
        daemon.process
    ));
    Ok(())
}

/// Returns the failure for a mount that only another user and root can unmount.
fn of_another_user(mountpoint: &Path, mount: &MountLine) -> Failure {
    let shown = mountpoint.display();
    let (user, permitted) = match mount.user.map(user_name) {
        Some(user) if user == "root" => (user, "root".to_owned()),
        Some(user) => (user.clone(), format!("{user} or root")),
        None => ("another user".to_owned(), "root".to_owned()),
    };
    failed(format!("{shown}: {user} has mounted it; run zarrfs umount as {permitted}"))
}

/// Returns the remedy for an error of the store, followed by "or"; empty if none is known.
fn remedy(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => "free some space and unmount again, or ",
        Some(libc::EACCES | libc::EPERM) => {
            "give the user of the mount permission to write to the store and unmount again, or "
        }
        Some(libc::EROFS) => "make the file system of the store writable and unmount again, or ",
        _ => "",
    }
}

/// Returns the failure for an unreadable list of unstored files.
fn unreadable_list(args: &Umount, error: &std::io::Error, failure: &std::io::Error) -> Failure {
    let shown = args.mountpoint.display();
    failed(format!(
        "{shown}: not everything is stored: {error}; the list of unstored files cannot be read: \
         {failure}"
    ))
}

/// Returns the path of a mountpoint without links. Works even if the mount does not answer.
pub fn located(mountpoint: &Path) -> std::io::Result<PathBuf> {
    mountpoint.canonicalize().or_else(|error| {
        let absolute = std::path::absolute(mountpoint)?;
        match absolute.parent().zip(absolute.file_name()) {
            Some((above, name)) => Ok(above.canonicalize()?.join(name)),
            None => Err(error),
        }
    })
}

/// Returns the process that serves the mount, by its own report.
pub fn daemon_of(mountpoint: &Path) -> Option<u32> {
    u32::try_from(Stats::of(mountpoint)?.number("process_id")?).ok()
}

/// The daemon of a mount.
struct Daemon {
    process: u32,
    mountpoint: PathBuf,
    /// What it serves; `None` if the table of mounts does not have it.
    file_system: Option<FileSystem>,
}

impl Daemon {
    fn new(process: u32, mountpoint: &Path) -> Self {
        Self { process, mountpoint: mountpoint.to_owned(), file_system: FileSystem::at(mountpoint) }
    }

    /// Has it end all waits for the server of its store, and store nothing any more. A daemon that
    /// another process namespace hides, or of another version, goes on.
    fn give_up(&self) {
        let is_it = processes::daemon_of(&self.mountpoint) == Some(self.process);
        let process = i32::try_from(self.process).ok().and_then(Pid::from_raw);
        let Some(process) = process.filter(|_| is_it && sys::waits_for_give_up(self.process))
        else {
            return;
        };
        if let Err(error) = kill_process(process, Signal::USR2) {
            log::debug!("{}: {error}", self.process);
        }
    }

    /// Waits until it has ended, after the mount was unmounted. If the mount is in another place
    /// too, says so and returns `false`: the daemon may go on for any time.
    fn wait(&self) -> Result<bool, Failure> {
        let shown = self.mountpoint.display();
        let (started, mut look) = (Instant::now(), LOOK);
        while !self.has_ended() {
            if started.elapsed() > look {
                look = look.saturating_add(LOOK);
                if let Some(copy) = self.file_system.as_ref().and_then(FileSystem::copy) {
                    let why = copy.sentence(self.process);
                    print::error(&format!("zarrfs: {shown}: unmounted, but {why}"));
                    return Ok(false);
                }
            }
            if started.elapsed() > PATIENCE {
                let process = self.process;
                return Err(failed(format!(
                    "{shown}: unmounted, but the daemon (process {process}) is still running"
                )));
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        Ok(true)
    }

    fn has_ended(&self) -> bool {
        match std::fs::read_to_string(format!("/proc/{}/stat", self.process)) {
            // A dead child is a zombie (Z) until its parent waits for it.
            Ok(stat) => {
                stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
            }
            Err(_) => true,
        }
    }
}

/// Unmounts: by the system call if it is permitted, else by `fusermount3`.
pub fn now(mountpoint: &Path, busy: Busy) -> Result<(), Failure> {
    let shown = mountpoint.display();
    let flags = match busy {
        Busy::Refuse => UnmountFlags::empty(),
        Busy::Detach => UnmountFlags::DETACH,
    };
    let started = Instant::now();
    let unmounted = loop {
        match unmount(mountpoint, flags) {
            // `zarrfs status` and file managers look into each mount for a moment.
            Err(Errno::BUSY) if started.elapsed() < BUSY_FOR_A_MOMENT => {
                std::thread::park_timeout(Duration::from_millis(20));
            }
            unmounted => break unmounted,
        }
    };
    match unmounted {
        Ok(()) => return Ok(()),
        Err(Errno::BUSY) => return Err(in_use(mountpoint)),
        Err(Errno::PERM) => {}
        Err(error) => return Err(failed(format!("{shown}: {error}"))),
    }
    let flags = if busy == Busy::Detach { "-uz" } else { "-u" };
    let done = Command::new("fusermount3").arg(flags).arg("--").arg(mountpoint).output();
    let done = done
        .map_err(|error| failed(format!("{shown}: fusermount3 is needed to unmount: {error}")))?;
    if done.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    if output.contains("busy") {
        return Err(in_use(mountpoint));
    }
    // fusermount3 finds only the mounts of its user.
    let own = Some(geteuid().as_raw());
    match mount_at(mountpoint)? {
        Some(mount) if mount.is_fuse() && mount.user != own => {
            Err(of_another_user(mountpoint, &mount))
        }
        _ => Err(failed(format!("{shown}: {output}"))),
    }
}

/// The number of processes that a message names.
const NAMED: usize = 5;

/// Returns the failure for a mount that is in use. It names the processes that this user can see.
fn in_use(mountpoint: &Path) -> Failure {
    let shown = mountpoint.display();
    let mut users = processes::users_of(mountpoint);
    if std::env::current_dir().is_ok_and(|own| own.starts_with(mountpoint)) {
        users.push("this command, which was started in it".to_owned());
    }
    if users.is_empty() {
        return failed(format!(
            "{shown}: in use by a program that this user cannot see, or by a mount in it; \
             `sudo fuser -vm {shown}` names programs"
        ));
    }
    let (count, named) = (users.len(), users.iter().take(NAMED).cloned().collect::<Vec<_>>());
    let others = match count.saturating_sub(NAMED) {
        0 => String::new(),
        others => format!(", and {others} more"),
    };
    failed(format!(
        "{shown}: in use by {}{others}: end these programs, or close their files and leave the \
         directory",
        named.join(", ")
    ))
}

/// Whether anything is mounted at exactly this path, apart from autofs, which waits for a mount.
pub fn is_mounted(mountpoint: &Path) -> Result<bool, Failure> {
    Ok(mounts()?.iter().any(|mount| mount.path == mountpoint && mount.kind != AUTOFS))
}

/// Whether the path mounts something when a program uses it: an automount unit of systemd.
pub fn is_on_demand(mountpoint: &Path) -> Result<bool, Failure> {
    Ok(mounts()?.iter().any(|mount| mount.path == mountpoint && mount.kind == AUTOFS))
}

/// Whether the path is a FUSE mount. With `-o subtype`, the type of a zarrfs mount is not
/// `fuse.zarrfs`; the files in the mount identify it.
fn is_fuse(mountpoint: &Path) -> Result<bool, Failure> {
    Ok(mount_at(mountpoint)?.is_some_and(|mount| mount.is_fuse()))
}

/// Returns the line of the uppermost mount at exactly this path.
fn mount_at(mountpoint: &Path) -> Result<Option<MountLine>, Failure> {
    Ok(mounts()?.into_iter().rev().find(|mount| mount.path == mountpoint))
}

/// Returns the name of a user, or the number if there is no name.
pub fn user_name(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| uid.to_string())
}

/// A line in the table of mounts.
#[derive(Debug)]
pub struct MountLine {
    /// The source of the mount.
    pub source: PathBuf,
    /// The mountpoint.
    pub path: PathBuf,
    kind: String,
    is_read_only: bool,
    user: Option<u32>,
}

impl MountLine {
    /// Whether it may be a zarrfs mount.
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.")
    }

    /// Returns the type.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the user who mounted it, if the mount table names one.
    pub fn user(&self) -> Option<u32> {
        self.user
    }

    /// Whether the mount is read-only.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }
}

/// Returns all mounts, in the order of mounting.
pub fn mounts() -> Result<Vec<MountLine>, Failure> {
    let text = std::fs::read_to_string("/proc/self/mounts")?;
    let line = |line: &str| {
        let mut fields = line.split(' ');
        let (source, path) = (unescape(fields.next()?), unescape(fields.next()?));
        let kind = fields.next()?.to_owned();
        let options = fields.next()?;
        let is_read_only = options.split(',').any(|option| option == "ro");
        let user = options.split(',').find_map(|option| option.strip_prefix("user_id="));
        let user = user.and_then(|user| user.parse().ok());
        Some(MountLine { source, path, kind, is_read_only, user })
    };
    Ok(text.lines().filter_map(line).collect())
}

/// Decodes characters that are octal in the table of mounts, such as spaces: `\040`.
pub fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let octal =
            octal.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountpoints_with_spaces_are_recognised() {
        assert_eq!(unescape(r"/mnt/a\040b\134c"), PathBuf::from("/mnt/a b\\c"));
        assert_eq!(unescape(r"/mnt/ends\"), PathBuf::from("/mnt/ends\\"));
    }
}
