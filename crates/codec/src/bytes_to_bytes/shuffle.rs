//! `numcodecs.shuffle` {elementsize, default 4}: byte k of element i is at k * n + i.
//!
//! Examples of the specification call it `shuffle` {`element_size`}. Specification: numcodecs.
//! Length: the same, which must be a multiple of `elementsize`.

use super::blosc::{shuffle, unshuffle};
use super::stream::{too_long, unset};
use crate::configuration::count;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

/// The codec `numcodecs.shuffle`.
#[derive(Debug)]
pub struct Shuffle {
    /// The length of an element in bytes, at least 1.
    item_len: usize,
}

impl Shuffle {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        // numcodecs treats 0 as 1.
        let names = ["elementsize", "element_size"];
        let name = names.into_iter().find(|name| configuration.contains_key(*name));
        let name = name.unwrap_or("elementsize");
        let item_len = count("shuffle", configuration, name, 4, 0..=u32::MAX)?.max(1);
        let item_len = usize::try_from(item_len)
            .map_err(|_| Error::invalid(format!("shuffle: elementsize {item_len} is too large")))?;
        Ok(Self { item_len })
    }

    fn check_len(&self, len: usize) -> Result<()> {
        if len.is_multiple_of(self.item_len) {
            return Ok(());
        }
        let item_len = self.item_len;
        Err(Error::corrupt(format!("shuffle: {len} bytes are not a multiple of {item_len}")))
    }
}

impl BytesToBytes for Shuffle {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        self.check_len(decoded.len())?;
        let mut encoded = unset("shuffle", decoded.len())?;
        shuffle(self.item_len, decoded, &mut encoded);
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        if encoded.len() > limit {
            return Err(too_long("shuffle", limit));
        }
        self.check_len(encoded.len())?;
        let mut decoded = unset("shuffle", encoded.len())?;
        unshuffle(self.item_len, encoded, &mut decoded);
        Ok(decoded)
    }

    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        Some(decoded_len)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn byte_k_of_element_i_is_at_k_n_plus_i() {
        let codec = Shuffle::new(json!({"elementsize": 3}).as_object().unwrap()).unwrap();
        let encoded = codec.encode(&[1, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(encoded, [1, 4, 2, 5, 3, 6]);
        assert_eq!(codec.decode(&encoded, 6).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert!(codec.decode(&encoded, 5).is_err());
        assert!(codec.decode(&encoded[..5], 6).is_err());
        assert!(codec.encode(&encoded[..5]).is_err());
    }
}
