"""The other end of zarr2.py: runs in an environment that has zarr-python 2.18."""

import json
import os
import sys
import traceback
import warnings

warnings.simplefilter("ignore")

import numcodecs
import numpy as np
import zarr
from zarr._storage.v3 import DirectoryStoreV3
from zarr._storage.v3_storage_transformers import ShardingStorageTransformer


def read(store, directory, form="v3", patient=False):
    names, unread = {}, {}
    ends = {"v3": ".array.json", "v2": "/.zarray", "n5": "/attributes.json"}
    if form == "v3":
        group = zarr.open_group(DirectoryStoreV3(store), mode="r", zarr_version=3)
        # visititems leaves out what is below implicit groups.
        keys = [key[len("meta/root/") :] for key in group.store.list_prefix("meta/root/")]
    else:
        group = {"v2": zarr.DirectoryStore, "n5": zarr.N5Store}[form](store)
        found = [os.path.join(at, name) for at, _, every in os.walk(store) for name in every]
        keys = ["/" + os.path.relpath(name, store) for name in found]
    for key in sorted(key for key in keys if key.endswith(ends[form])):
        path = key[: -len(ends[form])].strip("/")
        try:
            node = group[path] if form == "v3" else zarr.open(group, path=path, mode="r")
            if isinstance(node, zarr.Array):
                name = f"{len(names)}.npy"
                np.save(os.path.join(directory, name), node[...])
                names[path] = name
        except Exception:
            if not patient:
                raise
            unread[path] = traceback.format_exc()
    return {"arrays": names, "unread": unread}


def create(store, path, values, options):
    values = np.load(values)
    if "compressor" in options:
        compressor = options["compressor"]
        options["compressor"] = numcodecs.get_codec(compressor) if compressor else None
    if "chunks_per_shard" in options:
        per_shard = tuple(options.pop("chunks_per_shard"))
        options["storage_transformers"] = [ShardingStorageTransformer("indexed", per_shard)]
    options["chunks"] = tuple(options["chunks"])
    target = DirectoryStoreV3(store)
    if "meta/root.group.json" not in target:
        zarr.group(target, zarr_version=3)
    array = zarr.create(
        shape=values.shape, store=target, path=path, zarr_version=3, **{"dtype": values.dtype.str, **options}
    )
    array[...] = values
    return {}


def text_of(values):
    """What numpy keeps in a file without pickles: objects of any length padded."""
    if values.dtype.kind == "O":
        of_bytes = values.size and isinstance(values.flat[0], bytes)
        values = values.astype("S" if of_bytes else "U")
    return values


def run(code, directory, arguments):
    """Runs a piece of a program; the arrays in its `result` go into files."""
    names = {"zarr": zarr, "numcodecs": numcodecs, "np": np, "os": os, **arguments}
    exec(code, names)
    result, saved = names.get("result"), {}
    if isinstance(result, dict):
        for path, value in list(result.items()):
            if isinstance(value, (np.ndarray, np.generic)):
                saved[path] = f"{len(saved)}.npy"
                np.save(os.path.join(directory, saved[path]), text_of(np.asarray(result.pop(path))))
    return {"result": result, "arrays": saved}


for line in sys.stdin:
    request = json.loads(line)
    do = {"read": read, "create": create, "run": run}[request.pop("do")]
    try:
        answer = do(**request)
    except Exception:
        answer = {"error": traceback.format_exc()}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
