//! The command of `exec`: its words, and its end.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};

use crate::cli::failure::{Failure, failed};
use crate::sys;

/// The part of a word that stands for the mountpoint.
const MOUNTPOINT: &[u8] = b"{}";

/// The variable that holds the mountpoint.
const VARIABLE: &str = "ZARRFS";

/// The exit codes for a command that cannot be run or found, as shells have them.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs the command, and returns its exit code: 128 and the number of the signal if a signal ended
/// it.
pub fn run(words: &[OsString], mountpoint: &Path) -> Result<u8, Failure> {
    let mut words = words.iter().map(|word| with_mountpoint(word, mountpoint.as_os_str()));
    let program = words.next().ok_or_else(|| failed("no command"))?;
    // Before the child exists, so that no signal is missed.
    let blocked = sys::block_signals_as_parent()?;
    let mut command = Command::new(&program);
    blocked.inherit(command.args(words).env(VARIABLE, mountpoint));
    let mut child = command.spawn().map_err(|error| {
        let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
        Failure::Command(code, format!("{}: {error}", program.display()))
    })?;
    Ok(code_of(wait(&mut child)?))
}

/// Waits for the child, and forwards signals to it.
fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    loop {
        let signal = sys::wait_as_parent()?;
        match signal.number {
            libc::SIGCHLD => {
                if let Some(status) = child.try_wait()? {
                    return Ok(status);
                }
            }
            // The terminal has sent it to the child, too.
            libc::SIGINT | libc::SIGQUIT if !signal.is_from_process => {}
            number => forward(child, number),
        }
    }
}

fn forward(child: &Child, number: i32) {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some((process, signal)) = process.zip(Signal::from_named_raw(number))
        && let Err(error) = kill_process(process, signal)
    {
        log::debug!("signal {number}: {error}");
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| signal.saturating_add(128)));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Replaces each `{}` in a word.
fn with_mountpoint(word: &OsStr, mountpoint: &OsStr) -> OsString {
    let mut rest = word.as_bytes();
    let mut replaced = Vec::with_capacity(rest.len());
    while let Some(byte) = rest.first() {
        if let Some(after) = rest.strip_prefix(MOUNTPOINT) {
            replaced.extend_from_slice(mountpoint.as_bytes());
            rest = after;
        } else {
            replaced.push(*byte);
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    OsString::from_vec(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_braces_becomes_the_mountpoint() {
        let replaced = |word: &str| with_mountpoint(OsStr::new(word), OsStr::new("/tmp/m"));
        assert_eq!(replaced("{}/t2m.nc"), "/tmp/m/t2m.nc");
        assert_eq!(replaced("a={}:b={}"), "a=/tmp/m:b=/tmp/m");
        assert_eq!(replaced("${HOME} { } }{"), "${HOME} { } }{");
        assert_eq!(replaced("{{}}"), "{/tmp/m}");
        assert_eq!(replaced(""), "");
    }
}
