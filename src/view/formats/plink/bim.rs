//! `bim`: a line for each variant: chromosome, name, position in morgans (0), position, allele 1
//! and allele 2.

use std::fmt::Write;
use std::ops::Range;

use super::variants::{Variants, check_word, no_vcf, texts};
use crate::dtype::{DType, Element};
use crate::error::{Error, Kind, Result};
use crate::metadata::NodeKind;
use crate::view::elements::{ElementRange, GetChunk};
use crate::view::layout::{Layout, NumberForm};
use crate::view::lines::{Rows, TableLines};
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;
use crate::view::texts::{TextRows, read_whole};
use crate::width::ToU64;

/// What stands for a name or an allele that is not known.
const MISSING: &str = ".";

/// The number of fields of a line.
const FIELDS: u64 = 6;

/// The most fields in a file: making them all takes seconds.
const MAX_FIELDS: u64 = 1 << 26;

pub(in crate::view::formats) fn build(group: &ViewSource<'_>) -> Result<View> {
    let variants = Variants::of(group)?;
    let contigs = texts(&variants.array("contig_id")?)?;
    let lines = VariantLines {
        count: variants.count,
        contigs: contigs.iter().map(|name| chromosome(name).to_owned()).collect(),
        contig: Integers::new(&variants.array("variant_contig")?)?,
        position: Integers::new(&variants.array("variant_position")?)?,
        id: names(group, variants.count)?,
        alleles: TextRows::new(&variants.array("variant_allele")?)?,
    };
    View::new([Part::Derived(Box::new(TableLines::new(lines, MAX_FIELDS, group.get_chunk())?))])
}

/// Returns the names of the variants, if they have any.
fn names(group: &ViewSource<'_>, count: u64) -> Result<Option<TextRows>> {
    let source = match group.path().child("variant_id").and_then(|path| group.other(&path)) {
        Ok(source) if source.kind() == NodeKind::Array => source,
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == Kind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if source.array()?.model().shape != [count] {
        return Err(no_vcf("variant_id is not a name for each variant"));
    }
    TextRows::new(&source).map(Some)
}

/// Returns a chromosome as PLINK 2 names it: those of humans without `chr`.
fn chromosome(name: &str) -> &str {
    let Some(short) = name.strip_prefix("chr") else { return name };
    let is_number = |name: &str| (1..=22).any(|number: u8| number.to_string() == name);
    match short {
        "M" => "MT",
        "X" | "Y" | "MT" => short,
        short if is_number(short) => short,
        _ => name,
    }
}

/// The variants as lines.
#[derive(Debug)]
struct VariantLines {
    count: u64,
    contigs: Vec<String>,
    contig: Integers,
    position: Integers,
    id: Option<TextRows>,
    alleles: TextRows,
}

/// An integer for each variant.
#[derive(Debug)]
struct Integers {
    elements: ElementRange,
    dtype: DType,
}

impl Integers {
    fn new(source: &ViewSource<'_>) -> Result<Self> {
        let elements = source.elements(Layout::Linear, NumberForm::default())?;
        Ok(Self { elements, dtype: source.array()?.model().dtype.clone() })
    }

    fn read(&self, rows: Range<u64>, get: &GetChunk<'_>) -> Result<Vec<i128>> {
        let item_len = self.dtype.item_len().max(1);
        let bytes = read_whole(&self.elements, rows, item_len.to_u64(), get)?;
        let number = |item: &[u8]| match Element::of(&self.dtype, item) {
            Element::Int(number) => Ok(number),
            _ => Err(Error::new(Kind::Internal, "no integer")),
        };
        bytes.chunks_exact(item_len).map(number).collect()
    }
}

impl Rows for VariantLines {
    fn count(&self) -> u64 {
        self.count
    }

    fn width(&self) -> u64 {
        FIELDS
    }

    fn sources(&self) -> Vec<&ElementRange> {
        let texts = self.id.iter().chain([&self.alleles]).map(TextRows::elements);
        texts.chain([&self.contig.elements, &self.position.elements]).collect()
    }

    fn lines(&self, rows: Range<u64>, get: &GetChunk<'_>) -> Result<String> {
        let contigs = self.contig.read(rows.clone(), get)?;
        let positions = self.position.read(rows.clone(), get)?;
        let ids = self.id.as_ref().map(|ids| ids.read(rows.clone(), get)).transpose()?;
        let alleles = self.alleles.read(rows.clone(), get)?;
        let width = usize::try_from(self.alleles.width()).unwrap_or(usize::MAX).max(1);
        let mut text = String::new();
        let each = contigs.iter().zip(&positions).zip(alleles.chunks_exact(width));
        for (row, ((contig, position), alleles)) in each.enumerate() {
            let variant = rows.start.saturating_add(row.to_u64());
            let found = usize::try_from(*contig).ok().and_then(|index| self.contigs.get(index));
            let contig = found.ok_or_else(|| {
                let count = self.contigs.len();
                Error::unsupported(format!(
                    "variant {variant} is on contig {contig}, and contig_id has {count} names"
                ))
            })?;
            let known = |text: Option<&String>| {
                text.map(String::as_str)
                    .filter(|text| !text.is_empty())
                    .unwrap_or(MISSING)
                    .to_owned()
            };
            let id = known(ids.as_ref().and_then(|ids| ids.get(row)));
            let (one, two) = (known(alleles.get(1)), known(alleles.first()));
            for word in [contig, &id, &one, &two] {
                check_word(word).map_err(|what| {
                    let detail =
                        format!("a word of variant {variant} {what}, which PLINK cannot read");
                    Error::unsupported(detail)
                })?;
            }
            // Writing to a string does not fail.
            let _never = writeln!(text, "{contig}\t{id}\t0\t{position}\t{one}\t{two}");
        }
        Ok(text)
    }
}
