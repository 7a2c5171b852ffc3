//! A mount: made, served by several event loops, told what to forget, ended.

use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, INodeNo, MountOption, Session, SessionACL};

use super::fs::Fs;
use super::terms::Owner;
use crate::error::{Error, Kind, Result};
use crate::pool::Pool;
use crate::vfs::Vfs;

/// How often scratch files are looked at that wait to be stored, and inodes that nobody claims.
const TICK: Duration = Duration::from_millis(500);

/// What the mount itself is to be like.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// What `mount` and `df` show as the source.
    pub source: String,
    /// Whether nothing may be changed.
    pub read_only: bool,
    /// Which users may access the mount besides the one who mounts it.
    pub others: Others,
    /// Whether reads and writes go past the kernel's pages, as large as programs make them.
    pub direct_io: bool,
    /// Threads that take requests.
    pub event_loops: usize,
    /// Threads that decode and store.
    pub workers: usize,
    /// How many of them may be busy with what nobody waits for.
    pub ahead: usize,
    /// The user and group that everything belongs to.
    pub owner: (u32, u32),
}

/// Which users may access a mount besides the one who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Nobody.
    Nobody,
    /// Root.
    Root,
    /// All users, within the mode bits.
    Everybody,
}

/// A mount that answers.
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
    let (uid, gid) = options.owner;
    let pool = Arc::new(Pool::new(options.workers, options.ahead)?);
    vfs.use_pool(Arc::clone(&pool));
    let owner = Owner { uid, gid, read_only: options.read_only };
    let fs = Fs::new(Arc::clone(vfs), pool, owner, options.direct_io);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        MountOption::Subtype("zarrfs".to_owned()),
        // The kernel checks the mode bits: nothing here need.
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
        // The mount has ended where nobody listens: there are no pages to drop.
        let _ended = wake.send(Wake::Invalidate(number));
    }));
    // Telling the kernel may wait for a request that it has sent us: never from a thread that
    // answers requests.
    std::thread::Builder::new().name("notifier".to_owned()).spawn(move || {
        while let Ok(Wake::Invalidate(number)) = wakes.recv() {
            if let Err(error) = notifier.inval_inode(INodeNo(number), 0, 0) {
                log::debug!("inode {number}: {error}"); // The kernel has forgotten it already.
            }
        }
    })?;
    // Nor does the kernel wait for what is stored now and then. The thread ends with the tree.
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
