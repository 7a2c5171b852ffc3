"""A daemon that is killed: every stored value is old or new, what was promised is there, and the next mount goes on."""

import contextlib
import os
import random
import subprocess

import pytest

from mounts import BIN, PATIENCE, is_alive, wait_until
from records import CHUNKS, MODES, SIZE, record, sync_dir
from torture import ENCODED, KINDS, LONG, SEED, count, is_sharded, traced

# In each case.
KILLS = count("ZARRFS_KILLS", 2, 34)
CASES = [(kind, options) for kind in KINDS for options in ([], ["--writeback=sync" if is_sharded(kind) else "--writeback=all"])]

# Encoded chunks are written as a whole.
TRUSTED, WHOLE = (ENCODED, ["--trust-encoded"]), ["truncate", "rename"]


@pytest.mark.parametrize("ttl", ["1s", "1h"])
def test_a_dead_mount_is_mounted_over_at_once(bench, ttl):
    b = bench("v3")
    for _ in range(2):
        m = b.mount("--metadata-ttl", ttl)
        assert (m / "x/c/0/0").stat().st_size
        b.kill(m)
    m = b.mount()
    b.end(m)


def test_a_dead_mount_as_a_source_is_refused_with_the_remedy(bench, tmp_path):
    b = bench("v3")
    m = b.mount()
    b.kill(m)
    empty = tmp_path / "empty"
    empty.mkdir()
    for source in [m.path, f"{m.path}/x"]:
        for words in [["tree", source], ["info", source], ["mount", source, empty], ["convert", source, tmp_path / "copy.zarr"]]:
            done = subprocess.run([BIN, *words], capture_output=True, text=True, timeout=PATIENCE)
            sentence = f"{source}: the process that served this mount has ended; run zarrfs umount {m.path}\n"
            assert done.returncode == 1 and done.stderr.endswith(sentence), (words, done.stderr)
    m = b.mount()
    b.end(m)


def remove_temporary(m):
    """The writer's own files: it would remove them itself, had it not been killed."""
    for at, _, names in os.walk(m / "x"):
        for name in names:
            if name.endswith(".new"):
                os.unlink(os.path.join(at, name))


@pytest.mark.parametrize(
    "kind, options, mode",
    [(*case, mode) for case in CASES for mode in MODES] + [(*TRUSTED, mode) for mode in WHOLE],
    ids=lambda it: it if isinstance(it, str) else "".join(it) or "default",
)
def test_a_daemon_killed_at_any_instant_has_kept_its_promises(bench, tried, kind, options, mode):
    b, dice = bench(kind), random.Random(f"{SEED} {kind} {options} {mode}")
    m = b.mount(*options)
    for number in range(KILLS):
        what = f"kill {number} of {kind} {options} {mode}"
        writers = [
            b.write(m, dice.random(), f"journal{half}", modes=[mode, mode, "unlink"], things=CHUNKS[half::2], sync=0.3)
            for half in range(2)
        ]
        # Writers have a moment to begin; what they do then takes about a millisecond.
        assert wait_until(lambda: len(b.journal().states) > dice.randrange(3)), "nothing is written"
        wait_until(lambda: any(writer.poll() is not None for writer in writers), dice.random() * 0.3)
        b.kill(m)
        tried(f"kills, {mode}")
        for writer in writers:
            assert b.wait(writer) != "", f"{what}: the writer has not noticed"
        b.check(what)
        # The mount over the dead one shows what is in the store.
        m = b.mount(*options)
        for thing, version in b.check(what).items():
            assert (m / "x/c" / thing).exists() == (version != "gone"), f"{what}: {thing}"
    remove_temporary(m)
    b.end(m)
    b.check(f"after {KILLS} kills of {kind} {options} {mode}")
    b.check_keys(f"after {KILLS} kills of {kind} {options} {mode}")


# Rewrites a chunk, and its neighbours in the shard.
SCRIPT = [("0/0", True), ("0/1", False), ("1/0", True), ("3/3", True)]
CALLS = ["openat openat2", "write pwrite64 writev pwritev", "fsync fdatasync", "rename renameat renameat2", "unlinkat",
         "copy_file_range", "utimensat", "mkdirat", "fcntl"]
# The first calls of each kind.
POINTS = count("ZARRFS_POINTS", 4, 40)
HALF = SIZE // 2
SOME = CASES if LONG else [("v3", []), ("v3", ["--writeback=all"]), ("v3-sharded", ["--writeback=sync"]), ("v3-sharded", [])]


@pytest.mark.parametrize(
    "kind, options, mode, call",
    # Only of a shard something is copied, and only in the other stores a directory is missing.
    [(*case, mode, call) for case in SOME for mode in (MODES if LONG else ["truncate"]) for call in CALLS
     if is_sharded(case[0]) or call != "copy_file_range" if case[0] == "v3" or call != "mkdirat"]
    # The kernel writes to files that have no names yet.
    + [(*TRUSTED, "truncate", call) for call in [*CALLS, "linkat"] if call not in ("copy_file_range", "mkdirat", "utimensat")],
    ids=lambda it: it if isinstance(it, str) else "".join(it) or "default",
)
def test_a_daemon_killed_at_a_system_call_has_kept_its_promises(bench, tmp_path, tried, kind, options, mode, call):
    b = bench(kind)
    script = [[thing, mode, sync] for thing, sync in SCRIPT]
    # All of a shard, so that its key goes.
    for how in (mode, "unlink", mode):
        script += [[thing, how, True] for thing in ("2/2", "2/3", "3/2", "3/3")]
    # Where a directory of chunks is to be made there is none.
    for name in ("2", "3") if kind == "v3" else ():
        m = b.mount()
        b.wait(b.write(m, 0, script=[[f"{name}/{j}", "unlink", True] for j in range(4)]))
        b.end(m)
    for k in range(1, POINTS + 1):
        what = f"kill before the {k}. {call} of {kind} {options} {mode}"
        m = b.mount("--threads", "1", *options)
        with traced(m, tmp_path / "strace", call, f"signal=KILL:when={k}") as was_hit:
            said = b.wait(b.write(m, SEED, script=script))
            # One that was hit after its last answer told no writer.
            wait_until(lambda: not is_alive(m.pid), PATIENCE if said else 0.2)
        # A busy machine takes its time to bury a process.
        hit = not is_alive(m.pid) or was_hit() and wait_until(lambda: not is_alive(m.pid))
        b.check(what)
        if hit:
            tried(f"kills before {call.split()[0]}")
            b.died(m)
            m = b.mount(*options)
        else:
            assert not said, f"{what}: not hit, but the writer has failed: {said}"
            assert k > 1, f"{what}: there is no such call"
        b.wait(b.write(m, SEED, script=script))
        remove_temporary(m)
        b.end(m)
        b.check(f"{what}, and another round")
        b.check_keys(what)
        if not hit:
            break


@pytest.mark.parametrize("where", ["x/c/0", "x", "."])
@pytest.mark.parametrize("kind", ["v3", "v3-sharded"])
def test_who_makes_a_directory_durable_leaves_half_written_chunks_to_their_writers(bench, kind, where):
    b = bench(kind)
    m = b.mount()
    fd = os.open(m / "x/c/0/0", os.O_RDWR)
    try:
        os.pwrite(fd, record("0/0", 1)[:HALF], 0)
        sync_dir(m / where)
        b.check("while a chunk is half written")
        b.kill(m)
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
    b.check("after a kill while a chunk is half written")
