//! From stored integers to the values that they stand for.

use super::message::Section;
use zarrfs_base::error::Result;

/// How to compute powers of ten. Programs differ in the last bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Powers {
    /// By repeated multiplication or division, as ecCodes computes them.
    Repeated,
    /// By squaring, as gribberish computes them.
    Squared,
}

/// `(number * 2^E + R) * 10^-D`, in double precision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    reference: f64,
    binary: f64,
    decimal: f64,
    /// The width of a stored number in bits.
    pub width: u32,
    powers: Powers,
}

impl Scale {
    /// Parses bytes 11 to 19 of section 5, which most templates share.
    pub fn parse(section: Section<'_>, powers: Powers) -> Result<Self> {
        let reference = f64::from(section.f32(11)?);
        let (binary, decimal) = (section.i16(15)?, -section.i16(17)?);
        let width = u32::from(section.u8(19)?);
        let power = powers.function();
        Ok(Self {
            reference,
            binary: power(2.0, binary),
            decimal: power(10.0, decimal),
            width,
            powers,
        })
    }

    /// Returns the value of a stored number.
    pub fn value(&self, number: f64) -> f64 {
        (number * self.binary + self.reference) * self.decimal
    }

    /// Returns the value of all points of a field without stored numbers.
    pub fn constant(&self) -> f64 {
        match self.powers {
            // ecCodes ignores the decimal scale factor here.
            Powers::Repeated => self.reference,
            Powers::Squared => self.value(0.0),
        }
    }
}

impl Powers {
    /// Returns `number * 10^exponent`.
    pub fn scaled(self, number: f64, exponent: i32) -> f64 {
        match self {
            Self::Repeated => times_powers(number, 10.0, exponent),
            Self::Squared => number * f64::powi(10.0, exponent),
        }
    }

    /// Returns the function that computes a power.
    pub fn function(self) -> fn(f64, i32) -> f64 {
        match self {
            Self::Repeated => repeated,
            Self::Squared => f64::powi,
        }
    }
}

fn repeated(base: f64, exponent: i32) -> f64 {
    times_powers(1.0, base, exponent)
}

/// Multiplies `number` by `base`, or divides it, as often as `exponent` says.
fn times_powers(number: f64, base: f64, exponent: i32) -> f64 {
    let mut power = number;
    for _ in 0..exponent.unsigned_abs() {
        if exponent < 0 {
            power /= base;
        } else {
            power *= base;
        }
    }
    power
}

/// Returns the float that is nearest to an integer.
pub(super) fn nearest(number: i64) -> f64 {
    const HALF: f64 = 4_294_967_296.0;
    let high = i32::try_from(number >> 32).unwrap_or_default();
    let low = u32::try_from(number & 0xffff_ffff).unwrap_or_default();
    // Both products are exact, so the sum is rounded once.
    f64::from(high) * HALF + f64::from(low)
}
