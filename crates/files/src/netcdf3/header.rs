//! The header of a netCDF-3 file.
//!
//! ```text
//! "CDF" version | count of records | dimensions | attributes | variables
//! dimension     name | length, 0 for that of records
//! attribute     name | type u32 | count | values, padded to 4 bytes
//! variable      name | count | dimension .. | attributes | type u32 | length | begin
//! list          0x0a, 0x0b or 0x0c | count | item ..; 0 | 0 for none
//! name          count | bytes, padded to 4
//! ```
//!
//! Counts and lengths have 4 bytes, and in CDF-5 8. Places have 4, and in CDF-2 and CDF-5 8.

use super::types::{NcType, padded};
use crate::cursor::Cursor;
use crate::json;
use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::json::Object;

/// The longest name.
const MAX_NAME_LEN: u64 = 64 << 10;

/// The most dimensions, and those of a variable.
const MAX_DIMENSIONS: u64 = 1 << 18;
const MAX_RANK: u64 = 1024;

/// The most bytes of all attributes of texts, and the most numbers in all others.
const MAX_TEXT_LEN: u64 = 16 << 20;
const MAX_NUMBERS: u64 = 256 << 10;

/// The most attributes.
const MAX_ATTRIBUTES: u64 = 64 << 10;

/// The most variables. Programs that read netCDF take 8192.
const MAX_VARIABLES: u64 = 64 << 10;

/// The tags of lists.
const DIMENSIONS: u64 = 0x0a;
const VARIABLES: u64 = 0x0b;
const ATTRIBUTES: u64 = 0x0c;

/// A dimension.
#[derive(Debug)]
pub struct StoredDimension {
    /// Its name.
    pub name: String,
    /// Its length; `None` for that of records.
    pub len: Option<u64>,
}

/// The attributes of the file or of a variable.
#[derive(Debug, Default)]
pub struct Attributes {
    /// As JSON.
    pub shown: Object,
    /// The type and the bytes of `_FillValue`.
    pub fill: Option<(NcType, Vec<u8>)>,
    /// The names of those that are too long.
    pub left_out: Vec<String>,
}

/// A variable.
#[derive(Debug)]
pub struct StoredVariable {
    /// Its name.
    pub name: String,
    /// The indices of its dimensions.
    pub dimensions: Vec<usize>,
    /// Its attributes.
    pub attributes: Attributes,
    /// The type of its values.
    pub stored: NcType,
    /// Where its values begin, or those of the first record.
    pub begin: u64,
}

/// A header.
#[derive(Debug)]
pub struct NcHeader {
    /// How many records there are; `None` if the header does not say it.
    pub records: Option<u64>,
    /// The dimensions.
    pub dimensions: Vec<StoredDimension>,
    /// The attributes of the file.
    pub attributes: Attributes,
    /// The variables.
    pub variables: Vec<StoredVariable>,
}

impl NcHeader {
    /// Reads the header of a file.
    pub fn read(file: &SourceFile) -> Result<Self> {
        let mut reader = HeaderReader::new(file)?;
        let records = reader.count()?;
        let is_streaming = match reader.count_len {
            4 => records == u64::from(u32::MAX),
            _ => records == u64::MAX,
        };
        let dimensions = reader.dimensions()?;
        let attributes = reader.attributes()?;
        let variables = reader.variables(dimensions.len())?;
        let records = (!is_streaming).then_some(records);
        Ok(Self { records, dimensions, attributes, variables })
    }
}

struct HeaderReader<'f> {
    cursor: Cursor<'f>,
    /// The bytes of a count, and of a place.
    count_len: u64,
    place_len: u64,
    /// The bytes of texts and the numbers that attributes may still have.
    text_left: u64,
    numbers_left: u64,
    /// How many attributes there may still be.
    attributes_left: u64,
}

impl<'f> HeaderReader<'f> {
    fn new(file: &'f SourceFile) -> Result<Self> {
        let (count_len, place_len) = match file.read(0, 4)?.get(3) {
            Some(1) => (4, 4),
            Some(2) => (4, 8),
            Some(5) => (8, 8),
            other => {
                return Err(Error::unsupported(format!("version {other:?} of a netCDF file")));
            }
        };
        let cursor = Cursor::new(file, 4);
        let (text_left, numbers_left) = (MAX_TEXT_LEN, MAX_NUMBERS);
        let attributes_left = MAX_ATTRIBUTES;
        Ok(Self { cursor, count_len, place_len, text_left, numbers_left, attributes_left })
    }

    fn count(&mut self) -> Result<u64> {
        self.cursor.number(self.count_len)
    }

    /// Reads the beginning of a list, and returns how many items it has.
    fn list(&mut self, tag: u64) -> Result<u64> {
        let found = self.cursor.number(4)?;
        let count = self.count()?;
        match (found, count) {
            (0, 0) => Ok(0),
            (found, count) if found == tag => Ok(count),
            _ => Err(Error::corrupt(format!(
                "the header of netCDF has a list of the kind {found} where {tag} is expected"
            ))),
        }
    }

    fn name(&mut self) -> Result<String> {
        let len = self.count()?;
        if len > MAX_NAME_LEN {
            return Err(Error::too_large(format!("a name of {len} bytes in netCDF")));
        }
        // Some programs pad names with NUL.
        let name = json::text_to_nul(&self.cursor.take(len)?);
        self.cursor.skip(padded(len).saturating_sub(len));
        Ok(name)
    }

    fn dimensions(&mut self) -> Result<Vec<StoredDimension>> {
        let count = self.list(DIMENSIONS)?;
        if count > MAX_DIMENSIONS {
            return Err(Error::too_large(format!("{count} dimensions of netCDF")));
        }
        let mut dimensions = Vec::new();
        for _ in 0..count {
            let name = self.name()?;
            let len = self.count()?;
            dimensions.push(StoredDimension { name, len: (len > 0).then_some(len) });
        }
        Ok(dimensions)
    }

    fn attributes(&mut self) -> Result<Attributes> {
        let mut attributes = Attributes::default();
        let all = self.list(ATTRIBUTES)?;
        self.attributes_left = self.attributes_left.checked_sub(all).ok_or_else(|| {
            Error::too_large(format!("more than {MAX_ATTRIBUTES} attributes of netCDF"))
        })?;
        for _ in 0..all {
            let name = self.name()?;
            let stored = NcType::of(self.cursor.number(4)?)?;
            let count = self.count()?;
            let len = count.checked_mul(stored.item_len());
            let len = len.ok_or_else(|| Error::corrupt(format!("{count} values of {name}")))?;
            let left = match stored {
                NcType::Char => &mut self.text_left,
                NcType::Int(_) | NcType::Uint(_) | NcType::Float(_) => &mut self.numbers_left,
            };
            if let Some(rest) = left.checked_sub(count) {
                *left = rest;
                let bytes = self.cursor.take(len)?;
                if name == "_FillValue" {
                    attributes.fill = Some((stored, bytes.to_vec()));
                }
                attributes.shown.insert(name, stored.attribute(&bytes));
                self.cursor.skip(padded(len).saturating_sub(len));
            } else {
                attributes.left_out.push(name);
                self.cursor.skip(padded(len));
            }
        }
        Ok(attributes)
    }

    fn variables(&mut self, dimension_count: usize) -> Result<Vec<StoredVariable>> {
        let count = self.list(VARIABLES)?;
        if count > MAX_VARIABLES {
            return Err(Error::too_large(format!("{count} variables of netCDF")));
        }
        let mut variables = Vec::new();
        for _ in 0..count {
            let name = self.name()?;
            let rank = self.count()?;
            if rank > MAX_RANK {
                return Err(Error::too_large(format!("{rank} dimensions of {name}")));
            }
            let mut dimensions = Vec::new();
            for _ in 0..rank {
                let dimension = self.count()?;
                let dimension = usize::try_from(dimension).ok().filter(|it| *it < dimension_count);
                dimensions.push(dimension.ok_or_else(|| {
                    Error::corrupt(format!("{name} has a dimension that the file does not have"))
                })?);
            }
            let attributes = self.attributes()?;
            let stored = NcType::of(self.cursor.number(4)?)?;
            // The length that the header has for it may be wrong, and follows from the shape.
            self.count()?;
            let begin = self.cursor.number(self.place_len)?;
            variables.push(StoredVariable { name, dimensions, attributes, stored, begin });
        }
        Ok(variables)
    }
}
