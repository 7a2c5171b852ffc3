//! Writing to the terminal.

use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};
use std::ops::ControlFlow;

use super::failure::{Failure, failed};
use crate::sys;

/// Fails if standard output is closed, since the output would be lost.
pub fn check() -> Result<(), Failure> {
    if sys::was_stdout_closed() {
        return Err(failed("standard output is closed: redirect it to a file, or to /dev/null"));
    }
    Ok(())
}

/// Prints all of `text`.
pub fn output(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    ended(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Converts the result of writing to standard output. A broken pipe (`zarrfs tree | head`) is not a
/// failure.
pub fn ended(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Lines that are printed one by one.
#[derive(Debug)]
pub struct Lines(BufWriter<StdoutLock<'static>>);

impl Lines {
    /// Returns a printer without lines.
    pub fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    /// Prints a line. Breaks if the reader has closed the pipe.
    pub fn print(&mut self, line: &str) -> Result<ControlFlow<()>, Failure> {
        match writeln!(self.0, "{line}") {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
            Err(error) => ended(Err(error)).map(|()| ControlFlow::Continue(())),
        }
    }

    /// Prints buffered lines.
    pub fn end(mut self) -> Result<(), Failure> {
        ended(self.0.flush())
    }
}

/// Prints a line on standard error, and ignores failures.
pub fn error(text: &str) {
    let _nobody = writeln!(io::stderr().lock(), "{text}");
}
