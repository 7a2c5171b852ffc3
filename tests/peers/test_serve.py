"""`zarrfs serve`: every file of the tree over HTTP, to raw sockets, curl and the libraries that read URLs."""

import contextlib
import email.utils
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile
import xarray
import zarr

from mounts import BIN, PATIENCE, Mount, copy_of, is_alive, until_end, wait_until
from serving import Server, serving
from torture import LONG

FIXTURES = sorted((Path(__file__).parent.parent / "fixtures").glob("*/store"))
REJECTED = re.compile("reject")


@pytest.fixture
def climate(tmp_path):
    """A store with what the tests ask for."""
    group = zarr.create_group(tmp_path / "climate.zarr", attributes={"title": "a < b"})
    data = np.arange(64 * 96, dtype="f4").reshape(64, 96)
    group.create_array("t2m", data=data, chunks=(16, 32), shards=(32, 96), dimension_names=["y", "x"])
    group.create_array("big", shape=(1 << 30,), dtype="u1", chunks=(1 << 20,), fill_value=7, dimension_names=["n"])
    group.create_group("a group").create_array("50%", data=np.arange(3, dtype="i2"))
    return tmp_path / "climate.zarr"


@pytest.fixture
def server(climate):
    with serving(climate) as server:
        yield server


def test_a_file_comes_whole_and_in_each_form_of_a_range(server):
    status, headers, whole = server.get("t2m.npy")
    assert (status, int(headers["Content-Length"]), headers["Accept-Ranges"]) == (200, len(whole), "bytes")
    assert np.array_equal(np.frombuffer(whole[128:], "f4"), np.arange(64 * 96, dtype="f4"))
    length = len(whole)
    for asked, first, last in [("0-9", 0, 9), ("100-", 100, length - 1), ("-7", length - 7, length - 1), ("5-99999999", 5, length - 1)]:
        status, headers, part = server.get("t2m.npy", Range=f"bytes={asked}")
        assert (status, headers["Content-Range"]) == (206, f"bytes {first}-{last}/{length}"), asked
        assert part == whole[first : last + 1]
    for asked in [f"{length}-", f"{length}-{length + 5}", "-0"]:
        status, headers, _ = server.get("t2m.npy", Range=f"bytes={asked}")
        assert (status, headers["Content-Range"]) == (416, f"bytes */{length}"), asked
    for ignored in ["bytes=9-5", "bytes=0-1,4-5", "lines=1-2"]:
        assert server.get("t2m.npy", Range=ignored)[0] == 200
    many = "bytes=" + ",".join("0-0" for _ in range(10_000))
    assert server.get("t2m.npy", Range=many)[2] == whole


def test_a_head_has_the_headers_of_the_get_and_no_body(server):
    for path in ["t2m.nc", "t2m/c/0/0", "zarr.json", "", "missing"]:
        head, get = server.get(path, "HEAD"), server.get(path)
        assert head[0] == get[0] and head[2] == b"", path
        assert head[1]["ETag"] == get[1]["ETag"] and head[1]["Content-Type"] == get[1]["Content-Type"]
        if get[0] == 200 and get[1]["Content-Length"]:
            assert head[1]["Content-Length"] == get[1]["Content-Length"], path


@pytest.mark.parametrize("path", ["t2m.npy", "t2m/c/0/0", "t2m/zarr.json"])
def test_a_tag_changes_with_the_bytes_and_conditions_are_kept(server, climate, path):
    _, headers, before = server.get(path)
    tag = headers["ETag"]
    assert not tag.startswith("W/")
    assert server.get(path)[1]["ETag"] == tag
    assert server.get(path, If_None_Match=tag)[::2] == (304, b"")
    assert server.get(path, If_Modified_Since=headers["Last-Modified"])[0] == 304
    assert server.get(path, If_Match='"other"')[0] == 412
    assert server.get(path, Range="bytes=0-3", If_Range=tag)[0] == 206
    assert server.get(path, Range="bytes=0-3", If_Range='"other"')[0] == 200
    array = zarr.open_array(climate / "t2m")
    array[0, 0] = 5
    array.attrs["changed"] = True

    def has_changed():
        return server.get(path)[1]["ETag"] != tag and server.get(path)[2] != before

    assert wait_until(has_changed)
    assert server.get(path, If_None_Match=tag)[0] == 200
    assert server.get(path, Range="bytes=0-3", If_Range=tag)[0] == 200


@pytest.mark.parametrize("view", ["words.nc", "words.h5", "count.txt", "__root__.nc"])
def test_a_tag_changes_with_the_values_in_a_header(view, tmp_path):
    """Strings and short texts are in the header, and a change of them leaves the metadata and the length as they were."""
    group = zarr.create_group(tmp_path / "words.zarr")
    words = group.create_array("words", shape=(2,), chunks=(2,), dtype=str)
    words[:] = np.array(["one", "two"], dtype=object)
    count = group.create_array("count", data=np.array([1, 2, 3]), chunks=(3,))
    with serving(tmp_path / "words.zarr") as server:
        _, headers, before = server.get(view)
        tag = headers["ETag"]
        words[0], count[1] = "six", 7

        def has_changed():
            status, _, body = server.get(view)
            return status == 200 and body != before

        assert wait_until(has_changed)
        assert server.get(view)[1]["ETag"] != tag
        assert server.get(view, If_None_Match=tag)[0] == 200


@pytest.mark.parametrize("view", ["t.npy", "__root__.nc", "t.h5"])
def test_parts_with_one_tag_are_of_one_version_while_another_program_writes(view, tmp_path):
    """A client combines parts with the same tag, so no chunk may have two values under one tag."""
    group = zarr.create_group(tmp_path / "t.zarr")
    array = group.create_array("t", data=np.full(4096, 0x12345678, "u4"), chunks=(1024,), compressors=None)
    order = ">u4" if view == "__root__.nc" else "<u4"
    seen, tags, wrong, ended = {}, set(), [], threading.Event()

    def read(server, begin):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        tag = None
        while not ended.is_set():
            for chunk in range(4):
                first = begin + 4096 * chunk + 1024
                headers = {"Range": f"bytes={first}-{first + 2047}"} | ({"If-Range": tag} if tag else {})
                connection.request("GET", f"{server.root}{view}", headers=headers)
                reply = connection.getresponse()
                body, tag = reply.read(), reply.headers["ETag"]
                if reply.status != 206 or tag.startswith("W/"):
                    tag = None
                    continue
                values = set(np.frombuffer(body, order))
                before = seen.setdefault((tag, chunk), values)
                tags.add(tag)
                if len(values) > 1 or values != before:
                    wrong.append((tag, chunk, values, before))

    with serving(tmp_path / "t.zarr") as server:
        begin = server.get(view)[2].index(np.full(4096, 0x12345678, order).tobytes())
        readers = [threading.Thread(target=read, args=[server, begin]) for _ in range(3)]
        for reader in readers:
            reader.start()
        began, number = time.monotonic(), 0
        # netCDF files keep short arrays of one dimension in their header for a second.
        wanted = 3 if view == "__root__.nc" else 21
        while time.monotonic() < began + 4 or (len(tags) < wanted and time.monotonic() < began + PATIENCE):
            number += 1
            at = number % 4 * 1024
            array[at : at + 1024] = number
            time.sleep(0.002 if number % 50 else 0.3)
        ended.set()
        for reader in readers:
            reader.join()
    assert not wrong, wrong[:3]
    assert len(tags) >= wanted


def test_listings_are_json_or_html_and_names_survive_the_url(server):
    status, headers, body = server.get("", Accept="application/json")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    listed = {entry["name"]: entry for entry in json.loads(body)}
    assert sorted(listed) == ["a group", "big", "t2m", "zarr.json"]
    assert listed["t2m"]["type"] == "directory" and listed["zarr.json"]["type"] == "file"
    assert listed["zarr.json"]["size"] == len(server.get("zarr.json")[2])
    assert email.utils.parsedate(listed["t2m"]["mtime"])
    page = server.get("", Accept="text/html,*/*;q=0.8")[2].decode()
    assert '<a href="a%20group/">a group/</a>' in page and "__root__.nc" in page
    # A program that follows all links, such as wget -r, would copy each array twenty times.
    links = re.findall('href="([^"]*)"', server.get("", Accept="*/*")[2].decode())
    assert sorted(links) == ["a%20group/", "big/", "t2m/", "zarr.json"]
    assert server.get("a%20group")[0] == 301
    assert server.get("a%20group")[1]["Location"] == "./a%20group/"
    assert '<a href="50%25/">50%/</a>' in server.get("a%20group/")[2].decode()
    assert server.get("a%20group/50%25/c/0")[2] == np.arange(3, dtype="<i2").tobytes()
    page = server.get("t2m/", Accept="text/html")[2].decode()
    assert "float32" in page and "64 &times; 96" in page and '"../t2m.npy"' in page
    status, headers, png = server.get("t2m?preview")
    assert (status, headers["Content-Type"], png[:4]) == (200, "image/png", b"\x89PNG")
    assert server.get("a%20group?preview")[0] in (404, 501)


def test_names_that_do_not_exist_or_lead_out_are_404(server):
    for path in ["missing", "t2m/c/9/9", "..", "%2e%2e/climate.zarr", "a%2fgroup", "t2m.doc", "zarr.json/x", "%00", "%ff"]:
        assert server.get(path)[0] == 404, path


def test_other_methods_are_refused_and_other_origins_may_read(server):
    for method in ["PUT", "POST", "DELETE", "PATCH", "PROPFIND"]:
        status, headers, _ = server.get("zarr.json", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD, OPTIONS"), method
    status, headers, _ = server.get("zarr.json", "OPTIONS", Origin="https://example.org")
    assert (status, headers["Access-Control-Allow-Origin"]) == (204, "*")
    assert "Range" in headers["Access-Control-Allow-Headers"]
    exposed = server.get("zarr.json")[1]["Access-Control-Expose-Headers"]
    assert {"Content-Range", "Content-Length", "ETag", "Accept-Ranges"} <= set(exposed.split(", "))


def test_a_request_needs_the_token_and_a_host_of_this_machine(server):
    request = "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"

    def status(path, host="localhost"):
        return int(server.raw(request.format(path, host).encode()).split()[1])

    token = server.root.strip("/")
    assert len(token) >= 20
    good = f"/{token}/zarr.json"
    assert status(good) == 200
    for path in ["/", "/zarr.json", "/x/zarr.json", f"/{token[:-1]}/zarr.json", f"/{token}x/zarr.json", f"//{token[1:]}/"]:
        assert status(path) == 403, path
    for host in ["127.0.0.1", f"localhost:{server.port}", "[::1]:80"]:
        assert status(good, host) == 200, host
    for host in ["example.org", "localhost.example.org", "127.0.0.1.nip.io", "", "10.0.0.1"]:
        assert status(good, host) in (400, 421), host
    without = f"GET {good} HTTP/1.0\r\n\r\n"
    assert int(server.raw(without.encode()).split()[1]) == 421


@pytest.mark.parametrize("address", ["0", ":0", "localhost:0", "[::1]:0"])
def test_a_port_alone_is_one_of_this_machine(climate, address):
    with serving(climate, "--listen", address) as server:
        assert server.url.startswith("http://[::1]:" if "::" in address else "http://127.0.0.1:")
        assert server.get("t2m.npy", method="HEAD")[0] == 200


def test_generated_files_have_their_text(server, climate):
    status, headers, said = server.get(".zarrfs/views/t2m")
    assert (status, headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    assert int(headers["Content-Length"]) == len(said) and b"t2m.npy  24704 bytes" in said
    assert b"zarrfs_cache_limit_bytes" in server.get(".zarrfs/stats")[2]
    assert server.get(".zarrfs/views/t2m", Range="bytes=0-2")[2] == said[:3]


def test_a_sentence_names_what_is_not_there(server):
    assert server.get("t2n.npy")[::2] == (404, b"t2n.npy: no such file or directory\n")
    assert b"read-only" in server.get("t2m.npy", method="PUT")[2]


def test_the_token_the_base_and_the_hosts_can_be_chosen(climate):
    with serving(climate, "--token", "secret", "--base", "/user/me/proxy/8600", "--allow-host", "hub.example.org") as server:
        assert server.url == f"http://127.0.0.1:{server.port}/user/me/proxy/8600/secret/"
        # A proxy passes the whole path, or removes its own part.
        assert server.get("zarr.json")[0] == 200
        server.url = f"http://127.0.0.1:{server.port}/secret/"
        assert server.get("zarr.json", Host="hub.example.org")[0] == 200
        assert server.get("zarr.json", Host="example.org")[0] == 421
    with serving(climate, "--no-token") as server:
        assert server.root == "/"
        assert server.get("t2m/zarr.json")[0] == 200


def test_wrong_words_get_one_sentence(climate, server):
    def refused(*words):
        done = subprocess.run([BIN, "serve", *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, done.stderr.strip()

    code, said = refused(climate, "--listen", f"127.0.0.1:{server.port}")
    assert code == 1 and f"127.0.0.1:{server.port}: another program listens there; choose another port" in said
    code, said = refused(climate, "--listen", "192.0.2.1:0")
    assert code == 1 and "this machine does not have the address" in said
    assert refused("missing.zarr") == (1, "zarrfs: missing.zarr: no such directory")
    for address in ["nowhere", "127.0.0.1:80000", "localhost"]:
        code, said = refused(climate, "--listen", address)
        assert code == 2 and "expected an IP address and a port, such as 127.0.0.1:8600" in said
    assert refused(climate, "--token", "a/b")[0] == 2


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.parent.name)
def test_every_file_of_the_mount_is_the_same_over_http(fixture, tmp_path):
    """Chunks come decoded and out of their shards, views as they are; what the mount refuses is an error."""
    store = copy_of(fixture, tmp_path / "store")
    if subprocess.run([BIN, "info", str(store)], capture_output=True).returncode != 0:
        pytest.skip("it is no hierarchy")
    with until_end(Mount(store, tmp_path / "mnt", "-o", "ro", "--views", "npy+nc+h5+tif")) as mount, serving(store) as server:
        mount.allow(".*")
        seen = 0
        for at, _, names in os.walk(mount.path):
            for name in names:
                path = Path(at) / name
                url = urllib.request.pathname2url(str(path.relative_to(mount.path)))
                status, _, body = server.get(url)
                try:
                    expected = path.read_bytes()
                except OSError:
                    assert status in (404, 500, 501), f"{url}: {status}"
                    continue
                assert (status, body) == (200, expected), url
                seen += 1
        assert seen > 0


def test_libraries_that_read_urls_read_arrays_and_views(server, climate):
    expected = np.arange(64 * 96, dtype="f4").reshape(64, 96)
    assert np.array_equal(zarr.open_group(server.url, mode="r")["t2m"][:], expected)
    with xarray.open_zarr(server.url, consolidated=False, drop_variables=["big"]) as data:
        assert np.array_equal(data["t2m"].values, expected)
    import fsspec

    with fsspec.open(server.url + "t2m.h5", "rb") as file, h5py.File(file) as data:
        assert np.array_equal(data["t2m"][10:20, ::3], expected[10:20, ::3])
    with fsspec.open(server.url + "t2m.tif", "rb") as file:
        assert np.array_equal(tifffile.imread(file), expected)
    names = fsspec.filesystem("http").ls(server.url, detail=False)
    assert server.url + "t2m/" in names or server.url + "t2m" in names
    variables = {**os.environ, "GDAL_HTTP_MAX_RETRY": "0"}
    command = ["gdalinfo", "-checksum", f"/vsicurl/{server.url}t2m.tif"]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=PATIENCE)
    assert "Size is 96, 64" in done.stdout, done.stderr
    done = subprocess.run(["curl", "-sS", "-r", "128-", server.url + "t2m.npy"], capture_output=True, timeout=PATIENCE)
    assert done.stdout == expected.tobytes(), done.stderr


def test_a_damaged_chunk_is_an_error_and_never_other_bytes(climate):
    array = zarr.create_array(climate / "damaged", data=np.arange(4_000_000, dtype="i4"), chunks=(1_000_000,))
    assert array.shape == (4_000_000,)
    chunk = climate / "damaged/c/3"
    chunk.write_bytes(chunk.read_bytes()[:-100])
    with serving(climate) as server:
        status, _, said = server.get("damaged/c/3")
        assert status == 500 and b"damaged/c/3" in said
        # The header is sent before the damage is found, so the body is cut.
        said = server.raw(f"GET {server.root}damaged.raw HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        headers, body = said.split(b"\r\n\r\n", 1)
        assert headers.startswith(b"HTTP/1.1 200") and b"content-length: 16000000" in headers
        assert len(body) < 16_000_000
        assert np.arange(4_000_000, dtype="<i4").tobytes().startswith(body)
        assert server.get("damaged.raw", Range="bytes=-100")[0] == 500


def test_hostile_clients_take_bounded_memory_and_others_are_served(climate):
    with serving(climate) as server, contextlib.ExitStack() as stack:
        def connect():
            return stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))

        silent = [connect() for _ in range(1000)]
        # Who takes nothing of a gigabyte, and who takes a byte now and then.
        for _ in range(50):
            connect().sendall(f"GET {server.root}big.raw HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        slow = connect()
        slow.sendall(f"GET {server.root}big.raw HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert slow.recv(1)
        # A header without an end.
        endless = connect()
        endless.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        with contextlib.suppress(OSError):
            for _ in range(1024):
                endless.sendall(b"x" * (1 << 20))
        assert server.get("t2m.npy")[0] == 200
        assert slow.recv(1)
        assert server.memory() < 600 << 20
        threads = len(list(Path(f"/proc/{server.process.pid}/task").iterdir()))
        assert threads < 60
        assert len(silent) == 1000


def until_idle(server):
    """Returns when the server works for no client: all that it waits for are the clients."""
    def spent():
        return Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]

    before = None
    while before != (before := spent()):
        time.sleep(0.5)


def test_clients_that_take_nothing_keep_no_other_from_its_answer(climate):
    """Small files, and long ones: whoever takes an answer gets it, and soon."""
    with serving(climate) as server, contextlib.ExitStack() as stack:
        for _ in range(500 if LONG else 100):
            stalled = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
            stalled.sendall(f"GET {server.root}big.raw HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until_idle(server)
        for path in ["t2m/zarr.json", "t2m.npy", "", "t2m.raw"]:
            began = time.monotonic()
            assert server.get(path)[0] == 200
            assert time.monotonic() - began < 5, path
        began = time.monotonic()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{server.root}big.raw") as answer:
            for _ in range(64):
                assert answer.read(1 << 20) == b"\7" * (1 << 20)
        assert time.monotonic() - began < 60
        assert server.memory() < 800 << 20


@pytest.mark.parametrize("what", ["silent", "half", "drips", "stalled"])
def test_connections_that_the_server_waits_for_give_way_to_others(climate, what):
    with serving(climate, "--connections", "50") as server, contextlib.ExitStack() as stack:
        get = f"GET {server.root}big.raw HTTP/1.1\r\nHost: localhost\r\n".encode()
        held = []
        for _ in range(60):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
            one.sendall({"silent": b"", "half": get[:20], "drips": get, "stalled": get + b"\r\n"}[what])
            held.append(one)
        done = threading.Event()

        def drip():
            while not done.wait(0.3):
                for one in held:
                    with contextlib.suppress(OSError):
                        one.sendall(b"x")

        if what == "drips":
            stack.callback(done.set)
            threading.Thread(target=drip, daemon=True).start()
        if what == "stalled":
            until_idle(server)
        for _ in range(3):
            began = time.monotonic()
            assert server.get("t2m/zarr.json")[0] == 200
            assert time.monotonic() - began < 4


def test_headers_longer_than_the_limit_are_refused_and_the_next_request_is_answered(server):
    def asked(ranges):
        """The answer to a request with so many ranges. The server closes the connection before it has read all."""
        header = f"GET {server.root}t2m.npy HTTP/1.1\r\nHost: localhost\r\nRange: bytes={','.join(['0-0'] * ranges)}\r\n"
        said = b""
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(header.encode() + b"Connection: close\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                while part := connection.recv(1 << 16):
                    said += part
        return said

    whole = server.get("t2m.npy")[2]
    assert asked(16_000).endswith(b"\r\n\r\n" + whole)
    for ranges in [32_000, 1_000_000]:
        said = asked(ranges)
        assert said.startswith(b"HTTP/1.1 431 "), said[:100]
        assert len(said) < 1000
        assert server.get("t2m.npy", Range="bytes=0-3")[::2] == (206, whole[:4])
    many = "".join(f"X-{number}: 1\r\n" for number in range(101))
    said = server.raw(f"GET {server.root}t2m.npy HTTP/1.1\r\nHost: localhost\r\n{many}\r\n".encode())
    assert said.startswith(b"HTTP/1.1 431 ")
    assert server.memory() < 100 << 20


def test_many_range_requests_on_one_connection_take_no_more_memory_than_a_few(server):
    """As many as a client of a large view makes; a hundred are on their way at a time."""
    request = f"GET {server.root}t2m.npy HTTP/1.1\r\nHost: localhost\r\nRange: bytes={{}}-{{}}\r\n\r\n"
    values = np.arange(64 * 96, dtype="f4")
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection, connection.makefile("rb") as answers:
        first = None
        for round in range(200 if LONG else 50):
            begins = [128 + 4 * ((round * 100 + number) * 31 % values.size) for number in range(100)]
            connection.sendall("".join(request.format(begin, begin + 3) for begin in begins).encode())
            for begin in begins:
                assert answers.readline() == b"HTTP/1.1 206 Partial Content\r\n"
                while answers.readline() != b"\r\n":
                    pass
                assert answers.read(4) == values[(begin - 128) // 4].tobytes()
            first = first or server.memory()
        assert server.memory() - first < 16 << 20


def test_the_server_ends_soon_although_clients_are_connected(climate):
    server = Server(climate)
    with socket.create_connection(("127.0.0.1", server.port)) as idle, socket.create_connection(("127.0.0.1", server.port)) as busy:
        busy.sendall(f"GET {server.root}big.raw HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert busy.recv(1) and idle
        assert server.end() == ""
    assert not is_alive(server.process.pid)


def test_links_are_followed_as_far_as_they_stay_in_the_store(climate, tmp_path):
    (tmp_path / "secret").write_text("outside")
    (climate / "notes").write_text("inside")
    (climate / "link").symlink_to("notes")
    (climate / "linked").symlink_to("t2m")
    (climate / "out").symlink_to(tmp_path / "secret")
    (climate / "up").symlink_to("../secret")
    with serving(climate) as server:
        assert server.get("link")[::2] == (200, b"inside")
        assert server.get("linked/c/0/0")[2] == server.get("t2m/c/0/0")[2] != b""
        for name in ("out", "out/", "up", "up/"):
            status, _, body = server.get(name)
            assert status != 200 and b"outside" not in body, name


def test_nothing_is_written_to_the_store(climate):
    shutil.copytree(climate, climate.with_name("before"))
    with serving(climate) as server:
        server.get("t2m.nc"), server.get("t2m/c/0/0"), server.get("")
        assert server.get("new", "PUT")[0] == 405
    assert subprocess.run(["diff", "-r", str(climate), str(climate.with_name("before"))]).returncode == 0


def test_a_page_shows_the_number_of_an_encoded_fill_value(tmp_path):
    root = zarr.create_group(tmp_path / "s")
    for name, fill in [("nan", "AAAAAAAA+H8="), ("far", "AAAAAAA8j8A=")]:
        root.create_array(name, data=np.arange(3, dtype="f4"), attributes={"_FillValue": fill, "other": fill})
    with serving(tmp_path / "s") as server:
        for name, shown in [("nan", "NaN"), ("far", "-999.5")]:
            page = server.get(f"{name}/", Accept="text/html")[2].decode()
            assert f"<tr><th>_FillValue</th><td>{shown}</td></tr>" in page, page
            assert page.count("AAAAAA") == 1, "an attribute of another name is shown as it is"
    text = subprocess.check_output([BIN, "info", tmp_path / "s/far"], text=True)
    assert '"_FillValue":-999.5' in text
    stored = json.loads(subprocess.check_output([BIN, "info", "--json", tmp_path / "s/far"]))
    assert stored["attributes"]["_FillValue"] == "AAAAAAA8j8A="


def test_pages_and_lists_have_what_could_not_be_seen(tmp_path):
    store = tmp_path / "s.zarr"
    group = zarr.create_group(store)
    group.create_group("g").create_array("a", data=np.arange(3, dtype="i2"))
    os.mkdir(os.fsencode(store) + b"/g/n\xff")
    os.symlink("nowhere", store / "g/gone")
    with serving(store) as server:
        _, _, page = server.get("g/", Accept="text/html")
        assert b"Not shown: gone: a link that leads to nothing" in page and "Not shown: n\ufffd: ".encode() in page
        _, _, links = server.get("g/")
        assert b"Not shown: gone" in links and b'href="n' not in links
        entries = json.loads(server.get("g/", Accept="application/json")[2])
        unseen = {entry["name"]: entry["not_seen"] for entry in entries if entry["type"] == "other"}
        assert set(unseen) == {"gone", "n\ufffd"} and "leads to nothing" in unseen["gone"]
        assert all("mtime" in entry for entry in entries)
        # Programs that list by such JSON see the others.
        tree = subprocess.run([BIN, "tree", f"{server.url}g"], capture_output=True, text=True)
        assert "a  " in tree.stdout, tree
        assert b"Not shown: g/gone" in server.get("", Accept="text/html")[2]
