//! Commands that create and convert hierarchies.
#![expect(clippy::doc_markdown, reason = "these comments are printed as help, with their marks")]

use std::path::PathBuf;

use super::values::{
    Codecs, Lengths, attributes, codecs, dialects, lengths, new_dialects, node_path, ome_versions,
    shards, size,
};
use crate::cli::open::remote::Remote;
use crate::json::Object;
use crate::metadata::ome::OmeVersion;
use crate::metadata::{Dialect, NodePath, Shards};

/// Create an array, or without --shape a group. Creates the hierarchy if it is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
If PATH lies in an existing hierarchy, the node is created in the dialect of that hierarchy. Otherwise \
a new hierarchy is created; its root is the first component of PATH whose name ends in .zarr or .n5, \
or PATH itself. Missing groups above the node are created as well.

  zarrfs create new.zarr --format n5
  zarrfs create new.zarr/temp --shape 365,721,1440 --dtype float32 \\
      --chunks 1,721,1440 --shards 64M --fill NaN \\
      --attrs '{\"units\": \"K\"}' --dimensions time,lat,lon")]
pub struct Create {
    /// The new node: its directory or URL.
    pub path: PathBuf,
    /// Dialect of a new hierarchy [default: v3].
    #[arg(long, value_name = "DIALECT", value_parser = new_dialects())]
    pub format: Option<Dialect>,
    /// Create an array of this shape: 365,721,1440, or `scalar` for an array without dimensions.
    #[arg(long, value_name = "SHAPE", value_parser = lengths, requires = "dtype")]
    pub shape: Option<Lengths>,
    /// Data type: float32, int16, bool, string, ..., or JSON as in a Zarr 3 metadata file.
    #[arg(long, value_name = "TYPE", requires = "shape")]
    pub dtype: Option<String>,
    /// Shape of the chunks: 1,721,1440 [default: chosen so that a chunk has about 1 MiB].
    #[arg(long, value_name = "SHAPE", value_parser = lengths, requires = "shape")]
    pub chunks: Option<Lengths>,
    /// Shards: `none`, a SIZE such as `16M` (each shard holds at most that many decoded bytes), or
    /// a SHAPE such as `1024,1024` [default: none].
    #[arg(long, value_name = "SIZE|SHAPE", value_parser = shards, requires = "shape")]
    pub shards: Option<Shards>,
    /// Codecs: `none`, codecs separated by commas (`blosc,crc32c`), or a JSON list of v3 codecs
    /// [default: the first of zstd, gzip and none that the dialect has].
    #[arg(long, value_name = "LIST", value_parser = codecs, requires = "shape")]
    pub codecs: Option<Codecs>,
    /// Fill value, which elements of missing chunks have: a number, true, NaN, or JSON [default:
    /// zero, false or empty].
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true, requires = "shape")]
    pub fill: Option<String>,
    /// Attributes: a JSON object.
    #[arg(long, value_name = "JSON", value_parser = attributes)]
    pub attrs: Option<Object>,
    /// Dimension names: time,lat,lon.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "shape")]
    pub dimensions: Vec<String>,
    #[command(flatten)]
    pub remote: Remote,
}

/// Copy a hierarchy, or a part of it, into another dialect, or with other codecs, chunks or shards.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
#[command(after_help = "\
If DEST cannot hold everything, zarrfs names what it cannot hold, and stops before it stores anything.

All chunks are stored first and all metadata files last. Until then no program finds groups or arrays in \
DEST; its file .zarrfs/convert marks it as incomplete. If a conversion is interrupted, run the same command \
again: it continues. If chunks of an array change during the copy, zarrfs compares the array once more, and \
warns if they keep changing; if metadata change, the command fails and names the node.

Encoded chunks are copied unchanged if neither their shape nor their codecs change. Ordinary files in \
SOURCE are not copied. DEST may be a directory in a mount; the mount then decides how it is stored.

  zarrfs convert old.zarr new.zarr
  zarrfs convert climate.zarr shards.zarr --shards 64M --codecs blosc --verify
  zarrfs convert climate.zarr/t2m t2m.n5 --format n5 --chunks 64,64,64")]
pub struct Convert {
    /// The hierarchy, or a group or array in it: climate.zarr/t2m, or s3://bucket/climate.zarr/t2m.
    pub source: PathBuf,
    /// The new hierarchy: a directory or URL that is missing, empty, or left by an interrupted
    /// conversion, or a new zip archive (.zip or .ozx).
    pub dest: PathBuf,
    /// Dialect of SOURCE [default: detect].
    #[arg(long, value_name = "DIALECT", value_parser = dialects())]
    pub from: Option<Dialect>,
    /// Dialect of DEST.
    #[arg(long, value_name = "DIALECT", value_parser = new_dialects(), default_value = "v3")]
    pub format: Dialect,
    /// Codecs: `none`, codecs separated by commas (`blosc,crc32c`), or a JSON list of v3 codecs
    /// [default: those of SOURCE; if the dialect of DEST lacks them, zstd, gzip or none].
    #[arg(long, value_name = "LIST", value_parser = codecs)]
    pub codecs: Option<Codecs>,
    /// Shape of the chunks, for arrays with as many dimensions: 64,64,64 [default: as in SOURCE].
    #[arg(long, value_name = "SHAPE", value_parser = lengths)]
    pub chunks: Option<Lengths>,
    /// Shards: `none`, a SIZE such as `16M` (each shard holds at most that many decoded bytes), or
    /// a SHAPE such as `1024,1024` [default: as in SOURCE].
    #[arg(long, value_name = "SIZE|SHAPE", value_parser = shards)]
    pub shards: Option<Shards>,
    /// Version of OME-Zarr metadata in DEST: 0.4 (Zarr 2), 0.5 or 0.6 (Zarr 3) [default: as in
    /// SOURCE; 0.4 if DEST is Zarr 2]. Images that this version cannot describe are named.
    #[arg(long, value_name = "VERSION", value_parser = ome_versions())]
    pub ome_zarr: Option<OmeVersion>,
    /// Copy only this node, everything below it, and the groups above it. Can be repeated.
    #[arg(long, value_name = "PATH", value_parser = node_path)]
    pub only: Vec<NodePath>,
    /// Leave out nodes that DEST cannot hold, and convert the rest.
    #[arg(long)]
    pub skip_unsupported: bool,
    /// Leave out chunks that SOURCE lacks, even if DEST cannot have a fill value for the array
    /// (Zarr 2 with named dimensions); zarr-python 2 then reads arbitrary values from them.
    #[arg(long, alias = "skip-fill-chunks")]
    pub skip_missing_chunks: bool,
    /// Leave out damaged chunks of SOURCE, and list them: the copy has the fill value there, and
    /// the exit code is 1. Without this option, the first damaged chunk ends the command. Encoded
    /// chunks that are copied unchanged are decoded only with --verify.
    #[arg(long)]
    pub keep_going: bool,
    /// Read every chunk back and compare it with SOURCE.
    #[arg(long)]
    pub verify: bool,
    /// Chunks to convert at the same time [default: the number of processors].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Memory for decoded chunks of SOURCE that several chunks of DEST need.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "512M")]
    pub cache_size: u64,
    #[command(flatten)]
    pub remote: Remote,
}
