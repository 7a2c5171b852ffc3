//! The attributes of an object, one by one: one that cannot be read does not hide the others.
//!
//! ```text
//! version 1  u8 | 0 u8    | lengths of name, type and space 3 * u16 | name | type | space | bytes
//! version 2  u8 | flags u8 | the same, and without padding
//! version 3  u8 | flags u8 | lengths 3 * u16 | encoding u8 | the same
//! ```
//!
//! The first bit of the flags says that the type is the place of a named one.

use hdf5_reader::group::Group;
use hdf5_reader::io::Cursor;
use hdf5_reader::messages::attribute::AttributeMessage;
use hdf5_reader::messages::attribute_info::AttributeInfoMessage;
use hdf5_reader::messages::dataspace::DataspaceType;
use hdf5_reader::messages::datatype::Datatype;
use hdf5_reader::messages::{HdfMessage, MSG_DATATYPE, attribute};
use hdf5_reader::{Attribute, Hdf5File, StringSize, VarLenKind};

use super::header::{self, ObjectHeader};
use super::indexed_heap;
use super::library;
use crate::json::text_to_nul;
use zarrfs_base::error::Result;

/// The most attributes of one object that has them in a heap.
const MAX_COUNT: usize = 1 << 16;

/// The attributes of an object.
#[derive(Debug, Default)]
pub struct AttributeList {
    /// Those that can be read.
    pub attributes: Vec<Attribute>,
    /// The names of the others.
    pub unread: Vec<String>,
}

impl AttributeList {
    /// Returns the attributes of the object with this header.
    pub fn of(file: &Hdf5File, root: &Group, header: &ObjectHeader) -> Result<Self> {
        let mut list = Self { attributes: Vec::new(), unread: header.unread_attributes.clone() };
        for message in &header.messages {
            match message {
                HdfMessage::Attribute(message) => {
                    list.attributes.push(with_texts(root, message.clone()));
                }
                HdfMessage::AttributeInfo(info) => list.add_of_heap(file, root, info)?,
                _ => {}
            }
        }
        Ok(list)
    }

    /// Adds the attributes of an object with many of them.
    fn add_of_heap(
        &mut self,
        file: &Hdf5File,
        root: &Group,
        info: &AttributeInfoMessage,
    ) -> Result<()> {
        let (offset_len, _) = library::lens(file);
        let heap = info.fractal_heap_address;
        if Cursor::is_undefined_offset(heap, offset_len) {
            return Ok(());
        }
        let in_order = info.btree_creation_order_address;
        let in_order = in_order.filter(|it| !Cursor::is_undefined_offset(*it, offset_len));
        let index = in_order.unwrap_or(info.btree_name_index_address);
        indexed_heap::for_each(file, heap, index, MAX_COUNT, &mut |bytes| {
            match parse(file, bytes) {
                Ok(message) => self.attributes.push(with_texts(root, message)),
                Err(name) => self.unread.push(name),
            }
            Ok(())
        })
    }
}

/// Returns an attribute; the error is its name, if it cannot be read.
pub fn parse(file: &Hdf5File, bytes: &[u8]) -> std::result::Result<AttributeMessage, String> {
    let (offset_len, length_len) = library::lens(file);
    let parse = |bytes: &[u8]| {
        attribute::parse(&mut Cursor::new(bytes), offset_len, length_len, bytes.len()).ok()
    };
    let found = match with_own_type(file, bytes) {
        Some(rewritten) => parse(&rewritten),
        None => parse(bytes),
    };
    found.ok_or_else(|| name_of(bytes))
}

/// The lengths of the parts of an attribute, and where the first one begins.
struct Lens {
    start: usize,
    name_len: usize,
    type_len: usize,
}

fn lens_of(bytes: &[u8]) -> Option<Lens> {
    let short = |at: usize| Some(usize::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)));
    let start = if *bytes.first()? == 3 { 9 } else { 8 };
    Some(Lens { start, name_len: short(2)?, type_len: short(4)? })
}

fn name_of(bytes: &[u8]) -> String {
    let name = lens_of(bytes).and_then(|Lens { start, name_len, .. }| {
        bytes.get(start..start.checked_add(name_len)?).map(text_to_nul)
    });
    name.unwrap_or_else(|| "an attribute".to_owned())
}

/// Returns an attribute of a named type as one with the type in it; `None` for other ones.
fn with_own_type(file: &Hdf5File, bytes: &[u8]) -> Option<Vec<u8>> {
    let [version @ (2 | 3), 1, ..] = bytes else { return None };
    let Lens { start, name_len, type_len } = lens_of(bytes)?;
    let type_at = start.checked_add(name_len)?;
    let space_at = type_at.checked_add(type_len)?;
    let place = bytes.get(type_at..space_at)?;
    let address = header::shared_address(file, MSG_DATATYPE, place).ok()??;
    let named = header::named_type(file, address).ok()?;
    let mut whole = vec![*version, 0];
    whole.extend_from_slice(bytes.get(2..4)?);
    whole.extend_from_slice(&u16::try_from(named.len()).ok()?.to_le_bytes());
    whole.extend_from_slice(bytes.get(6..type_at)?);
    whole.extend_from_slice(&named);
    whole.extend_from_slice(bytes.get(space_at..)?);
    Some(whole)
}

/// Returns an attribute with its strings, which lie elsewhere in the file.
fn with_texts(root: &Group, message: AttributeMessage) -> Attribute {
    let AttributeMessage { name, datatype, dataspace, raw_data } = message;
    let shape = match dataspace.dataspace_type {
        DataspaceType::Scalar => Vec::new(),
        DataspaceType::Null => vec![0],
        DataspaceType::Simple => dataspace.dims.clone(),
    };
    let are_texts = matches!(
        datatype,
        Datatype::String { size: StringSize::Variable, .. }
            | Datatype::VarLen { kind: VarLenKind::String, .. }
    );
    let count = dataspace.num_elements().ok().and_then(|count| usize::try_from(count).ok());
    let decoded_strings = count.filter(|count| are_texts && *count > 0).and_then(|count| {
        let item_len = raw_data.len().checked_div(count).filter(|len| *len > 0)?;
        let text = |item| {
            let bytes = root.resolve_vlen_reference_bytes(item, 1).ok()?;
            Some(text_to_nul(&bytes))
        };
        raw_data.chunks_exact(item_len).take(count).map(text).collect()
    });
    Attribute { name, datatype, shape, raw_data, decoded_strings }
}
