"""What `zarrfs check` costs: time, processors, memory, and how soon Ctrl-C ends it. Prints a table for docs/performance.md.

    benches/check.py --zarrfs PROGRAM [--gib 4] [--runs 3] [--directory DIR]

Run it with zarr-python and numpy; `scripts/bench.sh check` does. The page cache holds the stores, so the figures are of
the processors and not of the disk.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def make(path, count, chunk_len):
    """Makes an array of `count` zstd chunks of `chunk_len` bytes whose values compress to about a half."""
    import numpy as np
    import zarr
    from zarr.codecs import ZstdCodec

    items = chunk_len // 4
    array = zarr.create_array(path, shape=(count * items,), chunks=(items,), dtype="<i4", compressors=[ZstdCodec(level=1)])
    noise = np.random.default_rng(0).integers(0, 1 << 16, items, dtype="<i4")
    step = max(1, (64 << 20) // chunk_len)
    for begin in range(0, count, step):
        end = min(count, begin + step)
        array[begin * items : end * items] = np.concatenate([noise + number for number in range(begin, end)])


def run(*words):
    """The seconds, processors and MiB of memory that a command took."""
    begun = time.monotonic()
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begun
    assert status == 0, f"{words}: {status}"
    return seconds, (usage.ru_utime + usage.ru_stime) / seconds, usage.ru_maxrss / 1024


def store(path, count, chunk_len):
    """As `make`, in a process of its own: the memory of this one would count as that of its children."""
    subprocess.run([sys.executable, __file__, "--make", path, str(count), str(chunk_len)], check=True)


def interrupted(after, *words):
    """The seconds from a signal, `after` seconds from the start, to the end."""
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after)
    assert process.poll() is None, "it ended before the signal"
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(60)
    return time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zarrfs", required=True)
    parser.add_argument("--gib", type=int, default=4, help="size of the one shard, decoded")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", help="where the stores are made")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="zarrfs-check.", dir=args.directory))
    try:
        chunk_len = 4 << 20
        count = args.gib * (1 << 30) // chunk_len
        store(work / "few", 10_000, 16 << 10)
        store(work / "many", 100_000, 16 << 10)
        store(work / "chunks", count, chunk_len)
        shard = str(count * chunk_len // 4) + ","
        run(args.zarrfs, "convert", work / "chunks", work / "shard", "--shards", shard.rstrip(",").join("[]"))
        rows = [
            ("10,000 chunks of 16 KiB", "few"),
            ("100,000 chunks of 16 KiB", "many"),
            (f"{args.gib} GiB in {count:,} chunks", "chunks"),
            (f"{args.gib} GiB in one shard", "shard"),
        ]
        print("| `zarrfs check` | seconds | processors | MiB |\n| --- | ---: | ---: | ---: |")
        for what, name in rows:
            best = min(run(args.zarrfs, "check", work / name) for _ in range(args.runs))
            print(f"| {what} | {best[0]:.2f} | {best[1]:.2f} | {best[2]:.0f} |", flush=True)
        slowest = max(interrupted(best[0] / 3, args.zarrfs, "check", work / "shard") for _ in range(args.runs))
        print(f"| {args.gib} GiB in one shard: from Ctrl-C to the end | {slowest:.2f} | | |")
        best = min(run(args.zarrfs, "convert", work / "chunks", work / f"copy{n}", "--verify") for n in range(args.runs))
        print(f"| `zarrfs convert --verify` of {args.gib} GiB in {count:,} chunks | {best[0]:.2f} | {best[1]:.2f} | {best[2]:.0f} |")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
