//! Where tasks of one user and job meet that share a mount: a socket in a directory of the user,
//! and a lock beside it, which lets one task at a time in.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::mountpoint::private_base;
use crate::cli::failure::{Failure, failed};
use crate::sys;

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

/// The permissions of other users, and of the group.
const OTHERS: u32 = 0o077;

/// What distinguishes machines and containers that share a directory.
const MACHINE: [&str; 3] = ["/proc/self/ns/mnt", "/proc/self/ns/user", "/proc/self/ns/pid"];

/// The place where tasks meet that may share a mount.
#[derive(Debug, Clone)]
pub struct Rendezvous {
    dir: PathBuf,
    socket: PathBuf,
    lock: PathBuf,
}

impl Rendezvous {
    /// Returns the place for tasks of this user and job with the same mount: `key` is all that
    /// determines the mount.
    pub fn new(key: &impl Hash) -> Self {
        let dir = match private_base() {
            Some(base) => base.join("zarrfs"),
            None => std::env::temp_dir().join(format!("zarrfs-{}", geteuid().as_raw())),
        };
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        JOBS.map(std::env::var_os).hash(&mut hasher);
        MACHINE.map(|link| fs::read_link(link).ok()).hash(&mut hasher);
        fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default().hash(&mut hasher);
        let name = format!("{:016x}", hasher.finish());
        let socket = dir.join(format!("{name}.socket"));
        Self { socket, lock: dir.join(format!("{name}.lock")), dir }
    }

    /// Waits for the turn of this task to join or to begin. It lasts as long as the file is open.
    pub fn turn(&self) -> Result<File, Failure> {
        let at = |error: io::Error| failed(format!("{}: {error}", self.lock.display()));
        loop {
            self.make_dir()?;
            let options = OpenOptions::new().write(true).create(true).mode(0o600).clone();
            let lock = match options.open(&self.lock) {
                // The last task of another mount has just removed the directory.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                lock => lock.map_err(at)?,
            };
            sys::wait_for_lock(&lock).map_err(at)?;
            if is_at(&lock, &self.lock).map_err(at)? {
                return Ok(lock);
            }
        }
    }

    /// Makes the directory, which only this user may enter.
    fn make_dir(&self) -> Result<(), Failure> {
        let shown = self.dir.display();
        match fs::DirBuilder::new().mode(0o700).create(&self.dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(failed(format!("{shown}: {error}")));
            }
            _ => {}
        }
        let found = match fs::symlink_metadata(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found.map_err(|error| failed(format!("{shown}: {error}")))?,
        };
        let is_private = found.is_dir() && found.mode() & OTHERS == 0;
        if is_private && found.uid() == geteuid().as_raw() {
            return Ok(());
        }
        Err(failed(format!(
            "{shown}: other users can change this, so tasks cannot meet there; set \
             XDG_RUNTIME_DIR or TMPDIR to a directory of your own"
        )))
    }

    /// Connects to the server, if there is one. The task must have its turn.
    pub fn connect(&self) -> Option<UnixStream> {
        UnixStream::connect(&self.socket).ok()
    }

    /// Returns the listener of a server that is about to start. The task must have its turn.
    pub fn listen(&self) -> Result<JoinListener, Failure> {
        let at = |error: io::Error| failed(format!("{}: {error}", self.socket.display()));
        // A server that was killed has left it.
        remove(&self.socket);
        let listener = UnixListener::bind(&self.socket).map_err(at)?;
        Ok(JoinListener { listener, rendezvous: self.clone() })
    }
}

/// The socket on which further tasks join a server.
#[derive(Debug)]
pub struct JoinListener {
    listener: UnixListener,
    rendezvous: Rendezvous,
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
                remove(&self.rendezvous.socket);
                // The end of this process closes it.
                std::mem::forget(turn);
                true
            }
            Ok(_) => false,
            Err(failure) => {
                log::warn!("{}", failure.message());
                remove(&self.rendezvous.socket);
                is_empty()
            }
        }
    }

    /// Removes the socket and the lock, and the directory unless other tasks meet there.
    pub fn remove(&self) {
        remove(&self.rendezvous.socket);
        remove(&self.rendezvous.lock);
        if let Err(error) = fs::remove_dir(&self.rendezvous.dir) {
            log::debug!("{}: {error}", self.rendezvous.dir.display());
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        log::debug!("{}: {error}", path.display());
    }
}

/// Whether the open file is still the one at `path`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (open, named) = (file.metadata()?, fs::metadata(path));
    Ok(named.is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino())))
}
