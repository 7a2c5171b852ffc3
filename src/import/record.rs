//! The record of an import that goes on: a value at the root of the target, which is removed at the
//! end. Only one process at a time holds it ([`Hold`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::part::values_of;
use super::plan::ImportPlan;
use crate::array::assembled::ElementBox;
use crate::array::{Array, Coords, FillChunks, Grid};
use crate::convert::hold::{Held, Hold};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::{Document, Hierarchy};
use crate::metadata::NodePath;
use crate::metadata::merge::Edit;
use crate::store::{Condition, Key};

/// The key of the record. No dialect has nodes or chunks there.
const KEY: &str = ".zarrfs/import";

/// The state in which an import that was interrupted has left the hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// There was none.
    New,
    /// The same import: what it has stored stays.
    Same,
    /// The same import had stored everything but some shapes, which are set now. Nothing is left
    /// to do.
    Completed,
}

/// The hold of this process on the record of the hierarchy.
#[derive(Debug)]
pub struct ImportRecord<'s> {
    hold: Hold<'s>,
    claim: Value,
    continues: bool,
    /// Whether some shapes may be set.
    sets_shapes: AtomicBool,
}

/// The arrays of an import, with their shapes before and after it.
type Shapes = Vec<(NodePath, Vec<u64>, Vec<u64>)>;

impl<'s> ImportRecord<'s> {
    /// Takes the record of a hierarchy for the import that `claim` describes. Completes one that
    /// was interrupted between two shapes, and removes what another one has left outside of the
    /// shapes.
    pub fn take(dest: &'s Hierarchy, claim: &Value) -> Result<(Self, Started)> {
        let hold = Hold::new(dest.store(), KEY)?;
        let started = hold.take(|| Self::start(&hold, dest, claim))?;
        let continues = started == Started::Same;
        let sets_shapes = AtomicBool::new(false);
        Ok((Self { hold, claim: claim.clone(), continues, sets_shapes }, started))
    }

    fn start(hold: &Hold<'_>, dest: &Hierarchy, claim: &Value) -> Result<Option<Started>> {
        // While this process holds these places, no other process cleans up in them.
        let abandoned = dest.store().write()?.abandoned()?;
        let Some(found) = hold.found()? else {
            let put = hold.put(json!({ "claim": claim, "stage": "values" }), Condition::Absent)?;
            return Ok(put.map(|_| Started::New));
        };
        if hold.is_of_another(&found, &abandoned)? {
            let detail = "another import is writing here: wait until it has finished";
            return Err(Error::new(Kind::Busy, detail));
        }
        // This process takes the record over, and keeps what it says.
        let unchanged = Condition::Unchanged(found.stat.version);
        if hold.put(found.members.clone(), unchanged)?.is_none() {
            return Ok(None);
        }
        let shapes = shapes_in(&found)?;
        let is_same = found.members.get("claim") == Some(claim);
        if found.text("stage") == Some("shapes") {
            set(dest, &shapes)?;
            hold.put(json!({ "claim": claim, "stage": "values" }), Condition::Always)?;
            return Ok(Some(if is_same { Started::Completed } else { Started::New }));
        }
        if is_same && are_as_before(dest, &shapes)? {
            return Ok(Some(Started::Same));
        }
        erase_all_outside(dest, &shapes)?;
        hold.put(json!({ "claim": claim, "stage": "values" }), Condition::Always)?;
        Ok(Some(Started::New))
    }

    /// Whether values outside of the shapes are those of this import, which was interrupted.
    pub fn continues(&self) -> bool {
        self.continues
    }

    /// Whether some arrays may have their new shapes, and others not.
    pub fn is_setting_shapes(&self) -> bool {
        self.sets_shapes.load(Ordering::Relaxed)
    }

    /// Notes which arrays get which shapes, before anything is stored outside of them.
    pub fn note(&self, plan: &ImportPlan) -> Result<()> {
        self.put("values", plan)
    }

    fn put(&self, stage: &str, plan: &ImportPlan) -> Result<()> {
        let arrays = plan.arrays.iter().filter(|import| import.grows()).map(|import| {
            let (from, to) = (&import.now.model().shape, &import.grown.model().shape);
            json!({ "path": import.path.as_str(), "from": from, "to": to })
        });
        let arrays: Vec<Value> = arrays.collect();
        let members = json!({ "claim": self.claim, "stage": stage, "arrays": arrays });
        self.hold.put(members, Condition::Always)?;
        self.hold.sync()
    }

    /// Sets the shapes: from now on programs see what was appended.
    pub(super) fn set_shapes(&self, dest: &Hierarchy, plan: &ImportPlan) -> Result<()> {
        let grown: Vec<_> = plan.arrays.iter().filter(|import| import.grows()).collect();
        if grown.is_empty() {
            return Ok(());
        }
        let since = Instant::now();
        for import in &grown {
            // Fails before the first one is set if another program has changed one.
            let shape = &import.grown.model().shape;
            dest.array_that_gets(&import.path, &import.now, shape, since).map(drop)?;
        }
        self.put("shapes", plan)?;
        self.sets_shapes.store(true, Ordering::Relaxed);
        let shapes: Shapes = grown
            .iter()
            .map(|import| {
                let shape = |array: &Array| array.model().shape.clone();
                (import.path.clone(), shape(&import.now), shape(&import.grown))
            })
            .collect();
        set(dest, &shapes)
    }

    /// Whether a record says that an import with this claim was interrupted.
    pub fn is_of(dest: &Hierarchy, claim: &Value) -> Result<bool> {
        let found = dest.store().get(&Key::parse(KEY)?, crate::json::max_text_len())?;
        let members = found.and_then(|found| serde_json::from_slice::<Value>(&found.bytes).ok());
        Ok(members.is_some_and(|members| members.get("claim") == Some(claim)))
    }

    /// Erases what was stored outside of the shapes, and the record, because the import has failed.
    pub fn give_up(self, dest: &Hierarchy) -> Result<()> {
        if let Some(found) = self.hold.found()?
            && found.text("stage") != Some("shapes")
        {
            erase_all_outside(dest, &shapes_in(&found)?)?;
            return self.remove();
        }
        Ok(())
    }

    /// Removes the record, since the import is complete or has stored nothing.
    pub fn remove(self) -> Result<()> {
        self.hold.erase()?;
        self.hold.sync()
    }
}

/// Sets the shapes that are not set yet.
fn set(dest: &Hierarchy, shapes: &Shapes) -> Result<()> {
    let mut keys = Vec::new();
    for (path, from, to) in shapes {
        let node = dest.changes().existing(path)?;
        let Some(array) = node.array() else { continue };
        if array.model().shape == *from {
            let edit =
                Edit { shape: Some(to.clone()), shape_before: from.clone(), ..Edit::default() };
            dest.changes().edit(path, &edit).at(path)?;
            dest.invalidate(path);
            keys.extend(dest.existing(path)?.stored().map(Document::keys).unwrap_or_default());
        }
    }
    dest.store().write()?.sync(&keys)
}

/// Returns the arrays of a record.
fn shapes_in(found: &Held) -> Result<Shapes> {
    let arrays = found.members.get("arrays").and_then(Value::as_array);
    let lens = |array: &Value, name: &str| -> Option<Vec<u64>> {
        array.get(name)?.as_array()?.iter().map(Value::as_u64).collect()
    };
    let one = |array: &Value| {
        let path = NodePath::parse(array.get("path")?.as_str()?).ok()?;
        Some((path, lens(array, "from")?, lens(array, "to")?))
    };
    let shapes: Option<Shapes> = arrays.into_iter().flatten().map(one).collect();
    shapes.ok_or_else(|| {
        Error::corrupt(
            "the record of an interrupted import is damaged: if no import is running, remove this \
                          file, and run the import again",
        )
        .at(KEY)
    })
}

/// Whether all arrays have the shapes that they had when the import began.
fn are_as_before(dest: &Hierarchy, shapes: &Shapes) -> Result<bool> {
    for (path, from, _) in shapes {
        let node = dest.changes().node(path)?;
        let array = node.as_ref().and_then(|node| node.array());
        if array.is_none_or(|array| array.model().shape != *from) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn erase_all_outside(dest: &Hierarchy, shapes: &Shapes) -> Result<()> {
    shapes.iter().try_for_each(|(path, _, to)| erase_outside(dest, path, to).at(path))
}

/// Erases the chunks that lie outside of an array and inside of the shape that it did not get.
fn erase_outside(dest: &Hierarchy, path: &NodePath, to: &[u64]) -> Result<()> {
    let Some(node) = dest.changes().node(path)? else { return Ok(()) };
    let Some(array) = node.array().filter(|array| array.model().shape.len() == to.len()) else {
        return Ok(());
    };
    let now = ElementBox::whole(&array.model().shape);
    let grown = array.with_shape(to.to_vec())?;
    let grid = values_of(&grown);
    let is_outside = |grid: &Grid, coords: &Coords| -> Result<bool> {
        Ok(ElementBox::of_spans(&grid.spans(coords)?).intersection(&now).is_none())
    };
    let mut keys: Vec<Key> = Vec::new();
    for unit in grid.overlapping(&ElementBox::whole(to)) {
        let (start, extent) = grown.chunks_in(&unit)?;
        if is_outside(grid, &unit)? {
            keys.push(grown.key(&Coords::new(start))?);
            continue;
        }
        // Inner chunks of a shard that has others.
        let mut inner = Vec::new();
        for coords in (ElementBox { start, extent }).places() {
            if grown.grid().contains(&coords) && is_outside(grown.grid(), &coords)? {
                inner.push((coords, None));
            }
        }
        if !inner.is_empty() {
            let current = dest.array_that_gets(path, array, to, Instant::now())?;
            current.write_chunks(inner, FillChunks::Store)?;
        }
    }
    dest.store().write()?.erase_values(&keys)
}
