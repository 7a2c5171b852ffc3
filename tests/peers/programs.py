"""What views are shown to programs with: two mounts of arrays of many types, ranks and kinds of store."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import zarr

from images import STORES, make

# No reader takes so long, not even where it waits for others.
PATIENCE = 120
SHAPES = {1: (7,), 2: (5, 7), 3: (3, 5, 7), 4: (2, 3, 5, 7), 5: (2, 3, 2, 5, 7)}
BIOFORMATS = os.environ.get("ZARRFS_BIOFORMATS", "")


def there(*programs):
    """Leaves a test out where one of the programs is not there."""
    missing = [program for program in programs if not shutil.which(program)]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not there")


has_bioformats = pytest.mark.skipif(
    not os.path.isfile(BIOFORMATS), reason="ZARRFS_BIOFORMATS does not say where bioformats_package.jar is"
)


def arrays(directory, types, ranks, **options):
    """Stores arrays of types and ranks, in every kind of store: those of Zarr 2 in `directory/v2`, all others in
    `directory/v3`. The values by the path of the array there."""
    values, kinds = {}, list(STORES)
    # Every kind of store has some, and every type and rank is in two.
    cases = [(name, rank) for rank in ranks for name in types]
    for number, (name, rank) in enumerate(cases):
        for kind in (kinds[number % 3], kinds[3 + number % 3]):
            path = f"{kind[:2]}/{'b1' if name == '?' else name}_{rank}_{kind.replace('-', '_')}"
            values[path] = make(directory / path, SHAPES[rank], name, kind, **options)
    for version in (2, 3):
        zarr.open_group(directory / f"v{version}", mode="a", zarr_format=version)
    return values


@contextlib.contextmanager
def mounted(mount, directory):
    """Mounts `directory/v2` and `directory/v3`: where what was `v3/x` is now."""
    with mount(directory / "v2", copy=False) as v2, mount(directory / "v3", copy=False) as v3:
        at = {"v2": v2.path, "v3": v3.path}
        yield lambda path: str(at[path[:2]] / path[3:])


def run(command, cwd, env=os.environ, **options):
    """Runs a program, which must do well; what it says. What programs keep at home they keep in `cwd`."""
    options |= dict(cwd=cwd, env={**env, "HOME": str(cwd)}, timeout=PATIENCE)
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace", **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout + done.stderr


class Display:
    """An X server of one screen that nobody sees."""

    WIDTH, HEIGHT = 800, 600

    def __init__(self):
        self.directory = Path(tempfile.mkdtemp())
        reader, writer = os.pipe()
        screen = f"{self.WIDTH}x{self.HEIGHT}x24"
        command = ["Xvfb", "-displayfd", str(writer), "-screen", "0", screen, "-fbdir", str(self.directory)]
        with open(self.directory / "log", "w") as log:
            self.server = subprocess.Popen([*command, "-nolisten", "tcp"], pass_fds=[writer], stdout=log, stderr=log)
        os.close(writer)
        with open(reader) as numbers:
            number = numbers.readline().strip()
        assert number, (self.directory / "log").read_text()
        self.environment = {**os.environ, "DISPLAY": f":{number}"}

    def colors(self):
        """How many colours there are on the screen."""
        pixels = (self.directory / "Xvfb_screen0").read_bytes()[-4 * self.WIDTH * self.HEIGHT :]
        return len({pixels[at : at + 4] for at in range(0, len(pixels), 4)})

    def wait_for_colors(self, count):
        """Whether there are at some time more than `count` colours."""
        deadline = time.monotonic() + PATIENCE / 2
        while self.colors() <= count:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def end(self):
        self.server.terminate()
        self.server.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture(scope="module")
def display():
    """A display for programs that have none of their own."""
    made = Display()
    yield made
    made.end()
