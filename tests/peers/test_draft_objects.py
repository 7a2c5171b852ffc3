"""Arrays of objects that zarr-python 2.18 wrote in the October 2020 draft."""

import numpy as np
import zarr

WRITE = """
from zarr import DirectoryStoreV3
s = DirectoryStoreV3(store)
texts = np.array([["a", "Zürich", ""], ["x" * 300, "日本語", "b"]] * 3, dtype=object)
blobs = np.array([b"a", b"\\0x", b""], dtype=object)
options = dict(dtype=object, store=s, zarr_version=3)
for order in "CF":
    x = zarr.create(shape=(6, 3), chunks=2, object_codec=numcodecs.VLenUTF8(), path="texts" + order, order=order, **options)
    x[...] = texts
zarr.create(shape=3, chunks=2, object_codec=numcodecs.VLenBytes(), path="blobs", **options)[...] = blobs
zarr.create(shape=3, chunks=2, object_codec=numcodecs.JSON(), path="json", **options)[...] = texts[0]
some = zarr.create(shape=9, chunks=2, object_codec=numcodecs.VLenUTF8(), path="some", fill_value="no", **options)
some[:3] = texts[0]
result = {"texts": texts.tolist()}
"""


def test_objects_of_the_draft_are_strings_and_bytes(mount, zarr2, tmp_path):
    texts = np.array(zarr2.run(WRITE, store=tmp_path / "s")["texts"])
    with mount(tmp_path / "s", copy=False) as m:
        group = zarr.open_group(m.path)
        for name in ("textsC", "textsF"):
            assert group[name][...].tolist() == texts.tolist()
        assert group["blobs"][...].tolist() == [b"a", b"\0x", b""]
        assert group["json"][...].tolist() == texts[0].tolist()
        assert group["some"][...].tolist() == [*texts[0], *["no"] * 6]
        group["textsC"][1:3, 1] = "new"
        group["textsC"].attrs["unit"] = "word"
    again = "s = zarr.DirectoryStoreV3(store); result = {'x': zarr.open_array(store=s, path='textsC', mode='r', zarr_version=3)[:].tolist()}"
    texts[1:3, 1] = "new"
    assert zarr2.run(again, store=tmp_path / "s")["x"] == texts.tolist()
