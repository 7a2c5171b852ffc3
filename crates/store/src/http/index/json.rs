//! Lists in JSON.
//!
//! ```text
//! nginx    [{"name": "c", "type": "directory", "mtime": "Tue, 01 Jul 2025 10:00:00 GMT"},
//!           {"name": "zarr.json", "type": "file", "mtime": "...", "size": 10}]
//! Caddy    [{"name": "c/", "size": 4096, "url": "./c/", "mod_time": "...", "is_dir": true}]
//! ```
//!
//! One entry at a time is parsed: in memory, values of JSON take far more than their text.

use serde_json::Value;

use super::names::{IndexEntry, IndexNames, name_of};
use crate::{StoreEntry, is_component};
use reqwest::Url;

/// The longest entry, in bytes: a name of 255 bytes, each written as `\u0000`, two or three times.
const LONGEST_ENTRY: usize = 16 << 10;

/// Returns the names in a list; `None` if the text is none. Stops when there are more than `most`.
pub fn parse(page: &Url, text: &[u8], most: usize) -> Option<IndexNames> {
    let mut names = IndexNames::new();
    let mut rest = text.trim_ascii().strip_prefix(b"[")?.trim_ascii_start();
    if rest == b"]" {
        return Some(names);
    }
    while names.len() <= most {
        let (entry, after) = rest.split_at_checked(entry_len(rest)?)?;
        let entry: Value = serde_json::from_slice(entry).ok()?;
        let (entry, listed) = of_nginx(&entry).or_else(|| of_caddy(page, &entry))?;
        if is_component(entry.name()) {
            names.insert(entry, listed);
        }
        match after.split_first()? {
            (b',', after) => rest = after,
            (_, after) => return after.is_empty().then_some(names),
        }
    }
    Some(names)
}

/// Returns the length of the text before the comma or bracket that ends an entry.
fn entry_len(text: &[u8]) -> Option<usize> {
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    text.iter().take(LONGEST_ENTRY).position(|byte| {
        match byte {
            _ if std::mem::take(&mut is_escaped) => {}
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b',' | b']' if depth == 0 => return true,
            b'[' | b'{' => depth = depth.saturating_add(1),
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        false
    })
}

fn of_nginx(entry: &Value) -> Option<(StoreEntry, IndexEntry)> {
    let name = entry.get("name")?.as_str()?.to_owned();
    let modified = entry.get("mtime")?.as_str()?;
    match entry.get("type")?.as_str()? {
        "directory" => Some((StoreEntry::Prefix(name), IndexEntry::default())),
        "file" => {
            let len = Some(entry.get("size")?.as_u64()?);
            let modified = httpdate::parse_http_date(modified).ok();
            Some((StoreEntry::Key(name), IndexEntry { len, modified, tag: None }))
        }
        // A device.
        _ => Some((StoreEntry::Key(String::new()), IndexEntry::default())),
    }
}

fn of_caddy(page: &Url, entry: &Value) -> Option<(StoreEntry, IndexEntry)> {
    let is_directory = entry.get("is_dir")?.as_bool()?;
    entry.get("mod_time")?;
    let (link, len) = (entry.get("url")?.as_str()?, entry.get("size")?.as_u64()?);
    Some(match name_of(page, link) {
        Some(name @ StoreEntry::Prefix(_)) if is_directory => (name, IndexEntry::default()),
        Some(name @ StoreEntry::Key(_)) if !is_directory => {
            (name, IndexEntry { len: Some(len), ..IndexEntry::default() })
        }
        _ => (StoreEntry::Key(String::new()), IndexEntry::default()),
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn page() -> Url {
        Url::parse("http://host/x/").expect("a URL")
    }

    #[test]
    fn the_list_of_nginx_has_exact_sizes_and_times() {
        let text = br#"[
{ "name":"c", "type":"directory", "mtime":"Thu, 01 Jan 1970 00:01:00 GMT" },
{ "name":"zarr.json", "type":"file", "mtime":"Thu, 01 Jan 1970 00:01:00 GMT", "size":10 },
{ "name":"../x", "type":"file", "mtime":"Thu, 01 Jan 1970 00:01:00 GMT", "size":10 },
{ "name":"fifo", "type":"other", "mtime":"Thu, 01 Jan 1970 00:01:00 GMT" }
]"#;
        let names = parse(&page(), text, 9).expect("a list");
        let minute = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
        let value = IndexEntry { len: Some(10), modified: Some(minute), tag: None };
        let want = [
            (StoreEntry::Key("zarr.json".to_owned()), value),
            (StoreEntry::Prefix("c".to_owned()), IndexEntry::default()),
        ];
        assert_eq!(names, want.into());
    }

    #[test]
    fn a_list_is_read_one_entry_at_a_time_up_to_a_number_of_names() {
        let entry = |name: usize| {
            format!(
                r#"{{"name": "]\",{name}", "type": "directory", "mtime": "", "x": [[1, "]"], {{}}]}}"#
            )
        };
        let all: Vec<String> = (0..9).map(entry).collect();
        let text = format!(" [ {} ] ", all.join(" ,\n"));
        let count = |text: &str, most| parse(&page(), text.as_bytes(), most).map(|it| it.len());
        assert_eq!(count(&text, 9), Some(9));
        assert_eq!(count(&text, 4), Some(5), "the others are not read");
        assert_eq!((count("[]", 9), count(" [ ] ", 9)), (Some(0), Some(0)));
        for wrong in ["[0,0]", "[", "[]]", "[{}", "[,]", "{}", "", "[{}{}]", "[[[[", "[\"", "null"]
        {
            assert_eq!(count(wrong, 9), None, "{wrong}");
        }
        let cut = text.trim_end().trim_end_matches(']');
        assert_eq!(count(cut, 9), None);
        assert_eq!(count(&format!("{text},"), 9), None);
        assert_eq!(count(&text.replace(" ] ", ", ]"), 9), None);
        let long = format!(
            r#"[{{"name": "a", "type": "directory", "mtime": "", "x": "{}"}}]"#,
            "x".repeat(1 << 20)
        );
        assert_eq!(count(&long, 9), None);
    }

    #[test]
    fn the_list_of_caddy_is_read_by_its_links() {
        let text = br#"[{"name":"c/","size":4096,"url":"./c/","mod_time":"2025-07-01T10:00:00Z",
            "mode":2147484141,"is_dir":true,"is_symlink":false},
            {"name":"a b","size":3,"url":"./a%20b","mod_time":"2025-07-01T10:00:00Z","mode":420,
            "is_dir":false,"is_symlink":false}]"#;
        let names = parse(&page(), text, 9).expect("a list");
        let value = IndexEntry { len: Some(3), ..IndexEntry::default() };
        let want = [
            (StoreEntry::Key("a b".to_owned()), value),
            (StoreEntry::Prefix("c".to_owned()), IndexEntry::default()),
        ];
        assert_eq!(names, want.into());
    }

    #[test]
    fn other_json_is_no_list() {
        for text in [
            "{}",
            "[1]",
            "[{}]",
            r#"[{"name": "x"}]"#,
            r#"{"zarr_format": 3, "node_type": "group"}"#,
            r#"[{"name": "x", "type": "file", "mtime": "", "size": -1}]"#,
            "",
        ] {
            assert_eq!(parse(&page(), text.as_bytes(), 9), None, "{text}");
        }
        assert_eq!(parse(&page(), b"[\n]", 9), Some(IndexNames::new()));
    }
}
