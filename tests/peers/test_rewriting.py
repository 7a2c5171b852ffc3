"""Chunks rewritten by ordinary programs and by Zarr libraries: the store has the new values, and nothing else changed."""

import itertools
import mmap
import os
import subprocess

import numpy as np
import pytest
import zarr

import layouts
from hierarchies import assert_same, chunk_path, document, open_ts
from mounts import changed, files


def region(coords, chunk_shape, shape):
    return tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(coords, chunk_shape, shape))


class Chunks:
    """Rewrites whole chunks: one inside, two in one shard, one that overhangs the array."""

    coords = [(0, 0), (0, 1), (3, 2), (5, 5)]

    def __init__(self, write):
        self.write = write

    def __call__(self, m, expected, scratch):
        chunk_shape = document(m / "x")["chunk_grid"]["configuration"]["chunk_shape"]
        new = scratch / "new"
        for number, coords in enumerate(self.coords):
            at = region(coords, chunk_shape, expected.shape)
            expected[at] = np.arange(expected[at].size).reshape(expected[at].shape) + 1000 * (number + 1)
            chunk = np.full(chunk_shape, 77, "<i4")
            chunk[tuple(slice(0, s.stop - s.start) for s in at)] = expected[at]
            path = new / chunk_path(coords)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(chunk.tobytes())
        self.write(new, m / "x", [chunk_path(coords) for coords in self.coords])
        return self.coords


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, f"{command}: {done.stderr}"


def cp(new, array, names):
    for name in names:
        run("cp", new / name, array / name)


def cp_a(new, array, names):
    run("cp", "-a", new / "c", array)


def cat(new, array, names):
    for name in names:
        run("sh", "-c", f"cat '{new / name}' > '{array / name}'")


def dd(new, array, names):
    for name in names:
        run("dd", f"if={new / name}", f"of={array / name}", "bs=16")


def rsync(new, array, names):
    run("rsync", "-aI", f"{new}/", f"{array}/")


def rsync_inplace(new, array, names):
    run("rsync", "-aI", "--inplace", "--no-whole-file", f"{new}/", f"{array}/")


def tar(new, array, names):
    run("sh", "-c", f"tar -C '{new}' -cf - c | tar -C '{array}' -xf -")


def tar_overwrite(new, array, names):
    run("sh", "-c", f"tar -C '{new}' -cf - c | tar -C '{array}' --overwrite -xf -")


def install(new, array, names):
    for name in names:
        run("install", "-m", "644", new / name, array / name)


def mv(new, array, names):
    """As an editor or a careful program does: a scratch file beside it, renamed onto it."""
    for name in names:
        scratch = array / (name + ".tmp~")
        scratch.write_bytes((new / name).read_bytes())
        os.rename(scratch, array / name)


def python(new, array, names):
    for name in names:
        with open(array / name, "wb") as file:
            file.write((new / name).read_bytes())
            file.flush()
            os.fsync(file.fileno())


def rm_and_cp(new, array, names):
    for name in names:
        os.unlink(array / name)
    cp(new, array, names)


def in_part(write):
    """Changes two elements in the middle of two chunks."""

    def change(m, expected, scratch):
        for coords in [(1, 1), (2, 3)]:
            path = m / "x" / chunk_path(coords)
            at = region(coords, layouts.CHUNKS, expected.shape)
            flat = expected[at].copy().reshape(-1)
            flat[7:9] = [-5, 1 << 30]
            expected[at] = flat.reshape(expected[at].shape)
            write(path, 7 * 4, flat[7:9].astype("<i4").tobytes())
        return [(1, 1), (2, 3)]

    return change


def dd_notrunc(path, offset, data):
    run("dd", f"of={path}", "bs=1", f"seek={offset}", "conv=notrunc", input=data.decode("latin-1"), encoding="latin-1")


def pwrite(path, offset, data):
    fd = os.open(path, os.O_WRONLY)
    assert os.pwrite(fd, data, offset) == len(data)
    os.close(fd)


def mapped(path, offset, data):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[offset : offset + len(data)] = data


def mapped_after_close(path, offset, data):
    """The descriptor goes before the mapping is written to."""
    with open(path, "r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0)
    mapping[offset : offset + len(data)] = data
    mapping.close()


def memmap(path, offset, data):
    elements = np.memmap(path, "<i4", mode="r+")
    elements[offset // 4 : (offset + len(data)) // 4] = np.frombuffer(data, "<i4")
    elements.flush()


SLICES = [(slice(2, 11), slice(3, 7)), (slice(20, 21), slice(None)), (slice(12, 13), slice(25, 26))]


def by_library(open_array):
    def change(m, expected, scratch):
        array, touched = open_array(m), set()
        for number, at in enumerate(SLICES):
            new = np.arange(expected[at].size, dtype="i4").reshape(expected[at].shape) - 10_000 * (number + 1)
            expected[at] = new
            array[at] = new
            bounds = [s.indices(n) for s, n in zip(at, expected.shape)]
            touched |= set(itertools.product(*(range(b // c, (e - 1) // c + 1) for (b, e, _), c in zip(bounds, layouts.CHUNKS))))
        return sorted(touched)

    return change


def zarr_python(m):
    return zarr.open_array(str(m / "x"), mode="r+", zarr_format=3)


class Tensorstore:
    def __init__(self, array):
        self.array = array

    def __setitem__(self, at, new):
        self.array[at].write(new).result()


PROGRAMS = {
    **{f.__name__: Chunks(f) for f in (cp, cp_a, cat, dd, rsync, rsync_inplace, tar, tar_overwrite, install, mv, python, rm_and_cp)},
    **{f.__name__: in_part(f) for f in (dd_notrunc, pwrite, mapped, mapped_after_close, memmap)},
    "zarr_python": by_library(zarr_python),
    "tensorstore": by_library(lambda m: Tensorstore(open_ts(m.path, "x"))),
}
# Each layout is written to by these; all programs write to the layouts that differ most.
FEW = ["cp", "dd_notrunc", "mapped", "zarr_python", "tensorstore"]
MANY = [("v3", "zstd"), ("v3", "shards"), ("v3", "shards_nested"), ("d2020-10", "blosc"), ("d2020-10", "shards")]


@pytest.mark.parametrize(
    "dialect, layout, program",
    [(*layout, program) for layout in layouts.ALL for program in PROGRAMS if program in FEW or layout in MANY],
)
def test_a_program_that_rewrites_chunks_changes_just_those_in_the_store(
    mount, hierarchy, zarr2, tmp_path, dialect, layout, program
):
    original = hierarchy(dialect, layout)
    before, expected = files(original), layouts.values()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with mount(original) as m:
        touched = PROGRAMS[program](m, expected, scratch)
        keys = {os.getxattr(m / "x" / chunk_path(c), "user.zarr.key").decode() for c in touched}
        # Visible at once to other readers of this mount.
        assert_same(zarr.open_array(str(m / "x"), mode="r")[...], expected, "on the mount")
    after = files(m.store)
    assert changed(before, after) <= keys, "other keys changed"
    assert before.keys() == after.keys(), "keys came or went"
    arrays = layouts.read(m.store, dialect, zarr2)
    assert_same(arrays.pop("x"), expected, "x in the store")
    assert_same(arrays.pop("other"), layouts.other(), "other")
    assert not arrays


@pytest.mark.parametrize("dialect, layout", [("v3", "zstd"), ("v3", "shards"), ("d2020-10", "shards")])
def test_removed_chunks_are_fill_values_and_come_back_when_written(mount, hierarchy, zarr2, dialect, layout):
    with mount(hierarchy(dialect, layout)) as m:
        chunk = (m / "x/c/1/1").read_bytes()
        for name in ("0/0", "0/1", "1/0", "1/1"):
            os.unlink(m / "x/c" / name)
        assert not (m / "x/c/1/1").exists() and "1" not in os.listdir(m / "x/c/1")
        expected = layouts.values()
        expected[:8, :10] = -1
        m.sync()
        assert_same(layouts.read(m.store, dialect, zarr2)["x"].astype("i4"), expected)
        (m / "x/c/1/1").write_bytes(chunk)
        expected[4:8, 5:10] = layouts.values()[4:8, 5:10]
    assert_same(layouts.read(m.store, dialect, zarr2)["x"].astype("i4"), expected)


def test_a_chunk_that_equals_the_fill_value_is_erased_where_that_was_asked_for(mount, hierarchy):
    with mount(hierarchy("v3", "zstd"), "--skip-fill-chunks") as m:
        (m / "x/c/0/0").write_bytes(np.full(layouts.CHUNKS, -1, "<i4").tobytes())
        assert not (m / "x/c/0/0").exists()
    assert not (m.store / "x/c/0/0").exists()


@pytest.mark.parametrize("dialect, layout", [("v3", "zstd"), ("v3", "shards")])
def test_a_chunk_that_went_behind_the_mount_can_be_created_at_once(mount, hierarchy, dialect, layout):
    with mount(hierarchy(dialect, layout), "--metadata-ttl", "1m") as m:
        chunk, key = m / "x/c/0/0", m.store / "x/c/0/0"
        data = chunk.read_bytes()
        key.unlink()
        with pytest.raises(FileNotFoundError):
            chunk.read_bytes()
        key.write_bytes(b"")
        key.unlink()
        chunk.write_bytes(data)
        assert chunk.read_bytes() == data
        m.sync()
        assert key.exists()
