//! Every lock is in the table of `docs/locks.md`, with its place in the order.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::sources;

/// The types that are locks. A `type` that names one is found, too: it must be in the table.
const LOCKS: [&str; 4] = ["Mutex<", "RwLock<", "ReentrantMutex<", "FairMutex<"];

/// How many locks a type holds.
fn count(of_type: &str) -> usize {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    let all = LOCKS.iter().flat_map(|lock| of_type.match_indices(lock));
    all.filter(|(at, _)| !of_type[..*at].ends_with(is_part)).count()
}

/// The parts of a list between commas that are not inside of brackets.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0_i32, 0, Vec::new());
    for (at, char) in list.char_indices() {
        match char {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if list[..at].ends_with('-') => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[start..]);
    found
}

/// The text from its first bracket to the one that closes it, without both.
fn bracketed(text: &str) -> &str {
    let mut depth = 0_i32;
    for (at, char) in text.char_indices() {
        match char {
            '(' | '{' => depth += 1,
            ')' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[1..at];
        }
    }
    panic!("a bracket is not closed: {text}");
}

/// The name that a text begins with, and the rest.
fn named(text: &str) -> (&str, &str) {
    let end = text.find(|char: char| !char.is_alphanumeric() && char != '_');
    text.split_at(end.unwrap_or(text.len()))
}

/// The locks that an item of a source declares, each as often as its type holds one:
/// `Struct::field`, `Struct` if the field has no name, or the name of a static, an enum or a type.
fn locks_of_item(item: &str) -> Vec<String> {
    let (keyword, rest) = item.split_once(' ').unwrap_or((item, ""));
    let rest = rest.strip_prefix("mut ").unwrap_or(rest);
    let (name, after) = named(rest);
    match keyword {
        "static" | "type" => {
            let until = if keyword == "static" { " = " } else { ";" };
            vec![name.to_owned(); count(after.split(until).next().unwrap())]
        }
        "struct" | "enum" | "union" => {
            let Some(open) = after.find(['{', '(', ';']).filter(|at| &after[*at..=*at] != ";")
            else {
                return Vec::new();
            };
            let body = bracketed(&after[open..]);
            if keyword == "enum" || after[open..].starts_with('(') {
                return vec![name.to_owned(); count(body)];
            }
            let field = |part: &str| {
                let (before, of_type) = part.split_once(": ").unwrap_or((part, ""));
                let field = before.split_whitespace().next_back().unwrap_or("");
                vec![format!("{name}::{field}"); count(of_type)]
            };
            parts(body).into_iter().flat_map(field).collect()
        }
        _ => Vec::new(),
    }
}

/// The locks that the code of a file declares, in its order.
fn locks_of(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(['s', 'e', 'u', 't']) {
        let is_begin = code[..at].ends_with(char::is_whitespace) || at == 0;
        let item = &code[at..];
        let is_item = ["static ", "struct ", "enum ", "union ", "type "]
            .iter()
            .any(|keyword| item.starts_with(keyword));
        // The words before an item: attributes end with a bracket, and it may be public.
        let line = code[..at].rsplit('\n').next().unwrap().trim();
        let is_first = line.is_empty() || line.starts_with("pub") || line.ends_with(']');
        if is_begin && is_item && is_first {
            found.extend(locks_of_item(item));
        }
    }
    found
}

/// How many locks each name in each file stands for.
type Counts = BTreeMap<(String, String), usize>;

fn locks_in_sources() -> Counts {
    let mut found = Counts::new();
    for source in sources::all() {
        let lines: Vec<&str> = source.lines.iter().map(|(_, line)| line.as_str()).collect();
        let file = source.name.strip_prefix("src/").unwrap();
        for lock in locks_of(&lines.join("\n")) {
            *found.entry((file.to_owned(), lock)).or_default() += 1;
        }
    }
    found
}

fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join("docs/locks.md")).unwrap()
}

/// The cells of each row of the table, without its heading.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let rows = page.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// The text in backticks.
fn code_in(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn locks_in_table(page: &str) -> Counts {
    let mut found = Counts::new();
    for row in rows(page) {
        for lock in code_in(row[0]) {
            *found.entry((code_in(row[1])[0].clone(), lock)).or_default() += 1;
        }
    }
    found
}

#[test]
fn the_locks_of_a_source_are_found() {
    let code = "pub struct A<'a> {\n    pub(super) one: Arc<Mutex<HashMap<K, Arc<RwLock<V>>>>>,\n    \
                two: (u8, u8),\n    three: Box<dyn Fn(u8) -> u8>, four: RwLock<Vec<u8>>,\n}\n\
                struct B(u8, Mutex<()>);\npub(crate) static C: Mutex<u8> = Mutex::new(0);\n\
                type D = Mutex<u8>;\nenum E { One(Mutex<u8>), Two }\nstruct F;\n\
                struct G { long:\n RwLock<u8> }\nfn f(g: &Mutex<u8>) { static H: Mutex<u8> = g; \
                struct NotAMutex { i: MutexGuard<'a, u8>, j: MyMutex<u8> } }\n\
                fn g() {\n    static I: Mutex<u8> = g;\n}";
    let expected = ["A::one", "A::one", "A::four", "B", "C", "D", "E", "I"];
    let mut found = locks_of(&code.replace("long:\n", "long: "));
    let at = found.iter().position(|lock| lock == "G::long");
    assert!(at.is_some(), "{found:?}");
    found.remove(at.unwrap());
    assert_eq!(found, expected);
}

#[test]
fn every_lock_is_in_the_table_and_the_table_names_no_other() {
    let (in_sources, in_table) = (locks_in_sources(), locks_in_table(&page()));
    assert!(in_sources.len() > 40, "only {} locks are found", in_sources.len());
    let mut wrong = Vec::new();
    for ((file, lock), count) in &in_sources {
        let known = in_table.get(&(file.clone(), lock.clone())).copied().unwrap_or_default();
        if known != *count {
            wrong.push(format!("src/{file}: {lock} is {count} locks, and has {known} rows"));
        }
    }
    for (file, lock) in in_table.keys() {
        if !in_sources.contains_key(&(file.clone(), lock.clone())) {
            wrong.push(format!("docs/locks.md: {lock} is not a lock in src/{file}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_row_says_what_a_lock_guards_and_its_place_in_the_order() {
    for row in rows(&page()) {
        assert_eq!(row.len(), 5, "{row:?}");
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        let order = ["first", "leaf", "innermost", "after `", "no lock is held"];
        let is_order = order.iter().any(|word| row[4].starts_with(word))
            || row[4].starts_with(|char: char| char.is_ascii_digit());
        assert!(is_order, "{row:?}");
    }
}
