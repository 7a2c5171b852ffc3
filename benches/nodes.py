#!/usr/bin/env python3
"""What making, copying, moving and removing nodes costs: a mount and a plain directory, in turns, in one run.

    benches/nodes.py ZARRFS [--arrays N,N,...] [--rounds N] [--dir DIR] [-- MOUNT OPTIONS]

ZARRFS is the program, built with --release. Run it with a Python that has numpy and zarr 3 (scripts/test.sh keeps
one). Each array has two chunks of 200 bytes. Machines are noisy: believe the ratios, and how the times
of one row grow with the number of arrays.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import zarr


def make(root, count):
    group = zarr.open_group(root, mode="w")
    for number in range(count):
        array = group.create_array(f"a{number}", shape=(100,), chunks=(50,), dtype="f4", compressors=None)
        array[:] = number


def run(*command):
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)


def timed(times, what, request, *args):
    start = time.perf_counter()
    request(*args)
    times.setdefault(what, []).append(time.perf_counter() - start)


def walk(times, root, plain, count):
    """Everything once, below `root`."""
    timed(times, "zarr-python makes them", make, f"{root}/made", count)
    timed(times, "cp -r", run, "cp", "-r", plain, f"{root}/copy")
    timed(times, "find", run, "find", f"{root}/copy")
    timed(times, "mv", run, "mv", f"{root}/copy", f"{root}/moved")
    timed(times, "rm -r", run, "rm", "-r", f"{root}/moved")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zarrfs")
    parser.add_argument("--arrays", default="100,1000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir")
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    work = tempfile.mkdtemp(prefix="zarrfs-bench.", dir=args.dir)
    mountpoint = f"{work}/mnt"
    try:
        os.mkdir(mountpoint)
        for count in map(int, args.arrays.split(",")):
            plain = f"{work}/plain{count}"
            make(plain, count)
            mounted, direct = {}, {}
            for number in range(args.rounds):
                store = f"{work}/store"
                run(args.zarrfs, "mount", store, mountpoint, "--create", *args.options)
                try:
                    walk(mounted, mountpoint, plain, count)
                finally:
                    timed(mounted, "umount", run, args.zarrfs, "umount", mountpoint)
                shutil.rmtree(store)
                directory = f"{work}/directory"
                os.mkdir(directory)
                walk(direct, directory, plain, count)
                shutil.rmtree(directory)
            print(f"\n{count} arrays; ms, median of {args.rounds}: mount, plain directory, ratio")
            for what, times in mounted.items():
                here = statistics.median(times) * 1000
                there = statistics.median(direct.get(what, [0.0])) * 1000
                ratio = f"{here / there:8.1f}" if there else ""
                print(f"{what:24} {here:10.1f} {there:10.1f} {ratio}", flush=True)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
