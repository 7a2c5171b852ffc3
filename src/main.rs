//! The `zarrfs` program: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    zarrfs::cli::run(std::env::args_os())
}
