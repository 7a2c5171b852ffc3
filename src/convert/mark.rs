//! What says that a copy is not whole: a value at its root, which goes when it is.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::error::{At, Error, Kind, Result};
use crate::store::{Condition, Key, Store};

/// Where it lies: no dialect has nodes or chunks there.
const KEY: &str = ".zarrfs/convert";
const LIMIT: u64 = 1 << 20;

/// What can be trusted of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is new, or the machine may have gone down while it was written: nothing.
    Fresh,
    /// The copy was interrupted: values that are there are whole.
    Resumed,
}

/// The mark of a copy that is not whole.
#[derive(Debug)]
pub struct Mark<'s> {
    store: &'s Store,
    key: Key,
}

impl<'s> Mark<'s> {
    /// Marks the target as a copy that was asked for by `arguments`. Bytes that the machine had not put on the disk are
    /// lost when it goes down, so that what was stored in another `session` of it is stored again.
    pub fn set(store: &'s Store, arguments: &Value, session: &str) -> Result<(Self, Standing)> {
        let key = Key::parse(KEY)?;
        let found = store.get(&key, LIMIT)?;
        let mark = json!({"arguments": arguments, "session": session});
        let standing = match &found {
            None => Standing::Fresh,
            Some(found) => {
                let found: Value = serde_json::from_slice(&found.bytes).unwrap_or_default();
                if found.get("arguments") != Some(arguments) {
                    return Err(Error::new(
                        Kind::Exists,
                        format!(
                            "an unfinished conversion with other arguments ({}): run that one again, or remove it",
                            found.get("arguments").unwrap_or(&Value::Null)
                        ),
                    ));
                }
                let same = found.get("session").and_then(Value::as_str) == Some(session);
                if same { Standing::Resumed } else { Standing::Fresh }
            }
        };
        if standing == Standing::Fresh {
            let text = Bytes::from(format!("{mark:#}\n"));
            let write = store.write()?;
            write.set(&key, &[text.into()], Condition::Always).at(&key)?;
            write.sync(std::slice::from_ref(&key))?;
        }
        Ok((Self { store, key }, standing))
    }

    /// Whether a target has the mark.
    pub fn is_in(store: &Store) -> Result<bool> {
        Ok(store.stat(&Key::parse(KEY)?)?.is_some())
    }

    /// Takes the mark off: the copy is whole.
    pub fn remove(self) -> Result<()> {
        let write = self.store.write()?;
        write.erase_values(std::slice::from_ref(&self.key))?;
        write.sync(&[self.key])
    }
}
