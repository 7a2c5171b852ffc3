//! Mounts that this process makes and another one serves.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::mount::{MountFlags, mount};
use rustix::process::{getegid, geteuid};

use super::session::{MountEntry, MountUsers};
use crate::sys;

/// Mounts at `mountpoint`, and returns the descriptor over which the mount is served. Programs that
/// use the mount wait until then.
pub fn mount_device(mountpoint: &Path, entry: &MountEntry) -> std::io::Result<OwnedFd> {
    let device = sys::open_fuse_device()?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        geteuid().as_raw(),
        getegid().as_raw()
    );
    if entry.others != MountUsers::Nobody {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
    if entry.read_only {
        flags |= MountFlags::RDONLY;
    }
    let kind = format!("fuse.{}", entry.subtype);
    let data = CString::new(data)?;
    mount(entry.source.as_str(), mountpoint, kind, flags, data.as_c_str())?;
    Ok(device)
}
