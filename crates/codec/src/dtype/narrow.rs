//! Number types without hardware support: the registered small integers and floats, each in whole
//! bytes.
//!
//! An integer of 2 or 4 bits, or a float of fewer than 8 bits, lies in the low bits of a byte. Only
//! fill values are converted to numbers here; chunks are not.
//!
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/data-types>

/// A number type of a registered extension.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Narrow {
    /// The registered name.
    pub name: &'static str,
    /// The length of an element in bytes.
    pub len: usize,
    form: NarrowType,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum NarrowType {
    Int { bits: u32, signed: bool },
    Float(Float),
}

/// A float format. Its exponent has `bias`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Float {
    /// The bits of the exponent.
    exponent: u32,
    /// The stored bits of the significand.
    fraction: u32,
    bias: i32,
    signed: bool,
    special: Special,
    /// The bits of the NaN that `NaN` in metadata stands for.
    nan: Option<u16>,
}

/// The bit patterns that are not numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Special {
    /// As in IEEE 754: the largest exponent means infinity and NaN.
    Ieee,
    /// The pattern of all ones, with either sign, is NaN. There is no infinity.
    OnesNan,
    /// The pattern of negative zero is NaN. There is no infinity.
    NegativeZeroNan,
    /// All patterns are numbers.
    None,
}

const fn int(name: &'static str, bits: u32, signed: bool) -> Narrow {
    Narrow { name, len: 1, form: NarrowType::Int { bits, signed } }
}

const fn float(
    name: &'static str,
    len: usize,
    (exponent, fraction, bias): (u32, u32, i32),
    special: Special,
    nan: Option<u16>,
) -> Narrow {
    let float = Float { exponent, fraction, bias, signed: true, special, nan };
    Narrow { name, len, form: NarrowType::Float(float) }
}

use Special::{Ieee, NegativeZeroNan, OnesNan};

static ALL: [Narrow; 16] = [
    int("int2", 2, true),
    int("int4", 4, true),
    int("uint2", 2, false),
    int("uint4", 4, false),
    float("bfloat16", 2, (8, 7, 127), Ieee, Some(0x7fc0)),
    float("float4_e2m1fn", 1, (2, 1, 1), Special::None, None),
    float("float6_e2m3fn", 1, (2, 3, 1), Special::None, None),
    float("float6_e3m2fn", 1, (3, 2, 3), Special::None, None),
    float("float8_e3m4", 1, (3, 4, 3), Ieee, Some(0x78)),
    float("float8_e4m3", 1, (4, 3, 7), Ieee, Some(0x7c)),
    float("float8_e4m3fn", 1, (4, 3, 7), OnesNan, Some(0x7f)),
    float("float8_e4m3b11fnuz", 1, (4, 3, 11), NegativeZeroNan, Some(0x80)),
    float("float8_e4m3fnuz", 1, (4, 3, 8), NegativeZeroNan, Some(0x80)),
    float("float8_e5m2", 1, (5, 2, 15), Ieee, Some(0x7e)),
    float("float8_e5m2fnuz", 1, (5, 2, 16), NegativeZeroNan, Some(0x80)),
    Narrow {
        name: "float8_e8m0fnu",
        len: 1,
        form: NarrowType::Float(Float {
            exponent: 8,
            fraction: 0,
            bias: 127,
            signed: false,
            special: OnesNan,
            nan: Some(0xff),
        }),
    },
];

impl Narrow {
    /// Returns the number that is registered under `name`.
    pub fn parse(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|number| number.name == name)
    }

    /// Returns all types.
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// Whether the type is a float.
    pub fn is_float(&self) -> bool {
        matches!(self.form, NarrowType::Float(_))
    }

    /// Returns the number of bits that have a meaning.
    pub fn bits(&self) -> u32 {
        match self.form {
            NarrowType::Int { bits, .. } => bits,
            NarrowType::Float(float) => float.exponent + float.fraction + u32::from(float.signed),
        }
    }

    /// Whether the type is a signed integer.
    pub fn is_signed_int(&self) -> bool {
        matches!(self.form, NarrowType::Int { signed: true, .. })
    }

    /// Returns an integer in a byte, with the sign extended to the unused bits; `None` if it does
    /// not fit.
    pub(super) fn int_bits(&self, int: i128) -> Option<u16> {
        let NarrowType::Int { bits, signed } = self.form else { return None };
        let range = if signed { -(1 << (bits - 1))..1 << (bits - 1) } else { 0..1 << bits };
        let byte = if signed {
            i8::try_from(int).ok()?.cast_unsigned()
        } else {
            u8::try_from(int).ok()?
        };
        range.contains(&int).then_some(u16::from(byte))
    }

    /// Returns the integer in the low bits of a byte.
    pub(super) fn int_value(&self, byte: u16) -> Option<i64> {
        let NarrowType::Int { bits, signed } = self.form else { return None };
        let low = i64::from(byte) & ((1 << bits) - 1);
        Some(if signed && low >> (bits - 1) == 1 { low - (1 << bits) } else { low })
    }

    /// Returns the integer in the low bits of a byte, `None` if the type is a float.
    pub fn int(&self, byte: u16) -> Option<i64> {
        self.int_value(byte)
    }

    /// Returns the float with these bits, which may be infinite or NaN; `None` if the type is an
    /// integer.
    pub fn float(&self, bits: u16) -> Option<f64> {
        if !self.is_float() {
            return None;
        }
        let infinite = [(false, f64::INFINITY), (true, f64::NEG_INFINITY)].into_iter();
        let infinite = infinite.filter(|(negative, _)| self.infinity(*negative) == Some(bits));
        let infinite = infinite.map(|(_, value)| value).next();
        Some(self.float_value(bits).or(infinite).unwrap_or(f64::NAN))
    }

    /// Returns the bits of the default NaN.
    pub(super) fn nan(&self) -> Option<u16> {
        match self.form {
            NarrowType::Float(float) => float.nan,
            NarrowType::Int { .. } => None,
        }
    }

    /// Returns the bits of an infinity.
    pub(super) fn infinity(&self, negative: bool) -> Option<u16> {
        match self.form {
            NarrowType::Float(float) if float.special == Ieee => {
                let sign = if negative { 1 << (float.exponent + float.fraction) } else { 0 };
                Some(sign | (((1 << float.exponent) - 1) << float.fraction))
            }
            NarrowType::Float(_) | NarrowType::Int { .. } => None,
        }
    }

    /// Returns the value of these bits, `None` if they are not a number.
    pub(super) fn float_value(&self, bits: u16) -> Option<f64> {
        let NarrowType::Float(float) = self.form else { return None };
        float.value(bits)
    }

    /// Returns the bits of the number nearest to `wide`, ties to even; a larger value becomes the
    /// largest number. Tries all patterns, since there are few.
    pub(super) fn float_bits(&self, wide: f64) -> Option<u16> {
        let NarrowType::Float(float) = self.form else { return None };
        if wide.is_nan() {
            return float.nan;
        }
        if wide.is_infinite() {
            return self.infinity(wide < 0.0);
        }
        let width = float.exponent + float.fraction + u32::from(float.signed);
        let patterns = u16::try_from((1_u32 << width) - 1).unwrap_or(u16::MAX);
        let sign = if float.signed && wide.is_sign_negative() { 1 << (width - 1) } else { 0 };
        let half = if float.signed { patterns >> 1 } else { patterns };
        let is_zero = wide == 0.0 && float.special != NegativeZeroNan;
        if is_zero && float.value(sign).is_some_and(|zero| zero == 0.0) {
            return Some(sign);
        }
        let distance = |bits: u16| float.value(bits | sign).map(|value| (value - wide).abs());
        let candidates = (0..=half).filter_map(|bits| distance(bits).map(|far| (far, bits)));
        let nearest = candidates.min_by(|(far, bits), (other, other_bits)| {
            far.total_cmp(other).then((bits & 1).cmp(&(other_bits & 1)))
        });
        let (_, bits) = nearest?;
        // If the pattern of negative zero is NaN, zero has no sign.
        float.value(bits | sign).map(|_| bits | sign).or(Some(bits))
    }
}

impl Float {
    fn value(self, bits: u16) -> Option<f64> {
        let ones = (1 << self.exponent) - 1;
        let exponent = (u32::from(bits) >> self.fraction) & ones;
        let fraction = u32::from(bits) & ((1 << self.fraction) - 1);
        let negative = self.signed && (bits >> (self.exponent + self.fraction)) & 1 == 1;
        let all_ones = exponent == ones && fraction == (1 << self.fraction) - 1;
        match self.special {
            Ieee if exponent == ones => return None,
            OnesNan if all_ones => return None,
            NegativeZeroNan if negative && exponent == 0 && fraction == 0 => return None,
            _ => {}
        }
        let scale = f64::from(1_u32 << self.fraction);
        let part = f64::from(fraction) / scale;
        let biased = i32::try_from(exponent).unwrap_or_default();
        // Without stored bits of the significand there are no subnormal numbers.
        let size = if biased == 0 && self.fraction > 0 {
            part * 2_f64.powi(1 - self.bias)
        } else {
            (1.0 + part) * 2_f64.powi(biased - self.bias)
        };
        Some(if negative { -size } else { size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_that_is_a_number_is_the_nearest_to_its_value() {
        for number in Narrow::all().iter().filter(|number| number.is_float()) {
            let patterns = if number.len == 1 { 0xff } else { 0xffff };
            for bits in (0..=patterns).step_by(if number.len == 1 { 1 } else { 97 }) {
                let Some(value) = number.float_value(bits) else { continue };
                let again = number.float_bits(value).expect("a number");
                let found = number.float_value(again).expect("a number");
                assert!(found.total_cmp(&value).is_eq(), "{}: {bits:#x} is {value}", number.name);
            }
        }
    }

    #[test]
    fn the_constants_of_the_registry_hold() {
        let bits = |name: &str, value: f64| Narrow::parse(name).expect("known").float_bits(value);
        assert_eq!(bits("bfloat16", 1.0), Some(0x3f80));
        assert_eq!(bits("float8_e4m3fn", 448.0), Some(0x7e));
        assert_eq!(bits("float8_e5m2", f64::INFINITY), Some(0x7c));
        assert_eq!(bits("float8_e4m3fnuz", f64::NAN), Some(0x80));
        assert_eq!(bits("float8_e8m0fnu", 1.0), Some(127));
        assert_eq!(bits("float4_e2m1fn", 6.0), Some(7));
        let int4 = Narrow::parse("int4").expect("known");
        assert_eq!((int4.int_bits(-8), int4.int_bits(8)), (Some(0xf8), None));
        assert_eq!((int4.int_value(0xf8), int4.int_value(0x07)), (Some(-8), Some(7)));
    }
}
