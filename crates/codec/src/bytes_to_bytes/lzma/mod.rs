//! `numcodecs.lzma` {format 1 = .xz (default), 2 = .lzma, 3 = raw; check; preset; filters}. GDAL's
//! configuration {preset, delta} means .xz with a delta filter.
//!
//! Specification: numcodecs passes the configuration to Python's lzma, which passes it to liblzma;
//! the .xz file format 1.2. Length: at most 0.1 % and 100 bytes more than decoded, at least a
//! 7,000th of it. Consecutive .xz streams are joined. The decoder detects .xz and .lzma; raw needs
//! `filters`. Decoding takes at most [`MEMORY_LIMIT`] of extra memory, which is more than the
//! largest preset needs.

use liblzma::stream::{Action, CONCATENATED, Check, Status, Stream};

use self::filter::{Filter, FilterChain};
use super::stream::{Decompressor, Input, StreamStep, decode_one, room, room_to_decode};
use crate::clock::Clock;
use crate::configuration::{count, integer};
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

mod filter;

/// The memory limit of liblzma for decoding: a dictionary of 128 MiB and its tables.
const MEMORY_LIMIT: u64 = 192 << 20;

/// The container around the compressed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LzmaContainer {
    Xz,
    Alone,
    Raw,
}

/// The codec `numcodecs.lzma`.
#[derive(Debug)]
pub struct Lzma {
    format: LzmaContainer,
    check: Check,
    chain: FilterChain,
}

impl Lzma {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        let format = match integer("lzma", configuration, "format", 1, 1..=3)? {
            2 => LzmaContainer::Alone,
            3 => LzmaContainer::Raw,
            _ => LzmaContainer::Xz,
        };
        let check = match integer("lzma", configuration, "check", -1, -1..=10)? {
            -1 | 4 => Check::Crc64,
            0 => Check::None,
            1 => Check::Crc32,
            10 => Check::Sha256,
            other => return Err(Error::invalid(format!("lzma: check {other} is not known"))),
        };
        let preset = filter::preset(configuration)?;
        let chain = match (FilterChain::parse(configuration)?, format) {
            (Some(chain), _) => chain,
            (None, LzmaContainer::Raw) => {
                return Err(Error::invalid("lzma: format 3 (raw) has no filters"));
            }
            (None, LzmaContainer::Alone) => FilterChain::new(vec![Filter::lzma1(preset)?]),
            (None, LzmaContainer::Xz) => {
                let delta = count("lzma", configuration, "delta", 0, 0..=256)?;
                let mut filters = Vec::new();
                if delta > 0 {
                    filters.push(Filter::delta(delta)?);
                }
                filters.push(Filter::lzma2(preset)?);
                FilterChain::new(filters)
            }
        };
        if format == LzmaContainer::Alone && !chain.is_lzma1_alone() {
            return Err(Error::invalid("lzma: format 2 (alone) needs exactly one filter, LZMA1"));
        }
        let codec = Self { format, check, chain };
        if format == LzmaContainer::Raw {
            // liblzma checks which chains are valid.
            codec.decoder()?;
        }
        Ok(codec)
    }

    fn decoder(&self) -> Result<Stream> {
        match self.format {
            LzmaContainer::Xz | LzmaContainer::Alone => {
                Stream::new_auto_decoder(MEMORY_LIMIT, CONCATENATED)
            }
            LzmaContainer::Raw => Stream::new_raw_decoder(&self.chain.filters(None)?),
        }
        .map_err(|error| Error::invalid(format!("lzma: {error}")))
    }

    fn encoder(&self, decoded_len: usize) -> Result<Stream> {
        match self.format {
            LzmaContainer::Xz => {
                Stream::new_stream_encoder(&self.chain.filters(Some(decoded_len))?, self.check)
            }
            LzmaContainer::Alone => {
                Stream::new_lzma_encoder(&self.chain.lzma1_options(decoded_len)?)
            }
            LzmaContainer::Raw => Stream::new_raw_encoder(&self.chain.filters(Some(decoded_len))?),
        }
        .map_err(|error| Error::invalid(format!("lzma: {error}")))
    }
}

impl BytesToBytes for Lzma {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let mut stream = self.encoder(decoded.len())?;
        let mut output = room("lzma", decoded.len() / 2 + 128)?;
        loop {
            let used = stream.total_in().to_usize();
            let rest = decoded.get(used..).unwrap_or_default();
            let status = stream
                .process_vec(rest, &mut output, Action::Finish)
                .map_err(|error| Error::invalid(format!("lzma: {error}")))?;
            if status == Status::StreamEnd {
                return Ok(output);
            }
            output.reserve(decoded.len() / 4 + 128);
        }
    }

    fn encoder_memory(&self, decoded_len: usize) -> u64 {
        self.chain.encoder_memory(decoded_len)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let mut output = room_to_decode("lzma", encoded.len(), limit)?;
        let mut decoder = Decoder(self.decoder()?);
        let used = decode_one("lzma", &mut decoder, encoded, &mut output, limit, Clock::start())?;
        if used != encoded.len() {
            let surplus = encoded.len().saturating_sub(used);
            return Err(Error::corrupt(format!("lzma: {surplus} bytes follow the stream")));
        }
        Ok(output)
    }
}

/// `liblzma` as a [`Decompressor`].
struct Decoder(Stream);

impl Decompressor for Decoder {
    fn step(&mut self, input: &[u8], part: Input, output: &mut Vec<u8>) -> Result<StreamStep> {
        let before = self.0.total_in();
        let action = if part == Input::Last { Action::Finish } else { Action::Run };
        let status = self
            .0
            .process_vec(input, output, action)
            .map_err(|error| Error::corrupt(format!("lzma: {error}")))?;
        let consumed = self.0.total_in().saturating_sub(before);
        Ok(StreamStep { consumed: consumed.to_usize(), ended: status == Status::StreamEnd })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn codec(configuration: &Value) -> Result<Lzma> {
        Lzma::new(configuration.as_object().unwrap())
    }

    #[test]
    fn xz_and_lzma_files_are_detected() {
        let xz = codec(&json!({})).unwrap();
        let alone = codec(&json!({"format": 2, "preset": 1})).unwrap();
        let decoded = [5; 3000];
        assert_eq!(alone.decode(&xz.encode(&decoded).unwrap(), 3000).unwrap(), decoded);
        assert_eq!(xz.decode(&alone.encode(&decoded).unwrap(), 3000).unwrap(), decoded);
    }

    #[test]
    fn xz_streams_in_a_row_are_joined_and_other_bytes_after_them_an_error() {
        let xz = codec(&json!({"check": 0})).unwrap();
        let mut encoded = xz.encode(b"abc").unwrap();
        encoded.extend(xz.encode(b"def").unwrap());
        assert_eq!(xz.decode(&encoded, 6).unwrap(), b"abcdef");
        assert!(xz.decode(&encoded, 5).is_err());
        encoded.push(1);
        assert!(xz.decode(&encoded, 6).is_err());
        let alone = codec(&json!({"format": 2})).unwrap();
        let mut encoded = alone.encode(b"abc").unwrap();
        encoded.push(1);
        assert!(alone.decode(&encoded, 6).is_err());
    }

    #[test]
    fn the_dictionary_is_no_larger_than_the_input() {
        let xz = codec(&json!({"preset": 9})).unwrap();
        // Stream header 12, block header: size, flags, filter id 0x21, 1 byte: 0 is 4 KiB.
        assert_eq!(xz.encode(b"abc").unwrap()[14..17], [0x21, 1, 0]);
    }

    #[test]
    fn a_dictionary_over_the_memory_limit_is_an_error() {
        let alone = codec(&json!({"format": 2, "preset": 1})).unwrap();
        let mut encoded = alone.encode(b"abc").unwrap();
        encoded[1..5].copy_from_slice(&(1_u32 << 31).to_le_bytes());
        let error = alone.decode(&encoded, 3).unwrap_err();
        assert_eq!(error.detail(), "lzma: memory limit reached");
        let raw = json!({"format": 3, "filters": [{"id": 33, "dict_size": 1_u32 << 31}]});
        let error = codec(&raw).unwrap_err();
        assert_eq!(error.detail(), "lzma: dict_size 2147483648 is not in 4096..=134217728");
    }

    #[test]
    fn a_raw_stream_needs_its_filters() {
        let error = codec(&json!({"format": 3})).unwrap_err();
        assert_eq!(error.detail(), "lzma: format 3 (raw) has no filters");
        let filters = json!([{"id": 3, "dist": 4}, {"id": 33, "preset": 1}]);
        let raw = codec(&json!({"format": 3, "filters": filters})).unwrap();
        let decoded: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let encoded = raw.encode(&decoded).unwrap();
        assert_eq!(raw.decode(&encoded, 5000).unwrap(), decoded);
        assert!(raw.decode(&encoded, 4999).is_err());
    }

    #[test]
    fn the_delta_of_gdal_is_written_and_needs_no_word_to_be_read() {
        let gdal = codec(&json!({"preset": 6, "delta": 4})).unwrap();
        let decoded: Vec<u8> = (0..2000_u32).flat_map(u32::to_le_bytes).collect();
        let encoded = gdal.encode(&decoded).unwrap();
        let plain = codec(&json!({})).unwrap();
        assert!(encoded.len() < plain.encode(&decoded).unwrap().len());
        assert_eq!(plain.decode(&encoded, 8000).unwrap(), decoded);
    }

    #[test]
    fn chains_that_liblzma_does_not_have_are_refused_when_the_codec_is_built() {
        for filters in [
            json!([]),
            json!([{"id": 99}]),
            json!([{"id": 3}]),
            json!([{"id": 33}, {"id": 3}]),
            json!([{"id": 33, "lc": 4, "lp": 4}]),
            json!("xz"),
        ] {
            assert!(codec(&json!({"format": 3, "filters": filters})).is_err(), "{filters}");
        }
        assert!(codec(&json!({"format": 2, "filters": [{"id": 33}]})).is_err());
    }
}
