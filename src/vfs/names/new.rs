//! The places of new files, and why some names cannot be created.

use super::places::Places;
use super::zarr2::is_name_of_zarr2;
use crate::array::parse_index;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::Content as NodeContent;
use crate::metadata::{NodeKind, NodePath};
use crate::vfs::inodes::place::{
    CHUNKS, CONTROL, DOCUMENT, Place, ZARRAY, ZGROUP, below, below_shown, new_chunk,
};
use crate::vfs::options::Presentation;

impl Places {
    /// Returns the place of a new file `name` in `directory`, or the reason why it cannot be
    /// created.
    pub fn for_new(&self, directory: &Place, name: &str) -> Result<Place> {
        let (directory, name) = self.translated(directory, name)?;
        self.new_in_tree(&directory, &name)
    }

    fn new_in_tree(&self, directory: &Place, name: &str) -> Result<Place> {
        let refused = |why: &str| refused(directory, name, why);
        match directory {
            _ if matches!(self.core.options.form, Presentation::View(_)) => {
                refused("nothing can be created in a mount that shows one format (--as)")
            }
            Place::Control | Place::ViewsDir(_) => refused("nothing can be created here"),
            Place::StoredDir(path) => {
                let key = self.tree.stored_keys(path)?.into_iter().find(|key| key.name() == name);
                match key {
                    Some(key) => Ok(Place::StoredDocument(path.clone(), key)),
                    None => refused("only the metadata file of a node can be created here"),
                }
            }
            Place::ChunkDir(path, prefix) => {
                let array = self.core.shown_array(path)?;
                let Some(index) = parse_index(name) else {
                    return self.new_ordinary(path, directory, name);
                };
                let coords = [&prefix[..], &[index]].concat();
                if coords.len() < array.grid().rank() && self.tree.has_chunks(&array, &coords)? {
                    return refused("chunks are stored below it: it must be a directory");
                }
                new_chunk(path, &array, coords)
            }
            Place::Node(path) => self.new_in_node(path, directory, name),
            Place::OrdinaryDir(path, _) => self.new_ordinary(path, directory, name),
            _ => Err(Error::new(Kind::NotDirectory, "not a directory")),
        }
    }

    fn new_in_node(&self, path: &NodePath, directory: &Place, name: &str) -> Result<Place> {
        let refused = |why: &str| refused(directory, name, why);
        self.choose_form(path, name)?;
        if self.core.form_of(path) == Presentation::Zarr2
            && let Some(place) =
                self.zarr2.place_for_new_of_zarr2(path, name).at(below_shown(directory, name))?
        {
            return Ok(place);
        }
        if name == DOCUMENT {
            return Ok(Place::Document(path.clone()));
        }
        if path.is_root() && name == CONTROL {
            return refused("this name is reserved for zarrfs");
        }
        let node = self.core.hierarchy.existing(path)?;
        match node.content() {
            NodeContent::Array(array) if name == CHUNKS && array.grid().rank() == 0 => {
                new_chunk(path, &self.core.hierarchy.forms.shown_array(path, array), Vec::new())
            }
            NodeContent::Array(_) if name == CHUNKS => {
                refused("chunks are stored below it: it must be a directory")
            }
            NodeContent::NotUnderstood(NodeKind::Array, error) => Err(error.clone()),
            _ => self.new_ordinary(path, directory, name),
        }
    }

    /// Gives a directory that is no node yet the form of the metadata file that a program creates
    /// in it. Refuses one of Zarr 2 in a node of Zarr 3: it would be an ordinary file, and the node
    /// would stay as it is.
    fn choose_form(&self, path: &NodePath, name: &str) -> Result<()> {
        let is_zarr2 = is_name_of_zarr2(name);
        if !(is_zarr2 || name == DOCUMENT)
            || self.core.options.form != Presentation::Zarr3
            || self.core.hierarchy.forms.is_zarr2(path) == is_zarr2
            || is_zarr2 && self.is_of_another_format(path)?
        {
            return Ok(());
        }
        if self.core.hierarchy.existing(path)?.is_bare() {
            self.core.hierarchy.forms.change(path, |form| form.is_zarr2 = is_zarr2);
            return Ok(());
        }
        let why = "this mount shows the node as Zarr 3: write zarr.json, remove the node first, or \
                   mount with --as zarr2";
        if is_zarr2 && !self.has_metadata_of_zarr2(path)? {
            return refused(&Place::Node(path.clone()), name, why).map(drop);
        }
        Ok(())
    }

    /// Returns the group that becomes one of Zarr 2 if a program creates this file in its
    /// directory: one of Zarr 3 without attributes, which loses nothing.
    pub fn gives_way(&self, directory: &Place, name: &str) -> Result<Option<NodePath>> {
        let (Place::Node(path), name) = self.translated(directory, name)? else { return Ok(None) };
        if !is_name_of_zarr2(&name)
            || self.core.form_of(&path) != Presentation::Zarr3
            || self.is_of_another_format(&path)?
            || self.has_metadata_of_zarr2(&path)?
        {
            return Ok(None);
        }
        let node = self.core.hierarchy.existing(&path)?;
        let is_empty = match node.content() {
            NodeContent::Group(group) => group.attributes.is_empty() && !group.consolidated,
            _ => false,
        };
        Ok((is_empty && node.document().is_some()).then_some(path))
    }

    /// Whether a directory or one above it holds ordinary files with the names of Zarr 2 metadata,
    /// which belong to a hierarchy that the store does not know.
    pub fn is_of_another_format(&self, path: &NodePath) -> Result<bool> {
        for path in path.ancestors().iter().chain([path]) {
            // Only a stray file beside the root's own document hides nothing.
            if !path.is_root() && self.has_metadata_of_zarr2(path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the directory holds ordinary files with the names of Zarr 2 metadata.
    fn has_metadata_of_zarr2(&self, path: &NodePath) -> Result<bool> {
        let directory = Place::Node(path.clone());
        for name in [ZARRAY, ZGROUP] {
            if self.core.hierarchy.dialect_of(path).is_reserved(name) {
                continue;
            }
            let is_here = self.overlay.get(&directory, name).is_some();
            let key = self.core.hierarchy.ordinary_prefix(path)?.key(name)?;
            if is_here || self.core.hierarchy.store().stat(&key)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn new_ordinary(&self, path: &NodePath, directory: &Place, name: &str) -> Result<Place> {
        let relative = below(directory, name);
        if name == DOCUMENT {
            let detail = "the name of a metadata file: an array cannot contain nodes";
            return Err(Error::new(Kind::NotPermitted, detail).at(below_shown(directory, name)));
        }
        if self.ordinary.is_reserved(path, &relative)? {
            let detail = "the store has the array's chunks under this name; write to c/...";
            return Err(Error::new(Kind::NotPermitted, detail).at(below_shown(directory, name)));
        }
        if name.len() > 255 {
            return Err(Error::new(
                Kind::Os(libc::ENAMETOOLONG),
                "the name is longer than 255 bytes",
            ));
        }
        self.core.hierarchy.ordinary_prefix(path)?.key(&relative)?;
        Ok(Place::Ordinary(path.clone(), relative))
    }
}

fn refused(directory: &Place, name: &str, why: &str) -> Result<Place> {
    let path = below_shown(directory, name);
    Err(Error::new(Kind::NotPermitted, why.to_owned()).at(path))
}
