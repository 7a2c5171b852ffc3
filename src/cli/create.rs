//! `zarrfs create`: creates a group or an array, in a hierarchy or as the first node of a new one.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use super::args::Create;
use super::failure::{Failure, failed};
use super::info::describe::describe;
use super::open;
use super::open::StoreLocation;
use super::open::archive;
use super::open::references;
use super::open::remote;
use super::open::remote::Remote;
use super::output::print;
use crate::convert::Mark;
use crate::error::{Kind, Result};
use crate::hierarchy::{Hierarchy, HierarchyOptions, Raised};
use crate::json::Object;
use crate::metadata::wanted::{self, NewArray};
use crate::metadata::{Dialect, NodeKind, NodePath, Policy, Shards, declared};
use crate::printable::escaped;
use crate::store::PRIVATE;
use crate::store::directory::{Durability, LOCK_SUFFIX};

/// The place of a new node.
struct NewNodeAt {
    /// Where the hierarchy is.
    root: StoreLocation,
    /// The node in it.
    node: NodePath,
    /// The dialect of the hierarchy, if there is one.
    dialect: Option<Dialect>,
}

/// Finds the place of a new node.
fn find_new(path: &Path, remote: &Remote) -> Result<NewNodeAt, Failure> {
    references::refuse(path)?;
    match remote::url(path) {
        Some(url) => {
            remote::check_writable(url)?;
            find_at_url(url, remote)
        }
        None => find(path),
    }
}

/// Returns the dialect of the hierarchy at or around `path`; `None` if there is none.
pub fn dialect_at(path: &Path, remote: &Remote) -> Result<Option<Dialect>, Failure> {
    if remote::url(path).is_some() && is_unfinished_at(path, remote)? {
        return Ok(None);
    }
    let is_unfinished = open::is_unfinished(&StoreLocation::Directory(path.to_owned()));
    let path = match path.parent() {
        // What lies around the unfinished copy decides.
        Some(above) if is_unfinished && !above.as_os_str().is_empty() => above,
        Some(_) if is_unfinished => Path::new("."),
        _ => path,
    };
    if archive::is_named(path) {
        return Ok(None);
    }
    if is_unfinished {
        return Ok(find(path).ok().and_then(|place| place.dialect));
    }
    Ok(find_new(path, remote)?.dialect)
}

/// Whether no node is at `path`, so that a new one can be made there, or a conversion that was
/// interrupted can go on.
pub fn is_free(path: &Path, remote: &Remote) -> Result<bool, Failure> {
    if archive::is_named(path) {
        return if path.exists() {
            archive::check_writable(path).map(|()| false)
        } else {
            Ok(true)
        };
    }
    if is_unfinished_at(path, remote)? {
        return Ok(true);
    }
    let place = find_new(path, remote)?;
    let Some(dialect) = place.dialect else { return Ok(true) };
    let store = place.root.store(remote, remote::TTL, Durability::Buffered)?.read_only();
    let hierarchy = Hierarchy::open(store, Some(dialect), HierarchyOptions::default())?;
    Ok(hierarchy.node(&place.node)?.is_none_or(|node| node.is_bare()))
}

/// Whether a conversion into `path` was interrupted.
fn is_unfinished_at(path: &Path, remote: &Remote) -> Result<bool, Failure> {
    match remote::url(path) {
        Some(url) => Ok(Mark::is_in(&remote.store(url, remote::TTL)?)?),
        None => Ok(open::is_unfinished(&StoreLocation::Directory(path.to_owned()))),
    }
}

/// Opens the outermost hierarchy around the node at `path`, to change that; `None` if there is
/// none. The caller must sync what it writes.
pub fn open_around(path: &Path, remote: &Remote) -> Result<Option<(Hierarchy, NodePath)>, Failure> {
    let place = find_new(path, remote)?;
    let Some(dialect) = place.dialect else { return Ok(None) };
    let store = place.root.store(remote, remote::TTL, Durability::Buffered)?;
    let hierarchy = Hierarchy::open(store, Some(dialect), HierarchyOptions::default())?;
    let is_there = hierarchy.node(&place.node)?.is_some_and(|node| !node.is_bare());
    Ok(is_there.then_some((hierarchy, place.node)))
}

/// Makes a group, and the groups above it, unless there is one.
pub fn group_if_missing(path: &Path, format: Dialect, remote: &Remote) -> Result<(), Failure> {
    if !is_free(path, remote)? {
        return Ok(());
    }
    let args = Create {
        path: path.to_owned(),
        format: Some(format),
        shape: None,
        dtype: None,
        chunks: None,
        shards: None,
        codecs: None,
        fill: None,
        attrs: None,
        dimensions: Vec::new(),
        remote: remote.clone(),
    };
    create(&args).map(drop)
}

/// Creates the node and the groups above it, and prints them.
pub fn run(args: &Create) -> Result<(), Failure> {
    let (dialect, described) = create(args)?;
    let shown = args.path.display();
    print::output(&format!("{}\n", escaped(&format!("{shown}  {described} ({dialect})"))))
}

/// Creates the node and the groups above it. Returns the name of the dialect, and a short
/// description of the node.
fn create(args: &Create) -> Result<(&'static str, String), Failure> {
    archive::check_writable(&args.path)?;
    let shown = args.path.display();
    let place = find_new(&args.path, &args.remote)?;
    let dialect = match (&place.dialect, &args.format) {
        (Some(found), Some(asked)) if found.name() != asked.name() => {
            return Err(Failure::Usage(format!(
                "--format {}: the hierarchy {} has the dialect {}, and so will the new node: \
                 remove --format",
                asked.name(),
                place.root,
                found.name()
            )));
        }
        (Some(found), _) => found.clone(),
        (None, asked) => asked.clone().unwrap_or(Dialect::V3),
    };
    if let (Some(shape), Some(Shards::Shape(shards))) = (&args.shape, &args.shards)
        && shape.len() != shards.len()
    {
        return Err(Failure::Usage(format!(
            "--shards: the shape has {} dimensions, but --shape has {}",
            shards.len(),
            shape.len()
        )));
    }
    dialect.check_makes_nodes()?;
    // Report wrong options before anything is created.
    let document = document(args, &dialect)?;
    let new = place.root.directory().filter(|root| !root.exists());
    if let Some(root) = new {
        std::fs::create_dir_all(root)
            .map_err(|error| failed(format!("{}: {error}", root.display())))?;
    }
    let made = make(args, &place, dialect, &document);
    if let (Err(_), Some(root)) = (&made, new) {
        // This removes only an empty directory.
        let _kept = std::fs::remove_dir(root);
    }
    made.map_err(|failure| match failure {
        Failure::Failed(why) => failed(format!("{shown}: {why}")),
        other => other,
    })
}

/// Stores the node. Returns the name of the dialect, and a short description of the node.
fn make(
    args: &Create,
    place: &NewNodeAt,
    dialect: Dialect,
    document: &str,
) -> Result<(&'static str, String), Failure> {
    let hierarchy = match &place.root {
        StoreLocation::Directory(root) => {
            let store = open::store(root, Durability::Synced)?;
            let hierarchy = Hierarchy::open(store, Some(dialect), HierarchyOptions::default())?;
            let hierarchy = open::within_groups_above(hierarchy, root)?;
            hierarchy.recovery().recover();
            hierarchy
        }
        other => {
            let store = other.store(&args.remote, remote::TTL, Durability::Synced)?;
            Hierarchy::open(store, Some(dialect), HierarchyOptions::default())?
        }
    };
    let path = &place.node;
    let found = hierarchy.node(path)?.filter(|_| place.dialect.is_some());
    let replaced = found.as_ref().and_then(|node| node.stored().cloned());
    if let Some(found) = &found
        && replaced.is_some()
    {
        return Err(failed(format!("already exists: {}", describe(found))));
    }
    let raised = raise(args, &hierarchy, path, document)?;
    hierarchy.changes().make_directories(path)?;
    if place.dialect.is_none() {
        hierarchy.changes().store_entry_point()?;
        if !path.is_root() {
            make_root(&hierarchy)?;
        }
    }
    let key = hierarchy.changes().put_document(path, &raised, None).map_err(|error| match error
        .kind()
    {
        Kind::Exists => failed("another program has just created it"),
        _ => error.into(),
    })?;
    hierarchy.store().write()?.sync(&[key])?;
    hierarchy.invalidate(path);
    Ok((hierarchy.dialect().name(), describe(&*hierarchy.existing(path)?)))
}

/// Creates the root of a new hierarchy, unless another program has just done so.
fn make_root(hierarchy: &Hierarchy) -> Result<()> {
    let root = NodePath::root();
    let raised = hierarchy.raise(&root, wanted::group(Object::new()).as_bytes())?;
    match hierarchy.changes().put_document(&root, &raised, None) {
        Err(error) if error.kind() == Kind::Exists => {
            hierarchy.invalidate(&root);
            match hierarchy.existing(&root)?.kind() {
                NodeKind::Group => Ok(()),
                NodeKind::Array => Err(error),
            }
        }
        made => made.map(drop),
    }
}

/// Returns the node to store, with the requested codecs, else with the first default codecs that
/// the dialect has.
fn raise(args: &Create, hierarchy: &Hierarchy, path: &NodePath, document: &str) -> Result<Raised> {
    let shards = args.shards.clone().unwrap_or(Shards::None);
    let chains = match &args.codecs {
        Some(codecs) => vec![codecs.clone()],
        None => Policy::usual_codecs(),
    };
    let mut first = None;
    for codecs in chains {
        let policy = Policy { codecs, shards: shards.clone() };
        match hierarchy.raise_with(path, document.as_bytes(), &policy) {
            Ok(raised) => return Ok(raised),
            Err(error) => first = first.or(Some(error)),
        }
    }
    first.map_or_else(|| hierarchy.raise(path, document.as_bytes()), Err)
}

fn document(args: &Create, dialect: &Dialect) -> Result<String, Failure> {
    let attributes = args.attrs.clone().unwrap_or_default();
    let (Some(shape), Some(data_type)) = (&args.shape, &args.dtype) else {
        return Ok(wanted::group(attributes));
    };
    let wanted = NewArray {
        shape: shape.clone(),
        data_type: data_type.clone(),
        chunk_shape: args.chunks.clone(),
        fill: args.fill.clone(),
        attributes,
        dimension_names: args.dimensions.clone(),
        masks_fill: *dialect == Dialect::V2,
    };
    if let Some(shards) = &args.shards {
        wanted.check_shards(shards)?;
    }
    Ok(wanted.document()?)
}

/// Finds the hierarchy for `path`: the existing one (the outermost, if they are nested), or a new
/// one.
fn find(path: &Path) -> Result<NewNodeAt, Failure> {
    let shown = path.display();
    let (existing, names) = existing(path)?;
    // Checked first: another program may be creating the same hierarchy, and its temporary files do
    // not count.
    let is_temporary = |name: &str| name == PRIVATE || name.ends_with(LOCK_SUFFIX);
    let is_empty = std::fs::read_dir(&existing)?
        .all(|entry| entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(is_temporary)));
    let mut root: Option<(PathBuf, Dialect)> = None;
    for above in existing.ancestors() {
        let declared = declared(&open::store(above, Durability::Buffered)?.read_only());
        match (declared, &root) {
            (Ok(Some(dialect)), None) => root = Some((above.to_owned(), dialect)),
            (Ok(Some(dialect)), Some((_, below))) if dialect == *below => {
                root = Some((above.to_owned(), dialect));
            }
            (Ok(None), None) => {}
            (Err(error), None) => return Err(failed(format!("{}: {error}", above.display()))),
            _ => break,
        }
    }
    if let Some((root, dialect)) = root {
        let within = existing.strip_prefix(&root).unwrap_or(Path::new(""));
        let within = components(within, path)?;
        let node = node_of(within.iter().chain(&names))?;
        return Ok(NewNodeAt {
            root: StoreLocation::Directory(root),
            node,
            dialect: Some(dialect),
        });
    }
    if names.is_empty() && !is_empty {
        return Err(neither(&shown));
    }
    let is_root = is_empty && is_named_as_root(&existing);
    let (above, below) = names.split_at(if is_root { 0 } else { root_len(&names) });
    let root = above.iter().fold(existing, |root, name| root.join(name));
    Ok(NewNodeAt { root: StoreLocation::Directory(root), node: node_of(below)?, dialect: None })
}

/// Like [`find`], for a URL.
fn find_at_url(url: &str, remote: &Remote) -> Result<NewNodeAt, Failure> {
    let (scheme, path) = url.split_once("://").unwrap_or((url, ""));
    let mut names = path.trim_end_matches('/').split('/').map(str::to_owned);
    let bucket = format!("{scheme}://{}", names.next().unwrap_or_default());
    let names: Vec<String> = names.collect();
    let at = |len: usize| {
        let names = names.iter().take(len);
        names.fold(bucket.clone(), |url, name| format!("{url}/{name}"))
    };
    let mut root: Option<(usize, Dialect)> = None;
    let (mut existing, mut was_listed) = (None, false);
    for len in (0..=names.len()).rev() {
        let store = remote.store(&at(len), remote::TTL)?.read_only();
        let declared = match open::is_empty(&store) {
            Ok(true) => {
                was_listed = true;
                continue;
            }
            Ok(false) => declared(&store),
            Err(error) => Err(error),
        };
        match (declared, &root) {
            (Ok(Some(dialect)), None) => root = Some((len, dialect)),
            (Ok(Some(dialect)), Some((_, below))) if dialect == *below => {
                root = Some((len, dialect));
            }
            (Ok(None), None) => {}
            // Some users may list only a part of a bucket.
            (Err(error), None) if existing.is_none() && !was_listed => {
                return Err(failed(format!("{}: {}", at(len), error.detail())));
            }
            _ => break,
        }
        existing = existing.or(Some(len));
    }
    if root.is_none() && existing == Some(names.len()) {
        return Err(neither(&url));
    }
    let (len, dialect) = if let Some((len, dialect)) = root {
        (len, Some(dialect))
    } else {
        let (above, below) = names.split_at(existing.unwrap_or(0).min(names.len()));
        (above.len().saturating_add(root_len(below)), None)
    };
    let node = node_of(names.iter().skip(len))?;
    Ok(NewNodeAt { root: StoreLocation::Url(at(len)), node, dialect })
}

fn neither(shown: &dyn Display) -> Failure {
    failed(format!(
        "{shown}: neither a hierarchy nor an empty directory; name an empty or a new directory"
    ))
}

fn node_of<'n>(names: impl IntoIterator<Item = &'n String>) -> Result<NodePath> {
    names.into_iter().try_fold(NodePath::root(), |at, name| at.child(name))
}

fn is_named_as_root(path: &Path) -> bool {
    path.extension()
        .and_then(|end| end.to_str())
        .is_some_and(|end| archive::ROOT_ENDINGS.contains(&end))
}

/// Returns how many of the names of new directories lead to the root of the new hierarchy.
fn root_len(names: &[String]) -> usize {
    let first = names.iter().position(|name| is_named_as_root(Path::new(name)));
    first.map_or(names.len(), |first| first.saturating_add(1))
}

/// Returns the part of a path that exists, which is a directory, and the missing names.
fn existing(path: &Path) -> Result<(PathBuf, Vec<String>), Failure> {
    let shown = path.display();
    let absolute = std::path::absolute(path)?;
    for above in absolute.ancestors() {
        match std::fs::metadata(above) {
            Ok(found) if found.is_dir() => {
                let rest = absolute.strip_prefix(above).unwrap_or(Path::new(""));
                return Ok((above.canonicalize()?, components(rest, path)?));
            }
            Ok(_) => return Err(failed(format!("{}: not a directory", above.display()))),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(failed(format!("{}: {error}", above.display()))),
        }
    }
    Err(failed(format!("{shown}: no such directory")))
}

/// Whether the error means that nothing exists at a path.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn components(path: &Path, typed: &Path) -> Result<Vec<String>, Failure> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => name.to_str().map(str::to_owned),
        _ => None,
    };
    let names: Option<Vec<String>> = path.components().map(name).collect();
    names.ok_or_else(|| failed(format!("{}: the path is not valid UTF-8", typed.display())))
}
