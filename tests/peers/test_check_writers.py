"""Healthy stores of many writers: `check` reports nothing but documented notes, and `diff` finds a store equal to itself
and to its conversion."""

import json
import subprocess
from dataclasses import dataclass, field
from typing import Callable

import numpy as np
import pytest
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

from mounts import BIN, PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore")

A = np.arange(20 * 30, dtype="<i4").reshape(20, 30)
CHUNKS = (7, 8)


@dataclass
class Writer:
    """`write(path)` or `write(path, zarr2)` makes a store with at least `arrays` arrays. `notes` are the codes that
    check reports, and `partly` says that some arrays hold what zarrfs does not decode."""

    write: Callable
    notes: set = field(default_factory=set)
    arrays: int = 1
    partly: bool = False


WRITERS = {}


def writer(*notes, arrays=1, partly=False):
    def register(write):
        WRITERS[write.__name__] = Writer(write, set(notes), arrays, partly)
        return write

    return register


def run(*words, code=0):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code, f"{words}: {done.returncode}: {done.stdout}{done.stderr}"
    return done


# zarr-python 3, format 3


def group3(path, zarr_format=3, **options):
    return zarr.open_group(path, mode="w", zarr_format=zarr_format, **options)


def fill(group, name, values=A, chunks=CHUNKS, **options):
    array = group.create_array(name, shape=values.shape, chunks=chunks, dtype=values.dtype, **options)
    array[...] = values
    return array


@writer(arrays=8)
def zarr3_compressors(path):
    root = group3(path)
    for name in ["lz4", "lz4hc", "blosclz", "zlib", "zstd"]:
        fill(root, name, compressors=BloscCodec(cname=name))
    fill(root, "bits", compressors=BloscCodec(shuffle="bitshuffle"))
    fill(root, "gzip", compressors=GzipCodec(level=9))
    fill(root, "none", compressors=None)


@writer(arrays=3)
def zarr3_checksums(path):
    root = group3(path)
    fill(root, "a", compressors=Crc32cCodec())
    fill(root, "b", compressors=[ZstdCodec(checksum=True), Crc32cCodec()])
    fill(root, "c", compressors=[Crc32cCodec(), GzipCodec()])


@writer(arrays=2)
def zarr3_orders_of_axes_and_bytes(path):
    root = group3(path)
    values = np.arange(120, dtype=">i2").reshape(4, 5, 6)
    transposed = TransposeCodec(order=(2, 0, 1))
    fill(root, "a", values, (2, 3, 4), filters=transposed, serializer=BytesCodec(endian="big"))
    fill(root, "b", values, (2, 3, 4), serializer=BytesCodec(endian="big"))


@writer(arrays=6)
def zarr3_shards(path):
    root = group3(path)
    for place in ["start", "end"]:
        for name, codecs in [("raw", [BytesCodec()]), ("crc", [BytesCodec(), Crc32cCodec()])]:
            shards = ShardingCodec(chunk_shape=(5, 5), index_codecs=codecs, index_location=place)
            array = fill(root, place + name, chunks=(10, 10), serializer=shards, compressors=None, filters=None)
            array[3:7, 3:7] = 100
            array[:5, :5] = 0
    nested = ShardingCodec(chunk_shape=(10, 10), codecs=[ShardingCodec(chunk_shape=(5, 5))])
    fill(root, "nested", chunks=(20, 20), serializer=nested, compressors=None, filters=None)[3, 3] = 7
    outer = ShardingCodec(chunk_shape=(5, 5))
    fill(root, "outer", chunks=(10, 10), serializer=outer, compressors=GzipCodec(), filters=None)


@writer("shard-outside")
def zarr3_a_sharded_array_that_was_resized(path):
    array = fill(group3(path), "a", chunks=(5, 5), shards=(10, 10))
    array.resize((17, 40))
    array.resize((12, 12))
    array.resize((14, 12))


@writer(arrays=5)
def zarr3_shrunk_grown_and_empty_arrays(path):
    root = group3(path)
    fill(root, "shrunk").resize((9, 9))
    fill(root, "grown").resize((40, 31))
    fill(root, "appended").append(A)
    fill(root, "emptied").resize((0, 30))
    root.create_array("scalar", shape=(), dtype="i4")[...] = 5


@writer(arrays=14)
def zarr3_numbers(path):
    root = group3(path)
    for dtype in "bool i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split():
        fill(root, dtype, A.astype(dtype))


@writer(arrays=8)
def zarr3_fill_values(path):
    root = group3(path)
    values = [("f4", np.nan), ("f8", -np.inf), ("c8", complex(np.nan, np.inf)), ("u8", 2**64 - 1), ("i8", -(2**63))]
    for dtype, value in [*values, ("bool", True), ("U3", "abc"), (str, "abc")]:
        root.create_array(f"{np.dtype(dtype)}".replace("<", ""), shape=(9,), chunks=(4,), dtype=dtype, fill_value=value)


@writer(arrays=6)
def zarr3_times(path):
    root = group3(path)
    for number, dtype in enumerate(["M8[ns]", "M8[D]", "M8[10us]", "m8[s]", "m8[h]", "M8[Y]"]):
        values = np.arange(10).astype(dtype)
        values[2] = "NaT"
        fill(root, f"t{number}", values, (4,))


@writer(arrays=5)
def zarr3_strings_and_bytes(path):
    root = group3(path)
    texts = np.array(["a", "é", "", "long " * 50, "日本"], dtype=object)
    for name, options in [("s", {}), ("sharded", {"shards": (4,)})]:
        root.create_array(name, shape=(5,), chunks=(2,), dtype=str, **options)[...] = texts
    fill(root, "u", texts.astype("U"), (2,))
    fill(root, "b", np.array([b"a", b"", b"ccc"]), (2,))
    fill(root, "v", np.frombuffer(bytes(range(30)), "V6"), (2,))


@writer(arrays=2)
def zarr3_structures(path):
    root = group3(path)
    fill(root, "a", np.ones(10, [("a", "i4"), ("b", "f8"), ("c", "S3")]), (4,))
    fill(root, "b", np.ones(10, [("t", "M8[s]"), ("n", [("x", "u1"), ("y", "f4")])]), (4,))


@writer(arrays=4)
def zarr3_names_and_attributes(path):
    strange = {
        "nan": float("nan"),
        "inf": float("-inf"),
        "": 1,
        "big": 2**70,
        "text": "é\x00\n",
        "deep": {"l": [1, None]},
    }
    root = group3(path, attributes=strange)
    fill(root, "named", dimension_names=("y", None), attributes=strange)
    fill(root, "é b#c%20")
    fill(root, "c")
    fill(root, "deep/c/0/1")


@writer(arrays=6)
def zarr3_chunk_keys(path):
    root = group3(path)
    for name, separator in [("default", "."), ("v2", "."), ("v2", "/")]:
        encoding = {"name": name, "separator": separator}
        fill(root, f"{name}{'-' if separator == '.' else ''}", chunk_key_encoding=encoding)
        scalar = f"scalar{name}{'-' if separator == '.' else ''}"
        root.create_array(scalar, shape=(), dtype="i4", chunk_key_encoding=encoding)[...] = 5


@writer(arrays=3)
def zarr3_consolidated(path):
    root = group3(path, attributes={"big": 2**64, "one": 1.0, "nan": float("nan")})
    fill(root, "x/y/a", attributes={"nan": float("nan")})
    root.create_array("t", shape=(4,), dtype="M8[s]", fill_value=np.datetime64("NaT"))
    root.create_array("f", shape=(4,), dtype="f4", fill_value=np.nan, dimension_names=["x"])
    zarr.consolidate_metadata(path, path="x")
    zarr.consolidate_metadata(path)


@writer(arrays=12)
def zarr3_numcodecs(path):
    from zarr.codecs import numcodecs as nc

    root = group3(path)
    for codec in [
        nc.BZ2(),
        nc.LZ4(),
        nc.LZMA(),
        nc.Zlib(),
        nc.Fletcher32(),
        nc.Adler32(),
        nc.CRC32(),
        nc.Shuffle(elementsize=4),
    ]:
        fill(root, type(codec).__name__, compressors=codec)
    fill(root, "delta", filters=nc.Delta(dtype="<i4"))
    fill(root, "scaled", filters=nc.FixedScaleOffset(offset=0, scale=1, dtype="<i4"))
    fill(root, "rounded", A.astype("f4"), filters=nc.BitRound(keepbits=4))
    fill(root, "quantized", A.astype("f8"), filters=nc.Quantize(digits=2, dtype="<f8"))


@writer(arrays=3)
def zarr3_chunks_of_fill_values(path):
    root, config = group3(path), {"write_empty_chunks": True}
    fill(root, "a", np.zeros_like(A), config=config)
    fill(root, "s", np.zeros_like(A), (5, 5), shards=(10, 10), config=config)
    fill(root, "erased")[...] = 0


@writer(arrays=2)
def zarr3_nodes_that_were_replaced_and_removed(path):
    root = group3(path)
    fill(root, "a")
    fill(root, "a", A[:5].astype("f8"), (2, 2), overwrite=True)
    fill(root, "gone")
    fill(root, "h/b")
    del root["gone"]


@writer()
def zarr3_an_array_at_the_root(path):
    zarr.create_array(path, data=A, chunks=CHUNKS, attributes={"a": 1})


@writer("case", arrays=2)
def zarr3_names_that_differ_in_case(path):
    root = group3(path)
    fill(root, "s")
    fill(root, "S")


@writer(arrays=2)
def zarr3_names_that_begin_with_underscores(path):
    """The specification reserves them, but zarr-python writes and lists them."""
    root = group3(path)
    fill(root, "a")
    fill(root, "__x")


@writer(arrays=3)
def zarr3_an_image_of_ome_0_5(path):
    """Every writer of OME-Zarr 0.5 names the dimensions as the axes: the resolutions share them."""
    axes = [{"name": name, "type": "space"} for name in "yx"]
    scales = [{"type": "scale", "scale": [2.0**level] * 2} for level in range(3)]
    datasets = [{"path": f"s{level}", "coordinateTransformations": [scales[level]]} for level in range(3)]
    image = {"version": "0.5", "multiscales": [{"name": "image", "axes": axes, "datasets": datasets}]}
    root = group3(path, attributes={"ome": image})
    for level in range(3):
        fill(root, f"s{level}", A[:: 2**level, :: 2**level], dimension_names=["y", "x"])


# zarr-python 3, format 2


@writer(arrays=7)
def zarr3_format_2_compressors(path):
    import numcodecs as nc

    root = group3(path, 2)
    for codec in [nc.Blosc(), nc.Zstd(), nc.LZ4(), nc.GZip(), nc.Zlib(), nc.BZ2(), nc.LZMA()]:
        fill(root, type(codec).__name__, compressors=codec)


@writer(arrays=8)
def zarr3_format_2_filters(path):
    import numcodecs as nc

    root = group3(path, 2)
    fill(root, "delta", filters=[nc.Delta("i4")])
    fill(root, "scaled", A.astype("f8"), filters=[nc.FixedScaleOffset(offset=0, scale=10, dtype="f8", astype="i4")])
    fill(root, "quantized", A.astype("f8"), filters=[nc.Quantize(3, "f8")])
    fill(root, "bits", A.astype("f4"), filters=[nc.BitRound(5)])
    fill(root, "shuffled", filters=[nc.Shuffle(4)], compressors=nc.Zlib())
    fill(root, "packed", A > 300, filters=[nc.PackBits()])
    fill(root, "base64", compressors=nc.Base64())
    fill(root, "checked", compressors=nc.Fletcher32())


@writer(arrays=8)
def zarr3_format_2_consolidated(path):
    root = group3(path, 2, attributes={"nan": float("nan")})
    for dtype in ["U5", "S3", "M8[ns]", "m8[D]", "c16"]:
        fill(root, dtype.replace("[", "").replace("]", ""), A.astype(dtype))
    fill(root, "f", order="F")
    fill(root, "nested", chunk_key_encoding={"name": "v2", "separator": "/"})
    texts = np.array(list("abcdef"), dtype=object)
    root.create_array("texts", shape=(6,), chunks=(4,), dtype=str)[...] = texts
    zarr.consolidate_metadata(path)


# zarr-python 2

MEMBERS = """
values = np.arange(600).reshape(20, 30)

def fill(group, name, dtype="i4", **options):
    array = group.create_dataset(name, shape=values.shape, chunks=(7, 8), dtype=dtype, **options)
    array[...] = values.astype(dtype)
    return array

def members(group):
    for codec in [numcodecs.Blosc(), numcodecs.Zstd(), numcodecs.LZ4(), numcodecs.GZip(), numcodecs.BZ2(), None]:
        fill(group, type(codec).__name__, compressor=codec)
    for dtype in ["U5", "S3", "M8[ns]", "m8[D]", "c16", ">f4"]:
        fill(group, "x" + dtype.strip(">]").replace("[", "") , dtype)
    fill(group, "f", order="F")
    fill(group, "deep/er/nan", "f4", fill_value=float("nan"))
    fill(group, "none", fill_value=None).attrs["nan"] = float("nan")
    fill(group, "resized").resize(9, 33)
    group.create_dataset("scalar", shape=(), dtype="i4")[...] = 4
    group.create_dataset("empty", shape=(0, 3), dtype="i4")
    group.create_dataset("large_chunk", shape=(3,), chunks=(1000,), dtype="i4")[...] = 1
    group.attrs["title"] = "é"
"""


@writer(arrays=19)
def zarr2_directory_store(path, zarr2):
    zarr2.run(MEMBERS + "members(zarr.open_group(zarr.DirectoryStore(path), mode='w'))", path=path)


@writer(arrays=19)
def zarr2_nested_directory_store(path, zarr2):
    zarr2.run(MEMBERS + "members(zarr.open_group(zarr.NestedDirectoryStore(path), mode='w'))", path=path)


@writer(arrays=19)
def zarr2_consolidated(path, zarr2):
    zarr2.run(MEMBERS + "members(zarr.open_group(path, mode='w')); zarr.consolidate_metadata(path)", path=path)


@writer(arrays=9)
def zarr2_filters(path, zarr2):
    code = """
    group = zarr.open_group(path, mode="w")
    fill(group, "delta", filters=[numcodecs.Delta("i4")])
    fill(group, "quantized", "f8", filters=[numcodecs.Quantize(3, "f8")])
    fill(group, "scaled", "f8", filters=[numcodecs.FixedScaleOffset(0, 10, "f8", "i4")])
    fill(group, "bits", "f4", filters=[numcodecs.BitRound(5)])
    fill(group, "packed", "bool", filters=[numcodecs.PackBits()])
    fill(group, "cast", filters=[numcodecs.AsType("i2", "i4")])
    for codec in [numcodecs.CRC32(), numcodecs.Adler32(), numcodecs.Fletcher32()]:
        fill(group, type(codec).__name__, filters=[codec])
    """
    zarr2.run(MEMBERS + "".join(line[4:] for line in code.splitlines(keepends=True)), path=path)


@writer("unknown", arrays=4, partly=True)
def zarr2_objects(path, zarr2):
    """zarrfs never decodes a pickle."""
    code = """
    group = zarr.open_group(path, mode="w")
    texts = np.array(["a", "bb", "", "é日本", "x"], dtype=object)
    codecs = {"utf8": numcodecs.VLenUTF8(), "json": numcodecs.JSON(), "pickle": numcodecs.Pickle()}
    for name, codec in codecs.items():
        group.create_dataset(name, data=texts, chunks=(2,), object_codec=codec)
    data = np.array([b"a", b"", b"xyz"], dtype=object)
    group.create_dataset("bytes", data=data, chunks=(2,), object_codec=numcodecs.VLenBytes())
    """
    zarr2.run(code, path=path)


@writer(arrays=2)
def zarr2_structures(path, zarr2):
    code = """
    group = zarr.open_group(path, mode="w")
    nested = [("a", "<i4"), ("b", "S3"), ("n", [("x", "u1"), ("y", ">f4")])]
    group.array("a", np.ones(10, nested), chunks=(4,))
    group.array("b", np.zeros(10, nested), chunks=(4,))
    """
    zarr2.run(code, path=path)


@writer()
def zarr2_a_structure_with_an_array_in_a_field(path, zarr2):
    zarr2.run("zarr.save(path, np.ones(10, [('a', '<i4'), ('c', '<f8', (2,))]))", path=path)


@writer(arrays=3)
def zarr2_copies_and_moves(path, zarr2):
    code = """
    group = zarr.open_group(path, mode="w")
    group.array("a", np.arange(100).reshape(10, 10), chunks=(3, 3))
    zarr.copy(group["a"], group, name="b")
    group.move("b", "c/d")
    group.array("gone", np.arange(4))
    del group["gone"]
    zarr.save(path + "/saved", x=np.arange(5))
    """
    zarr2.run(code, path=path)


@writer(arrays=4)
def zarr2_consolidated_by_zarr3(path, zarr2):
    """zarr-python 3 spells the fill value of strings and the options of zstd in another way."""
    code = """
    group = zarr.open_group(path, mode="w")
    texts = np.array(["a", "bb"], dtype=object)
    group.array("texts", texts, dtype=str)
    group.create_dataset("none", shape=2, dtype=object, object_codec=numcodecs.VLenUTF8())
    group.array("zstd", np.arange(3), compressor=numcodecs.Zstd())
    group.array("times", np.arange(3).astype("M8[s]"))
    """
    zarr2.run(code, path=path)
    zarr.consolidate_metadata(path)


N5 = """
group = zarr.open_group(store, mode="w")
for codec in codecs:
    fill(group, type(codec).__name__, compressor=codec)
for dtype in ["u1", "i8", "f8"]:
    fill(group, dtype, dtype, compressor=numcodecs.GZip())
group.attrs["a"] = {"b": 1}
group.create_group("deep/er").attrs["x"] = [1]
resized = fill(group, "resized", compressor=numcodecs.GZip())
resized.resize(9, 33)
resized.attrs["unit"] = "nm"
"""
OF_N5 = "codecs = [numcodecs.GZip(), numcodecs.BZ2(), numcodecs.LZMA(), numcodecs.Blosc(), numcodecs.Zlib(), None]\n"


@writer(arrays=10)
def zarr2_n5_store(path, zarr2):
    zarr2.run(MEMBERS + OF_N5 + "store = zarr.N5Store(path)" + N5, path=path)


@writer(arrays=4)
def zarr2_n5_store_with_lz4(path, zarr2):
    """zarr-python warns that its LZ4 is not the one of N5, and writes it."""
    zarr2.run(MEMBERS + "codecs = [numcodecs.LZ4()]\nstore = zarr.N5Store(path)" + N5, path=path)


@writer(arrays=4)
def zarr2_draft_of_2020(path, zarr2):
    for number, options in enumerate(
        [{}, {"order": "F"}, {"compressor": {"id": "gzip", "level": 1}}, {"compressor": None}]
    ):
        zarr2.create(path, f"g/a{number}", A, chunks=list(CHUNKS), **options)


@writer(arrays=2)
def zarr2_draft_of_2020_with_shards(path, zarr2):
    for name, options in [("a", {}), ("b", {"compressor": None})]:
        zarr2.create(path, name, A, chunks=[4, 4], chunks_per_shard=[2, 3], **options)


# TensorStore


def store_of(path, driver, metadata, **options):
    import tensorstore as ts

    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}, "create": True, "metadata": metadata}
    return ts.open({**spec, **options}).result()


def written(path, driver, metadata, **options):
    array = store_of(path, driver, metadata, **options)
    values = np.arange(np.prod(array.shape)).reshape(array.shape).astype(array.dtype.numpy_dtype)
    array[...].write(values).result()
    return array


def grid(*shape):
    return {"name": "regular", "configuration": {"chunk_shape": shape}}


@writer(arrays=19)
def tensorstore_types(path):
    bytes_alone = ["bool", "int8", "uint8", "int2", "int4", "float8_e4m3fn", "float8_e5m2"]
    wide = ["int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16"]
    for dtype in [*bytes_alone, *wide, "complex64", "complex128"]:
        big = {"name": "bytes", "configuration": {"endian": "big"}}
        codecs = ["bytes" if dtype in bytes_alone else big, {"name": "gzip", "configuration": {"level": 1}}]
        written(
            path / dtype, "zarr3", {"shape": [20, 30], "chunk_grid": grid(7, 8), "data_type": dtype, "codecs": codecs}
        )


def sharded(inner, *codecs, **options):
    return {"name": "sharding_indexed", "configuration": {"chunk_shape": inner, "codecs": codecs, **options}}


@writer(arrays=3)
def tensorstore_shards(path):
    transposed = {"name": "transpose", "configuration": {"order": [1, 0]}}
    blosc = {"name": "blosc", "configuration": {"cname": "zstd", "clevel": 3, "shuffle": "shuffle"}}
    index = [{"name": "bytes", "configuration": {"endian": "big"}}, "crc32c"]
    for place in ["start", "end"]:
        codecs = [sharded([3, 4], transposed, "bytes", blosc, "crc32c", index_location=place, index_codecs=index)]
        metadata = {"shape": [20, 30], "data_type": "uint16", "chunk_grid": grid(12, 12), "codecs": codecs}
        written(path / place, "zarr3", metadata)
    nested = [sharded([6, 6], sharded([3, 3], "bytes"))]
    written(
        path / "nested", "zarr3", {"shape": [20, 30], "data_type": "int8", "chunk_grid": grid(12, 12), "codecs": nested}
    )


@writer("shard-outside")
def tensorstore_a_sharded_array_that_was_changed(path):
    metadata = {
        "shape": [40, 40],
        "data_type": "uint16",
        "chunk_grid": grid(20, 20),
        "codecs": [sharded([5, 5], "bytes")],
    }
    array = written(path, "zarr3", metadata)
    for number in range(5):
        array[number, number].write(1000 + number).result()
    array[:5, :5].write(0).result()
    array.resize(exclusive_max=[12, 60]).result()[:, 50:].write(3).result()


@writer(arrays=5)
def tensorstore_little_metadata(path):
    for name, members in {
        "default": {"data_type": "float32"},
        "names": {"data_type": "float32", "dimension_names": ["x", None], "attributes": {"a": 1}, "fill_value": "NaN"},
        "bits": {"data_type": "float32", "fill_value": "0x7fc00001"},
        "keys": {"data_type": "int32", "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}}},
    }.items():
        written(path / name, "zarr3", {"shape": [20, 30], **members})
    written(path / "scalar", "zarr3", {"shape": [], "data_type": "float32"})


@writer(arrays=8)
def tensorstore_format_2(path):
    ids = ["zlib", "gzip", "bz2", "zstd"]
    for compressor in [
        None,
        *({"id": each, "level": 1} for each in ids),
        {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": -1},
    ]:
        metadata = {"shape": [20, 30], "chunks": [7, 8], "dtype": "<i4", "compressor": compressor, "fill_value": 3}
        written(path / (compressor or {"id": "none"})["id"], "zarr", metadata)
    plain = {"shape": [20, 30], "chunks": [7, 8]}
    written(path / "f", "zarr", {**plain, "dtype": ">f4", "order": "F", "dimension_separator": "/"})
    written(path / "bfloat16", "zarr", {**plain, "dtype": "bfloat16"})


@writer(arrays=9)
def tensorstore_n5(path):
    plain = {"dimensions": [20, 30], "blockSize": [7, 8], "dataType": "int32"}
    for kind in ["raw", "gzip", "bzip2", "xz", "zstd"]:
        written(path / kind, "n5", {**plain, "compression": {"type": kind}, "axes": ["x", "y"], "units": ["nm", "um"]})
    for dtype in ["uint8", "uint64", "float64"]:
        written(path / dtype, "n5", {**plain, "dataType": dtype, "compression": {"type": "raw"}})
    written(path / "shrunk", "n5", {**plain, "compression": {"type": "raw"}}).resize(exclusive_max=[10, 9]).result()


# xarray, dask and AnnData


def dataset(times=10):
    import pandas
    import xarray

    return xarray.Dataset(
        {
            "t2m": (("time", "lat", "lon"), np.arange(times * 24, dtype="f4").reshape(times, 4, 6), {"units": "K"}),
            "texts": (("lat",), np.array(["a", "bb", "ccc", "é"], dtype=object)),
            "names": (("lat",), np.array(["a", "bb", "ccc", "é"])),
            "bytes": (("lat",), np.array([b"a", b"bb", b"ccc", b"d"])),
            "mask": (("lat",), np.array([True, False] * 2)),
            "complex": (("lat",), np.arange(4) + 1j),
            "steps": (("time",), pandas.to_timedelta(np.arange(times), "h")),
            "scalar": ((), 3.0),
        },
        coords={"time": pandas.date_range("2000-01-01", periods=times), "lat": np.linspace(0, 1, 4)},
        attrs={"title": "x"},
    )


@writer(arrays=10)
def xarray_format_2(path):
    dataset().to_zarr(path, zarr_format=2)


@writer(arrays=20)
def xarray_format_3_in_groups(path):
    dataset().to_zarr(path, group="g/h", zarr_format=3)
    dataset().to_zarr(path, group="k", mode="a", zarr_format=3)


@writer(arrays=5)
def xarray_appended_and_written_in_a_region(path):
    some = dataset()[["t2m", "steps", "mask"]]
    some.to_zarr(path)
    some.assign_coords(time=some.time + np.timedelta64(10, "D")).to_zarr(path, append_dim="time")
    some[["t2m"]].isel(time=slice(0, 3)).drop_vars("lat").to_zarr(path, region={"time": slice(5, 8)})


@writer(arrays=3)
def xarray_packed(path):
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -9999, "chunks": (3, 2, 6)}
    times = {"units": "days since 1900-01-01", "dtype": "f8"}
    dataset()[["t2m"]].to_zarr(path, encoding={"t2m": packed, "time": times}, zarr_format=2)


@writer(arrays=3)
def xarray_sharded(path):
    dataset()[["t2m"]].to_zarr(path, encoding={"t2m": {"chunks": (1, 2, 6), "shards": (5, 4, 6)}}, zarr_format=3)


@writer(arrays=12)
def xarray_a_tree_without_values_of_dask(path):
    import xarray

    one = xarray.Dataset({"x": ("q", np.arange(3))})
    xarray.DataTree.from_dict({"/": dataset(), "/b/c": one}).to_zarr(path)
    dataset().chunk({"time": 3}).to_zarr(path, group="template", mode="a", compute=False)


@writer()
def dask_array(path):
    import dask.array

    dask.array.from_array(A, chunks=(6, 11)).to_zarr(str(path))


def anndata_in(path, zarr_format):
    import anndata
    import pandas
    import scipy.sparse

    columns = {
        "kind": pandas.Categorical(["a", "b"] * 5),
        "text": ["x"] * 10,
        "count": pandas.array([1, None] * 5, dtype="Int64"),
    }
    obs = pandas.DataFrame(columns, index=[f"c{number}" for number in range(10)])
    data = anndata.AnnData(scipy.sparse.random(10, 8, 0.2, format="csr", dtype="f4", rng=1), obs=obs)
    data.layers["dense"] = np.ones((10, 8))
    data.uns["more"] = {"text": "s", "none": None, "records": np.zeros(3, [("a", "i4"), ("b", "f8")])}
    data.obsp["near"] = scipy.sparse.eye(10, format="csc")
    with anndata.settings.override(zarr_write_format=zarr_format):
        data.write_zarr(path)


@writer(arrays=15)
def anndata_format_2(path):
    anndata_in(path, 2)


@writer(arrays=15)
def anndata_format_3(path):
    anndata_in(path, 3)


# GDAL and netCDF

CDL = """netcdf a {
dimensions:
 x = 4 ;
 y = 2 ;
variables:
 float t(y,x) ;
  t:units = "K" ;
  t:_FillValue = -9.f ;
 int i(x) ;
 ubyte b(x) ;
 int64 l(x) ;
 short s(y,x) ;
// global:
 :title = "one" ;
data:
 t = 1,2,3,4,5,6,7,8 ;
 i = 1,2,3,4 ;
 s = 1,2,3,4,5,6,7,8 ;
}
"""


def image(path):
    import rasterio

    with rasterio.open(path, "w", driver="GTiff", width=30, height=20, count=3, dtype="int16") as made:
        made.write(np.arange(1800, dtype="i2").reshape(3, 20, 30))


def gdal_stores(path, cases):
    image(f"{path}.tif")
    path.mkdir()
    for number, options in enumerate(cases):
        words = [word for option in options.split() for word in ("-co", option)]
        run("gdal_translate", "-q", "-of", "Zarr", *words, f"{path}.tif", path / f"g{number}")


@writer(arrays=4)
def gdal_format_2(path):
    last = "COMPRESS=ZSTD CHUNK_MEMORY_LAYOUT=F CREATE_ZMETADATA=NO"
    gdal_stores(path, ["", "COMPRESS=BLOSC", "COMPRESS=LZ4 DIM_SEPARATOR=/", "FILTER=delta COMPRESS=ZLIB", last])


@writer(arrays=3)
def gdal_format_3(path):
    gdal_stores(path, [f"FORMAT=ZARR_V3 COMPRESS={codec}" for codec in ["NONE", "GZIP", "BLOSC"]])


def netcdf(path):
    path.with_name("a.cdl").write_text(CDL)
    run("ncgen", "-4", "-o", f"{path}.nc", path.with_name("a.cdl"))


@writer(arrays=10)
def gdal_multidimensional(path):
    netcdf(path)
    path.mkdir()
    for format in ["ZARR_V2", "ZARR_V3"]:
        run("gdalmdimtranslate", "-q", "-of", "Zarr", "-co", f"FORMAT={format}", f"{path}.nc", path / format)


@writer("provisional", arrays=3)
def rasterio_grids(path):
    import rasterio

    path.mkdir()
    for name, options in {"a": {}, "b": {"FORMAT": "ZARR_V3"}, "c": {"FORMAT": "ZARR_V3", "BLOCKSIZE": "8,8"}}.items():
        options = {"width": 30, "height": 20, "count": 1, "dtype": "float32", **options}
        with rasterio.open(path / name, "w", driver="Zarr", **options) as made:
            made.write(A.astype("f4")[np.newaxis])


@writer(arrays=10)
def netcdf_copies(path):
    """Those of Debian's nccopy: NCZarr, and Zarr without its additions."""
    netcdf(path)
    path.mkdir()
    for mode in ["nczarr", "zarr"]:
        run("nccopy", f"{path}.nc", f"file://{path}/{mode}#mode={mode},file")


@writer(arrays=6)
def netcdf_of_python(path):
    import netCDF4

    path.mkdir()
    for mode in ["nczarr", "zarr"]:
        with netCDF4.Dataset(f"file://{path}/{mode}#mode={mode},file", "w") as data:
            data.createDimension("x", 5)
            data.createDimension("y", 6)
            data.createVariable("t", "f4", ("y", "x"), zlib=True, chunksizes=(2, 2))[...] = 1
            data.createVariable("i", "i8", ("x",), fill_value=3)[1:3] = 1
            data.createGroup("g").createVariable("u", "i2", ("x",))[...] = 7


@pytest.mark.parametrize("name", WRITERS)
def test_a_store_that_a_program_wrote_has_no_findings_but_notes(name, tmp_path, request):
    made, store = WRITERS[name], tmp_path / "store"
    needs_zarr2 = made.write.__code__.co_argcount == 2
    made.write(store, *([request.getfixturevalue("zarr2")] if needs_zarr2 else []))
    command = [BIN, "check", "--json", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one for one in found if one["severity"] != "note"] == []
    assert done.returncode == 0, done.stderr
    assert {one["code"] for one in found} == made.notes, found
    summary = json.loads(done.stderr.splitlines()[-1])["summary"]
    assert summary["arrays"] >= made.arrays, summary
    assert summary["chunks_checked"] == summary["chunks_stored"] and summary["chunks_skipped"] == 0
    assert (summary["chunks_unknown"] > 0) == made.partly, summary
    run(BIN, "tree", store)
    run(BIN, "info", store)
    run(BIN, "diff", store, store, code=2 if made.partly else 0)
    options = ["--skip-unsupported"] if made.partly else []
    run(BIN, "convert", store, tmp_path / "converted", *options)
    if not made.partly:
        run(BIN, "diff", store, tmp_path / "converted")
    run(BIN, "check", tmp_path / "converted")


@pytest.mark.parametrize("formats", [(2, 3), (2, 2), (3, 3)])
def test_a_folder_of_stores_is_read_as_each_store_alone(formats, tmp_path):
    for number, zarr_format in enumerate(formats):
        root = group3(tmp_path / f"folder/s{number}", zarr_format, attributes={"title": "x"})
        fill(root, "a", attributes={"units": "K"})
        zarr.consolidate_metadata(tmp_path / f"folder/s{number}")
    run(BIN, "convert", tmp_path / "folder", tmp_path / "converted")
    for number in range(2):
        run(BIN, "diff", tmp_path / f"folder/s{number}", tmp_path / f"converted/s{number}")
    assert run(BIN, "check", tmp_path / "folder").stdout == ""
