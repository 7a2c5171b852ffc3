"""Commands that end in time, and programs that have little memory."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import mounts

MEMORY = 256 << 20
# How long one command may take. Most take less than a second, or have no end.
SECONDS = 60


class ControlGroup:
    """256 MiB for programs. Where none can be made (or ZARRFS_NO_CGROUP is set), each process has a limit on
    what it maps instead, and the daemon one on what it ever had in memory."""

    def __init__(self):
        for above, limit in () if os.environ.get("ZARRFS_NO_CGROUP") else (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            path = Path(above, f"zarrfs-test-{os.getpid()}")
            with contextlib.suppress(OSError):
                path.mkdir()
                if (path / limit).exists():
                    (path / limit).write_text(str(MEMORY))
                    self.path = path
                    return
                path.rmdir()
        self.path = None

    def wrapper(self, directory):
        """A program that is zarrfs, in the group."""
        path = directory / "zarrfs"
        # What is mapped and not used counts, too: stacks of threads and the program itself.
        enter = f"echo $$ > {self.path}/cgroup.procs; " if self.path else f"ulimit -v {4 * MEMORY >> 10}; "
        path.write_text(f'#!/bin/sh\n{enter}exec {mounts.BIN} "$@"\n')
        path.chmod(0o755)
        return str(path)

    def kills(self):
        """How many processes in it the kernel has killed for want of memory."""
        for name in ("memory.oom_control", "memory.events"):
            if self.path and (self.path / name).exists():
                lines = dict(line.split() for line in (self.path / name).read_text().splitlines())
                return int(lines["oom_kill"])
        return 0

    def end(self):
        if self.path:
            assert mounts.wait_until(lambda: not (self.path / "cgroup.procs").read_text().split())
            self.path.rmdir()

    def check(self, m, tried):
        """The memory of a mount has sufficed."""
        assert self.path or m.peak_memory() < 2 * MEMORY
        assert self.kills() == 0, "memory ran out"
        tried.at_most("MiB of memory of a daemon", m.peak_memory() >> 20)


def run(script, directory, glance=None):
    """What a shell does, in time. What it prints is limited. With `glance` it is ended after so long, and then has to end at once."""
    command = ["sh", "-c", f"({script}) 2>&1 | tail -c 2000"]
    process = subprocess.Popen(
        command,
        cwd=directory,
        stdout=subprocess.PIPE,
        start_new_session=True,
        # Background jobs of a shell, and their children, ignore Ctrl-C: restore its default.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    began = time.monotonic()
    try:
        said, _ = process.communicate(timeout=glance or SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            glance = None
        assert glance, f"{script}: still runs after {time.monotonic() - began:.0f} s: {said[-300:]}"
    return said.decode(errors="replace")
