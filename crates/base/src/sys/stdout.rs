//! Whether standard output was open when the process was started.
//!
//! The runtime of Rust opens `/dev/null` instead of a closed standard stream before `main`, so a
//! program would lose its output without an error.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before the runtime of Rust.
extern "C" fn look() {
    // SAFETY: the call takes no pointers, and reports a closed descriptor as an error.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags == -1, Ordering::Relaxed);
}

// SAFETY: the section holds pointers to functions of this type, which are called once each, by one
// thread.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Whether standard output was closed.
pub fn was_stdout_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}
