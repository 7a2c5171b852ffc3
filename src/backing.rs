//! Files that the kernel reads by itself in the place of one of ours (FUSE passthrough), and the memory files among
//! them, which are used again and again.
//!
//! A program that has such a file open, or mapped, reads it without us, and may do so after the last `close` that we are
//! told of. So a memory file gets other bytes only when the kernel attests that nobody else has it: a write lease
//! (`fcntl(2)`) is granted for a file that no other open file description is of, and each mapping holds one.

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use crate::error::Result;
use crate::sys::{MemoryFile, MemoryFs};

/// Free files that are looked at before a new one is made.
const MOST_TRIED: usize = 16;

/// What a server of the kernel's protocol knows a file by.
pub type Registration = Arc<dyn Any + Send + Sync>;

/// A file that the kernel reads in the place of one of ours.
#[derive(Debug)]
pub struct Backing {
    /// Taken when it is dropped.
    file: Option<File>,
    /// Where it goes then.
    home: Weak<Home>,
}

struct File {
    kind: Kind,
    registration: Mutex<Option<Registration>>,
}

#[derive(Debug)]
enum Kind {
    /// One of the store's.
    Stored(OwnedFd),
    /// Decoded bytes, so many.
    Memory(MemoryFile, u64),
}

impl Backing {
    /// A file of the store, which has the bytes as they are.
    pub fn stored(file: OwnedFd) -> Self {
        Self { file: Some(File::new(Kind::Stored(file))), home: Weak::new() }
    }

    /// What it was registered as; made by `register` the first time.
    pub fn registered<E>(
        &self,
        register: impl FnOnce(BorrowedFd<'_>) -> Result<Registration, E>,
    ) -> Option<Result<Registration, E>> {
        let file = self.file.as_ref()?;
        let mut known = file.registration.lock();
        if let Some(registration) = &*known {
            return Some(Ok(Arc::clone(registration)));
        }
        let made = match &file.kind {
            Kind::Stored(file) => register(file.as_fd()),
            Kind::Memory(file, _) => register(file.as_fd()),
        };
        *known = made.as_ref().ok().map(Arc::clone);
        Some(made)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let (Some(file), Some(home)) = (self.file.take(), self.home.upgrade()) {
            home.0.lock().free.push(file);
        }
    }
}

impl File {
    fn new(kind: Kind) -> Self {
        Self { kind, registration: Mutex::new(None) }
    }

    fn len(&self) -> u64 {
        match self.kind {
            Kind::Stored(_) => 0,
            Kind::Memory(_, len) => len,
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

/// Memory files, so many and of so many bytes in all at most.
#[derive(Debug)]
pub struct MemoryFiles {
    limit: u64,
    most: usize,
    home: Arc<Home>,
    /// Where they lie; none where it may not be made.
    fs: OnceLock<Option<MemoryFs>>,
}

/// A leaf.
#[derive(Debug)]
struct Home(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Those that are not used here; a program may still have one mapped.
    free: Vec<File>,
    /// How many there are, and the bytes that they have, free ones too.
    count: usize,
    len: u64,
}

impl MemoryFiles {
    /// None yet; there may be `most` of them, with `limit` bytes.
    pub fn new(limit: u64, most: usize) -> Self {
        Self { limit, most, home: Arc::new(Home(Mutex::default())), fs: OnceLock::new() }
    }

    /// The bytes that all of them have.
    pub fn len(&self) -> u64 {
        self.home.0.lock().len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A memory file that has `bytes`; none while there is no room for it.
    pub fn with(&self, bytes: &[u8]) -> Result<Option<Backing>> {
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let Some(file) = self.take(len)? else { return Ok(None) };
        // Dropped here if it cannot be filled.
        let filled = match &file.kind {
            Kind::Memory(memory, _) => memory.fill(bytes),
            Kind::Stored(_) => Ok(()),
        };
        if let Err(error) = filled {
            self.home.0.lock().forget(&file);
            return Err(error.into());
        }
        Ok(Some(Backing { file: Some(file), home: Arc::downgrade(&self.home) }))
    }

    fn take(&self, len: u64) -> Result<Option<File>> {
        if let Some(file) = self.recycled(len) {
            return Ok(Some(file));
        }
        let mut state = self.home.0.lock();
        let mut gone = Vec::new();
        while !state.has_room(len, self) && !state.free.is_empty() {
            // The oldest one. Where somebody has it mapped it is his from now on.
            let file = state.free.remove(0);
            state.forget(&file);
            gone.push(file);
        }
        if !state.has_room(len, self) {
            return Ok(None);
        }
        state.len = state.len.saturating_add(len);
        state.count = state.count.saturating_add(1);
        drop(state);
        drop(gone); // Freeing memory takes time: not under the lock.
        match self.made() {
            Ok(file) => Ok(Some(File::new(Kind::Memory(file, len)))),
            Err(error) => {
                let mut state = self.home.0.lock();
                state.len = state.len.saturating_sub(len);
                state.count = state.count.saturating_sub(1);
                Err(error.into())
            }
        }
    }

    fn made(&self) -> io::Result<MemoryFile> {
        let fs = self.fs.get_or_init(|| {
            let made = MemoryFs::new();
            made.inspect_err(|error| log::debug!("no file system in memory: {error}")).ok()
        });
        fs.as_ref().map_or_else(MemoryFile::new, MemoryFs::file)
    }

    /// A free one that has `len` bytes, and that nobody else has: the one that was used last, whose memory is nearest.
    fn recycled(&self, len: u64) -> Option<File> {
        for back in 0..MOST_TRIED {
            let mut state = self.home.0.lock();
            let at = state.free.len().checked_sub(back.saturating_add(1))?;
            if state.free.get(at)?.len() != len {
                continue;
            }
            let file = state.free.remove(at);
            drop(state);
            match &file.kind {
                Kind::Memory(memory, _) if !memory.is_shared() => return Some(file),
                _ => {
                    let mut state = self.home.0.lock();
                    let at = at.min(state.free.len());
                    state.free.insert(at, file);
                }
            }
        }
        None
    }
}

impl State {
    fn has_room(&self, len: u64, of: &MemoryFiles) -> bool {
        self.count < of.most && self.len.saturating_add(len) <= of.limit
    }

    fn forget(&mut self, file: &File) {
        self.len = self.len.saturating_sub(file.len());
        self.count = self.count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(backing: &Backing) -> u64 {
        match &backing.file.as_ref().expect("a file").kind {
            Kind::Memory(file, _) => file.inode().expect("told"),
            Kind::Stored(_) => panic!("of the store"),
        }
    }

    fn mapped(backing: &Backing) -> crate::sys::tests::Mapped {
        match &backing.file.as_ref().expect("a file").kind {
            Kind::Memory(file, len) => crate::sys::tests::Mapped::new(file, *len),
            Kind::Stored(_) => panic!("of the store"),
        }
    }

    #[test]
    fn a_memory_file_is_used_again_but_never_while_somebody_has_it_mapped() {
        let files = MemoryFiles::new(1 << 20, 8);
        let first = files.with(b"first").expect("made").expect("room");
        let number = id(&first);
        let map = mapped(&first);
        drop(first);
        let second = files.with(b"other").expect("made").expect("room");
        assert_ne!(id(&second), number, "somebody reads it");
        assert_eq!(map.bytes(), b"first");
        drop(map);
        let third = files.with(b"third").expect("made").expect("room");
        assert_eq!(id(&third), number, "nobody has it any more");
        assert_eq!(mapped(&third).bytes(), b"third");
    }

    #[test]
    fn memory_files_stay_within_their_limits() {
        let files = MemoryFiles::new(10, 2);
        let four = files.with(b"four").expect("made").expect("room");
        let five = files.with(b"fives").expect("made").expect("room");
        assert!(files.with(b"").expect("asked").is_none(), "a third file");
        drop(five);
        assert!(files.with(b"sevenss").expect("asked").is_none(), "too many bytes");
        let six = files.with(b"sixsix").expect("made").expect("room");
        assert_eq!(files.len(), 10);
        drop((four, six));
        drop(files.with(b"0123456789").expect("made").expect("room of both"));
        assert_eq!(files.len(), 10);
    }
}
