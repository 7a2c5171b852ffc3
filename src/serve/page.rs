//! The page of a directory, in HTML: links to its files, and for a group or an array its metadata,
//! its files of other formats, and a picture.

use std::sync::Arc;

use super::paths::encode;
use crate::hierarchy::Node;
use crate::metadata::{NodeKind, NodePath};
use crate::vfs::{Attr, Vfs};
use crate::view::{FORMATS, ROOT_NAME};

/// The end of the page.
pub const END: &str = "</table>\n</main>\n</html>\n";

/// It is a part of the page, so that the page needs no other file.
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;\
    padding:0 1em;color:#222;background:#fff}a{color:#05c;text-decoration:none}\
    a:hover{text-decoration:underline}td{padding:.1em 1.5em .1em 0;vertical-align:top}\
    td.n{text-align:right;font-variant-numeric:tabular-nums}img{image-rendering:pixelated;\
    max-width:100%;border:1px solid #ccc}code{background:#f4f4f4;padding:0 .2em}\
    @media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}a{color:#7bf}\
    code{background:#282828}}";

/// The picture of an array, which is absent if it cannot be drawn.
const PICTURE: &str =
    "<p><img src=\"?preview\" alt=\"\" loading=\"lazy\" onerror=\"this.remove()\"></p>\n";

/// Returns the beginning of the page of the directory at `names`. If it is a node of `vfs`, the
/// page describes it.
pub fn head(names: &[String], vfs: Option<&Arc<Vfs>>) -> String {
    let title = names.last().map_or("zarrfs", String::as_str);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<style>{STYLE}</style>\n<main>\n\
         <h1>{}</h1>\n",
        escape(title),
        way(names)
    );
    if let Some(node) = vfs.and_then(|vfs| node_at(vfs, names)) {
        page.push_str(&described(&node, names));
    }
    page.push_str("<table>\n");
    if !names.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a></td></tr>\n");
    }
    page
}

/// Returns the line of an entry.
pub fn entry(name: &str, attr: &Attr) -> String {
    let slash = if attr.is_dir { "/" } else { "" };
    let len = if attr.is_dir { String::new() } else { attr.len.to_string() };
    format!(
        "<tr><td><a href=\"{}{slash}\">{}{slash}</a></td><td class=\"n\">{len}</td></tr>\n",
        encode(name),
        escape(name)
    )
}

/// Returns the path as links to the directories above.
fn way(names: &[String]) -> String {
    let mut way = String::new();
    for (at, name) in std::iter::once("zarrfs").chain(names.iter().map(String::as_str)).enumerate()
    {
        match names.len().saturating_sub(at) {
            0 => way.push_str(&escape(name)),
            up => {
                let link = format!("<a href=\"{}\">{}</a> / ", "../".repeat(up), escape(name));
                way.push_str(&link);
            }
        }
    }
    way
}

/// Returns the node of a directory; `None` if it is none, or cannot be read.
fn node_at(vfs: &Vfs, names: &[String]) -> Option<Arc<Node>> {
    let path = NodePath::parse(&names.join("/")).ok()?;
    vfs.hierarchy().node(&path).ok().flatten()
}

/// Describes a node, with its files of other formats. Which of them it has is not checked: that
/// would read the coordinates for each page.
fn described(node: &Node, names: &[String]) -> String {
    let mut text = String::new();
    if node.kind() == NodeKind::Array
        && let Some(array) = node.array()
    {
        let model = array.model();
        let numbers =
            |shape: &[u64]| shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" &times; ");
        let shape =
            if model.shape.is_empty() { "scalar".to_owned() } else { numbers(&model.shape) };
        let chunks = format!(", chunks {}", numbers(array.chunk_shape()));
        let dtype = escape(&model.dtype.name());
        text = format!("<p><code>{dtype}</code> {shape}{chunks}</p>\n{PICTURE}");
    }
    let (above, name) = match names.last() {
        Some(name) => ("../", name.as_str()),
        None => ("", ROOT_NAME),
    };
    let formats = FORMATS.iter().filter(|format| format.is_for(node.kind()));
    let links: Vec<String> = formats
        .map(|format| {
            let extension = format.extension;
            format!("<a href=\"{above}{}.{extension}\">.{extension}</a>", encode(name))
        })
        .collect();
    text + &format!("<p>As one file: {}</p>\n", links.join(" "))
}

/// Escapes a text for HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_become_a_part_of_the_page() {
        assert_eq!(escape("<script>\"&'"), "&lt;script&gt;&quot;&amp;&#39;");
        let names = ["a".to_owned(), "<b>".to_owned()];
        let expected = "<a href=\"../../\">zarrfs</a> / <a href=\"../\">a</a> / &lt;b&gt;";
        assert_eq!(way(&names), expected);
        assert_eq!(way(&[]), "zarrfs");
    }
}
