use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::super::Lzma;
use super::frame::{FrameHeader, HEADER_LEN, MIN_BUFFER_LEN, STORED_FLAG, UNSPLIT_FLAG};
use super::*;
use zarrfs_base::error::Kind;
use zarrfs_base::width::ToUsize;

fn blosc(configuration: &Value) -> Blosc {
    Blosc::new(configuration.as_object().unwrap()).unwrap()
}

const CNAMES: [&str; 5] = ["blosclz", "lz4", "snappy", "zlib", "zstd"];

/// 4096 bytes and their frame.
fn frame(cname: &str, shuffle: i32) -> (Vec<u8>, Vec<u8>) {
    let decoded: Vec<u8> = (0..1024_u32).flat_map(|i| (i / 9).to_le_bytes()).collect();
    let configuration = json!({
        "cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": 4
    });
    let encoded = blosc(&configuration).encode(&decoded).unwrap();
    assert_eq!(encoded[2] & STORED_FLAG, 0);
    (decoded, encoded)
}

fn decode(encoded: &[u8]) -> Result<Vec<u8>> {
    blosc(&json!({})).decode(encoded, 1 << 20)
}

#[test]
fn frames_of_older_and_other_builds_of_c_blosc_are_read() {
    // From the directory `compat` of C-Blosc: according to filegen.c, all of them decode to this.
    let expected: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/c-blosc");
    for name in [
        "1.3.0-blosclz",
        "1.3.0-snappy",
        "1.11.1-lz4hc",
        "1.14.0-snappy",
        "1.18.0-blosclz-bitshuffle",
    ] {
        let packed = std::fs::read(directory.join(format!("{name}.xz"))).unwrap();
        let frame = Lzma::new(&Object::new()).unwrap().decode(&packed, 1 << 20).unwrap();
        let decoded = blosc(&json!({})).decode(&frame, expected.len());
        assert!(
            decoded.as_ref() == Ok(&expected),
            "{name}: {:?}",
            decoded.map(|bytes| bytes.len())
        );
        assert!(blosc(&json!({})).decode(&frame, expected.len() - 1).is_err(), "{name}");
    }
}

#[test]
fn an_empty_chunk_is_a_stored_frame_as_numcodecs_writes_it() {
    // numcodecs.Blosc().encode(b"")
    let theirs = [2, 1, 0x33, 1, 0, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0];
    assert_eq!(decode(&theirs).unwrap(), b"");
    let ours = blosc(&json!({})).encode(b"").unwrap();
    assert_eq!(ours, [2, 1, 0x12, 1, 0, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0]);
}

#[test]
fn every_cname_makes_frames_that_say_it() {
    for (cname, number) in
        [("blosclz", 0), ("lz4", 1), ("lz4hc", 1), ("snappy", 2), ("zlib", 3), ("zstd", 4)]
    {
        for shuffle in 0..=2 {
            let (decoded, encoded) = frame(cname, shuffle);
            assert_eq!(encoded[2] >> 5, number, "{cname}");
            assert!(encoded.len() < decoded.len() / 2, "{cname}: {} bytes", encoded.len());
            assert!(decode(&encoded).unwrap() == decoded, "{cname}");
        }
    }
}

#[test]
fn both_shuffles_and_every_spelling_of_them_are_known() {
    for (shuffle, typesize, flags) in [
        (json!(0), 4, 0),
        (json!("noshuffle"), 4, 0),
        (json!(1), 4, 1),
        (json!("shuffle"), 4, 1),
        (json!(2), 4, 4),
        (json!("bitshuffle"), 4, 4),
        (json!(-1), 4, 1),
        (json!(-1), 1, 4),
        (json!(null), 4, 1),
    ] {
        let codec = blosc(&json!({"cname": "zstd", "shuffle": shuffle, "typesize": typesize}));
        let encoded = codec.encode(&[9; 1000]).unwrap();
        assert_eq!(encoded[2] & 5, flags, "{shuffle} {typesize}");
    }
}

#[test]
fn incompressible_data_are_stored_uncompressed() {
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    })
    .take(5000)
    .collect();
    for cname in CNAMES {
        let codec = blosc(&json!({"cname": cname}));
        let encoded = codec.encode(&noise).unwrap();
        assert_eq!(encoded.len(), 5016);
        assert_eq!(codec.decode(&encoded, 5000).unwrap(), noise);
    }
}

#[test]
fn items_longer_than_255_bytes_are_taken_for_single_bytes() {
    let encoded = blosc(&json!({"typesize": 256})).encode(&[9; 1024]).unwrap();
    assert_eq!(encoded[3], 1);
}

#[test]
fn a_range_is_decoded_from_its_blocks_and_no_others() {
    let decoded: Vec<u8> = (0..100_000_u32).flat_map(|i| (i / 9).to_le_bytes()).collect();
    let codec = blosc(&json!({"typesize": 4, "blocksize": 25_000}));
    let mut encoded = codec.encode(&decoded).unwrap();
    let block_len = (u32::from_le_bytes(encoded[8..12].try_into().unwrap())).to_usize();
    assert_eq!(block_len, 100_000);
    encoded.truncate(encoded.len() - 1); // Of the last block.
    let len = u32::try_from(encoded.len()).unwrap();
    encoded[12..16].copy_from_slice(&len.to_le_bytes());
    assert!(codec.decode(&encoded, decoded.len()).is_err());
    let part = |range: Range<usize>| codec.decode_range(&encoded, decoded.len(), range);
    for (range, blocks) in [(0..1, 1), (99_999..100_001, 2), (100_000..200_000, 1), (7..7, 1)] {
        let found = part(range.clone()).unwrap().expect("of a few blocks");
        assert!(found.bytes == decoded[range] && found.decoded == blocks * block_len);
    }
    assert_eq!(part(99_999..200_001).unwrap(), None, "most of the blocks");
    assert!(part(399_999..400_000).is_err());
    let stored = blosc(&json!({"clevel": 0})).encode(&decoded).unwrap();
    let found = codec.decode_range(&stored, decoded.len(), 3..9).unwrap().expect("all ranges");
    assert!(found.bytes == decoded[3..9] && found.decoded == 6);
}

#[test]
fn headers_that_lie_are_refused() {
    let (decoded, valid) = frame("lz4", 1);
    assert_eq!(decode(&valid).unwrap(), decoded);
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = valid.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        decode(&changed).unwrap_err()
    };
    assert_eq!(with(0, &[5]).detail(), "blosc: frame of version 5, not 2");
    let second = with(0, &[5, 1, valid[2] | 0b101]);
    assert_eq!(second.detail(), "blosc: frame of version 5 (Blosc2), not 2");
    assert_eq!(second.kind(), Kind::Unsupported);
    assert_eq!(with(1, &[2]).detail(), "blosc: codec of version 2, not 1");
    assert_eq!(with(2, &[0xf1]).detail(), "blosc: codec 7 is not known");
    assert_eq!(with(2, &[0x29]).kind(), Kind::Corrupt);
    assert_eq!(with(2, &[0x32]).kind(), Kind::Corrupt);
    assert_eq!(with(3, &[0]).detail(), "blosc: typesize is 0");
    assert_eq!(with(4, &[255; 4]).detail(), "blosc: decodes to more than 1048576 bytes");
    assert_eq!(with(4, &[0, 0, 16, 0]).kind(), Kind::Corrupt);
    assert_eq!(with(8, &[0; 4]).detail(), "blosc: blocks of 0 bytes in 4096");
    assert_eq!(with(8, &[255; 4]).detail(), "blosc: blocks of 4294967295 bytes in 4096");
    assert_eq!(with(8, &[1, 0, 0, 0]).kind(), Kind::Corrupt);
    assert_eq!(with(12, &[0; 4]).kind(), Kind::Corrupt);
    assert_eq!(with(16, &[255; 4]).kind(), Kind::Corrupt);
    assert!(decode(&valid[..15]).is_err());
    assert!(decode(&valid[..valid.len() - 1]).is_err());
}

#[test]
fn each_codec_reports_a_broken_split() {
    for cname in CNAMES {
        let (_, mut encoded) = frame(cname, 0);
        let len = encoded.len();
        // The last 2 bytes of the last split, which zlib checks and the others need.
        encoded[len - 2..].fill(0xff);
        encoded.truncate(len - 1);
        let encoded_len = u32::try_from(len - 1).unwrap();
        encoded[12..16].copy_from_slice(&encoded_len.to_le_bytes());
        let error = decode(&encoded).unwrap_err();
        assert!(error.detail().starts_with("blosc: block "), "{cname}: {error}");
    }
}

#[test]
fn blosclz_that_overflowed_c_blosc_is_an_error() {
    // c-blosc#405: the length of a match grows by 255 per byte until 32 bits are full.
    let mut split = vec![0, b'a', 0xe0];
    split.resize(8_500_000, 255);
    split.extend([0, 0]);
    let block_len = 1_u32 << 20;
    let len = u32::try_from(split.len()).unwrap();
    let header = FrameHeader {
        flags: UNSPLIT_FLAG,
        item_len: 1,
        decoded_len: block_len,
        block_len,
        encoded_len: len + 24,
    };
    let mut encoded = header.to_bytes().concat();
    encoded.extend(20_u32.to_le_bytes());
    encoded.extend(len.to_le_bytes());
    encoded.extend(split);
    let error = decode(&encoded).unwrap_err();
    assert!(error.detail().ends_with("that are not blosclz"), "{error}");
}

#[test]
fn a_frame_is_the_same_however_many_threads_have_made_it() {
    let mut state = 1_u32;
    let decoded: Vec<u8> = (0..1_500_007_u32)
        .map(|at| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (at / 4).to_le_bytes()[(at % 4).to_usize()] ^ (state.to_be_bytes()[0] >> 6)
        })
        .collect();
    for cname in CNAMES {
        let codec = blosc(&json!({"cname": cname, "clevel": 3, "typesize": 4, "blocksize": 65536}));
        // More frames than processors: some threads get help and some do not.
        let encode = || codec.encode(&decoded).unwrap();
        let frames: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(encode)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let alone = encode();
        assert!(frames.iter().all(|frame| *frame == alone), "{cname}");
        assert!(codec.decode(&alone, decoded.len()).unwrap() == decoded, "{cname}");
    }
}

/// A length near the limit of a block, a split or a frame.
fn border(item_len: usize, block_len: usize) -> impl Strategy<Value = usize> {
    let places = [0, MIN_BUFFER_LEN, MIN_BUFFER_LEN * item_len, block_len, block_len * 3, 1 << 16];
    let near = (
        prop::sample::select(places.to_vec()),
        0..5_usize,
        prop::sample::select(vec![1, item_len]),
    );
    prop_oneof![
        near.prop_map(|(place, step, by)| (place + step * by).saturating_sub(2 * by)),
        0..400_000_usize,
    ]
}

fn lens() -> impl Strategy<Value = (usize, usize, usize)> {
    let item_len = prop_oneof![1..20_usize, prop::sample::select(vec![2, 4, 8, 255])];
    let block_len = prop_oneof![Just(0_usize), 1..1000_usize, 60_000..140_000_usize];
    (item_len, block_len).prop_flat_map(|(item_len, block_len)| {
        (Just(item_len), Just(block_len), border(item_len, block_len))
    })
}

proptest! {
    #[test]
    fn frames_of_any_shape_decode_to_what_was_encoded(
        cname in prop::sample::select(CNAMES.to_vec()),
        shuffle in 0..3,
        level in 0..10_u32,
        (item_len, block_len, len) in lens(),
        kind in 0..4,
        seed in any::<u32>(),
        wanted in prop::collection::vec(any::<prop::sample::Index>(), 2),
    ) {
        let mut state = seed;
        let decoded: Vec<u8> = (0..u32::try_from(len).unwrap())
            .map(|at| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let [noise, ..] = state.to_be_bytes();
                match kind {
                    0 => noise,
                    1 => noise >> 6,
                    2 => (at / 4).to_le_bytes()[(at % 4).to_usize()],
                    _ => u8::from(noise == 7),
                }
            })
            .collect();
        // The highest levels of zstd take seconds.
        let level = if cname == "zstd" { level.min(5) } else { level };
        let codec = blosc(&json!({
            "cname": cname, "shuffle": shuffle, "clevel": level, "typesize": item_len,
            "blocksize": block_len,
        }));
        let encoded = codec.encode(&decoded).unwrap();
        prop_assert!(encoded.len() <= decoded.len() + HEADER_LEN);
        prop_assert!(codec.decode(&encoded, len).unwrap() == decoded);
        let mut ends: Vec<usize> = wanted.iter().map(|at| at.index(len + 1)).collect();
        ends.sort_unstable();
        if let Some(part) = codec.decode_range(&encoded, len, ends[0]..ends[1]).unwrap() {
            prop_assert!(part.bytes == decoded[ends[0]..ends[1]]);
            prop_assert!(part.decoded >= part.bytes.len() && part.decoded <= len);
        }
        prop_assert!(codec.decode_range(&encoded, len + 1, ends[0]..ends[1]).is_err());
    }
}
