//! MetaImage: lines of `name = value`, and the elements after them (`.mha`) or in another file
//! (`.mhd`).
//!
//! The array has the axes in C order, the fastest of the file last, and after them the channels of
//! pixels. Elements that are compressed are one chunk.
//!
//! <https://itk.org/Wiki/ITK/MetaIO/Documentation>

use serde_json::{Value, json};

use crate::described::{Described, DescribedArray, bytes_codec, zero_of};
use crate::image::{self, ImageAxis};
use crate::json::double;
use crate::lines::{self, TextLines};
use crate::packed::{self, Compressor};
use crate::pieces::{self, Stored};
use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::json::Object;

/// The most dimensions. MetaIO has 10.
const MAX_RANK: usize = 16;

/// The most lines.
const MAX_LINES: usize = 65_536;

/// The fields that say how elements are stored, which are no attributes.
const OF_STORAGE: [&str; 13] = [
    "ObjectType",
    "NDims",
    "DimSize",
    "BinaryData",
    "BinaryDataByteOrderMSB",
    "ElementByteOrderMSB",
    "CompressedData",
    "CompressedDataSize",
    "HeaderSize",
    "ElementNumberOfChannels",
    "ElementType",
    "ElementDataFile",
    "CompressionLevel",
];

/// Describes the array of a file.
pub fn scan(file: &SourceFile, described: &mut Described) -> Result<()> {
    let header = MetaHeader::read(file)?;
    let path = file.stem();
    let sizes = header.field("DimSize").and_then(lines::numbers::<u64>);
    let mut shape =
        sizes.ok_or_else(|| Error::corrupt("the header of MetaImage has no DimSize"))?;
    let rank = header.field("NDims").and_then(|it| it.parse::<usize>().ok());
    if rank != Some(shape.len()) || shape.is_empty() {
        return Err(Error::corrupt("the header of MetaImage has another DimSize than NDims says"));
    }
    if shape.len() > MAX_RANK {
        return Err(Error::too_large(format!("{} dimensions of MetaImage", shape.len())));
    }
    let mut axes = axes(&header, shape.len());
    shape.reverse();
    axes.reverse();
    let channels = header.field("ElementNumberOfChannels").map_or(Ok(1), str::parse);
    let channels: u64 = channels.map_err(|_| Error::corrupt("a wrong ElementNumberOfChannels"))?;
    if channels != 1 {
        shape.push(channels);
        let kind = Some("channel");
        axes.push(ImageAxis { name: "c".to_owned(), kind, ..ImageAxis::default() });
    }
    described.group("", image::attributes(path, &axes))?;
    let array = DescribedArray {
        chunk_shape: shape.iter().map(|len| (*len).max(1)).collect(),
        shape,
        data_type: json!("uint8"),
        fill_value: json!(0),
        dimension_names: Some(image::names(&axes)),
        attributes: header.shown(),
        ..DescribedArray::default()
    };
    let result = describe(file, &header, array.clone(), described);
    described.or_unread(path, array, result)
}

/// Returns the axes, the fastest first.
fn axes(header: &MetaHeader, rank: usize) -> Vec<ImageAxis> {
    let list = |names: &[&str]| {
        let found = names.iter().find_map(|name| header.field(name));
        found.and_then(lines::numbers::<f64>).unwrap_or_default()
    };
    let spacing = list(&["ElementSpacing", "ElementSize"]);
    let origin = list(&["Offset", "Position", "Origin"]);
    let matrix = list(&["TransformMatrix", "Rotation", "Orientation"]);
    let is_aligned = matrix.is_empty()
        || matrix.iter().enumerate().all(|(at, part)| {
            let is_diagonal = at.checked_rem(rank.saturating_add(1)) == Some(0);
            part.to_bits() == if is_diagonal { 1_f64 } else { *part * 0.0 }.to_bits()
        });
    (0..rank)
        .map(|index| {
            let name = ["x", "y", "z", "t"].get(index);
            let kind = if index < 3 { Some("space") } else { None };
            let start = origin.get(index).copied().filter(|_| is_aligned).unwrap_or_default();
            ImageAxis {
                name: name.map_or_else(|| format!("d{index}"), |name| (*name).to_owned()),
                kind: if index == 3 { Some("time") } else { kind },
                unit: None,
                step: spacing.get(index).copied(),
                start,
            }
        })
        .collect()
}

fn describe(
    file: &SourceFile,
    header: &MetaHeader,
    array: DescribedArray,
    described: &mut Described,
) -> Result<()> {
    let (name, item_len) = element(header.field("ElementType").unwrap_or_default())?;
    if header.is_false("BinaryData") {
        return Err(Error::unsupported("elements of MetaImage that are written as text"));
    }
    let is_big = header.is_true("BinaryDataByteOrderMSB") || header.is_true("ElementByteOrderMSB");
    let array = DescribedArray {
        data_type: json!(name),
        fill_value: zero_of(name),
        codecs: vec![bytes_codec(is_big)],
        ..array
    };
    let place = header.field("ElementDataFile").unwrap_or_default();
    let other = match place {
        "LOCAL" | "local" | "Local" => None,
        place if place.starts_with("LIST") || place.contains('%') => {
            return Err(Error::unsupported("elements of MetaImage in several files"));
        }
        place => Some(file.beside(place)?.ok_or_else(|| {
            Error::corrupt(format!("the elements are in {place:?}, which does not exist"))
        })?),
    };
    let values = other.as_ref().unwrap_or(file);
    described.lead_to(values)?;
    let begin = if other.is_some() { 0 } else { header.offset };
    let path = file.stem();
    let shape = array.shape.clone();
    let place = Stored { shape: &shape, item_len, offset: begin, is_reversed: false };
    if header.is_true("CompressedData") {
        let is_gzip = &*values.read_up_to(begin, 2)? == b"\x1f\x8b";
        let packing = if is_gzip { Compressor::Gzip } else { Compressor::Zlib };
        return packed::describe(described, path, array, place, packing, values);
    }
    let skipped = header.field("HeaderSize").map_or(Ok(0), str::parse);
    let skipped = skipped.map_err(|_| Error::corrupt("a wrong HeaderSize of MetaImage"))?;
    let place = Stored { offset: place.after(skipped, values)?, ..place };
    pieces::check_end(place, values)?;
    pieces::describe(described, path, array, place)
}

/// Returns a type of elements, and its length in bytes.
fn element(text: &str) -> Result<(&'static str, u64)> {
    Ok(match text.trim_end_matches("_ARRAY") {
        "MET_CHAR" | "MET_ASCII_CHAR" => ("int8", 1),
        "MET_UCHAR" => ("uint8", 1),
        "MET_SHORT" => ("int16", 2),
        "MET_USHORT" => ("uint16", 2),
        "MET_INT" | "MET_LONG" => ("int32", 4),
        "MET_UINT" | "MET_ULONG" => ("uint32", 4),
        "MET_LONG_LONG" => ("int64", 8),
        "MET_ULONG_LONG" => ("uint64", 8),
        "MET_FLOAT" => ("float32", 4),
        "MET_DOUBLE" => ("float64", 8),
        other => {
            return Err(Error::unsupported(format!("elements of the MetaImage type {other:?}")));
        }
    })
}

/// The lines of a header.
#[derive(Debug)]
struct MetaHeader {
    fields: Vec<(String, String)>,
    /// Where the elements begin, if they are in this file.
    offset: u64,
}

impl MetaHeader {
    fn read(file: &SourceFile) -> Result<Self> {
        let mut lines = TextLines::new(file);
        let mut fields = Vec::new();
        while let Some(line) = lines.next()? {
            let Some((name, value)) = line.split_once('=') else { continue };
            let name = name.trim().to_owned();
            let is_last = name == "ElementDataFile";
            fields.push((name, value.trim().to_owned()));
            if is_last {
                return Ok(Self { fields, offset: lines.at });
            }
            if fields.len() > MAX_LINES {
                return Err(Error::too_large(format!("more than {MAX_LINES} lines of MetaImage")));
            }
        }
        Err(Error::corrupt("the header of MetaImage does not say where its elements are"))
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    fn is_true(&self, name: &str) -> bool {
        self.field(name).is_some_and(|value| value.starts_with(['T', 't', '1', 'Y', 'y']))
    }

    fn is_false(&self, name: &str) -> bool {
        self.field(name).is_some_and(|value| value.starts_with(['F', 'f', '0', 'N', 'n']))
    }

    /// Returns what says more than how elements are stored.
    fn shown(&self) -> Object {
        let mut shown = Object::new();
        for (name, text) in &self.fields {
            let is_of_numbers = matches!(
                name.as_str(),
                "ElementSpacing"
                    | "ElementSize"
                    | "Offset"
                    | "Position"
                    | "Origin"
                    | "TransformMatrix"
                    | "Rotation"
                    | "Orientation"
                    | "CenterOfRotation"
            );
            let value = match lines::numbers::<f64>(text).filter(|_| is_of_numbers) {
                Some(numbers) => numbers.into_iter().map(double).collect(),
                None => Value::from(text.as_str()),
            };
            if !OF_STORAGE.contains(&name.as_str()) {
                shown.insert(name.clone(), value);
            }
        }
        shown
    }
}
