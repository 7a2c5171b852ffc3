//! Nodes by path: documents read, lowered, kept for a while, edited; nodes made, moved and removed, each as a whole.
//!
//! A node that was read stays as it is for [`Options::metadata_ttl`]; then the version
//! of its document is asked for, and the document is read again only where that changed.
//!
//! `nodes` has the [`Hierarchy`]. It stands on metadata files in the store (`documents`), nodes that
//! are kept (`kept`, `moves`) and directories that only this mount knows (`directories`). The other
//! files give it methods, each on top of those before it:
//!
//! - `members` and `walk` list nodes; `shown` makes the metadata files that the mount shows.
//! - `consolidated` keeps copies of metadata files true, also in the hierarchy `above`.
//! - `whole` makes a change complete or undoes it, by an `intent` that `recover` finds after a crash.
//! - `names`, `raise` and `groups` prepare new nodes; `change`, `edit`, `moving` and `conversion` are
//!   the changes that programs ask for.

mod above;
mod change;
mod consolidated;
mod conversion;
mod directories;
mod documents;
mod edit;
mod groups;
mod intent;
mod kept;
mod members;
mod moves;
mod moving;
mod names;
mod node;
mod nodes;
mod raise;
mod recover;
mod shown;
mod texts;
mod walk;
mod whole;

pub use above::{Holds, holds_node};
pub use members::{Member, Members};
pub use moving::Moved;
pub use node::{Content, Document, Node};
pub use nodes::{Hierarchy, Options};
pub use raise::Raised;
pub use shown::check_len;
pub use texts::{Of, Text, Texts, Wanted};
pub use walk::{Bounds, Met, Walk};

#[cfg(test)]
mod fixtures;
