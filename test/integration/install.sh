#!/usr/bin/env bash
# `make install` and `make uninstall`: what is installed works where it is put, names no place of
# the build, and goes again without a trace, while what others have there stays.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc

build=${TALLY_BUILD:-build}
need_built "$build/lib/tally/libcuda.so.1" "$build/lib/tally/device/libcuda.so.1"
need_plain "$build/lib/tally/device/libcuda.so.1"
root=$TMPDIR/root prefix=/opt/tally
there=$root$prefix
failed=0
complain() {
    echo "FAIL  $*"
    failed=1
}
expect() { # WHAT ACTUAL WANTED
    [ "$2" = "$3" ] || complain "$1: '$2', not '$3'"
}
# What is built already: make's own variables would have it built anew with the flags of who called.
make_it() { # TARGET VARIABLE...
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make --no-print-directory B="$build" SETUP=no \
        DESTDIR="$root" PREFIX=$prefix "$@"
}
everything() { (cd "$root" && find . -printf '%y %m %p %l\n' | sort); }

# --- what others have: files, and folders that are empty

mkdir -p "$there/share/man/man1" "$there/share/zsh/site-functions" "$there/lib/systemd"
echo mine >"$there/share/man/man1/other.1"
before=$(everything)

# --- in, in again, and out

make_it install-files >"$TMPDIR/said"
grep -q '^installed [0-9]* files' "$TMPDIR/said" || complain "install says: $(cat "$TMPDIR/said")"
first=$(everything)
make_it install-files >/dev/null
expect "installing again" "$(diff <(echo "$first") <(everything) || :)" ""

for file in bin/tally bin/tally-run bin/tallyd lib/tally/libcuda.so.1 lib/tally/libtally-effort.so \
    lib/tally/libtally-nvtx.so lib/tally/libtally-entry.so lib/tally/container-check \
    lib/tally/ld.so.preload lib/tally/device/libcuda.so.1 lib/tally/device/libnvidia-ml.so.1 \
    lib/tally/cuda/bin/ptxas include/tally/mark.h lib/libtally_ptx.a lib/pkgconfig/tally.pc \
    lib/systemd/user/tallyd.service lib/systemd/user/tallyd.socket share/doc/tally/rules.example \
    share/bash-completion/completions/tally-run share/zsh/site-functions/_tally \
    share/tally/monitoring/tally-alerts.yml share/tally/monitoring/tally-dashboard.json \
    share/tally/python/tally_mark.py share/tally/python/tally_ray.py \
    share/doc/tally/kubernetes/tally.yaml; do
    [ -f "$there/$file" ] || complain "$file is not installed"
done
[ ! -e "$there/lib/libtally_exec.a" ] || complain "a private archive is installed"

# --- nothing points out of it, or is writable by others

while IFS= read -r link; do
    [[ $(readlink "$link") != /* && -e $link ]] || complain "$link points to $(readlink "$link")"
done < <(find "$root" -type l)
expect "modes" "$(find "$root" ! -type l -perm /022)" ""
expect "libraries that can be started" \
    "$(find "$there/lib" -type f \( -name '*.so*' -o -name '*.a' \) -perm /111)" ""
texts=$(grep -rIlF -e "$PWD" -e "$root" "$root" || :)
expect "texts with a place of the build" "$texts" ""

# --- it works there

export XDG_RUNTIME_DIR=$TMPDIR/run TALLY_CACHE=$TMPDIR/cache TALLY_JIT_IDLE=20 TALLY_DAEMON_IDLE=2
export TALLY_DEVICE_NAME=tally-install-$$
mkdir -m 700 "$XDG_RUNTIME_DIR"
trap '"$there/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -f "/dev/shm/$TALLY_DEVICE_NAME".*' EXIT
run=$there/bin/tally-run
expect "the version" "$("$there/bin/tally" --version)" "tally $(cat VERSION)"
"$run" --device=soft -q true || complain "tally-run true: exit status $?"
# shellcheck disable=SC2016
expect "what is preloaded" "$("$run" --device=soft -q sh -c 'echo "$LD_PRELOAD $TALLY_DRIVER"')" \
    "$there/lib/tally/libcuda.so.1 $there/lib/tally/device/libcuda.so.1"
program=$build/workloads/cuda/atomics
if [ -x "$program" ]; then
    "$run" --device=soft -q "$program" >"$TMPDIR/out" 2>&1 ||
        complain "a program: $(cat "$TMPDIR/out")"
    "$there/bin/tally-jit" status >/dev/null || complain "the installed compiler did not compile it"
else
    echo "no nvcc was there to build a program for it"
fi

# The example of the rules can be read, and one with a mistake would be told.
tallyd() { "$there/bin/tallyd" --socket="$TMPDIR/run/s" --idle=1ms --rules="$1" 2>&1; }
tallyd "$there/share/doc/tally/rules.example" >"$TMPDIR/out" ||
    complain "the rules: $(cat "$TMPDIR/out")"
{ cat "$there/share/doc/tally/rules.example" && echo everybody; } >"$TMPDIR/rules"
! tallyd "$TMPDIR/rules" >/dev/null || complain "rules that make no sense are not told"

grep -q "^ExecStart=$prefix/bin/tallyd " "$there/lib/systemd/user/tallyd.service" ||
    complain "the unit does not start $prefix/bin/tallyd"

if command -v scdoc >/dev/null; then
    for page in docs/man/*.1.scd; do
        page=$(basename "$page" .1.scd)
        # built where its libraries are
        [ "$page" != tally-device-plugin ] || [ -e "$there/bin/$page" ] || continue
        if command -v man >/dev/null; then
            man -M "$there/share/man" "$page" >"$TMPDIR/page" 2>"$TMPDIR/errors" </dev/null || :
            grep -q NAME "$TMPDIR/page" || complain "man $page: $(cat "$TMPDIR/errors")"
        else
            grep -q '^\.SH NAME' "$there/share/man/man1/$page.1" || complain "no page $page"
        fi
    done
fi

# Each header is enough for itself, and what it declares is in an archive that is installed with it.
if command -v cc >/dev/null; then
    for header in "$there"/include/tally/*.h; do
        echo "#include <tally/$(basename "$header")>" | cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only \
            -I"$there/include" -x c - 2>"$TMPDIR/errors" || complain "$header alone: $(cat "$TMPDIR/errors")"
    done
    defined=$(nm -g --defined-only "$there"/lib/*.a 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u)
    while IFS= read -r name; do
        grep -qx "$name" <<<"$defined" || complain "$name is declared in a header and in no archive"
    done < <(sed -nE 's/^[a-z].*[ *](tl_[a-z0-9_]+)\(.*\);$/\1/p' "$there"/include/tally/*.h | sort -u)
fi

# A program that uses the libraries, as pkg-config tells.
if command -v cc >/dev/null && command -v pkg-config >/dev/null; then
    cat >"$TMPDIR/user.c" <<'C'
#include <tally/image.h>
#include <tally/mark.h>
#include <tally/ptx.h>
#include <tally/sched.h>
#include <stdio.h>
int main(void)
{
    struct tl_ptx_index *ix = NULL;
    struct tl_error err = {0};
    const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }\n";
    int rc = tl_ptx_index_create(&ix, ptx, sizeof ptx - 1, "text", &err);
    printf("%s %d %u\n", tl_version, rc, rc == 0 ? tl_ptx_index_count(ix) : 0);
    tl_ptx_index_destroy(ix);
    return rc;
}
C
    export PKG_CONFIG_PATH=$there/lib/pkgconfig
    expect "pkg-config" "$(pkg-config --modversion tally)" "$(cat VERSION)"
    # shellcheck disable=SC2046
    cc -o "$TMPDIR/user" "$TMPDIR/user.c" $(pkg-config --define-variable=prefix="$there" \
        --define-variable=libdir="$there/lib" --cflags --libs tally)
    "$TMPDIR/user" | grep -q "^$(cat VERSION) 0 [1-9]" || complain "a program with the libraries"
fi

# --- an older version's file goes with the next installation; a user's file stays, with its folder

"$there/bin/tally-jit" stop >/dev/null 2>&1 || :
manifest=$there/share/tally/manifest
echo old >"$there/bin/tally-old"
echo "file $prefix/bin/tally-old" >>"$manifest"
make_it install-files >/dev/null
[ ! -e "$there/bin/tally-old" ] || complain "a file of an older version stays"
echo mine >"$there/lib/tally/device/mine"
make_it uninstall >/dev/null
expect "what is left" "$(find "$there" -newer "$TMPDIR/said" -type f)" \
    "$there/lib/tally/device/mine"
rm -r "$there/lib/tally"
expect "what was there before" "$(diff <(echo "$before") <(everything) || :)" ""
! make_it uninstall >"$TMPDIR/said" 2>&1 || complain "there was nothing to uninstall"
grep -q 'nothing was installed there' "$TMPDIR/said" ||
    complain "uninstall says: $(cat "$TMPDIR/said")"

# --- for packages: no manifest, nothing of NVIDIA's, other places

make_it install-files MANIFEST= LIBDEVICE=no LIBDIR=$prefix/lib/multi ZSHDIR=/opt/vendor >/dev/null
[ ! -e "$manifest" ] || complain "a manifest in a package"
[ ! -e "$there/lib/tally/cuda/nvvm" ] || complain "libdevice in a package"
[ -f "$there/lib/multi/pkgconfig/tally.pc" ] || complain "LIBDIR is not heeded"
[ -f "$root/opt/vendor/_tally" ] || complain "ZSHDIR is not heeded"

[ $failed -eq 0 ] && echo "installed, used and removed: $(wc -l <<<"$first") files and folders"
exit $failed
