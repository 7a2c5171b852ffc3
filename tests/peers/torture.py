"""A store under torture: its mount comes and goes, others write to it, and it is read by foreign programs."""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import tensorstore as ts
import zarr
from zarr.codecs import GzipCodec

from mounts import PATIENCE, Mount, detach, files, is_alive, wait_until
from records import CHUNKS, GONE, GRID, SIZE, Journal, record, version_of

LONG = bool(os.environ.get("ZARRFS_LONG"))


def count(name, few, many):
    """How often something is tried: as the environment says, or many times in long tests."""
    return int(os.environ.get(name) or (many if LONG else few))


# Every choice comes from it; a failure prints it.
SEED = int(os.environ.get("ZARRFS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
WRITER = str(Path(__file__).with_name("records.py"))

KINDS = ["v3", "v3-sharded", "v2", "d2020-10-sharded"]
# Its chunk files show encoded chunks, which the kernel writes into the store by itself if the mount trusts them.
ENCODED = "v3-encoded"


def is_sharded(kind):
    return kind.endswith("sharded")


def whole(versions=None):
    """The array of records, each the first version unless another one is given."""
    rows = [[np.frombuffer(record(f"{i}/{j}", (versions or {}).get(f"{i}/{j}", 0)), "u1") for j in range(GRID[1])] for i in range(GRID[0])]
    return np.block([[part[None, :] for part in row] for row in rows])


def make(store, kind, zarr2):
    """A group with the array `x` of records, the group `here`, and the file `note`."""
    values = whole()
    if kind.startswith("v3"):
        options = dict(chunks=(1, SIZE), shards=(2, 2 * SIZE) if is_sharded(kind) else None)
        if kind == ENCODED:
            options["compressors"] = GzipCodec(level=1)
        group = zarr.create_group(store, zarr_format=3)
        group.create_array("x", shape=values.shape, dtype="u1", attributes={"version": 0}, **options)[...] = values
        group.create_group("here")
        (store / "note").write_bytes(record("note", 0, 9000))
    elif kind == "v2":
        group = zarr.create_group(store, zarr_format=2)
        group.create_array("x", shape=values.shape, chunks=(1, SIZE), dtype="u1", attributes={"version": 0})[...] = values
    else:
        shards = {"chunks_per_shard": (2, 2)} if is_sharded(kind) else {}
        compressor = {"id": "gzip", "level": 1}
        zarr2.create(store, "x", values, chunks=(1, SIZE), fill_value=0, compressor=compressor, **shards)


def stored(store, kind, zarr2, by_ts=False):
    """The array `x` as a library reads it from the store."""
    if kind.startswith("d2020"):
        return zarr2.read(store)["x"]
    if by_ts:
        driver = "zarr3" if kind.startswith("v3") else "zarr"
        spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{store}/x/"}}
        return np.asarray(ts.open(spec, open=True).result().read().result())
    return zarr.open_array(store / "x", mode="r", zarr_format=3 if kind.startswith("v3") else 2)[...]


def found_in(array):
    """Which version each chunk of records is: GONE where it is not stored, none where it is no whole record."""
    found = {}
    for thing in CHUNKS:
        i, j = map(int, thing.split("/"))
        data = array[i, j * SIZE : (j + 1) * SIZE].tobytes()
        found[thing] = version_of(thing, data) if any(data) else GONE
    return found


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr or done.stdout}"
    return done.stdout


def shell(script, directory):
    return run("sh", "-ec", script, cwd=directory)


class Bench:
    """A store, its mount, and the journals of those who write to it."""

    def __init__(self, directory, kind, zarr2, store=None):
        self.directory, self.kind, self.zarr2 = directory, kind, zarr2
        self.store = store or directory / "store"
        if not self.store.exists():
            make(self.store, kind, zarr2)
        self.first_keys = set(files(self.store))
        self.mounts, self.writers, self.killed, self.journals = [], [], [], []
        self.close_promises = True
        self.numbers = itertools.count()

    def mount(self, *options, name="mnt", store=None):
        """Mounts, perhaps where another mount has died."""
        # An inner chunk waits for others of its shard, unless the mount was told not to; others where it was told to.
        waits = "--writeback=sync" not in options if is_sharded(self.kind) else "--writeback=all" in options
        self.close_promises = not waits
        m = Mount(store or self.store, self.directory / name, *options)
        self.mounts.append(m)
        if self.kind == ENCODED:
            os.setxattr(m / "x", "user.zarr.shown", b"stored")
        return m

    def kill(self, m):
        """Ends the daemon as the kernel does when memory runs out."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(m.pid, signal.SIGKILL)
        self.died(m)

    def died(self, m):
        """The daemon was killed: its mount is dead, and nothing more is asked of it."""
        assert wait_until(lambda: not is_alive(m.pid)), "the daemon does not die"
        self.mounts.remove(m)
        self.killed.append(m)
        m.log_file.unlink(missing_ok=True)

    def end(self, m):
        self.mounts.remove(m)
        try:
            m.end()
        except BaseException:
            self.killed.append(m)
            raise

    def write(self, m, seed, journal="journal", **wanted):
        """Starts a writer that changes things until it is told to end, or fails."""
        path = self.directory / journal
        if path not in self.journals:
            self.journals.append(path)
        arguments = [str(m.path), str(path), json.dumps({"seed": seed, "encoded": self.kind == ENCODED, **wanted})]
        process = subprocess.Popen(
            [sys.executable, "-S", WRITER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.writers.append(process)
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        return process

    def wait(self, process):
        """How a writer ended: nothing if it did all that it should, else the name of the errno and what it said."""
        try:
            said, errors = process.communicate(timeout=PATIENCE + 60)
        except subprocess.TimeoutExpired:
            raise AssertionError("a writer hangs") from None
        self.writers.remove(process)
        # A mapping of a file that cannot be read any more ends in SIGBUS.
        assert process.returncode in (0, 3, -signal.SIGBUS), f"exit code {process.returncode}: {errors}"
        return said.strip() or ("SIGBUS" if process.returncode < 0 else "")

    def journal(self):
        return Journal(*self.journals)

    def check(self, what, journal=None, found=None, store=None, by_ts=None):
        """Every chunk in the store is a whole record, one that was begun, and none before what was promised."""
        journal = journal or self.journal()
        if found is None:
            number = next(self.numbers)
            by_ts = number % 2 == 1 if by_ts is None else by_ts
            found = found_in(stored(store or self.store, self.kind, self.zarr2, by_ts))
        wrong = [journal.wrong(thing, version, self.close_promises) for thing, version in found.items()]
        wrong = [line for line in wrong if line]
        assert not wrong, f"{what} (ZARRFS_SEED={SEED}):\n" + "\n".join(wrong)
        return found

    def check_keys(self, what, more=()):
        """There is no key in the store that was not there at first, or has one of these names."""
        new = {key for key in set(files(self.store)) - self.first_keys if os.path.basename(key) not in more}
        assert not new, f"{what} (ZARRFS_SEED={SEED}): left in the store: {sorted(new)}"

    def close(self):
        """Ends whatever still runs."""
        for process in self.writers:
            process.kill()
        for m in self.mounts + self.killed:
            while m.is_mounted():
                detach(m.path)
        for m in self.mounts:
            with contextlib.suppress(ProcessLookupError):
                os.kill(m.pid, signal.SIGKILL)
        for process in self.writers:
            process.communicate()


@contextlib.contextmanager
def traced(m, out, calls, inject, paths=()):
    """The daemon with something injected into its system calls, by strace. `when` counts in each of its threads."""
    calls = "/^(" + "|".join(calls.split()) + ")$"
    command = ["strace", "-f", "-qq", "-p", str(m.pid), "-o", str(out), "-e", f"trace={calls}", "-e", f"inject={calls}:{inject}"]
    for path in paths:
        command += ["-P", str(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert wait_until(lambda: process.poll() is not None or is_traced(m.pid)), "strace does not attach"
        # A daemon that was killed at once takes strace with it.
        assert process.poll() is None or not is_alive(m.pid), process.stderr.read()
        yield lambda: "INJECTED" in Path(out).read_text() or "killed by SIGKILL" in Path(out).read_text()
    finally:
        # A signal that comes while strace is at something else may be forgotten, and it may wait for the dead for ever.
        for _ in range(PATIENCE * 10):
            process.send_signal(signal.SIGINT if is_alive(m.pid) else signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.1)
                break
        process.stderr.close()


def is_traced(pid):
    """Whether every thread of the process is traced."""
    try:
        statuses = [Path(at, "status").read_text() for at in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    return all("\nTracerPid:\t0\n" not in status for status in statuses)
