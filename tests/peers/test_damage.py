"""Damaged and hostile stores: the right errno for that file alone, no panic, no hang, bounded memory, nothing from outside."""

import errno
import functools
import gzip
import json
import os
import re
import stat
import struct
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import pytest

from confined import SECONDS
from mounts import wait_until

MISSING = 2**64 - 1

BYTES = {"name": "bytes"}
CRC32C = {"name": "crc32c"}
EIO, EFBIG, EOPNOTSUPP, ENOENT = errno.EIO, errno.EFBIG, errno.EOPNOTSUPP, errno.ENOENT


def array(shape=(16,), chunks=(8,), codecs=(BYTES,), **members):
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": list(codecs),
        **members,
    }


def codec(name, **configuration):
    return array(codecs=[BYTES, {"name": name, "configuration": configuration}])


BLOSC = dict(cname="lz4", clevel=5, shuffle="noshuffle", typesize=1, blocksize=0)


def sharded(**members):
    shards = {"chunk_shape": [8], "codecs": [BYTES], "index_codecs": [BYTES_LE, CRC32C], "index_location": "end"}
    return array((32,), (16,), [{"name": "sharding_indexed", "configuration": shards}], **members)


BYTES_LE = {"name": "bytes", "configuration": {"endian": "little"}}


def shard(*entries, data=b"ABCDEFGHabcdefgh", damage=0):
    """A shard with this index, whose checksum is right unless it is to be damaged."""
    index = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    return data + index + struct.pack("<I", google_crc32c.value(index) ^ damage)


@functools.cache
def gzip_bomb():
    """Zero bytes, 1 GiB of them."""
    packer, piece = zlib.compressobj(1, wbits=31), bytes(1 << 24)
    return b"".join([packer.compress(piece) for _ in range(64)] + [packer.flush()])


def zstd_bomb():
    """1 GiB as blocks of one repeated byte, in a frame that does not say how much it holds."""
    block = struct.pack("<I", 1 << 1 | (128 << 10) << 3)[:3] + b"\0"
    last = struct.pack("<I", 1 | 1 << 1 | 1 << 3)[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x38" + block * 8192 + last


def zstd_claim(length):
    """A frame that says how much it holds, and holds next to nothing."""
    return b"\x28\xb5\x2f\xfd" + b"\xe0" + struct.pack("<Q", length) + b"\x03\x00\x00" + b"\0"


def blosc_claim(length, block, flags=0x21):
    body = struct.pack("<I", 20) + b"\x1f\x00\x01\x00" + b"\xff" * 16
    return struct.pack("<BBBBIII", 2, 1, flags, 1, length, block, 16 + len(body)) + body


def nested(depth, inside, before, after):
    return (before * depth + inside + after * depth).encode()


def nested_shards(depth):
    """A document of shards in shards."""
    level = '{"name":"sharding_indexed","configuration":{"chunk_shape":[8],"index_codecs":[{"name":"bytes","configuration":{"endian":"little"}}],"codecs":['
    text = json.dumps(array(codecs=["HERE"]))
    return text.encode().replace(b'"HERE"', nested(depth, '{"name":"bytes"}', level, "]}}"))


def deep_attributes(depth):
    return json.dumps(array(attributes="HERE")).encode().replace(b'"HERE"', b'{"a":' + nested(depth, "1", "[", "]") + b"}")


@dataclass
class Case:
    """The array `bad`: its document, the stored chunks, and what becomes of the chunk files `c/0`, `c/1` ..."""

    document: object
    chunks: dict
    reads: dict
    sentence: str = ""
    make: object = None
    # What reading the document gives: the text as it is stored, unless this says otherwise.
    document_errno: int = 0


CASES = {
    # Shards of two inner chunks of 8 bytes.
    "shard_truncated": Case(sharded(), {"c/0": shard((0, 8), (8, 8))[:30]}, {0: EIO, 1: EIO}, "bad/c/0: "),
    "shard_empty": Case(sharded(), {"c/0": b""}, {0: EIO}, "bad/c/0: 0 bytes long, its shard index alone needs 36"),
    "shard_crc_wrong": Case(sharded(), {"c/0": shard((0, 8), (8, 8), damage=1)}, {0: EIO, 1: EIO}, "bad/c/0: .*checksum"),
    "shard_entry_outside": Case(sharded(), {"c/0": shard((0, 8), (1000, 8))}, {0: b"ABCDEFGH", 1: EIO}, "bad/c/0: .*inner chunk 1 at 1000"),
    "shard_entry_wraps": Case(sharded(), {"c/0": shard((0, 8), (2**64 - 4, 12))}, {0: b"ABCDEFGH", 1: EIO}, "bad/c/0: "),
    "shard_entry_huge": Case(sharded(), {"c/0": shard((0, 8), (0, 2**63))}, {0: b"ABCDEFGH", 1: EIO}, "bad/c/0: "),
    "shard_offset_alone_missing": Case(sharded(), {"c/0": shard((0, 8), (MISSING, 8))}, {0: b"ABCDEFGH", 1: EIO}, "bad/c/0: "),
    "shard_length_alone_missing": Case(sharded(), {"c/0": shard((0, 8), (8, MISSING))}, {0: b"ABCDEFGH", 1: EIO}, "bad/c/0: "),
    "shard_inner_chunk_short": Case(sharded(), {"c/0": shard((0, 8), (8, 7))}, {0: b"ABCDEFGH", 1: EIO}, "bad/c/0.*7 bytes"),
    "shard_entries_overlap": Case(sharded(), {"c/0": shard((0, 8), (4, 8))}, {0: b"ABCDEFGH", 1: b"EFGHabcd"}),
    "shard_of_another_size": Case(sharded(), {"c/0": shard((0, 8), (MISSING, MISSING))}, {0: b"ABCDEFGH", 1: ENOENT}),
    # Compressed chunks of 8 bytes.
    "gzip_garbage": Case(codec("gzip", level=1), {"c/0": b"no gzip at all", "c/1": gzip.compress(b"ABCDEFGH")}, {0: EIO, 1: b"ABCDEFGH"}, "bad/c/0: gzip: "),
    "gzip_cut": Case(codec("gzip", level=1), {"c/0": gzip.compress(b"ABCDEFGH")[:-6]}, {0: EIO}, "bad/c/0: "),
    "gzip_empty": Case(codec("gzip", level=1), {"c/0": b""}, {0: EIO}, "bad/c/0: "),
    "gzip_bomb": Case(codec("gzip", level=1), {"c/0": gzip_bomb}, {0: EIO}, "bad/c/0: "),
    "zstd_garbage": Case(codec("zstd", level=1), {"c/0": b"\x28\xb5\x2f\xfd and no more"}, {0: EIO}, "bad/c/0: zstd"),
    "zstd_bomb": Case(codec("zstd", level=1), {"c/0": zstd_bomb()}, {0: EIO}, "bad/c/0: "),
    "zstd_claims_4_EiB": Case(codec("zstd", level=1), {"c/0": zstd_claim(2**62)}, {0: EIO}, "bad/c/0: "),
    "blosc_garbage": Case(codec("blosc", **BLOSC), {"c/0": b"\2\1\x21\1" + b"\xff" * 40}, {0: EIO}, "bad/c/0: blosc"),
    "blosc_claims_1_GiB": Case(codec("blosc", **BLOSC), {"c/0": blosc_claim(1 << 30, 1 << 30)}, {0: EIO}, "bad/c/0: blosc"),
    "blosc_block_of_2_GiB": Case(codec("blosc", **BLOSC), {"c/0": blosc_claim(8, (1 << 31) - 1)}, {0: EIO}, "bad/c/0: blosc"),
    "blosc_blosclz_overrun": Case(codec("blosc", **BLOSC), {"c/0": blosc_claim(8, 8, 0x01)}, {0: EIO}, "bad/c/0: blosc"),
    "crc32c_wrong": Case(array(codecs=[BYTES, CRC32C]), {"c/0": b"ABCDEFGH\0\0\0\0"}, {0: EIO}, "bad/c/0: crc32c"),
    "raw_too_long": Case(array(), {"c/0": b"ABCDEFGHI"}, {0: EIO}, "bad/c/0: "),
    # Absurd numbers.
    "chunk_of_1_TiB": Case(array((1 << 40,), (1 << 40,)), {"c/0": b"A"}, {0: EFBIG}, "bad.*1099511627776"),
    "chunk_product_wraps": Case(array((8, 8, 8), (1 << 32, 1 << 32, 8)), {"c/0/0/0": b"A"}, {(0, 0, 0): EOPNOTSUPP}, "bad/zarr.json: "),
    "chunk_product_wraps_to_8": Case(array((8, 8), ((1 << 63) + 1, 8)), {"c/0/0": b"A" * 8}, {(0, 0): EOPNOTSUPP}, "bad/zarr.json: "),
    "chunk_shape_zero": Case(array((8,), (0,)), {"c/0": b"A"}, {0: EIO}, "bad"),
    "shape_of_2_to_the_62": Case(array((1 << 62,), (8,)), {"c/0": b"ABCDEFGH"}, {0: b"ABCDEFGH", (1 << 58): ENOENT}),
    "shape_negative": Case(array((-8,), (8,)), {"c/0": b"ABCDEFGH"}, {0: EIO}, "bad"),
    "shape_beyond_64_bits": Case(array((1 << 70,), (8,)), {"c/0": b"ABCDEFGH"}, {0: EIO}, "bad"),
    "rank_differs": Case(array((8, 8), (8,)), {"c/0": b"ABCDEFGH"}, {0: EIO}, "bad"),
    "inner_chunks_do_not_divide": Case(
        array((32,), (16,), [{"name": "sharding_indexed", "configuration": {"chunk_shape": [5], "codecs": [BYTES], "index_codecs": [BYTES_LE]}}]),
        {"c/0": b"A" * 64}, {0: EIO}, "bad.*do not divide",
    ),
    "shard_of_2_to_the_40_chunks": Case(
        array((1 << 40,), (1 << 40,), [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1], "codecs": [BYTES], "index_codecs": [BYTES_LE]}}]),
        {"c/0": b"A" * 64}, {0: EFBIG}, "bad",
    ),
    # Documents.
    "shards_nested_20000_deep": Case(nested_shards(20_000), {"c/0": b"A" * 8}, {0: EIO}, "bad/zarr.json: "),
    "attributes_nested_10000_deep": Case(deep_attributes(10_000), {"c/0": b"A" * 8}, {0: EIO}, "bad/zarr.json: "),
    "attributes_of_64_MiB": Case(
        lambda: json.dumps(array(attributes={"a": "x" * (64 << 20)})).encode(), {"c/0": b"A" * 8}, {0: EFBIG}, "bad/zarr.json: ", document_errno=EFBIG,
    ),
    "document_cut": Case(json.dumps(array()).encode()[:-9], {"c/0": b"A" * 8}, {0: EIO}, "bad/zarr.json: "),
    # Nobody can tell whether it was an array: stored chunks do not pass for decoded ones.
    "document_empty": Case(b"", {"c/0": b"A" * 8}, {0: EIO}, "bad/zarr.json: "),
    "document_is_a_list": Case(b"[]", {"c/0": b"A" * 8}, {0: EIO}, "bad/zarr.json: "),
    "document_with_NUL": Case(json.dumps(array()).encode() + b"\0", {"c/0": b"A" * 8}, {0: EIO}, "bad/zarr.json: "),
    "separator_leads_out": Case(
        array(chunk_key_encoding={"name": "default", "configuration": {"separator": "/../../"}}), {"c/0": b"A" * 8}, {0: EOPNOTSUPP}, "bad/zarr.json: "
    ),
    # What is no regular file, or lies elsewhere. See `test_nothing_from_outside_is_shown` for more.
    "chunk_is_a_fifo": Case(array(), {"c/1": b"ABCDEFGH"}, {0: EIO, 1: b"ABCDEFGH"}, "bad/c/0: ", make=lambda bad: os.mkfifo(bad / "c/0")),
    "chunk_is_a_directory": Case(array(), {"c/1": b"ABCDEFGH"}, {0: ENOENT, 1: b"ABCDEFGH"}, make=lambda bad: os.mkdir(bad / "c/0")),
    "chunk_is_a_link_out": Case(
        array(), {"c/1": b"ABCDEFGH"}, {0: EIO, 1: b"ABCDEFGH"}, "bad/c/0: ", make=lambda bad: os.symlink("/etc/hostname", bad / "c/0")
    ),
    "chunk_is_a_link_to_itself": Case(
        array(), {"c/1": b"ABCDEFGH"}, {0: errno.ELOOP, 1: b"ABCDEFGH"}, "bad/c/0: ", make=lambda bad: os.symlink("0", bad / "c/0")
    ),
    "document_is_a_fifo": Case(
        None, {"c/0": b"A" * 8}, {0: EIO}, "bad/zarr.json: ", make=lambda bad: os.mkfifo(bad / "zarr.json"), document_errno=EIO
    ),
    "document_is_a_link_out": Case(
        None, {"c/0": b"A" * 8}, {0: EIO}, "bad/zarr.json: ", make=lambda bad: os.symlink("/etc/hostname", bad / "zarr.json"), document_errno=EIO
    ),
}

def beneath(path, do):
    """What `beneath.py` says, in a process of its own, since the file may make it wait for ever."""
    root = next(above for above in path.parents if os.path.ismount(above))
    command = [sys.executable, "-S", Path(__file__).with_name("beneath.py"), root, do, path.relative_to(root)]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout[1:] if done.stdout[:1] == b"=" else int(done.stdout)


def read(path):
    """The bytes of a file or the errno."""
    return beneath(path, "read")


def walk(directory):
    """Lists everything, in a process of its own."""
    done = subprocess.run(["find", str(directory), "-printf", "%P\n"], capture_output=True, text=True, timeout=SECONDS)
    return set(done.stdout.splitlines())


def make(store, case):
    group = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}})
    bad, good = store / "bad", store / "good"
    for node in (bad, good):
        (node / "c").mkdir(parents=True)
    (store / "zarr.json").write_text(group)
    (good / "zarr.json").write_text(json.dumps(array()))
    (good / "c/0").write_bytes(b"sibling!")
    text = case.document() if callable(case.document) else case.document
    if text is not None:
        (bad / "zarr.json").write_bytes(text if isinstance(text, bytes) else json.dumps(text).encode())
    for key, value in case.chunks.items():
        (bad / key).parent.mkdir(parents=True, exist_ok=True)
        (bad / key).write_bytes(value() if callable(value) else value)
    if case.make:
        case.make(bad)


@pytest.mark.parametrize("name", CASES)
def test_damage_is_an_error_of_the_damaged_file_alone(mount, confined, tmp_path, tried, name):
    case = CASES[name]
    tried("hostile hierarchies")
    make(tmp_path / "made", case)
    with mount(tmp_path / "made", copy=False) as m:
        if case.sentence:
            m.expect(case.sentence)
        for coords, expected in case.reads.items():
            coords = coords if isinstance(coords, tuple) else (coords,)
            got = read(m / "bad" / "/".join(["c", *map(str, coords)]))
            what = lambda it: errno.errorcode.get(it, it) if isinstance(it, int) else it
            assert got == expected, f"{coords}: {what(expected)} expected, {what(got)} came\n{m.errors()}"
        shown = read(m / "bad/zarr.json")
        assert shown == case.document_errno if case.document_errno else isinstance(shown, bytes), shown
        if case.sentence:
            assert re.search(case.sentence, m.errors()), m.errors()
        assert read(m / "good/c/0") == b"sibling!"
        found = walk(m.path)
        assert {"good", "good/zarr.json", "good/c/0", "bad"} <= found
        intact = {f"bad/c/{name}" for name, expected in case.reads.items() if isinstance(expected, bytes)}
        assert intact <= found or "shape_of_2" in name
        assert read(m / "zarr.json")[:1] == b"{"
        assert "a bug in zarrfs" not in m.errors()
        confined.check(m, tried)
        m.allow("bad")


@pytest.mark.parametrize("entry", [(1000, 8), (2**64 - 4, 12), (MISSING, 8), (8, MISSING)])
def test_a_damaged_entry_is_mended_by_writing_its_chunk_and_never_spread(mount, tmp_path, entry):
    make(tmp_path / "made", Case(sharded(), {"c/0": shard((0, 8), entry)}, {}))
    with mount(tmp_path / "made", "--writeback=sync", copy=False) as m:
        before = (m.store / "bad/c/0").read_bytes()
        m.refused(EIO, "bad/c/0", lambda: (m / "bad/c/0").write_bytes(b"12345678"))
        assert (m.store / "bad/c/0").read_bytes() == before
        (m / "bad/c/1").write_bytes(b"87654321")
        assert (m / "bad/c/0").read_bytes() == b"ABCDEFGH" and (m / "bad/c/1").read_bytes() == b"87654321"
        (m / "bad/c/0").write_bytes(b"12345678")
    stored = (m.store / "bad/c/0").read_bytes()
    assert b"12345678" in stored and b"87654321" in stored


def test_a_damaged_chunk_is_mended_by_rewriting_all_of_it_but_not_a_part(mount, tmp_path):
    make(tmp_path / "made", Case(codec("gzip", level=1), {"c/0": b"no gzip"}, {}))

    def in_part(path):
        fd = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(fd, b"x", 3)
        finally:
            os.close(fd)

    with mount(tmp_path / "made", copy=False) as m:
        m.refused(EIO, "bad/c/0: gzip", lambda: in_part(m / "bad/c/0"))
        assert (m.store / "bad/c/0").read_bytes() == b"no gzip"
        (m / "bad/c/0").write_bytes(b"12345678")
        assert (m / "bad/c/0").read_bytes() == b"12345678"
    assert gzip.decompress((m.store / "bad/c/0").read_bytes()) == b"12345678"


SECRET = b"a secret from outside of the store"


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("what", ["chunk", "chunks", "document", "node", "file", "root_file"])
def test_nothing_from_outside_is_shown_or_written(mount, confined, tmp_path, tried, what, relative):
    tried("hostile hierarchies")
    outside = tmp_path / "outside"
    (outside / "c").mkdir(parents=True)
    (outside / "zarr.json").write_text(json.dumps(array(attributes={"x": SECRET.decode()})))
    (outside / "c/0").write_bytes(SECRET[:8])
    (outside / "secret").write_bytes(SECRET)
    store = tmp_path / "made"
    make(store, Case(array(), {"c/1": b"ABCDEFGH"}, {}))
    link, target = {
        "chunk": ("bad/c/0", "c/0"),
        "chunks": ("bad/c", "c"),
        "document": ("bad/zarr.json", "zarr.json"),
        "node": ("bad", "."),
        "file": ("bad/notes", "secret"),
        "root_file": ("notes", "secret"),
    }[what]
    subprocess.run(["rm", "-rf", str(store / link)], check=True)
    os.symlink(os.path.relpath(outside / target, (store / link).parent) if relative else outside / target, store / link)
    before = {p: p.read_bytes() for p in (outside / "zarr.json", outside / "c/0", outside / "secret")}
    with mount(store, copy=False) as m:
        m.allow("")
        shown = b""
        for path in walk(m.path):
            got = read(m / path)
            shown += got if isinstance(got, bytes) else b""
        for path in ("bad/c/0", "bad/zarr.json", "bad/notes", "notes", ".zarrfs/stored/bad/zarr.json"):
            got = read(m / path)
            shown += got if isinstance(got, bytes) else b""
        assert SECRET not in shown and SECRET[:8] not in shown
        for path in ("bad/c/0", "bad/zarr.json", "bad/notes", "notes", "bad/c/new"):
            beneath(m / path, "write")
        beneath(m / "bad/c/0", "remove")
        assert read(m / "good/c/0") == b"sibling!"
        subprocess.run(["setfattr", "-h", "-n", "user.attrs.new", "-v", "1", str(m / "bad")], capture_output=True)
        confined.check(m, tried)
    assert {p: p.read_bytes() for p in before} == before, "written outside of the store"
    assert set(os.listdir(outside)) == {"c", "secret", "zarr.json"} and os.listdir(outside / "c") == ["0"]


@pytest.mark.parametrize("root", ["a link to itself", "a device"])
def test_where_the_root_cannot_be_read_errors_say_why_and_umount_stores_what_waits(mount, tmp_path, root):
    store = tmp_path / "made"
    (store / "x").mkdir(parents=True)
    group = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}})
    (store / "zarr.json").write_text(group)
    (store / "x/zarr.json").write_text(json.dumps(sharded()))
    with mount(store, "--writeback-delay", "1h", copy=False) as m:
        m.allow("circular symbolic link|not a regular file")
        (m / "x/c").mkdir(exist_ok=True)
        (m / "x/c/0").write_bytes(b"ABCDEFGH")
        (store / "zarr.json").unlink()
        if root == "a device":
            os.mknod(store / "zarr.json", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        else:
            (store / "zarr.json").symlink_to("zarr.json")
        # For the time of --metadata-ttl, it may be as it was.
        assert wait_until(lambda: os.stat(m.path) and "zarr.json: " in m.errors())
        assert "x/c/0" in (m / ".zarrfs/unstored").read_text()
        assert m.unmount() is None
    (store / "zarr.json").unlink()
    (store / "zarr.json").write_text(group)
    with mount(store, copy=False) as m:
        assert (m / "x/c/0").read_bytes() == b"ABCDEFGH"
