//! Global heaps, which hold strings and references of variable length.
//!
//! A heap consists of collections. An element has the length of its value, the address of the
//! collection, and the number of the value in it. [Format
//! specification](https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html), section
//! "Global Heap".

/// The minimum length of a collection.
use crate::width::ToU64;

const MIN_LEN: usize = 4 << 10;

/// The length of the header of a collection, and of that of each value.
const HEADER_LEN: usize = 16;

/// The place of a value: its length in elements, the address of the collection, and its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address {
    pub len: usize,
    pub heap: u64,
    pub number: usize,
}

impl Address {
    /// Returns it as the bytes of an element.
    pub fn to_bytes(self) -> [u8; 16] {
        let len = u32::try_from(self.len).unwrap_or(u32::MAX).to_le_bytes();
        let number = u32::try_from(self.number).unwrap_or(u32::MAX).to_le_bytes();
        let fields = [&len[..], &self.heap.to_le_bytes(), &number].concat();
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
        bytes
    }
}

/// Returns the length of a collection of values of these lengths; empty values are not stored.
pub(super) fn collection_len(lens: impl IntoIterator<Item = usize>) -> u64 {
    let padded = |len: usize| len.checked_next_multiple_of(8).unwrap_or(usize::MAX);
    let stored = lens.into_iter().filter(|len| *len > 0);
    let len = stored
        .map(|len| padded(len).saturating_add(HEADER_LEN))
        .fold(0, usize::saturating_add)
        .saturating_add(2 * HEADER_LEN);
    let len = len.checked_next_multiple_of(MIN_LEN).unwrap_or(usize::MAX);
    len.to_u64()
}

/// Returns a collection of values with their numbers.
pub(super) fn collection<'v>(values: impl IntoIterator<Item = (u16, &'v [u8])>) -> Vec<u8> {
    let mut objects = Vec::new();
    let mut object = |number: u16, refs: u16, len: usize, bytes: &[u8]| {
        objects.extend(number.to_le_bytes());
        objects.extend(refs.to_le_bytes());
        objects.extend([0; 4]);
        objects.extend(len.to_u64().to_le_bytes());
        objects.extend(bytes);
        objects.resize(objects.len().next_multiple_of(8), 0);
        objects.len()
    };
    let mut len = 0;
    for (number, bytes) in values {
        len = object(number, 1, bytes.len(), bytes);
    }
    // Free space is an object, too.
    let all = len.saturating_add(2 * HEADER_LEN).next_multiple_of(MIN_LEN);
    object(0, 0, all.saturating_sub(len).saturating_sub(HEADER_LEN), &[]);
    let mut bytes = b"GCOL\x01\0\0\0".to_vec();
    bytes.extend(all.to_u64().to_le_bytes());
    bytes.extend(objects);
    bytes.resize(all, 0);
    bytes
}
