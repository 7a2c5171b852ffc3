//! Arrays with directories that the store cannot list, as some of a web server.

use std::sync::Arc;

use super::finding::{Code, Finding};
use super::options::CheckWatch;
use super::target::CheckedArray;
use crate::array::{ChunkStore, Direct, Grid};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::store::{Keys, ListedEntry, Prefix, Store};

/// Returns the keys that an entry of the listing of an array stands for. In a directory that the
/// store cannot list, these are the chunks that it has when it is asked for each.
pub fn keys_of(
    found: Result<ListedEntry>,
    target: &CheckedArray,
    store: &Store,
    watch: &dyn CheckWatch,
) -> Keys {
    let one = |key| -> Keys { Box::new(std::iter::once(key)) };
    let (directory, error) = match found {
        Ok(ListedEntry::Key(key)) => return one(Ok(key)),
        Ok(ListedEntry::Unlisted(directory, error)) => (directory, error),
        Err(error) => return one(Err(error)),
    };
    match asked(&directory, target, store) {
        Ok(keys) => {
            let reason = format!("{}, so each chunk is asked for", error.detail());
            watch.find(Finding::new(Code::Unknown, directory.as_str(), reason));
            keys
        }
        // It is not known which chunks are there.
        Err(too_many) => {
            let detail = format!("{}; {}", error.detail(), too_many.detail());
            one(Err(Error::new(Kind::Os(libc::EIO), detail)).at(&directory))
        }
    }
}

/// Returns the keys of the chunks in a directory of an array that the store has when it is asked
/// for each.
pub fn asked(directory: &Prefix, target: &CheckedArray, store: &Store) -> Result<Keys> {
    let (prefix, model) = (target.array.prefix().clone(), target.array.model());
    let direct = Direct::new(store.clone(), prefix, model.key_encoding, Grid::of(model));
    let direct = Arc::new(direct);
    let chunks = direct.asked_in(directory, &[])?;
    Ok(Box::new(chunks.map(move |coords| direct.key(&coords?))))
}
