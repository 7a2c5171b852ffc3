//! A row of the table of codecs.
//!
//! It has the name of a codec in each dialect, its properties, and the function that builds it.
//! [`table`](super::table) lists the rows.

use serde_json::Value;

use super::elements::ChunkType;
use super::kinds::{ArrayToArray, ArrayToBytes, BytesToBytes};
use crate::json::Object;
use zarrfs_base::error::Result;

/// A codec, `None` if it would change nothing, and the elements that it produces.
pub type Built = (Option<Box<dyn ArrayToArray>>, ChunkType);

/// Returns a codec, and the elements that it produces.
pub fn built((codec, encoded): (impl ArrayToArray + 'static, ChunkType)) -> Built {
    (Some(Box::new(codec)), encoded)
}

/// Returns a codec that is `None` if it would change nothing, and the elements that it produces.
pub fn unless_identity(codec: Option<impl ArrayToArray + 'static>, encoded: ChunkType) -> Built {
    let codec = codec.map(|codec| -> Box<dyn ArrayToArray> { Box::new(codec) });
    (codec, encoded)
}

/// The function that builds a bytes-to-bytes codec from its configuration.
pub type BuildBytes = fn(&Object) -> Result<Box<dyn BytesToBytes>>;

/// A function that finds a bytes-to-bytes codec by name. A row passes it to a codec whose
/// configuration lists such codecs.
pub type FindBytes = fn(&str) -> Option<BuildBytes>;

/// The function that binds a codec to its configuration and, if it works on arrays, to a chunk.
#[derive(Debug, Clone, Copy)]
pub enum Build {
    /// Array to array. The last argument is the most decoded bytes of a chunk whose length does not
    /// follow from its shape.
    ArrayToArray(fn(&Object, &ChunkType, usize) -> Result<Built>),
    /// Array to bytes, with the same arguments.
    ArrayToBytes(fn(&Object, &ChunkType, usize) -> Result<Box<dyn ArrayToBytes>>),
    /// Array to bytes. `array` builds it, because it decides where chunks are stored.
    Shards,
    /// Array to bytes. `Pipeline` builds it, because its configuration lists codecs of all kinds.
    OfPipelines,
    /// Bytes to bytes.
    BytesToBytes(BuildBytes),
}

/// The kind of a codec: what it encodes, and into what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodecKind {
    /// Array to array.
    ArrayToArray,
    /// Array to bytes.
    ArrayToBytes,
    /// Bytes to bytes.
    BytesToBytes,
}

/// A codec.
#[expect(clippy::struct_excessive_bools, reason = "they are the columns of a table")]
#[derive(Debug, Clone, Copy)]
pub struct CodecRow {
    /// Its name in released v3, or the name that zarr-python gives it there.
    pub name: &'static str,
    /// Another name for it in v3 metadata.
    pub alias: Option<&'static str>,
    /// Its identifier in the drafts and, if numcodecs has it, in Zarr 2.
    pub id: Option<&'static str>,
    /// Whether numcodecs has it, so that Zarr 2 metadata can name it.
    pub in_zarr2: bool,
    /// Whether zarr-python 2.18 can read it as the compressor of an array in a draft.
    pub in_drafts: bool,
    /// Whether it is a compression type of N5.
    pub in_n5: bool,
    /// Whether `--codecs` accepts its identifier as a short name.
    pub is_option: bool,
    /// Whether it encodes each element independently of its place.
    pub is_per_element: bool,
    /// Whether its configuration names the data type that it produces, with the byte order.
    pub names_type: bool,
    /// Whether it only decodes.
    pub is_read_only: bool,
    /// Whether no program has it in Zarr 3. Its name there is `numcodecs.` and the identifier.
    pub is_zarr2_only: bool,
    /// Defaults for the members that a configuration must have but `--codecs` may omit, as JSON.
    defaults_text: &'static str,
    /// The function that builds it.
    pub build: Build,
}

impl CodecRow {
    pub(super) const fn new(name: &'static str, build: Build) -> Self {
        Self {
            name,
            alias: None,
            id: None,
            in_zarr2: false,
            in_drafts: false,
            in_n5: false,
            is_option: false,
            is_per_element: false,
            names_type: false,
            is_read_only: false,
            is_zarr2_only: false,
            defaults_text: "{}",
            build,
        }
    }

    pub(super) const fn bytes_to_bytes(name: &'static str, build: BuildBytes) -> Self {
        Self::new(name, Build::BytesToBytes(build))
    }

    /// Returns a codec of imagecodecs that has one name in Zarr 2 and 3.
    pub(super) const fn imagecodecs(name: &'static str, build: BuildBytes) -> Self {
        Self::bytes_to_bytes(name, build).zarr2(name)
    }

    /// Returns the form in Zarr 2 of a codec that gets elements in Zarr 3.
    pub(super) const fn zarr2_only(
        name: &'static str,
        id: &'static str,
        build: BuildBytes,
    ) -> Self {
        let row = Self::bytes_to_bytes(name, build).zarr2(id);
        Self { is_zarr2_only: true, ..row }
    }

    pub(super) const fn array_to_bytes(
        name: &'static str,
        build: fn(&Object, &ChunkType, usize) -> Result<Box<dyn ArrayToBytes>>,
    ) -> Self {
        Self::new(name, Build::ArrayToBytes(build))
    }

    pub(super) const fn array_to_array(
        name: &'static str,
        build: fn(&Object, &ChunkType, usize) -> Result<Built>,
    ) -> Self {
        Self::new(name, Build::ArrayToArray(build))
    }

    pub(super) const fn alias(self, alias: &'static str) -> Self {
        Self { alias: Some(alias), ..self }
    }

    pub(super) const fn id(self, id: &'static str) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Returns a codec of numcodecs.
    pub(super) const fn zarr2(self, id: &'static str) -> Self {
        Self { id: Some(id), in_zarr2: true, ..self }
    }

    pub(super) const fn drafts(self) -> Self {
        Self { in_drafts: true, ..self }
    }

    pub(super) const fn n5(self) -> Self {
        Self { in_n5: true, ..self }
    }

    pub(super) const fn option(self) -> Self {
        Self { is_option: true, ..self }
    }

    pub(super) const fn per_element(self) -> Self {
        Self { is_per_element: true, ..self }
    }

    pub(super) const fn names_type(self) -> Self {
        Self { names_type: true, ..self }
    }

    pub(super) const fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    pub(super) const fn with_defaults(self, defaults_text: &'static str) -> Self {
        Self { defaults_text, ..self }
    }

    /// Returns the kind of this codec.
    pub fn kind(&self) -> CodecKind {
        match self.build {
            Build::ArrayToArray(_) => CodecKind::ArrayToArray,
            Build::ArrayToBytes(_) | Build::Shards | Build::OfPipelines => CodecKind::ArrayToBytes,
            Build::BytesToBytes(_) => CodecKind::BytesToBytes,
        }
    }

    /// Defaults for the members that a configuration must have but `--codecs` may omit.
    pub fn defaults(&self) -> Object {
        match serde_json::from_str(self.defaults_text) {
            Ok(Value::Object(members)) => members,
            _ => Object::new(),
        }
    }
}
