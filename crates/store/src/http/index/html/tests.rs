use super::*;
use crate::StoreEntry;

fn names(text: &str) -> Option<Vec<StoreEntry>> {
    let page = Url::parse("http://127.0.0.1/x.zarr/").expect("a URL");
    Some(parse(&page, text, 99)?.into_keys().collect())
}

fn wanted(hidden: &[&str]) -> Option<Vec<StoreEntry>> {
    let keys = hidden.iter().chain(&["zarr.json"]).map(|name| StoreEntry::Key((*name).to_owned()));
    let prefixes = ["a b&c%", "c"].map(|name| StoreEntry::Prefix(name.to_owned()));
    Some(keys.chain(prefixes).collect())
}

/// As the servers in Debian 12 have sent them.
const NGINX: &str = r#"<html>
<head><title>Index of /x.zarr/</title></head>
<body>
<h1>Index of /x.zarr/</h1><hr><pre><a href="../">../</a>
<a href="a%20b%26c%25/">a b&amp;c%/</a>              25-Nov-2026 18:09                   -
<a href="c/">c/</a>                                  25-Nov-2026 18:09                   -
<a href="zarr.json">zarr.json</a>                    25-Nov-2026 18:09                   3
</pre><hr></body>
</html>
"#;

const APACHE: &str = r#"<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN" "http://www.w3.org/TR/html4/strict.dtd">
<html>
 <head>
  <title>Index of /x.zarr</title>
 </head>
 <body>
<h1>Index of /x.zarr</h1>
<ul><li><a href="/"> Parent Directory</a></li>
<li><a href=".zgroup"> .zgroup</a></li>
<li><a href="a%20b&amp;c%25/"> a b&amp;c%/</a></li>
<li><a href="c/"> c/</a></li>
<li><a href="zarr.json"> zarr.json</a></li>
</ul>
</body></html>
"#;

const APACHE_FANCY: &str = r#"<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN" "http://www.w3.org/TR/html4/strict.dtd">
<html>
 <head>
  <title>Index of /x.zarr</title>
 </head>
 <body>
<h1>Index of /x.zarr</h1>
  <table>
   <tr><th valign="top">&nbsp;</th><th><a href="?C=N;O=D">Name</a></th><th><a href="?C=M;O=A">Last modified</a></th></tr>
<tr><td valign="top">&nbsp;</td><td><a href="/">Paren..&gt;</a></td><td align="right">  - </td></tr>
<tr><td valign="top">&nbsp;</td><td><a href="a%20b&amp;c%25/">a b&amp;c%/</a> </td><td>2026-11-25 18:09  </td></tr>
<tr><td valign="top">&nbsp;</td><td><a href="c/">c/</a>      </td><td>2026-11-25 18:09  </td></tr>
<tr><td valign="top">&nbsp;</td><td><a href="zarr.json">zarr...&gt;</a></td><td>2026-11-25 18:09  </td></tr>
</table>
</body></html>
"#;

const LIGHTTPD: &str = r#"<!DOCTYPE html>
<html>
<head>
<title>Index of /x.zarr/</title>
<style type="text/css">
a, a:active {text-decoration: none; color: blue;}
</style>
</head>
<body>
<h2>Index of /x.zarr/</h2>
<table summary="Directory Listing" cellpadding="0" cellspacing="0">
<tr class="d"><td class="n"><a href="../">..</a>/</td><td class="m">&nbsp;</td></tr>
<tr class="d"><td class="n"><a href="a%20b%26c%25/">a b&#x26;c%</a>/</td></tr>
<tr class="d"><td class="n"><a href="c/">c</a>/</td><td class="m">2026-Nov-25 18:09:19</td></tr>
<tr><td class="n"><a href="zarr.json">zarr.json</a></td><td class="s">0.1K</td></tr>
</table>
</body>
</html>
"#;

const PYTHON: &str = r#"<!DOCTYPE HTML>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Directory listing for /x.zarr/</title>
</head>
<body>
<h1>Directory listing for /x.zarr/</h1>
<ul>
<li><a href=".zgroup">.zgroup</a></li>
<li><a href="a%20b%26c%25/">a b&amp;c%/</a></li>
<li><a href="c/">c/</a></li>
<li><a href="zarr.json">zarr.json</a></li>
</ul>
</body>
</html>
"#;

#[test]
fn the_lists_of_servers_give_their_names() {
    for (page, hidden) in [
        (NGINX, &[][..]),
        (APACHE, &[".zgroup"]),
        (APACHE_FANCY, &[]),
        (LIGHTTPD, &[]),
        (PYTHON, &[".zgroup"]),
    ] {
        assert_eq!(names(page), wanted(hidden), "{page}");
    }
}

#[test]
fn links_are_found_however_their_tags_are_written() {
    let page = "<HTML><HEAD><TITLE class=x>Index of /</TITLE></HEAD><A class='a' HREF = 'a/'>a</A>\
                <a\nid=x href=b >b</a><abbr href=no></abbr><a>no</a><a name>no</a></HTML>\n\n";
    let want = [StoreEntry::Key("b".to_owned()), StoreEntry::Prefix("a".to_owned())];
    assert_eq!(names(page), Some(want.into()));
}

#[test]
fn another_page_is_no_list() {
    for page in [
        "",
        "<html><head><title>A viewer</title></head><a href=\"zarr.json\">x</a></html>",
        "<html><a href=\"zarr.json\">Index of /x</a></html>",
        "Index of /x",
        "<title>Index of /x",
    ] {
        assert_eq!(names(page), None, "{page}");
    }
}

#[test]
fn a_list_that_was_cut_is_none() {
    for at in (0..PYTHON.len() - 10).filter(|at| PYTHON.is_char_boundary(*at)) {
        assert_eq!(names(&PYTHON[..at]), None, "{at}");
    }
}

#[test]
fn a_hostile_page_takes_no_time() {
    let page = Url::parse("http://host/x/").expect("a URL");
    let list =
        |body: &str| parse(&page, &format!("<html><title>Index of /x/</title>{body}</html>"), 99);
    let count = 300_000;
    // A minute or more, if each is sought up to the end.
    assert_eq!(list(&"<a x ".repeat(count)).map(|names| names.len()), Some(0));
    assert_eq!(
        list(&format!("<a href='{}'>", "&".repeat(count))).map(|names| names.len()),
        Some(1)
    );
    assert_eq!(list(&"<a href=\"".repeat(3)), None, "a tag without an end");
    assert_eq!(list(&"<".repeat(count)).map(|names| names.len()), Some(0));
}

#[test]
fn a_long_list_is_not_read_to_its_end() {
    let page = Url::parse("http://127.0.0.1/x.zarr/").expect("a URL");
    let links = (0..9).map(|at| format!("<a href=\"{at}\">{at}</a>")).collect::<Vec<_>>().concat();
    let text = format!("<html><title>Index of /</title>{links}</html>");
    assert_eq!(parse(&page, &text, 9).map(|names| names.len()), Some(9));
    assert_eq!(parse(&page, &text, 4).map(|names| names.len()), Some(5));
}
