"""One table for all views: each array that another program wrote, in each format, read by a program of that format.

A format has a file of an array exactly if its row says so, and the file has the array's elements, type, shape, names
of dimensions and attributes, unless `zarrfs info` and `.zarrfs/views` list what it lacks. So the table says what each
format can express, and the test fails if a file leaves out more, or lists less."""

import json
import math
import re
import subprocess
import warnings

import h5py
import ml_dtypes
import mrcfile
import netCDF4
import nibabel
import nrrd
import numpy as np
import pytest
import SimpleITK
import spectral.io.envi
import tifffile
import vtk
import zarr
from astropy.io import fits
from vtk.util.numpy_support import vtk_to_numpy

from hierarchies import NARROW, assert_same
from test_fixtures import CASES, store_of, truths
from views import ZARRFS, cat

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
]

INTS = "i1 u1 i2 u2 i4 u4 i8 u8".split()
REALS = [*INTS, "f4", "f8"]

# Numbers that numpy does not have, as HDF5 describes them.
NARROW_IN_HDF5 = {
    "bfloat16": "f4", "float8_e4m3": "f2", "float8_e5m2": "f2", "float8_e3m4": "f2",
    "int2": "i1", "int4": "i1", "uint2": "u1", "uint4": "u1",
}  # fmt: skip


class Array:
    """An array, as its truth and as `zarrfs info` describes it."""

    def __init__(self, source, truth):
        self.source, self.truth = source, truth
        done = subprocess.run([ZARRFS, "info", "--json", source], capture_output=True, text=True, check=True)
        self.info = json.loads(done.stdout)
        self.type, self.shape = self.info["data_type"], tuple(self.info["shape"])
        self.names = self.info.get("dimension_names", [])
        self.attributes = self.info["attributes"]
        self.is_narrow = bool(re.fullmatch(NARROW + "|complex_.*", self.type))
        self.is_decoded = "not_understood" not in self.info
        self.code = "?" if truth.dtype.kind == "b" else f"{truth.dtype.kind}{truth.dtype.itemsize}"
        self.is_number = self.is_decoded and not self.is_narrow and (self.code == "?" or self.code[0] in "iufc")

    def lacks(self, format):
        return self.info.get("without", {}).get(format, "")

    def is_image(self, types, most=99):
        """Whether it has the type and the rank of an image: bytes for Booleans."""
        code = "u1" if self.code == "?" else self.code
        fits = self.shape and 0 not in self.shape and self.is_number and code in types
        return bool(fits) and len(np.trim_zeros(np.array([1, *self.shape]) - 1, "f")) <= most


def numbers(truth):
    return truth.view("u1") if truth.dtype == bool else truth


def is_few(array):
    """Whether values whose type a format lacks fit into its header."""
    return array.truth.nbytes <= 4 << 20


def in_netcdf(array):
    """Whether netCDF has a form of the type."""
    if not array.is_decoded or array.is_narrow or array.type == "variable_length_bytes":
        return False
    kind = array.truth.dtype.kind
    if kind in "mM":
        unit, step = np.datetime_data(array.truth.dtype)
        return (unit in "D h m s ms us ns".split() and step == 1) or (unit == "generic" and kind == "m")
    if kind == "O":
        return array.type == "string"
    return kind in "biuSU" and (kind != "U" or is_few(array)) or array.code in ("f2", "f4", "f8")


def in_hdf5(array):
    if not array.is_decoded or len(array.shape) > 32:
        return False
    if array.is_narrow:
        return NARROW_IN_HDF5.get(array.type.removeprefix("complex_")) is not None
    return True


def in_text(array):
    if len(array.shape) > 1 or not array.is_decoded or array.type == "variable_length_bytes":
        return False
    kind = array.truth.dtype.kind
    if kind in "SU":
        lines = array.truth.reshape(-1).tolist()
        try:
            return not any("\n" in (one.decode() if kind == "S" else one) for one in lines)
        except UnicodeDecodeError:
            return False
    return array.is_number or array.is_narrow or not array.truth.size


# The arrays of which each format has a file.
TABLE = {
    "npy": lambda a: a.is_decoded and not a.is_narrow and a.type not in ("string", "variable_length_bytes") and a.code != "c4",
    "raw": lambda a: a.is_decoded and a.type not in ("string", "variable_length_bytes"),
    "nc": lambda a: in_netcdf(a) and a.shape.count(0) <= 1 and 0 not in a.shape[1:],
    "nc4": in_netcdf,
    "h5": in_hdf5,
    "hdr": lambda a: a.is_image("u1 i2 i4 f4 f8 c8 c16 u2 u4 i8 u8".split(), 3),
    "nrrd": lambda a: a.is_image([*REALS, "c8", "c16"]),
    "nhdr": lambda a: a.is_image([*REALS, "c8", "c16"]),
    "mha": lambda a: a.is_image(REALS),
    "mhd": lambda a: a.is_image(REALS),
    "tif": lambda a: a.is_image([*REALS, "f2", "c8", "c16"]),
    "ome.tif": lambda a: a.is_image("i1 u1 i2 u2 i4 u4 f4 f8 c8 c16".split()),
    "nii": lambda a: a.is_image([*REALS, "c8", "c16"]),
    "mrc": lambda a: a.is_image("i1 i2 u2 f2 f4 c8".split(), 4) or (a.code == "?" and a.is_image(["u1"], 4)),
    "fits": lambda a: a.is_image(REALS),
    "vti": lambda a: a.is_image(REALS),
    "txt": in_text,
}  # fmt: skip


def plain(value):
    """Structures as lists, with strings and bytes as strings."""
    if isinstance(value, (np.ndarray, np.void)):
        value = value.tolist()
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value


def read_h5(file, array):
    with h5py.File(file) as data:
        found = data["root"]
        check_attributes(array, "h5", {name: found.attrs[name] for name in found.attrs}, found.attrs)
        labels = [dimension.label for dimension in found.dims]
        assert labels == [name or "" for name in array.names or [None] * len(array.shape)], labels
        truth = array.truth
        if array.type == "variable_length_bytes" or h5py.check_vlen_dtype(found.dtype) == np.uint8:
            got = [bytes(one) for one in (np.ravel(found[...]) if found.shape else [found[()]])]
            return got, [one if isinstance(one, bytes) else str(one).encode() for one in truth.reshape(-1).tolist()]
        if truth.dtype.kind in "UO":
            return found.asstr()[()].reshape(-1).tolist() if found.shape else [found.asstr()[()]], truth.reshape(-1).tolist()
        if truth.dtype.kind in "mM":
            return found[...], truth.astype("i8")
        if array.is_narrow:
            real = array.type.removeprefix("complex_")
            if real in ("int2", "int4", "uint2", "uint4"):
                bits = int(real[-1])
                low = truth.view("u1") & ((1 << bits) - 1)
                signed = low.astype("i1") - ((low >> (bits - 1)).astype("i1") << bits)
                return found[...], (low if real[0] == "u" else signed).astype(found.dtype)
            return found[...].astype("f4"), truth.view(getattr(ml_dtypes, real)).astype("f4")
        if truth.dtype.names and truth.dtype != found.dtype:
            # Strings of a structure are of variable length.
            return plain(found[()]), plain(truth)
        return found[...], truth


def read_netcdf(file, array, format):
    with netCDF4.Dataset(file) as data:
        data.set_auto_maskandscale(False)
        data.set_auto_chartostring(False)
        (found,) = [one for one in data.variables.values() if "dtype" not in one.ncattrs() or one.name == "root"][:1]
        check_attributes(array, format, {name: found.getncattr(name) for name in found.ncattrs()}, None)
        truth, got = array.truth, found[...]
        rank = len(array.shape)
        for name, dimension in zip(array.names, found.dimensions):
            assert not name or dimension == name or f"dimension {name} (as {dimension})" in array.lacks(format)
        lacks = array.lacks(format)
        if truth.dtype.kind in "SUO":
            texts = truth.astype("S") if truth.dtype.kind == "S" else truth
            width = 0 if array.type == "null_terminated_bytes" and truth.dtype.itemsize == 1 else 1
            assert len(found.dimensions) == rank + width and (not width or "along one more dimension" in lacks)
            if not width:
                return np.asarray(got, "S1").reshape(-1).tolist(), texts.reshape(-1).tolist()
            got = np.ascontiguousarray(np.ma.getdata(got)).reshape(-1, got.shape[-1]) if got.size else np.empty((0, 1), "S1")
            got = [row.tobytes().rstrip(b"\0") for row in got]
            return got, [one if isinstance(one, bytes) else one.encode() for one in texts.reshape(-1).tolist()]
        assert len(found.dimensions) == rank
        if truth.dtype.kind in "mM":
            assert "units" in found.ncattrs() or np.datetime_data(truth.dtype)[0] == "generic"
            assert "as int64" in lacks
            return np.asarray(got).astype("i8"), truth.astype("i8")
        if truth.dtype == bool:
            assert found.dtype == "i1" and found.getncattr("dtype") == "bool" and "type bool" in lacks
            return np.asarray(got).astype(bool), truth
        if truth.dtype.newbyteorder("=") != found.dtype.newbyteorder("="):
            assert f"type {array.type} (as " in lacks, (lacks, found.dtype)
            if truth.dtype == "u1":
                return np.asarray(got).view("u1"), truth
            return np.asarray(got).astype(truth.dtype), truth
        return np.asarray(got), truth


def check_attributes(array, format, found, by_id):
    """Each attribute is there with its value, or listed."""
    lacks = array.lacks(format)
    for name, value in array.attributes.items():
        if f"attribute {name} (" in lacks:
            continue
        if name in ("_FillValue", "missing_value"):
            assert name in found
            continue
        assert name in found, (name, lacks)
        if by_id is not None and value is None:
            assert isinstance(found[name], h5py.Empty)
            continue
        got = found[name]
        if isinstance(value, list) and value and isinstance(value[0], str):
            assert list(got) == value
        elif isinstance(value, (list, int, float)) and value != []:
            assert np.array_equal(np.asarray(got, "O"), np.asarray(value, "O"), equal_nan=False) or np.allclose(got, value)


def read_nrrd(file):
    data, header = nrrd.read(str(file))
    data = data.transpose()
    if header.get("kinds", [""])[0] == "complex":
        return np.ascontiguousarray(data).view({"f4": "c8", "f8": "c16"}[data.dtype.str[1:]])[..., 0]
    return data


def read_vti(file, array):
    reader = vtk.vtkXMLImageDataReader()
    reader.SetFileName(str(file))
    reader.Update()
    points = reader.GetOutput().GetPointData()
    parts = [vtk_to_numpy(points.GetArray(number)).reshape(-1) for number in range(points.GetNumberOfArrays())]
    return np.concatenate(parts).reshape(array.shape)


def read_nii(file, array):
    image = nibabel.load(file)
    found = np.asanyarray(image.dataobj)
    return found.transpose().reshape(array.shape)


def read_hdr(file, array):
    raw = cat(array.source, "raw", file.with_suffix(".raw"))
    return spectral.io.envi.open(str(file), str(raw)).open_memmap(interleave="bsq").reshape(array.shape)


def read_beside(read):
    """Reads a header whose elements are in `X.raw`."""

    def of(file, array):
        name = re.search(rb"(?:data file: |ElementDataFile = )(.*)\n", file.read_bytes())[1].decode()
        cat(array.source, "raw", file.parent / name)
        return read(file)

    return of


def read_itk(file):
    return SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(file)))


def read_txt(file, array):
    lines = file.read_text().split("\n")[:-1]
    kind = array.truth.dtype.kind
    if kind in "SU":
        return lines, [x.decode() if isinstance(x, bytes) else x for x in array.truth.reshape(-1).tolist()]
    if array.is_narrow:
        return len(lines), array.truth.size
    if kind == "c":
        return np.array([complex(*map(float, line.split())) for line in lines], array.truth.dtype).reshape(array.shape)
    if kind == "f":
        return np.array([float(line) for line in lines], array.truth.dtype).reshape(array.shape)
    return np.array([int(line) for line in lines]).astype(array.truth.dtype).reshape(array.shape), array.truth


READERS = {
    "npy": lambda file, a: np.load(file),
    "raw": lambda file, a: (np.frombuffer(file.read_bytes(), a.truth.dtype.newbyteorder("<")).reshape(a.shape)),
    "h5": read_h5,
    "nc": lambda file, a: read_netcdf(file, a, "nc"),
    "nc4": lambda file, a: read_netcdf(file, a, "nc4"),
    "hdr": read_hdr,
    "nrrd": lambda file, a: read_nrrd(file),
    "nhdr": read_beside(read_nrrd),
    "mha": lambda file, a: read_itk(file) if 1 < len(a.shape) < 5 else None,
    "mhd": read_beside(lambda file: None),
    "tif": lambda file, a: tifffile.imread(file).reshape(a.shape),
    "ome.tif": lambda file, a: tifffile.imread(file).reshape(a.shape) if len(a.shape) < 4 else None,
    "nii": read_nii,
    "mrc": lambda file, a: mrcfile.open(file, permissive=True).data.reshape(a.shape),
    "fits": lambda file, a: fits.getdata(file).astype(numbers(a.truth).dtype).reshape(a.shape),
    "vti": read_vti,
    "txt": read_txt,
}


def beyond(array, format):
    """Limits of formats that depend on the shape."""
    shape = array.shape
    if format == "ome.tif":
        return sum(length > 1 for length in shape[:-2]) > 3
    if format == "nii":
        return len(shape) > 7
    if format in ("nrrd", "nhdr"):
        return len(shape) + (array.code[0] == "c") > 16
    if format in ("mha", "mhd"):
        return len(shape) > 10
    if format == "vti":
        return math.prod(shape[:-3]) > 4096
    return False


def same(got, expected, what):
    if isinstance(got, (list, int)):
        assert got == expected, what
        return
    got = np.asarray(got)
    if got.dtype.kind in "fc" and expected.dtype.kind in "fc":
        np.testing.assert_array_equal(got.astype(got.dtype.newbyteorder("=")), expected, what)
        assert got.shape == expected.shape and got.dtype.itemsize == expected.dtype.itemsize, what
    else:
        assert_same(got, expected, what)


def compare(array, tmp_path):
    """Compares all files of an array. Returns the number of comparisons."""
    views, count = array.info["views"], 0
    for format, has in TABLE.items():
        what = f"{array.source} as {format}"
        expected = bool(has(array)) and not beyond(array, format)
        assert (format in views) == expected, (what, array.type, array.shape, array.info.get("no_views", {}).get(format))
        if not expected:
            assert array.info["no_views"][format], what
            continue
        file = cat(array.source, format, tmp_path / f"x.{format}")
        assert file.stat().st_size == views[format], what
        got = READERS[format](file, array)
        if got is None:
            continue
        if not isinstance(got, tuple):
            truth = array.truth if format in ("npy", "raw") else numbers(array.truth)
            got = (got, truth if format != "mrc" or array.code != "?" else truth.view("i1"))
        same(*got, what)
        count += 1
        if format in ("npy", "raw", "tif", "nii", "mha", "mrc", "vti", "hdr", "txt"):
            lacks = array.lacks(format)
            assert ("attributes (" in lacks) == bool(array.attributes), what
            assert ("dimensions (" in lacks) == any(array.names), what
    return count


@pytest.mark.parametrize("case", CASES)
def test_each_format_says_all_that_it_can_of_arrays_of_other_programs(tmp_path, case):
    count = 0
    for path, truth in truths(case):
        source = f"{store_of(case)}#{path}" if path else str(store_of(case))
        count += compare(Array(source, truth), tmp_path)
    print(f"{case}: {count} files")


KINDS = {
    "bool": np.array([True, False, True]),
    **{name: np.arange(3).astype(name) for name in INTS},
    **{name: np.array([0.5, np.nan, -np.inf], name) for name in ("f2", "f4", "f8")},
    **{name: np.array([0.5 + 2j, np.nan, -1], name) for name in ("c8", "c16")},
    "S1": np.array([b"a", b"", b"c"]),
    "S3": np.array([b"a", b"\xffb", b"a\0c"], "S3"),
    "U1": np.array(["a", "", "é"]),
    "U4": np.array(["日本", "🐈🐈🐈🐈", ""]),
    "V5": np.array([b"12345", b"1\0 3\0", b"abc"], "V5"),
    "M8[s]": np.array([1, "NaT", 3], "M8[s]"),
    "M8[D]": np.array([1, "NaT", 3], "M8[D]"),
    "m8[ms]": np.array([1, "NaT", 3], "m8[ms]"),
    "M8[25us]": np.array([1, "NaT", 3], "M8[25us]"),
    "str": np.array(["日本", "", "abc"], object),
    "bytes": np.array([b"\x89PNG\0\1", b"", b"abc"], object),
    "flat": np.array([(1, 2.5, True), (2, np.inf, False), (3, 0, True)], [("a", "i2"), ("b", "f8"), ("c", "?")]),
    "texts": np.array([(1, "é", b"x"), (2, "", b"ab"), (3, "🐈b", b"")], [("a", "i2"), ("t", "U2"), ("s", "S2")]),
    "nested": np.array(
        [((1, 2j), "x"), ((3, 4j), "y"), ((5, 6j), "é")], [("n", [("i", "i4"), ("z", "c8")]), ("t", "U1")]
    ),
}
SHAPES = {"line": (3,), "scalar": (), "none": (0,), "plane": (2, 3), "box": (2, 2, 3)}
ATTRIBUTES = {
    "text": "Zürich", "empty": "", "int": 5, "negative": -1, "big": 2**40, "large": 2**53 + 1, "huge": 2**63, "beyond": 2**70,
    "half": 0.5, "small": 1e-300, "wide": 1e23, "mixed_numbers": [1, 2.5], "inexact": [2**53 + 1, 0.5], "yes": True,
    "flags": [True, False], "list": [1, 2, 3], "none_of": [], "words": ["a", "", "日本"], "mixed": [1, "a"],
    "deep": {"a": [1, None]}, "lists": [[1, 2], [3]], "null": None, "nul": "a\0b", "nuls": ["a\0b"], "nan": "NaN",
    "a/b": 1, "日本": "x", "": "noname", "CLASS": "mine", "long": "abc " * 40_000, "many": list(range(20_000)),
    "many_words": ["w"] * 5_000,
}  # fmt: skip


def stored(path, values, zarr_format=3, **options):
    dtype = values.dtype
    if dtype == object:
        dtype = "str" if isinstance(values.reshape(-1).tolist()[0], str) else "variable_length_bytes"
    array = zarr.create_array(
        path, shape=values.shape, dtype=dtype, chunks=tuple(max(1, -(-n // 2)) for n in values.shape), fill_value=None, **options
    )
    if values.size:
        array[...] = values
    return values


@pytest.mark.parametrize("name", KINDS)
def test_each_format_says_all_that_it_can_of_every_type_and_shape(tmp_path, name):
    values = KINDS[name]
    for shape_name, shape in SHAPES.items():
        of_shape = np.resize(values, shape) if shape and 0 not in shape else values[0:1].reshape(()) if not shape else values[:0]
        if of_shape.dtype == object and not of_shape.size:
            continue
        place = tmp_path / shape_name
        names = [f"d{axis}" for axis in range(len(shape))]
        stored(place, of_shape, dimension_names=names, attributes={"units": "K", "deep": {"a": 1}})
        compare(Array(str(place), of_shape), tmp_path)


@pytest.mark.parametrize("format", ["h5", "nc4", "nc"])
def test_each_attribute_is_said_or_listed(tmp_path, format):
    root = zarr.create_group(tmp_path / "g", attributes=ATTRIBUTES)
    root.create_array("v", data=np.arange(3, dtype="f4"), attributes=ATTRIBUTES, dimension_names=["x"])
    info = json.loads(subprocess.check_output([ZARRFS, "info", "--json", tmp_path / "g"]))
    lacks = info["without"][format].split("; ")
    file = cat(tmp_path / "g", format, tmp_path / f"g.{format}")
    if format == "h5":
        data = h5py.File(file)
        nodes = {"": data.attrs, "v: ": data["v"].attrs}
    else:
        data = netCDF4.Dataset(file)
        nodes = {"": vars_of(data), "v: ": vars_of(data["v"])}
    exact = set()
    for place, found in nodes.items():
        for name, value in ATTRIBUTES.items():
            if any(line.startswith(f"{place}attribute {name} (") for line in lacks):
                continue
            exact.add(name)
            got = found[name]
            if value is None:
                assert isinstance(got, h5py.Empty)
            elif isinstance(value, (bool, str)) or isinstance(value, list) and not value:
                expected = np.nan if value == "NaN" else value
                if value == []:
                    assert np.shape(got) == (0,)
                else:
                    assert got == expected or (np.isnan(expected) and np.isnan(got)), name
            elif isinstance(value, list):
                assert np.asarray(got).tolist() == value, name
            else:
                assert got == value and np.ndim(got) == 0, name
        # A number is never another number.
        for name in ("inexact", "beyond", "large"):
            if name not in exact:
                assert json.loads(str(found[name])) == ATTRIBUTES[name], name
    never = {"mixed", "deep", "lists", "nul", "nuls", "beyond", "inexact", ""}
    assert not exact & never
    said = {"text", "empty", "int", "negative", "half", "small", "wide", "mixed_numbers", "list", "日本", "long", "nan"}
    said |= {"h5": {"null", "none_of", "yes", "flags", "words", "big", "huge", "large", "a/b"}, "nc4": {"words", "big", "huge", "large", "CLASS_"}}.get(format, set())
    assert said - {"CLASS_"} <= exact, (said - exact, lacks)


def vars_of(node):
    return {name: node.getncattr(name) for name in node.ncattrs()}


def test_the_mount_lists_what_info_lists(tmp_path, mount):
    root = zarr.create_group(tmp_path / "g", attributes={"deep": {"a": 1}})
    root.create_array("v", data=np.array([True]), attributes={"none": None, "a/b": [1, "x"]}, dimension_names=["a/b"])
    root.create_group("sub", attributes={"deep": {"a": 1}})
    with mount(tmp_path / "g") as m:
        for node, path in [("v", "v"), ("__group__", ""), ("sub/__group__", "sub")]:
            info = json.loads(subprocess.check_output([ZARRFS, "info", "--json", tmp_path / "g" / path]))
            text = (m / ".zarrfs/views" / node).read_text()
            format, lines = None, {}
            for line in text.splitlines():
                if not line.startswith(" "):
                    format = line.split()[0]
                elif "without: " in line:
                    lines.setdefault(format, []).append(line.split("without: ", 1)[1])
            assert {format: "; ".join(all) for format, all in lines.items()} == info["without"], text
        text = subprocess.check_output([ZARRFS, "info", tmp_path / "g" / "v"], text=True)
        assert "without" in text and "attribute none (null, which netCDF does not have)" in text
