#!/bin/bash
# Builds the packages of zarrfs into target/packages: a Debian package, an rpm, a Python wheel, and an archive for other
# systems. All hold the same program, which needs no glibc newer than 2.28 (RHEL 8, Debian 10, Ubuntu 20.04).
#
#   scripts/package.sh                build everything
#   scripts/package.sh --no-publish   the same, without the check that crates.io would accept the source
#   scripts/package.sh --share        make only what the packages hold beside the program, with a debug build
#
# It installs its tools into ${ZARRFS_TEST_CACHE:-~/.cache/zarrfs-tests}/package: ziglang, cargo-zigbuild and maturin
# from the Python registry, and cargo-deb and cargo-generate-rpm from crates.io. scripts/package-test.sh installs the packages.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'scripts/package.sh: %s\n' "$*" >&2; exit 1; }

publish=yes only_share=
for argument in "$@"; do
    case $argument in
        --no-publish) publish= ;;
        --share) only_share=yes ;;
        *) fail "unknown argument: $argument" ;;
    esac
done
command -v cargo > /dev/null || fail "cargo is missing: install a Rust toolchain (https://rustup.rs)"
[ "$(uname -m)" = x86_64 ] || fail "packages are built for x86_64 only, and this machine is $(uname -m)"

glibc=2.28
triple=x86_64-unknown-linux-gnu
# The recipes of the packages in Cargo.toml expect these places.
export CARGO_TARGET_DIR=$PWD/target
packages=$CARGO_TARGET_DIR/packages
share=$packages/share
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}

cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}/package
mkdir -p "$cache"
tools() {
    local python=(ziglang==0.17.1 cargo-zigbuild==0.24.1 maturin==1.16.0) crates=(cargo-deb@3.8.0 cargo-generate-rpm@0.21.1)
    local stamp="${python[*]} ${crates[*]}"
    [ "$(cat "$cache/zarrfs-stamp" 2> /dev/null)" != "$stamp" ] || return 0
    say "installing into $cache: $stamp (some minutes)"
    python3 -m venv "$cache"
    "$cache/bin/python" -m pip install -q --disable-pip-version-check "${python[@]}"
    local crate
    for crate in "${crates[@]}"; do
        # Their speed does not matter, so they are not optimised when they are linked.
        CARGO_TARGET_DIR=$cache/build CARGO_PROFILE_RELEASE_LTO=off cargo install -q --locked --root "$cache" "$crate"
    done
    rm -rf "${cache:?}/build"
    echo "$stamp" > "$cache/zarrfs-stamp"
}

# What the packages hold beside the program.
make_share() {
    local program=$1 shell page
    rm -rf "$share"
    mkdir -p "$share"
    "$program" man "$share/man"
    for page in "$share"/man/man?/*; do gzip -9n "$page"; done
    mkdir "$share/completions"
    for shell in bash zsh fish; do "$program" completions "$shell" > "$share/completions/zarrfs.$shell"; done
    scripts/licences "$share"
    gzip -9nk "$share/third-party-licences.txt"
    gzip -9nc CHANGELOG.md > "$share/changelog.gz"
    find "$share" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

if [ -n "$only_share" ]; then
    cargo build --locked -q
    make_share "$CARGO_TARGET_DIR/debug/zarrfs"
    exit
fi
tools
export PATH=$cache/bin:$PATH

say "the program, for glibc $glibc"
cargo zigbuild --locked -q --profile dist --target "$triple.$glibc"
program=$CARGO_TARGET_DIR/$triple/dist/zarrfs
scripts/glibc "$program" "$glibc"
make_share "$program"

say "Debian package"
rm -f "$packages"/*.deb "$packages"/*.rpm "$packages"/*.whl "$packages"/*.tar.gz
cargo deb -q --no-build --no-strip --target "$triple" --profile dist -o "$packages/"

say "rpm"
cargo generate-rpm --auto-req builtin --target "$triple" --profile dist -o "$packages/"

say "Python wheel"
# The licences of the dependencies, beside the module.
licences=python/zarrfs/third-party-licences.txt
trap 'rm -f "$licences"' EXIT
cp "$share/third-party-licences.txt" "$licences"
maturin build --quiet --locked --profile dist --zig --target "$triple" --compatibility "manylinux_${glibc/./_}" --out "$packages"
rm -f "$licences"

say "archive"
name=zarrfs-$version-x86_64-linux
tree=$packages/$name
rm -rf "$tree"
mkdir -p "$tree"/{bin,sbin,share/bash-completion/completions,share/zsh/site-functions,share/fish/vendor_completions.d} \
    "$tree"/share/doc/zarrfs/{docs,examples} "$tree/lib/systemd/system"
install -m 755 "$program" "$tree/bin/zarrfs"
for link in mount.zarrfs mount.fuse.zarrfs; do ln -s ../bin/zarrfs "$tree/sbin/$link"; done
cp -R "$share/man" "$tree/share/"
cp "$share/completions/zarrfs.bash" "$tree/share/bash-completion/completions/zarrfs"
cp "$share/completions/zarrfs.zsh" "$tree/share/zsh/site-functions/_zarrfs"
cp "$share/completions/zarrfs.fish" "$tree/share/fish/vendor_completions.d/"
cp README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$share/third-party-licences.txt" packaging/apparmor/zarrfs.apparmor \
    "$tree/share/doc/zarrfs/"
cp docs/*.md docs/*.svg "$tree/share/doc/zarrfs/docs/"
cp packaging/systemd/*mount "$tree/share/doc/zarrfs/examples/"
# The archive is for /usr/local.
sed 's|/usr/bin/zarrfs|/usr/local/bin/zarrfs|' packaging/systemd/zarrfs@.service > "$tree/lib/systemd/system/zarrfs@.service"
tar -C "$packages" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$name" |
    gzip -9n > "$packages/$name.tar.gz"
rm -rf "$tree"

if [ -n "$publish" ]; then
    say "what crates.io would get"
    # A tree with changes is refused, as it is when one publishes.
    cargo publish --dry-run --locked -q
fi

say "built"
(cd "$packages" && ls -l ./*.deb ./*.rpm ./*.whl ./*.tar.gz)
