//! The names of an array's chunk files, by the chunk key encoding that its metadata file shows.
//!
//! The places of chunks lie in directories as in `c/0/1`, the `default` encoding of Zarr 3 with `/`
//! (Zarr 3.0, section "Chunk key encoding"). Names of other encodings lead to the same places:
//! `c.0.1`, `0.1` and `0/1`.

use super::place::{CHUNKS, Place};
use crate::array::{Coords, encode_key, parse_index};
use crate::error::Result;
use crate::metadata::NodePath;
use crate::metadata::model::{KeyEncoding, Separator};
use crate::vfs::core::Core;
use crate::vfs::options::Presentation;

/// Where a name leads.
pub(in crate::vfs) enum ChunkName {
    /// To the place of the same name.
    Same,
    /// To the place of another name, perhaps in another directory.
    As(Place, String),
    /// To attributes or consolidated metadata.
    Beside(Place),
    /// Nowhere.
    Nothing,
}

/// The names of the chunk files of an array.
#[derive(Debug, Clone, Copy)]
pub(in crate::vfs) struct ChunkNames {
    keys: KeyEncoding,
    rank: usize,
}

impl ChunkNames {
    /// Returns those of the array at `path`, which has `rank` dimensions.
    pub fn of(core: &Core, path: &NodePath, rank: usize) -> Self {
        let of_mount = match core.form_of(path) {
            Presentation::Zarr2 => KeyEncoding::V2(Separator::Dot),
            Presentation::Zarr3 | Presentation::View(_) => KeyEncoding::default(),
        };
        Self { keys: core.hierarchy.forms.keys(path).unwrap_or(of_mount), rank }
    }

    /// Returns those of the array at `path`; `None` if it is none.
    pub fn at(core: &Core, path: &NodePath) -> Result<Option<Self>> {
        let node = core.hierarchy.existing(path)?;
        let rank = node.array().map(|array| array.grid().rank());
        Ok(rank.map(|rank| Self::of(core, path, rank)))
    }

    /// Returns those that any array can have.
    pub fn all() -> [Self; 4] {
        let of = |keys| Self { keys, rank: 0 };
        let separators = [Separator::Slash, Separator::Dot];
        let [slash, dot] = separators.map(|separator| of(KeyEncoding::Default(separator)));
        let [v2_slash, v2_dot] = separators.map(|separator| of(KeyEncoding::V2(separator)));
        [slash, dot, v2_slash, v2_dot]
    }

    /// Whether names are those of places.
    pub fn are_of_places(self) -> bool {
        self.keys == KeyEncoding::default()
    }

    /// Whether chunks are in directories, one for each dimension but the last.
    pub fn has_directories(self) -> bool {
        self.keys.separator() == Separator::Slash
    }

    /// Returns where `name` in the directory of the array at `path` leads.
    pub fn translate(self, path: &NodePath, name: &str) -> ChunkName {
        if self.are_of_places() {
            return ChunkName::Same;
        }
        let found = if self.rank > 0 && self.has_directories() {
            parse_index(name).map(|index| vec![index])
        } else {
            self.parse(name).filter(|indices| indices.len() == self.rank)
        };
        match found {
            Some(mut indices) => match indices.pop() {
                Some(last) => {
                    ChunkName::As(Place::ChunkDir(path.clone(), indices), last.to_string())
                }
                None => ChunkName::As(Place::Node(path.clone()), CHUNKS.to_owned()),
            },
            None if name == CHUNKS => ChunkName::Nothing,
            None => ChunkName::Same,
        }
    }

    /// Returns the name of a chunk in the directory of its array.
    pub fn name_of(self, coords: &Coords) -> String {
        encode_key(self.keys, coords.indices())
    }

    /// Returns the place of the directory `relative` below the array at `path`: of chunks if the
    /// name fits, else of ordinary files.
    pub fn directory_at(self, path: &NodePath, relative: &str) -> Place {
        match self.parse(relative).filter(|_| self.has_directories()) {
            Some(indices) => Place::ChunkDir(path.clone(), indices),
            None => Place::OrdinaryDir(path.clone(), relative.to_owned()),
        }
    }

    /// Returns the place of the file `relative` below the array at `path`: a chunk if the name
    /// fits, perhaps one that the array cannot have, else an ordinary file.
    pub fn file_at(self, path: &NodePath, relative: &str) -> Place {
        match self.parse(relative) {
            Some(indices) => Place::Chunk(path.clone(), Coords::new(indices)),
            None => Place::Ordinary(path.clone(), relative.to_owned()),
        }
    }

    /// Parses the name of any number of first indices.
    fn parse(self, relative: &str) -> Option<Vec<u64>> {
        if self.rank == 0 && relative == encode_key(self.keys, &[]) {
            return Some(Vec::new());
        }
        let separator = self.keys.separator().as_str();
        let indices = match self.keys {
            KeyEncoding::Default(_) => match relative.strip_prefix(CHUNKS)? {
                "" if self.has_directories() => return Some(Vec::new()),
                indices => indices.strip_prefix(separator)?,
            },
            _ => relative,
        };
        indices.split(separator).map(parse_index).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_encoding_lead_to_the_same_places() {
        let path = NodePath::parse("a").expect("a path");
        let chunk = |indices: &[u64]| Place::Chunk(path.clone(), Coords::new(indices));
        let directory = |indices: &[u64]| Place::ChunkDir(path.clone(), indices.to_vec());
        for (keys, name, scalar) in [
            (KeyEncoding::Default(Separator::Slash), "c/1/23", "c"),
            (KeyEncoding::Default(Separator::Dot), "c.1.23", "c"),
            (KeyEncoding::V2(Separator::Slash), "1/23", "0"),
            (KeyEncoding::V2(Separator::Dot), "1.23", "0"),
        ] {
            let names = ChunkNames { keys, rank: 2 };
            assert_eq!(names.file_at(&path, name), chunk(&[1, 23]), "{name}");
            assert_eq!(names.name_of(&Coords::new([1, 23])), name);
            let above = name.rsplit_once('/').map(|(above, _)| above);
            if let Some(above) = above {
                assert_eq!(names.directory_at(&path, above), directory(&[1]), "{above}");
            }
            assert!(matches!(names.file_at(&path, "c/01"), Place::Ordinary(..)), "{name}");
            let scalars = ChunkNames { keys, rank: 0 };
            assert_eq!(scalars.file_at(&path, scalar), chunk(&[]), "{scalar}");
        }
    }
}
