//! Times of a file in other units than those of the array that they are appended to.

use crate::dtype::{DType, Element, to_float, to_single};
use crate::error::{Error, Result};
use crate::json::Object;
use crate::metadata::Packing;
use crate::times::{Calendar, DAY, TimeUnits, is_since};

/// Whether both count days that have the same names.
fn are_comparable(one: &TimeUnits, other: &TimeUnits) -> bool {
    let is_usual = |one: &TimeUnits| {
        matches!(one.calendar, Calendar::Standard | Calendar::Gregorian)
            && one.since >= first_gregorian()
    };
    one.calendar == other.calendar || is_usual(one) && is_usual(other)
}

/// How times of a source become those of the target.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeShift {
    /// Nanoseconds in a unit of the source.
    from: i128,
    /// Nanoseconds in a unit of the target.
    to: i128,
    /// Nanoseconds from the moment of the target to that of the source.
    between: i128,
    /// Since when the calendars name the same days, in nanoseconds from the moment of the target.
    least: Option<i128>,
}

/// Returns the moment from which on the Gregorian calendar is also the standard one.
fn first_gregorian() -> i128 {
    Calendar::Gregorian.day(1582, 10, 15).unwrap_or_default() * DAY
}

impl TimeShift {
    /// Returns how times with the attributes `from` become those with `to`. `Ok(None)` if they are
    /// the same, or no times; an error if they cannot be compared.
    pub fn between(from: &Object, to: &Object) -> Result<Option<Self>> {
        let text = |attributes: &Object, name: &str| {
            attributes.get(name).and_then(|value| value.as_str()).map(str::to_owned)
        };
        let (old, new) = (text(from, "units"), text(to, "units"));
        let calendars = (text(from, "calendar"), text(to, "calendar"));
        let is_time = |units: &Option<String>| units.as_deref().is_some_and(is_since);
        if !is_time(&old) && !is_time(&new) || (old == new && calendars.0 == calendars.1) {
            return Ok(None);
        }
        let parse = |units: &Option<String>, calendar: &Option<String>| {
            TimeUnits::parse(units.as_deref().unwrap_or_default(), calendar.as_deref())
        };
        let both = parse(&old, &calendars.0).zip(parse(&new, &calendars.1));
        let both = both.filter(|(old, new)| are_comparable(old, new));
        let Some((from, to)) = both else {
            let shown = |units: &Option<String>, calendar: &Option<String>| {
                let calendar = calendar.as_ref().map_or(String::new(), |name| format!(" ({name})"));
                format!("{:?}{calendar}", units.as_deref().unwrap_or_default())
            };
            return Err(Error::invalid(format!(
                "its times are in {}, and those of the target in {}: zarrfs cannot compare these",
                shown(&old, &calendars.0),
                shown(&new, &calendars.1)
            )));
        };
        let least = (from.calendar != to.calendar).then(|| first_gregorian() - to.since);
        let shift = Self { from: from.unit, to: to.unit, between: from.since - to.since, least };
        let is_other = shift.from != shift.to || shift.between != 0 || shift.least.is_some();
        Ok(is_other.then_some(shift))
    }

    /// Converts times of this type. Elements without a value stay.
    pub fn apply(&self, dtype: &DType, packing: &Packing, bytes: &mut [u8]) -> Result<()> {
        let item_len = dtype.item_len();
        for item in bytes.chunks_exact_mut(item_len.max(1)) {
            let element = Element::of(dtype, item);
            if packing.value(element).is_none() {
                continue;
            }
            match (dtype, element) {
                (DType::Int(_) | DType::Uint(_), Element::Int(count)) => {
                    let count = self.counted(count)?;
                    let range = match dtype {
                        DType::Uint(_) => (0, (1_i128 << (8 * item_len)) - 1),
                        _ => (-(1_i128 << (8 * item_len - 1)), (1_i128 << (8 * item_len - 1)) - 1),
                    };
                    if count < range.0 || count > range.1 {
                        return Err(inexact("a time is out of range"));
                    }
                    let new = count.to_le_bytes();
                    item.copy_from_slice(new.get(..item_len).unwrap_or_default());
                }
                (DType::Float(8), Element::Float(time)) => {
                    item.copy_from_slice(&self.moved(time)?.to_le_bytes());
                }
                (DType::Float(4), Element::Float(time)) => {
                    item.copy_from_slice(&to_single(self.moved(time)?).to_le_bytes());
                }
                _ => return Err(inexact("the type of the array cannot hold times")),
            }
        }
        Ok(())
    }

    fn counted(&self, count: i128) -> Result<i128> {
        let nanos = count.checked_mul(self.from).and_then(|at| at.checked_add(self.between));
        let nanos = nanos.ok_or_else(|| inexact("a time is too large"))?;
        self.check_calendar(nanos)?;
        if nanos.checked_rem_euclid(self.to) != Some(0) {
            return Err(inexact("a time is not a whole number"));
        }
        nanos.checked_div(self.to).ok_or_else(|| inexact("a time is too large"))
    }

    fn check_calendar(&self, nanos: i128) -> Result<()> {
        match self.least {
            Some(least) if nanos < least => {
                Err(inexact("a time is before 15 October 1582, when the two calendars differ"))
            }
            _ => Ok(()),
        }
    }

    fn moved(&self, time: f64) -> Result<f64> {
        // Whole numbers stay exact.
        if time.fract() == 0.0 && time.abs() < 1e15 {
            let whole = format!("{time:.0}").parse().ok();
            if let Some(count) = whole.and_then(|whole| self.counted(whole).ok()) {
                return Ok(to_float(count));
            }
        }
        let nanos = time * to_float(self.from) + to_float(self.between);
        if let Some(least) = self.least.filter(|least| nanos < to_float(*least)) {
            self.check_calendar(least - 1)?;
        }
        Ok(nanos / to_float(self.to))
    }
}

/// Returns the error for times that the target cannot have.
fn inexact(why: &str) -> Error {
    Error::invalid(format!("{why} in the units of the target: convert the times in the file first"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attributes(units: &str, calendar: &str) -> Object {
        Object::from_iter([
            ("units".to_owned(), json!(units)),
            ("calendar".to_owned(), json!(calendar)),
        ])
    }

    fn shifted(from: (&str, &str), to: (&str, &str), time: i64) -> Result<i64> {
        let shift = TimeShift::between(&attributes(from.0, from.1), &attributes(to.0, to.1))?;
        let mut bytes = time.to_le_bytes().to_vec();
        if let Some(shift) = shift {
            shift.apply(&DType::Int(8), &Packing::none(), &mut bytes)?;
        }
        Ok(i64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    #[test]
    fn times_are_counted_again_in_other_units_since_another_moment() {
        let to = |units, calendar, time| {
            shifted(("days since 2000-01-01", calendar), (units, calendar), time)
        };
        assert_eq!(to("hours since 2000-01-01", "standard", 3).expect("counted"), 72);
        assert_eq!(to("days since 1999-12-31T00:00:00Z", "gregorian", 3).expect("counted"), 4);
        assert_eq!(to("days since 1900-1-1 00:00:0.0", "standard", 0).expect("counted"), 36524);
        assert_eq!(to("days since 1900-01-01", "noleap", 0).expect("counted"), 36500);
        assert_eq!(to("days since 1900-01-01", "360_day", 0).expect("counted"), 36000);
        assert_eq!(to("days since 1900-01-01", "all_leap", 0).expect("counted"), 36600);
        assert_eq!(to("days since 1900-01-01", "julian", 0).expect("counted"), 36525);
        assert_eq!(
            to("seconds since 2000-01-01 02:00 +2:00", "standard", 1).expect("counted"),
            86400
        );
        let into_days = shifted(
            ("hours since 2000-01-01", "standard"),
            ("days since 2000-01-01", "standard"),
            25,
        );
        assert!(into_days.expect_err("refused").detail().contains("whole number"));
        let calendars =
            shifted(("days since 2000-01-01", "noleap"), ("days since 2000-01-01", "standard"), 25);
        assert!(calendars.expect_err("refused").detail().contains("cannot compare"));
    }

    #[test]
    fn the_standard_calendar_has_no_days_between_those_of_julius_and_of_gregory() {
        let day = |year, month, day| Calendar::Standard.day(year, month, day).expect("a day");
        assert_eq!(day(1582, 10, 15) - day(1582, 10, 4), 1);
        assert_eq!(day(2000, 3, 1) - day(2000, 2, 28), 2);
        assert_eq!(day(1900, 3, 1) - day(1900, 2, 28), 1);
        assert_eq!(day(1500, 3, 1) - day(1500, 2, 28), 2);
        assert_eq!(Calendar::Gregorian.day(2001, 2, 29), None);
        assert_eq!(Calendar::Gregorian.day(2001, 13, 1), None);
    }
}
