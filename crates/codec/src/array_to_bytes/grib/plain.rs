//! Values one after another: simple packing (template 5.0), floats (5.4) and runs (5.200).

use super::bits::Bits;
use super::message::Message;
use super::scale::Powers;
use zarrfs_base::error::{Error, Result};

/// Returns the numbers of `width` bits.
pub(super) fn numbers(message: &Message<'_>, width: u32) -> Result<Vec<u32>> {
    if width > 32 {
        return Err(Error::unsupported(format!("grib: numbers of {width} bits")));
    }
    let mut bits = Bits::new(message.data);
    let numbers: Option<Vec<u32>> = (0..message.value_count).map(|_| bits.number(width)).collect();
    numbers.ok_or_else(|| too_short(message))
}

/// Returns floats of 4 or 8 bytes.
pub(super) fn floats(message: &Message<'_>) -> Result<Vec<f64>> {
    let single = |bytes: &[u8; 4]| f64::from(f32::from_be_bytes(*bytes));
    let values: Vec<f64> = match message.representation.u8(11)? {
        1 => message.data.as_chunks().0.iter().map(single).collect(),
        2 => message.data.as_chunks().0.iter().copied().map(f64::from_be_bytes).collect(),
        3 => return Err(Error::unsupported("grib: floats with precision 3, of 16 bytes")),
        other => return Err(Error::corrupt(format!("grib: floats with precision {other}"))),
    };
    if values.len() == message.value_count { Ok(values) } else { Err(too_short(message)) }
}

/// Returns the values of runs of levels.
///
/// A number up to the highest level is a level. Larger ones are the digits of the length of its run
/// less one, the lowest first, in a base that is the number of these numbers.
pub(super) fn runs(message: &Message<'_>, powers: Powers) -> Result<Vec<f64>> {
    let section = message.representation;
    let width = u32::from(section.u8(11)?);
    let highest = u32::from(section.u16(12)?);
    let levels = usize::from(section.u16(14)?);
    let decimal = i32::from(section.u8(16)?);
    let exponent = if decimal > 127 { decimal - 128 } else { -decimal };
    let factor = powers.function()(10.0, exponent);
    let base = 1_u64.checked_shl(width).and_then(|all| all.checked_sub(u64::from(highest) + 1));
    let base = base.filter(|base| *base > 0 && width > 0 && width <= 16);
    let is_known = highest > 0 && usize::try_from(highest).is_ok_and(|highest| highest <= levels);
    let (Some(base), true) = (base, is_known) else {
        return Err(Error::unsupported(format!(
            "grib: runs of {levels} levels in {width} bits, and {highest} as the highest level"
        )));
    };
    let mut bits = Bits::new(message.data);
    let mut values: Vec<f64> = Vec::new();
    let mut next = bits.number(width);
    while let Some(level) = next.filter(|level| *level <= highest) {
        let (mut len, mut place) = (1_u64, 1_u64);
        next = bits.number(width);
        while let Some(digit) = next.filter(|digit| *digit > highest) {
            let digit = u64::from(digit).saturating_sub(u64::from(highest) + 1);
            len = len.saturating_add(digit.saturating_mul(place));
            place = place.saturating_mul(base);
            next = bits.number(width);
        }
        let value = match level.checked_sub(1).and_then(|index| usize::try_from(index).ok()) {
            None => f64::NAN,
            Some(index) => {
                let offset = index.saturating_mul(2).saturating_add(17);
                f64::from(section.u16(offset)?) * factor
            }
        };
        let left = message.value_count.saturating_sub(values.len());
        let len = usize::try_from(len).ok().filter(|len| *len <= left);
        values.extend(std::iter::repeat_n(value, len.ok_or_else(|| too_short(message))?));
    }
    if values.len() == message.value_count { Ok(values) } else { Err(too_short(message)) }
}

fn too_short(message: &Message<'_>) -> Error {
    let (len, count) = (message.data.len(), message.value_count);
    Error::corrupt(format!("grib: {len} bytes of data do not hold {count} values"))
}
