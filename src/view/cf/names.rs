//! Unique names that netCDF accepts.

use std::collections::HashSet;

use unicode_normalization::UnicodeNormalization;

/// The longest name. netCDF allows 256 bytes; the rest is for suffixes of names that are in use.
const MAX_NAME_LEN: usize = 240;

/// The most underscores to append to a name that is in use.
const MAX_UNDERSCORES: usize = 4;

/// Returns a name that netCDF accepts: composed (NFC), without slashes and control characters,
/// beginning with a letter, digit or underscore, not ending with a space, and not too long.
pub(crate) fn clean(name: &str) -> String {
    let trimmed = name.trim_end_matches(' ');
    let mut clean: String =
        trimmed.nfc().map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
    let is_first = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
    if !clean.starts_with(is_first) {
        clean.insert(0, '_');
    }
    while clean.len() > MAX_NAME_LEN {
        clean.pop();
    }
    clean.truncate(clean.trim_end_matches(' ').len());
    clean
}

/// Returns a unique name in a file for each of `names`, in order: the result of `fitting`, or a
/// variant of it if another name or `taken` has it. A name that fits stays unchanged, so a program
/// never finds a different object under it. Changed names are never in `avoided`.
pub(crate) fn distinct<'n>(
    names: impl Iterator<Item = &'n str> + Clone,
    taken: &mut HashSet<String>,
    avoided: &HashSet<String>,
    fitting: impl Fn(&str) -> String,
) -> Vec<String> {
    let kept: Vec<bool> =
        names.clone().map(|name| fitting(name) == name && taken.insert(name.to_owned())).collect();
    taken.extend(avoided.iter().cloned());
    let mut kept = kept.into_iter();
    names
        .map(|name| match kept.next() {
            Some(true) => name.to_owned(),
            _ => unused(taken, fitting(name)),
        })
        .collect()
}

/// Returns the name, with underscores appended if it is in use, or with a number after too many.
pub(crate) fn unused(names: &mut HashSet<String>, mut name: String) -> String {
    for _ in 0..MAX_UNDERSCORES {
        if names.insert(name.clone()) {
            return name;
        }
        name.push('_');
    }
    let mut number = names.len();
    loop {
        let numbered = format!("{name}{number}");
        if names.insert(numbered.clone()) {
            return numbered;
        }
        number = number.saturating_add(1);
    }
}
