//! Writing to the terminal.

use std::io::{BufWriter, ErrorKind, StdoutLock, Write};
use std::ops::ControlFlow;

use super::Failure;

/// Prints all of `text`. That its reader has gone (`zarrfs tree | head`) is no failure.
pub fn output(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Lines that are printed as they are made.
#[derive(Debug)]
pub struct Lines(BufWriter<StdoutLock<'static>>);

impl Lines {
    /// None yet.
    pub fn new() -> Self {
        Self(BufWriter::new(std::io::stdout().lock()))
    }

    /// Prints one. Breaks where nobody reads on.
    pub fn print(&mut self, line: &str) -> Result<ControlFlow<()>, Failure> {
        match writeln!(self.0, "{line}") {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
            Err(error) => Err(error.into()),
        }
    }

    /// Prints what is left of them.
    pub fn end(mut self) -> Result<(), Failure> {
        match self.0.flush() {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Prints a line of error, if anybody is there to read it.
pub fn error(text: &str) {
    let _nobody = writeln!(std::io::stderr().lock(), "{text}");
}
