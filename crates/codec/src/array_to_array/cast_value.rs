//! `cast_value` {`data_type`, rounding?, `out_of_range`?, `scalar_map`?}: casts each number to
//! another type.
//!
//! A number in `scalar_map` becomes its counterpart. Any other number is rounded; if it is out of
//! range, it is clamped, wrapped or an error. Decoding casts in the other direction. Length: that
//! of the same number of elements of `data_type`.
//!
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/cast_value>

use serde_json::Value;

use crate::dtype::{DType, FillValue};
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToArray;
use crate::number::{ExactNumber, NumberFormat};
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Result};

/// The codec, bound to its types.
#[derive(Debug)]
pub struct CastValue {
    encode: Cast,
    decode: Cast,
}

/// The cast in one direction.
#[derive(Debug)]
struct Cast {
    from: NumberFormat,
    to: NumberFormat,
    /// Numbers and their replacements, sorted by the number for a binary search: it may be long.
    map: Vec<(LookedUp, ExactNumber)>,
    rounding: Rounding,
    out_of_range: OutOfRange,
}

/// A number as it is looked up: all NaN are equal, and so are both zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LookedUp {
    Int(i128),
    Float(u64),
    NaN,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounding {
    NearestEven,
    NearestAway,
    TowardsZero,
    TowardsPositive,
    TowardsNegative,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutOfRange {
    Error,
    Clamp,
    Wrap,
}

fn format(dtype: &DType) -> Result<NumberFormat> {
    NumberFormat::of(dtype)
        .filter(|_| !matches!(dtype, DType::Bool | DType::Time(_)))
        .ok_or_else(|| Error::unsupported(format!("cast_value: {} cannot be cast", dtype.name())))
}

impl CastValue {
    /// Returns the codec with this configuration, and the elements that it produces.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<(Self, ChunkType)> {
        let known = ["data_type", "rounding", "out_of_range", "scalar_map"];
        if let Some(other) = configuration.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(Error::invalid(format!("cast_value: {other:?} is not known")));
        }
        let named = configuration.get("data_type").unwrap_or(&Value::Null);
        let name = named.as_str().or_else(|| named.get("name")?.as_str());
        let dtype = name.and_then(DType::parse).ok_or_else(|| {
            Error::unsupported(format!("cast_value: data_type {named} is not known"))
        })?;
        let word = |member| configuration.get(member).filter(|value| !value.is_null());
        let rounding = match word("rounding").map(|value| (value, value.as_str())) {
            None | Some((_, Some("nearest-even"))) => Rounding::NearestEven,
            Some((_, Some("nearest-away"))) => Rounding::NearestAway,
            Some((_, Some("towards-zero"))) => Rounding::TowardsZero,
            Some((_, Some("towards-positive"))) => Rounding::TowardsPositive,
            Some((_, Some("towards-negative"))) => Rounding::TowardsNegative,
            Some((value, _)) => {
                return Err(Error::invalid(format!("cast_value: rounding {value} is not known")));
            }
        };
        let (decoded, encoded) = (format(&elements.dtype)?, format(&dtype)?);
        let out_of_range = match word("out_of_range").map(|value| (value, value.as_str())) {
            None => OutOfRange::Error,
            Some((_, Some("clamp"))) => OutOfRange::Clamp,
            Some((_, Some("wrap"))) if !encoded.is_float() => OutOfRange::Wrap,
            Some((value, _)) => {
                let what = format!(
                    "cast_value: out_of_range {value} is not possible for {}",
                    dtype.name()
                );
                return Err(Error::invalid(what));
            }
        };
        let map = configuration.get("scalar_map").unwrap_or(&Value::Null);
        let cast = |from, to, map| Cast { from, to, map, rounding, out_of_range };
        let encode = pairs(map.get("encode"), &elements.dtype, &dtype)?;
        let decode = pairs(map.get("decode"), &dtype, &elements.dtype)?;
        let codec =
            Self { encode: cast(decoded, encoded, encode), decode: cast(encoded, decoded, decode) };
        Ok((codec, ChunkType { shape: elements.shape.clone(), dtype }))
    }
}

/// Parses pairs of a number and its replacement. The first pair of a number counts.
fn pairs(list: Option<&Value>, from: &DType, to: &DType) -> Result<Vec<(LookedUp, ExactNumber)>> {
    let wrong =
        |value: &Value| Error::invalid(format!("cast_value: invalid entry {value} in scalar_map"));
    let number = |value: &Value, dtype: &DType| -> Result<ExactNumber> {
        let fill = FillValue::parse(value, dtype).map_err(|_| wrong(value))?;
        Ok(format(dtype)?.load(&fill.item(dtype)))
    };
    let list = match list {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(list) => list.as_array().ok_or_else(|| wrong(list))?,
    };
    let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([input, output]) => Ok((LookedUp::of(number(input, from)?), number(output, to)?)),
        Some(_) | None => Err(wrong(pair)),
    };
    let mut pairs = list.iter().map(pair).collect::<Result<Vec<_>>>()?;
    // The sort keeps the order of equal numbers.
    pairs.sort_by_key(|(input, _)| *input);
    pairs.dedup_by_key(|(input, _)| *input);
    Ok(pairs)
}

impl LookedUp {
    fn of(number: ExactNumber) -> Self {
        match number {
            ExactNumber::Int(int) => Self::Int(int),
            ExactNumber::Float(float) if float.is_nan() => Self::NaN,
            // The sum of both zeros is the positive one.
            ExactNumber::Float(float) => Self::Float((float + 0.0).to_bits()),
        }
    }
}

impl Cast {
    fn run(&self, source: &[u8]) -> Result<Buffer> {
        self.from.try_map(self.to, source, |number| {
            if let Some(mapped) = self.mapped(number) {
                return Ok(mapped);
            }
            self.cast(number).ok_or_else(|| {
                Error::invalid(format!(
                    "cast_value: {number:?} cannot be represented in {:?}",
                    self.to
                ))
            })
        })
    }

    fn mapped(&self, number: ExactNumber) -> Option<ExactNumber> {
        if self.map.is_empty() {
            return None;
        }
        let entry = LookedUp::of(number);
        let found = self.map.binary_search_by_key(&entry, |(input, _)| *input).ok()?;
        self.map.get(found).map(|(_, mapped)| *mapped)
    }

    fn cast(&self, number: ExactNumber) -> Option<ExactNumber> {
        match (number, self.to.range()) {
            (ExactNumber::Int(int), Some(range)) => self.ranged(int, range),
            (ExactNumber::Float(float), Some(range)) => {
                if !float.is_finite() {
                    return None;
                }
                self.ranged(whole(self.rounding.integral(float)), range)
            }
            (number, None) => self.float(number),
        }
    }

    fn ranged(&self, int: i128, (least, most): (i128, i128)) -> Option<ExactNumber> {
        if (least..=most).contains(&int) {
            return Some(ExactNumber::Int(int));
        }
        match self.out_of_range {
            OutOfRange::Error => None,
            OutOfRange::Clamp => Some(ExactNumber::Int(int.clamp(least, most))),
            OutOfRange::Wrap => Some(self.to.cast(ExactNumber::Int(int))),
        }
    }

    fn float(&self, number: ExactNumber) -> Option<ExactNumber> {
        let nearest = self.to.cast(number).to_float();
        let compared = compare(number, nearest);
        if matches!(number, ExactNumber::Float(float) if !float.is_finite()) || compared == Some(0)
        {
            return Some(ExactNumber::Float(nearest));
        }
        let is_negative = nearest.is_sign_negative();
        // The result is one of the two neighbours: the nearer to zero, or the farther from it.
        let is_outer = (compared == Some(1)) != is_negative;
        let other = self.to.neighbour(nearest, !is_outer);
        let (inner, outer) = if is_outer { (other, nearest) } else { (nearest, other) };
        let goes_out = match self.rounding {
            Rounding::TowardsZero => false,
            Rounding::TowardsPositive => !is_negative,
            Rounding::TowardsNegative => is_negative,
            Rounding::NearestEven => is_outer,
            Rounding::NearestAway => is_outer || is_midway(number, inner, outer),
        };
        let rounded = if goes_out { outer } else { inner };
        if rounded.is_finite() && !self.is_beyond(number, rounded) {
            return Some(ExactNumber::Float(rounded));
        }
        let infinity = f64::INFINITY.copysign(nearest);
        (self.out_of_range == OutOfRange::Clamp).then_some(ExactNumber::Float(infinity))
    }

    /// Whether a number exceeds the largest one, to which it was clamped, by a step or more.
    fn is_beyond(&self, number: ExactNumber, rounded: f64) -> bool {
        let below = self.to.neighbour(rounded, false);
        let step = (rounded - below).abs();
        self.to.neighbour(rounded, true).is_infinite()
            && number.to_float().abs() - rounded.abs() >= step
    }
}

impl Rounding {
    /// Rounds a float to an integer.
    fn integral(self, float: f64) -> f64 {
        match self {
            Self::NearestEven => float.round_ties_even(),
            Self::NearestAway => float.round(),
            Self::TowardsZero => float.trunc(),
            Self::TowardsPositive => float.ceil(),
            Self::TowardsNegative => float.floor(),
        }
    }
}

/// Compares a float of the number's type with the number: 1 if the float is larger, -1 if smaller.
fn compare(number: ExactNumber, float: f64) -> Option<i8> {
    let ordering = match number {
        ExactNumber::Float(number) => float.partial_cmp(&number)?,
        // Only integers too large for the float become infinite.
        ExactNumber::Int(_) if float.is_infinite() => float.partial_cmp(&0.0)?,
        ExactNumber::Int(int) => whole(float).cmp(&int),
    };
    Some(match ordering {
        std::cmp::Ordering::Less => -1,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => 1,
    })
}

fn is_midway(number: ExactNumber, inner: f64, outer: f64) -> bool {
    match number {
        ExactNumber::Int(int) => int - whole(inner) == whole(outer) - int,
        ExactNumber::Float(float) => (float - inner).total_cmp(&(outer - float)).is_eq(),
    }
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "integral, and what does not fit is out of any range"
)]
fn whole(float: f64) -> i128 {
    // Floats at least this large are multiples of 2^64, which wrap to 0.
    const LARGE: f64 = 1e37;
    if float.abs() < LARGE { float as i128 } else { (1_i128 << 120) * (float.signum() as i128) }
}

impl ArrayToArray for CastValue {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        self.encode.run(&decoded)
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        self.decode.run(&encoded)
    }

    fn is_lossy(&self) -> bool {
        let maps = !(self.encode.map.is_empty() && self.decode.map.is_empty());
        maps || !self.encode.to.holds(self.encode.from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cast(value: f64, from: &str, configuration: &Value) -> Option<f64> {
        let dtype = DType::parse(from).unwrap();
        let from = NumberFormat::of(&dtype).unwrap();
        let elements = ChunkType { shape: vec![1], dtype };
        let (codec, encoded) =
            CastValue::new(configuration.as_object().unwrap(), &elements).unwrap();
        let mut item = Vec::new();
        from.store(ExactNumber::Float(value), &mut item);
        let item = codec.encode(item.into()).ok()?;
        Some(NumberFormat::of(&encoded.dtype).unwrap().load(&item).to_float())
    }

    #[test]
    fn each_rounding_mode_rounds_as_specified() {
        for (rounding, halves) in [
            ("nearest-even", [2.0, 4.0, -2.0, 3.0, -3.0]),
            ("nearest-away", [3.0, 4.0, -3.0, 3.0, -3.0]),
            ("towards-zero", [2.0, 3.0, -2.0, 2.0, -2.0]),
            ("towards-positive", [3.0, 4.0, -2.0, 3.0, -2.0]),
            ("towards-negative", [2.0, 3.0, -3.0, 2.0, -3.0]),
        ] {
            let to_int = json!({"data_type": "int8", "rounding": rounding});
            let values = [2.5, 3.5, -2.5, 2.75, -2.75];
            let found = values.map(|value| cast(value, "float64", &to_int));
            assert_eq!(found, halves.map(Some), "{rounding}");
            // Between 1 and 2 halves are 2^-10 apart.
            let to_half = json!({"data_type": "float16", "rounding": rounding});
            for (value, half) in values.into_iter().zip(halves) {
                let sign = f64::signum(value);
                let scaled = |value: f64| sign + value / 1024.0;
                let found = cast(scaled(value), "float64", &to_half);
                assert_eq!(found, Some(scaled(half)), "{rounding} {value}");
            }
        }
        let half = |rounding| json!({"data_type": "float16", "rounding": rounding});
        for (value, rounding, found) in [
            (2051.0, "nearest-even", Some(2052.0)),
            (2049.0, "nearest-even", Some(2048.0)),
            (2049.0, "nearest-away", Some(2050.0)),
            (-2049.0, "towards-positive", Some(-2048.0)),
            (-2049.0, "towards-negative", Some(-2050.0)),
            (65519.0, "nearest-even", Some(65504.0)),
            (65520.0, "nearest-even", None),
            (65519.0, "towards-positive", None),
            (65535.0, "towards-zero", Some(65504.0)),
            (65536.0, "towards-zero", None),
        ] {
            assert_eq!(cast(value, "int32", &half(rounding)), found, "{value} {rounding}");
        }
        assert_eq!(cast(1e-9, "float64", &half("towards-positive")), Some(2_f64.powi(-24)));
        assert_eq!(cast(-1e-9, "float64", &half("nearest-away")), Some(-0.0));
    }

    #[test]
    fn numbers_out_of_range_are_clamped_wrapped_or_refused() {
        for (value, to, clamped, wrapped) in [
            (128.0, "int8", 127.0, -128.0),
            (-32769.0, "int16", -32768.0, 32767.0),
            (1e300, "uint64", 18_446_744_073_709_551_615.0, 0.0),
            (-1.0, "uint8", 0.0, 255.0),
            (300.5, "uint8", 255.0, 44.0),
        ] {
            let how = |how: Value| json!({"data_type": to, "out_of_range": how});
            assert_eq!(cast(value, "float64", &how(json!("clamp"))), Some(clamped), "{value}");
            assert_eq!(cast(value, "float64", &how(json!("wrap"))), Some(wrapped), "{value}");
            assert_eq!(cast(value, "float64", &how(Value::Null)), None, "{value}");
        }
        let clamp = json!({"data_type": "float32", "out_of_range": "clamp"});
        assert_eq!(cast(-1e300, "float64", &clamp), Some(f64::NEG_INFINITY));
        assert!(cast(f64::NAN, "float64", &clamp).unwrap().is_nan());
        let int = json!({"data_type": "int8", "out_of_range": "clamp"});
        assert_eq!(cast(f64::INFINITY, "float64", &int), None);
    }

    #[test]
    fn a_long_scalar_map_does_not_take_longer_for_each_element() {
        let count: u32 = 200_000;
        let pairs: Vec<Value> = (1..=count).map(|number| json!([number, number % 7])).collect();
        let configuration = json!({"data_type": "uint32", "scalar_map": {"decode": pairs}});
        let elements = ChunkType { shape: vec![u64::from(count)], dtype: DType::Uint(4) };
        let (codec, _) = CastValue::new(configuration.as_object().unwrap(), &elements).unwrap();
        let encoded: Vec<u8> = (0..count).flat_map(u32::to_le_bytes).collect();
        let expected: Vec<u8> = (0..count).flat_map(|number| (number % 7).to_le_bytes()).collect();
        // A look at each pair for each element takes 20 billion comparisons, and runs into the
        // limit of the test runner.
        assert!(*codec.decode(encoded.into()).unwrap() == *expected);
    }

    #[test]
    fn every_nan_is_one_entry_both_zeros_are_one_and_the_first_pair_counts() {
        let configuration = json!({
            "data_type": "uint8",
            "scalar_map": {"encode": [
                ["0x7ff8000000000001", 1], ["NaN", 2], [-0.0, 3], [0.0, 4], ["Infinity", 5],
                ["-Infinity", 6], [-1.5, 7], [-1.5, 8], [5e-324, 9],
            ]},
        });
        let elements = ChunkType { shape: vec![9], dtype: DType::Float(8) };
        let (codec, _) = CastValue::new(configuration.as_object().unwrap(), &elements).unwrap();
        let floats = [
            f64::NAN,
            -f64::NAN,
            f64::from_bits(0x7ff0_0000_0000_0001),
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -1.5,
            5e-324,
        ];
        let decoded: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
        assert_eq!(*codec.encode(decoded.into()).unwrap(), [1, 1, 1, 3, 3, 5, 6, 7, 9]);
    }

    #[test]
    fn the_scalar_map_comes_first() {
        let configuration = json!({
            "data_type": "uint8", "out_of_range": "clamp",
            "scalar_map": {"encode": [["NaN", 0], ["-Infinity", 7], [3.5, 9]], "decode": [[0, "NaN"]]},
        });
        let cast = |value| cast(value, "float64", &configuration);
        assert_eq!(
            [f64::NAN, f64::NEG_INFINITY, 3.5, 3.6, 300.0].map(cast),
            [0.0, 7.0, 9.0, 4.0, 255.0].map(Some)
        );
        let elements = ChunkType { shape: vec![2], dtype: DType::Float(4) };
        let (codec, _) = CastValue::new(configuration.as_object().unwrap(), &elements).unwrap();
        let decoded = codec.decode(vec![0, 5].into()).unwrap();
        assert_eq!(*decoded, [f32::NAN, 5.0].map(f32::to_le_bytes).concat());
        assert!(codec.is_lossy());
    }

    #[test]
    fn a_configuration_that_makes_no_sense_is_refused() {
        for configuration in [
            json!({}),
            json!({"data_type": "bool"}),
            json!({"data_type": "string"}),
            json!({"data_type": "int8", "rounding": "up"}),
            json!({"data_type": "float32", "out_of_range": "wrap"}),
            json!({"data_type": "int8", "scalar_map": {"encode": [["NaN"]]}}),
            json!({"data_type": "int8", "scalar_map": {"encode": [[1, "NaN"]]}}),
            json!({"data_type": "int8", "more": 1}),
        ] {
            let elements = ChunkType { shape: vec![2], dtype: DType::Float(4) };
            let built = CastValue::new(configuration.as_object().unwrap(), &elements);
            assert!(built.is_err(), "{configuration}");
        }
    }
}
