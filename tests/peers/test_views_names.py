"""Names that a format does not have, reserves or changes: every array and attribute is there, under a name of its own."""

import json
import shutil
import subprocess
import unicodedata

import h5py
import netCDF4
import nrrd
import numpy as np
import pytest
import safetensors.numpy
import SimpleITK
import vtk
import xarray as xr
import zarr
from vtk.util.numpy_support import vtk_to_numpy

from views import ZARRFS, cat, refused

ODD = ["", "\0", "a\0b", "a", "a_", "a/b", ".", "..", " ", "x ", "-x", "é", unicodedata.normalize("NFD", "é"), "\n", "\x7f", "n" * 300]
RESERVED = [
    *["CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS", "_Netcdf4Dimid", "_Netcdf4Coordinates"],
    *["_NCProperties", "_nc3_strict", "_Format", "_IsNetcdf4", "_SuperblockVersion", "zarrfs_left_out"],
]
ALL = ODD + RESERVED + [f"{name}_" for name in RESERVED]


def validate_hdf5(file):
    """By the tools of the HDF Group; h5diff has no room for long names."""
    for command in (["h5stat"], ["h5ls", "-rv"], ["h5dump"]):
        done = subprocess.run([*command, file], capture_output=True, check=True, text=True, errors="replace")
        assert not done.stderr, done.stderr


def make(path, *, attributes, dtype="int32", names=None, values=None, group=None):
    """An array `v` in a group, with these attributes and names of dimensions."""
    values = np.arange(12, dtype="i4").reshape(3, 4) if values is None else values
    (path / "v/c").mkdir(parents=True)
    (path / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group", "attributes": group or {}}))
    document = {
        "zarr_format": 3, "node_type": "array", "shape": values.shape, "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": values.shape}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": attributes,
    }
    if names:
        document["dimension_names"] = names
    (path / "v/zarr.json").write_text(json.dumps(document))
    chunk = path.joinpath("v/c", *["0"] * values.ndim)
    chunk.parent.mkdir(parents=True, exist_ok=True)
    chunk.write_bytes(values.tobytes())
    return values


def strings(attributes):
    """What is the text of an attribute, of those that are one."""
    decoded = (value.decode() if isinstance(value, bytes) else value for value in attributes.values())
    return sorted(str(value) for value in decoded if isinstance(value, (str, np.str_)))


@pytest.mark.parametrize("node", ["v", ""])
def test_every_attribute_is_in_an_hdf5_file(tmp_path, node):
    attributes = {name: f"value {at}" for at, name in enumerate(ALL)}
    values = make(tmp_path / "g", attributes=attributes, group=attributes)
    file = cat(tmp_path / "g" / node, "h5", tmp_path / "v.h5")
    validate_hdf5(file)
    with h5py.File(file) as data:
        assert np.array_equal(data["v"][...], values)
        for found in [data["v"], *([] if node else [data])]:
            assert strings(found.attrs) == sorted(attributes.values())
    with xr.open_dataset(file, engine="h5netcdf", phony_dims="sort") as data:
        assert np.array_equal(data["v"], values)


@pytest.mark.parametrize("kind", ["nc", "nc4"])
@pytest.mark.parametrize("node", ["v", ""])
def test_every_attribute_is_in_a_netcdf_file(tmp_path, kind, node):
    attributes = {name: f"value {at}" for at, name in enumerate(ALL)}
    values = make(tmp_path / "g", attributes=attributes, group=attributes)
    file = cat(tmp_path / "g" / node, kind, tmp_path / f"v.{kind}")
    dumped = subprocess.run(["ncdump", file], check=True, capture_output=True, text=True).stdout
    with netCDF4.Dataset(file) as data:
        assert np.array_equal(data["v"][...], values)
        for found in [data["v"], data]:
            assert strings({name: found.getncattr(name) for name in found.ncattrs()}) == sorted(attributes.values())
    # Of a file ncdump does not show this one; what reads it does.
    shown = [value for name, value in attributes.items() if kind == "nc4" or name != "_NCProperties"]
    assert all(dumped.count(f'"{value}"') == 2 for value in shown), dumped
    with xr.open_dataset(file, engine="netcdf4") as data:
        assert np.array_equal(data["v"], values) and strings(data["v"].attrs) == sorted(attributes.values())


@pytest.mark.parametrize("kind", ["h5", "nc", "nc4"])
@pytest.mark.parametrize("node", ["v", ""])
def test_an_attribute_has_another_name_only_if_its_own_does_not_fit(tmp_path, kind, node):
    unfit = ["CLASS"] if kind == "h5" else ["CLASS", "_NCProperties", "x ", "a/b", "e\u0301"] if kind == "nc4" else ["x ", "a/b", "e\u0301"]
    # What an unfit name becomes is taken, and comes behind it.
    fits = [f"{name}_" for name in unfit if name[0] in "C_"] + ["x", "a_b", "é", "a__b"]
    attributes = {name: f"of {name!a}" for name in [*unfit, "a\0b", *fits]}
    make(tmp_path / "g", attributes=attributes, group=attributes)
    file = cat(tmp_path / "g" / node, kind, tmp_path / f"v.{kind}")
    with netCDF4.Dataset(file) as data:
        for found in [data["v"], *([] if kind == "h5" and node else [data])]:
            found = {name: found.getncattr(name) for name in found.ncattrs()}
            assert {name: found.get(name) for name in fits} == {name: f"of {name!a}" for name in fits}
            assert sorted(found.values()) == sorted(attributes.values())


@pytest.mark.parametrize("kind", ["h5", "nc", "nc4"])
def test_what_is_not_in_a_file_is_said_beside_an_attribute_of_that_name(tmp_path, kind):
    make(tmp_path / "g", attributes={}, group={"zarrfs_left_out": "mine"})
    make(tmp_path / "h", attributes={}, dtype="float8_e4m3fn", values=np.arange(3, dtype="u1"))
    (tmp_path / "h/v").rename(tmp_path / "g/w")
    file = cat(tmp_path / "g", kind, tmp_path / f"g.{kind}")
    with netCDF4.Dataset(file) as data:
        found = {name: data.getncattr(name) for name in data.ncattrs()}
    assert found["zarrfs_left_out"] == "mine" and "w: " in found["zarrfs_left_out_"], found


@pytest.mark.parametrize("names", [["a\0b", "c"], ["", "x"], [".", ".."], ["a/b", "a_b"], ["v", "n" * 300], ["\0", "\0"]])
@pytest.mark.parametrize("kind", ["h5", "nc", "nc4"])
def test_a_dimension_of_any_name_is_read(tmp_path, kind, names):
    values = make(tmp_path / "g", attributes={}, names=names)
    file = cat(tmp_path / "g", kind, tmp_path / f"g.{kind}")
    subprocess.run(["ncdump", file], check=True, capture_output=True)
    with netCDF4.Dataset(file) as data:
        assert np.array_equal(data["v"][...], values)
    if kind != "nc":
        validate_hdf5(file)
    if kind == "h5":
        with h5py.File(file) as data:
            assert np.array_equal(data["v"][...], values)
            labels = [dimension.label for dimension in data["v"].dims]
            assert labels == [name.replace("\0", "_") for name in names]
    engine = {"h5": "h5netcdf", "nc": "scipy", "nc4": "h5netcdf"}[kind]
    options = {"phony_dims": "sort"} if engine == "h5netcdf" else {}
    with xr.open_dataset(file, engine=engine, **options) as data:
        assert np.array_equal(data["v"], values)


def test_a_text_with_a_nul_is_not_cut(tmp_path):
    make(tmp_path / "g", attributes={"one": "a\0b", "more": ["a\0b", "c"]})
    expected = {"one": json.dumps("a\0b"), "more": '["a\\u0000b","c"]'}
    for kind in ["nc", "nc4", "h5"]:
        with netCDF4.Dataset(cat(tmp_path / "g", kind, tmp_path / f"g.{kind}")) as data:
            assert {name: data["v"].getncattr(name) for name in expected} == expected


@pytest.mark.parametrize("kind, engine", [("nc4", "netcdf4"), ("nc4", "h5netcdf"), ("nc", "netcdf4"), ("nc", "scipy")])
def test_arrays_that_have_names_of_netcdf_s_own_have_their_values(tmp_path, kind, engine):
    group = zarr.create_group(tmp_path / "g")
    arrays = {
        "v": (["x", "v"], (2, 3)), "_nc4_non_coord_v": (["x"], (2,)), "x_nc4_non_coord_v": (["x"], (2,)),
        "_nc4_non_coord_": (["x"], (2,)), "_nc4_non_coord_d": (["_nc4_non_coord_d"], (4,)), "d": (["_nc4_non_coord_d"], (4,)),
    }
    values = {}
    for at, (name, (dimensions, shape)) in enumerate(arrays.items()):
        values[name] = np.full(shape, at, "i4")
        array = group.create_array(name, shape=shape, dtype="i4", dimension_names=dimensions)
        array[...] = values[name]
    file = cat(tmp_path / "g", kind, tmp_path / f"g.{kind}")
    subprocess.run(["ncdump", file], check=True, capture_output=True)
    with xr.open_dataset(file, engine=engine) as data:
        found = {name: data[name].values for name in data.variables}
    assert len(found) == len(values), found.keys()
    assert sorted(int(one.flat[0]) for one in found.values()) == list(range(len(values)))
    assert np.array_equal(found["v"], values["v"])


@pytest.mark.parametrize("kind", ["h5", "nc", "nc4", "safetensors"])
def test_arrays_whose_names_become_the_same_have_their_values(tmp_path, kind):
    names = ["x", "x ", "é", "e\u0301", "X", "-x", "_-x", "n" * 250, "n" * 245, "a\nb", "a_b", "a_b_"]
    for at, name in enumerate(names):
        make(tmp_path / name, attributes={}, values=np.full((2, at + 1), at, "i4"))
        (tmp_path / name / "v").rename(tmp_path / f"v{at}")
    (tmp_path / "g").mkdir()
    (tmp_path / "g/zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    for at, name in enumerate(names):
        (tmp_path / f"v{at}").rename(tmp_path / "g" / name)
    file = cat(tmp_path / "g", kind, tmp_path / f"g.{kind}")
    if kind == "safetensors":
        found = safetensors.numpy.load_file(file)
        assert found.keys() == set(names)
    elif kind == "h5":
        with h5py.File(file) as data:
            found = {name: data[name][...] for name in data}
        assert found.keys() == set(names)
    else:
        with netCDF4.Dataset(file) as data:
            found = {name: data[name][...] for name in data.variables}
    assert sorted(int(one.flat[0]) for one in found.values()) == list(range(len(names)))
    assert all(one.shape == (2, int(one.flat[0]) + 1) and len(set(one.flat)) == 1 for one in found.values())
    kept = [name for name in found if name in names]
    assert all(found[name].flat[0] == names.index(name) for name in kept)
    assert {"x", "é", "X", "_-x", "a_b", "a_b_"} <= set(kept)


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_groups_that_have_names_of_netcdf_s_own_have_their_values(tmp_path, engine):
    root = zarr.create_group(tmp_path / "g")
    names = ["_nc4_non_coord_x", "x_nc4_non_coord_", "sub"]
    root.create_array("x", data=np.array([9], "i4"), dimension_names=["x"])
    for at, name in enumerate(names):
        root.create_group(name).create_array("v", data=np.array([at], "i4"), dimension_names=["x"])
    file = cat(tmp_path / "g", "nc4", tmp_path / "g.nc4")
    with xr.open_datatree(file, engine=engine) as tree:
        assert sorted(int(group["v"][0]) for group in tree.children.values()) == [0, 1, 2]
        assert int(tree["x"][0]) == 9 and int(tree["sub/v"][0]) == 2


@pytest.mark.parametrize("kind", ["h5", "nc", "nc4"])
def test_an_attribute_of_any_length_hides_nothing(tmp_path, kind):
    texts = [f"text {at}" for at in range(5000)]
    attributes = {"k" * 70_000: "key", "k" * 70_001: "other", "long": "v" * 70_000, "list": texts, "one": 1}
    values = make(tmp_path / "g", attributes=attributes, group=attributes, names=["x", "d" * 70_000])
    file = cat(tmp_path / "g", kind, tmp_path / f"g.{kind}")
    if kind != "nc":
        validate_hdf5(file)
    if kind == "h5":
        with h5py.File(file) as data:
            assert np.array_equal(data["v"][...], values)
            nodes = [dict(data["v"].attrs), dict(data.attrs)]
    else:
        with netCDF4.Dataset(file) as data:
            assert np.array_equal(data["v"][...], values)
            nodes = [{name: node.getncattr(name) for name in node.ncattrs()} for node in [data["v"], data]]
    for node in nodes:
        assert node["one"] == 1 and node["long"] == "v" * 70_000
        assert sorted(value for name, value in node.items() if name.startswith("kkk")) == ["key", "other"]
        found = node["list"]
        assert (json.loads(found) if isinstance(found, str) and found[0] == "[" else list(found)) == texts


TIMES = {"units": "days since 2000-01-01", "calendar": "noleap", "scale_factor": 2.0, "add_offset": 5.0, "_Unsigned": "true"}


def test_spans_without_a_unit_keep_the_one_that_the_array_says(tmp_path):
    dtype = {"name": "numpy.timedelta64", "configuration": {"unit": "generic", "scale_factor": 1}}
    make(tmp_path / "g", attributes={"units": "m"}, dtype=dtype, values=np.array([1, 2], "i8"))
    for kind in ["nc", "nc4", "h5"]:
        with netCDF4.Dataset(cat(tmp_path / "g", kind, tmp_path / f"g.{kind}")) as data:
            assert data["v"].units == "m" and list(data["v"][...]) == [1, 2]


@pytest.mark.parametrize("name", [*TIMES, "all"])
def test_times_in_hdf5_are_counts_whatever_the_array_says_of_them(tmp_path, name):
    attributes = TIMES if name == "all" else {name: TIMES[name]}
    dtype = {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}
    seconds = make(tmp_path / "g", attributes=attributes, dtype=dtype, values=np.array([0, 86400], "i8"))
    file = cat(tmp_path / "g", "h5", tmp_path / "g.h5")
    with xr.open_dataset(file, engine="h5netcdf", phony_dims="sort") as data:
        assert np.array_equal(data["v"], seconds) and data["v"].dtype == "i8"
        assert data["v"].attrs == {f"{name}_": value for name, value in attributes.items()}


@pytest.mark.parametrize("kind", ["nc", "nc4"])
@pytest.mark.parametrize("name", [*TIMES, "all"])
def test_times_are_what_they_are_whatever_the_array_says_of_them(tmp_path, kind, name):
    attributes = TIMES if name == "all" else {name: TIMES[name]}
    dtype = {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}
    seconds = np.array([0, 86400, 1_600_000_000, np.iinfo("i8").min], "i8")
    make(tmp_path / "g", attributes=attributes, dtype=dtype, values=seconds)
    file = cat(tmp_path / "g", kind, tmp_path / f"g.{kind}")
    with xr.open_dataset(file, engine="netcdf4") as data:
        assert np.array_equal(data["v"].values.astype("M8[s]"), seconds.view("M8[s]"), equal_nan=True)
        assert {f"{name}_" for name in attributes} <= data["v"].attrs.keys()
    with netCDF4.Dataset(file) as data:
        variable = data["v"]
        time = netCDF4.num2date(variable[1], variable.units, variable.calendar)
        assert (time.year, time.month, time.day) == (1970, 1, 2)


@pytest.mark.parametrize("kind", ["nc", "nc4"])
def test_texts_and_truths_are_what_they_are_whatever_the_array_says_of_them(tmp_path, kind):
    group = zarr.create_group(tmp_path / "g")
    text = group.create_array("t", shape=(2,), dtype="str", attributes={"_Encoding": "latin-1"})
    text[...] = np.array(["é", "b"], dtype=object)
    truth = group.create_array("b", shape=(2,), dtype="bool", attributes={"dtype": "float32"})
    truth[...] = [True, False]
    file = cat(tmp_path / "g", kind, tmp_path / f"g.{kind}")
    with xr.open_dataset(file, engine="netcdf4") as data:
        texts = [item.decode() if isinstance(item, bytes) else item for item in data["t"].values]
        assert texts == ["é", "b"] and data["b"].dtype == bool and list(data["b"].values) == [True, False]


def test_integers_that_are_said_to_be_unsigned_keep_their_length(tmp_path):
    values = np.array([-1, 1], "i8")
    make(tmp_path / "g", attributes={"_Unsigned": "true"}, dtype="int64", values=values)
    file = cat(tmp_path / "g", "nc", tmp_path / "g.nc")
    with netCDF4.Dataset(file) as data:
        assert np.array_equal(data["v"][...], values.view("u8"))


def test_an_array_that_has_the_name_of_what_a_header_says_is_refused(tmp_path):
    zarr.create_array(tmp_path / "g/__metadata__", shape=(2,), dtype="i4", zarr_format=2)
    zarr.create_group(tmp_path / "g", zarr_format=2)
    assert "__metadata__" in refused(tmp_path / "g", "safetensors")


DETACHED = ["x", " x", "\tx", "a_b", "a\nb", "a\tb", "e", "=e", "e\u0301", "é", "y", "a b", "c:d", "a\\e", "LIST", "-z", "#h"]


@pytest.mark.parametrize("kind", ["nhdr", "mhd"])
def test_a_header_names_the_elements_of_no_other_array(tmp_path, kind):
    for at, name in enumerate(DETACHED):
        make(tmp_path / "one", attributes={}, values=np.full((2, 3), at, "i4"))
        if not at:
            zarr.create_group(tmp_path / "g")
        (tmp_path / "one" / "v").rename(tmp_path / "g" / name)
        shutil.rmtree(tmp_path / "one")
        cat(tmp_path / "g" / name, "raw", tmp_path / f"{name}.raw")
    shown = []
    for at, name in enumerate(DETACHED):
        file = tmp_path / f"{name}.{kind}"
        with open(file, "wb") as out:
            done = subprocess.run([ZARRFS, "cat", "--as", kind, "--", tmp_path / "g" / name], stdout=out, stderr=subprocess.PIPE)
        if done.returncode:
            assert b"readers would misread" in done.stderr or b"ASCII" in done.stderr, done
            continue
        readers = [lambda file: SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(file))]
        readers += [lambda file: nrrd.read(file)[0]] if kind == "nhdr" else []
        for read in readers:
            # ITK takes a colon for a drive of Windows.
            if ":" not in name:
                assert set(read(str(file)).flat) == {at}, name
        shown.append(name)
    assert {"x", "a_b", "e", "y", "a b", "-z", "#h"} <= set(shown)


def test_channels_of_the_same_label_are_all_in_vti(tmp_path):
    channels = [{"label": "DAPI", "color": "ff0000"}, {"label": "DAPI", "color": "00ff00"}, {"label": "DAPI_", "color": "0000ff"}]
    axes = [{"name": "c", "type": "channel"}, {"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
    scale = [{"type": "scale", "scale": [1, 1, 1]}]
    image = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": scale}]}]}
    group = zarr.create_group(tmp_path / "i", attributes={"ome": {**image, "omero": {"channels": channels}}})
    values = np.arange(3 * 4 * 5, dtype="u2").reshape(3, 4, 5)
    group.create_array("0", data=values, dimension_names=["c", "y", "x"])
    reader = vtk.vtkXMLImageDataReader()
    reader.SetFileName(str(cat(tmp_path / "i" / "0", "vti", tmp_path / "x.vti")))
    reader.Update()
    data = reader.GetOutput().GetPointData()
    assert data.GetNumberOfArrays() == 3
    found = [vtk_to_numpy(data.GetArray(number)).reshape(4, 5) for number in range(3)]
    assert np.array_equal(found, values)
