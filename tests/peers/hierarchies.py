"""Hierarchies read by three readers: chunk file by chunk file, by zarr-python 3, and by tensorstore."""

import itertools
import json
import os
import warnings
from pathlib import Path

import numpy as np
import tensorstore as ts
import zarr

warnings.filterwarnings("ignore", category=zarr.errors.ZarrUserWarning)
warnings.filterwarnings("ignore", category=zarr.errors.UnstableSpecificationWarning)


def document(directory):
    """The `zarr.json` in `directory`, which must be strict JSON."""

    def refuse(name):
        raise AssertionError(f"{directory}/zarr.json holds a bare {name}")

    return json.loads(Path(directory, "zarr.json").read_text(), parse_constant=refuse)


def dtype_of(name):
    return np.dtype(f"V{int(name[1:]) // 8}" if name[0] == "r" else name).newbyteorder("<")


def item_of(value, dtype):
    """The bytes of one element, from a `fill_value`."""
    if dtype.kind == "V":
        return bytes(value)
    if isinstance(value, list):
        half = np.dtype(f"f{dtype.itemsize // 2}")
        return b"".join(item_of(part, half) for part in value)
    if isinstance(value, str) and value.startswith("0x"):
        return int(value, 16).to_bytes(dtype.itemsize, "little")
    if isinstance(value, str):
        value = float(value)
    return np.array(value, dtype.newbyteorder("<")).tobytes()


def arrays(directory):
    """The paths of all arrays below `directory`."""
    found = []
    for at, _, names in os.walk(directory):
        if "zarr.json" in names and document(at)["node_type"] == "array":
            found.append(os.path.relpath(at, directory).removeprefix("."))
    return sorted(found)


def chunk_path(coords):
    return "/".join(["c", *map(str, coords)])


def chunk_files(array):
    """The chunks that are listed below an array's directory, by their coordinates."""
    if (array / "c").is_file():
        return {(): array / "c"}
    found = {}
    for at, _, names in os.walk(array / "c"):
        for name in names:
            path = Path(at, name)
            found[tuple(map(int, path.relative_to(array / "c").parts))] = path
    return found


def assembled(array):
    """An array put together from its chunk files, as its own `zarr.json` describes them."""
    described = document(array)
    assert described["chunk_key_encoding"]["name"] == "default"
    codecs = [codec["name"] for codec in described["codecs"]]
    assert codecs == ["bytes"], codecs
    shape = tuple(described["shape"])
    chunk_shape = tuple(described["chunk_grid"]["configuration"]["chunk_shape"])
    dtype = dtype_of(described["data_type"])
    counts = [-(-length // chunk) if chunk else 0 for length, chunk in zip(shape, chunk_shape)]
    whole = np.empty([n * c for n, c in zip(counts, chunk_shape)], dtype)
    whole[...] = np.frombuffer(item_of(described["fill_value"], dtype), dtype)[0]
    listed = chunk_files(array)
    for coords in itertools.product(*map(range, counts)):
        path = array / chunk_path(coords)
        assert (coords in listed) == path.exists(), f"{path} is listed or exists, not both"
        if coords in listed:
            chunk = np.frombuffer(path.read_bytes(), dtype).reshape(chunk_shape)
            whole[tuple(slice(i * c, (i + 1) * c) for i, c in zip(coords, chunk_shape))] = chunk
            listed.pop(coords)
    assert not listed, f"listed outside of the grid: {sorted(listed)}"
    return whole[tuple(map(slice, shape))]


def read_zarr(root, path):
    return np.asarray(zarr.open_array(str(Path(root, path)), mode="r", zarr_format=3)[...])


def open_ts(root, path):
    store = {"driver": "file", "path": str(Path(root, path)) + "/"}
    return ts.open({"driver": "zarr3", "kvstore": store}, open=True).result()


def read_ts(root, path):
    return np.asarray(open_ts(root, path).read().result())


def assert_same(got, expected, what=""):
    """Equal bit for bit, except for the byte order and the payloads of NaNs."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, not {expected.shape}"
    if expected.dtype.kind == "V":
        got = got.astype(expected.dtype) if got.dtype.kind == "V" else got.view(expected.dtype)
    assert got.dtype.newbyteorder("<") == expected.dtype.newbyteorder("<"), f"{what}: {got.dtype}"
    got, expected = (a.astype(a.dtype.newbyteorder("<")) for a in (got, expected))
    got, expected = (np.where(a != a, a.dtype.type(np.nan), a) if a.dtype.kind in "fc" else a for a in (got, expected))
    if got.tobytes() != expected.tobytes():
        differs = np.argwhere(np.asarray(got != expected))
        first = tuple(differs[0]) if len(differs) else "only a bit"
        raise AssertionError(f"{what}: {len(differs)} of {got.size} differ, first at {first}:\n{got}\n{expected}")
