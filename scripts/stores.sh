#!/bin/bash
# The tests of object stores: a server of S3 (SeaweedFS, from the Python registry) with a proxy before it, and every
# hierarchy that another program wrote, mounted from there. Then the tests of writing and of requests with Azure (Azurite,
# from the npm registry) and Google (tests/stores/gcs.py), and those of web servers (nginx and others, of Debian).
#
#   scripts/stores.sh [arguments for pytest]     ZARRFS_BIN: the program to test [default: it is built]
#   ZARRFS_PART=10: only a tenth of the cases of tests that have many, as scripts/test.sh does
#   ZARRFS_LONG=1: all tests with Azure and Google, every hierarchy on each web server, several machines (network
#   namespaces, as root), and the same tests on Ceph (installs Debian's radosgw)
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '== %s (after %d s)\n' "$*" "$SECONDS"; }
cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}
mkdir -p "$cache"
scripts/environment stores tests/stores/requirements.txt > /dev/null
azurite=3.35.0
if [ "$(cat "$cache/azurite/zarrfs-stamp" 2> /dev/null)" != "$azurite" ]; then
    echo "installing into $cache/azurite"
    npm install --prefix "$cache/azurite" --silent --no-audit --no-fund --no-save "azurite@$azurite"
    echo "$azurite" > "$cache/azurite/zarrfs-stamp"
fi
if [ -z "${ZARRFS_BIN:-}" ]; then
    cargo build --locked -q
    target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    export ZARRFS_BIN=$target/debug/zarrfs
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/zarrfs-stores.XXXXXX")
cleanup() {
    code=$?
    trap '' INT TERM
    for process in ${server:-} ${ceph:-} ${other:-} ${web:-}; do
        { kill "$process" 2> /dev/null && wait "$process" 2> /dev/null; } || true
    done
    rm -rf --one-file-system "$work"
    # The server leaves its sockets.
    for port in ${master:-} ${volume:-} ${filer:-} ${s3:-}; do
        rm -f /tmp/seaweedfs-*-"$port".sock /tmp/seaweedfs-*-grpc-$((port + 10000)).sock
    done
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

export AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any
read -r master volume filer s3 blob gcs <<< "$(python3 - <<'PYTHON'
import socket
# A port and that port plus 10000 are used by each part of the server. The kernel gives those from 32768 on to clients.
def is_free(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) != 0
print(*[port for port in range(12000, 22000) if is_free(port) and is_free(port + 10000)][:6])
PYTHON
)"
"$cache/stores/bin/weed" server -dir="$work" -ip=127.0.0.1 -master.port="$master" -volume.port="$volume" \
    -filer.port="$filer" -s3 -s3.port="$s3" -s3.port.iceberg=0 -s3.port.lance=0 -volume.max=50 -master.volumeSizeLimitMB=128 > "$work/weed.log" 2>&1 &
server=$!
export ZARRFS_SERVER=http://127.0.0.1:$s3 AWS_ENDPOINT_URL=http://127.0.0.1:$s3
# Creates the bucket as soon as the server answers, which the process $1 is.
make_bucket() {
    for _ in {1..600}; do
        [ "$(curl -s --aws-sigv4 aws:amz:us-east-1:s3 --user any:any -H "x-amz-content-sha256: $(sha256sum < /dev/null | cut -c-64)" \
            -o "$work/answer" -w '%{http_code}' -X PUT "$ZARRFS_SERVER/zarrfs")" = 200 ] && return
        kill -0 "$1" 2> /dev/null || break
        sleep 0.1
    done
    cat "$work"/*.log "$work"/*/start.log >&2
    return 1
}
make_bucket "$server"
for program in nginx:nginx-light apache2:apache2 lighttpd:lighttpd caddy:caddy; do
    PATH=$PATH:/usr/sbin command -v "${program%:*}" > /dev/null || missing+=("${program#*:}")
done
# They are started by the tests alone.
[ -z "${missing:-}" ] || RUNLEVEL=1 apt-get install -y -q --no-install-recommends "${missing[@]}" > /dev/null
export PATH=$PATH:/usr/sbin
# The tests mostly wait for servers.
python="$cache/stores/bin/python -m pytest -q -n ${ZARRFS_WORKERS:-$(($(nproc) * 2))} -p no:cacheprovider"
export PYTHONPYCACHEPREFIX=$cache/pycache
all() {
    timeout --kill-after=30 2400 $python --basetemp="$work/pytest" tests/stores --ignore=tests/stores/test_machines.py ${all_but:-} "$@"
    [ $# -gt 0 ] || timeout --kill-after=30 1200 $python --basetemp="$work/fixtures" tests/peers/test_fixtures.py
}
# Mounts every hierarchy from a web server of the form $1.
on_web() {
    mkdir "$work/web-$1"
    "$cache/stores/bin/python" tests/stores/web.py "$1" "$work/web-$1" > "$work/url-$1" &
    web=$!
    until [ -s "$work/url-$1" ]; do kill -0 "$web"; sleep 0.1; done
    ZARRFS_WEB="$(cat "$work/url-$1") $work/web-$1" timeout --kill-after=30 1200 $python --basetemp="$work/on-$1" tests/peers/test_fixtures.py
    kill "$web" && { wait "$web" || true; }
    web=
}
all "$@"
[ $# = 0 ] || exit 0
say nginx
on_web nginx-json

# Runs the tests with another provider, whose server the process $1 is and whose bucket "$3..." creates.
provider() {
    local process=$1 name=$2
    shift 2
    for _ in {1..600}; do
        "$@" > "$work/answer" 2>&1 && break
        kill -0 "$process" 2> /dev/null || { cat "$work/answer" "$work/$name.log" >&2; return 1; }
        sleep 0.1
    done
    export ZARRFS_PROVIDER=$name
    if [ "${ZARRFS_LONG:-}" = 1 ]; then
        # These start a server of S3.
        all_but="--ignore=tests/stores/test_credentials.py --ignore=tests/stores/test_pages.py" all
    else
        timeout --kill-after=30 1200 $python --basetemp="$work/pytest" tests/stores/test_requests.py tests/stores/test_writing.py \
            tests/stores/test_read_only.py \
            -k "not fault and not refusal and not wrong_range"
    fi
    unset ZARRFS_PROVIDER
    kill "$process" && wait "$process" || true
}
s3_server=$ZARRFS_SERVER
say Azure
export AZURE_STORAGE_ACCOUNT=devstoreaccount1
# The key of every emulator: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite
export AZURE_STORAGE_ACCOUNT_KEY=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
export ZARRFS_SERVER=http://127.0.0.1:$blob
export AZURE_STORAGE_ENDPOINT=$ZARRFS_SERVER/$AZURE_STORAGE_ACCOUNT
"$cache/azurite/node_modules/.bin/azurite-blob" --inMemoryPersistence --skipApiVersionCheck --silent --blobPort "$blob" > "$work/az.log" 2>&1 &
other=$!
provider "$other" az "$cache/stores/bin/python" tests/stores/azure.py "$ZARRFS_SERVER" zarrfs
say Google
export ZARRFS_SERVER=http://127.0.0.1:$gcs STORAGE_EMULATOR_HOST=http://127.0.0.1:$gcs
"$cache/stores/bin/python" tests/stores/gcs.py "$gcs" > "$work/gs.log" 2>&1 &
other=$!
provider "$other" gs curl -sf -X PUT "$ZARRFS_SERVER/zarrfs"
other=
export ZARRFS_SERVER=$s3_server
[ "${ZARRFS_LONG:-}" = 1 ] || exit 0

for form in nginx-html nginx-whole apache apache-dav lighttpd python caddy; do
    say "$form"
    on_web "$form"
done
say "several machines"
command -v faketime > /dev/null || apt-get install -y -q --no-install-recommends faketime > /dev/null
timeout --kill-after=30 2400 $python -n 1 --basetemp="$work/pytest" tests/stores/test_machines.py
say Ceph
command -v radosgw ceph-mon ceph-osd > /dev/null || apt-get install -y -q --no-install-recommends radosgw ceph-mon ceph-osd > /dev/null
tests/stores/radosgw.sh "$work/ceph" $((s3 + 1)) &
ceph=$!
export ZARRFS_SERVER=http://127.0.0.1:$((s3 + 1)) AWS_ENDPOINT_URL=http://127.0.0.1:$((s3 + 1))
make_bucket "$ceph"
# These start a server of their own.
all_but="--ignore=tests/stores/test_credentials.py"
all
