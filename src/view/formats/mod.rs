//! The formats: each says what file a node is in it, or why it is none.

mod hdf5;
mod nc;
mod npy;
mod raw;

use super::{Source, View};
use crate::error::Result;
use crate::metadata::NodeKind;

/// What nodes a format is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// Arrays.
    Arrays,
    /// Groups, with what lies in them.
    Groups,
    /// Both.
    All,
}

/// A format.
#[derive(Debug)]
pub struct Format {
    /// What stands behind the name of the node, without the dot.
    pub extension: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    /// What it is for.
    pub nodes: Nodes,
    /// The file that a node is; [`Kind::Unsupported`](crate::error::Kind::Unsupported) with the reason where it is none.
    build: fn(&Source<'_>) -> Result<View>,
}

/// All formats, in the order in which they are listed. A name that ends with several of the extensions is of the longest.
pub const FORMATS: &[Format] = &[
    Format {
        extension: "npy",
        what: "NumPy array (np.load, mmap_mode)",
        nodes: Nodes::Arrays,
        build: npy::build,
    },
    Format {
        extension: "raw",
        what: "the elements alone, little endian, C order",
        nodes: Nodes::Arrays,
        build: raw::build,
    },
    Format {
        extension: "nc",
        what: "netCDF classic (CDF-2, or CDF-5 where that cannot hold it)",
        nodes: Nodes::All,
        build: nc::build,
    },
    Format { extension: "nc4", what: "netCDF-4", nodes: Nodes::All, build: hdf5::build_nc4 },
    Format {
        extension: "h5",
        what: "HDF5, of library version 1.10 and later",
        nodes: Nodes::All,
        build: hdf5::build_h5,
    },
];

impl Format {
    /// The format of this name.
    pub fn of_extension(extension: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.extension == extension)
    }

    /// The name of the node and the format, of a file name that ends with the extension of one.
    pub fn split(name: &str) -> Option<(&str, &'static Self)> {
        let stem = |format: &'static Self| {
            let stem = name.strip_suffix(format.extension)?.strip_suffix('.')?;
            (!stem.is_empty()).then_some((stem, format))
        };
        FORMATS.iter().filter_map(stem).min_by_key(|(stem, _)| stem.len())
    }

    /// Whether it is for nodes of this kind.
    pub fn is_for(&self, kind: NodeKind) -> bool {
        match self.nodes {
            Nodes::Arrays => kind == NodeKind::Array,
            Nodes::Groups => kind == NodeKind::Group,
            Nodes::All => true,
        }
    }

    /// The file that a node is.
    pub fn view(&self, source: &Source<'_>) -> Result<View> {
        (self.build)(source)
    }
}
