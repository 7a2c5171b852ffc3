//! Metadata files that describe an array as another program's store has it.
//!
//! A program that mirrors a store into a mount (`rsync`, `cp -r`, `tar`) brings metadata files and
//! chunks as they are there: big endian, transposed, compressed, under other names. The first time,
//! this makes an array *as written*. In a later mount the array is shown decoded, and the same
//! metadata file comes again. It describes the stored array in another form, so the files of the
//! array have that form from then on. Chunks that the same program brought before the metadata file
//! were taken in the old form; they are taken again in the new one.

use std::sync::Arc;
use std::time::Instant;

use super::documents::{DocumentWriter, is_array, means_same};
use super::latest::Author;
use crate::array::{Array, Coords};
use crate::buffer::Buffer;
use crate::error::{At, Error, Kind, Result};
use crate::hierarchy::{Node, NodeForm};
use crate::metadata::model::Levels;
use crate::metadata::shown::{self, EncodedChunks, ShownChunks};
use crate::metadata::{NodePath, merge, model};
use crate::vfs::authors::Thread;
use crate::vfs::names::place::Place;
use crate::vfs::options::Form;

impl DocumentWriter {
    /// Gives the files of an array the form that `written`, the text of a metadata file by the
    /// thread `by`, describes, if they have another one, and returns the form before.
    pub(super) fn show_as_described(
        &self,
        node: &Node,
        shown: Option<&str>,
        written: &[u8],
        by: Thread,
    ) -> Result<Option<NodeForm>> {
        let is_zarr3 = self.core.form_of(node.path()) == Form::Zarr3;
        let array = node.array().filter(|_| is_zarr3 && is_array(written));
        let Some(array) = array else { return Ok(None) };
        match self.edit_of(node, &self.base_of(node, shown)?, written) {
            Err(error) if error.kind() == Kind::Invalid => {}
            _ => return Ok(None),
        }
        for (form, files) in self.forms_in(node.path(), array, written) {
            let described = model::Node::Array(Box::new(array.model().clone()));
            let base = shown::array(array.model(), &files);
            if merge::diff(&base, written, &described, &files).is_ok() {
                return self.show_in_form(node, form, by).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the forms that the metadata file `written` may describe, with the chunk files that
    /// the array has in each.
    fn forms_in(
        &self,
        path: &NodePath,
        array: &Array,
        written: &[u8],
    ) -> Vec<(NodeForm, ShownChunks)> {
        // If it can be no array of this store, it describes no form.
        let Ok(raised) = self.core.hierarchy.raise(path, written) else { return Vec::new() };
        let keys = raised.keys();
        let form = |encoded| NodeForm { encoded, keys, is_zarr2: false };
        let Some(encoded) = raised.encoded() else {
            let files = ShownChunks::decoded(array.model(), array.chunk_shape());
            return vec![(form(None), ShownChunks { keys, ..files })];
        };
        let mut forms = Vec::new();
        let is_same = |new: &Arc<Array>| means_same(new.model(), array.model());
        if encoded.levels == Levels::Mount && raised.array().is_some_and(is_same) {
            forms.push((form(Some(Arc::new(encoded.clone()))), encoded.shown.clone()));
        }
        // No metadata of Zarr 3 can describe chunks with the headers of N5.
        if !array.model().codecs.iter().any(|codec| codec.name == "n5_default") {
            let as_written = EncodedChunks { levels: Levels::Maker, shown: encoded.shown.clone() };
            let files = ShownChunks { keys, ..ShownChunks::encoded(array.model()) };
            forms.push((form(Some(Arc::new(as_written))), files));
        }
        forms
    }

    /// Gives the files of an array another form, and returns the form before. [`Kind::Busy`] if a
    /// program is writing one of its chunks.
    pub(super) fn show_in_form(&self, node: &Node, form: NodeForm, by: Thread) -> Result<NodeForm> {
        let (path, hierarchy) = (node.path(), &self.core.hierarchy);
        let Some(array) = node.array() else { return Ok(NodeForm::default()) };
        let inodes = self.names.inodes.below(path);
        let chunks = || {
            inodes.iter().filter(|inode| {
                matches!(inode.place(), Some(Place::Chunk(at, coords))
                    if at == *path && array.grid().contains(&coords))
            })
        };
        for inode in chunks() {
            if inode.known_file().is_some_and(|file| file.lock().is_changed()) {
                let place = inode.place().map(|place| place.shown()).unwrap_or_default();
                return Err(Error::new(Kind::Busy, "a program is writing this chunk").at(place));
            }
        }
        let was = hierarchy.forms.shown_array(path, array);
        let now =
            hierarchy.forms.array_in(array, form.encoded.as_ref().map(|chunks| chunks.levels));
        self.take_again(path, &was, &now, by)?;
        let before = hierarchy.forms.change(path, |changed| {
            *changed = NodeForm { is_zarr2: changed.is_zarr2, ..form };
        });
        hierarchy.invalidate(path);
        for inode in chunks() {
            if let Some(file) = inode.known_file() {
                file.lock().seen = None;
            }
            self.core.invalidate(inode.number());
        }
        Ok(before)
    }

    /// Takes the chunks that the program of the thread `by` has stored in the array `was` as chunks
    /// of `now`: its bytes mean something else than they were taken for.
    fn take_again(
        &self,
        path: &NodePath,
        was: &Arc<Array>,
        now: &Arc<Array>,
        by: Thread,
    ) -> Result<()> {
        if was.encoded_levels() == now.encoded_levels() {
            return Ok(());
        }
        let mut taken: Vec<(Coords, Buffer)> = Vec::new();
        for (coords, author) in self.chunks.latest.take(path, by) {
            let place = Place::Chunk(path.clone(), coords.clone());
            if !was.grid().contains(&coords) {
                continue;
            }
            let Some(chunk) = self.core.cache.get_fresh(was, &coords, Some(Instant::now()))? else {
                continue;
            };
            if author == Author::Unknown {
                let detail = "a program that has ended stored this chunk a moment ago, before the \
                              metadata file that says how it is encoded: copy the metadata file \
                              first, or wait for a minute";
                return Err(Error::invalid(detail).at(place.shown()));
            }
            now.check_chunk(&coords, &chunk.bytes).at(place.shown())?;
            taken.push((coords, chunk.bytes));
        }
        for (coords, bytes) in taken {
            let fill = self.core.options.fill_chunks;
            self.core.cache.write(now, &coords, Some(bytes), fill)?;
            self.unsynced.changed(now.key(&coords)?);
            // If the metadata file is refused, they are what they were.
            self.chunks.latest.note(path, &coords, by);
        }
        Ok(())
    }
}
