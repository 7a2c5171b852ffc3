//! Checksums of four bytes, little endian: `numcodecs.crc32` {location?}, `numcodecs.adler32`
//! {location?}, `numcodecs.crc32c` {location?}, `numcodecs.fletcher32` {} and
//! `numcodecs.jenkins_lookup3` {initval?, prefix?}.
//!
//! `location` is `start` or `end` of the payload: by default the start for crc32 and adler32, and
//! the end for the others. Length: 4 bytes more.
//!
//! <https://numcodecs.readthedocs.io/en/stable/checksum32.html>; `fletcher32` is that of HDF5.

use serde_json::Value;

use super::lookup3::lookup3;
use super::stream::{room, too_long};
use crate::configuration::count;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Fault, Result};

/// The length of a checksum.
const LEN: usize = 4;

/// A codec that adds a checksum.
#[derive(Debug)]
pub struct Checksum {
    name: &'static str,
    sum: Sum,
    location: ChecksumAt,
}

#[derive(Debug)]
enum Sum {
    Crc32,
    Crc32c,
    Adler32,
    Fletcher32,
    Lookup3 { start: u32, prefix: Vec<u8> },
}

#[derive(Debug, Clone, Copy)]
enum ChecksumAt {
    Start,
    End,
}

impl Checksum {
    /// Returns the codec for the CRC-32 of zlib.
    pub fn crc32(configuration: &Object) -> Result<Self> {
        let location = location("crc32", configuration, ChecksumAt::Start)?;
        Ok(Self { name: "crc32", sum: Sum::Crc32, location })
    }

    /// Returns the codec for CRC-32C, which numcodecs can also put at the start.
    pub fn crc32c(configuration: &Object) -> Result<Self> {
        let location = location("crc32c", configuration, ChecksumAt::End)?;
        Ok(Self { name: "crc32c", sum: Sum::Crc32c, location })
    }

    /// Returns the codec for the Adler-32 of zlib.
    pub fn adler32(configuration: &Object) -> Result<Self> {
        let location = location("adler32", configuration, ChecksumAt::Start)?;
        Ok(Self { name: "adler32", sum: Sum::Adler32, location })
    }

    /// Returns the codec for the Fletcher-32 of HDF5.
    pub fn fletcher32() -> Self {
        Self { name: "fletcher32", sum: Sum::Fletcher32, location: ChecksumAt::End }
    }

    /// Returns the codec for Jenkins' lookup3 of a prefix and the payload.
    pub fn lookup3(configuration: &Object) -> Result<Self> {
        let name = "jenkins_lookup3";
        let start = count(name, configuration, "initval", 0, 0..=u32::MAX)?;
        let prefix = prefix(configuration.get("prefix").unwrap_or(&Value::Null));
        let prefix = prefix.ok_or_else(|| {
            Error::invalid(
                "jenkins_lookup3: prefix is neither a string nor \
                 bytes",
            )
        })?;
        Ok(Self { name, sum: Sum::Lookup3 { start, prefix }, location: ChecksumAt::End })
    }
}

fn location(codec: &str, configuration: &Object, default: ChecksumAt) -> Result<ChecksumAt> {
    match configuration.get("location") {
        None | Some(Value::Null) => Ok(default),
        Some(Value::String(text)) if text == "start" => Ok(ChecksumAt::Start),
        Some(Value::String(text)) if text == "end" => Ok(ChecksumAt::End),
        Some(other) => {
            Err(Error::invalid(format!("{codec}: location {other} is neither start nor end")))
        }
    }
}

/// Parses the prefix: numcodecs takes bytes, which JSON does not have.
fn prefix(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Array(bytes) => bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect(),
        _ => None,
    }
}

impl Sum {
    fn of(&self, bytes: &[u8]) -> Result<u32> {
        Ok(match self {
            Self::Crc32 => {
                let mut crc = flate2::Crc::new();
                crc.update(bytes);
                crc.sum()
            }
            Self::Crc32c => crc32c::crc32c(bytes),
            Self::Adler32 => adler32(bytes),
            Self::Fletcher32 => fletcher32(bytes),
            Self::Lookup3 { start, prefix } if prefix.is_empty() => lookup3(bytes, *start),
            Self::Lookup3 { start, prefix } => {
                let len = prefix.len().saturating_add(bytes.len());
                let mut whole = room("jenkins_lookup3", len)?;
                whole.extend_from_slice(prefix);
                whole.extend_from_slice(bytes);
                lookup3(&whole, *start)
            }
        })
    }
}

impl BytesToBytes for Checksum {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let sum = self.sum.of(decoded)?.to_le_bytes();
        let mut encoded = room(self.name, decoded.len().saturating_add(LEN))?;
        let parts = match self.location {
            ChecksumAt::Start => [&sum, decoded],
            ChecksumAt::End => [decoded, &sum],
        };
        for part in parts {
            encoded.extend_from_slice(part);
        }
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let parts = match self.location {
            ChecksumAt::Start => encoded.split_first_chunk::<LEN>(),
            ChecksumAt::End => {
                encoded.split_last_chunk::<LEN>().map(|(payload, sum)| (sum, payload))
            }
        };
        let name = self.name;
        let Some((stored, payload)) = parts else {
            let len = encoded.len();
            return Err(Error::fault(
                Fault::Length,
                format!("{name}: {len} bytes are too few for a checksum"),
            ));
        };
        if payload.len() > limit {
            return Err(too_long(name, limit));
        }
        let (stored, actual) = (u32::from_le_bytes(*stored), self.sum.of(payload)?);
        if stored != actual {
            return Err(Error::fault(
                Fault::Checksum,
                format!("{name}: checksum {stored:#010x} stored, {actual:#010x} computed"),
            ));
        }
        Ok(payload.to_vec())
    }

    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        decoded_len.checked_add(4)
    }
}

/// Computes Adler-32 (RFC 1950).
fn adler32(bytes: &[u8]) -> u32 {
    const BASE: u32 = 65_521;
    // The most bytes that cannot overflow the sums.
    const RUN: usize = 5552;
    let (mut a, mut b) = (1_u32, 0_u32);
    for run in bytes.chunks(RUN) {
        for byte in run {
            a += u32::from(*byte);
            b += a;
        }
        a %= BASE;
        b %= BASE;
    }
    b << 16 | a
}

/// Computes Fletcher-32 of big-endian words of two bytes. A single byte at the end is the high byte
/// of a word.
fn fletcher32(bytes: &[u8]) -> u32 {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut a, mut b) = (0_u32, 0_u32);
    for run in bytes.chunks(720) {
        for word in run.chunks(2) {
            let low = word.get(1).copied().unwrap_or_default();
            a += u32::from(u16::from_be_bytes([word.first().copied().unwrap_or_default(), low]));
            b += a;
        }
        // Sums of 360 words and the previous remainder cannot overflow.
        a = fold(a);
        b = fold(b);
    }
    fold(b) << 16 | fold(a)
}
