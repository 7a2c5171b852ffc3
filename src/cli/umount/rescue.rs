//! Reports the changes that the store rejected at unmount, and can write them to another directory.

use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path};

use serde_json::Value;

use crate::sys::OwnDirectory;

/// The most names in a message.
const MAX_NAMED: usize = 10;

/// The modes of new files and directories, without the bits of the umask.
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;

/// The rescue of files that are not stored.
#[derive(Debug, Default)]
pub struct Rescue {
    written: Vec<String>,
    lost: Vec<String>,
    /// The chunks that were removed, but are still in the store.
    removed: Vec<String>,
}

/// A line of `.zarrfs/unstored`.
#[derive(Debug)]
pub struct UnstoredLine {
    /// The path in the mount.
    pub path: String,
    /// The kind of change.
    pub change: ChangeKind,
}

/// The kind of an unstored change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// A file was created or written.
    Written,
    /// A file was removed, but is still in the store.
    Removed,
    /// A directory was created.
    Directory,
}

impl UnstoredLine {
    /// Parses the lines of `.zarrfs/unstored`.
    pub fn parse(text: &str) -> io::Result<Vec<Self>> {
        text.lines().map(|line| Self::of_line(&serde_json::from_str(line)?)).collect()
    }

    /// Parses `.zarrfs/unstored-bytes`, which also has the bytes of each file.
    pub fn parse_with_bytes(mut all: &[u8]) -> io::Result<Vec<(Self, &[u8])>> {
        let cut = || io::Error::other("the list is truncated");
        let mut files = Vec::new();
        while !all.is_empty() {
            let end = all.iter().position(|byte| *byte == b'\n').ok_or_else(cut)?;
            let (line, rest) = all.split_at_checked(end.saturating_add(1)).ok_or_else(cut)?;
            let line: Value = serde_json::from_slice(line)?;
            let len = line.get("len").and_then(Value::as_u64);
            let len = len.and_then(|len| usize::try_from(len).ok()).ok_or_else(cut)?;
            let (bytes, rest) = rest.split_at_checked(len).ok_or_else(cut)?;
            files.push((Self::of_line(&line)?, bytes));
            all = rest;
        }
        Ok(files)
    }

    fn of_line(line: &Value) -> io::Result<Self> {
        let path = line.get("path").and_then(Value::as_str);
        let path = path.ok_or_else(|| io::Error::other("a line without a path"))?.to_owned();
        let states = |name: &str| line.get(name).and_then(Value::as_bool).unwrap_or_default();
        let change = match (states("removed"), states("directory")) {
            (true, _) => ChangeKind::Removed,
            (false, true) => ChangeKind::Directory,
            (false, false) => ChangeKind::Written,
        };
        Ok(Self { path, change })
    }
}

/// Whether a path stays below its start.
pub fn is_below(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Lists the first of `paths`, with the number of others.
pub fn named(paths: &[String]) -> String {
    let names: Vec<String> =
        paths.iter().take(MAX_NAMED).map(|path| path.escape_debug().to_string()).collect();
    match paths.len().saturating_sub(MAX_NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

impl Rescue {
    /// Records an unstored change, and makes it below `dir`: writes the `bytes` of a file, or
    /// creates a directory. A file that was removed has nothing to write.
    pub fn add(
        &mut self,
        dir: &Path,
        file: &UnstoredLine,
        bytes: impl FnOnce() -> io::Result<Vec<u8>>,
    ) {
        let saved = match file.change {
            ChangeKind::Removed => return self.removed.push(file.path.clone()),
            _ if !is_below(&file.path) => Err(io::Error::other("not a path below the mount")),
            ChangeKind::Written => bytes().and_then(|bytes| write(dir, &file.path, &bytes)),
            ChangeKind::Directory => create_directory(dir, &file.path).map(|()| 0),
        };
        match saved {
            Ok(number) => self.written.push(numbered(&file.path, number)),
            Err(error) => self.lost.push(format!("{} ({error})", file.path)),
        }
    }

    /// Whether all changes are rescued.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty()
    }

    /// Describes the changes saved in `dir`, the lost ones, and those that the store still has.
    pub fn summary(&self, dir: &Path) -> String {
        let mut summary = Vec::new();
        for (what, paths) in [
            (format!("saved in {}", dir.display()), &self.written),
            ("not saved".to_owned(), &self.lost),
            ("removed in the mount, but still in the store".to_owned(), &self.removed),
        ] {
            if !paths.is_empty() {
                summary.push(format!("{what}: {}", named(paths)));
            }
        }
        summary.join("; ")
    }
}

/// Returns a file name with a number, for a name that exists.
fn numbered(name: &str, number: u32) -> String {
    if number == 0 { name.to_owned() } else { format!("{name}.{number}") }
}

/// Writes the file `path` below `dir`, and returns when it would survive a power cut. If the name
/// exists, the new file gets a number, which is returned. If the file cannot be written completely,
/// it is removed. No link below `dir` is followed.
fn write(dir: &Path, path: &str, bytes: &[u8]) -> io::Result<u32> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let above = OwnDirectory::named(dir)?.make_directories(Path::new(above), DIRECTORY_MODE)?;
    let mut number = 0;
    let (mut file, target) = loop {
        let target = numbered(name, number);
        match above.create_with_mode(&target, FILE_MODE) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            made => break (made?, target),
        }
    };
    let whole = file.write_all(bytes).and_then(|()| file.sync_all());
    if whole.is_err() {
        above.remove_if(&target, &file).unwrap_or_else(|error| log::debug!("{error}"));
    }
    whole?;
    above.sync()?;
    Ok(number)
}

/// Creates a directory below `dir` unless it exists, and returns when it would survive a power cut.
fn create_directory(dir: &Path, path: &str) -> io::Result<()> {
    OwnDirectory::named(dir)?.make_directories(Path::new(path), DIRECTORY_MODE)?.sync()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_length_in_each_line_separates_bytes_from_lines() {
        let lines = [
            "{\"path\":\"a/c/0\",\"len\":3}\n",
            "\n{\n",
            "{\"path\":\"b\",\"removed\":true,\"len\":0}\n",
            "{\"directory\":true,\"path\":\"d\",\"len\":0}\n",
        ];
        let text = lines.concat();
        let found = UnstoredLine::parse_with_bytes(text.as_bytes()).expect("whole");
        let found: Vec<_> =
            found.iter().map(|(file, b)| (file.path.as_str(), file.change, *b)).collect();
        assert_eq!(
            found,
            [
                ("a/c/0", ChangeKind::Written, &b"\n{\n"[..]),
                ("b", ChangeKind::Removed, b""),
                ("d", ChangeKind::Directory, b""),
            ]
        );
        let second = lines[0].len() + 3;
        let whole = [second, second + lines[2].len()];
        for len in 1..text.len() {
            let cut = UnstoredLine::parse_with_bytes(&text.as_bytes()[..len]);
            assert!(cut.is_err() || whole.contains(&len), "{len} bytes of it are taken for all");
        }
    }

    fn unstored(path: &str) -> UnstoredLine {
        UnstoredLine { path: path.to_owned(), change: ChangeKind::Written }
    }

    #[test]
    fn each_unstored_file_is_listed_as_saved_lost_or_removed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut rescue = Rescue::default();
        rescue.add(dir.path(), &unstored("a/c/0"), || Ok(b"one".to_vec()));
        rescue.add(dir.path(), &unstored("a/c/0"), || Ok(b"two".to_vec()));
        rescue.add(dir.path(), &unstored("b\n../c"), || Ok(b"three".to_vec()));
        let gone = UnstoredLine { change: ChangeKind::Removed, ..unstored("a/c/1") };
        rescue.add(dir.path(), &gone, || panic!("it has no bytes"));
        assert!(rescue.is_whole());
        let read = |name: &str| fs::read(dir.path().join(name)).expect("there");
        assert_eq!((read("a/c/0"), read("a/c/0.1")), (b"one".to_vec(), b"two".to_vec()));
        assert_eq!(read("b\n../c"), b"three");
        rescue.add(dir.path(), &unstored("../d"), || Ok(b"four".to_vec()));
        rescue.add(dir.path(), &unstored("a/c/2"), || Err(io::Error::other("unmounted")));
        // Here `e` cannot be written, because `0` is a file.
        rescue.add(dir.path(), &unstored("a/c/0/e"), || Ok(b"five".to_vec()));
        assert!(!rescue.is_whole());
        let summary = rescue.summary(Path::new("/r"));
        let (there, lost) = summary.split_once("; not saved: ").expect("some are lost");
        assert_eq!(there, r"saved in /r: a/c/0, a/c/0.1, b\n../c");
        let (lost, removed) = lost.split_once("; ").expect("one was removed");
        assert!(
            lost.contains("../d (not a path") && lost.contains("a/c/2 (unmounted)"),
            "{summary}"
        );
        assert_eq!(removed, "removed in the mount, but still in the store: a/c/1");
    }

    #[test]
    fn a_directory_is_created_unless_it_exists() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut rescue = Rescue::default();
        let made = |path: &str| UnstoredLine { change: ChangeKind::Directory, ..unstored(path) };
        for path in ["d", "d/e/f", "d/e"] {
            rescue.add(dir.path(), &made(path), || panic!("it has no bytes"));
            assert!(dir.path().join(path).is_dir(), "{path}");
        }
        fs::write(dir.path().join("file"), "").expect("written");
        for path in ["../out", "file", "file/below"] {
            rescue.add(dir.path(), &made(path), || panic!("it has no bytes"));
        }
        let summary = rescue.summary(Path::new("/r"));
        let (there, lost) = summary.split_once("; not saved: ").expect("some are lost");
        assert_eq!(there, "saved in /r: d, d/e/f, d/e");
        let lost: Vec<_> = lost.split(", ").filter_map(|lost| lost.split(' ').next()).collect();
        assert_eq!(lost, ["../out", "file", "file/below"], "{summary}");
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = dir.path().join("linked");
        std::os::unix::fs::symlink("/dev/full", &at).expect("linked");
        assert_eq!(write(dir.path(), "linked", b"12345").expect("beside what is there"), 1);
        assert_eq!(fs::read(dir.path().join("linked.1")).expect("there"), b"12345");
        let elsewhere = tempfile::tempdir().expect("a temporary directory");
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("d")).expect("linked");
        write(dir.path(), "d/e/f", b"1").expect_err("a link on the way");
        create_directory(dir.path(), "d/e").expect_err("a link on the way");
        assert_eq!(fs::read_dir(elsewhere.path()).expect("there").count(), 0);
    }

    #[test]
    fn a_path_that_leads_out_is_not_rescued() {
        for path in ["/etc/passwd", "../a", "a/../../b", "", "a//../b"] {
            assert!(!is_below(path), "{path}");
        }
        assert!(is_below("a/c/0") && is_below("d\n/tmp/evil"));
    }
}
