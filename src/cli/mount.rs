//! `zarrfs mount`: checks the arguments, mounts, and serves until the mount ends.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{getegid, geteuid, setsid};

use super::access_log::AccessLog;
use super::args::{Durability as DurabilityArg, Mount, ShardWriteArg, Writeback as WritebackArg};
use super::failure::{Failure, failed};
use super::open::Location;
use super::words::{Flags, with_options};
use super::{auto_unmount, daemon, logger, notify, obstacles, open, print, remote, rescue, umount};
use crate::array::{FillChunks, ShardLayout, ShardWrite};
use crate::error::Kind;
use crate::fuse::{self, ModeChanges, MountOptions, Mounted, Others, Owner, ReadLog};
use crate::hierarchy;
use crate::metadata::Policy;
use crate::resources;
use crate::store::Condition;
use crate::store::directory::Durability;
use crate::sys::{self, Signal};
use crate::vfs::{self, PassthroughOptions, Vfs, Writeback};

/// The lifetime of cached names and attributes if no other program changes anything.
const UNLIMITED: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The shortest time for which metadata must be cached where consolidated metadata are used: the
/// groups above are looked up for each array.
const SHORTEST_FOR_COPIES: Duration = Duration::from_secs(1);

/// The lifetime of cached names and attributes of a directory.
const LOCAL_TTL: Duration = Duration::from_secs(1);

/// The type of a mount, after `fuse.`.
const SUBTYPE: &str = "zarrfs";

/// The threads over a store that takes long for each answer.
const REMOTE_THREADS: usize = 64;

/// Mounts. `typed` is the whole command line, which begins with the name of the program.
pub fn run(args: &Mount, typed: &[OsString]) -> Result<(), Failure> {
    let (args, flags) = with_options(args, typed)?;
    let mountpoint = check_mountpoint(&args, &flags)?;
    if !args.daemon {
        if args.create {
            create_source(&args)?;
        }
        obstacles::check(&flags)?;
    }
    let source = match remote::url(&args.source) {
        Some(_) => open::Source::parse(&args.source)?,
        None => open::Source::parse(&args.source).map_err(|failure| {
            // Nothing is known of a source below a directory that this user may not enter.
            match args.source.try_exists() {
                Err(_) => failure,
                Ok(_) => missing_source(&args.source),
            }
        })?,
    };
    if let Some(directory) = source.root.directory() {
        check_apart(directory, &mountpoint)?;
    }
    if args.fake {
        let hierarchy = open_hierarchy(&args, &flags, &source)?;
        drop(hierarchy);
        return report_mounted(&args, &source, "would be mounted");
    }
    if args.foreground || args.daemon {
        if !args.daemon && !flags.read_only {
            say_if_read_only(&args, &source)?;
        }
        return serve(&args, &flags, &source, &mountpoint);
    }
    daemon::start(typed, &source.spelled(), &mountpoint)?;
    report_mounted(&args, &source, "is mounted")?;
    if flags.read_only { Ok(()) } else { say_if_read_only(&args, &source) }
}

/// Prints that the source is mounted, if that was requested.
fn report_mounted(args: &Mount, source: &open::Source, what: &str) -> Result<(), Failure> {
    if args.verbose {
        let (source, mountpoint) = (source.spelled(), args.mountpoint.display());
        print::output(&format!("zarrfs: {source} {what} on {mountpoint}\n"))?;
    }
    Ok(())
}

fn open_hierarchy(
    args: &Mount,
    flags: &Flags,
    source: &open::Source,
) -> Result<hierarchy::Hierarchy, Failure> {
    let durability = match args.durability {
        DurabilityArg::Always => Durability::Synced,
        DurabilityArg::Fsync => Durability::Buffered,
    };
    let ttl = match &source.root {
        Location::Directory(_) => LOCAL_TTL,
        Location::Url(_) => remote::TTL,
    };
    let ttl = args.metadata_ttl.unwrap_or(ttl);
    let metadata_ttl = if args.immutable { UNLIMITED } else { ttl };
    let mut store = match &source.root {
        Location::Directory(directory) => open::store(directory, durability)?,
        Location::Url(url) => args.remote.store(url, metadata_ttl)?,
    };
    if flags.read_only {
        store = store.read_only();
    }
    let policy = Policy { codecs: args.codecs.clone(), shards: args.shards.clone() };
    let write = match args.shard_write {
        ShardWriteArg::Rewrite => ShardWrite::Rewrite,
        ShardWriteArg::Append => ShardWrite::Append,
    };
    let layout = ShardLayout { order: args.shard_order, write };
    let max_chunk_len = resources::within_memory(args.max_chunk_size, 8);
    let trusts_encoded = args.trust_encoded;
    let is_remote = source.root.directory().is_none();
    let reads_copies = is_remote && flags.read_only && metadata_ttl >= SHORTEST_FOR_COPIES;
    let reads_copies = reads_copies && !args.no_consolidated;
    let options = hierarchy::Options {
        metadata_ttl,
        max_chunk_len,
        layout,
        policy,
        trusts_encoded,
        reads_copies,
    };
    open::hierarchy(store, source, args.from.clone(), options)
}

fn serve(
    args: &Mount,
    flags: &Flags,
    source: &open::Source,
    mountpoint: &Path,
) -> Result<(), Failure> {
    // Do this before any thread starts, so that only the waiting thread receives signals.
    sys::block_signals()?;
    logger::start(args.log_level, log_sink(args)?)?;
    let descriptors = resources::raise_descriptor_limit();
    // The daemon changes its working directory, from which relative paths start.
    let rescue = args.rescue.as_ref().map(std::path::absolute).transpose()?;
    let hierarchy = open_hierarchy(args, flags, source)?;
    let is_remote = source.root.directory().is_none();
    if !is_remote {
        hierarchy.recovery().recover();
    }
    let options = vfs_options(args, flags, source, descriptors);
    let vfs = Arc::new(Vfs::new(hierarchy, options));
    let options = mount_options(args, flags, source)?;
    let mounted = fuse::mount(&vfs, mountpoint, &options)
        .map_err(|error| obstacles::explain(mountpoint, &error))?;
    let guard = flags.auto_unmount.then(|| auto_unmount::start(mountpoint)).transpose()?;
    // The parent checks whether the mount answers: a process that waits for an answer from itself
    // cannot be killed.
    if let Some(device) = device_of(mountpoint) {
        raise_readahead(&device);
    }
    if args.daemon {
        // Not before the mount: autofs lets only processes in the group of systemd use a mountpoint
        // that it waits for.
        setsid().map_err(io::Error::from)?;
        daemon::report_ready()?;
    } else {
        notify::send(notify::READY);
    }
    let (shown, place) = (source.spelled(), mountpoint.display());
    log::info!("{shown} is mounted on {place}");
    // A terminal also sends SIGHUP when it is closed.
    let hang_up = match (&args.log_file, args.foreground && io::stdin().is_terminal()) {
        (Some(_), false) => HangUp::ReopenLog,
        _ => HangUp::Stop,
    };
    answer_signals(mountpoint.to_owned(), Arc::clone(&vfs), hang_up);
    if is_remote && !flags.read_only {
        recover_beside(Arc::clone(&vfs));
    }
    let ended = end(mounted, &vfs, rescue.as_deref());
    drop(guard);
    if ended.is_ok() {
        log::info!("{shown} is unmounted from {place}");
    }
    log::logger().flush();
    ended
}

/// Returns the options of the tree of files.
fn vfs_options(
    args: &Mount,
    flags: &Flags,
    source: &open::Source,
    descriptors: u64,
) -> vfs::Options {
    vfs::Options {
        cache_len: resources::within_memory(args.cache_size, 4),
        kernel_keeps: !flags.direct_io,
        dirty_limit: resources::within_memory(args.dirty_limit, 4),
        fill_chunks: if args.skip_fill_chunks { FillChunks::Skip } else { FillChunks::Store },
        writeback: match args.writeback {
            WritebackArg::Sync => Writeback::Sync,
            WritebackArg::Delay => Writeback::Delay,
            WritebackArg::All => Writeback::All,
        },
        writeback_delay: args.writeback_delay,
        source: source.spelled(),
        form: args.form,
        listed_views: args.views.clone(),
        passthrough: (!flags.no_passthrough).then(PassthroughOptions::default),
        descriptors: usize::try_from(descriptors).unwrap_or(usize::MAX),
    }
}

/// Returns the options of the mount, with its log of reads.
fn mount_options(
    args: &Mount,
    flags: &Flags,
    source: &open::Source,
) -> Result<MountOptions, Failure> {
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (workers, ahead) = threads(args, source, processors);
    let read_log = args.access_log.as_deref().map(AccessLog::open).transpose()?;
    let read_log = read_log.map(|log| -> Arc<dyn ReadLog> { Arc::new(log) });
    Ok(MountOptions {
        source: flags.fsname.clone().unwrap_or_else(|| source.spelled()),
        subtype: flags.subtype.clone().unwrap_or_else(|| SUBTYPE.to_owned()),
        read_only: flags.read_only,
        direct_io: flags.direct_io,
        others: match (flags.allow_other, flags.allow_root) {
            (true, _) => Others::Everybody,
            (false, true) => Others::Root,
            (false, false) => Others::Nobody,
        },
        event_loops: processors.clamp(2, 4),
        workers,
        ahead,
        owner: Owner {
            uid: flags.uid.unwrap_or_else(|| geteuid().as_raw()),
            gid: flags.gid.unwrap_or_else(|| getegid().as_raw()),
            umask: flags.umask,
            read_only: flags.read_only,
            changes: if flags.quiet { ModeChanges::Ignore } else { ModeChanges::Refuse },
        },
        read_log,
    })
}

/// Returns the destination of log lines, with an absolute path: the daemon changes its working
/// directory.
fn log_sink(args: &Mount) -> Result<logger::Sink, Failure> {
    Ok(match &args.log_file {
        Some(path) => logger::Sink::File(std::path::absolute(path)?),
        None if args.daemon => logger::Sink::System,
        None => logger::Sink::Stderr,
    })
}

/// Prints why a mount will be read-only, if it will.
fn say_if_read_only(args: &Mount, source: &open::Source) -> Result<(), Failure> {
    if source.root.directory().is_some() && args.from.is_none() && open::is_folder(source)? {
        let why = "a folder of hierarchies in several dialects is mounted read-only";
        print::error(&format!("zarrfs: {}: {why}", args.source.display()));
    }
    Ok(())
}

/// Returns how many threads decode and store, and how many of them may do so in advance. One is
/// left for requests that arrive meanwhile. Over a store that takes long, most threads wait.
fn threads(args: &Mount, source: &open::Source, processors: usize) -> (usize, usize) {
    let (workers, ahead) = match &source.root {
        Location::Directory(_) => (processors.saturating_add(2).max(4), processors),
        Location::Url(_) => (REMOTE_THREADS, REMOTE_THREADS / 4),
    };
    let workers = args.threads.unwrap_or(workers).max(1);
    (workers, ahead.min(workers.saturating_sub(1)).max(1))
}

/// Finishes or undoes interrupted changes while the mount answers requests: on a server it takes a
/// minute to see that a writer is dead.
fn recover_beside(vfs: Arc<Vfs>) {
    let recover = move || vfs.recover();
    if let Err(error) = thread::Builder::new().name("recovery".to_owned()).spawn(recover) {
        log::error!("cannot look for interrupted changes: {error}");
    }
}

fn end(mounted: Mounted, vfs: &Vfs, rescue: Option<&Path>) -> Result<(), Failure> {
    mounted.wait()?;
    let Err(error) = vfs.sync() else { return Ok(()) };
    let unstored = vfs.unstored();
    let message = if let Some(dir) = rescue {
        let mut rescue = rescue::Rescue::default();
        for vfs::Unstored { path, bytes, .. } in unstored {
            let file = rescue::Unstored { path, removed: bytes.is_none() };
            rescue.add(dir, &file, || match bytes {
                Some(bytes) => Ok(bytes.to_buffer(u64::MAX).map_err(io::Error::other)?.into_vec()),
                None => Ok(Vec::new()),
            });
        }
        format!("not everything is stored: {error}; {}", rescue.summary(dir))
    } else {
        let paths: Vec<String> = unstored.into_iter().map(|file| file.path).collect();
        format!("not everything is stored: {error}; unstored: {}", rescue::named(&paths))
    };
    // A daemon can only report in its log.
    log::error!("{message}");
    Err(failed(message))
}

/// The effect of SIGHUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HangUp {
    /// Reopen the log file.
    ReopenLog,
    /// End the mount.
    Stop,
}

fn answer_signals(mountpoint: PathBuf, vfs: Arc<Vfs>, hang_up: HangUp) {
    let wait = move || {
        while let Ok(signal) = sys::wait_for_signal() {
            match (signal, hang_up) {
                (Signal::Report, _) => {
                    report_counters(&vfs);
                    continue;
                }
                (Signal::HangUp, HangUp::ReopenLog) => {
                    logger::reopen();
                    continue;
                }
                (Signal::HangUp, HangUp::Stop) | (Signal::Stop, _) => {
                    notify::send(notify::STOPPING);
                }
            }
            if let Err(error) = vfs.sync() {
                vfs.note("stop", &error);
            }
            vfs.stop_waiting();
            match umount::now(&mountpoint, umount::Busy::Detach) {
                Ok(()) => return,
                Err(failure) => log::error!("{}", failure.message()),
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("signals".to_owned()).spawn(wait) {
        log::error!("cannot wait for signals: {error}");
    }
}

/// Logs the counters of `.zarrfs/stats` in one line.
fn report_counters(vfs: &Vfs) {
    let stats = vfs.stats();
    let counters = stats.lines().filter(|line| !line.starts_with('#'));
    let counters = counters.filter_map(|line| line.strip_prefix("zarrfs_"));
    let counters: Vec<String> = counters.map(|line| line.replace(' ', "=")).collect();
    logger::report(&format!("counters: {}", counters.join(" ")));
}

/// Returns the device number of the mount at `mountpoint`, as `MAJOR:MINOR`, without sending a
/// request to the mount.
fn device_of(mountpoint: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let of = |line: &str| {
        let mut words = line.split(' ').skip(2);
        let (device, path) = (words.next()?, words.nth(1)?);
        (umount::unescape(path) == mountpoint).then(|| device.to_owned())
    };
    mounts.lines().rev().find_map(of)
}

/// Sets the read-ahead of a mount to 1 MiB, the largest size that the kernel uses, so that reads
/// take a quarter of the requests. Needs root.
fn raise_readahead(device: &str) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    let opened = std::fs::OpenOptions::new().write(true).open(&path);
    if let Err(error) = opened.and_then(|mut file| file.write_all(b"1024")) {
        log::debug!("{path}: {error}");
    }
}

fn missing_source(source: &Path) -> Failure {
    failed(format!(
        "{}: no such directory; use --create to create a hierarchy there",
        source.display()
    ))
}

/// Creates the root of a new hierarchy.
fn create_source(args: &Mount) -> Result<(), Failure> {
    let shown = args.source.display();
    let refused = |error: &dyn fmt::Display| failed(format!("{shown}: {error}"));
    let (store, is_empty) = if let Some(url) = remote::url(&args.source) {
        let store = args.remote.store(url, remote::TTL)?;
        let is_empty = open::is_empty(&store).map_err(|error| refused(&error.detail()))?;
        (store, is_empty)
    } else {
        std::fs::create_dir_all(&args.source).map_err(|error| refused(&error))?;
        let mut entries = std::fs::read_dir(&args.source).map_err(|error| refused(&error))?;
        (open::store(&args.source, Durability::Synced)?, entries.next().is_none())
    };
    if !is_empty {
        // A second run of the same command uses the hierarchy that the first one created.
        let source = open::Source::parse(&args.source)?;
        return open_hierarchy(args, &Flags::default(), &source).map(drop).map_err(|failure| {
            failed(format!("--create needs an empty directory: {}", failure.message()))
        });
    }
    let mut keys = Vec::new();
    for (key, text) in args.format.new_root()? {
        match store.write()?.set(&key, &[bytes::Bytes::from(text).into()], Condition::Absent) {
            // Another machine has just created it.
            Err(error) if error.kind() == Kind::Exists => {}
            set => drop(set?),
        }
        keys.push(key);
    }
    store.write()?.sync(&keys)?;
    Ok(())
}

/// Returns the mountpoint's path without links; an error if nothing can be mounted on it.
fn check_mountpoint(args: &Mount, flags: &Flags) -> Result<PathBuf, Failure> {
    let mountpoint = &args.mountpoint;
    let shown = mountpoint.display();
    let found = match umount::alive(mountpoint) {
        Err(error) if umount::is_dead(&error) => {
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

/// Fails for a mountpoint inside the source: the daemon would wait for itself without limit.
fn check_apart(source: &Path, mountpoint: &Path) -> Result<(), Failure> {
    if source.starts_with(mountpoint) || mountpoint.starts_with(source) {
        return Err(failed(format!(
            "{} and {}: a mount cannot be over, above or inside its own source; mount it elsewhere",
            source.display(),
            mountpoint.display()
        )));
    }
    Ok(())
}
