"""Several who write one store: nothing that fsync has acknowledged is lost, at no moment."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import zarr

from hierarchies import assert_same
from mounts import BIN, PATIENCE, files, wait_until
from records import CHUNKS, HERE, SIZE, version_of
from torture import LONG, SEED, WRITER, found_in, stored, whole

SECONDS = 60 if LONG else 4


def watch(b, writers, what, watching):
    """Reads the store while others write: what fsync promised before is there, and nothing is torn. The writers go on as long
    as the file `watching` is there: until it was read some times."""
    rounds, deadline = 0, time.monotonic() + SECONDS + 2 * PATIENCE
    while any(writer.poll() is None for writer in writers):
        assert time.monotonic() < deadline, "the writers do not end"
        promised = b.journal()
        array = stored(b.store, b.kind, b.zarr2, rounds % 2)
        begun = b.journal()
        # What was promised when it was read, and what was begun until it had been read.
        for thing, version in found_in(array).items():
            states = begun.states.get(thing, {0: HERE})
            first = promised.promised(thing, b.close_promises)
            assert version is not None, f"{what} (ZARRFS_SEED={SEED}): {thing} is torn in the store"
            good = [at for at, state in states.items() if at >= first]
            assert version in good, f"{what} (ZARRFS_SEED={SEED}): {thing}: {version} in the store, {first} was fsynced"
        rounds += 1
        if rounds > 3:
            watching.unlink(missing_ok=True)
    assert rounds > 3, "the store was hardly read"


def check_last(b, what):
    """After the unmount the last version of everything is there."""
    journal = b.journal()
    found = found_in(stored(b.store, b.kind, b.zarr2))
    expected = {thing: journal.last(thing) for thing in CHUNKS}
    assert found == expected, f"{what} (ZARRFS_SEED={SEED}): {expected} expected, {found} came"
    b.check_keys(what)


@pytest.mark.parametrize("ttl", ["0s", "1s"])
@pytest.mark.parametrize("kind", ["v3-sharded", "d2020-10-sharded"])
def test_two_mounts_of_one_store_keep_what_fsync_has_promised_at_every_moment(bench, kind, ttl):
    b = bench(kind)
    ms = [b.mount("--metadata-ttl", ttl, name=name) for name in ("one", "two")]
    modes = ["inplace", "truncate", "rename", "pwrite", "mapped"]
    watching = b.directory / "watching"
    watching.touch()
    wanted = {"modes": modes, "sync": 0.4, "seconds": SECONDS, "during": str(watching)}
    writers = [
        b.write(ms[at % 2], f"{SEED} {at}", f"journal{at}", things=things, **wanted)
        for at, things in enumerate(CHUNKS[at::4] for at in range(4))
    ]
    watch(b, writers, f"two mounts of {kind}", watching)
    for writer in writers:
        said = b.wait(writer)
        assert not said, said
    # Each sees what the other has stored.
    for m in ms:
        for thing in CHUNKS:
            fd = os.open(m / "x/c" / thing, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
    time.sleep(1.1 if ttl == "1s" else 0)
    for m in ms:
        for thing in CHUNKS:
            version = version_of(thing, (m / "x/c" / thing).read_bytes())
            assert version == b.journal().last(thing), f"{thing} on {m.path.name}: version {version}"
    for m in ms:
        b.end(m)
    check_last(b, f"two mounts of {kind}")


def test_a_mount_that_is_killed_neither_blocks_nor_harms_another(bench):
    b, dice = bench("v3-sharded"), random.Random(SEED)
    halves = [CHUNKS[::2], CHUNKS[1::2]]
    one = b.mount("--writeback=sync", name="one")
    going = b.write(one, SEED, "journal-one", modes=["inplace", "rename"], things=halves[0], sync=0.3, seconds=SECONDS)
    for number in range(8 if LONG else 3):
        two = b.mount(name="two")
        # Closing promises nothing there.
        killed = b.write(two, dice.random(), "journal-two", modes=["truncate"], things=halves[1], sync=0.5)
        time.sleep(0.1 + dice.random() * 0.2)
        b.kill(two)
        b.wait(killed)
        b.close_promises = False
        before = sum(b.journal().closed.values())
        assert wait_until(
            lambda: sum(b.journal().closed.values()) > before or going.poll() is not None, 30
        ), "the other mount stands still"
        found = found_in(stored(b.store, b.kind, None))
        b.check(f"kill {number} of one of two mounts", found={thing: found[thing] for thing in halves[1]})
    assert not b.wait(going)
    b.end(b.mount(name="two"))
    b.end(one)
    found = found_in(stored(b.store, b.kind, None))
    assert {thing: found[thing] for thing in halves[0]} == {thing: b.journal().last(thing) for thing in halves[0]}
    b.check_keys("after the kills")


TENSORSTORE = """
import json, os, random, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import tensorstore as ts
from records import SIZE, Writer, record
store, journal, seed, seconds, watching, things = sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]), sys.argv[6], sys.argv[7:]
spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": store + "/x/"}}
array, writer = ts.open(spec, open=True).result(), Writer(store, journal, seed)
print("ready", flush=True)
until = time.monotonic() + seconds
while time.monotonic() < until or os.path.exists(watching):
    thing = writer.dice.choice(things)
    i, j = map(int, thing.split("/"))
    version = writer.begin(thing)
    array[i, j * SIZE : (j + 1) * SIZE].write(np.frombuffer(record(thing, version), "u1")).result()
    # It renames after an fsync: it has promised as much.
    writer.say("F", thing)
    writer.say("C", thing)
"""


def test_a_mount_and_tensorstore_keep_what_was_promised_at_every_moment(bench, tmp_path):
    b = bench("v3-sharded")
    m = b.mount("--metadata-ttl", "0s")
    halves = [CHUNKS[::2], CHUNKS[1::2]]
    watching = tmp_path / "watching"
    watching.touch()
    command = [sys.executable, "-c", TENSORSTORE, os.path.dirname(WRITER), b.store, tmp_path / "journal-ts", SEED, SECONDS, watching]
    foreign = subprocess.Popen([*map(str, command), *halves[1]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    b.writers.append(foreign)
    b.journals.append(tmp_path / "journal-ts")
    assert foreign.stdout.readline() == "ready\n", foreign.stderr.read()
    wanted = {"modes": ["inplace", "truncate", "rename", "pwrite"], "sync": 0.4, "seconds": SECONDS, "during": str(watching)}
    own = b.write(m, SEED, things=halves[0], **wanted)
    watch(b, [own, foreign], "a mount and TensorStore", watching)
    for writer in (own, foreign):
        said = b.wait(writer)
        assert not said, said
    b.end(m)
    check_last(b, "a mount and TensorStore")


def convert(b, dest, *options):
    command = [BIN, "convert", str(b.store), str(dest), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(b, process):
    b.writers.append(process)
    _, said = process.communicate(timeout=PATIENCE + 60)
    b.writers.remove(process)
    return process.returncode, said


@pytest.mark.parametrize("kind", ["v3", "v3-sharded"])
def test_convert_sees_whole_chunks_of_a_store_that_a_mount_writes(bench, tmp_path, kind):
    b = bench(kind)
    m = b.mount()
    modes = ["inplace", "truncate", "rename", "pwrite"]
    writer = b.write(m, SEED, modes=modes, things=CHUNKS, sync=0.4, seconds=SECONDS)
    # Encoded chunks that are copied as they are, and chunks that are decoded.
    ways = [[], ["--codecs", "gzip"], ["--shards", "none"], ["--format", "v2"], ["--chunks", f"2,{SIZE // 2}", "--shards", "none"]]
    number = 0
    while writer.poll() is None or number < len(ways):
        dest, way = tmp_path / f"dest{number}", ways[number % len(ways)]
        b.close_promises = False
        before = b.journal()
        code, said = ended(b, convert(b, dest, *way))
        what = f"convert {' '.join(way)} of {kind} while it is written (ZARRFS_SEED={SEED})"
        assert code == 0, f"{what}: {said}"
        array = zarr.open_array(dest / "x", mode="r")[...]
        begun = b.journal()
        for thing, version in found_in(array).items():
            first = before.promised(thing, False)
            assert version is not None, f"{what}: {thing} is torn"
            assert first <= version <= begun.last(thing), f"{what}: {thing}: {version} came, {first} was fsynced before"
        assert not [key for key in files(dest) if "zarrfs" in key or "__lock" in key], what
        subprocess.run(["rm", "-r", str(dest)], check=True)
        number += 1
    assert not b.wait(writer)
    b.end(m)
    check_last(b, f"after {number} converts")


@pytest.mark.parametrize("end", ["both", "kill"])
def test_two_converts_to_one_place_do_not_corrupt_it(bench, tmp_path, end):
    b, dice = bench("v3-sharded"), random.Random(f"{SEED} {end}")
    for number in range(20 if LONG else 4):
        dest, way = tmp_path / f"dest{number}", ["--codecs", "gzip", "--shards", "none"]
        processes = [convert(b, dest, *way) for _ in range(2)]
        if end == "kill":
            time.sleep(dice.random() * 0.02)
            with contextlib.suppress(ProcessLookupError):
                processes[0].send_signal(signal.SIGKILL)
        results = [ended(b, process) for process in processes]
        what = f"round {number} (ZARRFS_SEED={SEED}): {results}"
        assert not any("panicked" in said or "a bug in zarrfs" in said for _, said in results), what
        if any(code == 0 for code, _ in results):
            assert_same(zarr.open_array(dest / "x", mode="r")[...], whole(), what)
        else:
            assert end == "kill" or all(said for _, said in results), f"nobody has done it, nor said why: {what}"
            code, said = ended(b, convert(b, dest, *way))
            # The killed one may have been about to say that it had done it.
            is_done = end == "kill" and "nor an unfinished conversion" in said
            assert code == 0 or is_done, f"{what}, then alone: {said}"
            assert_same(zarr.open_array(dest / "x", mode="r")[...], whole(), what)
        # What the killed one has left goes with the next that can write.
        b.end(b.mount(name=f"mnt{number}", store=dest))
        assert not [key for key in files(dest) if "zarrfs" in key or "__lock" in key], what
