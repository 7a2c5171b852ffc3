//! netCDF-3: CDF-1, CDF-2 and CDF-5.
//!
//! All values are in big-endian order. Those of a variable lie one after another, unless its first
//! dimension is that of records: then the file has the first record of each such variable, then the
//! second, and so on, and a record is at least one chunk.
//!
//! <https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html>

mod header;
mod types;

use std::collections::HashSet;

use serde_json::json;

use crate::described::{Described, DescribedArray, bytes_codec, is_node_name};
use crate::json::code_masked;
use crate::pieces::{self, Stored};
use crate::source::SourceFile;
use header::{Attributes, NcHeader, StoredVariable};
use types::{NcType, padded};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;
use zarrfs_codec::dtype::base64_encode;

/// The most chunks of records of all variables.
const MAX_CHUNKS: u64 = 8 << 20;

/// Records that are more than this and shorter than this, if all have at most this many bytes, are
/// read when the file is opened: a chunk of a few bytes for each takes long to read.
const MIN_GATHERED: u64 = 256;
const MAX_STRIDE: u64 = 16 << 10;
const MAX_GATHERED_LEN: u64 = 32 << 20;

/// How many bytes a chunk has then.
const GATHERED_LEN: u64 = 256 << 10;

/// Describes all variables of a file.
pub fn scan(file: &SourceFile, described: &mut Described) -> Result<()> {
    let header = NcHeader::read(file)?;
    note_left_out(described, "", &header.attributes);
    described.group("", header.attributes.shown.clone())?;
    let layout = RecordLayout::of(&header, file.len());
    let mut chunks_left = MAX_CHUNKS;
    let mut names = HashSet::new();
    for variable in &header.variables {
        if !is_node_name(&variable.name) {
            described.omit(&variable.name, "no node can have this name");
        } else if !names.insert(&variable.name) {
            described.omit(&variable.name, "another variable of the file has this name");
        } else {
            let array = NcArray { header: &header, layout: &layout, variable, file };
            array.describe(described, &mut chunks_left)?;
        }
    }
    Ok(())
}

fn note_left_out(described: &mut Described, path: &str, attributes: &Attributes) {
    if !attributes.left_out.is_empty() {
        let names = attributes.left_out.join(", ");
        described.omit(path, &format!("attributes that are too long: {names}"));
    }
}

/// Where records are.
#[derive(Debug)]
struct RecordLayout {
    /// How many there are.
    count: u64,
    /// The bytes of one, of all variables.
    stride: u64,
}

impl RecordLayout {
    fn of(header: &NcHeader, end: u64) -> Self {
        let of_records = || header.variables.iter().filter(|it| it.is_of_records(header));
        let lens = of_records().map(|it| it.part_len(header));
        // A single variable has no padding between its records.
        let stride = match of_records().count() {
            1 => lens.max().flatten(),
            _ => lens.map(|len| len.map(padded)).try_fold(0_u64, |all, len| all.checked_add(len?)),
        };
        let stride = stride.unwrap_or(u64::MAX);
        let begin = of_records().map(|it| it.begin).min().unwrap_or(end);
        let streamed = || end.saturating_sub(begin).checked_div(stride).unwrap_or_default();
        Self { count: header.records.unwrap_or_else(streamed), stride }
    }
}

impl RecordLayout {
    /// Whether records are many, and all of them together are few bytes.
    fn is_small(&self) -> bool {
        let len = self.count.saturating_mul(self.stride);
        self.count > MIN_GATHERED && self.stride <= MAX_STRIDE && len <= MAX_GATHERED_LEN
    }
}

impl StoredVariable {
    fn is_of_records(&self, header: &NcHeader) -> bool {
        let first = self.dimensions.first().and_then(|first| header.dimensions.get(*first));
        first.is_some_and(|first| first.len.is_none())
    }

    /// Returns the bytes of its values, or of those of a record; `None` from 2^64 on.
    fn part_len(&self, header: &NcHeader) -> Option<u64> {
        let lens = self.dimensions.iter().filter_map(|it| header.dimensions.get(*it)?.len);
        lens.into_iter().try_fold(self.stored.item_len(), u64::checked_mul)
    }
}

/// A variable to describe as an array.
struct NcArray<'a> {
    header: &'a NcHeader,
    layout: &'a RecordLayout,
    variable: &'a StoredVariable,
    file: &'a SourceFile,
}

impl NcArray<'_> {
    fn describe(&self, described: &mut Described, chunks_left: &mut u64) -> Result<()> {
        let StoredVariable { name, attributes, stored, .. } = self.variable;
        note_left_out(described, name, attributes);
        let dimensions = || {
            let found = |index: &usize| self.header.dimensions.get(*index);
            self.variable.dimensions.iter().filter_map(found)
        };
        let shape: Vec<u64> = dimensions().map(|it| it.len.unwrap_or(self.layout.count)).collect();
        let mut array = DescribedArray {
            data_type: stored.data_type(),
            fill_value: stored.default_fill(),
            codecs: vec![bytes_codec(true)],
            chunk_shape: shape.iter().map(|len| (*len).max(1)).collect(),
            dimension_names: Some(dimensions().map(|it| Some(it.name.clone())).collect()),
            attributes: attributes.shown.clone(),
            shape,
        };
        self.mask(&mut array);
        let placed = self.place(array.clone(), described, chunks_left);
        described.or_unread(name, array, placed)
    }

    /// Makes the value of `_FillValue` the fill value, and writes it as xarray expects it.
    fn mask(&self, array: &mut DescribedArray) {
        let StoredVariable { attributes, stored, .. } = self.variable;
        let Some((found, bytes)) = &attributes.fill else { return };
        if found != stored || u64::try_from(bytes.len()) != Ok(stored.item_len()) {
            return;
        }
        match stored {
            NcType::Char => {
                array.fill_value = json!(base64_encode(bytes));
                // xarray decodes none of characters in Zarr 3, and opens nothing then.
                array.attributes.remove("_FillValue");
            }
            NcType::Int(_) | NcType::Uint(_) => array.fill_value = stored.value(bytes),
            NcType::Float(_) => {
                array.fill_value = crate::json::fill_value(stored.value(bytes));
                code_masked(&mut array.attributes, stored.item_len());
            }
        }
    }

    fn place(
        &self,
        array: DescribedArray,
        described: &mut Described,
        chunks_left: &mut u64,
    ) -> Result<()> {
        let StoredVariable { name, stored, begin, .. } = self.variable;
        let RecordLayout { count, stride } = *self.layout;
        let too_large = || Error::corrupt(format!("{name} has more than 2^64 bytes"));
        let part_len = self.variable.part_len(self.header).ok_or_else(too_large)?;
        let is_of_records = self.variable.is_of_records(self.header);
        if self.variable.dimensions.iter().skip(1).any(|it| self.is_records(*it)) {
            return Err(Error::corrupt("its second or a later dimension is that of records"));
        }
        let last = if is_of_records {
            count.checked_sub(1).map(|last| last.checked_mul(stride))
        } else {
            Some(Some(0))
        };
        if let Some(last) = last
            && part_len > 0
        {
            let needed = last.and_then(|at| at.checked_add(part_len)?.checked_add(*begin));
            if needed.is_none_or(|needed| needed > self.file.len()) {
                let end = self.file.len();
                return Err(Error::corrupt(format!(
                    "the file ends at byte {end}, before the last value"
                )));
            }
        }
        let shape = array.shape.clone();
        if is_of_records && stride != part_len && !shape.contains(&0) {
            if self.layout.is_small() {
                return self.gathered(array, part_len, described);
            }
            *chunks_left = chunks_left.checked_sub(count).ok_or_else(|| {
                Error::unsupported(format!(
                    "{count} records, which are a chunk each: zarrfs reads {MAX_CHUNKS} of a file"
                ))
            })?;
            return self.interleaved(array, described);
        }
        let item_len = stored.item_len();
        let place = Stored { shape: &shape, item_len, offset: *begin, is_reversed: false };
        pieces::describe(described, name, array, place)
    }

    fn is_records(&self, dimension: usize) -> bool {
        self.header.dimensions.get(dimension).is_some_and(|found| found.len.is_none())
    }

    /// Describes a variable between whose records those of others lie.
    fn interleaved(&self, mut array: DescribedArray, described: &mut Described) -> Result<()> {
        let StoredVariable { name, stored, begin, .. } = self.variable;
        let item_len = stored.item_len();
        let shape = array.shape.clone();
        let rest = shape.get(1..).unwrap_or_default();
        array.chunk_shape = vec![1];
        array.chunk_shape.extend(pieces::piece_shape(rest, item_len));
        described.array(name, &array)?;
        for record in 0..self.layout.count {
            let offset = record.saturating_mul(self.layout.stride).saturating_add(*begin);
            let place = Stored { shape: rest, item_len, offset, is_reversed: false };
            pieces::chunks(place, |coords, piece| {
                let coords: Vec<u64> = std::iter::once(record).chain(coords.to_vec()).collect();
                described.part(name, &coords, piece.offset, piece.len, piece.needed)
            })?;
        }
        Ok(())
    }

    /// Describes such a variable by its values, of many records in a chunk.
    fn gathered(
        &self,
        mut array: DescribedArray,
        part_len: u64,
        described: &mut Described,
    ) -> Result<()> {
        let StoredVariable { name, begin, .. } = self.variable;
        let RecordLayout { count, stride } = *self.layout;
        let per_chunk = (GATHERED_LEN / part_len.max(1)).clamp(1, count);
        array.chunk_shape = vec![per_chunk];
        array.chunk_shape.extend(array.shape.iter().skip(1));
        described.array(name, &array)?;
        let chunk_len = per_chunk.saturating_mul(part_len).to_usize();
        for chunk in 0..count.div_ceil(per_chunk) {
            let first = chunk.saturating_mul(per_chunk);
            let mut values = Vec::with_capacity(chunk_len);
            for record in first..first.saturating_add(per_chunk).min(count) {
                let at = record.saturating_mul(stride).saturating_add(*begin);
                values.extend_from_slice(&self.file.read(at, part_len.to_usize())?);
            }
            values.resize(chunk_len, 0);
            let mut coords = vec![0; array.shape.len()];
            coords.first_mut().into_iter().for_each(|first| *first = chunk);
            described.inline(name, &coords, values)?;
        }
        Ok(())
    }
}
