//! `MessagePack`: a byte gives the type of a value, and numbers are big endian.
//!
//! <https://github.com/msgpack/msgpack/blob/master/spec.md>

use serde_json::{Map, Number, Value};

use super::lists::Lists;
use super::scalar::{Scalar, written};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::limits;
use zarrfs_base::width::ToUsize;

/// The most nested lists in an object.
const MAX_DEPTH: usize = 64;

/// The number of values that a map counts as, like an object in a metadata file.
const VALUES_OF_MAP: u64 = 10;

/// The number of values that a pair in a map counts as beside its own two.
const VALUES_OF_MEMBER: u64 = 2;

/// The most bytes of the name of a member that is not a string here. The quotes of a name within a
/// name are escaped, so each level may double the length.
const MAX_NAME_LEN: usize = 4096;

/// The first bytes of a value.
enum Head {
    /// A complete value.
    Whole(Value),
    /// A string of this many bytes.
    Text(usize),
    /// Binary data of this many bytes.
    Bytes(usize),
    /// A list of this many values.
    List(u64),
    /// A map of this many pairs of values.
    Map(u64),
}

/// The unread bytes.
struct PackReader<'b>(&'b [u8]);

fn short() -> Error {
    Error::corrupt("msgpack2: ends within a value")
}

impl<'b> PackReader<'b> {
    fn take(&mut self, len: usize) -> Result<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads an unsigned number of `len` bytes.
    fn number(&mut self, len: usize) -> Result<u64> {
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn len(&mut self, len: usize) -> Result<usize> {
        usize::try_from(self.number(len)?).map_err(|_| short())
    }

    /// Reads a signed number of `len` bytes.
    fn signed(&mut self, len: usize) -> Result<i64> {
        let unused = 64_usize.saturating_sub(len.saturating_mul(8));
        Ok((self.number(len)? << unused).cast_signed() >> unused)
    }

    fn head(&mut self) -> Result<Head> {
        let first = self.number(1)?;
        let low = (first & 0x1f).to_usize();
        Ok(match first {
            0x00..=0x7f => Head::Whole(first.into()),
            0x80..=0x8f => Head::Map(first & 0xf),
            0x90..=0x9f => Head::List(first & 0xf),
            0xa0..=0xbf => Head::Text(low),
            0xc0 => Head::Whole(Value::Null),
            0xc2 => Head::Whole(false.into()),
            0xc3 => Head::Whole(true.into()),
            0xc4 => Head::Bytes(self.len(1)?),
            0xc5 => Head::Bytes(self.len(2)?),
            0xc6 => Head::Bytes(self.len(4)?),
            0xc7 => Head::Bytes(self.len(1)?.saturating_add(1)),
            0xc8 => Head::Bytes(self.len(2)?.saturating_add(1)),
            0xc9 => Head::Bytes(self.len(4)?.saturating_add(1)),
            0xca => {
                let bits = u32::try_from(self.number(4)?).unwrap_or_default();
                Head::Whole(float(f64::from(f32::from_bits(bits))))
            }
            0xcb => Head::Whole(float(f64::from_bits(self.number(8)?))),
            0xcc => Head::Whole(self.number(1)?.into()),
            0xcd => Head::Whole(self.number(2)?.into()),
            0xce => Head::Whole(self.number(4)?.into()),
            0xcf => Head::Whole(self.number(8)?.into()),
            0xd0 => Head::Whole(self.signed(1)?.into()),
            0xd1 => Head::Whole(self.signed(2)?.into()),
            0xd2 => Head::Whole(self.signed(4)?.into()),
            0xd3 => Head::Whole(self.signed(8)?.into()),
            0xd4 => Head::Bytes(2),
            0xd5 => Head::Bytes(3),
            0xd6 => Head::Bytes(5),
            0xd7 => Head::Bytes(9),
            0xd8 => Head::Bytes(17),
            0xd9 => Head::Text(self.len(1)?),
            0xda => Head::Text(self.len(2)?),
            0xdb => Head::Text(self.len(4)?),
            0xdc => Head::List(self.number(2)?),
            0xdd => Head::List(self.number(4)?),
            0xde => Head::Map(self.number(2)?),
            0xdf => Head::Map(self.number(4)?),
            0xe0..=0xff => Head::Whole(first.cast_signed().wrapping_sub(0x100).into()),
            _ => return Err(Error::corrupt("msgpack2: invalid first byte of a value")),
        })
    }

    /// Returns the bytes of the next value with all nested ones.
    fn skip(&mut self) -> Result<&'b [u8]> {
        let whole = self.0;
        let mut left = 1_u64;
        while left > 0 {
            left = left.saturating_sub(1);
            match self.head()? {
                Head::Whole(_) => {}
                Head::Text(len) | Head::Bytes(len) => drop(self.take(len)?),
                Head::List(count) => left = left.saturating_add(count),
                Head::Map(count) => left = left.saturating_add(count.saturating_mul(2)),
            }
        }
        let len = whole.len().saturating_sub(self.0.len());
        Ok(whole.get(..len).unwrap_or_default())
    }
}

/// Decodes a value, and counts what it takes in memory: a value takes 72 bytes, but one byte here.
struct PackParser<'b> {
    reader: PackReader<'b>,
    /// The number of values that may follow.
    values: usize,
    /// The number of bytes that strings may still have.
    len: usize,
    /// The limit for the bytes of all strings.
    limit: usize,
}

impl PackParser<'_> {
    fn value(&mut self, depth: usize) -> Result<Value> {
        let depth = depth.checked_sub(1).ok_or_else(|| {
            Error::corrupt(format!("msgpack2: lists nested more than {MAX_DEPTH} deep"))
        })?;
        self.count(1)?;
        Ok(match self.reader.head()? {
            Head::Whole(value) => value,
            Head::Text(len) | Head::Bytes(len) => {
                let bytes = self.reader.take(len)?;
                self.draw(len)?;
                Value::String(text(bytes)?)
            }
            Head::List(count) => {
                self.check_count(count)?;
                let mut list = Vec::new();
                for _ in 0..count {
                    list.push(self.value(depth)?);
                }
                Value::Array(list)
            }
            Head::Map(count) => {
                self.check_count(count)?;
                self.count(VALUES_OF_MAP)?;
                let mut map = Map::new();
                for _ in 0..count {
                    self.count(VALUES_OF_MEMBER)?;
                    let name = match self.value(depth)? {
                        Value::String(name) => name,
                        other => written(&other, MAX_NAME_LEN).ok_or_else(long_name)?,
                    };
                    map.insert(name, self.value(depth)?);
                }
                Value::Object(map)
            }
        })
    }

    /// Fails if this many values may not follow.
    fn check_count(&self, count: u64) -> Result<()> {
        if usize::try_from(count).is_ok_and(|count| count <= self.values) {
            return Ok(());
        }
        let detail = format!("msgpack2: too many values in an element, {}", limits::VALUES);
        Err(Error::too_large(detail))
    }

    fn count(&mut self, values: u64) -> Result<()> {
        self.check_count(values)?;
        self.values = self.values.saturating_sub(values.to_usize());
        Ok(())
    }

    fn draw(&mut self, len: usize) -> Result<()> {
        self.len = self.len.checked_sub(len).ok_or_else(|| self.too_long())?;
        Ok(())
    }

    fn too_long(&self) -> Error {
        Error::too_large(format!(
            "msgpack2: the strings of an element have more than {} bytes, the limit for this chunk \
             (its length, or --max-chunk-size)",
            self.limit
        ))
    }
}

fn long_name() -> Error {
    Error::too_large(format!(
        "msgpack2: the name of a member is not a string, and has more than {MAX_NAME_LEN} bytes"
    ))
}

fn text(bytes: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned).map_err(|_| Error::corrupt("msgpack2: a string is not UTF-8"))
}

fn float(float: f64) -> Value {
    Number::from_f64(float).map_or_else(
        || {
            let sign = if float < 0.0 { "-" } else { "" };
            Value::String(if float.is_nan() { "NaN".to_owned() } else { format!("{sign}Infinity") })
        },
        Value::Number,
    )
}

/// The unread bytes of a list.
pub(super) struct List<'b> {
    reader: PackReader<'b>,
    /// The number of items that follow in each list that has begun.
    left: Vec<u64>,
}

impl<'b> List<'b> {
    /// Returns a list that has not begun.
    pub fn new(list: &'b [u8]) -> Self {
        Self { reader: PackReader(list), left: Vec::new() }
    }
}

impl<'b> Lists<'b> for List<'b> {
    fn begin(&mut self) -> Result<()> {
        let Head::List(count) = self.reader.head()? else {
            return Err(Error::corrupt("msgpack2: expected a list"));
        };
        self.left.push(count);
        Ok(())
    }

    fn has_next(&mut self) -> Result<bool> {
        let Some(left) = self.left.last_mut() else { return Ok(false) };
        if let Some(others) = left.checked_sub(1) {
            *left = others;
            return Ok(true);
        }
        self.left.pop();
        Ok(false)
    }

    fn item(&mut self) -> Result<&'b [u8]> {
        self.reader.skip()
    }

    fn end(&self) -> Result<()> {
        if self.reader.0.is_empty() {
            return Ok(());
        }
        Err(Error::corrupt(format!("msgpack2: {} bytes after the list", self.reader.0.len())))
    }
}

/// Decodes a value whose strings have at most `limit` bytes.
pub(super) fn value(item: &[u8], limit: usize) -> Result<Value> {
    let values = limits::VALUES.get_usize();
    PackParser { reader: PackReader(item), values, len: limit, limit }.value(MAX_DEPTH)
}

/// Begins a list.
pub(super) fn open(count: u64, target: &mut Vec<u8>) {
    match u16::try_from(count) {
        Ok(count) if count < 16 => target.extend(count.to_le_bytes().first().map(|n| 0x90 | n)),
        Ok(count) => head(0xdc, &count.to_be_bytes(), target),
        Err(_) => head(0xdd, &u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes(), target),
    }
}

fn head(first: u8, number: &[u8], target: &mut Vec<u8>) {
    target.push(first);
    target.extend_from_slice(number);
}

/// Writes a scalar in its shortest form, as Python does.
pub(super) fn write(scalar: Scalar<'_>, target: &mut Vec<u8>) {
    match scalar {
        Scalar::Text(text) => {
            match u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes() {
                [0, 0, 0, len @ 0..=31] => target.push(0xa0 | len),
                [0, 0, 0, len] => head(0xd9, &[len], target),
                [0, 0, high, low] => head(0xda, &[high, low], target),
                len => head(0xdb, &len, target),
            }
            target.extend_from_slice(text.as_bytes());
        }
        Scalar::Bool(value) => target.push(if value { 0xc3 } else { 0xc2 }),
        Scalar::Float(float) => head(0xcb, &float.to_be_bytes(), target),
        Scalar::Int(int) => write_int(int, target),
    }
}

fn write_int(int: i128, target: &mut Vec<u8>) {
    if let Ok(number) = u64::try_from(int) {
        match number.to_be_bytes() {
            [0, 0, 0, 0, 0, 0, 0, small @ 0..=127] => target.push(small),
            [0, 0, 0, 0, 0, 0, 0, one] => head(0xcc, &[one], target),
            [0, 0, 0, 0, 0, 0, two @ ..] => head(0xcd, &two, target),
            [0, 0, 0, 0, four @ ..] => head(0xce, &four, target),
            eight => head(0xcf, &eight, target),
        }
        return;
    }
    let number = i64::try_from(int).unwrap_or(i64::MIN);
    if let Ok(one) = i8::try_from(number) {
        if one < -32 {
            target.push(0xd0);
        }
        target.extend_from_slice(&one.to_be_bytes());
    } else if let Ok(two) = i16::try_from(number) {
        head(0xd1, &two.to_be_bytes(), target);
    } else if let Ok(four) = i32::try_from(number) {
        head(0xd2, &four.to_be_bytes(), target);
    } else {
        head(0xd3, &number.to_be_bytes(), target);
    }
}
