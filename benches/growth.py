#!/usr/bin/env python3
"""How the time of one operation grows: with the nodes of a hierarchy, the chunks of an array, the entries of a directory,
the readers of a mount, and the inner chunks of a shard.

    benches/growth.py ZARRFS [--only CASE,...] [--rounds N] [--dir DIR]

ZARRFS is the program, built with --release. Run it with a Python that has numpy (scripts/bench.sh keeps one). Every figure is the median of some rounds, each with a mount of its own, so
that nothing is known before; believe how the figures of one column grow.
"""

import argparse
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

from bench import Mount, most_memory

GROUP = json.dumps({"zarr_format": 3, "node_type": "group"})


def array(shape, chunk, codecs=None):
    grid = {"name": "regular", "configuration": {"chunk_shape": [chunk]}}
    keys = {"name": "default", "configuration": {"separator": "/"}}
    return json.dumps({"zarr_format": 3, "node_type": "array", "shape": [shape], "data_type": "uint8", "chunk_grid": grid,
                       "chunk_key_encoding": keys, "fill_value": 0, "codecs": codecs or [{"name": "bytes"}]})


def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def milliseconds(request, *args):
    start = time.perf_counter()
    request(*args)
    return (time.perf_counter() - start) * 1000


def read(path, offset=0, size=-1):
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        return file.read(size)


def count(path):
    with os.scandir(path) as entries:
        return sum(1 for _ in entries)


class Growth:
    def __init__(self, options, work):
        self.options, self.work = options, work

    def row(self, make, size, measure):
        """The medians of what `measure` says of a hierarchy of this size."""
        store = f"{self.work}/store"
        make(store, size)
        try:
            rounds = []
            for _ in range(self.options.rounds):
                start = time.perf_counter()
                with Mount(self.options.zarrfs, store, f"{self.work}/mnt", []) as at:
                    mounted = (time.perf_counter() - start) * 1000
                    figures = {"mounted, ms": mounted, **measure(at, size)}
                    rounds.append({**figures, "memory, MiB": most_memory(at)})
            return {what: statistics.median(figures[what] for figures in rounds) for what in rounds[0]}
        finally:
            shutil.rmtree(store)

    def nodes(self, size):
        """Arrays, at most 1000 in a group."""

        def make(store, size):
            put(f"{store}/zarr.json", GROUP)
            for number in range(size):
                group = f"{store}/g{number // 1000}"
                if number % 1000 == 0:
                    put(f"{group}/zarr.json", GROUP)
                put(f"{group}/a{number % 1000}/zarr.json", array(100, 100))

        def measure(at, size):
            last = f"{at}/g{(size - 1) // 1000}"
            return {
                "a document read": milliseconds(read, f"{last}/a{(size - 1) % 1000}/zarr.json"),
                "the same again": milliseconds(read, f"{last}/a{(size - 1) % 1000}/zarr.json"),
                "groups listed": milliseconds(count, at),
            }

        return self.row(make, size, measure)

    def chunks(self, size):
        """Chunks of an array, of which the first 1000 and the last are stored."""

        def make(store, size):
            put(f"{store}/zarr.json", GROUP)
            put(f"{store}/x/zarr.json", array(size * 16, 16))
            for number in [*range(min(size, 1000)), size - 1]:
                put(f"{store}/x/c/{number}", bytes(16))

        def measure(at, size):
            return {
                "a chunk file": milliseconds(read, f"{at}/x/c/{size - 1}"),
                "last element of the .npy": milliseconds(read, f"{at}/x.npy", 128 + size * 16 - 1, 1),
                "chunks listed": milliseconds(count, f"{at}/x/c"),
            }

        return self.row(make, size, measure)

    def directory(self, size):
        """Chunk files in one directory."""

        def make(store, size):
            put(f"{store}/zarr.json", array(size, 1))
            os.makedirs(f"{store}/c")
            for number in range(size):
                with open(f"{store}/c/{number}", "wb") as file:
                    file.write(b"1")

        def measure(at, size):
            first = milliseconds(read, f"{at}/c/{size // 2}")
            listed = milliseconds(count, f"{at}/c")
            found = milliseconds(subprocess.run, ["find", f"{at}/c", "-size", "+9"])
            return {"a chunk file": first, "listed, us an entry": listed / size * 1000,
                    "find -size, us an entry": found / size * 1000}

        return self.row(make, size, measure)

    def readers(self, size):
        """Programs that read at once, 512 chunks of 256 KiB in all."""

        def make(store, _size):
            put(f"{store}/zarr.json", array(512 << 18, 1 << 18, [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 1, "checksum": False}}]))
            with Mount(self.options.zarrfs, store, f"{self.work}/mnt", []) as at:
                put(f"{at}/c/0", os.urandom(1 << 18))
                for number in range(1, 512):
                    put(f"{at}/c/{number}", bytes(range(256)) * 1024)

        def measure(at, size):
            def some(reader):
                times = [milliseconds(read, f"{at}/c/{number}") for number in range(reader, 512, size)]
                return max(times)

            start = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(size) as pool:
                slowest = max(pool.map(some, range(size)))
            return {"all, GB/s": 512 * (1 << 18) / (time.perf_counter() - start) / 1e9, "slowest chunk": slowest}

        return self.row(make, size, measure)

    def shard(self, size):
        """Inner chunks of 256 bytes in one shard."""

        def make(store, size):
            inner = [{"name": "bytes"}]
            index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
            sharding = {"chunk_shape": [256], "codecs": inner, "index_codecs": index, "index_location": "end"}
            put(f"{store}/zarr.json", GROUP)
            put(f"{store}/x/zarr.json", array(size * 256, size * 256, [{"name": "sharding_indexed", "configuration": sharding}]))
            with Mount(self.options.zarrfs, store, f"{self.work}/mnt", []) as at:
                with open(f"{at}/x.raw", "r+b", buffering=0) as file:
                    data = memoryview(os.urandom(size * 256))
                    while data:
                        data = data[file.write(data) :]

        def measure(at, size):
            def write():
                with open(f"{at}/x/c/{size // 2}", "r+b", buffering=0) as file:
                    file.write(os.urandom(256))
                    os.fsync(file.fileno())

            return {
                "an inner chunk": milliseconds(read, f"{at}/x/c/{size - 1}"),
                "another": milliseconds(read, f"{at}/x/c/0"),
                "one changed": milliseconds(write),
                "listed, us an entry": milliseconds(count, f"{at}/x/c") / size * 1000,
            }

        return self.row(make, size, measure)


SIZES = {
    "nodes": [10, 1000, 10_000, 100_000],
    "chunks": [10, 1000, 100_000, 10_000_000],
    "directory": [1000, 10_000, 100_000, 1_000_000],
    "readers": [1, 4, 16, 64],
    "shard": [16, 256, 4096, 65_536],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zarrfs")
    parser.add_argument("--only", default=",".join(SIZES), type=lambda text: text.split(","))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir")
    options = parser.parse_args()
    work = tempfile.mkdtemp(prefix="zarrfs-bench.", dir=options.dir)
    try:
        growth = Growth(options, work)
        for case in options.only:
            rows = [(size, getattr(growth, case)(size)) for size in SIZES[case]]
            print(f"\n| {case} | {' | '.join(rows[0][1])} |\n|{' --- |' * (len(rows[0][1]) + 1)}")
            for size, figures in rows:
                print(f"| {size:,} | {' | '.join(f'{figure:.2f}' for figure in figures.values())} |", flush=True)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
