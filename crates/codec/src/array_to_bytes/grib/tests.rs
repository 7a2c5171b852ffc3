//! Messages of ecCodes, and messages that are damaged.

use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::array_to_bytes::grib::message::Section;
use crate::dtype::base64_decode;
use zarrfs_base::error::Kind;
use zarrfs_base::width::ToUsize;

/// A message, and what kerchunk's codec returns for it; see `tests/fixtures/grib/generate.py`.
struct MessageRecord {
    name: String,
    var: String,
    message: Vec<u8>,
    values: Vec<u8>,
}

fn records() -> Vec<MessageRecord> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/grib/messages.json");
    let all: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let text = |record: &Value, member: &str| record[member].as_str().unwrap().to_owned();
    let record = |record: &Value| MessageRecord {
        name: text(record, "name"),
        var: text(record, "var"),
        message: base64_decode(&text(record, "message")).unwrap(),
        values: base64_decode(&text(record, "values")).unwrap(),
    };
    all.iter().map(record).collect()
}

fn bound(var: &str, dtype: &DType, count: usize) -> Grib {
    let elements = ChunkType { shape: vec![1, count.try_into().unwrap()], dtype: dtype.clone() };
    let configuration = json!({"var": var, "dtype": dtype.name()});
    Grib::kerchunk(configuration.as_object().unwrap(), &elements).unwrap()
}

impl MessageRecord {
    fn count(&self) -> usize {
        self.values.len() / 8
    }

    fn decode(&self, message: &[u8]) -> Result<Buffer> {
        let message = Bytes::copy_from_slice(message);
        bound(&self.var, &DType::Float(8), self.count()).decode(message)
    }
}

fn record(name: &str) -> MessageRecord {
    records().into_iter().find(|record| record.name == name).unwrap()
}

/// The message of `record` with `bytes` at `offset` of a section.
fn changed(record: &MessageRecord, number: u8, offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut message = record.message.clone();
    let mut start = 16;
    while message[start + 4] != number {
        let len = u32::from_be_bytes(message[start..start + 4].try_into().unwrap());
        start += len.to_usize();
    }
    message[start + offset..][..bytes.len()].copy_from_slice(bytes);
    message
}

#[test]
fn values_are_the_doubles_of_eccodes() {
    let all = records();
    assert!(all.len() > 100);
    for record in all {
        let decoded = record.decode(&record.message);
        if record.name.starts_with("jpeg2000")
            && !record.name.ends_with("missing")
            && !record.name.ends_with("constant")
            && !cfg!(feature = "jpeg2000")
        {
            assert_eq!(decoded.unwrap_err().kind(), Kind::Unsupported, "{}", record.name);
            continue;
        }
        let decoded = decoded.unwrap_or_else(|error| panic!("{}: {error}", record.name));
        assert!(*decoded == *record.values, "{}", record.name);
        let singles: Vec<u8> = record
            .values
            .as_chunks()
            .0
            .iter()
            .flat_map(|bytes| to_single(f64::from_le_bytes(*bytes)).to_le_bytes())
            .collect();
        let codec = bound(&record.var, &DType::Float(4), record.count());
        let decoded = codec.decode(record.message.into()).unwrap();
        assert!(*decoded == *singles, "{} in single precision", record.name);
    }
}

#[expect(clippy::as_conversions, clippy::cast_possible_truncation, reason = "NumPy's cast")]
fn to_single(value: f64) -> f32 {
    value as f32
}

#[test]
fn gribberish_computes_powers_in_its_own_way() {
    let elements = ChunkType { shape: vec![48], dtype: DType::Float(8) };
    let codec = Grib::gribberish(&Object::new(), &elements).unwrap();
    let mut differ = 0;
    let all = records();
    for record in all.iter().filter(|record| record.name.starts_with("scale factors")) {
        let decoded = codec.decode(record.message.clone().into()).unwrap();
        for (found, value) in decoded.as_chunks().0.iter().zip(record.values.as_chunks().0) {
            let (found, value) = (f64::from_le_bytes(*found), f64::from_le_bytes(*value));
            assert!((found - value).abs() <= value.abs() * 1e-14, "{}", record.name);
            differ += usize::from(found.to_bits() != value.to_bits());
        }
    }
    assert!(differ > 0);
    let latitude = json!({"var": "latitude"});
    let refused = Grib::gribberish(latitude.as_object().unwrap(), &elements);
    assert_eq!(refused.unwrap_err().kind(), Kind::Unsupported);
}

#[test]
fn what_is_not_read_is_refused_with_a_sentence() {
    let plain = record("simple 12 bits");
    let bitmap = record("simple bit map");
    let ccsds = record("ccsds noise");
    let complex = record("complex order 2 missing 1");
    let lambert = record("lambert latitude");
    let mut first_edition = plain.message.clone();
    first_edition[7] = 1;
    let len = (first_edition.len() as u32).to_be_bytes();
    first_edition[4..7].copy_from_slice(&len[1..]);
    let mut no_edition = plain.message.clone();
    no_edition[7] = 1;
    let unsupported = [
        (&plain, first_edition, "edition 1 of GRIB; zarrfs reads edition 2"),
        (&plain, changed(&plain, 5, 9, &[0, 61]), "does not read data in template 5.61"),
        (&plain, changed(&plain, 5, 19, &[33]), "numbers of 33 bits"),
        (&bitmap, changed(&bitmap, 6, 5, &[254]), "bit map 254, which it does not contain"),
        (&ccsds, changed(&ccsds, 5, 21, &[0x2e]), "CCSDS compression of 12 bits with flags 46"),
        (&ccsds, changed(&ccsds, 5, 22, &[10]), "blocks of 10"),
        (&complex, changed(&complex, 5, 47, &[3]), "differences of order 3"),
        (
            &lambert,
            changed(&lambert, 3, 12, &[0, 1]),
            "points of this grid, which has template 3.1",
        ),
        (&lambert, changed(&lambert, 3, 14, &[77]), "points of this grid"),
    ];
    for (record, message, sentence) in unsupported {
        let error = record.decode(&message).unwrap_err();
        assert!(error.kind() == Kind::Unsupported && error.detail().contains(sentence), "{error}");
    }
    let corrupt = [
        (&plain, b"not GRIB, but something else".to_vec(), "the chunk is not a GRIB message"),
        (&plain, no_edition, "the message has edition 1"),
        (&plain, changed(&plain, 5, 9, &[4, 0]), "data in template 5.1024"),
        (&plain, plain.message[..100].to_vec(), "bytes, the chunk has 100"),
        (&plain, changed(&plain, 5, 5, &[0, 0, 0, 47]), "47 values, the chunk needs 48"),
        (&plain, changed(&plain, 5, 5, &[255; 4]), "4294967295 values, the chunk needs 48"),
        (&bitmap, changed(&bitmap, 3, 6, &[0, 0, 1, 0]), "256 points, the chunk needs 48"),
        (&bitmap, changed(&bitmap, 6, 6, &[255; 6]), "the bit map does not match"),
        (&plain, changed(&plain, 5, 19, &[32]), "bytes of data do not hold 48 values"),
        (&plain, changed(&plain, 4, 0, &[0, 0, 0, 3]), "no section begins at byte"),
        (&plain, changed(&plain, 4, 4, &[9]), "a section 9"),
        (&plain, changed(&plain, 4, 4, &[3]), ""),
        (&complex, changed(&complex, 5, 31, &[255; 4]), "the groups of numbers do not fit"),
        (&complex, changed(&complex, 5, 42, &[255; 4]), "the groups of numbers do not fit"),
        (&lambert, changed(&lambert, 3, 30, &[255; 8]), "x 4294967295 points"),
    ];
    for (record, message, sentence) in corrupt {
        let Err(error) = record.decode(&message) else {
            assert_eq!(sentence, "");
            continue;
        };
        assert!(error.kind() == Kind::Corrupt && error.detail().contains(sentence), "{error}");
    }
    let error = bound("t", &DType::Float(8), 48).encode(vec![0; 384].into(), &[]).unwrap_err();
    assert!(error.detail().contains("does not write them"), "{error}");
    let elements = ChunkType { shape: vec![48], dtype: DType::Int(4) };
    assert!(Grib::kerchunk(&Object::new(), &elements).is_err());
    let elements = ChunkType { shape: vec![48], dtype: DType::Float(4) };
    let other = json!({"var": "t", "dtype": "float64"});
    assert!(Grib::kerchunk(other.as_object().unwrap(), &elements).is_err());
}

#[test]
fn a_sign_is_the_first_bit() {
    let bytes = [0x80, 0x03, 0xff, 0xff, 0x80, 0, 0, 1];
    let section = Section::new(5, &bytes);
    assert_eq!(section.i16(0).unwrap(), -3);
    assert_eq!(section.i16(2).unwrap(), -0x7fff);
    assert_eq!(section.i32(4).unwrap(), -1);
    assert!(section.i32(5).is_err());
}

proptest! {
    #[test]
    fn a_damaged_message_is_read_or_refused(
        index in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
        is_cut in prop::bool::weighted(0.1),
    ) {
        let all = records();
        let record = index.get(&all);
        let mut message = record.message.clone();
        for (place, byte) in changes {
            // The length of the message and those of the first sections stay.
            let place = 16 + place.index(message.len() - 16);
            message[place] = byte;
        }
        if is_cut {
            message.truncate(end.index(message.len()));
        }
        if let Ok(decoded) = record.decode(&message) {
            prop_assert_eq!(decoded.len(), record.values.len());
        }
    }
}
