# A recipe for Spack. Not run: no Spack can be had where zarrfs is tested. `python3 -m py_compile`
# accepts it.
from spack_repo.builtin.build_systems.cargo import CargoPackage

from spack.package import *


class Zarrfs(CargoPackage):
    """zarrfs mounts a Zarr hierarchy as a file system: every chunk is a plain, decoded file, and
    every array and group can be opened as one file of another format (netCDF, HDF5, NumPy, ...)."""

    # zarrfs has no published release yet: replace the address and the sum.
    url = "https://example.invalid/zarrfs-0.1.0.tar.gz"

    license("MIT OR Apache-2.0")

    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    variant("remote", default=True, description="Mount hierarchies from S3, too")

    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")
    # fusermount3 has its set-user-ID bit from the system, so it cannot come from Spack.

    conflicts("platform=darwin", msg="zarrfs needs FUSE of Linux")
    conflicts("platform=windows", msg="zarrfs needs FUSE of Linux")

    @property
    def build_args(self):
        return ["--locked"] if self.spec.satisfies("+remote") else ["--locked", "--no-default-features"]

    @run_after("install")
    def install_pages(self):
        program = Executable(self.prefix.bin.zarrfs)
        program("man", self.prefix.share.man)
        places = {
            "bash": join_path(self.prefix.share, "bash-completion", "completions", "zarrfs"),
            "zsh": join_path(self.prefix.share, "zsh", "site-functions", "_zarrfs"),
            "fish": join_path(self.prefix.share, "fish", "vendor_completions.d", "zarrfs.fish"),
        }
        for shell, path in places.items():
            mkdirp(ancestor(path))
            with open(path, "w", encoding="utf-8") as file:
                program("completions", shell, output=file)
