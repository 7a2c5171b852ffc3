//! Commands that check and compare hierarchies.
#![expect(clippy::doc_markdown, reason = "these comments are printed as help, with their marks")]

use std::path::PathBuf;

use super::values::{dialects, node_path, size};
use crate::check::WhichChunks;
use crate::cli::open::remote::Remote;
use crate::metadata::{Dialect, NodePath};

/// Check a hierarchy: its metadata, the names of its files, and every chunk.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
#[command(after_help = "\
Each line of the output is a finding: its severity (damaged, unchecked, suspect or note), a code, the key of the \
file, and the reason. docs/check.md explains the codes. A chunk that is not stored has the fill value; it is not a finding \
unless you give --expect-all.

--repair removes the files that killed writers of zarrfs left behind, rebuilds outdated consolidated metadata, and \
rewrites shards without unused bytes. With --quarantine it also moves damaged chunks out of the hierarchy; they \
then have the fill value. With --remove-leftovers it also removes files with the names of temporary files of other \
programs. It prints the repairs, and makes them only with --yes.

  zarrfs check climate.zarr
  zarrfs check climate.zarr --sample 5%
  zarrfs check climate.zarr --keys > damaged.txt     # paths below climate.zarr
  zarrfs check climate.zarr --repair --quarantine damaged --yes

Exit codes: 0 no damage; 1 failure, or zarrfs may not read something, or does not find it; 2 invalid arguments; \
3 something is damaged, or with --strict, something was not checked.")]
pub struct Check {
    /// The hierarchy, or a group or array in it: climate.zarr/t2m, or s3://bucket/climate.zarr/t2m.
    pub source: PathBuf,
    /// Check only metadata, and read no chunks.
    #[arg(long, conflicts_with_all = ["sample", "expect_all"])]
    pub metadata_only: bool,
    /// Decode only a sample of the chunks: a percentage such as 5%, or a number of chunks. The
    /// indexes of shards are always read.
    #[arg(long, value_name = "5%|N", value_parser = sample)]
    pub sample: Option<WhichChunks>,
    /// Check only this node and everything below it. Can be repeated.
    #[arg(long, value_name = "PATH", value_parser = node_path)]
    pub only: Vec<NodePath>,
    /// Treat chunks that are not stored as damage.
    #[arg(long)]
    pub expect_all: bool,
    /// Also end with 3 if something was not checked: unsupported, refused, missing or too large.
    #[arg(long)]
    pub strict: bool,
    /// Chunks to decode at the same time [default: the number of processors; at least 16 for a
    /// URL].
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Print each finding as a JSON object on a line, and the summary as JSON on standard error.
    #[arg(long)]
    pub json: bool,
    /// Print only the keys of damaged files.
    #[arg(long, conflicts_with = "json")]
    pub keys: bool,
    /// Print the repairs that take no guessing.
    #[arg(long)]
    pub repair: bool,
    /// Make the repairs.
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// Also move damaged chunks and shards into this directory.
    #[arg(long, value_name = "DIR", requires = "repair")]
    pub quarantine: Option<PathBuf>,
    /// Also remove files that have the name of a temporary file of zarr-python or rsync.
    #[arg(long, requires = "repair")]
    pub remove_leftovers: bool,
    /// Dialect of the hierarchy: v3 or v2 (Zarr 3 or 2), n5, or a draft of Zarr 3 such as d2020-10
    /// [default: detect].
    #[arg(long, value_name = "DIALECT", value_parser = dialects())]
    pub from: Option<Dialect>,
    #[command(flatten)]
    pub remote: Remote,
}

/// Compare two hierarchies: nodes, shapes, data types, attributes and values.
///
/// How they are stored (dialect, chunks, shards, codecs, fill values) does not matter.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line of the output is a difference. If the values of an array differ, it says how many elements do, the \
index of the first one with both values, and the largest difference. NaN equals NaN. If two arrays have \
different shapes, or types that cannot be compared, their values are not compared.

Two numbers a and b are equal if |a - b| <= TOLERANCE + RTOL * |b|.

  zarrfs diff old.zarr new.zarr
  zarrfs diff climate.zarr/t2m s3://bucket/climate.zarr/t2m --rtol 1e-6

Exit codes: 0 equal; 1 different; 2 failure or invalid arguments.")]
pub struct Diff {
    /// A hierarchy, or a group or array in it: climate.zarr/t2m, or s3://bucket/climate.zarr/t2m.
    pub a: PathBuf,
    /// The hierarchy, group or array to compare it with.
    pub b: PathBuf,
    /// Largest absolute difference at which two numbers count as equal.
    #[arg(long, value_name = "NUMBER", value_parser = tolerance, default_value = "0")]
    pub tolerance: f64,
    /// Largest difference at which two numbers count as equal, relative to the number in B.
    #[arg(long, value_name = "NUMBER", value_parser = tolerance, default_value = "0")]
    pub rtol: f64,
    /// Compare only metadata, and read no chunks.
    #[arg(long)]
    pub metadata_only: bool,
    /// Compare only this node and everything below it. Can be repeated.
    #[arg(long, value_name = "PATH", value_parser = node_path)]
    pub only: Vec<NodePath>,
    /// Chunks to compare at the same time [default: the number of processors; at least 16 for a
    /// URL].
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Memory for decoded chunks that are needed more than once.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "512M")]
    pub cache_size: u64,
    /// Print each difference as a JSON object on a line.
    #[arg(long)]
    pub json: bool,
    /// Dialect of A [default: detect].
    #[arg(long, value_name = "DIALECT", value_parser = dialects())]
    pub from: Option<Dialect>,
    /// Dialect of B [default: detect].
    #[arg(long, value_name = "DIALECT", value_parser = dialects())]
    pub from_b: Option<Dialect>,
    #[command(flatten)]
    pub remote: Remote,
}

/// Parses the size of a sample: `5%`, `0.1%`, or a count.
fn sample(text: &str) -> Result<WhichChunks, String> {
    let wrong = || "expected a percentage such as 5% or 0.1%, or a number of chunks".to_owned();
    let Some(share) = text.strip_suffix('%') else {
        return text.parse().map(WhichChunks::Count).map_err(|_| wrong());
    };
    let (whole, part) = share.split_once('.').unwrap_or((share, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 4 {
        return Err(wrong());
    }
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let per_million = number(whole)?
        .checked_mul(10_000)
        .and_then(|whole| whole.checked_add(number(&format!("{part:0<4}")).ok()?));
    per_million.filter(|all| *all <= 1_000_000).map(WhichChunks::PerMillion).ok_or_else(wrong)
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number >= 0.0 && number.is_finite());
    number.ok_or_else(|| "expected a number of at least 0, such as 1e-6".to_owned())
}
