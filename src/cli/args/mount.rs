//! Commands for mounts.
#![expect(clippy::doc_markdown, reason = "these comments are printed as help, with their marks")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use log::LevelFilter;

use super::values::{
    Codecs, codecs, dialects, duration, form_values, listed_views, new_dialects, region,
    shard_orders, size,
};
use crate::array::ShardOrder;
#[cfg(feature = "serve")]
use crate::cli::failure::{Failure, failed};
use crate::cli::open::remote::Remote;
use crate::metadata::{Dialect, Policy, Shards};
use crate::vfs::{ListedViews, Presentation};
use crate::view::region::Region;

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
  .zarrfs/refused      files that were refused when a program closed them, and why
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
    /// s3://bucket/climate.zarr. Or references: icechunk+DIR@BRANCH, kerchunk+FILE.json.
    /// Or a file of another format: era5.nc, scan.nii, plate.tif.
    pub source: PathBuf,
    /// The directory to mount it on; it must exist and be empty.
    pub mountpoint: PathBuf,
    /// Stay in the foreground. Ctrl-C stores pending changes and unmounts.
    #[arg(short, long)]
    pub foreground: bool,
    /// With --foreground: also unmount when standard input ends. For programs that start zarrfs and
    /// hold the other end of a pipe: the mount ends with them, even if they are killed.
    #[arg(long, requires = "foreground")]
    pub until_eof: bool,
    #[command(flatten)]
    pub options: MountOptions,
    /// Run as a child process that reports to its parent when the mount answers. The value is the
    /// mountpoint without links, by which other processes find this one.
    #[arg(long, hide = true, value_name = "MOUNTPOINT")]
    pub daemon: Option<PathBuf>,
    /// Check everything, but mount nothing.
    #[arg(long, hide = true)]
    pub fake: bool,
    /// Ignore unknown options in -o.
    #[arg(long, hide = true)]
    pub sloppy: bool,
    /// Print that the source is mounted.
    #[arg(long, hide = true)]
    pub verbose: bool,
}

/// The options that `mount` and `exec` share.
#[derive(Debug, Clone, clap::Args)]
pub struct MountOptions {
    /// Mount options as in fstab, separated by commas.
    ///
    /// These are `ro`, `rw`, `allow_other`, `allow_root`, `nonempty`, `direct_io` (bypass the page
    /// cache; faster for programs that read in megabytes), `nopassthrough` (disable FUSE
    /// passthrough), `uid=N` and `gid=N` (the owner of all files), `umask=M` (the permissions that
    /// no file has, in octal), `quiet` (ignore chmod and chown instead of refusing them),
    /// `auto_unmount` (unmount if zarrfs is killed), `fsname=NAME` and `subtype=NAME` (source and
    /// type in the mount table), and every long option below without its dashes, such as
    /// `cache-size=1G`. Options that only fstab needs (`_netdev`, `x-*`, ...) have no effect.
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub words: Vec<String>,
    /// Append a line of JSON to FILE for each read: time, path, offset, length, how it was answered
    /// (hit, decode or unknown), microseconds. Reads that the kernel answers itself have no line;
    /// -o nopassthrough and -o direct_io make all reads visible.
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    #[command(flatten)]
    pub write: WriteOptions,
    #[command(flatten)]
    pub tree: TreeOptions,
}

impl MountOptions {
    /// Returns the options with the files that the daemon writes itself.
    pub fn outputs(&self) -> Vec<(&'static str, Option<&Path>)> {
        let mut outputs = vec![
            ("--log-file", self.tree.log_file.as_deref()),
            ("--access-log", self.access_log.as_deref()),
            ("--rescue", self.write.rescue.as_deref()),
        ];
        outputs.extend(self.tree.remote.outputs());
        outputs
    }
}

#[cfg(feature = "serve")]
impl MountOptions {
    /// Returns these options of a tree, and the defaults for writing.
    pub fn of_tree(tree: TreeOptions) -> Result<Self, Failure> {
        use clap::{Args as _, FromArgMatches as _};
        let write = WriteOptions::augment_args(clap::Command::new("write"));
        let write = write.try_get_matches_from(["write"]);
        let write = write.and_then(|typed| WriteOptions::from_arg_matches(&typed));
        let write = write.map_err(|error| failed(error.to_string()))?;
        Ok(Self { words: Vec::new(), access_log: None, write, tree })
    }
}

/// The options for the tree of files, also of one that is only read.
#[derive(Debug, Clone, clap::Args)]
pub struct TreeOptions {
    /// The form of the mount: a Zarr hierarchy, or a tree of files of one format.
    #[arg(long = "as", value_name = "FORMAT", value_parser = form_values(), default_value = "zarr")]
    pub form: Presentation,
    /// Formats whose files are listed beside their nodes, such as t2m.npy beside t2m: `none`,
    /// `all`, or formats separated by commas (in -o separate them by +, as in `-o views=npy+nc`).
    ///
    /// Files of the other formats can be opened by name. `.zarrfs/views/NODE` says which formats a
    /// node (group or array) has.
    #[arg(long, value_name = "LIST", value_parser = listed_views, default_value = "none")]
    pub views: ListedViews,
    /// Show only a part of SOURCE, read-only: REGION is as in `zarrfs cat --region`, such as
    /// lat=40:50,lon=-10:30.
    ///
    /// The part is fixed when the mount begins: arrays that grow later do not grow in it. In `-o`,
    /// `region` is that of a bucket.
    #[arg(long, value_name = "REGION", value_parser = region, allow_hyphen_values = true)]
    pub region: Option<Region>,
    /// Coordinate system of OME-Zarr 0.6 images in files of other formats. An image that does not
    /// have it keeps its own.
    #[arg(long, value_name = "NAME")]
    pub coordinate_system: Option<String>,
    /// Dialect of the hierarchy: v3 or v2 (Zarr 3 or 2), n5, or a draft of Zarr 3 such as d2020-10
    /// [default: detect].
    #[arg(long, value_name = "DIALECT", value_parser = dialects())]
    pub from: Option<Dialect>,
    /// Memory for decoded chunks.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    pub cache_size: u64,
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
    /// Read each metadata file. Otherwise a read-only mount of a URL uses consolidated metadata,
    /// which may be outdated if a program that does not update them changed the hierarchy.
    #[arg(long, help_heading = "Options for URLs")]
    pub no_consolidated: bool,
    /// Threads that decode and store [default: the number of processors plus 2, at least 4;
    /// 64 for a URL].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Log level: off, error, warn, info or debug.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub log_level: LevelFilter,
    /// Log file [default: standard error, or the system log for a mount in the background]. SIGHUP
    /// reopens it, and SIGUSR1 logs the counters of .zarrfs/stats.
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    #[command(flatten)]
    pub remote: Remote,
}

/// The options for writing.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Options for writing")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
pub struct WriteOptions {
    /// Create an empty hierarchy if SOURCE is missing or an empty directory.
    #[arg(long)]
    pub create: bool,
    /// Dialect of the hierarchy that --create creates.
    #[arg(long, value_name = "DIALECT", value_parser = new_dialects(), default_value = "v3", requires = "create")]
    pub format: Dialect,
    /// Codecs of new arrays whose metadata name no compressor: `none`, codecs separated by commas
    /// (`blosc,crc32c`), or a JSON list of v3 codecs. With -o, give only one codec. [default: zstd;
    /// an array that is copied within the mount keeps its own]
    ///
    /// Codecs with a short name: blosc, bz2, crc32c, gzip, lz4, lzma, shuffle, zlib, zstd.
    #[arg(long, value_name = "LIST", value_parser = codecs)]
    pub codecs: Option<Codecs>,
    /// Shards of new arrays whose metadata do not specify them: `none` (no shards), a SIZE such as
    /// `16M` (each shard holds at most that many decoded bytes), or a SHAPE such as `[1024,1024]`
    /// (for arrays with as many dimensions). [default: none; an array that is copied within the
    /// mount keeps its own]
    #[arg(long, value_name = "SIZE|SHAPE", value_parser = Policy::parse_shards)]
    pub shards: Option<Shards>,
    /// Turn each new file with the extension of a view into a node: `cp diff.nc` makes the group
    /// `diff`.
    ///
    /// This happens when a program closes the file, or renames a file to that name. A file that
    /// cannot be imported stays an ordinary file. Overwriting the view of an existing node does
    /// not need this option.
    #[arg(long)]
    pub import: bool,
    /// Order of the chunks within a shard when zarrfs writes it: `c` (last index varies fastest),
    /// `f` (first index varies fastest), `morton` (Z-order curve) or `arrival` (as they were
    /// written).
    #[arg(long, value_name = "ORDER", value_parser = shard_orders(), default_value = "c")]
    pub shard_order: ShardOrder,
    /// How to update a shard if only some of its chunks change.
    #[arg(long, value_name = "HOW", value_enum, default_value = "rewrite")]
    pub shard_write: ShardWriteArg,
    /// Memory for changes that are not stored yet. If they exceed it, writes fail with ENOMEM.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub dirty_limit: u64,
    /// Do not store a chunk whose elements all equal the fill value bit for bit; erase it instead.
    #[arg(long)]
    pub skip_fill_chunks: bool,
    /// Store encoded chunks that programs write without decoding them first. This is faster, also
    /// because the kernel can write them without zarrfs, but damage is detected only when a chunk
    /// is read.
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
}

/// Run a command with a hierarchy mounted that only this command sees. Needs neither root nor
/// fusermount3.
///
/// When COMMAND has ended, zarrfs stores pending changes, unmounts, and exits with the exit code of
/// COMMAND: 128+N if signal N ended it, 127 if it was not found, or 1 with the reason if some
/// changes could not be stored.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
  zarrfs exec climate.zarr -- ncdump -h {}/__root__.nc
  zarrfs exec climate.zarr -- sh -c 'cdo timmean $ZARRFS/__root__.nc mean.nc'
  srun zarrfs exec --join climate.zarr -o ro -- ./model {}")]
pub struct Exec {
    /// What to mount, as for `zarrfs mount`.
    pub source: PathBuf,
    /// The directory to mount it on; it must exist and be empty [default: a new directory in
    /// `$XDG_RUNTIME_DIR` or `$TMPDIR`, which zarrfs removes at the end].
    #[arg(short, long, value_name = "DIR")]
    pub mountpoint: Option<PathBuf>,
    /// Share one mount with the commands that the same user and job run on this machine by `exec
    /// --join` with the same SOURCE and options. It ends with the last of them.
    #[arg(long)]
    pub join: bool,
    #[command(flatten)]
    pub options: MountOptions,
    /// The command and its arguments. The mountpoint replaces each `{}` in them, and is in the
    /// environment variable ZARRFS.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
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

/// List the mounts: source, start time, user, pending changes and errors.
#[derive(Debug, clap::Args)]
pub struct Status {
    /// The mountpoints [default: all mounts of the type fuse.zarrfs].
    pub mountpoints: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// End the mount when standard input ends, if its daemon was killed.
#[derive(Debug, clap::Args)]
pub struct AutoUnmount {
    /// The mountpoint.
    pub mountpoint: PathBuf,
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
