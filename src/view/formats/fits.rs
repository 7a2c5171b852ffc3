//! `fits`: a primary image (FITS standard 4.0, <https://fits.gsfc.nasa.gov/fits_standard.html>).
//! Cards of 80 characters come first, then the elements, big endian; each is padded to blocks of
//! 2880 bytes.
//!
//! FITS has bytes only unsigned and longer integers only signed. Other integers are stored with an
//! offset of half their range, which `BZERO` states.

use super::header::line;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::view::image::{Axis, Image, Quantity};
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::LeftOutOfView;
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;
use crate::width::ToU64;

const BLOCK_LEN: u64 = 2880;

/// The most axes of an image.
const MAX_RANK: usize = 999;

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let image = Image::of(source)?;
    let (bitpix, zero) = match image.number() {
        DType::Uint(1) => (8, None),
        DType::Int(1) => (8, Some("-128")),
        DType::Int(2) => (16, None),
        DType::Uint(2) => (16, Some("32768")),
        DType::Int(4) => (32, None),
        DType::Uint(4) => (32, Some("2147483648")),
        DType::Int(8) => (64, None),
        DType::Uint(8) => (64, Some("9223372036854775808")),
        DType::Float(4) => (-32, None),
        DType::Float(8) => (-64, None),
        _ => return Err(image.no_type("FITS")),
    };
    if image.axes.len() > MAX_RANK {
        return Err(Error::unsupported(format!("FITS has at most {MAX_RANK} dimensions")));
    }
    let mut cards = Cards(String::new());
    cards.number("SIMPLE", "T");
    cards.number("BITPIX", &i32::to_string(&bitpix));
    cards.number("NAXIS", &image.axes.len().to_string());
    for (number, axis) in (1..).zip(image.axes.iter().rev()) {
        cards.number(&format!("NAXIS{number}"), &u64::to_string(&axis.len));
    }
    if let Some(zero) = zero {
        cards.number("BSCALE", "1");
        cards.number("BZERO", zero);
    }
    for (number, axis) in (1..).zip(image.axes.iter().rev()) {
        cards.axis(number, axis);
    }
    let mut text = cards.0;
    text.extend([format!("{:<80}", "END")]);
    let header_len = text.len().to_u64().next_multiple_of(BLOCK_LEN);
    let width = usize::try_from(header_len).unwrap_or(text.len());
    let items = NumberForm { big_endian: true, flip_sign: zero.is_some() };
    let elements = source.elements(Layout::Linear, items)?;
    let padding = elements.len().next_multiple_of(BLOCK_LEN).saturating_sub(elements.len());
    let left_out = LeftOutOfView::of_image(source.path(), &image, false);
    let header = Part::from(format!("{text:<width$}"));
    Ok(View::new([header, elements.into(), Part::Zeros(padding)])?.with_left_out(left_out))
}

struct Cards(String);

impl Cards {
    /// Adds a card with a number or a boolean.
    fn number(&mut self, name: &str, value: &str) {
        self.0.extend([format!("{:<80}", format!("{name:<8}= {value:>20}"))]);
    }

    /// Adds a card with a string: only printable ASCII, cut to the length of a card.
    fn text(&mut self, name: &str, value: &str) {
        let value: String = line(value)
            .chars()
            .map(|char| if char.is_ascii() && char != '\'' { char } else { '_' })
            .take(60)
            .collect();
        self.0.extend([format!("{:<80}", format!("{name:<8}= '{value:<8}'"))]);
    }

    /// Adds cards with the name of an axis and the positions of its elements.
    fn axis(&mut self, number: usize, axis: &Axis) {
        if let Some(name) = &axis.name {
            self.text(&format!("CTYPE{number}"), name);
        }
        let Some(scale) = &axis.scale else { return };
        let unit = scale.unit.as_ref().and_then(|unit| {
            let base = match unit.quantity()? {
                Quantity::Length => "m",
                Quantity::Time => "s",
            };
            let prefix = match unit.exponent() {
                Some(0) => "",
                Some(-2) => "c",
                Some(-3) => "m",
                Some(-6) => "u",
                Some(-9) => "n",
                Some(-12) => "p",
                Some(3) => "k",
                _ => return None,
            };
            Some(format!("{prefix}{base}"))
        });
        // A unit that FITS does not have is converted to its base unit.
        let known = unit.is_some() || scale.unit.as_ref().is_none_or(|u| u.quantity().is_none());
        let place = if known { None } else { axis.step_in(0).zip(axis.start_in(0)) };
        let (step, start) = place.unwrap_or((scale.step, scale.start));
        self.number(&format!("CRPIX{number}"), "1.0");
        self.number(&format!("CRVAL{number}"), &float(start));
        self.number(&format!("CDELT{number}"), &float(step));
        let quantity = scale.unit.as_ref().and_then(crate::view::image::Unit::quantity);
        let base = quantity.map(|quantity| match quantity {
            Quantity::Length => "m".to_owned(),
            Quantity::Time => "s".to_owned(),
        });
        if let Some(unit) = unit.or(base) {
            self.text(&format!("CUNIT{number}"), &unit);
        }
    }
}

/// Returns a number with a decimal point, as FITS requires.
fn float(value: f64) -> String {
    let text = format!("{value:?}").to_uppercase();
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}
