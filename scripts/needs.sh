# What demo.sh and test.sh need of a machine; both source this. Whatever the system's packages have is installed.

fail() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

packages=()
# need PROGRAM PACKAGE...: the packages are to be installed if there is no such program.
need() { command -v "$1" > /dev/null || packages+=("${@:2}"); }

need_compiler() {
    # The packages that gcc only recommends are not installed with it.
    need cc gcc libc6-dev
    [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e /etc/pki/tls/certs/ca-bundle.crt ] ||
        packages+=(ca-certificates)
}

need_rust() {
    # rustup installs into this directory, and only a new shell has it in PATH.
    command -v cargo > /dev/null || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
    local oldest found
    oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    local remedy="Rust cannot be installed from here: install Rust $oldest or newer by the command that https://rustup.rs names"
    command -v cargo > /dev/null || fail "cargo is missing, and $remedy"
    found=$(rustc --version 2> /dev/null | cut -d' ' -f2) || true
    [ -n "$found" ] || fail "rustc is missing, or does not run, and $remedy"
    [ "$(printf '%s\n' "$oldest" "${found%%-*}" | sort -V | head -n 1)" = "$oldest" ] ||
        fail "Rust $found is too old, and $remedy"
}

# Whether this process may mount, and what to do if it may not.
need_fuse() {
    [ -c /dev/fuse ] || "${as_root[@]}" modprobe fuse 2> /dev/null || true
    [ -c /dev/fuse ] || fail "/dev/fuse is missing, so nothing can be mounted: load the kernel module (modprobe fuse), \
or start the container with --device /dev/fuse --cap-add SYS_ADMIN"
    [ -r /dev/fuse ] && [ -w /dev/fuse ] || fail "$(id -un) may not use /dev/fuse: let root run chmod 666 /dev/fuse"
    if [ "$(id -u)" = 0 ]; then
        # Bit 21 is CAP_SYS_ADMIN.
        (((0x$(awk '/^CapEff/ { print $2 }' /proc/self/status) >> 21) & 1)) ||
            fail "root may not mount in this container: start it with --device /dev/fuse --cap-add SYS_ADMIN"
    elif [ ! -e /etc/mtab ]; then
        # Trees of debootstrap lack it.
        "${as_root[@]}" ln -s ../proc/self/mounts /etc/mtab ||
            fail "/etc/mtab is missing, and fusermount3 cannot unmount without it: let root run ln -s ../proc/self/mounts /etc/mtab"
    fi
}

# Before this command, programs run as root: nothing for root, sudo if it asks for no password, else a failure.
as_root=(false)
if [ "$(id -u)" = 0 ]; then
    as_root=(env)
elif sudo -n true 2> /dev/null; then
    as_root=(sudo -n env)
fi

# Fails if the packages cannot be installed, before anything is tried.
can_install() {
    [ ${#packages[@]} -gt 0 ] || return 0
    command -v apt-get > /dev/null ||
        fail "there is no apt-get here, so install these packages first (their names in Debian): ${packages[*]}"
    [ "${as_root[0]}" != false ] || fail "some packages are missing, and only root can install them: sudo apt-get install ${packages[*]}"
}

# install_programs LOG: installs the packages.
install_programs() {
    [ ${#packages[@]} -gt 0 ] || return 0
    echo "Installing: ${packages[*]}"
    local apt=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q)
    local install=("${apt[@]}" install -y --no-install-recommends "${packages[@]}")
    "${install[@]}" > "$1" 2>&1 < /dev/null || { "${apt[@]}" update >> "$1" 2>&1 && "${install[@]}" >> "$1" 2>&1; } ||
        { tail -n 20 "$1" >&2; fail "apt-get could not install ${packages[*]}: mend what it reports above, and run this again"; }
}
