//! Data types and fill values.
//!
//! A type here says how long an element is and in which unit its byte order turns;
//! no arithmetic is done on elements. Names are those of released v3; the spellings
//! of other dialects end in `metadata`.

mod fill;
mod number;

pub use fill::FillValue;
pub use number::integer;

/// The longest element, in bytes, that a document may ask for.
pub const MAX_ITEM_LEN: u32 = 1 << 20;

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// A signed integer of 1, 2, 4 or 8 bytes.
    Int(u8),
    /// An unsigned integer of 1, 2, 4 or 8 bytes.
    Uint(u8),
    /// An IEEE 754 number of 2, 4 or 8 bytes.
    Float(u8),
    /// Two IEEE 754 numbers, real then imaginary; 8 or 16 bytes in all.
    Complex(u8),
    /// That many bytes without a meaning (`r24` is 3).
    Raw(u32),
}

impl DType {
    /// The length of an element in bytes, at least 1.
    pub fn item_len(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Int(len) | Self::Uint(len) | Self::Float(len) | Self::Complex(len) => {
                usize::from(len)
            }
            Self::Raw(len) => usize::try_from(len).unwrap_or(usize::MAX),
        }
    }

    /// The bytes that change places between little and big endian; 1 where byte order has no meaning.
    /// Of a complex number it is each part, never the pair.
    pub fn component_len(self) -> usize {
        match self {
            Self::Bool | Self::Raw(_) => 1,
            Self::Int(len) | Self::Uint(len) | Self::Float(len) => usize::from(len),
            Self::Complex(len) => usize::from(len) / 2,
        }
    }

    /// The type that released v3 calls `name`.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Self::Bool,
            "int8" => Self::Int(1),
            "int16" => Self::Int(2),
            "int32" => Self::Int(4),
            "int64" => Self::Int(8),
            "uint8" => Self::Uint(1),
            "uint16" => Self::Uint(2),
            "uint32" => Self::Uint(4),
            "uint64" => Self::Uint(8),
            "float16" => Self::Float(2),
            "float32" => Self::Float(4),
            "float64" => Self::Float(8),
            "complex64" | "complex_float32" => Self::Complex(8),
            "complex128" | "complex_float64" => Self::Complex(16),
            raw => {
                let bits: u32 = raw.strip_prefix('r')?.parse().ok()?;
                let fits = bits > 0 && bits.is_multiple_of(8) && bits / 8 <= MAX_ITEM_LEN;
                return fits.then_some(Self::Raw(bits / 8));
            }
        })
    }

    /// What released v3 calls the type.
    pub fn name(self) -> String {
        match self {
            Self::Bool => "bool".to_owned(),
            Self::Int(len) => format!("int{}", u32::from(len) * 8),
            Self::Uint(len) => format!("uint{}", u32::from(len) * 8),
            Self::Float(len) => format!("float{}", u32::from(len) * 8),
            Self::Complex(len) => format!("complex{}", u32::from(len) * 8),
            Self::Raw(len) => format!("r{}", u64::from(len) * 8),
        }
    }
}
