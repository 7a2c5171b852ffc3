//! The table of all codecs, with one row for each.
//!
//! A row has the name of the codec in each dialect, its kind, and the function that builds it. All
//! code that parses, sorts or writes codecs looks them up here, so a new codec takes one file and
//! one row.

use serde_json::Value;

use super::array_to_array::{
    AsType, BitRound, Built, CastValue, Categorize, Delta, FixedScaleOffset, Order, PackBits,
    Quantize, Reshape, ScaleOffset, Transpose, built, unless_identity,
};
use super::array_to_bytes::{self, BytesCodec, N5Default, Objects, Pcodec, vlen::Vlen};
use super::bytes_to_bytes::{
    Base64, Blosc, Bz2, Checksum, Conditional, Crc32c, Gzip, Lz4, Lz4BlockStream, Lzma, Shuffle,
    Zlib, Zstd,
};
use super::{ArrayToBytes, BytesToBytes, Elements};
use crate::error::{Error, Result};
use crate::json::Object;

/// The function that binds a codec to its configuration and, if it works on arrays, to a chunk.
#[derive(Debug, Clone, Copy)]
pub enum Build {
    /// Array to array.
    ArrayToArray(fn(&Object, &Elements) -> Result<Built>),
    /// Array to bytes. The last argument is the most decoded bytes of a chunk whose length does not
    /// follow from its shape.
    ArrayToBytes(fn(&Object, &Elements, usize) -> Result<Box<dyn ArrayToBytes>>),
    /// Array to bytes. `array` builds it, because it decides where chunks are stored.
    Shards,
    /// Bytes to bytes.
    BytesToBytes(fn(&Object) -> Result<Box<dyn BytesToBytes>>),
}

/// The kind of a codec: what it encodes, and into what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodecKind {
    /// Array to array.
    ArrayToArray,
    /// Array to bytes.
    ArrayToBytes,
    /// Bytes to bytes.
    BytesToBytes,
}

/// A codec.
#[expect(clippy::struct_excessive_bools, reason = "they are the columns of a table")]
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name in released v3, or the name that zarr-python gives it there.
    pub name: &'static str,
    /// Another name for it in v3 metadata.
    pub alias: Option<&'static str>,
    /// Its identifier in the drafts and, if numcodecs has it, in Zarr 2.
    pub id: Option<&'static str>,
    /// Whether numcodecs has it, so that Zarr 2 metadata can name it.
    pub in_zarr2: bool,
    /// Whether zarr-python 2.18 can read it as the compressor of an array in a draft.
    pub in_drafts: bool,
    /// Whether it is a compression type of N5.
    pub in_n5: bool,
    /// Whether `--codecs` accepts its identifier as a short name.
    pub is_option: bool,
    /// Whether it encodes each element independently of its place.
    pub is_per_element: bool,
    /// Whether its configuration names the data type that it produces, with the byte order.
    pub names_type: bool,
    /// Defaults for the members that a configuration must have but `--codecs` may omit, as JSON.
    defaults_text: &'static str,
    /// The function that builds it.
    pub build: Build,
}

impl Row {
    const fn new(name: &'static str, build: Build) -> Self {
        Self {
            name,
            alias: None,
            id: None,
            in_zarr2: false,
            in_drafts: false,
            in_n5: false,
            is_option: false,
            is_per_element: false,
            names_type: false,
            defaults_text: "{}",
            build,
        }
    }

    const fn alias(self, alias: &'static str) -> Self {
        Self { alias: Some(alias), ..self }
    }

    const fn id(self, id: &'static str) -> Self {
        Self { id: Some(id), ..self }
    }

    /// A codec of numcodecs.
    const fn zarr2(self, id: &'static str) -> Self {
        Self { id: Some(id), in_zarr2: true, ..self }
    }

    const fn drafts(self) -> Self {
        Self { in_drafts: true, ..self }
    }

    const fn n5(self) -> Self {
        Self { in_n5: true, ..self }
    }

    const fn option(self) -> Self {
        Self { is_option: true, ..self }
    }

    const fn per_element(self) -> Self {
        Self { is_per_element: true, ..self }
    }

    const fn names_type(self) -> Self {
        Self { names_type: true, ..self }
    }

    const fn with_defaults(self, defaults_text: &'static str) -> Self {
        Self { defaults_text, ..self }
    }

    /// The kind of this codec.
    pub fn kind(&self) -> CodecKind {
        match self.build {
            Build::ArrayToArray(_) => CodecKind::ArrayToArray,
            Build::ArrayToBytes(_) | Build::Shards => CodecKind::ArrayToBytes,
            Build::BytesToBytes(_) => CodecKind::BytesToBytes,
        }
    }

    /// Defaults for the members that a configuration must have but `--codecs` may omit.
    pub fn defaults(&self) -> Object {
        match serde_json::from_str(self.defaults_text) {
            Ok(Value::Object(members)) => members,
            _ => Object::new(),
        }
    }
}

/// The codec with this name in v3 metadata.
pub fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name || row.alias == Some(name))
}

/// The codec with this identifier in Zarr 2 or a draft.
pub fn find_id(id: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.id == Some(id) || (row.alias == Some(id)))
}

/// The kind of the codec with this name. An unknown codec counts as bytes to bytes, as most are.
pub fn kind(name: &str) -> CodecKind {
    find(name).map_or(CodecKind::BytesToBytes, Row::kind)
}

/// The identifiers of the codecs that `is_meant` accepts, in alphabetical order.
pub fn ids(is_meant: impl Fn(&Row) -> bool) -> Vec<&'static str> {
    let mut ids: Vec<_> =
        ROWS.iter().filter(|row| is_meant(row)).filter_map(|row| row.id).collect();
    ids.sort_unstable();
    ids
}

const fn bytes_to_bytes(
    name: &'static str,
    build: fn(&Object) -> Result<Box<dyn BytesToBytes>>,
) -> Row {
    Row::new(name, Build::BytesToBytes(build))
}

const fn array_to_bytes(
    name: &'static str,
    build: fn(&Object, &Elements, usize) -> Result<Box<dyn ArrayToBytes>>,
) -> Row {
    Row::new(name, Build::ArrayToBytes(build))
}

const fn array_to_array(name: &'static str, build: fn(&Object, &Elements) -> Result<Built>) -> Row {
    Row::new(name, Build::ArrayToArray(build))
}

const LEVEL: &str = r#"{"level": 5}"#;

/// All codecs. If two rows have the same identifier, [`find_id`] returns the first one.
pub const ROWS: &[Row] = &[
    // Array to array.
    array_to_array("transpose", |configuration, elements| {
        let order = Order::parse(configuration, elements.shape.len())?;
        let shape = order.apply(&elements.shape);
        let codec = Transpose::new(&order, elements)?;
        Ok(unless_identity(codec, Elements { shape, dtype: elements.dtype.clone() }))
    })
    .id("transpose"),
    array_to_array("reshape", |c, elements| Ok(built(Reshape::new(c, elements)?))),
    array_to_array("scale_offset", |c, elements| {
        Ok(unless_identity(ScaleOffset::new(c, elements)?, elements.clone()))
    })
    .per_element(),
    array_to_array("cast_value", |c, elements| Ok(built(CastValue::new(c, elements)?)))
        .per_element(),
    array_to_array("numcodecs.bitround", bitround).zarr2("bitround").per_element(),
    array_to_array("bitround", bitround).zarr2("bitround").per_element(),
    array_to_array("numcodecs.delta", |c, elements| Ok(built(Delta::new(c, elements)?)))
        .zarr2("delta")
        .names_type(),
    array_to_array("numcodecs.fixedscaleoffset", |c, elements| {
        Ok(built(FixedScaleOffset::new(c, elements)?))
    })
    .zarr2("fixedscaleoffset")
    .per_element()
    .names_type(),
    array_to_array("numcodecs.astype", |c, elements| Ok(built(AsType::new(c, elements)?)))
        .zarr2("astype")
        .per_element()
        .names_type(),
    array_to_array("numcodecs.quantize", |c, elements| Ok(built(Quantize::new(c, elements)?)))
        .zarr2("quantize")
        .per_element()
        .names_type(),
    array_to_array("numcodecs.categorize", |c, elements| Ok(built(Categorize::new(c, elements)?)))
        .zarr2("categorize")
        .names_type(),
    array_to_array("numcodecs.packbits", |_, elements| Ok(built(PackBits::new(elements)?)))
        .zarr2("packbits"),
    // Array to bytes.
    array_to_bytes("bytes", |c, elements, _| Ok(Box::new(BytesCodec::new(c, elements)?)))
        .id("bytes")
        .alias("endian"),
    Row::new("sharding_indexed", Build::Shards).id("sharding_indexed"),
    array_to_bytes("vlen-utf8", |_, elements, limit| {
        Ok(Box::new(Vlen::new("vlen-utf8", elements, limit)?))
    })
    .zarr2("vlen-utf8"),
    array_to_bytes("vlen-bytes", |_, elements, limit| {
        Ok(Box::new(Vlen::new("vlen-bytes", elements, limit)?))
    })
    .zarr2("vlen-bytes"),
    array_to_bytes("packbits", |c, elements, _| {
        Ok(Box::new(array_to_bytes::PackBits::new(c, elements)?))
    }),
    array_to_bytes("n5_default", |c, elements, _| Ok(Box::new(N5Default::new(c, elements)?))),
    array_to_bytes("numcodecs.json2", |c, elements, limit| {
        Ok(Box::new(Objects::json(c, elements, limit)?))
    })
    .zarr2("json2"),
    array_to_bytes("numcodecs.msgpack2", |_, elements, limit| {
        Ok(Box::new(Objects::message_pack(elements, limit)?))
    })
    .zarr2("msgpack2"),
    array_to_bytes("numcodecs.pcodec", |c, elements, _| Ok(Box::new(Pcodec::new(c, elements)?)))
        .zarr2("pcodec"),
    array_to_bytes("numcodecs.pickle", |_, _, _| {
        Err(Error::unsupported("pickle is never decoded: it would run code"))
    })
    .zarr2("pickle"),
    // Bytes to bytes: compressors.
    bytes_to_bytes("blosc", |c| Ok(Box::new(Blosc::new(c)?)))
        .alias("numcodecs.blosc")
        .zarr2("blosc")
        .drafts()
        .n5()
        .option()
        .with_defaults(r#"{"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0}"#),
    bytes_to_bytes("gzip", |c| Ok(Box::new(Gzip::new(c)?)))
        .alias("numcodecs.gzip")
        .zarr2("gzip")
        .drafts()
        .n5()
        .option()
        .with_defaults(LEVEL),
    bytes_to_bytes("zstd", |c| Ok(Box::new(Zstd::new(c)?)))
        .alias("numcodecs.zstd")
        .zarr2("zstd")
        .drafts()
        .n5()
        .option()
        .with_defaults(r#"{"level": 3, "checksum": false}"#),
    bytes_to_bytes("numcodecs.zlib", |c| Ok(Box::new(Zlib::new(c)?)))
        .zarr2("zlib")
        .drafts()
        .n5()
        .option()
        .with_defaults(LEVEL),
    bytes_to_bytes("numcodecs.bz2", |c| Ok(Box::new(Bz2::new(c)?)))
        .zarr2("bz2")
        .drafts()
        .n5()
        .option()
        .with_defaults(LEVEL),
    bytes_to_bytes("numcodecs.lzma", |c| Ok(Box::new(Lzma::new(c)?)))
        .zarr2("lzma")
        .drafts()
        .n5()
        .option()
        .with_defaults(r#"{"preset": 6}"#),
    bytes_to_bytes("numcodecs.lz4", |c| Ok(Box::new(Lz4::new(c)?)))
        .zarr2("lz4")
        .drafts()
        .option()
        .with_defaults(r#"{"acceleration": 1}"#),
    bytes_to_bytes("lz4_block_stream", |c| Ok(Box::new(Lz4BlockStream::new(c)?))),
    bytes_to_bytes("conditional", |c| Ok(Box::new(Conditional::new(c)?))),
    // Bytes to bytes: the rest.
    bytes_to_bytes("numcodecs.shuffle", |c| Ok(Box::new(Shuffle::new(c)?)))
        .zarr2("shuffle")
        .option(),
    bytes_to_bytes("shuffle", |c| Ok(Box::new(Shuffle::new(c)?))),
    bytes_to_bytes("crc32c", |c| {
        // The codec of the same name in numcodecs can have a location.
        if c.contains_key("location") {
            return Ok(Box::new(Checksum::crc32c(c)?));
        }
        Ok(Box::new(Crc32c::new(c)?))
    })
    .zarr2("crc32c")
    .option(),
    bytes_to_bytes("numcodecs.crc32c", |c| Ok(Box::new(Checksum::crc32c(c)?))).zarr2("crc32c"),
    bytes_to_bytes("numcodecs.crc32", |c| Ok(Box::new(Checksum::crc32(c)?))).zarr2("crc32"),
    bytes_to_bytes("numcodecs.adler32", |c| Ok(Box::new(Checksum::adler32(c)?))).zarr2("adler32"),
    bytes_to_bytes("numcodecs.fletcher32", |_| Ok(Box::new(Checksum::fletcher32())))
        .zarr2("fletcher32"),
    bytes_to_bytes("numcodecs.jenkins_lookup3", |c| Ok(Box::new(Checksum::lookup3(c)?)))
        .zarr2("jenkins_lookup3"),
    bytes_to_bytes("numcodecs.base64", |_| Ok(Box::new(Base64))).zarr2("base64"),
];

fn bitround(configuration: &Object, elements: &Elements) -> Result<Built> {
    Ok(unless_identity(BitRound::new(configuration, elements)?, elements.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::codec::{CodecSpec, registry};
    use crate::dtype::DType;

    /// The defaults of a row, and values for the members that have no default.
    fn configuration(row: &Row) -> Object {
        let members = match row.name {
            "transpose" => json!({"order": [0]}),
            "reshape" => json!({"shape": [[0]]}),
            "scale_offset" => json!({"scale": 2, "offset": 0}),
            "cast_value" => json!({"data_type": "int16"}),
            "bitround" | "numcodecs.bitround" => json!({"keepbits": 3}),
            "numcodecs.delta" => json!({"dtype": "<i4"}),
            "numcodecs.fixedscaleoffset" => json!({"dtype": "<f8", "scale": 2, "offset": 0}),
            "numcodecs.astype" => json!({"encode_dtype": "<i2", "decode_dtype": "<i4"}),
            "numcodecs.quantize" => json!({"dtype": "<f8", "digits": 2}),
            "numcodecs.categorize" => json!({"dtype": "|O", "labels": ["a", "b"]}),
            "bytes" => json!({"endian": "little"}),
            "n5_default" => json!({"codecs": [
                {"name": "bytes", "configuration": {"endian": "big"}}
            ]}),
            "conditional" => json!({"codecs": []}),
            "shuffle" | "numcodecs.shuffle" => json!({"elementsize": 4}),
            _ => json!({}),
        };
        row.defaults().into_iter().chain(members.as_object().cloned().unwrap_or_default()).collect()
    }

    #[test]
    fn every_row_is_built_for_some_type() {
        let dtypes = [
            DType::Int(4),
            DType::Float(8),
            DType::Bool,
            DType::String,
            DType::VariableBytes,
            DType::Utf32(1),
        ];
        for row in ROWS {
            let build = |dtype: &DType| {
                let spec = CodecSpec::new(row.name, configuration(row));
                let elements = Elements { shape: vec![4], dtype: dtype.clone() };
                match row.build {
                    Build::ArrayToArray(_) => registry::array_to_array(&spec, &elements).map(drop),
                    Build::ArrayToBytes(_) => {
                        registry::array_to_bytes(&spec, &elements, 1 << 20).map(drop)
                    }
                    Build::BytesToBytes(_) => registry::bytes_to_bytes(&[spec]).map(drop),
                    Build::Shards => Ok(()),
                }
            };
            let errors: Vec<_> = dtypes.iter().filter_map(|dtype| build(dtype).err()).collect();
            if row.name == "numcodecs.pickle" {
                assert!(errors.iter().all(|error| error.detail().contains("never decoded")));
            } else {
                assert!(errors.len() < dtypes.len(), "{}: {errors:?}", row.name);
            }
        }
    }

    #[test]
    fn a_name_an_alias_and_an_identifier_mean_one_codec() {
        let mut names: Vec<_> =
            ROWS.iter().flat_map(|row| [Some(row.name), row.alias]).flatten().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name of two rows");
        let name_of = |id| find_id(id).map(|row| row.name);
        assert_eq!(name_of("gzip"), Some("gzip"));
        assert_eq!(name_of("bitround"), Some("numcodecs.bitround"));
        assert_eq!(name_of("crc32c"), Some("crc32c"));
        assert_eq!(name_of("endian"), Some("bytes"));
        assert_eq!(find("numcodecs.zstd").map(|row| row.name), Some("zstd"));
        for row in ROWS.iter().filter(|row| row.in_n5 || row.in_drafts || row.is_option) {
            assert!(row.id.is_some() && row.in_zarr2, "{}", row.name);
        }
    }
}
