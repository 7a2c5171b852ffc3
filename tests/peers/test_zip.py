"""Hierarchies in zip archives that other programs made, and archives that `zarrfs convert` made, read by others."""

import asyncio
import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr

import images
from hierarchies import arrays, assembled, assert_same, document
from mounts import BIN, PATIENCE, Mount, MountFailed, until_end, wait_until
from test_convert import converted, run
from test_fixtures import ALL, CASES, store_of, truths

LONG = os.environ.get("ZARRFS_LONG") == "1"


def by_python(method):
    def make(root, archive):
        with zipfile.ZipFile(archive, "w", method) as made:
            for path in sorted(root.rglob("*")):
                made.write(path, path.relative_to(root))

    return make


def by_command(*words):
    def make(root, archive):
        subprocess.run([*words, str(archive), "."], cwd=root, check=True, capture_output=True)

    return make


MAKERS = {
    "python-stored": by_python(zipfile.ZIP_STORED),
    "python-deflated": by_python(zipfile.ZIP_DEFLATED),
    "7zip-stored": by_command("7zz", "a", "-tzip", "-mx0"),
    "7zip-deflated": by_command("7zz", "a", "-tzip", "-mx9"),
    "7zip-zip64": by_command("7zz", "a", "-tzip", "-mx1", "-mcu=on"),
    "infozip-stored": by_command("zip", "-q", "-r", "-0"),
    "infozip-deflated": by_command("zip", "-q", "-r", "-9"),
    "infozip-streamed": lambda root, archive: archive.write_bytes(
        subprocess.run(["zip", "-q", "-r", "-", "."], cwd=root, check=True, capture_output=True).stdout
    ),
    "infozip-zip64": by_command("zip", "-q", "-r", "-fz"),
}


@pytest.fixture
def zipped(tmp_path):
    """`with zipped(archive) as m:` mounts an archive."""

    def made(archive, *options):
        (tmp_path / "empty").mkdir(exist_ok=True)
        mnt = tmp_path / f"mnt-{os.urandom(4).hex()}"
        made = Mount(tmp_path / "empty", mnt, *options, source=str(archive))
        made.allow("mounted read-only, because it is a zip archive")
        return until_end(made)

    return made


def refused(*words, code=1):
    """What `zarrfs` says when it refuses something: one sentence."""
    done = subprocess.run([BIN, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code, f"{words}: {done.returncode} {done.stderr}"
    return done.stderr


# A normal run makes every third pair: each hierarchy in three ways, and each way for a third of the hierarchies.
PAIRS = [
    (case, maker)
    for row, case in enumerate(CASES)
    for column, maker in enumerate(MAKERS)
    if LONG or (row + column) % 3 == 0
]


@pytest.mark.parametrize("case, maker", PAIRS)
def test_a_fixture_in_an_archive_is_its_truth(zipped, tmp_path, case, maker):
    archive = tmp_path / "made.zip"
    MAKERS[maker](store_of(case), archive)
    with zipped(archive) as m:
        assert "mounted read-only, because it is a zip archive" in m.stderr
        known = dict(truths(case))
        assert set(known) <= set(arrays(m.path))
        for path, truth in known.items():
            assert_same(assembled(m / path), truth, path)


@pytest.mark.parametrize("case", CASES)
def test_a_directory_in_an_archive_is_the_hierarchy(tmp_path, case):
    shutil.copytree(store_of(case), tmp_path / "made.zarr")
    archive = tmp_path / "other.zip"
    subprocess.run(["zip", "-q", "-r", str(archive), "made.zarr"], cwd=tmp_path, check=True)
    run("diff", store_of(case), archive)
    run("check", archive)


def test_nodes_of_an_archive_are_named_by_paths(tmp_path):
    archive = tmp_path / "climate.zip"
    with zarr.storage.ZipStore(archive, mode="w") as store:
        group = zarr.create_group(store, attributes={"title": "weather"})
        group.create_array("g/t2m", data=np.arange(20, dtype="i4"), chunks=(8,))
    t2m = np.arange(20, dtype="i4")
    for spelled in [f"{archive}/g/t2m", f"{archive}#g/t2m"]:
        assert "int32" in run("info", spelled)
        assert subprocess.run([BIN, "cat", spelled, "--as", "raw"], capture_output=True).stdout == t2m.tobytes()
        run("exec", spelled, "--", "sh", "-c", "test -f $1/zarr.json && test -f $1/c/0", "sh", "{}")
    assert "t2m" in run("tree", archive)
    assert "no group or array" in refused("info", f"{archive}/g/other")
    run("convert", f"{archive}/g", tmp_path / "g.zarr")
    assert_same(zarr.open_array(tmp_path / "g.zarr/t2m")[...], t2m, "t2m")
    # One without such a name.
    shutil.copy(archive, tmp_path / "climate")
    run("diff", archive, tmp_path / "climate")


def test_an_archive_is_not_written(zipped, tmp_path):
    archive = tmp_path / "a.zip"
    with zarr.storage.ZipStore(archive, mode="w") as store:
        zarr.create_array(store, data=np.arange(4), chunks=(4,))
    with zipped(archive) as m:
        with pytest.raises(OSError) as failed:
            (m / "c/0").write_bytes(b"x")
        assert failed.value.errno == errno.EROFS
    (tmp_path / "free").mkdir()
    for words in [
        ("create", archive / "new", "--shape", "4", "--dtype", "i4"),
        ("create", tmp_path / "other.zip", "--shape", "4", "--dtype", "i4"),
        ("mount", "--create", tmp_path / "other.ozx", tmp_path / "free"),
        ("check", "--repair", "--yes", archive),
    ]:
        assert "does not change zip archives" in refused(*words)
    assert not (tmp_path / "other.zip").exists() and not (tmp_path / "other.ozx").exists()
    assert "no such file" in refused("mount", tmp_path / "none.zip", tmp_path / "free")


def test_a_replaced_archive_is_read_anew_and_never_mixed(zipped, tmp_path):
    archive, other = tmp_path / "a.zip", tmp_path / "b.zip"

    def make(path, value):
        path.unlink(missing_ok=True)
        with zarr.storage.ZipStore(path, mode="w") as store:
            data = np.full(40_000, value, "i4")
            zarr.create_array(store, data=data, chunks=(10_000,), compressors=None, filters=None)

    make(archive, 1)
    with zipped(archive, "--metadata-ttl", "0s") as m:
        for value in range(2, 30):
            make(other, value)
            os.replace(other, archive)
            found = np.concatenate([np.fromfile(m / f"c/{at}", "i4") for at in range(4)])
            assert set(found) == {value}
        m.expect("the zip archive is gone")
        archive.unlink()
        with pytest.raises(OSError) as failed:
            (m / "c/0").read_bytes()
        assert failed.value.errno == errno.ESTALE


def damaged(tmp_path):
    """Archives that are refused, each with a part of the sentence."""
    good = tmp_path / "good.zip"
    with zarr.storage.ZipStore(good, mode="w") as store:
        zarr.create_array(store, data=np.arange(4000), chunks=(40,))
    whole = good.read_bytes()
    truncated = tmp_path / "truncated.zip"
    truncated.write_bytes(whole[: len(whole) // 2])
    yield truncated, "no end record"
    text = tmp_path / "text.zip"
    text.write_text("no archive")
    yield text, "no end record"
    overlapping = tmp_path / "overlapping.zip"
    # All entries lead to the first one's bytes.
    directory = whole.index(b"PK\x01\x02")
    changed = bytearray(whole)
    while (directory := whole.find(b"PK\x01\x02", directory + 1)) > 0:
        changed[directory + 42 : directory + 46] = bytes(4)
    overlapping.write_bytes(changed)
    yield overlapping, "overlap"
    split = tmp_path / "split.zip"
    changed = bytearray(whole)
    changed[-18:-16] = struct.pack("<H", 3)
    split.write_bytes(changed)
    yield split, "split"
    (tmp_path / "noise").write_bytes(os.urandom(300_000))
    subprocess.run(["zip", "-q", "-s", "64k", "parts.zip", "noise"], cwd=tmp_path, check=True)
    yield tmp_path / "parts.zip", "split"
    billion = tmp_path / "billion.zip"
    # The end record in Zip64 says that there are a billion entries, in a directory of 90 GB.
    end = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 10**9, 10**9, 90 * 10**9, 1000)
    end += struct.pack("<4sIQI", b"PK\x06\x07", 0, 100 * 10**9, 1)
    end += struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1, 0)
    with billion.open("wb") as file:
        file.seek(100 * 10**9)
        file.write(end)
    yield billion, "directory of"
    empty = tmp_path / "empty.zip"
    with zipfile.ZipFile(empty, "w"):
        pass
    yield empty, ""


def test_an_archive_that_is_cut_while_it_is_mounted_has_no_names_until_it_is_whole_again(zipped, tmp_path):
    archive = tmp_path / "a.zip"
    with zarr.storage.ZipStore(archive, mode="w") as store:
        zarr.create_array(store, data=np.arange(4), chunks=(4,))
    whole = archive.read_bytes()
    with zipped(archive, "--metadata-ttl", "0s") as m:
        m.allow("no zip archive, or the start of one")
        os.truncate(archive, 300)
        for name in ("nothing", "nothing.npy", "nothing/c/0"):
            with pytest.raises(OSError) as refused:
                os.stat(m / name)
            assert refused.value.errno == errno.EIO
        assert "no zip archive, or the start of one" in m.errors()
        archive.write_bytes(whole)
        assert wait_until(lambda: not (m / "nothing").exists())
        os.truncate(archive, 300)
        assert m.unmount() is None


def test_damaged_and_hostile_archives_are_refused_with_a_sentence(tmp_path):
    for archive, sentence in damaged(tmp_path):
        begun = time.monotonic()
        said = refused("tree", archive)
        assert sentence in said and said.count("\n") == 1 and str(archive) in said, said
        assert time.monotonic() - begun < 5


def test_entries_that_cannot_be_read_cost_only_themselves(zipped, tmp_path):
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as made:
        about = dict(zarr_format=3, node_type="array", shape=[40], data_type="uint8", fill_value=0, codecs=["bytes"])
        about["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [10]}}
        about["chunk_key_encoding"] = {"name": "default"}
        made.writestr("zarr.json", json.dumps(about))
        made.writestr("c/0", bytes(range(10)))
        made.writestr("c/1", bytes(10), zipfile.ZIP_BZIP2)
        made.writestr("../c/2", bytes(10))
    (tmp_path / "c").mkdir()
    (tmp_path / "c/3").write_bytes(bytes(10))
    subprocess.run(["zip", "-q", "-0", "-P", "secret", str(archive), "c/3"], cwd=tmp_path, check=True)
    with zipped(archive) as m:
        m.expect(r"\.\./c/2: this entry of the archive is left out: no key has such a name")
        assert (m / "c/0").read_bytes() == bytes(range(10))
        m.refused(errno.EOPNOTSUPP, r"c/1: compressed with method 12 \(bzip2\)", (m / "c/1").read_bytes)
        m.refused(errno.EOPNOTSUPP, "c/3: encrypted", (m / "c/3").read_bytes)


def test_an_archive_of_70_000_entries_opens_in_little_memory(zipped, tmp_path):
    archive = tmp_path / "many.zip"
    with zarr.storage.ZipStore(archive, mode="w") as store:
        zarr.create_array(store, shape=(70_000,), chunks=(1,), dtype="u2", compressors=None, filters=None, fill_value=9)
    with zipfile.ZipFile(archive, "a") as made:
        for at in range(70_000):
            made.writestr(f"c/{at}", struct.pack("<H", at % 65536))
    with zipped(archive) as m:
        begun = time.monotonic()
        assert len(os.listdir(m / "c")) == 70_000
        print(f"listed in {time.monotonic() - begun:.2f} s, {m.peak_memory() >> 20} MiB")
        assert (m / "c/69999").read_bytes() == struct.pack("<H", 69_999 - 65_536)
        assert np.array_equal(np.fromfile(m / "__root__.bin", "u2"), np.arange(70_000, dtype="u4").astype("u2"))


@pytest.mark.skipif(not LONG, reason="ZARRFS_LONG=1: a file of 5 GiB with a hole")
def test_entries_past_4_gib_are_read(zipped, tmp_path):
    archive = tmp_path / "big.zip"
    with archive.open("wb") as file:
        file.truncate(5 << 30)
    with zipfile.ZipFile(archive, "a") as made:
        for path in store_of("z316__shard_end").rglob("*"):
            made.write(path, path.relative_to(store_of("z316__shard_end")))
    run("diff", store_of("z316__shard_end"), archive)


def read_by_zarr(archive, path):
    with zarr.storage.ZipStore(archive, mode="r") as store:
        return np.asarray(zarr.open_array(store, path=path or None, mode="r")[...])


@pytest.mark.parametrize("options", [(), ("--shards", "64M", "--codecs", "zstd"), ("--format", "v2")], ids=str)
@pytest.mark.parametrize("case", ["z316__dtypes_core", "z316__shard_end", "z218v2__compressors", "z218v3__groups"])
def test_zarr_python_reads_a_converted_archive(tmp_path, case, options):
    archive = tmp_path / "made.zip"
    known = converted(case, archive, *options)
    count = 0
    for path, truth in known.items():
        try:
            got = read_by_zarr(archive, path)
        except Exception as error:
            print(f"{path}: {error}")
            continue
        assert_same(got, truth, path)
        count += 1
    assert count, "nothing was read"
    assert os.listdir(tmp_path) == ["made.zip"], "something was left"
    run("diff", store_of(case), archive) if len(known) == len(ALL[case]["arrays"]) else None
    subprocess.run(["unzip", "-q", "-t", str(archive)], check=True)
    subprocess.run(["7zz", "t", str(archive)], check=True, capture_output=True)


def test_an_ozx_archive_follows_rfc_9(tmp_path):
    images.ome(tmp_path / "image.zarr", (1, 2, 4, 64, 64), chunks=(1, 1, 2, 32, 32))
    archive = tmp_path / "image.ozx"
    assert run("convert", tmp_path / "image.zarr", archive, "--shards", "1M")
    with zipfile.ZipFile(archive) as made:
        assert made.testzip() is None
        entries = made.infolist()
        comment = json.loads(made.comment)
    central = {"centralDirectory": {"jsonFirst": True}}
    assert comment == {"ome": {"version": "0.5", "zipFile": central}}
    assert all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
    offsets = [entry.header_offset for entry in entries]
    assert offsets == sorted(offsets), "the directory has another order than the entries"
    names = [entry.filename for entry in entries]
    documents = [name for name in names if name.endswith("zarr.json")]
    assert names[0] == "zarr.json" and names[: len(documents)] == documents
    depths = [name.count("/") for name in documents]
    assert depths == sorted(depths), "not breadth first"
    assert len(documents) == 4 and not any(name.endswith("/") or ".zarrfs" in name for name in names)
    tail = archive.read_bytes()[-22 - len(json.dumps(comment)) - 200 :]
    assert b"PK\x06\x06" in tail and b"PK\x06\x07" in tail, "no Zip64"
    run("diff", tmp_path / "image.zarr", archive)
    # The same conversion makes the same bytes.
    run("convert", tmp_path / "image.zarr", tmp_path / "again.ozx", "--shards", "1M")
    assert archive.read_bytes() == (tmp_path / "again.ozx").read_bytes()


def test_what_is_no_ome_zarr_has_no_comment(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(4), chunks=(4,))
    done = subprocess.run([BIN, "convert", tmp_path / "a.zarr", tmp_path / "a.ozx"], capture_output=True, text=True)
    assert done.returncode == 0 and "no OME-Zarr" in done.stderr
    with zipfile.ZipFile(tmp_path / "a.ozx") as made:
        assert made.comment == b""


def test_conversions_to_archives_that_cannot_be_made_are_refused(tmp_path):
    source = store_of("z316__shard_end")
    (tmp_path / "there.zip").write_text("mine")
    assert "already exists" in refused("convert", source, tmp_path / "there.zip")
    assert (tmp_path / "there.zip").read_text() == "mine"
    assert "no such directory" in refused("convert", source, tmp_path / "none/a.zip")
    assert "holds Zarr 3" in refused("convert", source, tmp_path / "a.ozx", "--format", "v2", code=2)
    assert "local directories only" in refused("convert", source, "s3://bucket/a.zip")
    assert "--only" in refused("convert", source, tmp_path / "a.zip", "--only", "none")
    assert os.listdir(tmp_path) == ["there.zip"]


@pytest.mark.parametrize("bit", [1, 2, 32, 128])
def test_a_wrong_bit_in_the_name_of_a_chunk_is_no_missing_chunk(tmp_path, bit):
    zarr.create_array(tmp_path / "source/a", data=np.arange(1, 5), chunks=(2,))
    run("convert", tmp_path / "source", tmp_path / "a.zip")
    archive = bytearray((tmp_path / "a.zip").read_bytes())
    archive[archive.rfind(b"a/c/0") + 2] ^= bit
    (tmp_path / "a.zip").write_bytes(archive)
    for words, code in {
        ("check", "a.zip"): 3,
        ("convert", "a.zip", "copy"): 1,
        ("diff", "a.zip", "a.zip"): 2,
        ("cat", "a.zip/a", "--as", "npy"): 1,
    }.items():
        done = subprocess.run([BIN, *words], cwd=tmp_path, capture_output=True, timeout=PATIENCE)
        said = done.stdout + done.stderr
        assert done.returncode == code and b"local header" in said, f"{words}: {done}"


def test_a_wrong_bit_in_a_shard_without_checksums_is_found(tmp_path):
    numbers = np.arange(64, dtype="i4").reshape(8, 8)
    shards = {"chunks": (2, 2), "shards": (4, 4), "compressors": None}
    zarr.create_array(tmp_path / "source", data=numbers, **shards)
    run("convert", tmp_path / "source", tmp_path / "a.zip")
    run("check", tmp_path / "a.zip")
    archive = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(archive.replace(numbers[:2, :2].tobytes(), bytes(15) + b"\1"))
    for words, code in {("check", "a.zip"): 3, ("convert", "a.zip", "copy", "--verify"): 1}.items():
        done = subprocess.run([BIN, *words], cwd=tmp_path, capture_output=True, timeout=PATIENCE)
        assert done.returncode == code and b"CRC-32" in done.stdout + done.stderr, f"{words}: {done}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_conversion_leaves_nothing(tmp_path, number):
    source = tmp_path / "source.zarr"
    zarr.create_array(source, data=np.zeros((4000, 100)), chunks=(1, 100), config={"write_empty_chunks": True})
    dest = tmp_path / "dest"
    dest.mkdir()
    seen = set()
    for pause in [0.0, 0.1, 0.3, 0.6, 1.0]:
        process = subprocess.Popen([BIN, "convert", source, dest / "a.zip"], stderr=subprocess.PIPE, text=True)
        wait_until(lambda: os.listdir(dest) or process.poll() is not None)
        time.sleep(pause)
        process.send_signal(number)
        said = process.communicate(timeout=PATIENCE)[1]
        seen.add(process.returncode)
        if process.returncode == 0:
            (dest / "a.zip").unlink()
        else:
            assert "no archive was made" in said or process.returncode < 0, said
        assert os.listdir(dest) == [], f"left after {pause} s: {said}"
    assert 1 in seen
