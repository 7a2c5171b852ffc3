//! Complex packing (templates 5.2 and 5.3): groups of numbers with their own width and reference.
//!
//! ```text
//! first numbers and bias of differences (5.3) | references | widths | lengths | numbers
//! ```
//!
//! Each part begins with a whole byte. The number whose bits are all 1 stands for a missing value,
//! if the section says so. With 5.3 the stored numbers are first or second differences.

use super::bits::Bits;
use super::message::{Message, Section};
use super::scale::{Scale, nearest};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// Stands for a number that is missing.
const MISSING: i64 = i64::MIN;

/// The parameters of the groups, in section 5.
#[derive(Debug)]
struct Groups {
    /// 0: no number is missing; 1: those of all ones are; 2: also those that are one less.
    missing: u8,
    count: usize,
    width_reference: u32,
    width_bits: u32,
    len_reference: u64,
    len_factor: u64,
    last_len: u64,
    len_bits: u32,
}

/// The differences that template 5.3 stores.
#[derive(Debug, Clone, Copy)]
struct Differences {
    /// 0 if numbers are stored as they are.
    order: u8,
    /// The length of each descriptor in bytes.
    len: u8,
}

impl Groups {
    fn parse(section: Section<'_>) -> Result<Self> {
        Ok(Self {
            missing: section.u8(22)?,
            count: section.count(31)?,
            width_reference: u32::from(section.u8(35)?),
            width_bits: u32::from(section.u8(36)?),
            len_reference: u64::from(section.u32(37)?),
            len_factor: u64::from(section.u8(41)?),
            last_len: u64::from(section.u32(42)?),
            len_bits: u32::from(section.u8(46)?),
        })
    }

    /// Whether a number of `width` bits stands for a missing value.
    fn is_missing(&self, number: u32, width: u32) -> bool {
        let ones = u32::MAX.checked_shr(32_u32.saturating_sub(width)).unwrap_or_default();
        match self.missing {
            0 => false,
            1 => number == ones,
            _ => number == ones || number == ones.wrapping_sub(1),
        }
    }
}

/// Returns the values of a message with `template` 2 or 3; NaN for missing ones.
pub(super) fn values(message: &Message<'_>, template: u16, scale: &Scale) -> Result<Vec<f64>> {
    let section = message.representation;
    let groups = Groups::parse(section)?;
    if groups.count == 0 {
        return Ok(vec![scale.constant(); message.value_count]);
    }
    let differences = match template {
        3 => Differences { order: section.u8(47)?, len: section.u8(48)? },
        _ => Differences { order: 0, len: 0 },
    };
    if differences.order > 2 || differences.len > 4 || groups.missing > 2 {
        return Err(Error::unsupported(format!(
            "grib: complex packing with differences of order {}, descriptors of {} bytes, and \
             missing values of kind {}",
            differences.order, differences.len, groups.missing
        )));
    }
    let numbers = numbers(message, &groups, differences, scale.width)
        .ok_or_else(|| Error::corrupt("grib: the groups of numbers do not fit the data section"))?;
    let value = |number| match number {
        MISSING => f64::NAN,
        number => scale.value(nearest(number)),
    };
    Ok(numbers.into_iter().map(value).collect())
}

/// Returns the numbers of all groups, [`MISSING`] for each that is missing.
fn numbers(
    message: &Message<'_>,
    groups: &Groups,
    differences: Differences,
    reference_bits: u32,
) -> Option<Vec<i64>> {
    // A group without numbers stores nothing, so there could be billions of them.
    if groups.count > message.value_count {
        return None;
    }
    let mut data = message.data;
    let descriptor_bits = u32::from(differences.len).checked_mul(8)?;
    let descriptor_count = match differences.order {
        0 => 0,
        order => usize::from(order).checked_add(1)?,
    };
    let mut descriptors = part(&mut data, descriptor_count, descriptor_bits)?;
    let mut first = [0_i64; 2];
    for number in first.iter_mut().take(usize::from(differences.order)) {
        *number = i64::from(descriptors.number(descriptor_bits)?);
    }
    let bias = match differences.order {
        0 => 0,
        _ => signed(descriptors.number(descriptor_bits)?, descriptor_bits)?,
    };
    let mut references = part(&mut data, groups.count, reference_bits)?;
    let mut widths = part(&mut data, groups.count, groups.width_bits)?;
    let mut lens = part(&mut data, groups.count, groups.len_bits)?;
    let mut stored = Bits::new(data);
    let mut numbers = Vec::new();
    numbers.try_reserve_exact(message.value_count).ok()?;
    for group in 1..=groups.count {
        let reference = references.number(reference_bits)?;
        let width = widths.number(groups.width_bits)?.checked_add(groups.width_reference)?;
        let len = u64::from(lens.number(groups.len_bits)?).checked_mul(groups.len_factor)?;
        let len = len.checked_add(groups.len_reference)?;
        let len = if group == groups.count { groups.last_len } else { len };
        let len = len.to_usize();
        if len > message.value_count.checked_sub(numbers.len())? {
            return None;
        }
        if width == 0 {
            let is_missing = groups.is_missing(reference, reference_bits);
            let number = if is_missing { MISSING } else { i64::from(reference) };
            numbers.extend(std::iter::repeat_n(number, len));
            continue;
        }
        for _ in 0..len {
            let number = stored.number(width)?;
            let whole = i64::from(reference).checked_add(i64::from(number))?;
            numbers.push(if groups.is_missing(number, width) { MISSING } else { whole });
        }
    }
    if numbers.len() != message.value_count {
        return None;
    }
    undo(&mut numbers, differences.order, first, bias)?;
    Some(numbers)
}

/// Takes `count` numbers of `width` bits off the start of `data`, with the bits up to the next
/// byte.
fn part<'a>(data: &mut &'a [u8], count: usize, width: u32) -> Option<Bits<'a>> {
    let len = count.checked_mul(width.to_usize())?.div_ceil(8);
    let (part, rest) = data.split_at_checked(len)?;
    *data = rest;
    Some(Bits::new(part))
}

/// Returns a number whose first bit is its sign.
fn signed(number: u32, width: u32) -> Option<i64> {
    let sign = 1_u32.checked_shl(width.checked_sub(1)?)?;
    let magnitude = i64::from(number & sign.wrapping_sub(1));
    Some(if number & sign == 0 { magnitude } else { -magnitude })
}

/// Replaces differences by the numbers that they are differences of. Missing ones have none.
fn undo(numbers: &mut [i64], order: u8, first: [i64; 2], bias: i64) -> Option<()> {
    if order == 0 {
        return Some(());
    }
    let mut present = numbers.iter_mut().filter(|number| **number != MISSING);
    for (number, first) in present.by_ref().take(usize::from(order)).zip(first) {
        *number = first;
    }
    let [mut before_last, mut last] = if order == 1 { [0, first[0]] } else { first };
    for number in present {
        let step = if order == 1 { 0 } else { last.checked_sub(before_last)? };
        let next = number.checked_add(bias)?.checked_add(last)?.checked_add(step)?;
        before_last = last;
        last = next;
        *number = next;
    }
    Some(())
}
