#!/usr/bin/env bash
# scripts/setup where something is wrong: each end is one message that names the thing and the remedy; and nothing of a download
# runs, whatever its hash.  A copy of it works on a copy of what it reads, with stand-ins for the commands that it calls.
set -euo pipefail
. test/integration/needs.inc

scripts/setup --check >/dev/null || skip "what scripts/setup installs is not here"
top=$PWD
scratch=$(mktemp -d /tmp/tally-setup.XXXXXX) # not in TMPDIR: another user must get there
trap 'rm -rf "$scratch"' EXIT
checks=0
fail() {
    echo "FAIL: $*"
    cat "$scratch/said"
    exit 1
}

# The commands of this machine, but those that a case takes away or puts its own in place of.
commands=$scratch/commands
mkdir "$commands"
for folder in /usr/bin /usr/sbin /bin /sbin "$(dirname "$(command -v python3)")"; do
    for file in "$folder"/*; do ln -sf "$file" "$commands/"; done
done
for gone in sudo apt-get apt-cache nvcc ptxas cuobjdump; do rm -f "$commands/$gone"; done
stand_in() { # NAME LINE...
    local name=$1
    shift
    rm -f "$commands/$name"
    { echo '#!/bin/sh'; printf '%s\n' "$@"; } >"$commands/$name"
    chmod +x "$commands/$name"
}

tree=$scratch/tree
new_tree() {
    rm -rf "$tree"
    mkdir -p "$tree/scripts"
    cp -R scripts/setup scripts/tool scripts/wheels "$tree/scripts/"
    chmod -R a+rX "$scratch"
}
setup() { # VARIABLE=VALUE...
    (cd "$tree" && env "PATH=$commands" CUDA_HOME="$scratch/none" "$@" scripts/setup) >"$scratch/said" 2>&1 </dev/null
}
says() { # WHAT PATTERN...: it failed, and what it said has each of them
    local what=$1 pattern
    shift
    checks=$((checks + 1))
    for pattern; do grep -qE -- "$pattern" "$scratch/said" || fail "$what: nothing of '$pattern' in:"; done
    [ ! -e "$tree/build/setup.mk" ] || fail "$what: it counts as done"
}

# --- Debian's part
new_tree
! setup LLVM_CONFIG=no-such-llvm || fail "no apt-get: it went on"
says "another distribution" "has no apt-get" "llvm-19-dev"

stand_in apt-get 'echo "W: Failed to fetch it" >&2; exit 0'
stand_in apt-cache 'exit 0'
as_root=()
if [ "$(id -u)" -eq 0 ]; then
    ! setup LLVM_CONFIG=no-such-llvm || fail "no network: it went on"
    says "no network" "reaches none of the servers" "llvm-19-dev"
    # The same on a machine that has lists of an earlier time.
    stand_in apt-cache 'echo "  Candidate: 1"'
    stand_in apt-get 'case "$*" in *install*) echo "E: Failed to fetch it"; exit 100 ;; esac; echo "W: Failed to fetch it" >&2'
    ! setup LLVM_CONFIG=no-such-llvm || fail "no network, old lists: it went on"
    says "no network, old lists" "reaches none of the servers" "with a network, run this again" "llvm-19-dev"
    rm -rf "$tree/build"
    stand_in apt-get 'exit 0'
    stand_in apt-cache 'echo "  Candidate: (none)"'
    ! setup LLVM_CONFIG=no-such-llvm || fail "an old Debian: it went on"
    says "an old Debian" "has no package llvm-19-dev" "Debian 12 or newer" "LLVM_CONFIG="
    stand_in apt-cache 'echo "  Candidate: 1"'
    stand_in apt-get 'case "$*" in *install*) echo "E: You do not have enough free space"; exit 100 ;; esac'
    ! setup LLVM_CONFIG=no-such-llvm || fail "a full disk: it went on"
    says "a full disk for packages" "E: You do not have enough free space" "setup.log" "once that is mended, run this again"
    chmod -R a+rwX "$tree"
    as_root=(setpriv --reuid 65534 --regid 65534 --clear-groups)
fi
stand_in apt-get 'exit 0'
rm -rf "$tree/build"
! (cd "$tree" && "${as_root[@]}" env "PATH=$commands" LLVM_CONFIG=no-such-llvm scripts/setup) >"$scratch/said" 2>&1 || fail "no root: it went on"
says "neither root nor sudo" "neither root nor sudo" "apt-get install .*llvm-19-dev"
stand_in sudo 'exit 1'
! (cd "$tree" && "${as_root[@]}" env "PATH=$commands" LLVM_CONFIG=no-such-llvm scripts/setup) >"$scratch/said" 2>&1 </dev/null ||
    fail "sudo refuses: it went on"
says "sudo refuses" "sudo does not let" "apt-get install .*llvm-19-dev"
rm "$commands/sudo"

# --- the machine
new_tree
stand_in uname 'echo Linux aarch64'
! setup || fail "another processor: it went on"
says "another processor" "Linux on x86-64" "aarch64"
ln -sf /usr/bin/uname "$commands/uname"
stand_in df 'echo Avail; echo 12'
! setup || fail "little room: it went on"
says "little room" "12 MB are free" "another disk"
ln -sf /usr/bin/df "$commands/df"
mkdir "$scratch/a blank"
cp Makefile "$scratch/a blank/"
! make -C "$scratch/a blank" help >"$scratch/said" 2>&1 || fail "a path with a blank: it went on"
says "a path with a blank" "a blank has a blank|a blank' has a blank" "move the folder"

# --- downloads: a package of ours in place of the real one, which tells if any of it runs
new_tree
mkdir -p "$scratch/index/cantools-45.1.0/tests/test_c_code/test_framework"
(
    cd "$scratch/index"
    printf '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n' >cantools-45.1.0/pyproject.toml
    echo "open('$scratch/it-ran', 'w')" >cantools-45.1.0/setup.py
    printf 'Metadata-Version: 2.1\nName: cantools\nVersion: 45.1.0\n' >cantools-45.1.0/PKG-INFO
    for file in LICENSE.txt unity.c unity.h unity_internals.h; do
        echo "/* $file */" >cantools-45.1.0/tests/test_c_code/test_framework/$file
    done
    tar -czf cantools-45.1.0.tar.gz cantools-45.1.0
    rm -r cantools-45.1.0
)
local_index=(PIP_NO_INDEX=1 "PIP_FIND_LINKS=$scratch/index" PIP_CONFIG_FILE=/dev/null)
! setup "${local_index[@]}" || fail "a wrong hash: it went on"
says "a wrong hash" "Unity could not be fetched" "HASH|hash"
[ ! -e "$tree/build/unity" ] || fail "something of an archive with a wrong hash was taken"
[ ! -e "$scratch/it-ran" ] || fail "an archive with a wrong hash was run"
hash=$(sha256sum "$scratch/index/cantools-45.1.0.tar.gz")
echo "cantools==45.1.0 --hash=sha256:${hash%% *}" >"$tree/scripts/wheels/unity.txt"
# Half of it is there, as an interrupted run leaves it.
mkdir -p "$tree/build/unity"
echo broken >"$tree/build/unity/unity.h"
! setup "${local_index[@]}" || fail "no wheels: it went on"
says "no toolkit to be had" "scripts/wheels/cuda.txt names could not be fetched" "CUDA_HOME="
grep -q "unity.h" "$tree/build/unity/unity.h" || fail "what was interrupted was not taken up again"
[ ! -e "$scratch/it-ran" ] || fail "a source package was run to read its metadata"
! find "$tree/build" -maxdepth 1 -name '.unity.*' -o -maxdepth 1 -name '.wheels.*' | grep -q . || fail "temporary folders are left"
cd "$top"
echo "$checks ends, each with its message"
