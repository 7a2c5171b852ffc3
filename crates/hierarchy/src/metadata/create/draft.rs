//! New metadata files in the draft of October 2020, as zarr-python 2.18, GDAL 3.6 and zarrita read
//! it.
//!
//! ```text
//! {"shape": [7, 10], "data_type": "<i4",
//!  "chunk_grid": {"type": "regular", "chunk_shape": [3, 4], "separator": "/"},
//!  "chunk_memory_layout": "C", "fill_value": 0, "extensions": [], "attributes": {},
//!  "compressor": {"codec": "https://purl.org/zarr/spec/codec/gzip/1.0", "configuration": {"level": 1}},
//!  "storage_transformers": [{"extension": ".../sharding/1.0", "type": "indexed",
//!                            "configuration": {"chunks_per_shard": [2, 2]}}]}
//! ```

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::splice::{New, put, put_attributes, put_fill};
use crate::metadata::codecs::{self, EncodedElements};
use crate::metadata::conventions::{DIMENSIONS, names_of};
use crate::metadata::draft::{FILTERS, FORMAT_OF_2019, are_filters};
use crate::metadata::era::Era;
use crate::metadata::model::{ArrayMetadata, KeyEncoding, Separator};
use crate::metadata::types::{Endian, numpy_type};
use crate::metadata::v3::NUMPY_DTYPE;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::DType;
use zarrfs_codec::json::Object;
use zarrfs_codec::json::Text;
use zarrfs_codec::table;

/// Members of released v3, and those of drafts that only the mount sets.
const DROPPED: [&str; 13] = [
    "zarr_format",
    "node_type",
    "chunk_key_encoding",
    "codecs",
    "dimension_names",
    "storage_transformers",
    "consolidated_metadata",
    "descenents_may_have_group_extensions",
    "extensions",
    "compressor",
    "chunk_codecs",
    "dimension_separator",
    NUMPY_DTYPE,
];

/// The extension that defines complex numbers.
const COMPLEX: &str = "https://zarr-specs.readthedocs.io/en/core-protocol-v3.0-dev/protocol/extensions/\
                       complex-dtypes/v1.0.html";

/// The extension that defines times.
const TIME: &str =
    "https://zarr-specs.readthedocs.io/en/latest/extensions/data-types/datetime/v1.0.html";

/// The storage transformer of 2022.
const SHARDING: &str = "https://purl.org/zarr/spec/storage_transformers/sharding/1.0";

/// Changes `text`, which a program wrote, to the stored metadata file of a group.
pub(super) fn group(era: Era, text: &mut Text, document: &Object) -> Result<()> {
    put_attributes(text, document)?;
    DROPPED.iter().try_for_each(|name| text.remove(&[name]))?;
    if era == Era::D2019_05 {
        text.set(&["zarr_format"], &json!(FORMAT_OF_2019))?;
    }
    if matches!(era, Era::D2019_05 | Era::D2019_06) {
        text.set(&["extensions"], &json!([]))?;
    }
    Ok(())
}

/// Changes `text`, which a program wrote, to the stored metadata file of an array, and returns the
/// array that it must describe.
pub(super) fn array(
    era: Era,
    text: &mut Text,
    document: &Object,
    array: ArrayMetadata,
    new: New,
) -> Result<ArrayMetadata> {
    if new.shards.is_some() && era != Era::D2020_10 {
        return Err(Error::invalid("the drafts before 2022 have no shards: use --shards none"));
    }
    let (rank, dtype) = (array.shape.len(), array.dtype.clone());
    if array.attributes.get(FILTERS).is_some_and(are_filters) {
        return Err(Error::invalid(
            "the attribute \"filters\" holds the codecs of arrays in the 2020 draft: give it another name",
        ));
    }
    let chain = DraftCodecs::new(new.chain, rank)?;
    let inner = codecs::canonical(
        chain.codecs(rank),
        &EncodedElements { rank, dtype: dtype.clone(), endian: chain.endian.clone() },
    )?;
    let fill = fill_value(&array)?;
    group(era, text, document)?;
    put(text, document, "shape", &json!(array.shape))?;
    text.set(&["data_type"], &data_type(era, &dtype, &chain.endian)?)?;
    let written = array.key_encoding;
    let key_encoding = match (era, written) {
        (Era::D2019_05 | Era::D2019_06, KeyEncoding::Default(Separator::Slash)) => {
            KeyEncoding::V2(Separator::Dot)
        }
        (Era::D2019_05 | Era::D2019_06, _) => KeyEncoding::V2(written.separator()),
        _ => KeyEncoding::Draft(written.separator()),
    };
    let separator = key_encoding.separator().as_str();
    let grid = json!({"type": "regular", "chunk_shape": new.chunk_shape, "separator": separator});
    text.set(&["chunk_grid"], &grid)?;
    let layout = if chain.reversed { "F" } else { "C" };
    text.set(&["chunk_memory_layout"], &json!(layout))?;
    put_fill(text, document, &dtype, &fill)?;
    text.set(&["extensions"], &json!([]))?;
    if era == Era::D2019_05 {
        let codecs: Vec<Value> = chain.compressor.iter().map(inline).collect();
        text.set(&["chunk_codecs"], &json!(codecs))?;
    } else if let Some((id, configuration)) = &chain.compressor {
        let codec = format!("https://purl.org/zarr/spec/codec/{id}/1.0");
        text.set(&["compressor"], &json!({"codec": codec, "configuration": configuration}))?;
    }
    let (chunk_shape, codecs) = match new.shards {
        Some(shards) => {
            let shards = shards.shape;
            let counts: Vec<u64> = shards
                .iter()
                .zip(&new.chunk_shape)
                .map(|(shard, chunk)| shard / (*chunk).max(1))
                .collect();
            let configuration = json!({"chunks_per_shard": counts});
            let sharding =
                json!({"extension": SHARDING, "type": "indexed", "configuration": configuration});
            text.set(&["storage_transformers"], &json!([sharding]))?;
            (shards, vec![codecs::sharded(&inner, &new.chunk_shape)])
        }
        None => (new.chunk_shape, inner),
    };
    let array = named(text, array)?;
    Ok(ArrayMetadata { chunk_shape, key_encoding, codecs, ..array })
}

/// Returns a codec in the form of May 2019, which has the parameters beside the name.
fn inline((id, configuration): &(String, Object)) -> Value {
    let name = json!(format!("http://purl.org/zarr/spec/codec/{id}"));
    let mut codec = Object::from_iter([("codec".to_owned(), name)]);
    codec.extend(configuration.clone());
    Value::Object(codec)
}

/// The codecs in the form of the draft.
struct DraftCodecs {
    /// Whether the first dimension is the fastest.
    reversed: bool,
    endian: Endian,
    /// Identifier and configuration.
    compressor: Option<(String, Object)>,
}

impl DraftCodecs {
    fn new(codecs: Vec<CodecSpec>, rank: usize) -> Result<Self> {
        let mut chain = Self { reversed: false, endian: Endian::Little, compressor: None };
        for codec in codecs {
            match codec.name.as_str() {
                "transpose" => {
                    let order = codec.configuration.get("order").unwrap_or(&Value::Null);
                    if *order != json!(codecs::reversed(rank)) || chain.reversed {
                        return Err(Error::invalid(format!(
                            "transpose {order} cannot be expressed in the 2020 draft, which \
                             reverses all dimensions \
                             (\"F\") or none: mount with other --codecs"
                        )));
                    }
                    chain.reversed = true;
                }
                "bytes" => {
                    let big = codec.configuration.get("endian").is_some_and(|found| found == "big");
                    chain.endian = if big { Endian::Big } else { Endian::Little };
                }
                _ => chain.compress(codec)?,
            }
        }
        Ok(chain)
    }

    fn compress(&mut self, codec: CodecSpec) -> Result<()> {
        let id = codec.name.strip_prefix("numcodecs.").unwrap_or(&codec.name).to_owned();
        if !table::find(&codec.name).is_some_and(|row| row.in_drafts) {
            return Err(Error::invalid(format!(
                "codec {:?} cannot be expressed in the 2020 draft: use one of {}",
                codec.name,
                table::ids(|row| row.in_drafts).join(", ")
            )));
        }
        if let Some((first, _)) = &self.compressor {
            return Err(Error::invalid(format!(
                "codecs {first} and {id} cannot be combined in the 2020 draft: use one of them"
            )));
        }
        let configuration = codecs::numcodecs_parameters(&id, codec.configuration);
        self.compressor = Some((id, configuration));
        Ok(())
    }

    /// Returns the codecs of released v3 without `bytes`.
    fn codecs(&self, rank: usize) -> Vec<CodecSpec> {
        let order = || Object::from_iter([("order".to_owned(), json!(codecs::reversed(rank)))]);
        let transpose = self.reversed.then(|| CodecSpec::new("transpose", order()));
        let compressor = self.compressor.as_ref().map(|(id, configuration)| {
            let name = codecs::draft_name(id).unwrap_or_else(|_| id.clone());
            CodecSpec::new(&name, configuration.clone())
        });
        transpose.into_iter().chain(compressor).collect()
    }
}

/// Returns the name of the type, with its byte order.
fn data_type(era: Era, dtype: &DType, endian: &Endian) -> Result<Value> {
    let numpy = numpy_type(dtype, endian);
    let extension = match dtype {
        DType::Bool | DType::Raw(_) => return Ok(json!(dtype.name())),
        DType::Int(1) => return Ok(json!("i1")),
        DType::Uint(1) => return Ok(json!("u1")),
        DType::Int(_) | DType::Uint(_) | DType::Float(_) => return Ok(numpy),
        DType::Complex(8 | 16) if matches!(era, Era::D2019_05 | Era::D2019_06) => {
            return Ok(numpy);
        }
        DType::Complex(8 | 16) => COMPLEX,
        DType::Time(_) => TIME,
        // zarr-python 2 has no other name for it. It writes this one and cannot read any.
        DType::Bytes(_) => "TODO: bytestring array protocol URL",
        DType::Utf32(_) => "TODO: unicode array protocol URL",
        DType::Struct(_) => "TODO: structured array protocol URL",
        DType::Complex(_)
        | DType::Narrow(_)
        | DType::ComplexNarrow(_)
        | DType::String
        | DType::VariableBytes => {
            return Err(Error::invalid(format!(
                "data type {} cannot be written in the 2020 draft: use another, or another \
                 --format",
                dtype.name()
            )));
        }
    };
    Ok(json!({"extension": extension, "type": numpy, "fallback": null}))
}

/// Returns the fill value in a form that readers of the draft accept: floats have no bit patterns.
fn fill_value(array: &ArrayMetadata) -> Result<Value> {
    let fill = array.fill.to_json(&array.dtype);
    if let (DType::Time(_), Value::String(_)) = (&array.dtype, &fill) {
        return Ok(json!(i64::MIN));
    }
    if let DType::Raw(_) = array.dtype {
        let mut digits = "0x".to_owned();
        for byte in array.fill.item(&array.dtype).iter() {
            write!(digits, "{byte:02x}").map_err(|_| Error::new(Kind::Internal, "no text"))?;
        }
        return Ok(json!(digits));
    }
    let parts = fill.as_array().map_or(std::slice::from_ref(&fill), Vec::as_slice);
    let bits = parts.iter().find_map(|part| part.as_str().filter(|text| text.starts_with("0x")));
    match bits {
        Some(bits) => Err(Error::invalid(format!(
            "fill_value {bits} is a NaN with a payload, which readers of the 2020 draft do not \
             accept: use \"NaN\""
        ))),
        None => Ok(fill),
    }
}

/// Puts the names of dimensions into the attribute of xarray and GDAL, and returns the resulting
/// array. They become a member if some dimensions have no name, or if the attribute has other
/// contents.
fn named(text: &mut Text, mut array: ArrayMetadata) -> Result<ArrayMetadata> {
    let names = std::mem::take(&mut array.dimension_names);
    let attribute = array.attributes.get(DIMENSIONS);
    let found = attribute.and_then(|value| names_of(value, array.shape.len()));
    let all: Option<Vec<&str>> = names.iter().map(Option::as_deref).collect();
    let none = names.iter().all(Option::is_none);
    match (all, found) {
        (_, found) if none || found.as_ref() == Some(&names) => {
            if let Some(found) = found {
                array.attributes.shift_remove(DIMENSIONS);
                array.dimension_names = found;
            }
        }
        (Some(all), None) if attribute.is_none() => {
            text.set(&["attributes", DIMENSIONS], &json!(all))?;
            array.dimension_names = names;
        }
        (_, _) => {
            text.set(&["dimension_names"], &json!(names))?;
            array.dimension_names = names;
        }
    }
    Ok(array)
}
