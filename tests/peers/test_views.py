"""Views: what holds for all of them, shown with those that numpy reads."""

import errno
import io
import os
import subprocess
import time

import h5py
import netCDF4
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr

from mounts import Mount
from torture import LONG
from views import ZARRFS, array, cat, refused, values_of

DTYPES = ["?", "i1", "u1", "<i2", ">i2", "<u4", "<i8", ">u8", "<f2", "<f4", ">f4", "<f8", "<c8", ">c16"]
LAYOUTS = [
    {"zarr_format": 3},
    {"zarr_format": 3, "sharded": True},
    {"zarr_format": 2},
    {"zarr_format": 2, "order": "F"},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_reads_every_type_and_rank_as_zarr_python_does(tmp_path, dtype, layout):
    for shape in [(), (11,), (7, 9), (3, 5, 6), (2, 3, 4, 5), (0, 4)]:
        if layout.get("sharded") and 0 in shape:
            continue
        name = "x".join(map(str, shape)) or "scalar"
        # zarr-python 3 stores Zarr 3 in one byte order for all.
        stored = array(tmp_path / name, values_of(shape, dtype), **layout)
        found = np.load(cat(tmp_path / name, "npy", tmp_path / f"{name}.npy"))
        assert found.dtype == np.dtype(dtype).newbyteorder("<") and found.shape == shape
        np.testing.assert_array_equal(found, stored)
        raw = cat(tmp_path / name, "raw", tmp_path / f"{name}.raw").read_bytes()
        assert raw == stored.astype(np.dtype(dtype).newbyteorder("<")).tobytes()


@pytest.mark.filterwarnings("ignore::UserWarning")  # of format 3.0, which is for names such as these
@pytest.mark.parametrize(
    "dtype",
    ["|u1", "<f8", "<c16"]
    + [[("a" * n, "<i4"), ("b", "<f8")] for n in (1, *range(30, 70, 3))]
    + [[("é", "<i4")], [("ψ'", "<i4")], [("a", "<u2"), ("it's", [("x", "|u1")])]],
    ids=lambda dtype: str(len(str(dtype))),
)
def test_a_file_is_to_the_byte_what_numpy_writes(tmp_path, dtype):
    for shape in [(), (7,), (0, 3), (1, 1, 1, 1), (123456, 1), (3,) * 12]:
        name = f"x{len(shape)}-{sum(shape)}"
        array = zarr.create_array(tmp_path / name, shape=shape, dtype=np.dtype(dtype), fill_value=None, zarr_format=2)
        written = io.BytesIO()
        np.save(written, array[...])
        assert cat(tmp_path / name, "npy", tmp_path / "x.npy").read_bytes() == written.getvalue()


@pytest.mark.parametrize("dtype", ["S5", "<U3", "<M8[s]", "<m8[10us]"])
def test_numpy_reads_texts_and_times(tmp_path, dtype):
    values = np.array(["a", "bcd", ""], dtype=dtype) if dtype[0] in "S<" and dtype[-1].isdigit() else np.array([1, 2, 3], dtype)
    zarr.create_array(tmp_path / "x", data=values, chunks=(2,))
    np.testing.assert_array_equal(np.load(cat(tmp_path / "x", "npy", tmp_path / "x.npy")), values)


def test_what_numpy_has_no_type_for_is_refused_and_said(tmp_path, mount):
    group = zarr.create_group(tmp_path / "g")
    group.create_array("text", data=np.array(["a", "bc"], dtype=np.dtypes.StringDType()))
    assert "variable length" in refused(tmp_path / "g/text", "npy")
    with mount(tmp_path / "g") as m:
        assert not (m / "text.npy").exists()
        assert "variable length" in (m / ".zarrfs/views/text").read_text()
    assert "no_views" in subprocess.check_output([ZARRFS, "info", "--json", tmp_path / "g/text"], text=True)


@pytest.fixture(params=LAYOUTS[:3], ids=str)
def store(request, tmp_path):
    """A group with an array in it, and what that has."""
    zarr.create_group(tmp_path / "g.zarr", zarr_format=request.param["zarr_format"])
    values = array(tmp_path / "g.zarr/x", values_of((13, 21, 17), "<f4"), (4, 8, 8), **request.param)
    return tmp_path / "g.zarr", values


def test_a_view_opens_by_name_and_is_met_nowhere_else(store, tmp_path, mount):
    path, values = store
    with mount(path) as m:
        names = sorted(os.listdir(m.path))
        assert names == ["x", "zarr.json"]
        found = np.load(m / "x.npy", mmap_mode="r")
        np.testing.assert_array_equal(found, values)
        del found
        assert (m / "x.npy").stat().st_size == (m / "x.raw").stat().st_size + 128
        assert not (m / "y.npy").exists() and not (m / "x.c.npy").exists()
        for command in (["cp", "-r"], ["rsync", "-rt"]):
            copy = tmp_path / command[0]
            subprocess.run([*command, f"{m.path}/", copy], check=True)
            assert sorted(os.listdir(copy)) == names
        # A file of that name wins.
        np.save(m / "y.npy", values)
        assert (m / "y.npy").exists()
        listed = (m / ".zarrfs/views/x").read_text()
        assert "npy" in listed and f"{(m / 'x.npy').stat().st_size} bytes" in listed
    with mount(path, "--views=npy", "--as=zarr2") as m:
        assert "x.npy" in os.listdir(m.path) and "x.raw" not in os.listdir(m.path)
        np.testing.assert_array_equal(np.load(m / "x.npy"), values)
    with mount(path, "--as=npy") as m:
        found = {str(at.relative_to(m.path)) for at in m.path.rglob("*") if at.is_file()}
        assert found == {"x.npy"}
        np.testing.assert_array_equal(np.load(m / "x.npy"), values)
        for refused_ in (lambda: os.mkdir(m / "new"), lambda: (m / "new").write_bytes(b"")):
            m.refused(errno.EPERM, "", refused_)


def test_what_is_written_to_a_view_is_stored_and_nothing_else_changes(store, tmp_path, mount):
    path, values = store
    with mount(path, copy=False) as m:
        found = np.load(m / "x.npy", mmap_mode="r+")
        found[5:9, 3, 2:11] = 7
        found.flush()
        del found
        values[5:9, 3, 2:11] = 7
        chunk = np.fromfile(m / "x/c/1/0/0", "<f4").reshape(4, 8, 8)
        np.testing.assert_array_equal(chunk, values[4:8, :8, :8])
        # And the other way round.
        chunk[:] = 8
        chunk.tofile(m / "x/c/1/0/0")
        values[4:8, :8, :8] = 8
        np.testing.assert_array_equal(np.load(m / "x.npy"), values)
        with open(m / "x.raw", "r+b") as raw:
            raw.seek(4 * 17 * 2 + 2)  # In the middle of an element.
            raw.write(b"\x12")
        values.reshape(-1).view("u1")[4 * 17 * 2 + 2] = 0x12
        np.testing.assert_array_equal(np.load(m / "x.npy"), values)
    np.testing.assert_array_equal(zarr.open_array(path / "x", mode="r")[...], values)


@pytest.mark.parametrize("program", ["np.save", "cp", "rsync", "rsync --inplace", "dd"])
def test_programs_write_a_whole_view(store, tmp_path, mount, program):
    path, values = store
    values = values[::-1].copy()
    np.save(tmp_path / "new.npy", values)
    with mount(path, copy=False) as m:
        if program == "np.save":
            np.save(m / "x.npy", values)
        elif program == "dd":
            subprocess.run(["dd", f"if={tmp_path}/new.npy", f"of={m.path}/x.npy", "bs=1000", "status=none"], check=True)
        else:
            options = ["-I"] if "rsync" in program else []
            subprocess.run([*program.split(), *options, tmp_path / "new.npy", m / "x.npy"], check=True)
        np.testing.assert_array_equal(np.load(m / "x.npy"), values)
    np.testing.assert_array_equal(zarr.open_array(path / "x", mode="r")[...], values)


def test_a_file_of_another_shape_or_type_is_refused_before_anything_changes(store, tmp_path, mount):
    path, values = store
    before = {at: at.read_bytes() for at in path.rglob("*") if at.is_file()}
    with mount(path, copy=False) as m:
        size = (m / "x.npy").stat().st_size
        for other in (values.reshape(-1), values[:-1], np.zeros(values.shape, "S3")):
            m.refused(errno.EINVAL, "shape|type", lambda other=other: np.save(m / "x.npy", other))
        longer = np.concatenate([values, values])
        longer.tofile(tmp_path / "longer.raw")
        m.refused(errno.EFBIG, "always has", lambda: os.truncate(m / "x.npy", size + 1))
        m.refused(errno.EFBIG, "always has", lambda: os.truncate(m / "x.npy", size - 1))
        os.truncate(m / "x.npy", 0)
        os.truncate(m / "x.npy", size)

        def append():
            with open(m / "x.npy", "ab", buffering=0) as file:
                file.write(b"x")

        m.refused(errno.EFBIG, "past the end", append)
        m.refused(errno.EPERM, "it is a view of", lambda: os.unlink(m / "x.npy"))
        m.refused(errno.EPERM, "", lambda: os.rename(m / "x.npy", m / "y"))
        assert (m / "x.npy").stat().st_size == size
        np.testing.assert_array_equal(np.load(m / "x.npy"), values)
    assert {at: at.read_bytes() for at in path.rglob("*") if at.is_file()} == before


def test_what_others_store_is_seen_once_the_metadata_are_looked_at_again(store, tmp_path, mount):
    path, values = store
    with mount(path, "--metadata-ttl=0", copy=False) as m:
        np.testing.assert_array_equal(np.load(m / "x.npy"), values)
        stored = zarr.open_array(path / "x", mode="r+")
        stored[3:6] = 5
        values[3:6] = 5
        np.testing.assert_array_equal(np.load(m / "x.npy"), values)
        stored.resize((20, 21, 17))
        assert np.load(m / "x.npy").shape == (20, 21, 17)


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"sharded": True},
        {"serializer": zarr.codecs.BytesCodec(endian="big")},
        {"compressors": zarr.codecs.BloscCodec(typesize=8)},
        {"compressors": [zarr.codecs.BloscCodec(typesize=8), zarr.codecs.Crc32cCodec()], "sharded": True},
        {"zarr_format": 2},
        {"zarr_format": 2, "compressors": numcodecs.Blosc()},
        {"zarr_format": 2, "order": "F"},
        {"compressors": "auto"},  # zstd
        {"compressors": zarr.codecs.GzipCodec()},
    ],
    ids=lambda layout: "-".join(layout) or "v3",
)
def test_who_jumps_about_reads_what_is_stored_and_of_chunks_in_pieces_little_more(tmp_path, mount, layout):
    dice = np.random.default_rng(5)
    os.makedirs(tmp_path / "store")
    zarr.create_group(tmp_path / "store", zarr_format=layout.get("zarr_format", 3))
    values = values_of((9, 1000, 500), "<f8")
    values = array(tmp_path / "store/x", values, (4, 300, 500), **{"compressors": None, **layout})
    expected = values.reshape(-1).view("u1")  # as it is then
    with mount(tmp_path / "store", "--metadata-ttl=0", "--cache-size=24M", copy=False) as m:
        for round in range(24 if LONG else 9):
            with open(m / "x.raw", "r+b" if round % 2 else "rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                for _ in range(10):
                    offset, length = int(dice.integers(expected.size)), int(dice.integers(1, 9000))
                    assert os.pread(file.fileno(), length, offset) == expected[offset : offset + length].tobytes()
                if round % 2:
                    at = int(dice.integers(values.size - 500))
                    values.reshape(-1)[at : at + 500] = round
                    os.pwrite(file.fileno(), values.reshape(-1)[at : at + 500].tobytes(), at * 8)
                    assert os.pread(file.fileno(), 9000, at * 8) == expected[at * 8 : at * 8 + 9000].tobytes()
            if round % 4 == 2:
                # Through a chunk file, and behind the mount.
                values[4:8, :300] = round
                (m / "x/c/1/0/0").write_bytes(values[4:8, :300].tobytes())
                subprocess.run(["sync", str(m.path)], check=True)
                values[8:] = round
                zarr.open_array(tmp_path / "store/x", mode="r+")[8:] = round
        stats = dict(line.rsplit(" ", 1) for line in (m / ".zarrfs/stats").read_text().splitlines() if line[0] != "#")
        is_gzip = isinstance(layout.get("compressors"), zarr.codecs.GzipCodec)
        has_ranges = not is_gzip and layout.get("order") != "F"
        assert (int(stats["zarrfs_partial_chunk_reads_total"]) > 20) == has_ranges, stats["zarrfs_partial_chunk_reads_total"]
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "store/x", mode="r")[...], values)


# Each takes half a minute.
SWEPT = {"zstd": zarr.codecs.ZstdCodec(level=1), **({"none": None, "blosc": zarr.codecs.BloscCodec(typesize=4)} if LONG else {})}


@pytest.mark.parametrize("compressors", SWEPT.values(), ids=SWEPT)
def test_where_the_cache_holds_no_row_of_chunks_a_sweep_decodes_them_once_for_a_long_part(tmp_path, mount, compressors):
    os.makedirs(tmp_path / "store")
    zarr.create_group(tmp_path / "store")
    dice = np.random.default_rng(3)
    values = array(tmp_path / "store/x", dice.normal(size=(100, 400, 400)).astype("f4"), (100, 20, 20), compressors=compressors)
    with mount(tmp_path / "store", "--cache-size=32M", copy=False) as m:

        if compressors is not None:
            m.expect("decodes each chunk about 16 times: a row of chunks has 64000000 bytes")
            m.allow("x/c/0/19/19")

        with open(m / "x.npy", "rb", buffering=0) as file:
            head = file.read(values[:40].nbytes + 128)
            assert head[128:] == values[:40].tobytes()
            stats = m.stats()
            windows = stats["zarrfs_view_windows_total"]
            # Without windows each request would decode all 400. Besides them: the first requests, before the sweep is long
            # enough, and a window that is made for what the kernel reads ahead.
            assert 5 < windows < 15 and stats["zarrfs_chunks_decoded_total"] <= (windows + 8) * 400
            # Through a chunk file, while the view is read: who goes on has it, but for what the kernel has read ahead.
            values[:, 200:220, 200:220] = 7
            (m / "x/c/0/10/10").write_bytes(values[:, 200:220, 200:220].tobytes())
            file.seek(values[:60].nbytes + 128)
            assert file.read() == values[60:].tobytes()
        # Behind the mount: who opens it again has it.
        values[:, :20, 380:] = 8
        zarr.open_array(tmp_path / "store/x", mode="r+")[:, :20, 380:] = 8
        subprocess.run(["sync", str(m.path)], check=True)
        np.testing.assert_array_equal(np.load(m / "x.npy"), values)
        # Nor does who read on from what was made before keep it from others.
        with open(m / "x.npy", "rb", buffering=0) as file:
            file.read(values[:20].nbytes)
            values[:, 200:220, 20:40] = 9
            zarr.open_array(tmp_path / "store/x", mode="r+")[:, 200:220, 20:40] = 9
            time.sleep(1.1)
            with open(m / "x.npy", "rb", buffering=0) as other:
                other.read(1 << 20)
            file.read(values[:20].nbytes)
        time.sleep(1.1)
        np.testing.assert_array_equal(np.load(m / "x.npy"), values)
        (tmp_path / "store/x/c/0/19/19").write_bytes(b"damaged")
        time.sleep(1.1)
        with open(m / "x.npy", "rb", buffering=0) as file:
            if compressors is not None:
                with pytest.raises(OSError, match="Input/output error"):
                    while file.read(1 << 20):
                        pass


def climate(path):
    """A dataset as xarray writes it."""
    dice = np.random.default_rng(1)
    data = xr.Dataset(
        {"t2m": (("time", "lat", "lon"), dice.normal(280, 10, (5, 18, 36)).astype("f4"), {"units": "K"})},
        {"time": np.arange(5) * np.timedelta64(1, "D") + np.datetime64("2000-01-01", "ns"),
         "lat": np.linspace(-85, 85, 18), "lon": np.arange(36) * 10.0},
        {"title": "a test"},
    )
    data["t2m"][1, 2, 3] = np.nan
    chunks = {"t2m": {"chunks": (2, 8, 16), "shards": (4, 16, 32)}}
    data.to_zarr(path, zarr_format=3, encoding=chunks, consolidated=False)
    return data


def test_every_view_in_a_mount_is_what_cat_makes(tmp_path, mount):
    climate(tmp_path / "climate.zarr")
    found = 0
    with mount(tmp_path / "climate.zarr", "--views=all", "-o", "ro") as m:
        for name in os.listdir(m.path):
            stem, _, format = name.partition(".")
            if format in ("", "json"):
                continue
            node = tmp_path / "climate.zarr" / ("" if stem == "__root__" else stem)
            expected = cat(node, format, tmp_path / "expected").read_bytes()
            # Alone and as part of its hierarchy an array has another name.
            assert (m / name).read_bytes() == expected, name
            found += 1
        text = "".join(at.read_text() for at in (m / ".zarrfs/views").iterdir())
        assert found == len([line for line in text.splitlines() if line.endswith(" bytes")]) > 30


@pytest.mark.parametrize("format, engine", [("nc", "netcdf4"), ("nc", "scipy"), ("nc4", "netcdf4"), ("nc4", "h5netcdf")])
def test_xarray_reads_in_a_mount_what_it_has_stored_in_zarr(tmp_path, mount, format, engine):
    data = climate(tmp_path / "climate.zarr")
    with mount(tmp_path / "climate.zarr") as m:
        options = {"phony_dims": "sort"} if engine == "h5netcdf" else {}
        with xr.open_dataset(m / f"__root__.{format}", engine=engine, **options) as found:
            xr.testing.assert_identical(found.load(), data)


@pytest.mark.parametrize("program", ["h5py", "netCDF4 nc4", "netCDF4 nc"])
def test_libraries_change_values_in_place_and_nothing_else(tmp_path, mount, program):
    data = climate(tmp_path / "climate.zarr")
    with mount(tmp_path / "climate.zarr", copy=False) as m:
        if program == "h5py":
            with h5py.File(m / "__root__.h5", "r+") as file:
                file["t2m"][1:4, 5, 7:20] = 5
        else:
            with netCDF4.Dataset(m / f"__root__.{program.split()[1]}", "r+") as file:
                file["t2m"][1:4, 5, 7:20] = 5
        data["t2m"][1:4, 5, 7:20] = 5
    xr.testing.assert_identical(xr.open_zarr(tmp_path / "climate.zarr", consolidated=False).load(), data)


def test_who_wants_to_grow_a_header_fails_and_changes_nothing(tmp_path, mount):
    data = climate(tmp_path / "climate.zarr")
    before = {at: at.read_bytes() for at in (tmp_path / "climate.zarr").rglob("*") if at.is_file()}
    with mount(tmp_path / "climate.zarr", copy=False) as m:
        m.allow("write|setattr")
        for name in ("__root__.nc", "__root__.nc4"):
            done = subprocess.run(["ncatted", "-O", "-h", "-a", "history,global,o,c," + "x" * 20000, m / name])
            assert done.returncode != 0
        with xr.open_dataset(m / "__root__.nc") as found:
            xr.testing.assert_identical(found.load(), data)
    after = {at: at.read_bytes() for at in (tmp_path / "climate.zarr").rglob("*") if at.is_file()}
    assert after == before


def test_a_header_is_of_the_attributes_and_coordinates_as_they_are_now(tmp_path, mount):
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("x", data=np.arange(6, dtype="i8"), chunks=(3,), dimension_names=["x"])
    with mount(tmp_path / "g.zarr") as m:
        for number in range(5):
            os.setxattr(m.path, "user.attrs.title", b'"%d"' % number)
            np.full(3, number, "<i8").tofile(m / "x/c/1")
            for format in ("nc", "nc4"):
                with netCDF4.Dataset(m / f"__root__.{format}") as data:
                    assert data.title == str(number)
                    assert data["x"][:].tolist() == [0, 1, 2, number, number, number]


def test_a_huge_array_opens_at_once_and_its_end_is_one_chunk(tmp_path):
    shape = (20 << 30) // (4 * 1000 * 1000), 1000, 1000
    stored = zarr.create_array(tmp_path / "x.zarr", shape=shape, chunks=(10, 100, 100), dtype="f4", fill_value=1.5)
    stored[-1, -1, -1] = 3
    with_end = Mount(tmp_path / "x.zarr", tmp_path / "mnt")
    try:
        found = np.load(with_end / "__root__.npy", mmap_mode="r")
        assert found.shape == shape and found[-1, -1, -1] == 3 and found[0, 0, 0] == 1.5
        del found
        opened = 0
        for line in (with_end / ".zarrfs/views/__group__").read_text().splitlines():
            name = line.split()[1]
            if not line.endswith(" bytes") or (size := (with_end / name).stat().st_size) < 1 << 30:
                continue
            opened += 1
            with open(with_end / name, "rb", buffering=0) as file:
                file.seek(size - 4)
                assert len(file.read()) == 4
        assert opened > 8
        # All of them want the same chunk.
        assert "\nzarrfs_chunks_decoded_total 1\n" in (with_end / ".zarrfs/stats").read_text()
    finally:
        with_end.end()
