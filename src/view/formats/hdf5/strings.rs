//! The elements of an array of strings, as strings of variable length in HDF5.
//!
//! Each element is an address of 16 bytes in a global heap that follows the elements. Both are made
//! from the chunks when they are read. Only the length and place of each collection of the heap is
//! kept, so an array may have any number of strings. An array whose chunks are no longer those that
//! the file was generated from is [`Kind::Stale`].
//!
//! ```text
//! address of each element | collection of the fill value | collections of each chunk
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::Arc;

use foldhash::quality::FixedState;

use super::heap::{self, Address, collection_len};
use crate::array::{Coords, region};
use crate::buffer::Buffer;
use crate::codec::VlenPlaces;
use crate::error::{At, Error, Kind, Result};
use crate::view::elements::{Elements, GetChunk};
use crate::view::parts::Derived;
use crate::view::source::{Source, check_chunk_count};

/// The length of an element.
pub(super) const ITEM_LEN: u64 = 16;

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
    elements: Elements,
    count: u64,
    /// The address of the first element in the file.
    address: u64,
    chunks: Vec<Chunk>,
    collections: Vec<Collection>,
    /// Whether the first collection is that of the fill value.
    has_fill: bool,
    heap_len: u64,
    print: u64,
}

/// A chunk in C order of the grid.
#[derive(Debug)]
struct Chunk {
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

/// The strings of a chunk.
struct Items {
    bytes: Buffer,
    places: VlenPlaces,
}

impl Items {
    fn parse(bytes: Buffer, count: usize) -> Result<Self> {
        let places = VlenPlaces::of(&bytes, count)?;
        Ok(Self { bytes, places })
    }

    fn get(&self, index: usize) -> &[u8] {
        self.places.get(&self.bytes, index).unwrap_or_default()
    }
}

impl Strings {
    /// Returns the strings of an array. Reads every chunk once.
    pub fn new(source: &Source<'_>) -> Result<Self> {
        let array = source.array()?;
        let counts = array.grid().counts();
        check_chunk_count(counts)?;
        let too_long = || Error::unsupported("its strings are too long for a file");
        let shape = &array.model().shape;
        let count = shape.iter().try_fold(1, |all: u64, len| all.checked_mul(*len));
        let count = count.filter(|count| *count <= u64::MAX / ITEM_LEN).ok_or_else(too_long)?;
        let mut strings = Self {
            elements: Elements::of_chunks(source.path(), array),
            count,
            address: 0,
            chunks: Vec::new(),
            collections: Vec::new(),
            has_fill: false,
            heap_len: 0,
            print: 0,
        };
        let fill = array.model().fill.item(&array.model().dtype).into_owned();
        if !fill.is_empty() && count > 0 {
            strings.has_fill = true;
            strings.add(None, 0..1, collection_len([fill.len()]));
        }
        let mut print = FixedState::default().build_hasher();
        let mut at = vec![0; counts.len()];
        let (mut is_more, mut read) = (count > 0, 0_u64);
        while is_more {
            let bytes = strings.chunk(&Coords::new(at.clone()), source.get_chunk())?;
            let len = bytes.as_ref().map_or(0, |bytes| bytes.len());
            read = read.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
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

    fn add(&mut self, chunk: Option<usize>, items: Range<usize>, len: u64) {
        self.collections.push(Collection { chunk, items, at: self.heap_len, len });
        self.heap_len = self.heap_len.saturating_add(len);
    }

    /// Adds the collections of a chunk.
    fn add_chunk(&mut self, bytes: Option<Buffer>, at: &[u64]) -> Result<Chunk> {
        let first = self.collections.len();
        let Some(bytes) = bytes else {
            return Ok(Chunk { collections: first..first, print: None });
        };
        let print = Some(FixedState::default().hash_one(&bytes[..]));
        let items = Items::parse(bytes, self.chunk_count(&Coords::new(at))?)?;
        let (mut from, mut sum) = (0, 0_usize);
        let number = Some(self.chunks.len());
        let lens = |items: &Items, range: Range<usize>| {
            collection_len(range.map(|index| items.get(index).len()))
        };
        for index in 0..items.places.count() {
            let len = items.get(index).len();
            let is_full =
                index.saturating_sub(from) >= MAX_COUNT || sum.saturating_add(len) > MAX_LEN;
            if is_full && index > from {
                self.add(number, from..index, lens(&items, from..index));
                (from, sum) = (index, 0);
            }
            sum = sum.saturating_add(len);
        }
        if from < items.places.count() {
            self.add(number, from..items.places.count(), lens(&items, from..items.places.count()));
        }
        Ok(Chunk { collections: first..self.collections.len(), print })
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
    fn items(&self, number: usize, get: &GetChunk<'_>) -> Result<Option<Items>> {
        let counts = self.elements.array.grid().counts();
        let mut left = u64::try_from(number).unwrap_or(u64::MAX);
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
        bytes.map(|bytes| Items::parse(bytes, self.chunk_count(&coords)?)).transpose()
    }

    fn heap_address(&self, collection: &Collection) -> u64 {
        let table_len = self.count.saturating_mul(ITEM_LEN);
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

    /// Returns the address of a string in the heap.
    fn address_of(&self, element: u64, parsed: &Parsed<'_>) -> Result<[u8; 16]> {
        let (number, item) = self.place_of(element)?;
        let chunk =
            self.chunks.get(number).ok_or_else(|| Error::new(Kind::Internal, "no chunk"))?;
        let found = if let Some(items) = parsed.get(number)? {
            let all = self.collections.get(chunk.collections.clone()).unwrap_or_default();
            let at = all.partition_point(|one| one.items.end <= item);
            let in_collection = |one: &Collection| item.saturating_sub(one.items.start);
            all.get(at).map(|one| (one, in_collection(one), items.get(item).len()))
        } else {
            let model = self.elements.array.model();
            let fill = self.collections.first().filter(|_| self.has_fill);
            fill.map(|one| (one, 0, model.fill.item(&model.dtype).len()))
        };
        let Some((collection, index, len)) = found.filter(|(.., len)| *len > 0) else {
            return Ok([0; 16]);
        };
        let heap = self.heap_address(collection);
        Ok(Address { len, heap, number: index.saturating_add(1) }.to_bytes())
    }

    /// Returns the bytes of a collection.
    fn collection(&self, collection: &Collection, parsed: &Parsed<'_>) -> Result<Vec<u8>> {
        let Some(number) = collection.chunk else {
            let model = self.elements.array.model();
            return Ok(heap::collection([(1, &*model.fill.item(&model.dtype))]));
        };
        let items = parsed.get(number)?;
        let texts = collection
            .items
            .clone()
            .map(|index| items.as_ref().map_or(&[][..], |items| items.get(index)));
        let numbered = (1..).zip(texts).filter(|(_, text)| !text.is_empty());
        Ok(heap::collection(numbered))
    }
}

/// The chunks that were parsed for one read.
struct Parsed<'p> {
    strings: &'p Strings,
    get: &'p GetChunk<'p>,
    chunks: RefCell<HashMap<usize, Option<Arc<Items>>>>,
}

impl Parsed<'_> {
    fn get(&self, number: usize) -> Result<Option<Arc<Items>>> {
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
        self.count.saturating_mul(ITEM_LEN).saturating_add(self.heap_len)
    }

    fn print(&self) -> u64 {
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(self.elements.path.as_str().as_bytes());
        for number in [self.address, self.count, self.heap_len, self.print] {
            hasher.write_u64(number);
        }
        hasher.finish()
    }

    fn read(&self, from: u64, target: &mut [u8], get: &GetChunk<'_>) -> Result<()> {
        let parsed = Parsed { strings: self, get, chunks: RefCell::default() };
        let table_len = self.count.saturating_mul(ITEM_LEN);
        let mut at = from;
        let mut left = target;
        while !left.is_empty() {
            let (start, bytes) = if at < table_len {
                let element = at / ITEM_LEN;
                (element.saturating_mul(ITEM_LEN), self.address_of(element, &parsed)?.to_vec())
            } else {
                let in_heap = at.saturating_sub(table_len);
                let index = self
                    .collections
                    .partition_point(|one| one.at.saturating_add(one.len) <= in_heap);
                let one = self.collections.get(index);
                let one = one.ok_or_else(|| Error::new(Kind::Internal, "outside of a heap"))?;
                (table_len.saturating_add(one.at), self.collection(one, &parsed)?)
            };
            let skipped = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
            let bytes = bytes.get(skipped..).filter(|bytes| !bytes.is_empty());
            let bytes = bytes.ok_or_else(|| Error::new(Kind::Internal, "a heap is too short"))?;
            let count = bytes.len().min(left.len());
            let (head, rest) = left.split_at_mut(count);
            head.copy_from_slice(bytes.get(..count).unwrap_or_default());
            at = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
            left = rest;
        }
        Ok(())
    }
}
