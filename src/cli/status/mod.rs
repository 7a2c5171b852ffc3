//! `zarrfs status`: the mounts on this machine, and their pending changes.
//!
//! A separate thread asks each mount, because a mount that hangs does not answer.

pub mod mounted;
pub mod stats;

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::cli::args::Status;
use crate::cli::failure::{Failure, failed};
use crate::cli::output::print;
use crate::cli::output::size;
use crate::cli::umount::dead;
use crate::cli::umount::rescue::{ChangeKind, UnstoredLine};
use crate::cli::umount::{self, KIND, MountLine, user_name};
use crate::printable::escaped;
use crate::vfs::timestamp;
use stats::Stats;

/// The longest time to wait for the answers of all mounts.
const PATIENCE: Duration = Duration::from_secs(3);

/// The answer of a mount.
#[derive(Debug)]
enum MountState {
    Serving(Serving),
    /// No process serves it.
    Dead,
    /// It does not answer in time.
    Silent,
    /// It refused to answer, for this reason.
    Refused(String),
    /// Another file system.
    Foreign,
}

/// The report of a mount that answers.
#[derive(Debug)]
struct Serving {
    stats: Stats,
    pending_files: usize,
    pending_directories: usize,
}

/// Prints the mounts.
pub fn run(args: &Status) -> Result<(), Failure> {
    let mounts = selected(args)?;
    let asked: Vec<_> = mounts.into_iter().map(|mount| (ask(&mount.path), mount)).collect();
    let deadline = Instant::now() + PATIENCE;
    let mut shown = Vec::new();
    for (answer, mount) in asked {
        let state = answered(&answer?, deadline);
        if matches!(state, MountState::Foreign) {
            if args.mountpoints.is_empty() {
                continue;
            }
            return Err(no_mount(&mount.path));
        }
        shown.push((mount, state));
    }
    if args.json {
        let all: Vec<Value> = shown.iter().map(|(mount, state)| as_json(mount, state)).collect();
        return print::json(&Value::from(all));
    }
    print::output(&shown.iter().map(|(mount, state)| as_text(mount, state)).collect::<String>())
}

/// Returns the mounts that the user named, or all.
fn selected(args: &Status) -> Result<Vec<MountLine>, Failure> {
    let mut mounts = umount::mounts()?;
    if args.mountpoints.is_empty() {
        mounts.retain(|mount| mount.kind() == KIND);
        return Ok(mounts);
    }
    let mut named = Vec::new();
    for path in &args.mountpoints {
        let wanted = umount::located(path)
            .map_err(|error| failed(format!("{}: {error}", path.display())))?;
        let at = mounts.iter().rposition(|mount| mount.path == wanted && mount.is_fuse());
        let at = at.ok_or_else(|| no_mount(path))?;
        named.push(mounts.remove(at));
    }
    Ok(named)
}

fn no_mount(path: &Path) -> Failure {
    failed(format!("{}: no hierarchy is mounted there", path.display()))
}

/// Asks a mount.
fn ask(mountpoint: &Path) -> io::Result<Receiver<MountState>> {
    let (tell, answer) = mpsc::channel();
    let mountpoint = mountpoint.to_owned();
    thread::Builder::new().name("status".to_owned()).spawn(move || {
        // The command does not wait for late answers.
        let _late = tell.send(state(&mountpoint));
    })?;
    Ok(answer)
}

fn answered(answer: &Receiver<MountState>, deadline: Instant) -> MountState {
    match answer.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(state) => state,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => MountState::Silent,
    }
}

fn state(mountpoint: &Path) -> MountState {
    match dead::alive(mountpoint) {
        Err(error) if dead::is_dead(&error) => return MountState::Dead,
        // The directory of the store was removed, but the mount answers.
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {}
        Err(error) => return MountState::Refused(error.to_string()),
        Ok(_) => {}
    }
    let Some(stats) = Stats::of(mountpoint) else { return MountState::Foreign };
    let pending = std::fs::read_to_string(mountpoint.join(".zarrfs/unstored"));
    match pending.and_then(|text| UnstoredLine::parse(&text)) {
        Ok(pending) => {
            let is_directory = |unstored: &&UnstoredLine| unstored.change == ChangeKind::Directory;
            let pending_directories = pending.iter().filter(is_directory).count();
            let pending_files = pending.len().saturating_sub(pending_directories);
            MountState::Serving(Serving { stats, pending_files, pending_directories })
        }
        Err(error) => MountState::Refused(error.to_string()),
    }
}

impl Serving {
    fn number(&self, name: &str) -> u64 {
        self.stats.number(name).unwrap_or_default()
    }

    fn form(&self) -> String {
        self.stats.label("form").unwrap_or_default()
    }

    /// Describes the pending changes.
    fn pending(&self) -> String {
        let len = size::human(self.number("unstored_bytes"));
        let files = match self.pending_files {
            0 => None,
            1 => Some(format!("1 pending file ({len})")),
            count => Some(format!("{count} pending files ({len})")),
        };
        let directories = match self.pending_directories {
            0 => None,
            1 => Some("1 pending directory".to_owned()),
            count => Some(format!("{count} pending directories")),
        };
        let pending: Vec<String> = files.into_iter().chain(directories).collect();
        if pending.is_empty() { "nothing pending".to_owned() } else { pending.join(", ") }
    }

    /// Returns the time of the mount in RFC 3339.
    fn since(&self) -> String {
        let since = Duration::from_secs(self.number("start_time_seconds"));
        timestamp(SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH))
    }
}

fn as_text(mount: &MountLine, state: &MountState) -> String {
    let path = mount.path.display();
    let access = if mount.is_read_only() { "read-only" } else { "read-write" };
    let user = mount.user().map(|user| format!(", by {}", user_name(user))).unwrap_or_default();
    let mut text = format!("{}\n", escaped(&format!("{path}  {}", mount.source.display())));
    let line = match state {
        MountState::Serving(serving) => {
            let errors = match serving.number("errors_total") {
                0 => "no errors".to_owned(),
                1 => format!("1 error, see {path}/.zarrfs/errors"),
                count => format!("{count} errors, see {path}/.zarrfs/errors"),
            };
            let (form, since, pending) = (serving.form(), serving.since(), serving.pending());
            let process = serving.number("process_id");
            format!(
                "as {form}, {access}, since {since}{user}, process {process}; {pending}; {errors}"
            )
        }
        MountState::Dead => {
            format!("{access}{user}; dead: no process serves it; `zarrfs umount {path}` removes it")
        }
        MountState::Silent => {
            format!("{access}{user}; does not answer within {} s", PATIENCE.as_secs())
        }
        MountState::Refused(why) => format!("{access}{user}; cannot be read: {why}"),
        MountState::Foreign => "another file system".to_owned(),
    };
    // Writing to a string does not fail.
    let _never = writeln!(text, "  {}", escaped(&line));
    text
}

fn as_json(mount: &MountLine, state: &MountState) -> Value {
    let mut value = json!({
        "mountpoint": mount.path.to_string_lossy(),
        "source": mount.source.to_string_lossy(),
        "read_only": mount.is_read_only(),
        "user": mount.user().map(user_name),
        "state": match state {
            MountState::Serving(_) => "serving",
            MountState::Dead => "dead",
            MountState::Silent => "silent",
            MountState::Refused(_) => "refused",
            MountState::Foreign => "foreign",
        },
    });
    if let (MountState::Serving(serving), Some(object)) = (state, value.as_object_mut()) {
        let more = [
            ("as", json!(serving.form())),
            ("since", json!(serving.since())),
            ("process", json!(serving.number("process_id"))),
            ("pending_files", json!(serving.pending_files)),
            ("pending_directories", json!(serving.pending_directories)),
            ("pending_bytes", json!(serving.number("unstored_bytes"))),
            ("errors", json!(serving.number("errors_total"))),
        ];
        object.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    if let (MountState::Refused(why), Some(object)) = (state, value.as_object_mut()) {
        object.insert("reason".to_owned(), json!(why));
    }
    value
}
