"""`h5`: an array or a group as HDF5, opened by h5py and the tools of the HDF Group; and what is HDF5 in `nc4`."""

import json
import subprocess
import warnings

import h5py
import ml_dtypes
import numpy as np
import pytest
import zarr

from hierarchies import assert_same
from test_fixtures import CASES, store_of, truths
from views import ZARRFS, array, cat, refused, values_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
SHAPES = {"scalar": (), "line": (11,), "plane": (7, 10), "box": (5, 4, 6), "five": (2, 3, 4, 3, 2)}
NUMBERS = [f"{kind}{len}" for kind in "iu" for len in (1, 2, 4, 8)] + ["f2", "f4", "f8", "c8", "c16"]

# Floats that are narrower than numpy's, and the integers of their length.
NARROW = {"bfloat16": "u2", "float8_e4m3": "u1", "float8_e5m2": "u1"}


def validate(file):
    """By the tools that come with the library, of another version than h5py's."""
    for command in (["h5stat"], ["h5ls", "-rv"], ["h5dump"]):
        done = subprocess.run([*command, file], capture_output=True, check=True, text=True, errors="replace")
        assert not done.stderr, done.stderr
    subprocess.run(["h5repack", file, f"{file}.copy"], check=True)
    subprocess.run(["h5diff", file, f"{file}.copy"], check=True)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("endian", "<>")
@pytest.mark.parametrize("dtype", [*NUMBERS, "?"])
def test_every_number_is_read_as_zarr_has_it(tmp_path, dtype, endian, zarr_format):
    values = array(tmp_path / "v", values_of((7, 10), endian + dtype), zarr_format=zarr_format)
    file = cat(tmp_path / "v", "h5", tmp_path / "v.h5")
    validate(file)
    with h5py.File(file) as data:
        assert list(data) == ["root"] and data["root"].chunks == (3, 4)
        assert_same(data["root"][...], values.astype(np.dtype(dtype)))


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", ["i2", "f8"])
def test_every_shape_is_read_as_zarr_has_it(tmp_path, shape, sharded, dtype):
    options = {"sharded": True} if sharded and shape else {}
    values = array(tmp_path / "v", values_of(shape, dtype), fill_value=7, **options)
    file = cat(tmp_path / "v", "h5", tmp_path / "v.h5")
    validate(file)
    with h5py.File(file) as data:
        assert_same(data["root"][...], values)
        assert data["root"].fillvalue == 7


@pytest.mark.parametrize(
    ("chunks", "shown"),
    [
        ((7, 10), None),
        ((1, 10), None),
        ((3, 10), None),
        ((7, 1), (7, 1)),
        ((3, 3), (3, 3)),
        ((1, 1), (1, 1)),
        # Larger than the dataset: no library makes such chunks.
        ((9, 4), None),
        ((4, 12), None),
    ],
)
def test_chunks_are_chunks_where_the_order_differs(tmp_path, chunks, shown):
    values = array(tmp_path / "v", values_of((7, 10), "i4"), chunks=chunks)
    file = cat(tmp_path / "v", "h5", tmp_path / "v.h5")
    validate(file)
    with h5py.File(file) as data:
        assert data["root"].chunks == shown
        assert_same(data["root"][...], values)


@pytest.mark.parametrize("rank", [6, 12, 32])
def test_many_dimensions(tmp_path, rank):
    shape = (3, *(1,) * (rank - 3), 4, 5)
    values = array(tmp_path / "v", values_of(shape, "i4"), chunks=(2, *(1,) * (rank - 3), 2, 2))
    file = cat(tmp_path / "v", "h5", tmp_path / "v.h5")
    with h5py.File(file) as data:
        assert_same(data["root"][...], values)


def test_more_dimensions_than_hdf5_has_are_refused(tmp_path):
    zarr.create_array(tmp_path / "v", shape=(1,) * 33, chunks=(1,) * 33, dtype="i4")
    assert "cannot be shown as h5: HDF5 has at most 32 dimensions" in refused(tmp_path / "v", "h5")


@pytest.mark.parametrize("len", [255, 256, 65535, 65536, 70000])
def test_lengths_of_chunks_have_the_fewest_bytes(tmp_path, len):
    values = array(tmp_path / "v", values_of((3, len * 2), "i1"), chunks=(1, len))
    file = cat(tmp_path / "v", "h5", tmp_path / "v.h5")
    with h5py.File(file) as data:
        assert data["root"].chunks == (1, len)
        assert_same(data["root"][...], values)


@pytest.fixture
def tree(tmp_path):
    """Groups and arrays with attributes of every kind."""
    attributes = {
        "text": "Zürich", "empty": "", "int": 5, "big": 2**40, "huge": 2**63, "half": 0.5, "yes": True,
        "list": [1, 2, 3], "words": ["a", "", "日本"], "mixed": [1, "a"], "deep": {"a": [1, None]}, "none": None,
        "long": "abc " * 40_000,
    }
    root = zarr.create_group(tmp_path / "g", attributes=attributes)
    one = root.create_array("t2m", shape=(7, 10), chunks=(3, 4), dtype="f4", dimension_names=["y", None], fill_value=-9)
    one.attrs.update({"units": "K", "valid_range": [0, 9]})
    one[:4] = values_of((4, 10), "f4")
    inner = root.create_group("in", attributes={"b": [1.5, 2]})
    inner.create_array("empty", shape=(0, 4), dtype="f8")
    inner.create_array("bytes", shape=3, chunks=2, dtype="S3")[...] = np.array([b"ab", b"", b"abc"])
    inner.create_array("fixed", shape=3, chunks=2, dtype="U3")[...] = np.array(["é", "", "abc"])
    inner.create_array("any", shape=3, chunks=2, dtype="str")[...] = np.array(["日本", "", "abcdef"], object)
    inner.create_array("raw", shape=3, chunks=2, dtype="V5")[...] = np.array([b"12345", b"1\0 3\0", b"abc"], "V5")
    inner.create_array("at", shape=3, chunks=2, dtype="M8[s]")[...] = np.array([1, 2, 3], "M8[s]")
    record = np.dtype([("a", "i2"), ("b", "f8"), ("c", "S3")])
    values = np.array([(1, 2.5, b"x"), (-3, np.inf, b"abc"), (4, 0, b"")], record)
    zarr.create_array(tmp_path / "g" / "in" / "record", shape=3, chunks=2, dtype=record, zarr_format=3)[...] = values
    return tmp_path / "g"


def test_a_hierarchy_is_one_file(tree, tmp_path):
    file = cat(tree, "h5", tmp_path / "g.h5")
    validate(file)
    stored = zarr.open_group(tree)
    with h5py.File(file) as data:
        about = data.attrs
        assert about["text"] == "Zürich" and about["empty"] == "" and about["int"] == 5 and about["big"] == 2**40
        assert about["huge"] == 2**63 and about["half"] == 0.5 and about["yes"] == 1 and list(about["list"]) == [1, 2, 3]
        assert list(about["words"]) == ["a", "", "日本"] and json.loads(about["mixed"]) == [1, "a"]
        assert json.loads(about["deep"]) == {"a": [1, None]} and isinstance(about["none"], h5py.Empty)
        assert about["long"] == "abc " * 40_000
        one = data["t2m"]
        assert_same(one[...], stored["t2m"][...])
        assert one.fillvalue == -9 and one.attrs["units"] == "K" and one.attrs["valid_range"].dtype == "f4"
        assert [dimension.label for dimension in one.dims] == ["y", ""]
        inner = data["in"]
        assert list(inner.attrs["b"]) == [1.5, 2] and inner["empty"].shape == (0, 4)
        assert inner["bytes"][...].tolist() == [b"ab", b"", b"abc"]
        assert inner["fixed"].asstr()[...].tolist() == ["é", "", "abc"]
        assert inner["any"].asstr()[...].tolist() == ["日本", "", "abcdef"]
        assert inner["raw"][...].tobytes() == stored["in/raw"][...].tobytes()
        assert inner["at"][...].tolist() == [1, 2, 3]
        np.testing.assert_array_equal(inner["record"][...], stored["in/record"][...])


def test_hdf5_has_scales_where_dimensions_have_names_that_are_free(tmp_path):
    root = zarr.create_group(tmp_path / "g")
    for name, shape, names in [
        ("plain", (2, 3), None), ("half", (2, 3), ["y", None]), ("other", (4,), ["y"]), ("x", (5, 6), ["x", "z"]),
        ("more", (5,), ["y"]), ("twice", (8, 9), ["t", "t"]), ("both", (4, 6), ["y", "z"]), ("z", (6,), ["z"]),
        ("slash", (2,), ["a/b"]), ("CLASS", (7,), ["plain"]),
    ]:
        array = root.create_array(name, shape=shape, dtype="i2", dimension_names=names, attributes={"CLASS": "mine"})
        array[...] = np.arange(array.size).reshape(shape)
    file = cat(tmp_path / "g", "h5", tmp_path / "g.h5")
    with h5py.File(file) as data:
        # `x` and `plain` are arrays, and what is but half known is not known to netCDF.
        assert set(data) == {"plain", "half", "other", "x", "more", "twice", "both", "z", "slash", "CLASS", "y"}
        scales = {name: [list(one.keys()) for one in data[name].dims] for name in data if "DIMENSION_LIST" in data[name].attrs}
        y = "This is a netCDF dimension but not a netCDF variable.         4"
        assert scales == {"both": [[y], ["z"]], "other": [[y]]}
        assert data["plain"].attrs["CLASS_"] == "mine" and data["z"].attrs["CLASS"] == b"DIMENSION_SCALE"
        for name in data:
            if name != "y":
                np.testing.assert_array_equal(data[name][...], root[name][...])
    for command in (["h5stat"], ["h5dump"], ["ncdump"]):
        subprocess.run([*command, file], check=True, stdout=subprocess.DEVNULL)


def test_many_nodes_and_long_names(tmp_path):
    root = zarr.create_group(tmp_path / "g")
    for number in range(300):
        root.create_group(f"{number:03}" + "ä" * 60, attributes={"number": number, "text": f"t{number}"})
    root.create_array("n" * 250, shape=2, dtype="i4")[...] = [1, 2]
    file = cat(tmp_path / "g", "h5", tmp_path / "g.h5")
    validate(file)
    with h5py.File(file) as data:
        assert len(data) == 301 and data["n" * 250][...].tolist() == [1, 2]
        for number in range(300):
            about = data[f"{number:03}" + "ä" * 60].attrs
            assert about["number"] == number and about["text"] == f"t{number}"


@pytest.mark.parametrize("format", ["h5", "nc4"])
def test_h5py_changes_elements_in_place(tmp_path, format):
    root = zarr.create_group(tmp_path / "g")
    root.create_array("v", shape=(7, 10), chunks=(3, 4), dtype="i4", dimension_names=["y", "x"])
    root.create_array("y", shape=(7,), chunks=(7,), dtype="i4", dimension_names=["y"])
    file = cat(tmp_path / "g", format, tmp_path / f"g.{format}")
    before = file.read_bytes()
    with h5py.File(file, "r+") as data:
        data["v"][6, 9] = 5
        data["y"][2] = 6
    after = file.read_bytes()
    # Nothing but the two elements, and the superblock, which the library keeps its books in.
    assert len(after) == len(before)
    differ = [at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other and at >= 48]
    assert len(differ) == 2
    with h5py.File(file) as data:
        assert data["v"][6, 9] == 5 and data["v"][...].sum() == 5 and data["y"][...].sum() == 6


def test_a_file_of_more_than_four_gib(tmp_path):
    root = zarr.create_group(tmp_path / "g")
    root.create_array("big", shape=(70_000, 8_000), chunks=(1000, 1000), dtype="f8")
    root.create_array("wide", shape=(70_000, 8_000), chunks=(1000, 8000), dtype="f8")
    root.create_array("small", shape=(70_000,), chunks=(70_000,), dtype="i2")[...] = 7
    with subprocess.Popen([ZARRFS, "cat", tmp_path / "g", "--as", "h5"], stdout=subprocess.PIPE) as process:
        head = process.stdout.read(1 << 20)
        process.stdout.close()
    len = 70_000 * 8_000 * 8
    file = tmp_path / "g.h5"
    with h5py.File(write(file, head, 2 * len + 1)) as _:
        pass
    with h5py.File(file, "r+") as data:
        assert data["small"][...].sum() == 7 * 70_000
        data["wide"][-1, -1] = 1
        data["big"][-1, -1] = 2
        assert data["big"].chunks == (1000, 1000) and data["wide"].chunks is None
        assert data["big"][-1].sum() == 2 and data["wide"][-1].sum() == 1 and data["wide"][0, 0] == 0


def write(file, head, at_least):
    """The beginning of a file, and a hole up to the end that its superblock says."""
    end = int.from_bytes(head[28:36], "little")
    assert end >= at_least
    with open(file, "wb") as out:
        out.write(head)
        out.truncate(end)
    return file


def retyped(path, data_type):
    """Makes the elements of a stored array those of a type that zarr-python does not know."""
    document = json.loads((path / "zarr.json").read_text())
    (path / "zarr.json").write_text(json.dumps(document | {"data_type": data_type, "fill_value": 0}))


@pytest.mark.parametrize(("data_type", "unsigned"), NARROW.items())
def test_narrow_floats_are_wider_ones_to_readers(tmp_path, data_type, unsigned):
    bits = np.arange(256, dtype=unsigned) * (257 if unsigned == "u2" else 1)
    array(tmp_path / "v", bits, chunks=(100,), missing=False)
    retyped(tmp_path / "v", data_type)
    file = cat(tmp_path / "v", "h5", tmp_path / "v.h5")
    with h5py.File(file) as data:
        assert_same(data["root"].astype("f4")[...], bits.view(getattr(ml_dtypes, data_type)).astype("f4"))


def test_what_hdf5_cannot_express_is_refused_or_named(tmp_path):
    root = zarr.create_group(tmp_path / "g")
    for name in "bv":
        root.create_array(name, shape=3, dtype="i1")
    retyped(tmp_path / "g" / "b", "float8_e4m3fn")
    assert "cannot be shown as h5: HDF5 has no type for float8_e4m3fn" in refused(tmp_path / "g" / "b", "h5")
    with h5py.File(cat(tmp_path / "g", "h5", tmp_path / "g.h5")) as data:
        assert list(data) == ["v"] and data.attrs["zarrfs_left_out"] == "b: HDF5 has no type for float8_e4m3fn"


@pytest.mark.parametrize("case", CASES)
def test_stores_of_other_programs(tmp_path, case):
    for number, (path, truth) in enumerate(truths(case)):
        source = f"{store_of(case)}#{path}" if path else store_of(case)
        done = subprocess.run([ZARRFS, "cat", source, "--as", "h5"], capture_output=True, check=False)
        if done.returncode:
            assert b"HDF5 has no type for" in done.stderr or b"cannot be decoded" in done.stderr, done.stderr
            continue
        file = tmp_path / f"{number}.h5"
        file.write_bytes(done.stdout)
        with h5py.File(file) as data:
            got = data["root"]
            if truth.dtype.kind == "U":
                assert got.asstr()[...].reshape(-1).tolist() == truth.reshape(-1).tolist()
                continue
            if truth.dtype.kind in "mM":
                truth = truth.astype("i8")
            if truth.dtype.kind == "S":
                assert got[...].reshape(-1).tolist() == truth.reshape(-1).tolist()
                continue
            if (name := path.rsplit("/", 1)[-1]) in NARROW:
                # Of what numpy does not know the truth is the bits.
                truth = truth.view(getattr(ml_dtypes, name)).astype(got.dtype)
            assert_same(got[...], truth, f"{case}/{path}")
