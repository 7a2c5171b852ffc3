//! The metadata files that a mount shows to programs that only know Zarr 2, and the way back.
//!
//! As in [`super::shown`], they describe the chunk files beside them. If these are decoded, there
//! is no compressor and no filter, and elements are little endian in C order. Names are like `0.0`.
//! Written metadata files are first translated to equivalent ones of Zarr 3, so that there is only
//! one way from there into the store.
//!
//! An array without dimensions shows `_ARRAY_DIMENSIONS: []`, since xarray opens no group with an
//! array that lacks it; an array of Zarr 2 that lacks it is shown as it is. An array without named
//! dimensions shows its own fill value, not null: xarray does not look at it, and other programs
//! need it.

use serde_json::{Value, json};

use super::codecs::{self, EncodedElements, plain};
use super::conventions::{self, DIMENSIONS, FILL};
use super::create::v2_chain;
use super::joined::join;
use super::model::{ArrayMetadata, Group, KeyEncoding, NodeKind, NodeMetadata, Separator};
use super::ome::{self, OME};
use super::shown::{CopyTexts, ShownChunks, print};
use super::types::{Endian, numpy_type};
use super::v2::fill_to_json;
use super::{shown, v2};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, FillValue};
use zarrfs_codec::json::{self, Object};

/// The metadata files of a node in Zarr 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documents {
    /// `.zarray` or `.zgroup`.
    pub document: String,
    /// `.zattrs`.
    pub attributes: String,
    /// The elements that programs take a missing chunk for, if chunks that are not stored must be
    /// shown: the fill value of the metadata file is null, or another than that of the array.
    pub missing: Option<Vec<u8>>,
}

/// Returns the metadata files of a group.
pub fn group(group: &Group) -> Documents {
    Documents {
        document: v2::group_document(),
        attributes: print(&Value::Object(unversioned(group.attributes.clone()))),
        missing: None,
    }
}

/// Properties of an array that its model lacks.
#[derive(Debug, Clone, Copy)]
pub struct ArrayExtras {
    /// Whether the fill value was created as null.
    pub is_null: bool,
    /// Whether the attributes state that no dimension has a name.
    pub names_none: bool,
}

/// Returns the metadata files of an array with these chunk files.
pub fn array(
    array: &ArrayMetadata,
    chunks: &ShownChunks,
    extras: ArrayExtras,
) -> Result<Documents> {
    if chunks.rectilinear(array).is_some() {
        return Err(Error::unsupported("a rectilinear chunk grid cannot be expressed in Zarr 2"));
    }
    let dtype = in_numpy(&array.dtype);
    let (mut fill, attributes) = masked(array, extras.names_none);
    if extras.is_null && fill.item(&array.dtype).iter().all(|byte| *byte == 0) {
        fill = FillValue::UNDEFINED;
    }
    let is_other = fill != array.fill || !fill.is_defined();
    let missing = is_other.then(|| fill.item(&array.dtype).into_owned());
    let value = match fill_to_json(&fill, &array.dtype, &Endian::Little) {
        // zarr-python 2 would take "" for a string, and cannot store a chunk that contains one.
        Ok(_) if dtype == DType::VariableBytes && fill.item(&dtype).is_empty() => Value::Null,
        Ok(_) if dtype != array.dtype => {
            let fill = FillValue::from_item(&fill.item(&array.dtype));
            fill_to_json(&fill, &dtype, &Endian::Little)?
        }
        Ok(value) => value,
        // A NaN with a payload, which Zarr 2 cannot express.
        Err(_) => json!("NaN"),
    };
    let Storage { endian, order, filters, compressor } = Storage::of(array, &dtype, chunks)?;
    let separator = match chunks.keys {
        KeyEncoding::V2(separator) => separator,
        _ => Separator::Dot,
    };
    let document = json!({
        "zarr_format": 2,
        "shape": array.shape,
        "chunks": chunks.chunk_shape,
        "dtype": numpy_type(&dtype, &endian),
        "compressor": compressor,
        "fill_value": value,
        "order": order,
        "filters": filters,
        "dimension_separator": separator.as_str(),
    });
    Ok(Documents {
        document: print(&document),
        attributes: print(&Value::Object(attributes)),
        missing,
    })
}

/// The members of `.zarray` that say how chunk files are encoded.
struct Storage {
    endian: Endian,
    order: &'static str,
    filters: Value,
    compressor: Value,
}

impl Storage {
    fn of(array: &ArrayMetadata, dtype: &DType, chunks: &ShownChunks) -> Result<Self> {
        let (rank, own) = (array.shape.len(), array.dtype.clone());
        if codecs::is_plain(&chunks.codecs, &own) {
            let filters = dtype.is_variable().then(|| json!([{"id": plain(dtype).name}]));
            let (endian, filters) = (Endian::Little, filters.unwrap_or_default());
            return Ok(Self { endian, order: "C", filters, compressor: Value::Null });
        }
        let elements = EncodedElements { rank, dtype: own, endian: Endian::Little };
        let list = codecs::canonical(codecs::named(chunks.codecs.clone()), &elements)?;
        let chain = v2_chain(list, rank)?;
        let filters: Vec<Value> = chain.filters.into_iter().map(|(_, value)| value).collect();
        Ok(Self {
            endian: chain.endian,
            order: if chain.reversed { "F" } else { "C" },
            filters: if filters.is_empty() { Value::Null } else { Value::Array(filters) },
            compressor: chain.compressor.map_or(Value::Null, |(_, value)| value),
        })
    }
}

/// Returns NumPy's type. A number that NumPy lacks becomes its bytes.
fn in_numpy(dtype: &DType) -> DType {
    match dtype {
        DType::Narrow(_) | DType::ComplexNarrow(_) | DType::Complex(4) => {
            DType::Raw(u32::try_from(dtype.item_len()).unwrap_or(u32::MAX))
        }
        other => other.clone(),
    }
}

/// Returns the fill value and the attributes as xarray writes them in Zarr 2.
fn masked(array: &ArrayMetadata, names_none: bool) -> (FillValue, Object) {
    let mut attributes = array.attributes.clone();
    let names: Option<Vec<&str>> = array.dimension_names.iter().map(Option::as_deref).collect();
    let is_named = !array.dimension_names.is_empty() || (array.shape.is_empty() && names_none);
    let Some(names) = names.filter(|_| is_named) else {
        return (array.fill.clone(), attributes);
    };
    let masked = attributes.get(FILL);
    let masked = masked.and_then(|value| conventions::decoded_fill(value, &array.dtype));
    if masked.is_some() {
        attributes.shift_remove(FILL);
    }
    attributes.insert(DIMENSIONS.to_owned(), json!(names));
    (masked.unwrap_or(FillValue::UNDEFINED), attributes)
}

/// Converts the attributes of a group to OME-Zarr 0.4.
fn unversioned(mut attributes: Object) -> Object {
    let newer = attributes.get(OME).and_then(Value::as_object).and_then(ome::to_0_5);
    let newer = newer.map(Value::Object);
    let Some(members) = newer.as_ref().or(attributes.get(OME)).and_then(ome::ome_to_v2) else {
        return attributes;
    };
    if members.keys().any(|name| attributes.contains_key(name)) {
        return attributes;
    }
    attributes.shift_remove(OME);
    attributes.extend(members);
    attributes
}

/// Returns the metadata file of Zarr 3 that is equivalent to two of Zarr 2, which a program wrote
/// or the mount showed.
pub fn to_v3(kind: NodeKind, document: &str, attributes: Option<&str>) -> Result<String> {
    let invalid = |error: Error| error.of_kind(Kind::Invalid);
    let joined = join(document, attributes).map_err(invalid)?;
    match v2::lower(kind, joined.as_bytes()).node.map_err(invalid)? {
        NodeMetadata::Group(group) => Ok(shown::group(&group, None)),
        NodeMetadata::Array(array) => {
            // Zarr 2 has `.` unless a program asks for `/`, so that is left to the store.
            let keys = match array.key_encoding {
                keys @ KeyEncoding::V2(Separator::Slash) => keys,
                _ => KeyEncoding::default(),
            };
            let files = ShownChunks { keys, ..ShownChunks::decoded(&array, &array.chunk_shape) };
            let text = shown::array(&array, &files);
            let mut text = json::Text::parse(text.as_bytes())?;
            if array.codecs != [plain(&array.dtype)] {
                let codecs: Value = array.codecs.iter().map(CodecSpec::to_json).collect();
                text.set(&["codecs"], &codecs)?;
            }
            let names_none = attributes.is_some_and(|attributes| attributes.contains(DIMENSIONS));
            if array.shape.is_empty() {
                let names = if names_none { json!([]) } else { Value::Null };
                text.set(&["dimension_names"], &names)?;
            }
            if !array.fill.is_defined() {
                text.set(&["fill_value"], &Value::Null)?;
            }
            Ok(text.into_string())
        }
    }
}

/// Returns the stored attributes of a Zarr 2 node as strict JSON. `joined` is its metadata file
/// with the attributes in it.
pub fn stored_attributes(joined: &[u8]) -> Option<String> {
    let document = json::parse_object(joined).ok()?;
    let attributes = document.get("attributes").cloned().unwrap_or_else(|| json!({}));
    attributes.is_object().then(|| print(&attributes))
}

/// Returns the stored metadata file of a Zarr 2 node as strict JSON, without its attributes.
pub fn stored_document(joined: &[u8]) -> Option<String> {
    let mut document = json::parse_object(joined).ok()?;
    document.shift_remove("attributes");
    Some(print(&Value::Object(document)))
}

/// Returns the attributes of an array, also of one that has no `.zarray`.
pub fn attributes(array: &ArrayMetadata, extras: ArrayExtras) -> String {
    print(&Value::Object(masked(array, extras.names_none).1))
}

/// Returns the kind of the node for a metadata file called `name`, `None` if Zarr 2 has no such
/// file.
pub fn kind_of(name: &str) -> Option<NodeKind> {
    match name {
        v2::ZARRAY => Some(NodeKind::Array),
        v2::ZGROUP => Some(NodeKind::Group),
        _ => None,
    }
}

/// Returns consolidated metadata as zarr-python 2 writes them, each copy with its path from the
/// root.
pub fn consolidated(copies: &CopyTexts) -> String {
    let metadata = copies.object();
    format!("{{\n  \"zarr_consolidated_format\": 1,\n  \"metadata\": {metadata}\n}}\n")
}

/// Returns an empty list of copies.
pub fn no_copies() -> CopyTexts {
    CopyTexts::new(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::dialect::Dialect;

    const EXTRAS: ArrayExtras = ArrayExtras { is_null: false, names_none: true };

    fn lowered(text: &str) -> ArrayMetadata {
        match Dialect::V3.lower(None, text.as_bytes()).node.expect("understood") {
            NodeMetadata::Array(array) => *array,
            NodeMetadata::Group(_) => panic!("a group"),
        }
    }

    fn decoded(array: &ArrayMetadata) -> ShownChunks {
        ShownChunks::decoded(array, &array.chunk_shape)
    }

    fn v3(more: &Value) -> ArrayMetadata {
        let mut document = json!({
            "zarr_format": 3, "node_type": "array", "shape": [4, 6], "data_type": "int16",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 7, "codecs": [{"name": "bytes"}],
        });
        for (name, value) in more.as_object().expect("an object") {
            document[name] = value.clone();
        }
        lowered(&document.to_string())
    }

    #[test]
    fn zarr_2_metadata_mean_the_same_in_zarr_3() {
        for more in [
            json!({}),
            json!({"attributes": {"a": [1, null]}}),
            json!({"data_type": "float32", "fill_value": "NaN"}),
            json!({"data_type": "string", "fill_value": "x", "codecs": [{"name": "vlen-utf8"}]}),
            json!({"dimension_names": ["y", "x"], "attributes": {"_FillValue": 7}}),
            json!({"shape": [], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": []}},
                   "attributes": {"_FillValue": 7}}),
        ] {
            let model = v3(&more);
            let documents = array(&model, &decoded(&model), EXTRAS).expect("shown");
            assert_eq!(documents.missing, None, "{more}");
            let again = to_v3(NodeKind::Array, &documents.document, Some(&documents.attributes));
            let again = lowered(&again.expect("understood"));
            let expected = ArrayMetadata {
                codecs: vec![plain(&model.dtype)],
                key_encoding: KeyEncoding::Default(Separator::Slash),
                ..model
            };
            assert_eq!(again, expected, "{more}");
        }
    }

    #[test]
    fn an_array_with_named_dimensions_shows_the_masked_value() {
        let names = json!(["y", "x"]);
        let model = v3(&json!({"dimension_names": names}));
        let documents = array(&model, &decoded(&model), EXTRAS).expect("shown");
        assert_eq!(documents.missing, Some(vec![0; 2]));
        assert!(documents.document.contains("\"fill_value\": null"));
        assert!(documents.attributes.contains("_ARRAY_DIMENSIONS"));
        let other = json!({"dimension_names": names, "attributes": {"_FillValue": -1}});
        let other = v3(&other);
        let documents = array(&other, &decoded(&other), EXTRAS).expect("shown");
        assert_eq!(documents.missing, Some(vec![0xff; 2]));
        assert!(documents.document.contains("\"fill_value\": -1"));
        assert!(!documents.attributes.contains("_FillValue"));
    }

    #[test]
    fn codecs_in_written_zarr_2_metadata_are_kept() {
        let zarray = json!({
            "zarr_format": 2, "shape": [4], "chunks": [2], "dtype": ">i4", "order": "C", "filters": null,
            "fill_value": 0, "compressor": {"id": "zlib", "level": 1},
        });
        let text = to_v3(NodeKind::Array, &zarray.to_string(), None).expect("understood");
        let names: Vec<String> =
            lowered(&text).codecs.into_iter().map(|codec| codec.name).collect();
        assert_eq!(names, ["bytes", "numcodecs.zlib"]);
        assert!(text.contains("\"big\""), "{text}");
    }
}
