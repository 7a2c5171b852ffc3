"""Views read in mounts by the programs that people look at images with: ImageJ, Bio-Formats, VTK (and so ParaView),
GDAL, rasterio, libvips, ncview; and raw recordings as Kilosort reads them."""

import contextlib
import os
import subprocess

import numpy as np
import pytest
import rasterio
import rasterio.windows
import SimpleITK
import tifffile
import vtk
import zarr
from vtk.util.numpy_support import vtk_to_numpy

from images import numbers, ome, same
from programs import BIOFORMATS, arrays, display, has_bioformats, mounted, run, there
from test_views import climate
from views import array, values_of

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
IMAGEJ_JAR = "/usr/share/java/ij.jar"
has_imagej = pytest.mark.skipif(not os.path.isfile(IMAGEJ_JAR), reason=f"{IMAGEJ_JAR} is not there")


def imagej(macro, cases, directory, display, plugins=None):
    """Runs a macro of ImageJ, with a file and where it goes for each case. What ImageJ cannot open it asks about, and waits."""
    (directory / "cases").write_text("".join(f"{file} {out}\n" for file, out in cases))
    (directory / "macro.ijm").write_text(macro.replace("CASES", str(directory / "cases")))
    classes = f"{IMAGEJ_JAR}:{BIOFORMATS}" if plugins else IMAGEJ_JAR
    options = [f"-Dplugins.dir={plugins}"] if plugins else []
    # Preferences of its own: nothing is left at home.
    options += [f"-Duser.home={directory}", "-Xmx512m"]
    command = ["java", *options, "-cp", classes, "ij.ImageJ", "-batch", directory / "macro.ijm"]
    return run(command, directory, env=display.environment)


IMAGEJ = """
cases = split(File.openAsString("CASES"), "\\n");
for (i = 0; i < cases.length; i++) {
  names = split(cases[i], " ");
  open(names[0]);
  getDimensions(width, height, channels, slices, frames);
  File.append(d2s(width, 0) + " " + height + " " + channels + " " + slices + " " + frames, names[1] + ".txt");
  saveAs("raw data", names[1] + ".raw");
  close();
}
"""


@has_imagej
@there("java", "Xvfb")
def test_imagej_reads_hyperstacks(tmp_path, mount, display):
    """One byte, two unsigned, or floats; those of two that are signed it has with an offset and a calibration."""
    values = arrays(tmp_path, ["?", "u1", "u2", "i2", "f4"], [1, 2, 3, 4, 5])
    with mounted(mount, tmp_path) as at:
        cases = {path: tmp_path / path.replace("/", "_") for path in values}
        imagej(IMAGEJ, [(f"{at(path)}.tif", out) for path, out in cases.items()], tmp_path, display)
    for path, out in cases.items():
        expected = numbers(values[path])
        # Axes without names are t, c, z, y, x where there are five, and channels are fastest in a hyperstack.
        shape = (1,) * (2 - expected.ndim) + expected.shape
        pages = expected.transpose(0, 2, 1, 3, 4) if expected.ndim == 5 else expected.reshape(shape)
        found = np.fromfile(f"{out}.raw", expected.dtype.newbyteorder(">")).reshape(pages.shape)
        np.testing.assert_array_equal(found, pages, err_msg=path)
        said = [int(number) for number in out.with_suffix(".txt").read_text().split()]
        assert said[:2] == [shape[-1], shape[-2]] and np.prod(said) == expected.size, path
        if expected.ndim == 5:
            assert said[2:] == [shape[1], shape[2], shape[0]], path


@has_imagej
@there("java", "Xvfb")
def test_imagej_knows_the_scale_and_the_axes_of_an_image(tmp_path, mount, display):
    values = ome(tmp_path / "i.zarr", (3, 2, 4, 40, 60), "u2", sharded=True, chunks=(1, 1, 2, 16, 32))[0]
    macro = """
    open("FILE");
    getDimensions(width, height, channels, slices, frames);
    getVoxelSize(x, y, z, unit);
    Stack.setPosition(2, 3, 3);
    File.append("" + channels + " " + slices + " " + frames + " " + x + " " + y + " " + z + " " + unit + " "
      + Stack.getFrameInterval() + " " + getPixel(59, 39), "CASES.txt");
    close();
    """
    with mount(tmp_path / "i.zarr") as m:
        imagej(macro.replace("FILE", str(m / "s0.tif")), [], tmp_path, display)
    said = (tmp_path / "cases.txt").read_text().split()
    assert said == ["2", "4", "3", "0.2", "0.25", "0.5", "microns", "2.5", str(values[2, 1, 2, 39, 59])]


BIOFORMATS_MACRO = """
run("Bio-Formats Macro Extensions");
cases = split(File.openAsString("CASES"), "\\n");
for (i = 0; i < cases.length; i++) {
  names = split(cases[i], " ");
  Ext.setId(names[0]);
  Ext.getFormat(names[0], format);
  Ext.getSeriesCount(series);
  Ext.getSizeX(x); Ext.getSizeY(y); Ext.getSizeZ(z); Ext.getSizeC(c); Ext.getSizeT(t);
  Ext.getDimensionOrder(order); Ext.getPixelType(type); Ext.getImageCount(count);
  sizes = d2s(x, 0) + " " + y + " " + z + " " + c + " " + t;
  File.append(sizes + "\\n" + order + "\\n" + type + "\\n" + series + "\\n" + format, names[1] + ".txt");
  for (page = 0; page < count; page++) {
    Ext.openImage("page", page);
    saveAs("raw data", names[1] + "_" + page + ".raw");
    close();
  }
  Ext.close();
}
"""

# What Bio-Formats calls types; ImageJ, which saves the pages here, has floats in place of long integers and of doubles.
OF_BIOFORMATS = {
    "u1": "uint8", "i1": "int8", "u2": "uint16", "i2": "int16", "u4": "uint32", "i4": "int32", "f4": "float", "f8": "double",
}
# Which reader a format has, and types that it reads as they are.
BIOFORMATS_READERS = {
    "ome.tif": ("OME-TIFF", ["u1", "u2", "f4"]),
    "tif": ("Image", ["u1", "u2", "f4"]),
    "fits": ("Flexible Image Transport System", ["u1", "f4"]),
    "nii": ("NIfTI", ["u1", "u2", "f4"]),
    "mrc": ("Medical Research Council", ["u2", "f4"]),
    "nrrd": ("NRRD", ["u1", "u2", "f4"]),
}


def bioformats(cases, directory, display):
    """What Bio-Formats says of files, and their values in the order t, c, z, y, x."""
    plugins = directory / "plugins"
    plugins.mkdir()
    (plugins / "bioformats_package.jar").symlink_to(BIOFORMATS)
    imagej(BIOFORMATS_MACRO, cases, directory, display, directory)
    for file, out in cases:
        sizes, order, type, series, format = (directory / f"{out}.txt").read_text().split("\n")[:5]
        sizes = dict(zip("XYZCT", map(int, sizes.split())))
        dtype = {known: name for name, known in OF_BIOFORMATS.items()}[type]
        pages = [np.fromfile(f"{out}_{page}.raw", f">{dtype}") for page in range(sizes["Z"] * sizes["C"] * sizes["T"])]
        values = np.concatenate(pages).reshape([sizes[axis] for axis in reversed(order)])
        found = values.transpose([order[::-1].index(axis) for axis in "TCZYX"])
        yield file, format, series, found.astype(dtype)


@has_bioformats
@has_imagej
@there("java", "Xvfb")
def test_bioformats_reads_every_format_that_it_has(tmp_path, mount, display):
    # It takes fewer than 17 columns of an NRRD for channels, and channels of NIfTI in another order than they have.
    shapes, expected = {"nii": (2, 3, 5, 23)}, {}
    for format, (_, types) in BIOFORMATS_READERS.items():
        for number, dtype in enumerate(types):
            name = f"{format.replace('.', '')}_{dtype}"
            shape = shapes.get(format, (3, 5, 23))
            options = dict(sharded=number % 2 == 1, dimension_names=list("tzyx")[-len(shape) :])
            values = array(tmp_path / "g.zarr" / name, values_of(shape, dtype), **options)
            expected[f"{name}.{format}"] = values
    zarr.open_group(tmp_path / "g.zarr", mode="a")
    with contextlib.ExitStack() as mounts:
        # Each without the others: it takes any `x.*` for what `x.nhdr` describes.
        kinds = {kind: mounts.enter_context(mount(tmp_path / "g.zarr", f"--as={kind}")) for kind in BIOFORMATS_READERS}
        files = [(kinds[name.partition(".")[2]] / name, tmp_path / name) for name in expected]
        for file, format, series, found in bioformats(files, tmp_path, display):
            kind = file.name.partition(".")[2]
            assert BIOFORMATS_READERS[kind][0] in format and series == "1", (file, format)
            if kind == "mrc":
                found = found[..., ::-1, :]  # Whose first row is the lowest.
            same(found.reshape(expected[file.name].shape), expected[file.name])


@has_bioformats
@has_imagej
@there("java", "Xvfb")
def test_bioformats_reads_channels_and_times_of_images(tmp_path, mount, display):
    levels = ome(
        tmp_path / "i.zarr", (2, 3, 2, 40, 60), "u2", chunks=(1, 1, 1, 16, 32), labels=["DAPI", "GFP & <more>", "µ"]
    )
    with mount(tmp_path / "i.zarr") as m:
        cases = [(m / name, tmp_path / name) for name in ("__root__.ome.tif", "s0.ome.tif", "s1.ome.tif")]
        # Bio-Formats takes any `s0.*` for what `s0.nhdr` describes: where no such file can be opened it reads it.
        with mount(tmp_path / "i.zarr", "--as=tif") as tif:
            cases.append((tif / "s0.tif", tmp_path / "s0.tif"))
            read = list(bioformats(cases, tmp_path, display))
        for file, _, _, found in read:
            same(found, levels[int(file.name[1])] if file.name[1].isdigit() else levels[0])


@has_bioformats
@there("java")
def test_bioformats_on_the_command_line_reads_a_pyramid(tmp_path, mount):
    levels = ome(tmp_path / "i.zarr", (2, 3, 200, 300), "u2", "tcyx", chunks=(1, 1, 64, 64), labels=["a", "b", "c"], sharded=True)
    tool = ["java", "-Xmx512m", f"-Duser.home={tmp_path}", "-cp", BIOFORMATS]
    with mount(tmp_path / "i.zarr") as m:
        file = m / "__root__.ome.tif"
        said = run([*tool, "loci.formats.tools.ImageInfo", "-nopix", "-noflat", "-no-upgrade", "-omexml", file], tmp_path)
        assert "Resolutions = 3" in said and "sizeX[2] = 75" in said, said
        assert 'PhysicalSizeX="0.2"' in said and 'Name="b"' in said and 'Name="picture"' in said, said
        copy = tmp_path / "copy.ome.tif"
        run([*tool, "loci.formats.tools.ImageConverter", "-noflat", "-no-upgrade", file, copy], tmp_path)
    with tifffile.TiffFile(copy) as tif:
        assert len(tif.series[0].levels) == 3
        for found, expected in zip(tif.series[0].levels, levels):
            same(found.asarray(), expected)


# What each reader of VTK has, and how many axes.
VTK_TYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8"]
VTK = {
    "vti": (vtk.vtkXMLImageDataReader, [*VTK_TYPES, "i8", "u8"], [1, 2, 3, 4, 5]),
    "mha": (vtk.vtkMetaImageReader, VTK_TYPES, [1, 2, 3]),
    "mhd": (vtk.vtkMetaImageReader, VTK_TYPES, [1, 2, 3]),
    "nii": (vtk.vtkNIFTIImageReader, [*VTK_TYPES, "i8", "u8"], [1, 2, 3, 4]),
    "mrc": (vtk.vtkMRCReader, ["u2", "i2", "f4"], [2, 3]),
    "tif": (vtk.vtkTIFFReader, ["u1", "u2", "i2", "u4", "f4"], [2, 3]),
}


def vtk_read(kind, file, is_of_times):
    """The lengths of the axes, x first, and each array of elements."""
    reader, errors = kind(), []
    reader.AddObserver("ErrorEvent", lambda *_: errors.append(file))
    if is_of_times:
        reader.TimeAsVectorOn()
    reader.SetFileName(file)
    reader.Update()
    assert not errors
    image = reader.GetOutput()
    data = image.GetPointData()
    arrays = [vtk_to_numpy(data.GetArray(number)) for number in range(data.GetNumberOfArrays())]
    # Times are components of elements.
    return image.GetDimensions(), [np.array(each.T).reshape(-1) for each in arrays]


@pytest.mark.parametrize("format", VTK)
def test_vtk_reads_what_it_has_types_for(tmp_path, mount, format):
    kind, types, ranks = VTK[format]
    values = arrays(tmp_path, types, ranks)
    with mounted(mount, tmp_path) as at:
        for path, expected in values.items():
            is_of_times = format == "nii" and expected.ndim == 4
            lengths, found = vtk_read(kind, f"{at(path)}.{format}", is_of_times)
            assert lengths == (expected.shape[:-4:-1] + (1, 1))[:3]
            same(np.concatenate(found).reshape(expected.shape), expected)


def test_vtk_knows_where_an_image_lies(tmp_path, mount):
    ome(tmp_path / "i.zarr", (4, 5, 6), "u2", "zyx", levels=1, translation=dict(z=10, y=20, x=30), sharded=True)
    with mount(tmp_path / "i.zarr") as m:
        for format, kind in (("vti", vtk.vtkXMLImageDataReader), ("mha", vtk.vtkMetaImageReader)):
            reader = kind()
            reader.SetFileName(str(m / f"s0.{format}"))
            reader.Update()
            assert reader.GetOutput().GetSpacing() == (0.2, 0.25, 0.5)
            assert reader.GetOutput().GetOrigin() == (30, 20, 10)


# GDAL reads what is flat only if it may look for the header beside it.
GDAL_ENVIRONMENT = {"GDAL_DISABLE_READDIR_ON_OPEN": "TRUE", "GDAL_PAM_ENABLED": "NO"}
# The drivers for formats, with types that each has.
GDAL = {
    "tif": ("GTiff", ["u1", "u2", "i2", "u4", "i4", "f4", "f8", "c8"]),
    "ome.tif": ("GTiff", ["u1", "u2", "i2", "u4", "i4", "f4", "f8", "c8"]),
    "raw": ("ENVI", ["u1", "u2", "i2", "u4", "i4", "f4", "f8", "c8", "c16"]),
    "fits": ("FITS", ["u1", "u2", "i2", "u4", "i4", "f4", "f8"]),
    "h5": ("HDF5Image", ["u1", "u2", "i2", "u4", "i4", "f4", "f8", "c8"]),
    "nc": ("netCDF", ["i2", "i4", "f4", "f8"]),
    "nc4": ("netCDF", ["u1", "u2", "i2", "u4", "i4", "f4", "f8"]),
}


def same_rows(found, expected, format):
    """The same values: GDAL shows rows from north to south, and takes those of these formats for the other way round. What
    is no number in netCDF it shows as what is missing."""
    found = found.reshape(expected.shape)
    if format in ("nc", "nc4", "fits"):
        found = found[..., ::-1, :]
    if format in ("nc", "nc4"):
        expected = np.where(np.isnan(expected), found, expected)
    same(found, expected)


@pytest.mark.parametrize("format", GDAL)
@there("gdal_translate")
def test_gdal_reads_every_type_that_it_has(tmp_path, mount, format):
    values = arrays(tmp_path, GDAL[format][1], [2, 3])
    environment = {**os.environ, **GDAL_ENVIRONMENT}
    with mounted(mount, tmp_path) as at:
        for path, expected in values.items():
            file, out = f"{at(path)}.{format}", tmp_path / "out.raw"
            if format.endswith("tif"):
                pages = range(1, 1 + expected.size // 35)
                files = [f"GTIFF_DIR:{page}:{file}" for page in pages] if len(pages) > 1 else [file]
            else:
                files = [file]
            found = []
            for file in files:
                run(["gdal_translate", "-q", "-of", "ENVI", file, out], tmp_path, env=environment)
                found.append(np.fromfile(out, expected.dtype))
            same_rows(np.concatenate(found), expected, format)


@pytest.mark.parametrize("format", ["tif", "ome.tif", "raw", "h5", "nc", "nc4"])
def test_rasterio_reads_every_type_that_it_has(tmp_path, mount, format):
    driver, types = GDAL[format]
    more = {"raw": ["i8", "u8"], "h5": ["i1", "i8", "u8"], "tif": ["i1", "i8", "u8"]}.get(format, [])
    values = arrays(tmp_path, types + more, [2, 3])
    with mounted(mount, tmp_path) as at, rasterio.Env(**GDAL_ENVIRONMENT):
        for path, expected in values.items():
            file = f"{at(path)}.{format}"
            pages = expected.size // 35
            files = [f"GTIFF_DIR:{page + 1}:{file}" for page in range(pages)] if format.endswith("tif") else [file]
            found = []
            for file in files:
                with rasterio.open(file) as data:
                    assert data.driver == driver
                    found.append(data.read())
            same_rows(np.concatenate(found), expected, format)


def test_rasterio_reads_windows_and_overviews_of_a_pyramid(tmp_path, mount):
    levels = ome(tmp_path / "i.zarr", (600, 700), "u2", "yx", chunks=(64, 64), sharded=True)
    with mount(tmp_path / "i.zarr") as m:
        with rasterio.open(m / "__root__.ome.tif") as data:
            assert data.block_shapes == [(64, 64)] and data.overviews(1) == [2, 4]
            window = rasterio.windows.Window(650, 500, 50, 100)
            same(data.read(1, window=window), levels[0][500:, 650:])
            for level in (1, 2):
                same(data.read(1, out_shape=levels[level].shape), levels[level])


@there("vips")
def test_libvips_reads_tif(tmp_path, mount):
    values = arrays(tmp_path, ["u1", "u2", "f4"], [2, 3])
    with mounted(mount, tmp_path) as at:
        for path, expected in values.items():
            pages = "[n=-1]" if expected.ndim == 3 else ""
            run(["vips", "rawsave", f"{at(path)}.tif{pages}", tmp_path / "raw"], tmp_path)
            same(np.fromfile(tmp_path / "raw", expected.dtype).reshape(expected.shape), expected)


@there("ncview", "Xvfb")
@pytest.mark.parametrize("format", ["nc", "nc4"])
def test_ncview_shows_a_picture(tmp_path, mount, display, format):
    climate(tmp_path / "climate.zarr")
    with mount(tmp_path / "climate.zarr") as m:
        environment = {**display.environment, "HOME": str(tmp_path)}
        command = ["ncview", m / f"t2m.{format}"]
        with open(tmp_path / "said", "w+") as said:
            running = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=said, stderr=said)
            try:
                # Its buttons have fewer.
                is_shown = display.wait_for_colors(60)
                assert is_shown and running.poll() is None, (tmp_path / "said").read_text()
            finally:
                running.kill()
                running.wait()


@pytest.mark.parametrize("sharded", [False, True])
def test_a_recording_is_read_as_kilosort_reads_it(tmp_path, mount, sharded):
    """As kilosort.io.BinaryFiltered has it: samples by channels, two bytes each, mapped into memory."""
    n_samples, n_channels = 30011, 37
    values = array(tmp_path / "g.zarr/ap", values_of((n_samples, n_channels), "i2"), (4096, 16), sharded=sharded)
    with mount(tmp_path / "g.zarr/ap") as m:
        path = m / "__root__.raw"
        assert path.stat().st_size == n_samples * n_channels * 2
        file = np.memmap(path, dtype="int16", mode="r", shape=(n_samples, n_channels))
        for start in range(0, n_samples, 7000):
            np.testing.assert_array_equal(file[start : start + 7000].T, values[start : start + 7000].T)
        np.testing.assert_array_equal(file[:: 1009, [36, 0, 5]], values[:: 1009, [36, 0, 5]])
        del file
