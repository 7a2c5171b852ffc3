"""Precomputed volumes of Neuroglancer as hierarchies: the elements that TensorStore reads.

TensorStore has written all volumes here, except those that no program would write.
"""

import contextlib
import gzip
import http.server
import io
import itertools
import json
import os
import resource
import shutil
import struct
import subprocess
import threading

import numpy as np
import pytest
import tensorstore as ts
import zarr

from mounts import BIN

LONG = os.environ.get("ZARRFS_LONG") == "1"
RANDOM = np.random.default_rng(51)
TYPES = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "float32"]


def elements(dtype, shape):
    """Any elements, in the order of the dimensions of Zarr."""
    if dtype == "float32":
        return RANDOM.normal(size=shape).astype(dtype)
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def labels(dtype, shape):
    """Some labels in runs, as in a segmentation."""
    few = RANDOM.integers(0, np.iinfo(dtype).max, 30, dtype=dtype)
    return few[RANDOM.integers(0, 30, shape).cumsum(axis=-1) // 40 % 30]


def smooth(shape):
    """A picture that JPEG can keep."""
    *_, z, y, x = np.indices(shape)
    return (127 + 100 * np.sin(x / 9 + y / 7) * np.cos(z / 11)).astype("uint8")


def driver(path, **spec):
    return {"driver": "neuroglancer_precomputed", "kvstore": {"driver": "file", "path": str(path)}, **spec}


def write(path, array, kind="image", **scale):
    """Writes an array with the dimensions [c,] z, y, x as one more scale of a volume."""
    whole = array if array.ndim == 4 else array[None]
    metadata = {"data_type": str(array.dtype), "num_channels": whole.shape[0], "type": kind}
    scale = {"chunk_size": [16, 12, 10], "encoding": "raw", "resolution": [4, 4, 40], **scale}
    scale = {"size": list(whole.shape[:0:-1]), **scale}
    opened = ts.open(driver(path, multiscale_metadata=metadata, scale_metadata=scale), create=True).result()
    opened[...] = whole.transpose(3, 2, 1, 0)


def expected(path, index=0):
    """What TensorStore reads."""
    found = np.asarray(ts.open(driver(path, scale_index=index)).result().read().result()).transpose(3, 2, 1, 0)
    return found[0] if len(found) == 1 else found


def zarrfs(*arguments, **options):
    return subprocess.run([BIN, *map(str, arguments)], capture_output=True, timeout=120, **options)


def got(source):
    """What zarrfs reads."""
    run = zarrfs("cat", source, "--as", "npy")
    assert run.returncode == 0, run.stderr.decode()
    return np.load(io.BytesIO(run.stdout))


def refusal(source):
    """Why zarrfs does not read it."""
    run = zarrfs("cat", source, "--as", "npy")
    assert run.returncode == 1 and b"panic" not in run.stderr, run.stderr
    return run.stderr.decode()


def assert_read(path, index=0):
    want = expected(path, index)
    found = got(f"{path}#{index}")
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


def sharding(preshift, hashed, minishard, shard, index="raw", data="raw"):
    return {
        "@type": "neuroglancer_uint64_sharded_v1",
        "preshift_bits": preshift,
        "hash": hashed,
        "minishard_bits": minishard,
        "shard_bits": shard,
        "minishard_index_encoding": index,
        "data_encoding": data,
    }


def change(path, **members):
    """Changes members of the only scale of a volume; others are those of the volume."""
    info = json.loads((path / "info").read_bytes())
    of_volume = {"data_type", "num_channels", "scales", "type", "@type"}
    info.update({name: value for name, value in members.items() if name in of_volume})
    if "scales" not in members:
        info["scales"][0].update({name: value for name, value in members.items() if name not in of_volume})
    (path / "info").write_text(json.dumps(info))


@pytest.mark.parametrize("dtype", TYPES)
def test_raw_elements_of_every_type_are_read_also_in_chunks_at_the_end(tmp_path, dtype, tried):
    write(tmp_path / "one", elements(dtype, (23, 31, 37)), voxel_offset=[100, -50, 7])
    write(tmp_path / "several", elements(dtype, (3, 11, 13, 17)))
    for path in (tmp_path / "one", tmp_path / "several"):
        assert_read(path)
        tried("precomputed volumes")


def test_signed_labels_of_eight_bytes_are_read_which_only_cloud_volume_writes(tmp_path):
    write(tmp_path / "v", elements("uint64", (23, 31, 37)))
    want = expected(tmp_path / "v").astype("int64")
    change(tmp_path / "v", data_type="Int64")
    found = got(f"{tmp_path}/v#0")
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_compressed_segmentation_is_read_in_blocks_of_any_size(tmp_path, dtype):
    for number, block in enumerate([[8, 8, 8], [5, 3, 2], [64, 64, 64], [1, 1, 1]]):
        options = {"encoding": "compressed_segmentation", "compressed_segmentation_block_size": block}
        write(tmp_path / f"{number}", labels(dtype, (23, 31, 37)), "segmentation", **options)
        assert_read(tmp_path / f"{number}")
    write(tmp_path / "channels", elements(dtype, (2, 9, 10, 11)), **options)
    assert_read(tmp_path / "channels")


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_images_are_read(tmp_path, channels):
    for dtype in ("uint8", "uint16"):
        write(tmp_path / dtype, elements(dtype, (channels, 11, 13, 17)), encoding="png")
        assert_read(tmp_path / dtype)


@pytest.mark.parametrize(("channels", "most"), [(1, 1), (3, 6)])
def test_jpeg_images_are_read_as_nearly_as_decoders_agree(tmp_path, channels, most):
    array = np.stack([smooth((23, 31, 37)), 255 - smooth((23, 31, 37)), smooth((23, 31, 37)) // 2])[:channels]
    write(tmp_path / "v", array, encoding="jpeg", jpeg_quality=95)
    found, want = got(tmp_path / "v#0"), expected(tmp_path / "v")
    assert found.shape == want.shape and found.dtype == want.dtype
    assert np.abs(found.astype(int) - want).max() <= most


def shard_forms():
    """Ways to put chunks together: a few, or all combinations."""
    few = [(0, "identity", 0, 0), (1, "murmurhash3_x86_128", 2, 3), (3, "identity", 3, 5), (64, "murmurhash3_x86_128", 1, 0)]
    encodings = list(itertools.product(["raw", "gzip"], repeat=2))
    if not LONG:
        return [(*form, *encoding) for form, encoding in zip(few, encodings, strict=True)]
    bits = itertools.product([0, 2, 9], ["identity", "murmurhash3_x86_128"], [0, 1, 4, 13], [0, 1, 6])
    return [(*form, *encoding) for form in bits for encoding in encodings]


@pytest.mark.parametrize("form", shard_forms(), ids=lambda form: "-".join(map(str, form)))
def test_chunks_in_shards_are_read(tmp_path, form, tried):
    array = labels("uint64", (45, 61, 37))
    array[:20] = 0
    options = {"encoding": "compressed_segmentation", "compressed_segmentation_block_size": [8, 8, 8]}
    write(tmp_path / "labels", array, "segmentation", **options, sharding=sharding(*form))
    write(tmp_path / "image", elements("uint16", (2, 23, 31, 37)), sharding=sharding(*form))
    for path in (tmp_path / "labels", tmp_path / "image"):
        assert_read(path)
        tried("precomputed volumes with shards")


def test_chunks_that_are_missing_are_zeros(tmp_path):
    for name, more in (("plain", {}), ("shards", {"sharding": sharding(0, "murmurhash3_x86_128", 1, 3)})):
        array = np.zeros((23, 31, 37), "uint32")
        array[11:14, 12:15, 20:30] = 9
        write(tmp_path / name, array, "segmentation", **more)
        assert_read(tmp_path / name)
        sizes = zarrfs("tree", "--sizes", tmp_path / name).stdout.decode()
        assert " of 27 " in sizes and "27 of 27" not in sizes


def test_every_scale_is_a_level_of_an_image(tmp_path, mount):
    path = tmp_path / "v"
    scales = [((16, 18, 20), 1), ((8, 9, 10), 2), ((4, 5, 5), 4)]
    for shape, factor in scales:
        more = {"resolution": [4 * factor, 4 * factor, 40], "voxel_offset": [100 // factor, -40 // factor, 8]}
        write(path, elements("uint16", shape), **more)
    with mount(path, source=str(path), copy=False) as m:
        m.allow("zarrfs only reads volumes of Neuroglancer")
        group = zarr.open_group(m.path, mode="r", use_consolidated=False)
        for index, (shape, _) in enumerate(scales):
            array = group[f"{index}"]
            assert array.shape == shape and array.metadata.dimension_names == ("z", "y", "x")
            np.testing.assert_array_equal(array[...], expected(path, index))
        image = group.attrs["ome"]["multiscales"][0]
    assert image["axes"] == [{"name": name, "type": "space", "unit": "nanometer"} for name in "zyx"]
    places = [[next(iter(it.values())) for it in reversed_members(level)] for level in image["datasets"]]
    # A level is shifted by half of an element, as its elements are larger.
    assert places == [
        [[40, 4, 4], [320, -160, 400]],
        [[40, 8, 8], [320, -158, 402]],
        [[40, 16, 16], [320, -154, 406]],
    ]


def reversed_members(level):
    return [{it["type"]: it[it["type"]]} for it in level["coordinateTransformations"]]


def test_a_copy_and_a_check_find_what_is_there(tmp_path):
    path, form = tmp_path / "v", sharding(1, "murmurhash3_x86_128", 1, 2, "gzip", "gzip")
    write(path, labels("uint64", (23, 31, 37)), "segmentation", sharding=form)
    copy = tmp_path / "copy.zarr"
    assert zarrfs("convert", path, copy).returncode == 0
    assert zarrfs("diff", path, copy).returncode == 0
    np.testing.assert_array_equal(zarr.open_group(copy, mode="r")["0"][...], expected(path))
    checked = zarrfs("check", path)
    assert checked.returncode == 0 and b"27 checked" in checked.stderr and b"0 damaged" in checked.stderr
    np.testing.assert_array_equal(got(path / "0"), expected(path))


def test_a_directory_of_cloud_volume_has_compressed_files(tmp_path):
    path = tmp_path / "v"
    write(path, elements("uint16", (23, 31, 37)))
    want = expected(path)
    for number, chunk in enumerate(sorted((path / "4_4_40").iterdir())):
        packed = gzip.compress(chunk.read_bytes())
        if number % 3 == 0:
            chunk.with_name(chunk.name + ".gz").write_bytes(packed)
            chunk.unlink()
        elif number % 3 == 1:
            # An object of a store that says `Content-Encoding: gzip`.
            chunk.write_bytes(packed)
    np.testing.assert_array_equal(got(f"{path}#0"), want)
    chunk = next((path / "4_4_40").glob("*[0-9]"))
    chunk.rename(f"{chunk}.zstd")
    assert ".zstd" in refusal(f"{path}#0")


class Ranges(http.server.SimpleHTTPRequestHandler):
    """A web server that sends ranges, and notes what it was asked for."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, has_body):
        path = self.translate_path(self.path)
        wanted = self.headers.get("Range")
        self.server.asked.append((self.command, self.path, wanted))
        if not os.path.isfile(path):
            self.send_response(404)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        with open(path, "rb") as file:
            body = file.read()
        total, packed = len(body), path.endswith("packed")
        if wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            first, last = (int(first), int(last or total)) if first else (total - int(last), total)
            body = body[first : last + 1]
            self.send_response(206 if body else 416)
            self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{total}" if body else f"bytes */{total}")
        else:
            self.send_response(200)
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{total}-{os.stat(path).st_mtime_ns}"')
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if has_body:
            self.wfile.write(body)


@contextlib.contextmanager
def served(directory):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Ranges(*args, directory=str(directory)))
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_volume_at_a_url_is_read_with_few_requests(tmp_path):
    array = elements("uint16", (23, 31, 37))
    write(tmp_path / "plain", array)
    write(tmp_path / "shards", array, sharding=sharding(0, "identity", 2, 1, "gzip", "gzip"))
    with served(tmp_path) as (url, asked):
        for source in (f"{url}/plain", f"precomputed://{url}/plain", f"precomputed+{url}/shards"):
            np.testing.assert_array_equal(got(f"{source}#0"), array)
        asked.clear()
        corner = zarrfs("cat", f"precomputed+{url}/shards#0", "--region", "0:1,0:1,0:1", "--as", "raw")
        assert corner.stdout == array[0, 0, 0].tobytes()
        of_chunks = [request for request in asked if request[1].endswith(".shard")]
        # The index of the shard, that of the minishard, and the chunk.
        assert len(of_chunks) == 3, asked


def test_compressed_chunks_at_a_url_are_read_in_any_order(tmp_path):
    path = tmp_path / "v"
    write(path, elements("uint16", (23, 31, 37)))
    want = expected(path)
    chunks = sorted((path / "4_4_40").iterdir())
    for chunk in chunks[1::3]:
        chunk.with_name(chunk.name + ".gz").write_bytes(gzip.compress(chunk.read_bytes()))
        chunk.unlink()
    with served(tmp_path) as (url, asked):
        np.testing.assert_array_equal(got(f"precomputed+{url}/v#0"), want)
        plain = [request for request in asked if chunks[0].name in request[1]]
        assert len(plain) == 1, plain
        chunks[0].rename(f"{chunks[0]}.zstd")
        assert ".zstd" in refusal(f"precomputed+{url}/v#0")


def test_a_shard_that_is_replaced_is_read_anew_by_a_mount(tmp_path, mount):
    path, form = tmp_path / "v", sharding(0, "identity", 1, 1, "gzip", "gzip")
    write(path, np.full((23, 31, 37), 3, "uint16"), sharding=form)
    with mount(path, "--metadata-ttl", "0s", source=str(path), copy=False) as m:
        m.allow("zarrfs only reads volumes of Neuroglancer")
        array = zarr.open_group(m.path, mode="r", use_consolidated=False)["0"]
        assert (array[...] == 3).all()
        opened = ts.open(driver(path, scale_index=0)).result()
        opened[...] = elements("uint16", (37, 31, 23, 1))
        np.testing.assert_array_equal(array[...], expected(path))


UNREAD = {
    "compresso": ({"encoding": "compresso"}, "encoding"),
    "another encoding": ({"encoding": 7}, "encoding 7"),
    "chunks of nothing": ({"chunk_sizes": [[0, 1, 1]]}, "chunk_sizes has a length of 0"),
    "no chunks": ({"chunk_sizes": []}, "chunk_sizes"),
    "chunks of 2^64": ({"chunk_sizes": [[2**64, 1, 1]]}, "chunk_sizes"),
    "sizes of 2^64": ({"size": [2**64 - 1] * 3}, ""),
    "large chunks": ({"size": [2**40, 1, 1], "chunk_sizes": [[2**40, 1, 1]]}, "chunks of"),
    "chunks of 8 GiB": ({"size": [2**31, 2, 1], "chunk_sizes": [[2**31, 2, 1]]}, "--max-chunk-size"),
    "a negative size": ({"size": [-1, 1, 1]}, "size"),
    "a size of text": ({"size": "all"}, "size"),
    "far away": ({"voxel_offset": [2**63, 0, 0]}, "voxel_offset"),
    "no resolution": ({"resolution": [0, 1, 1]}, "resolution"),
    "a key outside": ({"key": "../other"}, "outside"),
    "a key at a server": ({"key": "gs://bucket/other"}, "another place"),
    "jpeg of uint16": ({"encoding": "jpeg"}, "jpeg of 1 channels of uint16"),
    "blocks of nothing": ({"encoding": "compressed_segmentation", "compressed_segmentation_block_size": [0, 1, 1]}, "blocks"),
    "many bits": ({"sharding": sharding(0, "identity", 33, 1)}, "bits"),
    "too many bits": ({"sharding": sharding(0, "identity", 2**70, 2**70)}, "bits"),
    "another hash": ({"sharding": sharding(0, "md5", 1, 1)}, "hash"),
    "another type": ({"data_type": "float64"}, "data type"),
    "no channels": ({"num_channels": 0}, "num_channels"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_supported_is_an_array_that_says_why(tmp_path, name):
    path = tmp_path / "v"
    write(path, elements("uint16", (3, 4, 5)))
    members, why = UNREAD[name]
    change(path, **members)
    assert why in refusal(f"{path}#0")
    assert b"0" in zarrfs("tree", path).stdout


def damaged_shards(path):
    """Replaces parts of the only shard, and yields what was done. It begins with an index of 2 minishards."""
    shard = next(path.glob("*/*.shard"))
    whole = shard.read_bytes()
    start, end = struct.unpack("<QQ", whole[:16])
    for what, first in {
        "an index past the end": (start, end + 2**40),
        "an index of 2^64 bytes": (0, 2**64 - 1),
        "an index that ends before it begins": (end, start),
        "an index at 2^64": (2**64 - 2, 2**64 - 1),
    }.items():
        shard.write_bytes(struct.pack("<QQ", *first) + whole[16:])
        yield what
    rows = struct.unpack(f"<{(end - start) // 8}Q", whole[32 + start : 32 + end])
    count = len(rows) // 3
    for what, at, value in [
        ("a chunk past the end", 2 * count, 2**40),
        ("a chunk of 2^64 bytes", 2 * count, 2**64 - 1),
        ("a chunk at 2^64", count, 2**64 - 1),
        ("a chunk in the index", count, 2**64 - 20),
    ]:
        changed = [*rows[:at], value, *rows[at + 1 :]]
        shard.write_bytes(whole[: 32 + start] + struct.pack(f"<{len(rows)}Q", *changed) + whole[32 + end :])
        yield what
    if count > 1:
        changed = [rows[0], 0, *rows[2:]]
        shard.write_bytes(whole[: 32 + start] + struct.pack(f"<{len(rows)}Q", *changed) + whole[32 + end :])
        yield "a chunk twice"
    shard.write_bytes(whole[:20])
    yield "a short shard"


def test_indexes_that_lead_nowhere_are_errors(tmp_path):
    path = tmp_path / "v"
    write(path, elements("uint16", (10, 12, 64)), sharding=sharding(0, "identity", 1, 0))
    for what in damaged_shards(path):
        assert "0.shard" in refusal(f"{path}#0"), what


def limited():
    """Limits the memory of a process; its threads reserve much more than they use."""
    resource.setrlimit(resource.RLIMIT_DATA, (768 << 20, 768 << 20))


def test_bombs_are_refused_in_little_memory(tmp_path):
    bomb = gzip.compress(bytes(1 << 24)) * 64
    write(tmp_path / "v", elements("uint16", (10, 12, 16)))
    chunk = next((tmp_path / "v/4_4_40").iterdir())
    chunk.write_bytes(bomb)
    shutil.copytree(tmp_path / "v", tmp_path / "index")
    change(tmp_path / "index", sharding=sharding(0, "identity", 0, 0, "gzip", "raw"))
    (tmp_path / "index/4_4_40/0.shard").write_bytes(struct.pack("<QQ", 0, len(bomb)) + bomb)
    for path in (tmp_path / "v", tmp_path / "index"):
        run = zarrfs("cat", f"{path}#0", "--as", "npy", preexec_fn=limited)
        assert run.returncode == 1 and run.stderr, run.stderr


def test_a_directory_with_another_file_info_is_no_volume(tmp_path):
    path = tmp_path / "mesh"
    path.mkdir()
    for info in ({"@type": "neuroglancer_multilod_draco"}, {"type": "image"}, [], {"@type": "neuroglancer_skeletons"}):
        (path / "info").write_text(json.dumps(info))
        assert zarrfs("tree", path).returncode == 1
        assert "not a Neuroglancer volume" in refusal(f"precomputed+{path}")
    (path / "info").write_text(json.dumps({"@type": "neuroglancer_multiscale_volume", "scales": [{}] * 300}))
    assert "300 scales" in refusal(path)
    with served(tmp_path) as (url, _):
        assert "300 scales" in refusal(f"{url}/mesh")
