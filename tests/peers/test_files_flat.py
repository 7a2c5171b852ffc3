"""Files of netCDF-3, NIfTI, NRRD, MetaImage, MRC, FITS and NumPy as hierarchies: the arrays and attributes that the
library of each format reads."""

import contextlib
import errno
import gzip
import re
import subprocess

import mrcfile
import netCDF4
import nibabel
import nrrd
import numpy as np
import pandas
import pytest
import SimpleITK as sitk
import xarray as xr
import zarr
from astropy.io import fits

from mounts import BIN

RANDOM = np.random.default_rng(50)
AFFINE = np.array([[-2, 0.1, 0, 90], [0, 2.5, 0.2, -126], [0.3, 0, 3, -72], [0, 0, 0, 1]])


def elements(dtype, shape):
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        # The parts of a double that every integer of eight bytes has.
        least, most = (max(np.iinfo(dtype).min, -(2**62)), min(np.iinfo(dtype).max, 2**62))
        return RANDOM.integers(least, most, shape).astype(dtype)
    if dtype.kind == "c":
        return (RANDOM.normal(size=shape) + 1j * RANDOM.normal(size=shape)).astype(dtype)
    return RANDOM.normal(size=shape).astype(dtype)


def tree(path):
    """What `zarrfs tree` says."""
    return subprocess.run([BIN, "tree", path], capture_output=True, text=True).stdout


@pytest.fixture
def files(tmp_path):
    """A directory for files."""
    directory = tmp_path / "files"
    directory.mkdir()
    return directory


@pytest.fixture
def opened(mount, files):
    """`with opened(path) as (m, group):` mounts a file."""
    @contextlib.contextmanager
    def made(path):
        with mount(files, source=str(path), copy=False) as m:
            m.allow("zarrfs only reads files of this format")
            yield m, zarr.open_group(m.path, mode="r", use_consolidated=False)

    return made


def assert_array(array, expected):
    got = array[...]
    assert got.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("form", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
def test_netcdf3_is_what_xarray_and_netcdf4_read(files, opened, form, tried):
    types = ["i1", "i2", "i4", "f4", "f8"] + (["u1", "u2", "u4", "i8", "u8"] if form.endswith("DATA") else [])
    path = files / "records.nc"
    with netCDF4.Dataset(path, "w", format=form) as data:
        data.setncatts({"title": "é", "numbers": np.array([1, 2, 3], "i4"), "one": np.float64(0.1), "empty": ""})
        for name, length in (("time", None), ("y", 3), ("x", 5), ("s", 4)):
            data.createDimension(name, length)
        for name in types:
            data.createVariable(f"record_{name}", name, ("time", "y", "x"))[:] = elements(name, (7, 3, 5))
            masked = data.createVariable(f"masked_{name}", name, ("time",), fill_value=9)
            masked[:] = elements(name, 7)
            masked.units = "K"
            data.createVariable(f"fixed_{name}", name, ("y", "x"))[:] = elements(name, (3, 5))
            data.createVariable(f"scalar_{name}", name, ())[...] = 3
        data.createVariable("words", "S1", ("time", "s"), fill_value=" ")[:] = np.array([list("ab  ")] * 7, "S1")
    with opened(path) as (m, group), netCDF4.Dataset(path) as data, xr.open_dataset(path) as expected:
        data.set_auto_maskandscale(False)
        data.set_auto_chartostring(False)
        for name, variable in data.variables.items():
            assert_array(group[name], variable[...])
            assert (group[name].metadata.dimension_names or ()) == variable.dimensions
            tried("variables of netCDF-3")
        got = xr.open_zarr(m.path, consolidated=False, chunks=None)
        xr.testing.assert_equal(got.load(), expected.load())
        assert got.attrs == {key: getattr(value, "tolist", lambda v=value: v)() for key, value in expected.attrs.items()}
    # A program that writes to a pipe does not know the count of records.
    streamed = bytearray(path.read_bytes())
    width = 8 if form.endswith("DATA") else 4
    count = bytes(streamed[4 : 4 + width])
    streamed[4 : 4 + width] = b"\xff" * width
    (files / "streamed.nc").write_bytes(streamed)
    with opened(files / "streamed.nc") as (_, group):
        assert group["record_f4"].shape[0] == int.from_bytes(count, "big") == 7


@pytest.mark.parametrize("name", ["i1", "i2", "f4"])
def test_records_of_a_single_variable_have_no_padding(files, opened, name):
    path = files / "single.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as data:
        data.createDimension("time", None)
        data.createDimension("x", 3)
        data.createVariable("v", name, ("time", "x"))[:] = elements(name, (11, 3))
    with opened(path) as (_, group), netCDF4.Dataset(path) as data:
        data.set_auto_mask(False)
        assert_array(group["v"], data["v"][:])


def test_many_short_records_are_read(files, opened):
    path = files / "many.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as data:
        data.createDimension("time", None)
        data.createDimension("x", 3)
        data.createVariable("a", "i2", ("time", "x"))[:] = elements("i2", (70_001, 3))
        data.createVariable("b", "f8", ("time",))[:] = elements("f8", 70_001)
    with opened(path) as (_, group), netCDF4.Dataset(path) as data:
        data.set_auto_mask(False)
        for name in ("a", "b"):
            assert_array(group[name], data[name][:])


@pytest.mark.parametrize("image_type", [nibabel.Nifti1Image, nibabel.Nifti2Image, nibabel.Nifti1Pair])
def test_nifti_is_what_nibabel_reads_and_its_view_is_the_same(files, opened, image_type, tried):
    ending = "img" if image_type is nibabel.Nifti1Pair else "nii"
    for name, shape in (("u1", (5, 4, 3)), (">i2", (5, 4, 3, 2)), ("f4", (9, 5, 4)), ("c8", (3, 2, 2, 2, 2))):
        path = files / f"brain.{ending}"
        header = image_type.header_class(endianness=name[0] if name[0] == ">" else "<")
        header.set_data_dtype(name)
        image = image_type(elements(name, shape), AFFINE, header)
        image.header.set_xyzt_units("mm", "sec")
        if name == "f4":
            image.set_data_dtype("i2")
        nibabel.save(image, path)
        expected = nibabel.load(path, mmap=False)
        source = path.with_suffix(".hdr") if ending == "img" else path
        with opened(source) as (m, group):
            array = group["brain"]
            # The axes of a file are in C order: t, z, y, x.
            values = np.asarray(expected.dataobj.get_unscaled()).T
            assert_array(array, values.swapaxes(0, 1) if values.ndim == 5 else values)
            names = ("t", "c", "z", "y", "x") if values.ndim == 5 else ("t", "z", "y", "x")[-values.ndim :]
            assert array.metadata.dimension_names == names
            np.testing.assert_array_equal(array.attrs["affine"], expected.affine)
            scale = array.attrs.get("scale_factor", 1), array.attrs.get("add_offset", 0)
            assert scale == (expected.dataobj.slope, expected.dataobj.inter)
            steps = group.attrs["ome"]["multiscales"][0]["datasets"][0]["coordinateTransformations"][0]["scale"]
            np.testing.assert_allclose(steps[-3:], expected.header.get_zooms()[2::-1])
            view = nibabel.load(m / "brain.nii", mmap=False)
            np.testing.assert_array_equal(view.get_fdata(dtype=complex), expected.get_fdata(dtype=complex))
            np.testing.assert_array_equal(view.affine, expected.affine)
            assert view.header.get_xyzt_units() == ("mm", "sec")
            del view
        tried("images of NIfTI")


@pytest.mark.parametrize("ending", ["nrrd", "nhdr", "mha", "mhd"])
@pytest.mark.parametrize("compressed", [False, True])
def test_nrrd_and_metaimage_are_what_simpleitk_reads(files, opened, ending, compressed, tried):
    for name in ("u1", "i2", "f8", "vector"):
        values = elements("u1", (3, 4, 5, 3)) if name == "vector" else elements(name, (3, 4, 5))
        image = sitk.GetImageFromArray(values, isVector=name == "vector")
        image.SetSpacing((1, 2, 3.5))
        image.SetOrigin((4, 5, 6))
        path = files / f"{name}.{ending}"
        sitk.WriteImage(image, path, useCompression=compressed)
        with opened(path) as (_, group):
            assert_array(group[name], values)
            assert group[name].metadata.dimension_names[:3] == ("z", "y", "x")
            places = group.attrs["ome"]["multiscales"][0]["datasets"][0]["coordinateTransformations"]
            assert [places[0]["scale"][:3], places[1]["translation"][:3]] == [[3.5, 2, 1], [6, 5, 4]]
        tried("images of NRRD and MetaImage")


def test_nrrd_has_the_fields_that_pynrrd_reads(files, opened):
    header = {"space": "left-posterior-superior", "space directions": np.diag([1.5, 2, 3]), "space origin": [1, 2, 3.0], "kinds": ["domain"] * 3, "patient": "a: b"}
    for encoding in ("raw", "gzip", "bzip2"):
        nrrd.write(str(files / "a.nrrd"), elements(">i4", (3, 4, 5)), {**header, "encoding": encoding}, index_order="C")
        values, fields = nrrd.read(str(files / "a.nrrd"), index_order="C")
        with opened(files / "a.nrrd") as (_, group):
            assert_array(group["a"], values)
            for name in header:
                np.testing.assert_array_equal(group["a"].attrs[name], fields[name])
    nrrd.write(str(files / "a.nrrd"), elements("i4", (3, 4, 5)), {"encoding": "ascii"})
    sentence = "zarrfs reads raw, gzip and bzip2"
    assert sentence in tree(files / "a.nrrd")
    with opened(files / "a.nrrd") as (m, _):
        m.refused(errno.EOPNOTSUPP, sentence, lambda: (m / "a/c/0/0/0").read_bytes())


def test_mrc_is_what_mrcfile_reads(files, opened, tried):
    for name in ("i1", "i2", "f4", "c8", "u2", "f2"):
        for kind, shape in (("single", (4, 5)), ("stack", (3, 4, 5)), ("volume", (3, 4, 5)), ("volumes", (2, 3, 4, 5))):
            path = files / f"{kind}.mrc"
            with mrcfile.new(path, overwrite=True) as made:
                made.set_data(elements(name, shape))
                {"stack": made.set_image_stack, "volume": made.set_volume}.get(kind, lambda: None)()
                made.voxel_size = 1.5
            with opened(path) as (_, group), mrcfile.open(path) as expected:
                assert_array(group[kind], expected.data)
                assert group[kind].attrs["ispg"] == expected.header.ispg
            tried("images of MRC")


def elements_of(path):
    with fits.open(path) as opened:
        return np.array(opened[0].data)


def test_fits_is_what_astropy_reads(files, opened, tried):
    for name in ("u1", "i1", "i2", "u2", "i4", "u4", "i8", "f4", "f8"):
        path = files / f"{name}.fits"
        scaled = fits.ImageHDU(elements("f4", (6, 7)), name="SCALED")
        scaled.scale("int16", "minmax")
        tiled = fits.CompImageHDU(elements("i2", (20, 30)), name="TILED")
        table = fits.BinTableHDU.from_columns([fits.Column("a", "E", array=[1, 2])], name="ROWS")
        primary = fits.PrimaryHDU(elements(name, (3, 4, 5)))
        primary.header.update({"OBJECT": "it's", "EXPTIME": 1.5e-3, "FLAG": True, "LONGSTR": "x" * 150, "HIERARCH ESO DET": 3})
        primary.header["HISTORY"] = "was made"
        fits.HDUList([primary, scaled, tiled, table]).writeto(path)
        with opened(path) as (m, group), fits.open(path) as expected:
            m.allow("ROWS: a table of FITS")
            assert_array(group["PRIMARY"], expected[0].data)
            attributes = dict(group["PRIMARY"].attrs)
            for key in ("OBJECT", "EXPTIME", "FLAG", "LONGSTR", "ESO DET"):
                assert attributes[key] == expected[0].header[key]
            assert attributes["HISTORY"] == ["was made"]
            own = group["SCALED"]
            values = own[...] * own.attrs["scale_factor"] + own.attrs["add_offset"]
            np.testing.assert_allclose(values, expected["SCALED"].data, rtol=1e-5, atol=1e-6)
        assert "compressed by tiles (RICE_1)" in tree(path)
        alone = files / "alone.fits"
        fits.PrimaryHDU(primary.data).writeto(alone, overwrite=True)
        for form in ("v2", "v3"):
            copy = files / f"{name}-{form}.zarr"
            subprocess.run([BIN, "convert", "--format", form, alone, copy], check=True, capture_output=True)
            np.testing.assert_array_equal(zarr.open_group(copy, mode="r")["PRIMARY"][...], elements_of(alone))
        tried("files of FITS")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_is_what_numpy_reads(files, opened, save):
    arrays = {"a": elements("f4", (30, 40)), "t": np.array(["x", "yy"]), "f": np.asfortranarray(elements("i2", (5, 6))), "e": np.zeros((0, 3)), "s": np.array(3.5), "g/h": elements("f8", (200, 300))}
    save(files / "a.npz", **arrays)
    with opened(files / "a.npz") as (_, group):
        for name, expected in arrays.items():
            assert_array(group[name], expected)


def test_a_file_that_is_compressed_as_a_whole_is_read(files, opened):
    values = elements("i2", (50, 40, 30))
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), files / "scan.nii.gz")
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), files / "other.nii.bz2")
    fits.PrimaryHDU(values).writeto(files / "image.fits.gz")
    for file, name, expected in (("scan.nii.gz", "scan", values.T), ("other.nii.bz2", "other", values.T), ("image.fits.gz", "PRIMARY", values)):
        with opened(files / file) as (_, group):
            assert_array(group[name], expected)
    with opened(files / "scan.nii.gz") as (m, group):
        packed = gzip.compress((files / "scan.nii.gz").read_bytes())
        (files / "scan.nii.gz").write_bytes(packed)
        m.refused(errno.ESTALE, "has changed since it was opened", lambda: (m / "scan/c/0/0/0").read_bytes())


WORDS = ["Bern", "Zürich", "a,b", 'say "hi"', "007", "two\nlines", " padded ", "-", "1.2.3", "tab\there", ""]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("rows", [1, 7, 70_000])
def test_a_table_in_text_is_what_pandas_reads(files, opened, rows, separator, tried):
    ints = RANDOM.integers(-(2**62), 2**62, rows)
    floats = RANDOM.normal(size=rows) * 10.0 ** RANDOM.integers(-20, 20, rows)
    table = pandas.DataFrame(
        {
            "int": ints,
            "large": RANDOM.integers(2**63, 2**64 - 1, rows, dtype="u8"),
            "float": floats,
            "holes": np.where(RANDOM.random(rows) < 0.3, np.nan, RANDOM.integers(0, 100, rows)),
            "is it": RANDOM.random(rows) < 0.5,
            "text": RANDOM.choice(WORDS, rows),
            "when": pandas.date_range("2020-01-01", periods=rows, freq="h"),
            "a/b": 1,
        }
    )
    path = files / ("table.tsv" if separator == "\t" else "table.csv")
    table.to_csv(path, sep=separator, index=False)
    as_text = {"text": str, "when": str}
    options = {"keep_default_na": False, "na_values": {"holes": [""]}, "float_precision": "round_trip"}
    read = pandas.read_csv(path, sep=separator, dtype=as_text, **options)
    with opened(path) as (_, group):
        assert sorted(group) == sorted([*table.columns[:-1], "a_b"])
        for name in table.columns:
            array = group[name.replace("/", "_")]
            assert array.metadata.dimension_names == ("row",)
            expected = read[name].to_numpy()
            got = array[...]
            assert name in ("text", "when") or got.dtype == expected.dtype, name
            np.testing.assert_array_equal(got.astype(object) if name in ("text", "when") else got, expected, name)
            tried("columns of tables")


def test_what_a_table_says_decides_its_types(files, opened):
    path = files / "table.csv.gz"
    lines = [
        "\ufeffid,zeros,mixed,none,exact,words,id",
        "1,007,1,,9007199254740993,true,x",
        "2,12,2.5,,,false,y",
        "3,1,NA,,1,maybe,z",
    ]
    path.write_bytes(gzip.compress("\r\n".join(lines).encode()))
    with opened(path) as (_, group):
        got = {name: group[name][...].tolist() for name in group}
    assert np.isnan(got.pop("none")).all() and np.isnan(got["mixed"].pop())
    assert got == {
        "id": [1, 2, 3], "zeros": ["007", "12", "1"], "mixed": [1.0, 2.5], "exact": ["9007199254740993", "", "1"],
        "words": ["true", "false", "maybe"], "id_2": ["x", "y", "z"],
    }  # fmt: skip
    (files / "numbers.csv").write_text("1,2\n3,4\n")
    with opened(files / "numbers.csv") as (_, group):
        assert {name: group[name][...].tolist() for name in group} == {"column_0": [1, 3], "column_1": [2, 4]}


@pytest.mark.parametrize(
    "text, why",
    [(b"", "no line"), (b"a,b\n1\n", "line: 2|record 1|2 fields"), (b"a\n\xff\xfe\n", "UTF-8"), (b"a" * 100 + b"," * 20_000, "columns")],
)
def test_a_table_that_is_none_is_refused_with_the_reason(files, text, why):
    (files / "table.csv").write_bytes(text)
    done = subprocess.run([BIN, "tree", files / "table.csv"], capture_output=True, text=True)
    assert done.returncode == 1 and re.search(why, done.stderr), done.stderr
