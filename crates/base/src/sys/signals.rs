//! Signals that a process waits for, instead of being interrupted by them.

use std::fmt;
use std::io;
use std::mem;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The signals for a daemon.
const OF_DAEMON: &[libc::c_int] =
    &[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// The signals for a process that waits for a child.
const OF_PARENT: &[libc::c_int] = &[
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
];

/// Blocks SIGINT, SIGTERM and SIGHUP in this thread and those that it starts, so that
/// [`wait_for_signal`] receives them. Must be called before any thread is started.
///
/// SIGXFSZ is blocked, too: writing past the limit of the length of files (`ulimit -f`) fails with
/// `EFBIG`, and does not end the process.
pub fn block_signals() -> io::Result<()> {
    block(OF_DAEMON)?;
    block(&[libc::SIGXFSZ])
}

/// A signal for the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT or SIGTERM.
    Stop,
    /// SIGHUP.
    HangUp,
    /// SIGUSR1.
    Report,
    /// SIGUSR2.
    GiveUp,
}

/// Waits for one of these signals, which must be blocked.
pub fn wait_for_signal() -> io::Result<Signal> {
    Ok(match wait(OF_DAEMON)?.number {
        libc::SIGHUP => Signal::HangUp,
        libc::SIGUSR1 => Signal::Report,
        libc::SIGUSR2 => Signal::GiveUp,
        _ => Signal::Stop,
    })
}

/// A signal to a process that waits for a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalToParent {
    /// The number of the signal.
    pub number: i32,
    /// Whether a process has sent it to this process. Otherwise the kernel has, which sends the
    /// signals of a terminal also to the child.
    pub is_from_process: bool,
}

/// The signals that a process does not receive.
#[derive(Clone, Copy)]
pub struct Blocked(libc::sigset_t);

impl fmt::Debug for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocked").finish_non_exhaustive()
    }
}

impl Blocked {
    /// Makes `command` start with these signals blocked, and no others.
    pub fn inherit(self, command: &mut Command) {
        let set = move || change(libc::SIG_SETMASK, &self.0).map(drop);
        // SAFETY: the call is async-signal-safe and allocates nothing.
        unsafe { command.pre_exec(set) };
    }
}

/// Blocks SIGCHLD and the signals that end a process, so that [`wait_as_parent`] receives them.
/// Returns the signals that were blocked before.
pub fn block_signals_as_parent() -> io::Result<Blocked> {
    change(libc::SIG_BLOCK, &set_of(OF_PARENT)).map(Blocked)
}

/// Waits for one of these signals, which must be blocked.
pub fn wait_as_parent() -> io::Result<SignalToParent> {
    wait(OF_PARENT)
}

fn block(numbers: &[libc::c_int]) -> io::Result<()> {
    change(libc::SIG_BLOCK, &set_of(numbers)).map(drop)
}

/// Changes which signals are blocked in this thread. Returns those that were before.
fn change(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = set_of(&[]);
    // SAFETY: both sets outlive the call.
    let code = unsafe { libc::pthread_sigmask(how, set, &raw mut before) };
    if code == 0 { Ok(before) } else { Err(io::Error::from_raw_os_error(code)) }
}

fn wait(numbers: &[libc::c_int]) -> io::Result<SignalToParent> {
    let set = set_of(numbers);
    loop {
        // SAFETY: a plain struct of integers, for which zero is valid.
        let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
        // SAFETY: set and info outlive the call.
        let number = unsafe { libc::sigwaitinfo(&raw const set, &raw mut info) };
        if number > 0 {
            let is_from_process = info.si_code <= 0;
            return Ok(SignalToParent { number, is_from_process });
        }
        // A stop and SIGCONT interrupt the call.
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn set_of(numbers: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: sigset_t is plain memory that sigemptyset sets up; the signal numbers are valid.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for number in numbers {
            libc::sigaddset(&raw mut set, *number);
        }
        set
    }
}
