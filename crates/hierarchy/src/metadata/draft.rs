//! The drafts of May 2019 to December 2022, with metadata files and chunks in separate trees
//! (`meta`, `data`), and with the sharding storage transformer of 2022.
//!
//! [`Era`] knows where metadata files and chunks lie. This module accepts any form of everything
//! else, because the drafts overlap: type names of 2020 and of 2022, a list of codecs or one
//! compressor, layout or transpose.
//!
//! Every array of a draft can be expressed in released v3 with the same chunk files: the byte order
//! becomes the `bytes` codec, layout F a transpose, the compressor a codec, and a storage
//! transformer `sharding_indexed` with a plain index at the end.
//!
//! zarr-python 2 stores NumPy filters in `attributes.filters`, since the draft has no place for
//! them. A reader that ignores them misreads the chunks.

use serde_json::{Value, json};

use super::codecs::{self, EncodedElements};
use super::era::{Draft, Era};
use super::members::{
    attributes, check_extensions, check_size, dimension_names, lengths, required, separator,
};
use super::model::{ArrayMetadata, Group, KeyEncoding, Lowered, NodeKind, NodeMetadata, Separator};
use super::types::{Endian, data_type};
use super::{conventions, v2, v3};
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, FillValue, integer};
use zarrfs_codec::json::Object;
use zarrfs_codec::json::{self, describe};
use zarrfs_codec::table::{self, CodecKind};

/// The attribute in which zarr-python 2 keeps filters.
pub(super) const FILTERS: &str = "filters";

/// Lowers a metadata file of a node of `kind`.
pub(super) fn lower(era: Era, kind: NodeKind, text: &[u8]) -> Lowered {
    let node = json::parse_object(text).and_then(|document| match kind {
        NodeKind::Array => array(era, &document).map(|array| NodeMetadata::Array(Box::new(array))),
        NodeKind::Group => group(&document).map(NodeMetadata::Group),
    });
    Lowered { kind, node }
}

fn group(document: &Object) -> Result<Group> {
    check_extensions(document)?;
    // Not a member of the draft: it records a request that a program made in a mount.
    Ok(Group { attributes: attributes(document)?, consolidated: v3::is_consolidated(document) })
}

fn array(era: Era, document: &Object) -> Result<ArrayMetadata> {
    check_extensions(document)?;
    let shape = lengths(required(document, "shape")?, "shape")?;
    let mut attributes = attributes(document)?;
    let filters = take_filters(&mut attributes);
    let written = required(document, "data_type")?;
    // zarr-python 2 writes objects as an extension, with the filter that encodes them.
    let object = written.get("type").map(|written| object_type(written, &filters));
    let object = object.transpose()?.flatten();
    let (dtype, endian) = match &object {
        Some(dtype) => (dtype.clone(), None),
        None => data_type(written)?,
    };
    let grid = required(document, "chunk_grid")?;
    let inner_shape = v3::chunk_shape(grid, &shape)?;
    check_size(&shape, &dtype, "the array")?;
    let elements = EncodedElements {
        rank: shape.len(),
        dtype: dtype.clone(),
        endian: endian.unwrap_or(Endian::Little),
    };
    let inner = chain(document, filters, &elements)?;
    let (codecs, chunk_shape) = sharded(document, inner, inner_shape)?;
    check_size(&chunk_shape, &dtype, "a chunk")?;
    Ok(ArrayMetadata {
        fill: match (&object, &dtype) {
            // Only zarr-python 2 writes these, with fill values as in Zarr 2.
            (Some(_), _) | (None, DType::Bytes(_)) => {
                v2::fill_value(document, &dtype, &Endian::Little)?
            }
            (None, _) => {
                FillValue::parse(document.get("fill_value").unwrap_or(&Value::Null), &dtype)?
            }
        },
        dtype,
        chunk_shape,
        rectilinear: None,
        key_encoding: key_encoding(era, document, grid)?,
        codecs,
        dimension_names: take_names(document, &mut attributes, shape.len())?,
        attributes,
        shape,
    })
}

/// Returns the type of objects that one of these filters encodes; `None` for another type.
fn object_type(written: &Value, filters: &[Object]) -> Result<Option<DType>> {
    let named = |filter: &Object| {
        let id = filter.get("id").and_then(Value::as_str).unwrap_or_default();
        Ok(CodecSpec::new(&codecs::draft_name(id)?, Object::new()))
    };
    let filters = filters.iter().map(named).collect::<Result<Vec<CodecSpec>>>()?;
    Ok(v2::object_type(written, &filters))
}

/// Returns the form of chunk keys. Until September 2020 it was that of Zarr 2; later keys begin
/// with `c`. zarr-python 2 repeats the separator in another member.
fn key_encoding(era: Era, document: &Object, grid: &Value) -> Result<KeyEncoding> {
    let in_grid = grid.get("separator").or_else(|| grid.get("configuration")?.get("separator"));
    let found = in_grid.or_else(|| document.get("dimension_separator"));
    let found = found.filter(|value| !value.is_null()).map(separator).transpose()?;
    Ok(match era {
        Era::D2019_05 | Era::D2019_06 => KeyEncoding::V2(found.unwrap_or(Separator::Dot)),
        Era::D2020_09 | Era::D2020_10 | Era::D2022_11 | Era::D2022_12 => {
            KeyEncoding::Draft(found.unwrap_or(Separator::Slash))
        }
    })
}

/// Whether `attributes.filters` has the form of zarr-python 2.
pub(super) fn are_filters(value: &Value) -> bool {
    let is_filter = |filter: &Value| filter.get("id").is_some_and(Value::is_string);
    value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_filter))
}

fn take_filters(attributes: &mut Object) -> Vec<Object> {
    if !attributes.get(FILTERS).is_some_and(are_filters) {
        return Vec::new();
    }
    match attributes.shift_remove(FILTERS) {
        Some(Value::Array(list)) => {
            list.iter().filter_map(|filter| filter.as_object().cloned()).collect()
        }
        Some(_) | None => Vec::new(),
    }
}

/// Returns the names of dimensions: a member since January 2023, before that an attribute by
/// convention.
fn take_names(
    document: &Object,
    attributes: &mut Object,
    rank: usize,
) -> Result<Vec<Option<String>>> {
    if let Some(names) = document.get("dimension_names") {
        return dimension_names(names, rank);
    }
    Ok(conventions::take_names(attributes, rank))
}

/// Returns the codecs of an inner chunk, in the order of encoding: layout, filters, byte order,
/// compressor.
fn chain(
    document: &Object,
    filters: Vec<Object>,
    elements: &EncodedElements,
) -> Result<Vec<CodecSpec>> {
    let mut chain = Vec::new();
    let layout = document.get("chunk_memory_layout").filter(|layout| !layout.is_null());
    match layout.map(|layout| (layout, layout.as_str())) {
        None | Some((_, Some("C"))) => {}
        Some((_, Some("F"))) if elements.rank < 2 => {}
        Some((_, Some("F"))) => {
            let order = json!(codecs::reversed(elements.rank));
            chain.push(CodecSpec::new(
                "transpose",
                Object::from_iter([("order".to_owned(), order)]),
            ));
        }
        Some((other, _)) => {
            let name = other.get("type").unwrap_or(other);
            return Err(Error::unsupported(format!(
                "chunk memory layout {} is not known",
                describe(name)
            )));
        }
    }
    // November 2022 has a list of codecs instead of the compressor.
    let listed = document.get("codecs").filter(|codecs| !codecs.is_null());
    // May 2019 also has a list; each codec has its parameters beside its name.
    let inline = document.get("chunk_codecs").filter(|codecs| !codecs.is_null());
    let compressor = document.get("compressor").filter(|compressor| !compressor.is_null());
    let compressors = match (listed.or(inline), compressor) {
        (Some(listed), _) => codecs::list(Some(listed))?,
        (None, Some(compressor)) => vec![CodecSpec::from_json(compressor)?],
        (None, None) => Vec::new(),
    };
    push_filters(&mut chain, filters)?;
    for codec in compressors {
        let name = codecs::draft_name(&codec.name)?;
        chain.push(codec.renamed(name));
    }
    codecs::canonical(chain, elements)
}

/// Appends filters, which encode elements in the order of the layout. A filter that works on bytes
/// comes after the byte order.
fn push_filters(chain: &mut Vec<CodecSpec>, filters: Vec<Object>) -> Result<()> {
    let mut bytes_seen = false;
    for mut filter in filters {
        let id = filter.shift_remove("id");
        let id = id.as_ref().and_then(Value::as_str).unwrap_or_default();
        let codec = CodecSpec::new(id, filter).renamed(codecs::draft_name(id)?);
        match table::kind(&codec.name) {
            CodecKind::ArrayToArray if bytes_seen => {
                return Err(Error::unsupported(format!(
                    "filter {id:?} comes after a filter that works on bytes"
                )));
            }
            CodecKind::ArrayToArray => {}
            CodecKind::ArrayToBytes | CodecKind::BytesToBytes => bytes_seen = true,
        }
        chain.push(codec);
    }
    Ok(())
}

/// Wraps the codecs of inner chunks into the storage transformers, the first one innermost.
fn sharded(
    document: &Object,
    mut chain: Vec<CodecSpec>,
    mut chunk_shape: Vec<u64>,
) -> Result<(Vec<CodecSpec>, Vec<u64>)> {
    let transformers = match document.get("storage_transformers") {
        None | Some(Value::Null) => return Ok((chain, chunk_shape)),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(Error::unsupported(format!("storage transformer {}", describe(other))));
        }
    };
    codecs::check_nesting(transformers.len())?;
    for transformer in transformers {
        let counts = chunks_per_shard(transformer, chunk_shape.len())?;
        chain = vec![codecs::sharded(&chain, &chunk_shape)];
        chunk_shape = chunk_shape
            .iter()
            .zip(counts)
            .map(|(len, count)| len.checked_mul(count))
            .collect::<Option<_>>()
            .ok_or_else(|| Error::unsupported("a shard has more than 2^64 elements"))?;
    }
    Ok((chain, chunk_shape))
}

/// Returns the number of inner chunks of a shard along each dimension, from any spelling of the
/// transformer (sharding storage transformer, drafts of February 2022 to February 2023).
fn chunks_per_shard(transformer: &Value, rank: usize) -> Result<Vec<u64>> {
    let configuration = transformer.get("configuration").unwrap_or(&Value::Null);
    let members = ["extension", "storage_transformer", "name"];
    let name = members.iter().find_map(|member| transformer.get(member)?.as_str());
    let format = ["type", "format"]
        .iter()
        .find_map(|member| transformer.get(member).or_else(|| configuration.get(member)));
    let known = name.is_some_and(|name| name.contains("sharding"))
        && format.is_none_or(|format| format == "indexed");
    if !known {
        let name = name.map_or_else(|| describe(transformer), |name| format!("{name:?}"));
        let format = format.map(|format| format!(" of type {}", describe(format)));
        return Err(Error::unsupported(format!(
            "storage transformer {name}{} is not known",
            format.unwrap_or_default()
        )));
    }
    let found =
        configuration.get("chunks_per_shard").or_else(|| transformer.get("chunks_per_shard"));
    let found = found.ok_or_else(|| Error::corrupt("chunks_per_shard is missing"))?;
    let mut counts = match found.as_number().and_then(|number| integer(number.as_str())) {
        Some(count) => vec![u64::try_from(count).unwrap_or(0)],
        None => lengths(found, "chunks_per_shard")?,
    };
    // zarr-python 2 writes [1] for an array without dimensions, and pads lists that are too short.
    if rank == 0 && counts == [1] {
        counts.clear();
    }
    if counts.contains(&0) || counts.len() > rank {
        return Err(Error::corrupt(format!(
            "chunks_per_shard {} do not fit {rank} dimensions",
            describe(found)
        )));
    }
    counts.resize(rank, 1);
    Ok(counts)
}

/// Returns the entry point of an empty hierarchy, in a form that zarr-python 2, GDAL and zarrita
/// read. The draft of May 2019 has none.
pub(super) fn entry_point(draft: &Draft) -> Option<String> {
    let core = "https://purl.org/zarr/spec/protocol/core/3.0";
    let document = match draft.era {
        Era::D2019_05 => return None,
        Era::D2019_06 => json!({
            "zarr_format": core,
            "metadata_encoding": "application/json",
            "extensions": [],
        }),
        Era::D2020_09 => json!({
            "zarr_format": core,
            "metadata_encoding": core,
            "extensions": [],
        }),
        Era::D2020_10 | Era::D2022_11 => json!({
            "zarr_format": core,
            "metadata_encoding": core,
            "metadata_key_suffix": draft.suffix,
            "extensions": [],
        }),
        Era::D2022_12 => json!({
            "zarr_format": "https://purl.org/zarr/spec/core/3.0",
            "metadata_encoding": {"type": "json", "metadata_key_suffix": draft.suffix},
            "extensions": [],
        }),
    };
    Some(format!("{document:#}\n"))
}

/// The `zarr_format` of every metadata file in the draft of May 2019.
pub(super) const FORMAT_OF_2019: &str = "http://purl.org/zarr/spec/protocol/core/3.0";

/// Returns the metadata file of a group without attributes.
pub(super) fn group_document(era: Era) -> String {
    let document = match era {
        Era::D2019_05 => {
            json!({"zarr_format": FORMAT_OF_2019, "extensions": [], "attributes": {}})
        }
        Era::D2019_06 => json!({"extensions": [], "attributes": {}}),
        _ => json!({"attributes": {}}),
    };
    format!("{document:#}\n")
}
