//! Locks on open files and directories that end with the last process that has them open
//! (flock(2)).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How often to try to lock a file.
const PAUSE: Duration = Duration::from_millis(5);

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Several processes may hold it.
    Shared,
    /// One process may hold it.
    Exclusive,
}

/// Locks a file or directory. Fails if another process holds a lock that excludes this one.
pub fn lock_now(file: &File, lock: Lock) -> io::Result<()> {
    let operation = match lock {
        Lock::Shared => FlockOperation::NonBlockingLockShared,
        Lock::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    Ok(flock(file, operation)?)
}

/// Waits until no other process has locked a file, and locks it. Calls `is_late` once if that takes
/// longer than `patience`, with the process that has locked it, if `/proc` shows one.
pub fn wait_for_lock(
    file: &File,
    patience: Duration,
    is_late: impl FnOnce(Option<u32>),
) -> io::Result<()> {
    let (began, mut is_late) = (Instant::now(), Some(is_late));
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::INTR | Errno::WOULDBLOCK) => {}
            locked => return Ok(locked?),
        }
        if began.elapsed() > patience
            && let Some(is_late) = is_late.take()
        {
            is_late(holder_of(file));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the process that has locked a file.
fn holder_of(file: &File) -> Option<u32> {
    let inode = format!(":{}", file.metadata().ok()?.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1).skip_while(|field| *field == "->");
        let is_flock = fields.next()? == "FLOCK";
        let process = fields.nth(2)?.parse().ok()?;
        (is_flock && fields.next()?.ends_with(&inode)).then_some(process)
    })
}
