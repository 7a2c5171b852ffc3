#!/usr/bin/env python3
"""Compares the kinds of stores: the same hierarchy on each, with the requests and times of the same operations.

    scripts/bench.sh kinds [--rounds N] [--only REGEX] [--zarrfs PROGRAM]

scripts/bench.sh builds zarrfs (unless --zarrfs or ZARRFS_BIN names it), installs Azurite and nginx, and calls this. The
servers are SeaweedFS, Azurite, tests/stores/gcs.py and nginx, each behind a proxy that delays each direction by 25 ms.
Each operation has a mount of its own, so nothing is cached. A cell has the best time and the most requests.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import zarr

from data import CHUNK, INNER, SHARD, planes
from server import BUCKET, HERE, KEYS, Proxy, Server, end, free_ports, start

sys.path.insert(0, str(HERE.parents[1] / "tests/stores"))

import web  # noqa: E402, the web servers

AZURE = {
    "AZURE_STORAGE_ACCOUNT": "devstoreaccount1",
    # The key of every emulator: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite
    "AZURE_STORAGE_ACCOUNT_KEY": (
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    ),
}
CHUNKS, SHARDS, NODES = 128, 2, 100


def hierarchy(store):
    """Makes a group of many arrays, an array of chunks three levels down, and one of shards."""
    root = zarr.open_group(store, mode="w")
    many = root.create_group("many")
    for number in range(NODES):
        many.create_array(f"n{number:03}", data=np.arange(4, dtype="f4"))
    values = planes(CHUNKS)
    root.require_group("a/b").create_array("x", data=values, chunks=CHUNK)
    shape = (SHARDS * SHARD[0], *SHARD[1:])
    root.create_array("m", data=values.reshape(-1)[: np.prod(shape)].reshape(shape), chunks=INNER, shards=SHARD)


def files(directory):
    return [path for path in sorted(Path(directory).rglob("*")) if path.is_file()]


def references(directory, below):
    """References as kerchunk writes them: metadata inline, and each chunk a whole file."""
    refs = {}
    for path in files(directory):
        key = str(path.relative_to(directory))
        refs[key] = path.read_text() if path.suffix == ".json" else [f"{below}/{key}", 0, path.stat().st_size]
    return json.dumps({"version": 1, "refs": refs})


def prepare(work):
    """Makes the directory with all that the servers have, and returns it."""
    import icechunk

    tree = Path(work, "tree")
    hierarchy(f"{tree}/x.zarr")
    shutil.copytree(tree / "x.zarr", tree / "consolidated.zarr")
    zarr.consolidate_metadata(f"{tree}/consolidated.zarr")
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(f"{tree}/x.icechunk"))
    session = repository.writable_session("main")
    hierarchy(session.store)
    session.commit("one")
    (tree / "x.json").write_text(references(tree / "x.zarr", "x.zarr"))
    with zipfile.ZipFile(tree / "x.zip", "w") as archive:
        for path in sorted(files(tree / "x.zarr"), key=lambda path: path.suffix != ".json"):
            archive.write(path, path.relative_to(tree / "x.zarr"))
    return tree


def upload(client, tree):
    import obstore

    for path in files(tree):
        obstore.put(client, str(path.relative_to(tree)), path.read_bytes())


@contextlib.contextmanager
def google():
    from obstore.store import GCSStore

    port = free_ports(1)[0]
    process = start([sys.executable, HERE.parents[1] / "tests/stores/gcs.py", str(port)])
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(["curl", "-sf", "-X", "PUT", f"{url}/{BUCKET}"])
        account = {"disable_oauth": True, "gcs_base_url": url, "client_email": "", "private_key": "", "private_key_id": ""}
        yield port, GCSStore(BUCKET, service_account_key=json.dumps(account), client_options={"allow_http": True})
    finally:
        end(process)


@contextlib.contextmanager
def azure(program):
    from obstore.store import AzureStore

    port = free_ports(1)[0]
    command = [program, "--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--blobPort", str(port)]
    process = start(command)
    try:
        os.environ.update(AZURE)
        url = f"http://127.0.0.1:{port}"
        wait_for([sys.executable, HERE.parents[1] / "tests/stores/azure.py", url, BUCKET])
        name, key = AZURE.values()
        options = {"account_name": name, "account_key": key, "endpoint": f"{url}/{name}"}
        yield port, AzureStore(BUCKET, **options, client_options={"allow_http": True})
    finally:
        end(process)


def wait_for(command):
    for _ in range(200):
        if subprocess.run(command, capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    raise SystemExit(f"it does not succeed: {command}")


class Source:
    """What is mounted, with the options for it, and the proxy before its server."""

    def __init__(self, name, proxy, url, *options):
        self.name, self.proxy, self.url, self.options = name, proxy, url, options


class Measured:
    """A mount of a source, and what its operations take."""

    def __init__(self, program, source, path):
        self.program, self.source, self.path = program, source, path

    def take(self, call):
        """The seconds and requests of a call."""
        self.source.proxy.settle()
        self.source.proxy.take()
        began = time.perf_counter()
        call()
        seconds = time.perf_counter() - began
        self.source.proxy.settle()
        return seconds, len(self.source.proxy.take())

    def mount(self):
        command = [self.program, "mount", self.source.url, self.path, "-o", "ro", *self.source.options]
        subprocess.run(list(map(str, command)), check=True, env=os.environ | KEYS)

    def read(self, name, start=0, length=None):
        with open(self.path / name, "rb") as file:
            file.seek(start)
            assert file.read(*[length] if length else []), name

    def cat(self, name):
        subprocess.run(["cat", self.path / name], check=True, stdout=subprocess.DEVNULL)

    def rows(self):
        """What is done, with the operations before it, which are not measured."""
        chunk, inner = "a/b/x/c/{}/0/0", "m/c/{}/{}/0"
        opened = lambda name: lambda: self.read(f"{name}/zarr.json")  # noqa: E731
        return {
            f"`ls -l` of a group of {NODES} arrays": ([], lambda: subprocess.run(
                ["ls", "-l", self.path / "many"], check=True, stdout=subprocess.DEVNULL)),
            "first chunk after the mount, depth 3": ([], lambda: self.read(chunk.format(2))),
            "`cat` of a chunk by its name": ([opened("a/b/x")], lambda: self.read(chunk.format(5))),
            "inner chunk of a shard": ([opened("m")], lambda: self.read(inner.format(3, 1))),
            "another one of that shard": (
                [opened("m"), lambda: self.read(inner.format(3, 1))], lambda: self.read(inner.format(9, 0))),
            f"read {CHUNKS} chunks (view)": ([], lambda: self.cat("a/b/x.raw")),
            f"read {SHARDS} shards (view)": ([], lambda: self.cat("m.raw")),
        }

    def umount(self):
        subprocess.run([self.program, "umount", self.path], check=True)


def measure(program, source, work, rounds):
    """The cells of a source: for each row the best time and the most requests."""
    path = Path(work, "mnt")
    path.mkdir(exist_ok=True)
    found = {}
    measured = Measured(program, source, path)
    for _ in range(rounds):
        for title in measured.rows():
            times = found.setdefault("mount", [])
            times.append(measured.take(measured.mount))
            try:
                before, call = measured.rows()[title]
                for step in before:
                    step()
                found.setdefault(title, []).append(measured.take(call))
            finally:
                measured.umount()
    return {title: f"{shown(min(s for s, _ in taken))}, {max(n for _, n in taken)}" for title, taken in found.items()}


def shown(seconds):
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zarrfs", dest="program", type=os.path.abspath, required=True, metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", metavar="REGEX", default="", help="the stores to measure, by their names in the table")
    parser.add_argument("--azurite", metavar="PROGRAM")
    options = parser.parse_args()
    os.environ.update(KEYS)
    os.environ["PATH"] += ":/usr/sbin"
    with tempfile.TemporaryDirectory(prefix="zarrfs-bench-") as work, contextlib.ExitStack() as stack:
        tree = prepare(work)

        def proxy(port):
            made = Proxy(free_ports(1)[0], port, 0.025, f"{work}/requests-{port}.log")
            stack.callback(made.close)
            return made

        server = Server(work)
        stack.callback(server.close)
        server.ready()
        upload(server.client(), tree)
        s3 = proxy(server.s3)
        bucket, at = f"s3://{BUCKET}", ["--endpoint", s3.url]
        sources = [Source("S3", s3, f"{bucket}/x.zarr", *at)]
        port, client = stack.enter_context(google())
        upload(client, tree)
        gs = proxy(port)
        sources.append(Source("Google", gs, f"gs://{BUCKET}/x.zarr", "--endpoint", gs.url, "--anonymous"))
        if options.azurite:
            port, client = stack.enter_context(azure(options.azurite))
            upload(client, tree)
            az = proxy(port)
            account = AZURE["AZURE_STORAGE_ACCOUNT"]
            sources.append(Source("Azure", az, f"az://{BUCKET}/x.zarr", "--endpoint", f"{az.url}/{account}"))
        for form in ("nginx-json", "nginx-none"):
            port = free_ports(1)[0]
            stack.enter_context(web.serving(form, tree, port))
            http = proxy(port)
            if form == "nginx-json":
                sources.append(Source("https, listed", http, f"{http.url}/x.zarr"))
            else:
                sources.append(Source("https, consolidated and not listed", http, f"{http.url}/consolidated.zarr"))
        sources += [
            Source("zip in S3", s3, f"{bucket}/x.zip", *at),
            Source("Icechunk in S3", s3, f"icechunk+{bucket}/x.icechunk", *at),
            Source("kerchunk in S3", s3, f"kerchunk+{bucket}/x.json", *at),
        ]
        columns = {}
        for source in sources:
            if not re.search(options.only, source.name):
                continue
            print(source.name, file=sys.stderr)
            columns[source.name] = measure(options.program, source, work, options.rounds)
        titles = list(next(iter(columns.values())))
        print("| what |", " | ".join(columns), "|")
        print("| --- |" + " --- |" * len(columns))
        for title in titles:
            print(f"| {title} |", " | ".join(cells.get(title, "") for cells in columns.values()), "|")


if __name__ == "__main__":
    sys.exit(main())
