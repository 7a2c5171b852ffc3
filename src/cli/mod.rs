//! The command: what was typed, what it means, and what it prints.

mod args;
mod cat;
mod convert;
mod create;
mod daemon;
mod demo;
mod info;
mod logger;
mod mount;
mod mounted;
mod open;
mod print;
mod rescue;
mod tree;
mod umount;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::error::Error;
use args::{Args, Command};

/// It did not work.
const FAILED: u8 = 1;
/// Wrong usage.
const USAGE: u8 = 2;

/// Not everything was stored, but all of it was written somewhere.
const RESCUED: u8 = 3;

/// Why a command ended early, as a person is told.
#[derive(Debug)]
enum Failure {
    /// It did not work.
    Failed(String),
    /// It was asked for in a way that makes no sense.
    Usage(String),
    /// The mount has ended; what the store did not take was written elsewhere.
    Rescued(String),
}

impl Failure {
    fn message(&self) -> &str {
        match self {
            Self::Failed(message) | Self::Usage(message) | Self::Rescued(message) => message,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

fn failed(message: impl Into<String>) -> Failure {
    Failure::Failed(message.into())
}

/// Runs the command that `args` ask for, the program's name first.
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
    }
}

/// The exit code of a command; what went wrong is printed.
fn end(done: Result<(), Failure>) -> ExitCode {
    let (code, message) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(message)) => (FAILED, message),
        Err(Failure::Usage(message)) => (USAGE, message),
        Err(Failure::Rescued(message)) => (RESCUED, message),
    };
    print::error(&format!("zarrfs: {message}"));
    ExitCode::from(code)
}
