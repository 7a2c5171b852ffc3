//! NumPy's files: one array, with a header in Python's notation.
//!
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

mod literal;
mod types;

use serde_json::Value;

use crate::described::{Described, DescribedArray, no_attributes};
use crate::pieces::{self, Stored};
use crate::source::SourceFile;
use literal::parse;
use types::StoredType;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// The longest header.
const MAX_HEADER_LEN: usize = 1 << 20;

/// Describes the array of a file under the name of the file.
pub fn scan(file: &SourceFile, described: &mut Described) -> Result<()> {
    described.group("", no_attributes())?;
    describe(file, file.stem(), described)
}

/// Describes the array of a file at a path.
pub fn describe(file: &SourceFile, path: &str, described: &mut Described) -> Result<()> {
    describe_header(described, path, &NpyHeader::read(file)?, file.len())
}

/// The header of an array.
#[derive(Debug)]
struct NpyHeader {
    stored: StoredType,
    shape: Vec<u64>,
    is_fortran: bool,
    /// Where the elements begin.
    offset: u64,
}

impl NpyHeader {
    fn read(file: &SourceFile) -> Result<Self> {
        let start = file.read(0, 12)?;
        let number = |range: std::ops::Range<usize>| {
            let bytes = start.get(range).unwrap_or_default();
            bytes.iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
        };
        let (at, len) = match start.get(6) {
            Some(1) => (10, number(8..10)),
            Some(2 | 3) => (12, number(8..12)),
            other => return Err(Error::unsupported(format!("version {other:?} of a npy file"))),
        };
        if len > MAX_HEADER_LEN {
            return Err(Error::too_large(format!("a npy header of {len} bytes")));
        }
        let header = file.read(at, len)?;
        let text = std::str::from_utf8(&header).map_err(|_| wrong("it is not UTF-8"))?;
        let header = parse(text)?;
        let shape =
            header.get("shape").and_then(Value::as_array).ok_or_else(|| wrong("no shape"))?;
        let shape = shape.iter().map(|len| len.as_u64().ok_or_else(|| wrong("a wrong shape")));
        let is_fortran = header.get("fortran_order").and_then(Value::as_bool).unwrap_or_default();
        let descr = header.get("descr").ok_or_else(|| wrong("no descr"))?;
        Ok(Self {
            stored: StoredType::parse(descr)?,
            shape: shape.collect::<Result<_>>()?,
            is_fortran,
            offset: at.saturating_add(len.to_u64()),
        })
    }
}

fn wrong(why: &str) -> Error {
    Error::corrupt(format!("the header of the npy file: {why}"))
}

fn describe_header(
    described: &mut Described,
    path: &str,
    header: &NpyHeader,
    end: u64,
) -> Result<()> {
    let NpyHeader { stored, shape, is_fortran, offset } = header;
    let len = shape.iter().try_fold(stored.item_len, |total, len| total.checked_mul(*len));
    let needed = len.and_then(|len| len.checked_add(*offset));
    if needed.is_none_or(|needed| needed > end) {
        return Err(Error::corrupt(format!(
            "the file ends at byte {end}, before the last element"
        )));
    }
    let mut in_file = shape.clone();
    let mut codecs = Vec::new();
    if *is_fortran && shape.len() > 1 {
        in_file.reverse();
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        codecs.push(crate::described::codec("transpose", serde_json::json!({"order": order})));
    }
    codecs.push(crate::described::bytes_codec(stored.is_big));
    let array = DescribedArray {
        shape: shape.clone(),
        data_type: stored.data_type.clone(),
        fill_value: stored.zero.clone(),
        codecs,
        ..DescribedArray::default()
    };
    let place = Stored {
        shape: &in_file,
        item_len: stored.item_len,
        offset: *offset,
        is_reversed: *is_fortran,
    };
    pieces::describe(described, path, array, place)
}
