#!/usr/bin/env bash
# A 64-bit Arm machine in a folder: Debian 12 with Python 3.11, a C++ compiler and torch, emulated by QEMU's user mode.
#
#   machine.sh make DIR REQUIREMENT...   what of it is not there yet; as root, with debootstrap and qemu-user-static
#   machine.sh run DIR COMMAND...        run a command in it, in this repository; as root
#
# QEMU_CPU is its processor; without that it has all that QEMU knows. It is for what is true: nothing about speed can be seen.
# CXX is Debian's cross compiler, of the same version as g++ in it, and runs without emulation. CXX=g++ is the emulated one.
set -eu

action=$1 dir=$2
shift 2
repository=$(cd "$(dirname "$0")/../.." && pwd)
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

make_system() {
    for tool in debootstrap qemu-aarch64-static; do
        command -v "$tool" >/dev/null || { echo "$tool was not found; install debootstrap and qemu-user-static" >&2; exit 1; }
    done
    [ -e /proc/sys/fs/binfmt_misc/status ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    [ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] || cat /usr/lib/binfmt.d/qemu-aarch64*.conf >/proc/sys/fs/binfmt_misc/register
    debootstrap --arch=arm64 --variant=minbase \
        --include=python3,python3-venv,python3-dev,g++,binutils,git,ca-certificates,libgomp1 bookworm "$dir" "$mirror"
}

make_compiler() {
    debootstrap --arch=amd64 --variant=minbase --include=g++-aarch64-linux-gnu bookworm "$dir/opt/cross" "$mirror"
    ln -sfn /opt/cross/usr/lib/x86_64-linux-gnu "$dir/usr/lib/x86_64-linux-gnu"
    ln -sfn /opt/cross/usr/aarch64-linux-gnu "$dir/usr/aarch64-linux-gnu"
    ln -sfn opt/cross/lib64 "$dir/lib64"
}

make_site() {
    local platforms=(--platform manylinux2014_aarch64)
    for minor in $(seq 17 36); do platforms+=(--platform "manylinux_2_${minor}_aarch64"); done
    "${PYTHON:-python3}" -m pip install --quiet --python-version 3.11 --implementation cp "${platforms[@]}" \
        --only-binary=:all: --target "$dir/site" "$@"
    echo /site >"$dir/usr/lib/python3/dist-packages/site.pth"
}

case $action in
make)
    [ -e "$dir/.system" ] || { make_system && touch "$dir/.system"; }
    [ -e "$dir/.compiler" ] || { make_compiler && touch "$dir/.compiler"; }
    [ -e "$dir/.site" ] || { make_site "$@" && touch "$dir/.site"; }
    ;;
run)
    mkdir -p "$dir/checkout"
    # In a mount namespace of its own: nothing stays mounted.
    exec unshare --mount bash -c '
        dir=$1 repository=$2; shift 2
        mount -t proc proc "$dir/proc"; mount --rbind /dev "$dir/dev"; mount --bind "$repository" "$dir/checkout"
        exec chroot "$dir" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8 \
            CXX="${CXX:-/opt/cross/usr/bin/aarch64-linux-gnu-g++}" QEMU_CPU="${QEMU_CPU:-max}" PYTHONDONTWRITEBYTECODE=1 \
            sh -c "cd /checkout && exec \"\$@\"" - "$@"' - "$dir" "$repository" "$@"
    ;;
*)
    sed -n '2,8s/^# \?//p' "$0"
    exit 2
    ;;
esac
