//! Names in URLs.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// The characters that cannot stand for themselves in a name: those that RFC 3986 does not allow in
/// a segment of a path, and those that HTML or another client could misunderstand.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'/')
    .add(b':')
    .add(b';')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Encodes a name as a segment of a URL.
pub fn encode(name: &str) -> String {
    utf8_percent_encode(name, ENCODED).to_string()
}

/// A path below the root of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The names, decoded.
    pub names: Vec<String>,
    /// Whether it ends with a slash.
    pub is_closed: bool,
}

/// Decodes the path of a URL; `None` if no file can have it.
pub fn decode(path: &str) -> Option<Path> {
    let is_closed = path.is_empty() || path.ends_with('/');
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    let name = |segment: &str| {
        let name = percent_decode_str(segment).decode_utf8().ok()?;
        let is_name = !matches!(&*name, "." | "..") && !name.contains(['/', '\0']);
        is_name.then(|| name.into_owned())
    };
    Some(Path { names: segments.map(name).collect::<Option<_>>()?, is_closed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_url_and_no_path_leads_out() {
        for name in ["t2m", "a b", "50%", "ä?&#", "c:d", "[0]", "x;y=1,2", "..."] {
            let path = decode(&format!("/{}/", encode(name))).expect("a path");
            assert_eq!((path.names, path.is_closed), (vec![name.to_owned()], true));
        }
        for path in ["/../a", "/a/%2e%2e/b", "/a%2fb", "/a%00", "/%ff", "/./a"] {
            assert_eq!(decode(path), None, "{path}");
        }
        assert_eq!(decode("").expect("the root").names, Vec::<String>::new());
        assert_eq!(decode("//a//b").expect("a path").names, ["a", "b"]);
    }
}
