//! `zarrfs umount` of mounts that other users made or that do not answer, and the end of a mount
//! that is in use.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::status::Stopped;
use crate::support::{Mount, copy_program, only_namespace, said, stat, umount, until, zarrfs};

/// The number of the user `nobody`.
const NOBODY: u32 = 65534;

/// Whether this is root. Otherwise there is no other user, and the test shows nothing.
fn is_root() -> bool {
    // SAFETY: the call cannot fail or touch memory.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("not root: there is no other user, so this shows nothing");
    }
    is_root
}

/// A hierarchy, a mountpoint and the program, in a directory that all users can enter.
struct Place(tempfile::TempDir);

impl Place {
    fn new(owner: u32) -> Self {
        let place = Self(tempfile::tempdir_in("/tmp").unwrap());
        fs::set_permissions(place.0.path(), Permissions::from_mode(0o755)).unwrap();
        copy_program(&place.at("zarrfs"));
        assert_eq!(said(&["create", place.at("a.zarr").to_str().unwrap()]).0, 0);
        fs::create_dir(place.at("mnt")).unwrap();
        for name in ["a.zarr", "a.zarr/zarr.json", "mnt"] {
            chown(place.at(name), Some(owner), Some(owner)).unwrap();
        }
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the program as `nobody`, who has the `capabilities` of a program that mounts.
    fn by_nobody(&self, capabilities: &str, words: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        if !capabilities.is_empty() {
            command.arg(format!("--inh-caps={capabilities}"));
            command.arg(format!("--ambient-caps={capabilities}"));
        }
        command.arg("./zarrfs").args(words).current_dir(self.0.path()).output().unwrap()
    }

    fn umount(&self, more: &[&str]) -> (i32, String) {
        let mountpoint = self.at("mnt");
        let output = umount(&[&[mountpoint.to_str().unwrap()], more].concat());
        (output.status.code().unwrap(), text(&output.stderr))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if is_mounted(&self.at("mnt")) {
            let ended = Command::new("umount").arg("-l").arg(self.at("mnt")).status();
            assert!(std::thread::panicking(), "it was still mounted: {ended:?}");
        }
    }
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == path.to_str())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

/// Shows: umount-other-user.
#[test]
fn root_unmounts_a_mount_that_it_may_not_look_into() {
    if !is_root() {
        return;
    }
    let _only = only_namespace();
    let place = Place::new(NOBODY);
    let mnt = place.at("mnt").display().to_string();
    let mount = || {
        let words = ["mount", "a.zarr", "mnt", "--log-file", "/dev/null"];
        let output = place.by_nobody("+sys_admin,+dac_override", &words);
        assert!(output.status.success(), "{output:?}");
        let refused = fs::read_dir(place.at("mnt")).expect_err("another user's mount");
        assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    };
    mount();
    let words = ["-c", "mkdir mnt/new; printf text >mnt/notes"];
    let mut writes = Command::new("setpriv");
    writes.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh"]).args(words);
    assert!(writes.current_dir(place.at("")).status().unwrap().success());
    let (code, sentence) = place.umount(&["--rescue", "saved"]);
    assert_eq!(code, 1);
    assert!(sentence.contains("--rescue cannot read the pending changes"), "{sentence}");
    assert!(sentence.ends_with("run zarrfs umount as nobody"), "{sentence}");
    let (code, sentence) = place.umount(&[]);
    assert_eq!(code, 0, "{sentence}");
    let wanted = format!("zarrfs: {mnt}: unmounted, and process ");
    assert!(sentence.starts_with(&wanted), "{sentence}");
    assert!(sentence.contains(" has ended; changes that it could not store"), "{sentence}");
    // The daemon has stored the pending changes before the command returned.
    assert_eq!(fs::read_to_string(place.at("a.zarr/notes")).unwrap(), "text");
    assert!(place.at("a.zarr/new/zarr.json").exists() && !is_mounted(&place.at("mnt")));
    mount();
    // The user of the mount still unmounts it in the ordinary way.
    let output = place.by_nobody("", &["umount", "mnt"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

/// Shows: umount-other-user.
#[test]
fn a_user_who_may_not_unmount_learns_who_can() {
    if !is_root() {
        return;
    }
    let _only = only_namespace();
    let place = Place::new(0);
    let (store, mnt) = (place.at("a.zarr"), place.at("mnt"));
    let (store, mnt) = (store.to_str().unwrap(), mnt.to_str().unwrap());
    // Without allow_other the user may not look into it. With it, only unmounting is refused.
    for options in ["rw", "allow_other"] {
        assert_eq!(said(&["mount", store, mnt, "-o", options]), (0, String::new()));
        let output = place.by_nobody("", &["umount", "mnt"]);
        assert_eq!(output.status.code(), Some(1), "{options}");
        let sentence = text(&output.stderr);
        assert!(sentence.starts_with("zarrfs: ") && sentence.contains("mnt: "), "{sentence}");
        let end = ": root has mounted it; run zarrfs umount as root";
        assert!(sentence.ends_with(end), "{options}: {sentence}");
        assert!(is_mounted(&place.at("mnt")));
        assert_eq!(place.umount(&[]), (0, String::new()));
    }
}

/// Shows: umount.
#[test]
fn umount_names_the_stopped_process_that_it_waits_for() {
    let mount = Mount::fixture("z316__shard_end", &[]);
    let process = stat(&mount, "zarrfs_process_id ");
    let stopped = Stopped::new(process);
    let mut umount = zarrfs();
    umount.arg("umount").arg(mount.path()).stderr(Stdio::piped());
    let mut umount = umount.spawn().unwrap();
    let mut errors = BufReader::new(umount.stderr.take().unwrap());
    let mut sentence = String::new();
    errors.read_line(&mut sentence).unwrap();
    let wanted = format!(
        "zarrfs: {}: waiting for process {process}, which is stopped; kill -CONT {process} \
         resumes it\n",
        mount.path().display()
    );
    assert_eq!(sentence, wanted);
    drop(stopped);
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    assert_eq!((umount.wait().unwrap().code(), rest.as_str()), (Some(0), ""));
}

/// A process in a mount namespace of its own, which has copies of all mounts.
struct WithCopies {
    process: Child,
    _only: File,
}

impl WithCopies {
    fn start() -> Self {
        let only = only_namespace();
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", "echo; read x"]);
        let process = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.unwrap();
        process.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        Self { process, _only: only }
    }
}

impl Drop for WithCopies {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }
}

/// Shows: umount.
#[test]
fn umount_names_the_other_place_where_the_mount_still_is() {
    if !is_root() {
        return;
    }
    let place = Place::new(0);
    let [store, mnt, other] = ["a.zarr", "mnt", "other"].map(|name| place.at(name));
    fs::create_dir(&other).unwrap();
    let mount = || {
        assert_eq!(said(&["mount", store.to_str().unwrap(), mnt.to_str().unwrap()]).0, 0);
        is_mounted(&mnt)
    };
    assert!(mount());
    let with_copy = WithCopies::start();
    let (code, sentence) = place.umount(&[]);
    let wanted = format!(
        "zarrfs: {}: unmounted, but process {} (sh) has the mount in a mount namespace of its own, \
         so the daemon (process ",
        mnt.display(),
        with_copy.process.id()
    );
    assert!(code == 0 && sentence.starts_with(&wanted), "{code} {sentence}");
    assert!(!is_mounted(&mnt));
    drop(with_copy);

    assert!(mount());
    let bind = ["--bind", mnt.to_str().unwrap(), other.to_str().unwrap()];
    assert!(Command::new("mount").args(bind).status().unwrap().success());
    let (code, sentence) = place.umount(&[]);
    let wanted = format!(
        "zarrfs: {}: unmounted, but it is also mounted on {}, so",
        mnt.display(),
        other.display()
    );
    assert!(code == 0 && sentence.starts_with(&wanted), "{code} {sentence}");
    assert_eq!(said(&["umount", other.to_str().unwrap()]), (0, String::new()));
}

/// Shows: signals.
#[test]
fn a_mount_that_a_signal_ends_names_the_process_that_has_a_copy() {
    if !is_root() {
        return;
    }
    let place = Place::new(0);
    let mut daemon = zarrfs();
    daemon.args(["mount", "-f"]).args([place.at("a.zarr"), place.at("mnt")]);
    let mut daemon = daemon.stderr(Stdio::piped()).spawn().unwrap();
    until("mounted", || place.at("mnt/zarr.json").exists());
    let with_copy = WithCopies::start();
    let process = daemon.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
    let mut line = String::new();
    BufReader::new(daemon.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let wanted = format!(
        "unmounted, but process {} (sh) has the mount in a mount namespace of its own, so the \
         daemon (process {process}) goes on until that process ends\n",
        with_copy.process.id()
    );
    assert!(line.ends_with(&wanted), "{line}");
    assert!(!is_mounted(&place.at("mnt")) && daemon.try_wait().unwrap().is_none());
    drop(with_copy);
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

/// Shows: signals.
#[test]
fn a_mount_in_use_that_a_signal_ends_names_the_programs_that_it_waits_for() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mnt) = (dir.path().join("a.zarr"), dir.path().join("mnt"));
    assert_eq!(said(&["create", store.to_str().unwrap()]).0, 0);
    fs::create_dir(&mnt).unwrap();
    let mut daemon = zarrfs();
    daemon.args(["mount", "-f"]).args([&store, &mnt]).stderr(Stdio::piped());
    let mut daemon = daemon.spawn().unwrap();
    until("mounted", || mnt.join("zarr.json").exists());
    let open = File::open(mnt.join("zarr.json")).unwrap();
    let process = daemon.id().to_string();
    assert!(Command::new("kill").args(["-INT", &process]).status().unwrap().success());
    let mut line = String::new();
    BufReader::new(daemon.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let wanted = format!(
        "{}: in use, so it is detached; zarrfs ends when these programs have closed their files \
         or ended: ",
        mnt.display()
    );
    assert!(line.contains(&wanted), "{line}");
    assert!(line.contains(&format!("{} (", std::process::id())), "{line}");
    assert!(!is_mounted(&mnt) && daemon.try_wait().unwrap().is_none());
    drop(open);
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}
