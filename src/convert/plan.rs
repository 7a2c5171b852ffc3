//! Plans the conversion of every node of a hierarchy before anything is stored.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use super::watch::stopped;
use crate::array::{Array, FillChunks, Grid};
use crate::codec::CodecSpec;
use crate::dtype::FillValue;
use crate::error::{Error, Kind, Result, Word};
use crate::hierarchy::{Bounds, Content, Hierarchy, Node, Raised, TextPurpose};
use crate::json::parse_object;
use crate::metadata::model;
use crate::metadata::ome::OmeVersion;
use crate::metadata::wanted::{self, with_chunks, without_names};
use crate::metadata::{Dialect, FILL, NodeKind, NodePath, Policy, Shards, masked_value, shown};
use crate::resources;
use crate::store::{Key, Store};
use crate::width::ToU64;

/// The requested properties of a copy.
#[derive(Debug, Clone, Default)]
pub struct Requested {
    /// The codecs of chunks; by default those of the source, if the target has them.
    pub codecs: Option<Vec<CodecSpec>>,
    /// The chunk shape for arrays with as many dimensions; by default that of the source.
    pub chunk_shape: Option<Vec<u64>>,
    /// The chunks to store together; by default those of the source, if the target has shards.
    pub shards: Option<Shards>,
    /// The nodes to copy, with all nodes below and the groups above them; an empty list means all
    /// nodes.
    pub only: Vec<NodePath>,
    /// The version of OME-Zarr metadata; by default that of the source, or the one of Zarr 2.
    pub ome: Option<OmeVersion>,
}

/// A node to create.
#[derive(Debug)]
pub struct Job {
    /// Its path.
    pub path: NodePath,
    /// Its metadata file and the node that this describes.
    pub raised: Raised,
    /// Whether the group gets consolidated metadata.
    pub consolidated: bool,
    /// The chunks of an array.
    pub chunks: Option<ChunkPlan>,
    /// The attribute `_FillValue` of an array of Zarr 2 that the copy does not have.
    pub unused_fill: Option<Value>,
    /// Why its OME-Zarr metadata stay in their version, if another was asked for.
    pub kept_ome: Option<&'static str>,
}

impl Job {
    /// Returns its path if it has OME-Zarr metadata of a version that belongs to another version of
    /// Zarr than that of the target.
    pub fn other_ome(&self, dest: &Hierarchy) -> Option<&NodePath> {
        let is_group = self.chunks.is_none();
        (is_group && dest.dialect().has_other_ome(self.raised.text())).then_some(&self.path)
    }
}

/// The chunks of an array and of its copy.
#[derive(Debug)]
pub struct ChunkPlan {
    pub(super) source: Arc<Array>,
    pub(super) source_store: Store,
    pub(super) dest: Arc<Array>,
    /// The target with the fill value of the source.
    pub(super) filled: Arc<Array>,
    pub(super) form: ChunkConversion,
}

/// The conversion of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkConversion {
    /// The same encoded bytes.
    Encoded,
    /// The same elements, encoded again.
    Decoded,
    /// Its elements go into chunks of another shape.
    Regridded,
}

impl ChunkPlan {
    fn new(source: &Hierarchy, array: &Arc<Array>, dest: &Array, to: &Hierarchy) -> Result<Self> {
        // The metadata file is stored last, so the directory of the array may not be there yet.
        let open = |model: model::ArrayMetadata| {
            let prefix = dest.prefix().clone();
            Ok::<_, Error>(Arc::new(Array::open(model, to.store(), prefix, to.array_options())?))
        };
        let dest = open(dest.model().clone())?;
        let form = form(array, &dest);
        let filled = if has_fill_of(array, &dest) {
            Arc::clone(&dest)
        } else {
            let fill = FillValue::from_item(&fill_item(array));
            open(model::ArrayMetadata { fill, ..dest.model().clone() })?
        };
        let source_store = source.store().clone();
        Ok(Self { source: Arc::clone(array), source_store, dest, filled, form })
    }

    /// Returns these chunks for the same array at another place.
    pub(super) fn stored_in(&self, dest: Arc<Array>) -> Self {
        let (source, filled) = (Arc::clone(&self.source), Arc::clone(&self.filled));
        Self { source, source_store: self.source_store.clone(), dest, filled, form: self.form }
    }

    /// Returns these chunks for the array as a mount shows it.
    pub(super) fn shown_as(&self, shown: &Arc<Array>) -> Self {
        let form = form(&self.source, shown);
        let (source, dest) = (Arc::clone(&self.source), Arc::clone(shown));
        // The fill value was compared before.
        let filled = Arc::clone(&dest);
        Self { source, source_store: self.source_store.clone(), dest, filled, form }
    }

    /// Whether chunks that the source does not store must be stored in the target: because reading
    /// a missing chunk there would give another value, or because the target has no fill value and
    /// zarr-python 2 would read arbitrary values.
    pub fn needs_fill(&self, fill_chunks: FillChunks) -> bool {
        let is_undefined =
            self.source.model().fill.is_defined() && !self.dest.model().fill.is_defined();
        let wanted = fill_chunks == FillChunks::Store && is_undefined;
        self.source.grid().is_regular() && (wanted || !has_fill_of(&self.source, &self.dest))
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.source.model().shape.len()
    }

    /// Returns the most values in the target: shards if it has shards, otherwise chunks.
    pub fn count_all(&self) -> u64 {
        Grid::of(self.dest.model())
            .counts()
            .iter()
            .fold(1, |product: u64, count| product.saturating_mul(*count))
    }

    /// Estimates the number of values in the target for `stored` values of the source.
    pub fn expected(&self, stored: u64) -> u64 {
        let len = |shape: &[u64]| shape.iter().fold(1, |len: u64, n| len.saturating_mul(*n)).max(1);
        let (old, new) = (&self.source.model().chunk_shape, &self.dest.model().chunk_shape);
        let expected = u128::from(stored) * u128::from(len(old)) / u128::from(len(new));
        u64::try_from(expected).unwrap_or(u64::MAX).max(stored.min(1)).min(self.count_all())
    }

    /// Describes the conversion in words.
    pub fn described(&self) -> &'static str {
        match self.form {
            ChunkConversion::Encoded => "chunks copied as they are",
            ChunkConversion::Decoded => "chunks encoded again",
            ChunkConversion::Regridded => "chunk shape changed",
        }
    }
}

/// The nodes to create.
#[derive(Debug, Default)]
pub struct ConversionPlan {
    jobs: Vec<Job>,
    /// The nodes that the target cannot hold, with the reasons. A group stands for itself and all
    /// nodes below it.
    pub unsupported: Vec<(NodePath, Error)>,
    /// How many of these have metadata that are damaged, or that may not be read.
    pub broken: usize,
    /// The nodes that could not be read, with the reasons. Nothing is known of what lies below.
    pub unread: Vec<(NodePath, Error)>,
    /// Names in lower case, if names in the target must differ in more than case.
    folded: HashSet<String>,
    /// The files of the jobs, and the directories in which they lie.
    files: HashSet<String>,
    directories: HashSet<String>,
    /// The approximate memory of the jobs in bytes.
    memory_len: usize,
}

impl ConversionPlan {
    /// Returns every node, groups before their members.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Returns a string that changes with the nodes to create.
    pub fn digest(&self) -> String {
        let mut hasher = DefaultHasher::new();
        for job in &self.jobs {
            (job.path.as_str(), job.raised.text(), job.consolidated).hash(&mut hasher);
        }
        format!("{:016x}", hasher.finish())
    }

    /// Fails if the nodes of the source differ from those of `before`.
    pub fn check_unchanged(&self, before: &Self) -> Result<()> {
        let is_same = |(now, then): &(&Job, &Job)| {
            (&now.path, now.raised.text(), now.consolidated)
                == (&then.path, then.raised.text(), then.consolidated)
        };
        match self.jobs.iter().zip(&before.jobs).find(|pair| !is_same(pair)) {
            None if self.jobs.len() == before.jobs.len() => Ok(()),
            found => {
                let place = found.map_or_else(String::new, |(now, _)| format!(" at {}", now.path));
                let detail =
                    format!("the metadata of the source changed{place} while it was converted");
                Err(Error::new(Kind::Stale, detail))
            }
        }
    }

    /// Fails if the plan takes too much memory: links may show any number of nodes.
    fn check_len(&self) -> Result<()> {
        let limit = resources::memory_limit() / 2;
        if self.memory_len.to_u64() <= limit {
            return Ok(());
        }
        let count = self.jobs.len();
        Err(Error::too_large(format!(
            "the metadata of more than {count} nodes take more than {limit} bytes of memory: convert parts of it \
             with --only"
        )))
    }

    /// Returns every array.
    pub fn arrays(&self) -> impl Iterator<Item = (&NodePath, &ChunkPlan)> {
        self.jobs.iter().filter_map(|job| Some((&job.path, job.chunks.as_ref()?)))
    }
}

/// Plans the conversion of the node `from` of `source` and of all nodes below it to the node `to`
/// of `dest`. Calls `is_stopped` at each node.
pub fn plan(
    (source, from): (&Hierarchy, &NodePath),
    (dest, to): (&Hierarchy, &NodePath),
    requested: &Requested,
    is_stopped: &dyn Fn() -> bool,
) -> Result<ConversionPlan> {
    let mut plan = ConversionPlan::default();
    let root = source.existing(from)?;
    for only in requested.only.iter().filter(|only| !only.is_root()) {
        if root.kind() == NodeKind::Array {
            return Err(Error::invalid(format!(
                "--only {only}: the source is an array, which has no nodes below it: leave --only out"
            )));
        }
        check_is_node(source, from, only)?;
    }
    let room = dest.store().read().room()?;
    let most_name_len = room.and_then(|room| usize::try_from(room.name_max).ok());
    let most_name_len = most_name_len.filter(|most| *most > 0);
    let planner = Planner { source, dest, to, requested, most_name_len };
    let mut walk = source.walk_below(from, Bounds::stream());
    let mut next: Option<Result<Arc<Node>>> = Some(Ok(root));
    while let Some(node) = next {
        let path = to.join(walk.at().relative_to(from).unwrap_or_default())?;
        match node {
            Ok(node) if planner.node(&node, &path, &mut plan) == VisitBelow::Unwanted => {
                walk.skip_below();
            }
            Err(error) if error.kind() == Kind::TooLarge => return Err(error),
            Err(error) if planner.is_wanted(&path) => plan.unread.push((path, error)),
            Ok(_) | Err(_) => {}
        }
        plan.check_len()?;
        if is_stopped() {
            return Err(stopped());
        }
        next = walk.next();
    }
    Ok(plan)
}

/// Fails for a path that is not a node: there may be directories below an array, but no nodes.
fn check_is_node(source: &Hierarchy, from: &NodePath, only: &NodePath) -> Result<()> {
    let path = from.join(only.as_str())?;
    let is_array = |above: NodePath| -> Result<bool> {
        Ok(source.node(&above)?.is_some_and(|node| node.kind() == NodeKind::Array))
    };
    let mut is_node = source.node(&path)?.is_some_and(|node| !node.is_bare());
    for above in path.ancestors() {
        is_node = is_node && !is_array(above)?;
    }
    if is_node {
        return Ok(());
    }
    Err(Error::new(Kind::NotFound, format!("--only {only}: the source has no such node")))
}

/// Whether to visit nodes below a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VisitBelow {
    Wanted,
    Unwanted,
}

struct Planner<'h> {
    source: &'h Hierarchy,
    dest: &'h Hierarchy,
    to: &'h NodePath,
    requested: &'h Requested,
    /// The most bytes of the name of a file in the target, if it has a limit.
    most_name_len: Option<usize>,
}

/// Whether the metadata of a node could not be read, so that nobody knows whether it is supported.
fn is_unread(node: &Node) -> bool {
    let words = [Word::Refused, Word::Missing, Word::Failed];
    let is_refused = |content: &Content| matches!(content, Content::NotUnderstood(_, error) if words.contains(&error.word()));
    node.is_closed() || is_refused(node.content())
}

impl Planner<'_> {
    fn node(&self, node: &Node, path: &NodePath, plan: &mut ConversionPlan) -> VisitBelow {
        if !self.is_wanted(path) {
            return VisitBelow::Unwanted;
        }
        let job = self.check_name(path, plan).and_then(|()| self.job(node, path));
        // zarr-python 2 cannot open a draft whose root has no metadata file.
        let is_implicit = node.document().is_none()
            && path != self.to
            && !self.dest.dialect().wants_group_documents();
        match job {
            Ok(job) if is_implicit && job.chunks.is_none() => {}
            Ok(job) => plan.jobs.push(job),
            Err(error) if is_unread(node) || error.errno() == libc::EACCES => {
                plan.unread.push((path.clone(), error));
                return VisitBelow::Unwanted;
            }
            Err(error) => {
                let is_broken = matches!(node.content(), Content::NotUnderstood(_, cause)
                    if cause.word() != Word::Unsupported);
                plan.broken = plan.broken.saturating_add(usize::from(is_broken));
                plan.unsupported.push((path.clone(), error));
                return VisitBelow::Unwanted;
            }
        }
        // The node and its copy.
        plan.memory_len = plan.memory_len.saturating_add(node.memory_len().saturating_mul(2));
        VisitBelow::Wanted
    }

    fn is_wanted(&self, path: &NodePath) -> bool {
        let related = |only: &NodePath| {
            self.to.join(only.as_str()).is_ok_and(|only| {
                path.relative_to(&only).is_some() || only.relative_to(path).is_some()
            })
        };
        self.requested.only.is_empty() || self.requested.only.iter().any(related)
    }

    fn check_name(&self, path: &NodePath, plan: &mut ConversionPlan) -> Result<()> {
        let Some(name) = path.name() else { return Ok(()) };
        let dialect = self.dest.dialect();
        self.dest.check_can_hold(path)?;
        self.check_files(path, plan)?;
        if dialect.folds_case() && !plan.folded.insert(path.as_str().to_lowercase()) {
            return Err(Error::invalid(format!(
                "{name:?}: {} does not allow names that differ only in case",
                dialect.name()
            )));
        }
        Ok(())
    }

    /// Fails if a file of the node cannot lie in the target, by itself or beside those of others:
    /// in the drafts the metadata file of one node may have the name of the directory of another.
    fn check_files(&self, path: &NodePath, plan: &mut ConversionPlan) -> Result<()> {
        let dialect = self.dest.dialect();
        let documents = dialect.document_keys(path)?.into_iter().map(|(_, key)| key);
        let keys: Vec<Key> = documents.chain(dialect.attributes_key(path)?).collect();
        for key in &keys {
            self.check_len(key)?;
        }
        if dialect.has_one_tree() {
            return Ok(());
        }
        let mut directories = HashSet::new();
        for key in &keys {
            let mut above = key.parent();
            while let Some(directory) = above.as_key() {
                directories.insert(directory.as_str().to_owned());
                above = directory.parent();
            }
        }
        let taken = keys.iter().map(Key::as_str).find(|key| plan.directories.contains(*key));
        let taken = taken
            .or_else(|| directories.iter().map(String::as_str).find(|it| plan.files.contains(*it)));
        if let Some(taken) = taken {
            return Err(Error::invalid(format!(
                "{} needs {taken} both as a file and as a directory: another node has a name that \
                 ends like a metadata file",
                dialect.name()
            )));
        }
        plan.files.extend(keys.iter().map(|key| key.as_str().to_owned()));
        plan.directories.extend(directories);
        Ok(())
    }

    /// Fails if the name of a file is too long for the target.
    fn check_len(&self, key: &Key) -> Result<()> {
        let Some(most) = self.most_name_len else { return Ok(()) };
        match key.as_str().split('/').find(|name| name.len() > most) {
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!(
                "a file of it has a name of {} bytes, and the target allows {most}",
                name.len()
            ))),
        }
    }

    fn job(&self, node: &Node, path: &NodePath) -> Result<Job> {
        let path = path.clone();
        match node.content() {
            Content::NotUnderstood(_, error) => Err(error.clone()),
            Content::Group(group) => {
                let consolidated = self.source.copies().shows_consolidated(node)?;
                let is_v2 = *self.dest.dialect() == Dialect::V2;
                let ome = self.requested.ome.or(is_v2.then_some(OmeVersion::V0_4));
                let (group, kept_ome) = in_version(group, ome);
                let group = with_own_attributes(node, &shown::group(&group, None))?;
                let raised = self.dest.raise(&path, group.as_bytes())?;
                let (chunks, unused_fill) = (None, None);
                Ok(Job { path, raised, consolidated, chunks, unused_fill, kept_ome })
            }
            Content::Array(array) => {
                if let Some(error) = array.not_understood() {
                    return Err(error.clone());
                }
                let (raised, chunks) = self.array(node, array, &path)?;
                let unused_fill = unused_fill(node, array, &raised);
                let (consolidated, chunks, kept_ome) = (false, Some(chunks), None);
                Ok(Job { path, raised, consolidated, chunks, unused_fill, kept_ome })
            }
        }
    }

    fn array(
        &self,
        node: &Node,
        source: &Arc<Array>,
        path: &NodePath,
    ) -> Result<(Raised, ChunkPlan)> {
        let rank = source.model().shape.len();
        let mut text =
            with_own_attributes(node, &self.source.shown().text_of(node, TextPurpose::Text)?)?;
        text = wanted::with_registered_name(&text)?;
        let is_v2 = |dialect: &Dialect| *dialect == Dialect::V2;
        if is_v2(self.dest.dialect())
            && !is_v2(self.source.dialect_of(node.path()))
            && self.source.shown().axes_of(node.path())?.as_ref()
                == Some(&source.model().dimension_names)
        {
            // OME-Zarr 0.4 has them in the group alone.
            text = without_names(&text)?;
        }
        let chunk_shape = self.requested.chunk_shape.as_ref().filter(|shape| shape.len() == rank);
        if let Some(chunk_shape) = chunk_shape
            && (chunk_shape != source.chunk_shape() || !source.grid().is_regular())
        {
            if !source.grid().is_regular() || source.model().dtype.is_variable() {
                return Err(Error::invalid(
                    "the chunk shape of rectilinear grids and of variable-length elements cannot \
                     change: remove --chunks",
                ));
            }
            text = with_chunks(&text, chunk_shape)?;
        }
        let mut last = None;
        for policy in self.policies(source) {
            let raised = match self.dest.raise_for_all_chunks(path, text.as_bytes(), &policy) {
                Ok(raised) => raised,
                Err(error) => {
                    last = Some(error);
                    continue;
                }
            };
            let both = [self.source.dialect_of(node.path()), self.dest.dialect()];
            let raised = if both.into_iter().all(is_v2) {
                self.dest.with_stored_details(path, raised, node)?
            } else {
                raised
            };
            let Some(dest) = raised.array() else { continue };
            let chunks = ChunkPlan::new(self.source, source, dest, self.dest)?;
            // Encoding again with a lossy codec may change values that it encoded before.
            let is_lossy = chunks.form != ChunkConversion::Encoded && chunks.dest.is_lossy();
            if !is_lossy || self.requested.codecs.is_some() {
                return Ok((raised, chunks));
            }
        }
        Err(last.unwrap_or_else(|| {
            Error::invalid(
                "no codec of the target dialect preserves its \
                 values",
            )
        }))
    }

    /// Returns possible storage policies, the best first.
    fn policies(&self, source: &Array) -> Vec<Policy> {
        let shards = match &self.requested.shards {
            Some(shards) => vec![shards.clone()],
            None if !source.is_sharded() => vec![Shards::None],
            None => vec![source.shards(), Shards::None],
        };
        let mut chains = wanted::codecs_like(source.model());
        if *self.dest.dialect() == Dialect::V3 {
            chains.retain(|chain| wanted::is_widely_read(chain));
        }
        if let Some(codecs) = &self.requested.codecs {
            chains = vec![codecs.clone()];
        }
        let with = |shards: &Shards| {
            let shards = shards.clone();
            chains.clone().into_iter().map(move |codecs| Policy { codecs, shards: shards.clone() })
        };
        shards.iter().flat_map(with).collect()
    }
}

/// Returns a group with its OME-Zarr metadata in a version, or why they stay as they are.
fn in_version(
    group: &model::Group,
    ome: Option<OmeVersion>,
) -> (model::Group, Option<&'static str>) {
    let mut group = group.clone();
    let kept = match ome.and_then(|ome| ome.translate(&group.attributes)) {
        Some(Ok(attributes)) => {
            group.attributes = attributes;
            None
        }
        Some(Err(why)) => Some(why),
        None => None,
    };
    (group, kept)
}

/// Returns the attribute `_FillValue` of an array that xarray does not look at, because Zarr 2 has
/// the masked value in another place, if the copy cannot have it.
fn unused_fill(node: &Node, array: &Array, raised: &Raised) -> Option<Value> {
    let of = |text: &[u8]| {
        let document = parse_object(text).ok()?;
        document.get("attributes")?.get(FILL).cloned()
    };
    let stored = of(&node.document()?.text)?;
    let dtype = &array.model().dtype;
    let is_kept = [of(raised.text().as_bytes()), array.model().attributes.get(FILL).cloned()]
        .into_iter()
        .flatten()
        .any(|kept| kept == stored || masked_value(&kept, dtype) == masked_value(&stored, dtype));
    (!is_kept).then_some(stored)
}

/// Returns the metadata file `shown` of a node with its attributes as stored.
fn with_own_attributes(node: &Node, shown: &str) -> Result<String> {
    match node.document() {
        Some(document) => wanted::with_stored_attributes(shown, &document.text),
        None => Ok(shown.to_owned()),
    }
}

/// Returns the bytes of an element in a missing chunk.
fn fill_item(array: &Array) -> Cow<'_, [u8]> {
    array.model().fill.item(&array.model().dtype)
}

/// Whether missing chunks of both arrays have the same elements.
fn has_fill_of(source: &Array, dest: &Array) -> bool {
    fill_item(source) == fill_item(dest)
}

/// Returns the conversion of the chunks of an array to those of another.
fn form(source: &Array, dest: &Array) -> ChunkConversion {
    let (old, new) = (source.model(), dest.model());
    if source.chunk_shape() != dest.chunk_shape() {
        return ChunkConversion::Regridded;
    }
    let is_same =
        old.dtype == new.dtype && source.grid() == dest.grid() && wanted::same_encoding(old, new);
    if is_same { ChunkConversion::Encoded } else { ChunkConversion::Decoded }
}
