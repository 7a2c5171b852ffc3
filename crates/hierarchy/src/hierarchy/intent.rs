//! The declaration of a change of several keys, stored while the change runs.
//!
//! ```text
//! .zarrfs/aside-ID-N/change   {"zarrfs_change": 1, "dialect": "v2", "base": "", "path": "a",
//!                              "documents": [{"key": "a/.zattrs", "old": null, "new": "{..}"}, ..], ..}
//! ```
//!
//! It states the result instead of the steps, so recovery can finish any remainder, and may repeat
//! parts of it. Another program may have forged it, so recovery touches only keys of the node that
//! it names.

use serde_json::{Value, json};

use super::documents::DocumentStep;
use crate::metadata::{Dialect, NodeKind, NodePath};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::limits;
use zarrfs_codec::json;
use zarrfs_store::Key;

const VERSION: u64 = 1;

/// The most bytes of a declaration: a few documents of maximal length, before and after.
pub(super) fn max_len() -> u64 {
    limits::METADATA.get().saturating_mul(8)
}

/// The most JSON values in a declaration. It names the documents of the nodes that it changes, and
/// holds each as one string: those of 100,000 arrays.
const MAX_VALUES: usize = 1 << 20;

/// A change of several keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Intent {
    /// A change of a node's document and what belongs to it.
    Documents(Documents),
    /// The removal of a node's directory with everything that the store has below it.
    Remove(NodePath),
    /// A move of a node.
    Move(Move),
    /// New values of arrays.
    Values(ReplacedValues),
}

/// A document to create, change or remove.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Documents {
    pub(super) path: NodePath,
    /// The keys of the document, in the order in which they change.
    pub(super) steps: Vec<DocumentStep>,
    /// Whether the group gets consolidated metadata under a key of their own; `None` keeps the
    /// current state.
    pub(super) consolidated: Option<bool>,
    /// The progress of a directory that becomes an array.
    pub(super) stage: Option<Stage>,
}

impl Documents {
    /// Whether the document is removed.
    pub(super) fn is_removal(&self) -> bool {
        self.steps.iter().all(|step| step.new.is_none())
    }
}

/// The progress of a directory that becomes an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The files that become chunks are moved aside.
    Files,
    /// All files are aside: the chunks get their keys, then the document is stored.
    Chunks,
}

/// A node that moves, with everything below it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Move {
    pub(super) from: NodePath,
    pub(super) to: NodePath,
    pub(super) kind: NodeKind,
    /// Its document; `None` for a node without one.
    pub(super) document: Option<String>,
}

/// Arrays that get new values, which are aside.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReplacedValues {
    /// The node that a program has given new values.
    pub(super) path: NodePath,
    /// The arrays, in the order of their numbers.
    pub(super) arrays: Vec<NodePath>,
    /// All nodes that have one of the documents.
    pub(super) nodes: Vec<NodePath>,
    /// The keys of their documents, in the order in which they change.
    pub(super) steps: Vec<DocumentStep>,
}

impl Intent {
    /// Returns the node that changes.
    pub(super) fn path(&self) -> &NodePath {
        match self {
            Self::Documents(documents) => &documents.path,
            Self::Remove(path) => path,
            Self::Move(moved) => &moved.from,
            Self::Values(values) => &values.path,
        }
    }

    /// Returns the text to store.
    pub(super) fn to_text(&self, dialect: &Dialect) -> String {
        let mut text = json!({
            "zarrfs_change": VERSION,
            "dialect": dialect.name(),
            "base": dialect.base().as_str(),
            "path": self.path().as_str(),
        });
        let shown = |steps: &[DocumentStep]| -> Value {
            let members = |DocumentStep { key, old, new }: &DocumentStep| json!({"key": key.as_str(), "old": old, "new": new});
            steps.iter().map(members).collect()
        };
        let more = match self {
            Self::Documents(Documents { steps, consolidated, stage, .. }) => {
                json!({
                    "documents": shown(steps),
                    "consolidated": consolidated,
                    "stage": stage.map(Stage::name),
                })
            }
            Self::Remove(_) => json!({"remove": true}),
            Self::Move(Move { to, kind, document, .. }) => json!({
                "to": to.as_str(),
                "array": *kind == NodeKind::Array,
                "document": document,
            }),
            Self::Values(ReplacedValues { arrays, nodes, steps, .. }) => {
                let paths =
                    |paths: &[NodePath]| paths.iter().map(NodePath::as_str).collect::<Value>();
                json!({"values": paths(arrays), "nodes": paths(nodes), "documents": shown(steps)})
            }
        };
        if let (Value::Object(text), Value::Object(more)) = (&mut text, more) {
            text.extend(more);
        }
        format!("{text:#}\n")
    }

    /// Parses a declaration into the dialect, the base path and the change.
    pub(super) fn parse(text: &[u8]) -> Result<(String, NodePath, Self)> {
        let unknown = |what: &str| Error::corrupt(format!("unknown change: {what}"));
        let value = json::parse_within(text, max_len(), MAX_VALUES)?;
        let member = |name: &str| value.get(name).filter(|found| !found.is_null());
        let text_of = |found: &Value| found.as_str().map(str::to_owned);
        let text = |name: &str| member(name).and_then(text_of);
        let path = |name: &str| {
            text(name).and_then(|path| NodePath::parse(&path).ok()).ok_or_else(|| unknown(name))
        };
        if member("zarrfs_change").and_then(Value::as_u64) != Some(VERSION) {
            return Err(unknown("zarrfs_change"));
        }
        let dialect = text("dialect").ok_or_else(|| unknown("dialect"))?;
        let own = path("path")?;
        let steps = || -> Result<Vec<DocumentStep>> {
            let step = |step: &Value| -> Option<DocumentStep> {
                let key = Key::parse(step.get("key")?.as_str()?).ok()?;
                let side = |name: &str| step.get(name).and_then(text_of);
                Some(DocumentStep { key, old: side("old"), new: side("new") })
            };
            let listed = member("documents").and_then(Value::as_array);
            let steps = listed.and_then(|steps| steps.iter().map(step).collect());
            steps.ok_or_else(|| unknown("documents"))
        };
        let paths = |name: &str| -> Result<Vec<NodePath>> {
            let parsed = |path: &Value| NodePath::parse(path.as_str()?).ok();
            let listed = member(name).and_then(Value::as_array);
            let paths = listed.and_then(|paths| paths.iter().map(parsed).collect());
            paths.ok_or_else(|| unknown(name))
        };
        let intent = if member("values").is_some() {
            let (arrays, nodes) = (paths("values")?, paths("nodes")?);
            Self::Values(ReplacedValues { path: own, arrays, nodes, steps: steps()? })
        } else if member("documents").is_some() {
            let stage =
                text("stage").map(|name| Stage::parse(&name).ok_or_else(|| unknown("stage")));
            Self::Documents(Documents {
                path: own,
                steps: steps()?,
                consolidated: member("consolidated").and_then(Value::as_bool),
                stage: stage.transpose()?,
            })
        } else if member("remove").is_some() {
            Self::Remove(own)
        } else {
            let is_array = member("array").and_then(Value::as_bool).unwrap_or_default();
            Self::Move(Move {
                from: own,
                to: path("to")?,
                kind: if is_array { NodeKind::Array } else { NodeKind::Group },
                document: text("document"),
            })
        };
        Ok((dialect, path("base")?, intent))
    }
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Chunks => "chunks",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Files, Self::Chunks].into_iter().find(|stage| stage.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_base::error::Kind;

    #[test]
    fn an_intent_is_parsed_as_it_was_written() {
        let path = |text| NodePath::parse(text).expect("a path");
        let step = |key, old: Option<&str>, new: Option<&str>| DocumentStep {
            key: Key::parse(key).expect("a key"),
            old: old.map(str::to_owned),
            new: new.map(str::to_owned),
        };
        let documents = Documents {
            path: path("a"),
            steps: vec![
                step("a/.zattrs", None, Some("{\"\n\"}")),
                step("a/.zarray", Some(""), None),
            ],
            consolidated: Some(false),
            stage: Some(Stage::Chunks),
        };
        let plain = Documents { consolidated: None, stage: None, ..documents.clone() };
        let moved = Move {
            from: path("a"),
            to: path("b/c"),
            kind: NodeKind::Array,
            document: Some("{}".to_owned()),
        };
        let values = ReplacedValues {
            path: path("g"),
            arrays: vec![path("g/a"), path("g/b")],
            nodes: vec![path("g/a"), path("g/b"), path("g")],
            steps: documents.steps.clone(),
        };
        let of_group = Move { kind: NodeKind::Group, document: None, ..moved.clone() };
        for intent in [
            Intent::Documents(documents),
            Intent::Documents(plain),
            Intent::Remove(path("a/b")),
            Intent::Move(moved),
            Intent::Move(of_group),
            Intent::Values(values),
        ] {
            let text = intent.to_text(&Dialect::V2);
            let read = Intent::parse(text.as_bytes());
            assert_eq!(read, Ok(("v2".to_owned(), NodePath::root(), intent)), "{text}");
        }
        for text in ["", "{}", "[]", r#"{"zarrfs_change":2,"dialect":"v2","base":"","path":"a"}"#] {
            assert!(Intent::parse(text.as_bytes()).is_err(), "{text}");
        }
        let steps = vec![r#"{"key":"a/.zattrs"}"#; 600_000].join(",");
        let many = format!(
            r#"{{"zarrfs_change":1,"dialect":"v2","base":"","path":"a","documents":[{steps}]}}"#
        );
        let kind = Intent::parse(many.as_bytes()).map(drop).map_err(|error| error.kind());
        assert_eq!(kind, Err(Kind::TooLarge));
        let up = r#"{"zarrfs_change":1,"dialect":"v2","base":"","path":"../a","remove":true}"#;
        assert!(Intent::parse(up.as_bytes()).is_err());
    }

    #[test]
    fn an_intent_of_many_arrays_is_parsed() {
        let array = |number| NodePath::parse(&format!("g/{number}")).expect("a path");
        let arrays: Vec<NodePath> = (0..20_000).map(array).collect();
        let step = |path: &NodePath| DocumentStep {
            key: Key::parse(&format!("{}/zarr.json", path.as_str())).expect("a key"),
            old: None,
            new: Some("{}".to_owned()),
        };
        let values = Intent::Values(ReplacedValues {
            path: NodePath::parse("g").expect("a path"),
            steps: arrays.iter().map(step).collect(),
            nodes: arrays.clone(),
            arrays,
        });
        let text = values.to_text(&Dialect::V3);
        let (_, _, parsed) = Intent::parse(text.as_bytes()).expect("an intent");
        assert_eq!(parsed, values);
    }
}
