"""The stores of every dialect that is written, read by the programs that the dialect belongs to."""

import contextlib

import numpy as np
import zarr

from hierarchies import assert_same
from mounts import Mount

WRITTEN = ["v3", "v2", "n5", "d2020-10", "d2019-06"]


@contextlib.contextmanager
def empty(mount, store, dialect, *options):
    """Mounts an empty store of a dialect."""
    with mount(store, "--create", "--format", dialect, *options, copy=False) as m:
        yield m


def read_source(store, dialect, zarr2, tmp_path):
    """Every array of a store by its path, by a program of its dialect."""
    if dialect == "v3":
        return read_zarr3(store)
    if dialect == "v2":
        return zarr2.read_v2(store)
    if dialect == "n5":
        return zarr2.read_n5(store)
    if dialect == "d2020-10":
        return zarr2.read(store)
    # No program of 2019 runs any more: what is stored is seen by another mount.
    with mounted(store, tmp_path / "again", "-o", "ro") as m:
        return read_zarr3(m.path)


@contextlib.contextmanager
def mounted(store, path, *options):
    m = Mount(store, path, *options)
    try:
        yield m
    finally:
        m.end()


def read_zarr3(store):
    group = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
    members = group.members(max_depth=None)
    return {path: np.asarray(node[...]) for path, node in members if isinstance(node, zarr.Array)}


def assert_arrays(found, expected):
    """These arrays and no others, by value; texts of any length are padded by one reader and not by another."""
    assert found.keys() == expected.keys()
    for path, values in expected.items():
        got = found[path]
        if values.dtype.kind in "OUT":
            got, values = (np.asarray(part).astype(object).astype("U") for part in (got, values))
            widest = np.promote_types(got.dtype, values.dtype)
            got, values = got.astype(widest), values.astype(widest)
        assert_same(got, values, path)
