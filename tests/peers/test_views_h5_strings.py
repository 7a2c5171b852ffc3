"""Strings of any number and length in `h5`, as h5py writes them."""

import errno
import json
import os
import subprocess
import time

import h5py
import numpy as np
import pytest
import zarr

from hierarchies import assert_same
from test_views_hdf5 import validate
from views import ZARRFS, cat

RNG = np.random.default_rng(24)
WORDS = np.array(["", "a", "Zürich", "日本語", "x" * 300, "tab\tline\n", "🐈"], dtype=object)
SHAPES = {
    "scalar": ((), ()),
    "none": ((0,), (4,)),
    "line": ((11,), (4,)),
    "long": ((20_000,), (7_000,)),
    "plane": ((7, 10), (3, 4)),
    "rows": ((9, 5), (2, 5)),
    "box": ((5, 4, 6), (2, 3, 4)),
}


def strings(path, shape, chunks, **options):
    values = RNG.choice(WORDS, shape) if shape else np.array("Zürich", dtype=object)
    array = zarr.create_array(path, shape=shape, chunks=chunks, dtype=str, **options)
    array[...] = np.asarray(values, dtype=np.dtypes.StringDType())
    return values


def read(file, name):
    with h5py.File(file) as data:
        assert h5py.check_string_dtype(data[name].dtype) == ("utf-8", None)
        return np.asarray(data[name].asstr()[()], dtype=object)


@pytest.mark.parametrize("options", [{}, {"fill_value": "missing"}, {"zarr_format": 2}], ids=["v3", "fill", "v2"])
@pytest.mark.parametrize("shape, chunks", SHAPES.values(), ids=SHAPES)
def test_strings_are_read_as_zarr_has_them(tmp_path, shape, chunks, options):
    values = strings(tmp_path / "v", shape, chunks, **options)
    if shape and shape[0] > 4:
        zarr.open_array(tmp_path / "v").resize((shape[0] + 9, *shape[1:]))
        rest = np.full((9, *shape[1:]), options.get("fill_value", ""), dtype=object)
        values = np.concatenate([values, rest])
    file = cat(tmp_path / "v", "h5", tmp_path / "v.h5")
    if values.size < 1000:
        validate(file)
    assert read(file, "root").tolist() == values.tolist()


def test_one_array_has_gigabytes_of_missing_strings_and_another_very_long_ones(tmp_path):
    root = zarr.create_group(tmp_path / "g")
    sparse = root.create_array("sparse", shape=(1_000_000,), chunks=(10_000,), dtype=str, fill_value="n" * 3000)
    sparse[500_000] = "here"
    long = np.array(["a" * 3_000_000, "", "b" * 70_000, "c"], dtype=object)
    root.create_array("long", data=long.astype(np.dtypes.StringDType()), chunks=(3,))
    file = cat(tmp_path / "g", "h5", tmp_path / "g.h5")
    with h5py.File(file) as data:
        assert data["sparse"].asstr()[499_999:500_002].tolist() == ["n" * 3000, "here", "n" * 3000]
        assert data["long"].asstr()[...].tolist() == long.tolist()


def test_a_mount_never_mixes_old_and_new_strings(mount, tmp_path):
    path = tmp_path / "s/x"
    values = strings(path, (20_000,), (7_000,))
    with mount(tmp_path / "s", "--cache-size", "1M", copy=False) as m:
        assert read(m / "x.h5", "x").tolist() == values.tolist()
        with h5py.File(m / "x.h5") as data:
            first = data["x"].asstr()[:10].tolist()
            assert first == values[:10].tolist()
            new = values.copy()
            new[15_000] = "changed"
            zarr.open_array(path)[15_000] = "changed"
            time.sleep(1.5)
            m.allow("strings have changed|has changed since")
            try:
                found = data["x"].asstr()[15_000]
            except OSError:
                pass
            else:
                assert found in (values[15_000], "changed")
        assert read(m / "x.h5", "x").tolist() == new.tolist()
        fd = os.open(m / "x.h5", os.O_RDWR)
        end = os.fstat(fd).st_size - 9000
        m.refused(errno.EPERM, "the header and strings cannot change", lambda: os.pwrite(fd, b"other", end))
        os.close(fd)
        subprocess.run(["cp", m / "x.h5", tmp_path / "copy.h5"], check=True)
        assert read(tmp_path / "copy.h5", "x").tolist() == new.tolist()


def test_attributes_are_as_h5py_writes_them(tmp_path):
    root = zarr.create_group(tmp_path / "g", attributes={
        "flag": True, "flags": [True, False], "empty": [], "text": "", "words": ["a", "Zürich"], "one": 1, "x": 2.5, "many": [True] * 70_000,
    })  # fmt: skip
    root.create_array("b", data=np.array([True, False]))
    root.create_array("s", data=np.float32(3))
    with h5py.File(cat(tmp_path / "g", "h5", tmp_path / "g.h5")) as data:
        attributes = dict(data.attrs)
        assert attributes["flag"] is np.True_ or attributes["flag"].dtype == bool
        assert_same(attributes["flags"], np.array([True, False]))
        assert attributes["empty"].shape == (0,)
        assert json.loads(attributes["many"]) == [True] * 70_000, "an attribute has less than 64 KiB"
        assert attributes["text"] == "" and attributes["words"].tolist() == ["a", "Zürich"]
        assert data["b"].dtype == bool and data["s"][()] == 3 and data["s"].shape == ()


def test_bytes_of_any_length_are_whole(tmp_path):
    values = [b"\x89PNG\x00\x01rest", b"\x00\xff", b"plain", b"", b"end\0"]
    root = zarr.create_group(tmp_path / "g")
    array = root.create_array("b", shape=(5,), chunks=(2,), dtype="variable_length_bytes", fill_value=b"\0f")
    array[:4] = np.array(values[:4], dtype=object)
    file = cat(tmp_path / "g", "h5", tmp_path / "g.h5")
    validate(file)
    with h5py.File(file) as data:
        assert h5py.check_vlen_dtype(data["b"].dtype) == np.uint8
        assert [one.tobytes() for one in data["b"][...]] == [*values[:4], b"\0f"]


def test_strings_with_a_nul_are_whole_and_listed(tmp_path):
    root = zarr.create_group(tmp_path / "g")
    texts = np.array(["a\0b", "é", ""], dtype=object)
    root.create_array("any", data=texts.astype(np.dtypes.StringDType()), chunks=(2,))
    root.create_array("fixed", data=texts.astype("U3"), chunks=(2,))
    root.create_array("plain", data=np.array(["a", "b"], dtype="U1"))
    file = cat(tmp_path / "g", "h5", tmp_path / "g.h5")
    validate(file)
    with h5py.File(file) as data:
        for name in ("any", "fixed"):
            assert [one.tobytes().decode() for one in data[name][...]] == texts.tolist()
        assert data["plain"].asstr()[...].tolist() == ["a", "b"]
    lacks = json.loads(subprocess.check_output([ZARRFS, "info", "--json", tmp_path / "g"]))["without"]["h5"]
    assert lacks.count("strings with a NUL (all strings as lists of bytes)") == 2 and "plain: strings" not in lacks


MEMBERS = np.dtype(
    [
        ("t", "U3"), ("s", "S3"), ("b", "?"), ("z", "c8"), ("v", "V2"), ("m", "M8[s]"), ("h", "f2"), ("list", "i4", (2, 3)),
        ("texts", "U2", (2,)), ("in", [("x", "f8"), ("y", "U1"), ("deep", [("w", "U2")])]),
    ]
)  # fmt: skip


@pytest.mark.parametrize("chunks, count", [(3, 8), (8, 8), (5, 20_000)])
def test_a_structure_has_members_of_every_type(tmp_path, chunks, count):
    one = ("é🐈", b"ab", True, 1 + 2j, b"\0x", 7, 0.5, np.arange(6).reshape(2, 3), ["", "zü"], (2.5, "q", ("rs",)))
    values = np.array([one, ("", b"", False, 0, b"", -1, np.inf, np.ones((2, 3)), ["a", "b"], (0, "", ("",)))] * (count // 2), MEMBERS)
    # zarr-python 3 has no arrays in structures.
    (tmp_path / "v").mkdir()
    for start in range(0, count, chunks):
        chunk = np.zeros(chunks, MEMBERS)
        part = values[start : start + chunks]
        chunk[: len(part)] = part
        (tmp_path / "v" / str(start // chunks)).write_bytes(chunk.tobytes())
    document = {
        "zarr_format": 2, "shape": [count + 2], "chunks": [chunks], "dtype": MEMBERS.descr, "fill_value": None,
        "compressor": None, "filters": None, "order": "C",
    }  # fmt: skip
    (tmp_path / "v/.zarray").write_text(json.dumps(document))
    file = cat(tmp_path / "v", "h5", tmp_path / "v.h5")
    if count < 100:
        validate(file)
    with h5py.File(file) as data:
        found = data["root"][:count]
        for name in ("s", "b", "z", "v", "h", "list"):
            np.testing.assert_array_equal(found[name], values[name])
        assert found["m"].tolist() == values["m"].astype("i8").tolist()
        for got, expected in [(found["t"], values["t"]), (found["in"]["y"], values["in"]["y"]), (found["in"]["deep"]["w"], values["in"]["deep"]["w"])]:
            assert [text.decode() for text in got] == expected.tolist()
        assert [[text.decode() for text in row] for row in found["texts"]] == values["texts"].tolist()
        np.testing.assert_array_equal(found["in"]["x"], values["in"]["x"])
        assert h5py.check_string_dtype(data["root"].dtype["t"]) == ("utf-8", None)
        last = data["root"][count]
        assert last["t"] == b"" and last["list"].sum() == 0
