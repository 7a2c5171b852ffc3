//! Reads flatbuffers, in which Icechunk stores its metadata.
//!
//! ```text
//! buffer   u32 the position of the root table
//! table    i32 how far before it its vtable is | fields
//! vtable   u16 its length | u16 the length of the table | u16 for each field: its offset, 0: absent
//! vector   u32 the number of elements | elements
//! ```
//!
//! Strings, vectors and tables in a field are u32: how far behind the field they are. All numbers
//! are little endian.
//!
//! Every access is checked against the buffer, so that a damaged file is an error and never a read
//! elsewhere. Nothing is copied: a small file in which many fields lead to one long string takes no
//! more memory than its length. No method follows more than one offset for each call, so circles
//! end with the caller.

use zarrfs_base::error::{Error, Result};

/// A table in a buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlatTable<'b> {
    buffer: &'b [u8],
    at: usize,
    vtable: usize,
    vtable_len: usize,
}

/// A vector in a buffer, whose elements have a fixed size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vector<'b> {
    buffer: &'b [u8],
    start: usize,
    count: usize,
    element_len: usize,
}

fn damaged() -> Error {
    Error::corrupt("damaged Icechunk file: an offset leads out of it")
}

fn bytes_at<const N: usize>(buffer: &[u8], at: usize) -> Result<[u8; N]> {
    buffer.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or_else(damaged)
}

fn size(number: u32) -> Result<usize> {
    usize::try_from(number).map_err(|_| damaged())
}

fn u16_at(buffer: &[u8], at: usize) -> Result<usize> {
    Ok(usize::from(u16::from_le_bytes(bytes_at(buffer, at)?)))
}

fn u32_at(buffer: &[u8], at: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(bytes_at(buffer, at)?))
}

fn sum(at: usize, offset: usize) -> Result<usize> {
    at.checked_add(offset).ok_or_else(damaged)
}

/// Returns the position that the offset at `at` leads to.
fn follow(buffer: &[u8], at: usize) -> Result<usize> {
    sum(at, size(u32_at(buffer, at)?)?)
}

impl<'b> FlatTable<'b> {
    /// Returns the root table of a buffer.
    pub fn root(buffer: &'b [u8]) -> Result<Self> {
        Self::at(buffer, follow(buffer, 0)?)
    }

    /// Returns the table at a position, as [`Self::position`] returned it.
    pub fn at(buffer: &'b [u8], at: usize) -> Result<Self> {
        let distance = i64::from(i32::from_le_bytes(bytes_at(buffer, at)?));
        let vtable = i64::try_from(at).ok().and_then(|at| at.checked_sub(distance));
        let vtable = vtable.and_then(|it| usize::try_from(it).ok()).ok_or_else(damaged)?;
        Ok(Self { buffer, at, vtable, vtable_len: u16_at(buffer, vtable)? })
    }

    /// Returns the position of the table in its buffer.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the position of a field; `None` if it is absent.
    fn field(&self, index: usize) -> Result<Option<usize>> {
        let slot = index.checked_mul(2).and_then(|it| it.checked_add(4)).ok_or_else(damaged)?;
        if sum(slot, 2)? > self.vtable_len {
            return Ok(None);
        }
        match u16_at(self.buffer, sum(self.vtable, slot)?)? {
            0 => Ok(None),
            offset => sum(self.at, offset).map(Some),
        }
    }

    /// Returns the bytes of a field with a fixed size, a number or a struct.
    pub fn bytes<const N: usize>(&self, index: usize) -> Result<Option<[u8; N]>> {
        self.field(index)?.map(|at| bytes_at(self.buffer, at)).transpose()
    }

    /// Returns a number; 0 if it is absent, which is the default of all that are read here.
    pub fn u8(&self, index: usize) -> Result<u8> {
        Ok(self.bytes(index)?.map_or(0, u8::from_le_bytes))
    }

    /// Returns a number; 0 if it is absent.
    pub fn u32(&self, index: usize) -> Result<u32> {
        Ok(self.bytes(index)?.map_or(0, u32::from_le_bytes))
    }

    /// Returns a number; 0 if it is absent.
    pub fn u64(&self, index: usize) -> Result<u64> {
        Ok(self.bytes(index)?.map_or(0, u64::from_le_bytes))
    }

    /// Returns a table.
    pub fn table(&self, index: usize) -> Result<Option<Self>> {
        let Some(at) = self.field(index)? else { return Ok(None) };
        Self::at(self.buffer, follow(self.buffer, at)?).map(Some)
    }

    /// Returns a vector of elements of `element_len` bytes.
    pub fn vector(&self, index: usize, element_len: usize) -> Result<Option<Vector<'b>>> {
        let Some(at) = self.field(index)? else { return Ok(None) };
        let at = follow(self.buffer, at)?;
        let count = size(u32_at(self.buffer, at)?)?;
        let start = sum(at, 4)?;
        let end = count.checked_mul(element_len).and_then(|len| start.checked_add(len));
        if end.is_none_or(|end| end > self.buffer.len()) {
            return Err(damaged());
        }
        Ok(Some(Vector { buffer: self.buffer, start, count, element_len }))
    }

    /// Returns a vector of tables; an empty one if it is absent.
    pub fn tables(&self, index: usize) -> Result<Vector<'b>> {
        let empty = Vector { buffer: self.buffer, start: 0, count: 0, element_len: 4 };
        Ok(self.vector(index, 4)?.unwrap_or(empty))
    }

    /// Returns a vector of bytes.
    pub fn octets(&self, index: usize) -> Result<Option<&'b [u8]>> {
        let Some(vector) = self.vector(index, 1)? else { return Ok(None) };
        let end = sum(vector.start, vector.count)?;
        self.buffer.get(vector.start..end).map(Some).ok_or_else(damaged)
    }

    /// Returns a string.
    pub fn text(&self, index: usize) -> Result<Option<&'b str>> {
        let Some(bytes) = self.octets(index)? else { return Ok(None) };
        let not_utf8 = |_| Error::corrupt("damaged Icechunk file: a string is not UTF-8");
        std::str::from_utf8(bytes).map(Some).map_err(not_utf8)
    }
}

impl<'b> Vector<'b> {
    /// Returns the number of elements.
    pub fn count(&self) -> usize {
        self.count
    }

    fn place(&self, index: usize) -> Result<usize> {
        let offset = index.checked_mul(self.element_len).filter(|_| index < self.count);
        sum(self.start, offset.ok_or_else(damaged)?)
    }

    /// Returns the bytes of an element.
    pub fn bytes<const N: usize>(&self, index: usize) -> Result<[u8; N]> {
        bytes_at(self.buffer, self.place(index)?)
    }

    /// Returns an element that is a number.
    pub fn u32(&self, index: usize) -> Result<u32> {
        self.bytes(index).map(u32::from_le_bytes)
    }

    /// Returns an element that is a table.
    pub fn table(&self, index: usize) -> Result<FlatTable<'b>> {
        FlatTable::at(self.buffer, follow(self.buffer, self.place(index)?)?)
    }
}
