#!/bin/bash
# Lets programs read, write, rename, mount, unmount and kill for hours, and prints a line each minute.
#
#   scripts/soak.sh HOURS     a fraction will do (0.02)
#
# Exit code 1, and a sentence, if a value is wrong, or if descriptors, threads, memory, temporary files or mounts do
# not return to where they were. It needs the Python environments of scripts/test.sh, and makes the first if it is absent.
#   ZARRFS_BIN: the program to run [default: it is built]. ZARRFS_SEED: the number that all choices come from.
set -euo pipefail
# In a mount namespace of its own. Otherwise a namespace that another program makes meanwhile would hold the mounts.
if [ "$(id -u)" = 0 ] && [ -z "${ZARRFS_UNSHARED:-}" ]; then
    export ZARRFS_UNSHARED=1
    exec unshare --mount "$0" "$@"
fi
cd "$(dirname "$0")/.."
[[ ${1:-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}
python=$(scripts/environment py3 tests/peers/requirements-py3.txt)
if [ -z "${ZARRFS_BIN:-}" ]; then
    cargo build --locked -q --release
    target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    ZARRFS_BIN=$target/release/zarrfs
fi
[ ! -x "$cache/py2/bin/python" ] || export ZARRFS_PY2=$cache/py2/bin/python
export ZARRFS_BIN PYTHONPYCACHEPREFIX=$cache/pycache
exec "$python" tests/peers/soak.py "$1"
