//! Text of a hierarchy as a person may read it: names and values in messages.
//!
//! A hierarchy may come from anyone, and its names and strings may have any characters. Some of
//! them control a terminal (`ESC ] 0 ;` changes its title, `ESC [ 8 m` hides what follows), and
//! some deceive a reader: U+202E reverses the order of letters, others cannot be seen.
//! [`Error`](crate::error::Error) and the output of commands escape these characters here, as Rust
//! does in `{:?}`. Names of files, metadata files and values are data, and keep every byte.

use std::borrow::Cow;
use std::fmt::Write;

/// Characters that std counts as printable, but which cannot be seen: fillers of Hangul, a blank of
/// Braille, and marks that only change how other characters look.
const INVISIBLE: [(char, char); 9] = [
    ('\u{34f}', '\u{34f}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{e0100}', '\u{e01ef}'),
];

/// What stands for the middle of a long string.
const GAP: &str = "...";

/// Returns `text` on one line, with `\u{1b}` in place of each character that would control a
/// terminal or deceive a reader. A second call changes nothing.
pub fn escaped(text: &str) -> Cow<'_, str> {
    with(text, |c, shown| shown.extend(c.escape_default()))
}

/// Returns `text` with `...` in place of its middle if it has more than `most` characters. A
/// message says at its beginning what is wrong, and at its end what to do.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    let count = if text.len() <= most { 0 } else { text.chars().count() };
    if count <= most {
        return Cow::Borrowed(text);
    }
    let end_len = most / 4;
    let start_len = most.saturating_sub(end_len).saturating_sub(GAP.len());
    let at = |index| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    let start = text.get(..at(start_len)).unwrap_or_default();
    let end = text.get(at(count.saturating_sub(end_len))..).unwrap_or_default();
    Cow::Owned(format!("{start}{GAP}{end}"))
}

/// Returns JSON in which such characters of strings are `\u001b`. It has the same value. Line ends
/// between members stay.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    with(json, |c, shown| {
        if c == '\n' {
            return shown.push(c);
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _never = write!(shown, "\\u{unit:04x}");
        }
    })
}

/// Returns `text`, in which `escape` writes the characters that a message must not have.
fn with(text: &str, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let Some((first, _)) = text.char_indices().find(|(_, c)| !is_printable(*c)) else {
        return Cow::Borrowed(text);
    };
    let (head, tail) = text.split_at_checked(first).unwrap_or((text, ""));
    let mut shown = String::with_capacity(text.len().saturating_add(16));
    shown.push_str(head);
    for c in tail.chars() {
        if is_printable(c) {
            shown.push(c);
        } else {
            escape(c, &mut shown);
        }
    }
    Cow::Owned(shown)
}

/// Whether a person sees `c` as what it is.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    if INVISIBLE.iter().any(|(first, last)| (*first..=*last).contains(&c)) {
        return false;
    }
    // Accents that combine with a letter are escaped only without one.
    c.escape_debug().len() == 1 || format!("a{c}").escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_a_terminal_or_deceives_a_reader_is_escaped() {
        let shown = |text: &str| escaped(text).into_owned();
        assert_eq!(shown("a\x1b[2Jb\nc\u{9b}d\x7f"), "a\\u{1b}[2Jb\\nc\\u{9b}d\\u{7f}");
        let hidden = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}\u{2028}\u{2029}\
                      \u{200b}\u{200d}\u{2060}\u{feff}\u{ad}\u{e0041}\u{fe00}\u{3164}\u{fff9}";
        assert!(
            hidden.chars().all(|c| shown(&c.to_string()) == format!("\\u{{{:x}}}", u32::from(c)))
        );
        let once = shown(hidden);
        assert_eq!(shown(&once), once);
    }

    #[test]
    fn letters_of_all_scripts_stay_as_they_are() {
        for text in
            ["t2m", "größe", "gro\u{308}ße", "температура", "気温", "درجة", "हिन्दी", "😀", "\\\"'"]
        {
            assert!(matches!(escaped(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn a_long_string_keeps_its_beginning_and_its_end() {
        assert_eq!(shortened("0123456789", 10), "0123456789");
        assert_eq!(shortened("0123456789abcdef", 10), "01234...ef");
        assert_eq!(shortened("ääääääääääääää", 10).chars().count(), 10);
        assert_eq!(shortened("ääääääääää", 10), "ääääääääää");
        assert_eq!(shortened("0123456789", 0), "...");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({"a\u{202e}": ["\u{9b}\x1b\u{e0041}", "plain", {"b": 1}]});
        for json in [value.to_string(), format!("{value:#}")] {
            let shown = escaped_json(&json);
            assert!(shown.chars().all(|c| c == '\n' || is_printable(c)), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).ok(), Some(value.clone()));
        }
    }
}
