"""Where a suite runs: a store, its mount, and a file or directory in it.

*ordinary*: a directory in a group of a directory store. *chunk CODEC*: one chunk file among others. *view FORMAT*: an
array as one file.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

import mounts  # noqa: E402
from mounts import BIN, Mount, until_end  # noqa: E402

# A disk that others use as well may take its time when all of it is synced.
mounts.PATIENCE = 300
# No multiple of a page. An array has a chunk before and one behind that of the suite.
SIZE = 60_000
CHUNKS = (2, 3)
# What `zarrfs create` takes.
CODECS = {
    "raw": ["--codecs", "none"],
    "gzip": ["--codecs", "gzip"],
    "zstd": ["--codecs", "zstd"],
    "blosc-lz4": ["--codecs", '[{"name":"blosc","configuration":{"cname":"lz4","clevel":5,"shuffle":"noshuffle","blocksize":0}}]'],
    "blosc-zstd": ["--codecs", '[{"name":"blosc","configuration":{"cname":"zstd","clevel":3,"shuffle":"shuffle","typesize":1,"blocksize":0}}]'],
    "sharded": ["--codecs", "gzip,crc32c", "--shards", f"{CHUNKS[0]},{2 * SIZE}"],
    "v2": ["--format", "v2", "--codecs", "zlib"],
}


def make(store, codec):
    """A hierarchy with the array `x`, every chunk of it full."""
    shape = f"{CHUNKS[0]},{CHUNKS[1] * SIZE}"
    command = [BIN, "create", f"{store}/x", "--shape", shape, "--dtype", "uint8", "--chunks", f"1,{SIZE}", *CODECS[codec]]
    subprocess.run(command, check=True, capture_output=True)
    values = first_values()
    with until_end(Mount(store, f"{store}.mnt")) as m:
        for i in range(CHUNKS[0]):
            for j in range(CHUNKS[1]):
                path = m / f"x/c/{i}/{j}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(values[i, j * SIZE : (j + 1) * SIZE].tobytes())
    os.rmdir(f"{store}.mnt")
    return values


def first_values():
    return np.random.default_rng(1).integers(0, 256, (CHUNKS[0], CHUNKS[1] * SIZE), "u1")


def stored(store):
    """The array as zarr-python reads it from the store."""
    import zarr

    return zarr.open_array(Path(store) / "x", mode="r")[...]


@contextlib.contextmanager
def array(work, codec, *options):
    """A mount of an array. What is shown of it at the end must be what zarr-python then reads from the store."""
    store = Path(work) / "store"
    make(store, codec)
    with until_end(Mount(store, Path(work) / "mnt", *options)) as m:
        m.allow("")  # A suite may do what is refused.
        yield m
        shown = np.frombuffer((m / "x.raw").read_bytes(), "u1").reshape(CHUNKS[0], -1)
    assert np.array_equal(stored(store), shown), "zarr-python reads other values from the store than the mount has shown"
    m.shown = shown


@contextlib.contextmanager
def chunk(work, codec, *options):
    """The mount of an array, and the path of the chunk in its middle. All others must keep their values."""
    with array(work, codec, *options) as m:
        yield m, m / "x/c/1/1"
    before, after = first_values(), m.shown.copy()
    after[1, SIZE : 2 * SIZE] = before[1, SIZE : 2 * SIZE]
    assert np.array_equal(before, after), "another chunk has changed"


@contextlib.contextmanager
def view(work, codec, suffix, *options):
    """The mount of an array, and its path as a file of another format."""
    with array(work, codec, *options) as m:
        yield m, m / f"x{suffix}"


@contextlib.contextmanager
def ordinary(work, *options):
    """The mount of a new hierarchy, and a new directory in it. All users may enter it."""
    Path(work).chmod(0o755)
    with until_end(Mount(Path(work) / "store", Path(work) / "mnt", "--create", "-o", "allow_other", *options)) as m:
        m.allow("")
        # The name of a socket has 107 bytes at most, with all above it.
        directory = m / "g/d"
        directory.mkdir(parents=True)
        yield m, directory
