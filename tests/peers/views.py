"""Views: a node as one file, made by `zarrfs cat`, or found in a mount."""

import os
import subprocess

import numpy as np
import zarr

ZARRFS = os.environ["ZARRFS_BIN"]


def cat(store, format, out, *options):
    """The file that `zarrfs cat` makes of a node."""
    with open(out, "wb") as file:
        subprocess.run([ZARRFS, "cat", str(store), "--as", format, *options], stdout=file, check=True)
    return out


def refused(store, format):
    """Why there is no such file of a node."""
    done = subprocess.run([ZARRFS, "cat", str(store), "--as", format], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "", done
    return done.stderr


def values_of(shape, dtype, seed=1):
    """Values of a type in all of its range: for floats also what is no number."""
    dtype = np.dtype(dtype)
    dice = np.random.default_rng(seed)
    if dtype.kind in "fc":
        values = (dice.normal(size=shape) * 1000).astype(dtype)
        if dtype.kind == "c":
            values = values + 1j * dice.normal(size=shape).astype(dtype)
        if values.size > 3:
            values.reshape(-1)[:3] = [np.nan, np.inf, -0.0]
        return values.astype(dtype)
    if dtype.kind == "b":
        return dice.integers(0, 2, shape).astype(dtype)
    info = np.iinfo(dtype)
    return dice.integers(info.min, info.max, shape, dtype=dtype.newbyteorder("="), endpoint=True).astype(dtype)


def array(path, values, chunks=None, *, shards=None, zarr_format=3, missing=True, **options):
    """Stores an array: with edge chunks, where `chunks` overhang, and with chunks that are missing."""
    chunks = chunks or tuple(max(1, -(-n * 2 // 5)) for n in values.shape)
    options.setdefault("fill_value", 0)
    if options.pop("sharded", False) and values.ndim:
        shards = tuple(2 * n for n in chunks)
    stored = zarr.create_array(
        path, shape=values.shape, dtype=values.dtype, chunks=chunks, shards=shards, zarr_format=zarr_format, **options
    )
    stored[...] = values
    if missing and values.ndim:
        corner = tuple(slice(-(-n // c) * c - c, None) for n, c in zip(values.shape, shards or chunks))
        values = values.copy()
        values[corner] = stored.fill_value
        stored[corner] = stored.fill_value
        # Of nothing but the fill value zarr-python stores no chunk.
    return values
