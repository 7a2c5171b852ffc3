"""Several users in one mount: each gets what the modes of the store allow, and no more, whatever zarrfs reads as root."""

import contextlib
import errno
import itertools
import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest
import zarr

import mounts
from mounts import Mount, until_end
from torture import count
from users import BECOME, GROUP, MEMBER, OTHER, OWNER, USERS, ask, errors, give, let_in, program

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

SECRET = b"secret!!"
HEX = SECRET.hex()


@pytest.fixture
def shared(tmp_path):
    """`shared(store)` is a mount of a store by root for all users."""
    let_in(tmp_path)

    def made(store, *options):
        m = Mount(store, tmp_path / "m", "-o", "allow_other", *options)
        m.allow("")
        return until_end(m)

    return made


def group_at(path):
    path.mkdir(parents=True, exist_ok=True)
    (path / "zarr.json").write_text('{"zarr_format":3,"node_type":"group","attributes":{}}')


FILES = [0o000, 0o400, 0o600, 0o640, 0o644, 0o060, 0o004, 0o066, 0o666, 0o777]
ON_FILES = ["read", "write", "truncate", "stat", "names", "set", "chmod", "chown", "times", "execute", "link", "rename", "remove"]
DIRECTORIES = [0o000, 0o700, 0o500, 0o750, 0o711, 0o755, 0o770, 0o777, 0o1777, 0o070, 0o007]
IN_DIRECTORIES = [
    ("list", ""), ("enter", ""), ("stat", "there"), ("read", "there"), ("write", "there"), ("create", "new"), ("mkdir", "dir"),
    ("symlink", "link"), ("fifo", "fifo"), ("chmod", ""), ("set", ""), ("times", ""), ("rename", "there"), ("remove", "second"), ("rmdir", "empty"),
]  # fmt: skip


def tree_of_modes(root):
    """A file for each mode, user and call, and a directory for each mode and user. Returns the calls of each user."""
    calls = {user: [] for user in USERS}
    for n, user in enumerate(USERS):
        for mode, call in itertools.product(FILES, ON_FILES):
            file = root / f"files{n}" / f"{mode:o}-{call}"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"some bytes")
            give(file, mode)
            calls[user].append((call, file))
        # The directory of these belongs to the owner, too, and the group may write to it.
        give(root / f"files{n}", 0o1775 if n % 2 else 0o775)
        for mode in DIRECTORIES:
            directory = root / f"directories{n}" / f"{mode:o}"
            (directory / "empty").mkdir(parents=True)
            for name in ("there", "second"):
                (directory / name).write_bytes(b"some bytes")
                give(directory / name, 0o664, MEMBER)
            give(directory, mode)
            calls[user] += [(call, directory / name if name else directory) for call, name in IN_DIRECTORIES]
    return calls


@pytest.mark.parametrize("place", ["g", "a"])
def test_each_user_may_do_with_ordinary_files_what_ext4_allows(shared, tmp_path, tried, place):
    store, plain = tmp_path / "s", tmp_path / "plain"
    root = zarr.create_group(store)
    root.create_group("g")
    root.create_array("a", shape=(8,), chunks=(4,), dtype="u1")
    plain.mkdir()
    (store / place / "tree").mkdir(exist_ok=True)
    tree_of_modes(store / place / "tree")
    expected = tree_of_modes(plain)
    with shared(store) as m:
        for user, calls in expected.items():
            there = [(call, m / place / "tree" / path.relative_to(plain)) for call, path in calls]
            wanted, got = errors(user, calls), errors(user, there)
            wrong = [f"{call} {path.name}: {a}, not {b}" for (call, path), a, b in zip(there, got, wanted) if a != b]
            assert not wrong, f"{user}: {wrong}"
            tried("calls of several users compared with ext4", len(calls))


def closed(store, name):
    """An array that holds the secret, as `zarrfs create` makes it in v3."""
    path = store / name
    array = zarr.create_array(path, shape=(16,), chunks=(8,), dtype="u1", compressors=None, attributes={"note": SECRET.decode()})
    array[:8] = list(SECRET)
    return path


def by_directory(path, mode=0o700):
    give(path, mode)


def by_chunk_directory(path, mode=0o700):
    give(path / "c", mode)


def by_metadata(path, mode=0o600):
    give(path / "zarr.json", mode)


def by_every_file(path, mode=0o600):
    for file in (path / "zarr.json", path / "c/0"):
        give(file, mode)


WAYS = {
    "directory 0700": by_directory,
    "directory 0750": lambda path: by_directory(path, 0o750),
    "directory 0711": lambda path: by_directory(path, 0o711),
    "chunk directory 0700": by_chunk_directory,
    "metadata file 0600": by_metadata,
    "metadata file 0640": lambda path: by_metadata(path, 0o640),
    "all files 0600": by_every_file,
    "all files 0640": lambda path: by_every_file(path, 0o640),
    "all files 0604": lambda path: by_every_file(path, 0o604),
}
VIEWS = ["npy", "raw", "nc", "nc4", "h5", "safetensors", "hdr", "txt"]


def views_of(path, name):
    return [path / f"{name}.{view}" for view in VIEWS]


@pytest.mark.parametrize("way", WAYS)
def test_no_user_reads_in_a_mount_what_the_store_keeps_from_that_user(shared, tmp_path, tried, way):
    """By the chunk file and the metadata file, by a view of the array or of the groups above, and by `.zarrfs`."""
    store = tmp_path / "s"
    group_at(store)
    group_at(store / "g")
    path = closed(store / "g", "x")
    WAYS[way](path)
    with shared(store) as m:
        own = [m / "g/x/c/0", m / "g/x/zarr.json", m / ".zarrfs/stored/g/x/zarr.json"]
        made = [*views_of(m / "g", "x"), *views_of(m.path, "g"), *views_of(m.path, "__root__")]
        reports = [m / ".zarrfs/views/g/x", m / ".zarrfs/views/g/__group__", m / ".zarrfs/views/__root__"]
        shows = {file: ask("root", [("read", file)])[0][0] == "ok" for file in own + made + reports}
        assert sum(shows.values()) >= 15, shows
        for user in USERS:
            # The user reads the store itself, as the kernel allows it.
            chunk, document = (said == "ok" for said in errors(user, [("read", path / "c/0"), ("read", path / "zarr.json")]))
            listed = errors(user, [("list", path)])[0] == "ok"
            said = dict(zip(own + made + reports, ask(user, [("read", file) for file in own + made + reports])))
            assert (said[own[0]][0] == "ok") == chunk, f"{user}: {own[0]}"
            for file in own[1:]:
                assert (said[file][0] == "ok") == document, f"{user}: {file}"
            for file in made + reports:
                if not (chunk and document and listed):
                    assert not shows[file] or said[file][0] == "EACCES", f"{user} reads {file}: {said[file][1][:200]}"
                elif shows[file]:
                    assert said[file][0] == "ok", f"{user} may read all of the array, but not {file}"
            if not document:
                for said_of, place in zip(ask(user, [("names", m / "g/x"), ("attributes", m / "g/x"), ("names", m / "g/x/zarr.json")]), ("x", "x", "document")):
                    assert "note" not in str(said_of) and HEX not in str(said_of), f"{user}: {place}: {said_of}"
            tried("files that users try to read", len(said))


def test_a_file_that_another_user_has_open_stays_closed_to_others(shared, tmp_path):
    """Root has the chunk and the views open, for reading and for writing, while others try."""
    store = tmp_path / "s"
    group_at(store)
    path = closed(store, "x")
    by_every_file(path)
    with shared(store, "--metadata-ttl=0s") as m, contextlib.ExitStack() as opened:
        names = ["x/c/0", "x/zarr.json", "x.npy", "x.raw", "__root__.h5", "__root__.nc"]
        for mode in ("rb", "r+b"):
            for name in names:
                opened.enter_context(open(m / name, mode)).read(10)
            for user in ("member of the group", "other"):
                assert errors(user, [("read", m / name) for name in names]) == ["EACCES"] * len(names), f"{user}, {mode}"
        # The node changes, so the views get new names.
        os.setxattr(m / "x", "user.attrs.new", b"1")
        (m / "x/c/1").write_bytes(SECRET)
        for user in ("member of the group", "other"):
            assert "ok" not in errors(user, [("read", m / name) for name in names]), user


def test_consolidated_metadata_do_not_show_a_node_that_the_store_keeps_from_a_user(shared, tmp_path):
    store = tmp_path / "s"
    root = zarr.create_group(store)
    root.create_array("open", shape=(4,), dtype="u1")
    path = closed(store, "x")
    zarr.consolidate_metadata(store)
    # The copies in the store show less than the mount makes.
    zarr.open_group(store, mode="a", use_consolidated=False)["x"].attrs["later"] = "later secret"
    by_directory(path)
    for form in ("zarr", "zarr2"):
        with shared(store, "--as", form) as m:
            files = [m / "zarr.json"] if form == "zarr" else [m / ".zmetadata"]
            for user in USERS:
                may = user in ("root", "owner")
                for said, shown in ask(user, [("read", file) for file in files]):
                    assert (said == "ok") == may, f"{user}: {said}"
                    assert (b"later secret" in bytes.fromhex(shown or "")) == may, f"{user} reads the copy"
            assert errors("other", [("read", m / "open" / ("zarr.json" if form == "zarr" else ".zarray"))]) == ["ok"]


@pytest.mark.parametrize("dialect", ["v2", "v3", "d2020-10", "n5"])
def test_no_dialect_shows_a_chunk_that_the_store_keeps_from_a_user(shared, tmp_path, dialect):
    store = tmp_path / "s"
    words = ["--shape", "16", "--dtype", "uint8", "--chunks", "8", "--codecs", "none"]
    subprocess.run([mounts.BIN, "create", store, "--format", dialect], check=True, capture_output=True)
    for name in ("x", "y"):
        subprocess.run([mounts.BIN, "create", f"{store}/{name}", "--format", dialect, *words], check=True, capture_output=True)
        with until_end(Mount(store, tmp_path / "first")) as m:
            (m / f"{name}/c").mkdir(exist_ok=True)
            (m / f"{name}/c/0").write_bytes(SECRET)
    holders = [Path(at, file) for at, _, names in os.walk(store) for file in names if SECRET in Path(at, file).read_bytes()]
    assert len(holders) == 2, holders
    (of_x,) = (file for file in holders if "x" in file.relative_to(store).parts)
    give(of_x, 0o600)
    with shared(store) as m:
        for user in USERS:
            may = user in ("root", "owner")
            assert errors(user, [("read", m / "x/c/0"), ("read", m / "y/c/0")]) == ["ok" if may else "EACCES", "ok"], user


def test_pending_and_unstored_bytes_are_kept_from_other_users(shared, tmp_path):
    """An inner chunk that waits for its shard, a chunk that is being written, and a scratch file."""
    store = tmp_path / "s"
    group_at(store)
    words = ["--shape", "32", "--dtype", "uint8", "--chunks", "8", "--shards", "32", "--codecs", "none"]
    subprocess.run([mounts.BIN, "create", f"{store}/x", *words], check=True, capture_output=True)
    with until_end(Mount(store, tmp_path / "first")) as m:
        (m / "x/c").mkdir(exist_ok=True)
        (m / "x/c/0").write_bytes(b"first!!!")
    (shard,) = (Path(at, file) for at, _, names in os.walk(store / "x/c") for file in names)
    give(shard, 0o600)
    (store / "home").mkdir()
    give(store / "home", 0o755)
    with shared(store, "--writeback-delay", "60s") as m:
        (m / "x/c/1").write_bytes(SECRET)
        assert errors("other", [("read", m / "x/c/0")]) == ["EACCES"]
        assert errors("owner", [("read", m / "x/c/0")]) == ["ok"]
        with open(m / "x/c/0", "r+b") as file:
            file.write(SECRET)
            file.flush()
            assert errors("other", [("read", m / "x/c/0")]) == ["EACCES"]
        (m / "home/.secret.Ab12Cd").write_bytes(SECRET)
        give(m / "home/.secret.Ab12Cd", 0o600)
        reports = [m / ".zarrfs" / name for name in ("errors", "refused", "unstored", "unstored-bytes")]
        assert SECRET in reports[3].read_bytes()
        for user in ("owner", "member of the group", "other"):
            assert errors(user, [("read", file) for file in reports]) == ["EACCES"] * 4, user
        assert errors("other", [("read", m / ".zarrfs/stats"), ("read", m / "home/.secret.Ab12Cd")]) == ["ok", "EACCES"]


def test_a_new_chunk_of_a_private_array_cannot_be_read_by_others(shared, tmp_path):
    store = tmp_path / "s"
    group_at(store)
    path = closed(store, "x")
    by_directory(path)
    give(path / "c", 0o755)
    with shared(store) as m:
        assert errors("owner", [("create", m / "x/notes"), ("read", m / "x/c/0")]) == ["ok", "ok"]
        assert errors("other", [("read", m / "x/c/0"), ("stat", m / "x/c/0"), ("list", m / "x"), ("list", m / ".zarrfs/stored/x")]) == ["EACCES"] * 4
        assert os.stat(store / "x/notes").st_uid == OWNER


def test_a_link_of_one_user_does_not_lead_to_a_file_of_another(shared, tmp_path):
    """zarrfs would follow it as root. Links of a user to that user's files are followed, and those of root."""
    store = tmp_path / "s"
    group_at(store)
    for name in ("theirs", "own", "roots", "document", "deep"):
        closed(store, name)
        (store / name / "c/0").unlink()
    (store / "private").mkdir()
    (store / "private/key").write_bytes(SECRET)
    give(store / "private/key", 0o600, OWNER, OWNER)
    give(store / "private", 0o700, OWNER, OWNER)
    secret = store / "private/zarr.json"
    secret.write_text((store / "document/zarr.json").read_text())
    give(secret, 0o600, OWNER, OWNER)
    (store / "objects").mkdir()
    (store / "objects/1").write_bytes(b"it's me!")
    give(store / "objects/1", 0o644, OTHER, OTHER)
    (store / "objects/2").write_bytes(b"of root.")

    def link(name, target, uid):
        (store / name).unlink(missing_ok=True)
        os.symlink(target, store / name)
        os.lchown(store / name, uid, uid)

    link("theirs/c/0", "../../private/key", OTHER)
    link("own/c/0", "../../objects/1", OTHER)
    link("roots/c/0", "../../objects/2", 0)
    link("document/zarr.json", "../private/zarr.json", OTHER)
    os.rmdir(store / "deep/c")
    link("deep/c", "../private", OTHER)
    os.link(store / "private/key", store / "private/0")
    for name in ("theirs", "own", "document", "deep"):
        give(store / name, 0o755, OTHER, OTHER)
    with shared(store, "--metadata-ttl=0s") as m:
        for user in ("other", "root"):
            asked = [m / "theirs/c/0", m / "theirs.npy", m / "theirs.raw", m / "deep/c/0", m / "deep.npy", m / "document/zarr.json", m / ".zarrfs/stored/document/zarr.json"]
            for file, (said, shown) in zip(asked, ask(user, [("read", file) for file in asked])):
                assert said != "ok" or HEX not in shown, f"{user} reads {file}"
            assert [shown for _, shown in ask(user, [("read", m / "own/c/0"), ("read", m / "roots/c/0")])] == [b"it's me!".hex(), b"of root.".hex()]
            # The kernel follows links that are shown as such, with the rights of the user.
        assert "not followed in a mount for several users" in m.errors()
        # Nor is anything made or changed there.
        assert errors("other", [("create", m / "deep/c/1"), ("write", m / "deep/c/0"), ("remove", m / "deep/c/0")]) != ["ok"] * 3
    assert sorted(os.listdir(store / "private")) == ["0", "key", "zarr.json"]
    assert (store / "private/key").read_bytes() == SECRET


def test_directories_that_become_links_lead_nobody_to_directories_of_others(shared, tmp_path, tried):
    """The user owns `home/d` and puts a link to a directory of another user in its place, all the time."""
    store = tmp_path / "s"
    group_at(store)
    (store / "private").mkdir()
    (store / "private/key").write_bytes(SECRET)
    give(store / "private/key", 0o600)
    give(store / "private", 0o700)
    (store / "home/d").mkdir(parents=True)
    give(store / "home", 0o755, OTHER, OTHER)
    give(store / "home/d", 0o755, OTHER, OTHER)
    os.symlink("../private", store / "home/far")
    os.lchown(store / "home/far", OTHER, OTHER)
    swaps = BECOME + """
exchange = ctypes.CDLL(None, use_errno=True).renameat2
while True:
    exchange(-100, b"d", -100, b"far", 2)
"""
    swapper = subprocess.Popen(program("other", swaps), cwd=store / "home")
    try:
        with shared(store, "--metadata-ttl=0s") as m:
            until, tries = time.monotonic() + count("ZARRFS_SECONDS", 3, 60), 0
            while time.monotonic() < until:
                calls = [(call, m / "home/d" / name) for call, name in (("read", "key"), ("create", "new"), ("write", "key"), ("chmod", "key"), ("mkdir", "dir"))]
                calls += [("truncate", m / "home/d/key"), ("rename", m / "home/d/key"), ("remove", m / "home/d/key"), ("remove", m / "home/d/new"), ("rmdir", m / "home/d/dir")]
                for (call, path), (said, shown) in zip(calls * 10, ask("other", calls * 10)):
                    assert call != "read" or said != "ok" or HEX not in shown, path
                tries += len(calls) * 10
            tried("calls while directories became links to those of others", tries)
            swapper.kill()
            swapper.wait()
            # Else a directory that was made and not removed could not be stored as a group.
            if (store / "home/d").is_symlink():
                os.rename(store / "home/d", store / "home/link")
                os.rename(store / "home/far", store / "home/d")
    finally:
        swapper.kill()
        swapper.wait()
    assert os.listdir(store / "private") == ["key"]
    assert (store / "private/key").read_bytes() == SECRET and stat.S_IMODE(os.stat(store / "private/key").st_mode) == 0o600


def test_a_rename_or_link_does_not_show_the_bytes_of_a_file_to_one_who_may_not_read_it(shared, tmp_path):
    """In a directory where a group writes, a user could make a chunk of a file of another."""
    store = tmp_path / "s"
    group_at(store)
    group_at(store / "project")
    path = closed(store / "project", "x")
    give(path / "c", 0o2775)
    give(path, 0o2775)
    give(path / "c/0", 0o600)
    os.chown(path / "c", OWNER, GROUP)
    (store / "project/notes").write_bytes(SECRET)
    give(store / "project/notes", 0o600)
    give(store / "project", 0o2775)
    with shared(store) as m:
        for name, wanted in (("notes", "x/c/1"), ("notes", "x.raw"), ("x/c/0", "copy")):
            from_, to = m / "project" / name, m / "project" / wanted
            said = errors("member of the group", [("move", (from_, to)), ("copy", (from_, m / "project/copy2"))])
            assert "ok" not in said, f"{name}: {said}"
        # The owner may.
        assert errors("owner", [("move", (m / "project/notes", m / "project/x/c/1"))]) == ["ok"]
        assert (m / "project/x/c/1").read_bytes() == SECRET


def test_set_user_id_bits_have_no_effect_and_writes_of_others_clear_them(shared, tmp_path):
    store = tmp_path / "s"
    group_at(store)
    for name in ("id", "writable"):
        shutil.copy("/usr/bin/id", store / name)
    give(store / "id", 0o6755, 0, 0)
    give(store / "writable", 0o6777, 0, 0)
    os.mknod(store / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (store / "home").mkdir()
    give(store / "home", 0o755)
    with shared(store) as m:
        line = next(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {m.path} " in line)
        options = line.split(" - ")[0].split()[5].split(",") + line.split(" - ")[1].split()[-1].split(",")
        assert {"nosuid", "nodev", "default_permissions", "allow_other"} <= set(options)
        assert stat.S_IMODE(os.stat(m / "id").st_mode) == 0o6755
        said = subprocess.run([m / "id", "-u"], user=OTHER, group=OTHER, extra_groups=[], capture_output=True, text=True)
        assert said.stdout.strip() == str(OTHER), said
        assert errors("root", [("read", m / "null")]) == ["EACCES"], "a device of the store was opened"
        # Through the mount by its owner, who may set them, and by a write, which clears them.
        shutil.copy("/usr/bin/id", m / "home/own")
        give(m / "home/own", 0o6755)
        assert stat.S_IMODE(os.stat(store / "home/own").st_mode) == 0o6755
        assert errors("other", [("write", m / "writable")]) == ["ok"]
        for at in (m.path, store):
            assert stat.S_IMODE(os.stat(at / "writable").st_mode) == 0o777
        # So do changes of the length and of the space.
        for name, change in {"shorter": "truncate -s 3", "longer": "fallocate -l 100000", "hole": "fallocate -p -o 0 -l 2", "new": "echo >"}.items():
            (store / name).write_text("hello")
            give(store / name, 0o6777, 0, 0)
            done = subprocess.run(["sh", "-c", f"{change} {m / name}"], user=OTHER, group=OTHER, extra_groups=[], capture_output=True, text=True)
            assert done.returncode == 0, done
            assert stat.S_IMODE(os.stat(store / name).st_mode) == 0o777, name
        m.refused(errno.EPERM, "no capabilities", lambda: os.setxattr(m / "home/own", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000")))


def test_root_is_not_squashed_and_other_users_need_allow_other(tmp_path):
    let_in(tmp_path)
    store = tmp_path / "s"
    group_at(store)
    (store / "closed").mkdir()
    (store / "closed/file").write_bytes(SECRET)
    give(store / "closed/file", 0o000)
    give(store / "closed", 0o000)
    with until_end(Mount(store, tmp_path / "m")) as m:
        assert ask("root", [("read", m / "closed/file")]) == [["ok", HEX]]
        for user in ("owner", "other"):
            assert errors(user, [("list", m.path), ("read", m / "closed/file"), ("read", m / ".zarrfs/stats")]) == ["EACCES"] * 3


def test_the_given_owner_and_umask_count_for_chunks_and_views(tmp_path):
    """Whoever gives `uid=`, `gid=` or `umask=` says who may read the arrays."""
    let_in(tmp_path)
    store = tmp_path / "s"
    group_at(store)
    by_every_file(closed(store, "x"))
    with until_end(Mount(store, tmp_path / "m", "-o", f"allow_other,uid={OWNER},gid={GROUP},umask=027")) as m:
        files = [m / "x/c/0", m / "x.npy", m / "x/zarr.json"]
        for user in USERS:
            wanted = "EACCES" if user == "other" else "ok"
            assert errors(user, [("read", file) for file in files]) == [wanted] * 3, user
