//! A new file whose values are encoded, and wait to be stored.

use std::sync::Arc;

use super::attributes::edits_of;
use super::file::{ArrayPair, FileNodes, in_variable};
use super::place::RewrittenView;
use super::values::ValuesAside;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::hierarchy::{Hierarchy, NewValues, Node};
use crate::metadata::NodePath;
use crate::metadata::merge::Edit;
use crate::store::unnamed::UnnamedFile;
use crate::store::{Aside, Key};
use crate::view::ElementRange;

/// A new file whose values are encoded aside. Values that were not stored are
/// removed when it is dropped.
#[derive(Debug)]
pub struct EncodedFile<'h> {
    hierarchy: &'h Hierarchy,
    path: NodePath,
    aside: Option<Aside>,
    /// The arrays with new values.
    arrays: Vec<(NodePath, Arc<Array>)>,
    /// The changes of attributes.
    edits: Vec<(NodePath, Edit)>,
}

/// Whether zarrfs reads files of the format of a view, so that a new one can replace it.
pub fn can_read(view: RewrittenView<'_>) -> bool {
    let opened = FileNodes::of_view(view);
    opened.inspect_err(|error| log::debug!("{}: {error}", view.path)).is_ok()
}

/// Compares a new file with the view that it replaces, and encodes its values aside. Nothing has
/// changed yet.
pub fn encode<'h>(
    hierarchy: &'h Hierarchy,
    view: RewrittenView<'_>,
    file: &UnnamedFile,
) -> Result<EncodedFile<'h>> {
    let new = FileNodes::open(file, view.format)?;
    let old = FileNodes::of_view(view)?;
    if !new.is_of_same_kind(&old) {
        return Err(Error::invalid("the new file has another format than this one"));
    }
    let target_of = |node: &Node| target_of(view, &old, node);
    let is_header = |node: &Node| {
        let has_chunks = node.array().is_some_and(|array| array.grid().all().next().is_some());
        has_chunks && target_of(node).is_none()
    };
    let pairs = old.pairs_with(&new, &is_header)?;
    let target = |pair: &ArrayPair| target_of(&pair.old);
    let edits = edits_of(view, (&old, &new), &pairs, &target)?;
    let aside = hierarchy.changes().aside()?;
    let mut encoded = EncodedFile {
        hierarchy,
        path: view.path.clone(),
        aside: Some(aside.clone()),
        arrays: Vec::new(),
        edits,
    };
    let mut values = ValuesAside::new(view, &old, &aside);
    for pair in &pairs {
        let put = values.put(pair, target(pair).as_ref());
        put.map_err(|error| in_variable(&pair.name, &error))?;
    }
    encoded.arrays = values.finish()?;
    new.check_seen()?;
    Ok(encoded)
}

impl EncodedFile<'_> {
    /// Returns the arrays that get new values, as they were when these were encoded.
    pub fn arrays(&self) -> &[(NodePath, Arc<Array>)] {
        &self.arrays
    }

    /// Stores the new values and attributes, all or none of them, for a caller that prevents moves.
    /// Returns the keys of the values.
    pub fn store(&mut self) -> Result<Vec<Key>> {
        if self.arrays.is_empty() && self.edits.is_empty() {
            return Ok(Vec::new());
        }
        let Some(aside) = self.aside.take() else { return Ok(Vec::new()) };
        let (arrays, edits) = (&self.arrays, &self.edits);
        let new = NewValues { aside: &aside, arrays, edits, made: &[] };
        self.hierarchy.changes().put_new_values(&self.path, new)
    }
}

impl Drop for EncodedFile<'_> {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            self.hierarchy.changes().drop_aside(aside);
        }
    }
}

/// Returns the elements that the array of a view as a file stands for; `None` if they are in its
/// header, or if it has none.
fn target_of(view: RewrittenView<'_>, old: &FileNodes, node: &Node) -> Option<ElementRange> {
    let array = node.array()?;
    let first = array.grid().all().next()?;
    let (offset, _) = old.part_of(array, &first).ok().flatten()?;
    view.view.elements_at(offset).map(|(elements, _)| elements.clone())
}
