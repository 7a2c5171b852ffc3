//! Locks on open files and directories that end with the last process that has them open
//! (flock(2)).

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};

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

/// Waits until no other process has locked a file, and locks it.
pub fn wait_for_lock(file: &File) -> io::Result<()> {
    loop {
        match flock(file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            locked => return Ok(locked?),
        }
    }
}
