"""The power goes: what fsync has promised is there after the journal was replayed, and nothing is torn.

The store lies on a file system of its own on a loop device, which is told to stop at once and to forget its log."""

import contextlib
import fcntl
import itertools
import json
import os
import random
import struct
import subprocess
import time
from pathlib import Path

import pytest
import zarr

from mounts import detach, files, is_alive, wait_until
from records import CHUNKS, GONE, HERE, MODES, record, sync_dir, version_of
from torture import KINDS, LONG, SEED, count, found_in, stored

# In each case.
CUTS = count("ZARRFS_CUTS", 2, 30)
# FS_IOC_SHUTDOWN of XFS, ext4 and others, and what is to be written of the log before: nothing.
SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"power cuts cannot be tested: {' '.join(map(str, command))}: {done.stderr.strip()}"


class Disk:
    """A file system in a file."""

    def __init__(self, directory, kind, tried):
        self.kind, self.tried = kind, tried
        self.image, self.path = directory / f"{kind}.img", directory / "disk"
        self.path.mkdir()
        with open(self.image, "wb") as file:
            file.truncate(400 << 20)
        run(f"mkfs.{kind}", "-q", self.image)
        self.mount()

    def mount(self):
        self.is_cut = False
        run("mount", "-o", "loop", self.image, self.path)

    def cut(self):
        """The power goes, if it has not gone before."""
        if self.is_cut:
            return
        self.is_cut = True
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
            self.tried(f"power cuts, {self.kind}")
        finally:
            os.close(fd)

    def unmount(self):
        deadline = time.monotonic() + 30
        while subprocess.run(["umount", str(self.path)], capture_output=True).returncode != 0:
            assert time.monotonic() < deadline, "the disk is in use"
            time.sleep(0.02)

    def close(self):
        # Of a disk that was stopped nothing else can be asked.
        while f" {self.path} " in Path("/proc/self/mounts").read_text():
            detach(self.path)


@pytest.fixture
def disk(tmp_path, tried):
    """`disk(kind)`; it goes with the test."""
    with contextlib.ExitStack() as stack:

        def made(kind):
            made = Disk(tmp_path, kind, tried)
            stack.callback(made.close)
            return made

        yield made


def cut_power(b, m, disk, writers=()):
    """The power goes and comes back. No mount is there then."""
    disk.cut()
    for writer in writers:
        b.wait(writer)
    # The machine that the daemon ran on is gone.
    b.kill(m)
    while m.is_mounted():
        detach(m.path)
    disk.unmount()
    disk.mount()


def others_in(store):
    """What is stored of the things that are no chunks."""
    found = {}
    document = json.loads((store / "x/zarr.json").read_text())
    found["document"] = document["attributes"]["version"]
    found["note"] = version_of("note", (store / "note").read_bytes())
    groups = {name for name in ("g", HERE, GONE) if (store / name / "zarr.json").exists()}
    for name in groups:
        assert json.loads((store / name / "zarr.json").read_text())["node_type"] == "group"
    return found, groups


def check_others(b, what):
    journal = b.journal()
    found, groups = others_in(b.store)
    wrong = [journal.wrong(thing, version, False) for thing, version in found.items()]
    # Of these only whether they are there is known.
    for thing, is_here in (("group", "g" in groups), ("mover", HERE in groups)):
        states = journal.states.get(thing, {0: GONE if thing == "group" else HERE})
        if thing == "group":
            states[0] = GONE
        allowed = {state for version, state in states.items() if version >= journal.promised(thing, False)}
        if (HERE if is_here else GONE) not in allowed:
            wrong.append(f"{thing}: {allowed} expected, {'here' if is_here else 'gone'} came")
    if (HERE in groups) == (GONE in groups):
        wrong.append(f"mover: one of two names expected, {sorted(groups)} came")
    wrong = [line for line in wrong if line]
    assert not wrong, f"{what} (ZARRFS_SEED={SEED}):\n" + "\n".join(wrong)


# Without ZARRFS_LONG a third of all.
ALL = list(itertools.product(["xfs", "ext4"], KINDS, MODES))


@pytest.mark.parametrize("on, kind, mode", ALL if LONG else ALL[::3])
def test_what_fsync_has_promised_of_chunks_survives_a_power_cut(bench, disk, on, kind, mode):
    d = disk(on)
    b, dice = bench(kind, store=d.path / "store"), random.Random(f"{SEED} {on} {kind} {mode}")
    run("sync", "-f", d.path)
    for number in range(CUTS):
        what = f"cut {number} of {kind} on {on}, {mode}"
        m = b.mount()
        m.allow("")
        b.close_promises = False
        writers = [
            b.write(m, dice.random(), f"journal{half}", modes=[mode, mode, "unlink"], things=CHUNKS[half::2], sync=0.5)
            for half in range(2)
        ]
        assert wait_until(lambda: len(b.journal().synced) > 1), "nothing is written"
        time.sleep(dice.random() * 0.3)
        cut_power(b, m, d, writers)
        found = b.check(what)
        m = b.mount()
        for thing, version in found.items():
            path = m / "x/c" / thing
            assert path.exists() == (version != GONE), f"{what}: {thing} is shown or stored, not both"
            assert version == GONE or version_of(thing, path.read_bytes()) == version, f"{what}: {thing}"
        b.close_promises = False
        b.end(m)
        b.check(what + ", after another mount")


@pytest.mark.parametrize("how", ["each file", "their directories", "the root"])
@pytest.mark.parametrize("kind", ["v3", "v3-sharded"])
@pytest.mark.parametrize("on", ["xfs", "ext4"])
def test_one_fsync_makes_durable_what_was_not_made_so_before(bench, disk, on, kind, how):
    """Where new bytes need not be on the disk before they take the place of old ones."""
    d = disk(on)
    b = bench(kind, store=d.path / "store")
    run("sync", "-f", d.path)
    m = b.mount("--durability=fsync", "--writeback-delay", "1h")
    m.allow("")
    modes = itertools.cycle(["inplace", "truncate", "rename"])
    script = [[thing, next(modes), False] for thing in CHUNKS * 2]
    script.insert(20, ["2/2", "unlink", False])
    assert not b.wait(b.write(m, SEED, script=script))
    if how == "each file":
        for thing in CHUNKS:
            fd = os.open(m / "x/c" / thing, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
    else:
        for at in {"their directories": [f"x/c/{i}" for i in range(4)], "the root": ["."]}[how]:
            sync_dir(m.path / at)
    cut_power(b, m, d)
    journal = b.journal()
    assert found_in(stored(b.store, kind, None)) == {thing: journal.last(thing) for thing in CHUNKS}
    b.end(b.mount())
    left = {key for key in files(b.store) if "__lock" in key or ".new" in key}
    assert not left, f"left in the store: {left}"


def test_a_shard_that_is_just_being_stored_is_durable_when_fsync_of_a_directory_returns(bench, disk):
    """It is complete, so it is stored at once, by somebody else than who asks for durability."""
    d = disk("xfs")
    b = bench("v3-sharded", store=d.path / "store")
    run("sync", "-f", d.path)
    shard = ["0/0", "0/1", "1/0", "1/1"]
    for number in range(1, 101 if LONG else 9):
        m = b.mount("--writeback-delay", "1h")
        m.allow("")
        for thing in shard:
            (m / "x/c" / thing).write_bytes(record(thing, number))
        sync_dir(m.path)
        cut_power(b, m, d)
        found = found_in(stored(b.store, b.kind, None))
        assert found == {thing: number if thing in shard else 0 for thing in CHUNKS}, f"cut {number}"


@pytest.mark.parametrize("on", ["xfs", "ext4"])
def test_what_fsync_has_promised_of_names_and_documents_survives_a_power_cut(bench, disk, on):
    d = disk(on)
    b, dice = bench("v3", store=d.path / "store"), random.Random(f"{SEED} {on}")
    run("sync", "-f", d.path)
    things = ["document", "note", "group", "mover", "0/0", "1/1"]
    for number in range(CUTS * 2):
        what = f"cut {number} on {on}"
        m = b.mount()
        m.allow("")
        b.close_promises = False
        writer = b.write(m, dice.random(), modes=MODES, things=things, sync=0.5)
        assert wait_until(lambda: len(b.journal().synced) > 3), "nothing is written"
        time.sleep(dice.random() * 0.3)
        cut_power(b, m, d, [writer])
        check_others(b, what)
        b.check(what)
        m = b.mount()
        document = json.loads((m / "x/zarr.json").read_text())
        assert document["attributes"]["version"] == others_in(b.store)[0]["document"], what
        b.end(m)
        check_others(b, what + ", after another mount")
    left = {key for key in files(b.store) if "__lock" in key}
    assert not left, f"left in the store: {left}"


@pytest.mark.parametrize("durable", ["array", "root", "file"])
@pytest.mark.parametrize("on", ["xfs", "ext4"])
def test_a_new_array_that_was_made_durable_survives_a_power_cut(bench, disk, on, durable):
    """As a library makes it: directories, a document, chunks; then one fsync."""
    d = disk(on)
    b = bench("v3", store=d.path / "store")
    run("sync", "-f", d.path)
    m = b.mount("--codecs", "zstd")
    m.allow("")
    new = m / "a/b/new"
    os.makedirs(new)
    document = json.loads((m / "x/zarr.json").read_text())
    (new / "zarr.json").write_text(json.dumps(document))
    names = []
    for thing in CHUNKS[:6]:
        path = new / "c" / thing
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((m / "x/c" / thing).read_bytes())
        names.append(thing)
    at = {"array": new, "root": m.path, "file": new / "c/0/0"}[durable]
    fd = os.open(at, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    cut_power(b, m, d)
    if durable == "file":
        # The file, and the directories that lead to it.
        assert (b.store / "a/b/new/c/0/0").stat().st_size
    else:
        array = zarr.open_array(b.store / "a/b/new", mode="r")[...]
        assert found_in(array) == {thing: 0 if thing in names else GONE for thing in CHUNKS}
        for above in ("a", "a/b"):
            assert json.loads((b.store / above / "zarr.json").read_text())["node_type"] == "group"
    m = b.mount()
    assert found_in(stored(b.store, "v3", None)) == {thing: 0 for thing in CHUNKS}
    b.end(m)


def test_a_cut_leaves_the_daemon_an_error_and_no_success(bench, disk):
    """A disk that has gone is EIO for whoever asks for durability; nobody is told that all is well."""
    d = disk("xfs")
    b = bench("v3", store=d.path / "store")
    run("sync", "-f", d.path)
    m = b.mount()
    m.allow("")
    chunk, directory = os.open(m / "x/c/0/0", os.O_RDWR), os.open(m / "x/c/0", os.O_RDONLY)
    os.pwrite(chunk, record("0/0", 1), 0)
    d.cut()
    try:
        for _ in range(2):
            with pytest.raises(OSError):
                os.fsync(chunk)
        with pytest.raises(OSError):
            os.fsync(directory)
        with pytest.raises(OSError):
            os.close(chunk)
    finally:
        os.close(directory)
    assert is_alive(m.pid)
    cut_power(b, m, d)
    assert found_in(stored(b.store, "v3", None)) == {thing: 0 for thing in CHUNKS}
