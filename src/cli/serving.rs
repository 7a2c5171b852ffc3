//! Serves a mount until it ends: what `mount` and `exec` have in common.

use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{getpid, kill_process, setsid};

use super::exec::server::Server;
use super::failure::{Failure, failed};
use super::open;
use super::processes::FileSystem;
use super::typed::Typed;
use super::{apart, auto_unmount, daemon, logger, notify, obstacles, processes, rescue, umount};
use crate::fuse::{self, Mounted, Place, Stopper};
use crate::resources;
use crate::sys::{self, Signal};
use crate::vfs::{self, Vfs};

/// How often to look whether the server of the store has answered.
const LOOK: Duration = umount::LOOK_FOR_ANSWERS;

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
pub struct At<'p> {
    /// The mountpoint.
    pub path: &'p Path,
    /// The FUSE device, if another process has mounted it already.
    pub device: Option<OwnedFd>,
}

impl Typed<'_> {
    /// Mounts the source, and returns when the mount has ended. `unwritable` is the reason why it
    /// is read-only, if the user has not asked for that.
    pub fn serve(
        &self,
        source: &open::Source,
        at: At<'_>,
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
        let place = at.device.map_or(Place::Directory(at.path), Place::Device);
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
            Starter::Mount => {
                // Not before the mount: autofs lets only processes in the group of systemd use a
                // mountpoint that it waits for.
                setsid().map_err(io::Error::from)?;
                daemon::report_ready()?;
            }
            Starter::Exec(server) => server.open(&vfs, mounted.stopper())?,
        }
        let (shown, place) = (source.spelled(), at.path.display());
        log::info!("{shown} is mounted on {place}");
        let ending = match (directory, starter) {
            (Some(directory), _) => Ending::Unmount(directory.to_owned()),
            (None, Starter::Exec(server)) => Ending::AfterTasks(Arc::clone(server)),
            (None, _) => Ending::Stop(mounted.stopper()),
        };
        answer_signals(ending, Arc::clone(&vfs), self.hang_up(starter), rescue.is_some());
        if matches!(starter, Starter::Foreground { until_eof: true }) {
            end_with_input();
        }
        if is_remote && !self.flags.read_only {
            recover_beside(Arc::clone(&vfs));
        }
        let ended = end(mounted, &vfs, rescue.as_deref());
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
fn end(mounted: Mounted, vfs: &Vfs, rescue: Option<&Path>) -> Result<(), Failure> {
    let waited = mounted.wait();
    let Err(error) = sync(vfs, rescue.is_some()) else { return Ok(waited?) };
    let unstored = vfs.unstored();
    Err(failed(if let Some(dir) = rescue {
        let mut rescue = rescue::Rescue::default();
        for vfs::Unstored { path, change, .. } in unstored {
            let (change, bytes) = match change {
                vfs::Change::Bytes(bytes) => (rescue::Change::Written, Some(bytes)),
                vfs::Change::Removed => (rescue::Change::Removed, None),
                vfs::Change::Directory => (rescue::Change::Directory, None),
            };
            rescue.add(dir, &rescue::Unstored { path, change }, || match bytes {
                Some(bytes) => Ok(bytes.to_buffer(u64::MAX).map_err(io::Error::other)?.into_vec()),
                None => Ok(Vec::new()),
            });
        }
        format!("not everything is stored: {error}; {}", rescue.summary(dir))
    } else {
        let paths: Vec<String> = unstored.into_iter().map(|file| file.path).collect();
        format!("not everything is stored: {error}; unstored: {}", rescue::named(&paths))
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

fn answer_signals(ending: Ending, vfs: Arc<Vfs>, hang_up: HangUp, has_rescue: bool) {
    let (ending, is_ending) = (Arc::new(ending), Arc::new(AtomicBool::new(false)));
    let wait = move || {
        while let Ok(signal) = sys::wait_for_signal() {
            match (signal, hang_up) {
                (Signal::Report, _) => {
                    report_counters(&vfs);
                    continue;
                }
                (Signal::HangUp, HangUp::ReopenLog) => {
                    logger::reopen();
                    continue;
                }
                // `zarrfs umount --rescue` saves what is not stored.
                (Signal::GiveUp, _) => {
                    if vfs.answered().is_some() {
                        log::warn!("the mount gives its server up, and keeps what is not stored");
                    }
                    vfs.give_up();
                    continue;
                }
                (Signal::HangUp, HangUp::Stop) | (Signal::Stop, _) => {}
            }
            if is_ending.swap(true, Ordering::Relaxed) {
                // The tasks of a job still save their files.
                if !matches!(&*ending, Ending::AfterTasks(_)) {
                    log::warn!("a second signal: the mount no longer waits for the store");
                    vfs.give_up();
                }
                continue;
            }
            notify::send(notify::STOPPING);
            let (ending, vfs) = (Arc::clone(&ending), Arc::clone(&vfs));
            let flag = Arc::clone(&is_ending);
            let work = move || {
                if !end_by_signal(&ending, &vfs, has_rescue) {
                    flag.store(false, Ordering::Relaxed);
                }
            };
            if let Err(error) = thread::Builder::new().name("ending".to_owned()).spawn(work) {
                log::error!("cannot end the mount: {error}");
                is_ending.store(false, Ordering::Relaxed);
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("signals".to_owned()).spawn(wait) {
        log::error!("cannot wait for signals: {error}");
    }
}

/// Stores what is left and ends the mount; `false` if it goes on.
fn end_by_signal(ending: &Ending, vfs: &Vfs, has_rescue: bool) -> bool {
    // Tasks go on to save their files.
    let may_give_up = has_rescue && !matches!(ending, Ending::AfterTasks(_));
    if let Err(error) = sync(vfs, may_give_up) {
        vfs.note("stop", &error);
    }
    if matches!(ending, Ending::AfterTasks(server) if !server.is_empty()) {
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

/// Stores what is left. If it can be rescued otherwise, a server that answers nothing for
/// [`umount::SILENCE`] is given up.
fn sync(vfs: &Vfs, has_rescue: bool) -> crate::error::Result<()> {
    if !has_rescue || vfs.answered().is_none() {
        return vfs.sync();
    }
    thread::scope(|scope| {
        let (done, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            let (mut answered, mut since) = (vfs.answered(), Instant::now());
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if vfs.answered() != answered {
                    (answered, since) = (vfs.answered(), Instant::now());
                } else if since.elapsed() >= umount::SILENCE {
                    log::warn!(
                        "the server has answered nothing for {} s: what is not stored is saved in \
                         the directory of --rescue",
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
