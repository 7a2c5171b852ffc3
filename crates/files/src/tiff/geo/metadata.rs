//! The metadata of GDAL: XML in a tag.
//!
//! ```text
//! <GDALMetadata><Item name="TIME">now</Item><Item name="SCALE" sample="0" role="scale">0.1</Item>
//! ```

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;
use serde_json::{Value, json};

use crate::tiff::xml::{attributes, local, resolved};
use zarrfs_codec::json::Object;

/// The longest text that is parsed, and the most items.
const MAX_LEN: usize = 1 << 20;
const MAX_ITEMS: usize = 4096;

/// The names of attributes for the roles of items.
const ROLES: [(&str, &str, f64); 2] =
    [("scale", "scale_factor", 1.0), ("offset", "add_offset", 0.0)];

/// An item.
#[derive(Debug, Default)]
struct MetadataItem {
    name: String,
    sample: Option<u64>,
    role: String,
    domain: String,
    text: String,
}

/// The items of an image.
#[derive(Debug, Default)]
pub struct GdalMetadata {
    items: Vec<MetadataItem>,
}

impl GdalMetadata {
    /// Parses a text; stops at damage.
    pub fn parse(text: &str) -> Self {
        Self::items(text).unescaped()
    }

    fn items(text: &str) -> Self {
        let mut metadata = Self::default();
        if text.len() > MAX_LEN {
            return metadata;
        }
        let mut reader = Reader::from_str(text);
        let mut is_in_item = false;
        while let Ok(event) = reader.read_event() {
            let added = match &event {
                Event::Start(tag) if local(tag.local_name().as_ref()) == "Item" => {
                    let Some(mut found) = attributes(tag) else { return metadata };
                    let mut take = |name: &str| found.remove(name).unwrap_or_default();
                    metadata.items.push(MetadataItem {
                        name: take("name"),
                        sample: take("sample").parse().ok(),
                        role: take("role"),
                        domain: take("domain"),
                        text: String::new(),
                    });
                    is_in_item = metadata.items.len() < MAX_ITEMS;
                    continue;
                }
                Event::End(_) => {
                    is_in_item = false;
                    continue;
                }
                Event::Text(text) => text.decode().ok().map(std::borrow::Cow::into_owned),
                Event::CData(text) => text.decode().ok().map(std::borrow::Cow::into_owned),
                Event::GeneralRef(name) => resolved(name),
                Event::Eof => break,
                Event::Start(_)
                | Event::Empty(_)
                | Event::Comment(_)
                | Event::Decl(_)
                | Event::PI(_)
                | Event::DocType(_) => None,
            };
            if let (Some(item), Some(added), true) = (metadata.items.last_mut(), added, is_in_item)
            {
                item.text.push_str(&added);
            }
            if metadata.items.len() >= MAX_ITEMS {
                break;
            }
        }
        metadata
    }

    /// Undoes that GDAL escapes values before it writes them as XML.
    fn unescaped(mut self) -> Self {
        for item in &mut self.items {
            if let Ok(text) = unescape(&item.text) {
                item.text = text.into_owned();
            }
        }
        self
    }

    /// Returns the attributes of an array of `samples` bands.
    pub fn attributes(&self, samples: u64) -> Object {
        let mut attributes = Object::new();
        let whole = |item: &&MetadataItem| {
            item.sample.is_none() && item.role.is_empty() && item.domain.is_empty()
        };
        for item in self.items.iter().filter(whole) {
            attributes.insert(item.name.clone(), json!(item.text));
        }
        let of_role = |role: &'static str| self.items.iter().filter(move |item| item.role == role);
        for (role, name, usual) in ROLES {
            let found = of_role(role).filter_map(|item| {
                Some((item.sample.unwrap_or_default(), item.text.trim().parse::<f64>().ok()?))
            });
            let found: Vec<(u64, f64)> = found.filter(|(_, value)| value.is_finite()).collect();
            let Some((_, first)) = found.first() else { continue };
            let count = u64::try_from(found.len()).unwrap_or(u64::MAX);
            let is_one = count >= samples
                && found.iter().all(|(_, value)| value.to_bits() == first.to_bits());
            let listed = (0..samples.min(4096)).map(|sample| {
                found.iter().find(|(own, _)| *own == sample).map_or(usual, |(_, value)| *value)
            });
            // Readers apply one number to all bands.
            let (name, value) = if is_one {
                (name.to_owned(), json!(first))
            } else {
                (format!("{role}s"), Value::from(listed.collect::<Vec<f64>>()))
            };
            attributes.insert(name, value);
        }
        for (role, name) in [("description", "long_name"), ("unittype", "units")] {
            let mut texts: Vec<&str> = of_role(role).map(|item| item.text.as_str()).collect();
            texts.dedup();
            match texts.as_slice() {
                [] => {}
                [one] => {
                    attributes.insert(name.to_owned(), json!(one));
                }
                many => {
                    attributes.insert(name.to_owned(), json!(many));
                }
            }
        }
        attributes
    }
}
