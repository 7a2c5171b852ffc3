"""The programs that benches/stores/compare.py compares, each as a session that is cold when it begins.

A session has a method for each thing that is measured (`ls`, `sweep`, ..), which returns the seconds that it took. A
method that a program lacks leaves its cell empty. All programs speak to the server through the proxy. Names of nodes
are relative to the `prefix` of the session, which a mount has as its root.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from server import BUCKET, HERE, PATIENCE, TooLong, end, run, start, timed


class Library:
    """benches/stores/library.py, in a process for all sessions."""

    def __init__(self, kind, proxy, work):
        command = [sys.executable, HERE / "library.py", kind, proxy.url, BUCKET]
        log = open(f"{work}/{kind}.log", "a")
        self.process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{kind} did not start")

    def __getattr__(self, method):
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*arguments):
            print(json.dumps([method, *arguments]), file=self.process.stdin, flush=True)
            ended = threading.Timer(PATIENCE, self.process.kill)
            ended.start()
            answer = self.process.stdout.readline()
            ended.cancel()
            if not answer:
                if self.process.wait() == -signal.SIGKILL:
                    raise TooLong(f"over {PATIENCE} s")
                raise RuntimeError(f"{method}{arguments}: the program ended")
            return json.loads(answer)

        return call

    def mounted(self):
        pass

    def settle(self):
        pass

    def memory(self):
        return None

    def close(self):
        """The process stays for the next session, which calls `begin`."""

    def is_running(self):
        return self.process.poll() is None

    def end(self):
        end(self.process)


class Mount:
    """What is the same for all programs that mount."""

    def __init__(self, proxy, work, prefix):
        self.proxy, self.prefix, self.path, self.pid = proxy, prefix, Path(work) / "mnt", None
        self.path.mkdir(exist_ok=True)
        self.is_mounted = False

    def settle(self):
        self.proxy.settle()

    def ls(self, name):
        return timed("ls", self.path / name)

    def ls_l(self, name):
        return timed("ls", "-l", self.path / name)

    def find(self, name):
        return timed("find", self.path / name)

    def find_1(self, name):
        return timed("find", self.path / name, "-maxdepth", "1")

    def find_size(self, name):
        return timed("find", self.path / name, "-size", "-9999k")

    def missing(self, name):
        began = time.perf_counter()
        for missing in ("nothing", "nothing.npy", ".git", "zarr.jsonx", ".DS_Store"):
            assert not (self.path / name / missing).exists()
        return time.perf_counter() - began

    def idle(self, seconds):
        time.sleep(seconds)
        return seconds

    def document(self, name):
        return timed("cat", self.path / name / "zarr.json")

    def open(self, name, *_):
        """Before other things, untimed."""
        (self.path / name / "zarr.json").read_bytes()
        return 0.0

    def chunk(self, name, coords):
        return self.path / name / "c" / "/".join(map(str, coords))

    def read(self, name, _chunk, coords):
        return timed("cat", self.chunk(name, coords))

    def first(self, path, chunk, coords):
        return self.read(path, chunk, coords)

    def scattered(self, name, _chunk, places):
        """By 64 threads."""
        with ThreadPoolExecutor(64) as pool:
            began = time.perf_counter()
            assert all(pool.map(lambda at: self.chunk(name, at).read_bytes(), places))
            return time.perf_counter() - began

    def plan(self, _name):
        return None

    def load(self, *_sources):
        return None

    def memory(self):
        """The most memory since the last call, in bytes."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        except (OSError, TypeError):
            return None
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else None

    def together(self, commands):
        began = time.perf_counter()
        programs = [start(command) for command in commands]
        try:
            assert not any(program.wait() for program in programs)
        finally:
            for program in programs:
                program.kill()
        return time.perf_counter() - began

    def close(self):
        if self.is_mounted:
            with contextlib.suppress(TooLong, subprocess.CalledProcessError):
                self.unmount()
        # After a failure.
        for _ in range(20):
            if not os.path.ismount(self.path):
                return
            subprocess.run(["fusermount3", "-u", "-z", self.path], check=False)
            time.sleep(0.1)


class Zarrfs(Mount):
    def __init__(self, program, proxy, work, prefix):
        super().__init__(proxy, work, prefix)
        self.program = program

    def root(self, _dialect="v3"):
        self.is_mounted = True
        url = f"s3://{BUCKET}/{self.prefix}"
        # Only a mount in which nothing is written uses consolidated metadata.
        options = ["-o", "ro"] if self.prefix == "consolidated" else []
        return timed(self.program, "mount", url, self.path, "--endpoint", self.proxy.url, *options)

    def mounted(self):
        """After `root`, untimed."""
        stats = (self.path / ".zarrfs/stats").read_text()
        self.pid = int(float(re.search(r"^zarrfs_process_id (\S+)", stats, re.M)[1]))
        self.proxy.settle()
        self.memory()

    def unmount(self):
        run(self.program, "umount", self.path)
        self.is_mounted = False

    def inner(self, name, chunk, coords, *_):
        return self.read(name, chunk, coords)

    def view(self, name):
        return self.path / f"{name}.npy"

    def open_view(self, name):
        os.stat(self.view(name))

    def places(self, name, chunk, places):
        """Parts of the view, one after another: they are runs of its bytes."""
        header = os.path.getsize(self.view(name)) % 4096
        length = 4 * chunk[1] * chunk[2]
        began = time.perf_counter()
        with open(self.view(name), "rb", buffering=0) as file:
            for plane, part in places:
                at = header + (plane << 20) + part * length
                assert len(os.pread(file.fileno(), length, at)) == length
        return time.perf_counter() - began

    def sweep(self, name):
        return timed("cat", self.view(name))

    def chunk_files(self, name):
        return timed("sh", "-c", f"exec cat {self.path}/{name}/c/*/0/0")

    def readers(self, name, count):
        return self.together([["cat", self.view(name)]] * count)

    def programs(self, name, coords, count):
        return self.together([["cat", self.chunk(name, coords)]] * count)

    def many_open(self, files, reads, length):
        """`files` are names and coords of chunks: all open, then read at random by 16 threads."""
        dice = random.Random(7)
        opened = []
        began = time.perf_counter()
        try:
            for name, coords in files:
                opened.append(os.open(self.chunk(name, coords), os.O_RDONLY))
            jobs = [(dice.choice(opened), dice.randrange((1 << 20) - length)) for _ in range(reads)]
            with ThreadPoolExecutor(16) as pool:
                assert all(pool.map(lambda job: len(os.pread(job[0], length, job[1])) == length, jobs))
            return time.perf_counter() - began
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def write(self, name, npy, _encoded):
        """`cp` onto the view, and `umount`."""
        began = time.perf_counter()
        run("cp", npy, self.view(name))
        self.stored()
        return time.perf_counter() - began

    def edit(self, name, _chunk, coords):
        """Changes one chunk, as a whole."""
        value = os.urandom(1 << 20)
        began = time.perf_counter()
        with open(self.chunk(name, coords), "r+b", buffering=0) as file:
            assert file.write(value) == len(value)
        self.stored()
        return time.perf_counter() - began

    def stored(self):
        """Unmounts, and keeps the most memory that the daemon had meanwhile."""
        most, done = 0, start([self.program, "umount", self.path])
        while done.poll() is None:
            most = max(most, self.memory() or 0)
            time.sleep(0.005)
        self.memory = lambda: most
        assert done.returncode == 0, f"umount: exit code {done.returncode}"
        self.is_mounted = False


class Files(Mount):
    """A mount of the objects as files."""

    def ready(self, began):
        """Waits until it is mounted."""
        while not os.path.ismount(self.path):
            if self.process.poll() not in (None, 0):
                raise RuntimeError(Path(self.log).read_text()[-400:] or "no message")
            if time.perf_counter() - began > 20:
                raise RuntimeError("not mounted after 20 s")
            time.sleep(0.005)
        self.is_mounted = True
        next(os.scandir(self.path), None)
        return time.perf_counter() - began

    def mounted(self):
        self.pid = self.process.pid
        self.proxy.settle()
        self.memory()

    def unmount(self):
        run("fusermount3", "-u", self.path)
        self.process.wait(60)
        self.is_mounted = False

    def close(self):
        super().close()
        if hasattr(self, "process"):
            end(self.process)

    def inner(self, name, _chunk, _coords, shard, at, length):
        began = time.perf_counter()
        with open(self.chunk(name, shard), "rb", buffering=0) as file:
            assert os.pread(file.fileno(), length, at)
        return time.perf_counter() - began

    def places(self, name, _chunk, places):
        began = time.perf_counter()
        for plane, _ in places:
            self.chunk(name, (plane, 0, 0)).read_bytes()
        return time.perf_counter() - began

    def sweep(self, name):
        return timed("sh", "-c", f"exec cat {self.path}/{name}/c/*/0/0")

    def readers(self, name, count):
        return self.together([["sh", "-c", f"exec cat {self.path}/{name}/c/*/0/0"]] * count)

    def programs(self, name, coords, count):
        return self.together([["cat", self.chunk(name, coords)]] * count)

    def write(self, name, _npy, encoded):
        """A copy of the encoded chunks, and the end of the mount."""
        began = time.perf_counter()
        run("cp", "-r", f"{encoded}/c", self.path / name / "c")
        self.wait_for_uploads(name, encoded)
        self.unmount()
        return time.perf_counter() - began

    def wait_for_uploads(self, name, encoded):
        pass


class Rclone(Files):
    def __init__(self, server, proxy, work, prefix):
        super().__init__(proxy, work, prefix)
        self.server, self.cache, self.log = server, f"{work}/rclone-cache", f"{work}/rclone.log"

    def root(self, _dialect="v3"):
        began = time.perf_counter()
        remote = f":s3,provider=Other,env_auth,endpoint='{self.proxy.url}':{BUCKET}/{self.prefix}"
        options = ["--vfs-cache-mode=writes", "--vfs-write-back=0s", f"--cache-dir={self.cache}"]
        options += ["--use-server-modtime", "--vfs-fast-fingerprint", "--transfers=64"]
        options += [f"--log-file={self.log}", "--config=/dev/null"]
        self.process = start(["rclone", "mount", remote, self.path, *options], log=self.log)
        return self.ready(began)

    def wait_for_uploads(self, name, encoded):
        """Files are uploaded after they were closed."""
        count = sum(path.is_file() for path in Path(encoded).rglob("*"))
        deadline = time.monotonic() + PATIENCE
        while len(self.server.keys(f"{self.prefix}/{name}/c")) < count:
            if time.monotonic() > deadline:
                raise TooLong(f"over {PATIENCE} s")
            time.sleep(0.02)

    def close(self):
        super().close()
        shutil.rmtree(self.cache, ignore_errors=True)


class S3fs(Files):
    def root(self, _dialect="v3"):
        work = self.path.parent
        self.log, password = f"{work}/s3fs.log", work / "s3fs-password"
        password.write_text("any:any")
        password.chmod(0o600)
        began = time.perf_counter()
        options = f"url={self.proxy.url},use_path_request_style,passwd_file={password}"
        options += ",multireq_max=64,parallel_count=64"
        command = ["s3fs", f"{BUCKET}:/{self.prefix}", self.path, "-f", "-o", options]
        self.process = start(command, log=self.log)
        return self.ready(began)
