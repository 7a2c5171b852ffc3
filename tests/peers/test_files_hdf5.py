"""HDF5, netCDF-4 and npy files as hierarchies: every array and attribute is what h5py, xarray and NumPy read."""

import contextlib
import errno
import json
import os
import pathlib
import random
import resource
import subprocess

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from numcodecs.checksum32 import JenkinsLookup3

from hierarchies import assert_same
from torture import LONG
from views import ZARRFS

RNG = np.random.default_rng(50)
# How HDF5 numbers the chunks of a data set: by a tree, from 1.10 on also by arrays, or not at all.
INDICES = {
    "btree1": ("earliest", {"chunks": (3, 4), "maxshape": (None, None)}),
    "btree2": ("latest", {"chunks": (3, 4), "maxshape": (None, None)}),
    "extensible": ("latest", {"chunks": (3, 4), "maxshape": (None, 40)}),
    "fixed": ("latest", {"chunks": (3, 4), "maxshape": (30, 40)}),
    "single": ("latest", {"chunks": (10, 12)}),
    "contiguous": ("latest", {}),
}
FILTERS = {"none": {}, "all": {"compression": "gzip", "shuffle": True, "fletcher32": True}, "lzf": {"compression": "lzf"}}


@pytest.fixture
def mounted(mount):
    """`with mounted(path) as m:` mounts a file."""

    @contextlib.contextmanager
    def of(path):
        with mount(path, copy=False) as m:
            m.allow("mounted read-only, because zarrfs only reads files of this format")
            m.allow("a link to .* in the file .*, which is not followed|is a link to one above it|could not be seen")
            yield m

    return of


def read(path, node, lacks=None):
    """The decoded elements, as zarrfs prints them. What it says that the file lacks has the words `lacks`."""
    said = subprocess.run([ZARRFS, "cat", f"{path}#{node}", "--as", "npy"], capture_output=True)
    assert said.returncode == (1 if lacks else 0) and (lacks or "").encode() in said.stderr, said.stderr
    return said.stdout


def array(path, node, tmp_path, lacks=None):
    (tmp_path / "read.npy").write_bytes(read(path, node, lacks))
    return np.load(tmp_path / "read.npy")


@pytest.mark.parametrize("index", INDICES)
def test_every_index_and_filter_of_hdf5_is_read(mounted, tmp_path, index):
    version, options = INDICES[index]
    path, written = tmp_path / "f.h5", {}
    with h5py.File(path, "w", libver=version) as file:
        for dtype in ("i1", ">u2", "<i4", ">f4", "<f8", "<c8", "?", "S5"):
            # Chunks that deflate makes longer leave it out.
            values = RNG.integers(0, 2 if dtype == "?" else 256, (10, 12)).astype(dtype)
            for name, filters in FILTERS.items():
                if not options and filters:
                    continue
                node = f"{np.dtype(dtype).name}/{name}"
                file.create_dataset(node, data=values, **options, **filters)
                written[node] = values
        file.create_dataset("part", shape=(10, 12), dtype="i4", fillvalue=7, **options)[2:5, 1:9] = 1
        written["part"] = file["part"][...]
    with mounted(tmp_path / "f.h5") as m:
        for node, values in written.items():
            native = values.astype(values.dtype.newbyteorder("="))
            if values.dtype.kind == "S":
                # zarr-python 3.1 does not read the type.
                assert array(path, node, tmp_path).tobytes() == values.tobytes(), node
            else:
                assert_same(zarr.open_array(m / node, mode="r")[...], native, node)


def test_types_links_and_attributes_of_hdf5_are_those_of_h5py(mounted, tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        group = file.create_group("g")
        group["text"] = ["abc", "d\u00e9", ""]
        file["table"] = np.array([(1, 2.5, b"x"), (3, -1.0, b"yz")], dtype=np.dtype([("a", "i2"), ("b", "f8"), ("c", "S3")], align=True))
        file["scalar"], file["empty"] = 3.5, np.zeros((0, 3))
        file["enum"] = np.array([0, 2], dtype=h5py.enum_dtype({"A": 0, "B": 2}, "u1"))
        file["to"] = np.array([file["g"].ref, file["scalar"].ref], dtype=h5py.ref_dtype)
        file.create_dataset("scaled", data=np.arange(100), chunks=(10,), scaleoffset=0)
        file["soft"], file["away"], file["g/up"] = h5py.SoftLink("/g"), h5py.ExternalLink("other.h5", "/x"), h5py.SoftLink("/")
        group.attrs.update({"n": np.float32(0.1), "nan": np.nan, "list": [1, 2, 3], "text": "caf\u00e9", "texts": ["a", "b"], "flag": True})
        group.attrs["big"] = np.uint64(2**64 - 1)
    with mounted(tmp_path / "f.h5") as m:
        assert zarr.open_array(m / "g/text", mode="r")[...].tolist() == ["abc", "d\u00e9", ""]
        assert zarr.open_array(m / "soft/text", mode="r").shape == (3,)
        assert zarr.open_array(m / "to", mode="r")[...].tolist() == ["/g", "/scalar"]
        assert zarr.open_array(m / "enum", mode="r")[...].tolist() == [0, 2]
        assert zarr.open_array(m / "scalar", mode="r")[()] == 3.5 and zarr.open_array(m / "empty", mode="r").shape == (0, 3)
        attributes = dict(zarr.open_group(m / "g", mode="r").attrs)
        assert str(attributes.pop("nan")).lower() == "nan"
        assert attributes == {"n": float(np.float32(0.1)), "list": [1, 2, 3], "text": "caf\u00e9", "texts": ["a", "b"], "flag": True, "big": 2**64 - 1}
        with h5py.File(tmp_path / "f.h5") as file:
            assert (m.path / "table/c/0").read_bytes() == file["table"][...].tobytes()
        assert sorted(set(os.listdir(m.path)) & {"soft", "away"}) == ["soft"] and "up" not in os.listdir(m / "g")
    said = subprocess.run([ZARRFS, "check", tmp_path / "f.h5"], capture_output=True, text=True)
    assert said.returncode == 1
    assert "unchecked unseen away: a link to /x in the file other.h5, which is not followed: it does not exist" in said.stdout, said.stdout


def test_a_netcdf4_file_is_to_xarray_what_it_is_by_itself(mounted, tmp_path):
    times, lat, lon = np.arange(4), np.linspace(-90, 90, 7), np.arange(0, 360, 40.0)
    coordinates = {"time": ("time", times, {"units": "days since 2000-01-01", "calendar": "standard"}), "lat": lat, "lon": lon}
    values = RNG.normal(280, 20, (4, 7, 9)).astype("f4")
    values[0, 0, 0] = np.nan
    data = xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), values, {"units": "K", "valid_min": np.float32(180)}),
            "packed": (("time", "lat"), values[:, :, 0].astype("f8")),
            "mask": (("lat", "lon"), values[0] > 280),
            "name": ("station", np.array(["a", "bc"], dtype=object)),
        },
        coordinates,
        {"title": "a model", "levels": [1, 2, 3]},
    )
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.0, "_FillValue": -32768}
    encoding = {"t2m": {"zlib": True, "chunksizes": (1, 7, 9), "_FillValue": np.float32(-999)}, "packed": packed}
    data.to_netcdf(tmp_path / "f.nc", engine="netcdf4", encoding=encoding, unlimited_dims=["time"])
    with xr.open_dataset(tmp_path / "f.nc") as itself:
        with mounted(tmp_path / "f.nc") as m:
            with xr.open_zarr(m.path, consolidated=False, chunks=None) as found:
                xr.testing.assert_identical(found.load(), itself.load())
        subprocess.run([ZARRFS, "convert", tmp_path / "f.nc", tmp_path / "f.zarr"], check=True, capture_output=True)
        with xr.open_zarr(tmp_path / "f.zarr", consolidated=False, chunks=None) as found:
            xr.testing.assert_identical(found.load(), itself.load())
    said = subprocess.run([ZARRFS, "diff", tmp_path / "f.nc", tmp_path / "f.zarr"], capture_output=True, text=True)
    assert said.returncode == 0 and "equal" in said.stderr, said


@pytest.mark.parametrize("chunk", [3, 1])
def test_variables_of_netcdf4_have_all_records_of_their_dimension(tmp_path, chunk):
    def write(name, records):
        with netCDF4.Dataset(tmp_path / name, "w") as made:
            made.createDimension("t", None)
            made.createDimension("x", 2)
            group = made.createGroup("g")
            group.createVariable("in_group", "f8", ("t", "x"), chunksizes=(chunk, 2))[: records - 1] = records
            made.createVariable("t", "i4", ("t",))[: records - 2] = np.arange(records - 2)
            made.createVariable("a", "f4", ("t", "x"), chunksizes=(chunk, 2))[:records] = records
            made.createVariable("b", "i2", ("t", "x"), fill_value=-1, chunksizes=(chunk, 2))[: records - 2] = records
            made.createVariable("none", "i4", ("t",))

    write("one.nc", 5)
    write("two.nc", 4)

    def variables(name):
        with netCDF4.Dataset(tmp_path / name) as file:
            file.set_auto_mask(False)
            return {path: file[path][...] for path in ["a", "b", "none", "t", "g/in_group"]}

    subprocess.run([ZARRFS, "import", tmp_path / "one.nc", tmp_path / "all.zarr"], check=True)
    both = {name: np.concatenate([first, variables("two.nc")[name]]) for name, first in variables("one.nc").items()}
    found = zarr.open_group(tmp_path / "all.zarr", mode="r")
    for name, values in variables("one.nc").items():
        np.testing.assert_array_equal(found[name][...], values, name)
    with xr.open_zarr(tmp_path / "all.zarr", consolidated=False) as data:
        assert dict(data.sizes) == {"t": 5, "x": 2}
    subprocess.run([ZARRFS, "import", tmp_path / "two.nc", tmp_path / "all.zarr", "--append-dim", "t"], check=True)
    found = zarr.open_group(tmp_path / "all.zarr", mode="r")
    for name, values in both.items():
        np.testing.assert_array_equal(found[name][...], values, name)


def test_a_variable_without_fill_values_has_no_values_that_nobody_wrote(tmp_path):
    with netCDF4.Dataset(tmp_path / "f.nc", "w") as made:
        made.createDimension("t", None)
        made.createVariable("long", "i4", ("t",))[:5] = 1
        made.createVariable("whole", "i4", ("t",), fill_value=False, chunksizes=(3,))[:3] = 1
        made.createVariable("part", "i4", ("t",), fill_value=False, chunksizes=(3,))[:4] = 1
    said = subprocess.run([ZARRFS, "convert", tmp_path / "f.nc", tmp_path / "f.zarr", "--skip-unsupported"], capture_output=True, text=True)
    assert said.returncode == 0 and "/part: a variable of netCDF-4 without fill values that has fewer records than" in said.stderr, said
    found = zarr.open_group(tmp_path / "f.zarr", mode="r")
    assert dict(found.arrays()).keys() == {"long", "whole"} and found["whole"].shape == (5,)


@pytest.mark.parametrize("dtype", ["<f4", ">i2", "|u1", "<c16", "<U3", "|S4", "?", "<M8[ns]"])
def test_a_npy_file_is_one_array(tmp_path, dtype):
    for shape in ((), (5,), (4, 3), (700, 800)):
        values = RNG.integers(0, 100, shape).astype(dtype)
        for order in ("C", "F"):
            np.save(tmp_path / "a.npy", np.asarray(values, order=order))
            assert_same(array(tmp_path / "a.npy", "a", tmp_path), values.astype(values.dtype.newbyteorder("=")), f"{dtype} {shape} {order}")


def test_a_file_that_changes_is_stale(mounted, tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(300_000))
    with mounted(path) as m:
        assert (m.path / "a/c/0").read_bytes() == np.arange(300_000)[: 1 << 17].tobytes()
        np.save(path, np.arange(300_000) + 1)
        m.refused(errno.ESTALE, "has changed since it was opened", lambda: (m.path / "a/c/1").read_bytes())


def test_damaged_files_are_refused_within_memory(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w", libver="latest") as file:
        for number in range(12):
            file.create_dataset(f"d{number}", data=np.arange(60).reshape(6, 10), chunks=(2, 5), maxshape=(None, 10), compression="gzip")
            file[f"d{number}"].attrs["text"] = "words"
        file["s"] = ["a", "b"]
    np.save(tmp_path / "f.npy", np.arange(50))
    chance = random.Random(7)

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    for name in ("f.h5", "f.npy"):
        whole = (tmp_path / name).read_bytes()
        for number in range(24):
            data = bytearray(whole)
            if number % 3 == 0:
                del data[chance.randrange(len(data)) :]
            else:
                for _ in range(1 + number % 7):
                    data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
            (tmp_path / f"bad-{name}").write_bytes(data)
            said = subprocess.run([ZARRFS, "check", tmp_path / f"bad-{name}"], capture_output=True, text=True, timeout=60, preexec_fn=limited)
            assert said.returncode in (0, 1, 3) and "panicked" not in said.stderr, (number, said.stderr)


def test_elements_of_gigabytes_are_refused_at_once(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        dtype = h5py.h5t.C_S1.copy()
        dtype.set_size(3_000_000_000)
        h5py.h5d.create(file.id, b"x", dtype, h5py.h5s.create_simple((2,)))

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    said = subprocess.run([ZARRFS, "tree", tmp_path / "f.h5"], capture_output=True, text=True, timeout=60, preexec_fn=limited)
    assert said.returncode == 0 and "HDF5 elements of 3000000000 bytes" in said.stdout, said


def test_a_file_of_any_name_is_read_by_its_prefix(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5))
    os.rename(tmp_path / "a.npy", tmp_path / "odd name")
    said = json.loads(subprocess.check_output([ZARRFS, "info", "--json", f"file+{tmp_path}/odd name#odd name"]))
    assert said["shape"] == [5]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_named_types_and_lists_hide_nothing_else(tmp_path, libver):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["number"], file["text"] = np.dtype("i4"), h5py.string_dtype()
        file.create_dataset("d", data=np.arange(6), dtype=file["number"])
        file["d"].attrs.create("text", "caf\u00e9", dtype=file["text"])
        file["d"].attrs.update({"plain": 5.5, "region": file["d"].regionref[1:3], "lists": 1})
        for number in range(20):
            file.create_group("g", track_order=False) if number == 0 else None
            file["g"].attrs.create(f"a{number}", [number, 1], dtype=file["number"])
        file.create_dataset("lists", (2,), h5py.vlen_dtype("i4")).attrs["units"] = "m"
        file.create_dataset("regions", (2,), h5py.regionref_dtype).attrs["units"] = "s"
        file["g/deep/x"], file["g/soft"], file["g/up"] = np.arange(3), h5py.SoftLink("deep/x"), h5py.SoftLink("/d")
    for name in ("d", "g/up", "g/soft"):
        with h5py.File(path) as file:
            assert_same(array(path, name, tmp_path, "JSON cannot have: region"), file[name][...], name)

    def attributes(name):
        said = subprocess.run([ZARRFS, "info", "--json", f"{path}#{name}"], capture_output=True, text=True)
        return json.loads(said.stdout)["attributes"], said.stderr

    assert attributes("d")[0] == {"text": "caf\u00e9", "plain": 5.5, "lists": 1}
    assert "attributes of a type that JSON cannot have: region" in attributes("d")[1]
    assert attributes("g")[0] == {f"a{number}": [number, 1] for number in range(20)}
    assert attributes("lists")[0] == {"units": "m"} and attributes("regions")[0] == {"units": "s"}
    said = subprocess.run([ZARRFS, "tree", path], capture_output=True, text=True).stdout
    assert "HDF5 lists of any length" in said and "HDF5 references to regions" in said


SOURCES = {
    "contiguous": ("<u2", {}),
    "big": (">u2", {}),
    "deflate": ("<u2", {"chunks": (1, 8, 10), "compression": "gzip", "shuffle": True}),
    "chunks": ("<u2", {"chunks": (1, 8, 10)}),
}
LENS = [5, 5, 3]


def write_frames(folder, dtype, options):
    """Files of frames, as detectors write them."""
    for number, count in enumerate(LENS):
        with h5py.File(folder / f"data_{number}.h5", "w") as file:
            file.create_dataset("entry/data", data=RNG.integers(0, 1000, (count, 8, 10)).astype(dtype), **options)


def frames(number, count=None):
    return h5py.VirtualSource(f"data_{number}.h5", "entry/data", (count or LENS[number], 8, 10))


def write_virtual(path, libver):
    """The virtual data sets that detectors and h5py's users make of such files."""
    unlimited = h5py.h5s.UNLIMITED
    with h5py.File(path, "w", libver=libver) as file:
        layouts = {name: h5py.VirtualLayout(shape, "u2") for name, shape in {"frames": (13, 8, 10), "gap": (20, 8, 10), "modules": (3, 3, 8, 10), "turns": (9, 8, 10), "one": (4, 8, 10), "side": (5, 8, 20), "nested": (5, 8, 10)}.items()}
        for number, start in enumerate((0, 5, 10)):
            layouts["frames"][start : start + LENS[number]] = frames(number)
            layouts["gap"][start + 3 : start + 3 + LENS[number]] = frames(number)
            layouts["modules"][number] = frames(number)[:3]
            layouts["turns"][number::3] = frames(number)[:3]
            layouts["one"][number] = frames(number)[2]
        for number in range(2):
            layouts["side"][:, :, number * 10 : number * 10 + 10] = frames(number)
        layouts["nested"][:] = h5py.VirtualSource(".", "frames", (13, 8, 10))[5:10]
        for name, layout in layouts.items():
            file.create_virtual_dataset(name, layout, fillvalue=9 if name in ("gap", "one") else None)
        grows = h5py.VirtualLayout((5, 8, 10), "u2", maxshape=(None, 8, 10))
        source = h5py.VirtualSource("data_0.h5", "entry/data", (5, 8, 10), maxshape=(None, 8, 10))
        grows[0:unlimited] = source[0:unlimited]
        file.create_virtual_dataset("grows", grows)
        # The number of a file in its name.
        plist, space, part = h5py.h5p.create(h5py.h5p.DATASET_CREATE), h5py.h5s.create_simple((3, 8, 10), (unlimited, 8, 10)), h5py.h5s.create_simple((5, 8, 10))
        space.select_hyperslab((0, 0, 0), (unlimited, 1, 1), (3, 1, 1), (3, 8, 10))
        part.select_hyperslab((0, 0, 0), (1, 1, 1), (1, 1, 1), (3, 8, 10))
        plist.set_virtual(space, b"data_%b.h5", b"entry/data", part)
        h5py.h5d.create(file.id, b"numbered", h5py.h5t.NATIVE_UINT16, space, plist)


@pytest.mark.parametrize("kind", SOURCES if LONG else list(SOURCES)[::2])
@pytest.mark.parametrize("libver", ["earliest", "latest"] if LONG else ["latest"])
def test_virtual_data_sets_have_the_elements_that_h5py_reads(tmp_path, kind, libver):
    write_frames(tmp_path, *SOURCES[kind])
    write_virtual(tmp_path / "f.h5", libver)
    with h5py.File(tmp_path / "f.h5") as file:
        for name, itself in file.items():
            assert_same(array(tmp_path / "f.h5", name, tmp_path), itself[...], name)


def test_a_virtual_data_set_says_what_of_it_is_missing_or_not_allowed(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    write_frames(there, *SOURCES["deflate"])
    layout = h5py.VirtualLayout((10, 8, 10), "u2")
    for number in range(2):
        layout[number * 5 : number * 5 + 5] = h5py.VirtualSource(there / f"data_{number}.h5", "entry/data", (5, 8, 10))
    path = here / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("v", layout, fillvalue=7)
    said = subprocess.run([ZARRFS, "tree", path], capture_output=True, text=True)
    assert f"--allow-virtual {there}" in said.stdout, said
    allowed = [ZARRFS, "cat", f"{path}#v", "--as", "npy", "--allow-virtual", there]
    for is_whole in (True, False):
        said = subprocess.run(allowed, capture_output=True)
        (tmp_path / "read.npy").write_bytes(said.stdout)
        with h5py.File(path) as file:
            assert_same(np.load(tmp_path / "read.npy"), file["v"][...], str(is_whole))
        assert is_whole == (said.returncode == 0) == (b"do not exist and are the fill value" not in said.stderr), said.stderr
        (there / "data_1.h5").unlink(missing_ok=True)


def test_hostile_virtual_data_sets_are_refused_within_memory(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["ok"] = np.arange(4, dtype="i4")
        sparse = file.create_dataset("sparse", (2**40, 2**20), "i1", chunks=(1, 1))
        for name, source, shape, at in (
            ("itself", h5py.VirtualSource(".", "itself", (4,)), (4,), np.s_[:]),
            ("circle", h5py.VirtualSource("g.h5", "circle", (4,)), (4,), np.s_[:]),
            ("long", h5py.VirtualSource(".", "ok", (4,)), (2**62,), np.s_[2**61 : 2**61 + 4]),
            ("past", h5py.VirtualSource(".", "ok", (900,)), (900,), np.s_[:]),
            ("steps", h5py.VirtualSource(sparse)[: 2**39], sparse.shape, np.s_[::2]),
        ):
            layout = h5py.VirtualLayout(shape, source.dtype if source.dtype else "i4")
            layout[at] = source
            file.create_virtual_dataset(name, layout)
        layout = h5py.VirtualLayout((5_000, 4), "i4")
        for number in range(5_000):
            layout[number] = h5py.VirtualSource(".", "ok", (4,))
        file.create_virtual_dataset("many", layout)
    with h5py.File(tmp_path / "g.h5", "w") as file:
        layout = h5py.VirtualLayout((4,), "i4")
        layout[:] = h5py.VirtualSource("f.h5", "circle", (4,))
        file.create_virtual_dataset("circle", layout)

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    def run(*words):
        return subprocess.run([ZARRFS, *words], capture_output=True, text=True, timeout=60, preexec_fn=limited)

    said = run("tree", path).stdout
    for words in ("part of itself", "of shape [4] to shape [900]", "in more than 1048576 pieces", "int32 5000 x 4"):
        assert words in said, said
    assert array(path, "ok", tmp_path).tolist() == [0, 1, 2, 3]
    # The mappings, cut short and changed. Their checksum is right.
    whole, chance = path.read_bytes(), random.Random(5)
    places = [(start, length) for start, length in heap_objects(whole) if length < 4096]
    for number in range(200 if LONG else 12):
        data = bytearray(whole)
        start, length = chance.choice(places)
        for _ in range(1 + number % 3):
            data[start + chance.randrange(length - 4)] = chance.choice([0, 1, 2, 4, 0x7F, 0x80, 0xFF])
        data[start + length - 4 : start + length] = JenkinsLookup3().encode(bytes(data[start : start + length - 4]))[-4:]
        if number % 5 == 0:
            del data[start + chance.randrange(length) :]
        (tmp_path / "bad.h5").write_bytes(data)
        said = run("tree", tmp_path / "bad.h5")
        assert said.returncode in (0, 1, 3) and "panicked" not in said.stderr, (number, said.stderr)


def virtual(file, name, shape, mappings, dtype="i1", longest=None, fill=None):
    """A virtual data set of mappings, each a selection, the name and the data set of a source, its shape, and a selection there."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if fill is not None:
        plist.set_fill_value(np.array(fill, dtype))
    for target, name_there, node, shape_there, source, *longest_there in mappings:
        space, part = h5py.h5s.create_simple(shape, longest or shape), h5py.h5s.create_simple(shape_there, *longest_there)
        space.select_hyperslab(*target), part.select_hyperslab(*source)
        plist.set_virtual(space, name_there, node, part)
    kind = h5py.h5t.py_create(np.dtype(dtype))
    h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(shape, longest or shape), plist)


def test_mappings_that_need_much_memory_are_refused(tmp_path):
    unlimited, path = h5py.h5s.UNLIMITED, tmp_path / "f.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["flat"], file["links/d0"] = np.zeros(2**20, "i1"), np.zeros(4, "i1")
        for number in range(1, 1000):
            file[f"links/d{number}"] = file["links/d0"]
        file.create_dataset("long", (2**22 + 1,), "i1", maxshape=(unlimited,), chunks=(2**20,))
        halves = [(((row, 0), (1, 2**20), (1, 2), (1, 1)), b".", b"flat", (2**20,), ((0,), (2**20,))) for row in range(300)]
        virtual(file, "halves", (300, 2**21), halves)
        numbered = [(((row,), (unlimited,), (10_000,), (4,)), b".", b"links/d%b", (4,), ((0,), (4,))) for row in range(10_000)]
        virtual(file, "numbered", (8,), numbered, longest=(unlimited,))
        blocks = [(((row,), (unlimited,), (4,), (2,)), b".", b"long", (2**22 + 1,), ((0,), (unlimited,), (4,), (2,)), (unlimited,)) for row in range(200)]
        virtual(file, "blocks", (8,), blocks, longest=(unlimited,))

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    for name, words in {"halves": "2097152 chunks and runs of elements", "numbered": "131072 mappings", "blocks": "2097152 chunks and runs of elements"}.items():
        said = subprocess.run([ZARRFS, "tree", f"{path}#{name}"], capture_output=True, text=True, timeout=60, preexec_fn=limited)
        assert f"more than {words}" in said.stdout, said


def test_many_frames_and_many_data_sets_are_found_without_reading_all_of_them_for_each(tmp_path):
    path, count = tmp_path / "f.h5", 20_000
    with h5py.File(path, "w", libver="latest") as file:
        values = np.arange(count, dtype="i4")
        file.create_dataset("frames", data=values, chunks=(1,), maxshape=(None,))
        order = RNG.permutation(count)
        frames = [(((at,), (1,)), b".", b"frames", (count,), ((int(frame),), (1,))) for at, frame in enumerate(order)]
        virtual(file, "all", (count,), frames, "i4")
        file["links/d0"] = np.array([5], "i4")
        for number in range(1, 5_000):
            file[f"links/d{number}"] = file["links/d0"]
        links = [(((at,), (1,)), b".", f"links/d{at}".encode(), (1,), ((0,), (1,))) for at in range(5_000)]
        virtual(file, "by_name", (5_000,), links, "i4")
    for name, want in {"all": values[order], "by_name": np.full(5_000, 5, "i4")}.items():
        said = subprocess.run([ZARRFS, "cat", f"{path}#{name}", "--as", "npy"], capture_output=True, timeout=30)
        (tmp_path / "read.npy").write_bytes(said.stdout)
        assert_same(np.load(tmp_path / "read.npy"), want, name)


@pytest.mark.parametrize("chunks", [(1, 3), (2, 3), None])
def test_the_last_of_overlapping_mappings_gives_the_elements_as_in_h5py(tmp_path, chunks):
    unlimited = h5py.h5s.UNLIMITED
    for number in range(4):
        with h5py.File(tmp_path / f"s{number}.h5", "w") as file:
            longest = chunks and (None, 3)
            source = file.create_dataset("x", (8, 3), "i4", chunks=chunks, maxshape=longest, fillvalue=7)
            if number < 3:
                source[2 * (number == 2) :] = np.arange(24).reshape(8, 3)[2 * (number == 2) :] + 100 * number
    longest, all_of = (unlimited, 3), ((0, 0), (1, 1), (1, 1), (4, 3))

    def rows(start, number, count=4):
        return ((start, 0), (1, 1), (1, 1), (count, 3)), f"s{number}.h5".encode(), b"x", (8, 3), ((0, 0), (1, 1), (1, 1), (count, 3))

    def growing(start, number):
        whole = ((0, 0), (1, 1), (1, 1), (unlimited, 3))
        return ((start, 0), *whole[1:]), f"s{number}.h5".encode(), b"x", (8, 3), whole, longest

    numbered = ((0, 0), (unlimited, 1), (4, 1), (4, 3)), b"s%b.h5", b"x", (8, 3), all_of
    every_other = ((0, 0), (4, 1), (2, 1), (2, 3)) if chunks == (2, 3) else ((0, 0), (4, 1), (2, 1), (1, 3))
    cases = {
        "up": [rows(0, 0), rows(2, 1)],
        "down": [rows(2, 1), rows(0, 0)],
        "thrice": [rows(0, 0), rows(2, 1), rows(4, 0, 2)],
        "sparse": [rows(0, 0), rows(0, 2)],
        "under": [rows(0, 2), rows(0, 0, 2)],
        "unwritten": [rows(0, 0), rows(2, 3)],
        "beneath": [rows(2, 3), rows(0, 0)],
        "missing": [rows(0, 0), rows(2, 9)],
        "turns": [rows(0, 0, 8), (every_other, b"s3.h5", b"x", (8, 3), (((0, 0), (1, 1), (1, 1), (every_other[1][0] * every_other[3][0], 3))))],
        "grows": [growing(0, 0), rows(2, 1)],
        "limited": [rows(2, 1), growing(0, 0)],
        "numbered": [numbered, rows(2, 1)],
        "before": [rows(2, 1), numbered],
    }
    for name, mappings in cases.items():
        # If mappings overlap, libhdf5 leaves elements without a mapping as they are in memory.
        path, mappings = tmp_path / f"{name}.h5", [rows(0, 3, 8), *mappings]
        with h5py.File(path, "w", libver="latest") as file:
            virtual(file, "v", (8, 3), mappings, "i4", longest, 7)
        with h5py.File(path) as file:
            lacks = "do not exist and are the fill value" if name == "missing" else None
            assert_same(array(path, "v", tmp_path, lacks), file["v"][...], name)


def test_the_sources_of_virtual_data_sets_are_counted_for_each(tmp_path):
    path, unlimited = tmp_path / "f.h5", h5py.h5s.UNLIMITED
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("links/d0", (4,), "i1")
        for number in range(1, 1000):
            file[f"links/d{number}"] = file["links/d0"]
        file.create_group("v")
        virtual(file, "v/v0", (8,), [(((0,), (unlimited,), (4,), (4,)), b".", b"links/d%b", (4,), ((0,), (4,)))], longest=(unlimited,))
        # Together they look for more than 2^18 sources.
        for number in range(1, 265):
            file[f"v/v{number}"] = file["v/v0"]
    said = subprocess.run([ZARRFS, "tree", f"{path}#v"], capture_output=True, text=True, timeout=60).stdout
    assert said.count("int8 4000") == 265, said


def test_sources_that_were_moved_beside_the_file_are_found_as_in_h5py(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    write_frames(there, *SOURCES["deflate"])
    path, layout = here / "f.h5", h5py.VirtualLayout((10, 8, 10), "u2")
    for number in range(2):
        layout[number * 5 : number * 5 + 5] = h5py.VirtualSource(there / f"data_{number}.h5", "entry/data", (5, 8, 10))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("v", layout, fillvalue=7)
        file["link"] = h5py.ExternalLink(there / "data_1.h5", "entry/data")
    for number in range(2):
        (there / f"data_{number}.h5").rename(here / f"data_{number}.h5")
    with h5py.File(path) as file:
        for name in ("v", "link"):
            assert_same(array(path, name, tmp_path), file[name][...], name)
    (here / "data_1.h5").unlink()
    assert f"--allow-virtual {there}" in subprocess.run([ZARRFS, "tree", path], capture_output=True, text=True).stdout


def heap_objects(data):
    """The places of the objects in the first global heap of a file."""
    at = data.index(b"GCOL") + 16
    while index := int.from_bytes(data[at : at + 2], "little"):
        length = int.from_bytes(data[at + 8 : at + 16], "little")
        yield at + 16, length
        at += 16 + (length + 7) // 8 * 8


def test_filters_that_h5py_lacks_decode_to_what_was_stored(tmp_path):
    # hdf5plugin wrote it; h5py reads `plain` without it.
    path = pathlib.Path(__file__).parents[2] / "crates/files/fixtures/filters.h5"
    with h5py.File(path) as file:
        names, itself = [name for name in file if name != "plain"], file["plain"][...]
    assert len(names) == 8
    for name in names:
        assert_same(array(path, name, tmp_path), itself, name)


def test_filters_of_hdf5_itself_are_read_for_every_type(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        for dtype in ("u1", "<i2", ">i4", "<f4", ">f8"):
            values = np.sort(RNG.integers(0, 100, (37, 41)), 1).astype(dtype)
            scale = {"scaleoffset": 3 if values.dtype.kind == "f" else 0}
            chosen = {"scale": scale, "filled": {**scale, "fillvalue": 3}, "all": {**scale, "shuffle": True, "compression": "gzip"}}
            for name, options in chosen.items():
                file.create_dataset(f"{values.dtype.name}/{name}", data=values, chunks=(13, 17), **options)
            for method in ("nn", "ec"):
                file.create_dataset(f"{values.dtype.name}/{method}", data=values, chunks=(16, 32), compression="szip", compression_opts=(method, 16))
                # Chunks of noise leave szip out.
                noise = values if values.dtype.kind == "f" else RNG.integers(0, 100 if dtype == "u1" else 1 << 14, (37, 41)).cumsum(0).astype(dtype)
                file.create_dataset(f"{values.dtype.name}/{method}_noise", data=noise, chunks=(16, 32), compression="szip", compression_opts=(method, 16))
    with h5py.File(path) as file:
        for group in file.values():
            for itself in group.values():
                assert_same(array(path, itself.name[1:], tmp_path), itself[...].astype(itself.dtype.newbyteorder("=")), itself.name)


def test_links_lead_to_other_files_as_in_h5py(mounted, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "data").mkdir(parents=True), there.mkdir()
    path, deflate = here / "master.h5", SOURCES["deflate"]
    write_frames(here / "data", *deflate)
    write_frames(there, *deflate)
    with h5py.File(here / "data/scan.h5", "w") as file:
        file["entry/title"], file["entry/counts"] = ["first", "sec\u00f6nd"], np.arange(5)
        file["entry"].attrs["NX_class"] = "NXentry"
        file["entry/back"], file["entry/frames"] = h5py.ExternalLink("../master.h5", "/"), h5py.ExternalLink("data_2.h5", "entry/data")
        layout = h5py.VirtualLayout((2, 5, 8, 10), "u2")
        layout[0], layout[1] = frames(0), frames(1)
        file.create_virtual_dataset("entry/both", layout)
    with h5py.File(path, "w") as file:
        file["own"], file["scan"], file["lost"] = np.arange(3), h5py.ExternalLink("data/scan.h5", "/entry"), h5py.ExternalLink("data/scan.h5", "/none")
        file["soft"], file["away"] = h5py.SoftLink("/scan/frames"), h5py.ExternalLink(there / "data_0.h5", "/entry/data")
        for number in range(3):
            file[f"data/part_{number}"] = h5py.ExternalLink(f"data/data_{number}.h5", "entry/data")
    said = subprocess.run([ZARRFS, "check", path], capture_output=True, text=True)
    assert said.returncode == 1
    for line in (
        f"unchecked unseen away: a link to /entry/data in the file {there}/data_0.h5, which is not followed: the reference leads to",
        f"--allow-virtual {there}",
        "unchecked unseen lost: a link to /none in the file data/scan.h5, which is not followed: it does not exist",
        "unchecked unseen scan/back: the group is a link to one above it",
    ):
        assert line in said.stdout, said.stdout
    names = ["own", "soft", "away", "scan/counts", "scan/frames", "scan/both", "data/part_0", "data/part_1", "data/part_2"]
    with h5py.File(path) as file:
        for name in names:
            options = [f"{path}#{name}", "--as", "npy", "--allow-virtual", there]
            (tmp_path / "read.npy").write_bytes(subprocess.run([ZARRFS, "cat", *options], capture_output=True).stdout)
            assert_same(np.load(tmp_path / "read.npy"), file[name][...], name)
    with mounted(path) as m:
        assert zarr.open_array(m / "scan/title", mode="r")[...].tolist() == ["first", "sec\u00f6nd"]
        assert dict(zarr.open_group(m / "scan", mode="r").attrs) == {"NX_class": "NXentry"}


def test_links_of_files_to_each_other_end(tmp_path):
    for number in range(3):
        with h5py.File(tmp_path / f"f{number}.h5", "w") as file:
            file["x"] = np.arange(number + 1)
            for name in "abc":
                file[f"{name}/next"] = h5py.ExternalLink(f"f{(number + 1) % 3}.h5", "/")
                file[f"{name}/other"] = h5py.ExternalLink(f"f{(number + 2) % 3}.h5", f"/{name}")
            file["chain"], file["self"] = h5py.ExternalLink(f"f{(number + 1) % 3}.h5", "/chain"), h5py.ExternalLink(f"f{number}.h5", "/self")
    said = subprocess.run([ZARRFS, "check", tmp_path / "f0.h5"], capture_output=True, text=True, timeout=60)
    assert said.returncode == 1 and "a link to one above it" in said.stdout, said
    for name in ("chain", "self"):
        assert f"unseen {name}: a link to /{name} in the file f" in said.stdout, said.stdout
    assert array(tmp_path / "f0.h5", "x", tmp_path, "could not be seen").tolist() == [0]


def test_values_in_raw_files_are_read(tmp_path):
    values = np.arange(60, dtype="<i4").reshape(10, 6)
    (tmp_path / "a.raw").write_bytes(b"head" + values[:4].tobytes()), (tmp_path / "b.raw").write_bytes(values[4:].tobytes())
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("two", values.shape, "<i4", external=[("a.raw", 4, 96), ("b.raw", 0, h5py.h5f.UNLIMITED)])
        file.create_dataset("one", (6, 6), "<i4", external=[("b.raw", 0, 144)])
        file.create_dataset("split", (10, 6), "<i4", external=[("a.raw", 4, 94), ("b.raw", 0, 146)])
        file.create_dataset("lost", (6, 6), "<i4", external=[("c.raw", 0, 144)])
    for name, itself in {"two": values, "one": values[4:]}.items():
        assert_same(array(path, name, tmp_path), itself, name)
    said = subprocess.run([ZARRFS, "tree", path], capture_output=True, text=True).stdout
    assert "the file c.raw, which does not exist" in said and "a.raw has a part of a row" in said, said
