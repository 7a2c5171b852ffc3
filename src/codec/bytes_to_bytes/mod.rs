//! Codecs from bytes to bytes, one file each.
use crate::codec::BytesToBytes;
use crate::error::Result;
use crate::metadata::model::Object;
pub fn build(_: &str, _: &Object) -> Result<Option<Box<dyn BytesToBytes>>> {
    Ok(None)
}
