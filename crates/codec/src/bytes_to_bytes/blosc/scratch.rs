//! Scratch memory for blocks, cached in each thread: allocating it for each chunk takes longer than
//! decoding one.

use std::cell::Cell;

use super::super::stream::unset;
use zarrfs_base::error::Result;

/// The most bytes that a thread caches.
const MAX_KEPT_LEN: usize = 4 << 20;

std::thread_local! {
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes to write before they are read: they have arbitrary contents.
pub(super) struct Scratch(Vec<u8>);

impl Scratch {
    /// Allocates `len` bytes. An error if there is no memory.
    pub fn new(len: usize) -> Result<Self> {
        let mut bytes = KEPT.take();
        if bytes.capacity() < len {
            bytes = unset("blosc", len)?;
        }
        bytes.resize(len, 0);
        Ok(Self(bytes))
    }

    /// Returns the first `len` bytes, and the rest.
    pub fn split(&mut self, len: usize) -> (&mut [u8], &mut [u8]) {
        let len = len.min(self.0.len());
        self.0.split_at_mut(len)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.0.capacity() <= MAX_KEPT_LEN {
            KEPT.set(std::mem::take(&mut self.0));
        }
    }
}
