//! Limits of this process: memory and open files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::width::ToU64;

/// Returns the memory limit of this process in bytes: that of the machine, or less if a control
/// group or a limit of address space says so.
pub fn memory_limit() -> u64 {
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let groups = control_group_files().into_iter().filter_map(|file| {
        fs::read_to_string(file).ok()?.trim().parse().ok() // `max` where there is none.
    });
    let address_space = getrlimit(Resource::As).current;
    total.into_iter().chain(groups).chain(address_space).min().unwrap_or(u64::MAX)
}

/// Returns the files with the memory limits of this process's control groups, of version 1 and 2.
fn control_group_files() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut files = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            all if all.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let above = Path::new(path).ancestors().filter_map(|path| path.strip_prefix("/").ok());
        files.extend(above.map(|path| Path::new(mount).join(path).join(name)));
    }
    files
}

/// Returns the most files that this process may have open.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit of open files as far as allowed, up to `most`. Returns the new and the old
/// limit.
pub fn raise_descriptor_limit(most: u64) -> io::Result<(u64, u64)> {
    let was = descriptor_limit();
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let wanted = allowed.min(most).max(was);
    set_descriptor_limit(wanted)?;
    Ok((wanted, was))
}

/// Sets the limit of open files.
pub fn set_descriptor_limit(wanted: u64) -> io::Result<()> {
    let limit = Rlimit { current: Some(wanted), ..getrlimit(Resource::Nofile) };
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Returns the number of open files and of threads, `None` if the system does not report them.
pub fn in_use() -> (Option<u64>, Option<u64>) {
    let count = |path| Some(fs::read_dir(path).ok()?.count().to_u64());
    // One of the open files is the directory being read.
    (count("/proc/self/fd").map(|open| open.saturating_sub(1)), count("/proc/self/task"))
}

/// Returns the most threads of this user, `None` if there is no limit.
pub fn thread_limit() -> Option<u64> {
    getrlimit(Resource::Nproc).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_known_and_can_be_raised() {
        assert!(memory_limit() > 16 << 20, "{}", memory_limit());
        let (now, was) = raise_descriptor_limit(1 << 16).expect("raised");
        assert!(now >= was && descriptor_limit() == now, "{now}, {was}");
        set_descriptor_limit(was).expect("as it was");
        assert_eq!(descriptor_limit(), was);
        let (open, threads) = in_use();
        assert!(open.is_some_and(|open| open > 2) && threads.is_some_and(|threads| threads > 0));
    }
}
