//! A mount: creates it, serves it with several event loops, sends notifications to the kernel, and
//! ends it.

use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, INodeNo, MountOption, Session, SessionACL};

use super::fs::Fs;
use super::read_log::ReadLog;
use super::terms::Owner;
use crate::error::{Error, Kind, Result};
use crate::pool::Pool;
use crate::vfs::Vfs;

/// The interval of storing pending scratch files and dropping unused inodes.
const TICK: Duration = Duration::from_millis(500);

/// The options of the mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The source in `mount` and `df`.
    pub source: String,
    /// The type of the mount, after `fuse.`.
    pub subtype: String,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Users who may access the mount besides the one who mounts it.
    pub others: Others,
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
pub enum Others {
    /// No other user.
    Nobody,
    /// Root.
    Root,
    /// All users, within the mode bits.
    Everybody,
}

/// A running mount.
#[derive(Debug)]
pub struct Mounted {
    session: BackgroundSession,
    stop: mpsc::Sender<Wake>,
}

enum Wake {
    Invalidate(u64),
    Stop,
}

/// Mounts `vfs` at `mountpoint`.
pub fn mount(vfs: &Arc<Vfs>, mountpoint: &Path, options: &MountOptions) -> Result<Mounted> {
    let pool = Arc::new(Pool::new(options.workers, options.ahead)?);
    vfs.use_pool(Arc::clone(&pool));
    let fs =
        Fs::new(Arc::clone(vfs), pool, options.owner, options.direct_io, options.read_log.clone());
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        // fuser gives the kernel no subtype, only fusermount3. Both take it in this form.
        MountOption::CUSTOM(format!("subtype={}", options.subtype)),
        // The kernel checks the mode bits.
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    config.acl = match options.others {
        Others::Nobody => SessionACL::Owner,
        Others::Root => SessionACL::RootAndOwner,
        Others::Everybody => SessionACL::All,
    };
    config.n_threads = Some(options.event_loops.max(1));
    config.clone_fd = true;
    let session = Session::new(fs, mountpoint, &config).map_err(|error| refused(&error))?;
    let notifier = session.notifier();
    let session = session.spawn()?;
    let (stop, wakes) = mpsc::channel();
    let wake = stop.clone();
    vfs.on_invalidate(Box::new(move |number| {
        // If the receiver is gone, the mount has ended and there are no pages to drop.
        let _ended = wake.send(Wake::Invalidate(number));
    }));
    // A notification may wait for a request that the kernel has sent to zarrfs, so threads that
    // answer requests must not send it.
    std::thread::Builder::new().name("notifier".to_owned()).spawn(move || {
        while let Ok(Wake::Invalidate(number)) = wakes.recv() {
            if let Err(error) = notifier.inval_inode(INodeNo(number), 0, 0) {
                log::debug!("inode {number}: {error}"); // The kernel has forgotten it already.
            }
        }
    })?;
    // Storing pending files does not block requests either. The thread ends with the tree.
    let ticking = Arc::downgrade(vfs);
    std::thread::Builder::new().name("ticker".to_owned()).spawn(move || {
        loop {
            std::thread::sleep(TICK);
            let Some(vfs) = ticking.upgrade() else { return };
            vfs.tick();
        }
    })?;
    Ok(Mounted { session, stop })
}

impl Mounted {
    /// Waits until the mount is gone, however it was unmounted, and pending data are stored as far
    /// as possible.
    pub fn wait(mut self) -> Result<()> {
        let nothing = std::thread::Builder::new().spawn(|| Ok(()))?;
        let ended = std::mem::replace(&mut self.session.guard, nothing).join();
        let _gone = self.stop.send(Wake::Stop);
        match ended {
            Ok(Ok(())) => {
                // fuser 0.18 would unmount the path again, where another file system may be mounted
                // by now.
                let _unmounted = ManuallyDrop::new(self.session);
                Ok(())
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Error::new(Kind::Internal, "the event loop panicked")),
        }
    }
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
