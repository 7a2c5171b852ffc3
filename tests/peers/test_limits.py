"""Limits that the user can change (`--limit`), on real mounts."""

import contextlib
import errno
import json
import lzma
import os
import re
import subprocess
from pathlib import Path

import numpy
import pytest
import zarr
from mounts import Mount, until_end, wait_until

REPOSITORY = Path(__file__).parents[2]


def zarrfs(*words, **more):
    return subprocess.run([os.environ["ZARRFS_BIN"], *map(str, words)], capture_output=True, text=True, timeout=120, **more)


def sharded(path, chunks):
    """An array of one shard whose inner chunks are all the same byte of the file."""
    array = path / "x"
    (array / "c").mkdir(parents=True)
    (path / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group"}))
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    shards = {"chunk_shape": [1], "codecs": [{"name": "bytes"}], "index_codecs": [little], "index_location": "end"}
    (array / "zarr.json").write_text(json.dumps({
        "zarr_format": 3, "node_type": "array", "shape": [chunks], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunks]}}, "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "sharding_indexed", "configuration": shards}],
    }))
    index = numpy.zeros((chunks, 2), "<u8")
    index[:, 1] = 1
    (array / "c/0").write_bytes(b"\x07" + index.tobytes())


def inodes(mount):
    return mount.stats()["zarrfs_inodes"]


def test_the_kernel_forgets_names_beyond_the_limit_and_those_in_use_stay(tmp_path):
    sharded(tmp_path / "s", 20_000)
    with until_end(Mount(tmp_path / "s", tmp_path / "m", "--limit", "names=1000")) as m:
        directory = m / "x/c"
        with (directory / "19999").open("rb") as held:
            working = subprocess.Popen(["sh", "-c", "read line; pwd -P; cat 5 | wc -c"], cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert len(os.listdir(directory)) == 20_000
            for chunk in range(0, 20_000, 7):
                assert (directory / str(chunk)).stat().st_size == 1
            assert wait_until(lambda: inodes(m) <= 1000)
            assert held.read() == b"\x07" and os.fstat(held.fileno()).st_size == 1
            said, _ = working.communicate(b"\n")
            assert said.split() == [bytes(directory), b"1"], "the working directory of a program is lost"
        assert (directory / "3").read_bytes() == b"\x07"


def test_a_listing_of_any_length_takes_no_more_memory_than_the_limit_of_names(tmp_path):
    chunks = 200_000
    sharded(tmp_path / "s", chunks)
    with until_end(Mount(tmp_path / "s", tmp_path / "m", "--limit", "names=1000")) as m:
        (m / "x/c/0").read_bytes()
        before = m.peak_memory()
        assert len(os.listdir(m / "x/c")) == chunks
        assert inodes(m) < chunks / 2
        assert m.peak_memory() - before < 200 * chunks, "so much would be needed for each name"


@pytest.mark.parametrize("form", ["zarr", "zarr2"])
@pytest.mark.parametrize("zarr_format, keys", [(2, "."), (2, "/"), (3, "."), (3, "/")])
def test_every_file_is_forgotten_by_the_name_that_the_kernel_knows(tmp_path, zarr_format, keys, form):
    root = zarr.create_group(tmp_path / "s", zarr_format=zarr_format)
    encoding = {"name": "v2" if zarr_format == 2 else "default", "separator": keys}
    for name, shape in (("cube", (4, 4, 4)), ("line", (40,)), ("point", ())):
        root.create_array(name, shape=shape, chunks=tuple(1 for _ in shape), dtype="i2", chunk_key_encoding=encoding, attributes={"a": 1})[...] = 1
    (tmp_path / "s/notes").write_text("ordinary")
    with until_end(Mount(tmp_path / "s", tmp_path / "m", "--as", form, "--views", "npy", "--limit", "names=1")) as m:
        files = [path for path in Path(str(m.path)).rglob("*") if path.is_file()]
        assert len(files) > 110, files
        for path in (m / ".zarrfs").rglob("*"):
            path.stat()
        assert wait_until(lambda: inodes(m) <= 3), f"{inodes(m)} are left"
        assert all(path.stat() for path in files)


def is_opened(path, held):
    """Opens a file, unless too many are open. The kernel tells a mount of a closed file some time after the close."""
    try:
        held.enter_context(path.open("rb"))
    except OSError as error:
        assert error.errno == errno.ENFILE
        return False
    return True


def test_programs_have_as_many_files_open_as_they_may(tmp_path):
    sharded(tmp_path / "s", 100)
    with until_end(Mount(tmp_path / "s", tmp_path / "m", "--limit", "open-files=10")) as m:
        with contextlib.ExitStack() as held:
            for chunk in range(10):
                assert wait_until(lambda: is_opened(m / f"x/c/{chunk}", held)), "files that were closed still count"
            with pytest.raises(OSError) as refused:
                (m / "x/c/10").open("rb")
            assert refused.value.errno == errno.ENFILE
            assert m.stats()["zarrfs_open_files"] >= 10
            assert "too many open files" in m.errors()
        assert wait_until(lambda: m.stats()["zarrfs_open_files"] <= 1)
        assert (m / "x/c/10").read_bytes() == b"\x07"
        m.allow(r"too many open files, the limit is 10 \(--limit open-files=N\)")


def test_ordinary_files_leave_descriptors_for_everything_else(tmp_path):
    zarr.create_array(tmp_path / "s/a", shape=(8,), chunks=(4,), dtype="u1")[:] = range(8)
    program = tmp_path / "zarrfs"
    program.write_text(f"#!/bin/sh\nulimit -n 200\nexec {os.environ['ZARRFS_BIN']} \"$@\"\n")
    program.chmod(0o755)
    with until_end(Mount(tmp_path / "s", tmp_path / "m", program=program)) as m:
        with contextlib.ExitStack() as held, pytest.raises(OSError) as refused:
            for number in range(200):
                held.enter_context((m / f"file{number}").open("wb"))
        assert refused.value.errno == errno.ENFILE
        m.allow("ordinary files are open, and zarrfs may have 200 descriptors")
        assert (m / "a/c/0").read_bytes() == bytes(range(4))


def test_a_chunk_that_takes_too_long_is_an_error_and_the_others_are_read(tmp_path):
    array = tmp_path / "s"
    array.mkdir()
    element = 16 << 20
    (array / "zarr.json").write_text(json.dumps({
        "zarr_format": 3, "node_type": "array", "shape": [2 * element], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [element]}}, "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes"}, {"name": "numcodecs.lzma", "configuration": {"format": 1, "check": -1, "preset": 1, "filters": None}}],
    }))
    (array / "c").mkdir()
    noise = os.urandom(1 << 20)
    (array / "c/0").write_bytes(lzma.compress(noise * (element >> 20), preset=0))
    with until_end(Mount(array, tmp_path / "m", "--limit", "decode-time=20ms")) as m:
        with pytest.raises(OSError) as refused:
            (m / "c/0").read_bytes()
        assert refused.value.errno == errno.ETIMEDOUT
        m.allow(r"c/0: decoding the chunk takes too long, the limit is 20ms \(--limit decode-time=TIME\)")
    with until_end(Mount(array, tmp_path / "n")) as m:
        assert (m / "c/0").read_bytes() == noise * (element >> 20)


def document(**more):
    return {
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}, "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes"}], **more,
    }


def shards(levels):
    codecs = [{"name": "bytes"}]
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    for _ in range(levels):
        codecs = [{"name": "sharding_indexed", "configuration": {"chunk_shape": [4], "codecs": codecs, "index_codecs": [little]}}]
    return codecs


DIMENSIONS = {"shape": [1] * 70, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1] * 70}}}
WIDE = {"shape": [1 << 10], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1 << 10]}}, "codecs": [
    {"name": "sharding_indexed", "configuration": {"chunk_shape": [1], "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}]}


@pytest.mark.parametrize("limit, refused, allowed, metadata", [
    ("dimensions", None, "70", DIMENSIONS),
    ("dimensions", "3", "4", {"shape": [1] * 4, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1] * 4}}}),
    ("codecs", None, "18", {"codecs": [{"name": "bytes"}, *[{"name": "crc32c"}] * 17]}),
    ("shard-levels", None, "5", {"codecs": shards(5)}),
    ("shard-chunks", "1023", "1024", WIDE),
    ("metadata", "10K", "64K", {"attributes": {"a": "x" * 20_000}}),
    ("metadata-values", "100", "1000", {"attributes": {"a": list(range(200))}}),
    ("metadata-depth", "20", "40", {"attributes": {"a": json.loads("[" * 30 + "]" * 30)}}),
])
def test_a_limit_of_metadata_refuses_with_a_sentence_that_names_it_and_allows_more(tmp_path, limit, refused, allowed, metadata):
    array = tmp_path / "s"
    array.mkdir()
    (array / "zarr.json").write_text(json.dumps(document(**metadata)))
    lower = ["--limit", f"{limit}={refused}"] if refused else []
    no = zarrfs("info", array, *lower)
    sentence = no.stdout + no.stderr
    assert f"--limit {limit}=" in sentence, sentence
    yes = zarrfs("info", array, "--limit", f"{limit}={allowed}")
    assert yes.returncode == 0 and "not_understood" not in yes.stdout, yes.stdout + yes.stderr


def test_limits_can_be_mount_options_and_stand_before_the_command(tmp_path):
    array = tmp_path / "s"
    array.mkdir()
    (array / "zarr.json").write_text(json.dumps(document(**DIMENSIONS)))
    with until_end(Mount(array, tmp_path / "m", "-o", "limit=dimensions=70,ro,limit=codecs=3")) as m:
        assert len(json.loads((m / "zarr.json").read_text())["shape"]) == 70
    assert zarrfs("--limit", "dimensions=70", "info", array).returncode == 0
    assert zarrfs("--limit=dimensions=70", "tree", array).returncode == 0
    done = zarrfs("exec", array, "-o", "limit=dimensions=70", "--", "cat", "{}/zarr.json")
    assert done.returncode == 0, done.stderr
    for words in (["info", array, "--limit", "rank=1"], ["info", array, "--limit", "dimensions=0"], ["info", array, "--limit"]):
        wrong = zarrfs(*words)
        assert wrong.returncode == 2 and "limit" in wrong.stderr, wrong.stderr
    wrong = zarrfs("mount", array, tmp_path / "m", "-o", "limit=dimensions=none")
    assert wrong.returncode == 2 and "whole number" in wrong.stderr, wrong.stderr


def test_help_and_the_documentation_list_the_same_limits():
    listed = zarrfs("--limit", "help")
    assert listed.returncode == 0 and listed.stdout == zarrfs("info", "--limit=help").stdout
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    documented = re.findall(r"^\| `--limit ([a-z-]+)` \|", (REPOSITORY / "docs/limits.md").read_text(), re.MULTILINE)
    assert names == documented
