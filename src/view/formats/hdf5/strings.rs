//! The elements of an array of strings, of bytes of variable length, or of structures with strings,
//! as values of variable length in HDF5.
//!
//! Each element has an address of 16 bytes for each of its values (see [`FileElement`]) in a global
//! heap that follows the elements. Both are made from the chunks when they are read. Only the
//! length and place of each collection of the heap is kept, so an array may have any number of
//! values. An array whose chunks are no longer those that the file was generated from is
//! [`Kind::Stale`].
//!
//! ```text
//! each element | collection of the fill value | collections of each chunk
//! ```

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::Arc;

use foldhash::quality::FixedState;

use super::heap::{self, Address, collection_len};
use super::record::{FileElement, HeapValues, RecordPiece};
use crate::array::{Coords, region};
use crate::buffer::Buffer;
use crate::codec::VlenPlaces;
use crate::dtype::DType;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::view::elements::{ElementRange, GetChunk};
use crate::view::parts::Derived;
use crate::view::source::{ViewSource, check_chunk_count, utf8};
use crate::width::{ToU64, ToUsize};

/// The most strings in a collection. The number of a string in it has two bytes.
const MAX_COUNT: usize = 4096;

/// The most bytes of strings in a collection, unless it has only one: readers keep a collection in
/// memory.
const MAX_LEN: usize = 1 << 20;

/// The most bytes of the strings of an array, in its chunks or in the file.
const MAX_HEAP_LEN: u64 = 16 << 30;

/// The most chunks that a read keeps parsed.
const MAX_PARSED: usize = 8;

/// The strings of an array.
#[derive(Debug)]
pub(super) struct Strings {
    elements: ElementRange,
    record: FileElement,
    count: u64,
    /// Whether a string has a NUL before its end.
    has_nul: bool,
    /// The address of the first element in the file.
    address: u64,
    chunks: Vec<StringChunk>,
    collections: Vec<Collection>,
    /// Whether the first collection is that of the fill value.
    has_fill: bool,
    heap_len: u64,
    print: u64,
}

/// A chunk in C order of the grid.
#[derive(Debug)]
struct StringChunk {
    /// Its collections.
    collections: Range<usize>,
    /// A number that depends on all of its bytes, `None` if it is not stored.
    print: Option<u64>,
}

/// A collection of a global heap.
#[derive(Debug)]
struct Collection {
    /// The chunk; `None` for the fill value.
    chunk: Option<usize>,
    /// The strings of the chunk in it.
    items: Range<usize>,
    /// The offset in the heap, and the length.
    at: u64,
    len: u64,
}

/// The values of a chunk, in order.
struct ChunkStrings {
    bytes: Buffer,
    /// The places of elements of variable length.
    places: Option<VlenPlaces>,
    count: usize,
}

impl ChunkStrings {
    fn parse(bytes: Buffer, count: usize, record: &FileElement) -> Result<Self> {
        let is_variable = record.pieces == [RecordPiece::Whole];
        let places = is_variable.then(|| VlenPlaces::of(&bytes, count)).transpose()?;
        let count = places.as_ref().map_or(count, VlenPlaces::count);
        Ok(Self { bytes, places, count: count.saturating_mul(record.values_count()) })
    }

    /// Returns the stored bytes of an element.
    fn element(&self, index: usize, item_len: usize) -> &[u8] {
        if let Some(places) = &self.places {
            return places.get(&self.bytes, index).unwrap_or_default();
        }
        let start = index.saturating_mul(item_len);
        self.bytes.get(start..start.saturating_add(item_len)).unwrap_or_default()
    }
}

impl Strings {
    /// Returns the strings of an array. Reads every chunk once.
    pub fn new(source: &ViewSource<'_>) -> Result<Self> {
        let array = source.array()?;
        let counts = array.grid().counts();
        check_chunk_count(counts)?;
        if let Some(error) = array.not_understood() {
            return Err(Error::unsupported(format!("the array cannot be decoded: {error}")));
        }
        let too_long = || Error::unsupported("its strings are too long for a file");
        let model = array.model();
        let record = FileElement::of(&model.dtype, HeapValues::Texts)?;
        if record.values_count() > MAX_COUNT {
            let detail = format!("an element has more than {MAX_COUNT} strings");
            return Err(Error::unsupported(detail));
        }
        let item_len = record.len.to_u64().max(1);
        let count = model.shape.iter().try_fold(1, |all: u64, len| all.checked_mul(*len));
        let count = count.filter(|count| *count <= u64::MAX / item_len).ok_or_else(too_long)?;
        let mut strings = Self {
            elements: ElementRange::of_chunks(source.path(), array),
            record,
            count,
            has_nul: false,
            address: 0,
            chunks: Vec::new(),
            collections: Vec::new(),
            has_fill: false,
            heap_len: 0,
            print: 0,
        };
        let fill = strings.fill_values();
        if count > 0 && fill.iter().any(|value| !value.is_empty()) {
            strings.has_fill = true;
            strings.has_nul = fill.iter().any(|value| value.contains(&0));
            strings.add(None, 0..fill.len(), collection_len(fill.iter().map(Vec::len)));
        }
        let mut print = FixedState::default().build_hasher();
        let mut at = vec![0; counts.len()];
        let (mut is_more, mut read) = (count > 0, 0_u64);
        while is_more {
            let bytes = strings.chunk(&Coords::new(at.clone()), source.get_chunk())?;
            let len = bytes.as_ref().map_or(0, |bytes| bytes.len());
            read = read.saturating_add(len.to_u64());
            let chunk = strings.add_chunk(bytes, &at)?;
            print.write_u64(chunk.print.unwrap_or_default());
            strings.chunks.push(chunk);
            if strings.heap_len.max(read) > MAX_HEAP_LEN {
                return Err(too_long());
            }
            is_more = region::step(&mut at, counts);
        }
        strings.print = print.finish();
        Ok(strings)
    }

    /// Returns the same strings in a file in which the first element is at `address`.
    pub fn at(self, address: u64) -> Self {
        Self { address, ..self }
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> Result<Vec<u8>> {
        let model = self.elements.array.model();
        let values = if self.has_nul { HeapValues::Lists } else { HeapValues::Texts };
        Ok(FileElement::of(&model.dtype, values)?.dtype)
    }

    /// Whether strings are lists of bytes in the file, because readers would stop at a NUL.
    pub fn are_lists(&self) -> bool {
        self.has_nul && self.elements.array.model().dtype != DType::VariableBytes
    }

    /// Returns the length of an element in bytes.
    pub fn item_len(&self) -> u64 {
        self.record.len.to_u64().max(1)
    }

    /// Returns the values of the fill value.
    fn fill_values(&self) -> Vec<Vec<u8>> {
        let model = self.elements.array.model();
        let fill = model.fill.item(&model.dtype);
        self.values_of(&fill).map(Cow::into_owned).collect()
    }

    /// Returns the values of a stored element.
    fn values_of<'e>(&'e self, element: &'e [u8]) -> impl Iterator<Item = Cow<'e, [u8]>> {
        self.record.pieces.iter().filter_map(|piece| match piece {
            RecordPiece::Bytes(_) => None,
            RecordPiece::Text(bytes) => {
                Some(Cow::Owned(utf8(element.get(bytes.clone()).unwrap_or_default())))
            }
            RecordPiece::Whole => Some(Cow::Borrowed(element)),
        })
    }

    /// Returns a value of a chunk.
    fn value<'e>(&'e self, items: &'e ChunkStrings, index: usize) -> Cow<'e, [u8]> {
        let each = self.record.values_count().max(1);
        let element = items.element(index / each, self.elements.array.model().dtype.item_len());
        self.values_of(element).nth(index % each).unwrap_or_default()
    }

    fn add(&mut self, chunk: Option<usize>, items: Range<usize>, len: u64) {
        self.collections.push(Collection { chunk, items, at: self.heap_len, len });
        self.heap_len = self.heap_len.saturating_add(len);
    }

    /// Adds the collections of a chunk.
    fn add_chunk(&mut self, bytes: Option<Buffer>, at: &[u64]) -> Result<StringChunk> {
        let first = self.collections.len();
        let Some(bytes) = bytes else {
            return Ok(StringChunk { collections: first..first, print: None });
        };
        let print = Some(FixedState::default().hash_one(&bytes[..]));
        let items = ChunkStrings::parse(bytes, self.chunk_count(&Coords::new(at))?, &self.record)?;
        let number = Some(self.chunks.len());
        let (mut from, mut lens, mut sum) = (0, Vec::new(), 0_usize);
        for index in 0..items.count {
            let value = self.value(&items, index);
            let (len, has_nul) = (value.len(), value.contains(&0));
            self.has_nul |= has_nul;
            let is_full = lens.len() >= MAX_COUNT || sum.saturating_add(len) > MAX_LEN;
            if is_full && !lens.is_empty() {
                self.add(number, from..index, collection_len(std::mem::take(&mut lens)));
                (from, sum) = (index, 0);
            }
            lens.push(len);
            sum = sum.saturating_add(len);
        }
        if !lens.is_empty() {
            self.add(number, from..items.count, collection_len(lens));
        }
        Ok(StringChunk { collections: first..self.collections.len(), print })
    }

    fn chunk(&self, coords: &Coords, get: &GetChunk<'_>) -> Result<Option<Buffer>> {
        Ok(get(&self.elements, coords, &(0..usize::MAX))?.map(|chunk| chunk.bytes))
    }

    /// Returns the number of strings in a chunk.
    fn chunk_count(&self, coords: &Coords) -> Result<usize> {
        let spans = self.elements.array.grid().spans(coords)?;
        let count = spans.iter().try_fold(1, |all: u64, (_, len)| all.checked_mul(*len));
        let count = count.and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| Error::too_large("a chunk of strings"))
    }

    /// Returns the strings of a chunk; `None` if it is not stored.
    fn items(&self, number: usize, get: &GetChunk<'_>) -> Result<Option<ChunkStrings>> {
        let counts = self.elements.array.grid().counts();
        let mut left = number.to_u64();
        let mut indices = vec![0; counts.len()];
        for (index, count) in indices.iter_mut().zip(counts).rev() {
            *index = left % (*count).max(1);
            left /= (*count).max(1);
        }
        let coords = Coords::new(indices);
        let bytes = self.chunk(&coords, get)?;
        let print = bytes.as_ref().map(|bytes| FixedState::default().hash_one(&bytes[..]));
        if self.chunks.get(number).is_none_or(|chunk| chunk.print != print) {
            let detail = "its strings have changed since the file was opened";
            return Err(Error::new(Kind::Stale, detail).at(&self.elements.path));
        }
        let parse = |bytes| ChunkStrings::parse(bytes, self.chunk_count(&coords)?, &self.record);
        bytes.map(parse).transpose()
    }

    fn heap_address(&self, collection: &Collection) -> u64 {
        let table_len = self.count.saturating_mul(self.item_len());
        self.address.saturating_add(table_len).saturating_add(collection.at)
    }

    /// Returns the chunk of the element with this number, and its number in the chunk.
    fn place_of(&self, element: u64) -> Result<(usize, usize)> {
        let (grid, shape) = (self.elements.array.grid(), &self.elements.array.model().shape);
        let outside = || Error::new(Kind::Internal, "an element outside of its array");
        let (mut left, mut within) = (element, vec![0; shape.len()]);
        for (index, len) in within.iter_mut().zip(shape).rev() {
            *index = left % (*len).max(1);
            left /= (*len).max(1);
        }
        let indices: Option<Vec<u64>> =
            within.iter().enumerate().map(|(axis, index)| grid.index_of(axis, *index)).collect();
        let coords = Coords::new(indices.ok_or_else(outside)?);
        let linear = |indices: &mut dyn Iterator<Item = (u64, u64)>| {
            indices.fold(0_u64, |all, (index, len)| all.saturating_mul(len).saturating_add(index))
        };
        let counts = grid.counts().iter().copied();
        let chunk = linear(&mut coords.indices().iter().copied().zip(counts));
        let spans = grid.spans(&coords)?;
        let item = linear(
            &mut within
                .iter()
                .zip(&spans)
                .map(|(at, (start, len))| (at.saturating_sub(*start), *len)),
        );
        let number = |number: u64| usize::try_from(number).map_err(|_| outside());
        Ok((number(chunk)?, number(item)?))
    }

    /// Returns an element of the file.
    fn item(&self, element: u64, parsed: &Parsed<'_>) -> Result<Vec<u8>> {
        let (number, index) = self.place_of(element)?;
        let model = self.elements.array.model();
        let items = parsed.get(number)?;
        let fill = model.fill.item(&model.dtype);
        let stored = match &items {
            Some(items) => items.element(index, model.dtype.item_len()),
            None => &fill,
        };
        let each = self.record.values_count();
        let mut value = items.as_ref().map_or(0, |_| index.saturating_mul(each));
        let chunk = items.as_ref().map(|_| number);
        let mut values = self.values_of(stored);
        let mut bytes = Vec::with_capacity(self.record.len);
        for piece in &self.record.pieces {
            if let RecordPiece::Bytes(range) = piece {
                bytes.extend(stored.get(range.clone()).unwrap_or_default());
                continue;
            }
            let len = values.next().map_or(0, |value| value.len());
            bytes.extend(self.address_of(chunk, value, len)?);
            value = value.saturating_add(1);
        }
        Ok(bytes)
    }

    /// Returns the address in the heap of a value of a chunk, or of the fill value.
    fn address_of(&self, chunk: Option<usize>, value: usize, len: usize) -> Result<[u8; 16]> {
        let found = match chunk {
            Some(number) => {
                let chunk = self.chunks.get(number);
                let chunk = chunk.ok_or_else(|| Error::new(Kind::Internal, "no chunk"))?;
                let all = self.collections.get(chunk.collections.clone()).unwrap_or_default();
                all.get(all.partition_point(|one| one.items.end <= value))
            }
            None => self.collections.first().filter(|_| self.has_fill),
        };
        let Some(collection) = found.filter(|_| len > 0) else { return Ok([0; 16]) };
        let number = value.saturating_sub(collection.items.start).saturating_add(1);
        Ok(Address { len, heap: self.heap_address(collection), number }.to_bytes())
    }

    /// Returns the bytes of a collection.
    fn collection(&self, collection: &Collection, parsed: &Parsed<'_>) -> Result<Vec<u8>> {
        let values: Vec<Cow<'_, [u8]>> = match collection.chunk {
            None => self.fill_values().into_iter().map(Cow::Owned).collect(),
            Some(number) => {
                let items = parsed.get(number)?;
                let value = |index| match &items {
                    Some(items) => Cow::Owned(self.value(items, index).into_owned()),
                    None => Cow::Borrowed(&[][..]),
                };
                collection.items.clone().map(value).collect()
            }
        };
        let numbered = (1..).zip(values.iter().map(|value| &**value));
        Ok(heap::collection(numbered.filter(|(_, value)| !value.is_empty())))
    }
}

/// The chunks that were parsed for one read.
struct Parsed<'p> {
    strings: &'p Strings,
    get: &'p GetChunk<'p>,
    chunks: RefCell<HashMap<usize, Option<Arc<ChunkStrings>>>>,
}

impl Parsed<'_> {
    fn get(&self, number: usize) -> Result<Option<Arc<ChunkStrings>>> {
        if let Some(known) = self.chunks.borrow().get(&number) {
            return Ok(known.clone());
        }
        let items = self.strings.items(number, self.get)?.map(Arc::new);
        let mut chunks = self.chunks.borrow_mut();
        if chunks.len() >= MAX_PARSED {
            chunks.clear();
        }
        chunks.insert(number, items.clone());
        Ok(items)
    }
}

impl Derived for Strings {
    fn len(&self) -> u64 {
        self.count.saturating_mul(self.item_len()).saturating_add(self.heap_len)
    }

    fn print(&self) -> u64 {
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(self.elements.path.as_str().as_bytes());
        for number in [self.address, self.count, self.heap_len, self.print] {
            hasher.write_u64(number);
        }
        hasher.finish()
    }

    fn sources(&self) -> Vec<&ElementRange> {
        vec![&self.elements]
    }

    fn what(&self) -> &'static str {
        "the header and strings"
    }

    fn read(&self, from: u64, target: &mut [u8], get: &GetChunk<'_>) -> Result<()> {
        let parsed = Parsed { strings: self, get, chunks: RefCell::default() };
        let item_len = self.item_len();
        let table_len = self.count.saturating_mul(item_len);
        let mut at = from;
        let mut left = target;
        while !left.is_empty() {
            let (start, bytes) = if at < table_len {
                let element = at / item_len;
                (element.saturating_mul(item_len), self.item(element, &parsed)?)
            } else {
                let in_heap = at.saturating_sub(table_len);
                let index = self
                    .collections
                    .partition_point(|one| one.at.saturating_add(one.len) <= in_heap);
                let one = self.collections.get(index);
                let one = one.ok_or_else(|| Error::new(Kind::Internal, "outside of a heap"))?;
                (table_len.saturating_add(one.at), self.collection(one, &parsed)?)
            };
            let skipped = at.saturating_sub(start).to_usize();
            let bytes = bytes.get(skipped..).filter(|bytes| !bytes.is_empty());
            let bytes = bytes.ok_or_else(|| Error::new(Kind::Internal, "a heap is too short"))?;
            let count = bytes.len().min(left.len());
            let (head, rest) = left.split_at_mut(count);
            head.copy_from_slice(bytes.get(..count).unwrap_or_default());
            at = at.saturating_add(count.to_u64());
            left = rest;
        }
        Ok(())
    }
}
