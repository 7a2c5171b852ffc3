//! Has the kernel forget names: of files that have gone, and those that the table of inodes has no
//! room for.
//!
//! The kernel keeps a name for as long as it has memory, and zarrfs an inode for each of them. A
//! shard of some megabytes may have millions of chunks, and `ls` looks each of them up.

use super::Names;
use crate::array::Coords;
use crate::limits;
use crate::metadata::NodePath;
use crate::vfs::core::Outdated;
use crate::vfs::inodes::chunk_names::ChunkNames;
use crate::vfs::inodes::place::{Place, ZARRAY, ZGROUP};
use crate::vfs::options::Presentation;

impl Names {
    /// Has the kernel forget the inodes that exceed the limit.
    pub fn shrink(&self) {
        let most = limits::NAMES.get_usize();
        if self.inodes.len() <= most {
            return;
        }
        for place in self.inodes.surplus(most) {
            self.forget_names(&place);
        }
    }

    /// Has the kernel forget the names of a place.
    pub fn forget_names(&self, place: &Place) {
        let (directory, names) = self.names_of(place);
        // Without an inode, the kernel knows no name in it either.
        let Some(directory) = self.inodes.known_at(&directory) else { return };
        for name in names {
            self.core.outdate(Outdated::Name(directory.number(), name));
        }
    }

    /// Whether there are far more inodes than the limit.
    pub fn has_many(&self) -> bool {
        let most = limits::NAMES.get_usize();
        self.inodes.len() > most.saturating_add(most / 8)
    }

    /// Returns the directory of a place, and the names in it by which the kernel may know it.
    fn names_of(&self, place: &Place) -> (Place, Vec<String>) {
        let named = match place {
            Place::Chunk(path, coords) => self.name_of_chunk(path, coords.indices(), false),
            Place::ChunkDir(path, prefix) => self.name_of_chunk(path, prefix, true),
            Place::Document(path) if self.core.form_of(path) == Presentation::Zarr2 => {
                return (Place::Node(path.clone()), vec![ZARRAY.to_owned(), ZGROUP.to_owned()]);
            }
            _ => None,
        };
        let (directory, name) = named.unwrap_or_else(|| (place.parent(), place.name()));
        (directory, name.into_iter().collect())
    }

    /// Returns the directory and the name of a chunk or a directory of chunks, if these are not
    /// the ones of its place.
    fn name_of_chunk(
        &self,
        path: &NodePath,
        indices: &[u64],
        is_dir: bool,
    ) -> Option<(Place, Option<String>)> {
        let rank = indices.len().saturating_add(usize::from(is_dir));
        let names = ChunkNames::of(&self.core, path, rank);
        if names.are_of_places() {
            return None;
        }
        match indices.split_last() {
            Some((last, above)) if names.has_directories() => {
                let directory = match above {
                    [] => Place::Node(path.clone()),
                    above => Place::ChunkDir(path.clone(), above.to_vec()),
                };
                Some((directory, Some(last.to_string())))
            }
            _ if is_dir => Some((Place::Node(path.clone()), None)),
            _ => Some((Place::Node(path.clone()), Some(names.name_of(&Coords::new(indices))))),
        }
    }
}
