"""What cannot be: the right errno, a sentence in `.zarrfs/errors`, and the store byte for byte as before."""

import errno
import json
import os
import subprocess

import pytest

from hierarchies import document
from mounts import Mount, copy_of, files

LAYOUTS = [("v3", "zstd"), ("v3", "shards"), ("d2020-10", "gzip"), ("d2020-10", "shards")]
CHUNK_LEN = 4 * 5 * 4


@pytest.fixture(params=LAYOUTS, ids="-".join)
def untouched(request, mount, hierarchy):
    """A mount of a store that must be the same when it has ended."""
    original = hierarchy(*request.param)
    before = files(original)
    with mount(original) as m:
        yield m
    assert files(m.store) == before, "the store has changed"


def write(path, data, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC, offset=None, sync=False):
    """As a program writes: an error comes out of open, write, fsync or close."""
    fd = os.open(path, flags, 0o644)
    try:
        if offset is None:
            os.write(fd, data)
        else:
            os.pwrite(fd, data, offset)
        if sync:
            os.fsync(fd)
    except OSError:
        discard(fd)
        raise
    os.close(fd)


def discard(fd):
    try:
        os.close(fd)
    except OSError:
        pass


@pytest.mark.parametrize("length", [1, CHUNK_LEN - 1])
def test_a_short_chunk_is_refused_at_close(untouched, length):
    path = untouched / "x/c/1/2"
    before = path.read_bytes()
    sentence = rf"x/c/1/2: {length} bytes written, the chunk has {CHUNK_LEN}"
    untouched.refused(errno.EINVAL, sentence, lambda: write(path, b"x" * length))
    assert path.read_bytes() == before
    assert path.stat().st_size == CHUNK_LEN


def test_an_empty_chunk_is_refused_at_close(untouched):
    path = untouched / "x/c/1/2"
    untouched.expect(rf"x/c/1/2: 0 bytes written, the chunk has {CHUNK_LEN}")
    with pytest.raises(OSError) as failed:
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    assert failed.value.errno == errno.EINVAL
    assert len(path.read_bytes()) == CHUNK_LEN


def test_a_long_chunk_is_refused_and_nothing_of_it_is_taken(untouched):
    path = untouched / "x/c/1/2"
    before = path.read_bytes()
    sentence = rf"x/c/1/2: a write past the end: the chunk has {CHUNK_LEN} bytes"
    untouched.refused(errno.EFBIG, sentence, lambda: write(path, b"x" * (CHUNK_LEN + 1)))
    assert path.read_bytes() == before


@pytest.mark.parametrize("offset", [CHUNK_LEN - 1, CHUNK_LEN, 1 << 40])
def test_a_write_past_the_end_is_refused(untouched, offset):
    path = untouched / "x/c/0/0"
    sentence = r"x/c/0/0: a write past the end"
    untouched.refused(errno.EFBIG, sentence, lambda: write(path, b"xx", os.O_WRONLY, offset))


def test_appending_is_refused(untouched):
    sentence = r"x/c/0/0: a write past the end"
    untouched.refused(
        errno.EFBIG, sentence, lambda: write(untouched / "x/c/0/0", b"x", os.O_WRONLY | os.O_APPEND)
    )


def test_a_chunk_cannot_be_made_longer(untouched):
    sentence = rf"x/c/0/0: {CHUNK_LEN + 1} bytes: the limit of the file is {CHUNK_LEN}"
    untouched.refused(errno.EFBIG, sentence, lambda: os.truncate(untouched / "x/c/0/0", CHUNK_LEN + 1))


@pytest.mark.parametrize("name", ["c/0/6", "c/5/99", "c/0/18446744073709551615"])
def test_a_chunk_outside_of_the_grid_waits_and_is_refused_at_fsync(untouched, name):
    path = untouched / "x" / name
    sentence = rf"x/{name}: no such chunk: the array has \[6, 6\] chunks"
    untouched.refused(errno.EINVAL, sentence, lambda: write(path, b"x" * CHUNK_LEN, sync=True))
    assert path.read_bytes() == b"x" * CHUNK_LEN
    path.unlink()


def test_an_empty_directory_of_chunks_outside_of_the_grid_holds_no_chunk(untouched):
    row = untouched / "x/c/6"
    row.mkdir()
    sentence = r"x/c/6/0: no such chunk: the array has \[6, 6\] chunks"
    untouched.refused(errno.EINVAL, sentence, lambda: write(row / "0", b"x" * CHUNK_LEN, sync=True))
    (row / "0").unlink()
    row.rmdir()


def test_a_scratch_file_of_the_wrong_size_cannot_become_a_chunk(untouched):
    scratch = untouched / "x/c/0/scratch"
    scratch.write_bytes(b"x" * 7)
    sentence = rf"x/c/0/0: 7 bytes written, the chunk has {CHUNK_LEN}"
    untouched.refused(errno.EINVAL, sentence, lambda: os.rename(scratch, untouched / "x/c/0/0"))
    assert scratch.read_bytes() == b"x" * 7, "the scratch file is gone"
    scratch.unlink()


def rewrite(path, text):
    write(path, text if isinstance(text, bytes) else json.dumps(text).encode())


@pytest.mark.parametrize(
    "text",
    [b"{", b"not json", b'{"zarr_format": 3}', b"[1, 2]", b"\xff\xfe{}"],
)
@pytest.mark.parametrize("path", ["zarr.json", "x/zarr.json"])
def test_what_is_no_document_is_refused(untouched, path, text):
    if path == "zarr.json" and text == b'{"zarr_format": 3}':
        text = b'{"zarr_format": 2}'
    shown = (untouched / path).read_text()
    untouched.refused(errno.EINVAL, rf"{path}: ", lambda: rewrite(untouched / path, text))
    assert (untouched / path).read_text() == shown


CHANGES = {
    "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
    "data_type": "float32",
    "fill_value": 0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 10]}},
    "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "."}},
    "shape": [21, 26, 1],
    "zarr_format": 2,
    "node_type": "group",
    "storage_transformers": [{"name": "sharding"}],
    "dimension_names": ["only one"],
    "surprise": {"x": 1},
}


@pytest.mark.parametrize("member", CHANGES)
def test_a_document_that_would_change_what_chunks_mean_is_refused(untouched, member):
    path = untouched / "x/zarr.json"
    new = {**document(path.parent), member: CHANGES[member]}
    sentence = rf"x/zarr\.json: .*{member}"
    untouched.refused(errno.EINVAL, sentence, lambda: rewrite(path, new))
    assert document(path.parent) != new


def test_codecs_that_no_chunk_has_are_refused_for_an_array_that_exists(untouched):
    new = document(untouched / "x")
    new["codecs"].append({"name": "gzip", "configuration": {"level": 9}})
    untouched.refused(errno.EINVAL, r"x/zarr\.json: codecs", lambda: rewrite(untouched / "x/zarr.json", new))


def test_what_zarrfs_shows_of_itself_cannot_be_written(untouched):
    stored = untouched / ".zarrfs/stored/x"
    (name,) = os.listdir(stored)
    untouched.refused(errno.EINVAL, rf"{name}: .*missing", lambda: write(stored / name, b"{}"))
    untouched.refused(errno.EPERM, r"x/new: only the metadata file", lambda: write(stored / "new", b"{}"))
    untouched.refused(errno.EPERM, r"\.zarrfs/stats: read-only", lambda: write(untouched / ".zarrfs/stats", b""))
    untouched.refused(errno.EPERM, r"\.zarrfs/new: ", lambda: write(untouched / ".zarrfs/new", b""))


def test_names_of_the_stored_dialect_are_refused(mount, hierarchy):
    with mount(hierarchy("v3", "v2_keys_dots")) as m:
        m.refused(errno.EPERM, r"x/0\.0: the store has the array's chunks", lambda: write(m / "x/0.0", b"x"))


@pytest.mark.parametrize("options", [["-o", "ro"]])
@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
def test_a_read_only_mount_changes_nothing(mount, hierarchy, layout, options):
    original = hierarchy(*layout)
    before = {key: (hash, (original / key).stat()) for key, hash in files(original).items()}
    with mount(original, *options, copy=False) as m:
        chunk, array = m / "x/c/0/0", m / "x"
        attempts = [
            lambda: os.open(chunk, os.O_WRONLY),
            lambda: os.open(chunk, os.O_RDWR | os.O_TRUNC),
            lambda: os.open(array / "new", os.O_WRONLY | os.O_CREAT),
            lambda: os.open(array / "zarr.json", os.O_WRONLY),
            lambda: os.unlink(chunk),
            lambda: os.truncate(chunk, 0),
            lambda: os.rename(chunk, array / "c/0/1"),
            lambda: os.mkdir(array / "new"),
            lambda: os.utime(chunk),
            lambda: os.setxattr(array, "user.attrs.new", b"1"),
            lambda: os.removexattr(array, "user.attrs.units"),
            lambda: os.rmdir(array / "c/0"),
        ]
        for number, attempt in enumerate(attempts):
            with pytest.raises(OSError) as failed:
                attempt()
            assert failed.value.errno == errno.EROFS, number
        assert len(chunk.read_bytes()) == CHUNK_LEN
        os.listdir(array / "c/0")
    after = {key: (hash, (original / key).stat()) for key, hash in files(original).items()}
    assert before.keys() == after.keys()
    for key in before:
        assert before[key][0] == after[key][0] and before[key][1].st_mtime_ns == after[key][1].st_mtime_ns


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a tmpfs")
@pytest.mark.parametrize("shards", [None, (2, 1 << 18)])
def test_a_full_disk_fails_the_close_and_keeps_both_the_old_chunk_and_the_new(tmp_path, shards):
    import numpy as np
    import zarr

    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(4, 1 << 18), chunks=(1, 1 << 18), shards=shards, dtype="u4", compressors=None
    )
    array[:2] = 7
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6M", "tmpfs", str(disk)], check=True)
    try:
        store = copy_of(tmp_path / "x.zarr", disk / "x.zarr")
        with open(disk / "filler", "wb") as filler:
            filler.write(bytes(3584 << 10))
        before = files(store)
        m = Mount(store, tmp_path / "mnt", "--writeback=sync")
        m.allow("write back")
        try:
            new = np.random.default_rng(1).integers(0, 1 << 32, 1 << 18, dtype="u4").tobytes()
            os.mkdir(m / "c/3")
            for name in ("0/0", "1/0", "3/0"):
                m.refused(errno.ENOSPC, r"c/\d/0", lambda: write(m / "c" / name, new))
                fd = os.open(m / "c" / name, os.O_RDWR | os.O_CREAT, 0o644)
                m.refused(errno.ENOSPC, r"c/\d/0", lambda: (os.write(fd, new), os.fsync(fd)))
                discard(fd)
                assert (m / "c" / name).read_bytes() == new, "what waits is not shown"
            assert files(store) == before
            os.unlink(m / "c/3/0")
            os.unlink(disk / "filler")
            write(m / "c/0/0", new)
        finally:
            m.end()
        array = zarr.open_array(store, mode="r")
        assert array[0].tobytes() == new and array[1].tobytes() == new, "not tried again"
        assert not array[3].any()
        assert os.statvfs(disk).f_bfree > 0
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
def test_a_rename_that_is_refused_leaves_an_open_chunk_what_it_is(mount, hierarchy, layout):
    with mount(hierarchy(*layout)) as m:
        fd = os.open(m / "x/c/0/0", os.O_RDWR)
        (m / "x/c/0/scratch").write_bytes(b"x" * 7)
        sentence = "7 bytes written"
        m.refused(errno.EINVAL, sentence, lambda: os.rename(m / "x/c/0/scratch", m / "x/c/0/0"))
        os.pwrite(fd, b"\x01\x02\x03\x04", 8)
        os.close(fd)
        (m / "x/c/0/scratch").unlink()
        assert (m / "x/c/0/0").read_bytes()[8:12] == b"\x01\x02\x03\x04", "what was written is lost"
