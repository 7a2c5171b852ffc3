//! `imagecodecs_jpegxl`, `jpegxl`, `jxl` {index?, ..}: a JPEG XL image, bare or in a container.
//!
//! The image says its type: integers of up to 8 or 16 bits, `float16` or `float32`. Images without
//! loss decode to the same bytes as in libjxl; others may differ by the rounding of the last digit.
//! Frames are a dimension before the rows. Extra samples that are not alpha are stored apart, and
//! imagecodecs returns such images with the samples before the rows. `index` selects a frame; only
//! the first one is supported. The other members say how to encode, and decoders ignore them.
//!
//! Nothing here writes JPEG XL.
//!
//! <https://github.com/zarr-developers/zarr-extensions/pull/69>, ISO/IEC 18181

use jxl::api::{
    Endianness, Event, JxlBasicInfo, JxlBitDepth, JxlDataFormat, JxlDecoder, JxlDecoderOptions,
    JxlOutputBuffer, JxlPixelFormat, Orientation, ProfileLevel,
};

use super::chunk::{ImageChunk, ImageCoder, ImageSize};
use crate::clock::Clock;
use crate::configuration::integer;
use crate::dtype::DType;
use crate::json::Object;
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// The length in bytes of the pieces that the decoder gets. Between them the time is checked.
const PIECE_LEN: usize = 16 << 10;

/// The samples that a frame may have more than the chunk: decoders pad the sides.
const SLACK: usize = 1 << 16;

/// The format.
#[derive(Debug)]
pub(super) struct JpegXl {
    /// Whether the frames after the first one are ignored.
    is_first_alone: bool,
}

impl JpegXl {
    pub(super) fn new(configuration: &Object) -> Result<Self> {
        let index = integer("jpegxl", configuration, "index", -1, i64::MIN..=i64::MAX)?;
        if index > 0 {
            return Err(Error::unsupported(format!("jpegxl: index {index} selects a frame")));
        }
        Ok(Self { is_first_alone: index == 0 })
    }
}

impl ImageCoder for JpegXl {
    fn decode(&self, encoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>> {
        let mut source = Source::new(encoded, chunk);
        source.advance(None, Event::BasicInfo)?;
        let layout = Layout::new(&source, chunk)?;
        let count = if self.is_first_alone { 1 } else { layout.size.frames };
        let one = ImageSize { frames: count, ..layout.size };
        chunk.check(one, &layout.dtype)?;
        source
            .decoder
            .set_pixel_format(layout.pixels.clone())
            .map_err(|error| chunk.damaged(error))?;
        let mut decoded = reserve(chunk.len)?;
        for _ in 0..count {
            source.advance(None, Event::FrameHeader)?;
            layout.frame(&mut source, &mut decoded)?;
        }
        if !self.is_first_alone && source.has_more_frames {
            return Err(chunk.damaged("more frames than the chunk has"));
        }
        Ok(decoded)
    }
}

/// A decoder, and the bytes that it has not read.
struct Source<'e> {
    decoder: JxlDecoder,
    encoded: &'e [u8],
    /// The length of the bytes that the decoder may read.
    open: usize,
    clock: Clock,
    chunk: &'e ImageChunk,
    has_more_frames: bool,
}

impl<'e> Source<'e> {
    fn new(encoded: &'e [u8], chunk: &'e ImageChunk) -> Self {
        let mut options = JxlDecoderOptions::default();
        options.adjust_orientation = false;
        options.render_spot_colors = false;
        options.high_precision = true;
        options.max_profile_level = ProfileLevel::Main10;
        options.sample_limit = Some(chunk.len.saturating_add(SLACK));
        let decoder = JxlDecoder::new(options);
        Self { decoder, encoded, open: 0, clock: Clock::start(), chunk, has_more_frames: true }
    }

    /// Decodes up to the next event, which must be this one.
    fn advance(
        &mut self,
        mut buffers: Option<&mut [JxlOutputBuffer<'_>]>,
        wanted: Event,
    ) -> Result<()> {
        loop {
            let mut input = self.encoded.get(..self.open).unwrap_or(self.encoded);
            let before = input.len();
            let event = self
                .decoder
                .process(&mut input, buffers.as_deref_mut(), None)
                .map_err(|error| self.chunk.damaged(error))?;
            let used = before.saturating_sub(input.len());
            self.encoded = self.encoded.get(used..).unwrap_or_default();
            self.open = self.open.saturating_sub(used);
            self.clock.check()?;
            match event {
                Event::NeedMoreInput { size_hint } => {
                    if self.open >= self.encoded.len() {
                        return Err(self.chunk.damaged("the image is truncated"));
                    }
                    let more = size_hint.clamp(1, PIECE_LEN);
                    self.open = self.open.saturating_add(more).min(self.encoded.len());
                }
                Event::FrameComplete { has_more_frames } => {
                    self.has_more_frames = has_more_frames;
                    let is_wanted = matches!(wanted, Event::FrameComplete { .. });
                    return if is_wanted { Ok(()) } else { Err(self.unexpected()) };
                }
                found if found == wanted => return Ok(()),
                _ => return Err(self.unexpected()),
            }
        }
    }

    fn unexpected(&self) -> Error {
        self.chunk.damaged("fewer frames than the chunk has")
    }
}

/// The arrangement of the samples of a frame.
struct Layout {
    size: ImageSize,
    dtype: DType,
    pixels: JxlPixelFormat,
    /// The number of samples that are together in a pixel.
    together: usize,
    /// The number of samples that are stored apart.
    apart: usize,
}

impl Layout {
    fn new(source: &Source<'_>, chunk: &ImageChunk) -> Result<Self> {
        let found = (source.decoder.basic_info(), source.decoder.current_pixel_format());
        let (Some(info), Some(pixels)) = found else {
            return Err(chunk.damaged("no header"));
        };
        if info.orientation != Orientation::Identity {
            return Err(Error::unsupported("jpegxl: the image is to be turned"));
        }
        let (format, dtype) = sample_type(info)?;
        let mut pixels = pixels.clone();
        let extra = info.extra_channels.len();
        // The crate does not export the type of `ec_type`.
        let is_alpha = matches!(
            info.extra_channels.as_slice(),
            [one] if format!("{:?}", one.ec_type) == "Alpha"
        );
        let apart = if is_alpha { 0 } else { extra };
        if is_alpha {
            let with_alpha = pixels.color_type.add_alpha();
            pixels.color_type = with_alpha.ok_or_else(|| chunk.damaged("alpha beside CMYK"))?;
        }
        pixels.color_data_format = Some(format);
        pixels.extra_channel_format = vec![(!is_alpha).then_some(format); extra];
        let together = pixels.color_type.samples_per_pixel();
        if apart > 0 && together > 1 {
            return Err(Error::unsupported("jpegxl: an image of colours and other samples"));
        }
        let (columns, rows) = info.size;
        let samples = together.saturating_add(apart).to_u64();
        let (columns, rows) = (columns.to_u64(), rows.to_u64());
        let one = rows.saturating_mul(columns).saturating_mul(samples).max(1);
        let frames = chunk.elements.count()?.to_u64() / one;
        let size = ImageSize { frames, rows, columns, samples, is_planar: apart > 0 };
        Ok(Self { size, dtype, pixels, together, apart })
    }

    /// Decodes the next frame behind `decoded`.
    fn frame(&self, source: &mut Source<'_>, decoded: &mut Vec<u8>) -> Result<()> {
        let rows = self.size.rows.to_usize();
        let sample_len = self.dtype.item_len();
        let row_len = self.size.columns.to_usize().saturating_mul(sample_len);
        let plane = |samples: usize| {
            // The decoder wants rows that are aligned as the samples are.
            let len = row_len.saturating_mul(samples).saturating_mul(rows);
            Buffer::zeroed(len.saturating_add(sample_len))
        };
        let mut planes = vec![plane(self.together)?];
        for _ in 0..self.apart {
            planes.push(plane(1)?);
        }
        let mut targets = Vec::new();
        for (index, plane) in planes.iter_mut().enumerate() {
            let row_len = if index == 0 { row_len.saturating_mul(self.together) } else { row_len };
            let aligned = aligned(plane.to_mut(), sample_len);
            targets.push(JxlOutputBuffer::new(aligned, rows, row_len));
        }
        source.advance(Some(&mut targets), Event::FrameComplete { has_more_frames: false })?;
        drop(targets);
        for (index, plane) in planes.iter_mut().enumerate() {
            let samples = if index == 0 { self.together } else { 1 };
            let len = row_len.saturating_mul(samples).saturating_mul(rows);
            let aligned = aligned(plane.to_mut(), sample_len);
            decoded.extend_from_slice(aligned.get(..len).unwrap_or_default());
        }
        Ok(())
    }
}

/// Returns the part of `bytes` from the first one that is aligned.
fn aligned(bytes: &mut [u8], align: usize) -> &mut [u8] {
    let start = bytes.as_ptr().align_offset(align);
    bytes.get_mut(start..).unwrap_or_default()
}

/// Returns the type of the samples, as imagecodecs chooses it.
fn sample_type(info: &JxlBasicInfo) -> Result<(JxlDataFormat, DType)> {
    let endianness = Endianness::LittleEndian;
    let bits = info.bit_depth.bits_per_sample();
    let bit_depth = u8::try_from(bits).unwrap_or(u8::MAX);
    Ok(match info.bit_depth {
        JxlBitDepth::Int { bits_per_sample: 1..=8 } => {
            (JxlDataFormat::U8 { bit_depth }, DType::Uint(1))
        }
        JxlBitDepth::Int { bits_per_sample: 9..=16 } => {
            (JxlDataFormat::U16 { endianness, bit_depth }, DType::Uint(2))
        }
        JxlBitDepth::Float { bits_per_sample: 16, exponent_bits_per_sample: 5 } => {
            (JxlDataFormat::F16 { endianness }, DType::Float(2))
        }
        JxlBitDepth::Float { bits_per_sample: 32, exponent_bits_per_sample: 8 } => {
            (JxlDataFormat::F32 { endianness }, DType::Float(4))
        }
        _ => {
            return Err(Error::unsupported(format!("jpegxl: samples of {bits} bits")));
        }
    })
}
