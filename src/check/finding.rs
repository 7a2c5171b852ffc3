//! The findings of a check: a code, the key, and the reason in words.

use std::fmt;
use std::sync::Arc;

use crate::array::{Array, Coords};
use crate::metadata::NodePath;
use crate::store::Key;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Some values cannot be read, or would be read wrong.
    Damaged,
    /// zarrfs did not look at it, so nothing is known about its values.
    Unchecked,
    /// Something is probably wrong, but all values that readers look for are there.
    Suspect,
    /// Worth knowing; nothing is wrong with the values.
    Note,
}

impl Severity {
    /// Returns its name in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Unchecked => "unchecked",
            Self::Suspect => "suspect",
            Self::Note => "note",
        }
    }
}

macro_rules! codes {
    ($($(#[doc = $what:literal])+ $code:ident = $name:literal, $severity:ident;)+) => {
        /// The kind of a finding. The names are a contract: they never change their meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[doc = $what])+ $code,)+
        }

        impl Code {
            /// All codes, worst first.
            pub const ALL: &'static [Self] = &[$(Self::$code),+];

            /// Returns its name in the output.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)+
                }
            }

            /// Returns its severity.
            pub fn severity(self) -> Severity {
                match self {
                    $(Self::$code => Severity::$severity,)+
                }
            }

            /// Returns its meaning in a sentence.
            pub fn meaning(self) -> String {
                match self {
                    $(Self::$code => [$($what),+].concat().trim().to_owned(),)+
                }
            }
        }
    };
}

codes! {
    /// A metadata file is not JSON.
    NotJson = "not-json", Damaged;
    /// A metadata file violates its specification.
    Metadata = "metadata", Damaged;
    /// Consolidated metadata differ from the metadata file of a node.
    StaleCopy = "stale-copy", Damaged;
    /// A file or directory cannot be read, because the disk fails, it is no file, or an archive has
    /// two names for it.
    Unreadable = "unreadable", Damaged;
    /// The file of a chunk or shard is empty.
    Empty = "empty", Damaged;
    /// A chunk has more or fewer bytes than its shape needs.
    Length = "length", Damaged;
    /// A checksum does not match the bytes of a chunk.
    Checksum = "checksum", Damaged;
    /// A chunk cannot be decoded.
    Undecodable = "undecodable", Damaged;
    /// The index of a shard cannot be read.
    ShardIndex = "shard-index", Damaged;
    /// The index of a shard places a chunk outside the shard or inside the index.
    ShardRange = "shard-range", Damaged;
    /// A chunk is not stored (only with --expect-all).
    Missing = "missing", Damaged;
    /// zarrfs may not read a file: permissions, a server, a link that leads out of the store, or a
    /// reference that --allow-virtual does not cover.
    Refused = "refused", Unchecked;
    /// A reference or a link leads to a file that does not exist, or the metadata file of a node is
    /// gone and its attributes or its consolidated metadata are left.
    MissingTarget = "missing-target", Unchecked;
    /// zarrfs did not see what is in a directory or an archive, because no key or node can have its
    /// name, or because the server does not list it.
    Unseen = "unseen", Unchecked;
    /// The server did not answer, or failed, while zarrfs read a file or a list.
    NoAnswer = "no-answer", Unchecked;
    /// A chunk has a valid form that zarrfs does not read.
    Unsupported = "unsupported", Unchecked;
    /// A chunk or metadata file was not checked, because it exceeds a limit of zarrfs.
    TooLarge = "too-large", Unchecked;
    /// Two chunks of a shard share some of their bytes.
    ShardOverlap = "shard-overlap", Suspect;
    /// A chunk lies outside its array.
    OutsideGrid = "outside-grid", Suspect;
    /// A file spells the key of a chunk in another way, so no reader finds it.
    OtherSpelling = "other-spelling", Suspect;
    /// A file has the key of a chunk, but belongs to no array.
    NoArray = "no-array", Suspect;
    /// Metadata of another version of Zarr contradict those of the node.
    Contradiction = "contradiction", Suspect;
    /// A node lies below an array.
    NodeInArray = "node-in-array", Suspect;
    /// A conversion, or another change to several files, was interrupted.
    Unfinished = "unfinished", Suspect;
    /// zarrfs does not know a codec, data type or extension, so it did not check the chunks; or a
    /// web server does not list a directory of chunks, so zarrfs asks for each chunk.
    Unknown = "unknown", Note;
    /// A metadata file lacks members that Zarr 3 requires since its release.
    Provisional = "provisional", Note;
    /// A shard has bytes that belong to no chunk.
    ShardUnused = "shard-unused", Note;
    /// A shard holds chunks that lie outside the array.
    ShardOutside = "shard-outside", Note;
    /// A program left a temporary file behind.
    Leftover = "leftover", Note;
    /// Two names differ only in case, so they collide on macOS and Windows.
    Case = "case", Note;
    /// An attribute breaks its convention.
    Convention = "convention", Note;
    /// A node also has metadata of another version of Zarr.
    OtherMetadata = "other-metadata", Note;
    /// A file belongs neither to a node nor to a chunk.
    Foreign = "foreign", Note;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A finding of a check.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Its kind.
    pub code: Code,
    /// The key of the value, or the prefix of a directory.
    pub key: String,
    /// The reason in words.
    pub reason: String,
    /// How to repair it, if that takes no guessing.
    pub repair: Option<Repair>,
}

/// A repair that takes no guessing.
#[derive(Debug, Clone)]
pub enum Repair {
    /// Remove a file that a program left behind.
    Remove(Key),
    /// Remove the lock file of a dead writer, which has no key.
    RemoveLock(String),
    /// Finish or undo interrupted changes.
    Recover,
    /// Rebuild the consolidated metadata of a group.
    Consolidate(NodePath),
    /// Rewrite a shard without its unused bytes.
    Compact(FindingPlace),
    /// Move a damaged chunk or shard out of the store.
    Quarantine(FindingPlace),
}

/// A chunk, or a shard.
#[derive(Debug, Clone)]
pub struct FindingPlace {
    /// Its array.
    pub array: Arc<Array>,
    /// The number of levels of shards that contain it.
    pub level: usize,
    /// Its coordinates in that level.
    pub coords: Coords,
}

impl Finding {
    /// Returns a finding without a repair.
    pub fn new(code: Code, key: impl fmt::Display, reason: impl Into<String>) -> Self {
        Self { code, key: key.to_string(), reason: reason.into(), repair: None }
    }

    /// Adds a repair.
    #[must_use]
    pub fn repaired_by(self, repair: Repair) -> Self {
        Self { repair: Some(repair), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_by_severity_and_have_names_of_their_own() {
        assert!(Code::ALL.is_sorted_by_key(|code| code.severity()));
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
        assert!(Code::ALL.iter().all(|code| code.meaning().ends_with('.')));
    }
}
