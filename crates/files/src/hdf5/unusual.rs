//! Forms of types that the library does not tell from the usual ones. They are found in the bytes
//! of the type in the file, and not read.

use zarrfs_base::error::{Error, Result};

/// The classes of types, in the lower half of the first byte.
const INTEGER: u8 = 0;
const FLOAT: u8 = 1;
const STRING: u8 = 3;
const BIT_FIELD: u8 = 4;
const OPAQUE: u8 = 5;
const COMPOUND: u8 = 6;
const REFERENCE: u8 = 7;

/// Where the properties of a type begin.
const PROPERTIES: usize = 8;

/// Fails for a type whose elements would be read as others. `has_gaps` is whether there are bytes
/// between the fields of a compound.
pub fn check(encoded: &[u8], has_gaps: bool) -> Result<()> {
    let Some(first) = encoded.first() else { return Ok(()) };
    let (class, version) = (first & 0xf, first >> 4);
    let byte = |at: usize| encoded.get(PROPERTIES.saturating_add(at)).copied().unwrap_or_default();
    let short = |at: usize| u16::from_le_bytes([byte(at), byte(at.saturating_add(1))]);
    let size = encoded.get(4).copied().map_or(0, u16::from);
    let is_whole = short(0) == 0 && short(2) == size.saturating_mul(8);
    match class {
        INTEGER if !is_whole => {
            let bits = short(2);
            Err(Error::unsupported(format!("HDF5 integers of {bits} bits in {size} bytes")))
        }
        FLOAT => {
            let exponent_len = match size {
                2 => 5,
                4 => 8,
                _ => 11,
            };
            if is_whole && byte(5) == exponent_len {
                return Ok(());
            }
            let detail = format!("HDF5 floats of {size} bytes that are not of IEEE 754");
            Err(Error::unsupported(detail))
        }
        COMPOUND if version == 1 && has_gaps && has_arrays(encoded).unwrap_or(true) => {
            Err(Error::unsupported("HDF5 arrays in a compound of the first version"))
        }
        _ => Ok(()),
    }
}

/// Whether a field of a compound of the first version has dimensions of its own; `None` if that is
/// not known.
fn has_arrays(encoded: &[u8]) -> Option<bool> {
    let &[low, high] = encoded.get(1..3)? else { return None };
    let mut rest = encoded.get(PROPERTIES..)?;
    for _ in 0..u16::from_le_bytes([low, high]) {
        // The name has zeros up to a multiple of 8 bytes, with at least one.
        let name_len = rest.iter().position(|byte| *byte == 0)?;
        rest = rest.get(name_len.checked_add(1)?.checked_next_multiple_of(8)?..)?;
        // The offset, and then the number of dimensions.
        if *rest.get(4)? > 0 {
            return Some(true);
        }
        rest = rest.get(FIELD_LEN..)?;
        rest = rest.get(encoded_len(rest)?..)?;
    }
    Some(false)
}

/// The bytes of a field between its name and its type.
const FIELD_LEN: usize = 32;

/// Returns the length of a type in a file, for the simple ones.
fn encoded_len(encoded: &[u8]) -> Option<usize> {
    let properties = match encoded.first()? & 0xf {
        INTEGER | BIT_FIELD => 4,
        FLOAT => 12,
        STRING | REFERENCE => 0,
        OPAQUE => usize::from(*encoded.get(1)?),
        _ => return None,
    };
    PROPERTIES.checked_add(properties)
}
