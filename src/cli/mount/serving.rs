//! Serves a mount until it ends: what `mount` and `exec` have in common.

use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{getpid, kill_process, setsid};

use super::apart;
use super::daemon;
use super::notify;
use super::obstacles;
use super::typed::Typed;
use crate::cli::exec::server::Server;
use crate::cli::failure::{Failure, failed};
use crate::cli::open;
use crate::cli::output::logger;
use crate::cli::umount;
use crate::cli::umount::auto_unmount;
use crate::cli::umount::processes;
use crate::cli::umount::processes::FileSystem;
use crate::cli::umount::rescue;
use crate::fuse::{self, MountPlace, Mounted, Stopper};
use crate::resources;
use crate::sys::{self, Signal};
use crate::vfs::{self, Vfs};

/// How often to look whether the server of the store works.
const LOOK: Duration = umount::LOOK_FOR_SIGNS;

/// The process that started this one, and waits for it.
#[derive(Debug)]
pub enum Starter {
    /// A shell, a supervisor or another program.
    Foreground {
        /// Whether the mount ends with standard input.
        until_eof: bool,
    },
    /// `zarrfs mount`, until the mount answers.
    Mount,
    /// `zarrfs exec`.
    Exec(Arc<Server>),
}

/// The place of the mount.
#[derive(Debug)]
pub struct ServedAt<'p> {
    /// The mountpoint.
    pub path: &'p Path,
    /// The FUSE device, if another process has mounted it already.
    pub device: Option<OwnedFd>,
}

/// Leaves the session of the parent, and reports to it that the mount is ready. Not before the
/// mount: autofs lets only processes in the group of systemd use a mountpoint that it waits for.
fn become_ready() -> Result<(), Failure> {
    setsid().map_err(io::Error::from)?;
    daemon::report_ready()
}

impl Typed<'_> {
    /// Mounts the source, and returns when the mount has ended. `unwritable` is the reason why it
    /// is read-only, if the user has not asked for that.
    pub fn serve(
        &self,
        source: &open::Source,
        at: ServedAt<'_>,
        starter: &Starter,
        unwritable: Option<&str>,
    ) -> Result<(), Failure> {
        // Do this before any thread starts, so that only the waiting thread receives signals.
        sys::block_signals()?;
        // Opening the source may take long, and Ctrl-C ends the parent of a daemon meanwhile.
        let is_daemon = matches!(starter, Starter::Mount);
        is_daemon.then(|| sys::end_with_parent(true)).transpose()?;
        logger::start(self.options.tree.log_level, self.log_sink(starter)?)?;
        // Without a log file, the user has seen this on standard error already.
        if let Some(why) = unwritable
            && (matches!(starter, Starter::Mount) || self.options.tree.log_file.is_some())
        {
            log::warn!("{}: {why}", source.spelled());
        }
        let descriptors = resources::raise_descriptor_limit();
        // The daemon changes its working directory, from which relative paths start.
        let rescue = self.options.write.rescue.as_ref().map(std::path::absolute).transpose()?;
        let hierarchy = self.open_hierarchy(source)?;
        let directory = at.device.is_none().then_some(at.path);
        if let Some(directory) = directory {
            apart::check_groups_above(&hierarchy, source, directory)?;
        }
        let is_remote = source.root.is_remote();
        if !is_remote {
            hierarchy.recovery().recover();
        }
        let vfs = Arc::new(Vfs::new(hierarchy, self.vfs_options(source, descriptors)));
        is_daemon.then(|| sys::end_with_parent(false)).transpose()?;
        let place = at.device.map_or(MountPlace::Directory(at.path), MountPlace::Device);
        let mounted = fuse::mount(&vfs, place, &self.mount_options(source)?)
            .map_err(|error| obstacles::explain(at.path, &error))?;
        let guard = directory.filter(|_| self.flags.auto_unmount).map(auto_unmount::start);
        let guard = guard.transpose()?;
        // The parent checks whether the mount answers: a process that waits for an answer from
        // itself cannot be killed.
        if let Some(directory) = directory {
            raise_readahead(directory);
        }
        match starter {
            Starter::Foreground { .. } => notify::send(notify::READY),
            Starter::Mount => become_ready()?,
            Starter::Exec(server) => server.open(&vfs, mounted.stopper())?,
        }
        let (shown, place) = (source.spelled(), at.path.display());
        log::info!("{shown} is mounted on {place}");
        let ending = Ending::of(directory, starter, mounted.stopper());
        let is_asked = Arc::<AtomicBool>::default();
        let signals = Signals {
            ending: Arc::new(ending),
            vfs: Arc::clone(&vfs),
            hang_up: self.hang_up(starter),
            is_ending: Arc::clone(&is_asked),
        };
        signals.answer();
        if matches!(starter, Starter::Foreground { until_eof: true }) {
            end_with_input();
        }
        if is_remote && !self.flags.read_only {
            recover_beside(Arc::clone(&vfs));
        }
        let ended = end(mounted, &vfs, rescue.as_deref(), &is_asked);
        drop(guard);
        match &ended {
            Ok(()) => log::info!("{shown} is unmounted from {place}"),
            Err(failure) => report(starter, failure),
        }
        log::logger().flush();
        ended
    }

    /// Returns the destination of log lines, with an absolute path: the daemon changes its working
    /// directory.
    fn log_sink(&self, starter: &Starter) -> Result<logger::Sink, Failure> {
        Ok(match (&self.options.tree.log_file, starter) {
            (Some(path), _) => logger::Sink::File(std::path::absolute(path)?),
            (None, Starter::Mount) => logger::Sink::System,
            (None, Starter::Foreground { .. } | Starter::Exec(_)) => logger::Sink::Stderr,
        })
    }

    fn hang_up(&self, starter: &Starter) -> HangUp {
        // A terminal also sends SIGHUP when it is closed.
        let of_terminal =
            matches!(starter, Starter::Foreground { .. }) && io::stdin().is_terminal();
        match (&self.options.tree.log_file, of_terminal) {
            (Some(_), false) => HangUp::ReopenLog,
            _ => HangUp::Stop,
        }
    }
}

/// Finishes or undoes interrupted changes while the mount answers requests: on a server it takes a
/// minute to see that a writer is dead.
fn recover_beside(vfs: Arc<Vfs>) {
    let recover = move || vfs.recover();
    if let Err(error) = thread::Builder::new().name("recovery".to_owned()).spawn(recover) {
        log::error!("cannot look for interrupted changes: {error}");
    }
}

/// Waits until the mount has ended, and stores what is left.
fn end(
    mounted: Mounted,
    vfs: &Vfs,
    rescue: Option<&Path>,
    is_asked: &AtomicBool,
) -> Result<(), Failure> {
    let waited = mounted.wait();
    let server = match rescue {
        None if !is_asked.load(Ordering::Relaxed) => Away::Wait,
        _ => Away::GiveUp,
    };
    let Err(error) = sync(vfs, server) else { return Ok(waited?) };
    let unstored = vfs.unstored();
    Err(failed(if let Some(dir) = rescue {
        let mut rescue = rescue::Rescue::default();
        for vfs::Unstored { path, change, .. } in unstored {
            let (change, bytes) = match change {
                vfs::UnstoredChange::Bytes(bytes) => (rescue::ChangeKind::Written, Some(bytes)),
                vfs::UnstoredChange::Removed => (rescue::ChangeKind::Removed, None),
                vfs::UnstoredChange::Directory => (rescue::ChangeKind::Directory, None),
            };
            rescue.add(dir, &rescue::UnstoredLine { path, change }, || match bytes {
                Some(bytes) => Ok(bytes.to_buffer(u64::MAX).map_err(io::Error::other)?.into_vec()),
                None => Ok(Vec::new()),
            });
        }
        format!("not everything is stored: {error}; {}", rescue.summary(dir))
    } else {
        let paths: Vec<String> = unstored.into_iter().map(|file| file.path).collect();
        format!(
            "not everything is stored: {error}; lost, unless `zarrfs umount --rescue` has saved \
             it; unstored: {}",
            rescue::named(&paths)
        )
    }))
}

/// Logs why the mount ended badly: a daemon can report only in its log.
fn report(starter: &Starter, failure: &Failure) {
    // `zarrfs exec` prints it.
    if !matches!(starter, Starter::Exec(_)) {
        log::error!("{}", failure.message());
    }
}

/// The effect of SIGHUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HangUp {
    /// Reopen the log file.
    ReopenLog,
    /// End the mount.
    Stop,
}

/// How a signal ends the mount.
#[derive(Debug)]
enum Ending {
    /// The mount at this path is detached.
    Unmount(PathBuf),
    /// The mount stays, but is not served any more: only the process that made it can unmount it.
    Stop(Stopper),
    /// Not at all while there are tasks. The batch system that ends them may send the signal to all
    /// processes of a job, and the tasks still save their files.
    AfterTasks(Arc<Server>),
}

impl Ending {
    /// Returns how a mount in this directory ends, or one on a device.
    fn of(directory: Option<&Path>, starter: &Starter, stopper: Stopper) -> Self {
        match (directory, starter) {
            (Some(directory), _) => Self::Unmount(directory.to_owned()),
            (None, Starter::Exec(server)) => Self::AfterTasks(Arc::clone(server)),
            (None, _) => Self::Stop(stopper),
        }
    }

    /// Whether tasks still use the mount, and save their files.
    fn has_tasks(&self) -> bool {
        matches!(self, Self::AfterTasks(server) if !server.is_empty())
    }
}

/// What signals do to a mount.
#[derive(Debug, Clone)]
struct Signals {
    ending: Arc<Ending>,
    vfs: Arc<Vfs>,
    hang_up: HangUp,
    /// Whether a signal has asked the mount to end.
    is_ending: Arc<AtomicBool>,
}

impl Signals {
    /// Starts a thread that answers them.
    fn answer(self) {
        let wait = move || {
            while let Ok(signal) = sys::wait_for_signal() {
                self.answer_one(signal);
            }
        };
        if let Err(error) = thread::Builder::new().name("signals".to_owned()).spawn(wait) {
            log::error!("cannot wait for signals: {error}");
        }
    }

    fn answer_one(&self, signal: Signal) {
        match (signal, self.hang_up) {
            (Signal::Report, _) => report_counters(&self.vfs),
            (Signal::HangUp, HangUp::ReopenLog) => logger::reopen(),
            // `zarrfs umount --rescue` saves what is not stored.
            (Signal::GiveUp, _) => {
                if self.vfs.silence().is_some() {
                    log::warn!("the mount gives its server up, and keeps what is not stored");
                }
                self.vfs.give_up();
            }
            (Signal::HangUp, HangUp::Stop) | (Signal::Stop, _) => self.stop(),
        }
    }

    fn stop(&self) {
        if self.is_ending.swap(true, Ordering::Relaxed) {
            if !self.ending.has_tasks() {
                log::warn!("a second signal: the mount no longer waits for the store");
                self.vfs.give_up();
            }
            return;
        }
        notify::send(notify::STOPPING);
        let signals = self.clone();
        let work = move || {
            if !end_by_signal(&signals.ending, &signals.vfs) {
                signals.is_ending.store(false, Ordering::Relaxed);
            }
        };
        if let Err(error) = thread::Builder::new().name("ending".to_owned()).spawn(work) {
            log::error!("cannot end the mount: {error}");
            self.is_ending.store(false, Ordering::Relaxed);
        }
    }
}

/// Stores what is left and ends the mount; `false` if it goes on.
fn end_by_signal(ending: &Ending, vfs: &Vfs) -> bool {
    let server = if ending.has_tasks() { Away::Wait } else { Away::GiveUp };
    if let Err(error) = sync(vfs, server) {
        vfs.note("stop", &error);
    }
    if ending.has_tasks() {
        return false;
    }
    vfs.stop_waiting();
    let ended = match ending {
        Ending::Unmount(path) => unmount(path),
        Ending::Stop(stopper) => {
            stopper.stop();
            Ok(())
        }
        // It ends with its last task.
        Ending::AfterTasks(_) => Ok(()),
    };
    ended.inspect_err(|failure| log::error!("{}", failure.message())).is_ok()
}

/// How a server is treated that is away while the last changes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    /// Each request is made for the time of `--retry-for`.
    Wait,
    /// It is given up if it shows no sign for [`umount::SILENCE`]. The program that has sent the
    /// signal would kill the mount otherwise, and no log would name the lost changes.
    GiveUp,
}

/// Stores what is left.
fn sync(vfs: &Vfs, server: Away) -> crate::error::Result<()> {
    if server == Away::Wait || vfs.silence().is_none() {
        return vfs.sync();
    }
    thread::scope(|scope| {
        let (done, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if vfs.silence().is_some_and(|silence| silence >= umount::SILENCE) {
                    log::warn!(
                        "the server has stored nothing for {} s, so the mount no longer waits for \
                         it",
                        umount::SILENCE.as_secs()
                    );
                    return vfs.give_up();
                }
            }
        });
        let stored = vfs.sync();
        drop(done);
        stored
    })
}

/// Unmounts, or detaches a mount that is in use. Logs if the mount is in another place too.
fn unmount(mountpoint: &Path) -> Result<(), Failure> {
    let file_system = FileSystem::at(mountpoint);
    if umount::now(mountpoint, umount::Busy::Refuse).is_err() {
        return detach(mountpoint);
    }
    // This process ends meanwhile if there is no other place.
    thread::sleep(umount::LOOK);
    if let Some(copy) = file_system.and_then(|mounted| mounted.copy()) {
        let why = copy.sentence(std::process::id());
        log::warn!("{}: unmounted, but {why}", mountpoint.display());
    }
    Ok(())
}

/// Detaches a mount that is in use, and logs which programs it waits for: afterwards no path leads
/// to the files that they have open.
fn detach(mountpoint: &Path) -> Result<(), Failure> {
    let users = processes::users_of(mountpoint);
    umount::now(mountpoint, umount::Busy::Detach)?;
    let programs = match users.as_slice() {
        [] => "the programs that use it",
        _ => "these programs",
    };
    let named =
        if users.is_empty() { String::new() } else { format!(": {}", rescue::named(&users)) };
    log::warn!(
        "{}: in use, so it is detached; zarrfs ends when {programs} have closed their files or \
         ended{named}",
        mountpoint.display()
    );
    Ok(())
}

/// Ends the mount when standard input ends, as SIGTERM does.
fn end_with_input() {
    let wait = || {
        if let Err(error) = io::copy(&mut io::stdin().lock(), &mut io::sink()) {
            log::warn!("standard input: {error}");
        }
        kill_process(getpid(), rustix::process::Signal::TERM)
    };
    if let Err(error) = thread::Builder::new().name("input".to_owned()).spawn(wait) {
        log::error!("cannot wait for the end of standard input: {error}");
    }
}

/// Logs the counters of `.zarrfs/stats` in one line.
pub fn report_counters(vfs: &Vfs) {
    let stats = vfs.stats();
    let counters = stats.lines().filter(|line| !line.starts_with('#'));
    let counters = counters.filter_map(|line| line.strip_prefix("zarrfs_"));
    let counters: Vec<String> = counters.map(|line| line.replace(' ', "=")).collect();
    logger::report(&format!("counters: {}", counters.join(" ")));
}

/// Sets the read-ahead of a mount to 1 MiB, the largest size that the kernel uses, so that reads
/// take a quarter of the requests. Needs root.
pub fn raise_readahead(mountpoint: &Path) {
    let Some(FileSystem { device, .. }) = FileSystem::at(mountpoint) else { return };
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    let opened = std::fs::OpenOptions::new().write(true).open(&path);
    if let Err(error) = opened.and_then(|mut file| file.write_all(b"1024")) {
        log::debug!("{path}: {error}");
    }
}
