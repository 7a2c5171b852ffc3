//! Reads and decodes whole chunks, as many at a time as memory allows.

use super::coords::Coords;
use super::open::Array;
use zarrfs_base::admission;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Fault, Kind, Result, WithSubject};
use zarrfs_base::width::ToUsize;
use zarrfs_codec::Pipeline;
use zarrfs_store::{ByteRange, Stat};

impl Array {
    /// Reads and decodes a chunk, with its stat; `None` if it is not stored.
    pub fn read_chunk(&self, coords: &Coords) -> Result<Option<(Buffer, Stat)>> {
        self.read_chunk_within(coords, |_| ())
    }

    /// Reads a chunk that was found absent again, if the store has it nevertheless. Callers that
    /// take an absent chunk for the fill value must not do so by mistake.
    pub fn read_again(&self, coords: &Coords) -> Result<Option<(Buffer, Stat)>> {
        if self.stat(coords)?.is_none() {
            return Ok(None);
        }
        let found = self.read_chunk(coords)?;
        if found.is_none() && self.stat(coords)?.is_some() {
            return Err(self.absent(coords)?);
        }
        Ok(found)
    }

    /// Returns the error for a chunk that the store has and does not return.
    fn absent(&self, coords: &Coords) -> Result<Error> {
        let detail = "the store has it, and answers that it is not there";
        Ok(Error::fault(Fault::Absent, detail).at(self.key(coords)?))
    }

    /// Like [`Self::read_chunk`]. Calls `draw` before it decodes the chunk, with its length, or 0
    /// if that depends on its elements. Drops the result when the chunk is decoded.
    pub fn read_chunk_within<L>(
        &self,
        coords: &Coords,
        draw: impl Fn(u64) -> L,
    ) -> Result<Option<(Buffer, Stat)>> {
        let pipeline = self.pipeline(coords)?;
        let reading = Reading { array: self, coords, pipeline: &pipeline };
        let (usual, longest) = (pipeline.usual_len(), pipeline.longest());
        if usual < longest {
            match reading.within(usual, &draw) {
                // A form of it is longer, or it is damaged.
                Err(error) if error.kind() == Kind::Corrupt => log::debug!("{coords}: {error}"),
                read => return read,
            }
        }
        reading.within(longest, draw)
    }
}

/// A chunk to read.
struct Reading<'a> {
    array: &'a Array,
    coords: &'a Coords,
    pipeline: &'a Pipeline,
}

impl Reading<'_> {
    /// Reads and decodes it if no form of it has more than `longest` bytes.
    fn within<L>(&self, longest: u64, draw: impl Fn(u64) -> L) -> Result<Option<(Buffer, Stat)>> {
        let Self { array, coords, pipeline } = self;
        let _memory = admission::enter(pipeline.decoder_memory(longest));
        let range = ((*coords).clone(), ByteRange::first(longest));
        let Some(value) = array.chunks().get_partial_values(&[range])?.pop().flatten() else {
            return Ok(None);
        };
        let named = |error: Error| match array.key(coords) {
            Ok(key) => error.at(&key),
            Err(_) => error.at(coords),
        };
        if value.stat.len > longest {
            let longest = array.chunk_len(coords)?.longest();
            return Err(named(Error::fault(
                Fault::Length,
                format!(
                    "{} bytes stored, more than a chunk of {longest} bytes can have",
                    value.stat.len
                ),
            )));
        }
        let drawn = draw(array.chunk_len(coords)?.exactly().unwrap_or_default());
        let longest = longest.to_usize();
        let decoded = pipeline.decode_within(value.bytes, longest).map_err(named)?;
        drop(drawn);
        Ok(Some((decoded, value.stat)))
    }
}
