//! Edits that turn the string that a program wrote into the stored one, for several dialects.

use serde_json::Value;

use crate::metadata::model::Levels;
use crate::metadata::policy::ShardGrid;
use zarrfs_base::error::Result;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::DType;
use zarrfs_codec::json::{Object, Text};

/// The storage of a new array.
pub(super) struct New {
    /// The codecs of a chunk.
    pub chain: Vec<CodecSpec>,
    /// Whether the codecs stay as the program wrote them.
    pub is_as_written: bool,
    /// The chunks that the program writes.
    pub chunk_shape: Vec<u64>,
    /// The shards, if there are any.
    pub shards: Option<ShardGrid>,
    /// The levels of sharding that the policy added, if the codecs are those of the array's maker;
    /// `None` if the policy chose the codecs.
    pub encoded: Option<Levels>,
}

/// Sets the member `name`, unless it already has this value.
pub(super) fn put(text: &mut Text, document: &Object, name: &str, value: &Value) -> Result<()> {
    if document.get(name) == Some(value) { Ok(()) } else { text.set(&[name], value) }
}

/// Sets the fill value to `canonical`, unless it is a number in a valid spelling of its type.
pub(super) fn put_fill(
    text: &mut Text,
    document: &Object,
    dtype: &DType,
    canonical: &Value,
) -> Result<()> {
    let is_number = |value: &Value| canonical.is_number() && value.is_number();
    let digits = |value: &Value| value.to_string().trim_start_matches('-').parse::<u64>().is_ok();
    let kept = document.get("fill_value").is_some_and(|written| match dtype {
        DType::Int(_) | DType::Uint(_) => is_number(written) && digits(written),
        DType::Float(_) => is_number(written),
        DType::Complex(_) => {
            let numbers = |value: &Value| {
                value.as_array().is_some_and(|parts| parts.iter().all(Value::is_number))
            };
            numbers(written) && numbers(canonical)
        }
        DType::Raw(_) => written.is_array() && written == canonical,
        _ => written == canonical,
    });
    if kept { Ok(()) } else { text.set(&["fill_value"], canonical) }
}

/// Adds attributes if they are absent.
pub(super) fn put_attributes(text: &mut Text, document: &Object) -> Result<()> {
    match document.get("attributes") {
        None | Some(Value::Null) => text.set(&["attributes"], &Value::Object(Object::new())),
        Some(_) => Ok(()),
    }
}
