//! The command: parses arguments, runs them, and prints results.

mod args;
mod cat;
mod check;
mod convert;
mod create;
mod demo;
mod diff;
mod exec;
mod failure;
mod info;
mod interrupt;
mod mount;
mod open;
mod output;
#[cfg(feature = "serve")]
mod serve;
mod status;
mod tree;
mod umount;
#[cfg(feature = "remote")]
mod uploads;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Args, Command, limits, pages};
use failure::{Failure, USAGE};
use mount::{helper, options};
use output::{logger, print};
use umount::auto_unmount;

/// Runs the command in `args`, which begin with the name of the program.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    crate::resources::share_freed_memory();
    let args: Vec<OsString> = args.into_iter().collect();
    let typed = match helper::translate(&args) {
        Some(Ok(typed)) => typed,
        Some(Err(failure)) => return end(Err(failure)),
        None => args::normalize(args, &Args::command()),
    };
    if limits::are_asked_for(&typed) {
        return end(limits::print_all());
    }
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
    limits::apply(&args.limits);
    end(run_command(args.command, &typed))
}

/// Whether `zarrfs mount` accepts this value of `-o`. Mounts nothing.
pub fn accepts_options(options: &str) -> bool {
    let typed = ["zarrfs", "mount", "a.zarr", "mnt", "-o", options].map(OsString::from);
    match Args::try_parse_from(&typed) {
        Ok(Args { command: Command::Mount(mount), .. }) => {
            options::with_options(&mount, &typed).is_ok()
        }
        _ => false,
    }
}

fn run_command(command: Command, typed: &[OsString]) -> Result<(), Failure> {
    let prints_nothing = matches!(
        command,
        Command::Mount(_) | Command::Umount(_) | Command::Exec(_) | Command::AutoUnmount(_)
    );
    if !prints_nothing {
        let is_diff = matches!(command, Command::Diff(_));
        print::check().map_err(|failure| if is_diff { diff::exit_2(failure) } else { failure })?;
    }
    // The others decide where their log goes.
    let logs_itself = prints_nothing || has_own_log(&command);
    if !logs_itself {
        let sink = match command {
            Command::Check(_) => logger::Sink::Check,
            _ => logger::Sink::Command,
        };
        logger::start(log::LevelFilter::Warn, sink)?;
    }
    match command {
        Command::Mount(mount) => mount::run(&mount, typed),
        Command::AutoUnmount(args) => auto_unmount::run(&args),
        Command::Exec(exec) => exec::run(&exec, typed),
        Command::Umount(umount) => umount::run(&umount),
        Command::Status(status) => status::run(&status),
        Command::Tree(tree) => tree::run(&tree),
        Command::Info(info) => info::run(&info),
        Command::Cat(cat) => cat::run(&cat),
        Command::Check(check) => check::run(&check),
        Command::Create(create) => create::run(&create),
        Command::Convert(convert) => convert::run(&convert),
        Command::Import(args) => convert::import::run(&args),
        Command::Diff(diff) => diff::run(&diff),
        #[cfg(feature = "serve")]
        Command::Serve(serve) => serve::run(&serve),
        Command::Demo(demo) => demo::run(&demo),
        Command::Completions(completions) => pages::completions(&completions),
        Command::Man(man) => pages::man(&man),
        #[cfg(feature = "remote")]
        Command::Uploads(uploads) => uploads::run(&uploads),
    }
}

/// Whether a command that prints chooses where its log goes, or starts one that does.
fn has_own_log(command: &Command) -> bool {
    #[cfg(feature = "serve")]
    if matches!(command, Command::Serve(_)) {
        return true;
    }
    matches!(command, Command::Demo(_))
}

/// Returns the exit code of a command. A failure is printed.
fn end(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message().is_empty() {
                print::error(&format!("zarrfs: {}", failure.message()));
            }
            failure.code()
        }
    }
}
