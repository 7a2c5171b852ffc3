"""Views in formats of several arrays, and of short ones: safetensors, VTK image data, text."""

import re

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import zarr

from images import NUMBERS, STORES, make, numbers, ome, same
from views import cat, refused

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
TENSORS = [name for name in NUMBERS if name not in ("c8", "c16")]


@pytest.mark.parametrize("kind", STORES)
def test_safetensors(tmp_path, kind):
    zarr_format = STORES[kind].get("zarr_format", 3)
    group = zarr.create_group(str(tmp_path / "m"), zarr_format=zarr_format, attributes={"format": "np", "n": [1, 2]})
    group.create_group("layer/0")
    expected = {}
    for count, dtype in enumerate(TENSORS):
        shape = [(), (3,), (4, 5), (2, 3, 4)][count % 4]
        path = f"layer/0/{dtype.replace('?', 'b')}" if count % 2 else f"x{count}"
        expected[path] = make(tmp_path / "m" / path, shape, dtype, kind if shape else "v3" if zarr_format == 3 else "v2")
    group.create_array("none", shape=(0, 3), dtype="i4")
    expected["none"] = np.zeros((0, 3), "i4")
    out = cat(tmp_path / "m", "safetensors", tmp_path / "m.safetensors")
    found = safetensors.numpy.load_file(out)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        same(found[name], values)
    with safetensors.safe_open(out, "np") as file:
        assert file.metadata() == {"format": "np", "n": "[1,2]"}
    # A group in it is a file of its own.
    assert safetensors.numpy.load_file(cat(tmp_path / "m" / "layer", "safetensors", tmp_path / "l")).keys() == {
        name.removeprefix("layer/") for name in expected if name.startswith("layer/")
    }


def test_safetensors_leaves_nothing_out(tmp_path):
    group = zarr.create_group(str(tmp_path / "m"))
    group.create_array("a/b", shape=(2,), dtype="c16")
    assert "/a/b: safetensors has no type for complex128" in refused(tmp_path / "m", "safetensors")
    assert safetensors.numpy.load_file(cat(zarr.create_group(str(tmp_path / "n")).store.root, "safetensors", tmp_path / "n.st")) == {}


def read_vti(path):
    """Arrays by name, with the attributes of the image. (VTK itself has 560 MB.)"""
    data = path.read_bytes()
    head, _, rest = data.partition(b'<AppendedData encoding="raw">\n_')
    text = head.decode()
    image = dict(re.findall(r'(\w+)="([^"]*)"', re.search("<ImageData (.*?)>", text)[1]))
    shape = tuple(b - a + 1 for a, b in np.array(image["WholeExtent"].split(), int).reshape(3, 2))[::-1]
    arrays = {}
    for found in re.findall("<DataArray (.*?)/>", text):
        said = dict(re.findall(r'(\w+)="([^"]*)"', found))
        dtype = np.dtype(said["type"].lower())
        at, count = int(said["offset"]), int(said["NumberOfComponents"])
        length = int.from_bytes(rest[at : at + 8], "little")
        values = np.frombuffer(rest[at + 8 : at + 8 + length], dtype)
        arrays[said["Name"]] = values.reshape(*shape, count)
    assert rest[at + 8 + length :].strip() == b"</AppendedData>\n</VTKFile>"
    return arrays, image


@pytest.mark.parametrize("dtype", NUMBERS)
def test_vti(tmp_path, dtype):
    for count, shape in enumerate([(7,), (5, 7), (3, 5, 7), (2, 3, 5, 7)]):
        store = tmp_path / str(count) / "x"
        values = numbers(make(store, shape, dtype, list(STORES)[count]))
        if dtype in ["f2", "c8", "c16"]:
            assert "VTK has no type for" in refused(store, "vti")
            continue
        arrays, _ = read_vti(cat(store, "vti", tmp_path / f"{count}.vti"))
        same(np.stack(list(arrays.values())).reshape(shape), values)


def test_vti_of_ome(tmp_path):
    values = ome(
        tmp_path / "i", (1, 2, 4, 5, 6), "f4", labels=["DAPI", "<GFP>"], translation=dict(z=10, y=20, x=30)
    )[0]
    arrays, image = read_vti(cat(tmp_path / "i" / "s0", "vti", tmp_path / "x.vti"))
    assert list(arrays) == ["s0 DAPI", "s0 &lt;GFP&gt;"]
    assert (image["Spacing"], image["Origin"]) == ("0.2 0.25 0.5", "30 20 10")
    for channel, found in enumerate(arrays.values()):
        same(found[..., 0], values[0, channel])
    values = make(tmp_path / "s" / "x", (3, 5, 7, 3), "u1", dimension_names=list("zyxc"))
    arrays, _ = read_vti(cat(tmp_path / "s" / "x", "vti", tmp_path / "y.vti"))
    same(arrays["root"], values)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_txt(tmp_path, kind, dtype):
    for shape in [(), (40,)]:
        values = make(tmp_path / f"s{len(shape)}" / "x", shape, dtype, kind if shape else kind.split("-")[0])
        out = cat(tmp_path / f"s{len(shape)}" / "x", "txt", tmp_path / "x.txt")
        lines = out.read_text().splitlines()
        if dtype in ["c8", "c16"]:
            parts = np.array([line.split() for line in lines]).astype({"c8": "f4", "c16": "f8"}[dtype])
            same(parts.reshape(-1).view(dtype).reshape(shape), values)
        else:
            same(np.loadtxt(out, dtype="u1" if dtype == "?" else dtype, ndmin=len(shape)), numbers(values))


def test_txt_of_texts_and_what_is_none(tmp_path):
    for dtype, values in [("U5", ["a", "bc", "", "µ"]), ("S5", [b"a", b"b c", b"", b"d"])]:
        array = zarr.create_array(str(tmp_path / dtype), shape=(4,), dtype=dtype)
        array[...] = np.array(values, dtype)
        lines = cat(tmp_path / dtype, "txt", tmp_path / "x.txt").read_text()
        assert lines == "".join(f"{v if isinstance(v, str) else v.decode()}\n" for v in values)
    zarr.create_array(str(tmp_path / "two"), shape=(4, 2), dtype="i4")
    assert "more than one dimension" in refused(tmp_path / "two", "txt")
    zarr.create_array(str(tmp_path / "long"), shape=(1 << 21,), dtype="i4")
    assert "the limit of txt is 1048576" in refused(tmp_path / "long", "txt")
