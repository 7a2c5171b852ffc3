"""Hierarchies that would have no end: links in circles, wide and deep trees, huge numbers where a program would count or reserve.

Each is made by a function that is given the store's directory, in which the array `good` lies already.
"""

import bz2
import gzip
import json
import lzma
import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

BYTES = {"name": "bytes"}
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
CONSOLIDATED = {"kind": "inline", "must_understand": False, "metadata": {}}
HUGE = 10**18
DEFAULT_KEYS = {"name": "default", "configuration": {"separator": "/"}}


def grid(chunks):
    return {"name": "regular", "configuration": {"chunk_shape": list(chunks)}}


def array(shape=(16,), chunks=(8,), dtype="uint8", **members):
    """The metadata of an array; each member can be given another value."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": grid(chunks),
        "chunk_key_encoding": DEFAULT_KEYS,
        "fill_value": "" if dtype == "string" else 0,
        "codecs": [{"name": "vlen-utf8"} if dtype == "string" else LITTLE],
        "attributes": {},
        **members,
    }


def put(path, document):
    """Writes a metadata file, and makes the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(document, bytes):
        document = (document if isinstance(document, str) else json.dumps(document)).encode()
    path.write_bytes(document)


def node(path, document):
    put(path / "zarr.json", document)


def consolidate(store):
    node(store, {**GROUP, "consolidated_metadata": CONSOLIDATED})


def spliced(document, where, text):
    """A metadata file as text, in which the string `where` is replaced by `text`: faster than to make the value."""
    return json.dumps(document).replace(json.dumps(where), text)


CASES = {}


@dataclass
class Case:
    make: object
    # The listing of all has no end, or takes longer than anybody waits: its reader may stop.
    endless: bool = False
    # Whether nodes can be changed: not where others would have to be changed with them, and there are too many.
    changes: bool = True
    # Paths of nodes to look at besides `good`.
    nodes: list = field(default_factory=lambda: ["bad"])
    # What is too long or too deep for the test itself, which reads all that is left in the store in the end.
    unfit: list = field(default_factory=list)


def case(**options):
    def keep(make):
        CASES[make.__name__] = Case(make, **options)
        return make

    return keep


# Links.


@case(nodes=["l1"])
def links_to_the_root(store):
    for name in ("l1", "l2", "l3"):
        (store / name).symlink_to(".")


@case(nodes=["l1"])
def links_to_the_root_of_consolidated_metadata(store):
    links_to_the_root(store)
    consolidate(store)


@case()
def links_to_the_parent(store):
    node(store / "bad", GROUP)
    node(store / "bad/deep", GROUP)
    for name in ("up", "again"):
        (store / "bad" / name).symlink_to("..")
        (store / "bad/deep" / name).symlink_to("../..")
    consolidate(store)


@case(nodes=["one", "two"])
def links_to_one_another(store):
    for name, other in (("one", "two"), ("two", "one")):
        node(store / name, GROUP)
        for link in range(3):
            (store / name / f"l{link}").symlink_to(f"../{other}")
    consolidate(store)


@case(nodes=["l0", "l0/x"])
def links_in_a_ring(store):
    for n in range(6):
        node(store / f"l{n}", GROUP)
        (store / f"l{n}/x").symlink_to(f"../l{(n + 1) % 6}")
        (store / f"l{n}/y").symlink_to(f"../l{(n + 2) % 6}")
    consolidate(store)


@case(endless=True, changes=False, nodes=["f0"])
def a_fan_of_links(store):
    """Two to the power of 30 paths, and no circle."""
    for n in range(30):
        node(store / f"f{n}", GROUP)
        for name in "ab":
            (store / f"f{n}" / name).symlink_to(f"../f{n + 1}")
    node(store / "f30", array())
    consolidate(store)


@case(endless=True, changes=False, nodes=["f0"])
def a_wide_fan_of_links(store):
    """100 to the power of 6 paths."""
    for n in range(6):
        node(store / f"f{n}", GROUP)
        for name in range(100):
            (store / f"f{n}" / f"x{name}").symlink_to(f"../f{n + 1}")
    node(store / "f6", array())
    consolidate(store)


@case(endless=True, nodes=["f0"])
def a_fan_of_links_without_metadata(store):
    """Implicit groups: whether one is a group is found by looking below it."""
    for n in range(25):
        (store / f"f{n}").mkdir()
        for name in "abc":
            (store / f"f{n}" / name).symlink_to(f"../f{n + 1}")
    (store / "f25").mkdir()


@case(endless=True, nodes=["bad", "l0/d/d/d"])
def links_to_a_deep_tree(store):
    make_deep(store / "bad", 200)
    for n in range(10):
        (store / f"l{n}").symlink_to("bad")
    consolidate(store)


@case()
def links_to_themselves(store):
    node(store / "bad", GROUP)
    for n in range(50):
        (store / "bad" / f"l{n}").symlink_to(f"l{n}")
        (store / "bad" / f"m{n}").symlink_to(f"m{(n + 1) % 50}")
    (store / "self").symlink_to("self")
    consolidate(store)


@case()
def chunks_that_are_links_to_the_array(store):
    node(store / "bad", array((8, 8, 8), (1, 1, 1)))
    (store / "bad/c").symlink_to(".")
    for n in range(8):
        (store / "bad" / str(n)).symlink_to(".")


@case(nodes=["bad"])
def a_metadata_file_that_is_a_link_to_its_directory(store):
    (store / "bad").mkdir()
    (store / "bad/zarr.json").symlink_to(".")


@case(nodes=["bad"])
def the_same_group_by_many_names(store):
    node(store / "bad", GROUP)
    for n in range(100):
        node(store / "bad" / f"a{n}", array())
    for n in range(300):
        (store / f"link{n}").symlink_to("bad")
    consolidate(store)


@case(nodes=["out", "far"])
def links_out_of_the_store(store):
    """To a directory that has everything, to nothing, and to devices and files that have no end."""
    for name, target in (("out", "/"), ("far", "../../../.."), ("proc", "/proc"), ("zero", "/dev/zero")):
        (store / name).symlink_to(target)
    (store / "bad").mkdir()
    (store / "bad/zarr.json").symlink_to("/dev/zero")
    node(store / "chunks", array())
    (store / "chunks/c").symlink_to("/proc/self/fd")
    consolidate(store)


@case(nodes=["chain0", "chain45"])
def chains_of_links(store):
    """Each link leads to the next one, more of them than the kernel follows."""
    for n in range(50):
        (store / f"chain{n}").symlink_to(f"chain{n + 1}")
    node(store / "chain50", GROUP)
    node(store / "chain50/a", array())
    consolidate(store)


@case(nodes=["pipe"])
def files_that_are_no_files(store):
    """Opening a pipe waits for another program."""
    for name in ("pipe", "socket"):
        (store / name).mkdir()
        os.mkfifo(store / name / "zarr.json")
    node(store / "chunks", array())
    (store / "chunks/c").mkdir()
    os.mkfifo(store / "chunks/c/0")
    (store / "chunks/c/1").mkdir()


# Wide and deep trees.


@case(endless=True)
def many_children(store):
    text = json.dumps(array())
    for n in range(20_000):
        (store / "bad" / f"a{n}").mkdir(parents=True)
        (store / "bad" / f"a{n}" / "zarr.json").write_text(text)
    node(store / "bad", GROUP)


@case(endless=True)
def many_children_of_consolidated_metadata(store):
    many_children(store)
    consolidate(store)


@case(endless=True)
def many_names_without_metadata(store):
    (store / "bad").mkdir()
    for n in range(200_000):
        os.close(os.open(store / "bad" / f"{n:0200}", os.O_CREAT | os.O_WRONLY))


@case(endless=True, nodes=["bad"])
def chunks_in_one_directory(store):
    """All 200,000 are stored."""
    node(store / "bad", array((200_000,), (1,)))
    (store / "bad/c").mkdir()
    for n in range(200_000):
        os.close(os.open(store / f"bad/c/{n}", os.O_CREAT | os.O_WRONLY))


@case(endless=True, nodes=["bad", "bad/d/d/d"], unfit=["bad"])
def a_deep_tree(store):
    make_deep(store / "bad", 5000)


@case(endless=True, nodes=["bad", "bad/d/d/d"], unfit=["bad"])
def a_deep_tree_of_consolidated_metadata(store):
    make_deep(store / "bad", 1500)
    consolidate(store)


@case(endless=True, nodes=["bad"], unfit=["bad"])
def a_deep_tree_without_metadata(store):
    make_deep(store / "bad", 5000, text=None)


def make_deep(top, depth, text=json.dumps(GROUP)):
    """Groups in one another: deeper than a path can be."""
    top.mkdir()
    at = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        if text is not None:
            fd = os.open("zarr.json", os.O_WRONLY | os.O_CREAT, dir_fd=at)
            os.write(fd, text.encode())
            os.close(fd)
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@case(nodes=["n" * 255])
def long_names(store):
    path = store
    for _ in range(15):
        path = path / ("n" * 255)
        node(path, GROUP)
    consolidate(store)


@case(nodes=["name", "NAME"])
def names_in_all_cases(store):
    """All names that are the same where case does not count, and those that are not text."""
    for n in range(0, 256, 3):
        name = "".join(letter.upper() if n >> at & 1 else letter for at, letter in enumerate("nameless"))
        node(store / name[:4] if n < 16 else store / name, array())
    for name in (b"\xff\xfe", b"a\nb", b"\x01\x7f", "\u202e\u0301".encode(), b"c\xcc\x81" * 80, b" ", b"-rf", b"%00", b"..." * 80, b"__" * 120):
        at = os.path.join(os.fsencode(store), name)
        os.mkdir(at)
        with open(os.path.join(at, b"zarr.json"), "w") as file:
            file.write(json.dumps(array()))
    consolidate(store)


@case(endless=True)
def many_children_with_large_metadata(store):
    """600 MB of metadata files: to keep what was read of them would take all memory."""
    text = json.dumps(array(attributes={"x": "y" * 1_000_000}))
    for n in range(600):
        put(store / "bad" / f"a{n}" / "zarr.json", text)
    node(store / "bad", GROUP)
    consolidate(store)


@case(endless=True)
def many_children_with_many_values(store):
    text = spliced(array(attributes="HERE"), "HERE", '{"x":[' + ",".join(["0"] * 100_000) + "]}")
    for n in range(200):
        put(store / "bad" / f"a{n}" / "zarr.json", text)
    node(store / "bad", GROUP)
    consolidate(store)


# Grids.


@case()
def a_huge_grid(store):
    node(store / "bad", array((HUGE,), (1,)))
    put(store / "bad/c/0", "x")


@case()
def a_grid_of_many_dimensions(store):
    node(store / "bad", array((10**6,) * 3, (1,) * 3))
    node(store / "bad64", array((2,) * 60, (1,) * 60))


@case(nodes=["bad", "bad64", "bad1000"])
def arrays_of_high_rank(store):
    node(store / "bad", array((1,) * 64, (1,) * 64))
    put(store / "bad/c" / "/".join(["0"] * 64), "x")
    node(store / "bad64", array((2,) * 64, (1,) * 64))
    node(store / "bad1000", array((1,) * 1000, (1,) * 1000))


@case()
def a_hundred_thousand_dimensions(store):
    node(store / "bad", array((1,) * 100_000, (1,) * 100_000))


@case()
def a_grid_of_a_billion_small_chunks(store):
    node(store / "bad", array((1 << 15, 1 << 15), (1, 1), "float32"))


@case()
def ten_million_chunks(store):
    node(store / "bad", array((10_000_000,), (1,), "float64", dimension_names=["time"]))
    put(store / "bad/c/5", struct.pack("<d", 1.5))


@case(nodes=["bad", "huge", "product"])
def huge_chunks(store):
    node(store / "bad", array((1 << 40,), (1 << 40,)))
    node(store / "huge", array((1 << 62,), (1 << 62,), "float64"))
    node(store / "product", array((1 << 32, 1 << 32), (1 << 32, 1 << 32)))
    for name in ("bad", "huge", "product"):
        put(store / name / "c/0/0" if name == "product" else store / name / "c/0", "x")


GIB = 1 << 30


def encoded(codec, data, times=1):
    """`times` copies of `data`, in the pieces that each format puts together."""
    if codec == "gzip":
        return gzip.compress(data) * times
    if codec == "zstd":
        # A frame without a length, of blocks that each stand for 128 KiB of one byte.
        block = struct.pack("<I", (len(data) << 3) | 2)[:3] + b"x"
        last = struct.pack("<I", (len(data) << 3) | 3)[:3] + b"x"
        return b"\x28\xb5\x2f\xfd\x00\x58" + block * (times - 1) + last
    if codec == "blosc":
        # A length that the rest of the chunk does not have.
        return struct.pack("<BBBBIII", 2, 1, 0x21, 1, 0x7FFF_FF00, 0x100_0000, 16 + times) + bytes(times)
    if codec == "numcodecs.bz2":
        return bz2.compress(data) * times
    if codec == "numcodecs.lzma":
        return lzma.compress(data) * times
    if codec == "numcodecs.lz4":
        return struct.pack("<I", 0x7E00_0000) + b"\x1fx\x01\x00" + b"\xff" * times
    return zlib.compress(data * times)


CODECS = {
    "gzip": {"level": 1},
    "zstd": {"level": 1, "checksum": False},
    "blosc": {"cname": "lz4", "clevel": 1, "shuffle": "noshuffle", "typesize": 1, "blocksize": 0},
    "numcodecs.zlib": {"level": 1},
    "numcodecs.bz2": {"level": 1},
    "numcodecs.lzma": {},
    "numcodecs.lz4": {"acceleration": 1},
}


@case(nodes=["gzip", "zstd-text", "blosc", "twice"])
def chunks_that_expand_to_gigabytes(store):
    """Of 16 bytes that there should be, and of strings, which may have any length."""
    data = bytes(128 << 10)
    for codec, configuration in CODECS.items():
        name, last = codec.replace("numcodecs.", ""), {"name": codec, "configuration": configuration}
        chunk = encoded(codec, data, 200 if codec == "numcodecs.zlib" else 4000)
        for kind, document in (("", array(codecs=[LITTLE, last])), ("-text", array(dtype="string", codecs=[{"name": "vlen-utf8"}, last]))):
            node(store / (name + kind), document)
            put(store / (name + kind) / "c/0", chunk)
    twice = [LITTLE, {"name": "gzip", "configuration": {"level": 1}}] + [{"name": "gzip", "configuration": {"level": 1}}]
    node(store / "twice", array(codecs=twice))
    put(store / "twice/c/0", gzip.compress(encoded("gzip", data, 4000)))


@case(nodes=["count", "length", "bytes"])
def strings_that_say_they_are_long(store):
    for name, chunk in (
        ("count", struct.pack("<I", 0xFFFF_FFFF)),
        ("length", struct.pack("<II", 8, 0xFFFF_FFFF) + b"x" * 100),
        ("bytes", struct.pack("<I", 8) + struct.pack("<I", 0x1FFF_FFFF) * 8),
    ):
        dtype, codec = ("variable_length_bytes", "vlen-bytes") if name == "bytes" else ("string", "vlen-utf8")
        node(store / name, array(dtype=dtype, codecs=[{"name": codec}], fill_value=""))
        put(store / name / "c/0", chunk)
    node(store / "many", array((1 << 40,), (1 << 40,), "string"))
    put(store / "many/c/0", struct.pack("<I", 0xFFFF_FFFF))


@case(unfit=["bad/c/0"])
def a_chunk_that_is_a_terabyte_of_nothing(store):
    node(store / "bad", array(codecs=[LITTLE, {"name": "gzip", "configuration": {"level": 1}}]))
    (store / "bad/c").mkdir()
    with open(store / "bad/c/0", "wb") as file:
        file.truncate(1 << 40)


@case(nodes=["bad", "many", "ones"])
def rectilinear_grids_of_long_runs(store):
    def rectilinear(*lens):
        return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": list(lens)}}

    node(store / "bad", array((HUGE,), (1,), chunk_grid=rectilinear([[1, HUGE]])))
    node(store / "many", array((500_000,), (1,), chunk_grid=rectilinear([1 + n % 2 for n in range(333_333)] + [1])))
    node(store / "ones", array((10**6, 10**6), (1, 1), chunk_grid=rectilinear([[1, 10**6]], [[1, 10**6]])))


@case(nodes=["bad", "deep"])
def shards_of_many_chunks(store):
    def sharded(chunk, codecs=None):
        configuration = {"chunk_shape": chunk, "codecs": codecs or [LITTLE], "index_codecs": [LITTLE], "index_location": "end"}
        return {"name": "sharding_indexed", "configuration": configuration}

    node(store / "bad", array((1 << 32,), (1 << 32,), codecs=[sharded([1])]))
    put(store / "bad/c/0", "x" * 100)
    node(store / "deep", array((1 << 28,), (1 << 28,), codecs=[sharded([1 << 14], [sharded([1])])]))
    put(store / "deep/c/0", "x" * 100)


@case()
def a_shard_index_as_long_as_it_may_be(store):
    configuration = {"chunk_shape": [1], "codecs": [LITTLE], "index_codecs": [LITTLE], "index_location": "end"}
    node(store / "bad", array((1 << 22,), (1 << 22,), codecs=[{"name": "sharding_indexed", "configuration": configuration}]))
    (store / "bad/c").mkdir()
    with open(store / "bad/c/0", "wb") as file:
        file.truncate(1 << 30)


@case()
def an_image_of_many_tiles(store):
    node(store / "bad", array((32_000, 16_000), (16, 16), dimension_names=["y", "x"]))


@case()
def an_image_of_many_channels(store):
    axes = [{"name": name, "type": kind} for name, kind in (("t", "time"), ("c", "channel"), ("z", "space"), ("y", "space"), ("x", "space"))]
    multiscales = [{"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1] * 5}]}]}]
    node(store / "bad", {**GROUP, "attributes": {"ome": {"version": "0.5", "multiscales": multiscales}}})
    node(store / "bad/0", array((10**6, 10**9, 10**6, 4, 4), (1, 1, 1, 4, 4), dimension_names=list("tczyx")))
    omero = {"channels": [{"label": "x" * 100, "color": "FFFFFF"} for _ in range(50_000)]}
    node(store / "many", {**GROUP, "attributes": {"ome": {"version": "0.5", "multiscales": multiscales, "omero": omero}}})
    node(store / "many/0", array((1, 100_000, 1, 4, 4), (1, 1, 1, 4, 4), dimension_names=list("tczyx")))


@case()
def an_image_of_many_levels(store):
    datasets = [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 1]}]}] * 50_000
    axes = [{"name": name, "type": "space"} for name in "yx"]
    node(store / "bad", {**GROUP, "attributes": {"ome": {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}}})
    node(store / "bad/0", array((64, 64), (16, 16), dimension_names=["y", "x"]))


# Fill values, strings and attributes.


@case()
def a_long_fill_value_of_many_strings(store):
    """A terabyte, if each element had a copy."""
    node(store / "bad", array((1 << 20,), (1 << 20,), "string", fill_value="x" * (1 << 20)))


@case()
def a_long_fill_value_of_many_chunks_of_strings(store):
    node(store / "bad", array((1 << 20,), (1,), "string", fill_value="x" * (1 << 20)))


@case(nodes=["bad", "text"])
def elements_of_a_gigabyte(store):
    node(store / "bad", array((16,), (1,), "r8589934584", fill_value=[0] * 4))
    node(store / "text", array((16,), (1,), {"name": "fixed_length_utf32", "configuration": {"length_bytes": 1 << 30}}, fill_value=""))


def categorize(labels, dtype="|O", astype="|u1"):
    return {"name": "numcodecs.categorize", "configuration": {"labels": labels, "dtype": dtype, "astype": astype}}


@case()
def labels_of_elements_of_a_mebibyte(store):
    """Two gigabytes, if each label were kept with its padding."""
    dtype = {"name": "fixed_length_utf32", "configuration": {"length_bytes": 1 << 20}}
    codecs = [categorize([str(n) for n in range(2000)], "<U262144", "<u2"), LITTLE]
    node(store / "bad", array((4,), (1,), dtype, fill_value="", codecs=codecs))


@case(nodes=["bad", "empty"])
def numbers_of_labels_that_expand_to_gigabytes(store):
    node(store / "bad", array((9000,), (9000,), "string", codecs=[categorize(["x" * 100_000]), LITTLE]))
    put(store / "bad/c/0", b"\1" * 9000)
    count = 400_000_000
    packed = gzip.compress(bytes(1 << 20), 1)
    node(store / "empty", array((count,), (count,), "string", codecs=[categorize(["x"]), LITTLE, {"name": "gzip", "configuration": {"level": 1}}]))
    put(store / "empty/c/0", packed * 382)


@case(nodes=["json-many", "json-value", "msgpack-many", "msgpack-value", "msgpack-names"])
def lists_of_many_objects(store):
    """One byte for each object here, and up to 72 in memory."""
    many, value = 15 << 20, 4_000_000

    def objects(name, count, chunk):
        packed = {"name": "gzip", "configuration": {"level": 1}}
        codec = {"name": "numcodecs." + name.split("-")[0] + "2"}
        node(store / name, array((count,), (count,), "string", codecs=[codec, packed]))
        put(store / name / "c/0", gzip.compress(chunk, 1))

    objects("json-many", many, b"[" + b"0," * many + b'"|O",[%d]]' % many)
    objects("json-value", 1, b"[[" + b"0," * value + b'0],"|O",[1]]')
    objects("msgpack-many", 16, b"\xdd" + struct.pack(">I", many + 2) + bytes(many) + b"\xa2|O\x91\xce" + struct.pack(">I", many))
    objects("msgpack-value", 1, b"\x93\xdd" + struct.pack(">I", value) + bytes(value) + b"\xa2|O\x91\x01")
    objects("msgpack-names", 1, b"\x93" + b"\x81" * 60 + b"\xa1a" + bytes(60) + b"\xa2|O\x91\x01")


@case()
def a_cast_with_many_scalars(store):
    """Twenty seconds, if each element were compared with each scalar."""
    count = 4 << 20
    cast = {"name": "cast_value", "configuration": {"data_type": "int32", "scalar_map": {"decode": [[n + 1, 0] for n in range(10_000)]}}}
    node(store / "bad", array((count,), (count,), codecs=[cast, LITTLE, {"name": "gzip", "configuration": {"level": 1}}]))
    put(store / "bad/c/0", gzip.compress(bytes(4 * count), 1))


@case(nodes=["bad", "transposed"])
def strings_of_no_length(store):
    """Eight million in a chunk that is not too long, and a slice of each would take 128 MiB."""
    count, packed = 8_000_000, {"name": "gzip", "configuration": {"level": 1}}
    chunk = gzip.compress(struct.pack("<I", count) + bytes(4 * count), 1)
    node(store / "bad", array((count,), (count,), "string", codecs=[{"name": "vlen-utf8"}, packed]))
    put(store / "bad/c/0", chunk)
    codecs = [{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "vlen-utf8"}, packed]
    node(store / "transposed", array((count // 8, 8), (count // 8, 8), "string", codecs=codecs))
    put(store / "transposed/c/0/0", chunk)


@case(nodes=["bad"])
def coordinates_of_long_strings(store):
    """A group whose coordinates would all be put into the header of a file."""
    for n in range(40):
        node(store / f"bad/x{n}", array((60_000,), (60_000,), "string", fill_value="y" * 200, dimension_names=[f"x{n}"]))
    node(store / "bad/data", array((60_000,), (60_000,), "float64", dimension_names=["x0"]))
    node(store / "bad", GROUP)


@case()
def a_hundred_thousand_attributes(store):
    node(store / "bad", array(attributes={f"attribute number {n}": n for n in range(100_000)}))


@case()
def a_million_attributes(store):
    node(store / "bad", spliced(array(attributes="HERE"), "HERE", "{" + ",".join(f'"a{n}":{n}' for n in range(1_000_000)) + "}"))


@case()
def an_attribute_that_names_a_million_coordinates(store):
    node(store / "bad", array(dimension_names=["x"], attributes={"coordinates": "x " * 1_000_000, "grid_mapping": "y " * 100_000}))
    node(store / "x", array(dimension_names=["x"], attributes={"flag_values": list(range(100_000)), "flag_meanings": "m " * 100_000}))


@case()
def a_plate_of_many_wells(store):
    names = [{"name": str(n)} for n in range(1000)]
    wells = ",".join(f'{{"path":"{n}/{m}","rowIndex":{n},"columnIndex":{m}}}' for n in range(200) for m in range(200))
    plate = {"version": "0.5", "plate": {"rows": names, "columns": names, "wells": "HERE", "version": "0.5"}}
    node(store / "bad", spliced({**GROUP, "attributes": {"ome": plate}}, "HERE", f"[{wells}]"))


@case(nodes=["bad", "huge"])
def long_documents_of_zarr_2(store):
    node_v2 = {"zarr_format": 2, "shape": [16], "chunks": [8], "dtype": "|u1", "compressor": None, "fill_value": 0, "order": "C", "filters": None}
    put(store / "bad/.zarray", {**node_v2, "filters": [{"id": "delta", "dtype": "|u1"}] * 100_000})
    put(store / "bad/.zattrs", {f"a{n}": n for n in range(100_000)})
    put(store / "huge/.zarray", {**node_v2, "dtype": "|S1073741824", "fill_value": None, "shape": [1 << 60], "chunks": [1 << 60]})
    put(store / "huge/.zgroup", {"zarr_format": 2})


@case()
def as_many_values_as_may_be(store):
    node(store / "bad", spliced(array(attributes="HERE"), "HERE", '{"x":[' + ",".join(["0"] * 2_000_000) + "]}"))


@case()
def a_long_attribute(store):
    node(store / "bad", array(attributes={"x": "y" * 15_000_000, "units": "z" * 500_000}))


@case()
def attributes_of_long_names(store):
    node(store / "bad", array(attributes={f"{n:01000}": n for n in range(10_000)}))


@case()
def a_million_names_of_dimensions(store):
    node(store / "bad", spliced(array(dimension_names="HERE"), "HERE", "[" + ",".join(['"x"'] * 1_000_000) + "]"))


@case()
def a_long_name_of_a_dimension(store):
    node(store / "bad", array((16, 16), (8, 8), dimension_names=["x" * 7_000_000, "y" * 7_000_000]))


@case(nodes=["bad"])
def names_of_dimensions_in_many_arrays(store):
    for n in range(300):
        node(store / f"bad/a{n}", array((2,) * 30, (2,) * 30, dimension_names=[f"{n}_{d}_" + "x" * 400 for d in range(30)]))
    node(store / "bad", GROUP)


@case()
def a_million_codecs(store):
    node(store / "bad", spliced(array(codecs="HERE"), "HERE", "[" + ",".join(['{"name":"bytes"}'] * 900_000) + "]"))


@case(nodes=["bad", "transposed"])
def many_codecs(store):
    crc = {"name": "crc32c"}
    node(store / "bad", array(codecs=[LITTLE] + [crc] * 100_000))
    node(store / "transposed", array(codecs=[{"name": "transpose", "configuration": {"order": [0]}}] * 100_000 + [LITTLE]))
    put(store / "bad/c/0", "x" * 1000)


@case()
def a_long_configuration_of_a_codec(store):
    codec = {"name": "unknown", "configuration": {f"k{n}": n for n in range(200_000)}}
    node(store / "bad", array(codecs=[LITTLE, codec]))


@case(nodes=["bad", "attributes"])
def deep_metadata(store):
    node(store / "bad", spliced({**GROUP, "attributes": "HERE"}, "HERE", '{"x":' + "[" * 5_000_000 + "]" * 5_000_000 + "}"))
    node(store / "attributes", spliced({**GROUP, "attributes": "HERE"}, "HERE", '{"x":' + '{"y":' * 120 + "1" + "}" * 120 + "}"))


@case(nodes=["bad"], unfit=["bad/zarr.json"])
def a_metadata_file_without_end(store):
    (store / "bad").mkdir()
    with open(store / "bad/zarr.json", "wb") as file:
        file.truncate(1 << 40)


@case()
def a_type_of_many_fields(store):
    fields = [{"name": f"f{n}", "data_type": "float64"} for n in range(100_000)]
    node(store / "bad", array(dtype={"name": "struct", "configuration": {"fields": fields}}, fill_value=None))


@case(nodes=["bad"])
def types_inside_types(store):
    dtype = "float64"
    for _ in range(60):
        dtype = {"name": "struct", "configuration": {"fields": [{"name": "a", "data_type": dtype}, {"name": "b", "data_type": "uint8"}]}}
    node(store / "bad", array(dtype=dtype, fill_value=None))


# Consolidated metadata.


@case()
def consolidated_metadata_of_nodes_that_are_not_there(store):
    copies = ",".join(f'"a{n}":{{"zarr_format":3,"node_type":"group"}}' for n in range(200_000))
    node(store, spliced({**GROUP, "consolidated_metadata": {**CONSOLIDATED, "metadata": "HERE"}}, "HERE", "{" + copies + "}"))


@case(changes=False)
def consolidated_metadata_longer_than_a_metadata_file_may_be(store):
    """A million nodes, 60 MB."""
    copies = ",".join(f'"a{n}":{{"zarr_format":3,"node_type":"group","attributes":{{}}}}' for n in range(1_000_000))
    node(store, spliced({**GROUP, "consolidated_metadata": {**CONSOLIDATED, "metadata": "HERE"}}, "HERE", "{" + copies + "}"))


@case()
def consolidated_metadata_inside_itself(store):
    inner = {**GROUP, "consolidated_metadata": CONSOLIDATED}
    for _ in range(30):
        inner = {**GROUP, "consolidated_metadata": {**CONSOLIDATED, "metadata": {"": inner, ".": inner if _ < 3 else GROUP, "bad": GROUP}}}
    node(store, inner)
    node(store / "bad", inner)


@case(nodes=["g/0/0"])
def groups_that_are_all_consolidated(store):
    """Each shows all that lies below it: the same nodes again on every level."""
    document = {**GROUP, "consolidated_metadata": CONSOLIDATED}
    path = store / "g"
    for level in range(40):
        node(path, document)
        for n in range(3):
            node(path / f"a{n}", array())
        path = path / "0"
    node(store, document)


@case(nodes=["bad"])
def zarr_2_with_a_copy_of_itself(store):
    put(store / "bad/.zgroup", {"zarr_format": 2})
    put(store / "bad/.zmetadata", {"zarr_consolidated_format": 1, "metadata": {f"a{n}/.zgroup": {"zarr_format": 2} for n in range(100_000)}})
    for link in ("x", "y"):
        (store / "bad" / link).symlink_to(".")


def good(store):
    """The array that has to stay readable."""
    node(store / "good", array())
    put(store / "good/c/0", "sibling!")


def make(name, store: Path):
    """Makes the hierarchy `name`."""
    store.mkdir(parents=True)
    node(store, GROUP)
    good(store)
    CASES[name].make(store)
