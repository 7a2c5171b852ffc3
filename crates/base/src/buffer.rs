//! The bytes of a chunk: shared, copied only if one of several owners changes them, and in reused
//! memory.
//!
//! Memory that is new to the process costs as much as decoding into it, because the kernel clears
//! it page by page (0.5 s per GB). So large buffers are cached for reuse when they are dropped.
//!
//! blosc decodes faster than the kernel clears memory. Buffers of chunks, answers and encoded
//! chunks are kept for requests of the same size, up to a quarter of the cache and within what the
//! users of its limit leave, and given back when none was requested between two ticks. A full cache
//! leaves a sixteenth of its limit to them.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::{Error, Kind, Result};

/// The least size to cache. The allocator is as fast for smaller ones.
const LEAST: usize = 64 << 10;

/// The most bytes to cache before [`set_limit`] sets another limit.
const MOST: usize = 64 << 20;

/// A leaf lock.
static FREE: Mutex<FreeBuffers> = Mutex::new(FreeBuffers::new(MOST));

/// Cached memory.
struct FreeBuffers {
    /// Buffers by capacity, which is one of [`room_for`].
    by_room: BTreeMap<usize, Shelf>,
    len: usize,
    /// The most bytes to keep in any case.
    most: usize,
    /// The bytes that the caches leave to unused memory.
    left: usize,
}

#[derive(Default)]
struct Shelf {
    vectors: Vec<Vec<u8>>,
    /// Whether a buffer was requested since the last call of [`release_idle`].
    is_used: bool,
}

/// Bytes of a chunk, decoded or to be encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer(Arc<Pooled>);

/// A vector whose memory is cached when it is dropped.
#[derive(Debug, PartialEq, Eq)]
struct Pooled(Vec<u8>);

impl Buffer {
    /// Returns `len` zero bytes.
    pub fn zeroed(len: usize) -> Result<Self> {
        let mut bytes = reserve(len)?;
        bytes.resize(len, 0);
        Ok(bytes.into())
    }

    /// Returns the bytes to change: in place if there is no other owner, else a copy.
    pub fn to_mut(&mut self) -> &mut Vec<u8> {
        &mut Arc::make_mut(&mut self.0).0
    }

    /// Whether other owners share the bytes, so that changing them copies all of them.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether two owners share the same bytes.
    pub fn shares_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns a copy without other owners.
    pub fn copied(&self) -> Result<Self> {
        let mut bytes = reserve(self.len())?;
        bytes.extend_from_slice(self);
        Ok(bytes.into())
    }

    /// Returns the bytes, copied only if other owners share them.
    pub fn into_vec(self) -> Vec<u8> {
        mem::take(&mut Arc::unwrap_or_clone(self.0).0)
    }
}

impl Clone for Pooled {
    fn clone(&self) -> Self {
        let mut bytes = reserve(self.0.len()).unwrap_or_default();
        bytes.extend_from_slice(&self.0);
        Self(bytes)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        keep(mem::take(&mut self.0));
    }
}

/// Returns an empty vector with capacity for `len` bytes and hardly more. An error if there is no
/// memory.
pub fn reserve(len: usize) -> Result<Vec<u8>> {
    let mut bytes = used(len)?;
    bytes.clear();
    Ok(bytes)
}

/// Returns `len` bytes for a caller that writes all of them. They may hold the contents of reused
/// memory, because clearing memory takes a twentieth of the time of a fast decoder.
pub fn unset(len: usize) -> Result<Vec<u8>> {
    let mut bytes = used(len)?;
    bytes.resize(len, 0);
    if cfg!(debug_assertions) {
        bytes.fill(0xA5); // What is not written shows.
    }
    Ok(bytes)
}

/// Returns a cached vector with capacity for `len` bytes and its old contents.
fn used(len: usize) -> Result<Vec<u8>> {
    let is_much = len >= LEAST;
    let room = if is_much { room_for(len) } else { len };
    if let Some(bytes) = is_much.then(|| FREE.lock().take(room)).flatten() {
        return Ok(bytes);
    }
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(room)
        .map_err(|_| Error::new(Kind::NoMemory, format!("cannot allocate {len} bytes")))?;
    Ok(bytes)
}

/// Returns the bytes without much spare capacity, for callers that allocated an upper limit.
pub fn fitted(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.capacity() < LEAST {
        bytes.shrink_to_fit();
        return bytes;
    }
    if bytes.capacity() / 4 * 3 <= bytes.len() {
        return bytes;
    }
    match reserve(bytes.len()) {
        Ok(mut exact) => {
            exact.extend_from_slice(&bytes);
            keep(bytes);
            exact
        }
        Err(_) => bytes,
    }
}

/// Caches the memory of bytes without other owners.
pub fn recycle(bytes: Bytes) {
    if bytes.len() >= LEAST && bytes.is_unique() {
        keep(bytes.into());
    }
}

/// Caches the memory of a vector.
pub fn keep(bytes: Vec<u8>) {
    let Some(room) = room_in(bytes.capacity()) else { return };
    let gone = FREE.lock().put(room, bytes);
    drop(gone); // Freeing memory takes time: not under the lock.
}

/// Returns the number of cached bytes.
pub fn cached_len() -> usize {
    FREE.lock().len
}

/// Sets the most bytes to cache.
pub fn set_limit(most: usize) {
    let mut cache = FREE.lock();
    cache.most = most;
    let gone = cache.shrink_to(most);
    drop(cache);
    drop(gone);
}

/// Sets how many bytes the caches leave to unused memory. Takes out what exceeds them, for the
/// caller to drop.
pub fn leave(len: usize) -> Vec<Vec<u8>> {
    let mut free = FREE.lock();
    free.left = len;
    free.shrink_to(len)
}

/// Frees memory that was not reused since the last call. To be called from time to time.
pub fn release_idle() {
    let mut cache = FREE.lock();
    let gone = cache.unused();
    cache.by_room.retain(|_, shelf| mem::take(&mut shelf.is_used));
    drop(cache);
    drop(gone);
}

/// Returns the capacity to allocate for `len` bytes: at most an eighth more, so that there are few
/// different ones.
fn room_for(len: usize) -> usize {
    let step = len.checked_next_power_of_two().unwrap_or(len) / 16;
    len.checked_next_multiple_of(step.max(1)).unwrap_or(len)
}

/// Returns the largest such size within `capacity`, `None` if it is too small to cache.
fn room_in(capacity: usize) -> Option<usize> {
    let power = capacity.checked_ilog2().filter(|_| capacity >= LEAST)?;
    let step = (1_usize << power) / 8;
    Some(capacity / step.max(1) * step)
}

impl FreeBuffers {
    const fn new(most: usize) -> Self {
        Self { by_room: BTreeMap::new(), len: 0, most, left: usize::MAX }
    }

    fn take(&mut self, room: usize) -> Option<Vec<u8>> {
        let shelf = self.by_room.entry(room).or_default();
        shelf.is_used = true; // Even if the shelf is empty.
        let bytes = shelf.vectors.pop()?;
        self.len = self.len.saturating_sub(room);
        Some(bytes)
    }

    /// Caches a vector. Returns what no longer fits: unrequested vectors, or this one.
    fn put(&mut self, room: usize, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let mut gone = Vec::new();
        let most = self.most.min(self.left);
        if self.len.saturating_add(room) > most {
            gone = self.unused();
        }
        let len = self.len.saturating_add(room);
        if len > most {
            gone.push(bytes);
            return gone;
        }
        self.len = len;
        self.by_room.entry(room).or_default().vectors.push(bytes);
        gone
    }

    /// Takes vectors that were not requested since the last call of [`release_idle`].
    fn unused(&mut self) -> Vec<Vec<u8>> {
        let mut gone = Vec::new();
        for (room, shelf) in self.by_room.iter_mut().filter(|(_, shelf)| !shelf.is_used) {
            let len = room.saturating_mul(shelf.vectors.len());
            self.len = self.len.saturating_sub(len);
            gone.append(&mut shelf.vectors);
        }
        gone
    }

    fn shrink_to(&mut self, len: usize) -> Vec<Vec<u8>> {
        let mut gone = if self.len > len { self.unused() } else { Vec::new() };
        while self.len > len
            && let Some(mut largest) = self.by_room.last_entry()
        {
            if let Some(bytes) = largest.get_mut().vectors.pop() {
                self.len = self.len.saturating_sub(*largest.key());
                gone.push(bytes);
            } else {
                largest.remove();
            }
        }
        gone
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.0
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Pooled(bytes)))
    }
}

impl From<Bytes> for Buffer {
    fn from(bytes: Bytes) -> Self {
        match bytes.try_into_mut() {
            Ok(alone) => Vec::from(alone).into(),
            Err(shared) => {
                let mut bytes = reserve(shared.len()).unwrap_or_default();
                bytes.extend_from_slice(&shared);
                bytes.into()
            }
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn freed_memory_is_reused_for_requests_of_the_same_size() {
        let mut cache = FreeBuffers::new(10 << 20);
        let vector = || Vec::with_capacity(2 << 20);
        assert!((0..5).all(|_| cache.put(2 << 20, vector()).is_empty()));
        assert_eq!(
            cache.put(1 << 20, Vec::with_capacity(1 << 20)).len(),
            5,
            "nobody has wanted those"
        );
        assert!(cache.take(2 << 20).is_none() && cache.take(4 << 20).is_none());
        assert!((0..4).all(|_| cache.put(2 << 20, vector()).is_empty()));
        assert_eq!(cache.put(2 << 20, vector()).len(), 1, "what nobody has wanted");
        assert_eq!(cache.put(2 << 20, vector()).len(), 1, "more than it may keep");
        assert_eq!(cache.take(2 << 20).map(|bytes| bytes.capacity()), Some(2 << 20));
        assert_eq!((cache.len, cache.shrink_to(3 << 20).len(), cache.len), (8 << 20, 3, 2 << 20));
    }

    proptest! {
        #[test]
        fn capacity_exceeds_the_request_by_at_most_an_eighth(len in LEAST..1 << 40) {
            let room = room_for(len);
            prop_assert!(room >= len && room - len <= len / 8, "{room}");
            prop_assert_eq!(room_in(room), Some(room));
            let within = room_in(len).expect("worth keeping");
            prop_assert!(within <= len && room_for(within) == within, "{within}");
        }
    }

    #[test]
    fn bytes_are_copied_only_if_they_have_other_owners() {
        let mut one = Buffer::zeroed(100_000).expect("memory");
        let (address, other) = (one.as_ptr(), one.clone());
        one.to_mut()[0] = 1;
        assert!(one[0] == 1 && other[0] == 0 && other.as_ptr() == address);
        let bytes = Bytes::from(other);
        assert_eq!(bytes.as_ptr(), address);
        assert_eq!(Buffer::from(bytes), Buffer::zeroed(100_000).expect("memory"));
    }
}
