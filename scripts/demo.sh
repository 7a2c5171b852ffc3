#!/usr/bin/env bash
# Builds zarrfs, makes a sample hierarchy, mounts it and shows it. It stays mounted, and can be run again.
#
#   scripts/demo.sh [DIR]      DIR is where the sample goes: missing, empty, or that of an earlier run [zarrfs-demo]
#
# It installs what it needs from the packages of Debian or Ubuntu (fuse3, gcc), if it may. ZARRFS_BIN=PROGRAM shows a
# program that is built already.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
. scripts/needs.sh
case $# in
0) set -- zarrfs-demo ;;
1) [ "${1#-}" = "$1" ] || { sed -n '2,7s/^# \{0,1\}//p' scripts/demo.sh; exit 2; } ;;
*) fail "only one argument, the directory for the sample" ;;
esac
dir=$(realpath -m -- "$here/$1")
case $1 in /*) dir=$1 ;; esac

echo "This builds zarrfs (the first time 5 to 12 minutes on two processors, and 2 GB in the folder target; later"
echo "seconds), makes a sample of 1 MB in $dir, mounts it, and shows it. It installs only packages of the system."

# Before the build: what would fail after it.
if [ -e "$dir" ]; then
    [ -d "$dir" ] || fail "$dir is not a directory: name another one"
    # zarrfs looks whether climate.zarr is its sample.
    others=
    [ -e "$dir/climate.zarr" ] || others=$(find "$dir" -mindepth 1 -maxdepth 1 ! -name mnt ! -name two-floats -printf '%f' -quit)
    [ -z "$others" ] || fail "$dir is not empty (it has $others): name another directory"
fi
[ -n "${ZARRFS_BIN:-}" ] || { need_rust; need_compiler; }
[ "$(id -u)" = 0 ] || need fusermount3 fuse3
can_install
need_fuse
if [ ${#packages[@]} -gt 0 ]; then
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    install_programs "$log"
fi
[ "$(id -u)" = 0 ] || [ -u "$(realpath "$(command -v fusermount3)")" ] ||
    fail "fusermount3 cannot mount for $(id -un): let root run chmod u+s $(command -v fusermount3)"

program=${ZARRFS_BIN:-}
if [ -z "$program" ]; then
    target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
    mkdir -p "$target" 2> /dev/null && [ -w "$target" ] ||
        fail "$(id -un) may not write to $target: set CARGO_TARGET_DIR to a folder for the build"
    if [ ! -e "$target/release/zarrfs" ]; then
        free=$(df --output=avail -BM "$target" | tail -n 1 | tr -dc 0-9)
        [ "$free" -ge 2000 ] || fail "$target has $free MB free, and the build needs 2000: free some, or set CARGO_TARGET_DIR"
    fi
    trap 'echo "demo.sh: interrupted: what was compiled is kept, so run it again to go on" >&2; exit 130' INT
    cargo build --release --locked ||
        fail "the build failed, as cargo says above (without a network, it needs the packages of crates.io in ~/.cargo)"
    trap - INT
    program=$target/release/zarrfs
fi
program=$(realpath -- "$program")
"$program" demo "$dir"
cat <<END

To go on from here:

    export PATH="${program%/*}:\$PATH"
    cd $(printf %q "$dir")
END
