#!/bin/bash
# What a mount costs, against zarr-python, zarr-python with the zarrs pipeline, TensorStore and zarrs: the table of
# docs/performance.md. Arguments go to benches/bench.py (--help says which).
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}
mkdir -p "$cache"
if ! "$cache/bench/bin/python" -c 'import numpy, tensorstore, zarr, zarrs' 2> /dev/null; then
    rm -rf "$cache/bench"
    python3 -m venv "$cache/bench"
    "$cache/bench/bin/python" -m pip install -q --disable-pip-version-check -r benches/requirements.txt
fi
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
cargo build -q --release
cargo build -q --release --manifest-path benches/peers/Cargo.toml --target-dir "$target/peers"
exec "$cache/bench/bin/python" benches/bench.py --zarrfs "$target/release/zarrfs" --peers "$target/peers/release" "$@"
