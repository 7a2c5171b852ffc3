if ! command -v fusermount3 > /dev/null && ! command -v fusermount > /dev/null; then
    echo "zarrfs: only root can mount, because fusermount3 is missing: dnf install fuse3"
fi
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload > /dev/null || :
fi
