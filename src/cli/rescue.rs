//! What the store does not take at the end: named, and written somewhere else if that is wanted.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::{Failure, failed};

/// Names that are said one by one.
const SAID: usize = 10;

/// `paths` for people: the first of them, and how many more there are.
pub fn named(paths: &[String]) -> String {
    let said = paths.iter().take(SAID).map(String::as_str).collect::<Vec<_>>().join(", ");
    match paths.len().saturating_sub(SAID) {
        0 => said,
        more => format!("{said} and {more} more"),
    }
}

/// Writes `bytes` to `path` below `dir`, and returns when they survive a power cut. A file that is there already is
/// left alone: the new one gets a number.
pub fn write(dir: &Path, path: &str, bytes: &[u8]) -> Result<(), Failure> {
    let at = dir.join(path);
    try_write(&at, bytes).map_err(|error| failed(format!("{}: {error}", at.display())))
}

fn try_write(at: &Path, bytes: &[u8]) -> io::Result<()> {
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
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::File::open(above)?.sync_all()
}
