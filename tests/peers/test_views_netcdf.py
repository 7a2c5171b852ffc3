"""`nc` and `nc4`: an array or a group as netCDF, opened by the programs that read netCDF."""

import json
import shutil
import subprocess
import warnings

import netCDF4
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from hierarchies import NARROW, assert_same
from test_fixtures import CASES, store_of, truths
from views import ZARRFS, array, cat, refused, values_of

warnings.filterwarnings("ignore", category=zarr.errors.UnstableSpecificationWarning)
pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
FORMATS = ["nc", "nc4"]
ENGINES = {"nc": ["netcdf4", "scipy"], "nc4": ["netcdf4", "h5netcdf"]}
SHAPES = {"scalar": (), "line": (11,), "plane": (7, 10), "box": (5, 4, 6), "five": (2, 3, 4, 3, 2)}
# What CDF-2 has, bits unchanged.
PLAIN = ["i1", "i2", "i4", "f4", "f8"]
NUMBERS = [*PLAIN, "u1", "u2", "u4", "u8", "i8"]


# Why an array may be none.
NO_NETCDF = [b"netCDF has no type for", b"netCDF cannot express times", b"cannot be decoded", b"can be empty"]


def validate(file):
    """By the tools that come with the formats."""
    if file.suffix == ".nc":
        subprocess.run(["ncvalidator", "-q", file], check=True)
    else:
        subprocess.run(["h5stat", file], check=True, stdout=subprocess.DEVNULL)
    return subprocess.run(["ncdump", file], check=True, capture_output=True, text=True, errors="replace").stdout


def kind(file):
    return subprocess.run(["ncdump", "-k", file], check=True, capture_output=True, text=True).stdout.strip()


def read(file, name):
    """The elements of a variable as they are stored."""
    with netCDF4.Dataset(file) as data:
        data.set_auto_maskandscale(False)
        data.set_auto_chartostring(False)
        return data[name][...]


def make(path, shape, dtype, **options):
    values = values_of(shape, dtype)
    return array(path, values, **options)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("endian", "<>")
@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_number_is_read_as_zarr_has_it(tmp_path, dtype, endian, zarr_format, format):
    store = tmp_path / "v"
    values = make(store, (7, 10), endian + dtype, zarr_format=zarr_format)
    file = cat(store, format, tmp_path / f"v.{format}")
    validate(file)
    got = read(file, "root")
    if format == "nc" and dtype == "u1":
        got = got.view("u1")
    np.testing.assert_array_equal(got, values)
    if format == "nc4" or dtype in PLAIN:
        assert got.dtype == np.dtype(dtype)
    for engine in ENGINES[format]:
        if kind(file) == "cdf5" and engine == "scipy":
            continue
        with xr.open_dataset(file, engine=engine, decode_times=False) as data:
            np.testing.assert_array_equal(data["root"].values, values)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", ["i2", "f8"])
def test_every_shape_is_read_as_zarr_has_it(tmp_path, shape, sharded, dtype, format):
    values = make(tmp_path / "v", shape, dtype, fill_value=7, **({"sharded": True} if sharded and shape else {}))
    file = cat(tmp_path / "v", format, tmp_path / f"v.{format}")
    validate(file)
    assert_same(read(file, "root"), values.astype(f"<{dtype}"))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("chunks", [(7, 10), (1, 10), (7, 1), (3, 3), (9, 4), (4, 12)])
def test_every_way_to_chunk_is_read(tmp_path, chunks, format):
    values = make(tmp_path / "v", (7, 10), "i4", chunks=chunks)
    file = cat(tmp_path / "v", format, tmp_path / f"v.{format}")
    validate(file)
    assert_same(read(file, "root"), values)


@pytest.mark.parametrize("dtype", ["u2", "u4", "u8", "i8"])
def test_few_integers_become_those_that_cdf2_has_and_many_are_cdf5(tmp_path, dtype):
    few, many = np.arange(50, dtype=dtype), np.zeros((1 << 20) + 1 + (4 << 20) // np.dtype(dtype).itemsize, dtype)
    many[-1] = 9
    array(tmp_path / "few", few, missing=False)
    array(tmp_path / "many", many, chunks=(1 << 20,), missing=False)
    file = cat(tmp_path / "few", "nc", tmp_path / "few.nc")
    assert kind(file) == "64-bit offset"
    assert_same(read(file, "root").astype(dtype), few)
    file = cat(tmp_path / "many", "nc", tmp_path / "many.nc")
    assert kind(file) == "cdf5"
    subprocess.run(["ncvalidator", "-q", file], check=True)
    assert_same(read(file, "root"), many)


def test_an_integer_that_no_double_is_makes_the_file_cdf5(tmp_path):
    values = np.array([2**53 + 1, -5], "i8")
    array(tmp_path / "v", values, missing=False)
    file = cat(tmp_path / "v", "nc", tmp_path / "v.nc")
    assert kind(file) == "cdf5"
    assert_same(read(file, "root"), values)
    array(tmp_path / "w", np.array([2**53 + 2, -5], "i8"), missing=False)
    file = cat(tmp_path / "w", "nc", tmp_path / "w.nc")
    assert kind(file) == "64-bit offset"
    assert_same(read(file, "root"), np.array([2.0**53 + 2, -5]))


def dataset():
    """What xarray writes of most kinds."""
    dice = np.random.default_rng(5)
    variables = {
        "t2m": (("time", "lat", "lon"), dice.normal(size=(7, 5, 8)).astype("f4"), {"units": "K", "valid_range": [-9, 9]}),
        "sst": (("time", "lat", "lon"), np.where(dice.random((7, 5, 8)) < 0.2, np.nan, dice.integers(0, 99, (7, 5, 8)))),
        "mask": (("lat", "lon"), dice.integers(0, 2, (5, 8)).astype(bool)),
        "kind": (("lat", "lon"), dice.integers(0, 255, (5, 8)).astype("u1"), {"flag_values": np.array([0, 200], "u1")}),
        "crs": ((), np.int32(0), {"grid_mapping_name": "latitude_longitude"}),
        "station": (("station",), np.array(["Zürich", "a", "Oslo"], object)),
        "code": (("station",), np.array([b"ZRH", b"A", b"OSL"], "S3")),
        "step": (("time",), pd.timedelta_range("1h", periods=7, freq="90min")),
        "square": (("lat", "lat2"), dice.normal(size=(5, 5))),
        "area": (("lat", "lon"), dice.normal(size=(5, 8)), {"coordinates": "depth crs"}),
        "depth": (("lat", "lon"), dice.normal(size=(5, 8)).astype("f4")),
        "lon2": (("lat",), np.arange(5)),
        "lat_bounds": (("lat", "edge"), np.linspace(39.5, 44.5, 10).reshape(5, 2)),
    }
    coords = {
        "time": pd.date_range("2020-01-01", periods=7, freq="6h"),
        "lat": ("lat", np.linspace(40, 44, 5), {"axis": "Y", "bounds": "lat_bounds"}),
        "lon": ("lon", np.linspace(0, 7, 8).astype("f4")),
    }
    attributes = {"title": "Über alles", "n": 5, "big": 2**40, "list": [1, 2, 3], "halves": [0.5, 2], "empty": ""}
    attributes |= {"words": ["a", "b"], "mixed": [1, "a"], "deep": {"a": [1, None]}, "yes": True, "none": None}
    made = xr.Dataset(variables, coords, attributes)
    made["sst"].encoding = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 1.0, "_FillValue": -999}
    made["t2m"].encoding = {"_FillValue": -9999.0}
    return made


@pytest.fixture(scope="module", params=[2, 3], ids=["v2", "v3"])
def stored(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "climate"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset().chunk(time=3, lat=2, lon=5).to_zarr(path, zarr_format=request.param)
    return path


def texts(values):
    return [v.decode() if isinstance(v, bytes) else str(v) for v in np.asarray(values).reshape(-1)]


@pytest.mark.parametrize("format", FORMATS)
def test_xarray_has_the_same_dataset_from_zarr_and_from_netcdf(stored, tmp_path, format):
    file = cat(stored, format, tmp_path / f"climate.{format}")
    validate(file)
    expected = xr.open_zarr(stored, consolidated=False).load()
    for engine in ENGINES[format]:
        with xr.open_dataset(file, engine=engine) as got:
            got.load()
        assert set(got.variables) == set(expected.variables)
        for name, variable in expected.variables.items():
            assert got[name].dims == variable.dims, name
            if variable.dtype.kind in "OTSU":
                assert texts(got[name].values) == texts(variable.values)
                continue
            # Times and integers are in CDF-2 what it has.
            if format == "nc4" or variable.dtype.kind not in "iu":
                assert got[name].dtype == variable.dtype, name
            np.testing.assert_array_equal(got[name].values, variable.values, err_msg=name)
            assert got[name].encoding.get("_FillValue", 0) == pytest.approx(
                variable.encoding.get("_FillValue", 0), nan_ok=True
            ), name
        assert got["t2m"].attrs["units"] == "K"
        assert got["kind"].attrs["flag_values"].astype("u1").tolist() == [0, 200]
        about = got.attrs
        assert about["title"] == "Über alles" and about["n"] == 5 and about["big"] == 2**40 and about["yes"] == 1
        assert list(about["list"]) == [1, 2, 3] and list(about["halves"]) == [0.5, 2.0]
        assert json.loads(about["deep"]) == {"a": [1, None]} and json.loads(about["mixed"]) == [1, "a"]
        assert list(about["words"]) == ["a", "b"] if format == "nc4" else about["words"] == "a b"
        assert "none" not in about and str(np.asarray(about["empty"]).tolist()) in ("", "[]", "b''")


def test_xarray_has_the_same_dataset_from_plain_hdf5(stored, tmp_path):
    expected = xr.open_zarr(stored, consolidated=False).load()
    with xr.open_dataset(cat(stored, "h5", tmp_path / "climate.h5"), engine="h5netcdf") as got:
        got.load()
    assert set(got.variables) == set(expected.variables)
    for name, variable in expected.variables.items():
        assert got[name].dims == variable.dims, name
        if variable.dtype.kind in "OTSU":
            assert texts(got[name].values) == texts(variable.values)
        else:
            np.testing.assert_array_equal(got[name].values, variable.values, err_msg=name)
    # netCDF 4.9 writes past its memory where HDF5 has strings of one length, of whatever program.
    numbers = tmp_path / "numbers"
    dataset().drop_vars(["station", "code"]).to_zarr(numbers, zarr_format=3)
    file = cat(numbers, "h5", tmp_path / "numbers.h5")
    with xr.open_dataset(file, engine="netcdf4") as got:
        got.load()
    xr.testing.assert_equal(got, xr.open_zarr(numbers, consolidated=False).load())
    header = subprocess.check_output(["ncdump", "-h", file], text=True)
    assert "float t2m(time, lat, lon)" in header and "phony" not in header
    dimensions = subprocess.check_output(["h5ls", "-v", f"{file}/t2m"], text=True)
    assert "DIMENSION_LIST" in dimensions


@pytest.mark.parametrize("format", FORMATS)
def test_an_array_brings_its_coordinates(stored, tmp_path, format):
    file = cat(stored / "area", format, tmp_path / f"area.{format}")
    validate(file)
    with xr.open_dataset(file, engine="netcdf4") as data:
        assert set(data.variables) == {"area", "lat", "lon", "depth", "crs", "lat_bounds"}
        expected = xr.open_zarr(stored, consolidated=False)
        np.testing.assert_array_equal(data["area"].values, expected["area"].values)
        np.testing.assert_array_equal(data["depth"].values, expected["depth"].values)


@pytest.mark.parametrize("format", FORMATS)
def test_cdo_nco_and_gdal_read_the_same(stored, tmp_path, format):
    file = cat(stored, format, tmp_path / f"climate.{format}")
    expected = xr.open_zarr(stored, consolidated=False)
    done = subprocess.run(["cdo", "-s", "copy", "-selname,t2m", file, tmp_path / "cdo.nc"], check=True)
    assert done.returncode == 0
    with xr.open_dataset(tmp_path / "cdo.nc") as data:
        np.testing.assert_array_equal(data["t2m"].values, expected["t2m"].values)
        np.testing.assert_array_equal(data["time"].values, expected["time"].values)
    subprocess.run(["ncks", "-h", "-d", "time,2,4", "-v", "sst", file, tmp_path / "nco.nc"], check=True)
    with xr.open_dataset(tmp_path / "nco.nc") as data:
        np.testing.assert_array_equal(data["sst"].values, expected["sst"].values[2:5])
    opened = ["gdal_translate", "-q", "-of", "ENVI", f'NETCDF:"{file}":t2m', tmp_path / "gdal.raw"]
    subprocess.run(opened, check=True)
    rows = np.fromfile(tmp_path / "gdal.raw", "f4").reshape(7, 5, 8)
    # GDAL's rows go from north to south.
    assert any(np.array_equal(rows[:, ::step], expected["t2m"].values) for step in (1, -1))
    copied = tmp_path / "copied.nc"
    subprocess.run(["nccopy", "-k", "nc4" if format == "nc4" else "nc6", file, copied], check=True)
    assert_same(read(copied, "t2m"), expected["t2m"].values)


@pytest.mark.parametrize("format", FORMATS)
def test_dimensions_without_elements(tmp_path, format):
    group = zarr.create_group(tmp_path / "g")
    group.create_array("a", shape=(0, 3), dtype="f4", dimension_names=["t", "x"])
    group.create_array("t", shape=(0,), dtype="f8", dimension_names=["t"])
    group.create_array("b", shape=(4,), dtype="i2", dimension_names=["y"])[...] = [1, 2, 3, 4]
    group.create_array("c", shape=(3, 0), dtype="i2", dimension_names=["x", "t"])
    file = cat(tmp_path / "g", format, tmp_path / f"g.{format}")
    validate(file)
    assert read(file, "a").shape == (0, 3) and read(file, "t").shape == (0,)
    assert read(file, "b").tolist() == [1, 2, 3, 4]
    with netCDF4.Dataset(file) as data:
        if format == "nc":
            assert "c" not in data.variables
            assert data.zarrfs_left_out.startswith("c: in a classic netCDF file only one dimension")
        else:
            assert data["c"].shape == (3, 0)


@pytest.mark.parametrize("format", FORMATS)
def test_dimensions_keep_their_names_or_get_some(tmp_path, format):
    group = zarr.create_group(tmp_path / "g")
    for name, shape, names in [
        ("0", (4, 6), ["y", "x"]),
        ("1", (2, 3), ["y", "x"]),
        ("2", (4, 3), [None, "x"]),
        ("x", (2, 2), ["y", "y"]),
        ("q", (5,), None),
        ("y", (4,), ["y"]),
    ]:
        group.create_array(name, shape=shape, dtype="i4", dimension_names=names)[...] = 3
    file = cat(tmp_path / "g", format, tmp_path / f"g.{format}")
    validate(file)
    with netCDF4.Dataset(file) as data:
        dimensions = {name: variable.dimensions for name, variable in data.variables.items()}
        assert dimensions == {
            "0": ("y", "x"), "1": ("y_2", "x_3"), "2": ("dim_2_0", "x_3"), "x": ("y_2", "y_2"), "q": ("dim_q_0",), "y": ("y",)
        }
        assert {name: len(one) for name, one in data.dimensions.items()} == {
            "y": 4, "x": 6, "y_2": 2, "x_3": 3, "dim_2_0": 4, "dim_q_0": 5
        }
        for variable in data.variables.values():
            assert (variable[...] == 3).all()
    if format == "nc4":
        with xr.open_dataset(file, engine="h5netcdf") as data:
            assert data["x"].dims == ("y_2", "y_2") and data["0"].dims == ("y", "x")


@pytest.mark.parametrize("format", FORMATS)
def test_times_of_numpy_are_times(tmp_path, format):
    group = zarr.create_group(tmp_path / "g")
    for unit in ["D", "h", "m", "s", "ms", "us", "ns"]:
        values = np.array([0, 1, -5, 10000], f"M8[{unit}]")
        values[1] = "NaT"
        group.create_array(f"at_{unit}", shape=4, dtype=values.dtype)[...] = values
        group.create_array(f"for_{unit}", shape=4, dtype=f"m8[{unit}]")[...] = values.astype("i8").astype(f"m8[{unit}]")
    group.create_array("years", shape=1, dtype="M8[Y]")
    file = cat(tmp_path / "g", format, tmp_path / f"g.{format}")
    validate(file)
    with xr.open_dataset(file, decode_timedelta=True) as data:
        for name, stored in group.arrays():
            if name == "years":
                assert name not in data
                continue
            assert data[name].dtype.kind == stored.dtype.kind
            expected = stored[...].astype(data[name].dtype)
            np.testing.assert_array_equal(data[name].values, expected, err_msg=name)
        assert data.attrs["zarrfs_left_out"] == "years: netCDF cannot express times in steps of 1 Y"


@pytest.mark.parametrize("format", FORMATS)
def test_texts_and_halves_that_are_few_are_characters_and_singles(tmp_path, format):
    group = zarr.create_group(tmp_path / "g")
    values = {
        "fixed": np.array([["é", "bc", ""], ["d", "日本", "z"]], "U4"),
        "bytes": np.array([b"ab", b"", b"abc"], "S3"),
        "half": values_of((5, 7), "f2"),
    }
    for name, one in values.items():
        array(tmp_path / "g" / name, one, chunks=(2,) * one.ndim, missing=False, fill_value=0 if name == "half" else "")
    group.create_array("any", shape=(3, 2), chunks=(2, 2), dtype="str")[...] = np.array(
        [["a", "bcd"], ["", "e"], ["日", "x y"]], object
    )
    file = cat(tmp_path / "g", format, tmp_path / f"g.{format}")
    validate(file)
    for engine in ENGINES[format]:
        with xr.open_dataset(file, engine=engine) as data:
            assert texts(data["fixed"].values) == texts(values["fixed"])
            assert texts(data["bytes"].values) == texts(values["bytes"])
            assert texts(data["any"].values) == ["a", "bcd", "", "e", "日", "x y"]
            np.testing.assert_array_equal(data["half"].values, values["half"].astype("f4"))


@pytest.mark.parametrize("format", FORMATS)
def test_what_netcdf_cannot_express_is_refused_or_named(tmp_path, format):
    group = zarr.create_group(tmp_path / "g")
    group.create_array("c", shape=3, dtype="c8")
    assert f"cannot be shown as {format}: netCDF has no type for complex64" in refused(tmp_path / "g" / "c", format)
    assert "c: netCDF has no type for complex64" in refused(tmp_path / "g", format)
    group.create_array("f", shape=3, dtype="f4")
    group.create_array("half", shape=(3000, 2000), chunks=(1000, 1000), dtype="f2")
    file = cat(tmp_path / "g", format, tmp_path / f"g.{format}")
    with netCDF4.Dataset(file) as data:
        assert list(data.variables) == ["f"]
        assert data.zarrfs_left_out == (
            "c: netCDF has no type for complex64; "
            "half: netCDF has no type for float16, and it is too large to convert to another"
        )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("format", FORMATS)
def test_stores_of_other_programs(tmp_path, case, format):
    store = store_of(case)
    checked = 0
    for path, truth in truths(case):
        source = f"{store}#{path}" if path else store
        name = path.rsplit("/", 1)[-1] or "root"
        done = subprocess.run(
            [ZARRFS, "cat", source, "--as", format], capture_output=True, check=False
        )
        if done.returncode:
            assert any(reason in done.stderr for reason in NO_NETCDF), done.stderr
            continue
        file = tmp_path / f"{checked}.{format}"
        file.write_bytes(done.stdout)
        checked += 1
        with netCDF4.Dataset(file) as data:
            data.set_auto_maskandscale(False)
            data.set_auto_chartostring(False)
            name = "root" if "root" in data.variables else name
            compare(data[name], truth, f"{case}/{path}")


def compare(variable, truth, what):
    got = variable[...]
    if truth.dtype.kind in "US":
        assert texts(netCDF4.chartostring(got, "bytes" if truth.dtype.kind == "S" else "utf-8")) == texts(truth), what
        return
    if truth.dtype.kind == "V" or truth.dtype.names:
        return
    if truth.dtype.kind in "mM":
        truth = truth.astype("i8")
    if getattr(variable, "_Unsigned", "") == "true":
        got = got.view("u1")
    assert got.shape == truth.shape, what
    np.testing.assert_array_equal(got, truth, err_msg=what)


def test_subgroups_are_groups(tmp_path):
    root = zarr.create_group(tmp_path / "g", attributes={"a": 1})
    root.create_array("x", shape=3, dtype="f8", dimension_names=["x"])[...] = [1, 2, 3]
    inner = root.create_group("in", attributes={"b": "two"})
    inner.create_array("v", shape=(3, 2), dtype="i4", dimension_names=["x", "y"])[...] = 5
    inner.create_group("deep").create_array("w", shape=(), dtype="u8")[...] = 2**64 - 1
    file = cat(tmp_path / "g", "nc4", tmp_path / "g.nc4")
    validate(file)
    with netCDF4.Dataset(file) as data:
        assert data.a == 1 and data["in"].b == "two"
        assert (data["in/v"][...] == 5).all() and data["in/v"].dimensions == ("x", "y")
        assert int(data["in/deep/w"][...]) == 2**64 - 1
    tree = xr.open_datatree(file, engine="h5netcdf")
    assert (tree["in/v"].values == 5).all()
    # Groups below are files of their own in the classic format.
    with netCDF4.Dataset(cat(tmp_path / "g", "nc", tmp_path / "g.nc")) as data:
        assert list(data.variables) == ["x"] and data.a == 1
        assert data.zarrfs_left_out == "in: nc holds one group; open in.nc, or __root__.nc4, which holds all groups"
    zarr.create_group(tmp_path / "only").create_group("in")
    assert "in: nc holds one group; open in.nc, or __root__.nc4, which holds all groups" in refused(tmp_path / "only", "nc")
    zarr.create_group(tmp_path / "empty", attributes={"a": 1})
    file = cat(tmp_path / "empty", "nc", tmp_path / "empty.nc")
    validate(file)
    with netCDF4.Dataset(file) as data:
        assert data.a == 1


def test_a_long_attribute_is_whole(tmp_path):
    long = "abc " * 40_000
    many = list(range(20_000))
    root = zarr.create_group(tmp_path / "g", attributes={"long": long, "many": many})
    root.create_array("x", shape=3, dtype="f8")
    for format in FORMATS:
        with netCDF4.Dataset(cat(tmp_path / "g", format, tmp_path / f"g.{format}")) as data:
            assert data.long == long
            got = data.many
            assert (json.loads(got) if isinstance(got, str) else got.tolist()) == many


@pytest.mark.parametrize("format", FORMATS)
def test_the_last_variable_may_be_longer_than_four_gib(tmp_path, format):
    root = zarr.create_group(tmp_path / "g")
    names = ["y", "x"]
    root.create_array("big", shape=(70_000, 8_000), chunks=(1000, 1000), dtype="f8", dimension_names=names)
    root["big"][69_999, 7_999] = 42
    root.create_array("small", shape=(70_000,), chunks=(70_000,), dtype="i2", dimension_names=["y"])[...] = 7
    file = tmp_path / f"g.{format}"
    # The header, and as a hole what is not the last chunk.
    process = subprocess.Popen(
        [ZARRFS, "cat", tmp_path / "g", "--as", format], stdout=subprocess.PIPE
    )
    head = process.stdout.read(1 << 20)
    process.stdout.close()
    process.wait()
    len = 70_000 * 8_000 * 8
    with open(file, "wb") as out:
        out.write(head)
        out.truncate(len + (1 << 20))
    assert read_one(file, "big", 0, 0) == 0
    if format == "nc":
        assert kind(file) == "64-bit offset"
        subprocess.run(["ncks", "-h", "-C", "-d", "x,7999", "-d", "y,69999", "-v", "big", file], check=True, stdout=subprocess.DEVNULL)
    assert read(file, "small").sum() == 7 * 70_000


def test_two_variables_of_more_than_four_gib_are_cdf5(tmp_path):
    root = zarr.create_group(tmp_path / "g")
    for name in "ab":
        root.create_array(name, shape=(70_000, 8_000), chunks=(1000, 1000), dtype="f8", dimension_names=["y", "x"])
    with subprocess.Popen([ZARRFS, "cat", tmp_path / "g", "--as", "nc"], stdout=subprocess.PIPE) as process:
        head = process.stdout.read(1 << 20)
        process.stdout.close()
    file = tmp_path / "g.nc"
    with open(file, "wb") as out:
        out.write(head)
        out.truncate(2 * 70_000 * 8_000 * 8 + 3 * 4096)
    assert kind(file) == "cdf5"
    subprocess.run(["ncvalidator", "-q", file], check=True)
    assert read_one(file, "b", -1, -1) == 0


def read_one(file, name, *index):
    with netCDF4.Dataset(file) as data:
        return data[name][index]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("dtype", "fill"),
    [("i2", -999), ("i8", -(2**63)), ("i8", -1), ("u1", 255), ("u2", 65535), ("u4", 0), ("f4", 1e20), ("f8", np.nan), ("f4", np.inf)],
)
def test_what_xarray_masks_is_masked(tmp_path, dtype, fill, zarr_format, format):
    values = np.array([1, 2, fill, 4], dtype)
    made = xr.Dataset({"v": ("x", values, {"missing_value": np.dtype(dtype).type(fill)})})
    made["v"].attrs["_FillValue"] = np.dtype(dtype).type(fill)
    made.to_zarr(tmp_path / "g", zarr_format=zarr_format)
    file = cat(tmp_path / "g", format, tmp_path / f"g.{format}")
    validate(file)
    for engine in ENGINES[format]:
        with xr.open_dataset(file, engine=engine) as data:
            assert np.isnan(data["v"].values).tolist() == [False, False, True, False]
            np.testing.assert_array_equal(data["v"].values[[0, 1, 3]], [1, 2, 4])
    with netCDF4.Dataset(file) as data:
        data.set_always_mask(True)
        assert np.ma.getmaskarray(data["v"][...]).tolist() == [False, False, True, False]


@pytest.mark.parametrize("format", FORMATS)
def test_names_that_netcdf_has_not(tmp_path, format):
    attributes = {"@type": "a", "a/b": 1, "DIMENSION_LIST": "mine", "x" * 300: 2, "x" * 301: 3, "": 4, "é ": 5}
    root = zarr.create_group(tmp_path / "g", attributes=attributes)
    root.create_array("-v", shape=2, dtype="i4", dimension_names=["a/b"], attributes={"NAME": "mine"})[...] = [1, 2]
    root.create_array("_v", shape=2, dtype="i4", dimension_names=["+"])[...] = [3, 4]
    file = cat(tmp_path / "g", format, tmp_path / f"g.{format}")
    validate(file)
    with netCDF4.Dataset(file) as data:
        assert len(data.variables) == 2 and set(data.dimensions) == {"a_b", "_+"}
        assert data.getncattr("_@type") == "a" and data.getncattr("a_b") == 1 and data.getncattr("é") == 5
        assert sorted(variable[0] for variable in data.variables.values()) == [1, 3]
        assert {2, 3, 4} < {data.getncattr(name) for name in data.ncattrs() if name.startswith(("x", "_"))}


@pytest.mark.parametrize("format", FORMATS)
def test_netcdf_changes_elements_in_place(tmp_path, format):
    root = zarr.create_group(tmp_path / "g")
    root.create_array("v", shape=(7, 10), chunks=(3, 4), dtype="i4", dimension_names=["y", "x"])
    root.create_array("y", shape=(7,), chunks=(7,), dtype="i4", dimension_names=["y"])
    file = cat(tmp_path / "g", format, tmp_path / f"g.{format}")
    before = file.read_bytes()
    with netCDF4.Dataset(file, "r+") as data:
        data["v"][6, 9] = 5
        data["y"][2] = 6
    after = file.read_bytes()
    assert len(after) == len(before)
    # HDF5 keeps its books in the superblock; all else is the two elements.
    books = 48 if format == "nc4" else 0
    differ = [at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other and at >= books]
    assert len(differ) == 2
    assert read(file, "v").sum() == 5 and read(file, "y").sum() == 6


@pytest.mark.parametrize("format", ["nc", "nc4"])
def test_characters_keep_their_rank(tmp_path, format):
    """As WRF and ROMS write strings: an array of characters, with the dimension of the length."""
    root = zarr.create_group(tmp_path / "g")
    times = np.array([list("2000-01-01_00:00:00"), list("2000-01-01_06:00:00")], "S1")
    root.create_array("Times", data=times, chunks=(1, 7), dimension_names=["time", "len"], attributes={"_FillValue": "eA=="})
    root.create_array("flag", data=np.array([b"a", b""], "S1"), dimension_names=["time"])
    root.create_array("spherical", data=np.array(b"T", "S1"))
    root.create_array("time", data=np.array([0.0, 1.0]), dimension_names=["time"])
    root.create_array("S3", data=np.array([b"ab", b"abc"], "S3"), dimension_names=["time"])
    with netCDF4.Dataset(cat(tmp_path / "g", format, tmp_path / f"g.{format}")) as data:
        data.set_auto_chartostring(False)
        data.set_auto_mask(False)
        assert data["Times"].dimensions == ("time", "len") and data["Times"][...].tolist() == times.tolist()
        assert data["Times"].getncattr("_FillValue") == "x" or data["Times"].getncattr("_FillValue") == b"x"
        assert data["flag"].dimensions == ("time",) and data["flag"][...].tolist() == [b"a", b""]
        assert data["spherical"].dimensions == () and bytes(data["spherical"][...].tobytes()) == b"T"
        assert data["S3"].dimensions == ("time", "string3")
        assert "string1" not in data.dimensions
    with xr.open_dataset(tmp_path / f"g.{format}", engine="netcdf4") as data:
        assert data["Times"].dims == ("time",) and data["Times"].values.tolist() == [b"2000-01-01_00:00:00", b"2000-01-01_06:00:00"]
