if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload > /dev/null || :
fi
