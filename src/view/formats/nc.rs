//! `nc`: netCDF classic with 64-bit offsets (CDF-2), or with 64-bit data (CDF-5) if CDF-2 cannot
//! hold it.
//!
//! ```text
//! "CDF" 2|5 | number of records | dimensions | attributes | variables | room | data | padding | data ..
//! ```
//!
//! All numbers are big endian. Lengths have four bytes in CDF-2 and eight in CDF-5; names and
//! values are padded to a multiple of four. Elements of types that CDF-2 lacks are converted if
//! there are few and none changes, as xarray does with times.
//!
//! - [The format](https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html)
//! - [CDF-5](https://parallel-netcdf.github.io/doc/c-reference/pnetcdf-c/CDF_002d5-file-format-specification.html)

use crate::dtype::DType;
use crate::error::{Error, Kind, Result};
use crate::metadata::NodeKind;
use crate::view::cf::{
    Attribute, AttributeValues, CfDataset, ConversionBudget, Data, UNSIGNED, Variable, decimal,
    exactly, joined,
};
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::LeftOutOfView;
use crate::view::parts::{Part, View};
use crate::view::source::{ROOT_NAME, ViewSource};
use crate::width::ToU64;

const NC_DIMENSION: u32 = 10;
const NC_VARIABLE: u32 = 11;
const NC_ATTRIBUTE: u32 = 12;

/// The space in which the header can grow; the data begin after it, at a multiple of [`PAGE`]. A
/// program that adds an attribute in place then begins by writing to the header, which fails before
/// any data move.
const ROOM: u64 = 8 << 10;
const PAGE: u64 = 4 << 10;

/// The most elements along a dimension of CDF-2.
const MAX_DIMENSION: u64 = (1 << 31) - 4;

/// The most bytes of a variable in CDF-2, except the last one, and the value that CDF-2 stores as
/// the length of a longer one.
const MAX_VSIZE: u64 = (1 << 32) - 4;
const LONGER: u64 = (1 << 32) - 1;

/// The version of a file, which decides its lengths and types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NcVersion {
    Cdf2,
    Cdf5,
}

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let mut room = ConversionBudget::default();
    let mut dataset = CfDataset::of(source, &mut room)?;
    if source.kind() == NodeKind::Group {
        let children = source.children()?.nodes;
        for group in children.iter().filter(|child| child.kind() == NodeKind::Group) {
            let all = source.path().name().unwrap_or(ROOT_NAME);
            let reason = Error::unsupported(format!(
                "nc holds one group; open {}.nc, or {all}.nc4, which holds all groups",
                group.name(),
            ));
            dataset.left_out.push((group.name().to_owned(), reason));
        }
    }
    keep_one_record_dimension(&mut dataset)?;
    // The longest is last: it may have more bytes than CDF-2 can express.
    let lens: Vec<u64> =
        dataset.variables.iter().map(|v| vsize(v, &dataset)).collect::<Result<_>>()?;
    let longest = (0..lens.len()).max_by_key(|index| lens.get(*index));
    let others = lens.iter().enumerate().filter(|(index, _)| Some(*index) != longest);
    let fits = others.max_by_key(|(_, len)| **len).is_none_or(|(_, len)| *len <= MAX_VSIZE)
        && dataset.dimensions.iter().all(|dimension| dimension.len <= MAX_DIMENSION);
    if let Some(longest) = longest {
        let last = dataset.variables.remove(longest);
        dataset.variables.push(last);
    }
    let mut version = NcVersion::Cdf5;
    if fits {
        let narrow = dataset.variables.iter().map(|variable| in_cdf2(variable, &mut room));
        let narrow: Result<Option<Vec<_>>> = narrow.collect();
        if let Some(narrow) = narrow? {
            (dataset.variables, version) = (narrow, NcVersion::Cdf2);
        }
    }
    let mut left_out = LeftOutOfView::default();
    for (name, why) in &dataset.left_out {
        left_out.add(source.path(), source.path(), name, why);
    }
    let form = |values: &AttributeValues| change_of(values, version);
    dataset.list_changes(source.path(), source.path(), Some(&form), &mut left_out);
    Ok(file(&dataset, version)?.with_left_out(left_out))
}

/// Makes a dimension of length 0 the record dimension. There can be only one, and it must be the
/// first dimension of a variable, so variables with other empty dimensions are left out.
fn keep_one_record_dimension(dataset: &mut CfDataset<'_>) -> Result<()> {
    let empty: Vec<bool> = dataset.dimensions.iter().map(|dimension| dimension.len == 0).collect();
    let is_empty = |number: &&usize| empty.get(**number).copied().unwrap_or_default();
    let first = |variable: &Variable<'_>| variable.dimensions.first().filter(is_empty).copied();
    let chosen = dataset.variables.iter().find_map(first);
    dataset.leave_out(|variable| {
        let number = variable.dimensions.iter().filter(is_empty).count();
        let fits = number == 0 || (number == 1 && chosen.is_some() && first(variable) == chosen);
        (!fits).then(|| {
            Error::unsupported(
                "in a classic netCDF file only one dimension can be empty, and it must come first",
            )
        })
    });
    dataset.check_not_empty()
}

/// Returns the padded length of a variable in bytes, or of one record of it.
fn vsize(variable: &Variable<'_>, dataset: &CfDataset<'_>) -> Result<u64> {
    let lens = variable.dimensions.iter().filter_map(|number| dataset.dimensions.get(*number));
    let lens = lens.map(|dimension| dimension.len).filter(|len| *len > 0);
    let item_len = u64::try_from(variable.dtype.item_len()).ok();
    lens.fold(item_len, |all, len| all?.checked_mul(len))
        .and_then(|len| len.checked_next_multiple_of(4))
        .ok_or_else(|| Error::unsupported("it would exceed the maximum size of a file"))
}

/// Converts a variable to types of CDF-2; `None` if it has too many elements, or if one would
/// change.
fn in_cdf2<'s>(
    variable: &Variable<'s>,
    room: &mut ConversionBudget,
) -> Result<Option<Variable<'s>>> {
    match variable.dtype {
        DType::Uint(1) => {
            let mut signed = variable.clone();
            signed.dtype = DType::Int(1);
            signed.changes.push(format!("type uint8 (as int8, with the attribute {UNSIGNED})"));
            for attribute in signed.attributes.iter_mut().filter(|one| one.is_of_the_type) {
                if let AttributeValues::Numbers(dtype, ..) = &mut attribute.values {
                    *dtype = DType::Int(1);
                }
            }
            signed.attributes.retain(|attribute| attribute.name != UNSIGNED);
            signed.attributes.push(Attribute::text(UNSIGNED, "true"));
            Ok(Some(signed))
        }
        // The dimension has the length of the elements.
        DType::Int(8) | DType::Uint(_)
            if variable.attributes.iter().any(|attribute| attribute.name == UNSIGNED) =>
        {
            Ok(None)
        }
        DType::Int(8) | DType::Uint(_) => {
            let values = match variable.values(room) {
                Err(error) if error.kind() == Kind::Unsupported => return Ok(None),
                values => values?,
            };
            let of = |dtype| variable.exactly(&values, &dtype);
            Ok(of(DType::Int(4)).or_else(|| of(DType::Float(8))))
        }
        _ => Ok(Some(variable.clone())),
    }
}

/// Returns the file of a data set that has only types of this version.
fn file(dataset: &CfDataset<'_>, version: NcVersion) -> Result<View> {
    // The length of the header does not depend on the offsets.
    let none = vec![0; dataset.variables.len()];
    let header_len = HeaderWriter::of(dataset, version, &none)?.len();
    let too_long = || Error::unsupported("it would exceed the maximum size of a file");
    let mut at = u64::try_from(header_len)
        .ok()
        .and_then(|len| len.checked_add(ROOM)?.checked_next_multiple_of(PAGE))
        .ok_or_else(too_long)?;
    if dataset.variables.is_empty() {
        return View::new([Part::from(HeaderWriter::of(dataset, version, &none)?)]);
    }
    let mut parts = vec![Part::Zeros(at.saturating_sub(u64::try_from(header_len).unwrap_or(at)))];
    let mut begins = Vec::new();
    for variable in &dataset.variables {
        begins.push(at);
        let part = match &variable.data {
            Data::Values(values) => Part::from(big_endian(values, variable.dtype.item_len())),
            Data::Elements => {
                let items = NumberForm { big_endian: true, flip_sign: false };
                Part::from(variable.source.elements(Layout::Linear, items)?)
            }
        };
        let len = part.len();
        let padded = len.checked_next_multiple_of(4).ok_or_else(too_long)?;
        at = at.checked_add(padded).ok_or_else(too_long)?;
        parts.extend([part, Part::Zeros(padded.saturating_sub(len))]);
    }
    // Variables with records are empty, and lie after all others.
    for (begin, variable) in begins.iter_mut().zip(&dataset.variables) {
        if is_record(variable, dataset) {
            *begin = at;
            at = at.checked_add(vsize(variable, dataset)?).ok_or_else(too_long)?;
        }
    }
    let header = HeaderWriter::of(dataset, version, &begins)?;
    View::new([Part::from(header)].into_iter().chain(parts))
}

fn is_record(variable: &Variable<'_>, dataset: &CfDataset<'_>) -> bool {
    let first = variable.dimensions.first().and_then(|number| dataset.dimensions.get(*number));
    first.is_some_and(|dimension| dimension.len == 0)
}

/// Reverses the bytes of each number.
fn big_endian(values: &[u8], item_len: usize) -> Vec<u8> {
    let mut bytes = values.to_vec();
    bytes.chunks_exact_mut(item_len.max(1)).for_each(<[u8]>::reverse);
    bytes
}

/// Writes the header.
struct HeaderWriter {
    version: NcVersion,
    bytes: Vec<u8>,
}

impl HeaderWriter {
    /// Returns the whole header, with the offset of each variable.
    fn of(dataset: &CfDataset<'_>, version: NcVersion, begins: &[u64]) -> Result<Vec<u8>> {
        let magic = match version {
            NcVersion::Cdf2 => b"CDF\x02",
            NcVersion::Cdf5 => b"CDF\x05",
        };
        let mut header = Self { version, bytes: magic.to_vec() };
        header.count(0)?;
        header.list(NC_DIMENSION, dataset.dimensions.len())?;
        for dimension in &dataset.dimensions {
            header.name(&dimension.name)?;
            header.count(dimension.len)?;
        }
        header.attributes(&dataset.global_attributes())?;
        header.list(NC_VARIABLE, dataset.variables.len())?;
        for (variable, begin) in dataset.variables.iter().zip(begins) {
            header.name(&variable.name)?;
            header.length(variable.dimensions.len())?;
            for number in &variable.dimensions {
                header.length(*number)?;
            }
            header.attributes(&variable.attributes)?;
            header.bytes.extend(type_code(&variable.dtype)?.to_be_bytes());
            let vsize = vsize(variable, dataset)?;
            header.count(match version {
                NcVersion::Cdf2 if vsize > MAX_VSIZE => LONGER,
                _ => vsize,
            })?;
            header.bytes.extend(begin.to_be_bytes());
        }
        Ok(header.bytes)
    }

    /// Writes a number of bytes or elements.
    fn count(&mut self, count: u64) -> Result<()> {
        match self.version {
            NcVersion::Cdf5 => self.bytes.extend(count.to_be_bytes()),
            NcVersion::Cdf2 => {
                let count = u32::try_from(count).map_err(|_| {
                    Error::unsupported(format!("CDF-2 cannot store the length {count}"))
                })?;
                self.bytes.extend(count.to_be_bytes());
            }
        }
        Ok(())
    }

    fn length(&mut self, len: usize) -> Result<()> {
        self.count(len.to_u64())
    }

    /// Writes the tag and the length of a list; zeros if it is empty.
    fn list(&mut self, tag: u32, len: usize) -> Result<()> {
        self.bytes.extend(if len == 0 { 0 } else { tag }.to_be_bytes());
        self.length(len)
    }

    fn name(&mut self, name: &str) -> Result<()> {
        self.length(name.len())?;
        self.padded(name.as_bytes());
        Ok(())
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn attributes(&mut self, attributes: &[Attribute]) -> Result<()> {
        let all =
            || attributes.iter().filter(|attribute| attribute.values != AttributeValues::Null);
        self.list(NC_ATTRIBUTE, all().count())?;
        for attribute in all() {
            self.name(&attribute.name)?;
            let (dtype, bytes) = self.attribute(&attribute.values);
            self.bytes.extend(type_code(&dtype)?.to_be_bytes());
            self.length(bytes.len() / dtype.item_len().max(1))?;
            self.padded(&bytes);
        }
        Ok(())
    }

    /// Returns an attribute in a type of this version.
    fn attribute(&self, values: &AttributeValues) -> (DType, Vec<u8>) {
        let text = |text: &str| (DType::Bytes(1), text.as_bytes().to_vec());
        match values {
            AttributeValues::Text(value) => text(value),
            AttributeValues::Texts(texts) => text(&joined(texts)),
            AttributeValues::Nothing => text("[]"),
            AttributeValues::Null => text(""),
            AttributeValues::Bools(bytes, _) => (DType::Int(1), bytes.clone()),
            AttributeValues::Numbers(dtype, bytes, many) => {
                let is_there = self.version == NcVersion::Cdf5
                    || !matches!(dtype, DType::Uint(_) | DType::Int(8));
                let double = || exactly(bytes, dtype, &DType::Float(8));
                if is_there {
                    (dtype.clone(), big_endian(bytes, dtype.item_len()))
                } else if let Some(doubles) = double() {
                    (DType::Float(8), big_endian(&doubles, 8))
                } else {
                    text(&decimal(bytes, dtype, *many))
                }
            }
        }
    }
}

/// Returns the form of an attribute in a file, if it is another one than in the hierarchy.
fn change_of(values: &AttributeValues, version: NcVersion) -> Option<&'static str> {
    match values {
        AttributeValues::Null => Some("null, which netCDF does not have"),
        AttributeValues::Nothing => Some("an empty list, as the string []"),
        AttributeValues::Texts(_) => Some("a list of strings, as one string"),
        AttributeValues::Bools(..) => Some("true or false, as int8"),
        AttributeValues::Numbers(DType::Uint(_) | DType::Int(8), ..)
            if version == NcVersion::Cdf2 =>
        {
            Some("an integer of 64 bits or without a sign, as float64 or as a string")
        }
        AttributeValues::Text(_) | AttributeValues::Numbers(..) => None,
    }
}

/// Returns the number of a type.
fn type_code(dtype: &DType) -> Result<u32> {
    Ok(match dtype {
        DType::Int(1) => 1,
        DType::Bytes(_) => 2,
        DType::Int(2) => 3,
        DType::Int(4) => 4,
        DType::Float(4) => 5,
        DType::Float(8) => 6,
        DType::Uint(1) => 7,
        DType::Uint(2) => 8,
        DType::Uint(4) => 9,
        DType::Int(8) => 10,
        DType::Uint(8) => 11,
        other => {
            return Err(Error::unsupported(format!("netCDF has no type for {}", other.name())));
        }
    })
}
