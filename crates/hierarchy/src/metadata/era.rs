//! The drafts of 2019 to 2022, which differ in where metadata files and chunks lie.

use super::path::NodePath;
use zarrfs_base::error::Result;

/// A draft whose metadata files and chunks lie in separate trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The version of the draft.
    pub era: Era,
    /// The suffix of the key of every metadata file: `.json`.
    pub suffix: String,
    /// The node at the root of the mount. A draft has one place for all its metadata files,
    /// whichever node is opened.
    pub base: NodePath,
    /// The directory of its entry point, if that lies in a folder of hierarchies. Paths of nodes
    /// begin with it.
    pub folder: NodePath,
}

impl Draft {
    /// Returns the path of a node from the root of the whole hierarchy.
    pub(super) fn whole(&self, path: &NodePath) -> Result<NodePath> {
        let below = path.relative_to(&self.folder).unwrap_or(path.as_str());
        self.base.join(below)
    }

    /// Returns the prefix of a tree of keys.
    pub(super) fn tree(&self, tree: &str) -> String {
        if self.folder.is_root() {
            tree.to_owned()
        } else {
            format!("{}/{tree}", self.folder.as_str())
        }
    }
}

/// The versions of the draft that differ in where metadata files and chunks lie, and in the names
/// of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// May 2019: no entry point.
    D2019_05,
    /// June 2019 to September 2020.
    D2019_06,
    /// September 2020: metadata files have no suffix.
    D2020_09,
    /// October 2020 to November 2022, with the sharding of 2022.
    D2020_10,
    /// November 2022: the keys of 2020, other metadata files.
    D2022_11,
    /// December 2022 to February 2023.
    D2022_12,
}

impl Era {
    pub(super) const ALL: [Self; 6] = [
        Self::D2019_05,
        Self::D2019_06,
        Self::D2020_09,
        Self::D2020_10,
        Self::D2022_11,
        Self::D2022_12,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::D2019_05 => "d2019-05",
            Self::D2019_06 => "d2019-06",
            Self::D2020_09 => "d2020-09",
            Self::D2020_10 => "d2020-10",
            Self::D2022_11 => "d2022-11",
            Self::D2022_12 => "d2022-12",
        }
    }

    /// Returns the suffix of the keys of metadata files in a new hierarchy.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::D2019_06 | Self::D2020_09 => "",
            Self::D2019_05 | Self::D2020_10 | Self::D2022_11 | Self::D2022_12 => ".json",
        }
    }

    /// Returns the prefixes of the metadata files of all nodes but the root, and of the chunks.
    pub(super) fn trees(self) -> (&'static str, &'static str) {
        match self {
            Self::D2019_05 | Self::D2022_12 => ("meta/", "data/"),
            Self::D2019_06 => ("meta/root/", "data/"),
            Self::D2020_09 | Self::D2020_10 | Self::D2022_11 => ("meta/root/", "data/root/"),
        }
    }

    /// Returns the stems of the keys of the root's metadata files. xtensor-zarr gives the root the
    /// key of a child with an empty name.
    pub(super) fn root_stems(self) -> &'static [&'static str] {
        match self {
            Self::D2019_05 => &["root."],
            Self::D2019_06 => &["meta/root."],
            Self::D2020_09 | Self::D2020_10 | Self::D2022_11 => &["meta/root.", "meta/root/."],
            Self::D2022_12 => &["meta/"],
        }
    }

    /// Whether names in a group must differ in more than the case of their letters (until July
    /// 2020).
    pub(super) fn folds_case(self) -> bool {
        matches!(self, Self::D2019_05 | Self::D2019_06)
    }
}
