//! Finds the process of a thread.

use std::fs;
use std::io::Read;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_a_process_belong_to_it() {
        let own = std::process::id();
        assert_eq!(process_of(own), Some(own));
        let in_thread = || {
            let link = fs::read_link("/proc/thread-self").expect("a link");
            let thread = link.file_name().and_then(|name| name.to_str()).expect("a number");
            thread.parse().expect("a number")
        };
        let other = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let thread = in_thread();
                (thread, process_of(thread))
            });
            other.join().expect("no panic")
        });
        assert_ne!(other.0, own);
        assert_eq!(other.1, Some(own));
        assert_eq!(process_of(u32::MAX), None);
    }
}
