//! Metadata files that programs write with `--as zarr2`.
//!
//! In a mount that shows Zarr 3 a program may write them, too, and they make nodes: `AnnData` and
//! OME-Zarr 0.4 write Zarr 2 unless told otherwise, and users expect arrays.

use super::documents::{DocumentWriter, SeenDocument};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::Node;
use crate::json::{self, Text};
use crate::metadata::merge::{self, Edit};
use crate::metadata::zarr2::Documents;
use crate::metadata::{Dialect, NodeKind, NodePath, model, zarr2};
use crate::vfs::authors::Processes;
use crate::vfs::inodes::place::Place;

impl DocumentWriter {
    /// Stores what programs wrote to a metadata file, which they have made if it `is_new`.
    pub fn store_zarr2(
        &self,
        place: &Place,
        shown: Option<&str>,
        is_new: bool,
        written: &[u8],
        by: &Processes,
    ) -> Result<()> {
        let path = place.node().ok_or_else(Error::not_found)?;
        let changes = self.core.hierarchy.changes();
        let is_new = is_new
            && matches!(place, Place::Document(_))
            && !changes.is_directory_as_group(path)?;
        let written = String::from_utf8_lossy(written);
        let is_early = self.names.zarr2.early_attributes.lock().contains_key(path);
        let node = self.node_to_write(path, is_new, shown.is_some() && !is_early)?;
        if let Place::Copies(_) = place {
            check_consolidated(&written)?;
        }
        if node.is_bare() && !matches!(place, Place::Document(_)) {
            return self.keep_for_node(place, path, &written);
        }
        if let Place::Copies(_) = place {
            self.names.zarr2.removed_files.lock().remove(place);
            let edit = Edit { consolidated: Some(true), ..Edit::default() };
            return self.core.hierarchy.changes().edit(path, &edit);
        }
        let of_written = if is_array(&written) { NodeKind::Array } else { NodeKind::Group };
        let kind = if matches!(place, Place::Attributes(_)) { node.kind() } else { of_written };
        let is_new = node.is_bare() || (kind == NodeKind::Array && node.kind() == NodeKind::Group);
        if is_new {
            return self.create_of_zarr2(&node, kind, &written, by);
        }
        if kind != node.kind() {
            return Err(Error::invalid("the node is an array: remove it first"));
        }
        let known = self.names.zarr2.documents_of(&node)?;
        self.check_is_of_known(place, &node, &known, by)?;
        let (base, new) = if matches!(place, Place::Attributes(_)) {
            (
                zarr2::to_v3(kind, &known.document, Some(shown.unwrap_or(&known.attributes)))?,
                zarr2::to_v3(kind, &known.document, Some(&written))?,
            )
        } else {
            let seen = shown.map(|seen| with_fill_as_shown(&node, seen, &known.document));
            let seen = seen.transpose()?;
            let seen = seen.as_deref().unwrap_or(&known.document);
            (
                zarr2::to_v3(kind, seen, Some(&known.attributes))?,
                zarr2::to_v3(kind, &written, Some(&known.attributes))?,
            )
        };
        let now = zarr2::to_v3(kind, &known.document, Some(&known.attributes))?;
        let seen = SeenDocument {
            before: Some(&base),
            now: Some(&now),
            written: Some(&written),
            is_new: false,
        };
        self.store_document(path, seen, new.as_bytes(), &Processes::default())?;
        match place {
            Place::Document(_) => {
                self.names.zarr2.note_written(path, &written, Some(&known.attributes), None);
            }
            _ => self.names.zarr2.note_attributes(path, &written),
        }
        Ok(())
    }

    /// Fails if the programs which write `.zattrs` have read that, or the metadata file, of another
    /// node than `node`, which has the files `known`.
    fn check_is_of_known(
        &self,
        place: &Place,
        node: &Node,
        known: &Documents,
        by: &Processes,
    ) -> Result<()> {
        let seen = self.names.seen_texts.known_node(node.path(), by);
        let (Place::Attributes(_), Some(seen)) = (place, seen.filter(|seen| !seen.is_empty()))
        else {
            return Ok(());
        };
        let is_same = match (is_array(&seen), node.kind()) {
            (true, NodeKind::Array) => {
                let seen = zarr2::to_v3(NodeKind::Array, &seen, None)?;
                let now = zarr2::to_v3(NodeKind::Array, &known.document, None)?;
                merge::have_like_chunks(seen.as_bytes(), now.as_bytes())
            }
            // A program may make an array of a group.
            (false, _) => true,
            (true, NodeKind::Group) => false,
        };
        if is_same {
            return Ok(());
        }
        let detail = "another program has replaced the array since its metadata was read";
        Err(Error::new(Kind::Stale, detail))
    }

    /// Keeps attributes for a node whose metadata file does not exist yet; of consolidated
    /// metadata, only that they are wanted.
    fn keep_for_node(&self, place: &Place, path: &NodePath, written: &str) -> Result<()> {
        if let Place::Attributes(_) = place {
            json::parse_object(written.as_bytes()).map_err(|error| error.of_kind(Kind::Invalid))?;
            self.names.zarr2.removed_files.lock().remove(place);
            self.names.zarr2.early_attributes.lock().insert(path.clone(), written.to_owned());
            // A directory with attributes becomes a group, also one that the store has.
            let known = self.core.hierarchy.directories.get(path);
            if known.is_none_or(|known| !known.is_made() && known.removed().is_none()) {
                self.core.hierarchy.changes().await_metadata(path)?;
            }
        } else {
            self.names.zarr2.wants_copies.lock().insert(path.clone());
        }
        Ok(())
    }

    /// Creates a node from its metadata file, or makes one again whose metadata file was removed.
    fn create_of_zarr2(
        &self,
        node: &Node,
        kind: NodeKind,
        written: &str,
        by: &Processes,
    ) -> Result<()> {
        let path = node.path();
        let removed = self.removed_documents(node);
        let early = self.names.zarr2.early_attributes.lock().get(path).cloned();
        let beside = Place::Attributes(path.clone());
        let is_beside = !self.names.zarr2.removed_files.lock().contains(&beside);
        let kept = removed.as_ref().filter(|_| is_beside).map(|removed| &*removed.attributes);
        let attributes = early.as_deref().or(kept);
        let document = zarr2::to_v3(kind, written, attributes)?;
        let base = removed.as_ref().filter(|_| node.kind() == kind).and_then(|removed| {
            zarr2::to_v3(kind, &removed.document, Some(&removed.attributes)).ok()
        });
        let now = base.as_deref();
        let seen = SeenDocument { before: now, now, written: Some(written), is_new: true };
        self.store_document(path, seen, document.as_bytes(), &Processes::default())?;
        self.names.zarr2.note_written(path, written, attributes, Some(by));
        self.names.zarr2.early_attributes.lock().remove(path);
        self.names.zarr2.removed_files.lock().retain(|place| place.node() != Some(path));
        let is_wanted = self.names.zarr2.wants_copies.lock().remove(path);
        if is_wanted && kind == NodeKind::Group {
            return self
                .core
                .hierarchy
                .changes()
                .edit(path, &Edit { consolidated: Some(true), ..Edit::default() });
        }
        Ok(())
    }

    /// Returns the metadata files of a node whose document was removed; `None` if that was not
    /// understood.
    fn removed_documents(&self, node: &Node) -> Option<Documents> {
        let is_removed = node.is_bare() && node.removed().is_some();
        is_removed.then(|| self.names.zarr2.documents_of(node).ok()).flatten()
    }

    /// Adds the attributes that were written before to a directory that has become a group.
    pub fn settle_early_attributes(&self, path: &NodePath) -> Result<()> {
        let attributes = self.names.zarr2.early_attributes.lock().remove(path);
        match attributes {
            Some(text) => {
                let place = Place::Attributes(path.clone());
                self.store_zarr2(&place, None, false, text.as_bytes(), &Processes::default())
            }
            None => Ok(()),
        }
    }

    /// Removes attributes or consolidated metadata.
    pub fn erase_beside(&self, place: &Place) -> Result<()> {
        self.names.seen_texts.forget(place);
        let path = place.node().ok_or_else(Error::not_found)?;
        let node = self.core.hierarchy.existing(path)?;
        match place {
            Place::Attributes(path)
                if self.names.zarr2.early_attributes.lock().remove(path).is_some() =>
            {
                // Those of a removed node do not come back.
                self.names.zarr2.removed_files.lock().insert(place.clone());
                Ok(())
            }
            _ if node.is_bare() => {
                self.names.zarr2.removed_files.lock().insert(place.clone());
                Ok(())
            }
            Place::Attributes(_) => {
                let erased = self.store_zarr2(place, None, false, b"{}", &Processes::default());
                erased.at(place.shown())
            }
            _ => {
                let edit = Edit { consolidated: Some(false), ..Edit::default() };
                self.core.hierarchy.changes().edit(path, &edit)?;
                self.names.zarr2.removed_files.lock().insert(place.clone());
                Ok(())
            }
        }
    }
}

/// Returns the metadata file of an array as a program has seen it, with the fill value as it is
/// shown now, if both are that of the array: whether it is shown depends on the attributes, which
/// may have changed since.
fn with_fill_as_shown(node: &Node, seen: &str, now: &str) -> Result<String> {
    const FILL: &str = "fill_value";
    let mut text = Text::parse(seen.as_bytes())?;
    let shown = json::parse_object(now.as_bytes())?.shift_remove(FILL);
    let lowered = Dialect::V2.lower(Some(NodeKind::Array), seen.as_bytes()).node;
    if let (Some(array), Some(shown)) = (node.array(), shown)
        && let Ok(model::NodeMetadata::Array(known)) = lowered
        && known.dtype == array.model().dtype
    {
        let array = array.model();
        let is_its_fill = known.fill.item(&known.dtype) == array.fill.item(&array.dtype);
        if is_its_fill || !known.fill.is_defined() {
            text.set(&[FILL], &shown)?;
        }
    }
    Ok(text.into_string())
}

/// Fails unless a program wrote consolidated metadata. The mount generates its own, so another file
/// of this name would be lost.
fn check_consolidated(text: &str) -> Result<()> {
    let document =
        json::parse_object(text.as_bytes()).map_err(|error| error.of_kind(Kind::Invalid))?;
    if document.contains_key("zarr_consolidated_format") {
        return Ok(());
    }
    Err(Error::invalid("no consolidated metadata: \"zarr_consolidated_format\" is missing"))
}

/// Whether a metadata file describes an array.
fn is_array(text: &str) -> bool {
    json::parse_object(text.as_bytes()).is_ok_and(|document| document.contains_key("shape"))
}
