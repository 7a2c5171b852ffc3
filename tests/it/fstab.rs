//! mount(8) and fstab: the program under the name `mount.zarrfs`, and its options in `-o`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Mount, copy, errno, said, stat, until, zarrfs};

const FIXTURE: &str = "z316__shard_end";

fn is_root() -> bool {
    // SAFETY: the call cannot fail or touch memory.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("not root: mount(8) would refuse, so this shows nothing");
    }
    is_root
}

/// A directory whose mount `m t` ends with the test, even if the test fails.
struct Place(tempfile::TempDir);

impl Place {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Fails if the test has passed: nothing is mounted then.
        let _not_mounted = Command::new("umount").arg("-l").arg(self.path().join("m t")).output();
    }
}

/// A directory that every user may enter, with a store `a b.zarr`, a mountpoint `m t`, and the
/// program as `mount.zarrfs`.
fn place() -> Place {
    // Other users can enter this directory, wherever TMPDIR is.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(FIXTURE);
    copy(&fixture.join("store"), &dir.path().join("a b.zarr"));
    fs::create_dir(dir.path().join("m t")).unwrap();
    symlink(env!("CARGO_BIN_EXE_zarrfs"), dir.path().join("mount.zarrfs")).unwrap();
    Place(dir)
}

/// Runs a script in a mount namespace of its own, in which mount(8) finds `mount.zarrfs`.
fn in_namespace(dir: &Path, script: &str) -> Output {
    let setup = "set -e; mount --make-rslave /; mkdir sbin; mount -t tmpfs none sbin; \
                 for name in /sbin/*; do ln -s \"$(readlink -f $name)\" sbin/${name##*/}; done; \
                 ln -sf \"$PWD/mount.zarrfs\" sbin/mount.zarrfs; \
                 ln -sf \"$PWD/mount.zarrfs\" sbin/mount.fuse.zarrfs; \
                 mount --bind sbin \"$(readlink -f /sbin)\"; ";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "--propagation", "slave", "/bin/sh", "-c", &format!("{setup}{script}")])
        .current_dir(dir);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Shows: fstab.
#[test]
fn a_line_of_fstab_mounts_and_umount_stores() {
    if !is_root() {
        return;
    }
    let place = place();
    let dir = place.path();
    let shown = dir.display();
    let line = format!(
        "{shown}/a\\040b.zarr {shown}/m\\040t fuse.zarrfs \
         rw,_netdev,nofail,users,x-systemd.automount,comment=test,cache-size=16M,umask=027 0 0\n"
    );
    fs::write(dir.join("fstab"), line).unwrap();
    let script = "mount -a -T fstab; findmnt -n -t fuse.zarrfs -o FSTYPE,SOURCE 'm t'; \
                  df -t fuse.zarrfs 'm t' >/dev/null; stat -c %a 'm t/c/0/0'; \
                  printf x >'m t/notes.txt'; \
                  mount -o remount,ro -T fstab 'm t' && exit 9; umount 'm t'; \
                  mountpoint -q 'm t' && exit 8; \
                  for i in $(seq 120); do test -e 'a b.zarr/notes.txt' || sleep 0.5; done; \
                  cat 'a b.zarr/notes.txt'";
    let output = in_namespace(dir, script);
    let text = text(&output);
    assert!(output.status.code() == Some(0), "{output:?}");
    assert!(text.contains("fuse.zarrfs") && text.contains("a b.zarr"), "{text}");
    assert!(text.contains("640\n") && text.contains("remount: a mount keeps"), "{text}");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with('x'), "{text}");
}

/// Shows: fstab.
#[test]
fn mount_zarrfs_needs_no_environment_and_its_letters_are_those_of_mount() {
    let place = place();
    let dir = place.path();
    let helper = |options: &[&str]| {
        let mut command = Command::new(dir.join("mount.zarrfs"));
        command.args([dir.join("a b.zarr"), dir.join("m t")]).args(options).env_clear();
        command.output().unwrap()
    };
    let is_mounted = || dir.join("m t/zarr.json").exists();
    let output = helper(&["-f", "-v"]);
    assert!(output.status.success() && !is_mounted(), "{output:?}");
    assert!(text(&output).contains("would be mounted on"), "{output:?}");
    let output = helper(&["-o", "ro,frobnicate=1"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output).contains("-o frobnicate=1: unknown option"), "{output:?}");
    let output = helper(&["-o", "umask=9"]);
    assert!(text(&output).contains("-o umask=9: expected an octal number"), "{output:?}");
    let output = helper(&["-sn", "-o", "ro,frobnicate=1,fsname=other"]);
    assert!(output.status.success() && is_mounted(), "{output:?}");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(dir.to_str().unwrap())).unwrap();
    assert!(line.starts_with("other ") && line.contains(" fuse.zarrfs ro,"), "{line}");
    let mnt = dir.join("m t").to_str().unwrap().to_owned();
    assert_eq!(said(&["umount", &mnt]), (0, String::new()));
}

/// Shows: owner-options.
#[test]
fn owner_and_umask_decide_which_users_may_write() {
    if !is_root() {
        return;
    }
    let place = place();
    let dir = place.path();
    let options = "allow_other,uid=65534,gid=65533,umask=027,quiet";
    let (store, mnt) = (dir.join("a b.zarr"), dir.join("m t"));
    let paths = [store.to_str().unwrap(), mnt.to_str().unwrap()];
    assert_eq!(said(&["mount", paths[0], paths[1], "-o", options]), (0, String::new()));
    let chunk = mnt.join("c/0/0");
    let found = fs::metadata(&chunk).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (65534, 65533, 0o640));
    assert_eq!(fs::metadata(mnt.join("c")).unwrap().mode() & 0o7777, 0o750);
    let may = |user: &str, group: &str, how: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", group, "--clear-groups", "sh", "-c", how]);
        command.arg("sh").arg(&chunk).output().unwrap().status.success()
    };
    let (read, write) = ("cat \"$1\" >/dev/null", "head -c 48 /dev/zero >\"$1\"");
    assert!(may("65534", "1", read) && may("65534", "1", write), "the owner");
    assert!(may("65532", "65533", read) && !may("65532", "65533", write), "the group");
    assert!(!may("65532", "1", read) && !may("65532", "1", write), "another user");
    // `quiet`: refused changes have no effect.
    fs::set_permissions(&chunk, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&chunk, Some(1), Some(1)).unwrap();
    let found = fs::metadata(&chunk).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (65534, 0o640));
    assert_eq!(said(&["umount", paths[1]]), (0, String::new()));
}

/// Shows: other-users, other-users-links.
#[test]
fn other_users_get_no_more_rights_than_the_store_gives() {
    if !is_root() {
        return;
    }
    let place = place();
    let dir = place.path();
    let (store, mnt) = (dir.join("a b.zarr"), dir.join("m t"));
    let paths = [store.to_str().unwrap(), mnt.to_str().unwrap()];
    let keep = |name: &str, mode: u32| {
        chown(store.join(name), Some(65534), Some(65533)).unwrap();
        fs::set_permissions(store.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    keep("c/0/0", 0o640);
    keep("zarr.json", 0o600);
    let moved = store.join("c/1/1");
    fs::rename(&moved, store.join("stored")).unwrap();
    symlink("../../stored", &moved).unwrap();
    lchown(&moved, Some(65532), Some(65532)).unwrap();
    assert_eq!(said(&["mount", paths[0], paths[1], "-o", "allow_other"]), (0, String::new()));
    let shown = |name: &str| {
        let found = fs::metadata(mnt.join(name)).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    assert_eq!(shown("c/0/0"), (65534, 65533, 0o640));
    for name in ["zarr.json", ".zarrfs/stored/zarr.json"] {
        assert_eq!(shown(name), (65534, 65533, 0o600), "{name}");
    }
    assert_eq!(shown("__root__.npy"), (65534, 65533, 0o600), "a view");
    assert_eq!(shown(".zarrfs/errors").2, 0o400);
    // A chunk of the shard that is a link.
    assert_eq!(errno(fs::read(mnt.join("c/2/2"))), libc::EIO);
    assert_eq!(said(&["umount", paths[1]]), (0, String::new()));
}

/// Shows: auto-unmount.
#[test]
fn auto_unmount_ends_the_mount_of_a_killed_daemon() {
    let mount = Mount::fixture(FIXTURE, &["-o", "auto_unmount"]);
    let daemon = stat(&mount, "zarrfs_process_id ");
    assert!(Command::new("kill").args(["-KILL", &daemon.to_string()]).status().unwrap().success());
    let path = mount.path();
    until("the mount ends", || {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        !mounts.contains(path.to_str().unwrap())
    });
    assert_eq!(errno(fs::metadata(mount.at("zarr.json"))), libc::ENOENT);
    mount.mount_again(&["-o", "auto_unmount"]);
    assert!(mount.at("zarr.json").exists());
    mount.unmount();
}

#[test]
fn a_mount_with_another_name_and_type_is_still_recognised() {
    let place = place();
    let dir = place.path();
    let (store, mnt) = (dir.join("a b.zarr"), dir.join("m t"));
    let done =
        zarrfs().arg("mount").args([&store, &mnt]).args(["-o", "fsname=x,subtype=y"]).output();
    assert!(done.as_ref().is_ok_and(|done| done.status.success()), "{done:?}");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(dir.to_str().unwrap())).unwrap();
    assert!(line.starts_with("x ") && line.contains(" fuse.y "), "{line}");
    let group = mnt.join("g").to_str().unwrap().to_owned();
    let (code, sentence) = said(&["create", &group]);
    assert!(code == 1 && sentence.contains("array"), "{sentence}");
    assert_eq!(said(&["umount", mnt.to_str().unwrap()]), (0, String::new()));
}
