"""Hostile hierarchies in every form: codecs, metadata files and names of Zarr 3, Zarr 2, N5, the drafts, zip archives and
references. Beside each lies `good`, an array that has to stay readable; outside of the store lies `outside/secret`."""

import base64
import bz2
import gzip
import json
import lzma
import os
import shutil
import socket
import struct
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from hostile import GROUP, LITTLE, array, encoded, grid, node, put

SECRET = b"a secret from outside of the store"
DATA = b"ABCDEFGH"


@dataclass
class Form:
    """Makes the hierarchy in a directory; `source` is what is mounted of it."""

    make: object
    source: str = "{store}"
    # What becomes of files of the mount: their bytes, or the name of the errno.
    reads: dict = field(default_factory=dict)
    # Whether it may be refused as a whole, with a sentence.
    refused: bool = False
    # The file that has to stay readable.
    good: tuple = ("good/c/0", b"sibling!")


FORMS = {}


def form(name, make, chunk=None, **options):
    """A case; `chunk` is what becomes of the first chunk of `bad`."""
    assert name not in FORMS, name
    FORMS[name] = Form(make, reads={"bad/c/0": chunk} if chunk else {}, **options)


# Zarr 3: what is in a chunk.


def of_codec(name, chunk, *codecs, chunk_shape=8, dtype="uint8", expected="EIO", before=LITTLE):
    def make(store):
        before_all = [before] if before else []
        node(store / "bad", array((2 * chunk_shape,), (chunk_shape,), dtype, codecs=[*before_all, *codecs], fill_value="" if dtype == "string" else 0))
        put(store / "bad/c/0", chunk() if callable(chunk) else chunk)

    form(name, make, expected)


def codec(name, **configuration):
    return {"name": name, "configuration": configuration}


GZIP, ZSTD, CRC32C = codec("gzip", level=1), codec("zstd", level=1, checksum=False), {"name": "crc32c"}
BLOSC = codec("blosc", cname="lz4", clevel=1, shuffle="noshuffle", typesize=1, blocksize=0)


def zstd_frame(header, *blocks):
    return b"\x28\xb5\x2f\xfd" + header + b"".join(struct.pack("<I", kind << 1 | length << 3)[:3] + data for kind, length, data in blocks)


def xz_of_a_large_dictionary():
    """A dictionary of 4 GiB, which the decoder would allocate."""
    made = bytearray(lzma.compress(DATA, format=lzma.FORMAT_XZ))
    end = 12 + (made[12] + 1) * 4
    at = made.index(b"\x21\x01", 12) + 2
    made[at] = 40
    made[end - 4 : end] = struct.pack("<I", zlib.crc32(bytes(made[12 : end - 4])))
    return bytes(made)


def blosc(flags=0x21, typesize=1, length=8, block=8, whole=None, body=b""):
    return struct.pack("<BBBBIII", 2, 1, flags, typesize, length, block, 16 + len(body) if whole is None else whole) + body


LAST_RAW = 1 | len(DATA) << 3
of_codec("zstd_window_of_2_GiB", zstd_frame(b"\x00\xa8") + struct.pack("<I", LAST_RAW)[:3] + DATA, ZSTD, expected=DATA)
of_codec("zstd_of_many_empty_frames", lambda: zstd_frame(b"\x20\x00") + b"" + (zstd_frame(b"\x20\x00") + b"\x01\0\0") * 300_000, ZSTD)
of_codec("zstd_frame_to_skip_that_says_it_is_4_GiB", b"\x50\x2a\x4d\x18\xff\xff\xff\xff" + DATA, ZSTD)
of_codec("zstd_that_needs_a_dictionary", zstd_frame(b"\x23\xff\xff\xff\xff\x08") + struct.pack("<I", LAST_RAW)[:3] + DATA, ZSTD)
of_codec("zstd_that_ends_in_a_block", zstd_frame(b"\x20\x08") + struct.pack("<I", LAST_RAW)[:3], ZSTD)
of_codec("gzip_of_many_empty_members", lambda: gzip.compress(b"") * 300_000 + gzip.compress(DATA), GZIP, expected="EIO")
of_codec("gzip_name_without_end", b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 5_000_000, GZIP)
of_codec("gzip_extra_field_longer_than_the_chunk", b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff" + DATA, GZIP)
of_codec("gzip_of_a_length_that_is_wrong", gzip.compress(DATA)[:-4] + b"\xff\xff\xff\xff", GZIP)
of_codec("gzip_of_a_bomb_after_the_chunk", lambda: gzip.compress(DATA) + encoded("gzip", bytes(128 << 10), 4000), GZIP)
of_codec("gzip_fifteen_times", lambda: encoded("gzip", bytes(128 << 10), 2000), *[GZIP] * 15)
of_codec("xz_dictionary_of_4_GiB", xz_of_a_large_dictionary, codec("numcodecs.lzma"), expected=None)
of_codec("lzma_alone_of_2_to_the_62", b"\x5d\xff\xff\xff\xff" + struct.pack("<Q", 1 << 62) + bytes(100), codec("numcodecs.lzma", format=2))
of_codec("lzma_raw_filters_of_4_GiB", bytes(100), codec("numcodecs.lzma", format=3, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 0xFFFFFFFF}]), expected=None)
of_codec("lzma_raw_of_many_filters", bytes(100), codec("numcodecs.lzma", format=3, filters=[{"id": lzma.FILTER_DELTA, "dist": 1}] * 1000), expected=None)
of_codec("bz2_of_many_empty_streams", lambda: bz2.compress(b"") * 200_000, codec("numcodecs.bz2", level=1))
of_codec("bz2_cut", bz2.compress(DATA)[:-5], codec("numcodecs.bz2", level=1))
of_codec("zlib_with_a_dictionary", b"\x78\xbb" + b"\xff" * 40, codec("numcodecs.zlib", level=1))
of_codec("lz4_negative_length", struct.pack("<i", -8) + b"\x80" + DATA, codec("numcodecs.lz4", acceleration=1))
of_codec("lz4_match_before_the_start", struct.pack("<I", 8) + b"\x14A\xff\xff\x10B", codec("numcodecs.lz4", acceleration=1))
of_codec("lz4_length_of_many_bytes", struct.pack("<I", 8) + b"\xf0" + b"\xff" * 1_000_000, codec("numcodecs.lz4", acceleration=1))
of_codec("blosc_offsets_outside", blosc(body=struct.pack("<I", 0xFFFF_FFF0) + bytes(8)), BLOSC)
of_codec("blosc_offset_in_the_header", blosc(body=struct.pack("<I", 0) + bytes(8)), BLOSC)
of_codec("blosc_block_of_no_bytes", blosc(block=0, body=bytes(12)), BLOSC)
of_codec("blosc_blocks_without_number", blosc(length=0x7FFF_FFFF, block=1, body=bytes(12)), BLOSC)
of_codec("blosc_element_of_no_bytes", blosc(typesize=0, body=bytes(12)), BLOSC, expected=None)
of_codec("blosc_copied_and_shorter_than_it_says", blosc(flags=0x02, body=b"AB"), BLOSC)
of_codec("blosc_longer_than_the_chunk_is_stored", blosc(whole=0xFFFF_FFFF, body=bytes(12)), BLOSC)
of_codec("blosc_of_an_unknown_compressor", blosc(flags=0xE1, body=bytes(12)), BLOSC, expected="EOPNOTSUPP")
of_codec("blosc_split_with_negative_lengths", blosc(body=struct.pack("<Ii", 20, -8) + bytes(8)), BLOSC)
of_codec("blosc_snappy_that_says_4_GiB", blosc(flags=0x41, body=struct.pack("<II", 20, 10) + b"\xff\xff\xff\xff\x0f" + bytes(5)), BLOSC)
of_codec("blosc_zstd_bomb", lambda: blosc(flags=0x81, body=struct.pack("<II", 20, 32000) + encoded("zstd", bytes(128 << 10), 4000)), BLOSC)
of_codec("a_checksum_of_three_bytes", b"ABC", CRC32C)
of_codec("many_checksums_of_nothing", b"", *[CRC32C] * 15)
of_codec("fletcher32_of_three_bytes", b"ABC", codec("numcodecs.fletcher32"))
of_codec("jenkins_of_no_bytes", b"", codec("numcodecs.jenkins_lookup3"))
of_codec("base64_that_is_none", b"!!!!\xff\0====", codec("numcodecs.base64"))
of_codec("shuffle_of_elements_of_no_bytes", DATA, codec("numcodecs.shuffle", elementsize=0), expected=None)
of_codec("shuffle_of_elements_of_a_gigabyte", DATA, codec("numcodecs.shuffle", elementsize=1 << 30), expected=None)
of_codec("pcodec_garbage", b"pco!" + b"\xff" * 200, codec("numcodecs.pcodec", level=8), before=None, dtype="uint32", chunk_shape=64)
of_codec("pcodec_of_nothing", b"", codec("numcodecs.pcodec", level=8), before=None, dtype="uint32")
of_codec("packbits_that_pad_255", b"\xff" + DATA, codec("numcodecs.packbits"), before=None, dtype="bool", expected=None)
of_codec("json_nested_100000_deep", b"[" * 100_000 + b"]" * 100_000, codec("numcodecs.json2"), before=None, dtype="string")
of_codec("json_that_says_2_to_the_60", b'["a","|O",[1152921504606846976]]', codec("numcodecs.json2"), before=None, dtype="string")
of_codec("msgpack_that_says_4_billion", b"\xdd\xff\xff\xff\xff" + b"\xc0" * 10, codec("numcodecs.msgpack2"), before=None, dtype="string")
of_codec("msgpack_nested_100000_deep", b"\x91" * 100_000, codec("numcodecs.msgpack2"), before=None, dtype="string")
of_codec("msgpack_string_of_4_GiB", b"\x91\xdb\xff\xff\xff\xffAAAA", codec("numcodecs.msgpack2"), before=None, dtype="string")
of_codec("pickle_that_would_run_a_program", b"cos\nsystem\n(S'touch /tmp/zarrfs-pickled'\ntR.", codec("numcodecs.pickle"), before=None, dtype="string", expected="EOPNOTSUPP")
of_codec("grib_that_says_2_to_the_63", b"GRIB\0\0\0\2" + struct.pack(">Q", 1 << 63) + bytes(100), codec("numcodecs.grib", var="t"), before=None, dtype="float64", expected=None)
of_codec("strings_of_negative_lengths", struct.pack("<Ii", 8, -1) * 4, {"name": "vlen-utf8"}, before=None, dtype="string")
of_codec("strings_that_are_no_utf8", struct.pack("<I", 8) + b"\1\0\0\0\xff" * 8, {"name": "vlen-utf8"}, before=None, dtype="string", expected=None)


# Zarr 3: what is in a metadata file.


def of_metadata(name, document, expected="EIO", chunk="c/0"):
    def make(store):
        made = document() if callable(document) else document
        put(store / "bad/zarr.json", made if isinstance(made, bytes) else json.dumps(made))
        put(store / "bad" / chunk, DATA)

    form(name, make, expected)


def raw_metadata(text, **members):
    """With a member whose value cannot be made with `json`."""
    return json.dumps(array(**{name: "HERE" for name in members})).replace('"HERE"', text).encode("utf-8", "surrogatepass")


def sharded(**changes):
    shards = {"chunk_shape": [4], "codecs": [LITTLE], "index_codecs": [LITTLE, CRC32C], "index_location": "end", **changes}
    return array(codecs=[codec("sharding_indexed", **shards)])


of_metadata("shards_whose_index_is_compressed", sharded(index_codecs=[LITTLE, GZIP]))
of_metadata("shards_of_chunks_of_no_elements", sharded(chunk_shape=[0]))
of_metadata("shards_of_chunks_of_negative_shape", sharded(chunk_shape=[-4]))
of_metadata("shards_of_chunks_of_2_to_the_64", sharded(chunk_shape=[1 << 64]))
of_metadata("shards_of_chunks_of_another_rank", sharded(chunk_shape=[4] * 40))
of_metadata("shards_whose_index_is_in_the_middle", sharded(index_location="middle"))
of_metadata("shards_without_codecs", sharded(codecs=[]), None)
of_metadata("a_transposition_that_names_an_axis_twice", array((8, 8), (8, 8), codecs=[codec("transpose", order=[0, 0]), LITTLE]), None, "c/0/0")
of_metadata("a_transposition_of_an_axis_that_is_not_there", array(codecs=[codec("transpose", order=[1 << 40]), LITTLE]))
of_metadata("a_reshape_to_another_number", array(codecs=[codec("reshape", shape=[1 << 40]), LITTLE]), None)
of_metadata("a_reshape_of_itself", array(codecs=[codec("reshape", shape=[[0, 0, 0, 0], [0]]), LITTLE]), None)
of_metadata("a_cast_to_itself_for_ever", array(codecs=[codec("cast_value", data_type="float64")] * 15 + [LITTLE]), None)
of_metadata("a_conditional_in_a_conditional", lambda: conditional(10_000))
of_metadata("bitround_of_a_billion_bits", array(dtype="float32", codecs=[codec("bitround", keepbits=10**9), LITTLE]), None)
of_metadata("quantize_of_a_billion_digits", array(dtype="float32", codecs=[codec("numcodecs.quantize", digits=10**9, dtype="<f4"), LITTLE]), None)
of_metadata("a_scale_of_zero", array(dtype="float32", codecs=[codec("numcodecs.fixedscaleoffset", scale=0, offset=1e308, dtype="<f4", astype="|u1"), LITTLE]), None)
of_metadata("categories_of_a_million_labels", lambda: array(dtype="string", codecs=[codec("numcodecs.categorize", labels=["x"] * 1_000_000, dtype="|O"), LITTLE]), None)
of_metadata("a_rectilinear_grid_of_no_lengths", array(chunk_grid=codec("rectilinear", kind="inline", chunk_shapes=[[]])))
of_metadata("a_rectilinear_grid_of_zeros", array(chunk_grid=codec("rectilinear", kind="inline", chunk_shapes=[[[0, 1 << 60], 16]])))
of_metadata("a_rectilinear_grid_that_overflows", array(chunk_grid=codec("rectilinear", kind="inline", chunk_shapes=[[[1 << 63, 4]]])), None)
of_metadata("a_grid_that_is_a_number", array(chunk_grid=7))
of_metadata("a_grid_of_fractions", array(chunk_grid=grid([1.5])))
of_metadata("a_shape_that_is_a_string", array(shape="16"))
of_metadata("a_shape_of_fractions", raw_metadata("[1e1]", shape=0), None)
of_metadata("a_shape_of_a_million_digits", lambda: raw_metadata("[" + "9" * 1_000_000 + "]", shape=0))
of_metadata("a_number_of_a_huge_exponent", lambda: raw_metadata("1e999999999", fill_value=0), None)
of_metadata("the_same_member_twice", raw_metadata('0, "shape": [1099511627776]', fill_value=0), None)
of_metadata("half_of_a_surrogate_pair", raw_metadata('{"\\ud800": "\\udfff"}', attributes=0), None)
of_metadata("names_of_attributes_that_are_paths", raw_metadata('{"../../x": 1, "a\\u0000b": 2, "": 3, "\\n": 4}', attributes=0), DATA)
of_metadata("bytes_that_are_no_utf8", raw_metadata("0", fill_value=0) + b"\xff\xfe")
of_metadata("utf16", lambda: json.dumps(array()).encode("utf-16"))
of_metadata("a_mark_of_byte_order", lambda: b"\xef\xbb\xbf" + json.dumps(array()).encode(), None)
of_metadata("a_comment_without_end", b"/*" + b"*" * 1_000_000)
of_metadata("spaces_without_end", lambda: b" " * 4_000_000)
of_metadata("a_string_without_end", lambda: b'{"' + b"x" * 4_000_000)
of_metadata("attributes_that_are_a_list", array(attributes=[1]), None)
of_metadata("a_node_of_another_kind", array(node_type="chunk"))
of_metadata("a_version_of_30_digits", array(zarr_format=10**30), "EOPNOTSUPP")
of_metadata("a_type_that_is_a_list_of_lists", lambda: raw_metadata("[" * 120 + "]" * 120, data_type=0), None)
of_metadata("a_type_of_a_negative_length", array(dtype=codec("null_terminated_bytes", length_bytes=-1)), None)
of_metadata("a_type_of_no_length", array(dtype=codec("null_terminated_bytes", length_bytes=0)), None)
of_metadata("times_of_no_unit", array(dtype=codec("numpy.datetime64", unit="x" * 1000, scale_factor=0)), None)
of_metadata("a_fill_value_of_15_million_digits", lambda: raw_metadata('"0x' + "f" * 15_000_000 + '"', fill_value=0), None)
of_metadata("a_fill_value_of_a_million_bytes", lambda: array(dtype="r16", fill_value=[0] * 1_000_000), None)
of_metadata("names_of_dimensions_with_slashes", array(dimension_names=["../../outside"]), DATA)
of_metadata("more_names_than_dimensions", array(dimension_names=["x"] * 1000))
of_metadata("a_storage_transformer_of_nothing", array(storage_transformers=[{}] * 1000), None)
of_metadata("chunk_keys_of_another_name", array(chunk_key_encoding={"name": "../../outside"}), "EOPNOTSUPP")
of_metadata("a_separator_that_is_nul", array(chunk_key_encoding=codec("default", separator="\0")), "EOPNOTSUPP")


def conditional(depth):
    text = '{"name":"conditional","configuration":{"codec":' * depth + '{"name":"gzip"}' + "}}" * depth
    return json.dumps(array(codecs=[LITTLE, "HERE"])).encode().replace(b'"HERE"', text.encode())


def of_root(name, document):
    """The metadata file of the root: the array `good` lies below it."""
    form(name, lambda store: put(store / "zarr.json", document() if callable(document) else document))


def consolidated(*paths):
    return {**GROUP, "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": {path: array() for path in paths}}}


of_root("copies_of_nodes_outside", consolidated("../outside", "/outside", "good/../../outside", "", ".", "good//x", "a\0b", "x" * 5000))
of_root("copies_that_are_no_object", {**GROUP, "consolidated_metadata": {"kind": "inline", "metadata": [1]}})
of_root("images_that_lie_outside", {**GROUP, "attributes": {"ome": {"version": "0.5", "multiscales": [{
    "axes": [{"name": name, "type": "space"} for name in "yx"],
    "datasets": [{"path": path, "coordinateTransformations": [{"type": "scale", "scale": [float("1e308"), -0.0]}]} for path in ("../outside", "/outside", "", "good", ".")],
}]}}})
of_root("coordinates_that_lie_outside", {**GROUP, "attributes": {"coordinates": "../outside/x /outside/x . .. good/../../x"}})


# Zarr 3: names and files of every kind.


def of_files(name, make, expected=None, **options):
    def made(store):
        node(store / "bad", array())
        put(store / "bad/c/0", DATA)
        make(store, store.parent / "outside")

    form(name, made, expected, **options)


def replace(path, make):
    path.unlink()
    make(path)


def device(path):
    """/dev/zero, which has no end."""
    os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))


def listening(path):
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(path.parent, os.O_PATH)
        made.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)


of_files("a_chunk_that_is_a_device", lambda store, _: replace(store / "bad/c/0", device), "EIO")
of_files("a_metadata_file_that_is_a_device", lambda store, _: replace(store / "bad/zarr.json", device), "EIO")
of_files("a_file_that_is_a_device", lambda store, _: device(store / "zero"))
of_files("a_chunk_that_is_a_socket", lambda store, _: replace(store / "bad/c/0", listening), "EIO")
of_files("a_metadata_file_that_is_a_socket", lambda store, _: replace(store / "bad/zarr.json", listening), "EIO")
of_files("a_file_that_is_a_pipe", lambda store, _: os.mkfifo(store / "pipe"))
of_files("a_metadata_file_that_is_a_directory", lambda store, _: replace(store / "bad/zarr.json", os.mkdir))
of_files("a_chunk_of_another_array_by_a_link", lambda store, _: replace(store / "bad/c/0", lambda it: it.symlink_to("../../good/c/0")), b"sibling!")
of_files("a_metadata_file_of_another_array_by_a_link", lambda store, _: replace(store / "bad/zarr.json", lambda it: it.symlink_to("../good/zarr.json")), DATA)
of_files("a_chunk_by_a_hard_link_to_outside", lambda store, outside: replace(store / "bad/c/0", lambda it: os.link(outside / "linked", it)), b"linked!!")
of_files("a_chunk_below_a_chunk", lambda store, _: put(store / "bad/c/1/0/0", DATA), DATA)
of_files("chunks_whose_numbers_have_signs", lambda store, _: [put(store / "bad/c" / name, DATA) for name in ("+1", "-1", "01", "1.0", "1e0", " 1", "18446744073709551616")], DATA)
of_files("files_that_may_be_run_as_root", lambda store, _: (put(store / "tool", b"#!/bin/sh\n"), os.chmod(store / "tool", 0o6777)))
of_files("files_that_nobody_may_read", lambda store, _: (os.chmod(store / "bad/c/0", 0), os.chmod(store / "bad/zarr.json", 0)))
of_files("a_directory_of_links_to_itself_and_outside", lambda store, outside: [
    (store / "bad" / name).symlink_to(target) for name, target in (("x", "."), ("y", "../.."), ("z", outside), ("secret", outside / "secret"), ("fd", "/proc/self/fd"))
])


# Files in `.zarrfs` are those of a daemon that was killed, or what somebody has forged.


def of_private(name, files):
    def make(store, outside):
        for path, content in files(outside).items():
            put(store / ".zarrfs" / path, content)

    of_files(name, make, DATA)


CHANGE = {"zarrfs_change": 1, "dialect": "v3", "base": ""}
of_private("a_change_of_a_file_outside", lambda outside: {
    "aside-1-1/change": {**CHANGE, "path": "bad", "documents": [{"key": "../outside/secret", "old": SECRET.decode(), "new": "gone"}]},
    "writing-1": b"",
})
of_private("a_removal_outside", lambda outside: {"aside-1-1/change": {**CHANGE, "path": "../outside", "remove": True}, "writing-1": b""})
of_private("a_move_from_outside", lambda outside: {"aside-1-1/change": {**CHANGE, "path": "../outside", "to": "here", "kind": "group"}, "writing-1": b""})
of_private("a_change_nested_10000_deep", lambda outside: {"aside-1-1/change": b"[" * 10_000, "writing-1": b""})
of_private("sessions_with_keys_outside", lambda outside: {"writing-1": b"../outside/secret\n/etc/passwd\n" + b"bad/c/0\n" * 100_000})
of_private("many_sessions", lambda outside: {f"writing-{n}": b"bad/c/0\n" for n in range(3000)})


# Zarr 2.


def of_zarr2(name, chunk=DATA, expected="EIO", attributes=None, key="0", **members):
    def make(store):
        (store / "zarr.json").unlink()
        put(store / ".zgroup", {"zarr_format": 2})
        for at in ("good", "bad"):
            changes = {name: member() if callable(member) else member for name, member in members.items()} if at == "bad" else {}
            made = {"zarr_format": 2, "shape": [16], "chunks": [8], "dtype": "|u1", "compressor": None, "fill_value": 0, "order": "C", "filters": None}
            put(store / at / ".zarray", {**made, **changes})
        put(store / "bad/.zattrs", attributes if attributes is not None else {})
        put(store / "bad" / key, chunk() if callable(chunk) else chunk)
        put(store / "good/0", b"sibling!")

    form(f"v2_{name}", make, expected)


def fields_in_fields(depth):
    made = "<f8"
    for _ in range(depth):
        made = [["a", made]]
    return made


of_zarr2("strings_of_2_GiB", dtype="|S2147483647", expected=None)
of_zarr2("strings_of_4_GiB_of_characters", dtype="<U1073741824", expected=None)
of_zarr2("a_type_of_20_digits", dtype="|V99999999999999999999", expected=None)
of_zarr2("fields_in_fields", dtype=lambda: fields_in_fields(100), expected=None)
of_zarr2("fields_that_are_huge_arrays", dtype=[["a", "<f8", [1 << 31, 1 << 31, 4]]], expected=None)
of_zarr2("fields_of_one_name", dtype=[["a", "|u1"]] * 2000, expected=None)
of_zarr2("a_type_that_is_an_empty_list", dtype=[], expected=None)
of_zarr2("a_type_that_is_code", dtype="__import__('os').system('touch /tmp/zarrfs-code')", expected="EOPNOTSUPP")
of_zarr2("objects_without_a_codec", dtype="|O", fill_value="", expected="EOPNOTSUPP")
of_zarr2("a_pickle", b"cos\nsystem\n(S'touch /tmp/zarrfs-pickled'\ntR.", dtype="|O", filters=[{"id": "pickle"}], expected="EOPNOTSUPP")
of_zarr2("arrays_of_any_length", struct.pack("<II", 8, 0xFFFF_FFFF), dtype="|O", filters=[{"id": "vlen-array", "dtype": "<f8"}], expected="EOPNOTSUPP")
of_zarr2("strings_that_say_4_billion", struct.pack("<I", 0xFFFF_FFFF) * 4, dtype="|O", fill_value="", filters=[{"id": "vlen-utf8"}])
of_zarr2("a_filter_that_is_a_string", filters=["delta"], expected=None)
of_zarr2("a_filter_of_a_huge_type", filters=[{"id": "delta", "dtype": "|V1073741824", "astype": "<f8"}], expected=None)
of_zarr2("an_unknown_compressor", compressor={"id": "../../../lib/x.so"}, expected="EOPNOTSUPP")
of_zarr2("a_compressor_that_is_a_bomb", lambda: encoded("numcodecs.zlib", bytes(128 << 10), 200), compressor={"id": "zlib", "level": 1})
of_zarr2("a_separator_that_leads_out", dimension_separator="/../", expected=None)
of_zarr2("an_order_that_is_none", order="X", expected=None)
of_zarr2("a_shape_of_another_rank", shape=[16] * 60, expected=None)
of_zarr2("chunks_of_no_elements", chunks=[0], expected=None)
of_zarr2("chunks_of_2_to_the_62", chunks=[1 << 62], expected=None)
of_zarr2("a_fill_value_that_is_an_object", fill_value={"a": [1] * 1000}, expected=None)
of_zarr2("attributes_nested_100000_deep", expected=None)
of_zarr2("attributes_that_are_a_list", attributes=[1], expected=None)
of_zarr2("attributes_of_images_outside", attributes={"multiscales": [{"version": "0.4", "datasets": [{"path": "../../outside"}]}], "_ARRAY_DIMENSIONS": ["../x"]}, expected=DATA)
of_zarr2("a_key_that_is_a_link", expected=DATA)


def change(name, make):
    """Changes what the case makes."""
    before = FORMS[name].make

    def made(store):
        before(store)
        make(store)

    FORMS[name].make = made


change("v2_attributes_nested_100000_deep", lambda store: put(store / "bad/.zattrs", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))
change("v2_a_key_that_is_a_link", lambda store: (store / "bad/1").symlink_to("../../outside/secret"))


def zarr2_copies(store):
    paths = ("../outside/.zarray", "/outside/.zarray", "good/../../outside/.zarray", "good/.zarray", "x" * 5000 + "/.zgroup", ".zgroup")
    put(store / ".zmetadata", {"zarr_consolidated_format": 1, "metadata": {path: json.loads((store / "bad/.zarray").read_text()) for path in paths}})


of_zarr2("copies_of_nodes_outside", expected=DATA)
change("v2_copies_of_nodes_outside", zarr2_copies)


# N5.


def block(*dimensions, mode=0, count=None, data=DATA, rank=None):
    head = struct.pack(">HH", mode, len(dimensions) if rank is None else rank) + struct.pack(f">{len(dimensions)}I", *dimensions)
    return head + (struct.pack(">I", count) if count is not None else b"") + data


def of_n5(name, stored=block(8), expected="EIO", attributes=None, **members):
    def make(store):
        (store / "zarr.json").unlink()
        put(store / "attributes.json", {"n5": "4.0.0"})
        for at in ("good", "bad"):
            made = {"dimensions": [16], "blockSize": [8], "dataType": "uint8", "compression": {"type": "raw"}}
            put(store / at / "attributes.json", {**made, **(members if at == "bad" else {})})
        if attributes is not None:
            put(store / "bad/attributes.json", attributes)
        put(store / "bad/0", stored() if callable(stored) else stored)
        put(store / "good/0", block(8, data=b"sibling!"))

    form(f"n5_{name}", make, expected)


of_n5("a_header_of_three_bytes", b"\0\0\0")
of_n5("a_header_of_no_dimensions", block())
of_n5("a_header_of_65535_dimensions", block(8, rank=65535))
of_n5("a_header_of_many_dimensions", block(*[1] * 65535))
of_n5("a_header_of_2_to_the_32", block(0xFFFF_FFFF))
of_n5("a_header_of_no_elements", block(0), None)
of_n5("a_header_of_more_than_a_block", block(16, data=DATA * 2))
of_n5("a_header_of_a_product_that_wraps", block(1 << 31, 1 << 31, 4))
of_n5("a_block_of_a_length_of_4_billion", block(8, mode=1, count=0xFFFF_FFFF), None)
of_n5("a_block_of_objects", block(8, mode=2, count=8), None)
of_n5("a_mode_that_is_none", block(8, mode=9))
of_n5("a_block_that_is_cut", block(8, data=b"ABC"))
of_n5("a_gzip_bomb", lambda: block(8, data=encoded("gzip", bytes(128 << 10), 4000)), compression={"type": "gzip", "level": 1})
of_n5("an_xz_bomb", lambda: block(8, data=encoded("numcodecs.lzma", bytes(128 << 10), 2000)), compression={"type": "xz", "preset": 6})
of_n5("a_bzip2_bomb", lambda: block(8, data=encoded("numcodecs.bz2", bytes(128 << 10), 2000)), compression={"type": "bzip2", "blockSize": 9})
of_n5("lz4_that_says_2_GiB", block(8, data=b"LZ4Block\x26" + struct.pack("<III", 10, 0x7FFF_FFFF, 0) + bytes(10)), compression={"type": "lz4", "blockSize": 65536})
of_n5("lz4_of_negative_lengths", block(8, data=b"LZ4Block\x26" + struct.pack("<iiI", -1, -1, 0) + bytes(10)), compression={"type": "lz4", "blockSize": 65536})
of_n5("a_compression_that_is_a_list", compression=["gzip"], expected=None)
of_n5("a_compression_of_another_name", compression={"type": "../x"}, expected="EOPNOTSUPP")
of_n5("dimensions_of_2_to_the_62", dimensions=[1 << 62], expected=DATA)
of_n5("negative_dimensions", dimensions=[-16], expected=None)
of_n5("blocks_of_no_elements", blockSize=[0], expected=None)
of_n5("blocks_of_a_terabyte", blockSize=[1 << 40], expected=None)
of_n5("blocks_of_another_rank", blockSize=[2] * 30, expected=None)
of_n5("a_type_that_is_none", dataType="float4096", expected=None)
of_n5("attributes_nested_100000_deep", attributes=b'{"dimensions":[16],"x":' + b"[" * 100_000, expected=None)
of_n5("attributes_that_are_empty", attributes=b"", expected=None)
of_n5("a_block_that_is_a_link")
change("n5_a_block_that_is_a_link", lambda store: replace(store / "bad/0", lambda it: it.symlink_to("../../outside/secret")))
of_n5("a_metadata_file_that_is_a_pipe", expected=None)
change("n5_a_metadata_file_that_is_a_pipe", lambda store: replace(store / "bad/attributes.json", os.mkfifo))


# The drafts of 2019 to 2023.

PURL = "https://purl.org/zarr/spec/protocol/core/3.0"
DRAFT_ENTRY = {"zarr_format": PURL, "metadata_encoding": PURL, "metadata_key_suffix": ".json", "extensions": []}
DRAFT_ARRAY = {
    "attributes": {}, "chunk_grid": {"type": "regular", "chunk_shape": [8], "separator": "/"}, "chunk_memory_layout": "C",
    "data_type": "|u1", "extensions": [], "fill_value": 0, "shape": [16],
}
TRANSFORMER = "https://purl.org/zarr/spec/storage_transformers/sharding/1.0"


def sharding(count, name="indexed"):
    return {"extension": TRANSFORMER, "type": name, "configuration": {"chunks_per_shard": count}}


def of_draft(name, stored=DATA, expected="EIO", entry=None, **members):
    def make(store):
        put(store / "zarr.json", {**DRAFT_ENTRY, **(entry or {})})
        put(store / "meta/root.group.json", {"extensions": [], "attributes": {}})
        for at in ("good", "bad"):
            put(store / f"meta/root/{at}.array.json", {**DRAFT_ARRAY, **(members if at == "bad" else {})})
        put(store / "data/root/bad/c0", stored() if callable(stored) else stored)
        put(store / "data/root/good/c0", b"sibling!")

    form(f"draft_{name}", make, expected, refused=entry is not None)


of_draft("shards_of_no_chunks", storage_transformers=[sharding([0])], expected=None)
of_draft("shards_of_2_to_the_40_chunks", storage_transformers=[sharding([1 << 40])], expected=None)
of_draft("shards_of_a_negative_number", storage_transformers=[sharding([-1])], expected=None)
of_draft("shards_of_another_rank", storage_transformers=[sharding([2] * 50)], expected=None)
of_draft("a_thousand_transformers", storage_transformers=[sharding([2])] * 1000, expected=None)
of_draft("a_shard_of_nothing", b"", storage_transformers=[sharding([2])])
of_draft("a_shard_whose_entry_wraps", DATA + struct.pack("<QQQQ", 2**64 - 4, 12, 0, 8), storage_transformers=[sharding([2])])
of_draft("a_transformer_of_another_name", storage_transformers=[{"extension": "https://example.org/x", "type": "x", "configuration": {}}], expected=None)
of_draft("a_compressor_that_is_a_bomb", lambda: encoded("gzip", bytes(128 << 10), 4000), compressor={"codec": "https://purl.org/zarr/spec/codec/gzip/1.0", "configuration": {"level": 1}})
of_draft("a_compressor_that_is_a_number", compressor=7, expected=None)
of_draft("an_extension_that_must_be_understood", extensions=[{"extension": "https://example.org/x", "must_understand": True, "configuration": {}}], expected=None)
of_draft("extensions_without_number", extensions=[{"extension": "https://example.org/x", "must_understand": False, "configuration": {}}] * 50_000, expected=None)
of_draft("a_type_within_types", data_type={"extension": "x", "type": "y", "fallback": {"extension": "x", "type": "y", "fallback": "|V99999999999"}}, expected=None)
of_draft("a_separator_that_leads_out", chunk_grid={"type": "regular", "chunk_shape": [8], "separator": "/../"}, expected=None)
of_draft("a_grid_of_no_elements", chunk_grid={"type": "regular", "chunk_shape": [0], "separator": "/"}, expected=None)
of_draft("a_suffix_that_leads_out", entry={"metadata_key_suffix": "/../../outside"}, expected=None)
of_draft("a_suffix_of_a_megabyte", entry={"metadata_key_suffix": "x" * 1_000_000}, expected=None)
of_draft("an_encoding_that_is_a_list", entry={"metadata_encoding": [PURL] * 1000}, expected=None)
of_draft("data_that_lie_outside", expected=None)
change("draft_data_that_lie_outside", lambda store: (replace(store / "data/root/bad/c0", lambda it: it.symlink_to("../../../../outside/secret")), (store / "data/root/far").symlink_to("../../../outside")))
of_draft("metadata_that_lie_outside", expected=None)
change("draft_metadata_that_lie_outside", lambda store: (store / "meta/root/far").symlink_to("../../../outside"))


def draft_2019(store):
    """No entry point."""
    for path in ("zarr.json", "good/c/0", "good/zarr.json"):
        (store / path).unlink()
    uri = "http://purl.org/zarr/spec/protocol/core/3.0"
    put(store / "root.group.json", {"zarr_format": uri, "extensions": [], "attributes": {}})
    made = {"zarr_format": uri, "shape": [16], "data_type": "|u1", "chunk_grid": {"type": "regular", "chunk_shape": [8]}, "chunk_memory_layout": "C",
            "chunk_codecs": [], "fill_value": 0, "extensions": [], "attributes": {}}
    put(store / "meta/good.array.json", made)
    put(store / "data/good/0", b"sibling!")
    put(store / "meta/bad.array.json", {**made, "chunk_codecs": [{"codec": "http://purl.org/zarr/spec/codec/gzip", "level": 1}] * 10_000, "shape": [1 << 62]})
    put(store / "data/bad/0", encoded("gzip", bytes(128 << 10), 2000))
    put(store / "meta/../meta/x.group.json", b"[" * 100_000)


form("draft_2019_of_many_codecs", draft_2019)


# Zip archives.


def zipped(store, more=(), spoil=None):
    """An archive of `good` and of more entries; `spoil` changes its bytes."""
    path = store / "made.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("zarr.json", json.dumps(GROUP))
        archive.writestr("good/zarr.json", json.dumps(array()))
        archive.writestr("good/c/0", b"sibling!")
        archive.writestr("bad/zarr.json", json.dumps(array()))
        for name, data, *how in more:
            archive.writestr(name, data, *how)
    if spoil:
        made = bytearray(path.read_bytes())
        path.write_bytes(bytes(spoil(made)))


def of_zip(name, more=(), expected=None, spoil=None, refused=False):
    def make(store):
        zipped(store, more() if callable(more) else more, spoil)

    form(f"zip_{name}", make, expected, source="{store}/made.zip", refused=refused)


def patched(where, offset, value, kind="<I"):
    """The field at `offset` of the last record that begins with `where`."""
    def spoil(made):
        struct.pack_into(kind, made, made.rindex(where) + offset, value)
        return made

    return spoil


LOCAL, CENTRAL, END = b"PK\3\4", b"PK\1\2", b"PK\5\6"
CHUNK = [("bad/c/0", DATA)]


def link_entry():
    entry = zipfile.ZipInfo("bad/c/0")
    entry.create_system, entry.external_attr = 3, 0o120777 << 16
    return [(entry, "../../../outside/secret")]


of_zip("names_that_lead_out", [(name, DATA) for name in ("../outside/new", "/outside/new", "good/../../x", "a//b", "c:\\x", "..\\x")])
of_zip("names_without_number", lambda: [(f"bad/c/{n}", b"") for n in range(100_000)])
of_zip("names_of_60000_bytes", [("x" * 60_000, b""), ("y/" * 30_000, b"")])
of_zip("a_name_twice", [("bad/c/0", b"first!!!"), ("bad/c/0", DATA)], DATA)
of_zip("a_file_that_is_a_directory", [("bad/c/0", DATA), ("bad/c/0/0", DATA), ("bad", b"")])
of_zip("a_deflate_bomb", lambda: [("bad/c/0", bytes(300 << 20), zipfile.ZIP_DEFLATED)], "EFBIG")
of_zip("a_deflate_bomb_that_says_8_bytes", lambda: [("bad/c/0", bytes(300 << 20), zipfile.ZIP_DEFLATED)], "EIO", patched(CENTRAL, 24, 8))
of_zip("a_metadata_file_that_is_a_bomb", lambda: [("bad2/zarr.json", b" " * (300 << 20), zipfile.ZIP_DEFLATED)])
of_zip("a_link", link_entry, None)
of_zip("an_entry_that_lies_outside", CHUNK, "EIO", patched(CENTRAL, 42, 0xFFFF_0000), True)
of_zip("an_entry_that_is_4_GiB", CHUNK, None, patched(CENTRAL, 20, 0xFFFF_FFF0), True)
of_zip("an_entry_in_the_directory", CHUNK, None, lambda made: patched(CENTRAL, 42, made.rindex(CENTRAL))(made), True)
of_zip("a_checksum_that_is_wrong", CHUNK, "EIO", patched(CENTRAL, 16, 1))
of_zip("an_encrypted_entry", CHUNK, None, patched(CENTRAL, 8, 1, "<H"), True)
of_zip("an_unknown_method", CHUNK, None, patched(CENTRAL, 10, 77, "<H"), True)
of_zip("a_header_of_another_name", CHUNK, None, patched(b"bad/c/0ABC", 4, ord("x"), "<B"))
of_zip("a_directory_of_4_GiB", CHUNK, None, patched(END, 12, 0xFFFF_FFF0), True)
of_zip("a_directory_that_lies_outside", CHUNK, None, patched(END, 16, 0xFFFF_FFF0), True)
of_zip("a_number_of_entries_that_is_wrong", CHUNK, None, patched(END, 10, 60_000, "<H"), True)
of_zip("a_comment_without_end", CHUNK, None, patched(END, 20, 0xFFFF, "<H"), True)
of_zip("no_end", CHUNK, None, lambda made: made[: made.rindex(END)], True)
of_zip("nothing", CHUNK, None, lambda made: b"", True)
of_zip("an_end_of_zip64_that_lies_outside", CHUNK, None,
       lambda made: made[: made.rindex(END)] + b"PK\6\7" + struct.pack("<IQI", 0, 1 << 62, 1) + patched(END, 16, 0xFFFF_FFFF)(made)[made.rindex(END) :], True)
of_zip("all_entries_at_one_place", lambda: [(f"bad/c/{n}", bytes(1 << 20) if n == 0 else b"", zipfile.ZIP_DEFLATED) for n in range(500)], None, lambda made: overlapped(made), True)


def overlapped(made):
    """Every entry of the directory is the first one: a bomb without a bomb."""
    offset = made.index(b"bad/c/0") - 30
    sizes = made[offset + 14 : offset + 26]
    at = made.index(CENTRAL)
    while (at := made.find(CENTRAL, at + 1)) >= 0:
        if b"bad/c/" in made[at + 46 : at + 60]:
            made[at + 16 : at + 28] = sizes
            struct.pack_into("<I", made, at + 42, offset)
    return made


# References of kerchunk.


def of_kerchunk(name, refs=None, expected=None, whole=None, refused=False, make=None):
    def made(store):
        references = {
            ".zgroup": '{"zarr_format":2}',
            **{f"{at}/.zarray": json.dumps({"zarr_format": 2, "shape": [16], "chunks": [8], "dtype": "|u1", "compressor": None, "fill_value": 0, "order": "C", "filters": None})
               for at in ("good", "bad")},
            "good/0": "sibling!",
            **(refs(store.parent / "outside") if callable(refs) else refs or {}),
        }
        put(store / "local", DATA * 2)
        if make:
            make(store)
        document = whole(references) if whole else {"version": 1, "refs": references}
        put(store / "refs.json", document)

    form(f"kerchunk_{name}", made, expected, source="kerchunk+{store}/refs.json", refused=refused)


of_kerchunk("a_file_outside", lambda outside: {"bad/0": [f"file://{outside}/secret", 0, 8]}, "EACCES")
of_kerchunk("a_path_outside", lambda outside: {"bad/0": [f"{outside}/secret", 0, 8]}, "EACCES")
of_kerchunk("a_path_that_leads_out", {"bad/0": ["../outside/secret", 0, 8]}, None)
of_kerchunk("a_path_that_leads_out_in_another_spelling", {"bad/0": ["./x/%2e%2e/../../outside/secret", 0, 8], "bad/1": ["local/../../outside/secret", 0, 8]}, None)
of_kerchunk("a_server_that_nobody_has_allowed", {"bad/0": ["http://169.254.169.254/latest/meta-data", 0, 8]}, "EACCES")
of_kerchunk("a_bucket_that_nobody_has_allowed", {"bad/0": ["s3://bucket/key", 0, 8]}, "EACCES")
of_kerchunk("a_scheme_that_is_none", {"bad/0": ["gopher://x/y", 0, 8], "bad/1": ["::memory://x", 0, 8]}, None)
of_kerchunk("a_link_that_leads_out", {"bad/0": ["link", 0, 8]}, None, make=lambda store: (store / "link").symlink_to("../outside/secret"))
of_kerchunk("a_pipe", {"bad/0": ["pipe", 0, 8]}, None, make=lambda store: os.mkfifo(store / "pipe"))
of_kerchunk("a_device", {"bad/0": ["zero", 0, 8]}, None, make=lambda store: device(store / "zero"))
of_kerchunk("a_file_that_is_not_there", {"bad/0": ["nothing", 0, 8]}, None)
of_kerchunk("an_offset_past_the_end", {"bad/0": ["local", 1 << 62, 8]}, None)
of_kerchunk("a_range_that_wraps", {"bad/0": ["local", 2**64 - 4, 8]}, None, refused=True)
of_kerchunk("a_negative_offset", {"bad/0": ["local", -8, 8]}, None, refused=True)
of_kerchunk("a_length_of_2_to_the_62", {"bad/0": ["local", 0, 1 << 62]}, None)
of_kerchunk("a_reference_to_itself", {"bad/0": ["refs.json", 0, 8]}, None)
of_kerchunk("base64_that_is_none", {"bad/0": "base64:!!!!"}, None, refused=True)
of_kerchunk("base64_of_a_bomb", lambda outside: {
    "bad/.zarray": json.dumps({"zarr_format": 2, "shape": [16], "chunks": [8], "dtype": "|u1", "compressor": {"id": "zlib", "level": 1}, "fill_value": 0, "order": "C", "filters": None}),
    "bad/0": "base64:" + base64.b64encode(encoded("numcodecs.zlib", bytes(128 << 10), 200)).decode(),
}, "EIO")
of_kerchunk("keys_that_lead_out", {"../outside/new": "x", "/outside/new": "x", "bad/../../x": "x", "": "x", "bad//0": "x"}, None, refused=True)
of_kerchunk("a_key_that_is_a_file_and_a_directory", {"bad": "x", "bad/0": DATA.decode(), "bad/0/0": "x"}, None, refused=True)
of_kerchunk("references_nested_100000_deep", whole=lambda refs: b'{"version":1,"refs":' + b"[" * 100_000, refused=True)
of_kerchunk("a_reference_of_a_hundred_members", {"bad/0": ["local"] * 100}, None, refused=True)
of_kerchunk("a_reference_that_is_a_number", {"bad/0": 7}, None, refused=True)
of_kerchunk("templates_of_templates", {"bad/0": ["{{t40}}", 0, 8]}, refused=True, whole=lambda refs: {
    "version": 1, "templates": {"t0": "x" * 100, **{f"t{n}": f"{{{{t{n - 1}}}}}" * 2 for n in range(1, 41)}}, "refs": refs,
})
of_kerchunk("a_template_of_itself", {"bad/0": ["{{t}}", 0, 8]}, refused=True, whole=lambda refs: {"version": 1, "templates": {"t": "{{t}}{{t}}"}, "refs": refs})
of_kerchunk("a_template_that_computes", {"bad/0": ["{{ f(i=10**10**10) }}", 0, 8]}, refused=True, whole=lambda refs: {
    "version": 1, "templates": {"f": "{{ 9 * 9 * 9 * 99999999999 * 99999999999 * i }}"}, "refs": refs,
})
of_kerchunk("generated_without_end", refused=True, whole=lambda refs: {
    "version": 1, "refs": refs, "gen": [{"key": "bad/{{i}}.{{j}}", "url": "local", "offset": "{{i}}", "length": "8", "dimensions": {"i": {"stop": 1 << 40}, "j": {"stop": 1 << 40}}}],
})
of_kerchunk("generated_with_a_step_of_zero", refused=True, whole=lambda refs: {
    "version": 1, "refs": refs, "gen": [{"key": "bad/{{i}}", "url": "local", "dimensions": {"i": {"start": 0, "stop": 10, "step": 0}}}],
})


# Icechunk repositories: one that its library has made, and then was changed. Each part has files of one kind.

REPOSITORY = Path(__file__).parent.parent / "fixtures/icechunk/library2_spec2/repo"
PARTS = ["chunks", "manifests", "snapshots"]


def of_icechunk(name, part, damage):
    def made(store):
        shutil.copytree(REPOSITORY, store / "repo")
        for path in (store / "repo" / part).rglob("*") if (store / "repo" / part).is_dir() else [store / "repo" / part]:
            damage(path)

    # What is left of it depends on what is damaged.
    form(f"icechunk_{part}_{name}", made, source="icechunk+{store}/repo", refused=True, good=None)


def spoiled(path, spoil):
    made = bytearray(path.read_bytes())
    path.write_bytes(bytes(spoil(made)))


for part in [*PARTS, "repo"]:
    of_icechunk("that_are_pipes", part, lambda path: replace(path, os.mkfifo))
    of_icechunk("that_are_links_to_a_device", part, lambda path: replace(path, lambda it: it.symlink_to("/dev/zero")))
    of_icechunk("that_are_cut", part, lambda path: spoiled(path, lambda made: made[: len(made) // 2]))
    of_icechunk("that_are_bombs", part, lambda path: spoiled(path, lambda made: made[:39] + encoded("zstd", bytes(128 << 10), 8000)))
    of_icechunk("that_are_full_of_ones", part, lambda path: spoiled(path, lambda made: made[:39] + b"\xff" * (len(made) - 39)))


def make(name, store: Path):
    """Makes the hierarchy `name`, and beside it what no mount may show."""
    outside = store.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    (outside / "linked").write_bytes(b"linked!!")
    node(outside, array(attributes={"x": SECRET.decode()}))
    store.mkdir()
    node(store, GROUP)
    node(store / "good", array())
    put(store / "good/c/0", b"sibling!")
    FORMS[name].make(store)
