//! Versions, which identify one state of a file among all others ([`Version`]).
//!
//! A program may replace a file and give the new one the times of the old one (`tar x`, `cp -p`, a
//! restore), and ext4 and XFS reuse a freed inode number at once. A version therefore holds two
//! things that no program can set: the inode's generation, which is part of its file handle, and
//! its change time.
//!
//! The kernel takes the change time from a clock that ticks every 1 to 10 ms. A file that changes
//! again within the tick in which it was read keeps its change time. Linux 6.13 and later avoid
//! this on ext4, XFS, btrfs and tmpfs: a change that follows a `stat` always gets a new time. On
//! other systems a version is unsettled as long as its file may change unnoticed, and bytes that
//! were read under an unsettled version are not trusted ([`Version::holds`]).

use std::collections::VecDeque;
use std::ffi::CStr;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::fstatfs;

use crate::{Stat, Version, WasRead};
use zarrfs_base::sys;

const SECOND: i128 = 1_000_000_000;

/// Longer than a tick of the kernel's clock (10 ms at most).
const TICK: Duration = Duration::from_millis(20);

/// For change times in whole seconds (FAT: two), or from another machine's clock.
const COARSE: Duration = Duration::from_secs(2);

/// The file systems with a new change time after every change that follows a `stat`, since Linux
/// 6.13: ext4, XFS, btrfs, tmpfs (`FS_MGTIME`).
const MULTIGRAIN: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];
const MULTIGRAIN_SINCE: (u32, u32) = (6, 13);

/// Other file systems that take the time from this machine's clock: overlayfs, ZFS, F2FS, bcachefs,
/// FUSE.
const LOCAL: [u64; 5] = [0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010, 0xca45_1a4e, 0x6573_5546];

/// The most values of this process to remember. Older ones are settled, or are checked again.
const MAX_OWN: usize = 4096;

/// How reliable the change times of a file system are.
#[derive(Debug)]
pub(super) struct Clock {
    /// The file system.
    device: u64,
    /// How long after its change time a file may change again and keep it; 0 if that never happens.
    window: Duration,
    /// The versions that this process stored within the window, with their change times. Their
    /// modification times are unique, so they are settled. A leaf lock.
    own: Mutex<VecDeque<[u64; 4]>>,
}

/// The fields of `stat` that make up a version; times in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
struct Fields {
    device: u64,
    inode: u64,
    changed: i128,
    modified: i128,
    len: u64,
}

impl Clock {
    /// Detects how reliable the change times of the file system of `root` are.
    pub(super) fn of(root: &OwnedFd) -> io::Result<Self> {
        let device = File::from(root.try_clone()?).metadata()?.dev();
        let kind = u64::try_from(fstatfs(root)?.f_type).map_err(io::Error::other)?;
        let has_generations = sys::file_handle(root, c"").is_ok();
        let is_multigrain = MULTIGRAIN.contains(&kind) && sys::kernel_release() >= MULTIGRAIN_SINCE;
        let window = match kind {
            _ if is_multigrain && has_generations => Duration::ZERO,
            kind if MULTIGRAIN.contains(&kind) || LOCAL.contains(&kind) => TICK,
            _ => COARSE,
        };
        Ok(Self::with_window(device, window))
    }

    #[cfg(test)]
    pub(super) fn device(&self) -> u64 {
        self.device
    }

    pub(super) fn with_window(device: u64, window: Duration) -> Self {
        Self { device, window, own: Mutex::default() }
    }

    /// Returns the stat of an open file.
    pub(super) fn stat(&self, file: impl AsFd, metadata: &Metadata) -> Stat {
        let fields = Fields {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            len: metadata.len(),
        };
        self.stat_of(fields, generation(file, c""))
    }

    /// Returns the stat of `name` in a directory, which `found` says is a regular file.
    pub(super) fn stat_at(&self, dir: impl AsFd, name: &CStr, found: &rustix::fs::Stat) -> Stat {
        let fields = Fields {
            device: found.st_dev,
            inode: found.st_ino,
            changed: nanoseconds(found.st_ctime, found.st_ctime_nsec),
            modified: nanoseconds(found.st_mtime, found.st_mtime_nsec),
            len: found.st_size.cast_unsigned(),
        };
        // If the name changes in between, this version matches no file.
        self.stat_of(fields, generation(dir, name))
    }

    fn stat_of(&self, fields: Fields, generation: u64) -> Stat {
        let mut hasher = DefaultHasher::new();
        (fields.device, fields.inode, generation).hash(&mut hasher);
        let state = [hasher.finish(), folded(fields.changed), folded(fields.modified), fields.len];
        let is_settled = self.is_settled(&fields) || self.own.lock().contains(&state);
        let modified = time(fields.modified);
        let version = Version { state, is_settled, read: WasRead::Nothing };
        Stat { len: fields.len, modified, version }
    }

    /// Whether every later change of the file has another version.
    fn is_settled(&self, fields: &Fields) -> bool {
        let has_whole_seconds = fields.changed % SECOND == 0;
        let window = match self.window {
            _ if has_whole_seconds || fields.device != self.device => COARSE,
            window => window,
        };
        match SystemTime::now().duration_since(time(fields.changed)) {
            Ok(age) => age >= window,
            // The clock was set back, so later changes get an earlier time.
            Err(ahead) => window.is_zero() || ahead.duration() > COARSE,
        }
    }

    /// Records a value that this process has just stored with the unique modification time
    /// `modified`. Returns its stat, with a settled version if the file system keeps such times.
    pub(super) fn note_own(&self, stat: Stat, modified: SystemTime) -> Stat {
        let mut version = stat.version;
        if version.is_settled || stat.modified != modified {
            return stat;
        }
        version.is_settled = true;
        let mut own = self.own.lock();
        own.push_back(version.state);
        if own.len() > MAX_OWN {
            own.pop_front();
        }
        Stat { version, ..stat }
    }

    /// Waits until versions that were read just now are settled.
    pub(super) fn wait(&self) {
        std::thread::sleep(self.window.max(TICK));
    }
}

/// Returns a number that differs when an inode number is reused; 0 if the file system has none.
fn generation(dir: impl AsFd, name: &CStr) -> u64 {
    let Ok(handle) = sys::file_handle(dir, name) else { return 0 };
    let mut hasher = DefaultHasher::new();
    handle.bytes().hash(&mut hasher);
    hasher.finish()
}

fn nanoseconds(seconds: i64, part: impl Into<i128>) -> i128 {
    i128::from(seconds) * SECOND + part.into()
}

/// Returns the low 64 bits, which repeat after 584 years.
fn folded(nanoseconds: i128) -> u64 {
    u64::try_from(nanoseconds.rem_euclid(1 << 64)).unwrap_or_default()
}

fn time(nanoseconds: i128) -> SystemTime {
    let seconds = u64::try_from(nanoseconds.div_euclid(SECOND).unsigned_abs()).unwrap_or(u64::MAX);
    let part = u64::try_from(nanoseconds.rem_euclid(SECOND)).unwrap_or_default();
    let (seconds, part) = (Duration::from_secs(seconds), Duration::from_nanos(part));
    let epoch = SystemTime::UNIX_EPOCH;
    let whole =
        if nanoseconds < 0 { epoch.checked_sub(seconds) } else { epoch.checked_add(seconds) };
    whole.and_then(|whole| whole.checked_add(part)).unwrap_or(epoch)
}
