"""Hierarchies on web servers that are not ours: lists in each form, servers without lists or ranges, and faults."""

import contextlib
import errno
import gzip
import itertools
import json
import os
import re
import shutil
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import servers
import test_docs_commands
import test_fixtures
import web
import zarr
from hierarchies import assembled, assert_same, document
from mounts import BIN, Mount, until_end
from proxy import Fault, running

ONLY_READ = "mounted read-only, because zarrfs does not write to web servers"
NO_NAMES = "the server does not list names, so groups without consolidated metadata show"
REFUSES = "the server answers 403 for missing names"


def run(*args, code=0):
    """Runs zarrfs, and returns what it printed, and what it said."""
    done = subprocess.run([BIN, *map(str, args)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def values(*shape):
    return np.arange(np.prod(shape), dtype="i4").reshape(shape)


def sample(path, version=3, consolidated=False):
    """A group with a sharded and an unsharded array, an array with gaps, and a group below."""
    root = zarr.create_group(path, zarr_format=version, attributes={"title": "x"})
    root.create_array("x", data=values(8, 40, 50), chunks=(1, 40, 50))
    gaps = root.create_array("gaps", shape=(4, 6), chunks=(2, 2), dtype="i4", fill_value=-1)
    gaps[:2, 2:4] = 7
    group = root.create_group("g/deep")
    group.create_array("y", data=values(6, 5), chunks=(4, 5), attributes={"unit": "K"})
    if version == 3:
        root.create_array("s", data=values(8, 40, 50), chunks=(1, 40, 50), shards=(8, 40, 50))
    if consolidated:
        zarr.consolidate_metadata(path)
    age(path)
    return path


def age(path):
    """Makes files older than the time in which a server gives another content the same tag."""
    for file in Path(path).rglob("*"):
        os.utime(file, (1_700_000_000, 1_700_000_000))


@pytest.fixture
def root(tmp_path):
    """The directory that the servers of a test serve."""
    path = tmp_path / "web"
    path.mkdir()
    return path


@pytest.fixture
def mount(tmp_path):
    """`with mount(url) as m:` mounts what is at a URL."""
    numbers = itertools.count()

    @contextlib.contextmanager
    def mounted(url, *options, program=None):
        path = tmp_path / f"mnt{next(numbers)}"
        with until_end(Mount(tmp_path / "none", path, *options, source=url, program=program)) as made:
            made.allow(ONLY_READ)
            made.allow(NO_NAMES)
            yield made

    return mounted


@contextlib.contextmanager
def answering(answer, context=None):
    """A server in this process: `answer(path, headers)` returns the status, the headers and the body, or its pieces."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            status, headers, body = answer(self.path, self.headers)
            self.send_response(status)
            pieces = [body] if isinstance(body, bytes) else body
            length = len(body) if isinstance(body, bytes) else None
            for name, value in {"Content-Length": length, **headers}.items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece)

        do_PROPFIND = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'s' if context else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def files(directory):
    """An answer with the files of a directory, by range, with a tag."""

    def answer(path, headers):
        file = Path(directory, path.split("?")[0].lstrip("/"))
        if not file.is_file():
            return 404, {}, b""
        body = file.read_bytes()
        tag = {"ETag": f'"{hash(body) & 0xffffffff:x}"'}
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("Range", ""))
        if not found:
            return 200, tag, body
        first, last = found.groups()
        start = int(first) if first else max(len(body) - int(last), 0)
        end = min(int(last) + 1, len(body)) if first and last else len(body)
        if start >= end:
            return 416, {"Content-Range": f"bytes */{len(body)}"}, b""
        return 206, {**tag, "Content-Range": f"bytes {start}-{end - 1}/{len(body)}"}, body[start:end]

    return answer


LISTING = ["nginx-json", "nginx-html", "nginx-whole", "apache", "apache-fancy", "apache-dav", "lighttpd", "python", "caddy"]


@pytest.mark.parametrize("form", LISTING)
def test_a_server_that_lists_shows_what_it_has(root, tmp_path, mount, form):
    for version in [2, 3]:
        sample(root / f"v{version}.zarr", version)
    with web.serving(form, root) as url:
        for version in [2, 3]:
            source = root / f"v{version}.zarr"
            _, said = run("diff", f"{url}/v{version}.zarr", source)
            assert "equal; " in said
            _, said = run("check", f"{url}/v{version}.zarr")
            assert re.search(r"0 damaged, 0 suspect", said), said
            with mount(f"{url}/v{version}.zarr") as m:
                names = {"x", "gaps", "g", "zarr.json"} | ({"s"} if version == 3 else set())
                assert set(os.listdir(m.path)) == names
                assert sorted(os.listdir(m / "gaps/c/0")) == ["1"]
                assert not (m / "gaps/c/1/0").exists() and not (m / "nothing").exists()
                assert np.array_equal(servers.load(m / "x.npy"), values(8, 40, 50))
                assert (servers.load(m / "gaps.npy")[2:] == -1).all()
                with pytest.raises(OSError) as refused:
                    (m / "x/c/0/0/0").write_bytes(b"x")
                assert refused.value.errno == errno.EROFS


@pytest.mark.parametrize("form", ["nginx-none", "nginx-hidden"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_server_that_does_not_list_shows_the_nodes_of_consolidated_metadata(root, mount, form, version):
    source = sample(root / "x.zarr", version, consolidated=True)
    with web.serving(form, root) as url:
        out, said = run("tree", f"{url}/x.zarr")
        assert re.search(r"── y ", out) and "── gaps" in out and NO_NAMES not in said
        _, said = run("diff", f"{url}/x.zarr", source)
        assert "equal; " in said
        with mount(f"{url}/x.zarr") as m:
            m.allow(REFUSES)
            found = subprocess.run(["find", m.path, "-type", "f"], capture_output=True, text=True, check=True)
            found = {os.path.relpath(path, m.path) for path in found.stdout.splitlines()}
            assert {"g/deep/y/c/1/0", "gaps/c/0/1", "x/c/7/0/0", "g/deep/zarr.json"} <= found
            assert "gaps/c/0/0" not in found and not (m / "gaps/c/0/0").exists()
            assert np.array_equal(servers.load(m / "g/deep/y.npy"), values(6, 5))


@pytest.mark.parametrize("case", test_fixtures.CASES)
def test_every_hierarchy_of_others_is_read_by_name_from_a_server_that_does_not_list(mount, case, unlisted):
    options = from_of(case)
    with mount(f"{unlisted}/{case}/store", *options) as m:
        for path, truth in test_fixtures.truths(case):
            if (m / path).exists():
                assert_same(assembled(m / path), truth, path)
                continue
            # A group without a metadata file above it is not known.
            sign = "#" if re.search("draft-20(19|20)", test_fixtures.ALL[case]["dialect"]) else "/"
            with mount(f"{unlisted}/{case}/store{sign}{path}", *options) as one:
                assert_same(assembled(one.path), truth, path)


def from_of(case):
    """The dialect of a hierarchy without a metadata file at its root."""
    store, dialect = test_fixtures.FIXTURES / case / "store", test_fixtures.ALL[case]["dialect"]
    names = ["zarr.json", ".zgroup", ".zarray", "attributes.json", "root.group.json", "root.array.json"]
    if any((store / name).exists() for name in names):
        return []
    return ["--from", dialect[:2]]


@pytest.fixture(scope="module")
def unlisted():
    with web.serving("nginx-none", test_fixtures.FIXTURES) as url:
        yield url


def image(path, shape=(1, 16, 16), version="0.4"):
    """An image of OME-Zarr with two levels, whose metadata files name them, and with labels."""
    zarr_format = 2 if version == "0.4" else 3
    levels = [{"path": str(level)} for level in range(2)]
    about = {"multiscales": [{"version": version, "datasets": levels}]}
    if version == "0.5":
        about = {"ome": about}
    group = zarr.create_group(path, zarr_format=zarr_format, attributes=about)
    for level in range(2):
        side = shape[-1] >> level
        group.create_array(str(level), data=values(1, side, side), chunks=(1, 8, 8))
    return group


@pytest.mark.parametrize("form", ["nginx-none", "nginx-hidden"])
@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_images_show_the_nodes_that_their_metadata_name(root, form, version):
    group = image(root / "image.zarr", version=version)
    labels = group.create_group("labels", attributes={"labels": ["cells"]})
    labels.create_array("cells", data=values(1, 16, 16), chunks=(1, 8, 8))
    plate = {"plate": {"wells": [{"path": "A/1"}, {"path": "B/2"}]}}
    zarr.create_group(root / "plate.zarr", zarr_format=2, attributes=plate)
    for well in ["A/1", "B/2"]:
        about = {"well": {"images": [{"path": "0"}]}}
        zarr.open_group(root / f"plate.zarr/{well}", mode="w", zarr_format=2, attributes=about)
        image(root / f"plate.zarr/{well}/0")
    zarr.create_group(root / "several.zarr", zarr_format=2, attributes={"bioformats2raw.layout": 3})
    for number in range(7):
        image(root / f"several.zarr/{number}")
    (root / "several.zarr/OME").mkdir()
    (root / "several.zarr/OME/METADATA.ome.xml").write_text("<OME/>")
    with web.serving(form, root) as url:
        for name, arrays in [("image", 3), ("plate", 4), ("several", 14)]:
            # No node of the directory is missing, but whether the server has more cannot be known.
            found, said = run("diff", f"{url}/{name}.zarr", root / f"{name}.zarr", code=2)
            assert not found and "not all was compared" in said and NO_NAMES in said, (found, said)
            tree, _ = run("tree", f"{url}/{name}.zarr", code=1)
            assert len(re.findall(r" int32 \d", tree)) == arrays, tree
        tree, _ = run("tree", f"{url}/image.zarr", code=1)
        assert re.findall(r"── (\S+)", tree) == ["0", "1", "labels/", "cells"]


def test_a_mount_of_zarrfs_serve_shows_the_same(root, mount, tmp_path):
    source = sample(root / "x.zarr")
    command = [BIN, "serve", source, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip()
            _, said = run("diff", url, source)
            assert "equal; " in said
            with mount(url) as m:
                assert {"x", "gaps", "g", "s"} <= set(os.listdir(m.path))
                assert sorted(os.listdir(m / "gaps/c/0")) == ["1"]
            _, said = run("tree", url.rsplit("/", 2)[0], code=1)
            assert "403 Forbidden: the URL needs the token that zarrfs serve has printed" in said
        finally:
            server.terminate()


@pytest.fixture
def proxied(root):
    """nginx behind a proxy, with a hierarchy x.zarr: the proxy."""
    sample(root / "x.zarr")
    with web.serving("nginx-json", root) as url, running(url) as made:
        yield made


def paths(requests):
    return [f"{request.method} {request.path} {request.headers.get('range', '')}" for request in requests]


def took(proxy, most):
    made = proxy.take()
    assert len(made) <= most, paths(made)
    return made


def wait_for_silence(proxy):
    """Waits until no request is made any more."""
    before = None
    while before != proxy.count or proxy.under_way:
        before = proxy.count
        time.sleep(0.5)


def test_requests_are_few(proxied, mount):
    with mount(f"{proxied.url}/x.zarr") as m:
        took(proxied, 12)
        assert (m / "x/zarr.json").exists()
        proxied.take()
        assert (m / "x/c/2/0/0").read_bytes() == values(8, 40, 50)[2].tobytes()
        took(proxied, 1)
        assert (m / "s/zarr.json").exists()
        proxied.take()
        assert (m / "s/c/2/0/0").read_bytes() == values(8, 40, 50)[2].tobytes()
        took(proxied, 2)
        # A list has the sizes and times, and tells what is missing.
        assert len(os.listdir(m / "x/c")) == 8
        proxied.take()
        assert not (m / "x/c/99").exists() and not (m / "nothing.npy").exists()
        subprocess.run(["ls", "-l", m / "x/c/3/0"], check=True, capture_output=True)
        took(proxied, 3)
        assert len(os.listdir(m.path)) == 5
        took(proxied, 1)


def test_consolidated_metadata_make_a_chunk_one_request(root, mount):
    sample(root / "x.zarr", consolidated=True)
    with web.serving("nginx-none", root) as url, running(url) as proxy:
        with mount(f"{proxy.url}/x.zarr") as m:
            wait_for_silence(proxy)
            proxy.take()
            assert (m / "g/deep/y/c/0/0").read_bytes() == values(6, 5)[:4].tobytes()
            took(proxy, 1)


def test_a_server_without_ranges_sends_each_value_once(root, mount):
    sample(root / "x.zarr")
    with web.serving("nginx-whole", root) as url, running(url) as proxy:
        with mount(f"{proxy.url}/x.zarr") as m:
            assert (m / "s/zarr.json").exists() and (m / "s/c/0/0/0").exists()
            proxy.take()
            for number in range(8):
                assert (m / f"s/c/{number}/0/0").read_bytes() == values(8, 40, 50)[number].tobytes()
            took(proxy, 1)
        with mount(f"{proxy.url}/x.zarr", "--fetch-memory", "1K") as m:
            sentence = r"only the whole value of \d+ bytes, and no ranges of it, which needs more than the 1024 bytes"
            m.allow(sentence)
            with pytest.raises(OSError):
                (m / "s/c/0/0/0").read_bytes()
            assert re.search(sentence, m.errors())


FAULTS = {
    "503": (Fault(None, status=503), None),
    "429, and the time to wait": (Fault(None, status=429, headers={"Retry-After": "1"}), None),
    "500": (Fault(None, status=500), None),
    "cut": (Fault(None, cut=0.5), None),
    "lost": (Fault(None, lose=True), None),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_passes_is_not_seen(proxied, mount, name):
    fault, _ = FAULTS[name]
    with mount(f"{proxied.url}/x.zarr") as m:
        assert (m / "x/zarr.json").exists()
        left = itertools.count()
        fault.applies = lambda request: "/x/c/" in request.path and next(left) < 2
        proxied.faults = [fault]
        began = time.monotonic()
        assert (m / "x/c/2/0/0").read_bytes() == values(8, 40, 50)[2].tobytes()
        if "wait" in name:
            assert time.monotonic() - began > 1.9


def changed(old, new):
    def change(head):
        assert re.search(old, head), head
        return re.sub(old, new, head)

    return change


@pytest.mark.parametrize(
    "fault, number, sentence",
    [
        (Fault(None, status=503), errno.EIO, "the server answered 503 Service Unavailable"),
        (Fault(None, status=401), errno.EACCES, "the server answered 401 Unauthorized; write the URL as https://USER"),
        (Fault(None, status=403), errno.EACCES, "the server answered 403 Forbidden"),
        (Fault(None, status=400), errno.EIO, "the server answered 400 Bad Request"),
        (Fault(None, cut=0.5), errno.EIO, "the answer of the server was cut"),
        (
            Fault(None, change=changed(rb"Content-Range: bytes 0-", b"Content-Range: bytes 1-")),
            errno.EIO,
            "the server sends the bytes 1 to",
        ),
        (
            Fault(None, change=changed(rb"Content-Range: [^\r]*\r\n", b"")),
            errno.EIO,
            "the server does not say which part",
        ),
        (
            Fault(None, change=changed(rb"ETag: ", b"Content-Encoding: br\r\nETag: ")),
            errno.EOPNOTSUPP,
            "the server encodes the value with br",
        ),
    ],
)
def test_a_fault_that_stays_is_an_error_with_a_sentence(proxied, mount, fault, number, sentence):
    with mount(f"{proxied.url}/x.zarr", "--retry-for", "1s") as m:
        assert (m / "x/zarr.json").exists()
        fault.applies = lambda request: "/x/c/" in request.path
        proxied.faults = [fault]
        m.refused(number, sentence, (m / "x/c/2/0/0").read_bytes)
        proxied.faults = []
        assert (m / "x/c/3/0/0").read_bytes() == values(8, 40, 50)[3].tobytes()


def test_a_silent_server_is_a_timeout(proxied, mount):
    with mount(f"{proxied.url}/x.zarr", "--retry-for", "1s") as m:
        assert (m / "x/zarr.json").exists()
        proxied.faults = [Fault(lambda request: "/x/c/" in request.path, silent=True)]
        m.refused(errno.ETIMEDOUT, "the server was silent for 10 s", (m / "x/c/2/0/0").read_bytes)


def test_credentials_that_end_do_not_look_like_missing_chunks(root, mount):
    sample(root / "x.zarr")
    with web.serving("nginx-hidden", root) as url, running(url) as proxy:
        with mount(f"{proxy.url}/x.zarr", "--metadata-ttl", "0s") as m:
            m.allow(REFUSES)
            assert not (m / "gaps/c/0/0").exists()
            proxy.faults = [Fault(lambda request: True, status=403)]
            m.refused(errno.EACCES, "403 Forbidden", (m / "gaps/c/0/2").read_bytes)


def test_a_chunk_that_is_replaced_is_read_anew(root, mount):
    sample(root / "x.zarr")
    with web.serving("nginx-json", root) as url, mount(f"{url}/x.zarr", "--metadata-ttl", "1s") as m:
        assert servers.load(m / "x.npy")[0, 0, 0] == 0
        zarr.open_array(root / "x.zarr/x", mode="r+")[0] = 9
        time.sleep(2.1)
        assert (np.frombuffer((m / "x/c/0/0/0").read_bytes(), "i4") == 9).all()


def test_the_page_of_an_application_is_no_chunk(root, mount):
    sample(root / "x.zarr", consolidated=True)
    (root / "index.html").write_text("<html><title>A viewer</title></html>")
    with web.serving("nginx-page", root) as url:
        with mount(f"{url}/x.zarr") as m:
            assert not (m / "gaps/c/0/0").exists() and (m / "gaps/c/0/1").exists()
            assert (servers.load(m / "gaps.npy")[2:] == -1).all()
        _, said = run("tree", f"{url}/y.zarr", code=1)
        assert "no zarr.json, .zgroup, .zarray or attributes.json is there, and the server does not list" in said


def test_values_that_the_server_encodes_are_decoded(root, mount):
    source = sample(root / "x.zarr")
    plain = files(root)

    def answer(path, headers):
        status, about, body = plain(path, {} if path.endswith(".json") else headers)
        if status == 200 and path.endswith(".json"):
            return status, {**about, "Content-Encoding": "gzip"}, gzip.compress(body)
        return status, about, body

    with answering(answer) as url, mount(f"{url}/x.zarr") as m:
        assert document(m / "x")["shape"] == [8, 40, 50]
        assert zarr.open_array(m / "s", mode="r")[:].tolist() == values(8, 40, 50).tolist()
        assert source


def test_redirects_are_followed_and_secrets_stay(root, mount):
    sample(root / "x.zarr")
    seen = []
    plain = files(root)

    def there(path, headers):
        seen.append((headers.get("Authorization"), headers.get("X-Token")))
        return plain(path, headers)

    with answering(there) as other:

        def here(path, headers):
            if headers.get("X-Token") != "s3cret" or not headers.get("Authorization", "").startswith("Basic "):
                return 401, {}, b""
            return 302, {"Location": f"{other}{path}"}, b""

        with answering(here) as url:
            url = url.replace("://", "://me:pass@") + "/x.zarr?signature=hidden"
            with mount(url, "--header", "X-Token: s3cret") as m:
                assert (m / "x/c/2/0/0").read_bytes() == values(8, 40, 50)[2].tobytes()
                shown = Path("/proc/mounts").read_text() + m.log_file.read_text() + m.errors()
                assert not re.search("pass@|s3cret|hidden", shown)
                assert "/x.zarr?..." in shown
            _, said = run("tree", url, code=1)
            assert "401 Unauthorized" in said and "pass" not in said and "hidden" not in said
    assert seen and set(seen) == {(None, None)}


def test_redirects_have_an_end(tmp_path):
    with answering(lambda path, headers: (302, {"Location": path}, b"")) as url:
        _, said = run("tree", f"{url}/x", "--retry-for", "1s", code=1)
        assert "the server redirects more than 10 times" in said


def test_a_page_for_a_login_is_a_refusal():
    page = b"<html><title>Log in</title></html>"
    with answering(lambda *_: (200, {"Content-Type": "text/html"}, page)) as other:
        other = other.replace("127.0.0.1", "localhost")
        with answering(lambda path, headers: (302, {"Location": f"{other}/login"}, b"")) as url:
            _, said = run("tree", f"{url}/x", code=1)
            assert "the server redirects to localhost, which sends a web page; if that is for a login" in said


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that no authority knows, with its key."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*command, "-keyout", path.with_suffix(".key"), "-out", path], check=True, capture_output=True)
    return path


def test_a_server_with_tls_is_read_if_its_certificate_is_trusted(root, mount, certificate, monkeypatch):
    source = sample(root / "x.zarr")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with answering(files(root), context) as url:
        _, said = run("tree", f"{url}/x.zarr/x", code=1)
        assert "the certificate of the server is not trusted" in said and said.count("\n") == 1
        _, said = run("tree", f"{url.replace('https', 'http')}/x.zarr/x", "--retry-for", "1s", code=1)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        _, said = run("diff", f"{url}/x.zarr/x", source / "x")
        assert "equal; " in said


@pytest.mark.parametrize(
    "url, sentence",
    [
        ("{url}/x.zarr/zarr.json", "this is a metadata file; name the group or array that it describes: {url}/x.zarr\n"),
        ("{url}/x.zarr/x/.zmetadata", "describes: {url}/x.zarr/x\n"),
        ("{url}/nothing", "no zarr.json, .zgroup, .zarray or attributes.json is there, and the server does not"),
        ("{tls}/x.zarr", "the server does not speak TLS; it may be at http:// instead"),
        ("http://nothing.invalid/x", "there is no server with this name"),
        ("http://127.0.0.1:1/x", "no connection to the server: Connection refused"),
        ("http://", "not a URL: "),
    ],
)
def test_a_wrong_url_is_explained_in_one_sentence(root, url, sentence):
    sample(root / "x.zarr")
    with web.serving("nginx-none", root) as server:
        tls = server.replace("http", "https")
        _, said = run("tree", url.format(url=server, tls=tls), "--retry-for", "1s", code=1)
        assert sentence.format(url=server) in said and said.count("\n") == 1, said


def test_nothing_is_written_to_a_web_server(root, tmp_path):
    source = sample(root / "x.zarr")
    for command in [
        ["convert", source],
        ["create", "--shape", "1", "--dtype", "int8"],
        ["mount", "--create"],
    ]:
        (tmp_path / "mnt").mkdir(exist_ok=True)
        after = [tmp_path / "mnt"] if command[0] == "mount" else []
        _, said = run(*command, "http://127.0.0.1:1/y.zarr", *after, code=1)
        assert said == "zarrfs: http://127.0.0.1:1/y.zarr: zarrfs does not write to web servers\n"


def test_an_archive_that_was_just_written_opens_on_a_server_without_tags(root, tmp_path):
    source = sample(tmp_path / "x.zarr")
    with web.serving("python", root) as url:
        run("convert", source, root / "x.zip")
        # Its time has a resolution of a second, so it could still change and keep it.
        shown, _ = run("tree", f"{url}/x.zip")
        assert "deep" in shown


def test_a_copy_from_a_web_server_is_whole(root, tmp_path):
    source = sample(root / "x.zarr", consolidated=True)
    for form in ["nginx-none", "apache"]:
        with web.serving(form, root) as url:
            run("convert", f"{url}/x.zarr", tmp_path / form)
            _, said = run("diff", tmp_path / form, source)
            assert "equal; " in said
            shutil.rmtree(tmp_path / form)


def test_a_list_never_leads_out_of_its_directory(root, mount):
    sample(root / "x.zarr")
    plain = files(root)
    links = ["../../etc/", "/etc/passwd", "http://other/x", "..%2Fy", "?C=N", "x/", "a%2Fb", "%2e%2e/", "zarr.json"]
    page = "<html><title>Index of /x.zarr/</title>" + "".join(f'<a href="{link}">x</a>' for link in links) + "</html>"

    def answer(path, headers):
        if path == "/x.zarr/":
            return 200, {"Content-Type": "text/html"}, page.encode()
        return plain(path, headers)

    with answering(answer) as url, mount(f"{url}/x.zarr") as m:
        assert sorted(os.listdir(m.path)) == ["x", "zarr.json"]
        assert json.loads((m / "zarr.json").read_text())["attributes"] == {"title": "x"}


def test_the_commands_of_the_page_print_what_it_shows(root, tmp_path):
    test_docs_commands.sample_climate(root)
    with web.serving("nginx-json", root) as url:
        test_docs_commands.check("docs/http.md", tmp_path, [("https://example.org", url)])
