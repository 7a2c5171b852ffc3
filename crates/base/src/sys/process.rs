//! Finds the process of a thread, and whether it lives.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::iter;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};

/// The bit of SIGKILL in a set of signals.
const KILL: u64 = 1 << (libc::SIGKILL - 1);

/// The bit of SIGUSR2 in a set of signals.
const USR2: u64 = 1 << (libc::SIGUSR2 - 1);
/// How many ticks a second has in `/proc`, whatever the clock of the kernel is.
const TICKS: u64 = 100;

/// The life of a thread, as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It runs or waits.
    Alive,
    /// It was killed, and ends as soon as a system call returns.
    Killed,
    /// There is no such thread, or `/proc` does not show it.
    NotSeen,
}

/// Returns the process of the thread with this number; `None` if there is no such thread, or
/// `/proc` does not show it.
pub fn process_of(thread: u32) -> Option<u32> {
    // The line is among the first of many, so one read is enough.
    let mut status = [0; 1024];
    let read = fs::File::open(format!("/proc/{thread}/status")).ok()?.read(&mut status).ok()?;
    let status = String::from_utf8_lossy(status.get(..read)?);
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    process.trim().parse().ok()
}

/// Whether there is a thread with this number and it belongs to this process. Takes less time than
/// [`process_of`], and does not need `/proc`.
pub fn is_thread_of(process: u32, thread: u32) -> bool {
    let (Ok(process), Ok(thread)) = (libc::pid_t::try_from(process), libc::pid_t::try_from(thread))
    else {
        return false;
    };
    // SAFETY: signal 0 is never sent; the kernel only looks for the thread in the process.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    // A thread that may not be signalled was found.
    sent == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// The bit of a thread that ends, in the flags of `/proc`.
const EXITING: u64 = 0x4;

/// Whether a thread ends because its process was killed or exits with a failure: then the files
/// that it closes were not closed by the program. A user who may not trace the process sees no
/// failure.
pub fn ends_by_failure(thread: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{thread}/stat")).unwrap_or_default();
    ends_by_failure_in(&stat).unwrap_or_default()
}

/// Reads whether a thread ends by a failure from its line of `/proc`: the flags are its ninth
/// field, and the code with which it ends is the last one.
fn ends_by_failure_in(stat: &str) -> Option<bool> {
    // The name of the program, in brackets, may contain spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let flags: u64 = fields.by_ref().nth(6)?.parse().ok()?;
    let code: i64 = fields.last()?.parse().ok()?;
    Some(flags & EXITING != 0 && code != 0)
}

/// The most processes that [`may_have_open`] looks at.
const MOST_RELATIVES: usize = 64;

/// Whether one of these processes, or of those from which they descend or that descend from them,
/// has a file open for writing, as `/proc` shows it. The file has this inode number, and a name
/// that begins with `stem`. A kernel before 5.14 shows no inode numbers.
pub fn may_have_open(processes: &[u32], number: u64, stem: &str) -> bool {
    let mut all = processes.to_vec();
    let mut next = 0;
    while let Some(process) = all.get(next).copied() {
        next = next.saturating_add(1);
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        let children = children.unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            if all.len() < MOST_RELATIVES && !all.contains(&child) {
                all.push(child);
            }
        }
    }
    for process in processes {
        let above = iter::successors(parent_of(*process), |process| parent_of(*process));
        all.extend(above.take(MOST_RELATIVES));
    }
    all.iter().any(|process| has_open(*process, number, stem))
}

/// Returns the process that has begun a process.
fn parent_of(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok().filter(|parent| *parent > 1)
}

fn has_open(process: u32, number: u64, stem: &str) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{process}/fdinfo")) else { return false };
    let is_it = |said: &str| {
        let field = |name| said.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let is_number = field("ino:").is_some_and(|ino| ino.parse() == Ok(number));
        let flags = field("flags:").and_then(|flags| i32::from_str_radix(flags, 8).ok());
        is_number && flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
    };
    // Files of other file systems, and terminals, may have the same number.
    let has_name = |descriptor: &OsStr| {
        let link = Path::new("/proc").join(process.to_string()).join("fd").join(descriptor);
        let name = fs::read_link(link).ok();
        let name = name.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
        name.is_some_and(|name| name.starts_with(stem))
    };
    open.flatten().any(|entry| {
        fs::read_to_string(entry.path()).is_ok_and(|said| is_it(&said))
            && has_name(&entry.file_name())
    })
}

/// Whether a process was stopped by a signal or a debugger, as `/proc` shows it.
pub fn is_stopped(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).map(str::trim);
    state.is_some_and(|state| state.starts_with(['T', 't']))
}

/// Whether a process waits for the signal to give its store up ([`Signal::GiveUp`]), which ends
/// other processes.
///
/// [`Signal::GiveUp`]: super::Signal::GiveUp
pub fn waits_for_give_up(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).map(str::trim);
    blocked.and_then(|set| u64::from_str_radix(set, 16).ok()).is_some_and(|set| set & USR2 != 0)
}

/// Returns how long ago a process began; `None` if there is none, or `/proc` does not show it.
pub fn age_of(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in brackets, may contain spaces.
    let began: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let began = Duration::from_millis(began.saturating_mul(1000) / TICKS);
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime = uptime.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(uptime).ok()?.checked_sub(began)
}

/// Has the kernel kill this process when its parent ends, or not any more.
pub fn end_with_parent(does: bool) -> io::Result<()> {
    Ok(set_parent_process_death_signal(does.then_some(Signal::KILL))?)
}

/// Returns the life of the thread with this number.
pub fn life_of(thread: u32) -> Life {
    let Ok(status) = fs::read(format!("/proc/{thread}/status")) else { return Life::NotSeen };
    life_in(&String::from_utf8_lossy(&status))
}

/// Reads the life of a thread from its status. A signal that ends a process becomes a pending
/// SIGKILL of each of its threads, also if it was another one, such as that of Ctrl-C.
fn life_in(status: &str) -> Life {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_dead = field("State:").is_some_and(|state| state.starts_with(['Z', 'X']));
    let pending = field("SigPnd:").and_then(|set| u64::from_str_radix(set, 16).ok());
    if is_dead || pending.is_some_and(|set| set & KILL != 0) { Life::Killed } else { Life::Alive }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_a_process_belong_to_it() {
        let own = std::process::id();
        assert_eq!(process_of(own), Some(own));
        assert!(is_thread_of(own, own) && !is_thread_of(own, u32::MAX) && !is_thread_of(1, own));
        let in_thread = || {
            let link = fs::read_link("/proc/thread-self").expect("a link");
            let thread = link.file_name().and_then(|name| name.to_str()).expect("a number");
            thread.parse().expect("a number")
        };
        let other = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let thread = in_thread();
                assert!(is_thread_of(own, thread) && !is_thread_of(thread, thread));
                (thread, process_of(thread))
            });
            other.join().expect("no panic")
        });
        assert_ne!(other.0, own);
        assert_eq!(other.1, Some(own));
        assert_eq!(process_of(u32::MAX), None);
    }

    #[test]
    fn a_thread_lives_until_it_is_killed() {
        assert_eq!(life_of(std::process::id()), Life::Alive);
        assert_eq!(life_of(u32::MAX), Life::NotSeen);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        assert_eq!(life_of(child.id()), Life::Alive);
        child.kill().expect("killed");
        // In between, the signal is not pending any more.
        let status = format!("/proc/{}/status", child.id());
        while !fs::read_to_string(&status).is_ok_and(|text| text.contains("State:\tZ")) {
            std::thread::yield_now();
        }
        assert_eq!(life_of(child.id()), Life::Killed, "not waited for yet");
        child.wait().expect("ended");
        let waiting = "Name:\tcat\nState:\tD (disk sleep)\nSigPnd:\t0000000000000100\n";
        assert_eq!(life_in(waiting), Life::Killed);
        let stopped = "Name:\tcat\nState:\tT (stopped)\nSigPnd:\t0000000000040000\n";
        assert_eq!(life_in(stopped), Life::Alive);
    }
}
