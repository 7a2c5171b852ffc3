"""The disk cache: bytes from S3 that later mounts read from a local disk."""

import http.server
import json
import os
import random
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
import zarr
from zarr.storage import ObjectStore

import servers
from mounts import BIN

SHAPE, CHUNKS = (40, 200, 100), (1, 100, 100)


@pytest.fixture
def root(prefix):
    """A hierarchy at the prefix, written by zarr-python."""
    return zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")


@pytest.fixture
def cache(tmp_path):
    """The directory of a cache."""
    return tmp_path / "cache"


def run(*arguments):
    return subprocess.run([BIN, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def values(seed=0):
    return np.random.default_rng(seed).integers(0, 1 << 30, SHAPE, dtype="i4")


def gets(proxy):
    return [it for it in proxy.take() if it.method == "GET" and not servers.is_listing(it)]


def files(cache):
    return [path for path in cache.glob("zarrfs-cache/??/*") if path.is_file()]


@pytest.mark.parametrize("shards", [None, (20, 200, 100)])
def test_a_later_mount_reads_from_the_disk_and_lists_to_see_that_nothing_changed(proxy, mount, root, cache, shards):
    data = values()
    root.create_array("x", data=data, chunks=CHUNKS, shards=shards)
    for _ in range(2):
        with mount("--disk-cache", cache) as m:
            assert np.array_equal(servers.load(m / "x.npy"), data)
    proxy.take()
    with mount("--disk-cache", cache) as m:
        assert np.array_equal(servers.load(m / "x.npy"), data)
        assert m.stats()["zarrfs_disk_cache_hits_total"] > 0
    made = proxy.take()
    assert len(made) <= 8, [f"{it.method} {it.path} {it.length}" for it in made]
    assert sum(it.length for it in made) < 100_000


def test_a_value_that_changed_is_read_again(mount, root, cache):
    array = root.create_array("x", data=values(), chunks=CHUNKS)
    for seed in range(3):
        data = values(seed)
        array[...] = data
        with mount("--disk-cache", cache) as m:
            assert np.array_equal(servers.load(m / "x.npy"), data)


def test_a_change_by_the_mount_is_seen_by_it(mount, root, cache):
    data = values()
    root.create_array("x", data=data, chunks=CHUNKS)
    with mount("--disk-cache", cache) as m:
        assert np.array_equal(servers.load(m / "x.npy"), data)
        data[3, :100] = 7
        (m / "x/c/3/0/0").write_bytes(data[3, :100].tobytes())
        assert np.array_equal(servers.load(m / "x.npy"), data)
    with mount("--disk-cache", cache) as m:
        assert np.array_equal(servers.load(m / "x.npy"), data)


def test_damaged_files_are_fetched_again(mount, root, cache):
    data = values()
    root.create_array("x", data=data, chunks=CHUNKS)
    with mount("--disk-cache", cache) as m:
        assert np.array_equal(servers.load(m / "x.npy"), data)
    numbers = random.Random(7)
    for path in files(cache):
        content = bytearray(path.read_bytes())
        match numbers.randrange(4):
            case 0:
                content[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
            case 1:
                del content[numbers.randrange(len(content)) :]
            case 2:
                content += bytes(1000)
            case _:
                content = bytearray()
        path.write_bytes(content)
    for _ in range(2):
        with mount("--disk-cache", cache) as m:
            assert np.array_equal(servers.load(m / "x.npy"), data)


def test_a_cache_of_a_killed_mount_is_good(mount, root, cache):
    data = values()
    root.create_array("x", data=data, chunks=CHUNKS)
    for number in range(5):
        with mount("--disk-cache", cache) as m:
            reader = threading.Thread(target=lambda: subprocess.run(["cat", m / "x.npy"], capture_output=True))
            reader.start()
            time.sleep(0.02 * number)
            os.kill(m.pid, signal.SIGKILL)
            reader.join()
    with mount("--disk-cache", cache) as m:
        assert np.array_equal(servers.load(m / "x.npy"), data)


def test_mounts_share_a_cache(proxy, mount, root, cache):
    data = values()
    root.create_array("x", data=data, chunks=CHUNKS)
    with mount("--disk-cache", cache) as one, mount("--disk-cache", cache) as other:
        found = {}

        def read(m):
            found[m] = servers.load(m / "x.npy")

        readers = [threading.Thread(target=read, args=[m]) for m in (one, other)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert all(np.array_equal(found[m], data) for m in (one, other))
    proxy.take()
    with mount("--disk-cache", cache) as m:
        assert np.array_equal(servers.load(m / "x.npy"), data)
    assert len([it for it in gets(proxy) if "/c/" in it.path and it.length > 1]) <= 8


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_only_costs_the_cache(mount, root, small_disk):
    data = values()
    root.create_array("x", data=data, chunks=CHUNKS)
    for _ in range(2):
        with mount("--disk-cache", small_disk / "cache") as m:
            m.allow("the disk cache cannot be written")
            assert np.array_equal(servers.load(m / "x.npy"), data)
    assert os.statvfs(small_disk).f_bavail > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_disk_that_others_filled_is_named_in_the_log(mount, root, small_disk):
    data = values()
    root.create_array("x", data=data, chunks=CHUNKS)
    (small_disk / "of_others").write_bytes(bytes(580_000))
    with mount("--disk-cache", small_disk / "cache") as m:
        m.expect("bytes of the disk are free, and the cache leaves")
        assert np.array_equal(servers.load(m / "x.npy"), data)
    assert not files(small_disk / "cache")


def test_the_size_is_kept(mount, root, cache):
    data = values()
    root.create_array("x", data=data, chunks=CHUNKS)
    for _ in range(2):
        with mount("--disk-cache", cache, "--disk-cache-size", "1M") as m:
            assert np.array_equal(servers.load(m / "x.npy"), data)
        assert sum(path.stat().st_blocks * 512 for path in files(cache)) <= 1 << 20
    assert files(cache)


def test_commands_use_the_cache_too(proxy, prefix, root, cache):
    data = values()
    root.create_array("x", data=data, chunks=CHUNKS)
    url = servers.url(prefix)
    options = ["--endpoint", servers.endpoint(proxy.url), "--disk-cache", str(cache)]
    for command in [["check", url], ["check", url]]:
        proxy.take()
        assert run(*command, *options).returncode == 0
    assert sum(it.length for it in proxy.take()) < 200_000


def test_a_directory_that_others_may_write_to_is_refused(prefix, root, cache):
    (cache / "zarrfs-cache").mkdir(parents=True)
    (cache / "zarrfs-cache").chmod(0o777)
    failed = run("tree", servers.url(prefix), "--disk-cache", str(cache))
    assert failed.returncode == 1
    assert "other users may write to it" in failed.stderr and str(cache) in failed.stderr
    failed = run("tree", servers.url(prefix), "--disk-cache", "/proc/none")
    assert failed.returncode == 1 and failed.stderr.count("\n") == 1


def test_an_object_without_a_name_of_its_own_is_not_taken_for_another(mount, root, cache, prefix):
    """Two buckets, or two prefixes, may have the same keys."""
    data = values()
    root.create_array("x", data=data, chunks=CHUNKS)
    other = zarr.open_group(ObjectStore(servers.client(prefix + "/other")), mode="w")
    other.create_array("x", data=data + 1, chunks=CHUNKS)
    with mount("--disk-cache", cache) as m, mount("--disk-cache", cache, below="other") as n:
        assert np.array_equal(servers.load(m / "x.npy"), data)
        assert np.array_equal(servers.load(n / "x.npy"), data + 1)
        # The same object by another URL is one object.
        assert np.array_equal(servers.load(m / "other/x.npy"), data + 1)


def test_files_of_the_user_in_the_directory_stay(prefix, root, tmp_path):
    data = tmp_path / "data"
    mine = ["v1/run1/new-measurements.csv", "v1/run1/results.nc", "new-notes", "ab/0123456789abcdef0123456789abcd"]
    for name in mine:
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(bytes(1 << 20))
        os.utime(data / name, (0, 0))
    root.create_array("x", data=values(), chunks=CHUNKS)
    for _ in range(2):
        done = run("check", servers.url(prefix), "--disk-cache", data, "--disk-cache-size", "1M")
        assert done.returncode == 0, done.stderr
    assert [name for name in mine if not (data / name).exists()] == []
    assert (data / "zarrfs-cache/CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert not (data / "CACHEDIR.TAG").exists(), "a backup needs the files of the user"


class Tenants(http.server.BaseHTTPRequestHandler):
    """A web server whose values depend on the query and a header, without entity tags."""

    protocol_version = "HTTP/1.1"
    META = json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [2],
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default"},
            "fill_value": 0,
            "codecs": [{"name": "bytes"}],
        }
    ).encode()

    def log_message(self, *_):
        pass

    def do_GET(self):
        path, _, query = self.path.partition("?")
        tenant = query.removeprefix("u=") or self.headers.get("X-Tenant", "0")
        body = {"/a/zarr.json": self.META, "/a/c/0": bytes([int(tenant)] * 2)}.get(path)
        self.send_response(404 if body is None else 200)
        self.send_header("Last-Modified", "Tue, 14 Nov 2023 22:13:20 GMT")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body or b"")

    do_HEAD = do_GET


def test_urls_and_headers_that_differ_have_bytes_of_their_own(cache):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tenants)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/a"
    try:
        for _ in range(2):
            for tenant, words in [
                (1, [f"{url}?u=1"]),
                (2, [f"{url}?u=2"]),
                (0, [url]),
                (3, [url, "--header", "X-Tenant: 3"]),
                (4, [url, "--header", "X-Tenant: 4"]),
            ]:
                done = subprocess.run(
                    [BIN, "cat", *words, "--as", "raw", "--disk-cache", cache], capture_output=True, timeout=60
                )
                assert done.stdout == bytes([tenant] * 2), (words, done)
    finally:
        server.shutdown()
