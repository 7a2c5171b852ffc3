//! Data types.

use std::sync::Arc;

use serde_json::{Value, json};

use super::narrow::Narrow;
use super::time::Time;
use zarrfs_base::width::ToUsize;

/// The longest element in bytes that metadata may specify.
pub const MAX_ITEM_LEN: u32 = 1 << 20;

/// The type of an element.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// A signed integer of 1, 2, 4 or 8 bytes.
    Int(u8),
    /// An unsigned integer of 1, 2, 4 or 8 bytes.
    Uint(u8),
    /// An IEEE 754 number of 2, 4 or 8 bytes.
    Float(u8),
    /// Two IEEE 754 numbers, real then imaginary; 4, 8 or 16 bytes in all.
    Complex(u8),
    /// This many bytes without a meaning (`r24` is 3).
    Raw(u32),
    /// A registered number type without hardware support: `bfloat16`, `float8_e4m3`, `int4` and
    /// similar ones.
    Narrow(&'static Narrow),
    /// Two such floats, real then imaginary.
    ComplexNarrow(&'static Narrow),
    /// A time or a span of time in 64 bits, counted in `scale` of a unit; the smallest number means
    /// not-a-time.
    Time(Time),
    /// This many bytes, padded with NUL (`null_terminated_bytes`).
    Bytes(u32),
    /// This many code points of four bytes, padded with NUL (`fixed_length_utf32`).
    Utf32(u32),
    /// Fields one after another, without gaps.
    Struct(Arc<[Field]>),
    /// A string of any length (`string`).
    String,
    /// Bytes of any length (`bytes`).
    VariableBytes,
}

/// The name of structures in zarr-python 3.1, before the registry had one.
pub const OLD_STRUCT: &str = "structured";

/// A field of a structure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// The name.
    pub name: String,
    /// The type.
    pub dtype: DType,
    /// The shape of the field if it is an array; empty for a single element.
    pub shape: Vec<u32>,
}

impl Field {
    /// Returns the number of elements in the field.
    pub fn count(&self) -> usize {
        let len = |len: &u32| (*len).to_usize();
        self.shape.iter().map(len).fold(1, usize::saturating_mul)
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.dtype.item_len().saturating_mul(self.count())
    }

    /// Returns the type of the whole field in Zarr 3, where fields cannot be arrays: raw bytes.
    pub(super) fn whole(&self) -> DType {
        match self.shape.as_slice() {
            [] => self.dtype.clone(),
            _ => DType::Raw(u32::try_from(self.len()).unwrap_or(u32::MAX)),
        }
    }

    /// Whether the field has no bytes, like an array without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl DType {
    /// Returns the length of an element in bytes, at least 1; 0 if elements are of variable length.
    pub fn item_len(&self) -> usize {
        let count = |len: u32| len.to_usize();
        match self {
            Self::Bool => 1,
            Self::Int(len) | Self::Uint(len) | Self::Float(len) | Self::Complex(len) => {
                usize::from(*len)
            }
            Self::Raw(len) | Self::Bytes(len) => count(*len),
            Self::Narrow(number) => number.len,
            Self::ComplexNarrow(number) => 2 * number.len,
            Self::Time(_) => 8,
            Self::Utf32(len) => count(*len).saturating_mul(4),
            Self::Struct(fields) => fields.iter().map(Field::len).fold(0, usize::saturating_add),
            Self::String | Self::VariableBytes => 0,
        }
    }

    /// Whether elements are of variable length.
    pub fn is_variable(&self) -> bool {
        matches!(self, Self::String | Self::VariableBytes)
    }

    /// Returns the size of the units that byte order reverses; 1 if byte order has no meaning. In a
    /// complex number the unit is each part; in a structure it is the longest unit of the fields.
    pub fn component_len(&self) -> usize {
        match self {
            Self::Bool | Self::Raw(_) | Self::Bytes(_) | Self::String | Self::VariableBytes => 1,
            Self::Int(len) | Self::Uint(len) | Self::Float(len) => usize::from(*len),
            Self::Complex(len) => usize::from(*len) / 2,
            Self::Narrow(number) | Self::ComplexNarrow(number) => number.len,
            Self::Time(_) => 8,
            Self::Utf32(_) => 4,
            Self::Struct(fields) => {
                fields.iter().map(|field| field.dtype.component_len()).max().unwrap_or(1)
            }
        }
    }

    /// Parses a name in released v3 or its registry that needs no configuration.
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
            "complex_float16" => Self::Complex(4),
            "complex64" | "complex_float32" => Self::Complex(8),
            "complex128" | "complex_float64" => Self::Complex(16),
            "string" => Self::String,
            "bytes" | "variable_length_bytes" => Self::VariableBytes,
            other => {
                if let Some(part) = other.strip_prefix("complex_").and_then(Narrow::parse) {
                    return part.is_float().then_some(Self::ComplexNarrow(part));
                }
                if let Some(number) = Narrow::parse(other) {
                    return Some(Self::Narrow(number));
                }
                let bits: u32 = other.strip_prefix('r')?.parse().ok()?;
                let fits = bits > 0 && bits.is_multiple_of(8) && bits / 8 <= MAX_ITEM_LEN;
                return fits.then_some(Self::Raw(bits / 8));
            }
        })
    }

    /// Returns the name of the type in released v3 and its registry, without the configuration.
    pub fn name(&self) -> String {
        match self {
            Self::Bool => "bool".to_owned(),
            Self::Int(len) => format!("int{}", u32::from(*len) * 8),
            Self::Uint(len) => format!("uint{}", u32::from(*len) * 8),
            Self::Float(len) => format!("float{}", u32::from(*len) * 8),
            Self::Complex(4) => "complex_float16".to_owned(),
            Self::Complex(len) => format!("complex{}", u32::from(*len) * 8),
            Self::Raw(len) => format!("r{}", u64::from(*len) * 8),
            Self::Narrow(number) => number.name.to_owned(),
            Self::ComplexNarrow(number) => format!("complex_{}", number.name),
            Self::Time(Time { is_span: true, .. }) => "numpy.timedelta64".to_owned(),
            Self::Time(Time { is_span: false, .. }) => "numpy.datetime64".to_owned(),
            Self::Bytes(_) => "null_terminated_bytes".to_owned(),
            Self::Utf32(_) => "fixed_length_utf32".to_owned(),
            Self::Struct(_) => "struct".to_owned(),
            Self::String => "string".to_owned(),
            Self::VariableBytes => "variable_length_bytes".to_owned(),
        }
    }

    /// Returns the type as in v3 metadata: a name, with a configuration if it needs one. If the
    /// registry and the libraries differ, this is the form that more libraries can read.
    pub fn to_json(&self) -> Value {
        let configuration = match self {
            // Neither zarr-python nor `TensorStore` reads `r24`, the name of the core
            // specification.
            Self::Raw(len) => {
                return json!({"name": "raw_bytes", "configuration": {"length_bytes": len}});
            }
            Self::Time(time) => json!({"unit": time.unit, "scale_factor": time.scale}),
            Self::Bytes(len) => json!({"length_bytes": len}),
            Self::Utf32(len) => json!({"length_bytes": u64::from(*len) * 4}),
            Self::Struct(fields) => {
                let field = |field: &Field| json!({"name": field.name, "data_type": field.whole().to_json()});
                json!({"fields": fields.iter().map(field).collect::<Vec<_>>()})
            }
            _ => return Value::String(self.name()),
        };
        json!({"name": self.name(), "configuration": configuration})
    }

    /// Returns the type in the form of zarr-python 3.1, which reads structures only by their old
    /// name and with fields in lists. The registry allows this form only for old arrays.
    pub fn to_old_json(&self) -> Value {
        let Self::Struct(fields) = self else { return self.to_json() };
        let field = |field: &Field| json!([field.name, field.whole().to_old_json()]);
        let fields: Vec<Value> = fields.iter().map(field).collect();
        json!({"name": OLD_STRUCT, "configuration": {"fields": fields}})
    }

    /// Whether a field of the structure, or of one in it, is an array.
    pub fn has_field_shapes(&self) -> bool {
        let Self::Struct(fields) = self else { return false };
        fields.iter().any(|field| !field.shape.is_empty() || field.dtype.has_field_shapes())
    }

    /// Like [`Self::to_json`], with the shapes of fields, for messages.
    pub fn described(&self) -> Value {
        let Self::Struct(fields) = self else { return self.to_json() };
        let field = |field: &Field| match field.shape.as_slice() {
            [] => json!([field.name, field.dtype.described()]),
            shape => json!([field.name, field.dtype.described(), shape]),
        };
        let fields: Vec<Value> = fields.iter().map(field).collect();
        json!({"name": self.name(), "configuration": {"fields": fields}})
    }

    /// Returns the runs of units that byte order reverses in an element, in order: the number of
    /// units and their size.
    pub fn components(&self) -> Vec<(usize, usize)> {
        match self {
            Self::Struct(fields) => {
                let mut runs = Vec::new();
                for field in fields.iter() {
                    let one = field.dtype.components();
                    runs.extend(std::iter::repeat_n(one, field.count()).flatten());
                }
                runs
            }
            other => {
                let len = other.component_len();
                vec![(len, other.item_len() / len)]
            }
        }
    }
}
