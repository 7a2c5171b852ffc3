//! Tests of all codecs: they read what numcodecs wrote, stop at the limit, and never panic.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::json::Object;
use crate::table::{self, CodecKind};
use crate::{BytesToBytes, CodecSpec, registry};
use zarrfs_base::error::Result;
use zarrfs_base::width::ToU64;

/// A value that a program other than zarrfs encoded; see `tests/fixtures/numcodecs/generate.py`.
struct EncodedRecord {
    name: String,
    configuration: Value,
    decoded: Vec<u8>,
    encoded: Vec<u8>,
}

/// The records in a file below `tests/fixtures`.
fn records(file: &str) -> Vec<EncodedRecord> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(file);
    let packed = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let unpacked = Lzma::new(&Object::new()).unwrap().decode(&packed, 1 << 26).unwrap();
    let mut rest = unpacked.as_slice();
    let mut records = Vec::new();
    let part = |rest: &mut &[u8]| {
        let (len, after) = rest.split_first_chunk().unwrap();
        let (part, after) = after.split_at(u32::from_le_bytes(*len).try_into().unwrap());
        *rest = after;
        part.to_vec()
    };
    while !rest.is_empty() {
        let head: Value = serde_json::from_slice(&part(&mut rest)).unwrap();
        let len = head["length"].as_u64().unwrap().try_into().unwrap();
        records.push(EncodedRecord {
            name: head["name"].as_str().unwrap().to_owned(),
            configuration: head["configuration"].clone(),
            decoded: sample(head["kind"].as_str().unwrap(), len),
            encoded: part(&mut rest),
        });
    }
    records
}

/// The bytes of this kind, as `generate.py` makes them.
fn sample(kind: &str, len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut noise = std::iter::repeat_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    });
    match kind {
        "ramp" => (0_u32..).flat_map(u32::to_le_bytes).take(len).collect(),
        "walk" => noise
            .scan(0_u8, |value, noise| {
                *value = value.wrapping_add(noise & 3);
                Some(*value)
            })
            .take(len)
            .collect(),
        "noise" => noise.take(len).collect(),
        "far" => {
            let once: Vec<u8> = noise.by_ref().take(9000).collect();
            once.into_iter().cycle().take(len).collect()
        }
        other => panic!("{other} bytes are not known"),
    }
}

fn codec(name: &str, configuration: &Value) -> Box<dyn BytesToBytes> {
    built(name, configuration).unwrap()
}

fn built(name: &str, configuration: &Value) -> Result<Box<dyn BytesToBytes>> {
    let spec = CodecSpec::new(name, configuration.as_object().unwrap().clone());
    registry::bytes_to_bytes(&[spec]).map(|mut codecs| codecs.remove(0))
}

/// Each codec, in ways that take different paths.
fn codecs() -> Vec<(&'static str, Value)> {
    let mut codecs = vec![
        ("conditional", json!({"codecs": ["zstd", "crc32c", {"name": "gzip"}]})),
        ("crc32c", json!({})),
        ("crc32c", json!({"location": "start"})),
        ("numcodecs.crc32c", json!({})),
        ("gzip", json!({"level": 0})),
        ("gzip", json!({"level": 6})),
        ("numcodecs.adler32", json!({})),
        ("numcodecs.base64", json!({})),
        ("numcodecs.crc32", json!({"location": "end"})),
        ("numcodecs.fletcher32", json!({})),
        ("numcodecs.jenkins_lookup3", json!({"initval": 1, "prefix": "text"})),
        ("numcodecs.bz2", json!({"level": 1})),
        ("lz4_block_stream", json!({})),
        ("numcodecs.lz4", json!({"acceleration": 1})),
        ("imagecodecs_lzw", json!({})),
        ("lzw", json!({})),
        ("numcodecs.lzma", json!({"preset": 0})),
        ("numcodecs.lzma", json!({"preset": 0, "format": 2})),
        ("numcodecs.lzma", json!({"format": 3, "filters": [{"id": 33, "preset": 0}]})),
        ("numcodecs.shuffle", json!({"elementsize": 1})),
        ("shuffle", json!({"element_size": 1})),
        ("numcodecs.zlib", json!({"level": 1})),
        ("zstd", json!({"level": 1, "checksum": true})),
        ("zstd", json!({"level": -9, "checksum": false})),
        ("imagecodecs_zlib", json!({"level": null})),
        ("imagecodecs_zlibng", json!({"level": 99})),
        ("imagecodecs_deflate", json!({"raw": true})),
        ("imagecodecs_isal", json!({"gzip": true})),
        ("imagecodecs_zopfli", json!({"format": "DEFLATE"})),
        ("imagecodecs_zstd", json!({})),
        ("imagecodecs_lz4", json!({"header": false})),
        ("imagecodecs_lz4f", json!({"contentchecksum": true})),
        ("imagecodecs_lz4f", json!({"blocksizeid": 7, "blockchecksum": true})),
        ("imagecodecs_lz4h5", json!({"blocksize": 1000})),
        ("imagecodecs_lzf", json!({})),
        ("imagecodecs_lzf", json!({"header": false})),
        ("imagecodecs_blosc", json!({"compressor": "zlib", "shuffle": "BITSHUFFLE"})),
        ("imagecodecs_bz2", json!({})),
        ("imagecodecs_lzma", json!({"level": 0, "check": "SHA256"})),
        ("imagecodecs_snappy", json!({})),
        ("imagecodecs_brotli", json!({})),
        ("imagecodecs_packbits", json!({"axis": null})),
        ("imagecodecs_checksum", json!({"kind": "h5crc", "prefix": "Y2h1bms="})),
        ("imagecodecs_checksum", json!({"kind": "crc32", "value": 7, "byteorder": "big"})),
        ("numcodecs.imagecodecs_bitorder", json!({})),
        ("numcodecs.imagecodecs_bitshuffle", json!({"blocksize": 64})),
        ("numcodecs.imagecodecs_delta", json!({"shape": null, "dtype": null})),
        ("numcodecs.imagecodecs_xor", json!({})),
    ];
    for cname in ["blosclz", "lz4", "snappy", "zlib", "zstd"] {
        for (shuffle, typesize, blocksize) in [
            ("noshuffle", 1, 0),
            ("shuffle", 4, 0),
            ("shuffle", 3, 300),
            ("bitshuffle", 2, 256),
            ("bitshuffle", 17, 0),
        ] {
            let configuration = json!({
                "cname": cname, "clevel": 3, "shuffle": shuffle, "typesize": typesize,
                "blocksize": blocksize,
            });
            codecs.push(("blosc", configuration));
        }
    }
    codecs
}

#[test]
fn each_codec_of_the_table_that_encodes_is_tried() {
    let codecs = codecs();
    let encodes =
        |row: &&table::CodecRow| row.kind() == CodecKind::BytesToBytes && !row.is_read_only;
    for row in table::ROWS.iter().filter(encodes) {
        let names = codecs.iter().map(|(name, _)| *name).chain(of_elements().map(|(name, _)| name));
        let is_tried = names.into_iter().any(|name| name == row.name || Some(name) == row.alias);
        assert!(is_tried, "{} is not in codecs()", row.name);
    }
}

#[test]
fn data_of_numcodecs_are_read() {
    for file in ["numcodecs/blosc.xz", "numcodecs/codecs.xz"] {
        let records = records(file);
        assert!(records.len() > 20, "{file} has {} records", records.len());
        for EncodedRecord { name, configuration, decoded, encoded } in records {
            let codec = codec(&name, &configuration);
            let what = format!("{file}: {name} {configuration}, {} bytes", decoded.len());
            let actual = codec.decode(&encoded, decoded.len());
            assert!(
                actual.as_ref() == Ok(&decoded),
                "{what}: {:?}",
                actual.map(|bytes| bytes.len())
            );
            assert!(codec.decode(&encoded, decoded.len() + 7).unwrap() == decoded, "{what}");
            if let Some(limit) = decoded.len().checked_sub(1) {
                assert!(codec.decode(&encoded, limit).is_err(), "{what}: limit {limit}");
            }
            // .lzma and its raw form have no checksum, but their ends are marked.
            let cut = encoded.len().saturating_sub(1);
            if name != "numcodecs.shuffle" {
                assert!(codec.decode(&encoded[..cut], decoded.len()).is_err(), "{what}: cut");
            }
            let again = codec.encode(&decoded).unwrap();
            assert!(codec.decode(&again, decoded.len()).unwrap() == decoded, "{what}: encoded");
        }
    }
}

/// The records of bytes-to-bytes codecs in `filters.json`; see `filters.py` next to it.
fn checksums() -> Vec<EncodedRecord> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/numcodecs/filters.json");
    let all: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let bytes = |text: &Value| -> Vec<u8> {
        let pairs = text.as_str().unwrap().as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        pairs.map(byte).collect()
    };
    let record = |record: &Value| EncodedRecord {
        name: record["name"].as_str().unwrap().to_owned(),
        configuration: record["configuration"].clone(),
        decoded: bytes(&record["elements"]),
        encoded: bytes(&record["encoded"]),
    };
    all.iter().filter(|record| record.get("dtype").is_none()).map(record).collect()
}

#[test]
fn checksums_are_those_of_numcodecs() {
    let records = checksums();
    assert!(records.len() > 100, "{} records", records.len());
    for EncodedRecord { name, configuration, decoded, mut encoded } in records {
        let codec = codec(&name, &configuration);
        let what = format!("{name} {configuration}, {} bytes", decoded.len());
        assert!(codec.encode(&decoded).unwrap() == encoded, "{what}");
        assert!(codec.decode(&encoded, decoded.len()).unwrap() == decoded, "{what}");
        assert!(codec.decode(&encoded, decoded.len() - 1).is_err(), "{what}");
        let last = encoded.len() - 1;
        encoded[last] ^= 1;
        let changed = codec.decode(&encoded, decoded.len());
        assert!(name == "numcodecs.base64" || changed.is_err(), "{what}");
    }
}

#[test]
fn base64_may_have_line_breaks() {
    assert_eq!(codec("numcodecs.base64", &json!({})).decode(b"Zm9v\nYg==\n", 4).unwrap(), b"foob");
}

#[test]
fn blosc_frames_are_hardly_longer_than_those_of_numcodecs() {
    for cnames in [&["blosclz"][..], &["lz4", "zlib", "zstd"]] {
        let (mut ours, mut theirs) = (0, 0);
        for EncodedRecord { name, configuration, decoded, encoded } in records("numcodecs/blosc.xz")
        {
            if cnames.contains(&configuration["cname"].as_str().unwrap()) {
                ours += codec(&name, &configuration).encode(&decoded).unwrap().len();
                theirs += encoded.len();
            }
        }
        assert!(ours * 10 < theirs * 11, "{cnames:?}: {ours} bytes, numcodecs has {theirs}");
    }
}

#[test]
fn a_bomb_stops_at_the_limit() {
    let zeros = vec![0; 1 << 22];
    for (name, configuration) in codecs() {
        let codec = codec(name, &configuration);
        let encoded = codec.encode(&zeros).unwrap();
        for limit in [0, 1, 8, 100_000, zeros.len() - 1] {
            let error = codec.decode(&encoded, limit).unwrap_err();
            assert_eq!(error.errno(), libc::EIO, "{name} {configuration}: {error}");
        }
        assert!(codec.decode(&encoded, zeros.len()).unwrap() == zeros, "{name} {configuration}");
    }
}

#[test]
fn a_far_limit_costs_no_memory() {
    for (name, configuration) in codecs() {
        let codec = codec(name, &configuration);
        for decoded in [sample("ramp", 1000), vec![7; 3_000_000]] {
            let encoded = codec.encode(&decoded).unwrap();
            let found = codec.decode(&encoded, 1 << 40);
            let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(found == decoded, "{name}");
            let room = 2 * decoded.len() + 8 * encoded.len() + (1 << 20);
            assert!(found.capacity() <= room, "{name}: room for {} bytes", found.capacity());
        }
    }
}

#[test]
fn nothing_decodes_to_nothing_only_where_it_is_encoded() {
    for (name, configuration) in codecs() {
        let codec = codec(name, &configuration);
        let encoded = codec.encode(b"").unwrap();
        assert_eq!(codec.decode(&encoded, 0).unwrap(), b"", "{name} {configuration}");
        if !encoded.is_empty() {
            assert!(codec.decode(b"", 10).is_err(), "{name} {configuration}");
        }
    }
}

#[test]
fn the_encoded_length_is_right_where_it_is_known() {
    for (name, configuration) in codecs() {
        let codec = codec(name, &configuration);
        if let Some(len) = codec.encoded_len(1000) {
            let actual = codec.encode(&[5; 1000]).unwrap().len();
            assert_eq!(actual.to_u64(), len, "{name} {configuration}");
        }
    }
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_in_one_sentence() {
    for (name, configuration, message) in [
        ("gzip", json!({"level": 12}), "gzip: level 12 is not in 0..=9"),
        ("gzip", json!({"level": -1}), "gzip: level -1 is not in 0..=9"),
        ("gzip", json!({"level": 1e99}), "gzip: level 1e+99 is not in 0..=9"),
        ("gzip", json!({"level": "9"}), "gzip: level \"9\" is not an integer"),
        ("numcodecs.zlib", json!({"level": 10}), "zlib: level 10 is not in -1..=9"),
        ("numcodecs.bz2", json!({"level": 0}), "bz2: level 0 is not in 1..=9"),
        ("zstd", json!({"level": 23}), "zstd: level 23 is not in -131072..=22"),
        ("zstd", json!({"checksum": 1}), "zstd: checksum 1 is not true or false"),
        ("numcodecs.lzma", json!({"format": 4}), "lzma: format 4 is not in 1..=3"),
        ("numcodecs.lzma", json!({"check": 2}), "lzma: check 2 is not known"),
        ("numcodecs.lzma", json!({"preset": 10}), "lzma: preset 10 is not in 0..=9"),
        (
            "numcodecs.shuffle",
            json!({"elementsize": -1}),
            "shuffle: elementsize -1 is not in 0..=4294967295",
        ),
        (
            "numcodecs.crc32",
            json!({"location": "middle"}),
            "crc32: location \"middle\" is neither start nor end",
        ),
        ("blosc", json!({"cname": "lz5"}), "blosc: cname \"lz5\" is not known"),
        ("blosc", json!({"cname": 1}), "blosc: cname 1 is not a string"),
        ("blosc", json!({"clevel": 10}), "blosc: clevel 10 is not in 0..=9"),
        ("blosc", json!({"shuffle": 3}), "blosc: shuffle 3 is not known"),
        ("blosc", json!({"shuffle": "byte"}), "blosc: shuffle \"byte\" is not known"),
        ("blosc", json!({"typesize": 0}), "blosc: typesize 0 is not in 1..=4294967295"),
    ] {
        let error = built(name, &configuration).unwrap_err();
        assert_eq!(error.detail(), message);
        assert_eq!(error.errno(), libc::EINVAL);
    }
}

#[test]
fn members_that_cannot_change_decoding_are_ignored() {
    for (name, configuration) in [
        ("gzip", json!({"level": null, "mtime": 5})),
        ("numcodecs.lz4", json!({"acceleration": 1000})),
        ("blosc", json!({"nthreads": 4, "shuffle": -1})),
        ("crc32c", json!({"location": "end"})),
    ] {
        codec(name, &configuration);
    }
}

#[test]
fn a_name_of_another_kind_or_of_none_is_not_built() {
    for name in ["bytes", "numcodecs.gzip2", "lz4", ""] {
        assert!(built(name, &json!({})).is_err(), "{name}");
    }
}

/// Bytes that compress more or less.
fn chunk() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..3000),
        prop::collection::vec(0..4_u8, 0..3000),
        (prop::collection::vec(any::<u8>(), 1..40), 0..20_000_usize).prop_map(|(once, len)| once
            .into_iter()
            .cycle()
            .take(len)
            .collect()),
    ]
}

/// Changes to encoded bytes: each has a place (of 65536), a kind and a value.
fn changes() -> impl Strategy<Value = Vec<(u16, u8, u8)>> {
    prop::collection::vec((any::<u16>(), 0..6_u8, any::<u8>()), 1..4)
}

fn change(encoded: &mut Vec<u8>, changes: &[(u16, u8, u8)]) {
    for (place, how, byte) in changes {
        // Half of the changes hit the header.
        let len = if how % 2 == 0 { encoded.len().min(40) } else { encoded.len() };
        let at = usize::from(*place) * len / 65536;
        match how {
            0..=2 if at < encoded.len() => encoded[at] = *byte,
            3 if at < encoded.len() => encoded[at] ^= 1 << (byte % 8),
            4 => encoded.truncate(at),
            _ => encoded.insert(at, *byte),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn encoded_bytes_decode_to_the_same(decoded in chunk()) {
        for (name, configuration) in codecs() {
            let codec = codec(name, &configuration);
            let encoded = codec.encode(&decoded).unwrap();
            let actual = codec.decode(&encoded, decoded.len());
            prop_assert_eq!(actual.as_ref(), Ok(&decoded), "{} {}", name, configuration);
        }
    }

    #[test]
    fn any_bytes_decode_within_the_limit_or_not_at_all(
        encoded in prop::collection::vec(any::<u8>(), 0..300),
        limit in 0..10_000_usize,
    ) {
        for (name, configuration) in codecs() {
            if let Ok(decoded) = codec(name, &configuration).decode(&encoded, limit) {
                prop_assert!(decoded.len() <= limit, "{} {}", name, configuration);
            }
        }
    }

    #[test]
    fn changed_bytes_decode_within_the_limit_or_not_at_all(
        decoded in chunk(),
        changes in changes(),
        slack in 0..3_usize,
    ) {
        let limit = decoded.len() * slack;
        for (name, configuration) in codecs() {
            let codec = codec(name, &configuration);
            let mut encoded = codec.encode(&decoded).unwrap();
            change(&mut encoded, &changes);
            if let Ok(decoded) = codec.decode(&encoded, limit) {
                prop_assert!(decoded.len() <= limit, "{} {}", name, configuration);
            }
        }
    }
}

#[test]
fn changed_frames_of_other_writers_decode_within_the_limit_or_not_at_all() {
    let mut state = 7_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [place_low, place_high, how, byte, ..] = state.to_be_bytes();
        (u16::from_le_bytes([place_low, place_high]), how % 4, byte)
    };
    for EncodedRecord { name, configuration, decoded, encoded } in records("numcodecs/blosc.xz") {
        if decoded.len() > 70_000 {
            continue;
        }
        let codec = codec(&name, &configuration);
        for _ in 0..8 {
            let mut encoded = encoded.clone();
            change(&mut encoded, &[next(), next()]);
            if let Ok(actual) = codec.decode(&encoded, decoded.len()) {
                assert!(actual.len() <= decoded.len(), "{name} {configuration}");
            }
        }
    }
}

/// The codecs that take whole elements, with configurations for 24 elements of 4 bytes.
fn of_elements() -> impl Iterator<Item = (&'static str, Value)> {
    let bound = |more: &Value| {
        let mut members = json!({"shape": [4, 6], "dtype": ">f4"});
        let more = more.as_object().unwrap().clone();
        members.as_object_mut().unwrap().extend(more);
        members
    };
    [
        ("numcodecs.imagecodecs_delta", bound(&json!({"axis": 0}))),
        ("numcodecs.imagecodecs_xor", bound(&json!({"axis": -2}))),
        ("numcodecs.imagecodecs_byteshuffle", bound(&json!({"delta": true, "dist": 2}))),
        ("numcodecs.imagecodecs_byteshuffle", bound(&json!({"axis": 0, "reorder": true}))),
        ("numcodecs.imagecodecs_floatpred", bound(&json!({"axis": 1, "dist": 1}))),
        ("numcodecs.imagecodecs_bitshuffle", json!({"itemsize": 4, "blocksize": 8})),
        ("numcodecs.imagecodecs_float24", json!({"byteorder": ">"})),
        ("numcodecs.imagecodecs_bfloat16", json!({"rounding": "UPWARD"})),
    ]
    .into_iter()
}

#[test]
fn codecs_of_elements_restore_them_and_refuse_other_lengths() {
    // Floats that a float of two bytes has, too.
    let decoded: Vec<u8> = (0..24_u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    for (name, configuration) in of_elements() {
        let codec = codec(name, &configuration);
        let encoded = codec.encode(&decoded).unwrap();
        assert_eq!(codec.decode(&encoded, 96).unwrap(), decoded, "{name} {configuration}");
        assert_eq!(codec.encoded_len(96), Some(encoded.len().to_u64()), "{name}");
        assert!(codec.decode(&encoded, 95).is_err(), "{name}: limit");
        assert!(codec.decode(&encoded[..encoded.len() - 1], 96).is_err(), "{name}: cut");
        assert!(codec.encode(&decoded[..95]).is_err(), "{name}: to encode");
    }
}

#[test]
fn elements_that_a_codec_of_imagecodecs_does_not_have_are_refused() {
    for (name, configuration) in [
        ("numcodecs.imagecodecs_delta", json!({"shape": [2], "dtype": "<c8"})),
        ("numcodecs.imagecodecs_delta", json!({"dist": 2})),
        ("numcodecs.imagecodecs_delta", json!({"shape": [2, 2], "axis": 2})),
        ("numcodecs.imagecodecs_delta", json!({"shape": [-1]})),
        ("numcodecs.imagecodecs_xor", json!({"dtype": "|O"})),
        ("numcodecs.imagecodecs_byteshuffle", json!({"shape": [2], "dtype": "|u1"})),
        ("numcodecs.imagecodecs_byteshuffle", json!({"shape": [2, 3], "dtype": "<i4", "dist": 2})),
        ("numcodecs.imagecodecs_floatpred", json!({"shape": [6], "dtype": "<f4", "dist": 3})),
        ("numcodecs.imagecodecs_bitshuffle", json!({"blocksize": 4})),
        ("numcodecs.imagecodecs_float24", json!({"byteorder": "middle"})),
        ("imagecodecs_checksum", json!({"kind": "md5"})),
        ("imagecodecs_checksum", json!({"kind": "crc32", "prefix": "%"})),
        ("imagecodecs_blosc", json!({"compressor": "lz5"})),
        ("imagecodecs_zlib", json!({"level": "high"})),
    ] {
        assert!(built(name, &configuration).is_err(), "{name} {configuration}");
    }
    // The product of the lengths is more than any number of bytes.
    let far = json!({"shape": [1_u64 << 40, 1_u64 << 40], "dtype": "<i4"});
    assert!(codec("numcodecs.imagecodecs_delta", &far).decode(&[0; 16], 16).is_err());
}

#[test]
fn streams_of_other_programs_are_read() {
    // imagecodecs 2026.10.10: brotli_encode(bytes(1 << 22)) and of a sentence at level 11.
    let brotli = codec("imagecodecs_brotli", &json!({}));
    let bomb = [155, 255, 255, 63, 0, 36, 0, 226, 177, 64, 114, 239, 127, 0];
    assert_eq!(brotli.decode(&bomb, 1 << 22).unwrap(), vec![0; 1 << 22]);
    assert!(brotli.decode(&bomb, (1 << 22) - 1).is_err());
    assert!(brotli.decode(&bomb[..13], 1 << 22).is_err());
    assert!(brotli.decode(&[&bomb[..], &[0]].concat(), 1 << 22).is_err());
    let sentence = [
        27, 81, 0, 224, 5, 98, 107, 152, 234, 229, 42, 204, 32, 26, 252, 48, 96, 3, 14, 28, 18,
        200, 159, 100, 96, 28, 54, 198, 222, 212, 78, 208, 174, 39, 13, 9, 59, 40, 62, 151, 224,
        46, 216, 187, 228, 63, 116, 2, 105, 125, 10, 105, 139, 4,
    ];
    let text = "the quick brown fox jumps over the lazy dog and the information of the government ";
    assert_eq!(brotli.decode(&sentence, 82).unwrap(), text.as_bytes());
    // zlib.compressobj(9, zlib.DEFLATED, -15) of abcabcabc.
    let deflate = codec("imagecodecs_deflate", &json!({"raw": true}));
    assert_eq!(deflate.decode(&[75, 76, 74, 78, 4, 35, 0], 9).unwrap(), b"abcabcabc");
    // A single 0 at the end of run lengths is padding.
    let packbits = codec("imagecodecs_packbits", &json!({}));
    assert_eq!(packbits.decode(&[1, 7, 8, 254, 9, 128, 0], 5).unwrap(), [7, 8, 9, 9, 9]);
}

#[test]
fn blocks_of_a_frame_may_need_those_before_them() {
    // The script beside the file made it.
    let path = "../../tests/fixtures/imagecodecs/linked.lz4";
    let linked = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let codec = codec("imagecodecs_lz4f", &json!({}));
    let decoded = sample("far", 70_000);
    assert!(codec.decode(&linked, 70_000).unwrap() == decoded);
    let twice = [&linked[..], &linked].concat();
    assert!(codec.decode(&twice, 140_000).unwrap() == [&decoded[..], &decoded].concat());
    assert!(codec.decode(&linked, 69_999).is_err());
    for at in [2, 4, 5, 6, 7, 30, 9000, linked.len() - 5, linked.len() - 1] {
        let mut changed = linked.clone();
        changed[at] ^= 0x11;
        assert!(codec.decode(&changed, 70_000).is_err(), "byte {at}");
        assert!(codec.decode(&linked[..at], 70_000).is_err(), "{at} bytes");
    }
}

#[test]
fn short_floats_round_as_imagecodecs_does() {
    let floats: [u32; 16] = [
        0,
        2_147_483_648,
        1_065_353_216,
        3_217_031_168,
        786_163_455,
        1_900_671_690,
        2_139_095_040,
        4_286_578_688,
        2_143_289_344,
        1_078_530_011,
        1_199_562_880,
        507_307_272,
        3_568_119,
        541_065_216,
        530_579_456,
        1_065_353_217,
    ];
    let floats: Vec<u8> = floats.into_iter().flat_map(u32::to_le_bytes).collect();
    let words = |bytes: Vec<u8>, len: usize| -> Vec<u32> {
        let word = |item: &[u8]| item.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
        bytes.chunks(len).map(word).collect()
    };
    let zero = [
        0, 8_388_608, 4_128_768, 12_550_144, 1_947_597, 8_323_072, 8_323_072, 16_711_680,
        8_355_840, 4_231_711, 5_177_281, 3022, 0, 49_152, 20_480, 4_128_768,
    ];
    let with = |changes: &[(usize, u32)]| {
        let mut all = zero;
        for (place, value) in changes {
            all[*place] = *value;
        }
        all
    };
    for (rounding, expected) in [
        ("TONEAREST", with(&[(4, 1_947_598), (9, 4_231_712)])),
        ("TOWARDZERO", zero),
        ("UPWARD", with(&[(4, 1_947_598), (9, 4_231_712), (11, 3023), (12, 1), (15, 4_128_769)])),
        ("DOWNWARD", zero),
    ] {
        let codec = codec("numcodecs.imagecodecs_float24", &json!({"rounding": rounding}));
        let encoded = codec.encode(&floats).unwrap();
        assert_eq!(words(encoded, 3), expected, "{rounding}");
    }
    let zero = [
        0, 32_768, 16_256, 49_088, 11_995, 29_001, 32_640, 65_408, 32_704, 16_457, 18_303, 7740,
        54, 8256, 8096, 16_256,
    ];
    let codec = codec("numcodecs.imagecodecs_bfloat16", &json!({"rounding": "TOWARDZERO"}));
    assert_eq!(words(codec.encode(&floats).unwrap(), 2), zero);
}
