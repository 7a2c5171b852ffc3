//! The `zarrfs` program: everything is in the library.

use std::process::ExitCode;

/// Chunks are large.
#[global_allocator]
static MEMORY: zarrfs::sys::LargePages = zarrfs::sys::LargePages;

fn main() -> ExitCode {
    zarrfs::cli::run(std::env::args_os())
}
