#!/usr/bin/env python3
"""What a mount costs: zarrfs, zarr-python and TensorStore on the same arrays, in turns, in one run.

    benches/mount.py ZARRFS [--mib N] [--rounds N] [--dir DIR]

ZARRFS is the program, built with --release. Run it with a Python that has numpy, zarr 3 and tensorstore
(scripts/test.sh keeps one). Machines are noisy: believe the ratios, not the figures. Every
reader's bytes are compared before anything is timed.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

PEER = """
import sys, time
kind, path = sys.argv[1:3]
if kind == 'zarr-python':
    import zarr
    array = zarr.open_array(path, mode='r')
    start = time.perf_counter(); array[...]
else:
    import tensorstore as ts
    array = ts.open({'driver': 'zarr3', 'kvstore': {'driver': 'file', 'path': path}}).result()
    start = time.perf_counter(); array.read().result()
print(time.perf_counter() - start)
"""

REWRITE = """
import sys, time, numpy as np
kind, path = sys.argv[1:3]
rounds = int(sys.argv[3])
times = []
if kind == 'zarr-python':
    import zarr
    array = zarr.open_array(path, mode='r+')
    shape = array.chunks
    for n in range(rounds):
        value = np.full(shape, n, array.dtype)
        start = time.perf_counter(); array[tuple(slice(0, s) for s in shape)] = value
        times.append(time.perf_counter() - start)
else:
    import tensorstore as ts
    array = ts.open({'driver': 'zarr3', 'kvstore': {'driver': 'file', 'path': path}}, open=True).result()
    shape = array.chunk_layout.read_chunk.shape
    for n in range(rounds):
        value = np.full(shape, n, array.dtype.numpy_dtype)
        start = time.perf_counter(); array[tuple(slice(0, s) for s in shape)].write(value).result()
        times.append(time.perf_counter() - start)
print(' '.join(map(str, times)))
"""


def make(root, mib):
    """A smooth field with noise, 13 bits of mantissa, in five forms."""
    shape = (16 * max(1, mib // 64), 1024, 1024)
    rng = np.random.default_rng(1)
    field = np.sin(np.linspace(0, 300, int(np.prod(shape)), dtype="f8")).reshape(shape) * 100
    field = (field + rng.normal(size=shape)).astype("f4")
    field = (field.view("u4") & np.uint32(0xFFFFFC00)).view("f4")
    group = zarr.open_group(root, mode="w")
    plain = {"chunks": (16, 128, 256)}
    group.create_array("none", data=field, compressors=None, **plain)
    group.create_array("gzip", data=field, compressors=GzipCodec(level=5), **plain)
    group.create_array("zstd", data=field, compressors=ZstdCodec(level=3), **plain)
    group.create_array("blosc-lz4", data=field, compressors=BloscCodec(cname="lz4", shuffle="shuffle"), **plain)
    shards = {"chunks": (16, 128, 128), "shards": (16, 1024, 1024)}
    group.create_array("shard-zstd", data=field, compressors=ZstdCodec(level=3), **shards)
    return field


class Mount:
    def __init__(self, zarrfs, store, at):
        self.zarrfs, self.at = zarrfs, at
        subprocess.run([zarrfs, "mount", store, at], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run([self.zarrfs, "umount", self.at], check=True)


def files(at):
    """Every chunk file, in the order of the grid."""
    found = [str(path) for path in pathlib.Path(at).rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: [int(part) for part in path.split("/c/")[1].split("/")])


def read_mount(zarrfs, store, at, name):
    with Mount(zarrfs, store, at):
        paths = files(f"{at}/{name}/c")
        start = time.perf_counter()
        subprocess.run(["cat", *paths], check=True, stdout=subprocess.DEVNULL)
        first = time.perf_counter() - start
        start = time.perf_counter()
        subprocess.run(["cat", *paths], check=True, stdout=subprocess.DEVNULL)
        return first, time.perf_counter() - start


def peer(code, *args):
    output = subprocess.run([sys.executable, "-c", code, *args], check=True, capture_output=True, text=True)
    return [float(value) for value in output.stdout.split()]


def check(zarrfs, store, at, field):
    with Mount(zarrfs, store, at):
        for name in ("none", "gzip", "zstd", "blosc-lz4", "shard-zstd"):
            shape = json.load(open(f"{at}/{name}/zarr.json"))["chunk_grid"]["configuration"]["chunk_shape"]
            for path in files(f"{at}/{name}/c")[:: max(1, len(files(f"{at}/{name}/c")) // 20)]:
                place = [int(part) for part in path.split("/c/")[1].split("/")]
                want = field[tuple(slice(i * s, (i + 1) * s) for i, s in zip(place, shape))]
                assert np.array_equal(np.fromfile(path, "<f4").reshape(shape), want), path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("zarrfs")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", help="where the arrays go [a temporary directory]")
    args = parser.parse_args()
    zarrfs = os.path.abspath(args.zarrfs)
    work = tempfile.mkdtemp(prefix="zarrfs-bench.", dir=args.dir)
    store, at = f"{work}/bench.zarr", f"{work}/mnt"
    os.mkdir(at)
    try:
        field = make(store, args.mib)
        check(zarrfs, store, at, field)
        gigabytes = field.nbytes / 1e9
        print(f"{gigabytes:.2f} GB decoded, {args.rounds} rounds in turns; GB/s, median (least .. most)\n")
        print(f"{'whole array':12} {'cat, first':>22} {'cat, second':>22} {'zarr-python':>22} {'tensorstore':>22}   first/zarr-python, first/tensorstore")
        for name in ("none", "gzip", "zstd", "blosc-lz4", "shard-zstd"):
            times = {"first": [], "second": [], "zarr-python": [], "tensorstore": []}
            for _ in range(args.rounds):
                first, second = read_mount(zarrfs, store, at, name)
                times["first"].append(first)
                times["second"].append(second)
                for kind in ("zarr-python", "tensorstore"):
                    times[kind] += peer(PEER, kind, f"{store}/{name}")
            speeds = {kind: sorted(gigabytes / t for t in all) for kind, all in times.items()}
            medians = {kind: statistics.median(all) for kind, all in speeds.items()}
            cells = [f"{medians[k]:6.2f} ({speeds[k][0]:.2f} .. {speeds[k][-1]:.2f})" for k in speeds]
            ratios = [medians["first"] / medians[kind] for kind in ("zarr-python", "tensorstore")]
            print(f"{name:12} " + " ".join(f"{cell:>22}" for cell in cells) + "   " + ", ".join(f"{r:.2f}" for r in ratios), flush=True)
        print("\none inner chunk of a shard rewritten; ms, median")
        times = {"zarrfs": [], "zarr-python": [], "tensorstore": []}
        shape = json.load(open(f"{store}/shard-zstd/zarr.json"))["codecs"][0]["configuration"]["chunk_shape"]
        for round_ in range(args.rounds):
            with Mount(zarrfs, store, at):
                for n in range(10):
                    value = np.full(shape, n, "<f4").tobytes()
                    start = time.perf_counter()
                    with open(f"{at}/shard-zstd/c/0/0/0", "r+b", buffering=0) as file:
                        written = 0
                        while written < len(value):
                            written += file.write(value[written:])
                    times["zarrfs"].append(time.perf_counter() - start)
            for kind in ("zarr-python", "tensorstore"):
                times[kind] += peer(REWRITE, kind, f"{store}/shard-zstd", "10")
        for kind, all in times.items():
            print(f"{kind:12} {statistics.median(all) * 1000:8.1f}")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
