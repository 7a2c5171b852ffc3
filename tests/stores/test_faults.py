"""Faults of the network and the server: each at every request of a short run."""

import errno
import os
import signal
import subprocess
import time

import numpy as np
import pytest
import zarr
from zarr.storage import ObjectStore

import servers
from mounts import MountFailed, is_alive, wait_until
from proxy import Fault

DATA = np.random.default_rng(3).integers(0, 1 << 30, (3, 200, 300), dtype="i4")
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"

# What happens to one request; the run then goes on.
ONCE = {
    "500": {"status": 500},
    "503": {"status": 503, "headers": {"Retry-After": "0"}, "body": SLOW_DOWN},
    "429": {"status": 429},
    "reset before the answer": {"lose": True},
    "reset after no byte": {"cut": 0},
    "reset after a byte": {"cut": 1},
    "reset after half": {"cut": 0.5},
    "reset before the last byte": {"cut": -1},
}


@pytest.fixture
def array(prefix):
    root = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")
    root.create_array("x", data=DATA, chunks=(1, 200, 300), shards=(3, 200, 300))
    root.create_array("y", data=DATA, chunks=(1, 200, 300))


def strike(proxy, at, fault):
    """Breaks the request `at`, counted from now, once: what is tried again is not broken. Returns the broken ones."""
    first, struck = proxy.count, []

    def applies(request):
        if request.number == first + at and not struck:
            struck.append(request)
            return True
        return False

    proxy.faults = [Fault(applies, **fault)]
    return struck


def run(mount, *options):
    """Mounts, lists and reads in each way; the number of requests is always the same."""
    with mount(*options) as m:
        assert sorted(os.listdir(m.path)) == ["x", "y", "zarr.json"]
        assert sorted(os.listdir(m / "y/c")) == ["0", "1", "2"]
        assert (m / "x/c/1/0/0").read_bytes() == DATA[1].tobytes()
        assert (m / "y/c/1/0/0").read_bytes() == DATA[1].tobytes()
        assert not (m / "y/c/7/0/0").exists()
        assert np.array_equal(np.load(m / "x.npy"), DATA)
        assert np.array_equal(np.load(m / "y.npy"), DATA)


@pytest.mark.parametrize("name", ONCE)
def test_a_fault_that_passes_is_not_seen(proxy, mount, array, name):
    run(mount)
    count = len(proxy.take())
    for at in range(count):
        struck = strike(proxy, at, ONCE[name])
        run(mount)
        assert struck, f"request {at} was not made"


@pytest.mark.parametrize(
    "fault, number",
    [
        ({"status": 403}, errno.EACCES),
        ({"status": 500}, errno.EIO),
        ({"status": 400, "body": b"<Error><Code>ExpiredToken</Code></Error>"}, errno.EACCES),
        ({"lose": True}, errno.EIO),
    ],
)
def test_a_fault_that_stays_is_an_error_and_never_a_fill_value(proxy, mount, array, fault, number):
    with mount("--retry-for", "1s") as m:
        assert (m / "y/zarr.json").exists() and (m / "x/zarr.json").exists()
        m.expect("the server answered|no connection|closed|error")
        proxy.faults = [Fault(lambda request: True, **fault)]
        for path in ["y/c/1/0/0", "x/c/1/0/0", "y.npy"]:
            with pytest.raises(OSError) as refused:
                (m / path).read_bytes()
            assert refused.value.errno == number, f"{path}: {refused.value}"
        proxy.faults = []
        assert (m / "y/c/1/0/0").read_bytes() == DATA[1].tobytes()
        assert np.array_equal(np.load(m / "x.npy"), DATA)


def test_a_server_that_refuses_at_mount_is_named(proxy, mount, array):
    proxy.faults = [Fault(lambda request: True, status=403, body=b"<Error><Code>AccessDenied</Code></Error>")]
    with pytest.raises(MountFailed) as failed, mount():
        pass
    assert "the server answered 403" in failed.value.said and "AccessDenied" in failed.value.said


def test_a_mount_of_a_server_that_is_gone_can_be_unmounted(proxy, mount, array):
    with mount("--retry-for", "1s") as m:
        assert (m / "y/zarr.json").exists()
        m.allow(".*")
        proxy.faults = [Fault(lambda request: True, lose=True)]
        with pytest.raises(OSError):
            (m / "y/c/0/0/0").read_bytes()


@pytest.mark.parametrize("options", [(), ("-o", "ro")])
def test_a_signal_ends_a_read_from_a_silent_server(proxy, mount, array, options):
    with mount(*options) as m:
        assert (m / "y/zarr.json").exists()
        m.allow(".*")
        proxy.faults = [Fault(lambda request: "/y/c/" in request.path, silent=True)]
        with subprocess.Popen(["cat", m / "y/c/0/0/0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as reading:
            time.sleep(1)
            os.kill(m.pid, signal.SIGTERM)
            # Sooner than the server would be given up.
            assert wait_until(lambda: not is_alive(m.pid), 7)
            assert reading.wait(5) != 0


def hides(request):
    return request.method in ("GET", "HEAD")


def test_a_bucket_that_answers_403_for_what_is_missing_is_recognized(proxy, mount, prefix):
    for number, name in [(2, "two"), (3, "three")]:
        store = ObjectStore(servers.client(f"{prefix}/{name}"))
        root = zarr.open_group(store, mode="w", zarr_format=number)
        array = root.create_array("x", shape=(4, 4), chunks=(2, 2), dtype="i4", fill_value=7)
        array[:2] = 1
    no_list = Fault(lambda request: "list-type" in request.path, status=403)
    hidden = Fault(hides, change=lambda head: head.replace(b"404 Not Found", b"403 Forbidden"))
    for name in ["two", "three"]:
        proxy.faults = [no_list, hidden]
        with mount(below=name) as m:
            m.expect("answers 403 for missing objects")
            assert (np.load(m / "x.npy")[:2] == 1).all() and (np.load(m / "x.npy")[2:] == 7).all()
        # Refused for another reason: no fill values.
        proxy.faults = []
        with mount(below=name) as m:
            assert (m / "x/zarr.json").exists() or (m / "x/.zarray").exists()
            m.allow(".*")
            proxy.faults = [Fault(hides, status=403)]
            with pytest.raises(OSError) as refused:
                (m / "x/c/0/0").read_bytes()
            assert refused.value.errno == errno.EACCES
