//! The parameters of imagecodecs, for codecs that zarrfs also has under other names.
//!
//! Their names are those of numcodecs with `imagecodecs_` in front. A parameter that is null has
//! its default, a level outside the range of the codec counts as the nearest one inside, and names
//! stand for the numbers of an enumeration.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::raw_deflate::RawDeflate;
use super::{Blosc, Bz2, Gzip, Lz4, Lz4Raw, Lzma, Zlib, Zstd};
use crate::configuration::flag;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

/// A codec, or why there is none.
type Built = Result<Box<dyn BytesToBytes>>;

/// Returns the level, within `range`.
fn level(configuration: &Object, usual: i64, range: RangeInclusive<i64>) -> Result<i64> {
    match configuration.get("level") {
        None | Some(Value::Null) => Ok(usual),
        Some(level) => {
            let number = level.as_i64().ok_or_else(|| {
                Error::invalid(format!("imagecodecs: level {level} is not an integer"))
            })?;
            Ok(number.clamp(*range.start(), *range.end()))
        }
    }
}

/// Returns a configuration with nothing but a level.
fn with_level(configuration: &Object, usual: i64, range: RangeInclusive<i64>) -> Result<Object> {
    let level = level(configuration, usual, range)?;
    Ok(Object::from_iter([("level".to_owned(), json!(level))]))
}

/// Returns the number of `member`, which may be one of `names`; the number of a name is its place.
fn named(configuration: &Object, member: &str, names: &[&str]) -> Result<Option<usize>> {
    let value = match configuration.get(member) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let place = match value.as_str() {
        Some(name) => names.iter().position(|known| known.eq_ignore_ascii_case(name)),
        None => value.as_u64().and_then(|number| usize::try_from(number).ok()),
    };
    let place = place.filter(|place| *place < names.len());
    place
        .map(Some)
        .ok_or_else(|| Error::unsupported(format!("imagecodecs: {member} {value} is not known")))
}

/// Returns a codec for a zlib stream.
pub fn zlib(configuration: &Object) -> Built {
    Ok(Box::new(Zlib::new(&with_level(configuration, 6, 0..=9)?)?))
}

fn raw(configuration: &Object) -> Built {
    let level = i32::try_from(level(configuration, 6, 0..=9)?).unwrap_or(6);
    Ok(Box::new(RawDeflate::new(level)))
}

/// Returns the codec `imagecodecs_deflate`: a zlib stream, unless it is raw.
pub fn deflate(configuration: &Object) -> Built {
    if flag("imagecodecs_deflate", configuration, "raw")? {
        return raw(configuration);
    }
    zlib(configuration)
}

/// Returns the codec `imagecodecs_isal`: a zlib stream, unless it is raw or of gzip.
pub fn isal(configuration: &Object) -> Built {
    match (flag("isal", configuration, "raw")?, flag("isal", configuration, "gzip")?) {
        (true, _) => raw(configuration),
        (false, true) => Ok(Box::new(Gzip::new(&with_level(configuration, 6, 0..=9)?)?)),
        (false, false) => zlib(configuration),
    }
}

/// Returns the codec `imagecodecs_zopfli`. It encodes at the highest level of zlib.
pub fn zopfli(configuration: &Object) -> Built {
    let best = Object::from_iter([("level".to_owned(), json!(9))]);
    match named(configuration, "format", &["GZIP", "ZLIB", "DEFLATE"])? {
        Some(0) => Ok(Box::new(Gzip::new(&best)?)),
        Some(2) => raw(&best),
        _ => zlib(&best),
    }
}

/// Returns the codec `imagecodecs_zstd`.
pub fn zstd(configuration: &Object) -> Built {
    Ok(Box::new(Zstd::new(&with_level(configuration, 3, -131_072..=22)?)?))
}

/// Returns the codec `imagecodecs_lz4`, which has the header of numcodecs or none.
pub fn lz4(configuration: &Object) -> Built {
    if flag("imagecodecs_lz4", configuration, "header")? {
        return Ok(Box::new(Lz4::new(configuration)?));
    }
    Ok(Box::new(Lz4Raw))
}

/// Returns the codec `imagecodecs_bz2`.
pub fn bz2(configuration: &Object) -> Built {
    Ok(Box::new(Bz2::new(&with_level(configuration, 9, 1..=9)?)?))
}

/// Returns the codec `imagecodecs_lzma`: .xz, with the checksum that it names.
pub fn lzma(configuration: &Object) -> Built {
    let checks = ["NONE", "CRC32", "", "", "CRC64", "", "", "", "", "", "SHA256"];
    let check = named(configuration, "check", &checks)?.unwrap_or(4);
    let preset = level(configuration, 6, 0..=9)?;
    let configuration = Object::from_iter([
        ("check".to_owned(), json!(check)),
        ("preset".to_owned(), json!(preset)),
    ]);
    Ok(Box::new(Lzma::new(&configuration)?))
}

/// Returns the codec `imagecodecs_blosc`.
pub fn blosc(configuration: &Object) -> Built {
    let names = ["blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"];
    let compressor = named(configuration, "compressor", &names)?;
    let shuffles = ["NOSHUFFLE", "SHUFFLE", "BITSHUFFLE"];
    let shuffle = named(configuration, "shuffle", &shuffles)?;
    let mut members = Object::from_iter([
        (
            "cname".to_owned(),
            json!(compressor.and_then(|place| names.get(place)).unwrap_or(&"blosclz")),
        ),
        ("clevel".to_owned(), json!(level(configuration, 9, 0..=9)?)),
        ("shuffle".to_owned(), json!(shuffle.unwrap_or(1))),
    ]);
    for member in ["typesize", "blocksize"] {
        let value = configuration.get(member).cloned().unwrap_or(Value::Null);
        members.insert(member.to_owned(), value);
    }
    Ok(Box::new(Blosc::new(&members)?))
}
