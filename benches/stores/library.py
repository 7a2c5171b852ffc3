"""A library that reads and writes Zarr in S3, as a program that benches/stores/compare.py starts and times.

    library.py KIND ENDPOINT BUCKET

KIND is zarr-obstore, zarr-s3fs, tensorstore or obstore. It prints `ready` after its imports. Then each line of its
input is a JSON list, a method of the class of KIND and its arguments, and each line of its output the seconds that this
took, or `null` if the library has no such thing. `begin` makes everything cold again: clients, contexts and opened
arrays are new. Each method opens the array that it needs, unless `open` has done that before.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

AT_ONCE = 64  # The most requests at a time, in each library that has such a setting.
PART = 8 << 20  # obstore reads longer values in parts of this length.


def slices(chunk, coords):
    return tuple(slice(at * length, (at + 1) * length) for at, length in zip(coords, chunk))


class Library:
    """What both kinds of libraries do with an array; `array` opens it."""

    def __init__(self, endpoint, bucket):
        self.endpoint, self.bucket = endpoint, bucket

    def begin(self, prefix):
        self.prefix, self.opened, self.values = prefix, {}, None

    def open(self, name, dialect="v3"):
        if name not in self.opened:
            self.opened[name] = self.array(name, dialect)
        return self.opened[name]

    def read(self, name, chunk, coords):
        self.get(self.open(name), slices(chunk, coords))

    def inner(self, name, chunk, coords, *_):
        self.read(name, chunk, coords)

    def plan(self, name):
        """Before `sweep`, untimed."""

    def sweep(self, name):
        array = self.open(name)
        self.get(array, (slice(None),) * len(array.shape))

    def places(self, name, chunk, places):
        """Parts of planes, one after another."""
        array = self.open(name)
        for plane, part in places:
            self.get(array, slices(chunk, (plane, part, 0)))

    def load(self, npy, _encoded):
        """Before `write`, untimed."""
        self.values = np.load(npy)

    def write(self, name, *_):
        self.put(self.open(name), (slice(None),) * 3, self.values)

    def edit(self, name, chunk, coords):
        values = np.random.default_rng(7).normal(size=chunk).astype("f4")
        self.put(self.open(name), slices(chunk, coords), values)


class Zarr(Library):
    def __init__(self, *place):
        super().__init__(*place)
        import zarr

        self.zarr = zarr
        zarr.config.set({"async.concurrency": AT_ONCE})

    def array(self, name, dialect):
        return self.zarr.open_array(self.store(name), mode="r+", zarr_format=2 if dialect == "v2" else 3)

    def root(self, dialect="v3"):
        """Opens a group, which is what comes nearest to a mount."""
        if dialect == "n5":
            return NotImplemented
        self.zarr.open_group(self.store(""), mode="r", zarr_format=2 if dialect == "v2" else 3)

    def ls(self, name):
        list(self.zarr.open_group(self.store(name), mode="r", zarr_format=3).keys())

    def get(self, array, where):
        return array[where]

    def put(self, array, where, values):
        array[where] = values

    def scattered(self, name, chunk, places):
        array = self.open(name)
        array.vindex[tuple(np.array(axis) * length for axis, length in zip(zip(*places), chunk))]

    def first(self, path, chunk, coords):
        """The first chunk below a group that was opened before."""
        self.get(self.zarr.open_group(self.store(""), mode="r", zarr_format=3)[path], slices(chunk, coords))


class ZarrObstore(Zarr):
    def store(self, name):
        return self.zarr.storage.ObjectStore(client(self.endpoint, self.bucket, f"{self.prefix}/{name}".rstrip("/")))


class ZarrS3fs(Zarr):
    def __init__(self, *place):
        super().__init__(*place)
        import s3fs

        self.s3fs = s3fs

    def begin(self, prefix):
        super().begin(prefix)
        self.s3fs.S3FileSystem.clear_instance_cache()

    def store(self, name):
        options = {"client_kwargs": {"endpoint_url": self.endpoint, "region_name": "us-east-1"}}
        options["config_kwargs"] = {"max_pool_connections": AT_ONCE}
        url = f"s3://{self.bucket}/{self.prefix}/{name}".rstrip("/")
        return self.zarr.storage.FsspecStore.from_url(url, storage_options=options)


class Tensorstore(Library):
    def __init__(self, *place):
        super().__init__(*place)
        import tensorstore

        self.tensorstore = tensorstore

    def begin(self, prefix):
        super().begin(prefix)
        settings = {"s3_request_concurrency": {"limit": AT_ONCE}}
        self.context = self.tensorstore.Context(settings)

    def array(self, name, dialect):
        store = {"driver": "s3", "bucket": self.bucket, "path": f"{self.prefix}/{name}/", "endpoint": self.endpoint}
        store["aws_region"] = "us-east-1"
        driver = {"v3": "zarr3", "v2": "zarr", "n5": "n5"}[dialect]
        return self.tensorstore.open({"driver": driver, "kvstore": store}, open=True, context=self.context).result()

    def root(self, dialect="v3"):
        """It has no groups: opens an array."""
        self.array("small", dialect)

    def get(self, array, where):
        return array[where].read().result()

    def put(self, array, where, values):
        array[where].write(values).result()

    def scattered(self, name, chunk, places):
        array = self.open(name)
        waiting = [array[slices(chunk, coords)].read() for coords in places]
        for read in waiting:
            read.result()

    def first(self, path, chunk, coords):
        self.read(path, chunk, coords)


class Obstore(Library):
    """The bare transfer: keys are known, and nothing is decoded."""

    def __init__(self, *place):
        super().__init__(*place)
        import obstore

        self.obstore = obstore

    def begin(self, prefix):
        super().begin(prefix)
        self.client = client(self.endpoint, self.bucket, prefix)

    def ls(self, name):
        self.obstore.list_with_delimiter(self.client, name or None)

    ls_l = ls

    def find(self, name):
        for _ in self.obstore.list(self.client, name, chunk_size=1000):
            pass

    def document(self, name):
        self.obstore.get(self.client, f"{name}/zarr.json").bytes()

    def read(self, name, chunk, coords):
        self.obstore.get(self.client, key(name, coords)).bytes()

    def first(self, path, chunk, coords):
        self.read(path, chunk, coords)

    def inner(self, name, _chunk, _coords, shard, start, length):
        self.obstore.get_range(self.client, key(name, shard), start=start, length=length)

    def places(self, name, chunk, places):
        for plane, _ in places:
            self.read(name, chunk, (plane, 0, 0))

    def scattered(self, name, chunk, places):
        asyncio.run(self.all([lambda at=at: self.whole(key(name, at)) for at in places]))

    async def whole(self, name):
        return await (await self.obstore.get_async(self.client, name)).bytes_async()

    async def all(self, requests):
        free = asyncio.Semaphore(AT_ONCE)

        # A result of `asyncio.run` that holds long values costs seconds of processor time, so each is dropped.
        async def one(request):
            async with free:
                await request()

        await asyncio.gather(*(one(request) for request in requests))

    def plan(self, name):
        self.parts = []
        for page in self.obstore.list(self.client, f"{name}/c"):
            for meta in page:
                for start in range(0, meta["size"], PART):
                    self.parts.append((meta["path"], start, min(start + PART, meta["size"])))

    def sweep(self, name):
        asyncio.run(self.all([lambda part=part: self.part(*part) for part in self.parts]))

    async def part(self, path, start, end):
        return await self.obstore.get_range_async(self.client, path, start=start, end=end)

    def load(self, _npy, encoded):
        found = [path for path in Path(encoded).rglob("*") if path.is_file()]
        self.values = {str(path.relative_to(encoded)): path.read_bytes() for path in found}

    def write(self, name, *_):
        asyncio.run(self.all([lambda it=it: self.put(f"{name}/{it[0]}", it[1]) for it in self.values.items()]))

    async def put(self, path, value):
        await self.obstore.put_async(self.client, path, value, use_multipart=False)

    open = root = edit = None


def key(name, coords):
    return f"{name}/c/" + "/".join(map(str, coords))


def client(endpoint, bucket, prefix=None):
    import obstore.store

    return obstore.store.S3Store(
        bucket,
        prefix=prefix,
        endpoint=endpoint,
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        client_options={"allow_http": True},
    )


KINDS = {"zarr-obstore": ZarrObstore, "zarr-s3fs": ZarrS3fs, "tensorstore": Tensorstore, "obstore": Obstore}


def main():
    kind, *place = sys.argv[1:]
    library = KINDS[kind](*place)
    print("ready", flush=True)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        call = getattr(library, method, None)
        start = time.perf_counter()
        done = call(*arguments) if call else NotImplemented
        seconds = time.perf_counter() - start
        print(json.dumps(None if done is NotImplemented else seconds), flush=True)


if __name__ == "__main__":
    main()
