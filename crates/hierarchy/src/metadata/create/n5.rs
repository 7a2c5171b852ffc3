//! New metadata files in N5, which have the user's attributes beside the members of N5.

use serde_json::{Value, json};

use super::splice::New;
use crate::metadata::codecs::{self, EncodedElements};
use crate::metadata::conventions::{self, DIMENSIONS, names_of};
use crate::metadata::model::{ArrayMetadata, KeyEncoding};
use crate::metadata::n5::MEMBERS;
use crate::metadata::types::Endian;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::DType;
use zarrfs_codec::json::Object;
use zarrfs_codec::json::{NewValue, Text};
use zarrfs_codec::table;

/// Changes `text`, which a program wrote, to the stored metadata file of a group.
pub(super) fn group(text: &mut Text) -> Result<()> {
    let attributes = match text.member(&["attributes"])? {
        None | Some("null") => Text::parse(b"{}")?,
        Some(attributes) => Text::parse(attributes.as_bytes())?,
    };
    text.remove_members(&[], |_| true)?;
    let mut members = Vec::new();
    for (name, value) in attributes.texts(&[])? {
        if MEMBERS.contains(&name.as_str()) {
            return Err(Error::invalid(format!(
                "the attribute {name:?} is a member of N5 itself: give it another name"
            )));
        }
        members.push((name, Text::parse(value.as_bytes())?));
    }
    let changes = members.iter().map(|(name, value)| (name.as_str(), Some(NewValue::Text(value))));
    text.edit(&[], &changes.collect::<Vec<_>>())
}

/// Changes `text`, which a program wrote, to the stored metadata file of an array, and returns the
/// array that it must describe.
pub(super) fn array(text: &mut Text, array: ArrayMetadata, new: New) -> Result<ArrayMetadata> {
    let rank = array.shape.len();
    let refused = |what: String| Err(Error::invalid(what));
    if new.shards.is_some() {
        return refused("N5 has no shards: use --shards none".to_owned());
    }
    if new.encoded.is_some() {
        return refused(
            "N5 stores each chunk with a header of its own, so programs cannot write encoded \
             chunks: leave the codecs out (in zarr-python: compressors=None), and the mount \
             encodes chunks as --codecs says"
                .to_owned(),
        );
    }
    if rank == 0 {
        return refused("N5 has no arrays without dimensions".to_owned());
    }
    let is_known = match array.dtype {
        DType::Int(_) | DType::Uint(_) => true,
        DType::Float(len) => len > 2,
        _ => false,
    };
    if !is_known {
        return refused(format!(
            "data type {} cannot be expressed in N5: use int8 to int64, uint8 to uint64, float32 \
             or float64",
            array.dtype.name()
        ));
    }
    if array.fill.item(&array.dtype).iter().any(|byte| *byte != 0) {
        return refused(format!(
            "fill_value {} cannot be expressed in N5, where missing chunks are zero",
            array.fill.to_json(&array.dtype)
        ));
    }
    let compressor = compressor(new.chain)?;
    group(text)?;
    let reversed = |lens: &[u64]| lens.iter().rev().copied().collect::<Vec<_>>();
    text.set(&["dimensions"], &json!(reversed(&array.shape)))?;
    text.set(&["blockSize"], &json!(reversed(&new.chunk_shape)))?;
    text.set(&["dataType"], &json!(array.dtype.name()))?;
    text.set(&["compression"], &compression(compressor.as_ref()))?;
    let mut array = named(text, array)?;
    let elements = EncodedElements { rank, dtype: array.dtype.clone(), endian: Endian::Big };
    let inner = codecs::canonical(compressor.into_iter().collect(), &elements)?;
    let list: Value = inner.iter().map(CodecSpec::to_json).collect();
    let configuration = Object::from_iter([("codecs".to_owned(), list)]);
    array.chunk_shape = new.chunk_shape;
    array.key_encoding = KeyEncoding::N5;
    array.codecs = vec![CodecSpec::new("n5_default", configuration)];
    Ok(array)
}

/// Stores the names of dimensions as zarr-python's N5 and xarray do, and returns the array that
/// results.
fn named(text: &mut Text, mut array: ArrayMetadata) -> Result<ArrayMetadata> {
    let rank = array.shape.len();
    let names = std::mem::take(&mut array.dimension_names);
    let found = array.attributes.get(DIMENSIONS).and_then(|value| names_of(value, rank));
    if !names.iter().all(Option::is_none) && found.as_ref() != Some(&names) {
        let all: Option<Vec<&str>> = names.iter().map(Option::as_deref).collect();
        let Some(all) = all.filter(|_| !array.attributes.contains_key(DIMENSIONS)) else {
            return Err(Error::invalid("dimension_names need a name for every dimension in N5"));
        };
        text.set(&[DIMENSIONS], &json!(all))?;
        array.attributes.insert(DIMENSIONS.to_owned(), json!(all));
    }
    array.dimension_names = conventions::take_names(&mut array.attributes, rank);
    Ok(array)
}

/// Returns the compressor; N5 has a place for only one. N5 is always big endian.
fn compressor(chain: Vec<CodecSpec>) -> Result<Option<CodecSpec>> {
    let mut compressor = None;
    for codec in chain {
        match codec.name.as_str() {
            "bytes" => {}
            name if compressor.is_none() && table::find(name).is_some_and(|row| row.in_n5) => {
                compressor = Some(codec);
            }
            name => {
                let names = table::ids(|row| row.in_n5).join(", ");
                return Err(Error::invalid(format!(
                    "codec {name:?} cannot be expressed in N5: use one of {names}, or none"
                )));
            }
        }
    }
    let Some(mut codec) = compressor else { return Ok(None) };
    let member = |name: &str, default: Value| {
        let found = codec.configuration.get(name).filter(|found| !found.is_null());
        (name.to_owned(), found.cloned().unwrap_or(default))
    };
    // Keep only the members that N5 has, because the metadata file is parsed again and must give
    // the same codec.
    codec.configuration = match codec.name.as_str() {
        "gzip" | "numcodecs.zlib" => Object::from_iter([member("level", json!(6))]),
        "numcodecs.bz2" => Object::from_iter([member("level", json!(9))]),
        "numcodecs.lzma" => {
            Object::from_iter([("format".to_owned(), json!(1)), member("preset", json!(6))])
        }
        "zstd" => {
            Object::from_iter([member("level", json!(3)), ("checksum".to_owned(), json!(false))])
        }
        _ => Object::from_iter([
            member("cname", json!("lz4")),
            member("clevel", json!(5)),
            member("shuffle", json!("shuffle")),
            member("blocksize", json!(0)),
        ]),
    };
    Ok(Some(codec))
}

fn compression(compressor: Option<&CodecSpec>) -> Value {
    let Some(codec) = compressor else { return json!({"type": "raw"}) };
    let member = |name: &str| codec.configuration.get(name).cloned().unwrap_or_default();
    match codec.name.as_str() {
        "gzip" => json!({"type": "gzip", "level": member("level"), "useZlib": false}),
        "numcodecs.zlib" => json!({"type": "gzip", "level": member("level"), "useZlib": true}),
        "numcodecs.bz2" => json!({"type": "bzip2", "blockSize": member("level")}),
        "numcodecs.lzma" => json!({"type": "xz", "preset": member("preset")}),
        "zstd" => json!({"type": "zstd", "level": member("level")}),
        _ => {
            let shuffle = codecs::shuffle_number(member("shuffle").as_str());
            json!({
                "type": "blosc",
                "cname": member("cname"),
                "clevel": member("clevel"),
                "shuffle": shuffle,
                "blocksize": member("blocksize"),
            })
        }
    }
}
