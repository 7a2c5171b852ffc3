//! The table of all codecs, with one row for each.
//!
//! A row has the name of the codec in each dialect, its kind, and the function that builds it. All
//! code that parses, sorts or writes codecs looks them up here, so a new codec takes one file and
//! one row.

use super::array_to_array::{
    self, AsType, BitRound, CastValue, Categorize, Delta, DimensionOrder, FixedScaleOffset,
    PackBits, Quantize, Reshape, ScaleOffset, Significant, Transpose,
};
#[cfg(feature = "grib")]
use super::array_to_bytes::Grib;
use super::array_to_bytes::{
    self, BytesCodec, CompressedSegmentation, Flac, N5Default, Objects, Pcodec, Vlen, WavPack, zfp,
};
#[cfg(feature = "images")]
use super::array_to_bytes::{ImageCodec, ImageFormat};
#[cfg(feature = "hdf5")]
use super::bytes_to_bytes::Hdf5Filter;
use super::bytes_to_bytes::{
    Base64, BitOrder, BitPlanes, Blosc, Brotli, BytePlanes, Bz2, Checksum, Conditional, Crc32c,
    Gzip, Hdf5Bitshuffle, Items, Lz4, Lz4BlockStream, Lz4Frame, Lz4Hdf5, Lzf, Lzma, Lzw,
    Neighbours, RunLengths, ShortFloats, Shuffle, Snappy, Zlib, Zstd, imagecodecs,
};
use super::elements::ChunkType;
use super::kinds::{ArrayToBytes, BytesToBytes};
pub use super::row::{Build, CodecKind, CodecRow};
use super::row::{BuildBytes, Built, built, unless_identity};
use crate::dtype::DType;
use crate::json::Object;
use zarrfs_base::error::{Error, Result};

/// Returns the codec with this name in v3 metadata.
pub fn find(name: &str) -> Option<&'static CodecRow> {
    ROWS.iter().find(|row| row.name == name || row.alias == Some(name))
}

/// Returns the codec with this identifier in Zarr 2 or a draft.
pub fn find_id(id: &str) -> Option<&'static CodecRow> {
    ROWS.iter().find(|row| row.id == Some(id) || (row.alias == Some(id)))
}

/// Returns the function that builds the bytes-to-bytes codec with this name in v3 metadata.
pub fn find_bytes_to_bytes(name: &str) -> Option<BuildBytes> {
    match find(name)?.build {
        Build::BytesToBytes(build) => Some(build),
        Build::ArrayToArray(_) | Build::ArrayToBytes(_) | Build::Shards | Build::OfPipelines => {
            None
        }
    }
}

/// Returns the kind of the codec with this name. An unknown codec counts as bytes to bytes, as most
/// are.
pub fn kind(name: &str) -> CodecKind {
    find(name).map_or(CodecKind::BytesToBytes, CodecRow::kind)
}

/// The identifiers of the codecs that `is_meant` accepts, in alphabetical order.
pub fn ids(is_meant: impl Fn(&CodecRow) -> bool) -> Vec<&'static str> {
    let mut ids: Vec<_> =
        ROWS.iter().filter(|row| is_meant(row)).filter_map(|row| row.id).collect();
    ids.sort_unstable();
    ids
}

const LEVEL: &str = r#"{"level": 5}"#;

/// All codecs. If two rows have the same identifier, [`find_id`] returns the first one.
pub const ROWS: &[CodecRow] = &[
    // Array to array.
    CodecRow::array_to_array("transpose", |configuration, elements, _| {
        let order = DimensionOrder::parse(configuration, elements.shape.len())?;
        let shape = order.apply(&elements.shape);
        let codec = Transpose::new(&order, elements)?;
        Ok(unless_identity(codec, ChunkType { shape, dtype: elements.dtype.clone() }))
    })
    .id("transpose"),
    CodecRow::array_to_array("reshape", |c, elements, _| Ok(built(Reshape::new(c, elements)?))),
    CodecRow::array_to_array("scale_offset", |c, elements, _| {
        Ok(unless_identity(ScaleOffset::new(c, elements)?, elements.clone()))
    })
    .per_element(),
    CodecRow::array_to_array("cast_value", |c, elements, _| {
        Ok(built(CastValue::new(c, elements)?))
    })
    .per_element(),
    CodecRow::array_to_array("numcodecs.bitround", bitround).zarr2("bitround").per_element(),
    CodecRow::array_to_array("bitround", bitround).zarr2("bitround").per_element(),
    CodecRow::array_to_array("numcodecs.delta", |c, elements, _| {
        Ok(built(Delta::new(c, elements)?))
    })
    .zarr2("delta")
    .names_type(),
    CodecRow::array_to_array("numcodecs.fixedscaleoffset", |c, elements, _| {
        Ok(built(FixedScaleOffset::new(c, elements)?))
    })
    .zarr2("fixedscaleoffset")
    .per_element()
    .names_type(),
    CodecRow::array_to_array("numcodecs.astype", |c, elements, _| {
        Ok(built(AsType::new(c, elements)?))
    })
    .zarr2("astype")
    .per_element()
    .names_type(),
    CodecRow::array_to_array("numcodecs.quantize", |c, elements, _| {
        Ok(built(Quantize::new(c, elements)?))
    })
    .zarr2("quantize")
    .per_element()
    .names_type(),
    CodecRow::array_to_array("numcodecs.categorize", |c, elements, limit| {
        Ok(built(Categorize::new(c, elements, limit)?))
    })
    .zarr2("categorize")
    .names_type(),
    CodecRow::array_to_array("numcodecs.packbits", |_, elements, _| {
        Ok(built(PackBits::new(elements)?))
    })
    .zarr2("packbits"),
    // Array to bytes.
    CodecRow::new("short_chunk", Build::OfPipelines).read_only(),
    CodecRow::new("precomputed_chunk", Build::OfPipelines).read_only(),
    CodecRow::array_to_bytes("compressed_segmentation", |c, elements, _| {
        Ok(Box::new(CompressedSegmentation::new(c, elements)?))
    })
    .read_only(),
    CodecRow::array_to_bytes("bytes", |c, elements, _| Ok(Box::new(BytesCodec::new(c, elements)?)))
        .id("bytes")
        .alias("endian"),
    CodecRow::new("sharding_indexed", Build::Shards).id("sharding_indexed"),
    CodecRow::array_to_bytes("vlen-utf8", |_, elements, limit| {
        Ok(Box::new(Vlen::new("vlen-utf8", elements, limit)?))
    })
    .zarr2("vlen-utf8"),
    CodecRow::array_to_bytes("vlen-bytes", |_, elements, limit| {
        Ok(Box::new(Vlen::new("vlen-bytes", elements, limit)?))
    })
    .zarr2("vlen-bytes"),
    CodecRow::array_to_bytes("packbits", |c, elements, _| {
        Ok(Box::new(array_to_bytes::PackBits::new(c, elements)?))
    }),
    CodecRow::array_to_bytes("n5_default", |c, elements, _| {
        Ok(Box::new(N5Default::new(c, elements, find_bytes_to_bytes)?))
    }),
    CodecRow::array_to_bytes("numcodecs.json2", |c, elements, limit| {
        Ok(Box::new(Objects::json(c, elements, limit)?))
    })
    .zarr2("json2"),
    CodecRow::array_to_bytes("numcodecs.msgpack2", |_, elements, limit| {
        Ok(Box::new(Objects::message_pack(elements, limit)?))
    })
    .zarr2("msgpack2"),
    CodecRow::array_to_bytes("numcodecs.pcodec", |c, elements, _| {
        Ok(Box::new(Pcodec::new(c, elements)?))
    })
    .zarr2("pcodec"),
    CodecRow::array_to_bytes("zfp", |c, elements, _| zfp::registered(c, elements)),
    CodecRow::array_to_bytes("numcodecs.zfpy", |c, elements, _| zfp::zfpy(c, elements))
        .zarr2("zfpy"),
    CodecRow::array_to_bytes("imagecodecs_zfp", |c, elements, _| zfp::imagecodecs(c, elements))
        .zarr2("imagecodecs_zfp"),
    CodecRow::array_to_bytes("numcodecs.flac", |_, elements, _| Ok(Box::new(Flac::new(elements)?)))
        .zarr2("flac")
        .read_only(),
    CodecRow::array_to_bytes("wavpack", |_, elements, _| Ok(Box::new(WavPack::new(elements)?)))
        .zarr2("wavpack")
        .read_only(),
    CodecRow::array_to_bytes("imagecodecs_wavpack", |_, elements, _| {
        Ok(Box::new(WavPack::new(elements)?))
    })
    .zarr2("imagecodecs_wavpack")
    .read_only(),
    CodecRow::array_to_bytes("numcodecs.grib", |c, elements, _| grib(c, elements))
        .alias("grib")
        .zarr2("grib")
        .read_only(),
    CodecRow::array_to_bytes("gribberish", |c, elements, _| gribberish(c, elements))
        .alias("numcodecs.gribberish")
        .zarr2("gribberish")
        .read_only(),
    CodecRow::array_to_bytes("numcodecs.pickle", |_, _, _| {
        Err(Error::unsupported("pickle is never decoded: it would run code"))
    })
    .zarr2("pickle"),
    // Array to bytes: images.
    CodecRow::array_to_bytes("imagecodecs_jpeg", jpeg)
        .alias("imagecodecs_jpeg8")
        .zarr2("imagecodecs_jpeg")
        .read_only(),
    CodecRow::array_to_bytes("imagecodecs_mozjpeg", jpeg).zarr2("imagecodecs_mozjpeg").read_only(),
    CodecRow::array_to_bytes("jpeg", jpeg).zarr2("jpeg").read_only(),
    CodecRow::array_to_bytes("imagecodecs_jpeg2k", jpeg2000)
        .zarr2("imagecodecs_jpeg2k")
        .read_only(),
    CodecRow::array_to_bytes("jpeg2k", jpeg2000).zarr2("jpeg2k").read_only(),
    CodecRow::array_to_bytes("imagecodecs_jpegxl", jpegxl).zarr2("imagecodecs_jpegxl").read_only(),
    CodecRow::array_to_bytes("jpegxl", jpegxl).alias("jxl").zarr2("jpegxl").read_only(),
    CodecRow::array_to_bytes("imagecodecs_png", png)
        .alias("imagecodecs_spng")
        .zarr2("imagecodecs_png"),
    CodecRow::array_to_bytes("png", png).zarr2("png"),
    CodecRow::array_to_bytes("imagecodecs_qoi", qoi).alias("qoi").zarr2("imagecodecs_qoi"),
    CodecRow::array_to_bytes("imagecodecs_webp", webp).zarr2("imagecodecs_webp"),
    CodecRow::array_to_bytes("webp", webp).zarr2("webp"),
    // Bytes to bytes: compressors.
    CodecRow::bytes_to_bytes("blosc", |c| Ok(Box::new(Blosc::new(c)?)))
        .alias("numcodecs.blosc")
        .zarr2("blosc")
        .drafts()
        .n5()
        .option()
        .with_defaults(r#"{"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0}"#),
    CodecRow::bytes_to_bytes("gzip", |c| Ok(Box::new(Gzip::new(c)?)))
        .alias("numcodecs.gzip")
        .zarr2("gzip")
        .drafts()
        .n5()
        .option()
        .with_defaults(LEVEL),
    CodecRow::bytes_to_bytes("zstd", |c| Ok(Box::new(Zstd::new(c)?)))
        .alias("numcodecs.zstd")
        .zarr2("zstd")
        .drafts()
        .n5()
        .option()
        .with_defaults(r#"{"level": 3, "checksum": false}"#),
    CodecRow::bytes_to_bytes("numcodecs.zlib", |c| Ok(Box::new(Zlib::new(c)?)))
        .zarr2("zlib")
        .drafts()
        .n5()
        .option()
        .with_defaults(LEVEL),
    CodecRow::bytes_to_bytes("numcodecs.bz2", |c| Ok(Box::new(Bz2::new(c)?)))
        .zarr2("bz2")
        .drafts()
        .n5()
        .option()
        .with_defaults(LEVEL),
    CodecRow::bytes_to_bytes("numcodecs.lzma", |c| Ok(Box::new(Lzma::new(c)?)))
        .zarr2("lzma")
        .drafts()
        .n5()
        .option()
        .with_defaults(r#"{"preset": 6}"#),
    CodecRow::bytes_to_bytes("numcodecs.lz4", |c| Ok(Box::new(Lz4::new(c)?)))
        .zarr2("lz4")
        .drafts()
        .option()
        .with_defaults(r#"{"acceleration": 1}"#),
    CodecRow::bytes_to_bytes("imagecodecs_lzw", |c| Ok(Box::new(Lzw::new(c)?)))
        .zarr2("imagecodecs_lzw"),
    CodecRow::bytes_to_bytes("lzw", |c| Ok(Box::new(Lzw::new(c)?))).zarr2("lzw"),
    CodecRow::bytes_to_bytes("lz4_block_stream", |c| Ok(Box::new(Lz4BlockStream::new(c)?))),
    CodecRow::bytes_to_bytes("conditional", |c| {
        Ok(Box::new(Conditional::new(c, find_bytes_to_bytes)?))
    }),
    // Bytes to bytes: the rest.
    CodecRow::bytes_to_bytes("numcodecs.shuffle", |c| Ok(Box::new(Shuffle::new(c)?)))
        .zarr2("shuffle")
        .option(),
    CodecRow::bytes_to_bytes("shuffle", |c| Ok(Box::new(Shuffle::new(c)?))),
    CodecRow::bytes_to_bytes("crc32c", |c| {
        // The codec of the same name in numcodecs can have a location.
        if c.contains_key("location") {
            return Ok(Box::new(Checksum::crc32c(c)?));
        }
        Ok(Box::new(Crc32c::new(c)?))
    })
    .zarr2("crc32c")
    .option(),
    CodecRow::bytes_to_bytes("numcodecs.crc32c", |c| Ok(Box::new(Checksum::crc32c(c)?)))
        .zarr2("crc32c"),
    CodecRow::bytes_to_bytes("numcodecs.crc32", |c| Ok(Box::new(Checksum::crc32(c)?)))
        .zarr2("crc32"),
    CodecRow::bytes_to_bytes("numcodecs.adler32", |c| Ok(Box::new(Checksum::adler32(c)?)))
        .zarr2("adler32"),
    CodecRow::bytes_to_bytes("numcodecs.fletcher32", |_| Ok(Box::new(Checksum::fletcher32())))
        .zarr2("fletcher32"),
    CodecRow::bytes_to_bytes("numcodecs.jenkins_lookup3", |c| Ok(Box::new(Checksum::lookup3(c)?)))
        .zarr2("jenkins_lookup3"),
    CodecRow::bytes_to_bytes("numcodecs.base64", |_| Ok(Box::new(Base64))).zarr2("base64"),
    // Filters of HDF5 files.
    CodecRow::bytes_to_bytes("hdf5_bitshuffle", |c| Ok(Box::new(Hdf5Bitshuffle::new(c)?)))
        .read_only(),
    CodecRow::bytes_to_bytes("hdf5_filter", hdf5_filter).read_only(),
    // imagecodecs, of bytes.
    CodecRow::imagecodecs("imagecodecs_zlib", imagecodecs::zlib),
    CodecRow::imagecodecs("imagecodecs_zlibng", imagecodecs::zlib),
    CodecRow::imagecodecs("imagecodecs_deflate", imagecodecs::deflate),
    CodecRow::imagecodecs("imagecodecs_isal", imagecodecs::isal),
    CodecRow::imagecodecs("imagecodecs_zopfli", imagecodecs::zopfli),
    CodecRow::imagecodecs("imagecodecs_zstd", imagecodecs::zstd),
    CodecRow::imagecodecs("imagecodecs_lz4", imagecodecs::lz4),
    CodecRow::imagecodecs("imagecodecs_lz4f", |c| Ok(Box::new(Lz4Frame::new(c)?))),
    CodecRow::imagecodecs("imagecodecs_lz4h5", |c| Ok(Box::new(Lz4Hdf5::new(c)?))),
    CodecRow::imagecodecs("imagecodecs_lzf", |c| Ok(Box::new(Lzf::new(c)?))),
    CodecRow::imagecodecs("imagecodecs_blosc", imagecodecs::blosc),
    CodecRow::imagecodecs("imagecodecs_bz2", imagecodecs::bz2),
    CodecRow::imagecodecs("imagecodecs_lzma", imagecodecs::lzma),
    CodecRow::imagecodecs("imagecodecs_snappy", |_| Ok(Box::new(Snappy))),
    CodecRow::imagecodecs("imagecodecs_brotli", |_| Ok(Box::new(Brotli))),
    CodecRow::imagecodecs("imagecodecs_packbits", |_| Ok(Box::new(RunLengths))),
    CodecRow::imagecodecs("imagecodecs_checksum", |c| Ok(Box::new(Checksum::imagecodecs(c)?))),
    // imagecodecs, of elements: in Zarr 3 they get a chunk, in Zarr 2 bytes.
    CodecRow::array_to_array("imagecodecs_quantize", |c, elements, _| {
        Ok(built((Significant::new(c, elements)?, elements.clone())))
    })
    .zarr2("imagecodecs_quantize")
    .per_element(),
    CodecRow::array_to_bytes("imagecodecs_pcodec", |c, elements, _| {
        Ok(Box::new(Pcodec::imagecodecs(c, elements)?))
    })
    .zarr2("imagecodecs_pcodec"),
    CodecRow::array_to_array("imagecodecs_bitorder", |_, elements, _| {
        Ok(built(array_to_array::OfBytes::new(BitOrder, elements)))
    })
    .per_element(),
    CodecRow::zarr2_only("numcodecs.imagecodecs_bitorder", "imagecodecs_bitorder", |_| {
        Ok(Box::new(BitOrder))
    }),
    CodecRow::array_to_array("imagecodecs_delta", |c, elements, _| {
        let codec = Neighbours::delta(c, Items::of(elements))?;
        Ok(built(array_to_array::OfBytes::new(codec, elements)))
    }),
    // virtual-tiff names this for the horizontal predictor of TIFF.
    CodecRow::array_to_array("HorizontalDeltaCodec", |_, elements, _| {
        let codec = Neighbours::delta(&Object::new(), Items::of(elements))?;
        Ok(built(array_to_array::OfBytes::new(codec, elements)))
    }),
    CodecRow::zarr2_only("numcodecs.imagecodecs_delta", "imagecodecs_delta", |c| {
        Ok(Box::new(Neighbours::delta(c, Items::parse("imagecodecs_delta", c)?)?))
    }),
    CodecRow::array_to_array("imagecodecs_xor", |c, elements, _| {
        let codec = Neighbours::xor(c, Items::of(elements))?;
        Ok(built(array_to_array::OfBytes::new(codec, elements)))
    }),
    CodecRow::zarr2_only("numcodecs.imagecodecs_xor", "imagecodecs_xor", |c| {
        Ok(Box::new(Neighbours::xor(c, Items::parse("imagecodecs_xor", c)?)?))
    }),
    CodecRow::array_to_bytes("imagecodecs_byteshuffle", |c, elements, _| {
        of_bytes(BytePlanes::shuffle(c, Items::of(elements))?, elements)
    }),
    CodecRow::zarr2_only("numcodecs.imagecodecs_byteshuffle", "imagecodecs_byteshuffle", |c| {
        let items = Items::parse("imagecodecs_byteshuffle", c)?;
        Ok(Box::new(BytePlanes::shuffle(c, items)?))
    }),
    CodecRow::array_to_bytes("imagecodecs_floatpred", |c, elements, _| {
        of_bytes(BytePlanes::predictor(c, Items::of(elements))?, elements)
    }),
    CodecRow::zarr2_only("numcodecs.imagecodecs_floatpred", "imagecodecs_floatpred", |c| {
        let items = Items::parse("imagecodecs_floatpred", c)?;
        Ok(Box::new(BytePlanes::predictor(c, items)?))
    }),
    CodecRow::array_to_bytes("imagecodecs_bitshuffle", |c, elements, _| {
        of_bytes(BitPlanes::for_items(c, elements.dtype.item_len())?, elements)
    }),
    CodecRow::zarr2_only("numcodecs.imagecodecs_bitshuffle", "imagecodecs_bitshuffle", |c| {
        Ok(Box::new(BitPlanes::new(c)?))
    }),
    CodecRow::array_to_bytes("imagecodecs_float24", |c, elements, _| {
        short_floats(ShortFloats::float24(c)?, elements)
    }),
    CodecRow::zarr2_only("numcodecs.imagecodecs_float24", "imagecodecs_float24", |c| {
        Ok(Box::new(ShortFloats::float24(c)?))
    }),
    CodecRow::array_to_bytes("imagecodecs_bfloat16", |c, elements, _| {
        short_floats(ShortFloats::bfloat16(c)?, elements)
    }),
    CodecRow::zarr2_only("numcodecs.imagecodecs_bfloat16", "imagecodecs_bfloat16", |c| {
        Ok(Box::new(ShortFloats::bfloat16(c)?))
    }),
];

/// Returns a codec from bytes to bytes as one for elements.
fn of_bytes(
    codec: impl BytesToBytes + 'static,
    elements: &ChunkType,
) -> Result<Box<dyn ArrayToBytes>> {
    Ok(Box::new(array_to_bytes::OfBytes::new(codec, elements)?))
}

fn short_floats(codec: ShortFloats, elements: &ChunkType) -> Result<Box<dyn ArrayToBytes>> {
    if elements.dtype != DType::Float(4) {
        let name = elements.dtype.name();
        return Err(Error::unsupported(format!("imagecodecs: {name} is not float32")));
    }
    Ok(Box::new(array_to_bytes::OfBytes::new(codec, elements)?.lossy()))
}

fn bitround(configuration: &Object, elements: &ChunkType, _: usize) -> Result<Built> {
    Ok(unless_identity(BitRound::new(configuration, elements)?, elements.clone()))
}

type BuiltImages = Result<Box<dyn ArrayToBytes>>;

#[cfg(feature = "images")]
fn jpeg(configuration: &Object, elements: &ChunkType, _: usize) -> BuiltImages {
    ImageCodec::build(ImageFormat::Jpeg, configuration, elements)
}

#[cfg(feature = "images")]
fn jpeg2000(configuration: &Object, elements: &ChunkType, _: usize) -> BuiltImages {
    ImageCodec::build(ImageFormat::Jpeg2000, configuration, elements)
}

#[cfg(feature = "images")]
fn jpegxl(configuration: &Object, elements: &ChunkType, _: usize) -> BuiltImages {
    ImageCodec::build(ImageFormat::JpegXl, configuration, elements)
}

#[cfg(feature = "images")]
fn png(configuration: &Object, elements: &ChunkType, _: usize) -> BuiltImages {
    ImageCodec::build(ImageFormat::Png, configuration, elements)
}

#[cfg(feature = "images")]
fn qoi(configuration: &Object, elements: &ChunkType, _: usize) -> BuiltImages {
    ImageCodec::build(ImageFormat::Qoi, configuration, elements)
}

#[cfg(feature = "images")]
fn webp(configuration: &Object, elements: &ChunkType, _: usize) -> BuiltImages {
    ImageCodec::build(ImageFormat::WebP, configuration, elements)
}

#[cfg(not(feature = "images"))]
use {
    without_images as jpeg, without_images as jpeg2000, without_images as jpegxl,
    without_images as png, without_images as qoi, without_images as webp,
};

#[cfg(not(feature = "images"))]
fn without_images(_: &Object, _: &ChunkType, _: usize) -> BuiltImages {
    Err(Error::unsupported("images: this zarrfs was built without the feature images"))
}

#[cfg(feature = "hdf5")]
fn hdf5_filter(configuration: &Object) -> Result<Box<dyn BytesToBytes>> {
    Ok(Box::new(Hdf5Filter::new(configuration)?))
}

#[cfg(not(feature = "hdf5"))]
fn hdf5_filter(_: &Object) -> Result<Box<dyn BytesToBytes>> {
    Err(Error::unsupported("hdf5_filter: this zarrfs was built without the feature hdf5"))
}

#[cfg(feature = "grib")]
fn grib(configuration: &Object, elements: &ChunkType) -> Result<Box<dyn ArrayToBytes>> {
    Ok(Box::new(Grib::kerchunk(configuration, elements)?))
}

#[cfg(feature = "grib")]
fn gribberish(configuration: &Object, elements: &ChunkType) -> Result<Box<dyn ArrayToBytes>> {
    Ok(Box::new(Grib::gribberish(configuration, elements)?))
}

#[cfg(not(feature = "grib"))]
use without_grib as grib;
#[cfg(not(feature = "grib"))]
use without_grib as gribberish;

#[cfg(not(feature = "grib"))]
fn without_grib(_: &Object, _: &ChunkType) -> Result<Box<dyn ArrayToBytes>> {
    Err(Error::unsupported("grib: this zarrfs was built without the feature grib"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{CodecSpec, registry};

    /// The defaults of a row, and values for the members that have no default.
    fn configuration(row: &CodecRow) -> Object {
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
            "short_chunk" => json!({"shape": [2], "codecs": ["bytes"]}),
            "precomputed_chunk" => json!({"codecs": ["bytes"]}),
            "compressed_segmentation" => json!({"block_size": [2, 2, 2]}),
            "shuffle" | "numcodecs.shuffle" => json!({"elementsize": 4}),
            "zfp" => json!({"mode": "reversible"}),
            "hdf5_filter" => json!({"id": 4, "parameters": [0, 8, 8, 8]}),
            "imagecodecs_quantize" => json!({"mode": "scale", "nsd": 2}),
            "numcodecs.imagecodecs_byteshuffle" | "numcodecs.imagecodecs_floatpred" => {
                json!({"shape": [4], "dtype": "<f4"})
            }
            _ => json!({}),
        };
        row.defaults().into_iter().chain(members.as_object().cloned().unwrap_or_default()).collect()
    }

    /// Whether the features of this build have the codec.
    fn is_in_this_build(name: &str) -> bool {
        match name {
            "hdf5_filter" => cfg!(feature = "hdf5"),
            "numcodecs.grib" | "gribberish" => cfg!(feature = "grib"),
            "imagecodecs_jpeg2k" | "jpeg2k" => cfg!(feature = "jpeg2000"),
            "imagecodecs_jpegxl" | "jpegxl" => cfg!(feature = "jpegxl"),
            "jpeg" | "png" | "webp" => cfg!(feature = "images"),
            "imagecodecs_lzw" => true,
            _ => !name.starts_with("imagecodecs_") || cfg!(feature = "images"),
        }
    }

    #[test]
    fn every_row_is_built_for_some_type() {
        let dtypes = [
            DType::Int(4),
            DType::Int(2),
            DType::Uint(1),
            DType::Uint(8),
            DType::Float(8),
            DType::Float(4),
            DType::Bool,
            DType::String,
            DType::VariableBytes,
            DType::Utf32(1),
        ];
        for row in ROWS {
            let build = |dtype: &DType| {
                let spec = CodecSpec::new(row.name, configuration(row));
                let elements = ChunkType { shape: vec![4], dtype: dtype.clone() };
                match row.build {
                    Build::ArrayToArray(_) => {
                        registry::array_to_array(&spec, &elements, 1 << 20).map(drop)
                    }
                    Build::ArrayToBytes(_) => {
                        registry::array_to_bytes(&spec, &elements, 1 << 20).map(drop)
                    }
                    Build::BytesToBytes(_) => registry::bytes_to_bytes(&[spec]).map(drop),
                    Build::Shards | Build::OfPipelines => Ok(()),
                }
            };
            let errors: Vec<_> = dtypes.iter().filter_map(|dtype| build(dtype).err()).collect();
            if row.name == "numcodecs.pickle" {
                assert!(errors.iter().all(|error| error.detail().contains("never decoded")));
            } else if is_in_this_build(row.name) {
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
