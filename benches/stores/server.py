"""The server, the proxy before it, and the processes of benches/stores/compare.py."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BUCKET = "bench"
KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
# A program that takes longer is ended, and its cell says so.
PATIENCE = 45
# Requests that a mount makes by itself have ended when none ended for so long.
QUIET = 0.15


class TooLong(Exception):
    """A program did not end within PATIENCE."""


def start(command, log=None, **options):
    """Starts a program that a Ctrl-C on the terminal does not reach, so that it ends after its mount."""
    with open(log or os.devnull, "a") as output:
        options = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output} | options
        return subprocess.Popen(command, start_new_session=True, env=os.environ | KEYS, **options)


def end(process):
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    process.kill()
    process.wait()


def run(*command, patience=PATIENCE):
    try:
        subprocess.run(
            [str(part) for part in command],
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | KEYS,
            timeout=patience,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise TooLong(f"over {patience} s") from None


def timed(*command):
    began = time.perf_counter()
    run(*command)
    return time.perf_counter() - began


def free_ports(count):
    """Ports of this machine. SeaweedFS uses a port and that port plus 10000 for each of its parts."""

    def is_free(port):
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) != 0

    found = []
    while len(found) < count:
        port = random.randrange(12000, 22000)  # The kernel gives ports from 32768 to clients.
        if port not in found and is_free(port) and is_free(port + 10000):
            found.append(port)
    return found


class Server:
    """SeaweedFS, with its data below `work`."""

    def __init__(self, work):
        self.ports = master, volume, filer, s3 = free_ports(4)
        self.s3, self.url, self.log = s3, f"http://127.0.0.1:{s3}", f"{work}/weed.log"
        os.makedirs(f"{work}/weed")
        command = [Path(sys.executable).parent / "weed", f"-logdir={work}", "server", f"-dir={work}/weed"]
        command += ["-ip=127.0.0.1", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", "-s3"]
        command += [f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=200"]
        self.process = start([*command, "-master.volumeSizeLimitMB=1024"], log=self.log)

    def ready(self):
        """Makes the bucket as soon as the server answers."""
        import botocore.session
        from botocore.config import Config

        config = Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"})
        names = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "us-east-1"}
        for _ in range(600):
            if self.process.poll() is not None:
                break
            with contextlib.suppress(Exception):  # It is not there yet.
                client = botocore.session.Session().create_client("s3", endpoint_url=self.url, config=config, **names)
                client.create_bucket(Bucket=BUCKET)
                return
            time.sleep(0.1)
        raise SystemExit("the server did not start:\n" + Path(self.log).read_text()[-2000:])

    def client(self, prefix=None):
        from library import client

        return client(self.url, BUCKET, prefix)

    def keys(self, prefix):
        import obstore

        return [meta["path"] for page in obstore.list(self.client(), prefix) for meta in page]

    def close(self):
        end(self.process)
        # It leaves its sockets.
        for port in self.ports:
            for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                path.unlink(missing_ok=True)
            for path in Path("/tmp").glob(f"seaweedfs-*-grpc-{port + 10000}.sock"):
                path.unlink(missing_ok=True)


class Proxy:
    """tests/stores/proxy.py as a process of its own, and its log."""

    def __init__(self, listen, server, delay, log):
        self.url, self.log = f"http://127.0.0.1:{listen}", log
        Path(log).touch()
        command = [sys.executable, HERE.parents[1] / "tests/stores/proxy.py", f"127.0.0.1:{listen}"]
        command += [f"127.0.0.1:{server}", "--delay", str(delay), "--log", log]
        self.process = start(command, log=f"{log}.errors")
        self.at = 0
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", listen), 1):
                return
            time.sleep(0.05)
        raise SystemExit("the proxy did not start:\n" + Path(f"{log}.errors").read_text())

    def close(self):
        end(self.process)

    def take(self):
        """The requests since the last `take`, as lists: method, path, range, status, bytes."""
        with open(self.log) as file:
            file.seek(self.at)
            lines = file.read()
        lines = lines[: lines.rfind("\n") + 1]
        self.at += len(lines.encode())
        return [line.split() for line in lines.splitlines()]

    def settle(self):
        """Waits until no request ends for a while."""
        size, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET:
            now = os.path.getsize(self.log)
            if now != size:
                size, since = now, time.monotonic()
            time.sleep(0.01)
