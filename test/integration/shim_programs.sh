#!/usr/bin/env bash
# Programs that know nothing of Tally (workloads/cuda) behave the same with the interception library in front of the driver as
# without: same output, same exit status, with the CUDA runtime linked in and with libcudart.so; and nothing is left in flight.
# PROGRAMS="a b" runs only these.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
shim=$build/lib/tally/libcuda.so.1 device=$build/lib/tally/device
need_nvcc
need_built "$shim" "$device/libcuda.so.1" "$build/bin/tally-jit"
need_plain "$shim"
toolkit=$(cd "$(dirname "$(realpath "$nvcc")")/.." && pwd)
scratch=$(mktemp -d)
export TMPDIR=$scratch XDG_RUNTIME_DIR=$scratch TALLY_CACHE=$scratch/cache TALLY_JIT_IDLE=20
export TALLY_DEVICE_NAME=tally-shim-programs-$$ TALLY_DAEMON=no
trap '"$build/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*' EXIT

make --no-print-directory -j2 B="${TALLY_BUILD:-build}" SETUP=no workloads

plain() { LD_LIBRARY_PATH=$device:$toolkit/lib timeout -k 2 60 "$1"; }
# The driver of the library path is the wrong one on purpose: the name must lead to the library that is there already.
through() {
    LD_PRELOAD=$shim TALLY_DRIVER=$device/libcuda.so.1 TALLY_PRIORITY=high TALLY_REPORT=$scratch/report TALLY_LOG=debug \
        LD_LIBRARY_PATH=$toolkit/lib/stubs:$toolkit/lib timeout -k 2 60 "$1"
}

failed=0 passed=0
for name in ${PROGRAMS:-$(cd workloads/cuda && for source in *.cu; do echo "${source%.cu}"; done)}; do
    for program in "$build/workloads/cuda/$name" "$build/workloads/cuda/$name-shared"; do
        [ -x "$program" ] || continue
        # Of one that fails without the library, only that it fails is compared.
        plain_status=0 status=0
        { plain "$program" >"$scratch/plain" 2>"$scratch/plain.errors"; } 2>/dev/null || plain_status=$?
        { through "$program" >"$scratch/through" 2>"$scratch/errors"; } 2>/dev/null || status=$?
        reason=
        [ $plain_status -eq $status ] || reason="exit status $status, without the library $plain_status"
        [ -n "$reason" ] || [ $status -ne 0 ] || cmp -s "$scratch/plain" "$scratch/through" || reason="prints something else"
        # A program that is killed or that calls _exit does not get to its end.
        if [ -z "$reason" ] && [ $status -eq 0 ] && ! grep -qE 'end: [0-9]+ pieces of work issued, 0 in flight' "$scratch/errors"; then
            reason="something is left in flight"
        fi
        if [ -z "$reason" ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "FAIL  $(basename "$program"): $reason"
            grep -v '^tally device' "$scratch/errors" | tail -n 10 | sed 's/^/      | /'
        fi
    done
done
echo "$passed the same, $failed not"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
