//! What the store does not take at the end: named, and written somewhere else if that is wanted.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

/// Names that are said one by one.
const SAID: usize = 10;

/// What became of files that are not stored.
#[derive(Debug, Default)]
pub struct Rescue {
    written: Vec<String>,
    lost: Vec<String>,
    /// Chunks that were removed, and are in the store still.
    removed: Vec<String>,
}

/// A line of `.zarrfs/unstored`.
#[derive(Debug)]
pub struct Unstored {
    /// Its path in the mount.
    pub path: String,
    /// Whether it was removed, and is in the store still.
    pub removed: bool,
}

impl Unstored {
    /// What the lines of `.zarrfs/unstored` say.
    pub fn parse(text: &str) -> io::Result<Vec<Self>> {
        let line = |line: &str| {
            let value: Value = serde_json::from_str(line)?;
            let path = value.get("path").and_then(Value::as_str);
            let path = path.ok_or_else(|| io::Error::other("a line without a path"))?.to_owned();
            let removed = value.get("removed").and_then(Value::as_bool).unwrap_or_default();
            Ok(Self { path, removed })
        };
        text.lines().map(line).collect()
    }
}

/// Whether a path leads nowhere but below where it begins.
pub fn is_below(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// `paths` for people: the first of them, and how many more there are.
pub fn named(paths: &[String]) -> String {
    let said: Vec<String> =
        paths.iter().take(SAID).map(|path| path.escape_debug().to_string()).collect();
    match paths.len().saturating_sub(SAID) {
        0 => said.join(", "),
        more => format!("{} and {more} more", said.join(", ")),
    }
}

impl Rescue {
    /// Notes what is not stored, and writes its `bytes` to `path` below `dir`.
    pub fn add(
        &mut self,
        dir: &Path,
        file: &Unstored,
        bytes: impl FnOnce() -> io::Result<Vec<u8>>,
    ) {
        if file.removed {
            return self.removed.push(file.path.clone());
        }
        let outside = || io::Error::other("not a path below the mount");
        let written = is_below(&file.path).then_some(()).ok_or_else(outside);
        match written.and_then(|()| bytes()).and_then(|bytes| write(&dir.join(&file.path), &bytes))
        {
            Ok(()) => self.written.push(file.path.clone()),
            Err(error) => self.lost.push(format!("{} ({error})", file.path)),
        }
    }

    /// Whether nothing is lost.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty()
    }

    /// In words: what is in `dir`, what is not, and what the store still has.
    pub fn told(&self, dir: &Path) -> String {
        let mut told = Vec::new();
        for (what, paths) in [
            (format!("in {} are", dir.display()), &self.written),
            ("not there either".to_owned(), &self.lost),
            ("still in the store, though removed".to_owned(), &self.removed),
        ] {
            if !paths.is_empty() {
                told.push(format!("{what}: {}", named(paths)));
            }
        }
        told.join("; ")
    }
}

/// Writes a file, and returns when it survives a power cut. One that is there already is left alone: the new one gets a
/// number. Where it cannot be written whole nothing is left of it.
fn write(at: &Path, bytes: &[u8]) -> io::Result<()> {
    let above = at.parent().unwrap_or(at);
    fs::create_dir_all(above)?;
    let mut number = 0_u32;
    let mut target = at.to_owned();
    let mut file = loop {
        match OpenOptions::new().write(true).create_new(true).open(&target) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                number += 1;
                let mut name = at.as_os_str().to_owned();
                name.push(format!(".{number}"));
                target = PathBuf::from(name);
            }
            made => break made?,
        }
    };
    let whole = file.write_all(bytes).and_then(|()| file.sync_all());
    if whole.is_err() {
        fs::remove_file(&target).unwrap_or_else(|error| log::debug!("{error}"));
    }
    whole?;
    fs::File::open(above)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_elsewhere_is_not_rescued() {
        for path in ["/etc/passwd", "../a", "a/../../b", "", "a//../b"] {
            assert!(!is_below(path), "{path}");
        }
        assert!(is_below("a/c/0") && is_below("d\n/tmp/evil"));
    }
}
