//! Writes to views. They change the chunks behind the view, which become pending and are stored
//! when the file is closed.
//!
//! A chunk counts the bytes that are still missing. When none are missing in it and in its shard,
//! `ChunkWriter` has the pool store it. So `cp` onto a view stores each chunk and shard once, while
//! the copy continues, and reads no chunk for it: `view::elements` says which range of a chunk a
//! request fills. A writer that did not truncate the view may stop anywhere, so its chunks are read
//! at once, and `write` reports a damaged chunk, not `close`.
//!
//! A view that was truncated to nothing and written only in part is `EINVAL` at `close`: truncating
//! changes nothing, and a copy that stopped early would otherwise look whole. Ranges that the
//! writer skips become zero, since `cp` does not write the holes of a sparse file. If a file is
//! renamed onto a view, its contents are stored in the arrays; the file does not become the view.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::chunks::ChunkWriter;
use super::files::Files;
use crate::array::Coords;
use crate::array::region::Cover;
use crate::cache::Due;
use crate::error::{Error, Result, WithSubject};
use crate::metadata::NodePath;
use crate::vfs::authors::{Processes, Thread};
use crate::vfs::core::Core;
use crate::vfs::inodes::file::Write;
use crate::vfs::names::Names;
use crate::vfs::names::views::as_gone;
use crate::vfs::reader::open_view::{MOST_AT_HAND, OpenView};
use crate::view::{ChangeChunk, ElementRange, Excerpt, Format, View};
use crate::width::ToUsize;

/// How many zero bytes to write at once.
const ZEROS: usize = 1 << 20;

/// Writes to views.
pub(in crate::vfs) struct ViewWriter {
    pub core: Arc<Core>,
    pub names: Arc<Names>,
    pub files: Arc<Files>,
    pub chunks: Arc<ChunkWriter>,
    /// Held while a new file replaces a view, so that two of them do so one after the other.
    pub replacing: Mutex<()>,
}

impl ViewWriter {
    /// Like [`Self::write_view`], but only if all of its chunks are pending already, so that
    /// nothing must be waited for. `false` if they are not.
    pub fn try_write_view(&self, open: &OpenView, write: Write<'_>, by: Thread) -> Result<bool> {
        if self.core.cache.pending_len() > self.core.options.dirty_limit / 2 {
            return Ok(false);
        }
        if open.view.is_derived(write.offset, write.data.len()) {
            return Ok(false);
        }
        let get = self.get_chunk(open.moves);
        open.view.check_write(write.offset, write.data, &get)?;
        let (offset, end) = (write.offset, write.end());
        if !open.writing.as_ref().is_none_or(|writing| writing.try_begin(offset, end, open.is_cut))
        {
            return Ok(false);
        }
        let Some(shared) = self.core.tree_lock.try_read() else { return Ok(false) };
        let mut left = MOST_AT_HAND;
        let looked = open.view.for_each_chunk((offset, end), &mut |elements, coords, _| {
            let array = self.core.array_of(elements, open.moves)?;
            if left == 0 || !self.core.cache.has_pending_bytes(&array, coords)? {
                return Ok(ControlFlow::Break(()));
            }
            left -= 1;
            Ok(ControlFlow::Continue(()))
        });
        // An error is reported by the write that may wait.
        if !matches!(looked, Ok(ControlFlow::Continue(()))) {
            return Ok(false);
        }
        let mut all_wait = true;
        // If a chunk is stored at this moment, it is no longer pending, and the caller repeats the
        // write.
        open.view.write(offset, write.data, &get, &mut |elements, coords, cover, change| {
            let array = self.core.array_of(elements, open.moves)?;
            all_wait &= self.core.cache.try_change(&array, coords, &cover, change)?;
            Ok(())
        })?;
        drop(shared);
        open.note_author(by);
        if all_wait {
            self.chunks.store_full_soon();
        }
        Ok(all_wait)
    }

    /// Writes `data` at `offset` of a view, which makes its chunks pending. Returns whether it also
    /// zeroed skipped bytes.
    pub fn write_view(&self, open: &OpenView, write: Write<'_>, by: Thread) -> Result<bool> {
        let get = self.get_chunk(open.moves);
        open.view.check_write(write.offset, write.data, &get)?;
        open.note_author(by);
        let is_filled = self.begin_in_view(open, write.offset, write.end())?;
        let shared = self.core.shared()?;
        open.view.write(
            write.offset,
            write.data,
            &get,
            &mut self.change_in_view(open.moves, open.is_cut, by),
        )?;
        drop(shared);
        self.store_full_now_or_soon();
        Ok(is_filled)
    }

    /// Records a write from `offset` to `end`. Returns whether it zeroed skipped bytes.
    fn begin_in_view(&self, open: &OpenView, offset: u64, end: u64) -> Result<bool> {
        let mut is_filled = false;
        let zero = |from, until| {
            if !open.is_cut {
                return Ok(());
            }
            is_filled = true;
            self.write_zeros(&open.view, open.moves, from..until)
        };
        if let Some(writing) = &open.writing {
            writing.begin(offset, end, zero)?;
        }
        Ok(is_filled)
    }

    /// Zeroes the elements in a range of bytes.
    fn write_zeros(&self, view: &View, moves: u64, zeroed: Range<u64>) -> Result<()> {
        let mut offset = zeroed.start;
        while offset < zeroed.end {
            let left = zeroed.end.saturating_sub(offset).to_usize();
            let zeros = vec![0; left.min(ZEROS)];
            let shared = self.core.shared()?;
            view.write_elements(offset, &zeros, &mut self.change_in_view(moves, true, None))?;
            drop(shared);
            self.store_full_now_or_soon();
            offset = Write { offset, data: &zeros }.end();
        }
        Ok(())
    }

    fn store_full_now_or_soon(&self) {
        if self.core.cache.pending_len() > self.core.options.dirty_limit / 2 {
            self.chunks.store_full();
        } else {
            self.chunks.store_full_soon();
        }
    }

    /// Returns a function that reads chunks of a view.
    pub(super) fn get_chunk(
        &self,
        moves: u64,
    ) -> impl Fn(&ElementRange, &Coords, &Range<usize>) -> Result<Option<Excerpt>> {
        move |elements, coords, _| {
            let array = self.core.array_of(elements, moves)?;
            let since = self.core.fresh_since(None);
            let chunk = self.core.cache.get_fresh(&array, coords, since).at(&elements.path)?;
            Ok(chunk.map(|chunk| chunk.bytes.into()))
        }
    }

    /// Returns a function that changes chunks of a view, for a caller that prevents moves. After a
    /// truncation all bytes will probably be written, so a chunk is read only if that turns out
    /// wrong. Elements that a program has not changed since it read the array stay as they are
    /// stored.
    fn change_in_view(&self, moves: u64, is_cut: bool, by: Thread) -> Box<ChangeChunk<'_>> {
        // `/proc` is read only where it matters.
        let by = by.filter(|_| self.chunks.shows_old_chunks());
        let program = by.map_or_else(Processes::default, |thread| Processes::of(Some(thread)));
        Box::new(move |elements, coords, cover, change| {
            let current = self.core.array_of(elements, moves)?;
            let len = current.chunk_len(coords)?.longest().to_usize();
            // Reserve the memory while the chunk is changed; after that it counts as pending.
            let more = if self.core.cache.is_pending(&current, coords) { 0 } else { len };
            self.files.reserve(more)?;
            // Without truncation, the writer may stop anywhere.
            let cover = match cover {
                Cover::Range(len, _) if !is_cut => Cover::Part(len),
                cover => cover,
            };
            let path = &elements.path;
            let (cover, since) = if self.chunks.is_cached_as_read(path, &current, coords, &program)
            {
                // What it has read is the base of its change.
                (Cover::Part(cover.part().unwrap_or(u64::MAX)), None)
            } else {
                (cover, Some(Instant::now()))
            };
            let to = (&cover, since);
            let changed = self.core.cache.change(&elements.path, &current, coords, to, change);
            self.files.memory.unreserve(more);
            changed.at(&elements.path)
        })
    }

    /// Stores the writes to a view at close. After a truncation, the view must have been written
    /// completely; bytes that were not written keep their old values.
    pub fn flush_view(&self, open: &OpenView) -> Result<()> {
        self.store_view(&open.view)?;
        let end = open.writing.as_ref().filter(|_| open.is_cut).map(|writing| writing.end());
        let len = open.view.len();
        match end {
            Some(end) if (1..len).contains(&end) => {
                let detail = format!(
                    "only {end} of {len} bytes were written; the rest is \
                     unchanged"
                );
                Err(Error::invalid(detail))
            }
            _ => Ok(()),
        }
    }

    /// Stores the pending chunks of a view's arrays.
    pub fn store_view(&self, view: &View) -> Result<()> {
        let mut first = Ok(());
        for elements in view.elements() {
            first = first.and(self.chunks.store_shards(Due::Below(&elements.path)));
        }
        first
    }

    /// Truncates a view to `len` bytes: to 0, to be written again, or to its full length, which
    /// zeroes the bytes that `open` has skipped, if it has truncated the view and is truncated by
    /// its descriptor. Returns whether any were zeroed.
    pub fn truncate_view(&self, open: Option<&OpenView>, view: &View, len: u64) -> Result<bool> {
        if len != 0 && len != view.len() {
            let detail = format!(
                "cannot be resized to {len} bytes: the file always has {} bytes",
                view.len()
            );
            return Err(Error::too_large(detail));
        }
        match open {
            Some(open) if open.is_cut && len > 0 => self.begin_in_view(open, len, len),
            _ => Ok(false),
        }
    }

    /// Replaces all bytes of a view with those of a file of the same length. If the store fails,
    /// the chunks stay pending and the error is reported.
    pub fn replace_view(
        &self,
        path: &NodePath,
        format: &'static Format,
        bytes: &[u8],
    ) -> Result<()> {
        let kept = self.names.views.kept_view(path, format).map_err(as_gone)?;
        if u64::try_from(bytes.len()).ok() != Some(kept.view.len()) {
            return Err(Error::too_large(format!(
                "{} bytes, but the file always has {} bytes: the array fixes its shape and type",
                bytes.len(),
                kept.view.len()
            )));
        }
        let get = self.get_chunk(kept.moves);
        kept.view.write(0, bytes, &get, &mut self.change_in_view(kept.moves, true, None))?;
        self.store_view(&kept.view)
    }
}
