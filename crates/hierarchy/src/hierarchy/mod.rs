//! Nodes by path: reads and lowers their documents, caches and edits them; creates, moves and
//! removes nodes atomically.
//!
//! A node is cached for [`HierarchyOptions::metadata_ttl`]. After that its document is read again
//! only if the version in the store has changed.
//!
//! `nodes` has the [`Hierarchy`]. It builds on metadata files in the store (`documents`), cached
//! nodes (`node_cache`, `moves`), directories that only this mount knows (`directories`) and nodes
//! whose files differ from those of the mount (`forms`). `reading` reads nodes, `members` and
//! `walk` list them, the former by `hinted` if the store cannot list. `shown` makes the metadata
//! files that the mount shows; `names` and `raise` prepare new nodes. The other files change the
//! hierarchy:
//!
//! - [`Changes`] are the changes that programs request (`change`, `edit`, `groups`, `moving`,
//!   `conversion` and `replacing`).
//! - `Atomic` completes such a change or undoes it, by an `intent` that [`Recovery`] finds after a
//!   crash.
//! - [`CopiesAbove`] keeps consolidated metadata current, also in the hierarchy `above`.

mod above;
mod atomic;
mod change;
mod consolidated;
mod conversion;
mod copied;
mod directories;
mod documents;
mod edit;
mod folder;
mod forms;
mod groups;
mod guard;
mod hinted;
mod in_memory;
mod intent;
mod members;
mod moves;
mod moving;
mod names;
mod node;
mod node_cache;
mod nodes;
mod not_seen;
mod raise;
mod reading;
mod recover;
mod replacing;
mod shown;
mod siblings;
mod texts;
mod unfinished;
mod walk;

pub use above::{Membership, membership};
pub use change::Changes;
pub use consolidated::{CopiesAbove, GroupCopies, NodeCopy};
pub use conversion::ConvertedFiles;
pub use directories::KnownDirectories;
pub use forms::{Forms, NodeForm};
pub use members::{Member, Members};
pub use moving::Moved;
pub use node::{Content, Document, Node};
pub use nodes::{Hierarchy, HierarchyOptions};
pub use not_seen::{ReadExtent, is_like_chunk};
pub use raise::Raised;
pub use recover::Recovery;
pub use replacing::NewValues;
pub use shown::{ShownMetadata, check_len};
pub use texts::{Sources, Text, TextCache, TextPurpose};
pub use walk::{Bounds, Visited, Walk};

#[cfg(test)]
mod tests;
