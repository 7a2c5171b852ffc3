use super::*;
use crate::dtype::DType;

fn spec(name: &str, configuration: &str) -> CodecSpec {
    CodecSpec::new(name, serde_json::from_str(configuration).expect("an object"))
}

fn bind(specs: &[CodecSpec], shape: &[u64], dtype: DType) -> Pipeline {
    let chain = Chain::sort(specs).expect("known codecs");
    let elements = Elements { shape: shape.to_vec(), dtype };
    Pipeline::bind(&chain, &[], &elements, 1 << 20).expect("bound")
}

#[test]
fn byte_order_and_dimensions_are_undone_in_the_right_order() {
    let specs = [spec("transpose", r#"{"order": [1, 0]}"#), spec("bytes", r#"{"endian": "big"}"#)];
    let pipeline = bind(&specs, &[2, 2], DType::Int(2));
    // Section 18.2 of the dialects: 1 2 / 4 5 in F order and big endian.
    let stored = Bytes::from_static(&[0, 1, 0, 4, 0, 2, 0, 5]);
    let decoded = pipeline.decode(stored.clone()).expect("decoded");
    assert_eq!(*decoded, [1, 0, 2, 0, 4, 0, 5, 0]);
    assert_eq!(pipeline.encode(decoded, &[2, 2]).expect("encoded"), stored);
}

#[test]
fn a_chunk_of_another_length_is_damage() {
    let pipeline = bind(&[], &[3], DType::Uint(2));
    let error = pipeline.decode(Bytes::from_static(&[0; 5])).expect_err("too short");
    assert_eq!(error.to_string(), "5 bytes decoded, the chunk needs 6");
    assert!(pipeline.encode(vec![0; 7].into(), &[3]).is_err());
}

#[test]
fn a_codec_that_is_not_known_is_named_unless_it_may_be_left_out() {
    let mut unknown = spec("homeopathy", "{}");
    let error = Chain::sort(std::slice::from_ref(&unknown)).expect_err("unknown");
    assert!(error.to_string().contains("homeopathy"), "{error}");
    assert_eq!(error.errno(), libc::EOPNOTSUPP);
    unknown.optional = true;
    assert!(Chain::sort(&[unknown]).expect("left out").bytes_to_bytes.is_empty());
}

#[test]
fn no_form_between_two_codecs_is_much_longer_than_a_chunk_may_be() {
    let bound = |spec: CodecSpec, count: u64, dtype: DType, max_len: u64| {
        let chain = Chain { array_to_array: vec![spec], ..Chain::default() };
        Pipeline::bind(&chain, &[], &Elements { shape: vec![count], dtype }, max_len)
    };
    let categorize = |max_len| {
        let spec = spec("numcodecs.categorize", r#"{"labels": ["x"], "dtype": "|O"}"#);
        bound(spec, 4 << 20, DType::String, max_len)
    };
    assert!(categorize(2 << 20).is_ok());
    assert_eq!(
        categorize(1 << 20).expect_err("too long").detail(),
        "a chunk has 4194304 bytes after codec numcodecs.categorize, the limit is 3145728: twice \
         the decoded chunk and 1 MiB (--max-chunk-size is 1048576)"
    );
    let cast = |max_len| {
        let spec = spec("cast_value", r#"{"data_type": "float64"}"#);
        bound(spec, 1 << 20, DType::Uint(1), max_len)
    };
    assert!(cast(8 << 20).is_ok());
    assert_eq!(
        cast(4 << 20).expect_err("too long").detail(),
        "a chunk has 8388608 bytes after codec cast_value, the limit is 4194304 (--max-chunk-size)"
    );
}
