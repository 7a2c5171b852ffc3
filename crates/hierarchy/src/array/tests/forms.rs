//! The forms in which chunks can be stored, as arrays over a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::array::{Array, ArrayOptions, Coords};
use crate::metadata::model::{self, KeyEncoding, NodeMetadata, Separator};
use crate::metadata::{Dialect, NodeKind};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, FillValue};
use zarrfs_store::{Key, Prefix, Store};

/// The limit for decoded chunks in these tests.
pub const MAX_CHUNK_LEN: u64 = 1 << 20;

/// Encoded values by chunk.
pub type EncodedByChunk = BTreeMap<Coords, Vec<u8>>;

/// A way to store chunks.
#[derive(Debug, Clone)]
pub struct StoredAs {
    pub name: String,
    pub model: model::ArrayMetadata,
}

impl StoredAs {
    /// Returns a form described in the terms of released v3.
    pub fn new(name: &str, shape: &[u64], chunk_shape: &[u64], codecs: Json) -> Self {
        let codecs = codecs.as_array().expect("a list").iter();
        let model = model::ArrayMetadata {
            shape: shape.to_vec(),
            dtype: DType::Int(2),
            fill: FillValue::parse(&json!(0), &DType::Int(2)).expect("a fill value"),
            chunk_shape: chunk_shape.to_vec(),
            rectilinear: None,
            key_encoding: KeyEncoding::Default(Separator::Slash),
            codecs: codecs.map(|codec| CodecSpec::from_json(codec).expect("a codec")).collect(),
            dimension_names: Vec::new(),
            attributes: zarrfs_codec::json::Object::new(),
        };
        Self { name: name.to_owned(), model }
    }

    /// Returns the form that metadata of the 2020 draft describe, with these storage transformers.
    pub fn draft(name: &str, shape: &[u64], chunk_shape: &[u64], more: Json) -> Self {
        let mut document = json!({
            "shape": shape, "data_type": "<i2", "fill_value": 0, "chunk_memory_layout": "C",
            "chunk_grid": {"type": "regular", "chunk_shape": chunk_shape, "separator": "/"},
            "extensions": [], "attributes": {},
        });
        for (member, value) in more.as_object().expect("members") {
            document[member] = value.clone();
        }
        let dialect = Dialect::parse_name("d2020-10").expect("a dialect");
        let lowered = dialect.lower(Some(NodeKind::Array), document.to_string().as_bytes());
        match lowered.node.unwrap_or_else(|error| panic!("{name}: {error}")) {
            NodeMetadata::Array(model) => Self { name: name.to_owned(), model: *model },
            NodeMetadata::Group(_) => panic!("{name}: not an array"),
        }
    }

    pub fn keys(mut self, encoding: KeyEncoding) -> Self {
        self.model.key_encoding = encoding;
        self.name = format!("{} {encoding:?}", self.name);
        self
    }

    /// Returns this form with the lengths of its stored chunks along each dimension.
    pub fn lens<const N: usize>(mut self, lens: [&[u64]; N]) -> Self {
        let longest = lens.iter().map(|lens| lens.iter().max().copied().expect("a length"));
        self.model.chunk_shape = longest.collect();
        let runs = |lens: &&[u64]| lens.iter().map(|len| (*len, 1)).collect();
        self.model.rectilinear = Some(lens.iter().map(runs).collect());
        self
    }

    pub fn open(&self, store: &Store) -> Arc<Array> {
        let options = ArrayOptions::new(MAX_CHUNK_LEN);
        let array = Array::open(self.model.clone(), store, prefix(), options);
        let array = array.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        assert_eq!(array.not_understood(), None, "{}", self.name);
        Arc::new(array)
    }
}

/// The prefix of the arrays in these tests. Bytes beside them must stay.
pub fn prefix() -> Prefix {
    Prefix::parse("data/root/a").expect("a prefix")
}

pub fn key(relative: &str) -> Key {
    prefix().key(relative).expect("a key")
}

/// A `sharding_indexed` codec with inner chunks of `chunk_shape`.
pub fn sharding(chunk_shape: &[u64], codecs: Json, index_codecs: Json, location: &str) -> Json {
    json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": chunk_shape, "codecs": codecs, "index_codecs": index_codecs,
        "index_location": location,
    }})
}

pub fn bytes(endian: &str) -> Json {
    json!({"name": "bytes", "configuration": {"endian": endian}})
}

pub fn transpose(order: &[usize]) -> Json {
    json!({"name": "transpose", "configuration": {"order": order}})
}

/// The `index_codecs` of most writers.
pub fn checked() -> Json {
    json!([bytes("little"), {"name": "crc32c"}])
}

/// An element of `storage_transformers`.
pub fn transformer(chunks_per_shard: &[u64]) -> Json {
    json!({
        "extension": "https://purl.org/zarr/spec/storage_transformers/sharding/1.0",
        "type": "indexed", "configuration": {"chunks_per_shard": chunks_per_shard},
    })
}

/// Returns every key encoding.
pub fn encodings() -> impl Iterator<Item = KeyEncoding> {
    [Separator::Slash, Separator::Dot].into_iter().flat_map(|separator| {
        [KeyEncoding::Default(separator), KeyEncoding::V2(separator), KeyEncoding::Draft(separator)]
    })
}

/// Chunks of 2 x 2 in a grid of 5 x 7. A shard has six of them, so that the shards at the edges
/// have slots outside of the array.
pub fn sharded() -> Vec<StoredAs> {
    let form = |name: &str, codecs: Json| StoredAs::new(name, &[10, 14], &[4, 6], codecs);
    let raw = || json!([bytes("little")]);
    let indexed = |index: Json, location| sharding(&[2, 2], raw(), index, location);
    let mut undeclared = indexed(raw(), "end");
    undeclared["configuration"].as_object_mut().expect("an object").remove("index_codecs");
    let turned_index = json!([transpose(&[2, 0, 1]), bytes("big"), {"name": "crc32c"}]);
    let inner = |shape: &[u64]| sharding(shape, json!([indexed(raw(), "end")]), checked(), "start");
    let wrapped = json!([indexed(checked(), "end"), {"name": "gzip"}]);
    let draft = |name: &str, transformers: &[Json]| {
        StoredAs::draft(name, &[10, 14], &[2, 2], json!({"storage_transformers": transformers}))
    };
    let mut forms = vec![
        form("index at the end", json!([indexed(checked(), "end")])),
        form("index at the start", json!([indexed(checked(), "start")])),
        form("index without checksum", json!([indexed(raw(), "end")])),
        form("index without checksum at the start", json!([indexed(raw(), "start")])),
        form("big-endian index", json!([indexed(json!([bytes("big")]), "end")])),
        form("turned index", json!([indexed(turned_index, "start")])),
        form("index codecs undeclared", json!([undeclared])),
        form("transpose in front", json!([transpose(&[1, 0]), indexed(checked(), "end")])),
        form("gzip around", wrapped.clone()),
        form(
            "crc32c and gzip around",
            json!([
                indexed(raw(), "start"), {"name": "crc32c"}, {"name": "gzip"},
            ]),
        ),
        StoredAs::new("nested", &[10, 14], &[8, 12], json!([inner(&[4, 6])])),
        StoredAs::new(
            "gzip around what is nested",
            &[10, 14],
            &[8, 6],
            json!([sharding(&[4, 6], wrapped.clone(), json!([bytes("big")]), "end"),]),
        ),
        StoredAs::new(
            "cyclic transpose in front",
            &[6, 10, 7],
            &[4, 6, 2],
            json!([transpose(&[1, 2, 0]), sharding(&[3, 1, 2], raw(), checked(), "end"),]),
        ),
        StoredAs::new(
            "one dimension",
            &[29],
            &[8],
            json!([sharding(&[2], raw(), checked(), "end")]),
        ),
        form("rectilinear", json!([indexed(checked(), "end")])).lens([&[2, 6, 4], &[8, 2, 10]]),
        form("rectilinear, transposed", json!([transpose(&[1, 0]), indexed(checked(), "start")]))
            .lens([&[4, 6, 2], &[6, 2, 8]]),
        form("rectilinear, gzip around", wrapped.clone()).lens([&[8, 2], &[4, 10]]),
        StoredAs::new("rectilinear and nested", &[10, 14], &[8, 12], json!([inner(&[4, 6])]))
            .lens([&[4, 8], &[12, 6]]),
        draft("draft", &[transformer(&[2, 3])]),
        draft("draft, stacked", &[transformer(&[2, 3]), transformer(&[2, 1])]),
    ];
    for encoding in encodings() {
        forms.push(form("keys", json!([indexed(checked(), "end")])).keys(encoding));
    }
    forms
}

/// The same chunks, each stored as a separate value.
pub fn unsharded() -> Vec<StoredAs> {
    let form = |encoding| StoredAs::new("plain", &[10, 14], &[2, 2], json!([])).keys(encoding);
    let mut forms: Vec<StoredAs> = encodings().map(form).collect();
    forms.push(StoredAs::draft("plain draft", &[10, 14], &[2, 2], json!({})));
    forms
}

/// Arrays without dimensions.
pub fn scalars() -> Vec<StoredAs> {
    let plain = |encoding| StoredAs::new("scalar", &[], &[], json!([])).keys(encoding);
    let mut forms: Vec<StoredAs> = encodings().map(plain).collect();
    let codecs = json!([sharding(&[], json!([bytes("little")]), checked(), "end")]);
    for encoding in encodings() {
        forms.push(StoredAs::new("sharded scalar", &[], &[], codecs.clone()).keys(encoding));
    }
    for per_shard in [&[][..], &[1]] {
        let transformers = json!({"storage_transformers": [transformer(per_shard)]});
        forms.push(StoredAs::draft("scalar draft", &[], &[], transformers));
    }
    forms
}

/// Every form above.
pub fn all() -> Vec<StoredAs> {
    [sharded(), unsharded(), scalars()].concat()
}

/// Returns all coordinates of a grid, in C order.
pub fn places(counts: &[u64]) -> Vec<Coords> {
    let mut places = vec![Vec::new()];
    for count in counts {
        places = places
            .iter()
            .flat_map(|place: &Vec<u64>| (0..*count).map(move |i| [&place[..], &[i]].concat()))
            .collect();
    }
    places.into_iter().map(Coords::new).collect()
}
