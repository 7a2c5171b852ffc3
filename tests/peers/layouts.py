"""Hierarchies of every layout that is written to: made by zarr-python 3 and by zarr-python 2 (the 2020 draft).

Each holds the array `x`, which tests write to, and `other`, which must stay as it is; and a group with attributes.
"""

import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec

SHAPE = (21, 26)
CHUNKS = (4, 5)
SHARDS = (8, 10)

V3 = {
    "raw": dict(compressors=None),
    "gzip": dict(compressors=GzipCodec(level=4)),
    "zstd": dict(compressors=ZstdCodec(level=3, checksum=True)),
    "blosc": dict(compressors=BloscCodec(cname="zstd", shuffle="bitshuffle")),
    "blosc_lz4": dict(compressors=BloscCodec(cname="lz4", shuffle="shuffle")),
    "crc32c": dict(compressors=Crc32cCodec()),
    "gzip_crc32c": dict(compressors=[GzipCodec(), Crc32cCodec()]),
    "big_endian": dict(serializer=BytesCodec(endian="big")),
    "f_order": dict(filters=TransposeCodec(order=(1, 0)), compressors=None),
    "f_order_big_endian": dict(filters=TransposeCodec(order=(1, 0)), serializer=BytesCodec(endian="big")),
    "dots": dict(chunk_key_encoding={"name": "default", "separator": "."}),
    "v2_keys": dict(chunk_key_encoding={"name": "v2", "separator": "/"}),
    "v2_keys_dots": dict(chunk_key_encoding={"name": "v2", "separator": "."}),
    "shards": dict(shards=SHARDS),
    "shards_raw": dict(shards=SHARDS, compressors=None),
    "shards_big_endian": dict(shards=SHARDS, serializer=BytesCodec(endian="big")),
    "shards_f_order": dict(shards=SHARDS, filters=TransposeCodec(order=(1, 0))),
    "shards_index_at_start": dict(
        chunks=SHARDS,
        compressors=None,
        serializer=ShardingCodec(chunk_shape=CHUNKS, codecs=[BytesCodec(), GzipCodec()], index_location="start"),
    ),
    "shards_index_plain": dict(
        chunks=SHARDS,
        compressors=None,
        serializer=ShardingCodec(
            chunk_shape=CHUNKS, codecs=[BytesCodec()], index_codecs=[BytesCodec(endian="big")]
        ),
    ),
    "shards_nested": dict(
        chunks=(16, 20),
        compressors=None,
        serializer=ShardingCodec(
            chunk_shape=SHARDS,
            codecs=[ShardingCodec(chunk_shape=CHUNKS, codecs=[BytesCodec(), ZstdCodec()], index_location="start")],
        ),
    ),
    "shards_around_zstd": dict(
        chunks=SHARDS,
        compressors=ZstdCodec(),
        serializer=ShardingCodec(chunk_shape=CHUNKS, codecs=[BytesCodec()]),
    ),
    "shards_transposed": dict(
        chunks=(20, 20),
        compressors=None,
        filters=TransposeCodec(order=(1, 0)),
        serializer=ShardingCodec(chunk_shape=CHUNKS[::-1], codecs=[BytesCodec(), ZstdCodec()]),
    ),
}

D2020_10 = {
    "raw": dict(compressor=None),
    "gzip": dict(compressor={"id": "gzip", "level": 1}),
    "blosc": dict(compressor={"id": "blosc", "cname": "lz4", "shuffle": 1}),
    "zlib": dict(compressor={"id": "zlib", "level": 1}),
    "bz2": dict(compressor={"id": "bz2"}),
    "lzma": dict(compressor={"id": "lzma"}),
    "lz4": dict(compressor={"id": "lz4"}),
    "zstd": dict(compressor={"id": "zstd"}),
    "f_order": dict(compressor=None, order="F"),
    "big_endian": dict(compressor={"id": "gzip", "level": 1}, dtype=">i4"),
    "dots": dict(compressor=None, dimension_separator="."),
    "shards": dict(compressor={"id": "gzip", "level": 1}, chunks_per_shard=(2, 2)),
    "shards_raw": dict(compressor=None, chunks_per_shard=(2, 2)),
    "shards_f_order_big_endian": dict(
        compressor={"id": "gzip", "level": 1}, chunks_per_shard=(3, 1), order="F", dtype=">i4"
    ),
}

ALL = [("v3", name) for name in V3] + [("d2020-10", name) for name in D2020_10]


def values():
    return np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)


def other():
    return np.linspace(0, 1, 30).reshape(5, 6)


def make(store, dialect, name, zarr2):
    """Makes the hierarchy `name` in the directory `store`."""
    if dialect == "v3":
        group = zarr.create_group(store, attributes={"title": "Ω", "list": [1, None, 2.5]})
        options = {"chunks": CHUNKS, **V3[name]}
        x = group.create_array("x", shape=SHAPE, dtype="i4", fill_value=-1, attributes={"units": "K"}, **options)
        x[...] = values()
        group.create_array("other", shape=(5, 6), chunks=(2, 3), dtype="f8")[...] = other()
    else:
        zarr2.create(store, "x", values(), fill_value=-1, chunks=CHUNKS, **D2020_10[name])
        zarr2.create(store, "other", other(), chunks=(2, 3), compressor={"id": "gzip"})


def read(store, dialect, zarr2):
    """Every array of a hierarchy as its own dialect's library reads it from the store, by path."""
    if dialect == "v3":
        group = zarr.open_group(store, mode="r", zarr_format=3)
        return {path: array[...] for path, array in group.arrays()}
    return zarr2.read(store)
