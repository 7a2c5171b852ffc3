//! The keys of GeoTIFF: a directory of shorts, with doubles and texts in two other tags.
//!
//! ```text
//! 1 | 1 | 0 | count, then for each key:  key | 0 or the tag of its value | count | value or index
//! ```
//!
//! <https://docs.ogc.org/is/19-008r4/19-008r4.html>

use crate::tiff::directory::{TagDirectory, TiffBytes, tag};
use zarrfs_base::error::Result;
use zarrfs_base::width::ToUsize;

/// The most shorts of the directory, and doubles.
const MAX_COUNT: u64 = 4096;

/// The value of a key that has no code.
const USER_DEFINED: u64 = 32_767;

/// The keys of a page.
#[derive(Debug, Default)]
pub struct GeoKeys {
    shorts: Vec<u64>,
    doubles: Vec<f64>,
    text: String,
}

impl GeoKeys {
    /// Reads the keys of a page, none if it has none.
    pub fn read(bytes: &TiffBytes, directory: &TagDirectory) -> Result<Self> {
        let mut keys = Self::default();
        if let Some(values) = directory.get(tag::GEO_KEY_DIRECTORY) {
            keys.shorts = bytes.numbers(values, 0, MAX_COUNT)?;
        }
        if let Some(values) = directory.get(tag::GEO_DOUBLE_PARAMS) {
            keys.doubles = bytes.floats(values, MAX_COUNT)?;
        }
        if let Some(values) =
            directory.get(tag::GEO_ASCII_PARAMS).filter(|it| it.count <= MAX_COUNT)
        {
            keys.text = bytes.text(values)?;
        }
        Ok(keys)
    }

    fn entry(&self, key: u64) -> Option<[u64; 4]> {
        let entries = self.shorts.as_chunks::<4>().0;
        entries.iter().skip(1).find(|entry| entry.first() == Some(&key)).copied()
    }

    /// Returns a code; `None` if it is defined by other keys.
    pub fn code(&self, key: u64) -> Option<u64> {
        self.short(key).filter(|code| *code > 0 && *code < USER_DEFINED)
    }

    /// Returns a short.
    pub fn short(&self, key: u64) -> Option<u64> {
        let [_, place, _, value] = self.entry(key)?;
        (place == 0).then_some(value)
    }

    /// Returns a double.
    pub fn double(&self, key: u64) -> Option<f64> {
        let [_, place, _, index] = self.entry(key)?;
        let is_double = place == u64::from(tag::GEO_DOUBLE_PARAMS);
        self.doubles.get(index.to_usize()).copied().filter(|it| is_double && it.is_finite())
    }

    /// Returns a text.
    pub fn text(&self, key: u64) -> Option<&str> {
        let [_, place, len, start] = self.entry(key)?;
        let text = self.text.get(start.to_usize()..start.saturating_add(len).to_usize())?;
        (place == u64::from(tag::GEO_ASCII_PARAMS)).then(|| text.trim_end_matches('|'))
    }
}
