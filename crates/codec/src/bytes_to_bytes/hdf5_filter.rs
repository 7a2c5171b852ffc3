//! `hdf5_filter` {id, parameters}: a filter of HDF5 whose parameters have all that decoding needs:
//! szip (4), nbit (5) and scale-offset (6), and the shuffle (2) of bytes that are not elements,
//! which may have some at their end. The library that parses HDF5 files has them. zarrfs only
//! decodes them. Length: unknown.
//!
//! <https://support.hdfgroup.org/documentation/hdf5/latest/group___d_c_p_l.html>

use hdf5_reader::filters::{nbit, scaleoffset, shuffle, szip};
use serde_json::Value;

use super::stream::too_long;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

const NAME: &str = "hdf5_filter";

/// The most parameters of a filter. Those of nbit have a few for each field of a compound.
const MAX_PARAMETERS: usize = 1 << 14;

/// A filter.
#[derive(Debug, Clone, Copy)]
enum FilterKind {
    Shuffle,
    Szip,
    Nbit,
    ScaleOffset,
}

/// The codec.
#[derive(Debug)]
pub struct Hdf5Filter {
    filter: FilterKind,
    parameters: Vec<u32>,
}

impl Hdf5Filter {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        let filter = match configuration.get("id").and_then(Value::as_u64) {
            Some(2) => FilterKind::Shuffle,
            Some(4) => FilterKind::Szip,
            Some(5) => FilterKind::Nbit,
            Some(6) => FilterKind::ScaleOffset,
            _ => return Err(Error::unsupported(format!("{NAME}: id is not 2, 4, 5 or 6"))),
        };
        let list = configuration.get("parameters").and_then(Value::as_array);
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let parameters: Option<Vec<u32>> = list
            .filter(|list| list.len() <= MAX_PARAMETERS)
            .and_then(|list| list.iter().map(number).collect());
        let parameters = parameters.ok_or_else(|| {
            Error::invalid(format!("{NAME}: parameters is not a list of numbers of 32 bits"))
        })?;
        match filter {
            FilterKind::Shuffle | FilterKind::Szip => {}
            FilterKind::Nbit => check_nbit(&parameters)?,
            FilterKind::ScaleOffset => {
                let size = parameters.get(4).copied();
                if !size.is_some_and(|size| matches!(size, 1 | 2 | 4 | 8)) {
                    return Err(Error::corrupt(format!("{NAME}: elements of {size:?} bytes")));
                }
            }
        }
        Ok(Self { filter, parameters })
    }
}

/// The parameters of nbit before the type, and the kinds of types.
const NBIT_HEAD: usize = 3;
const ATOMIC: u32 = 1;
const ARRAY: u32 = 2;
const COMPOUND: u32 = 3;
const OTHER: u32 = 4;

/// The deepest nesting of types.
const MAX_DEPTH: usize = 16;

/// Fails unless each element takes bits, and as many fields follow as the type has: the library
/// allocates them at once.
fn check_nbit(parameters: &[u32]) -> Result<()> {
    // The second one says that nothing was done.
    if parameters.get(1).is_some_and(|number| *number != 0) {
        return Ok(());
    }
    let rest = parameters.get(NBIT_HEAD..).unwrap_or_default();
    match after_type(rest, 0) {
        Some([]) => Ok(()),
        _ => Err(Error::corrupt(format!("{NAME}: nbit with parameters that are no type"))),
    }
}

/// Returns the parameters after a type.
fn after_type(parameters: &[u32], depth: usize) -> Option<&[u32]> {
    let (kind, rest) = parameters.split_first()?;
    let (size, rest) = rest.split_first()?;
    if *size == 0 || depth > MAX_DEPTH {
        return None;
    }
    match *kind {
        ATOMIC => rest.get(3..),
        ARRAY => after_type(rest, depth.checked_add(1)?),
        COMPOUND => {
            let (count, mut rest) = rest.split_first()?;
            if *count == 0 || usize::try_from(*count).ok()? > rest.len() {
                return None;
            }
            for _ in 0..*count {
                rest = after_type(rest.get(1..)?, depth.checked_add(1)?)?;
            }
            Some(rest)
        }
        OTHER => Some(rest),
        _ => None,
    }
}

impl BytesToBytes for Hdf5Filter {
    fn encode(&self, _decoded: &[u8]) -> Result<Vec<u8>> {
        Err(Error::unsupported(format!("{NAME}: zarrfs only decodes it")))
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        if encoded.len() > limit && matches!(self.filter, FilterKind::Shuffle) {
            return Err(too_long(NAME, limit));
        }
        let decode = match self.filter {
            FilterKind::Shuffle => {
                let len = self.parameters.first().copied().unwrap_or(1).to_usize();
                return Ok(shuffle::unshuffle(encoded, len));
            }
            FilterKind::Szip => szip::decompress_with_limit,
            FilterKind::Nbit => nbit::decompress_with_limit,
            FilterKind::ScaleOffset => scaleoffset::decompress_with_limit,
        };
        let decoded = decode(encoded, &self.parameters, limit);
        let decoded = decoded.map_err(|error| Error::corrupt(format!("{NAME}: {error}")))?;
        if decoded.len() > limit { Err(too_long(NAME, limit)) } else { Ok(decoded) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_that_would_take_memory_or_time_are_refused() {
        let built = |id: u32, parameters: &[u32]| {
            let configuration = json!({"id": id, "parameters": parameters});
            Hdf5Filter::new(configuration.as_object().unwrap())
        };
        assert!(built(5, &[8, 0, 100, 1, 4, 0, 20, 0]).is_ok());
        // A compound of 2^32 fields, one of none, elements of no bytes, and a nest of arrays.
        assert!(built(5, &[6, 0, 1, 3, 8, u32::MAX]).is_err());
        assert!(built(5, &[6, 0, 1, 3, 8, 0]).is_err());
        assert!(built(5, &[5, 0, u32::MAX, 4, 0]).is_err());
        assert!(built(5, &[&[43, 0, 1][..], &[2, 8].repeat(20)].concat()).is_err());
        assert!(built(6, &[0; 20]).is_err());
        assert!(built(7, &[]).is_err());
    }
}
