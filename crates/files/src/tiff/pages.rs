//! All pages of a file: the chain of directories, and those below them.

use std::cell::Cell;
use std::collections::HashMap;

use super::directory::{TagValues, TiffBytes, tag};
use super::page::TiffPage;
use crate::described::Described;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// The most pages of a file. They take about 80 MB.
const MAX_PAGES: usize = 1 << 18;

/// The places of tiles that may be read in a small file.
const MIN_PLACES: u64 = 1 << 16;

/// The most damaged pages below others that are named.
const MAX_NAMED: usize = 16;

/// The most pages below one page.
const MAX_CHILDREN: u64 = 64;

/// The pages of a file, and its bytes.
#[derive(Debug)]
pub struct TiffPages {
    /// The bytes.
    pub bytes: TiffBytes,
    /// All pages. Those below another one follow those of the chain.
    pub all: Vec<TiffPage>,
    /// How many of them are in the chain.
    pub chain_len: usize,
    by_offset: HashMap<u64, u32>,
    /// The places of tiles that may still be read: those of a page are in no other one.
    places_left: Cell<u64>,
    /// How many directories have no image.
    empty: usize,
    /// The bytes that directories may still have: they do not overlap.
    left: u64,
}

impl TiffPages {
    /// Reads the directories of a file. A damaged one ends the chain, and is noted.
    pub fn read(bytes: TiffBytes, first: u64, described: &mut Described) -> Result<Self> {
        let left = bytes.file.len();
        let mut pages = Self {
            bytes,
            all: Vec::new(),
            chain_len: 0,
            by_offset: HashMap::new(),
            empty: 0,
            places_left: Cell::new((left / 2).saturating_add(MIN_PLACES)),
            left,
        };
        let mut below = Vec::new();
        let mut next = first;
        while next != 0 {
            match pages.add(next, &mut below) {
                Ok(after) => next = after,
                Err(error) if pages.all.is_empty() => return Err(error),
                Err(error) => {
                    let at = format!("page{}", pages.all.len());
                    described
                        .omit(&at, &format!("this page and those after it: {}", error.detail()));
                    break;
                }
            }
        }
        pages.chain_len = pages.all.len();
        pages.add_children(below, described);
        if pages.all.is_empty() {
            return Err(Error::corrupt("a TIFF without an image"));
        }
        if pages.empty > 0 {
            described
                .omit("", &format!("{} directories without the size of an image", pages.empty));
        }
        Ok(pages)
    }

    /// Adds the page of a directory, and returns the offset of the next one. The places of pages
    /// below it go to `below`, with its number.
    fn add(&mut self, offset: u64, below: &mut Vec<(u32, u64)>) -> Result<u64> {
        if self.by_offset.contains_key(&offset) {
            return Err(Error::corrupt(format!("the directory at byte {offset} comes twice")));
        }
        if self.by_offset.len() >= MAX_PAGES {
            return Err(Error::too_large(format!("more than {MAX_PAGES} pages")));
        }
        let directory = self.bytes.directory(offset)?;
        let left = self.left.checked_sub(directory.len);
        self.left = left.ok_or_else(|| Error::corrupt("directories overlap"))?;
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.by_offset.insert(offset, number);
        if let Some(page) = TiffPage::parse(&self.bytes, &directory, offset)? {
            if let Some(values) = directory.get(tag::SUB_IFDS) {
                let places = self.bytes.numbers(values, 0, MAX_CHILDREN)?;
                let room = MAX_PAGES.saturating_sub(below.len());
                below.extend(places.into_iter().take(room).map(|place| (number, place)));
            }
            self.all.push(page);
        } else {
            self.empty = self.empty.saturating_add(1);
        }
        Ok(directory.next)
    }

    /// Adds the pages below others. Those below them are no levels, and are left out.
    fn add_children(&mut self, below: Vec<(u32, u64)>, described: &mut Described) {
        let (mut deeper, mut named) = (Vec::new(), 0_usize);
        for (parent, offset) in below {
            let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
            // A place of 0 is that of no page.
            if offset < 8 {
                continue;
            }
            let added = self.add(offset, &mut deeper);
            if let Err(error) = added {
                named = named.saturating_add(1);
                if named > MAX_NAMED {
                    continue;
                }
                described.omit(
                    &format!("page{parent}"),
                    &format!("a page below it: {}", error.detail()),
                );
                continue;
            }
            if let Some(child) = self.all.get_mut(number.to_usize()) {
                child.is_child = true;
                if let Some(parent) = self.all.get_mut(parent.to_usize()) {
                    parent.children.push(number);
                }
            }
        }
        if !deeper.is_empty() {
            described.omit("", "pages that are two levels below another page");
        }
    }

    /// Reads places of tiles, or their lengths.
    pub fn places(&self, values: TagValues, from: u64, most: u64) -> Result<Vec<u64>> {
        let found = self.bytes.numbers(values, from, most)?;
        let left = self.places_left.get().checked_sub(found.len().to_u64());
        let left = left.ok_or_else(|| Error::corrupt("pages share the places of their tiles"))?;
        self.places_left.set(left);
        Ok(found)
    }

    /// Returns a page by its number.
    pub fn get(&self, number: usize) -> Result<&TiffPage> {
        self.all.get(number).ok_or_else(|| Error::corrupt(format!("there is no page {number}")))
    }

    /// Returns the description of a page, empty if it has none.
    pub fn description(&self, page: &TiffPage) -> Result<String> {
        page.description.map_or_else(|| Ok(String::new()), |values| self.bytes.text(values))
    }
}
