#!/bin/bash
# What a mount costs, against zarr-python, zarr-python with the zarrs pipeline, TensorStore and zarrs: the table of
# docs/performance.md. Arguments go to benches/bench.py (--help says which).
#
#   scripts/bench.sh stores [arguments for benches/stores/compare.py]     the table of hierarchies in S3
#   scripts/bench.sh kinds [arguments for benches/stores/kinds.py]     the table of all kinds of stores
#   scripts/bench.sh disk-cache [arguments for benches/stores/disk_cache.py]     the table of the disk cache
#   scripts/bench.sh check [arguments for benches/check.py]               the table of zarrfs check
#   ZARRFS_BIN: the program to measure [default: it is built]. It installs Debian's rclone and s3fs if they are absent.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}
mkdir -p "$cache"
case "${1:-}" in
    stores) script=compare.py ;;
    kinds) script=kinds.py ;;
    disk-cache) script=disk_cache.py ;;
esac
if [ -n "${script:-}" ]; then
    shift
    python=$(scripts/environment bench-stores benches/stores/requirements.txt)
    # The tables say which of them is not there.
    install() { { apt-get update -q && apt-get install -y -q --no-install-recommends "$@"; } > /dev/null || true; }
    [ "$script" != compare.py ] || command -v rclone s3fs > /dev/null || install rclone s3fs
    if [ "$script" = kinds.py ]; then
        PATH=$PATH:/usr/sbin command -v nginx > /dev/null || install nginx-light
        [ -e "$cache/azurite" ] || npm install --prefix "$cache/azurite" --silent --no-audit --no-fund --no-save azurite@3.35.0
        set -- --azurite "$cache/azurite/node_modules/.bin/azurite-blob" "$@"
    fi
    if [ -z "${ZARRFS_BIN:-}" ] && ! [[ " $* " =~ " --zarrfs" ]]; then
        target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
        cargo build --locked -q --release
        ZARRFS_BIN=$target/release/zarrfs
    fi
    export PYTHONPYCACHEPREFIX=$cache/pycache
    exec "$python" "benches/stores/$script" ${ZARRFS_BIN:+--zarrfs "$ZARRFS_BIN"} "$@"
fi
python=$(scripts/environment bench benches/requirements.txt)
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
cargo build --locked -q --release
if [ "${1:-}" = check ]; then
    shift
    exec "$python" benches/check.py --zarrfs "${ZARRFS_BIN:-$target/release/zarrfs}" "$@"
fi
cargo build -q --release --manifest-path benches/peers/Cargo.toml --target-dir "$target/peers"
exec "$python" benches/bench.py --zarrfs "$target/release/zarrfs" --peers "$target/peers/release" "$@"
