#!/usr/bin/env python3
"""Compares a mount with the libraries that read Zarr, or with another build of zarrfs, on the same arrays.

    scripts/bench.sh [--mib N] [--rounds N] [--only CASE,...] [--arrays NAME,...] [--against PROGRAM]

scripts/bench.sh builds the programs and calls this. Each round measures all programs one after the other. Machines are
shared and noisy: trust the ratios, which are medians over the pairs of a round, not the absolute figures. The bytes are
compared before anything is timed. A GB is 1e9 decoded bytes, and the page cache holds the stored files.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ARRAYS = ("none", "gzip", "zstd", "blosc", "shard-gzip", "shard-zstd")
LIBRARIES = ("zarr-python", "zarr-python+zarrs", "tensorstore", "zarrs")
CASES = {
    "read": "`cat` of a whole array (view `raw`), GB/s",
    "second": "`cat` of a whole array again, GB/s, and of the same bytes in a native file",
    "direct": "a whole array with `-o direct_io`, 1 MiB reads, GB/s",
    "chunks": "every chunk file in order, one reader, GB/s",
    "stored": "every chunk file of an array that is stored as it is, GB/s, and of the store's own files",
    "random": "one random cold chunk, ms, median",
    "pread": "1 MiB somewhere in the view, which 8 chunks have parts of, cold, ms, median",
    "cached": "reads of 4 KiB, 64 KiB and 1 MiB in turn from cached chunks through a view, with `-o direct_io`, reads/s",
    "write": "a whole array written, `cp` onto the view, GB/s",
    "write-chunks": "every chunk file written in order, GB/s",
    "write-behind": "every chunk file written in order, with `--writeback=all`, GB/s",
    "rewrite": "one inner chunk of a shard of 64 MiB, ms, median",
    "edit": "4 bytes of a random cold chunk changed through its file, ms, median",
    "memory": "the most memory of a sweep, MiB",
    "cpu": "processor time of the daemon for `cat` of a whole array, s/GB",
    "listing": "`find -size` over 100,000 chunk files, cold, entries/s",
}
TIMES = ("random", "pread", "rewrite", "edit", "memory", "cpu")  # Smaller is better.

LIBRARY = """
import json, random, sys, time, numpy as np
kind, what, path, *rest = sys.argv[1:]
document = json.load(open(path + '/zarr.json'))
shape, dtype = document['shape'], np.dtype(document['data_type'])
codec = document['codecs'][0]
chunk = (codec if codec['name'] == 'sharding_indexed' else document['chunk_grid'])['configuration']['chunk_shape']
if kind.startswith('zarr-python'):
    import zarr
    if kind.endswith('zarrs'):
        import zarrs
        zarr.config.set({'codec_pipeline.path': 'zarrs.ZarrsCodecPipeline'})
    opened = lambda: zarr.open_array(path, mode='r+')
    get = lambda array, where: array[where]
    put = lambda array, where, values: array.__setitem__(where, values)
else:
    import tensorstore as ts
    opened = lambda: ts.open({'driver': 'zarr3', 'kvstore': {'driver': 'file', 'path': path}}, open=True).result()
    get = lambda array, where: array[where].read().result()
    put = lambda array, where, values: array[where].write(values).result()
dice = random.Random(7)
def somewhere():
    starts = [dice.randrange(n // c) * c for n, c in zip(shape, chunk)]
    return tuple(slice(at, at + c) for at, c in zip(starts, chunk))
def rows():
    # What 1 MiB of the elements in C order is.
    at, row = dice.randrange(shape[0]), dice.randrange(shape[1] // 256) * 256
    return (slice(at, at + 1), slice(row, row + 256), slice(None))
if what == 'write':
    values = np.fromfile(rest[0], dtype).reshape(shape)
array = opened() if what in ('chunk', 'rewrite', 'pread') else None
for _ in range(50 if what == 'chunk' else 20 if what in ('rewrite', 'pread') else 1):
    where = somewhere() if what in ('chunk', 'rewrite') else rows() if what == 'pread' else (slice(None),) * len(shape)
    if what == 'rewrite':
        values = np.random.default_rng(1).normal(size=chunk).astype(dtype)
    start = time.perf_counter()
    array = array or opened()
    if what in ('write', 'rewrite'):
        put(array, where, values)
    else:
        got = get(array, where)
    print(time.perf_counter() - start)
"""


def field(mib):
    """A smooth field with noise, and 13 bits of mantissa, as archives of the climate round it."""
    shape = (max(16, mib // 3 // 16 * 16), 768, 1024)
    dice = np.random.default_rng(1)
    y, x = (np.linspace(0, 1, n, dtype="f4") for n in shape[1:])
    values = np.empty(shape, "f4")
    for number in range(shape[0]):
        z = np.float32(number / shape[0])
        plane = 280 + 20 * np.sin(3 * np.pi * y[:, None] + 2 * z) * np.cos(4 * np.pi * x[None, :] - 3 * z)
        plane += 5 * np.sin(17 * y[:, None] * x[None, :] + 9 * z)
        values[number] = plane + dice.standard_normal(plane.shape, dtype="f4") * np.float32(0.02)
    bits = values.view("u4")
    bits += (1 << 9) - 1 + (bits >> 10 & 1)
    bits &= 0xFFFFFC00
    return values


class Bench:
    def __init__(self, options, work):
        self.options, self.work, self.zarrfs = options, work, options.zarrfs
        self.store, self.raw = f"{work}/bench.zarr", f"{work}/field.raw"

    def make(self):
        import zarr
        from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

        values = field(self.options.mib)
        self.size = values.nbytes / 1e9
        group = zarr.open_group(self.store, mode="a")
        missing = [name for name in self.options.arrays if name not in group]
        compressors = {"gzip": GzipCodec(level=5), "zstd": ZstdCodec(level=3), "none": None}
        compressors["blosc"] = BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4)
        for name in missing:
            layout = {"chunks": (16, 128, 256)}
            if name.startswith("shard"):
                layout = {"chunks": (8, 128, 256), "shards": (min(64, values.shape[0]), 256, 1024)}
            compressor = compressors[name.removeprefix("shard-")]
            group.create_array(name, data=values, compressors=compressor, fill_value=0, **layout)
        values.tofile(self.raw)

    def mount(self, *arguments, store=None):
        return Mount(self.zarrfs, store or self.store, f"{self.work}/mnt", arguments)

    def check(self):
        """The bytes of each array, through its view and its chunk files."""
        with self.mount() as at:
            for name in self.options.arrays:
                subprocess.run(["cmp", f"{at}/{name}.raw", self.raw], check=True)
                total = sum(os.path.getsize(path) for path in chunk_files(at, name))
                assert total == os.path.getsize(self.raw), name

    # Each of these gives a figure of one run; `gigabytes` says which are better when they are larger.

    def cat(self, name, *mount):
        with self.mount(*mount) as at:
            return self.size / timed(["cat", f"{at}/{name}.raw"])

    def second(self, name):
        with self.mount() as at:
            timed(["cat", f"{at}/{name}.raw"])
            return self.size / timed(["cat", f"{at}/{name}.raw"])

    def native(self, _name):
        return self.size / timed(["cat", self.raw])

    def direct(self, name):
        with self.mount("-o", "direct_io") as at:
            return self.size / timed(["dd", f"if={at}/{name}.raw", "of=/dev/null", "bs=1M", "status=none"])

    def chunks(self, name):
        with self.mount() as at:
            files = chunk_files(at, name)
            return self.size / timed(["cat", *files])

    def stored(self, name):
        return self.size / timed(["cat", *chunk_files(self.store, name)])

    def trivial(self, _name):
        at = f"{self.work}/trivial"
        os.makedirs(at, exist_ok=True)
        served = subprocess.Popen([f"{self.options.peers}/trivial-fuse", self.raw, at])
        try:
            while not os.path.exists(f"{at}/file"):
                time.sleep(0.05)
            return self.size / timed(["cat", f"{at}/file"])
        finally:
            subprocess.run(["umount", at], check=True)
            served.wait()

    def random(self, name):
        with self.mount() as at:
            files = chunk_files(at, name)
            times = []
            for path in random.Random(7).sample(files, min(50, len(files))):
                start = time.perf_counter()
                with open(path, "rb", buffering=0) as file:
                    file.readall()
                times.append(time.perf_counter() - start)
            return statistics.median(times) * 1000

    def pread(self, name):
        length, dice, times = os.path.getsize(self.raw), random.Random(7), []
        with self.mount() as at:
            with open(f"{at}/{name}.raw", "rb", buffering=0) as file:
                # So far apart that what one reads the next cannot find.
                for number in dice.sample(range(length >> 24), min(20, length >> 24)):
                    start = time.perf_counter()
                    os.pread(file.fileno(), 1 << 20, number << 24)
                    times.append(time.perf_counter() - start)
        return statistics.median(times) * 1000

    def cached(self, name):
        with self.mount("-o", "direct_io", "--cache-size=4G") as at:
            with open(f"{at}/{name}.raw", "rb", buffering=0) as file:
                length, dice = 64 << 20, random.Random(7)
                for at in range(0, length, 1 << 20):
                    os.pread(file.fileno(), 1 << 20, at)
                places = [(size, dice.randrange(length - size)) for size in (4 << 10, 64 << 10, 1 << 20) * 300]
                start = time.perf_counter()
                for size, place in places:
                    os.pread(file.fileno(), size, place)
                return len(places) / (time.perf_counter() - start)

    def empty(self, name):
        """A store with the array, and no chunk."""
        path = f"/dev/shm/zarrfs-bench-{os.getpid()}"
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(f"{path}/{name}")
        for document in ("zarr.json", f"{name}/zarr.json"):
            shutil.copy(f"{self.store}/{document}", f"{path}/{document}")
        return path

    def write(self, name):
        store = self.empty(name)
        try:
            with self.mount("--durability", "fsync", store=store) as at:
                # What a program has in memory, not in a file.
                start = time.perf_counter()
                subprocess.run(["cp", self.raw, f"{at}/{name}.raw"], check=True)
                return self.size / (time.perf_counter() - start)
        finally:
            shutil.rmtree(store)

    def write_chunks(self, name, *options):
        with self.mount() as at:
            files = {path.removeprefix(f"{at}/"): pathlib.Path(path).read_bytes() for path in chunk_files(at, name)}
        store = self.empty(name)
        try:
            with self.mount("--durability", "fsync", *options, store=store) as at:
                for directory in {os.path.dirname(path) for path in files}:
                    os.makedirs(f"{at}/{directory}", exist_ok=True)
                start = time.perf_counter()
                for path, data in files.items():
                    with open(f"{at}/{path}", "wb", buffering=0) as file:
                        rest = memoryview(data)
                        while rest:
                            rest = rest[file.write(rest) :]
                descriptor = os.open(at, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
                return self.size / (time.perf_counter() - start)
        finally:
            shutil.rmtree(store)

    def rewrite(self, name):
        store = self.copy(name)
        try:
            with self.mount("--writeback", "sync", "--durability", "fsync", store=store) as at:
                files, times = chunk_files(at, name), []
                dice = random.Random(7)
                for _ in range(20):
                    path = dice.choice(files)
                    data = np.random.default_rng(1).normal(size=os.path.getsize(path) // 4).astype("f4").tobytes()
                    start = time.perf_counter()
                    with open(path, "r+b", buffering=0) as file:
                        rest = memoryview(data)
                        while rest:
                            rest = rest[file.write(rest) :]
                    times.append(time.perf_counter() - start)
                return statistics.median(times) * 1000
        finally:
            shutil.rmtree(store)

    def edit(self, name):
        store = self.copy(name)
        try:
            with self.mount(store=store) as at:
                files, times = chunk_files(at, name), []
                for path in random.Random(7).sample(files, min(50, len(files))):
                    start = time.perf_counter()
                    with open(path, "r+b", buffering=0) as file:
                        file.write(b"\1\2\3\4")
                    times.append(time.perf_counter() - start)
                return statistics.median(times) * 1000
        finally:
            shutil.rmtree(store)

    def copy(self, name):
        path = self.empty(name)
        shutil.rmtree(f"{path}/{name}")
        shutil.copytree(f"{self.store}/{name}", f"{path}/{name}")
        return path

    def memory(self, name):
        with self.mount() as at:
            timed(["cat", f"{at}/{name}.raw"])
            status = (server_of(at) / "status").read_text()
            return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def cpu(self, name):
        def used(at):
            fields = (server_of(at) / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        with self.mount() as at:
            before = used(at)
            timed(["cat", f"{at}/{name}.raw"])
            return (used(at) - before) / self.size

    def listing(self, _name):
        store = f"{self.work}/many.zarr"
        if not os.path.exists(store):
            import zarr

            zarr.create_array(store, shape=(100, 1000), chunks=(1, 1), dtype="u1", compressors=None, fill_value=9)
            for row in range(100):
                os.makedirs(f"{store}/c/{row}")
                for number in range(1000):
                    pathlib.Path(f"{store}/c/{row}/{number}").write_bytes(b"\1")
        with self.mount(store=store) as at:
            command = ["find", f"{at}/c", "-type", "f", "-size", "-2"]
            return 100_000 / timed(command)

    def library(self, kind, what, name):
        path = f"{self.store}/{name}"
        copied = self.empty(name) if what == "write" else self.copy(name) if what == "rewrite" else None
        if copied:
            path = f"{copied}/{name}"
        try:
            if kind == "zarrs":
                command = [f"{self.options.peers}/zarrs-peer", what, path]
            else:
                command = [sys.executable, "-c", LIBRARY, kind, what, path]
            if what == "write":
                command.append(self.raw)
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        finally:
            if copied:
                shutil.rmtree(copied)
        seconds = statistics.median(float(line) for line in done.stdout.split())
        return seconds * 1000 if what in ("chunk", "rewrite", "pread") else self.size / seconds

    def row(self, case, name):
        """What is measured in turns: the mount first."""
        def peers(what, kinds=LIBRARIES):
            return {kind: lambda kind=kind: self.library(kind, what, name) for kind in kinds}

        if case == "read":
            row = {"zarrfs": lambda: self.cat(name), **peers("read")}
            return row | ({"trivial FUSE": lambda: self.trivial(name)} if name in ("none", "blosc") else {})
        if case == "direct":
            return {"zarrfs": lambda: self.direct(name), **peers("read")}
        if case == "chunks":
            return {"zarrfs": lambda: self.chunks(name), **peers("read")}
        if case == "second":
            return {"zarrfs": lambda: self.second(name), "native": lambda: self.native(name)}
        if case == "random":
            return {"zarrfs": lambda: self.random(name), **peers("chunk")}
        if case == "stored":
            return {"zarrfs": lambda: self.chunks(name), "native": lambda: self.stored(name)}
        if case == "pread":
            return {"zarrfs": lambda: self.pread(name), **peers("pread", LIBRARIES[:3])}
        if case == "write":
            return {"zarrfs": lambda: self.write(name), **peers("write")}
        if case == "write-chunks":
            return {"zarrfs": lambda: self.write_chunks(name), **peers("write")}
        if case == "write-behind":
            return {"zarrfs": lambda: self.write_chunks(name, "--writeback=all"), **peers("write")}
        if case == "rewrite":
            return {"zarrfs": lambda: self.rewrite(name), **peers("rewrite", ("zarr-python", "tensorstore"))}
        return {"zarrfs": lambda: getattr(self, case)(name)}

    def with_build(self, program, measure):
        """Measures with another build of zarrfs."""
        self.zarrfs = program
        try:
            return measure()
        finally:
            self.zarrfs = self.options.zarrfs

    def columns(self, case, name):
        """What is measured in turns: against the libraries, or against another build."""
        row = self.row(case, name)
        if not self.options.against:
            return row
        return {
            "zarrfs": row["zarrfs"],
            "other build": lambda: self.with_build(self.options.against, row["zarrfs"]),
        }

    def run(self):
        for case in self.options.only:
            print(f"\n{CASES[case]}\n", flush=True)
            names = self.options.arrays
            if case == "listing":
                names = names[:1]
            if case == "stored":
                names = [name for name in names if name == "none"]
            if case == "rewrite":
                names = [name for name in names if name.startswith("shard")]
            kinds = list(dict.fromkeys(kind for name in names for kind in self.columns(case, name)))
            print("| array | " + " | ".join(kinds) + " | ratio |\n" + "|---" * (len(kinds) + 2) + "|")
            for name in names:
                row = self.columns(case, name)
                figures = {kind: [] for kind in row}
                for _ in range(self.options.rounds):
                    for kind, measure in row.items():
                        figures[kind].append(measure())
                medians = {kind: statistics.median(all) for kind, all in figures.items()}
                shown = {kind: f"{value:.{0 if value > 1000 else 2}f}" for kind, value in medians.items()}
                cells = [shown.get(kind, "") for kind in kinds]
                others = {kind: value for kind, value in medians.items() if kind not in ("zarrfs", "trivial FUSE")}
                ratio = ""
                if others:
                    is_time = case in TIMES
                    best = (min if is_time else max)(others, key=others.get)
                    pairs = [mine / theirs for mine, theirs in zip(figures["zarrfs"], figures[best])]
                    ratio = f"{statistics.median(pairs):.2f} of {best}"
                print(f"| {name} | " + " | ".join(cells) + f" | {ratio} |", flush=True)


class Mount:
    def __init__(self, zarrfs, store, at, arguments):
        self.zarrfs, self.at = zarrfs, at
        os.makedirs(at, exist_ok=True)
        subprocess.run([zarrfs, "mount", *arguments, store, at], check=True)

    def __enter__(self):
        return self.at

    def __exit__(self, *_):
        subprocess.run([self.zarrfs, "umount", self.at], check=True)


def timed(command):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def chunk_files(at, name):
    """Every chunk file, in the order of the grid."""
    found = [str(path) for path in pathlib.Path(f"{at}/{name}/c").rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: [int(part) for part in path.split("/c/")[1].split("/")])


def server_of(at):
    """The program that serves a mount, in /proc."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if at in (process / "cmdline").read_text().split("\0"):
                return process
        except OSError:
            continue
    raise SystemExit(f"nobody serves {at}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zarrfs", required=True, help="the program, built with --release")
    parser.add_argument("--peers", default=".", help="where zarrs-peer and trivial-fuse are")
    help = "another build of zarrfs, to compare with instead of the libraries"
    parser.add_argument("--against", metavar="PROGRAM", type=os.path.abspath, help=help)
    parser.add_argument("--mib", type=int, default=384, help="of the array [384]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(CASES), type=lambda text: text.split(","))
    parser.add_argument("--arrays", default=",".join(ARRAYS), type=lambda text: text.split(","))
    parser.add_argument("--dir", help="where the arrays go, and stay for a run of the same --mib [a temporary directory]")
    options = parser.parse_args()
    options.zarrfs, options.peers = os.path.abspath(options.zarrfs), os.path.abspath(options.peers)
    work = options.dir or tempfile.mkdtemp(prefix="zarrfs-bench.")
    try:
        bench = Bench(options, work)
        os.makedirs(work, exist_ok=True)
        bench.make()
        bench.check()
        print(f"{bench.size:.2f} GB decoded, {options.rounds} rounds in turns, {os.cpu_count()} processors")
        bench.run()
    finally:
        if not options.dir:
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
