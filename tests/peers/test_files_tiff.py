"""TIFF files as hierarchies: every array equals what tifffile and rasterio read, and the attributes of OME-Zarr, CF and
GeoZarr say where it lies."""

import base64
import struct
import warnings

import numpy as np
import pytest
import tifffile
import xarray
import zarr

rasterio = pytest.importorskip("rasterio")
NAMES = {"X": "x", "Y": "y", "S": "c", "C": "c", "Z": "z", "T": "t", "I": "page", "Q": "page"}


def numbers(*shape, dtype="u2"):
    """Elements that compress, and of which no two rows are equal."""
    steps = np.random.default_rng(len(shape)).integers(0, 9, shape)
    return (np.cumsum(steps, axis=-1) % 251).astype(dtype)


def arrays(group):
    """The arrays of a group and below, by their paths."""
    for name, node in sorted(group.members(max_depth=None)):
        if isinstance(node, zarr.Array):
            yield name, node


def compare(mount, path, tolerance=0):
    """Every level of every series of tifffile is one array, and there are no others."""
    with mount(path, "-o", "ro", copy=False) as mounted, tifffile.TiffFile(path) as file:
        found = dict(arrays(zarr.open_group(mounted.path, mode="r", zarr_format=3)))
        levels = [level for series in file.series for level in series.levels]
        assert len(found) == len(levels), (found, levels)
        for level, (name, array) in zip(levels, found.items(), strict=True):
            names = list(array.metadata.dimension_names)
            kept = [(letter, count) for letter, count in zip(level.axes, level.shape, strict=True)]
            order = [names.index(NAMES.get(letter, letter.lower())) for letter, _ in kept]
            values, expected = array[...].transpose(order), level.asarray()
            assert values.dtype == expected.dtype, (path, name)
            if tolerance:
                assert abs(values.astype(int) - expected.astype(int)).max() <= tolerance, (path, name)
            else:
                np.testing.assert_array_equal(values, expected, f"{path} {name}")
        yield mounted, found


def same(mount, path, tolerance=0):
    for _ in compare(mount, path, tolerance):
        pass


def test_every_type_in_both_byte_orders(tmp_path, mount):
    # The last of the strips has fewer rows than the others.
    for dtype in ["u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8"]:
        for order in "<>":
            path = tmp_path / f"{dtype}{ord(order)}.tif"
            compression = {"f4": None, "c8": None}.get(dtype, "zlib")
            values = numbers(37, 41, dtype=dtype)
            tifffile.imwrite(path, values, byteorder=order, compression=compression, rowsperstrip=10, metadata=None)
            same(mount, path)


CODECS = [
    {"compress": "lzw", "predictor": 2},
    {"compress": "lzw", "predictor": 3, "dtype": "float32"},
    {"compress": "deflate", "predictor": 2, "tiled": True, "blockxsize": 32, "blockysize": 16},
    {"compress": "zstd", "predictor": 3, "dtype": "float64", "tiled": True, "blockxsize": 32, "blockysize": 16},
    {"compress": "packbits"},
    {"compress": "lzma", "interleave": "band"},
    {"compress": "zstd", "interleave": "band", "ENDIANNESS": "BIG", "BIGTIFF": "YES"},
    {"compress": "jpeg", "dtype": "uint8", "photometric": "YCBCR", "tiled": True, "blockxsize": 32, "blockysize": 16},
    {"compress": "jpeg", "dtype": "uint8", "blockysize": 16},
    {"compress": "webp", "dtype": "uint8", "WEBP_LOSSLESS": "YES"},
]


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_every_codec_of_gdal(tmp_path, mount):
    for number, options in enumerate(CODECS):
        options = {"dtype": "uint16", **options}
        path = tmp_path / f"{number}.tif"
        # An image with loss is a smooth one.
        values = (numbers(3, 101, 90) // (8 if options["compress"] == "jpeg" else 1)).astype(options["dtype"])
        with rasterio.open(path, "w", driver="GTiff", count=3, height=101, width=90, **options) as file:
            file.write(values)
        with rasterio.open(path) as file:
            expected = file.read()
        with mount(path, "-o", "ro", copy=False) as mounted:
            array = zarr.open_group(mounted.path, mode="r")[str(number)]
            found = array[...]
            if array.metadata.dimension_names[0] == "y":
                found = found.transpose(2, 0, 1)
            most = 5 if options["compress"] == "jpeg" else 0
            assert abs(found.astype(float) - expected).max() <= most, options


def test_pages_are_the_images_that_tifffile_shows(tmp_path, mount):
    path = tmp_path / "stack.tif"
    tifffile.imwrite(path, numbers(4, 40, 50), metadata=None, compression="zlib", rowsperstrip=16)
    same(mount, path)
    tifffile.imwrite(path, numbers(2, 5, 40, 50), metadata={"axes": "TZYX"})
    same(mount, path)
    tifffile.imwrite(path, numbers(5, 40, 50), metadata={"axes": "ZYX"}, contiguous=True)
    same(mount, path)
    with tifffile.TiffWriter(path) as file:
        for shape, dtype in [((40, 50), "u2"), ((40, 50), "u2"), ((20, 30), "u1"), ((10, 9, 3), "u1")]:
            photometric = "rgb" if len(shape) == 3 else None
            file.write(numbers(*shape, dtype=dtype), metadata=None, photometric=photometric)
    same(mount, path)
    with tifffile.TiffWriter(path, bigtiff=True) as file:
        values = numbers(3, 256, 320)
        file.write(values, subifds=2, tile=(64, 64), metadata=None)
        file.write(values[:, ::2, ::2], subfiletype=1, tile=(64, 64), metadata=None)
        file.write(values[:, ::4, ::4], subfiletype=1, tile=(64, 64), metadata=None)
    for mounted, found in compare(mount, path):
        ome = zarr.open_group(mounted.path, mode="r").attrs["ome"]["multiscales"][0]
        assert [dataset["path"] for dataset in ome["datasets"]] == list(found) == ["0", "1", "2"]
        assert ome["datasets"][2]["coordinateTransformations"] == [{"type": "scale", "scale": [1, 4, 4]}]


@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_hyperstacks_of_imagej(tmp_path, mount, dtype):
    path = tmp_path / "stack.tif"
    values = numbers(2, 3, 4, 40, 50, dtype=dtype)
    metadata = {"axes": "TZCYX", "spacing": 0.5, "unit": "um", "finterval": 0.1}
    tifffile.imwrite(path, values, imagej=True, resolution=(4.0, 5.0), metadata=metadata)
    for mounted, _ in compare(mount, path):
        image = zarr.open_group(mounted.path, mode="r").attrs["ome"]["multiscales"][0]
        assert [axis["name"] for axis in image["axes"]] == list("tczyx")
        assert [axis.get("unit") for axis in image["axes"]] == ["second", None, *["micrometer"] * 3]
        scale = image["datasets"][0]["coordinateTransformations"][0]["scale"]
        np.testing.assert_allclose(scale, [0.1, 1, 0.5, 0.2, 0.25])
        # What zarrfs makes of it again is the same hyperstack.
        view = mounted / "stack.tif"
        np.testing.assert_array_equal(tifffile.imread(view), tifffile.imread(path))
    rgb = tmp_path / "rgb.tif"
    tifffile.imwrite(rgb, numbers(4, 40, 50, 3, dtype="u1"), imagej=True, metadata={"axes": "ZYXS"})
    same(mount, rgb)


@pytest.mark.parametrize("axes", ["TZCYX", "TCZYX", "ZTCYX", "CTZYX", "ZCTYX", "CZTYX"])
def test_ome_tiff_in_every_order(tmp_path, mount, axes):
    path = tmp_path / "x.ome.tif"
    shape = [{"T": 2, "Z": 3, "C": 4, "Y": 40, "X": 50}[letter] for letter in axes]
    sizes = {"PhysicalSizeX": 0.1, "PhysicalSizeY": 0.2, "PhysicalSizeZ": 1.5, "TimeIncrement": 2.0}
    units = {f"PhysicalSize{axis}Unit": "µm" for axis in "XYZ"} | {"TimeIncrementUnit": "s"}
    metadata = {"axes": axes, "Channel": {"Name": list("abcd")}, **sizes, **units}
    tifffile.imwrite(path, numbers(*shape), ome=True, metadata=metadata)
    for mounted, _ in compare(mount, path):
        ome = zarr.open_group(mounted.path, mode="r").attrs["ome"]
        image = ome["multiscales"][0]
        assert [axis["name"] for axis in image["axes"]] == list("tczyx")
        scale = image["datasets"][0]["coordinateTransformations"][0]["scale"]
        assert scale == [2.0, 1, 1.5, 0.2, 0.1]
        assert [channel["label"] for channel in ome["omero"]["channels"]] == list("abcd")


def test_ome_tiff_with_colors_levels_and_several_images(tmp_path, mount):
    path = tmp_path / "x.ome.tif"
    tifffile.imwrite(path, numbers(40, 50, 3, dtype="u1"), photometric="rgb", ome=True)
    for mounted, found in compare(mount, path):
        assert found["0"].shape == (3, 40, 50)
    with tifffile.TiffWriter(path, bigtiff=True, ome=True) as file:
        values, options = numbers(2, 3, 256, 320, dtype="u1"), {"tile": (64, 64), "compression": "zlib"}
        file.write(values, subifds=2, metadata={"axes": "CZYX"}, **options)
        file.write(values[..., ::2, ::2], subfiletype=1, **options)
        file.write(values[..., ::4, ::4], subfiletype=1, **options)
    same(mount, path)
    with tifffile.TiffWriter(path, ome=True) as file:
        file.write(numbers(2, 40, 50), metadata={"axes": "CYX"})
        file.write(numbers(30, 20), metadata={"axes": "YX"})
    for mounted, found in compare(mount, path):
        assert list(found) == ["0/0", "1/0"]
        assert zarr.open_group(mounted.path, mode="r").attrs["ome"]["bioformats2raw.layout"] == 3


def placed(path, dataset, level, expected):
    """The array, its coordinates and its place are those of rasterio."""
    array = dataset[path.stem]
    values = array.values if array.ndim == 3 else array.values[None]
    np.testing.assert_array_equal(values, expected.read(), f"{path} {level}")
    np.testing.assert_allclose(array.attrs["spatial:transform"], tuple(expected.transform)[:6], rtol=1e-12)
    mapping = dataset["spatial_ref"].attrs
    assert rasterio.CRS.from_user_input(mapping["spatial_ref"]) == expected.crs
    geo = [float(part) for part in mapping["GeoTransform"].split()]
    np.testing.assert_allclose(geo, expected.transform.to_gdal(), rtol=1e-12)
    if not expected.transform.b:
        x, y = expected.xy(expected.height - 1, expected.width - 1)
        np.testing.assert_allclose([dataset.x[-1], dataset.y[-1]], [x, y], rtol=1e-12)
    if expected.nodata is not None:
        np.testing.assert_equal(array.attrs["_FillValue"], expected.nodata)


@pytest.mark.parametrize("code", [32633, 4326, 3035, 3857])
def test_geotiff_with_overviews(tmp_path, mount, code):
    path = tmp_path / "map.tif"
    transform = rasterio.Affine(10, 0 if code != 3035 else 2, 500000, 0, -10, 4000000)
    if code == 4326:
        transform = rasterio.Affine(0.5, 0, -180, 0, -0.5, 90)
    dtype, nodata = ("float32", float("nan")) if code == 4326 else ("int16", -5)
    options = {"tiled": True, "blockxsize": 128, "blockysize": 128, "compress": "zstd", "nodata": nodata}
    values = numbers(2, 361, 500, dtype=dtype)
    with rasterio.open(
        path, "w", driver="GTiff", count=2, height=361, width=500, dtype=dtype, crs=f"EPSG:{code}",
        transform=transform, **options,
    ) as file:
        file.write(values)
        file.scales, file.offsets = [0.1, 0.1], [1.0, 1.0]
        file.update_tags(WHAT="a & b")
    for overviews in [[], [2, 4]]:
        if overviews:
            with rasterio.open(path, "r+") as file:
                file.build_overviews(overviews, rasterio.enums.Resampling.nearest)
        with mount(path, "-o", "ro", copy=False) as mounted:
            for level in range(len(overviews) + 1):
                group = str(level) if overviews else None
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    dataset = xarray.open_zarr(
                        mounted.path, group=group, consolidated=False, mask_and_scale=False, decode_coords=False
                    )
                options = {"overview_level": level - 1} if level else {}
                with rasterio.open(path, **options) as expected:
                    placed(path, dataset, level, expected)
                attributes = dataset["map"].attrs
                assert attributes["proj:code"] == f"EPSG:{code}"
            array = zarr.open_group(mounted.path, mode="r")["0/map" if overviews else "map"]
            assert (array.attrs["scale_factor"], array.attrs["add_offset"], array.attrs["WHAT"]) == (0.1, 1.0, "a & b")
            if dtype == "float32":
                assert np.isnan(struct.unpack("<d", base64.b64decode(array.attrs["_FillValue"]))[0])
            np.testing.assert_equal(array.fill_value, nodata)


def test_what_is_not_read_is_an_array_that_cannot_be_read(tmp_path, mount):
    path = tmp_path / "bits.tif"
    tifffile.imwrite(path, numbers(40, 48) > 100, metadata=None)
    with mount(path, "-o", "ro", copy=False) as mounted:
        array = zarr.open_group(mounted.path, mode="r")["bits"]
        assert array.shape == (40, 48)
        with pytest.raises(OSError):
            array[...]
        assert "unsigned integers of 1 bits" in mounted.errors()
        mounted.allow("unsigned integers of 1 bits")
