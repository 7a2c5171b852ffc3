//! The variants of a group, if PLINK 1 can hold them.

use crate::dtype::DType;
use crate::error::{Error, Kind, Result};
use crate::metadata::NodeKind;
use crate::view::source::ViewSource;
use crate::view::texts::TextRows;
use crate::width::ToU64;

/// The number of alleles of a genotype.
pub const PLOIDY: u64 = 2;

/// How many variants' alleles are looked at together.
const STEP: u64 = 1 << 13;

/// A group of VCF Zarr.
pub struct Variants<'s> {
    group: ViewSource<'s>,
    pub genotypes: ViewSource<'s>,
    pub count: u64,
    /// Their names.
    pub samples: Vec<String>,
}

impl<'s> Variants<'s> {
    /// Returns the variants of a group. Fails if PLINK 1 cannot hold them.
    pub fn of(group: &ViewSource<'s>) -> Result<Self> {
        let genotypes = array(group, "call_genotype")?;
        let model = genotypes.array()?.model();
        let [count, samples_count, ploidy] = *model.shape else {
            return Err(no_vcf(
                "call_genotype has not the dimensions variants, samples and ploidy",
            ));
        };
        if ploidy != PLOIDY {
            return Err(Error::unsupported(format!(
                "PLINK 1 has diploid genotypes, call_genotype has {ploidy} alleles for each"
            )));
        }
        if !matches!(model.dtype, DType::Int(_)) {
            return Err(no_vcf(format!(
                "call_genotype has elements of type {}",
                model.dtype.name()
            )));
        }
        for name in ["variant_contig", "variant_position"] {
            let model = array(group, name)?.array()?.model().clone();
            if model.shape != [count] || !matches!(model.dtype, DType::Int(_) | DType::Uint(_)) {
                return Err(no_vcf(format!("{name} is not an integer for each variant")));
            }
        }
        array(group, "contig_id")?;
        let alleles = array(group, "variant_allele")?;
        match *alleles.array()?.model().shape {
            [len, _] if len == count => {}
            _ => return Err(no_vcf("variant_allele is not a list for each variant")),
        }
        let samples = samples(group, samples_count)?;
        check_alleles(&TextRows::new(&alleles)?, count, &alleles)?;
        Ok(Self { group: group.clone(), genotypes, count, samples })
    }

    /// Returns an array of the group by its name.
    pub fn array(&self, name: &str) -> Result<ViewSource<'s>> {
        array(&self.group, name)
    }
}

/// Returns an array of the group by its name.
fn array<'s>(group: &ViewSource<'s>, name: &str) -> Result<ViewSource<'s>> {
    let found = group.path().child(name).and_then(|path| group.other(&path));
    match found {
        Ok(node) if node.kind() == NodeKind::Array => Ok(node),
        Ok(_) => Err(no_vcf(format!("{name} is a group"))),
        Err(error) if error.kind() == Kind::NotFound => {
            Err(no_vcf(format!("it has no array {name}")))
        }
        Err(error) => Err(error),
    }
}

/// Returns the names of the samples.
fn samples(group: &ViewSource<'_>, count: u64) -> Result<Vec<String>> {
    let source = array(group, "sample_id")?;
    if source.array()?.model().shape != [count] {
        return Err(no_vcf("sample_id is not a name for each sample"));
    }
    let names = texts(&source)?;
    for (number, name) in names.iter().enumerate() {
        check_word(name).map_err(|what| {
            Error::unsupported(format!(
                "sample_id of sample {number} {what}, which PLINK cannot read"
            ))
        })?;
    }
    Ok(names)
}

/// Returns the strings of a short array.
pub fn texts(source: &ViewSource<'_>) -> Result<Vec<String>> {
    TextRows::new(source)?; // Other types have no strings.
    let text = |bytes: Vec<u8>| {
        let text = String::from_utf8_lossy(&bytes);
        text.trim_end_matches('\0').to_owned()
    };
    let dtype = &source.array()?.model().dtype;
    if let DType::Bytes(_) = dtype {
        let bytes = source.values()?;
        let items = bytes.chunks_exact(dtype.item_len().max(1));
        return Ok(items.map(|item| text(item.to_vec())).collect());
    }
    Ok(source.texts()?.into_iter().map(text).collect())
}

/// Fails if a variant has more than two alleles. If the array has no room for more, nothing is
/// read.
fn check_alleles(alleles: &TextRows, count: u64, source: &ViewSource<'_>) -> Result<()> {
    let width = alleles.width();
    if width == 0 {
        return Err(no_vcf("variant_allele has no alleles"));
    }
    if width <= PLOIDY {
        return Ok(());
    }
    let mut at = 0;
    while at < count {
        let end = at.saturating_add(STEP).min(count);
        let texts = alleles.read(at..end, source.get_chunk())?;
        let rows = texts.chunks_exact(usize::try_from(width).unwrap_or(usize::MAX));
        for (row, texts) in rows.enumerate() {
            if texts.iter().skip(2).any(|text| !text.is_empty()) {
                let variant = at.saturating_add(row.to_u64());
                return Err(Error::unsupported(format!(
                    "PLINK 1 has two alleles for each variant, variant {variant} has more"
                )));
            }
        }
        at = end;
    }
    Ok(())
}

/// Fails for a string that would not be one word of a line.
pub fn check_word(text: &str) -> std::result::Result<(), &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    if text.contains(|char: char| char.is_whitespace() || char.is_control()) {
        return Err("has a space or control character");
    }
    Ok(())
}

pub fn no_vcf(why: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("the group is not VCF Zarr: {why}"))
}
