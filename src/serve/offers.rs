//! The formats that a page offers a node in.

use std::cell::Cell;

use crate::error::{Error, Kind};
use crate::hierarchy::Node;
use crate::vfs::Vfs;
use crate::view::{FORMATS, Format, GetChunk, ViewSource};

/// The most nodes below a group whose metadata files are read for a page.
const MAX_NODES: usize = 256;

/// The same if each of them is a request to a server.
const MAX_REMOTE_NODES: usize = 16;

/// The formats that a page offers.
#[derive(Debug, Default)]
pub struct Offers {
    /// Those that the node has a file of.
    pub certain: Vec<&'static str>,
    /// Those that depend on values, or on more nodes than are read for a page.
    pub possible: Vec<&'static str>,
}

/// Returns the formats of a node, by its metadata: a page reads no chunks for this.
pub fn of(vfs: &Vfs, node: &Node) -> Offers {
    let mut offers = Offers::default();
    let formats = FORMATS.iter().filter(|format| format.is_for(node.kind()) && vfs.shows(format));
    for format in formats {
        match has(vfs, node, format) {
            Some(true) => offers.certain.push(format.extension),
            Some(false) => {}
            None => offers.possible.push(format.extension),
        }
    }
    offers
}

/// Whether the node has a file of the format; `None` if that is not known.
fn has(vfs: &Vfs, node: &Node, format: &Format) -> Option<bool> {
    let needs_chunks = Cell::new(false);
    let get: &GetChunk<'_> = &|_, _, _| {
        needs_chunks.set(true);
        Err(Error::new(Kind::Busy, "its chunks are not read for a page"))
    };
    let most = if vfs.is_remote() { MAX_REMOTE_NODES } else { MAX_NODES };
    let source = ViewSource::new(vfs.hierarchy(), node.path(), get).ok()?.of_at_most(most);
    match format.view(&source) {
        Ok(_) => Some(true),
        Err(error) if error.kind() == Kind::Unsupported && !needs_chunks.get() => Some(false),
        Err(_) => None,
    }
}
