//! Sources that are references into other stores: `icechunk+REPOSITORY@BRANCH`, `kerchunk+FILE`,
//! where FILE is JSON or a directory with Parquet files, `file+FILE`, a file of another format, and
//! `precomputed+VOLUME`, a volume of Neuroglancer.

use std::fmt::{self, Display};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::CommandFactory as _;

use super::archive;
use super::remote::{self, Remote};
use crate::cli::failure::{Failure, failed};
use crate::error::Error;
use crate::files::{self, FileFormat, precomputed};
use crate::limits;
use crate::metadata::{DOCUMENT_NAMES, NodePath};
use crate::resources;
use crate::store::directory::{DirectoryStore, Durability};
use crate::store::refs::{SourceStores, Spelling};
use crate::store::within::Within;
use crate::store::{ByteRange, Key, Prefix, Store, icechunk, kerchunk};

const ICECHUNK: &str = "icechunk+";
const KERCHUNK: &str = "kerchunk+";
const FILE: &str = "file+";
const VOLUME: &str = "precomputed+";

/// How each of them begins.
const PREFIXES: [&str; 4] = [ICECHUNK, KERCHUNK, FILE, VOLUME];

/// References, and where they are.
#[derive(Debug, Clone)]
pub struct References {
    /// Where the repository is, or the file with references.
    base: ReferencesPlace,
    format: ReferencesFormat,
    /// The node that acts as a hierarchy.
    node: NodePath,
    /// The directory of a file with references as it was typed, if that differs from `base`.
    spelled: Option<PathBuf>,
}

/// A place that can be read.
#[derive(Debug, Clone)]
enum ReferencesPlace {
    Directory(PathBuf),
    /// A zip archive: all of it, or the hierarchy in it.
    Archive(PathBuf, ArchivePart),
    Url(String),
}

/// The part of an archive that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArchivePart {
    All,
    /// The only directory, if it has one.
    Root,
}

impl ReferencesPlace {
    /// Opens the store there, which caches names for `ttl`.
    fn store(&self, remote: &Remote, ttl: Duration) -> Result<Store, Failure> {
        let store = match self {
            Self::Directory(path) => {
                Store::new(Arc::new(DirectoryStore::open(path, Durability::Buffered)?))
            }
            Self::Archive(path, ArchivePart::All) => archive::whole(path, ttl)?,
            Self::Archive(path, ArchivePart::Root) => archive::store(path, ttl)?,
            Self::Url(url) => remote.store(url, ttl)?,
        };
        Ok(store.read_only())
    }
}

impl Display for ReferencesPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) | Self::Archive(path, _) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(&remote::shown(url)),
        }
    }
}

#[derive(Debug, Clone)]
enum ReferencesFormat {
    /// A repository, with the branch, tag or snapshot.
    Icechunk(Option<String>),
    /// A file of references in JSON, or a directory of those in Parquet files, with its place.
    Kerchunk(Prefix),
    /// A file of another format, with its key.
    File(Key),
    /// A volume of Neuroglancer.
    Volume,
}

/// Whether a source that was typed is references.
pub fn is_named(source: &Path) -> bool {
    let typed = source.as_os_str().as_encoded_bytes();
    PREFIXES.iter().any(|prefix| typed.starts_with(prefix.as_bytes()))
        || source.to_str().and_then(recognised).is_some()
}

/// How many bytes of a file tell references in JSON from other files.
const FIRST_LEN: u64 = 64 << 10;

/// Returns the prefix of a local source that was typed without it, but is references by what is
/// there.
fn recognised(typed: &str) -> Option<&'static str> {
    if typed.contains("://") {
        let path = typed.split(['?', '#']).next().unwrap_or(typed);
        return FileFormat::is_named(path).then_some(FILE);
    }
    let whole = typed.rsplit_once('#').filter(|_| !Path::new(typed).exists());
    let root = whole.map_or(typed, |(root, _)| root);
    let state = root.rsplit_once('@').filter(|_| !Path::new(root).exists());
    let path = Path::new(state.map_or(root, |(root, _)| root));
    let Ok(found) = path.metadata() else { return scale_of(typed).map(|_| VOLUME) };
    if found.is_dir() {
        let is_parquet = || are_in_parquet(path).then_some(KERCHUNK);
        let is_other = || is_volume(path).then_some(VOLUME);
        return is_repository(path).then_some(ICECHUNK).or_else(is_parquet).or_else(is_other);
    }
    if !found.is_file() || state.is_some() {
        return None;
    }
    let is_other = || is_of_format(path).then_some(FILE);
    is_in_json(path).then_some(KERCHUNK).or_else(is_other)
}

/// Whether a file has a format that is read as a hierarchy.
fn is_of_format(path: &Path) -> bool {
    let mut first = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(files::FIRST_LEN).read_to_end(&mut first));
    let is_known = read.is_ok() && FileFormat::of_first_bytes(&first).is_some();
    // The signature of HDF5 may come later.
    is_known || path.to_str().is_some_and(FileFormat::is_named)
}

/// Whether a directory is a volume of Neuroglancer.
fn is_volume(dir: &Path) -> bool {
    let path = dir.join(precomputed::INFO);
    // Opening a FIFO would block.
    let is_file = std::fs::metadata(&path).is_ok_and(|found| found.is_file());
    if !is_file || DOCUMENT_NAMES.iter().any(|name| dir.join(name).is_file()) {
        return false;
    }
    let most = limits::METADATA.get();
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut text));
    read.is_ok() && precomputed::is_info(&text)
}

/// Splits the path of a scale, as if it were a directory in that of its volume.
fn scale_of(typed: &str) -> Option<(&str, &str)> {
    let (dir, scale) = typed.strip_suffix('/').unwrap_or(typed).rsplit_once('/')?;
    let is_number = !scale.is_empty() && scale.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !Path::new(typed).exists() && is_volume(Path::new(dir))).then_some((dir, scale))
}

/// Whether a directory is an Icechunk repository.
fn is_repository(dir: &Path) -> bool {
    let is_zarr = [".zgroup", ".zarray", "zarr.json"].iter().any(|it| dir.join(it).is_file());
    let has_states = dir.join("repo").is_file() || dir.join("refs/branch.main/ref.json").is_file();
    !is_zarr && has_states && dir.join("snapshots").is_dir()
}

/// Whether a file begins like references of kerchunk.
fn is_in_json(path: &Path) -> bool {
    if path.file_name().is_some_and(|name| DOCUMENT_NAMES.iter().any(|it| name == *it)) {
        return false;
    }
    // Opening a FIFO would block.
    if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return false;
    }
    let mut first = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(FIRST_LEN).read_to_end(&mut first));
    let text = String::from_utf8_lossy(&first);
    let names = ["\"refs\"", ".zgroup\"", ".zarray\"", "zarr.json\""];
    read.is_ok() && text.trim_start().starts_with('{') && names.iter().any(|it| text.contains(it))
}

/// The metadata of references in Parquet files.
const PARQUET_METADATA: &str = ".zmetadata";

/// How many bytes at the end of that file have the record size. Nothing comes after it.
const RECORD_SIZE_LEN: u64 = 256;

/// The metadata files at the root of a hierarchy, which references in Parquet files do not have:
/// consolidated metadata lies beside one.
const ROOT_DOCUMENTS: [&str; 3] = [".zgroup", ".zarray", "zarr.json"];

/// Whether a directory has references of kerchunk in Parquet files.
fn are_in_parquet(dir: &Path) -> bool {
    let path = dir.join(PARQUET_METADATA);
    // Opening a FIFO would block.
    let Ok(found) = std::fs::metadata(&path) else { return false };
    if !found.is_file() || ROOT_DOCUMENTS.iter().any(|name| dir.join(name).exists()) {
        return false;
    }
    let mut last = Vec::new();
    let read = std::fs::File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(found.len().saturating_sub(RECORD_SIZE_LEN)))?;
        file.take(RECORD_SIZE_LEN).read_to_end(&mut last)
    });
    read.is_ok() && has_record_size(&last)
}

/// Whether a store has references of kerchunk in Parquet files, as far as can be said.
pub fn may_be_in_parquet(store: &Store) -> bool {
    let Ok(key) = Key::parse(PARQUET_METADATA) else { return false };
    let last = store.read().get_partial_values(&[(key, ByteRange::Suffix(RECORD_SIZE_LEN))]);
    let last = last.ok().and_then(|mut values| values.pop().flatten());
    last.is_some_and(|value| has_record_size(&value.bytes)) && {
        let has = |name: &str| {
            Key::parse(name).is_ok_and(|key| store.stat(&key).is_ok_and(|it| it.is_some()))
        };
        !ROOT_DOCUMENTS.into_iter().any(has)
    }
}

/// Whether these bytes at the end of the metadata have the record size.
fn has_record_size(last: &[u8]) -> bool {
    String::from_utf8_lossy(last).contains("\"record_size\"")
}

/// The sentence about such an archive or URL, which is opened as something else.
pub fn say_parquet(shown: &dyn Display) -> String {
    format!("references of kerchunk in Parquet files: type {KERCHUNK}{shown}")
}

/// Returns what a source on a server is if it is no hierarchy, and the command that opens it.
pub fn hint(url: &str, store: &Store) -> Option<String> {
    let shown = remote::shown(url);
    let has = |key: &str| {
        let stat = Key::parse(key).and_then(|key| store.stat(&key));
        stat.is_ok_and(|stat| stat.is_some())
    };
    if ["repo", "refs/branch.main/ref.json"].into_iter().any(has) {
        return Some(format!("an Icechunk repository: type {ICECHUNK}{shown}"));
    }
    if may_be_in_parquet(store) {
        return Some(say_parquet(&shown));
    }
    let path = url.split_once('?').map_or(url, |(path, _)| path);
    let is_json = Path::new(path).extension().is_some_and(|end| end.eq_ignore_ascii_case("json"));
    is_json.then(|| {
        format!(
            "nothing is stored below it; if it is a file with references, type {KERCHUNK}{shown}"
        )
    })
}

/// Fails if a path that a command would write to is references.
pub fn refuse(path: &Path) -> Result<(), Failure> {
    if is_named(path) {
        return Err(failed(format!("{}: {}", path.display(), "zarrfs only reads such a source")));
    }
    Ok(())
}

/// Returns the references that were typed; `None` for another source.
pub fn parse(source: &Path) -> Result<Option<References>, Failure> {
    let Some(typed) = source.to_str() else { return Ok(None) };
    if let Some(rest) = typed.strip_prefix(ICECHUNK) {
        return repository(rest).map(Some);
    }
    if let Some(rest) = typed.strip_prefix(KERCHUNK) {
        return file(rest, KERCHUNK).map(Some);
    }
    if let Some(rest) = typed.strip_prefix(FILE) {
        return file(rest, FILE).map(Some);
    }
    if let Some(rest) = typed.strip_prefix(VOLUME) {
        return volume(rest).map(Some);
    }
    match recognised(typed) {
        Some(ICECHUNK) => repository(typed).map(Some),
        Some(VOLUME) => volume(typed).map(Some),
        Some(scheme) => file(typed, scheme).map(Some),
        None => Ok(None),
    }
}

/// Splits a source at `#` if a node follows. The names of directories may have a `#`, too.
fn split_node(typed: &str) -> Result<(&str, NodePath), Failure> {
    if Path::new(typed).exists() {
        return Ok((typed, NodePath::root()));
    }
    let (root, node) = typed.rsplit_once('#').unwrap_or((typed, ""));
    Ok((root, NodePath::parse(node).map_err(|error| failed(error.to_string()))?))
}

fn repository(typed: &str) -> Result<References, Failure> {
    let (typed, node) = split_node(typed)?;
    let split = || match typed.rsplit_once('@') {
        Some((root, state)) => (root, Some(state.to_owned())),
        None => (typed, None),
    };
    let (root, state) = if Path::new(typed).is_dir() { (typed, None) } else { split() };
    let base =
        place(root).ok_or_else(|| failed(format!("{ICECHUNK}{typed}: no such directory")))?;
    Ok(References { base, format: ReferencesFormat::Icechunk(state), node, spelled: None })
}

/// Returns the place at a URL or in a directory; `None` if there is no such directory.
fn place(root: &str) -> Option<ReferencesPlace> {
    match remote::url(Path::new(root)) {
        Some(url) => Some(ReferencesPlace::Url(url.to_owned())),
        None => Path::new(root).canonicalize().ok().map(ReferencesPlace::Directory),
    }
}

fn volume(typed: &str) -> Result<References, Failure> {
    let (root, node) = match scale_of(typed) {
        Some((root, scale)) => (root, NodePath::root().child(scale)?),
        None => split_node(typed)?,
    };
    let base = place(root).ok_or_else(|| failed(format!("{VOLUME}{typed}: no such directory")))?;
    Ok(References { base, format: ReferencesFormat::Volume, node, spelled: None })
}

/// Returns references in a file, or a file of another format, as `scheme` says.
fn file(typed: &str, scheme: &str) -> Result<References, Failure> {
    let (typed, node) = split_node(typed)?;
    let shown = remote::shown(typed);
    let refused = |why: &dyn Display| failed(format!("{scheme}{shown}: {why}"));
    let mut spelled = None;
    let (base, name) = if let Some(url) = remote::url(Path::new(typed)) {
        // A slash may follow a directory.
        let url = url.strip_suffix('/').unwrap_or(url);
        let (base, name) =
            remote::split_file(url).ok_or_else(|| refused(&"the URL names no file"))?;
        (ReferencesPlace::Url(base), name)
    } else if let Some((archive, node)) = archive_of(typed, scheme)? {
        let part = if node.is_root() { ArchivePart::Root } else { ArchivePart::All };
        (ReferencesPlace::Archive(archive, part), node.as_str().to_owned())
    } else {
        spelled = std::path::absolute(typed).ok().and_then(|it| it.parent().map(Path::to_owned));
        let path = Path::new(typed).canonicalize().map_err(|_| refused(&"no such file"))?;
        if scheme == FILE && path.is_dir() {
            return Err(refused(&"a directory, not a file"));
        }
        if path.is_dir() && !are_in_parquet(&path) {
            return Err(refused(
                &"a directory without a .zmetadata that has a record_size; zarrfs reads references \
                  in a JSON file, or in a directory of Parquet files",
            ));
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let above = path.parent().unwrap_or(Path::new("/"));
        (ReferencesPlace::Directory(above.to_owned()), name)
    };
    let format = if scheme == FILE {
        Key::parse(&name).map(ReferencesFormat::File)
    } else {
        Prefix::parse(&name).map(ReferencesFormat::Kerchunk)
    };
    let format = format.map_err(|error| refused(&error.detail()))?;
    Ok(References { base, format, node, spelled })
}

/// Returns the archive that a source is in, and its node there. A file that is read as a hierarchy
/// may be an archive itself.
fn archive_of(typed: &str, scheme: &str) -> Result<Option<(PathBuf, NodePath)>, Failure> {
    if scheme == FILE && Path::new(typed).is_file() {
        return Ok(None);
    }
    archive::find(Path::new(typed))
}

/// Returns the store of what is `below` a volume.
fn volume_store(own: &Store, below: Prefix, ttl: Duration) -> crate::error::Result<Store> {
    let volume = precomputed::open(own, ttl)?
        .ok_or_else(|| Error::invalid("not a Neuroglancer volume: it has no valid file `info`"))?;
    if below.is_root() {
        return Ok(volume);
    }
    Ok(Store::reading(Arc::new(Within::new(volume, below))))
}

impl References {
    /// Returns the directory of a repository.
    pub fn directory(&self) -> Option<&Path> {
        match (&self.base, &self.format) {
            (
                ReferencesPlace::Directory(path),
                ReferencesFormat::Icechunk(_) | ReferencesFormat::Volume,
            ) => Some(path),
            // A file with references may lie beside anything.
            (
                ReferencesPlace::Directory(_),
                ReferencesFormat::Kerchunk(_) | ReferencesFormat::File(_),
            )
            | (ReferencesPlace::Archive(..) | ReferencesPlace::Url(_), _) => None,
        }
    }

    /// Opens the store of what the references lead to. `ttl` is for names.
    pub fn store(&self, remote: &Remote, ttl: Duration) -> Result<Store, Failure> {
        let explain = |error: &dyn Display| failed(format!("{self}: {error}"));
        let own = self.base.store(remote, ttl)?;
        let mut allowed = Vec::new();
        for typed in &remote.allow_virtual {
            allowed.push(Allowed::parse(typed)?);
        }
        let has_headers = !remote.headers.is_empty();
        let addressee = if has_headers { self.addressee(&allowed)? } else { None };
        let mut opened = Vec::new();
        for Allowed { prefixes, place } in allowed {
            let remote = match (&place, &addressee) {
                (ReferencesPlace::Url(url), Some(server))
                    if remote::are_on_one_server(url, server) =>
                {
                    remote
                }
                _ => &remote.without_headers(),
            };
            opened.push((prefixes, place.store(remote, ttl)?));
        }
        let command = command_with(self);
        let allow = |places: &mut SourceStores| {
            places.name_command(command);
            for (prefixes, store) in opened {
                places.allow(prefixes.iter().map(String::as_str), store);
            }
        };
        let below = Prefix::parse(self.node.as_str())?;
        match &self.format {
            ReferencesFormat::Icechunk(state) => {
                let state = state.as_deref().unwrap_or(icechunk::MAIN);
                let opened = icechunk::open(&own, state, below, ttl, allow);
                opened.map_err(|error| explain(&error))
            }
            ReferencesFormat::File(key) => {
                let mut places = self.own_places(&own);
                allow(&mut places);
                let opened = files::open(&own, key, below, places, resources::memory_limit() / 4);
                opened.map_err(|error| explain(&error))
            }
            ReferencesFormat::Volume => {
                volume_store(&own, below, ttl).map_err(|error| explain(&error))
            }
            ReferencesFormat::Kerchunk(place) => {
                let mut places = self.own_places(&own);
                allow(&mut places);
                let opened =
                    kerchunk::open(&own, place, below, places, resources::memory_limit() / 4);
                let (store, refused) = opened.map_err(|error| explain(&error))?;
                for error in refused {
                    log::warn!("{self}: chunks cannot be read: {}", error.detail());
                }
                Ok(store)
            }
        }
    }

    /// Returns the store of the file itself as one that references may lead to.
    fn own_places(&self, own: &Store) -> SourceStores {
        let mut places = SourceStores::new(own.clone(), Spelling::Plain);
        let base = self.base.to_string();
        let base = base.split_once('?').map_or(base.as_str(), |(path, _)| path);
        let spelled = self.spelled.as_ref().map(|path| path.display().to_string());
        places.allow_own(std::iter::once(base).chain(spelled.as_deref()));
        places
    }

    /// Returns a URL on the web server that gets the headers of the user: that of the references,
    /// or the only one that they may lead to. An error names two of them, if there are several.
    fn addressee(&self, allowed: &[Allowed]) -> Result<Option<String>, Failure> {
        if let ReferencesPlace::Url(url) = &self.base
            && remote::is_web(url)
        {
            return Ok(Some(url.clone()));
        }
        let mut urls = allowed.iter().filter_map(|allowed| match &allowed.place {
            ReferencesPlace::Url(url) if remote::is_web(url) => Some(url.as_str()),
            ReferencesPlace::Url(_)
            | ReferencesPlace::Archive(..)
            | ReferencesPlace::Directory(_) => None,
        });
        let Some(first) = urls.next() else { return Ok(None) };
        match urls.find(|url| !remote::are_on_one_server(url, first)) {
            None => Ok(Some(first.to_owned())),
            Some(other) => Err(failed(format!(
                "--header: it is sent to one web server, and --allow-virtual names several \
                 ({} and {}): leave the header out, or allow one server",
                remote::shown(first),
                remote::shown(other)
            ))),
        }
    }

    /// Whether they may lead to a server.
    pub fn may_lead_to_server(&self, remote: &Remote) -> bool {
        let is_remote = |typed: &String| {
            let split = typed.split_once('=').filter(|(prefix, _)| !prefix.contains('?'));
            let place = split.map_or(typed.as_str(), |(_, place)| place);
            directory_of(place).is_none() && remote::url(Path::new(place)).is_some()
        };
        self.is_remote() || remote.allow_virtual.iter().any(is_remote)
    }

    /// Whether they are on a server.
    pub fn is_remote(&self) -> bool {
        matches!(self.base, ReferencesPlace::Url(_))
    }

    /// Returns why no program can write there.
    pub fn why_read_only(&self) -> &'static str {
        match &self.format {
            ReferencesFormat::Icechunk(_) => {
                "mounted read-only, because zarrfs only reads Icechunk repositories"
            }
            ReferencesFormat::Kerchunk(_) => {
                "mounted read-only, because it refers to parts of other files"
            }
            ReferencesFormat::File(_) => {
                "mounted read-only, because zarrfs only reads files of this format"
            }
            ReferencesFormat::Volume => {
                "mounted read-only, because zarrfs only reads volumes of Neuroglancer"
            }
        }
    }
}

impl Display for References {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.format {
            ReferencesFormat::Icechunk(None) => write!(f, "{ICECHUNK}{}", self.base)?,
            ReferencesFormat::Icechunk(Some(state)) => {
                write!(f, "{ICECHUNK}{}@{state}", self.base)?;
            }
            ReferencesFormat::Volume => match &self.base {
                // Its file `info` is enough.
                ReferencesPlace::Directory(path) => write!(f, "{}", path.display())?,
                ReferencesPlace::Archive(..) | ReferencesPlace::Url(_) => {
                    write!(f, "{VOLUME}{}", self.base)?;
                }
            },
            ReferencesFormat::File(key) => match &self.base {
                // Its name is enough.
                ReferencesPlace::Directory(path) => {
                    write!(f, "{}", path.join(key.as_str()).display())?;
                }
                ReferencesPlace::Archive(path, _) => {
                    write!(f, "{FILE}{}/{key}", path.display())?;
                }
                ReferencesPlace::Url(_) => {
                    let base = self.base.to_string();
                    let (base, query) = base
                        .split_at_checked(base.find('?').unwrap_or(base.len()))
                        .unwrap_or_default();
                    write!(f, "{base}/{key}{query}")?;
                }
            },
            ReferencesFormat::Kerchunk(place) => {
                let base = self.base.to_string();
                // The query of a URL comes after the name.
                let query = base.find('?').filter(|_| self.is_remote()).unwrap_or(base.len());
                let (base, query) = base.split_at_checked(query).unwrap_or((&base, ""));
                write!(f, "{KERCHUNK}{base}")?;
                if let Some(key) = place.as_key() {
                    write!(f, "/{key}")?;
                }
                f.write_str(query)?;
            }
        }
        if self.node.is_root() { Ok(()) } else { write!(f, "#{}", self.node.as_str()) }
    }
}

/// Returns the command that was typed, with a source, to tell the user what to add.
fn command_with(source: &References) -> String {
    let name = std::env::args()
        .nth(1)
        .filter(|word| crate::cli::args::Args::command().find_subcommand(word).is_some());
    format!("zarrfs {} {source}", name.as_deref().unwrap_or("mount"))
}

/// Returns the path in a URL of a local directory.
fn directory_of(place: &str) -> Option<&str> {
    ["file://", "local://"].iter().find_map(|scheme| place.strip_prefix(scheme))
}

/// A place that references may lead to, because the user allowed it.
struct Allowed {
    /// The beginnings of locations there.
    prefixes: Vec<String>,
    place: ReferencesPlace,
}

impl Allowed {
    /// Parses `PREFIX`, or `PREFIX=PLACE` for files that are elsewhere than references say.
    fn parse(typed: &str) -> Result<Self, Failure> {
        // The query of a URL may have such a sign, too.
        let split = typed.split_once('=').filter(|(prefix, _)| !prefix.contains('?'));
        let path = typed.split_once('?').filter(|_| remote::is_web(typed));
        let prefix = path.map_or(typed, |(path, _)| path);
        let (prefix, target) = split.unwrap_or((prefix, typed));
        let wrong = |why: &dyn Display| failed(format!("--allow-virtual {typed}: {why}"));
        if prefix.is_empty() {
            return Err(wrong(&"expected the prefix of URLs or a directory"));
        }
        // Relative ones begin at the working directory. Those that stand for another place also
        // begin at the references, which is how references have them.
        let is_path = !prefix.contains("://");
        let mut prefixes = Vec::new();
        if !is_path || Path::new(prefix).is_absolute() || target != typed {
            prefixes.push(prefix.to_owned());
        }
        if is_path {
            let absolute = std::path::absolute(prefix).map_err(|error| wrong(&error))?;
            prefixes.push(absolute.display().to_string());
        }
        let path = directory_of(target);
        let url = remote::url(Path::new(target)).filter(|_| path.is_none());
        let place = if let Some(url) = url {
            ReferencesPlace::Url(url.to_owned())
        } else {
            let path = PathBuf::from(path.unwrap_or(target));
            let path = path.canonicalize().map_err(|error| wrong(&error))?;
            if target == typed {
                prefixes.push(path.display().to_string());
            }
            ReferencesPlace::Directory(path)
        };
        Ok(Self { prefixes, place })
    }
}
