//! The numbers that stand at an axis.

/// The most numbers at an axis.
const MOST: usize = 32;

/// Returns round numbers from `low` to `high`, about `wanted` of them: multiples of 1, 2 or 5 times
/// a power of ten. None if the range has no length.
pub fn ticks(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let span = high - low;
    if !(span.is_finite() && span > 0.0) {
        return Vec::new();
    }
    let wanted = wanted.clamp(1, MOST);
    let least = span / f64::from(u8::try_from(wanted).unwrap_or(u8::MAX));
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].map(|times| times * power).into_iter().find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step).ceil();
    let mut all = Vec::new();
    for number in 0..=MOST {
        // Adding steps would add their errors.
        let at = (first + f64::from(u8::try_from(number).unwrap_or(u8::MAX))) * step;
        // Numbers that are large beside their range may have no number between them.
        if !at.is_finite() || at > high || all.last() == Some(&at) {
            break;
        }
        // Zero has no sign.
        all.push(if at == 0.0 { 0.0 } else { at });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::ticks;

    #[test]
    fn ticks_are_round_and_lie_in_the_range() {
        assert_eq!(ticks(0.0, 1.0, 5), [0.0, 0.2, 0.4, 0.600_000_000_000_000_1, 0.8, 1.0]);
        assert_eq!(ticks(-90.0, 90.0, 4), [-50.0, 0.0, 50.0]);
        assert_eq!(ticks(271.3, 274.9, 4), [272.0, 273.0, 274.0]);
        for (low, high) in [(5.0, 5.0), (1.0, 0.0), (f64::NAN, 1.0), (f64::MIN, f64::MAX)] {
            assert!(ticks(low, high, 5).is_empty(), "{low} to {high}");
        }
        for (low, high) in [(1e300, 1.1e300), (1e-310, 3e-310), (1e16, 1e16 + 4.0), (0.0, 1e-300)] {
            let all = ticks(low, high, 200);
            assert!(all.len() <= 33, "{all:?}");
            assert!(all.iter().all(|at| (low..=high).contains(at)), "{low} to {high}: {all:?}");
            assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
        }
    }
}
