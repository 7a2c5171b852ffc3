//! Formats numbers for pictures and statistics.

/// Formats a number with at most six significant digits, as `%.6g` does.
pub fn significant(number: f64) -> String {
    if !number.is_finite() {
        let text = if number.is_nan() { "NaN" } else { "Infinity" };
        return if number < 0.0 { format!("-{text}") } else { text.to_owned() };
    }
    let scientific = format!("{number:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    match usize::try_from(5_i32.saturating_sub(exponent)) {
        Ok(decimals) if exponent >= -4 => trimmed(&format!("{number:.decimals$}")),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs())
        }
    }
}

/// Removes zeros at the end of a fraction.
fn trimmed(text: &str) -> String {
    if !text.contains('.') {
        return text.to_owned();
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_printf_gives_them() {
        for (number, text) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (-273.15, "-273.15"),
            (999_999.5, "1e+06"),
            (123_456.7, "123457"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_123_456_78, "0.000123457"),
            (0.000_012_3, "1.23e-05"),
            (1e300, "1e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(significant(number), text);
        }
    }
}
