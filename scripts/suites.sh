#!/bin/bash
# Runs test suites that others have written for file systems on mounts of zarrfs: on ordinary files, on chunk files of
# each codec, and on views; and compares the hierarchies of zarrs' and zarr-java's tests with what other programs read.
# It prints a line for each place.
#
#   scripts/suites.sh [SUITE..]     as root, on Debian. Suites [default: all]: pjdfstest pjdfstest-c fsx fsx-c fsstress
#                                   fio stress-ng xfstests ltp stored
#
# Exit code 1 if a test fails that is not in tests/suites/SUITE.expected, and if one passes that is. UPDATE=1 writes
# these lists anew; then put a reason in place of what the suite has said. zarr-python's own tests are no part of this:
# tests/peers/test_zarr_python_suite.py runs them.
#   OPERATIONS: how many fsx does on each place [default: 20000]. SECONDS_EACH: how long a stressor works [default: 5].
#   XFSTESTS: what xfstests runs [default: -g quick]; a test is generic/001.
#   PLACES: only places whose names match this regular expression.
#   ZARRFS_BIN: the program to test [default: it is built]. LOGS: where logs are written [default: target/suites].
#   XFSTESTS_SOURCE, PJDFSTEST_SOURCE, LTP_SOURCE, ZARRS_SOURCE, ZARR_JAVA_SOURCE: what git clones [default: their public
#   repositories]. A suite whose source cannot be reached is not run, and its line says so.
set -euo pipefail
# In a mount namespace of its own. Otherwise a namespace that another program makes meanwhile would hold the mounts.
if [ "$(id -u)" = 0 ] && [ -z "${ZARRFS_UNSHARED:-}" ]; then
    export ZARRFS_UNSHARED=1
    exec unshare --mount "$0" "$@"
fi
cd "$(dirname "$0")/.."
case "${1:-}" in -*) sed -n '2,18s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
[ "$(id -u)" = 0 ] || { echo "scripts/suites.sh: only root can run these suites: they change owners and users" >&2; exit 1; }
cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}
at=$cache/suites
mkdir -p "$at/bin"
wanted() { [ -z "${names:-}" ] || [[ " $names " == *" $1 "* ]]; }
names=$*

packages=()
need() { [ -e "$1" ] || command -v "$1" > /dev/null || packages+=("$2"); }
need fusermount3 fuse3
if wanted fio; then need fio fio; fi
if wanted stress-ng; then need stress-ng stress-ng; fi
if wanted pjdfstest || wanted pjdfstest-c; then need /usr/include/sys/acl.h libacl1-dev; fi
if wanted fsx-c || wanted fsstress || wanted xfstests; then
    need /usr/include/xfs/xfs.h xfslibs-dev
    need /usr/include/uuid/uuid.h uuid-dev
    need /usr/include/libaio.h libaio-dev
    need /usr/include/attr/attributes.h libattr1-dev
fi
if wanted xfstests; then
    need /usr/include/sys/acl.h libacl1-dev
    for name in xfsprogs attr acl gawk bc psmisc; do need "/usr/share/doc/$name" "$name"; done
fi
if wanted fsx-c || wanted fsstress || wanted xfstests || wanted ltp || wanted pjdfstest-c || wanted stored; then
    need git git
fi
if wanted fsx-c || wanted fsstress || wanted xfstests || wanted ltp || wanted pjdfstest-c; then
    need cc gcc
    need make make
    need autoreconf autoconf
    need automake automake
    need libtoolize libtool
    need pkg-config pkg-config
fi
if [ ${#packages[@]} -gt 0 ]; then
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q && apt-get install -y -q --no-install-recommends "${packages[@]}"; } > "$at/apt.log" 2>&1 ||
        { cat "$at/apt.log" >&2; exit 1; }
fi
crate() {
    "$at/bin/$1" --version 2> /dev/null | grep -q " $2\$" || cargo install --locked -q --force --root "$at" "$1@$2"
}
if wanted pjdfstest; then crate pjdfstest 0.2.2; fi
if wanted fsx; then crate fsx 0.3.2; fi

# Clones a repository and builds a part of it.
source_of() {
    local name=$1 url=$2
    shift 2
    rm -rf "$at/$name-source"
    echo "building $name from $url" >&2
    (git clone -q --depth 1 "$url" "$at/$name-source" && cd "$at/$name-source" && "$@") > "$at/$name.log" 2>&1 ||
        { echo "$name could not be built: $(tail -1 "$at/$name.log")" >&2; return 1; }
}
build_pjdfstest() { autoreconf -ifs && ./configure -q && make -s; }
build_xfstests() {
    # Parts of it need more libraries. Only two programs are of use.
    make configure && ./configure -q && make -s -C lib && make -s -C ltp fsx fsstress
}
build_all_of_xfstests() {
    make configure && ./configure -q && make -s -j "$(nproc)" &&
        # The type of the mounts has a subtype.
        sed -i "s,-e 's/fuse.glusterfs,-e 's/fuse.zarrfs/fuse/' &," common/rc
}
build_ltp() {
    make autotools && ./configure -q && make -s -j "$(nproc)" -C lib && make -s -j "$(nproc)" -C libs &&
        chmod +x testcases/kernel/fs/doio/rwtest && mkdir -p testcases/bin &&
        ln -s ../kernel/fs/doio/iogen ../kernel/fs/doio/doio testcases/bin/ && make -s -j "$(nproc)" -C testcases/lib &&
        for part in fs/{acl,doio,fs_di,fs_inod,fsplough,fsstress,fsx-linux,ftest,inode,lftest,linktest,openfile,racer,stream} \
            io/writetest; do
            make -s -j "$(nproc)" -C "testcases/kernel/$part"
        done
}
xfstests=${XFSTESTS_SOURCE:-https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git}
if wanted pjdfstest-c && [ ! -x "$at/pjdfstest-c/pjdfstest" ]; then
    if source_of pjdfstest-c "${PJDFSTEST_SOURCE:-https://github.com/pjd/pjdfstest}" build_pjdfstest; then
        rm -rf "$at/pjdfstest-c" && mv "$at/pjdfstest-c-source" "$at/pjdfstest-c"
    fi
fi
if { wanted fsx-c && [ ! -x "$at/bin/fsx-c" ]; } || { wanted fsstress && [ ! -x "$at/bin/fsstress" ]; }; then
    if source_of xfstests "$xfstests" build_xfstests; then
        cp "$at/xfstests-source/ltp/fsx" "$at/bin/fsx-c"
        cp "$at/xfstests-source/ltp/fsstress" "$at/bin/"
        rm -rf "$at/xfstests-source"
    fi
fi
if wanted xfstests && [ ! -x "$at/xfstests/check" ]; then
    if source_of xfstests "$xfstests" build_all_of_xfstests; then
        rm -rf "$at/xfstests" && mv "$at/xfstests-source" "$at/xfstests"
    fi
fi
if wanted ltp && [ ! -e "$at/ltp/runtest/fs" ]; then
    if source_of ltp "${LTP_SOURCE:-https://github.com/linux-test-project/ltp}" build_ltp; then
        rm -rf "$at/ltp" && mv "$at/ltp-source" "$at/ltp"
    fi
fi
if wanted stored; then
    for one in "zarrs ${ZARRS_SOURCE:-https://github.com/zarrs/zarrs}" "zarr-java ${ZARR_JAVA_SOURCE:-https://github.com/zarr-developers/zarr-java}"; do
        read -r name url <<< "$one"
        [ -d "$at/$name" ] || { source_of "$name" "$url" true && mv "$at/$name-source" "$at/$name"; } || true
    done
fi

python=$(scripts/environment py3 tests/peers/requirements-py3.txt)
if [ -z "${ZARRFS_BIN:-}" ]; then
    cargo build --locked -q --release
    target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    ZARRFS_BIN=$target/release/zarrfs
fi
export ZARRFS_BIN ZARRFS_SUITES=$at PYTHONPYCACHEPREFIX=$cache/pycache
exec "$python" tests/suites/run.py "$@"
