//! `zarrfs convert` to a zip archive: the hierarchy is made in a directory beside the archive, and
//! packed from there.
//!
//! Each value is removed from the directory when it is in the archive, so both together need little
//! more than the archive. The archive takes its name when it is complete and synced. All that is
//! left of an interrupted conversion is removed.
//!
//! The order of the entries, Zip64 and the comment are those that RFC-9 of OME recommends:
//! <https://ngff.openmicroscopy.org/rfc/9/index.html>

use std::cmp::Ordering;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufWriter, ErrorKind, IntoInnerError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libdeflater::Crc;
use serde_json::{Value, json};

use crate::cli::args::Convert;
use crate::cli::failure::{Failure, failed};
use crate::cli::open;
use crate::cli::open::archive;
use crate::cli::output::print;
use crate::cli::status::mounted;
use crate::error::{Error, Kind, WithSubject};
use crate::metadata::{DOCUMENT_NAMES, Dialect};
use crate::store::directory::{DirectoryStore, Durability};
use crate::store::zip::{ArchiveLimits, Zip64, ZipStore, ZipWriter};
use crate::store::{ByteRange, Key, PRIVATE, Prefix, Store, WritableStore as _};
use crate::sys::OwnDirectory;
use crate::width::{ToU64, ToUsize};

/// The most bytes of a value to hold in memory.
const PART_LEN: u64 = 8 << 20;

/// The most attempts to remove a directory to which threads write.
const MOST_REMOVALS: usize = 10;

/// The archive in the temporary directory, and the hierarchy that goes into it.
const ARCHIVE: &str = "archive";
const TREE: &str = "tree";

/// An archive that is being made.
#[derive(Debug)]
pub struct Packing {
    dest: PathBuf,
    /// The directory of the archive, and the name of a temporary directory in it.
    parent: PathBuf,
    name: String,
    /// The temporary directory, when it is made. It is removed with this value.
    temporary: Arc<OnceLock<Temporary>>,
    /// Whether it is for OME-Zarr, by its name.
    is_ozx: bool,
}

impl Drop for Packing {
    fn drop(&mut self) {
        remove(&self.temporary);
    }
}

/// A temporary directory that this process has made.
#[derive(Debug)]
pub struct Temporary {
    above: OwnDirectory,
    name: String,
    dir: OwnDirectory,
}

/// Removes the temporary directory, if it was made, even if threads still write to it.
pub fn remove(temporary: &OnceLock<Temporary>) {
    let Some(Temporary { above, name, dir }) = temporary.get() else { return };
    // By its descriptor: another one may have its path by now.
    let emptied = || -> Result<(), Error> {
        let store = DirectoryStore::open(&dir.path_of("."), Durability::Buffered)?;
        store.erase_prefix(&Prefix::root())?;
        Ok(above.remove_directory_if(name, dir)?)
    };
    let is_gone = || match emptied() {
        Ok(()) => true,
        Err(error) => error.kind() != Kind::NotEmpty,
    };
    let _kept = (0..MOST_REMOVALS).any(|_| is_gone());
}

impl Packing {
    /// Returns the archive at the end of a path or URL, if it names one. Nothing may be there yet.
    pub fn find(args: &Convert) -> Result<Option<Self>, Failure> {
        let shown = args.dest.display();
        if !archive::is_named(&args.dest) || args.dest.is_dir() {
            return Ok(None);
        }
        if open::remote::url(&args.dest).is_some() {
            return Err(failed(format!(
                "{shown}: zarrfs makes zip archives in local directories only: convert to one, and \
                 copy that"
            )));
        }
        if std::fs::symlink_metadata(&args.dest).is_ok() {
            return Err(exists(&args.dest));
        }
        let is_ozx = args.dest.extension().is_some_and(|it| it.eq_ignore_ascii_case("ozx"));
        if is_ozx && args.format != Dialect::V3 {
            return Err(Failure::Usage(format!(
                "{shown}: an .ozx archive holds Zarr 3: remove --format, or name the archive .zip"
            )));
        }
        let absolute = std::path::absolute(&args.dest)?;
        let Some((parent, name)) = absolute.parent().zip(absolute.file_name()) else {
            return Err(failed(format!("{shown}: not the name of a file")));
        };
        let parent = parent.canonicalize().map_err(|error| match error.kind() {
            ErrorKind::NotFound => failed(format!("{}: no such directory", parent.display())),
            _ => failed(format!("{}: {error}", parent.display())),
        })?;
        if let Some(mounted) = mounted::find(&parent)? {
            return Err(failed(format!(
                "{shown}: inside the mount {}: name an archive elsewhere, and copy it there",
                mounted.root.display()
            )));
        }
        let unique = RandomState::new().build_hasher().finish();
        let dest = parent.join(name);
        let name = format!(".{}.zarrfs-{unique:016x}", name.display());
        Ok(Some(Self { dest, parent, name, temporary: Arc::default(), is_ozx }))
    }

    /// Returns the path of the archive.
    pub fn dest(&self) -> &Path {
        &self.dest
    }

    /// Makes the temporary directory.
    pub fn make(&self) -> std::io::Result<()> {
        let above = OwnDirectory::named(&self.parent)?;
        let dir = above.create_directory(&self.name)?;
        drop(self.temporary.set(Temporary { above, name: self.name.clone(), dir }));
        Ok(())
    }

    /// Returns the temporary directory, for [`remove`].
    pub fn temporary(&self) -> Arc<OnceLock<Temporary>> {
        Arc::clone(&self.temporary)
    }

    /// Returns the path of the temporary directory.
    pub fn dir(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    /// Returns the directory for the hierarchy.
    pub fn tree(&self) -> PathBuf {
        self.dir().join(TREE)
    }

    /// Packs the hierarchy. `begin` gets the number of values, and `advance` is called after each.
    pub fn pack(
        &self,
        args: &Convert,
        is_stopped: &dyn Fn() -> bool,
        begin: &dyn Fn(u64),
        advance: &dyn Fn(),
    ) -> Result<(), Failure> {
        let store = open::store(&self.tree(), Durability::Buffered)?;
        let keys = keys(&store)?;
        begin(keys.len().to_u64());
        let comment = if self.is_ozx { comment(&args.dest, &store)? } else { Vec::new() };
        let path = self.dir().join(ARCHIVE);
        let file = File::create_new(&path)?;
        let zip64 = if self.is_ozx { Zip64::Always } else { Zip64::WhenNeeded };
        let mut writer = ZipWriter::new(BufWriter::with_capacity(1 << 20, file), zip64);
        for key in &keys {
            if is_stopped() {
                return Err(failed("interrupted; no archive was made"));
            }
            add(&mut writer, &store, key)?;
            store.write()?.erase_values(std::slice::from_ref(key))?;
            advance();
        }
        let file = writer.finish(&comment)?.into_inner().map_err(IntoInnerError::into_error)?;
        file.sync_all()?;
        if args.verify {
            self.verify(&keys, is_stopped)?;
        }
        self.take_name(&path)
    }

    /// Reads every entry of the archive, which checks its checksum.
    fn verify(&self, keys: &[Key], is_stopped: &dyn Fn() -> bool) -> Result<(), Failure> {
        let below = open::store(&self.dir(), Durability::Buffered)?.read_only();
        let archive = ZipStore::open(below, Key::parse(ARCHIVE)?, ArchiveLimits::DEFAULT)?;
        let store = Store::reading(Arc::new(archive));
        for key in keys {
            if is_stopped() {
                return Err(failed("interrupted; no archive was made"));
            }
            if store.get(key, u64::MAX)?.is_none() {
                return Err(failed(format!("{key}: not in the archive")));
            }
        }
        Ok(())
    }

    /// Gives the archive its name, unless another program has just taken that.
    fn take_name(&self, path: &Path) -> Result<(), Failure> {
        match std::fs::hard_link(path, &self.dest) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(exists(&self.dest));
            }
            // A file system without links.
            Err(_) => std::fs::rename(path, &self.dest)?,
        }
        if let Some(parent) = self.dest.parent() {
            File::open(parent)?.sync_all()?;
        }
        Ok(())
    }
}

/// Returns the comment that names the version of OME-Zarr, if the root is of OME-Zarr.
fn comment(dest: &Path, store: &Store) -> Result<Vec<u8>, Failure> {
    let document = store.get(&Key::parse("zarr.json")?, PART_LEN)?;
    let root: Option<Value> =
        document.and_then(|document| serde_json::from_slice(&document.bytes).ok());
    let version = root.as_ref().and_then(|root| root.pointer("/attributes/ome/version"));
    let Some(Value::String(version)) = version else {
        print::error(&format!(
            "zarrfs: {}: the root is no OME-Zarr 0.5 or later, so programs for OME-Zarr may \
             refuse the archive",
            dest.display()
        ));
        return Ok(Vec::new());
    };
    let directory = json!({ "centralDirectory": { "jsonFirst": true } });
    let comment = json!({ "ome": { "version": version, "zipFile": directory } });
    Ok(comment.to_string().into_bytes())
}

fn exists(dest: &Path) -> Failure {
    failed(format!(
        "{}: already exists; zarrfs does not change zip archives: name a new one",
        dest.display()
    ))
}

/// Returns all keys in the order of the archive: metadata files first, those of groups before those
/// of their members.
fn keys(store: &Store) -> Result<Vec<Key>, Error> {
    let list = store.list().ok_or_else(|| Error::unsupported("the store cannot list its keys"))?;
    let is_own = |key: &Key| key.as_str().split('/').next() == Some(PRIVATE);
    let all = list.list()?.filter(|key| !key.as_ref().is_ok_and(is_own));
    let mut keys: Vec<Key> = all.collect::<Result<_, _>>()?;
    keys.sort_unstable_by(in_archive);
    Ok(keys)
}

fn in_archive(one: &Key, other: &Key) -> Ordering {
    let rank = |key: &Key| DOCUMENT_NAMES.iter().position(|name| *name == key.name());
    let depth = |key: &Key| key.as_str().bytes().filter(|byte| *byte == b'/').count();
    match (rank(one), rank(other)) {
        (Some(first), Some(second)) => depth(one)
            .cmp(&depth(other))
            .then_with(|| by_numbers(one.parent().as_str(), other.parent().as_str()))
            .then(first.cmp(&second)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => by_numbers(one.as_str(), other.as_str()),
    }
}

/// Compares paths by their components, and numbers by what they are: chunks that are read one after
/// another lie one after another.
fn by_numbers(one: &str, other: &str) -> Ordering {
    let components = one.split(['/', '.']).zip(other.split(['/', '.']));
    let compare = |(one, other): (&str, &str)| match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(first), Ok(second)) => first.cmp(&second),
        _ => one.cmp(other),
    };
    components.map(compare).find(|order| order.is_ne()).unwrap_or_else(|| one.cmp(other))
}

/// Adds a value. A long one is read twice, because its checksum stands before it.
fn add<W: std::io::Write>(
    writer: &mut ZipWriter<W>,
    store: &Store,
    key: &Key,
) -> Result<(), Error> {
    let stat = store.stat(key)?.ok_or_else(|| Error::not_found().at(key))?;
    let starts = || (0..stat.len).step_by(PART_LEN.to_usize());
    let part = |offset| {
        let range = ByteRange::Span { offset, len: PART_LEN };
        let values = store.read().get_partial_values(&[(key.clone(), range)])?;
        let value = values.into_iter().next().flatten();
        let value = value.filter(|value| value.stat.version.is_same(stat.version));
        let changed = || Error::new(Kind::Stale, "another program changed it").at(key);
        value.map(|value| value.bytes).ok_or_else(changed)
    };
    let mut crc = Crc::new();
    let mut only = None;
    for start in starts() {
        let bytes = part(start)?;
        crc.update(&bytes);
        only = (stat.len <= PART_LEN).then_some(bytes);
    }
    writer.start(key.as_str(), stat.len, crc.sum())?;
    if let Some(bytes) = only {
        return writer.write(&bytes).at(key);
    }
    starts().try_for_each(|start| writer.write(&part(start)?)).at(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_files_come_first_and_numbers_are_sorted_as_numbers() {
        let wanted = [
            "zarr.json",
            "a/zarr.json",
            "b/zarr.json",
            "a/x/zarr.json",
            "a/x/c/0/2",
            "a/x/c/0/10",
            "a/x/c/1/0",
            "b/c/0",
        ];
        let mut keys: Vec<Key> =
            wanted.iter().rev().map(|text| Key::parse(text).expect("valid")).collect();
        keys.sort_unstable_by(in_archive);
        let found: Vec<&str> = keys.iter().map(Key::as_str).collect();
        assert_eq!(found, wanted);
        assert!(by_numbers("0.2", "0.10").is_lt());
    }
}
