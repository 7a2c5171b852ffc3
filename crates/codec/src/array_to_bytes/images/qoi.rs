//! `imagecodecs_qoi`: a QOI image of RGB or RGBA, without loss. There is no configuration.
//!
//! ```text
//! "qoif" | width, u32 be | height, u32 be | samples, 3 or 4 | color space | pixels | 0 0 0 0 0 0 0 1
//! ```
//!
//! A pixel is a run of the one before, one of 64 earlier ones, a difference, or its samples.
//!
//! <https://qoiformat.org/qoi-specification.pdf>

use super::chunk::{ImageChunk, ImageCoder, ImageSize};
use crate::dtype::DType;
use zarrfs_base::buffer::reserve;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The bytes after the pixels.
const END: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];

/// The length of the header in bytes.
const HEADER_LEN: usize = 14;

/// The longest run. The next two codes are those of the samples.
const MAX_RUN: u8 = 62;

/// The codes of a pixel that is given by its samples.
const RGB: u8 = 0xfe;
const RGBA: u8 = 0xff;

/// The format.
#[derive(Debug)]
pub(super) struct Qoi;

type Pixel = [u8; 4];

/// The pixel before, and earlier ones by their hash.
struct Earlier {
    last: Pixel,
    table: [Pixel; 64],
}

impl Earlier {
    fn new() -> Self {
        Self { last: [0, 0, 0, 255], table: [[0; 4]; 64] }
    }

    fn hash([r, g, b, a]: Pixel) -> usize {
        let [r, g, b, a] = [r, g, b, a].map(usize::from);
        (r * 3 + g * 5 + b * 7 + a * 11) % 64
    }

    /// Remembers a pixel. Returns whether it was there.
    fn put(&mut self, pixel: Pixel) -> bool {
        self.last = pixel;
        let Some(place) = self.table.get_mut(Self::hash(pixel)) else { return false };
        std::mem::replace(place, pixel) == pixel
    }
}

impl ImageCoder for Qoi {
    fn decode(&self, encoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>> {
        let header = encoded.split_first_chunk::<HEADER_LEN>();
        let Some((header, mut codes)) = header.filter(|(header, _)| header.starts_with(b"qoif"))
        else {
            return Err(chunk.damaged("no header"));
        };
        let [_, _, _, _, w0, w1, w2, w3, h0, h1, h2, h3, samples, _] = *header;
        let columns = u32::from_be_bytes([w0, w1, w2, w3]);
        let rows = u32::from_be_bytes([h0, h1, h2, h3]);
        let samples = usize::from(samples);
        if !(3..=4).contains(&samples) {
            return Err(chunk.damaged(format!("{samples} samples in a pixel")));
        }
        chunk.check(ImageSize::new(columns, rows, samples), &DType::Uint(1))?;
        let mut pixels = reserve(chunk.len)?;
        let mut earlier = Earlier::new();
        while pixels.len() < chunk.len {
            let (pixel, count) =
                next(&mut codes, &earlier).ok_or_else(|| chunk.damaged("pixels are missing"))?;
            earlier.put(pixel);
            for _ in 0..count {
                pixels.extend(pixel.into_iter().take(samples));
            }
        }
        if !codes.starts_with(&END) {
            return Err(chunk.damaged("the end is missing"));
        }
        Ok(pixels)
    }

    fn encode(&self, decoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>> {
        let size = chunk.size(4)?;
        let samples = size.samples.to_usize();
        if !(3..=4).contains(&samples) {
            return Err(Error::unsupported("qoi: an image has 3 or 4 samples"));
        }
        let [columns, rows] = [size.columns, size.rows].map(|len| u32::try_from(len).unwrap_or(0));
        let mut encoded = b"qoif".to_vec();
        encoded.extend(columns.to_be_bytes());
        encoded.extend(rows.to_be_bytes());
        encoded.extend([u8::try_from(samples).unwrap_or(4), 0]);
        let mut earlier = Earlier::new();
        let mut run = 0;
        for bytes in decoded.chunks_exact(samples) {
            let pixel = match *bytes {
                [r, g, b, a] => [r, g, b, a],
                [r, g, b] => [r, g, b, 255],
                _ => [0; 4],
            };
            if pixel == earlier.last {
                run += 1;
                if run == MAX_RUN {
                    end_run(&mut encoded, &mut run);
                }
                continue;
            }
            end_run(&mut encoded, &mut run);
            push(&mut encoded, pixel, &mut earlier);
        }
        end_run(&mut encoded, &mut run);
        encoded.extend(END);
        Ok(encoded)
    }
}

/// Returns the next pixel and how often it follows. `None` at the end of the bytes.
fn next(codes: &mut &[u8], earlier: &Earlier) -> Option<(Pixel, u8)> {
    let mut byte = || {
        let (first, rest) = codes.split_first()?;
        *codes = rest;
        Some(*first)
    };
    let [r, g, b, a] = earlier.last;
    let code = byte()?;
    Some(match (code, code >> 6) {
        (RGB, _) => ([byte()?, byte()?, byte()?, a], 1),
        (RGBA, _) => ([byte()?, byte()?, byte()?, byte()?], 1),
        (index, 0) => (*earlier.table.get(usize::from(index))?, 1),
        (differences, 1) => {
            let of = |value: u8, shift: u32| {
                value.wrapping_add(differences >> shift & 3).wrapping_sub(2)
            };
            ([of(r, 4), of(g, 2), of(b, 0), a], 1)
        }
        (green, 2) => {
            let others = byte()?;
            let dg = (green & 63).wrapping_sub(32);
            let of =
                |value: u8, more: u8| value.wrapping_add(dg).wrapping_add(more.wrapping_sub(8));
            ([of(r, others >> 4), g.wrapping_add(dg), of(b, others & 15), a], 1)
        }
        (run, _) => (earlier.last, (run & 63) + 1),
    })
}

/// Writes the run so far.
fn end_run(encoded: &mut Vec<u8>, run: &mut u8) {
    if *run > 0 {
        encoded.push(0xc0 | (*run - 1));
        *run = 0;
    }
}

/// Writes a pixel that differs from the one before.
fn push(encoded: &mut Vec<u8>, pixel: Pixel, earlier: &mut Earlier) {
    let before = earlier.last;
    if earlier.put(pixel) {
        encoded.extend(u8::try_from(Earlier::hash(pixel)));
        return;
    }
    let [r, g, b, a] = pixel;
    let [dr, dg, db] = [0, 1, 2].map(|at| {
        let value = |pixel: Pixel| pixel.get(at).copied().unwrap_or_default();
        value(pixel).wrapping_sub(value(before))
    });
    let [r2, g2, b2] = [dr, dg, db].map(|d| d.wrapping_add(2));
    let [rg, bg] = [dr, db].map(|d| d.wrapping_sub(dg).wrapping_add(8));
    let g32 = dg.wrapping_add(32);
    if before[3] != a {
        encoded.extend([RGBA, r, g, b, a]);
    } else if r2 < 4 && g2 < 4 && b2 < 4 {
        encoded.push(0x40 | r2 << 4 | g2 << 2 | b2);
    } else if g32 < 64 && rg < 16 && bg < 16 {
        encoded.extend([0x80 | g32, rg << 4 | bg]);
    } else {
        encoded.extend([RGB, r, g, b]);
    }
}
