"""Chunks that do not all have the same length, through a mount: elements of any length, which zarr-python 3 reads and
writes, and the rectilinear grid, which it does not know yet (what zarr-python 3.4 has written is put together here).
"""

import errno
import json
import struct
import subprocess

import numpy as np
import pytest
import zarr
from zarr.codecs import GzipCodec, ShardingCodec, VLenUTF8Codec
from zarr.core.dtype import VariableLengthBytes

from hierarchies import assert_same, chunk_files, document, elements_of, lengths_of
from test_fixtures import FIXTURES, store_of

WORDS = np.array(["", "a", "Fähre", "日本語", "x" * 5000, "\0", " ", "two\nlines"], dtype=np.dtypes.StringDType())
NONE, SHARDS = ("--codecs", "none"), ("--codecs", "zstd,crc32c", "--shards", "4K")


def words(shape, seed):
    return np.random.default_rng(seed).choice(WORDS, shape)


def same_text(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    assert got.astype(object).tolist() == expected.astype(object).tolist()


def test_text_that_zarr_python_wrote_reads_the_same_by_chunk_file_and_through_the_mount(mount, tmp_path):
    expected = words((7, 10), 1)
    kinds = {
        "zstd": {},
        "gzip": {"compressors": GzipCodec()},
        "none": {"compressors": None},
        "shards": {"shards": (6, 8)},
        "fill": {"fill_value": "füll"},
    }
    for name, options in kinds.items():
        array = zarr.create_array(tmp_path / "x.zarr", name=name, shape=(7, 10), chunks=(3, 4), dtype=str, **options)
        if name != "fill":
            array[...] = expected
    with mount(tmp_path / "x.zarr") as m:
        for name in kinds:
            shown = document(m / name)
            assert [codec["name"] for codec in shown["codecs"]] == ["vlen-utf8"]
            truth = np.full_like(expected, "füll") if name == "fill" else expected
            same_text(zarr.open_array(m / name, mode="r")[...], truth)
            for coords, path in chunk_files(m / name).items():
                held = elements_of(path.read_bytes(), "string")
                assert path.stat().st_size == len(path.read_bytes())
                rows, columns = (slice(i * c, i * c + c) for i, c in zip(coords, (3, 4)))
                inside = truth[rows, columns]
                full = held.reshape(3, 4)
                same_text(full[: inside.shape[0], : inside.shape[1]], inside)


@pytest.mark.parametrize("options", [(), NONE, SHARDS], ids=["default", "none", "shards"])
def test_text_that_zarr_python_writes_into_a_mount_is_in_the_store(mount, tmp_path, options):
    expected = words((7, 10), 2)
    zarr.create_group(tmp_path / "x.zarr")
    with mount(tmp_path / "x.zarr", *options) as m:
        array = zarr.create_array(
            m.path, name="text", shape=(7, 10), chunks=(3, 4), dtype=str, fill_value="-", compressors=None
        )
        array[...] = expected
        # Parts of chunks, which zarr-python reads and writes back whole.
        expected[2:5, 3:9] = "!"
        array[2:5, 3:9] = "!"
        same_text(zarr.open_array(m / "text", mode="r")[...], expected)
        store = m.store
    array = zarr.open_array(store / "text", mode="r")
    same_text(array[...], expected)
    stored = json.loads((store / "text/zarr.json").read_text())["codecs"]
    assert stored[0]["name"] == ("sharding_indexed" if options == SHARDS else "vlen-utf8")
    assert array.metadata.fill_value == "-"
    with mount(store) as m:
        same_text(zarr.open_array(m / "text", mode="r")[...], expected)


def test_bytes_of_any_length(mount, tmp_path):
    expected = np.array([b"", b"\0", b"\xff" * 300, b"abc", b"de"], dtype=object)
    zarr.create_group(tmp_path / "x.zarr")
    with mount(tmp_path / "x.zarr") as m:
        with pytest.warns(zarr.errors.UnstableSpecificationWarning):
            array = zarr.create_array(
                m.path, name="b", shape=(5,), chunks=(2,), dtype=VariableLengthBytes(), compressors=None
            )
        array[...] = expected
        assert zarr.open_array(m / "b", mode="r")[...].tolist() == expected.tolist()
        assert elements_of((m / "b/c/1").read_bytes(), "variable_length_bytes").tolist() == [b"\xff" * 300, b"abc"]
        store = m.store
    assert zarr.open_array(store / "b", mode="r")[...].tolist() == expected.tolist()


def test_inner_chunks_of_text_are_rewritten_by_ordinary_programs(mount, tmp_path):
    expected = words((6, 8), 3)
    array = zarr.create_array(tmp_path / "x.zarr", shape=(6, 8), chunks=(3, 4), shards=(6, 8), dtype=str)
    array[...] = expected
    new = words((3, 4), 4)
    chunk = struct.pack("<I", 12) + b"".join(struct.pack("<I", len(w.encode())) + w.encode() for w in new.flat)
    (tmp_path / "new").write_bytes(chunk)
    with mount(tmp_path / "x.zarr") as m:
        subprocess.run(["cp", tmp_path / "new", m / "c/1/1"], check=True)
        (m / "c/0/0").unlink()
        subprocess.run(["rsync", "-a", "--inplace", tmp_path / "new", m / "c/0/1"], check=True)
        short = tmp_path / "short"
        short.write_bytes(chunk[:-1])
        m.expect("c/1/0: ")
        assert subprocess.run(["cp", short, m / "c/1/0"]).returncode != 0
        m.refused(errno.EINVAL, "vlen-utf8: 1 elements declared", lambda: (m / "c/1/0").write_bytes(b"\1\0\0\0\0\0\0\0"))
        store = m.store
    expected[3:, 4:] = expected[:3, 4:] = new
    expected[:3, :4] = ""
    same_text(zarr.open_array(store, mode="r")[...], expected)


def test_a_sharded_array_of_text_made_by_its_stored_document(mount, tmp_path):
    zarr.create_group(tmp_path / "x.zarr")
    shards = ShardingCodec(chunk_shape=(2,), codecs=[VLenUTF8Codec(), GzipCodec()])
    made = zarr.create_array(
        tmp_path / "y.zarr", shape=(7,), chunks=(4,), dtype=str, serializer=shards, compressors=None
    )
    with mount(tmp_path / "x.zarr") as m:
        (m / ".zarrfs/stored/text").mkdir()
        (m / ".zarrfs/stored/text/zarr.json").write_text((tmp_path / "y.zarr/zarr.json").read_text())
        zarr.open_array(m / "text", mode="r+")[...] = WORDS[:7]
        store = m.store
    same_text(zarr.open_array(store / "text", mode="r")[...], WORDS[:7])
    assert zarr.open_array(store / "text", mode="r").metadata.codecs == made.metadata.codecs


def along_rectilinear(array):
    """The place of each chunk of an array in its directory, and its path."""
    shapes = lengths_of(document(array))
    for coords, path in chunk_files(array).items():
        place = tuple(slice(sum(lens[:i]), sum(lens[: i + 1])) for i, lens in zip(coords, shapes))
        yield place, tuple(lens[i] for i, lens in zip(coords, shapes)), path


def test_a_rectilinear_grid_put_together_from_its_chunk_files_is_the_decoded_truth(mount):
    case = "z342__rectilinear"
    truth = np.load(FIXTURES / case / "expected.npy")
    with mount(store_of(case)) as m:
        found = np.zeros_like(truth)
        for place, shape, path in along_rectilinear(m.path):
            assert path.stat().st_size == 4 * np.prod(shape)
            found[place] = np.frombuffer(path.read_bytes(), "<i4").reshape(shape)
        assert_same(found, truth)
        for place, _, path in along_rectilinear(m.path):
            path.write_bytes((truth[place] * 3).astype("<i4").tobytes())
        store = m.store
    found = np.zeros_like(truth)
    for place, shape, path in along_rectilinear(store):
        found[place] = np.frombuffer(path.read_bytes(), "<i4").reshape(shape)
    assert_same(found, truth * 3)


def test_a_rectilinear_copy_of_a_whole_mount_is_the_same_store(mount, tmp_path):
    zarr.create_group(tmp_path / "x.zarr")
    with mount(store_of("z342__rectilinear")) as source, mount(tmp_path / "x.zarr", *SHARDS) as m:
        subprocess.run(["cp", "-r", source.path, m / "copy"], check=True)
        for _, _, path in along_rectilinear(source.path):
            assert (m / "copy" / path.relative_to(source.path)).read_bytes() == path.read_bytes()
        stored = json.loads((m.store / "copy/zarr.json").read_text())
        assert stored["chunk_grid"] == document(source.path)["chunk_grid"]
        assert [codec["name"] for codec in stored["codecs"]] == ["bytes", "zstd", "crc32c"]
