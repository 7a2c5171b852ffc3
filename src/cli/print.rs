//! Writing to the terminal.

use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};
use std::ops::ControlFlow;

use super::failure::{Failure, failed};
use crate::sys;

/// Refuses to go on if standard output is closed: nobody would get what is printed.
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

/// Whether everything was written to standard output. That its reader has gone (`zarrfs tree |
/// head`) is no failure.
pub fn ended(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Lines that are printed as they are made.
#[derive(Debug)]
pub struct Lines(BufWriter<StdoutLock<'static>>);

impl Lines {
    /// None yet.
    pub fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    /// Prints one. Breaks where nobody reads on.
    pub fn print(&mut self, line: &str) -> Result<ControlFlow<()>, Failure> {
        match writeln!(self.0, "{line}") {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
            Err(error) => ended(Err(error)).map(|()| ControlFlow::Continue(())),
        }
    }

    /// Prints what is left of them.
    pub fn end(mut self) -> Result<(), Failure> {
        ended(self.0.flush())
    }
}

/// Prints a line on standard error, and ignores failures.
pub fn error(text: &str) {
    let _nobody = writeln!(io::stderr().lock(), "{text}");
}
