//! The sections of a GRIB message.
//!
//! ```text
//! 0   "GRIB", 2 reserved bytes, discipline, edition, length of the message: 8 bytes
//! 1   identification
//! 2   local use, may be absent
//! 3   grid: the number of points at byte 6
//! 4   product
//! 5   data representation: the number of values at byte 5, the template at byte 9
//! 6   bit map: at byte 5, 0 if it follows and 255 if there is none
//! 7   data
//! 8   "7777"
//! ```
//!
//! Sections 1 to 7 begin with their length (4 bytes) and their number (1 byte). All numbers are big
//! endian. Negative numbers have a sign bit and a magnitude.
//!
//! <https://codes.ecmwf.int/grib/format/grib2/>

use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// A field of a message of edition 2.
#[derive(Debug)]
pub(super) struct Message<'a> {
    /// Section 3.
    pub grid: Section<'a>,
    /// The number of points of the grid.
    pub point_count: usize,
    /// Section 5.
    pub representation: Section<'a>,
    /// The number of stored values.
    pub value_count: usize,
    /// A bit for each point, 1 if its value is stored. `None` if all are.
    pub bitmap: Option<&'a [u8]>,
    /// The stored values.
    pub data: &'a [u8],
}

/// A section with its length and number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a> {
    number: u8,
    bytes: &'a [u8],
}

impl<'a> Section<'a> {
    #[cfg(test)]
    pub fn new(number: u8, bytes: &'a [u8]) -> Self {
        Self { number, bytes }
    }

    /// Returns `LEN` bytes from `offset`.
    fn bytes<const LEN: usize>(&self, offset: usize) -> Result<[u8; LEN]> {
        let bytes = self.bytes.get(offset..).and_then(|rest| rest.first_chunk());
        bytes.copied().ok_or_else(|| {
            let len = self.bytes.len();
            Error::corrupt(format!("grib: section {} ends after {len} bytes", self.number))
        })
    }

    /// Returns the byte at `offset`.
    pub fn u8(&self, offset: usize) -> Result<u8> {
        self.bytes::<1>(offset).map(|[byte]| byte)
    }

    /// Returns the 2-byte number at `offset`.
    pub fn u16(&self, offset: usize) -> Result<u16> {
        self.bytes(offset).map(u16::from_be_bytes)
    }

    /// Returns the 4-byte number at `offset`.
    pub fn u32(&self, offset: usize) -> Result<u32> {
        self.bytes(offset).map(u32::from_be_bytes)
    }

    /// Returns the 2-byte number with a sign bit at `offset`.
    pub fn i16(&self, offset: usize) -> Result<i32> {
        let number = self.u16(offset)?;
        let magnitude = i32::from(number & 0x7fff);
        Ok(if number >> 15 == 1 { -magnitude } else { magnitude })
    }

    /// Returns the 4-byte number with a sign bit at `offset`.
    pub fn i32(&self, offset: usize) -> Result<i32> {
        let number = self.u32(offset)?;
        let magnitude = (number & 0x7fff_ffff).cast_signed();
        Ok(if number >> 31 == 1 { -magnitude } else { magnitude })
    }

    /// Returns the 4-byte float at `offset`.
    pub fn f32(&self, offset: usize) -> Result<f32> {
        self.bytes(offset).map(f32::from_be_bytes)
    }

    /// Returns the 4-byte number of things at `offset`.
    pub fn count(&self, offset: usize) -> Result<usize> {
        let count = self.u32(offset)?;
        usize::try_from(count).map_err(|_| Error::too_large(format!("grib: {count} points")))
    }

    /// Returns the bytes from `offset` on.
    pub fn from(&self, offset: usize) -> &'a [u8] {
        self.bytes.get(offset..).unwrap_or_default()
    }
}

impl<'a> Message<'a> {
    /// Returns the message that is at the start of `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut sections = sections(message(bytes)?)?;
        let mut section = |number: usize| {
            let found = sections.get_mut(number).and_then(Option::take);
            found
                .ok_or_else(|| Error::corrupt(format!("grib: the message has no section {number}")))
        };
        let (grid, representation) = (section(3)?, section(5)?);
        let (bitmap, data) = (section(6)?, section(7)?);
        let bitmap = match bitmap.u8(5)? {
            0 => Some(bitmap.from(6)),
            255 => None,
            number => {
                return Err(Error::unsupported(format!(
                    "grib: the message refers to bit map {number}, which it does not contain"
                )));
            }
        };
        Ok(Self {
            point_count: grid.count(6)?,
            grid,
            value_count: representation.count(5)?,
            representation,
            bitmap,
            data: data.from(5),
        })
    }
}

/// Returns the bytes of the message that `bytes` begin with.
fn message(bytes: &[u8]) -> Result<&[u8]> {
    let head = bytes.first_chunk::<16>().filter(|head| head.starts_with(b"GRIB"));
    let Some([_, _, _, _, l0, l1, l2, edition, a, b, c, d, e, f, g, h]) = head else {
        return Err(Error::corrupt("grib: the chunk is not a GRIB message"));
    };
    let short_len = [0, *l0, *l1, *l2];
    let is_first =
        *edition == 1 && usize::try_from(u32::from_be_bytes(short_len)) == Ok(bytes.len());
    if *edition != 2 && !is_first {
        return Err(Error::corrupt(format!("grib: the message has edition {edition} of GRIB")));
    }
    if *edition != 2 {
        return Err(Error::unsupported(format!(
            "grib: the message has edition {edition} of GRIB; zarrfs reads edition 2"
        )));
    }
    let len = u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
    usize::try_from(len).ok().and_then(|len| bytes.get(..len)).ok_or_else(|| {
        let stored = bytes.len();
        Error::corrupt(format!("grib: the message has {len} bytes, the chunk has {stored}"))
    })
}

/// Returns the sections of a message, by number.
fn sections(message: &[u8]) -> Result<[Option<Section<'_>>; 8]> {
    let mut sections = [None; 8];
    let mut rest = message.get(16..).unwrap_or_default();
    while rest != b"7777" {
        let head = rest.first_chunk::<5>();
        let section = head.and_then(|[a, b, c, d, number]| {
            let len = u32::from_be_bytes([*a, *b, *c, *d]).to_usize();
            let (bytes, after) = rest.split_at_checked(len).filter(|_| len >= 5)?;
            rest = after;
            Some(Section { number: *number, bytes })
        });
        let section = section.ok_or_else(|| {
            let offset = message.len().saturating_sub(rest.len());
            Error::corrupt(format!("grib: no section begins at byte {offset} of the message"))
        })?;
        let number = section.number;
        match sections.get_mut(usize::from(number)) {
            Some(place) => {
                // A message may repeat sections for more fields. The first field counts, as in
                // ecCodes.
                place.get_or_insert(section);
            }
            None => {
                return Err(Error::corrupt(format!("grib: the message has a section {number}")));
            }
        }
    }
    Ok(sections)
}
