//! An answer: bytes that are made while the server sends them.

use std::collections::VecDeque;

use bytes::Bytes;

use super::ascii;
use super::das;
use super::dataset::{Arrays, DataSet};
use super::dds;
use super::error::{DapCode, DapError};
use super::hyperslab::Hyperslab;
use super::names::decoded;
use super::select::{Selected, SelectedVariable, select};
use super::xdr::{MAX_LEN, Wire, numbers, padding, put_string, scalar, string};
use crate::array::Coords;
use crate::dtype::DType;
use crate::error::Result;
use crate::view::{self, GetChunk, ViewSource};
use crate::width::ToU64;

/// The number of bytes that [`answer`] makes in advance. An element that DAP2 cannot express is an
/// error response if it is among them; a longer answer has to be cut.
const IN_ADVANCE: usize = 1 << 20;

/// The number of bytes that a string is taken to have before it is read.
const STRING_LEN: u64 = 64;

/// The usual length of a decimal number with what separates it from the next one.
const DECIMAL_LEN: u64 = 16;

/// The kind of an answer, which the extension of the URL chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnswerKind {
    /// The declarations of the variables.
    Dds,
    /// The attributes.
    Das,
    /// The elements, in XDR.
    Dods,
    /// The elements, as decimal numbers.
    Ascii,
    /// The version of the server.
    Ver,
    /// A help page.
    Help,
}

impl AnswerKind {
    /// Returns the kind for an extension of a URL.
    pub fn of_extension(extension: &str) -> Option<Self> {
        Some(match extension {
            "dds" => Self::Dds,
            "das" => Self::Das,
            "dods" => Self::Dods,
            "ascii" | "asc" => Self::Ascii,
            "ver" => Self::Ver,
            "help" | "html" => Self::Help,
            _ => return None,
        })
    }
}

/// The body of a response.
#[derive(Debug)]
pub struct DapAnswer {
    /// The header `Content-Type`.
    pub content_type: &'static str,
    /// The header `Content-Description`.
    pub content_description: &'static str,
    parts: VecDeque<BodyPart>,
    /// The number of bytes that are left; `None` if it depends on elements.
    len: Option<u64>,
}

#[derive(Debug)]
enum BodyPart {
    Bytes(Bytes),
    Elements(VariableElements),
}

impl BodyPart {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.is_empty())
    }
}

/// The elements of a variable.
#[derive(Debug)]
struct VariableElements {
    slab: Hyperslab,
    /// The type of the elements. The array may have the same bits with another sign.
    dtype: DType,
    encoding: Encoding,
    /// The number of the next element, and of the one after the last.
    next: u64,
    end: u64,
    /// The chunks of the elements before this one were returned by [`DapAnswer::ahead`].
    looked_at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Xdr,
    Ascii,
}

/// Returns the answer to a request for a node. `query` is that of the URL, percent-encoded.
pub fn answer(
    source: &ViewSource<'_>,
    kind: AnswerKind,
    query: &str,
) -> Result<DapAnswer, DapError> {
    let mut answer = match kind {
        AnswerKind::Ver => return Ok(version()),
        AnswerKind::Help => return Ok(help()),
        AnswerKind::Das => {
            let dataset = match found(source, query) {
                Ok((dataset, _)) => dataset,
                // Attributes do not depend on the constraint, except that it may name arrays that
                // are left out otherwise.
                Err(_) => DataSet::of(source, Arrays::Readable)?,
            };
            DapAnswer::of_text("dods_das", das::text(&dataset))
        }
        AnswerKind::Dds => {
            let (dataset, selected) = found(source, query)?;
            DapAnswer::of_text("dods_dds", dds::text(&dataset, &selected))
        }
        AnswerKind::Dods | AnswerKind::Ascii => elements(source, kind, query)?,
    };
    answer.make(IN_ADVANCE, source.get_chunk())?;
    Ok(answer)
}

/// Returns the data set, and what a constraint selects in it. Only a constraint that names an array
/// that clients cannot read gets the data set with all arrays, and an error for its elements.
fn found<'s>(
    source: &ViewSource<'s>,
    query: &str,
) -> Result<(DataSet<'s>, Vec<Selected>), DapError> {
    let dataset = DataSet::of(source, Arrays::Readable)?;
    match selected(&dataset, query) {
        Err(error) if error.code == DapCode::NoSuchVariable => {
            let dataset = DataSet::of(source, Arrays::All)?;
            let selected = selected(&dataset, query)?;
            Ok((dataset, selected))
        }
        selected => selected.map(|selected| (dataset, selected)),
    }
}

/// Returns what a constraint selects. Clients encode names and signs never, once or twice, so it is
/// first taken as it is: identifiers have percent signs themselves.
fn selected(dataset: &DataSet<'_>, query: &str) -> Result<Vec<Selected>, DapError> {
    let decoded = decoded(query);
    let as_it_is = select(dataset, query);
    if decoded == query { as_it_is } else { as_it_is.or_else(|_| select(dataset, &decoded)) }
}

/// Returns the version of the server.
fn version() -> DapAnswer {
    let version = env!("CARGO_PKG_VERSION");
    let text = format!("Core version: dap/2.0\nServer version: zarrfs/{version}\n");
    DapAnswer::of_text("dods_version", text)
}

fn help() -> DapAnswer {
    let text = "\
        This is a data set for OPeNDAP clients (DAP2), such as ncdump, xarray, CDO, NCO, R and\n\
        Octave. Give them its URL without an extension. They append:\n\n\
        .dds    types, names and dimensions\n\
        .das    attributes\n\
        .dods   elements, for programs\n\
        .ascii  elements, for people\n\
        .ver    the version of the server\n\n\
        Each group and array has a data set. A query such as ?t2m[0:2:10][5],time selects variables, and elements by\n\
        [index], [start:stop] or [start:stride:stop].\n";
    DapAnswer::of_text("dods_help", text.to_owned())
}

/// Returns the elements of the selected variables.
fn elements(source: &ViewSource<'_>, kind: AnswerKind, query: &str) -> Result<DapAnswer, DapError> {
    let (dataset, selected) = found(source, query)?;
    let declarations = dds::text(&dataset, &selected);
    let is_xdr = kind == AnswerKind::Dods;
    let mut answer = if is_xdr {
        let mut answer = DapAnswer::of_text("dods_data", format!("{declarations}\nData:\n"));
        answer.content_type = "application/octet-stream";
        answer
    } else {
        DapAnswer::of_text("dods_ascii", format!("{declarations}{:-<45}\n", ""))
    };
    for one in &selected {
        let (grid, bases) = match one {
            Selected::Base(base) => (None, std::slice::from_ref(base)),
            Selected::Grid(number, bases) | Selected::Structure(number, bases) => {
                (dataset.variables.get(*number), bases.as_slice())
            }
        };
        let above = grid.map(|grid| format!("{}.", grid.name)).unwrap_or_default();
        for base in bases {
            answer.push(&dataset, base, &above, is_xdr)?;
        }
    }
    Ok(answer)
}

impl DapAnswer {
    fn of_text(content_description: &'static str, text: String) -> Self {
        let len = u64::try_from(text.len()).ok();
        let parts = VecDeque::from([BodyPart::Bytes(text.into())]);
        Self { content_type: "text/plain; charset=utf-8", content_description, parts, len }
    }

    /// Returns all that is left, if it is made already.
    pub fn whole(&self) -> Option<Bytes> {
        let mut parts = self.parts.iter().filter(|part| !part.is_empty());
        match (parts.next(), parts.next()) {
            (None, _) => Some(Bytes::new()),
            (Some(BodyPart::Bytes(bytes)), None) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// Returns the number of bytes that are left, if it is known.
    #[expect(clippy::len_without_is_empty, reason = "an unknown length is not empty")]
    pub fn len(&self) -> Option<u64> {
        self.len
    }

    /// Returns the next bytes, about `step` at most; none at the end. If it fails, the connection
    /// must end before the announced length, so that the client detects it.
    pub fn next(&mut self, step: usize, get: &GetChunk<'_>) -> Result<Bytes> {
        while let Some(part) = self.parts.front_mut() {
            let bytes = match part {
                BodyPart::Bytes(bytes) => bytes.split_to(bytes.len().min(step.max(1))),
                BodyPart::Elements(elements) => elements.next(step, get)?.into(),
            };
            if bytes.is_empty() {
                self.parts.pop_front();
                continue;
            }
            let made = bytes.len().to_u64();
            self.len = self.len.map(|len| len.saturating_sub(made));
            return Ok(bytes);
        }
        Ok(Bytes::new())
    }

    /// Whether making the next `step` bytes needs so many or such chunks that making more at a time
    /// costs little more: strings, whose chunks are parsed each time, and chunks of more than
    /// `cache_len` bytes in all, which are decoded each time.
    pub fn has_costly_steps(&self, step: usize, cache_len: u64) -> bool {
        let Some(BodyPart::Elements(elements)) = self.parts.iter().find(|part| !part.is_empty())
        else {
            return false;
        };
        let step = step.to_u64();
        let last = elements.next.saturating_add(step / elements.item_len());
        let chunks = elements.slab.chunks(elements.next, elements.end.min(last));
        let lens = chunks.iter().map(|(one, _)| one.array.longest_chunk_len().longest());
        let len = lens.fold(0, u64::saturating_add);
        elements.dtype == DType::String || len > cache_len
    }

    /// Returns the chunks with elements that the next calls of [`Self::next`] make, each once, in
    /// their order: for about `len` bytes, of those that no earlier call looked at. The server may
    /// have them decoded in advance.
    pub fn ahead(&mut self, len: usize) -> Vec<(view::ElementRange, Coords)> {
        let mut left = len.to_u64();
        let mut chunks = Vec::new();
        for part in &mut self.parts {
            let BodyPart::Elements(elements) = part else { continue };
            let looked_at = elements.looked_at.max(elements.next);
            let made = looked_at.saturating_sub(elements.next);
            left = left.saturating_sub(made.saturating_mul(elements.item_len()));
            let count = left / elements.item_len();
            if count == 0 {
                break;
            }
            elements.looked_at = elements.end.min(looked_at.saturating_add(count));
            chunks.extend(elements.slab.chunks(looked_at, elements.looked_at));
            left = left.saturating_sub(count.saturating_mul(elements.item_len()));
        }
        chunks
    }

    /// Makes up to about `len` bytes in advance. If these are all, the length is known.
    fn make(&mut self, len: usize, get: &GetChunk<'_>) -> Result<()> {
        let known = self.len;
        let mut made = Vec::new();
        while let Some(left) = len.checked_sub(made.len()).filter(|left| *left > 0) {
            let bytes = self.next(left, get)?;
            if bytes.is_empty() {
                break;
            }
            made.extend(bytes);
        }
        let is_all = self.parts.is_empty();
        self.len = if is_all { u64::try_from(made.len()).ok() } else { known };
        self.parts.push_front(BodyPart::Bytes(made.into()));
        Ok(())
    }

    /// Adds the elements of a variable.
    fn push(
        &mut self,
        dataset: &DataSet<'_>,
        base: &SelectedVariable,
        above: &str,
        is_xdr: bool,
    ) -> Result<(), DapError> {
        let missing = || DapError::new(DapCode::Internal, "a variable that is not there");
        let variable = dataset.variables.get(base.variable).ok_or_else(missing)?;
        let slab = Hyperslab::new(variable.elements()?, base.axes.clone());
        let item_len = variable.wire.item_len();
        let len = slab.count().and_then(|count| count.checked_mul(item_len));
        let fits = |len: &u64| *len <= MAX_LEN;
        let (Some(len), Some(count)) = (len.filter(fits), slab.count()) else {
            return Err(DapError::malformed(format!(
                "{} would have more than {MAX_LEN} bytes in the answer, the limit of DAP2: select \
                 fewer elements",
                variable.name
            )));
        };
        let is_scalar = slab.shape().is_empty();
        let name = format!("{above}{}", variable.name);
        let shape: Vec<String> = slab.shape().iter().map(|len| format!("[{len}]")).collect();
        let encoding = if is_xdr { Encoding::Xdr } else { Encoding::Ascii };
        let dtype = variable.dtype.clone();
        let part = VariableElements { slab, dtype, encoding, next: 0, end: count, looked_at: 0 };
        if !is_xdr {
            self.text(format!("{name}{}\n", shape.concat()));
            self.parts.push_back(BodyPart::Elements(part));
            self.text("\n".to_owned());
            self.len = None;
            return Ok(());
        }
        let short = u32::try_from(count).map_err(|_| missing())?.to_be_bytes();
        match (is_scalar, variable.wire) {
            (true, _) => {}
            (false, Wire::String) => self.bytes(short.to_vec()),
            (false, _) => self.bytes([short, short].concat()),
        }
        self.parts.push_back(BodyPart::Elements(part));
        if variable.wire == Wire::String {
            self.len = None;
            return Ok(());
        }
        let len = if is_scalar { len.max(4) } else { len };
        self.len = self.len.and_then(|all| all.checked_add(len));
        let padded = usize::try_from(len).map(padding).unwrap_or_default();
        self.bytes(vec![0; padded]);
        Ok(())
    }

    fn text(&mut self, text: String) {
        self.bytes(text.into_bytes());
    }

    fn bytes(&mut self, bytes: Vec<u8>) {
        let len = bytes.len().to_u64();
        self.len = self.len.and_then(|all| all.checked_add(len));
        self.parts.push_back(BodyPart::Bytes(bytes.into()));
    }
}

impl VariableElements {
    /// Returns the number of bytes that an element usually has.
    fn item_len(&self) -> u64 {
        match u64::try_from(self.dtype.item_len()) {
            Ok(len) if len > 0 && self.encoding == Encoding::Xdr => len.max(4),
            Ok(len) if len > 0 => len.max(DECIMAL_LEN),
            _ => STRING_LEN,
        }
    }

    /// Returns the next elements, about `step` bytes of them; none at the end.
    fn next(&mut self, step: usize, get: &GetChunk<'_>) -> Result<Vec<u8>> {
        let step = step.to_u64();
        let first = self.next;
        let mut last = self.end.min(first.saturating_add((step / self.item_len()).max(1)));
        if first == last {
            return Ok(Vec::new());
        }
        let strings = match self.dtype {
            DType::String => loop {
                if let strings @ Some(_) = self.slab.variable_items(first, last, get)? {
                    break strings;
                }
                last = first.saturating_add(last.saturating_sub(first).div_ceil(2));
            },
            _ => None,
        };
        let items = match &strings {
            Some(_) => Vec::new(),
            None => self.slab.items(first, last, get)?,
        };
        let strings = match &self.dtype {
            DType::Bytes(_) | DType::Utf32(_) => {
                let items = items.chunks_exact(self.dtype.item_len().max(1));
                Some(items.map(|item| string(&self.dtype, item)).collect())
            }
            _ => strings,
        };
        self.next = last;
        match (self.encoding, strings) {
            (Encoding::Xdr, Some(strings)) => {
                let mut bytes = Vec::new();
                for string in strings {
                    put_string(&mut bytes, &string)?;
                }
                Ok(bytes)
            }
            (Encoding::Xdr, None) if self.slab.shape().is_empty() => scalar(&self.dtype, &items),
            (Encoding::Xdr, None) => numbers(&self.dtype, &items),
            (Encoding::Ascii, Some(strings)) => {
                let strings = strings.iter().map(|string| Ok(ascii::string(string)));
                self.rows(first, strings)
            }
            (Encoding::Ascii, None) => {
                let items = items.chunks_exact(self.dtype.item_len().max(1));
                self.rows(first, items.map(|item| ascii::element(&self.dtype, item)))
            }
        }
    }

    /// Returns elements from number `first` on as lines, one for each row.
    fn rows(&self, first: u64, elements: impl Iterator<Item = Result<String>>) -> Result<Vec<u8>> {
        let shape = self.slab.shape();
        let mut text = String::new();
        for (number, element) in (first..).zip(elements) {
            match ascii::row_start(shape, number) {
                Some(indices) => {
                    if number > 0 {
                        text.push('\n');
                    }
                    if !indices.is_empty() {
                        text.push_str(&indices);
                        text.push_str(", ");
                    }
                }
                None if number > 0 => text.push_str(", "),
                None => {}
            }
            text.push_str(&element?);
        }
        if self.next == self.end {
            text.push('\n');
        }
        Ok(text.into_bytes())
    }
}
