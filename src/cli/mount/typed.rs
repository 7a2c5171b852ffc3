//! A mount as the user typed it, in the terms of the modules below.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use super::access_log::AccessLog;
use super::options::Flags;
use crate::array::{FillChunks, ShardLayout, ShardWrite};
use crate::cli::args;
use crate::cli::failure::{Failure, failed};
use crate::cli::open::archive;
use crate::cli::open::described;
use crate::cli::open::references;
use crate::cli::open::remote;
use crate::cli::open::{self, StoreLocation};
use crate::cli::output::print;
use crate::cli::umount::dead;
use crate::cut;
use crate::error::Kind;
use crate::fuse::{ModeChanges, MountEntry, MountOptions, MountUsers, Owner, ReadLog};
use crate::hierarchy;
use crate::metadata::{NodePath, Policy};
use crate::resources;
use crate::store::Condition;
use crate::store::directory::Durability;
use crate::sys;
use crate::vfs::{self, PassthroughOptions, Writeback};
use crate::width::ToUsize;

/// The lifetime of cached names and attributes if no other program changes anything.
const UNLIMITED: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The shortest time for which metadata must be cached where consolidated metadata are used: the
/// groups above are looked up for each array.
const SHORTEST_FOR_COPIES: Duration = Duration::from_secs(1);

/// The type of a mount, after `fuse.`.
const SUBTYPE: &str = "zarrfs";

/// The threads over a store that takes long for each answer.
const REMOTE_THREADS: usize = 64;

/// A mount as the user typed it.
#[derive(Debug, Clone, Copy)]
pub struct Typed<'t> {
    /// The path or URL of the source.
    pub path: &'t Path,
    /// The long options.
    pub options: &'t args::MountOptions,
    /// The flags in `-o`.
    pub flags: &'t Flags,
}

impl Typed<'_> {
    /// Creates the source, if that was requested.
    pub fn create_if_asked(&self) -> Result<(), Failure> {
        if self.options.write.create { self.create() } else { Ok(()) }
    }

    /// Finds the source.
    pub fn source(&self) -> Result<open::Source, Failure> {
        open::Source::parse(self.path).map_err(|failure| {
            // Nothing is known of a source below a directory that this user may not enter.
            match (remote::url(self.path), self.path.try_exists()) {
                _ if references::is_named(self.path) => failure,
                _ if dead::refuse_dead(self.path).is_err() => failure,
                (Some(_), _) | (None, Err(_)) => failure,
                (None, Ok(_)) => self.missing_source(),
            }
        })
    }

    fn missing_source(&self) -> Failure {
        if archive::is_named(self.path) {
            return failed(format!("{}: no such file", self.path.display()));
        }
        let remedy =
            if self.flags.read_only { "" } else { "; use --create to create a hierarchy there" };
        failed(format!("{}: no such directory{remedy}", self.path.display()))
    }

    /// Opens the hierarchy.
    pub fn open_hierarchy(&self, source: &open::Source) -> Result<hierarchy::Hierarchy, Failure> {
        let (args, flags) = (self.options, self.flags);
        let durability = match args.write.durability {
            args::Durability::Always => Durability::Synced,
            args::Durability::Fsync => Durability::Buffered,
        };
        let ttl = args.tree.metadata_ttl.unwrap_or_else(|| source.root.ttl());
        let metadata_ttl = if args.tree.immutable { UNLIMITED } else { ttl };
        let mut store = source.root.store(&args.tree.remote, metadata_ttl, durability)?;
        if flags.allow_other
            && let Some(files) = store.files()
        {
            files.expect_others();
        }
        if flags.read_only {
            store = store.read_only();
        }
        let (codecs, shards) = (&args.write.codecs, &args.write.shards);
        let keeps_copied = codecs.is_none() && shards.is_none();
        let usual = Policy::default();
        let policy = Policy {
            codecs: codecs.clone().unwrap_or(usual.codecs),
            shards: shards.clone().unwrap_or(usual.shards),
        };
        let write = match args.write.shard_write {
            args::ShardWriteArg::Rewrite => ShardWrite::Rewrite,
            args::ShardWriteArg::Append => ShardWrite::Append,
        };
        let layout = ShardLayout { order: args.write.shard_order, write };
        let max_chunk_len = resources::within_memory(args.tree.max_chunk_size, 8);
        let trusts_encoded = args.write.trust_encoded;
        let is_remote = source.root.is_remote();
        let reads_copies = is_remote && flags.read_only && metadata_ttl >= SHORTEST_FOR_COPIES;
        let reads_copies = reads_copies && !args.tree.no_consolidated;
        let options = hierarchy::HierarchyOptions {
            metadata_ttl,
            max_chunk_len,
            layout,
            policy,
            keeps_copied,
            trusts_encoded,
            reads_copies,
            coordinate_system: args.tree.coordinate_system.clone(),
        };
        let whole = open::hierarchy(store, source, args.tree.from.clone(), options.clone())?;
        let Some(region) = &args.tree.region else { return Ok(whole) };
        let cache_len = resources::within_memory(args.tree.cache_size, 4) / 2;
        cut::open(&whole, &NodePath::root(), region, cache_len, options)
            .map_err(|error| failed(format!("{}: {error}", remote::typed(self.path))))
    }

    /// Returns the options of the tree of files.
    pub fn vfs_options(&self, source: &open::Source, descriptors: u64) -> vfs::VfsOptions {
        let (args, flags) = (self.options, self.flags);
        vfs::VfsOptions {
            // A part of a hierarchy takes the other half.
            cache_len: resources::within_memory(args.tree.cache_size, 4)
                / if args.tree.region.is_some() { 2 } else { 1 },
            kernel_keeps: !flags.direct_io,
            follows_links: false,
            has_others: flags.allow_other && !flags.gives_owner(),
            dirty_limit: resources::within_memory(args.write.dirty_limit, 4),
            fill_chunks: if args.write.skip_fill_chunks {
                FillChunks::Skip
            } else {
                FillChunks::Store
            },
            writeback: match args.write.writeback {
                args::Writeback::Sync => Writeback::Sync,
                args::Writeback::Delay => Writeback::Delay,
                args::Writeback::All => Writeback::All,
            },
            writeback_delay: args.write.writeback_delay,
            source: source.spelled(),
            form: args.tree.form,
            listed_views: args.tree.views.clone(),
            imports: args.write.import,
            passthrough: (!flags.no_passthrough).then(PassthroughOptions::default),
            descriptors: descriptors.to_usize(),
        }
    }

    /// Returns the options of the mount, with its log of reads.
    pub fn mount_options(&self, source: &open::Source) -> Result<MountOptions, Failure> {
        let flags = self.flags;
        let (workers, ahead) = self.threads(source);
        let read_log = self.options.access_log.as_deref().map(AccessLog::open).transpose()?;
        let read_log = read_log.map(|log| -> Arc<dyn ReadLog> { Arc::new(log) });
        Ok(MountOptions {
            entry: self.mount_entry(source.spelled()),
            direct_io: flags.direct_io,
            event_loops: processors().clamp(2, 4),
            workers,
            ahead,
            owner: Owner {
                uid: flags.uid.unwrap_or_else(|| geteuid().as_raw()),
                gid: flags.gid.unwrap_or_else(|| getegid().as_raw()),
                umask: flags.umask,
                is_given: flags.gives_owner(),
                read_only: flags.read_only,
                changes: if flags.quiet { ModeChanges::Ignore } else { ModeChanges::Refuse },
            },
            read_log,
        })
    }

    /// Returns the entry in the mount table.
    pub fn mount_entry(&self, source: String) -> MountEntry {
        let flags = self.flags;
        MountEntry {
            source: flags.fsname.clone().unwrap_or(source),
            subtype: flags.subtype.clone().unwrap_or_else(|| SUBTYPE.to_owned()),
            read_only: flags.read_only,
            others: match (flags.allow_other, flags.allow_root) {
                (true, _) => MountUsers::Everybody,
                (false, true) => MountUsers::Root,
                (false, false) => MountUsers::Nobody,
            },
        }
    }

    /// Returns how many threads decode and store, and how many of them may do so in advance. One is
    /// left for requests that arrive meanwhile. Over a store that takes long, most threads wait.
    pub fn threads(&self, source: &open::Source) -> (usize, usize) {
        let processors = processors();
        let is_slow = match &source.root {
            StoreLocation::Directory(_) | StoreLocation::Archive(_) => false,
            StoreLocation::Url(_) => true,
            StoreLocation::References(references) => {
                references.may_lead_to_server(&self.options.tree.remote)
            }
        };
        let (workers, ahead) = if is_slow {
            (REMOTE_THREADS, REMOTE_THREADS / 4)
        } else {
            (processors.saturating_add(2).max(4), processors)
        };
        let workers = self.options.tree.threads.unwrap_or(workers).max(1);
        (workers, ahead.min(workers.saturating_sub(1)).max(1))
    }

    /// Returns why the store cannot be written, as the end of a sentence about its directory. Only
    /// the directory itself is checked; errors of a later write are reported when they occur.
    pub fn why_unwritable(&self, source: &open::Source) -> Option<&'static str> {
        if self.flags.read_only {
            return None;
        }
        if self.options.tree.region.is_some() {
            return Some("mounted read-only, because it is a part of a hierarchy (--region)");
        }
        if let Some(why) = source.root.why_read_only() {
            return Some(why);
        }
        if let Some(why) = described::why_read_only(source.root.directory()?) {
            return Some(why);
        }
        match sys::check_writable(source.root.directory()?) {
            Err(Errno::ROFS) => Some("mounted read-only, because its file system is read-only"),
            Err(Errno::ACCESS | Errno::PERM) => {
                Some("mounted read-only, because this user may not write to it")
            }
            _ => None,
        }
    }

    /// Prints why the mount is read-only, if the user has not asked for that. `unwritable` is the
    /// reason if the store cannot be written.
    pub fn say_if_read_only(
        &self,
        source: &open::Source,
        unwritable: Option<&str>,
    ) -> Result<(), Failure> {
        let is_typed = self.flags.read_only;
        let may_be_folder = source.root.directory().is_some() && self.options.tree.from.is_none();
        let why = match unwritable {
            Some(why) => why,
            None if !is_typed && may_be_folder && open::is_folder(source)? => {
                "a folder of files, or of hierarchies in several dialects, is mounted read-only"
            }
            None => return Ok(()),
        };
        print::error(&format!("zarrfs: {}: {why}", remote::typed(self.path)));
        Ok(())
    }

    /// Creates the root of a new hierarchy.
    fn create(&self) -> Result<(), Failure> {
        references::refuse(self.path)?;
        archive::check_writable(self.path)?;
        let shown = remote::typed(self.path);
        let refused = |error: &dyn fmt::Display| failed(format!("{shown}: {error}"));
        let (store, is_empty) = if let Some(url) = remote::url(self.path) {
            remote::check_writable(url)?;
            let store = self.options.tree.remote.store(url, remote::TTL)?;
            let is_empty = open::is_empty(&store).map_err(|error| refused(&error.detail()))?;
            (store, is_empty)
        } else {
            std::fs::create_dir_all(self.path).map_err(|error| refused(&error))?;
            let mut entries = std::fs::read_dir(self.path).map_err(|error| refused(&error))?;
            (open::store(self.path, Durability::Synced)?, entries.next().is_none())
        };
        if !is_empty {
            // A second run of the same command uses the hierarchy that the first one created.
            let source = open::Source::parse(self.path)?;
            let flags = Flags::default();
            return Typed { flags: &flags, ..*self }.open_hierarchy(&source).map(drop).map_err(
                |failure| {
                    failed(format!("--create needs an empty directory: {}", failure.message()))
                },
            );
        }
        let mut keys = Vec::new();
        for (key, text) in self.options.write.format.new_root()? {
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
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
