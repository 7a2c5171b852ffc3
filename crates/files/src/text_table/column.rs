//! The type and the elements of a column.

use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// How missing numbers are written, as pandas takes them.
const MISSING: [&str; 8] = ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL"];

/// The largest integer up to which a double has all.
const EXACT: i128 = 1 << 53;

/// A field.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Field {
    Missing,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text,
}

impl Field {
    fn parse(field: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(field) else { return Self::Text };
        let text = text.trim();
        if MISSING.contains(&text) {
            return Self::Missing;
        }
        if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
            return Self::Bool(text.eq_ignore_ascii_case("true"));
        }
        let digits = text.trim_start_matches(['+', '-']);
        let is_zero_first = digits.starts_with('0');
        if is_zero_first && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit) {
            return Self::Text;
        }
        if let Ok(int) = text.parse() {
            return Self::Int(int);
        }
        let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| !is_whole).map_or(Self::Text, Self::Float)
    }
}

/// Whether a field is a number.
pub(super) fn is_number(field: &[u8]) -> bool {
    matches!(Field::parse(field), Field::Int(_) | Field::Float(_))
}

/// How many fields of each kind a column has.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    missing: u64,
    bools: u64,
    floats: u64,
    texts: u64,
    /// The least and the largest integer.
    ints: Option<(i128, i128)>,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnType {
    Bool,
    Int,
    Uint,
    Float,
    Text,
}

impl Seen {
    /// Takes note of a field.
    pub fn note(&mut self, field: &[u8]) {
        match Field::parse(field) {
            Field::Missing => self.missing = self.missing.saturating_add(1),
            Field::Bool(_) => self.bools = self.bools.saturating_add(1),
            Field::Float(_) => self.floats = self.floats.saturating_add(1),
            Field::Text => self.texts = self.texts.saturating_add(1),
            Field::Int(int) => {
                let (least, most) = self.ints.unwrap_or((int, int));
                self.ints = Some((least.min(int), most.max(int)));
            }
        }
    }

    /// Returns the type that has each field as it is written.
    pub fn column_type(self) -> ColumnType {
        let Self { missing, bools, floats, texts, ints } = self;
        let is_within =
            |from: i128, to: i128| ints.is_none_or(|(least, most)| least >= from && most <= to);
        match (texts > 0, bools > 0, floats > 0 || missing > 0) {
            (true, ..) => ColumnType::Text,
            (_, true, false) if ints.is_none() => ColumnType::Bool,
            (_, true, _) => ColumnType::Text,
            (.., true) if is_within(-EXACT, EXACT) => ColumnType::Float,
            (.., true) => ColumnType::Text,
            _ if is_within(i64::MIN.into(), i64::MAX.into()) => ColumnType::Int,
            _ if is_within(0, u64::MAX.into()) => ColumnType::Uint,
            _ => ColumnType::Text,
        }
    }
}

impl ColumnType {
    /// Returns the data type, as in a metadata file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int64",
            Self::Uint => "uint64",
            Self::Float => "float64",
            Self::Text => "string",
        }
    }
}

/// The elements of a column that were read since the last chunk.
#[derive(Debug)]
pub(super) struct Column {
    of: ColumnType,
    bytes: Vec<u8>,
    count: u64,
}

impl Column {
    pub fn new(of: ColumnType) -> Self {
        Self { of, bytes: Vec::new(), count: 0 }
    }

    /// Adds a field.
    pub fn push(&mut self, field: &[u8]) -> Result<()> {
        self.count = self.count.saturating_add(1);
        let changed = || Error::corrupt("the table has changed while it was read");
        let parsed = if self.of == ColumnType::Text { Field::Text } else { Field::parse(field) };
        match (self.of, parsed) {
            (ColumnType::Text, _) => {
                let text = std::str::from_utf8(field)
                    .map_err(|_| Error::corrupt("a field of the table is not UTF-8"))?;
                let len = u32::try_from(text.len()).map_err(|_| Error::too_large("a field"))?;
                self.bytes.extend_from_slice(&len.to_le_bytes());
                self.bytes.extend_from_slice(text.as_bytes());
            }
            (ColumnType::Bool, Field::Bool(is)) => self.bytes.push(is.into()),
            (ColumnType::Int | ColumnType::Uint, Field::Int(int)) => {
                self.bytes.extend_from_slice(int.to_le_bytes().get(..8).unwrap_or_default());
            }
            (ColumnType::Float, Field::Float(float)) => {
                self.bytes.extend_from_slice(&float.to_le_bytes());
            }
            (ColumnType::Float, Field::Missing) => {
                self.bytes.extend_from_slice(&f64::NAN.to_le_bytes());
            }
            (ColumnType::Float, Field::Int(int)) => {
                let float = zarrfs_codec::dtype::to_float(int);
                self.bytes.extend_from_slice(&float.to_le_bytes());
            }
            _ => return Err(changed()),
        }
        Ok(())
    }

    /// Takes the elements as a chunk of so many rows.
    pub fn take(&mut self, chunk_rows: u64) -> Result<Vec<u8>> {
        let missing = chunk_rows.saturating_sub(self.count);
        self.count = 0;
        let mut bytes = std::mem::take(&mut self.bytes);
        let item_len = match self.of {
            ColumnType::Bool => 1,
            // The length of an empty text.
            ColumnType::Text => 4,
            _ => 8,
        };
        let len = bytes.len().to_u64().saturating_add(missing.saturating_mul(item_len));
        bytes.resize(usize::try_from(len).map_err(|_| Error::too_large("a column"))?, 0);
        if self.of != ColumnType::Text {
            return Ok(bytes);
        }
        let count = u32::try_from(chunk_rows).map_err(|_| Error::too_large("a column"))?;
        let mut chunk = count.to_le_bytes().to_vec();
        chunk.append(&mut bytes);
        Ok(chunk)
    }
}
