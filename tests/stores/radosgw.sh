#!/bin/bash
# Starts a Ceph of one monitor and one OSD in memory, with its gateway for S3 (Debian: radosgw ceph-mon ceph-osd), and
# waits for the gateway. The keys are those of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
#
#   tests/stores/radosgw.sh DIRECTORY PORT        the port above PORT is used, too
set -euo pipefail
mkdir -p "$1"
cd "$1"
directory=$PWD port=$2 monitor=$(($2 + 1))
cluster=$(< /proc/sys/kernel/random/uuid) osd=$(< /proc/sys/kernel/random/uuid)
cat > ceph.conf <<CONF
[global]
fsid = $cluster
mon host = [v2:127.0.0.1:$monitor]
$(printf 'auth %s required = none\n' cluster service client)
$(printf 'ms %s mode = crc\n' "mon client" "mon service" "mon cluster" client service cluster)
keyring = $directory/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd objectstore = memstore
memstore device bytes = 2147483648
osd crush chooseleaf type = 0
run dir = $directory
admin socket = $directory/\$name.asok
pid file = $directory/\$name.pid
log file = $directory/\$name.log
mon data = $directory/mon
osd data = $directory/osd
rgw data = $directory/rgw
rgw frontends = beast endpoint=127.0.0.1:$port
debug mon = 0
debug osd = 0
debug rgw = 0
CONF
mkdir -p mon osd rgw
ended() {
    code=$?
    kill $(cat ./*.pid 2> /dev/null) 2> /dev/null || true
    exit "$code"
}
trap ended EXIT
trap 'exit 143' INT TERM
{
    ceph-authtool --create-keyring keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
    monmaptool --create --fsid "$cluster" --addv a "[v2:127.0.0.1:$monitor]" monmap
    ceph-mon -c ceph.conf --mkfs -i a --monmap monmap
    ceph-mon -c ceph.conf -i a
    ceph -c ceph.conf osd new "$osd"
    ceph-osd -c ceph.conf -i 0 --mkfs --osd-uuid "$osd"
    ceph-osd -c ceph.conf -i 0
    radosgw-admin -c ceph.conf user create --uid=tests --display-name=tests \
        --access-key="$AWS_ACCESS_KEY_ID" --secret-key="$AWS_SECRET_ACCESS_KEY"
} >> start.log 2>&1
radosgw -c ceph.conf -n client.admin -f >> start.log 2>&1 &
wait $!
