"""Mounts that end while their server is away: within seconds, with everything saved or named."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest
import zarr
from zarr.storage import ObjectStore

import servers
from mounts import BIN, is_alive, wait_until
from proxy import Fault

# Five seconds without a sign of the server, and a slow machine.
SOON = 15
SHARDS = 12
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
FAULTS = {
    "503": Fault(lambda request: True, status=503, body=SLOW_DOWN),
    "puts": Fault(lambda request: request.method in ("PUT", "POST"), status=503, body=SLOW_DOWN),
    "silent": Fault(lambda request: True, silent=True),
}


@pytest.fixture
def waiting(proxy, mount, prefix):
    """A mount in which half of each shard of `a` waits. `go_away` takes its server away."""
    group = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")
    group.create_array("a", shape=(20 * SHARDS,), shards=(20,), chunks=(10,), dtype="u1", compressors=None)

    def mounted(*options):
        return mount("--writeback-delay", "1h", *options)

    def write(m):
        for number in range(0, 2 * SHARDS, 2):
            (m / f"a/c/{number}").write_bytes(bytes([number + 1]) * 10)
        assert len((m / ".zarrfs/unstored").read_text().splitlines()) == SHARDS
        m.allow(".*")

    mounted.write = write
    return mounted


def go_away(proxy, how):
    if how == "gone":
        proxy.end()
    else:
        proxy.faults = [FAULTS[how]]


def assert_saved(place):
    saved = {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert saved == {f"a/c/{number}": bytes([number + 1]) * 10 for number in range(0, 2 * SHARDS, 2)}


away = pytest.mark.parametrize("how", ["503", "puts", "silent", "gone"])


@away
def test_umount_rescue_saves_everything_within_seconds(proxy, waiting, tmp_path, how):
    with waiting() as m:
        waiting.write(m)
        go_away(proxy, how)
        began = time.monotonic()
        done = subprocess.run([BIN, "umount", m.path, "--rescue", tmp_path / "saved"], capture_output=True, text=True)
        assert time.monotonic() - began < SOON, done.stderr
        assert done.returncode == 3, done.stderr
        assert f"saved in {tmp_path}/saved: a/c/0, " in done.stderr
        assert not m.is_mounted() and wait_until(lambda: not is_alive(m.pid), 5)
        assert_saved(tmp_path / "saved")


@away
@pytest.mark.parametrize("has_rescue", [True, False], ids=["rescue", "lost"])
def test_a_signal_ends_a_mount_within_seconds(proxy, waiting, tmp_path, how, has_rescue):
    saved = tmp_path / "saved"
    options = ["--rescue", saved] if has_rescue else []
    with waiting(*options) as m:
        waiting.write(m)
        go_away(proxy, how)
        os.kill(m.pid, signal.SIGTERM)
        assert wait_until(lambda: not is_alive(m.pid), SOON), m.log_file.read_text()
        assert not m.is_mounted()
        log = m.log_file.read_text()
        if has_rescue:
            assert f"saved in {saved}: a/c/0, " in log
            assert_saved(saved)
        else:
            assert "lost, unless `zarrfs umount --rescue` has saved it; unstored: a/c/0, a/c/10, " in log
            assert f"and {SHARDS - 10} more" in log


def test_a_second_signal_ends_a_mount_at_once(proxy, waiting):
    with waiting() as m:
        waiting.write(m)
        go_away(proxy, "silent")
        os.kill(m.pid, signal.SIGTERM)
        time.sleep(0.5)
        os.kill(m.pid, signal.SIGTERM)
        assert wait_until(lambda: not is_alive(m.pid), 3), m.log_file.read_text()
        assert "a second signal" in m.log_file.read_text()


@pytest.mark.parametrize("way", ["signal", "rescue"])
def test_a_long_value_on_a_slow_line_is_waited_for(proxy, mount, prefix, tmp_path, way):
    """The server answers nothing for longer than one that is away may."""
    length = 24 << 20
    group = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")
    group.create_array("a", shape=(length,), chunks=(length,), dtype="u1", compressors=None)
    values = np.random.default_rng(1).integers(0, 256, length, dtype="u1")
    with mount("--writeback", "all", "--writeback-delay", "1h") as m:
        # It is so long that it may be stored at once.
        proxy.faults = [Fault(lambda request: request.method == "PUT" and "/a/c/" in request.path, takes=0.12)]
        (m / "a/c/0").write_bytes(values.tobytes())
        assert len((m / ".zarrfs/unstored").read_text().splitlines()) == 1
        began = time.monotonic()
        if way == "signal":
            os.kill(m.pid, signal.SIGTERM)
            assert wait_until(lambda: not is_alive(m.pid), 60)
        else:
            done = subprocess.run([BIN, "umount", m.path, "--rescue", tmp_path / "saved"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        assert time.monotonic() - began > 8, "the line is not slow"
    stored = zarr.open_array(ObjectStore(servers.client(f"{prefix}/a")), mode="r")[:]
    assert np.array_equal(stored, values)


OTHERS = {
    "create": "open(root + '/b/c/5', 'wb')",
    "open": "open(root + '/b/c/0', 'r+b')",
    "mkdir": "os.mkdir(root + '/new')",
    "setxattr": "os.setxattr(root + '/b', 'user.attrs.x', b'1')",
    "rename": "os.rename(root + '/notes', root + '/others')",
    "metadata": "open(root + '/b/zarr.json', 'r+b').write(b'{')",
}


def test_programs_that_wait_for_a_change_on_a_silent_server_can_be_killed(proxy, mount, prefix):
    group = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")
    for name in "ab":
        group.create_array(name, shape=(40,), chunks=(10,), dtype="u1", compressors=None)[:] = 1
    with mount() as m:
        m.allow(".*")
        (m / "notes").write_bytes(b"text")
        document = json.loads((m / "a/zarr.json").read_text()) | {"attributes": {"new": 1}}
        proxy.faults = [Fault(lambda request: request.method == "PUT" and request.path.endswith("/a/zarr.json"), silent=True)]
        text = json.dumps(document)
        change = "import sys; file = open(sys.argv[1], 'w'); file.write(sys.argv[2]); file.close()"
        changing = subprocess.Popen(["python3", "-c", change, m / "a/zarr.json", text])
        time.sleep(1.5)
        start = "import os, sys; root = sys.argv[1]; "
        others = {name: subprocess.Popen(["python3", "-c", start + call, m.path]) for name, call in OTHERS.items()}
        time.sleep(1.5)
        assert changing.poll() is None
        for name, other in others.items():
            assert other.poll() is None, f"{name} does not wait"
            other.kill()
        began = time.monotonic()
        for other in others.values():
            other.wait(30)
        assert time.monotonic() - began < 3
        assert changing.poll() is None
        # What needs no change of the tree is answered all the time.
        assert (m / "b/c/0").read_bytes() == b"\1" * 10
        proxy.faults = []
        # The server was silent for too long, or it stores the file at the next try.
        is_stored = changing.wait(60) == 0
        assert is_stored or "a/zarr.json: the server was silent" in m.errors()
    if is_stored:
        assert zarr.open_array(ObjectStore(servers.client(f"{prefix}/a")), mode="r").attrs["new"] == 1


def test_a_conversion_after_a_killed_one_says_what_it_waits_for(proxy, prefix, tmp_path):
    source = zarr.open_group(tmp_path / "source", mode="w")
    source.create_array("a", shape=(4000,), chunks=(10,), dtype="u1", compressors=None)[:] = 1
    target = servers.url(f"{prefix}/target")
    command = [BIN, "convert", tmp_path / "source", target, "--endpoint", servers.endpoint(proxy.url)]
    proxy.delay = 0.02
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as killed:
        assert wait_until(lambda: len(servers.keys(f"{prefix}/target")) > 20, 30)
        killed.kill()
    began = time.monotonic()
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as second:
        said = second.stderr.readline()
        assert time.monotonic() - began < 10
        assert "waiting 60 s to see whether" in said, said
        second.kill()
