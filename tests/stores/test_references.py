"""Icechunk repositories and kerchunk references in S3."""

import contextlib
import errno
import json
import os
from pathlib import Path

import icechunk
import numpy as np
import obstore
import pytest
import zarr

import servers
from mounts import Mount, until_end

FIXTURES = Path(__file__).parents[1] / "fixtures/icechunk"


@pytest.fixture
def mounted(proxy, tmp_path):
    """`with mounted(source, *options) as m:` mounts references through the proxy."""

    @contextlib.contextmanager
    def mounted(source, *options):
        path = tmp_path / f"mnt{len(list(tmp_path.iterdir()))}"
        with until_end(Mount(tmp_path / "none", path, "--endpoint", servers.endpoint(proxy.url), *options, source=source)) as m:
            m.expect("mounted read-only")
            yield m

    return mounted


def said(requests):
    return [f"{it.method} {it.path}" for it in requests]


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()))
def test_every_branch_and_tag_of_a_repository_is_what_the_library_reads(mounted, proxy, name):
    directory = FIXTURES / name
    about = json.loads((directory / "states.json").read_text())
    url = servers.upload(directory)
    proxy.take()
    with mounted(f"icechunk+{url}/repo", "--allow-virtual", f"{about['prefix']}={url}/virtual") as m:
        assert (m / "zarr.json").exists()
        # The branch and its snapshot, and a listing that shows whether the server lists.
        made = proxy.take()
        assert len(made) <= 5, said(made)
        for state, snapshot in about["names"].items():
            for path, array in about["snapshots"][snapshot]["arrays"].items():
                values = np.load(directory / "expected" / array["file"])
                found = servers.load(m / ".zarrfs" / state / f"{path}.npy")
                assert found.dtype == values.dtype and np.array_equal(found, values), (state, path)
        proxy.take()
        # Everything is in memory by now but the bytes of chunks, and they are in the cache.
        assert servers.load(m / "split.npy").shape == (20, 20)
        assert (m / "many/c/0/0").stat().st_size == 16
        assert proxy.take() == []


def test_the_chunks_of_a_file_are_requested_together(mounted, proxy, tmp_path):
    data = np.random.default_rng(3).integers(0, 256, 1 << 20, dtype="u1")
    array = {"zarr_format": 2, "shape": [1 << 20], "chunks": [1 << 14], "dtype": "|u1", "order": "C", "compressor": None, "filters": None, "fill_value": 0}
    source = tmp_path / "source"
    source.mkdir()
    data.tofile(source / "data.bin")
    for name, location in (("near.json", "data.bin"), ("far.json", "s3://noaa/2020/data.bin")):
        refs = {".zgroup": '{"zarr_format": 2}', "x/.zarray": json.dumps(array)}
        refs |= {f"x/{number}": [location, number << 14, 1 << 14] for number in range(64)}
        (source / name).write_text(json.dumps({"version": 1, "refs": refs}))
    url = servers.upload(source)
    for options, name in (((), "near.json"), (("--allow-virtual", f"s3://noaa/2020={url}"), "far.json")):
        with mounted(f"kerchunk+{url}/{name}", *options) as m:
            assert (m / "x/zarr.json").exists()
            proxy.take()
            assert np.array_equal(servers.load(m / "x.npy"), data)
            made = proxy.take()
            assert 1 <= len(made) <= 16, said(made)
    (source / "local.json").write_text((source / "far.json").read_text())
    with mounted(f"kerchunk+{source}/local.json", "--allow-virtual", f"s3://noaa/2020={url}") as m:
        assert np.array_equal(servers.load(m / "x.npy"), data)


def test_an_etag_is_a_condition(mounted, prefix, tmp_path):
    server = servers.client()
    place = f"{prefix}/a b.bin"
    tag = obstore.put(server, place, b"0123456789")["e_tag"]
    url = servers.url(prefix)
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repo")))
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="x", shape=(8,), chunks=(4,), dtype="u1", compressors=None)
    wrong = '"d41d8cd98f00b204e9800998ecf8427e"'
    for number, checksum in enumerate((tag, wrong)):
        reference = dict(offset=4 * number, length=4, checksum=checksum, validate_container=False)
        session.store.set_virtual_ref(f"x/c/{number}", f"{url}/a%20b.bin", **reference)
    session.commit("virtual")
    stale = "has changed since the reference to it was made: its ETag is not "
    with mounted(f"icechunk+{tmp_path}/repo", "--allow-virtual", servers.url("")) as m:
        assert (m / "x/c/0").read_bytes() == b"0123"
        m.refused(errno.ESTALE, stale, (m / "x/c/1").read_bytes)
    obstore.put(server, place, b"9876543210")
    with mounted(f"icechunk+{tmp_path}/repo", "--allow-virtual", servers.url("")) as m:
        m.refused(errno.ESTALE, stale, (m / "x/c/0").read_bytes)
        assert not os.path.exists(m / "x/c/2")
