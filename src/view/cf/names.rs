//! Names that netCDF accepts, and that differ from each other.

use std::collections::HashSet;

use unicode_normalization::UnicodeNormalization;

/// netCDF takes names of 256 bytes; something may yet be added to one that is taken.
const MAX_NAME_LEN: usize = 240;

/// Underscores that are put behind a name that is taken.
const MAX_UNDERSCORES: usize = 4;

/// Makes a name fit netCDF: composed (NFC), without slashes and control characters, beginning with
/// a letter, digit or underscore, not ending with a space, and not too long.
pub(in crate::view) fn clean(name: &str) -> String {
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

/// Returns the names that things get in a file, in their order: what `fitting` makes of each, and
/// none of those in `taken`. A name that fits as it is stays, so a program never finds something
/// else under it. The other things get names that are left over, and never one in `avoided`.
pub(in crate::view) fn distinct<'n>(
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

/// Returns the name, or with underscores behind it where it is taken; with a number where many have
/// it.
pub(in crate::view) fn unused(names: &mut HashSet<String>, mut name: String) -> String {
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
