//! Hyperstacks of ImageJ: lines of `name=value` in the description of the first page.
//!
//! Files of more than 4 GB have one directory, and all planes follow the first one.

use std::collections::HashMap;

use super::directory::tag;
use super::image::{ImageAxis, TiffImage, unit};
use super::pages::TiffPages;
use super::planes::{MAX_PLANES, Plane};
use zarrfs_base::error::Result;
use zarrfs_base::width::ToUsize;

/// Returns the image that a description of ImageJ says; `None` if it is none, or does not fit.
pub fn image(pages: &TiffPages, description: &str) -> Result<Option<TiffImage>> {
    if !description.starts_with("ImageJ=") {
        return Ok(None);
    }
    let values: HashMap<&str, &str> =
        description.lines().filter_map(|line| line.split_once('=')).collect();
    let number = |name: &str| values.get(name).and_then(|text| text.trim().parse::<u64>().ok());
    let float = |name: &str| values.get(name).and_then(|text| text.trim().parse::<f64>().ok());
    let count = |name: &str| number(name).unwrap_or(1).max(1);
    let page = pages.get(0)?;
    // Samples may be declared as channels.
    let (slices, frames) = (count("slices"), count("frames"));
    let channels = if count("channels") == page.form.samples { 1 } else { count("channels") };
    let stated = slices.checked_mul(frames).and_then(|count| count.checked_mul(channels));
    let Some(mut planes) = stated.filter(|count| *count <= MAX_PLANES) else { return Ok(None) };
    let chain_len = u64::try_from(pages.chain_len).unwrap_or(u64::MAX);
    let is_stack = planes == 1;
    if is_stack {
        planes = number("images").unwrap_or(1).max(chain_len).clamp(1, MAX_PLANES);
    }
    let Some(stored) = stored(pages, planes)? else { return Ok(None) };
    let axis =
        |name: &str, len: u64| ImageAxis { name: name.to_owned(), len, ..ImageAxis::default() };
    let order = values.get("order").copied().unwrap_or("czt").to_lowercase();
    let (outer, planes) = if is_stack {
        (vec![axis("page", planes)], stored)
    } else {
        let lens = [("t", frames), ("c", channels), ("z", slices)];
        let outer = lens.map(|(name, len)| axis(name, len)).to_vec();
        (outer, ordered(&stored, lens, &order))
    };
    let mut image = TiffImage { outer, levels: vec![planes], ..TiffImage::default() };
    let spatial = values.get("unit").and_then(|text| unit(text));
    for axis in &mut image.outer {
        match axis.name.as_str() {
            "z" => (axis.step, axis.unit) = (float("spacing"), spatial.clone()),
            "t" => {
                axis.step = float("finterval").filter(|step| *step > 0.0);
                axis.unit = axis.step.map(|_| "second".to_owned());
            }
            _ => {}
        }
    }
    image.outer.retain(|axis| axis.len > 1);
    if spatial.is_some() {
        let directory = pages.bytes.directory(page.offset)?;
        let step = |tag: u16| {
            let Some(values) = directory.get(tag) else { return Ok(None) };
            let density = pages.bytes.floats(values, 1)?.first().copied();
            Ok::<_, zarrfs_base::error::Error>(
                density.map(|one| 1.0 / one).filter(|it| it.is_normal()),
            )
        };
        (image.rows.step, image.rows.unit) = (step(tag::Y_RESOLUTION)?, spatial.clone());
        (image.columns.step, image.columns.unit) = (step(tag::X_RESOLUTION)?, spatial);
        image.is_ome = true;
    }
    Ok(Some(image))
}

/// Returns planes as the file has them: each a page, or all after the first page.
fn stored(pages: &TiffPages, planes: u64) -> Result<Option<Vec<Option<Plane>>>> {
    let numbers = 0..u32::try_from(planes).unwrap_or(u32::MAX);
    let form = &pages.get(0)?.form;
    if pages.chain_len >= planes.to_usize() {
        let chain = pages.all.get(..planes.to_usize()).unwrap_or_default();
        let is_uniform = chain.iter().all(|page| page.form == *form);
        let pages = numbers.map(|page| Some(Plane { page, skip: 0 })).collect();
        return Ok(is_uniform.then_some(pages));
    }
    if form.compression != 1 || form.is_tiled || form.is_planar {
        return Ok(None);
    }
    following(pages, 0, planes)
}

/// Returns planes that follow each other after the first element of a page; `None` if the file is
/// shorter.
pub fn following(pages: &TiffPages, page: u32, planes: u64) -> Result<Option<Vec<Option<Plane>>>> {
    let key = pages.get(page.to_usize())?;
    let Some((len, offsets)) = key.form.len().zip(key.offsets) else { return Ok(None) };
    let start = pages.bytes.numbers(offsets, 0, 1)?.first().copied().unwrap_or_default();
    let end = len.checked_mul(planes).and_then(|all| all.checked_add(start));
    if planes > MAX_PLANES || end.is_none_or(|end| end > pages.bytes.file.len()) {
        return Ok(None);
    }
    Ok(Some((0..planes).map(|at| Some(Plane { page, skip: at.saturating_mul(len) })).collect()))
}

/// Returns planes in C order of `lens`, of planes whose dimensions are in `order`, the fastest
/// first.
pub fn ordered(
    stored: &[Option<Plane>],
    lens: [(&str, u64); 3],
    order: &str,
) -> Vec<Option<Plane>> {
    let mut fastest: Vec<char> = order.chars().filter(|char| "tcz".contains(*char)).collect();
    fastest.dedup();
    if fastest.len() != 3 {
        fastest = vec!['c', 'z', 't'];
    }
    let len_of =
        |name: char| lens.iter().find(|(own, _)| own.starts_with(name)).map_or(1, |(_, len)| *len);
    let step_of = |name: &str| {
        let before = fastest.iter().take_while(|char| !name.starts_with(**char));
        before.fold(1_u64, |step, char| step.saturating_mul(len_of(*char)))
    };
    let [(a, na), (b, nb), (c, nc)] = lens;
    let (sa, sb, sc) = (step_of(a), step_of(b), step_of(c));
    let mut planes = Vec::with_capacity(stored.len());
    for i in 0..na {
        for j in 0..nb {
            for k in 0..nc {
                let at = i.saturating_mul(sa).saturating_add(j.saturating_mul(sb));
                let at = at.saturating_add(k.saturating_mul(sc));
                planes.push(stored.get(at.to_usize()).copied().flatten());
            }
        }
    }
    planes
}
