//! Writing to the terminal.

use std::io::{self, BufWriter, ErrorKind, Stdout, Write};
use std::ops::ControlFlow;

use serde_json::Value;

use crate::cli::failure::{Failure, failed};
use crate::printable::{escaped, escaped_json};
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
pub struct Lines(BufWriter<Stdout>);

impl Lines {
    /// Returns a printer without lines.
    pub fn new() -> Self {
        Self(BufWriter::new(io::stdout()))
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
    pub fn flush(&mut self) -> Result<(), Failure> {
        ended(self.0.flush())
    }
}

/// Prints a value as JSON that a person may read, too.
pub fn json(value: &Value) -> Result<(), Failure> {
    output(&format!("{}\n", escaped_json(&format!("{value:#}"))))
}

/// Like [`escaped`], but keeps colours (`ESC [ 1 ; 34 m`). Names and values of a hierarchy must be
/// escaped before they become a part of `line`, because they may have colours, too.
pub fn colored(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("\x1b[") {
        let (before, sequence) = rest.split_at(at);
        shown.push_str(&escaped(before));
        let is_of_color = |c: char| matches!(c, '\x1b' | '[' | ';' | 'm') || c.is_ascii_digit();
        let len = sequence.find('m').map_or(0, |end| end + 1);
        let (color, after) = sequence.split_at(len);
        if len > 0 && color.chars().all(is_of_color) {
            shown.push_str(color);
            rest = after;
        } else {
            let (start, after) = sequence.split_at(1);
            shown.push_str(&escaped(start));
            rest = after;
        }
    }
    shown.push_str(&escaped(rest));
    shown
}

/// Prints a line on standard error, and ignores failures.
pub fn error(line: &str) {
    let _nobody = writeln!(io::stderr().lock(), "{}", escaped(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_reach_the_terminal() {
        assert_eq!(
            colored("\x1b[1;34mt2m\x1b[0m  \x1b]0;x\x07"),
            "\x1b[1;34mt2m\x1b[0m  \\u{1b}]0;x\\u{7}"
        );
        assert_eq!(colored("\x1b[2J \x1b[ m \x1b"), "\\u{1b}[2J \\u{1b}[ m \\u{1b}");
    }
}
