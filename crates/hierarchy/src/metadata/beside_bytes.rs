//! Lists of codecs in which `bytes` stands beside another codec that produces bytes.
//!
//! Such codecs have been array-to-array or bytes-to-bytes codecs in some library, and are
//! array-to-bytes codecs in the one that zarrfs follows. The encoded chunks are the same:
//!
//! - In imagecodecs 2026.5 the shuffles were filters, which produced elements; now they produce
//!   bytes.
//! - virtual-tiff gives the bytes of a chunk to an image codec. Its `ChunkyCodec` is `bytes` with
//!   the first dimension fastest, because the samples of a pixel lie beside each other in a TIFF.
//!   Its predictor of floats is that of TIFF: it takes rows of whole pixels as they are stored,
//!   most significant byte first, whatever the list says of their order. virtual-tiff 0.5 fails to
//!   read such rows of several samples.
//!
//! <https://github.com/virtual-zarr/virtual-tiff>

use serde_json::json;

use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::DType;
use zarrfs_codec::json::Object;

/// Those that `bytes` may follow.
const SHUFFLES: [&str; 3] =
    ["imagecodecs_bitshuffle", "imagecodecs_byteshuffle", "imagecodecs_floatpred"];

/// Those that may follow `bytes`.
const IMAGES: [&str; 5] = [
    "imagecodecs_jpeg",
    "imagecodecs_jpeg2k",
    "imagecodecs_jpegxl",
    "imagecodecs_png",
    "imagecodecs_webp",
];

/// Leaves one codec that produces bytes, for elements of `dtype`.
pub(super) fn settle(codecs: &mut Vec<CodecSpec>, dtype: &DType) -> Result<()> {
    if let Some(at) = codecs.iter().position(|codec| codec.name == "ChunkyCodec") {
        let order = Object::from_iter([("order".to_owned(), json!("F"))]);
        let mut chunky = codecs.remove(at);
        "bytes".clone_into(&mut chunky.name);
        // Stored metadata of virtual-tiff never name the order.
        chunky.configuration.entry("endian").or_insert_with(|| json!("little"));
        codecs.splice(at..at, [CodecSpec::new("transpose", order), chunky]);
        if codecs.first().is_some_and(is_predictor_of_tiff) {
            let mut predictor = codecs.remove(0);
            predictor.configuration.insert("axis".to_owned(), json!(-2));
            codecs.insert(at, predictor);
        }
    }
    let is_big = |bytes: &CodecSpec| {
        bytes.configuration.get("endian").is_some_and(|endian| endian == "big")
            && dtype.component_len() > 1
    };
    let mut place = None;
    for (at, pair) in codecs.windows(2).enumerate() {
        let [first, second] = pair else { continue };
        let is_shuffle = SHUFFLES.contains(&first.name.as_str());
        let is_swapped = is_big(second) && !is_predictor_of_tiff(first);
        if second.name == "bytes" && is_shuffle && !is_swapped {
            place = Some(at + 1);
        } else if first.name == "bytes" && IMAGES.contains(&second.name.as_str()) {
            if is_big(first) {
                let detail = "an image after bytes in big-endian order is not supported";
                return Err(Error::unsupported(detail).at(second.written()));
            }
            place = Some(at);
        }
    }
    if let Some(place) = place {
        codecs.remove(place);
    }
    Ok(())
}

/// Whether virtual-tiff named the codec: it gives it a shape, as in Zarr 2.
fn is_predictor_of_tiff(codec: &CodecSpec) -> bool {
    codec.name == "imagecodecs_floatpred" && codec.configuration.contains_key("shape")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(names: &[&str], dtype: &DType) -> Result<Vec<String>> {
        let mut codecs: Vec<CodecSpec> =
            names.iter().map(|name| CodecSpec::new(name, Object::new())).collect();
        settle(&mut codecs, dtype)?;
        Ok(codecs.into_iter().map(|codec| codec.name).collect())
    }

    #[test]
    fn one_codec_that_produces_bytes_is_left() {
        let pixels = DType::Uint(1);
        for (names, left) in [
            (&["bytes", "imagecodecs_jpeg"][..], &["imagecodecs_jpeg"][..]),
            (&["imagecodecs_floatpred", "bytes", "gzip"], &["imagecodecs_floatpred", "gzip"]),
            (&["transpose", "ChunkyCodec"], &["transpose", "transpose", "bytes"]),
            (&["ChunkyCodec", "imagecodecs_webp"], &["transpose", "imagecodecs_webp"]),
            (&["bytes", "imagecodecs_lzw"], &["bytes", "imagecodecs_lzw"]),
        ] {
            assert_eq!(settled(names, &pixels).expect("settled"), left, "{names:?}");
        }
    }

    #[test]
    fn the_predictor_of_tiff_takes_rows_of_pixels_as_they_are_stored() {
        let big = || Object::from_iter([("endian".to_owned(), json!("big"))]);
        let name = "imagecodecs_floatpred";
        let shape = Object::from_iter([("shape".to_owned(), json!([3, 16, 32]))]);
        let predictor = CodecSpec::new(name, shape);
        let transpose = CodecSpec::new("transpose", Object::new());
        let mut codecs = vec![predictor.clone(), transpose, CodecSpec::new("ChunkyCodec", big())];
        settle(&mut codecs, &DType::Float(4)).expect("settled");
        let names: Vec<&str> = codecs.iter().map(|codec| codec.name.as_str()).collect();
        assert_eq!(names, ["transpose", "transpose", name]);
        let moved = codecs.pop().expect("the predictor");
        assert_eq!(moved.configuration.get("axis"), Some(&json!(-2)));
        let mut codecs = vec![predictor.clone(), CodecSpec::new("bytes", big())];
        settle(&mut codecs, &DType::Float(4)).expect("settled");
        assert_eq!(codecs, [predictor]);
        let mut others = vec![CodecSpec::new(name, Object::new()), CodecSpec::new("bytes", big())];
        settle(&mut others, &DType::Float(4)).expect("settled");
        assert_eq!(others.len(), 2, "imagecodecs swaps the bytes of its own");
    }

    #[test]
    fn an_image_of_swapped_bytes_is_refused() {
        let big = Object::from_iter([("endian".to_owned(), json!("big"))]);
        let codecs =
            [CodecSpec::new("bytes", big), CodecSpec::new("imagecodecs_jpeg2k", Object::new())];
        settle(&mut codecs.to_vec(), &DType::Uint(2)).expect_err("swapped");
        settle(&mut codecs.to_vec(), &DType::Uint(1)).expect("no order");
    }
}
