//! Progress bars on a terminal. A batch job has no terminal, and prints lines instead.
//!
//! [`CommandProgress`] is for commands that only read: its bar appears after a second. Such a
//! command has nothing to clean up, so Ctrl-C ends it as it ends any program. The others use a
//! [`Bar`] that they end themselves.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use super::print;
use crate::cli::failure::{Failure, failed};
use crate::printable::escaped;

/// How long a command runs before it shows a bar.
const DELAY: Duration = Duration::from_secs(1);

/// How often a command without a terminal prints a line.
const TICK: Duration = Duration::from_secs(60);

/// A progress bar on a terminal; without one, a line each minute.
#[derive(Debug)]
pub struct Bar {
    shown: ProgressBar,
    begun: Instant,
    /// The number of lines so far.
    lines: AtomicU64,
    has_terminal: bool,
}

impl Bar {
    /// Returns a bar that looks like `template`, with no steps yet.
    pub fn new(template: &str) -> Result<Self, Failure> {
        let (shown, has_terminal) = (ProgressBar::new(0), std::io::stderr().is_terminal());
        if has_terminal {
            let style = ProgressStyle::with_template(template);
            shown.set_style(style.map_err(|error| failed(error.to_string()))?);
        } else {
            shown.set_draw_target(ProgressDrawTarget::hidden());
        }
        Ok(Self { shown, begun: Instant::now(), lines: AtomicU64::new(0), has_terminal })
    }

    /// Starts over with `len` steps of `what`.
    pub fn begin(&self, what: &str, len: u64) {
        self.shown.set_prefix(escaped(what).into_owned());
        self.shown.reset();
        self.shown.set_length(len);
    }

    /// Adds steps.
    pub fn expect(&self, more: u64) {
        self.shown.inc_length(more);
    }

    /// Counts a step. `done` is the participle for a line: `checked`, `copied`. Any thread may call
    /// it.
    pub fn advance(&self, done: &str) {
        self.shown.inc(1);
        if self.has_terminal {
            return;
        }
        let minutes = self.begun.elapsed().as_secs() / TICK.as_secs();
        if self.lines.fetch_max(minutes, Ordering::Relaxed) < minutes {
            let what = self.shown.prefix();
            let what = if what.is_empty() { what } else { format!("{what}: ") };
            let (at, all) = (self.shown.position(), self.shown.length().unwrap_or_default());
            print::error(&format!("{what}{at} of {all} chunks and shards {done}"));
        }
    }

    /// Prints something above the bar.
    pub fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        self.shown.suspend(print)
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.shown.finish_and_clear();
    }
}

/// Lines that several threads print while a progress bar is shown on standard error.
#[derive(Debug)]
pub struct SharedLines {
    /// A leaf lock.
    state: Mutex<LinesState>,
    /// Set when a line cannot be printed, because the work is useless then.
    is_stopped: Arc<AtomicBool>,
}

#[derive(Debug)]
struct LinesState {
    lines: print::Lines,
    failure: Option<Failure>,
    is_closed: bool,
}

impl SharedLines {
    /// Returns a printer that sets `is_stopped` when a line cannot be printed.
    pub fn new(is_stopped: Arc<AtomicBool>) -> Self {
        let state = LinesState { lines: print::Lines::new(), failure: None, is_closed: false };
        Self { state: Mutex::new(state), is_stopped }
    }

    /// Prints a line above the progress bar.
    pub fn print(&self, bar: &Bar, line: &str) {
        let mut state = self.state.lock();
        if state.is_closed || state.failure.is_some() {
            return;
        }
        match bar.above(|| state.lines.print(line)) {
            Ok(flow) => state.is_closed = flow.is_break(),
            Err(failure) => state.failure = Some(failure),
        }
        if state.is_closed || state.failure.is_some() {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the reader has closed the pipe.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Prints buffered lines. Fails if a line could not be printed.
    pub fn end(&self) -> Result<(), Failure> {
        let mut state = self.state.lock();
        match state.failure.take() {
            Some(failure) => Err(failure),
            None => state.lines.flush(),
        }
    }
}

/// The progress of a command.
#[derive(Debug)]
pub struct CommandProgress {
    begun: Instant,
    what: String,
    /// The number of steps.
    len: u64,
    done: AtomicU64,
    bar: OnceLock<ProgressBar>,
    is_shown: bool,
}

impl CommandProgress {
    /// Returns the progress of `len` steps, with a label in front of the bar.
    pub fn new(what: impl Into<String>, len: u64) -> Self {
        Self {
            begun: Instant::now(),
            what: what.into(),
            len,
            done: AtomicU64::new(0),
            bar: OnceLock::new(),
            is_shown: std::io::stderr().is_terminal(),
        }
    }

    /// Counts a step. Any thread may call it.
    pub fn advance(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if !self.is_shown || self.begun.elapsed() < DELAY {
            return;
        }
        self.bar.get_or_init(|| self.start()).set_position(done);
    }

    fn start(&self) -> ProgressBar {
        let bar = ProgressBar::new(self.len).with_elapsed(self.begun.elapsed());
        if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {eta}") {
            bar.set_style(style);
        }
        bar.set_prefix(escaped(&self.what).into_owned());
        bar
    }
}

impl Drop for CommandProgress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
