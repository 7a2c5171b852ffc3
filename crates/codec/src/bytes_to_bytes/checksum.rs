//! Checksums of four bytes, little endian: `numcodecs.crc32` {location?}, `numcodecs.adler32`
//! {location?}, `numcodecs.crc32c` {location?}, `numcodecs.fletcher32` {} and
//! `numcodecs.jenkins_lookup3` {initval?, prefix?}.
//!
//! `location` is `start` or `end` of the payload: by default the start for crc32 and adler32, and
//! the end for the others. Length: 4 bytes more.
//!
//! `imagecodecs_checksum` {kind, value?, prefix?, prepend?, byteorder?} is one of them, or the CRC
//! of HDF5, with a number to begin with, bytes that stand before the payload, and either byte
//! order.
//!
//! <https://numcodecs.readthedocs.io/en/stable/checksum32.html>; `fletcher32` is that of HDF5.

use serde_json::Value;

use super::lookup3::lookup3;
use super::stream::{room, too_long};
use crate::configuration::{count, flag};
use crate::dtype::base64_decode;
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
    /// The bytes that stand before the payload for the checksum, and are not stored.
    prefix: Vec<u8>,
    is_big: bool,
}

/// A checksum, with the number that it begins with if that is not always the same.
#[derive(Debug, Clone, Copy)]
enum Sum {
    Crc32 { start: u32 },
    Crc32c,
    Adler32 { start: u32 },
    Fletcher32,
    Lookup3 { start: u32 },
    HdfCrc,
}

/// The polynomials of the CRC-32 of zlib and that of HDF5, which does not reflect it.
const POLYNOMIAL: u32 = 0xedb8_8320;
const HDF_POLYNOMIAL: u32 = 0x04c1_1db7;

/// The start of Adler-32.
const ADLER: u32 = 1;

#[derive(Debug, Clone, Copy)]
enum ChecksumAt {
    Start,
    End,
}

impl Checksum {
    /// Returns the codec for the CRC-32 of zlib.
    pub fn crc32(configuration: &Object) -> Result<Self> {
        let location = location("crc32", configuration, ChecksumAt::Start)?;
        Ok(Self::new("crc32", Sum::Crc32 { start: 0 }, location))
    }

    /// Returns the codec for CRC-32C, which numcodecs can also put at the start.
    pub fn crc32c(configuration: &Object) -> Result<Self> {
        let location = location("crc32c", configuration, ChecksumAt::End)?;
        Ok(Self::new("crc32c", Sum::Crc32c, location))
    }

    /// Returns the codec for the Adler-32 of zlib.
    pub fn adler32(configuration: &Object) -> Result<Self> {
        let location = location("adler32", configuration, ChecksumAt::Start)?;
        Ok(Self::new("adler32", Sum::Adler32 { start: ADLER }, location))
    }

    /// Returns the codec for the Fletcher-32 of HDF5.
    pub fn fletcher32() -> Self {
        Self::new("fletcher32", Sum::Fletcher32, ChecksumAt::End)
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
        Ok(Self { prefix, ..Self::new(name, Sum::Lookup3 { start }, ChecksumAt::End) })
    }

    /// Returns the codec of imagecodecs.
    pub fn imagecodecs(configuration: &Object) -> Result<Self> {
        let name = "imagecodecs_checksum";
        let member = |member| configuration.get(member).unwrap_or(&Value::Null);
        let start = |usual| count(name, configuration, "value", usual, 0..=u32::MAX);
        // A value for the others changes nothing.
        let (sum, usual) = match member("kind").as_str() {
            Some("adler32") => (Sum::Adler32 { start: start(ADLER)? }, ChecksumAt::Start),
            Some("fletcher32") => (Sum::Fletcher32, ChecksumAt::End),
            Some("lookup3") => (Sum::Lookup3 { start: start(0)? }, ChecksumAt::End),
            Some("h5crc") => (Sum::HdfCrc, ChecksumAt::End),
            None if member("kind").is_null() => {
                (Sum::Crc32 { start: start(0)? }, ChecksumAt::Start)
            }
            Some("crc32") => (Sum::Crc32 { start: start(0)? }, ChecksumAt::Start),
            _ => {
                let kind = member("kind");
                return Err(Error::unsupported(format!("{name}: kind {kind} is not known")));
            }
        };
        let location = match (member("prepend"), flag(name, configuration, "prepend")?) {
            (Value::Null, _) => usual,
            (_, true) => ChecksumAt::Start,
            (_, false) => ChecksumAt::End,
        };
        let is_big = match member("byteorder") {
            Value::Null => false,
            order if order == "<" || order == "little" => false,
            order if order == ">" || order == "big" => true,
            other => return Err(Error::invalid(format!("{name}: byteorder {other} is not known"))),
        };
        let prefix = match member("prefix") {
            Value::Null => Some(Vec::new()),
            prefix => prefix.as_str().and_then(base64_decode),
        };
        let prefix =
            prefix.ok_or_else(|| Error::invalid(format!("{name}: prefix is not base64")))?;
        Ok(Self { prefix, is_big, ..Self::new(name, sum, location) })
    }

    fn new(name: &'static str, sum: Sum, location: ChecksumAt) -> Self {
        Self { name, sum, location, prefix: Vec::new(), is_big: false }
    }

    /// Computes the checksum of the prefix and a payload.
    fn of(&self, payload: &[u8]) -> Result<u32> {
        if self.prefix.is_empty() {
            return Ok(self.sum.of(payload));
        }
        let len = self.prefix.len().saturating_add(payload.len());
        let mut whole = room(self.name, len)?;
        whole.extend_from_slice(&self.prefix);
        whole.extend_from_slice(payload);
        Ok(self.sum.of(&whole))
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
    fn of(self, bytes: &[u8]) -> u32 {
        match self {
            Self::Crc32 { start: 0 } => {
                let mut crc = flate2::Crc::new();
                crc.update(bytes);
                crc.sum()
            }
            Self::Crc32 { start } => reflected_crc(POLYNOMIAL, start, bytes),
            Self::Crc32c => crc32c::crc32c(bytes),
            Self::Adler32 { start } => adler32(start, bytes),
            Self::Fletcher32 => fletcher32(bytes),
            Self::Lookup3 { start } => lookup3(bytes, start),
            Self::HdfCrc => reflected_crc(HDF_POLYNOMIAL, 0, bytes),
        }
    }
}

/// Computes the CRC that continues from `start`, lowest bits first.
fn reflected_crc(polynomial: u32, start: u32, bytes: &[u8]) -> u32 {
    let mut table = [0_u32; 256];
    for (entry, number) in table.iter_mut().zip(0_u32..) {
        let step = |crc: u32, _| if crc & 1 == 1 { polynomial ^ crc >> 1 } else { crc >> 1 };
        *entry = (0..8).fold(number, step);
    }
    let step = |crc: u32, byte: &u8| {
        let [low, ..] = crc.to_le_bytes();
        let entry = table.get(usize::from(low ^ byte)).copied().unwrap_or_default();
        entry ^ crc >> 8
    };
    !bytes.iter().fold(!start, step)
}

impl BytesToBytes for Checksum {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let sum = self.of(decoded)?;
        let sum = if self.is_big { sum.to_be_bytes() } else { sum.to_le_bytes() };
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
        let stored =
            if self.is_big { u32::from_be_bytes(*stored) } else { u32::from_le_bytes(*stored) };
        let actual = self.of(payload)?;
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

/// Computes the Adler-32 (RFC 1950) that continues from `start`.
fn adler32(start: u32, bytes: &[u8]) -> u32 {
    const BASE: u32 = 65_521;
    // The most bytes that cannot overflow the sums.
    const RUN: usize = 5552;
    let (mut a, mut b) = ((start & 0xffff) % BASE, (start >> 16) % BASE);
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
