//! `imagecodecs_delta` {axis?, dist?} and `imagecodecs_xor` {axis?}: the difference of each element
//! and the one before it along an axis, or the bits in which they differ.
//!
//! The first element along the axis stays. Differences are those of unsigned integers, also for
//! floats, so nothing is lost. In Zarr 2 the configuration also has `shape` and `dtype`; without
//! them the library decodes single bytes. Length: the same.
//!
//! <https://github.com/cgohlke/imagecodecs>

use super::items::{Axis, Items};
use super::stream::{room, too_long};
use crate::configuration::integer;
use crate::dtype::DType;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

/// How an element follows from the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Difference,
    Bits,
}

/// The codec, bound to elements.
#[derive(Debug)]
pub struct Neighbours {
    name: &'static str,
    relation: Relation,
    items: Items,
    axis: Axis,
}

impl Neighbours {
    /// Returns the codec that stores differences.
    pub fn delta(configuration: &Object, items: Items) -> Result<Self> {
        let name = "imagecodecs_delta";
        let dist = integer(name, configuration, "dist", 1, 1..=4)?;
        if dist != 1 {
            let what = format!("{name}: dist {dist} is not implemented, not in imagecodecs either");
            return Err(Error::unsupported(what));
        }
        Self::new(name, Relation::Difference, configuration, items)
    }

    /// Returns the codec that stores bits.
    pub fn xor(configuration: &Object, items: Items) -> Result<Self> {
        Self::new("imagecodecs_xor", Relation::Bits, configuration, items)
    }

    fn new(
        name: &'static str,
        relation: Relation,
        configuration: &Object,
        items: Items,
    ) -> Result<Self> {
        let is_number = matches!(
            items.dtype,
            DType::Int(1 | 2 | 4 | 8) | DType::Uint(1 | 2 | 4 | 8) | DType::Float(2 | 4 | 8)
        );
        if !is_number {
            let what = format!("{name}: {} is not a real number type", items.dtype.name());
            return Err(Error::unsupported(what));
        }
        let axis = items.axis(name, configuration)?;
        Ok(Self { name, relation, items, axis })
    }

    fn load(&self, item: &[u8]) -> u64 {
        let shift = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.items.is_big {
            item.iter().fold(0, shift)
        } else {
            item.iter().rev().fold(0, shift)
        }
    }

    fn store(&self, number: u64, item: &mut [u8]) {
        let bytes = number.to_le_bytes();
        let bytes = bytes.iter().take(item.len());
        if self.items.is_big {
            item.iter_mut().rev().zip(bytes).for_each(|(target, byte)| *target = *byte);
        } else {
            item.iter_mut().zip(bytes).for_each(|(target, byte)| *target = *byte);
        }
    }

    /// Returns the bytes, with `change` applied to each element that has one before it and to the
    /// source or target of that one.
    fn each(&self, bytes: &[u8], is_decoding: bool) -> Result<Vec<u8>> {
        self.items.check(self.name, bytes)?;
        let item_len = self.items.item_len();
        let step_len = self.axis.step.saturating_mul(item_len);
        let row_len = self.axis.row.map_or(bytes.len(), |row| row.saturating_mul(item_len)).max(1);
        let mut target = room(self.name, bytes.len())?;
        let mut item = [0; 8];
        let Some(item) = item.get_mut(..item_len) else { return Ok(target) };
        for row in bytes.chunks(row_len) {
            let start = target.len();
            target.extend_from_slice(row.get(..step_len).unwrap_or(row));
            let rest = row.get(step_len..).unwrap_or_default();
            for (at, element) in (0..).step_by(item_len).zip(rest.chunks_exact(item_len)) {
                let number = self.load(element);
                let place = if is_decoding { target.get(start..) } else { Some(row) };
                let before = place.and_then(|place| place.get(at..)?.get(..item_len));
                let before = self.load(before.unwrap_or_default());
                let number = match (self.relation, is_decoding) {
                    (Relation::Bits, _) => number ^ before,
                    (Relation::Difference, false) => number.wrapping_sub(before),
                    (Relation::Difference, true) => number.wrapping_add(before),
                };
                self.store(number, item);
                target.extend_from_slice(item);
            }
        }
        Ok(target)
    }
}

impl BytesToBytes for Neighbours {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        self.each(decoded, false)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        if encoded.len() > limit {
            return Err(too_long(self.name, limit));
        }
        self.each(encoded, true)
    }

    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        Some(decoded_len)
    }
}
