"""`zarrfs diff` finds the differences that numpy finds."""

import json
import shutil
import subprocess

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from mounts import BIN, PATIENCE

TYPES = ["bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


def run(*words):
    done = subprocess.run([BIN, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def diff(a, b, *options, code=None):
    done = subprocess.run([BIN, "diff", "--json", str(a), str(b), *map(str, options)], capture_output=True, text=True, timeout=PATIENCE)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode in (0, 1), done.stderr
    assert done.returncode == (1 if found else 0)
    return found


def number(value):
    if isinstance(value, list):
        return complex(number(value[0]), number(value[1]))
    return float(value) if isinstance(value, str) else value


def values(rng, dtype, shape):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    if kind == "f":
        made = rng.standard_normal(shape).astype(dtype)
        made[rng.random(shape) < 0.05] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0])
        return made
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def expected(one, two, tolerance, rtol):
    """The count, the first index, and the largest difference, as numpy computes them."""
    kind = one.dtype.kind
    if kind in "biu":
        wide = [np.array([int(x) for x in part.ravel()], dtype=object) for part in (one, two)]
        distance = np.array([abs(x - y) for x, y in zip(*wide)], dtype=object)
        limit = [tolerance + rtol * abs(float(y)) for y in wide[1]]
        differs = np.array([d > l if tolerance or rtol else d != 0 for d, l in zip(distance, limit)], dtype=bool)
    else:
        wide = np.complex128 if kind == "c" else np.float64
        with np.errstate(all="ignore"):
            one, two = one.ravel().astype(wide), two.ravel().astype(wide)
            close = np.isclose(one, two, rtol=rtol, atol=tolerance, equal_nan=True)
            differs, distance = ~close, np.abs(one - two)
    count = int(differs.sum())
    if not count:
        return None
    known = [d for d, is_one in zip(distance, differs) if is_one and not (isinstance(d, float) and np.isnan(d))]
    return count, int(np.argmax(differs)), max(known) if known else None


@pytest.mark.parametrize("seed", range(200))
def test_differences_are_those_of_numpy(seed, tmp_path):
    """Random pairs: types, ranks, chunks, shards, codecs, formats, missing chunks, tolerances."""
    rng = np.random.default_rng(seed)
    dtype = TYPES[seed % len(TYPES)]
    rank = int(rng.integers(0, 4))
    shape = tuple(int(n) for n in rng.integers(1, 14, rank))
    fill = 0
    one = np.asarray(values(rng, dtype, shape), dtype=dtype)
    two = one.copy()
    changed = rng.random(shape) < rng.choice([0, 0.02, 0.5])
    two[changed] = values(rng, dtype, shape)[changed]
    if np.dtype(dtype).kind in "fc" and rng.random() < 0.5:
        with np.errstate(all="ignore"):
            two = np.asarray(two * (1 + 1e-3 * rng.standard_normal(shape))).astype(dtype)
    tolerance, rtol = rng.choice([0, 0, 0.5, 1e-3]), rng.choice([0, 0, 1e-3, 0.1])
    if rank and rng.random() < 0.5:  # These chunks may not be stored.
        hole = tuple(slice(0, int(n)) for n in rng.integers(1, 8, rank))
        one[hole] = fill
        if rng.random() < 0.7:
            two[hole] = fill
    for name, data in [("a", one), ("b", two)]:
        chunks = tuple(int(n) for n in rng.integers(1, 8, rank))
        is_sharded = rank > 0 and rng.random() < 0.4
        format = 3 if is_sharded else int(rng.choice([2, 3]))
        codec = rng.choice(["none", "gzip", "zstd", "blosc"])
        codecs = {"none": None, "gzip": GzipCodec(), "zstd": ZstdCodec(), "blosc": BloscCodec()}[codec] if format == 3 else None
        shards = tuple(n * int(rng.integers(1, 4)) for n in chunks) if is_sharded else None
        array = zarr.create_array(
            tmp_path / name, shape=shape, chunks=chunks, shards=shards, dtype=dtype, zarr_format=format,
            compressors=codecs, fill_value=fill, config={"write_empty_chunks": bool(rng.random() < 0.5)},
        )
        array[...] = data
    found = diff(tmp_path / "a", tmp_path / "b", "--tolerance", tolerance, "--rtol", rtol)
    wanted = expected(one, two, tolerance, rtol)
    if wanted is None:
        assert found == []
        return
    (only,) = found
    count, first, largest = wanted
    assert only["count"] == count and only["elements"] == one.size
    place = tuple(only["first_index"])
    assert np.ravel_multi_index(place, shape) == first if rank else place == ()
    got = only["largest_difference"]
    if largest is None:
        assert got is None
    elif isinstance(largest, int):
        assert int(got) == largest
    else:
        assert float(got) == pytest.approx(float(largest), rel=1e-12)
    for side, data in [("a", one), ("b", two)]:
        value = data[place]
        assert np.array_equal(np.asarray(number(only[side])).astype(dtype), value, equal_nan=value.dtype.kind in "fc")


@pytest.fixture
def pair(tmp_path):
    root = zarr.open_group(tmp_path / "a", mode="w", attributes={"title": "x", "deep": {"list": [1, 2]}})
    t = root.create_array("t", shape=(20, 30), chunks=(7, 8), dtype="f4", dimension_names=("y", "x"), attributes={"units": "K"})
    t[...] = np.arange(600).reshape(20, 30)
    g = root.create_group("g")
    g.create_array("n", shape=(9,), chunks=(2,), dtype="i8", fill_value=5)[:4] = 1
    texts = g.create_array("texts", shape=(5,), chunks=(2,), dtype=str)
    texts[...] = np.array(["a", "", "ccc", "é", "e"], dtype=object)
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.parametrize("options", [[], ["--format", "v2"], ["--shards", "64K"], ["--codecs", "blosc"], ["--format", "d2020-10"]])
def test_a_conversion_is_equal_to_its_source(pair, options):
    a, b = pair
    run("convert", a, b, *options, "--skip-unsupported")
    found = diff(a, b)
    assert [one for one in found if one["difference"] != "only_in"] == []
    assert diff(a / "t", b / "t" if "d2020-10" not in options else f"{b}#t") == []


def test_each_difference_of_nodes_and_attributes_is_named(pair):
    a, b = pair
    shutil.copytree(a, b)
    root = zarr.open_group(b, mode="a")
    root.attrs["title"] = "y"
    root.attrs["deep"] = {"list": [1, 3], "new": True}
    root["t"].attrs["units"] = "C"
    root["t"][3, 4] = -1
    root["t"][5, 6] = 1000
    root["g/texts"][2] = "cc"
    del root["g/n"]
    root.create_array("more", shape=(2,), dtype="i4")
    found = {(one["path"], one["difference"], one.get("member", "")): one for one in diff(a, b)}
    assert set(found) == {
        ("/", "metadata", "attributes.title"),
        ("/", "metadata", "attributes.deep.list[1]"),
        ("/", "metadata", "attributes.deep.new"),
        ("/t", "metadata", "attributes.units"),
        ("/t", "values", ""),
        ("/g/n", "only_in", ""),
        ("/more", "only_in", ""),
        ("/g/texts", "values", ""),
    }
    values = found["/t", "values", ""]
    assert values["count"] == 2 and values["first_index"] == [3, 4] and (values["a"], values["b"]) == (94.0, -1.0)
    assert values["largest_difference"] == 1000 - 156 and values["largest_index"] == [5, 6]
    texts = found["/g/texts", "values", ""]
    assert texts["count"] == 1 and (texts["a"], texts["b"]) == ("ccc", "cc") and texts["largest_difference"] is None
    assert found["/g/n", "only_in", ""]["only_in"] == "A"
    assert {one["path"] for one in diff(a, b, "--only", "g")} == {"/g/n", "/g/texts"}
    assert {one["difference"] for one in diff(a, b, "--metadata-only")} == {"metadata", "only_in"}


def test_other_shapes_and_types_are_differences_of_metadata(tmp_path):
    data = np.arange(12, dtype="i4").reshape(3, 4)
    for name, dtype, shape in [("a", "i4", (3, 4)), ("b", "f8", (3, 4)), ("c", "i4", (2, 4)), ("d", "M8[s]", (3, 4))]:
        array = zarr.create_array(tmp_path / name, shape=shape, chunks=(2, 2), dtype=dtype)
        array[...] = data[: shape[0]].astype(dtype)
    assert [(one["member"]) for one in diff(tmp_path / "a", tmp_path / "b")] == ["data_type"], "the values are equal"
    assert [(one["member"]) for one in diff(tmp_path / "a", tmp_path / "c")] == ["shape"]
    assert [(one["member"]) for one in diff(tmp_path / "a", tmp_path / "d")] == ["data_type"]


def test_fill_values_that_differ_make_missing_chunks_differ(tmp_path):
    for name, fill in [("a", 1), ("b", 2), ("c", 1)]:
        array = zarr.create_array(tmp_path / name, shape=(10, 10), chunks=(3, 3), dtype="i4", fill_value=fill)
        array[:3, :3] = 7
    (found,) = diff(tmp_path / "a", tmp_path / "b")
    assert found["count"] == 91 and found["first_index"] == [0, 3] and found["largest_difference"] == 1
    assert diff(tmp_path / "a", tmp_path / "c") == []


def test_a_huge_sparse_array_is_compared_by_what_is_stored(tmp_path):
    for name in "ab":
        array = zarr.create_array(tmp_path / name, shape=(10**9, 10**6), chunks=(10 if name == "a" else 7, 100), dtype="u1")
        array[12345, 500:510] = 3
    assert diff(tmp_path / "a", tmp_path / "b") == []
    zarr.open_array(tmp_path / "b")[10**9 - 1, 10**6 - 1] = 1
    (found,) = diff(tmp_path / "a", tmp_path / "b")
    assert found["count"] == 1 and found["first_index"] == [10**9 - 1, 10**6 - 1]


def test_failures_and_wrong_arguments_exit_with_2(pair, tmp_path):
    a, b = pair
    shutil.copytree(a, b)
    (b / "t/c/0/0").write_bytes(b"broken")
    done = subprocess.run([BIN, "diff", a, b], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2 and "t/c/0/0" in done.stderr and "cannot be compared" in done.stderr
    for words in [[a, tmp_path / "none"], [a], [a, a, "--rtol", "-1"], [a, a, "--only", "nowhere"]]:
        done = subprocess.run([BIN, "diff", *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 2, (words, done.stderr)
    assert subprocess.run([BIN, "diff", a, a], capture_output=True, timeout=PATIENCE).returncode == 0


@pytest.mark.parametrize(
    ("one", "two", "dtypes", "options", "count"),
    [
        ([2**60 + 3], [2**60], ("i8", "i8"), ["--tolerance", "1"], 1),
        ([2**60 + 3], [2**60], ("i8", "i8"), ["--tolerance", "3"], 0),
        ([2**53, 2**53 + 1, 2**63 - 1], [2.0**53, 2.0**53, 2.0**63], ("i8", "f8"), [], 2),
        ([1 + 2j], [1.9 + 2.9j], ("c16", "c16"), ["--tolerance", "1"], 1),
        ([1 + 1e-20j], [1 + 0j], ("c16", "c16"), ["--rtol", "1e-6"], 0),
        (["NaT", "2020"], ["2021", "2020"], ("M8[s]", "M8[s]"), [], 1),
        (["NaT", "2020"], ["NaT", "2020"], ("M8[s]", "M8[s]"), [], 0),
        (["NaT"], ["2020"], ("M8[s]", "M8[s]"), ["--tolerance", "1e30"], 1),
    ],
)
def test_numbers_are_compared_exactly(one, two, dtypes, options, count, tmp_path):
    for name, data, dtype in [("a", one, dtypes[0]), ("b", two, dtypes[1])]:
        array = zarr.create_array(tmp_path / name, shape=(len(data),), chunks=(2,), dtype=dtype)
        array[...] = np.array(data, dtype=dtype)
    found = [each for each in diff(tmp_path / "a", tmp_path / "b", *options) if each["difference"] == "values"]
    assert sum(each["count"] for each in found) == count
    if "NaT" in one and count:
        assert found[0]["largest_difference"] is None


def test_a_group_that_is_only_in_one_of_them_counts_once(tmp_path):
    root = zarr.open_group(tmp_path / "a", mode="w")
    for name in ["a", "a-b"]:
        root.create_group(name).create_array("x", shape=(1,), dtype="i4")
    zarr.open_group(tmp_path / "b", mode="w")
    assert [one["path"] for one in diff(tmp_path / "a", tmp_path / "b")] == ["/a", "/a-b"]
