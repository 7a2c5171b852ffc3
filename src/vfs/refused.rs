//! Files that a program closed, that were refused, and that were not stored since. Some programs
//! (git, unzip) do not look at the error of `close`, so the user reads of it at the unmount.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::json;

use crate::error::Error;
use crate::printable::escaped_json;

/// The most files to remember.
const CAPACITY: usize = 256;

/// The bytes of these files were discarded, and their programs got an error at most.
#[derive(Debug, Default)]
pub struct RefusedFiles {
    /// The reasons by path. A leaf lock.
    files: Mutex<BTreeMap<String, String>>,
}

impl RefusedFiles {
    /// Notes that the bytes of a file were discarded because of `error`.
    pub fn note(&self, path: String, error: &Error) {
        let mut files = self.files.lock();
        if files.len() < CAPACITY || files.contains_key(&path) {
            files.insert(path, error.detail().to_owned());
        }
    }

    /// Forgets a file that was stored or removed, and all below it.
    pub fn forget(&self, path: impl FnOnce() -> String) {
        if self.files.lock().is_empty() {
            return;
        }
        let path = path();
        self.files.lock().retain(|file, _| {
            let rest = file.strip_prefix(&path);
            !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
    }

    /// Returns the text of `.zarrfs/refused`: a JSON object in a line for each file.
    pub fn text(&self) -> String {
        let line = |(path, reason): (&String, &String)| {
            format!("{}\n", escaped_json(&json!({"path": path, "reason": reason}).to_string()))
        };
        self.files.lock().iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_listed_until_it_or_its_directory_is_stored_or_removed() {
        let refused = RefusedFiles::default();
        for path in ["a/zarr.json", "a/c/0", "ab/c/0"] {
            refused.note(path.to_owned(), &Error::invalid("why"));
        }
        refused.forget(|| "a/c/0".to_owned());
        refused.forget(|| "a/zarr".to_owned());
        let lines = "{\"path\":\"a/zarr.json\",\"reason\":\"why\"}\n\
                     {\"path\":\"ab/c/0\",\"reason\":\"why\"}\n";
        assert_eq!(refused.text(), lines);
        refused.forget(|| "a".to_owned());
        assert_eq!(refused.text().lines().count(), 1);
        for number in 0..2 * CAPACITY {
            refused.note(number.to_string(), &Error::invalid("more"));
        }
        assert_eq!(refused.text().lines().count(), CAPACITY);
    }
}
