//! The mark of an incomplete copy: a value at its root, which is removed at the end. Only one
//! process at a time holds it, and another one can continue after that was killed ([`Hold`]).

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::hold::{Held, Hold};
use super::options::{CopyTarget, TargetState};
use crate::error::{Error, Kind, Result, WithSubject, Word};
use crate::store::directory::may_be_of_key;
use crate::store::{Condition, Key, PRIVATE, Prefix, Stat, Store, StoreEntry};

/// The key of the mark. No dialect has nodes or chunks there.
const KEY: &str = ".zarrfs/convert";

/// A file that a mount shows even in an empty directory, after a few seconds.
const DOCUMENT: &str = "zarr.json";

/// The purpose of a conversion.
#[derive(Debug, Clone)]
pub struct Claim {
    /// All arguments, which identify a conversion.
    pub arguments: Value,
    /// A string that changes when the machine restarts.
    pub session: String,
    /// A string that changes with the nodes to create.
    pub plan: String,
    /// A string that changes with the chunks of the source.
    pub source: String,
}

/// The most values whose errors the mark has.
const MOST_PASSED: usize = 1000;

/// The mark of an incomplete copy. Only this process can hold it.
#[derive(Debug)]
pub struct Mark<'s> {
    store: &'s Store,
    target: CopyTarget,
    hold: Hold<'s>,
    /// The values of the source that the copy has skipped, also before it was interrupted.
    passed: Mutex<Vec<Passed>>,
}

/// A value of the source that the copy has skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// The key, and the reason.
    pub error: String,
    /// What that means for the value.
    pub word: Word,
}

impl Passed {
    fn parse(value: &Value) -> Option<Self> {
        let error = value.get("error").and_then(Value::as_str)?.to_owned();
        let word = value.get("word").and_then(Value::as_str).and_then(Word::parse)?;
        Some(Self { error, word })
    }

    fn to_json(&self) -> Value {
        json!({ "error": self.error, "word": self.word.name() })
    }
}

impl<'s> Mark<'s> {
    /// Marks the target as a copy by this process. Removes leftovers of another copy that this one
    /// cannot use.
    pub fn set(store: &'s Store, target: CopyTarget, claim: &Claim) -> Result<(Self, TargetState)> {
        let hold = Hold::new(store, KEY)?;
        let mark = Self { store, target, hold, passed: Mutex::default() };
        let state = mark.hold.take(|| mark.take(claim))?;
        Ok((mark, state))
    }

    /// Tries to set the mark; `None` if another process changed it in the meantime.
    fn take(&self, claim: &Claim) -> Result<Option<TargetState>> {
        // While this process holds these, no other process cleans up after dead ones.
        let abandoned = self.store.write()?.abandoned()?;
        let Some(found) = self.hold.found()? else {
            if self.put(claim, Some(&claim.source), Condition::Absent)?.is_none() {
                return Ok(None);
            }
            return self.check_empty().map(|()| Some(TargetState::Fresh));
        };
        if self.hold.is_of_another(&found, &abandoned)? {
            let detail = "another conversion is writing here: wait until it has finished";
            return Err(Error::new(Kind::Busy, detail));
        }
        if found.members.get("arguments") != Some(&claim.arguments) {
            return Err(Error::new(
                Kind::Exists,
                format!(
                    "an unfinished conversion with other arguments ({}): run that one again, or remove it",
                    found.members.get("arguments").unwrap_or(&Value::Null)
                ),
            ));
        }
        let has_plan = found.text("plan") == Some(&claim.plan);
        let is_same = found.text("session") == Some(&claim.session)
            && found.text("source") == Some(&claim.source);
        let state = match (has_plan, is_same) {
            (false, _) => TargetState::Fresh,
            (true, true) => TargetState::Resumed,
            (true, false) => TargetState::Doubtful,
        };
        // If this copy is interrupted, values that were not compared yet stay doubtful.
        let source = (state == TargetState::Resumed).then_some(claim.source.as_str());
        let unchanged = Condition::Unchanged(found.stat.version);
        if state == TargetState::Resumed {
            // Of those that are there, none is read again.
            *self.passed.lock() = passed_in(&found.members);
        }
        if state != TargetState::Fresh {
            return Ok(self.put(claim, source, unchanged)?.map(|_| state));
        }
        // Until everything else is removed, the mark names a different plan.
        let other = Claim { plan: String::new(), ..claim.clone() };
        let Some(stat) = self.put(&other, None, unchanged)? else { return Ok(None) };
        self.clear()?;
        let unchanged = Condition::Unchanged(stat.version);
        Ok(self.put(claim, Some(&claim.source), unchanged)?.map(|_| state))
    }

    /// Stores the mark; `None` if another process was faster.
    fn put(
        &self,
        claim: &Claim,
        source: Option<&str>,
        condition: Condition,
    ) -> Result<Option<Stat>> {
        let Claim { arguments, session, plan, .. } = claim;
        let passed: Vec<Value> = self.passed.lock().iter().map(Passed::to_json).collect();
        let mark = json!({
            "arguments": arguments, "session": session, "plan": plan, "source": source,
            "passed_over": passed,
        });
        self.hold.put(mark, condition)
    }

    /// Returns the entries at the root, without those of zarrfs.
    fn entries(&self) -> Result<Vec<StoreEntry>> {
        let list = self.store.list();
        let list = list.ok_or_else(|| Error::unsupported("the store cannot list its keys"))?;
        let is_other = |entry: &Result<StoreEntry>| {
            entry.as_ref().map_or(true, |entry| !is_ignored(entry.name(), self.target))
        };
        list.list_dir(&Prefix::root())?.filter(is_other).collect()
    }

    /// Removes a new mark if the target is not empty: another process may have completed it since
    /// the check.
    fn check_empty(&self) -> Result<()> {
        if self.entries()?.is_empty() {
            return Ok(());
        }
        self.hold.erase()?;
        Err(Error::new(Kind::NotEmpty, "neither empty nor an unfinished conversion"))
    }

    /// Fails if there is something that no conversion makes: a user may have put a file there.
    fn check_own(&self) -> Result<()> {
        let list = self.store.list();
        let list = list.ok_or_else(|| Error::unsupported("the store cannot list its keys"))?;
        for key in list.list()? {
            let key = key?;
            let is_own =
                key.as_str().split('/').next() == Some(PRIVATE) || may_be_of_key(key.name());
            if !is_own {
                let detail = format!(
                    "the source has changed, so the copy begins again and removes what is here, \
                     and {key} is not of a conversion: move it away"
                );
                return Err(Error::new(Kind::Exists, detail));
            }
        }
        Ok(())
    }

    /// Erases everything except the mark.
    fn clear(&self) -> Result<()> {
        self.check_own()?;
        let write = self.store.write()?;
        for entry in self.entries()? {
            match entry {
                StoreEntry::Key(name) => write.erase_values(&[Key::parse(&name)?])?,
                StoreEntry::Prefix(name) => write.erase_prefix(&Prefix::parse(&name)?)?,
            }
        }
        Ok(())
    }

    /// Whether a target has the mark.
    pub fn is_in(store: &Store) -> Result<bool> {
        Ok(store.stat(&Key::parse(KEY)?)?.is_some())
    }

    /// Returns the values that were skipped.
    pub fn passed(&self) -> Vec<Passed> {
        self.passed.lock().clone()
    }

    /// Stores the error of a value before the copy goes on without it, so that the process that
    /// continues the copy knows of it.
    pub fn pass_over(&self, error: &str, word: Word) -> Result<()> {
        let mut passed = self.passed.lock();
        if passed.len() > MOST_PASSED || passed.iter().any(|known| known.error == error) {
            return Ok(());
        }
        let error = if passed.len() == MOST_PASSED { "and more values" } else { error };
        passed.push(Passed { error: error.to_owned(), word });
        let Some(Held { mut members, stat }) = self.hold.found()? else {
            return Err(Error::new(Kind::Stale, "the mark of the copy is gone").at(KEY));
        };
        if let Some(members) = members.as_object_mut() {
            let passed = passed.iter().map(Passed::to_json).collect();
            members.insert("passed_over".to_owned(), passed);
        }
        let stored = self.hold.put(members, Condition::Unchanged(stat.version))?;
        stored
            .map(drop)
            .ok_or_else(|| Error::new(Kind::Stale, "the mark of the copy changed").at(KEY))?;
        self.hold.sync()
    }

    /// Removes the mark, since the copy is complete.
    pub fn remove(self) -> Result<()> {
        self.hold.erase()?;
        self.hold.sync()
    }
}

/// Returns the values that a copy has skipped.
fn passed_in(mark: &Value) -> Vec<Passed> {
    let passed = mark.get("passed_over").and_then(Value::as_array);
    passed.into_iter().flatten().filter_map(Passed::parse).collect()
}

/// Whether an empty target may have an entry of this name.
pub fn is_ignored(name: &str, target: CopyTarget) -> bool {
    name == PRIVATE || (target == CopyTarget::Mount && name == DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::store::memory::MemoryStore;

    #[test]
    fn a_copy_that_begins_again_removes_no_file_of_the_user() {
        let store = Store::new(Arc::new(MemoryStore::new()));
        let put = |name: &str| {
            let key = Key::parse(name).expect("a key");
            let write = store.write().expect("writable");
            write.set(&key, &[Bytes::from("x").into()], Condition::Always).expect("stored");
        };
        let claim = |plan: &str| Claim {
            arguments: json!({"source": "a"}),
            session: "s".to_owned(),
            plan: plan.to_owned(),
            source: "s".to_owned(),
        };
        let has =
            |name: &str| store.stat(&Key::parse(name).expect("a key")).expect("known").is_some();
        let (mark, _) = Mark::set(&store, CopyTarget::Directory, &claim("one")).expect("marked");
        drop(mark);
        for name in ["zarr.json", "a/c/0/1", "a/c0.1", "a/b.array.json", "notes/thesis.tex"] {
            put(name);
        }
        let refused = Mark::set(&store, CopyTarget::Directory, &claim("two")).expect_err("refused");
        assert!(refused.detail().contains("notes/thesis.tex"), "{refused}");
        assert!(has("notes/thesis.tex"));
        store.write().and_then(|it| it.erase_prefix(&Prefix::parse("notes")?)).expect("moved away");
        let (_, state) =
            Mark::set(&store, CopyTarget::Directory, &claim("two")).expect("begins again");
        assert!(state == TargetState::Fresh && !has("zarr.json") && !has("a/c/0/1"));
    }
}
