//! The tags of a page as attributes, by their names in the specification.

use serde_json::{Value, json};

use super::directory::tag;
use super::page::TiffPage;
use super::pages::TiffPages;
use zarrfs_base::error::Result;
use zarrfs_codec::json::Object;

/// The longest text that is an attribute.
const MAX_TEXT_LEN: u64 = 64 << 10;

/// The most numbers of an attribute: a color map of 16 bits has more, and is left out.
const MAX_COUNT: u64 = 4096;

/// Those that are text.
const TEXTS: [(u16, &str); 11] = [
    (269, "DocumentName"),
    (tag::IMAGE_DESCRIPTION, "ImageDescription"),
    (271, "Make"),
    (272, "Model"),
    (285, "PageName"),
    (305, "Software"),
    (306, "DateTime"),
    (315, "Artist"),
    (316, "HostComputer"),
    (33_432, "Copyright"),
    (tag::GDAL_METADATA, "GDAL_METADATA"),
];

/// Those that are numbers.
const NUMBERS: [(u16, &str); 5] = [
    (tag::X_RESOLUTION, "XResolution"),
    (tag::Y_RESOLUTION, "YResolution"),
    (tag::RESOLUTION_UNIT, "ResolutionUnit"),
    (tag::EXTRA_SAMPLES, "ExtraSamples"),
    (tag::COLOR_MAP, "ColorMap"),
];

/// Returns the attributes of an array whose first page is this.
pub fn of(pages: &TiffPages, page: &TiffPage) -> Result<Object> {
    let bytes = &pages.bytes;
    let directory = bytes.directory(page.offset)?;
    let mut attributes = Object::new();
    for (tag, name) in TEXTS {
        let Some(values) = directory.get(tag).filter(|values| values.is_text()) else { continue };
        if values.count <= MAX_TEXT_LEN {
            let text = bytes.text(values)?;
            let text = text.trim_end_matches(['\0', ' ']);
            if !text.is_empty() {
                attributes.insert(name.to_owned(), json!(text));
            }
        }
    }
    for (tag, name) in NUMBERS {
        let Some(values) = directory.get(tag).filter(|it| it.count <= MAX_COUNT) else { continue };
        let floats: Vec<Value> = bytes.floats(values, MAX_COUNT)?.into_iter().map(number).collect();
        let value = match (floats.as_slice(), tag) {
            ([], _) => continue,
            ([single], _) => single.clone(),
            (all, tag::COLOR_MAP) => colors(all),
            (all, _) => Value::from(all.to_vec()),
        };
        attributes.insert(name.to_owned(), value);
    }
    attributes.insert("PhotometricInterpretation".to_owned(), photometric(page.form.photometric));
    Ok(attributes)
}

/// Returns a number, without a fraction if it has none.
fn number(float: f64) -> Value {
    if !float.is_finite() {
        return json!(float.to_string());
    }
    match format!("{float}").parse::<i64>() {
        Ok(integer) => json!(integer),
        Err(_) => json!(float),
    }
}

/// Returns a color map as a list of reds, of greens and of blues.
fn colors(all: &[Value]) -> Value {
    let len = (all.len() / 3).max(1);
    all.chunks(len).map(|color| Value::from(color.to_vec())).collect()
}

/// Returns the meaning of samples.
fn photometric(number: u64) -> Value {
    json!(match number {
        0 => "MinIsWhite",
        1 => "MinIsBlack",
        2 => "RGB",
        3 => "Palette",
        4 => "Mask",
        5 => "Separated",
        6 => "YCbCr",
        8 => "CIELab",
        32_803 => "CFA",
        other => return json!(other),
    })
}
