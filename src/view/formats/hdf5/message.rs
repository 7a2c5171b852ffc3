//! The messages of object headers: the type, number, location and name of elements.
//!
//! Numbers are little endian, addresses and lengths have eight bytes. The specification:
//! <https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html>

use crate::dtype::{DType, Field, Narrow};
use crate::error::{Error, Result};
use crate::width::{ToU64, ToUsize};

/// The address of absent data.
pub(super) const UNDEFINED: u64 = u64::MAX;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    Dataspace,
    LinkInfo,
    Datatype,
    FillValue,
    Link,
    Layout,
    GroupInfo,
    Attribute,
    AttributeInfo,
}

impl MessageKind {
    /// Returns its number.
    pub fn number(self) -> u8 {
        match self {
            Self::Dataspace => 0x01,
            Self::LinkInfo => 0x02,
            Self::Datatype => 0x03,
            Self::FillValue => 0x05,
            Self::Link => 0x06,
            Self::Layout => 0x08,
            Self::GroupInfo => 0x0a,
            Self::Attribute => 0x0c,
            Self::AttributeInfo => 0x15,
        }
    }
}

/// Returns a data space with these lengths. For a single element, `lens` is empty.
pub(super) fn dataspace(lens: &[u64]) -> Result<Vec<u8>> {
    let rank = u8::try_from(lens.len()).ok().filter(|rank| *rank <= 32);
    let rank = rank.ok_or_else(|| Error::unsupported("HDF5 has at most 32 dimensions"))?;
    let mut bytes = vec![2, rank, 0, u8::from(rank > 0)];
    for len in lens {
        bytes.extend(len.to_le_bytes());
    }
    Ok(bytes)
}

/// Returns a data space without elements.
pub(super) fn no_elements() -> Vec<u8> {
    vec![2, 0, 0, 2]
}

/// Returns a type from its class, the three bytes of flags, its length, and its properties.
fn class(version: u8, class: u8, bits: [u8; 3], len: usize, behind: &[u8]) -> Result<Vec<u8>> {
    let len = u32::try_from(len).map_err(|_| Error::unsupported("its elements are too long"))?;
    let mut bytes = vec![version << 4 | class];
    bytes.extend(bits);
    bytes.extend(len.to_le_bytes());
    bytes.extend(behind);
    Ok(bytes)
}

/// Returns a type of strings that end at a NUL, which libraries require for their own attributes.
pub(super) fn terminated_string(text: &[u8]) -> Result<Vec<u8>> {
    class(1, 3, [charset(text), 0, 0], text.len().max(1), &[])
}

fn charset(text: &[u8]) -> u8 {
    if text.is_ascii() { 0 } else { 0x10 }
}

/// Returns a type of strings whose characters are not Unicode.
fn characters(len: usize) -> Result<Vec<u8>> {
    class(1, 3, [0x01, 0, 0], len, &[])
}

/// Returns a type of strings of any length in UTF-8, as in h5py.
pub(super) fn any_string() -> Result<Vec<u8>> {
    class(1, 9, [0x01, 1, 0], 16, &integer(1, 0)?)
}

/// Returns a type of lists of bytes of any length. As strings of variable length they would end at
/// their first NUL.
pub(super) fn any_bytes() -> Result<Vec<u8>> {
    class(1, 9, [0, 0, 0], 16, &integer(1, 0)?)
}

/// Returns a type of lists of references to objects.
pub(super) fn references() -> Result<Vec<u8>> {
    class(1, 9, [0, 0, 0], 16, &class(1, 7, [0, 0, 0], 8, &[])?)
}

/// Returns the type of elements, little endian.
pub(super) fn datatype(dtype: &DType) -> Result<Vec<u8>> {
    let len = dtype.item_len();
    match dtype {
        DType::Int(_) | DType::Time(_) => integer(len, 0x08),
        DType::Uint(_) => integer(len, 0),
        DType::Float(2) => float(2, (10, 5)),
        DType::Float(4) => float(4, (23, 8)),
        DType::Float(8) => float(8, (52, 11)),
        // The types with the infinities and NaN of IEEE 754.
        DType::Narrow(Narrow { name: "bfloat16", .. }) => float(2, (7, 8)),
        DType::Narrow(Narrow { name: "float8_e3m4", .. }) => float(1, (4, 3)),
        DType::Narrow(Narrow { name: "float8_e4m3", .. }) => float(1, (3, 4)),
        DType::Narrow(Narrow { name: "float8_e5m2", .. }) => float(1, (2, 5)),
        DType::Bytes(_) => characters(len),
        DType::Raw(_) => class(1, 5, [0; 3], len, &[]),
        // As in h5py.
        DType::Bool => {
            let names = b"FALSE\0TRUE\0\x00\x01";
            class(3, 8, [2, 0, 0], 1, &[&integer(1, 0x08)?, names.as_slice()].concat())
        }
        DType::Complex(_) => {
            let part = datatype(&DType::Float(u8::try_from(len / 2).unwrap_or_default()))?;
            compound(len, &[("r".into(), part.clone()), ("i".into(), part)], &[0, len / 2])
        }
        DType::ComplexNarrow(number) => {
            let part = datatype(&DType::Narrow(number))?;
            compound(len, &[("r".into(), part.clone()), ("i".into(), part)], &[0, len / 2])
        }
        // The other bits of the byte have no meaning.
        DType::Narrow(narrow) if !narrow.is_float() => {
            let sign = if narrow.is_signed_int() { 0x08 } else { 0 };
            let bits = u8::try_from(narrow.bits()).unwrap_or(u8::MAX);
            class(1, 0, [sign, 0, 0], len, &[0, 0, bits, 0])
        }
        DType::Struct(fields) => {
            let (mut members, mut offsets, mut at) = (Vec::new(), Vec::new(), 0_usize);
            for one in fields.iter() {
                members.push((one.name.clone(), field(one)?));
                offsets.push(at);
                at = at.saturating_add(one.len());
            }
            compound(len, &members, &offsets)
        }
        DType::Float(_)
        | DType::Narrow(_)
        | DType::Utf32(_)
        | DType::String
        | DType::VariableBytes => {
            Err(Error::unsupported(format!("HDF5 has no type for {}", dtype.name())))
        }
    }
}

fn integer(len: usize, sign: u8) -> Result<Vec<u8>> {
    class(1, 0, [sign, 0, 0], len, &[0, 0, bits(len), 0])
}

/// Returns a type of IEEE 754 floats with this many bits of fraction and exponent.
fn float(len: usize, (fraction, exponent): (u8, u8)) -> Result<Vec<u8>> {
    let bias = (1_u32 << (exponent - 1)) - 1;
    let mut behind = vec![0, 0, bits(len), 0, fraction, exponent, 0, fraction];
    behind.extend(bias.to_le_bytes());
    class(1, 1, [0x20, bits(len) - 1, 0], len, &behind)
}

fn bits(len: usize) -> u8 {
    u8::try_from(len.saturating_mul(8)).unwrap_or(u8::MAX)
}

/// Returns the type of a field, which may be an array.
pub(super) fn field(field: &Field) -> Result<Vec<u8>> {
    let of_one = datatype(&field.dtype)?;
    if field.shape.is_empty() { Ok(of_one) } else { array(&field.shape, field.len(), &of_one) }
}

/// Returns the type of an array in an element: its shape, its length in bytes, and the type of its
/// elements.
pub(super) fn array(shape: &[u32], len: usize, of_one: &[u8]) -> Result<Vec<u8>> {
    let rank = u8::try_from(shape.len()).ok().filter(|rank| *rank <= 32);
    let rank = rank.ok_or_else(|| Error::unsupported("HDF5 has at most 32 dimensions"))?;
    if shape.contains(&0) {
        return Err(Error::unsupported("HDF5 has no fields without elements"));
    }
    let mut behind = vec![rank];
    for len in shape {
        behind.extend(len.to_le_bytes());
    }
    behind.extend(of_one);
    class(3, 10, [0; 3], len, &behind)
}

/// Returns the type of a structure of `len` bytes, whose members begin at these offsets.
pub(super) fn compound(
    len: usize,
    members: &[(String, Vec<u8>)],
    offsets: &[usize],
) -> Result<Vec<u8>> {
    let count = u16::try_from(members.len()).map_err(|_| Error::unsupported("too many fields"))?;
    let mut behind = Vec::new();
    for ((name, dtype), offset) in members.iter().zip(offsets) {
        if name.is_empty() || name.contains('\0') {
            return Err(Error::unsupported(format!("HDF5 has no field with the name {name:?}")));
        }
        behind.extend(name.as_bytes());
        behind.push(0);
        behind.extend(offset.to_le_bytes().into_iter().take(width(len)));
        behind.extend(dtype);
    }
    let [low, high] = count.to_le_bytes();
    class(3, 6, [low, high, 0], len, &behind)
}

/// Returns the number of bytes that a number needs.
fn width(number: usize) -> usize {
    let bits = usize::BITS.saturating_sub(number.leading_zeros());
    usize::try_from(bits.div_ceil(8)).unwrap_or(8).max(1)
}

/// Returns the message of the fill value, which also states whether space is allocated at once or
/// with the first write.
pub(super) fn fill_value(fill: Option<&[u8]>, is_there: bool) -> Result<Vec<u8>> {
    let room = if is_there { 0x09 } else { 0x0a };
    let Some(fill) = fill else { return Ok(vec![3, room]) };
    let mut bytes = vec![3, room | 0x20];
    let len =
        u32::try_from(fill.len()).map_err(|_| Error::unsupported("its elements are too long"))?;
    bytes.extend(len.to_le_bytes());
    bytes.extend(fill);
    Ok(bytes)
}

/// Returns the layout of elements in C order at an address.
pub(super) fn contiguous(address: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![3, 1];
    bytes.extend(address.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes
}

/// Returns the layout of chunks in C order of their grid at an address, without an index.
pub(super) fn implicit(address: u64, chunk: &[u64], item_len: usize) -> Result<Vec<u8>> {
    let mut lens = chunk.to_vec();
    lens.push(item_len.to_u64());
    let longest = lens.iter().copied().max().unwrap_or(1);
    let width = width(longest.to_usize());
    let rank = u8::try_from(lens.len()).map_err(|_| Error::unsupported("too many dimensions"))?;
    let mut bytes = vec![4, 2, 0, rank, u8::try_from(width).unwrap_or(8)];
    for len in lens {
        bytes.extend(len.to_le_bytes().into_iter().take(width));
    }
    // The implicit index.
    bytes.push(2);
    bytes.extend(address.to_le_bytes());
    Ok(bytes)
}

/// Returns an attribute: its name, type, dimensions and elements.
pub(super) fn attribute(name: &str, dtype: &[u8], space: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = vec![3, 0];
    let long = || Error::unsupported(format!("the attribute {name} is too long"));
    for len in [name.len().saturating_add(1), dtype.len(), space.len()] {
        bytes.extend(u16::try_from(len).map_err(|_| long())?.to_le_bytes());
    }
    bytes.push(1);
    for part in [name.as_bytes(), &[0], dtype, space, value] {
        bytes.extend(part);
    }
    Ok(bytes)
}

/// Returns the message that all attributes are in the header.
pub(super) fn attribute_info() -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend([UNDEFINED.to_le_bytes(); 2].as_flattened());
    bytes
}

/// Returns the message that all links are in the header, in the order of their creation. Without
/// the order netCDF refuses to open a file for writing.
pub(super) fn link_info(count: usize) -> Vec<u8> {
    let mut bytes = vec![0, 3];
    bytes.extend(count.to_u64().to_le_bytes());
    bytes.extend([UNDEFINED.to_le_bytes(); 3].as_flattened());
    bytes
}

/// Returns a link of a group: its name, its number, and the address of the object.
pub(super) fn link(name: &str, number: usize, address: u64) -> Result<Vec<u8>> {
    let len = u16::try_from(name.len()).map_err(|_| Error::unsupported("a name is too long"))?;
    let mut bytes = vec![1, 0x15];
    bytes.extend(number.to_u64().to_le_bytes());
    bytes.push(1);
    bytes.extend(len.to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend(address.to_le_bytes());
    Ok(bytes)
}
