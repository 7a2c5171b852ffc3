#!/usr/bin/env python3
"""Makes fuzz/corpus: small inputs for each fuzzer, from the hierarchies in tests/fixtures.

    fuzz/seeds.py

Parts of an input are divided by a zero byte, as fuzz/src/lib.rs reads them. What a fuzzer has found is kept beside
these, with names that begin with `found-`.
"""

import base64
import io
import json
import lzma
import re
import struct
import zipfile
import zlib
from pathlib import Path

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "tests/fixtures"
LONGEST = 1500
MOST = 24


def files(pattern):
    found = sorted(FIXTURES.glob(f"*/store/**/{pattern}"))
    return [path for path in found if path.is_file() and path.stat().st_size <= LONGEST]


def chunk_of(directory, *names):
    """The smallest chunk of an array, below one of some directories."""
    found = [path for name in names for path in sorted(directory.glob(name)) if path.is_file()]
    small = [path.read_bytes() for path in found if path.stat().st_size <= LONGEST and path.suffix != ".json"]
    return min(small, key=len, default=b"")


def spread(items):
    """Some of the items, from all parts of the list."""
    step = max(1, len(items) // MOST)
    return items[::step][:MOST]


def zarr_json():
    arrays = [path for path in files("zarr.json") if b'"array"' in path.read_bytes() and "meta" not in path.parts]
    return [path.read_bytes() + b"\0" + chunk_of(path.parent, "c/**/*", "[0-9]*", "c") for path in spread(arrays)]


def zarr2():
    made = []
    for path in spread(files(".zarray")):
        attributes = path.with_name(".zattrs")
        attributes = attributes.read_bytes() if attributes.exists() else b"{}"
        made.append(b"\0".join([path.read_bytes(), attributes, chunk_of(path.parent, "[0-9]*", "[0-9]*/**/*")]))
    return made


def draft():
    made = []
    for path in spread(files("meta/root/**/*.array*")):
        store = FIXTURES / path.relative_to(FIXTURES).parts[0] / "store"
        entry = store / "zarr.json"
        entry = entry.read_bytes() if entry.exists() else b"{}"
        name = path.name.split(".array")[0]
        chunk = chunk_of(store / "data/root" / path.parent.relative_to(store / "meta/root") / name, "c*/**/*", "c*", "[0-9]*")
        made.append(b"\0".join([entry, path.read_bytes(), chunk]))
    return made


def n5():
    arrays = [path for path in files("attributes.json") if b"dimensions" in path.read_bytes()]
    return [path.read_bytes() + b"\0" + chunk_of(path.parent, "**/[0-9]*") for path in spread(arrays)]


def consolidated():
    ours = {"zarr_format": 3, "node_type": "array", "shape": [2], "data_type": "int8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]}
    group = {"zarr_format": 3, "node_type": "group", "consolidated_metadata":
             {"kind": "inline", "must_understand": False, "metadata": {"a": ours, "b/c": ours}}}
    zarr2 = {"zarr_consolidated_format": 1, "metadata": {
        ".zgroup": {"zarr_format": 2}, "a/.zattrs": {"units": "K"},
        "a/.zarray": {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<i2", "compressor": None,
                      "fill_value": 0, "filters": None, "order": "C"}}}
    return [json.dumps(group).encode(), json.dumps(zarr2).encode()]


def edit():
    return [path.read_bytes() for path in spread([path for path in files("zarr.json") if "meta" not in path.parts])]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def shard():
    # Inner chunks are zstd frames of two uint16 each; the index comes last, with its CRC32C.
    frame = bytes.fromhex("28b52ffd0004") + b"\x21\x00\x00" + b"\x01\x00\x02\x00"
    made = []
    for offsets in ([0, len(frame)], [0, 0], [0, 1 << 64], [(1 << 64) - 1] * 2):
        numbers = [offsets[0], len(frame), offsets[1], len(frame)]
        index = b"".join(struct.pack("<Q", number % (1 << 64)) for number in numbers)
        made.append(frame + frame + index + struct.pack("<I", crc32c(index)))
    return made


def codecs():
    chunks = [chunk_of(path.parent, "c/**/*", "[0-9]*") for path in files("zarr.json") if "meta" not in path.parts]
    made = [bytes([at % 22, at // 2 % 22]) + chunk for at, chunk in enumerate(chunks) if chunk]
    made += [bytes([0, 0]) + zlib.compress(bytes(8), wbits=31), bytes([6, 2]) + zlib.compress(bytes(8))]
    return spread(made)


def shaped_codecs():
    listed = re.findall(r'"name":"(\w+)".*?}"#, "(\w+)"', (HERE / "src/lib.rs").read_text().split("SHAPED_CODECS")[1].split("];")[0])
    images = json.loads(lzma.decompress((FIXTURES / "imagecodecs/images.json.xz").read_bytes()))
    made = []
    for image in images:
        number = next((at for at, row in enumerate(listed) if row == (image["name"], image["dtype"])), None)
        shape = [len for len in image["shape"] if len > 1]
        encoded = bytes.fromhex(image["encoded"])
        if number is not None and len(shape) in (2, 3) and max(shape[:2]) <= 64 and (len(shape) == 2 or shape[2] < 5) and len(encoded) < LONGEST:
            made.append(bytes([number, shape[0] - 1, shape[1] - 1, shape[2] if len(shape) == 3 else 0]) + encoded)
    # The others begin with a chunk of their own kind.
    for path in sorted(FIXTURES.glob("ic2026*/store/*/*")) + sorted(FIXTURES.glob("zfpy*/store/*/c/*")):
        name = "imagecodecs_" + path.relative_to(FIXTURES).parts[2].split("_")[0]
        number = next((at for at, row in enumerate(listed) if row[0] == name or (row[0] == "zfp" and "zfp" in str(path))), None)
        if number is not None and path.is_file() and path.name[0].isdigit() and path.stat().st_size < LONGEST:
            made.append(bytes([number, 4, 5, 0]) + path.read_bytes())
    return spread(made)


def grib():
    messages = json.loads((FIXTURES / "grib/messages.json").read_text())
    decoded = [(base64.b64decode(it["message"]), len(base64.b64decode(it["values"])) // 8) for it in messages]
    return spread([bytes([points]) + message for message, points in decoded if points < 256 and len(message) < LONGEST])


def views():
    attributes = {"units": "days since 2000-01-01", "scale_factor": 0.5, "_FillValue": -1, "crs": "EPSG:4326",
                  "multiscales": [{"version": "0.4", "axes": [{"name": "y", "type": "space"}], "datasets": [{"path": "x"}]}]}
    texts = [json.dumps(attributes), '{"long_name":"\\u0000\\ud800 x","n":[1,2.5,null,true,{"a":[]}]}', "[]"]
    return [f'{text}\0["y","x"]\0{fill}'.encode() for text, fill in zip(texts, ("1", '"NaN"', "null"))]


def operations():
    made = [bytes((step * 7 + at * 13 + seed * 31) % 256 for step in range(40) for at in range(4)) for seed in range(6)]
    return [*made, bytes([3, 0, 4, 0, 6, 0, 65, 8, 11, 0, 0, 0, 13, 0, 4, 1, 15, 0, 0, 2])]


def zip_archive():
    made = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            for name in ("zarr.json", "x/zarr.json"):
                source = next(path for path in files("zarr.json") if "meta" not in path.parts)
                archive.writestr(zipfile.ZipInfo(name), source.read_bytes()[:600], method)
            archive.comment = b'{"ome":{"version":"0.5"}}'
        made.append(file.getvalue())
    return made


def kerchunk_references():
    zarray = json.dumps({"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i2", "compressor": None,
                         "fill_value": 0, "filters": None, "order": "C"})
    refs = {".zgroup": '{"zarr_format":2}', "x/.zarray": zarray, "x/0": ["data/a.nc", 8, 4], "x/1": "base64:AAECAw=="}
    first = {"version": 1, "templates": {"u": "data/a.nc", "f": "{{c}}"}, "refs": {**refs, "x/1": ["{{u}}", 1, 4]},
             "gen": [{"key": "x/{{i}}", "url": "{{u}}", "offset": "{{i * 4}}", "length": "4",
                      "dimensions": {"i": {"start": 0, "stop": 2}}}]}
    return [json.dumps(refs).encode(), json.dumps(first).encode()]


def file_formats():
    """Files of every format, as its own library writes them: this needs the environment py3 of the tests."""
    import h5py
    import nibabel
    import numpy as np
    import scipy.io
    import tifffile

    values = np.arange(24, dtype="i2").reshape(4, 6)
    made = []
    for version in ("earliest", "latest"):
        file = io.BytesIO()
        with h5py.File(file, "w", libver=version) as store:
            store.create_dataset("g/x", data=values, chunks=(2, 3), maxshape=(None, 6), compression="gzip", shuffle=True, fletcher32=True)
            store.create_dataset("f", data=values, chunks=(2, 3), maxshape=(8, 6))
            store["t"], store["c"] = ["a", "bc"], np.zeros(2, dtype=[("a", "i2"), ("b", "f8")])
            store["g"].attrs["n"] = [1.5, 2]
        made.append(file.getvalue())
    file = io.BytesIO()
    with scipy.io.netcdf_file(file, "w") as store:
        store.createDimension("t", None)
        store.createDimension("x", 3)
        store.createVariable("t", "i4", ("t",))[:] = [1, 2]
        store.createVariable("v", "f4", ("t", "x"))[:] = np.ones((2, 3), "f4")
        store.title = "words"
        store.flush()
        made.append(file.getvalue())
    for options in ({}, {"tile": (16, 16), "compression": "zlib", "predictor": 2}, {"ome": True, "metadata": {"axes": "YX"}}, {"imagej": True}, {"bigtiff": True, "byteorder": ">"}):
        file = io.BytesIO()
        tifffile.imwrite(file, values.astype("u2"), **options)
        made.append(file.getvalue())
    made.append(nibabel.Nifti1Image(values, np.eye(4)).to_bytes())
    made.append(b"NRRD0004\ntype: short\ndimension: 2\nsizes: 6 4\nendian: little\nencoding: raw\n\n" + values.tobytes())
    made.append(b"ObjectType = Image\nNDims = 2\nDimSize = 6 4\nElementType = MET_SHORT\nElementDataFile = LOCAL\n" + values.tobytes())
    cards = ["SIMPLE  =                    T", "BITPIX  =                   16", "NAXIS   =                    1", "NAXIS1  =                   24", "END"]
    made.append("".join(card.ljust(80) for card in cards).ljust(2880).encode() + values.tobytes().ljust(2880, b"\0"))
    mrc = struct.pack("<10i", 6, 4, 1, 1, 0, 0, 0, 6, 4, 1).ljust(208, b"\0") + b"MAP DD\0\0"
    made.append(mrc.ljust(1024, b"\0") + values.tobytes())
    file = io.BytesIO()
    np.save(file, np.asfortranarray(values))
    made.append(file.getvalue())
    file = io.BytesIO()
    np.savez_compressed(file, a=values)
    made += [file.getvalue(), zlib.compress(made[-1], wbits=31)]
    return [seed for seed in made if len(seed) < 40_000]


def icechunk_repository():
    root = FIXTURES / "icechunk/library2_spec2/repo"
    all_files = sorted((str(path.relative_to(root)), path) for path in root.rglob("*") if path.is_file())
    return spread([bytes([at % 256]) + path.read_bytes() for at, (_, path) in enumerate(all_files) if path.stat().st_size < 6000])


def web_list():
    names = ("../", "c/", "zarr.json", "a%20b%26c%25/")
    links = "\n".join(f'<a href="{name}">{name}</a>  25-Nov-2026 18:09  3' for name in names)
    nginx = f"<html><head><title>Index of /x.zarr/</title></head><body><h1>Index of /x.zarr/</h1><hr><pre>{links}</pre></body></html>"
    python = "<!DOCTYPE HTML><title>Directory listing for /x.zarr/</title><ul>" + "".join(f'<li><a href="{name}">{name}</a></li>' for name in names) + "</ul>"
    json_list = json.dumps([{"name": "c", "type": "directory", "mtime": "Wed, 25 Nov 2026 18:09:00 GMT"},
                            {"name": "zarr.json", "type": "file", "mtime": "Wed, 25 Nov 2026 18:09:00 GMT", "size": 3}])
    dav = ('<?xml version="1.0"?><D:multistatus xmlns:D="DAV:"><D:response><D:href>/x.zarr/zarr.json</D:href><D:propstat><D:prop>'
           "<D:getcontentlength>3</D:getcontentlength><D:resourcetype/></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>")
    return [text.encode() for text in (nginx, python, json_list, dav)]


def mount_options():
    return [options.encode() for options in (
        "ro,allow_other,nonempty,direct_io", "uid=1000,gid=100,umask=022,quiet", "cache-size=1G,threads=4,metadata-ttl=500ms",
        "views=npy+nc,as=zarr2,codecs=zstd,shards=16M", "_netdev,nofail,x-systemd.automount,fsname=a,subtype=b", "writeback=all,durability=fsync")]


def main():
    for make in (zarr_json, zarr2, draft, n5, consolidated, edit, shard, codecs, shaped_codecs, grib, views, operations, zip_archive,
                 kerchunk_references, file_formats, icechunk_repository, web_list, mount_options):
        directory = HERE / "corpus" / make.__name__
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("seed-*"):
            old.unlink()
        for number, seed in enumerate(make()):
            (directory / f"seed-{number:02}").write_bytes(seed)


if __name__ == "__main__":
    main()
