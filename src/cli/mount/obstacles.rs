//! The causes that keep a hierarchy from being mounted, each with its remedy.
//!
//! zarrfs checks before the mount for the causes that it can see in advance; it recognises the
//! others by the messages of fusermount3.

use std::io::ErrorKind;
use std::path::Path;

use rustix::process::geteuid;

use super::options::Flags;
use crate::cli::failure::{Failure, failed};
use crate::error::Error;
use crate::sys::{self, Refused};

const NO_DEVICE: &str = "/dev/fuse: missing, so nothing can be mounted; load the kernel module \
    (modprobe fuse), or give the container the device (--device /dev/fuse --cap-add SYS_ADMIN)";

const NO_ACCESS: &str = "/dev/fuse: permission denied, so nothing can be mounted; run as root, or \
    give all users access, which is usual (chmod 666 /dev/fuse)";

const NO_MODULE: &str = "/dev/fuse: the kernel module fuse is not loaded, so nothing can be \
    mounted; load it (modprobe fuse)";

const NO_FUSERMOUNT: &str = "fusermount3: not found, and only root can mount without it; install \
    it (Debian: apt install fuse3), or run as root";

const NO_ALLOW_OTHER: &str = "/etc/fuse.conf: the line user_allow_other is missing, so only root may \
    use -o allow_other and -o allow_root; add the line, or mount without these options";

/// The settings, of Debian and of Ubuntu, that keep users from creating user namespaces.
const DEBIAN: &str = "/proc/sys/kernel/unprivileged_userns_clone";
const APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

const NO_MORE_NAMESPACES: &str = "/proc/sys/user/max_user_namespaces: the limit is reached, and a \
    private mount needs a user namespace; raise it as root (sysctl user.max_user_namespaces=10000)";

const NAMESPACES_FOR_ROOT: &str = "/proc/sys/kernel/unprivileged_userns_clone: only root may create \
    user namespaces, and a private mount needs one; let all users create them (as root: sysctl \
    kernel.unprivileged_userns_clone=1)";

const NO_PROFILE: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns: only programs with \
    an AppArmor profile may create user namespaces, and a private mount needs one; install the \
    profile of zarrfs, or let all programs create them (as root: sysctl \
    kernel.apparmor_restrict_unprivileged_userns=0)";

const FILTERED: &str = "a seccomp filter forbids private mounts, as in most containers; start the \
    container with --security-opt seccomp=unconfined, or as root with --cap-add SYS_ADMIN";

const NO_NAMESPACES: &str = "the kernel has no user namespaces (CONFIG_USER_NS), and a private mount \
    needs one; use zarrfs mount, as root or with fusermount3";

const NAMESPACE_REFUSED: &str = "the system refuses a user namespace, and a private mount needs one; \
    in a chroot nobody gets one, otherwise the administrator of the machine may know more";

const OLD_KERNEL: &str = "only Linux 4.18 and newer let users mount in a namespace; use zarrfs mount, \
    as root or with fusermount3";

const FORBIDDEN: &str = "mounting is forbidden, even in a private namespace; ask the administrator \
    whether a security module (AppArmor, SELinux) or the container does this";

/// Parts of the messages of fusermount3, each with the sentence that follows the mountpoint.
const REFUSALS: &[(&str, &str)] = &[
    (
        "no write access to mountpoint",
        "the mountpoint is not writable for this user; use a directory that belongs to the user, or \
         run as root",
    ),
    (
        "not owned by user",
        "the mountpoint belongs to another user, and its sticky bit is set; use a directory that \
         belongs to the user, or run as root",
    ),
    (
        "mounting over filesystem type",
        "fusermount3 does not mount over this type of file system; use a mountpoint on a local \
         disk, or run as root",
    ),
    ("user_allow_other", NO_ALLOW_OTHER),
    (
        "too many FUSE filesystems",
        "the users of this machine have as many FUSE mounts as /etc/fuse.conf allows; raise \
         mount_max there, or unmount others",
    ),
    ("device not found", NO_MODULE),
    (
        "Operation not permitted",
        "mounting is not permitted; fusermount3 must belong to root and have the set-user-ID bit \
         (chmod u+s), and a container needs --cap-add SYS_ADMIN",
    ),
];

/// The programs that mount for a user.
const FUSERMOUNT: [&str; 2] = ["fusermount3", "fusermount"];

/// Fails if this user cannot use the FUSE device.
pub fn check_device() -> Result<(), Failure> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match device {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(failed(NO_DEVICE)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(failed(NO_ACCESS)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => {
            Err(failed(NO_MODULE))
        }
        // The attempt to mount reports other errors.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Fails if something is known to keep this user from mounting.
pub fn check(flags: &Flags) -> Result<(), Failure> {
    check_device()?;
    if geteuid().is_root() {
        return Ok(());
    }
    if !has_fusermount() {
        return Err(failed(NO_FUSERMOUNT));
    }
    let allows = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    let allows = allows.lines().any(|line| line.trim() == "user_allow_other");
    if (flags.allow_other || flags.allow_root) && !allows {
        return Err(failed(NO_ALLOW_OTHER));
    }
    Ok(())
}

/// Whether a program that mounts for a user is where fuser looks for it.
fn has_fusermount() -> bool {
    if std::env::var_os("FUSERMOUNT_PATH").is_some() {
        return true;
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut dirs = std::env::split_paths(&path).chain(["/sbin".into(), "/bin".into()]);
    dirs.any(|dir| FUSERMOUNT.iter().any(|name| dir.join(name).is_file()))
}

/// Returns the failure of an attempt to mount.
pub fn explain(mountpoint: &Path, error: &Error) -> Failure {
    let said = error.to_string();
    let known = REFUSALS.iter().find(|(part, _)| said.contains(part));
    match known {
        Some((_, why)) if why.starts_with('/') => failed(*why),
        Some((_, why)) => failed(format!("{}: {why}", mountpoint.display())),
        None => {
            failed(format!("{}: {}", mountpoint.display(), said.trim_end().replace('\n', "; ")))
        }
    }
}

/// Returns why this user gets no namespace for a private mount.
pub fn explain_namespace(refused: &Refused) -> Failure {
    let error = match refused {
        Refused::Namespace(error) | Refused::Rights(error) => error,
    };
    let is = |setting: &str, value: &str| {
        std::fs::read_to_string(setting).is_ok_and(|text| text.trim() == value)
    };
    let why = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EUSERS) => NO_MORE_NAMESPACES,
        Some(libc::EINVAL | libc::ENOSYS) => NO_NAMESPACES,
        Some(libc::EPERM | libc::EACCES) if is(DEBIAN, "0") => NAMESPACES_FOR_ROOT,
        Some(libc::EPERM | libc::EACCES) if is(APPARMOR, "1") => NO_PROFILE,
        Some(libc::EPERM | libc::EACCES) if has_seccomp_filter() => FILTERED,
        _ => return failed(format!("{NAMESPACE_REFUSED}: {error}")),
    };
    failed(why)
}

/// Whether a filter of system calls is installed for this process (seccomp(2)).
fn has_seccomp_filter() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() == "2")
}

/// Returns why a mount in a new namespace failed.
pub fn explain_private_mount(mountpoint: &Path, error: &std::io::Error) -> Failure {
    let shown = mountpoint.display();
    failed(match error.raw_os_error() {
        Some(libc::ENODEV) => NO_MODULE.to_owned(),
        Some(libc::EPERM) if sys::kernel_release() < (4, 18) => format!("{shown}: {OLD_KERNEL}"),
        Some(libc::EPERM | libc::EACCES) if has_seccomp_filter() => FILTERED.to_owned(),
        Some(libc::EPERM | libc::EACCES) => format!("{shown}: {FORBIDDEN}"),
        _ => format!("{shown}: cannot be mounted: {error}"),
    })
}
