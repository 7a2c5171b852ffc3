//! Numbers as colours: a picture of cells, and the scale of its colours.

use super::colors::{Colors, Glyphs};
use super::palette::Palette;
use crate::dtype::{to_float, to_index};

/// The scale in the colours that every terminal has.
const SIXTEEN: [u8; 6] = [5, 4, 6, 2, 10, 11];

/// The scale without colours.
const ASCII: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];

/// How a picture is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heat {
    /// The smallest and the largest number.
    pub range: (f64, f64),
    /// The colours of the terminal.
    pub colors: Colors,
    /// The characters of the terminal.
    pub glyphs: Glyphs,
}

impl Heat {
    /// Returns the colours for these numbers; `None` if none of them is finite.
    pub fn of(values: &[f64], colors: Colors, glyphs: Glyphs) -> Option<Self> {
        let mut finite = values.iter().copied().filter(|value| value.is_finite());
        let first = finite.next()?;
        let range =
            finite.fold((first, first), |(low, high), value| (low.min(value), high.max(value)));
        Some(Self { range, colors, glyphs })
    }

    /// Returns the colours of pixels for these numbers; `None` if none of them is finite.
    pub fn in_true_colors(values: &[f64]) -> Option<Self> {
        Self::of(values, Colors::True, Glyphs::Blocks)
    }

    /// Returns the colour of a pixel, `None` for NaN.
    pub fn rgb(&self, value: f64) -> Option<[u8; 3]> {
        self.part(value).map(|part| Palette::default().color(part))
    }

    /// Returns how many rows of cells share a line.
    pub fn rows_in_line(colors: Colors, glyphs: Glyphs) -> usize {
        if colors != Colors::None && glyphs == Glyphs::Blocks { 2 } else { 1 }
    }

    /// Draws rows of `width` cells.
    pub fn draw(&self, values: &[f64], width: usize) -> Vec<String> {
        let rows: Vec<&[f64]> = values.chunks(width.max(1)).collect();
        let line = |rows: &[&[f64]]| match rows {
            [one] if Self::rows_in_line(self.colors, self.glyphs) == 1 => self.row(one),
            [top, rest @ ..] => self.two_rows(top, rest.first().copied().unwrap_or_default()),
            [] => String::new(),
        };
        rows.chunks(Self::rows_in_line(self.colors, self.glyphs)).map(line).collect()
    }

    /// Draws the scale in a line, with the smallest number at the left.
    pub fn scale(&self, width: usize) -> String {
        let (low, high) = self.range;
        let last = to_float(i128::try_from(width.saturating_sub(1).max(1)).unwrap_or(1));
        let part = |at: usize| to_float(i128::try_from(at).unwrap_or_default()) / last;
        let values: Vec<f64> = (0..width).map(|at| low + (high - low) * part(at)).collect();
        let values = if (high - low).is_finite() { values } else { vec![low; width] };
        self.row(&values)
    }

    fn row(&self, values: &[f64]) -> String {
        let mut pen = Pen::default();
        for value in values {
            match self.color(*value) {
                Some(Color::Shade(shade)) => pen.put(shade, None, None),
                color => pen.put(' ', None, color),
            }
        }
        pen.end()
    }

    fn two_rows(&self, top: &[f64], bottom: &[f64]) -> String {
        let mut pen = Pen::default();
        let bottom = bottom.iter().copied().chain(std::iter::repeat(f64::NAN));
        for (top, bottom) in top.iter().zip(bottom) {
            match (self.color(*top), self.color(bottom)) {
                (None, None) => pen.put(' ', None, None),
                (None, bottom) => pen.put('▄', bottom, None),
                (top, bottom) => pen.put('▀', top, bottom),
            }
        }
        pen.end()
    }

    /// Returns the colour of a number, `None` for NaN. Infinities have the colours of the ends.
    fn color(&self, value: f64) -> Option<Color> {
        let part = self.part(value)?;
        let of = |count: usize| {
            let count = to_float(i128::try_from(count).unwrap_or_default());
            to_index((part * count).min(count - 1.0))
        };
        match self.colors {
            Colors::None => ASCII.get(of(ASCII.len())).copied().map(Color::Shade),
            Colors::Sixteen => SIXTEEN.get(of(SIXTEEN.len())).copied().map(Color::Sixteen),
            Colors::Indexed => Some(Color::Indexed(indexed(Palette::default().color(part)))),
            Colors::True => Some(Color::True(Palette::default().color(part))),
        }
    }
}

impl Heat {
    fn part(&self, value: f64) -> Option<f64> {
        part(value, self.range)
    }
}

/// Returns the position of a number in a range, from 0 to 1; `None` for NaN. In a range of one
/// number, it is the middle.
pub fn part(value: f64, (low, high): (f64, f64)) -> Option<f64> {
    if value.is_nan() {
        return None;
    }
    // Use halves, since the difference of two floats may be infinite.
    let part = (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
    Some(if part.is_nan() { 0.5 } else { part.clamp(0.0, 1.0) })
}

/// The colour of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Color {
    Shade(char),
    Sixteen(u8),
    Indexed(u8),
    True([u8; 3]),
}

/// Returns the nearest colour in the 6 x 6 x 6 colour cube of xterm.
fn indexed([r, g, b]: [u8; 3]) -> u8 {
    let level = |part: u8| match part {
        0..48 => 0,
        48..115 => 1,
        _ => (part - 35) / 40,
    };
    16 + 36 * level(r) + 6 * level(g) + level(b)
}

/// A line in colours. It writes a colour only where the colour changes.
#[derive(Debug, Default)]
struct Pen {
    text: String,
    ink: Option<Color>,
    paper: Option<Color>,
}

impl Pen {
    fn put(&mut self, char: char, ink: Option<Color>, paper: Option<Color>) {
        let is_reset = (self.paper.is_some() && paper.is_none())
            || (self.ink.is_some() && ink.is_none() && paper.is_none());
        if is_reset {
            self.text.push_str("\x1b[0m");
            (self.ink, self.paper) = (None, None);
        }
        if let Some(color) = ink.filter(|_| ink != self.ink) {
            self.text.push_str(&code(color, Ground::Ink));
            self.ink = ink;
        }
        if let Some(color) = paper.filter(|_| paper != self.paper) {
            self.text.push_str(&code(color, Ground::Paper));
            self.paper = paper;
        }
        self.text.push(char);
    }

    fn end(mut self) -> String {
        if self.ink.is_some() || self.paper.is_some() {
            self.text.push_str("\x1b[0m");
        }
        self.text
    }
}

/// The use of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// The character.
    Ink,
    /// The space behind it.
    Paper,
}

fn code(color: Color, ground: Ground) -> String {
    let of = |ink: u8, paper: u8| if ground == Ground::Ink { ink } else { paper };
    match color {
        Color::Shade(_) => String::new(),
        Color::Sixteen(color) if color < 8 => format!("\x1b[{}m", of(30, 40) + color),
        Color::Sixteen(color) => format!("\x1b[{}m", of(90, 100) + color % 8),
        Color::Indexed(color) => format!("\x1b[{};5;{color}m", of(38, 48)),
        Color::True([r, g, b]) => format!("\x1b[{};2;{r};{g};{b}m", of(38, 48)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colours_a_cell_is_a_character() {
        let values = [0.0, 1.0, f64::NAN, 2.0, 4.0, f64::INFINITY];
        let heat = Heat::of(&values, Colors::None, Glyphs::Blocks).expect("finite numbers");
        assert_eq!(heat.range, (0.0, 4.0));
        assert_eq!(heat.draw(&values, 3), [".- ", "+@@"]);
        assert_eq!(heat.scale(9), ".:-=+*#%@");
        assert!(Heat::of(&[f64::NAN], Colors::None, Glyphs::Blocks).is_none());
        let even = Heat::of(&[7.0, 7.0], Colors::None, Glyphs::Blocks).expect("a number");
        assert_eq!(even.draw(&[7.0, 7.0], 2), ["++"]);
    }

    #[test]
    fn a_line_has_two_rows_in_colours() {
        let values = [0.0, 0.0, 4.0, 4.0, f64::NAN, 4.0];
        let heat = Heat::of(&values, Colors::Sixteen, Glyphs::Blocks).expect("finite numbers");
        let lines = heat.draw(&values, 2);
        assert_eq!(lines, ["\x1b[35m\x1b[103m▀▀\x1b[0m", " \x1b[93m▀\x1b[0m"]);
        let heat = Heat { colors: Colors::True, ..heat };
        assert_eq!(heat.draw(&[0.0], 1), ["\x1b[38;2;68;1;84m▀\x1b[0m"]);
        let heat = Heat { colors: Colors::Indexed, ..heat };
        assert_eq!(heat.draw(&[4.0], 1), ["\x1b[38;5;220m▀\x1b[0m"]);
    }

    #[test]
    fn the_widest_range_has_a_middle() {
        let values = [f64::MIN, 0.0, f64::MAX];
        let heat = Heat::of(&values, Colors::None, Glyphs::Ascii).expect("finite numbers");
        assert_eq!(heat.draw(&values, 3), [".+@"]);
    }
}
