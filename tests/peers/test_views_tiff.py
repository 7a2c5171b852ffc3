"""Views of images as TIFF and as OME-TIFF, read by tifffile; what other programs make of them is tried by libtiff and
libvips where they are."""

import os
import shutil
import subprocess

import numpy as np
import pytest
import tifffile
import zarr

from images import NUMBERS, SHAPES, STORES, is_held, make, numbers, ome, same
from views import ZARRFS, cat, refused

OF_IMAGEJ = ["u1", "u2", "u4", "i2", "i4", "f4", "?"]
# tifffile warns of nothing but through its logger.
pytestmark = pytest.mark.usefixtures("no_complaints")


@pytest.fixture
def no_complaints(caplog):
    yield
    assert not [record for record in caplog.records if record.name == "tifffile"], caplog.text


def tiffinfo(path):
    """What libtiff says of a file, which must be nothing bad."""
    done = subprocess.run(["tiffinfo", "-D", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bad = [line for line in done.stderr.splitlines() if "Unknown field" not in line]
    assert not bad, bad
    return done.stdout


@pytest.mark.parametrize("dtype", NUMBERS)
def test_tif_of_every_type_and_rank(tmp_path, dtype):
    for count, shape in enumerate([*SHAPES, (2, 1, 3, 2, 5, 7)]):
        kind = list(STORES)[count % len(STORES)]
        values = numbers(make(tmp_path / str(count) / "x", shape, dtype, kind))
        out = cat(tmp_path / str(count) / "x", "tif", tmp_path / f"{count}.tif")
        with tifffile.TiffFile(out) as file:
            assert file.is_imagej == (dtype in OF_IMAGEJ) and not file.is_bigtiff
            found = file.asarray()
            assert len(file.pages) == np.prod(shape[:-2], dtype=int)
            assert all(page.is_contiguous or dtype == "c16" for page in file.pages)
            if file.is_imagej:
                # Five axes without names are t, c, z, y, x; channels are fastest in a hyperstack. One element is no axis.
                expected = values.squeeze()
                expected = expected.transpose(0, 2, 1, 3, 4) if expected.ndim == 5 else expected
                same(found.reshape(expected.shape), expected)
            else:
                same(found, values)
        assert tiffinfo(out).count("TIFF Directory") == np.prod(shape[:-2], dtype=int)


@pytest.mark.parametrize("kind", STORES)
def test_tif_of_every_kind_of_store(tmp_path, kind):
    for dtype in ["u2", "f8"]:
        values = make(tmp_path / dtype / "x", (3, 40, 70), dtype, kind)
        same(tifffile.imread(cat(tmp_path / dtype / "x", "tif", tmp_path / f"{dtype}.tif")), values)


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
@pytest.mark.parametrize("samples", [3, 4, 6])
def test_tif_of_samples_within_pixels(tmp_path, dtype, samples):
    values = make(tmp_path / "s" / "x", (2, 5, 7, samples), dtype, dimension_names=["z", "y", "x", "c"])
    out = cat(tmp_path / "s" / "x", "tif", tmp_path / "x.tif")
    with tifffile.TiffFile(out) as file:
        same(file.asarray(), values)
        assert file.pages[0].samplesperpixel == samples
        is_rgb = samples < 5 and dtype != "f4"
        assert file.pages[0].photometric == (tifffile.PHOTOMETRIC.RGB if is_rgb else tifffile.PHOTOMETRIC.MINISBLACK)
    assert tiffinfo(out).count("TIFF Directory") == 2


def test_hyperstack_of_ome(tmp_path):
    values = ome(tmp_path / "i", (3, 2, 4, 5, 6), "u2")[0]
    with tifffile.TiffFile(cat(tmp_path / "i" / "s0", "tif", tmp_path / "x.tif")) as file:
        assert file.series[0].axes == "TZCYX"
        same(file.asarray(), values.transpose(0, 2, 1, 3, 4))
        said = file.imagej_metadata
        assert (said["channels"], said["slices"], said["frames"], said["hyperstack"]) == (2, 4, 3, True)
        assert (said["unit"], said["spacing"], said["finterval"]) == ("micron", 0.5, 2.5)
        assert file.pages[0].resolution == (5.0, 4.0) and file.pages[0].resolutionunit == 1


def test_long_tif(tmp_path):
    """A header is made at once, whatever lies behind it."""
    for name, dtype, is_alone in [("a", "u2", True), ("b", "f8", False)]:
        shape = (20 << 30 >> (13 if dtype == "f8" else 11) >> 10, 1024, 1024)
        zarr.create_array(str(tmp_path / name), shape=shape, dtype=dtype, chunks=(1, 256, 256))
        head = tmp_path / f"{name}.tif"
        with subprocess.Popen([*command(tmp_path / name, "tif")], stdout=subprocess.PIPE) as running:
            head.write_bytes(running.stdout.read(1 << 22))
            running.stdout.close()
        with open(head, "r+b") as file:
            file.truncate(np.prod(shape) * np.dtype(dtype).itemsize + (1 << 22))
        with tifffile.TiffFile(head) as file:
            assert file.is_bigtiff != is_alone and len(file.pages) == (1 if is_alone else shape[0])
            assert file.series[0].shape == shape


def command(store, format):
    return [ZARRFS, "cat", str(store), "--as", format, "--cache-size", "1G"]


OME = ["u1", "i1", "u2", "i2", "u4", "i4", "f8", "c8", "c16", "f4"]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_ome_tif_of_every_type_and_rank(tmp_path, dtype):
    for count, shape in enumerate([(40,), (50, 70), (3, 50, 70), (2, 3, 50, 70), (2, 3, 2, 50, 70)]):
        store = tmp_path / str(count) / "x"
        # Chunks of several pages, which overhang the array.
        chunks = (2,) * (len(shape) - 2) + (32, 16)[: len(shape)]
        values = numbers(make(store, shape, dtype, list(STORES)[count % len(STORES)], chunks=chunks))
        if is_held(dtype, OME) is None:
            assert "OME has no type for" in refused(store, "ome.tif")
            continue
        with tifffile.TiffFile(cat(store, "ome.tif", tmp_path / f"{count}.ome.tif")) as file:
            assert file.is_ome and file.is_bigtiff
            same(file.asarray().reshape(values.shape), values)
            if len(shape) > 1:
                assert file.pages[0].is_tiled and file.pages[0].chunks == (32, 16)
        if np.dtype(dtype).itemsize < 16:
            tiffinfo(tmp_path / f"{count}.ome.tif")


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("chunks", [(1, 16, 32), (2, 48, 160), (2, 10, 70), (3, 7, 70), (1, 10, 7), (3, 50, 70)])
def test_ome_tif_of_every_chunk(tmp_path, kind, chunks):
    values = make(tmp_path / "s" / "x", (3, 50, 70), "u2", kind, chunks=chunks)
    with tifffile.TiffFile(cat(tmp_path / "s" / "x", "ome.tif", tmp_path / "x.ome.tif")) as file:
        same(file.asarray(), values)
        page = file.pages[0]
        if chunks[1] % 16 == 0 and chunks[2] % 16 == 0:
            assert page.is_tiled and page.chunks == chunks[1:]
        elif chunks[2] == 70:
            assert not page.is_tiled and page.rowsperstrip == chunks[1]
        else:
            assert not page.is_tiled and page.rowsperstrip == 50


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "axes, shape", [("tczyx", (2, 3, 4, 200, 300)), ("czyx", (2, 3, 200, 300)), ("tcyx", (2, 3, 200, 300)), ("yx", (200, 300))]
)
def test_pyramid(tmp_path, zarr_format, axes, shape):
    chunks = (1,) * (len(shape) - 2) + (64, 64)
    labels = ["DAPI", "GFP & <more>", "µ"][: shape[axes.index("c")]] if "c" in axes else None
    levels = ome(tmp_path / "i", shape, "u2", axes, zarr_format=zarr_format, chunks=chunks, labels=labels)
    out = cat(tmp_path / "i", "ome.tif", tmp_path / "i.ome.tif")
    with tifffile.TiffFile(out) as file:
        assert len(file.series) == 1 and len(file.series[0].levels) == 3
        for found, expected in zip(file.series[0].levels, levels):
            same(found.asarray().reshape(expected.shape), expected)
            assert found.axes == axes.upper()
        assert "&#" not in file.ome_metadata and file.ome_metadata.endswith("OME>"), "Bio-Formats reads neither"
        assert tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Name"] == "picture"
        said = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
        assert (said["PhysicalSizeX"], said["PhysicalSizeXUnit"], said["PhysicalSizeY"]) == (0.2, "µm", 0.25)
        if "t" in axes:
            assert (said["TimeIncrement"], said["TimeIncrementUnit"]) == (2.5, "s")
        if labels:
            assert [channel["Name"] for channel in said["Channel"]] == labels
            assert [channel["Color"] for channel in said["Channel"]][:2] == [-16776961, 16711935]
    tiffinfo(out)
    # The same of each array alone.
    with tifffile.TiffFile(cat(tmp_path / "i" / "s1", "ome.tif", tmp_path / "s1.ome.tif")) as file:
        assert len(file.series[0].levels) == 1
        same(file.asarray().reshape(levels[1].shape), levels[1])
        said = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
        assert (said["PhysicalSizeX"], said["PhysicalSizeXUnit"]) == (0.4, "µm")


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_pyramid_of_an_older_version(tmp_path, version):
    levels = ome(tmp_path / "i", (2, 3, 2, 50, 70), "u1", zarr_format=2, labels=["a", "b", "c"])
    group = zarr.open_group(str(tmp_path / "i"))
    image = {"version": version, "datasets": [{"path": f"s{level}"} for level in range(3)]}
    if version == "0.3":
        image["axes"] = list("tczyx")
    group.attrs["multiscales"] = [image]
    with tifffile.TiffFile(cat(tmp_path / "i", "ome.tif", tmp_path / "i.ome.tif")) as file:
        assert file.series[0].axes == "TCZYX" and len(file.series[0].levels) == 3
        for found, expected in zip(file.series[0].levels, levels):
            same(found.asarray(), expected)
        assert "PhysicalSize" not in file.ome_metadata and 'Name="c"' in file.ome_metadata


def test_a_pyramid_has_levels_of_the_same_pages(tmp_path):
    levels = ome(tmp_path / "i", (8, 200, 300), "u1", "zyx", chunks=(1, 64, 64), factors=dict(z=2, y=2, x=2))
    with tifffile.TiffFile(cat(tmp_path / "i", "ome.tif", tmp_path / "i.ome.tif")) as file:
        assert len(file.series[0].levels) == 1
        same(file.asarray(), levels[0])


def test_ome_tif_of_samples_within_pixels(tmp_path):
    values = make(tmp_path / "s" / "x", (2, 50, 70, 3), "u1", dimension_names=list("zyxc"), chunks=(1, 32, 32, 3))
    with tifffile.TiffFile(cat(tmp_path / "s" / "x", "ome.tif", tmp_path / "x.ome.tif")) as file:
        assert file.series[0].axes == "ZYXS"
        same(file.asarray(), values)
        assert file.pages[0].is_tiled


def test_ome_tif_needs_an_image(tmp_path):
    zarr.create_group(str(tmp_path / "g"))
    assert "no multiscales" in refused(tmp_path / "g", "ome.tif")
    make(tmp_path / "s" / "x", (2, 2, 2, 2, 5, 7), "u1")
    assert "one axis of time" in refused(tmp_path / "s" / "x", "ome.tif")


def test_header_of_a_long_pyramid(tmp_path):
    """20 GiB of tiles, whose places are in a header of a few MiB; with tiles of 16 there would be too many."""
    for name, side in [("a", 256), ("b", 16)]:
        shape = (10240, 1024, 1024)
        zarr.create_array(str(tmp_path / name), shape=shape, dtype="u2", chunks=(1, side, side))
        head = tmp_path / f"{name}.ome.tif"
        with subprocess.Popen(command(tmp_path / name, "ome.tif"), stdout=subprocess.PIPE) as running:
            head.write_bytes(running.stdout.read(32 << 20))
            running.stdout.close()
        with open(head, "r+b") as file:
            file.truncate((20 << 30) + (32 << 20))
        with tifffile.TiffFile(head) as file:
            assert file.series[0].shape == shape and file.pages[0].is_tiled == (name == "a")


@pytest.mark.skipif(not shutil.which("vips"), reason="libvips is not there")
def test_libvips_reads_pages_and_levels(tmp_path):
    levels = ome(tmp_path / "i", (3, 200, 300), "u2", "zyx", chunks=(1, 64, 64))
    out = cat(tmp_path / "i", "ome.tif", tmp_path / "i.ome.tif")
    for level, expected in enumerate(levels):
        for page in range(3):
            options = f"[page={page}" + (f",subifd={level - 1}]" if level else "]")
            subprocess.run(["vips", "rawsave", f"{out}{options}", str(tmp_path / "raw")], check=True)
            same(np.fromfile(tmp_path / "raw", "u2").reshape(expected.shape[1:]), expected[page])


def test_an_image_that_does_not_begin_at_the_origin_says_where_its_planes_are(tmp_path):
    root = zarr.create_group(tmp_path / "i")
    transforms = [{"type": "scale", "scale": [2, 0.5, 0.25]}, {"type": "translation", "translation": [10, 20, 30]}]
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
    datasets = [{"path": "0", "coordinateTransformations": transforms}]
    root.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    root.create_array("0", data=np.zeros((3, 50, 70), "u2"), chunks=(1, 32, 32))
    with tifffile.TiffFile(cat(tmp_path / "i", "ome.tif", tmp_path / "i.ome.tif")) as file:
        planes = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]["Plane"]
        assert [plane["PositionZ"] for plane in planes] == [10, 12, 14]
        assert {(plane["PositionX"], plane["PositionY"], plane["PositionXUnit"]) for plane in planes} == {(30, 20, "µm")}


@pytest.mark.parametrize("axes", ["xyz", "zxy", "cxyz", "yxz"])
def test_columns_and_rows_have_the_sizes_of_their_own_axes(tmp_path, axes):
    sizes, lens = {"x": 0.25, "y": 0.5, "z": 4.0, "c": 1.0}, {"x": 6, "y": 5, "z": 4, "c": 2}
    group = zarr.open_group(tmp_path / "image.zarr", mode="w", zarr_format=3)
    shape = [lens[axis] for axis in axes]
    array = group.create_array("0", shape=shape, chunks=shape, dtype="u2", dimension_names=list(axes))
    array[...] = np.arange(np.prod(shape)).reshape(shape)
    described = [{"name": axis, "type": "space", "unit": "micrometer"} if axis != "c" else {"name": "c", "type": "channel"} for axis in axes]
    scale = [{"type": "scale", "scale": [sizes[axis] for axis in axes]}]
    datasets = [{"path": "0", "coordinateTransformations": scale}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": described, "datasets": datasets}]}
    *outer, rows, columns = axes
    slices = next(axis for axis in outer if axis != "c")
    path = tmp_path / "image.tif"
    path.write_bytes(subprocess.check_output([ZARRFS, "cat", group.store.root, "--as", "ome.tif"]))
    with tifffile.TiffFile(path) as file:
        pixels = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
        np.testing.assert_array_equal(file.asarray(), array[...])
        assert file.pages[0].get_resolution("MICROMETER") == (1 / sizes[columns], 1 / sizes[rows])
    for letter, axis in (("X", columns), ("Y", rows), ("Z", slices)):
        assert (pixels[f"Size{letter}"], pixels[f"PhysicalSize{letter}"]) == (lens[axis], sizes[axis]), letter
    path.write_bytes(subprocess.check_output([ZARRFS, "cat", group.store.root / "0", "--as", "tif"]))
    with tifffile.TiffFile(path) as file:
        assert file.imagej_metadata["spacing"] == sizes[slices]
        x, y = (file.pages[0].tags[name].value for name in ("XResolution", "YResolution"))
        assert (x[1] / x[0], y[1] / y[0]) == (sizes[columns], sizes[rows])
    said = subprocess.check_output([ZARRFS, "info", group.store.root], text=True)
    assert f"ome.tif: the names of its axes (the columns are {columns}" in said or axes.endswith("yx")


def test_a_mount_of_images_lists_each_image_once(mount, tmp_path):
    ome(tmp_path / "s/i", (8, 200, 300), "u1", "zyx")
    with mount(tmp_path / "s", "--as", "ome.tif", "-o", "ro", copy=False) as m:
        assert sorted(os.listdir(m.path)) == ["i", "i.ome.tif"] and os.listdir(m / "i") == []
        assert (m / "i/s1.ome.tif").stat().st_size > 0
