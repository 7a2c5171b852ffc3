//! The objects of a file and their order.
//!
//! ```text
//! superblock | object headers | global heaps | elements of each dataset
//! ```
//!
//! The length of an object does not depend on addresses, so the objects are written twice: once to
//! compute their lengths, and again with the addresses.

use super::heap::{self, Address};
use super::message::{self, MessageKind, UNDEFINED};
use super::strings::Strings;
use crate::codec::lookup3;
use crate::error::{Error, Result};
use crate::view::cf::ConversionBudget;
use crate::view::parts::{Derived as _, Part, View, max_prefix_len};
use crate::width::{ToU64, ToUsize};

const SUPERBLOCK_LEN: u64 = 48;

/// Elements of at least this many bytes begin at a multiple of it, and shorter ones at a multiple
/// of eight.
const PAGE: u64 = 4 << 10;

/// The most objects in a global heap: their numbers have two bytes, and 0 marks free space.
const HEAP_COUNT: usize = 60_000;

/// The most nodes in a file.
const MAX_NODES: usize = 50_000;

/// The most nested groups.
const MAX_DEPTH: usize = 100;

/// A file under construction. The first object is the root.
#[derive(Debug, Default)]
pub(super) struct Hdf5File {
    pub objects: Vec<Object>,
    heap: Vec<HeapObject>,
    /// The length of all attributes in bytes.
    pub attributes_len: usize,
    /// The space for converted values.
    pub room: ConversionBudget,
}

/// A group or a dataset.
#[derive(Debug)]
pub(super) struct Object {
    pub attributes: Vec<Attribute>,
    pub content: ObjectContent,
}

#[derive(Debug)]
pub(super) enum ObjectContent {
    /// A group: names with the numbers of their objects.
    Group(Vec<(String, usize)>),
    /// A dataset.
    Dataset(Hdf5Dataset),
}

/// The elements of a dataset.
#[derive(Debug)]
pub(super) struct Hdf5Dataset {
    pub dtype: Vec<u8>,
    /// `None` for a dataset that has no elements, but no shape either.
    pub shape: Option<Vec<u64>>,
    pub fill: Option<Vec<u8>>,
    pub elements: ElementsLocation,
}

impl Hdf5Dataset {
    /// Returns the number of elements.
    fn count(&self) -> u64 {
        self.shape.iter().flatten().copied().fold(1, u64::saturating_mul)
    }
}

/// The location of elements.
#[derive(Debug)]
pub(super) enum ElementsLocation {
    /// In C order.
    Contiguous(Part),
    /// Strings of variable length in C order.
    Strings(Box<Strings>),
    /// Chunks of this shape, with the length of an element in bytes.
    Chunks(Part, Vec<u64>, usize),
    /// Nowhere, for a dataset of this many bytes that nothing reads.
    Nowhere(u64),
}

/// An attribute.
#[derive(Debug)]
pub(super) struct Attribute {
    pub name: String,
    pub dtype: Vec<u8>,
    pub space: Vec<u8>,
    pub value: AttributeElements,
}

/// The elements of an attribute.
#[derive(Debug)]
pub(super) enum AttributeElements {
    /// Bytes in the attribute.
    Bytes(Vec<u8>),
    /// Objects of the global heap, by number, each with its count of elements; `None` for no
    /// elements.
    InHeap(Vec<Option<(usize, u32)>>),
}

#[derive(Debug)]
enum HeapObject {
    Bytes(Vec<u8>),
    /// The address of an object.
    Reference(usize),
}

/// The addresses of all parts.
#[derive(Debug, Default)]
struct Addresses {
    objects: Vec<u64>,
    heaps: Vec<u64>,
    /// The address of the elements of each object.
    elements: Vec<u64>,
    end: u64,
}

impl Addresses {
    fn of(list: &[u64], number: usize) -> u64 {
        list.get(number).copied().unwrap_or_default()
    }
}

impl Hdf5File {
    /// Adds an object, and returns its number.
    pub fn add(&mut self, object: Object) -> usize {
        self.objects.push(object);
        self.objects.len().saturating_sub(1)
    }

    /// Returns the names in a group.
    pub fn names(&self, group: usize) -> impl Iterator<Item = &str> {
        let links = match self.objects.get(group).map(|group| &group.content) {
            Some(ObjectContent::Group(links)) => links.as_slice(),
            _ => &[],
        };
        links.iter().map(|(name, _)| name.as_str())
    }

    /// Adds an object to a group under a name.
    pub fn link(&mut self, group: usize, name: &str, object: usize) {
        let group = self.objects.get_mut(group).map(|group| &mut group.content);
        if let Some(ObjectContent::Group(links)) = group {
            links.push((name.to_owned(), object));
        }
    }

    /// Adds an attribute to an object.
    pub fn describe(&mut self, object: usize, attribute: Attribute) {
        self.attributes_len = self.attributes_len.saturating_add(attribute.len());
        if let Some(object) = self.objects.get_mut(object) {
            object.attributes.push(attribute);
        }
    }

    /// Fails for too many nodes, too deeply nested groups, or too many bytes of attributes.
    pub fn check_count(&self, depth: usize) -> Result<()> {
        let refused = |limit: usize, what: &str| {
            Err(Error::unsupported(format!("it has more than {limit} {what}")))
        };
        if self.objects.len() > MAX_NODES {
            return refused(MAX_NODES, "nodes");
        }
        if depth > MAX_DEPTH {
            return refused(MAX_DEPTH, "nested groups");
        }
        if u64::try_from(self.attributes_len).is_ok_and(|len| len > max_prefix_len()) {
            let detail = format!("its attributes have more than {} bytes", max_prefix_len());
            return Err(Error::unsupported(detail));
        }
        Ok(())
    }

    /// Adds a string to a global heap.
    pub fn text(&mut self, text: &str) -> Option<(usize, u32)> {
        let len = u32::try_from(text.len()).ok().filter(|len| *len > 0)?;
        self.attributes_len = self.attributes_len.saturating_add(text.len());
        self.heap.push(HeapObject::Bytes(text.as_bytes().to_vec()));
        Some((self.heap.len().saturating_sub(1), len))
    }

    /// Adds a reference to an object to a global heap.
    pub fn reference(&mut self, object: usize) -> (usize, u32) {
        self.heap.push(HeapObject::Reference(object));
        (self.heap.len().saturating_sub(1), 1)
    }

    /// Returns the finished file.
    pub fn into_view(mut self) -> Result<View> {
        let too_long = || Error::unsupported("it would exceed the maximum size of a file");
        let next = |at: u64, len: u64, multiple: u64| {
            at.checked_add(len)?.checked_next_multiple_of(multiple)
        };
        let none = Addresses::default();
        let mut addresses = Addresses::default();
        let mut at = SUPERBLOCK_LEN;
        for object in &self.objects {
            addresses.objects.push(at);
            let len = header(object, 0, &none)?.len().to_u64();
            at = next(at, len, 8).ok_or_else(too_long)?;
        }
        for heap in self.heap.chunks(HEAP_COUNT) {
            addresses.heaps.push(at);
            let len = collection(heap, &none).len().to_u64();
            at = next(at, len, 8).ok_or_else(too_long)?;
        }
        let metadata_len = at;
        // Short elements, such as coordinates, come first.
        let mut order: Vec<(u64, usize)> =
            self.objects.iter().map(Object::elements_len).zip(0..).collect();
        order.sort_unstable();
        addresses.elements = vec![UNDEFINED; self.objects.len()];
        for (len, number) in order.iter().copied().filter(|(len, _)| *len > 0) {
            let multiple = if len >= PAGE { PAGE } else { 8 };
            at = next(at, 0, multiple).ok_or_else(too_long)?;
            addresses.elements.get_mut(number).into_iter().for_each(|address| *address = at);
            at = next(at, len, 8).ok_or_else(too_long)?;
        }
        addresses.end = at;
        let metadata = self.metadata(&addresses, metadata_len)?;
        let mut parts = vec![Part::from(metadata)];
        let mut end = metadata_len;
        for (_, number) in order {
            let address = Addresses::of(&addresses.elements, number);
            let part = self.objects.get_mut(number);
            let part = part.and_then(|object| object.take_elements(address));
            let Some(part) = part.filter(|part| !part.is_empty()) else { continue };
            parts.push(Part::Zeros(address.saturating_sub(end)));
            end = address.saturating_add(part.len());
            parts.push(part);
        }
        parts.push(Part::Zeros(addresses.end.saturating_sub(end)));
        // h5py marks the file as open for writing, and later clears the mark.
        Ok(View::new(parts)?.with_bookkeeping(0..SUPERBLOCK_LEN))
    }

    /// Returns all bytes except the elements.
    fn metadata(&self, addresses: &Addresses, len: u64) -> Result<Vec<u8>> {
        let mut bytes = b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00".to_vec();
        let root = Addresses::of(&addresses.objects, 0);
        for address in [0, UNDEFINED, addresses.end, root] {
            bytes.extend(address.to_le_bytes());
        }
        bytes.extend(lookup3(&bytes, 0).to_le_bytes());
        for (number, object) in self.objects.iter().enumerate() {
            bytes.extend(header(object, number, addresses)?);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        for heap in self.heap.chunks(HEAP_COUNT) {
            bytes.extend(collection(heap, addresses));
        }
        bytes.resize(usize::try_from(len).unwrap_or(bytes.len()), 0);
        Ok(bytes)
    }
}

/// Returns an object header, version 2.
fn header(object: &Object, number: usize, addresses: &Addresses) -> Result<Vec<u8>> {
    let mut messages = Messages::default();
    match &object.content {
        ObjectContent::Group(links) => {
            messages.add(MessageKind::LinkInfo, &message::link_info(links.len()))?;
            messages.add(MessageKind::GroupInfo, &[0, 0])?;
            for (order, (name, object)) in links.iter().enumerate() {
                let address = Addresses::of(&addresses.objects, *object);
                messages.add(MessageKind::Link, &message::link(name, order, address)?)?;
            }
        }
        ObjectContent::Dataset(dataset) => {
            let address = Addresses::of(&addresses.elements, number);
            let (layout, is_there) = match &dataset.elements {
                ElementsLocation::Contiguous(part) => {
                    (message::contiguous(address, part.len()), true)
                }
                ElementsLocation::Chunks(_, chunk, item_len) => {
                    (message::implicit(address, chunk, *item_len)?, true)
                }
                ElementsLocation::Strings(strings) => {
                    let count = dataset.count();
                    let len = count.saturating_mul(strings.item_len());
                    (message::contiguous(address, len), true)
                }
                ElementsLocation::Nowhere(len) => (message::contiguous(UNDEFINED, *len), false),
            };
            let space = dataset.shape.as_deref().map(message::dataspace).transpose()?;
            messages.add(MessageKind::Dataspace, &space.unwrap_or_else(message::no_elements))?;
            messages.add(MessageKind::Datatype, &dataset.dtype)?;
            let fill = message::fill_value(dataset.fill.as_deref(), is_there)?;
            messages.add(MessageKind::FillValue, &fill)?;
            messages.add(MessageKind::Layout, &layout)?;
        }
    }
    messages.add(MessageKind::AttributeInfo, &message::attribute_info())?;
    for attribute in &object.attributes {
        let value = match &attribute.value {
            AttributeElements::Bytes(bytes) => bytes.clone(),
            AttributeElements::InHeap(items) => {
                items.iter().flat_map(|i| in_heap(*i, addresses)).collect()
            }
        };
        let Attribute { name, dtype, space, .. } = attribute;
        messages.add(MessageKind::Attribute, &message::attribute(name, dtype, space, &value)?)?;
    }
    let Messages(messages) = messages;
    let len = u32::try_from(messages.len()).map_err(|_| Error::unsupported("too many nodes"))?;
    let mut bytes = b"OHDR\x02\x02".to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend(messages);
    bytes.extend(lookup3(&bytes, 0).to_le_bytes());
    Ok(bytes)
}

impl Attribute {
    /// Returns the approximate length in a header.
    pub fn len(&self) -> usize {
        let value_len = match &self.value {
            AttributeElements::Bytes(bytes) => bytes.len(),
            AttributeElements::InHeap(items) => items.len().saturating_mul(16),
        };
        self.name.len().saturating_add(value_len)
    }
}

impl Object {
    /// Returns a group without members.
    pub fn group() -> Self {
        Self { attributes: Vec::new(), content: ObjectContent::Group(Vec::new()) }
    }

    fn elements_len(&self) -> u64 {
        match &self.content {
            ObjectContent::Dataset(Hdf5Dataset {
                elements: ElementsLocation::Contiguous(part) | ElementsLocation::Chunks(part, ..),
                ..
            }) => part.len(),
            ObjectContent::Dataset(Hdf5Dataset {
                elements: ElementsLocation::Strings(strings),
                ..
            }) => strings.len(),
            ObjectContent::Dataset(_) | ObjectContent::Group(_) => 0,
        }
    }

    /// Returns the elements for a file in which they are at `address`.
    fn take_elements(&mut self, address: u64) -> Option<Part> {
        match &mut self.content {
            ObjectContent::Dataset(Hdf5Dataset {
                elements: elements @ ElementsLocation::Strings(_),
                ..
            }) => match std::mem::replace(elements, ElementsLocation::Nowhere(0)) {
                ElementsLocation::Strings(strings) => {
                    Some(Part::Derived(Box::new(strings.at(address))))
                }
                _ => None,
            },
            ObjectContent::Dataset(Hdf5Dataset {
                elements: ElementsLocation::Contiguous(part) | ElementsLocation::Chunks(part, ..),
                ..
            }) => Some(std::mem::replace(part, Part::Zeros(0))),
            ObjectContent::Dataset(_) | ObjectContent::Group(_) => None,
        }
    }
}

#[derive(Default)]
struct Messages(Vec<u8>);

impl Messages {
    fn add(&mut self, kind: MessageKind, message: &[u8]) -> Result<()> {
        let len = u16::try_from(message.len())
            .map_err(|_| Error::unsupported(format!("a {kind:?} message is too long")))?;
        self.0.push(kind.number());
        self.0.extend(len.to_le_bytes());
        self.0.push(0);
        self.0.extend(message);
        Ok(())
    }
}

/// Returns the place of an object in a global heap.
fn in_heap(item: Option<(usize, u32)>, addresses: &Addresses) -> [u8; 16] {
    let Some((number, len)) = item else { return [0; 16] };
    let heap = Addresses::of(&addresses.heaps, number / HEAP_COUNT);
    let number = (number % HEAP_COUNT).saturating_add(1);
    Address { len: len.to_usize(), heap, number }.to_bytes()
}

/// Returns a collection of a global heap.
fn collection(objects: &[HeapObject], addresses: &Addresses) -> Vec<u8> {
    let references: Vec<[u8; 8]> = objects
        .iter()
        .map(|object| match object {
            HeapObject::Reference(of) => Addresses::of(&addresses.objects, *of).to_le_bytes(),
            HeapObject::Bytes(_) => [0; 8],
        })
        .collect();
    let bytes = objects.iter().zip(&references).map(|(object, reference)| match object {
        HeapObject::Bytes(bytes) => bytes.as_slice(),
        HeapObject::Reference(_) => reference,
    });
    heap::collection((1..).zip(bytes))
}
