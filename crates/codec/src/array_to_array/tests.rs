//! Tests with data that numcodecs encoded: decoding restores it, and encoding gives the same bytes.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::configuration::NumpyType;
use crate::dtype::DType;
use crate::table::{self, CodecKind};
use crate::{ArrayToArray, ChunkType, CodecSpec, registry};
use zarrfs_base::buffer::Buffer;

fn bytes(hexadecimal: &Value) -> Vec<u8> {
    let digits = hexadecimal.as_str().expect("text").as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16);
    digits.map(|pair| byte(pair).expect("a byte")).collect()
}

/// The records of filters in `filters.json`; see `filters.py` next to it.
fn records() -> Vec<Value> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/numcodecs/filters.json");
    let text = std::fs::read_to_string(path).expect("the fixture");
    let all: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let kind = |record: &Value| table::kind(record["name"].as_str().expect("a name"));
    all.into_iter().filter(|record| kind(record) == CodecKind::ArrayToArray).collect()
}

/// The codec, and the byte order of its output.
fn bound(
    name: &str,
    configuration: &Value,
    dtype: &DType,
    shape: Vec<u64>,
) -> (Vec<Box<dyn ArrayToArray>>, ChunkType) {
    let spec = CodecSpec::new(name, configuration.as_object().expect("an object").clone());
    let elements = ChunkType { shape, dtype: dtype.clone() };
    let (codec, encoded) = registry::array_to_array(&spec, &elements, 1 << 20).expect("built");
    let mut codecs: Vec<Box<dyn ArrayToArray>> = codec.into_iter().collect();
    if makes_big(&spec).expect("a type").unwrap_or_default() {
        codecs.push(Box::new(BigEndian::new(&encoded.dtype).expect("an order")));
    }
    (codecs, encoded)
}

fn encode(codecs: &[Box<dyn ArrayToArray>], elements: Buffer) -> Buffer {
    codecs.iter().fold(elements, |elements, codec| codec.encode(elements).expect("encoded"))
}

fn decode(codecs: &[Box<dyn ArrayToArray>], elements: Buffer) -> Buffer {
    codecs.iter().rev().fold(elements, |elements, codec| codec.decode(elements).expect("decoded"))
}

#[test]
fn filters_do_what_numcodecs_does() {
    let records = records();
    assert!(records.len() > 200, "{} records", records.len());
    for record in records {
        let name = record["name"].as_str().expect("a name");
        let dtype =
            NumpyType::parse(record["dtype"].as_str().expect("a type")).expect("a type").dtype;
        let shape = serde_json::from_value(record["shape"].clone()).expect("a shape");
        let configuration = &record["configuration"];
        let what = format!("{name} {configuration} of {}", record["dtype"]);
        let (codecs, to) = bound(name, configuration, &dtype, shape);
        let encoded = encode(&codecs, bytes(&record["elements"]).into());
        assert_eq!(*encoded, bytes(&record["encoded"]), "{what}: encoded");
        assert_eq!(to.byte_len().expect("short"), Some(encoded.len()), "{what}: length");
        let decoded = decode(&codecs, encoded);
        assert_eq!(*decoded, bytes(&record["decoded"]), "{what}: decoded");
        let is_lossy = codecs.iter().any(|codec| codec.is_lossy());
        assert!(is_lossy || *decoded == bytes(&record["elements"]), "{what}: lost something");
    }
}

#[test]
fn the_last_filter_that_names_a_byte_order_is_believed() {
    let filters = [
        (
            "numcodecs.fixedscaleoffset",
            json!({"offset": 0, "scale": 1, "dtype": ">f4", "astype": ">i2"}),
        ),
        ("numcodecs.delta", json!({"dtype": ">i2", "astype": "<i2"})),
    ];
    let decoded: Vec<u8> = [1_f32, 3.0, 300.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let encoded = |specs: &[CodecSpec]| {
        let chain = registry::CodecChain::sort(specs).expect("known");
        let elements = ChunkType { shape: vec![3], dtype: DType::Float(4) };
        let pipeline = crate::Pipeline::bind(&chain, &[], &elements, 100).expect("bound");
        let encoded = pipeline.encode(decoded.clone().into(), &[]).expect("encoded");
        assert_eq!(*pipeline.decode(encoded.clone()).expect("decoded"), *decoded);
        encoded
    };
    let specs = filters.map(|(name, configuration)| {
        CodecSpec::new(name, configuration.as_object().expect("an object").clone())
    });
    assert_eq!(encoded(&specs[..1]), [0, 1, 0, 3, 1, 44].as_slice());
    assert_eq!(encoded(&specs), [1, 0, 2, 0, 41, 1].as_slice());
}

#[test]
fn a_filter_for_other_elements_is_refused() {
    for (name, configuration) in [
        ("numcodecs.delta", json!({"dtype": "<i2"})),
        ("numcodecs.delta", json!({"dtype": "<M9"})),
        ("numcodecs.delta", json!({"dtype": "<i4", "astype": "<f4"})),
        ("numcodecs.fixedscaleoffset", json!({"dtype": "<i4", "scale": 1})),
        ("numcodecs.fixedscaleoffset", json!({"dtype": "<i4", "scale": "1", "offset": 0})),
        ("numcodecs.quantize", json!({"dtype": "<i4", "digits": 1})),
        ("numcodecs.quantize", json!({"dtype": "<f4"})),
        ("numcodecs.astype", json!({"decode_dtype": "<i4", "encode_dtype": "|S3"})),
        ("numcodecs.bitround", json!({})),
        ("numcodecs.packbits", json!({})),
    ] {
        let spec = CodecSpec::new(name, configuration.as_object().expect("an object").clone());
        let elements = ChunkType { shape: vec![3], dtype: DType::Int(4) };
        assert!(
            registry::array_to_array(&spec, &elements, 1 << 20).is_err(),
            "{name} {configuration}"
        );
    }
}

#[test]
fn the_padding_of_packed_bits_is_checked() {
    let (codecs, _) = bound("numcodecs.packbits", &json!({}), &DType::Bool, vec![5]);
    let decode = |encoded: &[u8]| codecs[0].decode(encoded.to_vec().into());
    assert_eq!(*decode(&[3, 0xb0]).expect("decoded"), [1, 0, 1, 1, 0]);
    for wrong in [&[2, 0xb0][..], &[3], &[], &[3, 0xb0, 0]] {
        assert!(decode(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn integers_are_rounded_from_their_first_bit() {
    // As zarrs 0.23 encodes them.
    let (codecs, _) = bound("bitround", &json!({"keepbits": 3}), &DType::Uint(4), vec![7]);
    let of =
        |numbers: [u32; 7]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let encoded = encode(&codecs, of([0, 1024, 1280, 1664, 1685, 123_145_182, u32::MAX]).into());
    assert_eq!(*encoded, of([0, 1024, 1280, 1536, 1792, 117_440_512, 3_758_096_384]));
}

#[test]
fn texts_of_any_length_are_categorized_too() {
    let configuration = json!({"labels": ["hot", "w\u{e4}rm"], "dtype": "|O"});
    let (codecs, _) = bound("numcodecs.categorize", &configuration, &DType::String, vec![3]);
    let decode = |encoded: &[u8]| decode(&codecs, encoded.to_vec().into());
    let texts = decode(&[2, 0, 1]);
    assert_eq!(*texts, *b"\x03\0\0\0\x05\0\0\0w\xc3\xa4rm\0\0\0\0\x03\0\0\0hot");
    assert_eq!(*encode(&codecs, texts.clone()), [2, 0, 1]);
    assert_eq!(decode(&[2, 9, 1]), texts);
    assert!(codecs[0].encode(vec![3, 0, 0, 0].into()).is_err());
}

#[test]
fn a_reshape_may_come_before_a_transpose() {
    let spec = |name: &str, configuration: Value| {
        CodecSpec::new(name, configuration.as_object().expect("an object").clone())
    };
    let specs =
        [spec("reshape", json!({"shape": [2, 3]})), spec("transpose", json!({"order": [1, 0]}))];
    let chain = registry::CodecChain::sort(&specs).expect("known");
    assert!(chain.order(1).expect("an order").is_none());
    let elements = ChunkType { shape: vec![6], dtype: DType::Uint(1) };
    let pipeline = crate::Pipeline::bind(&chain, &[], &elements, 100).expect("bound");
    let encoded = pipeline.encode(vec![1, 2, 3, 4, 5, 6].into(), &[6]).expect("encoded");
    assert_eq!(encoded, [1, 4, 2, 5, 3, 6].as_slice());
    assert_eq!(*pipeline.decode(encoded).expect("decoded"), [1, 2, 3, 4, 5, 6]);
}

proptest! {
    #[test]
    fn lossless_filters_restore_every_byte(source in prop::collection::vec(any::<u8>(), 0..200)) {
        for (name, configuration, dtype) in [
            ("numcodecs.delta", json!({"dtype": "<i2"}), DType::Int(2)),
            ("numcodecs.delta", json!({"dtype": ">u8", "astype": ">i8"}), DType::Uint(8)),
            ("numcodecs.delta", json!({"dtype": "<i1", "astype": "<i4"}), DType::Int(1)),
            ("numcodecs.astype", json!({"decode_dtype": "<f2", "encode_dtype": "<f8"}), DType::Float(2)),
            ("numcodecs.astype", json!({"decode_dtype": "<i4", "encode_dtype": ">f8"}), DType::Int(4)),
            ("numcodecs.packbits", json!({}), DType::Bool),
        ] {
            let count = source.len() / dtype.item_len();
            let mut elements = source[..count * dtype.item_len()].to_vec();
            if dtype == DType::Bool {
                for byte in &mut elements {
                    *byte &= 1;
                }
            }
            let (codecs, _) = bound(name, &configuration, &dtype, vec![count as u64]);
            prop_assert!(codecs.iter().all(|codec| !codec.is_lossy()), "{}", name);
            let decoded = decode(&codecs, encode(&codecs, elements.clone().into()));
            prop_assert_eq!(&*decoded, &*elements, "{} {}", name, configuration);
        }
    }

    #[test]
    fn any_bytes_are_filtered(source in prop::collection::vec(any::<u8>(), 0..100)) {
        for record in records().into_iter().step_by(7) {
            let name = record["name"].as_str().expect("a name");
            let dtype = record["dtype"].as_str().expect("a type");
            let dtype = NumpyType::parse(dtype).expect("a type").dtype;
            let (codecs, _) = bound(name, &record["configuration"], &dtype, vec![3]);
            for codec in &codecs {
                let _ = codec.decode(source.clone().into());
                let _ = codec.encode(source.clone().into());
            }
        }
    }
}

#[test]
fn floats_are_quantized_as_by_imagecodecs() {
    // imagecodecs 2026.10.10: quantize_encode(floats, mode, nsd).
    let floats = [
        0x0000_0000_u32,
        0x8000_0000,
        0x3f80_0000,
        0xbfc0_0000,
        0x2edb_e6ff,
        0x7149_f2ca,
        0x4049_0fdb,
        0x477f_e080,
        0x4020_0000,
        0xbe00_0000,
        0x7cf0_0000,
    ];
    let bytes =
        |floats: &[u32]| -> Vec<u8> { floats.iter().flat_map(|f| f.to_le_bytes()).collect() };
    let with = |changes: &[(usize, u32)]| {
        let mut all = floats;
        for (place, bits) in changes {
            all[*place] = *bits;
        }
        bytes(&all)
    };
    for (mode, nsd, expected) in [
        (
            "bitround",
            5,
            with(&[(4, 786_169_856), (5, 1_900_544_000), (6, 1_078_460_416), (7, 1_199_570_944)]),
        ),
        (
            "bitround",
            0,
            with(&[
                (3, 3_221_225_472),
                (4, 788_529_152),
                (5, 1_904_214_016),
                (6, 1_082_130_432),
                (7, 1_199_570_944),
                (8, 1_073_741_824),
            ]),
        ),
        ("bitround", 23, with(&[])),
        ("scale", 2, with(&[(4, 0), (6, 1_078_525_952)])),
        (
            "scale",
            0,
            with(&[
                (3, 3_221_225_472),
                (4, 0),
                (6, 1_077_936_128),
                (7, 1_199_563_008),
                (8, 1_077_936_128),
                (9, 2_147_483_648),
            ]),
        ),
    ] {
        let configuration = json!({"mode": mode, "nsd": nsd});
        let (codecs, _) = bound("imagecodecs_quantize", &configuration, &DType::Float(4), vec![11]);
        let encoded = encode(&codecs, bytes(&floats).into());
        assert_eq!(*encoded, expected, "{mode} {nsd}");
        assert_eq!(*decode(&codecs, encoded), expected, "{mode} {nsd}");
        assert!(codecs[0].is_lossy());
    }
    let bitgroom = json!({"mode": "bitgroom", "nsd": 3});
    let (codecs, _) = bound("imagecodecs_quantize", &bitgroom, &DType::Float(8), vec![1]);
    assert_eq!(*decode(&codecs, vec![1; 8].into()), [1; 8]);
    assert!(codecs[0].encode(vec![1; 8].into()).is_err());
}
