#!/usr/bin/env bash
# Builds zarrfs, makes a sample hierarchy, mounts it and shows it. It stays mounted.
#
#   scripts/demo.sh [DIR]      DIR is where the sample goes: missing or empty [zarrfs-demo]
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:-zarrfs-demo}

command -v cargo >/dev/null || { echo "demo.sh: cargo is missing: install a Rust toolchain (1.88 or newer)" >&2; exit 1; }
command -v cc >/dev/null || { echo "demo.sh: cc is missing: install a C compiler (Debian: apt-get install gcc)" >&2; exit 1; }
[ -e /dev/fuse ] || { echo "demo.sh: /dev/fuse is missing: nothing can be mounted here (modprobe fuse, or give the container the device)" >&2; exit 1; }
if [ "$(id -u)" != 0 ] && ! command -v fusermount3 >/dev/null; then
  echo "demo.sh: fusermount3 is missing: install it (Debian: apt-get install fuse3), or be root" >&2
  exit 1
fi

echo "Building (the first time takes some minutes) ..."
cargo build --release --locked --quiet
target=${CARGO_TARGET_DIR:-target}
PATH="$(realpath "$target/release"):$PATH" zarrfs demo "$dir"
echo
echo "The program is $(realpath "$target/release/zarrfs")."
