//! How a range of a view is read: from chunks that are in the cache, that others decode meanwhile, or of which a range
//! is enough.

mod ahead;
mod excerpts;
mod request;
mod windows;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::array::{Array, ChunkLen};
use crate::buffer::Buffer;
use crate::cache::Residency;
use crate::error::{At, Error, Kind, Result};
use crate::vfs::Vfs;
use crate::vfs::view_pages::Seen;
use crate::vfs::view_writes::MOST_AT_HAND;
use crate::vfs::views::OpenView;
use crate::view::{Elements, GetChunk};
use ahead::Way;
pub(super) use ahead::{Followed, Sweep};
pub(super) use excerpts::Excerpts;
use request::{Request, Wanted};
pub(super) use windows::{Window, Windows};

/// Chunks of one request that are looked for in the cache together; the others are when they are copied.
const MOST_CHUNKS: usize = 1024;

/// Up to `1/SMALL_PART` of a chunk is a small part of it.
const SMALL_PART: u64 = 2;

impl Vfs {
    /// Since when a chunk must be known to be what is stored: since the file was opened, and not for longer than
    /// `--metadata-ttl`. None where nobody else changes anything.
    pub(in crate::vfs) fn fresh_since(&self, opened: Option<Instant>) -> Option<Instant> {
        let aged = Instant::now().checked_sub(self.hierarchy.options().metadata_ttl)?;
        Some(opened.map_or(aged, |opened| opened.max(aged)))
    }

    /// The array of a part of a view, as it is now: it must be the same one, with the same elements. One that has gone has no
    /// chunks here, and must not read as the fill value.
    pub(in crate::vfs) fn array_of(&self, elements: &Elements, moves: u64) -> Result<Arc<Array>> {
        if !self.hierarchy.has_moved_since(&elements.path, moves) {
            match self.array(&elements.path) {
                Ok(current) if current.has_elements_of(&elements.array) => return Ok(current),
                Err(error) if error.kind() != Kind::NotFound => return Err(error),
                _ => {}
            }
        }
        let detail = "the array has changed since the file was opened";
        Err(Error::new(Kind::Stale, detail).at(&elements.path))
    }

    /// Reads all bytes of a view, and notes in `seen` what they were made of. Returns `None` if something of it cannot
    /// be read, or nodes are about to move.
    pub(in crate::vfs) fn whole_view(&self, open: &OpenView, seen: &Seen) -> Option<Buffer> {
        let _shared = self.tree_lock.try_read()?;
        let len = usize::try_from(open.view.len()).ok()?;
        let request = self.request(open, (0, len), MOST_CHUNKS).ok()?;
        self.view_bytes(open, seen, &request).ok().map(Buffer::from)
    }

    /// Like [`Self::read_view`], if all chunks are in the cache: nothing is read, decoded or waited for.
    pub(in crate::vfs) fn try_read_view(
        &self,
        open: &OpenView,
        offset: u64,
        len: usize,
    ) -> Option<Bytes> {
        let _shared = self.tree_lock.try_read()?;
        let mut request = self.request(open, (offset, len), MOST_AT_HAND).ok()?;
        if !request.is_ready() {
            return None;
        }
        self.note_pages(open);
        let way = self.before_view(open, offset, request.end);
        if way != Way::Window {
            self.before_chunks(open, &mut request, way == Way::Sweep);
        }
        let bytes = self.view_bytes(open, &open.seen, &request).ok()?;
        Some(Buffer::from(bytes).into())
    }

    /// Reads up to `len` bytes from `offset` of a view.
    pub(in crate::vfs) fn read_view(
        &self,
        open: &OpenView,
        offset: u64,
        len: usize,
    ) -> Result<Bytes> {
        // While nothing moves: a chunk that is gone must not read as the fill value.
        let mut shared = self.tree_lock.read();
        self.note_pages(open);
        let end = offset.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        let way = self.before_view(open, offset, end.min(open.view.len()));
        if way == Way::Window {
            drop(shared); // This takes a while.
            if let Some(bytes) = self.read_window(open, offset, len) {
                return Ok(bytes);
            }
            shared = self.tree_lock.read();
        }
        let mut request = self.request(open, (offset, len), MOST_CHUNKS)?;
        self.before_chunks(open, &mut request, way != Way::Jump);
        let bytes = self.view_bytes(open, &open.seen, &request);
        drop(shared);
        if way == Way::Jump {
            self.note_jumps(&request);
        }
        bytes.map(|bytes| Buffer::from(bytes).into())
    }

    /// Notes of which chunks a small part was read, though all of each was decoded.
    fn note_jumps(&self, request: &Request) {
        for Wanted { array, coords, range, residency, .. } in &request.chunks {
            let len = array.chunk_len(coords).ok().and_then(ChunkLen::exactly).unwrap_or_default();
            let is_small =
                u64::try_from(range.len()).is_ok_and(|wanted| wanted <= len / SMALL_PART);
            if is_small && matches!(residency, Residency::Absent) {
                self.cache.note_jump(array, coords);
            }
        }
    }

    fn view_bytes(&self, open: &OpenView, seen: &Seen, request: &Request) -> Result<Vec<u8>> {
        let since = self.fresh_since(Some(open.opened));
        let (next, read) = (Cell::new(0_usize), RefCell::new(Vec::new()));
        let get: &GetChunk<'_> = &|elements, coords, range| {
            let wanted = request.chunks.get(next.replace(next.get().saturating_add(1)));
            debug_assert!(wanted.is_none_or(|wanted| wanted.coords == *coords));
            let note = |version| {
                read.borrow_mut().push((elements.path.clone(), coords.clone(), version));
            };
            let array = match wanted {
                Some(Wanted { residency: Residency::Ready(chunk), .. }) => {
                    note(Some(chunk.stat.version));
                    return Ok(Some(chunk.bytes.clone().into()));
                }
                Some(wanted) => Arc::clone(&wanted.array),
                None => self.array_of(elements, open.moves)?,
            };
            if wanted.is_some_and(|wanted| wanted.is_partial)
                && let Some((excerpt, stat)) = self.excerpt(open, &array, coords, range)
            {
                note(Some(stat.version));
                return Ok(Some(excerpt));
            }
            let chunk = self.cache.get_fresh(&array, coords, since).at(&elements.path)?;
            note(chunk.as_ref().map(|chunk| chunk.stat.version));
            Ok(chunk.map(|chunk| chunk.bytes.into()))
        };
        let bytes = open.view.read(request.offset, request.len(), get)?;
        seen.note_all(read.into_inner());
        Ok(bytes)
    }
}
