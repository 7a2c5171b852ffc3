//! `numcodecs.pcodec` {level?, `mode_spec`?, `equal_pages_up_to`?, ..}: the elements as a
//! standalone file of Pcodec.
//!
//! Encoding follows the configured level, mode and pages; Pcodec chooses the rest. Its decoder
//! limits the tables that a file declares to about 2^24 numbers. Length: depends on the values.
//!
//! <https://numcodecs.readthedocs.io/en/stable/compression/pcodec.html>,
//! <https://github.com/pcodec/pcodec/blob/main/docs/format.md>

use bytes::Bytes;
use half::f16;
use pco::data_types::Number;
use pco::standalone::{simple_compress, simple_decompress_into};
use pco::{ChunkConfig, ModeSpec, PagingSpec};
use serde_json::Value;

use crate::configuration::count;
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToBytes;
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::ToUsize;

/// The codec, bound to a length and a type.
#[derive(Debug)]
pub struct Pcodec {
    config: ChunkConfig,
    count: usize,
    decode: fn(&[u8], usize) -> Result<Buffer>,
    encode: fn(&[u8], &ChunkConfig) -> Result<Bytes>,
}

/// A number type of Pcodec.
trait Plain: Number + Default {
    /// The length of a number in bytes.
    const LEN: usize;
    fn from_bytes(bytes: &[u8]) -> Self;
    fn push_to(self, bytes: &mut Vec<u8>);
}

macro_rules! plain {
    ($($number:ty: $len:literal),*) => {$(
        impl Plain for $number {
            const LEN: usize = $len;

            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap_or_default())
            }

            fn push_to(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

plain!(u8: 1, u16: 2, u32: 4, u64: 8, i8: 1, i16: 2, i32: 4, i64: 8, f16: 2, f32: 4, f64: 8);

impl Pcodec {
    /// Returns the codec with this configuration, for chunks of `elements`.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<Self> {
        let level = count("pcodec", configuration, "level", 8, 0..=12)?;
        let page = count("pcodec", configuration, "equal_pages_up_to", 1 << 18, 1..=1 << 24)?;
        let size = |n: u32| n.to_usize();
        let mode = match configuration.get("mode_spec").and_then(Value::as_str) {
            Some("classic") => ModeSpec::Classic,
            Some(_) | None => ModeSpec::Auto,
        };
        let config = ChunkConfig::default()
            .with_compression_level(size(level))
            .with_mode_spec(mode)
            .with_paging_spec(PagingSpec::EqualPagesUpTo(size(page)))
            .with_enable_8_bit(true);
        let bound = match &elements.dtype {
            DType::Uint(1) => Self::bound::<u8>,
            DType::Uint(2) => Self::bound::<u16>,
            DType::Uint(4) => Self::bound::<u32>,
            DType::Uint(_) => Self::bound::<u64>,
            DType::Int(1) => Self::bound::<i8>,
            DType::Int(2) => Self::bound::<i16>,
            DType::Int(4) => Self::bound::<i32>,
            DType::Int(_) | DType::Time(_) => Self::bound::<i64>,
            DType::Float(2) => Self::bound::<f16>,
            DType::Float(4) => Self::bound::<f32>,
            DType::Float(_) => Self::bound::<f64>,
            other => {
                let what = format!("pcodec: {} is not supported", other.name());
                return Err(Error::unsupported(what));
            }
        };
        Ok(bound(config, elements.count()?))
    }

    /// Returns the codec of imagecodecs with this configuration, for chunks of `elements`.
    pub fn imagecodecs(configuration: &Object, elements: &ChunkType) -> Result<Self> {
        let names = [("level", "level"), ("pagesize", "equal_pages_up_to")];
        let member = |(from, to): (&str, &str)| {
            let value = configuration.get(from).filter(|value| !value.is_null())?;
            Some((to.to_owned(), value.clone()))
        };
        Self::new(&names.into_iter().filter_map(member).collect(), elements)
    }

    fn bound<T: Plain>(config: ChunkConfig, count: usize) -> Self {
        Self { config, count, decode: decode::<T>, encode: encode::<T> }
    }
}

fn decode<T: Plain>(encoded: &[u8], count: usize) -> Result<Buffer> {
    let mut numbers: Vec<T> = Vec::new();
    let no_memory = |_| Error::new(Kind::NoMemory, format!("cannot allocate {count} numbers"));
    numbers.try_reserve_exact(count).map_err(no_memory)?;
    numbers.resize(count, T::default());
    let progress = simple_decompress_into(encoded, &mut numbers)
        .map_err(|error| Error::corrupt(format!("pcodec: {error}")))?;
    if !progress.finished || progress.n_processed != count {
        let found = progress.n_processed;
        let more = if progress.finished { "" } else { " and more" };
        return Err(Error::corrupt(format!(
            "pcodec: {found} numbers{more}, the chunk needs {count}"
        )));
    }
    let mut bytes = reserve(count.saturating_mul(T::LEN))?;
    for number in numbers {
        number.push_to(&mut bytes);
    }
    Ok(bytes.into())
}

fn encode<T: Plain>(decoded: &[u8], config: &ChunkConfig) -> Result<Bytes> {
    let numbers: Vec<T> = decoded.chunks_exact(T::LEN).map(T::from_bytes).collect();
    let encoded = simple_compress(&numbers, config);
    encoded.map(Bytes::from).map_err(|error| Error::invalid(format!("pcodec: {error}")))
}

impl ArrayToBytes for Pcodec {
    fn encode(&self, decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        (self.encode)(&decoded, &self.config)
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        (self.decode)(&encoded, self.count)
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn bound(configuration: &Value, dtype: DType, count: u64) -> Pcodec {
        let elements = ChunkType { shape: vec![count], dtype };
        Pcodec::new(configuration.as_object().unwrap(), &elements).unwrap()
    }

    #[test]
    fn data_of_numcodecs_are_read() {
        // numcodecs 0.15.2 with pcodec 0.3.6: PCodec().encode(np.arange(6).astype(dtype).reshape(2,
        // 3)).
        let head = |kind: u8| [112, 99, 111, 33, 2, 130, 1, 3, kind, 5, 0, 0];
        let numbers = |kind, rest: &[u8]| Bytes::from([&head(kind)[..], rest].concat());
        let ints: Vec<u8> = (0_i32..6).flat_map(i32::to_le_bytes).collect();
        let encoded = numbers(3, &[0, 16, 0, 0, 0, 0, 0, 28, 0, 136, 198, 2, 0]);
        assert_eq!(*bound(&json!({}), DType::Int(4), 6).decode(encoded.clone()).unwrap(), *ints);
        assert!(bound(&json!({}), DType::Int(4), 5).decode(encoded.clone()).is_err());
        assert!(bound(&json!({}), DType::Int(4), 7).decode(encoded.clone()).is_err());
        assert!(bound(&json!({}), DType::Uint(4), 6).decode(encoded).is_err());
        let encoded = numbers(7, &[16, 1, 1, 128, 0, 64, 0, 0, 0, 0]);
        let decoded = bound(&json!({}), DType::Uint(2), 6).decode(encoded).unwrap();
        assert_eq!(*decoded, *(0_u16..6).flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
        let encoded =
            numbers(9, &[16, 2, 1, 0, 0, 36, 7, 0, 128, 0, 60, 0, 0, 128, 13, 128, 3, 220, 0]);
        let decoded = bound(&json!({}), DType::Float(2), 6).decode(encoded).unwrap();
        let halves = [0_u16, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500];
        assert_eq!(*decoded, *halves.map(u16::to_le_bytes).concat());
    }

    proptest! {
        #[test]
        fn numbers_survive(bytes in prop::collection::vec(any::<u8>(), 8..400)) {
            for dtype in [1, 2, 4, 8].map(DType::Int).into_iter().chain([2, 4, 8].map(DType::Float)) {
                let count = bytes.len() / dtype.item_len();
                let elements = &bytes[..count * dtype.item_len()];
                let configuration = json!({"level": 3, "equal_pages_up_to": 20});
                let codec = bound(&configuration, dtype, count as u64);
                let encoded = codec.encode(elements.to_vec().into(), &[]).unwrap();
                prop_assert_eq!(&*codec.decode(encoded).unwrap(), elements);
            }
        }

        #[test]
        fn any_bytes_are_numbers_or_not(
            at in 0..40_usize,
            byte in any::<u8>(),
            rest in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let codec = bound(&json!({}), DType::Int(4), 50);
            let ints: Vec<u8> = (0_i32..50).flat_map(|n| (n * n).to_le_bytes()).collect();
            let mut encoded = codec.encode(ints.into(), &[]).unwrap().to_vec();
            encoded.truncate(at);
            encoded.push(byte);
            encoded.extend(rest);
            let _ = codec.decode(encoded.into());
        }
    }
}
