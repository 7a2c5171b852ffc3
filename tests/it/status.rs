//! `zarrfs status`.

use std::fs;
use std::process::Command;

use crate::support::{Mount, only_namespace, said, stat, until, zarrfs};

fn signal(name: &str, process: u64) {
    let killed = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(killed.success());
}

/// Lets a stopped process go on, also if the test fails: its mount holds up other programs.
pub struct Stopped(u64);

impl Stopped {
    pub fn new(process: u64) -> Self {
        signal("-STOP", process);
        let stopped = Self(process);
        // A thread that still runs may take a request: the program that waits for the answer cannot
        // even be killed then.
        until("all threads have stopped", || {
            let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
            threads.map(|thread| thread.unwrap().path().join("stat")).all(|stat| {
                let stat = fs::read_to_string(stat).unwrap_or_default();
                stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
            })
        });
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The test may have killed it.
        let _gone = Command::new("kill").args(["-CONT", &self.0.to_string()]).output();
    }
}

#[test]
fn status_describes_every_mount_also_one_that_is_dead_or_silent() {
    let mut mount =
        Mount::fixture("z316__shard_end", &["--writeback-delay", "1h", "-o", "fsname=x"]);
    mount.expect("mode 0600");
    let path = mount.path().canonicalize().unwrap().to_str().unwrap().to_owned();
    fs::write(mount.at("notes.tmp"), [7; 1000]).unwrap();
    let chmod = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(mount.at("c/0/0"), chmod).expect_err("refused");
    let printed = |args: &[&str]| {
        let output = zarrfs().arg("status").args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let json: serde_json::Value = serde_json::from_str(&printed(&[&path, "--json"])).unwrap();
    let found = &json[0];
    for (name, wanted) in [
        ("mountpoint", serde_json::json!(path)),
        ("state", "serving".into()),
        ("as", "zarr".into()),
        ("read_only", false.into()),
        ("pending_files", 1.into()),
        ("errors", 1.into()),
    ] {
        assert_eq!(found[name], wanted, "{name}: {json}");
    }
    assert!(found["pending_bytes"].as_u64().unwrap() >= 1000, "{json}");
    let since = found["since"].as_str().unwrap();
    assert!(since.starts_with("20") && since.ends_with('Z'), "{json}");
    // A query keeps a mount busy. A separate mount namespace spares the mounts of other tests.
    let only = only_namespace();
    let mut all = Command::new("unshare");
    all.args(["-m", "--propagation", "private", env!("CARGO_BIN_EXE_zarrfs"), "status"]);
    // SAFETY: the call cannot fail or touch memory.
    let all = if unsafe { libc::geteuid() } == 0 {
        String::from_utf8(all.output().unwrap().stdout).unwrap()
    } else {
        printed(&[&path])
    };
    drop(only);
    assert!(all.contains(&path) && all.contains("1 pending file ("), "{all}");
    assert!(all.contains(&format!("1 error, see {path}/.zarrfs/errors")), "{all}");
    let process = stat(&mount, "zarrfs_process_id ");
    let _stopped = Stopped::new(process);
    let text = printed(&[&path]);
    assert!(text.contains("does not answer within 3 s"), "{text}");
    signal("-KILL", process);
    until("the daemon is dead", || printed(&[&path]).contains("dead: no process serves it"));
    let (code, sentence) = said(&["status", "/proc"]);
    assert_eq!((code, sentence.as_str()), (1, "zarrfs: /proc: no hierarchy is mounted there"));
    assert_eq!(said(&["umount", &path]), (0, String::new()));
}
