"""Images in stores: arrays of every kind of store, and OME-Zarr groups."""

import numpy as np
import zarr
from zarr.codecs import BytesCodec

from views import array, values_of

INTEGERS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]
NUMBERS = ["?", *INTEGERS, "f2", "f4", "f8", "c8", "c16"]

STORES = {
    "v3": {},
    "v3-big": dict(serializer=BytesCodec(endian="big")),
    "v3-sharded": dict(sharded=True),
    "v2": dict(zarr_format=2),
    "v2-big": dict(zarr_format=2, big=True),
    "v2-f": dict(zarr_format=2, order="F"),
}

SHAPES = [(7,), (5, 7), (3, 5, 7), (2, 3, 5, 7), (2, 3, 2, 5, 7)]


def make(path, shape, dtype, kind="v3", **options):
    """An array in a store of a kind, and its values."""
    options = STORES[kind] | options
    dtype = np.dtype(dtype)
    if options.pop("big", False):
        dtype = dtype.newbyteorder(">")
    if dtype.itemsize == 1:
        options.pop("serializer", None)
    values = array(str(path), values_of(shape, dtype), **options)
    return values.astype(dtype.newbyteorder("="))


def same(found, expected):
    """The same values, bit by bit, and the same type but for byte order."""
    found = np.asarray(found)
    found = found.astype(found.dtype.newbyteorder("="))
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    if found.dtype.kind in "fc":
        # What is no number may have other bits on its way through a program.
        np.testing.assert_array_equal(found, expected)
    else:
        assert (found == expected).all()


def is_held(dtype, types):
    """The values' type in a format that has `types`: bytes for Booleans; none where it has none."""
    dtype = "u1" if dtype == "?" else dtype
    return dtype if dtype in types else None


def numbers(values):
    """Booleans as bytes, all else as it is."""
    return values.view("u1") if values.dtype == bool else values


def ome(path, shape, dtype="u2", axes="tczyx", *, zarr_format=3, levels=3, chunks=None, labels=None, scale=None,
        translation=None, units=None, factors=None, **options):
    """An OME-Zarr image of several levels, each every second element of y and x of the one before it."""
    kinds = {"t": "time", "c": "channel"}
    units = units if units is not None else dict(t="second", z="micrometer", y="micrometer", x="micrometer")
    scale = scale or dict(t=2.5, c=1.0, z=0.5, y=0.25, x=0.2)
    described = [
        {"name": axis, "type": kinds.get(axis, "space")} | ({"unit": units[axis]} if axis in units else {})
        for axis in axes
    ]
    factors = factors or dict(y=2, x=2)
    group = zarr.create_group(str(path), zarr_format=zarr_format)
    values, datasets, all_values = values_of(shape, dtype), [], []
    for level in range(levels):
        transforms = [{"type": "scale", "scale": [scale[a] * factors.get(a, 1) ** level for a in axes]}]
        if translation:
            transforms.append({"type": "translation", "translation": [translation.get(a, 0.0) for a in axes]})
        datasets.append({"path": f"s{level}", "coordinateTransformations": transforms})
        stored = array(f"{path}/s{level}", values, chunks and tuple(min(c, max(n, 16)) for c, n in zip(chunks, values.shape)),
                       zarr_format=zarr_format, **options)
        all_values.append(stored)
        values = values[tuple(slice(None, None, factors.get(axis, 1)) for axis in axes)]
    multiscales = [{"name": "picture", "axes": described, "datasets": datasets}]
    attributes = {"multiscales": multiscales}
    if labels:
        colors = ["FF0000", "00FF00", "0000FF", "FFFFFF"]
        attributes["omero"] = {"channels": [{"label": l, "color": c, "active": True} for l, c in zip(labels, colors)]}
    if zarr_format == 3:
        attributes = {"ome": {"version": "0.5", **attributes}}
    else:
        multiscales[0]["version"] = "0.4"
    group.attrs.update(attributes)
    return all_values
