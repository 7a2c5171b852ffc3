//! Sorts the codecs of a metadata file by kind, and builds them.

use super::array_to_array::DimensionOrder;
use super::elements::ChunkType;
use super::foreign::{self, ForeignCodec};
use super::kinds::{ArrayToBytes, BytesToBytes};
use super::row::{Build, Built};
use super::spec::CodecSpec;
use super::table;
use zarrfs_base::error::{Error, Result, WithSubject};

/// How the name of a codec begins that stands for a form of values in a file that is not Zarr. The
/// rest of the name says which form zarrfs does not read.
pub const UNREAD: &str = "unread: ";

/// A chain of codecs sorted by kind.
#[derive(Debug, Clone, Default)]
pub struct CodecChain {
    /// From array to array, in order of encoding.
    pub array_to_array: Vec<CodecSpec>,
    /// The array-to-bytes codec; `None` means `bytes`, little endian.
    pub array_to_bytes: Option<CodecSpec>,
    /// The rest, in order of encoding.
    pub bytes_to_bytes: Vec<CodecSpec>,
}

impl CodecChain {
    /// Sorts codecs. An unknown codec is an error, unless its `must_understand` is false.
    pub fn sort(specs: &[CodecSpec]) -> Result<Self> {
        let mut chain = Self::default();
        for spec in specs {
            let name = spec.name.as_str();
            let before_bytes = chain.array_to_bytes.is_none() && chain.bytes_to_bytes.is_empty();
            match table::find(name).map(|row| row.build) {
                Some(Build::BytesToBytes(build)) => {
                    build(&spec.configuration)?;
                    chain.bytes_to_bytes.push(spec.clone());
                }
                Some(_) if !before_bytes => {
                    let detail = "a codec for arrays follows a codec that produces bytes";
                    return Err(Error::corrupt(detail).at(spec.written()));
                }
                Some(Build::ArrayToArray(_)) => chain.array_to_array.push(spec.clone()),
                Some(Build::ArrayToBytes(_) | Build::Shards | Build::OfPipelines) => {
                    chain.array_to_bytes = Some(spec.clone());
                }
                None if spec.optional => {}
                None => return Err(unknown(spec)),
            }
        }
        Ok(chain)
    }

    /// Returns all `transpose` codecs of an array of `rank` dimensions as one permutation, `None`
    /// if some other codec moves elements.
    pub fn order(&self, rank: usize) -> Result<Option<DimensionOrder>> {
        let mut order = DimensionOrder::identity(rank);
        for spec in &self.array_to_array {
            if spec.name == "transpose" {
                order = order.then(&DimensionOrder::parse(&spec.configuration, rank)?);
            } else if !table::find(&spec.name).is_some_and(|row| row.is_per_element) {
                return Ok(None);
            }
        }
        Ok(Some(order))
    }
}

/// Returns the array-to-array codec of `spec`, bound to chunks of `elements`, and the elements that
/// it produces. `limit` is the most decoded bytes of a chunk whose length does not follow from its
/// shape.
pub fn array_to_array(spec: &CodecSpec, elements: &ChunkType, limit: usize) -> Result<Built> {
    match table::find(&spec.name).map(|row| row.build) {
        Some(Build::ArrayToArray(build)) => build(&spec.configuration, elements, limit),
        _ => Err(unknown(spec)),
    }
}

/// Returns the array-to-bytes codec of `spec`, bound to chunks of `elements`, with the same limit.
pub fn array_to_bytes(
    spec: &CodecSpec,
    elements: &ChunkType,
    limit: usize,
) -> Result<Box<dyn ArrayToBytes>> {
    match table::find(&spec.name).map(|row| row.build) {
        Some(Build::ArrayToBytes(build)) => build(&spec.configuration, elements, limit),
        _ => Err(unknown(spec)),
    }
}

/// Builds bytes-to-bytes codecs, in order of encoding.
pub fn bytes_to_bytes(specs: &[CodecSpec]) -> Result<Vec<Box<dyn BytesToBytes>>> {
    let build = |spec: &CodecSpec| match table::find_bytes_to_bytes(&spec.name) {
        Some(build) => build(&spec.configuration),
        None => Err(unknown(spec)),
    };
    specs.iter().map(build).collect()
}

/// Whether a codec has others that encode a chunk.
pub fn holds_chunks(spec: &CodecSpec) -> bool {
    table::find(&spec.name)
        .is_some_and(|row| matches!(row.build, Build::Shards | Build::OfPipelines))
}

/// Returns the error for a codec that has no row.
pub fn unknown(spec: &CodecSpec) -> Error {
    if let Some(why) = spec.name.strip_prefix(UNREAD) {
        return Error::unsupported(format!("{why} (docs/files.md lists what zarrfs reads)"));
    }
    if let Some(ForeignCodec { library, reason, .. }) = foreign::find(&spec.name) {
        return Error::unsupported(format!(
            "codec {:?} of the Python library {library} is not supported: {reason} (that library \
             can copy the array to another codec)",
            spec.written()
        ));
    }
    Error::unsupported(format!(
        "codec {:?} is not known (docs/formats.md has the list of codecs that are)",
        spec.written()
    ))
}
