//! `conditional` {codecs}: compressors that each chunk may skip, and flags for the skipped ones.
//!
//! ```text
//! bits  one per codec, 1 if it was applied; the first codec has the lowest bit of byte 0
//! ..    the payload
//! ```
//!
//! A codec is applied unless it makes the payload longer. Length: depends on the values.
//!
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/conditional>

use serde_json::Value;

use super::stream::{room, too_long};
use crate::json::Object;
use crate::kinds::BytesToBytes;
use crate::row::FindBytes;
use crate::spec::CodecSpec;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::limits;

/// An intermediate form may be longer than twice the payload by at most this many bytes.
const SLACK: usize = 1 << 20;

/// The codec `conditional`.
#[derive(Debug)]
pub struct Conditional {
    codecs: Vec<Box<dyn BytesToBytes>>,
}

impl Conditional {
    /// Returns the codec with this configuration. `find` finds the codecs in its list.
    pub fn new(configuration: &Object, find: FindBytes) -> Result<Self> {
        let list = configuration.get("codecs").and_then(Value::as_array);
        let list = list.filter(|list| !limits::CODECS.is_exceeded_by(list.len()));
        let list = list.ok_or_else(|| {
            Error::invalid(format!(
                "conditional: codecs is not a list, or too long: {}",
                limits::CODECS
            ))
        })?;
        let build = |value: &Value| {
            let spec = CodecSpec::from_json(value)?;
            match find(&spec.name).filter(|_| spec.name != "conditional") {
                Some(build) => build(&spec.configuration),
                None => Err(Error::unsupported(format!(
                    "conditional: codec {:?} cannot be in its list",
                    spec.name
                ))),
            }
        };
        Ok(Self { codecs: list.iter().map(build).collect::<Result<_>>()? })
    }
}

impl BytesToBytes for Conditional {
    fn encoder_memory(&self, decoded_len: usize) -> u64 {
        let each = self.codecs.iter().map(|codec| codec.encoder_memory(decoded_len));
        each.max().unwrap_or_default()
    }

    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let mut payload: Option<Vec<u8>> = None;
        let mut mask = 0_u16;
        for (bit, codec) in self.codecs.iter().enumerate() {
            let before = payload.as_deref().unwrap_or(decoded);
            let after = codec.encode(before);
            if let Ok(after) = after.map(|after| (after.len() <= before.len()).then_some(after))
                && let Some(after) = after
            {
                mask |= 1 << bit;
                payload = Some(after);
            }
        }
        let payload = payload.as_deref().unwrap_or(decoded);
        let header_len = self.codecs.len().div_ceil(8);
        let mut encoded = room("conditional", payload.len().saturating_add(header_len))?;
        encoded.extend(mask.to_le_bytes().iter().take(header_len));
        encoded.extend_from_slice(payload);
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let header_len = self.codecs.len().div_ceil(8);
        let (header, payload) = encoded.split_at_checked(header_len).ok_or_else(|| {
            Error::corrupt(format!(
                "conditional: {} bytes are too few for the flags",
                encoded.len()
            ))
        })?;
        let mask = header.iter().rev().fold(0_u16, |mask, byte| mask << 8 | u16::from(*byte));
        if u32::from(mask) >> self.codecs.len() != 0 {
            return Err(Error::corrupt(format!(
                "conditional: mask {mask:#x} names a codec that \
                 does not exist"
            )));
        }
        let applied = |bit: usize| mask >> bit & 1 == 1;
        let codecs = self.codecs.iter().enumerate().filter(|(bit, _)| applied(*bit));
        let mut codecs = codecs.rev().map(|(_, codec)| codec).peekable();
        let mut decoded: Option<Vec<u8>> = None;
        while let Some(codec) = codecs.next() {
            let is_last = codecs.peek().is_none();
            let longest = limit.saturating_mul(2).saturating_add(SLACK);
            let limit = if is_last { limit } else { longest };
            decoded = Some(codec.decode(decoded.as_deref().unwrap_or(payload), limit)?);
        }
        match decoded {
            Some(decoded) => Ok(decoded),
            None if payload.len() > limit => Err(too_long("conditional", limit)),
            None => Ok(payload.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::find_bytes_to_bytes;

    #[test]
    fn a_codec_is_applied_where_it_helps() {
        let codecs = json!({"codecs": [
            {"name": "shuffle", "configuration": {"element_size": 4}},
            {"name": "zstd", "configuration": {"level": 5}},
        ]});
        let codec = Conditional::new(codecs.as_object().unwrap(), find_bytes_to_bytes).unwrap();
        let zeros = codec.encode(&[0; 400]).unwrap();
        assert_eq!(zeros[0], 0b11);
        assert!(zeros.len() < 100);
        assert_eq!(codec.decode(&zeros, 400).unwrap(), [0; 400]);
        assert!(codec.decode(&zeros, 399).is_err());
        let short = codec.encode(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert_eq!(short, [0b01, 1, 5, 2, 6, 3, 7, 4, 8]);
        assert_eq!(codec.decode(&short, 8).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
        // Three bytes are no elements of four.
        assert_eq!(codec.encode(&[1, 2, 3]).unwrap(), [0, 1, 2, 3]);
        assert_eq!(codec.decode(&[0, 1, 2, 3], 3).unwrap(), [1, 2, 3]);
        for wrong in [&[][..], &[0b100, 1], &[0b10, 1], &[0, 1, 2, 3, 4]] {
            assert!(codec.decode(wrong, 3).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_codecs_of_bytes_have_a_place() {
        for codecs in [json!({}), json!({"codecs": ["bytes"]}), json!({"codecs": ["conditional"]})]
        {
            assert!(
                Conditional::new(codecs.as_object().unwrap(), find_bytes_to_bytes).is_err(),
                "{codecs}"
            );
        }
    }
}
