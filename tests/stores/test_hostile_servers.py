"""Servers that lie: no value is wrong, no program waits for ever, memory is bounded, and no credentials go elsewhere."""

import errno
import http.server
import itertools
import os
import re
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
import zarr
from mounts import BIN, wait_until
from zarr.storage import ObjectStore

import servers
from proxy import Fault

pytestmark = pytest.mark.s3
DATA = np.arange(1, 65, dtype="u1").reshape(8, 8)
# How long a program may go on when it was killed.
SECONDS_TO_END = 5


@pytest.fixture
def array(prefix):
    """An array of four chunks of 16 bytes, `y`, beside a healthy one."""
    root = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")
    root.create_array("y", data=DATA, chunks=(4, 4), compressors=None)
    root.create_array("good", data=DATA, chunks=(8, 8), compressors=None)


def is_chunk(request):
    return "/y/c/" in request.path and not servers.is_listing(request)


def listing(more, *keys, prefixes=()):
    objects = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;1&quot;</ETag><Size>{size}</Size></Contents>"
        for key, size in keys
    )
    below = "".join(f"<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>" for prefix in prefixes)
    return f"<ListBucketResult>{more}{objects}{below}</ListBucketResult>".encode()


WAITS = {
    "a chunk": ("cat y/c/0/0", is_chunk),
    "a view": ("cat y.npy", is_chunk),
    "metadata": ("cat y/zarr.json", lambda request: "/y" in request.path),
    "names": ("ls y/c", servers.is_listing),
}


@pytest.mark.parametrize("fault", [{"silent": True}, {"pace": 1}], ids=["silent", "drips"])
@pytest.mark.parametrize("what", WAITS)
def test_a_program_that_waits_for_a_server_ends_when_it_is_killed(proxy, mount, array, what, fault):
    command, applies = WAITS[what]
    with mount("-o", "ro") as m:
        m.allow(".*")
        proxy.faults = [Fault(applies, **fault)]
        program = subprocess.Popen(command.split(), cwd=m.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1.5)
        assert program.poll() is None, "it did not wait"
        program.kill()
        program.wait(timeout=SECONDS_TO_END)
        proxy.faults = []


def test_a_program_that_waits_for_a_chunk_that_another_one_loads_ends_when_it_is_killed(proxy, mount, array):
    with mount("-o", "ro", "--metadata-ttl", "1m") as m:
        m.allow(".*")
        # The kernel makes a program wait while another one looks up the same name.
        subprocess.run(["ls", "-l", m / "y/c/0"], stdout=subprocess.DEVNULL, check=True)
        proxy.faults = [Fault(is_chunk, silent=True)]

        def begin():
            # Past the page cache, since the kernel makes the second reader of a page wait, too.
            program = subprocess.Popen(["dd", "if=y/c/0/0", "iflag=direct"], cwd=m.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(1)
            return program

        first, second = begin(), begin()
        second.kill()
        second.wait(timeout=SECONDS_TO_END)
        assert first.poll() is None, "it did not wait"
        first.kill()
        first.wait(timeout=SECONDS_TO_END)
        proxy.faults = []


def test_no_redirect_is_followed_since_requests_carry_credentials(proxy, mount, array):
    asked = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers)
            self.send_error(404)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        with mount("-o", "ro") as m:
            assert (m / "y/zarr.json").exists()
            m.allow("redirects to 127.0.0.1")
            proxy.faults = [Fault(is_chunk, status=307, headers={"Location": f"http://127.0.0.1:{elsewhere.server_port}/steal"})]
            with pytest.raises(OSError) as failed:
                (m / "y/c/0/0").read_bytes()
            assert failed.value.errno == errno.EACCES and "name it with --endpoint" in m.errors()
            proxy.faults = []
            assert (m / "y/c/0/0").read_bytes() == DATA[:4, :4].tobytes()
        elsewhere.shutdown()
    assert not asked


LONG_ANSWERS = {
    "longer than its range": (206, {"Content-Range": "bytes 0-15/16", "ETag": '"1"'}, "sends more than 16 bytes"),
    "a range that no object has": (206, {"Content-Range": f"bytes 0-{(1 << 64) - 1}/{(1 << 64) - 1}", "ETag": '"1"'}, "range that no object can have"),
    "a long refusal": (403, {}, "403"),
}


@pytest.mark.parametrize("name", LONG_ANSWERS)
def test_an_answer_without_end_is_an_error_and_takes_no_memory(proxy, mount, array, name):
    status, headers, said = LONG_ANSWERS[name]
    headers = {**headers, "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
    with mount("-o", "ro", "--retry-for", "1s") as m:
        assert (m / "y/zarr.json").exists()
        before = m.peak_memory()
        m.allow(re.escape(said))
        proxy.faults = [Fault(is_chunk, instead=lambda request: (status, headers, bytes(100 << 20)))]
        with pytest.raises(OSError):
            (m / "y/c/0/0").read_bytes()
        assert said in m.errors() and m.peak_memory() - before < 50 << 20
        proxy.faults = []
        assert (m / "good/c/0/0").read_bytes() == DATA.tobytes()


def test_a_list_that_does_not_say_how_it_goes_on_is_an_error(proxy, prefix, array):
    page = listing("<IsTruncated>true</IsTruncated><NextMarker>x</NextMarker>", (f"{prefix}/y/c/0/0", 16))
    proxy.faults = [Fault(servers.is_listing, instead=lambda request: (200, {}, page))]
    options = ["--endpoint", servers.endpoint(proxy.url)]
    done = subprocess.run([BIN, "check", servers.url(f"{prefix}/y"), *options], capture_output=True, text=True)
    assert done.returncode != 0 and "ListObjectsV2" in done.stdout + done.stderr, done


def test_keys_that_no_path_can_have_do_not_hide_the_others(proxy, mount, prefix, array):
    keys = [(f"{prefix}/zarr.json", 10), (f"{prefix}//a", 1), (f"{prefix}/../a", 1), (f"{prefix}/a&#9;b", 1), (f"{prefix}/huge", 1 << 63)]
    page = listing("<IsTruncated>false</IsTruncated>", *keys, prefixes=[f"{prefix}//", f"{prefix}/good/", f"{prefix}/y/"])
    of_root = re.compile(f"prefix={prefix}(/|%2F)(&|$)")

    def is_of_root(request):
        return servers.is_listing(request) and of_root.search(request.path)

    proxy.faults = [Fault(is_of_root, instead=lambda request: (200, {}, page))]
    with mount("-o", "ro") as m:
        m.expect(r"a\\tb: this object is left out")
        m.allow("this object is left out")
        assert {path.name for path in m.path.iterdir()} >= {"zarr.json", "good", "y"}
        assert (m / "y/c/0/0").read_bytes() == DATA[:4, :4].tobytes()


@pytest.mark.parametrize("names", [0, 1], ids=["empty", "equal"])
def test_a_list_without_end_is_an_error(proxy, mount, prefix, array, names):
    numbers = itertools.count()

    def page(request):
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{next(numbers)}</NextContinuationToken>"
        return 200, {}, listing(more, *[(f"{prefix}/y/c/0/0", 16)][:names])

    with mount("-o", "ro") as m:
        assert (m / "good/zarr.json").exists()
        m.allow("repeats a page")
        proxy.faults = [Fault(servers.is_listing, instead=page)]
        with pytest.raises(OSError):
            list((m / "y/c/0").iterdir())
        assert "repeats a page of a listing" in m.errors() and next(numbers) < 5000


def test_ctrl_c_of_a_mount_that_waits_for_a_server_leaves_no_daemon(proxy, prefix, array, tmp_path):
    proxy.faults = [Fault(lambda request: True, silent=True)]
    mountpoint = tmp_path / "mnt"
    mountpoint.mkdir()

    def has_daemon():
        return subprocess.run(["pgrep", "-f", f"daemon={mountpoint}"], stdout=subprocess.DEVNULL).returncode == 0

    mounting = subprocess.Popen(
        [BIN, "mount", servers.url(prefix), mountpoint, "--endpoint", servers.endpoint(proxy.url)],
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert wait_until(lambda: proxy.requests)
    assert has_daemon()
    os.killpg(mounting.pid, signal.SIGINT)
    assert mounting.wait(timeout=SECONDS_TO_END) == -signal.SIGINT
    assert wait_until(lambda: not has_daemon())
