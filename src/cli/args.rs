//! What can be typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use log::LevelFilter;

use crate::array::ShardOrder;
use crate::codec::CodecSpec;
use crate::json::Object;
use crate::metadata::{Dialect, NodePath, Policy, Shards, policy, wanted};
use crate::vfs::{Form, ListedViews};
use crate::view::{FORMATS, Format};

const EXAMPLES: &str = "\
Examples:
  zarrfs demo                           make a sample hierarchy, mount it, look around
  zarrfs mount climate.zarr /mnt/zarr   mount; every chunk is a file below /mnt/zarr
  zarrfs climate.zarr /mnt/zarr         the same
  zarrfs umount /mnt/zarr               store what waits, and unmount
  zarrfs tree climate.zarr              the hierarchy at a glance
  zarrfs info climate.zarr/t2m          one array: shape, chunks, shards, codecs
  zarrfs cat climate.zarr/t2m --as npy > t2m.npy
                                        one array as a file of another format
  zarrfs create new.zarr/x --shape 365,721,1440 --dtype float32
                                        make an array, and the hierarchy where there is none
  zarrfs convert old.zarr new.zarr      copy into another dialect, codecs, chunks or shards

Exit codes: 0 good; 1 it did not work; 2 wrong usage; 3 unmounted, and what is not stored is in --rescue DIR.";

/// Mounts a Zarr hierarchy as a file system: groups are directories, arrays are directories that hold
/// their metadata as JSON and every chunk as a plain, decoded file.
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
    Tree(Tree),
    Info(Info),
    Cat(Cat),
    Create(Create),
    Convert(Convert),
    Demo(Demo),
}

/// Mount a hierarchy; returns when the file system answers.
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
#[command(after_help = "\
While it is mounted, in MOUNTPOINT:
  zarr.json            the metadata of a group or array; describes the files beside it
  c/0/3                a chunk: its elements, little endian, C order, nothing else
  .zarrfs/errors       what went wrong, in words (not listed: open it by name)
  .zarrfs/stored/...   the metadata documents as the store has them
  .zarrfs/stats        counters
  .zarrfs/views/...    which files of other formats a node is, and why not of all
  X.npy beside X       the array X as such a file (not listed; see --views)
The elements are written back through the codecs when a file is closed.
Directories that are made become groups; a zarr.json that is written makes a group or an array,
stored as --codecs and --shards say (give libraries no compressor: compressors=None).")]
pub struct Mount {
    /// The hierarchy, or a group or array in one: its directory, or HIERARCHY#NODE.
    pub source: PathBuf,
    /// An empty directory to mount it on.
    pub mountpoint: PathBuf,
    /// Stay in the foreground; Ctrl-C stores what waits and unmounts.
    #[arg(short, long)]
    pub foreground: bool,
    /// Mount options, separated by commas, as in fstab: `ro`, `rw`, `allow_other`, `allow_root`, `nonempty`,
    /// `direct_io` (for programs that read in megabytes: past the page cache), `nopassthrough` (the kernel reads no
    /// chunk by itself), and every long option below without its dashes (cache-size=1G).
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// What the mount shows: zarr, a hierarchy of Zarr 3, or zarr2, one of Zarr 2 (.zarray, .zgroup, .zattrs,
    /// chunks called 0.0), or nothing but the files of one format (npy, nc, ...; see --views).
    #[arg(long = "as", value_name = "FORMAT", value_parser = form, default_value = "zarr")]
    pub form: Form,
    /// Which files of other formats are listed beside their nodes (t2m.npy beside t2m): none, all, or formats separated
    /// by commas, in -o by + (npy+nc). All can be opened by name; .zarrfs/views/NODE says which there are.
    #[arg(long, value_name = "LIST", value_parser = listed_views, default_value = "none")]
    pub views: ListedViews,
    /// The dialect of the hierarchy, where it should not be found out: v3, v2, n5, or a draft: d2019-05,
    /// d2019-06, d2020-09, d2020-10, d2022-11, d2022-12, d2023-02.
    #[arg(long, value_name = "DIALECT", value_parser = dialect)]
    pub from: Option<Dialect>,
    /// Start an empty hierarchy where SOURCE is missing or an empty directory.
    #[arg(long)]
    pub create: bool,
    /// The dialect of the hierarchy that --create starts: v3, v2, n5, d2020-10, d2020-09, d2019-06 or d2019-05.
    #[arg(long, value_name = "DIALECT", value_parser = dialect, default_value = "v3", requires = "create")]
    pub format: Dialect,
    /// How new arrays are stored whose documents name no compressor: none, codecs separated by commas
    /// (blosc,crc32c), or a JSON list of v3 codecs; in -o one codec alone. There are blosc, bz2, crc32c, gzip,
    /// lz4, lzma, shuffle, zlib and zstd.
    #[arg(long, value_name = "LIST", value_parser = codecs, default_value = "zstd")]
    pub codecs: Codecs,
    /// Which chunks of such arrays are stored together: none, as many as make SIZE decoded bytes (16M), or
    /// those in a box of this shape, in arrays of as many dimensions ([1024,1024]).
    #[arg(long, value_name = "SIZE|SHAPE", value_parser = Policy::parse_shards, default_value = "none")]
    pub shards: Shards,
    /// The order of chunks in a shard that is written: c, f, morton, or arrival.
    #[arg(long, value_name = "ORDER", value_parser = shard_order, default_value = "c")]
    pub shard_order: ShardOrder,
    /// How a shard is written of which some chunks do not change: rewrite, all of it anew, or append, the changed
    /// chunks behind the old ones, whose bytes file systems with reflinks (XFS, Btrfs) share; where more than half of
    /// it would be of no use any more it is rewritten.
    #[arg(long, value_enum, default_value = "rewrite")]
    pub shard_write: ShardWriteArg,
    /// Memory for decoded chunks.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    pub cache_size: u64,
    /// Memory for what was written and is not stored yet; more is refused with ENOMEM.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub dirty_limit: u64,
    /// The largest decoded chunk, and the largest ordinary file, that is read or written.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub max_chunk_size: u64,
    /// How long names, sizes and metadata are taken to be as they were.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub metadata_ttl: Duration,
    /// Nobody else changes the hierarchy: keep names, sizes and metadata for ever.
    #[arg(long, conflicts_with = "metadata_ttl")]
    pub immutable: bool,
    /// Erase a chunk that equals the fill value bit for bit instead of storing it.
    #[arg(long)]
    pub skip_fill_chunks: bool,
    /// Which chunks may wait to be stored after they were closed: delay, the inner chunks of a shard, for the others of
    /// it (until all are there, fsync, unmount, or --writeback-delay); all, every chunk, which is stored while its writer
    /// goes on; sync, none. Documents are stored when they are closed.
    #[arg(long, value_enum, default_value = "delay")]
    pub writeback: Writeback,
    /// How long a chunk may wait for the others of its shard, a scratch file live without being stored, and a
    /// new directory without becoming a group.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub writeback_delay: Duration,
    /// Whether new bytes are on the disk before they take the place of old ones: `always`, so that a
    /// power cut never leaves a torn chunk, or only when a program calls `fsync`.
    #[arg(long, value_enum, default_value = "always")]
    pub durability: Durability,
    /// Where to write what the store does not take at the end (a full disk): each file by its path in the mount,
    /// chunks decoded [default: it is named in the log, and lost].
    #[arg(long, value_name = "DIR")]
    pub rescue: Option<PathBuf>,
    /// Threads that decode and store [default: the number of processors and 2, at least 4].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// What is logged: off, error, warn, info or debug.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub log_level: LevelFilter,
    /// Where it is logged [default: standard error, and nowhere in the background].
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// The mount is a child that tells its parent when it answers.
    #[arg(long, hide = true)]
    pub daemon: bool,
}

/// Unmount, and return when everything is stored and the daemon has gone.
#[derive(Debug, clap::Args)]
pub struct Umount {
    /// Where a hierarchy is mounted.
    pub mountpoint: PathBuf,
    /// Unmount also where not everything can be stored, and write the rest here: each file by its path in the mount,
    /// chunks decoded.
    #[arg(long, value_name = "DIR")]
    pub rescue: Option<PathBuf>,
}

/// Show the hierarchy, as people would draw it.
#[derive(Debug, clap::Args)]
pub struct Tree {
    /// The hierarchy: a directory, or a node in one.
    pub source: PathBuf,
    /// The dialect, where it should not be found out: v3 or d2020-10.
    #[arg(long, value_name = "DIALECT", value_parser = dialect)]
    pub from: Option<Dialect>,
}

/// Show one node: shape, data type, chunks, shards, codecs, sizes.
#[derive(Debug, clap::Args)]
pub struct Info {
    /// The hierarchy, or a node in it: climate.zarr/t2m.
    pub source: PathBuf,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// The dialect, where it should not be found out: v3 or d2020-10.
    #[arg(long, value_name = "DIALECT", value_parser = dialect)]
    pub from: Option<Dialect>,
}

/// Write a node to standard output as a file of another format.
#[derive(Debug, clap::Args)]
pub struct Cat {
    /// The node: climate.zarr/t2m.
    pub source: PathBuf,
    /// The format; zarrfs info says which a node has, and why not the others.
    #[arg(long = "as", value_name = "FORMAT", value_parser = view_format)]
    pub format: &'static Format,
    /// Memory for decoded chunks.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    pub cache_size: u64,
    /// The dialect, where it should not be found out: v3 or d2020-10.
    #[arg(long, value_name = "DIALECT", value_parser = dialect)]
    pub from: Option<Dialect>,
}

/// Make an array, or without --shape a group, in a hierarchy or as a new one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
PATH is a node in a hierarchy that exists, which is made in that hierarchy's dialect, with the groups above
it; or the first node of a new one, which begins at the first name of PATH that ends in .zarr or .n5, else at
PATH itself.

  zarrfs create new.zarr --format n5
  zarrfs create new.zarr/temp --shape 365,721,1440 --dtype float32 --chunks 1,721,1440 --shards 64M \\
      --fill NaN --attrs '{\"units\": \"K\"}' --dimensions time,lat,lon")]
pub struct Create {
    /// Where to make it.
    pub path: PathBuf,
    /// The dialect of a new hierarchy: v3, v2, n5, d2020-10, d2020-09, d2019-06 or d2019-05 [default: v3].
    #[arg(long, value_name = "DIALECT", value_parser = dialect)]
    pub format: Option<Dialect>,
    /// Make an array of this shape: 365,721,1440; `scalar` for one without dimensions.
    #[arg(long, value_name = "LENGTHS", value_parser = lengths, requires = "dtype")]
    pub shape: Option<Lengths>,
    /// The data type: float32, int16, bool, string, ..., or its JSON in Zarr 3.
    #[arg(long, value_name = "TYPE", requires = "shape")]
    pub dtype: Option<String>,
    /// The shape of chunks [default: about 1 MiB].
    #[arg(long, value_name = "LENGTHS", value_parser = lengths, requires = "shape")]
    pub chunks: Option<Lengths>,
    /// Which chunks are stored together: none, as many as make SIZE decoded bytes (16M), or those in a box of
    /// this shape (1024,1024).
    #[arg(long, value_name = "SIZE|SHAPE", value_parser = shards, requires = "shape")]
    pub shards: Option<Shards>,
    /// How chunks are encoded: none, codecs separated by commas (blosc,crc32c), or a JSON list of v3 codecs
    /// [default: zstd, or what the dialect has instead].
    #[arg(long, value_name = "LIST", value_parser = codecs, requires = "shape")]
    pub codecs: Option<Codecs>,
    /// The value of elements in chunks that are not stored: a number, true, NaN, JSON [default: that of the type].
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true, requires = "shape")]
    pub fill: Option<String>,
    /// The attributes: a JSON object.
    #[arg(long, value_name = "JSON", value_parser = attributes)]
    pub attrs: Option<Object>,
    /// The names of the dimensions: time,lat,lon.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "shape")]
    pub dimensions: Vec<String>,
}

/// Copy a hierarchy, or a node and all below it, into another dialect, other codecs, chunks or shards.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What the target cannot hold is said before anything is stored. All chunks are stored first and all documents
last; until it is whole, DEST has a file .zarrfs/convert and no nodes. After an interruption the same command
goes on where it ended. If SOURCE changes while it is converted, the command fails and says where; the same command
then compares what is there. Encoded chunks are copied as they are where neither their shape nor their codecs change.
Ordinary files that lie among the nodes are not copied. DEST may lie in a mount, which then stores it in its own way.

  zarrfs convert old.zarr new.zarr
  zarrfs convert climate.zarr shards.zarr --shards 64M --codecs blosc --verify
  zarrfs convert climate.zarr/t2m t2m.n5 --format n5 --chunks 64,64,64")]
pub struct Convert {
    /// The hierarchy: a directory, or a node in one.
    pub source: PathBuf,
    /// The new hierarchy: a directory that is missing or empty, or what an interruption has left.
    pub dest: PathBuf,
    /// The dialect of SOURCE, where it should not be found out.
    #[arg(long, value_name = "DIALECT", value_parser = dialect)]
    pub from: Option<Dialect>,
    /// The dialect of DEST: v3, v2, n5, d2020-10, d2020-09, d2019-06 or d2019-05.
    #[arg(long, value_name = "DIALECT", value_parser = dialect, default_value = "v3")]
    pub format: Dialect,
    /// How chunks are encoded, as --codecs of mount has it [default: as in SOURCE, or if DEST has no such codecs
    /// zstd, gzip or none].
    #[arg(long, value_name = "LIST", value_parser = codecs)]
    pub codecs: Option<Codecs>,
    /// The shape of chunks in arrays of as many dimensions: 64,64,64 [default: as in SOURCE].
    #[arg(long, value_name = "LENGTHS", value_parser = lengths)]
    pub chunks: Option<Lengths>,
    /// Which chunks are stored together: none, as many as make SIZE decoded bytes (16M), or those in a box of
    /// this shape (1024,1024) [default: as in SOURCE, or none].
    #[arg(long, value_name = "SIZE|SHAPE", value_parser = shards)]
    pub shards: Option<Shards>,
    /// Only this node, all below it, and the groups above it; can be given several times.
    #[arg(long, value_name = "PATH", value_parser = node_path)]
    pub only: Vec<NodePath>,
    /// Leave out what DEST cannot hold, instead of doing nothing.
    #[arg(long)]
    pub skip_unsupported: bool,
    /// Do not store chunks that SOURCE does not have, where DEST has no fill value (Zarr 2 with named dimensions):
    /// zarr-python 2 reads anything at all from them then.
    #[arg(long)]
    pub skip_fill_chunks: bool,
    /// Read every chunk back and compare it with the source.
    #[arg(long)]
    pub verify: bool,
    /// Chunks that are worked on at a time [default: the number of processors].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Memory for decoded chunks of SOURCE that several chunks of DEST are made of.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "512M")]
    pub cache_size: u64,
}

/// Make a sample hierarchy, mount it, and show what can be done with it.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Where to make it: a directory that is missing or empty.
    #[arg(default_value = "zarrfs-demo")]
    pub dir: PathBuf,
}

/// The codecs of one `--codecs`: clap takes a plain `Vec` for an option that is given several times.
pub type Codecs = Vec<CodecSpec>;

/// Lengths along each dimension, for the same reason.
pub type Lengths = Vec<u64>;

/// Which chunks may wait to be stored after they were closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Writeback {
    /// The inner chunks of shards.
    Delay,
    /// All.
    All,
    /// None.
    Sync,
}

/// How a shard is written of which some chunks do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShardWriteArg {
    /// All of it anew.
    Rewrite,
    /// The changed chunks behind the old ones.
    Append,
}

/// When bytes are on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Before they take the place of old ones.
    Always,
    /// When a program calls `fsync`.
    Fsync,
}

/// The words that are commands: anything else that comes first is the source of a mount.
const COMMANDS: &[&str] =
    &["mount", "umount", "tree", "info", "cat", "create", "convert", "demo", "help"];

/// Makes `zarrfs SOURCE MOUNTPOINT` the mount that it means.
pub fn normalize(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let is_command = |arg: &OsString| arg.to_str().is_some_and(|arg| COMMANDS.contains(&arg));
    let is_option = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
    let global = |arg: &OsString| {
        arg.to_str().is_some_and(|arg| matches!(arg, "-h" | "--help" | "-V" | "--version"))
    };
    let positional = args.iter().skip(1).filter(|arg| !is_option(arg)).count();
    match args.get(1) {
        Some(first) if is_command(first) || global(first) || positional < 2 => {}
        Some(_) => args.insert(1, "mount".into()),
        None => {}
    }
    args
}

fn dialect(name: &str) -> Result<Dialect, String> {
    Dialect::parse_name(name).ok_or_else(|| {
        let names: Vec<&str> = Dialect::all().iter().map(Dialect::name).collect();
        format!("there are {}", names.join(", "))
    })
}

/// What a mount shows.
fn form(name: &str) -> Result<Form, String> {
    match name {
        "zarr" => Ok(Form::Zarr3),
        "zarr2" => Ok(Form::Zarr2),
        name => view_format(name)
            .map(Form::View)
            .map_err(|others| format!("there are zarr and zarr2; for files alone {others}")),
    }
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
        format!("there are {}", names.join(", "))
    })
}

fn shard_order(name: &str) -> Result<ShardOrder, String> {
    ShardOrder::parse(name).map_err(|error| error.to_string())
}

fn codecs(text: &str) -> Result<Codecs, String> {
    Policy::parse_codecs(text).map_err(|error| error.to_string())
}

/// Shards as `--shards` of a mount has them, and a shape without brackets.
fn shards(text: &str) -> Result<Shards, String> {
    let shape = if text.contains(',') && !text.starts_with('[') {
        format!("[{text}]")
    } else {
        text.to_owned()
    };
    Policy::parse_shards(&shape).map_err(|error| error.to_string())
}

/// Lengths along each dimension: `365,721,1440`, and none of a scalar.
fn lengths(text: &str) -> Result<Lengths, String> {
    if matches!(text, "scalar" | "[]") {
        return Ok(Vec::new());
    }
    let wrong = || format!("{text:?} is no list of lengths like 365,721,1440, nor scalar");
    let plain = text.trim_start_matches('[').trim_end_matches(']');
    plain.split(',').map(|len| len.trim().parse().map_err(|_| wrong())).collect()
}

fn node_path(text: &str) -> Result<NodePath, String> {
    if text.is_empty() {
        return Err("a node is named by its path, like climate/t2m".to_owned());
    }
    NodePath::parse(text.trim_matches('/')).map_err(|error| error.to_string())
}

fn attributes(text: &str) -> Result<Object, String> {
    wanted::attributes(text).map_err(|error| error.to_string())
}

/// A number of bytes: `64M`, `2G`, `1000`.
fn size(text: &str) -> Result<u64, String> {
    policy::size(text).map_err(|error| error.to_string())
}

/// A time: `1s`, `500ms`, `2m`, `0.5`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match text.get(digits.len()..).unwrap_or_default() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is a number with ms, s, m or h".to_owned()),
    };
    let number: f64 =
        digits.parse().map_err(|_| "a time is a number with ms, s, m or h".to_owned())?;
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
        assert!(mount(&["--shards=big"]).expect_err("unknown").contains("a size like 16M"));
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
