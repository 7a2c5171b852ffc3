//! Tests of all formats: they read what imagecodecs wrote, and damaged or other images are errors.

use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::bytes_to_bytes::Lzma;
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::{ArrayToBytes, BytesToBytes, CodecSpec, registry};
use zarrfs_base::error::{Kind, Result};

/// An image of imagecodecs; see `tests/fixtures/imagecodecs/images.py`.
struct ImageRecord {
    name: String,
    configuration: Value,
    elements: ChunkType,
    encoded: Vec<u8>,
    decoded: Vec<u8>,
    /// Whether nothing was lost.
    is_exact: bool,
}

/// The records of the formats that this build reads.
fn records() -> &'static [ImageRecord] {
    static RECORDS: OnceLock<Vec<ImageRecord>> = OnceLock::new();
    RECORDS.get_or_init(|| {
        let path = "../../tests/fixtures/imagecodecs/images.json.xz";
        let packed = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let text = Lzma::new(&Object::new()).unwrap().decode(&packed, 1 << 26).unwrap();
        let records: Vec<Value> = serde_json::from_slice(&text).unwrap();
        records.iter().map(record).filter(|record| is_in_this_build(&record.name)).collect()
    })
}

fn is_in_this_build(name: &str) -> bool {
    (cfg!(feature = "jpeg2000") || name != "imagecodecs_jpeg2k")
        && (cfg!(feature = "jpegxl") || name != "imagecodecs_jpegxl")
}

fn record(value: &Value) -> ImageRecord {
    let bytes = |member: &str| -> Vec<u8> {
        let text = value[member].as_str().unwrap();
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    };
    ImageRecord {
        name: value["name"].as_str().unwrap().to_owned(),
        configuration: value["configuration"].clone(),
        elements: ChunkType {
            shape: value["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect(),
            dtype: DType::parse(value["dtype"].as_str().unwrap()).unwrap(),
        },
        encoded: bytes("encoded"),
        decoded: bytes("decoded"),
        is_exact: value["is_exact"].as_bool().unwrap(),
    }
}

impl ImageRecord {
    fn codec(&self) -> Box<dyn ArrayToBytes> {
        codec(&self.name, &self.configuration, &self.elements).unwrap()
    }

    /// What a message of a failure says about it.
    fn title(&self) -> String {
        format!("{} {} {:?}", self.name, self.configuration, self.elements)
    }
}

fn codec(name: &str, configuration: &Value, elements: &ChunkType) -> Result<Box<dyn ArrayToBytes>> {
    let spec = CodecSpec::new(name, configuration.as_object().unwrap().clone());
    registry::array_to_bytes(&spec, elements, 1 << 20)
}

fn decode(codec: &dyn ArrayToBytes, encoded: &[u8]) -> Result<Vec<u8>> {
    codec.decode(encoded.to_vec().into()).map(|decoded| decoded.to_vec())
}

/// The largest difference between two samples at the same place.
fn difference(dtype: &DType, a: &[u8], b: &[u8]) -> f64 {
    let number = |bytes: &[u8]| match dtype {
        DType::Int(1) => f64::from(bytes[0].cast_signed()),
        DType::Int(_) => f64::from(i16::from_le_bytes([bytes[0], bytes[1]])),
        DType::Float(4) => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        DType::Float(_) => half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        _ => bytes.iter().rev().fold(0.0, |sum, byte| sum * 256.0 + f64::from(*byte)),
    };
    assert_eq!(a.len(), b.len());
    let samples = a.chunks(dtype.item_len()).zip(b.chunks(dtype.item_len()));
    samples.map(|(a, b)| (number(a) - number(b)).abs()).fold(0.0, f64::max)
}

#[test]
fn images_of_imagecodecs_have_the_elements_that_it_reads() {
    assert!(records().len() > 30, "{}", records().len());
    for record in records() {
        let decoded = decode(&*record.codec(), &record.encoded);
        let decoded = decoded.unwrap_or_else(|error| panic!("{}: {error:?}", record.title()));
        let allowed = match (record.name.as_str(), &record.elements.dtype) {
            _ if record.is_exact => 0.0,
            ("imagecodecs_webp", _) => 0.0,
            ("imagecodecs_jpeg", _) => 4.0,
            (_, DType::Float(_)) => 1e-3,
            _ => 1.0,
        };
        let found = difference(&record.elements.dtype, &decoded, &record.decoded);
        assert!(found <= allowed, "{}: {found}", record.title());
    }
}

#[test]
fn jpeg_without_subsampling_differs_from_libjpeg_by_3_at_most() {
    let is_whole = |record: &&ImageRecord| {
        let subsampling = record.configuration["subsampling"].as_str();
        let is_default = record.elements.shape.last() != Some(&3);
        let is_whole = subsampling.map_or(is_default, |text| text == "444");
        record.name == "imagecodecs_jpeg" && is_whole
    };
    let records: Vec<_> = records().iter().filter(is_whole).collect();
    assert!(records.len() > 5);
    for record in records {
        let decoded = decode(&*record.codec(), &record.encoded).unwrap();
        let found = difference(&record.elements.dtype, &decoded, &record.decoded);
        assert!(found <= 3.0, "{}: {found}", record.title());
    }
}

#[test]
fn formats_without_loss_are_written() {
    let mut names = Vec::new();
    for record in records().iter().filter(|record| record.is_exact) {
        if ["imagecodecs_jpegxl", "imagecodecs_jpeg2k"].contains(&record.name.as_str()) {
            continue;
        }
        let codec = record.codec();
        let encoded = codec.encode(record.decoded.clone().into(), &[]).unwrap();
        assert_eq!(decode(&*codec, &encoded).unwrap(), record.decoded, "{}", record.title());
        if record.name == "imagecodecs_qoi" {
            // The format leaves an encoder no choice that matters.
            assert_eq!(encoded, record.encoded, "{}", record.title());
        }
        names.push(record.name.as_str());
    }
    names.dedup();
    assert!(names.len() >= 3, "{names:?}");
    let lossy = records().iter().find(|record| !record.is_exact && record.name.ends_with("webp"));
    let lossy = lossy.unwrap();
    let error = lossy.codec().encode(lossy.decoded.clone().into(), &[]).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error:?}");
}

#[test]
fn a_truncated_image_is_an_error_and_not_a_panic() {
    // Coded bytes without a header have no end either.
    let has_end = |record: &&ImageRecord| record.configuration.get("header").is_none();
    for record in records().iter().filter(has_end) {
        let codec = record.codec();
        let whole = decode(&*codec, &record.encoded).unwrap();
        for len in 0..record.encoded.len() {
            if let Ok(decoded) = decode(&*codec, &record.encoded[..len]) {
                let title = record.title();
                assert!(decoded == whole, "{title}: {len} of {}", record.encoded.len());
            }
        }
        let half = &record.encoded[..record.encoded.len() / 2];
        assert!(decode(&*codec, half).is_err(), "{}", record.title());
    }
}

#[test]
fn bytes_after_an_image_do_not_matter() {
    for record in records().iter().filter(|record| record.configuration.get("header").is_none()) {
        let codec = record.codec();
        let longer = [record.encoded.as_slice(), &[0xff; 100]].concat();
        let decoded = decode(&*codec, &longer)
            .unwrap_or_else(|error| panic!("{}: {error:?}", record.title()));
        assert_eq!(decoded, decode(&*codec, &record.encoded).unwrap(), "{}", record.title());
    }
}

#[test]
fn an_image_of_another_shape_or_type_is_an_error() {
    for record in records() {
        let refused = |shape: Vec<u64>, dtype: DType| {
            let elements = ChunkType { shape, dtype };
            let Ok(codec) = codec(&record.name, &record.configuration, &elements) else { return };
            let error = decode(&*codec, &record.encoded).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{} as {elements:?}", record.title());
        };
        let (shape, dtype) = (&record.elements.shape, &record.elements.dtype);
        for at in 0..shape.len() {
            for len in [shape[at] - 1, shape[at] + 1, shape[at] * 2, 0] {
                let mut other = shape.clone();
                other[at] = len;
                refused(other, dtype.clone());
            }
        }
        // As many elements, of fewer rows.
        if shape.len() > 1 {
            refused(vec![shape.iter().product()], dtype.clone());
        }
        let other = if dtype.item_len() == 1 { DType::Uint(2) } else { DType::Uint(1) };
        refused(shape.clone(), other);
        if *dtype == DType::Float(2) {
            refused(shape.clone(), DType::Uint(2));
        }
    }
}

/// Replaces bytes at a place.
fn patched(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

fn find(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).unwrap()
}

#[test]
fn a_header_of_65535_times_65535_pixels_is_an_error_before_they_are_allocated() {
    for record in records() {
        let bytes = &record.encoded;
        let side = 0xffff_u32.to_be_bytes();
        let bomb = match record.name.as_str() {
            "imagecodecs_jpeg" if !record.configuration["header"].is_string() => {
                patched(bytes, find(bytes, &[0xff, 0xc0]) + 5, &[0xff; 4])
            }
            "imagecodecs_png" => {
                let header = patched(bytes, 16, &[side, side].concat());
                let mut crc = flate2::Crc::new();
                crc.update(&header[12..29]);
                patched(&header, 29, &crc.sum().to_be_bytes())
            }
            "imagecodecs_qoi" => patched(bytes, 4, &[side, side].concat()),
            "imagecodecs_webp" if bytes[12..].starts_with(b"VP8L") => {
                patched(bytes, 21, &[0xff, 0xff, 0xff, 0x0f])
            }
            "imagecodecs_webp" if bytes[12..].starts_with(b"VP8 ") => {
                patched(bytes, find(bytes, &[0x9d, 1, 0x2a]) + 3, &[0xff, 0x3f, 0xff, 0x3f])
            }
            // The part with the pixels is larger than the canvas.
            "imagecodecs_webp" => {
                let at = find(bytes, b"VP8");
                assert_eq!(&bytes[at..at + 4], b"VP8X");
                match bytes.windows(3).position(|window| window == [0x9d, 1, 0x2a]) {
                    Some(at) => patched(bytes, at + 3, &[0xff, 0x3f, 0xff, 0x3f]),
                    None => patched(bytes, find(bytes, b"VP8L") + 9, &[0xff, 0xff, 0xff, 0x0f]),
                }
            }
            "imagecodecs_jpeg2k" => {
                let at = find(bytes, &[0xff, 0x4f, 0xff, 0x51]) + 8;
                let origin = [0; 8];
                let sides = [&side[..], &side, &origin, &side, &side].concat();
                patched(bytes, at, &sides)
            }
            _ => continue,
        };
        let error = decode(&*record.codec(), &bomb).unwrap_err();
        assert!(
            error.detail().contains("an image of shape")
                || error.detail().contains("canvas")
                || error.detail().contains("inconsistent"),
            "{}: {error:?}",
            record.title()
        );
    }
}

#[test]
fn members_that_change_the_elements_are_honoured_or_refused() {
    let elements = ChunkType { shape: vec![4, 4, 3], dtype: DType::Uint(1) };
    for (name, configuration) in [
        ("jpeg", json!({"fancyupsampling": false})),
        ("imagecodecs_jpeg", json!({"colorspace_data": "EXT_BGR"})),
        ("imagecodecs_jpeg", json!({"tables": "~"})),
        ("webp", json!({"index": 1})),
        ("png", json!({"level": "x"})),
        #[cfg(feature = "jpegxl")]
        ("jxl", json!({"index": 1})),
        #[cfg(feature = "jpeg2000")]
        ("jpeg2k", json!({"skipres": 1})),
    ] {
        assert!(codec(name, &configuration, &elements).is_err(), "{name} {configuration}");
    }
    let floats = ChunkType { dtype: DType::Float(8), ..elements };
    assert!(codec("png", &json!({}), &floats).is_err());
}

proptest! {
    #[test]
    fn a_changed_image_is_an_image_or_an_error(
        record in 0..1000_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        in_header in any::<bool>(),
    ) {
        let record = &records()[record % records().len()];
        let mut encoded = record.encoded.clone();
        let part = if in_header { encoded.len().min(120) } else { encoded.len() };
        for (at, byte) in changes {
            encoded[at.index(part)] = byte;
        }
        if let Ok(decoded) = decode(&*record.codec(), &encoded) {
            prop_assert_eq!(decoded.len(), record.decoded.len());
        }
    }
}
