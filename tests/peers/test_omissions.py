"""A local store that hides, refuses or cuts a value or a list at one system call: no command then takes a part for the
whole. Its exit code is 0 only if its result is that of a run without the fault."""

import json
import re
import shutil
import struct
import subprocess
import zipfile
import zlib
from pathlib import Path

import pytest

from mounts import BIN
from small_nodes import ARRAY, GROUP
from torture import LONG

FIXTURES = Path(__file__).parents[1] / "fixtures"
ZARRAY = {
    "zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "|u1", "fill_value": 9, "order": "C", "compressor": {"id": "zlib", "level": 1},
    "filters": None,
}
# Every fault at every call in a long run, a part of them otherwise.
STEP = 1 if LONG else 29
OPEN, LOOK, LIST, READ = "openat openat2", "statx newfstatat fstat", "getdents64", "read pread64 readv preadv preadv2"
FAULTS = [
    ("refuse", f"{OPEN} {LOOK}", "error=EACCES"),
    ("hide", OPEN, "error=ENOENT"),
    ("fail", f"{OPEN} {LOOK} {READ} {LIST}", "error=EIO"),
    ("cut", READ, "retval=0"),
]


def put(root, files):
    for key, value in files.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())


def shard(*chunks):
    """A shard of chunks of two bytes, its index at the end."""
    index = b"".join(struct.pack("<QQ", 2 * at, 2) for at in range(len(chunks)))
    return b"".join(chunks) + index + struct.pack("<I", crc32c(index))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def v3():
    inner = [{"name": "bytes"}, {"name": "crc32c"}]
    sharding = {"chunk_shape": [2], "codecs": [{"name": "bytes"}], "index_codecs": inner, "index_location": "end"}
    sharded = ARRAY | {
        "shape": [8], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
    }
    return {
        "zarr.json": GROUP, "g/zarr.json": GROUP, "g/a/zarr.json": ARRAY, "g/a/c/0": b"\1\2", "g/a/c/1": b"\3\4",
        "b/zarr.json": sharded, "b/c/0": shard(b"\5\6", b"\7\10"), "b/c/1": shard(b"\11\12", b"\13\14"),
    }


def v2():
    nodes = {".zgroup": {"zarr_format": 2}, "g/.zgroup": {"zarr_format": 2}, "g/a/.zarray": ZARRAY, "g/a/.zattrs": {"units": "m"}}
    chunks = {"g/a/0": zlib.compress(b"\1\2"), "g/a/1": zlib.compress(b"\3\4")}
    return nodes | chunks | {".zmetadata": {"zarr_consolidated_format": 1, "metadata": nodes}}


def directory(files):
    def make(root):
        put(root / "s.zarr", files())
        return str(root / "s.zarr"), root / "s.zarr"
    return make


def archive(root):
    with zipfile.ZipFile(root / "s.zip", "w") as file:
        for key, value in v3().items():
            file.writestr(key, value if isinstance(value, bytes) else json.dumps(value))
    return str(root / "s.zip"), root / "s.zip"


def references(root):
    put(root, {"refs/a.bin": b"\1\2\3\4"})
    plain = ZARRAY | {"compressor": None}
    refs = {".zgroup": '{"zarr_format":2}', "v/.zarray": json.dumps(plain), "v/0": ["a.bin", 0, 2], "v/1": ["a.bin", 2, 2]}
    put(root, {"refs/r.json": {"version": 1, "refs": refs}})
    return str(root / "refs/r.json"), root / "refs"


def icechunk(library):
    def make(root):
        shutil.copytree(FIXTURES / "icechunk" / library / "repo", root / "repo")
        return str(root / "repo"), root / "repo"
    return make


# Other nodes of the repositories have virtual chunks, whose files are not here.
ONLY = ["--only", "late", "--only", "sharded", "--only", "split"]


STORES = {
    "v3": directory(v3), "v2": directory(v2), "zip": archive, "kerchunk": references,
    "icechunk 1": icechunk("library1_spec1"), "icechunk 2": icechunk("library2_spec2"),
}


def stored(directory):
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


class Command:
    """A command, and what it says if it is whole."""

    def __init__(self, place, paths, words):
        self.words, self.copy = words, place / "t.zarr"
        self.trace, self.paths = place / "trace", paths

    def run(self, calls="", inject=""):
        shutil.rmtree(self.copy, ignore_errors=True)
        command = [BIN, *map(str, self.words)]
        if inject:
            names = "/^(" + "|".join(calls.split()) + ")$"
            options = ["-e", f"trace={names}", "-e", f"inject={names}:{inject}"] if inject != "none" else ["-e", f"trace={names}"]
            over = [word for path in self.paths for word in ("-P", str(path))]
            command = ["strace", "-f", "-qq", "-o", str(self.trace), *options, *over, *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if self.words[0] == "convert":
            return done, stored(self.copy) if self.copy.exists() else {}
        return done, (done.stdout, re.sub(r"; \d+\.\d s$", "", done.stderr.strip().rpartition("\n")[2]))

    def calls(self, calls):
        """The most calls of these kinds in one thread, of those that touch the store."""
        self.run(calls, "none")
        threads = [line.split()[0] for line in self.trace.read_text().splitlines() if "resumed>" not in line]
        return max((threads.count(thread) for thread in set(threads)), default=0)


def paths_of(place):
    return [place, *place.rglob("*")] if place.is_dir() else [place]


@pytest.mark.parametrize("store", STORES)
def test_a_fault_at_any_call_never_makes_a_part_look_like_the_whole(store, tmp_path):
    source, place = STORES[store](tmp_path)
    good, only = tmp_path / "good.zarr", ONLY if store.startswith("icechunk") else []
    subprocess.run([BIN, "convert", source, good, *only], check=True, capture_output=True)
    commands = {
        "convert": ["convert", source, tmp_path / "t.zarr", "--threads", "1", *only],
        "convert --verify": ["convert", source, tmp_path / "t.zarr", "--threads", "1", "--verify", "--format", "v2", *only],
        "diff": ["diff", source, good, "--jobs", "1", *only],
        "diff back": ["diff", good, source, "--jobs", "1", *only],
        "tree": ["tree", source, "--sizes"],
        "check": ["check", source, "--jobs", "1", *only],
    }
    wrong, tried = [], 0
    for name, words in commands.items():
        command = Command(tmp_path, paths_of(place), words)
        done, whole = command.run()
        assert done.returncode == 0, (name, done)
        for fault, calls, inject in FAULTS:
            if fault == "hide" and name in ("tree", "check") and store in ("v3", "v2"):
                # A file of a directory that is there once, and then not: another program has removed it.
                continue
            for at in range(1 + FAULTS.index((fault, calls, inject)) % STEP, command.calls(calls) + 1, STEP):
                done, found = command.run(calls, f"{inject}:when={at}")
                tried += 1
                if done.returncode == 0 and found != whole or done.returncode not in range(4):
                    trace = [line for line in command.trace.read_text().splitlines() if "INJECTED" in line]
                    wrong.append((name, fault, at, trace, done.stdout, done.stderr))
    assert tried > 200 // STEP and not wrong, f"{len(wrong)} of {tried}: " + "\n\n".join(map(str, wrong))
