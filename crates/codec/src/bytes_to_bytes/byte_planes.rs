//! `imagecodecs_byteshuffle` {axis?, dist?, delta?, reorder?} and `imagecodecs_floatpred` {axis?,
//! dist?}: all first bytes of the elements of a row, then all second ones, and so on; then
//! differences of these bytes.
//!
//! A row is what lies along the axis and those after it. A difference is that of a byte and the one
//! `dist` elements along the axis before it, across the bounds of planes. The predictor 3 of TIFF
//! is the same: the most significant bytes come first, and differences follow. `reorder` puts the
//! most significant bytes first, too. In Zarr 2 the configuration also has `shape` and `dtype`.
//! Length: the same.
//!
//! TIFF Technical Note 3; <https://github.com/cgohlke/imagecodecs>

use super::items::{Axis, Items};
use super::stream::{room, too_long};
use crate::configuration::{flag, integer};
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The codec, bound to elements.
#[derive(Debug)]
pub struct BytePlanes {
    name: &'static str,
    items: Items,
    axis: Axis,
    /// Whether the plane of the last byte of an element comes first.
    is_reversed: bool,
    has_differences: bool,
}

impl BytePlanes {
    /// Returns the codec `imagecodecs_byteshuffle`.
    pub fn shuffle(configuration: &Object, items: Items) -> Result<Self> {
        let name = "imagecodecs_byteshuffle";
        let reorder = flag(name, configuration, "reorder")?;
        let has_differences = flag(name, configuration, "delta")?;
        Self::new(name, configuration, items, reorder, has_differences)
    }

    /// Returns the codec `imagecodecs_floatpred`.
    pub fn predictor(configuration: &Object, items: Items) -> Result<Self> {
        Self::new("imagecodecs_floatpred", configuration, items, true, true)
    }

    fn new(
        name: &'static str,
        configuration: &Object,
        items: Items,
        by_significance: bool,
        has_differences: bool,
    ) -> Result<Self> {
        if ![2, 3, 4, 8].contains(&items.item_len()) {
            let what = format!("{name}: elements of {} bytes are not supported", items.item_len());
            return Err(Error::unsupported(what));
        }
        let dist = integer(name, configuration, "dist", 1, 1..=4)?;
        if dist == 3 {
            let what = format!("{name}: dist 3 is not implemented, not in imagecodecs either");
            return Err(Error::unsupported(what));
        }
        let axis = items.axis(name, configuration)?;
        let step = axis.step.saturating_mul(u32::try_from(dist).unwrap_or(1).to_usize());
        if axis.row.is_some_and(|row| !row.is_multiple_of(step)) {
            let what = format!("{name}: dist {dist} does not divide the length of the axis");
            return Err(Error::invalid(what));
        }
        let axis = Axis { step, ..axis };
        let is_reversed = by_significance && !items.is_big;
        Ok(Self { name, items, axis, is_reversed, has_differences })
    }

    fn row_len(&self, bytes: &[u8]) -> usize {
        let row = self.axis.row.map(|row| row.saturating_mul(self.items.item_len()));
        row.unwrap_or(bytes.len()).max(1)
    }

    /// Returns the place within an element of the byte in each plane.
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let (item_len, is_reversed) = (self.items.item_len(), self.is_reversed);
        (0..item_len).map(move |plane| if is_reversed { item_len - 1 - plane } else { plane })
    }
}

impl BytesToBytes for BytePlanes {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        self.items.check(self.name, decoded)?;
        let mut encoded = room(self.name, decoded.len())?;
        let mut planes = Vec::new();
        for row in decoded.chunks(self.row_len(decoded)) {
            planes.clear();
            for place in self.places() {
                planes.extend(row.iter().skip(place).step_by(self.items.item_len()));
            }
            let step = if self.has_differences { self.axis.step } else { planes.len() };
            let (first, rest) = planes.split_at_checked(step).unwrap_or((&planes, &[]));
            encoded.extend_from_slice(first);
            encoded
                .extend(rest.iter().zip(&planes).map(|(byte, before)| byte.wrapping_sub(*before)));
        }
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        if encoded.len() > limit {
            return Err(too_long(self.name, limit));
        }
        self.items.check(self.name, encoded)?;
        let mut decoded = room(self.name, encoded.len())?;
        decoded.resize(encoded.len(), 0);
        let item_len = self.items.item_len();
        let mut planes = Vec::new();
        let row_len = self.row_len(encoded);
        for (row, target) in encoded.chunks(row_len).zip(decoded.chunks_mut(row_len)) {
            planes.clear();
            for (index, byte) in row.iter().enumerate() {
                let before = match index.checked_sub(self.axis.step) {
                    Some(before) if self.has_differences => planes.get(before).copied(),
                    Some(_) | None => None,
                };
                planes.push(byte.wrapping_add(before.unwrap_or_default()));
            }
            let plane_len = (row.len() / item_len).max(1);
            for (place, plane) in self.places().zip(planes.chunks(plane_len)) {
                let places = target.iter_mut().skip(place).step_by(item_len);
                places.zip(plane).for_each(|(target, byte)| *target = *byte);
            }
        }
        Ok(decoded)
    }

    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        Some(decoded_len)
    }
}
