//! Opens a hierarchy, and a node in it, by a path or a URL from the command line.

pub mod archive;
pub mod described;
pub mod folder;
pub mod references;
pub mod remote;

use std::fmt::{self, Display};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cli::failure::{Failure, failed};
use crate::cli::umount::dead;
use crate::error::{Error, Kind};
use crate::files::precomputed;
use crate::hierarchy::{Hierarchy, HierarchyOptions, Membership, membership};
use crate::metadata::{Dialect, NodePath, declared, draft_root_marker};
use crate::store::directory::{DirectoryStore, Durability};
use crate::store::{PRIVATE, Prefix, Store, StoreEntry};
use folder::FolderContents;
use references::References;
use remote::Remote;

/// The most bytes of the entry point of a draft.
const MAX_ENTRY_LEN: u64 = 1 << 20;

/// How long names of a store in a directory are cached.
const LOCAL_TTL: Duration = Duration::from_secs(1);

/// Returns the store in a directory, which must exist.
pub fn store(path: &Path, durability: Durability) -> Result<Store, Failure> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => {
            return Err(failed(format!(
                "{shown}: not a directory; zarrfs opens directories, zip archives, URLs (s3://, \
                 gs://, az://, https://), and files of netCDF, HDF5, TIFF and other formats, and \
                 this is none of them"
            )));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(failed(format!("{shown}: no such directory")));
        }
        Err(error) => return Err(failed(format!("{shown}: {error}"))),
    }
    let store = DirectoryStore::open(path, durability)?.keeping_directories();
    Ok(Store::of_files(Arc::new(store)))
}

/// Whether a store has no values.
pub fn is_empty(store: &Store) -> crate::error::Result<bool> {
    match store.list() {
        Some(list) => {
            // What other writers keep for themselves does not count.
            let is_other = |entry: &Result<StoreEntry, Error>| {
                entry.as_ref().map_or(true, |entry| entry.name() != PRIVATE)
            };
            Ok(list.list_dir(&Prefix::root())?.find(is_other).transpose()?.is_none())
        }
        None => Ok(false),
    }
}

/// Whether a command changes the hierarchy that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It only reads.
    Read,
    /// It writes.
    Write,
}

impl Access {
    fn to(self, store: Store) -> Store {
        match self {
            Self::Read => store.read_only(),
            Self::Write => store,
        }
    }

    fn durability(self) -> Durability {
        match self {
            Self::Read => Durability::Buffered,
            Self::Write => Durability::Synced,
        }
    }
}

/// Where a store is.
#[derive(Debug, Clone)]
pub enum StoreLocation {
    /// A directory, by its path without links.
    Directory(PathBuf),
    /// A zip archive, by its path without links.
    Archive(PathBuf),
    /// A URL, perhaps of a zip archive.
    Url(String),
    /// References into other stores.
    References(References),
}

impl StoreLocation {
    /// Opens the store there. A store at a URL caches names for `ttl`.
    pub fn store(
        &self,
        remote: &Remote,
        ttl: Duration,
        durability: Durability,
    ) -> Result<Store, Failure> {
        match self {
            Self::Directory(path) => store(path, durability),
            Self::Archive(path) => archive::store(path, ttl),
            Self::Url(url) => remote.store(url, ttl),
            Self::References(references) => references.store(remote, ttl),
        }
    }

    /// Returns why no program can write there, as the end of a sentence about the store.
    pub fn why_read_only(&self) -> Option<&'static str> {
        match self {
            Self::Directory(_) => None,
            Self::Archive(_) => Some(archive::WHY_READ_ONLY),
            Self::Url(url) => remote::why_read_only(url),
            Self::References(references) => Some(references.why_read_only()),
        }
    }

    /// Returns how long names are cached, if the user did not type that.
    pub fn ttl(&self) -> Duration {
        match self {
            Self::References(references) if references.is_remote() => remote::TTL,
            Self::Directory(_) | Self::Archive(_) | Self::References(_) => LOCAL_TTL,
            Self::Url(_) => remote::TTL,
        }
    }

    /// Returns the path of a directory.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory(path) => Some(path),
            Self::Archive(_) | Self::Url(_) | Self::References(_) => None,
        }
    }

    /// Whether it is a zip archive, also one at a URL.
    pub fn is_archive(&self) -> bool {
        match self {
            Self::Directory(_) | Self::References(_) => false,
            Self::Archive(_) => true,
            Self::Url(url) => archive::split_url(url).is_some(),
        }
    }

    /// Whether it is a URL.
    pub fn is_remote(&self) -> bool {
        match self {
            Self::Directory(_) | Self::Archive(_) => false,
            Self::Url(_) => true,
            Self::References(references) => references.is_remote(),
        }
    }
}

impl Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) | Self::Archive(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(&remote::shown(url)),
            Self::References(references) => write!(f, "{references}"),
        }
    }
}

/// A hierarchy, or a node in one that acts as a hierarchy.
#[derive(Debug, Clone)]
pub struct Source {
    /// Where the store is.
    pub root: StoreLocation,
    /// The node, unless it is itself a hierarchy.
    pub node: NodePath,
}

impl Source {
    /// Parses a path from the command line: a directory of a hierarchy or of a node, a zip archive
    /// or a node in one, or `HIERARCHY#NODE`.
    pub fn parse(path: &Path) -> Result<Self, Failure> {
        if let Some(references) = references::parse(path)? {
            return Ok(Self {
                root: StoreLocation::References(references),
                node: NodePath::root(),
            });
        }
        if let Some(url) = remote::url(path) {
            return Self::parse_url(url);
        }
        dead::refuse_dead(path)?;
        if let Some((archive, node)) = archive::find(path)? {
            return Ok(Self { root: StoreLocation::Archive(archive), node });
        }
        match path.canonicalize() {
            Ok(root) => {
                return Ok(Self::of_draft(&root).unwrap_or_else(|| Self::of_directory(&root)));
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(failed(format!("{}: {error}", path.display())));
            }
            // It may be the path of a directory and that of a node.
            Err(_) => {}
        }
        let missing = || failed(format!("{}: no such directory", path.display()));
        let (root, node) =
            path.to_str().and_then(|path| path.rsplit_once('#')).ok_or_else(missing)?;
        let root = Path::new(root).canonicalize().map_err(|_| missing())?;
        let node = NodePath::parse(node).map_err(|error| failed(error.to_string()))?;
        let has_zarr_json = draft_root_of(&root).is_some();
        let beside = root.join(node.as_str());
        // In most dialects a node is nothing more than its directory.
        if !has_zarr_json && !node.is_root() && beside.is_dir() && !is_early_draft(&root) {
            return Ok(Self::of_directory(&beside));
        }
        Ok(Self { root: StoreLocation::Directory(root), node })
    }

    fn parse_url(url: &str) -> Result<Self, Failure> {
        let (url, node) = url.rsplit_once('#').unwrap_or((url, ""));
        let node = NodePath::parse(node).map_err(|error| failed(error.to_string()))?;
        Ok(Self { root: StoreLocation::Url(url.to_owned()), node })
    }

    /// Returns the hierarchy in a directory.
    fn of_directory(root: &Path) -> Self {
        Self { root: StoreLocation::Directory(root.to_owned()), node: NodePath::root() }
    }

    /// Returns the draft hierarchy if `path` is the directory of one of its nodes.
    fn of_draft(path: &Path) -> Option<Self> {
        let (root, dialect) = path
            .ancestors()
            .skip(1)
            .find_map(|above| draft_root_of(above).map(|dialect| (above.to_owned(), dialect)))?;
        let relative = path.strip_prefix(&root).ok()?.to_str()?;
        let node = dialect.node_of_directory(relative)?;
        Some(Self { root: StoreLocation::Directory(root), node })
    }

    /// Returns the path or URL as a user can type it.
    pub fn spelled(&self) -> String {
        if self.node.is_root() {
            return self.root.to_string();
        }
        format!("{}#{}", self.root, self.node.as_str())
    }
}

/// Returns the dialect of the draft whose entry point lies in `directory`.
fn draft_root_of(directory: &Path) -> Option<Dialect> {
    let path = directory.join("zarr.json");
    // Opening a FIFO would block.
    let is_short = |found: &std::fs::Metadata| found.is_file() && found.len() <= MAX_ENTRY_LEN;
    std::fs::metadata(&path).ok().filter(is_short)?;
    draft_root_marker(&std::fs::read(path).ok()?)
}

/// Whether a directory has metadata files of the draft of May 2019, which had no entry point.
fn is_early_draft(directory: &Path) -> bool {
    ["root.group.json", "root.array.json"].iter().any(|name| directory.join(name).is_file())
}

/// Returns the hierarchy in `store`, which lies at `source`.
pub fn hierarchy(
    mut store: Store,
    source: &Source,
    from: Option<Dialect>,
    options: HierarchyOptions,
) -> Result<Hierarchy, Failure> {
    let (root, node) = (&source.root, &source.node);
    if from.is_none()
        && let Some(directory) = root.directory()
    {
        let mut folder = folder_at(&store, directory);
        if !folder.parts.is_empty() {
            if let Some(store) = folder.store_of(&store, directory, node)? {
                return Ok(Hierarchy::open(store, Some(Dialect::V3), options)?);
            }
            let store = folder.store(store, directory);
            let hierarchy = Hierarchy::open_folder(store, folder.parts, options)?;
            return match hierarchy.node(node)? {
                Some(_) if node.is_root() => Ok(hierarchy),
                _ => Err(no_node(&source.spelled(), node, root)),
            };
        }
    }
    if from.is_none()
        && matches!(root, StoreLocation::Archive(_))
        && references::may_be_in_parquet(&store)
    {
        return Err(failed(format!("{root}: {}", references::say_parquet(root))));
    }
    let (is_detected, mut is_volume) = (from.is_none(), false);
    let mut opened = Hierarchy::open(store.clone(), from, options.clone());
    // A directory on this machine is known by its file `info` before.
    if is_detected
        && root.directory().is_none()
        && let Some(volume) = volume_at(&store, root, &opened)?
    {
        opened = Hierarchy::open(volume.clone(), Some(Dialect::V3), options.clone());
        (store, is_volume) = (volume, true);
    }
    let hierarchy = opened.map_err(|error| explain_opening(root, &store, &error))?;
    let (store, hierarchy) = match described::store(&hierarchy)? {
        Some(store) => {
            let dialect = Some(hierarchy.dialect().clone());
            (store.clone(), Hierarchy::open(store, dialect, options.clone())?)
        }
        None => (store, hierarchy),
    };
    if node.is_root() {
        return Ok(match root.directory() {
            Some(directory) => within_groups_above(hierarchy, directory)?,
            None => hierarchy,
        });
    }
    let no_node = || no_node(&source.spelled(), node, root);
    let (store, below) = match hierarchy.dialect().below(node) {
        Some(below) => (store, below),
        // In these dialects the directory of a node is a hierarchy by itself.
        None if root.is_archive() || is_volume => {
            (archive::within(store, node.as_str())?, hierarchy.dialect().clone())
        }
        None => return Err(no_node()),
    };
    let hierarchy = Hierarchy::open(store, Some(below), options)?;
    match hierarchy.node(&NodePath::root())? {
        Some(found) if !found.is_bare() && hierarchy.exists()? => Ok(hierarchy),
        Some(_) | None => Err(no_node()),
    }
}

/// Returns the volume of Neuroglancer in a store, if the root of what was `opened` has no metadata
/// file.
fn volume_at(
    store: &Store,
    root: &StoreLocation,
    opened: &crate::error::Result<Hierarchy>,
) -> Result<Option<Store>, Failure> {
    let is_none = match opened {
        Ok(hierarchy) => {
            let root = hierarchy.node(&NodePath::root());
            root.is_ok_and(|root| root.is_none_or(|root| root.document().is_none()))
        }
        Err(error) => matches!(error.kind(), Kind::Invalid | Kind::NotFound),
    };
    if !is_none {
        return Ok(None);
    }
    match precomputed::open(store, root.ttl()) {
        Ok(volume) => Ok(volume),
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => {
            Err(explain(root, &error))
        }
        // It says nothing of what is there.
        Err(_) => Ok(None),
    }
}

/// Returns the hierarchies in a directory that is none itself, if it takes several dialects to show
/// them, or some of them are files of other formats.
fn folder_at(store: &Store, root: &Path) -> FolderContents {
    match declared(store) {
        Ok(None) => FolderContents::find(root),
        // The caller gets the error when it opens the hierarchy.
        Ok(Some(_)) | Err(_) => FolderContents::default(),
    }
}

/// Whether a source is a folder of hierarchies in several dialects, or with files.
pub fn is_folder(source: &Source) -> Result<bool, Failure> {
    let Some(directory) = source.root.directory() else { return Ok(false) };
    let store = store(directory, Durability::Buffered)?;
    Ok(source.node.is_root() && !folder_at(&store, directory).parts.is_empty())
}

/// Returns the hierarchy in the directory `root` as a part of the outermost one that contains it,
/// so that writes update the consolidated metadata of the groups above.
pub fn within_groups_above(hierarchy: Hierarchy, root: &Path) -> crate::error::Result<Hierarchy> {
    if !hierarchy.store().is_writable() {
        return Ok(hierarchy);
    }
    let mut outermost = None;
    for above in root.ancestors().skip(1) {
        let relative = root.strip_prefix(above).ok().and_then(Path::to_str);
        let Some(base) = relative.and_then(|relative| NodePath::parse(relative).ok()) else {
            break;
        };
        // A hierarchy that cannot be opened cannot be written either.
        let Ok(store) = store(above, Durability::Synced) else { break };
        match membership(&store, hierarchy.dialect(), &base) {
            Membership::Member => outermost = Some((store, base)),
            Membership::Perhaps => {}
            Membership::None => break,
        }
    }
    match outermost {
        Some((store, base)) => hierarchy.below(store, base),
        None => Ok(hierarchy),
    }
}

/// Whether a conversion into a directory was interrupted.
pub fn is_unfinished(location: &StoreLocation) -> bool {
    location.directory().is_some_and(|directory| directory.join(".zarrfs/convert").is_file())
}

/// Explains why a hierarchy cannot be opened.
fn explain_opening(root: &StoreLocation, store: &Store, error: &Error) -> Failure {
    if let Some(above) = root.directory().and_then(draft_root_above) {
        return failed(format!(
            "{root}: inside the hierarchy {}: open that directory, or name the node as {}#NODE",
            above.display(),
            above.display()
        ));
    }
    if matches!(error.kind(), Kind::Invalid | Kind::NotFound)
        && let StoreLocation::Url(url) = root
        && let Some(hint) = references::hint(url, store)
    {
        return failed(format!("{root}: {hint}"));
    }
    explain(root, error)
}

/// Explains why there is no hierarchy at `path`.
fn explain(shown: &StoreLocation, error: &Error) -> Failure {
    match (error.kind(), error.subject()) {
        (Kind::Invalid | Kind::NotFound, _) if is_unfinished(shown) => failed(format!(
            "{shown}: an unfinished conversion: run the same `zarrfs convert` command again to \
             continue it, or remove the directory"
        )),
        (Kind::NotFound, _) if shown.directory().is_none() => {
            failed(format!("{shown}: nothing is stored there"))
        }
        (Kind::NotFound, _) => failed(format!(
            "{shown}: an empty directory; use mount --create to create a \
             hierarchy in it"
        )),
        (_, Some(subject)) if !subject.is_empty() => {
            failed(format!("{shown}/{subject}: {}", error.detail()))
        }
        _ => failed(format!("{shown}: {}", error.detail())),
    }
}

/// Returns the root of a draft hierarchy if `path` lies in its `meta` or `data`.
fn draft_root_above(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    path.ancestors().skip(1).find(|above| draft_root_of(above).is_some()).map(Path::to_owned)
}

/// Returns the hierarchy and the node at `path`: for `climate.zarr/t2m`, the node `t2m` of
/// `climate.zarr`. A directory that is a hierarchy by itself is opened as one, unless it is a node
/// of a draft, which has only one root.
pub fn node(
    path: &Path,
    from: Option<&Dialect>,
    remote: &Remote,
) -> Result<(Hierarchy, NodePath), Failure> {
    node_for(path, from, remote, Access::Read)
}

/// Like [`node`], for a command that may write.
pub fn node_for(
    path: &Path,
    from: Option<&Dialect>,
    remote: &Remote,
    access: Access,
) -> Result<(Hierarchy, NodePath), Failure> {
    if references::is_named(path) {
        let source = Source::parse(path)?;
        let store = source.root.store(remote, source.root.ttl(), Durability::Buffered)?;
        let hierarchy = hierarchy(store, &source, from.cloned(), HierarchyOptions::default())?;
        return Ok((hierarchy, NodePath::root()));
    }
    if let Some(url) = remote::url(path) {
        let source = Source::parse_url(url)?;
        let store = access.to(source.root.store(remote, remote::TTL, access.durability())?);
        let hierarchy = hierarchy(store, &source, from.cloned(), HierarchyOptions::default())?;
        return Ok((hierarchy, NodePath::root()));
    }
    match archive::find(path)? {
        Some((archive, node)) => {
            if access == Access::Write {
                archive::check_writable(path)?;
            }
            node_in_archive(path, archive, node, from)
        }
        None => node_in_directory(path, from, access),
    }
}

fn node_in_archive(
    path: &Path,
    archive: PathBuf,
    node: NodePath,
    from: Option<&Dialect>,
) -> Result<(Hierarchy, NodePath), Failure> {
    let store = archive::store(&archive, LOCAL_TTL)?;
    let source = Source { root: StoreLocation::Archive(archive), node: NodePath::root() };
    let hierarchy = hierarchy(store, &source, from.cloned(), HierarchyOptions::default())?;
    match hierarchy.node(&node)? {
        Some(found) if !found.is_bare() || node.is_root() => Ok((hierarchy, node)),
        Some(_) | None => Err(no_node(&path.display().to_string(), &node, &source.root)),
    }
}

fn node_in_directory(
    path: &Path,
    from: Option<&Dialect>,
    access: Access,
) -> Result<(Hierarchy, NodePath), Failure> {
    dead::refuse_dead(path)?;
    if let Ok(source) = Source::parse(path)
        && let Some(directory) = source.root.directory()
        && (!source.node.is_root() || !path.exists())
    {
        let store = access.to(store(directory, access.durability())?);
        let hierarchy = hierarchy(store, &source, from.cloned(), HierarchyOptions::default())?;
        return Ok((hierarchy, NodePath::root()));
    }
    let mut root = path.to_owned();
    let mut names: Vec<String> = Vec::new();
    loop {
        // A directory above may have other hierarchies in it, which are none of this command's
        // business: one may lie in a mount that does not answer.
        let is_folder_above = |store: &Store| {
            !names.is_empty() && from.is_none() && matches!(declared(store), Ok(None))
        };
        let found = root.is_dir().then(|| store(&root, access.durability())).transpose()?;
        if let Some(found) = found.filter(|store| !is_folder_above(store)) {
            let opened = hierarchy(
                access.to(found),
                &Source::of_directory(&root),
                from.cloned(),
                HierarchyOptions::default(),
            );
            match opened {
                Ok(hierarchy) => {
                    let node =
                        names.iter().rev().try_fold(NodePath::root(), |at, name| at.child(name))?;
                    if hierarchy.node(&node)?.is_some_and(|node| !node.is_bare()) {
                        return Ok((hierarchy, node));
                    }
                    return Err(explain_missing(path, &hierarchy, &root, &node, from));
                }
                // The path may lead through a directory of a hierarchy above it.
                Err(failure) if names.is_empty() && !lies_in_hierarchy(&root) => {
                    return Err(failure);
                }
                Err(_) => {}
            }
        }
        let Some(name) = root.file_name().and_then(|name| name.to_str()).map(str::to_owned) else {
            return Err(nothing_at(path));
        };
        names.push(name);
        root = match root.parent() {
            Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
            Some(parent) => parent.to_owned(),
            None => return Err(nothing_at(path)),
        };
    }
}

/// Returns the node in the outermost hierarchy that contains it, if that is Zarr 2 or 3 and nodes
/// are directories, because metadata of a group may affect its arrays.
pub fn node_with_groups(
    path: &Path,
    from: Option<&Dialect>,
    remote: &Remote,
) -> Result<(Hierarchy, NodePath), Failure> {
    let is_node = |path: &&Path| {
        let documents = ["zarr.json", ".zgroup", ".zarray"];
        documents.iter().any(|document| path.join(document).is_file())
    };
    let found = path.canonicalize().ok().filter(|_| from.is_none());
    let top = found.as_deref().and_then(|path| path.ancestors().take_while(is_node).last());
    let names = found.as_deref().zip(top).and_then(|(path, top)| path.strip_prefix(top).ok());
    if let (Some(top), Some(names)) = (top, names.and_then(Path::to_str).filter(|n| !n.is_empty()))
    {
        let source = Source::of_directory(top);
        let store = store(top, Durability::Buffered)?.read_only();
        let hierarchy = hierarchy(store, &source, None, HierarchyOptions::default());
        // A directory in a hierarchy of another kind is not one of its nodes, but a separate
        // hierarchy.
        if let (Ok(hierarchy), Ok(node)) = (hierarchy, NodePath::parse(names))
            && hierarchy.node(&node)?.is_some_and(|node| !node.is_bare())
        {
            return Ok((hierarchy, node));
        }
    }
    node(path, from, remote)
}

/// Explains why there is nothing at `path`, which means `node` of the `hierarchy` at `root`.
fn explain_missing(
    path: &Path,
    hierarchy: &Hierarchy,
    root: &Path,
    node: &NodePath,
    from: Option<&Dialect>,
) -> Failure {
    let shown = path.display();
    if path.is_file() {
        return nothing_at(path);
    }
    if node.is_root() {
        let dialect = hierarchy.dialect().name();
        return failed(match from {
            Some(_) => format!(
                "{shown}: no hierarchy in the dialect {dialect}; without --from zarrfs detects the \
                 dialect"
            ),
            None => format!(
                "{shown}: a file of the dialect {dialect} is there, but no metadata file \
                             of a group or an array"
            ),
        });
    }
    let group = hierarchy.existing(&NodePath::root());
    // Any directory is a group of Zarr 3, even without a metadata file.
    if !path.exists() && group.is_ok_and(|group| group.document().is_none()) {
        return nothing_at(path);
    }
    no_node(&shown.to_string(), node, &root.display())
}

/// Returns the error for a path that lies in no hierarchy.
fn nothing_at(path: &Path) -> Failure {
    let shown = path.display();
    if path.exists() && !path.is_dir() {
        return failed(format!(
            "{shown}: not a directory; name the directory of a hierarchy, a group or an array"
        ));
    }
    failed(format!("{shown}: no such directory, group or array"))
}

fn no_node(shown: &str, node: &NodePath, root: &dyn Display) -> Failure {
    failed(format!(
        "{shown}: no group or array {node} in the hierarchy {root}; `zarrfs tree {root}` lists all"
    ))
}

/// Whether a directory has a metadata file that may be the only one of a node below it.
fn has_nodes_below(directory: &Path) -> bool {
    ["zarr.json", ".zmetadata"].iter().any(|name| directory.join(name).is_file())
}

fn lies_in_hierarchy(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|path| path.ancestors().skip(1).any(has_nodes_below))
}
