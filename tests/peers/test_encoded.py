"""Programs that compress write into a mount as they are: their chunk files stay encoded until the next mount."""

import errno
import os
import shutil
import subprocess
from random import Random

import numpy as np
import pytest
import tensorstore as ts
import xarray as xr
import zarr
from numcodecs import Delta, Zlib
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

from hierarchies import assert_same, ident, open_ts
from mounts import wait_until
from torture import LONG

VALUES = np.random.default_rng(20).integers(0, 100, (50, 70)).astype("f4")

ARRAYS = {
    "default": {},
    "gzip": dict(compressors=GzipCodec(level=3)),
    "blosc": dict(compressors=BloscCodec(cname="lz4", shuffle="bitshuffle")),
    "checked": dict(compressors=[ZstdCodec(level=1), Crc32cCodec()]),
    "transposed": dict(filters=TransposeCodec(order=(1, 0)), compressors=None),
    "big_endian": dict(serializer=BytesCodec(endian="big"), compressors=None),
    "shards": dict(shards=(20, 60)),
    "shards_big": dict(shards=(20, 60), serializer=BytesCodec(endian="big"), compressors=GzipCodec()),
}
PLACES = [("v3",), ("v3", "--shards", "64K"), ("v3", "--writeback=all"), ("v2",), ("d2020-10",)]
LACKS = {"v2": ["shards", "shards_big"], "d2020-10": ["checked", "shards", "shards_big"]}


@pytest.mark.parametrize("place", PLACES, ids=ident)
def test_zarr_python_reads_back_what_it_wrote_and_so_does_everybody_else(new, mount, place):
    kinds = [kind for kind in ARRAYS if kind not in LACKS.get(place[0], [])]
    values = {kind: VALUES.copy() for kind in kinds}
    with new(*place) as m:
        for kind in kinds:
            array = zarr.create_array(m / f"g/{kind}", data=VALUES, chunks=(10, 30), **ARRAYS[kind])
            assert_same(array[...], VALUES, kind)
            array[5:13, 25:40] = 3
            values[kind][5:13, 25:40] = 3
            array.attrs["unit"] = "K"
            again = zarr.open_array(m / f"g/{kind}", mode="r")
            assert again.metadata.to_dict() == array.metadata.to_dict()
            assert_same(again[...], values[kind], kind)
            assert_same(np.load(m / f"g/{kind}.npy"), values[kind], kind)
            with open(m / f"g/{kind}.npy", "r+b") as view:
                view.seek(-4, 2)
                view.write(np.float32(77).tobytes())
            values[kind][-1, -1] = 77
            assert_same(zarr.open_array(m / f"g/{kind}", mode="r")[...], values[kind], kind)
    with mount(m.store, copy=False) as m:
        for kind in kinds:
            assert_same(zarr.open_array(m / f"g/{kind}", mode="r")[...], values[kind], kind)
            assert (m / f"g/{kind}/c/0/0").stat().st_size == 10 * 30 * 4, kind
    if place[0] != "d2020-10":
        for kind in kinds:
            assert_same(zarr.open_array(m.store / f"g/{kind}", mode="r")[...], values[kind], kind)


@pytest.mark.parametrize("dialect", ["v2", "d2020-10", "n5"])
def test_what_a_dialect_cannot_express_is_refused_at_the_metadata_file(new, dialect):
    with new(dialect) as m:
        m.expect(r"x/zarr\.json: ")
        with pytest.raises(OSError):
            zarr.create_array(m / "x", shape=(20, 60), chunks=(10, 30), dtype="f4", **ARRAYS["shards"])
        assert ("N5 stores each chunk" if dialect == "n5" else "sharding_indexed") in m.errors()


def dataset(first):
    coords = {"time": np.arange(first, first + 50), "x": [f"n{i}" for i in range(70)]}
    return xr.Dataset({"t": (("time", "x"), VALUES, {"units": "K"})}, coords=coords)


@pytest.mark.parametrize("place", [*PLACES, ("v3", "--as", "zarr2"), ("v2", "--as", "zarr2")], ids=ident)
def test_xarray_writes_appends_and_replaces(new, mount, place):
    zarr_format = 2 if "zarr2" in place else 3
    one, two = dataset(0), dataset(50)
    with new(*place) as m:
        one.to_zarr(m / "ds", zarr_format=zarr_format)
        xr.testing.assert_identical(xr.open_zarr(m / "ds").load(), one)
        two.to_zarr(m / "ds", append_dim="time")
        xr.testing.assert_equal(xr.open_zarr(m / "ds").load(), xr.concat([one, two], "time"))
        two.drop_vars("x").to_zarr(m / "ds", region={"time": slice(0, 50), "x": slice(0, 70)}, mode="r+")
        for _ in range(2):
            two.to_zarr(m / "ds", mode="w", zarr_format=zarr_format)
            xr.testing.assert_identical(xr.open_zarr(m / "ds").load(), two)
        one.chunk(time=10).to_zarr(m / "dask", zarr_format=zarr_format)
        xr.testing.assert_identical(xr.open_zarr(m / "dask").load(), one)
    with mount(m.store, *place[1:3] if "zarr2" in place else (), copy=False) as m:
        xr.testing.assert_identical(xr.open_zarr(m / "ds").load(), two)
        xr.testing.assert_identical(xr.open_zarr(m / "dask").load(), one)


@pytest.mark.parametrize("dialect", ["v3", "v2"])
def test_zarr_2_filters_order_and_byte_order_are_kept(new, dialect):
    with new(dialect, "--as", "zarr2") as m:
        like = dict(chunks=(20, 30), order="F", filters=[Delta(">f8")], compressors=Zlib(3), zarr_format=2)
        array = zarr.create_array(m / "y", data=VALUES.astype(">f8"), **like)
        again = zarr.open_array(m / "y", mode="r")
        assert again.metadata.to_dict() == array.metadata.to_dict()
        assert_same(again[...].astype("f4"), VALUES)
        assert_same(np.load(m / "y.npy").astype("f4"), VALUES)


@pytest.mark.parametrize("place", PLACES[:3], ids=ident)
def test_tensorstore_writes_with_its_own_compressors(new, place):
    codecs = [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "gzip", "configuration": {"level": 2}}]
    metadata = {"shape": [50, 70], "data_type": "float32", "codecs": codecs,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [20, 30]}}}
    with new(*place) as m:
        store = {"driver": "file", "path": str(m / "x") + "/"}
        array = ts.open({"driver": "zarr3", "kvstore": store, "metadata": metadata}, create=True).result()
        array.write(VALUES).result()
        assert_same(open_ts(m.path, "x").read().result(), VALUES)
        assert_same(np.load(m / "x.npy"), VALUES)
    assert_same(open_ts(m.store, "x").read().result(), VALUES)


@pytest.mark.parametrize("options", [(), ("--shards", "64K"), ("--trust-encoded", "--durability=fsync")], ids=ident)
@pytest.mark.parametrize("copy", ["cp -r", "rsync -rt", "tar"])
def test_a_compressed_tree_is_copied_as_it_is(new, tmp_path, copy, options):
    source = tmp_path / "source"
    for kind in ["default", "blosc", "shards"]:
        zarr.create_array(source / f"g/{kind}", data=VALUES, chunks=(10, 30), **ARRAYS[kind])
    with new("v3", *options) as m:
        if copy == "tar":
            archive = subprocess.Popen(["tar", "-C", source, "-cf", "-", "g"], stdout=subprocess.PIPE)
            subprocess.run(["tar", "-C", m.path, "-xf", "-", "--no-same-owner"], stdin=archive.stdout, check=True)
            assert archive.wait() == 0
        else:
            subprocess.run([*copy.split(), source / "g", m.path], check=True)
        for kind in ["default", "blosc", "shards"]:
            assert_same(zarr.open_array(m / f"g/{kind}", mode="r")[...], VALUES, kind)
        subprocess.run(["mv", m / "g", m / "h"], check=True)
        assert_same(np.load(m / "h/default.npy"), VALUES)
        if "--shards" not in options:
            assert subprocess.run(["diff", "-r", source / "g", m / "h"], check=False).returncode == 0
        shutil.rmtree(m / "h/blosc")
    assert_same(zarr.open_array(m.store / "h/shards", mode="r")[...], VALUES)


def switch(path, shown):
    """The kernel tells of the last close of a file a little later."""
    def is_switched():
        try:
            os.setxattr(path, "user.zarr.shown", shown)
        except OSError as error:
            assert error.errno == errno.EBUSY
            return False
        return True

    assert wait_until(is_switched), f"{path} stays busy"


@pytest.mark.parametrize("place", [*PLACES, ("v3", "--shards", "1K", "--cache-size", "64K")], ids=ident)
def test_libraries_views_and_switches_of_the_form_agree_in_any_order(new, place):
    random = Random(str(place))
    kinds = [kind for kind in ["default", "gzip", "shards", "big_endian"] if kind not in LACKS.get(place[0], [])]
    arrays, count = {}, 0
    with new(*place) as m:
        m.allow("a program has this file open")
        for _ in range(200 if LONG else 80):
            step = random.choice(["new", "write", "write", "view", "longer", "shorter", "switch", "mv", "rm"])
            if step == "new" and len(arrays) < 5:
                name, count = f"a{count}", count + 1
                values = np.arange(17 * 13, dtype="i4").reshape(17, 13)
                options = {"shards": dict(shards=(8, 12))}.get(kind := random.choice(kinds), ARRAYS[kind])
                zarr.create_array(m / name, data=values, chunks=(4, 6), **options)
                arrays[name] = values
            if not arrays or step == "new":
                continue
            name = random.choice(sorted(arrays))
            values = arrays[name]
            rows = slice(*sorted(random.sample(range(len(values) + 1), 2)))
            columns = slice(*sorted(random.sample(range(14), 2)))
            value = random.randrange(1000)
            if step == "write":
                zarr.open_array(m / name)[rows, columns] = value
                values[rows, columns] = value
            elif step == "view":
                view = np.lib.format.open_memmap(m / f"{name}.npy", "r+")
                view[rows, columns] = value
                view.flush()
                del view
                values[rows, columns] = value
            elif step == "longer":
                zarr.open_array(m / name).resize((len(values) + 3, 13))
                arrays[name] = np.vstack([values, np.zeros((3, 13), "i4")])
            elif step == "shorter" and len(values) > 9:
                array = zarr.open_array(m / name)
                array[9:] = 0
                array.resize((9, 13))
                arrays[name] = values[:9].copy()
            elif step == "switch":
                switch(m / name, random.choice([b"decoded", b"stored"]))
            elif step == "mv":
                other, count = f"a{count}", count + 1
                os.rename(m / name, m / other)
                arrays[other] = arrays.pop(name)
            elif step == "rm":
                shutil.rmtree(m / name)
                del arrays[name]
            if name in arrays:
                assert_same(zarr.open_array(m / name, mode="r")[...], arrays[name], f"{step} {name}")
                assert_same(np.load(m / f"{name}.npy"), arrays[name], f"{step} {name}.npy")
    if place[0] != "d2020-10":
        for name, values in arrays.items():
            assert_same(zarr.open_array(m.store / name, mode="r")[...], values, name)
