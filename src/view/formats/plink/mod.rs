//! PLINK 1 (<https://www.cog-genomics.org/plink/1.9/formats>): the variants of a [VCF
//! Zarr](https://github.com/sgkit-dev/vcf-zarr-spec) group, in three files of one name: genotypes
//! (`bed`), variants (`bim`) and samples (`fam`).
//!
//! They are those that `vcztools view-plink` writes: allele 1 is the alternate allele, allele 2 the
//! reference. A genotype with any other allele is missing, and a haploid one is homozygous.

mod bed;
mod bim;
mod variants;

pub(super) use bed::build as bed;
pub(super) use bim::build as bim;

use variants::Variants;

use crate::error::Result;
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;

/// Builds the file of samples.
pub(super) fn fam(group: &ViewSource<'_>) -> Result<View> {
    let variants = Variants::of(group)?;
    let line = |name: &String| format!("{name}\t{name}\t0\t0\t0\t-9\n");
    View::new([Part::from(variants.samples.iter().map(line).collect::<String>())])
}
