//! Fill values: the element that stands where the store has no chunk.

use std::borrow::Cow;

use crate::dtype::DType;

/// The value of elements that are not stored: the bits of one element, or undefined (a null in the document).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillValue(Option<Box<[u8]>>);

impl FillValue {
    /// No value was given: elements that are not stored read as zero bits.
    pub const UNDEFINED: Self = Self(None);

    /// Whether the document gives a value.
    pub fn is_defined(&self) -> bool {
        self.0.is_some()
    }

    /// The bytes of one element, little endian; zeros where it is undefined.
    pub fn item(&self, dtype: DType) -> Cow<'_, [u8]> {
        match &self.0 {
            Some(bits) => Cow::Borrowed(bits),
            None => Cow::Owned(vec![0; dtype.item_len()]),
        }
    }
}
