"""Hours of mixed work on mounts: see scripts/soak.sh, which runs it as `soak.py HOURS`.

One mount lives all the time (*living*); programs write, rename and read in it, and once a minute they pause: then its
descriptors, threads and memory, and the keys in its store must be what they were. Beside it, hierarchies of several
kinds are mounted with options by chance, written to and read, and killed or unmounted within seconds (*dying*). After
each such round the values in the store must be whole, and none older than what was promised.
"""

import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

import mounts
import torture
from mounts import BIN, Mount, detach, is_alive, wait_until
from records import CHUNKS, GONE, GRID, HERE, MODES, SIZE, Journal, version_of
from soak_programs import STILL, STILL_CHUNK
from zarr2 import Zarr2

# A disk that others use as well may take its time when all of it is synced.
mounts.PATIENCE = PATIENCE = 300
PROGRAMS = str(Path(__file__).with_name("soak_programs.py"))
ALL_MODES = [*MODES, "view", "unlink"]
FILES = [f"file{number}" for number in range(6)]
OPTIONS = [
    [],
    ["--writeback=all"],
    ["--writeback=sync"],
    ["--threads", "1"],
    ["--cache-size", "1M"],
    ["-o", "nopassthrough"],
    ["--metadata-ttl", "1h"],
    ["--shard-write=append", "--shard-order", "arrival"],
    ["--writeback-delay", "100ms"],
]
# How much more of them the living mount may have at the end than it had at first.
MORE = {"descriptors": 8, "threads": 4, "memory": 0.05}
MEMORY_SLACK = 16 << 20
WARM_UP = 3

STILL_VALUES = (np.arange(STILL[0] * STILL[1], dtype="u8") * 2654435761 % 2**32).astype("<u4").reshape(STILL)


class Run:
    """What has happened so far, over all threads."""

    def __init__(self, hours):
        self.began = time.monotonic()
        self.ends = self.began + hours * 3600
        self.lock = threading.Lock()
        self.counts = dict.fromkeys(["rounds", "kills", "umounts", "signals", "changes", "reads", "read", "checked"], 0)
        self.faults = []
        self.seed = torture.SEED
        self.seeds = itertools.count(self.seed)

    def left(self):
        return self.ends - time.monotonic()

    def add(self, **counts):
        with self.lock:
            for name, count in counts.items():
                self.counts[name] += count

    def fault(self, sentence):
        with self.lock:
            self.faults.append(sentence)
        print(f"WRONG: {sentence}", flush=True)

    def dice(self):
        with self.lock:
            return random.Random(next(self.seeds))


class Programs:
    """Programs that work in one mount, and what they did."""

    def __init__(self, run, directory):
        self.run, self.directory, self.running = run, Path(directory), []

    def start(self, what, m, path, **wanted):
        command = [sys.executable, "-S", PROGRAMS, what, str(m.path), str(path), json.dumps(wanted)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.running.append(process)
        # `communicate` would not see what a buffer has read beyond this line.
        said = b""
        while not said.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
            said += byte
        assert said == b"ready\n", process.stderr.read()

    def wait(self, what="", killed=False):
        """All have ended: as they should, or because their mount was killed."""
        wrong = []
        for process in self.running:
            try:
                said, errors = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                wrong.append("a program hangs in the mount")
                continue
            if process.returncode == 0:
                self.run.add(**json.loads(said.splitlines()[-1]))
            elif not killed or process.returncode not in (3, -signal.SIGBUS):
                wrong.append(f"exit code {process.returncode}: {said}{errors}".strip())
        self.running = []
        assert not wrong, f"{what}: {'; '.join(wrong)}"

    def close(self):
        for process in self.running:
            process.kill()
            process.communicate()


def add_still(store, kind, zarr2):
    if kind.startswith("d2020"):
        zarr2.create(store, "still", STILL_VALUES, chunks=STILL_CHUNK, fill_value=0, compressor={"id": "gzip", "level": 1})
        return
    version = 3 if kind.startswith("v3") else 2
    zarr.open_group(store, mode="r+", zarr_format=version).create_array(
        "still", shape=STILL, chunks=STILL_CHUNK, dtype="u4"
    )[...] = STILL_VALUES


def is_temporary(key):
    """Whether a key in a store is neither of a node nor a file that the programs make."""
    name = os.path.basename(key)
    known = r"zarr\.json|\.zgroup|\.zarray|\.zattrs|\.zmetadata|root\.(array|group)\.json|[a-z0-9]+\.(array|group)\.json|file\d+|note|[\dc./]+"
    return not re.fullmatch(known, name)


def temporary(store):
    """What writers that live, or were killed, have in a store."""
    found = []
    for at, _, names in os.walk(store):
        for name in names:
            key = os.path.relpath(os.path.join(at, name), store)
            if is_temporary(key) and not name.startswith("writing-"):
                found.append(key)
    return sorted(found)


class Dying:
    """A hierarchy whose mounts come and go."""

    def __init__(self, run, directory, kind, zarr2, known):
        self.run, self.directory, self.kind, self.zarr2, self.known = run, Path(directory), kind, zarr2, known
        self.dice = run.dice()
        self.store, self.mnt = self.directory / "store", self.directory / "mnt"
        self.directory.mkdir()
        torture.make(self.store, kind, zarr2)
        add_still(self.store, kind, zarr2)
        # zarr-python 2 lets go of a file only at its next request.
        self.files = self.store / ("data/root/files" if kind.startswith("d2020") else "files")
        self.journals = [self.directory / f"journal{number}" for number in range(3)]
        self.things = [CHUNKS[::2], CHUNKS[1::2], FILES]
        self.settle({**dict.fromkeys(CHUNKS, 0), **dict.fromkeys(FILES, GONE)})
        self.programs = Programs(run, directory)
        self.mount = None

    def settle(self, found):
        """Begins the journals again: what was found is what must be there, or something later."""
        known = Journal(*self.journals)
        for path, things in zip(self.journals, self.things, strict=True):
            lines = []
            for thing in things:
                gone = found[thing] == GONE
                version = known.last(thing) + 1 if gone else found[thing]
                lines += [f"B {thing} {version} {GONE if gone else HERE}", f"F {thing} {version}"]
            path.write_text("".join(line + "\n" for line in lines))

    def round(self):
        options = self.dice.choice(OPTIONS)
        how = self.dice.choice(["kills", "kills", "umounts", "signals"])
        what = f"{self.kind} with {' '.join(options) or 'no options'}, {how}"
        m = self.mount = Mount(self.store, self.mnt, *options)
        m.allow("in use, so it is detached")
        (m / "files").mkdir(exist_ok=True)
        for name in ("files", "x/c"):
            self.remove_unfinished(m / name)
        seconds = self.dice.uniform(0.3, 5)
        for path, things in zip(self.journals, self.things, strict=True):
            # The kernel may send one write in two parts, and another program's fsync of a view stores the first.
            of_chunks = [mode for mode in ALL_MODES if mode != "view" or how != "kills"]
            modes = of_chunks if things is not FILES else ["rename", "rename", "unlink"]
            self.programs.start(
                "write", m, path, seed=self.dice.random(), array="x", things=things, modes=modes, seconds=seconds
            )
        self.programs.start("read", m, self.known, seed=self.dice.random(), seconds=seconds)
        if how == "umounts":
            self.programs.wait(what)
            m.end()
        else:
            time.sleep(self.dice.uniform(0, seconds))
            os.kill(m.pid, signal.SIGKILL if how == "kills" else signal.SIGTERM)
            self.programs.wait(what, killed=how == "kills")
            assert wait_until(lambda: not is_alive(m.pid), PATIENCE), f"{what}: the daemon does not end"
            if how != "kills":
                m.end()
        m.log_file.unlink(missing_ok=True)
        self.check(what, how, options)
        self.mount = None
        self.run.add(rounds=1, **{how: 1})

    def remove_unfinished(self, directory):
        """The writers' own: they would remove them themselves, had they not been killed."""
        for at, _, names in os.walk(directory):
            for name in names:
                if name.endswith(".new"):
                    os.unlink(os.path.join(at, name))

    def check(self, what, how, options):
        if how != "kills":
            # Everything is stored when the daemon has ended.
            promise = lambda thing: True
        elif torture.is_sharded(self.kind):
            promise = lambda thing: thing in CHUNKS and "--writeback=sync" in options
        else:
            promise = lambda thing: thing in CHUNKS and "--writeback=all" not in options
        journal = Journal(*self.journals)
        found = torture.found_in(torture.stored(self.store, self.kind, self.zarr2, by_ts=self.dice.random() < 0.5))
        for thing in FILES:
            path = self.files / thing
            found[thing] = version_of(thing, path.read_bytes()) if path.exists() else GONE
        wrong = [journal.wrong(thing, version, promise(thing)) for thing, version in found.items()]
        wrong = [sentence for sentence in wrong if sentence]
        assert not wrong, f"{what}: {'; '.join(wrong)}"
        if how != "kills":
            left = temporary(self.store)
            assert not left, f"{what}: left in the store: {left}"
        self.run.add(checked=len(found))
        self.settle(found)

    def end(self):
        """The last mount puts away what the killed ones have left; all that never changes is as it was."""
        m = self.mount = Mount(self.store, self.mnt)
        for name in ("files", "x/c"):
            self.remove_unfinished(m / name)
        m.end()
        self.check(f"{self.kind} at the end", "umounts", [])
        if self.kind.startswith("d2020"):
            still = self.zarr2.read(self.store)["still"]
        else:
            still = zarr.open_array(self.store / "still", mode="r")[...]
        assert np.array_equal(still, STILL_VALUES), f"{self.kind}: an array that nobody changed has other values"
        self.mount = None

    def close(self):
        self.programs.close()
        while self.mount and self.mount.is_mounted():
            detach(self.mount.path)
        if self.mount and is_alive(self.mount.pid):
            os.kill(self.mount.pid, signal.SIGKILL)


class Living:
    """The mount that lives, and what it has between two times of work."""

    ARRAYS = {
        "raw": {"compressors": None},
        "gzip": {"compressors": [GzipCodec(level=1)]},
        "zstd": {"compressors": [ZstdCodec()]},
        "blosc": {"compressors": [BloscCodec(cname="lz4"), Crc32cCodec()]},
        "sharded": {"compressors": [GzipCodec(level=1)], "shards": (2, 2 * SIZE)},
    }

    def __init__(self, run, directory, known):
        self.run, self.directory, self.known = run, Path(directory), known
        self.directory.mkdir()
        self.store = self.directory / "store"
        group = zarr.create_group(self.store, zarr_format=3)
        values = torture.whole()
        for name, options in self.ARRAYS.items():
            group.create_array(name, shape=values.shape, dtype="u1", chunks=(1, SIZE), **options)[...] = values
        group["zstd"].attrs["version"] = 0
        add_still(self.store, "v3", None)
        self.journals = {name: self.directory / f"journal-{name}" for name in [*self.ARRAYS, "files"]}
        self.programs = Programs(run, directory)
        self.mount = Mount(self.store, self.directory / "mnt", "--cache-size", "32M", "--dirty-limit", "64M")
        (self.mount / "files").mkdir()
        self.points = []

    def work(self, seconds):
        dice = self.run.dice()
        for name in self.ARRAYS:
            self.programs.start(
                "write", self.mount, self.journals[name], seed=dice.random(), array=name, things=CHUNKS, modes=ALL_MODES,
                seconds=seconds, sync=0.1, maps_views=True,
            )  # fmt: skip
        self.programs.start(
            "write", self.mount, self.journals["files"], seed=dice.random(), array="x", things=FILES,
            modes=["rename", "rename", "unlink"], seconds=seconds, sync=0.1,
        )  # fmt: skip
        self.programs.start("read", self.mount, self.known, seed=dice.random(), seconds=seconds)
        self.programs.wait("a program")
        self.mount.sync()
        # What is let go of in the background.
        time.sleep(1)

    def measure(self):
        """What the daemon has while nothing is done in its mount."""
        process = Path(f"/proc/{self.mount.pid}")
        stats = self.mount.stats()
        assert stats["zarrfs_unstored_bytes"] == 0, "something is not stored after a sync"
        # The one that reads the counters.
        assert stats["zarrfs_open_files"] <= 1, f"{stats['zarrfs_open_files']:.0f} files are open, and no program has one"
        memory = int(re.search(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())[1]) * 1024
        point = {
            "descriptors": len(os.listdir(process / "fd")),
            "threads": len(os.listdir(process / "task")),
            "memory": memory,
            "keys": len(temporary(self.store)),
        }
        self.points.append(point)
        assert point["keys"] == 0, f"left in the store of the living mount: {temporary(self.store)}"
        return point

    def compare(self):
        """Whether the daemon came back to what it had when it was warm."""
        if len(self.points) <= WARM_UP:
            return
        wrong = []
        for name in ("descriptors", "threads", "memory"):
            first = max(point[name] for point in self.points[:WARM_UP])
            last = min(point[name] for point in self.points[-WARM_UP:])
            limit = first * (1 + MORE[name]) + MEMORY_SLACK if name == "memory" else first + MORE[name]
            if last > limit:
                wrong.append(f"{name} of the living mount have grown from {first} to {last}")
        assert not wrong, "; ".join(wrong)

    def end(self):
        self.compare()
        self.mount.end()
        assert not temporary(self.store), f"left in the store: {temporary(self.store)}"
        for name in self.ARRAYS:
            journal = Journal(self.journals[name])
            found = torture.found_in(zarr.open_array(self.store / name, mode="r")[...])
            self.equal(name, journal, found)
        journal = Journal(self.journals["files"])
        paths = {thing: self.store / "files" / thing for thing in FILES}
        # None was there at first.
        found = {thing: version_of(thing, path.read_bytes()) if path.exists() else GONE for thing, path in paths.items()}
        self.equal("files", journal, {thing: version for thing, version in found.items() if thing in journal.states})
        still = zarr.open_array(self.store / "still", mode="r")[...]
        assert np.array_equal(still, STILL_VALUES), "an array that nobody changed has other values"
        self.run.add(checked=len(CHUNKS) * len(self.ARRAYS) + len(FILES))

    def equal(self, name, journal, found):
        for thing, version in found.items():
            last = journal.last(thing)
            right = GONE if journal.states.get(thing, {0: HERE})[last] == GONE else last
            assert version == right, f"{name}/{thing}: version {right} was written last, {version} is in the store"

    def close(self):
        self.programs.close()
        while self.mount.is_mounted():
            detach(self.mount.path)
        if is_alive(self.mount.pid):
            os.kill(self.mount.pid, signal.SIGKILL)


@contextlib.contextmanager
def told(run, what):
    """What is wrong in the block is a fault of the run."""
    try:
        yield
    except Exception as error:
        sentence = str(error) or repr(error)
        if not isinstance(error, AssertionError):
            sentence = traceback.format_exc()
        run.fault(f"{what}: {sentence} (ZARRFS_SEED={run.seed})")


def die(run, directory, kinds, known):
    """Rounds of one kind after another. What was wrong stays as it is, and its kind begins anew."""
    zarr2 = Zarr2()
    places, numbers = {}, itertools.count()
    try:
        for kind in itertools.cycle(kinds):
            if run.left() < 10:
                break
            with told(run, kind):
                if kind not in places:
                    places[kind] = Dying(run, directory / f"{kind}-{next(numbers)}", kind, zarr2, known)
                try:
                    places[kind].round()
                except BaseException:
                    places.pop(kind).close()
                    raise
            if len(run.faults) > 1000:
                break
        for kind, place in places.items():
            with told(run, kind):
                place.end()
    finally:
        for place in places.values():
            place.close()
        zarr2.end()


def processes(directory):
    """The daemons that serve a mount below the directory."""
    found = []
    for at in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (at / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if f"{directory}/" in line and "soak" not in line.split()[0] and os.path.basename(BIN) in line:
                found.append(int(at.name))
    return found


def mounts_below(directory):
    return [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if f" {directory}/" in line]


def summary(run, directory, point):
    counts = run.counts
    minutes = (time.monotonic() - run.began) / 60
    print(
        f"minute {minutes:4.0f}: {counts['rounds']} rounds ({counts['kills']} kills, {counts['umounts']} umounts, "
        f"{counts['signals']} signals), {counts['changes']} changes, {counts['reads']} reads, {counts['read'] >> 20} MiB read, "
        f"{counts['checked']} values checked; living: {point['descriptors']} descriptors, {point['threads']} threads, "
        f"{point['memory'] / 2**20:.0f} MiB, {point['keys']} temporary files; {len(mounts_below(directory))} mounts, "
        f"{len(run.faults)} wrong",
        flush=True,
    )


def live(run, directory, known):
    """The minutes of the living mount, with a line for each."""
    living = Living(run, directory / "living", known)
    try:
        while run.left() > 5:
            with told(run, "living"):
                living.work(min(50, max(run.left() - 8, 3)))
                point = living.measure()
                summary(run, directory, point)
            if len(run.faults) > 1000:
                break
        with told(run, "living"):
            living.end()
    finally:
        living.close()


def end_all(run, directory):
    """Nothing is left of the mounts."""
    with told(run, "at the end"):
        wait_until(lambda: not processes(directory), 60)
        assert not processes(directory), f"daemons still run: {processes(directory)}"
        # A killed daemon leaves its mount to the next one; a part that failed has left its own.
        assert not mounts_below(directory), f"still mounted: {mounts_below(directory)}"
        for name in ("tmp", "runtime", "cache"):
            left = sorted(str(path) for path in (directory / name).rglob("*"))
            assert not left, f"left in the directory for temporary files: {left[:9]}"


def main():
    hours = float(sys.argv[1])
    directory = Path(tempfile.mkdtemp(prefix="zarrfs-soak.")).resolve()
    for variable, name in (("TMPDIR", "tmp"), ("XDG_RUNTIME_DIR", "runtime"), ("XDG_CACHE_HOME", "cache")):
        (directory / name).mkdir(mode=0o700)
        os.environ[variable] = str(directory / name)
    known = directory / "still.bin"
    known.write_bytes(STILL_VALUES.tobytes())
    run = Run(hours)
    print(f"{hours} hours in {directory} (ZARRFS_SEED={run.seed})", flush=True)
    kinds = [kind for kind in torture.KINDS if not kind.startswith("d2020") or os.environ.get("ZARRFS_PY2")]
    # Ends early, with everything that is checked at the end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(run, "ends", time.monotonic()))
    threads = [threading.Thread(target=die, args=(run, directory, part, known)) for part in (kinds[::2], kinds[1::2])]
    for thread in threads:
        thread.start()
    try:
        live(run, directory, known)
    finally:
        run.ends = min(run.ends, time.monotonic())
        for thread in threads:
            thread.join()
    end_all(run, directory)
    hours = (time.monotonic() - run.began) / 3600
    if run.faults:
        print(f"soak: {len(run.faults)} wrong in {hours:.2f} hours, the first: {run.faults[0]}\nkept: {directory}")
        sys.exit(1)
    print(f"soak: nothing wrong in {hours:.2f} hours")
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
