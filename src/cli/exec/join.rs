//! Where tasks of one user and job meet that share a mount: a socket in a directory of the user,
//! and a lock beside it, which lets one task at a time in.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;

use super::mountpoint::{private_base, safe_base};
use crate::cli::failure::{Failure, failed};
use crate::cli::output::print;
use crate::error::Kind;
use crate::sys::{self, OthersMay, OwnDirectory};

/// The variables in which batch systems and MPI name the job of a task.
const JOBS: [&str; 9] = [
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "PJM_JOBID",
    "OAR_JOB_ID",
    "COBALT_JOBID",
    "JOB_ID",
    "PMIX_NAMESPACE",
];

/// How long a task waits for its turn before it says so.
const NOTICE: Duration = Duration::from_secs(5);

/// What distinguishes machines and containers that share a directory.
const MACHINE: [&str; 3] = ["/proc/self/ns/mnt", "/proc/self/ns/user", "/proc/self/ns/pid"];

/// The name of the directory below that of running programs of this user.
const DIRECTORY: &str = "zarrfs";

/// The place where tasks meet that may share a mount.
#[derive(Debug, Clone)]
pub struct Rendezvous {
    base: PathBuf,
    dir: String,
    socket: String,
    lock: String,
}

/// The turn of a task to join or to begin, as long as the lock is open.
#[derive(Debug)]
pub struct JoinTurn {
    dir: OwnDirectory,
    _lock: File,
}

/// Tells the user why the task does not begin.
fn report_wait(lock: &Path, holder: Option<u32>) {
    let shown = lock.display();
    let what = match holder {
        Some(process) if sys::is_stopped(process) => {
            format!("process {process}, which is stopped; kill -CONT {process} resumes it")
        }
        Some(process) => format!("process {process}, which begins or ends the mount"),
        None => "another task, which begins or ends the mount".to_owned(),
    };
    print::error(&format!("zarrfs: {shown}: waiting for {what}"));
}

impl Rendezvous {
    /// Returns the place for tasks of this user and job with the same mount: `key` is all that
    /// determines the mount.
    pub fn new(key: &impl Hash) -> Self {
        let (base, _) = safe_base();
        let dir = match private_base() {
            Some(private) if private == base => DIRECTORY.to_owned(),
            _ => format!("{DIRECTORY}-{}", geteuid().as_raw()),
        };
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        JOBS.map(std::env::var_os).hash(&mut hasher);
        MACHINE.map(|link| fs::read_link(link).ok()).hash(&mut hasher);
        fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default().hash(&mut hasher);
        let name = format!("{:016x}", hasher.finish());
        Self { base, dir, socket: format!("{name}.socket"), lock: format!("{name}.lock") }
    }

    /// Waits for the turn of this task to join or to begin.
    pub fn turn(&self) -> Result<JoinTurn, Failure> {
        loop {
            let dir = self.directory()?;
            let at = |error: io::Error| {
                failed(format!("{}: {error}", dir.shown().join(&self.lock).display()))
            };
            let lock = match dir.open_or_create(&self.lock) {
                // The last task of another mount has just removed the directory.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                lock => lock.map_err(at)?,
            };
            let report = |holder| report_wait(&dir.shown().join(&self.lock), holder);
            sys::wait_for_lock(&lock, NOTICE, report).map_err(at)?;
            if dir.is_named(&self.lock, &lock).map_err(at)? {
                return Ok(JoinTurn { dir, _lock: lock });
            }
        }
    }

    /// Makes and opens the directory, which only this user may enter.
    fn directory(&self) -> Result<OwnDirectory, Failure> {
        let opened = OwnDirectory::existing(&self.base);
        let opened = opened.and_then(|base| base.private(&self.dir, OthersMay::Nothing));
        opened.map_err(|error| match error.kind() {
            Kind::NotPermitted => failed(format!(
                "{error}: tasks cannot meet there; set XDG_RUNTIME_DIR or TMPDIR to a directory of \
                 your own"
            )),
            _ => failed(error.to_string()),
        })
    }

    /// Connects to the server, if there is one.
    pub fn connect(&self, turn: &JoinTurn) -> Option<UnixStream> {
        UnixStream::connect(turn.dir.path_of(&self.socket)).ok()
    }

    /// Returns the listener of a server that is about to start.
    pub fn listen(&self, turn: &JoinTurn) -> Result<JoinListener, Failure> {
        // A server that was killed has left it.
        remove(&turn.dir, &self.socket);
        let socket = UnixListener::bind(turn.dir.path_of(&self.socket));
        let shown = turn.dir.shown().join(&self.socket);
        let listener = socket.map_err(|error| failed(format!("{}: {error}", shown.display())))?;
        let dir = turn.dir.try_clone()?;
        Ok(JoinListener { listener, rendezvous: self.clone(), dir })
    }
}

/// The socket on which further tasks join a server.
#[derive(Debug)]
pub struct JoinListener {
    listener: UnixListener,
    rendezvous: Rendezvous,
    dir: OwnDirectory,
}

impl JoinListener {
    /// Returns the socket on which tasks come.
    pub fn socket(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// Closes the socket unless a task has joined meanwhile. The next task waits until this process
    /// has ended: then everything is stored.
    pub fn close(&self, is_empty: impl Fn() -> bool) -> bool {
        match self.rendezvous.turn() {
            Ok(turn) if is_empty() => {
                remove(&self.dir, &self.rendezvous.socket);
                // The end of this process closes it.
                std::mem::forget(turn);
                true
            }
            Ok(_) => false,
            Err(failure) => {
                log::warn!("{}", failure.message());
                remove(&self.dir, &self.rendezvous.socket);
                is_empty()
            }
        }
    }

    /// Removes the socket and the lock, and the directory unless other tasks meet there.
    pub fn remove(&self) {
        let Rendezvous { base, dir, socket, lock } = &self.rendezvous;
        remove(&self.dir, socket);
        remove(&self.dir, lock);
        let removed = OwnDirectory::existing(base).map_err(|error| error.to_string());
        let removed = removed.and_then(|base| {
            base.remove_directory_if(dir, &self.dir).map_err(|error| error.to_string())
        });
        if let Err(error) = removed {
            log::debug!("{}: {error}", self.dir.shown().display());
        }
    }
}

fn remove(dir: &OwnDirectory, name: &str) {
    if let Err(error) = dir.remove(name) {
        log::debug!("{}: {error}", dir.shown().join(name).display());
    }
}
