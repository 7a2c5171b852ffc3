//! Types that count time, and how to print times as NumPy does.

/// The units of `numpy.datetime64` and `numpy.timedelta64`; `generic` means no unit.
pub const TIME_UNITS: [&str; 14] =
    ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic"];

/// A type that counts time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Time {
    /// Whether this is a span (`numpy.timedelta64`), and not a point in time (`numpy.datetime64`).
    pub is_span: bool,
    /// One of [`TIME_UNITS`].
    pub unit: &'static str,
    /// The number of units in a step, at least 1.
    pub scale: u32,
}

/// Units shorter than a second: the name, the number of digits after the point, and the number of
/// units in a second.
const FRACTIONS: [(&str, usize, i128); 6] = [
    ("ms", 3, 1_000),
    ("us", 6, 1_000_000),
    ("ns", 9, 1_000_000_000),
    ("ps", 12, 1_000_000_000_000),
    ("fs", 15, 1_000_000_000_000_000),
    ("as", 18, 1_000_000_000_000_000_000),
];

/// Formats a count of the steps of a type: a time in ISO 8601 (`2020-02-29T12:00`), a span with its
/// unit (`90 s`).
pub fn time_text(count: i128, time: Time) -> String {
    let count = count.saturating_mul(time.scale.into());
    if time.is_span || time.unit == "generic" {
        return span(count, time.unit);
    }
    let day = |days: i128| {
        let (year, month, day) = civil(days);
        format!("{}-{month:02}-{day:02}", year_text(year))
    };
    if let Some((_, digits, unit)) = FRACTIONS.iter().find(|(name, ..)| *name == time.unit) {
        let (seconds, rest) = (count.div_euclid(*unit), count.rem_euclid(*unit));
        return format!("{}.{rest:0digits$}", of_seconds(seconds, 3, day));
    }
    match time.unit {
        "Y" => year_text(count.saturating_add(1970)),
        "M" => {
            let (years, months) = (count.div_euclid(12), count.rem_euclid(12));
            format!("{}-{:02}", year_text(years.saturating_add(1970)), months + 1)
        }
        "W" => day(count.saturating_mul(7)),
        "D" => day(count),
        "h" => of_seconds(count.saturating_mul(3600), 1, day),
        "m" => of_seconds(count.saturating_mul(60), 2, day),
        _ => of_seconds(count, 3, day),
    }
}

fn span(count: i128, unit: &str) -> String {
    if unit == "generic" { count.to_string() } else { format!("{count} {unit}") }
}

fn year_text(year: i128) -> String {
    if year < 0 { format!("-{:04}", year.unsigned_abs()) } else { format!("{year:04}") }
}

/// Formats seconds since 1970 with the date and the first `parts` of hours, minutes and seconds.
fn of_seconds(seconds: i128, parts: usize, day: impl Fn(i128) -> String) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let clock = [second / 3600, second / 60 % 60, second % 60];
    let clock: Vec<String> = clock.iter().take(parts).map(|part| format!("{part:02}")).collect();
    format!("{}T{}", day(days), clock.join(":"))
}

/// Returns the year, month and day of a number of days since 1970, in the Gregorian calendar.
fn civil(days: i128) -> (i128, i128, i128) {
    // Years begin in March here, so that the leap day is the last one.
    let shifted = days.saturating_add(719_468);
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i128::from(month <= 2), month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_numpy_writes_them() {
        let time = |count, unit, scale| time_text(count, Time { is_span: false, unit, scale });
        assert_eq!(time(0, "D", 1), "1970-01-01");
        assert_eq!(time(18_321, "D", 1), "2020-02-29");
        assert_eq!(time(-1, "D", 1), "1969-12-31");
        assert_eq!(time(-719_529, "D", 1), "-0001-12-31");
        assert_eq!(time(1_582_977_600_123_456_789, "ns", 1), "2020-02-29T12:00:00.123456789");
        assert_eq!(time(-1, "ms", 1), "1969-12-31T23:59:59.999");
        assert_eq!(time(2, "s", 25), "1970-01-01T00:00:50");
        assert_eq!(time(601, "M", 1), "2020-02");
        assert_eq!(time(50, "Y", 1), "2020");
        assert_eq!(time(439_716, "h", 1), "2020-02-29T12");
        assert_eq!(time_text(-3, Time { is_span: true, unit: "ms", scale: 10 }), "-30 ms");
    }
}
