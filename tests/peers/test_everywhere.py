"""The same types, shapes, names, fill values and attributes in every dialect and presentation: each hierarchy that another
program wrote is converted to each dialect and back, copied within a mount and out of one, and written back unchanged.

What comes out is compared as JSON with the metadata files of the source's own dialect, member by member, by no code of
zarrfs. `test_views_table.py` is the same table for views, and `test_zarr2.py` for programs that stopped at Zarr 2."""

import base64
import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mounts import BIN
from test_fixtures import CASES, store_of

DIALECTS = ["v3", "v2", "n5", "d2019-05", "d2019-06", "d2020-09", "d2020-10"]
DOCUMENTS = r"zarr\.json|\.zarray|\.zgroup|\.zattrs|attributes\.json|.*\.(array|group)(\.json)?"

# How chunks are stored, which is not what they mean.
STORAGE = {
    "compressor", "filters", "order", "dimension_separator", "codecs", "chunk_codecs", "storage_transformers",
    "chunk_key_encoding", "chunk_memory_layout", "compression", "compressionType", "consolidated_metadata", "extensions",
    "chunk_grid", "chunks", "blockSize",
}  # fmt: skip


def run(*command, codes=(0,)):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    assert done.returncode in codes, f"{command}: {done.returncode}: {done.stderr}"
    return done.stderr


@functools.cache
def dialect_of(case):
    done = subprocess.run([BIN, "info", "--json", store_of(case)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["dialect"]


def own_dialect(case):
    """The dialect of a case, or that in which its nodes can be stored."""
    return dialect_of(case) if dialect_of(case) in DIALECTS else "v3"


def meaning(text):
    """A metadata file without what says how chunks are stored, as a text to compare."""
    document = json.loads(text)
    if isinstance(document, dict):
        document = {name: value for name, value in document.items() if name not in STORAGE}
        for member in {"dtype", "data_type"} & set(document):
            if isinstance(document[member], str):
                document[member] = document[member].lstrip("<>|")  # The byte order.
    return json.dumps(document, sort_keys=True)


def documents(store):
    """What the metadata files of a hierarchy say, by their keys."""
    found = {}
    for at, _, names in os.walk(store):
        for name in names:
            if re.fullmatch(DOCUMENTS, name):
                path = Path(at, name)
                found[str(path.relative_to(store))] = meaning(path.read_text())
    return found


def node_of(key):
    """The path of the node that has a metadata file."""
    key = re.sub(r"^meta/(root/?)?|\.(array|group)(\.json)?$", "", key)
    return key.rpartition("/")[0] if re.fullmatch(DOCUMENTS, key.rpartition("/")[2]) else key


def convert(source, dest, dialect):
    """Converts, and returns the names of the nodes that were left out."""
    said = run(BIN, "convert", "--skip-unsupported", source, dest, "--format", dialect, codes=(0, 1))
    return said


def without_fill(there):
    """The nodes to which Zarr 2 gives no fill value, since xarray would mask it there; `convert` stores their chunks."""
    found = set()
    for path in there.rglob(".zarray"):
        if json.loads(path.read_text())["fill_value"] is None:
            found.add(str(path.parent.relative_to(there)).removeprefix("."))
    return found


def is_zero(fill):
    """Whether a fill value of Zarr 2 is zero, in any type, or none."""
    if isinstance(fill, str):
        return not base64.b64decode(fill).strip(b"\0")
    return not any(fill) if isinstance(fill, list) else not fill


def drop_own_of_zarr2(first, second):
    """Drops what only Zarr 2 can say, if a copy through another dialect has what stands for it: no fill value, an array
    without dimensions whose attributes do not say so, and the masked value in two places."""
    is_scalar = first.get("shape") == [] and second.get("fill_value") is None
    if is_scalar or first.get("fill_value", 0) is None and is_zero(second.get("fill_value")):
        first.pop("fill_value", None), second.pop("fill_value", None)
    if "_ARRAY_DIMENSIONS" not in first and second.get("_ARRAY_DIMENSIONS") == []:
        second.pop("_ARRAY_DIMENSIONS")
    if "_ARRAY_DIMENSIONS" in first and "_FillValue" not in second:
        first.pop("_FillValue", None)


def differences(one, two, left_out, no_fill=()):
    """The metadata files in which two hierarchies differ, but for nodes that were left out by name."""
    one, two = documents(one), documents(two)
    found = {}
    for key in sorted({*one, *two}):
        path = node_of(key)
        if key not in two and re.search(rf"^zarrfs: /{re.escape(path)}: ", left_out, re.M):
            continue
        first, second = (json.loads(found.get(key, "null")) for found in (one, two))
        if first is None and not second.get("attributes") and "shape" not in second:
            continue  # A group that is one because of what lies below it, which was left out.
        if key.endswith((".zarray", ".zattrs")):
            drop_own_of_zarr2(first or {}, second or {})
        if path in no_fill and first and second and "fill_value" in first:
            assert second["fill_value"] in (0, None, first["fill_value"])
            first.pop("fill_value"), second.pop("fill_value")
        if json.dumps(first) != json.dumps(second):
            found[key] = (first, second)
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("case", CASES)
def test_there_and_back_keeps_types_shapes_names_fill_values_and_attributes(tmp_path, case, dialect):
    own = own_dialect(case)
    source, direct, there, back = store_of(case), tmp_path / "direct", tmp_path / "there", tmp_path / "back"
    left_out = convert(source, direct, own) + convert(source, there, dialect)
    if not there.exists():
        assert "no node can be converted" in left_out
        return
    left_out += convert(there, back, own)
    assert not differences(direct, back, left_out, without_fill(there))
    if not left_out:
        for copy in (there, back):
            run(BIN, "diff", source, copy)


def stored(store, name):
    """The metadata files of a node and everything below it, byte for byte, by their keys without its own name."""
    found = {}
    for at, _, names in os.walk(store):
        for file in names:
            key = str(Path(at, file).relative_to(store))
            head, has, tail = re.sub(r"^(meta/root|meta|root)/", "", key).partition(name)
            if re.fullmatch(DOCUMENTS, file) and not head and has and tail[0] in "./":
                found[tail] = Path(at, file).read_text()

    def says_nothing(tail, document):
        # Groups that are none but for what lies below them are groups in a copy.
        is_group = re.search(r"group(\.json)?$", tail) or document.get("node_type") == "group"
        return document == {} or (is_group and not document.get("attributes"))

    return {tail: text for tail, text in found.items() if not says_nothing(tail, json.loads(text))}


def children(root):
    return [path for path in sorted(root.iterdir()) if path.is_dir() and path.name != "c" and not path.name.isdigit()]


def chunks(root):
    """The chunk files that a mount lists."""
    return [path for path in sorted(root.rglob("*")) if path.is_file() and not re.fullmatch(DOCUMENTS + r"|\.zmetadata", path.name)]


WRITABLE = [case for case in CASES if not re.search("2022-11|2023-02", case)]
# Codecs that are only read, or that lose something, so that chunks become others when they are stored again.
KEPT = [case for case in WRITABLE if not re.match("flac|wavpack|si0105|imagecodecs2026|ic2026v._|nc017|zfpy101|ic202605|vt05v3__images", case)]
# It has nodes of Zarr 2 and 3 in one directory, which is refused: `cp` would make both.
COPIED = [case for case in KEPT if "dual" not in case]


@pytest.mark.parametrize("case", COPIED)
def test_a_copy_within_a_mount_is_stored_like_its_source(mount, case):
    with mount(store_of(case)) as m:
        names = [path.name for path in children(m.path)]
        for name in names:
            run("cp", "-r", m / name, m / f"new_{name}")
    for name in names:
        assert stored(m.store, name) == stored(m.store, f"new_{name}")
        run(BIN, "diff", m.store / name, m.store / f"new_{name}") if (m.store / name).exists() else None
    run(BIN, "check", m.store)


@pytest.mark.parametrize("case", [case for case in KEPT if case != "z342__rectilinear"])
@pytest.mark.parametrize("presentation", ["zarr", "zarr2"])
def test_chunks_that_are_written_back_unchanged_stay_as_they_are(mount, case, presentation):
    with mount(store_of(case), "--as", presentation) as m:
        for chunk in chunks(m.path):
            chunk.write_bytes(chunk.read_bytes())
    for key, text in documents(m.store).items():
        assert text == meaning(Path(store_of(case), key).read_text()), key
    run(BIN, "diff", store_of(case), m.store)


# What Zarr 2 cannot say (docs/formats.md): numbers that NumPy lacks, names of only some dimensions.
UNSAID = r"(bfloat16|.*data_type: .*raw_bytes)|.*dimension_names: \[.*null"


@pytest.mark.parametrize("case", [case for case in CASES if case != "z342__rectilinear"])
def test_a_copy_out_of_zarr_2_has_what_zarr_2_can_say(mount, tmp_path, case):
    with mount(store_of(case), "-o", "ro", "--as", "zarr2") as m:
        shutil.copytree(m.path, tmp_path / "out")
    done = subprocess.run([BIN, "diff", store_of(case), tmp_path / "out"], capture_output=True, text=True)
    said = [line for line in done.stdout.splitlines() if not re.match(UNSAID, line)]
    assert done.returncode in (0, 1) and not said, done.stdout + done.stderr
