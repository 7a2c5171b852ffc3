"""The programs that soak.py lets work in a mount. They need nothing but Python:

    soak_programs.py write DIRECTORY JOURNAL '{"seed": 1, "array": "x", "things": [..], "modes": [..], "seconds": 5}'
    soak_programs.py read DIRECTORY EXPECTED '{"seed": 1, "seconds": 5}'

The writer changes records as that of records.py does, through chunk files, views and ordinary files, and reads each one
back on another way: it is the only one that writes them. The reader compares parts of the array `still` with EXPECTED,
its elements in C order. Both print how much they did as JSON, or the errno. Exit code 4: a value was wrong."""

import errno
import json
import mmap
import os
import random
import sys
import time

from records import GONE, GRID, HERE, SIZE, Writer, record, sync_dir, version_of

ROW = GRID[1] * SIZE
# The array `still`: its shape, and that of its chunks, of 4 bytes an element.
STILL, STILL_CHUNK, ITEM = (64, 4096), (16, 1024), 4


class Wrong(Exception):
    """A value that nobody wrote there."""


def pread(path, offset, length):
    fd = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while length > 0:
            parts.append(os.pread(fd, length, offset))
            if not parts[-1]:
                break
            offset, length = offset + len(parts[-1]), length - len(parts[-1])
        return b"".join(parts)
    finally:
        os.close(fd)


def mapped(path, offset, length):
    fd = os.open(path, os.O_RDONLY)
    try:
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapping:
            return mapping[offset : offset + length]
    finally:
        os.close(fd)


def describe(thing, found, data):
    """What came instead of a record."""
    version = version_of(thing, found)
    if version is not None:
        return f"version {version} came"
    at = next((at for at, pair in enumerate(zip(found, data, strict=False)) if pair[0] != pair[1]), len(found))
    rest = "zero bytes" if not any(found[at:]) else "others"
    return f"{len(found)} of {len(data)} bytes came, {rest} from {at} on"


def elements_offset(path, length):
    """Where the elements begin in a view that ends with them."""
    return os.stat(path).st_size - length


class SoakWriter(Writer):
    """Writes also through views, and ordinary files, and reads back."""

    def __init__(self, root, journal, seed, array, maps_views):
        super().__init__(root, journal, seed)
        self.array, self.maps_views = array, maps_views
        self.changes = self.length = 0

    def chunk(self, thing, mode, sync):
        path = os.path.join(self.root, self.array, "c", thing)
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
        data = record(thing, version)
        if mode == "view":
            self.through_view(thing, data, sync)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self.put(thing, path, data, mode, sync)
        self.read_back(thing, path, data, mode)

    def place(self, thing):
        """Where the chunk is among the elements in C order: it is a part of one row."""
        i, j = map(int, thing.split("/"))
        return i * ROW + j * SIZE

    def through_view(self, thing, data, sync):
        path = os.path.join(self.root, self.array + self.dice.choice([".raw", ".npy"]))
        fd = os.open(path, os.O_RDWR)
        try:
            offset = os.fstat(fd).st_size - GRID[0] * ROW + self.place(thing)
            first, last = 0, 0
            if self.maps_views and self.dice.random() < 0.3:
                # A page that the chunk shares with another one would also carry what that was.
                first, last = -offset % mmap.PAGESIZE, SIZE - (offset + SIZE) % mmap.PAGESIZE
                with mmap.mmap(fd, 0) as mapping:
                    mapping[offset + first : offset + last] = data[first:last]
                    mapping.flush()
            for start, end in ((0, first), (last, SIZE)):
                assert os.pwrite(fd, data[start:end], offset + start) == end - start
            if sync:
                os.fsync(fd)
                self.say("F", thing)
        finally:
            os.close(fd)
        self.say("C", thing)

    def read_back(self, thing, path, data, mode):
        way = self.dice.choice(["chunk", "mapped", ".raw", ".npy"])
        offset, source = 0, path
        if way.startswith("."):
            source = os.path.join(self.root, self.array + way)
            offset = elements_offset(source, GRID[0] * ROW) + self.place(thing)
        found = (mapped if way == "mapped" else pread)(source, offset, SIZE)
        self.length += len(found)
        if found != data:
            again = "right" if pread(source, offset, SIZE) == data else "wrong"
            came = f"{describe(thing, found, data)}; {os.stat(source).st_size} bytes long, and {again} when read again"
            raise Wrong(f"{self.array}/c/{thing}: version {self.at[thing]} was written by {mode}; read as {way}: {came}")

    def file(self, thing, mode, sync):
        """An ordinary file that is renamed into place, moved by way of a directory, or removed."""
        directory = os.path.join(self.root, "files")
        path = os.path.join(directory, thing)
        if mode == "unlink":
            if os.path.exists(path):
                self.begin(thing, GONE)
                os.unlink(path)
                self.say("C", thing)
                if sync:
                    sync_dir(directory)
                    self.say("F", thing)
            return
        data = record(thing, self.begin(thing), self.dice.randrange(100, 300_000))
        self.put(thing, path, data, "rename", sync)
        found = (mapped if self.dice.random() < 0.3 else pread)(path, 0, len(data))
        self.length += len(found)
        if found != data or os.stat(path).st_size != len(data):
            raise Wrong(f"files/{thing}: version {self.at[thing]} was written: {describe(thing, found, data)}")

    def change(self, thing, mode, sync):
        self.changes += 1
        if thing.startswith("file"):
            self.file(thing, mode, sync)
        else:
            super().change(thing, mode, sync)


def write(root, journal, wanted):
    writer = SoakWriter(root, journal, wanted["seed"], wanted["array"], wanted.get("maps_views", False))
    print("ready", flush=True)
    until = time.monotonic() + wanted["seconds"]
    while time.monotonic() < until:
        mode, thing = writer.dice.choice(wanted["modes"]), writer.dice.choice(wanted["things"])
        writer.change(thing, mode, writer.dice.random() < wanted.get("sync", 0.3))
    return {"changes": writer.changes, "read": writer.length}


def still_part(dice, root, expected):
    """Some part of the array `still` as a mount gives it, and as it is."""
    row = STILL[1] * ITEM
    way = dice.choice([".raw", ".npy", "chunk", "chunk", "mapped"])
    if way.startswith("."):
        path = os.path.join(root, "still" + way)
        at = dice.randrange(len(expected))
        length = dice.choice([1, 4096, 100_000, len(expected)])
        base = elements_offset(path, len(expected))
        read = mapped if dice.random() < 0.2 else pread
        return path, read(path, base + at, length)[: len(expected) - at], expected[at : at + length]
    i, j = dice.randrange(STILL[0] // STILL_CHUNK[0]), dice.randrange(STILL[1] // STILL_CHUNK[1])
    path = os.path.join(root, "still/c", f"{i}/{j}")
    width = STILL_CHUNK[1] * ITEM
    first = [(i * STILL_CHUNK[0] + k) * row + j * width for k in range(STILL_CHUNK[0])]
    data = b"".join(expected[at : at + width] for at in first)
    return path, (mapped if way == "mapped" else pread)(path, 0, len(data) + 1), data


def read(root, known, wanted):
    with open(known, "rb") as file:
        expected = file.read()
    dice = random.Random(wanted["seed"])
    print("ready", flush=True)
    until, reads, length = time.monotonic() + wanted["seconds"], 0, 0
    while time.monotonic() < until:
        path, found, right = still_part(dice, root, expected)
        if found != right:
            raise Wrong(f"{path}: {len(right)} bytes are known, {len(found)} others came")
        reads, length = reads + 1, length + len(found)
        if dice.random() < 0.1:
            os.listdir(os.path.dirname(path))
    return {"reads": reads, "read": length}


def main():
    what, root, path, wanted = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    # A mount that is detached meanwhile stays this one's directory.
    os.chdir(root)
    code = 0
    try:
        print(json.dumps({"write": write, "read": read}[what](".", path, wanted)), flush=True)
    except OSError as error:
        print(errno.errorcode.get(error.errno, error.errno), error, flush=True)
        code = 3
    except Wrong as error:
        print(error, flush=True)
        code = 4
    os._exit(code)


if __name__ == "__main__":
    main()
