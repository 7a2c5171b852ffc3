#!/usr/bin/env python3
"""How many bytes are written to the store for each decoded byte: a mount, zarr-python (alone and with zarrs) and
TensorStore, each writing inner chunks of a sharded array one after another.

    benches/amplification.py ZARRFS [--shard-chunks N] [--chunk-kib N] [--shards N] [--dir DIR] [-- MOUNT OPTIONS]

ZARRFS is the program, built with --release. Run it with a Python that has numpy, zarr 3 and tensorstore, and zarrs for
its column. Counted are the bytes that the writing process has given to write() and copy_file_range()
(`wchar` of /proc/PID/io); of the mount those of its daemon. Nothing is compressed, so that 1.0 is the least that can be.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

PATTERNS = {
    "in order": "every inner chunk, shard by shard",
    "random order": "every inner chunk, over all shards",
    "one per shard": "one inner chunk of each shard that is full already",
    "8 of one shard": "eight inner chunks of one full shard, one after another",
}


def written(pid):
    """Bytes that a process has written."""
    with open(f"/proc/{pid}/io") as file:
        return int(dict(line.split(": ") for line in file)["wchar"])


def order(pattern, shards, shard_chunks):
    """The inner chunks that are written, in their order."""
    everything = list(range(shards * shard_chunks))
    if pattern == "random order":
        random.Random(1).shuffle(everything)
    if pattern == "one per shard":
        return [shard * shard_chunks + shard % shard_chunks for shard in range(shards)]
    if pattern == "8 of one shard":
        return list(range(0, shard_chunks, max(shard_chunks // 8, 1)))[:8]
    return everything


def full(pattern):
    return pattern in ("one per shard", "8 of one shard")


def through_mount(zarrfs, options, store, chunks, chunk, mountpoint):
    subprocess.run([zarrfs, "mount", store, mountpoint, *options], check=True)
    try:
        with open(f"{mountpoint}/.zarrfs/stats") as stats:
            pid = next(line.split()[1] for line in stats if line.startswith("zarrfs_process_id "))
        before = written(pid)
        os.makedirs(f"{mountpoint}/c", exist_ok=True)
        start = time.perf_counter()
        for number in chunks:
            with open(f"{mountpoint}/c/{number}", "wb") as file:
                file.write(chunk)
        root = os.open(mountpoint, os.O_RDONLY)
        os.fsync(root)
        os.close(root)
        return written(pid) - before, time.perf_counter() - start
    finally:
        subprocess.run([zarrfs, "umount", mountpoint], check=True)


def library(name, store, chunks, chunk_len):
    """In a process of its own: writes inner chunks through a library, and prints what that came to."""
    import numpy as np

    data = np.frombuffer(os.urandom(chunk_len), "u1")
    if name == "TensorStore":
        import tensorstore as ts

        array = ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": store}}, open=True).result()
        write = lambda at: array[at : at + chunk_len].write(data).result()
    else:
        import zarr

        if name == "zarrs":
            zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
        array = zarr.open_array(store, mode="r+")

        def write(at):
            array[at : at + chunk_len] = data

    before, start = written("self"), time.perf_counter()
    for number in chunks:
        write(number * chunk_len)
    print(json.dumps([written("self") - before, time.perf_counter() - start]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zarrfs")
    parser.add_argument("--shard-chunks", type=int, default=64)
    parser.add_argument("--chunk-kib", type=int, default=64)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--dir")
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    import zarr

    chunk_len = args.chunk_kib * 1024
    shard_len = chunk_len * args.shard_chunks
    work = tempfile.mkdtemp(prefix="zarrfs-bench.", dir=args.dir)
    mountpoint = f"{work}/mnt"
    os.mkdir(mountpoint)
    writers = ["zarrfs", "zarrfs, --writeback=sync", "zarr-python", "TensorStore", "zarrs"]
    print(f"{args.shards} shards of {args.shard_chunks} chunks of {args.chunk_kib} KiB; bytes written per byte (seconds)\n")
    print("| pattern |", " | ".join(writers), "|\n|", " | ".join(["---"] * (len(writers) + 1)), "|")
    try:
        for pattern in PATTERNS:
            chunks = order(pattern, args.shards, args.shard_chunks)
            row = []
            for writer in writers:
                store = f"{work}/array.zarr"
                shutil.rmtree(store, ignore_errors=True)
                array = zarr.create_array(
                    store, shape=(args.shards * shard_len,), chunks=(chunk_len,), shards=(shard_len,), dtype="u1",
                    compressors=None, fill_value=0,
                )
                if full(pattern):
                    array[:] = 1
                if writer.startswith("zarrfs"):
                    options = args.options + (["--writeback=sync"] if "sync" in writer else [])
                    chunk = os.urandom(chunk_len)
                    count, seconds = through_mount(args.zarrfs, options, store, chunks, chunk, mountpoint)
                else:
                    command = [sys.executable, __file__, "--library", writer, store, str(chunk_len), json.dumps(chunks)]
                    done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode != 0:
                        row.append(done.stderr.strip().splitlines()[-1][:40])
                        continue
                    count, seconds = json.loads(done.stdout.splitlines()[-1])
                row.append(f"{count / (len(chunks) * chunk_len):.2f} ({seconds:.2f})")
            print(f"| {pattern} |", " | ".join(row), "|", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--library"]:
        library(sys.argv[2], sys.argv[3], json.loads(sys.argv[5]), int(sys.argv[4]))
    else:
        main()
