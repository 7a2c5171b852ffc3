//! Pixels, with the letters and lines that are drawn on them.

use std::convert::Infallible;
use std::io;

use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::iso_8859_1::FONT_7X13;
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::primitives::{Line, Primitive, PrimitiveStyle, Rectangle};
use embedded_graphics::text::{Alignment, Baseline, Text, TextStyleBuilder};
use embedded_graphics::{Drawable, Pixel};

/// The width and the height of a letter in pixels.
pub const LETTER: (i32, i32) = (7, 13);

/// A colour: red, green and blue.
pub type Rgb = [u8; 3];

pub const BLACK: Rgb = [0; 3];

/// Where a text lies beside its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextPlace {
    /// It begins there.
    After,
    /// It ends there.
    Before,
    /// Its middle is there, and it is below.
    Below,
}

/// Pixels in rows, from the top.
#[derive(Debug)]
pub struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Canvas {
    /// Returns white pixels.
    pub fn new(width: i32, height: i32) -> Self {
        let [width, height] = [width, height].map(|len| u32::try_from(len).unwrap_or(1).max(1));
        let count = usize::try_from(u64::from(width) * u64::from(height) * 3).unwrap_or_default();
        Self { width, height, pixels: vec![u8::MAX; count] }
    }

    /// Fills a rectangle.
    pub fn fill(&mut self, (x, y): (i32, i32), (width, height): (i32, i32), color: Rgb) {
        let [width, height] = [width, height].map(|len| u32::try_from(len).unwrap_or_default());
        let shape = Rectangle::new(Point::new(x, y), Size::new(width, height));
        let Ok(()) = shape.into_styled(PrimitiveStyle::with_fill(of(color))).draw(self);
    }

    /// Draws the outline of a rectangle.
    pub fn frame(&mut self, (x, y): (i32, i32), (width, height): (i32, i32)) {
        let (right, bottom) = (x.saturating_add(width), y.saturating_add(height));
        let corners = [(x, y), (right, y), (right, bottom), (x, bottom), (x, y)];
        for (from, to) in corners.iter().zip(corners.iter().skip(1)) {
            self.line(*from, *to, BLACK);
        }
    }

    /// Draws a line.
    pub fn line(&mut self, from: (i32, i32), to: (i32, i32), color: Rgb) {
        let shape = Line::new(Point::new(from.0, from.1), Point::new(to.0, to.1));
        let Ok(()) = shape.into_styled(PrimitiveStyle::with_stroke(of(color), 1)).draw(self);
    }

    /// Writes a text in a line. Letters that the font lacks become `?`.
    pub fn text(&mut self, text: &str, (x, y): (i32, i32), place: TextPlace) {
        let (alignment, baseline) = match place {
            TextPlace::After => (Alignment::Left, Baseline::Middle),
            TextPlace::Before => (Alignment::Right, Baseline::Middle),
            TextPlace::Below => (Alignment::Center, Baseline::Top),
        };
        let style = TextStyleBuilder::new().alignment(alignment).baseline(baseline).build();
        let letters = MonoTextStyle::new(&FONT_7X13, of(BLACK));
        let line: String =
            text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
        let text = Text::with_text_style(&line, Point::new(x, y), letters, style);
        let Ok(_) = text.draw(self);
    }

    /// Encodes the pixels as PNG.
    pub fn png(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()?;
        Ok(bytes)
    }
}

fn of([red, green, blue]: Rgb) -> Rgb888 {
    Rgb888::new(red, green, blue)
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Infallible> {
        for Pixel(Point { x, y }, color) in pixels {
            let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { continue };
            if x >= self.width || y >= self.height {
                continue;
            }
            let at = (u64::from(y) * u64::from(self.width) + u64::from(x)) * 3;
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            if let Some(pixel) = self.pixels.get_mut(at..at.saturating_add(3)) {
                pixel.copy_from_slice(&[color.r(), color.g(), color.b()]);
            }
        }
        Ok(())
    }
}
