//! The English of what users and contributors read: the pages, `--help`, messages, and comments.
//!
//! The ban list holds phrases that have to be read twice. Add a phrase if it came up in a review,
//! with what to write instead; a phrase that good sentences need does not belong here.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::zarrfs;

/// Phrases, as whole words in any case, and what to write instead. They hold for everything.
const PHRASES: [(&str, &str); 51] = [
    ("of which", "begin a new sentence"),
    ("as others have it", "say what others do"),
    ("as they have it", "say what they do"),
    ("he", "a program is not a person: name it"),
    ("his", "a program is not a person: name it"),
    ("him", "a program is not a person: name it"),
    ("whoever", "name the program or the user"),
    ("who has", "name the program or the user"),
    ("who opens", "name the program or the user"),
    ("who reads", "name the program or the user"),
    ("who writes", "name the program or the user"),
    ("by anybody", "name the program or the user"),
    ("somebody", "name the program or the user"),
    ("somebody else", "`another program`"),
    ("someone else", "`another program`"),
    ("no one need", "say which program need not"),
    ("for ever", "`without limit`"),
    ("anew", "`again`"),
    ("found out", "`detected`"),
    ("find out", "`detect`"),
    ("finds out", "`detects`"),
    ("is told", "`reports`, `knows`"),
    ("are told", "`reports`, `know`"),
    ("is said", "`reports`, with the program as the subject"),
    ("what waits", "`pending changes`"),
    ("what is stored is", "name what is stored"),
    ("all the same", "`nevertheless`, `the same`"),
    ("it did not work", "`failure`"),
    ("in one another", "`nested`"),
    ("inside one another", "`nested`"),
    ("stands between", "`limits`, `the reason`"),
    ("at the least", "`at least`"),
    ("whomever", "name the program or the user"),
    ("someone", "name the program or the user"),
    ("by whom", "name the program or the user"),
    ("anybody", "name the program or the user"),
    ("everybody", "name the programs or the users"),
    ("was told", "`reported`, `knew`"),
    ("lets go", "`drops`, `frees`"),
    ("who is", "name the program or the user"),
    ("lengths of their own", "`of variable length`"),
    ("what it comes to", "name the quantity"),
    ("passed over", "`skipped`"),
    ("passes over", "`skips`"),
    ("is had", "`is read`, `is used`"),
    ("for who", "name the program or the user"),
    ("of who", "name the program or the user"),
    ("what comes out", "`the result`, `the output`"),
    ("put behind", "`appended`"),
    ("stands for nothing", "`means nothing`"),
    ("none where", "a condition comes with `if` or `unless`"),
];

/// Phrases that only comments may have: the words of the code, or old comments.
const NOT_FOR_USERS: [(&str, &str); 5] = [
    ("so many", "name the number"),
    ("what is written", "name what is written"),
    ("texts", "`strings`"),
    ("documents", "`metadata files`"),
    ("the document", "`the metadata file`"),
];

/// Words that begin no sentence of prose, and what to write instead.
const STARTS: [(&str, &str); 8] = [
    ("Who ", "the subject is the program, the user or the file"),
    ("Whoever ", "the subject is the program, the user or the file"),
    ("Whatever ", "the subject is the program, the user or the file"),
    ("What ", "the subject is the program, the user or the file"),
    ("Of which ", "the subject comes first"),
    ("Of these ", "the subject comes first"),
    ("None where ", "a condition comes with `if` or `unless`"),
    ("Nobody ", "name the program or the user"),
];

/// Words that begin no sentence of a comment either.
const COMMENT_STARTS: [&str; 7] =
    ["Who ", "Whoever ", "Whatever ", "Of which ", "Of these ", "None where ", "Nobody "];

/// The longest line of prose.
const COLUMNS: usize = 100;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages for users and contributors.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let mut pages: Vec<PathBuf> = docs.filter(is_page).collect();
    let others = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    pages.extend(others.map(|name| root().join(name)));
    assert!(pages.len() > 5, "{pages:?}");
    pages
}

/// The text without what is between backticks.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join("`x`")
}

/// Every phrase in a text that is banned for users, with what to write instead.
fn phrases(text: &str) -> Vec<String> {
    let banned: Vec<_> = PHRASES.into_iter().chain(NOT_FOR_USERS).collect();
    phrases_of(text, &banned)
}

/// Every one of the `banned` phrases in a text, with what to write instead.
fn phrases_of(text: &str, banned: &[(&str, &str)]) -> Vec<String> {
    let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let is_part = |char: Option<char>| {
        char.is_some_and(|char| char.is_alphanumeric() || matches!(char, '-' | '_'))
    };
    let holds = |phrase: &str| {
        words.match_indices(phrase).any(|(at, _)| {
            let (before, after) = (&words[..at], &words[at + phrase.len()..]);
            !is_part(before.chars().next_back()) && !is_part(after.chars().next())
        })
    };
    let banned = banned.iter().filter(|(phrase, _)| holds(phrase));
    banned.map(|(phrase, instead)| format!("{phrase:?} ({instead})")).collect()
}

/// Every banned beginning of a sentence in a paragraph.
fn starts(paragraph: &str) -> Vec<String> {
    let text = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.replace("** ", ". ").replace("- ", ". ");
    let sentences: Vec<&str> = text.split(['.', ':', '?', '(']).map(str::trim_start).collect();
    let begins = |start: &str| sentences.iter().any(|sentence| sentence.starts_with(start));
    let banned = STARTS.iter().filter(|(start, _)| begins(start));
    banned.map(|(start, instead)| format!("a sentence with {start:?} ({instead})")).collect()
}

/// The lines of a page outside of code blocks: number, whether the line is prose (not a row of a
/// table or a heading), and text.
fn lines(page: &str) -> Vec<(usize, bool, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push((number, !line.trim_start().starts_with(['|', '#']), line));
        }
    }
    lines
}

#[test]
fn a_banned_phrase_is_found_and_no_part_of_a_word() {
    assert_eq!(phrases("it is written\nanew. He is").len(), 2);
    assert_eq!(phrases("the renewed cache; heaps, this, none whereas"), Vec::<String>::new());
    assert_eq!(starts("**name.** Who cut it gets\nEINVAL. None where it is").len(), 2);
    assert_eq!(starts("A program that knows what it wants. None."), Vec::<String>::new());
    assert_eq!(phrases(&without_code("`--texts` of `he`")), Vec::<String>::new());
}

#[test]
fn no_page_has_a_sentence_that_must_be_read_twice() {
    let mut wrong = Vec::new();
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root()).unwrap().display();
        let (mut paragraph, mut first) = (String::new(), 0);
        let last = (usize::MAX, true, "");
        for (number, is_prose, line) in lines(&page).into_iter().chain([last]) {
            let is_end = line.is_empty() || line.trim_start().starts_with("- ") || !is_prose;
            if is_end {
                let text = without_code(&paragraph);
                let found = phrases(&text).into_iter().chain(starts(&text));
                wrong.extend(found.map(|found| format!("{name}:{first}: {found}")));
                paragraph.clear();
            }
            if !is_prose {
                let found = phrases(&without_code(line));
                wrong.extend(found.into_iter().map(|found| format!("{name}:{number}: {found}")));
                continue;
            }
            if paragraph.is_empty() {
                first = number;
            }
            paragraph.push_str(line);
            paragraph.push('\n');
            if line.chars().count() > COLUMNS {
                wrong.push(format!("{name}:{number}: more than {COLUMNS} columns"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_help_has_a_phrase_that_must_be_read_twice() {
    let commands = ["mount", "umount", "tree", "info", "cat", "create", "convert", "demo"];
    for command in commands.map(Some).into_iter().chain([None]) {
        let output = zarrfs().args(command).arg("--help").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains("Usage: zarrfs"), "{command:?}: {help}");
        assert_eq!(phrases(&help), Vec::<String>::new(), "--help of {command:?}");
    }
}

/// The Rust files of all members.
fn sources() -> Vec<PathBuf> {
    crate::sources::files().into_iter().map(|(path, _)| path).collect()
}

/// The text of a line of comment, without its slashes.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix("//")?;
    Some(line.strip_prefix(['/', '!']).unwrap_or(line).trim())
}

/// The paragraphs of comments in a source outside of code blocks, each with its first line.
fn comments(source: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut in_code = false;
    let mut goes_on = false;
    for (number, line) in (1..).zip(source.lines()) {
        let text = comment(line).unwrap_or_default();
        in_code ^= text.starts_with("```");
        let is_prose = !in_code && !text.is_empty() && !text.starts_with("```");
        match found.last_mut().filter(|_| goes_on && is_prose && !text.starts_with("- ")) {
            Some((_, paragraph)) => paragraph.extend([" ", text]),
            None if is_prose => found.push((number, text.to_owned())),
            None => {}
        }
        goes_on = is_prose;
    }
    found
}

#[test]
fn the_comments_of_a_source_are_found() {
    let source =
        "//! One\n//! two.\n//!\n//! ```text\n//! code\n//! ```\nfn f() {\n    // - Three.\n}";
    let found = comments(source);
    assert_eq!(found, [(1, "One two.".to_owned()), (8, "- Three.".to_owned())]);
}

#[test]
fn no_comment_has_a_phrase_that_must_be_read_twice() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in sources() {
        let source = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root()).unwrap().display();
        for (number, text) in comments(&source) {
            count += 1;
            let text = without_code(&text);
            let starts = starts(&text).into_iter();
            let is_banned = |found: &String| COMMENT_STARTS.iter().any(|s| found.contains(s));
            let found = phrases_of(&text, &PHRASES).into_iter().chain(starts.filter(is_banned));
            wrong.extend(found.map(|found| format!("{name}:{number}: {found}")));
        }
        let mut in_code = false;
        for (number, line) in (1..).zip(source.lines()) {
            let Some(text) = comment(line) else { continue };
            in_code ^= text.starts_with("```");
            if !in_code && !line.contains("://") && line.chars().count() > COLUMNS {
                wrong.push(format!("{name}:{number}: more than {COLUMNS} columns"));
            }
        }
    }
    assert!(count > 5000, "only {count} comments are found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The string literals of a source outside of comments and unit tests, with the text before each.
fn literals(source: &str) -> Vec<(&str, String)> {
    let end = source.find("#[cfg(test)]\nmod tests {").unwrap_or(source.len());
    let source = &source[..end];
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
        let is_name = source[..at].ends_with(|char: char| char.is_alphanumeric() || char == '_');
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(quote) = rest.strip_prefix(['r']).filter(|_| !is_name)
            && let Some(hashes) = quote.find('"').filter(|n| quote[..*n].bytes().all(|b| b == b'#'))
        {
            let close = format!("\"{}", "#".repeat(hashes));
            let text = &quote[hashes + 1..];
            let len = text.find(&close).unwrap();
            found.push((&source[..at], text[..len].to_owned()));
            at += 1 + hashes + 1 + len + close.len();
        } else if let Some(char) = rest.strip_prefix('\'') {
            // A character, if it is not a lifetime.
            let own = if char.starts_with('\\') { 2 } else { 1 };
            let own = char.char_indices().nth(own).map_or(char.len(), |(end, _)| end);
            let end = char[own..].find('\'').map(|len| own + len);
            let is_char = |end: &usize| char.starts_with('\\') || *end == own;
            at += end.filter(is_char).map_or(1, |end| end + 2);
        } else if let Some(text) = rest.strip_prefix('"') {
            let mut escaped = false;
            let len = text
                .find(|char| {
                    let ends = char == '"' && !escaped;
                    escaped = char == '\\' && !escaped;
                    ends
                })
                .unwrap();
            found.push((&source[..at], text[..len].replace("\\\n", "")));
            at += len + 2;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    found
}

#[test]
fn the_literals_of_a_source_are_found() {
    let source = r#"let a = '"'; // "no"
    f("one \"two\" \
       three", '\'', r"four\"); fn g<'a>(b: &'a str) { "six" }
#[cfg(test)]
mod tests { "seven" }"#;
    let found: Vec<String> = literals(source).into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, ["one \\\"two\\\"        three", "four\\", "six"]);
}

#[test]
fn no_message_has_a_phrase_that_must_be_read_twice() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in sources() {
        let is_of_tests = ["tests", "tests.rs"];
        if path.iter().any(|name| is_of_tests.iter().any(|of| name == *of)) {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for (before, text) in literals(&source) {
            let before = before.trim_end();
            // What only programmers read.
            if ["reason =", "expect(", "must_use ="].iter().any(|own| before.ends_with(own)) {
                continue;
            }
            if text.split_whitespace().count() < 3 {
                continue; // A word of a format.
            }
            count += 1;
            let name = path.strip_prefix(root()).unwrap().display();
            let number = before.lines().count();
            let found = phrases(&without_code(&text)).into_iter();
            wrong.extend(found.map(|found| format!("{name}:{number}: {found}")));
        }
    }
    assert!(count > 500, "only {count} messages are found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let count = readme.lines().count();
    assert!(count <= 120, "{count} lines: move details to docs");
}
