"""Readers and writers at once, in one mount, in two, and beside another program that writes to the store itself."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr

import layouts
from hierarchies import assert_same, chunk_path, read_ts, read_zarr
from mounts import Mount, copy_of
from torture import count

SECONDS = count("ZARRFS_SECONDS", 6, 60)
GRID = [-(-n // c) for n, c in zip(layouts.SHAPE, layouts.CHUNKS)]
ALL = list(itertools.product(*map(range, GRID)))
LEN = 20


WRITER = """
import os, random, sys, time
import numpy as np
directory, until, number, how = sys.argv[1], time.monotonic() + float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
names, dice, last = sys.argv[5:], random.Random(number), {}
n = number * 1_000_000
while time.monotonic() < until or len(last) < len(names):
    n += 2
    name = dice.choice(names)
    chunk = np.where(np.arange(20) % 2, n, n + 1).astype("<i4").tobytes()
    path, way = os.path.join(directory, name), dice.choice(how.split(","))
    if way == "whole":
        with open(path, "wb") as file:
            file.write(chunk)
    elif way == "rename":
        with open(path + f".{number}.tmp", "wb") as file:
            file.write(chunk)
        os.replace(path + f".{number}.tmp", path)
    elif way == "inplace":
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, chunk, 0)
        if dice.random() < 0.2:
            os.fsync(fd)
        os.close(fd)
    last[name] = n
for name, n in last.items():
    print(name, n)
"""

READER = """
import os, random, sys, time
import numpy as np
directory, until, number = sys.argv[1], time.monotonic() + float(sys.argv[2]), int(sys.argv[3])
names, dice, reads = sys.argv[4:], random.Random(number), 0
while time.monotonic() < until or reads <= 10:
    name = dice.choice(names)
    with open(os.path.join(directory, name), "rb", buffering=0) as file:
        data = file.read(1000)
    if not any(data):
        # Another program has cut it and not written yet: that shows at once, as in any file system. Where the kernel
        # learned of the cut from this very read, and of the old length meanwhile, it shows zeros of that length.
        continue
    assert len(data) == 80, f"{name}: {len(data)} bytes"
    chunk = np.frombuffer(data, "<i4")
    n = chunk[1]
    whole = (np.where(np.arange(20) % 2, n, n + 1) == chunk).all()
    assert whole, f"{name} is torn: {chunk}"
    reads += 1
print(reads)
"""


def start(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(processes):
    """What they printed; all of them end, also if one fails."""
    try:
        outputs = [process.communicate(timeout=SECONDS + 60) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
    for process, (_, errors) in zip(processes, outputs):
        assert process.returncode == 0, errors
    return [output for output, _ in outputs]


def dealt(count):
    """The chunks of the array, dealt out so that the chunks of each shard go to different writers."""
    names = [chunk_path(coords) for coords in ALL]
    random.Random(count).shuffle(names)
    return [names[at::count] for at in range(count)]


def pattern(n):
    return np.where(np.arange(LEN) % 2, n, n + 1).astype("i4").reshape(layouts.CHUNKS)


def fill(array):
    """Every chunk, that of the edge too, holds a pattern."""
    for coords in ALL:
        (array / chunk_path(coords)).write_bytes(pattern(0).astype("<i4").tobytes())


def expected_after(outputs, tried):
    """The array that is there after writers that printed this."""
    # Each counts its writes in steps of two.
    tried(f"writes of {len(outputs)} writers", sum(max(int(line.split()[1]) % 1_000_000 // 2 for line in output.splitlines()) for output in outputs))
    whole = np.zeros([n * c for n, c in zip(GRID, layouts.CHUNKS)], "i4")
    last = {name: int(n) for output in outputs for name, n in map(str.split, output.splitlines())}
    assert len(last) == len(ALL), "some chunks were never written"
    for coords in ALL:
        at = tuple(slice(i * c, (i + 1) * c) for i, c in zip(coords, layouts.CHUNKS))
        whole[at] = pattern(last[chunk_path(coords)])
    return whole[tuple(map(slice, layouts.SHAPE))]


@pytest.mark.parametrize("dialect, layout", [("v3", "shards"), ("v3", "shards_nested"), ("v3", "zstd"), ("d2020-10", "shards")])
def test_eight_readers_and_four_writers_of_shared_shards_lose_nothing(mount, hierarchy, zarr2, tried, dialect, layout):
    with mount(hierarchy(dialect, layout)) as m:
        fill(m / "x")
        seconds = SECONDS / (1 if layout == "shards" else 3)
        names = [chunk_path(coords) for coords in ALL]
        writers = [start(WRITER, m / "x", seconds, number + 1, "whole,rename", *names) for number, names in enumerate(dealt(4))]
        readers = [start(READER, m / "x", seconds, number, *names) for number in range(8)]
        outputs = finish(writers + readers)
        tried("reads of eight readers", sum(map(int, outputs[4:])))
        expected = expected_after(outputs[:4], tried)
        assert_same(read_zarr(m.path, "x"), expected, "on the mount, by zarr-python")
        assert_same(read_ts(m.path, "x"), expected, "on the mount, by tensorstore")
    stored = layouts.read(m.store, dialect, zarr2)
    assert_same(stored["x"], expected, "in the store")
    assert_same(stored["other"], layouts.other())


@pytest.mark.parametrize("dialect, layout", [("v3", "shards"), ("d2020-10", "shards")])
def test_two_mounts_of_one_store_lose_nothing_of_a_shared_shard(mount, hierarchy, zarr2, tmp_path, tried, dialect, layout):
    store = copy_of(hierarchy(dialect, layout), tmp_path / "shared")
    with mount(store, copy=False) as one, mount(store, copy=False) as two:
        mounts = itertools.cycle([one, two])
        writers = [
            start(WRITER, next(mounts) / "x", SECONDS, number + 1, "whole,rename,inplace", *names)
            for number, names in enumerate(dealt(4))
        ]
        expected = expected_after(finish(writers), tried)
        one.sync()
        two.sync()
        time.sleep(1.1)  # Each mount may take what it knows for a second to be so.
        assert_same(read_zarr(one.path, "x"), expected, "on the first mount")
        assert_same(read_ts(two.path, "x"), expected, "on the second mount")
    assert_same(layouts.read(store, dialect, zarr2)["x"], expected, "in the store")


TENSORSTORE = """
import itertools, random, sys, time
import numpy as np
import tensorstore as ts
store, until, number = sys.argv[1], time.monotonic() + float(sys.argv[2]), int(sys.argv[3])
names, dice, last = sys.argv[5:], random.Random(number), {}
array = ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": store}}, open=True).result()
n = number * 1_000_000
while time.monotonic() < until or len(last) < len(names):
    n += 2
    name = dice.choice(names)
    i, j = map(int, name.split("/")[1:])
    part = array[4 * i : min(4 * i + 4, 21), 5 * j : min(5 * j + 5, 26)]
    chunk = np.where(np.arange(20) % 2, n, n + 1).astype("i4").reshape(4, 5)
    part.write(chunk[: part.shape[0], : part.shape[1]]).result()
    last[name] = n
for name, n in last.items():
    print(name, n)
"""


@pytest.mark.parametrize("layout", ["shards", "shards_index_at_start"])
def test_tensorstore_beside_two_mounts_loses_nothing_of_a_shared_shard(mount, hierarchy, tmp_path, tried, layout):
    store = copy_of(hierarchy("v3", layout), tmp_path / "shared")
    with mount(store, copy=False) as one, mount(store, copy=False) as two:
        parts = dealt(4)
        processes = [
            start(WRITER, one / "x", SECONDS, 1, "whole,rename,inplace", *parts[0]),
            start(WRITER, two / "x", SECONDS, 2, "whole,rename,inplace", *parts[1]),
            start(TENSORSTORE, f"{store}/x/", SECONDS, 3, "", *parts[2]),
            start(WRITER, one / "x", SECONDS, 4, "whole,inplace", *parts[3]),
        ]
        expected = expected_after(finish(processes), tried)
    assert_same(zarr.open_array(store / "x", mode="r")[...], expected, "in the store")


@pytest.mark.parametrize("layout", ["shards", "zstd"])
def test_libraries_write_to_one_mount_at_once(mount, hierarchy, layout):
    """zarr-python from threads, tensorstore with its own, on chunks of the same shards."""
    with mount(hierarchy("v3", layout)) as m:
        rows = [zarr_rows(m / "x", range(0, 4)), zarr_rows(m / "x", range(8, 12)), ts_rows(m / "x", range(4, 8)), ts_rows(m / "x", range(12, 16))]
        finish(rows)
        expected = layouts.values()
        for row in range(16):
            expected[row] = np.arange(26) + 1000 * row + 19
        assert_same(read_zarr(m.path, "x"), expected)
    assert_same(zarr.open_array(m.store / "x", mode="r")[...], expected)


def zarr_rows(array, rows):
    return start(
        "import sys, zarr, numpy as np\n"
        "x = zarr.open_array(sys.argv[1], mode='r+')\n"
        "for n in range(20):\n"
        "    for row in map(int, sys.argv[2:]):\n"
        "        x[row] = np.arange(26) + 1000 * row + n\n",
        array, *rows,
    )


def ts_rows(array, rows):
    return start(
        "import sys, tensorstore as ts, numpy as np\n"
        "x = ts.open({'driver': 'zarr3', 'kvstore': {'driver': 'file', 'path': sys.argv[1] + '/'}}, open=True).result()\n"
        "for n in range(20):\n"
        "    rows = [int(row) for row in sys.argv[2:]]\n"
        "    x[rows[0] : rows[-1] + 1].write(np.array([np.arange(26) + 1000 * row + n for row in rows], 'i4')).result()\n",
        array, *rows,
    )


def test_a_mount_made_where_another_has_just_ended_stays(hierarchy, tmp_path):
    """The first daemon goes after its mount has, and must not take the second mount with it."""
    first = Mount(copy_of(hierarchy("v3", "zstd"), tmp_path / "one"), tmp_path / "mnt")
    try:
        subprocess.run(["umount", str(first.path)], check=True) if os.geteuid() == 0 else subprocess.run(
            ["fusermount3", "-u", str(first.path)], check=True
        )
        second = Mount(copy_of(hierarchy("v3", "shards"), tmp_path / "two"), tmp_path / "mnt")
        try:
            deadline = time.monotonic() + 10
            while Path(f"/proc/{first.pid}/exe").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            assert b"shard" in os.getxattr(second / "x", "user.zarr.codecs")
        finally:
            second.end()
    finally:
        first.end()
