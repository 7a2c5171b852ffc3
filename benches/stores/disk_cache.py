#!/usr/bin/env python3
"""Compares a sweep from the disk cache with one from a directory, and with one from the server.

    scripts/bench.sh disk-cache [--rounds N] [--chunks N] [--zarrfs PROGRAM]

scripts/bench.sh builds zarrfs (unless --zarrfs or ZARRFS_BIN names it) and calls this. The array has N chunks of 1 MiB of float32 (zstd) [default: 512], also in
shards of 64 MiB. Each sweep is a `cat` of the view `raw` in a mount of its own, so that the kernel has no pages of it. The
server is SeaweedFS behind a proxy that delays each direction by 25 ms. In each round the ways come in random order. The
figures are the median of the seconds, and the median of the ratio to the directory in the same round.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zarr

from data import CHUNK, SHARD, planes
from server import BUCKET, KEYS, Proxy, Server, free_ports

WAYS = ("directory", "disk cache", "server")


def mount(program, source, path, *options):
    command = [program, "mount", source, path, "-o", "ro", *options]
    subprocess.run(list(map(str, command)), check=True, env=os.environ | KEYS)


def sweep(program, source, work, name, *options):
    """The seconds of a sweep, in a new mount."""
    path = Path(work, "mnt")
    path.mkdir(exist_ok=True)
    mount(program, source, path, *options)
    try:
        began = time.perf_counter()
        subprocess.run(["cat", path / f"{name}.raw"], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began
    finally:
        subprocess.run([program, "umount", path], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zarrfs", dest="program", type=os.path.abspath, required=True, metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=512)
    options = parser.parse_args()
    os.environ.update(KEYS)
    with tempfile.TemporaryDirectory(prefix="zarrfs-bench-") as work:
        server = Server(work)
        server.ready()
        proxy = Proxy(free_ports(1)[0], server.s3, 0.025, f"{work}/requests.log")
        try:
            values = planes(options.chunks)
            local = zarr.open_group(f"{work}/x.zarr", mode="w")
            remote = zarr.open_group(zarr.storage.ObjectStore(server.client("x")), mode="w")
            for root in (local, remote):
                root.create_array("chunks", data=values, chunks=CHUNK)
                root.create_array("shards", data=values, chunks=CHUNK, shards=SHARD)
            url = ["--endpoint", proxy.url]
            sources = {
                "directory": (f"{work}/x.zarr",),
                "disk cache": (f"s3://{BUCKET}/x", *url, "--disk-cache", f"{work}/cache"),
                "server": (f"s3://{BUCKET}/x", *url),
            }
            for name in ("chunks", "shards"):
                seconds = {way: [] for way in WAYS}
                requests = []
                for number in range(options.rounds + 1):
                    for way in random.sample(WAYS, len(WAYS)):
                        source, *more = sources[way]
                        proxy.take()
                        took = sweep(options.program, source, work, name, *more)
                        if number:  # The first one fills the cache.
                            seconds[way].append(took)
                            if way == "disk cache":
                                requests.append(len(proxy.take()))
                print(f"{name}: {max(requests)} requests at most from the disk cache")
                for way in WAYS:
                    ratios = [local / other for local, other in zip(seconds["directory"], seconds[way])]
                    rate = values.nbytes / 1e9 / statistics.median(seconds[way])
                    print(f"  {way:10}  {rate:.2f} GB/s  {statistics.median(ratios):.2f}", flush=True)
        finally:
            for it in (proxy, server):
                it.close()


if __name__ == "__main__":
    sys.exit(main())
