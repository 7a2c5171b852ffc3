//! stub
use super::{Dialect, NodePath, NodeKind, model};
use crate::store::Key;
use crate::error::Result;
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policy {}
/// x
#[derive(Debug, Clone)]
pub struct NewDocument { pub key: Key, pub text: String, pub node: model::Node, pub consolidated: bool }
impl Dialect {
    /// x
    pub fn new_document(&self, path: &NodePath, written: &[u8], policy: &Policy) -> Result<NewDocument> { let _ = policy;
        let k = self.document_keys(path)?.remove(0).1; Ok(NewDocument{key:k,text:String::from_utf8_lossy(written).into_owned(),node:self.lower(None,written).node?,consolidated:false}) }
    /// x
    pub fn check_stored(&self, kind: Option<NodeKind>, text: &[u8]) -> Result<model::Node> { self.lower(kind,text).node }
    /// x
    pub fn set_consolidated(&self, _group: &str, _relative: &str, _document: Option<&str>) -> Result<Option<String>> {Ok(None)}
    /// x
    pub fn consolidate(&self, group: &str, _documents: &[(String, String)]) -> Result<String> {Ok(group.to_owned())}
}
