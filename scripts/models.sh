#!/bin/bash
# Looks for races: runs the models of models/ in many orders of their threads, or tests on mounts with locks that wait.
# Or shows that each model finds a fault that is put into zarrfs on purpose.
#
#   scripts/models.sh [SCHEDULES] [MODEL..]    SCHEDULES of each kind for each model [default: 200, all models]
#   scripts/models.sh faults [FAULT..]         the faults of models/faults.py, in a copy of zarrfs [all]: each must be found
#   scripts/models.sh delays [TEST..]          tests of tests/peers with a zarrfs whose locks wait at random [default: RACES below]
#
# Prints a line for each model and kind of schedule, or for each test. ZARRFS_SEED is that of the first schedules [1]; a
# failure shows the one to run again. With ZARRFS_WHERE=1 it also shows where the threads wait. The locks wait as ZARRFS_DELAYS
# says, SEED:ONE_IN:MICROSECONDS [1:20:300]: models/parking_lot/src/delayed.rs.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
# Tests of several programs that use a mount at a time.
RACES=(tests/peers/test_concurrency.py tests/peers/test_writers.py tests/peers/test_close_to_open.py tests/peers/test_waiting.py)
python3 models/manifest.py
cd models
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
mkdir -p target
build() {
    cargo build --locked "$@" > target/build.log 2>&1 || { cat target/build.log >&2; exit 1; }
}
if [ "${1:-}" = delays ]; then
    shift
    [ $# -gt 0 ] || set -- "${RACES[@]}"
    build --no-default-features --features delays --bin zarrfs-delays
    cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}
    cd "$root"
    python=$(scripts/environment py3 tests/peers/requirements-py3.txt)
    ZARRFS_PY2=$(scripts/environment py2 tests/peers/requirements-py2.txt)
    export ZARRFS_BIN=$target/debug/zarrfs-delays ZARRFS_DELAYS=${ZARRFS_DELAYS:-1:20:300}
    export PYTHONPYCACHEPREFIX=$cache/pycache PYTHONWARNINGS=ignore ZARRFS_PY2
    exec "$python" -m pytest -q -p no:cacheprovider -n "${WORKERS:-2}" "$@"
fi
if [ "${1:-}" = faults ]; then
    shift
    python3 faults.py copy target/faulty
    cd target/faulty/models
    python3 manifest.py
    export CARGO_TARGET_DIR=$target
    mkdir -p target
    build --bin zarrfs-models
    # Another build would put its program in the same place.
    cp "$target/debug/zarrfs-models" target/
    ZARRFS_SCHEDULES=${ZARRFS_SCHEDULES:-5000} exec python3 "$root/models/faults.py" try target/zarrfs-models "$@"
fi
schedules=200
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
    schedules=$1
    shift
fi
[[ ${1:-} != -* ]] || { sed -n '2,12s/^# \{0,1\}//p' "$root/scripts/models.sh" >&2; exit 2; }
build --bin zarrfs-models
# What shuttle says of a failure is in the log.
ZARRFS_SCHEDULES=${ZARRFS_SCHEDULES:-$schedules} exec "$target/debug/zarrfs-models" "$@" 2> target/models.log
