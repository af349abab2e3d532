#!/usr/bin/env bash
# A 64-bit Arm machine in a folder: Debian 12 with Python 3.11, a C++ compiler and torch, emulated by QEMU's user mode.
#
#   machine.sh make DIR REQUIREMENT...   what of it is not there yet; as root, with debootstrap and qemu-user-static
#   machine.sh run DIR COMMAND...        run a command in it, in this repository; as root
#
# QEMU_CPU is its processor; without that it has all that QEMU knows but SVE, with which torch's own products of matrices are
# wrong under QEMU 7.2. It is for what is true: nothing about speed can be seen.
# CXX is Debian's cross compiler, of the same version as g++ in it, and runs without emulation. CXX=g++ is the emulated one.
set -eu

usage() {
    sed -n '2,9s/^# \?//p' "$0" >&2
    exit 2
}

[ $# -ge 2 ] || usage
action=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
shift 2
repository=$(cd "$(dirname "$0")/../.." && pwd)
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

fail() {
    echo "$1" >&2
    exit 1
}

# What is left of a command's mounts, however it ends, goes with its namespace; so do its processes.
apart=(unshare --mount --pid --fork --kill-child --mount-proc)

register() {
    local known=/proc/sys/fs/binfmt_misc
    [ -e $known/status ] || mount -t binfmt_misc binfmt_misc $known
    [ -e $known/qemu-aarch64 ] || cat /usr/lib/binfmt.d/qemu-aarch64.conf >$known/register
    grep -q '^flags:.*F' $known/qemu-aarch64 ||
        fail "$known/qemu-aarch64 has no flag F: what it names would be looked up in $dir; register it with F"
}

# A part that was begun and not ended is made anew. --one-file-system: nothing of another system is taken for a part of it.
make_part() {
    local part=$1 made=$2
    shift 2
    if [ -e "$dir/.$part" ] && [ "$(cat "$dir/.$part")" = "$*" ]; then return 0; fi
    mkdir -p "$dir/$made"
    find "$dir/$made" -mindepth 1 -maxdepth 1 ! -name .machine -exec rm -rf --one-file-system {} +
    "make_$part" "$@"
    echo "$*" >"$dir/.$part"
}

make_system() {
    "${apart[@]}" debootstrap --arch=arm64 --variant=minbase \
        --include=python3,python3-venv,python3-dev,g++,binutils,git,ca-certificates,libgomp1 bookworm "$dir" "$mirror"
}

make_compiler() {
    "${apart[@]}" debootstrap --arch=amd64 --variant=minbase --include=g++-aarch64-linux-gnu bookworm "$dir/opt/cross" "$mirror"
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

# QEMU says what the processor has, but not in the files where torch's libraries count the processors and look for their
# kind, and without that end calls for float16 and int8.
cpu_files() {
    local count cpu
    count=$(nproc)
    mount -t tmpfs tmpfs "$dir/sys"
    for cpu in $(seq 0 $((count - 1))); do
        mkdir -p "$dir/sys/devices/system/cpu/cpu$cpu/regs/identification"
        echo 0x00000000000f0510 >"$dir/sys/devices/system/cpu/cpu$cpu/regs/identification/midr_el1"
        printf 'processor\t: %d\nCPU implementer\t: 0x00\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0x051\nCPU revision\t: 0\n\n' \
            "$cpu" >>"$dir/sys/cpuinfo"
    done
    for each in possible present online; do echo "0-$((count - 1))" >"$dir/sys/devices/system/cpu/$each"; done
    mount --bind "$dir/sys/cpuinfo" "$dir/proc/cpuinfo"
}

enter() {
    mkdir -p "$dir/checkout"
    mount -t proc proc "$dir/proc"
    mount --rbind /dev "$dir/dev"
    mount --bind "$repository" "$dir/checkout"
    cpu_files
    # Not exec: a shell stays the first process, which sees to the end of those that lost their parent.
    chroot "$dir" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8 \
        CXX="${CXX:-/opt/cross/usr/bin/aarch64-linux-gnu-g++}" QEMU_CPU="${QEMU_CPU:-max,sve=off}" PYTHONDONTWRITEBYTECODE=1 \
        sh -c 'cd /checkout && exec "$@"' - "$@"
}

[ "$(id -u)" = 0 ] || fail "a chroot and its mounts need root"
case $action in
make)
    for tool in debootstrap qemu-aarch64-static; do
        command -v "$tool" >/dev/null || fail "$tool was not found; install debootstrap and qemu-user-static"
    done
    [ -e "$dir/.machine" ] || [ -z "$(ls -A "$dir")" ] || fail "$dir is not empty, and no machine that this made"
    touch "$dir/.machine"
    register
    make_part system .
    make_part compiler opt/cross
    make_part site site "$@"
    ;;
run)
    [ -e "$dir/.site" ] || fail "$dir has no machine: machine.sh make $dir REQUIREMENT..."
    register # it does not outlive a restart of this machine
    export -f enter cpu_files
    export dir repository
    exec "${apart[@]}" bash -eu -c 'enter "$@"' - "$@"
    ;;
*) usage ;;
esac
