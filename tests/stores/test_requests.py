"""How many requests programs cause on a mount of S3. They do not depend on the machine, so they are exact."""

import json
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import obstore
import pytest
import zarr
from zarr.storage import ObjectStore

import servers
from proxy import Fault


# Azure sends the last bytes only to clients that know the length, and a condition for Google names a generation.
OF_SUFFIX = 1 if servers.PROVIDER == "az" else 0
OF_GENERATION = 1 if servers.PROVIDER == "gs" else 0


def is_deletion(request):
    return request.method == "DELETE" or "?delete" in request.path or "comp=batch" in request.path


@pytest.fixture
def root(prefix):
    """A hierarchy at the prefix, written by zarr-python."""
    return zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")


def values(*shape):
    return np.arange(np.prod(shape), dtype="i4").reshape(shape)


def sync(directory):
    descriptor = os.open(directory, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


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


@pytest.mark.parametrize("version", [2, 3])
def test_a_group_that_was_not_read_is_listed_with_one_request(proxy, mount, prefix, version):
    root = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w", zarr_format=version)
    for group in ["g", "h"]:
        for name in range(20):
            root.create_group(f"{group}/a{name:02}").attrs["x"] = name
    with mount() as m:
        assert sorted(os.listdir(m.path)) == ["g", "h", "zarr.json"]
        proxy.take()
        listed = subprocess.run(["ls", m / "g"], capture_output=True, text=True, check=True)
        assert listed.stdout.split() == [f"a{name:02}" for name in range(20)] + ["zarr.json"]
        took(proxy, 1)
        # The length of the metadata file as it is shown is not that of the stored one: .zgroup and .zattrs are two.
        listed = subprocess.run(["ls", "-l", m / "h"], capture_output=True, text=True, check=True)
        assert len(listed.stdout.splitlines()) == 22
        took(proxy, 2 if version == 3 else 4)
        assert os.path.getsize(m / "h/zarr.json") == len((m / "h/zarr.json").read_bytes())
        took(proxy, 0)


def test_find_over_groups_of_arrays_without_chunks_is_few_listings(proxy, mount, prefix, root):
    names = [f"g{group}/a{name:02}" for group in range(5) for name in range(50)]
    root.create_array("like", shape=(4,), chunks=(4,), dtype="i4")
    client = servers.client(prefix)
    array, group = (bytes(obstore.get(client, f"{path}zarr.json").bytes()) for path in ["like/", ""])
    for name in names:
        obstore.put(client, f"{name}/zarr.json", array)
    for name in range(5):
        obstore.put(client, f"g{name}/zarr.json", group)
    with mount() as m:
        proxy.take()
        found = subprocess.run(["find", m.path, "-name", "a*"], capture_output=True, text=True, check=True)
        assert sorted(found.stdout.split()) == [str(m / name) for name in names]
        took(proxy, 10)


@pytest.mark.parametrize("keys", ["default/", "default.", "v2.", "v2/"])
@pytest.mark.parametrize("is_whole", [False, True])
def test_an_array_that_was_not_read_lists_the_names_of_its_decoded_chunks(proxy, mount, root, keys, is_whole):
    encoding = {"name": keys[:-1], "separator": keys[-1]}
    array = root.create_array("x", shape=(2, 2), chunks=(1, 1), dtype="i4", chunk_key_encoding=encoding)
    if is_whole:
        array[...] = values(2, 2)
    root.create_array("scalar", shape=(), dtype="i4", chunk_key_encoding=encoding)[...] = 7
    with mount() as m:
        assert sorted(os.listdir(m / "x")) == ["c", "zarr.json"][0 if is_whole else 1 :]
        assert sorted(os.listdir(m / "scalar")) == ["c", "zarr.json"]
        assert np.frombuffer((m / "scalar/c").read_bytes(), "<i4") == 7
        if is_whole:
            assert sorted(os.listdir(m / "x/c/1")) == ["0", "1"]
            assert np.frombuffer((m / "x/c/1/0").read_bytes(), "<i4") == 2


def test_an_array_of_zarr_2_that_was_not_read_has_each_name_once(proxy, mount, prefix):
    root = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w", zarr_format=2)
    root.create_array("x", data=values(2, 2), chunks=(1, 1))
    root.create_array("y", shape=(2, 2), chunks=(1, 1), dtype="i4")
    with mount() as m:
        assert sorted(os.listdir(m / "x")) == ["c", "zarr.json"]
        assert os.listdir(m / "y") == ["zarr.json"]


def test_a_directory_of_files_in_an_array_that_was_not_read_is_no_node(proxy, mount, prefix, root):
    root.create_array("x", data=values(2, 2), chunks=(1, 1))
    obstore.put(servers.client(prefix), "x/a/notes.txt", b"text")
    with mount() as m:
        assert sorted(os.listdir(m / "x")) == ["a", "c", "zarr.json"]
        assert os.listdir(m / "x/a") == ["notes.txt"]
        subprocess.run(["rm", "-r", m / "x/a"], check=True)
        # The server may still list it.
        assert sorted(os.listdir(m / "x")) == ["c", "zarr.json"]
    assert "x/a/notes.txt" not in servers.keys(prefix)


def test_a_chunk_that_another_mount_has_stored_is_replaced_by_fill_values(proxy, mount, root):
    root.create_array("x", data=values(4, 4), chunks=(1, 4), shards=(4, 4))
    root["x"][1:2] = 0
    with mount("--skip-fill-chunks") as m:
        assert not (m / "x/c/1/0").exists()
        root["x"][1:2] = 7
        (m / "x/c/1/0").write_bytes(bytes(16))
        sync(m.path)
    assert (root["x"][1:2] == 0).all() and (root["x"][2:3] == values(4, 4)[2:3]).all()


def test_a_group_that_cannot_be_read_ends_its_listing_at_once(proxy, mount, root):
    for name in range(200):
        root.create_group(f"g/{name}")
    with mount("--retry-for", "1s") as m:
        assert len(os.listdir(m / "g")) == 201
    with mount("--retry-for", "1s") as m:
        m.allow(".*g/zarr.json.*")
        proxy.faults = [Fault(lambda request: request.path.endswith("/g/zarr.json"), status=500)]
        began = time.monotonic()
        with pytest.raises(OSError):
            os.listdir(m / "g")
        # Each of 200 names may take a second.
        assert time.monotonic() - began < 20
        proxy.faults = []


def test_a_program_that_reads_one_metadata_file_after_the_other_has_the_next_ones_requested(proxy, mount, root):
    for name in range(60):
        root.create_group(f"g/a{name:02}").attrs["number"] = name
    # A slow machine needs its time to make so many requests before the first is answered.
    for delay in (0.05, 0.5):
        proxy.delay = 0
        with mount() as m:
            assert len(os.listdir(m / "g")) == 61
            proxy.take()
            proxy.delay = delay
            for name in range(60):
                assert json.loads((m / f"g/a{name:02}/zarr.json").read_text())["attributes"] == {"number": name}
            took(proxy, 61)
        if proxy.most_under_way >= 8:
            break
    assert proxy.most_under_way >= 8


def test_nodes_that_are_read_here_and_there_have_no_others_requested(proxy, mount, root):
    for name in range(40):
        root.create_group(f"a{name:02}").attrs["number"] = name
    with mount() as m:
        assert len(os.listdir(m.path)) == 41
        proxy.take()
        for name in [30, 10, 20, 0, 39]:
            assert not (m / f"a{name:02}.npy").exists()
            (m / f"a{name:02}/zarr.json").read_bytes()
        took(proxy, 5)


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
        took(proxy, 2 + OF_SUFFIX)
        assert (m / "x/c/5/0/0").read_bytes() == values(8, 300, 300)[5].tobytes()
        took(proxy, 1)


def test_the_change_of_an_inner_chunk_is_five_requests_and_the_next_one_four(proxy, mount, root):
    data = np.random.default_rng(7).integers(0, 1 << 30, (64, 128, 512), dtype="i4")
    root.create_array("x", data=data, chunks=(1, 128, 512), shards=(64, 128, 512))
    with mount() as m:
        assert (m / "x/zarr.json").exists()
        proxy.take()
        (m / "x/c/30/0/0").write_bytes(data[0].tobytes())
        sync(m.path)
        # Those that try the conditions are made once in a mount.
        made = [it for it in proxy.take() if "/.zarrfs/probe-" not in it.path and not is_deletion(it)]
        # One of them asks whether another program has replaced the array.
        assert len(made) <= 5 + OF_SUFFIX + OF_GENERATION, paths(made)
        (m / "x/c/9/0/0").write_bytes(data[1].tobytes())
        sync(m.path)
        took(proxy, 4 + OF_GENERATION)
    data[30], data[9] = data[0], data[1]
    assert np.array_equal(root["x"][...], data)


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
        assert np.array_equal(servers.load(m / "x.npy"), data)
        made = took(proxy, most)
        assert proxy.most_under_way >= 3
        # What was read of the first two shards before the sweep was recognized may be requested again.
        assert sum(request.length for request in made) < 1.6 * data.nbytes


def test_a_walk_over_many_directories_of_chunks_is_few_listings(proxy, mount, root):
    root.create_array("x", data=values(50, 4, 6), chunks=(1, 1, 6), compressors=None)
    with mount() as m:
        proxy.take()
        found = subprocess.run(["find", m / "x", "-type", "f"], capture_output=True, text=True, check=True)
        assert len(found.stdout.splitlines()) == 1 + 50 * 4
        took(proxy, 12)


def test_a_directory_of_chunks_is_listed_once(proxy, mount, prefix, root):
    root.create_array("x", data=np.ones(1500, "u1"), chunks=(1,), compressors=None, fill_value=0)
    with mount() as m:
        assert (m / "x/zarr.json").exists()
        proxy.take()
        assert len(os.listdir(m / "x/c")) == 1500
        took(proxy, 2)


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
def test_consolidated_metadata_stand_for_the_metadata_files_of_nodes(proxy, mount, prefix, version):
    consolidated(prefix, version)
    with mount("-o", "ro") as m:
        proxy.take()
        chunk = "0.0" if version == 2 else "c/0/0"
        assert (m / "g/x3/c/0/0").read_bytes() == values(4, 5).tobytes()
        # .zmetadata is another value than the metadata file of the root.
        made = took(proxy, 2 if version == 2 else 1)
        assert made[-1].path.endswith(f"/g/x3/{chunk}")
        for path in [f"{group}x{number}" for group in ["", "g/"] for number in range(10)]:
            assert np.array_equal(servers.load(m / f"{path}.npy"), values(4, 5))
            assert zarr.open_array(m / path, mode="r").attrs["number"] == int(path[-1])
        group = zarr.open_group(m / "g", mode="r", zarr_format=3)
        assert sorted(group.keys()) == [f"x{number}" for number in range(10)]
        made = took(proxy, 20 + 5)
        assert not [it for it in made if re.search(r"/(g|x\d)/(\.z|zarr\.json)", it.path)], paths(made)


@pytest.mark.parametrize("version", [2, 3])
def test_an_outdated_copy_is_used_only_where_nothing_is_written(proxy, mount, prefix, version):
    root = consolidated(prefix, version)
    root["g/x1"].resize((6, 5))
    root["g/x1"].attrs["new"] = 1
    with mount("-o", "ro") as m:
        assert servers.load(m / "g/x1.npy").shape == (4, 5)
    for options in [("-o", "ro", "--no-consolidated"), ("-o", "ro", "--metadata-ttl", "0s"), ()]:
        with mount(*options) as m:
            assert servers.load(m / "g/x1.npy").shape == (6, 5)
    with mount() as m:
        zarr.open_group(m.path, mode="r+")["g/x1"].attrs["mine"] = 2
    array = zarr.open_group(root.store, use_consolidated=False)["g/x1"]
    assert array.shape == (6, 5) and array.attrs.asdict() == {"number": 1, "new": 1, "mine": 2}
    copy = zarr.open_consolidated(root.store)["g/x1"]
    assert copy.shape == (6, 5) and copy.attrs.asdict() == {"number": 1, "new": 1, "mine": 2}
