//! `zarrfs exec`: runs a command with a hierarchy mounted, which only this command sees.
//!
//! Two processes do it. The *server* serves the mount, outside of it, with no more rights than
//! the user has. The *task* makes a mount namespace (`sys::make_mounts_private`), mounts in it,
//! sends the FUSE device to the server, and runs the command. When the command has ended, the
//! server stores what is left, and ends. With `--join` it serves several tasks.
//!
//! If the task is killed, its socket tells the server. If the server is killed, the kernel answers
//! the command with `ENOTCONN`. In either case the mount vanishes with its namespace.
//!
//! A server inside of the namespaces could not keep the group of a replaced file that belongs to
//! another group of the user, since one user and one group exist there. It would also hold copies
//! of all other mounts of the machine.

mod command;
mod join;
mod messages;
mod mountpoint;
pub mod server;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Pid, WaitOptions, geteuid, setsid, waitpid};

use crate::cli::args::Exec;
use crate::cli::failure::{Failure, failed};
use crate::cli::mount::apart;
use crate::cli::mount::check_mountpoint;
use crate::cli::mount::obstacles;
use crate::cli::mount::options::{Flags, with_options};
use crate::cli::mount::serving::{ServedAt, Starter, raise_readahead};
use crate::cli::mount::typed::Typed;
use crate::fuse;
use crate::sys::{self, Forked, Namespaces};
use join::{JoinListener, JoinTurn, Rendezvous};
use messages::{END, FAILED, MOUNTED, Message, READY, STORED};
use mountpoint::Mountpoint;
use server::Server;

/// Runs a command. `typed` is the whole command line.
pub fn run(args: &Exec, typed: &[OsString]) -> Result<(), Failure> {
    let (args, flags) = with_options(args, typed)?;
    obstacles::check_device()?;
    check_owner(&flags)?;
    let existing = args.mountpoint.as_deref().map(|path| check_mountpoint(path, &flags));
    let existing = existing.transpose()?;
    let started = if args.join {
        let rendezvous = Rendezvous::new(&key(&args, existing.as_deref(), typed));
        let turn = rendezvous.turn()?;
        if let Some(task) = rendezvous.connect(&turn).map(join).transpose()?.flatten() {
            Started::Task(task)
        } else {
            let listener = rendezvous.listen(&turn)?;
            start(&args, &flags, existing, Some((listener, turn)))?
        }
    } else {
        start(&args, &flags, existing, None)?
    };
    let Started::Task(task) = started else { return Ok(()) };
    let ended = command::run(&args.command, &task.mountpoint);
    // Unstored changes are more important than the exit code of the command.
    task.end()?;
    match ended? {
        0 => Ok(()),
        code => Err(Failure::Command(code, String::new())),
    }
}

/// Fails for an owner that does not exist in a user namespace with one user.
fn check_owner(flags: &Flags) -> Result<(), Failure> {
    let own = (geteuid().as_raw(), rustix::process::getegid().as_raw());
    let is_own =
        flags.uid.is_none_or(|uid| uid == own.0) && flags.gid.is_none_or(|gid| gid == own.1);
    if is_own || geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "-o uid and gid: with exec, all files belong to the user who runs it ({}:{}), unless that is \
         root",
        own.0, own.1
    )))
}

/// Returns all that determines a mount: tasks with the same key can share it.
fn key(args: &Exec, mountpoint: Option<&Path>, typed: &[OsString]) -> impl std::hash::Hash {
    let source = args.source.canonicalize().unwrap_or_else(|_| args.source.clone());
    let options = typed.iter().skip(1).take_while(|word| *word != "--");
    let options = options.filter(|word| Path::new(word) != args.source);
    let options: Vec<OsString> = options.cloned().collect();
    (source, mountpoint.map(Path::to_owned), options)
}

/// The two processes after the start of a mount.
enum Started {
    /// The one that runs the command.
    Task(Task),
    /// The server, when it has ended.
    Server,
}

/// A task that has a mount.
struct Task {
    server: UnixStream,
    mountpoint: PathBuf,
    /// The process of the server, and its directory, if they end with this task.
    own: Option<(u32, Mountpoint)>,
}

/// Starts a server, and mounts.
fn start(
    args: &Exec,
    flags: &Flags,
    existing: Option<PathBuf>,
    shared: Option<(JoinListener, JoinTurn)>,
) -> Result<Started, Failure> {
    let place = existing.map_or_else(Mountpoint::new, |path| Ok(Mountpoint::existing(path)))?;
    let (task_end, server_end) = UnixStream::pair()?;
    let (joining, turn) = shared.unzip();
    let process = match sys::fork() {
        Ok(Forked::Child) => {
            // The turn is that of the task.
            drop((task_end, turn));
            serve(args, flags, server_end, place, joining)?;
            return Ok(Started::Server);
        }
        Ok(Forked::Parent(process)) => process,
        Err(error) => {
            place.remove();
            return Err(error.into());
        }
    };
    drop(server_end);
    let mountpoint = place.path().to_owned();
    let is_shared = joining.is_some();
    match mount(args, flags, &mountpoint, &task_end, is_shared) {
        Ok(true) => {
            let own = (!is_shared).then_some((process, place));
            Ok(Started::Task(Task { server: task_end, mountpoint, own }))
        }
        started => {
            drop(task_end);
            wait_for(process);
            place.remove();
            if let Some(joining) = joining {
                joining.remove();
            }
            // Without a failure of the task, the server has printed its own.
            started.and(Err(Failure::Command(1, String::new())))
        }
    }
}

/// Mounts in a new namespace. Returns false if the server has ended before the mount answers.
fn mount(
    args: &Exec,
    flags: &Flags,
    mountpoint: &Path,
    server: &UnixStream,
    is_shared: bool,
) -> Result<bool, Failure> {
    let working = std::env::current_dir();
    sys::make_mounts_private().map_err(|refused| obstacles::explain_namespace(&refused))?;
    let source = args.source.canonicalize().unwrap_or_else(|_| args.source.clone());
    let mount = Typed { path: &args.source, options: &args.options, flags };
    let entry = mount.mount_entry(source.display().to_string());
    let device = fuse::mount_device(mountpoint, &entry)
        .map_err(|error| obstacles::explain_private_mount(mountpoint, &error))?;
    let namespaces = is_shared.then(Namespaces::own).transpose()?;
    let mut descriptors = vec![device.as_fd()];
    if let Some(Namespaces { user, mount }) = &namespaces {
        descriptors.extend([user.as_fd(), mount.as_fd()]);
    }
    messages::send(server, MOUNTED, b"", &descriptors)?;
    // The mount must end with the server.
    drop(device);
    if !matches!(messages::receive(server)?, Some(Message { kind: READY, .. })) {
        return Ok(false);
    }
    raise_readahead(mountpoint);
    if let Ok(working) = working
        && working.starts_with(mountpoint)
    {
        // The working directory is below the mount now.
        std::env::set_current_dir(&working)
            .map_err(|error| failed(format!("{}: {error}", working.display())))?;
    }
    Ok(true)
}

/// Joins the mount of another task. Returns `None` if its server is ending.
fn join(server: UnixStream) -> Result<Option<Task>, Failure> {
    let Some(Message { kind: READY, text, descriptors }) = messages::receive(&server)? else {
        return Ok(None);
    };
    let [user, mount]: [OwnedFd; 2] = descriptors
        .try_into()
        .map_err(|_| failed("the server of the shared mount did not send its namespaces"))?;
    let working = std::env::current_dir()
        .map_err(|error| failed(format!("the working directory: {error}")))?;
    Namespaces { user, mount }
        .enter()
        .map_err(|error| failed(format!("the shared mount cannot be joined: {error}")))?;
    std::env::set_current_dir(&working)
        .map_err(|error| failed(format!("{}: {error}", working.display())))?;
    let mountpoint = PathBuf::from(OsStr::from_bytes(&text));
    Ok(Some(Task { server, mountpoint, own: None }))
}

impl Task {
    /// Lets the server store what is left, and end if this is the last task.
    fn end(self) -> Result<(), Failure> {
        // Programs may have changed mapped files without fsync.
        sys::write_back(&self.mountpoint).unwrap_or_else(|error| log::debug!("{error}"));
        let answer = messages::send(&self.server, END, b"", &[])
            .and_then(|()| messages::receive(&self.server));
        let stored = match answer {
            Ok(Some(Message { kind: STORED, .. })) => Ok(()),
            Ok(Some(Message { kind: FAILED, text, .. })) => {
                Err(failed(String::from_utf8_lossy(&text)))
            }
            _ => Err(failed(
                "the mount ended before the command, because its process was ended or killed; \
                 changes that were not stored by then are lost",
            )),
        };
        // The socket is closed when the server has ended, or goes on for other tasks.
        while let Ok(Some(_)) = messages::receive(&self.server) {}
        if let Some((process, place)) = self.own {
            wait_for(process);
            place.remove();
        }
        stored
    }
}

/// Waits until a child has ended.
fn wait_for(process: u32) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    while let Err(rustix::io::Errno::INTR) = waitpid(process, WaitOptions::empty()) {}
}

/// Serves the mount, in a process of its own.
fn serve(
    args: &Exec,
    flags: &Flags,
    task: UnixStream,
    place: Mountpoint,
    joining: Option<JoinListener>,
) -> Result<(), Failure> {
    // The terminal sends its signals to the command, which may go on after them.
    setsid().map_err(io::Error::from)?;
    let nothing = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    let nothing = nothing.map_err(|error| failed(format!("/dev/null: {error}")))?;
    rustix::stdio::dup2_stdin(&nothing).map_err(io::Error::from)?;
    rustix::stdio::dup2_stdout(&nothing).map_err(io::Error::from)?;
    let Some(Message { kind: MOUNTED, descriptors, .. }) = messages::receive(&task)? else {
        // The task prints why it could not mount.
        return Ok(());
    };
    let mut descriptors = descriptors.into_iter();
    let device = descriptors.next().ok_or_else(|| failed("no FUSE device"))?;
    let namespaces = descriptors.next().zip(descriptors.next());
    let namespaces = namespaces.map(|(user, mount)| Namespaces { user, mount });
    let mountpoint = place.path().to_owned();
    let mount = Typed { path: &args.source, options: &args.options, flags };
    mount.create_if_asked()?;
    let source = mount.source()?;
    apart::check(&source, &mountpoint)?;
    let unwritable = mount.why_unwritable(&source);
    mount.say_if_read_only(&source, unwritable)?;
    let flags = Flags { read_only: flags.read_only || unwritable.is_some(), ..flags.clone() };
    let mount = Typed { flags: &flags, ..mount };
    let server = Arc::new(Server::new(task, mountpoint.clone(), joining, namespaces));
    let starter = Starter::Exec(Arc::clone(&server));
    let ended = mount.serve(
        &source,
        ServedAt { path: &mountpoint, device: Some(device) },
        &starter,
        unwritable,
    );
    place.remove();
    if server.finish(&ended) { Ok(()) } else { ended }
}
