//! The command line: commands, options and their help.
//!
//! Each command and its options are a type in one of the modules below.

mod check;
mod describe;
mod extras;
mod import;
pub mod limits;
mod make;
mod mount;
mod normalize;
pub mod pages;
#[cfg(feature = "serve")]
mod serve;
pub mod values;

pub use check::{Check, Diff};
use clap::{Parser, Subcommand};
pub use describe::{Cat, Info, Plot, SampleShare, Tree};
#[cfg(feature = "remote")]
pub use extras::Uploads;
pub use extras::{Completions, Demo, Man};
pub use import::Import;
pub use make::{Convert, Create};
pub use mount::{
    AutoUnmount, Durability, Exec, Mount, MountOptions, ShardWriteArg, Status, Umount, Writeback,
};
pub use normalize::normalize;
#[cfg(feature = "serve")]
pub use serve::Serve;

use limits::{NewLimit, limit};

const EXAMPLES: &str = "\
Examples:
  zarrfs demo                           create a sample hierarchy, mount it, show it
  zarrfs mount climate.zarr /mnt/zarr   mount; every chunk is a file below /mnt/zarr
  zarrfs climate.zarr /mnt/zarr         short for `zarrfs mount`
  zarrfs status                         list the mounts, pending changes and errors
  zarrfs umount /mnt/zarr               store pending changes, and unmount
  zarrfs exec climate.zarr -- ncdump -h {}/__root__.nc
                                        mount for one command, without root
  zarrfs serve climate.zarr             show every file in a browser, and to programs over HTTP
  zarrfs tree climate.zarr              list all groups and arrays
  zarrfs info climate.zarr/t2m          describe one array: shape, chunks, shards, codecs
  zarrfs cat climate.zarr/t2m --as npy > t2m.npy
                                        write one array as a file of another format
  zarrfs create new.zarr/x --shape 365,721,1440 --dtype float32
                                        create an array, and the hierarchy if it is missing
  zarrfs check climate.zarr             check metadata, names and every chunk
  zarrfs convert old.zarr new.zarr      copy into another dialect, codecs, chunks or shards
  zarrfs import 2024-*.nc climate.zarr --append-dim time
                                        append files of netCDF and other formats
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
    /// Change a limit, as in dimensions=100. `--limit help` lists all limits with their defaults.
    #[arg(long = "limit", global = true, value_name = "NAME=VALUE", value_parser = limit)]
    pub limits: Vec<NewLimit>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Mount(Mount),
    Umount(Umount),
    Exec(Exec),
    Status(Status),
    Tree(Tree),
    Info(Info),
    Cat(Cat),
    Check(Check),
    Create(Create),
    Convert(Convert),
    Import(Import),
    Diff(Diff),
    #[cfg(feature = "serve")]
    Serve(Serve),
    Demo(Demo),
    Completions(Completions),
    Man(Man),
    #[cfg(feature = "remote")]
    Uploads(Uploads),
    #[command(hide = true)]
    AutoUnmount(AutoUnmount),
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;

    use super::describe::Plot;
    use super::*;
    use crate::metadata::Shards;
    use crate::view::region::Region;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        let args = std::iter::once(&"zarrfs").chain(args).map(OsString::from);
        Args::try_parse_from(normalize(args.collect(), &Args::command()))
    }

    #[test]
    fn two_paths_are_a_mount() {
        for args in [&["a.zarr", "mnt"][..], &["-f", "a.zarr", "mnt"], &["mount", "a.zarr", "mnt"]]
        {
            let Ok(Args { command: Command::Mount(mount), .. }) = parse(args) else {
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
            Ok(Args { command: Command::Mount(mount), .. }) => {
                Ok((mount.options.write.codecs, mount.options.write.shards))
            }
            Ok(other) => panic!("{other:?} is no mount"),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(mount(&[]), Ok((None, None)));
        let (codecs, shards) = mount(&["--codecs", "blosc,crc32c", "--shards", "16M"]).expect("ok");
        let codecs = codecs.expect("given");
        let names: Vec<_> = codecs.iter().map(|codec| codec.name.as_str()).collect();
        assert_eq!((names, shards), (vec!["blosc", "crc32c"], Some(Shards::Target(16 << 20))));
        assert!(mount(&["--codecs=deflate"]).expect_err("unknown").contains("lz4, lzma"));
        assert!(mount(&["--shards=big"]).expect_err("unknown").contains("a size such as 16M"));
    }

    #[test]
    fn optional_values_may_follow_their_option_as_a_word() {
        let info = |args: &[&str]| match parse(&[&["info"], args].concat()) {
            Ok(Args { command: Command::Info(info), .. }) => {
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
        assert_eq!(info(&["--stats", "--sample", "a.zarr"]), sample(SampleShare::Percent(5.0)));
        assert_eq!(
            info(&["--stats", "--sample", "100", "a.zarr"]),
            sample(SampleShare::Chunks(100))
        );
        assert_eq!(
            info(&["a.zarr", "--stats", "--sample", "2.5%"]),
            sample(SampleShare::Percent(2.5))
        );
        assert!(parse(&["info", "a.zarr", "--stats", "--sample=0"]).is_err());
        assert!(parse(&["info", "a.zarr", "--sample"]).is_err());
    }
}
