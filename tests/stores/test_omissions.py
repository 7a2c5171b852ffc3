"""A server that hides, refuses or cuts a list or a value at one request: no command then takes a part for the whole."""

import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
from mounts import BIN
from small_nodes import ARRAY, GROUP

FILES = {
    "zarr.json": json.dumps(GROUP).encode(), "g/zarr.json": json.dumps(GROUP).encode(),
    "g/a/zarr.json": json.dumps(ARRAY).encode(), "g/a/c/0": b"\1\2", "g/a/c/1": b"\3\4",
    "b/zarr.json": json.dumps(ARRAY).encode(), "b/c/0": b"\5\6", "b/c/1": b"\7\10",
}
# A list may be answered by a page without names, and a value by "404 Not Found" of the bucket.
FAULTS = ["hide", "refuse", "empty", "cut", "fail", "page", "bucket"]
# Each request has each fault in a long run, every sixth one otherwise.
STEP = 1 if os.environ.get("ZARRFS_LONG") else 6


class Server:
    """Serves FILES as a bucket of S3 (`/bkt/s.zarr/...`) or as pages of names, with one fault."""

    def __init__(self, form, hidden=()):
        self.form, self.hidden, self.files = form, hidden, dict(FILES)
        self.fault, self.at, self.count, self.lock = None, None, 0, threading.Lock()
        self.refuses_lists = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.answer(self)

            do_HEAD = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self.server.server_port}"
        self.url = "s3://bkt/s.zarr" if form == "s3" else f"{self.base}/s.zarr"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def names(self, directory):
        """The names in a directory, with a slash at the end of directories."""
        below = {key[len(directory):] for key in self.files if key.startswith(directory)}
        names = sorted({name.split("/")[0] + ("/" if "/" in name else "") for name in below})
        return [name for name in names if name.rstrip("/") not in self.hidden]

    def page_s3(self, query):
        prefix = query.get("prefix", [""])[0].removeprefix("s.zarr/")
        keys, prefixes = [], []
        if "delimiter" in query:
            for name in self.names(prefix):
                (prefixes if name.endswith("/") else keys).append(prefix + name)
        else:
            keys = sorted(key for key in self.files if key.startswith(prefix))
        parts = [
            f"<Contents><Key>s.zarr/{key}</Key><Size>{len(self.files[key])}</Size><ETag>&quot;{hash(self.files[key]):x}&quot;</ETag>"
            "<LastModified>2023-11-14T22:13:20.000Z</LastModified></Contents>" for key in keys
        ]
        parts += [f"<CommonPrefixes><Prefix>s.zarr/{name}</Prefix></CommonPrefixes>" for name in prefixes]
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(parts)}</ListBucketResult>".encode()

    def page_html(self, directory):
        links = "".join(f'<li><a href="{quote(name)}"> {name}</a></li>\n' for name in self.names(directory))
        title = f"Index of /s.zarr/{directory}".rstrip("/")
        return (
            '<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN">\n<html>\n <head>\n'
            f"  <title>{title}</title>\n </head>\n <body>\n<h1>{title}</h1>\n"
            f'<ul><li><a href="/"> Parent Directory</a></li>\n{links}</ul>\n</body></html>'
        ).encode()

    def answer(self, request):
        url = urlsplit(request.path)
        query, path = parse_qs(url.query, keep_blank_values=True), unquote(url.path)
        key = path.removeprefix("/bkt" if self.form == "s3" else "").removeprefix("/s.zarr").lstrip("/")
        with self.lock:
            number, self.count = self.count, self.count + 1
        fault = self.fault if number == self.at else None
        body, kind, is_list = self.files.get(key), "application/octet-stream", False
        if self.form == "s3" and "list-type" in query:
            body, kind, is_list = self.page_s3(query), "application/xml", True
        elif self.form == "web" and body is None and (not key or key.endswith("/")) and self.names(key):
            body, kind, is_list = self.page_html(key), "text/html;charset=UTF-8", True
        status, cut = 200, 0
        if is_list and self.refuses_lists:
            fault = "refuse"
        if fault == "hide":
            body = None
        elif fault == "refuse":
            status, body = 403, b"<Error><Code>AccessDenied</Code></Error>"
        elif fault == "fail":
            status, body = 503, b"busy"
        elif fault == "empty" and body is not None:
            body = b""
        elif fault == "cut" and body is not None:
            cut = len(body) // 2
        elif fault == "page" and is_list:
            error = b"<Error><Code>InternalError</Code></Error>"
            body = error if self.form == "s3" else b"<html><head><title>Index of /s.zarr</title></head><body></body></html>"
        elif fault == "bucket" and self.form == "s3":
            status, body = 404, b"<Error><Code>NoSuchBucket</Code></Error>"
        if body is None:
            status, body = 404, b"" if not is_list else b"<Error><Code>NoSuchKey</Code></Error>"
        start, total = 0, len(body)
        asked = request.headers.get("Range")
        if asked and status == 200 and total:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, total - int(last))
            end = min(total, int(last) + 1) if first and last else total
            if start < total:
                status, body = 206, body[start:end]
        request.send_response(status)
        if status == 206:
            request.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{total}")
        request.send_header("ETag", f'"{hash(self.files.get(key, b"")):x}"')
        request.send_header("Last-Modified", "Tue, 14 Nov 2023 22:13:20 GMT")
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body[: len(body) - cut] if cut else body)
        if cut:
            request.close_connection = True


def zarrfs(server, *args):
    env = {"AWS_ENDPOINT_URL": server.base, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "PATH": "/usr/bin:/bin"}
    more = ["--retry-for", "0s"] if args[0] != "uploads" else []
    done = subprocess.run([BIN, *map(str, args), *more], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode in range(4), (args, done)
    return done


def stored(directory):
    found = (path for path in directory.rglob("*") if path.is_file() and ".zarrfs" not in path.parts)
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def chunks(files):
    return {key: value for key, value in files.items() if "/c/" in key}


@pytest.mark.parametrize("form", ["s3", "web"])
def test_a_fault_at_any_request_never_makes_a_part_look_like_the_whole(form, tmp_path):
    with Server(form) as server:
        good = tmp_path / "good.zarr"
        assert zarrfs(server, "convert", server.url, good).returncode == 0
        assert chunks(stored(good)) == chunks(FILES)
        tree = zarrfs(server, "tree", server.url).stdout
        commands = {
            "convert": lambda: zarrfs(server, "convert", server.url, tmp_path / "t.zarr"),
            "diff": lambda: zarrfs(server, "diff", server.url, good),
            "diff back": lambda: zarrfs(server, "diff", good, server.url),
            "tree": lambda: zarrfs(server, "tree", server.url),
            "check": lambda: zarrfs(server, "check", server.url, "--expect-all"),
        }
        wrong, tried = [], 0
        for name, command in commands.items():
            server.fault, server.at, server.count = None, None, 0
            command()
            requests = server.count
            for fault in FAULTS:
                for at in range(FAULTS.index(fault) % STEP, requests, STEP):
                    shutil.rmtree(tmp_path / "t.zarr", ignore_errors=True)
                    server.fault, server.at, server.count = fault, at, 0
                    done = command()
                    tried += 1
                    # That the server did not answer says nothing about the bytes.
                    if name == "check" and fault in ("refuse", "fail") and done.returncode == 3:
                        wrong.append((name, fault, at, done.stdout, done.stderr))
                    if done.returncode != 0:
                        continue
                    if name == "convert":
                        is_whole = chunks(stored(tmp_path / "t.zarr")) == chunks(FILES)
                    elif name == "tree":
                        is_whole = done.stdout == tree
                    elif name == "check":
                        is_whole = "2 groups, 2 arrays; 4 chunks stored, 0 missing, 4 checked" in done.stderr
                        # It says what it did not look at.
                        is_whole = is_whole or "unknown" in done.stdout or "missing" in done.stdout
                    else:
                        is_whole = "5 nodes compared" in done.stderr.replace("4 nodes", "5 nodes") and "8 elements in 2 arrays" in done.stderr
                    if not is_whole:
                        wrong.append((name, fault, at, done.stdout, done.stderr))
        assert tried > 100 // STEP and not wrong, f"{len(wrong)} of {tried}: " + "\n".join(map(str, wrong))


def test_names_that_a_web_server_hides_are_asked_for_if_the_metadata_have_them(tmp_path):
    with Server("web", hidden=("HEADER", "secret", "1")) as server:
        for name in ("HEADER", "secret"):
            server.files |= {f"{name}/{key[2:]}": value for key, value in FILES.items() if key.startswith("b/")}
        copies = {name: ARRAY for name in ("HEADER", "secret", "b", "g/a")} | {"g": GROUP}
        root = GROUP | {"consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": copies}}
        server.files["zarr.json"] = json.dumps(root).encode()
        tree = zarrfs(server, "tree", server.url)
        assert tree.returncode == 0 and "HEADER" in tree.stdout and "secret" in tree.stdout
        copy = tmp_path / "t.zarr"
        assert zarrfs(server, "convert", server.url, copy, "--verify").returncode == 0
        assert chunks(stored(copy)) == chunks(server.files)
        assert zarrfs(server, "diff", server.url, copy).returncode == 0
        (copy / "secret/c/1").write_bytes(b"\0\0")
        assert zarrfs(server, "diff", server.url, copy).returncode == 1
        checked = zarrfs(server, "check", server.url)
        assert checked.returncode == 0 and "stale-copy" not in checked.stdout


def test_a_bucket_that_may_not_be_listed_is_not_an_empty_hierarchy(tmp_path):
    with Server("s3") as server:
        server.refuses_lists = True
        done = zarrfs(server, "convert", server.url, tmp_path / "t.zarr", "--verify")
        assert done.returncode == 1 and done.stderr
        assert zarrfs(server, "tree", server.url).returncode == 1
        done = zarrfs(server, "convert", f"{server.url}/b", tmp_path / "b.zarr")
        assert done.returncode == 0, "an array has no nodes below it"
        done = zarrfs(server, "check", server.url)
        assert done.returncode == 1 and "unseen" in done.stdout, "it has seen no node but the root"


@pytest.mark.parametrize("key", ["ta\tb/zarr.json", "g//zarr.json", "g/../zarr.json"])
def test_an_object_that_can_have_no_name_is_not_left_out_in_silence(tmp_path, key):
    with Server("s3") as server:
        server.files[key] = server.files["b/zarr.json"]
        for command in ("tree", "info"):
            done = zarrfs(server, command, server.url)
            assert done.returncode == 1 and "left out" in done.stderr, (command, done)
        copy = tmp_path / "t.zarr"
        done = zarrfs(server, "convert", server.url, copy, "--verify")
        assert done.returncode == 1 and "left out" in done.stderr
        assert chunks(stored(copy)) == chunks(FILES), "what can be copied is"
        assert zarrfs(server, "diff", server.url, copy).returncode == 2
        done = zarrfs(server, "check", server.url)
        assert done.returncode == 1 and "unseen" in done.stdout


def test_a_web_server_whose_list_lacks_what_is_there_is_not_believed(tmp_path):
    with Server("web", hidden=("zarr.json", "a")) as server:
        for command, code in (("tree", 1), ("check", 1), ("convert", 1)):
            target = [tmp_path / "t.zarr"] if command == "convert" else []
            done = zarrfs(server, command, server.url, *target)
            assert done.returncode == code, (command, done)
