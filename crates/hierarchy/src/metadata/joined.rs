//! The two metadata files of a Zarr 2 node, joined into one string and split again.
//!
//! A node has `.zarray` or `.zgroup`, and its attributes in `.zattrs`. In the joined string the
//! attributes are the member `attributes` of the one object, as in every other dialect, so that
//! reading and editing handle one form. Every byte of both files is kept.

use zarrfs_base::error::{Error, Result};
use zarrfs_codec::json::{self, Text};

/// The member with the attributes in a joined string.
const ATTRIBUTES: &str = "attributes";

/// Joins a metadata file and its attributes to one string.
pub fn join(document: &str, attributes: Option<&str>) -> Result<String> {
    let mut text = Text::parse(document.as_bytes())?;
    let Some(attributes) = attributes else { return Ok(text.into_string()) };
    json::parse_object(attributes.as_bytes())?;
    let attributes = attributes.trim_start_matches('\u{feff}').trim();
    text.append_raw(ATTRIBUTES, attributes)?;
    Ok(text.into_string())
}

/// Splits a joined string into the metadata file and its attributes, if it has any.
pub fn split(joined: &str) -> Result<(String, Option<String>)> {
    let mut text = Text::parse(joined.as_bytes())?;
    let attributes = text.member(&[ATTRIBUTES])?.map(dedented);
    if attributes.as_ref().is_some_and(|text| !text.starts_with('{') && text != "null") {
        return Err(Error::invalid("attributes are not an object"));
    }
    text.remove(&[ATTRIBUTES])?;
    Ok((text.into_string(), attributes.filter(|text| text != "null")))
}

/// Removes the indentation that an object has because it was nested in another.
fn dedented(text: &str) -> String {
    let indent: String = match text.lines().next_back() {
        Some(last) if text.contains('\n') => {
            last.chars().take_while(|c| matches!(c, ' ' | '\t')).collect()
        }
        _ => return text.to_owned(),
    };
    let lines = text.split('\n').enumerate();
    let cut = |(at, line): (usize, &str)| match at {
        0 => Some(line.to_owned()),
        _ => line.strip_prefix(indent.as_str()).map(str::to_owned),
    };
    let lines: Option<Vec<String>> = lines.map(cut).collect();
    lines.map_or_else(|| text.to_owned(), |lines| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_string_splits_into_the_same_bytes() {
        for document in [
            "{\"zarr_format\":2}",
            "{}",
            "{\n    \"zarr_format\": 2,\n    \"shape\": [\n        1\n    ]\n}",
            "\n{\n  \"zarr_format\": 2\n}\n",
        ] {
            for attributes in [
                None,
                Some("{}"),
                Some("{\"a\": NaN}"),
                Some("{\n    \"a\": [\n        1,\n        12345678901234567890123\n    ]\n}"),
                Some("{\n  \"b\": \"x\\ny\"\n}"),
            ] {
                let joined = join(document, attributes).expect("joined");
                let found = split(&joined).expect("split");
                let expected = (document.to_owned(), attributes.map(str::to_owned));
                assert_eq!(found, expected, "{joined}");
            }
        }
    }
}
