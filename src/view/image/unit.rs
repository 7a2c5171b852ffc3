//! Units of length and of time, by the names that OME-Zarr takes from UDUNITS, and by common
//! symbols.

/// The quantity that a unit measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Length, in metres.
    Length,
    /// Time, in seconds.
    Time,
}

/// A unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// The name as written.
    pub name: String,
    /// The quantity, with the size in metres or seconds: `multiple` times ten to the power of
    /// `exponent`.
    size: Option<(Quantity, u32, i32)>,
}

/// The prefixes, with their symbols and powers of ten.
const PREFIXES: &[(&str, &str, i32)] = &[
    ("", "", 0),
    ("yotta", "Y", 24),
    ("zetta", "Z", 21),
    ("exa", "E", 18),
    ("peta", "P", 15),
    ("tera", "T", 12),
    ("giga", "G", 9),
    ("mega", "M", 6),
    ("kilo", "k", 3),
    ("hecto", "h", 2),
    ("deca", "da", 1),
    ("deci", "d", -1),
    ("centi", "c", -2),
    ("milli", "m", -3),
    ("micro", "u", -6),
    ("micro", "\u{b5}", -6),
    ("micro", "\u{3bc}", -6),
    ("nano", "n", -9),
    ("pico", "p", -12),
    ("femto", "f", -15),
    ("atto", "a", -18),
    ("zepto", "z", -21),
    ("yocto", "y", -24),
];

/// Units that are not a base unit with a prefix, or that have other names.
const OTHERS: &[(&[&str], Quantity, u32, i32)] = &[
    (&["angstrom", "\u{c5}", "\u{212b}", "A"], Quantity::Length, 1, -10),
    (&["micron"], Quantity::Length, 1, -6),
    (&["inch", "in"], Quantity::Length, 254, -4),
    (&["foot", "ft"], Quantity::Length, 3048, -4),
    (&["minute", "min"], Quantity::Time, 60, 0),
    (&["hour", "h"], Quantity::Time, 3600, 0),
    (&["day", "d"], Quantity::Time, 86400, 0),
];

impl Unit {
    /// Returns the unit with this name.
    pub fn parse(name: &str) -> Self {
        Self { name: name.to_owned(), size: size_of(name) }
    }

    /// Returns ten to the power of `exponent` metres.
    pub fn of_exponent(exponent: i32) -> Self {
        let prefix = PREFIXES.iter().find(|(_, _, power)| *power == exponent);
        let prefix = prefix.map_or("", |(prefix, ..)| prefix);
        Self::parse(&format!("{prefix}meter"))
    }

    /// Returns the quantity that it measures, if known.
    pub fn quantity(&self) -> Option<Quantity> {
        self.size.map(|(quantity, ..)| quantity)
    }

    /// Returns the power of ten of a metre or second that it equals, `None` if it is not a power of
    /// ten.
    pub fn exponent(&self) -> Option<i32> {
        self.size.filter(|(_, multiple, _)| *multiple == 1).map(|(.., exponent)| exponent)
    }

    /// Converts a value to ten to the power of `exponent` metres or seconds.
    pub fn convert(&self, value: f64, exponent: i32) -> Option<f64> {
        let (_, multiple, own) = self.size?;
        let value = value * f64::from(multiple);
        let shift = own.saturating_sub(exponent);
        // Dividing by a power of ten is correctly rounded; multiplying with the inverse is not.
        Some(if shift < 0 {
            value / 10_f64.powi(shift.saturating_neg())
        } else {
            value * 10_f64.powi(shift)
        })
    }
}

fn size_of(name: &str) -> Option<(Quantity, u32, i32)> {
    let other = OTHERS.iter().find(|(names, ..)| {
        names.iter().any(|known| *known == name || name.strip_suffix('s') == Some(*known))
    });
    if let Some((_, quantity, multiple, exponent)) = other {
        return Some((*quantity, *multiple, *exponent));
    }
    let bases =
        [(["meter", "metre"], "m", Quantity::Length), (["second", "sec"], "s", Quantity::Time)];
    for (prefix, symbol, exponent) in PREFIXES {
        for (words, letter, quantity) in bases {
            let word = name.strip_prefix(prefix).map(|rest| rest.strip_suffix('s').unwrap_or(rest));
            let is_word = word.is_some_and(|word| words.contains(&word));
            if is_word || name.strip_prefix(symbol) == Some(letter) {
                return Some((quantity, 1, *exponent));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_known_by_name_and_by_symbol() {
        for (name, value, exponent, expected) in [
            ("micrometer", 0.65, -6, 0.65),
            ("micrometer", 650.0, -3, 0.65),
            ("micrometers", 0.65, -6, 0.65),
            ("\u{b5}m", 2.0, -9, 2000.0),
            ("um", 0.25, -6, 0.25),
            ("angstrom", 5.0, -9, 0.5),
            ("m", 3.0, 0, 3.0),
            ("ms", 250.0, 0, 0.25),
            ("minute", 1.5, 0, 90.0),
            ("nanometer", 8.0, -10, 80.0),
        ] {
            assert_eq!(Unit::parse(name).convert(value, exponent), Some(expected), "{name}");
        }
        for none in ["", "pixel", "furlong", "meters per second"] {
            assert_eq!(Unit::parse(none).convert(1.0, 0), None, "{none}");
        }
    }
}
