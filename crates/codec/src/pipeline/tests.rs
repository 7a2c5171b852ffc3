use super::*;
use crate::dtype::DType;

fn spec(name: &str, configuration: &str) -> CodecSpec {
    CodecSpec::new(name, serde_json::from_str(configuration).expect("an object"))
}

fn bind(specs: &[CodecSpec], shape: &[u64], dtype: DType) -> Pipeline {
    let chain = CodecChain::sort(specs).expect("known codecs");
    let elements = ChunkType { shape: shape.to_vec(), dtype };
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
fn an_encoded_chunk_of_another_length_is_damage_where_all_have_one() {
    let checked = spec("crc32c", "{}");
    let compressed = spec("gzip", r#"{"level": 1}"#);
    for (specs, expected) in
        [(vec![], Some(6)), (vec![checked], Some(10)), (vec![compressed], None)]
    {
        let pipeline = bind(&specs, &[3], DType::Uint(2));
        for len in [0, 5, 6, 10, 11] {
            let is_known = pipeline.check_encoded_len(&vec![0; len]);
            match expected {
                Some(right) => assert_eq!(is_known.ok(), (len == right).then_some(true)),
                None => assert_eq!(is_known.ok(), Some(false)),
            }
        }
    }
}

#[test]
fn a_chunk_that_its_codecs_make_too_long_to_read_is_not_encoded() {
    let base64 = || spec("numcodecs.base64", "{}");
    let len = 3 << 20;
    let encoded = |count: usize| {
        let specs: Vec<CodecSpec> = (0..count).map(|_| base64()).collect();
        let pipeline = bind(&specs, &[len], DType::Uint(1));
        pipeline.encode(Buffer::zeroed(3 << 20).expect("memory"), &[len])
    };
    assert_eq!(encoded(2).expect("short enough").len(), 5_592_408);
    let error = encoded(3).expect_err("more than twice as long");
    assert_eq!(error.errno(), libc::EFBIG);
    assert_eq!(
        error.detail(),
        "the codecs make 7456544 bytes of a chunk of at most 3145728, and 7340032 can be read again"
    );
}

#[test]
fn a_chunk_of_strings_is_decoded_within_little_memory_at_first() {
    let specs = [spec("vlen-utf8", "{}"), spec("gzip", r#"{"level": 1}"#)];
    let chain = CodecChain::sort(&specs).expect("known codecs");
    let elements = ChunkType { shape: vec![1], dtype: DType::String };
    let pipeline = Pipeline::bind(&chain, &[], &elements, 1 << 40).expect("bound");
    let usual = pipeline.usual_len();
    assert!(usual < pipeline.longest() && pipeline.decoder_memory(usual) == FORMS * usual);
    let text = [&1_u32.to_le_bytes()[..], &1_000_u32.to_le_bytes(), &[b'x'; 1000]].concat();
    let encoded = pipeline.encode(text.clone().into(), &[1]).expect("encoded");
    assert!(pipeline.decode_within(encoded.clone(), 1007).is_err());
    assert_eq!(*pipeline.decode_within(encoded, 1008).expect("decoded"), *text);
    let numbers = bind(&specs[1..], &[1000], DType::Uint(2));
    assert_eq!(numbers.usual_len(), numbers.longest());
    assert_eq!(numbers.decoder_memory(numbers.longest()), FORMS * 2000);
}

#[test]
fn a_codec_that_is_not_known_is_named_unless_it_may_be_left_out() {
    let mut unknown = spec("homeopathy", "{}");
    let error = CodecChain::sort(std::slice::from_ref(&unknown)).expect_err("unknown");
    assert!(error.to_string().contains("homeopathy"), "{error}");
    assert_eq!(error.errno(), libc::EOPNOTSUPP);
    unknown.optional = true;
    assert!(CodecChain::sort(&[unknown]).expect("left out").bytes_to_bytes.is_empty());
}

#[test]
fn no_form_between_two_codecs_is_much_longer_than_a_chunk_may_be() {
    let bound = |spec: CodecSpec, count: u64, dtype: DType, max_len: u64| {
        let chain = CodecChain { array_to_array: vec![spec], ..CodecChain::default() };
        Pipeline::bind(&chain, &[], &ChunkType { shape: vec![count], dtype }, max_len)
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

#[test]
fn elements_are_reversed_once_where_a_filter_and_bytes_name_big_endian() {
    let filter = |astype: &str| {
        let configuration =
            format!(r#"{{"offset": 32768, "scale": 1, "dtype": "<u2", "astype": "{astype}"}}"#);
        spec("numcodecs.fixedscaleoffset", &configuration)
    };
    for (astype, endian, stored) in [
        ("<i2", "little", [1, 0]),
        ("<i2", "big", [0, 1]),
        (">i2", "big", [0, 1]),
        (">i2", "little", [0, 1]),
    ] {
        let bytes = spec("bytes", &format!(r#"{{"endian": "{endian}"}}"#));
        let pipeline = bind(&[filter(astype), bytes], &[1], DType::Uint(2));
        let decoded = 32_769_u16.to_le_bytes();
        let encoded = pipeline.encode(decoded.to_vec().into(), &[1]).expect("encoded");
        assert_eq!(*encoded, stored, "{astype} {endian}");
        assert_eq!(*pipeline.decode(encoded).expect("decoded"), decoded);
    }
}
