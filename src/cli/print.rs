//! Writing to the terminal.

use std::io::{ErrorKind, Write};

use super::Failure;

/// Prints all of `text`. That its reader has gone (`zarrfs tree | head`) is no failure.
pub fn output(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a line of error, if anybody is there to read it.
pub fn error(text: &str) {
    let _nobody = writeln!(std::io::stderr().lock(), "{text}");
}
