//! The page of a directory, in HTML: links to its files, and for a group or an array its metadata,
//! its files of other formats, and a picture.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use super::paths::encode;
use super::{offers, opendap, preview};
use crate::array::Array;
use crate::hierarchy::{Content, Node};
use crate::json::Object;
use crate::metadata::{NodePath, shown_attributes};
use crate::printable;
use crate::vfs::{Attr, Vfs};
use crate::view::ROOT_NAME;

/// The end of the page.
pub const END: &str = "</table>\n</main>\n</html>\n";

/// It is a part of the page, so that the page needs no other file.
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;\
    padding:0 1em;color:#222;background:#fff}table{margin:0 0 1.3em;border-spacing:0}\
    a{color:#05c;text-decoration:none}a:hover{text-decoration:underline}\
    td,th{padding:.1em 1.5em .1em 0;vertical-align:top;text-align:left;font-weight:normal;\
    overflow-wrap:anywhere}th{color:#666;white-space:nowrap}td.n{white-space:nowrap;\
    text-align:right;font-variant-numeric:tabular-nums}img{image-rendering:pixelated;\
    max-width:100%;border:1px solid #ccc}code{background:#f4f4f4;padding:0 .2em}\
    @media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}a{color:#7bf}\
    code{background:#282828}th{color:#aaa}}";

/// The most attributes that are shown, and the most characters of each.
const MAX_ATTRIBUTES: usize = 100;
const MAX_ATTRIBUTE_LEN: usize = 300;

/// Keeps a browser from asking for an icon. It is not in listings for programs, which would follow
/// it.
const ICON: &str = "<link rel=\"icon\" href=\"data:,\">\n";

/// A page for people: the tree, and the node that the page describes, if there is one.
pub type DescribedNode<'v> = (&'v Vfs, Option<Arc<Node>>);

/// Returns the beginning of the page of the directory at `names`, for people if they get a
/// description. The root has the name `root`.
pub fn head(root: &str, names: &[String], described: Option<DescribedNode<'_>>) -> String {
    let title = names.last().map_or(root, String::as_str);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n{}<style>{STYLE}</style>\n\
         <main>\n<h1>{}</h1>\n",
        escape(title),
        if described.is_some() { ICON } else { "" },
        way(root, names)
    );
    if let Some((vfs, Some(node))) = described {
        page.push_str(&description(vfs, &node, names));
    }
    page.push_str("<table>\n");
    if !names.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a></td></tr>\n");
    }
    page
}

/// Returns the line of an entry.
pub fn entry(name: &str, attr: &Attr) -> String {
    let slash = if attr.is_dir() { "/" } else { "" };
    let len = if attr.is_dir() { String::new() } else { format!("{} bytes", grouped(attr.len)) };
    format!(
        "<tr><td><a href=\"{}{slash}\">{}{slash}</a></td><td class=\"n\">{len}</td></tr>\n",
        encode(name),
        escape(name)
    )
}

/// Returns the lines about what was not seen in a directory: names, and why.
pub fn not_seen(places: &[(String, String)]) -> String {
    let line = |(name, why): &(String, String)| {
        let name = if name.is_empty() { "Other names" } else { name };
        format!("<tr><td>Not shown: {}: {}</td></tr>\n", escape(name), escape(why))
    };
    places.iter().map(line).collect()
}

/// Writes a number with a narrow space between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len().saturating_sub(at).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns the path as links to the directories above.
fn way(root: &str, names: &[String]) -> String {
    let mut way = String::new();
    for (at, name) in std::iter::once(root).chain(names.iter().map(String::as_str)).enumerate() {
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
pub fn node_at(vfs: &Vfs, names: &[String]) -> Option<Arc<Node>> {
    let path = NodePath::parse(&names.join("/")).ok()?;
    vfs.hierarchy().node(&path).ok().flatten().filter(|node| !node.is_bare())
}

/// Describes a node, with its files of other formats.
fn description(vfs: &Vfs, node: &Node, names: &[String]) -> String {
    let mut text = String::new();
    if let Content::NotUnderstood(_, error) = node.content() {
        let _never = writeln!(text, "<p>Not understood: {}</p>", escape(error.detail()));
    }
    if let Some(array) = node.array() {
        text.push_str(&kind_of(array));
    }
    let (above, name) = match names.last() {
        Some(name) => ("../", name.as_str()),
        None => ("", ROOT_NAME),
    };
    if preview::is_possible(vfs, node.path()) {
        let what = escape(name);
        let _never = writeln!(text, "<p><img src=\"?preview\" alt=\"a slice of {what}\"></p>");
    }
    let link = |extension: &&str| {
        format!("<a href=\"{above}{}.{extension}\">.{extension}</a>", encode(name))
    };
    let links = |extensions: &[&str]| extensions.iter().map(link).collect::<Vec<_>>().join(" ");
    let offers = offers::of(vfs, node);
    if !offers.certain.is_empty() {
        let _never = writeln!(text, "<p>As one file: {}</p>", links(&offers.certain));
    }
    if !offers.possible.is_empty() {
        let all = links(&offers.possible);
        let why = "the answer gives the reason if not";
        let _never = writeln!(text, "<p>If its contents permit ({why}): {all}</p>");
    }
    if !matches!(node.content(), Content::NotUnderstood(..)) {
        let url = opendap::url_from_page(names);
        let shown = url.trim_start_matches("../");
        let what = "For OPeNDAP clients, copy this link";
        let _never = writeln!(text, "<p>{what}: <a href=\"{url}\">{shown}</a></p>");
    }
    text.push_str(&match node.content() {
        Content::Array(array) => {
            table(&shown_attributes(&array.model().attributes, &array.model().dtype))
        }
        Content::Group(group) => table(&group.attributes),
        Content::NotUnderstood(..) => String::new(),
    });
    text
}

/// Describes the elements of an array.
fn kind_of(array: &Array) -> String {
    let model = array.model();
    let numbers =
        |shape: &[u64]| shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" &times; ");
    let dtype = escape(&model.dtype.name());
    if model.shape.is_empty() {
        return format!("<p><code>{dtype}</code> scalar</p>\n");
    }
    let mut dimensions = String::new();
    if model.dimension_names.iter().any(Option::is_some) {
        let names = model.dimension_names.iter();
        let names: Vec<String> =
            names.map(|name| escape(name.as_deref().unwrap_or("unnamed"))).collect();
        dimensions = format!(" ({})", names.join(", "));
    }
    let (shape, chunks) = (numbers(&model.shape), numbers(array.chunk_shape()));
    format!("<p><code>{dtype}</code> {shape}{dimensions}, chunks {chunks}</p>\n")
}

/// Returns a table of attributes.
fn table(attributes: &Object) -> String {
    if attributes.is_empty() {
        return String::new();
    }
    let mut table = "<table>\n".to_owned();
    for (name, value) in attributes.iter().take(MAX_ATTRIBUTES) {
        let value = match value {
            Value::String(value) => value.clone(),
            other => other.to_string(),
        };
        let (name, value) = (escape(&shortened(name)), escape(&shortened(&value)));
        let _never = writeln!(table, "<tr><th>{name}</th><td>{value}</td></tr>");
    }
    if attributes.len() > MAX_ATTRIBUTES {
        let more = attributes.len().saturating_sub(MAX_ATTRIBUTES);
        let _never = writeln!(table, "<tr><th>&hellip;</th><td>and {more} more</td></tr>");
    }
    table + "</table>\n"
}

/// Cuts a long text.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_ATTRIBUTE_LEN) {
        Some((end, _)) => format!("{}\u{2026}", text.get(..end).unwrap_or(text)).into(),
        None => text.into(),
    }
}

/// Escapes a text for HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in printable::escaped(text).chars() {
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
        let expected = "<a href=\"../../\">x&amp;y</a> / <a href=\"../\">a</a> / &lt;b&gt;";
        assert_eq!(way("x&y", &names), expected);
        assert_eq!(way("<x>", &[]), "&lt;x&gt;");
    }

    #[test]
    fn long_numbers_and_texts_are_made_readable() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped).join(" "),
            "0 999 1\u{202f}000 1\u{202f}234\u{202f}567"
        );
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"\u{e4}".repeat(400)), "\u{e4}".repeat(300) + "\u{2026}");
    }
}
