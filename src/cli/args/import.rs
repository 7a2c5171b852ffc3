//! The command that imports values into a hierarchy.

use std::path::PathBuf;

use super::values::{Codecs, Lengths, codecs, lengths, new_dialects, node_path, shards, size};
use crate::cli::open::remote::Remote;
use crate::metadata::{Dialect, NodePath, Shards};

/// Copy files of other formats, or hierarchies, into a hierarchy, or append them to its arrays.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
#[command(after_help = "\
Without --append-dim, --into and --region, zarrfs makes DEST as a new group or array, like `zarrfs convert`. \
If there are several FILEs, each becomes a group below DEST, named after the file.

With --append-dim, what is appended must fit: the same arrays with this dimension, types, units and packing. \
If the units of times differ (hours since .., days since ..), zarrfs converts the times. Arrays without the \
dimension must have the values of DEST. If DEST is missing, the first file becomes it. Programs see the new \
elements only when the import sets the new shapes, at its end. If it is interrupted before that, no array has \
changed: run the same command again to continue.

With --into or --region, chunks of DEST are replaced one by one. After an interruption, run the same command again.

  zarrfs import era5.nc era5.zarr --shards 64M
  zarrfs import 2024-*.nc climate.zarr --append-dim time
  zarrfs import corrected.nc climate.zarr --region time=12:24
  zarrfs import mask.tif climate.zarr/mask --into")]
pub struct Import {
    /// Files (netCDF, HDF5, TIFF, ...), hierarchies, or parts of them (FILE#NODE).
    #[arg(required = true, value_name = "FILE")]
    pub sources: Vec<PathBuf>,
    /// The hierarchy, or a group or array in it.
    #[arg(required = true)]
    pub dest: PathBuf,
    /// Append along this dimension, in the order of the files: its name, or its number (from 0) in
    /// arrays without names.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["into", "region"])]
    pub append_dim: Option<String>,
    /// Replace all values of existing arrays of the same shapes.
    #[arg(long, conflicts_with = "region")]
    pub into: bool,
    /// Replace a part of existing arrays, by dimensions: time=12:24,lat=0:10.
    #[arg(long, value_name = "RANGES", value_parser = region)]
    pub region: Option<NamedRanges>,
    /// Append also if the coordinate of that dimension does not go on in its order.
    #[arg(long, requires = "append_dim")]
    pub any_order: bool,
    /// Import only this node of each file, and everything below it. Can be repeated.
    #[arg(long, value_name = "PATH", value_parser = node_path)]
    pub only: Vec<NodePath>,
    /// Dialect of a new hierarchy [default: that of the hierarchy around DEST, or v3].
    #[arg(long, value_name = "DIALECT", value_parser = new_dialects())]
    pub format: Option<Dialect>,
    /// Codecs of new arrays: `none`, codecs separated by commas (`blosc,crc32c`), or a JSON list of
    /// v3 codecs [default: those of FILE; if the dialect lacks them, zstd, gzip or none].
    #[arg(long, value_name = "LIST", value_parser = codecs)]
    pub codecs: Option<Codecs>,
    /// Shape of the chunks of new arrays, for those with as many dimensions: 64,64,64 [default: as
    /// in FILE].
    #[arg(long, value_name = "SHAPE", value_parser = lengths)]
    pub chunks: Option<Lengths>,
    /// Shards of new arrays: `none`, a SIZE such as `16M` (each shard holds at most that many
    /// decoded bytes), or a SHAPE such as `1024,1024` [default: none].
    #[arg(long, value_name = "SIZE|SHAPE", value_parser = shards)]
    pub shards: Option<Shards>,
    /// Leave out nodes that DEST cannot hold.
    #[arg(long)]
    pub skip_unsupported: bool,
    /// Read every chunk back and compare it with the file.
    #[arg(long)]
    pub verify: bool,
    /// Chunks to convert at the same time [default: the number of processors].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Memory for decoded chunks of a file that several chunks of DEST need.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "512M")]
    pub cache_size: u64,
    #[command(flatten)]
    pub remote: Remote,
}

/// Ranges of elements along dimensions.
pub type NamedRanges = Vec<(String, Option<u64>, Option<u64>)>;

/// Parses `time=12:24,lat=0:10`; `time=12:` means as many elements as the file has.
fn region(text: &str) -> Result<NamedRanges, String> {
    let wrong =
        || format!("{text:?}: write the range of each dimension, as in time=12:24,lat=0:10");
    let number = |text: &str| match text.trim() {
        "" => Ok(None),
        number => number.parse().map(Some).map_err(|_| wrong()),
    };
    let one = |one: &str| -> Result<_, String> {
        let (name, range) = one.split_once('=').ok_or_else(wrong)?;
        let (from, until) = range.split_once(':').ok_or_else(wrong)?;
        Ok((name.trim().to_owned(), number(from)?, number(until)?))
    };
    text.split(',').map(one).collect()
}
