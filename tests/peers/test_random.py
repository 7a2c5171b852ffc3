"""Arrays of any shape, type, codecs and sharding that nobody thought of: the same from the mount, and after a write
through it the same from the store."""

import random

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

from hierarchies import assert_same

TYPES = ["?", "i1", "u1", "<i2", ">u2", "<i4", ">i4", "<u8", ">i8", "<f4", ">f4", "<f8", ">f8", "<c8", ">c16"]
KEYS = [{"name": name, "separator": separator} for name in ("default", "v2") for separator in "/."]
COUNT = 20


def codec(rng):
    shuffle = rng.choice(["shuffle", "noshuffle", "bitshuffle"])
    cname = rng.choice(["lz4", "lz4hc", "zstd", "zlib", "blosclz"])
    return rng.choice(
        [
            GzipCodec(level=rng.randint(0, 9)),
            ZstdCodec(level=rng.randint(-5, 10), checksum=rng.random() < 0.5),
            BloscCodec(cname=cname, shuffle=shuffle, clevel=rng.randint(0, 9)),
            Crc32cCodec(),
        ]
    )


def elements(rng, shape, dtype):
    count = int(np.prod(shape))
    raw = rng.randbytes(count * dtype.itemsize)
    if dtype.kind == "b":
        return (np.frombuffer(raw, "u1") % 2).astype("?").reshape(shape)
    return np.nan_to_num(np.frombuffer(raw, dtype).astype(dtype.newbyteorder("="))).reshape(shape)


def corner(rng, shape):
    """A box at the origin, perhaps all of it."""
    return tuple(slice(0, rng.randint(1, n)) if n else slice(0) for n in shape)


def middle(shape):
    return tuple(slice(n // 3, n // 3 + max(1, n // 2)) for n in shape)


def create_v3(group, name, rng):
    rank = rng.randint(0, 4)
    dtype = np.dtype(rng.choice(TYPES))
    shape = tuple(0 if rng.random() < 0.05 else rng.randint(1, 9) for _ in range(rank))
    chunks = tuple(rng.randint(1, 5) for _ in range(rank))
    sharded = rank > 0 and rng.random() < 0.5
    options = {"shards": tuple(c * rng.randint(1, 3) for c in chunks)} if sharded else {}
    if not sharded:
        options["serializer"] = BytesCodec(endian="big" if dtype.byteorder == ">" else "little")
        orders = [rng.sample(range(rank), rank) for _ in range(rng.randint(0, 2))] if rank else []
        options["filters"] = [TransposeCodec(order=order) for order in orders] or None
    array = group.create_array(
        name,
        shape=shape,
        dtype=dtype.newbyteorder("="),
        chunks=chunks,
        compressors=[codec(rng) for _ in range(rng.randint(0, 3))] or None,
        fill_value=rng.choice([0, 1]),
        chunk_key_encoding=rng.choice(KEYS),
        **options,
    )
    values = np.full(shape, array.fill_value, array.dtype)
    at = corner(rng, shape)
    values[at] = elements(rng, shape, dtype)[at]
    array[at] = values[at]
    return values


def written_through(mount, store, expected, rng, read):
    """Reads every array through a mount, writes into its middle, and reads the store with `read`."""
    with mount(store, copy=False) as m:
        group = zarr.open_group(m.path, mode="r+")
        for name, values in expected.items():
            assert_same(group[name][...], values, name)
            if values.size:
                at = middle(values.shape)
                values[at] = rng.randint(0, 1)
                group[name][at] = values[at]
    for name, values in expected.items():
        assert_same(read(name), values, name)


@pytest.mark.parametrize("seed", range(6))
def test_arrays_that_zarr_python_3_makes_are_read_and_written(seed, mount, tmp_path):
    rng = random.Random(seed)
    store = tmp_path / "random.zarr"
    group = zarr.open_group(store, mode="w")
    expected = {f"a{n}": create_v3(group, f"a{n}", rng) for n in range(COUNT)}
    written_through(mount, store, expected, rng, lambda name: zarr.open_array(store / name, mode="r")[...])


def create_draft(zarr2, store, path, rng):
    rank = rng.randint(1, 3)
    dtype = np.dtype(rng.choice(TYPES))
    shape = tuple(rng.randint(1, 9) for _ in range(rank))
    ids = [
        {"id": "gzip", "level": 1},
        {"id": "zlib", "level": 2},
        {"id": "zstd", "level": 2},
        {"id": "lz4", "acceleration": 1},
        {"id": "bz2", "level": 1},
        {"id": "lzma", "preset": 0},
        {"id": "blosc", "cname": "zstd", "shuffle": rng.choice([-1, 0, 1, 2])},
        {"id": "blosc", "cname": "lz4", "shuffle": rng.choice([-1, 0, 1, 2])},
    ]
    options = {
        "chunks": [rng.randint(1, 4) for _ in range(rank)],
        "order": rng.choice("CF"),
        "dimension_separator": rng.choice("./"),
        "compressor": rng.choice([None, *ids]),
        "fill_value": 0,
    }
    if rng.random() < 0.6:
        options["chunks_per_shard"] = [rng.randint(1, 3) for _ in range(rank)]
    values = elements(rng, shape, dtype).astype(dtype)
    zarr2.create(store, path, values, **options)
    return values


@pytest.mark.parametrize("seed", range(3))
def test_arrays_of_the_draft_that_zarr_python_2_makes_are_read_and_written(seed, mount, tmp_path, zarr2):
    rng = random.Random(seed)
    store = tmp_path / "draft.zarr"
    expected = {f"g/a{n}": create_draft(zarr2, store, f"g/a{n}", rng) for n in range(COUNT)}
    written_through(mount, store, expected, rng, lambda name: zarr2.read(store)[name])
