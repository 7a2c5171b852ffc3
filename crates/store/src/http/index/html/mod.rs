//! Lists in HTML: nginx, Apache, lighttpd, Python's http.server, Jetty and others.
//!
//! They have a title of a few words and a link for each name. Their sizes are rounded, so only the
//! names count. A page that does not end as HTML was cut.

use reqwest::Url;

use super::names::{IndexEntry, IndexNames, name_of};

/// How the titles of lists begin.
const TITLES: [&str; 6] = [
    "Index of ",
    "Directory listing for ",
    "Directory Listing For ",
    "Directory: ",
    "Directory listing of ",
    "Listing of ",
];

/// The longest reference to a character, with its semicolon: `&#x0010ffff;`.
const LONGEST_REFERENCE: usize = 12;

/// Returns the names in a list; `None` if the page is none. Stops when there are more than `most`.
pub fn parse(page: &Url, text: &str, most: usize) -> Option<IndexNames> {
    let title = element(text, "title")?;
    let title = decoded(title.trim());
    if !TITLES.iter().any(|begin| title.starts_with(begin)) || !is_whole(text) {
        return None;
    }
    let mut names = IndexNames::new();
    let mut rest = text;
    while names.len() <= most
        && let Some(tag) = after_ignoring_case(rest, "<a")
    {
        rest = tag;
        if tag.starts_with(|first: char| first.is_ascii_whitespace()) {
            // If a tag does not end, a name may be missing.
            let (link, after) = target(tag)?;
            if let Some(name) = link.and_then(|link| name_of(page, &decoded(link))) {
                names.insert(name, IndexEntry::default());
            }
            // Not from the start of the tag: each tag would be read up to the end of the page.
            rest = after;
        }
    }
    Some(names)
}

fn is_whole(text: &str) -> bool {
    let end = text.trim_end();
    // lighttpd and Apache end with it, in small or capital letters.
    let tail = end.len().checked_sub("</html>".len()).and_then(|at| end.get(at..));
    tail.is_some_and(|tail| tail.eq_ignore_ascii_case("</html>"))
}

/// Returns the text of the first element with this name.
fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let rest = after_ignoring_case(text, &format!("<{name}"))?;
    let (_, rest) = rest.split_once('>')?;
    rest.split('<').next()
}

/// Returns what comes after the first `word`, in small or capital letters.
fn after_ignoring_case<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let mut rest = text;
    loop {
        let at = rest.find('<')?;
        rest = rest.get(at..)?;
        match rest.get(..word.len()) {
            Some(found) if found.eq_ignore_ascii_case(word) => return rest.get(word.len()..),
            _ => rest = rest.get(1..)?,
        }
    }
}

/// Returns the attribute `href` of a tag whose attributes begin `text`, if it has one, and what
/// comes after that or the tag; `None` if the tag does not end.
fn target(text: &str) -> Option<(Option<&str>, &str)> {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let end = rest.find(|c: char| c == '=' || c == '>' || c.is_ascii_whitespace())?;
        let (name, after) = rest.split_at(end);
        let after = after.trim_start();
        let Some(after) = after.strip_prefix('=') else {
            if after.starts_with('>') {
                return Some((None, after));
            }
            rest = after;
            continue;
        };
        let after = after.trim_start();
        let first = after.chars().next()?;
        let (value, after) = if matches!(first, '"' | '\'') {
            after.get(1..)?.split_once(first)?
        } else {
            let end = after.find(|c: char| c == '>' || c.is_ascii_whitespace())?;
            after.split_at(end)
        };
        if name.eq_ignore_ascii_case("href") {
            return Some((Some(value), after));
        }
        rest = after;
    }
}

/// Returns text with its references such as `&amp;` and `&#38;` replaced.
fn decoded(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        decoded.push_str(before);
        // Without a limit, each would be sought up to the end of the text.
        let end = after.bytes().take(LONGEST_REFERENCE).position(|byte| byte == b';');
        let found = end.and_then(|end| {
            let (name, after) = after.split_at_checked(end)?;
            Some((char_of(name)?, after.strip_prefix(';')?))
        });
        let (char, after) = found.unwrap_or(('&', after));
        decoded.push(char);
        rest = after;
    }
    decoded.push_str(rest);
    decoded
}

/// Returns the character that a reference names.
fn char_of(name: &str) -> Option<char> {
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = name.strip_prefix('#')?;
            let number = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(number)?
        }
    })
}

#[cfg(test)]
mod tests;
