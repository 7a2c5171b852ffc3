//! Chunks that another program encoded, for the tests of the codecs of electrophysiology.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::bytes_to_bytes::Lzma;
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::{ArrayToBytes, BytesToBytes};
use zarrfs_base::error::Result;

/// An encoded chunk; see `tests/fixtures/electrophysiology/generate.py`.
pub(super) struct Record {
    pub(super) elements: ChunkType,
    pub(super) configuration: Object,
    pub(super) encoded: Vec<u8>,
    pub(super) decoded: Vec<u8>,
    /// Whether nothing was lost.
    pub(super) is_exact: bool,
}

/// Returns the records in a file of `tests/fixtures`.
pub(super) fn read(path: &str) -> Vec<Record> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let packed = std::fs::read(folder.join(path)).unwrap();
    let text = Lzma::new(&Object::new()).unwrap().decode(&packed, 1 << 26).unwrap();
    let records: Vec<Value> = serde_json::from_slice(&text).unwrap();
    records.iter().map(Record::parse).collect()
}

impl Record {
    fn parse(value: &Value) -> Self {
        let bytes = |member: &str| STANDARD.decode(value[member].as_str().unwrap()).unwrap();
        let shape = value["shape"].as_array().unwrap();
        Self {
            elements: ChunkType {
                shape: shape.iter().map(|len| len.as_u64().unwrap()).collect(),
                dtype: DType::parse(value["dtype"].as_str().unwrap()).unwrap(),
            },
            configuration: value["configuration"].as_object().unwrap().clone(),
            encoded: bytes("encoded"),
            decoded: bytes("decoded"),
            is_exact: value["is_exact"].as_bool().unwrap(),
        }
    }

    pub(super) fn decode(&self, codec: &dyn ArrayToBytes) -> Result<Vec<u8>> {
        codec.decode(self.encoded.clone().into()).map(|decoded| decoded.to_vec())
    }
}
