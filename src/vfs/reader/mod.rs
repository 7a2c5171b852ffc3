//! How a range of a view is read: from chunks that are in the cache, that others decode meanwhile, or of which a range
//! is enough.

mod ahead;
mod excerpts;
mod windows;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::array::{Array, Coords};
use crate::buffer::Buffer;
use crate::cache::Chunk;
use crate::error::{At, Error, Kind, Result};
use crate::vfs::Vfs;
use crate::vfs::view_pages::Seen;
use crate::vfs::view_writes::MOST_AT_HAND;
use crate::vfs::views::OpenView;
use crate::view::{Elements, GetChunk};
use ahead::Way;
pub(super) use ahead::{Followed, Sweep};
pub(super) use excerpts::Excerpts;
use excerpts::InPart;
pub(super) use windows::{Window, Windows};

impl Vfs {
    pub(in crate::vfs) fn view_chunk(
        &self,
        elements: &Elements,
        coords: &Coords,
        since: Option<Instant>,
        moves: u64,
    ) -> Result<Option<Chunk>> {
        let array = self.array_of(elements, moves)?;
        self.cache.get_fresh(&array, coords, since).at(&elements.path)
    }

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

    /// All bytes of a view, and in `seen` what they were made of; none where something of it cannot be read, or nodes are
    /// about to move.
    pub(in crate::vfs) fn whole_view(&self, open: &OpenView, seen: &Seen) -> Option<Buffer> {
        let _shared = self.tree_lock.try_read()?;
        let len = usize::try_from(open.view.len()).ok()?;
        self.view_bytes(open, seen, (0, len), &InPart::default()).ok().map(Buffer::from)
    }

    /// As [`Self::read_view`], where all chunks are at hand: nothing is read, decoded or waited for.
    pub(in crate::vfs) fn try_read_view(
        &self,
        open: &OpenView,
        offset: u64,
        len: usize,
    ) -> Option<Bytes> {
        let _shared = self.tree_lock.try_read()?;
        let since = self.fresh_since(Some(open.opened));
        let at_hand = |elements: &Elements, coords: &Coords| {
            let array = self.array_of(elements, open.moves)?;
            self.cache.peek_fresh(&array, coords, since).ok_or_else(Error::not_found)
        };
        let end = offset.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        let mut left = MOST_AT_HAND;
        open.view
            .for_each_chunk((offset, end), &mut |elements, coords, _| {
                left = left.checked_sub(1).ok_or_else(Error::not_found)?;
                at_hand(elements, coords).map(drop)
            })
            .ok()?;
        self.note_pages(open);
        self.before_view(open, offset, len);
        let get: &GetChunk<'_> = &|elements, coords, _| {
            let chunk = at_hand(elements, coords)?;
            open.seen.note(&elements.path, coords, Some(chunk.stat.version));
            Ok(Some(chunk.bytes.into()))
        };
        open.view.read(offset, len, get).map(|bytes| Buffer::from(bytes).into()).ok()
    }

    /// Up to `len` bytes from `offset` of a view.
    pub(in crate::vfs) fn read_view(
        &self,
        open: &OpenView,
        offset: u64,
        len: usize,
    ) -> Result<Bytes> {
        // While nothing moves: what is not there any more must not read as the fill value.
        let shared = self.tree_lock.read();
        self.note_pages(open);
        let (in_part, _shared) = match self.before_view(open, offset, len) {
            Way::Chunks(in_part) => (in_part, shared),
            Way::Window => {
                drop(shared); // That takes a while.
                if let Some(bytes) = self.read_window(open, offset, len) {
                    return Ok(bytes);
                }
                let shared = self.tree_lock.read();
                let end = offset.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
                let end = end.min(open.view.len());
                (self.before_chunks(open, (offset, end), true), shared)
            }
        };
        let bytes = self.view_bytes(open, &open.seen, (offset, len), &in_part);
        bytes.map(|bytes| Buffer::from(bytes).into())
    }

    fn view_bytes(
        &self,
        open: &OpenView,
        seen: &Seen,
        (offset, len): (u64, usize),
        in_part: &InPart,
    ) -> Result<Vec<u8>> {
        let since = self.fresh_since(Some(open.opened));
        let get: &GetChunk<'_> = &|elements, coords, range| {
            let array = self.array_of(elements, open.moves)?;
            if in_part.has(&array, coords)
                && let Some((excerpt, stat)) = self.excerpt(open, &array, coords, range)
            {
                seen.note(&elements.path, coords, Some(stat.version));
                return Ok(Some(excerpt));
            }
            let chunk = self.view_chunk(elements, coords, since, open.moves)?;
            seen.note(&elements.path, coords, chunk.as_ref().map(|chunk| chunk.stat.version));
            Ok(chunk.map(|chunk| chunk.bytes.into()))
        };
        open.view.read(offset, len, get)
    }
}
