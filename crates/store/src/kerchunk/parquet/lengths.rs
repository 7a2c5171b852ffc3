//! The lengths in a Parquet file, which are checked before the crate `parquet` reads the file: it
//! allocates as much as the headers say, and panics at some that contradict each other.
//!
//! ```text
//! file     "PAR1" | pages of column chunks | footer | u32 length of the footer | "PAR1"
//! footer   a struct: 2 elements of the schema, 4 row groups (each: 1 column chunks), ...
//! page     header | bytes
//! header   a struct: 1 kind, 2 decoded and 3 stored length, 5, 7 or 8 the header of the kind
//! ```
//!
//! Structs are in Thrift's compact protocol: fields of a byte with the kind of the value and the
//! distance of the field's number, and the value.

use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

const MAGIC: &[u8] = b"PAR1";

/// The bytes after the footer.
const TAIL_LEN: usize = 8;

/// The most bytes of the footer. kerchunk writes about 1500.
const MAX_FOOTER_LEN: usize = 256 << 10;

/// The most elements of the schema, and columns of a row group. kerchunk writes 5 and 4.
const MAX_COLUMNS: u64 = 32;

/// The most row groups. kerchunk writes one.
const MAX_ROW_GROUPS: u64 = 1024;

/// The deepest nesting.
const MAX_DEPTH: usize = 16;

/// Kinds of values.
mod kind {
    pub const STOP: u8 = 0;
    pub const TRUE: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const BYTE: u8 = 3;
    pub const I16: u8 = 4;
    pub const I32: u8 = 5;
    pub const I64: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const BINARY: u8 = 8;
    pub const LIST: u8 = 9;
    pub const SET: u8 = 10;
    pub const STRUCT: u8 = 12;
}

fn wrong(why: &'static str) -> Error {
    Error::corrupt(why)
}

/// A reader of structs.
struct Structs<'b> {
    rest: &'b [u8],
}

/// A list whose elements follow.
struct ThriftList {
    kind: u8,
    count: u64,
}

impl Structs<'_> {
    fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| wrong("a header ends early"))?;
        self.rest = rest;
        Ok(*first)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << shift;
            if shifted >> shift != bits {
                break;
            }
            value |= shifted;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(wrong("a number in a header has more than 64 bits"))
    }

    fn integer(&mut self) -> Result<i64> {
        let value = self.varint()?;
        let half = i64::try_from(value >> 1).unwrap_or(i64::MAX);
        Ok(if value & 1 == 0 { half } else { !half })
    }

    fn skip_bytes(&mut self, len: u64) -> Result<()> {
        let rest = usize::try_from(len).ok().and_then(|len| self.rest.get(len..));
        self.rest = rest.ok_or_else(|| wrong("a header ends early"))?;
        Ok(())
    }

    fn list(&mut self) -> Result<ThriftList> {
        let first = self.byte()?;
        let count = match first >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        // Each element has at least one byte.
        if count > self.rest.len().to_u64() {
            return Err(wrong("a list in a header is longer than the header"));
        }
        Ok(ThriftList { kind: first & 0xf, count })
    }

    /// Reads a struct. `field` reads the value of each field, of this number and kind; numbers
    /// increase.
    fn each(&mut self, mut field: impl FnMut(&mut Self, i16, u8) -> Result<()>) -> Result<()> {
        let mut last = 0_i16;
        loop {
            let first = self.byte()?;
            let kind = first & 0xf;
            if kind == kind::STOP {
                return Ok(());
            }
            let next = match first >> 4 {
                0 => i16::try_from(self.integer()?).ok(),
                distance => last.checked_add(i16::from(distance)),
            };
            let next = next.filter(|next| *next > last);
            last = next.ok_or_else(|| wrong("the fields of a header are not in order"))?;
            field(self, last, kind)?;
        }
    }

    /// Reads a value of any kind.
    fn skip(&mut self, kind: u8, depth: usize) -> Result<()> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(wrong("a header is nested too deep"));
        };
        match kind {
            kind::TRUE | kind::FALSE => Ok(()),
            kind::BYTE => self.byte().map(drop),
            kind::I16 | kind::I32 | kind::I64 => self.varint().map(drop),
            kind::DOUBLE => self.skip_bytes(8),
            kind::BINARY => {
                let len = self.varint()?;
                self.skip_bytes(len)
            }
            kind::LIST | kind::SET => {
                let list = self.list()?;
                self.skip_elements(&list, depth)
            }
            kind::STRUCT => self.each(|it, _, kind| it.skip(kind, depth)),
            _ => Err(wrong("a header has a value of an unknown kind")),
        }
    }

    fn skip_elements(&mut self, list: &ThriftList, depth: usize) -> Result<()> {
        for _ in 0..list.count {
            match list.kind {
                // In a list, such a value is a byte.
                kind::TRUE | kind::FALSE => self.byte().map(drop)?,
                kind => self.skip(kind, depth)?,
            }
        }
        Ok(())
    }

    /// Reads a list of at most `most` elements, each with `element`, or skips these.
    fn list_of(
        &mut self,
        most: u64,
        what: &str,
        mut element: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let list = self.list()?;
        if list.count > most {
            return Err(Error::too_large(format!("{} {what}, the limit is {most}", list.count)));
        }
        if list.count > 0 && list.kind != kind::STRUCT {
            return Err(wrong("a list in the footer has elements of another kind"));
        }
        (0..list.count).try_for_each(|_| element(self))
    }
}

/// Checks the footer, and returns the bytes before it.
pub(super) fn check_footer(file: &[u8]) -> Result<&[u8]> {
    let not_parquet = || wrong("not a Parquet file");
    let (body, tail) = file
        .len()
        .checked_sub(TAIL_LEN)
        .and_then(|at| file.split_at_checked(at))
        .ok_or_else(not_parquet)?;
    let (len, magic) = tail.split_first_chunk::<4>().ok_or_else(not_parquet)?;
    if magic == b"PARE" {
        return Err(Error::unsupported("an encrypted Parquet file"));
    }
    if magic != MAGIC || !body.starts_with(MAGIC) {
        return Err(not_parquet());
    }
    let len = u32::from_le_bytes(*len).to_usize();
    if len > MAX_FOOTER_LEN {
        let detail = format!("a footer of {len} bytes, the limit is {MAX_FOOTER_LEN}");
        return Err(Error::too_large(detail));
    }
    let split = body.len().checked_sub(len).filter(|at| *at >= MAGIC.len());
    let (pages, footer) = split
        .and_then(|at| body.split_at_checked(at))
        .ok_or_else(|| wrong("the file is cut off"))?;
    Structs { rest: footer }.each(|it, number, kind| match (number, kind) {
        (2, kind::LIST) => {
            it.list_of(MAX_COLUMNS, "elements of the schema", |it| it.skip(kind::STRUCT, MAX_DEPTH))
        }
        (4, kind::LIST) => it.list_of(MAX_ROW_GROUPS, "row groups", row_group),
        (2 | 4, _) => Err(wrong("the footer has no list where one belongs")),
        (_, kind) => it.skip(kind, MAX_DEPTH),
    })?;
    Ok(pages)
}

fn row_group(structs: &mut Structs<'_>) -> Result<()> {
    structs.each(|it, number, kind| match (number, kind) {
        (1, kind::LIST) => {
            it.list_of(MAX_COLUMNS, "columns", |it| it.skip(kind::STRUCT, MAX_DEPTH))
        }
        (1, _) => Err(wrong("a row group has no list of columns")),
        (_, kind) => it.skip(kind, MAX_DEPTH),
    })
}

/// The numbers of a struct that has only numbers, beside values that are not needed.
#[derive(Debug, Default)]
struct Fields {
    numbers: [Option<u32>; 9],
    /// Whether a field that is a truth value is false.
    is_false: bool,
}

impl Fields {
    fn read(structs: &mut Structs<'_>) -> Result<Self> {
        let mut fields = Self::default();
        structs.each(|it, number, kind| fields.note(it, number, kind))?;
        Ok(fields)
    }

    fn note(&mut self, structs: &mut Structs<'_>, number: i16, kind: u8) -> Result<()> {
        let place = usize::try_from(number).ok().and_then(|at| self.numbers.get_mut(at));
        match (place, kind) {
            (Some(place), kind::I32) => {
                let number = u32::try_from(structs.integer()?).ok();
                let number = number.filter(|number| i32::try_from(*number).is_ok());
                *place = Some(number.ok_or_else(|| wrong("a number in a header is out of range"))?);
                Ok(())
            }
            (_, kind) => {
                self.is_false |= kind == kind::FALSE;
                structs.skip(kind, MAX_DEPTH)
            }
        }
    }

    fn get(&self, number: usize) -> Result<u32> {
        let found = self.numbers.get(number).copied().flatten();
        found.ok_or_else(|| wrong("a number in a header is missing"))
    }
}

/// Kinds of pages.
mod page {
    pub const DATA: u32 = 0;
    pub const DICTIONARY: u32 = 2;
    pub const DATA_V2: u32 = 3;
}

/// Encodings.
mod encoding {
    pub const PLAIN: u32 = 0;
    pub const PLAIN_DICTIONARY: u32 = 2;
    pub const RLE: u32 = 3;
    pub const RLE_DICTIONARY: u32 = 8;
}

/// The lengths of the pages of a column chunk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PageLengths {
    /// The number of values; some may be null.
    pub values: u64,
    /// The number of values in the dictionary.
    pub dictionary: u64,
    /// The bytes of all pages, decoded.
    pub decoded: u64,
}

/// Checks the headers of all pages of a column chunk.
pub(super) fn check_pages(chunk: &[u8], is_compressed: bool) -> Result<PageLengths> {
    let mut structs = Structs { rest: chunk };
    let (mut lengths, mut has_dictionary, mut is_first) = (PageLengths::default(), false, true);
    while !structs.rest.is_empty() {
        let page = Page::read(&mut structs)?;
        if !is_compressed && page.decoded != page.stored {
            return Err(wrong("a page that is not compressed has two lengths"));
        }
        lengths.decoded = lengths.decoded.saturating_add(u64::from(page.decoded));
        match page.kind {
            page::DICTIONARY if is_first => {
                has_dictionary = true;
                lengths.dictionary = u64::from(page.values);
            }
            page::DATA | page::DATA_V2 => {
                if page.encoding != encoding::PLAIN && !has_dictionary {
                    return Err(wrong("a page needs a dictionary, and there is none"));
                }
                lengths.values = lengths.values.saturating_add(u64::from(page.values));
            }
            _ => return Err(wrong("a page of an unknown kind, or a second dictionary")),
        }
        is_first = false;
    }
    Ok(lengths)
}

/// The header of a page.
struct Page {
    kind: u32,
    decoded: u32,
    stored: u32,
    values: u32,
    encoding: u32,
}

impl Page {
    /// Reads a header, and skips the bytes after it.
    fn read(structs: &mut Structs<'_>) -> Result<Self> {
        let (mut fields, mut of_kind) = (Fields::default(), None);
        structs.each(|it, number, kind| match (number, kind) {
            (5 | 7 | 8, kind::STRUCT) if of_kind.is_none() => {
                of_kind = Some((number, Fields::read(it)?));
                Ok(())
            }
            (1..=3, kind::I32) => fields.note(it, number, kind),
            // The checksum.
            (4, kind::I32) => it.skip(kind, MAX_DEPTH),
            _ => Err(wrong("the header of a page has an unknown field")),
        })?;
        let (kind, decoded, stored) = (fields.get(1)?, fields.get(2)?, fields.get(3)?);
        structs.skip_bytes(u64::from(stored))?;
        let of_kind = of_kind.as_ref().map(|(number, fields)| (kind, *number, fields));
        let (values, encoding) = match of_kind {
            Some((page::DATA, 5, of_kind)) => {
                if of_kind.get(3)? != encoding::RLE {
                    return Err(Error::unsupported("levels in Parquet that are not RLE"));
                }
                (of_kind.get(1)?, of_kind.get(2)?)
            }
            Some((page::DICTIONARY, 7, of_kind)) => (of_kind.get(1)?, of_kind.get(2)?),
            Some((page::DATA_V2, 8, of_kind)) => {
                let levels = u64::from(of_kind.get(5)?).saturating_add(u64::from(of_kind.get(6)?));
                let is_stored = of_kind.is_false && decoded != stored;
                if levels > u64::from(decoded.min(stored)) || is_stored {
                    return Err(wrong("the lengths of a page contradict each other"));
                }
                (of_kind.get(1)?, of_kind.get(4)?)
            }
            _ => return Err(wrong("a page has the header of another kind")),
        };
        match encoding {
            encoding::PLAIN | encoding::PLAIN_DICTIONARY | encoding::RLE_DICTIONARY => {
                Ok(Self { kind, decoded, stored, values, encoding })
            }
            _ => Err(Error::unsupported(format!("the encoding {encoding} of Parquet"))),
        }
    }
}
