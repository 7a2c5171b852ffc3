//! Metadata files that describe an array as another program's store has it.
//!
//! A program that mirrors a store into a mount (`rsync`, `cp -r`, `tar`) brings metadata files and
//! chunks as they are there: big endian, transposed, compressed. The first time, this makes an
//! array *as written*. In a later mount the array is shown decoded, and the same metadata file
//! comes again. It describes the stored array in another form, so the files of the array have that
//! form from then on. Chunks that the same program brought before the metadata file were taken in
//! the old form; they are taken again in the new one.

use std::sync::Arc;
use std::time::Instant;

use super::documents::{DocumentWriter, SeenDocument, is_array};
use super::latest::Before;
use crate::array::{Array, Coords};
use crate::buffer::Buffer;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::{Node, NodeForm};
use crate::metadata::model::Levels;
use crate::metadata::shown::{self, EncodedChunks, ShownChunks};
use crate::metadata::{NodePath, merge, model};
use crate::vfs::authors::Processes;
use crate::vfs::inodes::place::Place;
use crate::vfs::options::Presentation;

impl DocumentWriter {
    /// Gives the files of an array the form that `written`, the text of a metadata file by the
    /// programs `by`, describes, if they have another one, and returns the form before.
    pub(super) fn show_as_described(
        &self,
        node: &Node,
        seen: SeenDocument<'_>,
        written: &[u8],
        by: &Processes,
    ) -> Result<Option<NodeForm>> {
        let is_zarr3 = self.core.form_of(node.path()) == Presentation::Zarr3;
        let array = node.array().filter(|_| is_zarr3 && is_array(written));
        let Some(array) = array else { return Ok(None) };
        match self.edit_of(node, &self.base_of(node, seen, written)?, written) {
            Err(error) if error.kind() == Kind::Invalid => {}
            _ => return Ok(None),
        }
        // Files that came before would have the other names, and be no chunks.
        let keys = self.core.hierarchy.shown().chunks_of(node, array).keys;
        let forms = self.forms_in(node.path(), array, written);
        for (form, files) in forms.into_iter().filter(|(_, files)| files.keys == keys) {
            let described = model::NodeMetadata::Array(Box::new(array.model().clone()));
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
        // A program that has stored encoded chunks does not get them decoded by a metadata file.
        let Some(encoded) = raised.encoded() else { return Vec::new() };
        let mut forms = Vec::new();
        let is_same = |new: &Arc<Array>| new.model().means_same(array.model());
        if encoded.levels == Levels::Mount && raised.array().is_some_and(is_same) {
            forms.push((form(Some(Arc::new(encoded.clone()))), encoded.shown.clone()));
        }
        // No metadata of Zarr 3 can describe chunks with the headers of N5.
        if !array.model().codecs.iter().any(|codec| codec.name == "n5_default") {
            let shown = encoded.shown.clone();
            let as_written = EncodedChunks::of(array.model(), Levels::Maker, shown);
            let files = ShownChunks { keys, ..ShownChunks::encoded(array.model()) };
            forms.push((form(Some(Arc::new(as_written))), files));
        }
        forms
    }

    /// Gives the files of an array another form, and returns the form before. [`Kind::Busy`] if a
    /// program is writing one of its chunks.
    pub(super) fn show_in_form(
        &self,
        node: &Node,
        form: NodeForm,
        by: &Processes,
    ) -> Result<NodeForm> {
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

    /// Takes the chunks that the programs `by` have stored in the array `was` as chunks of `now`:
    /// their bytes mean something else than they were taken for. Takes all of them or none.
    fn take_again(
        &self,
        path: &NodePath,
        was: &Arc<Array>,
        now: &Arc<Array>,
        by: &Processes,
    ) -> Result<()> {
        if was.encoded_levels() == now.encoded_levels() {
            return Ok(());
        }
        let refused = |what: &str| {
            let advice = "copy the metadata file first, or mount again";
            Error::invalid(format!(
                "{what} before the metadata file that says how it is encoded: {advice}"
            ))
        };
        let Before::Ours(chunks) = self.chunks.latest.before(path, by) else {
            return Err(refused("another program stored a chunk of the array a moment ago,"));
        };
        let mut taken = Vec::new();
        for coords in chunks {
            let place = || Place::Chunk(path.clone(), coords.clone()).shown();
            if !was.grid().contains(&coords) {
                continue;
            }
            let Some(bytes) = self.bytes_in(was, &coords)? else { continue };
            if was.chunk_shape() != now.chunk_shape() {
                return Err(refused("this chunk was stored").at(place()));
            }
            now.check_chunk(&coords, &bytes).at(place())?;
            taken.push(coords);
        }
        for (index, coords) in taken.iter().enumerate() {
            if let Err(error) = self.take_one_again(path, (was, now), coords) {
                for coords in taken.iter().take(index) {
                    self.take_one_again(path, (now, was), coords)?;
                }
                return Err(error.at(Place::Chunk(path.clone(), coords.clone()).shown()));
            }
        }
        Ok(())
    }

    fn take_one_again(
        &self,
        path: &NodePath,
        (was, now): (&Arc<Array>, &Arc<Array>),
        coords: &Coords,
    ) -> Result<()> {
        let Some(bytes) = self.bytes_in(was, coords)? else { return Ok(()) };
        let current = self.core.hierarchy.array_since(path, now, Instant::now())?;
        let fill = self.core.options.fill_chunks;
        self.core.cache.write(&current, coords, Some(bytes), fill)?;
        self.unsynced.changed(now.key(coords)?);
        Ok(())
    }

    fn bytes_in(&self, array: &Arc<Array>, coords: &Coords) -> Result<Option<Buffer>> {
        let chunk = self.core.cache.get_fresh(array, coords, Some(Instant::now()))?;
        Ok(chunk.map(|chunk| chunk.bytes))
    }
}
