"""Programs that read and write what takes much memory, at a time and in 256 MiB: the daemon lives, and the healthy array beside is read."""

import gzip
import subprocess

import pytest

import hostile
import mounts
from mounts import is_alive
from torture import LONG


@pytest.fixture
def mount_in_little_memory(mount, group, tmp_path, tried, monkeypatch):
    """Returns a function that lets programs, each a command of a shell, work at a time in a mount with little memory."""

    def work(store, programs, *allowed):
        with monkeypatch.context() as patched:
            patched.setattr(mounts, "BIN", group.wrapper(tmp_path))
            with mount(store, copy=False) as m:
                m.allow("|".join(("symbolic link", *allowed)))
                begun = [subprocess.Popen(["sh", "-c", program], cwd=m.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for program in programs]
                said = [program.communicate()[0].decode() for program in begun]
                assert is_alive(m.pid) and (m / "good/c/0").read_bytes() == b"sibling!"
                group.check(m, tried)
                return said

    return work


def test_views_of_chunks_of_one_byte_are_read_in_little_memory(mount_in_little_memory, tmp_path):
    store = tmp_path / "made"
    hostile.make("links_to_themselves", store)
    hostile.node(store / "bytes", hostile.array((2,) * 60, (1,) * 60))
    views = ("npy", "raw", "nc", "npy") if LONG else ("npy", "nc")
    count = 100_000 if LONG else 4000
    said = mount_in_little_memory(store, [f"head -c {count} bytes.{view} | wc -c" for view in views])
    assert [int(read) for read in said] == [count] * len(views)


def codec(name, **configuration):
    return {"name": name, "configuration": configuration}


GZIP = codec("gzip", level=1)
# Just below the limit of a chunk in 256 MiB, which is an eighth of it.
LONG_CHUNK = 33_000_000


def test_programs_that_read_the_longest_chunks_through_many_codecs_stay_within_memory(mount_in_little_memory, tmp_path):
    store = tmp_path / "made"
    hostile.make("links_to_themselves", store)
    codecs = [codec("transpose", order=[1, 0]), hostile.LITTLE, codec("numcodecs.shuffle", elementsize=8), GZIP, GZIP]
    shape = (LONG_CHUNK // 8, 8)
    encoded = gzip.compress(gzip.compress(bytes(LONG_CHUNK), 1), 1)
    for n in range(8):
        hostile.node(store / f"a{n}", hostile.array(shape, shape, codecs=codecs))
        hostile.put(store / f"a{n}/c/0/0", encoded)
    reads = 16 if LONG else 8
    said = mount_in_little_memory(store, [f"cat a{n % 8}/c/0/0 | wc -c" for n in range(reads)])
    assert [int(count) for count in said] == [LONG_CHUNK] * reads


# The length of a chunk of strings is known only when it is decoded.
def test_programs_that_read_the_longest_chunks_of_strings_stay_within_memory(mount_in_little_memory, tmp_path):
    store = tmp_path / "made"
    hostile.make("links_to_themselves", store)
    text = b"\x01\0\0\0" + (LONG_CHUNK - 8).to_bytes(4, "little") + bytes(LONG_CHUNK - 8)
    for n in range(8):
        hostile.node(store / f"a{n}", hostile.array((1,), (1,), "string", codecs=[{"name": "vlen-utf8"}, GZIP, GZIP]))
        hostile.put(store / f"a{n}/c/0", gzip.compress(gzip.compress(text, 1), 1))
    said = mount_in_little_memory(store, [f"cat a{n % 8}/c/0 | wc -c" for n in range(16)])
    assert [int(count) for count in said] == [LONG_CHUNK] * 16


ENCODERS = {
    "zstd": [codec("zstd", level=22, checksum=True)],
    "blosc": [codec("blosc", cname="zstd", clevel=9, shuffle="bitshuffle", typesize=255, blocksize=1 << 30)],
    "lzma": [codec("numcodecs.lzma", preset=9)],
}
# Random bytes twice, so that a compressor with long tables finds something.
WRITE = "python3 -c 'import random, sys; half = random.Random(1).randbytes(1 << 23); sys.stdout.buffer.write(half * 2)'"


@pytest.mark.parametrize("name", ENCODERS if LONG else ["zstd", "blosc"])
def test_programs_that_write_through_compressors_of_long_tables_stay_within_memory(mount_in_little_memory, mount, tmp_path, name):
    store, chunk = tmp_path / "made", (1 << 24,)
    hostile.make("links_to_themselves", store)
    for n in range(2):
        hostile.node(store / f"a{n}", hostile.array(chunk, chunk, codecs=[hostile.LITTLE, *ENCODERS[name]]))
    said = mount_in_little_memory(store, [f"mkdir -p a{n}/c; {WRITE} > a{n}/c/0 && echo stored" for n in range(2)])
    assert said == ["stored\n"] * 2
    with mount(store, copy=False) as m:
        m.allow("symbolic link")
        written = subprocess.run(["sh", "-c", WRITE], stdout=subprocess.PIPE, check=True).stdout
        assert all((m / f"a{n}/c/0").read_bytes() == written for n in range(2))


def test_a_chunk_that_its_codecs_make_too_long_to_read_is_refused(mount_in_little_memory, tmp_path):
    store = tmp_path / "made"
    hostile.make("links_to_themselves", store)
    hostile.node(store / "long", hostile.array((1 << 24,), (1 << 24,), codecs=[hostile.LITTLE, *[codec("numcodecs.base64")] * 15]))
    said = mount_in_little_memory(store, ["mkdir -p long/c; head -c 16777216 /dev/zero > long/c/0; cat .zarrfs/errors"], "can be read again")
    assert "File too large" in said[0] and "can be read again" in said[0], said
    assert not (store / "long/c/0").exists()


# The formats that keep the metadata of all nodes in a group.
VIEWS = ["nc", "nc4", "h5", "safetensors"]


@pytest.mark.skipif(not LONG, reason="takes a minute")
def test_programs_that_copy_and_view_groups_of_many_attributes_stay_within_memory(mount_in_little_memory, tmp_path):
    store = tmp_path / "made"
    hostile.make("links_to_themselves", store)
    members = {"attributes": {f"k{k}": list(range(50)) for k in range(100)}}
    for n in range(60):
        hostile.node(store / f"g/a{n}", hostile.array(**members, dimension_names=[f"x{n}"]))
    hostile.node(store / "g", {**hostile.GROUP, "attributes": {f"k{k}": "x" * 1000 for k in range(3000)}})
    read = "head -c 200000 {}.{} > /dev/null 2>&1"
    views = [read.format(node, view) for view in VIEWS for node in ("g", "__root__")]
    programs = ["; ".join(views), "cp -r g copied; mv copied moved; rm -r moved; getfattr -d g > /dev/null; cat g/zarr.json > /dev/null"]
    mount_in_little_memory(store, programs)
