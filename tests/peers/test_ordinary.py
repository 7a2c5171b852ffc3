"""Ordinary files in a mounted directory behave like files: programs that know nothing of Zarr copy, build and install into it."""

import contextlib
import errno
import json
import mmap
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import zarr
from mounts import BIN, Mount, detach, until_end, wait_until

USERS = (65534, 1234)


def run(*command, cwd=None, user=None, **environment):
    words = [str(word) for word in command]
    if user:
        words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *words]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C", **environment}, timeout=120)
    assert done.returncode == 0, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def store(tmp_path):
    """A hierarchy with a group and an array."""
    path = tmp_path / "s"
    root = zarr.create_group(path)
    root.create_array("a", shape=(8,), chunks=(4,), dtype="u1")[:] = range(8)
    root.create_group("g")
    return path


@pytest.fixture
def m(store, tmp_path):
    for above in (tmp_path, *tmp_path.parents):  # Other users get there.
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(0o755)
    with until_end(Mount(store, tmp_path / "m", "-o", "allow_other")) as mounted:
        mounted.allow("setxattr: ")
        yield mounted


def tree(path):
    """A directory with what a file system keeps: modes, times, owners, links of both kinds, a FIFO, a socket, attributes."""
    path.mkdir()
    (path / "plain").write_text("plain\n")
    (path / "script").write_text("#!/bin/sh\necho done\n")
    (path / "script").chmod(0o755)
    (path / "secret").write_text("secret")
    (path / "secret").chmod(0o400)
    (path / "empty").write_text("")
    (path / "big").write_bytes(bytes(range(256)) * 5000)
    os.link(path / "plain", path / "second")
    (path / "link").symlink_to("plain")
    (path / "absolute").symlink_to("/etc/hostname")
    (path / "dangling").symlink_to("nowhere")
    os.mkfifo(path / "fifo", 0o622)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path / "socket"))
    deep = path / "d1/d2/d3"
    deep.mkdir(parents=True)
    (deep / "name with spaces and ü").write_text("x")
    (path / "d1/up").symlink_to("..")
    (path / "sticky").mkdir()
    (path / "sticky").chmod(0o1777)
    (path / "group").mkdir()
    (path / "group").chmod(0o2750)
    os.setxattr(path / "plain", "user.note", b"kept")
    os.setxattr(path / "d1", "user.note", b"of a directory")
    if os.geteuid() == 0:
        os.chown(path / "secret", *USERS)
        os.chown(path / "link", 1234, 1234, follow_symlinks=False)
        (path / "setuid").write_text("x")
        (path / "setuid").chmod(0o4711)
    for at, names, more in os.walk(path, topdown=False):
        for name in more + names:
            os.utime(os.path.join(at, name), ns=(10**18, 10**18 + 12345), follow_symlinks=False)
    os.utime(path, ns=(10**18, 10**18 + 12345))
    return path


def described(path, *, owners=True, links=True):
    """What `lstat` and the bytes say of all files below `path`."""
    found, inodes = {}, {}
    for at, names, more in os.walk(path):
        for name in [*names, *more, "."]:
            file = os.path.join(at, name)
            seen = os.lstat(file)
            kind = stat.S_IFMT(seen.st_mode)
            says = {"mode": oct(seen.st_mode), "time": seen.st_mtime_ns}
            if owners:
                says["owner"] = (seen.st_uid, seen.st_gid)
            if kind == stat.S_IFLNK:
                says["text"] = os.readlink(file)
            elif kind == stat.S_IFREG:
                says["bytes"] = Path(file).read_bytes()
            if kind in (stat.S_IFREG, stat.S_IFDIR):
                shown = [name for name in os.listxattr(file) if not name.startswith("user.zarr.")]
                says["attributes"] = {name: os.getxattr(file, name) for name in shown}
            if links and kind != stat.S_IFDIR:
                says["links"] = seen.st_nlink
                says["first"] = inodes.setdefault(seen.st_ino, os.path.relpath(file, path))
            found[os.path.relpath(file, path)] = says
    return found


def through_tar(source, target):
    target.mkdir()
    packed = subprocess.run(["tar", "-C", source, "--xattrs", "-cf", "-", "."], capture_output=True)
    subprocess.run(["tar", "-C", target, "--xattrs", "-xpf", "-"], input=packed.stdout, check=True)


COPIES = {
    "cp -a": lambda source, target: run("cp", "-a", source, target),
    "rsync -aXH": lambda source, target: run("rsync", "-aXH", f"{source}/", f"{target}/"),
    "tar": through_tar,
    "cpio": lambda source, target: run("sh", "-c", f"mkdir '{target}'; cd '{source}' && find . -depth | cpio -pdm --quiet '{target}'"),
}


@pytest.mark.parametrize("place", ["g/copy", "a/copy", "copy"])
@pytest.mark.parametrize("program", COPIES)
def test_a_copy_of_a_tree_has_everything_that_the_tree_has(m, tmp_path, program, place):
    if not shutil.which(program.split()[0]):
        pytest.skip(f"{program.split()[0]} is not installed")
    m.allow("dangling: a link that leads to nothing")
    source = tree(tmp_path / "tree")
    if program in ("tar", "cpio"):
        (source / "socket").unlink()  # These leave sockets out.
    if program == "cpio":
        os.removexattr(source / "plain", "user.note")
        os.removexattr(source / "d1", "user.note")
    for file in ("d1", "."):
        os.utime(source / file, ns=(10**18, 10**18 + 12345))
    COPIES[program](source, m / place)
    skipped = {"tar": "time", "cpio": "time"}.get(program)  # Their times are whole seconds.

    def without(found):
        return {file: {name: value for name, value in says.items() if name != skipped} for file, says in found.items()}

    assert without(described(m / place)) == without(described(source))
    if program == "rsync -aXH":
        assert run("rsync", "-aXHi", f"{source}/", f"{m / place}/") == "", "a second run finds something to do"
    # It is in the store, too, as it is.
    assert described(m.store / place) == described(m / place)


def test_a_copy_by_an_ordinary_user_belongs_to_that_user(m, tmp_path):
    m.allow("dangling: a link that leads to nothing")
    source = tree(tmp_path / "tree")
    for name in ("secret", "setuid"):
        (source / name).unlink()
    (source / "group").chmod(0o755)
    home = m / "home"
    home.mkdir()
    os.chown(home, *USERS)
    run("cp", "-a", source, home / "copy", user=USERS[0])
    run("rsync", "-aX", f"{source}/", f"{home / 'second'}/", user=USERS[0])
    run("sh", "-c", f"mkdir '{home}/third'; tar -C '{source}' -cf - . | tar -C '{home}/third' -xf -", user=USERS[0])
    for copy in ("copy", "second", "third"):
        for at, names, more in os.walk(home / copy):
            for name in names + more:
                seen = os.lstat(os.path.join(at, name))
                assert (seen.st_uid, seen.st_gid) == (USERS[0], USERS[0]), f"{at}/{name}"
        assert (home / copy / "big").read_bytes() == (source / "big").read_bytes()


def test_git_clones_and_commits_in_a_mount(m, tmp_path):
    source = tmp_path / "repository"
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    run("git", "init", "-q", source)
    for n in range(50):
        (source / f"file{n}").write_text(f"{n}\n" * n)
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o755)
    (source / "link").symlink_to("run")
    run("git", "add", ".", cwd=source)
    run("git", "commit", "-qm", "all", cwd=source, **identity)
    clone = m / "g/clone"
    run("git", "clone", "-q", "--no-local", source, clone)
    assert run("git", "status", "--porcelain", cwd=clone) == ""
    (clone / "file1").write_text("changed\n")
    run("git", "commit", "-qam", "changed", cwd=clone, **identity)
    run("git", "gc", "-q", cwd=clone)
    run("git", "fsck", "--strict", cwd=clone)
    assert run("git", "log", "--format=%s", cwd=clone) == "changed\nall\n"
    assert os.access(clone / "run", os.X_OK) and os.readlink(clone / "link") == "run"


def test_pip_installs_a_library_and_python_imports_it(m):
    target = m / "g/library"
    run(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target", target, "six")
    said = run(sys.executable, "-c", "import six; print(six.__file__)", PYTHONPATH=str(target))
    assert said.strip() == str(target / "six.py")
    run(sys.executable, "-m", "venv", "--without-pip", m / "g/environment")
    assert run(m / "g/environment/bin/python", "-c", "import sys; print(sys.prefix)").strip() == str(m / "g/environment")


def test_make_builds_and_rebuilds_what_has_changed(m):
    place = m / "g/build"
    place.mkdir()
    (place / "main.c").write_text('#include "a.h"\n#include <stdio.h>\nint main(void) { puts(TEXT); return 0; }\n')
    (place / "a.h").write_text('#define TEXT "first"\n')
    (place / "Makefile").write_text("main: main.o\n\tcc -o $@ $^\nmain.o: main.c a.h\n\tcc -c -o $@ $<\ninstall: main\n\tinstall -D -m 755 main out/bin/main\n")
    run("make", "-s", "install", cwd=place)
    assert run(place / "out/bin/main") == "first\n"
    assert run("make", "-q", cwd=place) == ""
    (place / "a.h").write_text('#define TEXT "second"\n')
    run("make", "-s", "install", cwd=place)
    assert run(place / "out/bin/main") == "second\n"


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 3000])
def test_an_extended_attribute_of_any_length_is_read_and_listed(m, store, length):
    path, value = m / "g/file", b"1" * length
    path.write_bytes(b"x")
    os.setxattr(path, "user.long", value)
    said = run("getfattr", "--only-values", "-n", "user.long", path)
    assert said.encode() == value == os.getxattr(store / "g/file", "user.long")
    # The names alone are longer than the first buffer, too.
    names = [f"user.name_of_forty_bytes_so_that_few_are_long_{n}" for n in range(8)]
    for name in names:
        os.setxattr(path, name, b"1")
    assert set(os.listxattr(path)) == {"user.long", *names}


def test_a_copy_of_a_mount_with_all_attributes_can_be_mounted_and_copied_again(m, tmp_path):
    """The copy has files with the attributes that the mount shows of its nodes, beside those of its own mount."""
    copy = tmp_path / "copy"
    run("rsync", "-aX", f"{m.path}/", copy)
    assert "user.zarr.shape" in os.listxattr(copy / "a")
    os.setxattr(copy / "a", "user.zarr.shard_shape", b"[1]")
    os.setxattr(copy / "a", "user.kept", b"1")
    with until_end(Mount(copy, tmp_path / "second")) as second:
        names = os.listxattr(second / "a")
        assert len(names) == len(set(names)) and "user.kept" in names and "user.zarr.shard_shape" not in names
        run("rsync", "-aX", f"{second.path}/", tmp_path / "third")
        assert zarr.open_array(tmp_path / "third/a", mode="r")[:].tolist() == list(range(8))


def test_a_data_base_and_a_mapping_change_a_file_in_place(m):
    file = m / "g/data.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as base:
        base.execute("pragma journal_mode = wal")
        base.execute("create table t (n integer)")
        for n in range(300):
            base.execute("insert into t values (?)", [n])
            base.commit()
    with contextlib.closing(sqlite3.connect(m.store / "g/data.sqlite")) as base:
        assert base.execute("select count(*), sum(n) from t").fetchone() == (300, sum(range(300)))
    number = os.stat(m / "g/data.sqlite").st_ino
    with open(m / "g/mapped", "w+b") as opened:
        opened.truncate(1 << 20)
        with mmap.mmap(opened.fileno(), 0) as mapped:
            mapped[4096:4101] = b"bytes"
            mapped.flush()
    assert (m.store / "g/mapped").read_bytes()[4096:4101] == b"bytes"
    assert os.stat(m / "g/data.sqlite").st_ino == number


def test_a_file_is_in_the_store_when_its_close_returns(m, store, tmp_path):
    with open(m / "g/new", "w") as file:
        file.write("x" * 100_000)
    assert (store / "g/new").read_text() == "x" * 100_000
    with until_end(Mount(store, tmp_path / "other", "--metadata-ttl", "0s")) as other:
        with open(m / "g/next", "w") as file:
            file.write("y")
        assert (other / "g/next").read_text() == "y"
        (m / "g/.next.Ab12Cd").write_text("scratch")
        assert not (store / "g/.next.Ab12Cd").exists(), "a scratch file was stored at once"
        os.chmod(m / "g/.next.Ab12Cd", 0o640)
        os.rename(m / "g/.next.Ab12Cd", m / "g/next")
        assert (other / "g/next").read_text() == "scratch"
        assert stat.S_IMODE(os.stat(store / "g/next").st_mode) == 0o640


def test_users_of_one_mount_see_what_the_modes_allow(m):
    place = m / "g/shared"
    place.mkdir()
    place.chmod(0o1777)
    for user in USERS:
        run("sh", "-c", f"umask 077; echo {user} > '{place}/{user}'", user=user)
        assert os.stat(place / str(user)).st_uid == user
    for user, other in (USERS, USERS[::-1]):
        assert run("cat", place / str(user), user=user) == f"{user}\n"
        for command in (f"cat '{place}/{other}'", f"rm -f '{place}/{other}'", f"echo x > '{place}/{other}'", f"chmod 777 '{place}/{other}'"):
            done = subprocess.run(["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "sh", "-c", command], capture_output=True)
            assert done.returncode != 0, command
    assert {int(path.name) for path in place.iterdir()} == set(USERS)


@pytest.mark.parametrize("quiet", [False, True])
def test_chunk_and_metadata_files_keep_the_mode_of_the_mount(store, tmp_path, quiet):
    with until_end(Mount(store, tmp_path / "m", "-o", "umask=027" + (",quiet" if quiet else ""))) as m:
        for name in ("a/c/0", "a/zarr.json", "g/zarr.json"):
            assert stat.S_IMODE(os.stat(m / name).st_mode) == 0o640, name
            if quiet:
                os.chmod(m / name, 0o600)
                os.chown(m / name, 1234, 1234)
            else:
                m.refused(errno.EPERM, "the mode of a file cannot change", lambda name=name: os.chmod(m / name, 0o600))
                m.refused(errno.EPERM, "owners cannot change", lambda name=name: os.chown(m / name, 1234, 1234))
            assert stat.S_IMODE(os.stat(m / name).st_mode) == 0o640, name
        (m / "g/notes").write_text("x")
        os.chmod(m / "g/notes", 0o600)
        assert stat.S_IMODE(os.stat(store / "g/notes").st_mode) == 0o600


def test_an_ordinary_file_becomes_a_chunk_and_a_chunk_an_ordinary_file(m, store):
    (m / "g/bytes").write_bytes(bytes([9, 8, 7, 6]))
    os.link(m / "g/bytes", m / "g/more")
    m.refused(errno.EXDEV, "several names", lambda: os.rename(m / "g/bytes", m / "a/c/0"))
    run("mv", m / "g/bytes", m / "a/c/0")
    (m / "a/c/0").write_bytes(bytes([9, 8, 7, 6]))
    assert os.stat(m / "g/more").st_nlink == 1
    (m / "g/more").write_bytes(b"x")
    assert (m / "a/c/0").read_bytes() == bytes([9, 8, 7, 6])
    os.rename(m / "a/c/1", m / "g/chunk")
    assert (m / "g/chunk").read_bytes() == bytes([4, 5, 6, 7])
    m.sync()
    assert numpy.array_equal(zarr.open_array(store / "a", mode="r")[:], [9, 8, 7, 6, 0, 0, 0, 0])
    (m / "g/link").symlink_to("chunk")
    m.refused(errno.EPERM, "not a regular file", lambda: os.rename(m / "g/link", m / "a/c/1"))


def test_chunks_that_are_one_file_become_two(m, store):
    """`cp -a` of an array whose equal chunks are hard links: the chunks come before the metadata file."""
    document = (m / "a/zarr.json").read_text()
    (m / "b/c").mkdir(parents=True)
    (m / "b/c/0").write_bytes(bytes([1, 2, 3, 4]))
    os.link(m / "b/c/0", m / "b/c/1")
    (m / "b/zarr.json").write_text(document)
    (m / "b/c/1").write_bytes(bytes([5, 6, 7, 8]))
    m.sync()
    assert (m / "b/c/0").read_bytes() == bytes([1, 2, 3, 4])
    assert numpy.array_equal(zarr.open_array(store / "b", mode="r")[:], range(1, 9))


def test_a_directory_with_ordinary_files_does_not_become_a_group(store, tmp_path):
    with until_end(Mount(store, tmp_path / "m", "--writeback-delay", "0.2s")) as m:
        (m / "library/deep").mkdir(parents=True)
        (m / "library/deep/file").write_text("x")
        (m / "group").mkdir()
        (m / "above").mkdir()
        (m / "above/notes").write_text("x")
        document = {"zarr_format": 3, "node_type": "group", "attributes": {"of": "a child"}}
        (m / "above/child").mkdir()
        (m / "above/child/zarr.json").write_text(json.dumps(document))
    assert not list(store.glob("library/**/zarr.json"))
    assert (store / "group/zarr.json").exists() and (store / "above/zarr.json").exists()


# What another program does in the store with one of two names of a file that the mount has shown.
BY_OTHERS = {
    "replaced": lambda d: ((d / "new").write_text("new"), (d / "new").rename(d / "f")),
    "renamed": lambda d: (d / "f").rename(d / "moved"),
    "removed": lambda d: (d / "f").unlink(),
}


@pytest.mark.parametrize("first", ["f", "h"])
@pytest.mark.parametrize("how", BY_OTHERS)
def test_a_name_that_another_program_takes_from_a_file_leaves_its_other_names(m, store, how, first):
    (store / "g/f").write_text("old")
    os.link(store / "g/f", store / "g/h")
    seen = m / "g/h"
    for name in (first, "f", "h"):
        assert (m / "g" / name).read_text() == "old"
    BY_OTHERS[how](store / "g")
    # At once, while the kernel still knows the names.
    assert seen.read_text() == "old"
    with open(seen, "a") as file:
        file.write(" and more")
    assert wait_until(lambda: sorted(os.listdir(m / "g")) == sorted(os.listdir(store / "g")))
    expected = {"replaced": {"f": "new"}, "renamed": {"moved": "old and more"}, "removed": {}}[how] | {"h": "old and more"}
    for place in (m / "g", store / "g"):
        found = {path.name: path.read_text() for path in place.iterdir() if path.name in ("f", "h", "moved")}
        assert found == expected, place
    assert seen.stat().st_nlink == (store / "g/h").stat().st_nlink
    shutil.rmtree(m / "g")
    assert not (store / "g").exists()


def test_an_open_file_that_another_program_replaces_stays_what_it_was(m, store):
    (store / "g/f").write_text("old")
    with open(m / "g/f", "r+") as file:
        assert file.read() == "old"
        (store / "g/new").write_text("new")
        (store / "g/new").rename(store / "g/f")
        assert wait_until(lambda: (m / "g/f").read_text() == "new")
        file.write(" and more")
        file.flush()
        seen = os.fstat(file.fileno())
        assert (seen.st_size, seen.st_nlink) == (12, 0)
        file.seek(0)
        assert file.read() == "old and more"
    assert (store / "g/f").read_text() == "new"


@pytest.mark.parametrize("place", ["g/d", "g", "a/d", "a/c"])
def test_a_directory_with_names_that_cannot_be_shown_is_not_removed(m, store, place):
    hidden = store / place / os.fsdecode(b"below/caf\xe9") if place == "g" else store / place / os.fsdecode(b"caf\xe9")
    hidden.parent.mkdir(exist_ok=True, parents=True)
    hidden.write_text("precious")
    where = place if place != "a/c" else "a"
    m.expect("it has names that are not UTF-8")
    done = subprocess.run(["rm", "-r", m / where], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    assert done.returncode == 1 and "Directory not empty" in done.stderr, done
    assert hidden.read_text() == "precious"
    assert f"{where}" in m.errors()
    hidden.unlink()
    assert wait_until(lambda: not subprocess.run(["rm", "-r", m / where], capture_output=True).returncode)
    assert not (store / where).exists()


@pytest.mark.parametrize("hidden", ["c/1/notes.txt", "c/7/below/notes.txt"])
def test_an_array_with_files_in_the_place_of_chunks_is_not_removed(m, store, hidden):
    (store / "a/c/1").unlink()
    (store / "a" / hidden).parent.mkdir(parents=True)
    (store / "a/c/9").write_text("a chunk outside of the grid")
    (store / "a" / hidden).write_text("precious")
    m.expect("it has a file in a directory with the name of a chunk")
    assert "Directory not empty" in subprocess.run(["rm", "-r", m / "a"], capture_output=True, text=True).stderr
    assert (store / "a" / hidden).read_text() == "precious"
    (store / "a" / hidden).unlink()
    assert wait_until(lambda: not subprocess.run(["rm", "-r", m / "a"], capture_output=True).returncode)
    assert not (store / "a").exists()


@pytest.mark.parametrize("how", ["removed", "renamed"])
@pytest.mark.parametrize("name", ["d", "g", "a"])
def test_nothing_is_made_or_listed_in_a_directory_that_another_program_took_away(m, store, tmp_path, name, how):
    (store / "d").mkdir()
    (store / "d/f").write_text("text")
    run("rsync", "-a", f"{m / name}/", tmp_path / "backup")
    saved = sorted(os.listdir(tmp_path / "backup"))
    with contextlib.chdir(m / name):
        if how == "renamed":
            (store / name).rename(store / "other")
        else:
            shutil.rmtree(store / name)
        # At once: what the mount knows may be a second old.
        done = subprocess.run(["rsync", "-a", "--delete", f"{m / name}/", tmp_path / "backup"], capture_output=True)
        assert done.returncode and sorted(os.listdir(tmp_path / "backup")) == saved
        for place in (Path(), m / name):
            for make in (lambda at: (at / "new").touch(), lambda at: (at / "sub").mkdir(), lambda at: os.symlink("x", at / "link")):
                with pytest.raises(OSError) as refused:
                    make(place)
                assert refused.value.errno in (errno.ENOENT, errno.ESTALE)
    assert not (store / name).exists()


@pytest.mark.parametrize("name", ["0", "c", "x"])
def test_an_array_whose_files_are_all_removed_is_written_again_in_any_order(m, store, tmp_path, name):
    zarr.create_array(store / "g" / name, shape=(8,), chunks=(4,), dtype="u1")[:] = 7
    array = m / "g" / name
    run("cp", "-r", array, tmp_path / "saved")
    run("find", array, "-type", "f", "-delete")
    (array / "c").mkdir(exist_ok=True)
    for file in ("c/0", "c/1", "zarr.json"):
        shutil.copy(tmp_path / "saved" / file, array / file)
    assert (zarr.open_array(array, mode="r")[:] == 7).all()


@pytest.mark.parametrize("sharded", [False, True])
def test_a_chunk_of_an_array_that_another_program_renamed_is_refused_or_can_be_saved(store, tmp_path, sharded):
    options = {"shards": (8,)} if sharded else {}
    zarr.create_array(store / "b", shape=(8,), chunks=(4,), dtype="u1", **options)[:] = 1
    m = Mount(store, tmp_path / "m")
    try:
        assert (m / "b/c/0").read_bytes() == bytes([1] * 4)
        (store / "b").rename(store / "moved")
        try:
            file = os.open(m / "b/c/0", os.O_WRONLY | os.O_TRUNC)
        except FileNotFoundError:
            return
        assert os.write(file, bytes([2] * 4)) == 4
        # A chunk of a shard may wait after its close.
        with pytest.raises(OSError, match="Stale file handle"):
            os.fsync(file) if sharded else os.close(file)
        with contextlib.suppress(OSError):
            os.close(file)
        refused = subprocess.run([BIN, "umount", m.path], capture_output=True, text=True)
        assert refused.returncode and "b/c/0; save these changes elsewhere with --rescue" in refused.stderr
        subprocess.run([BIN, "umount", m.path, "--rescue", tmp_path / "saved"], capture_output=True)
        assert (tmp_path / "saved/b/c/0").read_bytes() == bytes([2] * 4)
        assert not (store / "b").exists() and (zarr.open_array(store / "moved", mode="r")[:] == 1).all()
    finally:
        detach(m.path)


@pytest.mark.parametrize("where", ["g", "a", "g/d", "new"])
def test_a_directory_with_the_name_of_a_metadata_file_is_neither_shown_nor_removed(tmp_path, where):
    store = tmp_path / "s"
    root = zarr.create_group(store, zarr_format=2)
    root.create_array("a", shape=(8,), chunks=(4,), dtype="u1")[:] = 7
    root.create_group("g")
    (store / "g/d").mkdir()
    with until_end(Mount(store, tmp_path / "m")) as m:
        m.expect("it has a directory called zarr.json")
        if where == "new":
            (m / "new").mkdir()
        (store / where / "zarr.json").mkdir(parents=True, exist_ok=True)
        (store / where / "zarr.json/precious").write_text("precious")
        assert wait_until(lambda: os.listdir(m / where).count("zarr.json") == int((m / where / "zarr.json").is_file()))
        assert "Directory not empty" in subprocess.run(["rm", "-r", m / where], capture_output=True, text=True).stderr
        assert (store / where / "zarr.json/precious").read_text() == "precious"


def test_a_sparse_file_is_copied_without_reading_its_holes(m, store, tmp_path):
    end = 1 << 26
    with open(m / "g/sparse", "wb", buffering=0) as file:
        file.write(b"first")
        file.seek(end)
        file.write(b"last")
        # Holes are known when no program writes through a mapping.
        assert os.lseek(file.fileno(), end // 2, os.SEEK_DATA) in (end // 2, end)
    run("cp", m / "g/sparse", tmp_path / "copy")
    run("cp", tmp_path / "copy", m / "g/again")
    for path in (tmp_path / "copy", m / "g/again", store / "g/again"):
        assert (path.stat().st_size, path.stat().st_blocks < 100) == (end + 4, True), path
        with open(path, "rb") as file:
            assert file.read(10) == b"first" + bytes(5)
            assert os.lseek(file.fileno(), end // 2, os.SEEK_DATA) == end
            assert file.seek(end) and file.read() == b"last"
            assert os.lseek(file.fileno(), end, os.SEEK_HOLE) == end + 4


def test_a_hole_that_is_written_through_a_mapping_is_copied(m, tmp_path):
    with open(m / "g/mapped", "w+b") as file:
        file.truncate(1 << 20)
        with mmap.mmap(file.fileno(), 0) as mapped:
            mapped[5000:5005] = b"bytes"
            run("cp", m / "g/mapped", tmp_path / "copy")
            assert (tmp_path / "copy").read_bytes()[5000:5005] == b"bytes"


@pytest.mark.parametrize("name", ["zarr.json", "a/zarr.json", "a/c/0"])
def test_other_files_have_no_holes(m, name):
    with open(m / name, "rb") as file:
        length = os.fstat(file.fileno()).st_size
        assert os.lseek(file.fileno(), 1, os.SEEK_DATA) == 1
        assert os.lseek(file.fileno(), 1, os.SEEK_HOLE) == length
        for part in (os.SEEK_DATA, os.SEEK_HOLE):
            with pytest.raises(OSError, match="No such device or address"):
                os.lseek(file.fileno(), length, part)
    assert m.errors() == ""


def test_times_before_1970_keep_their_parts_of_a_second(m, store):
    (m / "g/f").write_text("old")
    for times in [(-750_000_000, -1), (-10**18 - 250_000_000, -2 * 10**9)]:
        os.utime(m / "g/f", ns=times)
        for path in (m / "g/f", store / "g/f"):
            seen = path.stat()
            assert (seen.st_atime_ns, seen.st_mtime_ns) == times, path


@pytest.mark.parametrize("how", ["fsync", "rename", "rename to a scratch name", "link", "wait"])
def test_a_scratch_file_that_is_stored_while_a_program_writes_it_has_all_that_it_writes(m, store, how):
    d, kept = m / "g", store / "g"
    with open(d / "a.tmp", "w+b", buffering=0) as file:
        file.write(b"first ")
        name = {"rename": "a", "rename to a scratch name": "b.tmp", "link": "a"}.get(how, "a.tmp")
        match how:
            case "fsync":
                os.fsync(file.fileno())
            case "link":
                os.link(d / "a.tmp", d / name)
            case "wait":
                subprocess.run(["sync", m.path], check=True)
            case _:
                os.rename(d / "a.tmp", d / name)
        file.write(b"second ")
        assert (d / name).read_bytes() == b"first second "
        with open(d / name, "r+b", buffering=0) as other:
            other.seek(0, os.SEEK_END)
            other.write(b"third")
        assert os.pread(file.fileno(), 100, 0) == b"first second third"
        file.truncate(1000)
        with mmap.mmap(file.fileno(), 1000) as mapped:
            mapped[999:] = b"!"
        os.fsync(file.fileno())
        if how != "wait":
            assert (kept / name).read_bytes() == b"first second third".ljust(999, b"\0") + b"!"
    for at in (d, kept):
        assert wait_until(lambda at=at: (at / name).exists() and (at / name).stat().st_size == 1000), at
        assert (at / name).read_bytes() == b"first second third".ljust(999, b"\0") + b"!"


def test_a_data_base_with_a_scratch_name_keeps_each_commit(m, store):
    with contextlib.closing(sqlite3.connect(m / "g/db.tmp")) as base:
        base.execute("create table t (a)")
        for number in range(5):
            with base:
                base.execute("insert into t values (?)", (number,))
            with contextlib.closing(sqlite3.connect(m / "g/db.tmp")) as other:
                assert other.execute("select count(*) from t").fetchone() == (number + 1,)
    with contextlib.closing(sqlite3.connect(store / "g/db.tmp")) as base:
        assert base.execute("select count(*) from t").fetchone() == (5,)


@pytest.mark.parametrize("name", ["made", "c", "0"])
@pytest.mark.parametrize("how", ["moved", "removed"])
def test_a_directory_that_another_program_takes_away_is_gone(m, store, how, name):
    made = m / "g" / name
    made.mkdir()
    (made / "below").mkdir()
    (made / "below/f").write_text("text")
    run("sync", m.path)
    if how == "moved":
        (store / "g" / name).rename(store / "g/other")
    else:
        shutil.rmtree(store / "g" / name)
    left = ["other"] if how == "moved" else []
    assert wait_until(lambda: [n for n in os.listdir(m / "g") if n != "zarr.json"] == left)
    assert wait_until(lambda: not made.exists())
    for failing in (made.rmdir, (made / "f").touch, (made / "below/f").read_text):
        with pytest.raises(FileNotFoundError):
            failing()
    if how == "moved":
        assert (m / "g/other/below/f").read_text() == "text"
    made.mkdir()
    (made / "f").write_text("new")
    assert (store / "g" / name / "f").read_text() == "new"


def test_a_directory_in_an_array_that_another_program_removes_is_gone(m, store):
    (m / "a/d/0").mkdir(parents=True)
    (m / "a/d/0/f").write_text("text")
    (m / "a/d/0/f").unlink()
    assert os.listdir(m / "a/d") == ["0"] and (store / "a/d/0").is_dir()
    shutil.rmtree(store / "a/d")
    assert wait_until(lambda: "d" not in os.listdir(m / "a") and not (m / "a/d").exists())


def test_a_program_in_a_directory_that_is_gone_makes_no_files(m, store):
    (m / "g/d").mkdir()
    (m / "g/d/f").touch()
    directory = os.open(m / "g/d", os.O_PATH)
    try:
        (store / "g/d").rename(store / "g/other")
        assert wait_until(lambda: not (m / "g/d").exists())
        for make in (lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=directory), lambda: os.mkdir("new", dir_fd=directory)):
            with pytest.raises(OSError) as failed:
                make()
            assert failed.value.errno in (errno.ENOENT, errno.ESTALE)
    finally:
        os.close(directory)
    assert not (store / "g/d").exists()


def test_a_directory_of_ordinary_files_gets_a_name_that_begins_with_two_underscores(m, store):
    """zarr-python makes and reads nodes with such names, so they are names like any other."""
    for name in ("tests", "__made"):
        (m / "g" / name / "below").mkdir(parents=True)
        (m / "g" / name / "below/f").write_text(name)
    (m / "g/tests").rename(m / "g/__tests__")
    (m / "g/__made").rename(m / "g/__other")
    run("sync", m.path)
    for place in (m / "g", store / "g"):
        assert (place / "__tests__/below/f").read_text() == "tests"
        assert (place / "__other/below/f").read_text() == "__made"
    (m / "g/__tests__").rename(m / "g/tests")
    assert (m / "g/tests/below/f").read_text() == "tests"
    (m / "a").rename(m / "__a")
    assert (m / "__a").is_dir() and not (m / "a").exists()


def test_to_empty_an_empty_scratch_file_changes_its_time(m):
    for how in (lambda: open(m / "g/f.tmp", "w").close(), lambda: os.truncate(m / "g/f.tmp", 0)):
        open(m / "g/f.tmp", "w").close()
        os.utime(m / "g/f.tmp", (10**9, 10**9))
        how()
        assert os.stat(m / "g/f.tmp").st_mtime > 10**9


@pytest.mark.parametrize("change", ["echo >> {}", "truncate -s 10 {}", "echo > {}", "chgrp 4321 {}"])
def test_a_file_with_a_scratch_name_loses_its_privileges_as_any_file_does(m, store, change):
    (m / "g/d").mkdir()
    (m / "g/d").chmod(0o777)
    (m / "g/d/plain").write_text("plain")
    name = m / "g/d/w.tmp"
    run("sh", "-c", f"cp /bin/true {name}; chmod 4755 {name}", user=1234)
    assert stat.S_IMODE(os.stat(name).st_mode) == 0o4755
    run("sh", "-c", change.format(name), user=0 if "chgrp" in change else 1234)
    for path in (name, store / "g/d/w.tmp"):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o755


def test_a_file_with_a_scratch_name_has_the_mode_that_a_default_acl_gives(m, store):
    (store / "acl").mkdir()
    (store / "acl/plain").write_text("plain")
    run("setfacl", "-d", "-m", "u:1234:r,g::-,o::-", store / "acl")
    assert wait_until((m / "acl").is_dir)
    run("sh", "-c", "umask 022; echo secret > x.tmp; mv x.tmp x; echo secret > .y.Ab12Cd; mv .y.Ab12Cd y; echo secret > z", cwd=m / "acl")
    for name in "xyz":
        assert stat.S_IMODE(os.stat(store / "acl" / name).st_mode) & 0o007 == 0, f"others may read {name}"
        assert "user:1234:r--" in run("getfacl", "-cp", store / "acl" / name)


@pytest.mark.parametrize("how", ["rm s.tmp", "mv t s.tmp"])
def test_a_file_with_a_scratch_name_keeps_its_owner_while_it_is_open_without_its_name(m, how):
    (m / "g/d").mkdir()
    (m / "g/d").chmod(0o777)
    (m / "g/d/plain").write_text("plain")
    script = f"echo new > t; echo old > s.tmp; exec 7<> s.tmp; {how}; stat -Lc '%a %u' /dev/fd/7; cat /dev/fd/7; chmod 604 /dev/fd/7; stat -Lc %a /dev/fd/7"
    assert run("bash", "-c", f"umask 022; {script}", cwd=m / "g/d", user=1234) == "644 1234\nold\n604\n"


def test_a_directory_of_ordinary_files_is_moved_into_an_array(m, store):
    (m / "q/dir").mkdir(parents=True)
    (m / "q/plain").write_text("plain")
    (m / "q/dir/x").write_text("moved")
    m.allow("copy its files")
    run("mv", m / "q/dir", m / "a")
    assert (m / "a/dir/x").read_text() == "moved"
    assert not (m / "q/dir").exists()
    m.refused(errno.EPERM, "an array cannot contain nodes", lambda: os.rename(m / "g", m / "a/g"))


@pytest.mark.parametrize("command", ["cp -a", "rsync -a"])
def test_a_copied_directory_keeps_its_time_whatever_its_files_are_called(m, store, tmp_path, command):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a.tmp").write_text("scratch")
    os.utime(tmp_path / "d", (978307200, 978307200))
    run(*command.split(), tmp_path / "d", m.path)
    m.sync()
    assert wait_until((store / "d/a.tmp").exists)
    for at in (m.path, store):
        assert os.stat(at / "d").st_mtime == 978307200


@pytest.mark.parametrize("ttl", ["0s", "1s"])
@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("gone", ["removed", "renamed", "replaced"])
@pytest.mark.parametrize("name", ["first", "second"])
def test_a_name_of_a_linked_file_that_another_program_takes_leads_to_no_other_name(mount, tmp_path, gone, is_held, ttl, name):
    other = {"first": "second", "second": "first"}[name]
    with mount(tmp_path / "store", "--create", "--metadata-ttl", ttl, copy=False) as m:
        (m / "first").write_text("one")
        os.link(m / "first", m / "second")
        held = os.open(m / name, os.O_RDONLY) if is_held else None
        if gone == "removed":
            os.unlink(m.store / name)
        elif gone == "renamed":
            os.rename(m.store / name, m.store / "third")
        else:
            (m.store / "new").write_text("of another program")
            os.rename(m.store / "new", m.store / name)
        if is_held:
            with open(m / other, "a") as file:
                file.write("+two")
        fd = os.open(m / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, b"mine")
        os.fsync(fd)
        os.close(fd)
        text = "one+two" if is_held else "one"
        assert ((m / other).read_text(), (m / name).read_text()) == (text, "mine")
        (m / other).write_text("last")
        if is_held:
            assert os.pread(held, 9, 0) == b"last", "it is that file still"
            os.close(held)
    assert ((m.store / other).read_text(), (m.store / name).read_text()) == ("last", "mine")
