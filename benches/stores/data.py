"""What benches/stores/compare.py reads: hierarchies that it stores in the server, without the proxy, and files."""

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import bench  # noqa: E402, the one of local stores
from server import BUCKET, run  # noqa: E402

CHUNK, SHARD, INNER = (1, 256, 1024), (64, 256, 1024), (4, 128, 512)  # 1, 64 and 1 MiB
SMALL = {"data": np.arange(1000, dtype="f4"), "chunks": (100,)}


class Sizes:
    """How much there is of everything."""

    def __init__(self, quick):
        self.chunks, self.shards = (64, 2) if quick else (512, 8)
        self.written_chunks, self.written_shards = (32, 1) if quick else (256, 4)
        self.few, self.many = (100, 1000) if quick else (1000, 10_000)
        self.wide = (10, 100) if quick else (100, 1000)
        self.groups = 100
        self.scattered, self.places, self.idle = (100, 10, 5) if quick else (1000, 50, 60)
        self.programs, self.readers = (20, 4) if quick else (100, 8)
        self.open = min(1000, self.chunks + 64 * self.shards)


def planes(count):
    """The field of benches/bench.py in planes of 1 MiB."""
    # bench.field makes 3 MiB for each of its planes, and 16 planes at a time.
    values = bench.field((count // 3 // 16 + 1) * 48)
    return values.reshape(-1, *CHUNK[1:])[:count]


class Data:
    def __init__(self, server, sizes, work, zarrfs):
        self.server, self.sizes, self.work, self.zarrfs = server, sizes, work, zarrfs
        self.numbers = itertools.count()
        self.npy = {name: f"{work}/{name}.npy" for name in ("x", "m", "wx", "wm")}

    def store(self, prefix):
        import zarr

        return zarr.storage.ObjectStore(self.server.client(prefix))

    def put(self, values):
        """Stores values by their keys, 64 at a time."""
        import obstore

        client = self.server.client()

        async def one(free, key, value):
            async with free:
                await obstore.put_async(client, key, value)

        async def all():
            free = asyncio.Semaphore(64)
            await asyncio.gather(*(one(free, key, value) for key, value in values.items()))

        asyncio.run(all())

    def get(self, key):
        import obstore

        return bytes(obstore.get(self.server.client(), key).bytes())

    def make(self):
        import zarr

        zarr.config.set({"async.concurrency": 64})
        self.small()
        root = zarr.open_group(self.store("v3"), mode="r+")
        values = planes(max(self.sizes.chunks, 64 * self.sizes.shards))
        for name, shards in (("x", None), ("m", SHARD), ("c", SHARD)):
            count = self.sizes.chunks if shards is None else 64 * self.sizes.shards
            shape, chunks = (count, *CHUNK[1:]), CHUNK if shards is None else INNER
            array = root.create_array(name, shape=shape, dtype="f4", chunks=chunks, shards=shards)
            if name != "c":
                np.save(self.npy[name], values[:count])
                array[...] = values[:count]
        written = (("wx", self.sizes.written_chunks, "x"), ("wm", 64 * self.sizes.written_shards, "m"))
        for name, count, like in written:
            np.save(self.npy[name], values[:count])
            self.encoded(name, count // 64 if like == "m" else count, like)
        self.c_order()

    def small(self):
        """Everything of which only names and single chunks are read."""
        import zarr

        for prefix, dialect in (("v3", 3), ("v2", 2), ("deep", 3), ("consolidated", 3)):
            root = zarr.open_group(self.store(prefix), mode="w", zarr_format=dialect)
            root.create_array("small", **SMALL)
            if prefix in ("deep", "consolidated"):
                root.create_array("g/a", **SMALL)
                root.create_array("a/b/x", shape=(4, *CHUNK[1:]), chunks=CHUNK, dtype="f4")[...] = planes(4)
            if prefix == "consolidated":
                zarr.consolidate_metadata(root.store)
        self.n5()
        root = zarr.open_group(self.store("v3"), mode="r+")
        group, array = self.get("v3/zarr.json"), self.get("v3/small/zarr.json")
        values = {f"groups/g{number:02}/zarr.json": group for number in range(self.sizes.groups)}
        for name, count in (("few", self.sizes.few), ("many", self.sizes.many)):
            values |= {f"v3/{name}/a{number:05}/zarr.json": array for number in range(count - 1)}  # And its zarr.json.
            root.create_array(f"n{name}", shape=(count,), chunks=(1,), dtype="u1", fill_value=9)[:1] = 1
            chunk = self.get(f"v3/n{name}/c/0")
            values |= {f"v3/n{name}/c/{number}": chunk for number in range(count)}
        values |= {f"{name}/zarr.json": group for name in ("groups", "v3/few", "v3/many")}
        root.create_array("wide", shape=self.sizes.wide, chunks=(1, 1), dtype="u1", fill_value=9)
        rows, columns = self.sizes.wide
        values |= {f"v3/wide/c/{row}/{number}": chunk for row in range(rows) for number in range(columns)}
        self.put(values)

    def n5(self):
        """zarr-python 3 does not write N5."""
        made = f"{self.work}/made.n5"
        run(self.zarrfs, "convert", f"s3://{BUCKET}/v2", made, "--format", "n5", "--endpoint", self.server.url)
        files = [path for path in Path(made).rglob("*") if path.is_file()]
        self.put({f"n5/{path.relative_to(made)}": path.read_bytes() for path in files})

    def encoded(self, name, count, like):
        """The encoded chunks of the array that is written, as files and for whoever reads them back."""
        for number in range(count):
            path = Path(f"{self.work}/{name}/c/{number}/0/0")
            path.parent.mkdir(parents=True)
            path.write_bytes(self.get(f"v3/{like}/c/{number}/0/0"))

    def mounted(self, prefix, use, *options):
        at = f"{self.work}/direct"
        os.makedirs(at, exist_ok=True)
        run(self.zarrfs, "mount", f"s3://{BUCKET}/{prefix}", at, "--endpoint", self.server.url, *options)
        try:
            use(at)
        finally:
            subprocess.run([self.zarrfs, "umount", at], check=False)
            if os.path.ismount(at):
                subprocess.run(["fusermount3", "-u", "-z", at], check=False)

    def c_order(self):
        """The array of `m` again, but with shards in C order: zarr-python has no such option."""
        self.mounted("v3", lambda at: run("cp", self.npy["m"], f"{at}/c.npy"), "--shard-order", "c")

    def check(self):
        """Compares every byte that a mount shows with the source of the arrays."""

        def compare(at):
            for name, source in (("x", "x"), ("m", "m"), ("c", "m")):
                values = np.load(f"{at}/{name}.npy", mmap_mode="r")
                assert np.array_equal(values, np.load(self.npy[source], mmap_mode="r")), f"{name} differs"

        self.mounted("v3", compare)

    def fresh(self, kind):
        """A new hierarchy with an array to be written, and its prefix. `edit`: with one shard."""
        import zarr

        prefix = f"written{next(self.numbers)}"
        count = {"wx": self.sizes.written_chunks, "wm": 64 * self.sizes.written_shards, "edit": 64}[kind]
        chunks, shards = (CHUNK, None) if kind == "wx" else (INNER, SHARD)
        root = zarr.open_group(self.store(prefix), mode="w")
        root.create_array("y", shape=(count, *CHUNK[1:]), dtype="f4", chunks=chunks, shards=shards)
        if kind == "edit":
            self.put({f"{prefix}/y/c/0/0/0": self.get("v3/m/c/0/0/0")})
        return prefix

    def check_written(self, prefix, kind):
        import zarr

        values = zarr.open_array(self.store(f"{prefix}/y"), mode="r")[...]
        assert np.array_equal(values, np.load(self.npy[kind])), "what was written differs"

    def remove(self, prefix):
        import obstore

        keys = self.server.keys(prefix)
        if keys:
            obstore.delete(self.server.client(), keys)

    def shard_part(self):
        """Somewhere in the first shard, an encoded length like that of an inner chunk."""
        length = len(self.get("v3/m/c/0/0/0"))
        return length // 2, length // 64
