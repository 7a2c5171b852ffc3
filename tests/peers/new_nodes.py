"""What the tests of new nodes share: arrays of many kinds, what a store must hold of them, and a directory as stand-in."""

import contextlib
import itertools
import json
import os
from pathlib import Path

import numpy as np
import zarr

from hierarchies import arrays, assert_same, dtype_of, item_of, read_ts, read_zarr
from mounts import files

# A plain directory stands in for the mount: what a test does must be right without zarrfs.
PLAIN = bool(os.environ.get("ZARRFS_PLAIN"))


class Plain:
    """What a test needs of a mount, of a directory that is none."""

    def __init__(self, directory):
        self.path = self.store = directory
        zarr.create_group(directory)

    def __truediv__(self, name):
        return self.path / name

    def errors(self):
        return ""

    def expect(self, pattern):
        pass

    allow = expect


@contextlib.contextmanager
def plain(directory):
    yield Plain(directory)


def ramp(shape, dtype):
    """Values of which none is 0, but for booleans."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    if dtype.kind == "b":
        return (np.arange(count) % 3 == 1).reshape(shape)
    values = (np.arange(count) % 100 + 1).astype(dtype)
    return (values * (1 + 2j) if dtype.kind == "c" else values).astype(dtype).reshape(shape)


# name: data type, shape, chunks, fill value, dimension names
KINDS = {
    "flag": ("?", (7,), (3,), True, None),
    "i1": ("i1", (5, 6), (2, 4), -7, ("y", "x")),
    "u2": ("u2", (9,), (9,), 65535, ("x",)),
    "i4": ("i4", (4, 5, 6), (2, 2, 4), 0, None),
    "i8": ("i8", (3, 3), (1, 3), -(2**63), None),
    "u8": ("u8", (6,), (4,), 2**64 - 1, None),
    "f2": ("f2", (4, 4), (4, 4), 0.5, None),
    "f4": ("f4", (10, 3), (3, 3), float("nan"), ("time", "x")),
    "f8": ("f8", (3, 2, 2, 2), (2, 2, 1, 2), float("-inf"), None),
    "c8": ("c8", (5,), (2,), 1 + 2j, None),
    "c16": ("c16", (2, 3), (2, 2), 0, None),
    "scalar": ("f8", (), (), 0, None),
    "scalar_flag": ("?", (), (), False, None),
    "empty": ("i4", (0,), (3,), 5, None),
    "empty_side": ("f4", (3, 0, 2), (2, 1, 2), 0, ("a", "b", "c")),
    "one": ("u1", (1,), (1,), 0, None),
    "deep/er/and/deeper": ("i2", (8, 8), (8, 8), 3, ("y", "x")),
}


def create(group, name, dtype, shape, chunks, fill_value=0, dimension_names=None, **options):
    """Makes an array as it has to be made on a mount, with `ramp` in it; gives the values."""
    array = group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        fill_value=fill_value,
        dimension_names=dimension_names,
        compressors=None,
        attributes={"name": name, "Ω": [1, None, {"x": 2.5}]},
        **options,
    )
    values = ramp(shape, dtype)
    array[...] = values
    return values


def create_kinds(group, kinds=KINDS):
    return {name: create(group, name, *kind) for name, kind in kinds.items()}


def described(store, dialect, path):
    """The stored document of an array."""
    slash = f"{path}/" if path else ""
    key = f"{slash}zarr.json" if dialect == "v3" else f"meta/root/{path}.array.json"
    return json.loads(Path(store, key).read_text())


def stored_codecs(store, dialect, path):
    """The names of the codecs behind `bytes`, and of those within shards."""
    document = described(store, dialect, path)
    if dialect != "v3":
        compressor = document.get("compressor")
        return [compressor["codec"].rsplit("/", 2)[-2]] if compressor else []
    codecs = document["codecs"]
    if codecs[0]["name"] == "sharding_indexed":
        codecs = codecs[0]["configuration"]["codecs"]
    return [codec["name"] for codec in codecs if codec["name"] != "bytes"]


def is_sharded(store, dialect, path):
    document = described(store, dialect, path)
    return bool(document.get("storage_transformers")) or document.get("codecs", [{}])[0].get("name") == "sharding_indexed"


def chunk_keys(store, dialect, path, values):
    """The keys of an array's chunks or shards: those in which some value is not the fill value."""
    document = described(store, dialect, path)
    if dialect == "v3":
        grid = document["chunk_grid"]["configuration"]["chunk_shape"]
        dtype = dtype_of(document["data_type"])
        prefix, separator, first = f"{path}/" if path else "", "/", "c/"
    else:
        grid, separator = document["chunk_grid"]["chunk_shape"], document["chunk_grid"]["separator"]
        for transformer in document.get("storage_transformers", []):
            grid = [a * b for a, b in zip(grid, transformer["configuration"]["chunks_per_shard"])]
        dtype = np.dtype(values.dtype)
        prefix, first = f"data/root/{path}/", "c"
    fill = document["fill_value"]
    if isinstance(fill, list) and dtype.kind == "c":
        fill = [float(part) for part in fill]
    fill = item_of(fill, dtype)
    keys = set()
    for coords in itertools.product(*(range(-(-n // c)) for n, c in zip(values.shape, grid))):
        part = values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(coords, grid))]
        if part.astype(dtype).tobytes() != fill * part.size:
            keys.add(prefix + (first + separator.join(map(str, coords)) if coords else "c" if dialect == "v3" else "c0"))
    return keys


def assert_keys(store, dialect, expected, groups=()):
    """The store has the documents of these arrays and groups and of all groups above them, the chunks, nothing else."""
    nodes = {*expected, *groups}
    above = {"/".join(path.split("/")[:n]) for path in nodes for n in range(path.count("/") + 1)}
    groups = {"", *above, *groups} - set(expected)
    if dialect == "v3":
        keys = {f"{path}/zarr.json".lstrip("/") for path in {*groups, *expected}}
    else:
        keys = {"zarr.json", *(f"meta/root/{path}.group.json" for path in groups if path)}
        keys |= {f"meta/root/{path}.array.json" for path in expected} | {"meta/root.group.json"}
    for path, values in expected.items():
        keys |= chunk_keys(store, dialect, path, values)
    found = set(files(store))
    if PLAIN:
        # TensorStore writes no documents of groups.
        keys -= {f"{path}/zarr.json" for path in above} - found
    assert found == keys, f"too many: {sorted(found - keys)}; missing: {sorted(keys - found)}"


def assert_stored(store, dialect, expected, zarr2, groups=()):
    """The store has these arrays, by other programs that read it, and no other key."""
    if dialect == "v3":
        for path, values in expected.items():
            assert_same(read_zarr(store, path), values, f"{path} by zarr-python 3")
            assert_same(read_ts(store, path), values, f"{path} by tensorstore")
        assert arrays(store) == sorted(expected)
    else:
        found = zarr2.read(store)
        assert found.keys() == expected.keys()
        for path, values in expected.items():
            assert_same(found[path], values, f"{path} by zarr-python 2")
    assert_keys(store, dialect, expected, groups)


def nodes_of(group):
    """Every node below, with all that zarr-python says of it."""
    found = {"": dict(group.attrs)}
    for path, node in group.members(max_depth=None):
        found[path] = dict(node.attrs)
        if isinstance(node, zarr.Array):
            fill = np.array(node.fill_value, node.dtype).tobytes()
            found[path] = (found[path], node.shape, node.chunks, node.dtype, fill, node.metadata.dimension_names)
    return found
