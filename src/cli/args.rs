//! The command line: commands, options and their help.
#![expect(clippy::doc_markdown, reason = "these comments are printed as help, with their marks")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use log::LevelFilter;

use super::remote::Remote;
use super::terminal::When;
use crate::array::ShardOrder;
use crate::check::Chunks;
use crate::codec::CodecSpec;
use crate::json::Object;
use crate::metadata::{Dialect, NodePath, Policy, Shards, policy, wanted};
use crate::vfs::{Form, ListedViews};
use crate::view::cut::Region;
use crate::view::{FORMATS, Format};

const EXAMPLES: &str = "\
Examples:
  zarrfs demo                           create a sample hierarchy, mount it, show it
  zarrfs mount climate.zarr /mnt/zarr   mount; every chunk is a file below /mnt/zarr
  zarrfs climate.zarr /mnt/zarr         short for `zarrfs mount`
  zarrfs status                         list the mounts, pending changes and errors
  zarrfs umount /mnt/zarr               store pending changes, and unmount
  zarrfs tree climate.zarr              list all groups and arrays
  zarrfs info climate.zarr/t2m          describe one array: shape, chunks, shards, codecs
  zarrfs cat climate.zarr/t2m --as npy > t2m.npy
                                        write one array as a file of another format
  zarrfs create new.zarr/x --shape 365,721,1440 --dtype float32
                                        create an array, and the hierarchy if it is missing
  zarrfs check climate.zarr             check metadata, names and every chunk
  zarrfs convert old.zarr new.zarr      copy into another dialect, codecs, chunks or shards
  zarrfs diff old.zarr new.zarr         compare values and attributes

Exit codes: 0 success; 1 failure (diff: different); 2 invalid arguments (diff: or failure); 3 check found damage, or umount has unmounted and \
--rescue DIR holds the changes that could not be stored.";

/// Mounts a Zarr hierarchy as a file system.
///
/// Groups are directories. Arrays are directories that hold their metadata as JSON and every chunk
/// as a plain, decoded file. Every array and group can also be opened as one file of another format
/// (netCDF, HDF5, TIFF, NumPy, ...).
#[derive(Debug, Parser)]
#[command(name = "zarrfs", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Mount(Mount),
    Umount(Umount),
    Status(Status),
    Tree(Tree),
    Info(Info),
    Cat(Cat),
    Check(Check),
    Create(Create),
    Convert(Convert),
    Diff(Diff),
    Demo(Demo),
    Completions(Completions),
    Man(Man),
    #[cfg(feature = "remote")]
    Uploads(Uploads),
    #[command(hide = true)]
    AutoUnmount(AutoUnmount),
}

/// End the mount when standard input ends, if its daemon was killed.
#[derive(Debug, clap::Args)]
pub struct AutoUnmount {
    /// The mountpoint.
    pub mountpoint: PathBuf,
}

/// Mount a hierarchy, and return when the mount is ready.
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
#[command(after_help = "\
Files in MOUNTPOINT:
  zarr.json            metadata of a group or array; describes the files beside it
  c/0/3                the chunk with the indices 0 and 3: its elements, little endian, C order,
                       nothing else
  t2m.npy, t2m.nc      array t2m as one file of another format (see --views)
  __root__.nc          the root group as one file of another format
  .zarrfs/errors       the latest errors in words; look here after an Input/output error
  .zarrfs/stored/...   the metadata files as they are stored
  .zarrfs/stats        counters
  .zarrfs/unstored     changes that are not stored yet, and why
  .zarrfs/views/...    the formats that each node (group or array) has, and why it lacks the others
ls does not list .zarrfs, nor files of other formats unless --views names them; open them by name.

A SIZE is a number of bytes such as 64K, 16M or 2G. A TIME is 500ms, 5s, 2m or 1h.

When a program closes a file, zarrfs encodes and stores it. A new directory becomes a group. A new \
zarr.json makes a group or an array, and so do .zgroup and .zarray. If it names a compressor, the array is stored with its codecs, \
and its chunk files show encoded chunks until the next mount; otherwise --codecs and --shards decide.")]
pub struct Mount {
    /// The directory of a hierarchy, or of a group or array in it (climate.zarr/t2m). In some
    /// drafts of Zarr 3 a node has no directory: write climate.zarr#t2m. Or a URL:
    /// s3://bucket/climate.zarr.
    pub source: PathBuf,
    /// The directory to mount it on; it must exist and be empty.
    pub mountpoint: PathBuf,
    /// Stay in the foreground. Ctrl-C stores pending changes and unmounts.
    #[arg(short, long)]
    pub foreground: bool,
    /// Mount options as in fstab, separated by commas.
    ///
    /// These are `ro`, `rw`, `allow_other`, `allow_root`, `nonempty`, `direct_io` (bypass the page
    /// cache; faster for programs that read in megabytes), `nopassthrough` (disable FUSE
    /// passthrough), `uid=N` and `gid=N` (the owner of all files), `umask=M` (the permissions that
    /// no file has, in octal), `quiet` (chmod and chown that would be refused have no effect),
    /// `auto_unmount` (unmount if zarrfs is killed), `fsname=NAME` and `subtype=NAME` (source and
    /// type in the table of mounts), and every long option below without its dashes, such as
    /// `cache-size=1G`. Options that only fstab needs (`_netdev`, `x-*`, ...) have no effect.
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// The form of the mount: a Zarr hierarchy, or a tree of files of one format.
    #[arg(long = "as", value_name = "FORMAT", value_parser = form_values(), default_value = "zarr")]
    pub form: Form,
    /// Formats whose files are listed beside their nodes, such as t2m.npy beside t2m: `none`,
    /// `all`, or formats separated by commas (in -o separate them by +, as in `-o views=npy+nc`).
    ///
    /// Files of the other formats can be opened by name. `.zarrfs/views/NODE` says which formats a
    /// node (group or array) has.
    #[arg(long, value_name = "LIST", value_parser = listed_views, default_value = "none")]
    pub views: ListedViews,
    /// Dialect of the hierarchy: v3 or v2 (Zarr 3 or 2), n5, or a draft of Zarr 3 such as d2020-10
    /// [default: detect].
    #[arg(long, value_name = "DIALECT", value_parser = dialects())]
    pub from: Option<Dialect>,
    /// Create an empty hierarchy if SOURCE is missing or an empty directory.
    #[arg(long)]
    pub create: bool,
    /// Dialect of the hierarchy that --create creates.
    #[arg(long, value_name = "DIALECT", value_parser = new_dialects(), default_value = "v3", requires = "create")]
    pub format: Dialect,
    /// Codecs of new arrays whose metadata name no compressor: `none`, codecs separated by commas
    /// (`blosc,crc32c`), or a JSON list of v3 codecs. With -o, give only one codec.
    ///
    /// Codecs with a short name: blosc, bz2, crc32c, gzip, lz4, lzma, shuffle, zlib, zstd.
    #[arg(long, value_name = "LIST", value_parser = codecs, default_value = "zstd")]
    pub codecs: Codecs,
    /// Shards of new arrays whose metadata do not specify them: `none` (no shards), a SIZE such as
    /// `16M` (each shard holds at most that many decoded bytes), or a SHAPE such as `[1024,1024]`
    /// (for arrays with as many dimensions).
    #[arg(long, value_name = "SIZE|SHAPE", value_parser = Policy::parse_shards, default_value = "none")]
    pub shards: Shards,
    /// Order of the chunks within a shard when zarrfs writes it: `c` (last index varies fastest),
    /// `f` (first index varies fastest), `morton` (Z-order curve) or `arrival` (as they were
    /// written).
    #[arg(long, value_name = "ORDER", value_parser = shard_orders(), default_value = "c")]
    pub shard_order: ShardOrder,
    /// How to update a shard if only some of its chunks change.
    #[arg(long, value_name = "HOW", value_enum, default_value = "rewrite")]
    pub shard_write: ShardWriteArg,
    /// Memory for decoded chunks.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    pub cache_size: u64,
    /// Memory for changes that are not stored yet. If they exceed it, writes fail with ENOMEM.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub dirty_limit: u64,
    /// Size limit for decoded chunks and for ordinary files. Larger ones cannot be read or written.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub max_chunk_size: u64,
    /// How long to cache names, sizes and metadata [default: 1s, or 1m for a URL].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub metadata_ttl: Option<Duration>,
    /// Assume that nothing else changes the hierarchy: cache names, sizes and metadata without
    /// limit.
    #[arg(long, conflicts_with = "metadata_ttl")]
    pub immutable: bool,
    /// Read each metadata file. Otherwise a read-only mount of a URL uses consolidated
    /// metadata, which programs that do not know them may have left outdated.
    #[arg(long, help_heading = "Options for URLs")]
    pub no_consolidated: bool,
    /// Do not store a chunk whose elements all equal the fill value bit for bit; erase it instead.
    #[arg(long)]
    pub skip_fill_chunks: bool,
    /// Store encoded chunks that programs write without decoding them first. It is faster, also
    /// because the kernel can write them by itself, but a damaged chunk is found only when it is
    /// read.
    #[arg(long)]
    pub trust_encoded: bool,
    /// When to store a chunk that a program has closed. Metadata files are always stored at close.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "delay")]
    pub writeback: Writeback,
    /// Longest delay before zarrfs stores a chunk of an incomplete shard, stores a temporary file,
    /// or turns a new directory into a group.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub writeback_delay: Duration,
    /// When to force stored bytes to disk.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "always")]
    pub durability: Durability,
    /// If the last changes cannot be stored at unmount (full disk), write them below DIR: each file
    /// at its path in the mount, chunks decoded [default: discard them; --log-file names them].
    #[arg(long, value_name = "DIR")]
    pub rescue: Option<PathBuf>,
    /// Threads that decode and store [default: the number of processors plus 2, at least 4;
    /// 64 for a URL].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Log level: off, error, warn, info or debug.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub log_level: LevelFilter,
    /// Log file [default: standard error with --foreground, otherwise the log of the system].
    /// SIGHUP opens it again, and SIGUSR1 logs the counters of .zarrfs/stats.
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Append a line of JSON to FILE for each read: time, path, offset, length, how it was answered
    /// (hit, decode or unknown), microseconds. Reads by the kernel itself have no line; -o
    /// nopassthrough and -o direct_io make all reads visible.
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    #[command(flatten)]
    pub remote: Remote,
    /// The mount is a child process that reports to its parent when it answers.
    #[arg(long, hide = true)]
    pub daemon: bool,
    /// Check everything, but mount nothing.
    #[arg(long, hide = true)]
    pub fake: bool,
    /// Ignore unknown words of -o.
    #[arg(long, hide = true)]
    pub sloppy: bool,
    /// Print that the source is mounted.
    #[arg(long, hide = true)]
    pub verbose: bool,
}

/// Store pending changes, unmount, and return when the background process has exited.
#[derive(Debug, clap::Args)]
pub struct Umount {
    /// The directory that a hierarchy is mounted on.
    pub mountpoint: PathBuf,
    /// Unmount even if some changes cannot be stored, and write those below DIR: each file at its
    /// path in the mount, chunks decoded.
    #[arg(long, value_name = "DIR")]
    pub rescue: Option<PathBuf>,
}

/// List the mounts: their sources, since when, by which user, pending changes and errors.
#[derive(Debug, clap::Args)]
pub struct Status {
    /// The mountpoints [default: all mounts of the type fuse.zarrfs].
    pub mountpoints: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

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

The mean and the standard deviation (with the number of elements as divisor, as in NumPy) are computed \
without rounding errors. NaN and times that are none count separately. Elements of missing chunks are \
fill values, and fill values are elements like any others.

  zarrfs info climate.zarr/t2m --stats
  zarrfs info climate.zarr/t2m --plot=0,:,: --color always | less -R
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
    /// Print statistics of the elements: minimum, maximum, mean, standard deviation, counts, and a
    /// histogram. Reads every stored chunk, unless --sample is given.
    #[arg(long)]
    pub stats: bool,
    /// Compute the statistics from a part of the chunks, spread over the array: a percentage or a
    /// number of chunks [default without a value: 5%].
    #[arg(
        long,
        value_name = "5%|N",
        value_parser = Sample::parse,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5%",
        requires = "stats"
    )]
    pub sample: Option<Sample>,
    /// Draw a slice with two dimensions. REGION has an index for each dimension, as in `cat
    /// --region` [default: the last two dimensions of space].
    ///
    /// zarrfs reads one element for each character or half of it, from the smallest level of an
    /// OME-Zarr image that has enough, and at most 48 MiB of chunks.
    #[arg(
        long,
        value_name = "REGION",
        value_parser = Plot::parse,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
    )]
    pub plot: Option<Plot>,
    /// Draw a map of the chunks: stored, missing, or with only fill values. zarrfs looks for fill
    /// values in at most 1 GiB of decoded chunks, or in all with --stats.
    #[arg(long)]
    pub chunks: bool,
    /// Dialect of the hierarchy: v3 or v2 (Zarr 3 or 2), n5, or a draft of Zarr 3 such as d2020-10
    /// [default: detect].
    #[arg(long, value_name = "DIALECT", value_parser = dialects())]
    pub from: Option<Dialect>,
    #[command(flatten)]
    pub remote: Remote,
}

/// List uploads to a bucket that were not completed, and end old ones.
///
/// Objects of more than 64 MiB are uploaded in parts. If a program is killed meanwhile, the server
/// keeps the parts, and you pay for them, until the upload is ended.
#[cfg(feature = "remote")]
#[derive(Debug, clap::Args)]
pub struct Uploads {
    /// The URL below which to look: s3://bucket/climate.zarr, or s3://bucket.
    pub source: PathBuf,
    /// End those that are old, and remove their parts.
    #[arg(long)]
    pub end: bool,
    /// The age of an upload that is old; a younger one may still be under way.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "24h")]
    pub older_than: Duration,
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
    #[arg(long = "as", value_name = "FORMAT", value_parser = view_formats())]
    pub format: &'static Format,
    /// A part of an array, with its coordinates: an index for each dimension, as in NumPy.
    ///
    /// `0:10` selects the elements 0 to 9, `:` all, and `-1:` the last one. A single number such as
    /// `5` selects one element, and the file lacks that dimension. Dimensions at the end may be
    /// left out.
    #[arg(long, value_name = "0:10,:,5", value_parser = region, allow_hyphen_values = true)]
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

/// Check a hierarchy: its metadata, the names of its files, and every chunk.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
#[command(after_help = "\
Each line of the output is a finding: how bad it is (damaged, suspect or note), a code, the key of the file, \
and the reason. The codes are explained in docs/check.md. A chunk that is not stored has the fill value; it is \
no finding unless you give --expect-all.

--repair removes temporary files that programs left, makes outdated consolidated metadata again, and stores \
shards again without unused bytes. With --quarantine it also moves damaged chunks out of the hierarchy, which \
then have the fill value. It prints what it would do, and does it only with --yes.

  zarrfs check climate.zarr
  zarrfs check climate.zarr --sample 5%
  zarrfs check climate.zarr --keys > damaged.txt     # paths below climate.zarr
  zarrfs check climate.zarr --repair --quarantine damaged --yes

Exit codes: 0 no damage; 1 failure; 2 invalid arguments; 3 something is damaged.")]
pub struct Check {
    /// The hierarchy, or a group or array in it: climate.zarr/t2m, or s3://bucket/climate.zarr/t2m.
    pub source: PathBuf,
    /// Check only metadata, and read no chunks.
    #[arg(long, conflicts_with_all = ["sample", "expect_all"])]
    pub metadata_only: bool,
    /// Decode only a part of the chunks: a share such as 5%, or this many. The indexes of shards
    /// are always read.
    #[arg(long, value_name = "5%|N", value_parser = sample)]
    pub sample: Option<Chunks>,
    /// Check only this node and everything below it. Can be repeated.
    #[arg(long, value_name = "PATH", value_parser = node_path)]
    pub only: Vec<NodePath>,
    /// Report chunks that are not stored, as damage.
    #[arg(long)]
    pub expect_all: bool,
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
    /// Print what can be repaired without a guess.
    #[arg(long)]
    pub repair: bool,
    /// Do the repairs.
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// Also move damaged chunks and shards into this directory.
    #[arg(long, value_name = "DIR", requires = "repair")]
    pub quarantine: Option<PathBuf>,
    /// Dialect of the hierarchy: v3 or v2 (Zarr 3 or 2), n5, or a draft of Zarr 3 such as d2020-10
    /// [default: detect].
    #[arg(long, value_name = "DIALECT", value_parser = dialects())]
    pub from: Option<Dialect>,
    #[command(flatten)]
    pub remote: Remote,
}

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

/// Copy a hierarchy, or a part of it, into another dialect, other codecs, chunks or shards.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
#[command(after_help = "\
If DEST cannot hold everything, zarrfs says what, and stops before it stores anything.

All chunks are stored first and all metadata files last. Until then no program finds groups or arrays in \
DEST; its file .zarrfs/convert marks it as incomplete. If a conversion is interrupted, run the same command \
again: it continues. If chunks of an array change meanwhile, zarrfs compares the array once more, and warns if \
they keep changing; if metadata change, the command fails and names the node.

Encoded chunks are copied unchanged if neither their shape nor their codecs change. Ordinary files in \
SOURCE are not copied. DEST may be a directory in a mount; the mount then decides how it is stored.

  zarrfs convert old.zarr new.zarr
  zarrfs convert climate.zarr shards.zarr --shards 64M --codecs blosc --verify
  zarrfs convert climate.zarr/t2m t2m.n5 --format n5 --chunks 64,64,64")]
pub struct Convert {
    /// The hierarchy, or a group or array in it: climate.zarr/t2m, or s3://bucket/climate.zarr/t2m.
    pub source: PathBuf,
    /// The new hierarchy: a directory or URL that is missing, empty, or left by an interrupted
    /// conversion.
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
    /// Copy only this node, everything below it, and the groups above it. Can be repeated.
    #[arg(long, value_name = "PATH", value_parser = node_path)]
    pub only: Vec<NodePath>,
    /// Leave out nodes that DEST cannot hold, and convert the rest.
    #[arg(long)]
    pub skip_unsupported: bool,
    /// Leave out chunks that SOURCE lacks, also if DEST cannot have a fill value for the array
    /// (Zarr 2 with named dimensions); zarr-python 2 then reads arbitrary values from them.
    #[arg(long, alias = "skip-fill-chunks")]
    pub skip_missing_chunks: bool,
    /// Leave out chunks of SOURCE that are damaged, and list them. The copy then has the fill value
    /// there, and the exit code is 1. Otherwise the first one ends the command. Encoded chunks
    /// that are copied unchanged are decoded only with --verify.
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

/// Compare two hierarchies: nodes, shapes, data types, attributes and values.
///
/// How they are stored does not matter: dialect, chunks, shards, codecs and fill values.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line of the output is a difference. For an array with other values it says how many elements differ, the \
index of the first one with both values, and the largest difference. NaN equals NaN. Arrays with different \
shapes, or with types that cannot be compared, are reported without a comparison of values.

Two numbers a and b are equal if |a - b| <= TOLERANCE + RTOL * |b|.

  zarrfs diff old.zarr new.zarr
  zarrfs diff climate.zarr/t2m s3://bucket/climate.zarr/t2m --rtol 1e-6

Exit codes: 0 equal; 1 different; 2 failure or invalid arguments.")]
pub struct Diff {
    /// A hierarchy, or a group or array in it: climate.zarr/t2m, or s3://bucket/climate.zarr/t2m.
    pub a: PathBuf,
    /// The other one.
    pub b: PathBuf,
    /// Largest absolute difference of equal numbers.
    #[arg(long, value_name = "NUMBER", value_parser = tolerance, default_value = "0")]
    pub tolerance: f64,
    /// Largest difference of equal numbers, relative to that in B.
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

/// Create a sample hierarchy, mount it, and show what you can do with it.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Directory for the sample; it must be missing or empty.
    #[arg(default_value = "zarrfs-demo")]
    pub dir: PathBuf,
}

/// Print the completions of a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
  zarrfs completions bash > /usr/share/bash-completion/completions/zarrfs
  zarrfs completions zsh > /usr/share/zsh/vendor-completions/_zarrfs
  zarrfs completions fish > /usr/share/fish/vendor_completions.d/zarrfs.fish")]
pub struct Completions {
    /// The shell.
    pub shell: Shell,
}

/// Write the man pages into a directory, or print the page of zarrfs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
  zarrfs man | man -l -
  zarrfs man /usr/local/share/man     # man1/zarrfs.1, man1/zarrfs-mount.1, ..., man8/mount.zarrfs.8")]
pub struct Man {
    /// The directory, which has the man pages in `man1`, `man5` and `man8`.
    pub dir: Option<PathBuf>,
}

/// The codecs of one `--codecs`. clap would read a plain `Vec` as an option that can be repeated.
pub type Codecs = Vec<CodecSpec>;

/// Lengths along each dimension; a type alias for the same reason.
pub type Lengths = Vec<u64>;

/// The slice to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plot {
    /// The usual one for the array.
    Usual,
    /// A region with two dimensions.
    Of(Region),
}

impl Plot {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(Self::Usual) } else { region(text).map(Self::Of) }
    }

    /// Returns the region, if the user named one.
    pub fn region(&self) -> Option<&Region> {
        match self {
            Self::Usual => None,
            Self::Of(region) => Some(region),
        }
    }
}

/// A part of the chunks of an array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sample {
    /// A percentage, above 0 and at most 100.
    Percent(f64),
    /// A number of chunks, at least 1.
    Chunks(u64),
}

impl Sample {
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

/// When to store a chunk that a program has closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Writeback {
    /// A chunk of a shard waits for the rest of its shard, at most until fsync, unmount or
    /// --writeback-delay; other chunks are stored before close returns.
    Delay,
    /// Every chunk is stored in the background; fsync and unmount wait for it.
    All,
    /// Every chunk is stored before close returns.
    Sync,
}

/// How to update a shard if only some of its chunks change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShardWriteArg {
    /// Write the whole shard again.
    Rewrite,
    /// Append the changed chunks, so that reflinks (XFS, Btrfs) share the old bytes; rewrite a
    /// shard once more than half of it is unused.
    Append,
}

/// When to force stored bytes to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Before new bytes replace old ones, so that a power cut never leaves a torn chunk.
    Always,
    /// Only when a program calls fsync.
    Fsync,
}

/// The words that are commands: anything else that comes first is the source of a mount.
const COMMANDS: &[&str] = &[
    "mount",
    "umount",
    "tree",
    "info",
    "cat",
    "check",
    "create",
    "convert",
    "diff",
    "demo",
    "completions",
    "man",
    "uploads",
    "auto-unmount",
    "help",
];

/// Turns `zarrfs SOURCE MOUNTPOINT` into `zarrfs mount SOURCE MOUNTPOINT`. If the first word is
/// neither a command nor like a path, clap reports it.
pub fn normalize(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let is_command = |arg: &OsString| arg.to_str().is_some_and(|arg| COMMANDS.contains(&arg));
    let is_option = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
    let is_create = |arg: &OsString| arg == "--create";
    let global = |arg: &OsString| {
        arg.to_str().is_some_and(|arg| matches!(arg, "-h" | "--help" | "-V" | "--version"))
    };
    let positional = args.iter().skip(1).filter(|arg| !is_option(arg)).count();
    match args.get(1) {
        Some(first) if is_command(first) || global(first) => {}
        Some(first) if is_option(first) && positional < 2 => {}
        Some(first) if is_option(first) || is_path(first) || args.iter().any(is_create) => {
            args.insert(1, "mount".into());
        }
        Some(_) | None => {}
    }
    with_values(args)
}

/// Joins `--plot 0,:,:` and `--sample 5%` to one word. The values are optional, so clap would take
/// the next word for SOURCE.
fn with_values(args: Vec<OsString>) -> Vec<OsString> {
    let is_value = |option: &OsString, word: &OsString| {
        let Some(word) = word.to_str() else { return false };
        let is_of = |more: &[u8]| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit() || more.contains(&b))
        };
        let is_region = option == "--plot" && is_of(b"[]:,- ") && word.contains([':', ',']);
        is_region || (option == "--sample" && is_of(b".%"))
    };
    let mut joined: Vec<OsString> = Vec::with_capacity(args.len());
    for word in args {
        match joined.last_mut() {
            Some(option) if is_value(option, &word) => {
                option.push("=");
                option.push(word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

/// Whether a word is more likely a path than a misspelled command.
fn is_path(word: &OsString) -> bool {
    word.as_encoded_bytes().iter().any(|byte| b"/.#:".contains(byte)) || Path::new(word).exists()
}

/// Returns the names of all dialects.
fn dialects() -> impl TypedValueParser<Value = Dialect> {
    let mut all = Dialect::all();
    // The drafts by date, after the others.
    all.sort_by_key(|dialect| Some(dialect.name()).filter(|name| name.starts_with('d')));
    PossibleValuesParser::new(all.iter().map(Dialect::name)).try_map(|name| dialect(&name))
}

/// Returns the names of the dialects that a new hierarchy can have. The others are parsed as well,
/// so that the command can say why it refuses them.
fn new_dialects() -> impl TypedValueParser<Value = Dialect> {
    let value = |dialect: &Dialect| {
        PossibleValue::new(dialect.name()).hide(dialect.check_makes_nodes().is_err())
    };
    PossibleValuesParser::new(Dialect::all().iter().map(value)).try_map(|name| dialect(&name))
}

fn dialect(name: &str) -> Result<Dialect, String> {
    Dialect::parse_name(name).ok_or_else(|| format!("unknown dialect {name:?}"))
}

/// The form of a mount.
fn form_values() -> impl TypedValueParser<Value = Form> {
    let zarr = [("zarr", "the hierarchy as Zarr 3"), ("zarr2", "the hierarchy as Zarr 2")];
    let formats = FORMATS.iter().map(|format| (format.extension, format.what));
    let value = |(name, what): (&'static str, &'static str)| PossibleValue::new(name).help(what);
    PossibleValuesParser::new(zarr.into_iter().chain(formats).map(value)).try_map(|name| match name
        .as_str()
    {
        "zarr" => Ok(Form::Zarr3),
        "zarr2" => Ok(Form::Zarr2),
        name => view_format(name).map(Form::View),
    })
}

fn view_formats() -> impl TypedValueParser<Value = &'static Format> {
    let value = |format: &Format| PossibleValue::new(format.extension).help(format.what);
    PossibleValuesParser::new(FORMATS.iter().map(value)).try_map(|name| view_format(&name))
}

fn shard_orders() -> impl TypedValueParser<Value = ShardOrder> {
    PossibleValuesParser::new(["c", "f", "morton", "arrival"])
        .try_map(|name| ShardOrder::parse(&name).map_err(|error| error.to_string()))
}

fn listed_views(list: &str) -> Result<ListedViews, String> {
    match list {
        "none" => Ok(ListedViews::None),
        "all" => Ok(ListedViews::All),
        list => {
            list.split([',', '+']).map(view_format).collect::<Result<_, _>>().map(ListedViews::Of)
        }
    }
}

fn view_format(name: &str) -> Result<&'static Format, String> {
    Format::of_extension(name).ok_or_else(|| {
        let names: Vec<&str> = FORMATS.iter().map(|format| format.extension).collect();
        format!("unknown format {name:?}: expected none, all, or a list of {}", names.join(", "))
    })
}

fn codecs(text: &str) -> Result<Codecs, String> {
    Policy::parse_codecs(text).map_err(|error| error.to_string())
}

/// Parses `--shards` as in a mount, and also a shape without brackets.
fn shards(text: &str) -> Result<Shards, String> {
    let shape = if text.contains(',') && !text.starts_with('[') {
        format!("[{text}]")
    } else {
        text.to_owned()
    };
    Policy::parse_shards(&shape).map_err(|error| error.to_string())
}

/// Parses lengths along each dimension, `365,721,1440`, or `scalar`.
fn lengths(text: &str) -> Result<Lengths, String> {
    if matches!(text, "scalar" | "[]") {
        return Ok(Vec::new());
    }
    let wrong = || "expected integers such as 365,721,1440, or `scalar`".to_owned();
    let plain = text.trim_start_matches('[').trim_end_matches(']');
    plain.split(',').map(|len| len.trim().parse().map_err(|_| wrong())).collect()
}

fn region(text: &str) -> Result<Region, String> {
    Region::parse(text).map_err(|error| error.to_string())
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number >= 0.0 && number.is_finite());
    number.ok_or_else(|| "expected a number of at least 0, such as 1e-6".to_owned())
}

/// Parses a part of all chunks: `5%`, `0.1%`, or a count.
fn sample(text: &str) -> Result<Chunks, String> {
    let wrong = || "expected a share such as 5% or 0.1%, or a number of chunks".to_owned();
    let Some(share) = text.strip_suffix('%') else {
        return text.parse().map(Chunks::Count).map_err(|_| wrong());
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
    per_million.filter(|all| *all <= 1_000_000).map(Chunks::PerMillion).ok_or_else(wrong)
}

fn node_path(text: &str) -> Result<NodePath, String> {
    if text.is_empty() {
        return Err("expected the path of a node, such as climate/t2m".to_owned());
    }
    NodePath::parse(text.trim_matches('/')).map_err(|error| error.to_string())
}

fn attributes(text: &str) -> Result<Object, String> {
    wanted::attributes(text).map_err(|error| error.to_string())
}

/// Returns a number of bytes: `64M`, `2G`, `1000`.
pub fn size(text: &str) -> Result<u64, String> {
    policy::size(text).map_err(|error| error.to_string())
}

/// Returns a time: `1s`, `500ms`, `2m`, `0.5`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match text.get(digits.len()..).unwrap_or_default() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("expected a time such as 500ms, 5s, 2m or 1h".to_owned()),
    };
    let number: f64 =
        digits.parse().map_err(|_| "expected a time such as 500ms, 5s, 2m or 1h".to_owned())?;
    Duration::try_from_secs_f64(number * scale).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        let args = std::iter::once(&"zarrfs").chain(args).map(OsString::from);
        Args::try_parse_from(normalize(args))
    }

    #[test]
    fn two_paths_are_a_mount() {
        for args in [&["a.zarr", "mnt"][..], &["-f", "a.zarr", "mnt"], &["mount", "a.zarr", "mnt"]]
        {
            let Ok(Args { command: Command::Mount(mount) }) = parse(args) else {
                panic!("{args:?} is no mount");
            };
            assert_eq!(mount.source.to_str(), Some("a.zarr"));
        }
        assert!(parse(&["frobnicate"]).is_err());
        assert!(parse(&[]).is_err());
    }

    #[test]
    fn a_word_that_is_no_command_is_refused_and_a_path_without_a_mountpoint_needs_one() {
        let refusal = |args: &[&str]| parse(args).expect_err("refused").to_string();
        assert!(refusal(&["ls", "a.zarr"]).contains("unrecognized subcommand 'ls'"));
        assert!(refusal(&["unmount", "mnt"]).contains("'umount'"));
        assert!(refusal(&["a.zarr"]).contains("<MOUNTPOINT>"));
        assert!(parse(&["new", "mnt", "--create"]).is_ok());
    }

    #[test]
    fn codecs_and_shards_are_given_to_the_policy() {
        let mount = |more: &[&str]| match parse(&[&["a.zarr", "mnt"], more].concat()) {
            Ok(Args { command: Command::Mount(mount) }) => Ok((mount.codecs, mount.shards)),
            Ok(other) => panic!("{other:?} is no mount"),
            Err(error) => Err(error.to_string()),
        };
        let Policy { codecs, shards } = Policy::default();
        assert_eq!(mount(&[]), Ok((codecs, shards)));
        let (codecs, shards) = mount(&["--codecs", "blosc,crc32c", "--shards", "16M"]).expect("ok");
        let names: Vec<_> = codecs.iter().map(|codec| codec.name.as_str()).collect();
        assert_eq!((names, shards), (vec!["blosc", "crc32c"], Shards::Target(16 << 20)));
        assert!(mount(&["--codecs=deflate"]).expect_err("unknown").contains("lz4, lzma"));
        assert!(mount(&["--shards=big"]).expect_err("unknown").contains("a size such as 16M"));
    }

    #[test]
    fn optional_values_may_follow_their_option_as_a_word() {
        let info = |args: &[&str]| match parse(&[&["info"], args].concat()) {
            Ok(Args { command: Command::Info(info) }) => {
                (info.source.to_str().map(str::to_owned), info.plot, info.sample)
            }
            other => panic!("{other:?} is no info"),
        };
        let source = || Some("a.zarr".to_owned());
        let region = Some(Plot::Of(Region::parse("0,:,-5:").expect("a region")));
        assert_eq!(info(&["a.zarr", "--plot", "[0,:,-5:]"]), (source(), region.clone(), None));
        assert_eq!(info(&["--plot=0,:,-5:", "a.zarr"]), (source(), region, None));
        assert_eq!(info(&["--plot", "a.zarr"]), (source(), Some(Plot::Usual), None));
        let sample = |sample| (source(), None, Some(sample));
        assert_eq!(info(&["--stats", "--sample", "a.zarr"]), sample(Sample::Percent(5.0)));
        assert_eq!(info(&["--stats", "--sample", "100", "a.zarr"]), sample(Sample::Chunks(100)));
        assert_eq!(info(&["a.zarr", "--stats", "--sample", "2.5%"]), sample(Sample::Percent(2.5)));
        assert!(parse(&["info", "a.zarr", "--stats", "--sample=0"]).is_err());
        assert!(parse(&["info", "a.zarr", "--sample"]).is_err());
    }

    #[test]
    fn sizes_and_times_are_read_as_people_write_them() {
        assert_eq!((size("64M"), size("2GiB"), size("10")), (Ok(64 << 20), Ok(2 << 30), Ok(10)));
        assert!(size("lots").is_err() && size("").is_err() && size("99999999T").is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("soon").is_err() && duration("-1s").is_err());
    }
}
