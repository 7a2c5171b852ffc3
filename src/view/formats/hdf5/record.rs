//! The form of elements with strings, or with anything else of variable length.
//!
//! HDF5 has no UTF-32, so each string becomes one of UTF-8 and of variable length, as h5py and
//! `AnnData` write strings, also those in fields of a structure. An element in the file then has
//! addresses in a global heap in place of strings, and its other bytes unchanged.

use std::ops::Range;

use super::message;
use crate::dtype::{DType, Field};
use crate::error::Result;

/// The length of the address of a value in a global heap.
const ADDRESS_LEN: usize = 16;

/// A part of an element in the file, by the bytes of the stored element that it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RecordPiece {
    /// These bytes, unchanged.
    Bytes(Range<usize>),
    /// The address of the string that these bytes are in UTF-32.
    Text(Range<usize>),
    /// The address of the whole element, which is of variable length.
    Whole,
}

/// The values in the heap, as readers take them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeapValues {
    /// Strings in UTF-8.
    Texts,
    /// Lists of bytes. Readers end a string at the first NUL.
    Lists,
}

/// The form of an element in the file.
#[derive(Debug, Clone)]
pub(super) struct FileElement {
    /// The type in the file.
    pub dtype: Vec<u8>,
    /// Its parts, in order.
    pub pieces: Vec<RecordPiece>,
    /// The length in the file in bytes.
    pub len: usize,
    values: HeapValues,
}

impl FileElement {
    /// Whether elements of a type have strings, or are of variable length.
    pub fn is_for(dtype: &DType) -> bool {
        match dtype {
            DType::Utf32(_) | DType::String | DType::VariableBytes => true,
            DType::Struct(fields) => fields.iter().any(|field| Self::is_for(&field.dtype)),
            _ => false,
        }
    }

    /// Returns the form of elements of a type.
    pub fn of(dtype: &DType, values: HeapValues) -> Result<Self> {
        let mut record = Self { dtype: Vec::new(), pieces: Vec::new(), len: 0, values };
        record.dtype = record.add(dtype, 0)?;
        Ok(record)
    }

    /// Returns the number of values in the heap of each element.
    pub fn values_count(&self) -> usize {
        self.pieces.iter().filter(|piece| !matches!(piece, RecordPiece::Bytes(_))).count()
    }

    /// Adds a member whose stored bytes begin at `at`. Returns its type.
    fn add(&mut self, dtype: &DType, at: usize) -> Result<Vec<u8>> {
        let end = at.saturating_add(dtype.item_len());
        match dtype {
            DType::Utf32(_) => self.add_value(RecordPiece::Text(at..end)),
            DType::String => self.add_value(RecordPiece::Whole),
            DType::VariableBytes => {
                self.values = HeapValues::Lists;
                self.add_value(RecordPiece::Whole)
            }
            DType::Struct(fields) if Self::is_for(dtype) => self.add_fields(fields, at),
            _ => {
                self.add_bytes(at..end);
                message::datatype(dtype)
            }
        }
    }

    fn add_fields(&mut self, fields: &[Field], at: usize) -> Result<Vec<u8>> {
        let (mut members, mut offsets, mut at) = (Vec::new(), Vec::new(), at);
        let start = self.len;
        for field in fields {
            offsets.push(self.len.saturating_sub(start));
            members.push((field.name.clone(), self.add_field(field, at)?));
            at = at.saturating_add(field.len());
        }
        message::compound(self.len.saturating_sub(start), &members, &offsets)
    }

    fn add_field(&mut self, field: &Field, at: usize) -> Result<Vec<u8>> {
        if !Self::is_for(&field.dtype) {
            self.add_bytes(at..at.saturating_add(field.len()));
            return message::field(field);
        }
        let (start, mut of_one) = (self.len, Vec::new());
        for number in 0..field.count() {
            let before = number.saturating_mul(field.dtype.item_len());
            of_one = self.add(&field.dtype, at.saturating_add(before))?;
        }
        if field.shape.is_empty() {
            return Ok(of_one);
        }
        message::array(&field.shape, self.len.saturating_sub(start), &of_one)
    }

    fn add_value(&mut self, piece: RecordPiece) -> Result<Vec<u8>> {
        self.pieces.push(piece);
        self.len = self.len.saturating_add(ADDRESS_LEN);
        match self.values {
            HeapValues::Texts => message::any_string(),
            HeapValues::Lists => message::any_bytes(),
        }
    }

    fn add_bytes(&mut self, bytes: Range<usize>) {
        self.len = self.len.saturating_add(bytes.len());
        match self.pieces.last_mut() {
            Some(RecordPiece::Bytes(last)) if last.end == bytes.start => last.end = bytes.end,
            _ => self.pieces.push(RecordPiece::Bytes(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, dtype: DType, shape: &[u32]) -> Field {
        Field { name: name.into(), dtype, shape: shape.to_vec() }
    }

    #[test]
    fn strings_of_a_structure_become_addresses_and_other_bytes_stay() {
        let inner = DType::Struct([field("t", DType::Utf32(1), &[])].into());
        let dtype = DType::Struct(
            [
                field("a", DType::Int(2), &[]),
                field("b", DType::Bytes(3), &[]),
                field("c", DType::Utf32(2), &[2]),
                field("d", inner, &[]),
                field("e", DType::Float(8), &[2, 2]),
            ]
            .into(),
        );
        let record = FileElement::of(&dtype, HeapValues::Texts).expect("a type");
        let texts =
            [RecordPiece::Text(5..13), RecordPiece::Text(13..21), RecordPiece::Text(21..25)];
        let mut pieces = vec![RecordPiece::Bytes(0..5)];
        pieces.extend(texts);
        pieces.push(RecordPiece::Bytes(25..57));
        assert_eq!((record.pieces.clone(), record.len), (pieces, 5 + 3 * 16 + 32));
        assert_eq!(record.values_count(), 3);
        assert_eq!(record.dtype.get(4..8), Some(&85_u32.to_le_bytes()[..]));
    }
}
