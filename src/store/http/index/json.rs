//! Lists in JSON.
//!
//! ```text
//! nginx    [{"name": "c", "type": "directory", "mtime": "Tue, 01 Jul 2025 10:00:00 GMT"},
//!           {"name": "zarr.json", "type": "file", "mtime": "...", "size": 10}]
//! Caddy    [{"name": "c/", "size": 4096, "url": "./c/", "mod_time": "...", "is_dir": true}]
//! ```

use serde_json::Value;

use super::names::{Listed, Names, name_of};
use crate::store::{Entry, is_component};
use reqwest::Url;

/// Returns the names in a list; `None` if the text is none.
pub fn parse(page: &Url, text: &[u8]) -> Option<Names> {
    let entries: Vec<Value> = serde_json::from_slice(text).ok()?;
    let mut names = Names::new();
    for entry in entries {
        let (entry, listed) = of_nginx(&entry).or_else(|| of_caddy(page, &entry))?;
        if is_component(entry.name()) {
            names.insert(entry, listed);
        }
    }
    Some(names)
}

fn of_nginx(entry: &Value) -> Option<(Entry, Listed)> {
    let name = entry.get("name")?.as_str()?.to_owned();
    let modified = entry.get("mtime")?.as_str()?;
    match entry.get("type")?.as_str()? {
        "directory" => Some((Entry::Prefix(name), Listed::default())),
        "file" => {
            let len = Some(entry.get("size")?.as_u64()?);
            let modified = httpdate::parse_http_date(modified).ok();
            Some((Entry::Key(name), Listed { len, modified, tag: None }))
        }
        // A device.
        _ => Some((Entry::Key(String::new()), Listed::default())),
    }
}

fn of_caddy(page: &Url, entry: &Value) -> Option<(Entry, Listed)> {
    let is_directory = entry.get("is_dir")?.as_bool()?;
    entry.get("mod_time")?;
    let (link, len) = (entry.get("url")?.as_str()?, entry.get("size")?.as_u64()?);
    Some(match name_of(page, link) {
        Some(name @ Entry::Prefix(_)) if is_directory => (name, Listed::default()),
        Some(name @ Entry::Key(_)) if !is_directory => {
            (name, Listed { len: Some(len), ..Listed::default() })
        }
        _ => (Entry::Key(String::new()), Listed::default()),
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
        let names = parse(&page(), text).expect("a list");
        let minute = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
        let value = Listed { len: Some(10), modified: Some(minute), tag: None };
        let want = [
            (Entry::Key("zarr.json".to_owned()), value),
            (Entry::Prefix("c".to_owned()), Listed::default()),
        ];
        assert_eq!(names, want.into());
    }

    #[test]
    fn the_list_of_caddy_is_read_by_its_links() {
        let text = br#"[{"name":"c/","size":4096,"url":"./c/","mod_time":"2025-07-01T10:00:00Z",
            "mode":2147484141,"is_dir":true,"is_symlink":false},
            {"name":"a b","size":3,"url":"./a%20b","mod_time":"2025-07-01T10:00:00Z","mode":420,
            "is_dir":false,"is_symlink":false}]"#;
        let names = parse(&page(), text).expect("a list");
        let value = Listed { len: Some(3), ..Listed::default() };
        let want = [
            (Entry::Key("a b".to_owned()), value),
            (Entry::Prefix("c".to_owned()), Listed::default()),
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
            assert_eq!(parse(&page(), text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(&page(), b"[\n]"), Some(Names::new()));
    }
}
