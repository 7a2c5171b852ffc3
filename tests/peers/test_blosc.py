"""Chunks that a mount stores as Blosc frames of each codec, read by C-Blosc in other programs."""

import numcodecs.blosc
import numpy as np
import pytest
import tensorstore as ts

from hierarchies import assert_same, read_ts, read_zarr

CNAMES = ["blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"]
# What numcodecs was built with; snappy is not among it.
NUMCODECS = numcodecs.blosc.list_compressors()
# Chunks of several blocks, of which the last is shorter, and of bytes that are no whole block.
SHAPE, CHUNKS = (900, 700), (701, 523)


def make(path, dtype, cname, shuffle, clevel):
    """An array without chunks, as TensorStore describes it."""
    blosc = {"cname": cname, "shuffle": shuffle, "clevel": clevel, "typesize": np.dtype(dtype).itemsize, "blocksize": 0}
    metadata = {
        "shape": SHAPE,
        "data_type": np.dtype(dtype).name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": CHUNKS}},
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "blosc", "configuration": blosc},
        ],
    }
    kvstore = {"driver": "file", "path": f"{path}/"}
    ts.open({"driver": "zarr3", "kvstore": kvstore, "metadata": metadata}, create=True).result()


def fields():
    """A field that is smooth, one with noise, counts, and nothing but noise."""
    dice = np.random.default_rng(7)
    y, x = np.mgrid[0 : SHAPE[0], 0 : SHAPE[1]] / 100
    smooth = np.sin(x) * np.cos(y * 1.3) * 20 + 280
    return {
        "smooth": smooth.astype("f4"),
        "rounded": np.round(smooth + dice.normal(0, 0.05, SHAPE), 1),
        "counts": np.cumsum(dice.integers(-3, 4, SHAPE), axis=1).astype("i2"),
        "flags": (smooth > 285).astype("u1"),
        "noise": dice.integers(0, 2**32, SHAPE, dtype="u4"),
    }


@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle", "bitshuffle"])
@pytest.mark.parametrize("cname", CNAMES)
def test_a_chunk_written_through_a_mount_is_a_frame_that_c_blosc_reads(mount, tmp_path, cname, shuffle):
    store, expected = tmp_path / "store", fields()
    for clevel, (name, values) in zip([5, 1, 9, 3, 5], expected.items()):
        make(store / name, values.dtype, cname, shuffle, min(clevel, 5) if cname == "zstd" else clevel)
    with mount(store) as m:
        for name, values in expected.items():
            padded = np.zeros([2 * n for n in CHUNKS], values.dtype)
            padded[: SHAPE[0], : SHAPE[1]] = values
            for i in range(2):
                for j in range(2):
                    chunk = padded[i * CHUNKS[0] : (i + 1) * CHUNKS[0], j * CHUNKS[1] : (j + 1) * CHUNKS[1]]
                    (m / name / "c" / str(i)).mkdir(exist_ok=True, parents=True)
                    (m / name / "c" / str(i) / str(j)).write_bytes(chunk.tobytes())
            assert_same(read_zarr(m.path, name), values, f"{name} on the mount")
    for name, values in expected.items():
        assert_same(read_ts(m.store, name), values, f"{name} by tensorstore")
        frame, chunk = (m.store / name / "c/0/0").read_bytes(), values[: CHUNKS[0], : CHUNKS[1]].tobytes()
        is_stored = bool(frame[2] & 2)
        assert is_stored == (name == "noise") or (name, shuffle) == ("smooth", "noshuffle"), f"{name}: {frame[:16]}"
        if not is_stored:
            assert frame[2] >> 5 == {"blosclz": 0, "lz4": 1, "lz4hc": 1, "snappy": 2, "zlib": 3, "zstd": 4}[cname]
            assert len(frame) < len(chunk)
        if cname in NUMCODECS:
            assert_same(read_zarr(m.store, name), values, f"{name} by zarr-python")
            assert numcodecs.blosc.decompress(frame) == chunk
