#!/usr/bin/env python3
"""The ways to the same data, in turns, in one run: `mount`, `exec`, `serve`, OPeNDAP, and zarr-python over HTTP.

    benches/reach.py ZARRFS [--shape N,N,N] [--rounds N] [--dir DIR] [--arrays none,zstd,blosc,shard-zstd]

ZARRFS is the program, built with --release. Run it with a Python that has aiohttp, fsspec, numpy and zarr 3
(scripts/test.sh keeps one), and install nginx, from which zarr-python reads the store. Each figure is for a fresh mount or server, with the store in the page cache. `chunks` is every chunk file in
order, `view` the whole array as one file. Machines are noisy: believe the ratios, which are medians over the pairs.
"""

import argparse
import contextlib
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np
import zarr
from zarr.codecs import BloscCodec, ZstdCodec

CHUNK = (8, 256, 256)
SHARD = (64, 512, 512)
KINDS = {"none": (None, False), "zstd": (ZstdCodec(), False), "blosc": (BloscCodec(), False), "shard-zstd": (ZstdCodec(), True)}
# Prints the seconds that a command takes.
TIMED = [
    sys.executable,
    "-ISc",
    "import subprocess,sys,time; t=time.monotonic(); subprocess.run(sys.argv[1:],stdout=-3,check=True); print(time.monotonic()-t)",
]
ZARR_PYTHON = """
import sys, time, zarr
array = zarr.open_array(sys.argv[1], mode="r")
begun = time.monotonic()
array[...]
print(time.monotonic() - begun)
"""


def seconds(command):
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@contextlib.contextmanager
def static(directory, work):
    """The files of a directory over HTTP, by a server that is not ours."""
    port = free_port()
    with open(f"{work}/nginx.conf", "w") as file:
        file.write(
            f"daemon off; error_log {work}/nginx.log; pid {work}/nginx.pid; user root; events {{}}"
            f" http {{ access_log off; sendfile on; keepalive_requests 1000000;"
            f" server {{ listen 127.0.0.1:{port}; root {directory}; }} }}"
        )
    command = ["nginx", "-c", f"{work}/nginx.conf"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def wait(port):
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise TimeoutError(port)


class Ways:
    def __init__(self, program, store, work, url):
        self.program, self.store, self.work, self.url = program, store, work, url

    def files(self, kind):
        """The chunk files below the mountpoint, and the length of the array."""
        array = zarr.open_array(f"{self.store}/{kind}", mode="r")
        grid = [-(-size // chunk) for size, chunk in zip(array.shape, array.chunks)]
        self.len = array.nbytes
        return ["/".join([kind, "c", *map(str, index)]) for index in np.ndindex(*grid)]

    def mount(self, paths):
        target = tempfile.mkdtemp(dir=self.work)
        subprocess.run([self.program, "mount", self.store, target, "-o", "ro"], check=True)
        try:
            return seconds([*TIMED, "cat", *(f"{target}/{path}" for path in paths)])
        finally:
            subprocess.run([self.program, "umount", target], check=True, stdout=subprocess.DEVNULL)
            os.rmdir(target)

    def exec(self, paths):
        command = [self.program, "exec", self.store, "-o", "ro", "--", *TIMED, "cat", *(f"{{}}/{path}" for path in paths)]
        return seconds(command)

    def serve(self, paths):
        command = [self.program, "serve", self.store, "--listen", "127.0.0.1:0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().strip()
            with open(f"{self.work}/urls", "w") as file:
                for path in paths:
                    file.write(f'url = "{url}{path}"\noutput = /dev/null\n')
            return seconds([*TIMED, "curl", "-sgfK", f"{self.work}/urls"])
        finally:
            server.terminate()
            server.wait()

    def zarr_python(self, kind):
        return seconds([sys.executable, "-W", "ignore", "-c", ZARR_PYTHON, f"{self.url}/{kind}"])

    def of(self, kind):
        """The ways to read an array, by their names."""
        chunks, view = self.files(kind), [f"{kind}.raw"]
        return {
            "chunks: mount": lambda: self.mount(chunks),
            "chunks: exec": lambda: self.exec(chunks),
            "chunks: serve": lambda: self.serve(chunks),
            "view: mount": lambda: self.mount(view),
            "view: exec": lambda: self.exec(view),
            "view: serve": lambda: self.serve(view),
            "view: OPeNDAP": lambda: self.serve([f"dap/{kind}.dods?{kind}"]),
            "zarr-python over HTTP": lambda: self.zarr_python(kind),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="ZARRFS", type=os.path.abspath)
    parser.add_argument("--shape", default="192,768,768", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--dir", help="where to work [default: the temporary directory]")
    parser.add_argument("--arrays", default=",".join(KINDS), type=lambda text: text.split(","))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as work:
        store = f"{work}/s.zarr"
        steps = np.random.default_rng(1).standard_normal(options.shape).astype("f4").round(2)
        group = zarr.create_group(store)
        for kind in options.arrays:
            codec, is_sharded = KINDS[kind]
            shards = SHARD if is_sharded else None
            group.create_array(kind, data=steps, chunks=CHUNK, shards=shards, compressors=codec)
        with static(store, work) as url:
            ways = Ways(options.program, store, work, url)
            print(f"| array | {' | '.join(ways.of(options.arrays[0]))} |")
            for kind in options.arrays:
                measure = ways.of(kind)
                times = {name: [] for name in measure}
                for _ in range(options.rounds):
                    # What ran before may still cost something.
                    for name, way in random.sample(list(measure.items()), len(measure)):
                        times[name].append(way())
                cells = []
                for name, taken in times.items():
                    speed = ways.len / 1e9 / statistics.median(taken)
                    base = times[name.partition(":")[0] + ": mount"] if ":" in name else times["chunks: mount"]
                    ratio = statistics.median(one / other for one, other in zip(base, taken))
                    cells.append(f"{speed:.2f} ({ratio:.2f})")
                print(f"| {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
