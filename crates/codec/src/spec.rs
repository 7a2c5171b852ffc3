//! A codec and its configuration, as a metadata file names them.

use serde_json::{Value, json};

use crate::json::{Object, describe};
use zarrfs_base::error::{Error, Result};

/// A codec by its name in released v3 (`gzip`, `numcodecs.zlib`), with its configuration.
#[derive(Debug, Clone)]
pub struct CodecSpec {
    /// The registered name. `metadata` translates the spellings of other dialects.
    pub name: String,
    /// The configuration, empty if the metadata file has none.
    pub configuration: Object,
    /// Whether a reader that does not know the codec may skip it (`must_understand: false`).
    pub optional: bool,
    /// The name in the metadata file, if another dialect than v3 has it. It is for messages alone.
    written: Option<Box<str>>,
}

impl PartialEq for CodecSpec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.configuration == other.configuration
            && self.optional == other.optional
    }
}

impl CodecSpec {
    /// Returns a codec that readers must know.
    pub fn new(name: &str, configuration: Object) -> Self {
        Self { name: name.to_owned(), configuration, optional: false, written: None }
    }

    /// Gives it the name of released v3 in place of the one that the metadata file has.
    #[must_use]
    pub fn renamed(self, name: String) -> Self {
        let written = self.written.unwrap_or_else(|| self.name.into());
        Self { name, written: Some(written), ..self }
    }

    /// Returns the name as the metadata file has it.
    pub fn written(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.name)
    }

    /// Returns the name as the metadata file has it, without what surrounds it in a URI:
    /// `https://purl.org/zarr/spec/codec/gzip/1.0` is `gzip`.
    pub fn short(&self) -> &str {
        let written = self.written();
        let heads = ["/spec/codec/", "/spec/codecs/"];
        let tail = heads.iter().find_map(|head| Some(written.split_once(head)?.1));
        tail.and_then(|tail| tail.split('/').next()).unwrap_or(written)
    }

    /// Parses an item of a list of codecs: an object, or since version 3.1 only a name.
    pub fn from_json(value: &Value) -> Result<Self> {
        let wrong = || Error::corrupt(format!("codec {} has no name", describe(value)));
        if let Some(name) = value.as_str() {
            return Ok(Self::new(name, Object::new()));
        }
        let members = ["name", "type", "codec"];
        let name =
            members.iter().find_map(|member| value.get(member)?.as_str()).ok_or_else(wrong)?;
        let configuration = match value.get("configuration") {
            // In the draft of May 2019 the name is a URI, and the parameters are beside it.
            None | Some(Value::Null) if value.get("codec").is_some() => {
                let mut parameters = value.as_object().cloned().unwrap_or_default();
                parameters
                    .retain(|member, _| !["codec", "configuration"].contains(&member.as_str()));
                parameters
            }
            None | Some(Value::Null) => Object::new(),
            Some(Value::Object(configuration)) => configuration.clone(),
            Some(other) => {
                return Err(Error::corrupt(format!(
                    "the configuration of codec {name} is {}, not an object",
                    describe(other)
                )));
            }
        };
        let optional = value.get("must_understand") == Some(&Value::Bool(false));
        Ok(Self { optional, ..Self::new(name, configuration) })
    }

    /// Returns the item of a list of codecs in released v3.
    pub fn to_json(&self) -> Value {
        let mut codec = Object::from_iter([("name".to_owned(), json!(self.name))]);
        if !self.configuration.is_empty() {
            codec.insert("configuration".to_owned(), Value::Object(self.configuration.clone()));
        }
        if self.optional {
            codec.insert("must_understand".to_owned(), json!(false));
        }
        Value::Object(codec)
    }
}
