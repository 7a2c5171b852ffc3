//! Metadata files of other dialects beside those of a node: tools that migrate a store leave them
//! behind, and some programs write both.

use super::dialect::Dialect;
use super::model::{self, NodeKind};
use super::{n5, v2, v3};
use zarrfs_base::error::Result;
use zarrfs_codec::json;
use zarrfs_store::Key;

/// A metadata file of another dialect.
#[derive(Debug)]
pub struct OtherFile {
    /// The name of its dialect.
    pub dialect: &'static str,
    /// The array that it describes, if it describes one.
    pub array: Option<Result<Box<model::ArrayMetadata>>>,
}

impl Dialect {
    /// Whether a metadata file of another dialect may have this key.
    pub fn may_be_of_other(&self, key: &Key) -> bool {
        let is_own = |name| self.is_reserved(name);
        !is_own(key.name())
            && matches!(
                key.name(),
                v3::DOCUMENT | v2::ZARRAY | v2::ZGROUP | v2::ZATTRS | v2::ZMETADATA | n5::DOCUMENT
            )
    }

    /// Whether a key is that of a metadata file that makes a directory a node in another version
    /// of Zarr.
    pub fn is_node_of_other(&self, key: &Key) -> bool {
        self.may_be_of_other(key) && matches!(key.name(), v3::DOCUMENT | v2::ZARRAY | v2::ZGROUP)
    }

    /// Parses a metadata file of another dialect; `None` if the file is not one.
    pub fn other_file(&self, key: &Key, text: &[u8]) -> Option<OtherFile> {
        let (dialect, kind) = match key.name() {
            v3::DOCUMENT => (Self::V3, None),
            v2::ZARRAY => (Self::V2, Some(NodeKind::Array)),
            v2::ZGROUP | v2::ZATTRS | v2::ZMETADATA => {
                return Some(OtherFile { dialect: Self::V2.name(), array: None });
            }
            n5::DOCUMENT => {
                let members = json::parse_object(text).ok()?;
                if !members.contains_key("n5") && !members.contains_key("dimensions") {
                    return None;
                }
                (Self::N5, None)
            }
            _ => return None,
        };
        let array = match dialect.lower(kind, text).node {
            Ok(model::NodeMetadata::Array(array)) => Some(Ok(array)),
            Ok(model::NodeMetadata::Group(_)) => None,
            Err(error) => Some(Err(error)),
        };
        Some(OtherFile { dialect: dialect.name(), array })
    }
}
