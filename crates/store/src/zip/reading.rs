//! Which parts of the archive hold the bytes of its entries, and takes them from those.
//!
//! Where the bytes of an entry begin is known when its local header was read, since the extra field
//! there may be longer than the one in the directory. The first read of an entry brings the header
//! too, and a little more than usual programs write. Only if that was not enough, another read
//! follows.

use bytes::Bytes;

use super::archive::{Archive, ArchiveLimits, ArchiveSpan};
use super::entry::{FIXED_LEN, Method, decode, header_len};
use super::table::{EntryRow, EntryTable, Lens};
use crate::{ByteRange, Stat, Value};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::width::{ToU64, ToUsize};

/// The longest extra field in a local header that the first read brings, in bytes: usual programs
/// write up to 50.
pub(super) const MOST_EXTRA: u64 = 128;

/// A range this close to the start of its entry is read together with the header.
const NEAR: u64 = 64 << 10;

/// A range of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryRange<'t> {
    pub(super) row: &'t EntryRow,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Parts of the archive that were read.
#[derive(Debug, Default)]
struct ArchiveParts {
    parts: Vec<(u64, Bytes)>,
    /// The stat of the archive, by the last read.
    stat: Option<Stat>,
}

impl ArchiveParts {
    /// Returns the bytes of a span, if one part has all of them.
    fn get(&self, (offset, len): ArchiveSpan) -> Option<Bytes> {
        self.parts.iter().find_map(|(start, bytes)| {
            let from = offset.checked_sub(*start)?.to_usize();
            let until = from.checked_add(len.to_usize())?;
            (until <= bytes.len()).then(|| bytes.slice(from..until))
        })
    }

    /// Returns the bytes from an offset, as many as the part has.
    fn from(&self, offset: u64) -> Option<Bytes> {
        self.parts.iter().find_map(|(start, bytes)| {
            let from = offset.checked_sub(*start)?.to_usize();
            (from < bytes.len()).then(|| bytes.slice(from..))
        })
    }
}

impl EntryTable {
    /// Returns the range of an entry.
    pub(super) fn wanted<'t>(&self, row: &'t EntryRow, range: ByteRange) -> EntryRange<'t> {
        let (offset, len) = range.within(self.lens(row).decoded);
        EntryRange { row, offset, len }
    }

    /// Returns the value of each range; `None` if the archive is not the one of this table.
    pub(super) fn read(
        &self,
        archive: &Archive,
        limits: &ArchiveLimits,
        wanted: &[Option<EntryRange<'_>>],
    ) -> Result<Option<Vec<Option<Value>>>> {
        let mut found: Vec<Option<Bytes>> = vec![None; wanted.len()];
        let mut parts = ArchiveParts::default();
        for _ in 0..2 {
            let mut spans = Vec::new();
            for (wanted, _) in wanted.iter().zip(&found).filter(|(_, found)| found.is_none()) {
                if let Some(wanted) = wanted {
                    spans.extend(self.spans(wanted, limits).at(self.shown(wanted.row))?);
                }
            }
            spans.sort_unstable();
            spans.dedup();
            if !self.fetch(archive, &spans, &mut parts)? {
                return Ok(None);
            }
            let mut is_complete = true;
            for (wanted, found) in wanted.iter().zip(&mut found) {
                if let (Some(wanted), None) = (wanted, &found) {
                    *found = self.take(wanted, &parts).at(self.shown(wanted.row))?;
                    is_complete &= found.is_some();
                }
            }
            if is_complete {
                let stat = parts.stat.unwrap_or(self.stat);
                let values = wanted.iter().zip(found).map(|(wanted, bytes)| {
                    Some(Value { bytes: bytes?, stat: self.stat_of(wanted.as_ref()?.row, stat) })
                });
                return Ok(Some(values.collect()));
            }
        }
        Err(Error::corrupt("an entry of the zip archive ends past its directory"))
    }

    /// Reads the local header of an entry. Fails if it is not that of the entry; `None` if the
    /// archive is not the one of this table.
    pub(super) fn check_header(&self, archive: &Archive, row: &EntryRow) -> Result<Option<()>> {
        let mut parts = ArchiveParts::default();
        if row.header_len().is_none() && !self.fetch(archive, &[self.header(row)], &mut parts)? {
            return Ok(None);
        }
        self.header_len(row, &parts).at(self.shown(row)).map(|_| Some(()))
    }

    /// Reads the local headers of entries, each with what follows it; `None` if the archive is not
    /// the one of this table.
    pub(super) fn headers(
        &self,
        archive: &Archive,
        rows: &[&EntryRow],
    ) -> Result<Option<Vec<Bytes>>> {
        let spans: Vec<ArchiveSpan> = rows.iter().map(|row| self.header(row)).collect();
        let mut parts = ArchiveParts::default();
        let is_same = self.fetch(archive, &spans, &mut parts)?;
        Ok(is_same.then(|| parts.parts.into_iter().map(|(_, bytes)| bytes).collect()))
    }

    /// Fails unless `bytes` begin with the local header of an entry. Returns its length.
    pub(super) fn check_local(&self, row: &EntryRow, bytes: &[u8]) -> Result<u32> {
        header_len(bytes, row.method, row.is_encrypted, self.name(row), row.spelling)
    }

    /// Returns the part of the archive that has the local header of an entry.
    fn header(&self, row: &EntryRow) -> ArchiveSpan {
        let name_len = self.name(row).len().to_u64();
        (row.header_offset, FIXED_LEN.saturating_add(name_len).saturating_add(MOST_EXTRA))
    }

    /// Returns the stat of an entry: it is of the archive, but for its length.
    pub(super) fn stat_of(&self, row: &EntryRow, archive: Stat) -> Stat {
        Stat { len: self.lens(row).decoded, ..archive }
    }

    fn shown(&self, row: &EntryRow) -> String {
        String::from_utf8_lossy(self.name(row)).into_owned()
    }

    /// Reads parts of the archive. Returns whether it is the one of this table.
    fn fetch(
        &self,
        archive: &Archive,
        spans: &[ArchiveSpan],
        parts: &mut ArchiveParts,
    ) -> Result<bool> {
        if spans.is_empty() {
            return Ok(true);
        }
        for ((start, _), value) in spans.iter().zip(archive.get_all(spans)?) {
            let value = value.ok_or_else(Archive::gone)?;
            if !self.stat.version.is_same(value.stat.version) {
                return Ok(false);
            }
            parts.stat = Some(value.stat);
            parts.parts.push((*start, value.bytes));
        }
        Ok(true)
    }

    /// Returns the parts of the archive that hold a range of an entry.
    pub(super) fn spans(
        &self,
        wanted: &EntryRange<'_>,
        limits: &ArchiveLimits,
    ) -> Result<Vec<ArchiveSpan>> {
        let EntryRange { row, offset, len } = *wanted;
        if check_form(row).is_err() {
            // The header of the entry decides whether it is so, or the directory is damaged.
            return Ok(vec![self.header(row)]);
        }
        if len == 0 || self.has_decoded(wanted) {
            return Ok(Vec::new());
        }
        let lens = self.lens(row);
        let (offset, len) = if row.method == Method::STORED {
            (offset, len)
        } else {
            check_len(lens, limits)?;
            (0, lens.stored)
        };
        let at = row.header_offset;
        if let Some(header_len) = row.header_len() {
            return Ok(vec![(at.saturating_add(header_len).saturating_add(offset), len)]);
        }
        let (_, header_len) = self.header(row);
        let more = header_len.saturating_sub(FIXED_LEN);
        if offset <= NEAR {
            return Ok(vec![(at, header_len.saturating_add(offset).saturating_add(len))]);
        }
        let data = (at.saturating_add(FIXED_LEN).saturating_add(offset), len.saturating_add(more));
        Ok(vec![(at, header_len), data])
    }

    /// Whether a range can be taken from an entry that was decoded before.
    fn has_decoded(&self, wanted: &EntryRange<'_>) -> bool {
        wanted.row.method != Method::STORED && self.decoded(wanted.row).is_some()
    }

    /// Returns the bytes of a range from `parts`; `None` if these are not enough.
    fn take(&self, wanted: &EntryRange<'_>, parts: &ArchiveParts) -> Result<Option<Bytes>> {
        let EntryRange { row, offset, len } = *wanted;
        if check_form(row).is_err() {
            return match self.header_len(row, parts)? {
                Some(_) => check_form(row).map(|()| None),
                None => Ok(None),
            };
        }
        if len == 0 {
            return Ok(Some(Bytes::new()));
        }
        let lens = self.lens(row);
        let is_whole = offset == 0 && len == lens.decoded;
        if row.method != Method::STORED
            && let Some(decoded) = self.decoded(row)
        {
            return Ok(cut(&decoded, offset, len));
        }
        let Some(header_len) = self.header_len(row, parts)? else { return Ok(None) };
        let data = row.header_offset.saturating_add(header_len);
        if data.saturating_add(lens.stored) > self.end {
            return Err(Error::corrupt("its bytes end past the start of the directory"));
        }
        if row.method == Method::STORED && !is_whole {
            return Ok(parts.get((data.saturating_add(offset), len)));
        }
        let Some(encoded) = parts.get((data, lens.stored)) else { return Ok(None) };
        if row.method == Method::STORED || is_whole {
            return decode(row.method, &encoded, lens, row.crc).map(Some);
        }
        let right = self.right_to_decode(lens.decoded);
        let decoded = decode(row.method, &encoded, lens, row.crc)?;
        self.keep_decoded(row, &decoded);
        let part = cut(&decoded, offset, len);
        // The whole entry would stay in memory with its part.
        Ok(if right.is_some() { part.map(|part| Bytes::copy_from_slice(&part)) } else { part })
    }

    /// Returns the length of the local header of an entry, if that was read.
    fn header_len(&self, row: &EntryRow, parts: &ArchiveParts) -> Result<Option<u64>> {
        if let Some(len) = row.header_len() {
            return Ok(Some(len));
        }
        let Some(bytes) = parts.from(row.header_offset) else { return Ok(None) };
        let len = self.check_local(row, &bytes)?;
        row.set_header_len(len);
        Ok(Some(u64::from(len)))
    }
}

/// Fails for an entry in a form that zarrfs does not read.
fn check_form(row: &EntryRow) -> Result<()> {
    if row.is_encrypted {
        return Err(Error::unsupported("encrypted, and zarrfs does not decrypt zip archives"));
    }
    row.method.check()
}

/// Fails for an entry that is too long to be decoded.
fn check_len(lens: Lens, limits: &ArchiveLimits) -> Result<()> {
    let len = lens.decoded.max(lens.stored);
    if len > limits.value {
        return Err(Error::too_large(format!(
            "{len} bytes, compressed in the zip archive, the limit for such entries is {}: make the \
             archive without compression",
            limits.value
        )));
    }
    Ok(())
}

fn cut(bytes: &Bytes, offset: u64, len: u64) -> Option<Bytes> {
    let from = offset.to_usize();
    let until = from.checked_add(len.to_usize())?;
    (until <= bytes.len()).then(|| bytes.slice(from..until))
}
