//! The types of HDF5 as data types of Zarr 3.

use hdf5_reader::error::ByteOrder;
use hdf5_reader::{
    CompoundField, Datatype, EnumMember, ReferenceType, StringPadding, StringSize, VarLenKind,
};
use serde_json::{Map, Value, json};

use crate::json;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::dtype::base64_encode;

/// A type, as its elements are stored.
#[derive(Debug, Clone)]
pub struct StoredType {
    /// The data type, as in a metadata file.
    pub data_type: Value,
    /// What elements are, which decides about the codec and the fill value.
    pub kind: StoredKind,
    /// The bytes of an element in the file.
    pub item_len: u64,
    /// Whether elements are in big-endian order.
    pub is_big: bool,
    /// Dimensions of each element, after those of the data set.
    pub inner_shape: Vec<u64>,
}

/// What elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredKind {
    /// Integers and truth values.
    Integer,
    /// Truth values.
    Bool,
    /// Floats.
    Float,
    /// Complex numbers.
    Complex,
    /// Bytes of a fixed number.
    Bytes,
    /// Strings of a fixed length that end at the first zero.
    Terminated,
    /// Strings of a fixed length that end before the last spaces.
    SpacePadded,
    /// Fields.
    Structure,
    /// Strings. The file has the place of each.
    Text,
    /// The addresses of other objects.
    ObjectReference,
}

impl StoredType {
    /// Returns the type of the elements of a data set. `offset_len` is the length of an address.
    pub fn of(datatype: &Datatype, offset_len: u8) -> Result<Self> {
        let plain = |name: &str, kind, len: u64, is_big| {
            Ok(Self {
                data_type: json!(name),
                kind,
                item_len: len,
                is_big,
                inner_shape: Vec::new(),
            })
        };
        let bytes = |len: u64| {
            let data_type = json!({"name": "raw_bytes", "configuration": {"length_bytes": len}});
            let kind = StoredKind::Bytes;
            Self { data_type, kind, item_len: len, is_big: false, inner_shape: Vec::new() }
        };
        let is_big = |order: &ByteOrder| *order == ByteOrder::BigEndian;
        match datatype {
            Datatype::FixedPoint { size: size @ (1 | 2 | 4 | 8), signed, byte_order } => {
                let name = format!("{}int{}", if *signed { "" } else { "u" }, u16::from(*size) * 8);
                plain(&name, StoredKind::Integer, u64::from(*size), is_big(byte_order))
            }
            Datatype::FloatingPoint { size: size @ (2 | 4 | 8), byte_order } => {
                let name = format!("float{}", u16::from(*size) * 8);
                plain(&name, StoredKind::Float, u64::from(*size), is_big(byte_order))
            }
            Datatype::Bitfield { size: size @ (1 | 2 | 4 | 8), byte_order } => {
                let name = format!("uint{}", u16::from(*size) * 8);
                plain(&name, StoredKind::Integer, u64::from(*size), is_big(byte_order))
            }
            Datatype::String { size: StringSize::Fixed(len @ 1..), padding, .. } => {
                Ok(fixed_string(*len, *padding))
            }
            Datatype::VarLen { kind: VarLenKind::String, .. } => {
                let len = u64::from(offset_len).saturating_add(8);
                plain("string", StoredKind::Text, len, false)
            }
            Datatype::Reference { ref_type: ReferenceType::Object, size } => {
                plain("string", StoredKind::ObjectReference, u64::from(*size), false)
            }
            Datatype::Opaque { size: len @ 1.., .. } => Ok(bytes(u64::from(*len))),
            Datatype::Enum { base, members } => enumeration(base, members, offset_len),
            Datatype::Array { base, dims } => {
                let mut base = Self::of(base, offset_len)?;
                base.inner_shape.splice(0..0, dims.iter().copied());
                Ok(base)
            }
            Datatype::Compound { size, fields } => compound(*size, fields, offset_len),
            other => Err(Error::unsupported(format!("HDF5 {}", name_of(other)))),
        }
    }

    /// Whether there are bytes between the fields of a compound.
    pub fn has_gaps(&self) -> bool {
        self.data_type.to_string().contains("\"padding0\"")
    }

    /// Whether elements are bytes without an order.
    fn is_bytes(&self) -> bool {
        let kind = self.kind;
        matches!(kind, StoredKind::Bytes | StoredKind::Terminated | StoredKind::SpacePadded)
    }

    /// Returns the bytes of an element with its inner dimensions.
    pub fn whole_len(&self) -> u64 {
        self.inner_shape.iter().fold(self.item_len, |len, count| len.saturating_mul(*count))
    }
}

fn fixed_string(len: u32, padding: StringPadding) -> StoredType {
    let configuration = json!({"length_bytes": len});
    let kind = match padding {
        // One character is what it is.
        _ if len == 1 => StoredKind::Bytes,
        StringPadding::NullTerminate => StoredKind::Terminated,
        StringPadding::SpacePad => StoredKind::SpacePadded,
        StringPadding::NullPad => StoredKind::Bytes,
    };
    let data_type = json!({"name": "null_terminated_bytes", "configuration": configuration});
    StoredType { data_type, kind, item_len: u64::from(len), is_big: false, inner_shape: Vec::new() }
}

/// Returns the type of the values of an enumeration. h5py has truth values as one.
fn enumeration(base: &Datatype, members: &[EnumMember], offset_len: u8) -> Result<StoredType> {
    let base = StoredType::of(base, offset_len)?;
    let is = |name: &str, value: u8| {
        members.iter().any(|member| member.name == name && member.value == [value])
    };
    let is_bool = members.len() == 2 && is("FALSE", 0) && is("TRUE", 1) && base.item_len == 1;
    if !is_bool {
        return Ok(base);
    }
    Ok(StoredType { data_type: json!("bool"), kind: StoredKind::Bool, ..base })
}

/// Returns a type in words, for an error.
pub fn name_of(datatype: &Datatype) -> String {
    match datatype {
        Datatype::FixedPoint { size, .. } => format!("integers of {size} bytes"),
        Datatype::FloatingPoint { size, .. } => format!("floats of {size} bytes"),
        Datatype::Bitfield { size, .. } => format!("bit fields of {size} bytes"),
        Datatype::VarLen { .. } => "lists of any length".to_owned(),
        Datatype::Reference { .. } => "references to regions".to_owned(),
        Datatype::String { .. } | Datatype::Opaque { .. } => "elements without bytes".to_owned(),
        Datatype::Enum { .. } => "enumerations".to_owned(),
        Datatype::Array { .. } => "arrays".to_owned(),
        Datatype::Compound { .. } => "compounds".to_owned(),
    }
}

/// Returns the type of a compound. Bytes between fields become fields of their own.
fn compound(size: u32, fields: &[CompoundField], offset_len: u8) -> Result<StoredType> {
    if let Some(complex) = complex(size, fields, offset_len) {
        return Ok(complex);
    }
    let mut sorted: Vec<&CompoundField> = fields.iter().collect();
    sorted.sort_by_key(|field| field.byte_offset);
    let (mut described, mut end, mut order) = (Vec::new(), 0_u64, None);
    let raw = |len: u64| json!({"name": "raw_bytes", "configuration": {"length_bytes": len}});
    let mut gap_count = 0;
    let mut fill_gap = |described: &mut Vec<Value>, len: u64| {
        if len > 0 {
            described.push(json!({"name": format!("padding{gap_count}"), "data_type": raw(len)}));
            gap_count += 1;
        }
    };
    for field in sorted {
        let stored = StoredType::of(&field.datatype, offset_len)?;
        let start = u64::from(field.byte_offset);
        let gap = start.checked_sub(end);
        let gap = gap.ok_or_else(|| Error::unsupported("HDF5 fields that share bytes"))?;
        fill_gap(&mut described, gap);
        if matches!(stored.kind, StoredKind::Text | StoredKind::ObjectReference) {
            let what = name_of(&field.datatype);
            return Err(Error::unsupported(format!("HDF5 {what} in a compound")));
        }
        let len = stored.whole_len();
        let is_number = stored.item_len > 1 && !stored.is_bytes();
        let data_type = if stored.inner_shape.is_empty() { stored.data_type } else { raw(len) };
        if is_number {
            if order.is_some_and(|big| big != stored.is_big) {
                return Err(Error::unsupported("HDF5 fields of both byte orders"));
            }
            order = Some(stored.is_big);
            if stored.is_big && !stored.inner_shape.is_empty() {
                return Err(Error::unsupported("HDF5 arrays in fields in big-endian order"));
            }
        }
        described.push(json!({"name": field.name, "data_type": data_type}));
        end = start.saturating_add(len);
    }
    let gap = u64::from(size).checked_sub(end);
    fill_gap(&mut described, gap.ok_or_else(|| Error::corrupt("HDF5 fields past their compound"))?);
    if described.is_empty() {
        return Err(Error::unsupported("HDF5 compounds without fields"));
    }
    Ok(StoredType {
        data_type: json!({"name": "struct", "configuration": {"fields": described}}),
        kind: StoredKind::Structure,
        item_len: u64::from(size),
        is_big: order.unwrap_or_default(),
        inner_shape: Vec::new(),
    })
}

/// Returns complex numbers, as h5py stores them: two floats named `r` and `i`.
fn complex(size: u32, fields: &[CompoundField], offset_len: u8) -> Option<StoredType> {
    let [real, imaginary] = fields else { return None };
    let are_named = real.name == "r" && imaginary.name == "i";
    let part = StoredType::of(&real.datatype, offset_len).ok()?;
    let fits = real.byte_offset == 0
        && u64::from(imaginary.byte_offset) == part.item_len
        && u64::from(size) == part.item_len.saturating_mul(2);
    let is_float = part.kind == StoredKind::Float && part.item_len >= 4;
    (are_named && fits && is_float && real.datatype == imaginary.datatype).then(|| StoredType {
        data_type: json!(format!("complex{}", u64::from(size) * 8)),
        kind: StoredKind::Complex,
        item_len: u64::from(size),
        is_big: part.is_big,
        inner_shape: Vec::new(),
    })
}

/// Returns a fill value of zeros, as in a metadata file.
pub fn zero(stored: &StoredType) -> Value {
    match stored.kind {
        StoredKind::Integer => json!(0),
        StoredKind::Bool => json!(false),
        StoredKind::Float => json!(0.0),
        StoredKind::Complex => json!([0.0, 0.0]),
        StoredKind::Text | StoredKind::ObjectReference => json!(""),
        StoredKind::Structure => Value::Object(Map::new()),
        StoredKind::Bytes | StoredKind::Terminated | StoredKind::SpacePadded => {
            json!(json::base64_of_zeros(stored.item_len))
        }
    }
}

/// Returns the fill value, as in a metadata file.
pub fn fill_value(bytes: Option<&[u8]>, stored: &StoredType) -> Value {
    let Some(bytes) = bytes.filter(|it| !it.is_empty()) else { return zero(stored) };
    let float = |bytes: &[u8]| json::float(bytes, stored.is_big).map(json::fill_value);
    let is_signed = stored.data_type.as_str().is_some_and(|name| name.starts_with("int"));
    let value = match stored.kind {
        StoredKind::Integer => json::integer(bytes, is_signed, stored.is_big),
        StoredKind::Bool => Some(json!(bytes.first().is_some_and(|byte| *byte != 0))),
        StoredKind::Float => float(bytes),
        StoredKind::Complex => {
            let (real, imaginary) = bytes.split_at(bytes.len() / 2);
            float(real).zip(float(imaginary)).map(|(real, imaginary)| json!([real, imaginary]))
        }
        StoredKind::Bytes | StoredKind::Terminated | StoredKind::SpacePadded => {
            Some(json!(base64_encode(bytes)))
        }
        StoredKind::Structure if !stored.is_big => Some(json!(base64_encode(bytes))),
        StoredKind::Structure | StoredKind::Text | StoredKind::ObjectReference => None,
    };
    value.unwrap_or_else(|| zero(stored))
}
