"""The Python package: the wheel as maturin builds it, installed where no compiler is, and used."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr

import machines
from mounts import BIN, PATIENCE, wait_until

ROOT = Path(__file__).parent.parent.parent


def built(directory):
    """The wheel with the program under test. The profile of its build is the name of its directory."""
    profile = Path(BIN).parent.name
    target = Path(BIN).parent.parent
    command = [sys.executable, "-m", "maturin", "build", "--locked", "--compatibility", "linux", "--out", str(directory)]
    command += ["--profile", {"debug": "dev"}.get(profile, profile)]
    variables = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=variables, timeout=900)
    assert done.returncode == 0, done.stderr
    [wheel] = Path(directory).glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """One wheel for all workers."""
    if "ZARRFS_WHEEL" in os.environ:
        return Path(os.environ["ZARRFS_WHEEL"])
    directory = tmp_path_factory.getbasetemp().parent / "wheel"
    with contextlib.suppress(FileExistsError):
        directory.mkdir()
        made = built(directory / "out")
        # Other workers read it as soon as it has the name.
        (directory / "made").write_text(str(made))
        (directory / "made").rename(directory / "done")
    assert wait_until(lambda: (directory / "done").exists(), 900), "the wheel was not built"
    return Path((directory / "done").read_text())


class Environment:
    """An empty environment with the wheel, and a store."""

    def __init__(self, directory, wheel):
        self.at = Path(directory)
        self.store = self.at / "climate.zarr"
        # Another user may not run the interpreter of these tests, if it is in the home of root.
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(self.at / "venv")], check=True)
        self.python = self.at / "venv/bin/python"
        # Without the network, and with a PATH that has no compiler.
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q", "--no-index", str(wheel)]
        subprocess.run(pip, check=True, env={"PATH": "/nowhere", "HOME": directory}, timeout=PATIENCE)
        (self.at / "tmp").mkdir()
        (self.at / "dev").mkdir()

    def start(self, code, private=False, **options):
        """Starts Python with `code`, as a user without rights if `private`."""
        code = f"import os, subprocess, sys, zarrfs\nstore = {str(self.store)!r}\n{code}"
        command = [str(self.python), "-c", code]
        variables = {name: value for name, value in os.environ.items() if name not in ("XDG_RUNTIME_DIR", "VIRTUAL_ENV", "PYTHONPYCACHEPREFIX")}
        variables |= {"TMPDIR": str(self.at / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
        if private:
            command = machines.words(self.at, *command)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, text=True, env=variables, cwd=self.at / "tmp", **{**pipes, **options})

    def run(self, code, status=0, **options):
        process = self.start(code, **options)
        said, failed = process.communicate(timeout=PATIENCE)
        assert process.returncode == status, failed
        self.said = failed
        return said

    def processes(self):
        """The processes of the installed program that live."""
        return machines.processes(self.at / "venv/bin/zarrfs")

    def is_clean(self):
        mounted = str(self.at) in Path("/proc/mounts").read_text()
        left = [path.name for path in (self.at / "tmp").iterdir() if path.name.startswith("zarrfs")]
        return not self.processes() and not mounted and not left

    def array(self, name="t2m"):
        return zarr.open_array(self.store / name, mode="r")[:]


@pytest.fixture
def environment(wheel):
    if os.geteuid() != 0:
        pytest.skip("only root can make a machine with another /dev/fuse")
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        environment = Environment(directory, wheel)
        group = zarr.create_group(environment.store)
        group.create_array("t2m", data=np.arange(24, dtype="f4").reshape(4, 6), chunks=(2, 3), dimension_names=["y", "x"])
        subprocess.run(["chown", "-R", "65534:65534", directory], check=True)
        try:
            yield environment
            assert wait_until(environment.is_clean), f"{environment.processes()}, {os.listdir(environment.at / 'tmp')}"
        finally:
            machines.end(environment.at / "venv/bin/zarrfs", directory)


BOTH = pytest.mark.parametrize("private", [False, True], ids=["mount", "private"])


def test_the_tag_of_the_wheel_is_that_of_its_program(wheel):
    """A wheel for one machine names no version of glibc; one for all names the newest that the program needs."""
    tag = wheel.stem.split("-", 2)[2]
    with zipfile.ZipFile(wheel) as archive, tempfile.NamedTemporaryFile() as program:
        [name] = [name for name in archive.namelist() if name.endswith("scripts/zarrfs")]
        program.write(archive.read(name))
        program.flush()
        symbols = subprocess.run(["objdump", "-T", program.name], capture_output=True, text=True, check=True).stdout
        sections = subprocess.run(["objdump", "-h", program.name], capture_output=True, text=True, check=True).stdout
        scripts = [name for name in archive.namelist() if name.endswith(".py")]
    assert scripts == ["zarrfs/__init__.py"]
    assert ".debug_info" not in sections
    newest = max(tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([0-9.]+)", symbols))
    promised = re.search(r"manylinux_(\d+)_(\d+)_x86_64", tag)
    assert tag == "py3-none-linux_x86_64" if promised is None else newest <= tuple(map(int, promised.groups()))


@BOTH
def test_a_block_reads_views_and_stores_what_it_writes(environment, private):
    code = """
with zarrfs.mount(store, views="nc") as path:
    assert sorted(p.name for p in path.iterdir()) == ["__root__.nc", "t2m", "t2m.nc", "zarr.json"], list(path.iterdir())
    print(subprocess.run(["ncdump", "-h", path / "__root__.nc"], check=True, capture_output=True, text=True).stdout)
    (path / "t2m/c/1/1").write_bytes((path / "t2m/c/0/0").read_bytes())
print(type(path).__mro__[-2].__name__)
"""
    said = environment.run(code, private=private)
    assert "float t2m(y, x)" in said and said.endswith("PurePath\n")
    assert np.array_equal(environment.array()[2:, 3:], environment.array()[:2, :3])


@BOTH
def test_each_long_option_is_a_keyword(environment, private):
    code = """
options = dict(as_="zarr2", from_="v3", immutable=True, cache_size="1M", threads=2, log_level="error", rescue=None)
with zarrfs.mount(store, options=["ro", "metadata_ttl=1s"][:1], **options) as path:
    assert (path / "t2m/.zarray").exists()
    try:
        (path / "new").mkdir()
    except OSError as error:
        print(error.strerror)
"""
    assert environment.run(code, private=private) == "Read-only file system\n"


@BOTH
def test_failures_are_errors_with_the_sentence_of_the_program(environment, private):
    code = """
for source, options in [("missing.zarr", {}), (store, {"strange": 1}), (store, {"views": "doc"})]:
    try:
        zarrfs.mount(source, **options)
    except zarrfs.Error as error:
        print(error)
"""
    first, second, third = environment.run(code, private=private).splitlines()
    assert first == "missing.zarr: no such directory; use --create to create a hierarchy there"
    assert second == "unexpected argument '--strange' found"
    assert third.startswith("invalid value 'doc' for '--views <LIST>'")


@BOTH
def test_an_exception_in_the_block_passes_and_the_mount_ends(environment, private):
    code = """
with zarrfs.mount(store) as path:
    (path / "t2m/c/1/1").write_bytes((path / "t2m/c/0/0").read_bytes())
    raise ValueError("the own failure")
"""
    environment.run(code, status=1, private=private)
    assert environment.said.rstrip().endswith("ValueError: the own failure")
    assert np.array_equal(environment.array()[2:, 3:], environment.array()[:2, :3])


@BOTH
def test_a_full_disk_at_the_end_of_the_block_is_an_error(environment, private):
    disk = environment.at / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], check=True)
    try:
        subprocess.run(["cp", "-a", str(environment.store), str(disk)], check=True)
        code = """
store = "../disk/climate.zarr"
with zarrfs.mount(store, writeback="all") as path:
    with open("../disk/filler", "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096): pass
        except OSError: pass
    (path / "t2m/c/1/1").write_bytes(os.urandom(24))
"""
        subprocess.run(["chown", "-R", "65534", str(disk)], check=True)
        environment.run(code, status=1, private=private)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    said = environment.said.rstrip().splitlines()[-1]
    assert said.startswith("zarrfs.Error: not everything is stored: t2m/c/1/1: No space left on device"), said


@BOTH
def test_a_killed_interpreter_leaves_no_mount(environment, private):
    code = """
mount = zarrfs.mount(store)
print(mount.path, flush=True)
sys.stdin.read()
"""
    process = environment.start(code, private=private, stdin=subprocess.PIPE)
    path = process.stdout.readline().strip()
    [python] = [process.pid] if not private else [
        int(entry.name) for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and str(environment.python) in cmdline(entry)
    ]  # fmt: skip
    os.kill(python, signal.SIGKILL)
    mounts = Path("/proc/mounts")
    assert wait_until(lambda: not environment.processes() and path not in mounts.read_text()), "still mounted"
    process.communicate()
    for left in (environment.at / "tmp").glob("zarrfs-*"):
        left.rmdir()


def cmdline(entry):
    with contextlib.suppress(OSError):
        return (entry / "cmdline").read_bytes().split(b"\0")[0].decode()
    return ""


@BOTH
def test_twenty_at_once_in_threads(environment, private):
    code = """
import concurrent.futures
def use(number):
    with zarrfs.mount(store, options="ro") as path:
        return (path / "t2m.npy").read_bytes()
with concurrent.futures.ThreadPoolExecutor(20) as pool:
    print(len(set(pool.map(use, range(20)))))
"""
    assert environment.run(code, private=private) == "1\n"


@BOTH
def test_processes_of_multiprocessing_use_the_mount_and_do_not_end_it(environment, private):
    code = """
import multiprocessing
def read(path):
    return len((path / "t2m/c/0/0").read_bytes())
if __name__ == "__main__":
    with zarrfs.mount(store) as path:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(read, [path] * 3))
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        print(read(path))
"""
    assert environment.run(code, private=private) == "[24, 24, 24]\n24\n"


# A program of its own, because workers of `spawn` and `forkserver` import it.
WORKERS = """
import multiprocessing, os, sys, zarrfs
from concurrent.futures import ProcessPoolExecutor

store, method = sys.argv[1:]

def mounted(number):
    with zarrfs.mount(store, options="ro") as path:
        return (path / "t2m.npy").read_bytes()[128:]

def read(path):
    return (path / "t2m/c/0/0").read_bytes()

def write(name):
    path, chunk = name
    (path / chunk).write_bytes(b"\\1" * 24)
    return os.getpid()

def die(path):
    with zarrfs.mount(store) as own:
        print(own, (own / "zarr.json").exists(), flush=True)
        os.kill(os.getpid(), 9)
"""
USE = """
if __name__ == "__main__":
    context = multiprocessing.get_context(method)
    with context.Pool(3) as pool:
        print(len(set(pool.map(mounted, range(6)))))
    with zarrfs.mount(store) as path:
        with context.Pool(2) as pool:
            print(len(set(pool.map(read, [path] * 4))))
        with ProcessPoolExecutor(2, mp_context=context) as executor:
            chunks = [(path, f"t2m/c/{row}/{column}") for row in range(2) for column in range(2)]
            print(os.getpid() not in executor.map(write, chunks))
        assert read(path) == b"\\1" * 24
"""


KILL = """
if __name__ == "__main__":
    with zarrfs.mount(store) as path:
        worker = multiprocessing.get_context(method).Process(target=die, args=[path])
        worker.start()
        worker.join()
        print(worker.exitcode, len(read(path)))
"""


def run_workers(environment, main, method, private):
    program = environment.at / "tmp/workers.py"
    program.write_text(WORKERS + main)
    code = f"sys.exit(subprocess.run([sys.executable, {str(program)!r}, store, {method!r}]).returncode)"
    return environment.run(code, private=private)


@BOTH
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_each_kind_mount_and_use_the_mount_of_the_parent(environment, method, private):
    assert run_workers(environment, USE, method, private) == "1\n1\nTrue\n"
    assert (environment.array().view("u1") == 1).all()


@BOTH
def test_a_killed_worker_leaves_no_mount_and_the_mount_of_the_parent_goes_on(environment, private):
    own, exists, code, length = run_workers(environment, KILL, "spawn", private).split()
    assert (exists, code, length) == ("True", "-9", "24")
    assert wait_until(lambda: own not in Path("/proc/mounts").read_text() and not environment.processes())
    for left in (environment.at / "tmp").glob("zarrfs-*"):
        left.rmdir()


def test_a_file_that_is_still_open_after_the_block_can_be_read(environment):
    code = """
import mmap
with zarrfs.mount(store) as path:
    file = open(path / "t2m.npy", "rb")
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
assert not os.path.ismount(path)
print(pages[1:6].decode(), len(file.read()))
"""
    assert environment.run(code) == "NUMPY 224\n"


def test_a_named_mountpoint_and_a_second_close(environment):
    code = """
os.mkdir("mnt")
mount = zarrfs.mount(store, "mnt")
assert os.path.ismount("mnt") and (mount.path / "t2m").is_dir()
mount.close(); mount.close()
assert not os.path.ismount("mnt")
os.rmdir("mnt")
print(mount, zarrfs.program() == os.path.join(sys.prefix, "bin/zarrfs"))
"""
    assert environment.run(code) == "<zarrfs.Mount closed> True\n"


def test_where_nothing_can_be_mounted_the_error_says_what_to_do(environment):
    code = f"import zarrfs; zarrfs.mount({str(environment.store)!r})"
    closed = machines.SETUP.replace("-m 666", "-m 600")
    command = machines.words(environment.at, environment.python, "-c", code, setup=closed)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    last = done.stderr.rstrip().splitlines()[-1]
    assert last.startswith("zarrfs.Error: /dev/fuse: permission denied, so nothing can be mounted; run as root"), last


