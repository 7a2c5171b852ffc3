//! Tells the user of changes that were not stored, mostly of files that were refused when a program
//! closed them: some programs (git, unzip) do not look at that error.

use serde_json::Value;

use crate::printable::escaped;

/// The most files that the sentence has.
const NAMED: usize = 3;

/// Returns the sentence about the files in the text of `.zarrfs/refused`; `None` if there are none.
pub fn sentence(text: &str) -> Option<String> {
    let lines: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let named = |line: &Value| {
        let of = |name| line.get(name).and_then(Value::as_str).unwrap_or_default();
        escaped(&format!("{} ({})", of("path"), of("reason"))).into_owned()
    };
    let files: Vec<String> = lines.iter().take(NAMED).map(named).collect();
    let count = match lines.len() {
        0 => return None,
        1 => "1 change was not stored".to_owned(),
        count => format!("{count} changes were not stored"),
    };
    let others = match lines.len().saturating_sub(NAMED) {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    Some(format!("unmounted, but {count}: {}{others}", files.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_three_files_and_counts_the_others() {
        assert_eq!(sentence(""), None);
        let line = |path: &str| format!("{{\"path\":\"{path}\",\"reason\":\"too long\"}}\n");
        let one = sentence(&line("a")).expect("a file");
        assert!(one.contains("1 change was") && one.ends_with(": a (too long)"), "{one}");
        let five = sentence(&["a", "b", "c", "d", "e"].map(line).concat()).expect("files");
        assert!(
            five.contains("5 changes were") && five.ends_with("c (too long) and 2 more"),
            "{five}"
        );
    }
}
