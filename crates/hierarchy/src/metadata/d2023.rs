//! The draft of February 2023: a `zarr.json` in every directory of a node, whose `zarr_format` is a
//! URI that ends in `#array` or `#group`.
//!
//! Everything else is as in provisional v3 metadata files: `type` instead of `name`, type names of
//! either kind, and the separator in the chunk grid.

use serde_json::{Value, json};

use super::model::{Lowered, NodeKind, NodeMetadata};
use super::v3;
use zarrfs_base::error::{Error, Result};

/// The start of `zarr_format` in every metadata file.
const FORMAT: &str = "https://purl.org/zarr/spec/v3";

/// Returns the node that a metadata file describes.
pub(super) fn lower(text: &[u8]) -> Lowered {
    let document = match zarrfs_codec::json::parse_object(text) {
        Ok(document) => document,
        Err(error) => return Lowered { kind: NodeKind::Group, node: Err(error) },
    };
    let format = document.get("zarr_format").and_then(Value::as_str).unwrap_or_default();
    let kind = match format.rsplit_once('#') {
        Some((_, "array")) => Some(NodeKind::Array),
        Some((_, "group")) => Some(NodeKind::Group),
        // Metadata files that released programs have added are read as v3.
        _ if document.get("zarr_format").is_some_and(Value::is_number) => return v3::lower(text),
        _ => None,
    };
    let node: Result<NodeMetadata> = match kind {
        Some(NodeKind::Array) => {
            v3::array(&document).map(|array| NodeMetadata::Array(Box::new(array)))
        }
        Some(NodeKind::Group) => v3::group(&document).map(NodeMetadata::Group),
        None => Err(Error::unsupported(format!("zarr_format {format:?} is not known"))),
    };
    Lowered { kind: kind.unwrap_or(NodeKind::Group), node }
}

/// Returns the metadata file of a group without attributes.
pub(super) fn group_document() -> String {
    format!("{:#}\n", json!({"zarr_format": format!("{FORMAT}#group"), "attributes": {}}))
}
