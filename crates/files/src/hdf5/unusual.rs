//! Forms of types that the library does not tell from the usual ones: they are found in the bytes of
//! the type in the file, and not read.

use zarrfs_base::error::{Error, Result};

/// The classes of types, in the lower half of the first byte.
const INTEGER: u8 = 0;
const FLOAT: u8 = 1;
const COMPOUND: u8 = 6;

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
        // A field had dimensions of its own.
        COMPOUND if version == 1 && has_gaps => {
            Err(Error::unsupported("HDF5 arrays in a compound of the first version"))
        }
        _ => Ok(()),
    }
}
