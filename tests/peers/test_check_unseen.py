"""Damage that a person may meet: each kind has exactly the findings that docs/check.md promises, and no others."""

import contextlib
import gzip
import http.server
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, ZstdCodec

from mounts import BIN, PATIENCE
from test_check import (
    A,
    UUID,
    Store,
    check,
    consolidate,
    copied,
    flip,
    healthy,
    repaired,
    run,
    set_entry,
    shard_of,
    tree,
    with_entries,
)

__all__ = ["healthy"]
V3 = ("v3", "sharded")
PLAIN = ("v3", "v2", "n5")
ALL = ("v3", "sharded", "v2", "n5")
NONE = 2**64 - 1


@dataclass
class Kind:
    """`do(store)` makes the damage. `found(store)` are the codes and keys of all findings; `reason` is in one of them."""

    do: Callable
    found: Callable
    reason: str = ""
    only: tuple = ("v3",)


def nothing(store):
    return set()


def at_meta(code, node="raw"):
    return lambda s: {(code, s.meta(node))}


def at_chunk(code, node="packed"):
    return lambda s: {(code, s.chunk(node))}


def only_key(code, key):
    return lambda s: {(code, key)}


def member(**members):
    return lambda s: s.edit(s.meta("raw"), lambda document: document.update(members))


def without(name):
    return lambda s: s.edit(s.meta("raw"), lambda document: document.pop(name))


def metadata_of_group(data):
    return lambda s: s.put("g/zarr.json", data)


def file(key, data=b"12"):
    return lambda s: s.put(key, data)


def swapped(store):
    """No check can find this."""
    one, two = (store.at(store.chunk("packed", *place)) for place in [(0, 0), (1, 1)])
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)


def index_of_another(store):
    other = store.at(store.chunk("raw")).read_bytes()[-68:]
    store.change(store.chunk("packed"), lambda data: data[:-68] + other)


def dangling(store):
    path = store.at(store.chunk("raw"))
    path.unlink()
    os.symlink("gone", path)


def endless(store):
    path = store.at(store.chunk("raw"))
    path.unlink()
    os.symlink(path.name, path)


def stream(codec, change):
    """An array `n` of one chunk of 64 numbers, whose bytes are changed."""

    def do(store):
        array = zarr.create_array(store.path / "n", shape=(64,), chunks=(64,), dtype="i4", compressors=[codec])
        array[...] = np.arange(64)
        store.change("n/c/0", change)

    return do


def zstd(*lengths):
    encode = numcodecs.Zstd().encode
    return lambda data: b"".join(encode(np.arange(n, dtype="i4")) for n in lengths)


def blosc_header(at, form, value):
    return lambda data: data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :]


def texts(data):
    def do(store):
        array = zarr.create_array(store.path / "t", shape=(3,), chunks=(3,), dtype=str, compressors=None)
        array[...] = np.array(["a", "b", "c"], dtype=object)
        store.put("t/c/0", data)

    return do


def block(change):
    return lambda s: s.change(s.chunk("raw"), change)


def entry(slot, value):
    return lambda s: s.change(s.chunk("raw"), set_entry(slot, value))


def copies(change):
    def do(store):
        consolidate(store)
        store.edit(".zmetadata", lambda document: change(document["metadata"]))

    return do


def renamed(store):
    os.makedirs(store.path / "raw2")
    os.rename(store.path / "raw/zarr.json", store.path / "raw2/zarr.json")


def in_array(store):
    shutil.copytree(store.path / "raw", store.path / "raw/inner")


def link(target):
    return lambda s: os.symlink(target, s.path / "g/link")


def removed(*keys):
    return lambda s: [s.at(key).unlink() for key in keys]


def chunks_of(array, code, names=("c/0/0", "c/0/1", "c/1/0", "c/1/1")):
    return {(code, f"{array}/{name}") for name in names}


KINDS = {
    # Chunks.
    "the tail is zeros": Kind(
        lambda s: s.change(s.chunk("packed"), lambda d: d[:20] + bytes(len(d) - 20)),
        at_chunk("undecodable"),
        "gzip",
        PLAIN,
    ),
    "the tail of a shard is zeros": Kind(
        lambda s: s.change(s.chunk("packed"), lambda d: d[:20] + bytes(len(d) - 20)),
        at_chunk("shard-index"),
        "checksum",
        ("sharded",),
    ),
    "two chunks are swapped": Kind(swapped, nothing, only=PLAIN),
    "a chunk of another type": Kind(
        lambda s: s.put(s.chunk("packed"), gzip.compress(bytes(96))),
        at_chunk("undecodable"),
        "more than 48 bytes",
        ("v3", "v2"),
    ),
    "a chunk of another shape": Kind(
        lambda s: s.put(s.chunk("packed"), gzip.compress(bytes(40))), at_chunk("length"), "40 bytes", ("v3", "v2")
    ),
    "a link that leads nowhere": Kind(dangling, at_chunk("missing-target", "raw"), "leads to nothing", ("v3", "v2", "n5")),
    "a link that leads to itself": Kind(endless, at_chunk("unreadable", "raw"), "circular", ("v3", "v2", "n5")),
    "garbage behind gzip": Kind(
        lambda s: s.change(s.chunk("packed"), lambda d: d + b"garbage"), at_chunk("undecodable"), "gzip", PLAIN
    ),
    "gzip in two members": Kind(
        lambda s: s.put(s.chunk("packed"), gzip.compress(bytes(20)) + gzip.compress(bytes(28))), nothing
    ),
    "zstd in two frames": Kind(stream(ZstdCodec(), zstd(32, 32)), nothing),
    "zstd with garbage": Kind(stream(ZstdCodec(), lambda d: d + b"xx"), only_key("undecodable", "n/c/0"), "zstd"),
    "zstd of more elements": Kind(stream(ZstdCodec(), zstd(65)), only_key("undecodable", "n/c/0"), "256 bytes"),
    "zstd of fewer elements": Kind(stream(ZstdCodec(), zstd(63)), only_key("length", "n/c/0"), "252 bytes"),
    "a huge length in blosc": Kind(
        stream(BloscCodec(), blosc_header(4, "<I", 2**31 - 1)), only_key("undecodable", "n/c/0"), "256 bytes"
    ),
    "no length in blosc": Kind(stream(BloscCodec(), blosc_header(4, "<I", 0)), only_key("length", "n/c/0"), "0 bytes"),
    "no element size in blosc": Kind(
        stream(BloscCodec(), blosc_header(3, "B", 0)), only_key("undecodable", "n/c/0"), "typesize"
    ),
    "a short blosc header": Kind(stream(BloscCodec(), lambda d: d[:4]), only_key("undecodable", "n/c/0"), "header"),
    "gzip in place of blosc": Kind(stream(BloscCodec(), gzip.compress), only_key("undecodable", "n/c/0"), "version"),
    "a checksum alone": Kind(lambda s: s.put(s.chunk("checked"), bytes(4)), at_chunk("length", "checked"), "48"),
    "a part of a checksum": Kind(
        lambda s: s.put(s.chunk("checked"), bytes(3)), at_chunk("length", "checked"), "checksum"
    ),
    "too few strings": Kind(
        texts(struct.pack("<I", 2) + b"\1\0\0\0a" * 2), only_key("undecodable", "t/c/0"), "2 elements"
    ),
    "a huge count of strings": Kind(texts(struct.pack("<I", 2**32 - 1)), only_key("undecodable", "t/c/0"), "elements"),
    "a huge string": Kind(texts(struct.pack("<II", 3, 2**31) + b"a"), only_key("undecodable", "t/c/0"), "truncated"),
    "strings that are not UTF-8": Kind(
        texts(struct.pack("<I", 3) + b"\1\0\0\0\xff" * 3), only_key("undecodable", "t/c/0"), "UTF-8"
    ),
    # Blocks of N5.
    "a block that is too large": Kind(
        block(lambda d: d[:4] + struct.pack(">II", 5, 3) + d[12:]), at_chunk("undecodable", "raw"), "shape", ("n5",)
    ),
    "a block of another rank": Kind(
        block(lambda d: d[:2] + b"\0\3" + d[4:]), at_chunk("undecodable", "raw"), "3 dimensions", ("n5",)
    ),
    "a block in varlength mode": Kind(
        block(lambda d: b"\0\1" + d[2:12] + b"\0\0\0\x0c" + d[12:]), at_chunk("unsupported", "raw"), "varlength", ("n5",)
    ),
    "a block whose mode is damaged": Kind(block(lambda d: b"\0\1" + d[2:]), at_chunk("undecodable", "raw"), "varlength", ("n5",)),
    "a block of an unknown mode": Kind(
        block(lambda d: b"\0\x09" + d[2:]), at_chunk("undecodable", "raw"), "mode 9", ("n5",)
    ),
    "a part of a block header": Kind(block(lambda d: d[:6]), at_chunk("undecodable", "raw"), "header", ("n5",)),
    "a byte behind a block": Kind(block(lambda d: d + b"x"), at_chunk("undecodable", "raw"), "49 bytes", ("n5",)),
    # Shards.
    "the index of another shard": Kind(index_of_another, at_chunk("undecodable"), "c/0/1", ("sharded",)),
    "an offset that overflows": Kind(entry(1, (NONE - 1, 48)), at_chunk("shard-range", "raw"), "c/0/1", ("sharded",)),
    "an offset without a length": Kind(entry(1, (0, NONE)), at_chunk("shard-range", "raw"), "c/0/1", ("sharded",)),
    "a length without an offset": Kind(entry(1, (NONE, 48)), at_chunk("shard-range", "raw"), "c/0/1", ("sharded",)),
    "half of the numbers": Kind(entry(1, (2**63, 2**63)), at_chunk("shard-range", "raw"), "c/0/1", ("sharded",)),
    "an empty chunk in a shard": Kind(entry(1, (0, 0)), at_chunk("length", "raw"), "0 bytes", ("sharded",)),
    "a shard of nothing": Kind(lambda s: s.put(s.chunk("raw"), shard_of(b"", [None] * 4)), nothing, only=("sharded",)),
    "a shard whose chunks are all missing": Kind(
        lambda s: s.change(s.chunk("raw"), with_entries(lambda e: e.__setitem__(slice(None), [None] * 4))),
        at_chunk("shard-unused", "raw"),
        "192 bytes",
        ("sharded",),
    ),
    "an index at the other end": Kind(
        lambda s: s.edit(s.meta("raw"), lambda d: d["codecs"][0]["configuration"].update(index_location="start")),
        at_chunk("shard-index", "raw"),
        "checksum",
        ("sharded",),
    ),
    "inner chunks that do not divide a shard": Kind(
        lambda s: s.edit(s.meta("raw"), lambda d: d["codecs"][0]["configuration"].update(chunk_shape=[4, 4])),
        at_meta("metadata"),
        "[4, 4]",
        ("sharded",),
    ),
    # Metadata files.
    "nothing but NUL": Kind(metadata_of_group(bytes(500)), at_meta("not-json", "g"), "not JSON"),
    "an empty metadata file": Kind(metadata_of_group(b""), at_meta("not-json", "g"), "not JSON"),
    "null": Kind(metadata_of_group(b"null"), at_meta("not-json", "g"), "object"),
    "a string": Kind(metadata_of_group(b'"x"'), at_meta("not-json", "g"), "object"),
    "UTF-16": Kind(metadata_of_group('{"zarr_format": 3}'.encode("utf-16")), at_meta("not-json", "g"), "UTF-8"),
    "too deep": Kind(metadata_of_group(b"[" * 100_000), at_meta("not-json", "g"), "deep"),
    "a brace too many": Kind(
        lambda s: s.change(s.meta("raw"), lambda d: d + b"}"), at_meta("not-json"), "after the end", ALL
    ),
    "NUL behind the end": Kind(
        lambda s: s.change(s.meta("raw"), lambda d: d + bytes(99)), at_meta("not-json"), "after the end", ALL
    ),
    "20 MB of spaces": Kind(
        lambda s: s.change(s.meta("raw"), lambda d: d + b" " * 20_000_000),
        at_meta("too-large"),
        "16M",
        ("v3", "v2"),
    ),
    "a newline behind the end": Kind(lambda s: s.change(s.meta("raw"), lambda d: d + b"\n\n"), nothing, only=ALL),
    "a byte order mark": Kind(
        lambda s: s.change(s.meta("raw"), lambda d: b"\xef\xbb\xbf" + d), nothing, only=("v3", "v2")
    ),
    "no order": Kind(without("order"), at_meta("metadata"), "order is missing", ("v2",)),
    "no filters": Kind(without("filters"), at_meta("metadata"), "filters is missing", ("v2",)),
    "an unknown order": Kind(member(order="K"), at_meta("metadata"), "order", ("v2",)),
    "copies that are no object": Kind(
        lambda s: s.edit("zarr.json", lambda document: document.update(consolidated_metadata=5)),
        only_key("metadata", "zarr.json"),
        "consolidated_metadata is 5, not an object",
        V3,
    ),
    "an unknown node type": Kind(member(node_type="arry"), at_meta("metadata"), "arry", V3),
    "a shape of strings": Kind(member(shape=["6", "8"]), at_meta("metadata"), "shape", ("v3", "sharded", "v2")),
    "a shape of null": Kind(member(shape=None), at_meta("metadata"), "shape", V3),
    "a shape that is too large": Kind(member(shape=[2**70, 8]), at_meta("metadata"), "shape", ("v3", "v2")),
    "chunks of nothing": Kind(
        member(chunk_grid={"name": "regular", "configuration": {"chunk_shape": [0, 4]}}), at_meta("metadata"), "0"
    ),
    "chunks of nothing in format 2": Kind(member(chunks=[0, 4]), at_meta("metadata"), "0", ("v2",)),
    "chunks of another rank": Kind(
        member(chunk_grid={"name": "regular", "configuration": {"chunk_shape": [3]}}),
        at_meta("metadata"),
        "1 dimensions",
    ),
    "chunks of another rank in format 2": Kind(member(chunks=[3]), at_meta("metadata"), "1 dimensions", ("v2",)),
    "blocks of another rank": Kind(member(blockSize=[3]), at_meta("metadata"), "1 dimensions", ("n5",)),
    "blocks of no size": Kind(
        lambda s: s.edit(s.meta("raw"), lambda d: d.pop("blockSize")), at_meta("metadata"), "blockSize", ("n5",)
    ),
    "no data type": Kind(
        lambda s: s.edit(s.meta("raw"), lambda d: d.pop("data_type")), at_meta("metadata"), "data_type", V3
    ),
    "no chunk grid": Kind(
        lambda s: s.edit(s.meta("raw"), lambda d: d.pop("chunk_grid")), at_meta("metadata"), "chunk_grid", V3
    ),
    "a fill value of another type": Kind(member(fill_value="abc"), at_meta("metadata"), "abc", ("v3", "sharded", "v2")),
    "a fill value out of range": Kind(member(fill_value=2**40), at_meta("metadata"), "fill_value", ("v3", "v2")),
    "two codecs that make bytes": Kind(
        lambda s: s.edit(s.meta("raw"), lambda d: d["codecs"].append(d["codecs"][0])), at_meta("metadata"), "only one"
    ),
    "too few dimension names": Kind(member(dimension_names=["x"]), at_meta("metadata"), "dimension_names", V3),
    "dimension names that are numbers": Kind(
        member(dimension_names=[1, 2]), at_meta("metadata"), "dimension_names", V3
    ),
    "attributes that are a list": Kind(member(attributes=[1]), at_meta("metadata"), "attributes", V3),
    "an extension that must be understood": Kind(member(example={"x": 1}), at_meta("unknown"), "example", V3),
    "an extension that need not be understood": Kind(member(example={"must_understand": False}), nothing, only=V3),
    "a storage transformer": Kind(member(storage_transformers=[{"name": "x"}]), at_meta("unknown"), "x", V3),
    "an order that is none": Kind(member(order="X"), at_meta("metadata"), "order", ("v2",)),
    "a compressor without a name": Kind(member(compressor={"level": 1}), at_meta("metadata"), "id", ("v2",)),
    "an unknown data type of format 2": Kind(member(dtype="<q9"), at_meta("unknown"), "<q9", ("v2",)),
    "an unknown data type of N5": Kind(member(dataType="int33"), at_meta("unknown"), "int33", ("n5",)),
    "no groups above": Kind(
        removed("g/.zgroup", ".zgroup"),
        lambda s: {("missing-target", "g"), ("missing-target", "/")},
        "its attributes in g/.zattrs are not shown",
        ("v2",),
    ),
    "attributes that are no object": Kind(
        file("packed/.zattrs", b"[]"), only_key("not-json", "packed/.zattrs"), "object", ("v2",)
    ),
    "attributes of no node": Kind(file("other/.zattrs", b"{}"), only_key("foreign", "other/.zattrs"), only=("v2",)),
    "an empty group file": Kind(file("g/.zgroup", b""), only_key("not-json", "g/.zgroup"), only=("v2",)),
    "a group file without a format": Kind(
        file("g/.zgroup", b"{}"), only_key("metadata", "g/.zgroup"), "zarr_format", ("v2",)
    ),
    # Consolidated metadata.
    "a copy of another type": Kind(
        copies(lambda m: m["raw/.zarray"].update(dtype="<i8")), only_key("stale-copy", ".zmetadata"), "raw", ("v2",)
    ),
    "a copy with other attributes": Kind(
        copies(lambda m: m.update({"raw/.zattrs": {"a": 1}})), only_key("stale-copy", ".zmetadata"), "raw", ("v2",)
    ),
    "a copy that is null": Kind(
        copies(lambda m: m.update({"raw/.zarray": None})), only_key("metadata", ".zmetadata"), "object", ("v2",)
    ),
    "a copy outside of the store": Kind(
        copies(lambda m: m.update({"../x/.zarray": {}})), only_key("metadata", ".zmetadata"), "..", ("v2",)
    ),
    # Names.
    "a huge chunk index": Kind(
        file("raw/c/99999999999999999999999/0"), only_key("foreign", "raw/c/99999999999999999999999/0")
    ),
    "a negative chunk index": Kind(file("raw/-1.0"), only_key("foreign", "raw/-1.0"), only=("v2",)),
    "a chunk of another rank": Kind(file("raw/0.0.0"), only_key("foreign", "raw/0.0.0"), only=("v2",)),
    "a key of format 3 in format 2": Kind(
        file("raw/c/0/0"), only_key("other-spelling", "raw/c/0/0"), "raw/0.0", ("v2",)
    ),
    "leading zeros in format 2": Kind(file("raw/00.1"), only_key("other-spelling", "raw/00.1"), "raw/0.1", ("v2",)),
    "leading zeros in N5": Kind(file("raw/00/1"), only_key("other-spelling", "raw/00/1"), "raw/1/0", ("n5",)),
    "dots in format 3": Kind(file("raw/c.0.0"), only_key("other-spelling", "raw/c.0.0"), "raw/c/0/0"),
    "half of an array was moved": Kind(renamed, lambda s: chunks_of("raw", "no-array"), "no array"),
    "an array in an array": Kind(
        in_array, lambda s: {("node-in-array", "raw/inner/zarr.json")} | chunks_of("raw/inner", "foreign"), "/raw"
    ),
    "a link to its own directory": Kind(link("."), only_key("foreign", "g/link"), only=ALL),
    "a link to itself": Kind(link("link"), only_key("unseen", "g/link")),
    "arrays that differ in case": Kind(
        lambda s: shutil.copytree(s.path / "raw", s.path / "RAW"), only_key("case", "RAW"), "raw", ("v3", "v2")
    ),
    # What other programs leave.
    "zarr-python 2, metadata": Kind(
        file(f"raw/.zarray.{UUID}.partial"), only_key("leftover", f"raw/.zarray.{UUID}.partial"), "zarr-python", ("v2",)
    ),
    "zarr-python 2, a chunk": Kind(
        file(f"raw/0.0.{UUID}.partial"), only_key("leftover", f"raw/0.0.{UUID}.partial"), "zarr-python", ("v2",)
    ),
    "TensorStore, metadata": Kind(
        file("raw/zarr.json.__lock"), only_key("leftover", "raw/zarr.json.__lock"), "TensorStore"
    ),
    "rsync, metadata": Kind(file("raw/.zarr.json.AbCdEf"), only_key("leftover", "raw/.zarr.json.AbCdEf"), "rsync"),
    "rsync, metadata of the root": Kind(file(".zarr.json.x7Gh2k"), only_key("leftover", ".zarr.json.x7Gh2k"), "rsync"),
}
# What editors and systems leave: no reader looks at it, and nobody may remove it unasked.
FOREIGN = (
    "raw/zarr.json~ raw/.zarr.json.swp .DS_Store raw/c/0/.DS_Store ._zarr.json raw/._zarr.json Thumbs.db desktop.ini"
)
FOREIGN += " raw/.nfs000000000123 raw/zarr.json.bak raw/c/0/0~ raw/c/0/0.gz raw/#zarr.json# raw/c/0/0.tmp raw/.gitkeep"
TABLE = [(dialect, name) for name, kind in KINDS.items() for dialect in kind.only]


@pytest.mark.parametrize(("dialect", "name"), TABLE)
@pytest.mark.filterwarnings("ignore")
def test_damage_has_its_findings_and_no_others(healthy, dialect, name, tmp_path):
    kind, store = KINDS[name], copied(healthy, dialect, tmp_path)
    kind.do(store)
    found = check(store.path)
    assert found.named() == kind.found(store), found.findings
    assert not kind.reason or any(kind.reason in one["reason"] for one in found.findings), found.findings
    severe = any(one["severity"] == "damaged" for one in found.findings)
    unread = any(one["code"] in ("refused", "missing-target", "unseen") for one in found.findings)
    assert found.code == (3 if severe else 1 if unread else 0)


@pytest.mark.parametrize("dialect", ["v3", "v2", "n5"])
def test_the_chunks_of_an_array_in_the_array_at_the_root_are_checked(healthy, dialect, tmp_path):
    store = copied(healthy, dialect, tmp_path)
    root = Store(store.path / "raw", dialect)
    shutil.copytree(store.path / "packed", root.path / "inner")
    name = Path(store.meta("raw")).name
    node = ("node-in-array", f"inner/{name}")
    result = check(root.path)
    assert result.code == 0 and result.named() == {node}, result
    assert (result.summary["chunks_stored"], result.summary["chunks_missing"]) == (8, 0), result
    damaged = root.put(root.chunk("inner"), b"garbage")
    result = check(root.path)
    assert result.code == 3 and result.named() == {node, ("undecodable", damaged)}, result


@contextlib.contextmanager
def web(directory):
    """The URL of a server that lists no names."""

    class Unlisting(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *words):
            super().__init__(*words, directory=directory)

        def list_directory(self, path):
            self.send_error(404)

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Unlisting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("dialect", ["v3", "sharded", "v2"])
def test_each_chunk_of_a_server_that_lists_no_names_is_checked(healthy, dialect, tmp_path):
    store = copied(healthy, dialect, tmp_path)
    consolidate(store)
    damaged = store.put(store.chunk("packed"), b"garbage")
    store.at(store.chunk("raw")).unlink()
    code = "shard-index" if dialect == "sharded" else "undecodable"
    with web(store.path) as url:
        result = check(url)
        assert result.code == 3 and result.named() == {("unknown", "/"), (code, damaged)}, result
        # Nobody knows which chunks of a shard without an index are stored.
        stored, missing, unread = (8, 4, 4) if dialect == "sharded" else (15, 1, 0)
        counts = [result.summary[name] for name in ("chunks_stored", "chunks_missing", "chunks_in_unread_shards")]
        assert counts == [stored, missing, unread], result
        result = check(f"{url}/packed")
        assert result.code == 3 and result.named() == {("unknown", "/"), (code, damaged.removeprefix("packed/"))}, result
        result = check(url, "--metadata-only")
        assert result.code == 0 and result.named() == {("unknown", "/")}, result
        result = check(url, "--expect-all")
        found = {key for name, key in result.named() if name == "missing"}
        assert result.code == 3 and found == {store.chunk("raw")}, result


def test_files_of_editors_and_systems_are_foreign_and_stay(healthy, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    for key in FOREIGN.split():
        store.put(key, b"12")
    before = tree(store.path)
    assert check(store.path).named() == {("foreign", key) for key in FOREIGN.split()}
    repaired(store.path, "--yes")
    assert tree(store.path) == before


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mred", "a\tb", "\x7f"])
def test_names_with_control_characters_stay_on_their_line(healthy, name, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    shutil.copytree(store.path / "packed", store.path / name)
    store.put(f"{name}/c/0/0", b"bad")
    store.put(f"{name}/c/0/{name}", b"bad")
    said = run("check", store.path, code=3)
    assert len(said.splitlines()) == said.count("\n") == 2
    assert all(each.isprintable() for each in said.replace("\n", "")), said
    assert check(store.path).named() == {("undecodable", f"{name}/c/0/0"), ("foreign", f"{name}/c/0/{name}")}


@pytest.mark.filterwarnings("ignore")
def test_control_characters_in_metadata_are_not_printed(healthy, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    consolidate(store)
    member(attributes={"\x1b[31m": "a\nb"})(store)
    store.edit(store.meta("packed"), lambda document: document.update(data_type="\x1b[31mx\ny"))
    said = run("check", store.path, code=3)
    assert all(each.isprintable() for each in said.replace("\n", "")), said
    assert all(line.startswith(("damaged ", "note ")) for line in said.splitlines()), said


def unprivileged(*command):
    """Runs a command as a user for whom permissions count."""
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *map(str, command)]
    return subprocess.run(words if os.geteuid() == 0 else words[4:], capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture
def shared(healthy):
    """A store in a place that every user can reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        program = shutil.copy(BIN, directory)
        shutil.copytree(healthy["v3"].path, f"{directory}/store")
        subprocess.run(["chmod", "-R", "a+rwX", directory], check=True)
        yield program, Store(Path(directory) / "store", "v3")
        subprocess.run(["chmod", "-R", "a+rwX", directory], check=True)


@pytest.mark.parametrize(
    ("closed", "said"),
    [
        ("raw/c/0/0", ["raw/c/0/0"]),
        ("raw/c", ["raw/c/"]),
        ("raw/zarr.json", ["raw/zarr.json"]),
        ("raw", ["raw/", "raw/zarr.json"]),
    ],
)
def test_what_may_not_be_read_is_reported(shared, closed, said):
    program, store = shared
    store.at(closed).chmod(0)
    done = unprivileged(program, "check", store.path)
    assert done.returncode == 1, done.stderr
    assert f"{len(said)} not checked: {len(said)} refused" in done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"unchecked refused {key}: Permission denied" for key in said)
    assert unprivileged(program, "check", store.path, "--strict").returncode == 3


@pytest.mark.parametrize("closed", ["raw/c/0", "raw"])
def test_a_directory_that_may_not_be_searched_hides_no_other_damage(shared, closed):
    program, store = shared
    store.put("packed/c/0/0", b"bad")
    store.at(closed).chmod(0o744)
    done = unprivileged(program, "check", store.path)
    assert done.returncode == 3, done.stderr
    assert "damaged undecodable packed/c/0/0:" in done.stdout and "unchecked refused raw/" in done.stdout, done.stdout


def test_an_unreadable_metadata_file_hides_no_other_damage_if_there_are_copies(shared):
    program, store = shared
    zarr.consolidate_metadata(str(store.path), zarr_format=3)
    store.put("packed/c/0/0", b"bad")
    store.at("raw/zarr.json").chmod(0)
    done = unprivileged(program, "check", store.path)
    assert done.returncode == 3, done.stderr
    lines = done.stdout.splitlines()
    assert "unchecked refused raw/zarr.json: Permission denied" in lines and len(lines) == 2, lines
    assert any(line.startswith("damaged undecodable packed/c/0/0:") for line in lines), lines


def test_a_store_in_a_closed_directory_is_not_called_missing(shared):
    program, store = shared
    closed = store.path.parent / "closed"
    shutil.copytree(store.path, closed / "store")
    closed.chmod(0)
    for command in (["check"], ["cat", "--as", "npy"]):
        done = unprivileged(program, *command, closed / "store/raw")
        assert done.returncode == 1 and "Permission denied" in done.stderr, done


def test_a_store_that_may_not_be_changed_is_not_repaired(shared):
    program, store = shared
    store.put("packed/c/0/0", b"bad")
    store.put(f"raw/c/0/0.{UUID}.partial", b"12")
    os.utime(store.at(f"raw/c/0/0.{UUID}.partial"), (0, 0))
    before = tree(store.path)
    subprocess.run(["chmod", "-R", "a-w", store.path], check=True)
    quarantine = store.path.parent / "bad"
    done = unprivileged(program, "check", store.path, "--repair", "--yes", "--remove-leftovers", "--quarantine", quarantine)
    assert done.returncode == 1 and "2 of 2 repairs failed" in done.stderr and "Permission denied" in done.stderr
    assert tree(store.path) == before


def test_a_file_in_quarantine_is_never_overwritten(healthy, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    for number in range(3):
        store.put("packed/c/0/0", f"bad{number}".encode())
        repaired(store.path, "--yes", "--quarantine", tmp_path / "bad")
    assert sorted(tree(tmp_path / "bad").values()) == [b"bad0", b"bad1", b"bad2"]


def test_a_chunk_stays_if_the_quarantine_cannot_take_it(healthy, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    store.put("packed/c/0/0", b"bad")
    (tmp_path / "bad").write_bytes(b"a file")
    assert "File exists (os error 17) (--quarantine)" in repaired(store.path, "--yes", "--quarantine", tmp_path / "bad", code=1)
    assert store.at("packed/c/0/0").read_bytes() == b"bad" and (tmp_path / "bad").read_bytes() == b"a file"


def test_keys_can_be_given_to_another_program(healthy, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    bad = {"packed/c/0/0", "g/sub/c/1/1"}
    for key in bad:
        store.put(key, b"bad")
    command = f"'{BIN}' check . --keys 2>/dev/null | xargs cat"
    done = subprocess.run(["bash", "-c", command], cwd=store.path, capture_output=True, timeout=PATIENCE)
    assert done.stdout == b"badbad"


def test_the_options_say_what_they_expect(healthy, tmp_path):
    path = healthy["v3"].path
    for words, code in [
        (["--sample", "101%"], 2),
        (["--sample=-1"], 2),
        (["--sample", "99999999999999999999"], 2),
        (["--sample", ""], 2),
        (["--only", "../v2"], 2),
        (["--only", ""], 2),
        (["--only", "raw/c/0/0"], 1),
        (["--jobs=-1"], 2),
        (["--quarantine", tmp_path], 2),
        (["--json", "--keys"], 2),
    ]:
        done = subprocess.run(
            [BIN, "check", str(path), *map(str, words)], capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == code and done.stderr and not done.stdout, (words, done.stderr)
    for words, checked in [("0%", 0), ("0", 0), ("100%", 16), ("18446744073709551615", 16)]:
        assert check(path, "--sample", words).summary["chunks_checked"] == checked


def test_what_is_no_hierarchy_is_refused_with_a_sentence(healthy, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    for path in [tmp_path / "empty", tmp_path / "file", tmp_path / "none", healthy["v3"].path / "raw/c"]:
        done = subprocess.run([BIN, "check", str(path)], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1 and done.stderr.startswith(f"zarrfs: {path}: ") and done.stderr.count("\n") == 1


def test_a_folder_names_the_store_of_each_finding(healthy, tmp_path):
    for dialect in ["v3", "v2", "n5"]:
        store = copied(healthy, dialect, tmp_path, f"folder/{dialect}")
        store.put(store.chunk("packed"), b"bad")
    found = check(tmp_path / "folder")
    keys = {"v3/packed/c/0/0", "v2/packed/0.0", "n5/packed/0/0"}
    assert (found.code, found.named()) == (3, {("undecodable", key) for key in keys})


@pytest.mark.parametrize("dialect", ["v3", "sharded", "v2", "n5"])
def test_a_mounted_hierarchy_has_the_findings_of_its_store(healthy, mount, dialect, tmp_path):
    store = copied(healthy, dialect, tmp_path)
    with mount(store.path, "-o", "ro", copy=False) as m:
        assert check(m.path).findings == []
    array = "checked" if dialect == "sharded" else "packed"
    store.change(store.chunk(array), lambda data: flip(data, 0 if dialect == "sharded" else -6))
    with mount(store.path, "-o", "ro", copy=False) as m:
        m.allow(array)
        found = check(m.path)
        assert found.code == 3 and {code for code, _ in found.named()} == {"unreadable"}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """An array of 3,000 chunks, every tenth damaged."""
    path = tmp_path_factory.mktemp("large") / "a"
    array = zarr.create_array(path, shape=(24_000,), chunks=(8,), dtype="i4", compressors=ZstdCodec())
    array[:8] = np.arange(8)
    data = (path / "c/0").read_bytes()
    for number in range(3000):
        (path / f"c/{number}").write_bytes(data if number % 10 else b"bad")
    return path


def test_ctrl_c_ends_a_check_at_once(large):
    for wait in [0, 0.02, 0.05, 0.1]:
        running = subprocess.Popen(
            [BIN, "check", large, "--jobs", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        time.sleep(wait)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE)
        assert running.returncode in (-signal.SIGINT, 1, 3), said
        assert "panicked" not in said


def test_output_that_nobody_reads_or_stores_is_no_success(large):
    done = subprocess.run(
        ["bash", "-c", f"'{BIN}' check '{large}' | head -1"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.count("\n") == 1 and "panicked" not in done.stderr
    for redirected in ["> /dev/full", ">&-"]:
        done = subprocess.run(
            ["bash", "-c", f"'{BIN}' check '{large}' {redirected}"], capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 1 and done.stderr.startswith("zarrfs: standard output"), done.stderr


# What diff says.


def difference(a, b, *options):
    done = subprocess.run(
        [BIN, "diff", "--json", str(a), str(b), *options], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode in (0, 1), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def array_of(path, values, dtype=None, **options):
    values = np.asarray(values, dtype=object if dtype is str else dtype)
    chunks = tuple(max(1, n) for n in values.shape)
    array = zarr.create_array(path, shape=values.shape, chunks=chunks, dtype=dtype or values.dtype, **options)
    array[...] = values
    return path


NAN = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000], "u4").view("f4")
STRUCTURE = [("a", "i4"), ("b", "f4")]


@pytest.mark.parametrize(
    ("one", "two", "dtype", "count"),
    [
        (NAN, NAN[::-1], "f4", 0),
        ([0.0], [-0.0], "f8", 0),
        ([np.nan], [0], "f2", 1),
        ([np.inf, np.inf], [-np.inf, np.inf], "f4", 1),
        ([complex(np.nan, 1)], [complex(np.nan, 1)], "c16", 0),
        ([complex(np.nan, 1)], [complex(2, np.nan)], "c16", 1),
        (["a", "b"], ["a", "B"], str, 1),
        (["é"], ["e\u0301"], str, 1),
        (["ab", "c"], ["ab", "d"], "U3", 1),
        ([b"ab", b"c"], [b"ab", b"c\x01"], "S3", 1),
        ([(1, 0.0), (2, np.nan)], [(1, 0.0), (3, np.nan)], STRUCTURE, 1),
        ([(1, 0.0)], [(1, -0.0)], STRUCTURE, 1),
        (["2000-01-01", "NaT"], ["2000-01-02", "NaT"], "M8[D]", 1),
        ([True, False], [True, True], "bool", 1),
        ([2**64 - 1], [2**64 - 2], "u8", 1),
        (5, 6, "i2", 1),
        (np.zeros((0, 3)), np.zeros((0, 3)), "i2", 0),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_one_changed_value_of_each_type_is_a_difference(one, two, dtype, count, tmp_path):
    a, b = array_of(tmp_path / "a", one, dtype), array_of(tmp_path / "b", two, dtype)
    found = difference(a, b)
    assert [each["count"] for each in found] == ([count] if count else []), found


@pytest.mark.parametrize(
    ("one", "two"),
    [("U3", "U5"), ("S3", "S5"), ("U3", str), ("M8[s]", "M8[ms]"), ("M8[s]", "i8"), ("m8[s]", "M8[s]"), ("bool", "i1")],
)
@pytest.mark.filterwarnings("ignore")
def test_types_that_cannot_be_compared_are_one_difference(one, two, tmp_path):
    for name, dtype in [("a", one), ("b", two)]:
        zarr.create_array(tmp_path / name, shape=(3,), chunks=(2,), dtype=dtype)
    assert [each["member"] for each in difference(tmp_path / "a", tmp_path / "b")] == ["data_type"]


def test_an_array_and_a_group_differ_in_their_type(healthy, tmp_path):
    a = array_of(tmp_path / "a", A)
    for pair in [(a, healthy["v3"].path), (healthy["v3"].path, a)]:
        found = difference(*pair)
        assert found[0]["member"] == "node_type" and {each["difference"] for each in found[1:]} == {"only_in"}
    for name in ["c", "d"]:
        root = zarr.open_group(tmp_path / name, mode="w")
        root.create_group("x") if name == "c" else root.create_array("x", shape=(2,), dtype="i4")
    assert [(each["path"], each["member"]) for each in difference(tmp_path / "c", tmp_path / "d")] == [
        ("/x", "node_type")
    ]


def test_dialects_of_one_hierarchy_do_not_differ(healthy):
    for dialect in ["sharded", "v2", "n5"]:
        assert difference(healthy["v3"].path, healthy[dialect].path) == []
    assert difference(f"{healthy['v3'].path}#raw", f"{healthy['v2'].path}#g/sub") == []
    assert difference(healthy["v3"].path, healthy["v2"].path, "--only", "raw", "--only", "g") == []


def test_damaged_metadata_are_not_compared(healthy, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    store.put(store.meta("raw"), b"{")
    for other in [healthy["v3"].path, store.path]:
        done = subprocess.run(
            [BIN, "diff", str(other), str(store.path)], capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 2 and "raw/zarr.json" in done.stderr and "cannot be compared" in done.stderr


def zipped(path, **how):
    """An archive with an array of two chunks, the second one stored in another way."""
    meta = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [8],
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("zarr.json", json.dumps(meta))
        archive.writestr("c/0", np.arange(4, dtype="<i4").tobytes())
        archive.writestr("c/1", np.arange(4, dtype="<i4").tobytes(), how.get("method", zipfile.ZIP_STORED))
    return path


def marks(data, name, offset, signature):
    """The place of a field of the entry `name`, in its own header or in the directory."""
    at = 0
    while True:
        at = data.index(signature, at)
        start = at + (30 if signature == b"PK\3\4" else 46)
        if data[start : start + len(name)] == name:
            return at + offset
        at += 4


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_entry_in_another_compression_is_not_damaged(method, tmp_path):
    found = check(zipped(tmp_path / "a.zip", method=method))
    assert (found.code, found.named()) == (0, {("unsupported", "c/1")})
    assert check(tmp_path / "a.zip", "--strict").code == 3


@pytest.mark.parametrize("both", [True, False])
def test_an_encrypted_entry_is_not_damaged_unless_its_header_says_otherwise(both, tmp_path):
    path = zipped(tmp_path / "a.zip")
    data = bytearray(path.read_bytes())
    data[marks(data, b"c/1", 8, b"PK\1\2")] |= 1
    if both:
        data[marks(data, b"c/1", 6, b"PK\3\4")] |= 1
    path.write_bytes(data)
    found = check(path)
    wanted = (0, "unsupported") if both else (3, "undecodable")
    assert (found.code, found.named()) == (wanted[0], {(wanted[1], "c/1")})


def test_an_entry_whose_compression_is_damaged_is_damaged(tmp_path):
    path = zipped(tmp_path / "a.zip")
    data = bytearray(path.read_bytes())
    data[marks(data, b"c/1", 10, b"PK\1\2")] = zipfile.ZIP_BZIP2
    path.write_bytes(data)
    found = check(path)
    assert (found.code, found.named()) == (3, {("undecodable", "c/1")})
