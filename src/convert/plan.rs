//! What every node of a hierarchy becomes in another one, found out before anything is stored.

use std::collections::HashSet;
use std::sync::Arc;

use super::Wishes;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::hierarchy::{Bounds, Content, Hierarchy, Node, Raised, Wanted};
use crate::metadata::wanted::{self, with_chunks};
use crate::metadata::{Dialect, NodePath, Policy, Shards, shown};
use crate::resources;

/// A node that is to be made.
#[derive(Debug)]
pub struct Job {
    /// Where.
    pub path: NodePath,
    /// Its document, and what that describes.
    pub raised: Raised,
    /// Whether the group is to have consolidated metadata.
    pub consolidated: bool,
    /// Of an array its chunks.
    pub chunks: Option<Chunks>,
}

/// The chunks of an array, and those that they become.
#[derive(Debug)]
pub struct Chunks {
    pub(super) source: Arc<Array>,
    pub(super) dest: Arc<Array>,
    pub(super) form: Form,
}

/// What becomes of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The same encoded bytes.
    Encoded,
    /// The same elements, encoded anew.
    Decoded,
    /// Its elements go into chunks of another shape.
    Regridded,
}

impl Chunks {
    /// What becomes of them, in words.
    pub fn described(&self) -> &'static str {
        match self.form {
            Form::Encoded => "chunks copied as they are",
            Form::Decoded => "chunks encoded anew",
            Form::Regridded => "chunks of another shape",
        }
    }
}

/// What is to be made.
#[derive(Debug, Default)]
pub struct Plan {
    jobs: Vec<Job>,
    /// What the target cannot hold, and why; of a group all below it.
    pub unsupported: Vec<(NodePath, Error)>,
    /// Names in lower case, where those that differ in case alone cannot stand beside one another.
    folded: HashSet<String>,
    /// The memory that the jobs take, about.
    memory_len: usize,
}

impl Plan {
    /// Every node, groups before what is in them.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Refuses what would take too much memory: nodes may be as many as links show.
    fn check_len(&self) -> Result<()> {
        let limit = resources::memory_limit() / 2;
        if u64::try_from(self.memory_len).unwrap_or(u64::MAX) <= limit {
            return Ok(());
        }
        let count = self.jobs.len();
        Err(Error::too_large(format!(
            "the metadata of more than {count} nodes take more than {limit} bytes of memory: convert parts of it \
             with --only"
        )))
    }

    /// Every array.
    pub fn arrays(&self) -> impl Iterator<Item = (&NodePath, &Chunks)> {
        self.jobs.iter().filter_map(|job| Some((&job.path, job.chunks.as_ref()?)))
    }
}

/// What becomes of the node `from` of `source`, which is to be the root of `dest`, and of all below it.
pub fn plan(
    source: &Hierarchy,
    from: &NodePath,
    dest: &Hierarchy,
    wishes: &Wishes,
) -> Result<Plan> {
    let mut plan = Plan::default();
    for only in &wishes.only {
        source.existing(&from.join(only.as_str())?)?;
    }
    let planner = Planner { source, dest, wishes };
    let mut walk = source.walk_below(from, Bounds::STREAM);
    let top = source.existing(from)?;
    let mut next = Some(Ok(top));
    while let Some(node) = next {
        let node = node?;
        let path = NodePath::root().join(node.path().relative_to(from).unwrap_or_default())?;
        if planner.node(&node, &path, &mut plan) == Below::Unwanted {
            walk.skip_below();
        }
        plan.check_len()?;
        next = walk.next();
    }
    Ok(plan)
}

/// Whether what is below a node is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    Wanted,
    Unwanted,
}

struct Planner<'h> {
    source: &'h Hierarchy,
    dest: &'h Hierarchy,
    wishes: &'h Wishes,
}

impl Planner<'_> {
    fn node(&self, node: &Node, path: &NodePath, plan: &mut Plan) -> Below {
        if !self.is_wanted(path) {
            return Below::Unwanted;
        }
        let job = self.check_name(path, plan).and_then(|()| self.job(node, path));
        // zarr-python 2 opens no draft whose root has no document.
        let is_implicit = node.document().is_none()
            && !path.is_root()
            && !self.dest.dialect().wants_group_documents();
        match job {
            Ok(job) if is_implicit && job.chunks.is_none() => {}
            Ok(job) => plan.jobs.push(job),
            Err(error) => {
                plan.unsupported.push((path.clone(), error));
                return Below::Unwanted;
            }
        }
        // What it is here, and what it becomes.
        plan.memory_len = plan.memory_len.saturating_add(node.memory_len().saturating_mul(2));
        Below::Wanted
    }

    fn is_wanted(&self, path: &NodePath) -> bool {
        let related =
            |only: &NodePath| path.relative_to(only).is_some() || only.relative_to(path).is_some();
        self.wishes.only.is_empty() || self.wishes.only.iter().any(related)
    }

    fn check_name(&self, path: &NodePath, plan: &mut Plan) -> Result<()> {
        let Some(name) = path.name() else { return Ok(()) };
        let dialect = self.dest.dialect();
        dialect.check_name(name)?;
        if dialect.folds_case() && !plan.folded.insert(path.as_str().to_lowercase()) {
            return Err(Error::invalid(format!(
                "{name:?}: {} allows no names that differ in case alone",
                dialect.name()
            )));
        }
        Ok(())
    }

    fn job(&self, node: &Node, path: &NodePath) -> Result<Job> {
        let path = path.clone();
        match node.content() {
            Content::NotUnderstood(_, error) => Err(error.clone()),
            Content::Group(group) => {
                let consolidated = self.source.shows_consolidated(node)?;
                let group = in_words_of(node, &shown::group(group, None))?;
                let raised = self.dest.raise(&path, group.as_bytes())?;
                Ok(Job { path, raised, consolidated, chunks: None })
            }
            Content::Array(array) => {
                if let Some(error) = array.not_understood() {
                    return Err(error.clone());
                }
                let (raised, chunks) = self.array(node, array, &path)?;
                Ok(Job { path, raised, consolidated: false, chunks: Some(chunks) })
            }
        }
    }

    fn array(&self, node: &Node, source: &Arc<Array>, path: &NodePath) -> Result<(Raised, Chunks)> {
        let rank = source.model().shape.len();
        let mut text = in_words_of(node, &self.source.shown(node, Wanted::Text)?)?;
        let chunk_shape = self.wishes.chunk_shape.as_ref().filter(|shape| shape.len() == rank);
        if let Some(chunk_shape) = chunk_shape
            && (chunk_shape != source.chunk_shape() || source.model().rectilinear.is_some())
        {
            if source.model().rectilinear.is_some() || source.model().dtype.is_variable() {
                return Err(Error::invalid(
                    "chunks of different lengths, or of elements of different lengths, cannot be given \
                     another shape: leave --chunks out",
                ));
            }
            text = with_chunks(&text, chunk_shape)?;
        }
        let mut last = None;
        for policy in self.policies(source) {
            let raised = match self.dest.raise_with(path, text.as_bytes(), &policy) {
                Ok(raised) => raised,
                Err(error) => {
                    last = Some(error);
                    continue;
                }
            };
            let Some(dest) = raised.array().map(Arc::clone) else { continue };
            let form = form(source, &dest);
            // Values that have been through a codec that loses something once may lose more.
            if form == Form::Encoded || !dest.is_lossy() || self.wishes.codecs.is_some() {
                return Ok((raised, Chunks { source: Arc::clone(source), dest, form }));
            }
        }
        Err(last.unwrap_or_else(|| Error::invalid("no codecs of the target keep its values")))
    }

    /// How it may be stored, the best first.
    fn policies(&self, source: &Array) -> Vec<Policy> {
        let shards = match &self.wishes.shards {
            Some(shards) => vec![shards.clone()],
            None if source.chunk_shape() == source.model().chunk_shape => vec![Shards::None],
            None => vec![Shards::Shape(source.model().chunk_shape.clone()), Shards::None],
        };
        let mut chains = wanted::codecs_like(source.model());
        if *self.dest.dialect() == Dialect::V3 {
            chains.retain(|chain| wanted::is_widely_read(chain));
        }
        if let Some(codecs) = &self.wishes.codecs {
            chains = vec![codecs.clone()];
        }
        let with = |shards: &Shards| {
            let shards = shards.clone();
            chains.clone().into_iter().map(move |codecs| Policy { codecs, shards: shards.clone() })
        };
        shards.iter().flat_map(with).collect()
    }
}

/// The document shown of a node, with its attributes as they are stored.
fn in_words_of(node: &Node, shown: &str) -> Result<String> {
    match node.document() {
        Some(document) => wanted::with_stored_attributes(shown, &document.text),
        None => Ok(shown.to_owned()),
    }
}

/// What becomes of the chunks of an array in another.
fn form(source: &Array, dest: &Array) -> Form {
    let (old, new) = (source.model(), dest.model());
    if source.chunk_shape() != dest.chunk_shape() {
        return Form::Regridded;
    }
    let is_same = old.dtype == new.dtype
        && old.rectilinear == new.rectilinear
        && wanted::same_encoding(old, new);
    if is_same { Form::Encoded } else { Form::Decoded }
}
