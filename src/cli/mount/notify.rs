//! Reports to systemd that a foreground mount is ready or stops, as `Type=notify` requires
//! (`sd_notify(3)`).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The mount answers.
pub const READY: &str = "READY=1";

/// The mount is about to end.
pub const STOPPING: &str = "STOPPING=1";

/// Sends a state to the supervisor, if there is one.
pub fn send(state: &str) {
    if let Err(error) = try_send(state) {
        log::warn!("cannot send {state} to the supervisor: {error}");
    }
}

fn try_send(state: &str) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
