//! A new file, or a view, that is opened like any file of its format.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::place::RewrittenView;
use crate::array::{Array, Coords};
use crate::error::{Error, Result};
use crate::files::{self, FileFormat};
use crate::hierarchy::{Bounds, Content, Hierarchy, HierarchyOptions, Node};
use crate::metadata::{Dialect, NodePath};
use crate::resources;
use crate::store::refs::{SourceStores, Spelling};
use crate::store::unnamed::UnnamedFile;
use crate::store::{Key, Prefix};
use crate::view::Format;
use crate::width::ToUsize;

/// Opens the bytes of a file as they are now, as a hierarchy. Arrays without a name of their own
/// get that of the file.
pub fn as_hierarchy(file: &UnnamedFile, name: &str) -> Result<Hierarchy> {
    let key = Key::parse(name)?;
    let own = file.as_store(key.clone())?;
    let places = SourceStores::new(own.clone(), Spelling::Plain);
    let most = resources::memory_limit() / 16;
    let store = files::open(&own, &key, Prefix::root(), places, most)
        .map_err(|error| Error::new(error.kind(), error.detail().to_owned()))?;
    Hierarchy::open(store, Some(Dialect::V3), HierarchyOptions::default())
}

/// Fails if something of a file was not seen so far: values that lie in other files, for example.
pub fn check_seen(file: &Hierarchy) -> Result<()> {
    match file.store().omissions().all().omissions.first() {
        None => Ok(()),
        Some(omission) => {
            Err(Error::invalid(format!("not all of the file can be read: {omission}")))
        }
    }
}

/// A file of the format of a view, as a hierarchy.
#[derive(Debug)]
pub(super) struct FileNodes {
    hierarchy: Hierarchy,
    format: Option<FileFormat>,
    /// All nodes, by their paths.
    nodes: BTreeMap<String, Arc<Node>>,
}

impl FileNodes {
    /// Opens the bytes of a file as they are now.
    pub fn open(file: &UnnamedFile, format: &Format) -> Result<Self> {
        let first = file.read(0, files::FIRST_LEN.to_usize())?;
        let hierarchy = as_hierarchy(file, &format!("file.{}", format.extension))?;
        let mut nodes = BTreeMap::new();
        nodes.insert(String::new(), hierarchy.existing(&NodePath::root())?);
        for node in hierarchy.walk_below(&NodePath::root(), Bounds::stream()) {
            let node = node?;
            nodes.insert(node.path().as_str().to_owned(), node);
        }
        Ok(Self { hierarchy, format: FileFormat::of_first_bytes(&first), nodes })
    }

    /// Opens a view as any file of its format, without its elements.
    pub fn of_view(view: RewrittenView<'_>) -> Result<Self> {
        let mut file = UnnamedFile::make()?;
        view.view.for_each_other_part(view.get, &mut |offset, bytes| file.write(offset, bytes))?;
        file.set_len(view.view.len())?;
        Self::open(&file, view.format)
    }

    /// Like [`check_seen`], for this file.
    pub fn check_seen(&self) -> Result<()> {
        check_seen(&self.hierarchy)
    }

    /// Whether files of both formats have the same words for the same things.
    pub fn is_of_same_kind(&self, other: &Self) -> bool {
        self.format == other.format || self.is_netcdf() && other.is_netcdf()
    }

    /// Whether it is netCDF or HDF5: all that it has are named variables and their attributes.
    pub fn is_netcdf(&self) -> bool {
        matches!(self.format, Some(FileFormat::NetCdf3 | FileFormat::Hdf5))
    }

    /// Returns the offset and the length of the bytes of a chunk in the file; `None` if it has
    /// none.
    pub fn part_of(&self, array: &Array, coords: &Coords) -> Result<Option<(u64, u64)>> {
        self.hierarchy.store().read().part_of(&array.key(coords)?)
    }

    /// Returns the groups by their paths.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Arc<Node>)> {
        let is_group = |node: &Node| matches!(node.content(), Content::Group(_));
        let nodes = self.nodes.iter().filter(move |(_, node)| is_group(node));
        nodes.map(|(path, node)| (path.as_str(), node))
    }

    /// Returns each array of this file, a view, with that of a new file. CDO leaves out variables
    /// without dimensions, such as the one that a grid mapping names: what a new file lacks stays.
    /// `is_header` tells arrays that are a header.
    pub fn pairs_with(
        &self,
        new: &Self,
        is_header: &dyn Fn(&Node) -> bool,
    ) -> Result<Vec<ArrayPair>> {
        let mut pairs = Vec::new();
        for (name, old) in self.arrays().filter(|(_, old)| self.is_netcdf() || !is_header(old)) {
            let Some(found) = new.nodes.get(name) else {
                log::info!("the new file lacks the variable {name:?}, which stays as it is");
                continue;
            };
            let pair =
                ArrayPair { name: name.to_owned(), old: Arc::clone(old), new: Arc::clone(found) };
            pair.check(self.is_netcdf()).map_err(|error| in_variable(name, &error))?;
            pairs.push(pair);
        }
        match new.arrays().find(|(name, _)| !self.nodes.contains_key(*name)) {
            Some((name, _)) => Err(Error::invalid(format!(
                "the new file has a variable {name:?} that the store lacks: leave it out, or give \
                 the file another name and use `zarrfs import`"
            ))),
            None if pairs.is_empty() => Err(Error::invalid("the new file has no variable")),
            None => Ok(pairs),
        }
    }

    fn arrays(&self) -> impl Iterator<Item = (&str, &Arc<Node>)> {
        let is_array = |node: &Node| !matches!(node.content(), Content::Group(_));
        let nodes = self.nodes.iter().filter(move |(_, node)| is_array(node));
        nodes.map(|(path, node)| (path.as_str(), node))
    }
}

/// An array that a view shows, and the one of the new file.
#[derive(Debug)]
pub(super) struct ArrayPair {
    /// The name in both files.
    pub name: String,
    /// As the view has it.
    pub old: Arc<Node>,
    /// As the new file has it.
    pub new: Arc<Node>,
}

impl ArrayPair {
    /// Fails if the new array has another shape, or dimensions with other names if these are part
    /// of the format, or cannot be read.
    fn check(&self, has_names: bool) -> Result<()> {
        let of = |node: &Node| match node.content() {
            Content::NotUnderstood(_, error) => Err(error.clone()),
            content => match content.array() {
                Some(array) => match array.not_understood() {
                    Some(error) => Err(error.clone()),
                    None => Ok(Arc::clone(array)),
                },
                None => Err(Error::invalid("it is a group in the new file")),
            },
        };
        let (old, new) = (of(&self.old)?, of(&self.new)?);
        let (old, new) = (old.model(), new.model());
        if old.shape != new.shape {
            return Err(Error::invalid(format!(
                "the new file has the shape {:?}, and the array {:?}: to append, give the file \
                 another name and use `zarrfs import`",
                new.shape, old.shape
            )));
        }
        let both = old.dimension_names.iter().zip(&new.dimension_names);
        let is_other = |(old, new): &(&Option<String>, &Option<String>)| {
            old.is_some() && new.is_some() && old != new
        };
        // Where names are guessed, one may differ: two could have changed places.
        let others = both.filter(is_other).count();
        if others > usize::from(!has_names) {
            return Err(Error::invalid(format!(
                "its dimensions have other names in the new file: {}, and not {}",
                listed(&new.dimension_names),
                listed(&old.dimension_names)
            )));
        }
        Ok(())
    }
}

/// Returns names of dimensions for a message.
fn listed(names: &[Option<String>]) -> String {
    let names = names.iter().map(|name| name.as_deref().unwrap_or("?"));
    names.collect::<Vec<_>>().join(", ")
}

/// Returns an error about a variable of the new file.
pub(super) fn in_variable(name: &str, error: &Error) -> Error {
    if name.is_empty() {
        return Error::new(error.kind(), error.detail().to_owned());
    }
    Error::new(error.kind(), format!("the variable {name}: {}", error.detail()))
}
