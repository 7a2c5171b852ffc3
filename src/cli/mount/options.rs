//! The options in `-o`: flags of the mount, long options, and options that only mount(8) or the
//! kernel needs.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};

use crate::cli::args::limits;
use crate::cli::args::{Args, Command, Exec, Mount, MountOptions};
use crate::cli::failure::Failure;

/// Options of fstab and flags of the kernel that change nothing in a zarrfs mount. `user` and
/// `comment` may have a value.
const IGNORED: &[&str] = &[
    "rw",
    "defaults",
    "nofail",
    "auto",
    "noauto",
    "user",
    "users",
    "nouser",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "_netdev",
    "comment",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "noexec",
    "async",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "silent",
    "loud",
    "default_permissions",
];

/// The flags in `-o`, as opposed to long options.
#[derive(Debug, Default, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of -o")]
pub struct Flags {
    pub read_only: bool,
    pub allow_other: bool,
    pub allow_root: bool,
    pub nonempty: bool,
    pub direct_io: bool,
    pub no_passthrough: bool,
    /// Whether `chmod` and `chown` that the mount refuses have no effect instead.
    pub quiet: bool,
    /// Whether a mount ends when its daemon is killed.
    pub auto_unmount: bool,
    /// The owner of all files.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// The permissions that no file has.
    pub umask: Option<u16>,
    /// The source in the mount table, if it differs from the one that is mounted.
    pub fsname: Option<String>,
    /// The type in the mount table, after `fuse.`.
    pub subtype: Option<String>,
}

impl Flags {
    /// Whether they give the owner or the modes of all nodes, chunks and views.
    pub fn gives_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some() || self.umask.is_some()
    }

    /// Takes one option. Returns false if it is not a flag.
    fn take(&mut self, name: &str, value: Option<&str>) -> Result<bool, String> {
        match (name, value) {
            ("ro", None) => self.read_only = true,
            // In `-o ro,rw` the last one counts, as in mount(8).
            ("rw", None) => self.read_only = false,
            ("allow_other", None) => self.allow_other = true,
            ("allow_root", None) => self.allow_root = true,
            ("nonempty", None) => self.nonempty = true,
            ("direct_io", None) => self.direct_io = true,
            ("nopassthrough", None) => self.no_passthrough = true,
            ("quiet", None) => self.quiet = true,
            ("auto_unmount", None) => self.auto_unmount = true,
            ("uid", value) => self.uid = Some(id(value)?),
            ("gid", value) => self.gid = Some(id(value)?),
            ("umask", value) => self.umask = Some(umask(value)?),
            ("fsname", Some(name)) => self.fsname = Some(name.to_owned()),
            ("subtype", Some(name)) => self.subtype = Some(name.to_owned()),
            ("remount", None) => {
                return Err("a mount keeps its options until it ends; unmount it, and mount it \
                            again with other options"
                    .to_owned());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn id(value: Option<&str>) -> Result<u32, String> {
    let number = value.and_then(|value| value.parse().ok());
    number.ok_or_else(|| "expected a number, as `id` prints it".to_owned())
}

fn umask(value: Option<&str>) -> Result<u16, String> {
    let bits = value.and_then(|value| u16::from_str_radix(value, 8).ok());
    let bits = bits.filter(|bits| *bits <= 0o777);
    bits.ok_or_else(|| "expected an octal number from 0 to 777, such as 022".to_owned())
}

/// A command that takes the options of a mount.
pub trait Mounts {
    /// Its name on the command line.
    const NAME: &str;

    /// Returns its options.
    fn options(&self) -> &MountOptions;

    /// Returns the arguments of `command`, if it is this one.
    fn of(command: Command) -> Option<Self>
    where
        Self: Sized;

    /// Whether unknown options in `-o` are ignored.
    fn is_sloppy(&self) -> bool {
        false
    }
}

impl Mounts for Mount {
    const NAME: &str = "mount";

    fn options(&self) -> &MountOptions {
        &self.options
    }

    fn of(command: Command) -> Option<Self> {
        if let Command::Mount(mount) = command { Some(mount) } else { None }
    }

    fn is_sloppy(&self) -> bool {
        self.sloppy
    }
}

impl Mounts for Exec {
    const NAME: &str = "exec";

    fn options(&self) -> &MountOptions {
        &self.options
    }

    fn of(command: Command) -> Option<Self> {
        if let Command::Exec(exec) = command { Some(exec) } else { None }
    }
}

/// Returns the arguments, with the long options from `-o`, and the flags. `typed` is the command
/// line.
pub fn with_options<M: Mounts + Clone>(
    args: &M,
    typed: &[OsString],
) -> Result<(M, Flags), Failure> {
    let mut flags = Flags::default();
    let mut more: Vec<String> = Vec::new();
    let program = Args::command();
    let command = program.find_subcommand(M::NAME);
    for option in args.options().words.iter().filter(|option| !option.is_empty()) {
        let (name, value) =
            option.split_once('=').map_or((option.as_str(), None), |(n, v)| (n, Some(v)));
        let is_flag = flags.take(name, value);
        let is_flag = is_flag.map_err(|why| Failure::Usage(format!("-o {option}: {why}")))?;
        if is_flag || IGNORED.contains(&name) || name.starts_with("x-") || name.starts_with("X-") {
            continue;
        }
        let long = match name {
            "region" => "bucket-region".to_owned(),
            name => name.replace('_', "-"),
        };
        let is_long = |arg: &clap::Arg| arg.get_long() == Some(long.as_str()) && !arg.is_hide_set();
        let has_option = |command: &clap::Command| command.get_arguments().any(is_long);
        if command.is_some_and(has_option) || has_option(&program) {
            more.push(
                value.map_or_else(|| format!("--{long}"), |value| format!("--{long}={value}")),
            );
        } else if !args.is_sloppy() {
            return Err(Failure::Usage(format!(
                "-o {option}: unknown option; see zarrfs {} --help",
                M::NAME
            )));
        }
    }
    if more.is_empty() {
        return Ok((args.clone(), flags));
    }
    Ok((reparse(typed, &more)?, flags))
}

/// Parses the command line again, with `more` at the end of its options.
fn reparse<M: Mounts>(typed: &[OsString], more: &[String]) -> Result<M, Failure> {
    let end = typed.iter().position(|word| word == "--").unwrap_or(typed.len());
    let (options, rest) = typed.split_at_checked(end).unwrap_or((typed, &[]));
    let all = options.iter().cloned().chain(more.iter().map(Into::into));
    let all = all.chain(rest.iter().cloned());
    let usage = |error: &clap::Error| {
        Failure::Usage(error.to_string().trim_start_matches("error: ").trim_end().to_owned())
    };
    let matches = Args::command().args_override_self(true).try_get_matches_from(all);
    let matches = matches.map_err(|error| usage(&error))?;
    let args = Args::from_arg_matches(&matches).map_err(|error| usage(&error))?;
    limits::apply(&args.limits);
    M::of(args.command).ok_or_else(|| Failure::Usage(format!("expected the command {}", M::NAME)))
}
