"""Views of images in formats of one array, read by the programs that these formats belong to."""

import io
import shutil
import subprocess
import time
import warnings

import mrcfile
import nibabel
import nrrd
import numpy as np
import pytest
import SimpleITK
import spectral.io.envi
import vtk
import zarr
from astropy.io import fits
from vtk.util.numpy_support import vtk_to_numpy

from images import NUMBERS, SHAPES, STORES, is_held, make, numbers, ome, same
from views import ZARRFS, cat, refused

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")


def every_case(tmp_path, format, types, read, shapes, check=None):
    """Each type in a shape, each shape and each kind of store: what `read` reads is what is stored."""
    count = 0
    cases = [(shapes[-1], dtype, "v3") for dtype in NUMBERS]
    cases += [(shape, types[-1], "v3-sharded") for shape in shapes]
    cases += [(shapes[-1], types[-1], kind) for kind in STORES]
    for shape, dtype, kind in cases:
        count += 1
        store = tmp_path / f"s{count}.zarr"
        values = make(store / "x", shape, dtype, kind)
        if is_held(dtype, types) is None:
            assert "no type for" in refused(store / "x", format)
            continue
        out = cat(store / "x", format, tmp_path / f"x{count}.{format}")
        if check:
            check(out)
        same(read(out), numbers(values))


ENVI = ["u1", "i2", "i4", "u2", "u4", "i8", "u8", "c8", "c16", "f8", "f4"]


def test_envi(tmp_path):
    def read(header):
        store = tmp_path / f"s{header.stem[1:]}.zarr" / "x"
        raw = cat(store, "raw", header.with_suffix(".raw"))
        cube = spectral.io.envi.open(str(header), str(raw)).open_memmap(interleave="bsq")
        assert cube.ndim == 3
        return cube.reshape(zarr.open_array(store).shape)

    every_case(tmp_path, "hdr", ENVI, read, [(7,), (5, 7), (3, 5, 7)])
    make(tmp_path / "four" / "x", (2, 3, 5, 7), "f4")
    assert "the limit is 3" in refused(tmp_path / "four" / "x", "hdr")
    values = make(tmp_path / "ones" / "x", (1, 1, 3, 5, 7), "f4")
    cat(tmp_path / "ones" / "x", "hdr", tmp_path / "x.hdr")
    cat(tmp_path / "ones" / "x", "raw", tmp_path / "x.raw")
    same(spectral.io.envi.open(str(tmp_path / "x.hdr"), str(tmp_path / "x.raw")).open_memmap(interleave="bsq"), values[0, 0])


@pytest.mark.parametrize("names", ["zyx", "yxc", "ycx"])
def test_envi_interleaves_as_the_channels_lie(tmp_path, names):
    values = make(tmp_path / "s" / "x", (3, 4, 5), "u2", dimension_names=list(names))
    cat(tmp_path / "s" / "x", "hdr", tmp_path / "x.hdr")
    cat(tmp_path / "s" / "x", "raw", tmp_path / "x.raw")
    image = spectral.io.envi.open(str(tmp_path / "x.hdr"), str(tmp_path / "x.raw"))
    order = {"zyx": (1, 2, 0), "yxc": (0, 1, 2), "ycx": (0, 2, 1)}[names]
    same(image.open_memmap(interleave="bip"), values.transpose(order))


NRRD = ["u1", "i1", "u2", "i2", "i4", "u4", "u8", "i8", "f8", "c8", "c16", "f4"]


def in_c_order(data, header):
    """What pynrrd reads, as the array it was."""
    data = data.transpose()
    if header.get("kinds", [""])[0] == "complex":
        return np.ascontiguousarray(data).view({"f4": "c8", "f8": "c16"}[data.dtype.str[1:]])[..., 0]
    return data


def test_nrrd(tmp_path):
    every_case(tmp_path, "nrrd", NRRD, lambda path: in_c_order(*nrrd.read(str(path))), SHAPES)


def test_nrrd_detached(tmp_path):
    values = make(tmp_path / "s" / "x", (3, 5, 7), "i4", "v3-big")
    zarr.open_group(tmp_path / "s", mode="a")
    cat(tmp_path / "s" / "x", "nhdr", tmp_path / "x.nhdr")
    cat(tmp_path / "s" / "x", "raw", tmp_path / "x.raw")
    same(in_c_order(*nrrd.read(str(tmp_path / "x.nhdr"))), values)
    same(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "x.nhdr"))), values)


ITK = ["u1", "i1", "u2", "i2", "i4", "u4", "u8", "i8", "f8", "f4"]


@pytest.mark.parametrize("format", ["mha", "nrrd", "nii"])
def test_itk(tmp_path, format):
    def read(path):
        return SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(path)))

    types = [*ITK[:-1], *(["c8", "c16"] if format != "mha" else []), "f4"]
    if format == "nii":
        # ITK has them, but not from this format.
        types = [name for name in types if name not in ("c16",)]
    for shape in SHAPES[1:]:
        for dtype in types:
            if dtype[0] == "c" and (format == "nii" or len(shape) > 3):
                continue
            store = tmp_path / f"{len(shape)}{dtype}"
            values = make(store / "x", shape, dtype)
            if format == "nii":
                # The library in ITK puts zero for what is no number.
                values = np.where(np.isfinite(values), values, 0).astype(dtype)
            same(read(cat(store / "x", format, tmp_path / f"{len(shape)}{dtype}.{format}")), values)


def test_metaimage_detached(tmp_path):
    values = make(tmp_path / "s" / "x", (3, 5, 7), "i2", "v3-big")
    zarr.open_group(tmp_path / "s", mode="a")
    cat(tmp_path / "s" / "x", "mhd", tmp_path / "x.mhd")
    cat(tmp_path / "s" / "x", "raw", tmp_path / "x.raw")
    same(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "x.mhd"))), values)


def test_metaimage_has_channels_within_pixels(tmp_path):
    values = make(tmp_path / "s" / "x", (5, 7, 3), "u1", dimension_names=["y", "x", "c"])
    image = SimpleITK.ReadImage(str(cat(tmp_path / "s" / "x", "mha", tmp_path / "x.mha")))
    assert image.GetNumberOfComponentsPerPixel() == 3 and image.GetSize() == (7, 5)
    same(SimpleITK.GetArrayFromImage(image), values)


def test_no_format_has_what_others_have(tmp_path):
    make(tmp_path / "s" / "x", (5, 7), "c8")
    assert "MetaImage has no type for complex64" in refused(tmp_path / "s" / "x", "mha")
    make(tmp_path / "t" / "x", (5, 0), "u2", missing=False)
    for format in ["hdr", "nrrd", "nhdr", "mha", "mhd", "nii", "mrc", "fits", "vti"]:
        assert "no elements" in refused(tmp_path / "t" / "x", format)


NIFTI = ["u1", "i2", "i4", "c8", "f8", "i1", "u2", "u4", "i8", "u8", "c16", "f4"]


def test_nifti(tmp_path):
    def check(path):
        image = nibabel.load(path)
        assert isinstance(image, nibabel.Nifti1Image)
        raised = nibabel.Nifti1Header.from_header(image.header).check_fix(error_level=1)
        assert raised is None

    every_case(
        tmp_path, "nii", NIFTI, lambda path: np.asarray(nibabel.load(path).dataobj).transpose(), SHAPES, check
    )


def test_nifti_2_where_an_axis_is_long(tmp_path):
    values = make(tmp_path / "s" / "x", (2, 40000), "i2", chunks=(1, 30000))
    image = nibabel.load(cat(tmp_path / "s" / "x", "nii", tmp_path / "x.nii"))
    assert isinstance(image, nibabel.Nifti2Image)
    same(np.asarray(image.dataobj).transpose(), values)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_nifti_of_ome(tmp_path, zarr_format):
    shape = (3, 2, 4, 5, 6)
    values = ome(tmp_path / "i", shape, "f4", zarr_format=zarr_format, translation=dict(z=10, y=20, x=30))[0]
    image = nibabel.load(cat(tmp_path / "i" / "s0", "nii", tmp_path / "x.nii"))
    # Time is the fourth axis, channels are the fifth.
    same(np.asarray(image.dataobj), values.transpose(4, 3, 2, 0, 1))
    np.testing.assert_allclose(image.header["pixdim"][1:6], [0.2, 0.25, 0.5, 2.5, 1], rtol=1e-6)
    assert image.header.get_xyzt_units() == ("micron", "sec")
    np.testing.assert_allclose(
        image.affine, [[0.2, 0, 0, 30], [0, 0.25, 0, 20], [0, 0, 0.5, 10], [0, 0, 0, 1]], rtol=1e-6
    )
    assert image.header["sform_code"] == 1 and image.header["qform_code"] == 0


def test_nifti_of_axes_that_are_not_zyx(tmp_path):
    values = ome(tmp_path / "i", (4, 5, 6), "i2", axes="xyz", levels=1, scale=dict(x=1.0, y=2.0, z=3.0))[0]
    image = nibabel.load(cat(tmp_path / "i" / "s0", "nii", tmp_path / "x.nii"))
    same(np.asarray(image.dataobj), values.transpose())
    np.testing.assert_allclose(image.affine[:3, :3], [[0, 0, 1], [0, 2, 0], [3, 0, 0]])
    values = ome(tmp_path / "j", (3, 5, 6), "i2", axes="tyx", levels=1)[0]
    image = nibabel.load(cat(tmp_path / "j" / "s0", "nii", tmp_path / "y.nii"))
    same(np.asarray(image.dataobj), values.transpose()[:, :, None])


@pytest.mark.parametrize("endian", "<>")
@pytest.mark.parametrize("version", [1, 2])
def test_nifti_zarr_is_the_file_that_it_was_made_of(tmp_path, version, endian):
    """As nifti-zarr 1.0.0rc8 stores it: `nifti` is the header."""
    values = ome(tmp_path / "i", (3, 4, 5, 6), "i2", "tzyx", levels=2)
    kind = {1: nibabel.Nifti1Image, 2: nibabel.Nifti2Image}[version]
    matrix = np.array([[-2, 0.1, 0, 90], [0.1, 2, 0, -120], [0, 0.2, 3, -70], [0, 0, 0, 1]])
    header = kind.header_class(endianness=endian)
    image = kind(values[0].transpose(), matrix, header)
    image.set_data_dtype("i2")
    image.set_qform(matrix, 1)
    image.set_sform(matrix, 4)
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_slope_inter(2, 5)
    image.header["descrip"], image.header["pixdim"][4], image.header["intent_code"] = b"a scan", 2.5, 1007
    stored = np.frombuffer(image.header.binaryblock, "u1")
    zarr.create_array(str(tmp_path / "i" / "nifti"), data=stored)
    found = nibabel.load(cat(tmp_path / "i" / "s0", "nii", tmp_path / "x.nii"))
    assert type(found) is kind and found.header.endianness == "<"
    same(found.dataobj.get_unscaled(), values[0].transpose())
    for name in image.header:
        # nibabel keeps these elsewhere.
        if name not in ("scl_slope", "scl_inter", "vox_offset"):
            np.testing.assert_array_equal(found.header[name], image.header[name], name)
    assert (found.dataobj.slope, found.dataobj.inter) == (2, 5)
    # A smaller level is another image.
    found = nibabel.load(cat(tmp_path / "i" / "s1", "nii", tmp_path / "y.nii"))
    assert found.header["descrip"] == b"" and found.shape == values[1].shape[::-1]


@pytest.mark.parametrize("samples", [3, 4])
def test_nifti_of_colours(tmp_path, samples):
    values = make(tmp_path / "s" / "x", (4, 5, 7, samples), "u1", dimension_names=["z", "y", "x", "c"])
    image = nibabel.load(cat(tmp_path / "s" / "x", "nii", tmp_path / "x.nii"))
    found = np.asarray(image.dataobj)
    same(np.stack([found[name] for name in "RGBA"[:samples]], -1).transpose(2, 1, 0, 3), values)
    make(tmp_path / "t" / "x", (3, 5, 7, 5), "u1", dimension_names=["z", "y", "x", "c"])
    image = nibabel.load(cat(tmp_path / "t" / "x", "nii", tmp_path / "y.nii"))
    assert image.shape == (7, 5, 3, 1, 5)


MRC = ["i1", "i2", "c8", "u2", "f2", "f4"]


def test_mrc(tmp_path):
    def check(path):
        said = io.StringIO()
        assert mrcfile.validate(path, print_file=said), said.getvalue()

    def read(path):
        with mrcfile.open(path) as file:
            return file.data.copy()

    every = [shape for shape in SHAPES if 2 <= len(shape) <= 4]
    for count, (shape, dtype) in enumerate([(s, d) for s in every for d in NUMBERS]):
        store = tmp_path / f"s{count}"
        values = make(store / "x", shape, dtype, list(STORES)[count % len(STORES)])
        if dtype not in [*MRC, "?"]:
            assert "no type for" in refused(store / "x", "mrc")
            continue
        out = cat(store / "x", "mrc", tmp_path / f"{count}.mrc")
        check(out)
        same(read(out), values.view("i1") if dtype == "?" else values)
    make(tmp_path / "five" / "x", SHAPES[-1], "f4")
    assert "the limit is 4" in refused(tmp_path / "five" / "x", "mrc")


def test_mrc_has_volumes_and_stacks(tmp_path):
    for names, kind in [(None, "volume"), ("zyx", "volume"), ("tyx", "image_stack"), ("czyx", "volume_stack")]:
        shape = (2, 3, 5, 7)[-len(names or "zyx") :]
        values = make(tmp_path / str(names) / "x", shape, "i2", dimension_names=names and list(names))
        with mrcfile.open(cat(tmp_path / str(names) / "x", "mrc", tmp_path / f"{names}.mrc")) as file:
            assert getattr(file, f"is_{kind}")()
            same(file.data, values)


def test_mrc_of_ome(tmp_path):
    values = ome(
        tmp_path / "i", (1, 1, 4, 5, 6), "f4", units=dict(z="nanometer", y="nanometer", x="nanometer"),
        translation=dict(z=1.0, y=2.0, x=3.0),
    )[0]
    with mrcfile.open(cat(tmp_path / "i" / "s0", "mrc", tmp_path / "x.mrc")) as file:
        assert file.is_volume_stack() and file.data.shape == (1, 4, 5, 6)
        same(file.data[0], values[0, 0])
        np.testing.assert_allclose([file.voxel_size[a] for a in "xyz"], [2, 2.5, 5], rtol=1e-6)
        np.testing.assert_allclose([file.header.origin[a] for a in "xyz"], [30, 20, 10], rtol=1e-6)


FITS = ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f8", "f4"]


def test_fits(tmp_path):
    def read(path):
        with fits.open(path) as file:
            file.verify("exception")
            return file[0].data.copy()

    def check(path):
        assert path.stat().st_size % 2880 == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read(path)

    every_case(tmp_path, "fits", FITS, read, SHAPES, check)


def test_fits_of_ome(tmp_path):
    values = ome(
        tmp_path / "i", (3, 2, 4, 5, 6), "u2", translation=dict(x=1e-7), scale=dict(t=1e-12, c=1, z=1e22, y=0.25, x=0.2)
    )[1]
    with fits.open(cat(tmp_path / "i" / "s1", "fits", tmp_path / "x.fits")) as file:
        file.verify("exception")
        same(file[0].data, values)
        header = file[0].header
        assert [header[f"CTYPE{n}"] for n in range(1, 6)] == list("xyzct")
        assert [header[f"CDELT{n}"] for n in range(1, 6)] == [0.4, 0.5, 1e22, 1.0, 1e-12]
        assert (header["CUNIT1"], header["CUNIT5"], header["CRVAL1"]) == ("um", "s", 1e-7)


def test_nrrd_of_ome(tmp_path):
    ome(tmp_path / "i", (3, 4, 5, 6), "u2", axes="czyx", translation=dict(z=10, y=20, x=30), labels=["a", "b", "c"])
    data, header = nrrd.read(str(cat(tmp_path / "i" / "s0", "nrrd", tmp_path / "x.nrrd")))
    assert header["kinds"] == ["space", "space", "space", "list"] and header["labels"] == list("xyzc")
    np.testing.assert_allclose(header["space directions"][:3], np.diag([0.2, 0.25, 0.5]))
    assert np.isnan(header["space directions"][3]).all() and header["space units"] == ["micrometer"] * 3
    image = SimpleITK.ReadImage(str(tmp_path / "x.nrrd"))
    assert image.GetSize() == (6, 5, 4) and image.GetNumberOfComponentsPerPixel() == 3
    np.testing.assert_allclose(image.GetSpacing(), [0.2, 0.25, 0.5])
    np.testing.assert_allclose(np.abs(image.GetOrigin()), [30, 20, 10])
    same(np.moveaxis(SimpleITK.GetArrayFromImage(image), -1, 0), data.transpose())


@pytest.mark.parametrize("axes", ["tczyx", "tzyx", "tcyx", "zyxc", "tyxc"])
def test_itk_reads_time_and_channels(tmp_path, axes):
    shape = tuple({"t": 2, "c": 3, "z": 4, "y": 5, "x": 6}[axis] for axis in axes)
    values = ome(tmp_path / "i", shape, "u2", axes, levels=1, translation=dict(t=1.0, x=30.0))[0]
    data, header = nrrd.read(str(cat(tmp_path / "i" / "s0", "nrrd", tmp_path / "x.nrrd")))
    same(data.transpose(), values)
    image = SimpleITK.ReadImage(str(tmp_path / "x.nrrd"))
    same(SimpleITK.GetArrayFromImage(image), np.moveaxis(values, axes.index("c"), -1) if "c" in axes else values)
    steps = [dict(t=2.5, z=0.5, y=0.25, x=0.2)[axis] for axis in reversed(axes) if axis != "c"]
    np.testing.assert_allclose(image.GetSpacing(), steps)
    if "t" in axes:
        np.testing.assert_allclose(image.GetOrigin(), [30.0, *[0] * (len(steps) - 2), 1.0])
    image = SimpleITK.ReadImage(str(cat(tmp_path / "i" / "s0", "mha", tmp_path / "x.mha")))
    same(SimpleITK.GetArrayFromImage(image), values)


def test_names_of_files_that_text_headers_say(tmp_path):
    group = zarr.create_group(str(tmp_path / "s"))
    for name in ["my array", "a.b"]:
        values = make(tmp_path / "s" / name, (3, 5, 7), "i2")
        cat(tmp_path / "s" / name, "raw", tmp_path / f"{name}.raw")
        for format in ["nhdr", "mhd"]:
            out = cat(tmp_path / "s" / name, format, tmp_path / f"{name}.{format}")
            same(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(out))), values)
        same(nrrd.read(str(tmp_path / f"{name}.nhdr"))[0].transpose(), values)
    group.create_array("a%03d", shape=(3, 5), dtype="i2")
    for format in ["nhdr", "mhd"]:
        assert "would misread" in refused(tmp_path / "s" / "a%03d", format)


def test_metaimage_of_ome(tmp_path):
    values = ome(tmp_path / "i", (4, 5, 6), "u2", axes="zyx", translation=dict(z=10, y=20, x=30))[1]
    image = SimpleITK.ReadImage(str(cat(tmp_path / "i" / "s1", "mha", tmp_path / "x.mha")))
    np.testing.assert_allclose(image.GetSpacing(), [0.4, 0.5, 0.5])
    np.testing.assert_allclose(image.GetOrigin(), [30, 20, 10])
    same(SimpleITK.GetArrayFromImage(image), values)


@pytest.mark.parametrize("format", ["raw", "nii", "mrc", "nrrd", "mha", "fits", "vti"])
def test_what_is_long_is_made_at_once(tmp_path, format):
    zarr.create_array(str(tmp_path / "x"), shape=(5120, 2048, 1024), dtype="u2", chunks=(16, 256, 256))
    command = [ZARRFS, "cat", str(tmp_path / "x"), "--as", format, "--cache-size", "1G"]
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        head = running.stdout.read(1 << 20)
        running.stdout.close()
    assert time.monotonic() - start < 5 and len(head) == 1 << 20
    if format in ("nii", "mrc", "fits"):
        name = tmp_path / f"x.{format}"
        name.write_bytes(head)
        with open(name, "r+b") as file:
            file.truncate((20 << 30) + (352 if format == "nii" else 1024 if format == "mrc" else 2 * 2880))
    if format == "nii":
        assert nibabel.load(name).shape == (1024, 2048, 5120)
    if format == "mrc":
        with mrcfile.mmap(name) as file:
            assert file.data.shape == (5120, 2048, 1024)


@pytest.mark.skipif(not shutil.which("nifti_tool"), reason="nifti_tool is not there")
def test_nifti_tool_says_that_headers_are_good(tmp_path):
    for shape in SHAPES:
        make(tmp_path / str(len(shape)) / "x", shape, "f4")
        out = cat(tmp_path / str(len(shape)) / "x", "nii", tmp_path / f"{len(shape)}.nii")
        done = subprocess.run(["nifti_tool", "-check_hdr", "-infiles", str(out)], capture_output=True, text=True)
        assert done.returncode == 0 and "header IS GOOD" in done.stdout, done


AXES = {
    # Names of dimensions, attributes of their coordinates, and the kind of each axis.
    "climate": (["time", "lat", "lon"], {}, "tyx"),
    "levels": (["valid_time", "isobaricInhPa", "latitude", "longitude"], {}, "tzyx"),
    "wrf": (["Time", "bottom_top", "south_north", "west_east"], {}, "tzyx"),
    "turned": (["lat", "lon", "time"], {}, "yxt"),
    "backwards": (["lon", "lat", "time"], {}, "xyt"),
    "plane": (["lon", "lat"], {}, "xy"),
    "units": (["a", "b", "c_"], {"a": {"units": "days since 1970-01-01"}, "b": {"units": "degrees_north"}, "c_": {"units": "degrees_east"}}, "tyx"),
    "axis": (["a", "b", "d"], {"a": {"axis": "X"}, "b": {"axis": "Y"}, "d": {"axis": "T"}}, "xyt"),
    "standard_name": (["m", "n"], {"m": {"standard_name": "projection_y_coordinate"}, "n": {"standard_name": "projection_x_coordinate"}}, "yx"),
    "half known": (["time", "row_", "b"], {}, "tyx"),
    "unknown": (["a", "b", "d"], {}, "zyx"),
    "unnamed": (None, {}, "zyx"),
    "time alone": (["time"], {}, "t"),
}  # fmt: skip


@pytest.mark.parametrize("case", AXES)
def test_axes_of_any_names_and_order_are_recognised(tmp_path, case):
    names, coordinates, kinds = AXES[case]
    shape = tuple([5, 3, 4, 2][: len(kinds)])
    values = make(tmp_path / "s" / "x", shape, "f4", dimension_names=names)
    root = zarr.open_group(tmp_path / "s", mode="a")
    for name, attributes in coordinates.items():
        root.create_array(name, data=np.arange(shape[names.index(name)], dtype="f8"), dimension_names=[name], attributes=attributes)
    # NIfTI: the axes of space as they lie, fastest first, then time.
    space = [axis for axis in range(len(shape)) if kinds[axis] != "t"][::-1]
    time_axis = [kinds.index("t")] if "t" in kinds else []
    sizes = [shape[axis] for axis in space] + [1] * (3 - len(space)) + [shape[axis] for axis in time_axis]
    expected = values.transpose([*space, *time_axis]).reshape(sizes)
    found = np.asanyarray(nibabel.load(cat(tmp_path / "s" / "x", "nii", tmp_path / "x.nii")).dataobj)
    assert found.shape == tuple(sizes if time_axis else sizes[: len(space)])
    np.testing.assert_array_equal(found.reshape(sizes), expected)
    # VTK: x, y and z, and an array for each time.
    reader = vtk.vtkXMLImageDataReader()
    reader.SetFileName(str(cat(tmp_path / "s" / "x", "vti", tmp_path / "x.vti")))
    reader.Update()
    data = reader.GetOutput()
    order = [kinds.index(kind) for kind in "xyz" if kind in kinds] or [0]
    assert data.GetDimensions() == tuple([shape[axis] for axis in order] + [1] * (3 - len(order)))
    parts = [vtk_to_numpy(data.GetPointData().GetArray(number)) for number in range(data.GetPointData().GetNumberOfArrays())]
    times = [axis for axis in time_axis if axis not in order]
    expected = values.transpose([*times, *order[::-1]]).reshape(len(parts), -1)
    np.testing.assert_array_equal(np.array(parts), expected)


def test_axes_of_long_arrays_are_turned_and_written(tmp_path, mount):
    values = make(tmp_path / "s" / "x", (600, 500, 3), "i2", dimension_names=["lat", "lon", "time"])
    with mount(tmp_path / "s", copy=False) as m:
        image = nibabel.load(m / "x.nii")
        assert image.shape == (500, 600, 1, 3)
        np.testing.assert_array_equal(np.asanyarray(image.dataobj)[:, :, 0], values.transpose(1, 0, 2))
        changed = np.memmap(m / "x.nii", "<i2", "r+", 352, (3, 600, 500))
        changed[1, 100:300, 7] = 5
        changed.flush()
        del changed
        values[100:300, 7, 1] = 5
        np.testing.assert_array_equal(np.load(m / "x.npy"), values)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "s" / "x", mode="r")[...], values)
