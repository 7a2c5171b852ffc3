"""The place of an array on a map, as GDAL reads it from `tif` and `hdr`: by GeoZarr, CF coordinates and grid mappings."""

import base64
import json
import subprocess

import numpy as np
import pytest
import tifffile
import zarr

from views import ZARRFS

SHAPE = (20, 30)
NORTH_UP = [500_000, 10, 0, 5_000_000, 0, -10]
UTM = "EPSG:32633"
SPATIAL = {"proj:code": UTM, "spatial:dimensions": ["Y", "X"], "spatial:transform": [10, 0, 500_000, 0, -10, 5_000_000]}
# A grid mapping of CF, and the same as PROJ writes it.
MAPPINGS = [
    (
        {"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": [30, 60], "latitude_of_projection_origin": 45,
         "longitude_of_central_meridian": 10, "earth_radius": 6_371_229},
        "+proj=lcc +lat_1=30 +lat_2=60 +lat_0=45 +lon_0=10 +R=6371229",
    ),
    (
        {"grid_mapping_name": "lambert_azimuthal_equal_area", "latitude_of_projection_origin": 52, "longitude_of_projection_origin": 10,
         "false_easting": 4_321_000, "false_northing": 3_210_000, "semi_major_axis": 6_378_137, "inverse_flattening": 298.257222101},
        "+proj=laea +lat_0=52 +lon_0=10 +x_0=4321000 +y_0=3210000 +ellps=GRS80",
    ),
    (
        {"grid_mapping_name": "polar_stereographic", "standard_parallel": 70, "straight_vertical_longitude_from_pole": -45},
        "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +datum=WGS84",
    ),
    (
        {"grid_mapping_name": "transverse_mercator", "latitude_of_projection_origin": 0, "longitude_of_central_meridian": 15,
         "scale_factor_at_central_meridian": 0.9996, "false_easting": 500_000},
        "+proj=tmerc +lat_0=0 +lon_0=15 +k=0.9996 +x_0=500000 +datum=WGS84",
    ),
    (
        {"grid_mapping_name": "albers_conical_equal_area", "standard_parallel": [29.5, 45.5], "latitude_of_projection_origin": 23,
         "longitude_of_central_meridian": -96, "semi_major_axis": 6_378_137, "semi_minor_axis": 6_356_752.3141},
        "+proj=aea +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +ellps=GRS80",
    ),
]  # fmt: skip


def add(group, name, dimensions, attributes, data):
    array = group.create_array(name, shape=data.shape, chunks=data.shape, dtype=data.dtype, dimension_names=dimensions)
    array[...] = data
    array.attrs.update(attributes)


def pixels(shape=SHAPE):
    return np.arange(np.prod(shape), dtype="f4").reshape(shape)


def place(path):
    """What GDAL says of a file: the transform, and the system as text."""
    said = json.loads(subprocess.run(["gdalinfo", "-json", path], check=True, capture_output=True).stdout)
    return said.get("geoTransform"), said.get("coordinateSystem", {}).get("wkt", "")


def lonlat(source, points):
    """Longitudes and latitudes of points in a system."""
    text = "".join(f"{x} {y}\n" for x, y in points)
    done = subprocess.run(["gdaltransform", "-s_srs", source, "-t_srs", "+proj=longlat +datum=WGS84"], input=text, check=True, capture_output=True, text=True)
    return np.array([[float(number) for number in line.split()[:2]] for line in done.stdout.splitlines()])


@pytest.fixture
def mounted_group(mount, tmp_path):
    def group(fill):
        fill(zarr.open_group(tmp_path / "map.zarr", mode="w", zarr_format=3))
        # GDAL looks for the header beside the elements.
        return mount(tmp_path / "map.zarr", "--views", "raw,hdr,tif", copy=False)

    return group


def test_gdal_places_an_array_of_geozarr_on_the_map(mounted_group):
    def fill(root):
        add(root, "plain", ["Y", "X"], SPATIAL, pixels())
        add(root, "node", ["Y", "X"], {**SPATIAL, "spatial:registration": "node"}, pixels())
        add(root, "turned", ["Y", "X"], {**SPATIAL, "spatial:transform": [9, 1, 500_000, 1, -9, 5_000_000]}, pixels())
        add(root, "other", ["Y", "X"], {**SPATIAL, "spatial:dimensions": ["lat", "lon"]}, pixels())
        levels = [{"asset": name, "spatial:transform": [step, 0, 500_000, 0, -step, 5_000_000]} for name, step in (("r10", 10), ("r20", 20))]
        pyramid = root.create_group("pyramid", attributes={"multiscales": {"layout": levels}, "proj:code": UTM, "spatial:dimensions": ["Y", "X"]})
        for name, shape in (("r10", SHAPE), ("r20", (10, 15))):
            add(pyramid.create_group(name), "b02", ["Y", "X"], {}, pixels(shape))

    with mounted_group(fill) as m:
        for name, transform in [
            ("plain", NORTH_UP), ("node", [499_995, 10, 0, 5_000_005, 0, -10]), ("turned", [500_000, 9, 1, 5_000_000, 1, -9]),
            ("pyramid/r10/b02", NORTH_UP), ("pyramid/r20/b02", [500_000, 20, 0, 5_000_000, 0, -20]),
        ]:  # fmt: skip
            found, wkt = place(m / f"{name}.tif")
            assert found == transform and 'ID["EPSG",32633]' in wkt, (name, found, wkt)
        assert place(m / "plain.raw")[0] == NORTH_UP and "UTM zone 33N" in place(m / "plain.raw")[1]
        assert place(m / "other.tif")[1] == ""
        said = json.loads(subprocess.run(["gdalinfo", "-json", m / "pyramid/r10/b02.tif"], check=True, capture_output=True).stdout)
        assert [level["size"] for level in said["bands"][0]["overviews"]] == [[15, 10]]
        with tifffile.TiffFile(m / "pyramid/r10/b02.tif") as file:
            np.testing.assert_array_equal(file.pages[1].asarray(), pixels((10, 15)))


def test_gdal_places_longitudes_and_latitudes_of_cf_on_the_map(mounted_group):
    def fill(root):
        add(root, "lat", ["lat"], {"units": "degrees_north"}, np.linspace(-47.5, 47.5, 20).astype("f4"))
        add(root, "lon", ["lon"], {"units": "degrees_east"}, np.arange(30, dtype="f4") * 12)
        add(root, "t", ["time", "lat", "lon"], {}, pixels((3, *SHAPE)))
        add(root.create_group("gauss"), "lat", ["lat"], {"units": "degrees_north"}, np.linspace(-1, 1, 20) ** 3 * 90)
        add(root["gauss"], "lon", ["lon"], {"units": "degrees_east"}, np.arange(30, dtype="f4") * 12)
        add(root["gauss"], "t", ["lat", "lon"], {}, pixels())

    with mounted_group(fill) as m:
        transform, wkt = place(m / "t.tif")
        assert np.allclose(transform, [-6, 12, 0, -50, 0, 5]) and 'ID["EPSG",4326]' in wkt
        # Rows at unequal distances have no transform.
        assert place(m / "gauss/t.tif")[1] == ""


def test_gdal_places_arrays_by_their_own_axes_and_no_others(mounted_group):
    """Axes x and y in the other order, and with another axis among the last two; the system as GDAL's driver of Zarr writes it."""

    def fill(root):
        add(root, "x", ["x"], {"units": "m", "standard_name": "projection_x_coordinate"}, np.arange(30) * 10.0 + 500_005)
        add(root, "y", ["y"], {"units": "m", "standard_name": "projection_y_coordinate"}, np.arange(20) * -10.0 + 4_999_995)
        crs = {"_CRS": {"url": "http://www.opengis.net/def/crs/EPSG/0/32633"}, "_FillValue": np.float32(-9999).astype("f8").tobytes()}
        crs["_FillValue"] = base64.b64encode(crs["_FillValue"]).decode()
        for dimensions in (["y", "x"], ["x", "y"], ["x", "time", "y"], ["y", "x", "time"], ["time", "x", "y"]):
            shape = [{"x": 30, "y": 20, "time": 2}[name] for name in dimensions]
            add(root, "_".join(dimensions), dimensions, crs, pixels(shape))

    with mounted_group(fill) as m:
        for name, transform in [
            ("y_x", NORTH_UP), ("x_y", [500_000, 0, 10, 5_000_000, -10, 0]), ("time_x_y", [500_000, 0, 10, 5_000_000, -10, 0]),
        ]:  # fmt: skip
            found, wkt = place(m / f"{name}.tif")
            assert found == transform and 'ID["EPSG",32633]' in wkt, (name, found, wkt)
        assert place(m / "y_x.raw")[0] == NORTH_UP
        for name in ("y_x.tif", "y_x.raw"):
            said = json.loads(subprocess.run(["gdalinfo", "-json", m / name], check=True, capture_output=True).stdout)
            assert said["bands"][0]["noDataValue"] == -9999
        for name in ("x_time_y", "y_x_time"):
            assert place(m / f"{name}.tif")[1] == ""
            said = subprocess.check_output([ZARRFS, "info", m.store / name], text=True)
            assert said.count("the place on a map, whose x and y are not its last two axes") == 2, said
        said = subprocess.check_output([ZARRFS, "info", m.store / "x_y"], text=True)
        assert "EPSG:32633, one column 0, -10, one row 10, 0, corner at 500000, 5000000" in said


@pytest.mark.parametrize(("mapping", "proj"), MAPPINGS, ids=[mapping["grid_mapping_name"] for mapping, _ in MAPPINGS])
def test_gdal_knows_the_projection_of_a_grid_mapping(mounted_group, mapping, proj):
    def fill(root):
        add(root, "x", ["x"], {"units": "m"}, np.arange(30) * 1000.0 + 300_000)
        add(root, "y", ["y"], {"units": "m"}, np.arange(20)[::-1] * 1000.0 + 200_000)
        root.create_array("crs", shape=(), dtype="i4").attrs.update(mapping)
        add(root, "v", ["y", "x"], {"grid_mapping": "crs"}, pixels())

    with mounted_group(fill) as m:
        for name in ("v.tif", "v.raw"):
            transform, wkt = place(m / name)
            assert transform == [299_500, 1000, 0, 219_500, 0, -1000], name
            points = [(299_500, 219_500), (329_500, 199_500)]
            assert np.allclose(lonlat(wkt, points), lonlat(proj, points), atol=1e-7), (name, wkt)
