"""References to messages in GRIB files, as kerchunk makes them and xarray reads them through ecCodes."""

import base64
import errno
import json
import subprocess

import eccodes
import kerchunk.combine
import kerchunk.grib2
import numpy as np
import pytest
import xarray as xr
from kerchunk.codecs import GRIBCodec

from mounts import BIN
from test_kerchunk import by_fsspec, mounted  # noqa: F401

X, Y = 24, 18
LATLON = dict(Ni=X, Nj=Y, latitudeOfFirstGridPointInDegrees=50, longitudeOfFirstGridPointInDegrees=0, latitudeOfLastGridPointInDegrees=33, longitudeOfLastGridPointInDegrees=23, iDirectionIncrementInDegrees=1, jDirectionIncrementInDegrees=1)
LAMBERT = dict(shortName="2t", gridType="lambert", Nx=X, Ny=Y, latitudeOfFirstGridPointInDegrees=21.138123, longitudeOfFirstGridPointInDegrees=237.280472, LaDInDegrees=38.5, LoVInDegrees=262.5, DxInMetres=220000, DyInMetres=180000, Latin1InDegrees=38.5, Latin2InDegrees=38.5, jScansPositively=1)
POLAR = dict(shortName="2t", gridType="polar_stereographic", Nx=X, Ny=Y, latitudeOfFirstGridPointInDegrees=20.19, longitudeOfFirstGridPointInDegrees=238.446, LaDInDegrees=60, orientationOfTheGridInDegrees=249.0, DxInMetres=397600, DyInMetres=397600.5, jScansPositively=1)
GRIDS = {
    "lambert": dict(LAMBERT, shapeOfTheEarth=6),
    "lambert of two parallels": dict(LAMBERT, shapeOfTheEarth=0, Latin1InDegrees=30.0, Latin2InDegrees=60.25),
    "lambert of a spheroid": dict(LAMBERT, shapeOfTheEarth=5),
    "polar": dict(POLAR, shapeOfTheEarth=6),
    "polar of the south": dict(POLAR, shapeOfTheEarth=6, LaDInDegrees=-60.0, latitudeOfFirstGridPointInDegrees=-20.19, projectionCentreFlag=128),
}
PACKINGS = ["grid_simple", "grid_complex", "grid_complex_spatial_differencing", "grid_jpeg", "grid_png", "grid_ccsds", "grid_ieee"]


def message(keys, packing="grid_ccsds", bits=16, values=None, bitmap=False):
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    for key, value in keys.items():
        eccodes.codes_set(handle, key, value)
    if values is None:
        values = np.round(280 + 20 * np.sin(np.arange(X * Y) / 17), 2)
    eccodes.codes_set_values(handle, np.arange(X * Y, dtype="f8"))
    if bitmap:
        eccodes.codes_set(handle, "bitmapPresent", 1)
        values = np.where(np.arange(X * Y) % 5 < 2, 9999.0, values)
    eccodes.codes_set(handle, "packingType", packing)
    eccodes.codes_set(handle, "bitsPerValue", bits)
    eccodes.codes_set_values(handle, values)
    found = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return found


def noise(number):
    return np.random.default_rng(number).normal(280, 10, X * Y)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Files of three days with two variables, and references to all of them."""
    directory = tmp_path_factory.mktemp("grib")
    references = []
    for day in range(3):
        keys = dict(LATLON, dataDate=20200101 + day)
        messages = [message(dict(keys, shortName="2t"), values=noise(day)), message(dict(keys, shortName="2d"), "grid_complex_spatial_differencing", values=noise(day + 10), bitmap=True)]
        path = directory / f"day{day}.grib2"
        path.write_bytes(b"".join(messages))
        references += kerchunk.grib2.scan_grib(str(path))
    identical = ["latitude", "longitude", "heightAboveGround", "step"]
    combined = kerchunk.combine.MultiZarrToZarr(references, concat_dims=["time"], identical_dims=identical).translate()
    (directory / "all.json").write_text(json.dumps(combined))
    return directory


def test_an_archive_of_grib_files_is_what_xarray_reads_through_fsspec(mounted, archive):
    want = by_fsspec(archive / "all.json").load()
    assert want.sizes == {"time": 3, "latitude": Y, "longitude": X}
    with mounted(archive / "all.json") as m:
        with xr.open_zarr(m.path, consolidated=False) as found:
            xr.testing.assert_identical(found.load(), want)
        with xr.open_dataset(m / "__root__.nc", engine="netcdf4") as nc:
            xr.testing.assert_equal(nc.load(), want)
        assert (m / "t2m/c/1/0/0").read_bytes() == want.t2m[1].values.tobytes()
        assert m.errors() == ""


def test_an_archive_of_grib_files_is_what_cfgrib_reads(mounted, archive):
    with mounted(archive / "all.json") as m:
        for day in range(3):
            single = xr.open_dataset(archive / f"day{day}.grib2", engine="cfgrib", backend_kwargs={"indexpath": ""})
            for name in ("t2m", "d2m"):
                found = np.load(m / f"{name}.npy")[day]
                assert found.astype("f4").tobytes() == single[name].values.tobytes()


def test_a_copy_of_an_archive_needs_neither_references_nor_grib(archive, tmp_path):
    want = by_fsspec(archive / "all.json").load()
    for options in ([], ["--format", "v2"], ["--codecs", "none"]):
        target = tmp_path / f"copy{len(options)}{options[-1:]}.zarr"
        subprocess.run([BIN, "convert", f"kerchunk+{archive}/all.json", target, *options], check=True, capture_output=True, timeout=120)
        with xr.open_zarr(target, consolidated=False) as found:
            xr.testing.assert_equal(found.load(), want)


def references(directory, messages, var="t", dtype="float64"):
    """Arrays with one message each."""
    refs = {".zgroup": json.dumps({"zarr_format": 2})}
    for number, data in enumerate(messages):
        codec = dict(id="grib", var=var, dtype=dtype)
        array = dict(zarr_format=2, shape=[Y, X], chunks=[Y, X], dtype=np.dtype(dtype).str, order="C", compressor=None, filters=[codec], fill_value=None)
        refs[f"a{number}/.zarray"] = json.dumps(array)
        refs[f"a{number}/0.0"] = "base64:" + base64.b64encode(data).decode()
    file = directory / "refs.json"
    file.write_text(json.dumps(refs))
    return file


def same(m, messages, var="t", dtype="float64"):
    """Compares the chunks with what kerchunk's codec returns."""
    for number, data in enumerate(messages):
        want = GRIBCodec(var, dtype).decode(data)
        assert (m / f"a{number}/c/0/0").read_bytes() == want.tobytes(), number


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_packing_has_the_values_of_eccodes(mounted, tmp_path, packing, dtype):
    # ecCodes encodes neither short noise nor a constant field as PNG.
    is_png = packing == "grid_png"
    messages = [message(LATLON, packing, bits, None if is_png else noise(bits), bitmap=bits % 8 == 0) for bits in (7, 8, 12, 16, 20)]
    if not is_png:
        messages.append(message(LATLON, packing, values=np.full(X * Y, 271.3)))
    for mode in ("iScansNegatively", "jPointsAreConsecutive", "alternativeRowScanning"):
        messages.append(message(dict(LATLON, **{mode: 1}), packing))
    with mounted(references(tmp_path, messages, dtype=dtype)) as m:
        try:
            same(m, messages, dtype=dtype)
        except OSError as error:
            # JPEG 2000 is not in the default build.
            assert packing == "grid_jpeg" and error.errno == errno.EOPNOTSUPP
            assert "was built without the feature jpeg2000" in m.errors()
            m.allow("jpeg2000")


@pytest.mark.parametrize("grid", GRIDS)
def test_coordinates_of_projected_grids_are_those_of_eccodes(mounted, tmp_path, grid):
    messages = [message(GRIDS[grid])]
    for var in ("latitude", "longitude"):
        with mounted(references(tmp_path, messages, var)) as m:
            same(m, messages, var)
    path = tmp_path / "one.grib2"
    path.write_bytes(messages[0])
    file = tmp_path / "one.json"
    file.write_text(json.dumps(kerchunk.grib2.scan_grib(str(path))[0]))
    with mounted(file) as m, xr.open_zarr(m.path, consolidated=False) as found:
        assert found.t2m.latitude.dims == ("y", "x")
        xr.testing.assert_identical(found.load(), by_fsspec(file).load())


def test_messages_that_are_not_read_are_refused_with_a_sentence(mounted, tmp_path):
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib1")
    first = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    good = message(LATLON)
    with mounted(references(tmp_path, [first, good[:-20], b"nothing", good])) as m:
        read = lambda number: (m / f"a{number}/c/0/0").read_bytes
        m.refused(errno.EOPNOTSUPP, "the message has edition 1 of GRIB; zarrfs reads edition 2", read(0))
        m.refused(errno.EIO, "bytes, the chunk has", read(1))
        m.refused(errno.EIO, "the chunk is not a GRIB message", read(2))
        assert read(3)() == GRIBCodec("t", "float64").decode(good).tobytes()
        for sentence in ("edition 1", "the chunk has", "not a GRIB message"):
            m.allow(sentence)


def test_coordinates_of_other_grids_are_refused_with_a_sentence(mounted, tmp_path):
    with mounted(references(tmp_path, [message(LATLON)], "latitude")) as m:
        m.refused(errno.EOPNOTSUPP, "does not compute the points of this grid, which has template 3.0", (m / "a0/c/0/0").read_bytes)
        m.allow("points of this grid")
