//! NRRD ("nearly raw raster data"): a header that is a text, and the elements after it or in
//! another file.
//!
//! The array has the axes in C order, the fastest of the file last. Elements that are compressed
//! are one chunk.
//!
//! <https://teem.sourceforge.net/nrrd/format.html>

mod axes;
mod header;

use serde_json::{Value, json};

use crate::described::{Described, DescribedArray, bytes_codec, zero_of};
use crate::image;
use crate::json::double;
use crate::lines::{self, TextLines};
use crate::packed::{self, Compressor};
use crate::pieces::{self, Stored};
use crate::source::SourceFile;
use header::NrrdHeader;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::json::Object;

/// The most dimensions, as in Teem.
const MAX_RANK: usize = 16;

/// The fields that say how elements are stored, which are no attributes.
const OF_STORAGE: [&str; 13] = [
    "type",
    "dimension",
    "sizes",
    "endian",
    "encoding",
    "data file",
    "datafile",
    "line skip",
    "lineskip",
    "byte skip",
    "byteskip",
    "block size",
    "blocksize",
];

/// Describes the array of a file.
pub fn scan(file: &SourceFile, described: &mut Described) -> Result<()> {
    let header = NrrdHeader::read(file)?;
    let path = file.stem();
    let sizes = header.field(&["sizes"]).and_then(lines::numbers::<u64>);
    let mut shape = sizes.ok_or_else(|| Error::corrupt("the header of NRRD has no sizes"))?;
    let rank = header.field(&["dimension"]).and_then(|it| it.parse::<usize>().ok());
    if rank != Some(shape.len()) || shape.is_empty() {
        return Err(Error::corrupt("the header of NRRD has other sizes than its dimension says"));
    }
    if shape.len() > MAX_RANK {
        return Err(Error::too_large(format!("{} dimensions of NRRD", shape.len())));
    }
    let mut axes = axes::of(&header, shape.len());
    axes.reverse();
    shape.reverse();
    let element = NrrdType::of(&header);
    let is_complex = axes::is_complex(&header, shape.last())
        && matches!(&element, Ok(it) if it.name.starts_with("float"));
    if is_complex {
        axes.pop();
        shape.pop();
    }
    described.group("", image::attributes(path, &axes))?;
    let array = DescribedArray {
        chunk_shape: shape.iter().map(|len| (*len).max(1)).collect(),
        shape,
        data_type: json!("uint8"),
        fill_value: json!(0),
        dimension_names: Some(image::names(&axes)),
        attributes: shown(&header),
        ..DescribedArray::default()
    };
    let element = element.map(|element| if is_complex { element.complex() } else { element });
    let result = element.and_then(|it| describe(file, &header, array.clone(), &it, described));
    described.or_unread(path, array, result)
}

/// Returns the fields that say what elements are, and the keys of the user.
fn shown(header: &NrrdHeader) -> Object {
    let mut shown = Object::new();
    for (name, text) in &header.fields {
        if OF_STORAGE.contains(&name.as_str()) {
            continue;
        }
        let value = match name.as_str() {
            "space directions" | "measurement frame" | "space origin" => {
                let vectors = header.vectors(&[name]);
                let list = |vector: Option<Vec<f64>>| match vector {
                    Some(vector) => vector.into_iter().map(double).collect(),
                    None => Value::Null,
                };
                let mut lists: Vec<Value> = vectors.into_iter().map(list).collect();
                if name == "space origin" { lists.pop().unwrap_or_default() } else { lists.into() }
            }
            "units" | "space units" | "labels" => json!(header.quoted(&[name])),
            "kinds" | "centers" | "centerings" => json!(header.words(&[name])),
            "spacings" | "thicknesses" | "axis mins" | "axismins" | "axis maxs" | "axismaxs" => {
                let numbers = text.split_whitespace().map(str::parse::<f64>);
                numbers.map(|number| number.map_or(Value::Null, double)).collect()
            }
            "min" | "max" | "old min" | "oldmin" | "old max" | "oldmax" => {
                text.parse::<f64>().map_or_else(|_| json!(text), double)
            }
            "space dimension" => text.parse::<u64>().map_or_else(|_| json!(text), Value::from),
            _ => json!(text),
        };
        shown.insert(name.clone(), value);
    }
    for (key, value) in &header.keys {
        shown.insert(key.clone(), json!(value));
    }
    shown
}

fn describe(
    file: &SourceFile,
    header: &NrrdHeader,
    array: DescribedArray,
    element: &NrrdType,
    described: &mut Described,
) -> Result<()> {
    let compressor = compressor(header)?;
    let is_big = is_big(header, element)?;
    let array = DescribedArray {
        data_type: json!(element.name),
        fill_value: zero_of(element.name),
        codecs: vec![bytes_codec(is_big)],
        ..array
    };
    let detached = detached(file, header)?;
    let values = detached.as_ref().unwrap_or(file);
    described.lead_to(values)?;
    let (line_skip, byte_skip) =
        (skip(header, &["line skip", "lineskip"])?, skip(header, &["byte skip", "byteskip"])?);
    let mut lines = TextLines::new(values);
    lines.at = if detached.is_some() { 0 } else { header.offset };
    lines.skip(u64::try_from(line_skip).unwrap_or_default())?;
    let offset = lines.at;
    let path = file.stem();
    let Some(compressor) = compressor else {
        let shape = array.shape.clone();
        let item_len = element.item_len();
        let place = Stored { shape: &shape, item_len, offset, is_reversed: false };
        let place = Stored { offset: place.after(byte_skip, values)?, ..place };
        pieces::check_end(place, values)?;
        return pieces::describe(described, path, array, place);
    };
    let shape = array.shape.clone();
    let item_len = element.item_len();
    if byte_skip != 0 {
        // They count in what is unpacked.
        let copy = packed::unpack(compressor, values, offset, packed::MAX_LEN, described)?;
        let place = Stored { shape: &shape, item_len, offset: 0, is_reversed: false };
        let place = Stored { offset: place.after(byte_skip, &copy)?, ..place };
        pieces::check_end(place, &copy)?;
        return pieces::describe(described, path, array, place);
    }
    let place = Stored { shape: &shape, item_len, offset, is_reversed: false };
    packed::describe(described, path, array, place, compressor, values)
}

/// Returns the codec of all elements, if they are compressed.
fn compressor(header: &NrrdHeader) -> Result<Option<Compressor>> {
    let encoding = header.field(&["encoding"]).unwrap_or_default().to_ascii_lowercase();
    match encoding.as_str() {
        "raw" => Ok(None),
        "gzip" | "gz" => Ok(Some(Compressor::Gzip)),
        "bzip2" | "bz2" => Ok(Some(Compressor::Bzip2)),
        other => Err(Error::unsupported(format!(
            "elements of NRRD in the encoding {other:?}: zarrfs reads raw, gzip and bzip2"
        ))),
    }
}

fn is_big(header: &NrrdHeader, element: &NrrdType) -> Result<bool> {
    match header.field(&["endian"]).map(str::to_ascii_lowercase).as_deref() {
        Some("big") => Ok(true),
        Some("little") => Ok(false),
        _ if element.number_len == 1 => Ok(false),
        _ => Err(Error::corrupt("the header of NRRD does not say the order of bytes")),
    }
}

/// Returns the file with the elements, if it is another one.
fn detached(file: &SourceFile, header: &NrrdHeader) -> Result<Option<SourceFile>> {
    let Some(name) = header.field(&["data file", "datafile"]) else { return Ok(None) };
    if name.starts_with("LIST") || name.contains('%') {
        return Err(Error::unsupported("elements of NRRD in several files"));
    }
    let found = file.beside(name)?;
    let missing = || Error::corrupt(format!("the elements are in {name:?}, which does not exist"));
    found.map(Some).ok_or_else(missing)
}

fn skip(header: &NrrdHeader, names: &[&str]) -> Result<i64> {
    let Some(text) = header.field(names) else { return Ok(0) };
    text.parse().map_err(|_| Error::corrupt(format!("the header of NRRD skips {text:?}")))
}

impl Stored<'_> {
    /// Returns where elements begin after bytes that are skipped; with -1 they end with the file.
    pub fn after(&self, skipped: i64, file: &SourceFile) -> Result<u64> {
        if let Ok(skipped) = u64::try_from(skipped) {
            return Ok(self.offset.saturating_add(skipped));
        }
        let len = self.shape.iter().try_fold(self.item_len, |all, len| all.checked_mul(*len));
        let start = len.and_then(|len| file.len().checked_sub(len));
        let end = file.len();
        start
            .ok_or_else(|| Error::corrupt(format!("the file has {end} bytes, fewer than elements")))
    }
}

/// A type of elements.
#[derive(Debug, Clone, Copy)]
struct NrrdType {
    name: &'static str,
    /// The bytes of a number.
    number_len: u64,
}

impl NrrdType {
    fn of(header: &NrrdHeader) -> Result<Self> {
        let text = header.field(&["type"]).unwrap_or_default();
        let (name, number_len) = match text {
            "signed char" | "int8" | "int8_t" => ("int8", 1),
            "uchar" | "unsigned char" | "uint8" | "uint8_t" => ("uint8", 1),
            "short" | "short int" | "signed short" | "signed short int" | "int16" | "int16_t" => {
                ("int16", 2)
            }
            "ushort" | "unsigned short" | "unsigned short int" | "uint16" | "uint16_t" => {
                ("uint16", 2)
            }
            "int" | "signed int" | "int32" | "int32_t" => ("int32", 4),
            "uint" | "unsigned int" | "uint32" | "uint32_t" => ("uint32", 4),
            "longlong"
            | "long long"
            | "long long int"
            | "signed long long"
            | "signed long long int"
            | "int64"
            | "int64_t" => ("int64", 8),
            "ulonglong"
            | "unsigned long long"
            | "unsigned long long int"
            | "uint64"
            | "uint64_t" => ("uint64", 8),
            "float" => ("float32", 4),
            "double" => ("float64", 8),
            other => {
                return Err(Error::unsupported(format!("elements of the NRRD type {other:?}")));
            }
        };
        Ok(Self { name, number_len })
    }

    fn complex(self) -> Self {
        Self { name: if self.number_len == 4 { "complex64" } else { "complex128" }, ..self }
    }

    fn item_len(self) -> u64 {
        if self.name.starts_with("complex") { self.number_len * 2 } else { self.number_len }
    }
}
