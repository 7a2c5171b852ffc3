"""Object stores and web servers for the tests: real servers, and the proxy before them.

With ZARRFS_SERVER set to the URL of a server (`scripts/stores.sh` starts one), each hierarchy that a test mounts is
copied into a bucket there, and the URL of the copy is mounted. ZARRFS_PROVIDER says what it serves: s3, gs or az. With
ZARRFS_WEB set to the URL of a web server, a space and the directory that it serves, each is copied into that directory.
"""

import io
import itertools
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WEB, _, WEB_DIRECTORY = os.environ.get("ZARRFS_WEB", "").partition(" ")
SERVER = os.environ.get("ZARRFS_SERVER") if not WEB else None
PROVIDER = os.environ.get("ZARRFS_PROVIDER", "s3")
BUCKET = "zarrfs"
numbers = itertools.count()


def load(path):
    """numpy.load of a file in a mount. numpy itself seeks in the file while no other thread of the process can run, and
    the mount may wait for one: that of the proxy."""
    import numpy

    return numpy.load(io.BytesIO(Path(path).read_bytes()))


def url(prefix, bucket=BUCKET):
    """The URL of a prefix."""
    return f"{PROVIDER}://{bucket}/{prefix}".rstrip("/")


def endpoint(server):
    """What `--endpoint` names, for a server or a proxy before it."""
    return f"{server}/{os.environ['AZURE_STORAGE_ACCOUNT']}" if PROVIDER == "az" else server


def client(prefix=None, server=SERVER):
    """A client that is not ours, of what lies below a prefix."""
    from obstore import store

    options = {"prefix": prefix, "client_options": {"allow_http": True}}
    if PROVIDER == "az":
        account, key = os.environ["AZURE_STORAGE_ACCOUNT"], os.environ["AZURE_STORAGE_ACCOUNT_KEY"]
        return store.AzureStore(BUCKET, account_name=account, account_key=key, endpoint=endpoint(server), **options)
    if PROVIDER == "gs":
        account = {"disable_oauth": True, "gcs_base_url": server, "client_email": "", "private_key": "", "private_key_id": ""}
        return store.GCSStore(BUCKET, service_account_key=json.dumps(account), **options)
    return store.S3Store(
        BUCKET,
        endpoint=server,
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        **options,
    )


def is_listing(request):
    """Whether a request asks for a page of a listing."""
    return request.method == "GET" and ("list-type=2" in request.path or "comp=list" in request.path)


def keys(prefix):
    """The keys below a prefix, without the prefix."""
    import obstore

    return {meta["path"] for page in obstore.list(client(prefix)) for meta in page}


def upload(directory):
    """Copies the files of a directory to the server, and returns the URL of the copy."""
    if WEB:
        name = f"{os.getpid()}-{next(numbers)}"
        shutil.copytree(directory, Path(WEB_DIRECTORY, name))
        return f"{WEB}/{name}"
    import obstore

    prefix = f"{os.getpid()}-{next(numbers)}"
    server = client()
    paths = [path for path in Path(directory).rglob("*") if path.is_file()]

    def put(path):
        obstore.put(server, f"{prefix}/{path.relative_to(directory)}", path.read_bytes())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, paths))
    return url(prefix)


def download(source, directory):
    """Makes a directory have what is stored at a URL, and nothing else."""
    if WEB:
        return
    import obstore

    server = client(prefix=source.removeprefix(url("") + "/"))
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
