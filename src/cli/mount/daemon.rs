//! Mounting in the background: a child serves, and its parent returns when the mount answers.
//!
//! The child is a new process of this program, because a process with threads must not fork. If it
//! fails before it is ready, its output explains why.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cli::failure::{Failure, failed};
use crate::cli::umount;

const READY: &str = "ready";

/// Starts a child with the command line `typed`, and waits until its mount is ready.
pub fn start(typed: &[OsString], source: &str, mountpoint: &Path) -> Result<(), Failure> {
    let program = std::env::current_exe()?;
    // The word `mount` comes first; options are always valid after it.
    let mut typed = typed.iter().skip(1);
    let mut daemon = OsString::from("--daemon=");
    daemon.push(mountpoint);
    let mut child = Command::new(program)
        .args(typed.next())
        .arg(daemon)
        .args(typed)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (Some(out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(failed("the daemon could not be started"));
    };
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    if line.trim_end() == READY {
        let Err(error) = std::fs::metadata(mountpoint) else { return Ok(()) };
        let shown = mountpoint.display();
        // A command that fails leaves nothing mounted.
        let ended = umount::now(mountpoint, umount::Busy::Detach);
        let ended = ended.map_or_else(|_| "; run umount -l to remove it", |()| "");
        return Err(failed(format!("{shown}: the mount does not respond: {error}{ended}")));
    }
    let mut output = String::new();
    err.read_to_string(&mut output)?;
    child.wait()?;
    let output = output.trim();
    let output = output.strip_prefix("zarrfs: ").unwrap_or(output);
    Err(failed(if output.is_empty() {
        format!("{source}: the daemon exited before it mounted {}", mountpoint.display())
    } else {
        output.to_owned()
    }))
}

/// Reports from the child that the mount is ready. All paths are open by now, so the working
/// directory can change.
pub fn report_ready() -> Result<(), Failure> {
    // The working directory of the daemon must not keep a file system busy.
    std::env::set_current_dir("/")?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{READY}")?;
    out.flush()?;
    Ok(())
}
