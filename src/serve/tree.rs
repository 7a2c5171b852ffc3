//! Files and directories of the tree, by path. All calls may wait for the store.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Kind, Result, WithSubject};
use crate::vfs::{Access, Attr, FileVersion, ROOT, Vfs};
use crate::width::ToU64;

/// A file or directory that was found.
#[derive(Debug)]
pub struct TreeEntry {
    vfs: Arc<Vfs>,
    /// The inodes on the way, each with a reference.
    numbers: Vec<u64>,
    /// The attributes.
    pub attr: Attr,
}

impl TreeEntry {
    /// Finds the file with these names.
    pub fn new(vfs: &Arc<Vfs>, names: &[String]) -> Result<Self> {
        let attr = vfs.getattr(ROOT)?;
        let mut found = Self { vfs: Arc::clone(vfs), numbers: Vec::new(), attr };
        for name in names {
            if !found.attr.is_dir() {
                return Err(Error::new(Kind::NotDirectory, "not a directory"));
            }
            let above = found.attr.number;
            found.attr = vfs.lookup(above, name).at(name)?;
            found.numbers.push(found.attr.number);
        }
        Ok(found)
    }

    /// Returns the tree.
    pub fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }

    /// Opens the file.
    pub fn open(self) -> Result<Open> {
        let handle = self.vfs.open(self.attr.number, Access::Read)?.handle;
        let mut open = Open { found: self, handle };
        open.find_length()?;
        Ok(open)
    }
}

impl Drop for TreeEntry {
    fn drop(&mut self) {
        for number in &self.numbers {
            self.vfs.forget(*number, 1);
        }
    }
}

/// An open file.
#[derive(Debug)]
pub struct Open {
    found: TreeEntry,
    handle: u64,
}

impl Open {
    /// Returns the attributes.
    pub fn attr(&self) -> &Attr {
        &self.found.attr
    }

    /// Returns the version of the file.
    pub fn version(&self) -> Result<FileVersion> {
        let vfs = &self.found.vfs;
        vfs.versions().of(self.handle, |len| vfs.read(self.handle, 0, len))
    }

    /// Returns the version that a request read a short time ago, before this file was opened.
    pub fn last_version(&self) -> Option<FileVersion> {
        self.found.vfs.versions().last_of(self.handle)
    }

    /// Whether a part that was read from this file has a version.
    pub fn is_part_of(&self, version: &FileVersion, part: Range<u64>) -> Result<bool> {
        self.found.vfs.versions().is_part_of(self.handle, version, part)
    }

    /// Opens the file again, as it is now.
    pub fn again(&mut self) -> Result<()> {
        let number = self.found.attr.number;
        let handle = self.found.vfs.open(number, Access::Read)?.handle;
        self.found.vfs.release(mem::replace(&mut self.handle, handle));
        self.find_length()
    }

    /// Sets the attributes of the open file: opening a chunk may have decoded it, and thus found
    /// its length, and a file that is generated for each open has no length before.
    fn find_length(&mut self) -> Result<()> {
        let vfs = &self.found.vfs;
        self.found.attr = vfs.getattr(self.found.attr.number)?;
        if let Some(len) = vfs.generated_len(self.handle)? {
            self.found.attr.len = len;
        }
        Ok(())
    }

    /// Reads exactly `len` bytes.
    pub fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let mut bytes = self.found.vfs.read(self.handle, offset, len)?;
        if bytes.len() < len {
            // A read may end early where another part of a view begins.
            let mut all = Vec::with_capacity(len);
            while !bytes.is_empty() && all.len() < len {
                all.extend_from_slice(&bytes);
                let at = all.len().to_u64();
                let rest = len.saturating_sub(all.len());
                bytes = self.found.vfs.read(self.handle, offset.saturating_add(at), rest)?;
            }
            all.extend_from_slice(&bytes);
            bytes = all.into();
        }
        if bytes.len() == len {
            Ok(bytes)
        } else {
            Err(Error::new(Kind::Stale, "the file became shorter while it was read"))
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.found.vfs.release(self.handle);
    }
}
