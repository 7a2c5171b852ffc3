//! Images of tifffile: the shape of each, in the description of its first page.
//!
//! ```text
//! {"shape": [5, 2, 40, 30], "axes": "TCYX", "truncated": true}
//! ```
//!
//! The pages of an image follow each other. A truncated image has one page, and the other planes
//! follow that. Smaller copies are below the pages.

use serde_json::Value;

use super::image::{ImageAxis, TiffImage};
use super::imagej::following;
use super::page::PageForm;
use super::pages::TiffPages;
use super::planes::{MAX_PLANES, Plane};
use zarrfs_base::error::Result;
use zarrfs_base::width::{ToU64, ToUsize};

/// The longest description that is parsed. It is written in one line.
const MAX_LEN: usize = 64 << 10;

/// The most planes of an image that may be missing.
pub const MAX_MISSING: usize = 1 << 16;

/// The most dimensions of an image.
const MAX_RANK: usize = 32;

/// Returns the images of a file; `None` if their descriptions do not fit the pages.
pub fn images(pages: &TiffPages) -> Result<Option<Vec<TiffImage>>> {
    let mut images = Vec::new();
    let mut at = 0;
    while at < pages.chain_len {
        let page = pages.get(at)?;
        let description = pages.description(page)?;
        let Some(shape) = Shape::parse(&description) else { return Ok(None) };
        let Some(outer) = shape.outer(&page.form) else { return Ok(None) };
        let count = outer.iter().try_fold(1_u64, |count, axis| count.checked_mul(axis.len));
        let Some(count) = count.filter(|count| (1..=MAX_PLANES).contains(count)) else {
            return Ok(None);
        };
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        let rest = pages.all.get(at..pages.chain_len).unwrap_or_default();
        let is_alike = |count: usize| {
            rest.len() >= count && rest.iter().take(count).all(|other| other.form == page.form)
        };
        let is_truncated = shape.is_truncated || !is_alike(count.to_usize());
        let (planes, taken) = if is_truncated && count > 1 {
            let Some(planes) = following(pages, number, count)? else { return Ok(None) };
            (planes, 1)
        } else {
            let numbers = (number..).take(count.to_usize());
            (numbers.map(|page| Some(Plane { page, skip: 0 })).collect(), count.to_usize())
        };
        let levels = levels_below(pages, &planes)?;
        let levels = std::iter::once(planes).chain(levels).collect();
        let samples = shape.samples(&page.form, &outer);
        images.push(TiffImage { name: shape.name, outer, samples, levels, ..TiffImage::default() });
        at = at.saturating_add(taken.max(1));
    }
    Ok(Some(images))
}

/// Returns the resolutions that the pages below each plane have.
pub fn levels_below(
    pages: &TiffPages,
    planes: &[Option<Plane>],
) -> Result<Vec<Vec<Option<Plane>>>> {
    let mut levels = Vec::new();
    let Some(first) = planes.iter().flatten().next() else { return Ok(levels) };
    let mut last = pages.get(first.page.to_usize())?;
    for (at, key) in last.children.clone().into_iter().enumerate() {
        let key = pages.get(key.to_usize())?;
        // Planes of all resolutions are pages of the file, or missing.
        let total = levels.len().saturating_add(1).saturating_mul(planes.len());
        let most = pages.all.len().saturating_mul(4).saturating_add(MAX_MISSING);
        if !last.form.has_level(&key.form) || total > most {
            break;
        }
        let mut level = Vec::with_capacity(planes.len());
        for plane in planes {
            let page = plane.map(|plane| pages.get(plane.page.to_usize())).transpose()?;
            let child = page.and_then(|page| page.children.get(at));
            let child = child.filter(|child| {
                pages.get(child.to_usize()).is_ok_and(|page| page.form == key.form)
            });
            level.push(child.map(|page| Plane { page: *page, skip: 0 }));
        }
        levels.push(level);
        last = key;
    }
    Ok(levels)
}

/// The shape of an image.
struct Shape {
    lens: Vec<u64>,
    /// A letter for each dimension.
    axes: Option<Vec<char>>,
    name: String,
    is_truncated: bool,
}

impl Shape {
    /// Parses a description; `None` if it has no shape.
    fn parse(description: &str) -> Option<Self> {
        if description.len() > MAX_LEN {
            return None;
        }
        let value: Value = match description.strip_prefix("shape=(") {
            Some(old) => {
                let lens = old.strip_suffix(')')?.split(',').filter(|len| !len.trim().is_empty());
                let lens = lens.map(|len| len.trim().parse().ok()).collect::<Option<Vec<u64>>>()?;
                serde_json::json!({"shape": lens})
            }
            None => serde_json::from_str(description).ok()?,
        };
        let lens = value.get("shape")?.as_array()?;
        let lens = lens.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>()?;
        let axes = value.get("axes").and_then(Value::as_str);
        let axes = axes.map(|axes| axes.chars().collect::<Vec<char>>());
        let name = value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        (lens.len() <= MAX_RANK).then(|| Self {
            axes: axes.filter(|axes| axes.len() == lens.len()),
            lens,
            name,
            is_truncated: value.get("truncated") == Some(&Value::Bool(true)),
        })
    }

    /// Returns the name of the dimension of samples, if a letter says another one than usual.
    fn samples(&self, form: &PageForm, outer: &[ImageAxis]) -> Option<String> {
        let rank = self.lens.len();
        let at = rank.checked_sub(if form.is_planar { 3 } else { 1 })?;
        let letter = self.axes.as_ref()?.get(at).filter(|_| form.samples > 1)?;
        let name = letter.to_ascii_lowercase().to_string();
        let is_free = letter.is_ascii_alphabetic() && !"xysq".contains(&name);
        (is_free && outer.iter().all(|axis| axis.name != name)).then_some(name)
    }

    /// Returns the dimensions before those of a page; `None` if the last ones are not those.
    fn outer(&self, form: &PageForm) -> Option<Vec<ImageAxis>> {
        let page = match (form.samples, form.is_planar) {
            (1, _) => vec![form.height, form.width],
            (samples, true) => vec![samples, form.height, form.width],
            (samples, false) => vec![form.height, form.width, samples],
        };
        let count = self.lens.len().checked_sub(page.len())?;
        let (outer, inner) = self.lens.split_at_checked(count)?;
        if inner != page {
            return None;
        }
        let mut axes = Vec::new();
        for (at, len) in outer.iter().enumerate() {
            let letter = self.axes.as_ref().and_then(|axes| axes.get(at).copied());
            let name = letter.filter(char::is_ascii_alphabetic).map(|it| it.to_ascii_lowercase());
            let is_new =
                |name: &char| !axes.iter().any(|axis: &ImageAxis| axis.name == name.to_string());
            let name = name.filter(|name| !"xysq".contains(*name)).filter(is_new);
            let name = name.map_or_else(|| format!("dim_{}", at.to_u64()), |name| name.to_string());
            axes.push(ImageAxis { name, len: *len, ..ImageAxis::default() });
        }
        Some(axes)
    }
}
