//! Ctrl-C and other signals to a command that has to clean up before it ends.
//!
//! The first signal asks the command to end: it stops before the next chunk. Decoding one chunk may
//! take minutes. So a command that only reads, or that can be killed at any time without harm, does
//! not wait longer than [`GRACE`] for its threads. A second signal ends every command at once.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::output::print;
use crate::store::Store;
use crate::sys;

/// How long a command may take to end by itself.
const GRACE: Duration = Duration::from_secs(1);

/// Signals that are not farther apart are one: a terminal sends Ctrl-C to all processes of a job,
/// and the parent of a command may send it again.
const ONE: Duration = Duration::from_millis(250);

/// How long to wait until the last line is printed: the reader of standard error may hang.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// The exit code of a command that a second signal ends, as in a shell: 128 and SIGINT.
const ENDED_AT_ONCE: i32 = 130;

/// Prints the last lines of a command that does not wait for its threads, and returns how it ends.
pub type GiveUp = Box<dyn FnOnce() -> Failure + Send>;

/// The end of a command that is interrupted.
pub struct Interrupted {
    /// The stores to interrupt.
    pub stores: Vec<Store>,
    /// How to end after [`GRACE`], `None` if the command must clean up.
    pub give_up: Option<GiveUp>,
    /// The files that a second signal leaves behind, as the end of a sentence.
    pub left: String,
}

/// The signals of a command.
#[derive(Debug)]
pub struct Signals {
    /// Whether the command is ending, in one of two ways.
    is_ending: Arc<AtomicBool>,
}

impl Signals {
    /// Marks the end of the work that may end at any time. From here on only a second signal does
    /// not wait.
    pub fn work_has_ended(&self) {
        while self.is_ending.swap(true, Ordering::Relaxed) {
            // The other thread ends the process.
            thread::park();
        }
    }
}

/// Sets `is_stopped` at the first signal, and interrupts all waits for the stores. Call it before
/// any other thread starts, so that only the waiting thread receives signals.
pub fn stop_on_signals(
    is_stopped: &Arc<AtomicBool>,
    interrupted: Interrupted,
) -> Result<Signals, Failure> {
    sys::block_signals()?;
    let is_stopped = Arc::clone(is_stopped);
    let is_ending = Arc::new(AtomicBool::new(false));
    let signals = Signals { is_ending: Arc::clone(&is_ending) };
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Interrupted { stores, give_up, left } = interrupted;
        let (mut give_up, mut first) = (give_up, None);
        while sys::wait_for_signal().is_ok() {
            match first {
                None => {
                    first = Some(Instant::now());
                    is_stopped.store(true, Ordering::Relaxed);
                    for store in &stores {
                        store.read().stop();
                    }
                    if let Some(give_up) = give_up.take() {
                        end_after_grace(give_up, Arc::clone(&is_ending));
                    }
                }
                Some(first) if first.elapsed() < ONE => {}
                Some(_) => end_at_once(&left),
            }
        }
    })?;
    Ok(signals)
}

/// Ends the command if it does not end by itself.
fn end_after_grace(give_up: GiveUp, is_ending: Arc<AtomicBool>) {
    let end = move || {
        thread::sleep(GRACE);
        if is_ending.swap(true, Ordering::Relaxed) {
            return;
        }
        let failure = give_up();
        print::error(&format!("zarrfs: {}", failure.message()));
        exit(i32::from(failure.status()));
    };
    // Without a thread, the command ends when its threads have.
    let _thread = thread::Builder::new().name("grace".to_owned()).spawn(end);
}

fn end_at_once(left: &str) {
    let sentence = format!("zarrfs: ended at once{left}");
    let (printed, is_printed) = std::sync::mpsc::channel();
    let print = move || {
        print::error(&sentence);
        let _late = printed.send(());
    };
    if thread::Builder::new().name("last words".to_owned()).spawn(print).is_ok() {
        let _unread = is_printed.recv_timeout(LAST_WORDS);
    }
    exit(ENDED_AT_ONCE)
}

#[expect(clippy::exit, reason = "threads that decode a chunk cannot be ended in another way")]
fn exit(code: i32) -> ! {
    process::exit(code)
}
