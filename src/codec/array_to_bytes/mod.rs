//! Codecs from array to bytes, one file each, and the one table of their names.

mod bytes;
mod n5;
mod objects;
mod packbits;
mod pcodec;
pub mod vlen;

pub use bytes::{BytesCodec, Turn};
pub use n5::N5Default;
pub use objects::Objects;
pub use packbits::PackBits;
pub use pcodec::Pcodec;
use vlen::Vlen;

use super::{ArrayToBytes, Elements};
use crate::error::{Error, Result};
use crate::metadata::model::CodecSpec;

/// Whether `name` is that of a codec from array to bytes.
pub fn is_known(name: &str) -> bool {
    matches!(
        name,
        "bytes"
            | "n5_default"
            | "numcodecs.json2"
            | "numcodecs.msgpack2"
            | "numcodecs.pcodec"
            | "numcodecs.pickle"
            | "packbits"
            | "vlen-bytes"
            | "vlen-utf8"
    )
}

/// The codec of that registered name, bound to chunks of `elements`; `None` for a name of another kind of codec or of
/// one that zarrfs does not have. A chunk whose length is not settled by its shape may have `limit` bytes.
pub fn build(
    spec: &CodecSpec,
    elements: &Elements,
    limit: usize,
) -> Result<Option<Box<dyn ArrayToBytes>>> {
    let codec: Box<dyn ArrayToBytes> = match spec.name.as_str() {
        "bytes" => Box::new(BytesCodec::new(&spec.configuration, elements)?),
        "n5_default" => Box::new(N5Default::new(&spec.configuration, elements)?),
        "numcodecs.json2" => Box::new(Objects::json(&spec.configuration, elements, limit)?),
        "numcodecs.msgpack2" => Box::new(Objects::message_pack(elements, limit)?),
        "numcodecs.pcodec" => Box::new(Pcodec::new(&spec.configuration, elements)?),
        "numcodecs.pickle" => {
            return Err(Error::unsupported("pickle is never decoded: it would run code"));
        }
        "packbits" => Box::new(PackBits::new(&spec.configuration, elements)?),
        name @ ("vlen-utf8" | "vlen-bytes") => Box::new(Vlen::new(name, elements, limit)?),
        _ => return Ok(None),
    };
    Ok(Some(codec))
}
