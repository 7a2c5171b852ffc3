"""Namespaces of mounts, processes and the network, for tests that start daemons of the system. In
such a world `/etc`, `/var`, `/run`, `/tmp` and others can be written without a trace on the
machine. Its processes and mounts end with it."""

import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from mounts import BIN, wait_until

# What each world has: its directory as /mnt, a device that every user may open, the program, and
# the user anna.
SETUP = r"""
set -e
# Copies of mounts of other programs would keep these from ending.
awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | while read -r at; do umount -l "$at"; done
ip link set lo up
mount --bind "$1" /mnt
mkdir /mnt/layers
mount -t tmpfs none /mnt/layers
for at in etc var root home usr/local opt; do
    layer=/mnt/layers/$at
    mkdir -p $layer/upper $layer/work
    mount -t overlay -o lowerdir=/$at,upperdir=$layer/upper,workdir=$layer/work none /$at
done
cp "$2" /usr/local/bin/zarrfs
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=1777 none /tmp
mknod -m 666 /mnt/layers/fuse c 10 229
mount --bind /mnt/layers/fuse /dev/fuse
# Containers get control groups below those of the world.
general=rw,ro,nosuid,nodev,noexec,relatime,nsdelegate,memory_recursiveprot
grep -E '^[^ ]+ [^ ]+ cgroup2? ' /proc/self/mounts | while read -r _ at type options _; do
    options=$(echo "$options" | tr , '\n' | grep -vxE "$(echo $general | tr , '|')" | paste -sd,)
    umount -l "$at"
    mount -t $type ${options:+-o "$options"} none "$at"
done
hostname node
ip link add eth0 type veth peer name eth1
ip address add 10.1.1.1/24 dev eth0
ip link set eth0 up
ip link set eth1 up
printf '127.0.0.1 localhost\n10.1.1.1 node\n' > /etc/hosts
chmod 755 /root
echo user_allow_other >> /etc/fuse.conf
useradd --create-home --shell /bin/bash anna
cd /mnt
zarrfs demo demo > /dev/null
zarrfs umount demo/mnt
mv demo/climate.zarr .
mkdir mnt
chown -R anna: /mnt/climate.zarr /mnt/mnt
"""
# The first process reaps those that daemons leave to it. It ends when the test closes its standard
# input.
FIRST = """
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
sys.stdin.read()
"""
NAMESPACES = ["--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup"]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Seconds for a command.
PATIENCE = 120


def control_groups():
    """The root of each hierarchy of control groups."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(path) for _, path, kind, *_ in mounts if kind in ("cgroup", "cgroup2")]


def is_gone(group):
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


class World:
    """A world. `at` is its directory, which commands in the world see as /mnt."""

    def __init__(self):
        self.at = Path(tempfile.mkdtemp(prefix="zarrfs-world-"))
        self.at.chmod(0o755)
        script = f'{SETUP}\nexec /usr/bin/python3 -c "$3"'
        words = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
        words += ["--propagation", "private"]
        words += ["sh", "-c", script, "sh", str(self.at), shutil.which(BIN), FIRST]
        self.groups = [group / self.at.name for group in control_groups()]
        for group in self.groups:
            group.mkdir()
            for name in ["cpuset.cpus", "cpuset.mems"]:
                if (group / "cpuset.cpu_exclusive").exists():
                    (group / name).write_text((group.parent / name).read_text())
        enter = 'for group in $0; do echo 0 > "$group/cgroup.procs"; done; exec "$@"'
        self.process = subprocess.Popen(
            ["sh", "-c", enter, " ".join(map(str, self.groups)), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PATH": PATH},
        )  # fmt: skip
        try:
            assert self.process.stdout.readline() == "ready\n", "the namespaces could not be set up"
            of_main_thread = Path(f"/proc/{self.process.pid}/task/{self.process.pid}")
            self.first = int((of_main_thread / "children").read_text().split()[0])
        except BaseException:
            self.end()
            raise

    def words(self, script, *arguments, user="root", env=None):
        """The words that run a script of bash in the world, in /mnt, as a user."""
        enter = ["nsenter", f"--target={self.first}", *NAMESPACES]
        home = "/root" if user == "root" else f"/home/{user}"
        variables = {"PATH": PATH, "HOME": home, "USER": user, "LC_ALL": "C.UTF-8", **(env or {})}
        clean = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        groups = 'for group in $0; do echo 0 > "$group/cgroup.procs"; done; exec "$@"'
        enter = ["sh", "-c", groups, " ".join(map(str, self.groups)), *enter]
        script = f"cd /mnt\nset -eu -o pipefail\n{script}"
        command = ["bash", "-c", script, "bash", *map(str, arguments)]
        return [*enter, "runuser", "-u", user, "--", *clean, *command]

    def start(self, script, *arguments, user="root", env=None, **options):
        """Starts a script, such as a daemon. Its output goes to `log`, or where `options` say."""
        with open(self.at / "log", "ab") as log:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **options}
            words = self.words(script, *arguments, user=user, env=env)
            return subprocess.Popen(words, text=True, **pipes)

    def run(self, script, *arguments, code=0, **options):
        """What a script prints on both outputs. It must end with `code`."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with self.start(script, *arguments, **pipes, **options) as process:
            try:
                said, _ = process.communicate(timeout=PATIENCE)
            except BaseException:
                process.kill()
                raise
        assert process.returncode == code, f"exit code {process.returncode}: {said}\n{self.log()}"
        return said

    def until(self, script, seconds=PATIENCE, **options):
        """Runs a script until it succeeds. Returns what it prints then."""
        said = []

        def succeeds():
            words = self.words(script, **options)
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
            said[:] = [done.stdout, done.stderr]
            return done.returncode == 0

        assert wait_until(succeeds, seconds), f"{script}: {said}\n{self.log()}"
        return said[0]

    def log(self):
        """The end of what the daemons say."""
        log = self.at / "log"
        return log.read_text(errors="replace")[-4000:] if log.exists() else ""

    def processes(self):
        """The command lines of the processes of zarrfs in the world."""
        return self.run("""
            for at in /proc/[0-9]*; do
                [ "$(readlink $at/exe)" != /usr/local/bin/zarrfs ] || tr '\\0' ' ' < $at/cmdline
            done
        """)

    def left(self):
        """What mounts of zarrfs have left in the world: processes, mounts, directories."""
        return self.processes() + self.run("""
            grep fuse.zarrfs /proc/self/mounts || true
            ls -d /tmp/*zarrfs* /run/user/*/*zarrfs* 2> /dev/null || true
        """)

    def end(self):
        """Ends all processes of the world, and all mounts with them."""
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.at)
        for group in self.groups:
            for below in sorted(group.rglob("*/"), reverse=True):
                below.rmdir()
            # The kernel may need a moment for processes that have ended.
            wait_until(lambda: is_gone(group), 60)
