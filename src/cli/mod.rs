//! The command: parses arguments, runs them, and prints results.

mod args;
mod cat;
mod convert;
mod create;
mod daemon;
mod demo;
mod describe;
mod failure;
mod folder;
mod info;
mod logger;
mod mount;
mod mounted;
mod open;
mod print;
mod remote;
mod rescue;
mod tree;
mod umount;
#[cfg(feature = "remote")]
mod uploads;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use failure::{Failure, USAGE};

/// Runs the command in `args`, which begin with the name of the program.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let typed = args::normalize(args);
    let args = match Args::try_parse_from(&typed) {
        Ok(args) => args,
        Err(error) => {
            let printed = error.print();
            if error.use_stderr() {
                return ExitCode::from(USAGE);
            }
            return end(print::check().and_then(|()| print::ended(printed)));
        }
    };
    end(run_command(args.command, &typed))
}

fn run_command(command: Command, typed: &[OsString]) -> Result<(), Failure> {
    if !matches!(command, Command::Mount(_) | Command::Umount(_)) {
        print::check()?;
    }
    match command {
        Command::Mount(mount) => mount::run(&mount, typed),
        Command::Umount(umount) => umount::run(&umount),
        Command::Tree(tree) => tree::run(&tree),
        Command::Info(info) => info::run(&info),
        Command::Cat(cat) => cat::run(&cat),
        Command::Create(create) => create::run(&create),
        Command::Convert(convert) => convert::run(&convert),
        Command::Demo(demo) => demo::run(&demo),
        #[cfg(feature = "remote")]
        Command::Uploads(uploads) => uploads::run(&uploads),
    }
}

/// Returns the exit code of a command. A failure is printed.
fn end(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print::error(&format!("zarrfs: {}", failure.message()));
            failure.code()
        }
    }
}
