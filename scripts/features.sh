#!/bin/bash
# What each cargo feature costs: the table of docs/performance.md. Builds the program from nothing for each set of
# features, which takes half an hour on two processors.
#
#   scripts/features.sh [FEATURES..]     sets of features [default: none, each one alone, the default ones]
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d "${TMPDIR:-/tmp}/zarrfs-features.XXXXXX")
trap 'rm -rf "$work"' EXIT
export CARGO_TARGET_DIR=$work/target TIMEFORMAT='%U %S'
[ $# -gt 0 ] || set -- "" grib parquet serve remote grib,parquet,remote,serve
echo "| features | crates | processor time of the build | program, stripped |"
echo "| --- | --- | --- | --- |"
for features in "$@"; do
    rm -rf "$CARGO_TARGET_DIR"
    with=(--locked --no-default-features --features "$features")
    crates=$(cargo tree -e normal,build --prefix none "${with[@]}" | sed 's/ (\*)$//' | sort -u | wc -l)
    took=$( { time cargo build -q --release "${with[@]}" > "$work/log" 2>&1; } 2>&1 ) || { cat "$work/log" >&2; exit 1; }
    strip -o "$work/stripped" "$CARGO_TARGET_DIR/release/zarrfs"
    read -r user system <<< "$took"
    printf '| %s | %d | %.0f s | %.1f MB |\n' "${features:-none}" "$crates" "$(bc <<< "$user + $system")" \
        "$(bc -l <<< "$(stat -c %s "$work/stripped") / 1000000")"
done
