//! The latest errors as text. Programs only see the errno.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::error::Error;

/// The most errors to keep.
const CAPACITY: usize = 256;

/// The latest errors, for `.zarrfs/errors`.
#[derive(Debug, Default)]
pub struct Journal {
    /// A leaf lock.
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    last: VecDeque<String>,
    count: u64,
}

impl Journal {
    /// Adds an `error` of `operation`.
    pub fn note(&self, operation: &str, error: &Error) {
        let time = timestamp(SystemTime::now());
        let name = errno_name(error.errno());
        let mut lines = self.lines.lock();
        lines.count += 1;
        if lines.last.len() == CAPACITY {
            lines.last.pop_front();
        }
        lines.last.push_back(format!("{time} {operation}: {name}: {error}\n"));
    }

    /// Returns the errors, the oldest first.
    pub fn text(&self) -> String {
        self.lines.lock().last.iter().map(String::as_str).collect()
    }

    /// Returns the number of errors so far.
    pub fn count(&self) -> u64 {
        self.lines.lock().count
    }
}

/// Returns the name of an errno that zarrfs uses, or its number.
fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::ENOENT => "ENOENT",
        libc::EINVAL => "EINVAL",
        libc::EIO => "EIO",
        libc::EFBIG => "EFBIG",
        libc::EPERM => "EPERM",
        libc::EACCES => "EACCES",
        libc::EROFS => "EROFS",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ENOSPC => "ENOSPC",
        libc::EDQUOT => "EDQUOT",
        libc::ENOMEM => "ENOMEM",
        libc::ESTALE => "ESTALE",
        libc::EBUSY => "EBUSY",
        libc::ENAMETOOLONG => "ENAMETOOLONG",
        libc::ELOOP => "ELOOP",
        libc::EMFILE => "EMFILE",
        libc::EXDEV => "EXDEV",
        libc::EEXIST => "EEXIST",
        libc::ENOTEMPTY => "ENOTEMPTY",
        libc::ENOTDIR => "ENOTDIR",
        libc::EISDIR => "EISDIR",
        libc::EILSEQ => "EILSEQ",
        libc::ERANGE => "ERANGE",
        libc::ENFILE => "ENFILE",
        libc::EAGAIN => "EAGAIN",
        other => return format!("errno {other}"),
    };
    name.to_owned()
}

/// Formats a time in UTC as in RFC 3339, to the second.
pub fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Converts days to a date in the proleptic Gregorian calendar, counted from 1 March of year 0.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        let at = |seconds| timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_795_219_199), "2026-11-20T23:59:59Z");
    }

    #[test]
    fn only_the_last_errors_are_kept_each_on_one_line() {
        let journal = Journal::default();
        for n in 0..300 {
            journal.note("read", &Error::corrupt(format!("number\n{n}")));
        }
        assert_eq!(journal.text().lines().count(), CAPACITY);
        assert!(journal.text().ends_with("read: EIO: number\\n299\n"), "{}", journal.text());
        assert_eq!(journal.count(), 300);
    }
}
