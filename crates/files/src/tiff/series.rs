//! Images of pages that nothing but their own tags describes.
//!
//! Pages of one form are one image, as tifffile shows them. Smaller copies of an image are its
//! further resolutions: pages below others, pages that say so, and tiled pages of a half, a third
//! or a quarter of the size.

use std::collections::HashMap;

use super::image::TiffImage;
use super::page::PageForm;
use super::pages::TiffPages;
use zarrfs_base::width::ToUsize;

/// The most images after one that are compared with it.
const MAX_COMPARED: usize = 128;

/// Pages of one form.
#[derive(Debug)]
struct Alike {
    numbers: Vec<u32>,
    form: PageForm,
    /// Whether they may be a resolution of an image of pages before them.
    is_smaller: bool,
    is_child: bool,
    is_mask: bool,
}

/// Returns the images of a file, and its masks.
pub fn images(pages: &TiffPages) -> (Vec<TiffImage>, Vec<TiffImage>) {
    let mut all = alike(pages);
    let masks: Vec<TiffImage> =
        all.extract_if(.., |it| it.is_mask).map(|it| TiffImage::of_pages(&it.numbers)).collect();
    let mut images = Vec::new();
    let mut is_taken = vec![false; all.len()];
    for (number, first) in all.iter().enumerate() {
        if is_taken.get(number).copied().unwrap_or(true) {
            continue;
        }
        let mut image = TiffImage::of_pages(&first.numbers);
        let mut last = &first.form;
        let rest = all.iter().zip(&mut is_taken).skip(number.saturating_add(1)).take(MAX_COMPARED);
        for (other, is_taken) in rest.filter(|_| !first.is_child) {
            let is_level = !*is_taken
                && other.numbers.len() == first.numbers.len()
                && last.has_level(&other.form)
                && (other.is_smaller || is_step(last, &other.form));
            if is_level {
                *is_taken = true;
                image.levels.extend(TiffImage::of_pages(&other.numbers).levels);
                last = &other.form;
            }
        }
        images.push(image);
    }
    (images, masks)
}

/// Returns the pages of each form, in the order of the file.
fn alike(pages: &TiffPages) -> Vec<Alike> {
    let mut all: Vec<Alike> = Vec::new();
    let mut found: HashMap<(&PageForm, bool, bool), usize> = HashMap::new();
    let numbers = (0_u32..).zip(&pages.all);
    let chain = numbers.take(pages.chain_len);
    let mut add = |number: u32| {
        let Some(page) = pages.all.get(number.to_usize()) else { return };
        let key = (&page.form, page.is_child, page.is_mask());
        let at = *found.entry(key).or_insert(all.len());
        if let Some(alike) = all.get_mut(at) {
            alike.numbers.push(number);
            return;
        }
        all.push(Alike {
            numbers: vec![number],
            form: page.form.clone(),
            is_smaller: page.is_child || page.is_reduced(),
            is_child: page.is_child,
            is_mask: page.is_mask(),
        });
    };
    for (number, page) in chain {
        add(number);
        page.children.iter().for_each(|child| add(*child));
    }
    all
}

/// Whether tiled pages are a half, a third or a quarter as large as others.
fn is_step(form: &PageForm, other: &PageForm) -> bool {
    let is_part = |whole: u64, part: u64, by: u64| part == whole / by || part == whole.div_ceil(by);
    form.is_tiled
        && other.is_tiled
        && (2..=4).any(|by| {
            is_part(form.height, other.height, by) && is_part(form.width, other.width, by)
        })
}
