"""Things that are rewritten while something goes wrong, and a journal of what was promised about them.

As a program, a writer that needs nothing but Python: `records.py DIRECTORY JOURNAL '{"seed": 1, ...}'`, see `main`.

A thing is a chunk, called `0/3`, or `document`, `note`, `group`, `mover`. Each of its versions is a record that says
which version of what it is and whether it is whole; or the thing is gone. The journal lies outside of the mount and
has a line before each change (`B thing version state`), and one when a system call has promised something: `C`, the
descriptor was closed or the name changed, `F`, fsync has returned.
"""

import errno
import gzip
import json
import mmap
import os
import random
import struct
import sys
import time
import zlib

# A chunk; no multiple of a page.
SIZE = 24_000
GRID = (4, 4)
CHUNKS = [f"{i}/{j}" for i in range(GRID[0]) for j in range(GRID[1])]
MODES = ["inplace", "truncate", "rename", "pwrite", "mapped"]
HERE, GONE = "here", "gone"


def record(thing, version, size=SIZE):
    """`size` bytes of the version of a thing."""
    head = struct.pack("<QQ", version, zlib.crc32(thing.encode()))
    body = head + random.Random(f"{thing} {version}").randbytes(size - len(head) - 4)
    return body + struct.pack("<I", zlib.crc32(body))


def version_of(thing, data):
    """Which version of the thing the bytes are; none where they are no whole one."""
    if len(data) < 20 or struct.pack("<I", zlib.crc32(data[:-4])) != data[-4:]:
        return None
    version, name = struct.unpack_from("<QQ", data)
    return version if name == zlib.crc32(thing.encode()) else None


class Journal:
    """What was begun and what was promised."""

    def __init__(self, *paths):
        self.states, self.closed, self.synced = {}, {}, {}
        for path in paths:
            for line in open(path) if os.path.exists(path) else []:
                what, thing, version, *state = line.split()
                if what == "B":
                    self.states.setdefault(thing, {0: HERE})[int(version)] = state[0]
                elif what == "C":
                    self.closed[thing] = int(version)
                else:
                    self.synced[thing] = int(version)

    def last(self, thing):
        """The last version that was begun."""
        return max(self.states.get(thing, {0: HERE}))

    def promised(self, thing, close_promises):
        """The last version that must be there, or a later one."""
        synced = self.synced.get(thing, 0)
        return max(synced, self.closed.get(thing, 0)) if close_promises else synced

    def wrong(self, thing, found, close_promises):
        """What is wrong with finding this: a version, GONE, or none for what is not whole."""
        states, first = self.states.get(thing, {0: HERE}), self.promised(thing, close_promises)
        allowed = [version for version in states if version >= first]
        if found == GONE:
            good = any(states[version] == GONE for version in allowed)
        else:
            good = found in allowed and states[found] == HERE
        if good:
            return None
        expected = ", ".join(f"{version} ({states[version]})" for version in sorted(allowed)[:9])
        what = "something that is no whole record" if found is None else f"version {found}"
        closed, synced = self.closed.get(thing, 0), self.synced.get(thing, 0)
        return f"{thing}: one of {expected} expected (closed: {closed}, fsynced: {synced}), {what} came"


def sync_dir(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Writer:
    def __init__(self, root, journal, seed, encoded=False):
        self.root, self.dice, self.encoded = root, random.Random(seed), encoded
        self.known = Journal(journal)
        self.journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.at = {}

    def say(self, what, thing, state=""):
        os.write(self.journal, f"{what} {thing} {self.at[thing]} {state}\n".encode())

    def begin(self, thing, state=HERE):
        self.at[thing] = self.at.get(thing, self.known.last(thing)) + 1
        self.say("B", thing, state)
        return self.at[thing]

    def put(self, thing, path, data, mode, sync):
        """Writes `data` as the whole file, and says what was promised."""
        target, flags = path, os.O_RDWR | os.O_CREAT
        if mode == "rename":
            target, flags = path + ".new", flags | os.O_TRUNC
        if mode == "truncate":
            flags |= os.O_TRUNC
        fd = os.open(target, flags, 0o644)
        try:
            if mode == "mapped" and os.fstat(fd).st_size == len(data):
                with mmap.mmap(fd, len(data)) as mapping:
                    mapping[:] = data
                    mapping.flush()
            elif mode == "pwrite":
                parts = list(range(0, len(data), 4096))
                self.dice.shuffle(parts)
                for at in parts:
                    assert os.pwrite(fd, data[at : at + 4096], at) == len(data[at : at + 4096])
            else:
                step = 7000 if mode == "truncate" else len(data)
                for at in range(0, len(data), step):
                    assert os.write(fd, data[at : at + step]) == len(data[at : at + step])
            if sync:
                os.fsync(fd)
                if mode != "rename":
                    self.say("F", thing)
        finally:
            os.close(fd)
        if mode == "rename":
            os.rename(target, path)
        self.say("C", thing)
        if mode == "rename" and sync:
            sync_dir(os.path.dirname(path))
            self.say("F", thing)

    def chunk(self, thing, mode, sync):
        path = os.path.join(self.root, "x/c", thing)
        if mode == "unlink":
            if os.path.exists(path):
                self.begin(thing, GONE)
                os.unlink(path)
                self.say("C", thing)
                if sync:
                    sync_dir(os.path.dirname(path))
                    self.say("F", thing)
            return
        version = self.begin(thing)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        data = record(thing, version)
        self.put(thing, path, gzip.compress(data, 1) if self.encoded else data, mode, sync)

    def document(self, mode, sync):
        """The attribute `version` of the array."""
        path = os.path.join(self.root, "x/zarr.json")
        with open(path) as file:
            document = json.load(file)
        document.setdefault("attributes", {})["version"] = self.begin("document")
        text = json.dumps(document).encode()
        self.put("document", path, text, "rename" if mode == "rename" else "truncate", sync)

    def note(self, mode, sync):
        """An ordinary file beside the array, renamed into place."""
        data = record("note", self.begin("note"), 9000)
        self.put("note", os.path.join(self.root, "note"), data, "rename", sync)

    def group(self, mode, sync):
        """A group that is made and removed."""
        path = os.path.join(self.root, "g")
        # What a cut has left of it may be an earlier version.
        if os.path.exists(path):
            self.begin("group", GONE)
            if os.path.exists(f"{path}/zarr.json"):
                os.unlink(f"{path}/zarr.json")
            os.rmdir(path)
            self.say("C", "group")
            if sync:
                sync_dir(self.root)
                self.say("F", "group")
        else:
            self.begin("group")
            os.mkdir(path)
            if sync:
                sync_dir(path)
                self.say("F", "group")

    def mover(self, mode, sync):
        """A group that is renamed: here as `here`, and gone as `gone`."""
        here, gone = (os.path.join(self.root, name) for name in (HERE, GONE))
        to = GONE if os.path.exists(here) else HERE
        self.begin("mover", to)
        os.rename(*((here, gone) if to == GONE else (gone, here)))
        self.say("C", "mover")
        if sync:
            sync_dir(self.root)
            self.say("F", "mover")

    def change(self, thing, mode, sync):
        other = {"document": self.document, "note": self.note, "group": self.group, "mover": self.mover}.get(thing)
        return other(mode, sync) if other else self.chunk(thing, mode, sync)


def main():
    root, journal, wanted = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    writer = Writer(root, journal, wanted["seed"], wanted.get("encoded"))
    until = time.monotonic() + wanted.get("seconds", 60)
    left = wanted.get("count", 10**9)
    print("ready", flush=True)
    try:
        for thing, mode, sync in wanted.get("script", []):
            writer.change(thing, mode, sync)
        while wanted.get("things") and left > 0 and (time.monotonic() < until or os.path.exists(wanted.get("during", ""))):
            mode = writer.dice.choice(wanted["modes"])
            writer.change(writer.dice.choice(wanted["things"]), mode, writer.dice.random() < wanted.get("sync", 0.3))
            left -= 1
    except OSError as error:
        # The daemon was killed, or its store has gone. Whatever else is for the test to know.
        print(errno.errorcode.get(error.errno, error.errno), error, flush=True)
        os._exit(3)
    os._exit(0)


if __name__ == "__main__":
    main()
