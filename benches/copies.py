#!/usr/bin/env python3
"""What copying a compressed tree into a mount costs: a mount and a plain directory, in turns, in one run.

    benches/copies.py ZARRFS [--against ZARRFS] [--shape N,N] [--chunks N,N] [--rounds N] [--dir DIR] [--from DIR]
                      [-- MOUNT OPTIONS]

ZARRFS is the program, built with --release. Run it with a Python that has numpy and zarr 3 (scripts/test.sh keeps
one). The tree is one array of float32 (zstd). `cp -r` copies it within the file system of DIR, where the kernel copies
by itself into a plain directory, and from that of `--from`, where `cp` has to read and write. Machines are noisy:
believe the ratios, which are medians over the pairs.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import numpy as np
import zarr


def run(*command):
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)


class Copies:
    def __init__(self, work, there, shape, chunks):
        self.shape, self.chunks = shape, chunks
        steps = np.random.default_rng(1).standard_normal(shape).astype("f4")
        self.values = np.cumsum(steps, axis=0)
        self.source, self.other = f"{work}/source", f"{there}/source"
        self.zarr_python(self.source)
        shutil.copytree(self.source, self.other)
        self.archive = f"{there}/source.tar"
        # The metadata file comes first in one, and last in the other.
        run("tar", "-C", self.source, "-cf", self.archive, "x/zarr.json", "x/c")
        self.chunks_first = f"{there}/chunks-first.tar"
        run("tar", "-C", self.source, "-cf", self.chunks_first, "x/c", "x/zarr.json")

    def zarr_python(self, to):
        zarr.create_array(f"{to}/x", data=self.values, chunks=self.chunks)

    def ways(self):
        return {
            "cp -r, one file system": lambda to: run("cp", "-r", f"{self.source}/x", to),
            "cp -r, from another": lambda to: run("cp", "-r", f"{self.other}/x", to),
            "rsync -a": lambda to: run("rsync", "-a", f"{self.other}/x", to),
            "tar x": lambda to: run("tar", "-C", to, "-xf", self.archive),
            "tar x, chunks first": lambda to: run("tar", "-C", to, "-xf", self.chunks_first),
            "zarr-python": self.zarr_python,
        }


def timed(copy, to):
    os.sync()
    start = time.perf_counter()
    copy(to)
    return (time.perf_counter() - start) * 1000


def plain(copy, work):
    to = f"{work}/plain"
    os.mkdir(to)
    taken = timed(copy, to)
    shutil.rmtree(to)
    return taken


def mounted(copy, copies, zarrfs, work, options):
    store, mountpoint = f"{work}/store", f"{work}/mnt"
    run(zarrfs, "mount", store, mountpoint, "--create", *options)
    try:
        taken = timed(copy, mountpoint)
    finally:
        run(zarrfs, "umount", mountpoint)
    run("diff", "-r", f"{copies.source}/x", f"{store}/x")
    shutil.rmtree(store)
    return taken


def numbers(text):
    return tuple(map(int, text.split(",")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zarrfs")
    parser.add_argument("--against")
    parser.add_argument("--shape", type=numbers, default=(8192, 8192))
    parser.add_argument("--chunks", type=numbers, default=(512, 1024))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir")
    parser.add_argument("--from", dest="there", default="/dev/shm")
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    options = args.options or ["--trust-encoded", "--durability=fsync"]
    work = tempfile.mkdtemp(prefix="zarrfs-bench.", dir=args.dir)
    there = tempfile.mkdtemp(prefix="zarrfs-bench.", dir=args.there)
    try:
        os.mkdir(f"{work}/mnt")
        copies = Copies(work, there, args.shape, args.chunks)
        programs = [args.zarrfs] + ([args.against] if args.against else [])
        print(f"{' '.join(options)}; ms, medians of {args.rounds}: plain directory, then mount and ratio")
        for way, copy in copies.ways().items():
            taken = {program: [] for program in [None, *programs]}
            for _ in range(args.rounds):
                taken[None].append(plain(copy, work))
                for program in programs:
                    taken[program].append(mounted(copy, copies, program, work, options))
            line = f"| {way} | {statistics.median(taken[None]):.0f} |"
            for program in programs:
                ratio = statistics.median(here / there for here, there in zip(taken[program], taken[None]))
                line += f" {statistics.median(taken[program]):.0f} | {ratio:.2f} |"
            print(line, flush=True)
    finally:
        shutil.rmtree(work)
        shutil.rmtree(there)


if __name__ == "__main__":
    main()
