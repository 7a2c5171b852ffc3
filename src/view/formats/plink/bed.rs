//! `bed`: the genotypes, one variant after another, four samples in a byte.
//!
//! ```text
//! 6c 1b 01 | variant 0: samples 3 2 1 0, 7 6 5 4, .. | variant 1 | ..
//! ```

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use foldhash::quality::FixedState;

use super::variants::{PLOIDY, Variants};
use crate::buffer::reserve;
use crate::error::{Error, Kind, Result};
use crate::view::elements::{EachChunk, ElementRange, GetChunk, KeepGoing};
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::{LeftOutOfView, listed};
use crate::view::parts::{Derived, Part, View};
use crate::view::source::ViewSource;
use crate::width::{ToU64, ToUsize};

/// The first bytes of a file in which variants follow one another.
const MAGIC: [u8; 3] = [0x6c, 0x1b, 0x01];

/// The number of samples in a byte.
const PER_BYTE: u64 = 4;

/// The genotypes in a file.
const ALTERNATE: u8 = 0b00;
const MISSING: u8 = 0b01;
const MIXED: u8 = 0b10;
const REFERENCE: u8 = 0b11;

/// The arrays that the three files have.
const SHOWN: [&str; 7] = [
    "call_genotype",
    "variant_contig",
    "variant_position",
    "variant_id",
    "variant_allele",
    "sample_id",
    "contig_id",
];

pub(in crate::view::formats) fn build(group: &ViewSource<'_>) -> Result<View> {
    let variants = Variants::of(group)?;
    let elements = variants.genotypes.elements(Layout::Linear, NumberForm::default())?;
    let samples = variants.samples.len().to_u64();
    let row_len = samples.div_ceil(PER_BYTE);
    let len = variants.count.checked_mul(row_len);
    let len = len.ok_or_else(|| Error::unsupported("it would exceed the size of a file"))?;
    let item_len = variants.genotypes.array()?.model().dtype.item_len();
    let bed = Genotypes { elements, item_len, samples, row_len, len };
    let mut left_out = LeftOutOfView::default();
    let children = group.children()?.nodes;
    let others = children.iter().map(ViewSource::name).filter(|name| !SHOWN.contains(name));
    let others = listed(others);
    if !others.is_empty() {
        left_out.add_property(group.path(), group.path(), format!("nodes ({others})"));
    }
    let parts = [Part::from(MAGIC.to_vec()), Part::Derived(Box::new(bed))];
    Ok(View::new(parts)?.with_left_out(left_out))
}

/// The genotypes of all variants.
#[derive(Debug)]
struct Genotypes {
    elements: ElementRange,
    /// The length of an allele's number in bytes.
    item_len: usize,
    samples: u64,
    /// The length of a variant in the file.
    row_len: u64,
    len: u64,
}

/// The numbers of alleles in a genotype, as bytes.
const NO_ALTERNATE: u8 = 0;
const FIRST_ALTERNATE: u8 = 1;
/// There is no second one, because the genotype is haploid.
const PADDING: u8 = 0xfe;
/// Any other number.
const OTHER: u8 = 0xff;

/// Returns the two bits of a genotype.
fn code([one, other]: [u8; 2]) -> u8 {
    match (one, other) {
        (NO_ALTERNATE, NO_ALTERNATE | PADDING) => REFERENCE,
        (FIRST_ALTERNATE, FIRST_ALTERNATE | PADDING) => ALTERNATE,
        (NO_ALTERNATE, FIRST_ALTERNATE) | (FIRST_ALTERNATE, NO_ALTERNATE) => MIXED,
        _ => MISSING,
    }
}

/// Converts little-endian numbers of `item_len` bytes to bytes, in place.
fn narrow(numbers: &mut Vec<u8>, item_len: usize) {
    let count = numbers.len().checked_div(item_len).unwrap_or_default();
    for number in 0..count {
        let start = number.saturating_mul(item_len);
        let item = numbers.get(start..start.saturating_add(item_len)).unwrap_or_default();
        let (low, high) = item.split_first().unwrap_or((&OTHER, &[]));
        let sign = if *low >= 0x80 { 0xff } else { 0 };
        let byte = if high.iter().all(|byte| *byte == sign) { *low } else { OTHER };
        if let Some(target) = numbers.get_mut(number) {
            *target = byte;
        }
    }
    numbers.truncate(count);
}

impl Genotypes {
    /// Returns the bytes of `call_genotype` that `len` bytes from `from` on are made of.
    fn bytes_of(&self, from: u64, len: usize) -> Range<u64> {
        let sample = |at: u64| {
            let (row, byte) = (at / self.row_len.max(1), at % self.row_len.max(1));
            let within = byte.saturating_mul(PER_BYTE).min(self.samples);
            row.saturating_mul(self.samples).saturating_add(within)
        };
        let each = PLOIDY.saturating_mul(self.item_len.to_u64());
        let end = from.saturating_add(len.to_u64());
        // The end of a variant is the start of the next one.
        sample(from).saturating_mul(each)..sample(end).saturating_mul(each)
    }
}

impl Derived for Genotypes {
    fn len(&self) -> u64 {
        self.len
    }

    fn print(&self) -> u64 {
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(self.elements.path.as_str().as_bytes());
        for number in [self.samples, self.len, self.item_len.to_u64()] {
            hasher.write_u64(number);
        }
        hasher.finish()
    }

    fn sources(&self) -> Vec<&ElementRange> {
        vec![&self.elements]
    }

    fn what(&self) -> &'static str {
        "the genotypes"
    }

    fn read(&self, from: u64, target: &mut [u8], get: &GetChunk<'_>) -> Result<()> {
        let bytes = self.bytes_of(from, target.len());
        let outside = || Error::new(Kind::Internal, "genotypes outside of their array");
        let len = usize::try_from(bytes.end.saturating_sub(bytes.start)).map_err(|_| outside())?;
        let mut genotypes = reserve(len)?;
        genotypes.resize(len, 0);
        self.elements.read(bytes.start, &mut genotypes, get)?;
        if self.item_len > 1 {
            narrow(&mut genotypes, self.item_len);
        }
        let (mut genotypes, _) = genotypes.as_chunks::<2>();
        let (mut column, mut left) = (from % self.row_len.max(1), target);
        while !left.is_empty() {
            let width = self.row_len.saturating_sub(column).to_usize().min(left.len()).max(1);
            let samples = self.samples.saturating_sub(column.saturating_mul(PER_BYTE));
            let count = width.saturating_mul(PER_BYTE.to_usize()).min(samples.to_usize());
            let (row, rest) = left.split_at_mut(width);
            let (of_row, others) = genotypes.split_at_checked(count).ok_or_else(outside)?;
            for (byte, four) in row.iter_mut().zip(of_row.chunks(PER_BYTE.to_usize())) {
                *byte = four.iter().rev().fold(0, |byte, genotype| byte << 2 | code(*genotype));
            }
            (column, left, genotypes) = (0, rest, others);
        }
        Ok(())
    }

    fn for_each_chunk<'d>(
        &'d self,
        from: u64,
        len: usize,
        each: &mut EachChunk<'_, 'd>,
    ) -> KeepGoing {
        let bytes = self.bytes_of(from, len);
        let len = usize::try_from(bytes.end.saturating_sub(bytes.start));
        let len = len.map_err(|_| Error::too_large("a range of genotypes"))?;
        self.elements.for_each_chunk(bytes.start, len, each)
    }
}
