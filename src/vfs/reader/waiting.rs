//! The program that waits for a read.
//!
//! The kernel keeps a program that was killed until its read is answered. A read of a view may take
//! long, if its chunks are many, so zarrfs gives up a read that nobody waits for any more.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::sys::{self, Life};
use crate::vfs::authors::Thread;

/// How often to look at the program, which takes some microseconds.
const INTERVAL: Duration = Duration::from_millis(100);

/// The program that waits for a read.
pub(super) struct Waiting {
    thread: Thread,
    looked: Cell<Instant>,
    was_seen: Cell<bool>,
}

impl Waiting {
    /// Returns the program of a thread; it always waits if the thread is unknown.
    pub fn of(thread: Thread) -> Self {
        Self { thread, looked: Cell::new(Instant::now()), was_seen: Cell::new(false) }
    }

    /// Fails with `EINTR` if the program was killed. Looks at it every [`INTERVAL`], and otherwise
    /// takes no time.
    pub fn check(&self) -> Result<()> {
        let Some(thread) = self.thread else { return Ok(()) };
        if self.looked.get().elapsed() < INTERVAL {
            return Ok(());
        }
        let has_gone = match sys::life_of(thread) {
            Life::Alive => {
                self.was_seen.set(true);
                false
            }
            Life::Killed => true,
            // The kernel may read in advance for a program that ends meanwhile. A thread that was
            // never seen may be hidden.
            Life::NotSeen => self.was_seen.get(),
        };
        if has_gone {
            // Every further check fails.
            return Err(Error::new(Kind::Os(libc::EINTR), "the program that reads was killed"));
        }
        self.looked.set(Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_given_up_only_if_its_program_was_seen_and_has_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        let waiting = Waiting::of(Some(child.id()));
        std::thread::sleep(INTERVAL);
        waiting.check().expect("it lives");
        child.kill().expect("killed");
        child.wait().expect("ended");
        waiting.check().expect("it was looked at a moment ago");
        std::thread::sleep(INTERVAL);
        assert_eq!(waiting.check().expect_err("gone").errno(), libc::EINTR);
        assert_eq!(waiting.check().expect_err("gone").errno(), libc::EINTR);
        for unknown in [None, Some(u32::MAX)] {
            let waiting = Waiting::of(unknown);
            std::thread::sleep(INTERVAL);
            waiting.check().expect("nobody knows");
        }
    }
}
