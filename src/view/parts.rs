//! A file as a sequence of parts: bytes of its format, and elements of arrays.
//!
//! The length of a file is known without reading chunks, and reading a range decodes only the
//! chunks that overlap it. A file never changes, except for bytes that the format lets libraries
//! rewrite.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;

use bytes::Bytes;
use foldhash::quality::FixedState;
use parking_lot::Mutex;

use super::elements::{ChangeChunk, EachChunk, ElementRange, GetChunk, KeepGoing};
use super::layout::Layout;
use super::left_out::LeftOutOfView;
use crate::budget::Lease;
use crate::buffer::reserve;
use crate::error::{Error, Kind, Result};
use crate::resources;
use crate::width::{ToU64, ToUsize};

/// Returns the most bytes of a file that are not elements. A header may have an entry for every
/// tile of an image, or for every array of a group.
pub fn max_prefix_len() -> u64 {
    resources::within_memory(64 << 20, 16)
}

/// How many derived bytes are read at a time.
const DERIVED_PIECE: usize = 1 << 20;

/// The chunks to decode before a sequential read can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slab {
    /// A row of chunks, of this many bytes.
    Row(u64),
    /// A chunk, of this many bytes.
    Chunk(u64),
}

/// A part of a file.
#[derive(Debug)]
pub enum Part {
    /// These bytes.
    Bytes(Bytes),
    /// This many zero bytes.
    Zeros(u64),
    /// The elements of an array.
    Elements(ElementRange),
    /// Bytes that are made from chunks when they are read, and cannot be written. The length of a
    /// file is fixed, so theirs may not depend on the elements unless the format has read them all.
    Derived(Box<dyn Derived>),
}

/// Bytes of a file that are made from chunks when they are read.
pub trait Derived: fmt::Debug + Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> u64;
    /// Returns a number that depends on all bytes.
    fn print(&self) -> u64;
    /// Returns the elements that it is made from. When they change, the mount makes a new view.
    fn sources(&self) -> Vec<&ElementRange>;
    /// Returns a name of the bytes for users, in the plural.
    fn what(&self) -> &'static str;
    /// Fills `target` with the bytes from `from` on. [`Kind::Stale`] if the chunks have changed.
    fn read(&self, from: u64, target: &mut [u8], get: &GetChunk<'_>) -> Result<()>;
    /// Calls `each` for the chunks from which [`Self::read`] gets a range, in the same order, until
    /// it breaks. It gets all others as a whole, with `0..usize::MAX`, and without a plan.
    fn for_each_chunk<'d>(
        &'d self,
        _from: u64,
        _len: usize,
        _each: &mut EachChunk<'_, 'd>,
    ) -> KeepGoing {
        Ok(ControlFlow::Continue(()))
    }
}

/// A node as a file.
#[derive(Debug)]
pub struct View {
    /// Each part, with its end in the file.
    parts: Vec<(Part, u64)>,
    len: u64,
    prefix_len: u64,
    /// Bytes that a library rewrites for its own bookkeeping. They exist only in memory. A leaf
    /// lock.
    overlay: Mutex<Overlay>,
    left_out: LeftOutOfView,
    /// A number that depends on all bytes that are not elements, once it is known.
    print: OnceLock<u64>,
    /// The memory of its header and of its nodes, given back with the last owner of the view.
    memory: Option<Lease>,
}

#[derive(Debug, Default)]
struct Overlay {
    /// The ranges that a library may rewrite.
    allowed: Vec<Range<u64>>,
    /// The rewritten bytes, each run with its offset.
    written: Vec<(u64, Vec<u8>)>,
}

/// The overlap of a part and a range of the file.
struct PartOverlap<'v> {
    part: &'v Part,
    /// Its start in the part.
    from: u64,
    /// Its place in the range.
    within: Range<usize>,
}

impl View {
    /// Returns the file that consists of these parts.
    pub fn new(parts: impl IntoIterator<Item = Part>) -> Result<Self> {
        let mut ends = Vec::new();
        let (mut len, mut prefix_len) = (0_u64, 0_u64);
        for part in parts {
            let part_len = part.len();
            if let Part::Bytes(_) = part {
                prefix_len = prefix_len.saturating_add(part_len);
            }
            len = len
                .checked_add(part_len)
                .filter(|len| i64::try_from(*len).is_ok())
                .ok_or_else(|| Error::unsupported("it would exceed the maximum size of a file"))?;
            ends.push((part, len));
        }
        let limit = max_prefix_len();
        if prefix_len > limit {
            return Err(Error::unsupported(format!(
                "its header would have {prefix_len} bytes, the limit is {limit}"
            )));
        }
        Ok(Self {
            parts: ends,
            len,
            prefix_len,
            overlay: Mutex::default(),
            left_out: LeftOutOfView::default(),
            print: OnceLock::new(),
            memory: None,
        })
    }

    /// Allows libraries to rewrite `range` for their bookkeeping.
    #[must_use]
    pub fn with_bookkeeping(self, range: Range<u64>) -> Self {
        self.overlay.lock().allowed.push(range);
        self
    }

    /// Returns the same file with a list of the nodes and properties that its format cannot hold.
    #[must_use]
    pub fn with_left_out(self, left_out: LeftOutOfView) -> Self {
        Self { left_out, ..self }
    }

    /// Returns the same file, which owns the memory of its header and of its nodes.
    #[must_use]
    pub fn with_memory(self, memory: Lease) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// Returns the number of bytes that it owns.
    pub fn memory_len(&self) -> u64 {
        self.memory.as_ref().map_or(self.prefix_len, Lease::len)
    }

    /// Returns the list of what the file lacks, to add to it.
    pub(super) fn left_out_mut(&mut self) -> &mut LeftOutOfView {
        &mut self.left_out
    }

    /// Returns the nodes and properties that the format cannot hold in this file.
    pub fn left_out(&self) -> &LeftOutOfView {
        &self.left_out
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether another file has the same bytes around the same elements.
    pub fn is_like(&self, other: &Self) -> bool {
        let is_like = |(one, other): (&(Part, u64), &(Part, u64))| match (&one.0, &other.0) {
            (Part::Bytes(one), Part::Bytes(other)) => one == other,
            (Part::Zeros(one), Part::Zeros(other)) => one == other,
            (Part::Elements(one), Part::Elements(other)) => one.is_like(other),
            (Part::Derived(one), Part::Derived(other)) => one.print() == other.print(),
            _ => false,
        };
        self.parts.len() == other.parts.len() && self.parts.iter().zip(&other.parts).all(is_like)
    }

    /// Returns a number that depends on all bytes that are not elements.
    pub fn print(&self) -> u64 {
        *self.print.get_or_init(|| {
            let mut hasher = FixedState::default().build_hasher();
            for (part, end) in &self.parts {
                end.hash(&mut hasher);
                match part {
                    Part::Bytes(own) => own.hash(&mut hasher),
                    Part::Derived(derived) => derived.print().hash(&mut hasher),
                    Part::Zeros(_) | Part::Elements(_) => {}
                }
            }
            hasher.finish()
        })
    }

    /// Returns the number of bytes that the view keeps in memory.
    pub fn prefix_len(&self) -> u64 {
        self.prefix_len
    }

    /// Returns the elements in the file.
    pub fn elements(&self) -> impl Iterator<Item = &ElementRange> {
        self.parts.iter().filter_map(|(part, _)| match part {
            Part::Elements(elements) => Some(elements),
            Part::Bytes(_) | Part::Zeros(_) | Part::Derived(_) => None,
        })
    }

    /// Returns the elements that the byte at `offset` is one of, and their place in the file;
    /// `None` for other bytes.
    pub fn elements_at(&self, offset: u64) -> Option<(&ElementRange, Range<u64>)> {
        let at = self.parts.partition_point(|(_, end)| *end <= offset);
        match self.parts.get(at)? {
            (Part::Elements(elements), end) => {
                Some((elements, end.saturating_sub(elements.len())..*end))
            }
            _ => None,
        }
    }

    /// Calls `each` with the bytes of the file that are no elements, piece by piece, each with its
    /// offset. Zeros are left out.
    pub fn for_each_other_part(
        &self,
        get: &GetChunk<'_>,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut begin = 0;
        for (part, end) in &self.parts {
            match part {
                Part::Bytes(own) => each(begin, own)?,
                Part::Derived(_) => {
                    let mut at = begin;
                    while at < *end {
                        let len = end.saturating_sub(at).to_usize().min(DERIVED_PIECE);
                        each(at, &self.read(at, len, get)?)?;
                        at = at.saturating_add(len.to_u64());
                    }
                }
                Part::Zeros(_) | Part::Elements(_) => {}
            }
            begin = *end;
        }
        Ok(())
    }

    /// Returns where the first elements begin; the length of the file if it has none.
    pub fn header_len(&self) -> u64 {
        let mut begin = 0;
        for (part, end) in &self.parts {
            if matches!(part, Part::Elements(elements) if !elements.is_empty()) {
                return begin;
            }
            begin = *end;
        }
        self.len
    }

    /// Returns the elements in the file, and those that other bytes are made from when they are
    /// read.
    pub fn sources(&self) -> impl Iterator<Item = &ElementRange> {
        self.parts.iter().flat_map(|(part, _)| match part {
            Part::Elements(elements) => vec![elements],
            Part::Derived(derived) => derived.sources(),
            Part::Bytes(_) | Part::Zeros(_) => Vec::new(),
        })
    }

    /// Whether any of `len` bytes from `offset` on is derived from chunks.
    pub fn is_derived(&self, offset: u64, len: usize) -> bool {
        self.pieces(offset, len).any(|piece| matches!(piece.part, Part::Derived(_)))
    }

    /// Reads up to `len` bytes from `offset`: fewer only at the end.
    pub fn read(&self, offset: u64, len: usize, get: &GetChunk<'_>) -> Result<Vec<u8>> {
        let left = self.len.saturating_sub(offset);
        let len = left.to_usize().min(len);
        let mut bytes = reserve(len)?;
        bytes.resize(len, 0);
        for PartOverlap { part, from, within } in self.pieces(offset, len) {
            let target = bytes.get_mut(within).ok_or_else(outside)?;
            match part {
                Part::Bytes(own) => target.copy_from_slice(slice(own, from, target.len())?),
                Part::Zeros(_) => {}
                Part::Elements(elements) => elements.read(from, target, get)?,
                Part::Derived(derived) => derived.read(from, target, get)?,
            }
        }
        self.overlay.lock().read(offset, &mut bytes);
        Ok(bytes)
    }

    /// Calls `each` for each chunk that the bytes between two offsets need, until it breaks.
    pub fn for_each_chunk<'v>(
        &'v self,
        (from, until): (u64, u64),
        each: &mut EachChunk<'_, 'v>,
    ) -> KeepGoing {
        let len = until.saturating_sub(from).to_usize();
        for PartOverlap { part, from, within } in self.pieces(from, len) {
            let walk = match part {
                Part::Elements(elements) => elements.for_each_chunk(from, within.len(), each)?,
                Part::Derived(derived) => derived.for_each_chunk(from, within.len(), each)?,
                Part::Bytes(_) | Part::Zeros(_) => continue,
            };
            if walk.is_break() {
                return Ok(walk);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns an offset between two offsets at which rows of elements end: the longest rows that
    /// end in the second half, or `until` if none do. A read up to this offset has one box in each
    /// chunk.
    pub fn rows_until(&self, from: u64, until: u64) -> u64 {
        let at = self.parts.partition_point(|(_, end)| *end <= from);
        let Some((Part::Elements(elements), end)) = self.parts.get(at) else { return until };
        let begin = end.saturating_sub(elements.len());
        if until >= *end {
            return until;
        }
        let rows = elements.rows_until(from.saturating_sub(begin), until.saturating_sub(begin));
        rows.map_or(until, |rows| begin.saturating_add(rows))
    }

    /// Returns the chunks to decode at `offset` before a sequential read can continue.
    pub fn slab_at(&self, offset: u64) -> Option<Slab> {
        let at = self.parts.partition_point(|(_, end)| *end <= offset);
        match self.parts.get(at)? {
            (Part::Elements(elements), _) => {
                let len = elements.slab_len()?;
                Some(match elements.layout() {
                    Layout::Linear => Slab::Row(len),
                    Layout::Chunks => Slab::Chunk(len),
                })
            }
            _ => Some(Slab::Chunk(0)),
        }
    }

    /// Writes `data` at `offset` to the chunks. Fails before the first write if `data` changes
    /// bytes that are not elements, or ends after the file.
    pub fn write(
        &self,
        offset: u64,
        data: &[u8],
        get: &GetChunk<'_>,
        change: &mut ChangeChunk<'_>,
    ) -> Result<()> {
        self.check_write(offset, data, get)?;
        self.overlay.lock().write(offset, data);
        self.write_elements(offset, data, change)
    }

    /// Like [`Self::write`], but ignores changes of bytes that are not elements.
    pub fn write_elements(
        &self,
        offset: u64,
        data: &[u8],
        change: &mut ChangeChunk<'_>,
    ) -> Result<()> {
        for PartOverlap { part, from, within } in self.pieces(offset, data.len()) {
            if let Part::Elements(elements) = part {
                elements.write(from, data.get(within).ok_or_else(outside)?, change)?;
            }
        }
        Ok(())
    }

    /// Whether a library has rewritten bytes for its bookkeeping.
    pub fn is_rewritten(&self) -> bool {
        !self.overlay.lock().written.is_empty()
    }

    /// Fails if `data` at `offset` ends after the file, or changes bytes that are not elements.
    /// `get` reads chunks of parts that are derived from them.
    pub fn check_write(&self, offset: u64, data: &[u8], get: &GetChunk<'_>) -> Result<()> {
        let len = data.len().to_u64();
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::too_large(format!(
                "a write past the end: the file has {} bytes and cannot grow",
                self.len
            )));
        }
        for PartOverlap { part, from, within } in self.pieces(offset, data.len()) {
            let at = offset.saturating_add(within.start.to_u64());
            let new = data.get(within).ok_or_else(outside)?;
            let made;
            let own = match part {
                Part::Bytes(own) => slice(own, from, new.len())?,
                Part::Zeros(_) => {
                    made = vec![0; new.len()];
                    &made[..]
                }
                Part::Derived(derived) => {
                    let mut bytes = reserve(new.len())?;
                    bytes.resize(new.len(), 0);
                    derived.read(from, &mut bytes, get)?;
                    made = bytes;
                    &made[..]
                }
                Part::Elements(_) => continue,
            };
            let Some(first) = first_other(new, own) else { continue };
            let last = last_other(new, own);
            let place = |index: usize| at.saturating_add(index.to_u64());
            if !self.overlay.lock().allows(place(first), place(last.unwrap_or(first))) {
                let what = match part {
                    Part::Derived(derived) => derived.what(),
                    _ => "the header and strings",
                };
                let detail = format!(
                    "{what} cannot change (byte {} of the file): change them in a copy, or change \
                     the node itself",
                    place(first)
                );
                return Err(Error::new(Kind::NotPermitted, detail));
            }
        }
        Ok(())
    }

    /// Returns the pieces of the parts that `len` bytes from `offset` touch.
    fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = PartOverlap<'_>> {
        let first = self.parts.partition_point(|(_, end)| *end <= offset);
        let end = offset.saturating_add(len.to_u64());
        let mut at = offset;
        self.parts.iter().skip(first).map_while(move |(part, part_end)| {
            if at >= end {
                return None;
            }
            let until = end.min(*part_end);
            let from = at.saturating_sub(part_end.saturating_sub(part.len()));
            let place = |at: u64| usize::try_from(at.saturating_sub(offset)).ok();
            let within = place(at)?..place(until)?;
            at = until;
            Some(PartOverlap { part, from, within })
        })
    }
}

impl Part {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len().to_u64(),
            Self::Zeros(len) => *len,
            Self::Elements(elements) => elements.len(),
            Self::Derived(derived) => derived.len(),
        }
    }

    /// Whether the part is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for Part {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<ElementRange> for Part {
    fn from(elements: ElementRange) -> Self {
        Self::Elements(elements)
    }
}

impl Overlay {
    /// Whether the bytes from `first` to `last` may be rewritten.
    fn allows(&self, first: u64, last: u64) -> bool {
        self.allowed.iter().any(|range| range.contains(&first) && range.contains(&last))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (at, written) in &self.written {
            for (at, byte) in (*at..).zip(written) {
                let within = at.checked_sub(offset).and_then(|index| usize::try_from(index).ok());
                if let Some(target) = within.and_then(|index| bytes.get_mut(index)) {
                    *target = *byte;
                }
            }
        }
    }

    /// Stores the bytes of `data` that may be rewritten.
    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset.saturating_add(data.len().to_u64());
        for range in &self.allowed {
            let (start, end) = (range.start.max(offset), range.end.min(end));
            let within = |at: u64| at.saturating_sub(offset).to_usize();
            if let Some(bytes) = data.get(within(start)..within(end)).filter(|b| !b.is_empty()) {
                self.written.retain(|(at, written)| *at != start || written.len() > bytes.len());
                self.written.push((start, bytes.to_vec()));
            }
        }
    }
}

fn slice(bytes: &[u8], from: u64, len: usize) -> Result<&[u8]> {
    let from = usize::try_from(from).map_err(|_| outside())?;
    from.checked_add(len).and_then(|end| bytes.get(from..end)).ok_or_else(outside)
}

fn first_other(one: &[u8], other: &[u8]) -> Option<usize> {
    one.iter().zip(other).position(|(one, other)| one != other)
}

fn last_other(one: &[u8], other: &[u8]) -> Option<usize> {
    one.iter().zip(other).rposition(|(one, other)| one != other)
}

fn outside() -> Error {
    Error::new(Kind::Internal, "a range outside of its part")
}
