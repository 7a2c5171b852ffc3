"""Hostile hierarchies of every form, in 256 MiB: the daemon lives, every operation ends, the array beside is read, and
nothing from outside of the store is shown or changed."""

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hostile_forms
from confined import SECONDS, run
from hostile_forms import FORMS, SECRET
from mounts import MountFailed, files, is_alive
from test_damage import beneath, read
from torture import count

VIEWS = ["npy", "raw", "nc", "h5", "tif", "txt", "safetensors"]


@pytest.fixture
def place(tmp_path):
    """A directory for the store and for what lies outside of it."""
    made = tmp_path / "place"
    made.mkdir()
    return made


READ_ALL = f"""import sys
sys.path.insert(0, "{Path(__file__).parent}")
import beneath
for name in sys.argv[2:]:
    try:
        sys.stdout.buffer.write(beneath.read(sys.argv[1], name, 100_000))
    except OSError:
        pass"""


def look_from_the_command_line(zarrfs, source, directory):
    said = run(f"{zarrfs} tree '{source}'; {zarrfs} info '{source}'", directory)
    for command in ("check", "info -v"):
        said += run(f"{zarrfs} {command} '{source}'", directory)
    said += run(f"{zarrfs} convert '{source}' {directory}/converted --skip-unsupported", directory)
    assert "a bug in zarrfs" not in said and "panicked" not in said, said
    assert SECRET.decode() not in said, said


def look_at_the_mount(m):
    said = run("find . -printf '%P %l %s\\n' | head -c 300000 > /dev/null", m.path)
    # Whatever can be read is searched, with what is not listed.
    secret = SECRET.decode()
    # Links are not followed.
    said += run(f"grep -raoF '{secret}' . | head -c 200", m.path)
    for node in ("bad", ".", "bad2"):
        names = [f"{node}.{view}" for view in VIEWS] + [f"{node}/{name}" for name in ("c/0", "c/1", "0", "1", "zarr.json", "secret", "z/secret")]
        names += [f".zarrfs/stored/{node}/zarr.json", f".zarrfs/views/{node}", "notes", ".zarrfs/errors"]
        said += run(f"""python3 -S -c '{READ_ALL}' . {" ".join(names)} | grep -aoF '{secret}'""", m.path)
        said += run(f"getfattr -hd '{node}' | grep -aoF '{secret}'", m.path)
    assert secret not in said, said


def change_the_mount(m):
    for name in ("bad/c/0", "bad/c/1", "bad/secret", "bad/z/new"):
        beneath(m / name, "write")
    for script in (
        "printf xy | dd of=bad/c/0 bs=1 seek=2 conv=notrunc oflag=nofollow",
        "setfattr -h -n user.attrs.new -v 1 bad",
        "setfattr -h -n user.attrs.new -v 1 .",
        "cp -r bad copied",
        "mv bad/c/0 bad/c/1",
        "rm -rf bad",
    ):
        run(script, m.path)
    with contextlib.suppress(OSError):
        m.sync()


@pytest.mark.parametrize("name", FORMS)
def test_a_hostile_hierarchy_hurts_nobody(mount, confined, place, tried, name):
    form, store = FORMS[name], place / "made"
    hostile_forms.make(name, store)
    outside, before = place / "outside", files(place / "outside")
    source = form.source.format(store=store)
    tried("hostile hierarchies")
    look_from_the_command_line(confined.wrapper(place), source, place)
    assert confined.kills() == 0, "memory ran out"
    try:
        with mount(store, source=source, copy=False) as m:
            m.allow("")
            for path, expected in form.reads.items():
                got = read(m / path)
                wanted = getattr(errno, expected) if isinstance(expected, str) else expected
                assert wanted in (None, got), f"{path}: {expected} expected, {errno.errorcode.get(got, got)} came\n{m.errors()}"
            look_at_the_mount(m)
            if form.good:
                path, content = form.good
                assert read(m / path) == content
            change_the_mount(m)
            assert is_alive(m.pid)
            assert not form.good or read(m / path) == content
            assert "a bug in zarrfs" not in m.errors()
            confined.check(m, tried)
            subprocess.run(["rm", "-rf", str(store / ".zarrfs")], check=True)
    except MountFailed as failed:
        assert form.refused and failed.code == 1 and failed.said.count("\n") == 1, failed
        assert confined.kills() == 0, "memory ran out"
    assert files(outside) == before, "changed outside of the store"
    for trace in ("/tmp/zarrfs-pickled", "/tmp/zarrfs-code"):
        assert not os.path.exists(trace), "ran what is in the store"


SWAPPER = """
import ctypes, itertools, os, random, sys, time
store, seconds = sys.argv[1], float(sys.argv[2])
exchange = ctypes.CDLL(None, use_errno=True).renameat2
count, until = 0, time.monotonic() + seconds
pairs = [(os.fsencode(f"{store}/{name}"), os.fsencode(f"{store}/{name}-far")) for name in ("bad", "bad/c", "bad/c/0", "bad/zarr.json", "bad/notes")]
while time.monotonic() < until:
    for name, far in random.choices(pairs, k=100):
        # RENAME_EXCHANGE
        count += exchange(-100, name, -100, far, 2) == 0
print(count)
"""
READER = f"""
import sys, time
sys.path.insert(0, "{Path(__file__).parent}")
from beneath import read, write
root, seconds, secret = sys.argv[1], float(sys.argv[2]), sys.argv[3].encode()
until, count = time.monotonic() + seconds, 0
while time.monotonic() < until:
    for name in ("bad/c/0", "bad/zarr.json", "bad/notes", "bad/c/secret", "bad.npy", ".zarrfs/stored/bad/zarr.json"):
        try:
            data = read(root, name, 100_000)
        except OSError:
            continue
        count += 1
        assert secret[:8] not in data, name
    for name in ("bad/c/0", "bad/notes", "bad/c/secret"):
        try:
            write(root, name)
        except OSError:
            pass
print(count)
"""


def test_links_that_come_and_go_lead_nowhere(mount, tmp_path, tried):
    """Another program puts links to outside where directories and files were, all the time."""
    outside, store, seconds = tmp_path / "outside", tmp_path / "made", count("ZARRFS_SECONDS", 3, 60)
    (outside / "c").mkdir(parents=True)
    for name in ("secret", "notes", "0", "c/0", "c/secret"):
        (outside / name).write_bytes(SECRET)
    hostile_forms.node(outside, hostile_forms.array(attributes={"x": SECRET.decode()}))
    hostile_forms.node(store, hostile_forms.GROUP)
    for name in ("good", "bad"):
        hostile_forms.node(store / name, hostile_forms.array())
        hostile_forms.put(store / name / "c/0", b"sibling!")
    (store / "bad/notes").write_bytes(b"a note")
    for name, target in (("bad", "."), ("bad/c", "c"), ("bad/c/0", "secret"), ("bad/zarr.json", "zarr.json"), ("bad/notes", "notes")):
        (store / f"{name}-far").symlink_to(outside / target)
    before = files(outside)
    with mount(store, "--metadata-ttl=0", copy=False) as m:
        m.allow("")
        command = [sys.executable, "-S", "-c"]
        readers = [subprocess.Popen([*command, READER, str(m.path), str(seconds), SECRET.decode()], stdout=subprocess.PIPE, text=True) for _ in range(2)]
        swaps = subprocess.run([*command, SWAPPER, str(store), str(seconds)], capture_output=True, text=True, check=True)
        for reader in readers:
            said, _ = reader.communicate(timeout=seconds + SECONDS)
            assert reader.returncode == 0, "shown, or it hangs"
            tried("files read while links came and went", int(said))
        tried("links that came or went", int(swaps.stdout))
        assert is_alive(m.pid) and read(m / "good/c/0") == b"sibling!"
        assert "a bug in zarrfs" not in m.errors()
    assert files(outside) == before, "changed outside of the store"
