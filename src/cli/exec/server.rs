//! The process that serves the mount of one or more tasks, and ends with the last of them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use super::join::JoinListener;
use super::messages::{self, END, FAILED, Message, READY, STORED};
use crate::cli::failure::Failure;
use crate::fuse::Stopper;
use crate::sys::Namespaces;
use crate::vfs::Vfs;

/// The process that serves the mount of one or more tasks.
#[derive(Debug)]
pub struct Server {
    mountpoint: PathBuf,
    tasks: Mutex<Tasks>,
    /// Where further tasks join, if they may.
    joining: Option<JoinListener>,
    namespaces: Option<Namespaces>,
}

#[derive(Debug, Default)]
struct Tasks {
    number: usize,
    /// The first task, until the mount answers.
    first: Option<UnixStream>,
    /// The last task, which waits for the end.
    last: Option<UnixStream>,
}

impl Server {
    /// Returns a server with its first task.
    pub fn new(
        first: UnixStream,
        mountpoint: PathBuf,
        joining: Option<JoinListener>,
        namespaces: Option<Namespaces>,
    ) -> Self {
        let tasks = Tasks { number: 1, first: Some(first), last: None };
        Self { mountpoint, tasks: Mutex::new(tasks), joining, namespaces }
    }

    /// Lets the tasks in: the mount answers.
    pub fn open(self: &Arc<Self>, vfs: &Arc<Vfs>, stopper: Stopper) -> io::Result<()> {
        let first = self.tasks.lock().first.take();
        if let Some(first) = first {
            messages::send(&first, READY, b"", &[])?;
            self.attend(first, vfs, stopper.clone())?;
        }
        let Some(joining) = &self.joining else { return Ok(()) };
        let listener = joining.socket()?;
        let (server, vfs) = (Arc::clone(self), Arc::clone(vfs));
        thread::Builder::new().name("joining".to_owned()).spawn(move || {
            for task in listener.incoming() {
                let admitted = task.and_then(|task| server.admit(task, &vfs, stopper.clone()));
                if let Err(error) = admitted {
                    log::warn!("a task could not join: {error}");
                }
            }
        })?;
        Ok(())
    }

    /// Lets another task in.
    fn admit(
        self: &Arc<Self>,
        task: UnixStream,
        vfs: &Arc<Vfs>,
        stopper: Stopper,
    ) -> io::Result<()> {
        let Some(Namespaces { user, mount }) = &self.namespaces else { return Ok(()) };
        self.tasks.lock().number += 1;
        // If it fails, the thread finds the socket closed.
        let path = self.mountpoint.as_os_str().as_bytes();
        let sent = messages::send(&task, READY, path, &[user.as_fd(), mount.as_fd()]);
        self.attend(task, vfs, stopper)?;
        sent
    }

    /// Waits in a new thread until a task ends.
    fn attend(
        self: &Arc<Self>,
        task: UnixStream,
        vfs: &Arc<Vfs>,
        stopper: Stopper,
    ) -> io::Result<()> {
        let (server, vfs) = (Arc::clone(self), Arc::clone(vfs));
        thread::Builder::new().name("task".to_owned()).spawn(move || {
            // Without the message the task was killed.
            let asks = matches!(messages::receive(&task), Ok(Some(Message { kind: END, .. })));
            let task = asks.then_some(task);
            if !server.leave() {
                let stored = vfs.sync();
                if let Some(task) = task {
                    let message = |error: crate::error::Error| {
                        format!("not everything is stored yet: {error}")
                    };
                    tell(&task, stored.map_err(message));
                }
                return;
            }
            server.tasks.lock().last = task;
            stopper.stop();
        })?;
        Ok(())
    }

    /// Counts a task that ends. Returns whether it was the last one.
    fn leave(&self) -> bool {
        let left = {
            let mut tasks = self.tasks.lock();
            tasks.number = tasks.number.saturating_sub(1);
            tasks.number
        };
        let closes =
            || self.joining.as_ref().is_none_or(|joining| joining.close(|| self.is_empty()));
        left == 0 && closes()
    }

    /// Whether all tasks have ended.
    pub fn is_empty(&self) -> bool {
        self.tasks.lock().number == 0
    }

    /// Tells the last task how the mount has ended. Returns false if nobody waits for that.
    pub fn finish(&self, ended: &Result<(), Failure>) -> bool {
        if let Some(joining) = &self.joining {
            joining.remove();
        }
        let Some(task) = self.tasks.lock().last.take() else { return false };
        tell(&task, ended.as_ref().copied().map_err(|failure| failure.message().to_owned()));
        // The end of this process closes it, and the task waits for that.
        std::mem::forget(OwnedFd::from(task));
        true
    }
}

fn tell(task: &UnixStream, stored: Result<(), String>) {
    let told = match stored {
        Ok(()) => messages::send(task, STORED, b"", &[]),
        Err(why) => messages::send(task, FAILED, why.as_bytes(), &[]),
    };
    if let Err(error) = told {
        log::warn!("a task was killed before it learned how the mount ended: {error}");
    }
}
