//! The metadata files that the mount shows: strict Zarr 3.0, matching the chunk files beside them.
//!
//! If chunks are shown decoded, there is one codec, `bytes`, and the chunk shape is that of the
//! smallest unit that can be read separately. If they are shown encoded, codecs and chunk shape are
//! those of the array's maker. Numbers keep their stored spelling.
//!
//! Raw bytes are shown as `raw_bytes` with base64, not as `r24`: neither zarr-python nor
//! `TensorStore` reads that name. Structures are shown as `struct`, the name of the registry, which
//! forbids the older `structured` in new arrays. An array that is stored as `structured` is shown
//! so: zarr-python 3.1, which wrote it, reads no other name.

use serde_json::{Value, json};

use super::codecs::{self, plain};
use super::model::{ArrayMetadata, Group, KeyEncoding, Levels, NodeKind, Runs};
use super::{policy, rectilinear, v3};
use zarrfs_base::error::Result;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, OLD_STRUCT};
use zarrfs_codec::json::{self, Object, Text, parse};

/// The most bytes of copies to indent. Each further copy is on one line.
const MAX_INDENTED_LEN: usize = 4 << 20;

/// Longer metadata files are always shown as the mount prints them: parsing them to compare takes
/// too much memory.
const MAX_COMPARED_LEN: usize = 256 << 10;

/// Whether a stored metadata file is strict JSON equivalent to `shown`. If so, the mount shows it
/// byte for byte, and a copy has the same checksum.
pub fn is_equivalent(stored: &str, shown: &str) -> bool {
    let parsed = |text: &str| {
        let mut document: Object = serde_json::from_str(text).ok()?;
        // No configuration means the same as an empty one.
        if let Some(Value::Array(listed)) = document.get_mut("codecs") {
            *listed = listed.drain(..).map(without_empty).collect();
        }
        // Omitting it means the same as an empty list (Zarr 3.0, section "Array metadata").
        if document.get("storage_transformers") == Some(&json!([])) {
            document.remove("storage_transformers");
        }
        Some(document)
    };
    stored.len() <= MAX_COMPARED_LEN
        && parsed(stored).is_some_and(|stored| parsed(shown) == Some(stored))
}

/// Removes an empty configuration from a codec, and from those in it.
fn without_empty(mut codec: Value) -> Value {
    for name in ["codecs", "index_codecs"] {
        if let Some(Value::Array(inner)) = codec.pointer_mut(&format!("/configuration/{name}")) {
            *inner = inner.drain(..).map(without_empty).collect();
        }
    }
    if codec.get("configuration").and_then(Value::as_object).is_some_and(Object::is_empty)
        && let Value::Object(members) = &mut codec
    {
        members.remove("configuration");
    }
    codec
}

/// The chunk files that a metadata file describes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShownChunks {
    /// The shape of a chunk. On a rectilinear grid it does not count.
    pub chunk_shape: Vec<u64>,
    /// The codecs that encode a file, as the metadata file spells them.
    pub codecs: Vec<CodecSpec>,
    /// The form of their names: `default` or `v2` of Zarr 3.
    pub keys: KeyEncoding,
}

impl ShownChunks {
    /// Returns chunk files with decoded chunks of a shape.
    pub fn decoded(array: &ArrayMetadata, chunk_shape: &[u64]) -> Self {
        let keys = KeyEncoding::default();
        Self { chunk_shape: chunk_shape.to_vec(), codecs: vec![plain(&array.dtype)], keys }
    }

    /// Returns chunk files with the encoded chunks of an array.
    pub fn encoded(array: &ArrayMetadata) -> Self {
        let codecs = array.codecs.iter().cloned().map(policy::completed).collect();
        let keys = KeyEncoding::default();
        Self { chunk_shape: array.chunk_shape.clone(), codecs, keys }
    }

    /// Returns the lengths of these chunks of `array` along each dimension if their grid is
    /// rectilinear. If the array's grid is, it is that of the shards of a sharded array, and the
    /// decoded chunks in these all have the same shape.
    pub(super) fn rectilinear<'a>(&self, array: &'a ArrayMetadata) -> Option<&'a [Runs]> {
        let runs = array.rectilinear.as_deref()?;
        let has_shards =
            |codecs: &[CodecSpec]| codecs.iter().any(|codec| codec.name == "sharding_indexed");
        let are_stored =
            has_shards(&codecs::named(self.codecs.clone())) == has_shards(&array.codecs);
        are_stored.then_some(runs)
    }
}

/// Returns a grid of chunks of this shape, or with these lengths, in the form of a metadata file.
pub(super) fn grid_to_json(chunk_shape: &[u64], rectilinear: Option<&[Runs]>) -> Value {
    let regular = || json!({"name": "regular", "configuration": {"chunk_shape": chunk_shape}});
    rectilinear.map_or_else(regular, rectilinear::to_json)
}

/// Chunk files that hold encoded chunks, as the maker of the array encodes them.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedChunks {
    /// The levels of sharding that the mount added around them.
    pub levels: Levels,
    /// Their shape and codecs.
    pub shown: ShownChunks,
    /// How the array of these chunks is stored.
    stored: Storage,
}

/// How the chunks of an array are stored.
#[derive(Debug, Clone, PartialEq)]
struct Storage {
    chunk_shape: Vec<u64>,
    rectilinear: Option<Vec<Runs>>,
    codecs: Vec<CodecSpec>,
}

impl EncodedChunks {
    /// Returns the chunk files of an array.
    pub fn of(array: &ArrayMetadata, levels: Levels, shown: ShownChunks) -> Self {
        let stored = Storage {
            chunk_shape: array.chunk_shape.clone(),
            rectilinear: array.rectilinear.clone(),
            codecs: array.codecs.clone(),
        };
        Self { levels, shown, stored }
    }

    /// Whether an array has such chunk files. Another program may have replaced the array whose
    /// files these are.
    pub fn are_of(&self, array: &ArrayMetadata) -> bool {
        let Storage { chunk_shape, rectilinear, codecs } = &self.stored;
        *chunk_shape == array.chunk_shape
            && *rectilinear == array.rectilinear
            && *codecs == array.codecs
    }
}

/// Returns the metadata file of an array with these chunk files.
pub fn array(array: &ArrayMetadata, files: &ShownChunks) -> String {
    let mut document = Object::new();
    let mut member = |name: &str, value: Value| document.insert(name.to_owned(), value);
    member("zarr_format", json!(3));
    member("node_type", json!("array"));
    member("shape", json!(array.shape));
    member("data_type", array.dtype.to_json());
    if let Some(numpy) = v3::numpy_dtype(&array.dtype) {
        member(v3::NUMPY_DTYPE, numpy);
    }
    member("chunk_grid", grid_to_json(&files.chunk_shape, files.rectilinear(array)));
    member("chunk_key_encoding", v3::key_encoding_to_json(files.keys));
    member("fill_value", array.fill.to_json(&array.dtype));
    let codecs = files.codecs.iter().map(|codec| codecs::configured(codec.to_json()));
    member("codecs", codecs.collect());
    member("attributes", Value::Null);
    if !array.dimension_names.is_empty() {
        member("dimension_names", json!(array.dimension_names));
    }
    if codecs::is_plain(&files.codecs, &array.dtype) {
        member("storage_transformers", json!([]));
    }
    with_member(
        &print(&Value::Object(document)),
        "attributes",
        &json::pretty_object(&array.attributes),
    )
}

/// Returns `shown`, the metadata file of `array`, with the old name of structures if `stored` has
/// it.
pub fn with_stored_name(shown: String, array: &ArrayMetadata, stored: &[u8]) -> Result<String> {
    let is_old = || json::parse_object(stored).is_ok_and(|document| has_old_name(&document));
    if !matches!(array.dtype, DType::Struct(_)) || !is_old() {
        return Ok(shown);
    }
    let mut text = Text::parse(shown.as_bytes())?;
    text.set(&["data_type"], &array.dtype.to_old_json())?;
    text.set(&["fill_value"], &array.fill.to_base64(&array.dtype))?;
    Ok(text.into_string())
}

/// Whether a metadata file has the old name of structures.
pub(super) fn has_old_name(document: &Object) -> bool {
    document.get("data_type").and_then(|found| found.get("name")?.as_str()) == Some(OLD_STRUCT)
}

/// Returns the metadata file of a group, with copies of the metadata files shown below it if the
/// store has consolidated metadata.
pub fn group(group: &Group, copies: Option<&CopyTexts>) -> String {
    let mut document = Object::new();
    document.insert("zarr_format".to_owned(), json!(3));
    document.insert("node_type".to_owned(), json!("group"));
    document.insert("attributes".to_owned(), Value::Null);
    if copies.is_some() {
        document.insert("consolidated_metadata".to_owned(), Value::Null);
    }
    let mut text = print(&Value::Object(document));
    if let Some(copies) = copies {
        let whole = format!(
            "{{\n    \"kind\": \"inline\",\n    \"must_understand\": false,\n    \"metadata\": {}\n  }}",
            copies.object()
        );
        text = replaced(&text, "consolidated_metadata", &whole);
    }
    with_member(&text, "attributes", &json::pretty_object(&group.attributes))
}

/// Returns the metadata file of an unsupported node: the stored one, as strict JSON if possible.
///
/// zarrfs generates no metadata for such a node.
pub fn not_understood(_kind: NodeKind, stored: &[u8]) -> String {
    match parse(stored) {
        Ok(document) => print(&document),
        Err(_) => String::from_utf8_lossy(stored).into_owned(),
    }
}

/// Copies of metadata files by name, as the string of an object: as parsed values they may take too
/// much memory.
#[derive(Debug)]
pub struct CopyTexts {
    text: String,
    /// The indentation of each line.
    indent: usize,
}

impl CopyTexts {
    /// Returns an empty object for `levels` levels of nesting.
    pub fn new(levels: usize) -> Self {
        Self { text: String::new(), indent: levels.saturating_mul(2) }
    }

    /// Returns the length so far in bytes.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether there are no copies.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Adds a copy, which has the indentation of shown metadata files.
    pub fn push(&mut self, name: &str, document: &str) {
        let line = format!("\n{:indent$}", "", indent = self.indent);
        self.text.push_str(if self.is_empty() { "" } else { "," });
        self.text.push_str(&line);
        self.text.push_str(&json::quoted(name));
        self.text.push_str(": ");
        let is_indented = self.len() < MAX_INDENTED_LEN;
        // A string in strict JSON never contains the end of a line.
        for (at, part) in document.trim_end().split('\n').enumerate() {
            if is_indented && at > 0 {
                self.text.push_str(&line);
            }
            self.text.push_str(if is_indented { part } else { part.trim_start() });
        }
    }

    /// Returns the object with all copies.
    pub fn object(&self) -> String {
        if self.is_empty() {
            return "{}".to_owned();
        }
        format!("{{{}\n{:indent$}}}", self.text, "", indent = self.indent.saturating_sub(2))
    }
}

/// Prints a metadata file.
pub(super) fn print(document: &Value) -> String {
    let mut text = json::pretty(document);
    text.push('\n');
    text
}

/// Replaces the null in the member `name` of `document` with `value`.
fn with_member(document: &str, name: &str, value: &str) -> String {
    replaced(document, name, &value.replace('\n', "\n  "))
}

fn replaced(document: &str, name: &str, value: &str) -> String {
    // Members of nested objects have more indentation, and strings contain no end of a line.
    let null = format!("\n  \"{name}\": null");
    let Some(at) = document.find(&null) else { return document.to_owned() };
    let (head, rest) = document.split_at(at);
    let tail = rest.get(null.len()..).unwrap_or_default();
    format!("{head}\n  \"{name}\": {value}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_metadata_are_strict_json_with_the_same_members() {
        let shown = r#"{"zarr_format": 3, "fill_value": "NaN", "storage_transformers": []}"#;
        let codecs =
            |configuration: &str| format!(r#"{{"codecs": [{{"name": "crc32c"{configuration}}}]}}"#);
        assert!(is_equivalent(&codecs(r#", "configuration": {}"#), &codecs("")));
        assert!(!is_equivalent(&codecs(r#", "configuration": {"x": 1}"#), &codecs("")));
        for same in [r#"{"fill_value":"NaN","zarr_format":3}"#, shown] {
            assert!(is_equivalent(same, shown), "{same}");
        }
        for other in [
            r#"{"fill_value":NaN,"zarr_format":3}"#,
            r#"{"fill_value":"NaN","zarr_format":3,"more":1}"#,
            r#"{"fill_value":"NaN","zarr_format":2}"#,
            r#"{"fill_value":"NaN","zarr_format":3"#,
        ] {
            assert!(!is_equivalent(other, shown), "{other}");
        }
    }

    #[test]
    fn structures_are_shown_under_their_old_name_only_where_they_are_stored_so() {
        let stored = |data_type: &Value, fill: &Value| {
            let document = json!({
                "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": data_type,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
                "chunk_key_encoding": {"name": "default"}, "fill_value": fill,
                "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            });
            document.to_string()
        };
        let fields =
            json!([{"name": "x", "data_type": "int16"}, {"name": "y", "data_type": "bool"}]);
        let new = json!({"name": "struct", "configuration": {"fields": fields}});
        let fields = json!([["x", "int16"], ["y", "bool"]]);
        let old = json!({"name": OLD_STRUCT, "configuration": {"fields": fields}});
        let (object, base64) = (json!({"x": 7, "y": true}), json!("BwAB"));
        for (data_type, fill) in [(&new, &object), (&old, &base64)] {
            let stored = stored(data_type, fill);
            let lowered = v3::lower(stored.as_bytes()).node.expect("understood");
            let crate::metadata::model::NodeMetadata::Array(model) = lowered else {
                panic!("a group")
            };
            let made = array(&model, &ShownChunks::decoded(&model, &model.chunk_shape));
            let found = |text: &str| {
                let document = json::parse_object(text.as_bytes()).expect("JSON");
                (document["data_type"].clone(), document["fill_value"].clone())
            };
            assert_eq!(found(&made), (new.clone(), object.clone()));
            let shown = with_stored_name(made.clone(), &model, stored.as_bytes()).expect("shown");
            assert_eq!(found(&shown), (data_type.clone(), fill.clone()));
            let of_zarr_2 = with_stored_name(made, &model, b"{\"dtype\": NaN").expect("shown");
            assert_eq!(found(&of_zarr_2), (new.clone(), object.clone()));
            let copied = crate::metadata::wanted::with_registered_name(&shown).expect("a copy");
            assert_eq!(
                found(&copied),
                (new.clone(), object.clone()),
                "no new array has the old one"
            );
        }
    }

    #[test]
    fn copies_are_printed_as_the_members_of_one_document() {
        let attributes = json!({"x": [1, {"null": null}], "attributes": null, "s": "a\nb"});
        let Value::Object(attributes) = attributes else { unreachable!("an object") };
        let one = Group { attributes, consolidated: true };
        let mut copies = CopyTexts::new(3);
        let empty = group(&Group::default(), Some(&copies));
        for (name, text) in [("a", &empty), ("a/b", &group(&one, None))] {
            copies.push(name, text);
        }
        let text = group(&one, Some(&copies));
        let parsed: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(text, print(&parsed));
        let copy = |name: &str| parsed["consolidated_metadata"]["metadata"][name].clone();
        assert_eq!(copy("a")["consolidated_metadata"]["metadata"], json!({}));
        assert_eq!(copy("a/b")["attributes"], parsed["attributes"]);
        assert_eq!(parsed["attributes"]["s"], "a\nb");
    }

    #[test]
    fn many_copies_are_on_one_line_each() {
        let mut copies = CopyTexts::new(3);
        let document = group(&Group::default(), None);
        while copies.len() <= MAX_INDENTED_LEN {
            copies.push("a", &document);
        }
        let before = copies.len();
        copies.push("b", &document);
        assert!(copies.len() - before < document.len() + 16, "{}", copies.len() - before);
        let text = group(&Group::default(), Some(&copies));
        assert!(serde_json::from_str::<Value>(&text).is_ok());
    }
}
