//! The types of netCDF-3 as data types of Zarr 3, and attributes as JSON.

use serde_json::{Value, json};

use crate::json as numbers;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// A type of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NcType {
    /// A character.
    Char,
    /// A signed integer.
    Int(u8),
    /// An unsigned integer.
    Uint(u8),
    /// A float.
    Float(u8),
}

impl NcType {
    /// Returns the type of this number.
    pub fn of(number: u64) -> Result<Self> {
        Ok(match number {
            1 => Self::Int(1),
            2 => Self::Char,
            3 => Self::Int(2),
            4 => Self::Int(4),
            5 => Self::Float(4),
            6 => Self::Float(8),
            7 => Self::Uint(1),
            8 => Self::Uint(2),
            9 => Self::Uint(4),
            10 => Self::Int(8),
            11 => Self::Uint(8),
            _ => return Err(Error::corrupt(format!("netCDF has no type of the number {number}"))),
        })
    }

    /// Returns the bytes of a value.
    pub fn item_len(self) -> u64 {
        match self {
            Self::Char => 1,
            Self::Int(len) | Self::Uint(len) | Self::Float(len) => u64::from(len),
        }
    }

    /// Returns the data type, as in a metadata file.
    pub fn data_type(self) -> Value {
        let bits = self.item_len().saturating_mul(8);
        match self {
            Self::Char => {
                json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": 1}})
            }
            Self::Int(_) => json!(format!("int{bits}")),
            Self::Uint(_) => json!(format!("uint{bits}")),
            Self::Float(_) => json!(format!("float{bits}")),
        }
    }

    /// Returns the value that netCDF writes where a program wrote nothing.
    pub fn default_fill(self) -> Value {
        match self {
            Self::Char => json!(numbers::base64_of_zeros(1)),
            Self::Int(1) => json!(-127),
            Self::Int(2) => json!(-32767),
            Self::Int(4) => json!(-2_147_483_647),
            Self::Int(_) => json!(-9_223_372_036_854_775_806_i64),
            Self::Uint(1) => json!(255),
            Self::Uint(2) => json!(65535),
            Self::Uint(4) => json!(4_294_967_295_u32),
            Self::Uint(_) => json!(18_446_744_073_709_551_614_u64),
            Self::Float(4) => numbers::single(9.969_21e36),
            Self::Float(_) => numbers::double(9.969_209_968_386_869e36),
        }
    }

    /// Returns the value of an attribute: one number is that, as in xarray.
    pub fn attribute(self, bytes: &[u8]) -> Value {
        if self == Self::Char {
            return Value::from(numbers::text(bytes).replace('\0', ""));
        }
        let items = bytes.chunks_exact(self.item_len().to_usize().max(1));
        let mut items: Vec<Value> = items.map(|bytes| self.value(bytes)).collect();
        if items.len() == 1 { items.pop().unwrap_or_default() } else { Value::Array(items) }
    }

    /// Returns a number as JSON.
    pub fn value(self, bytes: &[u8]) -> Value {
        let found = match self {
            Self::Char | Self::Uint(_) => numbers::integer(bytes, false, true),
            Self::Int(_) => numbers::integer(bytes, true, true),
            Self::Float(_) => numbers::float(bytes, true),
        };
        found.unwrap_or_default()
    }
}

/// Returns a length rounded up to four bytes.
pub fn padded(len: u64) -> u64 {
    len.checked_next_multiple_of(4).unwrap_or(u64::MAX)
}
