"""Mounts on several machines that write the same shards: network namespaces, with links that fail and daemons that are
killed. It takes minutes and root, so it runs only with ZARRFS_LONG=1."""

import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlparse

import numpy as np
import pytest
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


@pytest.fixture
def relay():
    """The port at which the server is reached from all machines."""
    url = urlparse(servers.SERVER)
    port = url.port + 5
    proxy = os.path.join(os.path.dirname(__file__), "proxy.py")
    command = ["python3", proxy, f"0.0.0.0:{port}", f"{url.hostname}:{url.port}"]
    with subprocess.Popen(command) as process:
        time.sleep(1)
        yield port
        process.kill()


class Writer:
    """A mount on a machine, which is mounted again when it was killed."""

    def __init__(self, machine, port, prefix, path):
        self.machine, self.path, self.count = machine, path, 0
        self.url, self.endpoint = f"s3://{servers.BUCKET}/{prefix}", f"http://{machine.here}:{port}"
        self.mount = None

    def start(self):
        wrapper = self.path.with_name(f"{self.path.name}.sh")
        wrapper.write_text(f'#!/bin/sh\nexec nsenter --net=/run/netns/{self.machine.name} {mounts.BIN} "$@"\n')
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


def check(prefix, seed):
    import obstore

    found = zarr.open_array(ObjectStore(servers.client(prefix)), mode="r")[...]
    want = np.repeat(seed * 1000 + np.arange(SHARDS * CHUNKS), CHUNK)
    lost = np.unique(np.nonzero(found != want)[0] // CHUNK)
    assert not lost.size, f"inner chunks lost: {lost}"
    left = [meta["path"] for page in obstore.list(servers.client(prefix)) for meta in page if ".zarrfs" in meta["path"]]
    assert not left, left


@pytest.fixture
def array(prefix):
    shape = (SHARDS * CHUNKS * CHUNK,)
    zarr.create_array(
        ObjectStore(servers.client(prefix)), shape=shape, chunks=(CHUNK,), shards=(CHUNK * CHUNKS,), dtype="i4"
    )


@contextlib.contextmanager
def started(machines, relay, prefix, tmp_path):
    with contextlib.ExitStack() as stack:
        writers = []
        for number, machine in enumerate(machines):
            path = tmp_path / f"machine{number}"
            path.mkdir()
            writer = Writer(machine, relay, prefix, path)
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
