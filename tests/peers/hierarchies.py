"""Hierarchies read by three readers: chunk file by chunk file, by zarr-python 3, and by tensorstore."""

import base64
import itertools
import json
import os
import re
import struct
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


# Numbers that numpy does not know.
NARROW = r"bfloat16|float[468]_.*|u?int[24]"


def name_of(data_type):
    """The name of a `data_type`, and its configuration."""
    if isinstance(data_type, str):
        return data_type, {}
    return data_type["name"], data_type.get("configuration", {})


def dtype_of(data_type):
    """What numpy calls a `data_type`; of numbers that it does not know it is their bits."""
    name, configuration = name_of(data_type)
    if name in ("numpy.datetime64", "numpy.timedelta64"):
        scale, unit = configuration["scale_factor"], configuration["unit"]
        return np.dtype(f"<{'M' if 'date' in name else 'm'}8[{scale}{unit}]")
    if name == "null_terminated_bytes":
        return np.dtype(f"S{configuration['length_bytes']}")
    if name == "raw_bytes":
        return np.dtype(f"V{configuration['length_bytes']}")
    if name == "fixed_length_utf32":
        return np.dtype(f"<U{configuration['length_bytes'] // 4}")
    if name in ("struct", "structured"):
        fields = [(it["name"], it["data_type"]) if isinstance(it, dict) else it for it in configuration["fields"]]
        return np.dtype([(field, dtype_of(of)) for field, of in fields])
    if name in ("string", "variable_length_bytes"):
        return np.dtype(object)
    if re.fullmatch(r"r\d+", name):
        return np.dtype(f"V{int(name[1:]) // 8}")
    if re.fullmatch(NARROW, name):
        return np.dtype("<u2" if name == "bfloat16" else "u1")
    return np.dtype(name).newbyteorder("<")


def item_of(value, dtype):
    """The bytes of one element, from a `fill_value`; what it holds where it has a length of its own."""
    if dtype.kind == "O":
        return value
    if dtype.kind == "U":
        return np.array(value, dtype).tobytes()
    if dtype.kind in "SV" and isinstance(value, str):
        return base64.b64decode(value).ljust(dtype.itemsize, b"\0")
    if dtype.names and isinstance(value, dict):
        return b"".join(item_of(value[field], dtype[field]) for field in dtype.names)
    if dtype.kind == "V":
        return bytes(value)
    if dtype.kind in "Mm":
        return np.array("NaT" if value == "NaT" else int(value), "i8" if value != "NaT" else dtype).tobytes()
    if isinstance(value, list):
        half = np.dtype(f"f{dtype.itemsize // 2}")
        return b"".join(item_of(part, half) for part in value)
    if isinstance(value, str) and value.startswith("0x"):
        return int(value, 16).to_bytes(dtype.itemsize, "little")
    if isinstance(value, str):
        value = float(value)
    return np.array(value, dtype.newbyteorder("<")).tobytes()


def elements_of(chunk, data_type):
    """What a chunk file holds: elements one after another, or each with its length in front."""
    dtype = dtype_of(data_type)
    if dtype.kind != "O":
        return np.frombuffer(chunk, dtype)
    (count,), at, found = struct.unpack_from("<I", chunk), 4, []
    for _ in range(count):
        (length,) = struct.unpack_from("<I", chunk, at)
        found.append(chunk[at + 4 : at + 4 + length])
        at += 4 + length
    assert at == len(chunk), f"{len(chunk) - at} bytes follow"
    if name_of(data_type)[0] == "string":
        found = [item.decode() for item in found]
    return np.array([*found, None], object)[:-1]


def expanded(lens, length):
    """The lengths of chunks along a dimension of a rectilinear grid, one by one."""
    if isinstance(lens, int):
        return [lens] * -(-length // lens)
    return [one for item in lens for one in ([item[0]] * item[1] if isinstance(item, list) else [item])]


def lengths_of(described):
    """Along each dimension of a described array the lengths of its chunks, one by one."""
    grid = described["chunk_grid"]
    if grid["name"] == "rectilinear":
        lens = grid["configuration"]["chunk_shapes"]
    else:
        lens = [length or 1 for length in grid["configuration"]["chunk_shape"]]
    return [expanded(each, length) for each, length in zip(lens, described["shape"])]


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
    dtype, shape = dtype_of(described["data_type"]), tuple(described["shape"])
    plain = {"string": "vlen-utf8", "variable_length_bytes": "vlen-bytes"}
    codecs = [codec["name"] for codec in described["codecs"]]
    assert codecs == [plain.get(name_of(described["data_type"])[0], "bytes")], codecs
    lens = lengths_of(described)
    starts = [list(itertools.accumulate(each, initial=0)) for each in lens]
    whole = np.empty([each[-1] for each in starts], dtype)
    fill = item_of(described["fill_value"], dtype)
    if dtype.kind == "O":
        whole[...] = fill if name_of(described["data_type"])[0] == "string" else base64.b64decode(fill)
    else:
        whole[...] = np.frombuffer(fill, dtype)[0]
    listed = chunk_files(array)
    for coords in itertools.product(*(range(len(each)) for each in lens)):
        path = array / chunk_path(coords)
        assert (coords in listed) == path.exists(), f"{path} is listed or exists, not both"
        if coords in listed:
            chunk = elements_of(path.read_bytes(), described["data_type"])
            place = tuple(slice(each[i], each[i + 1]) for i, each in zip(coords, starts))
            whole[place] = chunk.reshape([each[i] for i, each in zip(coords, lens)])
            listed.pop(coords)
    assert not listed, f"listed outside of the grid: {sorted(listed)}"
    return whole[tuple(map(slice, shape))]


def read_zarr(root, path):
    return np.asarray(zarr.open_array(str(Path(root, path)), mode="r", zarr_format=3)[...])


def ident(options):
    """The name of a test with these options of a mount."""
    return "-".join(part.strip("-") for part in options)


def open_ts(root, path):
    store = {"driver": "file", "path": str(Path(root, path)) + "/"}
    return ts.open({"driver": "zarr3", "kvstore": store}, open=True).result()


def read_ts(root, path):
    return np.asarray(open_ts(root, path).read().result())


def little(dtype):
    """The type in little endian, without gaps between fields."""
    if dtype.subdtype:
        return np.dtype((little(dtype.subdtype[0]), dtype.subdtype[1]))
    if dtype.names:
        return np.dtype([(name, little(dtype.fields[name][0])) for name in dtype.names])
    return dtype.newbyteorder("<")


def assert_same(got, expected, what=""):
    """Equal bit for bit, except for the byte order and the payloads of NaNs."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, not {expected.shape}"
    if got.dtype.kind in "OT":
        # numpy's own arrays of any length are padded.
        got = got.astype(expected.dtype)
    if expected.dtype.names:
        # An array in a structure is its bytes: only all of the bytes are the same.
        expected = np.frombuffer(expected.astype(little(expected.dtype)).tobytes(), f"V{expected.dtype.itemsize}")
        got = np.frombuffer(got.tobytes(), expected.dtype)
    if got.dtype.isbuiltin == 2 and got.dtype.itemsize == expected.dtype.itemsize:
        got = got.view(expected.dtype)  # Of a number that numpy itself does not know the truth is its bits.
    if expected.dtype.kind == "V":
        got = got.astype(expected.dtype) if got.dtype.kind == "V" else got.view(expected.dtype)
    assert got.dtype.newbyteorder("<") == expected.dtype.newbyteorder("<"), f"{what}: {got.dtype}"
    got, expected = (a.astype(a.dtype.newbyteorder("<")) for a in (got, expected))
    got, expected = (np.where(a != a, a.dtype.type(np.nan), a) if a.dtype.kind in "fc" else a for a in (got, expected))
    if got.tobytes() != expected.tobytes():
        differs = np.argwhere(np.asarray(got != expected))
        first = tuple(differs[0]) if len(differs) else "only a bit"
        raise AssertionError(f"{what}: {len(differs)} of {got.size} differ, first at {first}:\n{got}\n{expected}")
