"""References of kerchunk and VirtualiZarr, as xarray reads them through fsspec."""

import base64
import contextlib
import errno
import json
import subprocess

import fsspec
import h5py
import kerchunk.combine
import kerchunk.df
import kerchunk.hdf
import numpy as np
import pytest
import virtualizarr
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore

from hierarchies import assert_same
from mounts import BIN, Mount, until_end
from virtualizarr.parsers import HDFParser

TIMES, Y, X = 6, 40, 30


def elements(number):
    return np.random.default_rng(number).normal(280, 20, (TIMES, Y, X)).astype("f4")


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """NetCDF4 files of three days, as models write them: chunks, shuffle, deflate, packed integers."""
    directory = tmp_path_factory.mktemp("archive")
    for day in range(3):
        times = np.arange(TIMES, dtype="i4") + day * TIMES
        coordinates = {"time": ("time", times, {"units": "hours since 2020-01-01"}), "y": np.arange(Y, dtype="f8"), "x": np.arange(X) * 0.5}
        data = xr.Dataset(
            {
                "t2m": (("time", "y", "x"), elements(day), {"units": "K", "standard_name": "air_temperature"}),
                "tp": (("time", "y", "x"), (elements(day + 10) / 10).round(1)),
            },
            coordinates,
            {"title": "a model", "Conventions": "CF-1.8"},
        )
        packed = dict(dtype="i2", scale_factor=0.1, add_offset=2.0, _FillValue=-32768)
        encoding = {
            "t2m": dict(zlib=True, shuffle=True, complevel=4, chunksizes=(2, 20, 10)),
            "tp": dict(zlib=True, fletcher32=True, chunksizes=(1, 40, 30), **packed),
        }
        data.to_netcdf(directory / f"day{day}.nc", engine="netcdf4", encoding=encoding, unlimited_dims=["time"])
    return directory


def kerchunked(archive, target):
    """One tree of all files, by kerchunk."""
    singles = []
    for path in sorted(archive.glob("*.nc")):
        with path.open("rb") as file:
            singles.append(kerchunk.hdf.SingleHdf5ToZarr(file, str(path), inline_threshold=100).translate())
    combined = kerchunk.combine.MultiZarrToZarr(singles, concat_dims=["time"], identical_dims=["x", "y"]).translate()
    target.write_text(json.dumps(combined))


def two_days(directory):
    """The archive of docs/references.md."""
    directory.mkdir()
    for day in range(2):
        t2m = np.arange(192, dtype="f4").reshape(4, 6, 8) + day
        coordinates = {"time": np.arange(4) + 4 * day, "y": np.arange(6.0), "x": np.arange(8.0)}
        data = xr.Dataset({"t2m": (("time", "y", "x"), t2m)}, coordinates)
        encoding = {"t2m": {"zlib": True, "chunksizes": (1, 6, 8)}}
        data.to_netcdf(directory / f"day{day}.nc", engine="netcdf4", encoding=encoding)
    kerchunked(directory, directory / "all.json")


def in_parquet(archive, target):
    """The same as Parquet files, several for `t2m`."""
    beside = target.with_name("beside.json")
    kerchunked(archive, beside)
    kerchunk.df.refs_to_dataframe(json.loads(beside.read_text()), str(target), record_size=7)


def virtualized(archive, target):
    """The same by VirtualiZarr."""
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    paths = [f"file://{path}" for path in sorted(archive.glob("*.nc"))]
    single = [virtualizarr.open_virtual_dataset(path, registry=registry, parser=HDFParser(), loadable_variables=["time", "x", "y"], decode_times=False) for path in paths]
    combined = xr.concat(single, dim="time", coords="minimal", compat="override", combine_attrs="override")
    combined.vz.to_kerchunk(str(target), format="json")


WRITERS = {"kerchunk": (kerchunked, "refs.json"), "parquet": (in_parquet, "refs.parq"), "virtualizarr": (virtualized, "refs.json")}


@pytest.fixture
def mounted(tmp_path):
    """`with mounted(file, *options) as m:` mounts references, or a node of them."""

    @contextlib.contextmanager
    def mounted(file, *options, node=""):
        with until_end(Mount(file.parent, tmp_path / "mnt", *options, source=f"kerchunk+{file}{node}")) as m:
            assert "mounted read-only, because it refers to parts of other files" in m.stderr
            m.expect("mounted read-only")
            yield m

    return mounted


def by_fsspec(file):
    """What xarray reads through fsspec."""
    mapper = fsspec.get_mapper("reference://", fo=str(file), remote_protocol="file")
    return xr.open_dataset(mapper, engine="zarr", backend_kwargs={"consolidated": False})


@pytest.mark.parametrize("writer", WRITERS)
def test_references_are_what_xarray_reads_through_fsspec(mounted, archive, tmp_path, writer):
    write, name = WRITERS[writer]
    file = tmp_path / name
    write(archive, file)
    want = by_fsspec(file).load()
    assert want.sizes == {"time": 3 * TIMES, "y": Y, "x": X}
    with mounted(file, "--allow-virtual", str(archive)) as m:
        with xr.open_zarr(m.path, consolidated=False) as found:
            xr.testing.assert_identical(found.load(), want)
        with xr.open_dataset(m / "__root__.nc", engine="netcdf4") as nc:
            xr.testing.assert_equal(nc.load(), want)
            assert nc.t2m.attrs == want.t2m.attrs
        assert_same(np.load(m / "t2m.npy"), np.concatenate([elements(day) for day in range(3)]))
        chunk = (m / "t2m/c/0/0/0").read_bytes()
        assert chunk == elements(0)[:2, :20, :10].astype("f4").tobytes()
        assert m.errors() == ""
    with mounted(file, "--allow-virtual", f"file://{archive}", node="#t2m") as m:
        with h5py.File(str(m.path / "__root__.h5")) as h5:
            (name,) = [name for name in h5 if h5[name].ndim == 3]
            assert_same(h5[name][...], np.concatenate([elements(day) for day in range(3)]))


def test_references_below_their_own_directory_need_no_permission(mounted, archive, tmp_path):
    for number, spelled in enumerate(("{name}", "./{name}", "{path}", "file://{path}", "local://{path}")):
        file = archive / f"refs{number}.json"
        path = archive / "day0.nc"
        with path.open("rb") as source:
            url = spelled.format(name=path.name, path=path)
            file.write_text(json.dumps(kerchunk.hdf.SingleHdf5ToZarr(source, url).translate()))
        with mounted(file) as m:
            assert_same(np.load(m / "t2m.npy"), elements(0), spelled)


def test_other_places_need_permission_and_may_be_replaced(mounted, archive, tmp_path):
    file = tmp_path / "refs.json"
    with (archive / "day0.nc").open("rb") as source:
        references = kerchunk.hdf.SingleHdf5ToZarr(source, "s3://noaa-archive/2020/day0.nc").translate()
    array = json.loads(references["refs"]["t2m/.zarray"])
    references["refs"]["secret/.zarray"] = json.dumps({**array, "shape": [10, Y, X]})
    for number, url in enumerate(["/etc/passwd", "../secret", f"{archive}/../secret", "s3://noaa-archive/2020/../x", "s3://noaa/2020/day0.nc"]):
        references["refs"][f"secret/{number}.0.0"] = [url, 0, 10]
    file.write_text(json.dumps(references))
    (tmp_path.parent / "secret").write_text("secret, and more of it")
    with mounted(file) as m:
        m.expect("chunks cannot be read: the reference leads to s3://noaa-archive/2020/day0.nc: if it may be read, type `zarrfs mount .* --allow-virtual s3://noaa-archive`$")
        m.allow("chunks cannot be read: ")
        assert (m / "t2m/c/0/0/0").stat().st_size == 2 * 20 * 10 * 4
        m.refused(errno.EACCES, "refs.json --allow-virtual s3://noaa-archive`", (m / "t2m/c/0/0/0").read_bytes)
    with mounted(file, "--allow-virtual", f"s3://noaa-archive/2020={archive}") as m:
        m.allow("chunks cannot be read: ")
        assert_same(np.load(m / "t2m.npy"), elements(0))
        for number in range(5):
            with pytest.raises(PermissionError):
                (m / f"secret/c/{number}/0/0").read_bytes()
        m.allow("the reference leads to ")


def test_all_forms_of_references_are_read(mounted, tmp_path):
    raw = np.random.default_rng(1).integers(0, 256, 4096, dtype="u1")
    raw.tofile(tmp_path / "raw.bin")
    raw[:16].tofile(tmp_path / "whole 1.bin")
    array = dict(zarr_format=2, shape=[128], chunks=[16], dtype="|u1", order="C", compressor=None, filters=None, fill_value=0)
    refs = {
        ".zgroup": {"zarr_format": 2},
        ".zattrs": json.dumps({"title": "täst \U0001f9ca \"quoted\""}),
        "x/.zarray": array,
        "x/0": ["{{u}}/raw.bin", 5, 16],
        "x/1": ["{{ f(d='raw') }}", 100, 16],
        "x/2": ["{{u}}/whole 1.bin"],
        "x/3": "base64:" + base64.b64encode(raw[:16].tobytes()).decode(),
        "x/4": "exactly 16 bytes",
        "g/deep/.zgroup": json.dumps({"zarr_format": 2}),
    }
    gen = {"key": "x/{{ 5 + i }}", "url": "{{u}}/raw.bin", "offset": "{{ (i + 1) * 1000 - 2 }}", "length": "16", "dimensions": {"i": {"stop": 2}}}
    templates = {"u": str(tmp_path), "f": f"{tmp_path}/{{{{d}}}}.bin"}
    file = tmp_path / "refs.json"
    file.write_text(json.dumps({"version": 1, "templates": templates, "gen": [gen], "refs": refs}, indent=3))
    pieces = [raw[5:21], raw[100:116], raw[:16], raw[:16], np.frombuffer(b"exactly 16 bytes", "u1"), raw[998:1014], raw[1998:2014], np.zeros(16, "u1")]
    with mounted(file) as m:
        assert_same(np.load(m / "x.npy"), np.concatenate(pieces))
        assert not (m / "x/c/7").exists() and (m / "g/deep").is_dir()
        assert json.loads((m / "zarr.json").read_text())["attributes"]["title"] == "täst \U0001f9ca \"quoted\""
    # fsspec reads the same, but for `gen`, which it leaves out without Jinja.
    zero = {key: value for key, value in refs.items() if not (isinstance(value, list) and "{{" in value[0])}
    zero |= {"x/0": ["raw.bin", 5, 16], "x/1": ["raw.bin", 100, 16], "x/2": ["whole 1.bin"]}
    file.write_text(json.dumps(zero))
    with mounted(file) as m:
        assert_same(np.load(m / "x.npy")[:80], np.concatenate(pieces[:5]))


WRONG = {
    "[]": "not kerchunk references: it is not a JSON object",
    "": "not kerchunk references",
    '{"version": 2, "refs": {}}': "version 2 of kerchunk references; zarrfs reads version 1, and those without a version",
    '{"version": 0, "refs": {}}': "references of version 0 have no member `version`",
    '{"version": 1, "refs": {"a\\u0000": "x"}}': "or have a NUL",
    '{"version": 1, "refs": { ': "the JSON ends early: expected a string",
    '{"version": 1}': "it has no member `refs`",
    '{"a/../b": "x"}': "invalid key of a reference",
    '{"a": ["x", 1]}': "expected [URL] or [URL, OFFSET, LENGTH] as a reference",
    '{"a": ["x", -1, 2]}': "expected an integer from 0 to 2^64 - 1",
    '{"a": ["x", 1.5, 2]}': "expected an integer from 0 to 2^64 - 1",
    '{"a": [null, 1, 2]}': "the reference has no URL",
    '{"version": 1, "refs": {"a": [["x"]]}}': "a: the URL of the reference is not a string",
    '{"version": 1, "refs": [[[': "`refs` is not an object",
    '{"a": "base64:????"}': "base64: ",
    '{"a": ["x", 1, 2]': "the JSON ends early",
    '{"a": "x" "b": "y"}': "invalid JSON at byte 10: expected a comma",
    '{"a": tru}': "a reference is a string, an object or a list",
    '{"version": 1, "templates": {"u": "x"}, "refs": {"a": ["{{u|upper}}"]}}': 'the expression "u|upper" in a template; zarrfs knows',
    '{"version": 1, "templates": {"u": "x"}, "refs": {"a": ["{{v}}"]}}': 'no template "v"',
    '{"version": 1, "refs": {}, "gen": [{"key": "{{i}}", "url": "x", "dimensions": {"i": {"stop": 9999999999}}}]}': "`gen` makes more than",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_references_are_refused_with_a_sentence(tmp_path, text):
    file = tmp_path / "refs.json"
    file.write_text(text)
    done = subprocess.run([BIN, "info", f"kerchunk+{file}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and WRONG[text] in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert str(file) in done.stderr


def test_what_is_no_file_is_refused_with_a_sentence(tmp_path):
    said = lambda path: subprocess.run([BIN, "info", path], capture_output=True, text=True).stderr
    assert "no such file" in said(f"kerchunk+{tmp_path}/none.json")
    assert "references in a JSON file" in said(f"kerchunk+{tmp_path}")
    (tmp_path / "mnt").mkdir()
    done = subprocess.run([BIN, "mount", "--create", f"kerchunk+{tmp_path}/new.json", tmp_path / "mnt"], capture_output=True, text=True)
    assert done.returncode == 1 and "zarrfs only reads such a source" in done.stderr
    (tmp_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    done = subprocess.run([BIN, "convert", tmp_path, f"icechunk+{tmp_path}/new"], capture_output=True, text=True)
    assert done.returncode == 1 and "zarrfs only reads such a source" in done.stderr
