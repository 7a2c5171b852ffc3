"""What xarray and OME-Zarr keep beside the arrays: the same datasets from a store, from a mount `--as zarr` and from one
`--as zarr2`, and the store's own form after a change through either.
"""

import itertools
import json
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from mounts import changed, files
from sources import empty
from test_convert import run

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FORMATS = {"v2": 2, "v3": 3}
PRESENTATIONS = {"zarr": 3, "zarr2": 2}


def plain():
    """Nothing is masked but NaN."""
    time = pd.date_range("2020-01-01", periods=4)
    rows = np.arange(12, dtype="f4").reshape(4, 3)
    rows[0, 1] = np.nan
    variables = {
        "t2m": (("time", "x"), rows, {"units": "K"}),
        "wide": (("time",), np.array([0, np.nan, np.inf, -0.0])),
        "count": (("time",), np.arange(4, dtype="i8")),
        "zero": (("x",), np.zeros(3, "u1")),
        "flag": (("x",), np.array([True, False, True])),
        "bare": ((), np.int32(0), {"grid": "x"}),
    }
    coordinates = {"time": time, "x": [10.5, 11.5, 12.5], "height": 2.0, "delta": ("x", pd.to_timedelta([0, 1, 2], "h"))}
    return xr.Dataset(variables, coordinates, {"title": "Ω", "list": [1, 2.5]}), {}


def masked():
    """With the values that are masked, of every kind."""
    rows = np.arange(12.0).reshape(4, 3)
    rows[1, 1] = rows[3, 2] = np.nan
    variables = {name: (("y", "x"), rows.astype("f4")) for name in ("f4", "f8", "nan", "i2", "u1", "scaled", "missing")}
    encoding = {
        "f4": {"_FillValue": np.float32(-9999.5)},
        "f8": {"_FillValue": 1e20, "dtype": "f8"},
        "nan": {"_FillValue": np.nan},
        "i2": {"_FillValue": -1, "dtype": "i2"},
        "u1": {"_FillValue": 255, "dtype": "u1"},
        "scaled": {"_FillValue": -32768, "dtype": "i2", "scale_factor": 0.25, "add_offset": 1.0},
        "missing": {"missing_value": -7.0, "_FillValue": -7.0, "dtype": "f8"},
    }
    variables["never"] = (("y", "x"), np.arange(12).reshape(4, 3))
    variables["zero"] = (("y",), np.array([0, 1, 2, np.nan], "f4"))
    encoding["zero"] = {"_FillValue": 0, "dtype": "i4"}
    encoding["never"] = {"_FillValue": None}
    variables["zero"][1][0] = 3
    return xr.Dataset(variables), encoding


def texts():
    """Strings, of any length and of a fixed one."""
    variables = {
        "name": (("x",), np.array(["a", "", "Ωmega"], object)),
        "fixed": (("x",), np.array(["ab", "c", ""], "U2")),
        "bytes": (("x",), np.array([b"ab", b"c", b""], "S2")),
    }
    return xr.Dataset(variables, {"station": ("x", np.array(["p", "q", "r"], object))}), {}


DATASETS = {function.__name__: function for function in (plain, masked, texts)}


def read(path, number, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_zarr(path, zarr_format=number, **{"consolidated": False, **options}) as ds:
            return ds.load()


def write(path, ds, encoding, number, uncompressed=False, **options):
    encoding = {name: dict(encoding.get(name, {})) for name in ds.variables}
    if uncompressed:
        for one in encoding.values():
            one["compressors"] = None
    # Two chunks along the first dimension.
    for name, variable in ds.variables.items():
        if variable.ndim:
            encoding[name]["chunks"] = (2, *variable.shape[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds.to_zarr(path, encoding=encoding, zarr_format=number, **{"consolidated": False, **options})


def assert_identical(got, expected):
    assert set(got.dims) == set(expected.dims)
    xr.testing.assert_identical(got, expected[list(got.variables)])
    for name in expected.variables:
        assert got[name].dtype == expected[name].dtype, name
        # One number may be of numpy's type and the other of Python's.
        kept = {key: str(value) for key, value in expected[name].encoding.items() if key in CODED}
        found = {key: str(value) for key, value in got[name].encoding.items() if key in CODED}
        assert found == kept, name


def parameters():
    for dialect, presentation, kind in itertools.product(FORMATS, PRESENTATIONS, DATASETS):
        yield pytest.param(kind, dialect, presentation, id=f"{kind}-{presentation}-on-{dialect}")


CODED = ["_FillValue", "missing_value", "scale_factor", "add_offset", "units", "calendar", "dtype"]
RAW = [{}, {"mask_and_scale": False}, {"decode_cf": False}]


@pytest.mark.parametrize("consolidated", [False, True], ids=["", "consolidated"])
@pytest.mark.parametrize("kind, dialect, presentation", parameters())
def test_xarray_reads_one_dataset_from_the_store_and_from_mounts(mount, tmp_path, kind, dialect, presentation, consolidated):
    store = tmp_path / "source"
    write(store, *DATASETS[kind](), FORMATS[dialect], consolidated=consolidated)
    with mount(store, "-o", "ro", "--as", presentation, copy=False) as m:
        for options in RAW:
            options = {"consolidated": consolidated, **options}
            shown = read(m.path, PRESENTATIONS[presentation], **options)
            assert_identical(shown, read(store, FORMATS[dialect], **options))


@pytest.mark.parametrize("kind, dialect, presentation", parameters())
def test_what_xarray_writes_on_a_mount_it_reads_from_the_store(mount, tmp_path, kind, dialect, presentation):
    ds, encoding = DATASETS[kind]()
    number = PRESENTATIONS[presentation]
    # What it writes into a plain directory, by which the store is measured.
    write(tmp_path / "plain", ds, encoding, FORMATS[dialect])
    with empty(mount, tmp_path / "store", dialect, "--as", presentation) as m:
        write(m / "ds", ds, encoding, number, uncompressed=True)
        assert_identical(read(m / "ds", number), read(tmp_path / "plain", FORMATS[dialect]))
    for options in RAW:
        stored = read(m.store / "ds", FORMATS[dialect], **options)
        assert_identical(stored, read(tmp_path / "plain", FORMATS[dialect], **options))


@pytest.mark.parametrize("presentation", PRESENTATIONS)
@pytest.mark.parametrize("dialect", FORMATS)
def test_xarray_appends_and_changes_attributes_through_a_mount(mount, tmp_path, dialect, presentation):
    ds, encoding = plain()
    ds = ds.drop_vars(["bare", "zero", "flag", "x", "delta"])
    number = PRESENTATIONS[presentation]
    later = ds.assign_coords(time=ds.time + np.timedelta64(4, "D")) + 0
    later["t2m"].attrs = ds["t2m"].attrs
    for store, form in ((tmp_path / "store", FORMATS[dialect]), (tmp_path / "plain", FORMATS[dialect])):
        write(store, ds, {"time": {"units": "hours since 2020-01-01"}}, form)

    def change(path, form):
        later.to_zarr(path, append_dim="time", zarr_format=form, consolidated=False)
        xr.Dataset({"t2m": (("time", "x"), np.full((2, 3), 300, "f4"))}).to_zarr(
            path, region={"time": slice(2, 4)}, zarr_format=form, consolidated=False
        )
        group = zarr.open_group(path, mode="r+", zarr_format=form)
        group["t2m"].attrs["long_name"] = "Temperatur"
        group.attrs["history"] = ["appended"]

    change(tmp_path / "plain", FORMATS[dialect])
    with mount(tmp_path / "store", "--as", presentation, copy=False) as m:
        change(m.path, number)
        assert_identical(read(m.path, number), read(tmp_path / "plain", FORMATS[dialect]))
    for options in RAW:
        stored, plainly = (read(tmp_path / name, FORMATS[dialect], **options) for name in ("store", "plain"))
        assert_identical(stored, plainly)


@pytest.mark.parametrize("dialect", FORMATS)
@pytest.mark.parametrize("fill", ["NaN", 0.0, None, -7.5])
@pytest.mark.parametrize("names", [[], ["x"]], ids=["scalar", "x"])
def test_documents_of_zarr_2_may_be_written_again_as_they_are(mount, tmp_path, dialect, fill, names):
    """As zarr-python 3 does it: both documents, and both again with the attributes."""
    zarray = {
        "zarr_format": 2, "shape": [2] * len(names), "chunks": [2] * len(names), "dtype": "<f8", "compressor": None,
        "filters": None, "fill_value": fill, "order": "C", "dimension_separator": ".",
    }  # fmt: skip
    with empty(mount, tmp_path / "store", dialect, "--as", "zarr2") as m:
        (m / "x").mkdir()
        for attributes in ({}, {"_ARRAY_DIMENSIONS": names}):
            for order in (1, -1):
                for name, document in [(".zarray", zarray), (".zattrs", attributes)][::order]:
                    (m / "x" / name).write_text(json.dumps(document))
        (m / "x/0").write_bytes(np.full(2 if names else 1, 3.5).tobytes())
        for name, document in [(".zarray", zarray), (".zattrs", attributes)]:
            (m / "x" / name).write_text(json.dumps(document))
        assert json.loads((m / "x/.zarray").read_text()) == zarray
        assert json.loads((m / "x/.zattrs").read_text()) == attributes
    if dialect == "v2":
        assert json.loads((m.store / "x/.zarray").read_text())["fill_value"] == fill
        assert json.loads((m.store / "x/.zattrs").read_text()) == attributes


# ---- OME-Zarr

MULTISCALES = {
    "name": "image",
    "axes": [{"name": "y", "type": "space", "unit": "micrometer"}, {"name": "x", "type": "space"}],
    "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [0.5, 0.5]}]}],
}
OMERO = {"channels": [{"color": "FF0000", "window": {"start": 0, "end": 255}}]}
OME_0_4 = {"multiscales": [{"version": "0.4", **MULTISCALES}], "omero": OMERO, "other": [1]}
OME_0_5 = {"ome": {"version": "0.5", "multiscales": [MULTISCALES], "omero": OMERO}, "other": [1]}
STORED = {"v2": OME_0_4, "v3": OME_0_5}
SHOWN = {"zarr": OME_0_5, "zarr2": OME_0_4}


def image(store, dialect):
    group = zarr.create_group(store, zarr_format=FORMATS[dialect], attributes=STORED[dialect])
    group.create_array("0", shape=(8, 8), chunks=(4, 4), dtype="u1")[...] = 7
    return store


def attributes(path, number):
    return dict(zarr.open_group(path, mode="r", zarr_format=number).attrs)


@pytest.mark.parametrize("presentation", PRESENTATIONS)
@pytest.mark.parametrize("dialect", FORMATS)
def test_ome_zarr_is_shown_as_the_version_of_the_format(mount, tmp_path, dialect, presentation):
    store = image(tmp_path / "store", dialect)
    with mount(store, "--as", presentation, copy=False) as m:
        assert attributes(m.path, PRESENTATIONS[presentation]) == SHOWN[presentation]
    assert attributes(store, FORMATS[dialect]) == STORED[dialect]


def edited(form):
    """The attributes with another name of the image, and one attribute more."""
    form = json.loads(json.dumps(form))
    form.get("ome", form)["multiscales"][0]["name"] = "renamed"
    return form | {"more": {"a": None}}


@pytest.mark.parametrize("presentation", PRESENTATIONS)
@pytest.mark.parametrize("dialect", FORMATS)
def test_an_edit_of_ome_zarr_keeps_the_form_of_the_store(mount, tmp_path, dialect, presentation):
    store = image(tmp_path / "store", dialect)
    before = files(store)
    with mount(store, "--as", presentation, copy=False) as m:
        group = zarr.open_group(m.path, mode="r+", zarr_format=PRESENTATIONS[presentation], use_consolidated=False)
        group.attrs.put(edited(SHOWN[presentation]))
        assert attributes(m.path, PRESENTATIONS[presentation]) == edited(SHOWN[presentation])
    assert attributes(store, FORMATS[dialect]) == edited(STORED[dialect])
    assert changed(before, files(store)) == {".zattrs" if dialect == "v2" else "zarr.json"}


@pytest.mark.parametrize("presentation", PRESENTATIONS)
@pytest.mark.parametrize("dialect", FORMATS)
def test_ome_zarr_that_is_written_is_stored_as_the_version_of_the_format(mount, tmp_path, dialect, presentation):
    with empty(mount, tmp_path / "store", dialect, "--as", presentation) as m:
        zarr.create_group(m / "image", zarr_format=PRESENTATIONS[presentation], attributes=SHOWN[presentation])
        assert attributes(m / "image", PRESENTATIONS[presentation]) == SHOWN[presentation]
    assert attributes(m.store / "image", FORMATS[dialect]) == STORED[dialect]


@pytest.mark.parametrize(("dtype", "fill"), [("f4", 1e20), ("f4", -9999.9), ("f4", 9.969209968386869e36), ("f2", 0.1), ("c8", 1)])
@pytest.mark.parametrize("number", [2, 3])
def test_masked_values_of_any_float_stay_masked_in_a_copy_of_the_other_format(tmp_path, dtype, fill, number):
    fill = np.dtype(dtype).type(fill)
    data = xr.Dataset({"v": ("x", np.array([0, np.nan, 3, 4], dtype))})
    data.to_zarr(tmp_path / "source", zarr_format=number, encoding={"v": {"_FillValue": fill}}, consolidated=False)
    run("convert", tmp_path / "source", tmp_path / "copy", "--format", {2: "v3", 3: "v2"}[number])
    one, other = (xr.open_zarr(tmp_path / name, consolidated=False)["v"].values for name in ("source", "copy"))
    assert np.isnan(one[1]) and np.array_equal(one, other, equal_nan=True)
