"""Object stores for the tests: real servers, and the proxy before them.

With ZARRFS_SERVER set to the URL of a server of S3 (`scripts/stores.sh` starts one), each hierarchy that a test mounts
is copied into a bucket there, and the URL of the copy is mounted.
"""

import io
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SERVER = os.environ.get("ZARRFS_SERVER")
BUCKET = "zarrfs"
numbers = itertools.count()


def load(path):
    """numpy.load of a file in a mount. numpy itself seeks in the file while no other thread of the process can run, and
    the mount may wait for one: that of the proxy."""
    import numpy

    return numpy.load(io.BytesIO(Path(path).read_bytes()))


def client(prefix=None, server=SERVER):
    """A client of S3 that is not ours, of what lies below a prefix."""
    import obstore.store

    return obstore.store.S3Store(
        BUCKET,
        prefix=prefix,
        endpoint=server,
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        client_options={"allow_http": True},
    )


def keys(prefix):
    """The keys below a prefix, without the prefix."""
    import obstore

    return {meta["path"] for page in obstore.list(client(prefix)) for meta in page}


def upload(directory):
    """Copies the files of a directory into the bucket, and returns the URL of the copy."""
    import obstore

    prefix = f"{os.getpid()}-{next(numbers)}"
    server = client()
    paths = [path for path in Path(directory).rglob("*") if path.is_file()]

    def put(path):
        obstore.put(server, f"{prefix}/{path.relative_to(directory)}", path.read_bytes())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, paths))
    return f"s3://{BUCKET}/{prefix}"


def download(url, directory):
    """Makes a directory have what is stored at a URL, and nothing else."""
    import obstore

    server = client(prefix=url.removeprefix(f"s3://{BUCKET}/"))
    there = {meta["path"]: meta for page in obstore.list(server) for meta in page}
    for path in sorted(Path(directory).rglob("*"), reverse=True):
        if path.is_symlink() or path.is_file():
            if str(path.relative_to(directory)) not in there:
                path.unlink()
        elif not any(path.iterdir()):
            path.rmdir()

    def get(name):
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(obstore.get(server, name).bytes()))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(get, there))
