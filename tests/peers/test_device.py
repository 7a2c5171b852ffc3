"""`zarrfs mount STORE /dev/fd/N`: another process, which has the rights, opens and mounts the FUSE device."""

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
import zarr

from mounts import BIN, PATIENCE, detach, is_alive, wait_until

USER = 65534
libc = ctypes.CDLL(None, use_errno=True)


def mounted_device(path, options=""):
    """Mounts a FUSE device on `path`, as a container engine does, and returns its descriptor."""
    device = os.open("/dev/fuse", os.O_RDWR)
    data = f"fd={device},rootmode=40000,user_id={USER},group_id={USER},allow_other,default_permissions{options}"
    if libc.mount(b"engine", str(path).encode(), b"fuse.zarrfs", 6, data.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    return device


class Engine:
    """A mountpoint with a device, and the program that serves it with no rights of its own."""

    def __init__(self, directory):
        self.at = Path(directory)
        self.store, self.path = self.at / "climate.zarr", self.at / "mnt"
        self.path.mkdir()
        self.program = shutil.copy(BIN, directory)
        self.log = self.at / "log"

    def serve(self, device, *options, mountpoint=None, descriptors=None):
        words = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
        words += ["--inh-caps=-all", "--bounding-set=-all", self.program, "mount", str(self.store)]
        words += [mountpoint or f"/dev/fd/{device}", "--log-file", str(self.log), *options]
        passed = (device,) if descriptors is None else descriptors
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, pass_fds=passed, text=True, **pipes)

    def process(self):
        stats = (self.path / ".zarrfs/stats").read_text()
        return int(next(line.split()[1] for line in stats.splitlines() if line.startswith("zarrfs_process_id ")))


@pytest.fixture
def engine():
    if os.geteuid() != 0:
        pytest.skip("only root can mount a FUSE device without fusermount3")
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        engine = Engine(directory)
        group = zarr.create_group(engine.store)
        group.create_array("t2m", data=np.arange(24, dtype="f4").reshape(4, 6), chunks=(2, 3))
        group.create_array("packed", data=np.ones((64, 64), "i4"), chunks=(2, 8), shards=(64, 64))
        subprocess.run(["chown", "-R", f"{USER}:{USER}", directory], check=True)
        try:
            yield engine
        finally:
            detach(engine.path)


@pytest.mark.parametrize("options", [["--foreground"], []], ids=["foreground", "background"])
def test_a_device_of_another_process_is_read_written_and_ended_from_outside(engine, options):
    device = mounted_device(engine.path)
    process = engine.serve(device, *options)
    os.close(device)
    if not options:
        assert process.wait(PATIENCE) == 0, process.stderr.read()
    chunk = (engine.path / "t2m/c/0/0").read_bytes()
    assert np.array_equal(np.frombuffer(chunk, "f4").reshape(2, 3), np.arange(24, dtype="f4").reshape(4, 6)[:2, :3])
    (engine.path / "t2m/c/1/1").write_bytes(chunk)
    (engine.path / "packed/c/0/0").write_bytes(b"\2\0\0\0" * 16)
    server = engine.process()
    status = Path(f"/proc/{server}/status").read_text()
    assert "NoNewPrivs:\t1" in status and "CapEff:\t0000000000000000" in status
    subprocess.run(["umount", str(engine.path)], check=True)
    assert wait_until(lambda: not is_alive(server))
    assert process.wait(PATIENCE) == 0, process.stderr.read()
    assert zarr.open_array(engine.store / "t2m")[2, 3] == 0
    assert zarr.open_array(engine.store / "packed")[:2, :8].tolist() == [[2] * 8] * 2
    assert engine.log.read_text() == ""
    process.communicate()


def test_a_signal_stores_what_is_pending_and_ends_the_process(engine):
    device = mounted_device(engine.path)
    process = engine.serve(device, "--foreground", "--writeback-delay", "1h")
    os.close(device)
    (engine.path / "packed/c/0/0").write_bytes(b"\2\0\0\0" * 16)
    process.terminate()
    assert process.wait(PATIENCE) == 0, process.stderr.read()
    with pytest.raises(OSError):
        os.listdir(engine.path)
    assert zarr.open_array(engine.store / "packed")[0, 0] == 2
    process.communicate()


def test_what_is_no_mounted_device_is_refused_with_a_sentence(engine):
    def refused(device, **options):
        process = engine.serve(device, "--foreground", **options)
        _, said = process.communicate(timeout=PATIENCE)
        return process.returncode, said.strip()

    said = "zarrfs: /dev/fd/99: Bad file descriptor (os error 9)"
    assert refused(99, descriptors=()) == (1, said)
    said = "zarrfs: /dev/fd/x: expected /dev/fd/ and the number of a descriptor"
    assert refused(0, mountpoint="/dev/fd/x", descriptors=()) == (2, said)
    with tempfile.TemporaryFile() as file:
        said = f"zarrfs: /dev/fd/{file.fileno()}: not a FUSE device; the program that mounts must pass /dev/fuse"
        assert refused(file.fileno()) == (1, said)
    device = os.open("/dev/fuse", os.O_RDWR)
    assert refused(device) == (1, f"zarrfs: /dev/fd/{device}: nothing is mounted with this FUSE device")
    os.close(device)
