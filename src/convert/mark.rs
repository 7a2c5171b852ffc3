//! The mark of an incomplete copy: a value at its root, which is removed at the end.
//!
//! It names a temporary place in the store, which belongs to the process that makes the copy and
//! counts as abandoned after that process dies. So only one process at a time works on a target,
//! and another one can continue after it was killed.

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::options::{CopyTarget, TargetState};
use crate::error::{Error, Kind, Result, WithSubject, Word};
use crate::store::directory::may_be_of_key;
use crate::store::{Aside, Condition, Key, PRIVATE, Prefix, Stat, Store, StoreEntry};

/// The key of the mark. No dialect has nodes or chunks there.
const KEY: &str = ".zarrfs/convert";
const LIMIT: u64 = 16 << 20;

/// A file that a mount shows even in an empty directory, after a few seconds.
const DOCUMENT: &str = "zarr.json";

/// The number of attempts if other processes change the mark at the same time.
const ATTEMPTS: usize = 100;

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
    key: Key,
    aside: Aside,
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

/// An existing mark.
struct ExistingMark {
    members: Value,
    stat: Stat,
}

impl ExistingMark {
    fn text(&self, name: &str) -> Option<&str> {
        self.members.get(name).and_then(Value::as_str)
    }

    /// Returns the values that the copy has skipped.
    fn passed(&self) -> Vec<Passed> {
        let passed = self.members.get("passed_over").and_then(Value::as_array);
        passed.into_iter().flatten().filter_map(Passed::parse).collect()
    }

    /// Whether the process that set the mark is still running.
    fn has_live_owner(&self, store: &Store, abandoned: &[Aside]) -> Result<bool> {
        let Some(holder) = self.text("holder").and_then(|text| Prefix::parse(text).ok()) else {
            return Ok(false);
        };
        let is_dead = abandoned.iter().any(|aside| *aside.prefix() == holder);
        Ok(!is_dead && store.stat(&place_of(&holder)?)?.is_some())
    }
}

impl<'s> Mark<'s> {
    /// Marks the target as a copy by this process. Removes leftovers of another copy that this one
    /// cannot use.
    pub fn set(store: &'s Store, target: CopyTarget, claim: &Claim) -> Result<(Self, TargetState)> {
        let write = store.write()?;
        let aside = write.aside()?;
        let own = place_of(aside.prefix())?;
        write.set(&own, &[Bytes::new().into()], Condition::Always).at(&own)?;
        let mark = Self { store, target, key: Key::parse(KEY)?, aside, passed: Mutex::default() };
        for _ in 0..ATTEMPTS {
            if let Some(state) = mark.take(claim)? {
                write.sync(std::slice::from_ref(&mark.key))?;
                return Ok((mark, state));
            }
        }
        Err(Error::new(
            Kind::Busy,
            "gave up after repeated conflicts: other programs keep \
             changing it",
        )
        .at(&mark.key))
    }

    /// Tries to set the mark; `None` if another process changed it in the meantime.
    fn take(&self, claim: &Claim) -> Result<Option<TargetState>> {
        // While this process holds these, no other process cleans up after dead ones.
        let abandoned = self.store.write()?.abandoned()?;
        let Some(found) = self.found()? else {
            if self.put(claim, Some(&claim.source), Condition::Absent)?.is_none() {
                return Ok(None);
            }
            return self.check_empty().map(|()| Some(TargetState::Fresh));
        };
        if found.has_live_owner(self.store, &abandoned)? {
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
            *self.passed.lock() = found.passed();
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

    fn found(&self) -> Result<Option<ExistingMark>> {
        let found = self.store.get(&self.key, LIMIT)?;
        Ok(found.map(|value| ExistingMark {
            members: serde_json::from_slice(&value.bytes).unwrap_or_default(),
            stat: value.stat,
        }))
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
            "holder": self.aside.prefix().as_str(), "passed_over": passed,
        });
        let text = Bytes::from(format!("{mark:#}\n"));
        let write = self.store.write()?;
        match write.set(&self.key, &[text.into()], condition) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if matches!(error.kind(), Kind::Exists | Kind::Stale) => Ok(None),
            Err(error) => Err(error.at(&self.key)),
        }
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
        self.store.write()?.erase_values(std::slice::from_ref(&self.key))?;
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
        let Some(ExistingMark { mut members, stat }) = self.found()? else {
            return Err(Error::new(Kind::Stale, "the mark of the copy is gone").at(&self.key));
        };
        if let Some(members) = members.as_object_mut() {
            let passed = passed.iter().map(Passed::to_json).collect();
            members.insert("passed_over".to_owned(), passed);
        }
        let text = Bytes::from(format!("{members:#}\n"));
        let write = self.store.write()?;
        write.set(&self.key, &[text.into()], Condition::Unchanged(stat.version)).at(&self.key)?;
        write.sync(std::slice::from_ref(&self.key))
    }

    /// Removes the mark, since the copy is complete.
    pub fn remove(self) -> Result<()> {
        let write = self.store.write()?;
        write.erase_values(std::slice::from_ref(&self.key))?;
        write.sync(std::slice::from_ref(&self.key))
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        let erased = self.store.write().and_then(|write| write.erase_prefix(self.aside.prefix()));
        if let Err(error) = erased {
            log::debug!("{}: {error}", self.aside.prefix());
        }
    }
}

/// Whether an empty target may have an entry of this name.
pub fn is_ignored(name: &str, target: CopyTarget) -> bool {
    name == PRIVATE || (target == CopyTarget::Mount && name == DOCUMENT)
}

/// Returns the key of the value that a running process has in its temporary place.
fn place_of(holder: &Prefix) -> Result<Key> {
    holder.key("convert")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
