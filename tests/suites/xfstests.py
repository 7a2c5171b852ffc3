"""xfstests, on the ordinary files of two mounts: that of the tests, and a scratch mount that each test makes anew.

Its script `check` mounts by the type `fuse.zarrfs`, so it needs a program mount.fuse.zarrfs. It also needs three users.
They are there only in the mount namespace in which scripts/suites.sh runs.
"""

import contextlib
import os
import re
import shlex
import subprocess
from pathlib import Path

import suites
from mounts import BIN

# Root, and users for the tests.
USERS = {"fsgqa": 7001, "fsgqa2": 7002, "123456-fsgqa": 7003}
# A whole hierarchy has a metadata file in its root, so the tests see a directory of it. Its mount goes with that of the
# directory.
HELPER = """#!/bin/bash
# mount.fuse.zarrfs SOURCE DIRECTORY -o OPTIONS
source=$1 directory=$2
shift 2
bash -c 'exec -a mount.fuse.zarrfs "$@"' - {program} {work}/$source {work}/$source.whole "$@" -o fsname=$source || exit
mount --bind {work}/$source.whole/d "$directory"
code=$?
umount -l {work}/$source.whole
exit $code
"""
SETTINGS = """
export FSTYP=fuse FUSE_SUBTYP=.zarrfs
export TEST_DEV=test TEST_DIR={work}/test.mnt TEST_FS_MOUNT_OPTS=-oallow_other
export SCRATCH_DEV=scratch SCRATCH_MNT={work}/scratch.mnt MOUNT_OPTIONS=-oallow_other
"""
# Large enough for every test but those that say so.
DISK_LEN = 4 << 30
GROUP = '{"zarr_format":3,"node_type":"group","attributes":{}}'


def run(work, log):
    """The tests of the group `quick`, or those in XFSTESTS."""
    home = suites.DIRECTORY / "xfstests"
    if not (home / "check").exists():
        raise suites.Absent("xfstests")
    with contextlib.ExitStack() as stack:
        make_disk(stack, Path(work))
        return run_on_disk(stack, home, Path(work), log)


def make_disk(stack, work):
    """Some tests fill the disk below the mounts."""
    disk = work / "disk.img"
    with open(disk, "wb") as file:
        file.truncate(DISK_LEN)
    subprocess.run(["mkfs.ext4", "-q", disk], check=True)
    mount(stack, work, "-o", "loop", disk)


def run_on_disk(stack, home, work, log):
    for name in ("test", "scratch"):
        (work / name / "d").mkdir(parents=True)
        (work / name / "zarr.json").write_text(GROUP)
        for made in (f"{name}.whole", f"{name}.mnt"):
            (work / made).mkdir()
    work.chmod(0o755)
    settings = work / "local.config"
    settings.write_text(SETTINGS.format(work=work))
    environment = {**os.environ, "HOST_OPTIONS": str(settings), "RESULT_BASE": str(work / "results")}
    chosen = os.environ.get("XFSTESTS", "-g quick").split()
    install_helper(stack, work)
    add_users(stack, work)
    try:
        _, said = suites.run(["./check", "-fuse", *chosen], log, timeout=36000, cwd=home, env=environment)
    finally:
        for name in ("scratch", "test"):
            for at in (f"{name}.mnt", f"{name}.whole"):
                subprocess.run(["umount", "-l", work / at], capture_output=True)
    results = results_of(said)
    assert results, said[-2000:]
    return results


def install_helper(stack, work):
    """mount(8) looks for it in /usr/sbin."""
    over = [work / "sbin", work / "sbin.work"]
    for directory in over:
        directory.mkdir()
    mount(stack, "/usr/sbin", "-t", "overlay", "overlay", "-o", f"lowerdir=/usr/sbin,upperdir={over[0]},workdir={over[1]}")
    helper = Path("/usr/sbin/mount.fuse.zarrfs")
    helper.write_text(HELPER.format(program=shlex.quote(os.path.abspath(BIN)), work=shlex.quote(str(work))))
    helper.chmod(0o755)


def add_users(stack, work):
    for name, line in (("passwd", "{0}:x:{1}:{1}::/:/bin/bash"), ("group", "{0}:x:{1}:")):
        text = Path("/etc", name).read_text()
        known = {one.split(":")[0] for one in text.splitlines()}
        new = [line.format(user, number) for user, number in USERS.items() if user not in known]
        file = work / name
        file.write_text(text + "".join(f"{one}\n" for one in new))
        file.chmod(0o644)
        mount(stack, f"/etc/{name}", "--bind", file)


def mount(stack, target, *words):
    subprocess.run(["mount", *words, target], check=True)
    stack.callback(subprocess.run, ["umount", "-l", target], check=True)


def results_of(said):
    """A line begins with the test, and ends with its seconds or with why it failed. What it should not have printed follows,
    with a `+`."""
    results, failed = {}, None
    for line in said.splitlines():
        found = re.match(r"(generic/\d+)\s+(.*)", line)
        if found:
            test, rest = found.groups()
            failed = None
            if "[not run]" in rest or "[expunged]" in rest:
                results[test] = suites.SKIPPED
            elif re.search(r"\d+s$", rest):
                results[test] = suites.PASSED
            else:
                results[test], failed = re.sub(r"\(see .*", "", rest).strip(" -"), test
        elif failed and re.match(r"\s+\+(?!\+\+)", line):
            results[failed], failed = line.strip(" +")[:120], None
    return results
