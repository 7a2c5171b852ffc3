//! The header of an object, message by message. The library parses a header only if it knows the
//! form of every message in it; here one that it does not know hides nothing but itself.
//!
//! ```text
//! version 1   1 u8 | 0 u8 | count u16 | links u32 | length u32 | 0 u32 | messages
//!             message: type u16 | length u16 | flags u8 | 0 u24 | bytes
//! version 2   OHDR | 2 u8 | flags u8 | times | limits | length | messages | checksum u32
//!             message: type u8 | length u16 | flags u8 | order u16, if flags say so | bytes
//! ```
//!
//! A message of the type `0x10` says where more messages are: as they are in version 1, and between
//! `OCHK` and a checksum in version 2.

use std::collections::HashSet;

use hdf5_reader::Hdf5File;
use hdf5_reader::checksum::jenkins_lookup3;
use hdf5_reader::io::Cursor;
use hdf5_reader::messages::shared::{self, SharedMessage};
use hdf5_reader::messages::{
    HdfMessage, MSG_ATTRIBUTE, MSG_CONTINUATION, MSG_DATA_LAYOUT, MSG_DATATYPE, MSG_NIL,
    parse_message,
};

use super::attribute_list;
use super::library::{self, failed};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The most bytes of one header, and the most parts of it.
const MAX_LEN: usize = 16 << 20;
const MAX_PARTS: usize = 1024;

/// The class of the layout of a virtual data set, and the version of the message that has it.
const VIRTUAL: u8 = 3;
const VIRTUAL_VERSIONS: std::ops::RangeInclusive<u8> = 4..=5;

/// The bit of the flags of a message whose bytes are the place of another one.
const IS_SHARED: u8 = 2;

/// A message as it is stored.
#[derive(Debug, Clone)]
pub struct RawMessage {
    /// What it says.
    pub kind: u16,
    flags: u8,
    bytes: Vec<u8>,
}

/// A place in a global heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapPlace {
    /// The address of the collection of objects.
    pub address: u64,
    /// The number of the object in it.
    pub index: u32,
}

/// A header.
#[derive(Debug, Default)]
pub struct ObjectHeader {
    /// The messages that the library knows, in their order.
    pub messages: Vec<HdfMessage>,
    /// The bytes of the type of elements.
    pub datatype: Vec<u8>,
    /// Where the mappings of a virtual data set are.
    pub mappings: Option<HeapPlace>,
    /// The attributes that cannot be read, as far as they have names.
    pub unread_attributes: Vec<String>,
}

impl ObjectHeader {
    /// Reads the header at an address.
    pub fn read(file: &Hdf5File, address: u64) -> Result<Self> {
        let (offset_len, length_len) = library::lens(file);
        let mut header = Self::default();
        for message in raw_messages(file, address)? {
            let Some(message) = resolved(file, message)? else {
                // The library knows how to read from the table of shared messages.
                let found = file.get_or_parse_header(address).map_err(failed)?;
                let messages = found.messages.clone();
                return Ok(Self { messages, ..header });
            };
            let RawMessage { kind, bytes, .. } = message;
            if kind == MSG_ATTRIBUTE {
                match attribute_list::parse(file, &bytes) {
                    Ok(attribute) => header.messages.push(HdfMessage::Attribute(attribute)),
                    Err(name) => header.unread_attributes.push(name),
                }
                continue;
            }
            if kind == MSG_DATATYPE {
                header.datatype.clone_from(&bytes);
            }
            if kind == MSG_DATA_LAYOUT
                && let Some(place) = mappings_place(&bytes, offset_len)?
            {
                header.mappings = Some(place);
                continue;
            }
            let mut cursor = Cursor::new(&bytes);
            let parsed = parse_message(kind, bytes.len(), &mut cursor, offset_len, length_len);
            header.messages.push(parsed.map_err(failed)?);
        }
        Ok(header)
    }
}

/// Returns the bytes of the type that was stored under a name, at an address.
pub fn named_type(file: &Hdf5File, address: u64) -> Result<Vec<u8>> {
    let found = raw_messages(file, address)?.into_iter();
    let own = |message: &RawMessage| message.kind == MSG_DATATYPE && message.flags & IS_SHARED == 0;
    let found = found.filter(own).map(|message| message.bytes).next();
    found.ok_or_else(|| Error::corrupt("HDF5: a named type without a type"))
}

/// Returns the address in a message that is elsewhere; `None` if it is in the table of shared
/// messages.
pub fn shared_address(file: &Hdf5File, kind: u16, bytes: &[u8]) -> Result<Option<u64>> {
    let (offset_len, length_len) = library::lens(file);
    let mut cursor = Cursor::new(bytes);
    let found = shared::parse(&mut cursor, kind, offset_len, length_len, bytes.len());
    Ok(match found.map_err(failed)? {
        SharedMessage::SharedInOhdr { address, .. } => Some(address),
        SharedMessage::SharedInSohm { .. } => None,
    })
}

/// Returns a message, or the one that it leads to; `None` if that is in the table of shared
/// messages.
fn resolved(file: &Hdf5File, message: RawMessage) -> Result<Option<RawMessage>> {
    if message.flags & IS_SHARED == 0 {
        return Ok(Some(message));
    }
    let Some(address) = shared_address(file, message.kind, &message.bytes)? else {
        return Ok(None);
    };
    let is_it = |it: &RawMessage| it.kind == message.kind && it.flags & IS_SHARED == 0;
    let found = raw_messages(file, address)?.into_iter().find(is_it);
    found.map(Some).ok_or_else(|| {
        let kind = message.kind;
        Error::corrupt(format!("HDF5: a shared message of type {kind} that is not there"))
    })
}

/// Returns where the mappings of a virtual data set are; `None` for another layout.
fn mappings_place(bytes: &[u8], offset_len: u8) -> Result<Option<HeapPlace>> {
    let mut cursor = Cursor::new(bytes);
    let version = cursor.read_u8().map_err(failed)?;
    let class = cursor.read_u8().map_err(failed)?;
    if !VIRTUAL_VERSIONS.contains(&version) || class != VIRTUAL {
        return Ok(None);
    }
    let address = cursor.read_offset(offset_len).map_err(failed)?;
    let index = cursor.read_u32_le().map_err(failed)?;
    Ok(Some(HeapPlace { address, index }))
}

/// Parts of a header that are still to be read.
struct Parts<'f> {
    file: &'f Hdf5File,
    waiting: Vec<(u64, u64)>,
    seen: HashSet<u64>,
    len: usize,
}

impl Parts<'_> {
    /// Reads `len` bytes of a part.
    fn read(&mut self, address: u64, len: u64) -> Result<Vec<u8>> {
        let len = len.to_usize();
        self.len = self.len.saturating_add(len);
        if self.len > MAX_LEN || self.seen.len() >= MAX_PARTS || !self.seen.insert(address) {
            return Err(Error::corrupt(format!(
                "HDF5: a header of more than {MAX_LEN} bytes or {MAX_PARTS} parts, or in a circle"
            )));
        }
        self.file.storage().read_range(address, len).map(|it| it.to_vec()).map_err(failed)
    }

    /// Takes the messages from a part whose form has `envelope`.
    fn take(
        &mut self,
        bytes: &[u8],
        envelope: Envelope,
        messages: &mut Vec<RawMessage>,
    ) -> Result<()> {
        let (offset_len, length_len) = library::lens(self.file);
        let mut rest = bytes;
        while let Some((kind, flags, len, after)) = envelope.split(rest) {
            if kind == MSG_NIL && len == 0 && after.iter().all(|byte| *byte == 0) {
                break;
            }
            let (bytes, after) = after.split_at_checked(len).ok_or_else(|| {
                Error::corrupt(format!("HDF5: a message of {len} bytes past its header"))
            })?;
            rest = after;
            if kind == MSG_CONTINUATION && flags & IS_SHARED == 0 {
                let mut cursor = Cursor::new(bytes);
                let address = cursor.read_offset(offset_len).map_err(failed)?;
                self.waiting.push((address, cursor.read_length(length_len).map_err(failed)?));
            } else if kind != MSG_NIL {
                messages.push(RawMessage { kind, flags, bytes: bytes.to_vec() });
            }
        }
        Ok(())
    }
}

/// The fields in front of the bytes of a message.
#[derive(Debug, Clone, Copy)]
enum Envelope {
    First,
    /// Whether the order of creation is in it.
    Second {
        has_order: bool,
    },
}

impl Envelope {
    /// Returns type, flags and length of the next message, and the bytes from it on.
    fn split(self, bytes: &[u8]) -> Option<(u16, u8, usize, &[u8])> {
        match (self, bytes) {
            (Self::First, [low, high, len_low, len_high, flags, _, _, _, rest @ ..]) => {
                let len = u16::from_le_bytes([*len_low, *len_high]);
                Some((u16::from_le_bytes([*low, *high]), *flags, usize::from(len), rest))
            }
            (Self::Second { has_order }, [kind, low, high, flags, rest @ ..]) => {
                let rest = if has_order { rest.get(2..)? } else { rest };
                let len = u16::from_le_bytes([*low, *high]);
                Some((u16::from(*kind), *flags, usize::from(len), rest))
            }
            _ => None,
        }
    }
}

/// Returns all messages of the header at an address, without those that only lead on.
pub fn raw_messages(file: &Hdf5File, address: u64) -> Result<Vec<RawMessage>> {
    let mut parts = Parts { file, waiting: Vec::new(), seen: HashSet::new(), len: 0 };
    let mut messages = Vec::new();
    let first = file.storage().read_range(address, 6).map_err(failed)?;
    let (envelope, start, end) = match &*first {
        [b'O', b'H', b'D', b'R', 2, flags] => second_version(file, address, *flags)?,
        [1, ..] => {
            let head = file.storage().read_range(address, 16).map_err(failed)?;
            let mut cursor = Cursor::new(&head);
            cursor.set_position(8);
            let len = u64::from(cursor.read_u32_le().map_err(failed)?);
            (Envelope::First, 16, len.saturating_add(16))
        }
        _ => return Err(Error::corrupt("HDF5: a header of an unknown version")),
    };
    let is_second = matches!(envelope, Envelope::Second { .. });
    let sum_len = if is_second { 4 } else { 0 };
    let bytes = parts.read(address, end.saturating_add(sum_len))?;
    let bytes = if is_second { checked(&bytes)? } else { &bytes };
    parts.take(bytes.get(start.to_usize()..).unwrap_or_default(), envelope, &mut messages)?;
    while let Some((address, len)) = parts.waiting.pop() {
        let bytes = parts.read(address, len)?;
        let bytes = if is_second {
            let rest = checked(&bytes)?.strip_prefix(b"OCHK");
            rest.ok_or_else(|| Error::corrupt("HDF5: a part of a header without OCHK"))?
        } else {
            &bytes
        };
        parts.take(bytes, envelope, &mut messages)?;
    }
    Ok(messages)
}

/// Returns where the messages of a header of the second version begin and end.
fn second_version(file: &Hdf5File, address: u64, flags: u8) -> Result<(Envelope, u64, u64)> {
    let times_len = if flags & 0x20 == 0 { 0 } else { 16 };
    let limits_len = if flags & 0x10 == 0 { 0 } else { 4 };
    let len_at = 6 + times_len + limits_len;
    let width = 1_usize << (flags & 3);
    let head = file.storage().read_range(address, len_at + width).map_err(failed)?;
    let mut cursor = Cursor::new(&head);
    cursor.skip(len_at).map_err(failed)?;
    let len = cursor.read_uvar(width).map_err(failed)?;
    let start = cursor.position();
    Ok((Envelope::Second { has_order: flags & 4 != 0 }, start, start.saturating_add(len)))
}

/// Returns bytes without the checksum at their end.
fn checked(bytes: &[u8]) -> Result<&[u8]> {
    let split = bytes.split_last_chunk::<4>();
    let (bytes, sum) = split.ok_or_else(|| Error::corrupt("HDF5: a header without a checksum"))?;
    if jenkins_lookup3(bytes) != u32::from_le_bytes(*sum) {
        return Err(Error::corrupt("HDF5: a header whose checksum does not match"));
    }
    Ok(bytes)
}
