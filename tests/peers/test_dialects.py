"""Stores of every dialect that is written, through an ordinary mount: arrays that libraries of Zarr 3 make there and chunks
that files change, read from the store by the programs of its dialect.
"""

import functools
import json
import struct

import numpy as np
import numcodecs
import pytest
import tensorstore as ts
import zarr

from hierarchies import assert_same, chunk_files, chunk_path, document, elements_of, little, read_zarr
from new_nodes import create, ramp
from test_new_nodes import create_ts
from sources import assert_arrays, empty, read_source
from test_fixtures import ALL, store_of, truths
from test_zarr2 import gdal_arrays
from test_zarr2_writing import NUMBERS, run

WRITTEN = ["v3", "v2", "n5", "d2020-10"]

# Beyond what N5 has: type, shape, chunks, fill value.
MORE = {
    "flag": ("?", (7,), (3,), True),
    "c8": ("c8", (5,), (2,), 1 + 2j),
    "c16": ("c16", (3, 3), (2, 2), 0),
    "nan": ("f4", (4, 4), (3, 3), float("nan")),
    "infinite": ("f8", (5,), (3,), float("-inf")),
    "minus": ("i8", (4, 4), (3, 3), -(2**63)),
    "most": ("u8", (4,), (3,), 2**64 - 1),
    "half": ("f2", (4, 4), (3, 3), 0.5),
    "scalar": ("f8", (), (), 0.5),
    "empty": ("i4", (0, 3), (2, 2), 5),
}
PAIR = np.dtype([("a", "<i4"), ("b", "<f4"), ("c", "S3")])
OTHERS = {
    "texts": (str, (5,), (2,), ""),
    "U4": ("<U4", (5,), (2,), ""),
    "S4": ("S4", (5,), (2,), b""),
    "M8": ("<M8[s]", (5, 2), (2, 2), np.datetime64("NaT", "s")),
    "M8_25": ("<M8[25ms]", (5,), (2,), np.datetime64(0, "s")),
    "m8": ("<m8[h]", (5,), (2,), np.timedelta64(0, "h")),
    "pairs": (PAIR, (5,), (2,), np.zeros((), PAIR)[()]),
}
# An array without dimensions counts as one with named dimensions, whose elements of 0.5 xarray would mask.
SCALAR = {"scalar": ("f8", (), (), 0)}
KINDS = {"v3": NUMBERS | MORE | OTHERS, "v2": NUMBERS | MORE | OTHERS | SCALAR, "n5": NUMBERS, "d2020-10": NUMBERS | MORE}


def values_of(dtype, shape):
    count = int(np.prod(shape))
    if dtype is str:
        return np.array([f"Ω{n}" * n for n in range(count)], object).reshape(shape)
    dtype = np.dtype(dtype)
    if dtype.names:
        return np.array([(n, n / 2, f"t{n}") for n in range(count)], dtype).reshape(shape)
    if dtype.kind in "SU":
        return np.array([f"t{n}" for n in range(count)], dtype).reshape(shape)
    if dtype.kind in "Mm":
        return ramp(shape, "i8").astype(dtype)
    return ramp(shape, dtype)


def make(group, name, dtype, shape, chunks, fill_value):
    array = group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=chunks or (),
        fill_value=fill_value,
        compressors=None,
        attributes={"name": name, "Ω": [1, None, {"x": 2.5}]},
    )
    values = values_of(dtype, shape)
    array[...] = values
    return values


def make_all(m, kinds):
    group = zarr.open_group(m.path, mode="a", zarr_format=3)
    group.attrs["title"] = "Ω"
    return {name: make(group, name, *kind) for name, kind in kinds.items()}


ZLIB = '[{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "numcodecs.zlib", "configuration": {"level": 1}}]'
POLICIES = ["", "none", "zstd", "gzip", "blosc", "bz2", "lzma", ZLIB]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "dialect, policy", [(dialect, policy) for dialect in WRITTEN for policy in POLICIES if policy[:1] != "[" or dialect != "n5"]
)
def test_what_zarr_python_3_makes_is_read_by_a_program_of_the_dialect(mount, zarr2, tmp_path, dialect, policy):
    options = ("--codecs", policy) if policy else ()
    with empty(mount, tmp_path / "store", dialect, *options) as m:
        # All types once, and with other codecs those of all dialects.
        expected = make_all(m, KINDS[dialect] if not policy else NUMBERS)
        for path, values in expected.items():
            if values.dtype.kind != "O":
                assert_same(read_zarr(m.path, path), values, path)
    assert_arrays(read_source(m.store, dialect, zarr2, tmp_path), expected)
    if dialect == "v2":
        group = zarr.open_group(m.store, mode="r", zarr_format=2)
        by_three = {path: np.asarray(node[...]) for path, node in group.members(max_depth=None) if isinstance(node, zarr.Array)}
        assert_arrays(by_three, expected)
        assert dict(group["i4"].attrs) == {"name": "i4", "Ω": [1, None, {"x": 2.5}]}


def open_driver(driver, path):
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{path}/"}}
    return ts.open(spec, open=True).result()


DRIVERS = {"v3": "zarr3", "v2": "zarr", "n5": "n5"}


@pytest.mark.parametrize("policy", ["", "none", "gzip", "blosc"])
@pytest.mark.parametrize("dialect", DRIVERS)
def test_tensorstore_reads_with_its_own_driver_what_it_made_on_the_mount(mount, tmp_path, dialect, policy):
    options = ("--codecs", policy) if policy else ()
    if dialect == "n5" and not policy:
        options = ("--codecs", "bz2")
    expected = {name: ramp(shape, dtype) for name, (dtype, shape, _, _) in NUMBERS.items()}
    if dialect != "n5":
        expected |= {"flag": ramp((7,), "?"), "c8": ramp((5,), "c8"), "scalar": ramp((), "f4")}
    chunks = {name: kind[2] for name, kind in (NUMBERS | MORE).items()}
    with empty(mount, tmp_path / "store", dialect, *options) as m:
        for path, values in expected.items():
            create_ts(m / path, values, chunks[path])
        for path, values in expected.items():
            got = np.asarray(open_driver(DRIVERS[dialect], m.store / path).read().result())
            # N5 has its dimensions the other way round.
            assert_same(got.T if dialect == "n5" else got, values, path)


ORDER_F = json.dumps(
    [
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
    ]
)


@pytest.mark.parametrize("dialect", ["v3", "v2", "d2020-10"])
def test_a_policy_of_f_order_is_stored_as_such(mount, zarr2, tmp_path, dialect):
    with empty(mount, tmp_path / "store", dialect, "--codecs", ORDER_F) as m:
        group = zarr.open_group(m.path, mode="a", zarr_format=3)
        expected = {"x": create(group, "x", "i4", (10, 7), (4, 3), 0), "y": create(group, "y", "f8", (5, 5), (5, 5), 0)}
        assert [codec["name"] for codec in document(m / "x")["codecs"]] == ["bytes"]
    assert_arrays(read_source(m.store, dialect, zarr2, tmp_path), expected)
    if dialect == "v2":
        stored = json.loads((m.store / "x/.zarray").read_text())
        assert stored["order"] == "F" and stored["filters"] is None and stored["compressor"]["id"] == "zstd"
        assert_same(np.asarray(open_driver("zarr", m.store / "x").read().result()), expected["x"])


COMPRESSORS = {"none": None, "zstd": "zstd", "gzip": "gzip", "blosc": "blosc", "zlib": "zlib", ZLIB: "zlib", "lz4": "lz4"}


@pytest.mark.parametrize("policy", COMPRESSORS)
def test_the_stored_document_of_zarr_2_names_the_compressor(mount, tmp_path, policy):
    with empty(mount, tmp_path / "store", "v2", "--codecs", policy) as m:
        create(zarr.open_group(m.path, mode="a", zarr_format=3), "x", "i4", (10, 7), (4, 3), 0)
    stored = json.loads((m.store / "x/.zarray").read_text())
    assert (stored["compressor"] or {"id": None})["id"] == COMPRESSORS[policy]
    assert stored["order"] == "C" and not stored["filters"] and stored["shape"] == [10, 7] and stored["chunks"] == [4, 3]


# ---- changes


def region(coords, chunk_shape, shape):
    return tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(coords, chunk_shape, shape))


@pytest.mark.parametrize("dialect", WRITTEN)
def test_arrays_are_resized_and_changed_by_files(mount, zarr2, tmp_path, dialect):
    with empty(mount, tmp_path / "store", dialect) as m:
        group = zarr.open_group(m.path, mode="a", zarr_format=3)
        expected = {name: create(group, name, "i4", (10, 6), (3, 4), 0) for name in ("down", "up", "files", "gone")}
        group["down"].resize((4, 3))
        expected["down"] = expected["down"][:4, :3]
        group["up"].resize((14, 9))
        group["up"][12:, 8] = 5
        expected["up"] = np.pad(expected["up"], ((0, 4), (0, 3)))
        expected["up"][12:, 8] = 5
        for coords in [(0, 0), (3, 1)]:
            (m / "files" / chunk_path(coords)).write_bytes(np.full((3, 4), 1000 + coords[0], "<i4").tobytes())
            expected["files"][region(coords, (3, 4), (10, 6))] = 1000 + coords[0]
        (m / "files/c/1/1").unlink()
        expected["files"][3:6, 4:] = 0
        with open(m / "files/c/2/0", "r+b") as file:
            file.seek(4 * 5)
            file.write(np.int32(-9).tobytes())
        expected["files"][7, 1] = -9
        del group["gone"], expected["gone"]
        for number in range(3):
            group["up"].attrs["number"] = number
        run("mv", m / "up", m / "moved")
        expected["moved"] = expected.pop("up")
        run("cp", "-r", m / "moved", m / "copied")
        expected["copied"] = expected["moved"]
    assert_arrays(read_source(m.store, dialect, zarr2, tmp_path), expected)


@pytest.mark.parametrize("policy", ["none", "gzip"])
def test_blocks_at_the_edge_are_stored_cropped_in_n5(mount, zarr2, tmp_path, policy):
    with empty(mount, tmp_path / "store", "n5", "--codecs", policy) as m:
        values = create(zarr.open_group(m.path, mode="a", zarr_format=3), "x", "i4", (10, 7), (4, 3), 0)
        for i, j in np.ndindex(3, 3):
            assert (m / f"x/c/{i}/{j}").stat().st_size == 4 * 3 * 4
    for i, j in np.ndindex(3, 3):
        # The last dimension is the first of N5.
        block = (m.store / f"x/{j}/{i}").read_bytes()
        mode, rank, wide, high = struct.unpack_from(">HHII", block)
        part = values[4 * i : 4 * i + 4, 3 * j : 3 * j + 3]
        assert (mode, rank, wide, high) == (0, 2, part.shape[1], part.shape[0])
        if policy == "none":
            assert block[12:] == part.astype(">i4").tobytes()
    assert_arrays(zarr2.read_n5(m.store), {"x": values})
    assert_same(np.asarray(open_driver("n5", m.store / "x").read().result()).T, values)


# ---- stores of other programs

OTHERS_STORES = [case for case in ALL if case.startswith(("z218v2__", "z218n5__", "gdal36v2__", "ts__v2"))]
# The package that this filter needs is not in the environment of zarr-python 2.
OTHERS_STORES.remove("z218v2__filter_crc32c")


def turned(chunk, data_type):
    """A chunk with its elements in the reverse order: values that the array can hold."""
    elements = elements_of(chunk, data_type)[::-1]
    if elements.dtype.kind != "O":
        return elements.tobytes()
    items = [item.encode() if isinstance(item, str) else item for item in elements]
    return struct.pack("<I", len(items)) + b"".join(struct.pack("<I", len(item)) + item for item in items)


def read_others(case, store, zarr2):
    """The arrays as their own kind of program reads them."""
    if case.startswith("z218n5"):
        return zarr2.read_n5(store)
    if case.startswith("ts__"):
        names = (path for path, _ in truths(case))
        found = {path: np.asarray(open_driver("zarr", store / path).read().result()) if path != "struct" else None for path in names}
        found["struct"] = zarr2.run("result = {'x': zarr.open(path, mode='r')[...]}", path=store / "struct")["x"]
        return found
    if case == "gdal36v2__compressors":
        # Of GDAL's options of lzma numcodecs does not know all.
        said = run("gdalmdiminfo", "-detailed", store).stdout
        return {path: np.array(array["values"], "i4") for path, array in gdal_arrays(json.loads(said)).items()}
    return zarr2.read_v2(store)


def is_defined(case, path):
    """Whether every reader has the same values where chunks are missing."""
    about = ALL[case]["arrays"][f"/{path}"]
    zarray = store_of(case) / path / ".zarray"
    is_null = zarray.exists() and json.loads(zarray.read_text())["fill_value"] is None
    return not about.get("undefined_where_missing") and not (is_null and "fill" in case)


@pytest.mark.parametrize("case", OTHERS_STORES)
def test_a_chunk_of_every_array_that_changes_is_what_its_writer_reads(mount, zarr2, case):
    with mount(store_of(case)) as m:
        expected = {}
        for path, truth in truths(case):
            truth = truth.copy()
            described = document(m / path)
            shape, grid = described["shape"], described["chunk_grid"]["configuration"]["chunk_shape"]
            chunks = chunk_files(m / path)
            inside = [c for c in sorted(chunks) if all((i + 1) * n <= s for i, n, s in zip(c, grid, shape))]
            if inside:
                coords = inside[len(inside) // 2]
                at = region(coords, grid, shape)
                truth[at] = truth[at].reshape(-1)[::-1].reshape(truth[at].shape)
                chunks[coords].write_bytes(turned(chunks[coords].read_bytes(), described["data_type"]))
            expected[path] = truth
        assert expected
    found = read_others(case, m.store, zarr2)
    for path, truth in expected.items():
        if is_defined(case, path):
            got = found[path].astype(little(found[path].dtype))
            if got.dtype.kind in "SUO":
                got = got.astype(truth.dtype)
            assert_same(got, truth, path)


LOSSY = {
    "scaled": ("<f8", [{"id": "fixedscaleoffset", "offset": 10, "scale": 8, "dtype": "<f8", "astype": "<i2"}]),
    "quantized": ("<f4", [{"id": "quantize", "digits": 2, "dtype": "<f4"}]),
    "narrowed": ("<f8", [{"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"}]),
    "rounded": ("<f4", [{"id": "bitround", "keepbits": 5}]),
    "whole": ("<f8", [{"id": "astype", "encode_dtype": "<i4", "decode_dtype": "<f8"}, {"id": "delta", "dtype": "<i4"}]),
    "delta": ("<f8", [{"id": "delta", "dtype": "<f8"}]),
}


@functools.cache
def codec(text):
    return numcodecs.get_codec(json.loads(text))


def through(filters, values):
    """What numcodecs itself makes of a chunk."""
    codecs = [codec(json.dumps(one)) for one in filters]
    buffer = values.reshape(-1)
    for one in codecs:
        buffer = one.encode(buffer)
    for one in codecs[::-1]:
        buffer = one.decode(buffer)
    return np.asarray(buffer).view(values.dtype).reshape(values.shape)


def test_lossy_filters_lose_what_numcodecs_loses(mount, zarr2, tmp_path):
    code = """
        group = zarr.open_group(store, mode="w")
        for name, (dtype, filters) in lossy.items():
            filters = [numcodecs.get_codec(one) for one in filters]
            x = group.create_dataset(name, shape=(8, 6), chunks=(4, 6), dtype=dtype, filters=filters)
            x[...] = np.arange(48).reshape(8, 6)
    """
    store = tmp_path / "lossy"
    zarr2.run(code, store=store, lossy=LOSSY)
    expected = {}
    with mount(store, copy=False) as m:
        m.allow("lossy")
        for name, (dtype, filters) in LOSSY.items():
            chunk = (np.arange(24, dtype=dtype).reshape(4, 6) * 1.37 + 0.013).astype(dtype)
            (m / name / "c/1/0").write_bytes(chunk.tobytes())
            whole = np.concatenate([np.arange(24, dtype=dtype).reshape(4, 6), chunk])
            expected[name] = np.concatenate([through(filters, whole[:4]), through(filters, whole[4:])])
            # What is read after storing is what the store gives.
            assert_same(read_zarr(m.path, name), expected[name], name)
    assert_arrays(zarr2.read_v2(store), expected)
