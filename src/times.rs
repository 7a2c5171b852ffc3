//! Times in units since a moment, in the calendars of the CF conventions (section 4.4).

use crate::dtype::{Element, Time, to_float};

/// Nanoseconds in the units of CF.
const UNITS: [(&[&str], i128); 8] = [
    (&["nanoseconds", "nanosecond", "nanosec", "nanosecs", "ns"], 1),
    (&["microseconds", "microsecond", "microsec", "microsecs", "us"], 1_000),
    (&["milliseconds", "millisecond", "millisec", "millisecs", "msec", "msecs", "ms"], 1_000_000),
    (&["seconds", "second", "sec", "secs", "s"], SECOND),
    (&["minutes", "minute", "min", "mins"], 60 * SECOND),
    (&["hours", "hour", "hr", "hrs", "h"], 3600 * SECOND),
    (&["days", "day", "d"], DAY),
    (&["weeks", "week"], 7 * DAY),
];

const SECOND: i128 = 1_000_000_000;
/// Nanoseconds in a day.
pub const DAY: i128 = 86_400 * SECOND;

/// The length of months in a year without a leap day.
const MONTHS: [i128; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// Days of a calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calendar {
    /// Julian before 15 October 1582, Gregorian from then on.
    Standard,
    /// Gregorian in all years.
    Gregorian,
    /// Every fourth year has a leap day.
    Julian,
    /// No year has a leap day.
    NoLeap,
    /// Every year has one.
    AllLeap,
    /// Every month has 30 days.
    Days360,
}

impl Calendar {
    /// Returns the calendar of this name.
    pub fn parse(name: &str) -> Option<Self> {
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
    pub fn day(self, year: i128, month: i128, day: i128) -> Option<i128> {
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
pub struct TimeUnits {
    /// The calendar.
    pub calendar: Calendar,
    /// Nanoseconds in a unit.
    pub unit: i128,
    /// The moment in nanoseconds. Only differences of such numbers mean something.
    pub since: i128,
}

impl TimeUnits {
    /// Parses the attributes `units` and `calendar`.
    pub fn parse(units: &str, calendar: Option<&str>) -> Option<Self> {
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

    /// Returns the units of a type that counts time since 1970; `None` for spans of time, and for
    /// units without a fixed length.
    pub fn of_type(time: Time) -> Option<Self> {
        if time.is_span {
            return None;
        }
        let unit = match time.unit {
            "W" => 7 * DAY,
            "D" => DAY,
            "h" => 3600 * SECOND,
            "m" => 60 * SECOND,
            "s" => SECOND,
            "ms" => 1_000_000,
            "us" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        let since = Calendar::Gregorian.day(1970, 1, 1)? * DAY;
        Some(Self { calendar: Calendar::Gregorian, unit: unit * i128::from(time.scale), since })
    }
}

impl TimeUnits {
    /// Returns a time in nanoseconds. A float that counts days is exact to a microsecond.
    pub fn moment(&self, element: Element) -> Option<i128> {
        match element {
            Element::Int(int) => int.checked_mul(self.unit)?.checked_add(self.since),
            Element::Float(float) => {
                let micros = (float * to_float(self.unit) / 1e3).round();
                let micros = micros.is_finite().then(|| format!("{micros:.0}"))?;
                micros.parse::<i128>().ok()?.checked_mul(1_000)?.checked_add(self.since)
            }
            Element::Complex(..) | Element::Bytes => None,
        }
    }
}

impl Calendar {
    /// Returns a moment as `2020-01-31T06:00:00`, with a fraction of the second if it has one.
    /// `None` before the first year of the calendar.
    pub fn text(self, moment: i128) -> Option<String> {
        let (days, rest) = (moment.div_euclid(DAY), moment.rem_euclid(DAY));
        // A year has at most so many days, so this is no later one.
        let mut year = (days - 2).div_euclid(366).max(-100_000);
        year = if matches!(self, Self::Standard | Self::Julian) { year.max(1) } else { year };
        while self.day(year + 1, 1, 1)? <= days {
            year += 1;
        }
        let month = (1..=12)
            .rev()
            .find(|month| self.day(year, *month, 1).is_some_and(|first| first <= days))?;
        let mut day = days - self.day(year, month, 1)? + 1;
        // These days are none of the calendar.
        if self == Self::Standard && (year, month) == (1582, 10) && day > 4 {
            day += 10;
        }
        let (seconds, nanos) = (rest / SECOND, rest % SECOND);
        let clock = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let fraction = if nanos == 0 { String::new() } else { format!(".{nanos:09}") };
        let fraction = fraction.trim_end_matches('0');
        let (hours, minutes, seconds) = clock;
        Some(format!(
            "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}{fraction}"
        ))
    }

    /// Returns the first moment of the period that a date or time names, and that after its end, in
    /// nanoseconds: `2020`, `2020-01`, `2020-01-31`, `2020-01-31T06`, `2020-01-31T06:30`. `None` if
    /// it is none in this calendar.
    pub fn period(self, text: &str) -> Option<(i128, i128)> {
        let text = text.trim();
        let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, ""));
        let digits = date.strip_prefix('-').unwrap_or(date);
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let parts: Vec<&str> = digits.split('-').collect();
        let has_year = parts.first().is_some_and(|year| year.len() >= 4);
        if !has_year || !parts.iter().all(|part| is_number(part)) {
            return None;
        }
        let start = moment(text, self)?;
        let number = |at: usize| parts.get(at).and_then(|part| part.parse::<i128>().ok());
        let year = number(0)? * if date.starts_with('-') { -1 } else { 1 };
        let first_day = |year, month| Some(self.day(year, month, 1)? * DAY);
        let len = match (parts.len(), time.split(':').count()) {
            (1, _) if time.is_empty() => first_day(year + 1, 1)? - start,
            (2, _) if time.is_empty() => match number(1)? {
                12 => first_day(year + 1, 1)? - start,
                month => first_day(year, month + 1)? - start,
            },
            (3, _) if time.is_empty() => DAY,
            (3, 1) => 3600 * SECOND,
            (3, 2) => 60 * SECOND,
            (3, 3) if time.contains('.') => 1,
            (3, 3) => SECOND,
            _ => return None,
        };
        Some((start, start + len))
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

/// Parses `12`, `12:30` or `12:30:00.25` into nanoseconds.
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
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let (whole, nanos): (i128, i128) = (whole.parse().ok()?, digits.parse().ok()?);
    // A leap second is none of these calendars, but some files have it.
    let is_clock =
        (0..=24).contains(&hours) && (0..60).contains(&minutes) && (0..=60).contains(&whole);
    if parts.next().is_some() || !is_clock {
        return None;
    }
    Some((hours * 3600 + minutes * 60 + whole) * SECOND + nanos)
}

/// Whether units are those of times since a moment.
pub fn is_since(units: &str) -> bool {
    units.to_ascii_lowercase().contains(" since ")
}
