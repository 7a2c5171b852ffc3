//! The log of the daemon, and its destinations.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Mount, Second, copy, stat, umount, until, zarrfs};

const FIXTURE: &str = "z316__shard_end";

fn signal(name: &str, process: u64) {
    let killed = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(killed.success());
}

fn is_time_stamp(line: &str) -> bool {
    let form = "0000-00-00T00:00:00Z zarrfs: ";
    line.len() > form.len()
        && line.chars().zip(form.chars()).all(|(char, form)| match form {
            '0' => char.is_ascii_digit(),
            form => char == form,
        })
}

/// Shows: log, signals.
#[test]
fn equal_errors_are_counted_and_a_rotated_log_file_is_opened_again() {
    let mut mount = Mount::fixture(FIXTURE, &["--log-level", "info"]);
    for part in ["info: ", "mode 0600"] {
        mount.expect(part);
    }
    let log = mount.path().with_file_name("log");
    let chunk = mount.at("c/0/0");
    let chmod = || fs::set_permissions(&chunk, std::os::unix::fs::PermissionsExt::from_mode(0o600));
    for _ in 0..10_000 {
        chmod().expect_err("refused");
    }
    let process = stat(&mount, "zarrfs_process_id ");
    let rotated = log.with_extension("1");
    fs::rename(&log, &rotated).unwrap();
    signal("-HUP", process);
    until("the log file is opened again", || log.exists());
    signal("-USR1", process);
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    until("the counters are logged", || read(&log).contains("errors_total=10000"));
    assert!(mount.at("zarr.json").exists(), "SIGHUP has unmounted");
    mount.unmount();
    let (old, new) = (read(&rotated), read(&log));
    let lines: Vec<&str> = old.lines().chain(new.lines()).collect();
    assert!(lines.len() < 10, "{lines:#?}");
    assert!(lines.iter().all(|line| is_time_stamp(line)), "{lines:#?}");
    assert!(old.contains(" is mounted on ") && old.contains("warn: setattr: c/0/0"), "{old}");
    assert!(new.contains("(repeated 9999 times)"), "{new}");
    assert!(new.contains(" is unmounted from "), "{new}");
}

/// A copy of the fixture with a mountpoint beside it.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(FIXTURE);
    copy(&fixture.join("store"), &dir.path().join("store"));
    fs::create_dir(dir.path().join("mnt")).unwrap();
    dir
}

#[test]
fn a_background_mount_logs_to_the_system() {
    let log = Path::new("/dev/log");
    // SAFETY: the call cannot fail or touch memory.
    if unsafe { libc::geteuid() } != 0 || log.exists() {
        eprintln!("not root, or the system has a log: this shows nothing");
        return;
    }
    let place = place();
    let dir = place.path();
    let socket = UnixDatagram::bind(log).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mount = Second::mount(&dir.join("store"), &dir.join("mnt"));
    let chunk = dir.join("mnt/c/0/0");
    let refused = fs::set_permissions(&chunk, std::os::unix::fs::PermissionsExt::from_mode(0o613));
    // Other tests may mount without a log file, too.
    let mut line = String::new();
    while refused.is_err() && !line.contains("mode 0613") {
        let mut bytes = [0; 4096];
        let len = socket.recv(&mut bytes).unwrap();
        line = String::from_utf8_lossy(&bytes[..len]).into_owned();
    }
    fs::remove_file(log).unwrap();
    drop(mount);
    assert!(line.starts_with("<28>zarrfs[") && line.contains("]: warn: setattr: "), "{line}");
}

#[test]
fn a_foreground_mount_logs_on_standard_error_and_reports_to_its_supervisor() {
    let place = place();
    let dir = place.path();
    let socket = UnixDatagram::bind(dir.join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let received = || {
        let mut bytes = [0; 64];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    };
    let child = zarrfs()
        .args(["mount", "-f", "--log-level", "info"])
        .args([dir.join("store"), dir.join("mnt")])
        .env("NOTIFY_SOCKET", dir.join("notify"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(received(), "READY=1");
    assert!(dir.join("mnt/zarr.json").exists());
    signal("-TERM", u64::from(child.id()));
    assert_eq!(received(), "STOPPING=1");
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && text.lines().all(is_time_stamp), "{text}");
    assert!(text.contains("is mounted on") && text.contains("is unmounted from"), "{text}");
}

#[test]
fn every_read_has_a_line_in_the_access_log() {
    let mount = Mount::new(&["--create"]);
    let log = mount.path().with_file_name("reads");
    mount.unmount();
    let options = ["--access-log", log.to_str().unwrap(), "-o", "direct_io,nopassthrough"];
    mount.mount_again(&options);
    fs::write(mount.at("notes.txt"), [7; 100]).unwrap();
    mount.unmount();
    mount.mount_again(&options);
    let mut bytes = [0; 10];
    let file = fs::File::open(mount.at("notes.txt")).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 20).unwrap();
    drop(file);
    mount.unmount();
    let text = fs::read_to_string(&log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let found = lines.filter(|line| line["path"] == "notes.txt").collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{text}");
    assert_eq!((&found[0]["offset"], &found[0]["length"]), (&20.into(), &10.into()), "{text}");
    assert!(found[0]["microseconds"].is_u64() && found[0]["how"].is_string(), "{text}");
}

/// Shows: log.
#[test]
fn what_the_daemon_writes_cannot_lie_below_its_mountpoint() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    std::os::unix::fs::symlink("mnt", at("link")).unwrap();
    std::os::unix::fs::symlink("mnt/later", at("dangling")).unwrap();
    fs::create_dir(at("bound")).unwrap();
    let bound = Command::new("mount").args(["--bind"]).arg(at("mnt")).arg(at("bound")).output();
    let is_bound = bound.is_ok_and(|done| done.status.success());
    let mut paths = vec!["mnt/x", "mnt", "mnt/a/b/x", "link/x", "dangling", "link/../mnt/x"];
    paths.extend(is_bound.then_some("bound/x"));
    for option in ["--log-file", "--access-log", "--rescue", "--disk-cache"] {
        for path in &paths {
            for is_background in [true, false] {
                let mut mount = zarrfs();
                mount.arg("mount").arg(at("store")).arg(at("mnt")).arg(option).arg(path);
                mount.args((!is_background).then_some("-f")).current_dir(place.path());
                let output = mount.output().unwrap();
                let said = String::from_utf8(output.stderr).unwrap();
                assert_eq!(output.status.code(), Some(1), "{option} {path}: {said}");
                assert!(said.contains(option) && said.contains("below the mountpoint"), "{said}");
                assert_eq!(said.lines().count(), 1, "{said}");
            }
        }
    }
    if is_bound {
        assert!(Command::new("umount").arg(at("bound")).status().unwrap().success());
    }
    // A name that begins with that of the mountpoint is another one.
    let mut mount = zarrfs();
    mount.arg("mount").arg(at("store")).arg(at("mnt")).arg("--log-file").arg(at("mnt.log"));
    assert!(mount.status().unwrap().success());
    assert!(umount(&[at("mnt")]).status.success());
}
