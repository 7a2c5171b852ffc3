//! stub
use super::Dialect;
use crate::error::Result;
impl Dialect {
    /// x
    pub fn set_consolidated(&self, _group: &str, _relative: &str, _document: Option<&str>) -> Result<Option<String>> {Ok(None)}
    /// x
    pub fn consolidate(&self, group: &str, _documents: &[(String, String)]) -> Result<String> {Ok(group.to_owned())}
}
