//! `zarrfs mount`: checks the arguments, mounts, and serves until the mount ends.

pub mod access_log;
pub mod apart;
pub mod daemon;
pub mod helper;
pub mod notify;
pub mod obstacles;
pub mod options;
pub mod outputs;
pub mod serving;
pub mod typed;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::cli::args::Mount;
use crate::cli::failure::{Failure, failed};
use crate::cli::open;
use crate::cli::output::print;
use crate::cli::umount;
use crate::cli::umount::dead;
use crate::sys;
use options::{Flags, with_options};
use serving::{ServedAt, Starter};
use typed::Typed;

/// The directory of the descriptors of a process, as programs name a FUSE device that they inherit.
const DESCRIPTORS: &str = "/dev/fd/";

/// Mounts. `typed` is the whole command line, which begins with the name of the program.
pub fn run(args: &Mount, typed: &[OsString]) -> Result<(), Failure> {
    let (args, mut flags) = with_options(args, typed)?;
    let device = device_number(&args.mountpoint)?;
    // The program that has mounted the device decides who may access it.
    flags.allow_other |= device.is_some();
    let mountpoint = match device {
        Some(_) => args.mountpoint.clone(),
        None => check_mountpoint(&args.mountpoint, &flags)?,
    };
    let mount = Typed { path: &args.source, options: &args.options, flags: &flags };
    if args.daemon.is_none() {
        mount.create_if_asked()?;
        if device.is_none() {
            obstacles::check(&flags)?;
        }
    }
    let source = mount.source()?;
    if device.is_none() {
        apart::check(&source, &mountpoint)?;
        outputs::check(&args.options.outputs(), &mountpoint)?;
    }
    if args.fake {
        let hierarchy = mount.open_hierarchy(&source)?;
        if device.is_none() {
            apart::check_groups_above(&hierarchy, &source, &mountpoint)?;
        }
        return report_mounted(&args, &source, "would be mounted");
    }
    let unwritable = mount.why_unwritable(&source);
    if args.foreground || args.daemon.is_some() {
        if args.daemon.is_none() {
            mount.say_if_read_only(&source, unwritable)?;
        }
        flags.read_only |= unwritable.is_some();
        let mount = Typed { path: &args.source, options: &args.options, flags: &flags };
        let device = device.map(inherited).transpose()?;
        let at = ServedAt { path: &mountpoint, device };
        let starter = if args.daemon.is_some() {
            Starter::Mount
        } else {
            Starter::Foreground { until_eof: args.until_eof }
        };
        return mount.serve(&source, at, &starter, unwritable);
    }
    daemon::start(typed, &source.spelled(), &mountpoint)?;
    report_mounted(&args, &source, "is mounted")?;
    mount.say_if_read_only(&source, unwritable)
}

/// Returns the number of an inherited descriptor, for a mountpoint such as `/dev/fd/3`.
fn device_number(mountpoint: &Path) -> Result<Option<i32>, Failure> {
    let Some(number) = mountpoint.to_str().and_then(|path| path.strip_prefix(DESCRIPTORS)) else {
        return Ok(None);
    };
    number.parse().map(Some).map_err(|_| {
        let shown = mountpoint.display();
        Failure::Usage(format!("{shown}: expected {DESCRIPTORS} and the number of a descriptor"))
    })
}

/// Takes an inherited FUSE device.
fn inherited(number: i32) -> Result<std::os::fd::OwnedFd, Failure> {
    let refused = |why: &dyn std::fmt::Display| failed(format!("{DESCRIPTORS}{number}: {why}"));
    let device = sys::inherited(number).map_err(|error| refused(&error))?;
    if !sys::is_fuse_device(&device)? {
        return Err(refused(&"not a FUSE device; the program that mounts must pass /dev/fuse"));
    }
    Ok(device)
}

/// Prints that the source is mounted, if that was requested.
fn report_mounted(args: &Mount, source: &open::Source, what: &str) -> Result<(), Failure> {
    if args.verbose {
        let (source, mountpoint) = (source.spelled(), args.mountpoint.display());
        print::output(&format!("zarrfs: {source} {what} on {mountpoint}\n"))?;
    }
    Ok(())
}

/// Returns the mountpoint's path without links; an error if nothing can be mounted on it.
pub fn check_mountpoint(mountpoint: &Path, flags: &Flags) -> Result<PathBuf, Failure> {
    let shown = mountpoint.display();
    let found = match dead::alive(mountpoint) {
        Err(error) if dead::is_dead(&error) => {
            // A killed daemon has left this mount: removing it loses nothing.
            umount::now(mountpoint, umount::Busy::Detach)?;
            std::fs::metadata(mountpoint)
        }
        found => found,
    };
    match found {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(failed(format!("{shown}: the mountpoint is not a directory"))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(failed(format!("{shown}: the mountpoint does not exist; mkdir it first")));
        }
        Err(error) => return Err(failed(format!("{shown}: {error}"))),
    }
    let mountpoint = mountpoint.canonicalize()?;
    if umount::is_mounted(&mountpoint)? {
        return Err(failed(format!(
            "{shown}: something is already mounted there; run zarrfs umount {shown} first"
        )));
    }
    if umount::is_on_demand(&mountpoint)? {
        // The directory is empty, and opening it would wait for this mount.
        return Ok(mountpoint);
    }
    let mut entries =
        std::fs::read_dir(&mountpoint).map_err(|e| failed(format!("{shown}: {e}")))?;
    if !flags.nonempty && entries.next().is_some() {
        return Err(failed(format!(
            "{shown}: the mountpoint is not empty; use an empty directory, or hide its files \
             with -o nonempty"
        )));
    }
    Ok(mountpoint)
}
