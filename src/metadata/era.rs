//! The drafts of 2019 to 2022, which differ in where metadata files and chunks lie.

use super::path::NodePath;
use crate::error::Result;

/// A draft whose documents and chunks lie in trees of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// When it was the text.
    pub era: Era,
    /// What ends the key of every document: `.json`.
    pub suffix: String,
    /// The node that is taken for the root: a draft has one place for its documents, whatever is
    /// looked at.
    pub base: NodePath,
}

impl Draft {
    /// Returns the path of a node from the root of the whole.
    pub(super) fn whole(&self, path: &NodePath) -> Result<NodePath> {
        self.base.join(path.as_str())
    }
}

/// The states of the draft that differ in where documents and chunks lie, and in how chunks are
/// named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Of May 2019: no entry point.
    D2019_05,
    /// Of June 2019 to September 2020.
    D2019_06,
    /// Of September 2020: documents have no suffix.
    D2020_09,
    /// Of October 2020 to November 2022, with the sharding of 2022.
    D2020_10,
    /// Of November 2022: the keys of 2020, other documents.
    D2022_11,
    /// Of December 2022 to February 2023.
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

    /// What ends the keys of documents in a new hierarchy.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::D2019_06 | Self::D2020_09 => "",
            Self::D2019_05 | Self::D2020_10 | Self::D2022_11 | Self::D2022_12 => ".json",
        }
    }

    /// Where the documents of all nodes but the root's lie, and where the chunks.
    pub(super) fn trees(self) -> (&'static str, &'static str) {
        match self {
            Self::D2019_05 | Self::D2022_12 => ("meta/", "data/"),
            Self::D2019_06 => ("meta/root/", "data/"),
            Self::D2020_09 | Self::D2020_10 | Self::D2022_11 => ("meta/root/", "data/root/"),
        }
    }

    /// What the keys of the root's documents begin with; xtensor-zarr gives the root's document the
    /// key of a child without a name.
    pub(super) fn root_stems(self) -> &'static [&'static str] {
        match self {
            Self::D2019_05 => &["root."],
            Self::D2019_06 => &["meta/root."],
            Self::D2020_09 | Self::D2020_10 | Self::D2022_11 => &["meta/root.", "meta/root/."],
            Self::D2022_12 => &["meta/"],
        }
    }

    /// Whether no two names in a group may differ in the case of their letters alone (until July
    /// 2020).
    pub(super) fn folds_case(self) -> bool {
        matches!(self, Self::D2019_05 | Self::D2019_06)
    }
}
