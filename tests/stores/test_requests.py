"""How many requests programs cause on a mount of S3. They do not depend on the machine, so they are exact."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr
from zarr.storage import ObjectStore

import servers


@pytest.fixture
def root(prefix):
    """A hierarchy at the prefix, written by zarr-python."""
    return zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")


def values(*shape):
    return np.arange(np.prod(shape), dtype="i4").reshape(shape)


def paths(requests):
    """What was requested, as a sentence for a failure."""
    return "\n".join(f"{it.method} {it.path} {it.headers.get('range', '')} {it.status}" for it in requests)


def took(proxy, most):
    """The requests since the last time, without that of a new mount for changes that were interrupted."""
    made = [it for it in proxy.take() if not it.path.endswith(".zarrfs%2F")]
    assert len(made) <= most, f"{len(made)} requests, {most} at most:\n{paths(made)}"
    return made


def test_mounting_reads_a_metadata_file_and_lists_the_root(proxy, mount, root):
    with mount():
        took(proxy, 2)


def test_a_listing_with_attributes_is_one_request_for_a_thousand_names(proxy, mount, root):
    for name in range(30):
        root.create_group(f"g{name}").attrs["x"] = name
    with mount() as m:
        proxy.take()
        listed = subprocess.run(["ls", "-l", m.path], capture_output=True, text=True, check=True)
        assert len(listed.stdout.splitlines()) == 32
        took(proxy, 1)
        for _ in range(2):
            assert len(os.listdir(m.path)) == 31
            assert not (m / "nothing.npy").exists()
            assert not (m / ".git").exists()
        took(proxy, 0)


def test_a_group_is_found_with_a_request_for_each_level(proxy, mount, root):
    root.create_group("a/b/c").attrs["x"] = 1
    with mount() as m:
        proxy.take()
        assert b'"x": 1' in (m / "a/b/c/zarr.json").read_bytes().replace(b'"x":1', b'"x": 1')
        took(proxy, 3)


def test_a_chunk_is_one_request(proxy, mount, root):
    root.create_array("x", data=values(4, 100, 100), chunks=(1, 100, 100))
    with mount() as m:
        assert (m / "x/zarr.json").exists()
        proxy.take()
        assert (m / "x/c/2/0/0").read_bytes() == values(4, 100, 100)[2].tobytes()
        took(proxy, 1)


def test_an_inner_chunk_is_a_request_for_the_index_and_one_for_its_bytes(proxy, mount, root):
    root.create_array("x", data=values(8, 300, 300), chunks=(1, 300, 300), shards=(8, 300, 300))
    with mount() as m:
        assert (m / "x/zarr.json").exists()
        proxy.take()
        assert (m / "x/c/2/0/0").read_bytes() == values(8, 300, 300)[2].tobytes()
        took(proxy, 2)
        assert (m / "x/c/5/0/0").read_bytes() == values(8, 300, 300)[5].tobytes()
        took(proxy, 1)


def test_many_readers_of_one_chunk_cause_one_request(proxy, mount, root):
    root.create_array("x", data=values(1, 500, 500), chunks=(1, 500, 500))
    proxy.delay = 0.1
    with mount() as m:
        assert (m / "x/zarr.json").exists()
        proxy.take()
        with ThreadPoolExecutor(20) as pool:
            read = list(pool.map(lambda _: (m / "x/c/0/0/0").read_bytes(), range(20)))
        assert set(read) == {values(1, 500, 500).tobytes()}
        took(proxy, 1)


@pytest.mark.parametrize("shards, most", [(None, 64 + 6), ((16, 128, 512), 4 * 9)])
def test_a_sweep_requests_each_byte_once_and_many_at_a_time(proxy, mount, root, shards, most):
    data = np.random.default_rng(7).integers(0, 1 << 30, (64, 128, 512), dtype="i4")
    root.create_array("x", data=data, chunks=(1, 128, 512), shards=shards)
    with mount() as m:
        assert (m / "x.npy").exists()
        proxy.take()
        proxy.delay = 0.02
        assert np.array_equal(np.load(m / "x.npy"), data)
        made = took(proxy, most)
        assert proxy.most_under_way >= 3
        # What was read before the sweep was recognized, one shard at most, may be requested again.
        assert sum(request.length for request in made) < 1.3 * data.nbytes


def test_a_walk_over_many_directories_of_chunks_is_few_listings(proxy, mount, root):
    root.create_array("x", data=values(50, 4, 6), chunks=(1, 1, 6), compressors=None)
    with mount() as m:
        proxy.take()
        found = subprocess.run(["find", m / "x", "-type", "f"], capture_output=True, text=True, check=True)
        assert len(found.stdout.splitlines()) == 1 + 50 * 4
        took(proxy, 12)


def consolidated(prefix, version):
    """Arrays x0 to x9 in the root and in the group g, with consolidated metadata of the root."""
    store = ObjectStore(servers.client(prefix))
    root = zarr.open_group(store, mode="w", zarr_format=version)
    for group in [root, root.create_group("g")]:
        for number in range(10):
            group.create_array(f"x{number}", data=values(4, 5), chunks=(4, 5), attributes={"number": number})
    zarr.consolidate_metadata(store)
    return zarr.open_group(store, use_consolidated=False)


@pytest.mark.parametrize("version", [2, 3])
def test_consolidated_metadata_stand_for_the_metadata_files_of_arrays(proxy, mount, prefix, version):
    consolidated(prefix, version)
    with mount("-o", "ro") as m:
        proxy.take()
        for path in [f"{group}x{number}" for group in ["", "g/"] for number in range(10)]:
            assert np.array_equal(np.load(m / f"{path}.npy"), values(4, 5))
            assert zarr.open_array(m / path, mode="r").attrs["number"] == int(path[-1])
        made = took(proxy, 20 + 7)
        assert not [it for it in made if re.search(r"/x\d/(\.z|zarr\.json)", it.path)]


@pytest.mark.parametrize("version", [2, 3])
def test_an_outdated_copy_is_used_only_where_nothing_is_written(proxy, mount, prefix, version):
    root = consolidated(prefix, version)
    root["g/x1"].resize((6, 5))
    root["g/x1"].attrs["new"] = 1
    with mount("-o", "ro") as m:
        assert np.load(m / "g/x1.npy").shape == (4, 5)
    for options in [("-o", "ro", "--no-consolidated"), ("-o", "ro", "--metadata-ttl", "0s"), ()]:
        with mount(*options) as m:
            assert np.load(m / "g/x1.npy").shape == (6, 5)
    with mount() as m:
        zarr.open_group(m.path, mode="r+")["g/x1"].attrs["mine"] = 2
    array = zarr.open_group(root.store, use_consolidated=False)["g/x1"]
    assert array.shape == (6, 5) and array.attrs.asdict() == {"number": 1, "new": 1, "mine": 2}
    copy = zarr.open_consolidated(root.store)["g/x1"]
    assert copy.shape == (6, 5) and copy.attrs.asdict() == {"number": 1, "new": 1, "mine": 2}
