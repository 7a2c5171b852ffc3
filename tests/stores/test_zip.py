"""Zip archives in a bucket: how many requests they take, and what happens when one is replaced."""

import contextlib
import errno
import os
import subprocess

import numpy as np
import obstore
import pytest
import zarr

import servers
from mounts import BIN, PATIENCE
from test_requests import took, values


@pytest.fixture
def zipped(mount, prefix, tmp_path):
    """`with zipped(make) as m:` mounts the archive that zarr-python made by `make(store)`."""

    def put(make):
        archive = tmp_path / "made.zip"
        archive.unlink(missing_ok=True)
        with zarr.storage.ZipStore(archive, mode="w") as store:
            make(store)
        obstore.put(servers.client(prefix), "made.zip", archive.read_bytes())
        return archive

    @contextlib.contextmanager
    def mounted(make, *options):
        archive = put(make)
        with mount(*options, below="made.zip") as m:
            m.allow("mounted read-only, because it is a zip archive")
            m.archive, m.put = archive, put
            yield m

    return mounted


def chunks(count):
    """Makes an array of `count` chunks of 400,000 bytes."""

    def make(store):
        data = values(count, 100_000)
        zarr.create_array(store, data=data, chunks=(1, 100_000), compressors=None, filters=None)

    return make


@pytest.mark.s3
def test_a_chunk_of_an_archive_is_one_request(proxy, zipped):
    with zipped(chunks(40)) as m:
        # The end of the archive has all names; the metadata file of the root.
        took(proxy, 2)
        assert len(os.listdir(m / "c")) == 40
        took(proxy, 0)
        assert np.array_equal(np.fromfile(m / "c/7/0", "i4"), values(40, 100_000)[7])
        took(proxy, 1)
        assert not (m / "c/40").exists() and not (m / ".git").exists()
        took(proxy, 0)


@pytest.mark.s3
def test_a_long_directory_is_one_request_more(proxy, zipped):
    def make(store):
        zarr.create_array(store, data=values(5000), chunks=(1,), compressors=None, filters=None)

    with zipped(make) as m:
        took(proxy, 3)
        found = subprocess.run(["ls", "-l", m / "c"], capture_output=True, text=True, check=True)
        # The first chunk is the fill value, which zarr-python does not store.
        assert len(found.stdout.splitlines()) == 5000
        took(proxy, 0)


@pytest.mark.s3
def test_an_inner_chunk_of_a_shard_is_one_request_after_the_index(proxy, zipped):
    def make(store):
        data = values(40, 100_000)
        zarr.create_array(store, data=data, chunks=(1, 100_000), shards=(40, 100_000), compressors=None)

    with zipped(make) as m:
        took(proxy, 2)
        assert np.array_equal(np.fromfile(m / "c/7/0", "i4"), values(40, 100_000)[7])
        # The local header, the index and the chunk.
        took(proxy, 3)
        assert np.array_equal(np.fromfile(m / "c/20/0", "i4"), values(40, 100_000)[20])
        took(proxy, 1)


def test_a_sweep_over_an_archive_joins_its_requests(proxy, zipped):
    with zipped(chunks(64)) as m:
        proxy.take()
        assert np.array_equal(np.fromfile(m / "__root__.bin", "i4"), values(64, 100_000).ravel())
        took(proxy, 64)


def test_commands_read_an_archive_at_a_url(proxy, prefix, zipped, tmp_path):
    def make(store):
        zarr.create_group(store).create_array("g/t2m", data=values(12), chunks=(4,))

    url = servers.url(f"{prefix}/made.zip")

    def run(*words, code=0):
        command = [BIN, *map(str, words), "--endpoint", servers.endpoint(proxy.url)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    with zipped(make) as m:
        assert "t2m" in run("tree", url)
        assert "int32" in run("info", f"{url}#g/t2m")
        run("convert", url, tmp_path / "copy.zarr")
        run("diff", tmp_path / "copy.zarr", m.archive)
        assert "does not change zip archives" in run("create", url, code=1)
        assert "local directories only" in run("convert", tmp_path / "copy.zarr", f"{url}.zip", code=1)


def test_a_replaced_archive_is_never_mixed_with_the_one_before(zipped, prefix):
    def full(value):
        def make(store):
            data = np.full((4, 100_000), value, "i4")
            zarr.create_array(store, data=data, chunks=(1, 100_000), compressors=None, filters=None)

        return make

    with zipped(full(1), "--metadata-ttl", "0s") as m:
        for value in range(2, 12):
            m.put(full(value))
            # numpy.fromfile would ask for the length while it keeps the proxy from running.
            found = np.frombuffer(b"".join((m / f"c/{at}/0").read_bytes() for at in range(4)), "i4")
            assert set(found) == {value}
        m.expect("the zip archive is gone")
        obstore.delete(servers.client(prefix), "made.zip")
        with pytest.raises(OSError) as failed:
            (m / "c/0/0").read_bytes()
        assert failed.value.errno == errno.ESTALE
