"""OPeNDAP: the clients that scientists have read what `zarrfs serve` has, and get the truth or an error."""

import json
import re
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import netCDF4
import numpy as np
import pytest
import xarray
import zarr

from mounts import PATIENCE
from serving import serving
from torture import LONG

FIXTURES = sorted((Path(__file__).parent.parent / "fixtures").glob("*/store"))
SHAPE = (24, 17, 36)
T2M = np.arange(np.prod(SHAPE), dtype="f4").reshape(SHAPE) / 7
# Each with its type in the data set.
NUMBERS = {
    "i1": (np.array([-128, -1, 0, 1, 127], "i1"), "i2"),
    "u1": (np.array([0, 1, 127, 128, 255], "u1"), "u1"),
    "b1": (np.array([True, False, False, True, True]), "u1"),
    "i2": (np.array([-32768, -1, 0, 1, 32767], "i2"), "i2"),
    "u2": (np.array([0, 1, 32767, 32768, 65535], "u2"), "u2"),
    "i4": (np.array([-(2**31), -1, 0, 1, 2**31 - 1], "i4"), "i4"),
    "u4": (np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 1], "u4"), "u4"),
    "i8": (np.array([-(2**53), -1, 0, 2**52 + 1, 2**53], "i8"), "f8"),
    "u8": (np.array([0, 1, 2**33 + 1, 2**52 + 1, 2**53], "u8"), "f8"),
    "f2": (np.array([-65504, -0.5, 0, 6e-8, np.inf], "f2"), "f4"),
    "f4": (np.array([-3.4e38, -0.1, 0, 1e-40, np.nan], "f4"), "f4"),
    "f8": (np.array([-1.7e308, -0.1, 0, 5e-324, np.inf], "f8"), "f8"),
}
WORDS = ["north", "", "a b, c", "a much longer name than the others"]
FEW, LARGE = np.array([1, 2, 3]), np.array([1, 2**53 + 1, 3])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("dap") / "climate.zarr"
    root = zarr.create_group(path, attributes={"title": 'a "title"', "levels": [1.5, 2.5]})

    def make(name, data, dims, group=root, **attributes):
        group.create_array(name, data=np.asarray(data), dimension_names=dims).attrs.update(attributes)

    times = {"units": "hours since 2020-01-01", "calendar": "standard", "standard_name": "time", "axis": "T"}
    make("time", np.arange(24.0), ["time"], **times)
    make("lat", np.linspace(-80, 80, 17), ["lat"], units="degrees_north", standard_name="latitude", axis="Y")
    make("lon", np.arange(0, 360, 10, dtype="f4"), ["lon"], units="degrees_east", standard_name="longitude", axis="X")
    dims = ["time", "lat", "lon"]
    array = root.create_array("t2m", data=T2M, chunks=(5, 6, 7), dimension_names=dims, fill_value=np.nan)
    array.attrs.update(units="K", long_name="temperature")
    for name, (data, _) in NUMBERS.items():
        make(name, data, ["n"])
    make("names", np.array(WORDS), ["station"])
    make("code", np.array([b"ab", b"c", b"", b"defg"]), ["station"])
    root.create_array("scalar", shape=(), dtype="i4")[...] = -42
    hollow = root.create_group("hollow")
    hollow.create_array("empty", shape=(0, 5), chunks=(1, 5), dtype="f4", dimension_names=["none", "n"])
    make("full", [1, 2], ["two"], hollow)
    make("z", np.ones(5, "c8"), ["n"])
    make("large", LARGE, ["few"])
    group = root.create_group("deep").create_group("er")
    make("a.b", np.arange(6, dtype="i2").reshape(2, 3), ["x", "y"], group)
    corner = root.create_array("huge", shape=(1250, 1000, 1000), chunks=(10, 100, 100), dtype="f4", dimension_names=["a", "b", "c"])
    corner[-3:, :2, 5:7] = np.arange(12).reshape(3, 2, 2)
    return path


@pytest.fixture(scope="module")
def server(store):
    with serving(store) as server:
        yield server


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def document(server, path):
    """The status, the code and the message of an error."""
    status, headers, said = server.get(path)
    assert headers["Content-Description"] == "dods_error"
    code, message = re.fullmatch(rb'Error \{\n    code = (\d+);\n    message = "(.*)";\n\};\n', said).groups()
    return status, int(code), message.decode()


def test_whole_variables_have_the_truth_in_netcdf(server):
    with netCDF4.Dataset(server.url + "dap") as data:
        data.set_auto_mask(False)
        np.testing.assert_array_equal(data["t2m"][:], T2M)
        assert data["t2m"].dimensions == ("time", "lat", "lon") and data["t2m"].units == "K"
        assert data.title == 'a "title"' and data.levels.tolist() == [1.5, 2.5]
        for name, (truth, kind) in NUMBERS.items():
            found = data[name][:]
            # netCDF reads unsigned numbers as signed ones, and netCDF4 turns them back.
            assert found.dtype.itemsize == np.dtype(kind).itemsize, name
            np.testing.assert_array_equal(found.astype(truth.dtype), truth, err_msg=name)
        data.set_auto_chartostring(True)
        assert data["names"][:].tolist() == WORDS
        assert netCDF4.chartostring(data["code"][:], "ascii").tolist() == ["ab", "c", "", "defg"]
        assert data["scalar"][...] == -42


def test_subsets_with_strides_have_the_truth(server):
    with netCDF4.Dataset(server.url + "dap") as data:
        data.set_auto_mask(False)
        for part in [np.s_[::5, 3, 7:30:4], np.s_[-1], np.s_[4:6, ::-1, 35], np.s_[23:24, 16:17, 0:36:35], np.s_[3:3], np.s_[::24]]:
            np.testing.assert_array_equal(data["t2m"][part], T2M[part], err_msg=str(part))
        np.testing.assert_array_equal(data["huge"][-3:, :2, 5:7], np.arange(12).reshape(3, 2, 2))
        assert not data["huge"][::250, ::500, ::999].any()
        assert data["time"][0:0].size == 0


@pytest.mark.parametrize("engine", ["netcdf4", "pydap"])
def test_xarray_opens_the_data_set_with_decoded_times(server, store, engine):
    with xarray.open_zarr(store, consolidated=False) as truth:
        with xarray.open_dataset(server.url + "dap", engine=engine) as found:
            names = ["time", "lat", "lon", "t2m"]
            xarray.testing.assert_equal(found[names].load(), truth[names].load())
            assert found["time"].dtype.kind == "M"
            part = {"time": slice(2, 20, 3), "lat": 5, "lon": slice(0, 36, 7)}
            xarray.testing.assert_equal(found["t2m"].isel(part).load(), truth["t2m"].isel(part).load())
            for name in ["i1", "i4", "i8", "f2", "f4", "f8"]:
                np.testing.assert_array_equal(found[name], NUMBERS[name][0], err_msg=name)


def test_each_group_and_array_has_a_data_set(server):
    for url, name in [("dap/deep/er", "a.b"), ("dap/deep/er/a.b", "a.b")]:
        with netCDF4.Dataset(server.url + url) as data:
            (variable,) = data.variables.values()
            assert variable[:].tolist() == [[0, 1, 2], [3, 4, 5]]
    with netCDF4.Dataset(server.url + "dap/t2m") as data:
        assert {"t2m", "time", "lat", "lon"} == set(data.variables)
    for root in ["dap.dds", "dap/.dds", "dap/__root__.dds"]:
        assert server.get(root)[2] == server.get("dap.dds")[2]
    left_out = re.search(r'zarrfs_left_out "(.*)"', server.get("dap.das")[2].decode())[1]
    assert "z: DAP2 has no type for complex64" in left_out and "deep: it is a group" in left_out


def test_an_empty_array_is_empty_and_the_others_are_read(server):
    status, _, said = server.get("dap/hollow.dods?empty")
    assert status == 200 and said.endswith(b"Float32 empty[none = 0][n = 5];\n} hollow;\n\nData:\n" + bytes(8))
    with netCDF4.Dataset(server.url + "dap/hollow") as data:
        assert data["full"][:].tolist() == [1, 2]
        assert "empty: it has no elements" in data.zarrfs_left_out
    with xarray.open_dataset(server.url + "dap/hollow/empty", engine="pydap") as data:
        assert data["empty"].shape == (0, 5) and data["empty"].values.size == 0


def test_integers_beyond_the_exact_doubles_are_an_error_and_never_rounded(server):
    for path in ["dap.dods?large", "dap/large.dods", "dap/large.ascii", "dap.dods?large[0:1]"]:
        status, code, message = document(server, path)
        assert (status, code) == (500, 1007) and "9007199254740993 is beyond 2^53" in message
    # Other parts of the array, and other arrays, can be read.
    assert server.get("dap/large.ascii?large[0:2:2]")[2].endswith(b"large[2]\n1, 3\n\n")
    with netCDF4.Dataset(server.url + "dap") as data:
        assert "large" not in data.variables and "large: the element 9007199254740993" in data.zarrfs_left_out
    with netCDF4.Dataset(server.url + "dap/large") as data, pytest.raises((RuntimeError, OSError)):
        data["large"][:]


def test_command_line_tools_read_urls(server, store, tmp_path):
    url = server.url + "dap"
    said = run("ncdump", "-p", "9,17", "-v", "names,scalar,i8", url)
    assert 'names = "north", "", "a b, c"' in re.sub(r"\s+", " ", said)
    assert "scalar = -42" in said and "-9007199254740992, -1, 0, 4503599627370497, 9007199254740992" in said
    run("ncks", "-O", "-v", "t2m", "-d", "time,1,20,4", "-d", "lat,3", "-d", "lon,2,30,7", url, f"{tmp_path}/part.nc")
    with netCDF4.Dataset(tmp_path / "part.nc") as part:
        np.testing.assert_array_equal(part["t2m"][:], T2M[1:21:4, 3:4, 2:31:7])
    run("cdo", "-s", "timmean", "-selname,t2m", url, f"{tmp_path}/mean.nc")
    with netCDF4.Dataset(tmp_path / "mean.nc") as mean:
        np.testing.assert_allclose(mean["t2m"][0], T2M.mean(0), rtol=1e-5)
    assert "2020-01-01 00:00:00  2020-01-01 01:00:00" in run("cdo", "-s", "showtimestamp", url).replace("T", " ")


R = """
suppressMessages(library(ncdf4))
data <- nc_open(commandArgs(TRUE)[1])
out <- file(commandArgs(TRUE)[2], "wb")
writeBin(as.double(ncvar_get(data, "t2m", start = c(8, 1, 3), count = c(20, 17, 4))), out)
writeBin(as.double(ncvar_get(data, "i8")), out)
close(out)
cat(ncvar_get(data, "names"), sep = "|")
"""


def test_r_reads_the_url(server, tmp_path):
    (tmp_path / "read.R").write_text(R)
    said = run("Rscript", "--vanilla", f"{tmp_path}/read.R", server.url + "dap", f"{tmp_path}/out")
    found = np.fromfile(tmp_path / "out", "f8")
    np.testing.assert_array_equal(found[:-5].reshape(4, 17, 20), T2M[2:6, :, 7:27])
    np.testing.assert_array_equal(found[-5:], NUMBERS["i8"][0])
    assert said.split("|") == WORDS


OCTAVE = """
pkg load netcdf
url = argv(){end-1};
id = fopen(argv(){end}, "w", "ieee-le");
fwrite(id, ncread(url, "t2m", [8 1 3], [4 17 2], [5 1 10]), "double");
fwrite(id, ncread(url, "u8"), "double");
fclose(id);
"""


def test_octave_reads_the_url(server, tmp_path):
    (tmp_path / "read.m").write_text(OCTAVE)
    run("octave-cli", "--no-gui", "--norc", "--quiet", f"{tmp_path}/read.m", server.url + "dap", f"{tmp_path}/out")
    found = np.fromfile(tmp_path / "out", "f8")
    np.testing.assert_array_equal(found[:-5].reshape(2, 17, 4), T2M[2:13:10, :, 7:23:5])
    np.testing.assert_array_equal(found[-5:], NUMBERS["u8"][0])


def test_a_corner_of_a_large_variable_takes_little_time_and_memory(store):
    with serving(store) as server:
        started = time.monotonic()
        with netCDF4.Dataset(server.url + "dap") as data:
            assert data["huge"][1247:1250, 0:2, 5:7].sum() == 66
        for_a_corner = time.monotonic() - started
        # What no client could hold is refused before it begins, and a part of it is a stream.
        rows, memory = (250, 600 << 20) if LONG else (60, 200 << 20)
        status, code, message = document(server, "dap.dods?huge")
        assert (status, code) == (400, 1005) and "select fewer elements" in message
        started = time.monotonic()
        with subprocess.Popen(["curl", "-sg", server.url + f"dap.dods?huge[0:{rows - 1}][0:999][0:999]"], stdout=subprocess.PIPE) as client:
            length = 0
            while part := client.stdout.read(1 << 20):
                length += len(part)
        assert length > 4 * 10**6 * rows and server.memory() < memory, server.memory()
        for_a_part = time.monotonic() - started
        assert for_a_corner < max(10, for_a_part), (for_a_corner, for_a_part)


def test_wrong_requests_get_an_error_of_dap(server):
    for path, status, code in [
        ("dap/nothing.dds", 404, 1003),
        ("dap.dods?nothing", 404, 1004),
        ("dap.dods?t2m[0][0]", 400, 1005),
        ("dap.dods?t2m[0:24][0][0]", 400, 1005),
        ("dap.dods?t2m[5:2][0][0]", 400, 1005),
        ("dap.dods?t2m[0:0:5][0][0]", 400, 1005),
        ("dap.dods?t2m[99999999999999999999][0][0]", 400, 1005),
        ("dap.dods?t2m[-1][0][0]", 400, 1005),
        ("dap.dods?t2m[", 400, 1005),
        ("dap.dods?t2m,,", 404, 1004),
        ("dap.dods?i4&i4%3E2", 400, 1005),
        ("dap.dods?geogrid(t2m)", 400, 1005),
        ("dap/z.dods", 500, 1007),
        ("dap.dods?%ff%00", 404, 1004),
        ("dap.dods?" + "t2m[0][0][0]," * 4000 + "lat[17]", 400, 1005),
    ]:
        try:
            said = document(server, path)
        except AssertionError:
            raise AssertionError(path[:80]) from None
        assert said[:2] == (status, code), (path[:80], said)


def test_a_person_who_opens_the_url_is_told_what_it_is_for(server):
    for path, url in [("", "dap"), ("deep/er/", "../../dap/deep/er"), ("t2m/", "../dap/t2m")]:
        assert f'<a href="{url}">' in server.get(path, Accept="text/html")[2].decode()
    for path in ["dap", "dap/", "dap/t2m", "dap/t2m.html"]:
        status, headers, said = server.get(path)
        assert (status, headers["Content-Type"]) == (200, "text/plain; charset=utf-8") and b"OPeNDAP" in said, path
    assert server.get("dap/nothing")[0] == 404
    assert server.get("dap/t2m.ver")[2].startswith(b"Core version: dap/2.0\n")


def test_clients_print_why_a_url_is_wrong(server):
    for url in ["t2m.nc", "t2m", "Dap"]:
        status, code, message = document(server, f"{url}.dds")
        assert (status, code) == (404, 1003) and "the URL of a group or array has dap/ before its path" in message
    done = subprocess.run(["ncdump", "-h", server.url + "t2m.nc"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "dap/ before its path" in done.stderr
    wrong = server.url.replace(server.root, "/wrong/dap")
    done = subprocess.run(["ncdump", "-h", wrong], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "the URL needs the token" in done.stderr
    assert document(server, "dap/t2n.dds") == (404, 1003, "there is no array or group /t2n")


def test_the_protocol_is_that_of_the_server(server):
    assert server.raw(b"GET /dap.dds HTTP/1.0\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.0 403")
    status, headers, body = server.get("dap/t2m.dods", method="HEAD")
    assert (status, body, headers["Content-Description"], headers["XDODS-Server"]) == (200, b"", "dods_data", "dap/2.0")
    _, headers, body = server.get("dap/t2m.dods?t2m.t2m")
    assert int(headers["Content-Length"]) == len(body) and headers["Access-Control-Allow-Origin"] == "*"
    # Some clients encode the signs of a constraint, others do not.
    plain = server.raw(f"GET {server.root}dap/t2m.dods?t2m.t2m[0][0:2][1] HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    encoded = server.get("dap/t2m.dods?t2m%2Et2m%5B0%5D%5B0%3A2%5D%5B1%5D")[2]
    assert plain.endswith(encoded) and encoded.endswith(T2M[0, :3, 1].astype(">f4").tobytes())


def test_a_group_with_the_name_of_the_protocol_is_still_a_group(tmp_path):
    group = zarr.create_group(tmp_path / "s.zarr").create_group("dap")
    group.create_array("x", data=np.arange(3, dtype="i2"))
    with serving(tmp_path / "s.zarr") as server:
        assert "x" in server.get("dap/", Accept="application/json")[2].decode()
        assert server.get("dap/x/c/0")[2] == np.arange(3, dtype="<i2").tobytes()
        assert b"Int16 x" in server.get("dap/dap.dds")[2] and b"Int16 x" in server.get("dap/dap/x.dds")[2]


def test_a_damaged_chunk_is_an_error_or_a_cut_and_never_other_bytes(tmp_path):
    data = np.arange(4 << 20, dtype="f4")
    array = zarr.create_array(tmp_path / "s.zarr", name="x", data=data, chunks=(1 << 18,))
    chunks = sorted((tmp_path / "s.zarr/x/c").iterdir(), key=lambda path: int(path.name))
    chunks[12].write_bytes(chunks[12].read_bytes()[:-20])
    with serving(tmp_path / "s.zarr") as server:
        for part in ["[3407800:3407871]", "[3145720:3407871]"]:
            assert document(server, f"dap.dods?x{part}")[:2] == (500, 1007)
        done = subprocess.run(["curl", "-sg", server.url + "dap.dods?x"], capture_output=True, timeout=PATIENCE)
        assert done.returncode == 18, "the transfer ends early"
        start = done.stdout.index(b"Data:\n") + 14
        found = np.frombuffer(done.stdout[start : start + (len(done.stdout) - start) // 4 * 4], ">f4")
        np.testing.assert_array_equal(found, data[: found.size])


def groups(server, path=""):
    """The paths of the groups, each with a slash at its end."""
    listing = json.loads(server.get(path, Accept="application/json")[2])
    metadata = {entry["name"] for entry in listing} & {"zarr.json", ".zgroup", ".zarray"}
    is_array = ".zarray" in metadata or (
        "zarr.json" in metadata and json.loads(server.get(path + "zarr.json")[2]).get("node_type") == "array"
    )
    if is_array or not metadata:
        return
    yield path
    for entry in listing:
        if entry["type"] == "directory" and entry["name"] != ".zarrfs":
            yield from groups(server, f"{path}{quote(entry['name'])}/")


def compare(expected, found):
    assert [dim for dim in found.dimensions if not dim.startswith(("string", "maxStrlen"))] == [
        dim for dim in expected.dimensions if not dim.startswith("string")
    ]
    if expected.dtype == "S1":
        # To netCDF-C a string of DAP2 ends at the first NUL.
        expected = [word.partition(b"\0")[0] for word in netCDF4.chartostring(expected[:], "bytes").flat]
        assert netCDF4.chartostring(found[:], "bytes").reshape(-1).tolist() == expected
    else:
        values = found[...]
        if getattr(found, "_Unsigned", "") == "true":
            values = values.view(f"u{values.dtype.itemsize}")
        np.testing.assert_array_equal(values.astype(expected.dtype), expected[...])


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.parent.name)
def test_each_data_set_is_that_of_the_nc_view(fixture, tmp_path):
    """What netCDF reads from the URL of a group is what it reads from the file of the group."""
    if not any(fixture.glob("**/*.json")) and not any(fixture.glob("**/.z*")):
        pytest.skip("the source is no hierarchy")
    if "reject" in fixture.parent.name:
        pytest.skip("not to be opened")
    with serving(fixture) as server:
        for path in groups(server):
            name = path.rstrip("/")
            status, _, file = server.get(f"{name or '__root__'}.nc")
            if status == 404:
                continue
            (tmp_path / "view.nc").write_bytes(file)
            with (
                netCDF4.Dataset(tmp_path / "view.nc") as view,
                netCDF4.Dataset(server.url + f"dap/{name}".rstrip("/")) as data,
            ):
                for dataset in (view, data):
                    dataset.set_auto_maskandscale(False)
                    dataset.set_auto_chartostring(False)
                left_out = getattr(data, "zarrfs_left_out", "")
                for name, variable in view.variables.items():
                    if name in data.variables:
                        compare(variable, data[name])
                    else:
                        assert f"{name}: " in left_out, (path, name)
