"""`zarrfs check` finds every kind of damage, and finds nothing in healthy hierarchies."""

import json
import os
import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import google_crc32c
import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec

from mounts import BIN, PATIENCE, copy_of
from test_fixtures import CASES, store_of
from torture import LONG

A = np.arange(6 * 8, dtype="<i4").reshape(6, 8)
# By dialect: the keys of a metadata file and of a chunk.
DIALECTS = ["v3", "sharded", "v2", "n5", "d2020-10"]


@dataclass
class Store:
    """A hierarchy: `raw` is not compressed, `packed` is, `checked` has a checksum, `g` is a group with `sub`."""

    path: Path
    dialect: str

    def meta(self, node):
        return {
            "v3": f"{node}/zarr.json",
            "sharded": f"{node}/zarr.json",
            "v2": f"{node}/.zarray",
            "n5": f"{node}/attributes.json",
            "d2020-10": f"meta/root/{node}.array.json",
        }[self.dialect]

    @property
    def group(self):
        return "data/root/" if self.dialect == "d2020-10" else ""

    def chunk(self, node, i=0, j=0):
        return {
            "v3": f"{node}/c/{i}/{j}",
            "sharded": f"{node}/c/{i}/{j}",
            "v2": f"{node}/{i}.{j}",
            "n5": f"{node}/{j}/{i}",
            "d2020-10": f"data/root/{node}/c{i}/{j}",
        }[self.dialect]

    def at(self, key):
        path = self.path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def change(self, key, change):
        path = self.at(key)
        path.write_bytes(change(path.read_bytes()))
        return key

    def put(self, key, data=b""):
        self.at(key).write_bytes(data)
        return key

    def edit(self, key, change):
        document = json.loads(self.at(key).read_text())
        change(document)
        self.at(key).write_text(json.dumps(document))
        return key


def make(path, dialect):
    zarr_format = 2 if dialect == "v2" else 3
    root = zarr.open_group(path if dialect in ("v3", "sharded", "v2") else f"{path}.v3", mode="w", zarr_format=zarr_format)
    for group, name, codecs in [
        (root, "raw", None),
        (root, "packed", "gzip"),
        (root, "checked", "crc32c"),
        (root.create_group("g"), "sub", "gzip"),
    ]:
        if dialect == "sharded":
            inner = {None: [], "gzip": [GzipCodec()], "crc32c": [Crc32cCodec()]}[codecs]
            one = group.create_array(
                name, shape=A.shape, chunks=(3, 4), shards=(6, 8), dtype="<i4", filters=None, compressors=inner or None
            )
        elif dialect == "v2":
            import numcodecs

            compressor = {None: None, "gzip": numcodecs.GZip(), "crc32c": None}[codecs]
            filters = [numcodecs.CRC32()] if codecs == "crc32c" else None
            one = group.create_array(name, shape=A.shape, chunks=(3, 4), dtype="<i4", filters=filters, compressors=compressor)
        else:
            inner = {None: None, "gzip": [GzipCodec()], "crc32c": [Crc32cCodec()]}[codecs]
            if dialect in ("n5", "d2020-10") and codecs == "crc32c":
                inner = None
            one = group.create_array(name, shape=A.shape, chunks=(3, 4), dtype="<i4", compressors=inner)
        one[...] = A + 1
    if dialect in ("n5", "d2020-10"):
        run("convert", f"{path}.v3", path, "--format", dialect)
        shutil.rmtree(f"{path}.v3")
    return Store(Path(path), dialect)


def run(*words, code=0):
    done = subprocess.run([BIN, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code, f"{words}: {done.returncode}: {done.stderr}"
    return done.stdout


@dataclass
class Result:
    code: int
    findings: list = field(default_factory=list)
    summary: dict = field(default_factory=dict)

    def named(self):
        return {(one["code"], one["key"]) for one in self.findings}

    def severe(self):
        return [one for one in self.findings if one["severity"] != "note"]


def check(path, *options):
    done = subprocess.run([BIN, "check", "--json", str(path), *map(str, options)], capture_output=True, text=True, timeout=PATIENCE)
    said = done.stderr.strip().splitlines()
    assert done.returncode in (0, 1, 3), done.stderr
    summary = next(json.loads(line)["summary"] for line in said if line.startswith('{"summary"'))
    return Result(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], summary)


@dataclass
class Damage:
    """A kind of damage: `do` makes it, and returns the key that the finding must have."""

    code: str
    reason: str
    do: Callable
    only: tuple = tuple(DIALECTS)
    options: tuple = ()
    # Whether it hides other damage if all kinds are made at once.
    alone: bool = False


def flip(data, at=-1, bit=3):
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def shard_of(data, entries, slots=4):
    """A shard with these entries, `None` for a missing chunk."""
    index = b"".join(struct.pack("<QQ", *(entry or (2**64 - 1, 2**64 - 1))) for entry in entries)
    return data + index + struct.pack("<I", google_crc32c.value(index))


def entries_of(data, slots=4):
    index = data[-16 * slots - 4 : -4]
    return [struct.unpack("<QQ", index[16 * n : 16 * n + 16]) for n in range(slots)]


def with_entries(change):
    def changed(data):
        entries = entries_of(data)
        change(entries)
        return shard_of(data[: -16 * 4 - 4], entries)

    return changed


def set_entry(slot, entry):
    def change(entries):
        entries[slot] = entry if not callable(entry) else entry(entries)

    return with_entries(change)


V3 = ("v3", "sharded")
PLAIN = ("v3", "v2", "n5", "d2020-10")


def fifo(store):
    key = store.chunk("raw", 1, 1)
    store.at(key).unlink()
    os.mkfifo(store.at(key))
    return key


def link_out(store):
    key = store.chunk("raw", 1, 1)
    store.at(key).unlink()
    os.symlink("/etc/passwd", store.at(key))
    return key


def node_out(store):
    away = store.path.parent / f"{store.path.name}.away"
    shutil.move(store.path / "g/sub", away)
    os.symlink(away, store.path / "g/sub")
    return "g/sub"


def copy_metadata(store):
    """Metadata of Zarr 2 beside those of Zarr 3, as `zarr migrate` leaves them."""
    v2 = {"zarr_format": 2, "shape": [6, 8], "chunks": [3, 4] if store.dialect == "v3" else [6, 8], "dtype": "<i4", "compressor": None}
    return store.put("raw/.zarray", json.dumps({**v2, "fill_value": 0, "order": "C", "filters": None}).encode())


def contradict(store):
    key = copy_metadata(store)
    return store.edit(key, lambda document: document.update(shape=[7, 8]))


def consolidate(store):
    zarr.consolidate_metadata(store.path)
    return "zarr.json" if store.dialect in V3 else ".zmetadata"


def stale(store):
    key = consolidate(store)
    store.edit(store.meta("raw"), lambda document: document.update(shape=[5, 8]))
    return key


def lost(store):
    key = consolidate(store)
    shutil.rmtree(store.path / "raw")
    return key


def added(store):
    key = consolidate(store)
    shutil.copytree(store.path / "raw", store.path / "raw2")
    return key


def orphan(store):
    store.at(store.meta("raw")).unlink()
    return store.chunk("raw")


def below_array(store):
    document = {"zarr_format": 3, "node_type": "group"} if store.dialect in V3 else {"zarr_format": 2}
    name = "zarr.json" if store.dialect in V3 else ".zgroup"
    return store.put(f"raw/inside/{name}", json.dumps(document).encode())


def dimensions(store):
    key = {"v2": "raw/.zattrs"}.get(store.dialect, store.meta("raw"))
    names = {"_ARRAY_DIMENSIONS": ["x", "y", "z"]}
    if store.dialect == "v2":
        store.put(key, json.dumps(names).encode())
    else:
        store.edit(key, lambda document: document.setdefault("attributes", {}).update(names))
    return store.meta("raw")


def multiscales(store):
    images = {"multiscales": [{"version": "0.4", "datasets": [{"path": "raw"}, {"path": "nowhere"}]}]}
    if store.dialect == "v2":
        store.put(".zattrs", json.dumps(images).encode())
        return ".zgroup"
    return store.edit("zarr.json", lambda document: document.update(attributes={"ome": {"version": "0.5", **images}}))


def session(store):
    return store.put(".zarrfs/writing-1234-5678", b"0b2c-..\n")


UUID = "0123456789abcdef0123456789abcdef"
DAMAGES = {
    "metadata are cut": Damage("not-json", "", lambda s: s.change(s.meta("raw"), lambda data: data[:-9])),
    "metadata are empty": Damage("not-json", "", lambda s: s.put(s.meta("packed"))),
    "metadata are a list": Damage("not-json", "", lambda s: s.put(s.meta("packed"), b"[1, 2]")),
    "metadata of the root are cut": Damage(
        "not-json", "", lambda s: s.change("zarr.json", lambda data: data[:-9]), ("v3", "sharded", "d2020-10"), alone=True
    ),
    "a shape is a string": Damage(
        "metadata",
        "",
        lambda s: s.edit(s.meta("raw"), lambda d: d.update({"dimensions" if s.dialect == "n5" else "shape": "six"})),
    ),
    "a shape is missing": Damage(
        "metadata", "shape", lambda s: s.edit(s.meta("raw"), lambda d: d.pop("shape")), ("v3", "sharded", "v2", "d2020-10")
    ),
    "a length is negative": Damage(
        "metadata",
        "",
        lambda s: s.edit(s.meta("raw"), lambda d: d.update({"dimensions" if s.dialect == "n5" else "shape": [6, -8]})),
    ),
    "a codec is not known": Damage(
        "unknown", "example", lambda s: s.edit(s.meta("raw"), lambda d: d["codecs"].append({"name": "example.codec"})), V3
    ),
    "a compressor is not known": Damage(
        "unknown", "example", lambda s: s.edit(s.meta("raw"), lambda d: d.update(compressor={"id": "example"})), ("v2",)
    ),
    "attributes are not JSON": Damage("not-json", "", lambda s: s.put("raw/.zattrs", b'{"a": '), ("v2",)),
    "metadata of both versions": Damage("other-metadata", "v2", copy_metadata, V3),
    "metadata of both versions that differ": Damage("contradiction", "shape", contradict, V3),
    "a copy is outdated": Damage("stale-copy", "raw: the metadata file differs: shape", stale, ("v3", "sharded", "v2")),
    "a copy without its node": Damage("stale-copy", "raw", lost, ("v3", "sharded", "v2")),
    "a node without its copy": Damage("stale-copy", "raw2: has no copy", added, ("v3", "sharded", "v2")),
    "copies are not JSON": Damage("not-json", "", lambda s: s.change(consolidate(s), lambda data: data[:50]), ("v2",)),
    "a chunk is empty": Damage("empty", "", lambda s: s.put(s.chunk("packed"))),
    "a raw chunk is empty": Damage("empty", "", lambda s: s.put(s.chunk("raw")), PLAIN),
    "half of a compressed chunk": Damage(
        "undecodable", "gzip", lambda s: s.change(s.chunk("packed"), lambda data: data[: len(data) // 2]), PLAIN
    ),
    "zeros for a compressed chunk": Damage(
        "undecodable", "", lambda s: s.change(s.chunk("packed"), lambda data: bytes(len(data))), PLAIN
    ),
    "a raw chunk is too short": Damage(
        "length", "47 bytes", lambda s: s.change(s.chunk("raw"), lambda data: data[:47]), ("v3", "v2", "d2020-10")
    ),
    "a raw chunk is too long": Damage(
        "length", "", lambda s: s.change(s.chunk("raw"), lambda data: data + b"x"), ("v3", "v2", "d2020-10")
    ),
    "a bit of a chunk with a checksum": Damage("checksum", "computed", lambda s: s.change(s.chunk("checked"), flip), ("v3", "v2")),
    "a bit of a gzip chunk": Damage("undecodable", "", lambda s: s.change(s.chunk("packed"), lambda d: flip(d, -6)), PLAIN),
    "a bit of a chunk in a shard": Damage(
        "checksum", "c/0/0", lambda s: s.change(s.chunk("checked"), lambda d: flip(d, 0)), ("sharded",)
    ),
    "a bit of the index of a shard": Damage(
        "shard-index", "checksum", lambda s: s.change(s.chunk("packed"), lambda d: flip(d, -7)), ("sharded",)
    ),
    "a shard that is shorter than its index": Damage(
        "shard-index", "", lambda s: s.change(s.chunk("raw"), lambda d: d[:20]), ("sharded",)
    ),
    "a shard without its end": Damage("shard-index", "", lambda s: s.change(s.chunk("raw"), lambda d: d[:-9]), ("sharded",)),
    "a chunk outside of its shard": Damage(
        "shard-range", "c/0/1", lambda s: s.change(s.chunk("raw"), set_entry(1, (48, 4800))), ("sharded",)
    ),
    "a chunk inside the index": Damage(
        "shard-range", "c/1/1", lambda s: s.change(s.chunk("raw"), set_entry(3, (180, 48))), ("sharded",)
    ),
    "chunks that overlap": Damage(
        "shard-overlap", "c/0/0 and c/0/1", lambda s: s.change(s.chunk("raw"), set_entry(1, (40, 48))), ("sharded",)
    ),
    "unused bytes in a shard": Damage(
        "shard-unused",
        "400 bytes",
        lambda s: s.change(s.chunk("raw"), lambda d: shard_of(d[:-68] + bytes(400), entries_of(d))),
        ("sharded",),
    ),
    "a chunk outside of the array": Damage("outside-grid", "shape", lambda s: s.put(s.chunk("raw", 0, 7), bytes(48))),
    "a chunk in the spelling of Zarr 2": Damage("other-spelling", "raw/c/0/1", lambda s: s.put("raw/0.1", bytes(48)), ("v3",)),
    "a chunk with dots and slashes": Damage("other-spelling", "raw/0.1", lambda s: s.put("raw/0/1", bytes(48)), ("v2",)),
    "a chunk with leading zeros": Damage("other-spelling", "raw/c/0/1", lambda s: s.put("raw/c/00/1", bytes(48)), ("v3",)),
    "chunks of no array": Damage("no-array", "no array", orphan, alone=True),
    "a node below an array": Damage("node-in-array", "raw", below_array, ("v3", "v2")),
    "a file of zarr-python": Damage("leftover", "zarr-python", lambda s: s.put(f"{s.chunk('raw')}.{UUID}.partial", b"12")),
    "a file of rsync": Damage(
        "leftover", "rsync", lambda s: s.put(str(Path(s.chunk("raw")).parent / f".{Path(s.chunk('raw')).name}.x7Gh2k"), b"12")
    ),
    "a lock file": Damage("leftover", "killed", lambda s: s.put(f"{s.chunk('raw')}.__lock", b"12")),
    "a session": Damage("leftover", "killed", session),
    "an interrupted conversion": Damage("unfinished", "conversion", lambda s: s.put(".zarrfs/convert", b"{}"), alone=True),
    "an interrupted change": Damage(
        "unfinished", "interrupted", lambda s: str(Path(s.put(".zarrfs/aside-1234-5678-1/change", b"{}")).parent), alone=True
    ),
    "a pipe instead of a chunk": Damage("unreadable", "", fifo, PLAIN),
    "a version of another metadata file": Damage(
        "metadata", "zarr_format is 2", lambda s: s.edit(s.meta("packed"), lambda d: d.update(zarr_format=2)), V3, alone=True
    ),
    "a node that is a link out of the store": Damage("refused", "leads out", node_out, ("v3", "v2")),
    "a link out of the store": Damage("refused", "", link_out, PLAIN),
    "names that differ in case": Damage("case", "only in case", lambda s: str(Path(s.put(f"{s.group}G/notes", b"x")).parent)),
    "dimension names of another rank": Damage("convention", "3 dimensions", dimensions, ("v3", "sharded", "v2", "d2020-10")),
    "an image without its array": Damage("convention", "nowhere", multiscales, ("v3", "sharded", "v2")),
    "a file of nobody": Damage("foreign", "", lambda s: s.put("notes.txt", b"hello")),
    "a missing chunk": Damage(
        "missing",
        "not stored",
        lambda s: s.at(s.chunk("packed", 1, 1)).unlink() or s.chunk("packed", 1, 1),
        PLAIN,
        ("--expect-all",),
    ),
}
TABLE = [(dialect, name) for name, damage in DAMAGES.items() for dialect in damage.only]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    top = tmp_path_factory.mktemp("healthy")
    return {dialect: make(top / dialect, dialect) for dialect in DIALECTS}


def copied(healthy, dialect, tmp_path, name="store"):
    shutil.copytree(healthy[dialect].path, tmp_path / name)
    return Store(tmp_path / name, dialect)


def test_chunks_are_checked_although_the_attributes_of_their_array_are_damaged(tmp_path):
    store = make(tmp_path / "a.zarr", "v2")
    store.put("packed/.zattrs", b"{")
    store.change(store.chunk("packed", 1, 1), lambda data: data[:9])
    found = check(store.path)
    assert found.named() == {("not-json", "packed/.zattrs"), ("undecodable", store.chunk("packed", 1, 1))}
    assert found.summary["chunks_stored"] == 16


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_healthy_hierarchy_has_no_findings(healthy, dialect):
    for options in [[], ["--expect-all"], ["--metadata-only"], ["--sample", "30%"], ["--sample", "2"], ["--only", "g"]]:
        found = check(healthy[dialect].path, *options)
        assert (found.code, found.findings) == (0, []), options
    summary = check(healthy[dialect].path).summary
    assert summary["arrays"] == 4 and summary["chunks_stored"] == 16 and summary["chunks_checked"] == 16
    for count in [1, 5, 15, 16, 100]:
        sample = check(healthy[dialect].path, "--sample", count).summary
        checked = min(count, 16)
        assert (sample["chunks_checked"], sample["chunks_skipped"]) == (checked, 16 - checked)
    assert summary["chunks_missing"] == 0 and summary["bytes_decoded"] == 4 * A.nbytes


@pytest.mark.parametrize(("dialect", "name"), TABLE)
def test_each_kind_of_damage_is_named_with_its_key_and_reason(healthy, dialect, name, tmp_path):
    damage, store = DAMAGES[name], copied(healthy, dialect, tmp_path)
    key = damage.do(store)
    found = check(store.path, *damage.options)
    same = [one for one in found.findings if (one["code"], one["key"]) == (damage.code, key)]
    assert same, f"{damage.code} {key} is not in {found.findings}"
    assert any(damage.reason in one["reason"] for one in same), same
    severe = any(one["severity"] == "damaged" for one in found.findings)
    unread = any(one["code"] in ("refused", "missing-target", "unseen") for one in found.findings)
    assert found.code == (3 if severe else 1 if unread else 0)


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "d2020-10"])
def test_all_damage_at_once_is_named_as_each_alone(healthy, dialect, tmp_path):
    """All kinds of damage at once, each in its own hierarchy below one root; a draft has only one root."""
    (tmp_path / "store").mkdir()
    found, options = {}, set()
    for number, (name, damage) in enumerate(DAMAGES.items()):
        if dialect in damage.only and not damage.alone and damage.do is not session:
            store = copied(healthy, dialect, tmp_path, f"store/s{number}")
            found[name] = (damage.code, f"s{number}/{damage.do(store)}")
            options |= set(damage.options)
    named = check(tmp_path / "store", *options).named()
    assert {name for name, key in found.items() if key not in named} == set()


@pytest.mark.parametrize("case", CASES)
def test_hierarchies_of_other_programs_have_no_findings_but_notes(case, tmp_path):
    done = subprocess.run([BIN, "check", "--json", store_of(case)], capture_output=True, text=True, timeout=PATIENCE)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert [one for one in found if one["severity"] != "note"] == []


def test_every_flipped_bit_in_a_chunk_with_a_checksum_is_found(tmp_path):
    group = zarr.open_group(tmp_path / "store", mode="w")
    count = 2000 if LONG else 300
    values = np.random.default_rng(1).integers(0, 1000, count * 64, dtype="<i4")
    plain = group.create_array("a", shape=values.shape, chunks=(64,), dtype="<i4", compressors=[Crc32cCodec()])
    plain[...] = values
    numbers = np.random.default_rng(2)
    keys = set()
    for n in range(count):
        path = tmp_path / f"store/a/c/{n}"
        data = bytearray(path.read_bytes())
        bit = int(numbers.integers(0, 8 * len(data)))
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        keys.add(("checksum", f"a/c/{n}"))
    assert check(tmp_path / "store").named() == keys


@pytest.mark.parametrize("codec", ["raw", "gzip", "zstd", "blosc"])
def test_flipped_bits_without_a_checksum_are_found_as_often_as_the_codec_notices(codec, tmp_path):
    """Measures the rates in docs/check.md."""
    codecs = {
        "raw": None,
        "gzip": zarr.codecs.GzipCodec(),
        "zstd": zarr.codecs.ZstdCodec(),
        "blosc": zarr.codecs.BloscCodec(cname="lz4"),
    }
    least = {"raw": 0, "gzip": 0.99, "zstd": 0.2, "blosc": 0.02}
    values = np.cumsum(np.random.default_rng(1).integers(-3, 4, 1000 * 1024), dtype="<i4")
    array = zarr.create_array(
        tmp_path / "store", shape=values.shape, chunks=(1024,), dtype="<i4", compressors=codecs[codec], overwrite=True
    )
    array[...] = values
    numbers = np.random.default_rng(2)
    for n in range(1000):
        path = tmp_path / f"store/c/{n}"
        data = bytearray(path.read_bytes())
        bit = int(numbers.integers(0, 8 * len(data)))
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
    found = len({key for _, key in check(tmp_path / "store").named()})
    print(f"{codec}: {found} of 1000")
    assert found >= least[codec] * 1000
    assert codec != "raw" or found == 0


def tree(path):
    """Every file with its bytes."""
    return {str(one.relative_to(path)): one.read_bytes() for one in Path(path).rglob("*") if one.is_file()}


def repaired(path, *options, code=0):
    done = subprocess.run(
        [BIN, "check", str(path), "--repair", *map(str, options)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stderr


def values(store):
    """The values of all arrays, as another program reads them."""
    group = zarr.open_group(store.path, mode="r", use_consolidated=False)
    return {path: node[...] for path, node in group.members(max_depth=None) if isinstance(node, zarr.Array)}


REPAIRED = [
    "a file of zarr-python",
    "a file of rsync",
    "a lock file",
    "a session",
    "a copy is outdated",
    "a copy without its node",
    "a node without its copy",
    "unused bytes in a shard",
]
QUARANTINED = [
    "a chunk is empty",
    "a raw chunk is empty",
    "half of a compressed chunk",
    "a raw chunk is too long",
    "a bit of a chunk with a checksum",
    "a bit of a chunk in a shard",
    "a bit of the index of a shard",
    "a shard that is shorter than its index",
    "a chunk outside of its shard",
    "a chunk inside the index",
]
READ_BY_ZARR = ("v3", "sharded", "v2")


@pytest.mark.parametrize(
    ("dialect", "name"), [(dialect, name) for name in REPAIRED for dialect in DAMAGES[name].only if dialect in READ_BY_ZARR]
)
def test_a_repair_removes_the_finding_and_changes_no_value(healthy, dialect, name, tmp_path):
    damage, store = DAMAGES[name], copied(healthy, dialect, tmp_path)
    key = damage.do(store)
    before, files = values(store), tree(store.path)
    plan = repaired(store.path, "--remove-leftovers", code=3 if damage.code == "stale-copy" else 0)
    assert "would " in plan and "add --yes" in plan
    assert tree(store.path) == files, "without --yes"
    if damage.reason in ("zarr-python", "rsync"):
        assert "--remove-leftovers" in repaired(store.path, "--yes")
        assert tree(store.path) == files, "it may be a file of the user"
    assert "done: " in repaired(store.path, "--yes", "--remove-leftovers")
    found = check(store.path)
    assert (damage.code, key) not in found.named() and found.code == 0, found.findings
    after = values(store)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[path], after[path]) for path in before)
    assert check(store.path).findings == []


@pytest.mark.parametrize(
    ("dialect", "name"), [(dialect, name) for name in QUARANTINED for dialect in DAMAGES[name].only if dialect in READ_BY_ZARR]
)
def test_a_damaged_chunk_moves_into_quarantine_and_no_other_value_changes(healthy, dialect, name, tmp_path):
    damage, store = DAMAGES[name], copied(healthy, dialect, tmp_path)
    key = damage.do(store)
    data = store.at(key).read_bytes()
    assert (damage.code, key) in check(store.path).named()
    repaired(store.path, "--yes", code=0 if damage.code == "stale-copy" else 3)
    assert store.at(key).read_bytes() == data, "it stays where it is without --quarantine"
    repaired(store.path, "--quarantine", tmp_path / "bad", "--yes")
    assert (tmp_path / "bad" / key).read_bytes() == data
    found = check(store.path)
    assert (found.code, found.findings) == (0, [])
    whole, expected = damage.code in ("empty", "shard-index") and dialect == "sharded", A + 1
    for path, read in values(store).items():
        if not key.startswith(f"{path}/"):
            assert np.array_equal(read, expected), path
            continue
        lost = read == 0
        assert np.array_equal(read[~lost], expected[~lost]), path
        assert lost.sum() == (A.size if whole else 12), path


def test_a_repair_that_is_killed_can_be_run_again_and_loses_nothing(tmp_path):
    root = zarr.open_group(tmp_path / "store", mode="w")
    expected = np.random.default_rng(1).integers(0, 255, (64, 64, 16), dtype="u1")
    array = root.create_array("a", shape=expected.shape, chunks=(4, 4, 16), shards=(8, 8, 16), dtype="u1", compressors=None)
    array[...] = expected
    zarr.consolidate_metadata(tmp_path / "store")
    store = Store(tmp_path / "store", "sharded")
    bad = set()
    for number, path in enumerate(sorted((tmp_path / "store/a/c").rglob("*"))):
        if path.is_file():
            data = path.read_bytes()
            entries = entries_of(data)
            if number % 3 == 0:
                entries[0] = (1 << 40, 256)
                bad.add(tuple(map(int, path.relative_to(tmp_path / "store/a/c").parts)))
            path.write_bytes(shard_of(data[:-68] + bytes(300), entries))
            path.with_name(f"{path.name}.{UUID}.partial").write_bytes(b"part")
    store.edit("a/zarr.json", lambda document: document.update(attributes={"new": 1}))
    command = [BIN, "check", str(store.path), "--repair", "--yes", "--remove-leftovers", "--quarantine", str(tmp_path / "bad")]
    for attempt in range(40):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            running.wait(0.02 + 0.01 * attempt)
            break
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        read = zarr.open_group(store.path, mode="r", use_consolidated=False)["a"]
        for key in bad:
            place = tuple(slice(8 * i, 8 * i + 4) for i in key[:2])
            kept = np.array(expected[tuple(slice(8 * i, 8 * i + 8) for i in key[:2])])
            kept[:4, :4] = 0
            try:
                got = read[tuple(slice(8 * i, 8 * i + 8) for i in key[:2])]
            except Exception:
                continue  # It is still damaged.
            got[:4, :4] = 0
            assert np.array_equal(got, kept), place
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=PATIENCE)
    found = check(store.path)
    assert (found.code, found.findings) == (0, [])
    wanted = expected.copy()
    for key in bad:
        wanted[tuple(slice(8 * i, 8 * i + 4) for i in key[:2])] = 0
    assert np.array_equal(values(store)["a"], wanted)


def test_a_store_that_a_mount_may_write_to_is_not_repaired(healthy, mount, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    DAMAGES["a file of zarr-python"].do(store)
    with mount(store.path, copy=False):
        assert "is writing to it" in repaired(store.path, "--yes", code=1)
        assert check(store.path).named(), "a check is possible"
    with mount(store.path, "-o", "ro", copy=False):
        repaired(store.path, "--yes", "--remove-leftovers")
    assert not check(store.path).findings


def test_a_file_that_a_program_is_still_writing_is_no_leftover(healthy, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    key = DAMAGES["a file of zarr-python"].do(store)
    with open(store.at(key), "ab"):
        assert "is still writing this file" in repaired(store.path, "--yes", "--remove-leftovers", code=1)
    assert store.at(key).exists()
    repaired(store.path, "--yes", "--remove-leftovers")
    assert not store.at(key).exists()


def test_keys_of_damaged_files_alone_are_printed_for_other_programs(healthy, tmp_path):
    store = copied(healthy, "sharded", tmp_path)
    store.change(store.chunk("checked"), lambda data: flip(flip(data, 0), 60))
    store.put("notes.txt", b"x")
    assert run("check", store.path, "--keys", code=3) == "checked/c/0/0\n"
    assert run("check", store.path, "--keys", "--only", "g") == ""


def test_wrong_arguments_are_refused_with_a_sentence(healthy, tmp_path):
    path = healthy["v3"].path
    for words, code, said in [
        (["--sample", "120%"], 2, "expected a percentage"),
        (["--sample", "some"], 2, "expected a percentage"),
        (["--only", "nowhere"], 1, "there is no node /nowhere"),
        (["--yes"], 2, "--repair"),
        (["--metadata-only", "--expect-all"], 2, "cannot be used with"),
    ]:
        done = subprocess.run([BIN, "check", str(path), *words], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == code and said in done.stderr, (words, done.returncode, done.stderr)
    done = subprocess.run([BIN, "check", str(tmp_path / "none")], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "no such directory" in done.stderr


@pytest.mark.parametrize("place", ["", "raw", "new/place"])
def test_a_quarantine_inside_a_hierarchy_is_refused(healthy, place, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    key = DAMAGES["half of a compressed chunk"].do(store)
    files = tree(store.path)
    assert "lies in the hierarchy" in repaired(store.path, "--quarantine", store.path / place, "--yes", code=1)
    os.symlink(store.path, tmp_path / "link")
    assert "lies in the hierarchy" in repaired(store.path, "--quarantine", tmp_path / "link" / place, "--yes", code=1)
    assert tree(store.path) == files and key


@pytest.mark.parametrize("dialect", ["v3", "v2"])
def test_copies_of_lost_metadata_are_kept(healthy, dialect, tmp_path):
    store = copied(healthy, dialect, tmp_path)
    key = consolidate(store)
    store.at(store.meta("raw")).unlink()
    before = store.at(key).read_bytes()
    assert ("stale-copy", key) in check(store.path).named()
    assert "without guessing" in repaired(store.path, "--yes", code=3)
    assert store.at(key).read_bytes() == before


def test_a_repair_that_leaves_damage_exits_with_3(healthy, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    DAMAGES["half of a compressed chunk"].do(store)
    DAMAGES["a file of zarr-python"].do(store)
    assert "1 damaged files remain" in repaired(store.path, "--yes", "--remove-leftovers", code=3)


def test_files_of_the_user_are_no_leftovers(healthy, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    for name in ["download.partial", "g/.report.Draft1", "raw/c/0/notes.partial"]:
        store.put(name, b"precious")
    assert {code for code, _ in check(store.path).named()} == {"foreign"}
    repaired(store.path, "--yes")
    assert store.at("download.partial").read_bytes() == b"precious"


def test_zeros_for_a_blosc_chunk_are_damage(tmp_path):
    array = zarr.create_array(tmp_path / "a", shape=(8,), chunks=(4,), dtype="i4", compressors=zarr.codecs.BloscCodec())
    array[...] = np.arange(8)
    path = tmp_path / "a/c/0"
    path.write_bytes(bytes(len(path.read_bytes())))
    found = check(tmp_path / "a")
    assert (found.code, found.named()) == (3, {("undecodable", "c/0")})


def test_equal_copies_of_unknown_arrays_are_no_finding(healthy, tmp_path):
    store = copied(healthy, "v3", tmp_path)
    store.edit(store.meta("raw"), lambda d: d["codecs"].append({"name": "example.codec"}))
    copies = {"raw": json.loads(store.at(store.meta("raw")).read_text())}
    inline = {"kind": "inline", "must_understand": False, "metadata": copies}
    store.edit("zarr.json", lambda d: d.update(consolidated_metadata=inline))
    found = check(store.path, "--only", "raw").named() | {one for one in check(store.path).named() if "raw" in one[1]}
    assert found == {("unknown", "raw/zarr.json")}
