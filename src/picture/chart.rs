//! Numbers as an image with axes: cells in colours beside the bar of these, or a line.
//!
//! ```text
//!      title
//!   name of the rows        unit
//! 40 ┌──────────────┐        ┌┐
//!    │    cells     │        ││ 300
//! 30 └──────────────┘        └┘
//!    -10     0     10
//!    name of the columns
//! ```

use std::io;

use super::canvas::{BLACK, Canvas, LETTER, Rgb, TextPlace};
use super::heat::part;
use super::numbers::significant;
use super::palette::Palette;
use super::ticks::ticks;
use crate::dtype::{to_float, to_index};

/// The most pixels of the cells along each side; a small picture is enlarged to about that.
pub const MOST_PIXELS: (u64, u64) = (640, 480);

/// The pixels of a line.
const LINE_PLOT: (i32, i32) = (640, 320);

/// The width of the bar of colours, and the space beside it.
const BAR: i32 = 14;
const GAP: i32 = 16;

/// The length of a tick, and the space between it and its number.
const TICK: i32 = 5;
const SPACE: i32 = 3;

/// The colours of cells without a number, of lines in the background, and of a line of values.
const MISSING: Rgb = [200; 3];
const GRID: Rgb = [225; 3];
const LINE: Rgb = [31, 119, 180];

/// The pixels between two numbers at an axis.
const BETWEEN: (i32, i32) = (90, 40);

/// A side of a chart.
#[derive(Debug, Clone)]
pub struct ChartAxis {
    /// The name, with its unit; empty for a side that is no dimension.
    pub label: String,
    /// The coordinates of the first and the last cell.
    pub ends: [f64; 2],
    /// The number of cells.
    pub cells: u64,
    /// The number of elements that they show; an element may have several cells.
    pub elements: u64,
}

/// Numbers to draw.
#[derive(Debug)]
pub struct Chart<'v> {
    /// The text above.
    pub title: String,
    /// The unit of the numbers, empty if they have none.
    pub unit: String,
    /// The cells row by row, from the top. NaN stands for a missing one.
    pub values: &'v [f64],
    /// The side of the rows.
    pub down: ChartAxis,
    /// The side of the columns.
    pub across: ChartAxis,
    /// The colours.
    pub palette: Palette,
    /// The numbers at the ends of the scale; the smallest and the largest one by default.
    pub range: Option<(f64, f64)>,
}

impl Chart<'_> {
    /// Draws the chart. Returns it as PNG.
    pub fn png(&self) -> io::Result<Vec<u8>> {
        let canvas = if self.down.label.is_empty() { self.lines() } else { self.cells() };
        canvas.png()
    }

    /// Returns the range of the scale; `None` if no number is finite.
    fn range(&self) -> Option<(f64, f64)> {
        let mut finite = self.values.iter().copied().filter(|value| value.is_finite());
        let first = finite.next()?;
        let all = || finite.fold((first, first), |(low, high), at| (low.min(at), high.max(at)));
        Some(self.range.unwrap_or_else(all))
    }

    fn cells(&self) -> Canvas {
        let (columns, rows) = (self.across.cells.max(1), self.down.cells.max(1));
        let times = (MOST_PIXELS.0 / columns).min(MOST_PIXELS.1 / rows).max(1);
        let size = (pixels(columns.saturating_mul(times)), pixels(rows.saturating_mul(times)));
        let range = self.range();
        let bar_height = size.1.max(4 * LETTER.1);
        let bar = range.map(|(low, high)| numbers(low, high, (bar_height / BETWEEN.1).max(2)));
        let down = self.down.numbers(size.1 / BETWEEN.1);
        let left = width(&down) + TICK + 2 * SPACE;
        let numbers_width = bar.as_deref().map_or(0, width).max(letters(&self.unit) - BAR);
        let right = GAP + BAR + TICK + SPACE + numbers_width + SPACE;
        let mut frame = ChartFrame::new(&self.title, (left, right), size, bar_height);
        frame.labels(&self.down.label, &self.across.label);
        self.paint(&mut frame, times, range);
        frame.across(&self.across);
        frame.down(&down, |at| self.down.place(at, size.1));
        if let (Some(range), Some(bar)) = (range, &bar) {
            self.scale(&mut frame, bar_height, range, bar);
        }
        frame.canvas
    }

    /// Fills the cells.
    fn paint(&self, frame: &mut ChartFrame, times: u64, range: Option<(f64, f64)>) {
        let columns = usize::try_from(self.across.cells.max(1)).unwrap_or(usize::MAX);
        let times = pixels(times);
        for (row, values) in self.values.chunks(columns).enumerate() {
            for (column, value) in values.iter().enumerate() {
                let color = range.and_then(|range| part(*value, range));
                let color = color.map_or(MISSING, |part| self.palette.color(part));
                let place = |at: usize| pixels(u64::try_from(at).unwrap_or_default());
                let (x, y) =
                    (place(column).saturating_mul(times), place(row).saturating_mul(times));
                frame.canvas.fill((frame.left + x, frame.top + y), (times, times), color);
            }
        }
        frame.canvas.frame((frame.left - 1, frame.top - 1), (frame.size.0 + 1, frame.size.1 + 1));
    }

    /// Draws the bar of colours.
    fn scale(&self, frame: &mut ChartFrame, height: i32, range: (f64, f64), numbers: &[f64]) {
        let x = frame.left + frame.size.0 + GAP;
        let last = f64::from((height - 1).max(1));
        for row in 0..height {
            let color = self.palette.color(1.0 - f64::from(row) / last);
            frame.canvas.fill((x, frame.top + row), (BAR, 1), color);
        }
        frame.canvas.frame((x - 1, frame.top - 1), (BAR + 1, height + 1));
        for number in numbers {
            let Some(part) = part(*number, range) else { continue };
            let y = frame.top + rounded((1.0 - part) * last);
            frame.canvas.line((x + BAR, y), (x + BAR + TICK, y), BLACK);
            let place = (x + BAR + TICK + SPACE, y);
            frame.canvas.text(&significant(*number), place, TextPlace::After);
        }
        frame.canvas.text(&self.unit, (x, frame.top - LETTER.1), TextPlace::After);
    }

    fn lines(&self) -> Canvas {
        let size = LINE_PLOT;
        let range = self.range().unwrap_or((0.0, 1.0));
        // A line that does not change lies in the middle.
        let (low, high) = if range.0 < range.1 { range } else { (range.0 - 1.0, range.0 + 1.0) };
        let values = numbers(low, high, size.1 / BETWEEN.1);
        let left = width(&values) + TICK + 2 * SPACE;
        let mut frame = ChartFrame::new(&self.title, (left, GAP), size, size.1);
        frame.labels(&self.unit, &self.across.label);
        let last = f64::from(size.1 - 1);
        let height = |value: f64| part(value, (low, high)).map(|part| rounded((1.0 - part) * last));
        for y in values.iter().filter_map(|value| height(*value)) {
            let (left, y) = (frame.left, frame.top + y);
            frame.canvas.line((left, y), (left + size.0 - 1, y), GRID);
        }
        frame.canvas.frame((frame.left - 1, frame.top - 1), (size.0 + 1, size.1 + 1));
        frame.across(&self.across);
        frame.down(&values, height);
        let mut before = None;
        let (count, times) = self.across.points();
        let of_points = self.values.iter().step_by(times).take(count);
        let count = to_float(i128::try_from(count).unwrap_or(1));
        for (number, value) in of_points.enumerate() {
            let number = to_float(i128::try_from(number).unwrap_or_default());
            let x = frame.left + rounded((number + 0.5) / count * f64::from(size.0));
            let point = height(*value).filter(|_| value.is_finite()).map(|y| (x, frame.top + y));
            if let Some(point) = point {
                frame.canvas.line(before.unwrap_or(point), point, LINE);
                // A point between missing ones is seen, too.
                frame.canvas.fill((point.0 - 1, point.1 - 1), (3, 3), LINE);
            }
            before = point;
        }
        frame.canvas
    }
}

impl ChartAxis {
    /// Returns the numbers that stand at the axis.
    fn numbers(&self, wanted: i32) -> Vec<f64> {
        let [first, last] = self.ends;
        // Not between two elements.
        let between = pixels(self.cells.min(self.elements)).saturating_sub(1);
        numbers(first.min(last), first.max(last), wanted.min(between))
    }

    /// Returns the number of points, and of the cells that each has.
    fn points(&self) -> (usize, usize) {
        let count = self.cells.min(self.elements).max(1);
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        (size(count), size(self.cells / count).max(1))
    }

    /// Returns the pixel of a coordinate on a side of `len` pixels: that of the middle of its
    /// element.
    fn place(&self, at: f64, len: i32) -> Option<i32> {
        let [first, last] = self.ends;
        let cells = to_float(i128::try_from(self.points().0).unwrap_or(1));
        let part = if first.total_cmp(&last).is_eq() { 0.5 } else { (at - first) / (last - first) };
        let cell = part * (cells - 1.0) + 0.5;
        let place = cell / cells * f64::from(len);
        (0.0..=f64::from(len)).contains(&place).then(|| rounded(place).min(len - 1))
    }
}

/// Returns the numbers that stand at a range; one for a range without a length.
fn numbers(low: f64, high: f64, wanted: i32) -> Vec<f64> {
    let all = ticks(low, high, usize::try_from(wanted).unwrap_or_default().max(1));
    if all.is_empty() && low.is_finite() && high.is_finite() {
        let mut ends = vec![low, high];
        ends.dedup();
        return ends;
    }
    all
}

/// A canvas with its margins.
struct ChartFrame {
    canvas: Canvas,
    left: i32,
    top: i32,
    /// The width and the height of what the axes enclose.
    size: (i32, i32),
}

impl ChartFrame {
    fn new(title: &str, margins: (i32, i32), size: (i32, i32), height: i32) -> Self {
        // The first and the last number of the columns need room, too.
        let left = margins.0.max(4 * LETTER.0);
        let top = 3 * LETTER.1;
        let width = left + size.0 + margins.1.max(4 * LETTER.0);
        let below = TICK + SPACE + 2 * LETTER.1 + 3 * SPACE;
        let mut canvas = Canvas::new(width, top + height.max(size.1) + below);
        let fits = usize::try_from((width - 2 * SPACE) / LETTER.0).unwrap_or_default();
        let title: String = title.chars().take(fits).collect();
        canvas.text(&title, (SPACE, LETTER.1 - SPACE), TextPlace::After);
        Self { canvas, left, top, size }
    }

    /// Writes the names of the sides.
    fn labels(&mut self, down: &str, across: &str) {
        let fits = usize::try_from((self.left + self.size.0) / LETTER.0).unwrap_or_default();
        let cut = |text: &str| text.chars().take(fits).collect::<String>();
        self.canvas.text(&cut(down), (SPACE, self.top - LETTER.1), TextPlace::After);
        let y = self.top + self.size.1 + TICK + 2 * SPACE + LETTER.1;
        let middle = self.left + self.size.0 / 2;
        self.canvas.text(&cut(across), (middle, y), TextPlace::Below);
    }

    /// Writes the numbers below.
    fn across(&mut self, axis: &ChartAxis) {
        let bottom = self.top + self.size.1;
        let mut free = i32::MIN;
        for number in axis.numbers(self.size.0 / BETWEEN.0) {
            let Some(x) = axis.place(number, self.size.0) else { continue };
            let (x, text) = (self.left + x, significant(number));
            let half = letters(&text) / 2;
            self.canvas.line((x, bottom), (x, bottom + TICK), BLACK);
            if x - half > free || free == i32::MIN {
                self.canvas.text(&text, (x, bottom + TICK + SPACE), TextPlace::Below);
                free = x + half + LETTER.0;
            }
        }
    }

    /// Writes the numbers at the left.
    fn down(&mut self, numbers: &[f64], place: impl Fn(f64) -> Option<i32>) {
        for number in numbers {
            let Some(y) = place(*number) else { continue };
            let y = self.top + y;
            self.canvas.line((self.left - TICK, y), (self.left - 1, y), BLACK);
            let at = (self.left - TICK - SPACE, y);
            self.canvas.text(&significant(*number), at, TextPlace::Before);
        }
    }
}

/// Returns the width of a text in pixels.
fn letters(text: &str) -> i32 {
    pixels(u64::try_from(text.chars().take(200).count()).unwrap_or_default()) * LETTER.0
}

/// Returns the width of the longest number.
fn width(numbers: &[f64]) -> i32 {
    numbers.iter().map(|number| letters(&significant(*number))).max().unwrap_or_default()
}

fn pixels(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Returns the nearest pixel, 0 for a negative number.
fn rounded(place: f64) -> i32 {
    i32::try_from(to_index(place.round())).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The width of an image, and its pixels.
    fn decoded(chart: &Chart<'_>) -> (usize, Vec<Rgb>) {
        let png = chart.png().expect("encoded");
        let mut reader = png::Decoder::new(io::Cursor::new(png)).read_info().expect("a PNG");
        let mut bytes = vec![0; reader.output_buffer_size().expect("a length")];
        let info = reader.next_frame(&mut bytes).expect("decoded");
        let (pixels, rest) = bytes.as_chunks::<3>();
        assert_eq!((info.color_type, rest.len()), (png::ColorType::Rgb, 0));
        (usize::try_from(info.width).expect("a width"), pixels.to_vec())
    }

    fn axis(label: &str, ends: [f64; 2], cells: u64) -> ChartAxis {
        ChartAxis { label: label.to_owned(), ends, cells, elements: cells }
    }

    fn chart(values: &[f64], rows: u64, columns: u64) -> Chart<'_> {
        Chart {
            title: "temperature".to_owned(),
            unit: "K".to_owned(),
            values,
            down: axis("y", [0.0, 1.0], rows),
            across: axis("x", [0.0, 2.0], columns),
            palette: Palette::Viridis,
            range: None,
        }
    }

    #[test]
    fn each_cell_has_the_colour_of_its_number_and_a_missing_one_is_grey() {
        let values = [1.0, f64::NAN, 3.0, 2.0, f64::INFINITY, f64::NEG_INFINITY];
        let (width, found) = decoded(&chart(&values, 2, 3));
        let count = |color: Rgb| found.iter().filter(|pixel| **pixel == color).count();
        let (low, high) = (Palette::Viridis.color(0.0), Palette::Viridis.color(1.0));
        let cell = 213 * 213;
        assert_eq!(count(MISSING), cell);
        assert!(count(low) >= 2 * cell && count(high) >= 2 * cell);
        let at = |color: Rgb| {
            let first = found.iter().position(|pixel| *pixel == color).expect("somewhere");
            (first / width, first % width)
        };
        assert_eq!((at(low).0, at(low).1 + 213), at(MISSING), "in the order of the columns");
        assert!(count(BLACK) > 2000, "a frame, ticks and letters");
    }

    #[test]
    fn any_numbers_have_an_image() {
        let ends = [0.0, f64::MAX, f64::MIN, f64::NAN, f64::INFINITY, 1e-320, 1e16];
        for value in ends {
            for other in ends {
                for (rows, columns) in [(1, 2), (2, 1)] {
                    let values = [value, other];
                    let mut chart = chart(&values, rows, columns);
                    chart.across.ends = [value, other];
                    chart.down.ends = [other, value];
                    decoded(&chart);
                    chart.range = Some((value, other));
                    chart.down.label.clear();
                    decoded(&chart);
                }
            }
        }
        let none =
            Chart { title: "\u{1f30d}\n".repeat(500), unit: "x".repeat(900), ..chart(&[], 0, 0) };
        decoded(&none);
    }
}
