"""What `zarrfs convert` and `zarrfs create` make, read by the libraries of each format."""

import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest
import tensorstore as ts
import zarr

from hierarchies import assert_same, read_ts, read_zarr
from mounts import BIN, PATIENCE, files
from test_fixtures import store_of, truths

CASES = [
    "z316__dtypes_core",
    "z316__codecs_bytes",
    "z316__shard_end",
    "z316__shard_missing",
    "z316__transpose",
    "z316__groups_consolidated",
    "z218v2__compressors",
    "z218v2__f_order",
    "z218v2__dtypes",
    "z218n5__compressors",
    "z218v3__shard_2x2_gzip",
    "z218v3__groups",
    "gdal36v3__dtypes",
    "zarrita202007__basic",
    "ts__v3_codecs",
    "ts__v2",
]
# What a reader does not know, which is no fault of the hierarchy: types and codecs.
UNKNOWN = r"""(?x) No[ ]Zarr[ ]data[ ]type | bfloat16 | data[ ]type[ ]'r\d+'[ ]not[ ]understood | Unsupported[ ]dtype
    | codec[ ]not[ ]available:[ ]''(crc32c|fletcher32)'' | not[ ]one[ ]of[ ]the[ ]supported[ ]data[ ]types
    | is[ ]not[ ]registered | extra[ ]members:[ ]"(checksum|nthreads|useZlib)" | filters[ ]are[ ]not[ ]supported
    | Must[ ]specify[ ]a[ ].field"""


def run(*words):
    done = subprocess.run([BIN, *map(str, words)], capture_output=True, text=True, timeout=10 * PATIENCE)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def converted(case, dest, *options):
    """The truth of every array that the target has, by its path."""
    said = run("convert", store_of(case), dest, "--skip-unsupported", "--verify", *options)
    found = {line.split("  ")[0].strip("/") for line in said.splitlines() if line.startswith("/")}
    known = {path: truth for path, truth in truths(case) if path in found}
    assert known, f"nothing of {case} is left:\n{said}"
    return known


def ts_read(driver, directory):
    store = {"driver": "file", "path": str(directory) + "/"}
    return np.asarray(ts.open({"driver": driver, "kvstore": store}, open=True).result().read().result())


def numbers(known):
    """The arrays whose elements TensorStore has: of texts it makes a dimension more."""
    return {path: truth for path, truth in known.items() if truth.dtype.kind in "biufc"}


def check(known, read):
    """Reads every array; how many were known to the reader."""
    count = 0
    for path, truth in known.items():
        try:
            got = read(path)
        except Exception as error:
            assert re.search(UNKNOWN, f"{error}"), f"{path}: {error}"
            continue
        assert_same(got, truth, path)
        count += 1
    return count


def check_all(known, read):
    """The same where all have been read that were known."""
    for path in known.keys() & read.keys():
        assert_same(read[path], known[path], path)
    assert read.keys() & known.keys(), "nothing was read"


@pytest.mark.parametrize("case", CASES)
def test_v3_is_read_by_zarr_python_3_and_tensorstore(case, tmp_path):
    known = converted(case, tmp_path / "x")
    assert check(known, lambda path: read_zarr(tmp_path / "x", path))
    check(numbers(known), lambda path: read_ts(tmp_path / "x", path))


@pytest.mark.parametrize("case", CASES)
def test_v2_is_read_by_both_zarr_pythons_and_tensorstore(case, tmp_path, zarr2):
    known = converted(case, tmp_path / "x", "--format", "v2")
    check_all(known, zarr2.read(tmp_path / "x", "v2", UNKNOWN))
    assert check(known, lambda path: zarr.open_array(str(tmp_path / "x" / path), mode="r", zarr_format=2)[...])
    check(numbers(known), lambda path: ts_read("zarr", tmp_path / "x" / path))


@pytest.mark.parametrize("case", [case for case in CASES if case != "z316__shard_missing"])
def test_n5_is_read_by_the_n5store_and_tensorstore(case, tmp_path, zarr2):
    known = converted(case, tmp_path / "x", "--format", "n5")
    check_all(known, zarr2.read(tmp_path / "x", "n5", UNKNOWN))
    check(numbers(known), lambda path: ts_read("n5", tmp_path / "x" / path).T)


# zarr-python 2 opens no root array of a draft as a group.
@pytest.mark.parametrize("case", [case for case in CASES if "" not in dict(truths(case))])
def test_the_draft_of_2020_is_read_by_zarr_python_2(case, tmp_path, zarr2):
    known = converted(case, tmp_path / "x", "--format", "d2020-10")
    check_all(known, zarr2.read(tmp_path / "x", "v3", UNKNOWN))


@pytest.mark.parametrize("format", ["v3", "v2", "n5", "d2020-10"])
def test_chunks_and_codecs_of_choice_are_read_too(format, tmp_path, zarr2):
    values = np.arange(60 * 70, dtype="i4").reshape(60, 70)
    array = zarr.create_array(tmp_path / "a.zarr/x", shape=values.shape, chunks=(7, 9), dtype="i4", zarr_format=3)
    array[...] = values
    shards = {"v3": ["--shards", "32,40"], "d2020-10": ["--shards", "64K"]}.get(format, [])
    options = ["--chunks", "16,20", "--codecs", "gzip", "--format", format, "--verify", *shards]
    run("convert", tmp_path / "a.zarr", tmp_path / "b.zarr", *options)
    if format == "v3":
        assert_same(read_zarr(tmp_path / "b.zarr", "x"), values)
        assert_same(read_ts(tmp_path / "b.zarr", "x"), values)
        assert zarr.open_array(tmp_path / "b.zarr/x").shards == (32, 40)
    else:
        read = zarr2.read(tmp_path / "b.zarr", {"d2020-10": "v3"}.get(format, format))
        assert_same(read["x"], values)


def test_consolidated_metadata_go_over(tmp_path):
    run("convert", store_of("z316__groups_consolidated"), tmp_path / "v2", "--format", "v2")
    assert (tmp_path / "v2/.zmetadata").exists()
    group = zarr.open_consolidated(str(tmp_path / "v2"), mode="r", zarr_format=2)
    assert "g1/g2/x" in dict(group.members(max_depth=None))
    run("convert", tmp_path / "v2", tmp_path / "v3")
    group = zarr.open_consolidated(str(tmp_path / "v3"), mode="r", zarr_format=3)
    assert "g1/g2/x" in dict(group.members(max_depth=None))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """An array of 64 MB in 1024 chunks."""
    path = tmp_path_factory.mktemp("large") / "a.zarr"
    values = np.random.default_rng(1).integers(0, 1000, (4096, 4096), "i4")
    array = zarr.create_array(path / "x", shape=values.shape, chunks=(128, 128), dtype="i4", zarr_format=3)
    array[...] = values
    return path, values


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_conversion_has_no_nodes_and_goes_on(end, large, tmp_path):
    source, values = large
    dest = tmp_path / "b.zarr"
    command = [BIN, "convert", str(source), str(dest), "--codecs", "gzip", "--chunks", "100,100", "--threads", "1"]
    begun = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE
    while not (dest / "x/c/2").exists():
        assert time.monotonic() < deadline and begun.poll() is None, "nothing to interrupt"
        time.sleep(0.002)
    begun.send_signal(end)
    _, said = begun.communicate(timeout=PATIENCE)
    if end == signal.SIGINT:
        assert begun.returncode == 1 and "run the same command again" in said, said
    assert not [name for name in files(dest) if name.endswith("zarr.json")]
    assert (dest / ".zarrfs/convert").exists()
    some = {name: os.stat(dest / name).st_ino for name in files(dest) if "/c/0/" in name}
    said = run(*command[1:], "--verify")
    assert "were there already" in said and "all read back" in said, said
    assert some == {name: os.stat(dest / name).st_ino for name in some}, "copied again"
    assert_same(read_zarr(dest, "x"), values)
    assert not [name for name in files(dest) if "zarrfs" in name or "__lock" in name]


def test_what_create_makes_is_filled_by_libraries(tmp_path, zarr2):
    values = np.arange(12, dtype="f4").reshape(3, 4)
    options = ["--shape", "3,4", "--dtype", "float32", "--chunks", "2,2", "--dimensions", "y,x"]
    for format, fill in [("v3", "NaN"), ("v2", "-1"), ("n5", "0")]:
        store = tmp_path / f"{format}.zarr"
        run("create", store / "g/x", *options, "--fill", fill, "--format", format)
        if format == "n5":
            assert_same(zarr2.read(store, "n5")["g/x"], np.zeros((3, 4), "f4"))
            continue
        array = zarr.open_array(str(store / "g/x"), mode="r+")
        assert_same(array[...], np.full((3, 4), float(fill), "f4"))
        array[...] = values
        assert_same(zarr.open_group(str(store), mode="r")["g/x"][...], values)
    run("create", tmp_path / "d.zarr/g/x", *options, "--format", "d2020-10")
    assert zarr2.read(tmp_path / "d.zarr")["g/x"].shape == (3, 4)


def damaged_source(tmp_path, **how):
    array = zarr.create_array(tmp_path / "a", shape=(8, 8), chunks=(2, 4), dtype="i4", **how)
    array[...] = np.arange(64).reshape(8, 8) + 1
    return tmp_path / "a"


@pytest.mark.parametrize("options", [["--codecs", "zstd"], ["--chunks", "3,3"], ["--verify"], ["--shards", "64K", "--codecs", "gzip"]])
def test_a_damaged_chunk_is_named_by_the_key_of_the_source_and_left_out_on_request(options, tmp_path):
    source = damaged_source(tmp_path)
    key = source / "c/1/0"
    key.write_bytes(key.read_bytes()[:9])
    done = subprocess.run([BIN, "convert", source, tmp_path / "b", *options], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and f"{key}: " in done.stderr and "--keep-going" in done.stderr, done.stderr
    assert "same command" not in done.stderr
    again = [BIN, "convert", source, tmp_path / "b", *options, "--keep-going"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and f"{key}: " in done.stderr and "1 damaged value of the source" in done.stderr, done.stderr
    expected = np.arange(64).reshape(8, 8) + 1
    expected[2:4, :4] = 0
    assert np.array_equal(zarr.open_array(tmp_path / "b")[...], expected)


def test_a_damaged_index_of_a_shard_loses_only_that_shard(tmp_path):
    source = damaged_source(tmp_path, shards=(4, 4))
    key = source / "c/0/1"
    key.write_bytes(key.read_bytes()[:-3] + b"abc")
    expected = np.arange(64).reshape(8, 8) + 1
    expected[:4, 4:] = 0
    for number, options in enumerate([["--shards", "none", "--codecs", "gzip"], ["--chunks", "3,3"], ["--shards", "64K"], ["--verify"]]):
        command = [BIN, "convert", source, tmp_path / f"b{number}", *options, "--keep-going"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1 and f"{key}: " in done.stderr, done.stderr
        assert np.array_equal(zarr.open_array(tmp_path / f"b{number}")[...], expected), options


def test_shapes_that_fit_no_array_are_refused_and_levels_are_taken(tmp_path):
    source = damaged_source(tmp_path)
    for options in [["--chunks", "2,2,2"], ["--shards", "[4,4,4]"], ["--shards", "4,4,4"]]:
        done = subprocess.run([BIN, "convert", source, tmp_path / "b", *options], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1, options
        assert "fits no array: the arrays have 2 dimensions" in done.stderr, done.stderr
        assert not (tmp_path / "b").exists()
    run("convert", source, tmp_path / "c", "--codecs", "zstd:19,crc32c")
    codecs = zarr.open_array(tmp_path / "c").metadata.to_dict()["codecs"]
    assert [dict(c)["configuration"]["level"] for c in codecs if dict(c)["name"] == "zstd"] == [19]
    for wrong in ["zstd:high", "crc32c:3", "zstd:"]:
        done = subprocess.run([BIN, "convert", source, tmp_path / "d", "--codecs", wrong], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 2 and "level" in done.stderr, done.stderr


def test_an_unfinished_conversion_is_named_as_such(tmp_path):
    (tmp_path / "b/.zarrfs").mkdir(parents=True)
    (tmp_path / "b/.zarrfs/convert").write_text("{}")
    (tmp_path / "b/c").mkdir()
    (tmp_path / "b/c/0").write_bytes(b"x")
    for words in [["tree"], ["info"], ["check"]]:
        done = subprocess.run([BIN, *words, tmp_path / "b"], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1 and "an unfinished conversion" in done.stderr, done.stderr
