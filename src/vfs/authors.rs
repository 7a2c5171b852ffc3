//! The processes that a close of a file concerns.
//!
//! The kernel sends a flush for every descriptor that is closed, even if a child closes one that it
//! inherited: between `fork` and `exec`, a child has copies of all descriptors of its parent. A
//! close by a process that has neither opened a file for writing nor written to it changes nothing:
//! it stores nothing, so that the base of a later merge stays what the writer has read, and it
//! takes no error that is due to the writer. The bytes of a file concern only those that wrote
//! them.
//!
//! A process is known by its number, which is looked up while its thread waits for an answer.

use crate::sys;

/// The thread that the kernel names in a request; `None` if the kernel does not name one.
pub type Thread = Option<u32>;

/// If more processes than this use one file, they are not told apart.
const MAX_PROCESSES: usize = 64;

/// A handle and the thread that uses it.
#[derive(Debug, Clone, Copy)]
pub struct HandleUse {
    pub(super) handle: u64,
    pub(super) thread: Thread,
}

impl HandleUse {
    /// Names the user of a handle. The number 0 is the kernel itself, or a thread that this process
    /// cannot see.
    pub fn by(handle: u64, thread: u32) -> Self {
        Self { handle, thread: Some(thread).filter(|thread| *thread != 0) }
    }
}

impl From<u64> for HandleUse {
    fn from(handle: u64) -> Self {
        Self { handle, thread: None }
    }
}

/// Some of the processes that use a file.
#[derive(Debug, Default, Clone)]
pub struct Processes {
    numbers: Vec<u32>,
    /// Whether any process may be one of them.
    is_anybody: bool,
}

impl Processes {
    /// Returns the process of a thread, as [`Self::note`] does.
    pub fn of(thread: Thread) -> Self {
        let mut processes = Self::default();
        processes.note(thread);
        processes
    }

    /// Adds the process of a thread. The thread must wait for the answer, so that its process can
    /// be looked up. A mapping is written by the kernel, which names no thread.
    pub fn note(&mut self, thread: Thread) {
        if self.is_anybody || thread.is_some_and(|thread| self.includes(thread)) {
            return;
        }
        if self.numbers.len() >= MAX_PROCESSES {
            self.numbers.retain(|process| sys::is_thread_of(*process, *process));
        }
        let process = thread
            .filter(|_| self.numbers.len() < MAX_PROCESSES)
            // Most programs use a file in their first thread, which has the number of the process.
            .and_then(|thread| {
                let is_first = sys::is_thread_of(thread, thread);
                if is_first { Some(thread) } else { sys::process_of(thread) }
            });
        match process {
            Some(process) => self.numbers.push(process),
            None => self.is_anybody = true,
        }
    }

    fn includes(&self, thread: u32) -> bool {
        self.numbers.iter().any(|process| sys::is_thread_of(*process, thread))
    }

    /// Returns the processes; `None` if they are not known.
    pub fn known(&self) -> Option<&[u32]> {
        (!self.is_anybody && !self.numbers.is_empty()).then_some(&*self.numbers)
    }

    /// Whether the process of a thread is one of them, or may be. If none is known, any may be.
    pub fn may_include(&self, thread: Thread) -> bool {
        let Some(thread) = thread.filter(|_| !self.is_anybody && !self.numbers.is_empty()) else {
            return true;
        };
        self.includes(thread)
    }

    /// Whether one of them lives, or may. If none is known, one may.
    pub fn may_live(&self) -> bool {
        self.is_anybody
            || self.numbers.is_empty()
            || self.numbers.iter().any(|process| sys::is_thread_of(*process, *process))
    }

    /// Whether the process of a thread is certainly none of them, and one of them lives, whose
    /// close is still to come.
    pub fn knows_as_stranger(&self, thread: Thread) -> bool {
        !self.may_include(thread)
            && self.numbers.iter().any(|process| sys::is_thread_of(*process, *process))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn start() -> Child {
        Command::new("sleep").arg("60").spawn().expect("started")
    }

    fn end(mut child: Child) {
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    #[test]
    fn a_child_is_a_stranger_until_it_writes_or_all_writers_are_gone() {
        let (parent, child) = (start(), start());
        let (of_parent, of_child) = (Some(parent.id()), Some(child.id()));
        let mut users = Processes::default();
        assert!(users.may_include(of_child), "nobody is known");
        users.note(of_parent);
        assert!(users.may_include(of_parent) && !users.knows_as_stranger(of_parent));
        assert!(users.knows_as_stranger(of_child));
        assert!(!users.knows_as_stranger(None), "the kernel may not name the thread");
        assert!(users.may_live() && Processes::default().may_live());
        end(parent);
        assert!(!users.may_live());
        assert!(!users.knows_as_stranger(of_child), "the child is the last that can be told");
        users.note(of_child);
        assert!(users.may_include(of_child));
        end(child);
    }

    #[test]
    fn a_thread_belongs_to_its_process_and_a_mapping_to_anybody() {
        let own = Some(std::process::id());
        let link = || std::fs::read_link("/proc/thread-self").expect("a link");
        let mut users = Processes::default();
        std::thread::scope(|scope| {
            let thread = || {
                let name = link().file_name().and_then(|name| name.to_str()?.parse().ok());
                users.note(name);
            };
            scope.spawn(thread).join().expect("no panic");
        });
        let other = start();
        assert!(users.may_include(own), "the thread that was noted has ended");
        assert!(users.knows_as_stranger(Some(other.id())));
        users.note(None);
        assert!(users.may_include(Some(other.id())));
        end(other);
    }

    #[test]
    fn many_processes_that_ended_do_not_make_the_others_unknown() {
        let ended: Vec<u32> = (0..3 * MAX_PROCESSES)
            .map(|_| {
                let mut child = Command::new("true").spawn().expect("started");
                child.wait().expect("ended");
                child.id()
            })
            .collect();
        let mut users = Processes { numbers: ended, is_anybody: false };
        users.note(Some(std::process::id()));
        assert_eq!(users.numbers, [std::process::id()]);
    }
}
