//! Private mounts: a mount namespace, within a user namespace for users who may not mount
//! (namespaces(7)).

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// The step that the system refused.
#[derive(Debug)]
pub enum Refused {
    /// A new user namespace, by unshare(2).
    Namespace(io::Error),
    /// The rights within the new user namespace.
    Rights(io::Error),
}

/// The namespaces of a process.
#[derive(Debug)]
pub struct Namespaces {
    /// The user namespace.
    pub user: OwnedFd,
    /// The mount namespace.
    pub mount: OwnedFd,
}

/// Moves this process into a new mount namespace, where its mounts are seen by nobody else, and
/// where it may mount. A user without that right gets a new user namespace, too, with the same user
/// and group. Later mounts of the system appear in the new namespace.
///
/// The process must have one thread.
pub fn make_mounts_private() -> Result<(), Refused> {
    match unshare(UnshareFlags::NEWNS) {
        Err(Errno::PERM) => {
            let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
            unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
                .map_err(|error| Refused::Namespace(error.into()))?;
            // The kernel demands this first. Otherwise a user could leave a group whose members
            // have fewer rights than others.
            fs::write("/proc/self/setgroups", "deny").map_err(Refused::Rights)?;
            fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).map_err(Refused::Rights)?;
            fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).map_err(Refused::Rights)?;
        }
        done => done.map_err(|error| Refused::Namespace(error.into()))?,
    }
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", propagation).map_err(|error| Refused::Rights(error.into()))
}

fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the flags do not separate the table of descriptors, which other code relies on.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

impl Namespaces {
    /// Opens the namespaces of this process.
    pub fn own() -> io::Result<Self> {
        let open = |name: &str| fs::File::open(format!("/proc/self/ns/{name}")).map(OwnedFd::from);
        Ok(Self { user: open("user")?, mount: open("mnt")? })
    }

    /// Moves this process, which must have one thread, into these namespaces. Its working directory
    /// becomes the root.
    pub fn enter(&self) -> io::Result<()> {
        // A process cannot enter the user namespace that it is in.
        if !is_same(&self.user, &Self::own()?.user)? {
            move_into_link_name_space(self.user.as_fd(), Some(LinkNameSpaceType::User))?;
        }
        move_into_link_name_space(self.mount.as_fd(), Some(LinkNameSpaceType::Mount))?;
        Ok(())
    }
}

fn is_same(a: &OwnedFd, b: &OwnedFd) -> io::Result<bool> {
    let (a, b) = (rustix::fs::fstat(a)?, rustix::fs::fstat(b)?);
    Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

/// The two processes after [`fork`].
#[derive(Debug)]
pub enum Forked {
    /// The one that called it, with the number of the new one.
    Parent(u32),
    /// The new one.
    Child,
}

/// Divides this process in two. Fails if it has more than one thread, because the others would be
/// missing in the child, with their locks held.
pub fn fork() -> io::Result<Forked> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with threads cannot be forked"));
    }
    // SAFETY: there is no other thread, so the child has all that the parent has.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        child => {
            u32::try_from(child).map(Forked::Parent).map_err(|_negative| io::Error::last_os_error())
        }
    }
}
