//! The type of the values of a column, for formats that have types.

use crate::dtype::{DType, Time};
use crate::times::{Calendar, TimeUnits};

/// The type of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::view) enum ColumnKind {
    /// Boolean values.
    Bool,
    /// Integers of this many bytes, with or without a sign.
    Int(u8),
    Uint(u8),
    /// Floats of single and of double precision.
    Single,
    Double,
    /// Times, in units of this many nanoseconds.
    Time(i128),
    /// Strings, and times of other calendars.
    Text,
}

impl ColumnKind {
    /// Returns the kind of values of a type.
    pub(super) fn of(dtype: &DType, units: Option<&TimeUnits>) -> Self {
        match (dtype, units) {
            (DType::Time(time), _) => Self::of_time(*time),
            (_, Some(units)) => match (units.calendar, units.unit) {
                (Calendar::Standard | Calendar::Gregorian, 1) => Self::Time(1),
                (Calendar::Standard | Calendar::Gregorian, _) => Self::Time(1_000),
                _ => Self::Text,
            },
            (DType::Bool, _) => Self::Bool,
            (DType::Int(len), _) => Self::Int(*len),
            (DType::Uint(len), _) => Self::Uint(*len),
            (DType::Float(8), _) => Self::Double,
            (DType::Float(_), _) => Self::Single,
            _ => Self::Text,
        }
    }

    fn of_time(time: Time) -> Self {
        match time.unit {
            _ if time.is_span => Self::Text,
            "ns" => Self::Time(1),
            "us" => Self::Time(1_000),
            "ms" | "s" | "m" | "h" | "D" | "W" | "M" | "Y" => Self::Time(1_000_000),
            _ => Self::Text,
        }
    }
}

/// Returns the nanoseconds since 1970 of a time as a table has it.
#[cfg(feature = "parquet")]
pub(in crate::view) fn nanoseconds(text: &str) -> Option<i128> {
    let epoch = Calendar::Gregorian.day(1970, 1, 1)?.checked_mul(crate::times::DAY)?;
    Calendar::Gregorian.period(text)?.0.checked_sub(epoch)
}
