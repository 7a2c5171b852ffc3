//! A mount: creates it, serves it with several event loops, sends notifications to the kernel, and
//! ends it.

use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, INodeNo, MountOption, Notifier, Session, SessionACL};

use super::fs::Fs;
use super::read_log::ReadLog;
use super::terms::Owner;
use crate::error::{Error, Kind, Result};
use crate::pool::Pool;
use crate::vfs::{Outdated, Vfs};

/// The interval of storing pending scratch files and dropping unused inodes.
const TICK: Duration = Duration::from_millis(500);

/// The entry of a mount in the mount table.
#[derive(Debug, Clone)]
pub struct MountEntry {
    /// The source in `mount` and `df`.
    pub source: String,
    /// The type of the mount, after `fuse.`.
    pub subtype: String,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Users who may access the mount besides the one who mounts it.
    pub others: MountUsers,
}

/// The options of the mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The entry in the mount table.
    pub entry: MountEntry,
    /// Whether reads and writes bypass the page cache, in the sizes that programs request.
    pub direct_io: bool,
    /// The number of threads that receive requests.
    pub event_loops: usize,
    /// The number of threads that decode and store.
    pub workers: usize,
    /// The most of these threads that may prefetch.
    pub ahead: usize,
    /// The owner and the modes of all files.
    pub owner: Owner,
    /// The log of reads, if there is one.
    pub read_log: Option<Arc<dyn ReadLog>>,
}

/// Users who may access a mount besides the one who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountUsers {
    /// No other user.
    Nobody,
    /// Root.
    Root,
    /// All users, within the mode bits.
    Everybody,
}

/// The place of a mount.
#[derive(Debug)]
pub enum MountPlace<'p> {
    /// The directory to mount on.
    Directory(&'p Path),
    /// The FUSE device of a mount that another process has made, and ends.
    Device(OwnedFd),
}

/// A running mount.
#[derive(Debug)]
pub struct Mounted {
    ended: mpsc::Receiver<Result<()>>,
    stopper: Stopper,
    wake: mpsc::Sender<Wake>,
}

/// Ends the service of a mount.
#[derive(Debug, Clone)]
pub struct Stopper(mpsc::Sender<Result<()>>);

impl Stopper {
    /// Makes [`Mounted::wait`] return, although the mount is still there. Programs that use it get
    /// `ENOTCONN` when this process has ended.
    pub fn stop(&self) {
        // If the receiver is gone, the mount has ended.
        let _ended = self.0.send(Ok(()));
    }
}

#[derive(Debug)]
enum Wake {
    Drop(Outdated),
    Stop,
}

/// Mounts `vfs`, and serves it.
pub fn mount(vfs: &Arc<Vfs>, place: MountPlace<'_>, options: &MountOptions) -> Result<Mounted> {
    let pool = Arc::new(Pool::new(options.workers, options.ahead)?);
    vfs.use_pool(Arc::clone(&pool));
    let fs =
        Fs::new(Arc::clone(vfs), pool, options.owner, options.direct_io, options.read_log.clone());
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.entry.source.clone()),
        // fuser gives the kernel no subtype, only fusermount3. Both take it in this form.
        MountOption::CUSTOM(format!("subtype={}", options.entry.subtype)),
        // The kernel checks the mode bits.
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
        if options.entry.read_only { MountOption::RO } else { MountOption::RW },
    ];
    config.acl = match options.entry.others {
        MountUsers::Nobody => SessionACL::Owner,
        MountUsers::Root => SessionACL::RootAndOwner,
        MountUsers::Everybody => SessionACL::All,
    };
    config.n_threads = Some(options.event_loops.max(1));
    config.clone_fd = true;
    let session = match place {
        MountPlace::Directory(mountpoint) => {
            Session::new(fs, mountpoint, &config).map_err(|error| refused(&error))?
        }
        MountPlace::Device(device) => {
            // Only a process in the user namespace of the mount may clone its device.
            config.clone_fd = false;
            // The process that mounted has decided which users may access it.
            let acl = SessionACL::All;
            Session::from_fd(fs, device, acl, config).map_err(|error| not_mounted(&error))?
        }
    };
    let notifier = session.notifier();
    let session = session.spawn()?;
    let (stop, wakes) = mpsc::channel();
    let (wake, at_once) = (stop.clone(), notifier.clone());
    vfs.on_invalidate(Box::new(move |outdated| {
        if let Outdated::AttributesAtOpen(_) = outdated {
            // The kernel waits for nothing, since it has the inode and drops no pages.
            return drop_in_kernel(&at_once, &outdated);
        }
        // If the receiver is gone, the mount has ended and there is nothing to drop.
        let _ended = wake.send(Wake::Drop(outdated));
    }));
    // A notification may wait for a request that the kernel has sent to zarrfs, so threads that
    // answer requests must not send it.
    std::thread::Builder::new()
        .name("notifier".to_owned())
        .spawn(move || notify(&notifier, &wakes))?;
    // Storing pending files does not block requests either. The thread ends with the tree.
    let ticking = Arc::downgrade(vfs);
    std::thread::Builder::new().name("ticker".to_owned()).spawn(move || {
        loop {
            std::thread::sleep(TICK);
            let Some(vfs) = ticking.upgrade() else { return };
            vfs.tick();
        }
    })?;
    let (ends, ended) = mpsc::channel();
    let stopper = Stopper(ends.clone());
    std::thread::Builder::new().name("waiter".to_owned()).spawn(move || {
        // If the receiver is gone, nobody waits any more.
        let _gone = ends.send(join(session));
    })?;
    Ok(Mounted { ended, stopper, wake: stop })
}

/// Has the kernel drop what is outdated, until the mount ends.
fn notify(notifier: &Notifier, wakes: &mpsc::Receiver<Wake>) {
    while let Ok(Wake::Drop(outdated)) = wakes.recv() {
        drop_in_kernel(notifier, &outdated);
    }
}

fn drop_in_kernel(notifier: &Notifier, outdated: &Outdated) {
    let dropped = match outdated {
        Outdated::Inode(number) => notifier.inval_inode(INodeNo(*number), 0, 0),
        // A negative offset stands for no pages.
        Outdated::Attributes(number) | Outdated::AttributesAtOpen(number) => {
            notifier.inval_inode(INodeNo(*number), -1, 0)
        }
        Outdated::Name(directory, name) => {
            notifier.inval_entry(INodeNo(*directory), OsStr::new(name))
        }
    };
    if let Err(error) = dropped {
        log::debug!("{outdated:?}: {error}"); // The kernel has forgotten it already.
    }
}

/// Waits until the mount is gone.
fn join(mut session: BackgroundSession) -> Result<()> {
    let nothing = std::thread::Builder::new().spawn(|| Ok(()))?;
    match std::mem::replace(&mut session.guard, nothing).join() {
        Ok(Ok(())) => {
            // fuser 0.18 would unmount the path again, where another file system may be mounted by
            // now.
            let _unmounted = ManuallyDrop::new(session);
            Ok(())
        }
        // The kernel ends the connection of some unmounts in this way.
        Ok(Err(error)) if error.raw_os_error() == Some(libc::ECONNABORTED) => {
            let _unmounted = ManuallyDrop::new(session);
            Ok(())
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Error::new(Kind::Internal, "the event loop panicked")),
    }
}

impl Mounted {
    /// Returns a handle that ends the service of the mount.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the mount is gone, however it was unmounted, and pending data are stored as far
    /// as possible; or until the service is stopped.
    pub fn wait(self) -> Result<()> {
        let ended = self.ended.recv();
        let _gone = self.wake.send(Wake::Stop);
        ended.unwrap_or_else(|_| Err(Error::new(Kind::Internal, "the event loop is gone")))
    }
}

fn not_mounted(error: &std::io::Error) -> Error {
    let why = match error.raw_os_error() {
        // The device is open, but not mounted.
        Some(libc::EPERM) => "nothing is mounted with this FUSE device".to_owned(),
        Some(libc::EINVAL) => "not a FUSE device".to_owned(),
        _ => format!("the mount cannot be served: {error}"),
    };
    Error::new(Kind::Os(error.raw_os_error().unwrap_or(libc::EIO)), why)
}

fn refused(error: &std::io::Error) -> Error {
    let detail = error.to_string();
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Error::new(
            Kind::Os(libc::EACCES),
            format!(
                "mounting is not permitted ({detail}): be root, or install fusermount3 (Debian: fuse3) and own the mountpoint"
            ),
        ),
        Some(libc::ENODEV | libc::ENOENT) => Error::new(
            Kind::Os(libc::ENODEV),
            format!(
                "FUSE is not available ({detail}): the kernel module fuse and /dev/fuse are needed"
            ),
        ),
        _ => Error::new(
            Kind::Os(error.raw_os_error().unwrap_or(libc::EIO)),
            format!("cannot be mounted: {detail}"),
        ),
    }
}
