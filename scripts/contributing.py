#!/usr/bin/env python3
"""Walks CONTRIBUTING.md: adds a toy codec, file format, dialect, mount option, option for stores and store to a copy of
the sources, step by step as the page says, builds the program and uses each.

    scripts/contributing.py     takes about 10 minutes the first time, and 3 after that

It fails if a place that the page names is not there any more, or if a toy needs a place that the page does not name.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main():
    with tempfile.TemporaryDirectory(prefix="zarrfs-contributing.") as place:
        place = Path(place)
        tree = place / "zarrfs"
        copy(tree)
        for toy in (codec, file_format, dialect, mount_option, option_for_stores, store):
            print(f"adding a toy: {toy.__name__.replace('_', ' ')}", flush=True)
            toy(tree)
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "contributing"
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "CARGO_INCREMENTAL": "0"}
        cargo = lambda *words, **more: run(["cargo", *words], cwd=tree, env={**environment, **more})
        cargo("fmt", "--all")
        print("running the tests of codecs and stores", flush=True)
        cargo("test", "-q", "--locked", "-p", "zarrfs-codec", "--lib", "--", "table::", "each_codec_of_the_table", "xor")
        cargo("test", "-q", "--locked", "-p", "zarrfs-store", "--lib", "toy")
        print("writing the pages that tests write, and looking for places that were forgotten", flush=True)
        cargo("test", "-q", "--locked", "--test", "it", "--", "page_of_all", "pictures_fit", ZARRFS_UPDATE="1")
        cargo("test", "-q", "--locked", "--test", "it", "--", "formats::", "pages::", "pictures::", "vocabulary::")
        print("using the toys", flush=True)
        use(target / "debug/zarrfs", place)
    print("CONTRIBUTING.md works")


def run(words, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout[-5000:]}{done.stderr[-5000:]}")
    return done.stdout


def copy(tree):
    names = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT).split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)


def add(tree, name, before, text):
    """Adds text before the first line that begins so, spaces aside."""
    path = tree / name
    lines = path.read_text().split("\n")
    at = [number for number, line in enumerate(lines) if line.strip().startswith(before)]
    if not at:
        sys.exit(f"{name}: no line begins with {before}")
    lines.insert(at[0], text)
    path.write_text("\n".join(lines))


def replace(tree, name, old, new):
    text = (tree / name).read_text()
    if old not in text:
        sys.exit(f"{name} does not have {old}")
    (tree / name).write_text(text.replace(old, new, 1))


def codec(tree):
    # 1. A file, and a line for it in the `mod.rs` there.
    folder = "crates/codec/src/bytes_to_bytes"
    (tree / folder / "xor.rs").write_text('''//! `xor`: each byte is changed by `key`.

use super::stream::too_long;
use crate::configuration::count;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

/// The codec `xor`.
#[derive(Debug)]
pub struct Xor(u8);

impl Xor {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        let key = count("xor", configuration, "key", 0, 0..=255)?;
        Ok(Self(u8::try_from(key).map_err(|_| Error::invalid("xor: the key is too large"))?))
    }
}

impl BytesToBytes for Xor {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        Ok(decoded.iter().map(|byte| byte ^ self.0).collect())
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        if encoded.len() > limit {
            return Err(too_long("xor", limit));
        }
        self.encode(encoded)
    }

    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        Some(decoded_len)
    }
}
''')
    add(tree, f"{folder}/mod.rs", "mod zlib;", "mod xor;")
    add(tree, f"{folder}/mod.rs", "pub use zlib::Zlib;", "pub use xor::Xor;")
    # 2. A row, and a line in `codecs` of the tests.
    table = "crates/codec/src/table.rs"
    replace(tree, table, " Zlib, Zstd, imagecodecs,", " Xor, Zlib, Zstd, imagecodecs,")
    add(tree, table, 'CodecRow::bytes_to_bytes("shuffle"', '''CodecRow::bytes_to_bytes("xor", |c| Ok(Box::new(Xor::new(c)?)))
        .zarr2("xor")
        .option()
        .with_defaults(r#"{"key": 7}"#),''')
    add(tree, f"{folder}/tests.rs", '("lz4_block_stream"', '("xor", json!({"key": 255})),')
    # 3. The page, and the help of --codecs.
    add(tree, "docs/formats.md", "| `bitround` |", "| `xor` | yes | yes | a toy |")
    replace(tree, "src/cli/args/mount.rs", "shuffle, zlib, zstd.", "shuffle, xor, zlib, zstd.")


def file_format(tree):
    # 1. A file with one function.
    folder = "src/view/formats"
    (tree / folder / "toy.rs").write_text('''//! `toy`: a line of text, and the elements.

use crate::error::Result;
use crate::view::layout::{Layout, NumberForm};
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let header = format!("toy {:?}\\n", source.array()?.model().shape);
    let elements = source.elements(Layout::Linear, NumberForm::default())?;
    View::new([Part::Bytes(header.into()), Part::from(elements)])
}
''')
    add(tree, f"{folder}/mod.rs", "mod vti;", "mod toy;")
    # 2. A row.
    replace(tree, f"{folder}/mod.rs", "pub const FORMATS: &[Format] = &[", '''pub const FORMATS: &[Format] = &[
    Format {
        extension: "toy",
        what: "a toy",
        nodes: Nodes::Arrays,
        says: Says::Nothing,
        build: toy::build,
    },''')
    # 3. The page.
    add(tree, "docs/formats.md", "| `npy` | array |", "| `toy` | array | all of fixed length | |")


def dialect(tree):
    # 1. A file that lowers its metadata files.
    folder = "crates/hierarchy/src/metadata"
    (tree / folder / "toy.rs").write_text('''//! `toy`: a `toy.json` in every directory of a node, with members of Zarr 3.

use super::model::{Lowered, NodeKind, NodeMetadata};
use super::v3;

/// The name of the metadata file in every directory of a node.
pub(super) const DOCUMENT: &str = "toy.json";

/// Lowers a metadata file.
pub(super) fn lower(text: &[u8]) -> Lowered {
    let document = match zarrfs_codec::json::parse_object(text) {
        Ok(document) => document,
        Err(error) => return Lowered { kind: NodeKind::Group, node: Err(error) },
    };
    if document.contains_key("shape") {
        let node = v3::array(&document).map(|array| NodeMetadata::Array(Box::new(array)));
        return Lowered { kind: NodeKind::Array, node };
    }
    Lowered { kind: NodeKind::Group, node: v3::group(&document).map(NodeMetadata::Group) }
}
''')
    add(tree, f"{folder}/mod.rs", "mod types;", "mod toy;")
    # 2. A variant, and the arms that the compiler names.
    variants = f"{folder}/dialect.rs"
    replace(tree, variants, "use super::{d2023, draft, n5, v2, v3};", "use super::{d2023, draft, n5, toy, v2, v3};")
    add(tree, variants, "/// N5, with the dimensions reversed", "/// A toy.\n    Toy,")
    replace(tree, variants, "[Self::V3, Self::V2, Self::N5, Self::D2023_02]", "[Self::V3, Self::V2, Self::N5, Self::Toy, Self::D2023_02]")
    add(tree, variants, 'Self::N5 => "n5",', 'Self::Toy => "toy",')
    add(tree, variants, "Self::N5 => &[(None, n5::DOCUMENT)],", "Self::Toy => &[(None, toy::DOCUMENT)],")
    add(tree, variants, "Self::N5 => n5::lower(text),", "Self::Toy => toy::lower(text),")
    add(tree, variants, "Self::N5 => n5::group_document(path),", "Self::Toy => String::from(\"{}\"),")
    replace(tree, variants, "Self::N5 | Self::D2023_02 | Self::Draft(_) => None", "Self::N5 | Self::Toy | Self::D2023_02 | Self::Draft(_) => None")
    replace(tree, variants, "Self::D2023_02 | Self::Draft(_) => Err(", "Self::D2023_02 | Self::Toy | Self::Draft(_) => Err(")
    for name, arms in (("create", ("{}", "self.check_makes_nodes()")), ("merge", ("None", "return Ok(())"))):
        for arm in arms:
            replace(tree, f"{folder}/{name}/mod.rs", f"Self::D2023_02 => {arm}", f"Self::D2023_02 | Self::Toy => {arm}")
    replace(tree, f"{folder}/merge/mod.rs", "Self::V3 | Self::D2023_02 | Self::Draft(_) => {", "Self::V3 | Self::Toy | Self::D2023_02 | Self::Draft(_) => {")
    # 3. It is detected.
    add(tree, f"{folder}/detect/mod.rs", "if is_n5(store, &Prefix::root())? {", '''if has(&["toy.json"])? {
        return Ok(Some(Dialect::Toy));
    }''')
    add(tree, f"{folder}/detect/mod.rs", '"root.group.json",', '"toy.json",')
    # 4. The page.
    add(tree, "docs/formats.md", "| `d2020-10`", "| `toy` | yes | yes | refused: a toy | `toy.json` |")


def mount_option(tree):
    # 1. A field with its help.
    add(tree, "src/cli/args/mount.rs", "/// Dialect of the hierarchy: v3 or v2", '''/// A toy: no array has a file with the extension `toy`.
    #[arg(long)]
    pub no_toys: bool,''')
    # 2. Passed on in `vfs_options`.
    add(tree, "src/cli/mount/typed.rs", "listed_views: args.tree.views", "no_toys: args.tree.no_toys,")
    add(tree, "src/vfs/options.rs", "/// Which views are listed.", "/// Whether there are no toys.\n    pub no_toys: bool,")
    add(tree, "src/vfs/options.rs", "listed_views: ListedViews::default(),", "no_toys: false,")
    replace(tree, "src/vfs/names/views.rs", "pub fn shows(&self, format: &Format) -> bool {\n", '''pub fn shows(&self, format: &Format) -> bool {
        if self.core.options.no_toys && format.extension == "toy" {
            return false;
        }
''')


def option_for_stores(tree):
    # 1. A field of `Remote`, 2. passed on to `http::HttpOptions`, 3. named in docs/http.md.
    remote, client = "src/cli/open/remote.rs", "crates/store/src/http/client.rs"
    add(tree, remote, "/// The most requests at a time.", '''/// A toy: a name that each request to a web server has.
    #[arg(long, value_name = "NAME")]
    pub toy_name: Option<String>,''')
    replace(tree, remote, "http::HttpOptions { headers, retry_for: self.retry_for }",
            "http::HttpOptions { headers, retry_for: self.retry_for, toy_name: self.toy_name.clone() }")
    add(tree, client, "/// How long a request is tried again.", "/// A toy.\n    pub toy_name: Option<String>,")
    page = tree / "docs/http.md"
    page.write_text(page.read_text() + "\n`--toy-name NAME` is a toy.\n")


def store(tree):
    # 1. A file that implements the traits, 2. and passes the suite.
    (tree / "crates/store/src/toy.rs").write_text('''//! A store that holds the values of one prefix of another: what the suite asks for, it hands on.

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::memory::MemoryStore;
    use crate::{
        ByteRange, Capacity, Key, ReadableStore, Stat, Store, Value, suite,
    };
    use zarrfs_base::error::Result;

    #[derive(Debug)]
    struct ToyStore(MemoryStore);

    impl ReadableStore for ToyStore {
        fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
            self.0.get_partial_values(ranges)
        }

        fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
            self.0.stat(keys)
        }

        fn room(&self) -> Result<Option<Capacity>> {
            Ok(None)
        }
    }

    #[test]
    fn a_toy_reads_and_the_suite_runs_over_a_store() {
        let toy: &dyn ReadableStore = &ToyStore(MemoryStore::new());
        assert!(toy.stat(&[Key::parse("a").expect("a key")]).expect("answered")[0].is_none());
        suite::run(|| Store::new(Arc::new(MemoryStore::new())));
    }
}
''')
    add(tree, "crates/store/src/lib.rs", "mod value;", "mod toy;")


def use(zarrfs, place):
    array = place / "toy.zarr/a"
    run([zarrfs, "create", array, "--shape", "4", "--chunks", "4", "--dtype", "uint8", "--codecs", "xor"])
    mountpoint = place / "mnt"
    mountpoint.mkdir()
    for options, is_there in (([], True), (["--no-toys"], False)):
        run([zarrfs, "mount", place / "toy.zarr", mountpoint, *options])
        try:
            (mountpoint / "a/c").mkdir(exist_ok=True)
            (mountpoint / "a/c/0").write_bytes(b"abcd")
            toy = mountpoint / "a.toy"
            assert toy.exists() == is_there, options
            assert not is_there or toy.read_bytes() == b"toy [4]\nabcd", toy.read_bytes()
        finally:
            run([zarrfs, "umount", mountpoint])
    stored = (array / "c/0").read_bytes()
    assert stored == bytes(byte ^ 7 for byte in b"abcd"), stored
    assert json.loads((array / "zarr.json").read_text())["codecs"][-1]["name"] == "xor"
    hierarchy = place / "dialect.zarr"
    (hierarchy / "a/c").mkdir(parents=True)
    members = {"shape": [4], "data_type": "uint8", "fill_value": 0, "codecs": [{"name": "bytes"}],
               "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
               "chunk_key_encoding": {"name": "default"}}
    (hierarchy / "toy.json").write_text('{"attributes": {"is": "a toy"}}')
    (hierarchy / "a/toy.json").write_text(json.dumps(members))
    (hierarchy / "a/c/0").write_bytes(b"abcd")
    run([zarrfs, "mount", hierarchy, mountpoint])
    try:
        assert json.loads((mountpoint / "zarr.json").read_text())["attributes"] == {"is": "a toy"}
        assert (mountpoint / "a.raw").read_bytes() == b"abcd"
        (mountpoint / "a/c/0").write_bytes(b"efgh")
    finally:
        run([zarrfs, "umount", mountpoint])
    assert (hierarchy / "a/c/0").read_bytes() == b"efgh"
    assert "--toy-name" in run([zarrfs, "mount", "--help"])


if __name__ == "__main__":
    main()
