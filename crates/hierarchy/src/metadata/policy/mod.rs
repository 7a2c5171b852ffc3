//! The storage of new arrays whose metadata files leave it to the mount: the options `--codecs` and
//! `--shards`.
//!
//! Parsing checks everything that does not depend on an array. Creating a metadata file checks the
//! rest, which needs the shape and the type.

use serde_json::{Value, json};

use super::codecs::{self, EncodedElements};
use super::members::lengths;
use super::model::Runs;
use super::rectilinear;
use super::types::Endian;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::ToU64;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, integer};
use zarrfs_codec::json::Object;
use zarrfs_codec::json::{self, describe};
use zarrfs_codec::table::{self, CodecKind, CodecRow};

/// The most inner chunks in a shard: the index takes 16 bytes for each.
const MAX_COUNT: u64 = 1 << 20;

/// The assumed length in bytes of an element of variable length, with its length field.
const TYPICAL_LEN: usize = 16;

/// The storage of new arrays whose metadata files leave it to the mount.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The codecs of a chunk, in order of encoding. Without an array-to-bytes codec it is `bytes`,
    /// little endian.
    pub codecs: Vec<CodecSpec>,
    /// The chunks to store together.
    pub shards: Shards,
}

/// The chunks of a new array to store together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shards {
    /// Each chunk separately.
    None,
    /// As many as fit into this many decoded bytes.
    Target(u64),
    /// Those in a box of this shape, for arrays with as many dimensions.
    Shape(Vec<u64>),
    /// Those in a chunk of this rectilinear grid, as in an array that is copied.
    Rectilinear(Vec<Runs>),
}

/// The shards of a new array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShardGrid {
    /// The shape of a shard, or the longest along each dimension.
    pub shape: Vec<u64>,
    /// The lengths of the shards along each dimension of a rectilinear grid.
    pub rectilinear: Option<Vec<Runs>>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            codecs: vec![completed(CodecSpec::new("zstd", Object::new()))],
            shards: Shards::None,
        }
    }
}

impl Policy {
    /// Returns default codecs, the best first, since not every dialect has every codec.
    pub fn usual_codecs() -> Vec<Vec<CodecSpec>> {
        let one = |name: &str| vec![completed(CodecSpec::new(name, Object::new()))];
        vec![one("zstd"), one("gzip"), Vec::new()]
    }

    /// Parses `--codecs`: `none`, names separated by commas (`zstd`, `blosc,crc32c`), or a JSON
    /// list of v3 codecs.
    pub fn parse_codecs(text: &str) -> Result<Vec<CodecSpec>> {
        let text = text.trim();
        let codecs = if text == "none" {
            Vec::new()
        } else if text.starts_with('[') {
            match json::parse(text.as_bytes()).map_err(invalid)? {
                Value::Array(items) => items.iter().map(listed).collect::<Result<_>>()?,
                other => return Err(Error::invalid(format!("{} is not a list", describe(&other)))),
            }
        } else {
            text.split(',').map(|name| plain(name.trim())).collect::<Result<_>>()?
        };
        check_chain(&codecs)?;
        Ok(codecs)
    }

    /// Parses `--shards`: `none`, a size like `16M`, or a JSON list of lengths.
    pub fn parse_shards(text: &str) -> Result<Shards> {
        let text = text.trim();
        if text == "none" {
            return Ok(Shards::None);
        }
        if !text.starts_with('[') {
            return size(text).map(Shards::Target).map_err(|_| {
                Error::invalid("expected none, a size such as 16M, or a shape such as [1024, 1024]")
            });
        }
        let list = json::parse(text.as_bytes()).map_err(invalid)?;
        let shape = lengths(&list, "the shape of shards").map_err(invalid)?;
        if shape.is_empty() || shape.contains(&0) {
            return Err(Error::invalid(format!(
                "{} is not a shard shape: each dimension needs an integer of at least 1",
                describe(&list)
            )));
        }
        Ok(Shards::Shape(shape))
    }

    /// Returns the codecs of a chunk of `elements`, in canonical form.
    pub(super) fn chain(&self, elements: &EncodedElements) -> Result<Vec<CodecSpec>> {
        let mut chain = self.codecs.clone();
        for codec in chain.iter_mut().filter(|codec| codec.name == "numcodecs.shuffle") {
            default_to(
                &mut codec.configuration,
                "elementsize",
                json!(elements.dtype.item_len().max(1)),
            );
        }
        if elements.dtype.is_variable() {
            for codec in chain.iter_mut().filter(|codec| codec.name == "bytes") {
                *codec = codecs::plain(&elements.dtype);
            }
        }
        let mut chain = codecs::canonical(chain, elements).map_err(|error| {
            let detail = error.detail();
            Error::invalid(format!("the codecs of --codecs do not fit this array: {detail}"))
        })?;
        chain.retain(|codec| !is_identity(codec));
        Ok(chain)
    }

    /// Returns the shards of an array, `None` if it has none.
    pub(super) fn shard_grid(
        &self,
        shape: &[u64],
        chunk_shape: &[u64],
        dtype: &DType,
    ) -> Result<Option<ShardGrid>> {
        let shards = match &self.shards {
            _ if shape.is_empty() => return Ok(None),
            Shards::None => return Ok(None),
            Shards::Target(target) => filled(*target, shape, chunk_shape, dtype),
            Shards::Shape(shards) if shards.len() != shape.len() => return Ok(None),
            Shards::Shape(shards) => {
                let whole = |(shard, chunk): (&u64, &u64)| shard.is_multiple_of(*chunk);
                if !shards.iter().zip(chunk_shape).all(whole) {
                    return Err(Error::invalid(format!(
                        "shards of shape {shards:?} (--shards) do not hold whole chunks of shape \
                         {chunk_shape:?}: choose chunks that divide them"
                    )));
                }
                shards.clone()
            }
            Shards::Rectilinear(runs) if runs.len() != shape.len() => return Ok(None),
            Shards::Rectilinear(runs) => {
                check_rectilinear(runs, shape, chunk_shape)?;
                let (shape, rectilinear) = (rectilinear::longest(runs), Some(runs.clone()));
                return Ok(Some(ShardGrid { shape, rectilinear }));
            }
        };
        Ok((shards != chunk_shape).then_some(ShardGrid { shape: shards, rectilinear: None }))
    }
}

/// Fails unless the shards of a rectilinear grid cover an array and hold whole chunks.
fn check_rectilinear(runs: &[Runs], shape: &[u64], chunk_shape: &[u64]) -> Result<()> {
    rectilinear::check(runs, shape).map_err(invalid)?;
    for (axis, (runs, chunk)) in runs.iter().zip(chunk_shape).enumerate() {
        if let Some((len, _)) = runs.iter().find(|(len, _)| !len.is_multiple_of(*chunk)) {
            return Err(Error::invalid(format!(
                "a shard of {len} elements along dimension {axis} does not hold whole chunks of \
                 {chunk}: choose chunks that divide the shards"
            )));
        }
    }
    Ok(())
}

/// Returns the shape of the largest shards of at most `target` bytes. Chunks are joined along the
/// last dimension first, where they are consecutive, and only up to the end of the array.
fn filled(target: u64, shape: &[u64], chunk_shape: &[u64], dtype: &DType) -> Vec<u64> {
    let item_len = if dtype.is_variable() { TYPICAL_LEN } else { dtype.item_len() };
    let item_len = item_len.to_u64();
    let chunk_len = chunk_shape.iter().fold(item_len, |product, len| product.saturating_mul(*len));
    let mut count = (target / chunk_len.max(1)).min(MAX_COUNT);
    let mut shards: Vec<u64> = Vec::with_capacity(shape.len());
    for (len, chunk_len) in shape.iter().zip(chunk_shape).rev() {
        let along = count.min(len.div_ceil((*chunk_len).max(1))).max(1);
        count /= along;
        shards.push(chunk_len.saturating_mul(along));
    }
    shards.reverse();
    shards
}

/// The members of configurations that set the level of compression.
const LEVELS: [&str; 3] = ["level", "clevel", "preset"];

/// Parses a plain name of a codec, with or without the prefix `numcodecs.`, and with an optional
/// level: `zstd:19`.
fn plain(text: &str) -> Result<CodecSpec> {
    let Some((name, level)) = text.split_once(':') else { return named(text) };
    let mut codec = named(name)?;
    let member = LEVELS.into_iter().find(|member| codec.configuration.contains_key(*member));
    let member = member.ok_or_else(|| {
        Error::invalid(format!("{name} has no level, so {text:?} is not a codec"))
    })?;
    let level: i64 = level.parse().map_err(|_| {
        Error::invalid(format!("{text:?}: the level of a codec must be an integer"))
    })?;
    codec.configuration.insert(member.to_owned(), json!(level));
    Ok(codec)
}

fn named(name: &str) -> Result<CodecSpec> {
    let id = name.strip_prefix("numcodecs.").filter(|id| *id != "crc32c").unwrap_or(name);
    let Some(row) = table::find_id(id).filter(|row| row.is_option) else {
        let names = table::ids(|row| row.is_option).join(", ");
        return Err(Error::invalid(format!(
            "unknown codec {name:?}: expected none, {names}, or a JSON list of codecs"
        )));
    };
    Ok(completed(CodecSpec::new(row.name, Object::new())))
}

/// Parses an item of a JSON list of codecs.
fn listed(item: &Value) -> Result<CodecSpec> {
    let is_option = |name: &&str| table::find_id(name).is_some_and(|row| row.is_option);
    if let Some(name) = item.as_str().filter(is_option) {
        return plain(name);
    }
    let codec = CodecSpec::from_json(item).map_err(invalid)?;
    let name = codecs::v3_name(&codec.name);
    Ok(completed(codec.renamed(name)))
}

/// Returns the codec with defaults for the members that the specification requires.
pub(super) fn completed(mut codec: CodecSpec) -> CodecSpec {
    // An lzma codec with filters cannot have a preset.
    let has_filters = codec.name == "numcodecs.lzma" && !codec.configuration.is_empty();
    let row = table::find(&codec.name).filter(|_| !has_filters);
    for (member, value) in row.map(CodecRow::defaults).into_iter().flatten() {
        default_to(&mut codec.configuration, &member, value);
    }
    codec
}

/// Sets `member` to `value` if the configuration does not have it.
fn default_to(configuration: &mut Object, member: &str, value: Value) {
    if configuration.get(member).is_none_or(Value::is_null) {
        configuration.insert(member.to_owned(), value);
    }
}

/// Fails for a chain of codecs that no array can have.
fn check_chain(chain: &[CodecSpec]) -> Result<()> {
    let mut last = None;
    let mut rank = 1;
    for codec in chain {
        if codec.name == "sharding_indexed" {
            return Err(Error::invalid(
                "sharding_indexed is not allowed in --codecs: use --shards",
            ));
        }
        let step = table::kind(&codec.name);
        let misplaced = match (last, step) {
            (None | Some(CodecKind::ArrayToArray), _) | (Some(_), CodecKind::BytesToBytes) => false,
            (Some(_), CodecKind::ArrayToArray | CodecKind::ArrayToBytes) => true,
        };
        if misplaced {
            return Err(Error::invalid(format!(
                "codec {:?} works on arrays: it cannot follow a codec that produces bytes",
                codec.name
            )));
        }
        if let Some(order) = codec.configuration.get("order").and_then(Value::as_array) {
            rank = order.len();
        }
        last = Some(step);
    }
    let any = EncodedElements { rank, dtype: DType::Uint(2), endian: Endian::Little };
    codecs::canonical(chain.to_vec(), &any).map_err(invalid)?;
    Ok(())
}

/// Whether the codec is a transpose that changes nothing.
fn is_identity(codec: &CodecSpec) -> bool {
    let order = codec.configuration.get("order").and_then(Value::as_array);
    let in_place = |(at, item): (usize, &Value)| {
        let dimension = item.as_number().and_then(|number| integer(number.as_str()));
        dimension.is_some_and(|dimension| i128::try_from(at) == Ok(dimension))
    };
    codec.name == "transpose" && order.is_some_and(|order| order.iter().enumerate().all(in_place))
}

/// Parses a number of bytes: `64M`, `2G`, `1000`.
pub fn size(text: &str) -> Result<u64> {
    let wrong = || Error::invalid("expected a size such as 64K, 16M or 2G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default().to_ascii_uppercase();
    let shift = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(|| Error::invalid("larger than 2^64 bytes"))
}

fn invalid(error: Error) -> Error {
    error.of_kind(Kind::Invalid)
}

#[cfg(test)]
mod tests;
