//! Rewrites arguments that clap would not understand as users mean them.

use std::ffi::OsString;
use std::path::Path;

use clap::Command;

/// Turns `zarrfs SOURCE MOUNTPOINT` into `zarrfs mount SOURCE MOUNTPOINT`. If the first word is
/// neither one of the commands of `program` nor like a path, clap reports it.
pub fn normalize(mut args: Vec<OsString>, program: &Command) -> Vec<OsString> {
    let is_command = |arg: &OsString| arg == "help" || program.find_subcommand(arg).is_some();
    let is_option = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
    let is_create = |arg: &OsString| arg == "--create";
    let global = |arg: &OsString| {
        arg.to_str().is_some_and(|arg| matches!(arg, "-h" | "--help" | "-V" | "--version"))
    };
    let begin = after_limits(&args);
    let positional = args.iter().skip(begin).filter(|arg| !is_option(arg)).count();
    match args.get(begin) {
        Some(first) if is_command(first) || global(first) => {}
        Some(first) if is_option(first) && positional < 2 => {}
        Some(first) if is_option(first) || is_path(first) || args.iter().any(is_create) => {
            args.insert(begin, "mount".into());
        }
        Some(_) | None => {}
    }
    with_values(args)
}

/// Returns the position of the first word after options that may stand before a command.
fn after_limits(args: &[OsString]) -> usize {
    let mut at = 1;
    loop {
        match args.get(at) {
            Some(word) if word == "--limit" => at = at.saturating_add(2),
            Some(word) if word.as_encoded_bytes().starts_with(b"--limit=") => {
                at = at.saturating_add(1);
            }
            _ => return at.min(args.len()),
        }
    }
}

/// Joins `--plot 0,:,:` and `--sample 5%` into one word. The values are optional, so clap would
/// take the next word for SOURCE.
fn with_values(args: Vec<OsString>) -> Vec<OsString> {
    let is_value = |option: &OsString, word: &OsString| {
        let Some(word) = word.to_str() else { return false };
        let is_of = |more: &[u8]| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit() || more.contains(&b))
        };
        let is_region = option == "--plot" && is_of(b"[]:,- ") && word.contains([':', ',']);
        is_region || (option == "--sample" && is_of(b".%"))
    };
    let mut joined: Vec<OsString> = Vec::with_capacity(args.len());
    let mut is_foreign = false;
    for word in args {
        // After `--`, the words of another program may follow.
        is_foreign |= word == "--";
        match joined.last_mut().filter(|_| !is_foreign) {
            Some(option) if is_value(option, &word) => {
                option.push("=");
                option.push(word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

/// Whether a word is more likely a path than a misspelled command.
fn is_path(word: &OsString) -> bool {
    word.as_encoded_bytes().iter().any(|byte| b"/.#:".contains(byte)) || Path::new(word).exists()
}
