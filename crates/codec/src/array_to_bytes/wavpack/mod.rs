//! `wavpack` {level, bps, ..} and `imagecodecs_wavpack` {level, ..}: the elements as a stream of
//! `WavPack`, as in the Python libraries wavpack-numcodecs and imagecodecs. The configuration only
//! matters to an encoder.
//!
//! A stream is a sequence of blocks. A block has up to 2^32 samples of one or two channels, so
//! several blocks in a row have the other channels of the same samples:
//!
//! ```text
//! block: channels 0, 1 · block: channels 2, 3 · block: channel 4 | block: channels 0, 1 · ..
//! ```
//!
//! wavpack-numcodecs makes a channel of each column of a chunk of two dimensions, up to 4096, and
//! one channel of any other chunk. imagecodecs makes one channel unless told otherwise, and takes
//! the bits of unsigned integers for those of signed ones. The samples of all channels alternate
//! in the decoded form, so they are the elements in order C.
//!
//! Reading: [`words`] decodes residuals, [`decorrelation`] turns them into samples, and [`values`]
//! into elements. Each block has checksums of its bytes, its samples and its values. libwavpack
//! returns zeros for a block with a wrong one, and zarrfs an error. Nothing is written.
//!
//! <https://github.com/AllenNeuralDynamics/wavpack-numcodecs>,
//! <https://www.wavpack.com/WavPack5FileFormat.pdf>

mod bits;
mod block;
mod decorrelation;
mod log;
#[cfg(test)]
mod tests;
mod values;
mod words;

use bytes::Bytes;

use self::block::{Block, Header};
use self::decorrelation::Samples;
use crate::clock::Clock;
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::kinds::ArrayToBytes;
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Fault, Kind, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// The codec, bound to a number of elements and a type.
#[derive(Debug)]
pub struct WavPack {
    count: usize,
    item_len: usize,
    is_float: bool,
}

/// The elements of a chunk while it is being decoded.
struct BlockDecoder<'a> {
    codec: &'a WavPack,
    elements: Vec<u8>,
    channels: usize,
    /// The samples of each channel.
    samples: usize,
    /// The samples of each channel that all blocks so far have.
    done: usize,
    /// The channels that have the next ones, too, and how many these are.
    channel: usize,
    pending: usize,
}

impl WavPack {
    /// Returns the codec for chunks of `elements`.
    pub fn new(elements: &ChunkType) -> Result<Self> {
        let is_float = elements.dtype == DType::Float(4);
        if !is_float && !matches!(elements.dtype, DType::Int(1 | 2 | 4) | DType::Uint(1 | 2)) {
            let name = elements.dtype.name();
            let detail = format!("wavpack: {name} is no type of the samples of a stream");
            return Err(Error::unsupported(detail));
        }
        elements.byte_len()?;
        Ok(Self { count: elements.count()?, item_len: elements.dtype.item_len(), is_float })
    }

    /// Fails unless the blocks of a stream have elements of the chunk.
    fn check(&self, block: &Block<'_>) -> Result<()> {
        let flags = block.flags;
        if flags.item_len() == self.item_len && flags.is_float() == self.is_float {
            return Ok(());
        }
        let kind = |is_float: bool| if is_float { "float" } else { "integer" };
        let (found, needed) = (flags.item_len(), self.item_len);
        let (found_kind, needed_kind) = (kind(flags.is_float()), kind(self.is_float));
        Err(Error::corrupt(format!(
            "wavpack: a {found_kind} of the stream has {found} bytes, the chunk has \
             {needed_kind}s of {needed} bytes"
        )))
    }

    /// Returns what the first block says of the whole stream.
    fn begin(&self, header: &Header, block: &Block<'_>) -> Result<BlockDecoder<'_>> {
        let channels = block.channels.unwrap_or(if block.flags.is_mono() { 1 } else { 2 });
        let count = self.count.to_u64();
        let samples = count.checked_div(channels).unwrap_or_default();
        let is_whole = samples.checked_mul(channels) == Some(count);
        let all = header.all_samples.unwrap_or(samples);
        if !is_whole || all != samples {
            let detail = format!(
                "wavpack: the stream has {all} samples of {channels} channels, the chunk needs \
                 {count} elements"
            );
            return Err(Error::fault(Fault::Length, detail));
        }
        let len = self.count.saturating_mul(self.item_len);
        let mut elements = reserve(len)?;
        elements.resize(len, 0);
        let (channels, samples) = (channels.to_usize(), samples.to_usize());
        let codec = self;
        Ok(BlockDecoder { codec, elements, channels, samples, done: 0, channel: 0, pending: 0 })
    }
}

impl BlockDecoder<'_> {
    /// Fails unless the block is the next one.
    fn expect(&mut self, header: &Header) -> Result<()> {
        let count = header.samples.to_usize();
        let flags = header.flags;
        if self.channel == 0 {
            self.pending = count;
        }
        let is_next = flags.is_first() == (self.channel == 0)
            && header.index == self.done.to_u64()
            && count == self.pending
            && count <= self.samples.saturating_sub(self.done);
        let width = if flags.is_mono() { 1 } else { 2 };
        let left = self.channels.saturating_sub(self.channel);
        if is_next && width <= left && flags.is_last() == (width == left) {
            return Ok(());
        }
        let detail = format!(
            "wavpack: a block of {count} samples at {} is not the next one of {} channels of {} \
             samples",
            header.index, self.channels, self.samples
        );
        Err(Error::fault(Fault::Length, detail))
    }

    /// Puts the samples of a block into their places.
    fn put(&mut self, header: &Header, samples: &Samples) -> Result<()> {
        self.put_channel(&samples.first)?;
        if !header.flags.is_mono() {
            let is_same = header.flags.is_false_stereo();
            self.put_channel(if is_same { &samples.first } else { &samples.second })?;
        }
        if header.flags.is_last() {
            self.done = self.done.saturating_add(self.pending);
            self.channel = 0;
        }
        Ok(())
    }

    fn put_channel(&mut self, samples: &[i32]) -> Result<()> {
        let first = self.done.saturating_mul(self.channels).saturating_add(self.channel);
        let items = self.elements.chunks_exact_mut(self.codec.item_len).skip(first);
        let mut pairs = items.step_by(self.channels).zip(samples);
        let narrow = |sample: i32| Error::corrupt(format!("wavpack: sample {sample} is too large"));
        let put: Result<()> = match self.codec.item_len {
            1 => pairs.try_for_each(|(item, sample)| {
                let sample = i8::try_from(*sample).map_err(|_| narrow(*sample))?;
                item.copy_from_slice(&sample.to_le_bytes());
                Ok(())
            }),
            2 => pairs.try_for_each(|(item, sample)| {
                let sample = i16::try_from(*sample).map_err(|_| narrow(*sample))?;
                item.copy_from_slice(&sample.to_le_bytes());
                Ok(())
            }),
            _ => {
                pairs.for_each(|(item, sample)| item.copy_from_slice(&sample.to_le_bytes()));
                Ok(())
            }
        };
        self.channel = self.channel.saturating_add(1);
        put
    }
}

impl Block<'_> {
    /// Returns the elements of the block in `samples`, whose memory is reused.
    fn decode(&mut self, count: usize, samples: &mut Samples) -> Result<()> {
        let no_memory = |_| Error::new(Kind::NoMemory, format!("cannot allocate {count} samples"));
        let is_mono = self.flags.has_mono_data();
        let Samples { first, second } = samples;
        first.clear();
        second.clear();
        first.try_reserve_exact(count).map_err(no_memory)?;
        second.try_reserve_exact(if is_mono { 0 } else { count }).map_err(no_memory)?;
        let none = || Error::corrupt("wavpack: the bits of a block are no samples");
        for _ in 0..count {
            first.push(self.words.next(false).ok_or_else(none)?);
            if !is_mono {
                second.push(self.words.next(true).ok_or_else(none)?);
            }
        }
        if self.words.bits.is_overrun() {
            return Err(none());
        }
        for pass in self.passes.iter().rev() {
            pass.run(samples);
        }
        if self.flags.is_joint() && !is_mono {
            for (left, right) in samples.first.iter_mut().zip(&mut samples.second) {
                *right = right.wrapping_sub(*left >> 1);
                *left = left.wrapping_add(*right);
            }
        }
        if samples.crc() != self.crc || !self.finish(samples) {
            return Err(Error::corrupt("wavpack: the samples of a block have another checksum"));
        }
        Ok(())
    }
}

impl Samples {
    fn crc(&self) -> u32 {
        if self.second.is_empty() {
            return self.first.iter().fold(u32::MAX, |crc, sample| {
                crc.wrapping_mul(3).wrapping_add(sample.cast_unsigned())
            });
        }
        self.first.iter().zip(&self.second).fold(u32::MAX, |crc, (first, second)| {
            let sum = first.wrapping_mul(3).wrapping_add(*second);
            crc.wrapping_mul(9).wrapping_add(sum.cast_unsigned())
        })
    }
}

impl ArrayToBytes for WavPack {
    fn encode(&self, _decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        Err(Error::unsupported("wavpack: zarrfs reads these chunks and writes none"))
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        let clock = Clock::start();
        let mut rest: &[u8] = &encoded;
        let mut decoder: Option<BlockDecoder<'_>> = None;
        let mut samples = Samples::default();
        while !rest.is_empty() {
            let (header, metadata, after) = Header::split(rest)?;
            rest = after;
            clock.check()?;
            // Such a block has only metadata about the stream.
            if header.samples == 0 {
                continue;
            }
            let mut block = Block::parse(&header, metadata)?;
            self.check(&block)?;
            if decoder.is_none() {
                decoder = Some(self.begin(&header, &block)?);
            }
            let Some(decoder) = &mut decoder else { continue };
            decoder.expect(&header)?;
            block.decode(header.samples.to_usize(), &mut samples)?;
            decoder.put(&header, &samples)?;
        }
        match decoder {
            Some(decoder) if decoder.done == decoder.samples => Ok(decoder.elements.into()),
            _ if self.count == 0 => Ok(Vec::new().into()),
            _ => Err(Error::fault(Fault::Length, "wavpack: blocks of the stream are missing")),
        }
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }
}
