//! `-o auto_unmount`: a second process that ends the mount of a killed daemon.
//!
//! It waits for the end of its standard input, a pipe whose other end only the daemon holds: the
//! kernel closes that end however the daemon dies. For root, the process needs no fusermount3, and
//! it works with or without `allow_other` and `allow_root`.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::setsid;

use super::dead;
use crate::cli::args::AutoUnmount;
use crate::cli::failure::Failure;
use crate::cli::umount;

/// How long to wait for the connection to the kernel to end after the daemon has ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts the process. It ends soon after the returned value is dropped.
pub fn start(mountpoint: &Path) -> Result<Child, Failure> {
    let guard = Command::new(std::env::current_exe()?)
        .arg("auto-unmount")
        .arg(mountpoint)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(guard)
}

/// Waits until the daemon ends, and removes its mount if no process serves it.
pub fn run(args: &AutoUnmount) -> Result<(), Failure> {
    // A signal from the terminal must end the daemon, not this process.
    setsid().map_err(io::Error::from)?;
    let mut nothing = Vec::new();
    io::stdin().lock().read_to_end(&mut nothing)?;
    let started = Instant::now();
    while started.elapsed() < PATIENCE && umount::is_mounted(&args.mountpoint)? {
        match dead::alive(&args.mountpoint) {
            Err(error) if dead::is_dead(&error) => {
                return umount::now(&args.mountpoint, umount::Busy::Detach);
            }
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
    Ok(())
}
