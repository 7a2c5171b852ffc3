//! Tests of the whole codec: it reads what wavpack-numcodecs and imagecodecs wrote, and damaged or
//! other streams are errors.

use std::sync::OnceLock;

use proptest::prelude::*;

use super::*;
use crate::array_to_bytes::tests::{Record, read};

/// The chunks in `wavpack.json.xz` and `imagecodecs.json.xz` of `tests/fixtures/electrophysiology`.
fn records() -> &'static [Record] {
    static RECORDS: OnceLock<Vec<Record>> = OnceLock::new();
    RECORDS.get_or_init(|| {
        let names = ["wavpack", "imagecodecs"];
        names.iter().flat_map(|name| read(&format!("electrophysiology/{name}.json.xz"))).collect()
    })
}

fn codec(count: u64, dtype: DType) -> WavPack {
    WavPack::new(&ChunkType { shape: vec![count], dtype }).unwrap()
}

fn decode(record: &Record, encoded: &[u8]) -> Result<Vec<u8>> {
    let codec = WavPack::new(&record.elements).unwrap();
    codec.decode(encoded.to_vec().into()).map(|decoded| decoded.to_vec())
}

fn find(shape: &[u64], dtype: DType) -> &'static Record {
    let elements = ChunkType { shape: shape.to_vec(), dtype };
    records().iter().find(|record| record.elements == elements && record.is_exact).unwrap()
}

#[test]
fn chunks_of_wavpack_numcodecs_and_imagecodecs_have_the_elements_that_they_read() {
    assert!(records().len() > 100, "{}", records().len());
    let mut wrong = Vec::new();
    for record in records() {
        let decoded = decode(record, &record.encoded);
        if decoded.as_ref() != Ok(&record.decoded) {
            let error = decoded.err();
            wrong.push(format!("{:?} {:?} {error:?}", record.elements, record.configuration));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

/// A stream of one block of each pair of channels.
fn small() -> &'static Record {
    find(&[300, 3], DType::Int(2))
}

/// The places in a header.
const VERSION: usize = 8;
const ALL_SAMPLES: usize = 12;
const INDEX: usize = 16;
const SAMPLES: usize = 20;
const FLAGS: usize = 24;

/// Returns a stream without the checksums of the bytes of its blocks.
fn unchecked(record: &Record) -> Vec<u8> {
    let mut encoded = record.encoded.clone();
    for at in blocks(&encoded) {
        encoded[at + FLAGS + 3] &= !0x10;
    }
    encoded
}

/// Returns the place of each block.
fn blocks(encoded: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut at = 0;
    while at < encoded.len() {
        places.push(at);
        let len = u32::from_le_bytes(encoded[at + 4..at + 8].try_into().unwrap());
        at += usize::try_from(len).unwrap() + 8;
    }
    places
}

#[test]
fn records_are_of_all_modes() {
    let is_lossy = |record: &&Record| !record.is_exact;
    assert!(records().iter().filter(is_lossy).count() > 40);
    for level in 1..=4 {
        assert!(records().iter().any(|record| record.configuration["level"] == level), "{level}");
    }
    for dtype in [DType::Int(1), DType::Int(2), DType::Int(4), DType::Float(4)] {
        let count = records().iter().filter(|record| record.elements.dtype == dtype).count();
        assert!(count > 10, "{}: {count}", dtype.name());
    }
    let stereo = blocks(&small().encoded);
    assert_eq!(stereo.len(), 2);
    assert_eq!(decode(small(), &unchecked(small())).unwrap(), small().decoded);
}

#[test]
fn a_truncated_stream_is_an_error_and_not_a_panic() {
    for record in [small(), find(&[400, 2], DType::Float(4)), find(&[700], DType::Int(4))] {
        for encoded in [record.encoded.clone(), unchecked(record)] {
            for len in 0..encoded.len() {
                decode(record, &encoded[..len]).unwrap_err();
            }
        }
    }
}

#[test]
fn a_changed_byte_is_detected_by_a_checksum() {
    for record in [small(), find(&[300, 3], DType::Float(4))] {
        for at in 0..record.encoded.len() {
            let mut changed = record.encoded.clone();
            changed[at] ^= 0x04;
            decode(record, &changed).unwrap_err();
        }
    }
}

#[test]
fn a_stream_of_another_length_or_another_type_is_an_error() {
    for count in [0, 1, 299, 897, 899, 903, 1 << 40] {
        let error = codec(count, DType::Int(2)).decode(small().encoded.clone().into()).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{count}: {error}");
    }
    for dtype in [DType::Int(1), DType::Int(4), DType::Float(4)] {
        let error = codec(900, dtype).decode(small().encoded.clone().into()).unwrap_err();
        assert!(error.detail().contains("has 2 bytes"), "{error}");
    }
    let integers = find(&[300, 3], DType::Int(4));
    let error = codec(900, DType::Float(4)).decode(integers.encoded.clone().into()).unwrap_err();
    assert!(error.detail().contains("integer"), "{error}");
    for dtype in [DType::Uint(4), DType::Int(8), DType::Float(8)] {
        let error = WavPack::new(&ChunkType { shape: vec![900], dtype }).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    }
}

#[test]
fn a_header_that_claims_other_samples_is_an_error_before_memory_is_taken() {
    let with = |changes: &[(usize, u8)]| {
        let mut encoded = unchecked(small());
        for (at, byte) in changes {
            encoded[*at] = *byte;
        }
        decode(small(), &encoded)
    };
    // 2^31 samples in all, in one block, and in both.
    with(&[(ALL_SAMPLES + 3, 0x80)]).unwrap_err();
    with(&[(SAMPLES + 3, 0x80)]).unwrap_err();
    with(&[(ALL_SAMPLES + 3, 0x80), (SAMPLES + 3, 0x80)]).unwrap_err();
    with(&[(ALL_SAMPLES - 1, 1)]).unwrap_err();
    // An unknown number of samples is that of the chunk.
    let unknown: Vec<(usize, u8)> = (ALL_SAMPLES..INDEX).map(|at| (at, 0xff)).collect();
    assert_eq!(with(&unknown).unwrap(), small().decoded);
    // Blocks that begin elsewhere, are mono, are not the first or the last, have 1 bit.
    with(&[(INDEX, 1)]).unwrap_err();
    let flags = small().encoded[FLAGS..][..4].to_vec();
    with(&[(FLAGS, flags[0] | 4)]).unwrap_err();
    with(&[(FLAGS + 1, flags[1] & !8)]).unwrap_err();
    with(&[(FLAGS + 1, flags[1] | 0x10)]).unwrap_err();
    let error = with(&[(FLAGS + 3, flags[3] & !0x10 | 0x80)]).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    let error = with(&[(VERSION, 2)]).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
}

#[test]
fn a_stream_with_a_block_too_many_or_too_few_is_an_error() {
    let places = blocks(&small().encoded);
    let (first, second) = small().encoded.split_at(places[1]);
    assert_eq!(decode(small(), &[first, second].concat()).unwrap(), small().decoded);
    let streams =
        [vec![], vec![first], vec![second], vec![second, first], vec![first, first, second]];
    for stream in streams {
        decode(small(), &stream.concat()).unwrap_err();
    }
    decode(small(), &[first, second, second].concat()).unwrap_err();
    decode(small(), &[first, second, first, second].concat()).unwrap_err();
    assert!(codec(0, DType::Int(2)).decode(Bytes::new()).unwrap().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Without a checksum of the bytes, the decoder reads what was changed.
    #[test]
    fn a_changed_block_is_samples_or_an_error(
        index in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        within in prop_oneof![Just(160_usize), Just(20_000)],
    ) {
        let is_small = |record: &&Record| record.encoded.len() < 4000;
        let small: Vec<&Record> = records().iter().filter(is_small).collect();
        let record = index.get(&small);
        let mut encoded = unchecked(record);
        let len = encoded.len().min(within);
        for (at, byte) in changes {
            encoded[at.index(len)] = byte;
        }
        if let Ok(decoded) = decode(record, &encoded) {
            prop_assert_eq!(decoded.len(), record.decoded.len());
        }
    }

    #[test]
    fn any_bytes_are_a_stream_or_not(
        kept in 0..160_usize,
        rest in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let encoded = [&unchecked(small())[..kept], &rest].concat();
        let _ = decode(small(), &encoded);
    }
}
