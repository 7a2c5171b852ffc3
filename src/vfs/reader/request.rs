//! The chunks that one read of a view needs, found in one walk.

use std::ops::Range;
use std::sync::Arc;

use crate::array::{Array, Coords};
use crate::cache::Residency;
use crate::error::{Error, Result};
use crate::vfs::Vfs;
use crate::vfs::views::OpenView;
use crate::view::{Elements, Reach};

/// The chunks of a read, in the order in which the view copies them.
#[derive(Debug)]
pub(in crate::vfs) struct Request {
    pub offset: u64,
    /// Where the read ends: at the end of the view at the latest.
    pub end: u64,
    /// The first of them only, if there are many.
    pub chunks: Vec<Wanted>,
    /// Whether `chunks` are all of them.
    pub is_whole: bool,
}

/// A chunk of a read.
#[derive(Debug)]
pub(in crate::vfs) struct Wanted {
    pub array: Arc<Array>,
    pub coords: Coords,
    /// From the first of its bytes that are read to the last.
    pub range: Range<usize>,
    /// Whether its last element is read.
    pub reach: Reach,
    pub residency: Residency,
    /// Whether this range is read from the store without the rest of the chunk.
    pub is_partial: bool,
}

impl Request {
    /// Whether every chunk is in the cache.
    pub fn is_ready(&self) -> bool {
        let is_ready = |wanted: &Wanted| matches!(wanted.residency, Residency::Ready(_));
        self.is_whole && self.chunks.iter().all(is_ready)
    }

    /// The number of bytes that are read.
    pub fn len(&self) -> usize {
        usize::try_from(self.end.saturating_sub(self.offset)).unwrap_or(usize::MAX)
    }
}

impl Vfs {
    /// Finds the chunks of a read of up to `len` bytes from `offset` on, at most `most` of them, and looks which of them
    /// are in the cache. Waits for nothing.
    pub(in crate::vfs) fn request(
        &self,
        open: &OpenView,
        (offset, len): (u64, usize),
        most: usize,
    ) -> Result<Request> {
        let end = offset.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        let mut request =
            Request { offset, end: end.min(open.view.len()), chunks: Vec::new(), is_whole: true };
        let mut bound: Option<(*const Elements, Arc<Array>)> = None;
        let walk =
            open.view.for_each_chunk((offset, request.end), &mut |elements, coords, touch| {
                if request.chunks.len() >= most {
                    request.is_whole = false;
                    return Err(Error::not_found());
                }
                let array = match &bound {
                    Some((of, array)) if std::ptr::eq(*of, elements) => Arc::clone(array),
                    _ => {
                        let array = self.array_of(elements, open.moves)?;
                        bound = Some((std::ptr::from_ref(elements), Arc::clone(&array)));
                        array
                    }
                };
                request.chunks.push(Wanted {
                    array,
                    coords: coords.clone(),
                    range: touch.bytes.clone(),
                    reach: touch.reach,
                    residency: Residency::Absent,
                    is_partial: false,
                });
                Ok(())
            });
        if request.is_whole {
            walk?;
        }
        let since = self.fresh_since(Some(open.opened));
        for chunks in request.chunks.chunk_by_mut(|one, next| Arc::ptr_eq(&one.array, &next.array))
        {
            let Some(array) = chunks.first().map(|first| Arc::clone(&first.array)) else {
                continue;
            };
            let found =
                self.cache.peek_many(&array, chunks.iter().map(|wanted| &wanted.coords), since);
            for (wanted, residency) in chunks.iter_mut().zip(found) {
                wanted.residency = residency;
            }
        }
        Ok(request)
    }
}
