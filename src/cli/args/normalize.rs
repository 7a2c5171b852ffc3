//! Rewrites arguments that clap would not understand as users mean them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use clap::Command;
use percent_encoding::percent_decode_str;

use super::describe::Plot;

/// Turns `zarrfs SOURCE MOUNTPOINT` into `zarrfs mount SOURCE MOUNTPOINT`. If the first word is
/// neither one of the commands of `program` nor like a path, clap reports it.
pub fn normalize(args: Vec<OsString>, program: &Command) -> Vec<OsString> {
    let mut args = without_file_urls(args);
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

/// Turns the URLs of local files into paths.
fn without_file_urls(args: Vec<OsString>) -> Vec<OsString> {
    let mut is_foreign = false;
    let path = |word: OsString| {
        is_foreign |= word == "--";
        if is_foreign {
            return word;
        }
        let word = volume_of_url(word);
        match word.to_str().and_then(path_of_url) {
            Some(path) => path,
            None => word,
        }
    };
    args.into_iter().map(path).collect()
}

/// What may stand in front of a source, as `cli/open/references.rs` reads it.
const PREFIXES: [&str; 4] = ["icechunk+", "kerchunk+", "file+", "precomputed+"];

/// Returns a volume as zarrfs names it for one in the words of Neuroglancer:
/// `precomputed://gs://bucket/volume`.
fn volume_of_url(word: OsString) -> OsString {
    let rest = word.to_str().and_then(|word| word.strip_prefix("precomputed://"));
    rest.map(|rest| format!("precomputed+{rest}").into()).unwrap_or(word)
}

/// Returns the path in `file:///path` or `file://localhost/path`, also after the prefix of
/// references. `None` for other words.
fn path_of_url(word: &str) -> Option<OsString> {
    let prefix = PREFIXES.into_iter().find(|prefix| word.starts_with(prefix));
    let prefix = prefix.unwrap_or_default();
    let rest = word.strip_prefix(prefix)?.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let bytes = prefix.bytes().chain(percent_decode_str(path)).collect();
    path.starts_with('/').then(|| OsString::from_vec(bytes))
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

/// Joins `--plot 0,:,:`, `--plot FILE.png` and `--sample 5%` into one word. The values are
/// optional, so clap would take the next word for SOURCE.
fn with_values(args: Vec<OsString>) -> Vec<OsString> {
    let is_value = |option: &OsString, word: &OsString| {
        let Some(word) = word.to_str() else { return false };
        let is_of = |more: &[u8]| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit() || more.contains(&b))
        };
        let is_region = option == "--plot" && is_of(b"[]:,- ") && word.contains([':', ',']);
        let is_image = option == "--plot" && Plot::is_file(word);
        is_region || is_image || (option == "--sample" && is_of(b".%"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_a_local_file_is_its_path() {
        for (word, path) in [
            ("file:///data/a%20b.zarr#x", Some("/data/a b.zarr#x")),
            ("file://localhost/data/a%zz", Some("/data/a%zz")),
            ("kerchunk+file:///r.json", Some("kerchunk+/r.json")),
            ("icechunk+file:///r@main", Some("icechunk+/r@main")),
            ("file://host/data", None),
            ("file:///", Some("/")),
            ("s3://bucket/a", None),
            ("a/file:///b", None),
        ] {
            assert_eq!(path_of_url(word), path.map(OsString::from), "{word}");
        }
        let words = ["zarrfs", "exec", "file:///a", "--", "cat", "file:///b"].map(OsString::from);
        let words = without_file_urls(words.to_vec());
        assert_eq!((&words[2], &words[5]), (&"/a".into(), &"file:///b".into()));
    }
}
