//! A histogram in one line.

use super::colors::Glyphs;
use crate::dtype::{to_float, to_index};

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '#', '@'];

/// Draws a bar for each count, in at most `width` columns. A count above 0 is always visible.
pub fn bars(counts: &[u64], width: usize, glyphs: Glyphs) -> String {
    let per = counts.len().div_ceil(width.max(1)).max(1);
    let sum = |some: &[u64]| some.iter().fold(0_u64, |all, count| all.saturating_add(*count));
    let sums: Vec<u64> = counts.chunks(per).map(sum).collect();
    let most = to_float(sums.iter().copied().max().unwrap_or_default().max(1).into());
    let all = if glyphs == Glyphs::Ascii { ASCII } else { BLOCKS };
    let bar = |sum: &u64| {
        let level = to_index((8.0 * to_float((*sum).into()) / most).round());
        let level = if *sum > 0 { level.max(1) } else { 0 };
        all.get(level).copied().unwrap_or(' ')
    };
    sums.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_bar_is_full_and_a_small_count_is_seen() {
        assert_eq!(bars(&[0, 1, 4000, 8000], 40, Glyphs::Blocks), " ▁▄█");
        assert_eq!(bars(&[0, 1, 4000, 8000], 40, Glyphs::Ascii), " .=@");
        assert_eq!(bars(&[1, 1, 4, 4], 2, Glyphs::Blocks), "▂█");
        assert_eq!(bars(&[], 40, Glyphs::Blocks), "");
    }
}
