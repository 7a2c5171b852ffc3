//! The program that a thread works for, and whether it still waits.
//!
//! The kernel keeps a program that was killed until its request is answered. Some answers take
//! long: a view may have millions of chunks, and a server may never end its answer. Work that may
//! take long looks at the program now and then, and is given up when nobody waits for it any more.

use std::cell::Cell;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{Error, Kind, Result};
use crate::sys::{self, Life};

/// How often to look at the program, which takes some microseconds.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// A program that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The thread that has made the request.
    thread: u32,
    looked: Instant,
    was_seen: bool,
}

std::thread_local! {
    /// The program that this thread works for, if there is one.
    static PROGRAM: Cell<Option<Program>> = const { Cell::new(None) };
    /// The program for which this thread changes something. A change that has begun is finished,
    /// but one that waits for its turn need not begin.
    static CHANGING: Cell<Option<Program>> = const { Cell::new(None) };
}

/// This thread changes something for a program until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct ChangeScope(Option<Program>);

impl Drop for ChangeScope {
    fn drop(&mut self) {
        CHANGING.set(self.0);
    }
}

/// Lets this thread change something for a program.
pub fn change_for(program: Option<Program>) -> ChangeScope {
    ChangeScope(CHANGING.replace(program))
}

/// Like [`check`], before a change that waits for the writers of other processes.
pub fn check_before_change() -> Result<()> {
    check()?;
    let _work = work_for(CHANGING.get());
    let checked = check();
    CHANGING.set(PROGRAM.get());
    checked
}

/// This thread works for a program until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct WorkScope {
    /// The program that it has worked for before.
    before: Option<Program>,
}

impl Drop for WorkScope {
    fn drop(&mut self) {
        PROGRAM.set(self.before);
    }
}

impl Program {
    /// Returns the program of a thread. The number 0 is the kernel itself, or a thread that this
    /// process cannot see.
    pub fn of(thread: u32) -> Option<Self> {
        (thread != 0).then(|| Self { thread, looked: Instant::now(), was_seen: false })
    }

    /// Returns the thread that has made the request.
    pub fn thread(self) -> u32 {
        self.thread
    }
}

/// Lets this thread work for a program, or for none.
pub fn work_for(program: Option<Program>) -> WorkScope {
    WorkScope { before: PROGRAM.replace(program) }
}

/// Returns the program that this thread works for.
pub fn program() -> Option<Program> {
    PROGRAM.get()
}

/// Fails with `EINTR` if this thread works for a program that was killed. Looks at it every
/// [`INTERVAL`], and otherwise takes no time.
pub fn check() -> Result<()> {
    let Some(program) = PROGRAM.get() else { return Ok(()) };
    if program.looked.elapsed() < INTERVAL {
        return Ok(());
    }
    let has_gone = match sys::life_of(program.thread) {
        Life::Alive => false,
        Life::Killed => true,
        // The kernel may read in advance for a program that ends meanwhile. A thread that was never
        // seen may be hidden.
        Life::NotSeen if program.was_seen => true,
        Life::NotSeen => return Ok(()),
    };
    if has_gone {
        // Every further check fails.
        return Err(Error::new(Kind::Os(libc::EINTR), "the program that asked was killed"));
    }
    PROGRAM.set(Some(Program { looked: Instant::now(), was_seen: true, ..program }));
    Ok(())
}

/// Waits until `changed` is notified, for [`INTERVAL`] at most if this thread works for a program.
/// Fails if that was killed.
pub fn wait<T>(changed: &Condvar, guard: &mut MutexGuard<'_, T>) -> Result<()> {
    if PROGRAM.get().is_none() {
        changed.wait(guard);
        return Ok(());
    }
    // Whether it was notified or not, the caller looks again.
    let _timed_out = changed.wait_for(guard, INTERVAL);
    check()
}

/// Locks, and looks every [`INTERVAL`] at the program that this thread works for. Fails if that was
/// killed.
pub fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    if PROGRAM.get().is_none() {
        return Ok(mutex.lock());
    }
    loop {
        if let Some(locked) = mutex.try_lock_for(INTERVAL) {
            return Ok(locked);
        }
        check()?;
    }
}

/// Locks shared, for a read or a change. Fails with `EINTR` if the program was killed.
pub fn read<T>(lock: &RwLock<T>) -> Result<RwLockReadGuard<'_, T>> {
    loop {
        if let Some(locked) = lock.try_read_for(INTERVAL) {
            return Ok(locked);
        }
        check_before_change()?;
    }
}

/// Like [`read()`], exclusively.
pub fn write<T>(lock: &RwLock<T>) -> Result<RwLockWriteGuard<'_, T>> {
    loop {
        if let Some(locked) = lock.try_write_for(INTERVAL) {
            return Ok(locked);
        }
        check_before_change()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_given_up_only_if_its_program_was_seen_and_has_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        let work = work_for(Program::of(child.id()));
        std::thread::sleep(INTERVAL);
        let looked = Instant::now();
        check().expect("it lives");
        child.kill().expect("killed");
        child.wait().expect("ended");
        let seen = check();
        assert!(seen.is_ok() || looked.elapsed() >= INTERVAL, "it was looked at a moment ago");
        std::thread::sleep(INTERVAL);
        assert_eq!(check().expect_err("gone").errno(), libc::EINTR);
        for unknown in [None, Program::of(0), Program::of(u32::MAX)] {
            let _work = work_for(unknown);
            std::thread::sleep(INTERVAL);
            check().expect("nobody knows");
        }
        assert_eq!(check().expect_err("gone").errno(), libc::EINTR);
        let mutex = Mutex::new(());
        let locked = mutex.lock();
        assert_eq!(lock(&mutex).expect_err("gone").errno(), libc::EINTR);
        drop(locked);
        drop(lock(&mutex).expect("nobody has it"));
        let tree = RwLock::new(());
        let locked = tree.write();
        assert_eq!(read(&tree).expect_err("gone").errno(), libc::EINTR);
        assert_eq!(write(&tree).expect_err("gone").errno(), libc::EINTR);
        drop(locked);
        drop(read(&tree).expect("nobody has it"));
        drop(work);
        check().expect("this thread works for nobody");
    }
}
