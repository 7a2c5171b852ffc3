//! Streams of zfpy 1.0.1, and damaged ones.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::dtype::DType;

type Build = fn(&Object, &ChunkType) -> Result<Box<dyn ArrayToBytes>>;

fn built(build: Build, configuration: &Value, dtype: DType, shape: &[u64]) -> Result<Codec> {
    let elements = ChunkType { shape: shape.to_vec(), dtype };
    build(configuration.as_object().unwrap(), &elements)
}

type Codec = Box<dyn ArrayToBytes>;

fn bytes(hexadecimal: &str) -> Bytes {
    let byte = |at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap();
    (0..hexadecimal.len()).step_by(2).map(byte).collect()
}

/// The doubles 0, 0.5 .. 4.
fn doubles() -> Vec<u8> {
    (0..9_u8).flat_map(|n| (f64::from(n) / 2.0).to_le_bytes()).collect()
}

/// The streams of `zfpy.compress_numpy` for these doubles in a shape of 3 and 3.
const STREAMS: [(&str, &str); 4] = [
    ("rate 12", "7a667005270000200000f00b0588436114218ad04460060000000000000000000000000000000000"),
    ("precision 16", "7a667005270000200000f0800588436114218ad0446006000000000000000000"),
    ("tolerance 0.1", "7a667005270000200000f0ca0588436114218ad0446006000000000000000000"),
    ("reversible", "7a667005270000200000008809b020c01184400603000000"),
];

fn configurations() -> [Value; 4] {
    [
        json!({"mode": 2, "rate": 12.0, "tolerance": -1, "precision": -1}),
        json!({"mode": 3, "precision": 16, "compression_kwargs": {"precision": 16}}),
        json!({"mode": 4, "tolerance": 0.1}),
        json!({"tolerance": -1}),
    ]
}

#[test]
fn streams_of_zfpy_are_those_that_zarrfs_writes() {
    for ((mode, stream), configuration) in STREAMS.into_iter().zip(configurations()) {
        let codec = built(zfpy, &configuration, DType::Float(8), &[3, 3]).unwrap();
        let encoded = codec.encode(doubles().into(), &[]).unwrap();
        assert_eq!(encoded, bytes(stream), "{mode}");
        let decoded = codec.decode(encoded).unwrap();
        assert_eq!(codec.is_lossy(), mode != "reversible");
        assert!(mode != "reversible" || *decoded == doubles(), "{mode}");
        let pairs = decoded.as_chunks().0.iter().zip(0..9_u8);
        for (double, n) in pairs {
            let error = f64::from_le_bytes(*double) - f64::from(n) / 2.0;
            assert!(error.abs() < 0.1, "{mode}: {n}");
        }
    }
}

#[test]
fn the_header_decides_how_a_stream_is_decoded() {
    for (_, stream) in STREAMS {
        for shape in [&[3_u64, 3][..], &[9], &[1, 9, 1]] {
            let codec = built(zfpy, &json!({"mode": 1}), DType::Float(8), shape).unwrap();
            assert_eq!(codec.decode(bytes(stream)).unwrap().len(), 72);
        }
        for (dtype, shape) in [
            (DType::Float(4), &[3, 3][..]),
            (DType::Int(8), &[3, 3]),
            (DType::Float(8), &[3, 4]),
            (DType::Float(8), &[]),
        ] {
            let codec = built(zfpy, &json!({}), dtype, shape).unwrap();
            assert!(codec.decode(bytes(stream)).is_err());
        }
    }
}

#[test]
fn a_truncated_stream_is_an_error_and_so_is_one_that_is_too_long() {
    for (mode, stream) in STREAMS {
        let codec = built(zfpy, &json!({}), DType::Float(8), &[3, 3]).unwrap();
        let stream = bytes(stream);
        for len in 0..stream.len() {
            assert!(codec.decode(stream.slice(..len)).is_err(), "{mode}: {len} bytes");
        }
        let longer = [&stream[..], &[0; 8]].concat();
        assert!(codec.decode(longer.into()).is_err(), "{mode}");
    }
}

#[test]
fn all_codecs_restore_numbers_that_they_do_not_round() {
    let dtypes = [4, 8].map(DType::Int).into_iter().chain([4, 8].map(DType::Float));
    let more = [1, 2].map(DType::Int).into_iter().chain([1, 2, 4, 8].map(DType::Uint));
    let reversible = json!({"mode": "reversible"});
    let builds: [(Build, Value); 4] = [
        (registered, reversible),
        (zfpy, json!({})),
        (imagecodecs, json!({"mode": null, "header": true})),
        (imagecodecs, json!({"mode": "REVERSIBLE", "header": false})),
    ];
    for (place, (build, configuration)) in builds.iter().enumerate() {
        let dtypes = dtypes.clone().chain(more.clone().filter(|_| place == 0));
        for dtype in dtypes {
            for shape in [&[][..], &[7], &[5, 3], &[1, 4, 5], &[2, 3, 4, 5]] {
                let len = shape.iter().product::<u64>() as usize * dtype.item_len();
                // Below the largest number of the signed type.
                let decoded: Vec<u8> = (0..len).map(|at| (at * 37 % 100) as u8).collect();
                let codec = built(*build, configuration, dtype.clone(), shape).unwrap();
                let encoded = codec.encode(decoded.clone().into(), &[]).unwrap();
                assert_eq!(*codec.decode(encoded).unwrap(), decoded, "{place} {dtype:?} {shape:?}");
            }
        }
    }
}

#[test]
fn what_zfp_does_not_have_is_refused() {
    let shape = [2; 5];
    for (build, configuration) in [
        (registered as Build, json!({"mode": "reversible"})),
        (zfpy, json!({"mode": 2, "rate": 8})),
        (imagecodecs, json!({})),
    ] {
        assert!(built(build, &configuration, DType::Float(4), &shape).is_err());
        assert!(built(build, &configuration, DType::Complex(8), &[4]).is_err());
    }
    for configuration in [
        json!({}),
        json!({"mode": "fixed_rate"}),
        json!({"mode": "fixed_rate", "rate": -1}),
        json!({"mode": "fixed_rate", "rate": 1e300}),
        json!({"mode": "fixed_precision", "precision": 1.5}),
        json!({"mode": "fixed_accuracy", "tolerance": "small"}),
        json!({"mode": "expert", "minbits": 1, "maxbits": 0, "maxprec": 1, "minexp": 0}),
        json!({"mode": "expert", "minbits": 1}),
    ] {
        assert!(
            built(registered, &configuration, DType::Float(4), &[4]).is_err(),
            "{configuration}"
        );
    }
    assert!(built(zfpy, &json!({}), DType::Uint(4), &[4]).is_err());
    assert!(built(imagecodecs, &json!({"mode": "FIXED_RATE"}), DType::Float(4), &[4]).is_err());
    let codec = built(registered, &json!({"mode": "reversible"}), DType::Uint(4), &[1]).unwrap();
    let error = codec.encode(u32::MAX.to_le_bytes().to_vec().into(), &[]).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
}

#[test]
fn parameters_of_an_expert_are_used() {
    let expert =
        json!({"mode": "expert", "minbits": 1, "maxbits": 16658, "maxprec": 64, "minexp": -1074});
    let codec = built(registered, &expert, DType::Float(8), &[3, 3]).unwrap();
    let accuracy = json!({"mode": "fixed_accuracy", "tolerance": 0});
    let same = built(registered, &accuracy, DType::Float(8), &[3, 3]).unwrap();
    let encoded = codec.encode(doubles().into(), &[]).unwrap();
    assert_eq!(encoded, same.encode(doubles().into(), &[]).unwrap());
    assert_eq!(*same.decode(encoded).unwrap(), doubles());
}

proptest! {
    #[test]
    fn any_bytes_are_numbers_or_not(
        stream in 0..4_usize,
        at in 0..200_usize,
        byte in any::<u8>(),
        rest in prop::collection::vec(any::<u8>(), 0..40),
        has_rest in any::<bool>(),
    ) {
        let mut encoded = bytes(STREAMS[stream].1).to_vec();
        let at = at % encoded.len();
        encoded[at] = byte;
        if has_rest {
            encoded.truncate(at);
            encoded.extend(rest);
        }
        for build in [zfpy as Build, imagecodecs] {
            for (dtype, shape) in [(DType::Float(8), &[3, 3][..]), (DType::Int(4), &[2, 2, 2, 2])] {
                let codec = built(build, &json!({}), dtype.clone(), shape).unwrap();
                if let Ok(decoded) = codec.decode(encoded.clone().into()) {
                    let count = shape.iter().product::<u64>() as usize;
                    prop_assert_eq!(decoded.len(), count * dtype.item_len());
                }
            }
        }
    }
}
