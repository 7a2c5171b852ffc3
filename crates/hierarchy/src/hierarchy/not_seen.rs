//! The places of a hierarchy that a command did not see, as it says at its end.

use super::nodes::Hierarchy;
use crate::array::parse_index;
use crate::metadata::{DOCUMENT_NAMES, NodePath};
use zarrfs_base::error::Result;
use zarrfs_store::NotSeen;

/// How much a command has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadExtent {
    /// Metadata only.
    Metadata,
    /// All values of the nodes and of their chunks.
    Values,
}

impl Hierarchy {
    /// Returns what a command that has read `seen` of the nodes at `tops` and below did not see. A
    /// store that has each name twice compares the names of those values that belong to no node or
    /// chunk: they may have been one.
    pub fn not_seen(&self, tops: &[NodePath], seen: ReadExtent) -> Result<NotSeen> {
        let is_below = |key: &str| {
            tops.iter().any(|top| {
                let rest = key.strip_prefix(top.as_str());
                rest.is_some_and(|rest| top.is_root() || rest.starts_with('/'))
            })
        };
        let is_wanted = |key: &str| {
            let name = key.rsplit('/').next().unwrap_or(key);
            (seen == ReadExtent::Values && is_below(key))
                || !(is_like_chunk(name) || DOCUMENT_NAMES.contains(&name))
        };
        self.store().read().note_misnamed(&is_wanted)?;
        Ok(self.store().omissions().around(tops.iter().map(NodePath::as_str)))
    }
}

/// Whether a name is like the last part of the key of a chunk: `0`, `0.12`, `c.0.1`, `c0`.
pub fn is_like_chunk(name: &str) -> bool {
    let rest = name.strip_prefix("c.").or_else(|| name.strip_prefix('c')).unwrap_or(name);
    rest.split('.').all(|part| parse_index(part).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_chunks_have_indices_and_nothing_else() {
        for name in ["0", "12", "0.0", "c.0.1", "c0", "c12"] {
            assert!(is_like_chunk(name), "{name}");
        }
        for name in ["c", "zarr.json", "0.x", "01", "data", "1.", ""] {
            assert!(!is_like_chunk(name), "{name}");
        }
    }
}
