#!/usr/bin/env bash
# Programs that know nothing of Tally (workloads/cuda), on the software CUDA device: each checks its own result.
#
# Each runs twice, with the CUDA runtime linked in and with libcudart.so.  workloads/cuda/EXPECTED-FAILURES names those that
# are known to fail, with the reason; one that passes although it is named there is a failure too, so that the list stays
# true.  PROGRAMS="a b" runs only these.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
known=workloads/cuda/EXPECTED-FAILURES
device=$build/lib/tally/device
need_nvcc
need_built "$device/libcuda.so.1" "$build/bin/tally-jit"
need_plain "$device/libcuda.so.1"
toolkit=$(cd "$(dirname "$(realpath "$nvcc")")/.." && pwd)
scratch=$(mktemp -d)
export TMPDIR=$scratch XDG_RUNTIME_DIR=$scratch TALLY_CACHE=$scratch/cache TALLY_JIT_IDLE=20
export TALLY_DEVICE_NAME=tally-programs-$$
trap '"$build/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*' EXIT

# `make test` has built them before; a run of this script alone does it here.
make --no-print-directory -j2 B="${TALLY_BUILD:-build}" SETUP=no workloads

names=${PROGRAMS:-$(cd workloads/cuda && for source in *.cu; do echo "${source%.cu}"; done)}
passed=0 failed=0 expected=0
run() { # run NAME PROGRAM LIBRARY_PATH
    local name=$1 program=$2 path=$3 status=0 word reason begin=$EPOCHREALTIME
    { LD_LIBRARY_PATH=$path timeout -k 2 60 "$program" >"$scratch/output" 2>"$scratch/errors"; } 2>/dev/null || status=$?
    reason=$(awk -v name="$name" '$1 == name { sub(/^[^ ]+ +/, ""); print; exit }' "$known")
    if [ $status -eq 0 ] && [ -z "$reason" ]; then
        word=ok passed=$((passed + 1))
    elif [ $status -eq 0 ]; then
        word=FAIL failed=$((failed + 1)) reason="passes although $known names it: $reason"
    elif [ -n "$reason" ]; then
        word=known expected=$((expected + 1)) reason="fails as expected: $reason"
    else
        word=FAIL failed=$((failed + 1)) reason="exit status $status"
    fi
    local ms=$(((${EPOCHREALTIME/[.,]/} - ${begin/[.,]/}) / 1000))
    printf '%-5s %-24s %6d ms  %s\n' $word "$(basename "$program")" $ms "$reason"
    [ $word != FAIL ] || sed 's/^/      | /' "$scratch/output" "$scratch/errors" | head -n 20
}
for name in $names; do
    if [ "$name" = nvrtc ] && [ ! -e "$build/workloads/cuda/nvrtc" ]; then
        echo "left  nvrtc: the toolkit has no libnvrtc"
        continue
    fi
    run "$name" "$build/workloads/cuda/$name" "$device:$toolkit/lib"
    run "$name" "$build/workloads/cuda/$name-shared" "$device:$toolkit/lib"
done
# A name in the list without a program would hide nothing and help nobody.
while read -r name _; do
    case $name in '' | '#'*) continue ;; esac
    if [ ! -e "workloads/cuda/$name.cu" ]; then
        echo "FAIL  $known names $name, which does not exist"
        failed=$((failed + 1))
    fi
done <$known
echo "$passed passed, $failed failed, $expected failed as expected"
[ $failed -eq 0 ]
