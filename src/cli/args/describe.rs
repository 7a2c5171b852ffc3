//! Commands that describe a node, or print it.
#![expect(clippy::doc_markdown, reason = "these comments are printed as help, with their marks")]

use std::path::PathBuf;

use super::values::{CatFormat, cat_formats, dialects, region, size};
use crate::cli::open::remote::Remote;
use crate::cli::output::terminal::When;
use crate::metadata::Dialect;
use crate::view::region::Region;

/// Print the groups and arrays of a hierarchy as a tree.
#[derive(Debug, clap::Args)]
pub struct Tree {
    /// The hierarchy, or a group or array in it: climate.zarr/t2m, or s3://bucket/climate.zarr/t2m.
    pub source: PathBuf,
    /// Dialect of the hierarchy: v3 or v2 (Zarr 3 or 2), n5, or a draft of Zarr 3 such as d2020-10
    /// [default: detect].
    #[arg(long, value_name = "DIALECT", value_parser = dialects())]
    pub from: Option<Dialect>,
    /// Print for each array its stored and decoded size, and how many of its chunks are stored.
    #[arg(long)]
    pub sizes: bool,
    /// How many levels of nodes to print; 1 prints the nodes directly below SOURCE.
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Print exact sizes, in bytes.
    #[arg(long)]
    pub bytes: bool,
    /// When to print colours.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub color: When,
    #[command(flatten)]
    pub remote: Remote,
}

/// Describe one group or array: shape, data type, chunks, shards, codecs, sizes.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
#[command(after_help = "\
With --stats, --plot or --chunks, info prints these instead of the properties; with --json it adds \
them.

Statistics and plots show values as xarray does: elements that equal _FillValue or missing_value are \
masked, and scale_factor, add_offset and _Unsigned are applied; --raw turns this off. The mean and the \
standard deviation (with the number of elements as divisor, as in NumPy) are computed without rounding \
errors. NaN and NaT (not-a-time) are counted separately. Elements of missing chunks are fill values, and \
fill values that are not masked count like any other elements.

  zarrfs info climate.zarr/t2m --stats
  zarrfs info climate.zarr --stats
  zarrfs info climate.zarr/t2m --plot=0,:,: --color always | less -R
  zarrfs info climate.zarr/t2m --plot t2m.png --region time=2020-01
  zarrfs info climate.zarr/t2m --chunks")]
pub struct Info {
    /// The hierarchy, or a group or array in it: climate.zarr/t2m, or s3://bucket/climate.zarr/t2m.
    pub source: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Print exact sizes, in bytes.
    #[arg(long)]
    pub bytes: bool,
    /// When to print colours.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub color: When,
    /// Print statistics of the values: minimum, maximum, mean, standard deviation, counts, and a
    /// histogram; for a group a line for each array below it. Reads every stored chunk, unless
    /// --sample is given.
    #[arg(long)]
    pub stats: bool,
    /// Compute the statistics from the stored elements, without masking and unpacking them.
    #[arg(long, requires = "stats")]
    pub raw: bool,
    /// Compute the statistics from a part of the chunks, spread over the array: a percentage or a
    /// number of chunks [default without a value: 5%].
    #[arg(
        long,
        value_name = "5%|N",
        value_parser = SampleShare::parse,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5%",
        requires = "stats"
    )]
    pub sample: Option<SampleShare>,
    /// Draw a two-dimensional slice. REGION is as in `cat --region`, such as 0,:,: or time=2020-01
    /// [default: the last two spatial dimensions]. FILE.png is written as an image with axes and a
    /// bar of colours, also as a line for a single dimension.
    ///
    /// zarrfs reads one element for each character or half of it, or for each pixel, from the
    /// smallest level of an OME-Zarr image that has enough, and decodes at most 48 MiB of chunks.
    #[arg(
        long,
        value_name = "REGION|FILE.png",
        value_parser = Plot::parse,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
    )]
    pub plot: Option<Plot>,
    /// The slice that --plot draws, as in `cat --region`.
    #[arg(long, value_name = "REGION", value_parser = region, allow_hyphen_values = true, requires = "plot")]
    pub region: Option<Region>,
    /// Draw a map of the chunks: stored, missing, or with only fill values. zarrfs decodes the
    /// chunks to look for fill values if they have at most 1 GiB in all, or with --stats.
    #[arg(long)]
    pub chunks: bool,
    /// Dialect of the hierarchy: v3 or v2 (Zarr 3 or 2), n5, or a draft of Zarr 3 such as d2020-10
    /// [default: detect].
    #[arg(long, value_name = "DIALECT", value_parser = dialects())]
    pub from: Option<Dialect>,
    #[command(flatten)]
    pub remote: Remote,
}

/// Write a group or array to standard output as a file of another format.
#[derive(Debug, clap::Args)]
pub struct Cat {
    /// The group or array: climate.zarr/t2m, or s3://bucket/climate.zarr/t2m.
    pub source: PathBuf,
    /// Format of the file. `zarrfs info` says which formats a node has, and why it lacks the
    /// others.
    ///
    /// `csv` and `json` are tables of an array, or of the arrays of a group with the same
    /// dimensions: a row for each element, with its coordinates.
    #[arg(long = "as", value_name = "FORMAT", value_parser = cat_formats())]
    pub format: CatFormat,
    /// Write only a part of SOURCE, with its coordinates: indices, or names of dimensions and
    /// coordinates.
    ///
    /// Indices are as in NumPy, one for each dimension of an array: `0:10` selects the elements 0
    /// to 9, `:` all, and `-1:` the last one. A single number such as `5` selects one element, and
    /// the file lacks that dimension. Dimensions at the end may be left out.
    ///
    /// Names and coordinates are for arrays and groups: `lat=40:50,lon=-10:30`. Both ends of a
    /// range belong to it. A single value selects the nearest element. A date such as `2020-01`
    /// stands for the whole period; as a single value, it selects the first element in it.
    /// Longitudes wrap around. `time=@0:10` selects by indices.
    #[arg(long, value_name = "REGION", value_parser = region, allow_hyphen_values = true)]
    pub region: Option<Region>,
    /// Memory for decoded chunks.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    pub cache_size: u64,
    /// Dialect of the hierarchy: v3 or v2 (Zarr 3 or 2), n5, or a draft of Zarr 3 such as d2020-10
    /// [default: detect].
    #[arg(long, value_name = "DIALECT", value_parser = dialects())]
    pub from: Option<Dialect>,
    #[command(flatten)]
    pub remote: Remote,
}

/// The slice to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plot {
    /// The default slice of the array.
    Usual,
    /// A region with two dimensions.
    Of(Region),
    /// A slice, into a file.
    File(PathBuf),
}

/// The end of the name of an image.
const IMAGE: &str = ".png";

impl Plot {
    fn parse(text: &str) -> Result<Self, String> {
        if Self::is_file(text) {
            return Ok(Self::File(text.into()));
        }
        if text.is_empty() { Ok(Self::Usual) } else { region(text).map(Self::Of) }
    }

    /// Whether a word names a file.
    pub fn is_file(text: &str) -> bool {
        text.to_ascii_lowercase().ends_with(IMAGE)
    }
}

/// A part of the chunks of an array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SampleShare {
    /// A percentage, above 0 and at most 100.
    Percent(f64),
    /// A number of chunks, at least 1.
    Chunks(u64),
}

impl SampleShare {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "expected a percentage such as 5%, or a number of chunks".to_owned();
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.trim().parse().map_err(|_| wrong())?;
            let is_part = percent > 0.0 && percent <= 100.0;
            return is_part.then_some(Self::Percent(percent)).ok_or_else(wrong);
        }
        let count = text.parse().ok().filter(|count| *count > 0);
        count.map(Self::Chunks).ok_or_else(wrong)
    }
}
