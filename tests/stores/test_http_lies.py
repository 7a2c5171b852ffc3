"""Web servers that answer with something else than zarrfs has asked for."""

import errno
import gzip
import itertools
import json
import os
import string
import subprocess
import time

import numpy as np
import pytest
import zarr
from confined import ControlGroup
from mounts import BIN
from test_http import age, answering, files, mount, root, run

__all__ = ["mount", "root"]

HTML = {"Content-Type": "text/html"}
BYTES = {"Content-Type": "application/octet-stream"}
CHUNKS = np.arange(100, 164, dtype="i4").reshape(8, 8)


def square(path, **more):
    """A group with an array `a` of 2 x 2 chunks that are all stored, and a file of 60 bytes."""
    group = zarr.create_group(path)
    array = group.create_array("a", shape=(8, 8), chunks=(4, 4), dtype="i4", fill_value=7, compressors=None, **more)
    array[:] = CHUNKS
    (path / "notes.txt").write_bytes(b"hello\n" * 10)
    age(path)
    return path


def chunked(body):
    """An answer without a length: the headers, and the body."""
    parts = [b"%x\r\n%s\r\n" % (len(body), body)] if body else []
    return {**BYTES, "Content-Length": None, "Transfer-Encoding": "chunked"}, b"".join([*parts, b"0\r\n\r\n"])


def test_a_value_is_not_the_page_for_missing_names_because_it_resembles_it(root, mount):
    square(root / "x.zarr")
    (root / "x.zarr/a/c/1/1").unlink()
    plain = files(root)

    def answer(path, headers):
        """No answer has a length or a tag, and all have one type."""
        status, _, body = plain(path, {})
        if path.endswith("/"):
            return 403, {}, b""
        return 200, *chunked(body if status == 200 else b"no such file")

    want = CHUNKS.copy()
    want[4:, 4:] = 7
    with answering(answer) as url:
        command = [BIN, "cat", "--as", "raw", f"{url}/x.zarr/a"]
        out = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
        assert np.frombuffer(out, "i4").tolist() == want.ravel().tolist()


@pytest.mark.parametrize("missing", [404, 200])
def test_another_web_page_is_no_missing_chunk(root, mount, missing):
    square(root / "x.zarr")
    (root / "x.zarr/a/c/1/1").unlink()
    plain = files(root)

    def answer(path, headers):
        if path.endswith("/a/c/0/1"):
            return 200, HTML, b"<html><title>Your session has ended</title></html>"
        status, about, body = plain(path, headers)
        if status == 404 and missing == 200 and not path.endswith("/"):
            return 200, HTML, b"<html><title>An application</title></html>"
        return status, about, body

    with answering(answer) as url, mount(f"{url}/x.zarr") as m:
        sentence = "the server sends a web page"
        m.refused(errno.EIO, sentence, (m / "a/c/0/1").read_bytes)
        assert not (m / "a/c/1/1").exists()
        assert (m / "a/c/0/0").read_bytes() == CHUNKS[:4, :4].tobytes()


@pytest.mark.parametrize("has_length", [True, False])
def test_a_value_is_not_empty_because_its_ranges_are_refused(root, mount, has_length):
    square(root / "x.zarr")
    plain = files(root)

    def answer(path, headers):
        if not path.endswith("/notes.txt"):
            return plain(path, headers)
        if "Range" in headers:
            return 416, {}, b""
        body = b"hello\n" * 10
        return (200, BYTES, body) if has_length else (200, *chunked(body))

    with answering(answer) as url, mount(f"{url}/x.zarr") as m:
        if has_length:
            m.refused(errno.EIO, "the server has no such range in 60 bytes", lambda: os.stat(m / "notes.txt"))
        else:
            assert (m / "notes.txt").stat().st_size == 60
            assert (m / "notes.txt").read_bytes() == b"hello\n" * 10


def listed(directory, wrong):
    """An answer with the files of a directory and lists of names, but for those that `wrong` gives an answer for."""
    plain = files(directory)

    def answer(path, headers):
        below = directory / path.strip("/")
        if not path.endswith("/") or not below.is_dir():
            return plain(path, headers)
        if found := wrong(path):
            return found
        names = sorted(f"{it.name}/" if it.is_dir() else it.name for it in below.iterdir())
        links = "".join(f'<a href="{name}">{name}</a>\n' for name in names)
        return 200, HTML, f"<html><title>Index of {path}</title>{links}</html>".encode()

    return answer


NO_LISTS = {
    "404": (404, {}, b""),
    "400": (400, {}, b""),
    "204": (204, {"Content-Length": None}, b""),
    "206": (206, {}, b""),
    "304": (304, {"Content-Length": None}, b""),
    "418": (418, {}, b""),
    "page": (200, HTML, b"<html><title>My data</title></html>"),
}


@pytest.mark.parametrize("name", NO_LISTS)
@pytest.mark.parametrize("where", ["/a/", "/a/c/", "/a/c/1/"])
def test_the_chunks_in_a_directory_that_is_not_listed_are_asked_for(root, mount, tmp_path, name, where):
    source = square(root / "x.zarr")
    (source / "a/c/1/0").unlink()
    with answering(listed(root, lambda path: NO_LISTS[name] if path.endswith(where) else None)) as url:
        url = f"{url}/x.zarr"
        out, said = run("check", url)
        assert "3 chunks stored, 1 missing, 3 checked" in said and "0 damaged, 0 suspect" in said, said
        if where != "/a/":
            assert "so each chunk is asked for" in out
        run("convert", "--verify", url, tmp_path / "copy.zarr")
        _, said = run("diff", tmp_path / "copy.zarr", source)
        assert "equal; " in said
        with mount(url) as m:
            assert sorted(os.listdir(m / "a/c")) == ["0", "1"]
            assert sorted(os.listdir(m / "a/c/1")) == ["1"]


def test_nothing_is_said_about_chunks_that_are_too_many_to_ask_for(root, tmp_path):
    group = zarr.create_group(root / "x.zarr")
    array = group.create_array("a", shape=(1 << 21, 8), chunks=(1, 4), dtype="i4", fill_value=7)
    array[:2] = 1
    age(root / "x.zarr")
    with answering(listed(root, lambda path: NO_LISTS["404"] if path.endswith("/a/c/") else None)) as url:
        out, said = run("check", f"{url}/x.zarr", code=3)
        assert "404 Not Found" in out + said and " 0 missing" in said, out + said
        _, said = run("convert", "--verify", f"{url}/x.zarr", tmp_path / "copy.zarr", code=1)
        assert "too many to ask for each" in said and "again" not in said


def test_an_array_without_chunks_has_no_directory_for_them(root, tmp_path):
    zarr.create_array(root / "x.zarr/a", shape=(8, 8), chunks=(4, 4), dtype="i4", fill_value=7)
    zarr.create_group(root / "x.zarr/g")
    age(root / "x.zarr")
    with answering(listed(root, lambda path: None)) as url:
        out, said = run("check", f"{url}/x.zarr")
        assert "0 chunks stored, 4 missing, 0 checked" in said and "asked for" not in out, out + said


def test_a_header_goes_to_the_server_of_the_url_alone(root):
    array = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|S16", "compressor": None, "filters": None}
    array |= {"fill_value": "", "order": "C"}
    seen = {"here": [], "there": []}

    def server(name):
        def answer(path, headers):
            seen[name].append(headers.get("X-Token"))
            return files(root)(path, headers)

        return answering(answer)

    (root / "data").mkdir()
    (root / "data/chunk").write_bytes(b"0123456789abcdef")
    with server("here") as here, server("there") as there:
        for name, host in [("own", here), ("far", there)]:
            refs = {".zarray": json.dumps(array), "0": [f"{host}/data/chunk", 0, 16]}
            (root / f"{name}.json").write_text(json.dumps({"version": 1, "refs": refs}))
        options = ["--header", "X-Token: s3cret", "--allow-virtual"]
        for source, host in [(f"{here}/own.json", here), (f"{here}/far.json", there), (root / "far.json", there)]:
            for requests in seen.values():
                requests.clear()
            place = f"{host}/data"
            command = [BIN, "cat", "--as", "raw", f"kerchunk+{source}", *options, place]
            done = subprocess.run(command, capture_output=True, timeout=60, check=True)
            assert done.stdout == b"0123456789abcdef"
            # References on this machine may lead to one server, which is that of the token.
            is_local = source == root / "far.json"
            assert set(seen["there"]) <= ({"s3cret"} if is_local else {None})
            assert seen["there" if host == there else "here"]
            assert set(seen["here"]) <= {"s3cret"}
        # Which of two servers a token is for is not known.
        seen["there"].clear()
        command = [BIN, "cat", "--as", "raw", f"kerchunk+{root}/far.json", *options, f"{there}/data"]
        command += ["--allow-virtual", f"{here}/data"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and not seen["there"]
        assert f"--allow-virtual names several ({there}/data and {here}/data): leave the header out" in done.stderr
        command = [argument for argument in command if argument not in options[:2]]
        subprocess.run(command, capture_output=True, timeout=60, check=True)
        assert seen["there"] and set(seen["there"]) == {None}


JSON = {"Content-Type": "application/json"}
XML = {"Content-Type": "application/xml"}


def million():
    """What nginx sends for a directory with 1,000,000 files."""
    time = "Tue, 01 Jul 2025 10:00:00 GMT"
    names = (f'{{ "name":"n{at}", "type":"file", "mtime":"{time}", "size":1 }}' for at in range(1_000_000))
    return b"[\n" + ",\n".join(names).encode() + b"\n]\n"


def short_links():
    names = ("".join(name) for name in itertools.product(string.ascii_lowercase + string.digits, repeat=4))
    return b"<html><title>Index of /</title>" + "".join(f"<a href={name}>" for name in names).encode() + b"</html>"


TOO_LONG = "the list of names is too long: with this memory, the limit is "
NO_LIST = " does not list names"
LONG = {
    "a million files": (200, JSON, million, TOO_LONG),
    "short links": (200, HTML, short_links, TOO_LONG),
    "numbers": (200, JSON, lambda: b"[" + b"0," * (7 << 20) + b"0]", NO_LIST),
    "objects": (200, JSON, lambda: b"[" + b"{}," * (5 << 20) + b"{}]", NO_LIST),
    "nested lists": (200, JSON, lambda: b"[" * (15 << 20), NO_LIST),
    "one entry": (200, JSON, lambda: b'[{"name": [' + b"0," * (7 << 20) + b"0]}]", NO_LIST),
    "no UTF-8": (200, HTML, lambda: b"<html><title>Index of /</title>" + b"\xff" * (15 << 20) + b"</html>", ""),
    "nested elements": (207, XML, lambda: b"<a>" * (5 << 20), NO_LIST),
    "many bytes": (200, HTML, lambda: b"<html><title>Index of /</title>" + b" " * (65 << 20) + b"</html>", TOO_LONG),
}


@pytest.mark.parametrize("name", LONG)
def test_long_lists_are_read_or_refused_in_little_memory(root, tmp_path, name):
    status, kind, made, sentence = LONG[name]
    square(root / "x.zarr")
    body = made()
    with answering(listed(root, lambda path: (status, kind, body) if path == "/x.zarr/" else None)) as url:
        group = ControlGroup()
        try:
            command = [group.wrapper(tmp_path), "check", f"{url}/x.zarr"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert group.kills() == 0 and done.returncode in (0, 1, 3), done
            said = done.stdout + done.stderr
            assert sentence in said and len(said.splitlines()) < 9, said
        finally:
            group.end()


def test_a_chunk_without_a_version_is_of_one_answer(root, mount):
    length = 24 << 20
    array = zarr.create_array(root / "x.zarr/a", shape=(length,), chunks=(length,), dtype="u1", compressors=None)
    array[:1] = 1
    age(root / "x.zarr")
    plain = files(root)
    versions = itertools.count(1)

    def answer(path, headers):
        status, about, body = plain(path, headers)
        if path.endswith("/a/c/0"):
            body = bytes([next(versions) % 200]) * len(body)
        return status, {name: value for name, value in about.items() if name != "ETag"}, body

    with answering(answer) as url, mount(f"{url}/x.zarr/a") as m:
        assert (m / "c/0").stat().st_size == length
        read = (m / "c/0").read_bytes()
        assert len(read) == length and len(set(read)) == 1


def wide(path):
    """32 chunks of 64 bytes, `wide`, beside a healthy array, `good`."""
    group = zarr.create_group(path)
    group.create_array("wide", data=np.arange(2048, dtype="u1"), chunks=(64,), compressors=None)
    group.create_array("good", data=np.arange(8, dtype="u1"), chunks=(8,), compressors=None)
    age(path)
    return path


def gzipped(body):
    return {**BYTES, "Content-Encoding": "gzip"}, gzip.compress(body)


BODIES = {
    "longer than the room": lambda: (BYTES, bytes(60 << 20)),
    "nearly as long as the room": lambda: (BYTES, bytes(30 << 20)),
    "without a length": lambda: chunked(bytes(30 << 20)),
    "encoded": lambda: gzipped(bytes(30 << 20)),
    "encoded and too long": lambda: gzipped(bytes(1 << 30)),
}


@pytest.mark.parametrize("name", BODIES)
def test_long_bodies_for_many_readers_stay_within_memory(root, mount, tmp_path, name):
    """The server ignores that only a part was asked for."""
    wide(root / "x.zarr")
    plain, (about, body) = files(root), BODIES[name]()
    group = ControlGroup()
    try:
        answer = lambda path, headers: (200, about, body) if "/wide/c/" in path else plain(path, headers)
        with answering(answer) as url, mount(f"{url}/x.zarr", program=group.wrapper(tmp_path)) as m:
            m.allow("wide/c/")
            readers = [subprocess.Popen(["cat", m / f"wide/c/{n}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for n in range(32)]
            assert all(reader.wait(timeout=120) == 1 for reader in readers)
            assert (m / "good/c/0").read_bytes() == bytes(range(8))
            assert group.kills() == 0
    finally:
        group.end()


def test_a_server_that_drips_is_given_up(root, mount):
    wide(root / "x.zarr")
    plain = files(root)

    def slowly(body):
        for at in range(len(body)):
            yield body[at : at + 1]
            time.sleep(2)

    def answer(path, headers):
        status, about, body = plain(path, headers)
        if status == 206 and "/wide/c/" in path:
            return status, {**about, "Content-Length": len(body)}, slowly(body)
        return status, about, body

    with answering(answer) as url, mount(f"{url}/x.zarr", "--retry-for", "1s", "--max-requests", "4") as m:
        m.allow("the server sends less than 512 bytes in 10 s")
        readers = [subprocess.Popen(["cat", m / f"wide/c/{n}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for n in range(4)]
        for reader in readers:
            assert "Connection timed out" in reader.communicate(timeout=120)[1]
        assert (m / "good/c/0").read_bytes() == bytes(range(8))
