"""A machine on which users have no rights and no fusermount3, for tests that run as root."""

import contextlib
import os
import signal
from pathlib import Path

from mounts import detach, is_alive

USER = 65534
# Commands in a mount namespace of its own: a device that every user may open, as on most machines, and no fusermount3.
SETUP = """
mount -t tmpfs none dev
mknod -m 666 dev/fuse c 10 229
mount --bind dev/fuse /dev/fuse
for program in fusermount3 fusermount; do
    if path=$(command -v $program); then mount --bind /dev/null "$path"; fi
done
"""
AS_USER = f"setpriv --reuid={USER} --regid={USER} --clear-groups --inh-caps=-all --bounding-set=-all"


def words(directory, *command, setup=SETUP):
    """The words that run a command there as the user. Its working directory is `tmp` in `directory`."""
    script = f'set -e; cd {directory}; {setup}\ncd tmp; exec {AS_USER} "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", *map(str, command)]


def processes(program):
    """The processes of a program that live."""
    return _living("exe", lambda path: path == str(program))


def _living(link, is_wanted):
    """The living processes whose link in /proc, such as `exe` or `cwd`, leads to a path that is wanted."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and is_wanted(os.readlink(entry / link)):
                found.append(int(entry.name))
    return sorted(pid for pid in found if is_alive(pid))


def end(program, directory):
    """Ends what a failed test has left: the processes of the program, those that work in the directory, such as the
    shell of a command that hangs, and mounts below it."""
    for pid in processes(program) + _living("cwd", lambda path: path.startswith(f"{directory}/")):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for line in Path("/proc/mounts").read_text().splitlines():
        if line.split()[1].startswith(f"{directory}/"):
            detach(line.split()[1])
