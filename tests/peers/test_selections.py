"""`--region` by names and coordinates, against xarray's `sel` and NumPy."""

import io
import json
import os
import subprocess

import numpy as np
import pytest
import xarray as xr
import zarr

from hierarchies import assert_same
from mounts import wait_until
from views import ZARRFS

LONG = os.environ.get("ZARRFS_LONG") == "1"
RNG = np.random.default_rng(51)
CALENDARS = ["standard", "proleptic_gregorian", "noleap", "360_day", "all_leap", "julian"]


def cat(path, format, text, code=0):
    done = subprocess.run([ZARRFS, "cat", path, "--as", format, f"--region={text}"], capture_output=True)
    assert done.returncode == code, done.stderr.decode()
    return done.stderr.decode() if code else done.stdout


def opened(path, text, tmp_path):
    (tmp_path / "r.nc").write_bytes(cat(path, "nc4", text))
    with xr.open_dataset(tmp_path / "r.nc", engine="netcdf4") as found:
        return found.load()


def climate(calendar, is_descending, units, longitudes, single):
    latitudes = np.linspace(-88, 88, 23)
    kind = "f4" if single else "f8"
    times = xr.date_range("2001-01-15T06:00", periods=40, freq="9D", calendar=calendar, use_cftime=True)
    shape = (len(times), 23, len(longitudes))
    data = xr.Dataset(
        {
            "t": (("time", "lat", "lon"), RNG.random(shape, "f4"), {"units": "K"}),
            "mask": (("lat", "lon"), RNG.integers(0, 2, shape[1:]).astype("i1")),
        },
        coords={
            "time": times,
            "lat": ("lat", (latitudes[::-1] if is_descending else latitudes).astype(kind)),
            "lon": ("lon", longitudes.astype(kind), {"units": "degrees_east"}),
        },
    )
    data.time.encoding.update(units=units, calendar=calendar, dtype="f8" if "days" in units else "i8")
    return data


def ends(values, digits):
    """Two ends between or on values, as a person types them."""
    one, other = sorted(round(float(value), digits) for value in RNG.choice(values, 2) + RNG.choice([0, 0, 0.5], 2))
    return one, other


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("calendar", CALENDARS)
def test_selections_of_coordinates_equal_those_of_xarray(calendar, zarr_format, tmp_path, tried):
    units = RNG.choice(["days since 1990-01-01", "hours since 2000-01-01 12:00:00", "seconds since 1970-01-01"])
    is_descending = bool(RNG.integers(2))
    data = climate(calendar, is_descending, str(units), np.arange(-180, 180, 7.5), bool(RNG.integers(2)))
    chunks = {name: {"chunks": [min(len, 7) for len in data[name].shape]} for name in ("t", "mask")}
    data.to_zarr(tmp_path / "s", zarr_format=zarr_format, encoding=chunks, consolidated=False)
    data = xr.open_zarr(tmp_path / "s", consolidated=False, decode_times=xr.coders.CFDatetimeCoder(use_cftime=True)).load()
    for _ in range(25 if LONG else 4):
        south, north = ends(data.lat.values, 3)
        west, east = ends(data.lon.values, 3)
        months = sorted(RNG.integers(1, 13, 2))
        first, last = (f"2001-{month:02}" for month in months)
        wanted = data.sel(
            lat=slice(*((north, south) if is_descending else (south, north))), lon=slice(west, east), time=slice(first, last)
        )
        text = f"lat={south}:{north},lon={west}:{east},time={first}:{last}"
        if 0 in wanted.t.shape:
            assert "selects no element" in cat(tmp_path / "s/t", "npy", text, code=1)
            continue
        tried("selections")
        for source in ("s", "s/t"):
            found = opened(tmp_path / source, text, tmp_path)
            for name in ("t", "lat", "lon", *(["mask"] if source == "s" else [])):
                assert_same(found[name].values, wanted[name].values, f"{text} {name}")
            assert found.time.size == wanted.time.size
        point = data.sel(lat=north, lon=east, method="nearest").isel(time=3)
        text = f"lat={north},lon={east},time=@3"
        assert np.load(io.BytesIO(cat(tmp_path / "s/t", "npy", text))) == point.t.values, text


def test_longitudes_go_on_where_the_map_ends(tmp_path):
    data = climate("standard", False, "days since 1990-01-01", np.arange(0, 360, 7.5), True)
    data["lon"].attrs["bounds"] = "lon_bnds"
    edges = np.stack([data.lon.values - 3.75, data.lon.values + 3.75], 1)
    data["lon_bnds"] = (("lon", "nv"), edges)
    data.to_zarr(tmp_path / "s", consolidated=False, encoding={"t": {"chunks": [8, 9, 10]}, "lon": {"chunks": [11]}})
    for west, east in [(-10, 30), (-180, 179), (340, 20), (300, 400), (10, 50), (-60, -20), (0, 360)]:
        last = east if east > west else east + 360
        turned = data.assign_coords(lon=(data.lon - west) % 360 + west).sortby("lon").sel(lon=slice(west, last))
        found = opened(tmp_path / "s", f"lon={west}:{east}", tmp_path)
        assert_same(found.t.values, turned.t.values, f"{west}:{east}")
        assert_same(found.mask.values, turned.mask.values, f"{west}:{east}")
        assert_same(found.lon.values, turned.lon.values.astype("f4"))
        assert np.allclose(found.lon_bnds.values.mean(1), found.lon.values)


def test_names_positions_and_dimensions_without_coordinates_are_selected(tmp_path):
    root = zarr.create_group(tmp_path / "s")
    values = RNG.random((4, 6, 8))
    names = np.array(["Genf", "Zürich", "Chur", "Bern"])
    root.create_array("t", data=values, chunks=(2, 3, 5), dimension_names=["station", "level", "x"])
    root.create_array("station", data=names.astype(np.dtypes.StringDType()), chunks=(3,), dimension_names=["station"])
    root.create_array("level", data=np.array([1000, 850, 500, 250, 100, 10], "i2"), chunks=(6,), dimension_names=["level"])
    for text, expected in [
        ("station=Zürich", values[1]),
        ("station=Zürich:Bern,level=850:250", values[1:4, 1:4]),
        ("station=@-1,x=@2:5", values[3, :, 2:5]),
        ("level=240", values[:, 3]),
        ("x=@3", values[:, :, 3]),
        ("level=@1:3,x=@:4", values[:, 1:3, :4]),
    ]:
        assert_same(np.load(io.BytesIO(cat(tmp_path / "s/t", "npy", text))), expected, text)
    for text, sentence in [
        ("station=Basel", "the names are Genf, Zürich, Chur, Bern"),
        ("level=5:8", "level goes from 10 to 1000"),
        ("level=2000", "level goes from 10 to 1000"),
        ("level=high", "write a number"),
        ("y=1", "no dimension y: its dimensions are station, level, x"),
        ("x=@9", "x has 8 elements"),
        ("x=3", "no array beside it or above has the coordinates of x"),
    ]:
        assert sentence in cat(tmp_path / "s/t", "npy", text, code=1), text
    assert "has no name of a dimension" in cat(tmp_path / "s/t", "npy", "level=1,2", code=2)
    assert "no array of the group has a dimension y" in cat(tmp_path / "s", "nc4", "y=1", code=1)


def test_a_region_of_an_image_is_in_its_units(tmp_path):
    root = zarr.create_group(tmp_path / "s")
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
    place = [{"type": "scale", "scale": [2.0, 0.5, 0.5]}, {"type": "translation", "translation": [10, 0, 100]}]
    half = [{"type": "scale", "scale": [2.0, 1.0, 1.0]}]
    levels = [{"path": "0", "coordinateTransformations": place}, {"path": "1", "coordinateTransformations": half}]
    root.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": levels}]}
    values = RNG.integers(0, 999, (6, 20, 30)).astype("u2")
    root.create_array("0", data=values, chunks=(2, 8, 8))
    root.create_array("1", data=values[:, ::2, ::2], chunks=(2, 8, 8))
    text = "z=14,y=2:5,x=104.9:110"
    expected = values[2, 4:11, 10:21]
    assert_same(np.load(io.BytesIO(cat(tmp_path / "s/0", "npy", text))), expected)
    (tmp_path / "r.tif").write_bytes(cat(tmp_path / "s", "tif", text))
    tifffile = pytest.importorskip("tifffile")
    assert_same(tifffile.imread(tmp_path / "r.tif"), expected)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_mount_shows_a_part_of_a_hierarchy(mount, tmp_path, zarr_format):
    data = climate("noleap", True, "days since 1990-01-01", np.arange(0, 360, 7.5), False)
    data.t.values[30:] = np.nan
    data.to_zarr(
        tmp_path / "s", zarr_format=zarr_format, consolidated=False, encoding={"t": {"chunks": [4, 9, 10]}}, write_empty_chunks=False
    )
    west = data.assign_coords(lon=(data.lon + 180) % 360 - 180).sortby("lon")
    expected = west.sel(lat=slice(40, -10), lon=slice(-20, 50), time=slice("2001-02", "2001-12"))
    with mount(tmp_path / "s", "--region", "lat=-10:40,lon=-20:50,time=2001-02:2001-12", "-o", "ro", copy=False) as m:
        assert_same(xr.open_zarr(m.path, consolidated=False).load().t.values, expected.t.values)
        with xr.open_dataset(m / "__root__.nc", decode_times=False) as found:
            assert_same(found.t.values, expected.t.values)
            assert_same(found.lon.values, expected.lon.values)
        part = zarr.open_array(m / "t", mode="r")
        assert_same(part[3:5, ::2, -1], expected.t.values[3:5, ::2, -1])
        stored = sorted(str(file.relative_to(m / "t/c")) for file in (m / "t/c").rglob("*") if file.is_file())
        assert 0 < len(stored) < part.nchunks and len(stored) == part.nchunks_initialized
        with pytest.raises(OSError):
            (m / "t/c/0/0/0").write_bytes(b"")
        data.t[{"time": slice(8, 12)}] = 7
        data[["t"]].isel(time=slice(8, 12)).drop_vars(["lat", "lon"]).to_zarr(tmp_path / "s", region={"time": slice(8, 12)})
        wait_until(lambda: (zarr.open_array(m / "t", mode="r")[8 - 2] == 7).all())
    command = [ZARRFS, "exec", "--region", "time=@3", tmp_path / "s/t", "--", "cat", "{}/zarr.json"]
    assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["shape"] == [23, 48]


@pytest.mark.parametrize("place", ["array", "group", "box"])
def test_a_part_of_a_map_keeps_its_place(tmp_path, place):
    tifffile = pytest.importorskip("tifffile")
    root = zarr.create_group(tmp_path / "s")
    values = RNG.integers(0, 99, (40, 60)).astype("u1")
    array = root.create_array("b", data=values, chunks=(16, 16), dimension_names=["y", "x"])
    root.attrs.update({"proj:code": "EPSG:32632", "spatial:dimensions": ["y", "x"], "spatial:shape": [40, 60]})
    if place == "box":
        root.attrs["spatial:bbox"] = [500_000.0, 4_599_600.0, 500_600.0, 4_600_000.0]
    else:
        (array if place == "array" else root).attrs["spatial:transform"] = [10.0, 0.0, 500_000.0, 0.0, -10.0, 4_600_000.0]
    for source, text in [("s/b", "5:20,7:31"), ("s/b", "y=@5:20,x=@7:31")]:
        (tmp_path / "r.tif").write_bytes(cat(tmp_path / source, "tif", text))
        with tifffile.TiffFile(tmp_path / "r.tif") as file:
            assert_same(file.asarray(), values[5:20, 7:31])
            said = file.geotiff_metadata
            assert said["ModelPixelScale"] == [10, 10, 0]
            assert said["ModelTiepoint"] == [0, 0, 0, 500_070, 4_599_950, 0]
            assert said["ProjectedCSTypeGeoKey"] == 32632


def test_coordinates_of_groups_above_come_with_the_part(tmp_path):
    root = zarr.create_group(tmp_path / "s")
    for name, axis in [("lat", np.linspace(-40, 40, 9)), ("lon", np.arange(0.0, 360, 45))]:
        root.create_array(name, data=axis, chunks=(4,), dimension_names=[name])
    root["lon"].attrs.update({"units": "degrees_east", "valid_range": [0.0, 360.0], "actual_range": [0.0, 315.0]})
    root.attrs.update({"geospatial_lat_min": -40.0, "title": "kept"})
    values = RNG.random((9, 8))
    group = root.create_group("below")
    group.create_array("t", data=values, chunks=(4, 4), dimension_names=["lat", "lon"])
    text = "--region=lat=-10:10,lon=-90:0"
    expected = np.roll(values, 2, 1)[3:6, :3]
    for source in ("s/below/t", "s"):
        done = subprocess.run([ZARRFS, "cat", tmp_path / source, "--as", "nc4", text], capture_output=True, check=True)
        (tmp_path / "r.nc").write_bytes(done.stdout)
    with xr.open_datatree(tmp_path / "r.nc", engine="netcdf4") as found:
        assert_same(found["below/t"].values, expected)
        assert found["below/t"].lon.values.tolist() == [-90, -45, 0] and found.attrs == {"title": "kept"}
        assert found.lon.attrs == {"units": "degrees_east"}
    rows = cat(tmp_path / "s/below/t", "csv", "lat=-10:10,lon=-90:0").decode().splitlines()
    assert rows[0] == "lat,lon,t" and rows[1] == f"-10.0,-90.0,{expected[0, 0]!r}".replace("np.float64(", "").rstrip(")")
    assert "no array beside it or above" in subprocess.run(
        [ZARRFS, "exec", "--region", "lat=0:10", tmp_path / "s/below/t", "--", "true"], capture_output=True, text=True
    ).stderr
