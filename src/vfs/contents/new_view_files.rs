//! A new file that a program writes in the place of a view.
//!
//! The bytes that a program writes to a view that it has truncated go into a file without a name,
//! and the whole file replaces the view when it is closed (`rewrite`). A file that is not whole
//! then, or whose program was killed or fails, changes nothing. A long file is the exception: if it
//! has the bytes of the view up to the first element, as a copy of the view has, it changes the
//! elements as it arrives, and needs no room for a second copy.

use bytes::Bytes;

use super::view_writes::ViewWriter;
use crate::cache::Due;
use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;
use crate::rewrite::{self, EncodedFile, RewrittenView};
use crate::store::unnamed::UnnamedFile;
use crate::sys;
use crate::vfs::authors::Thread;
use crate::vfs::inodes::file::Write;
use crate::vfs::names::views::as_gone;
use crate::vfs::reader::open_view::{NewViewFile, OpenView};
use crate::view::{ElementRange, Format, ROOT_NAME, View};
use crate::width::ToUsize;

/// A view of more bytes is changed as they arrive, if they are in its layout.
const MAX_WHOLE: u64 = 256 << 20;

/// How many bytes to copy at a time.
const PIECE: usize = 1 << 20;

/// A view, its node and format, and `Hierarchy::moves` before it was generated.
type PlaceOfView<'v> = (&'v View, &'v NodePath, &'static Format, u64);

impl OpenView {
    /// Whether a write may be one of a new file in its place.
    pub fn may_be_new_file(&self) -> bool {
        self.is_cut
            && self
                .new_file
                .try_lock()
                .is_none_or(|new| new.file.is_some() || new.same_until < self.view.header_len())
    }

    /// Reads bytes of the new file; `None` if there is none.
    pub fn read_new_file(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        if !self.is_cut {
            return None;
        }
        let new = self.new_file.lock();
        Some(new.file.as_ref()?.read(offset, len).map(Bytes::from))
    }

    /// Whether a program that writes it still has it open: then this close is that of a duplicate,
    /// and the file may not be whole.
    fn is_held_open(&self, by: Thread) -> bool {
        let Some(writing) = &self.writing else { return false };
        let mut writers = writing.users.lock().clone();
        writers.note(by);
        let stem = self.path.name().unwrap_or(ROOT_NAME);
        sys::may_have_open(writers.known().unwrap_or_default(), self.number, stem)
    }

    fn place(&self) -> PlaceOfView<'_> {
        (&self.view, &self.path, self.format, self.moves)
    }

    /// Truncates or extends the new file in the place of a view. `false` if there is none.
    pub fn set_len_of_new_file(&self, len: u64) -> Result<bool> {
        let mut new = self.new_file.lock();
        let Some(file) = &mut new.file else {
            if len == 0 {
                *new = NewViewFile::default();
            }
            return Ok(false);
        };
        if file.len() != len {
            file.set_len(len)?;
            (new.is_changed, new.was_closed) = (true, false);
        }
        self.set_new_len(Some(len));
        Ok(true)
    }
}

impl ViewWriter {
    /// Writes to the new file in the place of a view. `false` if the program writes to the view
    /// itself.
    pub fn write_new_file(&self, open: &OpenView, write: Write<'_>, by: Thread) -> Result<bool> {
        if !open.is_cut {
            return Ok(false);
        }
        let mut new = open.new_file.lock();
        if new.file.is_none() && !self.begin_new_file(open, write, &mut new)? {
            return Ok(false);
        }
        let Some(file) = &mut new.file else { return Ok(false) };
        file.write(write.offset, write.data)?;
        let len = file.len();
        (new.is_changed, new.was_closed) = (true, false);
        drop(new);
        open.note_author(by);
        open.set_new_len(Some(len));
        Ok(true)
    }

    /// Begins the new file if this write is not one to the view itself. Returns whether it did.
    fn begin_new_file(
        &self,
        open: &OpenView,
        write: Write<'_>,
        new: &mut NewViewFile,
    ) -> Result<bool> {
        if new.same_until >= open.view.header_len() {
            return Ok(false);
        }
        let get = self.get_chunk(open.moves);
        let is_streamed = open.view.len() > MAX_WHOLE
            && write.offset == new.same_until
            && open.view.check_write(write.offset, write.data, &get).is_ok()
            && self.has_header(open, write)?;
        if is_streamed || !self.as_rewritten(open.place(), rewrite::can_read) {
            new.same_until = if is_streamed { write.end() } else { u64::MAX };
            let is_header = new.same_until < open.view.header_len();
            open.set_new_len(is_header.then_some(new.same_until));
            return Ok(false);
        }
        let mut file = UnnamedFile::make()?;
        while file.len() < new.same_until {
            let len = new.same_until.saturating_sub(file.len()).to_usize().min(PIECE);
            let bytes = open.view.read(file.len(), len, &get)?;
            file.append(&bytes)?;
        }
        new.file = Some(file);
        Ok(true)
    }

    /// Whether a write has the bytes of the header that the view has, those that a library rewrites
    /// for itself, too.
    fn has_header(&self, open: &OpenView, write: Write<'_>) -> Result<bool> {
        let len = open.view.header_len().saturating_sub(write.offset).to_usize();
        let new = write.data.get(..len.min(write.data.len())).unwrap_or_default();
        let own = open.view.read(write.offset, new.len(), &self.get_chunk(open.moves))?;
        Ok(own == new)
    }

    /// Stores a new file that gets the name of a view, for a caller that prevents moves. `false`,
    /// and no change, if zarrfs does not read files of its format.
    pub fn rename_new_file(
        &self,
        path: &NodePath,
        format: &'static Format,
        copy: impl FnOnce() -> Result<UnnamedFile>,
    ) -> Result<bool> {
        let kept = self.names.views.kept_view(path, format).map_err(as_gone)?;
        let place = (kept.view.as_ref(), path, format, kept.moves);
        if !self.as_rewritten(place, rewrite::can_read) {
            return Ok(false);
        }
        self.store_encoded(self.encoded(place, &copy()?)?)?;
        Ok(true)
    }

    /// Stores the new file in the place of a view, which `by` closes. `false` if there is none.
    pub fn store_new_file(&self, open: &OpenView, by: Thread) -> Result<bool> {
        if !open.is_cut {
            return Ok(false);
        }
        let mut new = open.new_file.lock();
        let NewViewFile { file: Some(file), is_changed, was_closed, .. } = &mut *new else {
            return Ok(false);
        };
        if !*is_changed {
            return Ok(true);
        }
        let has_failed = by.is_some_and(sys::ends_by_failure);
        if open.is_held_open(by) {
            *was_closed |= !has_failed;
            return Ok(true);
        }
        // It is closed: the name shows the view again, whatever becomes of it.
        open.set_new_len(None);
        if has_failed {
            let detail = "its program failed or was killed before it had closed the new file: \
                          nothing was stored";
            return Err(Error::invalid(detail));
        }
        let encoded = self.encoded(open.place(), file)?;
        let shared = self.core.shared()?;
        self.store_encoded(encoded)?;
        drop(shared);
        *is_changed = false;
        Ok(true)
    }

    /// Ends the new file in the place of a view that no program has open any more. If a program has
    /// closed it while another one seemed to have it open, it is stored now. `false` if there is
    /// none.
    pub fn end_new_file(&self, open: &OpenView) -> Result<bool> {
        let new = std::mem::take(&mut *open.new_file.lock());
        let Some(file) = new.file else { return Ok(false) };
        if new.is_changed && new.was_closed {
            let encoded = self.encoded(open.place(), &file)?;
            let _shared = self.core.shared()?;
            self.store_encoded(encoded)?;
        }
        Ok(true)
    }

    /// Calls `f` with a view that a new file replaces.
    fn as_rewritten<T>(
        &self,
        (view, path, format, moves): PlaceOfView<'_>,
        f: impl FnOnce(RewrittenView<'_>) -> T,
    ) -> T {
        let (hierarchy, get) = (&self.core.hierarchy, self.get_chunk(moves));
        let array_of = |elements: &ElementRange| self.core.array_of(elements, moves);
        f(RewrittenView { hierarchy, view, path, format, array_of: &array_of, get: &get })
    }

    /// Encodes the values of a new file.
    fn encoded(&self, place: PlaceOfView<'_>, file: &UnnamedFile) -> Result<EncodedFile<'_>> {
        let encode = |view: RewrittenView<'_>| rewrite::encode(&self.core.hierarchy, view, file);
        self.as_rewritten(place, encode).map_err(|error| refused(&error))
    }

    /// Stores encoded values, for a caller that prevents moves.
    fn store_encoded(&self, mut encoded: EncodedFile<'_>) -> Result<()> {
        let _turn = self.replacing.lock();
        for (path, _) in encoded.arrays() {
            // What programs have written before this file.
            self.chunks.store_shards(Due::Below(path))?;
        }
        let stored = encoded.store();
        for (path, array) in encoded.arrays() {
            self.core.cache.forget_stored(array);
            if let Ok(now) = self.core.array(path) {
                self.core.cache.forget_stored(&now);
            }
        }
        for key in stored? {
            self.chunks.unsynced.changed(key);
        }
        Ok(())
    }
}

/// Returns the error for a new file that does not fit.
pub(in crate::vfs) fn refused(error: &Error) -> Error {
    let is_of_file = error.is_of_data()
        || matches!(error.kind(), Kind::Unsupported | Kind::Invalid | Kind::TooLarge);
    if is_of_file { error.clone().of_kind(Kind::Invalid) } else { error.clone() }
}
