//! The width, the colours and the characters of standard output.

use std::io::{self, IsTerminal};

use clap::ValueEnum;

use super::print;
use crate::picture::{Colors, Glyphs};
use crate::printable::escaped;

/// The width of output that is not a terminal, in columns.
const WIDTH: usize = 80;

/// The smallest width that output adapts to.
const LEAST_WIDTH: usize = 20;

/// The largest width; wider pictures are not easier to read.
const GREATEST_WIDTH: usize = 400;

/// When to print colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Even in pipes and files.
    Always,
    /// Never.
    Never,
}

/// The properties of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// The colours.
    pub colors: Colors,
    /// The characters.
    pub glyphs: Glyphs,
    /// The number of columns.
    pub width: usize,
}

impl Terminal {
    /// Returns the properties of standard output.
    pub fn detect(when: When) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_terminal = io::stdout().is_terminal();
        let columns = variable("COLUMNS").and_then(|columns| columns.trim().parse().ok());
        let shown = || {
            let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
            Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
        };
        let width = columns.or_else(shown).unwrap_or(WIDTH);
        let term = variable("TERM").unwrap_or_default();
        Self {
            colors: colors(when, is_terminal, &term, &variable),
            glyphs: if term == "dumb" { Glyphs::Ascii } else { Glyphs::Blocks },
            width: width.clamp(LEAST_WIDTH, GREATEST_WIDTH),
        }
    }

    /// Returns `text`, which may come from the hierarchy, in a style, if there are colours.
    pub fn paint(&self, style: Style, text: &str) -> String {
        let text = escaped(text);
        if self.colors == Colors::None || text.is_empty() {
            return text.into_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", style.code())
    }

    /// Returns a line without anything that would control the terminal, apart from colours.
    pub fn line(&self, line: &str) -> String {
        match self.colors {
            Colors::None => escaped(line).into_owned(),
            Colors::Sixteen | Colors::Indexed | Colors::True => print::colored(line),
        }
    }
}

/// Returns the colours to use. The option overrides the environment.
fn colors(
    when: When,
    is_terminal: bool,
    term: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Colors {
    let is_on = match when {
        When::Never => false,
        When::Always => true,
        When::Auto => is_terminal && variable("NO_COLOR").is_none() && term != "dumb",
    };
    let colorterm = variable("COLORTERM").unwrap_or_default();
    if !is_on {
        Colors::None
    } else if matches!(colorterm.as_str(), "truecolor" | "24bit") || term.ends_with("-direct") {
        Colors::True
    } else if term.contains("256color") {
        Colors::Indexed
    } else {
        Colors::Sixteen
    }
}

/// A style of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The name of a property.
    Label,
    /// The name of a group.
    Group,
    /// The name of an array.
    Array,
    /// Something of less interest.
    Dim,
    /// A remark.
    Remark,
    /// An error.
    Wrong,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Label => "36",
            Self::Group => "1;34",
            Self::Array => "1",
            Self::Dim => "2",
            Self::Remark => "33",
            Self::Wrong => "31",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_stronger_than_the_environment_and_pipes_have_no_colours() {
        let found = |when, is_terminal, term: &str, set: &[(&str, &str)]| {
            let variable = |name: &str| {
                set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
            };
            colors(when, is_terminal, term, &variable)
        };
        assert_eq!(found(When::Auto, false, "xterm-256color", &[]), Colors::None);
        assert_eq!(found(When::Auto, true, "xterm-256color", &[]), Colors::Indexed);
        let no_color = [("NO_COLOR", "1")];
        assert_eq!(found(When::Auto, true, "xterm", &no_color), Colors::None);
        assert_eq!(found(When::Always, false, "xterm", &no_color), Colors::Sixteen);
        assert_eq!(found(When::Auto, true, "dumb", &[]), Colors::None);
        assert_eq!(found(When::Auto, true, "xterm", &[("COLORTERM", "truecolor")]), Colors::True);
        assert_eq!(found(When::Never, true, "xterm-direct", &[]), Colors::None);
    }

    #[test]
    fn a_name_of_a_hierarchy_has_no_colours() {
        let plain = Terminal { colors: Colors::None, glyphs: Glyphs::Blocks, width: 80 };
        let colored = Terminal { colors: Colors::Sixteen, ..plain };
        let name = "a\x1b[8mb\u{202e}";
        assert_eq!(plain.line(name), r"a\u{1b}[8mb\u{202e}");
        let painted = colored.line(&colored.paint(Style::Array, name));
        assert_eq!(painted, "\x1b[1ma\\u{1b}[8mb\\u{202e}\x1b[0m");
    }

    #[test]
    fn words_are_painted_only_if_there_are_colours() {
        let plain = Terminal { colors: Colors::None, glyphs: Glyphs::Blocks, width: 80 };
        assert_eq!(plain.paint(Style::Group, "a"), "a");
        let colored = Terminal { colors: Colors::Sixteen, ..plain };
        assert_eq!(colored.paint(Style::Group, "a"), "\x1b[1;34ma\x1b[0m");
    }
}
