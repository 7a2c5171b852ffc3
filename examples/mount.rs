//! Mounts a hierarchy from a program of one's own, until it is unmounted:
//!
//! ```console
//! $ cargo run --example mount climate.zarr mnt
//! ```

use std::path::Path;
use std::sync::Arc;

use zarrfs::error::{Error, Result};
use zarrfs::fuse::{ModeChanges, MountEntry, MountOptions, MountPlace, MountUsers, Owner, mount};
use zarrfs::hierarchy::{Hierarchy, HierarchyOptions};
use zarrfs::store::Store;
use zarrfs::store::directory::{DirectoryStore, Durability};
use zarrfs::vfs::{self, Vfs};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [source, mountpoint] = words.as_slice() else {
        return Err(Error::invalid("usage: mount DIRECTORY MOUNTPOINT"));
    };
    let directory = DirectoryStore::open(Path::new(source), Durability::Synced)?;
    let hierarchy =
        Hierarchy::open(Store::new(Arc::new(directory)), None, HierarchyOptions::default())?;
    let vfs = Arc::new(Vfs::new(hierarchy, vfs::VfsOptions::default()));
    let options = MountOptions {
        entry: MountEntry {
            source: source.clone(),
            subtype: "zarrfs".to_owned(),
            read_only: false,
            others: MountUsers::Nobody,
        },
        direct_io: false,
        event_loops: 2,
        workers: 4,
        ahead: 2,
        owner: Owner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            umask: None,
            is_given: false,
            read_only: false,
            changes: ModeChanges::Refuse,
        },
        read_log: None,
    };
    mount(&vfs, MountPlace::Directory(Path::new(mountpoint)), &options)?.wait()?;
    vfs.sync()
}
