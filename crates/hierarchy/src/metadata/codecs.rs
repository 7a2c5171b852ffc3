//! Codecs: the spellings of all dialects, translated to the names and configurations of released
//! v3.
//!
//! In the result, `bytes` has a byte order if one matters, `transpose` a permutation, `blosc` a
//! word for its shuffle and a typesize, and `sharding_indexed` its codecs and the place of its
//! index. A shard without `index_codecs` (April to July 2023) is left without them: the data show
//! whether a checksum follows the index. Other configurations and unknown names stay unchanged;
//! building the codec checks them.

use serde_json::{Value, json};

use super::beside_bytes;
use super::members::lengths;
use super::types::Endian;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::limits;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, integer};
use zarrfs_codec::json::Object;
use zarrfs_codec::json::describe;
use zarrfs_codec::table::{self, CodecKind};

/// The elements that a list of codecs encodes.
#[derive(Debug, Clone)]
pub(super) struct EncodedElements {
    /// The number of dimensions.
    pub(super) rank: usize,
    /// The data type.
    pub(super) dtype: DType,
    /// The byte order if no codec specifies one.
    pub(super) endian: Endian,
}

/// Parses a list of codecs in a metadata file. Absent or null means an empty list.
pub(super) fn list(value: Option<&Value>) -> Result<Vec<CodecSpec>> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(codecs)) => codecs.iter().map(CodecSpec::from_json).collect(),
        Some(other) => Err(Error::corrupt(format!("codecs are {}, not a list", describe(other)))),
    }
}

/// Converts a name in any v3 metadata to that of released v3.
pub(super) fn v3_name(name: &str) -> String {
    match table::find(name) {
        Some(row) => row.name.to_owned(),
        None if name.contains(['/', ':']) => draft_name(name).unwrap_or_else(|_| name.to_owned()),
        None => name.to_owned(),
    }
}

/// Converts a codec's URI or identifier in a draft to its name in released v3.
pub(super) fn draft_name(uri: &str) -> Result<String> {
    let path = uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://")).unwrap_or(uri);
    let id = ["purl.org/zarr/spec/codec/", "purl.org/zarr/spec/codecs/"]
        .iter()
        .find_map(|head| path.strip_prefix(head))
        .map_or(uri, |tail| tail.split('/').next().unwrap_or(tail));
    if id.is_empty() || id.contains(['/', ':']) {
        return Err(Error::unsupported(format!("codec {uri:?} is not known")));
    }
    Ok(match table::find_id(id) {
        _ if id.starts_with("numcodecs.") => id.to_owned(),
        Some(row) => row.name.to_owned(),
        None => format!("numcodecs.{id}"),
    })
}

/// Converts a configuration of released v3 to the parameters of numcodecs.
pub(super) fn numcodecs_parameters(id: &str, mut configuration: Object) -> Object {
    match id {
        "blosc" => {
            // zarr-python 2 derives the length of an item from the type.
            configuration.shift_remove("typesize");
            let number = shuffle_number(configuration.get("shuffle").and_then(Value::as_str));
            configuration.insert("shuffle".to_owned(), json!(number));
        }
        // Versions of numcodecs before 0.13 do not know the member.
        "zstd" if configuration.get("checksum") == Some(&Value::Bool(false)) => {
            configuration.shift_remove("checksum");
        }
        _ => {}
    }
    configuration
}

/// Returns blosc's number for a shuffle, which released v3 names by a word.
pub(super) fn shuffle_number(word: Option<&str>) -> u8 {
    match word {
        Some("shuffle") => 1,
        Some("bitshuffle") => 2,
        Some(_) | None => 0,
    }
}

/// Returns the canonical form of `codecs`, which have canonical names, for chunks of `elements`.
///
/// Without an array-to-bytes codec, `bytes` follows the array-to-array codecs: it was the default
/// until July 2023, and GDAL omitted it until 3.10. Elements of variable length have another codec.
pub(super) fn canonical(
    codecs: Vec<CodecSpec>,
    elements: &EncodedElements,
) -> Result<Vec<CodecSpec>> {
    nested(codecs, elements, 0)
}

fn nested(
    mut codecs: Vec<CodecSpec>,
    elements: &EncodedElements,
    depth: usize,
) -> Result<Vec<CodecSpec>> {
    if limits::CODECS.is_exceeded_by(codecs.len()) {
        return Err(Error::unsupported(format!(
            "{} codecs in a list, {}",
            codecs.len(),
            limits::CODECS
        )));
    }
    hoist_orders(&mut codecs)?;
    beside_bytes::settle(&mut codecs, &elements.dtype)?;
    let names_type = |codec: &CodecSpec| table::find(&codec.name).is_some_and(|row| row.names_type);
    let is = |codec: &CodecSpec, kind: CodecKind| table::kind(&codec.name) == kind;
    let makes_bytes = |codec: &&CodecSpec| is(codec, CodecKind::ArrayToBytes);
    match codecs.iter().filter(makes_bytes).count() {
        0 => {
            let last = codecs.iter().rposition(|codec| is(codec, CodecKind::ArrayToArray));
            let plain = if codecs.iter().any(names_type) {
                // Such a filter does not produce strings, and has its own byte order instead of the
                // array's.
                let endian = ("endian".to_owned(), json!("little"));
                CodecSpec::new("bytes", Object::from_iter([endian]))
            } else {
                CodecSpec::new(&plain(&elements.dtype).name, Object::new())
            };
            codecs.insert(last.map_or(0, |last| last + 1), plain);
        }
        1 => {}
        several => {
            return Err(Error::corrupt(format!(
                "{several} array-to-bytes codecs, only one is \
                 allowed"
            )));
        }
    }
    let mut rank = Some(elements.rank);
    for codec in &mut codecs {
        let configuration = &mut codec.configuration;
        match codec.name.as_str() {
            "transpose" => transpose(configuration, rank)?,
            "reshape" => rank = None,
            "bytes" => bytes(configuration, elements)?,
            "blosc" => blosc(configuration, &elements.dtype)?,
            "sharding_indexed" => sharding(configuration, rank, elements, depth)?,
            "n5_default" => {
                let big = EncodedElements { endian: Endian::Big, ..elements.clone() };
                let codecs = inner_codecs(configuration.get("codecs"), &big, depth + 1)?;
                configuration.insert("codecs".to_owned(), codecs);
            }
            _ => {}
        }
    }
    Ok(codecs)
}

/// Moves each transpose inside `n5_default` to before it, which is equivalent.
fn hoist_orders(codecs: &mut Vec<CodecSpec>) -> Result<()> {
    let Some(at) = codecs.iter().position(|codec| codec.name == "n5_default") else {
        return Ok(());
    };
    let Some(codec) = codecs.get_mut(at) else { return Ok(()) };
    let inner = named(list(codec.configuration.get("codecs"))?);
    let is_order = |codec: &CodecSpec| codec.name == "transpose";
    let (orders, rest): (Vec<_>, Vec<_>) = inner.into_iter().partition(is_order);
    let rest = rest.iter().map(CodecSpec::to_json).collect();
    codec.configuration.insert("codecs".to_owned(), rest);
    codecs.splice(at..at, orders);
    Ok(())
}

/// Converts the order to a permutation; until October 2023, `"C"` and `"F"` stood for two of them.
fn transpose(configuration: &mut Object, rank: Option<usize>) -> Result<()> {
    let order = configuration.get("order").unwrap_or(&Value::Null);
    let wrong =
        || Error::corrupt(format!("transpose order {} is not a permutation", describe(order)));
    let permutation: Vec<u64> = match (order.as_str(), rank) {
        (Some("C"), Some(rank)) => (0..).take(rank).collect(),
        (Some("F"), Some(rank)) => reversed(rank),
        _ => lengths(order, "transpose order").map_err(|_| wrong())?,
    };
    let mut sorted = permutation.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq((0..).take(rank.unwrap_or(sorted.len()))) {
        return Err(wrong());
    }
    configuration.insert("order".to_owned(), json!(permutation));
    Ok(())
}

/// Returns the only codec of shown arrays: `bytes`, little endian, or the codec of the type for
/// elements of variable length.
pub(super) fn plain(dtype: &DType) -> CodecSpec {
    let name = match dtype {
        DType::String => "vlen-utf8",
        DType::VariableBytes => "vlen-bytes",
        _ => "bytes",
    };
    let endian = (dtype.component_len() > 1).then(|| ("endian".to_owned(), json!("little")));
    CodecSpec::new(name, endian.into_iter().collect())
}

/// Whether canonical `codecs` leave little-endian elements in C order, as decoded chunks are.
pub(super) fn is_plain(codecs: &[CodecSpec], dtype: &DType) -> bool {
    let [codec] = codecs else { return false };
    let is_big = codec.configuration.get("endian").is_some_and(|endian| endian == "big");
    codec.name == plain(dtype).name && (!is_big || dtype.component_len() == 1)
}

/// Returns the permutation that reverses `rank` dimensions.
pub(super) fn reversed(rank: usize) -> Vec<u64> {
    let mut order: Vec<u64> = (0..).take(rank).collect();
    order.reverse();
    order
}

fn bytes(configuration: &mut Object, elements: &EncodedElements) -> Result<()> {
    match configuration.get("endian") {
        None | Some(Value::Null) => {
            configuration.remove("endian");
            if elements.dtype.component_len() > 1 {
                configuration.insert("endian".to_owned(), elements.endian.to_json());
            }
            Ok(())
        }
        Some(Value::String(endian)) if endian == "little" || endian == "big" => Ok(()),
        Some(other) => Err(Error::corrupt(format!("byte order {} is not known", describe(other)))),
    }
}

fn blosc(configuration: &mut Object, dtype: &DType) -> Result<()> {
    let shuffle = configuration.get("shuffle").unwrap_or(&Value::Null);
    let number = shuffle.as_number().and_then(|number| integer(number.as_str()));
    let word = match (shuffle.as_str(), number) {
        (Some("noshuffle" | "NONE" | "none"), _) | (_, Some(0)) => "noshuffle",
        (Some("shuffle" | "BYTE" | "byte"), _) | (_, Some(1)) => "shuffle",
        (Some("bitshuffle" | "BIT" | "bit"), _) | (_, Some(2)) => "bitshuffle",
        (_, Some(-1)) if dtype.item_len() == 1 => "bitshuffle",
        (_, Some(-1)) => "shuffle",
        (None, None) if shuffle.is_null() => "noshuffle",
        _ => {
            return Err(Error::corrupt(format!(
                "blosc shuffle {} is not known",
                describe(shuffle)
            )));
        }
    };
    configuration.insert("shuffle".to_owned(), json!(word));
    if configuration.get("typesize").is_none_or(Value::is_null) {
        configuration.insert("typesize".to_owned(), json!(dtype.item_len().max(1)));
    }
    Ok(())
}

fn sharding(
    configuration: &mut Object,
    rank: Option<usize>,
    elements: &EncodedElements,
    depth: usize,
) -> Result<()> {
    if limits::SHARD_LEVELS.is_exceeded_by(depth.saturating_add(1)) {
        return Err(Error::unsupported(format!("shards within shards, {}", limits::SHARD_LEVELS)));
    }
    // A pull request of March 2023 had a whole chunk grid instead of the shape.
    let grid = configuration.get("chunk_grid").and_then(|grid| grid.get("configuration"));
    let chunk_shape = configuration.get("chunk_shape").or_else(|| grid?.get("chunk_shape"));
    let chunk_shape = lengths(chunk_shape.unwrap_or(&Value::Null), "chunk_shape of the shards")?;
    if chunk_shape.contains(&0) || rank.is_some_and(|rank| rank != chunk_shape.len()) {
        return Err(Error::corrupt(format!(
            "chunk_shape {chunk_shape:?} of the shards does not fit {} dimensions",
            elements.rank
        )));
    }
    let location = match configuration.get("index_location").map(|found| (found, found.as_str())) {
        None | Some((Value::Null, _)) => "end",
        Some((_, Some(location @ ("start" | "end")))) => location,
        Some((other, _)) => {
            return Err(Error::corrupt(format!("index_location {} is not known", describe(other))));
        }
    };
    let index = EncodedElements {
        rank: chunk_shape.len() + 1,
        dtype: DType::Uint(8),
        endian: Endian::Little,
    };
    let inner = EncodedElements { rank: chunk_shape.len(), ..elements.clone() };
    let mut canonical = Object::new();
    canonical.insert("chunk_shape".to_owned(), json!(chunk_shape));
    canonical
        .insert("codecs".to_owned(), inner_codecs(configuration.get("codecs"), &inner, depth + 1)?);
    if let Some(codecs) = configuration.get("index_codecs").filter(|codecs| !codecs.is_null()) {
        let codecs = inner_codecs(Some(codecs), &index, depth + 1)?;
        canonical.insert("index_codecs".to_owned(), codecs);
    }
    canonical.insert("index_location".to_owned(), json!(location));
    *configuration = canonical;
    Ok(())
}

fn inner_codecs(value: Option<&Value>, elements: &EncodedElements, depth: usize) -> Result<Value> {
    let codecs = named(list(value)?);
    Ok(nested(codecs, elements, depth)?.iter().map(CodecSpec::to_json).collect())
}

/// Returns the codecs of a v3 list under their canonical names.
pub(super) fn named(codecs: Vec<CodecSpec>) -> Vec<CodecSpec> {
    let renamed = |codec: CodecSpec| {
        let name = v3_name(&codec.name);
        codec.renamed(name)
    };
    codecs.into_iter().map(renamed).collect()
}

/// Wraps `codecs` into shards whose inner chunks have `chunk_shape`, indexed as by the 2022 storage
/// transformer: little endian, at the end, without a checksum.
pub(super) fn sharded(codecs: &[CodecSpec], chunk_shape: &[u64]) -> CodecSpec {
    let index =
        CodecSpec::new("bytes", Object::from_iter([("endian".to_owned(), json!("little"))]));
    sharded_with(codecs, chunk_shape, &[index])
}

/// Wraps `codecs` into shards with an index of these codecs at the end.
pub(super) fn sharded_with(
    codecs: &[CodecSpec],
    chunk_shape: &[u64],
    index_codecs: &[CodecSpec],
) -> CodecSpec {
    let list = |codecs: &[CodecSpec]| codecs.iter().map(CodecSpec::to_json).collect();
    let configuration = Object::from_iter([
        ("chunk_shape".to_owned(), json!(chunk_shape)),
        ("codecs".to_owned(), list(codecs)),
        ("index_codecs".to_owned(), list(index_codecs)),
        ("index_location".to_owned(), json!("end")),
    ]);
    CodecSpec::new("sharding_indexed", configuration)
}

/// Fails for shards that are nested too deeply.
pub(super) fn check_nesting(count: usize) -> Result<()> {
    if limits::SHARD_LEVELS.is_exceeded_by(count) {
        return Err(Error::unsupported(format!("shards within shards, {}", limits::SHARD_LEVELS)));
    }
    Ok(())
}

/// Adds the configuration that zarr-python requires for codecs of numcodecs.
pub(super) fn configured(mut codec: Value) -> Value {
    if let Some(Value::Array(inner)) = codec.pointer_mut("/configuration/codecs") {
        *inner = inner.drain(..).map(configured).collect();
    }
    let is_numcodec = codec
        .get("name")
        .and_then(Value::as_str)
        .is_some_and(|name| name.starts_with("numcodecs."));
    if let Value::Object(members) = &mut codec
        && is_numcodec
        && !members.contains_key("configuration")
    {
        members.insert("configuration".to_owned(), json!({}));
    }
    codec
}
