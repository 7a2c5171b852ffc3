//! Commands for first steps, packages and servers.
#![expect(clippy::doc_markdown, reason = "these comments are printed as help, with their marks")]

use std::path::PathBuf;
#[cfg(feature = "remote")]
use std::time::Duration;

use clap_complete::Shell;

#[cfg(feature = "remote")]
use super::values::duration;
#[cfg(feature = "remote")]
use crate::cli::open::remote::Remote;

/// Create a sample hierarchy, mount it, and show what you can do with it.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Directory for the sample: missing, empty, or of an earlier run.
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
    /// The directory; the man pages go to `man1`, `man5` and `man8` in it.
    pub dir: Option<PathBuf>,
}

/// List uploads to a bucket that were not completed, and end old ones.
///
/// Objects of more than 64 MiB are uploaded in parts. If a program is killed during an upload, the
/// server keeps the parts, and you pay for them, until the upload is ended.
#[cfg(feature = "remote")]
#[derive(Debug, clap::Args)]
pub struct Uploads {
    /// The URL below which to look: s3://bucket/climate.zarr, or s3://bucket.
    pub source: PathBuf,
    /// End old uploads, and remove their parts.
    #[arg(long)]
    pub end: bool,
    /// Age at which an upload is old; a younger one may still be in progress.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "24h")]
    pub older_than: Duration,
    #[command(flatten)]
    pub remote: Remote,
}
