//! Times in units since a moment, as the CF conventions have them (section 4.4).

use crate::dtype::{DType, Element, to_float};
use crate::error::{Error, Result};
use crate::json::Object;
use crate::metadata::Packing;

/// Microseconds in the units of CF.
const UNITS: [(&[&str], i128); 7] = [
    (&["microseconds", "microsecond", "microsec", "microsecs"], 1),
    (&["milliseconds", "millisecond", "millisec", "millisecs", "msec", "msecs", "ms"], 1_000),
    (&["seconds", "second", "sec", "secs", "s"], SECOND),
    (&["minutes", "minute", "min", "mins"], 60 * SECOND),
    (&["hours", "hour", "hr", "hrs", "h"], 3600 * SECOND),
    (&["days", "day", "d"], DAY),
    (&["weeks", "week"], 7 * DAY),
];

const SECOND: i128 = 1_000_000;
const DAY: i128 = 86_400 * SECOND;

/// The length of months in a year without a leap day.
const MONTHS: [i128; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// Days of a calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calendar {
    /// Julian before 15 October 1582, Gregorian from then on.
    Standard,
    Gregorian,
    Julian,
    /// No year has a leap day.
    NoLeap,
    /// Every year has one.
    AllLeap,
    /// Every month has 30 days.
    Days360,
}

impl Calendar {
    fn parse(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "standard" | "gregorian" => Self::Standard,
            "proleptic_gregorian" => Self::Gregorian,
            "julian" => Self::Julian,
            "noleap" | "365_day" => Self::NoLeap,
            "all_leap" | "366_day" => Self::AllLeap,
            "360_day" => Self::Days360,
            _ => return None,
        })
    }

    /// Returns the number of a day; only differences of such numbers mean something. `None` for a
    /// date that the calendar lacks.
    fn day(self, year: i128, month: i128, day: i128) -> Option<i128> {
        let is_gregorian = match self {
            Self::Standard => (year, month, day) >= (1582, 10, 15),
            other => other == Self::Gregorian,
        };
        let has_leap_day = match self {
            Self::NoLeap | Self::Days360 => false,
            Self::AllLeap => true,
            _ if is_gregorian => {
                year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
            }
            _ => year.rem_euclid(4) == 0,
        };
        // The year before the first one of these calendars is no year 0.
        if matches!(self, Self::Standard | Self::Julian) && year < 1 {
            return None;
        }
        let months = usize::try_from(month.checked_sub(1)?).ok()?;
        let leap_day = |month: usize| i128::from(has_leap_day && month == 1);
        let len = match self {
            Self::Days360 => 30,
            _ => MONTHS.get(months)?.checked_add(leap_day(months))?,
        };
        if !(1..=12).contains(&month) || !(1..=len).contains(&day) || year.abs() > 100_000 {
            return None;
        }
        let before = year - 1;
        let in_year: i128 = match self {
            Self::Days360 => 30 * (month - 1),
            _ => MONTHS.iter().take(months).enumerate().map(|(at, len)| len + leap_day(at)).sum(),
        };
        let of_years = match self {
            Self::Days360 => 360 * before,
            Self::NoLeap => 365 * before,
            Self::AllLeap => 366 * before,
            _ if is_gregorian => {
                365 * before + before.div_euclid(4) - before.div_euclid(100)
                    + before.div_euclid(400)
            }
            _ => 365 * before + before.div_euclid(4) - 2,
        };
        Some(of_years + in_year + day - 1)
    }
}

/// Units since a moment.
#[derive(Debug, Clone, PartialEq)]
struct TimeUnits {
    calendar: Calendar,
    /// Microseconds in a unit.
    unit: i128,
    /// The moment in microseconds.
    since: i128,
}

impl TimeUnits {
    /// Whether both count days that have the same names.
    fn is_comparable_with(&self, other: &Self) -> bool {
        let is_usual = |one: &Self| {
            matches!(one.calendar, Calendar::Standard | Calendar::Gregorian)
                && one.since >= first_gregorian()
        };
        self.calendar == other.calendar || is_usual(self) && is_usual(other)
    }

    fn parse(units: &str, calendar: Option<&str>) -> Option<Self> {
        let calendar = Calendar::parse(calendar.unwrap_or("standard"))?;
        let mut words = units.split_whitespace();
        let unit = words.next()?.to_ascii_lowercase();
        let (_, unit) = UNITS.iter().find(|(names, _)| names.contains(&unit.as_str()))?;
        if !words.next()?.eq_ignore_ascii_case("since") {
            return None;
        }
        let rest: Vec<&str> = words.collect();
        let since = moment(&rest.join(" "), calendar)?;
        Some(Self { calendar, unit: *unit, since })
    }
}

/// Parses `2000-01-01`, `2000-1-1 12:30:00.5`, `2000-01-01T00:00:00Z` or `2000-01-01 00:00 +2:00`.
fn moment(text: &str, calendar: Calendar) -> Option<i128> {
    let text = text.trim();
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, ""));
    let mut numbers = date.split('-').map(|number| number.parse::<i128>().ok());
    let mut number = || numbers.next().unwrap_or(Some(1));
    let (year, month, day) = (number()?, number()?, number()?);
    if numbers.next().is_some() {
        return None;
    }
    let day = calendar.day(if is_negative { -year } else { year }, month, day)?;
    let time = time.trim();
    let zone = ["Z", "UTC", "GMT"].into_iter().find(|zone| {
        let at = time.len().checked_sub(zone.len()).and_then(|at| time.get(at..));
        at.is_some_and(|end| end.eq_ignore_ascii_case(zone))
    });
    let len = time.len().saturating_sub(zone.map_or(0, str::len));
    let time = time.get(..len).unwrap_or_default();
    let zone = time.find(['+', '-']);
    let (time, zone) = zone.map_or((time, ""), |at| time.split_at(at));
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let zone = match zone.get(1..) {
        Some(digits) if digits.len() == 4 && !digits.contains(':') => {
            let (hours, minutes) = digits.split_at_checked(2)?;
            clock(&format!("{hours}:{minutes}"))?
        }
        other => other.map_or(Some(0), clock)?,
    };
    Some(day * DAY + clock(time)? - sign * zone)
}

/// Parses `12`, `12:30` or `12:30:00.25` into microseconds.
fn clock(text: &str) -> Option<i128> {
    let text = text.trim();
    if text.is_empty() {
        return Some(0);
    }
    let mut parts = text.split(':');
    let hours: i128 = parts.next()?.trim().parse().ok()?;
    let minutes: i128 = parts.next().unwrap_or("0").trim().parse().ok()?;
    let seconds = parts.next().unwrap_or("0").trim();
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let (whole, micros): (i128, i128) = (whole.parse().ok()?, digits.parse().ok()?);
    if parts.next().is_some() || !(0..=24).contains(&hours) || !(0..60).contains(&minutes) {
        return None;
    }
    Some((hours * 3600 + minutes * 60 + whole) * SECOND + micros)
}

/// Whether units are those of times since a moment.
pub fn is_since(units: &str) -> bool {
    units.to_ascii_lowercase().contains(" since ")
}

/// How times of a source become those of the target.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeShift {
    /// Microseconds in a unit of the source.
    from: i128,
    /// Microseconds in a unit of the target.
    to: i128,
    /// Microseconds from the moment of the target to that of the source.
    between: i128,
    /// Since when the calendars name the same days, in microseconds from the moment of the target.
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
        let both = both.filter(|(old, new)| old.is_comparable_with(new));
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
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::as_conversions,
                        reason = "the source has no more digits"
                    )]
                    let short = self.moved(time)? as f32;
                    item.copy_from_slice(&short.to_le_bytes());
                }
                _ => return Err(inexact("the type of the array cannot hold times")),
            }
        }
        Ok(())
    }

    fn counted(&self, count: i128) -> Result<i128> {
        let micros = count.checked_mul(self.from).and_then(|at| at.checked_add(self.between));
        let micros = micros.ok_or_else(|| inexact("a time is too large"))?;
        self.check_calendar(micros)?;
        if micros.checked_rem_euclid(self.to) != Some(0) {
            return Err(inexact("a time is not a whole number"));
        }
        micros.checked_div(self.to).ok_or_else(|| inexact("a time is too large"))
    }

    fn check_calendar(&self, micros: i128) -> Result<()> {
        match self.least {
            Some(least) if micros < least => {
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
        let micros = time * to_float(self.from) + to_float(self.between);
        if let Some(least) = self.least.filter(|least| micros < to_float(*least)) {
            self.check_calendar(least - 1)?;
        }
        Ok(micros / to_float(self.to))
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
