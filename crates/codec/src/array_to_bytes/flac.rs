//! `flac` {level, ..}: the elements as a FLAC stream, as in the Python library flac-numcodecs. The
//! configuration only matters to an encoder.
//!
//! ```text
//! "fLaC" | STREAMINFO: rate, channels, bits of a sample, samples, .. | other metadata | frames
//! ```
//!
//! A chunk of two dimensions with one or two columns has as many channels. Any other chunk is one
//! channel, whatever its shape: 384 columns are 384 samples in a row. The samples of the channels
//! alternate in both cases, so the decoded samples are the elements in order C.
//!
//! The decoder checks the checksums of all frames. It does not compare the MD5 of the samples, as
//! libFLAC does not unless asked to.
//!
//! <https://github.com/AllenNeuralDynamics/flac-numcodecs>,
//! <https://www.rfc-editor.org/rfc/rfc9639.html>

use std::io::Cursor;

use bytes::Bytes;
use claxon::frame::FrameReader;

use crate::clock::Clock;
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::kinds::ArrayToBytes;
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Fault, Result};
use zarrfs_base::width::ToU64;

/// The length of an element in bytes.
const ITEM_LEN: usize = 2;

/// The bits of a sample.
const BITS: u8 = 16;

/// The codec, bound to a number of elements.
#[derive(Debug)]
pub struct Flac {
    count: usize,
}

/// The members of STREAMINFO that describe all samples.
struct StreamInfo {
    channels: u32,
    bits: u8,
    /// The samples of each channel, 0 if unknown.
    samples: u64,
}

impl Flac {
    /// Returns the codec for chunks of `elements`.
    pub fn new(elements: &ChunkType) -> Result<Self> {
        if elements.dtype != DType::Int(2) {
            let name = elements.dtype.name();
            return Err(Error::unsupported(format!("flac: {name} is not int16")));
        }
        elements.byte_len()?;
        Ok(Self { count: elements.count()? })
    }

    /// Fails unless the stream has the samples of the chunk.
    fn check(&self, info: &StreamInfo) -> Result<()> {
        if info.bits != BITS {
            let bits = info.bits;
            return Err(Error::corrupt(format!("flac: {bits} bits in a sample, and not {BITS}")));
        }
        let samples = info.samples.saturating_mul(info.channels.into());
        if info.samples == 0 || samples == self.count.to_u64() {
            return Ok(());
        }
        Err(self.wrong_len(samples))
    }

    fn wrong_len(&self, samples: u64) -> Error {
        let needed = self.count;
        let detail = format!("flac: the stream has {samples} samples, the chunk needs {needed}");
        Error::fault(Fault::Length, detail)
    }
}

/// Returns what the metadata say of the samples, and the frames.
fn metadata(encoded: &[u8]) -> Option<(StreamInfo, &[u8])> {
    let mut rest = encoded.strip_prefix(b"fLaC")?;
    let mut info = None;
    loop {
        let ([head, a, b, c], after) = rest.split_first_chunk::<4>()?;
        let len = usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).ok()?;
        let (body, after) = after.split_at_checked(len)?;
        rest = after;
        if info.is_none() {
            // STREAMINFO is the first block, of type 0.
            info = Some(stream_info(body).filter(|_| head << 1 == 0)?);
        }
        if head & 0x80 != 0 {
            return Some((info?, rest));
        }
    }
}

fn stream_info(body: &[u8]) -> Option<StreamInfo> {
    let bits = u64::from_be_bytes(body.get(10..18)?.try_into().ok()?);
    Some(StreamInfo {
        channels: u32::try_from(bits >> 41 & 7).ok()? + 1,
        bits: u8::try_from(bits >> 36 & 31).ok()? + 1,
        samples: bits & 0xf_ffff_ffff,
    })
}

impl ArrayToBytes for Flac {
    fn encode(&self, _decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        Err(Error::unsupported("flac: zarrfs reads these chunks and writes none"))
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        let (info, frames) =
            metadata(&encoded).ok_or_else(|| Error::corrupt("flac: no metadata of a stream"))?;
        self.check(&info)?;
        let clock = Clock::start();
        let len = self.count.saturating_mul(ITEM_LEN);
        let mut elements = reserve(len)?;
        let mut reader = FrameReader::new(Cursor::new(frames));
        // At most 65536 samples of 8 channels.
        let mut buffer = Vec::new();
        loop {
            let frame = reader.read_next_or_eof(buffer);
            let frame = frame.map_err(|error| Error::corrupt(format!("flac: {error}")))?;
            let Some(frame) = frame else { break };
            if frame.channels() != info.channels {
                return Err(Error::corrupt(format!(
                    "flac: a frame has {} channels, the stream has {}",
                    frame.channels(),
                    info.channels
                )));
            }
            push(&mut elements, &frame, len)?;
            buffer = frame.into_buffer();
            clock.check()?;
        }
        if elements.len() != len {
            return Err(self.wrong_len((elements.len() / ITEM_LEN).to_u64()));
        }
        Ok(elements.into())
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }
}

/// Appends the samples of a frame, up to `len` bytes in all.
fn push(elements: &mut Vec<u8>, frame: &claxon::Block, len: usize) -> Result<()> {
    // Of all channels.
    let samples = u64::from(frame.len());
    let room = (len.saturating_sub(elements.len()) / ITEM_LEN).to_u64();
    if samples > room {
        let detail = format!("flac: a frame of {samples} samples, the chunk has room for {room}");
        return Err(Error::fault(Fault::Length, detail));
    }
    let mut put = |sample: i32| match i16::try_from(sample) {
        Ok(sample) => {
            elements.extend_from_slice(&sample.to_le_bytes());
            Ok(())
        }
        Err(_) => Err(Error::corrupt(format!("flac: sample {sample} has more than 16 bits"))),
    };
    match frame.channels() {
        1 => frame.channel(0).iter().try_for_each(|sample| put(*sample)),
        2 => frame.stereo_samples().try_for_each(|(left, right)| {
            put(left)?;
            put(right)
        }),
        channels => {
            let indices = 0..frame.duration();
            let all = indices.flat_map(|at| (0..channels).map(move |channel| (channel, at)));
            all.into_iter().try_for_each(|(channel, at)| put(frame.sample(channel, at)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use proptest::prelude::*;

    use super::*;
    use crate::array_to_bytes::tests::{Record, read};
    use zarrfs_base::error::Kind;

    /// The chunks in `tests/fixtures/electrophysiology/flac.json.xz`.
    fn records() -> &'static [Record] {
        static RECORDS: OnceLock<Vec<Record>> = OnceLock::new();
        RECORDS.get_or_init(|| read("electrophysiology/flac.json.xz"))
    }

    fn codec(count: u64) -> Flac {
        Flac::new(&ChunkType { shape: vec![count], dtype: DType::Int(2) }).unwrap()
    }

    fn decode(count: u64, encoded: &[u8]) -> Result<Vec<u8>> {
        codec(count).decode(encoded.to_vec().into()).map(|decoded| decoded.to_vec())
    }

    /// A stream of one frame, whose samples have two channels.
    fn stereo() -> &'static Record {
        let is_stereo = |record: &&Record| record.elements.shape == [900, 2];
        records().iter().find(is_stereo).unwrap()
    }

    /// The place of the first frame, which follows all metadata.
    fn frame_at(encoded: &[u8]) -> usize {
        encoded.len() - metadata(encoded).unwrap().1.len()
    }

    /// The checksum of the bytes of a frame (RFC 9639, section 9.3).
    fn crc16(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
                crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x8005 }
            })
        })
    }

    #[test]
    fn chunks_of_flac_numcodecs_have_their_elements() {
        assert!(records().len() > 20, "{}", records().len());
        for record in records() {
            let decoded = record.decode(&Flac::new(&record.elements).unwrap());
            assert_eq!(decoded.unwrap(), record.decoded, "{:?}", record.elements);
        }
    }

    #[test]
    fn a_truncated_stream_is_an_error_and_not_a_panic() {
        for record in records().iter().filter(|record| record.encoded.len() < 4000) {
            let count = record.elements.count().unwrap().to_u64();
            for len in 0..record.encoded.len() {
                decode(count, &record.encoded[..len]).unwrap_err();
            }
        }
    }

    #[test]
    fn a_stream_of_another_length_or_another_type_is_an_error() {
        let encoded = &stereo().encoded;
        for count in [0, 1, 1799, 1801, 1 << 40] {
            let error = decode(count, encoded).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        }
        for dtype in [DType::Uint(2), DType::Int(4), DType::Float(4)] {
            let error = Flac::new(&ChunkType { shape: vec![1800], dtype }).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        }
    }

    #[test]
    fn a_header_that_claims_other_samples_is_an_error_before_memory_is_taken() {
        // The last byte of the channels and bits, and the 36 bits of the samples.
        let place = 8 + 12;
        let with = |first: u8, second: u8| {
            let mut encoded = stereo().encoded.clone();
            encoded[place..place + 2].copy_from_slice(&[first, second]);
            decode(1800, &encoded)
        };
        let [channels, bits] = [place, place + 1].map(|at| stereo().encoded[at]);
        // 4 channels; 24 bits; 2^36 samples or more.
        with(channels | 6, bits).unwrap_err();
        let error = with(channels | 1, 0x70 | bits & 15).unwrap_err();
        assert!(error.detail().contains("24 bits"), "{error}");
        let error = with(channels, bits | 15).unwrap_err();
        assert!(error.detail().contains("the chunk needs 1800"), "{error}");
        // An unknown number of samples is counted.
        let mut encoded = stereo().encoded.clone();
        encoded[place + 1] &= 0xf0;
        encoded[place + 2..place + 6].fill(0);
        assert_eq!(decode(1800, &encoded).unwrap(), stereo().decoded);
        decode(1798, &encoded).unwrap_err();
        decode(1802, &encoded).unwrap_err();
    }

    #[test]
    fn a_changed_byte_of_a_frame_is_detected() {
        let encoded = &stereo().encoded;
        for at in frame_at(encoded)..encoded.len() {
            let mut changed = encoded.clone();
            changed[at] ^= 0x10;
            decode(1800, &changed).unwrap_err();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// The checksum is right, so the decoder reads what was changed.
        #[test]
        fn a_changed_frame_is_samples_or_an_error(
            index in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            len in any::<prop::sample::Index>(),
        ) {
            let small: Vec<&Record> =
                records().iter().filter(|record| record.encoded.len() < 12000).collect();
            let record = index.get(&small);
            let mut encoded = record.encoded.clone();
            let frame = frame_at(&encoded);
            // The header of a frame has a checksum of its own, in its byte 5 or 7.
            let body = frame + 6;
            for (at, byte) in changes {
                let at = body + at.index((encoded.len() - body).min(60));
                encoded[at] = byte;
            }
            encoded.truncate(encoded.len() - len.index(3));
            let end = encoded.len() - 2;
            let crc = crc16(&encoded[frame..end]).to_be_bytes();
            encoded[end..].copy_from_slice(&crc);
            let count = record.elements.count().unwrap().to_u64();
            if let Ok(decoded) = decode(count, &encoded) {
                prop_assert_eq!(decoded.len(), record.decoded.len());
            }
        }

        #[test]
        fn any_bytes_are_a_stream_or_not(
            kept in 0..120_usize,
            rest in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let encoded = &stereo().encoded;
            let encoded = [&encoded[..kept.min(encoded.len())], &rest].concat();
            let _ = decode(1800, &encoded);
        }
    }
}
