//! Gives arrays new values, all at once with changes of attributes, or makes new nodes with theirs.
//!
//! The new values are encoded aside. When all of them are there and synced, the change is declared,
//! the values take their keys, and the metadata files change. Before the declaration, nothing has
//! changed; after it, the change is finished, by the next mount if this one is killed. Recovery
//! knows the arrays by their metadata files: if another program has replaced one since, its new
//! values stay aside.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::atomic::leave_copies;
use super::change::Changes;
use super::documents::{DocumentStep, Planned, Replaced, is_same};
use super::intent::{Intent, ReplacedValues};
use super::node::Node;
use super::raise::Raised;
use super::recover::{Outcome, Recovery, is_permanent};
use crate::array::Array;
use crate::metadata::merge::Edit;
use crate::metadata::model::NodeMetadata;
use crate::metadata::{NodeKind, NodePath};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_store::{Aside, Key, Prefix};

/// Holds the new values of each array, below its number.
const VALUES: &str = "values";

/// The key whose lock a mount holds while it does so. It has no value.
const TURN: &str = ".zarrfs/values";

/// How often to try to finish a change whose values are complete.
const ATTEMPTS: usize = 3;

/// New values of arrays, and changes of attributes or new nodes.
#[derive(Debug, Clone, Copy)]
pub struct NewValues<'a> {
    /// The place of the encoded values.
    pub aside: &'a Aside,
    /// The arrays, in the order of their numbers, as they were when the values were encoded.
    pub arrays: &'a [(NodePath, Arc<Array>)],
    /// The changes of attributes of these arrays and of other nodes, one for each node.
    pub edits: &'a [(NodePath, Edit)],
    /// The new nodes, groups before their members. Their arrays are among `arrays`.
    pub made: &'a [(NodePath, &'a Raised)],
}

/// Returns the prefix of the new values of an array.
fn values_of(aside: &Aside, number: usize) -> Result<Prefix> {
    aside.prefix().join(&format!("{VALUES}/{number}"))
}

impl Changes<'_> {
    /// Returns `array` with the place of its new values instead of its chunks.
    pub fn bind_new_values(
        self,
        array: &Array,
        aside: &Aside,
        number: usize,
    ) -> Result<Arc<Array>> {
        let (model, prefix) = (array.model().clone(), values_of(aside, number)?);
        let options = self.hierarchy.array_options();
        Ok(Arc::new(Array::open(model, self.hierarchy.store(), prefix, options)?))
    }

    /// Stores new values of arrays, and edits of metadata files, all or none of them. On failure
    /// nothing changes, or the next mount completes the change, which the error says.
    pub fn put_new_values(self, path: &NodePath, new: NewValues<'_>) -> Result<Vec<Key>> {
        let NewValues { aside, arrays, .. } = new;
        let write = self.hierarchy.store().write()?;
        // Another mount that does the same waits. A store without locks lets both go on.
        let _turn = write.take_turn(&Key::parse(TURN)?).inspect_err(|_| self.drop_aside(aside))?;
        let planned = self.check_makes(path, new.made).and_then(|()| self.plan_new_values(new));
        let (planned, keys) = planned.inspect_err(|_| self.drop_aside(aside))?;
        let steps = planned.iter().flat_map(|(_, steps)| steps.clone()).collect();
        let values = ReplacedValues {
            path: path.clone(),
            arrays: arrays.iter().map(|(path, _)| path.clone()).collect(),
            nodes: planned.iter().map(|(path, _)| path.clone()).collect(),
            steps,
        };
        let declared = write
            .sync(&keys.iter().map(|(aside, _)| aside.clone()).collect::<Vec<_>>())
            .and_then(|()| self.atomic().declare(aside, &Intent::Values(values.clone())));
        declared.inspect_err(|_| self.drop_aside(aside))?;
        let replaced = Error::new(Kind::Stale, "another program has replaced an array meanwhile");
        for attempt in 1.. {
            match self.hierarchy.recovery().settle_values(&values, aside) {
                Ok(Outcome::Finished) => break,
                Ok(Outcome::Undone | Outcome::Conflict) if attempt == 1 => {
                    self.drop_aside(aside);
                    return Err(replaced.at(path));
                }
                Err(error) if attempt < ATTEMPTS => log::debug!("{path}: {error}"),
                failed => {
                    let error = failed.err().unwrap_or(replaced);
                    let detail = format!(
                        "{}: some of the new values are stored, and the next change or mount stores \
                         the others",
                        error.detail()
                    );
                    self.hierarchy.unfinished.add(values, aside.clone());
                    return Err(Error::new(error.kind(), detail).at(path));
                }
            }
        }
        let keys: Vec<Key> = keys.into_iter().map(|(_, key)| key).collect();
        if !new.made.is_empty() {
            // What they were made of is removed next.
            let documents = values.steps.iter().map(|step| step.key.clone());
            write.sync(&keys.iter().cloned().chain(documents).collect::<Vec<_>>())?;
        }
        self.drop_aside(aside);
        Ok(keys)
    }

    /// Fails if new nodes cannot be at `path` and below it. Stores the groups above.
    fn check_makes(self, path: &NodePath, made: &[(NodePath, &Raised)]) -> Result<()> {
        if made.is_empty() {
            return Ok(());
        }
        self.hierarchy.invalidate_below(path);
        self.check_is_free(path)?;
        for (path, raised) in made {
            self.hierarchy.check_can_hold(path)?;
            self.check_is_new(path, raised.key())?;
        }
        self.store_groups_above(path)
    }

    /// Compares everything with the store, and returns the steps for each node, and the keys of the
    /// values aside, each with its own key.
    fn plan_new_values(self, new: NewValues<'_>) -> Result<(Vec<StepsOfNode>, Vec<KeyAside>)> {
        let NewValues { aside, arrays, edits, made } = new;
        let mut planned = Vec::new();
        let new_paths: BTreeSet<&NodePath> = made.iter().map(|(path, _)| path).collect();
        let is_there = |(path, _): &&(NodePath, _)| !new_paths.contains(path);
        for (path, array) in arrays.iter().filter(is_there) {
            let now = self.hierarchy.array_since(path, array, self.since())?;
            if now.model().shape != array.model().shape {
                let detail = "another program changed its shape meanwhile";
                return Err(Error::new(Kind::Stale, detail).at(path));
            }
        }
        let unedited = arrays
            .iter()
            .filter(is_there)
            .filter(|(path, _)| edits.iter().all(|(other, _)| other != path));
        let none = Edit::default();
        let all = edits.iter().map(|(path, edit)| (path, edit));
        for (path, edit) in all.chain(unedited.map(|(path, _)| (path, &none))) {
            planned.push((path.clone(), self.steps_of_edit(path, edit).at(path)?));
        }
        // A group appears after its members.
        for (path, raised) in made.iter().rev() {
            planned.push((path.clone(), self.steps_of_new(path, raised).at(path)?));
        }
        let list = self.hierarchy.store().list();
        let list = list.ok_or_else(|| Error::unsupported("the store cannot list its keys"))?;
        let mut keys = Vec::new();
        for (number, (path, _)) in arrays.iter().enumerate() {
            let (from, to) = self.hierarchy.places_of_values(aside, number, path)?;
            for key in list.list_prefix(&from)? {
                let key = key?;
                let own = to.key(key.as_str().strip_prefix(from.as_str()).unwrap_or_default())?;
                keys.push((key, own));
            }
        }
        Ok((planned, keys))
    }

    /// Returns the steps that store the metadata file of a new node.
    fn steps_of_new(self, path: &NodePath, raised: &Raised) -> Result<Vec<DocumentStep>> {
        let text = self.hierarchy.text_to_store(path, raised)?;
        let documents = &self.hierarchy.documents;
        // The steps are done one by one, so its home does not matter.
        let place = (path, &Prefix::root());
        let planned = documents.plan(place, raised.key(), &text, Replaced::Absent)?;
        documents.check(&planned, self.since())?;
        Ok(planned.steps())
    }

    /// Returns the steps that edit the metadata file of a node. One that does not change is a step,
    /// too: it shows which array the values are for.
    fn steps_of_edit(self, path: &NodePath, edit: &Edit) -> Result<Vec<DocumentStep>> {
        let node: Arc<Node> = self.existing(path)?;
        let documents = &self.hierarchy.documents;
        let Some(document) = node.document() else {
            let detail = "it has no metadata file, so its attributes cannot be stored";
            return Err(Error::invalid(detail));
        };
        let text = documents.whole_text(document)?;
        let edited = self.hierarchy.dialect().edit(node.kind(), &text, edit).at(&document.key)?;
        let home = self.home_of_document(path)?;
        let place = (path, &home);
        let planned: Planned =
            documents.plan(place, &document.key, &edited, Replaced::Unchanged(document))?;
        documents.check(&planned, self.since())?;
        let mut steps = planned.steps();
        if steps.iter().all(|step| step.key != document.key) {
            let own = documents.text_at(&document.key)?;
            steps.push(DocumentStep { key: document.key.clone(), old: own.clone(), new: own });
        }
        Ok(steps)
    }
}

/// The key of a value aside, and its own key.
type KeyAside = (Key, Key);

/// A node, and how its metadata files change.
type StepsOfNode = (NodePath, Vec<DocumentStep>);

impl super::nodes::Hierarchy {
    /// Finishes changes of the array at `path` that failed before.
    pub(super) fn finish_values(&self, path: &NodePath) -> Result<()> {
        // If the array is another one by now, its new values are dropped, as by the next mount.
        let settle = |values: &ReplacedValues, aside: &Aside| {
            self.recovery().settle_values(values, aside).map_err(|error| {
                let detail = format!(
                    "new values of the array are not stored yet, and nothing else can change before: \
                     {}",
                    error.detail()
                );
                Error::new(error.kind(), detail).at(path)
            })?;
            self.changes().drop_aside(aside);
            Ok(())
        };
        self.unfinished.finish(&|array| array == path, settle)
    }

    /// Finishes such changes of arrays at and below `path` before it is moved or removed: another
    /// array may get its path. Values that cannot be stored even now are dropped.
    pub(super) fn end_values_below(&self, path: &NodePath) -> Result<()> {
        let is_below = |array: &NodePath| array.relative_to(path).is_some();
        self.unfinished.finish(&is_below, |values, aside| {
            if let Err(error) = self.recovery().settle_values(values, aside) {
                log::warn!("{path}: new values are dropped with it: {}", error.detail());
            }
            self.changes().drop_aside(aside);
            Ok(())
        })
    }

    /// Returns the prefixes of the new values of an array aside, and of its chunks.
    fn places_of_values(
        &self,
        aside: &Aside,
        number: usize,
        path: &NodePath,
    ) -> Result<(Prefix, Prefix)> {
        Ok((values_of(aside, number)?, self.dialect_of(path).chunk_prefix(path)?))
    }
}

impl Recovery<'_> {
    /// Gives new values their keys, and then changes the metadata files. May be repeated.
    pub(super) fn settle_values(self, values: &ReplacedValues, aside: &Aside) -> Result<Outcome> {
        let ReplacedValues { path, arrays, nodes, steps } = values;
        self.check_steps(nodes, steps)?;
        let above = if self.is_made(path, steps)? { path.parent() } else { None };
        if let Some(above) = &above
            && self.hierarchy.node(above)?.is_none()
        {
            // Another program has removed the group that the new nodes belong to.
            return Ok(Outcome::Conflict);
        }
        for array in arrays {
            if !self.is_array_of(array, steps)? {
                return Ok(Outcome::Conflict);
            }
        }
        let store = self.hierarchy.store();
        let list = store.list().ok_or_else(|| Error::unsupported("the store cannot list"))?;
        for (number, array) in arrays.iter().enumerate() {
            let (from, to) = self.hierarchy.places_of_values(aside, number, array)?;
            // If another program has moved the array, its directory is not made again.
            let home = self.hierarchy.changes().home_of(above.as_ref().unwrap_or(array))?;
            let store = store.in_directory(&home);
            let write = store.write()?;
            list.forget_below(&from);
            for key in list.list_prefix(&from)?.collect::<Result<Vec<Key>>>()? {
                let own = to.key(key.as_str().strip_prefix(from.as_str()).unwrap_or_default())?;
                write.move_value(&key, &own)?;
            }
            // Not a move: programs that have it open go on.
            self.hierarchy.invalidate(array);
        }
        for DocumentStep { key, old, new } in steps {
            if old != new {
                self.hierarchy.documents.replace_step(key, old.as_deref(), new.as_deref())?;
            }
        }
        for node in nodes {
            self.hierarchy.invalidate(node);
            self.hierarchy.forget_unstored(node);
        }
        // The copies of what is below a new node are rebuilt with it.
        let changed = nodes.iter().filter(|node| above.is_none() || *node == path);
        for node in changed {
            match self.hierarchy.copies().rebuild_copies(node) {
                // It would fail each time.
                Err(error) if is_permanent(error.kind()) => leave_copies(node, &error),
                rebuilt => rebuilt?,
            }
        }
        Ok(Outcome::Finished)
    }

    /// Whether steps make the node at `path`.
    fn is_made(self, path: &NodePath, steps: &[DocumentStep]) -> Result<bool> {
        let keys = self.hierarchy.dialect().document_keys(path)?;
        let is_own = |step: &DocumentStep| keys.iter().any(|(_, key)| *key == step.key);
        Ok(steps.iter().any(|step| step.old.is_none() && is_own(step)))
    }

    /// Whether the array at `path` is still that of its steps: other attributes do not matter.
    fn is_array_of(self, path: &NodePath, steps: &[DocumentStep]) -> Result<bool> {
        let key = self.hierarchy.documents.key_of(path, NodeKind::Array)?;
        let Some(step) = steps.iter().find(|step| step.key == key) else { return Ok(false) };
        let now = self.hierarchy.documents.text_at(&key)?;
        if is_same(now.as_deref(), step.old.as_deref())
            || is_same(now.as_deref(), step.new.as_deref())
        {
            return Ok(true);
        }
        let model = |text: &Option<String>| {
            let lowered =
                self.hierarchy.dialect().lower(Some(NodeKind::Array), text.as_ref()?.as_bytes());
            match lowered.node {
                Ok(NodeMetadata::Array(array)) => Some(array),
                _ => None,
            }
        };
        let both = model(&now).zip(model(&step.old));
        Ok(both.is_some_and(|(now, old)| now.means_same(&old) && now.shape == old.shape))
    }
}
