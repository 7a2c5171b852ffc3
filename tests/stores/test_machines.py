"""Mounts on several machines that write the same shards: network namespaces, with links that fail and daemons that are
killed. It takes minutes and root, so it runs only with ZARRFS_LONG=1."""

import contextlib
import glob
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from urllib.parse import urlparse

import dask
import dask.array
import numpy as np
import pytest
import xarray
import zarr
from zarr.storage import ObjectStore

import mounts
import servers
from mounts import Mount, until_end

pytestmark = pytest.mark.skipif(
    os.environ.get("ZARRFS_LONG") != "1" or os.geteuid() != 0 or not shutil.which("ip"),
    reason="ZARRFS_LONG is not 1, or this is not root with iproute2",
)
SHARDS, CHUNKS, CHUNK = 32, 4, 10
FAKETIME = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)
numbers = itertools.count()


def run(*command):
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


class Machine:
    """A network namespace with a link to this one."""

    def __init__(self, number):
        self.name, self.link = f"zarrfs{os.getpid()}-{number}", f"zfs{os.getpid() % 100000}{number}"
        self.here, self.there = f"10.211.{number}.1", f"10.211.{number}.2"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "wire", "netns", self.name)
        run("ip", "addr", "add", f"{self.here}/24", "dev", self.link)
        run("ip", "link", "set", self.link, "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.there}/24", "dev", "wire")
        run("ip", "-n", self.name, "link", "set", "wire", "up")

    def cut(self, seconds):
        """Takes the link away for a while."""
        run("ip", "link", "set", self.link, "down")
        time.sleep(seconds)
        run("ip", "link", "set", self.link, "up")

    def end(self):
        subprocess.run(["ip", "netns", "del", self.name])


@pytest.fixture
def machines():
    with contextlib.ExitStack() as stack:

        def made(count):
            machines = [Machine(next(numbers)) for _ in range(count)]
            for machine in machines:
                stack.callback(machine.end)
            return machines

        yield made


def is_open(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def relay():
    """The port at which the server is reached from all machines."""
    url = urlparse(servers.SERVER)
    port = url.port + 5
    proxy = os.path.join(os.path.dirname(__file__), "proxy.py")
    command = ["python3", proxy, f"0.0.0.0:{port}", f"{url.hostname}:{url.port}"]
    with subprocess.Popen(command) as process:
        try:
            assert mounts.wait_until(lambda: process.poll() is not None or is_open(port)) and process.poll() is None
            yield port
        finally:
            process.kill()


class Writer:
    """A mount on a machine, which is mounted again when it was killed."""

    def __init__(self, machine, port, prefix, path, clock=""):
        """With a `clock` such as `-1h`, that of the machine is wrong by so much."""
        self.machine, self.path, self.count, self.clock = machine, path, 0, clock
        self.url, self.endpoint = servers.url(prefix), f"http://{machine.here}:{port}"
        self.mount = None

    def start(self):
        wrapper = self.path.with_name(f"{self.path.name}.sh")
        clock = f"env LD_PRELOAD={FAKETIME} FAKETIME={self.clock} FAKETIME_DONT_FAKE_MONOTONIC=1" if self.clock else ""
        enter = f"nsenter --net=/run/netns/{self.machine.name}"
        wrapper.write_text(f'#!/bin/sh\nexec {enter} {clock} {mounts.BIN} "$@"\n')
        wrapper.chmod(0o755)
        self.count += 1
        at = self.path / str(self.count)
        self.mount = Mount(self.path / "none", at, "--endpoint", self.endpoint, source=self.url, program=wrapper)
        self.mount.allow(".*")

    def store(self, at, value):
        """Writes an inner chunk until it is stored."""
        while True:
            try:
                (self.mount / "c").mkdir(exist_ok=True)
                (self.mount / f"c/{at}").write_bytes(np.full(CHUNK, value, "i4").tobytes())
                self.mount.sync()
                return
            except (OSError, mounts.MountFailed):
                time.sleep(0.2)
                if not mounts.is_alive(self.mount.pid):
                    mounts.detach(self.mount.path)
                    self.start()


def write_all(writers, seed):
    """All writers store all inner chunks once, in random order."""

    def write(number):
        mine = list(range(number, SHARDS * CHUNKS, len(writers)))
        random.Random(seed * 100 + number).shuffle(mine)
        for at in mine:
            writers[number].store(at, seed * 1000 + at)

    with ThreadPoolExecutor(len(writers)) as pool:
        list(pool.map(write, range(len(writers))))


def lost_of(prefix, seed):
    """The inner chunks that do not have what was written last."""
    found = zarr.open_array(ObjectStore(servers.client(prefix)), mode="r")[...]
    want = np.repeat(seed * 1000 + np.arange(SHARDS * CHUNKS), CHUNK)
    return np.unique(np.nonzero(found != want)[0] // CHUNK)


def check(prefix, seed):
    lost = lost_of(prefix, seed)
    assert not lost.size, f"inner chunks lost: {lost}"
    left = [key for key in servers.keys(prefix) if ".zarrfs" in key]
    assert not left, left


@pytest.fixture
def array(prefix):
    shape = (SHARDS * CHUNKS * CHUNK,)
    zarr.create_array(
        ObjectStore(servers.client(prefix)), shape=shape, chunks=(CHUNK,), shards=(CHUNK * CHUNKS,), dtype="i4"
    )


@contextlib.contextmanager
def started(machines, relay, prefix, tmp_path, clocks=()):
    with contextlib.ExitStack() as stack:
        writers = []
        for number, (machine, clock) in enumerate(itertools.zip_longest(machines, clocks)):
            path = tmp_path / f"machine{number}"
            path.mkdir()
            writer = Writer(machine, relay, prefix, path, clock)
            writer.start()
            stack.callback(lambda writer=writer: writer.mount.end())
            writers.append(writer)
        yield writers


@pytest.mark.parametrize("count", [2, 4])
def test_machines_lose_nothing_of_the_shards_that_all_write(machines, relay, array, prefix, tmp_path, count):
    with started(machines(count), relay, prefix, tmp_path) as writers:
        for seed in range(1, 21):
            write_all(writers, seed)
            check(prefix, seed)


def test_a_killed_machine_loses_nothing_that_was_stored(machines, relay, array, prefix, tmp_path):
    with started(machines(4), relay, prefix, tmp_path) as writers:
        ended = threading.Event()

        def kill():
            while not ended.wait(random.Random().uniform(0.5, 3)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(writers[0].mount.pid, signal.SIGKILL)

        killing = threading.Thread(target=kill)
        killing.start()
        try:
            for seed in range(1, 11):
                write_all(writers, seed)
        finally:
            ended.set()
            killing.join()
        assert writers[0].count > 1
        check(prefix, 10)


@pytest.mark.parametrize("seconds", [5, 30, 90])
def test_a_machine_without_a_link_for_a_while_loses_nothing(machines, relay, array, prefix, tmp_path, seconds):
    with started(machines(4), relay, prefix, tmp_path) as writers:
        cutting = threading.Thread(target=lambda: (time.sleep(0.5), writers[0].machine.cut(seconds)))
        cutting.start()
        write_all(writers, 1)
        cutting.join()
        write_all(writers, 2)
    check(prefix, 2)


@pytest.mark.skipif(not FAKETIME, reason="there is no libfaketime (Debian's faketime)")
def test_machines_with_clocks_as_wrong_as_servers_allow_lose_nothing(machines, relay, array, prefix, tmp_path):
    with started(machines(3), relay, prefix, tmp_path, ["", "-14m", "+14m"]) as writers:
        for number, minutes in enumerate([0, -14, 14]):
            writers[number].store(number, 1)
            # The time of what a mount has just stored is that of its clock.
            stored = os.stat(writers[number].mount / f"c/{number}").st_mtime
            assert abs(stored - time.time() - 60 * minutes) < 60
        for seed in range(1, 11):
            write_all(writers, seed)
            check(prefix, seed)


def zarr_python(prefix, number, count, seed, begin):
    """Writes inner chunks of all shards without zarrfs."""
    array = zarr.open_array(ObjectStore(servers.client(prefix)), mode="r+")
    mine = list(range(number, SHARDS * CHUNKS, count))
    random.Random(seed * 100 + number).shuffle(mine)
    begin.wait(300)
    for at in mine:
        array[at * CHUNK : (at + 1) * CHUNK] = seed * 1000 + at


@pytest.mark.parametrize("count", [2, 4])
def test_the_losses_of_zarr_python_under_the_same_load_are_printed(array, prefix, capsys, count):
    lost, spawn = [], multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(count, mp_context=spawn) as pool:
        begin = manager.Barrier(count)
        for seed in range(1, 21):
            writing = [pool.submit(zarr_python, prefix, number, count, seed, begin) for number in range(count)]
            for written in writing:
                written.result(600)
            lost.append(len(lost_of(prefix, seed)))
    with capsys.disabled():
        losses = f"of {SHARDS * CHUNKS} inner chunks {lost} were lost, {sum(lost)} in {len(lost)} rounds"
        print(f"\nzarr-python {zarr.__version__}, {count} processes: {losses}")


def to_zarr(path, number, count):
    """Writes the dask chunks of a worker into an array with larger shards."""
    data = dask.array.arange(SHARDS * CHUNKS * CHUNK, chunks=CHUNK, dtype="i4") + 1
    times = xarray.Dataset({"x": ("t", data)})
    for at in range(number, SHARDS * CHUNKS, count):
        region = slice(at * CHUNK, (at + 1) * CHUNK)
        times.isel(t=region).to_zarr(path, region={"t": region}, consolidated=False, safe_chunks=False)


def test_dask_workers_with_a_mount_each_lose_nothing(machines, relay, prefix, tmp_path):
    length, count = SHARDS * CHUNKS * CHUNK, 4
    group = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")
    shapes = {"shape": (length,), "chunks": (CHUNK,), "shards": (CHUNK * CHUNKS,)}
    group.create_array("x", **shapes, dtype="i4", dimension_names=["t"])
    with started(machines(count), relay, prefix, tmp_path) as writers:
        tasks = [dask.delayed(to_zarr)(str(writer.mount.path), n, count) for n, writer in enumerate(writers)]
        dask.compute(*tasks, scheduler="processes", num_workers=count)
    found = zarr.open_array(ObjectStore(servers.client(prefix)), path="x", mode="r")[...]
    lost = np.unique(np.nonzero(found != np.arange(length) + 1)[0] // CHUNK)
    assert not lost.size, f"inner chunks lost: {lost}"
