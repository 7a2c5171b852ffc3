//! Progress bars on a terminal, and lines for a batch job, which has none.
//!
//! [`Progress`] is for commands that only read: its bar appears after a second. Such a command has
//! nothing to clean up, so Ctrl-C ends it as it ends any program. The others use a [`bar`] that
//! they end themselves.

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::failure::{Failure, failed};
use super::print;

/// How long a command works without a bar.
const DELAY: Duration = Duration::from_secs(1);

/// How often a command without a terminal prints a line.
const TICK: Duration = Duration::from_secs(60);

/// Returns a progress bar, which is hidden without a terminal.
pub fn bar(template: &str) -> Result<ProgressBar, Failure> {
    let bar = ProgressBar::new(0);
    if std::io::stderr().is_terminal() {
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.map_err(|error| failed(error.to_string()))?);
    } else {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    Ok(bar)
}

/// Prints a line each minute if there is no terminal for a bar.
#[derive(Debug)]
pub struct Ticker {
    begun: Instant,
    /// The number of lines so far.
    lines: AtomicU64,
    is_used: bool,
}

impl Ticker {
    /// Returns a ticker that starts now.
    pub fn new() -> Self {
        let is_used = !std::io::stderr().is_terminal();
        Self { begun: Instant::now(), lines: AtomicU64::new(0), is_used }
    }

    /// Prints `line` if it is time. Any thread may call it.
    pub fn tick(&self, line: impl FnOnce() -> String) {
        if !self.is_used {
            return;
        }
        let minutes = self.begun.elapsed().as_secs() / TICK.as_secs();
        let printed = self.lines.fetch_max(minutes, Ordering::Relaxed);
        if printed < minutes {
            print::error(&line());
        }
    }
}

/// The progress of a command.
#[derive(Debug)]
pub struct Progress {
    begun: Instant,
    what: String,
    /// The number of steps.
    len: u64,
    done: AtomicU64,
    bar: OnceLock<ProgressBar>,
    is_shown: bool,
}

impl Progress {
    /// Returns the progress of `len` steps, with a few words that stand before the bar.
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
        bar.set_prefix(self.what.clone());
        bar
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
